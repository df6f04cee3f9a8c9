"""Predicts what another allocator would save, without running the program under it.

All functions are pure.

`cairn calibrate` runs some workloads under every allocator that is available, plain and with the
probe. The results are the costs of each allocator on this machine: the mean time of each kind of
operation, and the time in system calls and in page faults per byte of the peak. The prediction for
a profiled program has three terms:

    allocator code   the current allocator's time, times the ratio of the two allocators for the
                     program's kinds of operations. The ratio of the probe's times is corrected by
                     the ratio of the CPU timers in the calibration.
    in the kernel    the other allocator's time per byte of the peak, times the program's peak. The
                     saving is the current allocator's time minus this product.
    program code     stays the same, because the effect of another placement of blocks is not known

Each workload of the calibration gives another ratio, and the median is used. The interval of the
prediction is computed for the ratio of the two CPU times. It is wider if more of the time can
change (`Prediction.scale`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from cairn.model import Operations, ProbeSummary, Run, Sample, twin
from cairn.profile.estimates import SAMPLES_ENOUGH, WAY_OUT

EXPERIMENT = "calibration"
"""The name of the calibration's runs."""
TIMED_LEAST = 100
"""A kind of operation needs this many timed operations over all trials of a workload. With fewer,
the kind has no costs for that workload."""
PLAIN = ("reused", "free, local", "free, remote")
"""Kinds that rarely make a system call and do not touch new pages."""
SHORTEST_NS = 2.0
"""Shorter mean times enter a ratio as this time: the clock cannot distinguish them from 0."""
SCALE_LEAST = 0.1
"""The least `Prediction.scale`. Even if a program hardly allocates, its time may change with the
allocator, because the addresses of the blocks change its cache misses."""
SHORTER, LONGER = 0.96, 1.30
"""The bounds of the errors of predictions. An error is ln(measured / predicted) divided by
`Prediction.scale`, where both are ratios of CPU times. Nine of ten errors lie between -SHORTER and
LONGER. 'cairn bench predictions' measures the two bounds:
docs/decisions/0033-prediction-intervals-from-measured-errors.md."""
LEFT_LEAST = 0.05
"""No allocator is predicted to reduce a program's CPU time below this share of the present one."""
KNOWN_LEAST = 0.9
"""Both allocators must have costs for kinds of operations that make up this share of the program's
time in the allocator."""


class Costs(Struct, frozen=True):
    """The costs of one allocator, by the number of the workload. A workload may lack some kinds."""

    title: str
    kinds: Mapping[str, Mapping[int, float]]
    """Nanoseconds per operation (`_each_ns`), by kind and workload."""
    kernel: Mapping[int, float]
    """Time in the allocator's system calls, in nanoseconds per byte of the memory peak."""
    faults: Mapping[int, float]
    """System time outside the allocator's system calls, in nanoseconds per byte of the memory
    peak."""
    fault: Mapping[int, float]
    """System time outside the allocator's system calls, in nanoseconds per page fault."""
    own: Mapping[int, float] = field(default_factory=dict)
    """CPU time of a run in allocator code, in nanoseconds, as the CPU timers found it."""
    clocked: Mapping[int, float] = field(default_factory=dict)
    """Time of a run in allocator code, in nanoseconds, as the probe's clock found it: the sum over
    all kinds of operations of their number times `_each_ns`."""


class Prediction(Struct, frozen=True):
    """The expected saving, in shares of the program's CPU time."""

    allocator: str
    """The contender's name in the calibration."""
    saves: float
    """The expected saving. Below 0, the allocator would take more time."""
    low: float
    high: float
    """The interval of the saving. It allows for the unknown effect of other block addresses on the
    program's own code."""
    own: float
    """The part of `saves` in allocator code."""
    kernel: float
    """The part of `saves` in the allocator's system calls."""
    faults: float
    """The part of `saves` in page faults."""
    scale: float
    """The time that can change: that in the allocator, in its system calls and in page faults. Of
    the present time and the predicted one, it is the longer. The errors of predictions are
    proportional to this number."""


def costs(run: Run, samples: Sequence[Sample]) -> dict[str, Costs]:
    """The costs by contender. A contender with a failed trial is left out."""
    found = {}
    for contender in run.competing:
        names = {contender.name, twin(contender.name)}
        if any(sample.failure for sample in samples if sample.trial.contender in names):
            continue
        of = {
            place: _trials(samples, contender.name, place)
            for place in range(len(run.settings.workloads))
        }
        of = {place: trials for place, trials in of.items() if trials}
        if of:
            found[contender.name] = _costs(contender.title, of)
    return found


