"""Tests that a contender fails if processes of the tree end badly, whatever the command returns.

In version 0.1.0 an allocator that killed every worker of a tolerant parent was recommended: it took
95 % less time.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support import trees

PYTHON = sys.executable
SIGNALS = {"SIGILL": "4", "SIGABRT": "6", "SIGBUS": "7", "SIGFPE": "8", "SIGSEGV": "11"}
WAYS = {**SIGNALS, "exited 41": "x41"}

POOL = """
import concurrent.futures as f, ctypes, multiprocessing as m
def work(size):
    ctypes.CDLL(None).malloc(ctypes.c_size_t(size))
    return size
if __name__ == "__main__":
    with f.ProcessPoolExecutor(2, mp_context=m.get_context("fork")) as pool:
        results = [pool.submit(work, 70003) for _ in range(3)]
        print(sum(result.exception() is None for result in results))
"""
PLACES = {
    "child": ("sh", "-c", "for i in 1 2 3; do ./worker; done; exit 0"),
    "grandchild": ("sh", "-c", "sh -c './worker; true'; true"),
    "after-exec": ("sh", "-c", "env sh -c 'exec ./worker'; true"),
    "shell": ("bash", "-c", "./worker & ./worker | cat; wait; true"),
    "pool": (PYTHON, "pool.py"),
}


@pytest.fixture(scope="session")
def crash_at(compiled: Callable[..., Path]) -> Path:
    return compiled("crash_at.c", "-shared")


@pytest.fixture
def folder(compiled: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder with the worker, its tolerant parent, and a Python pool."""
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(compiled("worker.c", "-O2"), folder / "worker")
    (folder / "pool.py").write_text(POOL)
    script = folder / "tolerant.sh"
    script.write_text(
        "#!/bin/sh\n"
        "# Starts three workers, does not care how they end, and reports success.\n"
        "for i in 1 2 3; do ./worker >/dev/null 2>&1; done\n"
        "exit 0\n"
    )
    script.chmod(0o755)
    return folder


def crashing(library: Path, way: str) -> tuple[str, ...]:
    return ("-a", "system", "-a", f"crash={library}:CRASH_PROGRAM=worker:{way}")


