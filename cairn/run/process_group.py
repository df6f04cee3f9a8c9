"""Ends the processes of a command of the user, which leads a process group of its own.

A part of such a command may run in the background. Left alone, it would go on beside the next
trial, or after cairn has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

PATIENCE_S = 1.0
"""The time in which a group may end after SIGTERM."""
_LOOK_S = 0.01


def end(leader: subprocess.Popen[bytes]) -> None:
    """Asks the group to end, and kills what is left of it after PATIENCE_S. Reaps the leader."""
    try:
        until = time.monotonic() + PATIENCE_S
        there = _signalled(leader, signal.SIGTERM)
        while there and time.monotonic() < until:
            time.sleep(_LOOK_S)
            leader.poll()  # a leader that was not reaped is still in the group
            there = _signalled(leader, 0)
    finally:
        kill(leader)


def kill(leader: subprocess.Popen[bytes]) -> None:
    """Kills the group at once, also if its leader has ended. Reaps the leader.

    A leader of another user cannot be killed. It is waited for PATIENCE_S, and then left alone.
    """
    _signalled(leader, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        leader.wait(PATIENCE_S)


def _signalled(leader: subprocess.Popen[bytes], number: int) -> bool:
    """Sends a signal to the group. Returns whether a process of it may be signalled."""
    try:
        os.killpg(leader.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        return False
    return True
