"""The rules that give the memory of one run over time its verdict.

docs/soak.md has these rules and their thresholds in words. The part of the run before SETTLED is
not judged, because a program fills its caches at first. Every rule prefers "not known yet" to a
wrong verdict.
"""

from __future__ import annotations

import itertools
import math
from enum import Enum
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from cairn.memory import Series, Trim
from cairn.soak import trend
from cairn.soak.trend import Envelope, Growth, Stretch

KIB, MIB = 1 << 10, 1 << 20

SETTLED = (0.25, 0.5)
"""Memory is judged from the end of the first share of the run on. If that gives no answer, it is
judged from the end of the second share on: between the two, the program may have loaded data and
dropped it again."""
READINGS_LEAST = 24
"""In a run with fewer readings of the memory, nothing is concluded."""
SECONDS_LEAST = 4.0
"""In a shorter run, nothing is concluded."""
CYCLES_LEAST = 5
"""If memory swings by more than it grows, at least this many swings must be seen."""
BLOCKS_MOST = 8
CHANCE_MOST = 0.01
"""For a leak: the largest probability that blocks in a random order rise as steadily."""
STEADY = 0.8
"""A leak grows in the second half of the time at least this many times as much as in the first. A
program that still fills its memory grows more and more slowly."""
RISE_LEAST, SLOW_LEAST = 16 * KIB, 4 * KIB
"""The least growth of a leak over all blocks. If it is less, but at least SLOW_LEAST, and as steady
as that of a leak, nothing is known yet."""
LEVEL_BYTES, LEVEL_SHARE, LEVEL_SWING = 32 * KIB, 0.015, 0.1
"""The limits of growth that still counts as level: LEVEL_BYTES, LEVEL_SHARE of live memory, and
LEVEL_SWING of the largest fall of live memory. The largest of the three applies."""
SWING, SWING_COUNTS = 0.2, 0.33
"""Memory swings if its largest fall is more than SWING times its rise. A fall then counts as a
swing if it is at least SWING_COUNTS times the largest fall."""
SPARE_SHARE, SPARE_BYTES = 0.5, 4 * MIB
"""Spare memory is the memory that the allocator holds beyond live memory. It is too much if it is
at least SPARE_BYTES and at least SPARE_SHARE of live memory."""
SPARE_RISE_BYTES, SPARE_RISE_SHARE = MIB, 0.1
"""Spare memory grows if it rises by at least SPARE_RISE_BYTES and by at least SPARE_RISE_SHARE of
live memory."""
RETURNED = 0.5
"""Spare memory is idle if the allocator returns at least this share of it when it is asked to."""
FELL = 1.5
"""Live memory fell if it once was at least this many times its maximum in the last half of the
run."""


class Kind(Enum):
    """The verdict on memory over time."""

    LEAK = "leak"
    FRAGMENTATION = "fragmentation"
    RETENTION = "retention"
    STABLE = "stable"
    UNKNOWN = "not known yet"


class Reason(Enum):
    """Why nothing is known yet, as a clause."""

    SHORT = "the run is too short"
    ENDED = "the program ended by itself too early"
    RESTS = "the program allocated nothing in the last half of the run"
    READINGS = "the program allocates too rarely to show its memory over time"
    CYCLES = "memory rises and falls too slowly for a run of this length"
    WARMING = "memory still grows, but more and more slowly"
    SLOW = "memory grows steadily, but by too little in a run of this length"
    NOISE = "memory varies too much for a run of this length"
    UNTRIMMED = "the allocator could not be asked to give memory back"
    BETWEEN = (
        "only a part of the memory beyond the live blocks came back when the allocator was asked"
    )
    ROUNDS = "the rounds contradict each other"


