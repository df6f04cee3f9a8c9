"""What every command that makes or shows a run does alike: begin or resume it, announce it, carry it out, render it."""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import cairn
from cairn import units
from cairn.cli.console import emit, end_like_ctrl_c, given, say, wants_color
from cairn.compare import instructions
from cairn.errors import CairnError, ContenderFailed, Interrupted, ProgramFailed, UsageError
from cairn.model import (
    ACTIVE,
    OPERATION_MEDIAN,
    OPERATION_P99,
    SCHEMA,
    WALL,
    Comparison,
    Contender,
    Direction,
    Metric,
    Row,
    Run,
    Sample,
    Settings,
    StopRule,
)
from cairn.run import store

if TYPE_CHECKING:
    from cairn.why.gap import Why

_NAMED_ALONE = 4
"""More programs than these are announced on one line."""

_OURS = "cairn"
"""Contenders of this name, or that begin with it and a dash, are compared with each other one, scenario by scenario."""

_BESIDE_RESUME = {"resume", "results", "form", "full", "out", "force", "color", "name", "names"}


def refuse_beside_resume() -> None:
    """A run goes on as it began: an option that would change it is refused, not ignored."""
    for name in given(_BESIDE_RESUME):
        raise UsageError(
            f"--resume goes on with a run as it was; leave {name} away, or begin a new run"
        )


def raise_failures(run: Run, comparisons: Sequence[Comparison]) -> None:
    """What the exit code says, after everything was shown: a baseline that fails weighs most.

    A contender that cannot run under valgrind is no failure: it was not measured, and that is told. One that works
    wrongly under it is.
    """
    counting = run.settings.instructions
    several = len(comparisons) > 1
    for workload, comparison in zip(run.settings.workloads, comparisons, strict=True):
        where = f" on {workload.name}" if several else ""
        for row in comparison.rows:
            if row.contender == run.baseline and (bad := _failures(row, counting)):
                raise ProgramFailed(
                    f"{run.baseline} {bad[0]}{where}, so there is nothing to compare with"
                )
    rows = [row for comparison in comparisons for row in comparison.rows]
    failed = dict.fromkeys(row.contender for row in rows if _failures(row, counting))
    if failed:
        raise ContenderFailed(f"no result for {', '.join(failed)}; the sentences above say why")
    if counting and all(row.failures for row in rows):
        raise CairnError("no instruction was counted; the sentences above say why")


def _failures(row: Row, counting: bool) -> list[str]:
    """Of the contender; what only valgrind could not do is none."""
    return [
        failure for failure in row.failures if not counting or instructions.works_wrongly(failure)
    ]


def resumed(where: Path, name: str, bench: Sequence[str] | None = None) -> tuple[Run, store.Folder]:
    """A run that was interrupted, ready to go on; one of 'cairn bench', and of `bench` if that names an experiment."""
    folder = store.find(where, name)
    run = folder.run()
    if bench is not None and run.experiment is None:
        raise UsageError(
            f"{name} is no run of 'cairn bench'; 'cairn compare --resume' goes on with it"
        )
    if bench and set(bench) != {run.experiment} and set(bench) != set(_named(run)):
        told = ", ".join(_named(run)) or run.experiment
        raise UsageError(
            f"{name} is a run of {told}, not of {' '.join(bench)}; leave the name away"
        )
    if not Path(run.settings.folder).is_dir():
        raise UsageError(f"the run was made in {run.settings.folder}, which is gone")
    folder.mark_resumed()
    return run, folder


def _named(run: Run) -> tuple[str, ...]:
    """What 'cairn bench' takes to make such a run: the experiment's name, or those of its workloads."""
    from cairn.bench import experiments

    if run.experiment is None or experiments.find(run.experiment) is not None:
        return (run.experiment,) if run.experiment else ()
    counting = run.settings.instructions
    return tuple(dict.fromkeys(w.group if counting else w.name for w in run.settings.workloads))


