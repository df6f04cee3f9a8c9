"""The parts of a gap between two contenders, and how they are computed from the rounds of a run.

`gap` explains what each part is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from cairn import units
from cairn.compare import stats
from cairn.model import Interval, ProbeSummary, Sample

LEVEL = 0.95
OWN, KERNEL, FAULTS = "allocator code", "allocator system calls", "page faults"
INTERRUPTS = "interrupts"
CALLING, PROGRAM = "program system calls and exit", "program code"
UNEXPLAINED, WAITING = "unexplained", "waiting in the allocator"
LIVE, LIVE_ESTIMATED = "live blocks", "live blocks (estimate)"
SLACK, REST = "size rounding", "free memory and metadata"
COPIED, OTHERS = "copied after a fork", "other processes, shared memory"
REST_AND_SLACK = "free memory, metadata and rounding"
"""Replaces REST if size rounding was not measured."""
SPARSE = "free memory, metadata and unused parts of live blocks"
SPARSE_AND_SLACK = "free memory, metadata, rounding and unused parts of live blocks"
"""Replace REST and REST_AND_SLACK if not all live blocks were resident under each contender."""
PROGRAMS = (PROGRAM, CALLING)
"""The program's own parts: the allocator can only cause a difference in PROGRAM by the layout of
the blocks, and in CALLING by the amount of memory that fork and exit handle."""

Of = Literal["time", "memory"]
By = Literal["clock", "probe"]


class Part(Struct, frozen=True):
    """One part of the gap, in ns or bytes. None means not measured."""

    name: str
    own: float | None
    """Mean over the contender's runs."""
    other: float | None
    """Mean over the baseline's runs."""
    change: float | None
    """The contribution of this part to the gap: `own - other`. None if one of the two is None."""
    interval: Interval | None
    """The interval of `change`. It is also None if there are too few rounds."""
    evidence: tuple[str, ...] = ()
    differences: tuple[float, ...] = ()
    """`own - other` of each round; empty if not measured."""
    borne_out: bool = True
    """False if page faults took more time while their number fell, or less time while it grew. Only
    a gap without clock samples is checked for this. Its user and system times come from the
    kernel's ticks, which are coarse, so the time of page faults may be wrong."""

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high

    @property
    def ratio(self) -> float | None:
        """The contender's amount, divided by the baseline's; None if it is not known."""
        return self.own / self.other if self.own is not None and self.other else None


class Gap(Struct, frozen=True):
    """The difference between a contender and its baseline, and the parts of it."""

    of: Of
    whole: Part
    parts: tuple[Part, ...]
    """In a fixed order; the unexplained part is the last. All measured parts add up to the
    whole."""
    waiting: Part | None = None
    """Waiting time takes no CPU time, so it is not part of the whole."""
    by: By = "probe"
    """What separated allocator and program: clock samples, or the probe's CPU timers."""
    because: str = ""
    """Why there are no clock samples, as the end of a sentence; empty if `by` is "clock"."""
    merged: str = ""
    """Why interrupts are not measured, as the end of a sentence. Page faults then include them."""
    holds: str = ""
    """What the unexplained part can hold, as a noun phrase."""
    doubted: bool = False
    """Whether the interval of `whole` excludes 0, but the verdict's interval of the same quantity
    does not. See `cairn.why.doubts`."""

    @property
    def is_shown(self) -> bool:
        """Whether the whole is shown to differ, by its own interval and by that of the verdict."""
        return self.whole.shown and not self.doubted

    @property
    def largest(self) -> Part | None:
        """The largest part with the sign of the whole, even if its interval includes 0.

        None if no part has this sign.
        """
        way = self.whole.change or 0.0
        of = [one for one in self.parts if (one.change or 0.0) * way > 0]
        return max(of, key=lambda one: abs(one.change or 0.0), default=None)

    @property
    def ranked(self) -> tuple[Part, ...]:
        """The causes, the largest first.

        These are the parts that are shown to differ, with the sign of the whole. The unexplained
        part is never a cause.
        """
        way = self.whole.change or 0.0
        return tuple(sorted(self._with_sign(way), key=lambda one: -abs(one.change or 0.0)))

    @property
    def against(self) -> tuple[Part, ...]:
        """The parts that are shown to differ with the opposite sign of the whole."""
        return self._with_sign(-(self.whole.change or 0.0))

    @property
    def undecided(self) -> tuple[Part, ...]:
        """Measured parts whose interval includes 0, or that have no interval."""
        return tuple(one for one in self.parts[:-1] if one.change is not None and not one.shown)

    @property
    def contradicted(self) -> tuple[Part, ...]:
        """Page faults, if their time is shown to differ but their number changed the other way."""
        return tuple(one for one in self.parts[:-1] if one.shown and not one.borne_out)

    def _with_sign(self, way: float) -> tuple[Part, ...]:
        return tuple(
            one
            for one in self.parts
            if one.shown
            and one.borne_out
            and one.name != UNEXPLAINED
            and (one.change or 0.0) * way > 0
        )

    @property
    def unexplained(self) -> Part:
        """The whole minus all other parts."""
        return self.parts[-1]

    @property
    def unmeasured(self) -> tuple[Part, ...]:
        """The parts without a difference. Their difference is in `unexplained`.

        Interrupts and size rounding are left out, because other parts then include them.
        """
        return tuple(
            one for one in self.parts if one.change is None and one.name not in (INTERRUPTS, SLACK)
        )


