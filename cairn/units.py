"""Parses and prints numbers with units: durations, sizes, percentages.

The units of sizes are binary: 1 KiB is 1024 bytes. All functions are pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

_DURATIONS = {"": 1.0, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LONGEST_S = 100 * 365 * 86400
_SIZES = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mib": 1 << 20,
    "g": 1 << 30,
    "gib": 1 << 30,
}
_LARGEST = 1 << 63
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z%]*)\s*")


def _split(text: str, units: Collection[str], wanted: str) -> tuple[float, str]:
    """Returns the number and its unit in small letters.

    Raises ValueError if the text is no number with one of these units; `wanted` says what it
    should be, with examples.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or not math.isfinite(float(match[1])) or match[2].lower() not in units:
        raise ValueError(f"{text!r} is not {wanted}")
    return float(match[1]), match[2].lower()


def parse_duration(text: str) -> float:
    """Seconds from "90", "90s", "1.5min", "200ms", "2h".

    Raises ValueError, whose text gives examples.
    """
    number, unit = _split(text, _DURATIONS, "a duration; write for example 90s, 10min, 1h")
    seconds = number * _DURATIONS[unit]
    if seconds > _LONGEST_S:
        raise ValueError(f"{text!r} is longer than 100 years")
    return seconds


def parse_size(text: str) -> int:
    """Bytes from "4096", "64K", "1.5GiB"; units are binary.

    Raises ValueError, whose text gives examples.
    """
    number, unit = _split(text, _SIZES, "a size; write for example 512M or 2GiB")
    size = number * _SIZES[unit]
    if size > _LARGEST:
        raise ValueError(f"{text!r} is more than 8 EiB")
    return int(size)


def parse_percent(text: str) -> float:
    """A ratio from "1%", "1", "0.5 %"; the number is always in percent.

    Raises ValueError, whose text gives examples.
    """
    number, _ = _split(text, ("", "%"), "a percentage; write for example 1% or 0.5%")
    return number / 100.0


def duration(seconds: float) -> str:
    """A duration in words, rounded to seconds: "2 min 10 s". Below a second: "250 ms"."""
    if 0 < seconds < 0.9995:
        return time(seconds * 1e9)
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{whole} s"


def about(seconds: float) -> str:
    """A duration with three digits if it is short or broken: "2 min 10 s", "5 s", "1.50 s"."""
    whole = seconds >= 9.5 or (seconds >= 1 and seconds == round(seconds))
    return duration(seconds) if whole else time(seconds * 1e9)


def budget(seconds: float) -> str:
    """A value for --budget that is at least `seconds` with a tenth in reserve, in round numbers."""
    reserve = 1.1 * seconds
    if reserve <= 120:
        return f"{max(5, 5 * math.ceil(reserve / 5))}s"
    minutes = math.ceil(reserve / 60)
    return f"{minutes}min" if minutes <= 120 else f"{math.ceil(minutes / 60)}h"


def time(ns: float) -> str:
    """A measured time with three significant digits and a fitting unit."""
    if ns == 0:
        return "0 ns"
    for limit, divisor, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if abs(ns) < limit * 0.9995:
            return f"{_three(ns / divisor)} {unit}"
    return f"{_three(ns / 1e9)} s"


def size(number: float) -> str:
    """Bytes with three significant digits and a binary unit."""
    value, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1023.5 or unit == "TiB":
            break
        value /= 1024.0
    return f"{value:.0f} B" if unit == "B" else f"{_three(value)} {unit}"


def count(number: float) -> str:
    """A count: with thousands separators below a million, in millions (M) or billions (G) above."""
    if abs(number) < 1e6:
        return (
            f"{number:,.0f}" if number == round(number) or abs(number) >= 100 else f"{number:.1f}"
        )
    return f"{_three(number / 1e6)} M" if abs(number) < 1e9 else f"{_three(number / 1e9)} G"


def counted(number: int, one: str, more: str = "") -> str:
    """A count with its noun: "1 round", "3 rounds". `more` is a plural that does not only add s."""
    return f"{count(number)} {one if number == 1 else more or one + 's'}"


def multiple(ratio: float, half_width: float = 0.0) -> str:
    """Returns a ratio for a sentence such as "2.4 times as much": "2.4", "46", "1,012".

    It has a decimal only if it is below 10 and half of its interval is below 1.
    """
    return f"{ratio:,.{1 if ratio < 9.95 and half_width < 1 else 0}f}"


def percent(ratio: float, *, signed: bool = True) -> str:
    """A relative change: "−5.6 %", "+0.03 %". Zero has no sign."""
    value = ratio * 100.0
    digits = 1 if 0.1 <= abs(value) < 99.95 else 0 if abs(value) >= 99.95 else 2
    body = f"{abs(value):.{digits}f}"
    if float(body) == 0:
        return "0 %"
    sign = "−" if value < 0 else "+" if signed else ""
    return f"{sign}{body} %"


def _three(value: float) -> str:
    magnitude = abs(value)
    digits = 2 if magnitude < 9.995 else 1 if magnitude < 99.95 else 0
    return f"{value:,.{digits}f}"