def new_run(
    console: Console,
    settings: Settings,
    specs: Sequence[str],
    baseline: str | None,
    rule: StopRule,
    seed: int | None,
    experiment: str | None = None,
) -> Run:
    """What was asked, once doctor has nothing against it and every contender is found."""
    from cairn.doctor import machine
    from cairn.run import preflight

    ready = preflight.prepare(specs, settings, baseline, lambda text: say(console, "doctor", text))
    if ready.program:
        say(console, "doctor", f"{ready.program}  ✔")
    contenders = ready.contenders
    if settings.why:
        contenders += _twins(contenders)
    now = time.time()
    return Run(
        schema=SCHEMA, id=store.new_id(now), created_at=now, cairn=cairn.__version__, settings=settings,
        contenders=contenders, baseline=ready.baseline, rule=rule,
        seed=secrets.randbelow(1_000_000) if seed is None else seed, host=machine.host(), notes=ready.notes,
        experiment=experiment,
    )  # fmt: skip


def _twins(contenders: Sequence[Contender]) -> tuple[Contender, ...]:
    """The same ones behind the probe, to tell why."""
    from cairn.allocators.contenders import behind_probe
    from cairn.why.gap import twin

    if len(contenders) < 2:
        raise UsageError(
            "--why takes the difference between contenders apart; name two, as in -a system,mimalloc"
        )
    for one in contenders:
        if one.probed:
            raise UsageError(
                f"--why runs every contender behind the probe, too; leave {one.name} away"
            )
    names = {one.name for one in contenders}
    for one in contenders:
        if twin(one.name) in names:
            raise UsageError(
                f"{twin(one.name)} is what --why calls {one.name} behind the probe; give it another name"
            )
    return tuple(
        replace(one, name=twin(one.name), probed=True, spec=behind_probe(one.spec))
        for one in contenders
    )


def announce(console: Console, run: Run, folder: store.Folder) -> None:
    """Before anything runs: where, with whom, how long, and what a reader should beware of."""
    from cairn.run import preflight

    rule = run.rule
    limits = (
        f"{rule.max_rounds} random round{'s' * (rule.max_rounds > 1)}" if rule.precision is None else
        f"{rule.min_rounds}–{rule.max_rounds} random rounds, stop at ±{units.percent(rule.precision, signed=False)}"
    ) + (f" or {units.duration(rule.budget_s)}" if rule.budget_s is not None else "")  # fmt: skip
    count = len(run.competing)
    host = run.host
    said = [note for note in run.notes if note.startswith(preflight.MARK)]
    for note in said:
        say(console, "doctor", "▲ " + note.removeprefix(preflight.MARK))
    kind = "virtual" if host.virtual else "physical"
    names = [workload.name for workload in run.settings.workloads]
    if len(names) > _NAMED_ALONE:
        say(console, "program", f"{len(names)} workloads: {', '.join(names)}")
    else:
        for name in names:
            say(console, "program", name)
    say(
        console,
        "host",
        f"{host.cpus} CPUs ({kind}), load {host.load}, {host.libc}, huge pages {host.transparent_huge_pages}"
        + "".join(f" ▲ {phrase}" for phrase in preflight.host_warnings(host)),
    )
    probed = ", each behind the probe, too," if run.settings.why else ""
    say(
        console,
        "plan",
        f"{count} contender{'s' * (count > 1)}{probed} × {limits} · seed {run.seed} · {folder.path.name}",
    )
    for note in run.notes:
        if note not in said:
            say(console, "note", note)


def carry_out(console: Console, run: Run, folder: store.Folder, command: str) -> None:
    """Measures until the rule says stop; an interruption tells how to go on."""
    from cairn.cli.progress import Bar, Lines
    from cairn.run.measure import Measurement
    from cairn.run.runner import private_folder

    per_round = len(run.contenders) * len(run.settings.workloads)
    sizes = (console, run.rule, per_round, per_round * run.settings.warmup)
    observer = Bar(*sizes) if console.is_terminal else Lines(*sizes)
    end_like_ctrl_c()
    try:
        with private_folder() as scratch, observer:
            Measurement(run, folder, scratch, observer).measure()
    except Interrupted as stopped:
        raise Interrupted(
            f"{stopped}; go on with: {command} --resume {_found_by(folder)}"
        ) from None
    except CairnError:
        say(console, "results", str(folder.path))
        raise


