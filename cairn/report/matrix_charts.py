"""Pictures of a plan, as SVG and PNG: dots with intervals, the time-memory plane, a heat map.

They follow the rules of `standings_charts`: the same data give the same bytes of SVG, failures are
written as text, and each contender has a marker of its own shape besides its colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cairn.compare import matrix
from cairn.compare.matrix import Measure, PlanResult
from cairn.report.formatting import printable, times
from cairn.report.matrix_board import NOUNS, MatrixReport, ordered
from cairn.report.standings_charts import drawn_as, framed, label_points, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID, _FAINT, _GOOD, _BAD = "#dddddd", "#777777", "#117733", "#882255"
_STEPS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)
_WIDEST = 10.0
"""Ratios beyond this multiple, or below its inverse, are written at the edge."""
_HOTTEST = 2.0
"""The ratio from which the heat map has its full colour."""


def dots(report: MatrixReport, *, title: str, form: str, measure: Measure = "time") -> bytes:
    """Draws each ratio with its interval: a panel per contender, a row per program."""
    from matplotlib.figure import Figure

    found = report.result
    names = ordered(found)
    columns = min(len(names), 6)
    lines = math.ceil(len(names) / columns)
    labels = [report.label(program) for program in found.programs]
    height = (0.9 + 0.2 * len(labels)) * lines + 1.0
    figure = Figure(figsize=(2.4 + 1.8 * columns, height), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    low, high = _range(found, measure)
    for name, axes in zip(
        [*names, *[None] * (lines * columns - len(names))], panels.flat, strict=True
    ):
        if name is None:
            axes.set_axis_off()
        else:
            _panel(axes, found, name, measure, low, high)
    for row in panels:
        row[0].set_yticks(range(len(labels)), labels, fontsize=7, parse_math=False)
    panels[0][0].set_ylim(len(labels) - 0.5, -0.5)
    framed(
        figure, report.run, title,
        f"{NOUNS[measure]} ÷ {found.baseline} · dot: estimate, line: {100 * found.level:g} % "
        "interval · filled: proven, hollow: not proven · band: interval of the geometric mean",
        runs=found.runs,
    )  # fmt: skip
    return drawn_as(figure, form)


def _range(found: PlanResult, measure: Measure) -> tuple[float, float]:
    known = [ratio.estimate for cell in found.cells.values() if (ratio := cell.of(measure))]
    low = max(1 / _WIDEST, min([0.9, *known]) / 1.06)
    return low, min(_WIDEST, max([1.1, *known]) * 1.06)


def _panel(
    axes: Axes, found: PlanResult, name: str, measure: Measure, low: float, high: float
) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    inside = [step for step in _STEPS if low <= step <= high]
    if len(inside) > 5:
        inside = [step for step in inside if step in (0.1, 0.3, 0.5, 1, 2, 5, 10)]
    axes.set_xticks(inside, [f"{step:g}" for step in inside], fontsize=7)
    axes.minorticks_off()
    axes.axvline(1, color=_FAINT, linewidth=0.8)
    axes.grid(axis="x", color=_GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    mean = found.means.get((measure, name))
    if mean is not None and mean.interval is not None:
        axes.axvspan(
            mean.interval.low, mean.interval.high, color="#88ccee", alpha=0.35, linewidth=0,
            zorder=-1,
        )  # fmt: skip
    for row, program in enumerate(found.programs):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", linewidth=0, zorder=-2)
        _dot(axes, row, found, program, name, measure, low, high)
    under = f"mean {times(mean.estimate)}" if mean is not None else "no mean"
    axes.set_title(f"{printable(name)}\n{under}", fontsize=8, parse_math=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _dot(
    axes: Axes, row: int, found: PlanResult, program: str, name: str, measure: Measure,
    low: float, high: float,
) -> None:  # fmt: skip
    cell = found.cells[program, name]
    ratio = cell.of(measure)
    if ratio is None:
        text, color = ("failed", _BAD) if cell.failure else ("not measured", _FAINT)
        axes.text(low * 1.01, row, text, fontsize=6, color=color, va="center")
        return
    color = {"less": _GOOD, "more": _BAD}.get(ratio.outcome, "#555555")
    if ratio.interval is not None:
        ends = (max(low, ratio.interval.low), min(high, ratio.interval.high))
        axes.plot(ends, (row, row), color=color, linewidth=1)
    if not low <= ratio.estimate <= high:
        right = ratio.estimate > high
        axes.text(
            high if right else low, row, times(ratio.estimate), fontsize=6, color=color,
            va="center", ha="right" if right else "left",
        )  # fmt: skip
        return
    face = color if ratio.outcome in ("less", "more") else "white"
    axes.plot((ratio.estimate,), (row,), "o", color=color, markerfacecolor=face, markersize=3.5)


def plane(report: MatrixReport, *, title: str, form: str) -> bytes:
    """Draws one arrow per contender from the baseline, in time and memory, and the Pareto front.

    The front joins each contender that no other contender beats in both time and memory.
    """
    from matplotlib.figure import Figure

    found = report.result
    figure = Figure(figsize=(8.4, 6.4), layout="constrained")
    axes = figure.subplots()
    looks = styles(found.contenders)
    points: dict[str, tuple[float, float]] = {found.baseline: (1.0, 1.0)}
    for name in found.contenders:
        time, memory = found.means.get(("time", name)), found.means.get(("memory", name))
        if time is None or memory is None:
            continue
        color, marker = looks[name]
        end = (time.estimate, memory.estimate)
        points[name] = end
        axes.annotate(
            "", end, (1.0, 1.0), arrowprops={"arrowstyle": "->", "color": color, "linewidth": 1.2}
        )
        if time.interval is not None:
            axes.plot((time.interval.low, time.interval.high), (end[1],) * 2, color=color, lw=1)
        if memory.interval is not None:
            axes.plot((end[0],) * 2, (memory.interval.low, memory.interval.high), color=color, lw=1)
        axes.plot((end[0],), (end[1],), marker=marker, color=color, markersize=8, zorder=3)
    front = pareto(points)
    axes.plot(
        [points[name][0] for name in front], [points[name][1] for name in front],
        color=_GOOD, linestyle="--", linewidth=1, zorder=1,
    )  # fmt: skip
    axes.plot((1,), (1,), marker="*", color="#000000", markersize=12, zorder=4)
    for place, limit, ticks in (
        (0, axes.set_xlim, axes.set_xticks),
        (1, axes.set_ylim, axes.set_yticks),
    ):
        known = [point[place] for point in points.values()]
        low, high = min([0.95, *known]) / 1.06, max([1.05, *known]) * 1.06
        (axes.set_xscale if place == 0 else axes.set_yscale)("log")
        limit(low, high)
        inside = [step for step in _STEPS if low <= step <= high]
        ticks(inside, [f"{step:g}" for step in inside], fontsize=8)
    axes.minorticks_off()
    axes.axvline(1, color=_GRID, linewidth=0.8)
    axes.axhline(1, color=_GRID, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    base = printable(found.baseline)
    axes.set_xlabel(
        f"time ÷ {base}, geometric mean of {len(found.over['time'])}", fontsize=9, parse_math=False
    )
    axes.set_ylabel(
        f"peak memory ÷ {base}, geometric mean of {len(found.over['memory'])}", fontsize=9,
        parse_math=False,
    )  # fmt: skip
    absent = [printable(name) for name in found.contenders if name not in points]
    note = f" · not shown, because they have no mean: {', '.join(absent)}" if absent else ""
    framed(
        figure, report.run, title,
        f"crosses: {100 * found.level:g} % intervals · dashed: Pareto front{note}",
        runs=found.runs,
    )  # fmt: skip
    label_points(figure, axes, [(printable(name), *point) for name, point in points.items()])
    return drawn_as(figure, form)


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names for which no other is as small in both numbers, ordered by the first number."""
    front: list[str] = []
    for name in sorted(points, key=lambda name: (points[name], name)):
        if not front or points[name][1] < points[front[-1]][1]:
            front.append(name)
    return front


