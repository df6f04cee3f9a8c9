"""cairn clean: removes stored runs and fetched allocators."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import rich_click as click

from cairn import units
from cairn.allocators import discover
from cairn.allocators.tool_runner import bytes_below
from cairn.cli import options
from cairn.cli.root_command import cli
from cairn.errors import CairnError, Interrupted, UsageError
from cairn.matrix import fleet
from cairn.report.formatting import printable
from cairn.run import store


@cli.command()
@click.option(
    "--older-than",
    type=options.DURATION,
    default="0",
    help="Remove only runs that began longer ago than this, such as 72h.",
)
@click.option(
    "--cache",
    "also_cache",
    is_flag=True,
    help="Also remove the cache: fetched allocators and the files of experiments.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.RESULTS
def clean(older_than: float, also_cache: bool, yes: bool, results: Path | None) -> None:
    """Remove stored runs, and with --cache fetched allocators, too. Asks first.

    A run that may be measured now is kept, and meanwhile the cache is kept, too. This holds for a
    run on several machines until its last round has ended, because its jobs may go on.

    Exit codes: 0 success, or your answer is no, 1 cairn failed, 2 usage, 130 interrupted.
    """
    where = results or store.root()
    now = time.time()
    there = [*store.runs(where), *store.lost_inputs(where)]
    going = [path for path in there if now - store.began(path) >= older_than]
    going += [path for path in fleet.fleets(where) if now - fleet.began(path) >= older_than]
    cache = discover.cache_folder().parent if also_cache else None
    if cache is not None and os.path.isdir(cache):
        going.append(cache)
    if not going:
        click.echo(f"nothing to remove in {printable(str(where))}")
        return
    for path in going:
        size = path.lstat().st_size if os.path.isfile(path) else bytes_below(path)
        click.echo(f"{units.size(size):>10}  {printable(str(path))}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "cannot ask, since standard input is not a terminal; -y removes without asking"
            )
        these = "this" if len(going) == 1 else f"these {len(going)}"
        try:
            agreed = click.confirm(f"Remove {these}?")
        except click.Abort:  # ctrl-C, or ctrl-D, which is the end of the input
            click.echo(err=True)  # ends the line of the question
            raise Interrupted("interrupted; nothing was removed") from None
        if not agreed:
            click.echo("nothing was removed")
            return
    for path in going:
        if path == cache and any(map(_may_be_measured, _every_run(where))):
            click.echo(f"kept, because a run may be measured now: {printable(str(path))}")
        elif _may_be_measured(path):
            click.echo(f"kept, because it may be measured now: {printable(str(path))}")
        else:
            store.remove(path)


def _may_be_measured(path: Path) -> bool:
    return store.may_be_measured(path) or fleet.may_be_measured(path)


def _every_run(where: Path) -> list[Path]:
    """Returns all runs and fleets in the folder `where`, and in the default folder of results."""
    folders = {where}
    with contextlib.suppress(CairnError):  # there is no home folder
        folders.add(store.root())
    return [path for one in folders for path in (*store.runs(one), *fleet.fleets(one))]
