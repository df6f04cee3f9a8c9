"""Texts of the estimates in a profile: times, shares and counts, with their intervals."""

from __future__ import annotations

import math

from cairn import units
from cairn.model import Interval
from cairn.profile.estimates import Estimate
from cairn.report.formatting import NOT_MEASURED
from cairn.report.standings import UNKNOWN


def short_time(ns: float | None, shortest: float) -> str:
    """Returns a time as text. Below the clock's resolution `shortest`, it is an upper limit."""
    if ns is None:
        return UNKNOWN
    return f"< {units.time(shortest)}" if ns < shortest else units.time(ns)


def percent(share: float) -> str:
    """Returns a share as text, with three significant digits.

    With fewer digits, the ends of its interval could look equal.
    """
    return f"{share * 100:.{_decimals(share)}f} %"


def _decimals(share: float) -> int:
    return min(4, max(0, 2 - math.floor(math.log10(share * 100)))) if share > 0 else 0


def within(share: Estimate) -> str:
    """Returns the interval as text, with as many decimals as its estimate."""
    return ends_of(share.interval, share.value)


def ends_of(ends: Interval, value: float = 0.0) -> str:
    """Returns both ends in percent, with as many decimals as `value`."""
    decimals = _decimals(value or ends.high)
    return f"[{ends.low * 100:.{decimals}f}, {ends.high * 100:.{decimals}f}]"


def estimated(count: Estimate | None) -> str:
    """Returns a count, with its interval unless it is exact."""
    if count is None:
        return NOT_MEASURED
    value, low, high = (
        units.count(round(n)) for n in (count.value, count.interval.low, count.interval.high)
    )
    return value if low == high else f"≈ {value} [{low}, {high}]"


def share_of(share: Estimate | None) -> str:
    """Returns a share and its interval."""
    return NOT_MEASURED if share is None else f"{percent(share.value)} {within(share)}"


def about(share: Estimate) -> str:
    """Returns a share with its interval, with two significant digits of the interval's half."""
    ends = share.interval
    decimals = digits((ends.high - ends.low) / 2)
    value, low, high = (f"{100 * one:.{decimals}f}" for one in (share.value, ends.low, ends.high))
    return f"{value} % ({low} to {high})"


def digits(half: float) -> int:
    """Returns the decimals of a percentage that show two significant digits of `half`."""
    return min(4, max(0, 1 - math.floor(math.log10(half * 100)))) if half > 0 else 1


def points(share: float) -> str:
    """Returns an error of a share, in points, with two significant digits."""
    return f"{100 * share:.2g} %"
