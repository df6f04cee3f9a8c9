"""Remembers that a signal asked the process to stop.

A signal handler raises KeyboardInterrupt. Python prints such an exception and discards it if the
signal arrives in a destructor or in the callback of a weak reference (gc, importlib). So code that
begins a long step, such as a trial, calls check() first. Only the main thread may call these
functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_received: list[int] = []
"""The numbers of the signals that asked to stop."""

_postponing: list[None] = []
"""While this holds an entry, `on_signal` only remembers the signal."""


def on_signal(number: int, _: object) -> None:
    """Signal handler that acts like ctrl-C."""
    _received.append(number)
    if not _postponing:
        raise KeyboardInterrupt(number)


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Postpones KeyboardInterrupt to the end of the block, for work that must not be cut short.

    Loading numpy is such work: if an exception ends it, the process cannot load numpy again.
    """
    _postponing.append(None)
    try:
        yield
    finally:
        _postponing.pop()
    check()


def check() -> None:
    """Raises KeyboardInterrupt if a signal has asked to stop."""
    if _received:
        raise KeyboardInterrupt
