"""Growth of memory over time, with intervals that allow for autocorrelation.

Readings of one program are not independent: memory that is high now is high a moment later, and it
may go up and down in cycles. An interval from ordinary least squares would be too narrow. Record
0039 compares the methods; docs/soak.md explains them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

BINS = 96
"""The number of equal parts of the time in which growth is measured."""
_FINE = 8
"""The number of interpolated readings in one part."""
_BANDWIDTH = 0.25
"""The number of lags over which autocovariances are summed, as a share of the number of parts."""
_RHO_MOST = 0.97
_CRITICAL = {0.95: 3.27, 0.99: 4.69}
"""By level: half the length of the interval of `growth`, in standard errors. The quantiles of the
normal distribution would be too small, because the number of lags grows with the number of parts
(Kiefer and Vogelsang 2005). These quantiles hold for independent parts."""
_STUDENT = {
    3: {0.95: 3.182, 0.99: 5.841},
    4: {0.95: 2.776, 0.99: 4.604},
    5: {0.95: 2.571, 0.99: 4.032},
    6: {0.95: 2.447, 0.99: 3.707},
}
"""Student's quantiles by degrees of freedom and level, two-sided."""


class Growth(Struct, frozen=True):
    """The growth of memory in bytes per second, with an interval."""

    per_s: float
    low: float
    high: float


class Stretch(Struct, frozen=True):
    """The course of one quantity, such as live memory, in BINS equal parts of a stretch of time."""

    seconds: float
    """The length of the stretch."""
    means: Numbers
    """The mean of each part."""
    minima: Numbers
    maxima: Numbers
    readings: int
    """The number of real readings in this time. The values between them are interpolated."""


def part(at_s: Sequence[float], values: Sequence[float], begin_s: float, end_s: float) -> Stretch:
    """Returns the course of the quantity between two times.

    It is assumed to change linearly between two readings.
    """
    times, numbers = np.asarray(at_s, float), np.asarray(values, float)
    edges = np.linspace(begin_s, end_s, BINS + 1)
    fine = np.linspace(begin_s, end_s, BINS * _FINE + 1)
    by_part = np.interp(fine, times, numbers)
    centres = ((by_part[1:] + by_part[:-1]) / 2).reshape(BINS, _FINE)
    low, high = centres.min(axis=1), centres.max(axis=1)
    inside = (times >= begin_s) & (times <= end_s)
    place = np.clip(np.searchsorted(edges, times[inside], "right") - 1, 0, BINS - 1)
    np.minimum.at(low, place, numbers[inside])
    np.maximum.at(high, place, numbers[inside])
    return Stretch(end_s - begin_s, centres.mean(axis=1), low, high, int(inside.sum()))


def _residuals(values: Numbers) -> tuple[float, Numbers, Numbers]:
    """The slope per value of a fitted line, the residuals of the values, and the centred times."""
    times = np.arange(len(values), dtype=np.float64) - (len(values) - 1) / 2
    slope = float(values @ times / (times @ times))
    rest: Numbers = np.asarray(values - values.mean() - slope * times, np.float64)
    return slope, rest, times


def _rho(rest: Numbers) -> float:
    """The correlation of neighbouring residuals, corrected for the bias that a fitted line causes.

    The correction is that of Marriott and Pope (1954) for a line: E(r) ≈ ρ − (2 + 4 ρ) / n.
    """
    total, count = float(rest @ rest), len(rest)
    if total <= 0:
        return 0.0
    raw = float(rest[1:] @ rest[:-1]) / total
    return min(_RHO_MOST, max(0.0, (count * raw + 2) / (count - 4)))


def growth(found: Stretch, level: float = 0.95) -> Growth:
    """Returns the growth of the means.

    The error is that of Newey and West with prewhitening (Andrews and Monahan 1992). The
    correlation of neighbouring parts is removed from the residuals. The long-run variance of the
    rest is summed over lags up to a quarter of the number of parts. The error is then increased by
    the effect of the correlation.
    """
    slope, rest, times = _residuals(found.means)
    rho, count = _rho(rest), len(rest)
    scores = rest * times
    white = scores[1:] - rho * scores[:-1]
    lags = int(_BANDWIDTH * count)
    long_run = float(white @ white)
    for lag in range(1, lags):
        long_run += 2 * (1 - lag / lags) * float(white[lag:] @ white[:-lag])
    error = math.sqrt(max(0.0, long_run) * count / (count - 1)) / (1 - rho) / float(times @ times)
    per_s = count / found.seconds
    half = _CRITICAL[level] * error
    return Growth(slope * per_s, (slope - half) * per_s, (slope + half) * per_s)


