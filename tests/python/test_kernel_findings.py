"""Tests of the findings about system calls and page faults in programs that have other causes, too.

The profiles are invented, so the allocator's part of the time is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.probes import OLD, Made, busy, gathered

from cairn import units
from cairn.findings import find
from cairn.profile.tally import CALLS, ClockRun, KernelClock, Profile, Window
from cairn.report.profile_answer import because

MIB = 1 << 20
PAGES = 256
"""The pages of 1 MiB."""


def few_operations(freed: int = 1, each: int = MIB) -> Made:
    """Returns a profile of 100 small blocks, and of `freed` large blocks of `each` bytes.

    Each large block has a mapping of its own, which its free returns to the kernel. One such block
    lives at a time. All CPU time is 600 ms.
    """
    made = Made(user_us=100_000)
    made.start["system_us"] = 500_000
    made.called("malloc", "small", 100, 64)
    made.called("malloc", "large", freed, each)
    made.released("free", 100 + freed)
    made.kernel("mmap", freed, 2_000, each)
    made.kernel("munmap", freed, 50_000, each)
    made.moments((4_000_000, each, each, 17 * MIB))
    made.start["peak_resident_bytes"] = 17 * MIB
    return made


def test_page_faults_of_the_programs_own_mappings_are_not_the_allocators(tmp_path: Path) -> None:
    """The program mapped and unmapped 16 MiB 60 times, and the allocator returned 1 MiB once.

    93 % of the CPU time was once said to be lost in returned memory, which took 0.01 %.
    """
    made = few_operations()
    made.start["minor_faults"] = 17 * PAGES + 60 * 16 * PAGES
    assert find(gathered(tmp_path, made, system_ns=500_000_000)) == ()


def test_memory_that_was_returned_once_is_not_needed_again_and_again(tmp_path: Path) -> None:
    """The allocator returned 1 GiB once. Then the program's own mappings had as many page faults.

    One call in 203 operations was once enough to be frequent.
    """
    made = few_operations(each=1024 * MIB)
    made.start["peak_resident_bytes"] = 1024 * MIB
    made.start["minor_faults"] = 2 * 1024 * PAGES
    assert find(gathered(tmp_path, made, system_ns=500_000_000)) == ()
    # Ten times as much memory as was ever held is needed again, also if there are few calls.
    made = few_operations(freed=9, each=16 * MIB)
    made.start["minor_faults"] = 17 * PAGES + 8 * 16 * PAGES
    (found,) = find(gathered(tmp_path / "again", made, system_ns=500_000_000))
    assert found.name == "returns-what-it-needs"


def test_page_faults_count_only_for_memory_that_the_allocator_returned(tmp_path: Path) -> None:
    """Every page fault takes 10 µs. 40,000 of them come beyond the peak.

    The allocator returned 100 MiB, so 25,600 of them can be its own: 256 of the 600 ms. Its calls
    take 5.2 ms.
    """
    made = few_operations(freed=100)
    made.start["minor_faults"] = 17 * PAGES + 40_000
    system_ns = 5_200_000 + 10_000 * (17 * PAGES + 40_000)
    (found,) = find(gathered(tmp_path, made, system_ns=system_ns))
    assert found.name == "returns-what-it-needs"
    assert found.effect == pytest.approx((256 + 5.2) / 600, rel=0.01)
    assert found.evidence[1] == "25,600 of 44,352 page faults can come from it"


def test_a_change_of_protection_causes_no_more_page_faults_than_it_has_pages(
    tmp_path: Path,
) -> None:
    """1,000 calls of mprotect change 64 KiB each, and take 50 ms. They change 16,000 pages.

    In the first profile, the program's own mappings have 200,000 page faults, and those of the
    allocator cannot be told from these. In the second, it has none.
    """
    for own, measured in ((200_000, True), (0, False)):
        made = busy()
        made.kernel("mprotect", 1_000, 50_000, 64 << 10, sealing=500)
        made.start["minor_faults"] = 30 * PAGES + 16_000 + own
        faults = 30 * PAGES + 16_000 + own
        profile = gathered(tmp_path / str(own), made, system_ns=50_000_000 + 1_000 * faults)
        (found,) = find(profile)
        assert (found.name, found.measured) == ("changes-protection", measured)
        repeated = 0 if measured else 16_000 * 1_000
        assert found.effect == pytest.approx((50_000_000 + repeated) / 900_000_000, rel=0.01)


@pytest.mark.parametrize("call", ["mmap", "other"])
@pytest.mark.parametrize(("count", "expected"), [(9, 0), (10, 1)])
def test_a_few_system_calls_are_not_frequent(
    tmp_path: Path, call: str, count: int, expected: int
) -> None:
    """Each call takes 5 ms, and the program makes 200 operations in 600 ms."""
    made = Made(user_us=600_000)
    made.called("malloc", "small", 100, 64)
    made.released("free", 100)
    made.kernel(call, count, 5_000_000, 4096 if call == "mmap" else 0)
    made.moments((4_000_000, MIB, 2 * MIB, 9 * MIB))
    assert len(find(gathered(tmp_path, made))) == expected


def growing(pid: int, head: Mapping[str, int] | None = None) -> Made:
    """Returns a process that grows by 1,000 calls of mprotect of 64 KiB each, as an arena of glibc.

    It holds 64 MiB in the end, and has changed the protection of 62.5 MiB.
    """
    made = busy(pid=pid, begin_ns=10**9 + pid, head=dict(head or {}))
    made.kernel("mprotect", 1_000, 50_000, 64 << 10)
    made.moments((4_000_000, MIB, 2 * MIB, 9 * MIB), (8_000_000, 12 * MIB, 64 * MIB, 28 * MIB))
    return made


@pytest.mark.parametrize("processes", [1, 4])
def test_growth_of_several_processes_is_no_change_of_the_same_pages(
    tmp_path: Path, processes: int
) -> None:
    """The bytes of four processes were once compared with those that one of them held."""
    for name, head in (("old", OLD), ("new", {})):
        made = (growing(100 + k, head) for k in range(processes))
        (found,) = find(gathered(tmp_path / name, *made))
        assert found.name == "asks-too-often"


def test_changes_of_the_same_pages_are_found_in_several_processes(tmp_path: Path) -> None:
    files = [growing(100, OLD), growing(101, OLD)]
    for made in files:
        made.kernel("mprotect", 1_200, 50_000, 64 << 10)
    (found,) = find(gathered(tmp_path, *files))
    assert found.name == "changes-protection"
    assert found.evidence[0].endswith(
        "275 MiB changed, while the most that each of 2 processes held adds up to at least 128 MiB"
    )


def moving_the_break(pid: int, *, shrinks: bool) -> Made:
    """Returns a process that moves the end of its heap 640 times by 128 KiB, which takes 64 ms.

    Either it grows to 80 MiB, or it grows to 2 MiB again and again. Its page faults are 10,000 more
    than the pages of its peak.
    """
    made = busy(pid=pid, begin_ns=10**9 + pid)
    made.kernel("brk", 640, 100_000, 128 << 10)
    made.moments(
        (4_000_000, MIB, 2 * MIB, 9 * MIB),
        (8_000_000, 12 * MIB, (2 if shrinks else 80) * MIB, 28 * MIB),
    )
    made.start["minor_faults"] = 30 * PAGES + 10_000
    return made


@pytest.mark.parametrize("processes", [1, 8])
def test_a_heap_that_never_shrank_returned_nothing(tmp_path: Path, processes: int) -> None:
    """The growth of eight heaps, less the size of one, once counted as returned memory."""
    grown = [moving_the_break(100 + k, shrinks=False) for k in range(processes)]
    (found,) = find(gathered(tmp_path, *grown))
    assert found.name == "asks-too-often"
    shrunk = [moving_the_break(100 + k, shrinks=True) for k in range(processes)]
    (found,) = find(gathered(tmp_path / "shrunk", *shrunk))
    assert found.name == "returns-what-it-needs"
    # Each process returned 39 MiB by brk, and 10 MiB by munmap.
    returned = units.size(processes * 49 * MIB)
    assert f"{640 * processes:,} of brk returned {returned}, while" in found.evidence[0]


@pytest.mark.parametrize(
    ("processes", "counted", "told"),
    [
        (1, True, "while at most 2.00 MiB were held at a time"),
        (1, False, "while at least 2.00 MiB were held at a time"),
        (2, True, "processes held adds up to 4.00 MiB"),
        (2, False, "processes held adds up to at least 4.00 MiB"),
    ],
)
def test_memory_held_at_moments_is_not_called_the_most(
    tmp_path: Path, processes: int, counted: bool, told: str
) -> None:
    """More may have been held between two moments. The evidence once said "at most"."""
    files = [moving_the_break(100 + k, shrinks=True) for k in range(processes)]
    for made in files if not counted else ():
        made.start["held_most"] = 0
    profile = gathered(tmp_path, *files)
    assert all(one.held_is_least != counted for one in profile.processes)
    (found,) = find(profile)
    assert told in found.evidence[0]


def test_a_process_without_a_recorded_moment_held_at_most_all_that_it_got(tmp_path: Path) -> None:
    """So little is known of a process that was killed early."""
    made = busy()
    made.kernel("brk", 4, 1_000, 128 << 10)
    made.samples["moments"][0]["ns"] = made.start["held_most"] = 0
    (process,) = gathered(tmp_path, made).processes
    assert process.held_bytes == 10 * MIB + (512 << 10)
    assert not process.held_is_least
    assert process.shrunk_bytes == 0


def test_a_process_that_executed_other_programs_touched_their_pages_for_the_first_time(
    tmp_path: Path,
) -> None:
    """Each of four programs touches 100 MiB once, and returns 80 MiB of them. One follows another.

    They are one process, so the page faults of the last include those of the others.
    """
    images = []
    for k in range(4):
        made = busy(begin_ns=10**9 + k, state=2 if k == 3 else 1)
        made.kernel("munmap", 100, 1_000_000, 800 << 10)
        made.start["peak_resident_bytes"] = 100 * MIB
        made.start["minor_faults"] = (k + 1) * 100 * PAGES
        images.append(made)
    assert find(gathered(tmp_path, *images)) == ()


def test_the_system_time_of_processes_without_a_record_is_not_that_of_the_others(
    tmp_path: Path,
) -> None:
    """Each page fault of the program takes 1 µs. Nine tenths of them are in unrecorded processes.

    The calls that return 72.5 MiB take 100 ms, and each returned page is needed again.
    """
    made = busy()
    made.kernel("madvise(DONTNEED)", 1_000, 100_000, 64 << 10)
    faults = made.start["minor_faults"] = 30 * PAGES + 18_560
    whole = 10 * int(faults)
    profile = gathered(tmp_path, made, system_ns=100_000_000 + whole * 1_000, faults=whole)
    (found,) = find(profile)
    assert found.name == "returns-what-it-needs"
    assert found.effect == pytest.approx((100 + 18.56) / 900, rel=0.01)


def test_memory_that_another_process_freed_cannot_be_reused_in_the_largest(tmp_path: Path) -> None:
    """The largest process frees nothing, and 49 MiB of it hold blocks of 20 MiB.

    Another process frees all of its 153 MiB. Once, these 153 MiB were memory that the largest could
    have reused.
    """
    largest, other = Made(pid=100), Made(pid=101, begin_ns=10**9 + 1)
    largest.called("malloc", "small", 200_000, 100)
    largest.fresh("small", 200_000)
    largest.moments((1, 20 * MIB, 49 * MIB, 110 * MIB, 0, 0, 2**64 - 1))
    other.called("malloc", "small", 1_600_000, 100)
    other.fresh("small", 1_500_000)
    other.released("free", 1_600_000)
    other.moments((1, MIB, 2 * MIB, 3 * MIB, 0, 0, 2**64 - 1))
    assert find(gathered(tmp_path, largest, other)) == ()
    largest.called("malloc", "small", 1_400_000, 100)
    largest.fresh("small", 1_300_000)
    (found,) = find(gathered(tmp_path / "freed", largest, other))
    assert found.name == "not-reused"


def clocked(profile: Profile, calls_ns: float) -> Profile:
    """Adds a run without the probe. Of 900 ms, `calls_ns` are in the allocator's system calls."""
    run = ClockRun(
        probed=False, scope="processors", samples=4_000, own_ns=100e6, calls_ns=calls_ns,
        program_ns=800e6 - calls_ns, inside_squares=45e12, squares=202e12, cpu_ns=900e6,
    )  # fmt: skip
    return replace(profile, clock=KernelClock((run,)))


