"""Runs a program under callgrind, and counts the instructions of its allocator by path.

The contract between the runs and with the library: src/instructions/history.h.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn import native
from cairn.errors import CairnError, ContenderFailed
from cairn.model import Contender
from cairn.profile.path_instructions import Account, CutOff, PathInstructions, parsed
from cairn.run import foreground
from cairn.run.proof import not_behind
from cairn.run.runner import real_path

MISSING = "--instructions needs valgrind, which is not installed; Debian: apt-get install valgrind."
_ACCOUNT = struct.Struct("=QQQ256s256s")
"""struct history_account of src/instructions/history.h."""
_CUT = 255
"""The most bytes of a path in the account. A path of this length may have been cut."""


def need_valgrind() -> None:
    """Raises CairnError if valgrind is not installed."""
    if shutil.which("valgrind") is None:
        raise CairnError(MISSING)


def learn(contender: Contender, command: Sequence[str], folder: Path) -> foreground.Ended:
    """Runs the program without its output, and notes the paths of its allocations in `folder`.

    Nothing is counted, so this run takes a tenth of the time that count() takes.
    """
    return _run(contender, command, folder, "learn", "--instr-atstart=no", "/dev/null", quiet=True)


def count(contender: Contender, command: Sequence[str], folder: Path) -> foreground.Ended:
    """Runs the program, and counts its instructions into `folder`."""
    outs = folder / "callgrind"
    outs.mkdir()
    return _run(contender, command, folder, "count", "--instr-atstart=yes", f"{outs}/%p")


def _run(
    contender: Contender,
    command: Sequence[str],
    folder: Path,
    run: str,
    start: str,
    out: str,
    quiet: bool = False,
) -> foreground.Ended:
    for name in ("learnt", "starts", "told"):
        (folder / name).mkdir(exist_ok=True)
    valgrind = (
        "valgrind",
        "-q",
        "--tool=callgrind",
        "--trace-children=yes",
        start,
        f"--callgrind-out-file={out}",
        f"--log-file={folder}/log.%p",
    )
    return foreground.run(
        contender,
        (*valgrind, *command),
        between=native.instructions(),
        probe={"CAIRN_INSTRUCTIONS": str(folder), "CAIRN_INSTRUCTIONS_RUN": run},
        quiet=quiet,
    )


def counted(contender: Contender, folder: Path) -> PathInstructions:
    """The counts of the run that count() made.

    Raises ContenderFailed if a process called another allocator than the contender, and CairnError
    if valgrind counted nothing.
    """
    accounts = tuple(_account(file) for file in sorted((folder / "told").iterdir()))
    for one in accounts:
        # If the path was cut, only the witness proves which library was called.
        if len(one.owner) < _CUT:
            problem = not_behind(contender, one.program, one.owner, real_path)
            if problem is not None:
                raise ContenderFailed(problem)
    try:
        found = parsed(map(_lines, _counts(folder)), accounts)
    except CutOff:
        raise CairnError(
            f"a file of valgrind is cut off; is there room left in {folder.parent}?"
        ) from None
    if not found.processes:
        raise CairnError(
            f"valgrind counted no instructions under {contender.title}{_last_words(folder)}"
        )
    return found


def _lines(file: Path) -> Iterator[str]:
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


def _counts(folder: Path) -> list[Path]:
    outs = folder / "callgrind"
    return sorted(outs.iterdir()) if outs.is_dir() else []


def _last_words(folder: Path) -> str:
    """The first line of valgrind's own messages, as the rest of a sentence."""
    for log in sorted(folder.glob("log.*")):
        for line in log.read_text("utf-8", "replace").splitlines():
            if text := line.partition("== ")[2].strip() or line.removeprefix("valgrind:").strip():
                return f"; it said: {text}"
    return ""


def _account(file: Path) -> Account:
    content = file.read_bytes().ljust(_ACCOUNT.size, b"\0")[: _ACCOUNT.size]
    allocations, wrong, nested, program, owner = _ACCOUNT.unpack(content)
    return Account(_text(program), _text(owner), allocations, wrong, nested)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")