class JudgedRun(Struct, frozen=True):
    """One run with its verdict and the numbers behind it."""

    kind: Kind
    seconds: float
    """The length of the run."""
    live: float
    """The median of live memory in the last half of the run."""
    held: float
    """The median of held memory in the last half of the run."""
    resident: float
    """The median of resident memory in the last half of the run."""
    live_most: float
    """The most live memory in the last half of the run."""
    spare: float
    """Held memory beyond `live_most`; not below 0."""
    spare_rise: float
    """How much spare memory rises from the first to the last of BLOCKS_MOST parts of the time that
    is judged, if it rises steadily; else 0."""
    live_peak: float
    """The most live memory of the whole run."""
    growth: Growth | None
    """Growth of live memory: that of `growth_of`. None if there were too few swings or readings."""
    held_growth: Growth | None
    """Growth of held memory; None if there were too few readings."""
    growth_most: float | None = None
    """The most that live memory may grow by, in bytes per second. It is the smaller upper end of
    two intervals, those of the lower edge and of the mean, and decides whether a run is stable.
    None if `growth` is None."""
    growth_of: Literal["lower edge", "mean"] = "lower edge"
    """Whose growth `growth` is. It is that of the lower edge, except for a stable run whose mean
    has the smaller upper end."""
    trim: Trim | None = None
    returned: float | None = None
    """The share of the spare memory that the allocator returned when it was asked to. None if it
    was not asked, or if it then held at most 1 MiB of spare memory."""
    also: Kind | None = None
    """With LEAK: a second verdict, on the spare memory."""
    reason: Reason | None = None
    """Why nothing is known; given only for UNKNOWN."""
    needed_s: float | None = None
    """The length of a run that would probably be long enough. Given only for UNKNOWN, if the length
    is known."""


class _Live(Struct, frozen=True):
    """The answer about live memory: a leak, level (STABLE), or not known."""

    kind: Kind
    envelope: Envelope | None = None
    reason: Reason | None = None
    needed_s: float | None = None
    mean: Growth | None = None
    """The growth of the mean; None if `envelope` is None."""


def judge(series: Series) -> JudgedRun:
    """Returns the verdict on one run."""
    found = _judged(series)
    if found.kind is not Kind.UNKNOWN:
        return found
    if series.ended_early:
        early = found.reason in (Reason.SHORT, Reason.READINGS)
        reason = Reason.ENDED if early else found.reason
    elif _rests(series):
        reason = Reason.RESTS
    else:
        return found
    # For these reasons, a longer run (--for) would not help, so it is not recommended.
    return replace(found, reason=reason, needed_s=None)


def _rests(series: Series) -> bool:
    """Whether the program allocated nothing in the last half of the run.

    The last of the moments is the end of the run, and the one before it that of the last allocation
    or free that was recorded.
    """
    at = series.at_ms
    return len(at) > 1 and at[-2] - at[0] < (at[-1] - at[0]) / 2


def _judged(series: Series) -> JudgedRun:
    at_s = [one / 1000 for one in series.at_ms]
    end = at_s[-1] if at_s else 0.0
    seconds = end - (at_s[0] if at_s else 0.0)
    if len(at_s) < READINGS_LEAST or seconds < SECONDS_LEAST:
        return _too_little(series, seconds)

    def stretch(values: tuple[int, ...], share: float) -> Stretch:
        return trend.part(at_s, values, at_s[0] + share * seconds, end)

    peak = float(max(series.live_peak, *series.live))
    parts = [stretch(series.live, share) for share in (0.0, *SETTLED)]
    live = _live(parts[0], parts[1:], seconds)
    late = [stretch(one, SETTLED[-1]) for one in (series.live, series.held, series.resident)]
    most = float(late[0].maxima.max())
    middle, held, resident = (float(np.median(one.means)) for one in late)
    spare = max(0.0, held - most)
    growing = stretch(series.held, SETTLED[0])
    rise = _rise(parts[1], growing, most)
    beyond, reason, returned = _beyond(series.trim, most, spare, rise, fell=peak >= FELL * most)
    kind, why, needed, also = live.kind, live.reason, live.needed_s, None
    edge = live.envelope.growth if live.envelope is not None else None
    bound = min((one for one in (edge, live.mean) if one is not None), key=_high, default=None)
    if kind is Kind.LEAK:
        also = beyond if beyond in (Kind.FRAGMENTATION, Kind.RETENTION) else None
    elif beyond in (Kind.FRAGMENTATION, Kind.RETENTION):
        kind, why, needed = beyond, None, None
    elif beyond is Kind.UNKNOWN and kind is Kind.STABLE:
        kind, why, needed = beyond, reason, 2 * seconds if reason is Reason.BETWEEN else None
    deciding = bound if kind is Kind.STABLE else edge
    return JudgedRun(
        kind=kind, seconds=seconds, live=middle, held=held, resident=resident, live_most=most,
        spare=spare, spare_rise=rise, live_peak=peak, growth=deciding,
        held_growth=trend.growth(growing),
        growth_most=bound.high if bound is not None else None,
        growth_of="lower edge" if deciding is edge else "mean", trim=series.trim,
        returned=returned, also=also, reason=why, needed_s=needed,
    )  # fmt: skip