def test_a_tolerant_parent_does_not_hide_its_dead_workers(
    cairn, folder: Path, crash_at: Path
) -> None:
    result = cairn("compare", "-r", 8, *crashing(crash_at, "4"), "--", "./tolerant.sh", cwd=folder)
    assert result.code == 4
    assert "use crash" not in result.out.lower()
    assert (
        "under crash, the program failed: worker (3 of 3 processes) was killed by SIGILL in its first run; "
        "under system all exited 0"
    ) in result.sentence


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ending", WAYS)
def test_a_process_that_ends_badly_is_named_wherever_it_is(
    folder: Path, crash_at: Path, tmp_path: Path, place: str, ending: str
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    shutil.copytree(folder, runs, dirs_exist_ok=True)
    variable = "CRASH_AT=70003" if place == "pool" else "CRASH_PROGRAM=worker"
    name, value = variable.split("=")
    judged = trees.compare(runs, PLACES[place], crash_at, {name: f"{value}:{WAYS[ending]}"})
    assert judged.code == 4
    assert judged.recommended == ()
    assert judged.failure is not None
    if place == "pool" and "BrokenProcessPool" in judged.failure:
        # The worker died before it had given its result, so Python itself ended with an error.
        assert judged.failure.startswith("failed with exit code 1: ")
        return
    assert ("python3" if place == "pool" else "worker") in judged.failure
    assert ending in judged.failure
    assert "under system" in judged.failure


def test_the_others_go_on_without_a_failed_contender(
    cairn, folder: Path, crash_at: Path, forward: Path
) -> None:
    result = cairn(
        "compare", "-r", 4, *crashing(crash_at, "11"), "-a", f"x={forward}", "--",
        "./tolerant.sh", cwd=folder,
    )  # fmt: skip
    assert result.code == 4
    text = " ".join(result.out.split())
    says = "Under crash, the program failed: worker (3 of 3 processes) was killed by SIGSEGV"
    assert says in text
    assert "no result for crash" in result.sentence
    rows = {
        row["contender"]: row for row in cairn("report", "--json").json["comparisons"][0]["rows"]
    }
    assert rows["crash"]["failures"] and rows["crash"]["changes"] == {}
    assert rows["x"]["summaries"]["wall"]["runs"] == 4


def test_why_fails_as_well(cairn, folder: Path, crash_at: Path) -> None:
    result = cairn(
        "compare", "--why", "-r", 2, *crashing(crash_at, "6"), "--", "./tolerant.sh", cwd=folder
    )
    assert result.code == 4
    assert "was killed by SIGABRT in its first run; under system all exited 0" in result.err


def test_a_strict_parent_is_told_with_the_crash(cairn, folder: Path, crash_at: Path) -> None:
    result = cairn(
        "compare", "-r", 2, *crashing(crash_at, "11"), "--",
        "sh", "-c", "./worker || exit 3", cwd=folder,
    )  # fmt: skip
    assert result.code == 4
    assert re.search(
        "failed with exit code 3.*; worker was killed by SIGSEGV in its first run; "
        "under system it exited 0",
        result.sentence,
    )


def test_crashes_under_the_baseline_are_told_and_no_failure(cairn, forward: Path) -> None:
    result = cairn(
        "compare", "-r", 3, "-a", "system", "-a", f"x={forward}", "--",
        "sh", "-c", "sh -c 'kill -SEGV $$; true'; true",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "under system, " in result.err and "was killed by SIGSEGV" in result.err
    assert "the program succeeded all the same" in " ".join(result.out.split())


def test_a_baseline_that_crashes_alone_is_no_baseline(cairn, folder: Path, crash_at: Path) -> None:
    """Such a baseline once won: "Keep crash: system takes 4 times the time"."""
    contenders = crashing(crash_at, "11")
    result = cairn(
        "compare", "-r", 8, *contenders, "--baseline", "crash", "--", "./tolerant.sh", cwd=folder
    )
    assert result.code == 3
    assert "keep crash" not in result.out.lower()
    assert (
        "under crash the program failed: worker (3 of 3 processes) was killed by SIGSEGV in every "
        "run; under system all exited 0"
    ) in result.sentence
    result = cairn(
        "check", "-r", 8, "--fail-if", "time>5%", *contenders[2:], *contenders[:2], "--",
        "./tolerant.sh", cwd=folder,
    )  # fmt: skip
    assert (result.code, result.out[:7]) == (3, "Broken:")


def test_a_parent_that_kills_its_children_is_no_failure(cairn, forward: Path) -> None:
    # The last sleep gives the process that `timeout` killed the time to end.
    line = "sleep 60 & sleep 61 & kill %1; kill -9 %2; wait; timeout -s KILL .2 sleep 62; sleep 1"
    result = cairn(
        "compare", "-r", 4, "-a", "system", "-a", f"x={forward}", "--", "bash", "-c", line
    )
    assert result.code == 0, result.err
    # A child that is killed before it executes `sleep` counts as its parent's program.
    sample = json.loads(cairn("report", "--json").out)["samples"][0]
    killed: Counter[str] = Counter()
    for of in sample["endings"].values():
        killed.update(of)
    assert (killed["SIGKILL"], killed["SIGTERM"]) == (3, 1)  # timeout kills itself as well


def test_run_tells_which_processes_crashed(cairn, folder: Path, crash_at: Path) -> None:
    spec = f"{crash_at}:CRASH_PROGRAM=worker:7"
    result = cairn("run", "-a", spec, "--", "./tolerant.sh", cwd=folder)
    assert result.code == 0
    assert "worker (3 of 3 processes) was killed by SIGBUS" in result.err
    assert "killed" not in cairn("run", "--", "./tolerant.sh", cwd=folder).err


def test_a_measured_program_leaves_no_core_dump(cairn, folder: Path, crash_at: Path) -> None:
    script = "import resource as r; s, h = r.getrlimit(r.RLIMIT_CORE); print(s in (0, 1) and s)"
    result = cairn(
        "compare", "-r", 2, "-a", "system", "--metric", "limit=([0-9]+)", "--json", "--",
        PYTHON, "-c", script, cwd=folder,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.json["samples"][0]["metrics"]["limit"] in (0, 1)
