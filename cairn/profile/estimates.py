"""What a profile means: times, totals and shares, estimated from what was timed and scaled to what was counted. Pure.

Counts of operations are exact; times are those of a sample. Operations fall into strata, within each of which every
operation was as likely to be timed as any other: each path of allocations is one; frees, which are not counted by size,
have one per phase for small and medium blocks, and another for large ones. For a stratum of N operations of which n
were timed, taking S together (with 0 for those that a line of the table is not about):

    total      N / n * S                           the ratio estimator
    variance   N * N * (1 - n / N) / n * s * s     s: deviation within the sample; the bracket makes a census exact

so the error of a line's share of a stratum and that of its mean are in one formula. Strata add up, and so do their
variances. Intervals hold this sampling error alone, and no error of the clock's. Nor can a sample tell of what it never
met, such as one operation in a million that takes a million times as long; most of those are calls of the kernel, which
are therefore seen all, and told beside.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cairn.model import Interval
from cairn.profile.tally import (
    ALLOCATING,
    BUCKETS,
    CALLS,
    FREEING,
    GROUPS,
    KINDS,
    PATHS,
    PHASES,
    RELEASING,
    SAMPLED,
    WAITING,
    Floats,
    Path,
    Profile,
    Tally,
    lasting,
)

LEVEL = 0.95
Z = 1.959964
QUANTILES = (0.5, 0.95, 0.99, 0.999)
UNTIMED_MAX = 0.05
"""Of all operations, those of kinds that were never timed: with more of them, a total would promise too much."""

SAMPLES_ENOUGH = 200
"""Of CPU time, to say what the probe itself takes: with so many, a tenth of CPU is known to 4 points."""

PLAIN = ("malloc", "operator new", "operator new[]")
_CALLED = {
    "new": PLAIN,
    "reused": PLAIN,
    "calloc": ("calloc",),
    "realloc": ("realloc", "reallocarray"),
    "aligned": ("aligned_alloc", "posix_memalign", "memalign", "valloc", "pvalloc"),
}
WAY_OUT = 0.25
"""Of a detour to the kernel: a call returns to the allocator, not to us, and what that takes timers find there.

Measured with a library whose malloc calls the kernel twenty times for nothing: 0.23, 0.24, 0.25 (docs/probe.md).
"""
ASKED_NS = 250.0
"""Of a question to the kernel, getrusage(2), on one machine: 131 ms for 525,800."""
FREED = ("free, local", "free, remote")
"""In the order of WHOSE."""
TOTAL = "TOTAL"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that was not counted but inferred, and where it may lie."""

    value: float
    interval: Interval

    def over(self, whole: float, *, most: float = math.inf) -> Estimate:
        """The same as a share."""
        low, high = (min(most, end / whole) for end in (self.interval.low, self.interval.high))
        return Estimate(min(most, self.value / whole), Interval(low, high, self.interval.level))


@dataclass(frozen=True, slots=True)
class Clock:
    """What a tick is, and the shortest time that can be told from none."""

    ns_per_tick: float
    resolution_ticks: float

    @property
    def resolution_ns(self) -> float:
        """The same in ns."""
        return self.resolution_ticks * self.ns_per_tick


