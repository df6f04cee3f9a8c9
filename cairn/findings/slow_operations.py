"""Findings from the comparison of two allocators: operations of the first that are slow.

Each rule compares the operations of two allocators in the same rounds of one run, and judges the
first allocator. docs/findings.md describes the rules under "Beside another allocator".
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.compare import stats
from cairn.findings.thresholds import large_enough
from cairn.model import Finding, Interval, Operations, ProbeSummary
from cairn.profile.estimates import LEVEL, UNTIMED_MAX, Estimate
from cairn.profile.tally import WAKING

RATIO_LEAST = 1.5
"""An operation is slow if its mean time is this many times that of the other allocator."""
PART_LEAST = 0.3
"""A finding must explain this share of the difference in allocator code; otherwise it is not the
reason for the difference. When the thresholds were chosen, the right finding about an allocator
with slow new memory explained only 34 %. Its other slow allocations got reused memory, so they did
not count."""
SCALED_MOST = 2.0
"""Compared with CPU timers, the probe's times of operations may be too small by up to this factor:
docs/decisions/0012-cpu-timers-not-timed-operations.md."""
NEW_RATIO_LEAST = 2.0
"""Like RATIO_LEAST, but for first-time allocations."""
NEW_CPU_LEAST = 0.03
"""First-time allocations must take this share of CPU time for a finding about them."""
OUTLYING = 2.0
"""A trial's mean time per operation is limited to this many times the median of the allocator's
trials. A trial times only some thousand operations. In one trial, the host stopped the virtual
machine during an operation, which the machine's own kernel cannot notice. That operation raised the
mean from 18 ns to 400 ns."""
WAITING_MOST = 0.1
"""If operations wait for other threads for more than this share of their time, their medians count
instead of their means."""
TIMED_LEAST = 30
"""Two allocators are compared in a kind of operations if each has this many timed operations of it,
in all rounds together."""
SHORTEST_NS = 5.0
"""If the other allocator's mean time is less, a ratio is computed with this time instead. Shorter
means are too close to the time of reading the clock."""

AGAIN = ("reused",)
PLAIN = ("new", *AGAIN)
"""Kinds of allocations by malloc and operator new. The allocator decides of which kind each is."""
FREEING = ("free, local", "free, remote")
SLOW_KINDS = {
    "calloc": (
        "calloc is slow",
        "use the other allocator: this one may clear memory twice, or memory that the kernel has "
        "already cleared",
    ),
    "realloc": (
        "realloc is slow",
        "use the other allocator, or let the program resize its blocks less often",
    ),
    "aligned": (
        "Allocation of aligned blocks is slow",
        "use the other allocator, or request an alignment only where it is needed",
    ),
}
"""The other kinds of operations, with what their findings say and advise. The names of the findings
are slow-calloc, slow-realloc and slow-aligned."""


class _Kinds(Struct, frozen=True):
    """Number and total time of some kinds of operations, in one trial or as a mean over trials."""

    count: float
    ns: float
    timed: float

    @property
    def each_ns(self) -> float:
        """The mean time of one operation; 0 if there was none."""
        return self.ns / self.count if self.count else 0.0


def _kinds(summary: ProbeSummary, names: Sequence[str] | None = None) -> _Kinds | None:
    """The number and the total time of the timed operations of a trial.

    Waiting and system calls are left out: other findings are about them.

    If `names` is given, only these kinds of operations count. Returns None if more than UNTIMED_MAX
    of the operations are of untimed kinds. For named kinds, it also returns None if their medians
    are needed and too few operations of a kind were timed for one.
    """
    found = [one for name, one in summary.kinds.items() if names is None or name in names]
    timed = [one for one in found if one.own_ns is not None]
    count, known = (sum(one.count for one in of) for of in (found, timed))
    if known < (1 - UNTIMED_MAX) * count:
        return None
    waits = _waiting_ns(summary) > WAITING_MOST * sum(
        one.total_ns or 0.0 for one in summary.kinds.values()
    )
    if waits and names is not None and any(one.median_ns is None for one in timed):
        return None
    return _Kinds(
        known,
        sum(_without_waiting(one) if waits else one.own_ns or 0.0 for one in timed),
        sum(one.timed for one in timed),
    )


def _waiting_ns(summary: ProbeSummary) -> float:
    """The time in which operations wait for other threads, or wake them."""
    waiting = (summary.waiting_ns or 0.0) + summary.spun_ns
    woken = summary.calls.get(WAKING)
    return waiting + (woken.total_ns or 0.0 if waiting and woken is not None else 0.0)


def _without_waiting(of: Operations) -> float:
    """The total time of operations of which some wait for other threads.

    Waiting has a finding of its own, `queues`. Few operations wait, and each of these takes as long
    as thousands of others. A sample of operations has too few of them or too many, so their time
    cannot be subtracted from its sum. The median is that of an operation that does not wait.
    """
    return min(of.own_ns or 0.0, of.count * (of.median_ns or 0.0))


class Two(Struct, frozen=True):
    """The judged allocator and the other: their trials of the same rounds, in the same order."""

    mine: Sequence[ProbeSummary]
    theirs: Sequence[ProbeSummary]
    cpu_ns: float
    """Mean CPU time of the program in a plain run under the judged allocator."""
    most_ns: Estimate
    """How much longer the judged allocator's code takes than the other's, by clock samples or CPU
    timers, and without waiting for spin locks. The probe's times only show which operations are
    slow. They cannot show by how much, because they contain page faults, and because they do not
    contain the time by which an operation slows down the code around it."""
    saved_ns: float = 0.0
    """How much less time the judged allocator's system calls and page faults take than the other's.
    An allocator that clears or copies a reused block can save calls and faults by this."""

    @property
    def longer_ns(self) -> float:
        """How much longer the slower kinds of operations take in sum, by the probe's times.

        If a kind of PLAIN cannot be compared (`_comparable`), all operations of PLAIN of the other
        allocator count instead.
        """
        names = dict.fromkeys(name for one in (*self.mine, *self.theirs) for name in one.kinds)
        each = [
            statistics.fmean(found)
            for name in names
            if (found := _differences(_comparable(self, (name,)) or _instead(self, name)))
        ]
        return sum(one for one in each if one > 0)

    def believed(self, ns: float, most_ns: float) -> float:
        """Scales `ns` of the probe's times so that all differences add up to `most_ns`.

        The factor is at most SCALED_MOST.
        """
        return ns * min(SCALED_MOST, most_ns / self.longer_ns) if self.longer_ns > 0 else ns


class _Longer(Struct, frozen=True):
    """Operations that take longer than the other allocator's: by how much, and both means."""

    effect: Estimate
    """The difference in time as a share of CPU time."""
    mine: _Kinds
    theirs: _Kinds

    @property
    def ratio(self) -> float:
        """The mean time of an operation over that of the other allocator."""
        return self.mine.each_ns / max(self.theirs.each_ns, SHORTEST_NS)

    @property
    def means(self) -> str:
        """Both means, as the end of a sentence."""
        mine, theirs = units.time(self.mine.each_ns), units.time(self.theirs.each_ns)
        return (
            f"{mine} on average against {theirs}, {units.counted(round(self.mine.count), 'time')}"
        )


