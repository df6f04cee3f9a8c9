"""cairn report: shows a stored run again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from msgspec.structs import replace

from cairn.cli import options
from cairn.cli.console import PICTURE, Output, output_of, was_given
from cairn.cli.measurement import measured, raise_unanswered, shown
from cairn.cli.root_command import cli
from cairn.errors import CairnError, UsageError
from cairn.report.formatting import printable
from cairn.report.view import Form
from cairn.run import store
from cairn.run.run_archive import packed
from cairn.verdict import Bound

if TYPE_CHECKING:
    from cairn.report.run_list import Listed


@cli.command()
@click.argument("name", metavar="[RUN]", default="last")
@click.option(
    "--list",
    "lists",
    is_flag=True,
    help="List all runs instead, the newest first: date, command, contenders, verdict.",
)
@options.aim_options_of_a_report
@options.output_options(
    "one row per run; for a run of 'cairn soak', one row per reading of its memory"
)
def report(
    name: str,
    lists: bool,
    goal: str | None,
    may_cost: tuple[Bound, ...],
    pareto: bool,
    form: Form | None,
    full: bool,
    out: Path | None,
    force: bool,
    results: Path | None,
    color: str,
) -> None:
    """Show a run again: RUN is an id, a folder, a run file or 'last', which is the default.

    Nothing is measured again: a stored run always gives the same report. --goal, --may-cost and
    --pareto ask another question of the same numbers.

    \b
      cairn report --list                  which runs there are
      cairn report last --full             every metric, with spread and range
      cairn report last --goal memory      what to use if memory matters most
      cairn report last -o speed.html      one page with drawings, tables and raw data
      cairn report last -o speed.tar.xz    write the whole run into one file, to keep or to send
      cairn report speed.tar.xz --md       show the run in such a file

    Exit codes: 0 success, 1 cairn failed or the run does not answer what --goal or --pareto asks
    for, 2 usage.
    """
    from cairn.report.run import comparisons

    output = output_of(
        form, full, color, out, force, endings=(".json", ".txt") if lists else PICTURE
    )
    aim = options.aim_of(goal, may_cost, pareto, None)
    if lists:
        if aim.given:
            raise UsageError("--list has no verdict; leave out --goal, --may-cost and --pareto")
        if full:
            raise UsageError("--list has one form for all runs; leave out --full")
        _list(results or store.root(), output)
        return
    if output.packs and aim.given:
        raise UsageError(
            "a run file holds the run as it was measured, and not the answer to another question; "
            "leave out --goal, --may-cost and --pareto"
        )
    stored = store.find(results or store.root(), name)
    if output.packs:
        output.write(packed(stored))
        return
    found = measured(stored)
    if aim.given:
        if found.kind != "comparison" or found.run.settings.instructions:
            raise UsageError(
                "--goal, --may-cost and --pareto are for a run of 'cairn compare'; this is another"
            )
        aim = options.aim_of(goal, may_cost, pareto, found.run.rule.margin)
        found = replace(found, run=replace(found.run, aim=aim))
    compared = comparisons(found)
    output.write(shown(found, compared, output.view))
    raise_unanswered(found.run, compared)


def _list(where: Path, output: Output) -> None:
    """Writes the list of all runs in this folder, the newest first."""
    from cairn.report import run_list

    if was_given("name"):
        raise UsageError("--list shows all runs; leave out --list or the name of the run")
    if output.view.form not in ("text", "json"):
        raise UsageError("the list is text or JSON; leave out the other form")
    runs = [_listed(path) for path in reversed(store.runs(where))]
    if output.view.form == "json":
        output.write(run_list.document(runs))
        return
    if not runs:
        output.write(f"there is no run in {printable(str(where))}\n")
        return
    dates = [
        time.strftime("%Y-%m-%d %H:%M", time.localtime(one.created_at))
        if one.created_at is not None
        else "date unknown"
        for one in runs
    ]
    output.write(run_list.render(runs, dates, output.view))


def _listed(path: Path) -> Listed:
    from cairn.report import run_list

    try:
        # The list does not say which run is used for predictions: to find that out for each run
        # would take long.
        found = measured(store.Folder(path), predicts=False)
        return run_list.listed(found, str(path), runs_now=store.is_measured(path))
    except CairnError as error:
        return run_list.damaged(path.name, str(path), str(error))
