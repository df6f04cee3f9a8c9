"""The memory of a process tree over time, as the launcher wrote it, and the numbers made from it.

The launcher keeps the memory at some moments, and its integral since the first of them. The
integral contains all readings, so the mean between two moments is exact; between moments it is
interpolated. All times are those of `time.monotonic_ns`, in nanoseconds.
"""

from __future__ import annotations

import bisect
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cairn.memory import Memory
from cairn.run.server import Session

_NS_PER_US = 1000
_BYTES_PER_KIB = 1024


class MemorySeries(Struct, frozen=True):
    """The memory of one trial at some moments."""

    at_ns: tuple[int, ...]
    """The times of the moments, in ascending order."""
    bytes: tuple[int, ...]
    """The memory at each moment."""
    byte_ns: tuple[int, ...]
    """For each moment: the integral of the memory since the first moment, in bytes × ns."""

    def mean(self, begin_ns: int | None = None, end_ns: int | None = None) -> int | None:
        """The mean memory between two times in bytes; None if it is not known.

        Without these times it is the mean from the first to the last moment.
        """
        if len(self.at_ns) < 2:
            return None
        begin = self.at_ns[0] if begin_ns is None else max(begin_ns, self.at_ns[0])
        end = self.at_ns[-1] if end_ns is None else min(end_ns, self.at_ns[-1])
        if end <= begin:
            return None
        total = self._between(self.byte_ns, end) - self._between(self.byte_ns, begin)
        return round(total / (end - begin))

    def at(self, time_ns: int) -> int | None:
        """The memory at this time in bytes; None before the first and after the last moment."""
        if not self.at_ns or not self.at_ns[0] <= time_ns <= self.at_ns[-1]:
            return None
        return round(self._between(self.bytes, time_ns))

    def growth(self, begin_ns: int | None = None, end_ns: int | None = None) -> int | None:
        """The memory at `end_ns` minus the memory halfway between the two times.

        It may be negative. The growth in the first half says little, because a program fills its
        memory at first.
        """
        if len(self.at_ns) < 2:
            return None
        begin = self.at_ns[0] if begin_ns is None else begin_ns
        end = self.at_ns[-1] if end_ns is None else end_ns
        middle, last = self.at((begin + end) // 2), self.at(end)
        return None if middle is None or last is None or end <= begin else last - middle

    def _between(self, numbers: tuple[int, ...], time_ns: int) -> float:
        """Interpolates `bytes` or `byte_ns` at a time between two moments."""
        right = min(max(1, bisect.bisect_left(self.at_ns, time_ns)), len(self.at_ns) - 1)
        left = right - 1
        passed = self.at_ns[right] - self.at_ns[left]
        share = (time_ns - self.at_ns[left]) / passed if passed else 1.0
        return numbers[left] + share * (numbers[right] - numbers[left])


def added(memory: Memory, path: Path, session: Session | None) -> Memory:
    """Adds the mean, the growth and the idle memory, which it computes from the launcher's file.

    For a server, mean and growth cover only the time of its load.
    """
    if memory.peak_bytes is None or (session is not None and session.loaded is None):
        return memory
    series = read(path)
    begin = end = idle = None
    if session is not None and session.loaded is not None:
        begin = session.loaded.began_ns
        end = begin + session.loaded.wall_ns
        idle = series.at(session.idle_ns) if session.idle_ns is not None else None
    mean = series.mean(begin, end)
    return replace(
        memory,
        # The stored peak of a built-in workload may be capped, and no mean may be above it.
        mean_bytes=None if mean is None else min(mean, memory.peak_bytes),
        growth_bytes=series.growth(begin, end),
        idle_bytes=idle,
    )


def read(path: Path) -> MemorySeries:
    """Reads the launcher's file. The series has no moments if the file is missing or damaged."""
    try:
        rows = [[int(word) for word in line.split()] for line in path.read_text().splitlines()]
        moments = [(at, held, integral) for at, held, integral in rows]
    except (OSError, ValueError):
        moments = []
    return MemorySeries(
        at_ns=tuple(at * _NS_PER_US for at, _, _ in moments),
        bytes=tuple(held for _, held, _ in moments),
        byte_ns=tuple(integral * _BYTES_PER_KIB * _NS_PER_US for _, _, integral in moments),
    )
