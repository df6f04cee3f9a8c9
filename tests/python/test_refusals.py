"""Tests of contenders that refuse allocations which the baseline grants."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.gaps import trials, why_run

from cairn.compare.refusals import failed, refusals, says
from cairn.model import Sample, Workload, twin
from cairn.report.run import Measured, comparisons
from cairn.why.gap import explain


def with_refused(name: str, *numbers: int) -> list[Sample]:
    """Returns a contender's trials. The probe saw these numbers of refusals, again and again."""
    return [
        replace(one, probe=replace(one.probe, refused=numbers[one.trial.round % len(numbers)]))
        if one.probe is not None
        else one
        for one in trials(name)
    ]


@pytest.mark.parametrize(
    ("own", "base", "found"),
    [
        ((1,), (0,), {"fast": 1}),
        ((3, 2, 9), (0,), {"fast": 2}),
        ((0,), (0,), {}),
        ((1, 0), (0,), {}),  # not in each run: perhaps by chance
        ((4,), (0, 1), {}),  # the program asks for more than the baseline has, too
    ],
)
def test_a_contender_that_refuses_in_each_run_what_the_baseline_grants_is_found(
    own: tuple[int, ...], base: tuple[int, ...], found: dict[str, int]
) -> None:
    samples = [*with_refused("fast", *own), *with_refused("system", *base)]
    assert refusals(samples, ("fast", "system"), "system") == found


def test_nothing_is_found_from_two_runs() -> None:
    few = [one for one in with_refused("fast", 1) if one.trial.round < 2]
    assert refusals([*few, *with_refused("system", 0)], ("fast",), "system") == {}
    assert refusals([*with_refused("fast", 1), *few], ("fast",), "system") == {}


def test_its_runs_have_failed_and_the_others_have_not() -> None:
    """A contender whose malloc returned NULL for 4 MiB was once recommended for its memory."""
    samples = [*with_refused("fast", 2), *with_refused("system", 0)]
    told = failed(samples, {"fast": 2}, "system")
    says_so = "got NULL for 2 allocations or more in each run with the probe, and for none under "
    for one in told:
        expected = says_so + "system" if one.trial.contender == "fast" else None
        assert one.failure == expected
    crashed = replace(samples[0], failure="was killed by SIGSEGV")
    assert failed([crashed], {"fast": 2}, "system") == [crashed]


def test_only_the_runs_of_the_workload_in_which_it_refuses_have_failed() -> None:
    run = why_run("fast")
    two = (Workload("first", ("first",)), Workload("second", ("second",)))
    run = replace(run, settings=replace(run.settings, workloads=two))
    samples = [
        replace(one, trial=replace(one.trial, workload=index))
        for index, refused in enumerate((0, 2))
        for one in (*with_refused("fast", refused), *with_refused("system", 0))
    ]
    found = comparisons(Measured(run, tuple(samples), (), "last"))
    failures = [[row.failures for row in one.rows if row.contender == "fast"] for one in found]
    assert failures[0] == [()] and "got NULL" in failures[1][0][0]


def test_no_reason_is_given_for_a_difference_from_a_program_that_did_less() -> None:
    samples = [*with_refused("fast", 1), *with_refused("system", 0)]
    for contender, baseline in (("fast", "system"), ("system", "fast")):
        why = explain(why_run("fast"), samples, contender, baseline)
        assert why.time is None and why.memory is None
        assert (
            why.why_not == f"under fast, the program {says(1, 'system')}, so it may have done less"
        )
    assert {one.trial.contender for one in samples} >= {twin("fast"), twin("system")}
