"""Reports as text for a terminal or a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cairn.compare.ranking import Matrix, Ranking
from cairn.compare.standings import Standings
from cairn.model import PEAK, Comparison, Metric, Run
from cairn.report import formatting, interval_picture, plane, tables, verdict
from cairn.report import standings as boards
from cairn.report.fit import fit
from cairn.report.standings import Board
from cairn.report.view import View

if TYPE_CHECKING:
    from cairn.why.gap import Why


def render(run: Run, comparisons: Sequence[Comparison], view: View) -> str:
    """Returns verdict, tables, method, limits and next command, for each workload.

    Proven differences are drawn, too, if the report then still fits on the first screen.
    """
    if len(comparisons) == 1 and not view.full:
        for pictures in range(_DRAWN_MOST, 0, -1):
            text = _rendered(run, comparisons, view, pictures)
            if len(text.splitlines()) < FIRST_SCREEN:
                return text
    return _rendered(run, comparisons, view, 0)


FIRST_SCREEN = 24
"""The lines of the first screen, of which the shell's prompt takes one."""
_DRAWN_MOST = 2
"""The most measures whose differences are drawn."""


def _rendered(run: Run, comparisons: Sequence[Comparison], view: View, pictures: int) -> str:
    screen = Screen(view)
    for index, comparison in enumerate(comparisons):
        if len(comparisons) > 1:
            title = formatting.command(run.settings.workloads[index].name)
            screen.line(f"\n{title}" if index else title, "bold")
        _show(
            screen, run if index == 0 else replace(run, notes=()), comparison, view.full, pictures
        )
        load = run.settings.workloads[index].load
        if load:
            screen.line(f"Load: {formatting.command(load)}", "dim", indent=2, hanging=2)
    if limits := not_tested(comparisons):
        screen.line(f"Not tested: {formatting.printable(limits)}")
    if steps := next_steps(comparisons):
        screen.line(f"Next: {formatting.printable(steps)}")
    return screen.text()


def not_tested(comparisons: Sequence[Comparison]) -> str:
    """Returns what the run cannot show, as the end of a sentence; empty if there is nothing.

    Several workloads can have the same limit with different details in parentheses. Such a limit
    is named once, with the details of the first workload.
    """
    limits: dict[str, str] = {}
    for one in comparisons:
        for limit in one.not_tested:
            limits.setdefault(limit.partition(" (")[0], limit)
    return f"{'; '.join(limits.values())}." if limits else ""


def next_steps(comparisons: Sequence[Comparison]) -> str:
    """Returns the commands that may come next; empty if there are none."""
    return " · ".join(dict.fromkeys(step for one in comparisons for step in one.next_steps))


def standings(
    run: Run, found: Standings, view: View, *, stopped: Sequence[str] | None = None
) -> str:
    """Returns each contender's distance to the best, over all workloads and on each."""
    return _board(run, boards.standings(run, found, stopped=stopped), view)


def scenarios(
    run: Run,
    found: Ranking,
    view: View,
    *,
    matrices: Sequence[Matrix] = (),
    stopped: Sequence[str] | None = None,
) -> str:
    """Returns the ranking by points, its ratios, and the cost of an operation in each scenario."""
    return _board(run, boards.scenarios(run, found, matrices=matrices, stopped=stopped), view)


def whys(run: Run, found: Sequence[Why], view: View) -> str:
    """Returns the explained gaps between contenders, for each workload."""
    from cairn.report import why

    shown = [
        (board.title, drawn(board, view, answer_first=True)) for board in why.boards(run, found)
    ]
    return "\n".join(f"{title}\n{text}" if title else text for title, text in shown)


def _board(run: Run, board: Board, view: View) -> str:
    return drawn(boards.with_notes(board, run.notes), view)


def drawn(board: Board, view: View, *, answer_first: bool = False) -> str:
    """Returns a board as text: tables, method, failures, and the conclusions last or first."""
    screen = Screen(view)
    if answer_first:
        _say(screen, board)
        screen.line()
    for table in board.tables:
        screen.table(table)
        screen.line()
    for line in board.footer:
        screen.line(line, "dim", indent=2)
    for line in board.failures:
        screen.line(f"✘ {line}", "red", indent=2)
    if not answer_first:
        screen.line()
        _say(screen, board)
    return screen.text()


def _say(screen: Screen, board: Board) -> None:
    for place, sentence in enumerate(board.says):
        screen.line(sentence, "bold" if place == 0 else "")


def _show(screen: Screen, run: Run, comparison: Comparison, full: bool, pictures: int) -> None:
    """Adds the answer, then its evidence, then the caveats."""
    for sentence in comparison.unsuited:
        screen.line(formatting.printable(sentence), "bold")
    told = verdict.says(comparison.judged)
    for place, sentence in enumerate(told.advice):
        screen.line(sentence, "" if place else "bold")
    for sentence in (*told.evidence, *verdict.outlook(comparison.prospect)):
        screen.line(sentence)
    for sentence in told.failures:
        screen.line(f"✘ {sentence}", "red")
    screen.line()
    shown = tables.tables(run, comparison, full=True) if full else tables.summary(run, comparison)
    for table in shown:
        screen.table(table)
        screen.line()
    names = tables.short_names(run, comparison)
    drawn = [] if comparison.judged.front is not None else _drawn(comparison)[:pictures]
    for metric in drawn:
        lines = interval_picture.drawn(comparison, metric, names, screen.width)
        for line in lines:
            screen.unwrapped(line)
        if lines:
            screen.line()
    missing = fit(shown[0], screen.width, full=full).missing if shown else ()
    footer = tables.footer(comparison) if full else tables.summary_footer(comparison, missing)
    screen.line(footer, "dim", indent=2)
    for line in tables.remarks(run, comparison, full=full):
        screen.line(f"▲ {line}", "yellow", indent=2)
    if comparison.judged.front is not None:
        screen.line()
        for line in plane.drawn(comparison, screen.width):
            screen.unwrapped(line)
        screen.line()


