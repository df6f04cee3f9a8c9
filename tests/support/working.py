"""The workloads as tests run them: directly, with any library preloaded."""

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
    """How a workload ended, and what it said."""

    code: int
    line: dict[str, Any]
    err: str


@dataclass(frozen=True)
class Work:
    """The programs of one build."""

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
        """The entry of that name with the arguments that end it soonest."""
        entry = entry_of(name)
        words = workloads.words(entry.smallest, CPUS)
        return self(entry.program, *words, *more, preload=preload, under=under, **env)


def entry_of(name: str) -> workloads.BuiltIn:
    """The catalog's entry of that name."""
    entry = workloads.named(name)
    assert entry is not None
    return entry


def names() -> list[str]:
    """All of the catalog; several may be one program with other arguments."""
    return [entry.name for entry in workloads.load()]
