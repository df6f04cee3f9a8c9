"""Findings about threads that wait for each other in the allocator."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.clock_samples import AtomicSamples
from cairn.findings.kernel import QUEUEING, has_threads, limit_by, share_of_cpu
from cairn.model import Finding, Interval
from cairn.profile.estimates import LEVEL, Estimate, busy_ns
from cairn.profile.lock_table import LockTable, lock_table, thread_ns
from cairn.profile.processors import processor_time
from cairn.profile.tables import kernel_lines, lock_lines
from cairn.profile.tally import SPINNING, WAKING, Profile

QUEUES = "queues"
QUEUES_SAYS = "Threads wait for each other in the allocator"
ONE_LOCK_SAYS = "Threads wait for one lock of the allocator"
"""Said instead of QUEUES_SAYS if one lock has ONE_LOCK_LEAST of the waiting."""
ONE_LOCK_LEAST = 0.8
SLEEPING_LEAST = 0.8
"""Threads sleep, and do not wait for a lock, if sleeping is at least this share of the waiting."""
SLEEPING = "sleep"
QUEUES_ADVICE = "use an allocator with a heap for each thread, or let fewer threads allocate"
PER_THOUSAND_LEAST = 0.5
"""The least number of waits per 1,000 operations, for effects below SHARE_LARGE."""
SHARE_LEAST, SHARE_LARGE = 0.05, 0.15
"""The least waiting for a finding, as shares of the time of all threads. SHARE_LEAST applies if
there are PER_THOUSAND_LEAST waits per 1,000 operations, and SHARE_LARGE if there are fewer."""


FULL_LEAST = 0.95
"""The processors are full if the program uses at least this share of their time. The rest is then
little more than the beginning and the end of the program."""


def is_queueing(share: float, waits: float) -> bool:
    """Whether waiting matters: `share` of the threads' time, and `waits` per operation."""
    return share >= (SHARE_LEAST if waits * 1000 >= PER_THOUSAND_LEAST else SHARE_LARGE)


SPINS, CONTENDED = "spins", "contended-atomic"
ATOMIC_LEAST, ATOMIC_NS_LEAST = 0.05, 20.0
"""Atomic instructions are contended if their share of CPU time is larger by ATOMIC_LEAST than under
the other allocator, and their time in each operation by ATOMIC_NS_LEAST. Without contention, an
atomic instruction takes some 5 ns, and an operation has a few of them."""
SPINNING_LEAST = 0.2
"""The threads spin on a lock if at least this share of the samples at atomic instructions and
pauses is at pauses."""
PARALLEL_LEAST = 1.2
"""Threads run side by side if the sum of their life times is at least this multiple of the wall
time of the program."""


class AtomicCosts(Struct, frozen=True):
    """The time at atomic instructions and pauses under one allocator, compared with another."""

    effect: Estimate
    """The difference in this time, as a share of CPU time."""
    own_ns: float
    """The time in each operation, under the judged allocator and under the other one."""
    other_ns: float
    dearest: AtomicSamples
    """The function with the most samples."""
    pauses: float
    """The share of the samples at atomic instructions and pauses that are at pauses."""


def contended(costs: AtomicCosts) -> Finding | None:
    """Returns a finding if the threads of a program wait for a cache line of the allocator."""
    if (
        costs.effect.interval.low <= 0
        or costs.effect.value < ATOMIC_LEAST
        or costs.own_ns - costs.other_ns < ATOMIC_NS_LEAST
    ):
        return None
    spins = costs.pauses >= SPINNING_LEAST
    word = f" on {costs.dearest.word}" if costs.dearest.word else ""
    return Finding(
        name=SPINS if spins else CONTENDED,
        says="Threads spin on a lock of the allocator"
        if spins
        else "Threads write to the same words of the allocator by atomic instructions",
        of="CPU",
        effect=costs.effect.value,
        interval=costs.effect.interval,
        measured=True,
        evidence=(
            f"An operation takes {units.time(costs.own_ns)} at atomic instructions"
            f"{' and pauses' if spins else ''} against {units.time(costs.other_ns)}, most of it in "
            f"{costs.dearest.function} ({costs.dearest.library}){word}",
        ),
        advice=QUEUES_ADVICE,
    )


def one_lock(table: LockTable | None, waited: float) -> tuple[str, ...]:
    """Evidence about the lock that threads wait for.

    It is empty if no lock has most of the waiting: several locks may share it, or threads may sleep
    or yield without a lock. waited: the waiting time of the threads in ns, of all kinds.
    """
    uses = table.uses if table is not None else ()
    # Waits that only spin are in the table, and may be missing in `waited`.
    waited = max(waited, sum(one.wait_ns or 0.0 for one in uses))
    first = uses[0] if uses else None
    if first is None or not waited or (first.wait_ns or 0.0) < ONE_LOCK_LEAST * waited:
        return ()
    where = f" in {first.library}" if first.library and first.library not in first.name else ""
    share = (
        f"{units.percent(first.share, signed=False)} of the threads' time"
        if first.share is not None
        else units.time(first.wait_ns or 0.0)
    )
    taken = units.count(first.taken or 0)
    waits = f": {units.count(first.waits)} of {taken} acquisitions waited for it"
    return (f"One lock ({first.name}{where}) takes {share}{waits if first.taken else ''}",)


