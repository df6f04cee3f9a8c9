"""Makes the spare memory, in which the probe records processes that can write no file.

Contract: src/record/spare.h. `profile/spare.py` reads the memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterator

from cairn.profile.spare import WINDOW_BYTES, Spare

_WINDOWS_MOST = 1 << 17
"""The most windows. The process id of a program selects the window that the program writes to. With
this number of windows, the programs of a run rarely share one. A window that is never written takes
no memory."""
_HIGH = 900
"""The descriptor gets this number or a higher one, because programs seldom use such numbers."""


@contextlib.contextmanager
def spare_memory() -> Iterator[Spare | None]:
    """Yields the spare memory of one run. Child processes inherit its descriptor.

    Yields None if the kernel refuses the memory. Processes that can write no file are then missing.
    """
    try:
        descriptor = _made()
    except OSError:
        yield None
        return
    try:
        yield Spare(descriptor)
    finally:
        os.close(descriptor)


def _made() -> int:
    """Makes the memory and returns its descriptor. No process can change its size later."""
    low = os.memfd_create("cairn-spare", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(low, _windows() * WINDOW_BYTES)
        fcntl.fcntl(low, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        unlimited = descriptors == resource.RLIM_INFINITY
        return fcntl.fcntl(low, fcntl.F_DUPFD, _HIGH if unlimited else min(_HIGH, descriptors - 8))
    finally:
        os.close(low)


def _windows() -> int:
    """The number of windows of the spare memory, which the limit on file sizes may reduce."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return _WINDOWS_MOST
    return max(0, min(_WINDOWS_MOST, limit // WINDOW_BYTES))
