"""Samples -> instructions per operation, as callgrind counts them. Pure.

Time is noisy and instructions are not: counted twice, most programs give the same number to the last digit. A
workload is counted at two sizes; the difference in instructions over the difference in operations is what an operation
costs, without what starting, loading and ending cost. The workload's own share is in it, and the same for all
contenders. It is no time: a cache miss, a page fault and the kernel's work count for nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.model import Run, Sample

COUNTER = "instructions"
"""The counter of a sample that the runner fills."""

EXACT = 0.01
"""Counts that differ by more than this are shown as about: threads wait for each other a different number of times."""


@dataclass(frozen=True, slots=True)
class Count:
    """One workload under one contender."""

    workload: str
    contender: str
    per_operation: float | None
    """None: not measured."""
    spread: float
    """How far repeated counts lie apart, as a part of `per_operation`; 0 when they agree."""
    problem: str | None
    """Why it was not measured: the rest of a sentence that begins with the contender."""


def counts(run: Run, samples: Sequence[Sample]) -> tuple[Count, ...]:
    """For each workload in turn, every contender in the order given. The smaller size of a workload comes first."""
    sizes: dict[str, list[int]] = {}
    for index, workload in enumerate(run.settings.workloads):
        sizes.setdefault(workload.group, []).append(index)
    cells: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        cells.setdefault((sample.trial.workload, sample.trial.contender), []).append(sample)
    return tuple(
        _count(name, contender.name, [cells.get((index, contender.name), []) for index in indices])
        for name, indices in sizes.items()
        for contender in run.contenders
    )


def _count(workload: str, contender: str, sizes: Sequence[Sequence[Sample]]) -> Count:
    failure = next(
        (sample.failure for of in sizes for sample in of if sample.failure is not None), None
    )
    smaller, larger = (_numbers(of) for of in (sizes[0], sizes[-1]))
    if failure is not None or not smaller or not larger:
        return Count(workload, contender, None, 0.0, failure or "was not counted yet")
    more = larger[0][0] - smaller[0][0]
    if more <= 0:
        return Count(workload, contender, None, 0.0, "does no more operations at the larger size")
    few, many = ([count for _, count in of] for of in (smaller, larger))
    each = (statistics.fmean(many) - statistics.fmean(few)) / more
    apart = (max(few) - min(few) + max(many) - min(many)) / more
    if each <= 0:
        return Count(
            workload, contender, None, 0.0, "takes no more instructions at the larger size"
        )
    return Count(workload, contender, each, apart / each, None)


def _numbers(samples: Sequence[Sample]) -> list[tuple[int, float]]:
    """Operations and instructions of the runs that ended well."""
    return [
        (sample.reported.operations, counted)
        for sample in samples
        if sample.failure is None and sample.reported and (counted := sample.counters.get(COUNTER))
    ]


def said(count: Count) -> str:
    """The number as a table shows it."""
    if count.per_operation is None:
        return "not measured"
    digits = 1 if count.per_operation < 1000 else 0
    return f"{'≈ ' if count.spread > EXACT else ''}{count.per_operation:,.{digits}f}"


def works_wrongly(failure: str) -> bool:
    """Whether a run failed in a way that is the allocator's fault, and not that of valgrind's limits.

    Under valgrind, allocators that reserve terabytes or use instructions it does not know end by SIGABRT or SIGILL, or
    say that there is no memory: such a contender is not measured. Lost contents and stray writes are another matter.
    """
    signs = (
        "computed another checksum",
        "did not hold what was written",
        "damaged blocks",
        "(SIGSEGV)",
        "(SIGBUS)",
    )
    return any(sign in failure for sign in signs)


def remarks(run: Run, found: Sequence[Count]) -> list[str]:
    """What was not measured and why, a sentence for each reason; and what ≈ means, where it occurs."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for count in found:
        if count.problem is not None:
            reasons.setdefault((count.contender, count.problem), []).append(count.workload)
    everything = len({workload.group for workload in run.settings.workloads})
    sentences = []
    for (contender, problem), names in reasons.items():
        where = "any workload" if 1 < len(names) == everything else ", ".join(names)
        sentences.append(f"not measured: {contender} {problem} ({where})")
    if any(count.spread > EXACT for count in found):
        sentences.append(f"≈: counted twice, the numbers lie more than {EXACT:.0%} apart")
    return sentences
