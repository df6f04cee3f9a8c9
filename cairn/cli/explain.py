"""cairn explain: splits the gap between two contenders of a stored run into its parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from cairn.cli import options
from cairn.cli.console import DOCUMENT, output_of, say, stderr
from cairn.cli.measurement import measured
from cairn.cli.root_command import cli
from cairn.errors import UsageError
from cairn.report.view import Form
from cairn.run import store
from cairn.run.stored_run import SIMULATION, StoredRun, encoded

if TYPE_CHECKING:
    from rich.console import Console

    from cairn.model import Run


@cli.command()
@click.argument("name", metavar="[RUN", default="last")
@click.argument("contender", metavar="[CONTENDER", required=False)
@click.argument("other", metavar="[OTHER]]]", required=False)
@click.option(
    "--simulate", is_flag=True,
    help="Run the program again in valgrind's simulation of caches and TLB, under each contender "
    "that is explained. It shows how much of the program's own time is due to where its blocks "
    "lie. Takes some 200 times as long as a run of the program. The result stays with the run.",
)  # fmt: skip
@options.ALL_COLUMNS
@options.JSON
@options.MARKDOWN
@options.OUT_DOCUMENT
@options.FORCE
@options.RESULTS
@options.COLOR
def explain(
    name: str, contender: str | None, other: str | None, simulate: bool, form: Form | None,
    full: bool, out: Path | None, force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Say why one contender takes more or less CPU time and memory than another.

    RUN is a run of 'cairn compare --why': an id, a path or 'last', which is the default. CONTENDER
    is compared with OTHER, else with the run's baseline. Without CONTENDER, every contender is
    compared with the baseline.

    \b
      cairn compare --why -a system,mimalloc,jemalloc -- ./prog
      cairn explain last jemalloc mimalloc
      cairn explain --simulate last jemalloc

    Exit codes: 0 success, 1 cairn failed, 2 usage, 3 the program is gone, 4 a contender is gone or
    is another build, 130 interrupted.
    """
    from cairn.report.run import explainable, explanation

    output = output_of(form, full, color, out, force, endings=DOCUMENT)
    stored = store.find(results or store.root(), name)
    found = measured(stored)
    explainable(found, contender, other)
    if simulate:
        names = [contender, other or found.run.baseline] if contender is not None else None
        _simulate(stored, found.run, names, stderr(color))
        found = measured(stored)
    output.write(explanation(found, contender, other, output.view))


def _simulate(
    stored: StoredRun, run: Run, contenders: Sequence[str] | None, console: Console
) -> None:
    """Simulates the contenders, all with None, and writes the result into the run's folder.

    Results of an earlier simulation stay for the other contenders if the caches are the same.

    Raises UsageError if the run cannot be simulated.
    """
    from cairn.run import miss_simulation
    from cairn.run.runner import private_folder
    from cairn.run.valgrind import need_valgrind

    need_valgrind("--simulate")
    if not isinstance(stored, store.Folder):
        raise UsageError(
            f"--simulate runs the program again and keeps the result with the run, and "
            f"{stored.path} is a file of a run; name a run in a folder"
        )
    if any(one.load for one in run.settings.workloads):
        raise UsageError("--simulate runs a program to its end, and this run is of a server")
    say(
        console,
        "note",
        "the program runs again under valgrind, which takes some 50 times as long",
    )
    names = contenders or [one.name for one in run.competing]
    with private_folder() as scratch:
        told = partial(say, console, "simulating")
        found = miss_simulation.simulate(run, stored, names, scratch, told)
    before = stored.simulation()
    if before is not None:
        found = found.with_those_of(before)
    stored.write(SIMULATION, encoded(found))
