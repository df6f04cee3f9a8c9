"""Runs programs with the probe and reads the profile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cairn import native
from cairn.profile.reader import gather, read
from cairn.profile.tally import ProcessProfile, Profile

from .preloadable_path import carried


class Probed:
    """Runs programs with the probe, each with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0

    def start(
        self, *command: object, allocator: Path | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        self.runs += 1
        self.out.mkdir()
        preload = [carried(native.probe()), *([carried(allocator)] if allocator else [])]
        return subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "CAIRN_PROBE": str(self.out),
                "LD_PRELOAD": ":".join(map(str, preload)),
                **environment,
            },
        )

    def __call__(self, *command: object, allocator: Path | None = None, **environment: str) -> str:
        process = self.start(*command, allocator=allocator, **environment)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, f"{command}: {process.returncode}\n{err}"
        assert not err
        return out

    @property
    def out(self) -> Path:
        return self.folder / str(self.runs)

    @property
    def files(self) -> list[Path]:
        return sorted(self.out.glob("*.probe"))

    @property
    def profile(self) -> Profile:
        return gather(self.out)

    @property
    def only(self) -> ProcessProfile:
        (file,) = self.files
        return read(file)
