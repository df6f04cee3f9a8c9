"""Tests of the probe in programs whose allocations are known. The profile must agree with them."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support import peers
from support.places import PROGRAMS
from support.preloadable_path import carried
from support.probing import Probed

from cairn import native
from cairn.profile.block_samples import freed_elsewhere
from cairn.profile.cpu_share import cpu_share
from cairn.profile.estimates import lines as estimate
from cairn.profile.estimates import remote_share
from cairn.profile.reader import read
from cairn.profile.tables import event_lines, events_refused, kernel_lines
from cairn.profile.tally import (
    ALLOCATING,
    CALLS,
    FUNCTIONS,
    GROUPS,
    PATHS,
    WHOSE,
    ProcessProfile,
    Profile,
)
from cairn.profile.tally import Path as TimedPath

Compiled = Callable[..., Path]

SYSTEM_CALLS = {
    "mmap": {"mmap"},
    "munmap": {"munmap"},
    "mremap": {"mremap"},
    "brk": {"brk"},
    "mprotect": {"mprotect"},
    "madvise": {call for call in CALLS if call.startswith("madvise")},
    "futex": {call for call in CALLS if call.startswith("futex")},
    "sched_yield": {"sched_yield"},
}
"""For each system call in strace's output: the names that a profile counts it under."""


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


@pytest.fixture(scope="module")
def known(compiled: Compiled) -> Path:
    return compiled("probe_known.c", "-pthread")


@pytest.fixture(scope="module")
def sizes(compiled: Compiled) -> Path:
    return compiled("probe_sizes.c", "-pthread")


@pytest.fixture(scope="module")
def paths(compiled: Compiled) -> Path:
    """Returns probe_scripted_malloc.c: its system calls and times are known for each block size."""
    return compiled("probe_scripted_malloc.c", "-shared", "-pthread")


def called(profile: ProcessProfile | Profile) -> dict[str, int]:
    """Returns the number of calls of each function, in both phases of the program together.

    `late_calls` are calls that a thread makes while it ends. They are included.
    """
    tally = profile.tally
    counts = [
        *(int(calls.sum()) for calls in tally.calls),
        *(int(calls.sum()) for calls in tally.released),
    ]
    return {name: counts[i] + int(tally.late_calls[i]) for i, name in enumerate(FUNCTIONS)}


def kernel(profile: ProcessProfile | Profile) -> dict[str, int]:
    return {
        name: int(count)
        for name, count in zip(CALLS, profile.tally.kernel.count, strict=True)
        if count
    }


def test_counts_are_those_of_the_program(probed: Probed, known: Path) -> None:
    """The difference of the runs with 1 and 1,000 rounds must be the same in program and profile.

    libc itself makes the same requests in both runs, so they cancel out.
    """
    told_first = json.loads(probed(known, "counts", 1))
    first = called(probed.only)
    told = json.loads(probed(known, "counts", 1000))
    counted = called(probed.only)
    for name in told:
        assert counted[name] - first[name] == told[name] - told_first[name], name
    assert counted["free"] - first["free"] == 7 * (told["calloc"] - told_first["calloc"])
    assert probed.only.process.threads == 5
    assert probed.only.process.threads_most == 5


def test_refused_requests_are_counted(probed: Probed, known: Path) -> None:
    """A realloc() to 0 bytes frees the block and returns NULL. The call does not count as refused.

    The program makes such calls too (probe_known.c, "refused").
    """
    probed(known, "refused", 1000)
    refused = dict(zip(ALLOCATING, map(int, probed.only.tally.failed), strict=True))
    assert {name: count for name, count in refused.items() if count} == {
        "malloc": 1000,
        "calloc": 2000,
        "realloc": 3000,
    }
    probed(known, "counts", 1000)
    assert int(probed.only.tally.failed.sum()) == 0


