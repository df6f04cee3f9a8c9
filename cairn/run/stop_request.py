"""Remembers that a signal asked the process to stop.

A signal handler raises KeyboardInterrupt. Python prints such an exception and discards it if the
signal arrives in a destructor or in the callback of a weak reference (gc, importlib). So
on_discarded(), as Python's hook for such exceptions, sends the signal again. Code that begins a
long step, such as a trial, also calls check() first. Only the main thread may call these functions.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

AGAIN_S = 0.01
"""on_discarded() sends the signal again after this time, in seconds."""

_received: list[int] = []
"""The numbers of the signals that asked to stop."""

_postponing: list[None] = []
"""While this holds an entry, `on_signal` only remembers the signal."""


def on_signal(number: int, _: object) -> None:
    """Signal handler that acts like ctrl-C."""
    _received.append(number)
    if not _postponing:
        raise KeyboardInterrupt(number)


def on_discarded(discarded: sys.UnraisableHookArgs) -> None:
    """Sends a signal again whose KeyboardInterrupt Python discards. It is for sys.unraisablehook.

    The signal must arrive after the destructor or callback has returned, so it is sent later. It is
    sent to the main thread, because only there does it interrupt a wait.
    """
    if not isinstance(discarded.exc_value, KeyboardInterrupt) or not _received:
        sys.__unraisablehook__(discarded)
        return
    main_thread = threading.main_thread().ident
    threading.Timer(AGAIN_S, signal.pthread_kill, (main_thread, _received[-1])).start()


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
