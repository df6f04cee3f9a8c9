"""Tests of the findings with invented profiles. Some of the profiles must have no finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.probes import OLD, Made, busy, gathered

from cairn import units
from cairn.findings import find
from cairn.findings.waiting import one_lock, queues
from cairn.model import Finding
from cairn.profile.lock_table import LockTable, LockUse
from cairn.profile.tally import CALLS, ClockRun, KernelClock, LockCount, Profile
from cairn.report.profile import title_parts
from cairn.report.profile_answer import because
from cairn.why.profile_summary import summarized

MIB = 1 << 20


def storm() -> Made:
    """A profile in which 1,000 system calls return 64 KiB each.

    Each takes 100 µs. The program touches all this memory again.
    """
    made = busy()
    made.kernel("madvise(DONTNEED)", 1_000, 100_000, 64 << 10)
    made.start["minor_faults"] = 5_000 + 30 * 256 + 16_000
    return made


def wasting() -> Made:
    """A profile with 150 MiB of fresh memory. The program freed nearly all of it."""
    made = busy()
    made.called("malloc", "small", 1_600_000, 100)
    made.fresh("small", 1_500_000)
    return made


def names(found: tuple[Finding, ...]) -> list[str]:
    return [finding.name for finding in found]


def test_a_healthy_program_has_no_finding(tmp_path: Path) -> None:
    assert find(gathered(tmp_path, busy())) == ()


def test_memory_that_is_returned_and_needed_again_is_found_with_its_share_of_cpu(
    tmp_path: Path,
) -> None:
    (found,) = find(gathered(tmp_path, storm()))
    assert found.name == "returns-what-it-needs"
    assert found.effect == pytest.approx(0.1 / 0.9, rel=0.02)
    assert found.measured
    assert found.evidence[0].startswith(
        "1,000 calls of madvise(DONTNEED) and 10 of munmap returned 72.5 MiB, while "
    )


def test_processes_that_never_allocate_are_in_the_cpu_time_of_the_whole_program(
    tmp_path: Path,
) -> None:
    """The recorded process used 900 ms. The title once gave this as the program's CPU time."""
    found = gathered(tmp_path, busy(), system_ns=3_000_000_000)
    parts = title_parts(found)
    assert "1 process that allocates" in parts
    assert parts[-1] == "CPU 900 ms of 3.00 s in the whole program"
    alone = gathered(tmp_path / "alone", busy(), system_ns=950_000_000)
    assert "1 process" in title_parts(alone)
    assert title_parts(alone)[-1] == "CPU 900 ms"


def test_the_time_of_page_faults_is_inferred_and_widens_the_interval(tmp_path: Path) -> None:
    (found,) = find(gathered(tmp_path, storm(), system_ns=200_000_000))
    assert not found.measured
    assert found.interval.low == pytest.approx(0.1 / 0.9, rel=0.02)
    assert found.interval.low < found.effect < found.interval.high <= 1


def test_calls_that_waited_for_a_processor_took_no_more_of_it_than_there_was(
    tmp_path: Path,
) -> None:
    made = busy()
    made.kernel("mmap", 500, 1_000_000, 4096)
    (found,) = find(gathered(tmp_path, made, system_ns=90_000_000))
    assert found.name == "asks-too-often"
    assert found.effect == pytest.approx(0.09 / 0.9, rel=0.02)


def test_short_calls_are_found_although_the_probes_detours_take_all_system_time(
    tmp_path: Path,
) -> None:
    """A detour is the additional time of a system call that the probe intercepts.

    The measured cost of a detour is a little too large here: all detours together seem to take
    2,820 ms, but the whole system time is 2,800 ms. No time seems to be left for the calls, which
    took 280 ms. In an earlier version, the calls were then not found.
    """
    made = busy()
    made.kernel("other", 1_410_000, 200)
    made.start["dispatch"] = 1
    made.start["dispatch_ticks"] = 2_000
    profile = gathered(tmp_path, made, system_ns=2_800_000_000)
    assert profile.tally.detour_ticks > 2_800_000_000
    (found,) = find(profile)
    assert found.name == "calls-the-kernel"
    assert found.effect > 0.2


@pytest.mark.parametrize(
    "change",
    [
        # The allocator returned no memory.
        lambda made: made.start["calls"]["calls"].__setitem__(0, 0),
        # Returning the memory took no time.
        lambda made: made.start["calls"]["ticks"].__setitem__(0, 0),
    ],
)
def test_nothing_is_found_if_one_of_the_signs_is_missing(
    tmp_path: Path, change: Callable[[Made], None]
) -> None:
    made = storm()
    change(made)
    assert find(gathered(tmp_path, made)) == ()