def test_null_for_no_bytes_is_no_refusal(probed: Probed, compiled: Callable[..., Path]) -> None:
    """C allows both NULL and a block."""
    allocator = compiled("nothing_for_zero.c", "-shared", "-DLIBRARY_ONLY")
    program = compiled("nothing_for_zero.c", "-fno-builtin")
    assert int(probed(program, 500, allocator=allocator)) == 501
    assert int(probed.only.tally.failed.sum()) == 1


def test_phases_and_groups_and_bytes(probed: Probed, known: Path) -> None:
    probed(known, "counts", 1000)
    tally = probed.only.tally
    malloc = tally.calls[ALLOCATING.index("malloc")]
    medium, large = (
        len(range(0, 1000, 50)),
        len({i for i in range(1000) if i % 333 == 0 and i % 50 != 0}),
    )
    assert list(malloc[1]) == [4 * (1000 - medium - large), 4 * medium, 4 * large]
    assert list(tally.asked[ALLOCATING.index("malloc")][1][1:]) == [
        4 * medium * 2000,
        4 * large * 100000,
    ]


def test_a_thread_that_blocked_all_signals_by_a_direct_system_call_still_ends(
    probed: Probed, tmp_path: Path
) -> None:
    """Go's runtime blocks signals by direct system calls, which the probe does not see.

    When the thread ends, it frees a block, for which the allocator makes a system call.
    """
    program = tmp_path / "blocked"
    source = PROGRAMS / "probe_blocked_signals.cpp"
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-fno-builtin", str(source), "-o", str(program), "-pthread"],
        check=True,
    )
    assert probed(program) == "20 ended\n"
    assert kernel(probed.only)["munmap"] >= 20


def test_operators_of_cxx_are_counted_and_may_throw(probed: Probed, tmp_path: Path) -> None:
    program = tmp_path / "operators"
    source = PROGRAMS / "probe_operators.cpp"
    subprocess.run(
        ["g++", "-std=c++17", "-O0", "-fno-builtin", str(source), "-o", str(program)], check=True
    )
    assert probed(program) == "caught 50\n"
    counted = called(probed.only)
    assert counted["operator new"] == 1000 + 1000 + 50
    assert counted["operator new[]"] == 1000 + 1000
    assert counted["operator delete"] == 2000
    assert counted["operator delete[]"] == 1000


GOT = (*peers.NAMED, "mimalloc3", "snmalloc", "rpmalloc", "scudo", "hardened", "hoard")
"""The other allocators that the long tests use. The distribution provides those in peers.NAMED. The
others are built from their sources."""


def library_of(allocator: str) -> Path | None:
    """Returns the allocator's library, or None for that of the system.

    Skips the test if the library cannot be fetched.
    """
    if allocator in ("system", "cairn"):
        return native.allocator() if allocator == "cairn" else None
    found = peers.peer(allocator, "distribution" if allocator in peers.NAMED else None)
    return Path(found.path or "")


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not here")
@pytest.mark.parametrize(
    "which", ["system", "cairn", *(pytest.param(name, marks=pytest.mark.long) for name in GOT)]
)
def test_system_calls_are_those_of_a_trace(
    probed: Probed, known: Path, tmp_path: Path, which: str
) -> None:
    """In strace's output, each SIGSYS names a system call that was dispatched to the probe.

    The profile must have the same calls.
    """
    trace = tmp_path / "trace"
    allocator = library_of(which)
    probed("strace", "-f", "-o", trace, known, "kernel", allocator=allocator)
    (file,) = [file for file in probed.files if read(file).process.program.endswith(known.name)]
    everything = re.findall(r"--- SIGSYS .*si_syscall=__NR_(\w+)", trace.read_text())
    between = re.findall(
        r"--- SIGSYS .*si_syscall=__NR_(\w+)", trace.read_text().split("close(-77)")[1]
    )
    dispatched = Counter(everything)
    # The probe itself makes these five calls, to measure the cost of a dispatched call.
    dispatched["getppid"] -= 5
    counted = kernel(read(file))
    for name, kinds in SYSTEM_CALLS.items():
        assert sum(counted.get(kind, 0) for kind in kinds) == dispatched.pop(name, 0), name
    assert counted.get("other", 0) == dispatched.total() - dispatched["rt_sigprocmask"], dispatched
    assert len(between) > 5 or which in GOT, "the allocator made too few system calls"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not here")
