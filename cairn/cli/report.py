"""cairn report: a stored run is shown again."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from cairn.cli import options
from cairn.cli.console import check_out, emit, form_of
from cairn.cli.group import cli
from cairn.cli.runs import compared, rendered
from cairn.run import store


@cli.command()
@click.argument("name", metavar="RUN", default="last")
@options.output_options
def report(
    name: str,
    form: str | None,
    full: bool,
    out: Path | None,
    force: bool,
    results: Path | None,
    color: str,
) -> None:
    """Show a run again: RUN is 'last', an id or a path.

    Nothing is measured; the same stored runs give the same report.
    """
    form = form_of(form, out)
    check_out(out, force)
    folder = store.find(results or store.root(), name)
    stored = folder.run()
    comparisons = compared(stored, folder)
    emit(rendered(stored, comparisons, folder, form, full, color, out is not None), out, force)
