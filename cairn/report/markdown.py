"""Reports as Markdown, for an issue or a wiki. The terminal shows the same content."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cairn.compare.ranking import Matrix, Ranking
from cairn.compare.standings import Standings
from cairn.model import Comparison, Run
from cairn.report import formatting, plane, tables, verdict, why
from cairn.report import standings as boards
from cairn.report.standings import Board
from cairn.report.view import WIDTH
from cairn.why.gap import Why

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$@])")


def escape(text: str) -> str:
    """Returns the text with all characters escaped that Markdown or HTML would interpret."""
    return (
        _SPECIAL.sub(r"\\\1", formatting.printable(text))
        .replace("\\<", "&lt;")
        .replace("\\>", "&gt;")
    )


def render(run: Run, comparisons: Sequence[Comparison], *, full: bool) -> str:
    """Returns the comparisons, a section for each workload."""
    parts = ["# Allocators compared"]
    for workload, comparison in zip(run.settings.workloads, comparisons, strict=True):
        parts += [
            "",
            f"## {escape(formatting.shortened(workload.name))}",
            "",
            *_section(run, comparison, full),
        ]
        if workload.load:
            parts += ["", f"Load: {escape(formatting.shortened(workload.load))}"]
    parts += ["", _origin(run)]
    return "\n".join(parts) + "\n"


def standings(run: Run, found: Standings, *, stopped: Sequence[str] | None = None) -> str:
    """Returns the standings with the contenders' full names."""
    return _board(run, boards.standings(run, found, stopped=stopped))


def scenarios(
    run: Run,
    found: Ranking,
    *,
    matrices: Sequence[Matrix] = (),
    stopped: Sequence[str] | None = None,
) -> str:
    """Returns the ranking of scenarios."""
    return _board(run, boards.scenarios(run, found, matrices=matrices, stopped=stopped))


def whys(run: Run, found: Sequence[Why]) -> str:
    """Returns the explained gaps, a section for each workload."""
    parts = ["# Why"]
    for board in why.boards(run, found):
        parts += [
            "",
            *([f"## {escape(board.title)}", ""] if board.title else []),
            *_body(run, board),
        ]
    return "\n".join([*parts, "", _origin(run)]) + "\n"


def board(run: Run, board: Board) -> str:
    """Returns a board with the run's notes."""
    return _board(run, board)


def plain_board(board: Board, origin: str) -> str:
    """Returns a board that belongs to no run. `origin` is the last line."""
    lines = [f"# {escape(board.title)}", "", *_parts_of(board, ()), "", escape(origin)]
    return "\n".join(lines) + "\n"


def _board(run: Run, board: Board) -> str:
    return "\n".join([f"# {escape(board.title)}", "", *_body(run, board), "", _origin(run)]) + "\n"


def _body(run: Run, board: Board) -> Iterator[str]:
    yield from _parts_of(board, run.notes)


def _parts_of(board: Board, notes: Sequence[str]) -> Iterator[str]:
    for place, sentence in enumerate(board.says):
        yield escape(sentence) if place else f"**{escape(sentence)}**  "
    for table in board.tables:
        yield from ("", *_drawn(table))
    yield from ("", *(f"- {escape(line)}" for line in (*board.footer, *notes, *board.failures)))


def _origin(run: Run) -> str:
    host = run.host
    return escape(
        f"{host.system}, {host.kernel}, {host.architecture}, {host.cpus} CPUs, {host.libc}; cairn "
        f"{run.cairn}, run {run.id}, seed {run.seed}"
    )


def _section(run: Run, comparison: Comparison, full: bool) -> Iterator[str]:
    for sentence in comparison.unsuited:
        yield from (f"**{escape(sentence)}**", "")
    said = (*verdict.says(comparison.judged).sentences, *verdict.outlook(comparison.prospect))
    for place, sentence in enumerate(said):
        yield from ("", escape(sentence)) if place else (f"**{escape(sentence)}**",)
    for table in tables.tables(run, comparison, full=full):
        yield from ("", *_drawn(table))
    if comparison.judged.front is not None:
        yield from ("", "```", *plane.drawn(comparison, WIDTH), "```")
    yield from ("", escape(tables.footer(comparison)), "")
    for line in tables.remarks(run, comparison, full=full):
        yield f"- {escape(line)}"
    if comparison.not_tested:
        yield from ("", f"Not tested: {escape('; '.join(comparison.not_tested))}.")


def _drawn(table: tables.Table) -> list[str]:
    lines = [
        _line([escape(head) for head in table.heads]),
        _line(["---"] + ["---:"] * (len(table.heads) - 1)),
    ]
    lines += [_line([escape(cell.text.strip()) for cell in row]) for row in table.rows]
    return lines


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
