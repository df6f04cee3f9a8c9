"""The errors of predicted savings of other allocators, by measured savings. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn.model import Operations, ProbeSummary, Run, Sample, twin
from cairn.profile.estimates import SAMPLES_ENOUGH
from cairn.why.prediction import LEFT_LEAST, Costs, Prediction, predict

TAIL = 0.05
"""The share of the errors that may lie beyond each end of an interval."""


class AllocatorChange(Struct, frozen=True):
    """The change from one allocator to another on one workload."""

    workload: int
    before: str
    told: Prediction
    """The prediction of the change to `told.allocator`, without an interval."""
    saved: float
    """The measured saving, as a share of CPU time."""

    @property
    def after(self) -> str:
        """The allocator after the change."""
        return self.told.allocator

    @property
    def error(self) -> float:
        """The error of the prediction: ln(measured / predicted) divided by `told.scale`.

        Both are the CPU time after the change as a share of the CPU time before it.
        """
        measured, predicted = (max(LEFT_LEAST, 1 - one) for one in (self.saved, self.told.saves))
        return math.log(measured / predicted) / self.told.scale


def ends(of: Sequence[AllocatorChange]) -> tuple[float, float] | None:
    """The two ends of the errors, each with the share TAIL beyond it; None without errors.

    The ends are chosen so that a further error lies beyond each of them with at most the
    probability TAIL (conformal prediction: Vovk, Gammerman and Shafer 2005). With too few errors
    for that, the ends are the outermost errors.
    """
    each = sorted(one.error for one in of)
    if not each:
        return None
    place = min(len(each), math.ceil((len(each) + 1) * (1 - TAIL)))
    return each[-place], each[place - 1]


def changes(
    run: Run, samples: Sequence[Sample], known: Mapping[str, Costs]
) -> Iterator[AllocatorChange]:
    """Yields the predicted and the measured change for each workload and pair of allocators.

    `known` are the costs from which the changes are predicted. A change that cannot be predicted or
    that was not measured is left out.
    """
    for place in range(len(run.settings.workloads)):
        its = [one for one in samples if one.trial.workload == place and one.counts]
        cpu = {
            one.name: statistics.fmean(taken)
            for one in run.competing
            if (taken := [s.user_ns + s.system_ns for s in its if s.trial.contender == one.name])
        }
        for before, took in cpu.items():
            probed = [
                one
                for one in its
                if one.trial.contender == twin(before) and one.probe is not None and took
            ]
            told: dict[str, list[Prediction]] = {}
            for summary, system_ns, faults in _profiles(probed):
                for one in predict(summary, system_ns, faults, before, known):
                    told.setdefault(one.allocator, []).append(one)
            for after, each in told.items():
                if after in cpu:
                    yield AllocatorChange(place, before, _median(each), 1 - cpu[after] / took)


def _profiles(probed: Sequence[Sample]) -> Iterator[tuple[ProbeSummary, float, int]]:
    """Yields (summary, system time in ns, page faults) of each probed run with enough samples.

    If none has enough, yields the mean of them all.
    """
    known = [(one.probe, one) for one in probed if one.probe is not None]
    enough = [pair for pair in known if pair[0].samples >= SAMPLES_ENOUGH]
    for summary, sample in enough:
        yield summary, sample.system_ns, sample.minor_faults + sample.major_faults
    if known and not enough:
        yield (
            _mean([summary for summary, _ in known]),
            statistics.fmean(sample.system_ns for _, sample in known),
            round(statistics.fmean(s.minor_faults + s.major_faults for _, s in known)),
        )


def _mean(of: Sequence[ProbeSummary]) -> ProbeSummary:
    """The mean of several runs, with the samples of all of them together."""

    def mean(number: Callable[[ProbeSummary], float | None]) -> float | None:
        known = [each for one in of if (each := number(one)) is not None]
        return statistics.fmean(known) if len(known) == len(of) else None

    kinds = {
        kind: _mean_of_kind([one.kinds[kind] for one in of if kind in one.kinds], len(of))
        for kind in dict.fromkeys(kind for one in of for kind in one.kinds)
    }
    resident = mean(lambda one: one.resident_bytes)
    return replace(
        of[0],
        cpu_ns=round(mean(lambda one: one.cpu_ns) or 0),
        samples=sum(one.samples for one in of),
        samples_inside=sum(one.samples_inside for one in of),
        samples_probe=sum(one.samples_probe for one in of),
        kinds=kinds,
        kernel_ns=mean(lambda one: one.kernel_ns),
        faults_inside=mean(lambda one: one.faults_inside),
        resident_bytes=None if resident is None else round(resident),
        detours_ns=mean(lambda one: one.detours_ns) or 0.0,
    )


def _mean_of_kind(of: Sequence[Operations], runs: int) -> Operations:
    totals = [one.total_ns for one in of if one.total_ns is not None]
    medians = [one.median_ns for one in of if one.median_ns is not None]
    return Operations(
        sum(one.count for one in of) / runs,
        sum(one.timed for one in of),
        sum(totals) / runs if len(totals) == len(of) else None,
        statistics.median(medians) if medians else None,
        sum(one.kernel_ns or 0.0 for one in of) / runs,
        sum(one.detours_ns for one in of) / runs,
    )


def _median(each: Sequence[Prediction]) -> Prediction:
    """The prediction with the median saving."""
    return sorted(each, key=lambda one: one.saves)[(len(each) - 1) // 2]
