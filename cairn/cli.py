"""The command: what the user types in, what is printed, which exit code comes out. Nothing else prints or exits."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import rich_click as click
from rich.console import Console

import cairn
from cairn import catalog, discover, options, store, units
from cairn.contenders import parse_contender, resolve
from cairn.errors import CairnError, ContenderFailed, Interrupted, ProgramMissing, ProgramNotExecutable, UsageError
from cairn.model import SCHEMA, Comparison, Direction, Metric, Pattern, Run, Settings, StopRule
from cairn.program import Program, inspect_program, refuse_program, refuse_wrapper
from cairn.report.words import printable

EXIT_CANNOT_RUN, EXIT_CANNOT_PRELOAD, EXIT_NOT_FOUND, EXIT_SIGNAL = 125, 126, 127, 128
"""`cairn run` fails as env(1) does, so that the program's own exit codes keep their meaning."""

click.rich_click.TEXT_PARAGRAPH_LINEBREAKS = "\n\n"
click.rich_click.MAX_WIDTH = 110
click.rich_click.OPTION_GROUPS = {
    "cairn compare": [
        {"name": "Contenders", "options": ["-a", "--baseline"]},
        {"name": "When to stop",
         "options": ["--precision", "--margin", "--min-blocks", "--max-blocks", "--budget", "-r", "--resume"]},
        {"name": "The program", "options": [
            "--shell", "--input", "--output", "--ok-exit", "--verify", "--timeout", "--cpus", "--warmup", "--setup",
            "--prepare", "--conclude", "--cleanup"]},
        {"name": "What to measure", "options": ["--metric", "--counters", "--memory", "--warm-memory", "--seed"]},
        {"name": "Results", "options": ["--full", "--json", "--csv", "--md", "-o", "--force", "--results", "--color"]},
    ],
}  # fmt: skip


def _wants_color(choice: str, stream: Any) -> bool:
    if choice != "auto":
        return choice == "always"
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _stderr(color: str = "auto") -> Console:
    wanted = _wants_color(color, sys.stderr)
    return Console(stderr=True, no_color=not wanted, highlight=False, soft_wrap=True, force_terminal=None)


