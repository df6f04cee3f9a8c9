"""Turns the changes of a comparison into a Verdict.

Always true here:

- A contender is BETTER or WORSE only if its adjusted interval excludes a ratio of 1. A shown
  difference within the margin counts as EQUIVALENT: it is too small to change the allocator for.
  For the same reason, a contender is recommended only if its estimate is outside the margin.
- Each measure is a family of hypotheses of its own. In time, CPU time, memory and page faults, each
  by itself, all statements against the baseline are true together with the level of the rule.
- Among several contenders that are better than the baseline, one is left out of the best only if it
  is shown to be worse than the apparent best. The apparent best was chosen from the same data, so
  each of these k - 1 comparisons has the error alpha / (k - 1): whichever of them is truly the
  best, the chance that any of the other k - 1 pushes it out is at most alpha.
- With a bound, a contender is recommended only if it is shown to be better by the goal and to cost
  at most the bound. Each of the two errs with at most alpha / 2 in the direction that matters, so a
  recommendation of a contender that is not better or costs more has at most the chance alpha.
- The front of time and memory is made from all pairs of contenders in both measures, which are one
  family.

All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from cairn.compare import stats
from cairn.compare.load_output import REQUEST_TIME
from cairn.model import (
    CPU_TIME,
    FAULTS,
    LAZY,
    PEAK,
    PEAK_LESS_LAZY,
    WALL,
    Change,
    Metric,
    Row,
    Shown,
    StopRule,
)
from cairn.verdict import (
    AIMS,
    EVERY_AIM,
    POSSIBLE,
    Advice,
    Aim,
    Beaten,
    Effect,
    FailedContender,
    Front,
    Judgement,
    Measure,
    Outcome,
    Partly,
    Recommendation,
    State,
    Verdict,
)


class _Price(IntEnum):
    """Whether a contender keeps its bounds. With several bounds, the largest value counts."""

    FAIR = 0
    OPEN = 1
    TOO_HIGH = 2


def _turned(effect: Effect) -> Effect:
    """Turns the effect of A compared with B into the effect of B compared with A."""
    turned = {Outcome.BETTER: Outcome.WORSE, Outcome.WORSE: Outcome.BETTER}
    outcome = turned.get(effect.outcome, effect.outcome)
    if effect.ratio is None or effect.low is None or effect.high is None:
        return replace(effect, outcome=outcome)
    return replace(
        effect, outcome=outcome, ratio=1 / effect.ratio, low=1 / effect.high, high=1 / effect.low
    )


Ratios = Callable[[str, str, str], tuple[float, ...] | None]
"""ratios(metric key, contender, base): ln(contender / base) by round; None if undefined."""
LAZY_LEAST = 1 << 20
"""The verdict mentions lazily freed memory if some run has at least this many bytes of it. From the
same number on, reports show the columns for such memory."""


def verdict(
    rows: Sequence[Row],
    baseline: str,
    rule: StopRule,
    time: Metric,
    rounds: int,
    ratios: Ratios,
    cpu_time: Metric = CPU_TIME,
    under_load: bool = False,
    cpu_share: float | None = None,
    aim: Aim = EVERY_AIM,
) -> Verdict:
    """Judges the contenders of `rows`, which are ranked by `time`, the best first."""
    failed = tuple(FailedContender(row.contender, row.failures[0]) for row in rows if row.failures)
    alive = [row for row in rows if not row.failures]
    others = [row for row in alive if row.contender != baseline]
    judge = _Judge(
        {row.contender: row for row in rows}, baseline, rule, time, cpu_time, ratios, aim
    )
    judgements = tuple(judge.judgement(row) for row in others) if rounds else ()
    state = _state(rows, baseline, others, rounds, judgements)
    fewest = stats.rounds_for_intervals(aim.hypotheses(len(alive)), stats.alpha(rule))
    recommendations: tuple[Recommendation, ...] = ()
    least = None
    if state is State.JUDGED:
        recommendations = tuple(judge.recommendation(one, judgements) for one in AIMS)
    elif state is State.TOO_FEW_ROUNDS:
        least = fewest
    taken = WALL.key if time.key == REQUEST_TIME.key else time.key
    walls = [row.summaries[taken].median for row in alive if taken in row.summaries]
    return Verdict(
        state=state,
        baseline=baseline,
        rounds=rounds,
        margin=rule.margin,
        judgements=judgements,
        recommendations=recommendations,
        failed=failed,
        cpu_share=cpu_share if time.key in (WALL.key, REQUEST_TIME.key) else None,
        under_load=under_load,
        partly=tuple(judge.partly(others, rounds, fewest)) if judgements else (),
        aim=aim,
        front=judge.front([row.contender for row in alive]) if recommendations else None,
        rounds_least=least,
        rounds_least_s=least * sum(walls) / 1e9 if least and walls else None,
    )


def _state(
    rows: Sequence[Row],
    baseline: str,
    others: Sequence[Row],
    rounds: int,
    judgements: Sequence[Judgement],
) -> State:
    if any(row.failures for row in rows if row.contender == baseline):
        return State.BASELINE_FAILED
    if not others:
        return State.OTHERS_FAILED if len(rows) > 1 else State.ALONE
    if rounds == 0:
        return State.NO_ROUND
    if all(effect.low is None for one in judgements for effect in one.effects):
        return State.TOO_FEW_ROUNDS
    return State.JUDGED


class _Judge(Struct, frozen=True):
    rows: Mapping[str, Row]
    baseline: str
    rule: StopRule
    time: Metric
    cpu_time: Metric
    ratios: Ratios
    aim: Aim

    def _key(self, measure: Measure) -> str:
        match measure:
            case Measure.TIME:
                return self.time.key
            case Measure.CPU_TIME:
                return self.cpu_time.key
            case Measure.MEMORY:
                return PEAK.key
            case Measure.FAULTS:
                return FAULTS.key

    def partly(self, rows: Sequence[Row], rounds: int, least: int) -> Iterator[Partly]:
        """Yields the measures that are missing in some of the rounds.

        rows: the contenders that are compared with the baseline.
        rounds: the number of complete rounds. least: the number of rounds that gives intervals.
        """
        for measure in Measure:
            key = self._key(measure)
            each = [number for row in rows if (number := self._pairs(row, measure)) is not None]
            known = min(each, default=rounds)
            if known < rounds:
                few = not known or any(
                    row.changes[key].interval is None for row in rows if key in row.changes
                )
                yield Partly(measure, known, max(least, known + 1) if few else None)

    def _pairs(self, row: Row, measure: Measure) -> int | None:
        """The number of rounds in which a measure is known for a contender and the baseline.

        0 if both have it, but never in the same round. None if neither ever has it, or if a run
        measured 0.
        """
        key = self._key(measure)
        if key in row.changes:
            return row.changes[key].rounds
        of = [one.summaries[key] for one in (row, self.rows[self.baseline]) if key in one.summaries]
        return 0 if of and all(one.minimum > 0 for one in of) else None

    def judgement(self, row: Row) -> Judgement:
        effects = tuple(self._effect(row, measure) for measure in Measure)
        fatter = any(
            effect.measure is Measure.MEMORY and effect.outcome is Outcome.WORSE
            for effect in effects
        )
        lazy = row.summaries.get(LAZY.key)
        freed = lazy is not None and lazy.maximum >= LAZY_LEAST
        lean = self._outcome(row.changes.get(PEAK_LESS_LAZY.key)) in (
            Outcome.BETTER,
            Outcome.EQUIVALENT,
        )
        return Judgement(row.contender, effects, lazily_freed=fatter and freed and lean)

    def _effect(self, row: Row, measure: Measure) -> Effect:
        key = self._key(measure)
        change = row.changes.get(key)
        outcome = self._outcome(change)
        if change is None or change.interval is None:
            return Effect(measure, outcome)
        return Effect(
            measure,
            outcome,
            ratio=1 + change.estimate,
            low=1 + change.interval.low,
            high=1 + change.interval.high,
            level=change.interval.level,
            amount=change.estimate * self.rows[self.baseline].summaries[key].median,
        )

    def _outcome(self, change: Change | None) -> Outcome:
        if change is None or change.interval is None:
            return Outcome.NOT_KNOWN
        if stats.within(change.interval, self.rule.margin):
            return Outcome.EQUIVALENT
        match change.shown:
            case Shown.LESS:
                return Outcome.BETTER
            case Shown.MORE:
                return Outcome.WORSE
            case Shown.EQUIVALENT:
                return Outcome.EQUIVALENT
            case Shown.NOT_SHOWN:
                return Outcome.NOT_SHOWN

    def recommendation(self, aim: Measure, judgements: Sequence[Judgement]) -> Recommendation:
        """The advice for one aim. `judgements` must not be empty."""
        effects = {one.contender: one.effect(aim) for one in judgements}
        better = [
            name
            for name, of in effects.items()
            if of.outcome is Outcome.BETTER and of.matters(self.rule.margin)
        ]
        better.sort(key=lambda name: effects[name].ratio or 0.0)
        prices = self._prices(judgements) if aim is self.aim.goal else {}
        dear = tuple(name for name in better if prices.get(name) is _Price.TOO_HIGH)
        unclear = tuple(name for name in better if prices.get(name) is _Price.OPEN)
        fair = [name for name in better if name not in (*dear, *unclear)]
        if fair:
            return replace(self._use(aim, fair), too_dear=dear, price_open=unclear)
        if unclear:
            return Recommendation(aim, Advice.OPEN, too_dear=dear, price_open=unclear)
        # A contender that costs too much cannot be chosen, however much it may save.
        effects = {
            name: of for name, of in effects.items() if prices.get(name) is not _Price.TOO_HIGH
        }
        if dear and not effects:
            return Recommendation(aim, Advice.KEEP, too_dear=dear)
        return replace(self._without_better(aim, effects), too_dear=dear)

    def _without_better(self, aim: Measure, effects: Mapping[str, Effect]) -> Recommendation:
        """The advice if none of the contenders that can be chosen is shown to be better."""
        if all(of.outcome is Outcome.NOT_KNOWN for of in effects.values()):
            few = any(self._pairs(self.rows[name], aim) is not None for name in effects)
            return Recommendation(aim, Advice.TOO_FEW_ROUNDS if few else Advice.NOT_MEASURED)
        unknown = [name for name, of in effects.items() if of.outcome is Outcome.NOT_KNOWN]
        if unknown:
            return Recommendation(aim, Advice.OPEN, possible_with=unknown[0])
        open_ones = {
            name: 1 - of.low
            for name, of in effects.items()
            if of.outcome in (Outcome.NOT_SHOWN, Outcome.BETTER) and of.low is not None
        }
        if not open_ones:
            return Recommendation(aim, Advice.KEEP)
        widest = max(open_ones, key=open_ones.__getitem__)
        possible = open_ones[widest]
        advice = Advice.KEEP if possible < POSSIBLE else Advice.OPEN
        return Recommendation(aim, advice, possible=possible, possible_with=widest)

    def _prices(self, judgements: Sequence[Judgement]) -> dict[str, _Price]:
        """Whether each contender keeps the bounds; empty without bounds.

        For each bound, the contenders are one family for Holm's adjustment. Their ratios are tested
        against the bound, as they are against 1 elsewhere. A contender keeps the bound only if both
        this test and its printed interval show it. So the answer never contradicts the interval.
        """
        prices: dict[str, _Price] = {}
        for bound in self.aim.may_cost:
            key = self._key(bound.measure)
            log_most = math.log1p(bound.most)
            beside = {
                one.contender: [difference - log_most for difference in differences]
                for one in judgements
                if (differences := self.ratios(key, one.contender, self.baseline))
            }
            found = stats.changes(beside, stats.alpha(self.rule), self.rule.margin)
            for one in judgements:
                price = self._price(found.get(one.contender), one.effect(bound.measure), bound.most)
                prices[one.contender] = max(price, prices.get(one.contender, _Price.FAIR))
        return prices

    @staticmethod
    def _price(against_bound: Change | None, effect: Effect, most: float) -> _Price:
        if against_bound is None or effect.low is None or effect.high is None:
            return _Price.OPEN
        if against_bound.shown is Shown.LESS and effect.high <= 1 + most:
            return _Price.FAIR
        if against_bound.shown is Shown.MORE and effect.low > 1 + most:
            return _Price.TOO_HIGH
        return _Price.OPEN

    def front(self, names: Sequence[str]) -> Front | None:
        """The Pareto front of time and memory.

        None if the user did not ask for it, or if time or memory cannot be compared.
        """
        if not self.aim.pareto:
            return None
        pairs = self._pairs_in_the_plane(names)
        if pairs is None:
            return None
        beaten: dict[str, Beaten] = {}
        for name in names:
            for other in names:
                if other != name and self._beats(pairs[other, name]):
                    beaten.setdefault(name, Beaten(name, other, pairs[other, name]))
        members = [name for name in names if name not in beaten]
        # `Beaten.by` names a member of the front if any member beats this contender.
        shown = []
        for name, one in beaten.items():
            by = next((m for m in members if self._beats(pairs[m, name])), one.by)
            shown.append(Beaten(name, by, pairs[by, name]))
        level = (Outcome.WORSE, Outcome.EQUIVALENT)
        return Front(
            members=tuple(members),
            beaten=tuple(shown),
            open=tuple(
                (member, other)
                for member in members
                for other in names
                if other != member
                and not any(effect.outcome in level for effect in pairs[other, member])
            ),
        )

    def _pairs_in_the_plane(
        self, names: Sequence[str]
    ) -> dict[tuple[str, str], tuple[Effect, ...]] | None:
        """By (A, B), for all pairs of contenders: time and memory of A, compared with those of B.

        All pairs in both measures are one family for Holm's adjustment. Returns None if some ratio
        is undefined.
        """
        plane = (Measure.TIME, Measure.MEMORY)
        tested = {}
        for measure in plane:
            for place, name in enumerate(names):
                for other in names[place + 1 :]:
                    differences = self.ratios(self._key(measure), name, other)
                    if not differences:
                        return None
                    tested[measure, name, other] = differences
        keys = {str(place): key for place, key in enumerate(tested)}
        changes = stats.changes(
            {name: tested[key] for name, key in keys.items()},
            stats.alpha(self.rule),
            self.rule.margin,
        )
        found = {
            keys[name]: self._of_pair(keys[name][0], change) for name, change in changes.items()
        }
        pairs = {}
        for place, name in enumerate(names):
            for other in names[place + 1 :]:
                effects = tuple(found[measure, name, other] for measure in plane)
                pairs[name, other] = effects
                pairs[other, name] = tuple(_turned(effect) for effect in effects)
        return pairs

    def _of_pair(self, measure: Measure, change: Change) -> Effect:
        outcome = self._outcome(change)
        if change.interval is None:
            return Effect(measure, outcome)
        low, high = 1 + change.interval.low, 1 + change.interval.high
        return Effect(measure, outcome, 1 + change.estimate, low, high, change.interval.level)

    def _beats(self, effects: Sequence[Effect]) -> bool:
        """Whether a contender is better in time or memory, and better or alike in the other one."""
        outcomes = {effect.outcome for effect in effects}
        return outcomes <= {Outcome.BETTER, Outcome.EQUIVALENT} and any(
            effect.outcome is Outcome.BETTER and effect.matters(self.rule.margin)
            for effect in effects
        )

    def _use(self, aim: Measure, better: Sequence[str]) -> Recommendation:
        """The advice to use the best contender of `better`, or one that may be as good.

        better: the contenders that are shown to be better than the baseline. The one with the best
        estimate comes first.
        """
        first, *others = better
        alpha = stats.alpha(self.rule) / max(1, len(others))
        outcomes = {name: self._pair(self._key(aim), name, first, alpha) for name in others}
        rivals = [name for name in others if outcomes[name] is not Outcome.WORSE]
        best = (first, *rivals)
        return Recommendation(
            aim,
            Advice.USE,
            best=best,
            alike=bool(rivals) and all(outcomes[one] is Outcome.EQUIVALENT for one in rivals),
            leanest=self._leanest(best) if rivals and aim is not Measure.MEMORY else None,
        )

    def _leanest(self, names: Sequence[str]) -> str | None:
        """The contender of `names` that is shown to take less memory than all the others.

        None if there is none. `names` has at least two contenders.
        """
        changes = {name: self.rows[name].changes.get(PEAK.key) for name in names}
        known = {name: change.estimate for name, change in changes.items() if change is not None}
        if len(known) < len(names):
            return None
        leanest = min(known, key=known.__getitem__)
        alpha = stats.alpha(self.rule) / (len(names) - 1)
        others = [name for name in names if name != leanest]
        shown = all(self._pair(PEAK.key, name, leanest, alpha) is Outcome.WORSE for name in others)
        return leanest if shown else None

    def _pair(self, key: str, name: str, base: str, alpha: float) -> Outcome:
        """The outcome of one contender against another, with the error `alpha`."""
        differences = self.ratios(key, name, base)
        if not differences:
            return Outcome.NOT_KNOWN
        return self._outcome(stats.changes({name: differences}, alpha, self.rule.margin)[name])
