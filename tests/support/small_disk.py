"""Runs a command with a small file system of its own for temporary files."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_NOT_MOUNTED = 77


def run_on_small_disk(
    command: Sequence[object], disk: Path, size: str, environment: Mapping[str, str]
) -> None:
    """Runs the command, which has to end with 0, while `disk` has only `size` bytes.

    `size` is written as for mount(8): 16m. The folder `disk` is made, and is TMPDIR of the command.
    Mounting needs root. The test is skipped if nothing can be mounted.
    """
    disk.mkdir()
    mounting = f'mount -t tmpfs -o size={size} none {disk} || exit {_NOT_MOUNTED}; exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounting, "sh", *map(str, command)],
        env={**environment, "TMPDIR": str(disk)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode == _NOT_MOUNTED:
        pytest.skip("no file system can be mounted here")
    assert done.returncode == 0, done.stderr
