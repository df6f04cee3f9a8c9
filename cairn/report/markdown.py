"""A comparison as Markdown, for an issue or a wiki."""

from __future__ import annotations

import re

from cairn.model import Comparison, Run
from cairn.report import layout, words

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$@])")


def escape(text: str) -> str:
    """Text that Markdown and HTML inside it take literally."""
    return _SPECIAL.sub(r"\\\1", words.printable(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def render(run: Run, comparison: Comparison, *, full: bool, command: str) -> str:
    """The same content as on the terminal."""
    parts = [f"# Allocators compared: {escape(command)}", ""]
    parts += [
        f"**{escape(sentence)}**" if not place else escape(sentence)
        for place, sentence in enumerate(comparison.verdict)
    ]
    for table in layout.tables(run, comparison, full=full):
        parts += ["", *_drawn(table)]
    parts += ["", escape(layout.footer(comparison))]
    parts += [f"- {escape(line)}" for line in (*layout.remarks(run, comparison), *layout.failures(comparison))]
    if comparison.not_tested:
        parts += ["", f"Not tested: {escape('; '.join(comparison.not_tested))}."]
    host = run.host
    parts += [
        "",
        escape(f"{host.system}, {host.kernel}, {host.architecture}, {host.cpus} CPUs, {host.libc}; cairn {run.cairn}, "
               f"run {run.id}, seed {run.seed}"),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _drawn(table: layout.Table) -> list[str]:
    lines = [_line(table.heads), _line(["---"] + ["---:"] * (len(table.heads) - 1))]
    lines += [_line([escape(cell.text.strip()) for cell in row]) for row in table.rows]
    return lines


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
