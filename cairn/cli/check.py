"""cairn check: a gate for CI, which compares two builds and says whether bounds are kept."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click as plain
import rich_click as click
from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.allocators.contenders import split_contenders
from cairn.cli import check_plan, options
from cairn.cli.console import (
    DOCUMENT,
    Output,
    check_out,
    emit,
    given,
    output_of,
    refuse_one_file,
    say,
    stderr,
)
from cairn.cli.measurement import (
    CHECK,
    MAKE_BASE,
    announce,
    carry_out,
    interrupted,
    measured,
    refuse_beside_resume,
    refuse_other_command,
    resumed,
)
from cairn.cli.program_options import BUDGET, MEMORY, WARM_MEMORY, program_options
from cairn.cli.root_command import cli
from cairn.compare import gate
from cairn.compare.gate import MEASURES, GateState
from cairn.errors import CairnError, ContenderFailed, ProgramFailed, UsageError, cannot
from cairn.gate import INSTRUCTIONS, Gate, GateBound
from cairn.model import ROUNDS_MOST, Run
from cairn.report.view import Form
from cairn.run import check_base, store
from cairn.run.check_base import Base
from cairn.run.store import Folder
from cairn.run.stored_run import StoredRun

if TYPE_CHECKING:
    from rich.console import Console

    from cairn.report.check import CheckReport
    from cairn.run.program_contenders import NamedProgram

_EXITS = {GateState.PASS: 0, GateState.WORSE: 5, GateState.OPEN: 6, GateState.UNKNOWN: 6}
_NOT_MEASURING = {
    "command", "bounds", "against", "trust_base", "junit", "summary", "form", "out", "force",
    "results", "color",
}  # fmt: skip
"""The parameters that a kept run takes, too. All others say how to measure."""
_BOUND = re.compile(r"\s*([a-z-]+)\s*>\s*(.+?)\s*")


def parse_bound(text: str) -> GateBound:
    """Parses a bound such as "time>3%". Raises ValueError, whose text says what is wrong."""
    match = _BOUND.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a bound; write for example 'time>3%'")
    if match[1] not in MEASURES:
        raise ValueError(f"{match[1]!r} is not a measure; these are {', '.join(MEASURES)}")
    most = units.parse_percent(match[2])
    if not 0 <= most < 10:
        raise ValueError(f"{match[2]!r} is not a share from 0 % to below 1000 %")
    return GateBound(match[1], most)


class _Check(click.RichCommand):
    """The command, which knows whether '--' stands before its arguments."""

    def parse_args(self, ctx: plain.Context, args: list[str]) -> list[str]:
        ctx.meta["program follows"] = "--" in args
        if "--" not in args:
            words = self.make_parser(ctx).parse_args(list(args))[0].get("command")
            if isinstance(words, tuple):
                ctx.allow_interspersed_args = self._are_options_of_run(words)
        return super().parse_args(ctx, args)

    def _are_options_of_run(self, words: Sequence[str]) -> bool:
        """Whether the first word is a kept run and an option of this command follows it.

        A program that can run is taken for a program, since the option may be its own.
        """
        if len(words) < 2 or (words[0] != "last" and shutil.which(words[0]) is not None):
            return False
        names = {name for one in self.params for name in one.opts}
        return words[1].partition("=")[0] in names


@cli.command(
    cls=_Check, context_settings={"allow_interspersed_args": False, **options.ROUNDS_ARE_RUNS}
)
@click.option(
    "--fail-if", "bounds", type=options.Parsed("BOUND", parse_bound), multiple=True,
    metavar="BOUND",
    help="Fail if a measure rises by more than this, such as 'time>3%'. Repeatable. Measures are "
    f"{', '.join(MEASURES)}.",
)  # fmt: skip
@click.option(
    "-p", "--program", "programs", type=options.PROGRAM, multiple=True, metavar="[NAME=]PROG",
    help="Give this twice: the build to compare with, and the build to check. Their arguments "
    "follow '--'.",
)  # fmt: skip
@options.contenders(
    "With -p: the allocator of both builds. Default: the one that each is linked with. With "
    "'-- PROG': give this twice, to check the second allocator against the first."
)
@click.option(
    "--against", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Check against a base that --make-base made. If the program of the base is still there, "
    "or if -p names it, it runs again beside PROG.",
)  # fmt: skip
@click.option(
    "--trust-base", is_flag=True,
    help="If the program of the base cannot run again, compare with its stored numbers. Whatever "
    "changed on this machine since then counts as a change of the program.",
)  # fmt: skip
@click.option(
    "--make-base", type=options.NewFile(path_type=Path, dir_okay=False), metavar="FILE",
    help="Measure PROG alone, in 20 runs or as -r says, and keep its numbers with the commit, the "
    "machine and the bounds. An existing base is replaced.",
)  # fmt: skip
@click.option(
    "--resume", metavar="RUN",
    help="Continue an interrupted check: 'last', an id or a path. Its builds, bounds and options "
    "stay as they were. If its base is in a file, give --against, too.",
)  # fmt: skip
@click.option(
    "--min-rounds", type=click.IntRange(2, ROUNDS_MOST), default=gate.ROUNDS_LEAST,
    show_default=True, metavar="N", help="Decide nothing before N rounds.",
)  # fmt: skip
@click.option(
    "--max-rounds", type=click.IntRange(2, ROUNDS_MOST), default=gate.ROUNDS_DEFAULT,
    show_default=True, metavar="N", help="Run at most N rounds.",
)  # fmt: skip
@BUDGET
@click.option(
    "-r", "--runs", type=click.IntRange(1, ROUNDS_MOST), metavar="N",
    help="Run exactly N rounds.",
)  # fmt: skip
@program_options
@MEMORY
@WARM_MEMORY
@options.SEED
@click.option(
    "--junit", type=options.NewFile(path_type=Path, dir_okay=False), metavar="FILE",
    help="Also write JUnit XML, with a test case for each bound. An existing file is replaced.",
)  # fmt: skip
@click.option(
    "--summary", type=options.NewFile(path_type=Path, dir_okay=False), metavar="FILE",
    help="Also write Markdown. An existing file is replaced. On GitHub, it is also appended to "
    "the summary of the step.",
)  # fmt: skip
@options.NOT_N
@options.JSON
@options.MARKDOWN
@options.OUT_DOCUMENT
@options.FORCE
@options.RESULTS
@options.COLOR
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[RUN] [-- PROG [ARG]…]")
def check(
    command: tuple[str, ...], bounds: tuple[GateBound, ...], programs: tuple[NamedProgram, ...],
    specs: tuple[str, ...], against: Path | None, trust_base: bool, make_base: Path | None,
    resume: str | None, junit: Path | None, summary: Path | None, form: Form | None,
    out: Path | None, force: bool, results: Path | None, color: str, **how: Any,
) -> int:  # fmt: skip
    """Fail a pipeline if a build is slower or takes more memory than another one.

    Both builds run side by side, in random interleaved rounds, until each bound is decided. A build
    is worse only if the whole interval of the change lies above the bound. It passes only if no
    part of the interval lies above. At most 1 of 100 equal builds is called worse.

    \b
      cairn check --fail-if 'time>3%' -p old=./a -p new=./b
      cairn check --fail-if 'peak>2%' -a system -a cairn -- ./prog
      cairn check --fail-if 'time>1%' last

    RUN is a kept run with two contenders: 'last', an id or a path. It is judged without running
    anything, so it takes no option on how to measure.

    Exit codes: 0 pass, 5 worse, 6 not enough data, 3 the build to compare with is broken, 4 the
    checked build is broken, 1 cairn failed, 2 usage or a command such as --prepare fails, 130
    interrupted.
    """
    console = stderr(color)
    output = output_of(form, False, color, out, force, endings=DOCUMENT)
    for file in (junit, summary, make_base):
        check_out(file, True)
    printed = how["stdout"]
    refuse_one_file(out, junit, summary, make_base, Path(printed) if printed else None)
    where = results or store.root()
    specs = tuple(part for spec in specs for part in split_contenders(spec))
    context = click.get_current_context()
    assert context is not None
    follows = context.meta["program follows"]
    kept = not follows and not programs and len(command) == 1 and resume is None
    if make_base is not None:
        for option, is_given in (
            ("--against", against), ("-p", programs), ("RUN", kept), ("--resume", resume),
            ("--junit", junit), ("--summary", summary), ("-o", out), ("--json", form == "json"),
            ("--md", form == "md"),
        ):  # fmt: skip
            if is_given:
                raise UsageError(
                    f"--make-base measures one build and has no report; leave out {option}"
                )
        _make(console, make_base, Gate(check_plan.distinct(bounds)), command, specs, where, how)
        return 0
    base = check_base.read(against) if against is not None else None
    if base is None and trust_base:
        raise UsageError("--trust-base needs a base; name it with --against")
    files = _CiFiles(junit, summary, _step_summary(console, summary), time.time())
    if kept:
        wanted = check_plan.asked(bounds, base)
        stored = store.find(where, command[0])
        for option in given(_NOT_MEASURING):
            raise UsageError(f"{command[0]} is a kept run and is not measured; leave out {option}")
        if base is not None:
            check_plan.refuse_stored(base, wanted, trust_base, stored.run())
            check_plan.refuse_settings(base, stored)
            check_plan.refuse_tools(base, wanted, stored, is_kept=True)
        problem = check_plan.kept_problem(stored)
        return _answer(console, stored, wanted, base, problem, output, files, is_kept=True)
    if resume is not None:
        run, folder, wanted = _resumed(where, resume, bounds, base, trust_base)
    else:
        wanted = check_plan.asked(bounds, base)
        run, folder, base = _new(
            console, wanted, base, trust_base, command, programs, specs, where, how
        )
    again = _again(against if base is not None else None, trust_base, bounds)
    try:
        announce(console, run, folder)
        problem = None
        try:
            carry_out(console, run, folder, again)
        except (ContenderFailed, ProgramFailed) as error:
            problem = error
        if base is not None and problem is None:
            # --setup may have built the program, or a tool may have been updated since the check
            # began.
            check_plan.refuse_tools(base, wanted, folder, is_kept=True)
        return _answer(console, folder, wanted, base, problem, output, files)
    except KeyboardInterrupt:
        raise interrupted(folder, again) from None


class _CiFiles(Struct, frozen=True):
    """The files for the service that runs the pipeline. None for a file that is not written."""

    junit: Path | None
    summary: Path | None
    step: Path | None
    """The summary of the step, on GitHub. It may be the same file as `summary`."""
    began: float
    """The time at which the check began, in seconds since the epoch."""

    @property
    def is_one_summary(self) -> bool:
        """Whether the user asks for the summary of the step by its name."""
        return _is_one_file(self.summary, self.step)


def _is_one_file(a: Path | None, b: Path | None) -> bool:
    return a is not None and b is not None and os.path.realpath(a) == os.path.realpath(b)


def _step_summary(console: Console, summary: Path | None) -> Path | None:
    """Returns the file of the step's summary on GitHub; None if there is none.

    Also returns None if the file cannot be written. The user did not ask for it, so the check goes
    on with a warning. If `summary` is the same file, CairnError is raised instead.
    """
    step = os.environ.get("GITHUB_STEP_SUMMARY")
    if not step:
        return None
    path = Path(os.path.realpath(step))
    # The methods of Path raise PermissionError below a folder of another user.
    place = path if os.path.exists(path) else path.parent
    if os.path.isdir(path):
        why = "it is a folder"
    elif not os.path.exists(place):
        why = f"there is no folder {place}"
    elif not os.access(place, os.W_OK):
        why = f"no permission to write to {place}"
    else:
        return path
    says = f"cannot write {step}: {why}"
    if _is_one_file(summary, path):
        raise CairnError(says)
    _tell_no_summary(console, says)
    return None


def _tell_no_summary(console: Console, why: str) -> None:
    say(console, "▲", f"the summary of the step gets no report: {why}")


def _answer(
    console: Console, stored: StoredRun, wanted: Gate, base: Base | None,
    problem: CairnError | None, output: Output, files: _CiFiles, *, is_kept: bool = False,
) -> int:  # fmt: skip
    """Shows the answer, and returns the exit code. Raises `problem` after that, if there is one.

    problem: the error that ended measuring, because a build is broken.
    is_kept: whether the run is kept, so that nothing was said about it yet.
    """
    if isinstance(problem, ProgramFailed) and base is not None:
        problem = ContenderFailed(str(problem))  # the only build of the run is the checked one
    report = check_plan.report_of(stored, wanted, base, problem)
    try:
        output.write(_rendered(report, output))
    finally:
        # The reader of standard output may be gone, as with 'cairn check … | head'.
        _write_ci_files(console, report, files)
    if is_kept or problem is None:  # else carry_out() has said where the results are
        say(console, "results", str(stored.path))
    if problem is not None:
        raise problem
    if report.broken is not None:
        kind = ProgramFailed if report.base_is_broken else ContenderFailed
        return kind.exit_code
    return _EXITS[gate.whole(report.checked)]


def _make(
    console: Console, file: Path, wanted: Gate, command: Sequence[str], specs: Sequence[str],
    where: Path, how: dict[str, Any],
) -> None:  # fmt: skip
    """Makes or replaces a base.

    Raises CairnError if the file exists and is not a base, and if a bound limits instructions but
    they could not be counted.
    """
    check_base.refuse_other_file(file)
    run, folder = check_plan.one_build(
        console, wanted, command, specs, where, how, check_plan.BASE_ROUNDS, MAKE_BASE
    )
    try:
        announce(console, run, folder)
        carry_out(console, run, folder, None)
        _write_base(console, file, wanted, folder)
    except KeyboardInterrupt:
        raise interrupted(folder, None) from None


def _write_base(console: Console, file: Path, wanted: Gate, folder: Folder) -> None:
    """Writes the base of a run that has just ended. Raises CairnError as `_make` does."""
    found = measured(folder)
    if any(one.measure == INSTRUCTIONS for one in wanted.bounds):
        for one in found.counts:
            if one.problem is not None:
                raise CairnError(
                    f"no base was made: a bound limits instructions, and {one.contender} "
                    f"{one.problem}"
                )
    run = replace(found.run, gate=wanted if wanted.bounds else None)
    base = check_base.of_run(run, found.samples, found.counts, check_base.input_of(folder))
    emit(check_base.write(base), file, True)
    commit = f", commit {base.commit[:12]}" if base.commit else ""
    changed = " with uncommitted changes" if base.uncommitted else ""
    rounds = units.counted(sum(one.counts for one in base.samples), "run")
    say(console, "base", f"{file}: {rounds}{commit}{changed}")


def _new(
    console: Console, wanted: Gate, base: Base | None, trust: bool, command: Sequence[str],
    programs: Sequence[NamedProgram], specs: Sequence[str], where: Path, how: dict[str, Any],
) -> tuple[Run, Folder, Base | None]:  # fmt: skip
    """Returns a new run and its folder, and the base if its stored numbers are compared."""
    if base is None:
        run, folder = check_plan.two_builds(console, wanted, command, programs, specs, where, how)
        return run, folder, None
    own = base.run.competing[0]
    # Without -a, the base ran with the allocator that it is linked with, and so does the new build.
    specs = specs or (() if own.spec == "system" or own.name == "linked" else (own.spec,))
    found = check_plan.side_by_side(base, command, programs)
    if found is not None:
        both, arguments = found
        run, folder = check_plan.two_builds(console, wanted, arguments, both, specs, where, how)
        return run, folder, None
    check_plan.refuse_stored(base, wanted, trust, command=command)
    rounds = max(sum(one.counts for one in base.samples), 1) if wanted.timed else 0
    run, folder = check_plan.one_build(console, wanted, command, specs, where, how, rounds, CHECK)
    try:
        check_plan.refuse_settings(base, folder)
        check_plan.refuse_tools(base, wanted, folder)
    except UsageError:
        store.remove(folder.path)
        raise
    return run, folder, base


def _resumed(
    where: Path, name: str, bounds: tuple[GateBound, ...], base: Base | None, trust: bool
) -> tuple[Run, Folder, Gate]:
    """Returns an interrupted check and its folder, ready to continue, and its bounds."""
    refuse_beside_resume({"bounds", "against", "trust_base", "junit", "summary"})
    found = store.find(where, name)
    kept = found.run()
    refuse_other_command(kept, name, CHECK)
    if kept.gate is not None and (base is not None or bounds):
        option = "--fail-if" if bounds else "--against"
        raise UsageError(
            f"--resume continues a check with its own builds and bounds; leave out {option}"
        )
    if kept.gate is None and base is None:
        raise UsageError(
            f"{name} has no bounds; if it checks a build against a base, add --against FILE, else "
            "continue it with the command it had"
        )
    wanted = kept.gate or check_plan.asked(bounds, base)
    if base is not None:
        check_plan.refuse_stored(base, wanted, trust, command=check_base.words(kept))
        check_plan.refuse_settings(base, found)
        check_plan.refuse_tools(base, wanted, found)
    run, folder = resumed(where, name, CHECK)
    return run, folder, wanted


def _again(against: Path | None, trust: bool, bounds: Sequence[GateBound]) -> str:
    """Returns the command that continues a check with --resume.

    against: the base whose stored numbers are compared; None if both builds run.
    """
    from cairn.report.check import bound

    if against is None:
        return CHECK
    limits = [f"--fail-if={bound(one.measure, one.most)}" for one in bounds]
    words = ["--against", str(against), *(["--trust-base"] if trust else []), *limits]
    return f"{CHECK} {shlex.join(words)}"


def _rendered(report: CheckReport, output: Output) -> str:
    from cairn.report import check as reporting

    return reporting.rendered(report, output.view)


def _write_ci_files(console: Console, report: CheckReport, files: _CiFiles) -> None:
    """Writes the reports for the service that runs the pipeline: annotations, JUnit, Markdown."""
    from cairn.report import check as reporting

    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in reporting.annotation_lines(report):
            click.echo(line, err=True)
    if files.junit is not None:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(files.began))
        emit(reporting.junit(report, time.time() - files.began, when), files.junit, True)
    # The file of the step may have text of earlier commands, so it is never replaced.
    if files.summary is not None and not files.is_one_summary:
        emit(reporting.summary(report), files.summary, True)
    if files.step is not None:
        try:
            with files.step.open("a", encoding="utf-8") as file:
                file.write(reporting.summary(report))
        except OSError as error:
            failure = cannot("write", files.step, error)
            if files.is_one_summary:
                raise failure from error
            _tell_no_summary(console, str(failure))
