"""Starts programs whose memory and CPU time are known, for tests of 'cairn inspect'."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Started:
    """A running program."""

    pid: int
    told: int
    """The number in the first line of its output."""
    process: subprocess.Popen[bytes]


@contextmanager
def started(*command: object, **environment: str) -> Iterator[Started]:
    """Starts a program and waits for its first line. Kills the program when the context ends."""
    with subprocess.Popen(
        [str(word) for word in command],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, command
            yield Started(process.pid, int(line), process)
        finally:
            process.kill()