def heat(report: MatrixReport, *, title: str, form: str) -> bytes:
    """Draws the ratios as colours: programs × contenders, for time and for memory."""
    import numpy as np
    from matplotlib.figure import Figure

    found = report.result
    names = ordered(found)
    measures: Sequence[Measure] = [m for m in matrix.MEASURES if found.has(m)] or ["time"]
    labels = [report.label(program) for program in found.programs]
    figure = Figure(
        figsize=(2.2 + 0.55 * len(names) * len(measures), 1.9 + 0.24 * len(labels)),
        layout="constrained",
    )
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    most = math.log(_HOTTEST)
    for axes, measure in zip(panels, measures, strict=True):
        logs = np.full((len(labels), len(names)), np.nan)
        for row, program in enumerate(found.programs):
            for column, name in enumerate(names):
                cell = found.cells[program, name]
                ratio = cell.of(measure)
                text, dark = ("✘" if cell.failure else "–"), False
                if ratio is not None:
                    logs[row, column] = math.log(ratio.estimate)
                    text, dark = times(ratio.estimate), abs(logs[row, column]) > 0.7 * most
                axes.text(
                    column, row, text, ha="center", va="center", fontsize=6,
                    color="white" if dark else "black",
                )  # fmt: skip
        axes.imshow(logs, cmap="PuOr_r", vmin=-most, vmax=most, aspect="auto")
        axes.set_xticks(
            range(len(names)), [printable(name) for name in names], rotation=60, ha="right",
            fontsize=7, parse_math=False,
        )  # fmt: skip
        axes.set_title(f"{NOUNS[measure]} ÷ {printable(found.baseline)}", fontsize=9,
                       parse_math=False)  # fmt: skip
    panels[0].set_yticks(range(len(labels)), labels, fontsize=7, parse_math=False)
    framed(
        figure, report.run, title,
        f"violet: less, orange: more; full colour from {_HOTTEST:g} times or half on",
        runs=found.runs,
    )  # fmt: skip
    return drawn_as(figure, form)


CHARTS: Mapping[str, Callable[[MatrixReport, str, str], bytes]] = {
    "time": lambda report, title, form: dots(report, title=title, form=form),
    "memory": lambda report, title, form: dots(report, title=title, form=form, measure="memory"),
    "plane": lambda report, title, form: plane(report, title=title, form=form),
    "heat": lambda report, title, form: heat(report, title=title, form=form),
}
"""By name of a picture: the function that draws it, from the report, a title and a form."""
