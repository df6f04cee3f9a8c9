"""The allocator's share of CPU time in many programs whose share is known."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.burning import Burning, drawn

pytestmark = pytest.mark.long

LOADS = 30
COVERED, NARROW = 28, 27
"""At least 93 % and 90 % of the loads."""


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
