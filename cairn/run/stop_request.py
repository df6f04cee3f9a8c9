"""Remembers that a signal asked the process to stop.

A signal handler raises KeyboardInterrupt. Python prints such an exception and discards it if the
signal arrives in a destructor or in the callback of a weak reference (gc, importlib). So code that
begins a long step, such as a trial, calls check() first. Only the main thread may call these
functions.
"""

from __future__ import annotations

from typing import NoReturn

_received: list[int] = []
"""The numbers of the signals that asked to stop."""


def on_signal(number: int, _: object) -> NoReturn:
    """Signal handler that acts like ctrl-C."""
    _received.append(number)
    raise KeyboardInterrupt(number)


def check() -> None:
    """Raises KeyboardInterrupt if a signal has asked to stop."""
    if _received:
        raise KeyboardInterrupt
