"""Tests of the metrics that 'cairn judge' and the ranges compare, with invented profiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.probes import Made

from cairn.profile import reader
from cairn.profile.metrics import METRICS, measured
from cairn.profile.tally import CALLS

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
GROUPS = {
    "calls.map": ("mmap", "munmap", "mremap", "brk"),
    "calls.mprotect": ("mprotect",),
    "calls.madvise": ("madvise(DONTNEED)", "madvise(FREE)", "madvise(HUGEPAGE)", "madvise(other)"),
    "calls.futex": ("futex wait", "futex wake"),
    "calls.pause": ("sched_yield", "sleep"),
    "calls.other": ("other",),
}


def small() -> Made:
    """The file of a program with 1,000 operations, which requests 1 MiB."""
    made = Made()
    made.called("malloc", "small", 512, MIB // 512)
    made.released("free", 488)
    return made


@pytest.mark.parametrize("call", CALLS)
def test_each_system_call_counts_in_one_metric(tmp_path: Path, call: str) -> None:
    made = small()
    made.kernel(call, 3, 100)
    made.write(tmp_path)
    found = measured(reader.gather(tmp_path))
    (mine,) = (key for key, calls in GROUPS.items() if call in calls)
    for key in GROUPS:
        assert found[key] == ((3.0, 3.0, 3.0) if key == mine else (0.0, 0.0, 0.0)), key
    assert found["calls.mib"] == (3.0, 3.0, 3.0)
    assert found["requested"] == (1.0, 1.0, 1.0)


def test_locks_count_for_1000_operations(tmp_path: Path) -> None:
    made = small()
    made.locked("mutex", 40, [300] * 5)
    made.write(tmp_path)
    found = measured(reader.gather(tmp_path))
    assert found["locks.taken"] == (40.0, 40.0, 40.0)
    assert found["locks.waits"] == (5.0, 5.0, 5.0)


def test_calls_that_could_not_all_be_seen_are_not_measured(tmp_path: Path) -> None:
    made = small()
    made.dispatch = 2
    made.write(tmp_path)
    found = measured(reader.gather(tmp_path))
    assert "requested" in found and not [key for key in found if key.startswith("calls.")]


def test_memory_is_divided_by_live_memory_at_its_peak(tmp_path: Path) -> None:
    made = small()
    made.moments((1, 2 * MIB, 9 * MIB, 9 * MIB), (2, 4 * MIB, 8 * MIB, 6 * MIB, MIB, MIB, 0))
    made.write(tmp_path)
    found = measured(reader.gather(tmp_path))
    assert (found["held"][0], found["resident"][0]) == (2.0, 1.5)
    assert found["untouched"][0] == 0.25


def test_the_document_has_the_least_value_of_each_metric() -> None:
    text = (ROOT / "docs" / "judge.md").read_text()
    table = text[text.index("| metric | what it is") :].split("\n\n")[0].splitlines()
    cells = [row.split("|") for row in table[2:]]
    least = [
        float(number) / (100 if percent else 1)
        for row in cells
        for number, percent in re.findall(r"([\d.]+)( %)?", row[4])
    ]
    assert least == [one.least for one in METRICS]
    assert [
        row[3].strip().split(" ")[0] for row in cells for _ in re.findall(r"[\d.]+", row[4])
    ] == ["" if one.worse == "neither" else one.worse for one in METRICS]
