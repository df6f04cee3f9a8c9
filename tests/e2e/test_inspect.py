"""Tests of 'cairn inspect' and 'cairn profile --pid' as commands, on programs that are known."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.inspected import started

ROUNDS, SHARE = 3000, 0.3
WORK = round(2 * ROUNDS * (1 - SHARE) / SHARE)
TRIES = 3
"""A 95 % interval misses once in twenty tries. An error of the method misses in all of them."""
SLACK = 0.02
"""How far the true share may lie outside its interval. The few instructions between the rounds
count for the program or for the allocator."""
FAR = 0.1
"""The largest error of a share, so that a useless interval is noticed: from only 300 samples, this
is about four standard errors."""


def test_a_look_is_printed_in_all_forms(cairn, compiled, tmp_path: Path) -> None:
    with started(compiled("inspected.c", "-pthread"), "live") as one:
        text = cairn("inspect", one.pid)
        document = cairn("inspect", "--json", one.pid)
        out = tmp_path / "look.csv"
        table = cairn("inspect", "-o", out, one.pid)
    assert text.code == document.code == table.code == 0, text.err
    assert text.out.startswith("malloc in inspected") and "live blocks" in text.out
    live = document.json["inspection"]["heap"]["live_most"]
    assert f"heap.live_most,{live}\n" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("inspect", 4_000_000), 2, "there is no process 4000000"),
        (("inspect", "redis"), 2, "is not the number of a process"),
        (("inspect", "--for", "2days", 1), 2, "not a duration"),
        (("profile", "--pid", 4_000_000), 2, "there is no process 4000000"),
        (("profile", "--pid", 1, "--stacks"), 2, "leave out --stacks"),
        (("profile", "--pid", 1, "--", "true"), 2, "leave out the command"),
        (("profile", "--for", "2s", "--", "true"), 2, "--for belongs to --pid"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(cairn, arguments, code: int, says: str) -> None:
    result = cairn(*arguments)
    assert result.code == code
    assert says in " ".join(result.err.split())


def test_the_share_of_a_known_program_is_known_with_its_callers(
    cairn, compiled, tmp_path: Path
) -> None:
    burning = compiled("burning.c", "-O2", "-shared")
    program = compiled("inspected.c", "-O2", "-pthread")
    out = tmp_path / "share.json"
    burns = {"LD_PRELOAD": str(burning), "BURN_ROUNDS": str(ROUNDS)}
    missed: list[object] = []
    too_busy = ""
    for _ in range(TRIES):
        with started(program, "burn", WORK, **burns) as one:
            result = cairn("profile", "--pid", one.pid, "--for", "1s", "--json", out)
            assert Path(f"/proc/{one.pid}").exists()
        if "does not permit clock samples" in result.err:
            pytest.skip("the kernel does not permit clock samples here")
        assert result.code == 0, result.err
        found = json.loads(out.read_text())["attached"]
        if found["share"] is None:
            too_busy = found["why_not"]
            continue
        assert found["allocator"]["how"] == "preloaded"
        assert found["functions"][0]["name"] in ("malloc", "free", "burn")
        stacks = [tuple(one["functions"][:3]) for one in found["stacks"][:2]]
        assert sorted(stacks) == [("give", "serve", "main"), ("take", "serve", "main")]
        assert f"({one.pid})" in result.out and os.path.basename(program)[:15] in result.out
        callers = {one["name"]: one["share"] for one in found["callers"]}
        told = [(found["share"], SHARE), (callers["take"], 0.5), (callers["give"], 0.5)]
        if all(is_right(share, truth) for share, truth in told):
            return
        missed.append(told)
    if not missed:
        pytest.skip(f"the machine is too busy: {too_busy}")
    raise AssertionError(missed)


def is_right(share: dict[str, Any], truth: float) -> bool:
    """Whether the interval of a share holds the true one, and the share is near it."""
    low, high = share["interval"]["low"], share["interval"]["high"]
    return low - SLACK <= truth <= high + SLACK and abs(share["value"] - truth) < FAR
