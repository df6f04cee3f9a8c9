"""Checks a line for /bin/sh without running it."""

from __future__ import annotations

import re
import subprocess

_TIMEOUT_S = 5
_PLACE = re.compile(r"^\S*sh: (?:-c: )?(?:line )?\d+: (?:Syntax error: )?", re.IGNORECASE)
"""What a shell writes before its reason: "/bin/sh: 1: Syntax error: "."""


def mistake_in(line: str) -> str | None:
    """Returns why the shell cannot read the line, in the shell's words; None if it can.

    The shell parses the line and runs nothing (`sh -n`). Without /bin/sh nothing is checked.
    """
    try:
        done = subprocess.run(
            ["/bin/sh", "-n", "-c", line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"LC_ALL": "C"},
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return _PLACE.sub("", said[0]) if said else "its syntax is wrong"