def test_changes_of_protection_take_no_more_than_the_clock_samples_saw(tmp_path: Path) -> None:
    """By the clock, 41 % of the CPU time were once in system calls, and 100 % in mprotect alone.

    The calls take 1.8 s, because they wait for a processor.
    """
    made = busy()
    made.kernel("mprotect", 1_000, 1_800_000, 64 << 10, sealing=500)
    profile = gathered(tmp_path, made, system_ns=2_000_000_000)
    assert find(profile)[0].effect == pytest.approx(1, rel=1e-3)
    (found,) = find(clocked(profile, 369e6))
    assert (found.name, found.measured) == ("changes-protection", True)
    assert found.effect == found.interval.low == found.interval.high
    assert found.effect == pytest.approx(0.41, rel=1e-3)


def test_returned_memory_takes_no_more_calls_than_the_clock_samples_saw(tmp_path: Path) -> None:
    """The calls that return memory take 90 ms, and 450 ms with the time in which they wait.

    Each of 18,560 pages is needed again, and each page fault takes 10 µs.
    """
    made = busy()
    made.kernel("madvise(DONTNEED)", 1_000, 450_000, 64 << 10)
    faults = made.start["minor_faults"] = 30 * PAGES + 18_560
    profile = gathered(tmp_path, made, system_ns=90_000_000 + int(faults) * 10_000)
    (found,) = find(clocked(profile, 90e6))
    assert found.name == "returns-what-it-needs" and not found.measured
    assert found.effect == pytest.approx((90 + 185.6) / 900, rel=0.01)
    assert found.interval.low == pytest.approx(0.1, rel=1e-3)
    assert found.interval.high == pytest.approx((90 + 2 * 185.6) / 900, rel=0.01)


