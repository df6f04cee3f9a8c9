"""Judges the predictions of `cairn profile` by the experiment `predictions`.

The experiment runs three groups: the workloads of `cairn calibrate`, the workloads of the suite,
and other programs. The runs of the first group serve as the calibration. From this calibration, the
change from one allocator to another is predicted for the other two groups, and compared with the
measured change.

The intervals are made from prediction errors, so an interval must not be judged by the errors that
it was made from. Therefore each allocator is left out once. The interval is made from the
predictions between the remaining allocators. It is judged by the predictions that begin or end at
the allocator that was left out. All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from cairn.model import Run, Sample
from cairn.why import CALIBRATING, prediction
from cairn.why.prediction import Prediction
from cairn.why.prediction_error import AllocatorChange, changes, ends

PROGRAMS = "programs"
"""The group of the programs that are not workloads of the suite."""
TOLD_FROM = 0.05
"""The least saving that `cairn profile` reports."""

Claim = Literal["saves", "saves nothing", "not known"]


class JudgedChange(Struct, frozen=True):
    """A prediction from or to the allocator `left_out`, and the interval that it is judged by."""

    change: AllocatorChange
    left_out: str
    """The allocator without whose predictions the interval was made."""
    low: float
    high: float
    """The interval of the saving."""
    is_program: bool
    """Whether the program is not a workload of the suite."""

    @property
    def covered(self) -> bool:
        """Whether the measured saving lies in the interval."""
        return self.low <= self.change.saved <= self.high


class Claimed(Struct, frozen=True):
    """The sentence that a user reads about one program under one allocator."""

    claim: Claim
    is_right: bool
    """Whether the measurement agrees with the claim.

    After "saves", the named allocator must save at least TOLD_FROM. After "saves nothing", no
    allocator may save TOLD_FROM. "not known" is always right.
    """


class Score(Struct, frozen=True):
    """How often predictions were right."""

    judged: tuple[JudgedChange, ...]
    claimed: tuple[Claimed, ...]
    ends: tuple[float, float] | None
    """The two errors that bound nine of ten predictions, measured anew in this run. They correspond
    to -SHORTER and LONGER of `cairn.why.prediction`. None if no change could be predicted."""


def score(run: Run, samples: Sequence[Sample]) -> Score:
    """Judges the predictions of a run of the experiment."""
    names = [workload.name for workload in run.settings.workloads]
    places = {place for place, name in enumerate(names) if name.startswith(CALIBRATING)}
    costs = prediction.costs(run, [one for one in samples if one.trial.workload in places])
    others = [one for one in samples if one.trial.workload not in places]
    found = tuple(changes(run, others, costs))
    programs = {place for place, one in enumerate(run.settings.workloads) if one.group == PROGRAMS}
    judged = []
    for name in costs:
        known = ends([one for one in found if name not in (one.before, one.after)])
        if known is not None:
            judged += [
                JudgedChange(one, name, *_interval(one.told, *known), one.workload in programs)
                for one in found
                if name in (one.before, one.after)
            ]
    return Score(tuple(judged), _claimed(found), ends(found))


def _interval(told: Prediction, shorter: float, longer: float) -> tuple[float, float]:
    """The interval of a saving. `shorter` and `longer` are the bounds of the prediction's error."""
    left = max(prediction.LEFT_LEAST, 1 - told.saves)
    return 1 - left * math.exp(longer * told.scale), 1 - left * math.exp(shorter * told.scale)


def claim(predictions: Sequence[Prediction]) -> Claim:
    """The claim about one program. `predictions` has at least one, and the best comes first."""
    best = predictions[0]
    if best.saves >= TOLD_FROM and best.low > 0:
        return "saves"
    if max(one.high for one in predictions) < TOLD_FROM:
        return "saves nothing"
    return "not known"


def _claimed(found: Sequence[AllocatorChange]) -> tuple[Claimed, ...]:
    """The claim about each program under each allocator, and whether it is right."""
    by_program: dict[tuple[int, str], list[AllocatorChange]] = {}
    for one in found:
        by_program.setdefault((one.workload, one.before), []).append(one)
    told = []
    for each in by_program.values():
        each.sort(key=lambda one: -one.told.saves)
        says = claim([one.told for one in each])
        saved = {"saves": each[0].saved >= TOLD_FROM, "not known": True}
        told.append(Claimed(says, saved.get(says, max(one.saved for one in each) < TOLD_FROM)))
    return tuple(told)
