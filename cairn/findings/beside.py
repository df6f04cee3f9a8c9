"""Findings that need a second allocator beside the first: operations that take longer than they would have to.

Each rule looks at what two allocators did in the same rounds of one run, and tells of the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cairn import units
from cairn.compare import stats
from cairn.findings.finding import large_enough
from cairn.model import Finding, Interval, ProbeSummary
from cairn.profile.estimates import LEVEL, UNTIMED_MAX, Estimate

RATIO_LEAST = 1.5
"""Of the means: from here on a kind of operations is slow beside another allocator's."""
PART_LEAST = 0.3
"""Of what the allocator's own code takes longer: what is less is not why it is slower. Of an illness that strikes new
memory alone 34 % was found in it, for what goes beyond the most rounds so far may well have served before."""
SCALED_MOST = 2.0
"""By so much the clock may find less than timers of CPU time: docs/decisions/0012-what-an-operation-takes.md."""
NEW_RATIO_LEAST = 2.0
NEW_CPU_LEAST = 0.03
OUTLYING = 2.0
"""Times the median of an allocator's trials: a mean beyond is taken for that. Some thousand of a trial's operations are
timed; where the host stopped the machine in one of them, unseen by the kernel, that one alone made 18 ns into 400."""
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


def _kinds(summary: ProbeSummary, names: Sequence[str] | None = None) -> _Kinds | None:
    """None where the time of too many of them is not known."""
    found = [one for name, one in summary.kinds.items() if names is None or name in names]
    timed = [one for one in found if one.total_ns is not None]
    count, known = (sum(one.count for one in of) for of in (found, timed))
    if known < (1 - UNTIMED_MAX) * count:
        return None
    return _Kinds(known, sum(one.total_ns or 0.0 for one in timed))


@dataclass(frozen=True, slots=True)
class Two:
    """The allocator that is told of and the other: trials of the same rounds, in the same order."""

    mine: Sequence[ProbeSummary]
    theirs: Sequence[ProbeSummary]
    cpu_ns: float
    """What the program took."""
    most_ns: Estimate
    """What the allocator's own code takes longer. The clock says which operations it is, and not how much: kernel,
    faults and waiting are in their times, and what a quick one holds up beside it is not."""

    @property
    def longer_ns(self) -> float:
        """What those kinds of operations that take longer do so by the clock, all together."""
        names = dict.fromkeys(name for one in (*self.mine, *self.theirs) for name in one.kinds)
        each = [
            statistics.fmean(found)
            for name in names
            if (found := _differences(_pairs(self, (name,))))
        ]
        return sum(one for one in each if one > 0)

    def believed(self, ns: float, most_ns: float) -> float:
        """Of what all take longer, the part of those that take so much longer by the clock; no more than twice that."""
        return ns * min(SCALED_MOST, most_ns / self.longer_ns) if self.longer_ns > 0 else ns


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


def beside(two: Two) -> tuple[Finding, ...]:
    """What is found of the first."""
    path = slow_path(two)
    named = [path] if path is not None and _is_why(two, path) else [slow_free(two), slow_new(two)]
    kept = [finding for finding in named if finding is not None and _is_why(two, finding)]
    return tuple(sorted(kept, key=lambda one: -one.effect))


def _is_why(two: Two, finding: Finding) -> bool:
    """Large enough, and most of what is longer; nothing where the time of too many operations is not known."""
    return (
        bool(_pairs(two))
        and large_enough(finding)
        and finding.effect * two.cpu_ns >= PART_LEAST * two.most_ns.value
    )


def _pairs(two: Two, names: Sequence[str] | None = None) -> list[tuple[_Kinds, _Kinds]]:
    """Of each round; none where one is not known, or there are too few."""
    pairs = [
        (_kinds(one, names), _kinds(other, names))
        for one, other in zip(two.mine, two.theirs, strict=True)
    ]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not len(known) == len(pairs) >= stats.ROUNDS_LEAST:
        return []
    mine, theirs = zip(*known, strict=True)
    return list(zip(_within(mine), _within(theirs), strict=True))


def _within(trials: Sequence[_Kinds]) -> list[_Kinds]:
    """An allocator's, none far beyond its others."""
    most = OUTLYING * statistics.median(one.each_ns for one in trials)
    return [replace(one, ns=min(one.ns, most * one.count)) for one in trials]


def _differences(pairs: Sequence[tuple[_Kinds, _Kinds]]) -> list[float]:
    """What the first takes longer than if each took as long as the other's, round by round."""
    return [(one.each_ns - other.each_ns) * one.count for one, other in pairs]


def _longer(two: Two, *names: str) -> _Longer | None:
    """None where it is not shown."""
    known = _pairs(two, names)
    if not known or not two.cpu_ns:
        return None
    differences = _differences(known)
    middle, half = statistics.fmean(differences), stats.mean_half_width(differences)
    if middle - half <= 0:
        return None
    ends = two.most_ns.interval
    effect = Estimate(
        two.believed(middle, two.most_ns.value),
        Interval(
            two.believed(middle - half, max(0.0, ends.low)),
            two.believed(middle + half, ends.high),
            LEVEL,
        ),
    ).over(two.cpu_ns)
    means = [
        _Kinds(
            statistics.fmean(one.count for one in each), statistics.fmean(one.ns for one in each)
        )
        for each in zip(*known, strict=True)
    ]
    return _Longer(effect, means[0], means[1])


def slow_path(two: Two) -> Finding | None:
    """Getting back what was free, and freeing, are both slow: operations that need nothing from anybody."""
    again, free = _longer(two, *AGAIN), _longer(two, *FREEING)
    both = _longer(two, *AGAIN, *FREEING)
    if again is None or free is None or both is None or min(again.ratio, free.ratio) < RATIO_LEAST:
        return None
    return Finding(
        name="slow-path",
        says="Its ordinary path is slow: getting back what was free, and freeing",
        of="CPU",
        effect=both.effect.value,
        interval=both.effect.interval,
        measured=True,
        evidence=(f"reused: {again.told}", f"freed: {free.told}"),
        advice="take the other; where what makes it slow is wanted, such as checks against misuse, that is its price",
    )


def slow_free(two: Two) -> Finding | None:
    """Freeing is where it loses."""
    free = _longer(two, *FREEING)
    if free is None or free.ratio < RATIO_LEAST:
        return None
    return Finding(
        name="slow-free",
        says="Freeing is what takes longer",
        of="CPU",
        effect=free.effect.value,
        interval=free.effect.interval,
        measured=True,
        evidence=(free.told,),
        advice="take the other, or release what dies together at once (an arena)",
    )


def slow_new(two: Two) -> Finding | None:
    """Memory that was not handed out before is slow to get."""
    new = _longer(two, "new")
    if new is None or new.ratio < NEW_RATIO_LEAST or new.mine.ns < NEW_CPU_LEAST * two.cpu_ns:
        return None
    return Finding(
        name="slow-new",
        says="Getting memory for the first time is slow",
        of="CPU",
        effect=new.effect.value,
        interval=new.effect.interval,
        measured=True,
        evidence=(new.told,),
        advice="reuse rounds, or take the other, which gets memory in another way",
    )
