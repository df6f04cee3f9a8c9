"""Records which lines of the package run, by the name of the test that runs them.

Every Python process of a copy imports this module. It reads the name of the test from a file and
not from the environment, because many tests start processes with a new environment.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import coverage

FOLDER = Path(sys.prefix) / "recorded"
"""The folder in which the processes of a copy save the lines that they ran."""
NAME = FOLDER / "test"
"""The file with the name of the current test. It exists only while tests are recorded."""


def started() -> coverage.Coverage:
    """Starts to record lines of the package. `switch_context` then names the test."""
    import coverage

    package = Path(__file__).resolve().parents[2] / "cairn"
    counting = coverage.Coverage(
        data_file=str(FOLDER / "lines"),
        data_suffix=True,
        source=[str(package)],
        config_file=False,
    )
    counting.start()
    return counting


def follow() -> None:
    """Records the lines of this process, if a recorded test has started it.

    A child that the process forks records its lines for the test that runs at that time: the
    process of support/prepared.py forks for the calls of many tests.
    """
    if NAME.exists():
        counting = started()
        counting.switch_context(NAME.read_text())

        def begin_child() -> None:
            if NAME.exists():
                counting.switch_context(NAME.read_text())

        os.register_at_fork(after_in_child=begin_child)

        def save() -> None:
            counting.stop()
            counting.save()

        atexit.register(save)


follow()
