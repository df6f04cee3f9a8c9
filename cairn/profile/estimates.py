"""Estimates times, totals and shares of a profile, with intervals. All functions are pure.

Counts of operations are exact, but only a sample of the operations is timed. Operations belong to
strata, in each of which every operation is equally likely to be timed. Each path of allocations is
a stratum. Each path of frees is a stratum, too, if the probe counted every free as local or remote.
Otherwise, frees are not counted by size: frees of small and medium blocks have one stratum per
phase, and frees of large blocks another. If n of the N operations of a stratum were timed, with the
sum S of their times (0 for operations that do not belong to the line of the table), then

    total      N / n * S                           the ratio estimator
    variance   N * N * (1 - n / N) / n * s * s     s: deviation within the sample

The factor 1 - n / N makes the result exact if every operation was timed. The variance covers two
errors: that of the line's share of the stratum, and that of the line's mean time. Totals and
variances of strata are added up.

In a program with millions of live blocks, one timed free may stand for more frees than another one.
It then has several copies (`Timed.copies`), and n and S count each copy. So the estimates have no
bias. Their error is that of a smaller sample: the variance divides n by `Timed.effect`.

The intervals contain the sampling error only, and no error of the clock. A sample also says nothing
about rare events that it does not contain, such as one operation in a million that takes a million
times as long. Most of such events are system calls. The probe sees every system call, and `tables`
reports them separately.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from cairn.model import Interval
from cairn.profile.early_ends import cpu_total_ns
from cairn.profile.tally import (
    ALLOCATING,
    BUCKETS,
    FREEING,
    GROUPS,
    KINDS,
    PATHS,
    PHASES,
    RELEASING,
    Path,
    Profile,
    Tally,
    Timed,
)

if TYPE_CHECKING:
    from cairn.profile.tally import Floats

LEVEL = 0.95
Z = 1.959964
QUANTILES = (0.5, 0.95, 0.99, 0.999)
BEYOND_LEAST = 5
"""A quantile needs this many timed operations beyond it. So a median needs 10 timed operations, and
P95 needs 100. With five, the true quantile lies beyond all timed operations in 1 of 150 cases."""
UNTIMED_MAX = 0.05
"""Totals and quantiles are not reported if more than this share of all operations belongs to strata
of which no operation was timed."""

SAMPLES_ENOUGH = 200
"""CPU samples that are needed to say how much CPU time the probe takes. With this many, a share of
10 % is known to within ±4 percentage points."""

PLAIN = ("malloc", "operator new", "operator new[]")
_CALLED = {
    "new": PLAIN,
    "reused": PLAIN,
    "calloc": ("calloc",),
    "realloc": ("realloc", "reallocarray"),
    "aligned": ("aligned_alloc", "posix_memalign", "memalign", "valloc", "pvalloc"),
}
WAY_OUT = 0.25
"""The share of an interception's time that CPU timers count as time of the allocator and not of the
probe.

The probe intercepts a system call by a signal. The interception by the signal handler takes CPU
time, and it ends with the return from the handler to the allocator. At that end, a CPU timer finds
the thread in the allocator's code.

