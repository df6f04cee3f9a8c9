"""Runs a program under callgrind, and counts the instructions of its allocator by path.

The contract between the runs and with the library: src/instructions/history.h.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from cairn import native
from cairn.allocators.contenders import with_links
from cairn.errors import CairnError, ContenderFailed
from cairn.model import Contender
from cairn.profile.callgrind_files import CutOff
from cairn.profile.path_instructions import Account, PathInstructions, parsed
from cairn.run import foreground
from cairn.run.proof import not_behind
from cairn.run.runner import real_path
from cairn.run.valgrind import callgrind, first_message, lines

FOLDERS = ("learnt", "starts", "told")
"""The folders in which the library keeps its files, within the folder that its variables name."""
_ACCOUNT = struct.Struct("=QQQ256s256s")
"""struct history_account of src/instructions/history.h."""
_CUT = 255
"""The most bytes of a path in the account. A path of this length may have been cut."""


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
    for name in FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    return foreground.run(
        with_links(contender, folder),
        (*callgrind(out, f"{folder}/log.%p", start), *command),
        between=native.instructions(),
        probe=variables(folder, run),
        quiet=quiet,
    )


def counted(contender: Contender, folder: Path) -> PathInstructions:
    """The counts of the run that count() made.

    Raises ContenderFailed if a process called another allocator than the contender, and CairnError
    if valgrind counted nothing.
    """
    told = accounts(folder)
    refuse_other_owner(contender, told)
    try:
        found = parsed(map(lines, _counts(folder)), told)
    except CutOff:
        raise CairnError(
            f"a file of valgrind is cut off; is there room left in {folder.parent}?"
        ) from None
    if not found.processes:
        said = first_message(folder, "log.*")
        raise CairnError(
            f"valgrind counted no instructions under {contender.title}"
            + (f"; it said: {said}" if said else "")
        )
    return found


def variables(folder: Path, run: str) -> dict[str, str]:
    """The environment of the library. run: "learn" or "count"."""
    return {"CAIRN_INSTRUCTIONS": str(folder), "CAIRN_INSTRUCTIONS_RUN": run}


def accounts(folder: Path) -> tuple[Account, ...]:
    """The accounts of all processes of a run that counted.

    A process that finds no room on the disk leaves an empty file, and has no account.
    """
    files = sorted((folder / "told").iterdir())
    return tuple(_account(file) for file in files if file.stat().st_size)


def refuse_other_owner(contender: Contender, told: Sequence[Account]) -> None:
    """Raises ContenderFailed if a process called another allocator than the contender."""
    for one in told:
        # If the path was cut, only the witness proves which library was called.
        if len(one.owner) < _CUT:
            problem = not_behind(contender, one.program, one.owner, real_path)
            if problem is not None:
                raise ContenderFailed(problem)


def _counts(folder: Path) -> list[Path]:
    outs = folder / "callgrind"
    return sorted(outs.iterdir()) if outs.is_dir() else []


def _account(file: Path) -> Account:
    content = file.read_bytes().ljust(_ACCOUNT.size, b"\0")[: _ACCOUNT.size]
    allocations, wrong, nested, program, owner = _ACCOUNT.unpack(content)
    return Account(_text(program), _text(owner), allocations, wrong, nested)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")