def _say(console: Console, head: str, text: str) -> None:
    console.print(f"{head:<8} {printable(text)}", markup=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(cairn.__version__, "-V", "--version", message="cairn %(version)s")
def cli() -> None:
    """Say which allocator a program should use.

    Cairn runs a program under several memory allocators, in random interleaved blocks, proves in every process which
    library was in use, and says which one to use, with its confidence interval and its price in memory.

    \b
      cairn compare -- ninja -C build       which allocator is best for this build?
      cairn run -a jemalloc -- ./server     use one, with proof that it is loaded
      cairn allocators                      which ones are here
      cairn doctor ./server                 can its allocator be swapped? can this machine measure?
      cairn report last --md                the last result again, as Markdown
    """


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
    help="Never stop before N blocks.",
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
    "--budget", type=options.DURATION, default="10min", show_default=True, help="Begin no block that would end later."
)
@click.option(
    "-r", "--runs", type=click.IntRange(1, 10_000), metavar="N", help="Exactly N blocks, whatever the precision."
)
@click.option(
    "--resume",
    metavar="RUN",
    help="Go on with an interrupted run: 'last', an id or a path; other options stay as they were.",
)
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
    "--timeout", type=options.DURATION, help="End a run, with all its processes, after this long; it counts as failed."
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
    command: tuple[str, ...], specs: tuple[str, ...], baseline: str | None, resume: str | None, precision: float,
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
    console = _stderr(color)
    form = _form(form, out)
    _check_out(out, force)
    where = results or store.root()
    if resume is not None:
        if command or specs:
            raise UsageError("--resume goes on with a run as it was; leave the command and -a away")
        run, folder = _resumed(where, resume)
    else:
        if not command:
            raise UsageError("which program? For example: cairn compare -- ls -R /usr/share")
        settings = Settings(
            command=command, folder=str(Path.cwd()), shell=shell, stdin=str(Path(stdin).absolute()),
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
    _measure(console, run, folder)
    comparison = _compared(run, folder)
    _emit(_rendered(run, comparison, folder, form, full, color, out is not None), out, force)
    _say(console, "results", str(folder.path))
    _raise_failures(comparison)


def _raise_failures(comparison: Comparison) -> None:
    failed = [row.contender for row in comparison.rows if row.failures]
    if failed:
        raise ContenderFailed(f"no result for {', '.join(failed)}; the sentences above say why")


def _resumed(where: Path, name: str) -> tuple[Run, store.Folder]:
    """A run that was interrupted, ready to go on."""
    folder = store.find(where, name)
    run = folder.run()
    if not Path(run.settings.folder).is_dir():
        raise UsageError(f"the run was made in {run.settings.folder}, which is gone")
    folder.mark_resumed()
    return run, folder


def _new_run(
    console: Console, settings: Settings, specs: Sequence[str], baseline: str | None, rule: StopRule, seed: int | None
) -> Run:
    from cairn import machine, preflight

    ready = preflight.prepare(specs, settings, baseline)
    if ready.program:
        _say(console, "doctor", f"{ready.program}  ✔")
    contenders = ready.contenders
    chosen = baseline or ("system" if any(c.name == "system" for c in contenders) else contenders[0].name)
    now = time.time()
    return Run(
        schema=SCHEMA, id=store.new_id(now), created_at=now, cairn=cairn.__version__, settings=settings,
        contenders=contenders, baseline=chosen, rule=rule,
        seed=secrets.randbelow(1_000_000) if seed is None else seed, host=machine.host(), notes=ready.notes,
    )  # fmt: skip


def _program(settings: Settings) -> Program:
    """What the command is; refused when no allocator can be preloaded into it."""
    if settings.shell:
        return inspect_program("/bin/sh")
    refuse_wrapper(settings.command)
    program = inspect_program(settings.command[0])
    refuse_program(program)
    return program


def _announce(console: Console, run: Run, folder: store.Folder) -> None:
    from cairn import preflight
    from cairn.runner import shown_command

    rule = run.rule
    limits = (
        f"{rule.max_blocks} random blocks" if rule.precision is None else
        f"{rule.min_blocks}–{rule.max_blocks} random blocks, stop at ±{units.percent(rule.precision, signed=False)}"
    ) + (f" or {units.duration(rule.budget_s)}" if rule.budget_s is not None else "")  # fmt: skip
    count = len(run.contenders)
    host = run.host
    said = [note for note in run.notes if note.startswith(preflight.MARK)]
    for note in said:
        _say(console, "doctor", "▲ " + note.removeprefix(preflight.MARK))
    kind = "virtual" if host.virtual else "physical"
    _say(console, "program", shown_command(run.settings))
    _say(
        console,
        "host",
        f"{host.cpus} CPUs ({kind}), load {host.load}, {host.libc}, huge pages {host.transparent_huge_pages}"
        + "".join(f" ▲ {phrase}" for phrase in preflight.host_warnings(host)),
    )
    _say(console, "plan", f"{count} contender{'s' * (count > 1)} × {limits} · seed {run.seed} · {folder.path.name}")
    for note in run.notes:
        if note not in said:
            _say(console, "note", note)


def _measure(console: Console, run: Run, folder: store.Folder) -> None:
    from cairn.measure import Measurement
    from cairn.progress import Bar, Lines
    from cairn.runner import private_folder

    observer = Bar(console, run.rule, len(run.contenders)) if console.is_terminal else Lines(console)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        with private_folder() as scratch, observer:
            Measurement(run, folder, scratch, observer).measure()
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}; go on with: cairn compare --resume {folder.path.name}") from None
    except CairnError:
        _say(console, "results", str(folder.path))
        raise


