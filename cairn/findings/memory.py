"""Findings about memory that the allocator holds and the program does not use."""

from __future__ import annotations

import math

from msgspec import Struct

from cairn import units
from cairn.findings.kernel import PAGE_BYTES
from cairn.model import Finding, Interval
from cairn.profile.estimates import LEVEL, PLAIN, octaves, remote_share
from cairn.profile.tables import sees_all_calls
from cairn.profile.tally import ALLOCATING, GROUPS, SIZE_BUCKETS, Moment, Profile, Tally

LIVE_RATIO_LEAST = 2.0
"""The threshold of `not_reused`, for the resident memory that was ever handed out. It is a multiple
of the largest number of live usable bytes."""
BYTES_LEAST = 8 << 20
"""The least waste that is reported. Live bytes of small programs are estimates; docs/findings.md
names the two programs for which this threshold was raised."""
WATCHED_MOST = 8192
"""The most blocks that the probe watches at a time."""
MEDIUM_MAX = 32768
"""The largest size of a medium block, in bytes. The probe watches every larger block, as long as
it watches fewer than WATCHED_MOST blocks."""
NEAR_THE_PEAK = 0.8
"""A moment is near the peak if its resident set is at least this share of the largest one."""
SLACK_LEAST = 0.20
"""The threshold of `sizes_too_coarse`, for the usable bytes beyond the requested ones, as far as
they can be resident. It is a share of the requested bytes."""


def _near_the_peak(profile: Profile) -> list[Moment]:
    """The moments with at least NEAR_THE_PEAK of the largest resident set."""
    peak = max((moment.resident_bytes or 0 for moment in profile.moments), default=0)
    return [
        moment for moment in profile.moments if (moment.resident_bytes or 0) >= NEAR_THE_PEAK * peak
    ]


def _error_of_live(profile: Profile, live: float) -> float:
    """Relative standard error of live bytes; 0 if they were counted.

    Live bytes are estimated from the watched blocks. Each watched block stands for `Process.gap`
    blocks, or for more blocks when the probe already watches WATCHED_MOST. Blocks of different
    sizes give a less certain sum than blocks of equal size. All large blocks are watched, but the
    formula treats them like a sample. So the result is an upper bound.
    """
    if profile.largest.live_counted:
        return 0.0
    tally = profile.counts_of_largest
    calls = int(tally.calls[:, :, :2].sum())
    each = int(tally.asked[:, :, :2].sum()) / calls if calls else 0.0
    if not each:
        return 0.0
    told_by = live / (each * profile.largest.gap)
    return math.sqrt(_unevenness(tally) / max(1.0, min(told_by, WATCHED_MOST)))


def _live_most(profile: Profile, live: float, error: float) -> float:
    """The most usable bytes that can have been live at once.

    `live` is the peak, with the relative standard error `error`. The highest upper end of the
    peaks' intervals and two standard errors above `live` are compared, and the larger one counts.
    """
    tally = profile.tally
    rounding = tally.usable_bytes / tally.watched_bytes if tally.watched_bytes else 1.0
    most = live * (1 + 2 * error)
    for process in profile.processes:
        if process.peak_usable is not None:
            most = max(most, process.peak_usable.high)
        elif process.peak_requested is not None:
            most = max(most, rounding * process.peak_requested.high)
    return most


def _unevenness(tally: Tally) -> float:
    """Mean square of the sizes over the square of their mean; 1 if all sizes are equal.

    The sizes are the requested sizes of all small and medium blocks, live or freed.
    """
    import numpy as np

    ends = octaves(SIZE_BUCKETS, 4)
    middles = (ends[:-1] + ends[1:]) / 2
    weights = np.where(ends[:-1] < MEDIUM_MAX, tally.sizes, 0.0)
    mean = float((weights * middles).sum())
    return float(weights.sum() * (weights * middles**2).sum()) / mean**2 if mean else 1.0


