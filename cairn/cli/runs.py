"""What every command that makes or shows a run does alike: begin or resume it, announce it, carry it out, render it."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import cairn
from cairn import units
from cairn.cli.console import Output, end_like_ctrl_c, given, say
from cairn.compare import instructions
from cairn.errors import CairnError, ContenderFailed, Interrupted, ProgramFailed, UsageError
from cairn.model import (
    SCHEMA,
    Comparison,
    Contender,
    Row,
    Run,
    Settings,
    StopRule,
)
from cairn.run import store
from cairn.run.run_file import packed
from cairn.run.stored_run import StoredRun

if TYPE_CHECKING:
    from cairn.report.run import Measured

    pass

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
    folder = store.to_resume(where, name)
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


def _found_by(folder: StoredRun) -> str:
    """What a command takes to find the run again, in a shell: its name where it is kept by default, else its path."""
    return (
        folder.path.name
        if folder.path.parent == store.root()
        else shlex.quote(str(folder.path.absolute()))
    )


def measured(stored: StoredRun) -> Measured:
    """The stored run with all that its report is made from."""
    from cairn.bench import experiments, runs
    from cairn.report.run import Measured

    run = stored.run()
    experiment = experiments.find(run.experiment or "")
    return Measured(
        run=run,
        samples=stored.samples(),
        stopped=stored.stopped(),
        name=_found_by(stored),
        kind="comparison" if run.experiment is None else runs.report_of(run),
        pairs=experiment.compared if experiment is not None else (),
        bench=" ".join(_named(run)) or None,
        predicts=_predicts(stored),
    )


def _predicts(stored: StoredRun) -> bool:
    """Whether this is the calibration from which 'cairn profile' predicts."""
    from cairn.why import prediction

    try:
        last = store.last_of(store.root(), prediction.EXPERIMENT)
    except CairnError:  # 'cairn profile' reports it
        return False
    return last is not None and last.path.resolve() == stored.path.resolve()


def conduct(console: Console, run: Run, folder: store.Folder, command: str, output: Output) -> None:
    """From the announcement to the exit code. Whatever was measured is shown even if some of it failed."""
    from cairn.report.run import comparisons, rendered

    announce(console, run, folder)
    stopped: Interrupted | None = None
    try:
        carry_out(console, run, folder, command)
    except Interrupted as interrupted:
        stopped = interrupted
    found = measured(folder)
    compared = comparisons(found)
    if stopped is None or any(sample.counts for sample in found.samples):
        output.write(packed(folder) if output.packs else rendered(found, compared, output.view))
    if stopped is None and run.experiment is not None:
        _draw(console, run, compared, folder)
    say(console, "results", str(folder.path))
    if stopped is not None:
        raise stopped
    raise_failures(run, compared)
    if run.settings.why:
        probed = {one.name for one in run.contenders} - {one.name for one in run.competing}
        failed = dict.fromkeys(
            one.trial.contender
            for one in found.samples
            if one.failure and one.trial.contender in probed
        )
        if failed:
            raise ContenderFailed(
                f"the differences cannot be explained without {', '.join(failed)}; "
                "the sentences above say what happened"
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
