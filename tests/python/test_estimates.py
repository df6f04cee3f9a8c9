"""Tests of totals and shares that are estimated from sampled operations.

An estimate is exact if every operation was timed. Otherwise, its 95 % interval must contain the
truth in 95 % of the cases.
"""

from __future__ import annotations

import errno
import math
import random
from pathlib import Path

import numpy as np
import pytest
from support.probes import PAIR, TICKS_PER_NS, Made, bucket, busy, locking

from cairn.model import Interval
from cairn.profile import block_samples, estimates, metrics, reader, tables
from cairn.profile.estimates import TOTAL, Estimate, Line
from cairn.profile.tally import CALLS, PATHS, Profile
from cairn.profile.tally import Path as TimedPath


def gathered(tmp_path: Path, *made: Made) -> Profile:
    for one in made:
        one.write(tmp_path)
    return reader.gather(tmp_path)


def line(found: Profile, name: str) -> Line:
    return next(one for one in estimates.lines(found) if one.name == name)


def test_edges_are_the_inverse_of_the_buckets() -> None:
    edges = estimates.octaves(320, 8)
    rng = random.Random(1)
    for ticks in [*range(5000), *(rng.getrandbits(rng.randint(1, 42)) for _ in range(20_000))]:
        place = bucket(ticks)
        assert edges[place] <= ticks < edges[place + 1]


def test_a_full_bucket_has_the_times_that_no_other_bucket_has(tmp_path: Path) -> None:
    """The number of a bucket once began again at 0, and the quantiles were those of the others.

    If two buckets are full, nothing says how many times each of them has.
    """
    made = Made()
    quick, slow, full = 30 * 10**9, 10**9, 2**32 - 1
    made.called("malloc", "small", quick + slow, 1)
    times = made.samples["times"][0, PATHS.index(TimedPath("reused", "small", "serial"))]
    times["count"] = quick + slow
    times["ticks"] = quick * (50 * TICKS_PER_NS + PAIR) + slow * (400 * TICKS_PER_NS + PAIR)
    times["buckets"][bucket(50 * TICKS_PER_NS + PAIR)] = full
    times["buckets"][bucket(400 * TICKS_PER_NS + PAIR)] = slow
    reused = line(gathered(tmp_path, made), "reused")
    assert reused.quantiles == pytest.approx((50, 50, 400, 400), rel=0.1)
    times["buckets"][bucket(400 * TICKS_PER_NS + PAIR)] = full
    reused = line(gathered(tmp_path, made), "reused")
    assert reused.quantiles == (None,) * 4
    assert reused.total_ns is not None
    assert reused.total_ns.value == pytest.approx(quick * 50 + slow * 400)


def test_totals_are_times_scaled_to_exact_counts(tmp_path: Path) -> None:
    found = gathered(tmp_path, busy())
    for name, operations, total_ns in (
        ("new", 6_410, 6_400 * 200 + 10 * 10_000),
        ("reused", 57_600, 57_600 * 50),
        ("calloc", 6_400, 6_400 * 80),
        ("free, local", 70_400 * 0.9 + 10, 70_400 * 0.9 * 30 + 10 * 5_000),
        ("free, remote", 70_400 * 0.1, 70_400 * 0.1 * 60),
    ):
        one = line(found, name)
        assert one.total_ns is not None
        assert one.operations == pytest.approx(operations), name
        assert one.total_ns.value == pytest.approx(total_ns), name
        assert one.mean_ns == pytest.approx(total_ns / operations), name
    total = line(found, TOTAL)
    assert total.total_ns is not None
    assert total.operations == found.operations == 140_820
    parts = [one.total_ns for one in estimates.lines(found) if one.name != TOTAL]
    assert total.total_ns.value == pytest.approx(sum(part.value for part in parts if part))


