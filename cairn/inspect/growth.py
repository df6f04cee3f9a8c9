"""Measures how fast the private memory of a process grows.

The private memory is the resident pages without files, and those that were swapped out. It is read
at equal distances of time. `soak.trend` gives the slope of the growth and a 95 % interval for it.
This interval allows for readings that depend on one another.
"""

from __future__ import annotations

import time

from cairn import units
from cairn.errors import CairnError
from cairn.inspect.facts import GrowthOf
from cairn.inspect.process import ProcessEnded, Target, stat_of, status_of
from cairn.soak import trend

READINGS = 2 * trend.BINS
"""The number of readings in one measurement."""
LEAST_S = 2.0
"""The shortest measurement. In a shorter one, pages that a program touches for the first time look
like growth."""
_PAUSE_LEAST_S = 0.01


class EndedWhileWatched(ProcessEnded):
    """The process ended while its growth was measured."""

    def __init__(self, pid: int, growth: GrowthOf) -> None:
        super().__init__(pid)
        self.growth = growth
        """The growth until then."""


def private_bytes(target: Target) -> int:
    """The private memory in bytes: resident pages without files, and swapped pages."""
    status = status_of(target)
    try:
        return sum(int(status[key].split()[0]) << 10 for key in ("RssAnon", "VmSwap"))
    except (KeyError, ValueError):
        target.check()
        if "VmRSS" not in status:
            # A process that ends loses its memory before it has ended.
            raise ProcessEnded(target.pid) from None
        raise CairnError(
            f"the kernel does not show how much private memory process {target.pid} has; that "
            "needs Linux 4.5 or later, with RssAnon and VmSwap in /proc/PID/status"
        ) from None


def measure(target: Target, seconds: float) -> GrowthOf:
    """Watches the process for `seconds`, and measures the growth of its private memory.

    Ctrl-C ends only the watching. Raises EndedWhileWatched if the process ends.
    """
    pause_s = max(_PAUSE_LEAST_S, seconds / READINGS)
    begin_s = time.monotonic()
    faults = _faults(target)
    at_s, values = [0.0], [private_bytes(target)]
    try:
        while at_s[-1] < seconds:
            now_s = time.monotonic() - begin_s
            time.sleep(max(0.0, min(pause_s * len(at_s), seconds) - now_s))
            target.check()
            now = private_bytes(target)
            at_s.append(time.monotonic() - begin_s)
            values.append(now)
    except ProcessEnded:
        raise EndedWhileWatched(target.pid, growth_of(at_s, values)) from None
    except KeyboardInterrupt:
        at_s = at_s[: len(values)]
    per_s = (_faults(target) - faults) / at_s[-1] if at_s[-1] else None
    return growth_of(at_s, values, per_s)


def growth_of(at_s: list[float], values: list[int], faults_per_s: float | None = None) -> GrowthOf:
    """The growth by these readings."""
    length_s = at_s[-1] - at_s[0]
    plain = GrowthOf(length_s, len(at_s), values[0], values[-1], None, None, None)
    if length_s < LEAST_S or len(at_s) < trend.BINS:
        return GrowthOf(
            length_s, len(at_s), values[0], values[-1], None, None, None,
            f"Growth is not known: {units.counted(len(at_s), 'reading')} in {length_s:.1f} s "
            f"{'is' if len(at_s) == 1 else 'are'} too few, and {trend.BINS} readings in "
            f"{LEAST_S:g} s are needed.",
            faults_per_s,
        )  # fmt: skip
    found = trend.growth(trend.part(at_s, values, at_s[0], at_s[-1]))
    return GrowthOf(
        plain.seconds, plain.readings, plain.begin, plain.end, found.per_s, found.low, found.high,
        "", faults_per_s,
    )  # fmt: skip


def _faults(target: Target) -> int:
    return int(stat_of(target)[7])
