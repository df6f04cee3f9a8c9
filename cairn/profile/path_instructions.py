"""Counts the instructions of an allocator by path, from callgrind's files. All functions are pure.

A path is a kind of operation, such as an allocation of new memory. The program runs with the
library of `src/instructions`. This library calls the allocator from a function whose name says the
path and the size group, such as cairn_path_new_small. Callgrind counts the calls from one function
to another, and the instructions within these calls. So the instructions within the calls from
cairn_path_new_small are exactly those of the allocator in user mode for this path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from cairn.profile.callgrind_files import OWN, PATH_PREFIX, costs

PATHS = ("new", "reused", "untold", "realloc", "free")
"""The paths. The program runs twice: the first run finds out which allocations get new memory and
which get reused memory, and the second run counts. An allocation is "untold" if the first run did
not tell its path."""
SIZES = ("small", "medium", "large")
"""The size groups, by requested bytes: up to 1 KiB, up to 32 KiB, and above."""
ALLOCATIONS = ("new", "reused", "untold")


class PathCount(Struct, frozen=True):
    """The number of operations of one path and one size group, and their instructions."""

    operations: int = 0
    instructions: int = 0

    @property
    def each(self) -> float | None:
        """The mean number of instructions of an operation; None if there was no operation."""
        return self.instructions / self.operations if self.operations else None

    def plus(self, other: PathCount) -> PathCount:
        """The sum of both counts."""
        return PathCount(self.operations + other.operations, self.instructions + other.instructions)


class Account(Struct, frozen=True):
    """The account of one process, which the library of `src/instructions` wrote in the second run.

    It is struct history_account of src/instructions/history.h.
    """

    program: str
    owner: str
    """The path of the library that has the allocator's malloc."""
    allocations: int
    wrong: int
    """Number of allocations whose memory was new in one of the two runs and reused in the other.
    They are counted in the path of the first run."""
    nested: int
    """Number of operations within another operation: the allocator called one of its own public
    functions."""


class PathInstructions(Struct, frozen=True):
    """The instructions of a program and of its allocator."""

    paths: Mapping[tuple[str, str], PathCount] = field(default_factory=dict)
    """By path and size group: its count. A pair of them without an operation is absent."""
    program: int = 0
    """Instructions of the program with its libraries and the allocator."""
    processes: int = 0
    accounts: tuple[Account, ...] = ()

    @property
    def allocator(self) -> int:
        """The instructions of the allocator in all operations."""
        return sum(one.instructions for one in self.paths.values())

    @property
    def wrong(self) -> int:
        """Number of allocations that are counted in "new" but belong to "reused", or vice versa."""
        return sum(one.wrong for one in self.accounts)

    @property
    def nested(self) -> int:
        """Number of operations within other operations."""
        return sum(one.nested for one in self.accounts)

    def of(self, path: str) -> PathCount:
        """The count of a path, summed over all size groups."""
        total = PathCount()
        for (name, _), count in self.paths.items():
            total = total.plus(count) if name == path else total
        return total


def parsed(files: Iterable[Iterable[str]], accounts: Sequence[Account]) -> PathInstructions:
    """The sum of callgrind's files, each given by its lines. The files are read one by one.

    `processes` of the result does not count a process without instructions, such as one in which
    counting never began. Raises CutOff for a file that is cut off.
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
    program = 0
    for cost in costs(lines):
        number = cost.events[0]
        if cost.calls is None:
            program += 0 if cost.library.endswith(OWN) else number
        elif (key := _key(cost.function)) is not None:
            paths[key] = paths.get(key, PathCount()).plus(PathCount(cost.calls, number))
    return program


def _key(function: str) -> tuple[str, str] | None:
    """The path and the size group that a function's name says; None for other functions."""
    if not function.startswith(PATH_PREFIX):
        return None
    # Callgrind adds "'2" to the name of a function that began again within a signal handler.
    path, _, size = function.removeprefix(PATH_PREFIX).partition("'")[0].partition("_")
    return (path, size) if path in PATHS and size in SIZES else None
