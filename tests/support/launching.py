"""Starts the launcher and reads its report, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
METHODS = ("cgroup", "sampled")


@dataclass(frozen=True)
class Outcome:
    """The exit code, the report and the output of cairn-launch."""

    code: int
    report: dict[str, Any] | None
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        assert self.report is not None
        return self.report

    @property
    def memory(self) -> dict[str, Any]:
        return dict(self.told["memory"])


class Launch:
    """Starts cairn-launch with a pipe into which it writes its report."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, *arguments: str, **kwargs: Any) -> tuple[subprocess.Popen[str], int]:
        """Starts the launcher. Its options are the arguments up to "--".

        Returns the process and the file descriptor of its report.
        """
        reader, writer = os.pipe()
        kwargs = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
        } | kwargs
        process = subprocess.Popen(
            [str(self.path), "--report-fd", str(writer), *arguments],
            pass_fds=(writer,),
            text=True,
            **kwargs,
        )
        os.close(writer)
        return process, reader

    def finish(self, process: subprocess.Popen[str], reader: int, timeout: float = 60) -> Outcome:
        out, err = process.communicate(timeout=timeout)
        with open(reader, "rb") as file:
            line = file.read()
        assert line.count(b"\n") == (1 if line else 0)
        return Outcome(process.returncode, json.loads(line) if line else None, out or "", err or "")

    def __call__(self, *arguments: str, **kwargs: Any) -> Outcome:
        return self.finish(*self.start(*arguments, **kwargs))


def is_sanitized(path: Path) -> bool:
    return b"__asan_init" in path.read_bytes()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def cgroups_of(pid: int) -> list[str]:
    """Returns the cgroups that the launcher with this process id made and did not remove."""
    return [str(path) for path in Path("/sys/fs/cgroup").rglob(f"cairn-{pid}-*")]
