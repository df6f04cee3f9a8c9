"""Touches memory before each round, so that no run pays for pages that the host provides late.

In a virtual machine, the first write to memory that the host has not backed yet is slow: filling
3 GB took 6.5 s for the first time and 0.22 s afterwards. A machine counts as virtual here if it is
not known whether it is virtual.
"""

from __future__ import annotations

from collections.abc import Iterable

from cairn.doctor import machine
from cairn.errors import CairnError
from cairn.model import Run, Sample
from cairn.run.observer import Observer
from cairn.run.runner import Runner

_FROM_BYTES = 256 << 20
"""Memory is touched by default if the peak of a program reaches this size."""
_SHARE = 1.2
"""The memory to touch by default, as a multiple of the program's peak."""
_LIMIT = 0.7
"""The largest share of the available memory to touch by default."""


class WarmMemory:
    """The memory that a run touches before each round."""

    def __init__(self, run: Run, runner: Runner, observer: Observer) -> None:
        self._is_chosen = run.settings.warm_memory is None
        """Whether Cairn chooses the size. It is False if --warm-memory gives the size."""
        self._may_be_virtual = run.host.virtual is not False
        self._bytes = run.settings.warm_memory or 0
        self._runner = runner
        self._observer = observer

    def decide(self, samples: Iterable[Sample]) -> None:
        """Decides how much memory to touch, after these trials, and tells the observer."""
        if self._is_chosen and self._may_be_virtual:
            well = (sample for sample in samples if sample.failure is None)
            peak = max((sample.memory.peak_bytes or 0 for sample in well), default=0)
            self._bytes = int(peak * _SHARE) if peak >= _FROM_BYTES else 0
        if size := self._size():
            self._observer.warmed(size)

    def touch(self) -> None:
        """Touches the memory.

        If that fails, this round and all later ones run without touched memory. If the user gave
        the size, a failure raises CairnError instead.
        """
        size = self._size()
        if not size:
            return
        try:
            self._runner.touch(size)
        except CairnError as error:
            if not self._is_chosen:
                raise CairnError(
                    f"{error}; give --warm-memory a smaller size, or --warm-memory off"
                ) from error
            self._bytes = 0
            self._observer.told(f"{error}; the rounds go on without touched memory")

    def _size(self) -> int:
        """The bytes to touch now. The available memory may change from round to round."""
        if not self._is_chosen or not self._bytes:
            return self._bytes
        return min(self._bytes, int((machine.available_memory() or 0) * _LIMIT))
