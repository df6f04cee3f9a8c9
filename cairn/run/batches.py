"""Several runs in a row as one sample, for programs that end sooner than a run can be measured."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from cairn.compare.suitability import SHORT_NS
from cairn.memory import Memory
from cairn.model import Sample

Endings = Mapping[str, Mapping[str, int]]
"""By program and ending: the number of processes. See `Sample.endings`."""

_MOST = 50
"""The most runs that `wanted` chooses. Each run takes some milliseconds besides the program's time,
so more runs would take too long."""


def wanted(wall_ns: float) -> int:
    """The number of runs of this length that take SHORT_NS together, at least 1."""
    return max(1, min(_MOST, math.ceil(SHORT_NS / wall_ns))) if wall_ns > 0 else 1


def merged(samples: Sequence[Sample]) -> Sample:
    """One sample for all runs: the first run that failed, or else the means of their numbers.

    Sizes of memory are medians, so that one run with an unusual peak does not change them.
    """
    failed = next((sample for sample in samples if sample.failure is not None), None)
    if failed is not None or len(samples) == 1:
        return failed or samples[0]
    return replace(
        samples[0],
        wall_ns=_mean(sample.wall_ns for sample in samples),
        user_ns=_mean(sample.user_ns for sample in samples),
        system_ns=_mean(sample.system_ns for sample in samples),
        minor_faults=_mean(sample.minor_faults for sample in samples),
        major_faults=_mean(sample.major_faults for sample in samples),
        voluntary_switches=_mean(sample.voluntary_switches for sample in samples),
        involuntary_switches=_mean(sample.involuntary_switches for sample in samples),
        memory=_memory([sample.memory for sample in samples]),
        largest_process_bytes=_median([sample.largest_process_bytes for sample in samples]),
        endings=_endings([sample.endings for sample in samples]),
        queued_ns=_median([sample.queued_ns for sample in samples]),
        left_behind=max(sample.left_behind for sample in samples),
        counters=_means([sample.counters for sample in samples]),
        counted=tuple(dict.fromkeys(flag for sample in samples for flag in sample.counted)),
        metrics={
            name: number
            for name, number in _means([sample.metrics for sample in samples]).items()
            if number is not None
        },
        proof=min(
            (sample.proof for sample in samples),
            key=lambda proof: proof.loaded / proof.processes if proof.processes else 1.0,
        ),
        output_digest=digest(samples),
        repeats=len(samples),
    )


def digest(samples: Iterable[Sample]) -> str | None:
    """The digest of the output of all runs.

    If the runs printed different outputs, the digests are joined by spaces. `sample_checks` takes
    such a result for a failure.
    """
    each = dict.fromkeys(sample.output_digest for sample in samples)
    return next(iter(each)) if len(each) == 1 else " ".join(str(one) for one in each)


def _mean(numbers: Iterable[int]) -> int:
    return round(statistics.fmean(numbers))


def _median(numbers: Sequence[int | None]) -> int | None:
    """The median of the known numbers; None if less than half of the runs have one."""
    known = [number for number in numbers if number is not None]
    return round(statistics.median(known)) if known and 2 * len(known) >= len(numbers) else None


def _memory(of: Sequence[Memory]) -> Memory:
    """The medians of the runs, or the first run if they measured by different methods."""
    if any(memory.method != of[0].method for memory in of):
        return of[0]
    return Memory(
        method=of[0].method,
        peak_bytes=_median([memory.peak_bytes for memory in of]),
        peak_less_lazy_bytes=_median([memory.peak_less_lazy_bytes for memory in of]),
        lazy_peak_bytes=_median([memory.lazy_peak_bytes for memory in of]),
        mean_bytes=_median([memory.mean_bytes for memory in of]),
        growth_bytes=_median([memory.growth_bytes for memory in of]),
    )


def _endings(of: Sequence[Endings | None]) -> Endings | None:
    """How the processes of all runs ended, added up; None if a run did not record it."""
    total: dict[str, Counter[str]] = {}
    for endings in of:
        if endings is None:
            return None
        for program, counts in endings.items():
            total.setdefault(program, Counter()).update(counts)
    return {program: dict(counts) for program, counts in total.items()}


def _means(of: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """By name: the mean of this number over all runs; None if a run lacks it."""
    result: dict[str, float | None] = {}
    for name in dict.fromkeys(name for numbers in of for name in numbers):
        each = [numbers.get(name) for numbers in of]
        known = [number for number in each if number is not None]
        result[name] = statistics.fmean(known) if len(known) == len(each) else None
    return result
