"""Reads the mappings of a process, and adds them up by kind.

/proc/PID/smaps has each mapping with its numbers. The stacks of threads are found by the threads'
stack pointers. The kernel shows the stack pointer of a thread only while the thread waits. A thread
that runs all the time may be missed: its stack then counts as "anonymous".
"""

from __future__ import annotations

import contextlib
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Map

from msgspec import Struct

from cairn.inspect.facts import Kind, MappingSum
from cairn.inspect.process import Target, threads

_HEAD = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) ([r-])([w-])([x-])([ps]) ([0-9a-f]+) [0-9a-f]+:[0-9a-f]+ (\d+) *(.*)"
)
_THREADS_MOST = 1000
"""The most threads whose stacks are looked for."""
_TURNS, _TURN_S = 10, 0.002
"""The most attempts to read the stack pointer of a thread, and the seconds between two of them. The
kernel does not show the stack pointer of a thread that runs."""
_DELETED = " (deleted)"
_KINDS: tuple[Kind, ...] = (
    "heap", "anonymous", "stacks", "shared memory", "huge page files", "files", "kernel",
)  # fmt: skip
_SHARED_FILES = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "/i915", "/dmabuf")
"""The beginnings of the paths of memory that has a name and is no file of a disk."""


class Mapping(Struct, frozen=True):
    """One mapping of a process."""

    start: int
    end: int
    is_writable: bool
    is_executable: bool
    is_shared: bool
    offset: int
    path: str
    """The path of the file, without the " (deleted)" that the kernel may append; or a name in
    brackets. It is empty for anonymous memory."""
    inode: int = 0
    is_deleted: bool = False
    numbers: Map[str, int] | None = None
    """The sizes in bytes from /proc/PID/smaps, by their names there, without those that are 0. None
    if only /proc/PID/maps was read."""

    @property
    def is_file(self) -> bool:
        """Whether the mapping is of a file on a disk, such as a program or a library."""
        return self.path.startswith("/") and not self.path.startswith(_SHARED_FILES)


def read_maps(target: Target) -> tuple[Mapping, ...]:
    """The mappings in the order of their addresses, without numbers."""
    return _parsed(target.lines("maps"))


def read_smaps(target: Target) -> tuple[Mapping, ...]:
    """The mappings in the order of their addresses, with their numbers."""
    return _parsed(target.lines("smaps"))


def _parsed(lines: Iterable[str]) -> tuple[Mapping, ...]:
    found: list[Mapping] = []
    numbers: dict[str, int] = {}
    for line in lines:
        head = _HEAD.fullmatch(line)
        if head is None:
            name, _, rest = line.partition(":")
            if rest.endswith(" kB") and not rest.endswith(" 0 kB"):
                with contextlib.suppress(ValueError):
                    numbers[name] = int(rest[:-3]) << 10
            continue
        start, end, _, writable, executable, shared, offset, inode, path = head.groups()
        is_deleted = path.endswith(_DELETED)
        numbers = {}
        found.append(
            Mapping(
                int(start, 16), int(end, 16), writable == "w", executable == "x", shared == "s",
                int(offset, 16), path.removesuffix(_DELETED), int(inode), is_deleted,
                numbers,
            )
        )  # fmt: skip
    return tuple(found)


def at(mappings: Sequence[Mapping], address: int) -> Mapping | None:
    """The mapping that contains an address."""
    index = bisect_right(mappings, address, key=lambda one: one.start) - 1
    return mappings[index] if index >= 0 and address < mappings[index].end else None


def stacks(target: Target, mappings: Sequence[Mapping]) -> frozenset[int]:
    """The starts of the mappings that are stacks of threads."""
    found = {one.start for one in mappings if one.path.startswith("[stack")}
    left = threads(target)[:_THREADS_MOST]
    for turn in range(_TURNS):
        running = []
        for thread in left:
            pointer = _stack_pointer(target, thread)
            if pointer is None:
                running.append(thread)
            # Only anonymous memory counts as a stack. A runtime may point the stack pointer of a
            # thread to other memory.
            elif (its := at(mappings, pointer)) is not None and (
                not its.path or its.path.startswith("[anon")
            ):
                found.add(its.start)
        if not running or turn == _TURNS - 1:
            break
        left = running
        time.sleep(_TURN_S)
    return frozenset(found)


def _stack_pointer(target: Target, thread: int) -> int | None:
    """The thread's stack pointer; None if it runs, and 0 if it has ended or nothing is known."""
    try:
        with open(f"/proc/{target.pid}/task/{thread}/syscall", encoding="ascii") as file:
            words = file.read().split()
    except OSError:
        return 0
    # The file has the word "running", or it has the number and the arguments of the system call,
    # the stack pointer, and the address of the next instruction.
    if words == ["running"]:
        return None
    return int(words[-2], 16) if len(words) >= 3 else 0


def kind_of(mapping: Mapping, stacks_at: frozenset[int]) -> Kind:
    """The kind of a mapping."""
    path = mapping.path
    if mapping.start in stacks_at:
        return "stacks"
    if path == "[heap]":
        return "heap"
    if path.startswith(("[v", "[uprobes]")):
        return "kernel"
    if path.startswith("/anon_hugepage") or _is_huge(mapping):
        return "huge page files"
    if path.startswith(_SHARED_FILES) or (mapping.is_shared and not path.startswith("/")):
        return "shared memory"
    return "files" if path.startswith("/") else "anonymous"


def _is_huge(mapping: Mapping) -> bool:
    return (mapping.numbers or {}).get("KernelPageSize", 0) >= 1 << 20


def sums(mappings: Sequence[Mapping], stacks_at: frozenset[int]) -> tuple[MappingSum, ...]:
    """The mappings added up by kind, in a fixed order, without kinds that do not occur."""
    by: dict[Kind, list[Mapping]] = {}
    for one in mappings:
        by.setdefault(kind_of(one, stacks_at), []).append(one)
    return tuple(_sum(kind, by[kind]) for kind in _KINDS if kind in by)


def _sum(kind: Kind, of: Sequence[Mapping]) -> MappingSum:
    def total(*names: str) -> int:
        return sum((one.numbers or {}).get(name, 0) for one in of for name in names)

    reserved = total("Shared_Hugetlb", "Private_Hugetlb")
    return MappingSum(
        kind=kind,
        mappings=len(of),
        size=sum(one.end - one.start for one in of),
        resident=total("Rss") + reserved,
        proportional=total("Pss") + reserved,
        private_dirty=total("Private_Dirty", "Private_Hugetlb"),
        swapped=total("Swap"),
        lazily_freed=total("LazyFree"),
        huge=total("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped") + reserved,
    )