@dataclass(frozen=True, slots=True)
class Line:
    """Operations and their times in ns; None is not measured. A time below the clock's resolution is only that."""

    name: str
    operations: float
    """Exact where whole paths are counted; frees are told apart by those that were timed."""
    timed: int
    untimed: int
    """Operations of strata in which none was timed: in `operations` where they can be, and in no time."""
    switched: int
    quantiles: tuple[float | None, ...]
    """Those of QUANTILES; None too where fewer than one timed operation would lie beyond."""
    mean_ns: float | None
    """Among others, as the program makes them; some of the time, the processor works on what is around them too."""
    alone_ns: float | None
    """The same with nothing else under way."""
    max_ns: float | None
    total_ns: Estimate | None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What an allocator that takes no time would save at most, as a share of CPU time; or why that is not known."""

    share: Estimate | None
    why_not: str = ""
    how: str = ""


@dataclass(frozen=True, slots=True)
class Stratum:
    """Places in PATHS whose operations had the same chance to be timed, and how many operations there were.

    None: operations of which nothing is timed. They belong to the line of all paths alone.
    """

    operations: int
    paths: tuple[int, ...]


def strata(tally: Tally) -> tuple[Stratum, ...]:
    """A partition of everything that is timed."""
    found = [
        Stratum(_allocations(tally, path), (place,))
        for place, path in enumerate(PATHS)
        if path.kind in _CALLED
    ]
    return (*found, *(_told_apart(tally) if tally.frees.any() else _frees(tally)))


def _told_apart(tally: Tally) -> Iterator[Stratum]:
    """Where every free is counted by who had its block; where nobody is known to have had it, it has no path."""
    for place, path in enumerate(PATHS):
        if path.kind in FREED:
            where = FREED.index(path.kind), PHASES.index(path.phase), GROUPS.index(path.group)
            yield Stratum(int(tally.frees[where]), (place,))
    released = sum(int(tally.released[RELEASING.index(name)].sum()) for name in FREEING)
    yield Stratum(max(0, released - int(tally.frees.sum())), ())


def _frees(tally: Tally) -> Iterator[Stratum]:
    """Where only those are told apart that were timed."""
    large = [
        place
        for place, path in enumerate(PATHS)
        if path.kind not in _CALLED and path.group == "large"
    ]
    timed_large = int(tally.timed.count[large].sum())
    # Each was timed, unless there were more than could be watched: then those that were stand for the others too.
    weight = (
        max(1.0, float(tally.freed[GROUPS.index("large")]) / timed_large) if timed_large else 1.0
    )
    for phase in PHASES:
        frees = _places(phase, "small", "medium"), _places(phase, "large")
        of_large = round(int(tally.timed.count[list(frees[1])].sum()) * weight)
        released = sum(
            tally.released[RELEASING.index(name), PHASES.index(phase)] for name in FREEING
        )
        yield from (Stratum(max(0, released - of_large), frees[0]), Stratum(of_large, frees[1]))


def _allocations(tally: Tally, path: Path) -> int:
    """Exactly how many operations a path of allocations had."""
    functions = [ALLOCATING.index(name) for name in _CALLED[path.kind]]
    phase, group = PHASES.index(path.phase), GROUPS.index(path.group)
    calls = int(tally.calls[functions, phase, group].sum())
    if path.kind not in ("new", "reused"):
        return calls
    fresh = min(calls, int(tally.fresh[phase, group]))
    return fresh if path.kind == "new" else calls - fresh


def _places(phase: str, *groups: str) -> tuple[int, ...]:
    return tuple(
        place
        for place, path in enumerate(PATHS)
        if path.kind not in _CALLED and path.phase == phase and path.group in groups
    )


@lru_cache(maxsize=1)
def _edges() -> Floats:
    """Where each bucket of times begins, in ticks, and where the last one ends; the inverse of profile_bucket()."""
    return octaves(BUCKETS, 8)


@lru_cache(maxsize=1)
def _middles() -> Floats:
    return (_edges()[:-1] + _edges()[1:] - 1) / 2


@lru_cache(maxsize=4)
def octaves(buckets: int, in_octave: int) -> Floats:
    """Exact below `in_octave`, then so many an octave."""
    first = in_octave.bit_length() - 2
    places = np.arange(buckets + 1)
    octave = places // in_octave + first
    edges = np.ldexp(in_octave + places % in_octave, (octave - first - 1).astype(int))
    return np.where(places < in_octave, places, edges).astype(float)


def clock(tally: Tally) -> Clock | None:
    """By the spans of all processes; None where none lasted."""
    if not tally.span_ticks or not tally.span_ns:
        return None
    timed = tally.timed.count.sum()
    pair = float(tally.timed.clock_ticks.sum() / timed) if timed else 0.0
    edges = _edges()
    place = min(int(np.searchsorted(edges, pair, side="right")), BUCKETS)
    return Clock(tally.span_ns / tally.span_ticks, float(edges[place] - edges[place - 1]))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What one stratum adds to a line, in ticks."""

    operations: float
    timed: int
    total: float
    least: float
    """Of `total`, what was seen."""
    variance: float
    blur: float
    """What is missing to the clock's resolution, where the mean is below it."""
    buckets: Floats
    alone_known: float
    """Operations of which the time alone is known …"""
    alone_total: float
    """… and that time."""


