"""Makes invented runs of plans, for tests of their means and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from support.comparisons import a_run, a_sample

from cairn.memory import Memory
from cairn.model import Contender, Run, Sample, Settings, StopRule, Trial, Workload

MIB = 1 << 20


def a_plan_run(
    programs: Mapping[str, str], contenders: Sequence[str], rounds: int = 6, number: int = 0
) -> Run:
    """Returns a run without samples. `programs` maps the name of each program to its kind."""
    workloads = tuple(Workload(name, (name,), kind) for name, kind in programs.items())
    run = a_run(*(Contender(name, name, f"{name} 1.0") for name in contenders))
    return replace(
        run,
        id=f"20260101-000000-{number:04x}",
        settings=Settings(workloads=workloads, folder="/", by_cell=True),
        rule=StopRule(precision=None, min_rounds=rounds, max_rounds=rounds, judged="active"),
        baseline=contenders[0],
        experiment="matrix invented",
        seed=11,
    )


def a_trial(workload: int, contender: str, round_: int, ms: float, peak: float) -> Sample:
    """Returns one sample with the given numbers."""
    return replace(
        a_sample(round_, contender, ms),
        trial=Trial(round_, 0, contender, workload),
        memory=Memory("cgroup v1", int(peak), int(peak), 0),
    )


def noisy(
    run: Run,
    ratios: Mapping[tuple[int, str], tuple[float, float]],
    *,
    seed: int,
    noise: float = 0.01,
    shared: float = 0.0,
) -> list[Sample]:
    """Returns samples in which a cell has these true ratios of time and memory to the baseline.

    noise: the standard deviation of the log time of a run. shared: the standard deviation of a part
    of the log time. In one round, this part is equal in all programs of a contender.
    """
    rng = np.random.default_rng(seed)
    names = [contender.name for contender in run.contenders]
    found = []
    for round_ in range(1, run.rule.max_rounds + 1):
        common = {name: shared * rng.standard_normal() for name in names}
        for workload in range(len(run.settings.workloads)):
            pace = 0.05 * rng.standard_normal()
            for name in names:
                time, memory = ratios.get((workload, name), (1.0, 1.0))
                off = noise * rng.standard_normal() + pace + common[name]
                wall = 200.0 * (workload + 1) * time * math.exp(off)
                peak = 64 * MIB * memory * math.exp(0.2 * noise * rng.standard_normal())
                found.append(a_trial(workload, name, round_, wall, peak))
    return found
