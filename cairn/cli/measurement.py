"""The steps that all commands with a run share: begin or resume, announce, measure, show."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.console import Console

import cairn
from cairn import units
from cairn.cli.console import NOTHING_YET, Output, end_like_ctrl_c, given, say, was_given
from cairn.compare import instructions
from cairn.errors import (
    BudgetTooShort,
    CairnError,
    ContenderFailed,
    Interrupted,
    ProgramFailed,
    UsageError,
)
from cairn.model import (
    INTERRUPTED,
    SCHEMA,
    Comparison,
    Contender,
    Row,
    Run,
    Settings,
    StopRule,
)
from cairn.report.formatting import shortened
from cairn.report.view import View
from cairn.run import stop_request, store
from cairn.run.run_archive import packed
from cairn.run.stored_run import INSTRUCTIONS, SAMPLES, RunRefusal, StoredRun, encoded

if TYPE_CHECKING:
    from cairn.report.run import Kind, Measured
    from cairn.run.program_contenders import NamedProgram

_NAMED_ALONE = 4
"""Up to this number, programs and pictures are listed one per line. Otherwise they share a line."""

CHECK = "cairn check"
"""The command that measures a check. With --resume, it also judges a complete run."""
MAKE_BASE = f"{CHECK} --make-base"
"""The command that measures a base. No command continues such a run."""
NOT_HERE = "not measured here: "
"""The beginning of the note of a run of a plan that names the programs that are missing here."""
_BESIDE_RESUME = {"resume", "results", "form", "full", "out", "force", "color", "name", "names"}


def refuse_beside_resume(also: Collection[str] = ()) -> None:
    """Raises UsageError for an option that would change a resumed run.

    Ignoring the option without notice would mislead the user.

    also: further parameters of the command that do not change the run.
    """
    for name in given({*_BESIDE_RESUME, *also}):
        raise UsageError(
            f"--resume continues a run with its own options; leave out {name}, or begin a new run"
        )


def raise_failures(run: Run, comparisons: Sequence[Comparison]) -> None:
    """Raises the error that sets the exit code, after everything was shown.

    The error about a failed baseline takes precedence over others.

    When instructions are counted, a contender that valgrind cannot run is not measured, and that is
    no failure. A contender that works wrongly under valgrind has failed.
    """
    counting = run.settings.instructions
    several = len(comparisons) > 1
    lost = {
        shortened(workload.name): bad[0]
        for workload, comparison in zip(run.settings.workloads, comparisons, strict=True)
        for row in comparison.rows
        if row.contender == run.baseline and (bad := _failures(row, counting))
    }
    if lost and several:
        raise ProgramFailed(
            f"there is nothing to compare with on {', '.join(lost)}, since the program fails under "
            f"{run.baseline}; the lines above say why"
        )
    if lost:
        (why,) = lost.values()
        raise ProgramFailed(
            f"there is nothing to compare with, since under {run.baseline} the program {why}"
        )
    rows = [row for comparison in comparisons for row in comparison.rows]
    failed = dict.fromkeys(row.contender for row in rows if _failures(row, counting))
    if failed:
        raise ContenderFailed(f"no result for {', '.join(failed)}; the lines above say why")
    if counting and all(row.failures for row in rows):
        raise CairnError("no instruction was counted; the lines above say why")


def raise_unanswered(run: Run, comparisons: Sequence[Comparison]) -> None:
    """Raises CairnError if a measure that the user's aim asks for was not measured."""
    for workload, comparison in zip(run.settings.workloads, comparisons, strict=True):
        if comparison.judged.unanswered:
            where = f" on {shortened(workload.name)}" if len(comparisons) > 1 else ""
            what = "time or memory" if run.aim.pareto else run.aim.measures[0].value
            few = any(one.least and one.measure is run.aim.goal for one in comparison.judged.partly)
            how = (
                "measured in too few rounds; use more (-r)"
                if few
                else "not measured in every run; 'cairn doctor' says what that needs"
            )
            raise CairnError(f"the aim has no answer{where}: {what} was {how}")


def _failures(row: Row, counting: bool) -> list[str]:
    """Returns the contender's failures.

    If instructions are counted, limits of valgrind are not failures.
    """
    return [
        failure for failure in row.failures if not counting or instructions.works_wrongly(failure)
    ]


