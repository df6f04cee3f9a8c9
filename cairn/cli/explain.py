"""cairn explain: the gap between two contenders of a stored run, taken apart."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from cairn.cli import options
from cairn.cli.console import check_out, emit, form_of
from cairn.cli.group import cli
from cairn.cli.runs import explanation
from cairn.errors import UsageError
from cairn.run import store


@cli.command()
@click.argument("name", metavar="[RUN", default="last")
@click.argument("contender", metavar="[CONTENDER", required=False)
@click.argument("other", metavar="[OTHER]]]", required=False)
@click.option("--json", "form", flag_value="json", help="One JSON document.")
@click.option("--md", "form", flag_value="md", help="Markdown.")
@options.OUT
@options.FORCE
@options.RESULTS
@options.COLOR
def explain(
    name: str, contender: str | None, other: str | None, form: str | None, out: Path | None, force: bool,
    results: Path | None, color: str,
) -> None:  # fmt: skip
    """Say why a contender takes more, or less, than another: the gap between them, taken apart.

    RUN is one of 'cairn compare --why': 'last', an id or a path. CONTENDER is compared with OTHER, else with the run's
    baseline; without both, every contender is.

    \b
      cairn compare --why -a system,mimalloc,jemalloc -- ./prog
      cairn explain last jemalloc mimalloc
    """
    form = form_of(form, out)
    if form == "csv":
        raise UsageError("an explanation has no rows for CSV; 'cairn report --csv' has every trial")
    check_out(out, force)
    folder = store.find(results or store.root(), name)
    run, samples = folder.run(), folder.samples()
    emit(explanation(run, samples, contender, other, form, color, out is not None), out, force)
