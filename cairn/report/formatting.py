"""Turns numbers, names and changes into text, alike in all reports."""

from __future__ import annotations

import re

from rich.cells import cell_len

from cairn import units
from cairn.model import Change, Direction, Interval, Metric, Shown, Summary

NOT_MEASURED = "not measured"


def printable(text: str) -> str:
    """Returns the text with control characters and invisible characters as escape sequences."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


_SIGNS = frozenset("≤≥<>±÷▸▲▼≈✘✔→–·")
_UNITS = r"(?:%|[kMGT]?i?B|[mµn]?s|min|h|d)"
_BREAK = re.compile(rf" (?!{_UNITS}(?![\w/]))| (?<!\d )(?={_UNITS})")
"""All spaces except those between a number and its unit."""


def pieces(text: str) -> list[str]:
    """Splits text where lines may break: not between number and unit, nor between sign and word."""
    found: list[str] = []
    for piece in _BREAK.split(text):
        if found and found[-1] in _SIGNS:
            found[-1] += f" {piece}"
        else:
            found.append(piece)
    return found


def wrapped(text: str, width: int) -> list[str]:
    """Returns the text in lines of at most `width` columns. A longer piece gets its own line."""
    lines: list[str] = []
    for piece in pieces(text):
        if lines and cell_len(lines[-1]) + 1 + cell_len(piece) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines


def quantity(value: float, metric: Metric) -> str:
    """Returns a number with the metric's unit."""
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
    """Returns a ratio such as faults per operation, with three significant digits."""
    return units.count(value) if value >= 1000 else f"{value:.3g}"


def times(ratio: float) -> str:
    """Returns a multiple of the best with three digits: 1.07, 12.3, 145."""
    return f"{ratio:.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}"


def times_interval(interval: Interval | None) -> str:
    """Returns the interval of a multiple, in brackets."""
    return f"[{times(interval.low)}, {times(interval.high)}]" if interval else "[one round]"


def median(summary: Summary | None, metric: Metric) -> str:
    """Returns the median with its unit, or NOT_MEASURED without a summary."""
    return quantity(summary.median, metric) if summary else NOT_MEASURED


def sign(change: Change) -> str:
    """Returns a change as one character, so that colour is not needed: less, more, not shown."""
    match change.shown:
        case Shown.LESS:
            return "▼"
        case Shown.MORE:
            return "▲"
        case Shown.EQUIVALENT | Shown.NOT_SHOWN:
            return "≈"


def change(change: Change | None) -> str:
    """Returns the estimate in percent, after a sign for what is shown."""
    return f"{sign(change)} {units.percent(change.estimate)}" if change else ""


def interval(change: Change | None) -> str:
    """Returns the interval in brackets, in percent."""
    if change is None:
        return ""
    if change.interval is None:
        return "[too few rounds]"
    low, high = (
        units.percent(end).removesuffix(" %") for end in (change.interval.low, change.interval.high)
    )
    return f"[{low}, {high}]"


def good(change: Change | None, metric: Metric) -> bool | None:
    """Returns True if a wanted change is shown, False if an unwanted one is shown, else None."""
    if change is None or metric.direction in (Direction.NEITHER, Direction.UNKNOWN):
        return None
    match change.shown:
        case Shown.LESS:
            return metric.direction is Direction.LESS
        case Shown.MORE:
            return metric.direction is Direction.MORE
    return None


def spread(summary: Summary | None, metric: Metric) -> str:
    """Returns mean ± standard deviation, or the mean alone for a single run."""
    if summary is None:
        return NOT_MEASURED
    if summary.sigma is None:
        return quantity(summary.mean, metric)
    return f"{quantity(summary.mean, metric)} ± {quantity(summary.sigma, metric)}"


def extremes(summary: Summary | None, metric: Metric) -> str:
    """Returns the smallest and the largest value of all runs."""
    return (
        f"{quantity(summary.minimum, metric)} … {quantity(summary.maximum, metric)}"
        if summary
        else NOT_MEASURED
    )
