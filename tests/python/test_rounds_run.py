"""Tests of the number of rounds that a measurement runs, with a runner that runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.comparisons import a_run, a_sample
from support.observers import Quiet

from cairn.memory import Memory
from cairn.model import Run, Sample, StopRule, Trial
from cairn.run import builds, measure, runner, store
from cairn.verdict import EVERY_AIM, Aim, Measure

UNKNOWN = Memory("cgroup v1", None, None, None)


def rounds_run(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns the number of rounds of a run in which the peak of "fast" is often not known."""
    monkeypatch.setattr(builds, "of_run", lambda *_: ())

    class Fake:
        def __init__(self, *_: object) -> None:
            """Needs nothing."""

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, runner.Trace]:
            sample = replace(a_sample(0, "", 5.0 + 0.001 * trial.position), trial=trial)
            if trial.contender == "fast" and trial.round % 3:
                sample = replace(sample, memory=UNKNOWN)
            return sample, runner.Trace(b"", "")

    monkeypatch.setattr(measure, "Runner", Fake)
    run = replace(run, host=replace(run.host, virtual=False))
    stored = store.Folder.create(folder, run)
    measurement = measure.Measurement(run, stored, folder, Quiet())
    measurement.measure()
    assert max(one.trial.round for one in measurement.samples) == int(
        stored.stopped()[0].partition(" ")[0]
    )
    return max(one.trial.round for one in measurement.samples)


@pytest.mark.parametrize(
    "aim", [EVERY_AIM, Aim(Measure.MEMORY), Aim(pareto=True)], ids=["every", "memory", "pareto"]
)
@pytest.mark.parametrize("precision", [None, 1e-9], ids=["-r", "--max-rounds"])
def test_a_run_ends_after_its_rounds_also_if_memory_is_missing_in_some(
    aim: Aim, precision: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-r 8 --goal memory` once ran up to 48 rounds."""
    rule = StopRule(precision=precision, min_rounds=2, max_rounds=8)
    run = replace(a_run(), rule=rule, aim=aim)
    assert rounds_run(run, tmp_path, monkeypatch) == 8


def test_a_resumed_run_with_batches_has_spent_the_time_of_all_their_runs(tmp_path: Path) -> None:
    """A batch of 50 runs once counted as one of them, so the budget began nearly anew."""
    run = replace(a_run(), rule=StopRule(max_rounds=200, budget_s=60.0))
    run = replace(run, settings=replace(run.settings, repeat=50))
    stored = store.Folder.create(tmp_path, run)
    for round_ in (1, 2):
        for one in run.contenders:
            stored.append(a_sample(round_, one.name, 100.0, repeats=50))
    resumed = measure.Measurement(run, stored, tmp_path, Quiet())
    assert 20.0 <= resumed._budget.spent() < 25.0
    assert resumed._expected_s(Trial(3, 0, "fast")) == 5.0
    assert resumed._expected_s(Trial(0, 0, "fast")) == 0.1, "the warm-up runs it once"