def test_quantiles_describe_all_operations_and_not_only_the_timed_ones(tmp_path: Path) -> None:
    """All operations on large blocks are timed, but few operations on small blocks.

    So half of the timed operations are on large blocks, but only one in 65 of all operations.
    """
    made = Made()
    made.called("malloc", "small", 64_000, 100)
    made.called("malloc", "large", 1_000, 1 << 20)
    made.timed("reused", "small", [50] * 1_000)
    made.timed("reused", "large", [9_000] * 1_000)
    one = line(gathered(tmp_path, made), "reused")
    assert one.quantiles[0] == pytest.approx(50, rel=0.07)
    assert one.quantiles[2] == pytest.approx(9_000, rel=0.07)
    assert one.mean_ns == pytest.approx((64_000 * 50 + 1_000 * 9_000) / 65_000)


def test_a_total_has_no_error_if_all_operations_were_timed(tmp_path: Path) -> None:
    made = Made()
    made.called("malloc", "large", 100, 1 << 20)
    made.timed("reused", "large", [1_000 * k for k in range(1, 101)])
    total = line(gathered(tmp_path, made), "reused").total_ns
    assert total is not None
    assert total.interval.low == total.value == total.interval.high == pytest.approx(5_050_000)


def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    """The times of all operations are known. The test samples them as the probe does it.

    The operations are local and remote frees of small blocks. 2 % of them are much slower.
    """
    rng = np.random.default_rng(20261122)
    held = {"free, local": 0, "free, remote": 0, TOTAL: 0}
    rounds = 100
    for _ in range(rounds):
        size = 200_000
        remote = rng.random(size) < 0.2
        times = np.ceil(rng.lognormal(4, 0.8, size) + np.where(rng.random(size) < 0.02, 1_000, 0))
        chosen = rng.random(size) < 1 / 64
        made = Made()
        made.released("free", size)
        made.timed("free, local", "small", times[chosen & ~remote])
        made.timed("free, remote", "small", times[chosen & remote])
        found = gathered(tmp_path, made)
        truth = {
            "free, local": times[~remote].sum(),
            "free, remote": times[remote].sum(),
            TOTAL: times.sum(),
        }
        for name, total in truth.items():
            inside = line(found, name).total_ns
            assert inside is not None
            held[name] += inside.interval.low <= total <= inside.interval.high
    assert min(held.values()) > 0.88 * rounds
    assert sum(held.values()) > 0.92 * 3 * rounds


def reach(found: Line) -> float:
    """Returns the distance from a total to the upper end of its interval."""
    assert found.total_ns is not None
    return found.total_ns.interval.high - found.total_ns.value


def test_the_variance_of_a_small_sample_is_divided_by_its_number_less_one(tmp_path: Path) -> None:
    """A time counts as the middle of its bucket: 391.5, 391.5, 823.5 and 823.5 ticks.

    There are two ticks in a nanosecond.
    """
    made = Made()
    made.called("malloc", "small", 100, 100)
    made.timed("reused", "small", [195.5, 196.0, 411.5, 412.0])
    variance = 100 * 100 * (1 - 4 / 100) / 4 * (4 * 216**2 / 3)
    assert reach(line(gathered(tmp_path, made), "reused")) == pytest.approx(
        estimates.Z * math.sqrt(variance) / TICKS_PER_NS
    )


def test_the_spread_of_a_single_time_is_the_time_itself(tmp_path: Path) -> None:
    made = Made()
    made.called("malloc", "small", 100, 100)
    made.timed("reused", "small", [195.5])
    one = line(gathered(tmp_path, made), "reused")
    assert reach(one) == pytest.approx(
        estimates.Z * math.sqrt(100 * 100 * (1 - 1 / 100)) * 391.5 / TICKS_PER_NS
    )
    assert one.total_ns is not None
    assert one.total_ns.interval.low == pytest.approx(195.5), "at least the time that was seen"


