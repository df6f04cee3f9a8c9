"""Repeats tests whose measurements other processes or the host of this machine may disturb."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def one_right_try_of(tries: int) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Makes a test fail only if all its tries fail.

    A disturbance fails single tries. A fault of the method fails all of them.
    """

    def repeated(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            for left in reversed(range(tries)):
                try:
                    test(*args, **kwargs)
                except AssertionError:
                    if left == 0:
                        raise
                else:
                    return

        return run

    return repeated
