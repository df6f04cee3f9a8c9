"""compare, bench, report: runs are made, and shown."""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import rich_click as click
from click.core import ParameterSource
from rich.console import Console

import cairn
from cairn import options, store, units
from cairn.cli.group import cli
from cairn.cli.talking import check_out, emit, end_like_ctrl_c, form_of, say, stderr, wants_color
from cairn.errors import CairnError, ContenderFailed, Interrupted, UsageError
from cairn.model import SCHEMA, Comparison, Direction, Metric, Pattern, Run, Settings, StopRule, Workload
from cairn.report.words import printable


@cli.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-a",
    "--allocator",
    "specs",
    multiple=True,
    metavar="[NAME=]LIB[@VERSION][:KEY=VAL;…]",
    help="A contender: a name from 'cairn allocators' or a path, with environment knobs behind ':'. Repeatable; "
    "a,b,c gives several without knobs. Default: every allocator that is here and not hardened.",
)
@click.option("--baseline", metavar="NAME", help="What the others are compared with. Default: system, else the first.")
@click.option(
    "--precision",
    type=options.PERCENT,
    default="1%",
    show_default=True,
    help="Stop when every interval of the change in wall time is at least this narrow, ±.",
)
@click.option(
    "--margin", type=options.PERCENT, default="1%", show_default=True, help="Changes within ± this count as equivalent."
)
@click.option(
    "--min-blocks",
    type=click.IntRange(2, 10_000),
    default=10,
    show_default=True,
    metavar="N",
    help="Never call it enough before N blocks; the budget may.",
)
@click.option(
    "--max-blocks",
    type=click.IntRange(2, 10_000),
    default=60,
    show_default=True,
    metavar="N",
    help="Never run more than N blocks.",
)
@click.option(
    "--budget", type=options.SOME_TIME, default="10min", show_default=True, help="Begin no block that would end later."
)
@click.option(
    "-r", "--runs", type=click.IntRange(1, 10_000), metavar="N", help="Exactly N blocks, whatever the precision."
)
@click.option(
    "--resume",
    metavar="RUN",
    help="Go on with an interrupted run: 'last', an id or a path; other options stay as they were.",
)
@click.option(
    "-c", "--command", "lines", multiple=True, metavar="LINE",
    help="A command as one line, instead of '-- PROG'. Repeatable: all run in one plan, each with its own verdict.",
)  # fmt: skip
@click.option(
    "-L", "--parameter", "parameters", type=options.PARAMETER, multiple=True, metavar="NAME=A,B,…",
    help="Run with each of these values where the command says {NAME}. Repeatable: every combination.",
)  # fmt: skip
@click.option("--shell", is_flag=True, help="The command is a line for /bin/sh.")
@click.option(
    "--input",
    "stdin",
    type=click.Path(exists=True, dir_okay=False),
    default="/dev/null",
    show_default=True,
    metavar="FILE",
    help="The program's standard input.",
)
@click.option(
    "--output",
    "stdout",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The program's standard output; overwritten by every run. Default: thrown away.",
)
@click.option(
    "--ok-exit",
    type=options.EXITS,
    default="0",
    show_default=True,
    help="Exit codes that mean success.",
)
@click.option(
    "--verify", type=click.Choice(["same-output"]), help="All contenders must print the same as the baseline."
)
@click.option(
    "--timeout", type=options.SOME_TIME, help="End a run, with all its processes, after this long; it counts as failed."
)
@click.option("--cpus", type=options.CPUS, help="Run the program on these CPUs only, for example 0,2-3.")
@click.option(
    "--warmup",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Uncounted runs of each contender before the first block.",
)
@click.option("--setup", metavar="COMMAND", help="Run once before everything.")
@click.option("--prepare", metavar="COMMAND", help="Run before each run, not measured.")
@click.option("--conclude", metavar="COMMAND", help="Run after each run, not measured.")
@click.option("--cleanup", metavar="COMMAND", help="Run once at the end.")
@click.option(
    "--metric",
    "patterns",
    type=options.PATTERN,
    multiple=True,
    help="A number from the program's output: the group, or the whole, of the last match. Repeatable.",
)
@click.option(
    "--counters", is_flag=True, help="perf's default counters for the whole tree, where the machine has them."
)
@click.option(
    "--memory",
    type=click.Choice(["auto", "cgroup", "sampled", "none"]),
    default="auto",
    show_default=True,
    help="How to find the peak memory of the tree.",
)
@click.option(
    "--warm-memory",
    type=options.WARM,
    default="auto",
    show_default=True,
    help="Touch this much memory before each block; auto: in a virtual machine, for footprints from 256 MiB.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    metavar="N",
    help="Seed of the order of runs. Default: random, printed.",
)
@options.output_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROG [ARG]…")
def compare(
    command: tuple[str, ...], lines: tuple[str, ...], parameters: tuple[tuple[str, tuple[str, ...]], ...],
    specs: tuple[str, ...], baseline: str | None, resume: str | None, precision: float,
    margin: float, min_blocks: int, max_blocks: int, budget: float, runs: int | None, seed: int | None, shell: bool,
    stdin: str, stdout: str | None, ok_exit: tuple[int, ...], verify: str | None, timeout: float | None,
    cpus: str | None, warmup: int, setup: str | None, prepare: str | None, conclude: str | None, cleanup: str | None,
    patterns: tuple[Pattern, ...], counters: bool, memory: str, warm_memory: int | None, form: str | None, full: bool,
    out: Path | None, force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Run a program under several allocators and say which one it should use.

    Every allocator runs once per block, in random order, so that drift of the machine touches all alike. A run counts
    only if it succeeds and every process of its tree proves which library owned malloc. Results are kept; 'cairn
    report' shows them again.

    Exit codes: 0 fine, 1 cairn failed, 2 usage, 3 the program fails under the baseline, 4 it fails under some contender
    only or cannot be loaded with it, 130 interrupted (go on with --resume last).
    """
    console = stderr(color)
    form = form_of(form, out)
    check_out(out, force)
    where = results or store.root()
    if resume is not None:
        _refuse_beside_resume()
        run, folder = _resumed(where, resume)
    else:
        if stdin != "/dev/null" and not Path(stdin).is_file():
            raise UsageError(f"--input {stdin} is no regular file: every run reads it from the beginning")
        doubles = [pattern.name for pattern in patterns if [p.name for p in patterns].count(pattern.name) > 1]
        if doubles:
            raise UsageError(f"--metric {doubles[0]} is given twice; give one of them another name")
        settings = Settings(
            workloads=_workloads(command, lines, parameters, shell), folder=str(Path.cwd()),
            shell=shell, stdin=str(Path(stdin).absolute()),
            stdout=str(Path(stdout).absolute()) if stdout else None, setup=setup, prepare=prepare, conclude=conclude,
            cleanup=cleanup, patterns=patterns, ok_exit=ok_exit, verify_output=verify is not None, cpus=cpus,
            timeout_s=timeout, warmup=warmup, warm_memory=warm_memory, counters=counters, memory=memory,
        )  # fmt: skip
        if runs is not None:
            rule = StopRule(precision=None, min_blocks=runs, max_blocks=runs, margin=margin, budget_s=None)
        elif max_blocks < min_blocks:
            raise UsageError(f"--max-blocks {max_blocks} is less than --min-blocks {min_blocks}")
        else:
            rule = StopRule(precision, min_blocks, max_blocks, margin, budget)
        run = _new_run(console, settings, specs, baseline, rule, seed)
        folder = store.Folder.create(where, run)
    _announce(console, run, folder)
    _measure(console, run, folder, "cairn compare")
    comparisons = _compared(run, folder)
    emit(_rendered(run, comparisons, folder, form, full, color, out is not None), out, force)
    say(console, "results", str(folder.path))
    _raise_failures(comparisons)


def _workloads(
    command: tuple[str, ...], lines: tuple[str, ...], parameters: tuple[tuple[str, tuple[str, ...]], ...], shell: bool
) -> tuple[Workload, ...]:
    """What to run: `-- PROG` or the lines of -c, with the values of -L."""
    from cairn import sweep

    if command and lines:
        raise UsageError("give the command behind '--' or with -c, not both")
    if not command and not lines:
        raise UsageError("which program? For example: cairn compare -- ls -R /usr/share")
    try:
        commands = [command] if command else [(line,) if shell else tuple(shlex.split(line)) for line in lines]
    except ValueError as error:
        raise UsageError(f"a -c line cannot be read: {error}; quote it as for a shell") from None
    if not all(commands):
        raise UsageError("a -c line is empty")
    return sweep.expand(commands, parameters, shell=shell)


_BESIDE_RESUME = {"resume", "results", "form", "full", "out", "force", "color", "name"}


def _refuse_beside_resume() -> None:
    """A run goes on as it began: an option that would change it is refused, not ignored."""
    context = click.get_current_context()
    assert context is not None
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if (
            given
            and parameter.name not in _BESIDE_RESUME
            and (context.params.get(parameter.name or "") not in ((), None))
        ):
            name = parameter.opts[0] if isinstance(parameter, click.Option) else "a command"
            raise UsageError(f"--resume goes on with a run as it was; leave {name} away, or begin a new run")


def _raise_failures(comparisons: Sequence[Comparison]) -> None:
    rows = [row for comparison in comparisons for row in comparison.rows]
    failed = dict.fromkeys(row.contender for row in rows if row.failures)
    if failed:
        raise ContenderFailed(f"no result for {', '.join(failed)}; the sentences above say why")


def _resumed(where: Path, name: str, experiment: str | None = None) -> tuple[Run, store.Folder]:
    """A run that was interrupted, ready to go on."""
    folder = store.find(where, name)
    run = folder.run()
    if experiment is not None and run.experiment != experiment:
        raise UsageError(f"{name} is no run of {experiment}; 'cairn compare --resume' goes on with it")
    if not Path(run.settings.folder).is_dir():
        raise UsageError(f"the run was made in {run.settings.folder}, which is gone")
    folder.mark_resumed()
    return run, folder


def _new_run(
    console: Console,
    settings: Settings,
    specs: Sequence[str],
    baseline: str | None,
    rule: StopRule,
    seed: int | None,
    experiment: str | None = None,
) -> Run:
    from cairn import machine, preflight

    ready = preflight.prepare(specs, settings, baseline)
    if ready.program:
        say(console, "doctor", f"{ready.program}  ✔")
    contenders = ready.contenders
    now = time.time()
    return Run(
        schema=SCHEMA, id=store.new_id(now), created_at=now, cairn=cairn.__version__, settings=settings,
        contenders=contenders, baseline=ready.baseline, rule=rule,
        seed=secrets.randbelow(1_000_000) if seed is None else seed, host=machine.host(), notes=ready.notes,
        experiment=experiment,
    )  # fmt: skip


def _announce(console: Console, run: Run, folder: store.Folder) -> None:
    from cairn import preflight

    rule = run.rule
    limits = (
        f"{rule.max_blocks} random blocks" if rule.precision is None else
        f"{rule.min_blocks}–{rule.max_blocks} random blocks, stop at ±{units.percent(rule.precision, signed=False)}"
    ) + (f" or {units.duration(rule.budget_s)}" if rule.budget_s is not None else "")  # fmt: skip
    count = len(run.contenders)
    host = run.host
    said = [note for note in run.notes if note.startswith(preflight.MARK)]
    for note in said:
        say(console, "doctor", "▲ " + note.removeprefix(preflight.MARK))
    kind = "virtual" if host.virtual else "physical"
    for workload in run.settings.workloads:
        say(console, "program", workload.name)
    say(
        console,
        "host",
        f"{host.cpus} CPUs ({kind}), load {host.load}, {host.libc}, huge pages {host.transparent_huge_pages}"
        + "".join(f" ▲ {phrase}" for phrase in preflight.host_warnings(host)),
    )
    say(console, "plan", f"{count} contender{'s' * (count > 1)} × {limits} · seed {run.seed} · {folder.path.name}")
    for note in run.notes:
        if note not in said:
            say(console, "note", note)


def _measure(console: Console, run: Run, folder: store.Folder, command: str) -> None:
    from cairn.measure import Measurement
    from cairn.progress import Bar, Lines
    from cairn.runner import private_folder

    per_block = len(run.contenders) * len(run.settings.workloads)
    observer = Bar(console, run.rule, per_block) if console.is_terminal else Lines(console)
    end_like_ctrl_c()
    try:
        with private_folder() as scratch, observer:
            Measurement(run, folder, scratch, observer).measure()
    except Interrupted as stopped:
        name = folder.path.name if folder.path.parent == store.root() else shlex.quote(str(folder.path.absolute()))
        raise Interrupted(f"{stopped}; go on with: {command} --resume {name}") from None
    except CairnError:
        say(console, "results", str(folder.path))
        raise


def _compared(run: Run, folder: store.Folder) -> tuple[Comparison, ...]:
    """One comparison per workload."""
    from cairn import compare as comparing

    own = [Metric(f"metric:{p.name}", p.name, "", Direction.UNKNOWN) for p in run.settings.patterns]
    samples = folder.samples()
    reasons = folder.stopped()
    return tuple(
        comparing.compare(
            [sample for sample in samples if sample.trial.workload == index],
            run.contenders,
            run.baseline,
            run.rule,
            stopped_because=reasons[min(index, len(reasons) - 1)] if reasons else "not finished",
            user_metrics=own,
            run_name=folder.path.name,
        )
        for index in range(len(run.settings.workloads))
    )


def _rendered(
    run: Run, comparisons: Sequence[Comparison], folder: store.Folder, form: str, full: bool, color: str, to_file: bool
) -> str:
    match form:
        case "json":
            from cairn.report import document

            return document.render(run, comparisons, folder.samples())
        case "csv":
            from cairn.report import rows

            return rows.render(run, folder.samples())
        case "md":
            from cairn.report import markdown

            return markdown.render(run, comparisons, full=full)
    from cairn.report import terminal

    tty = sys.stdout.isatty() and not to_file
    width = max(80, shutil.get_terminal_size().columns) if tty else terminal.WIDTH
    colored = wants_color(color, sys.stdout) and not (to_file and color == "auto")
    return terminal.render(run, comparisons, full=full, color=colored, width=width)


@cli.command()
@click.argument("name", metavar="EXPERIMENT", default="list")
@click.option(
    "-a",
    "--allocator",
    "specs",
    multiple=True,
    metavar="SPEC",
    help="These contenders instead of the experiment's own.",
)
@click.option("--quick", is_flag=True, help="Few contenders and few blocks: minutes.")
@click.option("--plan", is_flag=True, help="Say what would run and how long it would take; run nothing.")
@click.option("--resume", metavar="RUN", help="Go on with an interrupted run: 'last', an id or a path.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), metavar="N", help="Seed of the order of runs.")
@options.output_options
def bench(
    name: str, specs: tuple[str, ...], quick: bool, plan: bool, resume: str | None, seed: int | None, form: str | None,
    full: bool, out: Path | None, force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Run a built-in experiment: table, verdict, pictures, raw data.

    Without a name it lists the experiments. Pictures (SVG and PNG) lie in the results folder. 'cairn bench build' is
    the first: a ninja build of libgit2.
    """
    from cairn import bench as benching

    if name == "list":
        for experiment in benching.EXPERIMENTS:
            click.echo(f"{experiment.name:<10} {experiment.title}")
        return
    console = stderr(color)
    form = form_of(form, out)
    check_out(out, force)
    where = results or store.root()
    experiment = benching.named(name)
    if resume is not None:
        _refuse_beside_resume()
        run, folder = _resumed(where, resume, experiment.name)
    else:
        rule = benching.rule(quick)
        chosen = specs or benching.contenders(experiment, quick, lambda text: say(console, "note", text))
        if plan:
            seconds = benching.expected_s(experiment, len(chosen), rule)
            click.echo(f"{experiment.title}: {len(chosen)} contenders ({', '.join(map(printable, chosen))})")
            click.echo(f"about {units.duration(seconds)} for {rule.max_blocks} blocks")
            return
        settings = experiment.prepare(lambda text: say(console, "prepare", text))
        run = _new_run(console, settings, chosen, None, rule, seed, experiment.name)
        folder = store.Folder.create(where, run)
    _announce(console, run, folder)
    _measure(console, run, folder, f"cairn bench {experiment.name}")
    comparisons = _compared(run, folder)
    for picture in benching.pictures(experiment, run, comparisons[0], folder):
        say(console, "picture", str(picture))
    emit(_rendered(run, comparisons, folder, form, full, color, out is not None), out, force)
    say(console, "results", str(folder.path))
    _raise_failures(comparisons)


@cli.command()
@click.argument("name", metavar="RUN", default="last")
@options.output_options
def report(
    name: str, form: str | None, full: bool, out: Path | None, force: bool, results: Path | None, color: str
) -> None:
    """Show a run again: RUN is 'last', an id or a path.

    Nothing is measured; the same stored runs give the same report.
    """
    form = form_of(form, out)
    check_out(out, force)
    folder = store.find(results or store.root(), name)
    stored = folder.run()
    comparisons = _compared(stored, folder)
    emit(_rendered(stored, comparisons, folder, form, full, color, out is not None), out, force)
