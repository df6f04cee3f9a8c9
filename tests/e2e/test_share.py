"""Tests of the allocator's share of CPU time with programs whose share is known."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.burning import Burning

TRIES = 6
"""A 95 % interval misses once in twenty tries. An error of the method misses in all of them."""
NARROW = {"COLUMNS": "80"}


@pytest.fixture(scope="module")
def burning(compiled, tmp_path_factory: pytest.TempPathFactory) -> Burning:
    return Burning.of(compiled, tmp_path_factory.mktemp("burning"))


@pytest.mark.parametrize(
    ("share", "cpu_ms", "threads", "rounds"),
    [(0.0, 100, 2, 300), (0.03, 200, 4, 3000), (0.3, 60, 1, 300), (0.95, 100, 2, 1000)],
)
def test_the_interval_contains_the_known_share(
    cairn, burning: Burning, share: float, cpu_ms: int, threads: int, rounds: int
) -> None:
    load = burning.load(share, cpu_ms * 1e6, threads, rounds)
    tries = []
    for _ in range(TRIES):
        tries.append(burning.profiled(cairn, load))
        if tries[-1].clock == "timers":
            pytest.skip("the kernel's clock is not permitted here")
        assert tries[-1].ends[1] <= 1
        # A clock that stops in the kernel cannot say who used the kernel's CPU time. So the
        # interval contains all of this time, and is wide.
        narrow = tries[-1].is_narrow or tries[-1].clock == "threads in user mode"
        if tries[-1].is_covered and narrow:
            return
    raise AssertionError(tries)


def test_a_program_of_50_ms_has_a_thousand_samples(cairn, burning: Burning) -> None:
    """The samples are those of the run with the probe, without those in the probe's own code.

    A clock of the processors must give 1,000 samples. A clock of the threads has a fixed, longer
    period, so 100 samples are enough.
    """
    load = burning.load(0.5, 51e6)
    tries = []
    for _ in range(TRIES):
        tries.append(burning.profiled(cairn, load, "--runs", 1))
        if tries[-1].clock == "timers":
            pytest.skip("the kernel's clock is not permitted here")
        wanted = 1000 if tries[-1].clock == "processors" else 100
        if tries[-1].samples >= wanted:
            return
    raise AssertionError(tries)


def paranoid() -> int:
    return int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())


def words(text: str) -> str:
    return " ".join(text.split())


def is_within_80_columns(report: str) -> bool:
    return all(len(line) <= 80 for line in report[report.index("profile  ") :].splitlines())


@pytest.fixture
def without_rights(cairn) -> Any:
    """The command with the rights of a usual user, who may not watch all processes.

    If root runs the tests, setpriv takes only the rights for this away.
    """
    if paranoid() < 1:
        pytest.skip("kernel.perf_event_paranoid permits all clocks to everybody")
    if os.geteuid() != 0:
        return replace(cairn, environment=NARROW)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is not here")
    by = (setpriv, "--bounding-set", "-perfmon,-sys_admin")
    return replace(cairn, environment=NARROW, by=by)


@pytest.fixture
def without_perf_events(cairn, compiled: Callable[..., Path]) -> Any:
    by = (str(compiled("without_perf_events.c")),)
    return replace(cairn, environment=NARROW, by=by)


def test_without_rights_the_clock_is_that_of_each_thread(
    without_rights: Any, burning: Burning
) -> None:
    clock = {1: "threads", 2: "threads in user mode"}.get(paranoid(), "timers")
    load = burning.load(0.5, 600e6)
    tries = []
    for _ in range(TRIES):
        tries.append(burning.profiled(without_rights, load))
        report = tries[-1].said
        assert tries[-1].clock == clock and is_within_80_columns(report), report
        if clock == "timers":
            assert "and all users may if kernel.perf_event_paranoid is 2 or less." in words(report)
        else:
            assert (
                "▲ Threads and processes that live for less than a millisecond have too few of "
                "the clock samples, because the clock begins anew with each thread. Root may use "
                "the clock of each processor, and all users may if kernel.perf_event_paranoid is 0 "
                "or less."
            ) in words(report)
        if tries[-1].is_covered:
            return
    raise AssertionError(tries)


def test_without_perf_events_the_few_samples_of_the_timers_are_said_first(
    without_perf_events: Any, burning: Burning
) -> None:
    load = burning.load(0.5, 1e9)
    tries = []
    for _ in range(TRIES):
        tries.append(burning.profiled(without_perf_events, load))
        report = tries[-1].said
        assert tries[-1].clock == "timers" and is_within_80_columns(report), report
        if "The allocator takes" in report and tries[-1].is_covered:
            assert (
                "▲ The kernel does not allow clock samples here: Operation not permitted, so the "
                f"probe's own timers took the samples: only {tries[-1].samples:,}. Outside this "
                "container, or with a seccomp filter that permits perf_event_open, the kernel's "
                "clock is used."
            ) in words(report)
            return
    raise AssertionError(tries)


def test_with_too_few_samples_of_the_timers_there_is_no_share(
    without_perf_events: Any, burning: Burning
) -> None:
    told = burning.profiled(without_perf_events, burning.load(0.5, 100e6), "--runs", 1)
    assert told.ends == (0, 1) and is_within_80_columns(told.said)
    report = words(told.said)
    assert "The allocator takes" not in report
    assert "The allocator's share of CPU time is not known: " in report
    if told.samples:
        assert "and 200 are needed. Use --runs " in report
        assert "▲ The kernel does not allow clock samples here: " in report
        assert f"so the probe's own timers took the samples: only {told.samples}. " in report
    assert "or with a seccomp filter that permits perf_event_open, the kernel's clock" in report
