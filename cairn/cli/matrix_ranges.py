"""cairn matrix ranges: the ranges of profile metrics in runs of a plan."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import rich_click as click

from cairn.cli import measurement as making
from cairn.cli import options
from cairn.cli.console import check_out, emit, output_of, refuse_one_file
from cairn.cli.matrix import matrix, not_of_a_plan
from cairn.errors import CairnError, UsageError
from cairn.matrix import fleet
from cairn.report.run import Measured
from cairn.report.view import Form
from cairn.run import store


@matrix.command()
@click.argument("names", metavar="[RUN]…", nargs=-1)
@click.option("--full", is_flag=True, help="Show the ranges on each program, too.")
@options.JSON
@options.form_option("--csv", "csv", "Print CSV, one line for each value.")
@options.MARKDOWN
@options.OUT_TABLE
@click.option(
    "--keep", type=options.NEW_FILE, metavar="FILE",
    help="Write the ranges to FILE, compressed, for --ranges of 'cairn judge'.",
)  # fmt: skip
@options.FORCE
@options.RESULTS
@options.COLOR
def ranges(
    names: tuple[str, ...], full: bool, form: Form | None, out: Path | None, keep: Path | None,
    force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Show the ranges of profile metrics: mean, least and greatest over the contenders.

    RUN was made with 'cairn matrix run --profile'. The default is 'last'. A second range leaves out
    the worst contender of a metric if it lies far from the others. Dramatic differences are marked.

    \b
      cairn matrix run suite --profile
      cairn matrix ranges last

    Exit codes: 0 success, 1 cairn failed or no run with the probe has ended well, 2 usage.
    """
    from cairn.report import ranges as reporting
    from cairn.report import terminal
    from cairn.report.matrix_board import refuse_unlike
    from cairn.why.ranges import gathered

    output = output_of(form, full, color, out, force)
    refuse_one_file(out, keep)
    check_out(keep, force)
    where = results or store.root()
    found = [profiled(where, name) for name in names or ("last",)]
    runs = [one.run for one in found]
    refuse_unlike(runs)
    if len({run.baseline for run in runs}) > 1:
        raise UsageError(
            "the runs have different baselines: "
            f"{', '.join(sorted({run.baseline for run in runs}))}; give runs with the same baseline"
        )
    table = gathered(
        [(one.run, one.samples) for one in found], making.groups_over(runs), _ill(found)
    )
    if not any(table.cells.values()):
        raise CairnError("no run with the probe has ended well yet, so there are no ranges")
    if keep is not None:
        from cairn.bench import kept_ranges

        emit(kept_ranges.encoded(table, _about(found)), keep, force)
    view = output.view
    made = reporting.board(table, full=view.full)
    match view.form:
        case "json":
            output.write(reporting.as_json(table))
        case "csv":
            output.write(reporting.as_csv(table))
        case "md":
            from cairn.report import markdown

            output.write(markdown.plain_board(made, _about(found)))
        case _:
            output.write(terminal.drawn(made, view, answer_first=True))


def profiled(where: Path, name: str) -> Measured:
    """Returns a run of a plan that has trials with the probe. Raises UsageError for another."""
    several = fleet.find(where, name)
    if several is not None:
        raise UsageError(
            f"{several.path.name} is a run on several machines, which measured nothing with the "
            f"probe; 'cairn matrix report {several.path.name}' shows it"
        )
    one = making.measured(store.find(where, name))
    if one.kind != "matrix":
        raise not_of_a_plan(one.name)
    if not one.run.settings.why:
        raise UsageError(
            f"{one.name} ran nothing with the probe; measure again with 'cairn matrix run "
            "--profile'"
        )
    return one


def _ill(found: list[Measured]) -> tuple[str, ...]:
    """The contenders that are ill allocators of Cairn."""
    from cairn.why.ill_allocators import ILL

    names = {one.name for one in ILL}
    return tuple(
        dict.fromkeys(
            contender.name
            for one in found
            for contender in one.run.competing
            if contender.name in names and dict(contender.knobs).keys() == {"ILL"}
        )
    )


def _about(found: list[Measured]) -> str:
    """Sentences on the origin of the runs: the version of cairn, the date, and the machine."""
    run = found[0].run
    when = datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d")
    host = run.host
    rounds = ", ".join(str(one.run.settings.profiled_rounds or "all") for one in found)
    return (
        f"Made by cairn {run.cairn} on {when}, on {host.system}, kernel {host.kernel}, "
        f"{host.libc}, {host.cpus} CPUs. Rounds with the probe: {rounds}."
    )