class _Unasked(Struct, frozen=True):
    """Resident memory of the allocator, between blocks, that never belonged to a block.

    The numbers are those of the examined moment with the largest resident set.
    """

    of_bytes: int
    """The largest resident set."""
    written_bytes: int
    """The part of the memory without blocks that does not read as zero."""
    huge_bytes: int
    """The part of the memory without blocks that reads as zero, if at least as much memory lies in
    huge pages; else 0."""
    populated_bytes: int
    """The part of the memory without blocks that reads as zero and does not lie in huge pages. The
    allocator made it resident, as by MAP_POPULATE. 0 if huge pages may be the reason."""


def _unasked(profile: Profile) -> _Unasked | None:
    """The resident memory near the peak that was never part of a block; None if not examined.

    Earlier moments do not count, because a program may use fresh memory later in its life.
    """
    peak = max((moment.resident_bytes or 0 for moment in profile.moments), default=0)
    looked_at = (one for one in _near_the_peak(profile) if one.unasked_bytes is not None)
    most = max(looked_at, key=lambda one: one.resident_bytes or 0, default=None)
    if not peak or most is None or most.unasked_bytes is None or most.unwritten_bytes is None:
        return None
    unwritten = min(most.unwritten_bytes, most.unasked_bytes)
    in_huge = most.huge_bytes is not None and most.huge_bytes >= unwritten
    return _Unasked(
        peak,
        most.unasked_bytes - unwritten,
        unwritten if in_huge else 0,
        0 if in_huge else _populated(profile, most, unwritten),
    )


def _populated(profile: Profile, moment: Moment, unwritten: int) -> int:
    """The bytes of `unwritten` that the allocator made resident; 0 if huge pages may have done it.

    A huge page brings in 512 pages by one page fault, and does not count as huge any more after it
    was divided. So each page outside the present huge pages must have had a page fault of its own,
    as populated pages have. The kernel's page of zeroes, on which fresh memory is read, is no part
    of the resident set. So what the allocator has beyond the resident set does not count.
    """
    largest, resident = profile.largest, moment.resident_bytes or 0
    images = [one for one in profile.processes if one.pid == largest.pid]
    faults = largest.minor_faults + largest.major_faults
    small = resident - (moment.huge_bytes or 0)
    if moment.huge_bytes is None or len(images) > 1 or faults * PAGE_BYTES < small:
        return 0
    read = max(0, (moment.own_bytes or 0) - resident)
    return max(0, unwritten - moment.huge_bytes - read)


def _kept(moment: Moment) -> int:
    """Resident bytes that were ever part of a block; 0 if the probe did not examine pages."""
    return max(0, (moment.own_bytes or 0) - (moment.unasked_bytes or 0))


def _most_not_reused(profile: Profile, live: int) -> float:
    """The most bytes that can have been freed and not handed out again; `live` is the live peak.

    Like the live peak, they are those of the process with the most live bytes.

    Two quantities bound them. The first is the number of freed bytes, since only freed memory can
    be reused. The second is the number of bytes handed out of fresh memory beyond the live peak:
    only these requests could have been served by freed memory instead. Within a size group, the
    calls that got fresh memory are taken to have requested as many bytes each as the other calls.
    """
    tally = profile.counts_of_largest
    requested = tally.asked.sum(axis=1)
    calls = tally.calls.sum(axis=1)
    plain = [ALLOCATING.index(name) for name in PLAIN]
    others = [place for place in range(len(ALLOCATING)) if place not in plain]
    fresh = 0.0
    for group in range(len(GROUPS)):
        of_plain = _share(int(tally.fresh[:, group].sum()), int(calls[plain, group].sum()))
        # A file of version 8 counts fresh memory only for malloc and operator new. The others are
        # taken to get it as often. In a group without malloc and new, they count as reused.
        of_others = of_plain
        if not math.isnan(fresh_others := float(tally.fresh_others[group])):
            of_others = _share(fresh_others, int(calls[others, group].sum()))
        fresh += of_plain * int(requested[plain, group].sum())
        fresh += of_others * int(requested[others, group].sum())
    rounding = tally.usable_bytes / tally.watched_bytes if tally.watched_bytes else 1.0
    left = profile.moments[-1].live_bytes if profile.moments else 0
    freed = max(0.0, float(requested.sum()) - left)
    return min(freed * rounding, max(0.0, fresh * rounding - live))