@pytest.mark.parametrize("call", ["madvise(FREE)", "madvise(DONTNEED)"])
@pytest.mark.parametrize("faults", [5_000, 0])
def test_frequent_calls_that_return_memory_which_is_not_needed_again_are_found(
    tmp_path: Path, call: str, faults: int
) -> None:
    """The calls take 100 of 900 ms. No rule counted them, because no page fault came from them.

    There may be no page fault at all in a window of a program's life.
    """
    made = busy()
    made.kernel(call, 1_000, 100_000, 64 << 10)
    made.start["minor_faults"] = faults
    (found,) = find(gathered(tmp_path, made))
    assert (found.name, found.of) == ("calls-the-kernel", "CPU")
    assert found.says == "The allocator often calls the kernel to return memory"
    assert found.effect == pytest.approx(0.1 / 0.9, rel=0.02)
    assert f"1,000 {call}" in found.evidence[0]
    assert found.advice.startswith("let the allocator keep more free memory")
    # The calls that return memory are the smaller part.
    made.kernel("other", 141_000, 2_000)
    (found,) = find(gathered(tmp_path / "mixed", made))
    assert found.says.endswith("neither to get memory nor to wait")
    assert found.effect == pytest.approx(0.382 / 0.9, rel=0.02)


def test_memory_that_malloc_trim_can_have_returned_is_no_fault_of_the_allocator(
    tmp_path: Path,
) -> None:
    """The allocator holds 16 MiB at most, and 72.5 MiB are returned.

    62.5 MiB of them are not of munmap. Four calls of malloc_trim() by the program can have returned
    that, and three cannot.
    """
    for trims, names_them in ((4, True), (3, False)):
        made = storm()
        made.released("malloc_trim", trims)
        (found,) = find(gathered(tmp_path / str(trims), made))
        assert found.name == "returns-what-it-needs"
        assert ("malloc_trim() by the program" in found.says) is names_them
        assert (f"the program called malloc_trim() {trims} times" in found.evidence) is names_them
        assert found.advice.startswith("let the program call" if names_them else "let the alloc")
        made.start["minor_faults"] = 5_000
        (found,) = find(gathered(tmp_path / f"{trims} in vain", made))
        assert found.name == "calls-the-kernel"
        assert ("malloc_trim() by the program" in found.says) is names_them


def test_frequent_requests_to_the_kernel_are_found_unless_returned_memory_causes_them(
    tmp_path: Path,
) -> None:
    made = busy()
    made.kernel("mmap", 500, 100_000, 4096)
    (found,) = find(gathered(tmp_path, made))
    assert found.name == "asks-too-often"
    assert found.effect == pytest.approx(0.05 / 0.9, rel=0.05)
    made = storm()
    made.kernel("mmap", 500, 100_000, 4096)
    (found,) = find(gathered(tmp_path, made))
    assert found.name == "returns-what-it-needs"


def test_moving_pages_by_mremap_is_no_finding(tmp_path: Path) -> None:
    """Cairn's realloc once had a finding for mremap, although all other allocators took longer."""
    made = busy()
    made.kernel("mremap", 500, 100_000, 1 << 20)
    assert find(gathered(tmp_path, made)) == ()


