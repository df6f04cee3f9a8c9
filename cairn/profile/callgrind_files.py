"""Reads the files that callgrind writes, line by line. All functions are pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

PATH_PREFIX = "cairn_path_"
"""The beginning of the names of the functions in `src/instructions` that call the allocator."""
OWN = ("libcairn-instructions.so", "libcairn-witness.so")
"""The libraries of cairn in the process. Their events do not count for the program."""
_CALLS = re.compile(r"calls=(\d{1,18}) ")
_COST = re.compile(r"[+*\-0-9]\S*((?: \d{1,18})+)$")


class CutOff(Exception):
    """A file contains a line that callgrind cannot have written. The message is this line."""


class CallgrindCost(NamedTuple):
    """Events that happened in one function, or within calls from it."""

    function: str
    library: str
    """The path of the program or library that contains the function."""
    calls: int | None
    """The number of calls from the function in which the events happened; None if they happened in
    the function itself."""
    events: list[int]
    """How often each event happened, in the order of callgrind's line "events:". Callgrind leaves
    out zeros at the end."""


def costs(lines: Iterable[str]) -> Iterator[CallgrindCost]:
    """Yields the costs of one file in the order of its lines.

    Raises CutOff for a file that is cut off.
    """
    functions: dict[str, str] = {}
    libraries: dict[str, str] = {}
    function = library = ""
    calls: int | None = None
    for line in lines:
        if cost := _COST.match(line):
            yield CallgrindCost(
                function, library, calls, [int(number) for number in cost[1].split()]
            )
            calls = None
        elif line.startswith("fn="):
            function = _named(functions, line[3:])
        elif line.startswith("cfn="):
            _named(functions, line[4:])
        elif line.startswith("ob="):
            library = _named(libraries, line[3:])
        elif line.startswith("cob="):
            _named(libraries, line[4:])
        elif line.startswith("calls="):
            if (number_of := _CALLS.match(line)) is None:
                raise CutOff(line)
            calls = int(number_of[1])


def _named(names: dict[str, str], text: str) -> str:
    """The name that `text` stands for.

    Callgrind writes "(number) name" when a name first occurs, and "(number)" later. `names` has the
    names by number, and gets the new ones.
    """
    number, _, name = text.rstrip("\n").partition(" ")
    if name:
        names[number] = name
    return names.get(number, number)


def outside_allocator(files: Iterable[Iterable[str]], number: int) -> list[int]:
    """How often each of `number` events happened in the program and its libraries.

    The events within calls of the allocator, and those of cairn's own libraries, are left out. The
    program must run with the library of `src/instructions`. All files are added up; each is given
    by its lines. Raises CutOff for a file that is cut off.
    """
    total = [0] * number
    for lines in files:
        for cost in costs(lines):
            if cost.calls is None:
                sign = 0 if cost.library.endswith(OWN) else 1
            else:
                sign = -1 if cost.function.startswith(PATH_PREFIX) else 0
            if sign:
                for place, events in enumerate(cost.events[:number]):
                    total[place] += sign * events
    return total
