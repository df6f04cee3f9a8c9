"""cairn matrix: many programs under many contenders, by a plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from msgspec.structs import replace

from cairn import units
from cairn.cli import measurement as making
from cairn.cli import options
from cairn.cli.console import FORMS, TABLE, ending_of, given, output_of, say, stderr, view_of
from cairn.cli.root_command import cli
from cairn.errors import CairnError, Interrupted, UsageError
from cairn.model import BENCH_ROUNDS_MOST
from cairn.report.formatting import printable
from cairn.report.view import Form, View
from cairn.run import store

if TYPE_CHECKING:
    from rich.console import Console

    from cairn.cli.console import Output
    from cairn.matrix.programs import Examination
    from cairn.model import Run

_PICTURES = {".svg": "svg", ".png": "png"}
_CHARTS = ("time", "memory", "plane", "heat")
_RUN = "cairn matrix run"

_ALLOCATORS = click.option(
    "-a", "--allocator", "specs", multiple=True, metavar="SPEC",
    help="Use these contenders instead of the plan's own; written as for 'cairn compare'.",
)  # fmt: skip
_ROUNDS = click.option(
    "-r", "--rounds", type=click.IntRange(1, BENCH_ROUNDS_MOST), metavar="N",
    help="Number of rounds. Default: that of the plan.",
)  # fmt: skip
_ONLY = click.option(
    "--only", multiple=True, metavar="PROGRAM",
    help="Take only this program of the plan; repeat it for more.",
)  # fmt: skip


@cli.group(cls=click.RichGroup)
def matrix() -> None:
    """Measure many programs under many contenders, by a plan.

    A plan is a file in TOML that names programs, contenders and rounds; docs/matrix.md describes
    it. The plans 'founding', 'judge', 'suite' and 'unseen' come with cairn.

    \b
      cairn matrix check plan.toml           what is missing, and how long a run takes
      cairn matrix run plan.toml             measure, and show the table
      cairn matrix report last -o table.tex  show it again: text, Markdown, CSV, JSON, LaTeX, SVG
      cairn matrix status                    how far a run has come
      cairn matrix ranges                    ranges of profile metrics, of a run with --profile
    """


@matrix.command(context_settings=options.RUNS_ARE_ROUNDS)
@click.argument("plan", metavar="PLAN")
@_ALLOCATORS
@_ROUNDS
@_ONLY
@options.COLOR
def check(
    plan: str, specs: tuple[str, ...], rounds: int | None, only: tuple[str, ...], color: str
) -> None:
    """Check a plan; run nothing.

    Prints every mistake with its line and its reason. If there is none, prints which programs and
    allocators are missing here, what each program cannot show, and about how long a run takes.

    Exit codes: 0 something can be measured, 1 cairn failed, 2 usage or the plan has mistakes, 3 no
    program can be measured, 4 an allocator is missing or broken, so there is nothing to compare.
    """
    from cairn.matrix import programs, runs
    from cairn.report.terminal import Screen

    named = runs.load(plan)
    found = runs.examine(named, only)
    view = output_of("text", False, color, None, False).view
    screen = Screen(view)
    width = max(len(one.program.name) for one in found) + 2
    for one in found:
        sign, says, style = _state(one)
        screen.entry(((sign, 1, style), (printable(one.program.name), width, "")), printable(says))
    click.echo(screen.text(), nl=False, color=True)
    screen = Screen(view)
    here = [one.program for one in found if one.runs]
    competing = runs.competing(*runs.chosen(named, specs), found)
    screen.line()
    for sentence in competing.absent:
        screen.line(f"▲ {printable(sentence)}", "yellow")
    number = rounds or named.plan.rounds
    names = ", ".join(printable(one.name) for one in competing.contenders)
    screen.line(
        f"{len(here)} of {units.counted(len(found), 'program')}, "
        f"{len(competing.contenders)} contenders: {names}"
    )
    if here:
        seconds, unknown = programs.expected_s(
            here, len(competing.contenders), number, named.plan.warmup
        )
        budget = named.plan.budget_s
        most = f", {units.duration(budget)} at most" if budget is not None else ""
        guessed = (
            f" ({units.counted(unknown, 'program')} without 'seconds' counted as "
            f"{programs.UNKNOWN_S:g} s)"
            if unknown
            else ""
        )
        screen.line(
            f"about {units.duration(seconds)} for {units.counted(number, 'round')}"
            f"{' and the warm-up' if named.plan.warmup else ''}{most}{guessed}"
        )
    click.echo(screen.text(), nl=False, color=True)
    runs.runnable(found)


def _state(one: Examination) -> tuple[str, str, str]:
    """Returns a sign, a description and a style."""
    program = one.program
    if not one.runs:
        return "✘", one.why_not, "red"
    about = f"{program.kind}, {program.seconds:g} s a run" if program.seconds else program.kind
    if program.unchecked:
        about += f"; its output is not compared: {program.unchecked}"
    if one.warnings:
        return "▲", f"{about}. {' '.join(one.warnings)}", "yellow"
    return "✔", about, "green"


@matrix.command(context_settings=options.RUNS_ARE_ROUNDS)
@click.argument("plan", metavar="[PLAN]", required=False)
@_ALLOCATORS
@_ROUNDS
@click.option(
    "--budget", type=options.SOME_TIME, metavar="DURATION",
    help="End after this time, with whole rounds only. Default: that of the plan.",
)  # fmt: skip
@_ONLY
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), metavar="N",
    help="Seed of the random order of runs. Default: that of the plan, else a random one.",
)  # fmt: skip
@click.option(
    "--resume", metavar="RUN",
    help="Continue an interrupted run: 'last', an id or a path. Its plan stays as it was.",
)  # fmt: skip
@click.option(
    "--profile", "profiled", is_flag=False, flag_value=1, type=click.IntRange(1, BENCH_ROUNDS_MOST),
    metavar="[N]",
    help="Also run every contender with the probe, in the first N rounds (1 by default), for "
    "'cairn matrix ranges'.",
)  # fmt: skip
@click.option(
    "--on", metavar="WHERE",
    help="Measure on several machines: each round is a job of 'slurm' or 'slurm:PARTITION'. "
    "'local' starts the same jobs on this machine.",
)  # fmt: skip
@click.option(
    "--sbatch", multiple=True, metavar="KEY=VALUE",
    help="With --on slurm: a further option of sbatch, such as account=mine; repeat it for more.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Show the intervals of all ratios, too.")
@options.RESULTS
@options.COLOR
def run(
    plan: str | None, specs: tuple[str, ...], rounds: int | None, budget: float | None,
    only: tuple[str, ...], seed: int | None, resume: str | None, profiled: int | None,
    on: str | None, sbatch: tuple[str, ...], full: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Measure a plan: every contender once on every program in each round, in random order.

    Programs that are missing are named and left out. The inputs are made once, from their seeds.
    All contenders must print the same as the baseline. A contender that fails on a program has
    no result on this program, and no mean; the others go on.

    \b
      cairn matrix run founding --rounds 10
      cairn matrix run unseen --budget 2h -a system,jemalloc,mimalloc3
      cairn matrix run --resume last
      cairn matrix run plan.toml --on slurm:compute

    Exit codes: 0 success, 1 cairn failed, 2 usage or a broken plan, 3 a program fails under the
    baseline, 4 one fails under another contender only, 130 interrupted (continue with --resume).
    """
    from cairn.cli import fleet as fleet_run
    from cairn.matrix import EXPERIMENT, fleet, inputs, programs, runs

    console = stderr(color)
    output = output_of("text", full, color, None, False)
    where = results or store.root()
    if resume is not None:
        if plan is not None:
            raise UsageError(f"--resume continues a run with its own plan; leave out {plan}")
        making.refuse_beside_resume()
        several = fleet.find(where, resume)
        if several is not None:
            fleet_run.go_on(console, several, output)
            return
        of, folder = making.resumed(where, resume, _RUN)
        inputs.refuse_changed(folder.content(inputs.KEPT))
        _conduct(console, of, folder, output)
        return
    if plan is None:
        raise UsageError("which plan? For example: cairn matrix run suite")
    named = runs.load(plan)
    if sbatch and on is None:
        raise UsageError("--sbatch needs --on slurm")
    if on is not None:
        if profiled is not None:
            raise UsageError("--profile measures on this machine alone; leave out --on")
        fleet_run.begin(
            console, named, where, output, on=on, sbatch=sbatch, specs=specs, rounds=rounds,
            budget=budget, only=only, seed=seed,
        )  # fmt: skip
        return
    found = runs.examine(named, only)
    here = runs.runnable(found)
    competing = runs.competing(*runs.chosen(named, specs), found)
    for one in found:
        if not one.runs:
            say(console, "▲", f"{one.program.name} is left out: {one.why_not}")
    for sentence in competing.absent:
        say(console, "▲", f"left out: {sentence}")
    sums = inputs.make_all(here, lambda text: say(console, "prepare", text))
    named.folder.mkdir(parents=True, exist_ok=True)
    left_out = [one for one in found if not one.runs]
    notes = [*programs.notes_of(named.plan, here)]
    if left_out:
        missing = ", ".join(one.program.name for one in left_out)
        notes.append(f"{making.NOT_HERE}{missing}")
    settings = programs.settings_of(here, named.folder)
    settings, contenders = replace(settings, warmup=named.plan.warmup), competing.contenders
    if profiled is not None:
        settings = replace(settings, why=True, profiled_rounds=profiled)
        contenders += making.twins_of(contenders, "--profile")
    of = making.described(
        settings, contenders, competing.baseline,
        runs.rule(named.plan, rounds, budget), named.plan.seed if seed is None else seed,
        tuple(notes), experiment=f"{EXPERIMENT} {named.name}", made_by=_RUN,
    )  # fmt: skip
    folder = store.Folder.create(where, of)
    folder.write(inputs.KEPT, inputs.as_kept(sums))
    _conduct(console, of, folder, output)


