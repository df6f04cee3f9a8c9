"""Decides what to leave out after a failed `prepare` or `conclude` command of a plan.

The trial is tried once more. If it fails again, the rest of the program's round is left out, and
after several such rounds the program. The commands run without a preloaded allocator, so no
contender is to blame for their failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from cairn.errors import UsageError
from cairn.model import Trial

_PAUSE_S = 1.0
"""The pause before a failed trial is tried once more. A port may still be in use, for example."""
_ROUNDS_MOST = 2
"""The number of rounds of a program that may be left out. After one more failure, the program is
not measured any further."""

T = TypeVar("T")


class Preparations:
    """The trials of a run whose `prepare` or `conclude` command failed."""

    def __init__(self, *, tolerant: bool) -> None:
        self._tolerant = tolerant
        """Whether the run goes on after a failure."""
        self._failures: dict[int, int] = {}
        """By workload: the number of trials that failed twice."""
        self._shortened: set[tuple[int, int]] = set()
        """(workload, round) pairs whose remaining trials are left out."""

    def tried(self, run: Callable[[], T]) -> T:
        """Runs a trial, and runs it once more if it could not be prepared or concluded."""
        try:
            return run()
        except UsageError:
            if not self._tolerant:
                raise
        time.sleep(_PAUSE_S)
        return run()

    def leaves_out(self, trial: Trial) -> bool:
        """Whether the trial belongs to a round whose remaining trials are left out."""
        return (trial.workload, trial.round) in self._shortened

    def may_go_on(self, trial: Trial, *, succeeded: bool) -> bool:
        """Notes a trial that failed twice. Returns whether its program may go on.

        If so, the rest of the program's round is left out. A later round is measured in its place.

        succeeded: whether a trial of the program has succeeded before.
        """
        failures = self._failures.get(trial.workload, 0) + 1
        self._failures[trial.workload] = failures
        if not succeeded or failures > _ROUNDS_MOST:
            return False
        if trial.round:  # the trials of the warm-up belong to no round
            self._shortened.add((trial.workload, trial.round))
        return True