def _found_by(folder: store.Folder) -> str:
    """What a command takes to find the run again, in a shell: its name where it is kept by default, else its path."""
    return (
        folder.path.name
        if folder.path.parent == store.root()
        else shlex.quote(str(folder.path.absolute()))
    )


def conduct(
    console: Console, run: Run, folder: store.Folder, command: str, form: str, full: bool, color: str,
    out: Path | None, force: bool,
) -> None:  # fmt: skip
    """From the announcement to the exit code; whatever was measured is shown even if some of it failed."""
    announce(console, run, folder)
    stopped: Interrupted | None = None
    try:
        carry_out(console, run, folder, command)
    except Interrupted as interrupted:
        stopped = interrupted
    comparisons = compared(run, folder)
    if stopped is None or any(sample.counts for sample in folder.samples()):
        emit(rendered(run, comparisons, folder, form, full, color, out is not None), out, force)
    if stopped is None and run.experiment is not None:
        _draw(console, run, comparisons, folder)
    say(console, "results", str(folder.path))
    if stopped is not None:
        raise stopped
    raise_failures(run, comparisons)
    if run.settings.why:
        probed = {one.name for one in run.contenders} - {one.name for one in run.competing}
        failed = dict.fromkeys(
            s.trial.contender for s in folder.samples() if s.failure and s.trial.contender in probed
        )
        if failed:
            raise ContenderFailed(
                f"no answer why, without {', '.join(failed)}; the sentences above say what happened"
            )


def _draw(
    console: Console, run: Run, comparisons: Sequence[Comparison], folder: store.Folder
) -> None:
    """Pictures come after the report: one that cannot be drawn takes nothing away."""
    from cairn.bench import runs

    try:
        drawn = runs.pictures(run, comparisons, folder)
    except Exception as error:  # whatever a library for pictures comes upon: the figures are there
        why = str(error) or type(error).__name__
        say(console, "▲", f"no picture of this run: {why}; nothing else is missing")
        return
    if len(drawn) > _NAMED_ALONE:
        say(console, "pictures", f"{len(drawn)} in {folder.path}")
    else:
        for picture in drawn:
            say(console, "picture", str(picture))


def compared(run: Run, folder: store.Folder) -> tuple[Comparison, ...]:
    """One comparison per workload."""
    from cairn.bench import experiments
    from cairn.compare import comparison as comparing

    competing = {contender.name for contender in run.competing}
    samples = [sample for sample in folder.samples() if sample.trial.contender in competing]
    own = [Metric(f"metric:{p.name}", p.name, "", Direction.UNKNOWN) for p in run.settings.patterns]
    if run.settings.reports:
        own += _reported(samples)
    reasons = folder.stopped()
    experiment = experiments.find(run.experiment or "")
    found = []
    for index in range(len(run.settings.workloads)):
        its = [sample for sample in samples if sample.trial.workload == index]
        slept = any(sample.reported is not None and sample.reported.idle_ns for sample in its)
        found.append(
            comparing.compare(
                its,
                run.competing,
                run.baseline,
                run.rule,
                stopped_because=reasons[min(index, len(reasons) - 1)]
                if reasons
                else "not finished",
                user_metrics=own,
                run_name=_found_by(folder),
                time=ACTIVE if slept else WALL,
                beside=experiment.compared if experiment is not None else (),
                bench=" ".join(_named(run)) or None,
            )
        )
    return tuple(found)


def _reported(samples: Sequence[Sample]) -> list[Metric]:
    """What built-in workloads told of themselves, as columns."""
    reports = [sample.reported for sample in samples if sample.reported is not None]
    figures = sorted({name for report in reports for name in report.figures})
    units_of = {"bytes": "bytes", "ns": "ns"}
    own = [
        Metric(
            f"figure:{name}",
            name.replace("_", " "),
            units_of.get(name.rpartition("_")[2], ""),
            Direction.UNKNOWN,
        )
        for name in figures
    ]
    return [OPERATION_MEDIAN, OPERATION_P99, *own]


