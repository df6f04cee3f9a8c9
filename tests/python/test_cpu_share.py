"""Tests of the allocator's share of CPU time, with invented clock samples."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.probes import Made, busy

from cairn.compare.ratios import student
from cairn.profile import cpu_share, reader
from cairn.profile.cpu_share import CpuShare
from cairn.profile.tally import ClockRun, KernelClock, Profile

MS = 1e6


def profiled(tmp_path: Path, made: Made | None = None, **clock: Any) -> Profile:
    """Returns a profile of 140,820 operations with these clock samples."""
    (made or busy()).write(tmp_path)
    return replace(reader.gather(tmp_path), clock=KernelClock(**clock) if clock else None)


def a_run(inside: int, outside: int, period: float = MS, **about: Any) -> ClockRun:
    """Returns a run with `inside` samples in the allocator and `outside` samples in the program."""
    known: dict[str, Any] = {
        "probed": True,
        "scope": "processors",
        "samples": inside + outside,
        "own_ns": inside * period,
        "program_ns": outside * period,
        "inside_squares": inside * period**2,
        "squares": (inside + outside) * period**2,
    }
    return ClockRun(**(known | about))


def share_of(tmp_path: Path, *runs: ClockRun, made: Made | None = None) -> CpuShare:
    return cpu_share.cpu_share(profiled(tmp_path, made, runs=runs))


def test_the_share_is_that_of_the_samples_and_leaves_out_the_probe(tmp_path: Path) -> None:
    run = a_run(300, 700, probe_ns=250 * MS)
    found = share_of(tmp_path, run)
    assert found.share is not None
    assert found.share.value == pytest.approx(0.3)
    assert found.probe == pytest.approx(0.2)
    ends = found.share.interval
    # Wilson's interval of 300 of 1,000, and 2.5 ns for each of 140,820 operations of a second.
    overlap = 2.5 * 140_820 / 1e9
    assert found.overlap == pytest.approx(overlap)
    assert ends.low == pytest.approx(0.2724 - overlap, abs=2e-4)
    assert ends.high == pytest.approx(0.3291 + overlap, abs=2e-4)


def test_page_faults_of_the_program_and_of_the_allocator_have_one_share(tmp_path: Path) -> None:
    """If no sample came in a page fault, up to 0.4 % of 1,000 samples can be missing by chance."""
    for page_faults, value, high in ((0, 0.0, 0.00383), (100, 0.1, 0.1202)):
        run = a_run(300, 700, page_faults_ns=page_faults * MS)
        found = cpu_share.page_fault_share(profiled(tmp_path, runs=(run,)))
        assert found is not None and found.value == pytest.approx(value)
        assert found.interval.high == pytest.approx(high, rel=0.01)


@pytest.mark.parametrize(
    "runs",
    [
        (a_run(300, 700),),
        (a_run(300, 700, page_faults_ns=MS), a_run(300, 700)),
        (a_run(50, 100, page_faults_ns=MS),),
        (),
    ],
)
def test_too_few_samples_and_older_runs_tell_nothing_about_page_faults(
    tmp_path: Path, runs: tuple[ClockRun, ...]
) -> None:
    assert cpu_share.page_fault_share(profiled(tmp_path, runs=runs)) is None


def test_samples_of_short_periods_narrow_the_interval_less(tmp_path: Path) -> None:
    even, uneven = (
        share_of(tmp_path, run)
        for run in (
            a_run(600, 1400),
            a_run(
                600,
                1400,
                own_ns=300 * MS + 300 * MS / 20,
                program_ns=700 * MS + 700 * MS / 20,
                inside_squares=300 * MS**2 * (1 + 1 / 400),
                squares=1000 * MS**2 * (1 + 1 / 400),
            ),
        )
    )
    assert even.share is not None and uneven.share is not None
    assert uneven.share.value == pytest.approx(0.3)
    assert even.sampling < uneven.sampling == pytest.approx(0.0284, rel=0.05)


@pytest.mark.parametrize(
    ("about", "low", "high"),
    [
        ({"unknown_ns": 100 * MS}, 300 / 1100, 400 / 1100),
        # 2 % of the CPU time has no samples, and may be the allocator's or the program's.
        ({"cpu_ns": 1020 * MS}, 300 / 1020, 320 / 1020),
        ({"cpu_ns": 1005 * MS}, 300 / 1000, 300 / 1000),
    ],
)
def test_time_that_cannot_be_attributed_widens_the_interval(
    tmp_path: Path, about: dict[str, float], low: float, high: float
) -> None:
    plain = share_of(tmp_path, a_run(300, 700))
    found = share_of(tmp_path, a_run(300, 700, **about))
    assert found.share is not None and plain.share is not None
    assert found.share.value == pytest.approx(0.3)
    before, after = plain.share.interval, found.share.interval
    assert after.low == pytest.approx(before.low - 0.3 + low, abs=5e-3)
    assert after.high == pytest.approx(before.high - 0.3 + high, abs=5e-3)
    assert after.low <= before.low and before.high <= after.high


@pytest.mark.parametrize(("inside", "outside"), [(0, 1000), (1000, 0), (3, 997), (998, 2)])
def test_no_share_is_below_0_or_above_100_percent(
    tmp_path: Path, inside: int, outside: int
) -> None:
    made = busy()
    made.called("malloc", "small", 500_000_000, 8)
    found = share_of(tmp_path, a_run(inside, outside, unknown_ns=5 * MS), made=made)
    assert found.share is not None
    ends = found.share.interval
    assert 0 <= ends.low <= found.share.value <= ends.high <= 1
    assert ends.low < ends.high


def test_too_few_samples_are_no_share(tmp_path: Path) -> None:
    found = share_of(tmp_path, a_run(50, 100))
    assert found.share is None
    assert found.why_not == (
        "there are only 150 clock samples of the program's CPU time, and 200 are needed"
    )
    assert share_of(tmp_path, a_run(100, 100)).share is not None


def test_runs_without_the_probe_count_alone(tmp_path: Path) -> None:
    plain = a_run(250, 750, probed=False)
    found = share_of(tmp_path, a_run(500, 500), plain, plain)
    assert found.share is not None
    assert (found.share.value, found.runs, found.samples) == (0.25, 2, 2000)
    assert not found.probed


def test_runs_that_differ_more_than_their_samples_widen_the_interval(tmp_path: Path) -> None:
    alike = share_of(tmp_path, *[a_run(250, 750, probed=False)] * 6)
    parts = (100, 400, 150, 350, 200, 300)
    differing = share_of(tmp_path, *(a_run(k, 1000 - k, probed=False) for k in parts))
    assert alike.share is not None and differing.share is not None
    assert alike.share.value == differing.share.value == 0.25
    assert differing.sampling > 5 * alike.sampling


def test_an_interval_of_a_share_covers_it_in_95_of_100_cases(tmp_path: Path) -> None:
    """Simulated runs, in which each sample falls into the allocator with a known probability.

    The periods are short at first, as the launcher's are. The seed is fixed.
    """
    found = profiled(tmp_path, runs=())
    numbers = random.Random(38)
    covered = tries = 0
    for truth in (0.01, 0.05, 0.2, 0.5, 0.9):
        for runs in (1, 3, 8):
            for _ in range(60):
                clocks = []
                for _ in range(runs):
                    periods = [0.05 * MS] * 800 + [0.4 * MS] * 300 + [MS] * 100
                    inside = [one for one in periods if numbers.random() < truth]
                    whole, squares = sum(periods), sum(one**2 for one in periods)
                    clocks.append(
                        a_run(
                            0,
                            0,
                            probed=False,
                            samples=len(periods),
                            own_ns=sum(inside),
                            program_ns=whole - sum(inside),
                            inside_squares=sum(one**2 for one in inside),
                            squares=squares,
                        )
                    )
                share = cpu_share.cpu_share(replace(found, clock=KernelClock(tuple(clocks)))).share
                assert share is not None
                tries += 1
                covered += share.interval.low <= truth <= share.interval.high
    assert 0.93 * tries <= covered, (covered, tries)


def test_timers_of_cpu_time_take_the_place_of_a_clock_that_is_not_permitted(
    tmp_path: Path,
) -> None:
    made = busy()
    made.sampled(900, 60, own=90)
    made.sampled(100, 40, what="free, delete")
    found = cpu_share.cpu_share(profiled(tmp_path, made, why_not="of a filter"))
    assert found.share is not None
    assert (found.scope, found.samples) == ("timers", 910)
    assert found.share.value == pytest.approx(100 / 910)
    assert found.probe == pytest.approx(0.09)


@pytest.mark.parametrize(
    ("samples", "unknown"), [(5_000, 0.0), (4_800, 0.0), (2_500, 0.5), (1_000, 0.8)]
)
def test_cpu_time_without_samples_of_the_timers_is_not_known(
    tmp_path: Path, samples: int, unknown: float
) -> None:
    """5,000 samples are due. That 200 of them are missing can be chance."""
    made = busy(user_us=1_000_000)
    made.sampled(samples, samples // 4, timer_ns=200_000)
    found = cpu_share.cpu_share(profiled(tmp_path, made, why_not="of a filter"))
    assert found.share is not None
    assert found.share.value == pytest.approx(0.25)
    assert found.unknown == pytest.approx(unknown, abs=0.01)
    assert found.share.interval.low <= 0.25 * (1 - unknown)
    assert found.share.interval.high >= 0.25 + 0.75 * unknown


def test_timers_that_contradict_the_clock_widen_the_interval_and_are_named(tmp_path: Path) -> None:
    made = busy()
    made.sampled(1_000, 600)
    clock = a_run(300, 700)
    found = share_of(tmp_path, clock, made=made)
    assert found.share is not None and found.contradicted is not None
    assert found.share.value == pytest.approx(0.3)
    assert found.share.interval.high == found.contradicted.value == pytest.approx(0.6)
    made = busy()
    made.sampled(1_000, 310)
    assert share_of(tmp_path, clock, made=made).contradicted is None


def test_a_clock_that_does_not_see_the_kernel_is_completed_by_the_probes_counts(
    tmp_path: Path,
) -> None:
    """All of the kernel's time that is not in the allocator's system calls is unknown.

    The allocator's calls took 51.5 us: 10 munmap of 3 us, 10 mmap of 2 us, and 3 others of 0.5 us.
    """
    run = a_run(100, 800, scope="threads in user mode", cpu_ns=1000 * MS)
    found = share_of(tmp_path, run)
    assert found.share is not None
    assert found.calls == pytest.approx(0.0515 / 900.05, rel=1e-3)
    assert found.unknown == pytest.approx(0.1, rel=0.01)
    assert found.share.interval.high - found.share.value > 0.08


@pytest.mark.parametrize(
    ("made", "clock", "why"),
    [
        (Made(), {"runs": (a_run(300, 700),)}, "it allocated nothing"),
        (busy(), {"why_not": "the kernel does not allow it"}, "the kernel does not allow it"),
        (busy(user_us=0), {}, "the program's CPU time has no clock samples"),
    ],
)
def test_a_share_that_is_not_known_says_why(
    tmp_path: Path, made: Made, clock: dict[str, Any], why: str
) -> None:
    found = cpu_share.cpu_share(profiled(tmp_path, made, **clock))
    assert (found.share, found.why_not) == (None, why)


def test_samples_left_out_at_random_are_no_time_without_samples(tmp_path: Path) -> None:
    """If the launcher left out samples, the difference by chance was once called unknown time."""
    thinned = share_of(tmp_path, a_run(60, 240, 16 * MS, cpu_ns=300 * 16 * MS * 1.08))
    assert thinned.unknown == 0
    lost = share_of(tmp_path, a_run(60, 240, 16 * MS, cpu_ns=300 * 16 * MS * 2))
    assert lost.unknown == pytest.approx(0.5)
    complete = share_of(tmp_path, a_run(60, 240, cpu_ns=300 * MS * 1.08))
    assert complete.unknown == pytest.approx(0.08 / 1.08)


def test_more_runs_are_wanted_only_if_they_make_the_interval_narrower(tmp_path: Path) -> None:
    few = share_of(tmp_path, a_run(100, 150))
    assert not few.is_narrow and few.may_narrow
    many = share_of(tmp_path, a_run(1000, 3000))
    assert many.is_narrow
    made = busy()
    made.called("malloc", "small", 400_000_000, 8)
    probed, blind = a_run(1000, 3000), a_run(1000, 3000, scope="timers")
    overlapping = share_of(tmp_path, probed, made=made)
    # The probe disturbs a program with so many operations. A run without the probe is better.
    assert not overlapping.is_narrow and overlapping.may_narrow
    for runs in ((probed, replace(probed, probed=False)), (blind,)):
        overlapping = share_of(tmp_path, *runs, made=made)
        assert not overlapping.is_narrow and not overlapping.may_narrow


def test_the_factors_of_a_few_runs_are_those_of_students_t() -> None:
    for runs, factor in enumerate(cpu_share._T, cpu_share.RUNS_LEAST):
        assert factor == pytest.approx(student(runs - 1, 0.05), abs=0.0006)