def test_the_probe_does_not_change_the_system_calls_of_the_allocator(
    probed: Probed, known: Path, tmp_path: Path
) -> None:
    """The program runs under strace with and without the probe.

    glibc must make the same system calls in both runs, for example to grow its heap.
    """
    alone, beside = tmp_path / "alone", tmp_path / "beside"
    subprocess.run(["strace", "-f", "-o", str(alone), str(known), "kernel"], check=True)
    probed("strace", "-f", "-o", beside, known, "kernel")
    outside = re.findall(r"^\d+ +(\w+)\(", alone.read_text().split("close(-77)")[1], re.MULTILINE)
    inside = re.findall(
        r"--- SIGSYS .*si_syscall=__NR_(\w+)", beside.read_text().split("close(-77)")[1]
    )
    assert Counter(outside) == Counter(inside)


def test_known_paths_of_an_allocator_are_found(probed: Probed, sizes: Path, paths: Path) -> None:
    probed(sizes, 1, 64, 500, 80, 300, 96, 200, 48, 1000, allocator=paths)
    found = kernel(probed.only)
    assert found["sleep"] == 500
    assert found["sched_yield"] == 300
    assert found["mmap"] == 200 + 1  # one more mmap for the arena
    assert found["munmap"] == 200
    assert set(found) == {"sleep", "sched_yield", "mmap", "munmap"}
    fresh = probed.only.tally.fresh
    assert int(fresh.sum()) == 500 + 300 + 200 + 1
    mapped, unmapped = (
        int(probed.only.tally.kernel.bytes[CALLS.index(name)]) for name in ("mmap", "munmap")
    )
    assert unmapped == 200 * 8192
    assert mapped > unmapped  # the arena is mapped, too


def test_fresh_memory_of_calloc_is_told_from_reused_memory(
    probed: Probed, compiled: Compiled
) -> None:
    """Only malloc and operator new were once told apart. Half of these calls reuse memory."""
    probed(compiled("probe_calloc.c"))
    small, medium, large = probed.only.tally.fresh_others
    assert 1_000 <= small <= 1_050
    assert medium == large == 0


def test_system_calls_of_no_known_kind_are_counted_by_number(
    probed: Probed, sizes: Path, paths: Path
) -> None:
    probed(sizes, 1, 160, 400, allocator=paths)
    assert sorted(probed.only.tally.other_calls.values()) == [400, 800]


def test_counters_count_the_events_of_an_operation(
    probed: Probed, sizes: Path, paths: Path
) -> None:
    # An allocation of 144 bytes causes three page faults in the allocator. It takes 192 bytes of
    # the arena, and causes a fourth page fault if these bytes begin a new page. The sample is
    # random, so the test allows an error as large as the whole 95 % interval, which is about four
    # standard errors. A larger error happens once in 10,000 runs, so one of two runs is enough.
    wanted = {"CAIRN_PROBE_COUNTERS": "cycles,page-faults", "CAIRN_PROBE_GAP": "1"}
    truth, tries = 3 + 192 / 4096, []
    for _ in range(2):
        probed(sizes, 1, 144, 2000, 48, 2000, allocator=paths, **wanted)
        found = {line.name: line for line in event_lines(probed.profile)}
        faults = found["new"].per_operation("page-faults")
        assert found["new"].looked_at > 200
        width = faults.interval.high - faults.interval.low
        tries.append(faults)
        right = abs(faults.value - truth) <= width < 0.2
        if right:
            break
    assert right, tries
    assert found["free"].per_operation("page-faults").value < 0.1
    cycles = found["new"].totals.get("cycles")
    refused = events_refused(probed.profile)
    assert "page-faults" not in refused
    assert ("cycles" in refused) == (cycles is None), "neither counted nor refused"
    assert cycles is None or cycles.value > 0


