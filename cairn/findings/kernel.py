"""Findings about the allocator's system calls and page faults."""

from __future__ import annotations

import os

from cairn import units
from cairn.model import Finding, Interval
from cairn.profile.estimates import LEVEL, Estimate, asked_ns, busy_ns, clock, probe_ns
from cairn.profile.tables import KernelLine, kernel_cpu_ns, kernel_lines
from cairn.profile.tally import Profile, lasting

RETURNING = ("munmap", "madvise(DONTNEED)", "madvise(FREE)")
"""System calls that return memory to the kernel. `brk` also does so when it shrinks the heap."""
GETTING = ("mmap", "brk", "mprotect")
"""System calls that get memory from the kernel."""
ASKING = (*GETTING, "mremap")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""Page size of this machine. A profile does not record the page size of the machine on which it was
made. The two sizes are nearly always the same."""
PER_THOUSAND_LEAST = 1.0
"""The number of system calls per 1,000 operations from which they are frequent."""
SHARE_LEAST = 0.02
"""The least share of CPU time for a finding."""
AGAIN_LEAST = 0.5
"""The least share of page faults that must be repeated ones. The number of repeated page faults is
the number of all page faults minus one for each page of the peak."""
TURNOVER_LEAST = 2.0
"""If system calls are not frequent, the least number of bytes returned to the kernel, as a multiple
of the most bytes held."""


def _sum(of: list[KernelLine]) -> tuple[int, int, float]:
    """Sums over these system calls: their number, their bytes, and their nanoseconds."""
    return (
        sum(one.count for one in of),
        sum(one.bytes or 0 for one in of),
        sum(one.total_ns or 0.0 for one in of),
    )


def _list(of: list[KernelLine]) -> str:
    return ", ".join(f"{units.count(one.count)} {one.name}" for one in of)


def held_most(profile: Profile) -> int:
    """The most bytes that the allocator held, in the process with the most live bytes."""
    return max((moment.held_bytes or 0 for moment in profile.moments), default=0)


def shrunk_bytes(profile: Profile, line: KernelLine) -> int:
    """The bytes by which `brk` shrank the heap.

    `line.bytes` is growth plus shrinkage. The bytes held at the end are growth minus shrinkage. So
    half of their difference is the shrinkage.
    """
    ends = [moment.held_bytes for moment in profile.moments if moment.held_bytes is not None]
    return max(0, ((line.bytes or 0) - (ends[-1] if ends else 0)) // 2)


def faults_again(profile: Profile) -> tuple[int, int]:
    """The page faults beyond one for each page of the peak, and all page faults.

    Both numbers are sums over all processes.
    """
    alive = lasting(profile.processes)
    faults = [process.minor_faults + process.major_faults for process in alive]
    again = [
        max(0, count - process.peak_resident_bytes // PAGE_BYTES)
        for count, process in zip(faults, alive, strict=True)
    ]
    return sum(again), sum(faults)


def _fault_ns(profile: Profile, faults: int) -> float:
    """Estimates the mean time of a page fault in ns; 0 if not known.

    The estimate assumes that page faults took the rest of the system time. The rest is the system
    time without the allocator's system calls, the probe's detours, and the probe's reading of page
    fault counts.
    """
    inside, ticking = kernel_cpu_ns(kernel_lines(profile)) or 0.0, clock(profile.tally)
    inside += profile.tally.detour_ticks * ticking.ns_per_tick if ticking is not None else 0.0
    inside += min(asked_ns(profile.tally), probe_ns(profile) or 0.0)
    return max(0.0, profile.tree.system_ns - inside) / faults if profile.tree and faults else 0.0


def _on_processor(profile: Profile, ns: float) -> float:
    """Limits `ns`, the wall time of system calls, to the program's system time.

    Wall time also contains waiting, which takes no CPU time.
    """
    return min(ns, float(profile.tree.system_ns)) if profile.tree else ns


def returns_what_it_needs(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator returns memory to the kernel and soon needs it again."""
    busy, found = busy_ns(profile), kernel_lines(profile)
    again, faults = faults_again(profile)
    if busy is None or not profile.operations or not again or again < AGAIN_LEAST * faults:
        return None
    returning = [one for one in found if one.name in RETURNING]
    moving = [
        one
        for one in found
        if one.name == "brk" and shrunk_bytes(profile, one) > held_most(profile)
    ]
    asking = [one for one in found if one.name in ASKING and one not in moving]
    calls, given, ns = _sum(returning)
    brk_calls, _, brk_ns = _sum(moving)
    calls, ns = calls + brk_calls, ns + brk_ns
    given += sum(shrunk_bytes(profile, one) for one in moving)
    if not calls:
        return None
    often = calls / profile.operations * 1000 >= PER_THOUSAND_LEAST
    held = held_most(profile)
    if not often and (not held or given < TURNOVER_LEAST * held):
        return None
    _, _, asking_ns = _sum(asking)
    ns, least = (_on_processor(profile, each) for each in (ns, ns + asking_ns))
    faults_ns = again * _fault_ns(profile, faults)
    effect = Estimate(least + faults_ns, Interval(ns, least + 2 * faults_ns, LEVEL)).over(
        busy, most=1.0
    )
    if effect.value < SHARE_LEAST:
        return None
    return Finding(
        name="returns-what-it-needs",
        says="The allocator returns memory to the kernel and soon needs it again",
        of="CPU",
        effect=effect.value,
        interval=effect.interval,
        measured=not faults_ns,
        evidence=(
            f"{_list([*returning, *moving])}: {units.size(given)} returned in {units.time(ns)}"
            f"{f', while at most {units.size(held)} were held at a time' if held else ''}",
            f"{units.count(again)} of {units.count(faults)} page faults exceed one per page "
            "of the peak",
        ),
        advice="let it keep more free memory (glibc: MALLOC_TRIM_THRESHOLD_ and "
        "MALLOC_MMAP_THRESHOLD_, jemalloc: dirty_decay_ms, mimalloc: MIMALLOC_PURGE_DELAY), or use "
        "an allocator that does",
    )


def asks_too_often(profile: Profile) -> Finding | None:
    """Returns a finding if the allocator gets memory from the kernel in pieces that are too small.

    `mremap` does not count: it saves copying the block that it moves.
    """
    busy = busy_ns(profile)
    asking = [one for one in kernel_lines(profile) if one.name in GETTING]
    calls, got, ns = _sum(asking)
    if (
        busy is None
        or not profile.operations
        or calls / profile.operations * 1000 < PER_THOUSAND_LEAST
    ):
        return None
    share = min(1.0, _on_processor(profile, ns) / busy)
    if share < SHARE_LEAST or returns_what_it_needs(profile) is not None:
        return None
    return Finding(
        name="asks-too-often",
        says="The allocator gets memory from the kernel in many small pieces",
        of="CPU",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(
            f"{_list(asking)}: {units.size(got / calls)} each on average, {units.time(ns)} in all",
            f"{calls / profile.operations * 1000:.3g} system calls per 1,000 operations",
        ),
        advice="let it grow in larger steps (glibc: MALLOC_TOP_PAD_), or use an allocator that "
        "does",
    )
