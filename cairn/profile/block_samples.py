"""The sizes, the usable bytes and the life times of blocks, from the sampled ones.

One small or medium block in `Process.gap` is sampled on average, and every large one. A number from
a sample has an interval, which comes from the number of sampled blocks. Large blocks add no error.
With fewer than SAMPLED_LEAST sampled blocks, the number is not known. All functions are pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cairn.model import Interval
from cairn.profile.estimates import (
    LEVEL,
    REMOTE,
    Estimate,
    Z,
    are_local,
    clock,
    octaves,
    sampled_share,
)
from cairn.profile.tally import (
    GROUPS,
    KINDS,
    LIFE_BUCKETS,
    PATHS,
    SIZE_BUCKETS,
    WHOSE,
    Profile,
    Tally,
)

if TYPE_CHECKING:
    from cairn.profile.tally import Floats

SAMPLED_LEAST = 30
"""With fewer sampled blocks, nothing is concluded from them."""
_SPREAD = 2.0
"""The usable bytes beyond the requested ones are taken to vary between blocks by up to this
multiple of their mean. In simulations with 30 to 1,500 sampled blocks of eight distributions of
sizes, the interval then contained the truth in 95 of 100 cases or more. The allocators rounded
sizes as glibc and jemalloc do, rounded them to powers of two, or added a header. It contained the
truth in 60 of 100 cases if an allocator doubled rare blocks only."""
_LACKING = 0.25
"""The usable bytes beyond the requested ones, as a share of the latter, that blocks may have which
are too rare to be sampled. Allocators with four size classes in each octave, such as jemalloc, have
up to 25 %."""
_FREES = KINDS[-len(WHOSE) :]
_LARGE = GROUPS.index("large")
_LARGE_BYTES = 32 << 10
"""Blocks with more requested bytes are large."""


def sampled(tally: Tally) -> int:
    """The number of small and medium blocks whose allocation was sampled."""
    return sum(_sampled(tally, group, are_freed=False) for group in range(_LARGE))


def freed(tally: Tally, group: int) -> int:
    """The effective number of blocks of a size group whose free was sampled.

    It is the number of copies (`Timed.copies`) divided by `Timed.effect`. A sample of this many
    frees with one copy each would have the same error.
    """
    n, places = _sampled(tally, group, are_freed=True), _places(group, are_freed=True)
    return math.ceil(n / tally.timed.effect(places))


def _sampled(tally: Tally, group: int, *, are_freed: bool) -> int:
    """The number of copies (`Timed.copies`) of the timed operations on blocks of a size group.

    These are the frees, or the allocations. The faults or the events of some of them were counted
    instead of their time. An operation in `Timed.switched` counts once.
    """
    places, timed = _places(group, are_freed=are_freed), tally.timed
    columns = [timed.count, timed.alone, timed.switched]
    if group != _LARGE:
        columns += [timed.fault_operations, timed.event_operations]
    return int(sum(column[places].sum() for column in columns))


def _places(group: int, *, are_freed: bool) -> list[int]:
    return [
        place
        for place, path in enumerate(PATHS)
        if path.group == GROUPS[group] and (path.kind in _FREES) == are_freed
    ]


def has_enough(tally: Tally) -> bool:
    """Whether enough blocks were sampled, or all are large."""
    return sampled(tally) >= SAMPLED_LEAST or not tally.calls[:, :, :_LARGE].any()


def usable_per_asked(profile: Profile) -> Estimate | None:
    """The usable bytes of all allocated blocks, divided by their requested bytes.

    Returns None if it is not known. The excess of the usable bytes is divided by the requested
    bytes of the sampled blocks. The interval also contains the excess divided by the exact number
    of all requested bytes. If the sample has too few or too many of the rare large blocks, one of
    the two is better if an allocator adds the same number of bytes to each block, and the other one
    if it rounds sizes.
    """
    tally = profile.tally
    if not tally.watched_bytes or not has_enough(tally):
        return None
    excess = max(0.0, tally.usable_bytes - tally.watched_bytes)
    value = excess / tally.watched_bytes
    asked = float(tally.asked.sum())
    ends = value, excess / asked if asked else value
    error = min(1.0, Z * _SPREAD * _error_of_bytes(profile))
    # The sample lacks these bytes, because it has too few of the large blocks.
    lacking = max(0.0, 1 - tally.watched_bytes / asked) if asked else 0.0
    low, high = min(ends) * (1 - error), max(ends) * (1 + error) + _LACKING * lacking
    return Estimate(1 + value, Interval(1 + low, 1 + high, LEVEL))


def _error_of_bytes(profile: Profile) -> float:
    """The standard error of the requested bytes of all blocks by the sampled sizes, as a share.

    Each block has an independent chance of 1 in `gap` to be sampled, and a large block is always
    sampled.
    """
    import numpy as np

    tally, edges = profile.tally, octaves(SIZE_BUCKETS, 4)
    middles = (edges[:-1] + edges[1:]) / 2
    gap = max(process.gap for process in profile.processes)
    # Blocks of exactly _LARGE_BYTES share a bucket with large ones.
    weight = np.where(edges[:-1] > _LARGE_BYTES, 1, gap)
    if not tally.calls[:, :, :_LARGE].any():
        return 0.0
    whole = float((tally.sizes * middles).sum())
    squares = float((tally.sizes * (weight - 1) * middles * middles).sum())
    return math.sqrt(squares) / whole if whole else 0.0


def size_below(tally: Tally, q: float) -> Estimate | None:
    """The requested size in bytes that a share `q` of all allocations does not exceed.

    Returns None if it is not known.
    """
    has_error = bool(tally.calls[:, :, :_LARGE].any())
    return _below(
        tally.sizes, q, octaves(SIZE_BUCKETS, 4)[1:], sampled(tally) if has_error else None
    )


def life_below_ns(tally: Tally, group: int, q: float) -> Estimate | None:
    """The life time in ns that a share `q` of the freed blocks in a size group does not exceed.

    Returns None if it is not known.
    """
    import numpy as np

    ticking = clock(tally)
    if ticking is None:
        return None
    ends = np.ldexp(ticking.ns_per_tick, np.arange(1, LIFE_BUCKETS + 1))
    return _below(
        tally.lives[group], q, ends, None if _all_freed(tally, group) else freed(tally, group)
    )


def freed_elsewhere(profile: Profile, group: int) -> Estimate | None:
    """The share of the freed blocks in a size group that another thread allocated.

    Returns None if it is not known.
    """
    tally = profile.tally
    whole, n = float(tally.freed[group]), freed(tally, group)
    if not whole:
        return None
    share = min(1.0, float(tally.freed_elsewhere[group]) / whole)
    if _all_freed(tally, group) or (not share and are_local(profile)):
        return Estimate(share, Interval(share, share, LEVEL))
    if n < SAMPLED_LEAST:
        return None
    places = _places(group, are_freed=True)
    far = [place for place in places if PATHS[place].kind == REMOTE]
    near = [place for place in places if place not in far]
    copies = _sampled(tally, group, are_freed=True)
    return Estimate(share, sampled_share(tally.timed, share, copies, far, near))


def freed_number(tally: Tally, group: int) -> float | None:
    """The number of freed blocks in a size group; None if it is not known."""
    is_enough = _all_freed(tally, group) or freed(tally, group) >= SAMPLED_LEAST
    return float(tally.freed[group]) if is_enough else None


def _all_freed(tally: Tally, group: int) -> bool:
    """Whether each free of a size group was sampled, so that it stands for itself alone."""
    return group == _LARGE and tally.freed[group] <= freed(tally, group)


def _below(weights: Floats, q: float, ends: Floats, n: int | None) -> Estimate | None:
    """The quantile `q` of a histogram; None if it is not known.

    ends: the upper ends of the buckets.
    n: the number of sampled blocks in the histogram. None if it has all blocks, so that the
        quantile has no error. Otherwise the interval reaches over the quantiles that the sample may
        have by chance. If it reaches beyond the sample, the quantile is not known.
    """
    import numpy as np

    sums = np.cumsum(weights)
    if not sums[-1] or (n is not None and n < SAMPLED_LEAST):
        return None
    away = Z * math.sqrt(q * (1 - q) / n) if n is not None else 0.0
    if q + away >= 1:
        return None
    low, value, high = (
        float(ends[min(int(np.searchsorted(sums, at * sums[-1])), len(ends) - 1)])
        for at in (max(0.0, q - away), q, q + away)
    )
    return Estimate(value, Interval(low, high, LEVEL))
