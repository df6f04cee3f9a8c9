"""The instructions of each contender of a run, as text and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn.gate import InstructionCount
from cairn.model import Run
from cairn.report import formatting, markdown, terminal
from cairn.report.formatting import printable
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.report.view import View


def board(run: Run, counts: Sequence[InstructionCount]) -> Board:
    """Returns a table for each workload: exact counts, and the ratio to the baseline."""
    several = len(run.settings.workloads) > 1
    tables = tuple(
        Table(
            formatting.command(workload.name) if several else "",
            ("", "instructions", f"÷ {printable(run.baseline)}"),
            tuple(_rows(run.baseline, [one for one in counts if one.workload == index])),
        )
        for index, workload in enumerate(run.settings.workloads)
    )
    return Board(
        title="Instructions",
        says=(),
        tables=tuple(table for table in tables if table.rows),
        footer=tuple(_footer(counts)),
        failures=tuple(
            f"{printable(one.contender)} {printable(one.problem)}" for one in counts if one.problem
        ),
    )


def _rows(baseline: str, counts: Sequence[InstructionCount]) -> Iterator[tuple[Cell, ...]]:
    base = next((one.counts for one in counts if one.contender == baseline), ())
    for one in counts:
        if not one.counts:
            yield Cell(printable(one.contender)), Cell(formatting.NOT_MEASURED), Cell("")
            continue
        ratio = ""
        if base and one.contender != baseline:
            ratio = _range(
                f"{min(one.counts) / max(base):.4f}", f"{max(one.counts) / min(base):.4f}"
            )
        numbers = _range(f"{min(one.counts):,}", f"{max(one.counts):,}")
        yield Cell(printable(one.contender)), Cell(numbers), Cell(ratio)


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _footer(counts: Sequence[InstructionCount]) -> Iterator[str]:
    known = [one.counts for one in counts if one.counts]
    if not known:
        return
    times = min(map(len, known))
    if all(len(set(of)) == 1 for of in known):
        yield f"counted by callgrind, {times} times with the same result"
    else:
        yield (
            f"counted by callgrind, {times} times; a range means that the runs of the program "
            "differed"
        )


def rendered(run: Run, counts: Sequence[InstructionCount], view: View) -> str:
    """Returns the board as Markdown or text."""
    if view.form == "md":
        return markdown.plain_board(board(run, counts), f"cairn {run.cairn}, run {run.id}")
    return terminal.drawn(board(run, counts), view)
