"""Makes command lines that run a program under callgrind, and reads valgrind's output."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from cairn.errors import CairnError
from cairn.profile.callgrind_files import CutOff

SLOWER = 200
"""The factor by which --timeout is longer under callgrind. A program takes some 50 times as long
there, so the factor leaves a margin."""


class Under(Struct, frozen=True):
    """How a trial runs the program under another program."""

    command: tuple[str, ...] = ()
    """The words before the program's command line."""
    between: Path | None = None
    """A library of cairn that is preloaded before the allocator, and calls it."""
    environment: dict[str, str] = field(default_factory=dict)


ALONE = Under()
"""A trial runs the program itself."""


def need_valgrind(option: str) -> None:
    """Raises CairnError if valgrind is not installed. option: what needs it."""
    if shutil.which("valgrind") is None:
        raise CairnError(
            f"{option} needs valgrind, which is not installed; Debian: apt-get install valgrind."
        )


def callgrind(out: str, log: str, *options: str) -> tuple[str, ...]:
    """The words before a command line that run it and its descendants under callgrind.

    out, log: the paths of the counts and of valgrind's messages. "%p" stands for the process id.
    """
    return (
        "valgrind", "-q", "--tool=callgrind", "--trace-children=yes", *options,
        f"--callgrind-out-file={out}", f"--log-file={log}",
    )  # fmt: skip


def lines(file: Path) -> Iterator[str]:
    """Yields the lines of a file that valgrind wrote for one process.

    The file is open only while its lines are read, because there may be many processes. Raises
    CutOff if the last line has no end.
    """
    last = ""
    with file.open(encoding="utf-8", errors="replace") as opened:
        for last in opened:
            yield last
    if last and not last.endswith("\n"):
        raise CutOff(last)


def first_message(folder: Path, pattern: str) -> str:
    """The first message in the logs of `folder` that match `pattern`; "" if there is none."""
    for log in sorted(folder.glob(pattern)):
        for line in log.read_text("utf-8", "replace").splitlines():
            if text := line.partition("== ")[2].strip() or line.removeprefix("valgrind:").strip():
                return text
    return ""
