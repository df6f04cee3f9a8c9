"""Ranks contenders over a few scenarios with many runs, by points for the time per operation.

The experiment that started the project used this form. In each scenario n contenders get n, n - 1,
… 1 points by the median time of an operation. The sum of the points ranks the contenders. Points
are easy to read, but they lose information. A contender that leads by 7 % gets as many points as
one that leads by 250 %. Two contenders get different points even if the data cannot distinguish
them. A total of points therefore never stands alone. Next to the total stand the geometric mean of
the contender's ratios to the best, with its interval, and whether the contender is shown to be
slower than the contender above.

Always true here:

- Each run reports its time per operation: the median, P95 and P99 over its batches of operations. A
  figure here is the median of one of these three numbers over the runs in complete rounds. So P95
  is the P95 of a typical run. A P95 over the batches of all runs could be decided by a single bad
  run.
- Ratios are paired within rounds. The module `ratios` explains this, and why the choice of the best
  contender needs care.
- A contender that failed in a scenario gets no points there and has no total. The other contenders
  get the points that they would get if the failed contender had come last.

All functions are pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

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


class Entry(Struct, frozen=True):
    """One contender in one scenario.

    Times are nanoseconds per operation, each a median over runs. None means not measured.
    """

    contender: str
    median_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    faults: float | None
    """Page faults per operation, median over runs."""
    median_ratio: Ratio | None
    """`median_ns` divided by that of the best contender in this scenario."""
    p95_ratio: Ratio | None
    """`p95_ns` divided by that of the contender that is best in P95."""
    p99_ratio: Ratio | None
    """`p99_ns` divided by that of the contender that is best in P99."""
    over_above: Difference | None
    """`median_ns` divided by that of the contender one line above; None for the first line.

    If this contender is not shown to take more time, the order of the two may be chance.
    """
    points: float | None
    """Of n contenders the first gets n points and the last 1; equal medians share their points.

    None if the contender failed or was not measured.
    """
    failure: str | None = None


class Scenario(Struct, frozen=True):
    """One workload, all contenders."""

    workload: int
    name: str
    rounds: int
    """The number of complete rounds. The figures are medians over the runs of these rounds."""
    entries: tuple[Entry, ...]
    """By median, best first; contenders without a median come last."""


class Rank(Struct, frozen=True):
    """One contender over all scenarios."""

    contender: str
    title: str
    points: float | None
    """The sum of its points over the scenarios; None when the contender failed in one of them."""
    ratio: Ratio | None
    """Geometric mean over the scenarios: the contender's median time divided by the best one's."""
    over_above: Difference | None
    """Geometric mean over the scenarios: the contender's time divided by that of the contender one
    line above, paired within rounds. None for the first line."""
    failed_on: tuple[str, ...] = ()


class Ranking(Struct, frozen=True):
    """Everything a report needs, made from stored samples alone."""

    scenarios: tuple[Scenario, ...]
    """In the order of the settings' workloads."""
    ranks: tuple[Rank, ...]
    """By points, most first; contenders without a total come last."""
    level: float
    """The nominal level of the intervals."""


class Matrix(Struct, frozen=True):
    """One contender's median times per operation, divided by those of the other contenders."""

    contender: str
    others: tuple[str, ...]
    cells: Mapping[tuple[int, str], Difference]
    """The ratios by workload and other contender; absent if one of the two has no number."""
    means: Mapping[str, Difference]
    """The geometric means of the ratios over the scenarios, by other contender; absent if one of
    the two contenders failed in a scenario."""


def ranking(run: Run, samples: Sequence[Sample]) -> Ranking:
    """Ranks the contenders of `run` by the samples so far. Each of its workloads is a scenario."""
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
    """Compares `contender` with every other contender, scenario by scenario."""
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
    """The contender's points over all scenarios in which any contender has points.

    Returns None when the contender has no points in one of these scenarios.
    """
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


class _ScenarioTable(Struct, frozen=True):
    """One scenario: its complete rounds, and a column for each metric."""

    index: int
    name: str
    rounds: Rounds
    columns: Mapping[str, Column | None]
    """By metric key; None with fewer than two contenders, or if one of them has no numbers."""

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
    """Returns `contenders` minus the number of better contenders. Equal medians share their points.

    Returns None for a contender without a median.
    """
    if name not in medians:
        return None
    better = sum(median < medians[name] for median in medians.values())
    equal = sum(median == medians[name] for median in medians.values())
    return contenders - better - (equal - 1) / 2
