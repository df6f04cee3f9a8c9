"""Differences from the baseline as dots with intervals, drawn with characters for a terminal.

A filled dot is a proven difference, and a hollow one is not proven, so no colour is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.cells import cell_len

from cairn.model import Comparison, Metric, Row
from cairn.report import formatting, plane
from cairn.report.formatting import printable

_WIDEST = 100
_LEAST = 24
"""The least columns of the axis. With fewer there is no picture."""
_LEAST_SPAN = 0.02
"""The least length of the axis, as a natural logarithm. It corresponds to a difference of 2 %, so
that a difference of 1 % does not fill the axis."""
_ROWS_LEAST = 2
_MARGIN = 2
"""The columns to the left of the names."""


def drawn(
    comparison: Comparison, metric: Metric, names: Mapping[str, str], width: int
) -> list[str]:
    """Returns the lines of the picture, of at most `width` columns.

    names: the printed names by contender. The result is empty if there is no room, or if there are
    fewer than two intervals: a picture of a single interval says no more than its numbers.
    """
    rows = [row for row in comparison.rows if not row.failures and _ends(row, metric) is not None]
    if len(rows) < _ROWS_LEAST:
        return []
    widest = max(cell_len(names[row.contender]) for row in rows)
    columns = min(width, _WIDEST) - _MARGIN - widest - 2
    if columns < _LEAST:
        return []
    low, high = _range([_ends(row, metric) or (1.0, 1.0, 1.0) for row in rows])

    def place(ratio: float) -> int:
        share = math.log(ratio / low) / math.log(high / low)
        return min(columns - 1, max(0, round(share * (columns - 1))))

    base = printable(comparison.baseline)
    title = "wall time" if metric.key == "wall" else printable(metric.title)
    lines = [f"{' ' * _MARGIN}{title} compared with {base}: ● proven, ○ not proven"]
    if cell_len(lines[0]) > width:
        return []
    for row in rows:
        ends = _ends(row, metric)
        assert ends is not None
        cells = [" "] * columns
        cells[place(1.0)] = "│"
        left, middle, right = (place(end) for end in ends)
        for column in range(left, right + 1):
            cells[column] = "─"
        if left < middle:
            cells[left] = "├"
        if right > middle:
            cells[right] = "┤"
        is_proven = formatting.sign(row.changes[metric.key], comparison.rule.margin) in "▼▲"
        cells[middle] = "●" if is_proven else "○"
        name = names[row.contender]
        padding = " " * (widest - cell_len(name) + 2)
        lines.append(f"{' ' * _MARGIN}{name}{padding}{''.join(cells)}".rstrip())
    lines.append(f"{' ' * (_MARGIN + widest + 2)}{_axis(low, high, place(1.0), columns)}")
    return lines


def _ends(row: Row, metric: Metric) -> tuple[float, float, float] | None:
    """Returns low end, estimate and high end as ratios; None without an interval."""
    change = row.changes.get(metric.key)
    if change is None or change.interval is None or 1 + change.interval.low <= 0:
        return None
    ends = change.interval
    return 1 + ends.low, min(max(1 + change.estimate, 1 + ends.low), 1 + ends.high), 1 + ends.high


def _range(rows: list[tuple[float, float, float]]) -> tuple[float, float]:
    known = [1.0, *(end for row in rows for end in row)]
    low, high = math.log(min(known)), math.log(max(known))
    more = max(0.0, _LEAST_SPAN - (high - low)) / 2
    return math.exp(low - more), math.exp(high + more)


def _axis(low: float, high: float, base: int, columns: int) -> str:
    """Returns the labels of both ends, and of the baseline where they leave room."""
    left, right = plane.label(low), plane.label(high)
    cells = [" "] * columns
    cells[: len(left)] = left
    cells[columns - len(right) :] = right
    middle = "0 %"
    at = min(max(0, base - 1), columns - len(middle))
    free = cells[max(0, at - 1) : at + len(middle) + 1]
    if all(cell == " " for cell in free):
        cells[at : at + len(middle)] = middle
    return "".join(cells).rstrip()
