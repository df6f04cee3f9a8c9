"""Finds out which programs of a plan can run here, and turns them into workloads of a run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from cairn.binary.program import behind_env
from cairn.doctor.program_checks import diagnose
from cairn.errors import CairnError
from cairn.matrix import inputs, places
from cairn.matrix.plan import MeasurementPlan, PlannedProgram
from cairn.model import NO_INPUT, Check, Settings, Workload
from cairn.own_settings import OwnSettings
from cairn.run import workloads

_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")
_OVERHEAD_S = 0.06
"""Seconds that a run takes besides its program, for the launcher, the cgroup and the proof."""
_FACTOR = 1.25
"""The expected duration under the average contender, as a multiple of that under the baseline."""
UNKNOWN_S = 1.0
"""The duration that is assumed for a program whose plan names none."""


class Examination(Struct, frozen=True):
    """A program of the plan on this machine."""

    program: PlannedProgram
    missing: tuple[str, ...] = ()
    """The programs and files that are not here."""
    obstacle: str | None = None
    """Why no preloaded allocator can work in it; None if one can."""
    warnings: tuple[str, ...] = ()
    """The limits of a result of this program, as sentences."""
    replaced: str | None = None
    """The C library of a program that is linked with another allocator; else None. The system's
    allocator reaches such a program only if this library is preloaded."""

    @property
    def runs(self) -> bool:
        """Whether the program can be measured here."""
        return not self.missing and self.obstacle is None

    @property
    def why_not(self) -> str:
        """Why it cannot be measured, with the next step; empty if it can."""
        if self.missing:
            what = " and ".join(self.missing)
            verb = "is" if len(self.missing) == 1 else "are"
            names = " ".join(self.program.packages)
            step = f"; Debian: apt-get install {names}" if names else ""
            return f"{what} {verb} not installed{step}"
        return self.obstacle or ""


def examined(program: PlannedProgram, folder: Path) -> Examination:
    """Looks for the program's files and asks doctor; runs nothing.

    folder: the folder in which the programs run.
    """
    first = _first_word(program.command, shell=program.shell)
    load = _first_word(program.load, shell=True)
    wanted = dict.fromkeys(filter(None, (first, load, *program.needs)))
    missing = [name for name in wanted if not _is_here(name, folder)]
    if program.stdin and not _is_file(program.stdin, folder):
        missing.append(program.stdin)
    if missing or program.workload:
        return Examination(program, tuple(missing))
    environment = {**os.environ, **dict(_filled_environment(program))}
    try:
        workload_of(program, 1)  # raises if a line cannot take a path
        started = (first or "/bin/sh",) if program.shell else _command(program)
        found = diagnose(_beside(started, folder), environment)
    except CairnError as error:
        return Examination(program, obstacle=str(error))
    if found.obstacle is not None:
        return Examination(program, obstacle=_sentence(found.obstacle))
    linked = found.linked is not None
    return Examination(
        program,
        warnings=tuple(
            _sentence(check)
            for check in found.warnings
            if not (linked and check.subject == "allocator")
        ),
        replaced=found.libc if linked else None,
    )


def _sentence(check: Check) -> str:
    return f"{check.says}. {check.next_step}" if check.next_step else check.says


_OPERATORS = "();<>|&"
"""The characters of a shell's operators."""
_PLAIN = re.compile(r"(?!\d+\Z)[\w./+-]+")
"""A word that a shell leaves as it is. A number may be the descriptor of a redirection."""
_OF_THE_SHELL = frozenset(
    """
    . alias bg bind break builtin case cd chdir command continue declare do echo enable eval exec
    exit export false fc fg for function getopts hash if jobs kill let local printf pwd read
    readonly return select set shift shopt source suspend test time times trap true type typeset
    ulimit umask unalias unset until wait while
    """.split()  # noqa: SIM905 - easier to read than a list
)
"""Words at the beginning of a line of a shell for which no program has to be installed."""


def _first_word(line: str, *, shell: bool) -> str | None:
    """The program that a line starts.

    None if only a shell can tell which program that is: the line then begins with a word of the
    shell, or with a word that the shell changes.
    """
    if shell:
        return _first_word_of_shell(line)
    _, behind = behind_env([word for word in shlex.split(line) if not _ASSIGNS.match(word)])
    return behind[0] if behind else None


