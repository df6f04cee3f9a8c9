"""Random calls against a shadow: contents, overlap, alignment, usable size, errno. The seed is printed and replays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import MODES, Program

QUICK = [*((seed, 300_000, 1) for seed in range(20)), *((seed, 400_000, 4) for seed in range(20, 28))]
LONG = [*((seed, 2_000_000, 1) for seed in range(100, 120)), *((seed, 2_000_000, 8) for seed in range(120, 140))]


def hold(run: Program, seed: int, operations: int, threads: int) -> None:
    assert run.succeed(seed, operations, threads, timeout=600) == f"seed {seed}\n"


def test_random_calls_do_what_the_shadow_says(program: Callable[..., Program]) -> None:
    run = program("shadow.c", "preloaded", "-O2")
    for seed, operations, threads in QUICK:
        hold(run, seed, operations, threads)


@pytest.mark.parametrize("flags", [(), ("-static",)], ids=["dynamic", "static"])
def test_random_calls_do_so_in_a_program_that_has_the_allocator_within(
    program: Callable[..., Program], flags: tuple[str, ...]
) -> None:
    run = program("shadow.c", "archive", "-O2", *flags)
    hold(run, 50, 300_000, 1)
    hold(run, 51, 300_000, 4)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("seed", "operations", "threads"), LONG)
def test_many_random_calls_do_so(
    program: Callable[..., Program], mode: str, seed: int, operations: int, threads: int
) -> None:
    hold(program("shadow.c", mode, "-O2"), seed, operations, threads)
