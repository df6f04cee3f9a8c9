"""cairn compare: measures a program under several allocators and gives a verdict."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from msgspec.structs import replace

from cairn import units
from cairn.cli import load as loads
from cairn.cli import options, standard_input
from cairn.cli.console import PICTURE, output_of, refuse_one_file, stderr, was_given
from cairn.cli.measurement import conduct, new_run, refuse_beside_resume, resumed
from cairn.cli.program_options import BUDGET, MEMORY, WARM_MEMORY, output_file, program_options
from cairn.cli.root_command import cli
from cairn.errors import UsageError
from cairn.model import ROUNDS_MOST, Pattern, Settings, StopRule, Workload
from cairn.report.view import Form
from cairn.run import store
from cairn.verdict import Bound, Measure

if TYPE_CHECKING:
    from cairn.run.program_contenders import NamedProgram

_OTHER_NAMES = {"min-blocks": "min-rounds", "max-blocks": "max-rounds", "rounds": "runs"}
"""Options that work and that no help text shows: those of version 0.1.0, and --rounds, as 'cairn
soak' and 'cairn matrix' call it."""


@cli.command(
    context_settings={
        "allow_interspersed_args": False,
        "token_normalize_func": lambda name: _OTHER_NAMES.get(name, name),
    }
)
@options.contenders(
    "A contender. Repeatable; a,b,c gives several. Default: the system's, cairn's own, and all "
    "installed ones that are not hardened."
)
@click.option(
    "-p", "--program", "programs", type=options.PROGRAM, multiple=True, metavar="[NAME=]PROG",
    help="A program to compare, instead of '-- PROG'; the arguments follow '--'. Repeatable: "
    "the first program is the baseline, and every program runs under every allocator of -a. "
    "Without -a, each program runs with the allocator that it is linked with.",
)  # fmt: skip
@click.option(
    "--baseline",
    metavar="NAME",
    help="Compare all others with this contender. Default: system, else the first.",
)
@options.aim_options
@click.option(
    "--precision",
    type=options.PERCENT,
    default="1%",
    show_default=True,
    help="Stop when the change in wall time, or in the measures of --goal or --pareto, is known "
    "within ± this for every contender.",
)
@click.option(
    "--margin",
    type=options.PERCENT,
    default="1%",
    show_default=True,
    help="Call changes within ± this equivalent.",
)
@click.option(
    "--min-rounds",
    type=click.IntRange(2, ROUNDS_MOST),
    default=10,
    show_default=True,
    metavar="N",
    help="Run at least N rounds, unless the budget ends the run earlier.",
)
@click.option(
    "--max-rounds",
    type=click.IntRange(2, ROUNDS_MOST),
    default=200,
    show_default=True,
    metavar="N",
    help="Run at most N rounds.",
)
@BUDGET
@click.option(
    "-r",
    "--runs",
    type=click.IntRange(1, ROUNDS_MOST),
    metavar="N",
    help="Run exactly N rounds, whatever the precision.",
)
@options.RESUME
@click.option(
    "-c", "--command", "lines", multiple=True, metavar="LINE",
    help="A command as one line, instead of '-- PROG'. Repeatable: all commands run in one plan, "
    "each with a verdict of its own.",
)  # fmt: skip
@click.option(
    "-L", "--parameter", "parameters", type=options.PARAMETER, multiple=True, metavar="NAME=A,B,…",
    help="Run the command once for each value, in place of {NAME}. Repeatable: every combination "
    "runs.",
)  # fmt: skip
@program_options
@click.option(
    "--metric",
    "patterns",
    type=options.PATTERN,
    multiple=True,
    help="Read a number from the program's output: the group in the last match, or the whole "
    "last match if the pattern has no group. Repeatable.",
)
@click.option(
    "--instructions", is_flag=True,
    help="After the rounds, count each contender's instructions with valgrind, in two more runs. "
    "The counts are exact if the program does the same in every run. Each of these runs takes "
    "some 50 times as long.",
)  # fmt: skip
@click.option(
    "--counters",
    is_flag=True,
    help="Count perf's default events for the whole process tree, if the machine has them.",
)
@click.option(
    "--why", is_flag=True,
    help="Explain the differences: split CPU time into allocator, system calls, page faults and "
    "program, and memory into its parts. This takes clock samples of the plain runs, and also runs "
    "each contender with the probe, so it takes more than twice the time.",
)  # fmt: skip
@MEMORY
@WARM_MEMORY
@options.SEED
@options.NOT_N
@options.output_options()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROG [ARG]…")
def compare(
    command: tuple[str, ...], lines: tuple[str, ...],
    parameters: tuple[tuple[str, tuple[str, ...]], ...],
    specs: tuple[str, ...], programs: tuple[NamedProgram, ...], baseline: str | None,
    goal: str | None, may_cost: tuple[Bound, ...], pareto: bool, resume: str | None,
    precision: float, margin: float, min_rounds: int, max_rounds: int, budget: float,
    runs: int | None, seed: int | None, shell: bool, stdin: str | None, stdout: str | None,
    ok_exit: tuple[int, ...], verify: str | None, timeout: float | None, cpus: str | None,
    warmup: int,
    wait_descendants: bool, repeat: int | None, setup: str | None,
    load: str | None, ready: str | None, idle: float | None,
    prepare: str | None, conclude: str | None, cleanup: str | None, patterns: tuple[Pattern, ...],
    instructions: bool, counters: bool, why: bool, memory: str, warm_memory: int | None,
    form: Form | None, full: bool, out: Path | None, force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Run a program under several allocators and say which one it should use.

    Every allocator runs once per round, in random order, so that a machine that gets slower or
    faster affects all of them alike. A run counts only if it succeeds and every process of its tree
    proves which library owned malloc. Results are kept; 'cairn report' shows them again.

    To compare builds of one program, name them with -p, and give their arguments after '--'.

    \b
      cairn compare -p old=./a -p new=./b -- --size 3

    SPEC is [NAME=]LIB[@VERSION][:KEY=VALUE;…]: a name from 'cairn allocators' or a path, with
    environment variables after ':'. NAME= gives the contender another name in the report.

    Exit codes: 0 success; 1 cairn failed or could not measure what --goal or --pareto asks for; 2
    usage, or a command such as --prepare fails; 3 the program or its load fails under the baseline;
    4 it fails under another contender only, or that one cannot be loaded; 130 interrupted (continue
    with --resume last).
    """
    console = stderr(color)
    output = output_of(form, full, color, out, force, endings=PICTURE)
    refuse_one_file(out, Path(stdout) if stdout else None)
    aim = options.aim_of(goal, may_cost, pareto, margin)
    if memory == "none" and Measure.MEMORY in aim.measures:
        raise UsageError("memory is part of the aim, but --memory none does not measure it")
    where = results or store.root()
    if resume is not None:
        refuse_beside_resume()
        run, folder = resumed(where, resume, "cairn compare")
    else:
        doubles = [
            pattern.name
            for pattern in patterns
            if [p.name for p in patterns].count(pattern.name) > 1
        ]
        if doubles:
            raise UsageError(f"--metric {doubles[0]} is given twice; give one of them another name")
        if programs:
            names = [name for name, _ in parameters]
            command = _of_programs(programs, command, lines, names, shell=shell, why=why)
        workloads = _workloads(command, lines, parameters, shell, load or "")
        loads.check(
            load, ready, prepare, [one.command for one in workloads],
            [name for name, _ in parameters], why=why, verify=verify is not None,
            wait_descendants=wait_descendants, repeat=repeat != 1,
            idle=idle is not None,
        )  # fmt: skip
        settings = Settings(
            workloads=workloads, folder=str(Path.cwd()), ready=ready, idle_s=idle,
            shell=shell,
            stdout=output_file(
                stdout, hooks=(setup, prepare),
                reader="--verify" if verify else "--metric" if patterns else None,
            ),
            setup=setup, prepare=prepare, conclude=conclude, cleanup=cleanup, patterns=patterns,
            ok_exit=ok_exit, verify_output=verify is not None, cpus=cpus, timeout_s=timeout,
            warmup=warmup, warm_memory=warm_memory, counters=counters, memory=memory, why=why,
            wait_descendants=wait_descendants, repeat=repeat, count_instructions=instructions,
        )  # fmt: skip
        if instructions:
            loads.refuse_instructions(load)
        if why and repeat != 1:
            raise UsageError("--why explains single runs; leave out --repeat")
        if runs is not None:
            for name in ("precision", "min_rounds", "max_rounds"):
                if was_given(name):
                    raise UsageError(
                        f"-r runs exactly {units.counted(runs, 'round')}; "
                        f"leave out --{name.replace('_', '-')}"
                    )
            rule = StopRule(None, runs, runs, margin, budget if was_given("budget") else None)
        elif max_rounds < min_rounds:
            raise UsageError(
                f"--max-rounds {max_rounds} is less than --min-rounds {min_rounds}; raise "
                "--max-rounds"
            )
        else:
            rule = StopRule(precision, min_rounds, max_rounds, margin, budget)
        with standard_input.chosen(stdin, where, console, settings.stdout) as given:
            settings = replace(settings, stdin=given.stdin)
            run = new_run(
                console, settings, specs, baseline, rule, seed, stdin=given.path, programs=programs,
                made_by="cairn compare",
            )  # fmt: skip
            run = replace(run, aim=aim)
            folder = store.Folder.create(where, run, given.copy)
    conduct(console, run, folder, "cairn compare", output)


def _of_programs(
    programs: Sequence[NamedProgram],
    arguments: Sequence[str],
    lines: Sequence[str],
    parameters: Sequence[str],
    *,
    shell: bool,
    why: bool,
) -> tuple[str, ...]:
    """Returns the command of the first program of -p.

    Raises UsageError for an option that does not go with -p, and if a program is missing.

    parameters: the names of -L. They may not stand in the words of -p, because these words are the
    same in all workloads. They may stand in the arguments and in the load.
    """
    from cairn.compare import sweep
    from cairn.run import program_contenders

    for option, is_given in (
        ("-c", bool(lines)), ("--shell", shell), ("--why", why),
        ("--baseline", was_given("baseline")),
    ):  # fmt: skip
        if is_given:
            raise UsageError(f"{option} is not for the programs of -p; leave it out")
    for name in parameters:
        if any(sweep.uses(one.words, name) for one in programs):
            raise UsageError(
                f"{{{name}}} of -L is not for the words of -p; write it behind '--', as in "
                f"-p old=./a -p new=./b -- {{{name}}}"
            )
    program_contenders.refuse(programs, str(Path.cwd()))
    return (shlex.join(programs[0].words), *arguments)


def _workloads(
    command: tuple[str, ...],
    lines: tuple[str, ...],
    parameters: tuple[tuple[str, tuple[str, ...]], ...],
    shell: bool,
    load: str,
) -> tuple[Workload, ...]:
    """Returns the commands to run: `-- PROG` or the lines of -c, for all combinations of -L."""
    from cairn.compare import sweep

    if command and lines:
        raise UsageError("give the command behind '--' or with -c, not both")
    if not command and not lines:
        raise UsageError("which program? For example: cairn compare -- ls -R /usr/share")
    try:
        commands = (
            [command]
            if command
            else [(line,) if shell else tuple(shlex.split(line)) for line in lines]
        )
    except ValueError as error:
        raise UsageError(f"a -c line cannot be read: {error}; quote it as for a shell") from None
    if not all(commands):
        raise UsageError("a -c line is empty")
    for line in () if shell else lines:
        operator = _operator(line)
        if operator is not None:
            raise UsageError(
                f"{operator} in a -c line belongs to a shell: add --shell, or quote it "
                f"as '{operator}'"
            )
    return sweep.expand(commands, parameters, shell=shell, load=load)


def _operator(line: str) -> str | None:
    """Returns the first operator of the shell that is not quoted; None if there is none."""
    unquoted = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "", line, flags=re.DOTALL)
    found = re.search(r"[;|&<>]+", unquoted)
    return found[0] if found else None
