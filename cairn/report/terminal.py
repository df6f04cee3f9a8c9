"""A comparison as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cairn.compare.ranking import Matrix, Ranking
from cairn.compare.standings import Standings
from cairn.model import Comparison, Run
from cairn.report import standings as boards
from cairn.report import tables, why, words
from cairn.report.standings import Board
from cairn.why.gap import Why

WIDTH = 110
"""Columns when the output is not a terminal; a table of two metrics with intervals fits."""


def render(
    run: Run, comparisons: Sequence[Comparison], *, full: bool, color: bool, width: int = WIDTH
) -> str:
    """Per workload: tables, how they were made, the verdict, its limits and the next command."""
    console, file = _console(color, width)
    for index, comparison in enumerate(comparisons):
        if len(comparisons) > 1:
            title = words.printable(run.settings.workloads[index].name)
            console.print(Text(f"\n{title}" if index else title, "bold"))
        _show(console, run if index == 0 else replace(run, notes=()), comparison, full)
    return _text(file)


def standings(
    run: Run,
    found: Standings,
    *,
    color: bool,
    stopped: Sequence[str] | None = None,
    width: int = WIDTH,
) -> str:
    """Who is how far behind the best, over all workloads and on each."""
    return _board(run, boards.standings(run, found, stopped=stopped, width=width), color, width)


def scenarios(
    run: Run, found: Ranking, *, color: bool, matrices: Sequence[Matrix] = (), stopped: Sequence[str] | None = None,
    width: int = WIDTH,
) -> str:  # fmt: skip
    """The ranking by points, its ratios, and what an operation costs in each scenario."""
    return _board(
        run,
        boards.scenarios(run, found, matrices=matrices, stopped=stopped, width=width),
        color,
        width,
    )


def whys(run: Run, found: Sequence[Why], *, color: bool, width: int = WIDTH) -> str:
    """Why each of some contenders takes more, or less, than another."""
    shown = [
        (board.title, drawn(board, color=color, width=width)) for board in why.boards(run, found)
    ]
    return "\n".join(f"{title}\n{text}" if title else text for title, text in shown)


def _board(run: Run, board: Board, color: bool, width: int) -> str:
    notes = tuple(words.printable(note) for note in run.notes)
    return drawn(replace(board, footer=(*board.footer, *notes)), color=color, width=width)


def drawn(board: Board, *, color: bool, width: int = WIDTH) -> str:
    """Tables, how they were made, and the sentences that they lead to."""
    console, file = _console(color, width)
    for table in board.tables:
        console.print(_drawn(table))
        console.print()
    for line in board.footer:
        console.print(_hanging(line, "dim"))
    for line in board.failures:
        console.print(_hanging(f"✘ {line}", "red"))
    console.print()
    for place, sentence in enumerate(board.says):
        console.print(Text(sentence, style="bold" if place == 0 else ""))
    return _text(file)


def _console(color: bool, width: int) -> tuple[Console, StringIO]:
    file = StringIO()
    console = Console(
        file=file, width=width, force_terminal=color, color_system="standard" if color else None, no_color=not color,
        highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    return console, file


def _text(file: StringIO) -> str:
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _show(console: Console, run: Run, comparison: Comparison, full: bool) -> None:
    for table in tables.tables(run, comparison, full=full):
        console.print(_drawn(table))
        console.print()
    console.print(_hanging(tables.footer(comparison), "dim"))
    for line in tables.remarks(run, comparison):
        console.print(_hanging(f"▲ {line}", "yellow"))
    for line in tables.failures(comparison):
        console.print(_hanging(f"✘ {line}", "red"))
    console.print()
    for place, sentence in enumerate(comparison.verdict):
        console.print(Text(words.printable(sentence), style="bold" if place == 0 else ""))
    if comparison.not_tested:
        console.print(Text(f"Not tested: {words.printable('; '.join(comparison.not_tested))}."))
    if comparison.next_steps:
        console.print(Text(f"Next: {words.printable(' · '.join(comparison.next_steps))}"))


def _hanging(text: str, style: str) -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, 2))


def _drawn(table: tables.Table) -> Table:
    drawn = Table(
        box=None,
        padding=(0, 1),
        collapse_padding=table.tight,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for place, head in enumerate(table.heads):
        drawn.add_column(
            head, justify="left" if place == 0 else "right", overflow="fold", no_wrap=place > 0
        )
    for row in table.rows:
        drawn.add_row(*(Text(cell.text, style=_style(cell)) for cell in row))
    return drawn


def _style(cell: tables.Cell) -> str:
    return "" if cell.good is None else "green" if cell.good else "red"
