"""Tests of the founding cases: slow allocators whose causes were recorded when the project began.

The report compares the recorded cause of each case with the cause that is found now.
"""

from __future__ import annotations

import pytest

from cairn.bench.experiments import find
from cairn.model import Interval
from cairn.report import founding_cases, markdown, terminal
from cairn.report.view import View
from cairn.why.founding_cases import CASES, Case, contenders, judge
from cairn.why.gap import Why
from cairn.why.parts import FAULTS, KERNEL, OWN, PROGRAM, UNEXPLAINED, Gap, Part

NS = 1e6
TRIM = CASES[0]


def part(
    name: str, change: float | None, half: float = 1.0, evidence: tuple[str, ...] = ()
) -> Part:
    """Returns a part: 100 ms under the reference, and `change` ms more under the contender."""
    if change is None:
        return Part(name, None, None, None, None)
    ends = Interval((change - half) * NS, (change + half) * NS, 0.95)
    return Part(name, (100 + change) * NS, 100 * NS, change * NS, ends, evidence)


def why(case: Case, whole: float, *, half: float = 1.0, **parts: float | None) -> Why:
    named = {"own": OWN, "kernel": KERNEL, "faults": FAULTS, "program": PROGRAM}
    found = [part(name, parts.get(key, 0.0)) for key, name in named.items()]
    rest = part(UNEXPLAINED, whole - sum(change or 0.0 for change in parts.values()))
    return Why(
        case.contender, "system", 0, 8, Gap("time", part("", whole, half), (*found, rest)), None
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (why(TRIM, 40, kernel=25, faults=10), "as recorded"),
        (why(TRIM, 40, own=35), "another cause"),
        (why(TRIM, 40, kernel=15), "another cause"),
        (why(TRIM, 40, own=35, kernel=None), "not measured"),
        (why(TRIM, 40, own=None, kernel=25, faults=10), "as recorded"),
        (why(TRIM, -40, kernel=-35), "does not reproduce"),
        (why(TRIM, 0.5, kernel=0.4), "does not reproduce"),
        (why(TRIM, 0.5, half=2, kernel=0.4), "does not reproduce"),
        (why(TRIM, 3, half=4), "not shown"),
        (why(TRIM, 40, half=50, kernel=35), "not shown"),
        (
            Why(
                TRIM.contender, "system", 0, 0, None, None, why_not="glibc-2.21 failed: was killed"
            ),
            "not measured",
        ),
        (None, "not measured"),
    ],
)
def test_a_case_is_judged_by_its_gap_and_by_the_parts_of_the_gap(
    found: Why | None, verdict: str
) -> None:
    whys = {(TRIM.application, TRIM.contender): found} if found is not None else {}
    first, *others = judge(whys)
    assert (first.case, first.verdict) == (TRIM, verdict)
    assert {one.verdict for one in others} == {"not measured"}


def test_the_report_has_the_recorded_and_the_found_cause_of_every_case() -> None:
    faster = next(case for case in CASES if not case.slower)
    whys = {(c.application, c.contender): why(c, 40, kernel=30) for c in (TRIM,)}
    whys[faster.application, faster.contender] = why(faster, -20, kernel=-15, own=-4)
    board = founding_cases.board(judge(whys))
    assert len(board.tables[0].rows) == len(CASES)
    assert board.says[0] == "2 of 2 cases agree with the record in gap and cause."
    assert (
        f"recorded: {TRIM.cause}. Found: allocator system calls +30 %; unexplained +10 %."
        in board.says[1]
    )
    for text in (
        terminal.drawn(board, View()),
        "\n".join(markdown.escape(say) for say in board.says),
    ):
        assert "dedup" in text
    assert terminal.drawn(board, View()).count("not measured") == 2 * (len(CASES) - 2)


def test_the_experiment_runs_the_programs_and_allocators_of_the_cases() -> None:
    experiment = find("founding-cases")
    assert experiment is not None and experiment.why
    named = {
        spec.partition("=")[0] for spec in (*experiment.full.contenders, *experiment.full.beside)
    }
    assert set(contenders()) <= named
    assert {case.application for case in CASES} <= {
        variant.name for variant in experiment.full.variants
    }


def test_a_contender_that_takes_twice_the_time_is_told_in_multiples() -> None:
    found = {(TRIM.application, TRIM.contender): why(TRIM, 300, half=12, kernel=270)}
    board = founding_cases.board(judge(found))
    assert board.tables[0].rows[0][3].text == "× 4.00 [3.88, 4.12]"
    assert "allocator system calls 90.0 % of the difference; unexplained" in board.says[1]
