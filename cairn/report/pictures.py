"""A comparison as bars with intervals: CPU time, wall time and peak memory, as SVG and PNG."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from cairn import model
from cairn.model import Comparison, Metric, Row, Run
from cairn.report import tables
from cairn.report.formatting import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCALE = {"ns": (1e9, "s"), "bytes": (float(1 << 20), "MiB")}
_USER, _SYSTEM, _PLAIN, _BASELINE = "#4477aa", "#99c1de", "#4477aa", "#bbbbbb"


@contextlib.contextmanager
def without_glyph_warnings() -> Iterator[None]:
    """Silences the warnings about letters that the font lacks. Such letters are drawn as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@without_glyph_warnings()
def render(run: Run, comparison: Comparison, *, title: str, form: str) -> bytes:
    """Returns the picture in the form "svg" or "png".

    Whiskers show the interval of the paired change, applied to the baseline's median.
    """
    from matplotlib.figure import Figure

    time = comparison.time
    rows = [row for row in comparison.rows if not row.failures and time.key in row.summaries][::-1]
    has_memory = any(model.PEAK.key in row.summaries for row in rows)
    panels = 3 if has_memory else 2
    figure = Figure(figsize=(4.6 * panels, 1.4 + 0.42 * max(len(rows), 3)), layout="constrained")
    axes: Sequence[Axes] = figure.subplots(1, panels, sharey=True)
    titles = {contender.name: contender.title for contender in run.contenders}
    names = [tables.name_of(titles[row.contender], row.contender) for row in rows]
    _stacked(axes[0], rows, comparison)
    _bars(axes[1], rows, comparison, time)
    if has_memory:
        _bars(axes[2], rows, comparison, model.PEAK)
        axes[2].set_title(f"peak memory of the tree ({comparison.memory_method})", fontsize=9)
    axes[0].set_title("CPU time: user, system", fontsize=9)
    axes[1].set_title(
        "wall time" if time == model.WALL else "wall time without deliberate sleep", fontsize=9
    )
    axes[0].set_yticks(range(len(rows)), names, parse_math=False)
    figure.suptitle(printable(title), fontsize=11, parse_math=False)
    figure.supxlabel(
        f"{tables.footer(comparison)} · {run.host.cpus} CPUs, {run.host.libc} · cairn "
        f"{run.cairn}, {run.id}",
        fontsize=7,
        parse_math=False,
    )
    made = BytesIO()
    plain = {"Date": None} if form == "svg" else {}
    figure.savefig(made, format=form, dpi=150, metadata=plain)
    return made.getvalue()


def _stacked(axes: Axes, rows: Sequence[Row], comparison: Comparison) -> None:
    divisor, unit = _SCALE["ns"]
    user = [_median(row, model.USER) / divisor for row in rows]
    system = [_median(row, model.SYSTEM) / divisor for row in rows]
    axes.barh(range(len(rows)), user, color=_USER)
    axes.barh(range(len(rows)), system, left=user, color=_SYSTEM)
    _whiskers(axes, rows, comparison, model.CPU_TIME)
    axes.set_xlabel(unit, fontsize=8)


def _bars(axes: Axes, rows: Sequence[Row], comparison: Comparison, metric: Metric) -> None:
    divisor, unit = _SCALE[metric.unit]
    colors = [_BASELINE if row.contender == comparison.baseline else _PLAIN for row in rows]
    axes.barh(range(len(rows)), [_median(row, metric) / divisor for row in rows], color=colors)
    _whiskers(axes, rows, comparison, metric)
    axes.set_xlabel(unit, fontsize=8)


def _whiskers(axes: Axes, rows: Sequence[Row], comparison: Comparison, metric: Metric) -> None:
    divisor, _ = _SCALE[metric.unit]
    base = (
        next((_median(row, metric) for row in rows if row.contender == comparison.baseline), 0.0)
        / divisor
    )
    for place, row in enumerate(rows):
        change = row.changes.get(metric.key)
        if change is not None and change.interval is not None:
            ends = (base * (1 + change.interval.low), base * (1 + change.interval.high))
            axes.plot(ends, (place, place), color="black", linewidth=1.2, marker="|", markersize=5)
    axes.axvline(base, color="#888888", linewidth=0.6, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _median(row: Row, metric: Metric) -> float:
    return row.summaries[metric.key].median if metric.key in row.summaries else 0.0
