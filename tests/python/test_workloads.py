"""Tests of the catalog of workloads, and of the reader of the line that a workload prints last."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cairn.bench import experiments
from cairn.errors import CairnError, UsageError
from cairn.run import workloads

LINE: dict[str, Any] = {
    "schema": 1,
    "workload": "fill",
    "operations": 1000,
    "batches": 10,
    "ns_per_operation": {"mean": 12.3, "median": 12, "p95": 20.5, "p99": 31},
    "busy_ns": 12300,
    "idle_ns": 0,
    "minor_faults": 44,
    "checksum": "0123456789abcdef",
    "damaged": 0,
    "live_peak_bytes": 4096,
    "parameters": {"threads": 1, "seed": 1, "touch": "all"},
    "figures": {"resident_bytes": 1},
}
ENTRY = """
[[workload]]
name = "a"
program = "fill"
group = "founding"
title = "t"
stresses = "s"
suite = "--threads {threads}"
smallest = "--bytes 1K"
larger = "--bytes 2K"
seconds = 0.5
memory = 1024
"""


def line(**changes: object) -> bytes:
    return b"something else before\n" + json.dumps({**LINE, **changes}).encode() + b"\n"


def test_the_installed_catalog_is_complete() -> None:
    entries = workloads.load()
    assert {entry.group for entry in entries} <= set(workloads.GROUPS)
    names = [entry.name for entry in entries]
    assert len(set(names)) == len(names)
    assert not set(names) & {experiment.name for experiment in experiments.EXPERIMENTS}, (
        "a name means one thing"
    )
    assert all(workloads.words(entry.suite, 2) != () or entry.suite == "" for entry in entries)


def test_a_catalog_with_an_unknown_or_wrong_entry_is_refused() -> None:
    assert workloads.read(ENTRY)[0].quick is False
    for wrong in (
        ENTRY + 'colour = "red"\n',
        ENTRY + ENTRY,
        ENTRY.replace("founding", "others"),
        ENTRY.replace("seconds = 0.5", "seconds = 0"),
        ENTRY.replace('title = "t"\n', ""),
        ENTRY.replace('"s"', "3"),
        ENTRY.replace("--bytes 2K", "'"),
        "x = 1",
        "[",
    ):
        with pytest.raises(CairnError, match=r"workloads\.toml"):
            workloads.read(wrong)


def test_there_is_a_thread_for_each_processor_and_at_least_two() -> None:
    assert workloads.words("--threads {threads}", 1) == ("--threads", "2")
    assert workloads.words("--threads {threads} --name 'a b'", 3) == (
        "--threads",
        "3",
        "--name",
        "a b",
    )


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    error = workloads.unknown("larsno", ("suite",))
    assert isinstance(error, UsageError) and "did you mean larson?" in str(error)


def test_the_last_line_of_the_output_is_the_report() -> None:
    found = workloads.reported(line())
    assert (found.operations, found.median_ns, found.p95_ns, found.minor_faults) == (
        1000,
        12.0,
        20.5,
        44,
    )
    assert found.figures == {"resident_bytes": 1.0}


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (b"", "printed nothing"),
        (b"\n\n", "printed nothing"),
        (line()[:-40], "not a report"),
        (line() + b"done\n", "not a report"),
        (b"{}", "not a report"),
        (b"\xff\xfe", "not a report"),
        (b"[" * 100_000, "not a report"),
        (line(schema=2), "version 2"),
        (line(damaged=3), "3 damaged blocks"),
        (line(operations=0), "out of range"),
        (line(busy_ns=-1), "out of range"),
        (line(operations=1.5), "not a report"),
        (line(minor_faults=10**30), "out of range"),
        (line(figures={"x": 1e15}), "out of range"),
        (line(checksum=12), "not a report"),
    ],
)
def test_anything_else_is_no_report(output: bytes, says: str) -> None:
    with pytest.raises(workloads.NotReported, match=says):
        workloads.reported(output)


def test_the_digest_is_equal_for_equal_work_and_does_not_contain_costs() -> None:
    same = workloads.digest(workloads.reported(line()))
    faster = line(
        busy_ns=1, minor_faults=0, ns_per_operation={"mean": 1, "median": 1, "p95": 1, "p99": 1}
    )
    assert workloads.digest(workloads.reported(faster)) == same
    for changes in (
        {"checksum": "ff"},
        {"operations": 999},
        {"parameters": {"threads": 2, "seed": 1, "touch": "all"}},
    ):
        assert workloads.digest(workloads.reported(line(**changes))) not in (same, None)
    assert workloads.digest(workloads.reported(line(checksum=None))) is None
