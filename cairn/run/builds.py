"""Identifies the builds of a run's files: programs, scripts, libraries and contenders.

One run must not mix two builds of a program. So a run keeps the builds that it began with. They are
compared after each trial, and when the run is resumed.

A build is known by the build ID of an ELF file. A file without one is known by its checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from cairn.binary import elf
from cairn.binary.library import loaded_with
from cairn.binary.program import behind_env, inspect_program
from cairn.build import Build
from cairn.compare.plan import settings_of
from cairn.errors import CairnError, ContenderFailed, ProgramFailed, ProgramMissing, UsageError
from cairn.model import Contender, Settings

_INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|node|php|lua|luajit|guile|tclsh|Rscript|[akz]?sh|[bd]ash|fish)[\d.]*"
)
"""Programs whose first argument is a script."""
_OTHER_INTERPRETER = re.compile(
    r"java|dotnet|mono(-sgen)?|([gmn]|original-)?awk|t?csh|julia|deno|bun|escript|elixir|wish[\d.]*"
)
"""Further programs that run code of other files. No script is looked for in their arguments."""
_SHELL = re.compile(r"([akz]?sh|[bd]ash|fish)[\d.]*")
_ENDS_OPTIONS = re.compile(r"-[a-zA-Z]*[cem]")
"""Options of interpreters after which no script follows, such as -c."""
_ENDS_SHELL_OPTIONS = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
"""Options of shells after which no script follows, such as -c and -lc. With -e, one follows."""
_WRAPPER = re.compile(
    r"chrt|env|ionice|nice|nohup|numactl|perf|prlimit|qemu-\w+|setarch|setpriv|setsid|stdbuf|strace"
    r"|sudo|taskset|time|timeout|unshare|valgrind"
)
"""Programs that start the program which their arguments name."""
_NAMED_MOST = 5


def of_run(settings: Settings, contenders: Sequence[Contender]) -> tuple[Build, ...]:
    """Returns the builds of all files that the trials of this run use. Each has a different name.

    Raises ProgramMissing if a program does not exist.
    """
    found: dict[str, Build] = {}
    for name, path, part in (*_of_programs(settings, contenders), *_of_contenders(contenders)):
        # Two programs of -p may use different libraries with the same name. The second library is
        # then named by its path.
        key = name if name not in found or found[name].path == path else path
        if key not in found:
            found[key] = Build(name=key, path=path, part=part, build=_build(path))
    return tuple(found.values())


def of_others_alone(
    settings: Settings, contenders: Sequence[Contender], baseline: str
) -> frozenset[str]:
    """Returns the paths of the files that the baseline does not use, but another contender does.

    Raises ProgramMissing if a program does not exist.
    """
    own = [one for one in contenders if one.name == baseline]
    others = [one for one in contenders if one.name != baseline]
    by_own, by_others = ({path for one in of for path in one.preload} for of in (own, others))
    if any(one.program for one in contenders):  # otherwise they all use the same program
        by_own |= {path for _, path, _ in _of_programs(settings, own)}
        by_others |= {path for _, path, _ in _of_programs(settings, others)}
    return frozenset(by_others - by_own)


def _of_contenders(contenders: Sequence[Contender]) -> Iterator[tuple[str, str, str]]:
    for contender in contenders:
        for path in contender.preload:
            yield path, path, "contender"


def _of_programs(
    settings: Settings, contenders: Sequence[Contender]
) -> Iterator[tuple[str, str, str]]:
    """Yields (name, path, part) for the programs of all workloads, their scripts and libraries."""
    seen = set()
    programs = tuple(dict.fromkeys(one.program for one in contenders))
    for index, command in [
        (index, (*program, *workload.command[1:]) if program else workload.command)
        for index, workload in enumerate(settings.workloads)
        for program in programs
    ]:
        shell = settings_of(settings, index).shell
        words = _words(command[0]) if shell else list(command)
        if shell:
            yield from _of_program("/bin/sh", settings.folder)
        _, behind = behind_env(words)
        if not behind:
            continue
        if behind[0] not in seen:
            seen.add(behind[0])
            try:
                yield from _of_program(behind[0], settings.folder)
            except CairnError:
                # The first word of a shell's line need not be a program.
                if not shell:
                    raise
        script = _script(behind, settings.folder)
        if script is not None:
            yield script, os.path.join(settings.folder, script), "script"


def first_program(settings: Settings, contender: Contender) -> str | None:
    """Returns the path of the first program that a contender runs; None if it does not exist."""
    with contextlib.suppress(CairnError):
        for _, path, part in _of_programs(settings, [contender]):
            if part == "program":
                return path
    return None


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return []


def _of_program(word: str, folder: str) -> Iterator[tuple[str, str, str]]:
    path = os.path.join(folder, word.removeprefix("./")) if "/" in word else shutil.which(word)
    if path is None or not os.path.exists(path):
        raise ProgramMissing(_gone(word))
    yield word, path, "program"
    program = inspect_program(path)
    if program.interpreter is not None:
        yield program.interpreter, program.interpreter, "program"
    for library in loaded_with(program):
        yield os.path.basename(library), library, "library"


def _script(command: Sequence[str], folder: str) -> str | None:
    """Returns the script that an interpreter runs: its first argument that is a file."""
    if not _INTERPRETER.fullmatch(os.path.basename(command[0])):
        return None
    for word in command[1:]:
        if _ends_options(command[0], word):
            return None
        if not word.startswith("-") and os.path.isfile(os.path.join(folder, word)):
            return word
    return None


def _ends_options(interpreter: str, word: str) -> bool:
    """Returns whether `word` is an option after which code or a module follows, not a script."""
    is_shell = _SHELL.fullmatch(os.path.basename(interpreter))
    return bool((_ENDS_SHELL_OPTIONS if is_shell else _ENDS_OPTIONS).fullmatch(word))


def words_before_program(command: Sequence[str]) -> int:
    """Returns how many words of a command stand before its program.

    These are `env` with its options and variables. If another wrapper, such as `taskset`, starts an
    interpreter, they are the wrapper and its options.
    """
    behind = behind_env(command)[1]
    start = len(command) - len(behind)
    if tuple(command[start:]) != behind:  # the program stands in the text of env -S
        return 0
    if behind and _WRAPPER.fullmatch(os.path.basename(behind[0])):
        for place, word in enumerate(behind):
            if "=" not in word and _INTERPRETER.fullmatch(os.path.basename(word)):
                return start + place
    return start


def names_code(command: Sequence[str], folder: str) -> bool:
    """Returns whether a command names an interpreter and the code that it runs."""
    return _end_of_code(command, folder) is not None


def words_of_program(command: Sequence[str], folder: str) -> int:
    """Returns how many words of a command, from its first one, name its program.

    An interpreter and its script do so together. So do an interpreter and the code of -c, or the
    module of -m.
    """
    return _end_of_code(command, folder) or words_before_program(command) + 1


def _end_of_code(command: Sequence[str], folder: str) -> int | None:
    """Returns the number of words up to a script, a module or code; None without one."""
    start = words_before_program(command)
    interpreter = command[start]
    if not _INTERPRETER.fullmatch(os.path.basename(interpreter)):
        return None
    for place in range(start + 1, len(command)):
        word = command[place]
        if _ends_options(interpreter, word):
            return place + 2 if place + 1 < len(command) else None
        if not word.startswith("-") and os.path.isfile(os.path.join(folder, word)):
            return place + 1
    return None


def path_of_program(command: Sequence[str], folder: str) -> str | None:
    """Returns the real path of a command's program; None if it is missing.

    The interpreter of a virtual environment is a link to another one. Both use different modules,
    so for such an interpreter this is the path of the link.
    """
    word = behind_env(command)[1][0]
    path = os.path.join(folder, word) if "/" in word else word
    try:
        program = inspect_program(path)
    except CairnError:
        return None
    found = os.path.abspath(path) if "/" in path else shutil.which(path) or ""
    bin_, name = os.path.split(found)
    if os.path.isfile(os.path.join(os.path.dirname(bin_), "pyvenv.cfg")):
        return os.path.join(os.path.realpath(bin_), name)
    return program.path


def names_of_programs(programs: Iterable[Sequence[str]], folder: str) -> frozenset[str]:
    """Returns the names under which the processes of these programs may run.

    Returns an empty set if the programs have the same names, so that they need no common one.
    """
    each = {_names_of_program(one, folder) for one in programs}
    return frozenset[str]().union(*each) if len(each) > 1 else frozenset()


def _names_of_program(command: Sequence[str], folder: str) -> frozenset[str]:
    """Returns the file names under which the processes of a command's program may run.

    A process is named after the file that it executes. This is the file to which symbolic links
    lead, or the interpreter of a script. If a wrapper such as `nice` starts another program, the
    names of that program are among the result.
    """
    behind = behind_env(command)[1]
    word = behind[0]
    names = {os.path.basename(word)}
    with contextlib.suppress(CairnError):
        program = inspect_program(os.path.join(folder, word) if "/" in word else word)
        names |= {os.path.basename(program.path), os.path.basename(program.file)}
    if _WRAPPER.fullmatch(os.path.basename(word)):
        inner = started(behind, folder)
        if inner is not None:
            names |= _names_of_program(behind[behind.index(inner, 1) :], folder)
    return frozenset(names)


def is_interpreted(command: Sequence[str], folder: str) -> bool:
    """Returns whether a command's program is a script or an interpreter."""
    word = behind_env(command)[1][0]
    try:
        program = inspect_program(os.path.join(folder, word) if "/" in word else word)
    except CairnError:
        return False
    return program.interpreter is not None or any(
        kind.fullmatch(os.path.basename(path))
        for kind in (_INTERPRETER, _OTHER_INTERPRETER)
        for path in (word, program.path)
    )


