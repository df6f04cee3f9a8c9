"""Decides whether one contender keeps the bounds of a check against another. Pure.

A bound such as time > 3 % is decided by the interval of the change:

- *worse*: the whole interval lies above the bound;
- *pass*: no part of it lies above the bound;
- *not enough data*: the bound lies inside the interval, or there are too few rounds.

Always true here:

- The intervals are exact signed-rank intervals of paired rounds (`stats.SignedRank`). They are
  adjusted by Bonferroni's method for the number of bounds that need rounds.
- If two equal programs are compared, the probability that a check says "worse" is at most ERROR,
  although the data decide when it stops. The same holds for "pass" of a program that exceeds a
  bound.
- Counts of instructions have no noise to be estimated. Their interval is the range of the counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from statistics import NormalDist

from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.compare import comparison, plan, rounds_needed, stats
from cairn.compare.load_output import REQUEST_CPU_TIME, REQUEST_TIME
from cairn.gate import INSTRUCTIONS, Gate, GateBound, InstructionCount
from cairn.memory import NUMBERS
from cairn.model import (
    CPU_TIME,
    FAULTS,
    IDLE_MEMORY,
    MEAN_MEMORY,
    PEAK,
    ROUNDS_MOST,
    SYSTEM,
    USER,
    WALL,
    Metric,
    Run,
    Sample,
    StopRule,
    value,
)

ERROR = 0.01
"""The probability that a check of two equal programs says "worse"."""
ERROR_EARLY = 0.0005
"""The one-sided error of a look before the last one."""
ERROR_LAST = 0.0045
"""The one-sided error of the last look.

