"""Pictures of standings and scenarios, as SVG and PNG.

They show every ratio with its interval, time against memory, and median to P99. Always true:

- The same data give the same bytes of SVG.
- Colour-blind people can distinguish the colours (Paul Tol's "muted"). Each contender also has a
  marker of its own shape.
- A failed or missing measurement is written as text, never drawn as a number.
- All text is printable, and none of it is markup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from cairn import units
from cairn.compare.ranking import Entry, Ranking
from cairn.compare.ratios import Ratio
from cairn.compare.standings import Place, Standings, WorkloadResult
from cairn.model import Run
from cairn.report.formatting import printable, times
from cairn.report.pictures import without_glyph_warnings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = (
    "#332288", "#cc6677", "#117733", "#ddaa33", "#88ccee", "#aa4499", "#44aa99", "#882255",
    "#999933", "#4477aa", "#777777", "#000000", "#ee7733",
)  # fmt: skip
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "p", "h", "*", "d")
_GRID, _FAINT, _GOOD, _BAD = "#dddddd", "#777777", "#117733", "#882255"
_CUTS = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Possible ends of the axis of ratios. Ratios beyond the end are written as numbers at the edge. On
a longer axis, ratios such as 1.05 could not be distinguished from 1."""
_BEYOND = 0.03
"""At most this share of the ratios lies beyond the end of the axis."""
_STEPS = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100)


