"""Puts together which processes of a program are not in its profile, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.model import Unreached
from cairn.profile.tally import Missing, Process


@dataclass(frozen=True, slots=True)
class Executed:
    """A program that a process without rights executed."""

    ns: int
    """When, on the clock of Process.begin_ns."""
    missing: Missing
    """What is said of it unless the probe recorded it."""


def missing_processes(
    unrecorded: Sequence[Missing],
    executed: Sequence[Executed],
    unreached: Sequence[tuple[int, Unreached]],
    processes: Sequence[Process],
) -> tuple[Missing, ...]:
    """Returns the processes that are not in the profile.

    unrecorded: those that the probe noted in the spare memory.
    executed: programs that the probe noted there before they began.
    unreached: (process id, program) for each program that the probe could not reach. One that the
        probe recorded nevertheless is left out: the witness may be unable to write where the probe
        can.
    processes: those in the profile.
    """
    recorded = {(one.pid, _name(one.program)) for one in processes}
    others = [(pid, _name(one.path), one.reason) for pid, one in unreached]
    return (
        *unrecorded,
        *(
            one.missing
            for one in executed
            if not any(p.pid == one.missing.pid and p.begin_ns >= one.ns for p in processes)
        ),
        *(
            Missing(pid, program, reason)
            for pid, program, reason in others
            if reason != "silent" or (pid, program) not in recorded
        ),
    )


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path
