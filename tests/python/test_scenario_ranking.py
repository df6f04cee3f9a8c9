"""Tests of the ranking of scenarios: points, medians over runs, and ratios with intervals."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from support.suites import a_run_of, a_suite, reported

from cairn.compare.ranking import Entry, Rank, Ranking, Scenario, matrix, ranking
from cairn.model import Run, Sample, StopRule

FIVE = ("system", "jemalloc", "mimalloc", "ours", "ours-learning")
FOUR = ("JSON", "MIR", "VM", "MIXED")


def measured(run: Run, medians: dict[tuple[int, str], float], rounds: int = 8) -> list[Sample]:
    """Returns samples whose reported medians scatter a little around `medians`, in ns.

    The reported P95, P99 and page faults follow from each median.
    """
    result = []
    for round_ in range(1, rounds + 1):
        for place, ((workload, name), ns) in enumerate(medians.items()):
            wobble = 1 + 0.002 * math.sin(7 * round_ + place)
            sample = a_run_of(workload, name, round_, 100.0)
            result.append(
                replace(sample, reported=reported(ns * wobble * (1 + 0.1 * (round_ % 2))))
            )
    return result


def founding() -> tuple[Run, list[Sample]]:
    """Five contenders in four scenarios.

    mimalloc is the fastest in each. The order of the others differs between the scenarios.
    """
    run = a_suite(FOUR, FIVE, rounds=8)
    orders = [
        ("mimalloc", "ours", "ours-learning", "jemalloc", "system"),
        ("mimalloc", "ours-learning", "jemalloc", "ours", "system"),
        ("mimalloc", "jemalloc", "ours", "ours-learning", "system"),
        ("mimalloc", "ours", "ours-learning", "system", "jemalloc"),
    ]
    return run, measured(
        run,
        {
            (w, name): 100.0 * 1.5**place
            for w, order in enumerate(orders)
            for place, name in enumerate(order)
        },
    )


def entry(scenario: Scenario, name: str) -> Entry:
    return next(entry for entry in scenario.entries if entry.contender == name)


def rank(found: Ranking, name: str) -> Rank:
    return next(rank for rank in found.ranks if rank.contender == name)


def test_five_contenders_get_5_4_3_2_1_by_median() -> None:
    found = ranking(*founding())
    assert found.scenarios[0].entries[0].contender == "mimalloc"
    assert [e.points for e in found.scenarios[0].entries] == [5, 4, 3, 2, 1]
    assert {r.contender: r.points for r in found.ranks} == {
        "mimalloc": 20, "ours": 13, "ours-learning": 12, "jemalloc": 10, "system": 5,
    }  # fmt: skip
    assert [r.contender for r in found.ranks] == [
        "mimalloc",
        "ours",
        "ours-learning",
        "jemalloc",
        "system",
    ]


def test_points_never_come_without_a_ratio_and_its_interval() -> None:
    found = ranking(*founding())
    for place in found.ranks:
        assert place.ratio is not None
        assert place.ratio.interval is not None
    assert found.ranks[0].ratio.estimate == pytest.approx(1.0)  # type: ignore[union-attr]
    assert rank(found, "system").ratio.estimate == pytest.approx(1.5 ** (15 / 4), rel=0.01)  # type: ignore[union-attr]


def test_figures_are_medians_over_runs_of_what_each_run_reports() -> None:
    run = a_suite(("JSON",), ("system", "ours"))
    samples = []
    for round_, ns in enumerate((10.0, 11.0, 500.0), 1):
        samples.append(
            replace(
                a_run_of(0, "system", round_, 1.0), reported=reported(ns, p95_ns=2 * ns, p99_ns=9.0)
            )
        )
        samples.append(replace(a_run_of(0, "ours", round_, 1.0), reported=reported(ns / 2)))
    (scenario,) = ranking(run, samples).scenarios
    found = entry(scenario, "system")
    assert (found.median_ns, found.p95_ns, found.p99_ns, found.faults) == (11.0, 22.0, 9.0, 0.025)
    assert found.median_ratio.estimate == pytest.approx(2.0)  # type: ignore[union-attr]
    assert scenario.rounds == 3


def test_the_ratio_is_paired_within_rounds() -> None:
    (scenario, *_) = ranking(*founding()).scenarios
    second = scenario.entries[1].median_ratio
    assert second is not None
    assert second.interval is not None
    assert second.estimate == pytest.approx(1.5, rel=0.01)
    assert second.interval.high / second.interval.low < 1.02, (
        "rounds differ by 10 %, the paired ratio does not"
    )


def test_two_contenders_without_a_shown_difference_are_marked() -> None:
    run = a_suite(("JSON",), ("a", "b", "c"))
    samples = []
    for round_ in range(1, 9):
        for name, ns in (
            ("a", 100 + 5 * math.sin(3 * round_)),
            ("b", 101 + 5 * math.cos(5 * round_)),
            ("c", 200.0),
        ):
            samples.append(replace(a_run_of(0, name, round_, 1.0), reported=reported(ns)))
    found = ranking(run, samples)
    first, second, third = found.ranks
    assert first.over_above is None
    assert second.over_above is not None
    assert not second.over_above.more
    assert third.over_above is not None
    assert third.over_above.more
    assert found.scenarios[0].entries[2].over_above.more  # type: ignore[union-attr]


def test_equal_medians_share_their_points() -> None:
    run = a_suite(("JSON",), ("a", "b", "c"))
    samples = [
        replace(a_run_of(0, name, round_, 1.0), reported=reported(ns))
        for round_ in (1, 2, 3)
        for name, ns in (("a", 10.0), ("b", 10.0), ("c", 30.0))
    ]
    (scenario,) = ranking(run, samples).scenarios
    assert [e.points for e in scenario.entries] == [2.5, 2.5, 1]


def test_a_failed_contender_gets_no_points_and_the_others_keep_theirs() -> None:
    run, samples = founding()
    broken = [
        replace(s, failure="printed another checksum")
        if (s.trial.workload, s.trial.contender) == (2, "mimalloc")
        else s
        for s in samples
    ]
    found = ranking(run, broken)
    failed = entry(found.scenarios[2], "mimalloc")
    assert (failed.points, failed.median_ns, failed.failure) == (
        None,
        None,
        "printed another checksum",
    )
    assert [e.points for e in found.scenarios[2].entries] == [5, 4, 3, 2, None]
    last = found.ranks[-1]
    assert (last.contender, last.points, last.ratio, last.failed_on) == (
        "mimalloc",
        None,
        None,
        ("VM",),
    )


def test_a_run_that_reports_nothing_has_no_figures() -> None:
    run, samples = founding()
    found = ranking(run, [replace(s, reported=None) for s in samples])
    assert {e.points for s in found.scenarios for e in s.entries} == {None}
    assert {r.points for r in found.ranks} == {None}


def test_one_run_gives_figures_without_intervals() -> None:
    run, samples = founding()
    found = ranking(run, [s for s in samples if s.trial.round == 1])
    assert found.ranks[0].points == 20
    assert found.ranks[1].ratio is not None
    assert found.ranks[1].ratio.interval is None


def test_the_matrix_compares_one_contender_with_each_other_one() -> None:
    run, samples = founding()
    found = matrix(run, samples, "ours")
    assert found.others == ("system", "jemalloc", "mimalloc", "ours-learning")
    assert found.cells[0, "mimalloc"].estimate == pytest.approx(1.5, rel=0.01)
    assert found.cells[0, "mimalloc"].more
    assert found.cells[0, "system"].estimate == pytest.approx(1.5**-3, rel=0.01)
    assert found.cells[0, "system"].less
    assert found.means["mimalloc"].estimate == pytest.approx(1.5 ** ((1 + 3 + 2 + 1) / 4), rel=0.01)


def test_the_matrix_leaves_out_failed_contenders() -> None:
    run, samples = founding()
    broken = [
        replace(s, failure="died") if (s.trial.workload, s.trial.contender) == (1, "system") else s
        for s in samples
    ]
    found = matrix(run, broken, "ours")
    assert (1, "system") not in found.cells
    assert "system" not in found.means
    assert (0, "system") in found.cells


def test_two_contenders_are_enough_for_a_matrix_and_one_is_not_for_a_ratio() -> None:
    run = a_suite(("JSON",), ("a", "b"))
    samples = measured(run, {(0, "a"): 10.0, (0, "b"): 20.0})
    assert matrix(run, samples, "b").cells[0, "a"].estimate == pytest.approx(2.0, rel=0.01)
    alone = [replace(s, failure="died") if s.trial.contender == "b" else s for s in samples]
    (scenario,) = ranking(run, alone).scenarios
    assert (entry(scenario, "a").median_ratio, entry(scenario, "a").points) == (None, 2)
    assert matrix(run, alone, "b").cells == {}


def test_a_run_that_may_stop_early_has_stricter_intervals() -> None:
    run, samples = founding()
    assert ranking(run, samples).level == pytest.approx(0.95)
    assert ranking(replace(run, rule=StopRule()), samples).level == pytest.approx(0.96)