class _Trial(Struct, frozen=True):
    plain: Sample
    probed: Sample
    summary: ProbeSummary

    @property
    def kernel_ns(self) -> float:
        return min(self.summary.kernel_ns or 0.0, self.plain.system_ns)

    @property
    def own_ns(self) -> float:
        """CPU time in allocator code, computed as in `cairn.why.probe_parts`."""
        a, system_ns = self.summary, self.probed.system_ns
        detours = min(a.detours_ns, float(system_ns))
        kernel = min(a.kernel_ns or 0.0, system_ns - detours)
        rest = min(self.plain.system_ns - self.kernel_ns, system_ns - detours - kernel)
        faults = self.probed.minor_faults + self.probed.major_faults
        in_faults = rest * min(1.0, (a.faults_inside or 0.0) / faults) if faults else 0.0
        return (
            a.samples_inside / a.samples * a.cpu_ns - kernel - in_faults - detours * WAY_OUT
            if a.samples
            else 0.0
        )


def _trials(samples: Sequence[Sample], name: str, workload: int) -> list[_Trial]:
    """The contender's rounds on a workload: plain run, probed run, and what the probe counted."""
    its = {
        (s.trial.contender, s.trial.round): s
        for s in samples
        if s.counts and s.trial.workload == workload
    }
    probed = (
        (plain, its.get((twin(name), round_)))
        for (whose, round_), plain in its.items()
        if whose == name
    )
    return [
        _Trial(plain, one, one.probe)
        for plain, one in probed
        if one is not None and one.probe is not None
    ]


def _costs(title: str, of: Mapping[int, Sequence[_Trial]]) -> Costs:
    kinds: dict[str, dict[int, float]] = {}
    for place, trials in of.items():
        for kind in dict.fromkeys(name for trial in trials for name in trial.summary.kinds):
            there = [trial.summary.kinds[kind] for trial in trials if kind in trial.summary.kinds]
            known = [ns for one in there if (ns := _each_ns(kind, one)) is not None]
            if sum(one.timed for one in there) >= TIMED_LEAST and len(known) == len(there):
                kinds.setdefault(kind, {})[place] = statistics.median(known)

    def each(
        number: Callable[[_Trial], float], over: Callable[[_Trial], float]
    ) -> dict[int, float]:
        known = {
            place: [number(t) / over(t) for t in trials if over(t)] for place, trials in of.items()
        }
        return {place: statistics.median(ratios) for place, ratios in known.items() if ratios}

    def faults_ns(trial: _Trial) -> float:
        return trial.plain.system_ns - trial.kernel_ns

    return Costs(
        title=title,
        kinds=kinds,
        kernel=each(lambda trial: trial.kernel_ns, _peak),
        faults=each(faults_ns, _peak),
        fault=each(faults_ns, lambda trial: trial.plain.minor_faults + trial.plain.major_faults),
        own={
            place: own
            for place, trials in of.items()
            if sum(one.summary.samples for one in trials) >= SAMPLES_ENOUGH
            and (own := statistics.fmean(one.own_ns for one in trials)) > 0
        },
        clocked={
            place: statistics.fmean(_clocked_ns(one.summary) for one in trials)
            for place, trials in of.items()
        },
    )


def _clocked_ns(summary: ProbeSummary) -> float:
    return sum(one.count * (_each_ns(kind, one) or 0.0) for kind, one in summary.kinds.items())


def _peak(trial: _Trial) -> float:
    return trial.summary.resident_bytes or 0


