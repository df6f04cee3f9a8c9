"""Tests of the prediction how much time another allocator would save, with invented costs."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from msgspec.structs import replace
from support.comparisons import a_run, a_sample

from cairn.model import Contender, Operations, ProbeSummary, Run, Sample, Workload, twin
from cairn.report.prediction import board, sentences
from cairn.report.prediction_score import board as score_board
from cairn.why.prediction import (
    LONGER,
    SCALE_LEAST,
    SHORTER,
    Costs,
    Prediction,
    costs,
    predict,
)
from cairn.why.prediction_error import AllocatorChange, ends
from cairn.why.prediction_score import CALIBRATING, claim, score

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
    """Two measurements say how long `quick` takes, compared with `system`.

    By the times of sampled operations, it takes half as long. By the samples of the CPU timers, it
    takes four fifths as long. The prediction follows the timers.
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


def test_an_allocator_that_takes_half_as_long_saves_half_of_its_own_code() -> None:
    (found,) = predict(
        an_account(), 20 * MS, 0, "system", {"system": SYSTEM, "quick": calibrated(factor=0.5)}
    )
    # 60 of 220 ms are in the allocator: 10 ms in its system calls, 50 ms in its own code. 20 of
    # 220 ms are in the probe.
    assert found.allocator == "quick"
    assert found.own == pytest.approx(25 / 200)
    # The system calls of `quick` cost nothing.
    assert found.kernel == pytest.approx(10 / 200)
    assert found.saves == pytest.approx(found.own + found.kernel + found.faults)


def test_predicted_system_time_is_proportional_to_the_peak() -> None:
    other = calibrated(kernel=5 * MS / (100 * MIB), faults=2 * MS / (100 * MIB))
    (found,) = predict(an_account(), 16 * MS, 1000, "system", {"system": SYSTEM, "other": other})
    assert found.own == 0
    assert found.kernel == pytest.approx((10 - 5) / 200)
    # 6 ms of system time are left. 1,000 page faults of 5 µs each take 5 of these 6 ms.
    assert found.faults == pytest.approx((5 - 2) / 200)


def test_the_interval_is_the_wider_the_more_time_can_change() -> None:
    """Of 200 ms, 66 ms are in the allocator's own code, its system calls, and page faults.

    The interval depends on the larger of this time before and after the change. With `slow`, it
    would be 34 ms more.
    """
    known = {"system": SYSTEM, "quick": calibrated(factor=0.5), "slow": calibrated(factor=2.0)}
    quick, slow = predict(an_account(), 16 * MS, 2000, "system", known)
    assert quick.scale == pytest.approx(66 / 200)
    left = 1 - quick.saves
    assert quick.low == pytest.approx(1 - left * math.exp(LONGER * 66 / 200))
    assert quick.high == pytest.approx(1 - left * math.exp(-SHORTER * 66 / 200))
    assert slow.saves == pytest.approx((16 - 50) / 200)
    assert slow.scale == pytest.approx((66 + 34) / 200)
    hardly = an_account(samples_inside=6, kernel_ns=0.0)
    assert predict(hardly, 0, 0, "system", known)[0].scale == SCALE_LEAST


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
    shown = board(found, ["system", "fast"], used=True)
    assert shown.failures == ("fast failed on a workload and is left out",)
    assert "20.0 ns" in [cell.text for cell in shown.tables[0].rows[0]]


def test_two_times_below_the_resolution_of_the_clock_count_as_equal() -> None:
    shorter = replace(SYSTEM, kinds={kind: {0: 1.0} for kind in SYSTEM.kinds})
    other = replace(SYSTEM, kinds={kind: {0: 0.5} for kind in SYSTEM.kinds})
    (found,) = predict(an_account(), 10 * MS, 0, "system", {"system": shorter, "other": other})
    assert found.own == 0


def told(saves: float, low: float, high: float, name: str = "quick") -> Prediction:
    return Prediction(name, saves, low, high, saves, 0.0, 0.0, 0.3)


@pytest.mark.parametrize(
    ("best", "says"),
    [
        ((0.2, 0.11, 0.28), "quick, the best of 2 measured on this machine, is expected to save 20.0 "
                            "% (11.0 to 28.0) of the CPU time (allocator code +20.0 %); how"),
        ((0.2, -0.04, 0.4), "Whether another allocator saves 5 % of the CPU time is not known: the "
                            "best of 2 measured on this machine, quick, is expected to save between "
                            "−4 and 40 %, and how"),
        ((0.02, 0.01, 0.06), "Whether another allocator saves 5 % of the CPU time is not known"),
        ((0.02, -0.01, 0.04), "No other allocator of 2 measured on this machine is expected to save "
                              "5 % of the CPU time: at most 4.5 %; how"),
        ((0.02, -0.01, 0.0499), "No other allocator of 2 measured on this machine is expected to "
                                "save 5 % of the CPU time: less than 5 %; how"),
    ],
)  # fmt: skip
def test_the_sentence_says_no_more_than_the_interval(
    best: tuple[float, float, float], says: str
) -> None:
    (said,) = sentences((told(*best), told(-0.3, -0.9, 0.045, "slow")))
    assert said.startswith(says)
    assert "how another allocator's blocks lie cannot be predicted" in said
    assert not list(sentences(()))


