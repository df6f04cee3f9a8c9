"""Memory over time as a drawing: characters for a terminal, which need no colour, and SVG."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from cairn import units
from cairn.memory import Series
from cairn.model import Run, Sample
from cairn.report import formatting
from cairn.report.formatting import printable

_LINES = 7
_WIDEST = 100
_LIVE, _HELD, _RESIDENT = "█", "▒", "·"
_GAP, _CHANGED = 0.25, 0.05
"""Between two readings that are further apart than _GAP of the whole time, and that differ by more
than _CHANGED of the most memory, nothing is drawn. A program that does not allocate has no
readings, so the time at which its memory changed is not known."""
_COLORS = {"live": "#332288", "held": "#cc6677", "resident": "#999999"}


def drawn(series: Series, width: int) -> list[str]:
    """Returns the memory of one run as lines of at most `width` columns.

    Each column is a part of the time. Its lowest cells are live memory. Above them is the memory
    that is held but not live, and then the memory that is resident but not held. Columns far from
    any reading are empty.
    """
    most = max(*series.live, *series.held, *series.resident, 1)
    labels = [units.size(most), units.size(most / 2), "0 B"]
    margin = max(map(len, labels))
    columns = max(10, min(width, _WIDEST) - margin - 4)
    parts = [_column(series, place, columns) for place in range(columns)]
    marks = {0: labels[0], _LINES // 2: labels[1], _LINES - 1: labels[2]}
    lines = []
    for line in range(_LINES):
        at_least = most * (_LINES - line - 0.5) / _LINES
        cells = "".join(_cell(part, at_least) for part in parts)
        lines.append(f"  {marks.get(line, ''):>{margin}} │{cells}".rstrip())
    lines.append(f"  {'':>{margin}} └{'─' * columns}")
    length_ms = series.at_ms[-1] - series.at_ms[0]
    first, end = ("0 s", units.about(length_ms / 1000)) if length_ms else ("one moment", "")
    legend = f"{first}   {_LIVE} live  {_HELD} held  {_RESIDENT} resident"
    legend += "  empty: no reading" if None in parts else ""
    gap = columns - len(legend) - len(end)
    lines.append(f"  {'':>{margin}}  {legend}{' ' * gap}{end}" if gap > 0 else f"  {legend}")
    return lines


def _column(series: Series, place: int, columns: int) -> tuple[float, float, float] | None:
    """Live, held and resident memory in the middle of one column; None if it is in a gap.

    The first and the last column have the first and the last reading.
    """
    first, last = series.at_ms[0], series.at_ms[-1]
    at = first + (last - first) * (place + 0.5) / columns
    index = min(range(len(series.at_ms)), key=lambda one: abs(series.at_ms[one] - at))
    is_end = place in (0, columns - 1)
    if not is_end and any(begin < at < end for begin, end in _gaps(series)):
        return None
    return series.live[index], series.held[index], series.resident[index]


def _gaps(series: Series) -> list[tuple[float, float]]:
    """The times without readings, in milliseconds: the beginning and the end of each."""
    whole = series.at_ms[-1] - series.at_ms[0]
    kinds = (series.live, series.held, series.resident)
    least = _CHANGED * max(max(of) for of in kinds)
    return [
        (series.at_ms[one], series.at_ms[two])
        for one, two in itertools.pairwise(range(len(series.at_ms)))
        if series.at_ms[two] - series.at_ms[one] > _GAP * whole
        and any(abs(of[two] - of[one]) > least for of in kinds)
    ]


def _cell(part: tuple[float, float, float] | None, at_least: float) -> str:
    if part is None:
        return " "
    for value, sign in zip(part, (_LIVE, _HELD, _RESIDENT), strict=True):
        if value >= at_least:
            return sign
    return " "


def svg(run: Run, samples: Sequence[Sample]) -> str:
    """Returns all runs as SVG: a panel for each contender."""
    from matplotlib.figure import Figure

    from cairn.report.standings_charts import drawn_as, framed

    names = [one.name for one in run.competing]
    figure = Figure(figsize=(7.2, 1.0 + 2.4 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, squeeze=False, sharex=True, sharey=True)
    for axes, name in zip(panels[:, 0], names, strict=True):
        own = [
            one.memory.series
            for one in samples
            if one.trial.contender == name and one.counts and one.memory.series is not None
        ]
        for series in own:
            middles = [(begin + end) / 2 for begin, end in _gaps(series)]
            times = sorted([*series.at_ms, *middles])
            for key, color in _COLORS.items():
                known: dict[float, float] = dict(
                    zip(series.at_ms, getattr(series, key), strict=True)
                )
                values = [known.get(time, math.nan) / (1 << 20) for time in times]
                seconds = [time / 1000 for time in times]
                axes.plot(seconds, values, color=color, linewidth=0.9, label=key)
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        if unique:
            axes.legend(unique.values(), unique.keys(), fontsize=7, frameon=False, ncols=3)
        axes.set_title(printable(name), fontsize=9, loc="left", parse_math=False)
        axes.set_ylabel("MiB", fontsize=8)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    panels[-1, 0].set_xlabel("seconds", fontsize=8)
    title = formatting.command(run.settings.workloads[0].name)
    framed(figure, run, f"Memory over time: {title}", "one line for each run")
    return drawn_as(figure, "svg").decode()
