"""Findings about the allocator's system calls and page faults."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection

from msgspec import Struct

from cairn import units
from cairn.model import Finding, Interval
from cairn.profile.cpu_share import cpu_share, page_fault_share
from cairn.profile.estimates import (
    LEVEL,
    Estimate,
    asked_ns,
    busy_ns,
    clock,
    is_alone,
    probe_ns,
    whole_cpu_ns,
)
from cairn.profile.lock_table import thread_ns
from cairn.profile.processors import ProcessorTime, processor_time
from cairn.profile.system_calls import call_name
from cairn.profile.tables import KernelLine, kernel_cpu_ns, kernel_lines
from cairn.profile.tally import GROUPS, RELEASING, WAITING, WAKING, Profile, lasting

RETURNING = ("munmap", "madvise(DONTNEED)", "madvise(FREE)")
"""System calls that return memory to the kernel. `brk` also does so when it shrinks the heap."""
GETTING = ("mmap", "brk", "mprotect")
"""System calls that get memory from the kernel."""
GROWING = "mremap"
"""The system call that makes the mapping of a block larger, and moves it if necessary."""
ASKING = (*GETTING, GROWING)
PROTECTING, YIELDING = "mprotect", "sched_yield"
QUEUEING = tuple(name for name in WAITING if name != YIELDING)
"""System calls in which a thread leaves its processor until something happens. A thread that yields
can run again at once, and nothing shows that it waits for another thread."""
ADVISING = ("madvise(HUGEPAGE)", "madvise(other)")
OTHER = "other"
"""The name of the line for all system calls that have no line of their own in a profile."""
WAITS_ALONE, YIELDS = "waits-alone", "yields"
"""The findings that a program of one thread waits in its allocator, and that a program of several
threads yields there."""
ASKS, CALLS_THE_KERNEL = "asks-too-often", "calls-the-kernel"
_NAMED = 2
"""At most this many system calls of the line OTHER are named."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""Page size of this machine. A profile does not record the page size of the machine on which it was
made. The two sizes are nearly always the same."""
PER_THOUSAND_LEAST, CALLS_LEAST = 1.0, 10
"""System calls are frequent from PER_THOUSAND_LEAST per 1,000 operations on, if there are at least
CALLS_LEAST of them. The rate of fewer calls may be chance."""
SHARE_LEAST = 0.02
"""A finding about system calls needs at least this share of CPU time."""
AGAIN_LEAST = 0.5
"""`returns_what_it_needs` applies if at least this share of all page faults are repeated ones, as
`faults_again` counts them."""
TURNOVER_LEAST = 2.0
"""A threshold of two findings, as a multiple of the most bytes that the allocator held. For
`returns_what_it_needs`, an allocator that makes system calls rarely must return at least this much.
For `changes_protection`, it must change the protection of at least this much, if the file does not
say how mprotect changed it."""
TAKEN_LEAST = 0.25
"""mprotect does not get memory if it takes write access from at least this share of the bytes that
it changes. An allocator that grows by mprotect only gives access."""
_MOST = 0.5
"""One kind of calls is most of several kinds if it takes this share of their time."""
LARGE_PIECE = 128 << 10
"""glibc maps each block of this size or more by itself, until such a block was freed."""
GROWTH_STEPS_LEAST = 100
"""Large blocks are resized often if each was resized by mremap this many times on average. A block
that grows by an eighth at a time needs 100 steps from 128 KiB to 16 GiB. If its size doubles, it
needs 17."""
FAULTS_ELSEWHERE = 0.2
"""The kernel handles a part of each page fault with interrupts turned off. Clock samples count this
part for the code that touched the page. It is at most this share of the time that they count for
page faults. For a program that only touches new pages, it was 0.12 to 0.17 in five runs."""
_KEEP_MORE = (
    "let the allocator keep more free memory (glibc: MALLOC_TRIM_THRESHOLD_ and "
    "MALLOC_MMAP_THRESHOLD_, jemalloc: dirty_decay_ms, mimalloc: MIMALLOC_PURGE_DELAY), or use "
    "one that does"
)
_TRIM_LESS = "let the program call malloc_trim() less often"
_TRIMS = "and calls of malloc_trim() by the program can be the reason"


RETURNS, PROTECTS = "returns-what-it-needs", "changes-protection"
WITH_FAULTS = (RETURNS, PROTECTS)
"""Findings whose effect may contain page faults. Such page faults can be in the program's code,
whose time is not part of the allocator's share of CPU time."""