def test_counters_never_read_the_programs_descriptors(probed: Probed) -> None:
    """The program closes all descriptors that it does not know, including those of the counters.

    Then it opens files of its own under all these numbers. The probe must not read these files.
    """
    code = """
import os, resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
os.closerange(3, limit)
theirs, mine = os.pipe()
os.write(mine, b"x" * 4096)
for number in range(690, min(720, limit)): os.dup2(theirs, number)
kept = [bytearray(1000 + i % 60_000) for i in range(20_000) if i % 3 == 0]
print(len(os.read(theirs, 5000)))
"""
    wanted = {
        "CAIRN_PROBE_COUNTERS": "page-faults",
        "CAIRN_PROBE_GAP": "1",
        "PYTHONMALLOC": "malloc",
    }
    assert probed(sys.executable, "-c", code, **wanted) == "4096\n"
    assert int(probed.only.tally.timed.event_operations.sum()) > 0


def test_a_forks_child_has_counters_of_its_own(probed: Probed, known: Path) -> None:
    probed(known, "forks", 5, CAIRN_PROBE_COUNTERS="page-faults", CAIRN_PROBE_GAP="1")
    assert len(probed.files) == 5
    for file in probed.files:
        found = read(file)
        assert (found.process.events[0], found.process.event_errnos[0]) == ("page-faults", 0)
        assert int(found.tally.timed.event_operations.sum()) > 0


def test_locks_within_the_allocator_are_counted(probed: Probed, sizes: Path, paths: Path) -> None:
    probed(sizes, 1, 112, 1000, allocator=paths)
    locks = probed.only.tally.locks
    assert list(locks.taken) == [1000, 1000, 2000]
    assert list(locks.refused) == [1000, 0, 0]
    assert list(locks.contended) == [0, 0, 0]
    assert probed.only.tally.contended_locks == 0
    assert 30 <= int(locks.sections.sum()) <= 120  # one in 64 of 4000 sections, on average


def test_waiting_for_a_lock_is_timed(probed: Probed, sizes: Path, paths: Path) -> None:
    """Two threads take the same lock repeatedly, and hold it for a millisecond each time.

    A thread that releases the lock may take it again before the other thread wakes. So the machine
    decides how often a thread waits.
    """
    probed(sizes, 2, 128, 100, allocator=paths)
    tally = probed.only.tally
    ms = tally.span_ns / tally.span_ticks / 1e6
    waited, longest = (
        float(ticks[0]) * ms for ticks in (tally.locks.wait_ticks, tally.locks.most_wait_ticks)
    )
    contended = int(tally.locks.contended[0])
    assert int(tally.locks.taken[0]) == 200
    assert 1 <= contended <= 200
    assert 0.5 < longest <= waited
    assert tally.contended_locks == 1
    section = float(tally.locks.section_ticks[0]) * ms / int(tally.locks.sections[0])
    assert section > 0.99
    lived, span = tally.threads_ticks * ms, tally.span_ns / 1e6
    # The main thread lives for the whole span, and so do the others, unless the machine stalls.
    assert 1.2 * span < lived <= 3 * span
    wait = next(one for one in kernel_lines(probed.profile) if one.name == "futex wait")
    assert wait.total_ns is not None and wait.cpu_ns is not None
    assert 0 < wait.cpu_ns < wait.total_ns / 2


def test_resident_memory_is_divided_between_the_allocator_and_the_program(probed: Probed) -> None:
    """The table of 2 million entries comes from malloc. The harness's own memory does not."""
    probed(native.workload("hash_table"), "--operations", "2M")
    looked_at = [one for one in probed.only.moments if one.own_bytes is not None]
    assert looked_at
    for one in looked_at:
        assert (
            one.live_usable_bytes is not None
            and one.own_bytes is not None
            and one.unasked_bytes is not None
        )
        assert one.unasked_bytes <= one.own_bytes < 1.02 * one.resident_bytes
        assert 1 <= one.live_usable_bytes / one.live_bytes < 1.5
    # The program writes the pages of the last and largest table one after the other. Some moments
    # lie before all of them are written. At the moment with the most resident memory, they are.
    full = max(looked_at, key=lambda one: one.own_bytes or 0)
    assert full.own_bytes is not None and full.live_usable_bytes is not None
    assert full.own_bytes > 0.98 * full.live_usable_bytes


