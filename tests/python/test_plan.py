"""Tests of the order of trials. A trial is one run of a workload under one allocator."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cairn.compare import plan

NAMES = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=6, unique=True)


@given(NAMES, st.integers(1, 1000), st.integers(0, 2**32))
def test_a_round_holds_every_contender_once(names: list[str], number: int, seed: int) -> None:
    trials = plan.one_round(number, names, seed)
    assert sorted(trial.contender for trial in trials) == sorted(names)
    assert [trial.position for trial in trials] == list(range(len(names)))
    assert {trial.round for trial in trials} == {number}


@given(NAMES, st.integers(1, 1000), st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_order_whatever_ran_before(
    names: list[str], number: int, seed: int
) -> None:
    assert plan.one_round(number, names, seed) == plan.one_round(number, names, seed)


def test_every_contender_is_first_equally_often() -> None:
    first = Counter(
        plan.one_round(number, ["a", "b", "c"], seed=7)[0].contender for number in range(1, 3001)
    )
    assert all(900 < count < 1100 for count in first.values()), first


def test_the_warm_up_counts_in_no_round_and_keeps_its_order() -> None:
    trials = list(plan.warm_up(["base", "other"], rounds=2))
    assert [trial.contender for trial in trials] == ["base", "other", "base", "other"]
    assert {trial.round for trial in trials} == {plan.WARM_UP}


def test_a_round_of_several_workloads_runs_each_at_a_stretch() -> None:
    orders = set()
    for number in range(1, 201):
        trials = plan.one_round(number, ["a", "b", "c"], seed=7, workloads=(0, 1, 2, 5))
        assert [trial.position for trial in trials] == list(range(12))
        stretches = [trials[at : at + 3] for at in range(0, 12, 3)]
        assert all(len({trial.workload for trial in stretch}) == 1 for stretch in stretches)
        assert all(
            {trial.contender for trial in stretch} == {"a", "b", "c"} for stretch in stretches
        )
        assert {stretch[0].workload for stretch in stretches} == {0, 1, 2, 5}
        orders.add(tuple(stretch[0].workload for stretch in stretches))
    assert len(orders) == 24  # all orders of four contenders


def test_each_workload_of_a_round_and_each_seed_has_an_order_of_its_own() -> None:
    def orders(seed: int, workload: int) -> list[str]:
        rounds = [
            plan.one_round(number, ["a", "b", "c", "d"], seed, workloads=(0, 1))
            for number in range(1, 101)
        ]
        return [
            "".join(trial.contender for trial in round_ if trial.workload == workload)
            for round_ in rounds
        ]

    first = orders(7, 0)
    for other in (orders(7, 1), orders(8, 0)):
        alike = sum(one == another for one, another in zip(first, other, strict=True))
        # There are 24 orders. So by chance, the two orders of a round are equal in about 4 of 100
        # rounds.
        assert alike < 20


def test_the_order_of_workloads_depends_on_the_seed() -> None:
    def orders(seed: int) -> list[tuple[int, ...]]:
        rounds = [
            plan.one_round(number, ["a"], seed, workloads=(0, 1, 2, 3)) for number in range(1, 101)
        ]
        return [tuple(trial.workload for trial in round_) for round_ in rounds]

    assert sum(one == another for one, another in zip(orders(7), orders(8), strict=True)) < 20


def test_the_order_of_a_stored_run_is_the_same_in_every_version() -> None:
    """A later version may continue an interrupted run, so the order must not change."""
    trials = plan.one_round(3, ["a", "b", "c"], seed=7, workloads=(0, 1, 2))
    assert (
        " ".join(f"{trial.workload}{trial.contender}" for trial in trials)
        == "0b 0a 0c 1b 1a 1c 2c 2a 2b"
    )


def test_the_warm_up_takes_workloads_one_after_the_other() -> None:
    trials = list(plan.warm_up(["a", "b"], 2, workloads=(3, 1)))
    cells = [(3, "a"), (3, "b"), (1, "a"), (1, "b")]
    assert [(trial.workload, trial.contender) for trial in trials] == cells * 2
    assert [trial.position for trial in trials] == list(range(8))


def test_a_contender_runs_only_on_its_own_workloads() -> None:
    only = {"b": (1,), "c": ()}
    rounds = plan.one_round(3, ["a", "b", "c"], seed=7, workloads=(0, 1), only=only)
    warming = list(plan.warm_up(["a", "b", "c"], 1, workloads=(0, 1), only=only))
    for trials in (rounds, warming):
        cells = sorted((trial.workload, trial.contender) for trial in trials)
        assert cells == [(0, "a"), (1, "a"), (1, "b")]
        assert [trial.position for trial in trials] == [0, 1, 2]
