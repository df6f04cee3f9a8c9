"""The verdict of a comparison, as frozen values.

`compare` makes a Verdict from the samples. The sentences in `report/verdict.py` are written from it
alone, and `--json` carries it as `judged`.

Ratios are a contender's numbers divided by the baseline's: 0.94 is 6 % less. A value that is not
known is None, never 0.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Measure(Enum):
    """The four numbers that are judged, in the order in which sentences name them."""

    TIME = "time"
    """Wall time, without the deliberate sleep of a built-in workload."""
    CPU_TIME = "CPU time"
    MEMORY = "memory"
    """The peak of the process tree."""
    FAULTS = "page faults"


AIMS = (Measure.TIME, Measure.CPU_TIME, Measure.MEMORY)
"""The measures by which a contender can be recommended. Page faults are a cause, not an aim."""


class Bound(Struct, frozen=True):
    """The most that a recommended contender may cost in one measure."""

    measure: Measure
    most: float
    """As a share of the baseline: 0.05 is 5 % more."""


class Aim(Struct, frozen=True):
    """The question that the verdict answers first. Without a goal it is every aim of `AIMS`.

    The question decides which contenders are recommended and when measuring stops. It changes no
    measured effect.
    """

    goal: Measure | None = None
    """One of `AIMS`."""
    may_cost: tuple[Bound, ...] = ()
    """Bounds on measures other than the goal. If there are any, `goal` is not None."""
    pareto: bool = False
    """Whether the question is which contenders are on the front of time and memory. `goal` is then
    None."""

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that decide, the goal first."""
        if self.pareto:
            return Measure.TIME, Measure.MEMORY
        return (self.goal or Measure.TIME, *(bound.measure for bound in self.may_cost))

    def hypotheses(self, contenders: int) -> int:
        """The number of hypotheses in the largest family.

        contenders: the number of contenders, including the baseline.
        """
        if self.pareto:
            return max(1, contenders * (contenders - 1))
        return max(1, contenders - 1)

    @property
    def given(self) -> bool:
        """Whether the user asked another question than the usual one (EVERY_AIM)."""
        return self.goal is not None or self.pareto


EVERY_AIM = Aim()
"""The usual question: what to use by each of `AIMS`."""


class Outcome(Enum):
    """What is shown of one contender in one measure. Less is better in all measures."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    """The difference lies within the margin. It may even be proven, but is too small to matter."""
    NOT_SHOWN = "not shown"
    NOT_KNOWN = "not known"
    """There is no interval: not measured, too few rounds, or a number of 0 in some run."""


class Effect(Struct, frozen=True):
    """One measure of one contender, compared with the baseline."""

    measure: Measure
    outcome: Outcome
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    """The ends of the ratio's interval. None exactly if the outcome is NOT_KNOWN."""
    level: float | None = None
    """The confidence level of this interval, after the adjustment for several comparisons."""
    amount: float | None = None
    """The difference in nanoseconds, bytes or faults: (ratio - 1) times the baseline's median."""

    def matters(self, margin: float) -> bool:
        """Whether the estimate is outside the margin. A proven difference may be tiny."""
        return self.ratio is not None and abs(self.ratio - 1) > margin


class Judgement(Struct, frozen=True):
    """All measures of one contender that did not fail."""

    contender: str
    effects: tuple[Effect, ...]
    """One effect for each measure, in the order of `Measure`."""
    lazily_freed: bool = False
    """Whether the contender takes more memory than the baseline only because of lazily freed memory
    (MADV_FREE): without that memory, it does not take more."""

    def effect(self, measure: Measure) -> Effect:
        """Returns the contender's effect in this measure."""
        return next(effect for effect in self.effects if effect.measure is measure)


class Advice(Enum):
    """What to do for one aim."""

    USE = "use"
    """At least one contender is shown to be better than the baseline, by more than the margin."""
    KEEP = "keep"
    """No contender is shown to be better, and none may be better by `POSSIBLE` or more."""
    OPEN = "not known yet"
    """No contender is shown to be better, but some contender may be, by `POSSIBLE` or more."""
    TOO_FEW_ROUNDS = "measured in too few rounds"
    """The measure is missing in some rounds, and the others are too few for an interval."""
    NOT_MEASURED = "not measured"