@pytest.mark.parametrize(
    ("faults_ns", "value_ms", "high_ms"),
    [
        # The allocator's page faults are 25,600 of 29,952.
        (5e6, 35.2 + 5 * 25_600 / 29_952, 44.2),
        # None of 4,000 samples came in a page fault. So page faults take 0.1 % or less.
        (0.0, 35.2, 36.8),
        # Without clock samples, all other system time may be that of page faults.
        (None, None, 1_600),
    ],
)
def test_the_system_time_of_reading_and_writing_files_is_not_that_of_page_faults(
    tmp_path: Path, faults_ns: float | None, value_ms: float | None, high_ms: float
) -> None:
    """The program reads and writes files for 1.46 s of its 1.6 s of CPU time.

    The allocator returns memory, which takes 35.2 ms. It was once told that the calls and their
    page faults cost 66 % of the CPU time, although the page faults took 5 ms.
    """
    made = few_operations(freed=100)
    made.kernel("madvise(DONTNEED)", 100, 300_000, MIB)
    made.start["system_us"] = 1_500_000
    made.start["minor_faults"] = 17 * PAGES + 25_600
    profile = gathered(tmp_path, made, system_ns=1_500_000_000)
    if faults_ns is not None:
        run = ClockRun(
            probed=False, scope="processors", samples=4_000, own_ns=50e6, calls_ns=36e6,
            program_ns=1_514e6, inside_squares=86e6 * 0.4e6, squares=1_600e6 * 0.4e6,
            cpu_ns=1_600e6, page_faults_ns=faults_ns,
        )  # fmt: skip
        profile = replace(profile, clock=KernelClock((run,)))
    (found,) = find(profile)
    assert found.name == "returns-what-it-needs" and found.interval is not None
    assert found.interval.low * 1_600 == pytest.approx(35.0, rel=0.01)
    assert found.interval.high * 1_600 <= high_ms
    assert found.measured is (value_ms is not None)
    told = because(found)
    assert ", page faults in the program's code included" in told
    if value_ms is not None:
        assert found.effect * 1_600 == pytest.approx(value_ms, rel=0.01)
        assert found.effect * 1_600 <= 35.2 + 6
    else:
        assert "2 % to 100 % of the CPU time" in told


