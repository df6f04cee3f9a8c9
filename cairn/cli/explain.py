"""cairn explain: splits the gap between two contenders of a stored run into its parts."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from cairn.cli import options
from cairn.cli.console import DOCUMENT, output_of
from cairn.cli.measurement import measured
from cairn.cli.root_command import cli
from cairn.report.view import Form
from cairn.run import store


@cli.command()
@click.argument("name", metavar="[RUN", default="last")
@click.argument("contender", metavar="[CONTENDER", required=False)
@click.argument("other", metavar="[OTHER]]]", required=False)
@options.ALL_COLUMNS
@options.JSON
@options.MARKDOWN
@options.OUT_DOCUMENT
@options.FORCE
@options.RESULTS
@options.COLOR
def explain(
    name: str, contender: str | None, other: str | None, form: Form | None, full: bool,
    out: Path | None, force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Say why one contender takes more or less CPU time and memory than another.

    RUN is a run of 'cairn compare --why': an id, a path or 'last', which is the default. CONTENDER
    is compared with OTHER, else with the run's baseline. Without CONTENDER, every contender is
    compared with the baseline.

    \b
      cairn compare --why -a system,mimalloc,jemalloc -- ./prog
      cairn explain last jemalloc mimalloc

    Exit codes: 0 success, 1 cairn failed, 2 usage.
    """
    from cairn.report.run import explanation

    output = output_of(form, full, color, out, force, endings=DOCUMENT)
    found = measured(store.find(results or store.root(), name))
    output.write(explanation(found, contender, other, output.view))