def _interrupt(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(number)


def _compared(run: Run, folder: store.Folder) -> Comparison:
    from cairn import compare as comparing

    own = [Metric(f"metric:{p.name}", p.name, "", Direction.UNKNOWN) for p in run.settings.patterns]
    return comparing.compare(
        folder.samples(),
        run.contenders,
        run.baseline,
        run.rule,
        stopped_because=folder.stopped() or "not finished",
        user_metrics=own,
    )


def _form(form: str | None, out: Path | None) -> str:
    if form is not None or out is None:
        return form or "text"
    endings = {".json": "json", ".csv": "csv", ".md": "md", ".txt": "text", "": "text"}
    if out.suffix not in endings:
        raise UsageError(f"{out} could be anything; end it with .json, .csv, .md or .txt, or say --json, --csv or --md")
    return endings[out.suffix]


def _rendered(
    run: Run, comparison: Comparison, folder: store.Folder, form: str, full: bool, color: str, to_file: bool
) -> str:
    from cairn.runner import shown_command

    match form:
        case "json":
            from cairn.report import document

            return document.render(run, comparison, folder.samples())
        case "csv":
            from cairn.report import rows

            return rows.render(run, folder.samples())
        case "md":
            from cairn.report import markdown

            return markdown.render(run, comparison, full=full, command=shown_command(run.settings))
    from cairn.report import terminal

    tty = sys.stdout.isatty() and not to_file
    width = max(80, shutil.get_terminal_size().columns) if tty else terminal.WIDTH
    colored = _wants_color(color, sys.stdout) and not (to_file and color == "auto")
    return terminal.render(run, comparison, full=full, color=colored, width=width)


def _check_out(out: Path | None, force: bool) -> None:
    """Says now what would fail after minutes of measuring."""
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"{out} is a folder; -o names a file")
    if os.path.lexists(out) and not force:
        raise CairnError(f"{out} exists; --force replaces it")
    if not out.parent.is_dir():
        raise CairnError(f"cannot write {out}: there is no folder {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise CairnError(f"cannot write {out}: no permission to write in {out.parent}")


def _emit(text: str, out: Path | None, force: bool) -> None:
    if out is None:
        click.echo(text, nl=False, color=True)  # the text has colour only where it is wanted
        return
    _check_out(out, force)
    draft = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(out)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise store.cannot("write", out, error) from error


@cli.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-a",
    "--allocator",
    "spec",
    default="system",
    show_default=True,
    metavar="[NAME=]LIB[@VERSION][:KEY=VAL;…]",
    help="The allocator: a name from 'cairn allocators' or a path, with environment knobs behind ':'.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROG [ARG]…")
def run(command: tuple[str, ...], spec: str) -> None:
    """Run a program with an allocator, and prove that it is loaded.

    Terminal, standard input and signals are the program's. Its exit code is returned; as with env(1), 125 is our own
    failure, 126 "cannot be preloaded or not proved", 127 "not found", and 128 + n "killed by signal n".
    """
    if not command:
        raise UsageError("which program? For example: cairn run -a jemalloc -- ls -R /usr/share")
    from cairn import foreground

    settings = Settings(command=command, folder=str(Path.cwd()))
    try:
        program = _program(settings)
        contender = resolve(parse_contender(spec), discover.discover(), program)
        ended = foreground.run(contender, command)
    except ProgramMissing as error:
        _fail(error, EXIT_NOT_FOUND)
    except (ProgramNotExecutable, ContenderFailed) as error:
        _fail(error, EXIT_CANNOT_PRELOAD)
    except UsageError:
        raise
    except CairnError as error:
        _fail(error, EXIT_CANNOT_RUN)
    if ended.problem is not None:
        _fail(ContenderFailed(ended.problem), EXIT_CANNOT_PRELOAD if ended.exit_code == 0 else ended.exit_code)
    sys.exit(ended.exit_code)


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
    console = _stderr(color)
    form = _form(form, out)
    _check_out(out, force)
    where = results or store.root()
    experiment = benching.named(name)
    rule = benching.rule(quick)
    chosen = specs or benching.contenders(experiment, quick, lambda text: _say(console, "note", text))
    if plan:
        seconds = benching.expected_s(experiment, len(chosen), rule)
        click.echo(f"{experiment.title}: {len(chosen)} contenders ({', '.join(map(printable, chosen))})")
        click.echo(f"about {units.duration(seconds)} for {rule.min_blocks} blocks, at most {rule.max_blocks}")
        return
    if resume is not None:
        run, folder = _resumed(where, resume)
    else:
        settings = experiment.prepare(lambda text: _say(console, "prepare", text))
        run = _new_run(console, settings, chosen, None, rule, seed)
        folder = store.Folder.create(where, run)
    _announce(console, run, folder)
    _measure(console, run, folder)
    comparison = _compared(run, folder)
    for picture in benching.pictures(experiment, run, comparison, folder):
        _say(console, "picture", str(picture))
    _emit(_rendered(run, comparison, folder, form, full, color, out is not None), out, force)
    _say(console, "results", str(folder.path))
    _raise_failures(comparison)