class Side(Struct, frozen=True):
    """One contender in one round: its plain run, its probed run, and what the probe counted."""

    plain: Sample
    probed: Sample
    summary: ProbeSummary


Reading = Callable[[Side], float | None]
Pairs = Sequence[tuple[Side, Side]]


def cpu_ns(sample: Sample) -> float:
    """User and system time of a trial."""
    return sample.user_ns + sample.system_ns


def faults_of(sample: Sample) -> int:
    """Page faults of a trial, of both kinds."""
    return sample.minor_faults + sample.major_faults


def divided(
    of: Of, pairs: Pairs, whole: Reading, parts: Sequence[Part], waiting: Part | None = None
) -> Gap:
    """The gap with its parts, and the unexplained part as the last."""
    gap = part_of("", pairs, whole)
    left = list(gap.differences)
    for part in parts:
        left = [
            rest - one
            for rest, one in zip(left, part.differences or [0.0] * len(left), strict=True)
        ]
    rest = Part(UNEXPLAINED, None, None, statistics.fmean(left), interval(left))
    return Gap(of, gap, (*parts, rest), waiting)


def part_of(name: str, pairs: Pairs, reading: Reading, least: float = 0.0) -> Part:
    """The means of `reading` over all rounds, and the interval of their difference.

    If some run of a contender lacks the reading, the mean of this contender is None, and so is the
    difference. The interval reaches at least `least` to both sides.
    """
    both = [(reading(own), reading(other)) for own, other in pairs]
    own, other = (_mean_of(numbers) for numbers in zip(*both, strict=True))
    if own is None or other is None:
        return Part(name, own, other, None, None)
    differences = tuple((one or 0.0) - (two or 0.0) for one, two in both)
    return Part(
        name,
        own,
        other,
        statistics.fmean(differences),
        interval(differences, least),
        differences=differences,
    )


def _mean_of(numbers: Sequence[float | None]) -> float | None:
    """The mean of the numbers; None if one of them is None."""
    known = [number for number in numbers if number is not None]
    return statistics.fmean(known) if len(known) == len(numbers) else None


def interval(differences: Sequence[float], least: float = 0.0) -> Interval | None:
    """The interval of the mean, at least `least` to both sides; None with too few rounds."""
    if len(differences) < stats.ROUNDS_LEAST:
        return None
    middle, half = statistics.fmean(differences), max(least, stats.mean_half_width(differences))
    return Interval(middle - half, middle + half, LEVEL)


def means(pairs: Pairs, number: Callable[[Side], float]) -> tuple[float, float]:
    """The means of a number over all rounds: the contender's and the baseline's."""
    own, other = (
        statistics.fmean(number(side) for side in sides) for sides in zip(*pairs, strict=True)
    )
    return own, other


def against(what: str, counts: tuple[float, float]) -> tuple[str, ...]:
    """Two counts of one thing as evidence; nothing if both are 0."""
    if not any(counts):
        return ()
    first, second = (round(one) for one in counts)
    noun = what.removesuffix("s") if first == 1 else what
    return (f"{units.count(first)} {noun} against {units.count(second)}",)
