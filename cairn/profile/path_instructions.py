"""Instructions of an allocator by path, from callgrind's files. All functions are pure.

The library of `src/instructions` calls each function of the allocator from a function whose name is
the path and the size group, such as cairn_path_new_small. Callgrind writes how often each function
calls another one, and how many instructions these calls take, callees included. These are the
allocator's instructions in user mode, exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

PATHS = ("new", "reused", "untold", "realloc", "free")
"""Untold are allocations of which the earlier run did not say whether their memory was new."""
SIZES = ("small", "medium", "large")
"""Up to 1 KiB, up to 32 KiB, and above, by bytes requested."""
ALLOCATIONS = ("new", "reused", "untold")

_PREFIX = "cairn_path_"
_OWN = ("libcairn-instructions.so", "libcairn-witness.so")
"""Libraries of cairn, whose instructions are not the program's."""
_CALLS = re.compile(r"calls=(\d{1,18}) ")
_COST = re.compile(r"[+*\-0-9]\S* (\d{1,18})$")


@dataclass(frozen=True, slots=True)
class PathCount:
    """The operations of one path and one size group."""

    operations: int = 0
    instructions: int = 0

    @property
    def each(self) -> float | None:
        """Instructions of an operation; None if there was no operation."""
        return self.instructions / self.operations if self.operations else None

    def plus(self, other: PathCount) -> PathCount:
        """The sum of both."""
        return PathCount(self.operations + other.operations, self.instructions + other.instructions)


@dataclass(frozen=True, slots=True)
class Account:
    """What the library told of one process."""

    program: str
    owner: str
    """The library that has the allocator's malloc."""
    allocations: int
    wrong: int
    """Allocations whose memory was new in one run and reused in the other one."""
    nested: int
    """Calls within an operation: the allocator called a public function of its own."""


@dataclass(frozen=True, slots=True)
class PathInstructions:
    """The instructions of a program and of its allocator."""

    paths: Mapping[tuple[str, str], PathCount] = field(default_factory=dict)
    """By path and size group; without those that had no operation."""
    program: int = 0
    """Instructions of the program with its libraries and the allocator."""
    processes: int = 0
    accounts: tuple[Account, ...] = ()

    @property
    def allocator(self) -> int:
        """Instructions of the allocator in all operations."""
        return sum(one.instructions for one in self.paths.values())

    @property
    def wrong(self) -> int:
        """Allocations that are counted in the wrong one of the paths new and reused."""
        return sum(one.wrong for one in self.accounts)

    @property
    def nested(self) -> int:
        """Operations within other operations."""
        return sum(one.nested for one in self.accounts)

    def of(self, path: str) -> PathCount:
        """All sizes of a path together."""
        total = PathCount()
        for (name, _), count in self.paths.items():
            total = total.plus(count) if name == path else total
        return total


class CutOff(Exception):
    """Callgrind cannot have written this line; the text is the line."""


def parsed(files: Iterable[Iterable[str]], accounts: Sequence[Account]) -> PathInstructions:
    """The sum of callgrind's files, each given by its lines. The files are read one by one.

    A process that executed no instruction is left out, such as one in which counting never began.
    Raises CutOff for a file that is cut off.
    """
    paths: dict[tuple[str, str], PathCount] = {}
    program = processes = 0
    for lines in files:
        counted = _one(lines, paths)
        program += counted
        processes += counted > 0
    return PathInstructions(paths, program, processes, tuple(accounts))


def _one(lines: Iterable[str], paths: dict[tuple[str, str], PathCount]) -> int:
    """Adds the paths of one file to `paths`. Returns the program's instructions."""
    functions: dict[str, str] = {}
    objects: dict[str, str] = {}
    function = owner = ""
    calls: int | None = None
    program = 0
    for line in lines:
        if cost := _COST.match(line):
            number = int(cost[1])
            if calls is None:
                program += 0 if owner.endswith(_OWN) else number
            elif (key := _key(function)) is not None:
                paths[key] = paths.get(key, PathCount()).plus(PathCount(calls, number))
            calls = None
        elif line.startswith("fn="):
            function = _named(functions, line[3:])
        elif line.startswith("cfn="):
            _named(functions, line[4:])
        elif line.startswith("ob="):
            owner = _named(objects, line[3:])
        elif line.startswith("cob="):
            _named(objects, line[4:])
        elif line.startswith("calls="):
            if (number_of := _CALLS.match(line)) is None:
                raise CutOff(line)
            calls = int(number_of[1])
    return program


def _named(names: dict[str, str], text: str) -> str:
    """The name in "(number) name", or the one that the number had before."""
    number, _, name = text.rstrip("\n").partition(" ")
    if name:
        names[number] = name
    return names.get(number, number)


def _key(function: str) -> tuple[str, str] | None:
    """The path and the size group of a function of the library; None for other functions."""
    if not function.startswith(_PREFIX):
        return None
    # Callgrind adds '2 to the name of a function that a signal handler entered again.
    path, _, size = function.removeprefix(_PREFIX).partition("'")[0].partition("_")
    return (path, size) if path in PATHS and size in SIZES else None