POSSIBLE = 0.05
"""Advice to keep the baseline needs intervals that leave less than this saving possible.

A larger saving is a reason to change the allocator, so a wider interval is not an answer.
"""


class Recommendation(Struct, frozen=True):
    """The advice for one aim."""

    aim: Measure
    advice: Advice
    best: tuple[str, ...] = ()
    """With USE: the contenders that are shown to be better than the baseline and are not shown to
    be worse than the best of them. The apparent best is the first."""
    alike: bool = False
    """With USE and several contenders: whether all are shown to be equivalent to the first."""
    leanest: str | None = None
    """With USE and several contenders: the one of them that is shown to take less memory than all
    others, if the aim is not memory."""
    possible: float | None = None
    """With KEEP and OPEN: the largest saving that some contender's interval leaves possible, as a
    share of the baseline. None if every contender is shown to be worse or equivalent, or if an
    interval is missing. A proven saving whose estimate is within the margin counts, too."""
    possible_with: str | None = None
    """The contender whose interval gives `possible`; with OPEN, it may also be a contender whose
    interval is missing."""
    too_dear: tuple[str, ...] = ()
    """With bounds: the contenders that are shown to be better and to cost more than a bound."""
    price_open: tuple[str, ...] = ()
    """With bounds: the contenders that are shown to be better, while it is open whether they keep
    every bound."""

    @property
    def in_order(self) -> tuple[str, ...]:
        """The contenders in `best`, with `leanest` moved to the front."""
        return tuple(sorted(self.best, key=lambda name: name != self.leanest))


class Partly(Struct, frozen=True):
    """A measure that is known in a part of the rounds only.

    Memory is an example: it is not known of a run that ends before it is first measured.
    """

    measure: Measure
    rounds: int
    """The number of rounds in which it is known for the baseline and for a contender: the fewest of
    all contenders. It is 0 if the two never have it in the same round."""
    least: int | None = None
    """If these rounds are too few for an interval: the least number of rounds that gives one."""


class Beaten(Struct, frozen=True):
    """A contender that is not on the front."""

    contender: str
    by: str
    """Another contender, which is better in one of time and memory, and better or equivalent in the
    other measure."""
    effects: tuple[Effect, ...]
    """The effects of `by` on time and memory, compared with `contender`. They have no `amount`."""


class Front(Struct, frozen=True):
    """The contenders that no other is shown to beat in time and memory together.

    All pairs of contenders in both measures are one family for Holm's adjustment.
    """

    members: tuple[str, ...]
    """The contenders on the front, the fastest first. The baseline may be among them."""
    beaten: tuple[Beaten, ...]
    open: tuple[tuple[str, str], ...] = ()
    """Pairs (member, other contender). It is still possible that the other contender is both faster
    and leaner than the member."""

    @property
    def certain(self) -> tuple[str, ...]:
        """The members that certainly belong to the front.

        For these it is shown that no other contender is both faster and leaner.
        """
        unclear = {member for member, _ in self.open}
        return tuple(name for name in self.members if name not in unclear)


WAITS = 0.20
"""A program that uses at most this share of one CPU waits most of the time."""


class State(Enum):
    """Whether a comparison was possible."""

    JUDGED = "judged"
    TOO_FEW_ROUNDS = "too few rounds"
    NO_ROUND = "no complete round"
    BASELINE_FAILED = "baseline failed"
    OTHERS_FAILED = "all others failed"
    ALONE = "no other contender"


class FailedContender(Struct, frozen=True):
    """A contender that failed. It has no numbers and no rank."""

    contender: str
    why: str
    """The first failure, as the rest of a sentence that begins with the contender, or as a whole
    sentence."""