def resumed(
    where: Path, name: str, command: str, bench: Sequence[str] = ()
) -> tuple[Run, store.Folder]:
    """Returns an interrupted run and its folder, ready to continue.

    command: the command that continues the run. It continues only its own runs.
    bench: the names given to 'cairn bench'.

    Raises UsageError if the run does not belong to that command or those names, or if the folder in
    which its program ran is gone.
    """
    folder = store.to_resume(where, name)
    run = folder.run()
    refuse_other_command(run, name, command)
    if bench and set(bench) != {run.experiment} and set(bench) != set(_named(run)):
        told = ", ".join(_named(run)) or run.experiment
        raise UsageError(f"{name} is a run of {told}, not of {' '.join(bench)}; leave out the name")
    if not Path(run.settings.folder).is_dir():
        raise UsageError(
            f"the run was made in {run.settings.folder}, which is gone; begin a new run"
        )
    folder.mark_resumed()
    return run, folder


def refuse_other_command(run: Run, name: str, command: str) -> None:
    """Raises UsageError unless `command` continues the run. `name` is the name of the run."""
    own = _command_of(run)
    if own == MAKE_BASE:
        raise UsageError(
            f"{name} is the run of a base, which no command continues; make the base again with "
            f"'{MAKE_BASE}'"
        )
    if own != command and not (command == CHECK and _may_be_a_check(run)):
        raise UsageError(
            f"{name} is not a run of '{command}'; continue it with '{own} --resume "
            f"{shlex.quote(name)}'"
        )


def _may_be_a_check(run: Run) -> bool:
    """Returns whether an earlier version may have made the run with 'cairn check --against'.

    Such a run has one build and no bounds, and earlier versions did not store the command.
    """
    alone = len(run.competing) == len(run.settings.workloads) == 1
    return run.made_by is None and _command_of(run) == "cairn compare" and alone


def _command_of(run: Run) -> str:
    """Returns the command that measured the run. With --resume, it continues the run.

    A run of an earlier version does not have the command, so its properties tell it.
    """
    from cairn.matrix import EXPERIMENT

    if run.made_by is not None:
        return run.made_by
    if run.gate is not None:
        return CHECK
    if run.settings.soak_s is not None:
        return "cairn soak"
    if run.experiment is None:
        return "cairn compare"
    is_plan = run.experiment.partition(" ")[0] == EXPERIMENT
    return "cairn matrix run" if is_plan else "cairn bench"


def _named(run: Run) -> tuple[str, ...]:
    """Returns the names that make 'cairn bench' repeat the run: the experiment or its workloads.

    They are empty for a run of another command.
    """
    from cairn.bench import experiments
    from cairn.matrix import EXPERIMENT

    if run.experiment is None or run.experiment.partition(" ")[0] == EXPERIMENT:
        return ()
    counting = run.settings.instructions
    names = tuple(dict.fromkeys(w.group if counting else w.name for w in run.settings.workloads))
    if experiments.find(run.experiment) is None or (counting and not _counts_all(run, names)):
        return names
    return (run.experiment,)


def _counts_all(run: Run, names: Sequence[str]) -> bool:
    """Returns whether the experiment of the run counts the instructions of exactly these workloads.

    Several experiments make one run if they count instructions, and the run knows only the first.
    """
    from cairn.bench import run_settings

    try:
        (one,) = run_settings.counted(run_settings.chosen([run.experiment or ""], bool(run.quick)))
    except UsageError:  # the experiment has changed since the run was made
        return False
    return {entry.name for entry in one.workloads} == set(names)


def _plan_of(run: Run) -> tuple[str, ...] | None:
    """Returns the arguments of 'cairn matrix run' that name the run's plan and programs.

    Returns None for a plan of the user, because a run does not know the file of its plan. Such a
    plan may have the name of a plan that comes with cairn.
    """
    from cairn.matrix import runs

    name = (run.experiment or "").partition(" ")[2]
    if name not in runs.shipped() or runs.unlike_shipped(name, run):
        return None
    programs = [one.name for one in runs.load(name).plan.programs]
    taken = {one.name for one in run.settings.workloads}
    for note in run.notes:
        if note.startswith(NOT_HERE):
            taken.update(note.removeprefix(NOT_HERE).split(", "))
    chosen = [one for one in programs if one in taken]
    only = [] if chosen == programs else chosen
    return (name, *(word for one in only for word in ("--only", one)))


