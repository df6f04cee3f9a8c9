"""Findings about memory that nobody uses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cairn import units
from cairn.model import Finding, Interval
from cairn.profile.estimates import LEVEL, octaves, remote_share
from cairn.profile.tally import SIZE_BUCKETS, Moment, Profile, Tally

LIVE_RATIO_LEAST = 2.0
"""Held, of what was live at most, as it was set apart."""
BYTES_LEAST = 8 << 20
"""Live bytes of small programs are estimates: docs/findings.md has the two that this was raised for."""
WATCHED_MOST = 8192
"""Blocks that the probe has room for."""
MEDIUM_MAX = 32768
"""Bytes: larger blocks are watched all."""
NEAR_THE_PEAK = 0.8
"""Of the most that was resident."""
SLACK_LEAST = 0.20
"""Set apart beyond what was asked for."""


def _near_the_peak(profile: Profile) -> list[Moment]:
    """When nearly as much was resident as ever."""
    peak = max((moment.resident_bytes for moment in profile.moments), default=0)
    return [moment for moment in profile.moments if moment.resident_bytes >= NEAR_THE_PEAK * peak]


def _error_of_live(profile: Profile, live: float) -> float:
    """Standard error of live bytes, of them.

    So many watched blocks tell, each of which stands for `gap` others, or for more where there is no room for all.
    Blocks that differ in size tell less than as many equal ones. Large blocks are watched all; counting them as if they
    were not makes the error larger than it is.
    """
    tally = profile.tally
    calls = int(tally.calls[:, :, :2].sum())
    each = int(tally.asked[:, :, :2].sum()) / calls if calls else 0.0
    if not each:
        return 0.0
    told_by = live / (each * max(process.gap for process in profile.processes))
    return math.sqrt(_unevenness(tally) / max(1.0, min(told_by, WATCHED_MOST)))


def _unevenness(tally: Tally) -> float:
    """The mean square of small and medium sizes over the square of their mean; 1 where all are equal."""
    ends = octaves(SIZE_BUCKETS, 4)
    middles = (ends[:-1] + ends[1:]) / 2
    weights = np.where(ends[:-1] < MEDIUM_MAX, tally.sizes, 0.0)
    mean = float((weights * middles).sum())
    return float(weights.sum() * (weights * middles**2).sum()) / mean**2 if mean else 1.0


@dataclass(frozen=True, slots=True)
class _Unasked:
    """Resident memory of the allocator's that no block was ever on, among blocks, when most was resident."""

    of_bytes: int
    """Resident then."""
    written_bytes: int
    huge_bytes: int
    """That were never written either, and lie in huge pages."""


def _unasked(profile: Profile) -> _Unasked | None:
    """None: nobody looked near the peak. What is fresh early in a program's life is used later."""
    peak = max((moment.resident_bytes for moment in profile.moments), default=0)
    looked_at = (one for one in _near_the_peak(profile) if one.unasked_bytes is not None)
    most = max(looked_at, key=lambda one: one.resident_bytes, default=None)
    if not peak or most is None or most.unasked_bytes is None or most.unwritten_bytes is None:
        return None
    unwritten = min(most.unwritten_bytes, most.unasked_bytes)
    in_huge = most.huge_bytes is not None and most.huge_bytes >= unwritten
    return _Unasked(peak, most.unasked_bytes - unwritten, unwritten if in_huge else 0)


def _kept(moment: Moment) -> int:
    """Of the allocator's, resident, and handed out to somebody, ever; 0: nobody looked."""
    return max(0, (moment.own_bytes or 0) - (moment.unasked_bytes or 0))


