"""Order of trials."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cairn import plan

NAMES = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=6, unique=True)


@given(NAMES, st.integers(1, 1000), st.integers(0, 2**32))
def test_a_block_holds_every_contender_once(names: list[str], number: int, seed: int) -> None:
    trials = plan.block(number, names, seed)
    assert sorted(trial.contender for trial in trials) == sorted(names)
    assert [trial.position for trial in trials] == list(range(len(names)))
    assert {trial.block for trial in trials} == {number}


@given(NAMES, st.integers(1, 1000), st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_order_whatever_ran_before(names: list[str], number: int, seed: int) -> None:
    assert plan.block(number, names, seed) == plan.block(number, names, seed)


def test_every_contender_is_first_equally_often() -> None:
    first = Counter(plan.block(number, ["a", "b", "c"], seed=7)[0].contender for number in range(1, 3001))
    assert all(900 < count < 1100 for count in first.values()), first


def test_the_warm_up_counts_in_no_block_and_keeps_its_order() -> None:
    trials = list(plan.warm_up(["base", "other"], rounds=2))
    assert [trial.contender for trial in trials] == ["base", "other", "base", "other"]
    assert {trial.block for trial in trials} == {plan.WARM_UP}