def find(two: Two) -> tuple[Finding, ...]:
    """The findings about the first allocator, the largest effect first.

    A slow path implies slow frees and slow allocations by malloc and operator new. So the rules for
    these only run if no slow path was found. The rules for SLOW_KINDS always run.
    """
    path = slow_path(two)
    named = (
        [path]
        if path is not None and _is_why(two, path)
        else [slow_free(two), slow_reuse(two), slow_new(two)]
    )
    named += [slow_kind(two, name) for name in SLOW_KINDS]
    kept = [finding for finding in named if finding is not None and _is_why(two, finding)]
    return tuple(sorted(kept, key=lambda one: -one.effect))


def _is_why(two: Two, finding: Finding) -> bool:
    """Whether a finding is large enough and explains PART_LEAST of the gap in allocator code.

    False if too few operations were timed, or there are too few rounds.
    """
    return (
        bool(_pairs(two))
        and large_enough(finding)
        and finding.effect * two.cpu_ns >= PART_LEAST * two.most_ns.value
    )


def _pairs(two: Two, names: Sequence[str] | None = None) -> list[tuple[_Kinds, _Kinds]]:
    """The operations of both allocators, by round.

    Returns nothing if too few operations were timed, or if there are too few rounds.
    """
    pairs = [
        (_kinds(one, names), _kinds(other, names))
        for one, other in zip(two.mine, two.theirs, strict=True)
    ]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not len(known) == len(pairs) >= stats.ROUNDS_LEAST:
        return []
    mine, theirs = zip(*known, strict=True)
    return list(zip(_within(mine), _within(theirs), strict=True))