def _conduct(console: Console, of: Run, folder: store.Folder, output: Output) -> None:
    """Measures and shows a run, and removes its working folders afterwards.

    Raises CairnError if an input was changed meanwhile; the run keeps a note of it.
    """
    from cairn.matrix import inputs

    try:
        making.conduct(console, of, folder, _RUN, output)
    except Interrupted:
        raise
    except CairnError:
        says = _note_changed(folder)
        if says is not None:
            say(console, "▲", says)
        raise
    finally:
        inputs.remove_work(of.settings)
    says = _note_changed(folder)
    if says is not None:
        raise CairnError(f"{says}; let the programs write to {{work}}, and begin a new run")


def _note_changed(folder: store.Folder) -> str | None:
    """Adds a note to the run and returns it if an input was changed during the run; else None."""
    from cairn.matrix import inputs

    path = inputs.changed(folder.content(inputs.KEPT))
    if path is None:
        return None
    says = f"the input {path} was changed during the run, so its rounds are not comparable"
    run = folder.run()
    folder.update(replace(run, notes=(*run.notes, says)))
    return says


def not_of_a_plan(name: str) -> UsageError:
    """Returns the error for another run than one of a plan. `name` is its id or its file."""
    return UsageError(f"{name} is not a run of a plan; 'cairn report {name}' shows it")


