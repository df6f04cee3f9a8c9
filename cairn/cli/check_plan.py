"""The runs of 'cairn check': two builds side by side, one build alone, and the report of a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cairn import units
from cairn.cli import load as loads
from cairn.cli import standard_input
from cairn.cli.console import was_given
from cairn.cli.measurement import CHECK, measured, new_run
from cairn.cli.program_options import output_file
from cairn.compare import gate
from cairn.errors import CairnError, ProgramFailed, ProgramMissing, UsageError
from cairn.gate import INSTRUCTIONS, Gate, GateBound
from cairn.model import Run, Settings, StopRule, Workload
from cairn.run import builds, check_base, program_contenders, store
from cairn.run.check_base import Base
from cairn.run.program_contenders import NamedProgram
from cairn.run.proof import unproven
from cairn.run.stored_run import StoredRun

if TYPE_CHECKING:
    from rich.console import Console

    from cairn.report.check import CheckReport

BASE_ROUNDS = 20
"""The number of runs of a base, if the user gives none."""
_EXAMPLE = "cairn check --fail-if 'time>3%' -p old=./a -p new=./b -- ARGS"
_OF_MEMORY = {"peak", "mean-memory", "idle-memory"}


def distinct(bounds: Sequence[GateBound]) -> tuple[GateBound, ...]:
    """Returns the bounds. Raises UsageError if two have one measure."""
    names = [one.measure for one in bounds]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--fail-if has two bounds on {name}; give the smaller one alone")
    return tuple(bounds)


def asked(bounds: Sequence[GateBound], base: Base | None) -> Gate:
    """Returns the bounds of a check: the user's, else those of the base.

    Raises UsageError if there is none.
    """
    own = base.run.gate.bounds if base is not None and base.run.gate is not None else ()
    found = distinct(bounds) or own
    if not found:
        raise UsageError("which change is too much? For example: --fail-if 'time>3%'")
    return Gate(found)


def two_builds(
    console: Console, wanted: Gate, command: Sequence[str], programs: Sequence[NamedProgram],
    specs: Sequence[str], where: Path, given: dict[str, Any],
) -> tuple[Run, store.Folder]:  # fmt: skip
    """Returns a new run of two contenders, and its folder.

    command: the arguments of the programs; without programs, the command that runs under both
    allocators in `specs`.

    Raises UsageError for bad options, and if a program is missing.
    """
    from cairn.allocators.contenders import parse_contender

    if programs:
        if len(programs) != 2 or len(specs) > 1:
            raise UsageError(
                "a check compares two builds under one allocator: give -p twice, and -a at most "
                "once"
            )
        if given["shell"]:
            raise UsageError("--shell is not for the programs of -p; leave it out")
        program_contenders.refuse(programs, str(Path.cwd()))
        command = (shlex.join(programs[0].words), *command)
    elif not command and len(specs) == 2:
        raise UsageError(
            f"which program? Give it after '--': -a {specs[0]} -a {specs[1]} -- ./prog"
        )
    elif not command or len(specs) != 2:
        raise UsageError(f"which two builds? For example: {_EXAMPLE}")
    settings = _settings(command, wanted, given)
    baseline = None if programs else parse_contender(specs[0]).name
    with standard_input.chosen(given["stdin"], where, console, settings.stdout) as chosen:
        settings = replace(settings, stdin=chosen.stdin)
        run = new_run(
            console, settings, specs, baseline, _rule(given), given["seed"], stdin=chosen.path,
            programs=programs, made_by=CHECK,
        )  # fmt: skip
        run = replace(run, gate=wanted)
        return run, store.Folder.create(where, run, chosen.copy)


def one_build(
    console: Console, wanted: Gate, command: Sequence[str], specs: Sequence[str], where: Path,
    given: dict[str, Any], rounds: int, made_by: str,
) -> tuple[Run, store.Folder]:  # fmt: skip
    """Returns a new run of one contender, and its folder.

    rounds: the number of rounds if the user does not give it with -r; 0 if only instructions are
    counted. The run has no bounds, since it compares nothing.
    made_by: see `Run.made_by`.
    """
    from cairn.allocators.contenders import parse_contender

    if not command:
        raise UsageError("which program? For example: cairn check --make-base FILE -- PROG ARGS")
    if len(specs) > 1:
        raise UsageError("a base is one build under one allocator; give -a at most once")
    for name in ("min_rounds", "max_rounds"):
        if was_given(name):
            raise UsageError(
                f"one build runs a fixed number of rounds; use -r, not --{name.replace('_', '-')}"
            )
    settings = _settings(command, wanted, given)
    chosen_specs = specs or (program_contenders.allocator_of(settings),)
    runs = given["runs"] or max(1, rounds)
    rule = StopRule(None, runs, runs, budget_s=given["budget"] if was_given("budget") else None)
    with standard_input.chosen(given["stdin"], where, console, settings.stdout) as chosen:
        settings = replace(settings, stdin=chosen.stdin)
        run = new_run(
            console, settings, chosen_specs, parse_contender(chosen_specs[0]).name, rule,
            given["seed"], stdin=chosen.path, made_by=made_by,
        )  # fmt: skip
        return run, store.Folder.create(where, run, chosen.copy)


def _settings(command: Sequence[str], wanted: Gate, given: dict[str, Any]) -> Settings:
    """Returns the conditions of all trials.

    Raises UsageError for options that exclude each other.
    """
    line = " ".join(command) if given["shell"] else shlex.join(command)
    load = given["load"]
    loads.check(
        load, given["ready"], given["prepare"], [command], (), why=False,
        verify=given["verify"] is not None, wait_descendants=given["wait_descendants"],
        repeat=given["repeat"] != 1, idle=given["idle"] is not None,
    )  # fmt: skip
    measures = {one.measure for one in wanted.bounds}
    if INSTRUCTIONS in measures:
        loads.refuse_instructions(load, "a bound on instructions")
    if given["memory"] == "none" and measures & _OF_MEMORY:
        raise UsageError("a bound limits memory, but --memory none does not measure it")
    if "idle-memory" in measures and given["idle"] is None:
        raise UsageError("idle-memory needs a server and --idle, such as --while LOAD --idle 10s")
    return Settings(
        workloads=(
            Workload(f"{line} while {load}" if load else line, tuple(command), load=load or ""),
        ),
        folder=str(Path.cwd()), ready=given["ready"], idle_s=given["idle"], shell=given["shell"],
        stdout=output_file(
            given["stdout"], hooks=(given["setup"], given["prepare"]),
            reader="--verify" if given["verify"] else None,
        ),
        setup=given["setup"], prepare=given["prepare"], conclude=given["conclude"],
        cleanup=given["cleanup"], ok_exit=given["ok_exit"],
        verify_output=given["verify"] is not None, cpus=given["cpus"],
        timeout_s=given["timeout"], warmup=given["warmup"], warm_memory=given["warm_memory"],
        memory=given["memory"], wait_descendants=given["wait_descendants"],
        repeat=given["repeat"], count_instructions=INSTRUCTIONS in measures,
    )  # fmt: skip


def _rule(given: dict[str, Any]) -> StopRule:
    """Returns the rule that the options ask for. Raises UsageError if they exclude each other."""
    runs, least, most = given["runs"], given["min_rounds"], given["max_rounds"]
    if runs is not None:
        for name in ("min_rounds", "max_rounds"):
            if was_given(name):
                raise UsageError(
                    f"-r runs exactly {units.counted(runs, 'round')}; leave out "
                    f"--{name.replace('_', '-')}"
                )
        budget = given["budget"] if was_given("budget") else None
        return StopRule(None, runs, runs, budget_s=budget)
    if most < least:
        if was_given("min_rounds"):
            raise UsageError(
                f"--max-rounds {most} is less than --min-rounds {least}; raise --max-rounds"
            )
        least = most
    return StopRule(min_rounds=least, max_rounds=most, budget_s=given["budget"])


def side_by_side(
    base: Base, command: Sequence[str], programs: Sequence[NamedProgram]
) -> tuple[tuple[NamedProgram, NamedProgram], tuple[str, ...]] | None:
    """Returns the base's program and the program of `command`, and the arguments of both.

    programs: the base's program at its present place, if the user names it with -p. Returns None if
    the base's program cannot run again; see `check_base.hindrance` and `check_base.same_code`.
    Raises UsageError if the arguments in `command` differ from those of the base.
    """
    if not command:
        raise UsageError("which build? Give its command after '--', as for the base")
    if base.run.settings.shell:
        if programs:
            raise UsageError("the base was made with --shell, which is not for -p; leave out -p")
        return None
    before = check_base.words(base.run)
    if tuple(command[1:]) != before[1:]:
        raise UsageError(
            f"the base ran '{shlex.join(before)}', with other arguments; give the same ones, or "
            "make a new base"
        )
    if len(programs) > 1:
        raise UsageError("with --against, -p names the base's program alone; give it once")
    count = 1
    if programs:
        old = replace(programs[0], name="base") if programs[0].name == "new" else programs[0]
        before_it = builds.words_before_program(command)
        of_command, of_old = (os.path.basename(words[0]) for words in (command, old.words))
        if of_command == "env" and of_old != "env":  # both have the variables of the command
            old = replace(old, words=(*command[:before_it], *old.words))
        count = before_it + 1
        here = str(Path.cwd())
        # The base in -p 'old=python3 ../old/bench.py' -- python3 bench.py has a script of its own.
        # The base in -p 'old=python3 -O' -- python3 bench.py has the script of the command.
        if builds.names_code(old.words, here):
            count = builds.words_of_program(command, here)
    elif check_base.hindrance(base) is None and check_base.same_code(base, command) is None:
        word = before[0]
        path = os.path.join(base.run.settings.folder, word) if "/" in word else word
        old = NamedProgram("base", (os.path.normpath(path) if "/" in word else word,))
    else:
        return None
    return (old, NamedProgram("new", tuple(command[:count]))), tuple(command[count:])


def refuse_stored(
    base: Base, wanted: Gate, trust: bool, kept: Run | None = None, command: Sequence[str] = ()
) -> None:
    """Raises UsageError if the stored numbers of the base cannot be compared.

    kept: the kept run with whose numbers they would be compared. None if the new build is measured
    now.
    command: the command of the new build, if it is measured now.
    """
    if not wanted.timed:
        return
    again = ""
    if not base.run.settings.shell:
        again = " Name its program with -p."
        if base.commit is not None:
            again = (
                f" Build commit {base.commit[:12]} in another folder, and name its program with -p."
            )
    names = ", ".join(one.measure for one in wanted.timed)
    if not trust:
        why = None
        if kept is None:
            why = check_base.hindrance(base) or check_base.same_code(base, command)
        says = f"{names} cannot be compared with stored numbers of another day"
        trusted = "--trust-base compares them nevertheless"
        raise UsageError(f"{why}, and {says}.{again} {trusted}" if why else f"{says}; {trusted}")
    other = check_base.other_machine(base) if kept is None else check_base.other_host(base, kept)
    if other is not None:
        where = again if base.commit is not None else ""
        raise UsageError(f"--trust-base cannot compare {names}: {other}.{where}")


def refuse_settings(base: Base, stored: StoredRun) -> None:
    """Raises UsageError if the base's numbers are those of another command, input or option."""
    run = stored.run()
    if len(run.settings.workloads) != 1:
        return
    other = check_base.other_settings(base, run) or check_base.other_input(base, stored)
    if other is not None:
        raise UsageError(f"the stored numbers cannot be compared: {other}")


