"""Fits a table into a width without cutting a number, unit, sign or name.

A table that is too wide is narrowed in steps until it fits:

1. One space instead of two separates the columns; then heads also wrap at their spaces.
2. Without --full, optional parts are left out, in the table's order. `Fitted.missing` names them.
3. The table is divided: parts stand side by side while they fit, and the others follow below with
   the row names repeated.
4. Rows are stacked: the name of a row, and below it one line for each number. If such a line is
   too wide, the number is below its head, and both are wrapped at spaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len

from cairn.report.formatting import pieces, wrapped
from cairn.report.tables import Cell, Table

WIDE_GAP, NARROW_GAP = 2, 1
"""Spaces between two columns."""
_INDENT = "    "
"""The indent of the numbers below the name of a stacked row."""


class Fitted(Struct, frozen=True):
    """A table that fits a width."""

    parts: tuple[tuple[str, Table], ...]
    """Tables to draw one below the other, each with the line of text above the table, which may be
    empty. Heads may contain line breaks."""
    missing: tuple[str, ...] = ()
    """Heads of the parts that were left out."""


def fit(table: Table, width: int, *, full: bool = False) -> Fitted:
    """Returns the table for a screen of `width` columns."""
    for drawn in (table, replace(table, tight=True), _narrowed(table)):
        if _width(drawn) <= width:
            return Fitted((("", drawn),))
    parts = list(range(len(_parts(table))))
    missing: list[str] = []
    for part in () if full else table.optional:
        parts.remove(part)
        missing.append(_head_of(table, part))
        if _width(drawn := _narrowed(_of_parts(table, parts))) <= width:
            return Fitted((("", drawn),), tuple(missing))
    return Fitted(tuple(_divided(table, parts, width)), tuple(missing))


def _divided(table: Table, parts: Sequence[int], width: int) -> Iterator[tuple[str, Table]]:
    """Yields the tables of step 3, and those of step 4 for a part that is too wide by itself."""
    chosen: list[int] = []
    for part in parts:
        if chosen and _width(_narrowed(_of_parts(table, [*chosen, part]))) > width:
            yield "", _narrowed(_of_parts(table, chosen))
            chosen = []
        chosen.append(part)
        if len(chosen) == 1 and _width(_narrowed(_of_parts(table, chosen))) > width:
            yield from _stacked(_of_parts(table, chosen), width)
            chosen = []
    if chosen:
        yield "", _narrowed(_of_parts(table, chosen))


def _parts(table: Table) -> list[list[int]]:
    """Returns the columns of each part. The first column names the rows and belongs to no part."""
    count = len(table.heads) - 1
    lengths = table.parts or (1,) * count
    assert sum(lengths) == count, f"{table.heads} are not {lengths}"
    found, at = [], 1
    for length in lengths:
        found.append(list(range(at, at + length)))
        at += length
    return found


def _of_parts(table: Table, chosen: Sequence[int]) -> Table:
    parts = _parts(table)
    columns = [0, *(column for part in chosen for column in parts[part])]
    return replace(
        table,
        heads=tuple(table.heads[column] for column in columns),
        rows=tuple(tuple(row[column] for column in columns) for row in table.rows),
        parts=tuple(len(parts[part]) for part in chosen),
        optional=(),
    )


def _head_of(table: Table, part: int) -> str:
    return table.heads[_parts(table)[part][0]]


def _narrowed(table: Table) -> Table:
    """Returns the table with wrapped heads and the narrow gap."""
    heads = [table.heads[0]]
    for place, head in enumerate(table.heads[1:], start=1):
        cells = max((cell_len(row[place].text) for row in table.rows), default=0)
        heads.append(_wrapped(head, cells))
    return replace(table, heads=tuple(heads), tight=True)


def _wrapped(head: str, width: int) -> str:
    """Returns the head with line breaks.

    A line is at most as wide as `width` or as the longest unbreakable piece, whichever is wider.
    """
    return "\n".join(wrapped(head, max(width, *map(cell_len, pieces(head)))))


def _width(table: Table) -> int:
    """Returns the width of the table on the screen, in columns."""
    columns = [
        max(
            *(cell_len(line) for line in head.split("\n")),
            *(cell_len(row[place].text) for row in table.rows),
            0,
        )
        for place, head in enumerate(table.heads)
    ]
    gap = NARROW_GAP if table.tight else WIDE_GAP
    return sum(columns) + gap * (len(columns) - 1)


def _stacked(table: Table, width: int) -> Iterator[tuple[str, Table]]:
    for row in table.rows:
        pairs = [
            (head.replace("\n", " "), cell)
            for head, cell in zip(table.heads[1:], row[1:], strict=True)
            if cell.text
        ]
        rows = tuple((Cell(_INDENT + head), cell) for head, cell in pairs)
        made = Table("", ("", ""), rows, tight=True, texts=table.texts)
        if _width(made) > width:
            lines = [line for head, cell in pairs for line in _below(head, cell, width)]
            made = Table("", ("",), tuple((one,) for one in lines), tight=True, texts=table.texts)
        yield row[0].text, made


def _below(head: str, cell: Cell, width: int) -> Iterator[Cell]:
    """Yields the lines of a head, and those of its number below it with a further indent."""
    for line in wrapped(head, width - len(_INDENT)):
        yield Cell(_INDENT + line)
    for line in wrapped(cell.text, width - 2 * len(_INDENT)):
        yield replace(cell, text=2 * _INDENT + line)
