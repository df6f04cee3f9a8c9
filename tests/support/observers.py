"""Observers of measurements, for tests."""

from __future__ import annotations

from cairn.model import Sample, Trial
from cairn.run.observer import Progress


class Quiet:
    """An observer that does nothing."""

    def trial_begins(self, _: Trial) -> None:
        """Does nothing."""

    def trial_ended(self, _: Sample) -> None:
        """Does nothing."""

    def told(self, _: str) -> None:
        """Does nothing."""

    def warmed(self, _: int) -> None:
        """Does nothing."""

    def contender_failed(self, name: str, why: str) -> None:
        """Does nothing."""

    def round_ended(self, _: Progress) -> None:
        """Does nothing."""
