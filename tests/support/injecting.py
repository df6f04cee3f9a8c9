"""Libraries by paths that LD_PRELOAD can carry: a clone may lie under a path with a blank."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from cairn.allocators.contenders import carries, carryable


@lru_cache(maxsize=16)
def carried(path: Path) -> str:
    """The path itself, or that of a link to it."""
    if carries(str(path)):
        return str(path)
    folder = tempfile.mkdtemp(prefix="cairn-lib-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return carryable([str(path)], folder)[0]
