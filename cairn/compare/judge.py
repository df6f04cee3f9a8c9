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

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
    POSSIBLE,
    Advice,
    Effect,
    FailedContender,
    Judgement,
    Measure,
    Outcome,
    Recommendation,
    State,
    Verdict,
)

Ratios = Callable[[str, str, str], tuple[float, ...] | None]
"""ratios(metric key, contender, base): ln(contender / base) by round; None if undefined."""
LAZY_LEAST = 1 << 20
"""The least bytes of lazily freed memory in some run for which the verdict speaks of it. Reports
show columns for such memory from the same number on."""


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
) -> Verdict:
    """Judges the contenders of `rows`, which are ranked by `time`, the best first."""
    failed = tuple(FailedContender(row.contender, row.failures[0]) for row in rows if row.failures)
    alive = [row for row in rows if not row.failures]
    others = [row for row in alive if row.contender != baseline]
    judge = _Judge({row.contender: row for row in rows}, baseline, rule, time, cpu_time, ratios)
    judgements = tuple(judge.judgement(row) for row in others) if rounds else ()
    state = _state(rows, baseline, others, rounds, judgements)
    recommendations: tuple[Recommendation, ...] = ()
    least = None
    if state is State.JUDGED:
        recommendations = tuple(judge.recommendation(aim, judgements) for aim in AIMS)
    elif state is State.TOO_FEW_ROUNDS:
        least = stats.rounds_for_intervals(len(others), stats.alpha(rule))
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


@dataclass(frozen=True, slots=True)
class _Judge:
    rows: Mapping[str, Row]
    baseline: str
    rule: StopRule
    time: Metric
    cpu_time: Metric
    ratios: Ratios

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
        if better:
            return self._use(aim, sorted(better, key=lambda name: effects[name].ratio or 0.0))
        if all(of.outcome is Outcome.NOT_KNOWN for of in effects.values()):
            return Recommendation(aim, Advice.NOT_MEASURED)
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

    def _use(self, aim: Measure, better: Sequence[str]) -> Recommendation:
        """`better` are the contenders that are shown to be better, the apparent best first."""
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
        """The one that is shown to take less memory than all others of at least two; else None."""
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
