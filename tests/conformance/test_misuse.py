"""Tests of misuse: double, invalid and interior frees, and writes after free.

The allocator must report each misuse in one line and abort, or the misuse must be harmless.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Program

PLACES = (
    *("16", "48", "256", "1024", "4096", "10000", "32768", "100000", "1000000"),
    *("64at64", "1000at4096", "5000at65536"),
)
"""The sizes and alignments of misuse.c's blocks, in the order of the columns of TABLE."""

TABLE = """
double-adjacent               C C C C C C C C C C C C
double-after-others           C C C C C C C C C C C C
double-after-refill           C C C C C C C C C C C -
double-overwritten            C C C C C C C C C C C C
double-second-in-thread       C C C C C C C ? C C C ?
double-first-in-thread        C C C C C C C C C C C C
double-both-in-threads        C C C C C C C C C C C C
double-of-an-ended-thread's   C C C C C C C C C C C C
double-after-thread-exit      C C C C C C C C C C C C
double-after-moving           C C C C C C C - C C - C
invalid-stack                 C C C C C C C C C C C C
invalid-static                C C C C C C C C C C C C
invalid-mapped                C C C C C C C C C C C C
invalid-number                C C C C C C C C C C C C
invalid-not-canonical         C C C C C C C C C C C C
invalid-never-out             C C C C - C - C C C - C
invalid-far-beyond            C C C C C C C C C C C C
interior-1                    C C C C - C C C C C - C
interior-8                    C C C C - C C C C C - C
interior-16                   - C C C - C C C C C - C
interior-half                 - C C C - C C C C C - C
interior-of-later-slice       - - - - - - C C C - - -
interior-in-thread            - C C C - C C C C C - C
poisoned-with-live-block      C C C C C C C - - C C -
poisoned-with-static          C C C C C C C - - C C -
poisoned-with-stack           C C C C C C C - - C C -
poisoned-with-nothing-mapped  C C C C C C C - - C C -
poisoned-with-odd-address     C C C C C C C - - C C -
written-ones                  C C C C C C C h h C C h
written-zeros                 C C C C C C C h h C C h
written-behind-the-link       - h h h h h h h h h h h
written-before-a-trim         C C C C C C C h h C C h
posted-written-before-a-trim  C C C C C C C h h C C h
resized-after-free            C C C C C C C C C C C C
resized-in-place-after-free   C C C C C C C C C C C C
sized-after-free              C C C C C C C C C C C C
"""

OUTCOMES = {
    "C": {"caught"},
    "h": {"harmless"},
    "-": {"none"},
    # To start a thread, glibc allocates a block, which gets the memory of the freed block. The
    # second free then frees a block in use, which the allocator cannot detect. Another libc may
    # start a thread without an allocation.
    "?": {"caught", "harmless"},
}


def expected() -> dict[tuple[str, str], set[str]]:
    """Returns the expected outcome of each kind of misuse with each size of a block."""
    rows = [(kind, marks) for kind, *marks in map(str.split, TABLE.strip().splitlines())]
    return {
        (kind, place): OUTCOMES[mark]
        for kind, marks in rows
        for place, mark in zip(PLACES, marks, strict=True)
    }


@pytest.fixture(
    scope="module", params=["preloaded", pytest.param("archive", marks=pytest.mark.long)]
)
def verdicts(
    request: pytest.FixtureRequest, program: Callable[..., Program]
) -> dict[tuple[str, str], str]:
    """Returns the actual outcome of each kind of misuse with each size of a block."""
    lines = program("misuse.c", request.param).succeed(timeout=300).splitlines()
    return {(kind, place): verdict for kind, place, verdict in map(str.split, lines)}


@pytest.mark.plain("has this table; test_hardened.py has the other")
def test_each_misuse_has_the_outcome_of_the_table(verdicts: dict[tuple[str, str], str]) -> None:
    table = expected()
    assert verdicts.keys() == table.keys()
    assert {cell: verdict for cell, verdict in verdicts.items() if verdict not in table[cell]} == {}
