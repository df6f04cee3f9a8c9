"""cairn profile --read AFTER --against BEFORE: how the functions that allocate differ."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import rich_click as click

import cairn
from cairn.cli.console import check_out, emit, given, refuse_one_file, wants_color, width_of
from cairn.cli.stack_outputs import names_of
from cairn.errors import CairnError, UsageError
from cairn.report.view import View


def report(
    after: Path,
    before: Path,
    debug_path: Sequence[str],
    as_json: str | None,
    as_csv: str | None,
    force: bool,
    color: str,
) -> None:
    """Writes the report on standard output, or on standard error if JSON or CSV goes there.

    Raises UsageError for options that do not go with --against, and CairnError if a profile has no
    call stacks.
    """
    for one in given({"read", "against", "debug_path", "as_json", "as_csv", "force", "color"}):
        raise UsageError(f"--against compares two kept profiles; leave out {one}")
    if as_json == as_csv == "-":
        raise UsageError(
            "--json - and --csv - would be mixed on standard output; give one of them a file"
        )
    from cairn.profile.callers import by_function, stacks
    from cairn.profile.callers_change import difference
    from cairn.profile.reader import gather
    from cairn.report import callers_change_table as table
    from cairn.report import naming_table

    outs = [None if out in (None, "-") else Path(str(out)) for out in (as_json, as_csv)]
    refuse_one_file(*outs)
    for out in outs:
        check_out(out, force)
    both = []
    changed: set[str] = set()
    lacking: list[str] = []
    for folder in (before, after):
        profile = gather(folder)
        if not any(file.samples for file in profile.stacks):
            raise CairnError(
                profile.stacks_problem
                or f"there are no call stacks in {folder}; record it with --stacks"
            )
        names = names_of(profile, folder, debug_path)
        found_here = stacks(profile.stacks, names.at)
        changed |= names.changed
        both.append((profile.stacks, by_function(found_here)))
        lacking += table.incomplete(str(folder), profile, found_here)
    found = difference(*both)
    first, last = str(before), str(after)
    if as_json:
        emit(table.document(found, first, last, cairn.__version__, lacking), outs[0], force)
    if as_csv:
        emit(table.rows(found), outs[1], force)
    stream = sys.stderr if "-" in (as_json, as_csv) else sys.stdout
    view = View("text", False, wants_color(color, stream), width_of(stream))
    warning = naming_table.changed(changed)
    text = table.render(found, first, last, view, warning, lacking)
    click.echo(text, nl=False, err=stream is sys.stderr, color=True)