def started(command: Sequence[str], folder: str) -> str | None:
    """Returns the program that a command's program probably starts, as `nice` and `time` do.

    It is the first argument that is the path of an executable file. A name without a folder counts
    only behind a known wrapper. Returns None if there is none.
    """
    behind = behind_env(command)[1]
    is_wrapper = _WRAPPER.fullmatch(os.path.basename(behind[0]))
    for word in behind[1:]:
        if "/" in word:
            path: str | None = os.path.join(folder, word)
        else:
            path = shutil.which(word) if is_wrapper else None
        if path is not None and os.path.isfile(path) and os.access(path, os.X_OK):
            return word
    return None


def script_of(command: Sequence[str], folder: str) -> str | None:
    """Returns the build of the script that a command's interpreter runs; None without a script."""
    behind = behind_env(command)[1]
    script = _script(behind, folder)
    return None if script is None else _build(os.path.join(folder, script))


def _build(path: str) -> str | None:
    """Returns the build of a file; None if it cannot be read."""
    try:
        descriptor = elf.open_regular(path)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            known = elf.Image(descriptor).build_id
        except (elf.NotElf, elf.Damaged, OSError):
            known = None
        if known is not None:
            return f"build ID {known}"
        try:
            file.seek(0)
            return f"SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
        except OSError:
            return None


