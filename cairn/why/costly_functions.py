"""The functions in which an allocator's code takes the most CPU time, by the plain runs' samples.

All functions are pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct

from cairn.model import Interval
from cairn.why.parts import Side, interval

COSTLIEST = 5
"""The number of functions that are named for each contender."""


class FunctionCost(Struct, frozen=True):
    """The CPU time of one function of a contender, or of a library that it called."""

    name: str
    """The function's name; "library+offset" if the library has no name for it."""
    library: str
    ns: float
    """The mean over the plain runs."""
    interval: Interval | None
    """The interval of `ns`; None if there are too few rounds."""


def costliest(sides: Sequence[Side]) -> tuple[FunctionCost, ...]:
    """The costliest functions of one contender, the most CPU time first.

    Empty if some plain run has no clock samples. Each interval reaches at least one sample period
    to both sides.
    """
    samples = [side.plain.cpu_samples for side in sides]
    known = [one for one in samples if one is not None]
    if not known or len(known) < len(samples):
        return ()
    by_name: dict[tuple[str, str], list[float]] = {}
    for place, one in enumerate(known):
        for function in one.functions:
            key = function.name, function.library
            times = by_name.setdefault(key, [0.0] * len(known))
            times[place] += function.samples * one.period_ns
    period_ns = max(one.period_ns for one in known)
    found = [
        FunctionCost(*key, statistics.fmean(times), _above_0(interval(times, period_ns)))
        for key, times in by_name.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.ns, one.name))[:COSTLIEST])


def _above_0(ends: Interval | None) -> Interval | None:
    return None if ends is None else Interval(max(0.0, ends.low), ends.high, ends.level)
