"""Tests of Cairn's own allocator as a contender. By default, it takes part in every comparison."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.preloadable_path import carried

from cairn import __version__, native
from cairn.allocators import discover

LIBRARY = str(native.allocator().resolve())


@pytest.fixture
def jemalloc(cairn, forward: Path) -> None:
    """Adds a library that forwards to glibc as "jemalloc", so that every machine has a jemalloc."""
    folder = cairn.home / ".cache" / "cairn" / "allocators" / "jemalloc" / "99"
    folder.mkdir(parents=True)
    shutil.copy(forward, folder / "lib.so")
    record = {
        "schema": discover.RECORD_SCHEMA,
        "allocator": "jemalloc",
        "library": "lib.so",
        "version": "99",
    }
    (folder / discover.RECORD).write_text(json.dumps(record))


def contenders(document: dict[str, dict[str, list[dict[str, str]]]]) -> list[str]:
    return [contender["name"] for contender in document["run"]["contenders"]]


def test_our_allocator_is_listed_like_the_others(cairn) -> None:
    first, second, third = cairn("allocators").out.splitlines()[:3]
    assert (first.split()[0], second.split()[0]) == ("name", "system")
    digest = discover.file_sha256(LIBRARY)
    assert third.split()[:6] == ["cairn", __version__, "size-segregated", "no", "MIT", digest[:12]]
    assert third.endswith("comes with cairn")
    item = cairn("allocators", "--json").json["found"][1]
    assert (item["allocator"], item["path"], item["sha256"]) == (
        "cairn",
        str(native.allocator()),
        digest,
    )


def test_our_allocator_competes_by_default_and_every_process_proves_its_load(
    cairn, churn: Path
) -> None:
    result = cairn("compare", "-r", 2, "--json", "--", "sh", "-c", f"{churn} 100; {churn} 200")
    assert result.code == 0, result.err
    assert contenders(result.json)[:2] == ["system", "cairn"]
    own = [
        sample["proof"]
        for sample in result.json["samples"]
        if sample["trial"]["contender"] == "cairn"
    ]
    assert len(own) == 3
    assert all((proof["loaded"], proof["processes"]) == (3, 3) for proof in own)
    # The owner is a symbolic link to the library if the library's path has a space.
    assert {Path(proof["owner"]).name for proof in own} == {Path(LIBRARY).name}
    shown = cairn("report", "--full").out
    assert f"cairn {__version__}" in shown
    for form in ("--md", "--csv"):
        assert "cairn" in cairn("report", form).out


@pytest.mark.usefixtures("jemalloc")
def test_our_allocator_does_not_compete_if_the_user_names_others(cairn, churn: Path) -> None:
    result = cairn("compare", "-r", 1, "-a", "system,jemalloc", "--json", "--", churn, 10)
    assert result.code == 0, result.err
    assert contenders(result.json) == ["system", "jemalloc"]
    result = cairn("bench", "larson", "--plan", "-a", "system,jemalloc")
    assert "2 contenders (system, jemalloc)" in result.out


@pytest.mark.usefixtures("jemalloc")
def test_our_allocator_is_a_default_contender_of_every_experiment(cairn) -> None:
    plan = cairn(
        "bench",
        "build",
        "malloctest",
        "fill",
        "mixed",
        "scenarios",
        "suite",
        "larson",
        "--quick",
        "--plan",
    )
    assert plan.code == 0, plan.err
    assert plan.out.count("contenders (system, cairn, ") == 7


def test_a_workload_has_the_same_checksum_under_our_allocator(cairn) -> None:
    result = cairn("bench", "scenario-json", "--quick", "-r", 1, "--json")
    assert result.code == 0, result.err
    assert contenders(result.json)[:2] == ["system", "cairn"]
    assert len({sample["output_digest"] for sample in result.json["samples"]}) == 1


@pytest.mark.long
@pytest.mark.usefixtures("jemalloc")
def test_the_scenarios_rank_our_allocator_and_compare_it_with_each_other_one(cairn) -> None:
    result = cairn("bench", "scenarios", "--quick", "-r", 1)
    assert result.code == 0, result.err
    count = len(contenders(cairn("report", "--json").json))
    assert f"points: {count} for the lowest median of a scenario" in result.out
    assert f"cairn {__version__}" in result.out
    assert "cairn ÷" in result.out


def test_the_variables_of_our_allocator_are_treated_as_knobs(cairn, churn: Path) -> None:
    told = cairn("run", "-a", "cairn:CAIRN_STATS=1", "--", churn, 10)
    assert told.code == 0
    assert "cairn: live " in told.err
    assert not cairn("run", "-a", "cairn", "--", churn, 10).err
    for_all = cairn("compare", "-r", 1, "-a", "system,cairn", "--", churn, 10, CAIRN_STATS="1")
    assert "The environment sets CAIRN_STATS=1 for every contender" in for_all.out
    assert "CAIRN_RESULTS" not in for_all.out


def test_our_allocator_can_be_neither_fetched_nor_removed(cairn) -> None:
    got = cairn("allocators", "get", "cairn")
    assert (got.code, got.out) == (1, "")
    assert "never fetched" in got.sentence
    removed = cairn("allocators", "remove", "cairn")
    assert (removed.code, removed.out) == (2, "")
    assert Path(LIBRARY).is_file()
    other = cairn("compare", "-a", "cairn@0.0.1", "--", "true")
    assert other.code == 4
    assert f"only {__version__}" in other.sentence


@pytest.fixture
def without_it(cairn, tmp_path: Path):
    """The command `cairn` of an installation whose library libcairn.so.0 is missing."""
    package = tmp_path / "package"
    gone = shutil.ignore_patterns("libcairn.so*", "__pycache__")
    shutil.copytree(Path(native.__file__).parent, package / "cairn", ignore=gone)
    copied = type("Copied", (type(cairn),), {"argv": [sys.executable, "-m", "cairn"]})
    return copied(cairn.home, {"PYTHONPATH": str(package)})


def test_a_missing_library_is_one_sentence_with_the_next_step(without_it, churn: Path) -> None:
    lacks = (
        "this installation of cairn lacks lib/libcairn.so.0; install it again with 'make install' "
        "or pip"
    )
    for code, command in ((4, "compare"), (126, "run")):
        result = without_it(command, "-a", "cairn", "--", churn, 10)
        assert (result.code, result.sentence) == (code, f"✘ {lacks}")
        assert not without_it.results.exists()
    assert f"✘ cairn: {lacks}" in without_it("allocators").out
    warned = without_it("doctor")
    assert warned.code == 0
    assert "own allocator" in warned.out
    result = without_it("compare", "-r", 1, "--json", "--", churn, 10)
    assert result.code == 0, result.err
    assert f"cairn is left out: {lacks}" in result.err
    assert "cairn" not in contenders(result.json)


def test_with_the_background_thread_a_sleeping_program_returns_memory_within_a_second() -> None:
    """The background thread must keep looking for idle memory even if it once found none.

    A busy machine may delay the thread, so one of two runs is enough.
    """
    command = [native.workload("burst_idle"), "--bytes", "300M", "--idle", "1"]
    environment = {**os.environ, "LD_PRELOAD": carried(Path(LIBRARY)), "CAIRN_BACKGROUND": "1"}
    after_1_s = []
    while len(after_1_s) < 2 and (not after_1_s or min(after_1_s) >= 180 << 20):
        ended = subprocess.run(
            command, env=environment, check=True, capture_output=True, timeout=120
        )
        assert not ended.stderr, "the loader warns there about a library that it cannot preload"
        figures = json.loads(ended.stdout)["figures"]
        assert figures["resident_after_0_s_bytes"] > 250 << 20
        after_1_s.append(figures["resident_after_1_s_bytes"])
    assert min(after_1_s) < 180 << 20, after_1_s


MISUSE = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
block = libc.malloc(48)
libc.free(block)
libc.free(block)
"""


def test_the_hardened_build_ends_a_program_at_a_misuse(cairn) -> None:
    result = cairn("run", "--hardened", "--", sys.executable, "-c", MISUSE)
    assert result.code == 128 + 6
    assert re.search(
        r"^cairn: a block is used that was freed before: 0x\w+, size class 64, called from",
        result.err,
    )


def test_the_hardened_build_competes_only_if_it_is_named(cairn) -> None:
    result = cairn("compare", "-a", "cairn,cairn-hardened", "-r", 2, "--json", "--", "true")
    assert contenders(result.json) == ["cairn", "cairn-hardened"]
    assert "cairn-hardened" not in contenders(
        cairn("compare", "-r", 2, "--json", "--", "true").json
    )


def test_hardened_and_another_allocator_exclude_each_other(cairn) -> None:
    result = cairn("run", "--hardened", "-a", "jemalloc", "--", "true")
    assert result.code == 2
    assert "--hardened chooses the allocator itself; leave out -a or --hardened" in result.err