def rendered(
    run: Run,
    comparisons: Sequence[Comparison],
    folder: store.Folder,
    form: str,
    full: bool,
    color: str,
    to_file: bool,
) -> str:
    """The report of any run: what is shown after it was measured is what 'cairn report' shows later."""
    from cairn.report import terminal

    tty = sys.stdout.isatty() and not to_file
    width = max(80, shutil.get_terminal_size().columns) if tty else terminal.WIDTH
    colored = wants_color(color, sys.stdout) and not (to_file and color == "auto")
    samples = folder.samples()
    if form == "csv":
        from cairn.report import run_csv

        return run_csv.render(run, samples)
    if run.settings.instructions:
        return _counted(run, samples, form, width)
    kind = _kind(run)
    if kind == "scenarios":
        return _scenarios(run, comparisons, samples, folder.stopped(), form, full, colored, width)
    whys = explained(run, samples) if run.settings.why else ()
    if kind == "standings":
        return _standings(run, comparisons, samples, whys, folder, form, full, colored, width)
    if form == "json":
        from cairn.report import run_json

        return run_json.render(run, comparisons, samples, whys=whys)
    if kind == "calibration":
        return _calibrated(run, comparisons, samples, _is_used(folder), form, full, colored, width)
    if kind == "founding":
        return _founded(run, comparisons, whys, form, full, colored, width)
    text = _by_workload(run, comparisons, form, full, colored, width)
    return "\n".join([text, why_rendered(run, whys, form, colored, width)]) if whys else text


def explained(run: Run, samples: Sequence[Sample]) -> tuple[Why, ...]:
    """Why each contender takes more, or less, than the baseline, on each workload."""
    from cairn.why import gap

    others = [contender.name for contender in run.competing if contender.name != run.baseline]
    workloads = range(len(run.settings.workloads))
    return tuple(
        gap.explain(run, samples, name, run.baseline, workload)
        for workload in workloads
        for name in others
    )


def _calibrated(
    run: Run, comparisons: Sequence[Comparison], samples: Sequence[Sample], used: bool, form: str, full: bool,
    colored: bool, width: int,
) -> str:  # fmt: skip
    """What each allocator costs; with --full also each workload by itself."""
    from cairn.report import markdown, terminal
    from cairn.report.prediction import board as drawn_up
    from cairn.why import prediction

    board = drawn_up(prediction.costs(run, samples), [one.name for one in run.competing], used=used)
    text = (
        markdown.board(run, board)
        if form == "md"
        else terminal.drawn(board, color=colored, width=width)
    )
    return (
        "\n".join([text, _by_workload(run, comparisons, form, full, colored, width)])
        if full
        else text
    )


def _is_used(folder: store.Folder) -> bool:
    """Whether it is the calibration that 'cairn profile' takes."""
    from cairn.why import prediction

    try:
        last = store.last_of(store.root(), prediction.EXPERIMENT)
    except CairnError:  # which says so itself
        return False
    return last is not None and last.path.resolve() == folder.path.resolve()


def _founded(
    run: Run,
    comparisons: Sequence[Comparison],
    whys: Sequence[Why],
    form: str,
    full: bool,
    colored: bool,
    width: int,
) -> str:
    """Recorded causes beside those found; with --full also each kernel by itself."""
    from cairn.report import markdown, terminal
    from cairn.report.founding import board as drawn_up
    from cairn.why import founding

    names = [workload.name for workload in run.settings.workloads]
    board = drawn_up(founding.judge({(names[why.workload], why.contender): why for why in whys}))
    text = (
        markdown.board(run, board)
        if form == "md"
        else terminal.drawn(board, color=colored, width=width)
    )
    if not full:
        return text
    return "\n".join([text, _by_workload(run, comparisons, form, full, colored, width),
                      why_rendered(run, whys, form, colored, width)])  # fmt: skip


