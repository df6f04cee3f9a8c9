"""Tests that workloads notice a flawed allocator.

A workload must fail if its blocks are wrong. If the allocator is only slow or wasteful, the
measured time or memory must show that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.launching import Launch
from support.workload_runs import CPUS, Outcome, Work, entry_of, names

from cairn import native
from cairn.run import workloads


@pytest.fixture(scope="session")
def ill(compiled: Callable[..., Path]) -> str:
    return str(compiled("flawed_malloc.c", "-shared"))


def caught(sick: Outcome, well: Outcome) -> bool:
    """Returns whether the workload failed or computed another result."""
    return sick.code != 0 or sick.line["checksum"] != well.line["checksum"]


def test_an_allocator_that_never_reuses_memory_is_sound(work: Work, ill: str) -> None:
    """The flawed allocators of the other tests are variants of this sound allocator."""
    for name in names():
        well, wasteful = work.smallest(name), work.smallest(name, preload=ill)
        assert wasteful.code == 0, wasteful.err
        assert not caught(wasteful, well), name


UNNOTICED = {
    ("bulk-release", "lost"): "the workload reads all blocks before it frees the first one",
    ("false-sharing-passive", "lost"): "the workload reads no block beside a freed block",
    ("false-sharing-active", "misaligned"): "blocks of 8 bytes need no larger alignment",
    ("false-sharing-passive", "misaligned"): "blocks of 8 bytes need no larger alignment",
}


QUICKLY = ("larson", "mixed", "syntax-tree", "hash-table", "realloc-growth", "aligned")


def pairs() -> list[object]:
    """Every workload with every illness. Most of them run in the long tests only."""
    return [
        pytest.param(name, illness, marks=[] if name in QUICKLY else pytest.mark.long)
        for name in names()
        for illness in ("overlap", "lost", "misaligned")
    ]


@pytest.mark.parametrize(("name", "illness"), pairs())
def test_wrong_blocks_are_caught_by_every_workload(
    work: Work, ill: str, name: str, illness: str
) -> None:
    """Larger inputs free more blocks before the end of a workload.

    A workload that frees little before its end cannot notice that another block was damaged. So the
    test tries the smallest input first and then larger ones. What threads notice depends on their
    order, so the largest input runs up to three times.
    """
    if (name, illness) in UNNOTICED:
        pytest.skip(UNNOTICED[name, illness])
    entry = entry_of(name)
    if "--touch none" in entry.suite and illness != "misaligned":
        pytest.skip("nothing is written, so nothing can be found changed")
    for arguments in (entry.smallest, entry.larger, *[entry.suite] * 3):
        words = workloads.words(arguments, CPUS)
        well = work(entry.program, *words)
        sick = work(entry.program, *words, preload=ill, ILL=illness)
        if caught(sick, well):
            return
    raise AssertionError(f"{name} does not notice {illness}")


@pytest.mark.parametrize(
    ("name", "illness"), [("realloc-growth", "cut"), ("calloc-sweep", "dirty")]
)
def test_flaws_of_other_functions_are_caught(work: Work, ill: str, name: str, illness: str) -> None:
    sick = work.smallest(name, preload=ill, ILL=illness)
    assert sick.code == 1
    assert len(sick.err.splitlines()) == 1


def test_a_damaged_block_is_counted_and_fails_the_run(work: Work, ill: str) -> None:
    sick = work("fill", "--bytes", "1M", preload=ill, ILL="overlap")
    assert sick.code == 1
    assert sick.line["damaged"] > 100
    assert "did not hold what was written" in sick.err


def peak(work: Work, preload: str, illness: str, *command: str) -> int:
    """Returns the peak resident set of a workload in bytes.

    The launcher measures the peak. getrusage() would report at least the peak of this test process,
    because a child inherits the peak of its parent.
    """
    launch = Launch(native.launcher())
    words = [
        "--setenv",
        f"LD_PRELOAD={preload}",
        "--setenv",
        f"ILL={illness}",
        "--stdout",
        "/dev/null",
    ]
    told = launch(*words, "--", str(work.folder / command[0]), *command[1:]).told
    assert told["exit_code"] == 0
    return int(told["largest_process_bytes"])


@pytest.mark.parametrize(("illness", "factor"), [("leaking", 1.5), ("fat", 1.5)])
def test_more_memory_shows_in_the_peak(work: Work, ill: str, illness: str, factor: float) -> None:
    command = ("mixed", "--bytes", "256M", "--live", "16M")
    healthy = peak(work, "", "", *command)
    assert peak(work, ill, illness, *command) > factor * healthy


def test_a_slow_allocator_shows_in_time_per_operation(work: Work, ill: str) -> None:
    """An operation takes about 5 µs instead of 50 ns. A busy machine changes the time by less."""
    healthy = work("mixed", "--bytes", "8M", "--live", "2M")
    slow = work("mixed", "--bytes", "8M", "--live", "2M", preload=ill, ILL="slow")
    assert slow.line["ns_per_operation"]["median"] > 3 * healthy.line["ns_per_operation"]["median"]