def test_the_operations_of_another_kind_in_the_stratum_count_as_no_time(tmp_path: Path) -> None:
    made = Made()
    made.released("free", 100)
    made.timed("free, local", "small", [195.5, 196.0])
    made.timed("free, remote", "small", [411.5, 412.0])
    one = line(gathered(tmp_path, made), "free, local")
    variance = 100 * 100 * (1 - 4 / 100) / 4 * (2 * 391.5**2 - 4 * (391.5 / 2) ** 2) / 3
    assert one.total_ns is not None
    assert (one.operations, one.total_ns.value) == (50, pytest.approx(50 * 391.5 / TICKS_PER_NS))
    assert reach(one) == pytest.approx(estimates.Z * math.sqrt(variance) / TICKS_PER_NS)


@pytest.mark.parametrize(
    ("timed", "known"),
    [(9, 0), (11, 1), (98, 1), (101, 2), (495, 2), (525, 3), (4_000, 3), (6_000, 4)],
)
def test_a_quantile_needs_five_timed_operations_beyond_it(
    tmp_path: Path, timed: int, known: int
) -> None:
    """A median of two operations was once reported. A half of the operations may be quicker."""
    made = Made()
    made.called("malloc", "small", 640_000, 100)
    made.timed("reused", "small", [50] * timed)
    one = line(gathered(tmp_path, made), "reused")
    assert [q is not None for q in one.quantiles] == [place < known for place in range(4)]


def test_quantiles_need_no_sample_if_every_operation_was_timed(tmp_path: Path) -> None:
    made = Made()
    made.called("malloc", "large", 30, 1 << 20)
    made.timed("reused", "large", [50] * 29 + [9_000])
    median, p95, p99, _ = line(gathered(tmp_path, made), "reused").quantiles
    assert median is not None and p95 is not None and p99 is None


def test_three_operations_do_not_say_how_long_most_take(tmp_path: Path) -> None:
    """300 large blocks were timed, but only three of the 750 small ones."""
    made = Made()
    made.called("malloc", "small", 750, 100)
    made.called("malloc", "large", 300, 1 << 20)
    made.timed("reused", "small", [50] * 3)
    made.timed("reused", "large", [9_000] * 300)
    assert line(gathered(tmp_path, made), "reused").quantiles == (None,) * 4
    # Without any timed small block, the times are those of the large ones alone.
    made.samples["times"]["count"][0, PATHS.index(TimedPath("reused", "small", "serial"))] = 0
    one = line(gathered(tmp_path, made), "reused")
    assert one.untimed == 750 and one.quantiles == (None,) * 4


def test_times_below_the_clocks_resolution_are_no_times(tmp_path: Path) -> None:
    made = Made()
    made.called("malloc", "small", 6_400, 100)
    made.timed("reused", "small", [0] * 100)
    found = gathered(tmp_path, made)
    clock, one = estimates.clock(found.tally), line(found, "reused")
    assert clock is not None
    assert clock.resolution_ns == 4 / TICKS_PER_NS
    assert one.mean_ns is not None
    assert one.mean_ns < clock.resolution_ns
    assert one.total_ns is not None
    assert one.total_ns.interval.high == pytest.approx(6_400 * clock.resolution_ns)
    # Each time is 40 to 43 ticks. Reading the clock takes 40 of these.
    assert one.quantiles[0] == (1 + 2) / 2 / TICKS_PER_NS


@pytest.mark.parametrize("head", [{"ticks_last": 7}, {"ns_last": 1_000_000_000}])
def test_a_process_in_which_no_time_passed_has_counts_and_no_times(
    tmp_path: Path, head: dict[str, int]
) -> None:
    found = gathered(tmp_path, busy(head=head))
    assert estimates.clock(found.tally) is None
    assert all(
        one.total_ns is None and one.mean_ns is None and one.operations
        for one in estimates.lines(found)
    )
    assert line(found, TOTAL).operations == 140_820


def test_untimed_kinds_of_several_sizes_are_counted_together(tmp_path: Path) -> None:
    made = busy()
    made.called("memalign", "small", 500, 64)
    made.called("memalign", "medium", 70, 5_000)
    made.called("memalign", "large", 3, 1 << 20, phase="parallel")
    found = gathered(tmp_path, made)
    assert (line(found, "aligned").untimed, line(found, TOTAL).untimed) == (573, 573)
    assert line(found, "aligned").operations == 573


