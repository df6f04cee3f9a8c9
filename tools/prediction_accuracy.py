"""Compares the predictions of 'cairn profile' about other allocators with measured savings.

    .venv/bin/python tools/prediction_accuracy.py RUN CALIBRATION

RUN is the folder of a run with --why. CALIBRATION is the folder of a run of 'cairn calibrate' on
the same machine. For each change from one contender to another, the tool predicts the saving of CPU
time from the probed runs of the first contender. The plain runs of both contenders show the
measured saving.

Prints one line for each workload and change of contender: the predicted saving, its range, and the
measured saving. Then prints how many of the savings of 5 % and more were predicted to within 5
points, and how many of the smaller savings were predicted as 5 % and more.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cairn
from cairn.model import Run, Sample
from cairn.report.prediction import TELL_FROM
from cairn.run import store
from cairn.why import prediction
from cairn.why.gap import twin
from cairn.why.prediction import Prediction

NEAR = 0.05


@dataclass(frozen=True)
class Cell:
    """The change from the allocator `before` to `after` on one workload.

    All numbers are shares of CPU time: the predicted saving, its range, and the measured saving.
    """

    workload: str
    before: str
    after: str
    told: float
    low: float
    high: float
    saved: float

    @property
    def promised(self) -> bool:
        """Whether Cairn would advise this change if no other allocator were better."""
        return self.told >= TELL_FROM and self.low > 0

    @property
    def is_near(self) -> bool:
        """Whether the prediction is within NEAR of the measured saving."""
        return abs(self.told - self.saved) <= NEAR


def cells(
    run: Run, samples: tuple[Sample, ...], costs: dict[str, prediction.Costs]
) -> Iterator[Cell]:
    """Yields a Cell for each workload and each change from one contender to another.

    A change without a prediction or without a measured saving is left out.
    """
    for place, workload in enumerate(run.settings.workloads):
        its = [one for one in samples if one.trial.workload == place and one.counts]
        cpu = {
            one.name: statistics.fmean(taken)
            for one in run.competing
            if (taken := [s.user_ns + s.system_ns for s in its if s.trial.contender == one.name])
        }
        for before, took in cpu.items():
            told: dict[str, list[Prediction]] = {}
            for one in its:
                if one.trial.contender != twin(before) or one.probe is None:
                    continue
                faults = one.minor_faults + one.major_faults
                for found in prediction.predict(one.probe, one.system_ns, faults, before, costs):
                    told.setdefault(found.allocator, []).append(found)
            for after, each in told.items():
                if after in cpu:
                    middle = (
                        statistics.median(getattr(one, what) for one in each)
                        for what in ("saves", "low", "high")
                    )
                    yield Cell(workload.name, before, after, *middle, saved=1 - cpu[after] / took)


def main() -> int:
    """Prints a line for each Cell, and how many predictions were right. Returns the exit status."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    kept, calibrated = (store.Folder(Path(name)) for name in sys.argv[1:])
    costs = prediction.costs(calibrated.run(), calibrated.samples())
    found = list(cells(kept.run(), kept.samples(), costs))
    print(f"{'workload':24} {'from':10} {'to':10} {'predicted':>9} {'range':>16} {'saved':>7}")
    for one in found:
        spread = f"[{one.low * 100:.0f}, {one.high * 100:.0f}]"
        print(
            f"{one.workload:24} {one.before:10} {one.after:10} {one.told * 100:6.1f} % "
            f"{spread:>16} {one.saved * 100:5.1f} %"
        )
    gains = [one for one in found if one.saved >= TELL_FROM]
    others = [one for one in found if one.saved < TELL_FROM]
    near = sum(one.is_near for one in gains)
    promised = sum(one.promised for one in others)
    print(
        f"\n{len(found)} predictions. Of {len(gains)} savings of 5 % or more, {near} were predicted"
        " to within 5 points."
    )
    print(f"Of {len(others)} smaller savings, {promised} were predicted as 5 % or more.")
    print(f"by {cairn.__file__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