def refuse_tools(base: Base, wanted: Gate, stored: StoredRun, *, is_kept: bool = False) -> None:
    """Raises UsageError if the base's counts of instructions were made with other tools.

    is_kept: whether the run is judged as it is. Otherwise its instructions are counted now, unless
    they have been counted before. If --setup has yet to build the program, nothing is refused.
    """
    if all(one.measure != INSTRUCTIONS for one in wanted.bounds):
        return
    if not base.instructions:
        raise UsageError(
            "the base has no counts of instructions; make it again with "
            "--fail-if 'instructions>0.5%'"
        )
    run, advice = stored.run(), "Measure the build again: cairn check --against FILE -- PROG"
    if not stored.instructions():
        if is_kept:
            return
        try:
            known = builds.of_run(run.settings, run.contenders)
        except ProgramMissing:
            if run.settings.setup is None:
                raise
            return
        run = replace(run, builds=known, tools=check_base.tools_of(run))
        advice = "Name the base's program with -p"
    other = check_base.other_tools(base, run)
    if other is not None:
        raise UsageError(f"instructions cannot be compared: {other}. {advice}")


def stored_since(base: Base) -> str:
    """Returns the sentence of a report about the stored numbers of a base."""
    commit = f" at commit {base.commit[:12]}" if base.commit else ""
    return (
        f"The base's numbers were stored by an earlier run{commit} (--trust-base): whatever "
        "changed on this machine since then counts as a change of the program, so more than 1 of "
        "100 equal builds may be called worse."
    )