class Envelope(Struct, frozen=True):
    """The lower edge of a quantity: the least value of each of some equal blocks of time."""

    least: Numbers
    block_s: float
    growth: Growth
    """The growth of the least values, with an interval of 95 %."""
    surely: Growth
    """The growth of the least values, with an interval of 99 %."""
    ordered: float
    """The probability that blocks in a random order have at least as many ascending pairs (Mann and
    Kendall)."""
    later: float
    """The growth in the second half of the blocks as a multiple of that in the first half; NaN if
    the first half does not grow."""

    @property
    def rise(self) -> float:
        """The growth from the first to the last block, in bytes."""
        return self.growth.per_s * self.block_s * (len(self.least) - 1)


def envelope(found: Stretch, blocks: int) -> Envelope:
    """Returns the lower edge in this number of blocks, from 5 to 8.

    If memory grows, the least value of a block tends to lie at its beginning, but each block should
    be represented by a value at its middle. So the growth is estimated and subtracted before the
    least value is searched, and the growth up to the middle of the block is added afterwards.
    """
    edges = np.linspace(0, BINS, blocks + 1).astype(int)
    pairs = list(itertools.pairwise(edges))
    middles = np.array([(a + b - 1) / 2 for a, b in pairs])
    times = np.arange(BINS)
    slope, least = 0.0, np.zeros(blocks)
    for _ in range(2):
        rest = found.minima - slope * times
        least = np.array([rest[a:b].min() for a, b in pairs]) + slope * middles
        slope = _residuals(least)[0] * blocks / BINS
    return over_blocks(least, found.seconds / blocks, _rho(_residuals(found.means)[1]))


def over_blocks(least: Numbers, block_s: float, rho: float = 0.0) -> Envelope:
    """Returns the envelope with these least values.

    rho: the correlation of neighbouring values among the BINS values that the blocks consist of. It
        makes neighbouring blocks correlated, too, so the interval is widened.
    """
    count = len(least)
    slope, rest, times = _residuals(least)
    error = math.sqrt(float(rest @ rest) / (count - 2) / float(times @ times))
    error *= _widened(rho, BINS // count)
    halves = [_STUDENT[count - 2][level] * error for level in (0.95, 0.99)]
    usual, surely = (
        Growth(slope / block_s, (slope - half) / block_s, (slope + half) / block_s)
        for half in halves
    )
    middle = (count + 1) // 2
    first = _residuals(least[:middle])[0]
    second = _residuals(least[count - middle :])[0]
    later = second / first if first > 0 else math.nan
    return Envelope(least, block_s, usual, surely, _chance(least), later)


def _widened(rho: float, size: int) -> float:
    """The factor by which correlation widens the interval of a line through blocks of this size.

    The factor follows from the correlation between the means of neighbouring blocks in a
    first-order autoregressive process.
    """
    if rho <= 0:
        return 1.0
    power = rho**size
    variance = size * (1 - rho**2) - 2 * rho * (1 - power)
    between = min(0.9, rho * (1 - power) ** 2 / variance)
    return math.sqrt((1 + between) / (1 - between))


def _chance(values: Numbers) -> float:
    """The probability that a random order of the values has at least as many ascending pairs."""
    count = len(values)
    ascending = sum(
        bool(values[later] > values[earlier])
        for earlier in range(count)
        for later in range(earlier + 1, count)
    )
    orders = _orders(count)
    return sum(orders[ascending:]) / sum(orders)


@cache
def _orders(count: int) -> tuple[int, ...]:
    """Returns, for k = 0, 1, …, how many orders of this many values have k ascending pairs."""
    orders = [1]
    for one in range(2, count + 1):
        grown = [0] * (len(orders) + one - 1)
        for pairs, number in enumerate(orders):
            for more in range(one):
                grown[pairs + more] += number
        orders = grown
    return tuple(orders)


def fall(found: Stretch) -> float:
    """Returns the largest fall: from the highest value so far to a later one."""
    return float(np.max(np.maximum.accumulate(found.maxima) - found.minima))


def swings(found: Stretch, least: float) -> int:
    """Returns the number of falls of at least `least`.

    A fall begins at the highest value since the fall that was counted before. A new fall begins
    only after the quantity has risen again by `least`.
    """
    count, top, bottom, falling = 0, float(found.maxima[0]), float(found.minima[0]), False
    for low, high in zip(found.minima, found.maxima, strict=True):
        if falling:
            bottom = min(bottom, float(low))
            if high - bottom >= least:
                falling, top = False, float(high)
        else:
            top = max(top, float(high))
            if top - low >= least:
                count, falling, bottom = count + 1, True, float(low)
    return count
