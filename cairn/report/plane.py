"""The plane of time and memory: each contender as a point, as text for a terminal and as SVG.

Both axes show the contenders' ratios to the baseline, and the best corner is at the lower left. In
a terminal the axes are logarithmic, so that half as much and twice as much are equally far from the
baseline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from cairn.model import PEAK, Change, Comparison, Interval, Run
from cairn.report import formatting
from cairn.report.formatting import printable

_LINES = 9
"""The lines of the plane in a terminal."""
_WIDEST = 72
_LEAST_SPAN = 0.02
"""The least length of an axis, as a natural logarithm. It corresponds to a difference of 2 %, so
that a difference of 1 % does not fill the plane."""
_FRONT, _BEATEN, _GRID = "#332288", "#999999", "#dddddd"


class Point(Struct, frozen=True):
    """One contender in the plane."""

    contender: str
    time: float
    """The ratio of the contender's time to that of the baseline."""
    memory: float
    """The ratio of the contender's peak memory to that of the baseline."""
    time_interval: Interval | None = None
    memory_interval: Interval | None = None
    on_front: bool = True
    """Whether no other contender is better in both time and memory."""


def points(comparison: Comparison) -> list[Point]:
    """Returns the contenders whose time and memory are known, the fastest first."""
    front = comparison.judged.front
    found = []
    for row in comparison.rows:
        if row.failures:
            continue
        on_front = front is None or row.contender in front.members
        if row.contender == comparison.baseline:
            found.append(Point(row.contender, 1.0, 1.0, on_front=on_front))
            continue
        time, memory = row.changes.get(comparison.time.key), row.changes.get(PEAK.key)
        if time is not None and memory is not None:
            found.append(
                Point(
                    row.contender, 1 + time.estimate, 1 + memory.estimate, _ratios(time),
                    _ratios(memory), on_front,
                )
            )  # fmt: skip
    return found


def _ratios(change: Change) -> Interval | None:
    if change.interval is None:
        return None
    return Interval(1 + change.interval.low, 1 + change.interval.high, change.interval.level)


def drawn(comparison: Comparison, width: int) -> list[str]:
    """Returns the plane as lines of at most `width` columns; empty with fewer than two points."""
    shown = points(comparison)
    if len(shown) < 2:
        return []
    across, up = _Axis.of([one.time for one in shown]), _Axis.of([one.memory for one in shown])
    labels = [label(up.high), label(1.0), label(up.low)]
    margin = max(map(len, labels))
    columns = min(width, _WIDEST) - margin - 5
    cells = [[" "] * columns for _ in range(_LINES)]
    base_column, base_line = across.place(1.0, columns), _LINES - 1 - up.place(1.0, _LINES)
    for column in range(columns):
        cells[base_line][column] = "·"
    for line in range(_LINES):
        cells[line][base_column] = "·"
    keys = []
    for place, one in enumerate(shown):
        key = letter(place) if one.on_front else letter(place).lower()
        keys.append((key, one))
        line = _LINES - 1 - up.place(one.memory, _LINES)
        column = across.place(one.time, columns)
        free = [c for c in range(columns) if cells[line][c] in " ·"]
        if free:
            cells[line][min(free, key=lambda c: abs(c - column))] = key
    marks = {base_line: labels[1], _LINES - 1: labels[2], 0: labels[0]}
    base = printable(comparison.baseline)
    lines = [f"  peak memory against {base}: lower is leaner"]
    lines += [
        f"  {marks.get(line, ''):>{margin}} │{''.join(of)}".rstrip()
        for line, of in enumerate(cells)
    ]
    lines.append(f"  {'':>{margin}} └{'─' * columns}")
    low, high = label(across.low), label(across.high)
    middle = "time: further left is faster"
    between = columns - len(low) - len(high)
    axis = f"{low}{middle:^{between}}{high}" if between > len(middle) else f"{low} {high}"
    lines.append(f"  {'':>{margin}}  {axis}")
    names = [f"{key} {printable(one.contender)}" for key, one in keys]
    if all(one.on_front for one in shown):
        legend = ", ".join(names)
    else:
        beaten = [name for name, one in zip(names, shown, strict=True) if not one.on_front]
        best = [name for name, one in zip(names, shown, strict=True) if one.on_front]
        legend = f"{', '.join(best)}; beaten: {', '.join(beaten)}"
    return [*lines, *(f"  {line}" for line in formatting.wrapped(legend, max(20, width - 2)))]