def test_cpu_time_and_faults_of_a_process_that_became_another_program_count_once(
    tmp_path: Path,
) -> None:
    before = busy(pid=5, begin_ns=1, state=1, user_us=100_000)
    before.faulted("reused", "small", 100, 1_000)
    found = gathered(
        tmp_path, before, busy(pid=5, begin_ns=2, user_us=900_000), busy(pid=6, begin_ns=3)
    )
    assert estimates.cpu_ns(found) == 1_800_000_000
    inside = tables.faults_inside(found)
    assert inside is not None
    assert inside.value == inside.interval.high == 10_000


def test_large_blocks_that_were_too_many_to_be_watched_stand_for_the_others(tmp_path: Path) -> None:
    made = busy()
    made.samples["freed"][0, 2] = 40
    one = line(gathered(tmp_path, made), "free, local")
    assert one.operations == pytest.approx(40 + (70_410 - 40) * 0.9)


def test_remote_frees_are_a_share_with_wilsons_interval(tmp_path: Path) -> None:
    found = gathered(tmp_path, busy())
    share = estimates.remote_share(found)
    assert share is not None
    ends = estimates.wilson(110, 1100)
    assert share.value == pytest.approx(7_040 / 70_410)
    assert share.interval.low == pytest.approx(ends.low * 70_400 / 70_410)
    assert ends.low < 0.1 < ends.high
    assert estimates.wilson(0, 50).low == 0 < estimates.wilson(0, 50).high < 0.08
    assert tables.new_share(found.tally) == pytest.approx(6_410 / 64_010)


def test_page_faults_are_scaled_by_strata_and_not_by_the_large_blocks_that_are_timed_all(
    tmp_path: Path,
) -> None:
    """All 100 operations on large blocks cause a page fault each.

    Of the operations on small blocks, one in 1,000 causes a page fault. An estimate without strata
    would be 5,900 faults instead of 164.
    """
    made = Made()
    made.called("malloc", "small", 64_000, 100)
    made.called("malloc", "large", 100, 1 << 20)
    made.timed("reused", "small", [50] * 1_000)
    made.timed("reused", "large", [9_000] * 100)
    made.faulted("reused", "small", 1_000, 1)
    made.faulted("reused", "large", 100, 100)
    inside = tables.faults_inside(gathered(tmp_path, made))
    assert inside is not None
    assert inside.value == pytest.approx(64 + 100)
    assert 101 <= inside.interval.low < inside.value < inside.interval.high < 164 + 3 * 64


def test_page_faults_are_not_measured_if_too_few_operations_were_examined(tmp_path: Path) -> None:
    made = Made()
    made.called("malloc", "small", 64_000, 100)
    made.called("calloc", "small", 4_000, 100)
    made.timed("reused", "small", [50] * 1_000)
    made.timed("calloc", "small", [50] * 60)
    assert tables.faults_inside(gathered(tmp_path, made)) is None
    made.faulted("reused", "small", 120, 2)
    assert tables.faults_inside(gathered(tmp_path, made)) is None
    made.faulted("calloc", "small", 8, 0)
    assert tables.faults_inside(gathered(tmp_path, made)) is not None


def test_counters_of_a_sample_stand_for_all_operations(tmp_path: Path) -> None:
    found = gathered(tmp_path, busy())
    line = {one.name: one for one in tables.event_lines(found)}
    assert list(line) == ["new", "reused", "free", TOTAL]
    assert tables.events_refused(found) == {"cycles": (2,)}
    assert all(list(one.totals) == ["instructions"] for one in line.values())

    reused = line["reused"]
    assert (reused.operations, reused.looked_at) == (64_000 - 6_400, 100)
    assert reused.per_operation("instructions").value == pytest.approx(60)
    assert reused.per_operation("instructions").interval.low == pytest.approx(60, rel=0.02)
    assert line["new"].totals["instructions"].value == pytest.approx(10 * 10_000)
    # Of the 60 frees in the sample, 10 took 100 instructions, and 50 took 40.
    assert line["free"].per_operation("instructions").value == pytest.approx(50)
    assert line["free"].per_operation("instructions").interval.high > 54
    parts = [line[name].totals["instructions"].value for name in ("new", "reused", "free")]
    assert line[TOTAL].totals["instructions"].value == pytest.approx(sum(parts))


