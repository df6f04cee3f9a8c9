"""Which lines of the package ran: counted under the name of the test that is running.

Every Python process of a copy imports this module. A test names itself in a file rather than in the environment, because
many tests start processes with an environment of their own.
"""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import coverage

FOLDER = Path(sys.prefix) / "recorded"
"""Where the processes of a copy leave what they ran."""
NAME = FOLDER / "test"
"""Holds the name of the test that runs now; exists only while tests are recorded."""


def started(context: str) -> coverage.Coverage:
    """Counts lines of the package, under a name."""
    import coverage

    package = Path(__file__).resolve().parents[2] / "cairn"
    counting = coverage.Coverage(
        data_file=str(FOLDER / "lines"),
        data_suffix=True,
        source=[str(package)],
        config_file=False,
        context=context,
    )
    counting.start()
    return counting


def follow() -> None:
    """Counts this process where it is one that a recorded test has started."""
    if NAME.exists():
        counting = started(NAME.read_text())

        def save() -> None:
            counting.stop()
            counting.save()

        atexit.register(save)


follow()