class Verdict(Struct, frozen=True):
    """What is proven about all contenders of one workload, and what to do."""

    state: State
    baseline: str
    rounds: int
    """The number of complete rounds."""
    margin: float
    """Differences within ±margin are equivalent."""
    judgements: tuple[Judgement, ...] = ()
    """The contenders that did not fail, without the baseline; the fastest first."""
    recommendations: tuple[Recommendation, ...] = ()
    """One for each aim, in the order of `AIMS`; empty unless the state is JUDGED."""
    failed: tuple[FailedContender, ...] = ()
    """The failed contenders, the baseline included."""
    cpu_share: float | None = None
    """How many CPUs the program kept busy under the baseline: CPU time divided by the wall time in
    which the program could have had a CPU, as a median over the runs (`suitability.cpu_share`)."""
    under_load: bool = False
    """Whether the program is a server under a load. Time and CPU time are then those of a request,
    if the load printed its throughput and the number of its requests."""
    programs: bool = False
    """Whether the contenders are programs, so that not only allocators differ."""
    partly: tuple[Partly, ...] = ()
    """The measures that are missing in some rounds, in the order of `Measure`."""
    aim: Aim = EVERY_AIM
    front: Front | None = None
    """With an aim of `pareto`; None if time or memory was not measured in every run."""
    rounds_least: int | None = None
    """With TOO_FEW_ROUNDS: the least number of rounds that gives intervals."""
    rounds_least_s: float | None = None
    """The expected time of `rounds_least` rounds in seconds, judged by the rounds so far."""

    @property
    def waits(self) -> bool:
        """Whether the program waits most of the time, and no contender is shown to change that."""
        return (
            self.cpu_share is not None
            and self.cpu_share <= WAITS
            and all(
                one.effect(Measure.TIME).outcome not in (Outcome.BETTER, Outcome.WORSE)
                for one in self.judgements
            )
        )

    @property
    def measured(self) -> tuple[Recommendation, ...]:
        """The advice for the aims that were measured.

        With a goal, it is the advice for the goal alone. Else time is left out if the program waits
        and another aim was measured.
        """
        unknown = (Advice.NOT_MEASURED, Advice.TOO_FEW_ROUNDS)
        known = [one for one in self.recommendations if one.advice not in unknown]
        if self.aim.goal is not None:
            return tuple(one for one in known if one.aim is self.aim.goal)
        others = [one for one in known if one.aim is not Measure.TIME]
        return tuple(others if self.waits and others else known)

    @property
    def recommended(self) -> tuple[str, ...]:
        """The contenders that are recommended for some aim, in the order of the aims.

        With a goal, these are the contenders that are recommended for the goal. If the question is
        the front, these are the certain members of the front, without the baseline.
        """
        if self.aim.pareto:
            certain = self.front.certain if self.front is not None else ()
            return tuple(name for name in certain if name != self.baseline)
        return tuple(dict.fromkeys(name for one in self.measured for name in one.in_order))

    @property
    def unanswered(self) -> bool:
        """Whether the question of the aim has no answer because a measure was not measured."""
        if self.state is not State.JUDGED or not self.aim.given:
            return False
        return self.front is None if self.aim.pareto else not self.measured

    @property
    def only_choice(self) -> Judgement | None:
        """The only contender that is recommended, if it costs nothing in the other aims.

        For each other aim, the advice is to keep the baseline, and the interval excludes that this
        contender costs `POSSIBLE` or more. None if there is no such contender.
        """
        if len(self.recommended) != 1 or self.aim.pareto:
            return None
        only = next(one for one in self.judgements if one.contender in self.recommended)
        for one in self.measured:
            effect = only.effect(one.aim)
            if one.advice is Advice.OPEN:
                return None
            if one.advice is Advice.KEEP and (
                (effect.outcome is Outcome.WORSE and effect.matters(self.margin))
                or effect.high is None
                or effect.high >= 1 + POSSIBLE
            ):
                return None
        return only

    @property
    def chosen(self) -> tuple[str, ...]:
        """The contenders that the advice names, the baseline among them if it is to be kept."""
        if self.front is not None:
            return self.front.certain
        kept = any(one.advice is Advice.KEEP for one in self.measured)
        if kept and self.only_choice is None:
            return (*self.recommended, self.baseline)
        return self.recommended
