"""Runs the user's commands around the trials: --setup, --prepare, --conclude and --cleanup.

They run under /bin/sh, without an allocator, and are not measured.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from cairn.errors import UsageError
from cairn.model import signal_name
from cairn.run import outputs, process_group


def run(option: str, command: str, folder: str, errors: Path, limit_s: float | None) -> None:
    """Runs a command. Raises UsageError if it fails, or if it does not end within `limit_s`.

    option: the name of the command in messages. errors: a file for its standard error.
    """
    # A file is used because a background process of the command would keep a pipe open.
    with errors.open("wb") as file:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=file, process_group=0,
        )  # fmt: skip
        try:
            status = process.wait(limit_s)
        except BaseException as error:
            process_group.end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise UsageError(f"the {option} command did not end within {limit_s:g} s") from None
            raise
    if status != 0:
        tail = outputs.last_line(outputs.tail(errors))
        raise UsageError(
            f"the {option} command failed with {ending(status)}" + (f": {tail}" if tail else "")
        )


def ending(status: int) -> str:
    """Describes how a process ended. `status` is Python's return code: negative for a signal."""
    if status >= 0:
        return f"exit code {status}"
    name = signal_name(-status)
    return f"killed by signal {-status}" + (f" ({name})" if name.startswith("SIG") else "")
