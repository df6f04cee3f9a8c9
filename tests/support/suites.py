"""Makes invented runs of many workloads and allocators, for tests of standings and charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from support.comparisons import a_run, a_sample

from cairn.memory import Memory
from cairn.model import (
    Contender,
    Reported,
    Run,
    Sample,
    Settings,
    StopRule,
    Trial,
    Workload,
)

ALLOCATORS = (
    "system", "jemalloc", "mimalloc", "mimalloc3", "rpmalloc", "snmalloc", "tcmalloc",
    "google-tcmalloc", "google-tcmalloc-rseq", "tbbmalloc", "hoard", "scudo", "hardened-light",
)  # fmt: skip
WORKLOADS = (
    "malloctest", "fill", "fill-threads", "mixed", "scenario-json", "scenario-mir", "scenario-vm",
    "scenario-mixed", "larson", "producer-consumer", "free-only", "sleeping-owner", "thread-birth",
    "burst", "false-sharing-active", "false-sharing-passive", "hash-table", "lru-cache",
    "large-churn", "phase-change", "document", "syntax-tree", "big-integers", "realloc-growth",
    "robson", "server",
)  # fmt: skip
MIB = 1 << 20


def a_suite(workloads: Sequence[str], contenders: Sequence[str], rounds: int = 10) -> Run:
    """Returns a run of these workloads and contenders, without samples."""
    rule = StopRule(precision=None, min_rounds=rounds, max_rounds=rounds)
    settings = Settings(
        workloads=tuple(Workload(name, ("cairn-work", name)) for name in workloads),
        folder="/",
        reports=True,
    )
    run = a_run(*(Contender(name, name, f"{name} 1.0") for name in contenders))
    return replace(run, settings=settings, rule=rule, baseline=contenders[0], quick=False)


def reported(median_ns: float, idle_ns: int = 0, **more: object) -> Reported:
    own = Reported(
        operations=100_000,
        batches=1_000,
        mean_ns=1.1 * median_ns,
        median_ns=median_ns,
        p95_ns=1.6 * median_ns,
        p99_ns=3.0 * median_ns,
        busy_ns=int(1e5 * median_ns),
        idle_ns=idle_ns,
        minor_faults=2_500,
        checksum="00ff",
        live_peak_bytes=7 * MIB,
    )
    return replace(own, **more)  # type: ignore[arg-type]


def a_run_of(
    workload: int, contender: str, round_: int, wall_ms: float, peak: float = 100 * MIB
) -> Sample:
    """Returns one sample with the given numbers."""
    return replace(
        a_sample(round_, contender, wall_ms),
        trial=Trial(round_, 0, contender, workload),
        memory=Memory("cgroup v2", int(peak), int(peak), 0),
        reported=reported(wall_ms * 10),
    )


def exact(
    run: Run, times: Mapping[tuple[int, str], float], rounds: int = 6, peak: float = 100 * MIB
) -> list[Sample]:
    """Returns samples with the given times in ms, by workload and contender.

    Their only noise is a factor of each round, which is the same for all contenders.
    """
    return [
        a_run_of(workload, name, round_, wall * (1 + 0.3 * (round_ % 3)), peak)
        for round_ in range(1, rounds + 1)
        for (workload, name), wall in times.items()
    ]


def lively(run: Run, *, seed: int = 4711, noise: float = 0.02) -> list[Sample]:
    """Returns samples that look like those of a real run.

    The differences between allocators depend on the workload, and the noise has heavy tails. A cell
    is one allocator on one workload. A few cells are far slower than the others. In a run of more
    than four contenders, up to two cells failed.
    """
    rng = np.random.default_rng(seed)
    names = [contender.name for contender in run.contenders]
    result = []
    general = np.linspace(0.0, 0.5, len(names))
    for workload in range(len(run.settings.workloads)):
        size = 10 ** rng.uniform(0.3, 3.0)
        wall = 10 ** rng.uniform(1.5, 3.5)
        speed = general * rng.uniform(0.2, 1.5) + np.abs(rng.normal(0, 0.12, len(names)))
        weight = np.abs(rng.normal(0.15, 0.2, len(names)))
        if workload % 9 == 3:
            speed[rng.integers(len(names))] += math.log(rng.uniform(8, 60))
        for round_ in range(1, 4 + workload % 3 * 3):
            pace = rng.normal(0, 0.05)
            for place, name in enumerate(names):
                late = noise * rng.standard_t(3) * (1 + place % 3) + (
                    rng.random() < 0.01
                ) * rng.exponential(1)
                broken = (workload, place) in ((2, len(names) - 2), (7, len(names) - 1)) and len(
                    names
                ) > 4
                if broken and round_ > 1:
                    continue
                sample = a_run_of(
                    workload, name, round_, wall * math.exp(speed[place] + pace + late),
                    size * MIB * math.exp(weight[place] + 0.01 * rng.standard_normal()),
                )  # fmt: skip
                result.append(
                    replace(sample, failure="was killed by signal 11 (SIGSEGV)")
                    if broken
                    else sample
                )
    return result