def new_run(
    console: Console,
    settings: Settings,
    specs: Sequence[str],
    baseline: str | None,
    rule: StopRule,
    seed: int | None,
    experiment: str | None = None,
    stdin: str | None = None,
    programs: Sequence[NamedProgram] = (),
    *,
    made_by: str,
) -> Run:
    """Returns the description of a new run.

    made_by: the command that continues it; see `Run.made_by`.
    stdin: the program's input until the run has a folder; None for the input in the settings.
    programs: the programs of -p, each of which runs under each allocator.

    Raises CairnError if doctor finds an obstacle or a contender is missing.
    """
    from cairn.run import preflight, program_contenders

    before = replace(settings, stdin=stdin or settings.stdin)
    told = partial(say, console, "doctor")
    if programs:
        ready = program_contenders.prepare(specs, before, programs, told)
        settings = replace(
            settings,
            workloads=tuple(program_contenders.named(programs, one) for one in settings.workloads),
        )
    else:
        ready = preflight.prepare(specs, before, baseline, told)
    if ready.program:
        say(console, "doctor", f"{ready.program}  ✔")
    contenders = ready.contenders
    if settings.why:
        twins = twins_of(contenders, _asker(experiment))
        only = {
            probed.name: settings.only[one.name]
            for one, probed in zip(contenders, twins, strict=True)
            if one.name in settings.only
        }
        settings = replace(settings, only={**settings.only, **only})
        contenders += twins
    return described(
        settings, contenders, ready.baseline, rule, seed, ready.notes, experiment=experiment,
        made_by=made_by,
    )  # fmt: skip


def described(
    settings: Settings,
    contenders: tuple[Contender, ...],
    baseline: str,
    rule: StopRule,
    seed: int | None,
    notes: tuple[str, ...],
    *,
    experiment: str | None = None,
    made_by: str,
) -> Run:
    """Returns the description of a new run, with a new id and, without `seed`, a random seed.

    made_by: the command that continues it; see `Run.made_by`.
    """
    from cairn.doctor import machine

    now = time.time()
    return Run(
        schema=SCHEMA, id=store.new_id(now), created_at=now, cairn=cairn.__version__,
        settings=settings, contenders=contenders, baseline=baseline, rule=rule,
        seed=secrets.randbelow(1_000_000) if seed is None else seed, host=machine.host(),
        notes=notes, experiment=experiment, made_by=made_by,
    )  # fmt: skip


def _asker(experiment: str | None) -> str:
    """Returns the option or experiment for which each contender also runs with the probe."""
    if experiment is None or was_given("why"):
        return "--why"
    return "a calibration" if experiment == "calibration" else f"'cairn bench {experiment}'"


def twins_of(contenders: Sequence[Contender], option: str) -> tuple[Contender, ...]:
    """Returns each contender once more, with the probe preloaded.

    option: the option or command that needs these contenders. Raises UsageError if there are fewer
    than two contenders, if one has the probe already, or if a new name is taken.
    """
    from cairn.allocators.contenders import behind_probe
    from cairn.model import twin

    if len(contenders) < 2:
        raise UsageError(
            f"{option} compares contenders; name at least two, as in -a system,mimalloc"
        )
    for one in contenders:
        if one.probed:
            raise UsageError(
                f"{option} itself runs every contender with the probe; leave out {one.name}"
            )
    names = {one.name for one in contenders}
    for one in contenders:
        if twin(one.name) in names:
            raise UsageError(
                f"{option} gives the name {twin(one.name)} to {one.name} with the probe; give it "
                "another name"
            )
    return tuple(
        replace(one, name=twin(one.name), probed=True, spec=behind_probe(one.spec))
        for one in contenders
    )


