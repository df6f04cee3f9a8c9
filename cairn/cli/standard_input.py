"""Cairn's own standard input, as the input of every run of a program.

A pipe can be read only once, so its content is copied. Every run reads the same copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from rich.console import Console

from cairn import units
from cairn.cli.console import end_like_ctrl_c, say
from cairn.errors import UsageError, cannot
from cairn.model import COPY, NO_INPUT
from cairn.run import store

_PATIENCE_S = 2.0
"""The time to wait for the first byte of a pipe that the user did not ask for.

Shells, services and other programs may start commands with a pipe that stays open and empty.
"""


class Input(Struct, frozen=True):
    """The standard input of all runs."""

    stdin: str
    """The value of `Settings.stdin`."""
    copy: Path | None = None
    """The file that `Folder.create` moves into the run's folder; None if there is no copy."""

    @property
    def path(self) -> str:
        """The file to read before the run has a folder."""
        return str(self.copy) if self.copy is not None else self.stdin


@contextlib.contextmanager
def chosen(
    given: str | None, results: Path, console: Console, output: str | None = None
) -> Iterator[Input]:
    """Yields the input that the user gave by --input, or by a pipe or a redirected file.

    given: the argument of --input; None without the option.
    results: the folder for the copy.
    output: the file of --output, which every run overwrites.

    Raises UsageError if the input cannot be read again for every run.
    """
    with _chosen(given, results, console) as found:
        if output is not None and _same_file(found.stdin, output):
            raise UsageError(
                f"the program would read and overwrite one file, {output}; give --output another"
            )
        yield found


def _same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one regular file."""
    try:
        status = os.stat(one)
        return stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.stat(other))
    except OSError:  # the output is a new file, or the input is a copy
        return False


@contextlib.contextmanager
def _chosen(given: str | None, results: Path, console: Console) -> Iterator[Input]:
    """Does the work of `chosen`, which also looks at the output."""
    if given not in (None, "-"):
        if given != NO_INPUT and not Path(str(given)).is_file():
            raise UsageError(
                f"--input {given} is not a regular file; every run must read it from its beginning"
            )
        yield Input(str(Path(str(given)).absolute()))
        return
    asked = given == "-"
    source = _source(asked, console)
    if source is not None:
        yield Input(source)
        return
    with _copied(results) as copy:
        size = copy.stat().st_size
        if size or asked:
            say(
                console,
                "input",
                f"{units.size(size)} from standard input: every run reads the same copy"
                + ("" if asked else " (as with --input -)"),
            )
        yield Input(COPY, copy) if size else Input(NO_INPUT)


def _source(asked: bool, console: Console) -> str | None:
    """Returns the file of standard input, or NO_INPUT. None: standard input must be copied."""
    try:
        status = os.fstat(0)
    except OSError:  # the caller closed it
        return NO_INPUT
    if stat.S_ISREG(status.st_mode):
        path = _path_of(status)
        if path is not None:
            say(console, "input", f"{path}, from its beginning in every run (as with --input)")
        return path
    if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        if not asked and not _has_something():
            say(
                console,
                "input",
                f"▲ nothing came through standard input within {units.duration(_PATIENCE_S)}, so "
                "the program gets no input; --input - waits for it",
            )
            return NO_INPUT
        return None
    if asked and os.isatty(0):
        return None
    if asked and not os.path.samestat(status, os.stat(NO_INPUT)):
        raise UsageError(
            "--input - cannot read this device; give a file, or a pipe that comes to an end"
        )
    return NO_INPUT


def _has_something() -> bool:
    """Whether the first byte or the end of standard input comes within _PATIENCE_S."""
    return bool(select.select([0], [], [], _PATIENCE_S)[0])


def _path_of(status: os.stat_result) -> str | None:
    """Returns the path of a redirected file. None if it was deleted, or is partly read."""
    with contextlib.suppress(OSError):
        path = os.readlink("/proc/self/fd/0")
        if os.lseek(0, 0, os.SEEK_CUR) == 0 and os.path.samestat(status, os.stat(path)):
            return path
    return None


@contextlib.contextmanager
def _copied(results: Path) -> Iterator[Path]:
    """Yields a copy of standard input, which is removed at the end if it is still there.

    The copy is locked until then, so that 'cairn clean' does not remove it.
    """
    store.make_root(results)
    end_like_ctrl_c()
    try:
        descriptor, name = tempfile.mkstemp(prefix=store.INPUT_COPY, dir=results.absolute())
    except OSError as error:
        raise cannot("write", results, error) from error
    held = os.dup(descriptor)
    try:
        # Some clusters have a file system without locks.
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        _copy_to(descriptor, Path(name))
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
        os.close(held)


def _copy_to(descriptor: int, path: Path) -> None:
    try:
        with os.fdopen(descriptor, "wb") as copy:
            if stat.S_ISREG(os.fstat(0).st_mode):
                _copy_rest(copy.fileno())
            else:
                with open(0, "rb", closefd=False) as pipe:
                    shutil.copyfileobj(pipe, copy)
    except OSError as error:
        raise cannot("copy standard input to", path, error) from error


def _copy_rest(target: int) -> None:
    """Copies a file from its position on, and leaves the position for the caller's other uses."""
    at = os.lseek(0, 0, os.SEEK_CUR)
    while part := os.pread(0, 1 << 20, at):
        at += os.write(target, part)