def kept_problem(stored: StoredRun) -> CairnError | None:
    """Returns the error that ended measuring because a build is broken; None if none is.

    Raises UsageError if measuring was refused, because the program or the options do not suit it.
    """
    refusal = stored.refusal()
    if refusal is None:
        return None
    if isinstance(refusal.error, UsageError):
        raise refusal.error
    return refusal.error


def report_of(
    stored: StoredRun, wanted: Gate, base: Base | None, problem: CairnError | None
) -> CheckReport:
    """Returns the answers to all bounds.

    problem: the error that ended measuring. Runs of older versions keep none; then the failures
    in the samples tell which build is broken.
    base: the stored base to compare with; None for a run that has both builds.
    """
    from cairn.report.check import CheckReport
    from cairn.report.run import comparisons

    found = measured(stored)
    run = replace(found.run, gate=wanted)
    for made, why in (
        (run.settings.soak_s is not None, "'cairn soak' runs a program for a fixed time"),
        (run.settings.instructions, "its programs ran under valgrind, so that times mean nothing"),
    ):
        if made:
            raise UsageError(f"{found.name} cannot be checked: {why}")
    contenders = run.competing
    fits = len(contenders) == 2 if base is None else len(contenders) <= 2
    if not fits or len(run.settings.workloads) != 1:
        raise UsageError(
            f"{found.name} has {units.counted(len(contenders), 'contender')} and "
            f"{units.counted(len(run.settings.workloads), 'program')}; a check needs a run with "
            "two contenders and one program"
        )
    compared = comparisons(found)[0] if found.samples else None
    broken = str(problem) if problem is not None else None
    base_is_broken = isinstance(problem, ProgramFailed)
    rows = compared.rows if compared is not None and broken is None else ()
    for row in sorted(rows, key=lambda one: one.contender == run.baseline):
        if row.failures:
            broken = f"{row.contender} {row.failures[0]}"
            # Without a proof of load, a check calls the checked build broken: see Measurement.
            proven = all(
                unproven(one) is None
                for one in found.samples
                if one.failure is not None and one.trial.contender == row.contender
            )
            base_is_broken = row.contender == run.baseline and base is None and proven
    stopped = found.stopped[0] if found.stopped else None
    now = check_base.judged(run).name
    names = (run.baseline, now) if base is None else ("base", "new")
    if broken is not None:
        checked: tuple[gate.Checked, ...] = ()
    elif base is None:
        checked = gate.judge(run, found.samples, stopped, found.counts)
    else:
        checked = gate.judge_stored(
            wanted, base.samples,
            [sample for sample in found.samples if sample.trial.contender == now], names,
            (base.instructions, [one for one in found.counts if one.contender == now]),
        )  # fmt: skip
    return CheckReport(
        run, found.samples, compared, checked, found.counts, stopped, broken, found.name, names,
        stored_since(base) if base is not None and wanted.timed else None, base_is_broken,
    )  # fmt: skip
