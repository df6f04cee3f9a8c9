"""Puts together which processes of a program are not in its profile, and why."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairn.model import Unreached
from cairn.profile.tally import Missing, Process, Profile, lasting


class Executed(Struct, frozen=True):
    """A program that was executed by a process which could not write the witness's file.

    The process had given up its rights. So the probe noted the program in the spare memory.
    """

    ns: int
    """The time of the execution, by the same clock as Process.begin_ns."""
    missing: Missing
    """The entry for the program, in case the probe did not record it."""


def missing_processes(
    unrecorded: Sequence[Missing],
    executed: Sequence[Executed],
    unreached: Sequence[tuple[int, Unreached]],
    processes: Sequence[Process],
) -> tuple[Missing, ...]:
    """Returns the processes that are not in the profile.

    unrecorded: the processes that could not be recorded, as noted in the spare memory.
    executed: the programs that were noted in the spare memory before they began. A program that
        the probe recorded afterwards is left out.
    unreached: (process id, program) for each program that the probe did not reach, as far as the
        witness saw. A program that the probe recorded nevertheless is left out: the witness may
        have been unable to write its file, while the probe could write its own.
    processes: the processes in the profile.
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


class ProcessCounts(Struct, frozen=True):
    """The numbers of processes of a program."""

    recorded: int
    """The processes in the profile."""
    missing: int
    """The processes of which at least one program is not in the profile."""
    together: int
    """All known processes. The profile may have an earlier program of a missing process. Such a
    process counts only once here."""


def process_counts(profile: Profile) -> ProcessCounts:
    """Returns the numbers of the processes of a profile."""
    recorded = lasting(profile.processes)
    pids = {one.pid for one in profile.missing} - {0}
    missing = len(pids) + sum(1 for one in profile.missing if not one.pid)
    together = missing + sum(1 for one in recorded if one.pid not in pids)
    return ProcessCounts(len(recorded), missing, together)


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path
