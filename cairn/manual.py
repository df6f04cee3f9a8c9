"""What is written from the program itself, `python -m cairn.manual`: the man page, and the table of workloads.

One page, so that one search finds all.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import cairn
from cairn import workloads
from cairn.cli import cli

_EXITS = (
    ("0", "fine"),
    ("1", "cairn itself failed: a file that cannot be written, a full disk"),
    ("2", "usage"),
    ("3", "the program fails, or does not end in time, under the baseline"),
    ("4", "it fails under some contender only, or a contender cannot be loaded into it"),
    ("130", "interrupted; what was measured is kept"),
)
_ENVIRONMENT = (
    ("CAIRN_RESULTS", "folder that keeps the runs"),
    ("XDG_DATA_HOME, XDG_CACHE_HOME", "where runs and unpacked allocators are kept otherwise"),
    ("NO_COLOR", "no colour"),
    ("CAIRN_STATS", "1 or json: the allocator cairn tells on standard error what it did when a program ends"),
    ("CAIRN_LIMIT", "a size such as 512M: the allocator cairn hands out no more memory than that"),
    ("CAIRN_KEEP_DEEPBIND", "1: the allocator cairn leaves RTLD_DEEPBIND in calls of dlopen"),
)


def page() -> str:
    """The page in man(7)'s language."""
    lines = [
        f'.TH CAIRN 1 "" "cairn {cairn.__version__}" "User commands"',
        ".SH NAME",
        "cairn \\- which memory allocator should this program use?",
        ".SH SYNOPSIS",
        ".B cairn",
        ".I command",
        "[options] [\\-\\- program [argument]...]",
        ".SH DESCRIPTION",
        *_paragraphs(cli.help or ""),
        ".SH COMMANDS",
    ]
    for name, command in _commands(cli, ""):
        lines += list(_command(name, command))
    lines += [".SH EXIT STATUS", *_pairs(_EXITS)]
    lines += [
        ".PP",
        "cairn run returns the program's own code, 125 for a failure of its own, 126 when the allocator cannot be",
        "preloaded or is not proved, 127 when the program is not found, and 128 + n when signal n killed it.",
        ".SH ENVIRONMENT",
        *_pairs(_ENVIRONMENT),
    ]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, before: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    arguments = " ".join(p.make_metavar(context) for p in command.params if isinstance(p, click.Argument))
    yield f".SS cairn {_escape(name)} {_escape(arguments)}".rstrip()
    yield from _paragraphs(command.help or "")
    for parameter in command.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from _pairs([record])


def _pairs(pairs: tuple[tuple[str, str], ...] | list[tuple[str, str]]) -> Iterator[str]:
    for term, text in pairs:
        yield ".TP"
        yield f".B {_escape(term)}"
        yield _escape(text)


def _paragraphs(text: str) -> Iterator[str]:
    r"""Click's \b marks a paragraph that keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip("\n") for line in paragraph.splitlines()]
        if lines[0].strip() == "\b":
            yield from (".PP", ".nf", *(_escape(line) for line in lines[1:]), ".fi")
        else:
            yield from (".PP", _escape(" ".join(line.strip() for line in lines)))


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


TABLE = "<!-- the catalog: {} -->"
"""Before and behind the table in docs/workloads.md."""


def catalog() -> str:
    """The workloads as a Markdown table, a part per group."""
    lines = []
    for group in workloads.GROUPS:
        lines += ["", f"**{group}**", "", "| name | what it does | what it puts to the test | as run in the suite |"]
        lines += ["|---|---|---|---|"]
        for entry in workloads.load():
            if entry.group == group:
                command = f"{entry.program} {entry.suite}".strip()
                lines.append(f"| `{entry.name}` | {entry.title} | {entry.stresses} | `{command}` |")
    return "\n".join(lines) + "\n\n"


def with_catalog(text: str) -> str:
    """The document with the table as it is now."""
    before, begin, rest = text.partition(TABLE.format("begin") + "\n")
    _, end, after = rest.partition(TABLE.format("end"))
    return before + begin + catalog() + end + after


def main() -> None:
    """Writes FOLDER/cairn.1, and the table into a document: `python -m cairn.manual man docs/workloads.md`."""
    (Path(sys.argv[1]) / "cairn.1").write_text(page(), encoding="utf-8")
    document = Path(sys.argv[2])
    document.write_text(with_catalog(document.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
