"""Finds and runs external tools, ends those that hang, and leaves no process behind.

Every tool runs in a process group of its own, which is killed as a whole when the tool has to end.
An interrupted build therefore leaves no compiler running, and an interrupted download no helper of
apt.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct

from cairn.errors import NO_LOCKS

Progress = Callable[[str], None]
"""A function that shows the user a step, called before each step that takes time."""

REPORT_EVERY_S = 10.0
"""The interval of progress messages in a step that takes minutes."""

_OUTPUT_MAX = 1024 * 1024
"""The most bytes of a tool's output that are kept."""

_ERROR = re.compile(r"\berror(?:\[\w+\])?\s*:", re.IGNORECASE)
_ERROR_WORD = re.compile(r"(?<![-\w/=.])error(?![-\w/=.])", re.IGNORECASE)

_GROUP_GONE_S = 2.0
"""The time to wait until a killed process group is gone."""

_NAMES = {
    "cargo": ("cargo",),
    "cc": ("gcc", "cc", "clang"),
    "c++": ("g++", "c++", "clang++"),
    "make": ("make", "gmake"),
    "cmake": ("cmake",),
}

"""The names of each tool's programs, in order of preference."""

_VARIABLES = {"cargo": "CARGO", "cc": "CC", "c++": "CXX", "make": "MAKE", "cmake": "CMAKE"}

_PACKAGES = {
    "cargo": "cargo",
    "cc": "gcc",
    "c++": "g++",
    "make": "make",
    "cmake": "cmake",
    "ninja": "ninja-build",
    "pip": "python3-pip",
}


class Stalled(Exception):
    """A tool made no progress for too long."""


class Busy(Exception):
    """Another process held the lock until the timeout."""


class Failed(Exception):
    """A tool ended with an error. `output` holds what it printed."""

    def __init__(self, command: Sequence[str], status: int, output: str) -> None:
        super().__init__(f"{os.path.basename(command[0])} failed with status {status}")
        self.output = output

    @property
    def reason(self) -> str:
        """The first line of output with "error:", else with the word "error", else the last one.

        The command of a compiler is often printed before its message, and may have -Werror.
        """
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        for pattern in (_ERROR, _ERROR_WORD):
            found = next((line for line in lines if pattern.search(line)), None)
            if found is not None:
                return found[:200]
        return (lines[-1] if lines else str(self))[:200]


def find_tool(name: str) -> str | None:
    """The path of a tool; None if it is not installed.

    The usual environment variable, such as CC, comes first. Then PATH is searched, then the folder
    of our own Python.
    """
    own = os.path.dirname(sys.executable)
    for candidate in filter(
        None, [os.environ.get(_VARIABLES.get(name, "")), *_NAMES.get(name, (name,))]
    ):
        if path := shutil.which(candidate) or shutil.which(candidate, path=own):
            return path
    return None


def packages_of(tools: Sequence[str]) -> str:
    """The packages of Debian and its family that contain these tools, separated by spaces."""
    return " ".join(dict.fromkeys(_PACKAGES.get(tool, tool) for tool in tools))


def build_environment() -> dict[str, str]:
    """The user's environment without the variables that change builds.

    All compiler flags come from the recipe.
    """
    changes = (
        "CFLAGS",
        "CXXFLAGS",
        "CPPFLAGS",
        "LDFLAGS",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "MAKEFLAGS",
        "MAKELEVEL",
    )
    kept = {key: value for key, value in os.environ.items() if key not in changes}
    return {**kept, "LC_ALL": "C"}


@contextlib.contextmanager
def locked(path: Path, progress: Progress, what: str, timeout_s: float) -> Iterator[None]:
    """Holds an exclusive lock on the file `path`. Raises Busy after `timeout_s`.

    On a file system without locks, no process has to wait. Two processes may then fetch the same
    library at the same time.

    what: the likely holder of the lock, which is shown while waiting. The kernel releases the lock
    of a killed process, so a lock never has to be removed by hand.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not _try_lock(descriptor):
            progress(f"waiting for {what}")
            deadline = time.monotonic() + timeout_s
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise Busy
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _ended_with_us(command: Sequence[str]) -> list[str]:
    """The command wrapped in a shell that kills the whole process group when cairn dies.

    The kernel signals the death of a parent to its direct children only. Without the shell,
    processes started by make and cargo would go on. Without setpriv(1), the command is returned as
    it is.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return list(command)
    watch = 'trap "kill -KILL 0" TERM; "$@" & wait $!'
    return [setpriv, "--pdeathsig", "TERM", "sh", "-c", watch, "sh", *command]


