"""Tests of the standings: ratios to the best contender of each workload, and their means."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from msgspec.structs import replace
from support.suites import ALLOCATORS, MIB, WORKLOADS, a_run_of, a_suite, exact, lively

from cairn.compare import ratios
from cairn.compare.standings import LARGE_BYTES, Place, Standings, standings
from cairn.memory import Memory
from cairn.model import Interval, Run, Sample, StopRule

THREE = ("system", "fast", "slow")


def named(found: Standings, name: str) -> Place:
    return next(place for place in found.places if place.contender == name)


def simple() -> tuple[Run, list[Sample]]:
    """Returns a run of two workloads. `fast` is best on the first, and `system` on the second."""
    run = a_suite(("w0", "w1"), THREE)
    times = {(0, "system"): 100.0, (0, "fast"): 50.0, (0, "slow"): 200.0}
    times |= {(1, "system"): 100.0, (1, "fast"): 200.0, (1, "slow"): 300.0}
    return run, exact(run, times)


def fail(sample: Sample, sentence: str = "was killed by signal 11") -> Sample:
    return replace(sample, failure=sentence)


class TestCells:
    def test_a_cell_is_the_ratio_to_the_best_of_its_workload(self) -> None:
        found = standings(*simple())
        estimates = {key: cell.time.estimate for key, cell in found.cells.items() if cell.time}
        assert estimates[0, "slow"] == pytest.approx(4.0)
        assert estimates[0, "system"] == pytest.approx(2.0)
        assert estimates[1, "fast"] == pytest.approx(2.0)
        assert (estimates[0, "fast"], estimates[1, "system"]) == (1.0, 1.0)
        assert [contest.best_time for contest in found.contests] == ["fast", "system"]

    def test_a_round_that_is_slow_for_all_contenders_adds_no_noise(self) -> None:
        found = standings(*simple())
        interval = found.cells[0, "slow"].time.interval  # type: ignore[union-attr]
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx((4.0, 4.0))
        assert found.contests[0].half_width == pytest.approx(0.0, abs=1e-9)

    def test_one_wild_run_hardly_moves_a_cell(self) -> None:
        run, samples = simple()
        calm = standings(run, samples).cells[0, "slow"].time
        wild = [replace(s,
        wall_ns=30 * s.wall_ns) if s.trial.round == 4 and s.trial.contender == "slow" else s
                for s in samples]  # fmt: skip
        moved = standings(run, wild).cells[0, "slow"].time
        assert calm is not None
        assert moved is not None
        assert moved.estimate == pytest.approx(calm.estimate, rel=0.001)

    def test_deliberate_sleep_does_not_count_as_time(self) -> None:
        run, samples = simple()
        slept = [
            replace(s, wall_ns=s.wall_ns + 10**9, reported=replace(s.reported, idle_ns=10**9))
            for s in samples
        ]  # type: ignore[type-var]
        assert (
            standings(run, slept).cells[0, "slow"].time
            == standings(run, samples).cells[0, "slow"].time
        )

    def test_one_round_gives_estimates_without_intervals(self) -> None:
        run, samples = simple()
        found = standings(run, [s for s in samples if s.trial.round == 1])
        assert found.cells[0, "slow"].time == ratios.Ratio(pytest.approx(4.0), None, best=False)
        place = named(found, "slow")
        assert place.time is not None
        assert place.time.interval is None
        assert place.over_above is not None
        assert not place.over_above.more
        assert found.contests[0].half_width is None

    @pytest.mark.parametrize("rounds", [2, 5, 6])
    def test_equal_numbers_have_an_interval_once_there_are_enough_rounds(self, rounds: int) -> None:
        run = a_suite(("w",), ("a", "b"))
        walls = {"a": 100, "b": 110}
        samples = [
            a_run_of(0, name, round_, wall)
            for name, wall in walls.items()
            for round_ in range(1, rounds + 1)
        ]
        ratio = standings(run, samples).cells[0, "b"].time
        assert ratio is not None and ratio.estimate == pytest.approx(1.1)
        assert (ratio.interval is None) == (rounds < 6)

    def test_the_best_has_an_interval_when_another_contender_is_close(self) -> None:
        run = a_suite(("w",), ("a", "b"))
        walls = {"a": (100, 104, 98, 101), "b": (101, 102, 99, 102)}
        samples = [
            a_run_of(0, name, round_, wall)
            for name, of in walls.items()
            for round_, wall in enumerate(of, 1)
        ]
        found = standings(run, samples)
        for name in ("a", "b"):
            ratio = found.cells[0, name].time
            assert ratio is not None
            assert ratio.interval is not None
            assert ratio.interval.low == 1.0
            assert ratio.interval.high > 1.001

    def test_no_ratio_to_the_best_is_below_one(self) -> None:
        run = a_suite(WORKLOADS, ALLOCATORS)
        found = standings(run, lively(run))
        all_ratios = [
            ratio for cell in found.cells.values() for ratio in (cell.time, cell.memory) if ratio
        ]
        all_ratios += [
            r for p in found.places for r in (p.time, p.memory, p.memory_large, p.memory_small) if r
        ]
        for ratio in all_ratios:
            assert ratio.interval is not None
            assert 1 <= ratio.interval.low <= ratio.estimate <= ratio.interval.high

    def test_rounds_that_are_not_complete_do_not_count(self) -> None:
        run, samples = simple()
        extra = [a_run_of(0, "system", 7, 1.0)]
        assert standings(run, [*samples, *extra]) == standings(run, samples)


class TestMeans:
    def test_the_mean_is_geometric_over_all_workloads(self) -> None:
        found = standings(*simple())
        assert named(found, "slow").time.estimate == pytest.approx(math.sqrt(4 * 3))  # type: ignore[union-attr]
        assert named(found, "system").time.estimate == pytest.approx(math.sqrt(2))  # type: ignore[union-attr]
        assert found.time_over == (0, 1)
        assert [place.contender for place in found.places][-1] == "slow"

    def test_a_difference_to_the_next_place_is_marked_only_if_it_is_shown(self) -> None:
        run = a_suite(("w",), ("a", "b", "c"))
        walls = {
            "a": (100, 104, 98, 101, 99, 103),
            "b": (101, 102, 99, 102, 98, 104),
            "c": (150, 151, 149, 155, 152, 150),
        }
        samples = [
            a_run_of(0, name, round_, wall)
            for name, of in walls.items()
            for round_, wall in enumerate(of, 1)
        ]
        places = standings(run, samples).places
        assert places[0].over_above is None
        assert places[1].over_above is not None
        assert not places[1].over_above.more
        assert places[2].over_above is not None
        assert places[2].over_above.more

    def test_a_contender_that_failed_has_no_mean_and_does_not_change_the_others(self) -> None:
        run, samples = simple()
        broken = [
            fail(s)
            if (s.trial.workload, s.trial.contender) == (1, "slow") and s.trial.round == 1
            else s
            for s in samples
            if (s.trial.workload, s.trial.contender) != (1, "slow") or s.trial.round == 1
        ]
        before, found = standings(run, samples), standings(run, broken)
        slow = found.places[-1]
        assert (slow.contender, slow.time, slow.memory, slow.failed_on) == (
            "slow",
            None,
            None,
            ("w1",),
        )
        assert found.cells[1, "slow"].failure == "was killed by signal 11"
        assert found.cells[1, "slow"].time is None
        assert found.cells[0, "slow"].time == before.cells[0, "slow"].time
        assert named(found, "fast").time == named(before, "fast").time
        assert found.contests[1].rounds == 6

    def test_a_failure_while_warming_up_is_a_failure(self) -> None:
        run, samples = simple()
        cold = replace(fail(samples[0]), trial=replace(samples[0].trial, round=0, contender="slow"))
        assert named(standings(run, [*samples, cold]), "slow").failed_on == ("w0",)

    def test_the_best_can_be_one_that_has_no_mean(self) -> None:
        run, samples = simple()
        broken = [
            fail(s) if (s.trial.workload, s.trial.contender) == (1, "fast") else s for s in samples
        ]
        found = standings(run, broken)
        assert found.contests[0].best_time == "fast"
        assert named(found, "system").time.estimate == pytest.approx(math.sqrt(2))  # type: ignore[union-attr]

    def test_a_workload_that_only_one_contender_completed_has_no_ratio(self) -> None:
        run, samples = simple()
        broken = [
            fail(s) if s.trial.workload == 1 and s.trial.contender != "system" else s
            for s in samples
        ]
        found = standings(run, broken)
        assert found.time_over == (0,)
        assert found.cells[1, "system"].time is None
        assert found.cells[1, "system"].time_ns == pytest.approx(130e6)
        assert found.contests[1].memory_missing == "fewer than two contenders completed it"

    def test_workloads_weigh_the_same_whatever_their_rounds(self) -> None:
        run, samples = simple()
        found = standings(run, [s for s in samples if s.trial.workload == 0 or s.trial.round <= 3])
        assert [contest.rounds for contest in found.contests] == [6, 3]
        assert named(found, "slow").time.estimate == pytest.approx(math.sqrt(4 * 3))  # type: ignore[union-attr]

    def test_a_run_without_samples_has_no_standings(self) -> None:
        run, _ = simple()
        found = standings(run, [])
        assert {place.time for place in found.places} == {None}
        assert {contest.memory_missing for contest in found.contests} == {"no complete round"}
        assert found.time_over == ()

    def test_a_run_that_may_stop_early_has_stricter_intervals(self) -> None:
        run, samples = simple()
        assert standings(run, samples).level == pytest.approx(0.95)
        assert standings(replace(run, rule=StopRule()), samples).level == pytest.approx(0.96)


class TestMemory:
    def test_the_peak_of_the_leanest_contender_decides_if_a_program_is_large(self) -> None:
        run = a_suite(("large", "small"), ("lean", "fat"))
        peaks = {
            (0, "lean"): 30 * MIB,
            (0, "fat"): 60 * MIB,
            (1, "lean"): 15 * MIB,
            (1, "fat"): 60 * MIB,
        }
        samples = [
            a_run_of(workload, name, round_, 100.0, peak)
            for (workload, name), peak in peaks.items()
            for round_ in range(1, 5)
        ]
        found = standings(run, samples)
        fat = named(found, "fat")
        assert [contest.large for contest in found.contests] == [True, False]
        assert fat.memory_large.estimate == pytest.approx(2.0)  # type: ignore[union-attr]
        assert fat.memory_small.estimate == pytest.approx(4.0)  # type: ignore[union-attr]
        assert fat.memory.estimate == pytest.approx(math.sqrt(8))  # type: ignore[union-attr]

    def test_a_program_is_large_from_the_limit_on(self) -> None:
        run = a_suite(("at the limit", "below it"), ("lean", "fat"))
        leanest = {0: LARGE_BYTES, 1: LARGE_BYTES - 1}
        samples = [
            a_run_of(workload, name, round_, 100.0, peak * times)
            for workload, peak in leanest.items()
            for name, times in (("lean", 1), ("fat", 3))
            for round_ in range(1, 5)
        ]
        found = standings(run, samples)
        assert [contest.large for contest in found.contests] == [True, False]
        assert (found.large_over, found.small_over, found.memory_over) == ((0,), (1,), (0, 1))

    def test_a_cell_has_a_ratio_in_memory_and_a_contest_the_method_of_measuring(self) -> None:
        run = a_suite(("w",), ("lean", "fat"))
        peaks = {"lean": (30, 31, 29, 30), "fat": (90, 92, 89, 91)}
        samples = [
            a_run_of(0, name, round_, 100.0, peak * MIB)
            for name, of in peaks.items()
            for round_, peak in enumerate(of, 1)
        ]
        found = standings(run, samples)
        assert found.cells[0, "fat"].memory.estimate == pytest.approx(3.03, rel=0.02)  # type: ignore[union-attr]
        (contest,) = found.contests
        assert (contest.memory_method, contest.memory_missing) == (samples[0].memory.method, None)
        assert contest.memory_half_width is not None
        assert 0.01 < contest.memory_half_width < 0.1

    @pytest.mark.parametrize("lean", THREE)
    def test_the_leanest_has_the_least_mean_in_memory(self, lean: str) -> None:
        run, samples = simple()
        peaks = {name: (50 if name == lean else 100) * MIB for name in THREE}
        memories = {name: Memory("cgroup v2", peak, peak, 0) for name, peak in peaks.items()}
        assert (
            standings(
                run, [replace(s, memory=memories[s.trial.contender]) for s in samples]
            ).leanest
            == lean
        )

    def test_without_memory_there_is_no_leanest(self) -> None:
        run, samples = simple()
        found = standings(
            run, [replace(s, memory=Memory("not measured", None, None, None)) for s in samples]
        )
        assert found.leanest is None
        assert {contest.memory_missing for contest in found.contests} == {"not measured"}

    def test_two_ways_of_measuring_are_not_compared(self) -> None:
        run, samples = simple()
        mixed = [
            replace(s, memory=replace(s.memory, method="sampled"))
            if (s.trial.workload, s.trial.contender) == (0, "fast")
            else s
            for s in samples
        ]
        found = standings(run, mixed)
        assert found.cells[0, "slow"].memory is None
        assert found.memory_over == (1,)
        assert found.contests[0].memory_missing == "measured in different ways (cgroup v2, sampled)"
        assert found.contests[0].large is None

    def test_memory_is_not_compared_if_one_contender_was_not_measured(self) -> None:
        run, samples = simple()
        unknown = Memory("not measured", None, None, None)
        short = [replace(s, memory=unknown) if s.trial.contender == "fast" else s for s in samples]
        found = standings(run, short)
        assert found.cells[0, "slow"].memory is None
        assert found.cells[0, "slow"].memory_bytes == 100 * MIB
        assert found.contests[0].memory_missing == "not measured for fast"
        assert {place.memory for place in found.places} == {None}
        assert found.cells[0, "slow"].time is not None


class TestStudent:
    @pytest.mark.parametrize("alpha", [0.2, 0.05, 0.04, 0.003])
    def test_the_quantile_is_that_of_scipy(self, alpha: float) -> None:
        for freedom in (*range(1, 40), 101, 1000):
            assert ratios.student(freedom, alpha) == pytest.approx(
                scipy.stats.t.ppf(1 - alpha / 2, freedom)
            )

    def test_fractional_degrees_of_freedom_are_rounded_down(self) -> None:
        assert ratios.student(3.9, 0.05) == ratios.student(3, 0.05)
        assert ratios.student(0.5, 0.05) == ratios.student(1, 0.05)


def test_the_error_of_two_and_three_rounds_is_that_of_the_textbook() -> None:
    for values in ([1.0, 3.0], [1.0, 3.0, 4.0]):
        x = np.array(values)[:, None]
        assert ratios.standard_error(x)[0] == pytest.approx(
            np.std(values, ddof=1) / math.sqrt(len(values))
        )


def test_intervals_have_one_degree_of_freedom_less_than_rounds() -> None:
    """The median of the distances 0.1, 0.2 and 0.3 has a standard error of 0.1 / sqrt(3)."""
    logs = np.array([[0.0, 0.1], [0.0, 0.2], [0.0, 0.3]])
    column = ratios.Column.of(("best", "other"), logs, 0.05)
    reach = scipy.stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert reach > 0.2, "the contender `other` must be possibly the best"

    other, best = column.ratio("other").interval, column.ratio("best").interval
    assert other is not None and best is not None
    assert (other.low, other.high) == pytest.approx((1.0, math.exp(0.2 + reach)))
    assert (best.low, best.high) == pytest.approx((1.0, math.exp(reach - 0.2)))
    assert column.half_widths() == pytest.approx([math.expm1(reach)])
    difference = ratios.mean_difference([column], "best", "other")
    assert difference.interval is not None
    ends = (difference.interval.low, difference.interval.high)
    assert ends == pytest.approx((math.exp(-0.2 - reach), math.exp(-0.2 + reach)))


def test_the_degrees_of_freedom_of_a_mean_are_welchs_and_satterthwaites() -> None:
    """The mean of two workloads with equal errors has the sum of their degrees of freedom.

    A workload without noise adds no degrees of freedom.
    """
    one = ratios.Column.of(("a", "b"), np.array([[0.0, 0.4], [0.0, 0.5], [0.0, 0.6]]), 0.05)
    quiet = ratios.Column.of(("a", "b"), np.array([[0.0, 0.5]] * 3), 0.05)
    for columns, freedom in (([one, one], 4), ([one, quiet], 2)):
        error = 0.1 / math.sqrt(3) * math.sqrt(sum(column is one for column in columns)) / 2
        reach = scipy.stats.t.ppf(0.975, freedom) * error
        found = ratios.mean_ratio(columns, "b")
        assert found is not None and found.interval is not None
        assert found.estimate == pytest.approx(math.exp(0.5))
        assert (found.interval.low, found.interval.high) == pytest.approx(
            (math.exp(0.5 - reach), math.exp(0.5 + reach))
        )


def test_the_same_samples_give_the_same_standings() -> None:
    run = a_suite(WORKLOADS[:4], ALLOCATORS[:5])
    samples = lively(run)
    assert standings(run, samples) == standings(run, list(reversed(samples)))


def test_numpy_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, cairn.compare.standings, cairn.compare.ranking; sys.exit('numpy' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("ends", "more", "less"),
    [
        (None, False, False),
        ((0.9, 1.1), False, False),
        ((1.0, 1.1), False, False),
        ((0.9, 1.0), False, False),
        ((1.001, 1.1), True, False),
        ((0.9, 0.999), False, True),
    ],
)
def test_an_interval_that_reaches_one_shows_no_difference(
    ends: tuple[float, float] | None, more: bool, less: bool
) -> None:
    difference = ratios.Difference(1.0, ends and Interval(*ends, 0.95))
    assert (difference.more, difference.less) == (more, less)


class TestRounds:
    def test_memory_that_cannot_be_compared_does_not_change_the_times(self) -> None:
        run, samples = simple()
        mixed = [
            replace(s, memory=replace(s.memory, method="sampled")) if s.trial.round == 2 else s
            for s in samples
        ]
        found = standings(run, mixed)
        assert found.memory_over == ()
        assert {key: cell.time for key, cell in found.cells.items()} == {
            key: cell.time for key, cell in standings(run, samples).cells.items()
        }

    def test_a_time_of_zero_has_no_ratio(self) -> None:
        run, samples = simple()
        zero = [
            replace(s, wall_ns=0)
            if (s.trial.workload, s.trial.contender, s.trial.round) == (0, "fast", 3)
            else s
            for s in samples
        ]
        found = standings(run, zero)
        assert found.time_over == (1,)
        assert found.contests[0].best_time is None

    def test_the_warm_up_is_no_round(self) -> None:
        run, samples = simple()
        warm = [
            replace(s, wall_ns=1, trial=replace(s.trial, round=0))
            for s in samples
            if s.trial.round == 1
        ]
        assert standings(run, [*warm, *samples]) == standings(run, samples)

    def test_a_sample_that_does_not_compete_may_fail(self) -> None:
        _, samples = simple()
        beside = replace(fail(samples[0]), trial=replace(samples[0].trial, contender="beside"))
        found = ratios.complete([*samples, beside], THREE, 0)
        assert found == ratios.complete(samples, THREE, 0)
        assert (found.failures, found.rounds) == ({}, (1, 2, 3, 4, 5, 6))
