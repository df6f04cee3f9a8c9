"""All tables of a profile except those of operations and blocks. All functions are pure.

The tables show system calls, page faults, events of the processor, locks, and new memory.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence

from msgspec import Struct

from cairn.model import Interval
from cairn.profile.early_ends import faults_total
from cairn.profile.estimates import (
    FREED,
    LEVEL,
    PLAIN,
    TOTAL,
    UNTIMED_MAX,
    Estimate,
    Z,
    clock,
    strata,
)
from cairn.profile.tally import (
    ABOUT_MEMORY,
    ALLOCATING,
    CALLS,
    KINDS,
    LOCKS,
    PATHS,
    WAITING,
    Process,
    Profile,
    Tally,
)


class KernelLine(Struct, frozen=True):
    """One kind of system calls within the allocator. `bytes` is None for calls without a size."""

    name: str
    count: int
    failed: int
    bytes: int | None
    total_ns: float | None
    mean_ns: float | None
    max_ns: float | None
    per_second: float | None
    per_thousand: float | None
    """Calls per 1,000 operations."""
    cpu_ns: float | None
    """CPU time. It is measured for the calls in WAITING. For other calls it equals `total_ns`."""


def kernel_lines(profile: Profile) -> tuple[KernelLine, ...]:
    """One line for each kind of system call that occurred, the largest total first."""
    kernel, ticking, operations = profile.tally.kernel, clock(profile.tally), profile.operations
    ns = ticking.ns_per_tick if ticking else None
    seconds = profile.tally.lived_ns / 1e9
    found = []
    for place, name in enumerate(CALLS):
        count = int(kernel.count[place])
        if not count:
            continue
        own = float(kernel.clock_ticks[place])
        total = max(0.0, float(kernel.ticks[place]) - own)
        found.append(
            KernelLine(
                name,
                count,
                int(kernel.failed[place]),
                int(kernel.bytes[place]) if name in ABOUT_MEMORY else None,
                total * ns if ns else None,
                total / count * ns if ns else None,
                max(0.0, most - own / count) * ns
                if ns and (most := float(kernel.most_ticks[place]))
                else None,
                count / seconds if seconds else None,
                count / operations * 1000 if operations else None,
                _on_processor(
                    float(kernel.cpu_ns[place]) if name in WAITING else None,
                    total * ns if ns else None,
                ),
            )
        )
    return tuple(sorted(found, key=lambda one: -(one.total_ns or 0.0)))


def _on_processor(cpu_ns: float | None, total_ns: float | None) -> float | None:
    """The CPU time of a system call: `cpu_ns`, but at most the wall time `total_ns`.

    If the CPU time was not measured, it is taken to be the wall time.
    """
    return total_ns if cpu_ns is None or total_ns is None else min(cpu_ns, total_ns)


def kernel_ns(of: Sequence[KernelLine], *, waiting: bool) -> float | None:
    """Total time of the system calls that wait, or of those that do not if `waiting` is false.

    Returns None if they were not timed.
    """
    return _sum([one.total_ns for one in of if (one.name in WAITING) == waiting])


def kernel_cpu_ns(of: Sequence[KernelLine]) -> float | None:
    """CPU time of the system calls in `of`; None if they were not timed."""
    return _sum([one.cpu_ns for one in of])


def _sum(times: Sequence[float | None]) -> float | None:
    return None if any(time is None for time in times) else sum(time or 0.0 for time in times)


def new_share(tally: Tally) -> float | None:
    """The exact share of calls of malloc and operator new that got memory fresh from the kernel."""
    calls = int(tally.calls[[ALLOCATING.index(name) for name in PLAIN]].sum())
    return min(1.0, int(tally.fresh.sum()) / calls) if calls else None


class _Inferred(Struct):
    """Estimates the number of page faults or events in all operations, from the examined ones.

    The squared deviation of each stratum's sample is increased by 1. Otherwise the interval would
    have no length if no examined operation had a page fault or event. But if a small sample has
    none, that does not show that all operations have none.
    """

    value: float = 0.0
    least: float = 0.0
    variance: float = 0.0
    operations: int = 0
    looked_at: int = 0
    unseen: int = 0

    def add(
        self, operations: int, looked_at: int, taken: int, squares: int, *, effect: float
    ) -> None:
        """Adds a stratum with this number of operations, of which `looked_at` were examined.

        `taken` is the number of page faults or events in the sample. `squares` is the sum of the
        squared number of each operation in the sample. `effect` is `Timed.effect` of the stratum.
        """
        if not looked_at:
            self.unseen += operations
            return
        operations = max(operations, looked_at)
        scale = operations / looked_at
        self.operations += operations
        self.looked_at += math.ceil(looked_at / effect)
        self.value += scale * taken
        self.least += taken if effect == 1 else 0
        spread = max(0.0, squares - taken * taken / looked_at) * looked_at / max(1, looked_at - 1)
        left = 1 - 1 / (scale * effect)
        self.variance += left * scale * scale * effect * (effect + spread)

    def estimate(self, most: float = math.inf) -> Estimate:
        """The estimated number and its interval. Neither exceeds `most`."""
        half, most = Z * math.sqrt(self.variance), max(self.least, most)
        ends = max(self.least, min(self.value - half, most)), min(self.value + half, most)
        return Estimate(min(self.value, most), Interval(*ends, LEVEL))


def faults_inside(profile: Profile) -> Estimate | None:
    """The number of page faults within the allocator, estimated from the examined operations.

    Returns None if too many operations belong to strata in which no operation was examined.
    """
    timed, found = profile.tally.timed, _Inferred()
    for stratum in strata(profile.tally):
        places = list(stratum.paths)
        sums = (
            int(column[places].sum())
            for column in (timed.fault_operations, timed.faults, timed.faults_squared)
        )
        found.add(stratum.operations, *sums, effect=timed.effect(places))
    if found.unseen > UNTIMED_MAX * profile.operations or not found.looked_at:
        return None
    most = faults_total(profile).high
    return found.estimate(math.inf if most is None else most)


class EventLine(Struct, frozen=True):
    """The events of processor and kernel during the operations of one kind: see `tally.EVENTS`.

    Examples are instructions, cache misses and page faults. Events in the kernel do not count.
    Local and remote frees are one kind here.
    """

    name: str
    operations: int
    """The number of operations. Strata in which the events of no operation were counted are left
    out."""
    looked_at: int
    """The number of operations whose events were counted."""
    totals: dict[str, Estimate]
    """By name of an event: its estimated number in all `operations`."""

    def per_operation(self, event: str) -> Estimate:
        """The mean number of an event per operation."""
        return self.totals[event].over(self.operations)


FREES = "free"
"""The name of the line with all frees. Local and remote frees share this line, because only the
examined frees are known to be one or the other."""


def event_lines(profile: Profile) -> tuple[EventLine, ...]:
    """Returns a line for each kind of operation whose events were counted, and then their sum."""
    timed = profile.tally.timed
    refused = events_refused(profile)
    slots = {
        name: slot
        for process in profile.processes
        for slot, name in enumerate(process.events)
        if name and name not in refused
    }
    found: dict[str, dict[str, _Inferred]] = {}
    for stratum in strata(profile.tally):
        places = list(stratum.paths)
        kinds = {PATHS[place].kind for place in places}
        name = kinds.pop() if len(kinds) == 1 else FREES
        looked_at = int(timed.event_operations[places].sum())
        if not looked_at:
            continue
        for row in (FREES if name in FREED else name, TOTAL):
            for event, slot in slots.items():
                sums = (
                    int(column[places, slot].sum())
                    for column in (timed.events, timed.events_squared)
                )
                inferred = found.setdefault(row, {}).setdefault(event, _Inferred())
                inferred.add(stratum.operations, looked_at, *sums, effect=timed.effect(places))
    return tuple(
        EventLine(
            row,
            one.operations,
            one.looked_at,
            {event: sums.estimate() for event, sums in found[row].items()},
        )
        for row in (*KINDS, FREES, TOTAL)
        if row in found and (one := next(iter(found[row].values())))
    )


def events_refused(profile: Profile) -> dict[str, tuple[int, ...]]:
    """By name of each event that was refused in some process: the errno values of the refusals.

    A thread without a descriptor for each event (EMFILE) counts none. So EMFILE is a refusal only
    if no thread counted anything.
    """
    reasons: dict[str, set[int]] = {}
    counted = _counted_events(profile)
    for process in profile.processes:
        for event, error in zip(process.events, process.event_errnos, strict=True):
            if event and error and not (counted and error == errno.EMFILE):
                reasons.setdefault(event, set()).add(error)
    return {event: tuple(sorted(errors)) for event, errors in reasons.items()}


def some_threads_uncounted(profile: Profile) -> bool:
    """Whether some threads counted no events for want of descriptors, but others did count."""
    return _counted_events(profile) and any(
        error == errno.EMFILE for process in profile.processes for error in process.event_errnos
    )


def _counted_events(profile: Profile) -> bool:
    return bool(profile.tally.timed.event_operations.any())


def sees_all_calls(process: Process) -> bool:
    """Whether the probe saw all system calls of the allocator.

    It sees none in the threads whose system calls the program itself dispatches. `seen_errno` is
    then not 0.
    """
    return process.seen == "dispatch" and not process.seen_errno


SECTIONS_LEAST = 10
"""With fewer timed critical sections, their mean time says nothing about the others."""


class LockLine(Struct, frozen=True):
    """One kind of the allocator's locks. None means not measured."""

    name: str
    taken: int
    refused: int
    contended: int
    wait_ns: float | None
    max_wait_ns: float | None
    sections: int
    """The number of critical sections that were timed, which are a sample of all."""
    section_ns: float | None
    """The mean time of a critical section that was timed. None if fewer than SECTIONS_LEAST were
    timed, unless these are all."""
    max_section_ns: float | None
    """The longest time of a critical section that was timed."""


def lock_lines(profile: Profile) -> tuple[LockLine, ...]:
    """One line for each kind of lock that was taken or refused.

    The times still contain the time of reading the clock, about 10 ns.
    """
    locks, ticking = profile.tally.locks, clock(profile.tally)

    def ns(ticks: float) -> float | None:
        return float(ticks) * ticking.ns_per_tick if ticking else None

    def longest_ns(ticks: float, of: int) -> float | None:
        return ns(ticks) if ticks or not of else None

    found = []
    for place, name in enumerate(LOCKS):
        each = (locks.taken, locks.refused, locks.contended, locks.sections)
        taken, refused, contended, sections = (int(counts[place]) for counts in each)
        if not taken + refused:
            continue
        found.append(
            LockLine(
                name,
                taken,
                refused,
                contended,
                ns(locks.wait_ticks[place]),
                longest_ns(locks.most_wait_ticks[place], contended),
                sections,
                ns(locks.section_ticks[place] / sections)
                if sections >= min(SECTIONS_LEAST, max(1, taken))
                else None,
                longest_ns(locks.most_section_ticks[place], sections) if sections else None,
            )
        )
    return tuple(found)
