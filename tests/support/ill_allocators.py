"""Compiles the ill allocators that tests preload."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.places import ILL, PROGRAMS

FLAGS = ["-O2", "-shared", "-fPIC", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]


def built(illness: str, folder: Path) -> Path:
    """Compiles the allocator of this name into `folder`, and returns the path of its library."""
    library = folder / f"{illness}.so"
    place = ILL if (ILL / f"{illness}.c").exists() else PROGRAMS
    source = place / f"{illness}.c"
    subprocess.run(["gcc", *FLAGS, f"-I{ILL}", source, "-o", library, "-ldl"], check=True)
    return library