def _first_word_of_shell(line: str) -> str | None:
    """The first word of a line, if the shell leaves it as it is and searches a program for it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if word and word[0] in _OPERATORS:
                if word[0] == "(":  # a function, or the output of a command
                    return None
                break
            if words or not _ASSIGNS.match(word) or re.search(r"`|\$\{", word):
                words.append(word)
    except ValueError:  # a quote is not closed, such as one in a comment
        return None
    _, behind = behind_env(words)
    first = behind[0] if behind else ""
    return first if _PLAIN.fullmatch(first) and first not in _OF_THE_SHELL else None


def _is_here(name: str, folder: Path) -> bool:
    if "{" in name:
        return True  # an input, which is made before the run
    return os.path.exists(folder / name) if "/" in name else shutil.which(name) is not None


def _is_file(name: str, folder: Path) -> bool:
    return "{" in name or os.path.exists(folder / name)


def _beside(command: Sequence[str], folder: Path) -> tuple[str, ...]:
    """The command with `folder` put before the path of its program.

    The program is started there, and a path in the plan is relative to that folder.
    """
    _, behind = behind_env(command)
    return tuple(
        str(folder / word) if word in behind[:1] and "/" in word else word for word in command
    )


def _places(program: PlannedProgram) -> Mapping[str, str]:
    return {
        "threads": str(program.threads or 1),
        "data": str(inputs.data_folder(program)),
        "work": str(inputs.work_folder(program)),
    }


def _filled(program: PlannedProgram, text: str) -> str:
    """The text with the names in braces replaced."""
    return places.in_word(text, _places(program))


def _line(program: PlannedProgram, line: str) -> str:
    """A line of a shell with the names in braces replaced. The paths are quoted where needed."""
    return places.in_line(line, _places(program))


def _filled_environment(program: PlannedProgram) -> tuple[tuple[str, str], ...]:
    return tuple((name, _filled(program, value)) for name, value in program.environment)


def _command(program: PlannedProgram) -> tuple[str, ...]:
    if program.shell:
        return (_line(program, program.command),)
    return places.in_words(shlex.split(program.command), _places(program))


def workload_of(program: PlannedProgram, cpus: int) -> Workload:
    """The workload of a run, with the settings of its own."""
    if program.workload:
        entry = workloads.named(program.workload)
        assert entry is not None  # the plan was checked
        arguments = program.arguments if program.arguments is not None else entry.suite
        arguments = (
            arguments.replace("{threads}", str(program.threads)) if program.threads else (arguments)
        )
        made = entry.workload(arguments, cpus, name=program.name, group=program.kind)
        own = OwnSettings(
            reports=True, verify_output=False, ok_exit=(0,), timeout_s=program.timeout_s,
            environment=_filled_environment(program), prepare=_prepare(program),
        )  # fmt: skip
        return Workload(made.name, made.command, made.group, own=own)
    own = OwnSettings(
        shell=program.shell,
        stdin=_filled(program, program.stdin) or NO_INPUT,
        prepare=_prepare(program),
        conclude=_line(program, program.conclude) or None,
        ready=_line(program, program.ready) or None,
        ok_exit=program.ok_exit,
        verify_output=not program.unchecked and not program.load,
        reports=False,
        timeout_s=program.timeout_s,
        environment=_filled_environment(program),
        written=tuple(_filled(program, path) for path in program.written),
    )
    return Workload(
        program.name, _command(program), program.kind,
        load=_line(program, program.load), own=own,
    )  # fmt: skip


def _prepare(program: PlannedProgram) -> str | None:
    """The line before each run. It empties the working folder, then runs the plan's `prepare`."""
    steps = []
    if any("{work}" in line for line in program.lines):
        steps.append(inputs.emptied(inputs.work_folder(program)))
    if program.prepare:
        steps.append(_line(program, program.prepare))
    return " && ".join(steps) or None


def settings_of(programs: Sequence[PlannedProgram], folder: Path) -> Settings:
    """The settings of a run of these programs."""
    cpus = len(os.sched_getaffinity(0))
    return Settings(
        workloads=tuple(workload_of(program, cpus) for program in programs),
        folder=str(folder),
        by_cell=True,
        timeout_s=max(program.timeout_s for program in programs),
    )


def expected_s(
    programs: Sequence[PlannedProgram], contenders: int, rounds: int, warmup: int
) -> tuple[float, int]:
    """The expected seconds of a run with its warm-up, and how many durations had to be guessed.

    warmup: the number of runs of each program under each contender before the first round.
    """
    unknown = sum(program.seconds is None for program in programs)
    one = sum(_FACTOR * (program.seconds or UNKNOWN_S) + _OVERHEAD_S for program in programs)
    return one * contenders * (rounds + warmup), unknown


def notes_of(plan: MeasurementPlan, programs: Sequence[PlannedProgram]) -> tuple[str, ...]:
    """The plan's title, and sentences about the programs that a reader of the report must know."""
    found = [plan.title, *plan.notes] if plan.title else list(plan.notes)
    for program in programs:
        first = program.threads is None or not any(
            one.table == program.table for one in programs[: programs.index(program)]
        )
        if not first:
            continue
        if program.original:
            found.append(f"{program.table} stands for {program.original}: {_note(program)}")
        elif program.kind == "kernel":
            found.append(f"{program.table} is a kernel: {program.note}")
        if program.unchecked:
            found.append(f"the output of {program.table} is not compared: {program.unchecked}")
    return tuple(found)


def _note(program: PlannedProgram) -> str:
    kind = "a kernel" if program.kind == "kernel" else "a real program"
    return f"{kind}, {program.note}" if program.note else kind
