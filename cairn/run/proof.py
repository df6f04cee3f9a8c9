"""What the witness wrote in the processes of one trial, judged: was the contender's library really in use? Pure.

The witness's contract is `src/witness/record.h`: a "start" record from every process image it reached, naming the
object that owns malloc, and an "exec" or "spawn" record for every program that a reached process executed. A dynamic
program that was executed and never started with the witness gave no proof, and a trial without proof is no result.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cairn.model import Contender, Proof, Unreached

_NAMED_AT_MOST = 50
_OUR_OWN = (
    "CAIRN_WITNESS",
    "CAIRN_LAUNCH",
    "CAIRN_PROBE",
    "CAIRN_RESULTS",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
)
"""Beginnings of names. What else begins with CAIRN_ is for our allocator, and a knob like any other."""


class _Owner(msgspec.Struct):
    path: str
    build_id: str | None = None


class _Record(msgspec.Struct):
    v: int
    event: str
    pid: int
    path: str = ""
    kind: str = ""
    exe: str = ""
    malloc: _Owner | None = None
    split: dict[str, str] = {}
    knobs: dict[str, str] = {}


@dataclass(slots=True)
class _Tree:
    """What happened in all processes, in the order of the records."""

    starts: list[_Record] = field(default_factory=list)
    started: Counter[int] = field(default_factory=Counter)
    owed: Counter[int] = field(default_factory=Counter)
    """Starts that each process should have recorded."""
    executed: dict[int, str] = field(default_factory=dict)
    """The dynamic program that a process executed last."""
    unreached: list[tuple[int, Unreached]] = field(default_factory=list)

    def add(self, record: _Record) -> None:
        """Takes the next record."""
        match record.event:
            case "start":
                self.starts.append(record)
                self.started[record.pid] += 1
            case "exec" | "spawn" if record.kind == "dynamic":
                self.owed[record.pid] += 1
                self.executed[record.pid] = _shown(record.path)
            case "exec" | "spawn":
                self.unreached.append(
                    (record.pid, Unreached(reason=record.kind, path=_shown(record.path)))
                )
            case "exec-failed" if record.kind == "dynamic":
                self.owed[record.pid] -= 1
            case "exec-failed":
                self._reach_again(record.pid)

    def _reach_again(self, pid: int) -> None:
        """The last program of this process that cannot be reached was not executed after all."""
        for place in range(len(self.unreached) - 1, -1, -1):
            if self.unreached[place][0] == pid:
                del self.unreached[place]
                return

    def silent(self) -> list[str]:
        """Programs that should have started with the witness and did not."""
        return [
            self.executed.get(pid, f"process {pid}")
            for pid, owed in self.owed.items()
            for _ in range(max(0, owed - self.started[pid]))
        ]


def _raw(text: str) -> bytes:
    """The bytes of a path: the witness writes each byte as one character."""
    return text.encode("latin-1", "replace")


def _shown(text: str) -> str:
    return _raw(text).decode("utf-8", "backslashreplace")


def _owns(contender: Contender, path: str) -> bool:
    if contender.owners:
        return path in contender.owners
    name = path.rpartition("/")[2]
    return name.startswith(("libc.so", "libc-", "ld-musl"))


def another_build(contender: Contender) -> str:
    """The sentence for a library that changed under a run."""
    return f"{contender.title} is another build than when this run began; begin a new one"


def _misplaced(contender: Contender, record: _Record, resolve: Callable[[str], str]) -> str | None:
    """Why this process does not use the contender; None if it does."""
    program = _shown(record.exe)
    if record.malloc is None:
        return f"{program} has no malloc that could be found"
    owner = resolve(os.fsdecode(_raw(record.malloc.path)))
    if not _owns(contender, owner):
        if owner == resolve(os.fsdecode(_raw(record.exe))):
            return f"{program} brings its own malloc: a preloaded allocator cannot replace it"
        return (
            f"in {program} malloc belongs to {_shown(record.malloc.path)}, not to {contender.title}"
        )
    built = record.malloc.build_id
    if contender.build_id and built and built != contender.build_id[: len(built)]:
        return another_build(contender)
    for function, path in record.split.items():
        other = resolve(os.fsdecode(_raw(path)))
        if not _owns(contender, other):
            return f"in {program} {function} belongs to {_shown(path)} while malloc belongs to {contender.title}"
    return None


def not_behind(
    contender: Contender, program: str, owner: str, resolve: Callable[[str], str]
) -> str | None:
    """Why the malloc that a probe called in `program`, which `owner` has, is not the contender's; None if it is."""
    if owner and _owns(contender, resolve(owner)):
        return None
    return f"in {program} the malloc that was called belongs to {owner or 'nobody known'}, not to {contender.title}"


def _has_own_malloc(record: _Record) -> bool:
    return record.malloc is not None and record.malloc.path == record.exe


def foreign_knobs(knobs: Mapping[str, str], contender: Contender) -> dict[str, str]:
    """Variables an allocator may read that neither the contender nor cairn set."""
    own = {name for name, _ in contender.knobs}
    return {
        _shown(name): _shown(value)
        for name, value in knobs.items()
        if name not in own and not name.startswith(_OUR_OWN)
    }


def _read(lines: Sequence[bytes]) -> tuple[list[_Record], int]:
    """The records, and how many lines are none: those a full disk tore."""
    records = []
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            records.append(msgspec.json.decode(line, type=_Record))
    return records, len(lines) - len(records)


def lost_preload(content: bytes) -> str | None:
    """The first program that was started with an environment that no longer preloads; seen while a trial still runs."""
    records, _ = _read(content.splitlines())
    for record in records:
        if record.kind == "environment" and record.event != "exec-failed":
            return _environment(_shown(record.path))
    return None


def _environment(path: str) -> str:
    return (
        f"{path} is started with a cleaned environment, so no allocator can be preloaded into it; "
        "name the program itself, without 'env -i' or the like"
    )


def judge(
    content: bytes, contender: Contender, main_pid: int, resolve: Callable[[str], str]
) -> Proof:
    """Whether every process that could prove the contender did.

    resolve: a path as the loader printed it, to the real path that `contender.owners` holds.
    """
    tree = _Tree()
    records, torn = _read(content.splitlines())
    for record in records:
        tree.add(record)
    tree.owed[main_pid] += 1

    loaded = 0
    own_malloc: list[Unreached] = []
    problem = f"{torn} lines of the witness's file are damaged; is the disk full?" if torn else None
    for record in tree.starts:
        misplaced = _misplaced(contender, record, resolve)
        if misplaced is None:
            loaded += 1
        elif _has_own_malloc(record) and record.pid != main_pid:
            own_malloc.append(Unreached(reason="own allocator", path=_shown(record.exe)))
        else:
            problem = problem or misplaced
    silent = tree.silent()
    unreached = [what for _, what in tree.unreached] + own_malloc
    lost = next((what for what in unreached if what.reason == "environment"), None)
    if lost is not None:
        problem = _environment(lost.path)
    elif problem is None and silent:
        where = "the command" if tree.started[main_pid] == 0 else silent[0]
        problem = f"{where} gave no proof of what it loaded ({len(silent)} of {len(silent) + len(tree.starts)} processes)"
    main = next((record for record in reversed(tree.starts) if record.pid == main_pid), None)
    return Proof(
        processes=len(tree.starts) + len(silent) + len(tree.unreached),
        loaded=loaded,
        owner=_shown(main.malloc.path) if main and main.malloc else None,
        unreached=tuple(unreached[:_NAMED_AT_MOST]),
        knobs=foreign_knobs(main.knobs, contender) if main else {},
        problem=problem,
    )