def test_a_thread_without_a_descriptor_does_not_remove_the_counters(tmp_path: Path) -> None:
    """One thread without a descriptor (EMFILE) once removed the event from the whole report."""
    made = busy()
    made.counts(
        "instructions", "cycles", refused={"instructions": errno.EMFILE, "cycles": errno.ENOENT}
    )
    found = gathered(tmp_path, made)
    assert tables.events_refused(found) == {"cycles": (errno.ENOENT,)}
    assert tables.some_threads_uncounted(found)
    line = {one.name: one for one in tables.event_lines(found)}
    assert list(line[TOTAL].totals) == ["instructions"]
    assert line["reused"].per_operation("instructions").value == pytest.approx(60)


def test_events_that_no_thread_had_a_descriptor_for_are_refused(tmp_path: Path) -> None:
    made = Made()
    made.called("malloc", "small", 6_400, 100)
    made.timed("reused", "small", [50] * 100)
    made.counts("instructions", refused={"instructions": errno.EMFILE})
    found = gathered(tmp_path, made)
    assert tables.events_refused(found) == {"instructions": (errno.EMFILE,)}
    assert not tables.some_threads_uncounted(found)
    assert not tables.event_lines(found)


def test_counters_of_more_operations_than_there_were_stand_for_themselves(tmp_path: Path) -> None:
    made = busy()
    made.threads["calls"][:] = 0
    one = {line.name: line for line in tables.event_lines(gathered(tmp_path, made))}["reused"]
    assert (one.operations, one.per_operation("instructions").value) == (100, 60)


@pytest.mark.parametrize(
    ("one_in", "each"), [pytest.param(10, 1, marks=pytest.mark.long), (40, 10)]
)
def test_intervals_of_page_faults_hold_the_truth(tmp_path: Path, one_in: int, each: int) -> None:
    """One operation in 512 is examined.

    On average, one operation in ten causes one fault, or one in forty causes ten.
    """
    rng = np.random.default_rng(20261122)
    held, rounds = 0, 100
    for _ in range(rounds):
        faults = rng.poisson(1 / one_in, 200_000) * each
        seen = rng.random(200_000) < 1 / 512
        made = Made(head={"minor_faults": 2**40})
        made.called("malloc", "small", 200_000, 100)
        made.faulted(
            "reused",
            "small",
            int(seen.sum()),
            int(faults[seen].sum()),
            squared=int((faults[seen] ** 2).sum()),
        )
        inside = tables.faults_inside(gathered(tmp_path, made))
        assert inside is not None
        held += inside.interval.low <= faults.sum() <= inside.interval.high
    assert held > 0.86 * rounds


def test_the_number_of_remote_frees_has_no_error_if_every_free_was_classified(
    tmp_path: Path,
) -> None:
    made = busy()
    made.freed("local", "small", 70_000)
    made.freed("remote", "small", 300)
    made.freed("local", "large", 10)
    found = gathered(tmp_path, made)
    assert line(found, "free, local").operations == 70_010
    assert line(found, "free, remote").operations == 300
    total = line(found, TOTAL)
    assert total.operations == found.operations
    assert total.untimed == 100  # operations on blocks without a known owner
    share = estimates.remote_share(found)
    assert share == Estimate(300 / 70_310, Interval(300 / 70_310, 300 / 70_310, 0.95))


