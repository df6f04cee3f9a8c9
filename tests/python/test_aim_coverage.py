"""Simulates comparisons under each aim, and counts the recommendations that are false.

The noise is that of real programs, as in test_verdict_coverage.py. The rule that stops a comparison
is that of its aim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from support.comparisons import a_sample
from support.real_noise import deviations, most_by_chance

from cairn.compare import stats
from cairn.compare.comparison import compare, deciding_ratios
from cairn.memory import Memory
from cairn.model import Contender, Sample, StopRule
from cairn.verdict import Advice, Aim, Bound, Measure, Outcome, Verdict

Truth = tuple[float, float, float]
"""The true ratios of wall time, CPU time and memory to the baseline's."""

RULE = StopRule(max_rounds=60, budget_s=600)
"""The default of 200 rounds would make the long tests far longer, and they would show the same."""
LEAN = Aim(Measure.MEMORY)
LEAN_WITHIN_5 = Aim(Measure.MEMORY, (Bound(Measure.TIME, 0.05),))
FAST_WITHIN_5 = Aim(Measure.TIME, (Bound(Measure.MEMORY, 0.05),))
FRONT = Aim(pareto=True)
SHORT, LONG = 30, 400
SEED = 4711
BASE_NS, BASE_BYTES = 300e6, 50 << 20


