"""Texts of the estimates in a profile: times, shares and counts, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable

from cairn import units
from cairn.model import Finding
from cairn.profile.early_ends import Total
from cairn.profile.estimates import Estimate
from cairn.profile.tally import Peak
from cairn.report.formatting import NOT_MEASURED
from cairn.report.standings import UNKNOWN


def short_time(ns: float | None, shortest: float) -> str:
    """Returns a time as text: "25 ns", or "< 10 ns" below the clock's resolution `shortest`."""
    if ns is None:
        return UNKNOWN
    return f"< {units.time(shortest)}" if ns < shortest else units.time(ns)


def percent(share: float) -> str:
    """Returns a share without an error: "0 %", "< 0.1 %", or the percentage with one decimal."""
    if share == 0:
        return "0 %"
    return f"{100 * share:.1f} %" if share >= _TENTH else "< 0.1 %"


_TENTH = 0.0005
"""The least share that is 0.1 % when rounded."""


def estimated(count: Estimate | None) -> str:
    """Returns a count with its interval. An exact count has no interval."""
    if count is None:
        return NOT_MEASURED
    value, low, high = (
        units.count(round(n)) for n in (count.value, count.interval.low, count.interval.high)
    )
    return value if low == high else f"{value} ({low} to {high})"


def share_of(share: Estimate | None) -> str:
    """Returns a share and its interval, or NOT_MEASURED."""
    return NOT_MEASURED if share is None else about(share)


def about(share: Estimate) -> str:
    """Returns a share with its interval in percent: "12.3 % (11.9 to 12.7)".

    The decimals are those that show two significant digits of half the interval. If both ends are
    then the same number, the interval is left out. A share without an error has one decimal.
    """
    ends = share.interval
    if ends.low == ends.high:
        return percent(share.value)
    decimals = digits((ends.high - ends.low) / 2)
    value, low, high = (f"{100 * one:.{decimals}f}" for one in (share.value, ends.low, ends.high))
    return f"{value} %" if low == high else f"{value} % ({low} to {high})"


def effect(finding: Finding) -> str:
    """Returns the effect of a finding in percent, with its interval if it has one.

    A value that was not measured is left out: "2 % to 66 %".
    """
    ends = finding.interval
    if ends is None or ends.low >= ends.high:
        return units.percent(finding.effect, signed=False)
    if finding.measured:
        return about(Estimate(finding.effect, ends))
    decimals = digits((ends.high - ends.low) / 2)
    low, high = (f"{100 * one:.{decimals}f} %" for one in (ends.low, ends.high))
    return low if low == high else f"{low} to {high}"


def between(total: Total, text: Callable[[int], str]) -> str:
    """Returns a sum as `text` of one number if it is exact, else as its limits."""
    if total.high is None:
        return f"at least {text(total.low)}"
    low, high = text(total.low), text(total.high)
    return low if low == high else f"{low} to {high}"


def size_about(peak: Peak) -> str:
    """Returns a size with its interval: "1.25 MiB (1.21 to 1.29)".

    The decimals are those that show two significant digits of half the interval. If both ends are
    then the same number, the interval is left out. It is also left out if its low end is above its
    high end, which can come from a damaged file.
    """
    if peak.low >= peak.high:
        return units.size(peak.bytes)
    unit = units.size(peak.bytes).rpartition(" ")[2]
    factor = 1024 ** _UNITS.index(unit)
    half = (peak.high - peak.low) / 2 / factor
    decimals = 0 if unit == "B" else min(2, max(0, 1 - math.floor(math.log10(half))))
    value, low, high = (
        f"{number / factor:,.{decimals}f}" for number in (peak.bytes, peak.low, peak.high)
    )
    return f"{value} {unit}" if low == high else f"{value} {unit} ({low} to {high})"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def each(mean: Estimate) -> str:
    """Returns a mean number of events with its interval: "3.12 (3.05 to 3.19)".

    The decimals are those that show two significant digits of half the interval, but at most three
    significant digits of the number. If both ends are then the same number, the interval is left
    out.
    """
    ends = mean.interval
    half = (ends.high - ends.low) / 2
    decimals = 1
    if half > 0:
        most = 2 - math.floor(math.log10(max(ends.high, 1.0)))
        decimals = max(0, min(most, 1 - math.floor(math.log10(half))))
    value, low, high = (f"{number:,.{decimals}f}" for number in (mean.value, ends.low, ends.high))
    return value if low == high else f"{value} ({low} to {high})"


def digits(half: float) -> int:
    """Returns the number of decimals for a percentage whose error is the share `half`.

    With them, the error has two significant digits. There are at most two decimals.
    """
    return min(2, max(0, 1 - math.floor(math.log10(half * 100)))) if half > 0 else 1


def points(share: float) -> str:
    """Returns the error of a share in percentage points, with two significant digits: "0.43 %"."""
    return f"{100 * share:.2g} %"