def inclusion(finding: Finding) -> str:
    """Returns what the effect contains beside the allocator's own time, as a clause to append.

    It is empty if the effect contains nothing else.
    """
    ends = finding.interval
    up_to_more = ends is not None and finding.effect < ends.high
    has_faults = finding.name in WITH_FAULTS and (up_to_more or not finding.measured)
    return ", page faults in the program's code included" if has_faults else ""


def _sum(of: list[KernelLine]) -> tuple[int, int, float]:
    """Sums over these system calls: their number, their bytes, and their nanoseconds."""
    return (
        sum(one.count for one in of),
        sum(one.bytes or 0 for one in of),
        sum(one.total_ns or 0.0 for one in of),
    )


def _list(of: list[KernelLine]) -> str:
    return ", ".join(f"{units.count(one.count)} {one.name}" for one in of)


def _calls(of: list[KernelLine]) -> str:
    """Returns the calls as a subject: "1,000 calls of madvise(DONTNEED) and 10 of munmap"."""
    first, *others = of
    told = [f"{units.counted(first.count, 'call')} of {first.name}"]
    told += [f"{units.count(one.count)} of {one.name}" for one in others]
    return " and ".join([", ".join(told[:-1]), told[-1]]) if others else told[0]


class _Held(Struct, frozen=True):
    """The memory that the allocator had from the kernel, summed over the program's processes."""

    bytes: int
    """The sum of the most bytes that each process held."""
    is_least: bool
    """Whether any of the processes may have held more."""
    processes: int
    shrunk_bytes: int
    """The bytes that the processes returned by `brk`."""

    @property
    def clause(self) -> str:
        """A clause that says how much memory was held; empty if it is not known."""
        if not self.bytes:
            return ""
        if self.processes == 1:
            most = "at least" if self.is_least else "at most"
            return f", while {most} {units.size(self.bytes)} were held at a time"
        return (
            f", while the most that each of {self.processes:,} processes held adds up to "
            f"{'at least ' if self.is_least else ''}{units.size(self.bytes)}"
        )


def _held(profile: Profile) -> _Held:
    """The memory that the allocator held. All counts of system calls are of all processes, too."""
    return _Held(
        sum(process.held_bytes for process in profile.processes),
        any(process.held_is_least for process in profile.processes),
        len(lasting(profile.processes)),
        sum(process.shrunk_bytes for process in profile.processes),
    )


class Faults(Struct, frozen=True):
    """The page faults of all processes."""

    total: int
    beyond: int
    """The page faults beyond one for each page of the peak of their process."""
    again: int
    """The part of `beyond` that memory changed by the allocator can have caused."""
    ns: float
    """The estimated time of the page faults in `again`."""
    most_ns: float
    """The most that the page faults in `again` can take."""
    sampled: bool
    """Whether the two times come from clock samples. Otherwise they are only inferred."""

    @property
    def are_repeated(self) -> bool:
        """Whether at least AGAIN_LEAST of all page faults are in `again`."""
        return 0 < self.again >= AGAIN_LEAST * self.total


