"""Tests of 'cairn inspect' and 'cairn profile --pid' as commands, on programs that are known."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.inspected import started

ROUNDS, SHARE = 3000, 0.3
WORK = round(2 * ROUNDS * (1 - SHARE) / SHARE)
TOLERANCE = 0.05
"""Four standard errors of the share SHARE, estimated from 1,300 samples."""


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
    with started(program, "burn", WORK, LD_PRELOAD=str(burning), BURN_ROUNDS=str(ROUNDS)) as one:
        result = cairn("profile", "--pid", one.pid, "--for", "1s", "--json", out)
        assert Path(f"/proc/{one.pid}").exists()
    if "does not permit clock samples" in result.err:
        pytest.skip("the kernel does not permit clock samples here")
    assert result.code == 0, result.err
    found = json.loads(out.read_text())["attached"]
    if found["share"] is None:
        pytest.skip(f"the machine is too busy: {found['why_not']}")
    assert abs(found["share"]["value"] - SHARE) < TOLERANCE
    assert found["allocator"]["how"] == "preloaded"
    assert found["functions"][0]["name"] in ("malloc", "free", "burn")
    callers = {one["name"]: one["share"]["value"] for one in found["callers"]}
    assert abs(callers["take"] - 0.5) < 2 * TOLERANCE
    assert abs(callers["give"] - 0.5) < 2 * TOLERANCE
    stacks = [tuple(one["functions"][:3]) for one in found["stacks"][:2]]
    assert sorted(stacks) == [("give", "serve", "main"), ("take", "serve", "main")]
    assert f"({one.pid})" in result.out and os.path.basename(program)[:15] in result.out
