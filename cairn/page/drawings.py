"""The drawings of comparisons: runs, paired ratios, parts of a gap, and time against memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from cairn import units
from cairn.compare.comparison import RoundNumbers
from cairn.model import Change, Comparison, Interval, Metric, Run
from cairn.page import scale
from cairn.page.parts import (
    Dot,
    IntervalLine,
    PlanePoint,
    Rectangle,
    Side,
    TimeMemoryPlane,
    Track,
    Tracks,
)
from cairn.page.scale import Scale
from cairn.report import formatting, plane, tables, why
from cairn.report.formatting import printable
from cairn.report.tables import Cell, Table
from cairn.why.gap import Why
from cairn.why.parts import UNEXPLAINED, Gap

_HEIGHTS = (15, 9, 20, 12, 23, 7, 17)
"""The distances of neighbouring dots from the upper edge. Equal numbers then stay visible."""


def runs(
    run: Run, comparison: Comparison, metric: Metric, numbers: RoundNumbers, workload: int
) -> Tracks | None:
    """Returns each run as a dot and each median as a line; None if nothing was measured."""
    by_name = {
        row.contender: numbers.of[metric.key, row.contender]
        for row in comparison.rows
        if not row.failures and metric.key in row.summaries
    }
    values = [one for of in by_name.values() for one in of if one is not None]
    if not values:
        return None
    medians = {
        row.contender: row.summaries[metric.key].median
        for row in comparison.rows
        if row.contender in by_name
    }
    axis = scale.of_numbers(values, list(medians.values()))
    names = tables.names(run, comparison)
    tracks = tuple(
        Track(
            name=names[name],
            says=formatting.quantity(medians[name], metric),
            dots=(
                *_dots(axis, [one for one in of if one is not None]),
                Dot(axis.at(medians[name]), medians[name], "median"),
            ),
        )
        for name, of in by_name.items()
    )
    beyond = sum(axis.is_beyond(one) for one in values)
    return Tracks(
        of="runs",
        title=f"{_capital(title(metric))} of each run",
        says=f"A dot is a run, and a line is the median.{_strays(beyond, 'run')}",
        axis=scale.axis(axis, "", metric.unit),
        tracks=tracks,
        table=tables.spread(run, comparison, metric),
        metric=metric.key,
        workload=workload,
    )


def paired(
    run: Run, comparison: Comparison, metric: Metric, numbers: RoundNumbers, workload: int
) -> Tracks | None:
    """Returns the ratios to the baseline: one of each round, and the estimate over all rounds.

    Returns None if there are none.
    """
    changed = [row for row in comparison.rows if metric.key in row.changes and not row.failures]
    if not changed:
        return None
    base = comparison.baseline
    by_name = {row.contender: numbers.ratios(metric.key, row.contender, base) for row in changed}
    needed = [1 + end for row in changed for end in _ends(row.changes[metric.key])]
    values = [one for of in by_name.values() for one in of]
    axis = scale.of_ratios(values, needed)
    names = tables.names(run, comparison)
    margin = comparison.rule.margin
    tracks = []
    for row in changed:
        change = row.changes[metric.key]
        estimate = 1 + change.estimate
        reach = None
        if change.interval is not None:
            reach = axis.reach(1 + change.interval.low, 1 + change.interval.high)
        tracks.append(
            Track(
                name=names[row.contender],
                says=_span(change, margin),
                good=formatting.good(change, metric, margin),
                is_proven=formatting.sign(change, margin) in "▼▲",
                dots=(
                    *_dots(axis, by_name[row.contender]),
                    Dot(axis.at(estimate), estimate, "estimate"),
                ),
                reach=reach,
            )
        )
    beyond = sum(axis.is_beyond(one) for one in values)
    shown = printable(base)
    return Tracks(
        of="paired",
        title=f"{_capital(title(metric))} compared with {shown}",
        says="A small dot is a round, and a large one is the estimate with its 95 % interval; it "
        f"is filled where a difference is proven.{_strays(beyond, 'round')}",
        axis=scale.ratio_axis(axis, f"difference from {shown}"),
        tracks=tuple(tracks),
        table=tables.changes(run, comparison, metric),
        metric=metric.key,
        workload=workload,
    )


def title(metric: Metric) -> str:
    """Returns the name of a metric in a sentence."""
    return "wall time" if metric.key == "wall" else printable(metric.title)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _span(change: Change, margin: float) -> str:
    if change.interval is None:
        return "too few rounds"
    return formatting.span(change, margin)


def _ends(change: Change) -> tuple[float, ...]:
    if change.interval is None:
        return (change.estimate,)
    return change.estimate, change.interval.low, change.interval.high


def _strays(number: int, noun: str) -> str:
    if not number:
        return ""
    if number == 1:
        return f" 1 {noun} lies beyond the end of the axis; its dot is hollow."
    return f" {units.counted(number, noun)} lie beyond the end of the axis; their dots are hollow."


def _dots(axis: Scale, values: Sequence[float]) -> tuple[Dot, ...]:
    return tuple(
        Dot(axis.at(one), one, "run", _HEIGHTS[place % len(_HEIGHTS)], axis.is_beyond(one))
        for place, one in enumerate(values)
    )


class Estimated(Protocol):
    """A ratio with its interval: a Ratio, a PairedRatio or a GeometricMean."""

    @property
    def estimate(self) -> float:
        """The ratio."""

    @property
    def interval(self) -> Interval | None:
        """The interval; None if it is not known."""


RatioRow = tuple[str, Estimated | None, bool | None, str]
"""A name, its ratio if it is known, whether the ratio is proven good or bad, and a text."""


def ratios(
    rows: Sequence[RatioRow],
    *,
    of: str,
    title: str,
    says: str,
    axis_title: str,
    metric: str = "",
    contender: str = "",
    table: Table | None = None,
) -> Tracks | None:
    """Returns ratios with their intervals; None if no ratio is known.

    table: the same numbers; None makes a table of the names and the texts.
    """
    known = [ratio for _, ratio, _, _ in rows if ratio is not None]
    if not known:
        return None
    intervals = [one.interval for one in known if one.interval is not None]
    ends = [end for one in intervals for end in (one.low, one.high)]
    axis = scale.of_ratios(ends, [one.estimate for one in known])
    tracks = []
    for name, ratio, good, text in rows:
        if ratio is None:
            tracks.append(Track(printable(name), text))
            continue
        estimate, interval = ratio.estimate, ratio.interval
        reach = axis.reach(interval.low, interval.high) if interval is not None else None
        tracks.append(
            Track(
                name=printable(name), says=text, good=good, is_proven=good is not None,
                dots=(Dot(axis.at(estimate), estimate, "estimate"),), reach=reach,
            )
        )  # fmt: skip
    return Tracks(
        of=of, title=title, says=says, axis=scale.ratio_axis(axis, axis_title),
        tracks=tuple(tracks), metric=metric, contender=contender,
        table=table or _table(rows),
    )  # fmt: skip


def _table(rows: Sequence[RatioRow]) -> Table:
    cells = tuple((Cell(printable(name)), Cell(text, good)) for name, _, good, text in rows)
    return Table("", ("", "ratio [95 %]"), cells)


def waterfall(found: Why, gap: Gap, workload: int) -> Tracks | None:
    """Returns the parts of a gap as bars, each at the end of the one before; None if not known."""
    if gap.whole.change is None:
        return None
    places, at = [], 0.0
    for part in gap.parts:
        if part.change is not None:
            places.append((part, at, at + part.change))
            at += part.change
    ends = [end for _, begin, stop in places for end in (begin, stop)]
    if gap.whole.interval is not None:
        ends += [gap.whole.interval.low, gap.whole.interval.high]
    axis = scale.from_zero([*ends, gap.whole.change])
    own, base = printable(found.contender), printable(found.baseline)
    what = "CPU time" if gap.of == "time" else "memory"
    tracks = []
    for part, begin, stop in [*places, (gap.whole, 0.0, gap.whole.change)]:
        change = part.change or 0.0
        is_whole = part is gap.whole
        kind = "total" if is_whole else "rest" if part.name == UNEXPLAINED else _way(change)
        if not part.shown:
            kind += " pale"
        reach = None
        if part.interval is not None:
            from_ = 0.0 if is_whole else begin
            low, high = part.interval.low, part.interval.high
            reach = IntervalLine(axis.at(from_ + low), axis.at(from_ + high), low, high)
        low, high = sorted((axis.at(begin), axis.at(stop)))
        tracks.append(
            Track(
                name=f"difference in {what}" if is_whole else why.part_name(gap, part),
                says=why.signed(gap, part),
                bars=(Rectangle(low, round(max(high - low, 0.2), 2), change, kind),),
                reach=reach,
            )
        )
    return Tracks(
        of="parts",
        title=f"From {base} to {own}: {what}",
        says=f"Each bar begins where the bar above it ends. The last bar is the whole difference. "
        f"Lines are 95 % intervals, and pale bars are not proven. A bar to the left means that "
        f"{own} takes less.",
        axis=scale.axis(axis, f"difference in {what}", "ns" if gap.of == "time" else "bytes"),
        tracks=tuple(tracks),
        table=why.gap_table(found, gap),
        metric=gap.of,
        workload=workload,
        contender=found.contender,
    )


def _way(change: float) -> str:
    return "less" if change < 0 else "more"


def comparison_plane(run: Run, comparison: Comparison, workload: int) -> TimeMemoryPlane | None:
    """Returns the plane of a comparison; None with fewer than two contenders in it."""
    shown = plane.points(comparison)
    if len(shown) < 2:
        return None
    base = printable(comparison.baseline)
    says = "The lower left is best. Lines are 95 % intervals."
    if comparison.judged.front is not None:
        says += " A filled dot: no other contender is shown to beat it in both."
    names = tables.names(run, comparison)
    return time_memory_plane(
        [(names[one.contender], one) for one in shown],
        says=says,
        base=base,
        table=_plane_table(names, shown, base),
        workload=workload,
    )


def _plane_table(names: Mapping[str, str], shown: Sequence[plane.Point], base: str) -> Table:
    rows = tuple(
        (
            Cell(names[one.contender]),
            *(
                Cell(f"{formatting.times(ratio)} {formatting.times_interval(ends)}" if ends
                     else formatting.times(ratio))
                for ratio, ends in (
                    (one.time, one.time_interval), (one.memory, one.memory_interval),
                )
            ),
        )
        for one in shown
    )  # fmt: skip
    return Table("", ("", f"time ÷ {base} [95 %]", f"peak memory ÷ {base} [95 %]"), rows)


def time_memory_plane(
    shown: Sequence[tuple[str, plane.Point]], *, says: str, base: str, table: Table, workload: int
) -> TimeMemoryPlane:
    """Returns the plane of contenders, given with their printed names."""
    points = [one for _, one in shown]
    across = _plane_scale([one.time for one in points], [one.time_interval for one in points])
    up = _plane_scale([one.memory for one in points], [one.memory_interval for one in points])
    best = [one for one in points if not any(_beats(other, one) for other in points)]
    best.sort(key=lambda one: one.time)
    made: list[PlanePoint] = []
    for place, (name, one) in enumerate(shown):
        key = plane.letter(place)
        at, down = across.at(one.time), _down(up, one.memory)
        made.append(
            PlanePoint(
                key=key if one.on_front else key.lower(),
                name=name,
                short=formatting.shortened(name, _NAME_MOST),
                across=at,
                down=down,
                time=one.time,
                memory=one.memory,
                time_reach=across.reach(one.time_interval.low, one.time_interval.high)
                if one.time_interval is not None
                else None,
                memory_reach=IntervalLine(
                    _down(up, one.memory_interval.low),
                    _down(up, one.memory_interval.high),
                    one.memory_interval.low,
                    one.memory_interval.high,
                )
                if one.memory_interval is not None
                else None,
                is_beaten=not one.on_front,
            )
        )
    line = []
    for place, one in enumerate(best):
        if place:
            line.append(f"{across.at(one.time)},{_down(up, best[place - 1].memory)}")
        line.append(f"{across.at(one.time)},{_down(up, one.memory)}")
    up_axis = scale.ratio_axis(up, f"peak memory compared with {base}: lower is leaner")
    turned = tuple(replace(tick, at=round(100 - tick.at, 2)) for tick in up_axis.ticks)
    return TimeMemoryPlane(
        title="Time and memory together",
        says=f"{says} The dotted line joins the contenders whose estimates no other beats in both.",
        across=scale.ratio_axis(across, f"time compared with {base}: further left is faster"),
        up=replace(up_axis, ticks=turned, reference=_down(up, 1.0)),
        points=_labelled(made),
        front=" ".join(line) if len(best) > 1 else "",
        table=table,
        workload=workload,
    )


def _plane_scale(ratios_of: Sequence[float], intervals: Sequence[Interval | None]) -> Scale:
    ends = [end for one in intervals if one is not None for end in (one.low, one.high)]
    return scale.of_ratios([], [*ratios_of, *ends])


def _down(up: Scale, value: float) -> float:
    return round(100 - up.at(value), 2)


def _beats(one: plane.Point, other: plane.Point) -> bool:
    return (one.time <= other.time and one.memory <= other.memory) and (
        one.time < other.time or one.memory < other.memory
    )


_FIELD = (760.0, 400.0)
"""Names are placed for a plane of this size in pixels, which it has on a wide screen."""
_NAME_MOST = 26
"""The most letters of a name beside its point. The legend has the whole name."""
_LETTER, _LINE = 6.5, 13.0
"""The width of a letter and the height of a line, in pixels."""


def _labelled(points: Sequence[PlanePoint]) -> tuple[PlanePoint, ...]:
    """Returns the points with each name on the side where it covers the least."""
    taken: list[tuple[float, ...]] = [
        (_FIELD[0] * one.across / 100 - 8, _FIELD[1] * one.down / 100 - 8, 16.0, 16.0)
        for one in points
    ]
    taken += [box for one in points for box in _lines(one)]
    made = []
    for one in points:
        x, y = _FIELD[0] * one.across / 100, _FIELD[1] * one.down / 100
        width = _LETTER * len(one.short)
        boxes: dict[Side, tuple[float, ...]] = {
            "right": (x + 12, y - _LINE / 2, width, _LINE),
            "left": (x - 12 - width, y - _LINE / 2, width, _LINE),
            "above": (x - width / 2, y - 24, width, _LINE),
            "below": (x - width / 2, y + 11, width, _LINE),
        }

        def cost(side: Side, boxes: Mapping[Side, tuple[float, ...]] = boxes) -> float:
            left, _, wide, _ = boxes[side]
            outside = max(0.0, -left) + max(0.0, left + wide - _FIELD[0])
            return 100 * outside + sum(_overlap(boxes[side], other) for other in taken)

        side = min(boxes, key=cost)
        taken.append(boxes[side])
        made.append(replace(one, label=side))
    return tuple(made)


def _lines(point: PlanePoint) -> Iterator[tuple[float, ...]]:
    """Yields the boxes of the two intervals of a point."""
    x, y = _FIELD[0] * point.across / 100, _FIELD[1] * point.down / 100
    if point.time_reach is not None:
        left = _FIELD[0] * point.time_reach.at_low / 100
        right = _FIELD[0] * point.time_reach.at_high / 100
        yield left, y - 1, right - left, 2.0
    if point.memory_reach is not None:
        upper = _FIELD[1] * point.memory_reach.at_high / 100
        lower = _FIELD[1] * point.memory_reach.at_low / 100
        yield x - 1, upper, 2.0, lower - upper


def _overlap(one: Sequence[float], other: Sequence[float]) -> float:
    across = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    down = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    return max(0.0, across) * max(0.0, down)
