"""Standings of many allocators on many workloads: their distances to the best, and the means.

A comparison (`compare`) answers "should this program change its allocator". Standings answer "how
does an allocator perform over many kinds of work". The reference is therefore not a baseline but
the best contender of each workload, in time (wall time without deliberate sleep) and in peak
memory. A contender's overall figure is the geometric mean of its ratios: 1.00 would be best
everywhere.

Always true here:

- Rounds are compared only within a workload. Workloads may have different numbers of rounds; each
  workload has the same weight in a mean.
- A contender that failed on a workload is not a reference there. Its failure costs the other
  contenders neither a round nor a workload.
- The means of all contenders are over the same workloads. They leave out workloads that fewer than
  two contenders completed. Means of memory also leave out workloads on which a contender's memory
  was not measured, or on which memory was measured in different ways.
- A contender that failed on any workload has no mean. A mean over the rest would flatter it, since
  an allocator seldom fails where it is good.

The module `ratios` explains how ratios and their intervals are made, and why the choice of the best
contender needs care. All functions are pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cairn.compare import ratios, stats
from cairn.compare.ratios import Column, Difference, Ratio, Rounds
from cairn.model import ACTIVE, PEAK, Run, Sample

LARGE_BYTES = 20 << 20
"""The peak from which a program counts as large. The literature reports such programs separately.

Below this size, the ratio in memory depends on the pages that an allocator maps at its start rather
than on how it packs the program's blocks.
"""


class WorkloadResult(Struct, frozen=True):
    """One contender on one workload."""

    workload: int
    """The index of the workload in the settings."""
    contender: str
    time: Ratio | None
    """None if the contender failed, if fewer than two contenders completed the workload, or if
    there is no complete round."""
    memory: Ratio | None
    """None if memory was not measured for every contender, or was measured in different ways."""
    time_ns: float | None
    """Median over complete rounds."""
    memory_bytes: float | None
    """Median over complete rounds; None if memory was not measured."""
    failure: str | None = None
    """The contender's failure on this workload, as a sentence."""


class Contest(Struct, frozen=True):
    """One workload, over all contenders."""

    workload: int
    name: str
    rounds: int
    """The number of complete rounds."""
    best_time: str | None
    """The contender that looks best in time. Any contender whose interval begins at 1 may be
    best."""
    best_memory: str | None
    """The contender that looks best in memory."""
    half_width: float | None
    """The noise in time: the median over contenders of half the interval's length; 0.01 is ±1 %."""
    memory_half_width: float | None
    memory_method: str | None
    leanest_bytes: float | None
    """The median peak of the contender with the least memory."""
    memory_missing: str | None = None
    """Why the memory ratios are missing, as a phrase; None if they are not."""

    @property
    def large(self) -> bool | None:
        """Whether the workload counts as a large program; None when memory was not measured.

        The contender with the least memory decides. A contender that wastes memory can make any
        program look large.
        """
        return None if self.leanest_bytes is None else self.leanest_bytes >= LARGE_BYTES


class Place(Struct, frozen=True):
    """One contender over all workloads: geometric means of its ratios to each workload's best."""

    contender: str
    title: str
    time: Ratio | None
    memory: Ratio | None
    memory_large: Ratio | None
    """The mean over the workloads in which even the leanest contender has a median peak of at least
    LARGE_BYTES."""
    memory_small: Ratio | None
    """The mean over the workloads that `memory_large` leaves out."""
    over_above: Difference | None
    """The contender's time divided by that of the contender one place above, paired within rounds:
    the geometric mean over the workloads. None for the first place.

    If this contender is not shown to take more time, the order of the two may be chance.
    """
    failed_on: tuple[str, ...] = ()
    """The names of the workloads on which the contender failed. A contender that failed on any
    workload has no means."""


class Standings(Struct, frozen=True):
    """Everything a report needs, made from stored samples alone."""

    contests: tuple[Contest, ...]
    """In the order of the settings' workloads."""
    places: tuple[Place, ...]
    """By mean time, best first; contenders without a mean come last."""
    cells: Mapping[tuple[int, str], WorkloadResult]
    """The results by workload and contender, one for every pair."""
    time_over: tuple[int, ...]
    """The indexes of the workloads that enter the means of time."""
    memory_over: tuple[int, ...]
    """The indexes of the workloads that enter the means of memory."""
    large_over: tuple[int, ...]
    """The workloads of `memory_over` that count as large programs."""
    small_over: tuple[int, ...]
    """The other workloads of `memory_over`."""
    level: float
    """The nominal level of the intervals."""
    leanest: str | None
    """The contender with the smallest mean in memory; None if no contender has one."""


