"""cairn report: shows a stored run again."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from cairn.cli import options
from cairn.cli.console import output_of
from cairn.cli.measurement import measured
from cairn.cli.root_command import cli
from cairn.report.view import Form
from cairn.run import store
from cairn.run.run_archive import packed


@cli.command()
@click.argument("name", metavar="RUN", default="last")
@options.output_options
def report(
    name: str,
    form: Form | None,
    full: bool,
    out: Path | None,
    force: bool,
    results: Path | None,
    color: str,
) -> None:
    """Show a run again: RUN is 'last', an id, a folder or a run file.

    Nothing is measured again: a stored run always gives the same report.

    \b
      cairn report last --full             every metric, with spread and range
      cairn report last -o speed.tar.xz    write the whole run into one file, to keep or to send
      cairn report speed.tar.xz --md       show the run in such a file
    """
    from cairn.report.run import comparisons, rendered

    output = output_of(form, full, color, out, force)
    stored = store.find(results or store.root(), name)
    if output.packs:
        output.write(packed(stored))
        return
    found = measured(stored)
    output.write(rendered(found, comparisons(found), output.view))
