"""Tests of CPython. With PYTHONMALLOC=malloc, all its objects come from malloc."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from .conftest import INPUTS, Stage


def test_objects_threads_and_processes(both: Callable[..., str]) -> None:
    python = os.path.realpath(sys.executable)

    def session(stage: Stage) -> str:
        # Python 3.12 warns of forks in a process with threads.
        forks = "ignore:This process:DeprecationWarning"
        said = stage.run(
            python, "-W", forks, INPUTS / "work.py", PYTHONMALLOC="malloc", PYTHONHASHSEED="0"
        )
        assert stage.injected is None or stage.reached.total() >= 6, (
            "six processes: python3, two of a pool and its helper, and two subprocesses"
        )
        return said

    assert both(session, os.path.basename(python)).count("\n") == 7
