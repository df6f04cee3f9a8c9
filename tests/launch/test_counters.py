"""Tests of the launcher's counters on invented events, whose numbers are known.

perf_double.c stands in for the processor's counters.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.launching import Launch

REFUSED = 77
"""The double's exit code if the kernel refuses its filter."""
COUNTS = {"cycles": 4000, "instructions": 1000, "page-faults": 8, "context-switches": 12}
FLAGS = ("user_mode_only", "scaled")


@pytest.fixture
def counted(
    compiled: Callable[..., Path], launch: Launch
) -> Callable[..., dict[str, int | bool | None]]:
    """Returns counted(*options), the launcher's counters of `true` behind the double."""
    double = compiled("perf_double.c")

    def count(*options: str) -> dict[str, int | bool | None]:
        reader, writer = os.pipe()
        events = [f"{name}=0+{value}" for name, value in COUNTS.items()]
        launcher = (launch.path, "--report-fd", str(writer), "--counters", "--", "true")
        done = subprocess.run(
            [double, *events, *options, "--", *launcher], pass_fds=(writer,), check=False
        )
        os.close(writer)
        with open(reader, "rb") as file:
            line = file.read()
        if done.returncode == REFUSED:
            pytest.skip("the kernel refuses the filter")
        assert done.returncode == 0
        return dict(json.loads(line)["counters"])

    return count


def test_every_counter_has_its_event(counted: Callable[..., dict[str, int | bool | None]]) -> None:
    found = counted()
    assert [found.pop(flag) for flag in FLAGS] == [False, False]
    assert len(found) == 11
    assert found == {name: COUNTS.get(name, 0) for name in found}


def test_a_missing_event_is_absent_and_the_others_are_counted(
    counted: Callable[..., dict[str, int | bool | None]],
) -> None:
    found = counted("--missing=cycles", "--missing=dTLB-load-misses")
    assert found["cycles"] is found["dTLB-load-misses"] is None
    assert (found["instructions"], found["branches"]) == (1000, 0)


@pytest.mark.parametrize("percent", [25, 50])
def test_counts_of_a_part_of_the_time_are_scaled(
    counted: Callable[..., dict[str, int | bool | None]], percent: int
) -> None:
    found = counted(f"--running={percent}")
    assert found["scaled"] is True
    assert {name: found[name] for name in COUNTS} == COUNTS


@pytest.mark.parametrize("option", ["--running=0", "--fail-alone=error", "--fail-alone=short"])
def test_an_event_that_never_ran_or_cannot_be_read_is_absent_and_not_0(
    counted: Callable[..., dict[str, int | bool | None]], option: str
) -> None:
    found = counted(option)
    assert [found.pop(flag) for flag in FLAGS] == [False, False]
    assert set(found.values()) == {None}


def test_without_the_kernel_events_that_happen_only_there_are_absent(
    counted: Callable[..., dict[str, int | bool | None]],
) -> None:
    found = counted("--no-kernel")
    assert found["user_mode_only"] is True
    assert found["context-switches"] is found["cpu-migrations"] is None
    assert (found["cycles"], found["page-faults"]) == (4000, 8)