def test_times_of_operations_alone_are_kept_apart_from_the_others(tmp_path: Path) -> None:
    made = busy()
    before = line(gathered(tmp_path, made), "reused")
    made.timed_alone("reused", "small", [90] * 300)
    after = line(gathered(tmp_path, made), "reused")
    assert before.alone_ns is None
    assert after.alone_ns == pytest.approx(90)
    assert (after.mean_ns, after.timed, after.quantiles) == (
        before.mean_ns,
        before.timed,
        before.quantiles,
    )


def test_locks_are_reported_by_kind(tmp_path: Path) -> None:
    mutex, spin = tables.lock_lines(gathered(tmp_path, locking()))
    assert (mutex.name, mutex.taken, mutex.contended, mutex.refused) == ("mutex", 40_000, 100, 7)
    assert mutex.wait_ns == pytest.approx((99 * 2_000 + 500_000) / TICKS_PER_NS)
    assert (mutex.max_wait_ns, mutex.sections, mutex.section_ns) == (250_000, 4_000, 150)
    assert (spin.name, spin.contended, spin.wait_ns, spin.max_section_ns) == (
        "spin lock",
        0,
        0,
        150,
    )


def test_critical_sections_of_which_none_was_timed_have_no_time(tmp_path: Path) -> None:
    made = Made()
    made.locked("mutex", 5)
    (mutex,) = tables.lock_lines(gathered(tmp_path, made))
    assert (mutex.wait_ns, mutex.sections, mutex.section_ns, mutex.max_section_ns) == (
        0,
        0,
        None,
        None,
    )


def test_kernel_calls_are_exact_and_without_the_clocks_own_time(tmp_path: Path) -> None:
    found = gathered(tmp_path, busy())
    first, second, third = tables.kernel_lines(found)
    assert (first.name, first.count, first.failed, first.bytes) == ("munmap", 10, 1, 10 << 20)
    assert first.total_ns == pytest.approx(30_000)
    assert first.mean_ns == first.max_ns == pytest.approx(3_000)
    assert first.per_second == pytest.approx(10)
    assert first.per_thousand == pytest.approx(10 / 140.82)
    assert (second.name, third.name, third.bytes) == ("mmap", "other", None)


@pytest.mark.parametrize(("sections", "is_known"), [(9, False), (10, True)])
def test_few_critical_sections_have_no_mean_time(
    tmp_path: Path, sections: int, is_known: bool
) -> None:
    made = busy()
    made.locked("mutex", 10 * sections)
    (mutex,) = tables.lock_lines(gathered(tmp_path, made))
    assert (mutex.section_ns is not None) == is_known


def test_numbers_of_any_size_make_no_infinity(tmp_path: Path) -> None:
    made = busy()
    for part in (made.threads, made.samples):
        part.view(np.uint8)[:] = 255
    made.start["pair_ticks"] = 0
    made.start["calls"].view(np.uint64)[:] = 2**64 - 1
    found = gathered(tmp_path, made)
    for one in estimates.lines(found):
        assert one.total_ns is None or math.isfinite(one.total_ns.interval.high)
    assert len(tables.kernel_lines(found)) == len(CALLS)
    assert len(estimates.details(found)) == len(PATHS)


def test_the_interval_of_the_number_of_remote_frees_has_the_truth_in_95_of_100_cases(
    tmp_path: Path,
) -> None:
    rng, hits, tries = random.Random(5), 0, 0
    for remote in (0.02, 0.3, 0.9):
        for _ in range(60):
            timed = rng.randint(5, 100)
            far = sum(rng.random() < remote for _ in range(timed))
            made = Made()
            made.start["threads_most"] = 2
            made.released("free", 20_000)
            for kind, number in (("free, local", timed - far), ("free, remote", far)):
                if number:
                    made.timed(kind, "small", [30] * number)
            within = line(gathered(tmp_path, made), "free, remote").within if far else None
            hits += remote * 20_000 <= within.high if within else 1
            hits += within.low <= remote * 20_000 if within else 1
            tries += 1
    assert 2 * tries - hits <= 0.07 * tries