def verdicts(program: str, count: int, truth: Mapping[str, Truth], aim: Aim) -> Iterator[Verdict]:
    """Yields the verdicts of `count` simulated comparisons with `system`.

    The contenders have the ratios `truth`, with the noise of a stored run of `program`.
    """
    rng = np.random.default_rng(SEED)
    real = deviations(program)
    names = ("system", *truth)
    logs_true = np.log(np.array([(1.0, 1.0, 1.0), *truth.values()]))
    known = [Contender(name, name, name) for name in names]
    for _ in range(count):
        rounds = rng.integers(len(real), size=RULE.max_rounds)
        chosen = rng.permuted(np.tile(np.arange(real.shape[1]), (RULE.max_rounds, 1)), axis=1)
        logs = real[rounds[:, None], chosen[:, : len(names)]] + logs_true
        samples: list[Sample] = []
        for done in stats.look_rounds(RULE):
            samples += [
                _sample(round_ + 1, name, *np.exp(logs[round_, place]))
                for round_ in range(len(samples) // len(names), done)
                for place, name in enumerate(names)
            ]
            if stats.look(deciding_ratios(samples, names, "system", aim), RULE).stop:
                break
        yield compare(samples, known, "system", RULE, aim=aim).judged


def _sample(round_: int, name: str, wall: float, cpu: float, peak: float) -> Sample:
    held = round(BASE_BYTES * peak)
    return a_sample(
        round_, name, wall * BASE_NS / 1e6, user_ns=round(cpu * BASE_NS), system_ns=0,
        memory=Memory("cgroup v2", held, held, 0),
    )  # fmt: skip


def wrongly_recommended(
    program: str, count: int, truth: Mapping[str, Truth], aim: Aim, *allowed: str
) -> int:
    """The number of comparisons that recommend a contender that is not allowed."""
    wrong = sum(
        any(name not in allowed for name in verdict.recommended)
        for verdict in verdicts(program, count, truth, aim)
    )
    print(f"{program}, {aim}: {wrong} false recommendations of {count}")
    return wrong


EQUAL = {"a": (1.0, 1.0, 1.0), "b": (1.0, 1.0, 1.0)}
"""With these ratios, no contender may be recommended by any goal."""
FALSE = {
    "time": (Aim(Measure.TIME), EQUAL),
    "cpu": (Aim(Measure.CPU_TIME), EQUAL),
    "memory": (LEAN, EQUAL),
    # Both are equal to the baseline in memory. They differ in time, which the goal does not use.
    "memory, not time": (LEAN, {"a": (0.8, 0.8, 1.0), "b": (0.9, 0.9, 1.0)}),
    # Both are better by the goal, but the bound allows a ratio of 1.05 only.
    "bound on time": (LEAN_WITHIN_5, {"a": (1.0501, 1.05, 0.8), "b": (1.0501, 1.05, 0.7)}),
    "bound on memory": (FAST_WITHIN_5, {"a": (0.8, 0.8, 1.0501), "b": (0.7, 0.7, 1.0501)}),
    # `a` does not reach the goal, and `b` exceeds the bound.
    "goal and bound": (LEAN_WITHIN_5, {"a": (1.0, 1.0, 1.0), "b": (1.0501, 1.05, 0.8)}),
}


def some(names: Iterable[str]) -> list[ParameterSet]:
    """Returns all names. Every other one is for the long tests."""
    return [
        pytest.param(name, marks=pytest.mark.long if place % 2 else [])
        for place, name in enumerate(names)
    ]


def check_false(name: str, program: str, count: int) -> None:
    aim, truth = FALSE[name]
    assert wrongly_recommended(program, count, truth, aim) <= most_by_chance(count)


@pytest.mark.parametrize("name", some(FALSE))
def test_a_false_recommendation_is_rare_under_each_aim(name: str) -> None:
    check_false(name, "sqlite", SHORT)


@pytest.mark.long
@pytest.mark.parametrize("program", ["gcc", "records", "redis", "sqlite"])
@pytest.mark.parametrize("name", FALSE)
def test_of_400_comparisons_at_most_28_recommend_falsely(name: str, program: str) -> None:
    if len(FALSE[name][1]) + 1 > deviations(program).shape[1]:
        pytest.skip("the stored run has fewer contenders")
    check_false(name, program, LONG)


def false_fronts(program: str, count: int, truth: Mapping[str, Truth]) -> int:
    """The number of comparisons whose statements on the front are not all true.

    One contender beats another if it is not worse in either measure and better in one. Differences
    within the margin do not count.
    """
    points = {"system": (1.0, 1.0)} | {name: (one[0], one[2]) for name, one in truth.items()}
    wrong = 0
    for verdict in verdicts(program, count, truth, FRONT):
        front = verdict.front
        assert front is not None
        least = 1 - verdict.margin
        beaten_falsely = any(
            any(points[one.by][i] / points[one.contender][i] > 1 / least for i in (0, 1))
            or all(points[one.by][i] >= points[one.contender][i] for i in (0, 1))
            for one in front.beaten
        )
        certain_falsely = any(
            all(points[other][i] / points[name][i] < least for i in (0, 1))
            for name in front.certain
            for other in points
            if other != name
        )
        wrong += beaten_falsely or certain_falsely
    print(f"{program}, the front of {sorted(points.values())}: {wrong} false of {count}")
    return wrong


FRONTS: dict[str, Mapping[str, Truth]] = {
    "equal": EQUAL,
    "a trade": {"a": (0.95, 0.95, 1.05), "b": (1.05, 1.05, 0.95)},
    # In both measures, `a` is a little more than the margin better than `system`, and `b` than `a`.
    # So only `b` is certainly on the front.
    "a little better": {"a": (0.985, 0.985, 0.985), "b": (0.97, 0.97, 0.97)},
    "equal in memory": {"a": (0.9, 0.9, 1.0), "b": (0.8, 0.8, 1.0)},
}


@pytest.mark.parametrize("name", some(FRONTS))
def test_a_false_front_is_rare(name: str) -> None:
    assert false_fronts("sqlite", SHORT, FRONTS[name]) <= most_by_chance(SHORT)


@pytest.mark.long
@pytest.mark.parametrize("program", ["gcc", "records", "redis", "sqlite"])
@pytest.mark.parametrize("name", FRONTS)
def test_of_400_fronts_at_most_28_are_false(name: str, program: str) -> None:
    if len(FRONTS[name]) + 1 > deviations(program).shape[1]:
        pytest.skip("the stored run has fewer contenders")
    assert false_fronts(program, LONG, FRONTS[name]) <= most_by_chance(LONG)


def share_found(program: str, count: int, aim: Aim) -> float:
    """The share of comparisons that recommend a contender with 5 % less memory, and equal time."""
    found = sum(
        verdict.recommended == ("planted",)
        for verdict in verdicts(program, count, {"planted": (1.0, 1.0, 0.95)}, aim)
    )
    print(f"{program}, {aim}: {found} of {count} find 5 % less memory")
    return found / count


def test_five_percent_less_memory_is_found() -> None:
    assert share_found("sqlite", 40, LEAN) >= 0.9


@pytest.mark.long
@pytest.mark.parametrize("program", ["gcc", "records", "redis", "sqlite"])
def test_five_percent_less_memory_is_found_in_nine_of_ten_comparisons(program: str) -> None:
    assert share_found(program, 200, LEAN) >= 0.9


def test_a_contender_that_exceeds_the_bound_is_named_and_not_recommended() -> None:
    for verdict in verdicts("sqlite", 10, {"lean": (1.5, 1.5, 0.7)}, LEAN_WITHIN_5):
        (advice,) = verdict.measured
        assert advice.advice is Advice.KEEP and advice.too_dear == ("lean",)
        assert verdict.recommended == ()


def test_a_contender_that_is_clearly_within_the_bound_is_recommended() -> None:
    for verdict in verdicts("sqlite", 10, {"lean": (0.9, 0.9, 0.7)}, LEAN_WITHIN_5):
        assert verdict.recommended == ("lean",)


def test_an_aim_changes_no_effect() -> None:
    truth = {"a": (0.9, 0.9, 1.2), "b": (1.1, 1.1, 0.8)}
    names = ("system", *truth)
    samples = [
        _sample(round_, name, *(part * (1 + 0.001 * ((round_ * 7 + place) % 5)) for part in parts))
        for round_ in range(1, 21)
        for place, (name, parts) in enumerate([("system", (1.0, 1.0, 1.0)), *truth.items()])
    ]
    known = [Contender(name, name, name) for name in names]
    plain = compare(samples, known, "system", RULE).judged
    for aim in (LEAN, LEAN_WITHIN_5, FAST_WITHIN_5, FRONT):
        other = compare(samples, known, "system", RULE, aim=aim).judged
        assert other.judgements == plain.judgements
    assert plain.judgements[0].effect(Measure.TIME).outcome is Outcome.BETTER
