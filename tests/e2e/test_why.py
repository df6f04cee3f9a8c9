"""Tests of `cairn compare --why` and `cairn explain` on gaps whose cause is known.

The causes are the libraries of cairn/bench/ill/, which have one illness (weakness) each.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.places import ILL

from cairn import native

FLAGS = ["-O2", "-shared", "-fPIC", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
WORKLOADS = {
    "hash_table": ("--operations", "2M"),
    "lru_cache": ("--operations", "1M"),
    "fragmentation": ("--kind", "server", "--operations", "100K"),
    "mixed": ("--bytes", "256M", "--live", "96M"),
}
SLOW = [
    ("slow_free", 300, "slow-free", ("hash_table", "lru_cache", "fragmentation")),
    ("slow_new_memory", 1500, "slow-new", ("hash_table", "lru_cache", "mixed")),
    ("slot_search", 150, "slow-path", ("hash_table", "lru_cache", "fragmentation")),
]


def library(folder: Path, illness: str) -> Path:
    made = folder / f"{illness}.so"
    subprocess.run(["gcc", *FLAGS, ILL / f"{illness}.c", "-o", made], check=True)
    return made


def parts(why: dict[str, dict[str, list[dict[str, object]]]]) -> dict[str, float]:
    return {str(one["name"]): float(str(one["change"] or 0)) for one in why["time"]["parts"]}


@pytest.mark.long
def test_a_slow_free_is_found_in_the_allocators_own_code(cairn, tmp_path: Path) -> None:
    ill = f"ill={library(tmp_path, 'slow_free')}:ILL=300"
    program = (native.workload("hash_table"), "--operations", "1M")
    result = cairn(
        "compare",
        "--why",
        "-r",
        6,
        "-a",
        "system",
        "-a",
        ill,
        "--warm-memory",
        "off",
        "--",
        *program,
    )
    assert result.code == 0, result.err
    assert "each also with the probe" in result.err
    assert "of CPU" in result.out and "ill against system: Free is slow" in result.out
    assert "system+probe" not in result.out  # a probed run is never ranked
    document = cairn("report", "--json").json
    assert [row["contender"] for row in document["comparisons"][0]["rows"]] == ["system", "ill"]
    (why,) = document["whys"]
    changed = parts(why)
    assert changed["allocator code"] > 0.5 * float(why["time"]["whole"]["change"]) > 0
    assert abs(sum(changed.values()) - float(why["time"]["whole"]["change"])) < 1000

    turned = cairn("explain", "last", "system", "ill", "--json").json["whys"][0]
    assert turned["time"]["whole"]["change"] == -why["time"]["whole"]["change"]
    assert [one["name"] for one in turned["findings"]] == ["slow-free"]
    assert cairn("explain").out in cairn("report").out
    assert "allocator code" in cairn("explain", "--md").out


def test_a_run_that_cannot_be_explained_is_one_sentence(cairn, forward: Path, churn: Path) -> None:
    assert cairn("compare", "-r", 1, "-a", "system", "-a", f"x={forward}", "--", churn).code == 0
    for words, says in (
        (("explain",), "compare --why"),
        (("explain", "last", "y"), "this run has no contender y; it has system, x"),
        (("explain", "last", "system"), "system cannot be compared with itself"),
        (("explain", "-o", "why.csv"), "use .json, .md or .txt"),
    ):
        result = cairn(*words)
        assert result.code == 2 and says in result.err and len(result.err.splitlines()) == 1, (
            result.err
        )
    twice = cairn("compare", "--why", "-a", "system", "-a", "system+probe", "--", churn)
    assert twice.code == 2 and "leave out system+probe" in twice.err
    alone = cairn("compare", "--why", "-a", "system", "--", churn)
    assert alone.code == 2 and "name at least two" in alone.err
    named = ("-a", "system", "-a", f"x={forward}", "-a", f"x+probe={forward}")
    same = cairn("compare", "--why", *named, "--", churn)
    assert (
        same.code == 2
        and "give it another name" in same.err
        and not list(cairn.results.glob("*/run.json"))[1:]
    )


def test_a_program_that_fails_only_behind_the_probe_is_not_explained(
    cairn, forward: Path, churn: Path, tmp_path: Path
) -> None:
    script = tmp_path / "fails"
    script.write_text(f'#!/bin/sh\ncase "$LD_PRELOAD" in *probe*) exit 7;; esac\nexec {churn}\n')
    script.chmod(0o755)
    pair = ("-a", "system", "-a", f"x={forward}")
    result = cairn("compare", "--why", "-r", 2, *pair, "--", script)
    assert result.code == 4
    assert (
        "the differences cannot be explained, because system+probe, x+probe failed"
        in result.sentence
    )
    assert "x against system: system+probe failed with exit code 7" in result.out
    (run,) = cairn.results.glob("*/samples.jsonl")
    samples = [json.loads(line) for line in run.read_text().splitlines()]
    failed = {one["trial"]["contender"] for one in samples if one.get("failure")}
    assert failed == {"system+probe", "x+probe"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "illness", "strength", "name"),
    [
        (program, illness, strength, name)
        for illness, strength, name, programs in SLOW
        for program in programs
    ],
)
def test_an_illness_is_the_first_finding_and_the_gap_is_explained(
    cairn, tmp_path: Path, program: str, illness: str, strength: int, name: str
) -> None:
    """SLOW leaves out one pair: the illness slow_new_memory with the workload `fragmentation`.

    slow_new_memory slows down only memory that was never used, and this workload gets most of its
    blocks from freed memory.
    """
    ill = f"ill={library(tmp_path, illness)}:ILL={strength}"
    command = (native.workload(program), *WORKLOADS[program])
    result = cairn(
        "compare", "--why", "-r", 10, "-a", "system", "-a", ill, "--json", "--", *command
    )
    assert result.code == 0, result.err
    (why,) = result.json["whys"]
    assert [one["name"] for one in why["findings"]] == [name]
    assert not why["raised"]
    parts = {one["name"]: one for one in why["time"]["parts"]}
    assert max(parts, key=lambda part: parts[part]["change"]) == "allocator code"
    left = parts["unexplained"]["interval"]
    fifth = 0.2 * why["time"]["whole"]["change"]
    assert left["low"] <= fifth and left["high"] >= -fifth, (
        "more than a fifth of the gap is unexplained"
    )