def test_an_untimed_stratum_does_not_shorten_the_mean_time(tmp_path: Path) -> None:
    """100 large blocks take 9 µs each. None of the 900 small ones was timed."""
    made = Made()
    made.called("malloc", "small", 900, 100)
    made.called("malloc", "large", 100, 1 << 20)
    made.timed("reused", "large", [9_000] * 100)
    found = gathered(tmp_path, made)
    one = line(found, "reused")
    assert (one.operations, one.timed, one.untimed, one.is_known) == (1_000, 100, 900, True)
    assert one.mean_ns == pytest.approx(9_000)
    assert metrics.measured(found)["time.reused"] == pytest.approx((9_000, 9_000, 9_000))


@pytest.mark.parametrize(("untimed", "is_known"), [(400, True), (600, False)])
def test_untimed_frees_may_all_be_remote(tmp_path: Path, untimed: int, is_known: bool) -> None:
    """Of 10,000 frees of large blocks, all were timed. They said "0 %" of all frees once."""
    made = Made()
    made.start["threads_most"] = 2
    made.released("free", 10_000 + untimed)
    made.timed("free, local", "large", [30] * 10_000)
    share = estimates.remote_share(gathered(tmp_path, made))
    assert (share is not None) == is_known
    if share is not None:
        assert (share.value, share.interval.low) == (0, 0)
        assert share.interval.high == pytest.approx(untimed / (10_000 + untimed))


def with_copies(near: int, far: int, copies: int) -> Made:
    """Half of 512,000 frees are remote.

    Those were sampled when `copies` times as many blocks were alive, so each sampled one stands for
    as many more frees.
    """
    made = Made()
    made.start["threads_most"] = 2
    made.released("free", 512_000)
    made.timed("free, local", "small", [30] * near)
    made.timed("free, remote", "small", [60] * far, copies=copies)
    made.samples["freed"][0, 0] = 64 * (near + copies * far)
    made.samples["freed_elsewhere"][0, 0] = 64 * copies * far
    return made


def test_a_free_counts_as_often_as_its_block_stands_for_others(tmp_path: Path) -> None:
    """The remote frees were once taken to be 11 %, with an interval of ± 1 %."""
    found = gathered(tmp_path, with_copies(4_000, 500, 8))
    share = estimates.remote_share(found)
    assert share is not None and share.value == pytest.approx(0.5)
    # The standard error of the logarithm of the odds is the root of 1 / 4,000 + 1 / 500.
    half = 1.96 * 0.25 * math.sqrt(1 / 4_000 + 1 / 500)
    assert share.interval.high - 0.5 == pytest.approx(half, rel=0.02)
    assert metrics.measured(found)["remote"][0] == pytest.approx(0.5)
    elsewhere = block_samples.freed_elsewhere(found, 0)
    assert elsewhere is not None
    assert elsewhere.interval.low == pytest.approx(share.interval.low)
    assert elsewhere.interval.high == pytest.approx(share.interval.high)
    near, far = line(found, "free, local"), line(found, "free, remote")
    assert (near.operations, near.timed, far.timed) == (256_000, 4_000, 500)
    assert line(found, TOTAL).mean_ns == pytest.approx(45)
    assert (near.mean_ns, far.mean_ns) == pytest.approx((30, 60))
    assert metrics.measured(found)["time.free"][0] == pytest.approx(45)


def test_the_interval_of_frees_with_copies_has_the_truth_in_95_of_100_cases(
    tmp_path: Path,
) -> None:
    rng, hits, tries = np.random.default_rng(3), 0, 100
    for _ in range(tries):
        near, far = rng.binomial(256_000, 1 / 640), rng.binomial(256_000, 1 / 5_120)
        made = with_copies(int(near), int(far), 8)
        made.start["gap"] = 640
        share = estimates.remote_share(gathered(tmp_path, made))
        assert share is not None
        hits += share.interval.low <= 0.5 <= share.interval.high
    assert hits >= 0.93 * tries