@pytest.mark.parametrize("touched", [1, 0])
def test_a_mapping_for_each_large_block_is_returned_and_needed_again(
    tmp_path: Path, touched: int
) -> None:
    """A program has a heap of 60 MB. Beside it, 10,000 buffers live one after another.

    Each buffer is a mapping of 256 KiB, of which one page is touched. 39 % of all page faults are
    repeated. The finding was once that memory comes "in many small pieces", and the cost of munmap
    was left out.
    """
    made = Made(user_us=400_000)
    made.start["system_us"] = 100_000
    made.called("malloc", "small", 600_000, 100)
    made.called("malloc", "large", 10_000, 256 << 10)
    made.released("free", 10_000)
    made.kernel("brk", 455, 1_000, 132 << 10)
    made.kernel("mmap", 10_000, 3_500, 256 << 10)
    made.kernel("munmap", 10_000, 4_500, 256 << 10)
    made.moments((4_000_000, 57 * MIB, 60_000_000, 60_000_000))
    made.start["peak_resident_bytes"] = 15_500 * 4096
    made.start["minor_faults"] = 15_500 + 10_000 * touched
    (found,) = find(gathered(tmp_path, made, system_ns=100_000_000))
    assert found.name == "returns-what-it-needs"
    calls_ms, faults_ms = 80.5, 19.5 * 10_000 / 25_500 * touched
    assert found.effect == pytest.approx((calls_ms + faults_ms) / 500, rel=0.03)
    assert found.evidence[:2] == (
        "10,000 calls of munmap returned 2.44 GiB, while at most 57.2 MiB were held at a time",
        "10,000 calls of mmap got 2.44 GiB",
    )
    repeated = (
        "10,000 of 25,500 page faults come in addition to one for each page of the largest "
        "resident set",
    )
    assert found.evidence[2:] == repeated * touched
    assert "MALLOC_MMAP_THRESHOLD_" in found.advice


