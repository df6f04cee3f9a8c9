"""A comparison as Markdown, for an issue or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cairn.model import Comparison, Run
from cairn.report import layout, words

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$@])")


def escape(text: str) -> str:
    """Text that Markdown and HTML inside it take literally."""
    return _SPECIAL.sub(r"\\\1", words.printable(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def render(run: Run, comparisons: Sequence[Comparison], *, full: bool) -> str:
    """The same content as on the terminal."""
    parts = ["# Allocators compared"]
    for workload, comparison in zip(run.settings.workloads, comparisons, strict=True):
        parts += ["", f"## {escape(workload.name)}", "", *_section(run, comparison, full)]
    host = run.host
    parts += [
        "",
        escape(f"{host.system}, {host.kernel}, {host.architecture}, {host.cpus} CPUs, {host.libc}; cairn {run.cairn}, "
               f"run {run.id}, seed {run.seed}"),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _section(run: Run, comparison: Comparison, full: bool) -> Iterator[str]:
    for place, sentence in enumerate(comparison.verdict):
        yield escape(sentence) if place else f"**{escape(sentence)}**"
    for table in layout.tables(run, comparison, full=full):
        yield from ("", *_drawn(table))
    yield from ("", escape(layout.footer(comparison)), "")
    for line in (*layout.remarks(run, comparison), *layout.failures(comparison)):
        yield f"- {escape(line)}"
    if comparison.not_tested:
        yield from ("", f"Not tested: {escape('; '.join(comparison.not_tested))}.")


def _drawn(table: layout.Table) -> list[str]:
    lines = [_line([escape(head) for head in table.heads]), _line(["---"] + ["---:"] * (len(table.heads) - 1))]
    lines += [_line([escape(cell.text.strip()) for cell in row]) for row in table.rows]
    return lines


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