def test_times_of_known_length_are_right(probed: Probed, sizes: Path, paths: Path) -> None:
    """Each operation computes for two microseconds, and its time must be right within a tenth.

    A time is reported as the middle of its bucket, which is off by at most a sixteenth. A busy
    machine lengthens some operations, so the test takes the least median of several runs.
    """
    most = 2200 * 17 / 16
    medians = []
    while len(medians) < 8 and (not medians or min(medians) > most):
        probed(sizes, 1, 1000, 20000, allocator=paths, CAIRN_PROBE_GAP="16")
        lines = {line.name: line for line in estimate(probed.profile)}
        assert lines["new"].timed > 500
        median = lines["new"].quantiles[0]
        assert median is not None and median >= 2000
        medians.append(median)
    assert min(medians) <= most


def test_every_timed_operation_is_in_one_bucket(probed: Probed, sizes: Path, paths: Path) -> None:
    probed(sizes, 1, 1000, 20000, 48, 20000, allocator=paths, CAIRN_PROBE_GAP="16")
    timed = probed.only.tally.timed
    assert timed.buckets.sum() == timed.count.sum()
    lines = {line.name: line for line in estimate(probed.profile)}
    assert all(lines[name].timed > 100 for name in ("new", "reused", "free, local")), lines


def test_cpu_time_in_the_allocator_is_found_by_timers(
    probed: Probed, sizes: Path, paths: Path
) -> None:
    """By the clock of its threads, the program spends half of its CPU time in the allocator.

    The timers are disturbed if the host of a virtual machine takes the processor away. So one
    correct try of four is enough: a real error would appear in all four.
    """
    apart = []
    for _ in range(4):
        probed(sizes, 2, 1000, 20_000, 0, 400, allocator=paths, PATHS_NS="20000")
        assert probed.only.tally.cpu_samples_probe < 20
        found = cpu_share(probed.profile)
        assert found.scope == "timers" and found.samples > 150
        if found.share is not None:
            ends = found.share.interval
            if ends.low - 0.05 < 0.5 < ends.high + 0.05:
                return
        apart.append(found)
    raise AssertionError(apart)


def test_without_dispatch_or_by_choice_there_is_no_timer(probed: Probed, sizes: Path) -> None:
    for about in ({"CAIRN_PROBE_KERNEL": "off"}, {"CAIRN_PROBE_TIMER": "off"}):
        probed(sizes, 1, 64, 1000, 0, 30, **about)
        assert probed.only.tally.cpu_samples == 0
        assert cpu_share(probed.profile).share is None


def test_a_long_operation_is_timed_although_a_timer_interrupts_it(
    probed: Probed, sizes: Path, paths: Path
) -> None:
    """Each operation takes a tenth of a second.

    An operation during which the thread is preempted is not timed. On a busy machine this can
    happen to all 24 operations of a run, so the test allows runs for a minute.
    """
    timed, end = 0, time.monotonic() + 60
    while timed == 0 and time.monotonic() < end:
        probed(sizes, 1, 77, 24, allocator=paths, CAIRN_PROBE_GAP="1")
        tally = probed.only.tally
        assert int(tally.cpu_samples_inside[0]) > 100
        timed = int(tally.timed.count[0] + tally.timed.alone[0])
    assert timed >= 1


