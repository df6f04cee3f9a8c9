"""The report of `cairn bench misuse`: a board for text and Markdown, JSON and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import StringIO

import msgspec

from cairn import units
from cairn.compare.misuse import CAUGHT, EXPLOITABLE, NEUTRAL, VERDICTS, MisuseTable
from cairn.model import SCHEMA
from cairn.report import markdown
from cairn.report.formatting import printable
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table

_SIGNS = {CAUGHT: "c", NEUTRAL: "·", EXPLOITABLE: "X"}


def board(found: MisuseTable, *, full: bool) -> Board:
    """Returns the counts of each contender, and a table of all cells.

    full: whether a third table says what happened in each exploitable cell.
    """
    tables = [_counts(found), _matrix(found)]
    if full:
        tables.append(_damage(found))
    *sizes, last = (f"{size:,}" for size in found.blocks)
    listed = f"{', '.join(sizes)} and {last}" if sizes else last
    return Board(
        title="Misuse of memory",
        says=tuple(_says(found)),
        tables=tuple(tables),
        footer=(
            f"A scenario has a sign for each size of block: {listed} bytes. "
            f"{_SIGNS[CAUGHT]} caught (the process was stopped, or the call failed), "
            f"{_SIGNS[NEUTRAL]} neutral (it went on, or made no progress, without damage), "
            f"{_SIGNS[EXPLOITABLE]} exploitable (damage was shown).",
            "A sign is the worst verdict of all attacks. Another attack may do damage where "
            "these do none.",
        ),
        failures=(),
    )


def _says(found: MisuseTable) -> Iterator[str]:
    """Yields a sentence with the number of exploitable cells of each contender, the least first."""
    scenarios, sizes = len(found.scenarios), len(found.blocks)
    ranked = sorted(found.contenders, key=lambda name: found.count(name, EXPLOITABLE))
    for place, name in enumerate(ranked):
        count = found.count(name, EXPLOITABLE)
        of = f"of {scenarios * sizes}"
        if place == 0:
            of += (
                f" cells ({units.counted(scenarios, 'scenario')} × "
                f"{units.counted(sizes, 'block size')}) are exploitable"
            )
        yield f"{_title(found, name)}: {count} {of}."


def _title(found: MisuseTable, name: str) -> str:
    """The printed name of a contender with its version, such as "system (glibc 2.36)"."""
    title = found.titles[found.contenders.index(name)]
    named = title == name or title.lower().startswith(name.lower() + " ")
    return printable(title if named else f"{name} ({title})")


def _counts(found: MisuseTable) -> Table:
    rows = tuple(
        (
            Cell(_title(found, name)),
            *(Cell(str(found.count(name, verdict))) for verdict in VERDICTS),
        )
        for name in found.contenders
    )
    return Table("", ("cells", *VERDICTS), rows)


def _matrix(found: MisuseTable) -> Table:
    """A row for each scenario, and a column for each contender.

    A cell has a sign for each block size, which says what the misuse did.
    """
    signs: dict[tuple[str, str], str] = {}
    for cell in found.cells:
        place = (cell.scenario, cell.contender)
        signs[place] = signs.get(place, "") + _SIGNS[cell.verdict]
    rows = tuple(
        (
            Cell(scenario.name),
            *(_signs(signs[scenario.name, contender]) for contender in found.contenders),
        )
        for scenario in found.scenarios
    )
    return Table("", ("scenario", *map(printable, found.contenders)), rows)


def _signs(text: str) -> Cell:
    return Cell(text, False if _SIGNS[EXPLOITABLE] in text else None)


def _damage(found: MisuseTable) -> Table:
    rows = tuple(
        (
            Cell(printable(cell.contender)),
            Cell(cell.scenario),
            Cell(f"{cell.block_bytes:,}"),
            Cell(printable(cell.how)),
        )
        for cell in found.cells
        if cell.verdict == EXPLOITABLE
    )
    return Table("", ("contender", "scenario", "bytes", "damage"), rows, texts=True)


def as_markdown(found: MisuseTable, *, full: bool, origin: str) -> str:
    """Returns the board as Markdown. `origin` says where and with which version it was made."""
    return markdown.plain_board(board(found, full=full), origin)


def as_json(found: MisuseTable, *, origin: str) -> str:
    """Returns the whole table as one JSON document."""
    parts = {"schema": SCHEMA, "origin": origin, **msgspec.to_builtins(found)}
    return json.dumps(parts, ensure_ascii=True, indent=1) + "\n"


def as_csv(found: MisuseTable) -> str:
    """Returns one row for each cell."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("contender", "scenario", "block_bytes", "verdict", "attack", "how"))
    for cell in found.cells:
        writer.writerow(
            (
                printable(cell.contender),
                cell.scenario,
                cell.block_bytes,
                cell.verdict,
                cell.attack,
                printable(cell.how),
            )
        )
    return file.getvalue()
