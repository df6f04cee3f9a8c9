"""Instructions per operation as a table of workloads and contenders: text, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from cairn.compare.instructions import Count, counts, remarks, said
from cairn.model import SCHEMA, Run, Sample
from cairn.report import formatting, markdown, terminal
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.report.view import View

TITLE = (
    "instructions per operation, counted by callgrind; they include the workload's own "
    "instructions, which are the same for every allocator"
)


def board(run: Run, samples: Sequence[Sample]) -> Board:
    """Returns the table of workloads and contenders with its notes."""
    found = counts(run, samples)
    names, rows = _rows(run, found)
    table = Table(
        title="",
        heads=("", *names),
        rows=tuple((Cell(head), *map(Cell, cells)) for head, cells in rows),
    )
    return Board(
        title="",
        says=(),
        tables=(table,),
        footer=tuple(f"▲ {formatting.printable(line)}" for line in _notes(run, found)),
        failures=(),
    )


def render(run: Run, samples: Sequence[Sample], view: View) -> str:
    """Returns the board as text."""
    return f"{TITLE}\n\n{terminal.drawn(board(run, samples), view).rstrip()}\n"


def as_markdown(run: Run, samples: Sequence[Sample]) -> str:
    """Returns the table and its notes as Markdown."""
    found = counts(run, samples)
    names, rows = _rows(run, found)
    escape = markdown.escape
    parts = [
        f"# {escape(TITLE)}",
        "",
        "| | " + " | ".join(map(escape, names)) + " |",
        "|---" + "|---:" * len(names) + "|",
    ]
    parts += [
        f"| {escape(name)} | " + " | ".join(map(escape, cells)) + " |" for name, cells in rows
    ]
    parts += ["", *(f"- {escape(line)}" for line in _notes(run, found))]
    host = run.host
    parts += [
        "",
        escape(f"{host.system}, {host.architecture}, {host.libc}; cairn {run.cairn}, run {run.id}"),
    ]
    return "\n".join(parts) + "\n"


def document(run: Run, samples: Sequence[Sample]) -> str:
    """Returns the counts and all samples as one JSON document."""
    parts = {
        "schema": SCHEMA,
        "run": run,
        "instructions": list(counts(run, samples)),
        "samples": list(samples),
    }
    return json.dumps(msgspec.to_builtins(parts), ensure_ascii=True, indent=1) + "\n"


def _rows(run: Run, found: Sequence[Count]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    rows: dict[str, list[str]] = {}
    for count in found:
        rows.setdefault(formatting.printable(count.workload), []).append(said(count))
    return [formatting.printable(contender.name) for contender in run.contenders], list(
        rows.items()
    )


def _notes(run: Run, found: Sequence[Count]) -> list[str]:
    own = [
        f"{contender.name}: {caveat}"
        for contender in run.contenders
        for caveat in contender.caveats
    ]
    return [*remarks(run, found), *run.notes, *own]
