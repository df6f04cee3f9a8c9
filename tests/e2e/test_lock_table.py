"""Tests of the table of single locks with an allocator whose locks are known, and with glibc."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

TRIES = 10
"""The allocator known_locks.c measures its own numbers and times, which a busy machine disturbs. So
one right try is enough."""
OFF = 0.1
"""The largest relative error of a number or time."""


@pytest.fixture(scope="module")
def allocator(compiled: Callable[..., Path]) -> Path:
    return compiled("known_locks.c", "-O2", "-shared")


@pytest.fixture(scope="module")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled("share.c", "-O2", "-pthread")


def is_near(found: float, known: float, least: float = 0.0) -> bool:
    return abs(found - known) <= max(OFF * known, least)


def profiled(cairn: Any, tmp_path: Path, name: str, *command: object, **environment: str) -> Any:
    out = tmp_path / "profile.json"
    options = ("--runs", 1, "--json", out, "--force", "-a", name)
    result = cairn("profile", *options, "--", *command, COLUMNS="120", **environment)
    assert result.code == 0, result.err
    return json.loads(out.read_text())["lock_table"], result.err


@pytest.mark.parametrize("threads", [1, 4])
def test_each_lock_has_its_known_numbers(
    cairn, tmp_path: Path, allocator: Path, program: Path, threads: int
) -> None:
    """known_locks.c holds `front_lock` for some microseconds in every malloc.

    With several threads, threads must wait for this lock.
    """
    told, tries = tmp_path / "told", []
    for _ in range(TRIES):
        found, report = profiled(
            cairn, tmp_path, f"known={allocator}", program, 20_000, 2000, 1, threads, 16,
            LOCK_ROUNDS="2000", LOCK_FILE=str(told),
        )  # fmt: skip
        taken, waits, long_waits, wait_ns, held_ns = map(int, told.read_text().split()[:5])
        back_taken = int(told.read_text().split()[5])
        uses = {one["name"]: one for one in found["uses"]}
        front, back = uses["front_lock"], uses["back_lock"]
        records = [one for name, one in uses.items() if name.startswith("record at 0x")]
        # The process allocates a few blocks more after the allocator has written its file.
        assert 0 <= front["taken"] - taken <= 20 and 0 <= back["taken"] - back_taken <= 20
        assert len(records) == 3 and found["locks"] == 5
        assert sum(one["taken"] for one in records) == pytest.approx(taken / 4, abs=4 * threads)
        ends = front["held_ns"]["interval"]
        right = ends["low"] * (1 - OFF) <= held_ns <= ends["high"] * (1 + OFF)
        if threads > 1:
            assert found["uses"][0]["name"] == "front_lock" and "front_lock" in report
            right &= long_waits * (1 - OFF) <= front["waits"] <= waits * (1 + OFF)
            right &= is_near(front["wait_ns"], wait_ns)
        else:
            assert front["waits"] == front["wait_ns"] == 0
        if right:
            return
        tries.append((front, taken, waits, long_waits, wait_ns, held_ns))
    raise AssertionError(tries)


def test_the_lock_of_glibcs_only_arena_is_named_with_its_futex_calls(
    cairn, tmp_path: Path, program: Path
) -> None:
    """With one arena and no thread caches, the threads wait for the lock of the arena.

    With glibc's usual settings, they wait less than a fifth as often.
    """
    tunables = "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0"
    command = (program, 400_000, 20, 1, 4, 16)
    tries = []
    for _ in range(5):  # on a busy machine, the threads seldom run at once
        found, _ = profiled(cairn, tmp_path, "system", *command, GLIBC_TUNABLES=tunables)
        more, _ = profiled(cairn, tmp_path, "system", *command)
        others = sum(one["waits"] for one in more["uses"])
        arena = found["uses"][0] if found["uses"] else None
        tries.append((arena, others))
        if arena is None or arena["waits"] <= max(20, 5 * others):
            continue
        assert arena["kind"] == "futex" and arena["library"].startswith("libc.so")
        assert arena["name"].startswith(("main_arena", "libc.so.6+0x"))
        assert arena["taken"] is None and arena["wait_ns"] > 0
        return
    raise AssertionError(tries)


def _waits(log: str) -> Iterator[str]:
    """Yields the futex address of each wait in strace's log that the probe made for the allocator.

    Such a wait follows a SIGSYS with SYS_USER_DISPATCH, by which the kernel passed the allocator's
    call to the probe. When a thread ends, libc frees memory without calling free(). If libc waits
    for the arena then, no such signal comes, and the probe does not see the wait.
    """
    dispatched = set()
    for line in log.splitlines():
        thread = line.split(maxsplit=1)[0]
        words = line.partition("futex(")[2].split(", ")
        if "SYS_USER_DISPATCH" in line:
            dispatched.add(thread)
        elif words[1:]:
            if words[1].startswith("FUTEX_WAIT_PRIVATE") and thread in dispatched:
                yield words[0]
            dispatched.discard(thread)


def test_the_waits_at_the_arena_are_those_that_strace_sees(
    cairn, tmp_path: Path, program: Path
) -> None:
    """Strace watches the run with the probe. The probe makes the system calls of the allocator."""
    strace = shutil.which("strace")
    log = tmp_path / "log"
    if strace is None or subprocess.run([strace, "-o", str(log), "true"], check=False).returncode:
        pytest.skip("strace is not here or not permitted")
    traced = replace(cairn, by=(strace, "-f", "-e", "trace=futex", "-o", str(log)))
    tunables = "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0"
    command = (program, 100_000, 20, 1, 4, 16)
    found, _ = profiled(traced, tmp_path, "system", *command, GLIBC_TUNABLES=tunables)
    words = list(_waits(log.read_text()))
    arena = found["uses"][0]
    assert arena["waits"] > 0
    assert arena["waits"] in {words.count(word) for word in set(words)}
