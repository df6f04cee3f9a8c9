"""Decides what to leave out after a failed `prepare` or `conclude` command of a plan.

The trial is tried once more. If it fails again, the rest of the program's round is left out, and
after several such rounds the program. The commands run without a preloaded allocator, so no
contender is to blame for their failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from cairn.errors import UsageError
from cairn.model import Trial

_PAUSE_S = 1.0
"""The pause before a failed trial is tried once more. A port may still be in use, for example."""
_ROUNDS_MOST = 2
"""The number of rounds of a program that may be left out. After one more failure, the program is
not measured any further. The warm-up counts as one round, however many of its trials fail."""

T = TypeVar("T")


class Preparations:
    """The rounds of a run in which a `prepare` or `conclude` command failed."""

    def __init__(self, *, tolerant: bool, left_out: Iterable[tuple[int, int]] = ()) -> None:
        """Begins with the rounds that an interrupted run has left out."""
        self._tolerant = tolerant
        """Whether the run goes on after a failure."""
        self._left_out = set(left_out)
        """(workload, round) pairs in which a trial failed twice."""

    @property
    def left_out(self) -> tuple[tuple[int, int], ...]:
        """(workload, round) pairs that are left out, or of which a part is left out."""
        return tuple(sorted(self._left_out))

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
        """Whether the trial belongs to a round whose remaining trials are left out.

        The trials of the warm-up belong to no round.
        """
        return trial.round > 0 and (trial.workload, trial.round) in self._left_out

    def may_go_on(self, trial: Trial, *, succeeded: bool) -> bool:
        """Notes a trial that failed twice. Returns whether its program may go on.

        If so, the rest of the program's round is left out. A later round is measured in its place.

        succeeded: whether a trial of the program has succeeded before.
        """
        self._left_out.add((trial.workload, trial.round))
        rounds = sum(workload == trial.workload for workload, _ in self._left_out)
        return succeeded and rounds <= _ROUNDS_MOST
