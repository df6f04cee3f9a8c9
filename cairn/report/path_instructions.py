"""The report of `cairn profile --instructions`: text, JSON and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import StringIO

from cairn import units
from cairn.model import SCHEMA
from cairn.profile.path_instructions import (
    ALLOCATIONS,
    PATHS,
    SIZES,
    PathCount,
    PathInstructions,
)
from cairn.report import terminal
from cairn.report.formatting import printable
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.report.view import View

EXACT = 0.01
"""The figures are marked "≈" if more than this share of the allocations is counted in the wrong
path: in "new" although the memory was reused, or vice versa."""
_LEAST = 0.0001
"""A share below this one is printed as "< 0.01 %"."""
_NAMES = {"untold": "new or reused", "realloc": "resized", "free": "freed"}


def render(found: PathInstructions, view: View, *, allocator: str) -> str:
    """Returns a sentence with the allocator's share of the instructions, and the table of paths."""
    table = Table(
        title="",
        heads=("", "operations", "instructions", "each", "of the program"),
        rows=tuple(_rows(found)),
    )
    board = Board(
        title="",
        says=(_answer(found, printable(allocator)),),
        tables=(table,) if found.paths else (),
        footer=tuple(_notes(found)),
        failures=(),
    )
    return terminal.drawn(board, view, answer_first=True)


def document(found: PathInstructions, *, allocator: str, cairn: str) -> str:
    """Returns the counts as one JSON document."""
    parts = {
        "schema": SCHEMA,
        "cairn": cairn,
        "allocator": allocator,
        "processes": found.processes,
        "program_instructions": found.program,
        "allocator_instructions": found.allocator,
        "allocations_in_wrong_path": found.wrong,
        "nested_operations": found.nested,
        "paths": [
            {
                "path": path,
                "size": size,
                "operations": count.operations,
                "instructions": count.instructions,
                "each": count.each,
            }
            for path, size, count in _lines(found)
        ],
    }
    return json.dumps(parts, ensure_ascii=True, indent=1) + "\n"


def rows(found: PathInstructions) -> str:
    """Returns the counts as CSV, one row for each path and size."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("path", "size", "operations", "instructions", "each"))
    for path, size, count in _lines(found):
        writer.writerow((path, size, count.operations, count.instructions, count.each))
    return file.getvalue()


def _lines(found: PathInstructions) -> Iterator[tuple[str, str, PathCount]]:
    for path in PATHS:
        for size in SIZES:
            if count := found.paths.get((path, size)):
                yield path, size, count


def _rows(found: PathInstructions) -> Iterator[tuple[Cell, ...]]:
    for path, size, count in _lines(found):
        about = "≈ " if path in ("new", "reused") and _is_about(found) else ""
        yield (
            Cell(f"{_NAMES.get(path, path)}, {size}"),
            Cell(about + f"{count.operations:,}"),
            Cell(about + f"{count.instructions:,}"),
            Cell(about + f"{count.each or 0.0:,.1f}"),
            Cell(_share(count.instructions, found)),
        )


def _share(instructions: int, found: PathInstructions) -> str:
    share = instructions / found.program if found.program else 0.0
    return "< 0.01 %" if 0 < share < _LEAST else units.percent(share, signed=False)


def _is_about(found: PathInstructions) -> bool:
    return found.wrong > EXACT * sum(found.of(path).operations for path in ALLOCATIONS)


def _answer(found: PathInstructions, allocator: str) -> str:
    if not found.paths:
        return f"The program called no function of {allocator}."
    return (
        f"{allocator} takes {found.allocator:,} of the program's {found.program:,} instructions, "
        f"which is {_share(found.allocator, found)}."
    )


def _notes(found: PathInstructions) -> Iterator[str]:
    yield (
        "counted by callgrind in user mode, without the kernel's instructions, in "
        f"{units.counted(found.processes, 'process', 'processes')}; small is up to 1 KiB, medium "
        "up to 32 KiB"
    )
    if untold := found.of("untold").operations:
        yield (
            f"▲ for {units.counted(untold, 'allocation')} no earlier run says whether the memory "
            "is new or reused"
        )
    if found.wrong:
        yield (
            f"▲ {units.counted(found.wrong, 'allocation')} got new memory in one run and reused "
            "memory in the other, and may be counted in the wrong row"
        )
    if found.nested:
        yield (
            f"▲ the allocator called itself {units.counted(found.nested, 'time')} by a public "
            "name; each of these calls adds some 20 instructions of cairn's"
        )
