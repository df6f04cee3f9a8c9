"""cairn calibrate: what each allocator costs on this machine is measured, for predictions."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from cairn.cli import options
from cairn.cli.bench import bench
from cairn.cli.group import cli
from cairn.report.view import Form


@cli.command()
@click.option(
    "-a", "--allocator", "specs", multiple=True, metavar="SPEC",
    help="These allocators; as for 'cairn compare'. Default: every one here that is not hardened.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Fewer allocators and rounds.")
@options.output_options
def calibrate(
    specs: tuple[str, ...], quick: bool, form: Form | None, full: bool, out: Path | None, force: bool,
    results: Path | None, color: str,
) -> None:  # fmt: skip
    """Measure what each allocator costs on this machine, so that 'cairn profile' can tell what another would save.

    Runs a few workloads under every allocator that is here, as they are and behind the probe; the same as 'cairn bench
    calibration'. From then on a profile ends with what the best of them is expected to save, without running it.
    """
    context = click.get_current_context()
    assert context is not None
    given = {"specs": specs, "quick": quick, "form": form, "full": full, "out": out, "force": force}
    context.invoke(bench, names=("calibration",), results=results, color=color, **given)
