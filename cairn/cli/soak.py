"""cairn soak: runs a program for minutes or hours and says how its memory changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import rich_click as click
from msgspec.structs import replace

from cairn import units
from cairn.cli import load as loads
from cairn.cli import options, standard_input
from cairn.cli.console import PICTURE, output_of, stderr
from cairn.cli.measurement import conduct, new_run, refuse_beside_resume, resumed
from cairn.cli.program_options import CONCLUDE, CPUS, INPUT, OK_EXIT, PREPARE, READY, SHELL
from cairn.cli.root_command import cli
from cairn.errors import ContenderFailed, ProgramFailed, UsageError
from cairn.model import Run, Sample, Settings, StopRule, Workload
from cairn.report.view import Form
from cairn.run import store

DEFAULT = ("system", "tuned=system:MALLOC_ARENA_MAX=2;MALLOC_MMAP_THRESHOLD_=131072", "cairn")
"""The contenders if -a is not given: the system's allocator, without and with two knobs, and
cairn."""
LEAST_S = 5.0
_NAME = "cairn soak"
"""The name of this command, which continues its runs."""
_ROUNDS_MOST = 100


@cli.command(context_settings={"allow_interspersed_args": False, **options.RUNS_ARE_ROUNDS})
@options.contenders(
    "A contender, as for 'cairn compare'. Repeatable; a,b,c gives several. Default: system; tuned, "
    "which is system with two variables that keep it small (docs/soak.md); and cairn."
)
@click.option(
    "--for", "length", type=options.SOME_TIME, default="2min", show_default=True,
    metavar="DURATION",
    help="The length of each run, such as 90s, 10min or 2h. The program is then asked to end.",
)  # fmt: skip
@click.option(
    "-r", "--rounds", type=click.IntRange(1, _ROUNDS_MOST), default=2, show_default=True,
    metavar="N", help="Run each contender N times, in alternating order: A B, then B A.",
)  # fmt: skip
@click.option(
    "--while", "load", metavar="COMMAND",
    help="PROG is a server: start it, wait until it is ready, and run this load until the time is "
    "over, again and again if it ends earlier. {port} is a free port, in PROG and in COMMAND.",
)  # fmt: skip
@READY
@SHELL
@INPUT
@OK_EXIT
@CPUS
@PREPARE
@CONCLUDE
@options.RESUME
@options.output_options("one row per reading of the memory")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROG [ARG]…")
def soak(
    command: tuple[str, ...], specs: tuple[str, ...], length: float, rounds: int,
    load: str | None, ready: str | None, shell: bool, stdin: str | None, ok_exit: tuple[int, ...],
    cpus: str | None, prepare: str | None, conclude: str | None, resume: str | None,
    form: Form | None, full: bool, out: Path | None, force: bool, results: Path | None,
    color: str,
) -> None:  # fmt: skip
    """Say whether a program leaks memory, and whether its memory is fragmented, kept, or stable.

    The program runs for a fixed time under each contender. The probe counts its live memory and the
    memory that the allocator holds. At the end of each run, the allocator is asked to give back the
    memory that it does not need. Runs are kept; 'cairn report' shows them again.

    \b
      cairn soak --for 10min -- ./worker
      cairn soak --for 30min --while './load {port}' -- ./server {port}
      cairn soak -a system,jemalloc --for 5min -o memory.html -- ./worker

    Exit codes: those of 'cairn compare'.
    """
    console = stderr(color)
    output = output_of(form, full, color, out, force, endings=PICTURE)
    where = results or store.root()
    if resume is not None:
        refuse_beside_resume()
        run, folder = resumed(where, resume, _NAME)
    else:
        if not command:
            raise UsageError("which program? For example: cairn soak --for 10min -- ./worker")
        if length < LEAST_S:
            raise UsageError(
                f"--for {units.about(length)} is too short to see memory over time; give at "
                f"least {LEAST_S:g}s"
            )
        line = (" ".join(command),) if shell else command
        loads.check(
            load, ready, prepare, [line], (), why=False, verify=False, wait_descendants=False,
            repeat=False,
        )  # fmt: skip
        settings = Settings(
            workloads=(Workload(" ".join(command), line, load=load or ""),),
            folder=str(Path.cwd()), ready=ready, shell=shell, prepare=prepare, conclude=conclude,
            ok_exit=ok_exit, cpus=cpus, warmup=0, soak_s=length,
        )  # fmt: skip
        rule = StopRule(None, rounds, rounds)
        with standard_input.chosen(stdin, where, console) as given:
            settings = replace(settings, stdin=given.stdin)
            run = new_run(
                console, settings, specs or DEFAULT, None, rule, None, stdin=given.path,
                made_by=_NAME,
            )  # fmt: skip
            probed = tuple(replace(one, probed=True) for one in run.contenders)
            folder = store.Folder.create(where, run := replace(run, contenders=probed), given.copy)
    conduct(console, run, folder, _NAME, output)
    _raise_unjudged(folder.run(), folder.samples())


def _raise_unjudged(run: Run, samples: Sequence[Sample]) -> None:
    """Raises an error if all runs of a contender ended well, and still do not allow a verdict.

    The error about the baseline takes precedence over others.
    """
    from cairn.soak.verdict import verdicts

    for one in sorted(verdicts(run, samples), key=lambda one: one.contender != run.baseline):
        if one.failure is not None and one.contender == run.baseline:
            raise ProgramFailed(f"under {one.contender}, the program {one.failure}")
        if one.failure is not None:
            raise ContenderFailed(f"under {one.contender}, the program {one.failure}")