def test_every_free_is_classified_with_exact_paths(probed: Probed, known: Path) -> None:
    probed(known, "hand", 20_000, 5_000, CAIRN_PROBE_PATHS="exact")
    frees = probed.only.tally.frees
    assert probed.only.process.exact
    local, remote = (
        frees[WHOSE.index(whose)].sum(axis=0).tolist() for whose in ("local", "remote")
    )
    assert remote == [4_500, 0, 500]
    assert (local[0], local[2]) == (13_500, 1_500 + 1)
    share = remote_share(probed.profile)
    assert share is not None
    assert share.value == pytest.approx(5_000 / int(frees.sum()))
    assert share.interval.low == share.interval.high


def test_examined_frees_are_classified_by_thread(probed: Probed, known: Path) -> None:
    """Another thread frees a fifth of the blocks.

    The probe examines all large blocks, and a random sample of the small ones.
    """
    probed(known, "hand", 2_000, 400, CAIRN_PROBE_GAP="1")
    tally = probed.only.tally
    assert (tally.freed[GROUPS.index("large")], tally.freed_elsewhere[GROUPS.index("large")]) == (
        200,
        40,
    )
    small = tally.freed_elsewhere[GROUPS.index("small")] / tally.freed[GROUPS.index("small")]
    # The sample has about 1,000 small blocks, so the standard deviation of the share is 0.013.
    assert 0.1 < small < 0.3
    looked_at = tally.timed.count + tally.timed.alone + tally.timed.switched
    found = {
        path: int(count)
        for path, count in zip(PATHS, looked_at, strict=True)
        if path.group == "large" and count
    }
    # The main thread frees its blocks after the other thread has ended.
    assert found[TimedPath("free, local", "large", "serial")] == 160
    assert found[TimedPath("free, remote", "large", "parallel")] == 40
    assert TimedPath("free, local", "large", "parallel") not in found
    assert TimedPath("free, remote", "large", "serial") not in found


def test_frees_of_many_live_blocks_count_as_often_as_the_others(
    probed: Probed, known: Path
) -> None:
    """Another thread frees half of the blocks, when so many live that one in 8 is watched.

    All timed frees once counted the same, so 11 % were said to come from another thread.
    """
    probed(known, "grow", 60_000, CAIRN_PROBE_GAP="1")
    found = probed.profile
    small = GROUPS.index("small")
    copies = [
        int(found.tally.timed.copies[place])
        for place, path in enumerate(PATHS)
        if path.kind == "free, remote" and path.group == "small"
    ]
    assert 50_000 < sum(copies) < 70_000
    assert found.tally.freed_elsewhere[small] == sum(copies)
    share, elsewhere = remote_share(found), freed_elsewhere(found, small)
    assert share is not None and elsewhere is not None
    for one in (share, elsewhere):
        assert 0.45 < one.interval.low < one.value < one.interval.high < 0.55
        assert one.interval.high - one.interval.low > 0.01


def test_sizes_are_counted_by_quarters_of_an_octave(probed: Probed, sizes: Path) -> None:
    """The profile divides the sizes between two powers of two into four equal quarters.

    The program allocates blocks of the first and of the last size of each quarter. The probe
    samples small blocks, and counts all large ones.
    """
    quarters = [
        ((4 + q) << k, (4 + q + 1 << k) - 1) for k in (*range(1, 12), 15, 18) for q in range(4)
    ]
    buckets = {4 * (k + 1) + q for k in (*range(1, 12), 15, 18) for q in range(4)}
    words = [word for ends in quarters for size in ends for word in (size, 60)]
    probed(
        sizes,
        1,
        *words,
        *(word for size in (1, 2, 3, 4, 5, 6, 7) for word in (size, 60)),
        CAIRN_PROBE_GAP="1",
    )
    found = probed.only.tally.sizes
    assert {bucket for bucket, weight in enumerate(found) if weight} == buckets | {
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    }
    large = [bucket for bucket in buckets if bucket >= 4 * 16]
    assert [found[bucket] for bucket in large] == [120] * len(large)


