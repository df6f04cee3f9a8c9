"""How numbers and names read in every kind of report."""

from __future__ import annotations

import re

from rich.cells import cell_len

from cairn import units
from cairn.model import Change, Direction, Interval, Metric, Shown, Summary

NOT_MEASURED = "not measured"


def printable(text: str) -> str:
    """The text with every character that could steer a terminal, or hide itself, spelt out."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


_SIGNS = frozenset("≤≥<>±÷▸▲▼≈✘✔→–·")
_UNITS = r"(?:%|[kMGT]?i?B|[mµn]?s|min|h|d)"
_BREAK = re.compile(rf" (?!{_UNITS}(?![\w/]))| (?<!\d )(?={_UNITS})")
"""Spaces but those between a number and its unit."""


def pieces(text: str) -> list[str]:
    """What no line break may divide: words, numbers with their units, signs with what they stand before."""
    found: list[str] = []
    for piece in _BREAK.split(text):
        if found and found[-1] in _SIGNS:
            found[-1] += f" {piece}"
        else:
            found.append(piece)
    return found


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, or of a single piece that is longer."""
    lines: list[str] = []
    for piece in pieces(text):
        if lines and cell_len(lines[-1]) + 1 + cell_len(piece) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines


def quantity(value: float, metric: Metric) -> str:
    """A number in the metric's unit."""
    match metric.unit:
        case "ns":
            return units.time(value)
        case "bytes":
            return units.size(value)
        case "count":
            return units.count(value)
        case "percent":
            return f"{value:.0f} %"
        case "ratio":
            return share(value)
    return f"{value:,.6g}"


def share(value: float) -> str:
    """So many of one thing for each of another, with three significant digits: faults per operation."""
    return units.count(value) if value >= 1000 else f"{value:.3g}"


def times(ratio: float) -> str:
    """A multiple of the best: 1.07, 12.3, 145."""
    return f"{ratio:.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}"


def times_interval(interval: Interval | None) -> str:
    """The interval of a multiple, in brackets."""
    return f"[{times(interval.low)}, {times(interval.high)}]" if interval else "[one round]"


def median(summary: Summary | None, metric: Metric) -> str:
    """The median of a column, or that there is none."""
    return quantity(summary.median, metric) if summary else NOT_MEASURED


def sign(change: Change) -> str:
    """The finding as one character, so that colour is never needed: less, more, or not shown."""
    match change.shown:
        case Shown.LESS:
            return "▼"
        case Shown.MORE:
            return "▲"
        case Shown.EQUIVALENT | Shown.NOT_SHOWN:
            return "≈"


def change(change: Change | None) -> str:
    """The estimate with its sign."""
    return f"{sign(change)} {units.percent(change.estimate)}" if change else ""


def interval(change: Change | None) -> str:
    """The interval in brackets, in percent."""
    if change is None:
        return ""
    if change.interval is None:
        return "[too few rounds]"
    low, high = (
        units.percent(end).removesuffix(" %") for end in (change.interval.low, change.interval.high)
    )
    return f"[{low}, {high}]"


def good(change: Change | None, metric: Metric) -> bool | None:
    """True for a shown change in the wanted direction, False for one in the other, None for neither."""
    if change is None or metric.direction in (Direction.NEITHER, Direction.UNKNOWN):
        return None
    match change.shown:
        case Shown.LESS:
            return metric.direction is Direction.LESS
        case Shown.MORE:
            return metric.direction is Direction.MORE
    return None


def spread(summary: Summary | None, metric: Metric) -> str:
    """Mean ± standard deviation; the mean alone for a single run."""
    if summary is None:
        return NOT_MEASURED
    if summary.sigma is None:
        return quantity(summary.mean, metric)
    return f"{quantity(summary.mean, metric)} ± {quantity(summary.sigma, metric)}"


def extremes(summary: Summary | None, metric: Metric) -> str:
    """Smallest and largest run."""
    return (
        f"{quantity(summary.minimum, metric)} … {quantity(summary.maximum, metric)}"
        if summary
        else NOT_MEASURED
    )
