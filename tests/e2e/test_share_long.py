"""The allocator's share of CPU time in many programs whose share is known."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.burning import Burning, drawn

pytestmark = pytest.mark.long

LOADS = 30
COVERED, NARROW = 28, 27
"""COVERED is the least number of loads for which the interval must contain the true share. NARROW
is
the least number for which it must be narrow. These are 93 % and 90 % of LOADS."""


def test_intervals_contain_the_known_shares_and_are_narrow(cairn, compiled, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, burning = random.Random(seed), Burning.of(compiled, tmp_path)
    found = []
    for _ in range(LOADS):
        found.append(burning.profiled(cairn, drawn(chance, burning)))
        print(found[-1])
        if found[-1].clock == "timers":
            pytest.skip("the kernel's clock is not permitted here")
    assert max(one.ends[1] for one in found) <= 1
    assert sum(one.is_covered for one in found) >= COVERED
    assert sum(one.is_narrow for one in found) >= NARROW


ALLOCATORS = ("system", "cairn", "jemalloc", "snmalloc")
PAIRS, WORKS = 1_500_000, (0, 5, 20, 100)
ROUNDS = 9
AGREEING = 0.93


def share_by_cpu_time(cairn: Any, allocator: str, program: Path, work: int) -> tuple[float, float]:
    """Returns the interval of the allocator's share of CPU time, measured without a profiler.

    The program runs with and without calls of the allocator. The difference of the two CPU times,
    divided by the CPU time with calls, is the share. Of the shares of ROUNDS rounds, the second
    lowest and the second highest enclose the median at a level of more than 96 %.
    """

    def cpu_ns(calls: int) -> int:
        result = cairn("run", "-a", allocator, "--", program, PAIRS, work, calls, 1)
        assert result.code == 0, result.err
        return int(result.out)

    shares = []
    for _ in range(ROUNDS):
        with_calls, without = cpu_ns(1), cpu_ns(0)
        shares.append((with_calls - without) / with_calls)
    shares.sort()
    return shares[1], shares[-2]


def test_the_share_agrees_with_the_cpu_time_that_the_program_takes_without_the_allocator(
    cairn, compiled, tmp_path: Path
) -> None:
    program, out = compiled("share.c", "-O2", "-pthread"), tmp_path / "out.json"
    agree = []
    for allocator in ALLOCATORS:
        if cairn("run", "-a", allocator, "--", program, 1, 0, 1, 1).code != 0:
            print(f"{allocator} is not here")
            continue
        for work in WORKS:
            truth = share_by_cpu_time(cairn, allocator, program, work)
            command = ["profile", "-a", allocator, "--json", out, "--force", "--"]
            result = cairn(*command, program, PAIRS, work, 1, 1)
            assert result.code == 0, result.err
            found = json.loads(out.read_text())["cpu_share"]
            if found["clock"] == "timers":
                pytest.skip("the kernel's clock is not permitted here")
            ends = found["interval"]
            agree.append(ends["low"] <= truth[1] and truth[0] <= ends["high"])
            print(allocator, work, truth, found["value"], ends, "" if agree[-1] else "MISSED")
    assert len(agree) >= len(WORKS)
    assert sum(agree) >= AGREEING * len(agree)