def standings(run: Run, samples: Sequence[Sample]) -> Standings:
    """Judges every contender of `run` on every workload by the samples so far."""
    names = [contender.name for contender in run.competing]
    alpha = stats.alpha(run.rule)
    tables = [
        _WorkloadTable.of(index, workload.name, ratios.complete(samples, names, index), alpha)
        for index, workload in enumerate(run.settings.workloads)
    ]
    cells = {(table.index, name): table.cell(name) for table in tables for name in names}
    failed = {
        name: tuple(table.name for table in tables if name in table.rounds.failures)
        for name in names
    }
    groups = {
        "time": [table for table in tables if table.time is not None],
        "memory": [table for table in tables if table.memory is not None],
        "large": [
            table
            for table in tables
            if table.memory is not None and table.leanest_bytes >= LARGE_BYTES
        ],
        "small": [
            table
            for table in tables
            if table.memory is not None and table.leanest_bytes < LARGE_BYTES
        ],
    }
    columns = {
        group: [
            column
            for table in members
            if (column := table.time if group == "time" else table.memory)
        ]
        for group, members in groups.items()
    }
    means = {
        (group, name): None if failed[name] else ratios.mean_ratio(columns[group], name)
        for group in groups
        for name in names
    }
    ordered = sorted(names, key=lambda name: _rank(means["time", name], columns["time"], name))
    leanest = min(names, key=lambda name: _rank(means["memory", name], columns["memory"], name))
    titles = {contender.name: contender.title for contender in run.competing}

    def over(name: str, other: str | None) -> Difference | None:
        if other is None or means["time", name] is None or means["time", other] is None:
            return None
        return ratios.mean_difference(columns["time"], name, other)

    places = tuple(
        Place(
            contender=name,
            title=titles[name],
            time=means["time", name],
            memory=means["memory", name],
            memory_large=means["large", name],
            memory_small=means["small", name],
            over_above=over(name, above),
            failed_on=failed[name],
        )
        for above, name in zip([None, *ordered], ordered, strict=False)
    )
    counted = {group: tuple(table.index for table in members) for group, members in groups.items()}
    return Standings(
        contests=tuple(table.contest() for table in tables),
        places=places,
        cells=cells,
        time_over=counted["time"],
        memory_over=counted["memory"],
        large_over=counted["large"],
        small_over=counted["small"],
        level=1 - alpha,
        leanest=leanest if means["memory", leanest] is not None else None,
    )


def _rank(mean: Ratio | None, columns: Sequence[Column], name: str) -> tuple[bool, float]:
    """The sort key. Contenders without a mean come last.

    The others are sorted by the sum of their log distances to the best of each workload. The means
    cannot sort them, because every mean below 1 was raised to 1.
    """
    return mean is None, 0.0 if mean is None else sum(
        float(c.behind[c.contenders.index(name)]) for c in columns
    )


class _WorkloadTable(Struct, frozen=True):
    """One workload: its complete rounds, columns and numbers."""

    index: int
    name: str
    rounds: Rounds
    time: Column | None
    """None if fewer than two contenders completed the workload."""
    memory: Column | None
    times: Mapping[str, Sequence[float]]
    peaks: Mapping[str, Sequence[float]]

    @staticmethod
    def of(index: int, name: str, rounds: Rounds, alpha: float) -> _WorkloadTable:
        several = len(rounds.contenders) > 1
        return _WorkloadTable(
            index=index,
            name=name,
            rounds=rounds,
            time=rounds.column(ACTIVE.key, alpha) if several else None,
            memory=rounds.column(PEAK.key, alpha) if several else None,
            times=rounds.numbers(ACTIVE.key),
            peaks=rounds.numbers(PEAK.key),
        )

    @property
    def leanest_bytes(self) -> float:
        return min(statistics.median(peaks) for peaks in self.peaks.values() if peaks)

    def cell(self, name: str) -> WorkloadResult:
        survived = name not in self.rounds.failures
        return WorkloadResult(
            workload=self.index,
            contender=name,
            time=self.time.ratio(name) if self.time and survived else None,
            memory=self.memory.ratio(name) if self.memory and survived else None,
            time_ns=_median(self.times.get(name, ())),
            memory_bytes=_median(self.peaks.get(name, ())),
            failure=self.rounds.failures.get(name),
        )

    def contest(self) -> Contest:
        methods = self.rounds.methods()
        return Contest(
            workload=self.index,
            name=self.name,
            rounds=len(self.rounds.rounds),
            best_time=self.time.contenders[self.time.best] if self.time else None,
            best_memory=self.memory.contenders[self.memory.best] if self.memory else None,
            half_width=_median(self.time.half_widths()) if self.time else None,
            memory_half_width=_median(self.memory.half_widths()) if self.memory else None,
            memory_method=methods[0] if len(methods) == 1 else None,
            leanest_bytes=self.leanest_bytes if self.memory else None,
            memory_missing=None if self.memory else self._why(methods),
        )

    def _why(self, methods: Sequence[str]) -> str:
        if not self.rounds.rounds:
            return "no complete round"
        if len(self.rounds.contenders) < 2:
            return "fewer than two contenders completed it"
        if len(methods) > 1:
            return f"measured in different ways ({', '.join(methods)})"
        without = [name for name, peaks in self.peaks.items() if not peaks]
        return f"not measured for {', '.join(without)}" if methods and without else "not measured"


def _median(numbers: Sequence[float]) -> float | None:
    return statistics.median(numbers) if numbers else None
