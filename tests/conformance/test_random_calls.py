"""Tests that make random calls and compare the results with a shadow: a record of all live blocks.

They check contents, overlap, alignment, usable size and errno. random_calls.c prints its seed. The
same seed makes the same calls again, if there is one thread and no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest

from .conftest import MODES, Program

KINDS = list(product((1, 4), ((), ("fork",), ("limit",), ("fork", "limit"))))
"""Pairs of a number of threads and further arguments of random_calls.c. With "fork", children use
inherited blocks. With "limit", the address space is limited for some time."""

QUICK = [(seed, 550_000, *KINDS[seed % len(KINDS)]) for seed in range(8)]
LONG = [
    (seed, 20_000_000, MODES[seed // len(KINDS) % 2], *KINDS[seed % len(KINDS)])
    for seed in range(100, 150)
]


def hold(
    run: Program,
    seed: int,
    operations: int,
    threads: int,
    words: tuple[str, ...],
    **environment: str,
) -> int:
    """Runs the program, checks its output, and returns the number of operations."""
    said = run.succeed(seed, operations, threads, *words, timeout=600, **environment)
    ended = re.fullmatch(
        rf"seed {seed}\n(\d+) operations, (\d+) children, (\d+) refusals, ended with [0-9a-f]+\n",
        said,
    )
    assert ended, said
    done, children, refusals = map(int, ended.groups())
    assert (children > 0) == ("fork" in words) and (refusals > 0) == ("limit" in words), said
    return done


def test_random_calls_do_what_the_shadow_says(program: Callable[..., Program]) -> None:
    run = program("random_calls.c", "preloaded", "-O2")
    assert sum(hold(run, *arguments) for arguments in QUICK) >= 4_150_000


@pytest.mark.parametrize("flags", [(), ("-static",)], ids=["dynamic", "static"])
def test_random_calls_do_what_the_shadow_says_with_the_archive(
    program: Callable[..., Program], flags: tuple[str, ...]
) -> None:
    run = program("random_calls.c", "archive", "-O2", *flags)
    hold(run, 50, 300_000, 1, ("fork", "limit"))
    hold(run, 51, 300_000, 4, ("fork", "limit"))


@pytest.mark.parametrize(
    "option",
    [
        {"CAIRN_BIG_CACHE": "sites"},
        {"CAIRN_POLICY": "ucb1"},
        {"CAIRN_BIG_CACHE": "sites", "CAIRN_POLICY": "ucb1"},
    ],
    ids=["sites", "ucb1", "both"],
)
def test_random_calls_do_what_the_shadow_says_with_an_option(
    program: Callable[..., Program], option: dict[str, str]
) -> None:
    run = program("random_calls.c", "preloaded", "-O2")
    hold(run, 53, 300_000, 1, ("fork", "limit"), **option)
    hold(run, 54, 300_000, 4, ("fork", "limit"), **option)


def test_the_same_seed_makes_the_same_calls(program: Callable[..., Program]) -> None:
    run = program("random_calls.c", "preloaded", "-O2")
    assert len({run.succeed(52, 100_000, 1, "fork") for _ in range(2)}) == 1


@pytest.mark.long
@pytest.mark.parametrize(("seed", "operations", "mode", "threads", "words"), LONG)
def test_a_billion_random_calls_do_what_the_shadow_says(
    program: Callable[..., Program],
    seed: int,
    operations: int,
    mode: str,
    threads: int,
    words: tuple[str, ...],
) -> None:
    hold(program("random_calls.c", mode, "-O2"), seed, operations, threads, words)