def test_another_allocator_than_the_best_may_be_the_one_that_saves() -> None:
    """`slow` has the smaller expected saving, but its interval reaches to 20 %, and not to 4 %."""
    (said,) = sentences((told(0.02, -0.01, 0.04), told(0.01, -0.3, 0.2, "slow")))
    assert said.startswith(
        "Whether another allocator saves 5 % of the CPU time is not known: slow, one of 2 measured "
        "on this machine, is expected to save between −30 and 20 %, and"
    )


@pytest.mark.parametrize("high", [*(place / 1000 for place in range(-300, 50)), 0.04999])
def test_a_bound_below_5_percent_is_written_as_one(high: float) -> None:
    """An upper end of 4.8 % was once told as "at most 5 %", and one of 4.4 % as "at most 4 %"."""
    (said,) = sentences((told(-0.5, -0.9, high),))
    bound = said.partition("of the CPU time: ")[2].partition(" %")[0]
    if bound == "less than 5":
        assert high > 0.049
        return
    number = float(bound.removeprefix("at most ").replace("−", "-"))
    assert 100 * high - 1e-6 <= number < min(5, 100 * high + 1)
    assert bound != "at most −0"


def errors(*of: float) -> list[AllocatorChange]:
    """Returns changes whose predictions had these errors.

    Each prediction is a saving of 20 %, and its scale is 0.3.
    """
    one = told(0.2, 0.2, 0.2)
    return [
        AllocatorChange(place, "system", one, 1 - 0.8 * math.exp(error * one.scale))
        for place, error in enumerate(of)
    ]


def test_nine_of_ten_errors_lie_between_the_ends() -> None:
    many = errors(*(place / 10 - 2 for place in range(41)))
    assert [one.error for one in many] == pytest.approx([n / 10 - 2 for n in range(41)])
    assert ends(many) == (pytest.approx(-1.9), pytest.approx(1.9))
    assert ends(errors(-0.3, 0.1)) == (pytest.approx(-0.3), pytest.approx(0.1))
    assert ends([]) is None


def judged_run(*saved: float) -> tuple[Run, list[Sample]]:
    """Returns a run of the experiment with three allocators and two programs.

    In the two programs, `fast` saves the shares `saved` of CPU time, and `slow` saves nothing.
    """
    names = ("system", "fast", "slow")
    plain = [Contender(name, "custom", f"{name} 1") for name in names]
    run = a_run(*plain, *(replace(one, name=twin(one.name), probed=True) for one in plain))
    workloads = (
        Workload(f"{CALIBRATING}a", ("a",)), Workload(f"{CALIBRATING}b", ("b",)),
        Workload("suite", ("c",)), Workload("perl", ("d",), "programs"),
    )  # fmt: skip
    run = replace(run, settings=replace(run.settings, why=True, workloads=workloads))
    samples = []
    for place in range(4):
        for name, ns in (("system", 20.0), ("fast", 10.0), ("slow", 40.0)):
            less = saved[place - 2] if place >= 2 and name == "fast" else 0.0
            samples += [
                one if one.probe else replace(one, user_ns=round((200 * (1 - less) - 30) * MS))
                for one in trials(name, ns, place)
            ]
    return run, samples


def test_the_score_tries_intervals_on_allocators_from_which_they_do_not_come() -> None:
    run, samples = judged_run(0.1, 0.1)
    found = score(run, samples)
    # Three allocators make six changes from one to another, in each of two programs. Each of these
    # 12 changes is judged twice: once without each of its two allocators.
    assert Counter(one.left_out for one in found.judged) == {"system": 8, "fast": 8, "slow": 8}
    assert sum(one.is_program for one in found.judged) == 12
    without = [one for one in found.judged if one.left_out == "fast"]
    saved = {one.change.saved for one in without if one.change.after == "fast"}
    assert [round(one, 6) for one in saved] == [0.1]
    far = score(*judged_run(0.9, 0.9))
    # Without `fast`, the interval comes from the changes between `system` and `slow`. These were as
    # predicted, so the interval is narrow, and the saving of `fast` lies outside it.
    assert not any(
        one.covered for one in far.judged if one.left_out == "fast" and one.change.after == "fast"
    )
    text = " ".join(score_board(found).says)
    assert "Of 24 predictions about an allocator that was left out" in text
    assert "in use: −0.96 and 1.30" in text
    assert score_board(score(run, ())).says[0].startswith("Nothing could be predicted")


def test_a_sentence_is_right_if_the_allocator_saves_or_none_does() -> None:
    sure = [told(0.3, 0.1, 0.4), told(0.0, -0.1, 0.3, "slow")]
    none = [told(0.02, -0.1, 0.04)]
    assert [claim(one) for one in (sure, none, [told(0.3, -0.1, 0.4)])] == [
        "saves",
        "saves nothing",
        "not known",
    ]
