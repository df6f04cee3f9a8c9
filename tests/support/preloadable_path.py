"""Makes libraries available to LD_PRELOAD even if the clone's path contains a space."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from cairn.allocators.contenders import carries, carryable


@lru_cache(maxsize=16)
def carried(path: Path) -> str:
    """Returns the path. If it contains a space or a colon, returns a link to it without these."""
    if carries(str(path)):
        return str(path)
    folder = tempfile.mkdtemp(prefix="cairn-lib-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return carryable([str(path)], folder)[0]
