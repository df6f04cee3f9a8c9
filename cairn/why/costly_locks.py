"""The locks of two allocators side by side, by what the probe counted.

All functions are pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct

from cairn.model import LockSummary
from cairn.profile.lock_table import SHOWN, LockTable, LockUse
from cairn.why.parts import Side

RECORDS = "records in mapped memory"
"""The name for all locks outside libraries together. Their addresses differ from run to run."""


class LockCosts(Struct, frozen=True):
    """The locks of one contender, as means over its probed runs. None means not measured."""

    uses: tuple[LockSummary, ...]
    """The locks with the longest waits, and then those held longest. Locks whose numbers are not
    known in some run are left out."""
    locks: float
    """The number of different locks."""
    waited_for: float
    """The number of locks that some thread waited for."""


def summarized(table: LockTable | None) -> tuple[LockSummary, ...]:
    """The locks to store with a trial, the costliest first."""
    by_name: dict[str, list[LockUse]] = {}
    for one in table.uses if table is not None else ():
        by_name.setdefault(one.name if one.library else RECORDS, []).append(one)
    found = [
        LockSummary(
            name,
            _sum([one.taken for one in of]),
            sum(one.waits for one in of),
            _sum([one.wait_ns for one in of]),
            _sum([one.held_ns.value if one.held_ns is not None else None for one in of]),
        )
        for name, of in by_name.items()
    ]
    return tuple(sorted(found, key=_costliest)[:SHOWN])


def lock_costs(sides: Sequence[Side]) -> LockCosts | None:
    """The locks of one contender. None if they are not known in some run, or if it took no lock.

    The summary of a run has at most SHOWN locks, the costliest ones. If it has fewer, a missing
    lock was not taken. If it has SHOWN locks, the numbers of a missing lock are not known. Such a
    lock is left out.
    """
    known = [side.summary for side in sides if side.summary.locks_taken is not None]
    if len(known) < len(sides) or not any(one.locks for one in known):
        return None
    by_name: dict[str, list[LockSummary]] = {}
    for summary in known:
        for lock in summary.locks:
            by_name.setdefault(lock.name, []).append(lock)
    runs = len(known)
    full = [{lock.name for lock in one.locks} for one in known if len(one.locks) >= SHOWN]
    found = []
    for name, of in by_name.items():
        if any(name not in names for names in full):
            continue
        taken, wait_ns, held_ns = (
            _sum([getattr(one, what) for one in of]) for what in ("taken", "wait_ns", "held_ns")
        )
        found.append(
            LockSummary(
                name,
                None if taken is None else taken / runs,
                sum(one.waits for one in of) / runs,
                None if wait_ns is None else wait_ns / runs,
                None if held_ns is None else held_ns / runs,
            )
        )
    return LockCosts(
        tuple(sorted(found, key=_costliest)[:SHOWN]),
        statistics.fmean(one.locks_taken or 0 for one in known),
        statistics.fmean(one.locks_waited_for or 0 for one in known),
    )


def _costliest(one: LockSummary) -> tuple[float, float, str]:
    return -(one.wait_ns or 0.0), -(one.held_ns or 0.0), one.name


def _sum(numbers: Sequence[float | None]) -> float | None:
    """The sum; None if one of the numbers is None."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