def test_a_block_that_grows_page_by_page_calls_the_kernel_too_often(tmp_path: Path) -> None:
    """A block grows to 977 MiB by 250,000 calls of mremap, which take 500 of 900 ms.

    There was once no finding. With 10,000 blocks that grow as far together, each needs 25 calls,
    and moving their pages saves copying them.
    """
    for blocks, expected in ((1, ["asks-too-often"]), (10_000, [])):
        made = Made(user_us=900_000)
        made.called("malloc", "large", blocks, 4096)
        made.called("realloc", "large", 250_000, 500 * MIB // blocks)
        made.released("free", blocks)
        made.kernel("mremap", 250_000, 2_000, 500 * MIB // blocks)
        made.samples["freed"][0] = (0, 0, blocks)
        made.moments((4_000_000, 977 * MIB, 977 * MIB, 977 * MIB))
        found = find(gathered(tmp_path / str(blocks), made))
        assert names(found) == expected
        for one in found:
            assert one.effect == pytest.approx(5 / 9, rel=0.01)
            assert one.says == (
                "The allocator calls the kernel each time the program resizes a large block"
            )
            assert one.evidence == (
                "250,000 mremap, at least 84,631 for each block",
                "1,000 system calls per 1,000 operations",
            )
            assert "grow them in larger steps" in one.advice
        made.kernel("brk", 100_000, 2_000, 4096)
        (both,) = find(gathered(tmp_path / f"{blocks} and brk", made))
        alone = 5 / 9 if blocks == 1 else 2 / 9
        assert both.effect == pytest.approx(alone, rel=0.01), "that of one kind of calls"


@pytest.mark.parametrize(
    ("sealing", "name", "says"),
    [
        (1_000, "changes-protection", "changes the protection of pages (mprotect) again and again"),
        (500, "changes-protection", "changes the protection of pages (mprotect) again and again"),
        # An allocator that grows takes no access away.
        (499, "asks-too-often", "gets memory from the kernel in many small pieces"),
        (0, "asks-too-often", "gets memory from the kernel in many small pieces"),
        # Guard pages that are never opened again.
        (2_000, "changes-protection", "takes access to pages away (mprotect) again and again"),
    ],
)
def test_pages_whose_protection_changes_again_and_again_are_told_from_growth(
    tmp_path: Path, sealing: int, name: str, says: str
) -> None:
    """2,000 calls of mprotect change 7.8 MiB, of the 64 GiB of addresses that the allocator has.

    As long as they changed less than twice as much as it had, they were once taken for growth.
    """
    made = busy()
    made.kernel("mprotect", 2_000, 25_000, 4096, sealing=sealing)
    made.start["held_most"] = 64 << 30
    (found,) = find(gathered(tmp_path, made))
    assert (found.name, found.of) == (name, "CPU")
    assert found.says == f"The allocator {says}"
    assert found.effect == pytest.approx(0.05 / 0.9, rel=0.02)


@pytest.mark.parametrize(
    ("each", "name"), [(64 << 10, "changes-protection"), (4096, "asks-too-often")]
)
def test_an_old_file_does_not_say_how_the_protection_changed(
    tmp_path: Path, each: int, name: str
) -> None:
    """The allocator holds 16 MiB at most. 1,000 calls of mprotect change 64 KiB or 4 KiB each.

    Calls of 64 KiB change 62.5 MiB, so they change the same pages again and again. Calls of 4 KiB
    change only 3.9 MiB, which may be the growth of the heap.
    """
    made = busy(head=OLD)
    made.kernel("mprotect", 1_000, 50_000, each)
    (found,) = find(gathered(tmp_path, made))
    assert (found.name, found.of) == (name, "CPU")
    assert found.effect == pytest.approx(0.05 / 0.9, rel=0.02)


def test_a_lone_thread_waits_alone_and_never_queues(tmp_path: Path) -> None:
    made = busy()
    made.kernel("sched_yield", 10_000, 10_000)
    made.start["calls"][0, CALLS.index("sched_yield")]["cpu_ns"] = 90_000_000
    (found,) = find(gathered(tmp_path, made))
    assert (found.name, found.of) == ("waits-alone", "CPU")
    assert found.effect == pytest.approx(0.09 / 0.9, rel=0.02)
    assert found.evidence == (
        "10,000 sched_yield, 71 per 1,000 operations: 90.0 ms in all, in a program of one thread",
    )
    made.threads["since_ticks"][0] = 7
    made.start["threads_most"] = 2
    (two,) = find(gathered(tmp_path / "two", made))
    assert (two.name, two.of, two.effect) == ("yields", "CPU", found.effect)


@pytest.mark.parametrize("processors", [2, 64])
def test_processes_that_sleep_save_no_more_than_the_processors_have(
    tmp_path: Path, processors: int
) -> None:
    """Eight processes of one thread sleep for half of their lives of a second.

    They use nine tenths of the time of two processors. "50 % of the threads' time" was once the
    effect, whatever the number of processors.
    """
    files = []
    for pid in range(100, 108):
        made = busy(pid=pid, user_us=225_000)
        made.threads["lived_ticks"][0] = 2_000_000_000
        made.kernel("sleep", 100, 5_000_000)
        files.append(made)
    profile = gathered(tmp_path, *files, system_ns=1)
    assert profile.tree is not None
    used_ns = 8 * 225_000_000
    tree = replace(profile.tree, wall_ns=10**9, user_ns=used_ns, processors=processors)
    (found,) = find(replace(profile, tree=tree))
    assert (found.name, found.of) == ("waits-alone", "thread time")
    assert found.evidence[0].endswith(" in all, in processes of one thread")
    limited = found.evidence[1:]
    if processors == 2:
        assert found.effect == pytest.approx(0.1, abs=0.01)
        assert limited == (
            "The program uses 90.0 % of the time of 2 processors, which limits what it can save",
        )
    else:
        assert found.effect == pytest.approx(0.5, abs=0.03) and not limited


@pytest.mark.parametrize("idle", [0, 3, 31])
def test_yields_cost_cpu_time_whatever_other_threads_do(tmp_path: Path, idle: int) -> None:
    """A thread yields in each free. Of its 900 ms of CPU time, 450 ms are in these calls.

    With idle threads beside it, this was once no finding, because the time of all threads counted.
    With busy ones, it was said to be waiting for "locks that are only visible as system calls".
    """
    made = busy()
    made.kernel("sched_yield", 70_000, 10_000)
    made.start["calls"][0, CALLS.index("sched_yield")]["cpu_ns"] = 450_000_000
    made.threads["since_ticks"][0] = 7
    made.threads["lived_ticks"][0] = 2_000_000_000 * idle
    made.start["threads_most"] = idle + 1
    profile = gathered(tmp_path, made)
    (found,) = find(profile)
    summary = summarized(profile)
    assert (summary.waits, summary.waiting_ns) == (0, 0)
    assert (found.name, found.of) == ("yields" if idle else "waits-alone", "CPU")
    assert found.effect == pytest.approx(0.5, rel=0.01)
    if idle:
        assert found.says == (
            "The allocator gives up the processor again and again (sched_yield), perhaps to wait "
            "for a lock"
        )
        assert found.evidence == (
            "70,000 sched_yield, 0.5 per operation: 450 ms of CPU time in all",
        )


def test_a_few_yields_are_no_finding(tmp_path: Path) -> None:
    """One yield in 1,400 operations takes 5 ms."""
    made = busy()
    made.start["threads_most"] = 2
    made.kernel("sched_yield", 100, 5_000_000)
    made.start["calls"][0, CALLS.index("sched_yield")]["cpu_ns"] = 500_000_000
    assert find(gathered(tmp_path, made)) == ()


def test_threads_that_only_sleep_wait_for_no_lock_that_was_seen(tmp_path: Path) -> None:
    """Sleeps were once called waits "on locks", with the advice to have a heap for each thread."""
    made = busy()
    made.threads["since_ticks"][0] = 7
    made.start["threads_most"] = 2
    made.kernel("sleep", 1, 500_000_000)
    (found,) = find(gathered(tmp_path, made))
    assert (found.name, found.says) == ("queues", "Threads sleep in the allocator")
    assert found.evidence[0].startswith("1 sleep, ")
    assert "per million operations" in found.evidence[0] or "per 1,000" in found.evidence[0]
    assert "heap" not in found.advice


def test_a_lock_that_nobody_waits_for_is_not_what_threads_wait_for(tmp_path: Path) -> None:
    """Threads sleep for 500 ms, or yield for as long. One of them waited 2 µs for a lock.

    The finding once said "Threads wait for one lock of the allocator", which "takes 0.0 %". For the
    threads that yield, it said later that they wait for each other.
    """
    for call, says in (("sleep", "Threads sleep in the allocator"), ("sched_yield", "")):
        made = busy()
        made.threads["since_ticks"][0] = 7
        made.start["threads_most"], made.start["contended_locks"] = 2, 1
        made.kernel(call, 100, 5_000_000)
        made.locked("mutex", 1_000, [4_000])
        count = LockCount("one", "libx.so", "mutex", 1_000, 1, 4_000, 4_000, *[0] * 9)
        profile = gathered(tmp_path / call, made)
        (process,) = profile.processes
        found = queues(replace(profile, processes=(replace(process, locks=(count,)),)))
        assert (found.says if found is not None else "") == says
        if found is None:
            continue
        assert not any("One lock" in text or "on one lock, " in text for text in found.evidence)
        assert found.evidence[0].startswith("100 sleeps, ")
        assert found.evidence[0].endswith("500 ms in all; other waits take 2.00 µs")


@pytest.mark.parametrize(
    ("operations", "says"),
    [(1_000, "20,000 waits on locks that are only visible as system calls, 20,000 per 1,000 "
             "operations, "),
     (141_000, "20,000 waits on locks that are only visible as system calls, 142 per 1,000 "
               "operations, "),
     (4_000_000_000, "20,000 waits on locks that are only visible as system calls, 5 per million "
                     "operations, ")],
)  # fmt: skip
def test_the_frequency_of_waits_has_no_exponent(tmp_path: Path, operations: int, says: str) -> None:
    made = busy()
    made.threads["since_ticks"][0] = 7
    made.start["threads_most"] = 2
    made.kernel("futex wait", 20_000, 10_000)
    profile = gathered(tmp_path, made)
    calls = profile.tally.calls * 0
    calls[0, 0, 0] = operations
    profile = replace(
        profile, tally=replace(profile.tally, calls=calls, released=profile.tally.released * 0)
    )
    found = queues(profile)
    assert found is not None and found.evidence[0].startswith(says)


def test_calls_take_no_more_than_the_clock_samples_saw_without_the_probe(tmp_path: Path) -> None:
    """The probe makes each system call longer: a share of 43 % was once reported as 100 %."""
    made = busy()
    made.kernel("other", 141_000, 5_000)
    alone = gathered(tmp_path, made)
    (found,) = find(alone)
    assert found.effect == pytest.approx(0.705 / 0.9, rel=0.03)
    run = ClockRun(
        probed=False, scope="processors", samples=4_000, own_ns=300e6, calls_ns=430e6,
        program_ns=270e6, inside_squares=180e12, squares=250e12, cpu_ns=1e9,
    )  # fmt: skip
    (found,) = find(replace(alone, clock=KernelClock((run,))))
    assert found.effect == pytest.approx(0.43, rel=1e-3)


def test_findings_about_different_calls_add_up_to_no_more_than_all_system_time(
    tmp_path: Path,
) -> None:
    """Two kinds of calls take 705 and 500 ms. The program has 500 ms of system time in 900 ms.

    Each of them was once 56 %, together 111 %. By clock samples, all calls take 43 %.
    """
    made = busy()
    made.kernel("other", 141_000, 5_000)
    made.kernel("mprotect", 10_000, 50_000, 64 << 10, sealing=5_000)
    profile = gathered(tmp_path, made, system_ns=500_000_000)
    run = ClockRun(
        probed=False, scope="processors", samples=4_000, own_ns=300e6, calls_ns=430e6,
        program_ns=270e6, inside_squares=180e12, squares=250e12, cpu_ns=1e9,
    )  # fmt: skip
    for found, most in ((profile, 500 / 900), (replace(profile, clock=KernelClock((run,))), 0.43)):
        effects = {one.name: one.effect for one in find(found)}
        assert sorted(effects) == ["calls-the-kernel", "changes-protection"]
        assert sum(effects.values()) == pytest.approx(most, rel=1e-3)
        assert sum(effects.values()) <= most * (1 + 1e-4)
        ratio = effects["calls-the-kernel"] / effects["changes-protection"]
        assert ratio == pytest.approx(705 / 500, rel=1e-3)


def test_sleeping_takes_time_and_no_cpu_time(tmp_path: Path) -> None:
    made = busy()
    made.threads["since_ticks"][0] = 7
    made.kernel("sleep", 100, 1_000_000)
    made.start["calls"][0, CALLS.index("sleep")]["cpu_ns"] = 100_000
    (found,) = find(gathered(tmp_path, made))
    assert (found.name, found.of) == ("waits-alone", "thread time")
    assert found.effect == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize(
    ("call", "count", "each_ns", "expected"),
    [
        ("other", 141_000, 500, ["calls-the-kernel"]),
        ("madvise(other)", 141_000, 500, ["calls-the-kernel"]),
        # 2 % of the CPU time and one call in 1,000 operations are needed.
        ("other", 141_000, 100, []),
        ("other", 100, 500_000, []),
    ],
)
def test_frequent_calls_of_any_other_kind_are_found(
    tmp_path: Path, call: str, count: int, each_ns: int, expected: list[str]
) -> None:
    made = busy()
    made.kernel(call, count, each_ns)
    if call == "other":
        made.start["other_calls"][0, 0] = (186 + 1, count)
    found = find(gathered(tmp_path, made))
    assert names(found) == expected
    if expected:
        assert found[0].effect == pytest.approx(0.0705 / 0.9, rel=0.03)
        assert ("gettid" in found[0].evidence[0]) is (call == "other")


def test_memory_that_was_never_freed_cannot_fail_to_be_reused(tmp_path: Path) -> None:
    """At the moment with the most resident memory, the allocator holds 49 MiB, and 20 MiB are live.

    In the first profile, nearly all blocks were freed, but the allocator handed out fresh memory
    nevertheless. In the second, the fresh memory belongs to blocks that are live at the end. In the
    third, the allocator served nine of ten requests from freed memory.
    """
    rows = (1, 20 * MIB, 49 * MIB, 110 * MIB, 0, 0, UNKNOWN)
    for place, (fresh, left, expected) in enumerate(
        (
            (1_500_000, 20 * MIB, ["not-reused"]),
            (1_500_000, 168 * MIB, []),
            (150_000, 20 * MIB, []),
        )
    ):
        made = busy()
        made.called("malloc", "small", 1_600_000, 100)
        made.fresh("small", fresh)
        made.moments(rows, (2, left, 49 * MIB, 100 * MIB))
        if left > 20 * MIB:
            # Then live bytes are highest at the end, but the resident set is highest before that.
            made.moments((1, 20 * MIB, 49 * MIB, 110 * MIB, 0, 0, UNKNOWN), (2, left, 0, 0))
        assert names(find(gathered(tmp_path / str(place), made))) == expected


@pytest.mark.parametrize(
    ("function", "fresh", "head", "found"),
    [
        ("calloc", 1.0, {}, True),
        ("aligned_alloc", 1.0, {}, True),
        ("realloc", 0.2, {}, False),
        ("calloc", 0.2, {}, False),
        # A file of an earlier version does not say how often calloc gets fresh memory.
        ("calloc", 1.0, OLD, False),
    ],
)
def test_blocks_of_every_function_can_be_reused(
    tmp_path: Path, function: str, fresh: float, head: dict[str, int], found: bool
) -> None:
    """All 5 million blocks of 32 bytes come from one function. 1 million are live at a time.

    Each has a header of 40 bytes. Although freed memory was always reused, the finding once said
    that 58 % of the memory are not.
    """
    made = Made(head=head)
    made.called(function, "small", 5_000_000, 32)
    made.fresh("small", 0, others=round(5_000_000 * fresh))
    made.released("free", 4_000_000)
    live = 32 * 1_000_000
    made.moments((4_000_000, live, 80 * MIB, 80 * MIB, 0, 0, UNKNOWN))
    reused = "not-reused" not in names(find(gathered(tmp_path, made)))
    assert reused is not found


def test_threads_that_wait_are_found_by_the_share_of_their_time(tmp_path: Path) -> None:
    made = busy()
    made.threads["since_ticks"][0] = 7
    # Another thread lived before, for the same time. Each of the two lived one second.
    made.threads["lived_ticks"][0] = 2_000_000_000
    made.start["threads_most"] = 2
    made.kernel("futex wait", 200, 1_000_000)
    (found,) = find(gathered(tmp_path, made))
    assert (found.name, found.of) == ("queues", "thread time")
    assert found.effect == pytest.approx(0.1, rel=0.01)
    made.kernel("futex wake", 200, 500_000)
    (found,) = find(gathered(tmp_path / "woken", made))
    assert found.effect == pytest.approx(0.15, rel=0.01)
    assert "100 ms to wake waiting threads" in found.evidence[0]
    # Some waits end before they reach the kernel, so a few more wakes than waits are no finding.
    made.kernel("futex wake", 100, 500_000)
    assert names(find(gathered(tmp_path / "more", made))) == ["queues"]
    # Four of five wakes are for the allocator's own threads.
    made.kernel("futex wake", 700, 500_000)
    found, wakes = sorted(find(gathered(tmp_path / "others", made)), key=lambda one: one.effect)
    assert found.effect == pytest.approx(0.15, rel=0.01)
    assert wakes.name == "calls-the-kernel"
    assert "800 futex wake more than waits, " in wakes.evidence[0]


def crowded(
    tmp_path: Path, processors: float | None, busy_ms: int = 2_000, other_ms: int = 0
) -> Profile:
    """The profile of 64 threads that live for a second each, and wait for 60 of these 64 seconds.

    A tenth of the CPU time is in the waits, which go to sleep. `other_ms` of it are in other system
    calls.
    """
    made = Made(user_us=busy_ms * 1_000)
    made.called("malloc", "small", 1_000_000, 64)
    made.released("free", 1_000_000)
    made.threads["lived_ticks"][0] = 64 * 2_000_000_000
    made.start["threads_most"] = 64
    made.kernel("futex wait", 1_000_000, 60_000)
    made.start["calls"][0, CALLS.index("futex wait")]["cpu_ns"] = busy_ms * 100_000
    if other_ms:
        made.kernel("other", 1_000 * other_ms, 1_000)
    profile = gathered(tmp_path, made, system_ns=1)
    assert profile.tree is not None
    half_ns = busy_ms * 500_000
    tree = replace(
        profile.tree, wall_ns=10**9, user_ns=half_ns, system_ns=half_ns, processors=processors
    )
    return replace(profile, tree=tree)


def test_threads_wait_in_vain_for_a_lock_if_they_have_no_processors(tmp_path: Path) -> None:
    """Both processors are full with the lock and without it. Only the waits' CPU time is saved.

    "94 % of the threads' time" was once the effect, whatever the number of processors.
    """
    (found,) = find(crowded(tmp_path, 2))
    assert (found.name, found.of) == ("queues", "CPU")
    assert found.effect == pytest.approx(0.1, rel=0.01)
    assert found.evidence[-1] == (
        "The program uses 100 % of the time of 2 processors, which limits what it can save"
    )
    for enough in (64, None):
        (found,) = find(crowded(tmp_path / str(enough), enough))
        assert (found.of, found.effect) == ("thread time", pytest.approx(60 / 64, rel=0.01))
        assert found.interval.low == found.interval.high


def test_threads_can_wait_less_only_as_far_as_processors_are_idle(tmp_path: Path) -> None:
    """A quarter of the time of two processors is unused, and 7.5 % of it is in the waits."""
    (found,) = find(crowded(tmp_path, 2, busy_ms=1_500))
    assert (found.of, found.effect) == ("thread time", pytest.approx(0.325, rel=0.01))
    assert found.interval.low == pytest.approx(0.075, rel=0.01)
    assert found.interval.high == found.effect


def test_cpu_time_is_compared_with_waiting_by_the_time_of_the_processors(tmp_path: Path) -> None:
    """The program uses 90 % of two processors. Without the waits, it could save 19 % of their time.

    System calls take 28 % of the CPU time, which is 25 % of the processors' time. It once counted
    as 0.8 %, because the 64 threads had 32 times the time of the processors.
    """
    found = find(crowded(tmp_path, 2, busy_ms=1_800, other_ms=500))
    assert names(found) == ["calls-the-kernel", "queues"]
    assert found[1].effect == pytest.approx(0.19, rel=0.01)
    assert names(find(crowded(tmp_path / "many", 64, busy_ms=1_800, other_ms=500)))[0] == "queues"


def test_waits_without_wakes_are_no_waits_for_a_lock(tmp_path: Path) -> None:
    made = busy()
    made.kernel("futex wake", 200_000, 1_000)
    assert "queues" not in names(find(gathered(tmp_path, made)))


def test_a_system_call_that_waits_counts_only_by_its_cpu_time(tmp_path: Path) -> None:
    """Of 200 ms of system time, calls that return memory took 100 ms, and sched_yield took 80 ms.

    So 20 ms are left for 20,000 page faults.
    """
    made = storm()
    made.kernel("sched_yield", 10, 50_000_000)
    made.start["calls"][0, CALLS.index("sched_yield")]["cpu_ns"] = 80_000_000
    found = next(
        one for one in find(gathered(tmp_path, made, system_ns=200_000_000)) if one.of == "CPU"
    )
    without = find(gathered(tmp_path / "again", storm(), system_ns=120_000_000))[0]
    assert found.effect == pytest.approx(without.effect, rel=0.01)


@pytest.mark.parametrize(("own", "count"), [(100, 1), (49, 1), (46, 0)])
def test_memory_that_is_not_reused_is_found_from_twice_the_live_memory(
    tmp_path: Path, own: int, count: int
) -> None:
    """20 MiB are live, in about 3,400 watched blocks. Their usable size is an eighth more."""
    made = wasting()
    made.moments((1, 20 * MIB, own * MIB, 110 * MIB, 0, 0, UNKNOWN))
    found = find(gathered(tmp_path, made))
    assert names(found) == ["not-reused"] * count
    if found:
        assert found[0].effect == pytest.approx((own - 22.5) / 110, rel=0.01)


@pytest.mark.parametrize(
    ("granted", "says"),
    [(0, "4.4 times as much as live blocks ever took (22.5 MiB)"),
     # One cache of each thread may hide up to 2.5 MiB.
     (5 * MIB // 2, "at least 4.0 times as much as live blocks ever took (at most 25.0 MiB)")],
)  # fmt: skip
def test_counted_live_memory_is_compared_with_the_upper_end_of_its_interval(
    tmp_path: Path, granted: int, says: str
) -> None:
    made = wasting()
    made.moments((1, 20 * MIB, 100 * MIB, 110 * MIB, 0, 0, UNKNOWN))
    peak = 45 * MIB // 2
    made.live(peak, granted, (peak, 20 * MIB, 0))
    (found,) = find(gathered(tmp_path, made))
    assert found.evidence == (
        f"When 110 MiB were resident, 100 MiB of them were blocks and former blocks, {says}",
    )


def test_estimated_live_memory_is_compared_with_the_most_that_it_can_be(tmp_path: Path) -> None:
    """The probe watched 4 blocks of 100 bytes at most, and each stands for 64 blocks.

    The finding once said "4.1e+03 times as much as live blocks ever took (25.0 KiB)".
    """
    made = wasting()
    made.moments((1, 25_600, 100 * MIB, 110 * MIB, 0, 0, UNKNOWN), (2, 25_600, 0, 0))
    made.samples["moments"][0, :2]["live_error_bytes"] = 12_800
    made.start["live_noted_bytes"], made.start["live_noted_error"] = 25_600, 12_800
    made.start["live_looks"] = 100
    profile = gathered(tmp_path, made)
    (found,) = find(profile)
    peak = profile.largest.peak_requested
    assert peak is not None and 50_000 < peak.high < 200_000
    most = peak.high * 1.12  # The usable bytes are 112 of 100 requested ones.
    assert found.evidence[0].endswith(
        f"at least {100 * MIB / most:,.0f} times as much as live blocks ever took "
        f"(at most {units.size(most)})"
    )


def test_memory_of_the_program_itself_does_not_count_as_not_reused(tmp_path: Path) -> None:
    """The allocator has reserved 400 MiB of addresses, as glibc does for its arenas.

    110 MiB are resident. About 90 MiB of these belong to the program and not to the allocator.
    """
    made = wasting()
    made.moments((1, 20 * MIB, 400 * MIB, 110 * MIB))
    assert find(gathered(tmp_path, made)) == ()
    made.moments((1, 20 * MIB, 400 * MIB, 110 * MIB, 0, 0, UNKNOWN))
    made.samples["moments"][0, 0]["own_bytes"] = 22 * MIB
    assert find(gathered(tmp_path, made)) == ()


def test_a_profile_without_resident_memory_is_no_error(tmp_path: Path) -> None:
    made = busy()
    made.moments((1, 20 * MIB, 100 * MIB, 0, 0, 0, UNKNOWN))
    assert find(gathered(tmp_path, made)) == ()


def test_blocks_of_very_different_sizes_make_the_live_memory_less_certain(tmp_path: Path) -> None:
    made = wasting()
    made.moments((1, 20 * MIB, 49 * MIB, 110 * MIB, 0, 0, UNKNOWN))
    assert names(find(gathered(tmp_path, made))) == ["not-reused"]
    made.samples["sizes"][0, 50] = 200  # blocks of about 16 KiB: a third of all bytes
    assert find(gathered(tmp_path, made)) == ()


UNKNOWN = 2**64 - 1


def test_resident_memory_that_was_never_part_of_a_block_does_not_count_as_not_reused(
    tmp_path: Path,
) -> None:
    made = wasting()
    made.moments((1, 20 * MIB, 60 * MIB, 60 * MIB, 30 * MIB, 30 * MIB, 60 * MIB))
    assert names(find(gathered(tmp_path, made))) == ["huge-page-bloat"]
    made = wasting()
    made.moments((1, 20 * MIB, 60 * MIB, 60 * MIB, 0, 0, UNKNOWN))
    assert names(find(gathered(tmp_path, made))) == ["not-reused"]


def test_the_report_of_a_finding_is_a_paragraph_with_advice(tmp_path: Path) -> None:
    (found,) = find(gathered(tmp_path, storm()))
    text = because(found)
    assert text.startswith(
        "▲ The allocator returns memory to the kernel and soon needs it again: 11."
    )
    assert " of the CPU time." in text and text.endswith(".")
    assert " To do: let the allocator keep more free memory" in text


def a_lock(name: str, wait_ns: float) -> LockUse:
    return LockUse(name, "libx.so", "mutex", 1000, 200, wait_ns, wait_ns / 1000, None, 0, 0, None)


def test_a_lock_with_most_of_the_waiting_is_named_with_its_share() -> None:
    table = LockTable((a_lock("init_lock", 310.0), a_lock("other", 60.0)), 2, 2)
    assert one_lock(table, 1_000.0) == ()
    assert one_lock(table, 380.0) == (
        "One lock (init_lock in libx.so) takes 31.0 % of the threads' time: 200 of 1,000 "
        "acquisitions waited for it",
    )
    several = LockTable((a_lock("init_lock", 310.0), a_lock("other", 90.0)), 2, 2)
    assert one_lock(several, 400.0) == one_lock(None, 400.0) == ()
    assert one_lock(LockTable((), 0, 0), 400.0) == ()
