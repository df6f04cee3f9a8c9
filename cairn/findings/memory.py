"""Findings about memory that nobody uses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cairn import units
from cairn.estimates import LEVEL, Estimate, remote_share
from cairn.findings.finding import Finding
from cairn.model import Interval
from cairn.profiles import Moment, Profile, Tally

LIVE_RATIO_LEAST = 2.0
"""Held, of what was live at most, as it was set apart."""
BYTES_LEAST = 8 << 20
"""Live bytes of small programs are estimates: docs/findings.md has the two that this was raised for."""
NEAR_THE_PEAK = 0.8
"""Of the most that was resident."""
SLACK_LEAST = 0.20
"""Set apart beyond what was asked for."""


def _held(moment: Moment) -> int:
    """What is held and resident: addresses alone cost nothing. 0: nobody counted what is held."""
    return min(moment.held_bytes or 0, moment.resident_bytes)


def _fattest(profile: Profile) -> Moment | None:
    """When most was held and resident, or just resident where nobody counted what is held."""
    return max(profile.moments, key=lambda moment: (_held(moment), moment.resident_bytes), default=None)


def _slack(tally: Tally) -> float:
    """What is set apart beyond what was asked for, of what was asked for."""
    return tally.usable_bytes / tally.watched_bytes - 1 if tally.watched_bytes else 0.0


def _error_of_live(profile: Profile, live: float) -> float:
    """Standard error of live bytes, of them: so many watched blocks tell, each of which stands for `gap` others.

    Large blocks are watched all; counting them as if they were not makes the error larger than it is.
    """
    calls = int(profile.tally.calls[:, :, :2].sum())
    each = int(profile.tally.asked[:, :, :2].sum()) / calls if calls else 0.0
    told_by = live / (each * max(process.gap for process in profile.processes)) if each else math.inf
    return 1 / math.sqrt(max(1.0, told_by))


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
    near = [moment for moment in profile.moments if moment.resident_bytes >= NEAR_THE_PEAK * peak]
    looked_at = (one for one in near if one.unasked_bytes is not None)
    most = max(looked_at, key=lambda one: one.resident_bytes, default=None)
    if most is None or most.unasked_bytes is None or most.unwritten_bytes is None:
        return None
    unwritten = min(most.unwritten_bytes, most.unasked_bytes)
    in_huge = most.huge_bytes is not None and most.huge_bytes >= unwritten
    return _Unasked(peak, most.unasked_bytes - unwritten, unwritten if in_huge else 0)


def not_reused(profile: Profile) -> Finding | None:
    """Memory that is freed does not serve again. What sizes are rounded up by is another matter."""
    most = _fattest(profile)
    asked = max((moment.live_bytes for moment in profile.moments), default=0)
    live = asked * (1 + _slack(profile.tally))
    if most is None or not live:
        return None
    unasked = _unasked(profile)
    kept = _held(most) - (unasked.written_bytes + unasked.huge_bytes if unasked else 0)
    beyond = kept - live
    surely = live * (1 + 2 * _error_of_live(profile, asked))
    if kept < LIVE_RATIO_LEAST * surely or beyond < BYTES_LEAST:
        return None
    share = beyond / most.resident_bytes
    remote = remote_share(profile.tally)
    by_others = remote is not None and remote.value >= 0.1
    return Finding(
        name="not-reused",
        says="Memory that was freed does not serve again",
        of="memory",
        effect=Estimate(share, Interval(share, share, LEVEL)),
        measured=True,
        evidence=(
            f"{units.size(kept)} held and resident{', of what was ever handed out' if unasked else ''}, where live "
            f"blocks took {units.size(live)} at most: {kept / live:.3g} times as much",
            *([f"{remote.value * 100:.3g} % of the frees were by another thread"] if by_others and remote else []),
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
        effect=_at_most(unasked.huge_bytes / unasked.of_bytes),
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
        effect=_at_most(unasked.written_bytes / unasked.of_bytes),
        measured=False,
        evidence=(
            f"{units.size(unasked.written_bytes)} are resident and written to, among blocks, that never held one",
        ),
        advice="take an allocator that keeps less beside the blocks and writes to memory later",
    )


def _at_most(share: float) -> Estimate:
    """What is gained is less where the memory would be touched later all the same: by a half, where it was tried."""
    return Estimate(share, Interval(share / 2, share, LEVEL))


def sizes_too_coarse(profile: Profile) -> Finding | None:
    """Blocks are much larger than what was asked for."""
    tally, most = profile.tally, _fattest(profile)
    slack = _slack(tally)
    if most is None or not most.resident_bytes:
        return None
    live = max(moment.live_bytes for moment in profile.moments)
    wasted = live * slack
    if slack < SLACK_LEAST or wasted < BYTES_LEAST:
        return None
    share = min(1.0, wasted / most.resident_bytes)
    return Finding(
        name="sizes-too-coarse",
        says="Blocks are much larger than what the program asks for",
        of="memory",
        effect=Estimate(share, Interval(share, share, LEVEL)),
        measured=True,
        evidence=(f"{slack * 100:.3g} % more is set apart than asked for, {units.size(wasted)} of what is live",),
        advice="take an allocator with finer size classes, or ask for sizes that fit its classes",
    )