@cli.command()
@click.argument("name", metavar="RUN", default="last")
@options.output_options
def report(
    name: str, form: str | None, full: bool, out: Path | None, force: bool, results: Path | None, color: str
) -> None:
    """Show a run again: RUN is 'last', an id or a path.

    Nothing is measured; the same stored runs give the same report.
    """
    form = _form(form, out)
    _check_out(out, force)
    folder = store.find(results or store.root(), name)
    stored = folder.run()
    comparison = _compared(stored, folder)
    _emit(_rendered(stored, comparison, folder, form, full, color, out is not None), out, force)


@cli.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def allocators(context: click.Context, as_json: bool) -> None:
    """List the allocators that are here; 'get' brings others, 'add' names your own, 'remove' deletes.

    \b
      cairn allocators get jemalloc mimalloc@2     from pinned sources, or the distribution's package
      cairn allocators add mine ./libmine.so       then: cairn run -a mine -- PROG
      cairn allocators remove jemalloc@5.3.0       from the user's cache; nothing else is touched
    """
    if context.invoked_subcommand is None:
        _list_allocators(as_json)
    elif as_json and context.invoked_subcommand != "list":
        raise UsageError(f"'{context.invoked_subcommand}' prints no JSON; leave --json away")


@allocators.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def list_(context: click.Context, as_json: bool) -> None:
    """Show what is here: version, layout, licence, checksum of the library, origin, and what to beware of."""
    above = context.parent.params["as_json"] if context.parent is not None else False
    _list_allocators(as_json or above)


