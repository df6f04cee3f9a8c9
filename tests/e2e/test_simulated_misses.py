"""Tests of cairn explain --simulate: the misses of programs whose blocks lie badly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.ill_allocators import built

CLOCK = os.geteuid() == 0 or int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1

pytestmark = [
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed"),
    pytest.mark.skipif(
        not list(Path("/sys/devices/system/cpu/cpu0/cache").glob("index2/size")),
        reason="this machine does not show the sizes of its caches",
    ),
]


@pytest.fixture
def library(tmp_path: Path) -> Callable[[str], Path]:
    """Returns library(illness), which compiles the allocator of this name."""
    return lambda illness: built(illness, tmp_path)


def measured(cairn: Any, rounds: int, ill: Path, strength: int, command: list[object]) -> Any:
    """Runs both allocators and explains their gap with simulated misses. Returns the document."""
    contenders = ("-a", "system", "-a", f"ill={ill}:ILL={strength}")
    done = cairn("compare", "--why", "-r", rounds, *contenders, "--", *command)
    assert done.code == 0, done.err
    done = cairn("explain", "--simulate", "--json", "last", "ill")
    assert done.code == 0, done.err
    (why,) = done.json["whys"]
    return why


def misses(why: Any, name: str) -> tuple[float, float]:
    (level,) = [one for one in why["simulated"]["levels"] if one["level"]["name"] == name]
    return tuple(level[one]["reads"] + level[one]["writes"] for one in ("own", "other"))


@pytest.mark.long
def test_scattered_blocks_miss_as_often_as_the_list_has_nodes(
    cairn: Any, compiled: Callable[..., Path], library: Callable[[str], Path]
) -> None:
    """The list has 6,000 nodes and is made twice. Each node lies on a page of its own.

    Each of the six walks reads each node, and so do making and freeing the list. That is more pages
    than a TLB has entries, and more lines than an L1 cache holds.
    """
    why = measured(cairn, 1, library("scattered"), 104729, [compiled("walked_list.c"), 6000, 6])
    tlb, fast = misses(why, "L2 TLB")
    assert 6 * 12_000 <= tlb <= 9 * 12_000
    assert fast < 0.01 * tlb
    own, _ = misses(why, "L1 cache")
    assert 6 * 12_000 <= own <= 12 * 12_000
    text = " ".join(cairn("explain", "last").out.split())
    assert "In the simulation, the misses of caches and TLB take" in text
    assert "simulated by callgrind: L1 cache" in text


@pytest.mark.long
@pytest.mark.skipif(not CLOCK, reason="without clock samples of short runs, nothing is concluded")
@pytest.mark.parametrize(
    ("illness", "strength", "source", "arguments", "name", "clause"),
    [
        (
            "scattered", 104729, "walked_list.c", (150000, 4),
            "blocks-scattered", "its blocks lie scattered",
        ),
        (
            "one_set_malloc", 4096, "walked_columns.c", (400, 40000, 2000),
            "blocks-in-one-cache-set", "its large blocks collide in a few cache sets",
        ),
    ],
)  # fmt: skip
def test_misses_bear_out_that_the_layout_is_the_reason(
    cairn: Any,
    compiled: Callable[..., Path],
    library: Callable[[str], Path],
    illness: str,
    strength: int,
    source: str,
    arguments: tuple[int, ...],
    name: str,
    clause: str,
) -> None:
    why = measured(cairn, 6, library(illness), strength, [compiled(source), *arguments])
    text = " ".join(cairn("explain", "last").out.split())
    assert "In the simulation, its misses of caches and TLB take" in text
    assert why["layout"][1]["name"] == name and f"because under ill {clause}" in text


@pytest.mark.long
@pytest.mark.skipif(not CLOCK, reason="without clock samples of short runs, nothing is concluded")
def test_small_pages_are_named_as_the_reason_and_huge_ones_remove_it(
    cairn: Any, compiled: Callable[..., Path]
) -> None:
    """An option of glibc changes nothing but the pages under the same blocks."""
    command = (compiled("walked_table.c", "-O2", "-fno-builtin"), 50_000, 30_000_000)
    contenders = ("-a", "huge=system:GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "-a", "system")
    done = cairn("compare", "--why", "-r", 8, "--baseline", "huge", *contenders, "--", *command)
    assert done.code == 0, done.err
    (why,) = cairn("explain", "--json", "last", "system").json["whys"]
    assert why["layout"][1]["name"] == "fewer-huge-pages"
    assert "fewer of its blocks lie in huge pages" in " ".join(cairn("explain", "last").out.split())


def test_a_run_that_cannot_be_simulated_is_refused(cairn: Any, tmp_path: Path) -> None:
    done = cairn("compare", "--why", "-r", 1, "-a", "system", "-a", "again=system", "--",
                 "/bin/true")  # fmt: skip
    assert done.code == 0, done.err
    kept = tmp_path / "run.tar.xz"
    assert cairn("report", "last", "-o", kept).code == 0
    done = cairn("explain", "--simulate", str(kept))
    assert done.code == 2
    assert "is a file of a run; name a run in a folder" in " ".join(done.err.split())
    done = cairn("explain", "--simulate", "last", PATH=str(tmp_path))
    assert done.code == 1
    assert "--simulate needs valgrind, which is not installed" in " ".join(done.err.split())
