"""Turns numbers, names and changes into text, alike in all reports."""

from __future__ import annotations

import math
import re

from rich.cells import cell_len

from cairn import units
from cairn.compare import stats
from cairn.model import Change, Direction, Interval, Metric, Shown, Summary

NOT_MEASURED = "not measured"


def printable(text: str) -> str:
    """Returns the text with control characters and invisible characters as escape sequences.

    A byte that is not UTF-8, which Python gives as half of a surrogate pair, becomes `\\xff`.
    """
    return "".join(c if c.isprintable() else _escape(c) for c in text)


COMMAND_MOST = 160
"""The most characters of a command on a screen, which is two lines of 80 columns."""
_WORD_MOST = 400
"""The most characters of a word in a message. Paths are seldom longer."""
_MESSAGE_MOST = 1600
"""The most characters of a message, which is a screen of 20 lines."""
_LONG_WORD = re.compile(rf"\S{{{_WORD_MOST + 1},}}")


def shortened(text: str, most: int = COMMAND_MOST) -> str:
    """Returns the text with at most `most` characters. "…" replaces the middle of a longer text.

    A command's beginning and end say the most: its program, and its last arguments.
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 3
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def command(text: str) -> str:
    """Returns the text of a command for a screen. JSON has the whole command."""
    return printable(shortened(text))


def message(text: str) -> str:
    """Returns a message for a screen: printable, and of a length that can be read."""
    words = _LONG_WORD.sub(lambda word: shortened(word[0], _WORD_MOST), text)
    return printable(shortened(words, _MESSAGE_MOST))


def _escape(character: str) -> str:
    byte = ord(character) - 0xDC00
    if 0x80 <= byte <= 0xFF:
        return f"\\x{byte:02x}"
    return character.encode("unicode_escape").decode("ascii")


_SIGNS = frozenset("≤≥<>±÷×▸▲▼≈?✘✔→–·")
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
            return units.size(value).replace("-", "−")
        case "count":
            return units.count(value)
        case "percent":
            return f"{value:.0f} %"
        case "ratio":
            return share(value)
        case "rate":
            return f"{units.count(value)}/s"
        case "bytes per second":
            return f"{units.size(value)}/s"
    return f"{value:,.6g}"


def share(value: float) -> str:
    """Returns a ratio such as faults per operation, with three significant digits."""
    return units.count(value) if value >= 1000 else f"{value:.3g}"


def times(ratio: float) -> str:
    """Returns a ratio with three digits: 1.07, 12.3, 145."""
    return f"{ratio:.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}"


def times_interval(interval: Interval | None) -> str:
    """Returns the interval of a ratio, in brackets."""
    return f"[{times(interval.low)}, {times(interval.high)}]" if interval else "[too few rounds]"


def median(summary: Summary | None, metric: Metric) -> str:
    """Returns the median with its unit, or NOT_MEASURED without a summary."""
    return quantity(summary.median, metric) if summary else NOT_MEASURED


def sign(change: Change, margin: float) -> str:
    """Returns a sign for what the change is proven to be, so that colour is not needed.

    ▼ means less, ▲ means more, ≈ means the same within ±margin, and ? means that nothing is proven.
    """
    if change.interval is not None and stats.within(change.interval, margin):
        return "≈"
    match change.shown:
        case Shown.LESS:
            return "▼"
        case Shown.MORE:
            return "▲"
        case Shown.EQUIVALENT:
            return "≈"
        case Shown.NOT_SHOWN:
            return "?"


def _printed(change: Change, margin: float) -> Interval | None:
    """Returns the interval to print.

    Beside the sign ≈, this is the interval of the test of equivalence, which lies within the
    margin. The usual interval is wider. It could reach beyond the margin, and would then seem to
    contradict the sign.
    """
    if change.one_sided is not None and sign(change, margin) == "≈":
        return change.one_sided
    return change.interval


TWICE, TENTH = 1.995, 0.1
"""From the first ratio on, a change is written as a multiple. Up to the second ratio, it is written
as a divisor. The first is not 2 but the least ratio that is 2.00 when rounded."""


multiple = units.multiple


def change(change: Change | None, margin: float) -> str:
    """Returns the sign of a change and its estimate, in percent or as a multiple: "▲ × 2.31".

    The estimate is a multiple if interval() writes multiples, since reports show both side by side.
    """
    if change is None:
        return ""
    multiples = _in_multiples(change, _printed(change, margin))
    text = f"× {times(1 + change.estimate)}" if multiples else units.percent(change.estimate)
    return f"{sign(change, margin)} {text}"


def interval(change: Change | None, margin: float) -> str:
    """Returns the interval in brackets: in percent, or in multiples if it reaches TWICE."""
    if change is None:
        return ""
    ends = _printed(change, margin)
    if change.interval is None or ends is None:
        return "[too few rounds]"
    low, high = ends.low, ends.high
    if _in_multiples(change, ends):
        return f"[× {times(1 + low)}, {times(1 + high)}]"
    low_text, high_text = (units.percent(end).removesuffix(" %") for end in (low, high))
    return f"[{low_text}, {high_text}]"


def _in_multiples(change: Change, interval: Interval | None) -> bool:
    """Whether the estimate or the interval reaches TWICE, as a ratio to the baseline."""
    high = change.estimate if interval is None else max(change.estimate, interval.high)
    return 1 + high >= TWICE


def span(change: Change, margin: float) -> str:
    """Returns the sign of a change and its interval: "▼ −39.9 to −31.7 %".

    An interval that reaches twice the baseline is written in multiples ("▲ × 2.31 to 2.49"), and
    one below a tenth of the baseline in divisors ("▼ ÷ 19.2 to 21.5"). The change must have an
    interval.
    """
    printed = _printed(change, margin)
    assert printed is not None
    low, high = 1 + printed.low, 1 + printed.high
    if high >= TWICE:
        head, ends, tail = "× ", _ends(low, high), ""
    elif low > 0 and high <= TENTH:
        head, ends, tail = "÷ ", _ends(1 / high, 1 / low), ""
    else:
        head, ends, tail = "", [*map(_signed, _ends(100 * (low - 1), 100 * (high - 1)))], " %"
    text = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    return f"{sign(change, margin)} {head}{text}{tail}"


def estimated(change: float, low: float, high: float) -> str:
    """Returns a relative change and its interval: "+40 % [38, 42]", or "× 2.4 [2.3, 2.5]".

    It is a multiple if the interval reaches twice the baseline.
    """
    multiples = 1 + high >= TWICE
    scale, base = (1.0, 1.0) if multiples else (100.0, 0.0)
    digits = _digits(scale * low + base, scale * high + base)
    texts = [f"{scale * one + base:,.{digits}f}" for one in (change, low, high)]
    if multiples:
        return f"× {texts[0]} [{texts[1]}, {texts[2]}]"
    value, *ends = map(_signed, texts)
    return f"{value} % [{ends[0]}, {ends[1]}]"


def _ends(low: float, high: float) -> list[str]:
    """Returns both ends with two significant digits of half their distance.

    No end gets more than two decimals, nor more than three significant digits.
    """
    digits = _digits(low, high)
    return [f"{end:,.{digits}f}" for end in (low, high)]


def _digits(low: float, high: float) -> int:
    half = (high - low) / 2
    largest = max(abs(low), abs(high))
    digits = min(
        2,
        1 - math.floor(math.log10(half)) if half > 0 else 2,
        2 - math.floor(math.log10(largest)) if largest > 0 else 2,
    )
    return max(0, digits)


def _signed(text: str) -> str:
    if float(text.replace(",", "")) == 0:
        return "0"
    return "−" + text[1:] if text.startswith("-") else "+" + text


def good(change: Change | None, metric: Metric, margin: float) -> bool | None:
    """Returns True if a wanted change is shown, False if an unwanted one is shown, else None.

    A change within ±margin is neither wanted nor unwanted.
    """
    if change is None or metric.direction in (Direction.NEITHER, Direction.UNKNOWN):
        return None
    match sign(change, margin):
        case "▼":
            return metric.direction is Direction.LESS
        case "▲":
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
