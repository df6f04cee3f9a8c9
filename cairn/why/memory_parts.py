"""The parts of a gap in memory.

All functions are pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from msgspec.structs import replace

from cairn import units
from cairn.findings.thresholds import HUGE_LEAST, LEAST_MEMORY
from cairn.memory import MemoryDivision
from cairn.why.parts import (
    COPIED,
    LIVE,
    LIVE_ESTIMATED,
    OTHERS,
    REST,
    REST_AND_SLACK,
    SLACK,
    SPARSE,
    SPARSE_AND_SLACK,
    Gap,
    Pairs,
    Side,
    against,
    divided,
    means,
    part_of,
)


def memory_gap(pairs: Pairs) -> Gap | None:
    """The gap in memory with its parts; None if it was not measured in the same way in all runs."""
    memories = [side.plain.memory for pair in pairs for side in pair]
    if (
        any(memory.peak_bytes is None for memory in memories)
        or len({memory.method for memory in memories}) > 1
    ):
        return None
    known = [side.summary for pair in pairs for side in pair if side.summary.live_bytes is not None]
    counted = [a for a in known if a.live_counted]
    live = [a.live_bytes or 0 for a in counted or known]
    asked, sparse = statistics.median(live) if live else None, False
    if asked is not None:
        least = min([asked, *(held for pair in pairs for side in pair if (held := _held(side)))])
        sparse, asked = least < (1 - LEAST_MEMORY) * asked, least

    def slack(side: Side) -> float | None:
        a = side.summary
        held = _held(side)
        if a.slack_bytes is None or not a.live_bytes or asked is None or held is None:
            return None
        return min(asked * a.slack_bytes / a.live_bytes, held - asked)

    def rest(side: Side) -> float | None:
        held = _held(side)
        return None if held is None or asked is None else held - asked

    rounding = part_of(SLACK, pairs, slack)
    others = (
        part_of(SPARSE_AND_SLACK if sparse else REST_AND_SLACK, pairs, rest)
        if rounding.change is None
        else part_of(
            SPARSE if sparse else REST,
            pairs,
            lambda side: (rest(side) or 0.0) - (slack(side) or 0.0),
        )
    )
    if sparse:
        others = replace(others, evidence=_in_huge_pages(pairs, others.change or 0.0))
    parts = [part_of(LIVE if counted else LIVE_ESTIMATED, pairs, lambda _: asked), rounding, others]
    is_divided = all(memory.division is not None for memory in memories)
    if is_divided and any(memory.division.processes > 1 for memory in memories if memory.division):
        copied = part_of(COPIED, pairs, _copied)
        parts += [replace(copied, evidence=_written(pairs)), part_of(OTHERS, pairs, _others)]
    gap = divided("memory", pairs, lambda side: side.plain.memory.peak_bytes, parts)
    holds = "memory that was in use only between two readings"
    undivided = "pages copied after a fork, and the memory of other processes"
    return replace(gap, holds=holds if is_divided else undivided)


def _in_huge_pages(pairs: Pairs, change: float) -> tuple[str, ...]:
    """Evidence that huge pages made unused parts of live blocks resident; empty if there is none.

    change: the difference in that memory. The share of huge pages must differ by HUGE_LEAST, in the
    same direction.
    """
    key = "huge"
    if any(key not in side.summary.metrics for pair in pairs for side in pair):
        return ()
    own, other = means(pairs, lambda side: side.summary.metrics[key][0])
    if abs(own - other) < HUGE_LEAST or (own - other) * change <= 0:
        return ()
    shares = (units.percent(share, signed=False) for share in (own, other))
    return (f"{next(shares)} of the resident memory in huge pages against {next(shares)}",)


def _held(side: Side) -> float | None:
    """The memory of the process with the most memory, without pages of files.

    If the tree was one process, this is the peak of the tree. Runs of earlier versions did not
    divide the memory among the processes. For them it is the largest resident set of a process in
    the probed run.
    """
    memory = side.plain.memory
    if memory.division is None:
        return side.summary.resident_bytes
    return memory.peak_bytes if memory.division.processes == 1 else memory.division.largest_bytes


def _copied(side: Side) -> float | None:
    """Memory of pages that two processes shared after a fork, until one of them wrote to them."""
    division = side.plain.memory.division
    return division.copied_bytes if division is not None else None


def _others(side: Side) -> float | None:
    """The memory of the other processes that is neither shared nor copied, and shared memory."""
    division = side.plain.memory.division
    if division is None:
        return None
    return max(0, division.total_bytes - division.largest_bytes - (division.copied_bytes or 0))


def _written(pairs: Pairs) -> tuple[str, ...]:
    """Returns evidence: how many shared pages were written by children, and how many by parents."""

    def pages(count: Callable[[MemoryDivision], int]) -> tuple[float, float]:
        return means(
            pairs,
            lambda side: count(side.plain.memory.division) if side.plain.memory.division else 0,
        )

    return (
        *against("shared pages written by a child", pages(lambda one: one.child_pages)),
        *against("by a parent", pages(lambda one: one.parent_pages)),
    )
