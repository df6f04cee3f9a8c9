"""The score of the findings: a row for each ill allocator, and one for each healthy one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from cairn import units
from cairn.report.formatting import printable
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.why.ill_allocators import ILL, Ill, Told


def board(told: Sequence[Told]) -> Board:
    """Returns the score as a board. Its first sentence has the three totals.

    A case that failed was not judged. It counts in no total, and is listed as a failure.
    """
    judged = [one for one in told if not one.why_not]
    known, healthy = (
        [one for one in judged if bool(one.right) is is_ill] for is_ill in (True, False)
    )
    first, named = sum(one.first for one in known), sum(one.named for one in known)
    false = sum(len(one.false) for one in judged)
    says = (
        f"Of {units.counted(len(known), 'case')} of ill allocators, the cause was named first in "
        f"{first} ({_percent(first, len(known))}) and named at all in {named} "
        f"({_percent(named, len(known))}). "
        f"{units.counted(false, 'finding was', 'findings were')} false, "
        f"{sum(len(one.false) for one in healthy)} of them about healthy allocators in "
        f"{units.counted(len(healthy), 'case')}.",
    )
    tables = (
        Table(
            "",
            ("ill allocator", "to be named", "first", "named", "false", "named first instead"),
            tuple(_rows(known)),
            texts=True,
        ),
        Table(
            "",
            ("healthy allocator", "programs", "findings", "false"),
            tuple(_healthy_rows(healthy)),
        ),
    )
    return Board(
        title="Findings",
        says=says,
        tables=tuple(table for table in tables if table.rows),
        footer=(
            "a case: one allocator on one program · false: without the cause, the program gains "
            "less than half of the effect · ill allocators are compared with the system's, on "
            "which they are built, and healthy ones with the best healthy one",
        ),
        failures=tuple(
            printable(f"{one.allocator}, {one.program}: {one.why_not}")
            for one in told
            if one.why_not
        ),
    )


def _percent(part: int, whole: int) -> str:
    return units.percent(part / whole, signed=False) if whole else "0 %"


def _rows(told: Sequence[Told]) -> Iterator[tuple[Cell, ...]]:
    for ill in ILL:
        its = [one for one in told if one.allocator == ill.name]
        if its:
            yield _row(ill, its)


def _row(ill: Ill, its: Sequence[Told]) -> tuple[Cell, ...]:
    first, named = sum(one.first for one in its), sum(one.named for one in its)
    false = sum(len(one.false) for one in its)
    instead = [
        f"{one.program}: {one.causes[0].name if one.causes else 'nothing'}"
        for one in its
        if not one.first
    ]
    return (
        Cell("  " + ill.name),
        Cell(" or ".join(ill.right)),
        Cell(f"{first} of {len(its)}", first == len(its)),
        Cell(f"{named} of {len(its)}", named == len(its)),
        Cell(str(false), None if not false else False),
        Cell(", ".join(instead)),
    )


def _healthy_rows(told: Sequence[Told]) -> Iterator[tuple[Cell, ...]]:
    for name in dict.fromkeys(one.allocator for one in told):
        its = [one for one in told if one.allocator == name]
        found = Counter(cause.name for one in its for cause in one.causes)
        false = Counter(cause for one in its for cause in one.false)
        yield (
            Cell("  " + printable(name)),
            Cell(str(len(its))),
            Cell(_listed(found)),
            Cell(_listed(false), None if not false else False),
        )


def _listed(found: Counter[str]) -> str:
    names = [f"{name} × {count}" if count > 1 else name for name, count in found.most_common()]
    return ", ".join(names) or "0"
