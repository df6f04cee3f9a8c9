"""The proof of load: judges from the witness's records whether a contender was really in use.

The witness is a library that is preloaded into every process of a trial. `src/witness/record.h`
describes its records. In every program that it is loaded into, the witness writes a "start" record,
which names the object that owns malloc, and an "exec" or "spawn" record for every program that this
program executes. If a dynamic program was executed but there is no "start" record of it, the proof
is missing, and the trial does not count. A process that another one kills before its program begins
needs no proof.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from cairn import units
from cairn.compare.endings import CRASHES
from cairn.model import Contender, Proof, Sample, Unreached, signal_name
from cairn.run.records import Record, raw, read, shown

_NAMED_AT_MOST = 50
"""The largest number of unreached programs that a proof lists."""
_OUR_OWN = (
    "CAIRN_WITNESS",
    "CAIRN_LAUNCH",
    "CAIRN_PROBE",
    "CAIRN_INSTRUCTIONS",
    "CAIRN_RESULTS",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
)
"""Beginnings of names of cairn's own variables.

Other variables that begin with CAIRN_ are knobs of cairn's allocator. They are treated like the
knobs of any other allocator.
"""


class _Tree(Struct):
    """The events of all processes of a trial, in the order of their records."""

    starts: list[Record] = field(default_factory=list)
    """All "start" records."""
    started: Counter[int] = field(default_factory=Counter)
    """By process id: the number of its "start" records."""
    owed: Counter[int] = field(default_factory=Counter)
    """By process id: the number of "start" records that the process should have written."""
    executed: dict[int, str] = field(default_factory=dict)
    """By process id: the dynamic program that it executed last."""
    unreached: list[tuple[int, Unreached]] = field(default_factory=list)
    """(process id, program) for each executed program that the witness cannot reach."""

    def add(self, record: Record) -> None:
        """Adds the next record."""
        match record.event:
            case "start":
                self.starts.append(record)
                self.started[record.pid] += 1
            case "exec" | "spawn" if record.kind == "dynamic":
                self.owed[record.pid] += 1
                self.executed[record.pid] = shown(record.path)
            case "exec" | "spawn":
                self.unreached.append(
                    (record.pid, Unreached(reason=record.kind, path=shown(record.path)))
                )
            case "exec-failed" if record.kind == "dynamic":
                self.owed[record.pid] -= 1
            case "exec-failed":
                self._reach_again(record.pid)
            case "wait" if self.owed[record.pid] > self.started[record.pid]:
                # If another process ended this one before its program began, no record is missing.
                self.owed[record.pid] -= _was_ended(record.status)

    def _reach_again(self, pid: int) -> None:
        """Removes the last entry of this process from `unreached`, because its exec() failed."""
        for place in range(len(self.unreached) - 1, -1, -1):
            if self.unreached[place][0] == pid:
                del self.unreached[place]
                return

    def silent(self) -> list[tuple[int, str]]:
        """(process id, program) for each dynamic program that wrote no "start" record."""
        return [
            (pid, self.executed.get(pid, f"process {pid}"))
            for pid, owed in self.owed.items()
            for _ in range(max(0, owed - self.started[pid]))
        ]


def _was_ended(status: int | None) -> bool:
    """Whether the process was ended by a signal that is not a sign of a crash, such as SIGKILL."""
    return (
        status is not None
        and os.WIFSIGNALED(status)
        and signal_name(os.WTERMSIG(status)) not in CRASHES
    )


def _owns(contender: Contender, path: str) -> bool:
    if contender.owners:
        return path in contender.owners
    name = path.rpartition("/")[2]
    return name.startswith(("libc.so", "libc-", "ld-musl"))


def without_proof(problem: str) -> str:
    """The failure of a run whose proof has this problem."""
    return f"failed: {problem}"


def unproven(sample: Sample) -> str | None:
    """The problem of the proof if it is the only reason why this run is not a result; else None."""
    problem = sample.proof.problem
    return problem if problem is not None and sample.failure == without_proof(problem) else None


def another_build(contender: Contender) -> str:
    """The error message for a library that changed after its run began."""
    return f"{contender.title} is another build than when this run began; begin a new run"


def _misplaced(contender: Contender, record: Record, resolve: Callable[[str], str]) -> str | None:
    """Why this process does not use the contender, as a sentence; None if it does."""
    program = shown(record.exe)
    if record.malloc is None:
        return f"no malloc was found in {program}"
    owner = resolve(os.fsdecode(raw(record.malloc.path)))
    if not _owns(contender, owner):
        if owner == resolve(os.fsdecode(raw(record.exe))):
            return f"{program} has its own malloc, which a preloaded allocator cannot replace"
        return (
            f"in {program} malloc belongs to {shown(record.malloc.path)}, not to {contender.title}"
        )
    built = record.malloc.build_id
    if contender.build_id and built and built != contender.build_id[: len(built)]:
        return another_build(contender)
    for function, path in record.split.items():
        other = resolve(os.fsdecode(raw(path)))
        if not _owns(contender, other):
            return (
                f"in {program} {function} belongs to {shown(path)} "
                f"while malloc belongs to {contender.title}"
            )
    return None


def not_behind(
    contender: Contender, program: str, owner: str, resolve: Callable[[str], str]
) -> str | None:
    """Why the malloc that the probe calls in `program` is not the contender's, as a sentence.

    owner: the object that owns this malloc; "" if it is not known. Returns None if the malloc is
    the contender's.
    """
    if owner and _owns(contender, resolve(owner)):
        return None
    return (
        f"in {program} the probe calls the malloc of {owner or 'an unknown object'}, "
        f"not that of {contender.title}"
    )


def _has_own_malloc(record: Record) -> bool:
    return record.malloc is not None and record.malloc.path == record.exe


def foreign_knobs(knobs: Mapping[str, str], contender: Contender) -> dict[str, str]:
    """The variables that an allocator may read and that neither the contender nor cairn set."""
    own = {name for name, _ in contender.knobs}
    return {
        shown(name): shown(value)
        for name, value in knobs.items()
        if name not in own and not name.startswith(_OUR_OWN)
    }


def lost_preload(content: bytes) -> str | None:
    """The error message if a program was started with an environment that drops the preload.

    None if there is no such program. The runner calls this during a trial, to end the trial early.
    """
    records, _ = read(content.splitlines())
    for record in records:
        if record.kind == "environment" and record.event != "exec-failed":
            return _environment(shown(record.path))
    return None


def _environment(path: str) -> str:
    return (
        f"{path} is started with a cleaned environment, so no allocator can be preloaded into it; "
        "start the program itself, without 'env -i' or the like"
    )


def unreached_processes(content: bytes) -> tuple[tuple[int, Unreached], ...]:
    """(process id, program) for each executed program that no preloaded library saw.

    A dynamic program that should have written a "start" record and did not has the reason "silent".

    content: the witness's file.
    """
    tree = _Tree()
    for record in read(content.splitlines())[0]:
        tree.add(record)
    own = [
        (record.pid, Unreached(reason="own allocator", path=shown(record.exe)))
        for record in tree.starts
        if _has_own_malloc(record)
    ]
    silent = [(pid, Unreached(reason="silent", path=path)) for pid, path in tree.silent()]
    return (*tree.unreached, *own, *silent)


def judge(
    content: bytes,
    contender: Contender,
    main_pid: int,
    resolve: Callable[[str], str],
    *,
    complete: bool = True,
) -> Proof:
    """Judges whether every process that can load the contender proved to have loaded it.

    content: the witness's file.
    main_pid: the process id of the command.
    resolve: maps a path as the loader printed it to a real path. `contender.owners` has real paths.
    complete: whether a program below the command that gave no proof is a problem. If false,
        unreached_processes() names these programs.
    """
    tree = _Tree()
    records, torn = read(content.splitlines())
    for record in records:
        tree.add(record)
    tree.owed[main_pid] += 1

    loaded = 0
    own_malloc: list[Unreached] = []
    problem = (
        f"{units.counted(torn, 'line')} of the witness's file {'is' if torn == 1 else 'are'} "
        "damaged; check whether the disk is full"
        if torn
        else None
    )
    for record in tree.starts:
        misplaced = _misplaced(contender, record, resolve)
        if misplaced is None:
            loaded += 1
        elif _has_own_malloc(record) and record.pid != main_pid:
            own_malloc.append(Unreached(reason="own allocator", path=shown(record.exe)))
        else:
            problem = problem or misplaced
    silent = tree.silent()
    unreached = [what for _, what in tree.unreached] + own_malloc
    lost = next((what for what in unreached if what.reason == "environment"), None)
    begun = tree.started[main_pid] != 0
    if lost is not None and complete:
        problem = _environment(lost.path)
    elif problem is None and silent and (complete or not begun):
        where = silent[0][1] if begun else "the command"
        problem = (
            f"{where} gave no proof of what it loaded "
            f"({len(silent)} of {len(silent) + len(tree.starts)} processes)"
        )
    main = next((record for record in reversed(tree.starts) if record.pid == main_pid), None)
    return Proof(
        processes=len(tree.starts) + len(silent) + len(tree.unreached),
        loaded=loaded,
        owner=shown(main.malloc.path) if main and main.malloc else None,
        unreached=tuple(unreached[:_NAMED_AT_MOST]),
        knobs=foreign_knobs(main.knobs, contender) if main else {},
        problem=problem,
    )