def announce(console: Console, run: Run, folder: store.Folder) -> None:
    """Prints program, machine, plan and warnings before anything runs."""
    from cairn.run import preflight

    limits = _limits(run)
    count = len(run.competing)
    host = run.host
    said = [note for note in run.notes if note.startswith(preflight.MARK)]
    for note in said:
        say(console, "doctor", "▲ " + note.removeprefix(preflight.MARK))
    kind = {True: "virtual", False: "physical", None: "perhaps virtual"}[host.virtual]
    names = [shortened(workload.name) for workload in run.settings.workloads]
    if len(names) > _NAMED_ALONE:
        say(console, "program", f"{len(names)} workloads: {', '.join(names)}")
    else:
        for name in names:
            say(console, "program", name)
    for load in dict.fromkeys(workload.load for workload in run.settings.workloads):
        if load:
            say(console, "load", load)
    facts = [
        f"{units.counted(host.cpus, 'CPU')} ({kind})",
        None if host.load is None else f"load {host.load}",
        host.libc,
        host.transparent_huge_pages and f"huge pages {host.transparent_huge_pages}",
    ]
    warnings = "".join(f" ▲ {phrase}" for phrase in preflight.host_warnings(host))
    say(console, "host", ", ".join(filter(None, facts)) + warnings)
    rounds = run.settings.profiled_rounds
    probed = ", each also with the probe," if run.settings.why else ""
    if probed and rounds is not None and rounds < run.rule.max_rounds:
        probed = f", each also {units.counted(rounds, 'time')} with the probe,"
    say(
        console,
        "plan",
        f"{count} contender{'s' * (count > 1)}{probed} × {limits} · seed {run.seed} · "
        f"{folder.path.name}",
    )
    too_few = _too_few_rounds(run)
    if too_few is not None:
        say(console, "plan", f"▲ {too_few}")
    for note in run.notes:
        if note not in said:
            say(console, "note", note)


def _limits(run: Run) -> str:
    """Returns how many rounds there are, and when measuring stops."""
    rule = run.rule
    if run.gate is not None and not run.gate.timed:
        return "instructions only"
    if run.settings.soak_s is not None:
        whole = len(run.competing) * rule.max_rounds * run.settings.soak_s
        return (
            f"{units.counted(rule.max_rounds, 'alternating round')} of "
            f"{units.duration(run.settings.soak_s)}, {units.duration(whole)} in all"
        )
    if rule.precision is None:
        limits = units.counted(rule.max_rounds, "random round")
    else:
        precise = f"at ±{units.percent(rule.precision, signed=False)}"
        until = precise if run.gate is None else "when decided"
        limits = f"{rule.min_rounds}–{rule.max_rounds} random rounds, stop {until}"
    return limits + (f" or {units.duration(rule.budget_s)}" if rule.budget_s is not None else "")


def _too_few_rounds(run: Run) -> str | None:
    """Returns a sentence if the rounds of the plan cannot show a difference; else None.

    Only a number that the user fixed can be too small.
    """
    from cairn.bench.run_settings import report_of
    from cairn.compare import stopping

    others = len(run.competing) - 1
    least = stopping.least(run)
    rounds = run.rule.max_rounds
    counts = run.settings.instructions or run.settings.soak_s is not None
    judged = report_of(run) == "comparison" and not counts
    if run.gate is not None and not run.gate.timed:
        return None
    if others < 1 or not judged or rounds >= least:
        return None
    option = "-r" if run.rule.precision is None else "--max-rounds"
    if run.gate is not None:
        return (
            f"{units.counted(rounds, 'round')} cannot decide "
            f"{units.counted(len(run.gate.timed), 'bound')}; at least {least} are needed: "
            f"{option} {least}"
        )
    return (
        f"{units.counted(rounds, 'round')} cannot show a difference between {others + 1} "
        f"contenders; at least {least} are needed: {option} {least}"
    )


def carry_out(console: Console, run: Run, folder: store.Folder, command: str | None) -> None:
    """Measures until the stop rule is met.

    If the user interrupts the measurement or the counting of instructions, the error names the
    command that continues the run. Any other error is kept in the folder, so that the report can
    say why measuring ended.

    If the budget of a check ends before the first round is complete, the check goes on. Its report
    then says that there is too little data, and its instructions are still counted.

    command: see `interrupted`.
    """
    from cairn.cli.progress import Bar, Lines, PlannedTrials
    from cairn.run import instruction_counts
    from cairn.run.measure import Measurement
    from cairn.run.runner import private_folder

    sizes = console, run.rule, PlannedTrials.of(run)
    observer = Bar(*sizes) if console.is_terminal else Lines(*sizes)
    begun_bytes = _bytes_of_samples(folder)
    end_like_ctrl_c()
    with stop_request.postponed():
        # The report needs numpy. ctrl-C in the middle of a later import would leave it unusable.
        import numpy  # noqa: F401
    is_check = (command or "").startswith(CHECK)
    counting = False
    try:
        with private_folder() as scratch, observer:
            if run.gate is None or run.gate.timed:
                try:
                    Measurement(run, folder, scratch, observer).measure()
                except BudgetTooShort as error:
                    if not is_check:
                        raise
                    observer.told(str(error))
                folder.forget_refusal()
            else:
                folder.mark_stopped("instructions counted")
        if run.settings.count_instructions and not folder.instructions():
            counting = True
            with private_folder() as scratch:
                told = partial(say, console, "counting")
                counts = instruction_counts.count(folder.run(), folder, scratch, told)
            folder.write(INSTRUCTIONS, encoded(counts))
            folder.forget_refusal()
    except (Interrupted, KeyboardInterrupt):
        raise interrupted(folder, command) from None
    except CairnError as error:
        _keep(error, folder, begun_bytes, counting=counting)
        say(console, "results", str(folder.path))
        raise


