"""The gap between two contenders in simulated misses. All functions are pure.

A simulation counts the misses of caches and of the TLB in the program's own code. How long a miss
takes depends on the code around it, and on what other processors do. So there are three times:

    least     nothing waits for a load, and the processor does several misses at once
    waiting   each load waits for the one before, as in a list
    most      the same, while other processors leave nothing of the last cache

A processor seldom waits for a store, so stores count with the least time in all three. All times
were measured on the machine of the run. The estimate is the geometric mean of the time with waiting
loads and the most. Of the ways to choose it, this was right most often: within a factor of three in
11 of 12 measured pairs. In 9 of them the real time was between the least and the most
(docs/decisions/0050-callgrind-simulates-the-misses.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from cairn.model import Interval
from cairn.profile.estimates import Estimate
from cairn.simulated_misses import CacheLevel, SimulatedMisses

EXPLAINS_LEAST = 0.5
"""Misses are no reason for a difference if they take less than this share of it, even if each load
waits for the one before and others leave nothing of the last cache."""
BEARS_OUT_LEAST = 1 / 3
"""Misses are the reason for a difference if the estimate is at least this share of it."""


class MissCount(Struct, frozen=True):
    """The loads and stores of one contender that miss one cache or TLB.

    Misses of a TLB count only for memory that does not lie in huge pages.
    """

    reads: float
    writes: float

    @property
    def both(self) -> float:
        """All misses."""
        return self.reads + self.writes

    def ns(self, read_ns: float, write_ns: float) -> float:
        """The time of all misses, if each load and each store takes this long."""
        return self.reads * read_ns + self.writes * write_ns


class LevelGap(Struct, frozen=True):
    """The misses of one cache or TLB under both contenders."""

    level: CacheLevel
    own: MissCount
    """The misses under the contender."""
    other: MissCount
    """The misses under the other contender."""
    most_own: MissCount
    """The misses under the contender if other processors leave nothing of this cache. For a cache
    that is not shared, they are those of `own`."""
    most_other: MissCount

    @property
    def least_ns(self) -> float:
        """The least time that the contender's misses take longer; negative if they take less."""
        least = self.level.overlapping_ns
        return self.own.ns(least, least) - self.other.ns(least, least)

    @property
    def waiting_ns(self) -> float:
        """The same time with loads that wait."""
        times = self.level.waiting_ns, self.level.overlapping_ns
        return self.own.ns(*times) - self.other.ns(*times)

    @property
    def most_ns(self) -> float:
        """The same time while others leave nothing of the last cache."""
        times = self.level.most_ns, self.level.overlapping_ns
        return self.most_own.ns(*times) - self.most_other.ns(*times)

    @property
    def time(self) -> Estimate:
        """The time that the contender's misses take longer; negative if they take less time."""
        return _estimate(self.least_ns, self.waiting_ns, self.most_ns)


class SimulatedGap(Struct, frozen=True):
    """The difference in the time of misses, and its share of the difference in CPU time."""

    levels: tuple[LevelGap, ...]
    of_ns: float | None
    """The difference in the CPU time of the program's own code; None if it is not shown."""

    @property
    def time(self) -> Estimate:
        """The time that the contender's misses take longer; negative if they take less time."""
        return _estimate(
            sum(one.least_ns for one in self.levels),
            sum(one.waiting_ns for one in self.levels),
            sum(one.most_ns for one in self.levels),
        )

    @property
    def share(self) -> Estimate | None:
        """The time of the misses as a share of `of_ns`; None if `of_ns` is None.

        A share below 0 says that the misses speak against the difference.
        """
        if not self.of_ns:
            return None
        time = self.time
        ends = sorted(end / self.of_ns for end in (time.interval.low, time.interval.high))
        return Estimate(time.value / self.of_ns, Interval(ends[0], ends[1], 0.95))

    @property
    def can_explain(self) -> bool:
        """Whether the misses may be the reason for most of the difference."""
        share = self.share
        return share is not None and share.interval.high >= EXPLAINS_LEAST

    @property
    def bears_out(self) -> bool:
        """Whether the misses are a reason for a large part of the difference."""
        share = self.share
        return share is not None and share.value >= BEARS_OUT_LEAST


def between(
    levels: Sequence[CacheLevel],
    own: SimulatedMisses,
    other: SimulatedMisses,
    huge: tuple[float, float],
    of_ns: float | None,
) -> SimulatedGap:
    """The gap between two contenders.

    huge: the share of each contender's memory that lies in huge pages. A huge page takes one entry
        of the TLB, so misses of pages of 4 KiB within it are left out.
    of_ns: as in `SimulatedGap`.
    """
    found: list[LevelGap] = []
    for place, level in enumerate(levels):
        counts = tuple(_count(level, place, *one) for one in zip((own, other), huge, strict=True))
        most = counts
        if level.is_shared and found:
            # Every access that misses the level before would then miss this one, too.
            most = (found[-1].own, found[-1].other)
        found.append(LevelGap(level, *counts, *most))
    return SimulatedGap(tuple(found), of_ns)


def _count(level: CacheLevel, place: int, misses: SimulatedMisses, huge: float) -> MissCount:
    small = 1 - huge if level.name.endswith("TLB") else 1.0
    return MissCount(misses.reads[place] * small, misses.writes[place] * small)


def _estimate(least: float, waiting: float, most: float) -> Estimate:
    """The geometric mean of `waiting` and `most`, and the range of all three numbers.

    If the signs of `waiting` and `most` differ, it is their arithmetic mean.
    """
    ends = (least, waiting, most)
    value = (waiting + most) / 2
    if waiting * most > 0:
        value = math.copysign(math.sqrt(waiting * most), most)
    return Estimate(value, Interval(min(ends), max(ends), 0.95))