The last look comes at the greatest number of rounds or at the end of the budget. All looks together
have an error of at most ERROR. Strict early looks before a less strict last one are the boundary of
Haybittle and Peto, as in a comparison (`stats.ALPHA_EARLY`). tests/python/test_gate_coverage.py has
the simulation.
"""
ROUNDS_LEAST, ROUNDS_DEFAULT = 12, 400
"""The numbers of rounds at the first look and at the last look, unless the user gives others."""
_POWER = 0.8416
"""The 80 % quantile of the normal distribution. If the end of the expected interval lies this many
standard errors from the bound, the interval misses the bound in 4 of 5 checks."""


class GateMeasure(Struct, frozen=True):
    """A number that a bound may limit."""

    name: str
    metrics: tuple[Metric, ...]
    """The first metric that was measured in all runs is used. Empty for instructions, which are
    counted under valgrind."""
    verb: str
    noun: str
    """The verb and the noun of a sentence such as "new takes 3 % more peak memory"."""


MEASURES = {
    one.name: one
    for one in (
        GateMeasure("time", (REQUEST_TIME, WALL), "takes", "time"),
        GateMeasure("cpu", (REQUEST_CPU_TIME, CPU_TIME), "takes", "CPU time"),
        GateMeasure("user", (USER,), "takes", "user time"),
        GateMeasure("system", (SYSTEM,), "takes", "system time"),
        GateMeasure("peak", (PEAK,), "takes", "peak memory"),
        GateMeasure("mean-memory", (MEAN_MEMORY,), "takes", "mean memory"),
        GateMeasure("idle-memory", (IDLE_MEMORY,), "keeps", "memory after idle"),
        GateMeasure("faults", (FAULTS,), "has", "page faults"),
        GateMeasure(INSTRUCTIONS, (), "executes", "instructions"),
    )
}
"""By the name in --fail-if."""


class GateState(Enum):
    """The answer to one bound, and to the whole check."""

    PASS = "pass"
    WORSE = "worse"
    OPEN = "not enough data"
    UNKNOWN = "not known"
    """The change has no meaning: not measured, or a run measured 0."""


class Checked(Struct, frozen=True):
    """One bound and what the data say about it. Changes are relative: 0.05 is 5 % more."""

    measure: str
    most: float
    """The bound."""
    state: GateState
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    """The interval of the change. None if there are too few rounds for it."""
    level: float | None = None
    """The probability with which the change is below `high`, and also that it is above `low`.
    None for exact counts, whose interval is the range of all counts."""
    base: float | None = None
    now: float | None = None
    """The medians of both contenders, in nanoseconds, bytes or counts."""
    rounds: int = 0
    """The number of complete rounds, or of counts for each contender."""
    measured_rounds: int | None = None
    """The number of rounds in which the measure is known for both contenders. None if it is known
    in all rounds."""
    rounds_needed: int | None = None
    """If the state is "not enough data": the complete rounds that will probably decide the bound.
    It is assumed that the measure stays missing in the same share of rounds. None if more than
    ROUNDS_MOST are needed."""
    problem: str | None = None
    """If the state is "not known": why, as a sentence without a full stop."""


def whole(checked: Sequence[Checked]) -> GateState:
    """Returns the answer of the check: worse if one bound is exceeded, pass if all are kept."""
    states = {one.state for one in checked}
    for state in (GateState.WORSE, GateState.UNKNOWN, GateState.OPEN):
        if state in states:
            return state
    return GateState.PASS


def least(gate: Gate, rule: StopRule) -> int:
    """Returns the least number of rounds that can decide every bound."""
    error = ERROR if rule.precision is None else ERROR_LAST
    return math.ceil(math.log2(max(1, len(gate.timed)) / error))


def other_than(run: Run) -> str:
    """Returns the name of the contender that is checked against the baseline."""
    return next(one.name for one in run.competing if one.name != run.baseline)


def _metric(samples: Sequence[Sample], measure: str) -> Metric:
    """Returns the first metric of the measure that all counted runs have, else its last one."""
    *preferred, last = MEASURES[measure].metrics
    counted = [sample for sample in samples if sample.counts]
    for metric in preferred:
        if counted and all(value(sample, metric.key) is not None for sample in counted):
            return metric
    return last


def deciding_ratios(run: Run, samples: Sequence[Sample]) -> dict[str, tuple[float, ...]]:
    """Returns the log ratios of each bound that needs rounds, by measure.

    A measure that is missing in some rounds has fewer ratios than there are complete rounds.
    Measures without ratios are left out. The result is empty if a contender failed.
    """
    assert run.gate is not None
    found = comparison.paired(
        samples,
        other_than(run),
        run.baseline,
        {one.measure: _metric(samples, one.measure) for one in run.gate.timed},
    )
    return {measure: ratios for measure, ratios in found.items() if ratios is not None}


def change_of(
    ratios: Sequence[float], error: float, bounds: int
) -> tuple[float, float, float, float] | None:
    """Returns estimate, low, high (all relative) and level; None with too few rounds."""
    rank = stats.SignedRank.of(ratios)
    found = rank.interval(2 * error / bounds)
    if found is None:
        return None
    estimate, low, high = map(math.expm1, (rank.estimate(), found.low, found.high))
    return estimate, low, high, 1 - error / bounds


def state_of(low: float, high: float, most: float) -> GateState:
    """Returns the answer to a bound whose change lies between `low` and `high`."""
    if low > most:
        return GateState.WORSE
    return GateState.PASS if high <= most else GateState.OPEN


def look(
    ratios: Mapping[str, Sequence[float]], gate: Gate, rule: StopRule, rounds: int | None = None
) -> stats.Look:
    """The stopping rule of a check. `rounds` is as for `stats.look`.

    A check stops when all bounds are decided or one is exceeded. It stops only at the rounds of
    `stats.look_rounds`. At the last of these rounds, it stops in any case.
    """
    if rounds is None:
        rounds = min((len(of) for of in ratios.values()), default=0)
    if not rounds:
        return stats.Look(stop=False, because=None, half_width=None, leading=None)
    states, widths = [], []
    for bound in gate.timed:
        if bound.measure not in ratios:
            continue
        of = ratios[bound.measure]
        found = change_of(of, ERROR_EARLY, len(gate.timed)) if of else None
        if found is None:
            states.append(GateState.OPEN)
            continue
        _, low, high, _ = found
        states.append(state_of(low, high, bound.most))
        widths.append((high - low) / 2)
    decided = GateState.WORSE in states or GateState.OPEN not in states
    because = None
    if rounds >= rule.max_rounds:
        because = units.counted(rounds, "round")
    elif rounds in stats.look_rounds(rule) and decided:
        because = stats.PRECISE
    return stats.Look(
        stop=because is not None,
        because=because,
        half_width=max(widths) if len(widths) == len(states) else None,
        leading=None,
    )


def forecast(
    ratios: Mapping[str, Sequence[float]], gate: Gate, rule: StopRule, rounds: int | None = None
) -> rounds_needed.Forecast | None:
    """Predicts the rounds at which every bound is decided. Returns None with too few rounds.

    ratios and rounds: as for `look`.
    """
    if rule.precision is None:
        return rounds_needed.Forecast(rule.max_rounds, rule.max_rounds, rule.max_rounds)
    known = min((len(of) for of in ratios.values()), default=0)
    rounds = known if rounds is None else rounds
    if known < rounds_needed.FORECAST_FROM:
        return None
    wanted = [
        _needed(ratios[bound.measure], bound, ERROR_EARLY, len(gate.timed))
        for bound in gate.timed
        if bound.measure in ratios
    ]
    # As many of the later rounds are expected to have all numbers as of those that are done.
    of_known = max((one or ROUNDS_MOST for one in wanted), default=rule.min_rounds)
    most = of_known * rounds / known
    low, likely, high = (
        min(rule.max_rounds, max(rule.min_rounds, rounds + 1, math.ceil(most * factor)))
        for factor in (0.5, 1.0, 2.0)
    )
    return rounds_needed.Forecast(low, likely, high)


def _needed(ratios: Sequence[float], bound: GateBound, error: float, bounds: int) -> int | None:
    """Predicts how many rounds decide the bound in 4 of 5 checks, if the estimate is right.

    Returns None if more than ROUNDS_MOST rounds are needed.
    """
    noise = rounds_needed.noise({"": ratios})
    if noise is None:
        return math.ceil(math.log2(bounds / error))
    distance = abs(noise.centres[0] - math.log1p(bound.most))
    scale = noise.scales[0]

    def enough(rounds: int) -> bool:
        reach = rounds_needed.interval_reach(rounds, 2 * error / bounds)
        spare = _POWER * rounds_needed.PSEUDO_MEDIAN / math.sqrt(rounds)
        return reach is not None and (reach + spare) * scale <= distance

    return rounds_needed.least_rounds(enough, ROUNDS_MOST)


def judge(
    run: Run,
    samples: Sequence[Sample],
    stopped_because: str | None,
    counts: Iterable[InstructionCount] = (),
) -> tuple[Checked, ...]:
    """Returns the answer to each bound of the run, in the order of the bounds.

    stopped_because: as in a Comparison. It decides which error the last look may have.
    """
    gate = run.gate
    assert gate is not None
    ratios = deciding_ratios(run, samples)
    rounds = plan.complete(samples, (run.baseline, other_than(run)))
    if run.rule.precision is None:
        error = ERROR
    else:
        error = ERROR_EARLY if stopped_because == stats.PRECISE else ERROR_LAST
    found = []
    for bound in gate.bounds:
        if bound.measure == INSTRUCTIONS:
            found.append(counted(bound, run.baseline, other_than(run), counts))
            continue
        metric = _metric(samples, bound.measure)
        base, now = comparison.medians(samples, (run.baseline, other_than(run)), metric)
        one = Checked(bound.measure, bound.most, GateState.OPEN, base=base, now=now, rounds=rounds)
        found.append(_decided(one, ratios.get(bound.measure), error, len(gate.timed), bound))
    return tuple(found)


def _decided(
    one: Checked, ratios: Sequence[float] | None, error: float, bounds: int, bound: GateBound
) -> Checked:
    """Returns the answer `one` with the interval of these ratios.

    one: an answer with the medians and the number of complete rounds.
    """
    if ratios is None:
        noun = MEASURES[one.measure].noun
        problem = f"{noun} was not measured"
        if one.base is not None and one.now is not None:
            problem = f"{noun} cannot be compared, since a run measured 0"
        elif one.base is not None or one.now is not None:
            problem = f"{noun} was measured under one of the builds only"
        return replace(one, state=GateState.UNKNOWN, problem=problem)
    known = len(ratios)
    if known < one.rounds:
        one = replace(one, measured_rounds=known)
    share = max(known, 1) / max(one.rounds, 1)
    interval = change_of(ratios, error, bounds) if known else None
    if interval is None:
        fewest = math.ceil(math.log2(bounds / error) / share)
        return replace(one, rounds_needed=max(fewest, one.rounds + 1))
    estimate, low, high, level = interval
    state = state_of(low, high, one.most)
    needed = None
    if state is GateState.OPEN:
        needed = _needed(ratios, bound, error, bounds)
        # `_needed` trusts the estimate, which may be off by chance. So it may return fewer rounds
        # than there are, although these did not decide the bound. At least a quarter is added.
        least = math.ceil(1.25 * one.rounds)
        if needed is not None:
            needed = math.ceil(needed / share)
            needed = min(ROUNDS_MOST, max(needed, least)) if needed <= ROUNDS_MOST else None
    return replace(
        one, state=state, estimate=estimate, low=low, high=high, level=level, rounds_needed=needed
    )


def counted(bound: GateBound, base: str, now: str, counts: Iterable[InstructionCount]) -> Checked:
    """Returns the answer to a bound on instructions."""
    by = {one.contender: one for one in counts}
    problem = None
    for name in (base, now):
        one = by.get(name)
        if one is None or not one.counts:
            why = one.problem if one is not None and one.problem else "was not counted"
            problem = problem or f"the instructions of {name} are not known: it {why}"
    if problem is not None:
        return Checked(bound.measure, bound.most, GateState.UNKNOWN, problem=problem)
    old, new = by[base].counts, by[now].counts
    low, high = min(new) / max(old) - 1, max(new) / min(old) - 1
    middle_old, middle_new = (sum(of) / len(of) for of in (old, new))
    return Checked(
        bound.measure, bound.most, state_of(low, high, bound.most),
        estimate=middle_new / middle_old - 1, low=low, high=high, base=middle_old, now=middle_new,
        rounds=min(len(old), len(new)),
    )  # fmt: skip


def judge_stored(
    gate: Gate,
    before: Sequence[Sample],
    now: Sequence[Sample],
    names: tuple[str, str],
    counts: tuple[Iterable[InstructionCount], Iterable[InstructionCount]],
) -> tuple[Checked, ...]:
    """Returns the answer to each bound from the runs of two programs that did not run in rounds.

    The intervals are those of Mann and Whitney. They hold only if the machine was the same at both
    times, since whatever changed between them counts as a change of the program.
    Memory is compared only if one method measured it in all runs. If a program has no complete
    round, there is not enough data.

    names: the names of both programs, as in a sentence. counts: the instructions of both.
    """
    found = []
    for bound in gate.bounds:
        if bound.measure == INSTRUCTIONS:
            both = [
                replace(one, contender=name)
                for name, of in zip(names, counts, strict=True)
                for one in of
            ]
            found.append(counted(bound, *names, both))
            continue
        metric = _metric((*before, *now), bound.measure)
        methods = _memory_methods((*before, *now), metric)
        if len(methods) > 1:
            noun = MEASURES[bound.measure].noun
            problem = f"{noun} was measured in different ways ({', '.join(methods)})"
            found.append(Checked(bound.measure, bound.most, GateState.UNKNOWN, problem=problem))
            continue
        numbers = [_numbers(of, metric) for of in (before, now)]
        one = _decided_stored(bound, numbers[0], numbers[1], len(gate.timed))
        if not all(any(sample.counts for sample in of) for of in (before, now)):
            one = Checked(bound.measure, bound.most, GateState.OPEN, rounds_needed=ROUNDS_LEAST)
        found.append(one)
    return tuple(found)


def _numbers(of: Sequence[Sample], metric: Metric) -> list[float]:
    found = (value(sample, metric.key) for sample in of if sample.counts)
    return [number for number in found if number is not None]


def _memory_methods(of: Sequence[Sample], metric: Metric) -> list[str]:
    """Returns the methods by which a metric of memory was measured; [] for another metric."""
    if metric.key not in NUMBERS:
        return []
    return sorted(
        {one.memory.method for one in of if one.counts and value(one, metric.key) is not None}
    )


def _decided_stored(
    bound: GateBound, before: Sequence[float], now: Sequence[float], bounds: int
) -> Checked:
    noun = MEASURES[bound.measure].noun
    one = Checked(bound.measure, bound.most, GateState.UNKNOWN, rounds=min(len(before), len(now)))
    if not before or not now:
        return replace(one, problem=f"{noun} was not measured in both builds")
    one = replace(one, base=statistics.median(before), now=statistics.median(now))
    if not any((*before, *now)):
        before, now = [1.0] * len(before), [1.0] * len(now)
    if min(*before, *now) <= 0:
        return replace(one, problem=f"{noun} cannot be compared, since a run measured 0")
    differences = sorted(math.log(y) - math.log(x) for x in before for y in now)
    pairs = len(differences)
    deviation = math.sqrt(pairs * (len(before) + len(now) + 1) / 12)
    reach = NormalDist().inv_cdf(1 - ERROR / bounds) * deviation
    cut = math.floor(pairs / 2 - reach)
    if cut < 1:
        return replace(one, state=GateState.OPEN, rounds_needed=max(2 * one.rounds, ROUNDS_LEAST))
    estimate, low, high = (
        math.expm1(end)
        for end in (statistics.median(differences), differences[cut - 1], differences[-cut])
    )
    state = state_of(low, high, bound.most)
    # No rounds can be added to the base, so the number that would be needed is not known.
    return replace(
        one, state=state, estimate=estimate, low=low, high=high, level=1 - ERROR / bounds,
        rounds_needed=None,
    )  # fmt: skip