def test_large_mappings_that_are_kept_are_requested_too_often(tmp_path: Path) -> None:
    """Each of 1,000 large blocks has a mapping, and lives to the end."""
    made = Made(user_us=100_000)
    made.called("malloc", "large", 1_000, 256 << 10)
    made.kernel("mmap", 1_000, 20_000, 256 << 10)
    made.moments((4_000_000, 250 * MIB, 250 * MIB, 250 * MIB))
    (found,) = find(gathered(tmp_path, made))
    assert found.name == "asks-too-often"
    assert found.says == "The allocator gets memory from the kernel in many pieces"
    assert "MALLOC_MMAP_THRESHOLD_" in found.advice and "MALLOC_TOP_PAD_" in found.advice


def sleeper(yielded_ms: int, slept_ms: int) -> Made:
    """Returns a program of one thread that lives for ten seconds and has one second of CPU time."""
    made = Made(user_us=1_000_000, span_ns=10_000_000_000)
    made.called("malloc", "small", 50_000, 64)
    made.released("free", 50_000)
    made.threads["since_ticks"][0] = 7
    for call, ms, cpu_ms in (("sched_yield", yielded_ms, yielded_ms), ("sleep", slept_ms, 0)):
        made.kernel(call, 100, ms * 10_000)
        made.start["calls"][0, CALLS.index(call)]["cpu_ns"] = cpu_ms * 1_000_000
    return made


