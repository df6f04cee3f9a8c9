"""Tests of the help texts: no word is broken on a terminal of 60 columns or more, and groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from rich.cells import cell_len
from support.widths import WIDTHS

from cairn.cli.root_command import every_command


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    yield above
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield (*above, name)


def helped(words: tuple[str, ...], width: int) -> str:
    told = CliRunner().invoke(every_command(), [*words, "--help"], env={"COLUMNS": str(width)})
    assert told.exit_code == 0, told.output
    return re.sub(r"[╭╮╰╯─│]", " ", told.output)


@pytest.mark.parametrize(
    "words", list(commands(every_command())), ids=lambda words: "-".join(words) or "cairn"
)
def test_no_word_of_a_help_text_is_broken(words: tuple[str, ...]) -> None:
    whole = set(helped(words, WIDTHS[-1]).split())
    for width in WIDTHS:
        text = helped(words, width)
        assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
        assert whole <= set(text.split()), (width, sorted(whole - set(text.split())))


def test_the_options_of_check_and_compare_are_in_the_same_groups() -> None:
    def titles(command: str) -> list[str]:
        told = CliRunner().invoke(
            every_command(), [command, "--help"], env={"COLUMNS": "100"}, prog_name="cairn"
        )
        return re.findall(r"╭─ (.+?) ─+╮", told.output)

    check = titles("check")
    assert check[:2] == ["The question", "When to stop"] and len(check) > 5
    assert titles("compare") == ["Contenders", *check]


def groups(group: click.Group, *above: str) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    yield above, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from groups(command, *above, name)


@pytest.mark.parametrize(("words", "group"), list(groups(every_command())), ids=str)
def test_help_and_completion_name_every_subcommand(
    words: tuple[str, ...], group: click.Group
) -> None:
    """The help of 'cairn allocators' named none, and completion offered none."""
    names = sorted(name for name, command in group.commands.items() if not command.hidden)
    text = helped(words, 100)
    listed = re.findall(r"^ +([a-z]+)  ", text[text.index(" Commands ") :], re.MULTILINE)
    assert sorted(listed) == names
    complete = ShellComplete(every_command(), {}, "cairn", "_CAIRN_COMPLETE")
    assert [one.value for one in complete.get_completions(list(words), "")] == names