def predict(
    summary: ProbeSummary,
    system_ns: float,
    faults: int,
    allocator: str,
    known: Mapping[str, Costs],
) -> tuple[Prediction, ...]:
    """Predicts every other allocator for a program that ran under `allocator`; the best is first.

    The result is empty if `allocator` was not calibrated, or too little is known of the program:
    too few CPU samples, unseen system calls, no page fault counts, or too many operations of kinds
    that the calibration lacks. The program must have one process, because the peak of one process
    says nothing about the times of others.
    """
    mine, peak = known.get(allocator), summary.resident_bytes
    kernel_ns, cpu_ns = summary.kernel_ns, summary.cpu_ns
    if (
        mine is None
        or kernel_ns is None
        or not peak
        or not cpu_ns
        or summary.samples < SAMPLES_ENOUGH
    ):
        return ()
    if summary.faults_inside is None:
        return ()
    detours_ns = min(summary.detours_ns, float(system_ns))
    program_ns = cpu_ns * (1 - summary.samples_probe / summary.samples) - detours_ns * WAY_OUT
    if program_ns <= 0:
        return ()
    kernel_ns = min(kernel_ns, system_ns - detours_ns)
    # `cairn.why.probe_parts` explains these terms.
    inside_ns = summary.samples_inside / summary.samples * cpu_ns - detours_ns * WAY_OUT
    other_ns = system_ns - detours_ns - kernel_ns
    # `other_ns` may contain time of the program's own system calls or of the probe. So it is
    # limited to the time that this number of page faults took in the calibration.
    if mine.fault:
        other_ns = min(other_ns, faults * statistics.median(mine.fault.values()))
    in_faults = other_ns * min(1.0, summary.faults_inside / faults) if faults else 0.0
    own_ns = max(0.0, inside_ns - kernel_ns - in_faults)
    found = []
    for name, theirs in known.items():
        scale = _scale(summary, mine, theirs) if name != allocator else None
        if scale is None or not theirs.kernel or not theirs.faults:
            continue
        kernel, fault = (
            statistics.median(theirs.kernel.values()) * peak,
            statistics.median(theirs.faults.values()) * peak,
        )
        in_kernel, in_fault = (kernel_ns - kernel) / program_ns, (other_ns - fault) / program_ns
        in_own = own_ns * (1 - scale) / program_ns
        saves = in_own + in_kernel + in_fault
        now = (own_ns + kernel_ns + other_ns) / program_ns
        most, left = max(SCALE_LEAST, now, now - saves), max(LEFT_LEAST, 1 - saves)
        low, high = 1 - left * math.exp(LONGER * most), 1 - left * math.exp(-SHORTER * most)
        found.append(Prediction(name, saves, low, high, in_own, in_kernel, in_fault, most))
    return tuple(sorted(found, key=lambda one: -one.saves))


def _scale(summary: ProbeSummary, mine: Costs, theirs: Costs) -> float | None:
    """The ratio of the two allocators' times in allocator code for this program's operations.

    Each workload of the calibration gives one ratio, and the result is their median. None if too
    many of the program's operations are of kinds without costs (KNOWN_LEAST).
    """
    each = {kind: _each_ns(kind, one) for kind, one in summary.kinds.items()}
    times = {kind: one.count * (each[kind] or 0.0) for kind, one in summary.kinds.items()}
    ratios: dict[str, dict[int, float]] = {}
    for kind in times:
        own, other = mine.kinds.get(kind, {}), theirs.kinds.get(kind, {})
        if of := {place: _ratio(other[place], own[place]) for place in own if place in other}:
            ratios[kind] = of
    weight = sum(times[kind] for kind in ratios)
    if not weight or weight < KNOWN_LEAST * sum(times.values()):
        return None
    usual = {kind: statistics.median(of.values()) for kind, of in ratios.items()}
    places = {place for of in ratios.values() for place in of}
    timers = _by_timers(mine, theirs)
    all_of_them = statistics.median(timers.values()) if timers else 1.0
    scales = [
        sum(times[kind] * of.get(place, usual[kind]) for kind, of in ratios.items())
        / weight
        * timers.get(place, all_of_them)
        for place in places
    ]
    return statistics.median(scales)


def _by_timers(mine: Costs, theirs: Costs) -> dict[int, float]:
    """By workload: the allocators' ratio by CPU timers, divided by the ratio by the probe's clock.

    The two ratios differ because a quick operation takes less time among other instructions than
    alone: docs/decisions/0012-cpu-timers-not-timed-operations.md.
    """
    known = mine.own.keys() & theirs.own.keys()
    clocked = {place: _ratio(theirs.clocked[place], mine.clocked[place]) for place in known}
    return {place: theirs.own[place] / mine.own[place] / ratio for place, ratio in clocked.items()}


def _ratio(other: float, own: float) -> float:
    return max(other, SHORTEST_NS) / max(own, SHORTEST_NS)


def _each_ns(kind: str, operations: Operations) -> float | None:
    """Time of an operation in allocator code: the mean for PLAIN kinds, else the median."""
    if kind in PLAIN:
        return (
            operations.total_ns / operations.count
            if operations.total_ns is not None and operations.count
            else None
        )
    return operations.median_ns