def _bytes_of_samples(folder: store.Folder) -> int:
    try:
        return (folder.path / SAMPLES).stat().st_size
    except OSError:  # the next use of the file says it
        return 0


def _keep(error: CairnError, folder: store.Folder, begun_bytes: int, *, counting: bool) -> None:
    """Keeps the error that ended measuring.

    begun_bytes: the size of the samples when measuring began. If a run could not continue, its
    samples have not grown. Then the error says nothing about the run and is not kept.
    counting: whether the rounds were complete, and instructions were being counted.
    """
    refusal = RunRefusal.of(error, counting=counting)
    could_not_continue = not counting and 0 < begun_bytes == _bytes_of_samples(folder)
    if refusal is None or could_not_continue:
        return
    with contextlib.suppress(CairnError):  # the disk is full, and `error` is the one to print
        folder.mark_refused(refusal)


def interrupted(folder: store.Folder, command: str | None) -> Interrupted:
    """Returns the error for a run that was interrupted. A run without any result is removed.

    command: the command that continues the run with --resume; None if nothing continues it.
    """
    if not folder.samples() and not folder.instructions():
        store.remove(folder.path)
        return Interrupted(NOTHING_YET)
    name = found_by(folder)
    measured_all = _has_all_rounds(folder)
    counts_missing = folder.run().settings.count_instructions and not folder.instructions()
    has_report = command is not None and not command.startswith(CHECK)
    if measured_all and has_report and not counts_missing:
        return Interrupted(f"interrupted; the run is complete: 'cairn report {name}' shows it")
    if not measured_all:
        folder.mark_stopped(INTERRUPTED)
    if command is None:
        return Interrupted(
            f"interrupted; the runs measured so far are kept: 'cairn report {name}' shows them; "
            "the same command begins anew"
        )
    return Interrupted(
        f"interrupted; the runs measured so far are kept; continue with: {command} --resume {name}"
    )


def _has_all_rounds(folder: store.Folder) -> bool:
    """Returns whether measuring ended by itself.

    Only counts of instructions can then be missing.
    """
    reasons = folder.stopped()
    return bool(reasons) and INTERRUPTED not in reasons


def found_by(folder: StoredRun) -> str:
    """Returns the run's name in a shell command: its id in the default folder, else its path."""
    return (
        folder.path.name
        if folder.path.parent == store.root()
        else shlex.quote(str(folder.path.absolute()))
    )


def measured(
    stored: StoredRun, *, predicts: bool | None = None, simulated: bool = True
) -> Measured:
    """Returns the stored run with all data of its report.

    predicts: the value of `Measured.predicts`; None to find it out.
    simulated: whether the simulated misses are read, if there are any.
    """
    from cairn.bench import experiments, run_settings
    from cairn.report.run import Measured

    run, samples = stored.run(), stored.samples()
    refusal = stored.refusal()
    failed = any(one.failure is not None for one in samples)
    experiment = experiments.find(run.experiment or "")
    kind: Kind = "comparison" if run.experiment is None else run_settings.report_of(run)
    if run.settings.soak_s is not None:
        kind = "soak"
    return Measured(
        run=run,
        samples=samples,
        stopped=stored.stopped(),
        name=found_by(stored),
        kind=kind,
        pairs=experiment.compared if experiment is not None else (),
        bench=" ".join((*_named(run), *(["--quick"] if run.quick else []))) or None,
        plan=_plan_of(run) if kind == "matrix" else None,
        resume=_continued_by(stored, run, refusal),
        is_measured=isinstance(stored, store.Folder) and stored.is_measured_elsewhere,
        predicts=kind == "calibration" and _predicts(stored) if predicts is None else predicts,
        groups=groups_over([run]) if kind == "matrix" else {},
        counts=stored.instructions(),
        simulation=stored.simulation() if simulated else None,
        refused=refusal.says
        if refusal is not None
        and not refusal.counting
        and (refusal.exit_code == UsageError.exit_code or not failed)
        else None,
        not_counted=refusal.says if refusal is not None and refusal.counting else None,
    )


