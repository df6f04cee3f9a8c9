"""Joins the runs of each contender of 'cairn soak' in one verdict, and compares the contenders."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from cairn.model import Run, Sample
from cairn.soak.judge import JudgedRun, Kind, Reason, judge
from cairn.soak.trend import Growth

LEANER = 0.9
"""A contender holds less than another if each of its runs holds at most this share of each run of
the other."""


class SoakVerdict(Struct, frozen=True):
    """The answer for one contender. A number is the mean over its runs, or None without a run."""

    contender: str
    kind: Kind
    runs: tuple[JudgedRun, ...]
    """In the order of the rounds. Failed runs are left out."""
    rounds: tuple[int, ...] = ()
    """The numbers of the rounds of `runs`."""
    also: Kind | None = None
    reason: Reason | None = None
    """Why nothing is known; given only for UNKNOWN, if a run succeeded."""
    needed_s: float | None = None
    failure: str | None = None
    """Why the contender has failed."""
    no_trim: str | None = None
    """Why the allocator could not be asked to give memory back in a run; None if it always was
    asked."""

    def mean(self, name: str) -> float | None:
        """The mean of a field of the runs; None if a run lacks it, or if there is no run."""
        values = [getattr(one, name) for one in self.runs]
        return fmean(values) if values and None not in values else None

    def growth(self, name: str = "growth") -> Growth | None:
        """The mean growth of the runs. Its interval contains that of each run."""
        found = [one for each in self.runs if isinstance(one := getattr(each, name), Growth)]
        if not found or len(found) < len(self.runs):
            return None
        return Growth(
            fmean(one.per_s for one in found),
            min(one.low for one in found),
            max(one.high for one in found),
        )

    @property
    def growth_most(self) -> float:
        """The most that live memory may grow by in bytes per second, in the stable runs."""
        of = [one.growth_most for one in self.runs if one.kind is Kind.STABLE]
        return max((one for one in of if one is not None), default=0.0)


class Tried(Struct, frozen=True):
    """A contender that holds less memory than another one, in every run."""

    contender: str
    other: str
    held: float
    other_held: float


def verdicts(run: Run, samples: Sequence[Sample]) -> tuple[SoakVerdict, ...]:
    """Returns the answer for each contender, in the order of the run."""
    return tuple(_verdict(one.name, samples) for one in run.competing)


def _verdict(name: str, samples: Sequence[Sample]) -> SoakVerdict:
    own = [one for one in samples if one.trial.contender == name and one.counts]
    failure = next(
        (one.failure for one in samples if one.trial.contender == name and one.failure), None
    )
    found = [one.memory.series for one in own if one.memory.series is not None]
    rounds = tuple(one.trial.round for one in own if one.memory.series is not None)
    runs = tuple(judge(one) for one in found)
    no_trim = next((one.no_trim for one in found if one.no_trim is not None), None)
    if own and not runs:
        failure = failure or _UNSEEN
    if not runs or failure is not None:
        return SoakVerdict(name, Kind.UNKNOWN, runs, rounds, failure=failure, no_trim=no_trim)
    kind, reason = joined(runs)
    also = {one.also for one in runs}
    needed = [one.needed_s for one in runs if one.needed_s is not None]
    return SoakVerdict(
        name, kind, runs, rounds,
        also=also.pop() if kind is Kind.LEAK and len(also) == 1 else None,
        reason=reason,
        needed_s=max(needed) if needed and kind is Kind.UNKNOWN else None,
        no_trim=no_trim,
    )  # fmt: skip


_UNSEEN = "allocated nothing that the probe could see"


def joined(runs: Sequence[JudgedRun]) -> tuple[Kind, Reason | None]:
    """Returns the verdict on which the runs agree.

    For a leak, every run must say so. For another verdict, more than half of the runs must say so,
    and the others must be UNKNOWN.
    """
    kinds = [one.kind for one in runs]
    known = {kind for kind in kinds if kind is not Kind.UNKNOWN}
    if len(known) > 1:
        return Kind.UNKNOWN, Reason.ROUNDS
    if known:
        (kind,) = known
        least = len(runs) if kind is Kind.LEAK else len(runs) // 2 + 1
        if kinds.count(kind) >= least:
            return kind, None
    return Kind.UNKNOWN, next(one.reason for one in runs if one.kind is Kind.UNKNOWN)


def tried(found: Sequence[SoakVerdict]) -> tuple[Tried, ...]:
    """Returns, for each contender, the one that holds the least memory of all leaner contenders.

    A contender without a leaner one is left out. LEANER defines what is leaner.
    """
    healthy = [one for one in found if one.runs and one.failure is None]
    answers = []
    for other in healthy:
        leaner = [one for one in healthy if one is not other and _holds_less(one, other)]
        if leaner:
            best = min(leaner, key=_held)
            answers.append(Tried(best.contender, other.contender, _held(best), _held(other)))
    return tuple(answers)


def _held(one: SoakVerdict) -> float:
    return fmean(run.held for run in one.runs)


def _holds_less(one: SoakVerdict, other: SoakVerdict) -> bool:
    most = max(run.held for run in one.runs)
    least = min(run.held for run in other.runs)
    return most <= LEANER * least
