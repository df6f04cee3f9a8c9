"""The highest number of bytes that were live at once in a process, with the error of this number.

The probe either counts live bytes or estimates them (src/probe/live.h). It counts usable bytes, and
the error of this count has a known bound. The requested bytes are the usable bytes times an
estimate of the requested share of usable bytes. All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

from cairn.profile.tally import Peak

_MISS = 0.05
"""The probability that an interval misses the true value."""
_LOOKS_MOST = 10**12
"""No process makes more estimates than this. A file that says so is damaged, and the number is
limited to this one."""
_BOUNDS = 2.0
"""Half of an interval of 95 % is as wide as this number of standard errors."""


def counted_usable(peak: int, granted: int) -> Peak:
    """The peak of usable bytes, for a process whose live bytes the probe counted.

    peak: the highest total that the probe saw. Each thread adds its changes to the total late. All
        changes that the threads still hold back are at most `granted` bytes, so the true peak is
        between `peak` - `granted` and `peak` + `granted`.
    """
    return Peak(peak, max(0, peak - granted), peak + granted)


def counted_requested(
    usable: Peak, noted_usable: int, noted: int, noted_error: int, most: int
) -> Peak:
    """The peak of requested bytes, computed from the peak `usable` of usable bytes.

    Shortly before the peak, `noted_usable` bytes were live. About `noted` of them were requested,
    with a standard error of `noted_error`. The requested share at the peak is taken to be the same.

    most: the number of bytes that were requested in total, which the peak cannot exceed.
    """
    found = _at_share(usable, noted_usable, noted, noted_error)
    return Peak(min(most, found.bytes), min(most, found.low), min(most, found.high))


def _at_share(usable: Peak, noted_usable: int, noted: int, noted_error: int) -> Peak:
    if not noted_usable:
        return Peak(0, 0, usable.high)
    share, error = noted / noted_usable, _BOUNDS * noted_error / noted_usable
    return Peak(
        round(usable.bytes * share),
        max(0, round(usable.low * (share - error))),
        min(usable.high, round(usable.high * (share + error))),
    )


def estimated(looked: Sequence[tuple[int, int]], looks: int, each: float, most: int) -> Peak:
    """The peak of live bytes that were estimated `looks` times.

    The highest of many estimates is too high by chance. So each estimate gets an interval, and the
    intervals are so wide that all of them are right with a probability of 95 %. Then the true peak
    is at least the highest lower end, and at most the highest upper end. The result is the mean of
    the estimates above the highest lower end.

    looked: (estimate, standard error) of some of the estimates, the highest one among them.
    each: the number of bytes that a sampled block stands for on average.
    most: the number of bytes that were requested in total, which the peak cannot exceed.
    """
    away = NormalDist().inv_cdf(1 - _MISS / 2 / min(max(1, looks), _LOOKS_MOST))
    ends = [_ends(live, error, each, away) for live, error in looked]
    low = min(most, max(one for one, _ in ends))
    high = max(low, min(most, max(one for _, one in ends)))
    near = [live for live, _ in looked if live >= low]
    return Peak(min(max(round(fmean(near)), low), high) if near else low, low, high)


def _ends(live: int, error: int, each: float, away: float) -> tuple[int, int]:
    """The interval of an estimate, about `away` standard errors wide on each side.

    The estimate comes from the number of sampled blocks, which has a Poisson distribution. If the
    number is small, its interval is not symmetric. The ends are those of a gamma distribution, by
    Wilson and Hilferty's approximation.
    """
    if live and not error:
        return live, live
    blocks = live**2 / error**2 if live else 0.0
    unit = live / blocks if live else each
    low = blocks * (1 - 1 / (9 * blocks) - away / (3 * math.sqrt(blocks))) ** 3 if blocks else 0.0
    above = blocks + 1
    high = above * (1 - 1 / (9 * above) + away / (3 * math.sqrt(above))) ** 3
    return max(0, math.floor(low * unit)), math.ceil(high * unit)