def explanation(
    run: Run,
    samples: Sequence[Sample],
    contender: str | None,
    other: str | None,
    form: str,
    color: str,
    to_file: bool,
) -> str:
    """One pair, or every contender against the baseline; each of them on every workload."""
    from cairn.report import run_json, terminal
    from cairn.why import gap

    known = [one.name for one in run.competing]
    for name in (contender, other):
        if name is not None and name not in known:
            raise UsageError(f"there is no {name} in this run; it has {', '.join(known)}")
    other = run.baseline if other is None else other
    if contender == other:
        raise UsageError(
            f"{contender} is what is compared with; name another, of {', '.join(known)}"
        )
    if len(known) < 2:
        raise UsageError(f"{known[0]} ran alone, so there is no difference to take apart")
    if not run.settings.why:
        raise UsageError(
            "nothing of this run was behind the probe, so nobody knows why; 'cairn compare --why' measures it"
        )
    whys = (
        explained(run, samples) if contender is None else
        tuple(gap.explain(run, samples, contender, other, place) for place in range(len(run.settings.workloads)))
    )  # fmt: skip
    if form == "json":
        return run_json.explanation(run, whys)
    tty = sys.stdout.isatty() and not to_file
    width = max(terminal.WIDTH, shutil.get_terminal_size().columns) if tty else terminal.WIDTH
    colored = wants_color(color, sys.stdout) and not (to_file and color == "auto")
    return why_rendered(run, whys, form, colored, width)


def why_rendered(run: Run, whys: Sequence[Why], form: str, colored: bool, width: int) -> str:
    """What `explained` found, as Markdown or for a terminal."""
    from cairn.report import markdown, terminal

    return (
        markdown.whys(run, whys)
        if form == "md"
        else terminal.whys(run, whys, color=colored, width=width)
    )


def _kind(run: Run) -> str:
    """What a run is about; one of the user's own programs is a comparison."""
    if run.experiment is None:
        return "comparison"
    from cairn.bench import runs

    return runs.report_of(run)


def _by_workload(
    run: Run, comparisons: Sequence[Comparison], form: str, full: bool, colored: bool, width: int
) -> str:
    from cairn.report import markdown, terminal

    if form == "md":
        return markdown.render(run, comparisons, full=full)
    return terminal.render(run, comparisons, full=full, color=colored, width=width)


def _counted(run: Run, samples: Sequence[Sample], form: str, width: int) -> str:
    from cairn.report import instructions

    match form:
        case "json":
            return instructions.document(run, samples)
        case "md":
            return instructions.as_markdown(run, samples)
    return instructions.render(run, samples, width=width)


def _standings(
    run: Run, comparisons: Sequence[Comparison], samples: Sequence[Sample], whys: Sequence[Why],
    folder: store.Folder, form: str, full: bool, colored: bool, width: int,
) -> str:  # fmt: skip
    """Means over all workloads, and in how many cells a gap was explained; with --full also each by itself."""
    from cairn.compare import standings
    from cairn.report import markdown, run_json, terminal, why

    found = standings.standings(run, samples)
    match form:
        case "json":
            return run_json.render(run, comparisons, samples, standings=found, whys=whys)
        case "md":
            text = markdown.standings(run, found, stopped=folder.stopped())
        case _:
            text = terminal.standings(
                run, found, color=colored, stopped=folder.stopped(), width=width
            )
    if whys:
        board = why.summary(run, whys, _found_by(folder))
        told = (
            markdown.board(run, board)
            if form == "md"
            else terminal.drawn(board, color=colored, width=width)
        )
        text = "\n".join([text, told])
    if not full:
        return text
    each = [why_rendered(run, whys, form, colored, width)] if whys else []
    return "\n".join([text, _by_workload(run, comparisons, form, full, colored, width), *each])


def _scenarios(
    run: Run, comparisons: Sequence[Comparison], samples: Sequence[Sample], stopped: Sequence[str], form: str,
    full: bool, colored: bool, width: int,
) -> str:  # fmt: skip
    """The ranking by points; with --full also each scenario's wall time and memory."""
    from cairn.compare import ranking
    from cairn.report import markdown, run_json, terminal

    found = ranking.ranking(run, samples)
    ours = [
        contender.name for contender in run.contenders if contender.name.partition("-")[0] == _OURS
    ]
    matrices = [ranking.matrix(run, samples, name) for name in ours]
    match form:
        case "json":
            return run_json.render(run, comparisons, samples, scenarios=found, matrices=matrices)
        case "md":
            text = markdown.scenarios(run, found, matrices=matrices, stopped=stopped)
        case _:
            text = terminal.scenarios(
                run, found, matrices=matrices, color=colored, stopped=stopped, width=width
            )
    return (
        "\n".join([text, _by_workload(run, comparisons, form, full, colored, width)])
        if full
        else text
    )