Measured with a library whose malloc makes twenty system calls for nothing: 0.23, 0.24, 0.25
(docs/probe.md).
"""
ASKED_NS = 250.0
"""Time of one getrusage(2), with which the probe reads page fault counts. On one machine, 525,800
such calls took 131 ms."""
OTHERS_LEAST, OTHERS_LEAST_NS = 1.2, 20_000_000
"""Processes that were not recorded used CPU time if the whole program used more than OTHERS_LEAST
times the CPU time of those recorded, and OTHERS_LEAST_NS more for each of them."""
LOCAL, REMOTE = "free, local", "free, remote"
FREED = (LOCAL, REMOTE)
"""Kinds of frees, in the order of WHOSE."""
TOTAL = "TOTAL"


class Estimate(Struct, frozen=True):
    """An estimated number and its interval."""

    value: float
    interval: Interval

    def over(self, whole: float, *, most: float = math.inf) -> Estimate:
        """This estimate divided by `whole`. Its value and its interval do not exceed `most`."""
        low, high = (min(most, end / whole) for end in (self.interval.low, self.interval.high))
        return Estimate(min(most, self.value / whole), Interval(low, high, self.interval.level))


class Clock(Struct, frozen=True):
    """The length of a tick, and the shortest time that can be distinguished from 0."""

    ns_per_tick: float
    resolution_ticks: float

    @property
    def resolution_ns(self) -> float:
        """The resolution in nanoseconds."""
        return self.resolution_ticks * self.ns_per_tick


class Line(Struct, frozen=True):
    """The number of some operations and their times in ns. None means not measured."""

    name: str
    operations: float
    """The number of operations. It is exact if the line covers whole strata. If local and remote
    frees share a stratum, the number of each is estimated from the timed frees. If none of the
    frees of such a stratum was timed, its frees are not among these operations."""
    is_known: bool
    """Whether `operations` has the frees of all strata."""
    within: Interval
    """The interval of the number of operations. It has no width if the number is exact."""
    timed: int
    """The effective number of timed operations. It is the number of copies (`Timed.copies`) divided
    by `Timed.effect`. A sample of this many operations with one copy each has the same error."""
    untimed: int
    """Number of operations in strata in which no operation was timed. The times below leave these
    operations out."""
    switched: int
    """Number of timed operations in which the thread lost its processor. The times below leave
    these operations out."""
    quantiles: tuple[float | None, ...]
    """The times at QUANTILES. A time is also None if the sample is too small for its quantile: see
    BEYOND_LEAST. All are None if two buckets of the histogram are full (`Timed.buckets`)."""
    mean_ns: float | None
    """Mean time of an operation as the program runs it. The processor overlaps the operation with
    the program's instructions around it."""
    alone_ns: float | None
    """Mean time of an operation between fences, so that the processor works on nothing else. Also
    None if fewer than 2 * BEYOND_LEAST were timed so."""
    max_ns: float | None
    total_ns: Estimate | None
    """Total time of the operations, as the program runs them. The mean time of an operation is
    `mean_ns`, because `operations` may contain untimed ones."""
    calling: float = 0.0
    """The estimated number of operations that make a system call."""
    kernel_ns: float | None = None
    """The part of `total_ns` in these system calls."""


class Stratum(Struct, frozen=True):
    """Operations that are equally likely to be timed: their number, and their places in PATHS.

    The operations of a stratum without paths are never timed. Only the line of all paths contains
    them.
    """

    operations: int
    paths: tuple[int, ...]


def strata(tally: Tally, *, are_local: bool = False) -> tuple[Stratum, ...]:
    """The strata; together they contain every operation once.

    are_local: whether all frees are known to be local.
    """
    found = [
        Stratum(_allocations(tally, path), (place,))
        for place, path in enumerate(PATHS)
        if path.kind in _CALLED
    ]
    frees = _told_apart(tally) if tally.frees.any() else _frees(tally)
    if are_local:
        frees = (Stratum(one.operations, _local(one.paths)) for one in frees)
    return (*found, *frees)


