"""cairn doctor: checks if an allocator can be swapped, and what this machine can measure."""

from __future__ import annotations

import os
import sys

import rich_click as click

import cairn
from cairn.cli import options
from cairn.cli.console import output_of
from cairn.cli.root_command import cli
from cairn.errors import ContenderFailed


@cli.command(context_settings={"allow_interspersed_args": False})
@options.AS_JSON
@options.COLOR
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [PROG [ARG]…]")
def doctor(command: tuple[str, ...], as_json: bool, color: str) -> None:
    """Check whether a program's allocator can be swapped, and what this machine can measure.

    The report also says how noisy the machine is. The program is read, not run. Without PROG, only
    the machine is checked.

    Exit codes: 0 no obstacle, at most warnings; 1 cairn failed; 2 usage; 3 the program is missing
    or cannot be executed; 4 a preloaded allocator cannot work in the program, so that 'cairn
    compare' would refuse it.
    """
    from cairn.doctor import machine
    from cairn.doctor.abilities import abilities
    from cairn.doctor.checks import examined
    from cairn.doctor.program_checks import diagnose
    from cairn.report import doctor

    diagnosis = diagnose(command, os.environ) if command else None
    here = machine.host()
    now = machine.conditions(here, thorough=True)
    groups = examined(diagnosis, now, abilities(), here)
    if as_json:
        click.echo(doctor.document(groups, cairn=cairn.__version__))
    else:
        view = output_of("text", False, color, None, False).view
        click.echo(doctor.render(groups, view), nl=False, color=True)
    if diagnosis is not None and diagnosis.obstacle is not None:
        sys.exit(ContenderFailed.exit_code)