def _part(tally: Tally, stratum: Stratum, mine: list[int], clock: Clock | None) -> _Part:
    timed = tally.timed
    n, k = (int(timed.count[list(places)].sum()) for places in (stratum.paths, mine))
    operations = max(stratum.operations, n)
    scale = operations / n
    clock_ticks = float(timed.clock_ticks[mine].sum())
    taken = max(0.0, float(timed.ticks[mine].sum()) - clock_ticks)
    buckets = timed.buckets[mine].sum(axis=0)
    alone = int(timed.alone[mine].sum())
    alone_ticks = float((timed.alone_ticks[mine] - timed.alone_clock_ticks[mine]).sum())
    squares = float(
        (buckets * np.maximum(0.0, _middles() - (clock_ticks / k if k else 0.0)) ** 2).sum()
    )
    spread = max(0.0, squares / n - (taken / n) ** 2) * n / (n - 1) if n > 1 else squares
    return _Part(
        operations=scale * k,
        timed=k,
        total=scale * taken,
        least=taken,
        variance=(1 - n / operations) * operations * operations / n * spread,
        blur=scale * max(0.0, k * clock.resolution_ticks - taken) if clock else 0.0,
        buckets=scale * buckets,
        alone_known=scale * k if alone else 0.0,
        alone_total=scale * k * max(0.0, alone_ticks) / alone if alone else 0.0,
    )


def line(
    name: str, tally: Tally, wanted: Collection[int], of: Sequence[Stratum], clock: Clock | None
) -> Line:
    """The line of a table for some of PATHS, by their places."""
    parts, untimed, unknown = [], 0, 0
    for stratum in of:
        mine = [place for place in stratum.paths if place in wanted]
        if mine and tally.timed.count[list(stratum.paths)].any():
            parts.append(_part(tally, stratum, mine, clock))
        elif mine:
            untimed += stratum.operations
            unknown += stratum.operations if len(mine) == len(stratum.paths) else 0
        elif not stratum.paths and len(wanted) == len(PATHS):
            untimed += stratum.operations
            unknown += stratum.operations
    places = list(wanted)
    alone = sum(part.alone_known for part in parts)
    timed, known = sum(part.timed for part in parts), sum(part.operations for part in parts)
    about = (name, known + unknown, timed, untimed, int(tally.timed.switched[places].sum()))
    if clock is None or not timed:
        return Line(*about, (None,) * len(QUANTILES), None, None, None, None)
    tick, own = clock.ns_per_tick, float(tally.timed.clock_ticks[places].sum()) / timed
    total = sum(part.total for part in parts)
    half = Z * math.sqrt(sum(part.variance for part in parts))
    low = max(sum(part.least for part in parts), total - half)
    high = total + max(half, sum(part.blur for part in parts))
    buckets = np.sum([part.buckets for part in parts], axis=0)
    return Line(
        *about,
        tuple(
            _quantile(buckets, q, own, tick) if timed * (1 - q) >= 1 else None for q in QUANTILES
        ),
        total / known * tick,
        sum(part.alone_total for part in parts) / alone * tick if alone else None,
        max(0.0, most - own) * tick
        if (most := float(max(tally.timed.most_ticks[places])))
        else None,
        Estimate(total * tick, Interval(low * tick, high * tick, LEVEL)),
    )


