"""Simulates comparisons with known true differences, and checks those that stop early.

The tests vary the noise (support/simulated_times.py). With the least noise, a comparison is precise
at its first look. With the most noise, a comparison runs to the maximum of rounds. With noise
between these, chance decides at several looks whether a comparison stops. Each such look adds some
error. So most errors happen with noise in the middle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from support.simulated_times import logs

from cairn.compare import stats
from cairn.model import Shown, StopRule

SEED = 4711
SERIES = 1_000
RULE = StopRule()


@dataclass(frozen=True)
class Outcome:
    """Shares and means over all series, or over all contenders in all series."""

    coverage: float
    """Share of the contenders' intervals that contain the truth."""
    false_winners: float
    """Share of series in which some contender without an effect is called faster or slower."""
    false_equivalents: float
    """Share of contenders outside the margin that are called equivalent."""
    width: float
    """Mean length of an interval, divided by that of the plain 95 % interval of the same rounds."""
    rounds: float
    """Mean number of rounds of a series."""


def simulate(
    effects: tuple[float, ...],
    noise: float,
    rule: StopRule = RULE,
    series: int = SERIES,
    *,
    mixed: bool = True,
) -> Outcome:
    """Lets every series run until the rule stops it.

    `effects` holds the relative change of each contender against the baseline.
    """
    runs = logs(SEED, series, rule.max_rounds, len(effects) + 1, noise, mixed=mixed)
    differences = runs[:, :, 1:] - runs[:, :, :1] + np.log1p(effects)
    covered = winners = equivalents = total_rounds = 0
    widths = []
    for one in differences:
        for rounds in stats.look_rounds(rule):
            ratios = {str(i): one[:rounds, i].tolist() for i in range(len(effects))}
            if stats.look(ratios, rule).stop:
                break
        total_rounds += rounds
        wrong = False
        for change, effect, d in zip(
            stats.changes(ratios, stats.alpha(rule), rule.margin).values(),
            effects,
            ratios.values(),
            strict=True,
        ):
            plain = stats.SignedRank.of(d).interval(stats.ALPHA)
            assert change.interval is not None
            assert plain is not None
            covered += change.interval.low <= effect <= change.interval.high
            wrong |= effect == 0 and change.shown in (Shown.LESS, Shown.MORE)
            equivalents += abs(effect) > rule.margin and change.shown is Shown.EQUIVALENT
            width = change.interval.high - change.interval.low
            widths.append(width / (math.expm1(plain.high) - math.expm1(plain.low)))
        winners += wrong
    intervals = series * len(effects)
    return Outcome(
        coverage=covered / intervals,
        false_winners=winners / series,
        false_equivalents=equivalents / intervals,
        width=float(np.mean(widths)),
        rounds=total_rounds / series,
    )


def most(series: int) -> float:
    """Returns a bound on the share of errors among `series` series.

    If each series has an error with a probability of 5 %, the share exceeds the bound in less than
    2.5 % of all cases.
    """
    return 0.05 + 1.96 * math.sqrt(0.05 * 0.95 / series)


def report(case: str, outcome: Outcome) -> None:
    """Prints a line of the table in docs/decisions/0002-stop-early-only-at-99-7-percent.md.

    `pytest -s` shows these lines.
    """
    print(
        f"{case}: coverage {outcome.coverage:.1%}, false winners {outcome.false_winners:.1%}, "
        f"width {outcome.width:.2f}, rounds {outcome.rounds:.1f}"
    )


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(0.004, marks=pytest.mark.long),
        pytest.param(0.008, marks=pytest.mark.long),
        0.012,
        pytest.param(0.016, marks=pytest.mark.long),
        pytest.param(0.03, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("effects", [(0.0,), pytest.param((0.0, 0.0), marks=pytest.mark.long)])
def test_equal_allocators_seldom_get_a_winner(effects: tuple[float, ...], noise: float) -> None:
    outcome = simulate(effects, noise)
    report(f"equal, {len(effects)} contenders, noise {noise:.1%}", outcome)
    assert outcome.false_winners <= most(SERIES)
    assert outcome.coverage >= 0.93
    assert outcome.width <= 1.3


@pytest.mark.parametrize("noise", [pytest.param(0.006, marks=pytest.mark.long), 0.014])
@pytest.mark.parametrize(
    "effects",
    [
        pytest.param((-0.005,), marks=pytest.mark.long),
        pytest.param((0.01,), marks=pytest.mark.long),
        (-0.02,),
        pytest.param((0.05,), marks=pytest.mark.long),
        pytest.param((0.0, -0.02), marks=pytest.mark.long),
        (-0.02, -0.03),
    ],
)
def test_intervals_cover_the_truth_when_there_is_a_difference(
    effects: tuple[float, ...], noise: float
) -> None:
    outcome = simulate(effects, noise)
    report(f"effects {effects}, noise {noise:.1%}", outcome)
    assert outcome.coverage >= 0.93
    assert outcome.width <= 1.3
    assert outcome.false_winners <= most(SERIES)


@pytest.mark.parametrize("noise", [0.004, 0.008])
def test_equivalence_is_seldom_claimed_of_a_difference_beyond_the_margin(noise: float) -> None:
    outcome = simulate((0.0101,), noise)
    assert outcome.false_equivalents <= most(SERIES)


def test_repeated_looks_at_the_ordinary_level_give_false_winners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulation must notice the wrong rule that early looks are as strict as the last look.

    Each look is a chance for a false winner, so early looks must be stricter.
    """
    monkeypatch.setattr(stats, "ALPHA_STOPPED", 0.05)
    monkeypatch.setattr(stats, "ALPHA_EARLY", 0.05)
    outcome = simulate((0.0,), 0.012)
    report("equal, unpaid looks", outcome)
    assert outcome.false_winners > 0.08


def test_all_of_a_then_all_of_b_gives_false_winners() -> None:
    """Drift causes false winners unless the order within each round is random.

    Both series have equally many runs, so the number of runs is not the reason.
    """
    rule = StopRule(precision=None, max_rounds=30)
    apart = simulate((0.0,), 0.01, rule, mixed=False)
    mixed = simulate((0.0,), 0.01, rule)
    report("equal, all of A then all of B", apart)
    report("equal, random rounds", mixed)
    assert apart.false_winners > 0.10
    assert mixed.false_winners <= most(SERIES)


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.002, 0.004, 0.006, 0.009, 0.012, 0.014, 0.016, 0.02, 0.05])
@pytest.mark.parametrize("contenders", [1, 2, 5])
@pytest.mark.parametrize(
    "rule", [RULE, StopRule(precision=0.005, max_rounds=200), StopRule(precision=0.02)]
)
def test_coverage_holds_for_more_contenders_rules_and_series(
    rule: StopRule, contenders: int, noise: float
) -> None:
    outcome = simulate((0.0,) * contenders, noise, rule, series=5_000)
    report(
        f"equal, {contenders} contenders, precision {rule.precision}, noise {noise:.1%}", outcome
    )
    assert outcome.false_winners <= most(5_000)
    assert outcome.coverage >= 0.93