def not_reused(profile: Profile) -> Finding | None:
    """Memory that is freed does not serve again. What sizes are rounded up by is another matter.

    Nothing where nobody looked: of what is resident, much may be the program's own.
    """
    most = max(profile.moments, key=_kept, default=None)
    asked = max((moment.live_bytes for moment in profile.moments), default=0)
    live = max(
        (moment.live_usable_bytes or moment.live_bytes for moment in profile.moments), default=0
    )
    if most is None or not live or not most.resident_bytes:
        return None
    kept = _kept(most)
    beyond = kept - live
    surely = live * (1 + 2 * _error_of_live(profile, asked))
    if kept < LIVE_RATIO_LEAST * surely or beyond < BYTES_LEAST:
        return None
    share = min(1.0, beyond / most.resident_bytes)
    remote = remote_share(profile.tally)
    by_others = remote is not None and remote.value >= 0.1
    return Finding(
        name="not-reused",
        says="Memory that was freed does not serve again",
        of="memory",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(
            f"{units.size(kept)} of the allocator's are resident and were handed out once, where live blocks took "
            f"{units.size(live)} at most: {kept / live:.3g} times as much",
            *(
                [f"{remote.value * 100:.3g} % of the frees were by another thread"]
                if by_others and remote
                else []
            ),
        ),
        advice="take an allocator that gives back what other threads free, or free where it was allocated"
        if by_others
        else "free what lives together together, or take an allocator that gives partly used memory other sizes",
    )


def huge_page_bloat(profile: Profile) -> Finding | None:
    """Parts of huge pages are resident that nobody was given, and nobody wrote to."""
    unasked = _unasked(profile)
    if unasked is None or unasked.huge_bytes < BYTES_LEAST:
        return None
    return Finding(
        name="huge-page-bloat",
        says="Huge pages hold memory that nobody asked for",
        of="memory",
        effect=unasked.huge_bytes / unasked.of_bytes,
        interval=_at_most(unasked.huge_bytes / unasked.of_bytes),
        measured=False,
        evidence=(
            f"{units.size(unasked.huge_bytes)} are resident, among blocks, that never held one and read as zero",
        ),
        advice="turn the allocator's huge pages off (its option, or /sys/kernel/mm/transparent_hugepage/enabled)",
    )


def touches_more_than_it_gives(profile: Profile) -> Finding | None:
    """The allocator writes to memory that no block was ever on."""
    unasked = _unasked(profile)
    if unasked is None or unasked.written_bytes < BYTES_LEAST:
        return None
    return Finding(
        name="touches-more-than-it-gives",
        says="The allocator writes to memory that it hands out to nobody",
        of="memory",
        effect=unasked.written_bytes / unasked.of_bytes,
        interval=_at_most(unasked.written_bytes / unasked.of_bytes),
        measured=False,
        evidence=(
            f"{units.size(unasked.written_bytes)} are resident and written to, among blocks, that never held one",
        ),
        advice="take an allocator that keeps less beside the blocks and writes to memory later",
    )


def _at_most(share: float) -> Interval:
    """From half of the share: memory that would be touched later anyway is not saved. Half was measured once."""
    return Interval(share / 2, share, LEVEL)


def sizes_too_coarse(profile: Profile) -> Finding | None:
    """Blocks are much larger than what was asked for: those that are live when most is resident."""
    most = max(
        profile.moments, key=lambda moment: (moment.resident_bytes, moment.live_bytes), default=None
    )
    wasted = most.slack_bytes if most is not None else None
    if most is None or not wasted or not most.resident_bytes:
        return None
    slack = wasted / most.live_bytes if most.live_bytes else math.inf
    if slack < SLACK_LEAST or wasted < BYTES_LEAST:
        return None
    share, off = wasted / most.resident_bytes, 2 * _error_of_live(profile, most.live_bytes)
    ends = Interval(max(0.0, min(1.0, share * (1 - off))), min(1.0, share * (1 + off)), LEVEL)
    return Finding(
        name="sizes-too-coarse",
        says="Blocks are much larger than what the program asks for",
        of="memory",
        effect=min(1.0, share),
        interval=ends,
        measured=True,
        evidence=(
            f"{units.size(wasted)} are set apart beyond the {units.size(most.live_bytes)} that live blocks asked for",
        ),
        advice="take an allocator with finer size classes, or ask for sizes that fit its classes",
    )
