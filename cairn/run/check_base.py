"""The base of a check: the measurements of one build, kept as one file.

A base holds the run of one build: its command, its samples, its counts of instructions, and the
machine, the commit and the libraries with which they were made. Times of another day are not
comparable, so the base names its program, which is measured again if it is still there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from cairn.binary import elf
from cairn.build import Tools
from cairn.compare.gate import MEASURES
from cairn.errors import CairnError, UsageError, cannot
from cairn.gate import InstructionCount
from cairn.model import COPY, NO_INPUT, SCHEMA, Contender, Run, Sample, Settings
from cairn.run import builds, store
from cairn.run.stored_run import (
    LARGEST_FILE,
    DamagedFile,
    StoredRun,
    checked,
    decoded,
    encoded,
    other_version,
)

KIND = "base of cairn check"
_COMPILER_BYTES = 4096
_GIT_S = 20.0
_MAKE_AGAIN = "make it again with --make-base"


class Base(Struct, frozen=True):
    """The measurements that a check compares with."""

    schema: int
    kind: str
    run: Run
    """The run of one contender, with the machine, the builds of all files, and perhaps bounds."""
    samples: tuple[Sample, ...]
    instructions: tuple[InstructionCount, ...] = ()
    machine: str | None = None
    """A hash of /etc/machine-id, which identifies the machine; None if there is no such file."""
    commit: str | None = None
    """The commit of the working directory; None if git does not know it."""
    uncommitted: bool | None = None
    """Whether files of the working directory differed from that commit."""
    compiler: str | None = None
    """The compilers that made the program, as its section .comment names them."""
    valgrind: str | None = None
    input: str | None = None
    """The SHA-256 of the copied input of all runs; None without such an input. Bases of earlier
    versions have none."""


def of_run(
    run: Run,
    samples: tuple[Sample, ...],
    counts: tuple[InstructionCount, ...],
    copied: str | None = None,
) -> Base:
    """Returns the base for a run of one contender that has just ended.

    copied: the SHA-256 of its copied input; see `input_of`.
    """
    commit, uncommitted = commit_of(run.settings.folder)
    tools = run.tools or tools_of(run)
    return Base(
        schema=SCHEMA, kind=KIND, run=run, samples=samples, instructions=counts,
        machine=machine_id(), commit=commit, uncommitted=uncommitted,
        compiler=tools.compilers.get(run.competing[0].name),
        valgrind=tools.valgrind if counts else None, input=copied,
    )  # fmt: skip


def input_of(stored: StoredRun) -> str | None:
    """Returns the SHA-256 of a run's copy of standard input; None if there is no copy."""
    try:
        with (stored.path / store.INPUT).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def write(base: Base) -> bytes:
    """Returns the content of a base's file."""
    return encoded(base, indent=1) + b"\n"


def refuse_other_file(path: Path) -> None:
    """Raises CairnError if something else than a base has this path."""
    if not os.path.lexists(path):
        return
    try:
        with os.fdopen(elf.open_regular(str(path)), "rb") as file:
            known = is_base(file.read(LARGEST_FILE + 1))
    except OSError:
        known = False
    if not known:
        raise CairnError(f"{path} exists and is not a base of a check; give another name")


def read(path: Path) -> Base:
    """Returns the base in a file. Raises UsageError if there is none, and CairnError for damage."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise UsageError(
            f"there is no base {path}; make one with: cairn check --make-base {path} -- PROG"
        ) from None
    except OSError as error:
        raise cannot("read", path, error) from error
    if len(content) > LARGEST_FILE:
        raise UsageError(f"{path} is not a base of a check: it is too large")
    if not is_base(content):
        raise UsageError(
            f"{path} is not a base of a check; make one with: cairn check --make-base FILE -- PROG"
        )
    try:
        found = decoded(content)
        version = found.get("schema") if isinstance(found, dict) else None
        if version != SCHEMA:
            raise other_version(path, version, f"version {SCHEMA}")
        base = msgspec.convert(found, type=Base)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise DamagedFile(str(path), error, _MAKE_AGAIN) from error
    if len(base.run.competing) != 1 or len(base.run.settings.workloads) != 1:
        raise DamagedFile(str(path), "a base has one program and one contender", _MAKE_AGAIN)
    if not os.path.isabs(base.run.settings.folder):
        raise DamagedFile(str(path), "the folder of its run is not an absolute path", _MAKE_AGAIN)
    try:
        checked(base.run, base.samples, base.instructions, path)
    except DamagedFile as error:
        raise DamagedFile(error.place, error.why, _MAKE_AGAIN) from None
    own = base.run.gate.bounds if base.run.gate is not None else ()
    if any(one.measure not in MEASURES for one in own):
        raise DamagedFile(str(path), "a bound limits nothing that is measured", _MAKE_AGAIN)
    return base


def is_base(content: bytes) -> bool:
    """Returns whether `content` is that of a base's file."""
    try:
        return isinstance(found := json.loads(content), dict) and found.get("kind") == KIND
    except (ValueError, RecursionError):
        return False


