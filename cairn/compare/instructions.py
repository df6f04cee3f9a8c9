"""Instructions per operation of a workload, as callgrind counts them. All functions are pure.

Times vary from run to run. Most programs execute the same number of instructions in every run.
Each workload runs at two sizes. The instructions of an operation are the difference in instructions
divided by the difference in operations, so the cost of starting and ending the program cancels:

    per_operation == (instructions(larger) - instructions(smaller)) /
                     (operations(larger) - operations(smaller))

The workload's own instructions are included. They are the same for all contenders. The number is no
measure of time: cache misses, page faults and the kernel's work are not in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct

from cairn.model import Run, Sample

COUNTER = "instructions"
"""The name in `Sample.counters` under which the runner stores the instructions of a run."""

EXACT = 0.01
"""Repeated counts that differ by more than this share are shown with "≈".

Counts differ in programs whose threads wait for each other a different number of times in each run.
"""


class Count(Struct, frozen=True):
    """The instructions per operation of one workload under one contender."""

    workload: str
    contender: str
    per_operation: float | None
    """None if not measured; `problem` then says why."""
    spread: float
    """How much repeated counts differ, as a share of `per_operation`; 0 when they agree:

        spread == (range(smaller) + range(larger)) /
                  (operations(larger) - operations(smaller)) / per_operation

    range(size) is the largest count of instructions at this size minus the smallest."""
    problem: str | None
    """Why `per_operation` was not measured, as the rest of a sentence that begins with the
    contender."""


def counts(run: Run, samples: Sequence[Sample]) -> tuple[Count, ...]:
    """A Count for each workload and contender: by workload, then contender, in the order of `run`.

    The two sizes of a workload are two entries of `run.settings.workloads` with the same group. The
    smaller size comes first.
    """
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
    """(operations, instructions) of each run that did not fail."""
    return [
        (sample.reported.operations, counted)
        for sample in samples
        if sample.failure is None and sample.reported and (counted := sample.counters.get(COUNTER))
    ]


def said(count: Count) -> str:
    """The number as a table shows it: "1,234", "≈ 12.3" or "not measured"."""
    if count.per_operation is None:
        return "not measured"
    digits = 1 if count.per_operation < 1000 else 0
    return f"{'≈ ' if count.spread > EXACT else ''}{count.per_operation:,.{digits}f}"


def works_wrongly(failure: str) -> bool:
    """Whether this failure is a fault of the allocator, rather than a limit of valgrind.

    Under valgrind, an allocator that reserves terabytes or uses unknown instructions ends by
    SIGABRT or SIGILL, or reports that memory is exhausted. These are limits of valgrind. Lost
    contents and stray writes are faults of the allocator.
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
    """The footnotes of the table: why a contender was not measured, and the meaning of "≈"."""
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
        sentences.append(f"≈: repeated counts differ by more than {EXACT:.0%}")
    return sentences