def _is_plan(experiment: str | None) -> bool:
    from cairn.matrix import EXPERIMENT

    return (experiment or "").partition(" ")[0] == EXPERIMENT


@matrix.command()
@click.argument("names", metavar="[RUN]…", nargs=-1)
@click.option(
    "--between", nargs=2, metavar="OLD NEW",
    help="Divide contender NEW by contender OLD, such as two versions of one allocator.",
)  # fmt: skip
@_ONLY
@click.option(
    "--chart", type=click.Choice(_CHARTS), default="time", show_default=True, metavar="NAME",
    help="Picture that -o FILE.svg or FILE.png holds: dots with intervals (time, memory), the "
    "time-memory plane (plane), or a heat map (heat).",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Show the intervals of all ratios, too.")
@options.form_option("--json", "json", "Print one JSON document.")
@options.form_option("--csv", "csv", "Print CSV, one line for each cell.")
@options.form_option("--md", "md", "Print Markdown.")
@options.form_option("--latex", "tex", "Print two tables in LaTeX (booktabs).")
@click.option(
    "-o", "--out", type=options.NEW_FILE, metavar="FILE",
    help="Write to FILE. Its ending chooses the form: .html .txt .md .csv .json .tex .svg .png.",
)  # fmt: skip
@options.FORCE
@options.RESULTS
@options.COLOR
def report(
    names: tuple[str, ...], between: tuple[str, str] | None, only: tuple[str, ...], chart: str,
    full: bool, form: Form | None, out: Path | None, force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Show runs of a plan: RUN is an id, a folder, a run file or 'last', which is the default.

    Several runs are merged: ratios are formed within each run, and then combined. So runs on other
    machines, or of other days, are compared with nothing but themselves.

    \b
      cairn matrix report last --full
      cairn matrix report RUN1 RUN2 -o table.tex
      cairn matrix report last --between mimalloc3@3.3.2 mimalloc3@3.6.0
      cairn matrix report last --chart plane -o plane.svg
      cairn matrix report last -o page.html  one page with drawings, tables and raw data

    Exit codes: 0 success, 1 cairn failed or there is no complete round to draw, 2 usage.
    """
    from cairn.cli import fleet
    from cairn.report import matrix_charts, matrix_report
    from cairn.report.run import Measured, fitting, plan_report

    view, picture = _form(form, full, out, force, color)
    where = results or store.root()
    found: list[Measured] = []
    notes: list[str] = []
    for name in names or ("last",):
        of_name = [making.measured(stored) for stored in fleet.stored(where, name)]
        for one in of_name:
            if one.kind != "matrix":
                raise not_of_a_plan(one.name)
        fit, left_out = fitting(of_name, _programs(only))
        found += fit
        notes += left_out
    if len({one.run.id for one in found}) < len(found):
        raise UsageError("a run is given twice; merging counts each run once")
    groups = making.groups_over([one.run for one in found])
    made = plan_report(found, between=between, programs=_programs(only), groups=groups, notes=notes)
    if view.form == "html":
        from cairn.page import run as pages

        _emit(pages.of_plan(found, made), out, force)
        return
    if picture is None:
        _emit(matrix_report.rendered(made, view), out, force)
        return
    if not any(made.result.rounds.values()):
        raise CairnError("there is no complete round yet, so there is nothing to draw")
    if chart == "plane" and not made.result.means:
        raise CairnError(
            "no contender has a mean, so there is no plane to draw; '--chart time' and '--chart "
            "memory' draw each program"
        )
    title = f"plan {(made.run.experiment or '').partition(' ')[2]}"
    _emit(matrix_charts.CHARTS[chart](made, title, picture), out, force)


def _programs(only: Sequence[str]) -> Sequence[str] | None:
    return only or None


def _emit(content: str | bytes, out: Path | None, force: bool) -> None:
    from cairn.cli.console import emit

    emit(content, out, force)


def _form(
    form: Form | None, full: bool, out: Path | None, force: bool, color: str
) -> tuple[View, str | None]:
    """Returns the view of a text, and the form of a picture, which is None for a text."""
    ending = ending_of(out, form, (".html", *TABLE, ".tex", *_PICTURES))
    picture = _PICTURES.get(ending)
    if picture is None and "--chart" in set(given(set())):
        raise UsageError("--chart chooses a picture; write it with -o FILE.svg or FILE.png")
    shown = form or ("text" if picture else FORMS[ending])
    return view_of(shown, full, color, out, force), picture


@matrix.command()
@click.argument("name", metavar="[RUN]", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.RESULTS
@options.COLOR
def status(name: str, as_json: bool, results: Path | None, color: str) -> None:
    """Show how far a run of a plan has come, which cells failed, and how long the rest takes.

    RUN is an id, a folder or 'last', which is the default. The run itself goes on undisturbed.

    Exit codes: 0 success, 1 cairn failed, 2 usage.
    """
    import json

    from cairn.cli import fleet as fleet_run
    from cairn.matrix import fleet, progress
    from cairn.report.terminal import Screen

    where = results or store.root()
    several = fleet.find(where, name)
    if several is not None:
        view = output_of("text", False, color, None, False).view
        fleet_run.status(several, view, as_json=as_json)
        return
    stored = store.find(where, name)
    run_ = stored.run()
    if not _is_plan(run_.experiment):
        raise not_of_a_plan(making.found_by(stored))
    runs_now = stored.path.is_dir() and store.is_measured(stored.path)
    now = progress.of(run_, stored.samples(), stored.stopped(), runs_now=runs_now)
    if as_json:
        click.echo(json.dumps(progress.document(run_, now), indent=1))
        return
    screen = Screen(output_of("text", False, color, None, False).view)
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run_.created_at))
    state = " · ".join(filter(None, (now.state, now.failed)))
    screen.line(f"{run_.id} · plan {printable(now.plan)} · begun {began} · {state}", "bold")
    left = f" · about {units.duration(now.seconds_left)} left" if now.seconds_left else ""
    if now.trials:
        screen.line(
            f"{now.rounds} of {units.counted(now.planned, 'round')} complete · {now.done} of "
            f"{now.trials} runs{' of the other programs' if now.lost else ''}{left}"
        )
    for sentence in now.failures:
        screen.line(f"✘ {printable(sentence)}", "red", hanging=2)
    if now.failures and stored.path.is_dir():
        screen.line(f"Their last messages are in {printable(str(stored.path / 'failed'))}.")
    if now.resumable and stored.refusal() is None:
        screen.line(f"Next: cairn matrix run --resume {run_.id}")
    click.echo(screen.text(), nl=False, color=True)