def _list_allocators(as_json: bool) -> None:
    from cairn import inventory

    known = discover.known_catalog()
    found = discover.discover(known)
    if as_json:
        click.echo(inventory.document(known, found))
        return
    width = max(120, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 140
    click.echo(inventory.render(known, found, color=_wants_color("auto", sys.stdout), width=width), nl=False)


@allocators.command()
@click.option(
    "--from",
    "origin",
    type=click.Choice(["source", "distribution"]),
    help="Build the pinned source, or unpack the distribution's package. Default: the source, if its tools are here.",
)
@click.argument("names", metavar="NAME[@VERSION]…", nargs=-1, required=True)
def get(names: tuple[str, ...], origin: str | None) -> None:
    """Bring allocators into the user's cache: built from pinned sources, or unpacked from the distribution's packages.

    Needs no root, and installs nothing. Sources come through the user's own cargo or pip, with the registries and
    mirrors configured for them, and are refused unless their checksum is the pinned one. Packages are checked against
    the distribution's signed index.
    """
    from cairn import obtain

    console = _stderr()
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    failures = []
    for name in names:
        try:
            wanted, version = _name_and_version(name)
            entry = catalog.entry(wanted)
            got = obtain.obtain(entry, version, origin, progress=lambda text: _say(console, "get", text))
            if got.problem is not None:
                raise CairnError(got.problem)
            click.echo(f"{printable(got.title)}: {printable(got.path or '')}")
        except CairnError as error:
            if len(names) == 1:
                raise
            failures.append(error)
            _say(console, "✘", f"{name}: {error}")
    if failures:
        raise CairnError(f"{len(failures)} of {len(names)} could not be had; the sentences above say why")


def _name_and_version(text: str) -> tuple[str, str | None]:
    name, at, version = text.partition("@")
    if at and not version:
        raise UsageError(f"'{text}' has no version after '@'; write one, such as jemalloc@5.3.1, or leave out the '@'")
    return name, version or None


@allocators.command()
@click.argument("name", metavar="NAME")
@click.argument("path", metavar="PATH", type=click.Path())
def add(name: str, path: str) -> None:
    """Give a library of your own a name, so that -a NAME means it.

    The file stays where it is. Its checksum is kept, and a warning told when it is no longer the same.
    """
    from cairn import register

    added = register.add(name, path, lambda text: _say(_stderr(), "add", text))
    click.echo(f"{printable(name)}: {printable(added.path or '')}")


@allocators.command()
@click.argument("names", metavar="NAME[@VERSION]…", nargs=-1, required=True)
def remove(names: tuple[str, ...]) -> None:
    """Delete allocators from the user's cache, and forget added ones.

    Nothing outside the cache is deleted: neither what the system installed nor a library that was added by its path.
    """
    from cairn import register

    for name in names:
        wanted, version = _name_and_version(name)
        entry = catalog.entry(wanted, discover.known_catalog())
        for item in register.remove(entry, version, lambda text: _say(_stderr(), "remove", text)):
            click.echo(f"removed: {printable(item.title)} ({printable(item.origin or 'unknown origin')})")


@cli.command(context_settings={"allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@options.COLOR
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [PROG [ARG]…]")
def doctor(command: tuple[str, ...], as_json: bool, color: str) -> None:
    """Say whether a program's allocator can be swapped, how noisy this machine is, and what can be measured here.

    Nothing of the program is executed. Without PROG, only the machine is looked at.

    Exit codes: 0 nothing stands in the way, or warnings only; 3 there is no such program; 4 no preloaded allocator can
    work in it, as 'cairn compare' would say.
    """
    from cairn import doctor, machine
    from cairn.abilities import abilities
    from cairn.report import checkup

    diagnosis = doctor.diagnose(command, os.environ) if command else None
    here = machine.host()
    now = machine.conditions(here, thorough=True)
    groups = doctor.examined(diagnosis, now, abilities(), here)
    if as_json:
        click.echo(checkup.document(groups, cairn=cairn.__version__))
    else:
        width = max(80, shutil.get_terminal_size().columns) if sys.stdout.isatty() else checkup.WIDTH
        colored = _wants_color(color, sys.stdout)
        click.echo(checkup.render(groups, color=colored, width=width), nl=False, color=colored)
    if diagnosis is not None and diagnosis.obstacle is not None:
        sys.exit(ContenderFailed.exit_code)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print completions for a shell.

    \b
      bash   eval "$(cairn completion bash)"
      zsh    eval "$(cairn completion zsh)"
      fish   cairn completion fish | source
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise CairnError(f"this version of click knows no completion for {shell}")
    click.echo(kind(cli, {}, "cairn", "_CAIRN_COMPLETE").source())


def _fail(error: BaseException, code: int) -> NoReturn:
    _stderr().print(f"✘ {printable(str(error))}", markup=False, style="red")
    sys.exit(code)


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Every failure becomes one sentence and its exit code."""
    try:
        yield
    except CairnError as error:
        _fail(error, error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _fail(Interrupted("interrupted"), Interrupted.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_SIGNAL + signal.SIGPIPE)
    except UnicodeEncodeError:
        _fail(UsageError("an argument is not valid UTF-8; give the file another name"), UsageError.exit_code)
    except OSError as error:
        name = f" {error.filename}" if error.filename else ""
        _fail(CairnError(f"the system refused{name}: {error.strerror or error}"), CairnError.exit_code)


def main() -> None:
    """The entry point of the command."""
    with _sentences():
        code = cli.main(prog_name="cairn", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