# --- one tool that may hang ---


def run_tool(
    command: Sequence[str],
    folder: Path,
    stall_s: float,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Runs a tool in `folder` and returns its exit status and its output (stdout and stderr).

    Raises Stalled, and kills the tool, if it neither prints nor writes below `folder` for
    `stall_s`.
    """
    process = subprocess.Popen(
        _ended_with_us(command),
        cwd=folder,
        env={**(os.environ if environment is None else environment), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = bytearray()
    moved = time.monotonic()
    written = -1
    try:
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 0.25)
            if ready:
                chunk = os.read(process.stdout.fileno(), 64 * 1024)
                if not chunk:
                    break
                output += chunk[: max(0, _OUTPUT_MAX - len(output))]
                moved = time.monotonic()
            now_written = bytes_below(folder)
            if now_written != written:
                written, moved = now_written, time.monotonic()
            if time.monotonic() - moved > stall_s:
                raise Stalled
        for _ in range(max(1, round(stall_s / 0.01))):
            if _has_ended(process):
                break
            time.sleep(0.01)
        else:
            raise Stalled
        _end(process)
        return process.returncode, output.decode("utf-8", "replace")
    finally:
        _end(process)
        process.stdout.close()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended. The process is not reaped.

    Until it is reaped, its process id cannot be reused and still names its process group. It must
    not have been reaped before.
    """
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the process group and waits until all its processes are gone.

    A process that has ended by itself may have left others in the background, so its group is
    killed, too. After that, no process of the group writes to a file. The function waits for at
    most _GROUP_GONE_S; if it returns for this reason, a process of the group may still write.
    """
    if process.returncode is not None:
        return
    deadline = time.monotonic() + _GROUP_GONE_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.01)


def bytes_below(folder: Path) -> int:
    """The bytes of all files below `folder`: a growing file shows that a silent download works."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


# --- many compilers at once ---


class Task(Struct, frozen=True):
    """A command. If it has a `draft` and succeeds, the file `draft` is renamed to `makes`."""

    command: tuple[str, ...]
    folder: Path
    draft: Path | None = None
    makes: Path | None = None


def run_tasks(
    tasks: Sequence[Task],
    jobs: int,
    environment: Mapping[str, str],
    log: Path,
    report: Callable[[int], None],
) -> None:
    """Runs all tasks, `jobs` at a time, and appends their output to `log`.

    report: called with the number of finished tasks, after each of them and every few seconds.
    Raises Failed for the first task that fails, after killing the others.
    """
    waiting = list(reversed(tasks))
    running: dict[Task, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
    done, reported = 0, time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.pop()
                running[task] = _start(task, environment)
            time.sleep(0.02)
            for task, (process, output) in list(running.items()):
                if not _has_ended(process):
                    continue
                _end(process)
                text = _read_all(output)
                del running[task]
                with log.open("a", encoding="utf-8") as file:
                    file.write(f"$ {' '.join(task.command)}\n{text}")
                if process.returncode != 0:
                    raise Failed(task.command, process.returncode, text)
                if task.draft is not None and task.makes is not None:
                    os.replace(task.draft, task.makes)
                done += 1
                report(done)
            if time.monotonic() - reported >= REPORT_EVERY_S / 2:
                reported = time.monotonic()
                report(done)
    finally:
        for process, output in running.values():
            _end(process)
            output.close()


def _start(task: Task, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Starts the task with its output in an unnamed file.

    A pipe that is not read would block a compiler with much output.
    """
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    try:
        process = subprocess.Popen(
            _ended_with_us(task.command),
            cwd=task.folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except BaseException:
        output.close()
        raise
    return process, output


def _read_all(output: IO[bytes]) -> str:
    """Returns the output. The middle of a long one is left out: the reason is at either end."""
    with output:
        size = output.seek(0, os.SEEK_END)
        output.seek(0)
        if size <= _OUTPUT_MAX:
            return output.read().decode("utf-8", "replace")
        half = _OUTPUT_MAX // 2
        begin = output.read(half)
        output.seek(size - half)
        parts = (begin, b"\n(%d bytes are left out)\n" % (size - 2 * half), output.read())
        return b"".join(parts).decode("utf-8", "replace")