def faults_again(profile: Profile, changed_bytes: int) -> Faults:
    """The page faults of all processes, and the repeated ones among them.

    A page fault is repeated if it comes in addition to one for each page of the peak. If a process
    executed other programs, each of them has a peak. In a window of the program's life, only the
    pages count by which the resident set grew: the others were touched before. The program's own
    mappings cause such page faults, too. So at most one for each page of `changed_bytes` counts as
    caused by the allocator.

    If clock samples show the time of all page faults, those in `again` get a proportional part of
    this time. The upper limit is larger by FAULTS_ELSEWHERE. Without clock samples, the time is
    inferred from the system time, which may also be that of reading and writing files.

    changed_bytes: the memory that the allocator returned to the kernel, or whose protection it
    changed.
    """
    first_touches = Counter[int]()
    for image in profile.processes:
        grown = image.grown_bytes
        touched = grown if grown is not None else image.peak_resident_bytes or 0
        first_touches[image.pid] += touched // PAGE_BYTES
    total = beyond = 0
    for process in lasting(profile.processes):
        faults = process.minor_faults + process.major_faults
        total += faults
        beyond += max(0, faults - first_touches[process.pid])
    again, tree = min(beyond, changed_bytes // PAGE_BYTES), profile.tree
    # Processes that were not recorded can have page faults, too.
    every = max(total, tree.minor_faults + tree.major_faults if tree is not None else 0)
    share = page_fault_share(profile)
    if share is None:
        ns = again * _fault_ns(profile, every)
        return Faults(total, beyond, again, ns, 2 * ns, sampled=False)
    whole_ns = whole_cpu_ns(profile) or busy_ns(profile) or 0.0
    each_ns = whole_ns / every if every else 0.0
    most_ns = again * each_ns * share.interval.high * (1 + FAULTS_ELSEWHERE)
    return Faults(total, beyond, again, again * each_ns * share.value, most_ns, sampled=True)


def _fault_ns(profile: Profile, faults: int) -> float:
    """Estimates the mean time of a page fault in ns; 0 if not known.

    The estimate assumes that page faults took the rest of the system time. The rest is the system
    time without the allocator's system calls, the probe's interceptions, and the probe's reading of
    page fault counts. The system time is that of the whole program.

    faults: the page faults of the whole program.
    """
    inside, ticking = kernel_cpu_ns(kernel_lines(profile)) or 0.0, clock(profile.tally)
    inside = min(inside, _clocked(profile) * (busy_ns(profile) or math.inf))
    inside += profile.tally.detour_ticks * ticking.ns_per_tick if ticking is not None else 0.0
    inside += min(asked_ns(profile.tally), probe_ns(profile) or 0.0)
    if profile.tree is None:
        return 0.0
    return max(0.0, profile.tree.system_ns - inside) / faults if faults else 0.0


def _clocked(profile: Profile) -> float:
    """The share of CPU time in the allocator's system calls by clock samples; 1 if there are none.

    The timed calls cannot have taken more CPU time. Most of these samples come from runs without
    the probe. The probe makes each call longer. A thread that waits for a processor within a call
    makes the call longer, too.
    """
    found = cpu_share(profile)
    sampled = found.share is not None and found.scope in ("processors", "threads")
    return min(1.0, found.calls) if sampled else 1.0


def _on_processor(profile: Profile, ns: float) -> float:
    """Limits `ns`, the wall time of system calls, to the program's system time.

    Wall time also contains waiting, which takes no CPU time. The probe's interceptions are system
    time, too. If calls and interceptions together take more than the system time, both are reduced
    by the same factor. The interceptions are not subtracted from the system time. If the
    allocator's calls are short, the interceptions take nearly all of the system time. Their time is
    estimated as a constant for each call, and the error of this estimate may be larger than the
    rest of the system time.
    """
    if profile.tree is None or not ns:
        return ns
    ticking = clock(profile.tally)
    detours = profile.tally.detour_ticks * ticking.ns_per_tick if ticking is not None else 0.0
    return ns * min(1.0, profile.tree.system_ns / (ns + detours))


def share_of_cpu(profile: Profile, ns: float, busy: float) -> float:
    """The share of CPU time in system calls whose wall time is `ns`; `busy` is all CPU time.

    The limits hold for all system calls of the allocator together. These calls are reduced by one
    factor, so findings about different calls never add up to more than the limits.
    """
    whole_ns = kernel_cpu_ns(kernel_lines(profile))
    if not whole_ns:
        return 0.0
    most = min(1.0, _clocked(profile), _on_processor(profile, whole_ns) / busy)
    return most * min(1.0, ns / whole_ns)


def _with_faults(least: float, calls: float, faults: Faults | None, busy: float) -> Estimate:
    """The effect of system calls and page faults, as a share of CPU time.

    The time of page faults is not exact. So the interval reaches from a part of the calls to all
    calls and the most that the page faults can take.

    least, calls: the shares of CPU time in that part of the calls, and in all of them.
    """
    ns, most_ns = (faults.ns, faults.most_ns) if faults is not None else (0.0, 0.0)
    high = min(1.0, calls + most_ns / busy)
    return Estimate(min(1.0, calls + ns / busy), Interval(least, high, LEVEL))


def _is_measured(faults: Faults | None) -> bool:
    """Whether an effect with these page faults has a value, and not only limits."""
    return faults is None or faults.sampled or not faults.most_ns


def _are_frequent(profile: Profile, calls: int) -> bool:
    """Whether there are CALLS_LEAST calls and PER_THOUSAND_LEAST per 1,000 operations, or more."""
    often = calls * 1000 >= PER_THOUSAND_LEAST * profile.operations
    return profile.operations > 0 and calls >= CALLS_LEAST and often


def _trims(profile: Profile, returning: list[KernelLine]) -> int:
    """The number of calls of malloc_trim() by the program; 0 if they cannot be the reason.

    They can be the reason for the calls that return memory if they can have returned all of it
    except the memory of munmap, and if that is most of it. One call of malloc_trim() returns no
    more memory than the allocator holds.
    """
    trims, held = int(profile.tally.released[RELEASING.index("malloc_trim")].sum()), _held(profile)
    unmapped = sum(one.bytes or 0 for one in returning if one.name == "munmap")
    trimmed = sum(one.bytes or 0 for one in returning) - unmapped + held.shrunk_bytes
    return trims if max(1, unmapped) <= trimmed <= trims * held.bytes else 0


def _trimmed(trims: int) -> tuple[str, ...]:
    """The evidence about these calls of malloc_trim(); empty if there are none."""
    return (f"the program called malloc_trim() {units.counted(trims, 'time')}",) if trims else ()


def returns_what_it_needs(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator returns memory to the kernel and soon needs it again.

    Either the page faults show this, or the calls: an allocator that often unmaps memory has mapped
    and unmapped TURNOVER_LEAST times as much as it ever held. In the second case, most of the
    program's page faults may be first touches of other memory.
    """
    busy, found = busy_ns(profile), kernel_lines(profile)
    if busy is None or not profile.operations:
        return None
    returning = [one for one in found if one.name in RETURNING]
    brk = [one for one in found if one.name == "brk"]
    held = _held(profile)
    moving = brk if held.shrunk_bytes > held.bytes else []
    asking = [one for one in found if one.name in ASKING and one not in moving]
    calls, given, ns = _sum(returning)
    faults = faults_again(profile, given + held.shrunk_bytes)
    brk_calls, _, brk_ns = _sum(moving)
    calls, ns = calls + brk_calls, ns + brk_ns
    given += held.shrunk_bytes if moving else 0
    maps_again = _maps_again(profile)
    if not calls or not (faults.are_repeated or maps_again):
        return None
    turned_over = held.bytes and given >= TURNOVER_LEAST * held.bytes
    if not _are_frequent(profile, calls) and not turned_over:
        return None
    _, _, asking_ns = _sum(asking)
    least, all_calls = (share_of_cpu(profile, each, busy) for each in (ns, ns + asking_ns))
    effect = _with_faults(least, all_calls, faults, busy)
    if effect.value < SHARE_LEAST:
        return None
    trims = _trims(profile, returning)
    pages = (
        "page of the largest resident set"
        if profile.window is None
        else "page by which the resident set grew"
    )
    again = "can come from it"
    if faults.again == faults.beyond:
        again = f"come in addition to one for each {pages}"
    repeated = f"{units.count(faults.again)} of {units.count(faults.total)} page faults {again}"
    return Finding(
        name=RETURNS,
        says="The allocator returns memory to the kernel and soon needs it again"
        + (f", {_TRIMS}" if trims else ""),
        of="CPU",
        effect=effect.value,
        interval=effect.interval,
        measured=_is_measured(faults),
        evidence=(
            f"{_calls([*returning, *moving])} returned {units.size(given)}{held.clause}",
            *([] if faults.are_repeated else [maps_again]),
            *([repeated] if faults.again else []),
            *_trimmed(trims),
        ),
        advice=_TRIM_LESS if trims else _KEEP_MORE,
    )


def _maps_again(profile: Profile) -> str:
    """The evidence that unmapped memory is mapped again and again; empty if it is not.

    The calls that unmap must be frequent. What was mapped, and what was unmapped, must each be at
    least TURNOVER_LEAST times as much as the allocator ever held.
    """
    least = TURNOVER_LEAST * _held(profile).bytes
    mapping, unmapping = (
        [one for one in kernel_lines(profile) if one.name == name] for name in ("mmap", "munmap")
    )
    calls, mapped, _ = _sum(mapping)
    times, unmapped, _ = _sum(unmapping)
    if not least or min(mapped, unmapped) < least or not _are_frequent(profile, times):
        return ""
    return f"{units.counted(calls, 'call')} of mmap got {units.size(mapped)}"


def asks_too_often(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator gets memory from the kernel in pieces that are too small.

    `mremap` counts only if blocks are resized often: see `_growing`. Otherwise it saves copying
    the block that it moves.
    """
    busy = busy_ns(profile)
    asking = [
        one
        for one in kernel_lines(profile)
        if one.name in GETTING and (one.name != PROTECTING or _grows(profile, one.bytes or 0))
    ]
    growing, steps = _growing(profile)
    calls, got, ns = _sum(asking)
    grown, _, growing_ns = _sum(growing)
    if busy is None or not _are_frequent(profile, calls + grown):
        return None
    in_steps = growing_ns > _MOST * (ns + growing_ns)
    share = share_of_cpu(profile, growing_ns if in_steps else ns, busy)
    if share < SHARE_LEAST or returns_what_it_needs(profile) is not None:
        return None
    each = got / calls if calls else 0.0
    says = "The allocator gets memory from the kernel in many small pieces"
    advice = "let it grow in larger steps (glibc: MALLOC_TOP_PAD_), or use an allocator that does"
    if in_steps:
        says = "The allocator calls the kernel each time the program resizes a large block"
        advice = (
            "let the program resize its blocks less often, for example grow them in larger steps, "
            "or use an allocator that leaves room behind growing blocks"
        )
    elif _maps_large_blocks(asking):
        says = "The allocator gets memory from the kernel in many pieces"
        advice = (
            "let large blocks come from its heap (glibc: MALLOC_MMAP_THRESHOLD_), which grows in "
            "steps (MALLOC_TOP_PAD_), or use an allocator that keeps memory for such blocks"
        )
    frequency = (calls + grown) / profile.operations * 1000
    often = f"{frequency:.3g}" if frequency < 999.5 else units.count(round(frequency))
    pieces = f"{_list(asking)}: {units.size(each)} each on average"
    resized = f"{_list(growing)}, at least {units.count(steps)} for each block"
    return Finding(
        name=ASKS,
        says=says,
        of="CPU",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(
            *([pieces] if calls and not in_steps else []),
            *([resized] if in_steps else []),
            f"{often} system calls per 1,000 operations",
        ),
        advice=advice,
    )


def _maps_large_blocks(asking: list[KernelLine]) -> bool:
    """Whether most of the time of these calls is in mmap, with pieces as of a large block each."""
    calls, got, ns = _sum([one for one in asking if one.name == "mmap"])
    return got >= LARGE_PIECE * max(1, calls) and ns > _MOST * _sum(asking)[2]


def _growing(profile: Profile) -> tuple[list[KernelLine], int]:
    """The lines of mremap, and the least number of its calls for each block that it resized.

    The result is ([], 0) unless blocks are resized often. A resized block was freed as a large
    block, or was live at the end. Blocks that only grow end with at least the mean size of all
    results of mremap. So the number of live ones is at most the live bytes divided by this mean.
    """
    lines = [one for one in kernel_lines(profile) if one.name == GROWING]
    calls, grown, _ = _sum(lines)
    live = sum(one.peak_live_bytes for one in profile.processes)
    live = max([live, *(one.live_bytes for one in profile.moments)])
    if not calls or not grown:
        return [], 0
    freed = float(profile.tally.freed[GROUPS.index("large")])
    steps = calls / max(1.0, freed + live * calls / grown)
    return (lines, round(steps)) if steps >= GROWTH_STEPS_LEAST else ([], 0)


def changes_protection(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator protects pages, and does not only grow by mprotect.

    If at least TAKEN_LEAST of the changed bytes get write access back, the same pages change again
    and again. Otherwise the allocator protects new pages each time.
    """
    busy, sealed = busy_ns(profile), profile.tally.sealed_bytes
    lines = [one for one in kernel_lines(profile) if one.name == PROTECTING]
    calls, changed, ns = _sum(lines)
    if (
        busy is None
        or not _are_frequent(profile, calls)
        or _grows(profile, changed)
        or returns_what_it_needs(profile) is not None
    ):
        return None
    again = faults_again(profile, changed)
    faults = again if again.are_repeated else None
    share = share_of_cpu(profile, ns, busy)
    effect = _with_faults(share, share, faults, busy)
    if effect.value < SHARE_LEAST:
        return None
    gives_back = math.isnan(sealed) or changed - sealed >= TAKEN_LEAST * changed
    how = (
        _held(profile).clause
        if math.isnan(sealed)
        else f", and {units.size(sealed)} of them lost write access"
    )
    return Finding(
        name=PROTECTS,
        says="The allocator changes the protection of pages (mprotect) again and again"
        if gives_back
        else "The allocator takes access to pages away (mprotect) again and again",
        of="CPU",
        effect=effect.value,
        interval=effect.interval,
        measured=_is_measured(faults),
        evidence=(
            f"{units.count(calls)} mprotect, {_per_operation(calls, profile)}: "
            f"{units.size(changed)} changed{how}",
        ),
        advice="use an allocator without guard pages, or turn them off, unless you want them to "
        "find errors",
    )


def _grows(profile: Profile, changed: int) -> bool:
    """Whether mprotect, which changed this many bytes, gets memory for the allocator.

    It then gives access to addresses that were only reserved. Files of earlier versions do not say
    from how many bytes it took access away. An allocator that grows changes each page once, so it
    changes at most the bytes that it holds.
    """
    sealed, held = profile.tally.sealed_bytes, _held(profile).bytes
    if math.isnan(sealed):
        return not held or changed < TURNOVER_LEAST * held
    return sealed < TAKEN_LEAST * changed


def waits_alone(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator yields or sleeps in a program of one thread.

    No other thread can then end the wait. The effect of yielding is its share of CPU time. Other
    programs may run while the thread yields, and their time does not count. Sleeping takes no CPU
    time, so its effect is a share of the thread's time. The finding has the larger of the two
    times. Sleeping counts only if it takes SHARE_LEAST of the thread's time. If several such
    processes run at once, they save no more than the time of the processors that is unused.
    """
    busy, whole = busy_ns(profile), thread_ns(profile)
    lines = [one for one in kernel_lines(profile) if one.name in WAITING]
    if busy is None or clock(profile.tally) is None or not profile.operations:
        return None
    if not lines or has_threads(profile):
        return None
    total = sum(one.total_ns or 0.0 for one in lines if one.name != YIELDING)
    cpu = sum(one.cpu_ns or 0.0 for one in lines)
    of_cpu = share_of_cpu(profile, cpu, busy)
    of_time = min(1.0, total / whole) if whole else 0.0
    sleeps = of_time >= SHARE_LEAST and of_time * whole > of_cpu * busy
    share = of_time if sleeps else of_cpu
    limit: tuple[str, ...] = ()
    processors = processor_time(profile)
    if sleeps and processors is not None:
        most = (processors.unused + of_cpu * busy) / processors.whole
        if most < share:
            share, limit = most, (limit_by(processors),)
    if share < SHARE_LEAST:
        return None
    calls = sum(one.count for one in lines)
    where = "a program" if len(lasting(profile.processes)) == 1 else "processes"
    return Finding(
        name=WAITS_ALONE,
        says="The allocator yields or sleeps, although there is no other thread",
        of="thread time" if sleeps else "CPU",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(
            f"{_list(lines)}, {_per_operation(calls, profile)}: "
            f"{units.time(total if sleeps else cpu)} in all, in {where} of one thread",
            *limit,
        ),
        advice="use an allocator that waits only if another thread holds what it needs",
    )


def limit_by(of: ProcessorTime) -> str:
    """The evidence that the processors limit the effect of waiting."""
    used = units.percent(of.used_share, signed=False)
    many = f"{of.processors:g} processor{'s' * (of.processors != 1)}"
    return f"The program uses {used} of the time of {many}, which limits what it can save"


def yields(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator yields again and again in a program with threads.

    A yield does not show that another thread holds a lock. It takes CPU time in any case, and the
    effect is this time. So the finding does not depend on what the other threads do. The yields of
    a lone thread belong to `waits_alone`.
    """
    busy = busy_ns(profile)
    lines = [one for one in kernel_lines(profile) if one.name == YIELDING]
    calls, cpu_ns = sum(one.count for one in lines), sum(one.cpu_ns or 0.0 for one in lines)
    if busy is None or not has_threads(profile) or not _are_frequent(profile, calls):
        return None
    share = share_of_cpu(profile, cpu_ns, busy)
    if share < SHARE_LEAST:
        return None
    return Finding(
        name=YIELDS,
        says="The allocator gives up the processor again and again (sched_yield), perhaps to wait "
        "for a lock",
        of="CPU",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(
            f"{_list(lines)}, {_per_operation(calls, profile)}: {units.time(cpu_ns)} of CPU time "
            "in all",
        ),
        advice="use an allocator that does not yield in its operations, or let fewer threads "
        "allocate",
    )


def _returning_in_vain(profile: Profile) -> list[KernelLine]:
    """The system calls that return memory, if they are frequent and belong to no other rule.

    An allocator that maps memory again and again also unmaps it. So `asks_too_often` names the
    cause of its munmap, too.
    """
    if returns_what_it_needs(profile) is not None:
        return []
    asks = asks_too_often(profile) is not None
    found = [
        one
        for one in kernel_lines(profile)
        if one.name in RETURNING and not (asks and one.name == "munmap")
    ]
    return found if _are_frequent(profile, sum(one.count for one in found)) else []


def calls_the_kernel(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator often makes system calls that no other rule covers.

    These are calls that neither get nor protect memory, and that do not wait. Calls that return
    memory count if they are frequent, and if `returns_what_it_needs` is not met. Page faults are
    then not their cost, but the calls themselves take time. Calls that wake a thread count only
    beyond the number of waits, and only if they are twice as many. Fewer may come from waits that
    ended before they reached the kernel.
    """
    busy, returning = busy_ns(profile), _returning_in_vain(profile)
    ours = [one for one in kernel_lines(profile) if one.name in (OTHER, *ADVISING)] + returning
    waits = sum(one.count for one in kernel_lines(profile) if one.name in QUEUEING)
    wakes = [one for one in kernel_lines(profile) if one.name == WAKING and one.count > 2 * waits]
    calls, _, ns = _sum(ours)
    calls += sum(one.count - waits for one in wakes)
    ns += sum((one.total_ns or 0.0) * (one.count - waits) / one.count for one in wakes)
    if busy is None or not _are_frequent(profile, calls):
        return None
    share = share_of_cpu(profile, ns, busy)
    if share < SHARE_LEAST:
        return None
    known = profile.tally.other_calls.most_common(_NAMED)
    names = [
        *(f"{units.count(count)} {call_name(number, profile.machine)}" for number, count in known),
        *(f"{units.count(one.count)} {one.name}" for one in ours if one.name != OTHER),
        *(f"{units.count(one.count - waits)} {one.name} more than waits" for one in wakes),
    ]
    says = "The allocator often calls the kernel, neither for memory nor to wait"
    advice = "use an allocator that keeps what it asks the kernel for"
    trims = 0
    if returning and _sum(returning)[2] >= _MOST * ns:
        trims = _trims(profile, returning)
        says = "The allocator often calls the kernel to return memory"
        says += f", {_TRIMS}" if trims else ""
        advice = _TRIM_LESS if trims else _KEEP_MORE
    elif returning:
        says = "The allocator often calls the kernel, neither to get memory nor to wait"
    return Finding(
        name=CALLS_THE_KERNEL,
        says=says,
        of="CPU",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(f"{', '.join(names)}, {_per_operation(calls, profile)}", *_trimmed(trims)),
        advice=advice,
    )


def charged(name: str, others: Collection[str]) -> tuple[str, ...]:
    """The kinds of system calls whose time the finding `name` can contain.

    Each kind belongs to one finding. So the result depends on `others`, the names of all findings
    about the same program. It is empty if the finding is not about system calls.
    """
    asking = tuple(one for one in ASKING if one != PROTECTING or PROTECTS not in others)
    returning = () if RETURNS in others else RETURNING
    kinds = {
        RETURNS: (*RETURNING, *asking),
        ASKS: asking,
        PROTECTS: (PROTECTING,),
        WAITS_ALONE: WAITING,
        YIELDS: (YIELDING,),
        CALLS_THE_KERNEL: (
            *(OTHER, *ADVISING, WAKING),
            *(one for one in returning if one != "munmap" or ASKS not in others),
        ),
    }
    return kinds.get(name, ())


def has_threads(profile: Profile) -> bool:
    """Whether some process had two threads at a time."""
    return not is_alone(profile)


def _per_operation(calls: int, profile: Profile) -> str:
    """How frequent the calls are, as a phrase."""
    each = calls / profile.operations
    if each >= 0.1:
        return f"{each:.2g} per operation"
    if each >= 1e-5:
        return f"{each * 1000:.2g} per 1,000 operations"
    return f"{each * 1e6:.2g} per million operations"