@pytest.mark.parametrize(
    ("yielded_ms", "slept_ms", "of", "effect"),
    [
        # 10 % of the CPU time are 0.1 s, and 9 % of the thread's time are 0.9 s.
        (100, 900, "thread time", 0.09),
        (100, 90, "CPU", 0.1),
        # 1.9 % of the thread's time are too little for a finding, and 10 % of CPU time are not.
        (100, 190, "CPU", 0.1),
    ],
)
def test_the_larger_of_two_times_is_the_effect_and_not_the_larger_share(
    tmp_path: Path, yielded_ms: int, slept_ms: int, of: str, effect: float
) -> None:
    (found,) = find(gathered(tmp_path, sleeper(yielded_ms, slept_ms)))
    assert (found.name, found.of) == ("waits-alone", of)
    assert found.effect == pytest.approx(effect, rel=0.01)


def test_the_finding_with_the_largest_time_is_first(tmp_path: Path) -> None:
    """The thread waits for 1 s of its 10 s. Frequent calls take 0.4 s, which are 40 % of CPU."""
    made = sleeper(0, 1_000)
    made.kernel("other", 1_000, 400_000)
    first, second = find(gathered(tmp_path, made))
    assert (first.name, first.effect) == ("waits-alone", pytest.approx(0.1, rel=0.01))
    assert (second.name, second.effect) == ("calls-the-kernel", pytest.approx(0.4, rel=0.01))


def test_a_window_without_an_operation_has_no_finding(tmp_path: Path) -> None:
    """The only operation began before the window and sleeps in it. That was a division by zero."""
    profile = gathered(tmp_path, sleeper(0, 1_000))
    nothing = replace(
        profile.tally, calls=profile.tally.calls * 0, released=profile.tally.released * 0
    )
    assert find(replace(profile, tally=nothing)) == ()


def test_munmap_belongs_to_the_calls_that_ask_too_often(tmp_path: Path) -> None:
    """Each of 1,000 mappings is unmapped again. Calls of madvise are another matter."""
    made = busy()
    made.kernel("mmap", 1_000, 50_000, 4096)
    made.kernel("munmap", 1_000, 50_000, 4096)
    (found,) = find(gathered(tmp_path, made))
    assert found.name == "asks-too-often"
    made.kernel("madvise(FREE)", 1_000, 30_000, 4096)
    found, others = find(gathered(tmp_path / "advised", made))
    assert (found.name, others.name) == ("asks-too-often", "calls-the-kernel")
    assert others.effect == pytest.approx(30 / 900, rel=0.02)


def test_memory_that_was_resident_before_a_window_is_not_touched_for_the_first_time_in_it(
    tmp_path: Path,
) -> None:
    """A server has 100 MiB before the window and in it. In the window, it returns 62.5 MiB once.

    The 100 MiB once counted as first touches, so none of the 16,000 page faults was a repeated one.
    """
    made = busy()
    made.kernel("madvise(DONTNEED)", 1_000, 100_000, 64 << 10)
    made.start["peak_resident_bytes"] = 100 * MIB
    made.start["minor_faults"] = 16_000
    profile = gathered(tmp_path, made)
    assert [one.name for one in find(profile)] == ["calls-the-kernel"]
    (process,) = profile.processes
    for grown, name in ((0, "returns-what-it-needs"), (100 * MIB, "calls-the-kernel")):
        within = replace(
            profile,
            processes=(replace(process, grown_bytes=grown),),
            window=Window(1, 10**9, 0),
        )
        (found,) = find(within)
        assert found.name == name
        told = "for each page by which the resident set grew" in str(found.evidence)
        assert told is (grown == 0)