def _continued_by(stored: StoredRun, run: Run, refusal: RunRefusal | None) -> str | None:
    """Returns the command that continues the run if it is not complete; None if none can.

    An error that ended measuring would end it again. A run that another process measures goes on by
    itself.
    """
    own = _command_of(run)
    if not isinstance(stored, store.Folder) or refusal is not None or own == MAKE_BASE:
        return None
    if stored.is_measured_elsewhere:
        return None
    base = " --against FILE" if own == CHECK and run.gate is None else ""
    return f"{own}{base} --resume {found_by(stored)}"


def groups_over(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    """The groups of the contenders of all these runs together; see `groups_of`."""
    from cairn.matrix.runs import groups_of

    return groups_of(tuple({one.name: one for run in runs for one in run.competing}.values()))


def _predicts(stored: StoredRun) -> bool:
    """Returns whether this calibration is the one that 'cairn profile' uses for predictions."""
    from cairn.why import prediction

    try:
        last = store.last_of(store.root(), prediction.EXPERIMENT)
    except CairnError:  # 'cairn profile' reports it
        return False
    return last is not None and last.path.resolve() == stored.path.resolve()


def shown(found: Measured, compared: Sequence[Comparison], view: View) -> str:
    """Returns the report of a run in the form of `view`, which may be a page."""
    if view.form == "html":
        from cairn.page import run

        return run.of_run(found, compared)
    from cairn.report.run import rendered

    return rendered(found, compared, view)


def conduct(console: Console, run: Run, folder: store.Folder, command: str, output: Output) -> None:
    """Announces, measures and shows a run, and raises the error that sets the exit code.

    Finished trials are shown even if others failed or the run was interrupted.
    """
    try:
        _conduct(console, run, folder, command, output)
    except KeyboardInterrupt:
        raise interrupted(folder, command) from None


def _conduct(
    console: Console, run: Run, folder: store.Folder, command: str, output: Output
) -> None:
    from cairn.report.run import comparisons

    announce(console, run, folder)
    stopped: Interrupted | None = None
    not_counted: CairnError | None = None
    try:
        carry_out(console, run, folder, command)
    except Interrupted as interrupted:
        if not folder.path.exists():
            raise
        stopped = interrupted
    except CairnError as error:
        if not (run.settings.count_instructions and _has_all_rounds(folder)):
            raise
        if not any(sample.counts for sample in folder.samples()):
            raise
        not_counted = error
    found = measured(folder)
    compared = comparisons(found)
    if stopped is None or any(sample.counts for sample in found.samples):
        output.write(packed(folder) if output.packs else shown(found, compared, output.view))
    if stopped is None and run.experiment is not None:
        _draw(console, run, compared, folder)
    if not_counted is not None:  # carry_out() has said where the results are
        raise not_counted
    say(console, "results", str(folder.path))
    if stopped is not None:
        raise stopped
    raise_failures(run, compared)
    raise_unanswered(run, compared)
    if run.settings.why:
        probed = {one.name for one in run.contenders} - {one.name for one in run.competing}
        failed = dict.fromkeys(
            one.trial.contender
            for one in found.samples
            if one.failure and one.trial.contender in probed
        )
        if failed:
            lacking = (
                "ranges cannot contain all programs"
                if found.kind == "matrix"
                else "the differences cannot be explained"
            )
            raise ContenderFailed(
                f"{lacking}, because {', '.join(failed)} failed; the lines above say why"
            )


def _draw(
    console: Console, run: Run, comparisons: Sequence[Comparison], folder: store.Folder
) -> None:
    """Draws the pictures after the report, so that a failure to draw loses no result."""
    from cairn.bench import run_settings

    try:
        drawn = run_settings.pictures(run, comparisons, folder)
    except Exception as error:
        # Any failure of the drawing library is only a warning, since the report is already printed.
        why = str(error) or type(error).__name__
        say(console, "▲", f"no picture of this run: {why}; the results are complete")
        return
    if len(drawn) > _NAMED_ALONE:
        say(console, "pictures", f"{len(drawn)} in {folder.path}")
    else:
        for picture in drawn:
            say(console, "picture", str(picture))
