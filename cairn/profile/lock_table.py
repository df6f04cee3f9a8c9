"""The allocator's locks, each by itself. All functions are pure.

Acquisitions, waits and waiting time are exact. The time for which a lock was held is estimated from
the timed critical sections, and scaled to all acquisitions. The probe times nearly all of the first
EARLY acquisitions of each lock, and a random sample of the later ones. The interval contains the
error of this sample. Each time still contains the time of reading the clock, about 10 ns.

Locks of the allocator's own making are known by the words on which they call futex. How often they
are taken is not known, and neither are waits that only spin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from cairn.model import Interval
from cairn.profile.estimates import LEVEL, Estimate, clock, probe_ns
from cairn.profile.tally import LockCount, Profile

SHOWN = 10
"""The number of locks that reports show."""
EARLY = 64
"""The probe times nearly all of the first EARLY critical sections of each lock. The number is
LOCK_EARLY of src/record/lock_record.h."""
_Z = 1.96
_SAMPLED_LEAST = 2
"""Fewer timed sections than this give no interval."""


class LockUse(Struct, frozen=True):
    """One lock of the allocator, summed over processes in which it has the same name.

    None means not measured.
    """

    name: str
    library: str
    """The file name of the library that contains the lock; "" for a lock in mapped memory."""
    kind: str
    taken: int | None
    waits: int
    """Number of acquisitions that had to wait. For a futex, it is the number of system calls that
    waited."""
    wait_ns: float | None
    share: float | None
    """The waiting time as a share of `thread_ns`."""
    held_ns: Estimate | None
    refused: int
    futex_waits: int
    futex_wait_ns: float | None


class LockTable(Struct, frozen=True):
    """All locks, the one with the longest waits first."""

    uses: tuple[LockUse, ...]
    locks: int
    """The number of different locks. Two processes may have a lock in mapped memory at the same
    address, which counts as two locks."""
    waited_for: int
    """The number of locks for which a thread waited."""


def thread_ns(profile: Profile) -> float:
    """The sum of the life times of all threads in ns, without the probe's part; 0 if not known.

    All shares of the threads' time are shares of this sum. The probe's part is an estimate. So at
    most half of the sum is subtracted for the probe.
    """
    ticking = clock(profile.tally)
    whole = profile.tally.threads_ticks * ticking.ns_per_tick if ticking is not None else 0.0
    return max(whole - (probe_ns(profile) or 0.0), whole / 2)


def lock_table(profile: Profile) -> LockTable | None:
    """The locks of a profile; None if only a part of the program's life was counted."""
    if profile.window is not None:
        return None
    ticking, lived_ns = clock(profile.tally), thread_ns(profile)
    each = ticking.ns_per_tick if ticking is not None else None
    by_name: dict[tuple[str, str, str], list[LockCount]] = {}
    for place, process in enumerate(profile.processes):
        for lock in process.locks:
            where = lock.library or f"process {place}"
            by_name.setdefault((lock.name, where, lock.kind), []).append(lock)
    uses = [_use(of, each, lived_ns) for of in by_name.values()]
    return LockTable(
        tuple(sorted(uses, key=_costliest)), len(uses), sum(1 for one in uses if one.waits)
    )


def _costliest(one: LockUse) -> tuple[float, float, int, str]:
    held = one.held_ns.value if one.held_ns is not None else 0.0
    return -(one.wait_ns or 0.0), -held, -(one.taken or 0), one.name


def _use(of: Sequence[LockCount], ns_per_tick: float | None, lived_ns: float) -> LockUse:
    first = of[0]
    is_futex = first.kind == "futex"
    futex_waits, futex_ticks = (
        sum(one.futex_waits for one in of), sum(one.futex_wait_ticks for one in of)
    )  # fmt: skip
    ticks = futex_ticks if is_futex else sum(one.wait_ticks for one in of)
    wait_ns = None if ns_per_tick is None else ticks * ns_per_tick
    held = None if is_futex else _held([one for one in of if one.taken])
    return LockUse(
        name=first.name,
        library=first.library,
        kind=first.kind,
        taken=None if is_futex else sum(one.taken for one in of),
        waits=futex_waits if is_futex else sum(one.contended for one in of),
        wait_ns=wait_ns,
        share=None if wait_ns is None or not lived_ns else min(1.0, wait_ns / lived_ns),
        held_ns=None
        if held is None or ns_per_tick is None
        else Estimate(
            held[0] * ns_per_tick,
            Interval(
                max(0.0, held[0] - held[1]) * ns_per_tick, (held[0] + held[1]) * ns_per_tick, LEVEL
            ),
        ),
        refused=sum(one.refused for one in of),
        futex_waits=futex_waits,
        futex_wait_ns=None if ns_per_tick is None else futex_ticks * ns_per_tick,
    )


def _held(of: Sequence[LockCount]) -> tuple[float, float] | None:
    """The ticks for which the locks `of` were held, and half the width of the interval.

    Returns None if too few critical sections were timed.
    """
    total = variance = 0.0
    for one in of:
        early, rest = min(one.taken, EARLY), max(0, one.taken - EARLY)
        if not one.early_sections and not one.sections:
            return None
        mean_early = (
            one.early_section_ticks / one.early_sections
            if one.early_sections
            else one.section_ticks / one.sections
        )
        total += early * mean_early
        if not rest:
            continue
        if one.sections < _SAMPLED_LEAST:
            return None
        mean = one.section_ticks / one.sections
        spread = one.section_ticks_squared - one.sections * mean * mean
        of_mean = max(0.0, spread) / (one.sections - 1) / one.sections
        total += rest * mean
        variance += rest * rest * of_mean
    return total, _Z * math.sqrt(variance)