def _comparable(two: Two, names: Sequence[str]) -> list[tuple[_Kinds, _Kinds]]:
    """The operations of these kinds, by round, as `_pairs` returns them.

    Returns nothing if the other allocator had no such operation in some round, or if one of the two
    has fewer than TIMED_LEAST timed ones. An allocator that never reuses a block is not quick in
    reusing them.
    """
    pairs = _pairs(two, names)
    timed = [sum(one.timed for one in of) for of in zip(*pairs, strict=True)]
    is_known = bool(pairs) and min(timed) >= TIMED_LEAST
    return pairs if is_known and all(other.count for _, other in pairs) else []


def _instead(two: Two, name: str) -> list[tuple[_Kinds, _Kinds]]:
    """The operations of one kind, and those of PLAIN under the other allocator, by round."""
    if name not in PLAIN:
        return _pairs(two, (name,))
    mine, theirs = _pairs(two, (name,)), _pairs(two, PLAIN)
    return [(one[0], other[1]) for one, other in zip(mine, theirs, strict=False)]


def _within(trials: Sequence[_Kinds]) -> list[_Kinds]:
    """An allocator's trials. Means above OUTLYING times their median are reduced to this limit."""
    most = OUTLYING * statistics.median([one.each_ns for one in trials if one.count] or [0.0])
    return [replace(one, ns=min(one.ns, most * one.count)) for one in trials]


def _mean(trials: Sequence[_Kinds]) -> _Kinds:
    """The means over trials."""
    return _Kinds(
        statistics.fmean(one.count for one in trials),
        statistics.fmean(one.ns for one in trials),
        statistics.fmean(one.timed for one in trials),
    )


def count_and_time(trials: Sequence[ProbeSummary], name: str) -> tuple[float, float] | None:
    """How many operations of the kind `name` a trial has, and how many ns one takes; both means.

    The time is the one that a finding states: outlying trials are limited, and waiting and system
    calls are left out. Returns None if the time was not measured in some trial, or if there are no
    such operations.
    """
    each = [known for one in trials if (known := _kinds(one, (name,))) is not None]
    mean = _mean(_within(each)) if len(each) == len(trials) else None
    return (mean.count, mean.each_ns) if mean is not None and mean.count else None


def _differences(pairs: Sequence[tuple[_Kinds, _Kinds]]) -> list[float]:
    """The differences in time, by round.

    Each difference is the first allocator's total time, minus the time of the same number of
    operations at the mean of the other allocator.
    """
    return [(one.each_ns - other.each_ns) * one.count for one, other in pairs]


def _longer(two: Two, *names: str, saved_ns: float = 0.0) -> _Longer | None:
    """Compares the operations of the kinds `names`.

    Returns None if the first allocator's are not shown to take longer, or if the two cannot be
    compared in these operations.

    saved_ns: a time by which the effect is smaller, because the operations save it elsewhere.
    """
    known = _comparable(two, names)
    if not known or not two.cpu_ns:
        return None
    differences = _differences(known)
    middle, half = statistics.fmean(differences), stats.mean_half_width(differences)
    if middle - half <= 0:
        return None
    ends = two.most_ns.interval
    most, low, high = (max(0.0, ns - saved_ns) for ns in (two.most_ns.value, ends.low, ends.high))
    effect = Estimate(
        two.believed(middle, most),
        Interval(
            two.believed(middle - half, low),
            two.believed(middle + half, high),
            LEVEL,
        ),
    ).over(two.cpu_ns, most=1.0)
    mine, theirs = zip(*known, strict=True)
    return _Longer(effect, _mean(mine), _mean(theirs))


