"""Simulates checks whose true change is known, and counts wrong and missing answers.

The simulation counts signed ranks for all series at once, since a check has up to 17 looks. A test
below compares its answers with those of `compare.gate`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from support.real_noise import deviations
from support.simulated_times import logs

from cairn.compare import gate, stats
from cairn.gate import Gate, GateBound
from cairn.model import StopRule

SEED = 4711
RULE = StopRule(min_rounds=gate.ROUNDS_LEAST, max_rounds=gate.ROUNDS_DEFAULT)
WORSE, PASS, OPEN = 1, -1, 0


def answers(
    differences: NDArray[np.float64], most: float, rule: StopRule = RULE, bounds: int = 1
) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Returns the answer to one bound and the rounds, for each series of log ratios."""
    series = len(differences)
    answer, rounds = np.zeros(series, dtype=int), np.full(series, rule.max_rounds)
    left = np.arange(series)
    for n in stats.look_rounds(rule):
        d = differences[left, :n] - math.log1p(most)
        ranks = np.argsort(np.argsort(np.abs(d), axis=1), axis=1) + 1
        negative = np.sum(ranks * (d < 0), axis=1)
        error = gate.ERROR_LAST if n == rule.max_rounds else gate.ERROR_EARLY
        cut = int(np.searchsorted(2 * stats.null_cdf(n), 2 * error / bounds, side="right"))
        found = np.where(negative < cut, WORSE, 0)
        found = np.where(n * (n + 1) // 2 - negative < cut, PASS, found)
        answer[left] = found
        rounds[left] = n
        left = left[found == OPEN]
    return answer, rounds


def ratios(series: int, noise: float, rounds: int = RULE.max_rounds) -> NDArray[np.float64]:
    """Returns log ratios of two equal programs under drift, heavy tails and disturbances."""
    runs = logs(SEED, series, rounds, 2, noise)
    return np.asarray(runs[:, :, 1] - runs[:, :, 0])


def real_ratios(program: str, aim: int, series: int) -> NDArray[np.float64]:
    """Returns log ratios of two equal programs, with the noise between two runs of one round."""
    of = deviations(program)[:, :, aim]
    random = np.random.default_rng(SEED)
    shape = (series, RULE.max_rounds)
    first = random.integers(of.shape[1], size=shape)
    second = (first + random.integers(1, of.shape[1], size=shape)) % of.shape[1]
    round_ = random.integers(of.shape[0], size=shape)
    return np.asarray(of[round_, second] - of[round_, first])


@pytest.mark.parametrize("seed", range(6))
def test_the_simulation_gives_the_answers_of_a_check(seed: int) -> None:
    noise, true, most = 0.03, (0.0, 0.03, 0.06)[seed % 3], 0.03
    random = np.random.default_rng(seed)
    rule = StopRule(min_rounds=12, max_rounds=94)
    one = random.normal(math.log1p(true), noise, rule.max_rounds)
    answer, rounds = answers(one[None, :], most, rule)
    asked = Gate((GateBound("time", most),))
    for n in stats.look_rounds(rule):
        look = gate.look({"time": one[:n].tolist()}, asked, rule)
        if look.stop:
            break
    assert n == rounds[0]
    error = gate.ERROR_LAST if n == rule.max_rounds else gate.ERROR_EARLY
    found = gate.change_of(one[:n].tolist(), error, 1)
    assert found is not None
    state = gate.state_of(found[1], found[2], most)
    assert (
        state
        is {WORSE: gate.GateState.WORSE, PASS: gate.GateState.PASS, OPEN: gate.GateState.OPEN}[
            int(answer[0])
        ]
    )


def test_equal_builds_are_called_worse_in_at_most_one_of_100_checks() -> None:
    # The hardest bound is 0 %, at which the true change lies on the bound.
    answer, _ = answers(ratios(1_500, 0.02), 0.0)
    assert np.mean(answer == WORSE) <= 0.01
    assert np.mean(answer == PASS) <= 0.01
    answer, rounds = answers(ratios(300, 0.02), 0.03)
    assert np.mean(answer == WORSE) == 0
    assert np.mean(answer == PASS) >= 0.99
    assert np.mean(rounds) < 60


def test_a_planted_change_is_found() -> None:
    for program in ("build", "gcc", "sqlite"):
        for aim, true, most in ((0, 0.05, 0.03), (2, 0.03, 0.02)):
            answer, _ = answers(real_ratios(program, aim, 200) + math.log1p(true), most)
            assert np.mean(answer == WORSE) >= 0.95, (program, aim)


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.005, 0.01, 0.02, 0.05, 0.1])
@pytest.mark.parametrize("most_rounds", [30, 94, 400, 2_000])
def test_no_noise_and_no_limit_makes_a_check_wrong_more_often(
    noise: float, most_rounds: int
) -> None:
    rule = StopRule(min_rounds=12, max_rounds=most_rounds)
    count = 8_000 if most_rounds <= 400 else 2_000
    answer, _ = answers(ratios(count, noise, most_rounds), 0.0, rule)
    slack = 2.6 * math.sqrt(0.01 * 0.99 / count)
    assert np.mean(answer == WORSE) <= 0.01 + slack
    assert np.mean(answer == PASS) <= 0.01 + slack