def test_blocks_of_the_parent_are_local_in_a_child(probed: Probed) -> None:
    script = (
        "import os; x = [bytes(600) for i in range(5000)]; pid = os.fork(); del x; pid and "
        "os.wait()"
    )
    probed("python3", "-c", script, CAIRN_PROBE_PATHS="exact", PYTHONMALLOC="malloc")
    frees = [read(file).tally.frees for file in probed.files]
    assert sum(int(of[0].sum()) > 5000 for of in frees) == 2
    assert not any(int(of[1].sum()) for of in frees)


def test_a_child_counts_the_events_of_its_parent_whatever_the_program_sets(probed: Probed) -> None:
    script = (
        "import os; os.environ['CAIRN_PROBE_COUNTERS'] = ''; pid = os.fork(); "
        "x = [bytes(600) for i in range(5000)]; pid and os.wait()"
    )
    probed("python3", "-c", script, CAIRN_PROBE_COUNTERS="page-faults", PYTHONMALLOC="malloc")
    assert len(probed.files) >= 2
    assert {read(file).process.events for file in probed.files} == {("page-faults", "", "", "")}


def test_the_probes_descriptors_are_out_of_the_programs_way(probed: Probed) -> None:
    """The program's own descriptors have the lowest numbers, as without the probe."""
    script = "import os; x = os.open('/', 0); print(x, *os.listdir('/proc/self/fd'))"
    out = probed("python3", "-c", script, CAIRN_PROBE_COUNTERS="page-faults")
    own, *every = map(int, out.split())
    assert own == 3
    high = [one for one in every if one >= 700]
    assert sorted(set(every) - set(high)) == [0, 1, 2, 3, 4], "4 is that of listdir()"
    processes = [read(file).process for file in probed.files]
    assert high or all(one.event_errnos[0] for one in processes), "an event has a descriptor"


def test_system_calls_of_malloc_trim_belong_to_the_allocator(probed: Probed, known: Path) -> None:
    assert probed(known, "trim") == "1\n"
    assert called(probed.only)["malloc_trim"] == 1
    assert kernel(probed.only)["madvise(DONTNEED)"] >= 1


@pytest.mark.parametrize("way", ["interpose", "off"])
def test_system_calls_can_be_seen_by_interposition_or_not_at_all(
    probed: Probed, sizes: Path, paths: Path, way: str
) -> None:
    probed(sizes, 1, 96, 200, 80, 300, allocator=paths, CAIRN_PROBE_KERNEL=way)
    found = kernel(probed.only)
    assert found == ({"mmap": 201, "munmap": 200} if way == "interpose" else {})
    assert probed.only.process.seen == ("interpose" if way == "interpose" else "unseen")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_a_file_system_that_cannot_reserve_room_holds_the_file(
    probed: Probed, known: Path, tmp_path: Path
) -> None:
    """The kernel's ramfs has no fallocate(). The mount ends with the shell, so the file is copied.

    The shell and the other programs also leave files.
    """
    kept = tmp_path / "kept"
    script = (
        'mount -t ramfs none "$CAIRN_PROBE" 2> /dev/null || exit 0; "$0" counts 1000 > /dev/null; '
        f'cp -r "$CAIRN_PROBE" {kept}'
    )
    probed("unshare", "-m", "sh", "-c", script, known)
    if not kept.exists():
        pytest.skip("no file system can be mounted here")
    found = [read(file) for file in sorted(kept.glob("*.probe"))]
    (mine,) = [one for one in found if Path(one.process.program).name == known.name]
    assert called(mine)["calloc"] >= 1000


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not here")
def test_system_calls_are_not_dispatched_under_valgrind(probed: Probed, known: Path) -> None:
    assert probed("valgrind", "-q", "--tool=none", known, "trim") == "1\n"
    (mine,) = [
        found for file in probed.files if known.name in (found := read(file)).process.program
    ]
    assert called(mine)["malloc_trim"] == 1
    assert (mine.process.seen, mine.process.seen_errno) == ("interpose", errno.EOPNOTSUPP)