def words(run: Run) -> tuple[str, ...]:
    """Returns the command of a run of one contender, with the program that it really ran."""
    command, program = run.settings.workloads[0].command, run.competing[0].program
    return (*program, *command[1:]) if program else command


def machine_id() -> str | None:
    """Returns a hash that identifies this machine; None if it has no /etc/machine-id.

    The id itself must not leave the machine (machine-id(5)).
    """
    try:
        known = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return hashlib.sha256(f"cairn {known}".encode()).hexdigest()[:32] if known else None


def commit_of(folder: str) -> tuple[str | None, bool | None]:
    """Returns the commit of a folder and whether files differ from it; None without git."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return None, None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit.strip(), None if changed is None else bool(changed.strip())


def _git(folder: str, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", check=False, timeout=_GIT_S,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def valgrind_version() -> str | None:
    """Returns the version of valgrind; None if it is not installed."""
    path = shutil.which("valgrind")
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def tools_of(run: Run) -> Tools:
    """Returns the present tools of a run whose programs are there."""
    programs = {one.name: builds.first_program(run.settings, one) for one in run.competing}
    return Tools(valgrind_version(), {name: _compiler_of(path) for name, path in programs.items()})


def _compiler_of(path: str | None) -> str | None:
    """Returns the compilers that a program's section .comment names; None if it names none."""
    if path is None:
        return None
    try:
        with elf.opened(path) as image:
            section = next(one for one in image.sections() if one.name == ".comment")
            content = image.content(section, _COMPILER_BYTES)
    except (elf.NotElf, elf.Damaged, OSError, StopIteration):
        return None
    names = [one.decode("utf-8", "replace") for one in content.split(b"\0") if one]
    return "; ".join(sorted(set(names))) or None


def hindrance(base: Base) -> str | None:
    """Returns why the base's program cannot run beside another, as a clause; None if it can.

    It can if it is where it was, and if it and all files that it uses are the same builds.
    """
    if base.run.settings.shell:
        return "the base was made with --shell, so its program cannot run beside another"
    if not base.run.builds:
        return "the base does not know the build of its program"
    try:
        now = builds.of_run(base.run.settings, base.run.contenders)
    except CairnError:
        return "the program of the base is gone"
    other = builds.other(base.run.builds, now)
    return f"{builds.another(other)} than for the base" if other else None


def same_code(base: Base, command: Sequence[str]) -> str | None:
    """Returns why the base would run the code of the checked build, as a clause; None if not.

    The code of a script, and of a program that an interpreter runs, may lie in further files, which
    Cairn does not know. If both builds have the same script or interpreter, both use these files as
    they are now. The same holds for the program that a wrapper such as `nice` starts.

    Both builds run in the present folder. So a relative path behind `env`, and that of a script
    behind the interpreter of a virtual environment, leads to the same file for both.

    command: the command of the checked build.
    """
    if not command:
        return None
    here, before, folder = os.getcwd(), words(base.run), base.run.settings.folder
    is_interpreted = builds.is_interpreted(command, here)
    now = builds.path_of_program(command, here)
    if now is not None and now == builds.path_of_program(before, folder):
        if is_interpreted:
            return (
                f"{command[0]} is a script or an interpreter, so both builds would run the same "
                "files"
            )
        further = builds.started(command, here)
        if further is not None:
            return f"{command[0]} starts {further}, so both builds would run the same file"
    elif is_interpreted and builds.script_of(command, here) != builds.script_of(before, folder):
        return "the script of the base is another one, and both builds would run the same file"
    is_env = any(os.path.basename(of[0]) == "env" for of in (command, before))
    if is_env and os.path.realpath(folder) != os.path.realpath(here):
        return f"the base was made in {folder}, and behind env both builds would run the same file"
    return None


def other_machine(base: Base) -> str | None:
    """Returns why this is not the machine of the base, as a clause; None if it is."""
    own = machine_id()
    if base.machine is None or own is None:
        return "a machine without /etc/machine-id cannot be recognised"
    return None if base.machine == own else "the base was made on another machine"


def other_host(base: Base, run: Run) -> str | None:
    """Returns why a kept run was not measured on the machine of the base, as a clause.

    Returns None if it probably was: a run keeps no hash of its machine, but describes it.
    """
    for what, before, now in (
        ("processor", base.run.host.cpu_model, run.host.cpu_model),
        ("number of CPUs", base.run.host.cpus, run.host.cpus),
        ("kernel", base.run.host.kernel, run.host.kernel),
        ("size of memory", base.run.host.memory_bytes, run.host.memory_bytes),
    ):
        if before != now:
            return (
                f"the run was measured on a machine with another {what} "
                f"({now}, and {before} for the base)"
            )
    return None


