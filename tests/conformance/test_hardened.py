"""Tests of libcairn-hardened: each protection notices a misuse that the plain build does not.

The programs that test the plain build run under the hardened build, too.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from .conftest import MODES, Ended, Program
from .test_misuse import PLACES

SMALL, LARGE = (24, 100, 1000, 5000), (40000, 300000)

TABLE = """
double-adjacent               C C C C C C C C C C C C
double-after-others           C C C C C C C C C C C C
double-after-refill           C C C C C C C C C C C -
double-overwritten            C C C C C C G G G C C G
double-second-in-thread       C C C C C C C C C C C C
double-first-in-thread        C C C C C C C C C C C C
double-both-in-threads        C C C C C C C C C C C C
double-of-an-ended-thread's   C C C C C C C C C C C C
double-after-thread-exit      C C C C C C C C C C C C
double-after-moving           C C C C C C C - C C C C
invalid-stack                 C C C C C C C C C C C C
invalid-static                C C C C C C C C C C C C
invalid-mapped                C C C C C C C C C C C C
invalid-number                C C C C C C C C C C C C
invalid-not-canonical         C C C C C C C C C C C C
invalid-never-out             C C C C C C - C C C C C
invalid-far-beyond            C C C C C C C C C C C C
interior-1                    C C C C C C - C C C C C
interior-8                    C C C C C C - C C C C C
interior-16                   - C C C C C - C C C C C
interior-half                 - C C C C C - C C C C C
interior-of-later-slice       - - - - - - - C C - - -
interior-in-thread            - C C C C C - C C C C C
poisoned-with-live-block      C C C C C C G - - C C -
poisoned-with-static          C C C C C C G - - C C -
poisoned-with-stack           C C C C C C G - - C C -
poisoned-with-nothing-mapped  C C C C C C G - - C C -
poisoned-with-odd-address     C C C C C C G - - C C -
written-ones                  C C C C C C G G G C C G
written-zeros                 h h h h h h G G G h h G
written-behind-the-link       - C C C C C G G G C C G
written-before-a-trim         C C C C C C G G G C C G
posted-written-before-a-trim  C C C C C C G G G C C G
sized-after-free              C C C C C C C C C C C C
resized-after-free            C C C C C C C C C C C C
resized-in-place-after-free   C C C C C C C C C C C C
"""
"""C: the misuse is caught. -: the case does not exist for this size.

h: harmless, because free memory reads as zero, so writing zeros changes nothing.

G: a segmentation fault, because no one can access a freed large block.

