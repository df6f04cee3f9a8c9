"""Invented runs of 'cairn soak', with a contender for each kind of memory over time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace
from support.comparisons import a_run, a_sample
from support.memory_series import KIB, MIB, Simulated

from cairn.memory import Memory, Series, Trim
from cairn.model import Contender, Run, Sample
from cairn.report.run import Measured

BASE = 20 * MIB


def leaks(one: Simulated) -> Series:
    return one.series(BASE + one.leak(64 * KIB))


def stable(one: Simulated) -> Series:
    return one.series(BASE + one.correlated(20 * KIB, 0.01), trim=Trim(BASE, BASE + MIB, BASE))


def spare(one: Simulated, after: int) -> Series:
    live = np.where(one.at < 0.2, 100.0 * MIB, 10.0 * MIB)
    held = 105.0 * MIB + 0 * one.at
    return one.series(live, held=held, trim=Trim(10 * MIB, 105 * MIB, after))


def retains(one: Simulated) -> Series:
    return spare(one, 12 * MIB)


def fragments(one: Simulated) -> Series:
    return spare(one, 100 * MIB)


def cycles(one: Simulated) -> Series:
    return one.series(BASE + one.cycles(BASE, 0.4))


def noise(one: Simulated) -> Series:
    return one.series(BASE + one.correlated(0.1 * BASE, 0.02))


def soaked(**kinds: Callable[[Simulated], Series]) -> tuple[Run, list[Sample]]:
    """A run of two rounds with a contender for each kind, and its samples."""
    contenders = tuple(
        Contender(name, "system", "glibc 2.36", probed=True, knobs=(("MALLOC_ARENA_MAX", "2"),))
        for name in kinds
    )
    run = a_run(*contenders)
    run = replace(
        run, baseline=contenders[0].name,
        settings=replace(run.settings, soak_s=30.0),
        notes=("A note on the machine.",),
    )  # fmt: skip
    samples = [
        a_sample(
            number, name, 30_000,
            memory=Memory("cgroup v1", BASE, BASE, 0, series=made(Simulated(number))),
        )
        for number in (1, 2)
        for name, made in kinds.items()
    ]  # fmt: skip
    return run, samples


ALL = {
    "leaks": leaks, "fragments": fragments, "retains": retains, "cycles": cycles, "noise": noise,
    "stable": stable,
}  # fmt: skip


def a_soak(name: str = "last") -> Measured:
    """A stored run with a contender of each kind."""
    run, samples = soaked(**ALL)
    return Measured(run, tuple(samples), (), name, kind="soak")
