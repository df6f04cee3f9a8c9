"""The events of a measurement, and the state that it reports after each round."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from cairn.model import Sample, Trial


class Progress(Struct, frozen=True):
    """The state of a run after a round."""

    rounds: int
    """The number of complete rounds of the slowest workload.

    The slowest workload is the one that needs the most further rounds.
    """
    rounds_expected: int
    """The estimated number of complete rounds at which the slowest workload is finished."""
    rounds_range: tuple[int, int] | None
    """The probable range of `rounds_expected`, while the rounds so far are too few for an estimate.
    Later it is None."""
    seconds_range: tuple[float, float] | None
    """The range of the time that all workloads still need. It is None if `rounds_range` is None."""
    seconds_left: float | None
    """The estimated time that all workloads still need."""
    half_width: float | None
    """Half the length of the slowest workload's widest confidence interval.

    None while the rounds are too few for an interval.
    """
    leading: str | None
    """The contender that is furthest ahead of the baseline.

    None while the baseline leads, and in a run of several workloads.
    """


class Observer(Protocol):
    """A receiver of events. It is called between trials, never during one."""

    def trial_begins(self, trial: Trial) -> None:
        """The next trial is about to start."""

    def trial_ended(self, sample: Sample, /) -> None:
        """A trial was measured and stored."""

    def contender_failed(self, name: str, why: str) -> None:
        """The contender `name` failed and takes no further part."""

    def told(self, sentence: str) -> None:
        """`sentence` is a message for the user. The event that it reports changes no result."""

    def warmed(self, size: int) -> None:
        """From now on, `size` bytes of memory are touched before each round."""

    def round_ended(self, progress: Progress) -> None:
        """A round has ended."""