def refuse_other(
    before: Sequence[Build], now: Sequence[Build], of_baseline: Collection[str] = ()
) -> None:
    """Raises an error that names each file that is not as it was when the run began.

    of_baseline: the paths of the libraries that are preloaded for the baseline.

    The error is ProgramMissing if a file is gone. If only libraries of contenders changed, it is
    ProgramFailed if one of them is of the baseline, else ContenderFailed. It is UsageError
    otherwise. Older versions of cairn stored no builds with a run. Such a run has
    nothing to compare with, so there is no error.
    """
    known, current = ({one.name: one for one in builds} for builds in (before, now))
    if not known:
        return
    for name, one in known.items():
        if name not in current and not os.path.exists(one.path):
            raise ProgramMissing(_gone(name))
    changed = other(before, now)
    if changed:
        kind: type[CairnError] = UsageError
        if all(one.part == "contender" for one in changed):
            own = any(one.path in of_baseline for one in changed)
            kind = ProgramFailed if own else ContenderFailed
        raise kind(f"{another(changed)} than when this run began; {_ADVICE}")


def other(before: Sequence[Build], now: Sequence[Build]) -> list[Build]:
    """Returns the builds that are not in both sequences."""
    known, current = ({one.name: one for one in builds} for builds in (before, now))
    return [
        one
        for name, one in {**current, **known}.items()
        if name not in current or name not in known or one.build != current[name].build
    ]


def _gone(name: str) -> str:
    return f"{name} is gone; put it back, or begin a new run"


_ADVICE = "put back what was there, or begin a new run"


def another(builds: Sequence[Build]) -> str:
    """Returns that these are other builds, as the beginning of a clause."""
    names = [one.name for one in builds[:_NAMED_MOST]]
    more = f" and {len(builds) - _NAMED_MOST} more" if len(builds) > _NAMED_MOST else ""
    verb = "is another build" if len(builds) == 1 else "are other builds"
    return f"{', '.join(names)}{more} {verb}"


_Signature = tuple[int, int, int] | None


class Watch:
    """Notices whether a file of the run is replaced while the run is measured."""

    def __init__(self, builds: Sequence[Build], of_others: Collection[str] = ()) -> None:
        """Notes how the files are now.

        of_others: the paths of the files that the baseline does not use; see `of_others_alone`.
        """
        self._signatures = {one: _signature(one.path) for one in builds}
        self._of_others = of_others

    def refuse_changed(self) -> None:
        """Raises an error if a file was replaced or vanished.

        The error is ContenderFailed for a file that the baseline does not use, else ProgramFailed.

        A file that has a new date but still the same build was not replaced.
        """
        for one, before in self._signatures.items():
            now = _signature(one.path)
            if now == before:
                continue
            kind = ContenderFailed if one.path in self._of_others else ProgramFailed
            if now is None:
                raise kind(
                    f"{one.name} vanished while it was measured; put it back and continue with "
                    "--resume, or begin a new run"
                )
            if _build(one.path) != one.build:
                raise kind(
                    f"{one.name} was replaced while it was measured; the trials before are kept; "
                    f"{_ADVICE}"
                )
            self._signatures[one] = now


def _signature(path: str) -> _Signature:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
