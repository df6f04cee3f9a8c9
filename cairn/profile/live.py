"""The highest number of bytes that were live at once in a process, with the error of this number.

The probe either counts live bytes or estimates them (src/probe/live.h). Counted bytes are usable
bytes, with an error that has a bound. The requested bytes follow from them and from the estimated
share of usable bytes that was requested. All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

from cairn.profile.tally import Peak

_MISS = 0.05
"""The probability that an interval misses the true value."""
_LOOKS_MOST = 10**12
"""A larger number of estimates is an error of the file."""
_BOUNDS = 2.0
"""Standard errors in half an interval of 95 %."""


def counted_usable(peak: int, granted: int) -> Peak:
    """The peak of usable bytes that the probe counted. The threads held back at most `granted`."""
    return Peak(peak, max(0, peak - granted), peak + granted)


def counted_requested(usable: Peak, noted_usable: int, noted: int, noted_error: int) -> Peak:
    """The peak of requested bytes, of the peak of usable bytes.

    When `noted_usable` bytes were live, `noted` of them were requested, with a standard error of
    `noted_error`. This was close to the peak, and the same share is assumed there.
    """
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

    `looked` has some of these estimates with their standard errors, among them the highest one. The
    highest of many estimates is too high by chance. So each estimate gets an interval that is wide
    enough for all of them to hold at once with a probability of 95 %. The true peak is then at
    least the highest lower end, and at most the highest upper end. The result is the mean over the
    estimates above the highest lower end.

    `each` is the number of bytes that one watched block stands for on average, and `most` is the
    number of bytes that were requested in total.
    """
    away = NormalDist().inv_cdf(1 - _MISS / 2 / min(max(1, looks), _LOOKS_MOST))
    ends = [_ends(live, error, each, away) for live, error in looked]
    low = min(most, max(one for one, _ in ends))
    high = max(low, min(most, max(one for _, one in ends)))
    near = [live for live, _ in looked if live >= low]
    return Peak(min(max(round(fmean(near)), low), high) if near else low, low, high)


def _ends(live: int, error: int, each: float, away: float) -> tuple[int, int]:
    """The interval of an estimate, `away` standard errors wide on each side.

    The number of watched blocks has a Poisson distribution, so its error is not symmetric if there
    are few. Wilson and Hilferty's approximation of the gamma distribution takes this into account.
    """
    if live and not error:
        return live, live
    blocks = live**2 / error**2 if live else 0.0
    unit = live / blocks if live else each
    low = blocks * (1 - 1 / (9 * blocks) - away / (3 * math.sqrt(blocks))) ** 3 if blocks else 0.0
    above = blocks + 1
    high = above * (1 - 1 / (9 * above) + away / (3 * math.sqrt(above))) ** 3
    return max(0, math.floor(low * unit)), math.ceil(high * unit)
