"""cairn profile --instructions: the allocator's instructions by path, counted by callgrind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import rich_click as click

import cairn
from cairn.cli.console import (
    check_out,
    emit,
    fail,
    given,
    say,
    stderr,
    wants_color,
    width_of,
)
from cairn.cli.run import EXIT_CANNOT_RUN, contender_for, end, failing_as_env
from cairn.cli.share_runs import GivenInput
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.report import path_instructions as reporting
from cairn.report.view import View

if TYPE_CHECKING:
    from cairn.model import Contender
    from cairn.profile.path_instructions import PathInstructions
    from cairn.run.foreground import Ended

_TAKEN = {"command", "spec", "instructions", "runs", "as_json", "as_csv", "force", "color"}
"""The parameters of `cairn profile` that this report has, too."""


def profile(
    spec: str,
    command: Sequence[str],
    runs: int | None,
    as_json: str | None,
    as_csv: str | None,
    force: bool,
    color: str,
) -> NoReturn:
    """Counts, writes the report, and exits with the program's exit code.

    Raises UsageError for options that this report does not have.
    """
    for option in given(_TAKEN):
        raise UsageError(
            f"--instructions counts with valgrind and measures no time; leave out {option}"
        )
    if runs not in (None, 1, 2):
        raise UsageError(
            "--instructions runs the program twice, and counts the same in every run; use --runs "
            "1 for a program that must not run again, and leave out --runs otherwise"
        )
    from cairn.run import path_instructions
    from cairn.run.runner import private_folder
    from cairn.run.valgrind import need_valgrind

    outs = tuple(None if out in (None, "-") else Path(str(out)) for out in (as_json, as_csv))
    if as_json == as_csv == "-":
        raise UsageError(
            "--json - and --csv - would be mixed on standard output; give one of them a file"
        )
    for out in outs:
        check_out(out, force)
    with failing_as_env():
        need_valgrind("--instructions")
        contender = contender_for(spec, command)
        with private_folder() as folder:
            if _may_run_twice(runs, given_input := GivenInput.now(), color):
                path_instructions.learn(contender, command, folder)
                given_input.rewind()
            ended = path_instructions.count(contender, command, folder)
            if ended.problem is None:
                found = _counted(contender, ended, folder)
                if as_json:
                    text = reporting.document(
                        found, allocator=contender.title, cairn=cairn.__version__
                    )
                    emit(text, outs[0], force)
                if as_csv:
                    emit(reporting.rows(found), outs[1], force)
                view = View("text", False, wants_color(color, sys.stderr), width_of(sys.stderr))
                text = reporting.render(found, view, allocator=contender.title)
                click.echo(text, nl=False, err=True, color=True)
    end(ended)


def _may_run_twice(runs: int | None, given_input: GivenInput, color: str) -> bool:
    """Whether the program runs twice. Tells the user, unless the user asked for one run."""
    if runs == 1:
        return False
    if given_input.is_read_once:
        say(
            stderr(color),
            "note",
            "standard input is a pipe, so the program runs once, and new memory is not told from "
            "reused memory; redirect a file with '<' for both",
        )
        return False
    say(
        stderr(color),
        "note",
        "the program runs twice under valgrind, which takes some 50 times as long; only the "
        "second run shows its output; with --runs 1 the program runs once",
    )
    return True


def _counted(contender: Contender, ended: Ended, folder: Path) -> PathInstructions:
    """The counts; if there are none, the program's own failure decides the exit code."""
    from cairn.run import path_instructions

    try:
        return path_instructions.counted(contender, folder)
    except ContenderFailed:
        raise
    except CairnError as error:
        fail(error, ended.exit_code or EXIT_CANNOT_RUN)