def _high(growth: Growth) -> float:
    return growth.high


def _too_little(series: Series, seconds: float) -> JudgedRun:
    reason = Reason.SHORT if seconds < SECONDS_LEAST else Reason.READINGS
    live, held, resident = (
        float(one[-1]) if one else 0.0 for one in (series.live, series.held, series.resident)
    )
    more = max(2.0, 1.5 * READINGS_LEAST / max(1, len(series.at_ms)))
    return JudgedRun(
        kind=Kind.UNKNOWN, seconds=seconds, live=live, held=held, resident=resident,
        live_most=live, spare=max(0.0, held - live), spare_rise=0.0,
        live_peak=float(max((series.live_peak, *series.live))), growth=None, held_growth=None,
        trim=series.trim, reason=reason, needed_s=max(30.0, more * seconds),
    )  # fmt: skip


def _live(whole: Stretch, parts: list[Stretch], seconds: float) -> _Live:
    """Returns whether live memory grows.

    Live memory is judged from the first share of SETTLED on. If that gives no answer, it is judged
    from the second share on. This shorter time can show that a program has become stable. It shows
    a leak only if the longer time had too few swings, because in a short time even a slow warm-up
    seems to grow steadily.
    """
    first = _of_part(whole, parts[0], seconds)
    if first.kind is not Kind.UNKNOWN:
        return first
    second = _of_part(whole, parts[1], seconds)
    if first.reason is Reason.CYCLES and second.kind is not Kind.UNKNOWN:
        return second
    return second if second.kind is Kind.STABLE else first


def _of_part(whole: Stretch, found: Stretch, seconds: float) -> _Live:
    if found.readings < READINGS_LEAST // 2:
        return _Live(Kind.UNKNOWN, None, Reason.READINGS, 2 * seconds)
    edge = trend.envelope(found, BLOCKS_MOST)
    fall = trend.fall(found)
    level = max(LEVEL_BYTES, LEVEL_SHARE * float(np.median(found.means)), LEVEL_SWING * fall)
    if fall > max(SWING * edge.rise, RISE_LEAST):
        count = trend.swings(found, fall * SWING_COUNTS)
        if count >= CYCLES_LEAST:
            edge = trend.envelope(found, min(BLOCKS_MOST, count))
        elif fall > max(edge.rise, level):
            needed = seconds * 1.5 * CYCLES_LEAST / max(count, 0.75)
            return _Live(Kind.UNKNOWN, None, Reason.CYCLES, needed)
    mean = trend.growth(found)
    answer = _named(edge, mean, level, seconds)
    answer = replace(answer, mean=mean)
    before = trend.fall(whole)
    if answer.kind is Kind.LEAK and max(edge.rise / 3, 1.5 * fall) <= before <= 5 * edge.rise:
        # Memory fell by a similar amount before, so this rise may only begin another cycle.
        needed = seconds * 1.5 * CYCLES_LEAST
        return replace(answer, kind=Kind.UNKNOWN, reason=Reason.CYCLES, needed_s=needed)
    return answer


