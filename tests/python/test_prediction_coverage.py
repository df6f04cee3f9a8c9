"""Tests that the intervals of predictions hold, on measured savings that are kept.

`runs/predictions.csv` has the changes from one allocator to another that 'cairn bench predictions'
predicted and measured: docs/decisions/0033-prediction-intervals-from-measured-errors.md.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cairn.why.prediction import LONGER, SHORTER, Prediction
from cairn.why.prediction_error import AllocatorChange, ends

KEPT = Path(__file__).with_name("runs") / "predictions.csv"
COVERED_LEAST = 0.9


def kept() -> list[tuple[str, AllocatorChange]]:
    """Returns the kept changes, each with its group: "suite" or "programs"."""
    with KEPT.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = {
        name: number for number, name in enumerate(dict.fromkeys(r["workload"] for r in rows))
    }
    return [
        (
            row["group"],
            AllocatorChange(
                numbers[row["workload"]],
                row["before"],
                Prediction(
                    row["after"], saves := float(row["saves"]), saves, saves, 0, 0, 0,
                    float(row["scale"]),
                ),
                float(row["saved"]),
            ),
        )
        for row in rows
    ]  # fmt: skip


def covered(changes: list[AllocatorChange], shorter: float, longer: float) -> list[bool]:
    return [shorter <= one.error <= longer for one in changes]


@pytest.mark.parametrize("group", ["suite", "programs"])
def test_intervals_hold_for_an_allocator_from_which_they_do_not_come(group: str) -> None:
    found: list[bool] = []
    for left_out in {one.before for _, one in kept()}:
        others = [one for _, one in kept() if left_out not in (one.before, one.after)]
        known = ends(others)
        assert known is not None
        judged = [
            one for its, one in kept() if its == group and left_out in (one.before, one.after)
        ]
        found += covered(judged, *known)
    assert len(found) > 200
    assert sum(found) >= COVERED_LEAST * len(found)


@pytest.mark.parametrize("group", ["suite", "programs"])
def test_the_intervals_in_use_hold(group: str) -> None:
    judged = covered([one for its, one in kept() if its == group], -SHORTER, LONGER)
    assert sum(judged) >= COVERED_LEAST * len(judged)


def test_there_are_ten_programs_that_are_no_workloads_of_the_suite() -> None:
    changes = [one for its, one in kept() if its == "programs"]
    assert len({one.workload for one in changes}) >= 10