def _quantile(buckets: Floats, q: float, own_ticks: float, ns_per_tick: float) -> float | None:
    """The middle of the bucket in which it lies, at most a sixteenth away."""
    sums = np.cumsum(buckets)
    if not sums[-1]:
        return None
    place = min(int(np.searchsorted(sums, q * sums[-1])), BUCKETS - 1)
    return max(0.0, float(_middles()[place]) - own_ticks) * ns_per_tick


def lines(profile: Profile) -> tuple[Line, ...]:
    """One for each kind of operation that there was, and their sum at the end."""
    of, ticking = strata(profile.tally), clock(profile.tally)
    found = [
        line(
            name,
            profile.tally,
            [place for place, path in enumerate(PATHS) if path.kind == name],
            of,
            ticking,
        )
        for name in KINDS
    ]
    total = line(TOTAL, profile.tally, range(len(PATHS)), of, ticking)
    return (*(one for one in found if one.operations or one.timed), total)


def details(profile: Profile) -> tuple[tuple[Path, Line], ...]:
    """One line for each path that there was."""
    of, ticking = strata(profile.tally), clock(profile.tally)
    found = (
        (path, line(path.kind, profile.tally, [place], of, ticking))
        for place, path in enumerate(PATHS)
    )
    return tuple((path, one) for path, one in found if one.operations or one.timed)


def cpu_ns(profile: Profile) -> int | None:
    """User and system time of all processes together; None where none told."""
    return sum(process.cpu_ns for process in lasting(profile.processes)) or None


def probe_ns(profile: Profile) -> float | None:
    """What of that the probe itself took: where timers of CPU time found it, if there were enough of them.

    Else as far as it is known, which is its readings of the clock and its detours to the kernel.
    """
    tally, cpu, ticking = profile.tally, cpu_ns(profile), clock(profile.tally)
    known = tally.probe_ticks * ticking.ns_per_tick if ticking else None
    if cpu is None or tally.cpu_samples < SAMPLES_ENOUGH:
        return known
    return max(
        known or 0.0,
        cpu * min(1.0, tally.cpu_samples_probe / tally.cpu_samples) + way_out_ns(tally),
    )


def way_out_ns(tally: Tally) -> float:
    """Of the detours to the kernel, what timers find in the allocator."""
    ticking = clock(tally)
    return tally.detour_ticks * ticking.ns_per_tick * WAY_OUT if ticking else 0.0


def asked_ns(tally: Tally) -> float:
    """What it took to ask the kernel for the page faults of operations: two questions for each that was looked at."""
    return 2 * ASKED_NS * float(tally.timed.fault_operations.sum())


def busy_ns(profile: Profile) -> float | None:
    """CPU time as it would be without the probe, as far as that is known."""
    cpu = cpu_ns(profile)
    return max(cpu - (probe_ns(profile) or 0.0), 1.0) if cpu else None


def ceiling(profile: Profile) -> Ceiling:
    """The whole time in the allocator over the whole CPU time: by CPU timers, if they told of it often enough.

    Else by the operations that were timed, where the interval is from what they take among others to what they take
    alone.
    """
    total, busy, found = lines(profile)[-1], busy_ns(profile), sampled(profile)
    if not total.operations:
        return Ceiling(None, "it allocated nothing")
    if found and found[0].of >= SAMPLES_ENOUGH:
        return Ceiling(found[0].share, how="by CPU timers")
    if total.total_ns is None:
        return Ceiling(
            None,
            "none of its operations was timed"
            if not total.timed
            else "its clock was not calibrated",
        )
    if busy is None:
        return Ceiling(None, "its CPU time is not known")
    if total.untimed > UNTIMED_MAX * total.operations:
        return Ceiling(None, "too many operations are of kinds of which none was timed")
    within = Estimate(total.total_ns.value, Interval(*_bracket(total), LEVEL))
    return Ceiling(within.over(busy, most=1.0), how="by the operations that were timed")