def _share(part: float, whole: int) -> float:
    return min(1.0, part / whole) if whole else 0.0


def not_reused(profile: Profile) -> Finding | None:
    """Returns a finding if freed memory is not reused.

    Size rounding does not count as waste here, because live blocks count with their usable size.
    Returns None if the probe did not examine pages: much of the resident set may then be the
    program's own.
    """
    most = max(profile.moments, key=_kept, default=None)
    asked = max((moment.live_bytes for moment in profile.moments), default=0)
    seen = [moment.live_usable_bytes or moment.live_bytes for moment in profile.moments]
    # The peak between two moments is known, too, but only in requested bytes.
    live = max((*seen, *(process.peak_live_bytes for process in profile.processes)), default=0)
    if most is None or not live or not most.resident_bytes:
        return None
    kept = _kept(most)
    beyond = min(kept - live, round(_most_not_reused(profile, live)))
    error = _error_of_live(profile, asked)
    if kept < LIVE_RATIO_LEAST * live * (1 + 2 * error) or beyond < BYTES_LEAST:
        return None
    most_live = _live_most(profile, live, error)
    least, bound = "", units.size(live)
    if units.size(most_live) != bound:
        least, bound = "at least ", f"at most {units.size(most_live)}"
    share = min(1.0, beyond / most.resident_bytes)
    remote = remote_share(profile)
    by_others = remote is not None and remote.value >= 0.1
    return Finding(
        name="not-reused",
        says="Freed memory is not reused",
        of="memory",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(
            f"When {units.size(most.resident_bytes)} were resident, {units.size(kept)} of them "
            f"were blocks and former blocks, {least}{units.multiple(kept / most_live)} times as "
            f"much as live blocks ever took ({bound})",
            *(
                [f"{remote.value * 100:.3g} % of the frees came from another thread"]
                if by_others and remote
                else []
            ),
        ),
        advice="use an allocator that reuses what other threads free, or free each block in the "
        "thread that allocated it"
        if by_others
        else "allocate and free blocks of one lifetime together, or use an allocator that reuses "
        "partly free memory for other sizes",
    )


def huge_page_bloat(profile: Profile) -> Finding | None:
    """Returns a finding if resident parts of huge pages never held a block and were never written.

    A part counts as never written if it reads as zero.
    """
    unasked = _unasked(profile)
    if unasked is None or unasked.huge_bytes < BYTES_LEAST:
        return None
    return Finding(
        name="huge-page-bloat",
        says="Huge pages hold memory that no block ever used",
        of="memory",
        effect=unasked.huge_bytes / unasked.of_bytes,
        interval=_at_most(unasked.huge_bytes / unasked.of_bytes),
        measured=False,
        evidence=(
            f"{units.size(unasked.huge_bytes)} between blocks are resident, read as zero and never "
            "held a block",
        ),
        advice="turn huge pages off, by the allocator's option or in "
        "/sys/kernel/mm/transparent_hugepage/enabled",
    )


