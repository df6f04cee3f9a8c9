"""Tests of the live bytes that the probe counts, in programs that sum them up themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.probing import Probed

from cairn import native
from cairn.profile.reader import read
from cairn.profile.tally import Peak, Process, ProcessProfile

KIB = 1 << 10
LIBC = 8 * KIB
"""The most bytes that libc itself allocates in these programs, for stdout and for threads. The
program's own sums leave them out."""


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


@pytest.fixture(scope="module")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled("probe_live.c", "-pthread")


def told(text: str) -> dict[str, tuple[int, int]]:
    """Returns the highest live bytes that each process has summed up: requested and usable."""
    lines = [line.split() for line in text.splitlines()]
    return {who: (int(requested), int(usable)) for who, requested, usable in lines}


def check(process: Process, requested: int, usable: int) -> None:
    """Asserts that both peaks are within their bounds, and that their intervals hold the truth."""
    assert process.live_counted and process.peak_usable is not None
    assert off(process.peak_usable, usable) <= max(0.01 * usable, 256 * KIB)
    assert off(process.peak_requested, requested) <= max(0.03 * requested, 256 * KIB)
    assert holds(process.peak_usable, usable), (process.peak_usable, usable)
    assert holds(process.peak_requested, requested), (process.peak_requested, requested)


def off(peak: Peak, true: int) -> int:
    return max(true - peak.bytes, peak.bytes - (true + LIBC))


def holds(peak: Peak, true: int) -> bool:
    return peak.low <= true + LIBC and true <= peak.high


@pytest.mark.parametrize(
    ("threads", "slots", "least", "most"),
    [
        (1, 100, 16, 515),
        (1, 1_000, 16, 515),
        (8, 1_000, 16, 515),
        (8, 100, 1, 100_000),
        *(
            pytest.param(threads, slots, 16, most, marks=pytest.mark.long)
            for threads in (1, 8)
            for slots in (100, 1_000, 10_000, 100_000)
            for most in (515, 4096)
        ),
    ],
)
def test_the_peak_of_live_bytes_is_within_its_bound(
    probed: Probed, program: Path, threads: int, slots: int, least: int, most: int
) -> None:
    """Each thread replaces random blocks.

    With 1,000 blocks, version 0.1.0 found a peak that was one and a half times the true one.
    """
    count = (
        max(20_000 if threads <= 8 else 1_000, 8 * slots)
        if threads > 1
        else max(100_000, 8 * slots)
    )
    out = probed(program, "churn", threads, slots, count, least, most)
    check(probed.only.process, *told(out)["churn"])


def test_many_threads_at_once_are_counted(probed: Probed, program: Path) -> None:
    """Each of 500 threads has a block of 100,000 bytes at the same time.

    libc itself allocates less than 1,000 bytes for each thread.
    """
    out = probed(program, "together", 500, 100_000)
    _, usable = told(out)["together"]
    process = probed.only.process
    assert process.live_counted and process.peak_usable is not None
    assert 0 <= process.peak_usable.bytes - usable <= 500_000


def test_live_bytes_are_counted_by_asking_any_other_allocator(
    probed: Probed, program: Path
) -> None:
    for threads in (1, 4):
        out = probed(
            program,
            *("churn", threads, 1_000, 50_000, 16, 515),
            allocator=native.allocator(),
            CAIRN_PROBE_LIVE="exact",
        )
        check(probed.only.process, *told(out)["churn"])


def test_each_form_of_allocation_and_the_end_of_threads_leave_the_right_number(
    probed: Probed, program: Path
) -> None:
    """At the end, blocks of one million bytes in all are live. All other blocks were freed.

    The thread that allocated a block freed it, or another thread. An error of one byte in each
    operation would be 200,000 bytes or more.
    """
    out = probed(program, "forms", 1_000_000)
    check(probed.only.process, *told(out)["forms"])
    check_last(probed.only, 1_000_000)


def check_last(profile: ProcessProfile, true: int) -> None:
    """Asserts the usable bytes that are live at the end of a process.

    `true` counts blocks of 1,000 bytes. The list of these blocks, libc and the last threads add to
    it.
    """
    last = profile.moments[-1].live_usable_bytes
    assert last is not None
    assert true <= last <= 1.02 * true + 2 * LIBC


def test_a_forks_child_begins_with_the_live_blocks_of_its_parent(
    probed: Probed, program: Path
) -> None:
    sums = told(probed(program, "fork", 10_000_000))
    files = sorted(map(read, probed.files), key=lambda file: file.process.begin_ns)
    assert files[1].process.parent == files[0].process.pid
    for file, who in zip(files, ("parent", "child"), strict=True):
        check(file.process, *sums[who])
    check_last(files[1], 5_000_000)
    last = files[0].moments[-1].live_usable_bytes
    assert last is not None
    assert last < 100 * KIB


def test_live_bytes_that_are_not_counted_get_an_interval_that_covers(
    probed: Probed, program: Path
) -> None:
    """The interval misses the truth in one of twenty runs at most; here not in each of four."""
    for threads in (1, 2, 4):
        missed: list[object] = []
        covers = False
        while not covers:
            assert len(missed) < 4, (threads, missed)
            out = probed(
                program, "churn", threads, 2_000, 40_000, 16, 515, CAIRN_PROBE_LIVE="estimated"
            )
            process, (requested, _) = probed.only.process, told(out)["churn"]
            assert not process.live_counted and process.peak_usable is None
            covers = holds(process.peak_requested, requested)
            missed.append((process.peak_requested, requested))