def test_a_thread_that_dispatches_its_own_system_calls_is_noted(probed: Probed) -> None:
    """The file once said that all system calls of such a process were seen."""
    script = (
        "import ctypes as c; on = c.c_char(0); zero = c.c_ulong(0)\n"
        "print(c.CDLL(None).prctl(59, c.c_ulong(1), zero, zero, c.byref(on)))"
    )
    if probed("python3", "-c", script) != "0\n":
        pytest.skip("the kernel has no syscall user dispatch here")
    process = probed.only.process
    assert (process.seen, process.seen_errno) == ("dispatch", errno.EBUSY)


def test_an_operation_that_ends_with_a_longjmp_does_not_disturb_the_next_ones(
    probed: Probed, known: Path, paths: Path
) -> None:
    assert probed(known, "jump", allocator=paths) == "went on\n"
    assert called(probed.only)["calloc"] == 1000


def test_blocked_signals_kill_nobody(probed: Probed, known: Path) -> None:
    assert probed(known, "mask") == "1 1\nwent on\n"
    assert kernel(probed.only)["brk"] > 5


def test_every_fork_has_a_file(probed: Probed, known: Path) -> None:
    probed(known, "forks", 200)
    profile = probed.profile
    assert len(profile.processes) == 201 - 1  # the first process does not allocate
    assert {process.state for process in profile.processes} == {"ended"}
    assert called(profile)["calloc"] == 200 * 1000


def test_every_program_of_a_shell_has_a_file(probed: Probed) -> None:
    out = probed("/bin/sh", "-c", "/bin/echo one; exec /usr/bin/env /bin/echo two")
    assert out == "one\ntwo\n"
    programs = [Path(process.program).name for process in probed.profile.processes]
    assert programs.count("echo") == 2
    assert "env" in programs


def test_the_file_of_a_killed_process_is_readable(probed: Probed, known: Path) -> None:
    process = probed.start(known, "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert probed.only.process.state == "running"
    assert called(probed.only)["calloc"] == 1000


def test_the_probes_files_are_private_and_small(probed: Probed, known: Path) -> None:
    probed(known, "counts", 10)
    (file,) = probed.files
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_blocks * 512 < 200_000


def test_a_full_disk_does_not_disturb_the_program(probed: Probed, known: Path) -> None:
    """The test imitates a full disk by a limit on the size of files."""
    out = probed("/bin/bash", "-c", f"ulimit -f 40; exec {known} counts 1000")
    assert json.loads(out)["calloc"] == 5000
    # The program could write nothing to its file. The shell made its own file before the limit.
    assert probed.profile.empty == 1


def test_a_file_without_room_for_more_threads_does_not_disturb_the_program(probed: Probed) -> None:
    code = """
import threading
together = threading.Barrier(20)
threads = [threading.Thread(target=together.wait) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("joined")
"""
    assert (
        probed("/bin/bash", "-c", 'ulimit -f 200; exec "$0" -c "$1"', sys.executable, code)
        == "joined\n"
    )
    assert 0 < probed.profile.processes[-1].threads_lost < 20


def test_without_a_folder_the_probe_is_off(known: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": carried(native.probe())}
    done = subprocess.run(
        [str(known), "counts", "1000"],
        env=environment,
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert json.loads(done.stdout)["calloc"] == 5000
    assert not list(tmp_path.iterdir())


def test_a_programs_own_malloc_may_hold_a_lock_during_a_system_call(
    probed: Probed, tmp_path: Path
) -> None:
    """When the probe looks up a function that does not exist, the loader allocates.

    The probe once made such a lookup in a system call of chromium's own malloc. This malloc held
    its lock during the call, so the loader's allocation waited for the lock forever.
    """
    source = Path(__file__).parents[1] / "programs" / "inputs" / "own_malloc.c"
    own = tmp_path / "own"
    subprocess.run(["gcc", "-O1", "-fno-builtin", "-D_GNU_SOURCE", source, "-o", own], check=True)
    assert probed(own) == "kept 3890 1 1792\n"
