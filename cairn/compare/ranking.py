"""Few workloads, many runs: what an operation costs, and a ranking by points with what it hides.

The form is that of the founding experiment: per scenario, 5, 4, 3, 2, 1 points by the median time of an operation, and
the sum ranks the contenders (n contenders: n … 1). Points are easy to read and throw away what matters: first by 7 %
and first by 250 % score alike, and the order of two that nobody can tell apart scores as well. So a total never stands
alone: next to it are the geometric mean of the ratios to the best, with its interval, and whether the contender is
shown to be slower than the one above it.

Always true here:

- The time of an operation in one run is what the workload reports: the median, P95 and P99 over its batches of
  operations. A figure here is the median of that over the runs in complete rounds: the P95 is the one of a typical run,
  not that of all batches thrown together, which one bad run could own.
- Ratios are paired within rounds; `ratios` says how, and why the best needs care.
- A contender that failed in a scenario gets no points there, and no total; the others' points stay as if it came last.

Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cairn.compare import ratios, stats
from cairn.compare.ratios import Column, Difference, Ratio, Rounds
from cairn.model import (
    OPERATION_FAULTS,
    OPERATION_MEDIAN,
    OPERATION_P95,
    OPERATION_P99,
    Run,
    Sample,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender in one scenario. Times are ns per operation, each a median over runs; None: not measured."""

    contender: str
    median_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    faults: float | None
    """Page faults per operation, median over runs."""
    median_ratio: Ratio | None
    """Over the best of the scenario; likewise the next two."""
    p95_ratio: Ratio | None
    p99_ratio: Ratio | None
    over_above: Difference | None
    """Median over that of the one in the line above; None for the first. Unless it is shown to be more, the order of
    the two may be chance."""
    points: float | None
    """Of n contenders the first gets n, the last 1; equal medians share theirs. None: failed or not measured."""
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One workload, all contenders."""

    workload: int
    name: str
    rounds: int
    """Complete ones: the runs that every figure is over."""
    entries: tuple[Entry, ...]
    """By median, best first; those without one come last."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One contender over all scenarios."""

    contender: str
    title: str
    points: float | None
    """None when it failed somewhere."""
    ratio: Ratio | None
    """Geometric mean over the scenarios of the median's ratio to the best."""
    over_above: Difference | None
    """Geometric mean of its medians over those of the one above, paired; None for the first."""
    failed_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Everything a report needs; made from stored samples alone."""

    scenarios: tuple[Scenario, ...]
    """In the order of the settings' workloads."""
    ranks: tuple[Rank, ...]
    """By points, most first; who has no total comes last."""
    level: float
    """Of the intervals, nominally."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One contender over each of the others, in the median time of an operation."""

    contender: str
    others: tuple[str, ...]
    cells: Mapping[tuple[int, str], Difference]
    """By workload and other; absent where either has no number."""
    means: Mapping[str, Difference]
    """Geometric mean over the scenarios, of those that both ran everywhere."""


def ranking(run: Run, samples: Sequence[Sample]) -> Ranking:
    """Rank the contenders of `run`, each of whose workloads is a scenario, by the samples so far."""
    names = [contender.name for contender in run.contenders]
    tables = _tables(run, samples)
    scenarios = tuple(table.scenario(names) for table in tables)
    columns = [table.median for table in tables if table.median is not None]
    failed = {
        name: tuple(table.name for table in tables if name in table.rounds.failures)
        for name in names
    }
    points = {name: None if failed[name] else _total(scenarios, name) for name in names}
    means = {name: None if failed[name] else ratios.mean_ratio(columns, name) for name in names}

    def rank(name: str) -> tuple[bool, float, float]:
        mean, total = means[name], points[name]
        return total is None, -(total or 0.0), mean.estimate if mean else 0.0

    ordered = sorted(names, key=rank)
    titles = {contender.name: contender.title for contender in run.contenders}
    ranks = []
    for above, name in zip([None, *ordered], ordered, strict=False):
        both = above is not None and means[above] is not None and means[name] is not None
        ranks.append(
            Rank(
                contender=name,
                title=titles[name],
                points=points[name],
                ratio=means[name],
                over_above=ratios.mean_difference(columns, name, above) if above and both else None,
                failed_on=failed[name],
            )
        )
    return Ranking(scenarios=scenarios, ranks=tuple(ranks), level=1 - stats.alpha(run.rule))