def queues(profile: Profile) -> Finding | None:
    """Returns a finding if threads wait for a lock, by sleeping or spinning.

    One thread alone cannot queue: `kernel.waits_alone` speaks of its waits. Yielding does not show
    that there is a lock: `kernel.yields` speaks of it.
    """
    whole = thread_ns(profile)
    calls = kernel_lines(profile)
    slept = [one for one in calls if one.name in QUEUEING]
    woken = [one for one in calls if one.name == WAKING]
    locks = [one for one in lock_lines(profile) if one.contended]
    # A thread may make several system calls until it has the lock for which it waits.
    by_call, by_lock = sum(one.count for one in slept), sum(one.contended for one in locks)
    waits, noun = max(by_call, by_lock), "waiting system call" if by_call > by_lock > 0 else "wait"
    in_calls = sum(one.total_ns or 0.0 for one in slept)
    for_locks = sum(one.wait_ns or 0.0 for one in locks)
    waited = max(in_calls, for_locks)
    if not profile.operations or not whole or not waits or not has_threads(profile):
        return None
    wakes = sum(one.count for one in woken)
    most = float(profile.tree.system_ns) if profile.tree is not None else math.inf
    # The wakes that count are no more than the waits. Further wakes are for the allocator's own
    # threads.
    waking = min(most, sum(one.total_ns or 0.0 for one in woken)) * min(
        1.0, waits / wakes if wakes else 0.0
    )
    share = min(1.0, (waited + waking) / whole)
    if not is_queueing(share, waits / profile.operations):
        return None
    different = profile.tally.contended_locks
    where = {0: "locks that are only visible as system calls", 1: "one lock"}.get(
        different, f"{different} locks"
    )
    if different and for_locks < ONE_LOCK_LEAST * waited:
        where += " and elsewhere"
    lock = one_lock(lock_table(profile), waited)
    of_calls_ns = sum(one.cpu_ns or 0.0 for one in slept) + waking
    spun_ns = sum(one.wait_ns or 0.0 for one in locks if one.name == SPINNING)
    found = Finding(
        name=QUEUES,
        says=ONE_LOCK_SAYS if lock else QUEUES_SAYS,
        of="thread time",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(
            *lock,
            f"{units.counted(waits, noun)} on {where}, {_frequency(waits / profile.operations)}, "
            f"{units.time(waited)} in all"
            f"{f', and {units.time(waking)} to wake waiting threads' if waking else ''}",
            *(f"{units.count(one.count)} {one.name}" for one in (*slept, *woken)),
        ),
        advice=QUEUES_ADVICE,
    )
    sleeps = [one for one in slept if one.name == SLEEPING]
    sleeping = sum(one.total_ns or 0.0 for one in sleeps)
    if not sleeping or sleeping < SLEEPING_LEAST * waited:
        return _within_processors(profile, found, of_calls_ns, spun_ns)
    times = sum(one.count for one in sleeps)
    other = max(in_calls - sleeping, for_locks) + waking
    others = (
        f"other waits take {units.time(other)}"
        if locks or woken or len(slept) > len(sleeps)
        else "no lock was seen for which the threads could wait"
    )
    found = replace(
        found,
        says="Threads sleep in the allocator",
        evidence=(
            f"{units.counted(times, 'sleep')}, {_frequency(times / profile.operations)}, "
            f"{units.time(sleeping)} in all; {others}",
        ),
        advice="use an allocator that does not sleep in its operations",
    )
    return _within_processors(profile, found, of_calls_ns, spun_ns)


def _within_processors(
    profile: Profile, found: Finding, of_calls_ns: float, spun_ns: float
) -> Finding:
    """Limits the effect of waiting to what the processors can give.

    A thread that no longer waits needs a processor. Without the waits, the program still needs all
    its CPU time except that of the waits. So it saves at most the time of the processors that is
    unused, and the CPU time of the waits. If the processors are full, the effect is this CPU time,
    as a share of all CPU time.

    of_calls_ns: the CPU time of the system calls that wait and wake. spun_ns: the time of the waits
        for spin locks. A thread that spins has a processor for a part of this time only, if there
        are more threads than processors.
    """
    of, busy = processor_time(profile), busy_ns(profile)
    if of is None or not busy:
        return found
    in_waits = share_of_cpu(profile, of_calls_ns, busy) * busy
    in_waits = min(busy, in_waits + spun_ns * min(1.0, busy / thread_ns(profile)))
    most = min(1.0, (of.unused + in_waits) / of.whole)
    if found.effect <= most:
        return found
    is_full = of.used_share >= FULL_LEAST
    effect, low = (in_waits / busy,) * 2 if is_full else (most, in_waits / of.whole)
    return replace(
        found,
        of="CPU" if is_full else found.of,
        effect=effect,
        interval=Interval(low, max(effect, most), LEVEL),
        evidence=(*found.evidence, limit_by(of)),
    )


def _frequency(each: float) -> str:
    """Returns a number of waits per operation as text, without an exponent."""
    scale, operations = (1e3, "1,000") if each >= 1e-5 else (1e6, "million")
    number = each * scale
    text = f"{number:.3g}" if number < 999.5 else units.count(number)
    return f"{text} per {operations} operations"
