"""cairn calibrate: measures what each allocator costs here, for predictions of `cairn profile`."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from cairn.cli import options
from cairn.cli.bench import bench
from cairn.cli.root_command import cli
from cairn.report.view import Form


@cli.command()
@options.contenders(
    "Measure these allocators; written as for 'cairn compare'. Default: all that are installed and "
    "not hardened."
)
@click.option("--quick", is_flag=True, help="Measure fewer allocators in fewer rounds.")
@options.output_options()
def calibrate(
    specs: tuple[str, ...], quick: bool, form: Form | None, full: bool, out: Path | None,
    force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Measure what each allocator costs on this machine, for predictions of 'cairn profile'.

    A few workloads run under every allocator, with and without the probe; 'cairn bench calibration'
    does the same. From then on, the first screen of each profile has the CPU time that the best
    allocator is expected to save. For this prediction the program does not run under that
    allocator.

    Exit codes: those of 'cairn bench'.
    """
    context = click.get_current_context()
    assert context is not None
    given = {"specs": specs, "quick": quick, "form": form, "full": full, "out": out, "force": force}
    context.invoke(bench, names=("calibration",), results=results, color=color, **given)
