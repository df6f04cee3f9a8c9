"""Runs other people's tools: looks them up, ends what hangs, and leaves no process behind, whatever happens.

Every tool gets a process group of its own, which is killed as a whole when the tool has to end: an interrupted build
leaves no compiler running, and an interrupted download no helper of apt.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

Progress = Callable[[str], None]
"""Called once for each thing that takes time, with what it is."""

REPORT_EVERY_S = 10.0
"""How often something that takes minutes says that it is still at work."""

_OUTPUT_MAX = 1024 * 1024

_GROUP_GONE_S = 2.0

_NAMES = {
    "cargo": ("cargo",),
    "cc": ("gcc", "cc", "clang"),
    "c++": ("g++", "c++", "clang++"),
    "make": ("make", "gmake"),
    "cmake": ("cmake",),
}

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
    """Nothing moved for too long."""


class Busy(Exception):
    """Somebody else holds the lock, and does not let go."""


class Failed(Exception):
    """A tool ended with an error; `output` is what it printed."""

    def __init__(self, command: Sequence[str], status: int, output: str) -> None:
        super().__init__(f"{os.path.basename(command[0])} failed with status {status}")
        self.output = output


def find_tool(name: str) -> str | None:
    """The path of a tool: what its usual variable names, then what is on PATH, then beside our own Python."""
    own = os.path.dirname(sys.executable)
    for candidate in filter(
        None, [os.environ.get(_VARIABLES.get(name, "")), *_NAMES.get(name, (name,))]
    ):
        if path := shutil.which(candidate) or shutil.which(candidate, path=own):
            return path
    return None


def packages_of(tools: Sequence[str]) -> str:
    """What to install on Debian and its family to have these tools."""
    return " ".join(dict.fromkeys(_PACKAGES.get(tool, tool) for tool in tools))


def build_environment() -> dict[str, str]:
    """The user's environment without what would change what is built: the pinned flags are part of the recipe."""
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
    """One at a time. The kernel drops the lock of a killed one, so no hand has to clean up."""
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
    return True


def _tied(command: Sequence[str]) -> list[str]:
    """The command below a shell that ends the group when we are killed without a chance to do it ourselves.

    The kernel signals the death of a parent to its children alone; what make and cargo started would go on.
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
    """Exit status and output. A tool that neither prints nor writes below `folder` for `stall_s` is ended."""
    process = subprocess.Popen(
        _tied(command),
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
        return process.wait(timeout=stall_s), output.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        raise Stalled from None
    finally:
        _end(process)
        process.stdout.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the group, and waits a moment until the kernel has put all of it away: nothing of it writes any more."""
    if process.poll() is not None:
        return
    deadline = time.monotonic() + _GROUP_GONE_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.01)
    process.wait()


def bytes_below(folder: Path) -> int:
    """How much lies there: a download shows itself by its growing file, whatever the tool prints."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


# --- many compilers at once ---


@dataclass(frozen=True, slots=True)
class Task:
    """A command; with `makes`, that file appears by a rename once the command has written all of `draft`."""

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
    """Runs all, `jobs` at a time; `report` gets how many have ended, at every end and every few seconds.

    Raises Failed for the first that fails, after ending the others. Their output goes to `log`.
    """
    waiting = list(reversed(tasks))
    running: dict[Task, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
    done, said = 0, time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.pop()
                running[task] = _start(task, environment)
            time.sleep(0.02)
            for task, (process, output) in list(running.items()):
                if process.poll() is None:
                    continue
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
            if time.monotonic() - said >= REPORT_EVERY_S / 2:
                said = time.monotonic()
                report(done)
    finally:
        for process, output in running.values():
            _end(process)
            output.close()


def _start(task: Task, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Its output goes to a file without a name: a pipe that nobody reads would stop a talkative compiler."""
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    try:
        process = subprocess.Popen(
            _tied(task.command),
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
    with output:
        output.seek(0)
        return output.read(_OUTPUT_MAX).decode("utf-8", "replace")