def slow_path(two: Two) -> Finding | None:
    """Returns a finding if reuse and free are both slow, and each is PART_LEAST of their sum.

    These operations rarely need the kernel or another thread, so they should be quick. If one of
    them makes up nearly all of the difference, it alone is the cause: an allocator that searches
    long in each malloc often also has a free that takes a little longer. The shares are computed
    from medians over the rounds. If the machine stops during one operation, that changes a mean,
    and not a median.
    """
    again, free = _longer(two, *AGAIN), _longer(two, *FREEING)
    both = _longer(two, *AGAIN, *FREEING)
    if again is None or free is None or both is None or min(again.ratio, free.ratio) < RATIO_LEAST:
        return None
    parts = [statistics.median(_differences(_pairs(two, names))) for names in (AGAIN, FREEING)]
    if min(parts) < PART_LEAST * sum(parts):
        return None
    return Finding(
        name="slow-path",
        says="Allocation and free are slow even without system calls",
        of="CPU",
        effect=both.effect.value,
        interval=both.effect.interval,
        measured=True,
        evidence=(f"Reuse takes {again.means}", f"A free takes {free.means}"),
        advice="use the other allocator, unless you want what makes this one slow, such as checks "
        "against misuse",
    )


def slow_free(two: Two) -> Finding | None:
    """Returns a finding if frees take longer than the other allocator's."""
    free = _longer(two, *FREEING)
    if free is None or free.ratio < RATIO_LEAST:
        return None
    return Finding(
        name="slow-free",
        says="Free is slow",
        of="CPU",
        effect=free.effect.value,
        interval=free.effect.interval,
        measured=True,
        evidence=(f"A free takes {free.means}",),
        advice="use the other allocator, or free blocks of one lifetime all at once (an arena)",
    )


def slow_reuse(two: Two) -> Finding | None:
    """Returns a finding if allocations of reused memory take longer than the other allocator's."""
    again = _longer(two, *AGAIN)
    if again is None or again.ratio < RATIO_LEAST:
        return None
    return Finding(
        name="slow-reuse",
        says="Allocations of reused memory are slow",
        of="CPU",
        effect=again.effect.value,
        interval=again.effect.interval,
        measured=True,
        evidence=(f"Such an allocation takes {again.means}",),
        advice="use the other allocator: this one searches, tries again, or writes to the block",
    )


def slow_new(two: Two) -> Finding | None:
    """Returns a finding if first-time allocations take longer than the other allocator's.

    A first-time allocation gets memory that was not handed out before.
    """
    new = _longer(two, "new")
    if new is None or new.ratio < NEW_RATIO_LEAST or new.mine.ns < NEW_CPU_LEAST * two.cpu_ns:
        return None
    return Finding(
        name="slow-new",
        says="First-time allocations are slow",
        of="CPU",
        effect=new.effect.value,
        interval=new.effect.interval,
        measured=True,
        evidence=(f"A first-time allocation takes {new.means}",),
        advice="use the other allocator, or let the program reuse blocks",
    )


def slow_kind(two: Two, name: str) -> Finding | None:
    """Returns a finding if operations of one of SLOW_KINDS take longer than the other allocator's.

    They are slow if they take RATIO_LEAST times as long or longer. The time of an operation
    includes the time in which the allocator copies or clears memory. If this saves system calls or
    page faults, the effect is smaller by their time.
    """
    found = _longer(two, name, saved_ns=two.saved_ns)
    if found is None or found.ratio < RATIO_LEAST:
        return None
    says, advice = SLOW_KINDS[name]
    return Finding(
        name=f"slow-{name}",
        says=says,
        of="CPU",
        effect=found.effect.value,
        interval=found.effect.interval,
        measured=True,
        evidence=(f"A call takes {found.means}",),
        advice=advice,
    )
