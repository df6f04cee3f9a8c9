"""Tests of the prediction how much time another allocator would save, with invented costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.comparisons import a_run, a_sample

from cairn.model import Contender, Operations, ProbeSummary, Run, Sample, Workload
from cairn.report.prediction import board, sentences
from cairn.why.gap import twin
from cairn.why.prediction import Costs, costs, predict

MS = 1_000_000
MIB = 1 << 20


def an_account(ns: float = 20.0, count: int = 1_000_000, **more: object) -> ProbeSummary:
    made = ProbeSummary(
        operations=2 * count,
        cpu_ns=220 * MS,
        samples=220,
        samples_inside=60,
        samples_probe=20,
        kinds={
            "reused": Operations(count, 4_000, count * ns, ns),
            "free, local": Operations(count, 4_000, count * ns, ns),
        },
        calls={},
        kernel_ns=10.0 * MS,
        waiting_ns=0.0,
        waits=0,
        faults=1000,
        faults_inside=0.0,
        live_bytes=80 * MIB,
        slack_bytes=0,
        resident_bytes=100 * MIB,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def calibrated(
    *, places: int = 1, factor: float = 1.0, kernel: float = 0.0, faults: float = 0.0
) -> Costs:
    """Returns the costs of an allocator, measured on `places` workloads.

    Each operation costs 20 ns times `factor`. `kernel` and `faults` are in ns for each byte of the
    peak.
    """
    each = dict.fromkeys(range(places), 20.0 * factor)
    same = dict.fromkeys(range(places), kernel), dict.fromkeys(range(places), faults)
    return Costs(
        "x 1", {"reused": each, "free, local": each}, *same, dict.fromkeys(range(places), 5_000.0)
    )


SYSTEM = calibrated()


def test_detours_of_the_probe_are_neither_savings_nor_time_of_the_program() -> None:
    """A detour is the additional time of a system call that the probe intercepts.

    All detours together take 12 of 32 ms of system time. The CPU timers find 3 of these 12 ms in
    the allocator and 9 ms in the probe.
    """
    known = {"system": SYSTEM, "quick": calibrated(factor=0.5)}
    (found,) = predict(
        an_account(samples_inside=63, detours_ns=12 * MS), 32 * MS, 0, "system", known
    )
    assert found.own == pytest.approx(25 / 197)
    assert found.kernel == pytest.approx(10 / 197)


def test_the_ratio_of_timed_operations_is_corrected_by_the_timers() -> None:
    """In the calibration, the other allocator took half as long by its timed operations.

    By the CPU timers it took four fifths as long. The prediction follows the timers.
    """
    by_clock, by_timers = {0: 100.0 * MS}, {0: 200.0 * MS}
    system = replace(SYSTEM, clocked=by_clock, own=by_timers)
    quick = replace(calibrated(factor=0.5), clocked={0: 50.0 * MS}, own={0: 160.0 * MS})
    (found,) = predict(an_account(), 10 * MS, 0, "system", {"system": system, "quick": quick})
    assert found.own == pytest.approx(50 * (1 - 0.8) / 200)
    # Here the timers gave too few samples, so that the timed operations decide.
    unknown = replace(quick, own={})
    (found,) = predict(an_account(), 10 * MS, 0, "system", {"system": system, "quick": unknown})
    assert found.own == pytest.approx(50 * (1 - 0.5) / 200)


def test_the_range_contains_the_system_time_of_every_calibrated_workload() -> None:
    """For a peak of 100 MiB, one of six workloads took 20 ms in the kernel, and five took no time.

    In the one workload, the allocator returned memory that it needed again.
    """
    dear = {0: 20 * MS / (100 * MIB)} | dict.fromkeys(range(1, 6), 0.0)
    known = {
        "system": calibrated(places=6),
        "quick": replace(calibrated(places=6, factor=0.5), kernel=dear),
    }
    (found,) = predict(an_account(), 20 * MS, 0, "system", known)
    assert found.high == found.saves == pytest.approx((25 + 10) / 200)
    assert found.low < found.saves
    assert found.low == pytest.approx((25 + 10 - 20) / 200)


def test_an_allocator_that_takes_half_as_long_saves_half_of_its_own_code() -> None:
    (found,) = predict(
        an_account(), 20 * MS, 0, "system", {"system": SYSTEM, "quick": calibrated(factor=0.5)}
    )
    # 60 of 220 ms are in the allocator: 10 ms in its system calls, 50 ms in its own code. 20 of
    # 220 ms are in the probe.
    assert found.allocator == "quick"
    assert found.own == pytest.approx(25 / 200)
    # The other allocator's system calls cost nothing.
    assert found.kernel == pytest.approx(10 / 200)
    assert found.saves == pytest.approx(found.own + found.kernel + found.faults)


def test_predicted_system_time_is_proportional_to_the_peak() -> None:
    other = calibrated(kernel=5 * MS / (100 * MIB), faults=2 * MS / (100 * MIB))
    (found,) = predict(an_account(), 16 * MS, 1000, "system", {"system": SYSTEM, "other": other})
    assert found.own == 0
    assert found.kernel == pytest.approx((10 - 5) / 200)
    # 6 ms of system time are left. 1,000 page faults of 5 µs each take 5 of these 6 ms.
    assert found.faults == pytest.approx((5 - 2) / 200)


def test_the_range_comes_from_the_spread_over_the_workloads() -> None:
    ratios = (0.1, 0.5, 0.6, 0.7, 3.0)
    kinds = {
        kind: {place: 20.0 * ratio for place, ratio in enumerate(ratios)}
        for kind in ("reused", "free, local")
    }
    other = replace(calibrated(places=5), kinds=kinds)
    (found,) = predict(
        an_account(), 10 * MS, 0, "system", {"system": calibrated(places=5), "other": other}
    )
    assert found.saves == pytest.approx((50 * 0.4 + 10) / 200)
    assert (found.low, found.high) == (
        pytest.approx((50 * 0.3 + 10) / 200),
        pytest.approx((50 * 0.5 + 10) / 200),
    )


def test_the_best_allocator_comes_first_and_a_worse_one_saves_less_than_nothing() -> None:
    known = {"system": SYSTEM, "bad": calibrated(factor=2.0), "good": calibrated(factor=0.2)}
    found = predict(an_account(), 10 * MS, 0, "system", known)
    assert [one.allocator for one in found] == ["good", "bad"]
    assert found[1].own < 0


@pytest.mark.parametrize(
    ("summary", "allocator"),
    [
        (an_account(), "unknown"),
        (an_account(samples=100, samples_inside=30), "system"),
        (an_account(kernel_ns=None), "system"),
        (an_account(resident_bytes=None), "system"),
        (an_account(kinds={"realloc": Operations(1_000_000, 4_000, 50.0 * MS, 50.0)}), "system"),
    ],
)
def test_there_is_no_prediction_if_a_number_is_unknown(
    summary: ProbeSummary, allocator: str
) -> None:
    assert (
        predict(summary, 10 * MS, 0, allocator, {"system": SYSTEM, "quick": calibrated(factor=0.5)})
        == ()
    )


def trials(name: str, ns: float, workload: int = 0) -> list[Sample]:
    made = []
    for round_ in (1, 2, 3):
        for whose, more in (
            (name, {"system_ns": 30 * MS}),
            (twin(name), {"probe": an_account(ns)}),
        ):
            sample = a_sample(round_, whose, 100, minor_faults=4000, **more)
            made.append(replace(sample, trial=replace(sample.trial, workload=workload)))
    return made


def a_calibration() -> Run:
    plain = [Contender(name, "custom", f"{name} 1") for name in ("system", "fast")]
    run = a_run(*plain, *(replace(one, name=twin(one.name), probed=True) for one in plain))
    two = (Workload("a", ("a",)), Workload("b", ("b",)))
    return replace(run, settings=replace(run.settings, why=True, workloads=two))


def test_costs_are_means_by_kind_and_the_kernels_time_by_the_peak() -> None:
    samples = [*trials("system", 20.0), *trials("system", 40.0, 1), *trials("fast", 5.0)]
    found = costs(a_calibration(), samples)
    assert set(found) == {"system", "fast"}
    assert found["system"].kinds["reused"] == {0: pytest.approx(20.0), 1: pytest.approx(40.0)}
    assert found["fast"].kinds["reused"] == {0: pytest.approx(5.0)}
    assert found["system"].kernel[0] == pytest.approx(10 * MS / (100 * MIB))
    assert found["system"].faults[0] == pytest.approx(20 * MS / (100 * MIB))
    assert found["system"].fault[0] == pytest.approx(20 * MS / 4000)


def test_a_contender_that_failed_somewhere_has_no_costs() -> None:
    failed = [replace(sample, failure="was killed") for sample in trials("fast", 5.0, 1)]
    samples = [*trials("system", 20.0), *trials("fast", 5.0), *failed]
    found = costs(a_calibration(), samples)
    assert set(found) == {"system"}
    told = board(found, ["system", "fast"], used=True)
    assert told.failures == ("fast failed on a workload and is left out",)
    assert "20.0 ns" in [cell.text for cell in told.tables[0].rows[0]]


def test_two_times_below_the_resolution_of_the_clock_count_as_equal() -> None:
    shorter = replace(SYSTEM, kinds={kind: {0: 1.0} for kind in SYSTEM.kinds})
    other = replace(SYSTEM, kinds={kind: {0: 0.5} for kind in SYSTEM.kinds})
    (found,) = predict(an_account(), 10 * MS, 0, "system", {"system": shorter, "other": other})
    assert found.own == 0


def test_an_allocator_that_may_be_slower_is_not_recommended() -> None:
    ratios = {place: 20.0 * ratio for place, ratio in enumerate((0.1, 0.5, 0.6, 1.8, 3.0))}
    other = replace(calibrated(places=5), kinds=dict.fromkeys(("reused", "free, local"), ratios))
    found = predict(
        an_account(), 10 * MS, 0, "system", {"system": calibrated(places=5), "other": other}
    )
    assert found[0].saves >= 0.05 and found[0].low <= 0
    (said,) = sentences(found)
    assert said.startswith("No other allocator")


def test_a_small_saving_is_no_reason_to_change() -> None:
    known = {"system": SYSTEM, "quick": calibrated(factor=0.5)}
    much = predict(an_account(), 10 * MS, 0, "system", known)
    (said,) = sentences(much)
    assert said.startswith(
        "quick, the best of 1 measured on this machine, is expected to save about 17.5 %"
    )
    little = predict(
        an_account(samples=2200, samples_inside=60, kernel_ns=0.0), 0, 0, "system", known
    )
    (said,) = sentences(little)
    assert said.startswith("No other allocator") and not list(sentences(()))


@pytest.mark.parametrize(("inside", "share"), [(400.0, 0.4), (5_000.0, 1.0)])
def test_the_time_of_page_faults_in_the_allocator_is_not_its_own_code(
    inside: float, share: float
) -> None:
    """1,000 page faults take 5 of the 6 ms of system time outside system calls.

    The allocator's share of these 5 ms is its share of the page faults, and at most 100 %.
    """
    known = {"system": SYSTEM, "quick": calibrated(factor=0.5)}
    (found,) = predict(an_account(faults_inside=inside), 16 * MS, 1000, "system", known)
    assert found.own == pytest.approx((60 - 10 - 5 * share) / 2 / 200)


def test_system_calls_take_no_more_than_the_system_time_without_the_detours() -> None:
    known = {"system": SYSTEM, "quick": calibrated(factor=0.5)}
    (found,) = predict(an_account(detours_ns=6 * MS), 14 * MS, 0, "system", known)
    program = 200 - 1.5
    assert found.kernel == pytest.approx(8 / program)
    assert found.own == pytest.approx((60 - 1.5 - 8) / 2 / program)


def test_nine_tenths_of_the_allocators_time_must_be_in_kinds_of_known_cost() -> None:
    known = {"system": SYSTEM, "quick": calibrated(factor=0.5)}
    kinds = dict(an_account(ns=18.0).kinds)
    for unknown_ns, told in ((40.0, True), (41.0, False)):
        kinds["realloc"] = Operations(100_000, 4_000, 4.0 * MS, unknown_ns)
        assert bool(predict(an_account(kinds=kinds), 10 * MS, 0, "system", known)) == told


def own_ns(plain_system_ms: int, **more: object) -> dict[int, float]:
    """Returns the time of the allocator's own code by workload, in ns, from three rounds.

    In each probed run, 63 of 220 ms are in the allocator, and 40 ms are system time.
    """
    summary = an_account(samples_inside=63, detours_ns=12.0 * MS, faults_inside=1_000.0, **more)
    probed = {
        "probe": summary,
        "system_ns": 40 * MS,
        "minor_faults": 3_000,
        "major_faults": 1_000,
    }
    samples = [
        a_sample(round_, name, 100, **about)
        for round_ in (1, 2, 3)
        for name, about in (
            ("system", {"system_ns": plain_system_ms * MS}),
            (twin("system"), probed),
        )
    ]
    return dict(costs(a_calibration(), samples)["system"].own)


def test_own_code_excludes_system_calls_page_faults_and_detours() -> None:
    """10 ms of the allocator's time are system calls.

    Its time also contains a quarter of the time of page faults, because it causes 1,000 of 4,000
    page faults, and a quarter of the 12 ms of detours. The rest is the time of its own code.
    """
    # 40 - 12 - 10 ms of system time are left for page faults.
    assert own_ns(30) == {0: pytest.approx((63 - 10 - 18 / 4 - 3) * MS)}
    # The plain run leaves only 25 - 10 ms for page faults, and the smaller number counts.
    assert own_ns(25) == {0: pytest.approx((63 - 10 - 15 / 4 - 3) * MS)}


def test_too_few_cpu_samples_give_no_time_of_the_allocators_own_code() -> None:
    assert own_ns(30, samples=66) == {}
    assert set(own_ns(30, samples=67)) == {0}


def test_page_faults_of_both_kinds_share_the_time_of_faults() -> None:
    samples = [replace(sample, major_faults=1_000) for sample in trials("system", 20.0)]
    assert costs(a_calibration(), samples)["system"].fault[0] == pytest.approx(20 * MS / 5_000)
