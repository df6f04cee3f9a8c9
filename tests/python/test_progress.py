"""Tests of the progress messages without a terminal."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.console import Console
from support.comparisons import a_sample
from support.plans import a_plan_run

from cairn.cli import progress
from cairn.compare import plan
from cairn.model import StopRule, Trial
from cairn.run.observer import Progress


def test_a_long_run_reports_every_half_minute_also_during_the_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round of the suite takes minutes. Cairn once printed nothing until a round ended."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    said = io.StringIO()
    lines = progress.Lines(
        Console(file=said, width=200),
        StopRule(precision=None, min_rounds=4, max_rounds=4),
        progress.PlannedTrials(6, warm_up=6),
    )

    def trial(round_: int, position: int) -> None:
        lines.trial_begins(Trial(round_, position, "system"))
        now[0] += 20
        lines.trial_ended(a_sample(round_, "system", 1.0))

    for round_ in (0, 1):
        for position in range(6):
            trial(round_, position)
        lines.round_ended(Progress(round_, 4, None, None, 90.0, None, None))
    told = said.getvalue().splitlines()
    assert len(told) == 6, "each line reports two more runs of 20 s"
    assert told[0] == "warm-up  2 of 6 runs"
    assert told[3].startswith("rounds   2 of 24 runs, in round 1")


def test_a_further_run_of_the_baseline_is_not_called_a_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failure in a round, the lines once said "warm-up  1 of 4 runs"."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    said = io.StringIO()
    lines = progress.Lines(
        Console(file=said, width=200),
        StopRule(precision=None, min_rounds=4, max_rounds=4),
        progress.PlannedTrials(2, warm_up=4),
    )
    for trial in (Trial(2, 0, "fast"), Trial(0, 0, "system"), Trial(2, 1, "system")):
        lines.trial_begins(trial)
        now[0] += 40
        lines.trial_ended(a_sample(trial.round, trial.contender, 1.0))
    assert said.getvalue().splitlines() == [
        "rounds   3 of 8 runs, in round 2", "rounds   4 of 8 runs, in round 2",
    ]  # fmt: skip


def test_the_runs_with_the_probe_count_in_the_first_rounds_alone() -> None:
    """Only the first rounds of a plan with --profile have runs with the probe.

    The progress bar once counted such runs in every round, and in the warm-up.
    """
    run = a_plan_run({"a": "program", "b": "program"}, ("system", "x"), 10)
    twins = tuple(replace(one, name=f"{one.name}+probe", probed=True) for one in run.contenders)
    settings = replace(run.settings, why=True, profiled_rounds=3, warmup=2)
    run = replace(run, settings=settings, contenders=run.contenders + twins)
    trials = progress.PlannedTrials.of(run)
    assert trials.warm_up == 2 * len(plan.round_of(run, plan.WARM_UP)) == 8
    for rounds in range(15):
        counted = sum(len(plan.round_of(run, number)) for number in range(1, rounds + 1))
        assert trials.until(rounds) == counted
    every = replace(run, settings=replace(settings, profiled_rounds=None))
    assert progress.PlannedTrials.of(every).until(10) == 80