def _named(edge: Envelope, mean: Growth, level: float, seconds: float) -> _Live:
    """Returns the answer for a lower edge. Growth of less than `level` counts as none.

    mean: the growth of the mean. A leak raises the mean as well as the lower edge.
    """
    span = edge.block_s * (len(edge.least) - 1)
    grows = edge.ordered <= CHANCE_MOST and edge.surely.low > 0 and edge.later >= STEADY
    if grows and edge.rise >= RISE_LEAST:
        return _Live(Kind.LEAK, edge)
    if grows and edge.rise >= SLOW_LEAST:
        return _Live(Kind.UNKNOWN, edge, Reason.SLOW, 1.5 * seconds * RISE_LEAST / edge.rise)
    most = min(edge.growth.high, mean.high) * span
    slower = edge.later < STEADY / 2
    if edge.ordered <= CHANCE_MOST and edge.rise >= RISE_LEAST and not (slower and most <= level):
        return _Live(Kind.UNKNOWN, edge, Reason.WARMING, _settles(edge, seconds))
    doubtful = edge.ordered <= 0.05 and edge.rise >= RISE_LEAST and not slower
    if most <= level and not doubtful:
        return _Live(Kind.STABLE, edge)
    # The interval of the slope shrinks with the power 3/2 of the time, and that of the rise with
    # its square root.
    times = [(most / level) ** 2]
    if edge.growth.per_s > 0:
        times.append(((edge.growth.high - edge.growth.per_s) / edge.growth.per_s) ** (2 / 3))
    return _Live(Kind.UNKNOWN, edge, Reason.NOISE, seconds * min(1000.0, max(2.0, min(times))))


def _settles(edge: Envelope, seconds: float) -> float:
    """The length of a run in which a program probably finishes its warm-up.

    The growth is assumed to decay exponentially: from the middle of the first half to the middle of
    the second, it falls to the share `later`. After four time constants, 98 % of the rise is over.
    """
    if not 0 < edge.later < STEADY:
        return 4 * seconds
    constant = edge.block_s * len(edge.least) / 2 / -math.log(edge.later)
    return max(2 * seconds, 1.5 * seconds + 4 * constant)


def is_much(spare: float, most: float) -> bool:
    """Whether spare memory is too much beside the most live memory of the last half."""
    return spare >= max(SPARE_SHARE * most, SPARE_BYTES)


def _beyond(
    trim: Trim | None, most: float, spare: float, rise: float, *, fell: bool
) -> tuple[Kind, Reason | None, float | None]:
    """Returns the verdict on the memory that is held beyond the live blocks.

    most: the most live memory of the last half.
    rise: the number of bytes by which the spare memory rises steadily; 0 if it does not.
    fell: whether live memory was FELL times as much before the last half.

    The third value is the share of this memory that a trim returned.
    """
    returned = None
    if trim is not None and trim.held_bytes - trim.live_bytes > MIB:
        back = trim.held_bytes - trim.after_bytes
        returned = min(1.0, max(0.0, back / (trim.held_bytes - trim.live_bytes)))
    much, rises = is_much(spare, most), rise > 0
    if not much and not rises:
        return Kind.STABLE, None, returned
    if trim is None:
        return Kind.UNKNOWN, Reason.UNTRIMMED, None
    if returned is not None and returned >= RETURNED:
        # If live memory never was large enough to fill the spare memory, and the spare memory does
        # not grow, it is a reserve of the allocator, which is not counted as retention.
        return Kind.RETENTION if fell or rises else Kind.STABLE, None, returned
    left = trim.after_bytes - trim.live_bytes
    if left >= SPARE_SHARE * trim.live_bytes or (rises and not much):
        return Kind.FRAGMENTATION, None, returned
    return Kind.UNKNOWN, Reason.BETWEEN, returned


def _rise(live: Stretch, held: Stretch, most: float) -> float:
    """Returns by how many bytes the spare memory rises, if it does so steadily; else 0.

    In each block of time, the spare memory is the held memory minus the most live memory of this
    block and the two before it. So memory that waits for the program's next cycle does not count.
    """
    edges = np.linspace(0, trend.BINS, BLOCKS_MOST + 1).astype(int)
    pairs = list(itertools.pairwise(edges))
    tops = [float(live.maxima[a:b].max()) for a, b in pairs]
    held_by = [float(np.median(held.means[a:b])) for a, b in pairs]
    spare = np.array(
        [max(0.0, one - max(tops[max(0, k - 2) : k + 1])) for k, one in enumerate(held_by)]
    )
    edge = trend.over_blocks(spare, live.seconds / BLOCKS_MOST)
    steady = edge.ordered <= CHANCE_MOST and edge.surely.low > 0 and edge.later >= STEADY
    least = max(SPARE_RISE_BYTES, SPARE_RISE_SHARE * most)
    return edge.rise if steady and edge.rise >= least else 0.0
