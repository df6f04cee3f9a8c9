"""cairn explain: splits the gap between two contenders of a stored run into its parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from cairn.cli import options
from cairn.cli.console import DOCUMENT, end_like_ctrl_c, output_of, say, stderr
from cairn.cli.measurement import measured
from cairn.cli.root_command import cli
from cairn.errors import Interrupted, UsageError
from cairn.report.view import Form
from cairn.run import store
from cairn.run.stored_run import DamagedFile, StoredRun

if TYPE_CHECKING:
    from rich.console import Console

    from cairn.model import Run
    from cairn.simulated_misses import Simulation
    from cairn.why.gap import Why


@cli.command()
@click.argument("name", metavar="[RUN", default="last")
@click.argument("contender", metavar="[CONTENDER", required=False)
@click.argument("other", metavar="[OTHER]]]", required=False)
@click.option(
    "--simulate", is_flag=True,
    help="Run the program again in valgrind's simulation of caches and TLB, under each contender "
    "that is explained. It shows how much of the program's own time is due to where its blocks "
    "lie. Each contender needs two or three runs, and each of them takes some 50 times as long as "
    "the program. The result stays with the run.",
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
    from cairn.report.run import explainable, explained_pairs, explanation

    output = output_of(form, full, color, out, force, endings=DOCUMENT)
    stored = store.find(results or store.root(), name)
    if simulate:
        found = measured(stored, simulated=False)
        explainable(found, contender, other)
        whys = explained_pairs(found, contender, other)
        _simulate(stored, found.run, whys, contender is None, stderr(color))
    found = measured(stored)
    output.write(explanation(found, contender, other, output.view))


def _simulate(
    stored: StoredRun, run: Run, whys: Sequence[Why], everything: bool, console: Console
) -> None:
    """Simulates the contenders of `whys` and writes the results into the run's folder.

    everything: whether every contender is simulated. The caches are then measured anew, and earlier
    results stay only if the caches still have the same sizes. Otherwise the caches and the other
    results of an earlier simulation stay.

    Raises UsageError if the run cannot be simulated, and Interrupted on ctrl-C.
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
    miss_simulation.refuse_other_machine(run)
    ends = [not one.load for one in run.settings.workloads]
    if not any(ends):
        raise UsageError("--simulate runs a program to its end, and this run is of a server")
    known = [why for why in whys if why.time is not None and ends[why.workload]]
    cells = dict.fromkeys(
        (why.workload, name) for why in known for name in (why.baseline, why.contender)
    )
    if not cells:
        reasons = dict.fromkeys(why.why_not for why in whys if why.why_not)
        raise UsageError(f"there is no difference to simulate: {'; '.join(reasons)}")
    say(
        console,
        "note",
        "the program runs again under valgrind, and each run takes some 50 times as long",
    )
    before = None if everything else _before(stored)
    end_like_ctrl_c()
    try:
        with private_folder() as scratch:
            told = partial(say, console, "simulating")
            miss_simulation.simulate(run, stored, tuple(cells), scratch, told, before)
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(
            "interrupted; the contenders that were simulated are kept with the run"
        ) from None


def _before(stored: StoredRun) -> Simulation | None:
    """Returns the earlier simulation; None if there is none, or if its file is damaged."""
    try:
        return stored.simulation()
    except DamagedFile:
        return None
