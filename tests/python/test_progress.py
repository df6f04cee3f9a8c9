"""Tests of the progress messages without a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from support.comparisons import a_sample

from cairn.cli import progress
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
        Console(file=said, width=200), StopRule(precision=None, min_rounds=4, max_rounds=4), 6, 6
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
