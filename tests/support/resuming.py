"""Measures invented plans with a runner that runs nothing, and interrupts them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.observers import Quiet
from support.plans import MIB, a_trial

from cairn.errors import Interrupted
from cairn.model import Run, Sample, Trial
from cairn.run import builds, measure, preparation
from cairn.run.runner import Trace
from cairn.run.store import Folder

Outcome = Callable[[Trial], Sample]


def fine(trial: Trial) -> Sample:
    """Returns a sample of a trial that succeeds."""
    sample = a_trial(trial.workload, trial.contender, trial.round, 100 + trial.position, MIB)
    return replace(sample, trial=trial, started_at=time.time())


class Measuring:
    """Measures runs in one folder of results."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        """How often the runner was called in the last measurement."""
        self._home = home
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(builds, "of_run", lambda *_: ())
        monkeypatch.setattr(preparation, "_PAUSE_S", 0.0)
        monkeypatch.setattr(os, "fsync", lambda _: None)

    def __call__(self, run: Run, outcome: Outcome = fine, stop_at: int | None = None) -> Folder:
        """Measures a run, new or interrupted, and interrupts it after `stop_at` trials."""
        measuring = self
        self.calls = 0

        class Fake:
            def __init__(self, *_: object) -> None:
                """Needs nothing."""

            def trial(self, trial: Trial, **_: object) -> tuple[Sample, Trace]:
                measuring.calls += 1
                if stop_at is not None and measuring.calls > stop_at:
                    raise KeyboardInterrupt
                return outcome(trial), Trace(b"", "")

        self._monkeypatch.setattr(measure, "Runner", Fake)
        path = self._home / "results" / run.id
        if path.exists():
            folder = Folder(path)
            folder.mark_resumed()
        else:
            folder = Folder.create(self._home / "results", run)
        try:
            measure.Measurement(folder.run(), folder, self._home, Quiet()).measure()
        except Interrupted:
            assert stop_at is not None
        finally:
            # The process that measures a run holds its lock until it ends.
            assert folder._lock is not None
            os.close(folder._lock)
            folder._lock = None
        return folder


def trials(folder: Folder) -> list[Trial]:
    """Returns the trials of a run in the order in which they ran."""
    return [sample.trial for sample in folder.samples()]
