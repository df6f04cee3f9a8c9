"""Tests of the first cause that `cairn profile` and `compare --why` name, where it is known.

The allocators are those of cairn/bench/ill/, which have one illness each. On each of these programs
a wrong cause, or none, was once named first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.ill_allocators import built

from cairn.run import store
from cairn.why.causes import Cause, causes
from cairn.why.gap import PROGRAM, explain

CLOCK = os.geteuid() == 0 or int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1
Profiled = Callable[..., list[dict[str, Any]]]
Compared = Callable[..., tuple[tuple[Cause, ...], str]]


@pytest.fixture
def library(tmp_path: Path) -> Callable[[str], Path]:
    """Returns library(illness), which compiles the allocator of this name."""
    return lambda illness: built(illness, tmp_path)


@pytest.fixture
def profiled(
    cairn: Command, compiled: Callable[..., Path], library: Callable[[str], Path]
) -> Profiled:
    """Returns profiled(illness, strength, source, *arguments): the findings of `cairn profile`.

    One run may have too few clock samples for a finding, so there are three.
    """

    def findings(
        illness: str, strength: int, source: str, *arguments: object
    ) -> list[dict[str, Any]]:
        done = cairn(
            "profile", "--json", "-", "--runs", 3, "-a", library(illness),
            "--", compiled(source), *arguments,
            ILL=str(strength),
        )  # fmt: skip
        assert done.code == 0, done.err
        found: list[dict[str, Any]] = done.json["findings"]
        print(*found, sep="\n")
        return found

    return findings


@pytest.fixture
def compared(
    cairn: Command, compiled: Callable[..., Path], library: Callable[[str], Path]
) -> Compared:
    """Returns compared(illness, strength, source, *arguments), which compares with the system's.

    compared() returns the causes that make the ill allocator worse, the largest first, and the
    printed report.
    """

    def look(
        illness: str, strength: int, source: str, *arguments: object
    ) -> tuple[tuple[Cause, ...], str]:
        done = cairn(
            "compare", "--why", "-r", 6, "--warm-memory", "off",
            "-a", "system", "-a", f"ill={library(illness)}:ILL={strength}",
            "--", compiled(source), *arguments,
        )  # fmt: skip
        assert done.code == 0, done.err
        print(done.out)
        kept = store.find(cairn.results, "last")
        why = explain(kept.run(), kept.samples(), "ill", "system")
        assert not why.why_not
        return causes(why, "ill"), done.out

    return look


def test_an_allocator_that_yields_waits_alone(profiled: Profiled) -> None:
    """Cairn once named the cause `queues`, although the program has only one thread.

    The allocator yields in every free. If it yields in every tenth, that is 6 to 15 % of the CPU
    time here, and on other machines too little for a finding.
    """
    first, *others = profiled("yielding_free", 1, "replaced_blocks.c", 30000)
    assert first["name"] == "waits-alone"
    assert "sched_yield" in first["evidence"][0]
    assert not others


def test_an_allocator_that_guards_its_pages_changes_protection(profiled: Profiled) -> None:
    """The first cause was once "its ordinary path is slow", and not the mprotect calls."""
    first, *others = profiled("guard_pages", 1024, "replaced_blocks.c", 200000)
    assert first["name"] == "changes-protection"
    assert "mprotect" in first["evidence"][0]
    assert not others


@pytest.mark.long
@pytest.mark.skipif(not CLOCK, reason="without clock samples of short runs, nothing is concluded")
def test_an_allocator_that_searches_one_list_is_slow_in_reuse(compared: Compared) -> None:
    """Nothing was found."""
    found, _ = compared("first_fit", 10000, "replaced_blocks.c", 1000000)
    assert found[0].name == "slow-reuse"


@pytest.mark.long
@pytest.mark.skipif(not CLOCK, reason="without clock samples of short runs, nothing is concluded")
@pytest.mark.parametrize(
    ("illness", "strength", "source", "arguments", "name"),
    [
        ("scattered", 104729, "walked_list.c", (150000, 10), "blocks-scattered"),
        ("shared_lines", 64, "line_writers.c", (2, 8, 24, 2, 60000), "threads-share-lines"),
        (
            "one_set_malloc",
            4096,
            "walked_columns.c",
            (400, 40000, 20000),
            "blocks-in-one-cache-set",
        ),
    ],
)
def test_where_blocks_lie_is_the_reason_why_the_program_itself_is_slow(
    compared: Compared,
    illness: str,
    strength: int,
    source: str,
    arguments: tuple[object, ...],
    name: str,
) -> None:
    """The first cause was once that new memory is slow, which explained 2.7 % of the CPU time."""
    found, report = compared(illness, strength, source, *arguments)
    assert found[0].name == name
    assert "the program itself takes" in report and PROGRAM not in [one.name for one in found]
    assert "The program itself runs slower because" in " ".join(report.split())


@pytest.mark.parametrize(("illness", "strength"), [("scrubbing", 1), ("coarse_sizes", 100)])
def test_nothing_fails_to_be_reused_in_a_program_that_frees_nothing(
    profiled: Profiled, illness: str, strength: int
) -> None:
    """Cairn once answered "freed memory is not reused", although nothing was freed."""
    found = profiled(illness, strength, "never_frees.c")
    assert "not-reused" not in [finding["name"] for finding in found]
