"""Places an allocator in the ranges of others, metric by metric. All functions are pure.

The ranges come from stored runs of healthy contenders and are made separately for each program. The
end of a range is the worst value of these contenders, without the one that `ranges.worst_of` leaves
out. The allocator's value gets one of three verdicts:

    inside     it is not worse than the end of the range. A value that is better than all others is
               also inside: making few system calls is not an illness.
    outside    its whole interval is more than WIDENED times as bad as the end
    edge       all other values

The verdict on a metric is that on the program on which the metric is worst.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from cairn.profile.metrics import METRICS, Kind, Number, ProfileMetric
from cairn.why import ranges
from cairn.why.ranges import Cost, ProfileTable, Values, badness

WIDENED: Mapping[Kind, float] = {
    "kernel": 3.0,
    "locks": 3.0,
    "memory": 1.5,
    "layout": 2.0,
    "time": 1.5,
}
"""By kind of metric: a value is outside if it is more than this many times as bad as the end of the
range."""
_LEAST = 3
"""A range needs the values of at least this many contenders."""

Verdict = Literal["inside", "edge", "outside"]
VERDICTS: tuple[Verdict, ...] = ("inside", "edge", "outside")


class Outlier(Struct, frozen=True):
    """A contender of the stored runs that is outside, too, in this metric and on this program."""

    contender: str
    program: str
    cost: Cost


class Placed(Struct, frozen=True):
    """One metric of an allocator, on the program on which its value is worst."""

    metric: ProfileMetric
    verdict: Verdict
    program: str
    value: float
    end: float
    """The worst value within the range on this program."""
    end_of: str
    """The contender with this value."""
    times: float
    """How many times as bad as `end` the value is; below 1 if it is better."""
    programs: tuple[str, ...]
    """The programs on which the metric has this verdict, the worst first."""
    outliers: tuple[Outlier, ...]
    """The stored contenders that are outside on these programs. Empty unless the verdict is
    "outside"."""

    def cost(self, of: Literal["cpu", "memory"]) -> tuple[float, float, float] | None:
        """The least, the median and the greatest cost of `outliers`; None if not known."""
        found = [
            one for each in self.outliers if (one := getattr(each.cost, of)) is not None and one > 0
        ]
        return (min(found), statistics.median(found), max(found)) if found else None


def placed(
    cells: Mapping[str, Values], table: ProfileTable, *, widened: Mapping[Kind, float] = WIDENED
) -> tuple[Placed, ...]:
    """Returns the place of an allocator in each metric that is judged and was measured.

    cells: the allocator's values, by program.
    table: the values of the stored runs, without this allocator.
    """
    found = []
    for metric in METRICS:
        if metric.worse == "neither":
            continue
        each = [
            one
            for program in table.programs
            if (number := cells.get(program, {}).get(metric.key)) is not None
            and (one := _on(metric, program, number, table, widened)) is not None
        ]
        if not each:
            continue
        each.sort(key=lambda one: (-VERDICTS.index(one.verdict), -one.times))
        first = each[0]
        same = [one for one in each if one.verdict == first.verdict]
        outliers = [
            outlier
            for one in same
            if first.verdict == "outside"
            for outlier in _outliers(metric, one.program, table, widened)
        ]
        found.append(
            Placed(
                metric,
                first.verdict,
                first.program,
                first.value,
                first.end,
                first.end_of,
                first.times,
                tuple(one.program for one in same),
                tuple(outliers),
            )
        )
    return tuple(found)


class _Place(Struct, frozen=True):
    program: str
    verdict: Verdict
    value: float
    end: float
    end_of: str
    times: float


def _end(metric: ProfileMetric, program: str, table: ProfileTable) -> tuple[str, float] | None:
    """The contender at the end of the range, and its value.

    None if fewer than _LEAST contenders have a value.
    """
    values = table.on(program, metric.key, table.healthy)
    if len(values) < _LEAST:
        return None
    worst = ranges.worst_of(metric, values)
    name = max(
        (name for name in values if name != worst),
        key=lambda name: badness(metric, values[name][0]),
    )
    return name, values[name][0]


def _on(
    metric: ProfileMetric,
    program: str,
    number: Number,
    table: ProfileTable,
    widened: Mapping[Kind, float],
) -> _Place | None:
    end = _end(metric, program, table)
    if end is None:
        return None
    limit = badness(metric, end[1])
    away = badness(metric, number[0]) - limit
    # The end of the interval that is nearest to the range.
    near = min(badness(metric, number[1]), badness(metric, number[2])) - limit
    beyond = near > math.log(widened[metric.kind])
    verdict: Verdict = "inside" if away <= 0 else "outside" if beyond else "edge"
    return _Place(program, verdict, number[0], end[1], end[0], math.exp(away))


def _outliers(
    metric: ProfileMetric, program: str, table: ProfileTable, widened: Mapping[Kind, float]
) -> Sequence[Outlier]:
    found = []
    for name, number in table.on(program, metric.key, tuple(table.titles)).items():
        place = _on(metric, program, number, table, widened)
        if place is not None and place.verdict == "outside" and name != table.baseline:
            found.append(Outlier(name, program, table.costs[program][name]))
    return found
