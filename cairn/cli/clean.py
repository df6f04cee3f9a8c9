"""cairn clean: removes stored runs and fetched allocators."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import rich_click as click

from cairn import units
from cairn.allocators import discover
from cairn.allocators.tool_runner import bytes_below
from cairn.cli import options
from cairn.cli.root_command import cli
from cairn.errors import Interrupted, UsageError
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

    Exit codes: 0 success, or your answer is no, 1 cairn failed, 2 usage, 130 interrupted.
    """
    where = results or store.root()
    now = time.time()
    there = [*store.runs(where), *store.lost_inputs(where)]
    going = [path for path in there if now - store.began(path) >= older_than]
    cache = discover.cache_folder().parent
    if also_cache and cache.is_dir():
        going.append(cache)
    if not going:
        click.echo(f"nothing to remove in {printable(str(where))}")
        return
    for path in going:
        size = path.lstat().st_size if path.is_file() else bytes_below(path)
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
        if store.is_measured(path):
            click.echo(f"kept, because it is being measured: {printable(str(path))}")
        else:
            store.remove(path)