def judged(run: Run) -> Contender:
    """Returns the contender that is compared with a base: the first besides the baseline, if any.

    A run without another contender has one build, and this is its baseline.
    """
    return next((one for one in run.competing if one.name != run.baseline), run.competing[0])


def other_settings(base: Base, run: Run) -> str | None:
    """Returns why the runs of a base and of `run` are not alike, as a clause; None if they are."""
    before, now = (_conditions(of) for of in (base.run.settings, run.settings))
    for option, value in before.items():
        if value != now[option]:
            known = f"with {option} {value}" if value else f"without {option}"
            return f"the base was made {known}"
    shell = run.settings.shell
    made = words(base.run)
    for contender in run.competing:
        own = run.settings.workloads[0].command
        own = (*contender.program, *own[1:]) if contender.program else own
        if _arguments(own, shell) != _arguments(made, shell):
            return f"the base ran '{_line(made, shell)}', and not '{_line(own, shell)}'"
    return _other_allocator(base.run.competing[0], judged(run))


def _line(command: Sequence[str], shell: bool) -> str:
    return " ".join(command) if shell else shlex.join(command)


def _arguments(command: Sequence[str], shell: bool) -> tuple[str, ...]:
    """Returns the arguments of a program. With --shell, they are the text behind the first word."""
    return tuple(" ".join(command).split(maxsplit=1)[1:] if shell else command[1:])


def _other_allocator(before: Contender, now: Contender) -> str | None:
    """Returns that two builds ran under different allocators, as a clause; None if they did not."""
    # Runs of earlier versions have no spec. Without -a, a build that is linked with an allocator
    # keeps it, and the base's build may have had none.
    if not before.spec or not now.spec or (before.spec == "system" and now.name == "linked"):
        return None
    if before.spec == now.spec:
        return None
    return f"the base ran under {before.spec}, and not under {now.spec}"


def other_input(base: Base, stored: StoredRun) -> str | None:
    """Returns why a run and its base did not read the same copied input, as a clause.

    Returns None if they did, or if one of them had no such input; `other_settings` tells that.
    """
    if COPY not in (base.run.settings.stdin, stored.run().settings.stdin):
        return None
    if base.input is None:
        return f"the base keeps no checksum of its piped input; {_MAKE_AGAIN}"
    now = input_of(stored)
    if now is None:
        return "the copy of the run's piped input is gone"
    return None if base.input == now else "the base read another piped input"


def _conditions(settings: Settings) -> dict[str, str]:
    """Returns the options of a run that change what is measured, by their names."""
    stdin, folder, warm = settings.stdin, settings.folder, settings.warm_memory
    repeat = settings.repeat
    if stdin == NO_INPUT:
        stdin = ""
    elif os.path.isabs(stdin) and os.path.commonpath((stdin, folder)) == folder:
        stdin = os.path.relpath(stdin, folder)
    return {
        "--input": stdin,
        "--output": "" if settings.stdout is None else "FILE",
        "--while": settings.workloads[0].load,
        "--idle": "" if settings.idle_s is None else f"{settings.idle_s:g}s",
        "--setup": settings.setup or "",
        "--prepare": settings.prepare or "",
        "--conclude": settings.conclude or "",
        "--cpus": settings.cpus or "",
        "--shell": "yes" * settings.shell,
        "--wait-descendants": "yes" * settings.wait_descendants,
        "--repeat": "auto" if repeat is None else str(repeat) if repeat > 1 else "",
        "--warm-memory": "" if warm is None else f"{warm}B" if warm else "off",
    }


def other_tools(base: Base, run: Run) -> str | None:
    """Returns why counts of instructions cannot be compared with the base, as a clause.

    Returns None if they can be compared: everything but the program must be the same.

    run: the run of the checked build, with its tools and the builds of all its files.
    """
    if not run.builds or run.tools is None:
        return (
            "this run was kept without the compiler, the version of valgrind and the libraries "
            "with which its instructions were counted"
        )
    for what, before, now in (
        ("architecture", base.run.host.architecture, run.host.architecture),
        ("processor", base.run.host.cpu_model, run.host.cpu_model),
        ("version of valgrind", base.valgrind, run.tools.valgrind),
        ("compiler", base.compiler, run.tools.compilers.get(judged(run).name)),
    ):
        if before != now:
            return f"the base has another {what} ({before}, and {now} for the checked build)"
    before_, now_ = (
        {one.name: one.build for one in of.builds if one.part in ("library", "contender")}
        for of in (base.run, run)
    )
    for name in sorted(before_.keys() | now_.keys()):
        if before_.get(name) != now_.get(name):
            return f"the base has another {name}"
    return None