def matrix(run: Run, samples: Sequence[Sample], contender: str) -> Matrix:
    """Compare `contender` with every other one, scenario by scenario."""
    others = tuple(other.name for other in run.contenders if other.name != contender)
    tables = _tables(run, samples)
    cells = {
        (table.index, other): ratios.mean_difference([table.median], contender, other)
        for table in tables
        for other in others
        if table.median is not None and {contender, other} <= set(table.median.contenders)
    }
    failed = {name for table in tables for name in table.rounds.failures}
    columns = [table.median for table in tables if table.median is not None]
    means = {
        other: ratios.mean_difference(columns, contender, other)
        for other in others
        if columns and not {contender, other} & failed
    }
    return Matrix(contender=contender, others=others, cells=cells, means=means)


def _total(scenarios: Sequence[Scenario], name: str) -> float | None:
    """Points of all scenarios in which anybody has some; None when this one has none in one of them."""
    held = [
        scenario
        for scenario in scenarios
        if any(entry.points is not None for entry in scenario.entries)
    ]
    points = [
        e.points
        for scenario in held
        for e in scenario.entries
        if e.contender == name and e.points is not None
    ]
    return sum(points) if points and len(points) == len(held) else None


@dataclass(frozen=True, slots=True)
class _ScenarioTable:
    """One scenario with what it gives."""

    index: int
    name: str
    rounds: Rounds
    columns: Mapping[str, Column | None]
    """By metric key; None with fewer than two contenders, or without numbers of all."""

    @property
    def median(self) -> Column | None:
        return self.columns[OPERATION_MEDIAN.key]

    def scenario(self, names: Sequence[str]) -> Scenario:
        numbers = {
            metric.key: {
                name: statistics.median(of)
                for name, of in self.rounds.numbers(metric.key).items()
                if of
            }
            for metric in (OPERATION_MEDIAN, OPERATION_P95, OPERATION_P99, OPERATION_FAULTS)
        }
        medians = numbers[OPERATION_MEDIAN.key]
        ordered = sorted(names, key=lambda name: (name not in medians, medians.get(name, 0.0)))
        entries = []
        for above, name in zip([None, *ordered], ordered, strict=False):
            column = self.median if above in medians and name in medians else None
            entries.append(
                Entry(
                    contender=name,
                    median_ns=medians.get(name),
                    p95_ns=numbers[OPERATION_P95.key].get(name),
                    p99_ns=numbers[OPERATION_P99.key].get(name),
                    faults=numbers[OPERATION_FAULTS.key].get(name),
                    median_ratio=self._ratio(OPERATION_MEDIAN.key, name),
                    p95_ratio=self._ratio(OPERATION_P95.key, name),
                    p99_ratio=self._ratio(OPERATION_P99.key, name),
                    over_above=ratios.mean_difference([column], name, above)
                    if column and above
                    else None,
                    points=_points(medians, name, len(names)),
                    failure=self.rounds.failures.get(name),
                )
            )
        return Scenario(
            workload=self.index,
            name=self.name,
            rounds=len(self.rounds.rounds),
            entries=tuple(entries),
        )

    def _ratio(self, key: str, name: str) -> Ratio | None:
        column = self.columns[key]
        return column.ratio(name) if column is not None and name in column.contenders else None


def _tables(run: Run, samples: Sequence[Sample]) -> list[_ScenarioTable]:
    names = [contender.name for contender in run.contenders]
    alpha = stats.alpha(run.rule)
    tables = []
    for index, workload in enumerate(run.settings.workloads):
        rounds = ratios.complete(samples, names, index)
        several = len(rounds.contenders) > 1
        columns = {
            metric.key: rounds.column(metric.key, alpha) if several else None
            for metric in (OPERATION_MEDIAN, OPERATION_P95, OPERATION_P99)
        }
        tables.append(
            _ScenarioTable(index=index, name=workload.name, rounds=rounds, columns=columns)
        )
    return tables


def _points(medians: Mapping[str, float], name: str, contenders: int) -> float | None:
    """Of `contenders` points for the first one less for every better one; equal ones share what they get together."""
    if name not in medians:
        return None
    better = sum(median < medians[name] for median in medians.values())
    equal = sum(median == medians[name] for median in medians.values())
    return contenders - better - (equal - 1) / 2