def ratios(run: Run, found: Standings, *, title: str, form: str, memory: bool = False) -> bytes:
    """Draws each ratio to the best with its interval: a panel per contender, a row per workload.

    In a single panel, thirteen colours could not be distinguished. With panels side by side, the
    weak spots of a contender are in one column of dots, and a workload is one line across all
    panels.
    """
    from matplotlib.figure import Figure

    places = list(found.places)
    columns = min(len(places), 7)
    lines = math.ceil(len(places) / columns)
    names = [printable(contest.name) for contest in found.contests]
    height = (0.9 + 0.165 * len(names)) * lines + 1.0
    figure = Figure(figsize=(2.2 + 1.65 * columns, height), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    of: Callable[[WorkloadResult], Ratio | None] = (
        (lambda cell: cell.memory) if memory else (lambda cell: cell.time)
    )
    cut = _cut([ratio.estimate for cell in found.cells.values() if (ratio := of(cell))])
    for place, axes in zip(
        [*places, *[None] * (lines * columns - len(places))], panels.flat, strict=True
    ):
        if place is None:
            axes.set_axis_off()
            continue
        _panel(axes, place, found, of, place.memory if memory else place.time, cut)
    for row in panels:
        row[0].set_yticks(range(len(names)), names, fontsize=7, parse_math=False)
    panels[0][0].set_ylim(len(names) - 0.5, -0.5)
    what = "peak memory" if memory else "time"
    framed(
        figure, run, title,
        f"{what} ÷ best of each workload · dot: estimate, line: {_percent(found.level)} interval "
        "· filled: shown to be worse than the best, hollow: may be the best, diamond: apparent "
        "best · band: interval of the geometric mean",
    )  # fmt: skip
    return drawn_as(figure, form)


def _cut(ratios: Sequence[float]) -> float:
    """Returns the smallest end of the axis with at most _BEYOND of the ratios beyond it."""
    return next(
        (cut for cut in _CUTS if sum(x > 0.96 * cut for x in ratios) <= _BEYOND * len(ratios)),
        _CUTS[-1],
    )


def _panel(
    axes: Axes,
    place: Place,
    found: Standings,
    of: Callable[[WorkloadResult], Ratio | None],
    mean: Ratio | None,
    cut: float,
) -> None:
    axes.set_xscale("log")
    axes.set_xlim(cut**-0.05, cut)
    steps = _thinned([step for step in _STEPS if step < cut], 4)
    axes.set_xticks(steps, [f"{step:g}" for step in steps], fontsize=7)
    axes.minorticks_off()
    axes.axvline(1, color=_FAINT, linewidth=0.8)
    axes.grid(axis="x", color=_GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    for row, contest in enumerate(found.contests):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", linewidth=0, zorder=-2)
        _dot(axes, row, found.cells[contest.workload, place.contender], of, cut)
    under = (
        f"mean {times(mean.estimate)}"
        if mean
        else "no mean: failed"
        if place.failed_on
        else "no mean"
    )
    if mean is not None and mean.interval is not None:
        axes.axvspan(
            mean.interval.low,
            mean.interval.high,
            color="#88ccee",
            alpha=0.35,
            linewidth=0,
            zorder=-1,
        )
    axes.set_title(f"{printable(place.contender)}\n{under}", fontsize=8, parse_math=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="x", labelbottom=True)
    axes.tick_params(axis="y", length=0)


def _thinned(steps: Sequence[float], most: int) -> list[float]:
    """Returns at most `most` of the steps, spread evenly on a logarithmic axis.

    The first step is always kept.
    """
    shown = list(steps)
    while len(shown) > most:
        gaps = [
            (shown[i + 1] / shown[i - 1] if i + 1 < len(shown) else math.inf, i)
            for i in range(1, len(shown))
        ]
        del shown[min(gaps)[1]]
    return shown


def _dot(
    axes: Axes,
    row: int,
    cell: WorkloadResult,
    of: Callable[[WorkloadResult], Ratio | None],
    cut: float,
) -> None:
    ratio = of(cell)
    if ratio is None:
        text, color = ("failed", _BAD) if cell.failure else ("not measured", _FAINT)
        axes.text(1.03, row, text, fontsize=6, color=color, va="center")
        return
    if ratio.estimate > 0.96 * cut:
        axes.text(
            0.985, row, f"{times(ratio.estimate)} ▸", fontsize=6.5, color=_BAD, va="center",
            ha="right", transform=axes.get_yaxis_transform(),
        )  # fmt: skip
        return
    if ratio.interval is not None:
        axes.plot(
            (ratio.interval.low, min(ratio.interval.high, cut)),
            (row, row),
            color="#333333",
            linewidth=1.1,
        )
    maybe = ratio.interval is None or ratio.interval.low <= 1
    color = _GOOD if ratio.best else "#332288"
    axes.plot(
        (ratio.estimate,),
        (row,),
        marker="D" if ratio.best else "o",
        markersize=3.6,
        color=color,
        zorder=3,
        markerfacecolor="white" if maybe and not ratio.best else color,
    )


def time_against_memory(run: Run, found: Standings, *, title: str, form: str) -> bytes:
    """Draws the geometric means of time and memory, with their intervals as crosses.

    Down and left is better. A star marks the point that a contender would have if it were the best
    on every workload.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.2, 6.4), layout="constrained")
    axes = figure.subplots()
    drawn = [
        (place, place.time, place.memory) for place in found.places if place.time and place.memory
    ]
    style = styles([place.contender for place in found.places])
    points = []
    for place, time, memory in drawn:
        assert time is not None
        assert memory is not None
        color, marker = style[place.contender]
        if time.interval is not None:
            axes.plot(
                (time.interval.low, time.interval.high),
                (memory.estimate,) * 2,
                color=color,
                linewidth=1,
                alpha=0.7,
            )
        if memory.interval is not None:
            ends = (memory.interval.low, memory.interval.high)
            axes.plot((time.estimate,) * 2, ends, color=color, linewidth=1, alpha=0.7)
        axes.plot(
            (time.estimate,), (memory.estimate,), marker=marker, color=color, markersize=8, zorder=3
        )
        points.append((printable(place.contender), time.estimate, memory.estimate))
    axes.plot((1,), (1,), marker="*", color=_GOOD, markersize=14, clip_on=False, zorder=4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _ticks(axes, [t.interval.high if t.interval else t.estimate for _, t, _ in drawn if t],
           [m.interval.high if m.interval else m.estimate for _, _, m in drawn if m])  # fmt: skip
    axes.grid(color=_GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(
        f"time ÷ best of each workload, geometric mean of {len(found.time_over)}", fontsize=9
    )
    axes.set_ylabel(f"peak memory ÷ best, geometric mean of {len(found.memory_over)}", fontsize=9)
    absent = [
        printable(place.contender) for place in found.places if not (place.time and place.memory)
    ]
    note = f" · not shown, because they have no mean: {', '.join(absent)}" if absent else ""
    framed(figure, run, title, f"crosses: {_percent(found.level)} intervals{note}")
    label_points(figure, axes, [("best everywhere", 1.0, 1.0), *points])
    return drawn_as(figure, form)


def _ticks(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    """Labels logarithmic axes with plain numbers. Each axis starts just below 1."""
    for end, limit, ticks in (
        (max(xs, default=2.0), axes.set_xlim, axes.set_xticks),
        (max(ys, default=2.0), axes.set_ylim, axes.set_yticks),
    ):
        limit(0.97, max(1.12, end * 1.06))
        shown = _thinned([step for step in _STEPS if step <= end * 1.06], 9)
        ticks(shown, [f"{step:g}" for step in shown], fontsize=8)
    axes.minorticks_off()


@without_glyph_warnings()
def label_points(figure: Figure, axes: Axes, points: Sequence[tuple[str, float, float]]) -> None:
    """Writes names near their points so that they cover neither each other nor a point.

    Each name takes the first free place around its point. Nearer places are tried before others. A
    line connects distant names.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    frame = axes.get_window_extent(renderer)
    centres = [axes.transData.transform((x, y)) for _, x, y in points]
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in centres]
    for name, x, y in points:
        for distance, degrees in _PLACES:
            right, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            text = axes.annotate(
                name,
                (x, y),
                xytext=(distance * right, distance * up),
                textcoords="offset points",
                fontsize=8,
                ha="left" if right > 0.1 else "right" if right < -0.1 else "center",
                va="bottom" if up > 0.1 else "top" if up < -0.1 else "center",
                parse_math=False,
                arrowprops={"arrowstyle": "-", "color": _FAINT, "linewidth": 0.6}
                if distance > 15
                else None,
            )
            text.set_in_layout(False)
            box = text.get_window_extent(renderer)
            inside = (
                frame.x0 <= box.x0
                and box.x1 <= frame.x1
                and frame.y0 <= box.y0
                and box.y1 <= frame.y1
            )
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            if (distance, degrees) != _PLACES[-1]:
                text.remove()


_PLACES = tuple(
    (distance, degrees)
    for distance in (7, 14, 24, 36, 50, 70)
    for degrees in (45, 135, 315, 225, 0, 180, 90, 270)
)


def percentiles(run: Run, found: Ranking, *, title: str, form: str) -> bytes:
    """Draws median, P95 and P99 of an operation: a panel per scenario, a row per contender."""
    from matplotlib.figure import Figure

    shown = [
        scenario
        for scenario in found.scenarios
        if any(entry.median_ns for entry in scenario.entries)
    ]
    columns = max(1, min(len(shown), 2 if len(shown) <= 4 else 3 if len(shown) <= 9 else 4))
    lines = max(1, math.ceil(len(shown) / columns))
    rows = max((len(scenario.entries) for scenario in shown), default=1)
    figure = Figure(
        figsize=((5.6 if columns < 3 else 4.6) * columns, (0.8 + 0.24 * rows) * lines + 0.9),
        layout="constrained",
    )
    panels = figure.subplots(lines, columns, squeeze=False)
    for scenario, axes in zip(
        [*shown, *[None] * (lines * columns - len(shown))], panels.flat, strict=True
    ):
        if scenario is None:
            axes.set_axis_off()
            continue
        for row, entry in enumerate(scenario.entries):
            _operation(axes, row, entry)
        axes.set_xscale("log")
        names = [printable(entry.contender) for entry in scenario.entries]
        axes.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_title(printable(scenario.name), fontsize=9, parse_math=False)
        _times_axis(axes, scenario.entries)
        axes.grid(axis="x", which="both", color=_GRID, linewidth=0.4)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    if shown:
        handles = [
            panels[0][0].plot([], [], linestyle="", marker=m, color=c, label=text)[0]
            for text, m, c in _QUANTILES
        ]
        figure.legend(
            handles=handles, loc="outside right upper", ncols=1, fontsize=8, frameon=False
        )
    rounds = sorted({scenario.rounds for scenario in shown})
    runs = (
        f"medians over {units.counted(rounds[0], 'run')}"
        if len(rounds) == 1
        else "medians over runs"
        if rounds
        else "nothing measured"
    )
    framed(figure, run, title, f"time of an operation, {runs} · best median on top")
    return drawn_as(figure, form)


_QUANTILES = (("median", "o", "#332288"), ("P95", "s", "#ddaa33"), ("P99", "D", "#cc6677"))


def _operation(axes: Axes, row: int, entry: Entry) -> None:
    numbers = (entry.median_ns, entry.p95_ns, entry.p99_ns)
    known = [number for number in numbers if number is not None and number > 0]
    if not known:
        text, color = ("failed", _BAD) if entry.failure else ("not measured", _FAINT)
        axes.text(
            0.02,
            row,
            text,
            fontsize=7,
            color=color,
            va="center",
            transform=axes.get_yaxis_transform(),
        )
        return
    axes.plot((min(known), max(known)), (row, row), color="#999999", linewidth=1.2, zorder=1)
    for number, (_, marker, color) in zip(numbers, _QUANTILES, strict=True):
        if number is not None and number > 0:
            axes.plot((number,), (row,), marker=marker, color=color, markersize=6, zorder=3)


def _times_axis(axes: Axes, entries: Sequence[Entry]) -> None:
    """Labels the axis of times at 1, 2, 5, 10 … with units.

    If that makes more than seven labels, only powers of ten are labelled.
    """
    from cairn import units

    known = [
        n for e in entries for n in (e.median_ns, e.p95_ns, e.p99_ns) if n is not None and n > 0
    ]
    low, high = min(known, default=1.0) / 1.25, max(known, default=10.0) * 1.25
    ticks = [step * 10.0**power for power in range(-2, 12) for step in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) > 7:
        inside = [tick for tick in inside if f"{tick:e}"[0] == "1"]
    axes.set_xlim(low, high)
    axes.set_xticks(
        inside,
        [units.time(tick).replace(".00", "").replace(".0 ", " ") for tick in inside],
        fontsize=8,
    )
    axes.minorticks_off()


def styles(names: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Returns a colour and a marker for each name.

    Colours and markers depend on the set of names, not on the ranking.
    """
    ordered = sorted(names)
    return {
        name: (
            _COLORS[place % len(_COLORS)],
            _MARKERS[(place + place // len(_COLORS)) % len(_MARKERS)],
        )
        for place, name in enumerate(ordered)
    }


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def framed(figure: Figure, run: Run, title: str, says: str, *, runs: int = 1) -> None:
    """Adds a title, and a footer with the explanation `says` and the machine.

    runs: the number of runs, of which `run` is the last. Several may be of several machines.
    """
    host = run.host
    machine = ", ".join(filter(None, (host.cpu_model, f"{host.cpus} CPUs", host.libc, host.kernel)))
    origin = f"{machine} · cairn {run.cairn}, {run.id}"
    if runs > 1:
        origin = f"{runs} runs, the last one {run.id}"
    footer = "\n".join((printable(says), printable(origin)))
    figure.suptitle(printable(title), fontsize=11, parse_math=False)
    figure.supxlabel(footer, fontsize=7, parse_math=False)


@without_glyph_warnings()
def drawn_as(figure: Figure, form: str) -> bytes:
    """Returns the picture's bytes. A fixed salt makes the names in an SVG the same each time."""
    import matplotlib

    made = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "cairn"}):
        figure.savefig(made, format=form, dpi=150, metadata={"Date": None} if form == "svg" else {})
    return made.getvalue()
