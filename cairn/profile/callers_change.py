"""Compares the functions that allocate in two profiles. Reads no file.

Both profiles are samples, so a difference has an interval. Its ends follow from those of the two
numbers (Zou and Donner 2008): each number has an interval of its own shape, and the two samples are
independent. The intervals of all functions hold together in 95 of 100 cases (Bonferroni), so that
no function is named by chance among many.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from statistics import NormalDist

from msgspec import Struct

from cairn.profile.call_stacks import StacksFile
from cairn.profile.callers import Frame, Stack, Sum, Sums, functions, total

PARTS = (("allocated", "bytes"), ("allocated", "blocks"), ("live", "bytes"), ("live", "blocks"))
"""The compared numbers of a function: an attribute of Sums, and its unit."""
_LEVEL = 0.95


class SumChange(Struct, frozen=True):
    """One number in both profiles.

    `low` and `high` are the ends of the interval of the difference.
    """

    before: float
    after: float
    low: float
    high: float

    @property
    def value(self) -> float:
        """The difference."""
        return self.after - self.before

    @property
    def is_shown(self) -> bool:
        """Whether the sign of the difference is known."""
        return self.low > 0 or self.high < 0


class FunctionChange(Struct, frozen=True):
    """The changes of a function, in the order of PARTS."""

    frame: Frame
    """`frame.library` is the name of the file without its folder, or "" for the program itself."""
    changes: tuple[SumChange, ...]

    @property
    def is_shown(self) -> bool:
        """Whether any of its changes is shown."""
        return any(one.is_shown for one in self.changes)


class CallersChange(Struct, frozen=True):
    """The changes of all functions, and those of the sums over all functions.

    Functions with a shown change come first, and among them those with the largest difference.
    """

    functions: tuple[FunctionChange, ...]
    whole: FunctionChange


Profiled = tuple[Sequence[StacksFile], Sequence[Stack]]


def difference(before: Profiled, after: Profiled) -> CallersChange:
    """Compares two profiles, each given by its files and its stacks."""
    one, other = _by_name(before), _by_name(after)
    names = sorted({*one, *other})
    z = NormalDist().inv_cdf(1 - (1 - _LEVEL) / 2 / (len(PARTS) * (len(names) + 1)))
    none, nothing = _unseen(before[0]), _unseen(after[0])

    def row(frame: Frame, old: Sums, new: Sums) -> FunctionChange:
        changes = (_change(getattr(old, part), getattr(new, part), unit, z) for part, unit in PARTS)
        return FunctionChange(frame, tuple(changes))

    rows = [row(name, one.get(name, none), other.get(name, nothing)) for name in names]
    rows.sort(key=lambda row: (not row.is_shown, -abs(row.changes[0].value), row.frame))
    return CallersChange(tuple(rows), row(Frame("", ""), total(before[1]), total(after[1])))


def _by_name(profiled: Profiled) -> dict[Frame, Sums]:
    """The sums by function. Folders are left out, because another build lies in another folder."""
    files, stacks = profiled
    programs = {file.program for file in files}
    found: dict[Frame, Sums] = {}
    for frame, sums in functions(stacks):
        library = "" if frame.library in programs else os.path.basename(frame.library)
        found.setdefault(Frame(frame.function, library), Sums()).add(sums)
    return found


def _unseen(files: Sequence[StacksFile]) -> Sums:
    """The sums of a function of which no allocation was recorded."""
    heaviest = max((float(file.every) for file in files if file.way == "sampled"), default=0.0)
    nothing = Sum(heaviest=heaviest)
    return Sums(allocated=nothing, live=nothing)


def _change(old: Sum, new: Sum, unit: str, z: float) -> SumChange:
    before, after = getattr(old, unit), getattr(new, unit)
    (before_low, before_high), (after_low, after_high) = old.ends(unit, z), new.ends(unit, z)
    value = after - before
    low = value - math.hypot(after - after_low, before_high - before)
    high = value + math.hypot(after_high - after, before - before_low)
    return SumChange(before, after, low, high)
