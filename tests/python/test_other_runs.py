"""Tests of the search for another cairn that measures on this machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn import native
from cairn.doctor import machine


@pytest.fixture
def writing() -> Iterator[int]:
    """A descriptor for the reports of launchers."""
    reader, writer = os.pipe()
    yield writer
    os.close(reader)
    os.close(writer)


SLEEP = ["--", "sleep", "60"]
LAUNCHED = {
    "run": (["--memory", "none", "--endings", "FILE", *SLEEP], False),
    "a program with such words": (
        ["--memory", "none", "--", "env", "-u", "--memory-series", "sleep", "60"], False,
    ),
    "compare": (["--memory-series", "FILE", "--endings", "FILE", *SLEEP], True),
    "compare --memory none": (["--memory", "none", "--memory-series", "FILE", *SLEEP], True),
    "profile": (["--memory", "none", "--cpu-samples", "FILE", *SLEEP], True),
}  # fmt: skip
"""By the command of cairn: the words of its launcher, and whether it measures."""


@pytest.mark.parametrize("command", LAUNCHED)
def test_only_a_launcher_that_measures_is_another_run(
    command: str, writing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that 'cairn run' had started once made all other runs warn for weeks."""
    words, measures = LAUNCHED[command]
    file = tmp_path / "file"
    file.touch()
    words = [str(file) if word == "FILE" else word for word in words]
    process = subprocess.Popen(
        [native.launcher(), "--report-fd", str(writing), *words], pass_fds=(writing,)
    )
    monkeypatch.setattr("os.listdir", lambda _: [str(process.pid), "self"])
    try:
        comm, line = (Path(f"/proc/{process.pid}/{name}") for name in ("comm", "cmdline"))
        # While a process executes a program, it has the new name and no words.
        while comm.read_text() != machine.LAUNCHER + "\n" or not line.read_bytes():
            assert process.poll() is None
            time.sleep(0.01)
        assert machine.other_runs() == measures
        process.terminate()
        # Nobody has waited for the process yet, so it still has its name.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert comm.read_text() == machine.LAUNCHER + "\n"
        assert machine.other_runs() == 0
    finally:
        process.terminate()
        process.wait()