Blocks of 32,768 bytes are large blocks in this build and lie in no slab. So the cases of misuse.c
that need the first block of a slab (take_first()) do not exist for them.
"""

MAY_ALSO = {
    # The memory of a freed block waits in quarantine, and the program ends before the block is
    # handed out again.
    "written-ones": {"harmless"},
    "written-behind-the-link": {"harmless"},
    "written-before-a-trim": {"harmless"},
    "posted-written-before-a-trim": {"harmless"},
    # Zeros change a free block that has left quarantine, because its first words are link and key.
    "written-zeros": {"caught"},
    # If realloc() finds room to grow in place, the block does not move: the case does not exist.
    "double-after-moving": {"none"},
}


@pytest.mark.parametrize("mode", MODES)
def test_every_double_and_every_invalid_free_is_caught(
    hardened: Callable[..., Program], mode: str
) -> None:
    lines = hardened("misuse.c", mode).succeed(timeout=300).splitlines()
    found = {(kind, place): verdict for kind, place, verdict in map(str.split, lines)}
    meaning = {"C": "caught", "-": "none", "h": "harmless", "G": "crash"}
    rows = [(kind, marks) for kind, *marks in map(str.split, TABLE.strip().splitlines())]
    table = {
        (kind, place): {meaning[mark]} | MAY_ALSO.get(kind, set())
        for kind, marks in rows
        for place, mark in zip(PLACES, marks, strict=True)
    }
    assert found.keys() == table.keys()
    assert {cell: verdict for cell, verdict in found.items() if verdict not in table[cell]} == {}


def is_caught(ended: Ended, says: str) -> bool:
    """Returns whether the program ended by abort(), with one line that says `says` and where."""
    line = rf"cairn: {says}[^\n]*: 0x[0-9a-f]+, (size class|bytes) \d+, called from \S[^\n]*\n"
    return ended.code == -signal.SIGABRT and re.fullmatch(line, ended.err) is not None


UNNOTICED = Ended(0, "", "")


@pytest.mark.parametrize("size", (*SMALL, *LARGE))
@pytest.mark.parametrize("count", [1, 8, 16])
def test_a_write_beyond_the_end_is_caught_when_the_block_is_freed(
    program: Callable[..., Program], hardened: Callable[..., Program], size: int, count: int
) -> None:
    words = ("overflow", size, count)
    assert is_caught(
        hardened("protections.c", "preloaded")(*words), "a write beyond the end of a block"
    )
    assert program("protections.c", "preloaded")(*words) == UNNOTICED


@pytest.mark.parametrize("size", SMALL)
@pytest.mark.parametrize("count", [1, 8, 16])
def test_a_write_before_the_start_is_caught_when_the_block_is_freed(
    program: Callable[..., Program], hardened: Callable[..., Program], size: int, count: int
) -> None:
    words = ("underflow", size, count)
    assert is_caught(
        hardened("protections.c", "preloaded")(*words), "a write before the start of a block"
    )
    assert program("protections.c", "preloaded")(*words) == UNNOTICED


@pytest.mark.parametrize("size", SMALL)
@pytest.mark.parametrize("call", ["sized", "resized"])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("overflow", "a write beyond the end of a block"),
        ("underflow", "a write before the start of a block"),
    ],
)
def test_an_overwritten_block_is_also_caught_by_the_calls_that_look_at_it(
    hardened: Callable[..., Program], size: int, call: str, kind: str, says: str
) -> None:
    assert is_caught(hardened("protections.c", "preloaded")(f"{kind}-{call}", size, 8), says)


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("words", [("underflow", 1), ("beyond", 0)])
def test_guards_lie_around_a_large_block(
    program: Callable[..., Program],
    hardened: Callable[..., Program],
    words: tuple[str, int],
    size: int,
) -> None:
    kind, count = words
    assert hardened("protections.c", "preloaded")(kind, size, count).code == -signal.SIGSEGV
    assert program("protections.c", "preloaded")(kind, size, count) == UNNOTICED


@pytest.mark.parametrize("size", SMALL)
def test_a_write_after_free_is_caught_when_the_block_is_handed_out_again(
    program: Callable[..., Program], hardened: Callable[..., Program], size: int
) -> None:
    assert is_caught(hardened("protections.c", "preloaded")("write", size), "a block was written")
    assert program("protections.c", "preloaded")("write", size) == UNNOTICED


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("kind", ["write", "write-first", "stale"])
def test_no_one_can_access_a_large_block_after_it_was_freed(
    program: Callable[..., Program], hardened: Callable[..., Program], kind: str, size: int
) -> None:
    assert hardened("protections.c", "preloaded")(kind, size).code == -signal.SIGSEGV
    assert program("protections.c", "preloaded")(kind, size).code in (0, 3)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (kind, size)
        for kind in ("stale", "dirty", "reused")
        for size in (*SMALL, *LARGE)
        if kind != "stale" or size in SMALL
    ],
)
def test_freed_memory_is_cleared_and_not_reused_at_once(
    program: Callable[..., Program], hardened: Callable[..., Program], kind: str, size: int
) -> None:
    assert hardened("protections.c", "preloaded")(kind, size) == UNNOTICED
    assert program("protections.c", "preloaded")(kind, size).code == 3


@pytest.mark.parametrize("size", SMALL)
def test_blocks_of_a_slab_are_handed_out_in_random_order(
    program: Callable[..., Program], hardened: Callable[..., Program], size: int
) -> None:
    assert hardened("protections.c", "preloaded")("ordered", size) == UNNOTICED
    assert program("protections.c", "preloaded")("ordered", size).code == 3


@pytest.mark.parametrize("size", [64, 1000])
def test_a_guard_ends_a_write_that_runs_through_slabs(
    program: Callable[..., Program], hardened: Callable[..., Program], size: int
) -> None:
    far = {
        build: int(build("protections.c", "preloaded").succeed("far", size))
        for build in (program, hardened)
    }
    assert far[hardened] < 4 << 20 and far[program] > 16 << 20


def test_the_report_names_the_call(hardened: Callable[..., Program]) -> None:
    misuse = hardened("misuse.c", "preloaded")
    ended = misuse("double-adjacent", "48")
    found = re.search(r"size class 64, called from the program\+(0x\w+)", ended.err)
    assert found, ended.err
    symbols = subprocess.run(
        ["addr2line", "-f", "-e", misuse.path, hex(int(found[1], 16) - 1)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert symbols.stdout.splitlines()[0] == "double_adjacent"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 4])
def test_random_calls_do_what_the_shadow_says(
    hardened: Callable[..., Program], mode: str, threads: int
) -> None:
    run = hardened("random_calls.c", mode, "-O2")
    for seed in (60, 61):
        assert " operations, " in run.succeed(seed, 150_000, threads, "fork", "limit", timeout=600)


@pytest.mark.parametrize("mode", ["linked", "archive"])
def test_heaps_and_walks_and_limits_are_as_the_header_says(
    hardened: Callable[..., Program], mode: str
) -> None:
    """The functions of cairn.h work in the hardened build, too.

    A block of size 0 with a large alignment once left a guard in free memory.
    """
    assert hardened("heaps.c", mode).succeed().splitlines()[-1].endswith("passed, 0 failed")


def test_long_blocks_leave_no_guard_in_free_memory(hardened: Callable[..., Program]) -> None:
    """Blocks of 5 MiB are too long to be sealed when they are freed: they are emptied."""
    assert int(hardened("refilled.c", "preloaded").succeed()) > 20


@pytest.mark.parametrize("mode", MODES)
def test_a_child_that_may_not_take_locks_gets_blocks_of_every_size(
    hardened: Callable[..., Program], mode: str
) -> None:
    """A child of vfork() uses no heap of its parent: all its blocks come from emergency.h.

    The children of forks.c allocate in every way, fill the blocks and free them. The parent forks
    in the handler of a timer that interrupts its own calls of malloc and free.
    """
    run = hardened("forks.c", mode)
    assert re.fullmatch(r"0 of \d\d failed\n", run.succeed("handler vfork", 12))