def letter(place: int) -> str:
    """Returns the letter of a contender in the plane."""
    return chr(ord("A") + place) if place < 26 else "*"


def label(ratio: float) -> str:
    """Returns a ratio as a change: "+31 %", "−8 %", "0 %", "× 2.4"."""
    if ratio >= formatting.TWICE:
        return f"× {formatting.times(ratio)}"
    percent = 100 * (ratio - 1)
    text = f"{abs(percent):.{0 if abs(percent) >= 9.95 else 1}f}"
    return "0 %" if not float(text) else f"{'+' if percent > 0 else '−'}{text} %"


class _Axis(Struct, frozen=True):
    low: float
    high: float

    @staticmethod
    def of(ratios: Sequence[float]) -> _Axis:
        """The axis that shows all ratios and the baseline."""
        logs = [math.log(ratio) for ratio in (1.0, *ratios)]
        low, high = min(logs), max(logs)
        more = max(0.0, _LEAST_SPAN - (high - low)) / 2
        return _Axis(math.exp(low - more), math.exp(high + more))

    def place(self, ratio: float, count: int) -> int:
        """The cell of a ratio, of `count` cells from `low` to `high`."""
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return min(count - 1, max(0, round(share * (count - 1))))


def svg(run: Run, comparisons: Sequence[Comparison]) -> str:
    """Returns the planes of all workloads, one below the other. Lines are 95 % intervals."""
    from matplotlib.figure import Figure

    from cairn.report.standings_charts import drawn_as, framed

    figure = Figure(figsize=(7.2, 0.8 + 4.6 * len(comparisons)), layout="constrained")
    panels = figure.subplots(len(comparisons), 1, squeeze=False)
    for axes, workload, comparison in zip(
        panels[:, 0], run.settings.workloads, comparisons, strict=True
    ):
        shown = points(comparison)
        axes.axhline(1.0, color=_GRID, linewidth=1, zorder=0)
        axes.axvline(1.0, color=_GRID, linewidth=1, zorder=0)
        for one in shown:
            color = _FRONT if one.on_front else _BEATEN
            x, y = one.time, one.memory
            if one.time_interval is not None:
                ends = (one.time_interval.low, one.time_interval.high)
                axes.plot(ends, (y, y), color=color, linewidth=1)
            if one.memory_interval is not None:
                ends = (one.memory_interval.low, one.memory_interval.high)
                axes.plot((x, x), ends, color=color, linewidth=1)
            fill = color if one.on_front else "white"
            axes.plot([x], [y], "o", color=color, markerfacecolor=fill, markersize=6)
            axes.annotate(
                printable(one.contender), (x, y), xytext=(6, 5), textcoords="offset points",
                fontsize=9, color="black" if one.on_front else "#555555", parse_math=False,
            )  # fmt: skip
        base = printable(comparison.baseline)
        axes.set_xlabel(f"time, as a multiple of {base}", fontsize=8, parse_math=False)
        axes.set_ylabel(f"peak memory, as a multiple of {base}", fontsize=8, parse_math=False)
        axes.set_title(formatting.command(workload.name), fontsize=9, parse_math=False)
        axes.margins(0.15)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    says = "the lower left is best · lines: 95 % intervals"
    if any(one.judged.front is not None for one in comparisons):
        says += " · filled: no other is shown to beat it in time and memory together"
    framed(figure, run, "Time and memory", says)
    return drawn_as(figure, "svg").decode()
