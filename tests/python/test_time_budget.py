"""Tests of the time budget and of its sentences."""

from __future__ import annotations

import math
import time

import pytest

from cairn import units
from cairn.cli.options import parse_some_time
from cairn.run import time_budget
from cairn.run.time_budget import TimeBudget


def test_a_budget_counts_from_its_beginning() -> None:
    budget = TimeBudget(10.0, time.monotonic() - 4.0)
    assert budget.spent() == pytest.approx(4.0, abs=0.5)
    assert budget.left() == pytest.approx(6.0, abs=0.5)
    assert budget.has_room(5.0) and not budget.has_room(7.0)
    assert TimeBudget(10.0, time.monotonic() - 11.0).left() == 0.0


def test_without_a_budget_there_is_always_room() -> None:
    budget = TimeBudget(None, time.monotonic() - 1e6)
    assert budget.left() == math.inf and budget.has_room(1e9)


@pytest.mark.parametrize("seconds", [0.002, 0.9, 4.0, 54.0, 110.0, 119.0, 500.0, 7000.0, 90_000.0])
def test_an_advised_budget_is_long_enough_and_can_be_typed(seconds: float) -> None:
    advised = parse_some_time(units.budget(seconds))
    assert advised >= 1.1 * seconds
    assert advised <= max(2.1 * seconds, 5.0)


def test_the_sentence_of_a_budget_without_room_for_a_round() -> None:
    assert time_budget.no_round(5.0, 6.01, 12.1, 2, 6) == (
        "no round fits into the budget of 5 s: a run takes about 6.01 s, and a round has 2 "
        "runs. To show a difference takes at least 6 rounds and the warm-up, about 1 min 25 s: "
        "--budget 95s"
    )


def test_the_sentence_of_a_budget_with_too_few_rounds() -> None:
    assert time_budget.too_few_rounds(60.0, 20.0, 1, 7) == (
        "the budget of 1 min has room for about 1 round, and at least 7 are needed to show a "
        "difference: --budget 3min"
    )
    assert "about 3 rounds," in time_budget.too_few_rounds(60.0, 20.0, 3, 7)


def test_a_command_without_a_budget_is_advised_to_fix_the_rounds() -> None:
    """`cairn bench` was once advised to use --budget, which it does not have."""
    assert time_budget.no_round(5.0, 6.0, 12.0, 2, 6, fixed=True).endswith(" 24 s: -r 6")
    assert time_budget.too_few_rounds(60.0, 20.0, 1, 7, fixed=True).endswith("difference: -r 7")


def test_a_budget_below_a_second_is_not_called_0_s() -> None:
    assert "the budget of 1.00 ms:" in time_budget.no_round(0.001, 6.01, 12.1, 2, 6)
    assert "the budget of 1.50 s has room" in time_budget.too_few_rounds(1.5, 0.5, 2, 7)
