"""Findings that need a second allocator beside the first: operations that take longer than they would have to.

Each rule looks at what two allocators did in the same blocks of one run, and tells of the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from cairn import stats, units
from cairn.estimates import LEVEL, Estimate
from cairn.findings.finding import Finding, large_enough
from cairn.model import Account, Interval

RATIO_LEAST = 1.5
"""Of the means: from here on a kind of operations is slow beside another allocator's."""
FREE_SHARE_LEAST = 0.30
"""Of what all operations take longer."""
NEW_RATIO_LEAST = 2.0
NEW_CPU_LEAST = 0.03
SHORTEST_NS = 5.0
"""Means below are taken for this: so near to the clock's own, a ratio says nothing."""

AGAIN = ("reused",)
FREEING = ("free, local", "free, remote")


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Some kinds of operations together, in one trial."""

    count: float
    ns: float

    @property
    def each_ns(self) -> float:
        """The mean."""
        return self.ns / self.count if self.count else 0.0


def _kinds(account: Account, names: Sequence[str] | None = None) -> _Kinds | None:
    """None where the time of one of them is not known."""
    found = [one for name, one in account.kinds.items() if names is None or name in names]
    if any(one.total_ns is None for one in found):
        return None
    return _Kinds(sum(one.count for one in found), sum(one.total_ns or 0.0 for one in found))


@dataclass(frozen=True, slots=True)
class _Longer:
    """What some kinds take longer than the other's, shown by the interval, and the means of both over the trials."""

    effect: Estimate
    """Of CPU time."""
    mine: _Kinds
    theirs: _Kinds

    @property
    def ratio(self) -> float:
        """Of the means."""
        return self.mine.each_ns / max(self.theirs.each_ns, SHORTEST_NS)

    @property
    def told(self) -> str:
        """Both means, as evidence."""
        each = f"{units.time(self.mine.each_ns)} each on average against {units.time(self.theirs.each_ns)}"
        return f"{each}, {units.count(round(self.mine.count))} of them"


def beside(mine: Sequence[Account], theirs: Sequence[Account], cpu_ns: float) -> tuple[Finding, ...]:
    """What is found of `mine`, whose program took `cpu_ns`; both have a trial of each block, in the same order."""
    path = slow_path(mine, theirs, cpu_ns)
    raised = [path] if path else [slow_free(mine, theirs, cpu_ns), slow_new(mine, theirs, cpu_ns)]
    kept = [finding for finding in raised if finding is not None and large_enough(finding)]
    return tuple(sorted(kept, key=lambda one: -one.effect.value))


def _pairs(
    mine: Sequence[Account], theirs: Sequence[Account], names: Sequence[str] | None
) -> list[tuple[_Kinds, _Kinds]]:
    """Of each block; none where one is not known, or there are too few."""
    pairs = [(_kinds(one, names), _kinds(other, names)) for one, other in zip(mine, theirs, strict=True)]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    return known if len(known) == len(pairs) >= stats.BLOCKS_LEAST else []


def _longer(mine: Sequence[Account], theirs: Sequence[Account], names: Sequence[str], cpu_ns: float) -> _Longer | None:
    known = _pairs(mine, theirs, names)
    if not known or not cpu_ns:
        return None
    differences = [one.ns - other.ns for one, other in known]
    middle, half = statistics.fmean(differences), stats.mean_half_width(differences)
    if middle - half <= 0:
        return None
    effect = Estimate(middle, Interval(middle - half, middle + half, LEVEL)).over(cpu_ns, most=1.0)
    means = [
        _Kinds(statistics.fmean(one.count for one in each), statistics.fmean(one.ns for one in each))
        for each in zip(*known, strict=True)
    ]
    return _Longer(effect, means[0], means[1])


def slow_path(mine: Sequence[Account], theirs: Sequence[Account], cpu_ns: float) -> Finding | None:
    """Getting back what was free, and freeing, are both slow: operations that need nothing from anybody."""
    again, free = _longer(mine, theirs, AGAIN, cpu_ns), _longer(mine, theirs, FREEING, cpu_ns)
    both = _longer(mine, theirs, (*AGAIN, *FREEING), cpu_ns)
    if again is None or free is None or both is None or min(again.ratio, free.ratio) < RATIO_LEAST:
        return None
    return Finding(
        name="slow-path",
        says="Its ordinary path is slow: getting back what was free, and freeing",
        of="CPU",
        effect=both.effect,
        measured=True,
        evidence=(f"reused: {again.told}", f"freed: {free.told}"),
        advice="take the other; where what makes it slow is wanted, such as checks against misuse, that is its price",
    )


def slow_free(mine: Sequence[Account], theirs: Sequence[Account], cpu_ns: float) -> Finding | None:
    """Freeing is where it loses."""
    free, all_of_it = _longer(mine, theirs, FREEING, cpu_ns), _pairs(mine, theirs, None)
    if free is None or free.ratio < RATIO_LEAST:
        return None
    whole = statistics.fmean(one.ns - other.ns for one, other in all_of_it) / cpu_ns if all_of_it else 0.0
    if not all_of_it or free.effect.value < FREE_SHARE_LEAST * whole:
        return None
    return Finding(
        name="slow-free",
        says="Freeing is what takes longer",
        of="CPU",
        effect=free.effect,
        measured=True,
        evidence=(free.told,),
        advice="take the other, or release what dies together at once (an arena)",
    )


def slow_new(mine: Sequence[Account], theirs: Sequence[Account], cpu_ns: float) -> Finding | None:
    """Memory that was not handed out before is slow to get."""
    new = _longer(mine, theirs, ("new",), cpu_ns)
    if new is None or new.ratio < NEW_RATIO_LEAST or new.mine.ns < NEW_CPU_LEAST * cpu_ns:
        return None
    return Finding(
        name="slow-new",
        says="Getting memory for the first time is slow",
        of="CPU",
        effect=new.effect,
        measured=True,
        evidence=(new.told,),
        advice="reuse blocks, or take the other, which gets memory in another way",
    )
