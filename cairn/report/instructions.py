"""Instructions per operation, as a table of workloads and contenders: text, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec

from cairn.compare.instructions import Count, counts, remarks, said
from cairn.model import SCHEMA, Run, Sample
from cairn.report import markdown, words

TITLE = "instructions per operation, counted by callgrind; the workload's own are in it, the same for all"

_GAP = "  "


def render(run: Run, samples: Sequence[Sample], *, width: int) -> str:
    """Tables as wide as fits: contenders that do not come into a further one below."""
    found = counts(run, samples)
    names, rows = _rows(run, found)
    first = max(len(name) for name, _ in rows)
    lines = [TITLE]
    columns = [
        max(len(name), *(len(cells[place]) for _, cells in rows))
        for place, name in enumerate(names)
    ]
    for part in _parts(columns, width - first):
        lines.append("")
        for head, cells in (("", names), *rows):
            line = head.ljust(first) + "".join(
                _GAP + cells[place].rjust(columns[place]) for place in part
            )
            lines.append(line.rstrip())
    lines += ["", *(f"  ▲ {words.printable(line)}" for line in _notes(run, found))]
    return "\n".join(lines).rstrip() + "\n"


def _parts(columns: Sequence[int], width: int) -> Iterator[list[int]]:
    """Places of the columns that go side by side; at least one each time."""
    part: list[int] = []
    used = 0
    for place, column in enumerate(columns):
        used += len(_GAP) + column
        if part and used > width:
            yield part
            part, used = [], len(_GAP) + column
        part.append(place)
    yield part


def as_markdown(run: Run, samples: Sequence[Sample]) -> str:
    """The same as one table."""
    found = counts(run, samples)
    names, rows = _rows(run, found)
    escape = markdown.escape
    parts = [
        f"# {escape(TITLE)}",
        "",
        "| | " + " | ".join(map(escape, names)) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    parts[-1] = "|---" + "|---:" * len(names) + "|"
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
    """One JSON document."""
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
        rows.setdefault(words.printable(count.workload), []).append(said(count))
    return [words.printable(contender.name) for contender in run.contenders], list(rows.items())


def _notes(run: Run, found: Sequence[Count]) -> list[str]:
    own = [
        f"{contender.name}: {caveat}"
        for contender in run.contenders
        for caveat in contender.caveats
    ]
    return [*remarks(run, found), *run.notes, *own]