@dataclass(frozen=True, slots=True)
class Sampled:
    """CPU time in the allocator by another way: timers that run with each thread's CPU time say where it is."""

    name: str
    """Of SAMPLED, or TOTAL."""
    samples: int
    of: int
    """Samples in all, in the program and in the probe too."""
    total_ns: Estimate
    share: Estimate
    """Of CPU time, without what the probe takes."""


def sampled(profile: Profile) -> tuple[Sampled, ...]:
    """Of all operations, then by kind; nothing where no timer told of anything."""
    tally, cpu, busy = profile.tally, cpu_ns(profile), busy_ns(profile)
    n = tally.cpu_samples
    if not n or cpu is None or busy is None:
        return ()
    found = []
    for name, inside in (
        (TOTAL, tally.cpu_samples_inside.sum()),
        *zip(SAMPLED, tally.cpu_samples_inside, strict=True),
    ):
        k = min(int(inside), n)
        ends, out = (
            wilson(k, n),
            way_out_ns(tally) * k / max(1, int(tally.cpu_samples_inside.sum())),
        )
        low, middle, high = (max(0.0, share * cpu - out) for share in (ends.low, k / n, ends.high))
        total = Estimate(middle, Interval(low, high, LEVEL))
        if k or name == TOTAL:
            found.append(Sampled(name, k, n, total, total.over(busy, most=1.0)))
    return tuple(found)


_AGREEING = 0.15
"""Of the greater of two estimates: closer than that is as good as they can be."""


def disagreement(profile: Profile) -> float | None:
    """By how much of CPU more was sampled than timed; None where that is within what both may err.

    How long an operation takes that is timed lies between its time among others and its time alone.
    """
    found, total, busy, ticking = (
        sampled(profile),
        lines(profile)[-1],
        busy_ns(profile),
        clock(profile.tally),
    )
    if not found or total.total_ns is None or busy is None or ticking is None:
        return None
    kernel = profile.tally.kernel
    waited = sum(int(kernel.ticks[CALLS.index(name)]) for name in WAITING) * ticking.ns_per_tick
    low, high = (max(0.0, end - waited) for end in _bracket(total))
    there = found[0].total_ns
    if there.interval.low > high and there.value - high > _AGREEING * there.value:
        return (there.value - high) / busy
    if there.interval.high < low and low - there.value > _AGREEING * low:
        return (there.value - low) / busy
    return None


def _bracket(total: Line) -> tuple[float, float]:
    """The least and the most that all operations may have taken, by those that were timed."""
    assert total.total_ns is not None
    ends = total.total_ns.interval
    return ends.low, max(ends.high, (total.alone_ns or 0.0) * total.operations)


def wilson(successes: float, trials: float) -> Interval:
    """Of a share (Wilson, Journal of the American Statistical Association 1927): right also near 0 and 1."""
    share, z2 = successes / trials, Z * Z / trials
    middle = (share + z2 / 2) / (1 + z2)
    half = Z * math.sqrt(max(0.0, share * (1 - share) / trials + z2 / trials / 4)) / (1 + z2)
    return Interval(max(0.0, middle - half), min(1.0, middle + half), LEVEL)


def remote_share(tally: Tally) -> Estimate | None:
    """Frees by another thread than the one that allocated; exact where each was told apart.

    Else ends of strata are added, which is a little too wide.
    """
    value = low = high = whole = 0.0
    if known := int(tally.frees.sum()):
        share = int(tally.frees[FREED.index("free, remote")].sum()) / known
        return Estimate(share, Interval(share, share, LEVEL))
    for stratum in strata(tally):
        far = [place for place in stratum.paths if PATHS[place].kind == "free, remote"]
        n = int(tally.timed.count[list(stratum.paths)].sum())
        if not far or not n:
            continue
        k = int(tally.timed.count[far].sum())
        operations = max(stratum.operations, n)
        ends = wilson(k, n) if n < operations else Interval(k / n, k / n, LEVEL)
        whole += operations
        value += operations * k / n
        low += operations * ends.low
        high += operations * ends.high
    return Estimate(value, Interval(low, high, LEVEL)).over(whole) if whole else None