def _drawn(comparison: Comparison) -> list[Metric]:
    """Returns the measures in which a difference is proven: time, CPU time, memory."""
    return [
        metric
        for metric in (comparison.time, comparison.cpu_time, PEAK)
        if any(
            formatting.sign(row.changes[metric.key], comparison.rule.margin) in "▼▲"
            for row in comparison.rows
            if metric.key in row.changes and not row.failures
        )
    ]


_BESIDE_LEAST, _BELOW = 34, 4
"""Two numbers for Screen.entry(), in columns: the least width of a paragraph to the right of its
heads, which are the short texts that introduce it; and the indent of a paragraph below its heads.
"""
_TRAILING = re.compile(r"(?:\s|\x1b\[[0-9;]*m)+$")
"""Spaces at the end of a line, with colour codes among them. Only the spaces are removed."""
_UNBOUNDED = 100_000
"""Columns that rich may use. All lines and tables are already narrowed, so rich must not wrap or
cut them again."""


class Screen:
    """A text of a given width that grows line by line."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._file = StringIO()
        self._console = Console(
            file=self._file,
            width=_UNBOUNDED,
            force_terminal=view.color,
            color_system="standard" if view.color else None,
            no_color=not view.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},  # TERM=dumb would fix the width at 80 columns
        )

    @property
    def width(self) -> int:
        """The columns of the text."""
        return self._view.width

    def line(self, text: str = "", style: str = "", *, indent: int = 0, hanging: int = 0) -> None:
        """Adds a paragraph, wrapped at spaces.

        All lines but the first are indented by `hanging` more columns.
        """
        for part in text.split("\n"):
            lines = formatting.wrapped(part, self._view.width - indent - hanging)
            for place, line in enumerate(lines):
                left = " " * (indent + (hanging if place else 0))
                self._console.print(Text(left + line, style), soft_wrap=True)

    def unwrapped(self, line: str) -> None:
        """Adds a line of a drawing, which fits into the width."""
        self._console.print(Text(line), soft_wrap=True)

    def entry(self, heads: Sequence[tuple[str, int, str]], text: str, style: str = "") -> None:
        """Adds a paragraph to the right of its heads, or below them if there is no room.

        The heads are short texts that introduce the paragraph, such as a sign and a name. Each is
        given as a tuple of its text, its width in columns, and its style.
        """
        beside = sum(columns + 1 for _, columns, _ in heads)
        left = Text()
        for head, columns, of in heads:
            left.append(f"{head:<{columns}} ", of)
        indent = beside
        if self._view.width - beside < _BESIDE_LEAST:
            if left.plain.strip():
                self._console.print(left, soft_wrap=True)
            left, indent = Text(" " * _BELOW), _BELOW
        for line in formatting.wrapped(text, self._view.width - indent):
            self._console.print(left.append(line, style), soft_wrap=True)
            left = Text(" " * indent)

    def table(self, table: tables.Table) -> None:
        """Adds the table, fitted into the width, and a line with the names of omitted columns."""
        fitted = fit(table, self._view.width, full=self._view.full)
        for place, (name, part) in enumerate(fitted.parts):
            if place and not name:
                self.line()
            if name:
                self.line(name, hanging=2)
            self._console.print(_grid(part), crop=False, no_wrap=True)
        if fitted.missing and table.names_missing:
            count = len(fitted.missing)
            names = ", ".join(head for head in fitted.missing if head)
            noun = "column" if count == 1 else "columns"
            self.line(
                f"{count} {noun} left out ({names}): use --full or a wider terminal",
                "dim",
                indent=2,
            )

    def text(self) -> str:
        """Returns all lines so far, without spaces at their ends."""
        lines = self._file.getvalue().splitlines()
        return (
            "\n".join(_TRAILING.sub(lambda end: "".join(end[0].split()), line) for line in lines)
            + "\n"
        )


def _grid(table: tables.Table) -> Table:
    drawn = Table(
        box=None,
        padding=(0, 1),
        collapse_padding=table.tight,
        pad_edge=False,
        show_edge=False,
        show_header=any(table.heads),
        header_style="bold",
    )
    for place, head in enumerate(table.heads):
        drawn.add_column(
            head, justify="left" if place == 0 or table.texts else "right", no_wrap=True
        )
    for row in table.rows:
        drawn.add_row(*(Text(cell.text, style=_style(cell)) for cell in row))
    return drawn


def _style(cell: tables.Cell) -> str:
    return "" if cell.good is None else "green" if cell.good else "red"