def _local(places: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(place for place in places if PATHS[place].kind != REMOTE)


def are_local(profile: Profile) -> bool:
    """Whether all frees are known to be local, because no process ever had two threads."""
    remote = [place for place, path in enumerate(PATHS) if path.kind == REMOTE]
    return is_alone(profile) and not profile.tally.timed.count[remote].any()


def is_alone(profile: Profile) -> bool:
    """Whether no process ever had two threads."""
    return all(one.threads_most <= 1 and not one.threads_lost for one in profile.processes)


def _told_apart(tally: Tally) -> Iterator[Stratum]:
    """The strata of frees if all were counted as local or remote.

    Frees of blocks with an unknown owner make a stratum without paths.
    """
    for place, path in enumerate(PATHS):
        if path.kind in FREED:
            where = FREED.index(path.kind), PHASES.index(path.phase), GROUPS.index(path.group)
            yield Stratum(int(tally.frees[where]), (place,))
    released = sum(int(tally.released[RELEASING.index(name)].sum()) for name in FREEING)
    yield Stratum(max(0, released - int(tally.frees.sum())), ())


def _frees(tally: Tally) -> Iterator[Stratum]:
    """The strata of frees if only the timed ones are known to be local or remote."""
    large = [
        place
        for place, path in enumerate(PATHS)
        if path.kind not in _CALLED and path.group == "large"
    ]
    timed_large = int(tally.timed.count[large].sum())
    # Every free of a large block is timed, unless there were too many large blocks to watch. Each
    # timed free then stands for several frees.
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
    """The exact number of operations of a path of allocations."""
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
    """The edges of the buckets of times, in ticks. profile_bucket() in C is the inverse."""
    return octaves(BUCKETS, 8)


@lru_cache(maxsize=1)
def _middles() -> Floats:
    return (_edges()[:-1] + _edges()[1:] - 1) / 2


@lru_cache(maxsize=4)
def octaves(buckets: int, in_octave: int) -> Floats:
    """The edges of the `buckets` buckets of a histogram of whole numbers.

    Each number below `in_octave` has a bucket of its own. Above, each octave, which is the range
    from a number to its double, is divided into `in_octave` buckets of equal width.
    """
    import numpy as np

    first = in_octave.bit_length() - 2
    places = np.arange(buckets + 1)
    octave = places // in_octave + first
    edges = np.ldexp(in_octave + places % in_octave, (octave - first - 1).astype(int))
    return np.where(places < in_octave, places, edges).astype(float)


def clock(tally: Tally) -> Clock | None:
    """The clock, calibrated by the spans of `tally`; None if these spans have no length.

    A time below the resolution cannot be distinguished from 0. The resolution is the width of the
    histogram's bucket that contains the time of reading the clock.
    """
    if not tally.span_ticks or not tally.span_ns:
        return None
    import numpy as np

    timed = tally.timed.count.sum()
    pair = float(tally.timed.clock_ticks.sum() / timed) if timed else 0.0
    edges = _edges()
    place = min(int(np.searchsorted(edges, pair, side="right")), BUCKETS)
    return Clock(tally.span_ns / tally.span_ticks, float(edges[place] - edges[place - 1]))


class _Part(Struct, frozen=True, eq=False):
    """The contribution of one stratum to a line. Times are in ticks."""

    operations: float
    within: Interval
    """The interval of `operations`."""
    timed: int
    """As in Line."""
    total: float
    """The estimated time of all operations."""
    least: float
    """A lower limit of `total`: the measured time of the timed operations. It is 0 if an operation
    has several copies, because its time is then added several times."""
    variance: float
    """The variance of `total`."""
    calling: float
    """The estimated number of operations that make a system call."""
    kernel: float
    """The part of `total` in these system calls."""
    blur: float
    """The amount by which `total` would grow if each operation took the clock's resolution; 0 if
    `total` would not grow."""
    buckets: Floats
    alone_known: float
    """This equals `operations` if some operations were timed between fences; otherwise it is 0."""
    alone_total: float
    """The estimated total time of `alone_known` operations if each ran between fences."""


def _filled(buckets: Floats, count: int) -> Floats:
    """The histogram of `count` times, with numbers in the buckets that are full.

    All times that no other bucket contains are put into the last one that is full. So the number is
    right if one bucket is full. If several are full, the variance is too large, but never too
    small.
    """
    import numpy as np

    full = np.flatnonzero(np.isnan(buckets))
    if not len(full):
        return buckets
    filled = np.nan_to_num(buckets, nan=0.0)
    filled[full[-1]] = max(0.0, count - filled.sum())
    return filled


def _part(tally: Tally, stratum: Stratum, mine: list[int], clock: Clock | None) -> _Part:
    import numpy as np

    timed = tally.timed
    n, k = (int(timed.count[list(places)].sum()) for places in (stratum.paths, mine))
    operations = max(stratum.operations, n)
    scale = operations / n
    rest = [place for place in stratum.paths if place not in mine]
    of_mine, of_rest = timed.effect(mine), timed.effect(rest)
    of_all = max(of_mine, of_rest)
    clock_ticks = float(timed.clock_ticks[mine].sum())
    taken = max(0.0, float(timed.ticks[mine].sum()) - clock_ticks)
    buckets = timed.buckets[mine].sum(axis=0)
    filled = _filled(buckets, k)
    alone = int(timed.alone[mine].sum())
    alone_ticks = float((timed.alone_ticks[mine] - timed.alone_clock_ticks[mine]).sum())
    squares = float(
        (filled * np.maximum(0.0, _middles() - (clock_ticks / k if k else 0.0)) ** 2).sum()
    )
    spread = max(0.0, squares / n - (taken / n) ** 2) * n / (n - 1) if n > 1 else squares
    is_exact = (n == operations and of_all == 1) or not rest
    share = (
        Interval(k / n, k / n, LEVEL) if is_exact else sampled_share(timed, k / n, n, mine, rest)
    )
    return _Part(
        operations=scale * k,
        within=Interval(share.low * operations, share.high * operations, LEVEL),
        timed=math.ceil(k / of_mine),
        total=scale * taken,
        least=taken if of_all == 1 else 0.0,
        variance=(1 - n / of_all / operations) * operations * operations * of_all / n * spread,
        calling=scale * int(timed.kernel[mine].sum()),
        kernel=scale * min(taken, float(timed.kernel_ticks[mine].sum())),
        blur=scale * max(0.0, k * clock.resolution_ticks - taken) if clock else 0.0,
        buckets=scale * (filled if np.isnan(buckets).sum() < 2 else buckets),
        alone_known=scale * k if alone else 0.0,
        alone_total=scale * k * max(0.0, alone_ticks) / alone if alone else 0.0,
    )


def line(
    name: str, tally: Tally, wanted: Collection[int], of: Sequence[Stratum], clock: Clock | None
) -> Line:
    """The line of a table for the paths at the places `wanted` of PATHS, from the strata `of`."""
    parts, untimed, unknown = [], 0, 0
    low = high = 0.0
    is_known = True
    for stratum in of:
        mine = [place for place in stratum.paths if place in wanted]
        if mine and tally.timed.count[list(stratum.paths)].any():
            parts.append(_part(tally, stratum, mine, clock))
            low += parts[-1].within.low
            high += parts[-1].within.high
        elif mine or (not stratum.paths and len(wanted) == len(PATHS)):
            is_whole = len(mine) == len(stratum.paths)
            is_known = is_known and (is_whole or not stratum.operations)
            untimed += stratum.operations
            unknown += stratum.operations if is_whole else 0
            low += stratum.operations if is_whole else 0
            high += stratum.operations
    places = list(wanted)
    alone = sum(part.alone_known for part in parts)
    fenced = int(tally.timed.once(tally.timed.alone)[places].sum()) >= 2 * BEYOND_LEAST
    timed, known = sum(part.timed for part in parts), sum(part.operations for part in parts)
    switched = int(tally.timed.switched[places].sum())
    within = Interval(low, high, LEVEL)
    about = (name, known + unknown, is_known, within, timed, untimed, switched)
    if clock is None or not timed:
        return Line(*about, (None,) * len(QUANTILES), None, None, None, None)
    import numpy as np

    counted = int(tally.timed.count[places].sum())
    tick, own = clock.ns_per_tick, float(tally.timed.clock_ticks[places].sum()) / counted
    total = sum(part.total for part in parts)
    half = Z * math.sqrt(sum(part.variance for part in parts))
    least = max(sum(part.least for part in parts), total - half)
    most = total + max(half, sum(part.blur for part in parts))
    buckets = np.sum([part.buckets for part in parts], axis=0)
    return Line(
        *about,
        tuple(
            _quantile(buckets, q, own, tick) if _is_known(q, parts, untimed) else None
            for q in QUANTILES
        ),
        total / known * tick,
        sum(part.alone_total for part in parts) / alone * tick if fenced and alone else None,
        max(0.0, longest - own) * tick
        if (longest := float(max(tally.timed.most_ticks[places])))
        else None,
        Estimate(total * tick, Interval(least * tick, most * tick, LEVEL)),
        sum(part.calling for part in parts),
        sum(part.kernel for part in parts) * tick,
    )


def _is_known(q: float, parts: Sequence[_Part], untimed: int) -> bool:
    """Whether the times of the parts have a quantile `q`. `untimed` operations have no times.

    The number of timed operations is that of a simple sample with the same error. It is infinite if
    every operation was timed. The quantile is then a fact, and needs one operation beyond it.
    """
    operations = sum(part.operations for part in parts)
    if untimed > UNTIMED_MAX * (operations + untimed):
        return False
    squares = sum(
        (part.operations / operations) ** 2
        * max(0.0, 1 - part.timed / part.operations)
        / part.timed
        for part in parts
        if part.timed
    )
    is_enough = 1 - q >= BEYOND_LEAST * squares
    return is_enough and sum(part.timed for part in parts) * (1 - q) >= 1


def _quantile(buckets: Floats, q: float, own_ticks: float, ns_per_tick: float) -> float | None:
    """The middle of the bucket that contains the quantile `q`, less `own_ticks`, in ns.

    A bucket is at most an eighth of its times wide, so the error is at most a sixteenth.
    """
    import numpy as np

    sums = np.cumsum(buckets)
    if not sums[-1] or np.isnan(sums[-1]):
        return None
    place = min(int(np.searchsorted(sums, q * sums[-1])), BUCKETS - 1)
    return max(0.0, float(_middles()[place]) - own_ticks) * ns_per_tick


def lines(profile: Profile) -> tuple[Line, ...]:
    """Returns a line for each kind of operation that occurred, and last the line of their sum."""
    of = strata(profile.tally, are_local=are_local(profile))
    ticking = clock(profile.tally)
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
    return (*(one for one in found if _occurred(one)), total)


def details(profile: Profile) -> tuple[tuple[Path, Line], ...]:
    """One line for each path that occurred."""
    of = strata(profile.tally, are_local=are_local(profile))
    ticking = clock(profile.tally)
    found = (
        (path, line(path.kind, profile.tally, [place], of, ticking))
        for place, path in enumerate(PATHS)
    )
    return tuple((path, one) for path, one in found if _occurred(one))


def _occurred(line: Line) -> bool:
    """Whether operations of the line occurred, or may have occurred without a timed one."""
    return bool(line.operations or line.timed or not line.is_known)


BEFORE_EXEC_NS_MAX = 5_000_000
"""The most CPU time that the launcher's child takes between its fork and the exec. It was 20 to 50
µs on a quiet machine, and 1.1 ms on a machine with twice as many running threads as processors."""


def cpu_ns(profile: Profile) -> int | None:
    """User and system time of all processes; None if not known.

    If a process did not end normally, this is the upper limit of its sum: see `early_ends`.

    The kernel counts from the fork of the process, but the launcher's wall time begins at the exec.
    The CPU time of a whole run can therefore exceed the wall time of all threads by
    BEFORE_EXEC_NS_MAX. It is then limited to that wall time. A larger excess has another cause: the
    program has threads that the probe does not know.
    """
    used_ns = cpu_total_ns(profile).high or 0
    if profile.window is None and profile.tree is not None and profile.tree.wall_ns:
        threads = sum(max(1, process.threads) for process in profile.processes)
        excess_ns = used_ns - profile.wall_ns * threads
        if 0 < excess_ns <= BEFORE_EXEC_NS_MAX:
            used_ns -= excess_ns
    return used_ns or None


def probe_ns(profile: Profile) -> float | None:
    """The CPU time of the probe itself, which is a part of `cpu_ns`.

    It comes from the perf events' clock samples of the profiled run, if there are enough. Otherwise
    it comes from the samples of the CPU timers, plus `way_out_ns`. With fewer than SAMPLES_ENOUGH
    samples of either kind, it is only the known part: `Tally.probe_ticks`.
    """
    tally, cpu, ticking = profile.tally, cpu_ns(profile), clock(profile.tally)
    known = tally.probe_ticks * ticking.ns_per_tick if ticking else None
    if profile.clock is not None and profile.clock.runs and cpu is not None:
        first = profile.clock.runs[0]
        if first.scope in ("processors", "threads") and first.samples >= SAMPLES_ENOUGH:
            return cpu * first.probe_ns / (first.probe_ns + first.whole_ns)
    if cpu is None or tally.cpu_samples < SAMPLES_ENOUGH:
        return known
    return max(
        known or 0.0,
        cpu * min(1.0, tally.cpu_samples_probe / tally.cpu_samples) + way_out_ns(tally),
    )


def way_out_ns(tally: Tally) -> float:
    """The time of interceptions that CPU timers count as the allocator's, in ns; see WAY_OUT."""
    ticking = clock(tally)
    return tally.detour_ticks * ticking.ns_per_tick * WAY_OUT if ticking else 0.0


def asked_ns(tally: Tally) -> float:
    """The time in which the probe read page fault counts, in ns.

    The probe makes one system call before and one after each operation whose page faults it counts.
    """
    return 2 * ASKED_NS * float(tally.timed.once(tally.timed.fault_operations).sum())


def whole_cpu_ns(profile: Profile) -> int | None:
    """CPU time of all processes, if the recorded ones used clearly less; None if they did not.

    A process that never allocates is not recorded. The start of a process before its first
    allocation is not recorded either, so a difference of OTHERS_LEAST_NS shows nothing.
    """
    cpu, tree = cpu_ns(profile), profile.tree
    if cpu is None or tree is None or profile.window is not None or not profile.operations:
        return None
    whole = tree.user_ns + tree.system_ns
    return whole if whole > OTHERS_LEAST * cpu + OTHERS_LEAST_NS * len(profile.processes) else None


def busy_ns(profile: Profile) -> float | None:
    """CPU time without the known time of the probe itself; None if the CPU time is not known."""
    cpu = cpu_ns(profile)
    return max(cpu - (probe_ns(profile) or 0.0), 1.0) if cpu else None


def wilson(successes: float, trials: float) -> Interval:
    """Interval of a share (Wilson, Journal of the American Statistical Association 1927).

    It is also correct near 0 and 1.
    """
    share, z2 = successes / trials, Z * Z / trials
    middle = (share + z2 / 2) / (1 + z2)
    half = Z * math.sqrt(max(0.0, share * (1 - share) / trials + z2 / trials / 4)) / (1 + z2)
    return Interval(max(0.0, middle - half), min(1.0, middle + half), LEVEL)


def sampled_share(
    timed: Timed, share: float, n: float, mine: Sequence[int], rest: Sequence[int]
) -> Interval:
    """Wilson's interval of the `share` of the PATHS `mine` in a sample of `n` operations.

    rest: the other PATHS of the sample.
    n: the number of copies of all operations in the sample.

    The variance of a share p is p (1 - p) ((1 - p) effect(mine) + p effect(rest)) / n.
    """
    of_mine, of_rest = timed.effect(mine), timed.effect(rest)
    # If the sample has no operation of one part, the effect of the other part is used for both.
    if share in (0.0, 1.0):
        of_mine = of_rest = max(of_mine, of_rest)
    n /= share * of_rest + (1 - share) * of_mine
    return wilson(share * n, n)


def remote_share(profile: Profile) -> Estimate | None:
    """The share of frees by another thread than the allocating one; None if it is not known.

    The share is exact if every free was counted as local or remote, or if no process had a second
    thread. Otherwise the interval ends of the strata are added up, which makes the interval
    a little too wide. Any share of a stratum may be remote if none of its frees was timed.
    """
    tally = profile.tally
    value = low = high = whole = untimed = 0.0
    if known := int(tally.frees.sum()):
        share = int(tally.frees[FREED.index(REMOTE)].sum()) / known
        return Estimate(share, Interval(share, share, LEVEL))
    for stratum in strata(tally):
        far = [place for place in stratum.paths if PATHS[place].kind == REMOTE]
        if not far:
            continue
        n = int(tally.timed.count[list(stratum.paths)].sum())
        operations = max(stratum.operations, n)
        whole += operations
        if not n:
            untimed += operations
            high += operations
            continue
        k = int(tally.timed.count[far].sum())
        near = [place for place in stratum.paths if place not in far]
        is_exact = n == operations and tally.timed.effect(stratum.paths) == 1
        ends = (
            Interval(k / n, k / n, LEVEL)
            if is_exact
            else sampled_share(tally.timed, k / n, n, far, near)
        )
        value += operations * k / n
        low += operations * ends.low
        high += operations * ends.high
    if are_local(profile):
        return Estimate(0.0, Interval(0.0, 0.0, LEVEL)) if whole else None
    if untimed > UNTIMED_MAX * whole or not whole:
        return None
    # The untimed frees are taken to be remote as often as the others.
    value = min(high, value * whole / (whole - untimed))
    return Estimate(value, Interval(low, high, LEVEL)).over(whole)
