"""Runs the workloads directly, with any library preloaded."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.run import workloads

CPUS = 2


@dataclass(frozen=True)
class Outcome:
    """The exit code and output of a workload."""

    code: int
    line: dict[str, Any]
    err: str


@dataclass(frozen=True)
class Work:
    """The workload programs of one build."""

    folder: Path

    def __call__(
        self,
        program: str,
        *arguments: str,
        preload: str = "",
        under: tuple[str, ...] = (),
        **env: str,
    ) -> Outcome:
        environment = {**os.environ, **env} | ({"LD_PRELOAD": preload} if preload else {})
        command = [*under, str(self.folder / program), *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        return Outcome(
            done.returncode,
            json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {},
            done.stderr,
        )

    def smallest(
        self, name: str, *more: str, preload: str = "", under: tuple[str, ...] = (), **env: str
    ) -> Outcome:
        """Runs the catalog's entry with this name, with the arguments that make it end soonest."""
        entry = entry_of(name)
        words = workloads.words(entry.smallest, CPUS)
        return self(entry.program, *words, *more, preload=preload, under=under, **env)


def entry_of(name: str) -> workloads.BuiltIn:
    """Returns the catalog's entry with this name."""
    entry = workloads.named(name)
    assert entry is not None
    return entry


def names() -> list[str]:
    """Returns all names of the catalog. Several names may run one program with other arguments."""
    return [entry.name for entry in workloads.load()]
