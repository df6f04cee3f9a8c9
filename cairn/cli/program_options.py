"""The options of commands that measure a program: how it runs, under which load, for how long."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from cairn.cli import options
from cairn.cli.console import check_out
from cairn.errors import CairnError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

READY = click.option(
    "--ready", metavar="COMMAND",
    help="The server is ready when this succeeds. Default: when it accepts a connection on "
    "{port}.",
)  # fmt: skip
SHELL = click.option("--shell", is_flag=True, help="Give the command to /bin/sh as one line.")
INPUT = click.option(
    "--input", "stdin", type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE|-",
    help="File for the program's standard input; - is a copy of cairn's own, the same for every "
    "run. Default: - if that is a pipe or a file, else no input.",
)  # fmt: skip
OK_EXIT = click.option(
    "--ok-exit", type=options.EXITS, default="0", show_default=True,
    help="Exit codes that mean success.",
)  # fmt: skip
CPUS = click.option(
    "--cpus", type=options.CPUS, help="Run the program on these CPUs only, such as 0,2-3."
)
PREPARE = click.option("--prepare", metavar="COMMAND", help="Run this before each run, unmeasured.")
CONCLUDE = click.option(
    "--conclude", metavar="COMMAND", help="Run this after each run, unmeasured."
)
BUDGET = click.option(
    "--budget", type=options.SOME_TIME, default="10min", show_default=True,
    help="Begin no round that would end after this time. With -r, there is no budget unless you "
    "give one.",
)  # fmt: skip
MEMORY = click.option(
    "--memory", type=click.Choice(["auto", "cgroup", "sampled", "none"]), default="auto",
    show_default=True, metavar="HOW",
    help="How to measure the peak memory of the process tree: by a cgroup, sampled, none, or auto.",
)  # fmt: skip
WARM_MEMORY = click.option(
    "--warm-memory", type=options.WARM, default="auto", show_default=True,
    metavar="auto|off|SIZE",
    help="Touch this much memory before each round. auto does so in a virtual machine, for "
    "programs from 256 MiB.",
)  # fmt: skip


def output_file(
    stdout: str | None, *, hooks: Sequence[str | None] = (), reader: str | None = None
) -> str | None:
    """Returns the absolute path of the file of --output.

    hooks: the commands that run before the program, and may make the file's folder.
    reader: the option for which cairn reads the file after each run; None if there is none. Then
    the file may be a device, such as /dev/null. It is never a pipe, since the reader of a pipe
    could let a run wait for ever.

    Raises UsageError or CairnError if the file cannot be written. Call it before a run is made.
    """
    if stdout is None:
        return None
    path = Path(stdout).absolute()
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            raise UsageError(f"--output {stdout} is a pipe or a socket; give a regular file")
        if stat.S_ISDIR(mode):
            raise UsageError(f"--output {stdout} is a folder; give a file")
        if reader is not None and not stat.S_ISREG(mode):
            raise UsageError(
                f"{reader} reads the output, and --output {stdout} is a device that keeps none; "
                "give a regular file"
            )
    if not any(hooks):
        if not os.path.lexists(path):
            check_out(Path(stdout), False)
        elif not os.access(path, os.W_OK):
            raise CairnError(f"cannot write {stdout}: no permission to write to it")
    return str(path)


def program_options(command: F) -> F:
    """Adds the options to a command."""
    for option in reversed((
        click.option(
            "--while", "load", metavar="COMMAND",
            help="PROG is a server: start it, wait until it is ready, run this load, and end it. "
            "Times and faults are those of the server during the load. The load runs without the "
            "allocator; its throughput and latencies become metrics. {port} is a free port, in "
            "PROG, --while, --ready, --prepare and --conclude.",
        ),
        READY,
        click.option(
            "--idle", type=options.SOME_TIME, metavar="DURATION",
            help="After its load, leave the server alone for this time, such as 10s, and measure "
            "the memory that it then holds.",
        ),
        SHELL, INPUT,
        click.option(
            "--output",
            "stdout",
            type=options.NewFile(dir_okay=False),
            metavar="FILE",
            help="File for the program's standard output; every run overwrites it. Default: "
            "discard the output.",
        ),
        OK_EXIT,
        click.option(
            "--verify",
            type=options.VERIFY,
            metavar="same-output",
            help="Fail every contender whose output differs from the baseline's.",
        ),
        click.option(
            "--timeout",
            type=options.SOME_TIME,
            help="Kill a run with all its processes after this time; the run counts as failed.",
        ),
        CPUS,
        click.option(
            "--warmup",
            type=click.IntRange(1, 1000),
            default=1,
            show_default=True,
            metavar="N",
            help="Run each contender N times before the first round, without counting.",
        ),
        click.option(
            "--wait-descendants", is_flag=True,
            help="Measure a run until all its processes have ended, also those that go on in the "
            "background. Without this option they are ended with the command.",
        ),
        click.option(
            "--repeat", type=options.REPEAT, default="1", show_default=True, metavar="auto|N",
            help="Run the program this many times in a row for one number, which is the mean. "
            "auto chooses the number so that programs below 20 ms run for 20 ms together.",
        ),
        click.option("--setup", metavar="COMMAND", help="Run this once before everything else."),
        PREPARE, CONCLUDE,
        click.option("--cleanup", metavar="COMMAND", help="Run this once at the end."),
    )):  # fmt: skip
        command = option(command)
    return command