def touches_more_than_it_gives(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator makes memory resident that never belonged to a block.

    It writes to this memory, or lets the kernel populate it.
    """
    unasked = _unasked(profile)
    if unasked is None:
        return None
    written, populated = (
        part if part >= BYTES_LEAST else 0
        for part in (unasked.written_bytes, unasked.populated_bytes)
    )
    if not written + populated:
        return None
    share = (written + populated) / unasked.of_bytes
    evidence = []
    if written:
        evidence.append(f"{units.size(written)} between blocks are resident, were written")
    if populated:
        evidence.append(f"{units.size(populated)} between blocks are resident, read as zero")
    return Finding(
        name="touches-more-than-it-gives",
        says="The allocator makes memory resident that it never hands out"
        if populated
        else "The allocator writes to memory that it never hands out",
        of="memory",
        effect=share,
        interval=_at_most(share),
        measured=False,
        evidence=tuple(f"{text} and never held a block" for text in evidence),
        advice="use an allocator that populates no mappings (MAP_POPULATE) beyond what it hands out"
        if populated
        else "use an allocator that keeps smaller records between blocks, and writes to memory "
        "only when it hands it out",
    )


def _at_most(share: float) -> Interval:
    """The interval from half of `share` to all of it.

    Memory that the program would touch later anyway is not saved. In one measurement, half of the
    memory was saved.
    """
    return Interval(share / 2, share, LEVEL)


def _resident_of_allocator(profile: Profile, moment: Moment) -> int | None:
    """The most resident bytes that can be the allocator's at a moment; None if nothing is known.

    The probe examines pages at some moments only. Between these, the program's own part is taken to
    be that of the examined moment with the largest resident set. If the probe did not see all
    system calls, it does not know which pages are the allocator's. All resident memory then counts.
    """
    if not moment.resident_bytes:
        return None
    examined = [one for one in profile.moments if one.own_bytes is not None and one.resident_bytes]
    if not sees_all_calls(profile.largest) or not examined:
        return moment.resident_bytes
    at = max(examined, key=lambda one: one.resident_bytes or 0)
    at = moment if moment.own_bytes is not None else at
    own, resident = at.own_bytes or 0, at.resident_bytes or 0
    return own if at is moment else max(0, moment.resident_bytes - max(0, resident - own))


def resident_slack(profile: Profile, moment: Moment) -> int | None:
    """The usable bytes of live blocks beyond the requested ones, as far as they can be resident.

    An allocator may round the size of a large block up by much. The program does not touch the
    pages behind the bytes that it requested, so these pages take no memory. All requested bytes
    count as resident. Returns None if the usable sizes are not known.
    """
    slack, resident = moment.slack_bytes, _resident_of_allocator(profile, moment)
    if slack is None or resident is None:
        return slack
    return min(slack, max(0, resident - moment.live_bytes))


def sizes_too_coarse(profile: Profile) -> Finding | None:
    """Returns a finding if blocks are much larger than requested.

    The rule examines the blocks that are live at the peak of the resident set. If not all of their
    usable size can be resident, the resident memory beyond the requested bytes may also be free
    memory. The effect is then an upper limit.
    """
    most = max(
        profile.moments,
        key=lambda moment: (moment.resident_bytes or 0, moment.live_bytes),
        default=None,
    )
    wasted = resident_slack(profile, most) if most is not None else None
    if most is None or not wasted or not most.resident_bytes:
        return None
    slack = wasted / most.live_bytes if most.live_bytes else math.inf
    if slack < SLACK_LEAST or wasted < BYTES_LEAST:
        return None
    usable = most.slack_bytes or 0
    is_limited = wasted < usable
    share, error = wasted / most.resident_bytes, _error_of_live(profile, most.live_bytes)
    off = 2 * error * (most.live_bytes if is_limited else wasted) / most.resident_bytes
    if profile.largest.live_counted:
        off = 2 * most.live_error_bytes / most.resident_bytes
    low = 0.0 if is_limited else max(0.0, min(1.0, share - off))
    high = min(1.0, usable / most.resident_bytes if is_limited else 1.0, share + off)
    more = f"Live blocks of {units.size(most.live_bytes)} occupy"
    return Finding(
        name="sizes-too-coarse",
        says="Blocks are much larger than requested",
        of="memory",
        effect=min(1.0, share),
        interval=Interval(low, high, LEVEL),
        measured=not is_limited,
        evidence=(
            f"{more} at most {units.size(wasted)} more, because not all of the "
            f"{units.size(usable)} by which they are larger is resident"
            if is_limited
            else f"{more} {units.size(wasted)} more",
        ),
        advice="use an allocator with finer size classes, or request sizes that fit its classes",
    )
