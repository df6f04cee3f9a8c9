"""Counts how the processes of a trial ended, from the records of witness and launcher.

There are two kinds of records. A process that ends by itself writes a mark before it ends. A
process that waits for a child records the status of the child, unless the status is 0. The launcher
waits for the command and for orphans. If a process has both a mark and a status, the status counts,
because the process may have crashed after its mark. A process with neither was not seen to end.

A process counts under the last program that it executed. The name of a program is the last
component of its file, so a script counts under its interpreter. A forked child has the name of its
parent until it executes another program.

Process numbers are reused. The records of a number are therefore read in order: after a mark or a
status, the next record belongs to another process. All functions are pure.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping

from msgspec import Struct, field

from cairn.model import NOT_SEEN, signal_name
from cairn.run.records import Record, read, shown

UNKNOWN = "unknown program"
"""The name of an orphan that wrote no record, such as the child of a static program."""
COMPARED = "the program"
"""The common name of several programs that are compared with each other (option -p)."""
_NAME_BYTES = 60
"""The most bytes of a name in a record; PROGRAM_BYTES in src/witness/endings.c."""
_SHELL = "sh"
"""The name of a process of system() or popen() that was killed before it wrote a record."""


class _Process(Struct):
    """A process that is not known to have ended."""

    program: str
    parent: int = 0
    """The number of its parent; 0 if it is not known."""
    before: list[str] = field(default_factory=list)
    """The earlier programs of the process: one for each exec whose success is not known yet. If the
    exec fails, the process goes back to its earlier program."""
    mark: int | None = None
    """The status in the process's own mark that it ends; None without a mark."""

    @property
    def executes(self) -> bool:
        """Whether the process executes a program that has not written its "start" yet."""
        return bool(self.before)


class _Processes:
    """The processes of one trial."""

    def __init__(self) -> None:
        self._alive: dict[int, _Process] = {}
        self._ended: list[tuple[str, str]] = []
        """(program, ending) for each process that has ended."""
        self._waited: dict[int, int] = {}
        """By process id: the status that the last wait for a process with this id returned."""
        self._guessed: dict[int, int] = {}
        """By process id: the index in `_ended` of a process whose program is only guessed to be
        that of its parent. A later record "spawn" names the right program."""

    def add(self, record: Record) -> None:
        """Adds the next record."""
        pid = record.pid
        match record.event:
            case "fork":
                self._begin(pid, _Process(shown(record.program), record.ppid))
            case "start":
                self._start(record)
            case "exec":
                process = self._at(pid)
                process.before.append(process.program)
                process.program = _name(record.path)
            case "exec-failed":
                process = self._at(pid)
                if process.before:
                    process.program = process.before.pop()
            case "spawn":
                self._spawn(record)
            case "end":
                # A process may mark its end twice: by quick_exit() and by a handler's _exit().
                process = self._alive.get(pid) or self._begin(pid, _Process(""))
                if process.executes or not process.program:
                    process.program = shown(record.program)
                process.mark = record.status
            case "wait" if pid == 0:
                self._waited_in_libc(record)
            case "wait":
                self._wait(record)

    def _at(self, pid: int) -> _Process:
        """The running process with this number. If none is known, a new one is added."""
        process = self._alive.get(pid)
        if process is None or process.mark is not None:
            process = self._begin(pid, _Process(""))
        return process

    def _begin(self, pid: int, process: _Process) -> _Process:
        """Adds a process.

        If an earlier process with its number seems to run, that process ended without a record.
        """
        if pid in self._alive:
            self._end(pid, None)
        self._alive[pid] = process
        return process

    def _end(self, pid: int, status: int | None) -> None:
        """Ends a process. `status` is the status that a wait returned; None without a wait."""
        process = self._alive.pop(pid)
        known = process.mark if status is None else status
        self._ended.append((process.program or UNKNOWN, _ending(known)))

    def _start(self, record: Record) -> None:
        process = self._alive.get(record.pid)
        goes_on = (
            process is not None
            and process.mark is None
            and (process.executes or process.parent == record.ppid)
        )
        if process is None or not goes_on:
            process = self._begin(record.pid, _Process(""))
        process.program = _name(record.exe)
        process.parent = record.ppid
        process.before.clear()

    def _spawn(self, record: Record) -> None:
        """Handles the parent's record of a child, which may come at any time after its start."""
        pid = record.pid
        if record.kind != "dynamic" and pid in self._guessed:
            place = self._guessed.pop(pid)
            self._ended[place] = (_name(record.path), self._ended[place][1])
        elif pid not in self._alive and pid not in self._waited:
            self._alive[pid] = _Process(_name(record.path), before=[""])

    def _wait(self, record: Record) -> None:
        pid, status = record.pid, record.status
        if pid in self._alive:
            process = self._alive[pid]
            process.program = process.program or shown(record.program)
            self._end(pid, None if record.killed else status)
        elif status is None or self._waited.get(pid) == status:
            return  # A debugger has already waited for this process.
        else:
            self._guessed[pid] = len(self._ended)
            ending = NOT_SEEN if record.killed else _ending(status)
            self._ended.append((shown(record.program) or UNKNOWN, ending))
        if status is not None:
            self._waited[pid] = status

    def _waited_in_libc(self, record: Record) -> None:
        """Handles a wait of system() or pclose(), which do not tell the number of the child."""
        children = [(pid, child) for pid, child in self._alive.items() if child.parent == record.by]
        marked = [pid for pid, child in children if child.mark == record.status]
        unmarked = [pid for pid, child in children if child.mark is None]
        if marked:
            self._end(marked[0], record.status)
        elif unmarked:
            self._end(unmarked[-1], record.status)
        elif record.status is not None and os.WIFSIGNALED(record.status):
            self._ended.append((_SHELL, _ending(record.status)))

    def counted(self) -> dict[str, dict[str, int]]:
        """The number of each ending, by program. Processes still alive were not seen to end."""
        for pid in list(self._alive):
            self._end(pid, None)
        counts: dict[str, Counter[str]] = {}
        for program, ending in self._ended:
            counts.setdefault(program, Counter())[ending] += 1
        return {program: dict(sorted(counts[program].items())) for program in sorted(counts)}


def _name(path: str) -> str:
    """The name of a program, cut as the witness cuts it in its other records."""
    return shown(path.rpartition("/")[2][:_NAME_BYTES])


def _ending(status: int | None) -> str:
    """The name of an ending, from a status as wait(2) returns it."""
    if status is None:
        return NOT_SEEN
    if os.WIFEXITED(status):
        return f"exit {os.WEXITSTATUS(status)}"
    return signal_name(os.WTERMSIG(status))


def endings(content: bytes, compared: Collection[str] = ()) -> Mapping[str, Mapping[str, int]]:
    """How the processes of a trial ended: the number of each ending, by program.

    content: the witness's file, to which the launcher has appended its own records.
    compared: the names of the programs that are compared with each other, if they have different
        names. The result has them under the common name COMPARED, because endings are compared by
        name.
    """
    tree = _Processes()
    for record in read(content.splitlines())[0]:
        tree.add(record)
    counted = tree.counted()
    if len(compared) < 2:
        return counted
    names = {_name(one) for one in compared}
    merged: dict[str, Counter[str]] = {}
    for name, of in counted.items():
        merged.setdefault(COMPARED if name in names else name, Counter()).update(of)
    return {name: dict(of) for name, of in merged.items()}
