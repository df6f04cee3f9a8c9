"""Why one contender takes more time or memory than another: their gap, split into parts.

All functions are pure.

Each round has four runs of a pair: each contender runs plain, and once more with the probe
preloaded. The gap in CPU time is the difference between the plain runs. Where the kernel allows
clock samples (`cairn.profile.cpu_samples`), they split the CPU time of these plain runs:

    allocator code                CPU time in the allocator
    allocator system calls        CPU time in system calls that the allocator made
    page faults                   CPU time in the kernel outside any system call: page faults and
                                  interrupts
    program system calls and exit
                                  other CPU time in the kernel: the program's own system calls, and
                                  its exit, where the kernel takes its memory back
    program code                  all other CPU time. It depends on where the allocator put the
                                  blocks. Processes without the allocator belong here completely.
    unexplained                   CPU time without a clock sample, or with a sample at an address
                                  that belongs to no known file

Without clock samples, the CPU timers of the probed runs separate allocator and program. "Page
faults" is then the plain runs' system time minus the allocator's system calls. It contains the
program's own system calls, which cancel out in the difference if they are the same under both
contenders. Time that the program takes because of the probe is then part of "unexplained". The
evidence (operations, system calls, waits) always comes from the probed runs.

Waiting in the allocator takes no CPU time, so it is reported next to the parts and not as a part.

The gap in memory is the difference between the peaks of the whole process trees. Its parts come
from the process with the most live bytes:

    live blocks               bytes requested and not freed. The program decides this number, so
                              both contenders get the same one. It is the median over all trials,
                              because each trial only has an estimate.
    size rounding             usable size of the live blocks beyond the requested bytes
    free memory and metadata  all other resident memory that belongs to no file: free and fragmented
                              memory, the allocator's records, and the program's own pages, which
                              are the same under both contenders

All numbers are means over rounds, because only means add up. Intervals use Student's t.
docs/decisions/0016-parts-from-probed-runs.md and 0027-parts-from-the-kernel-clock.md give the
reasons.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cairn import units
from cairn.compare import stats
from cairn.findings import slow_operations
from cairn.findings.waiting import QUEUES, QUEUES_ADVICE, QUEUES_SAYS, is_queueing
from cairn.model import Calls, CpuSamples, Finding, Interval, ProbeSummary, Run, Sample
from cairn.profile.estimates import WAY_OUT, Estimate
from cairn.profile.tally import WAITING as NOT_ON_PROCESSOR
from cairn.profile.tally import WAKING

LEVEL = 0.95
OWN, KERNEL, FAULTS = "allocator code", "allocator system calls", "page faults"
CALLING, PROGRAM = "program system calls and exit", "program code"
UNEXPLAINED, WAITING = "unexplained", "waiting in the allocator"
LIVE, SLACK, REST = "live blocks (estimate)", "size rounding", "free memory and metadata"

Of = Literal["time", "memory"]
By = Literal["clock", "probe"]
SAMPLES_LEAST = 200
"""CPU timer samples that all trials of a contender need together to separate allocator and
program."""
CLOCK_SAMPLES_LEAST = 100
"""Clock samples that all plain runs of a contender need together."""
GAP_LEAST, LEFT_MOST = 0.05, 0.2
"""A gap in CPU time counts if it is at least GAP_LEAST of the baseline's CPU time. It is accounted
for if at most LEFT_MOST of it is unexplained."""
_EVIDENCE = 2
"""At most this many differences are quoted as evidence for one part, to keep the text short."""
_OF_PART = 0.1
"""A kind of operations must make up this share of a part to be quoted as evidence."""
_MOSTLY = 0.5
"""A finding is kept if it was made in more than this share of the trials."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the gap, in ns or bytes. None means not measured."""

    name: str
    own: float | None
    """Mean over the contender's runs."""
    other: float | None
    """Mean over the baseline's runs."""
    change: float | None
    """The contribution of this part to the gap: `own - other`."""
    interval: Interval | None
    """The interval of `change`. It is also None if there are too few rounds."""
    evidence: tuple[str, ...] = ()
    differences: tuple[float, ...] = ()
    """`own - other` of each round; empty if not measured."""
    borne_out: bool = True
    """False if page faults took more time while their number fell, or less time while it grew. Only
    a gap without clock samples is checked for this. Its user and system times come from the
    kernel's ticks, which are coarse, so the time of page faults may be wrong."""

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference between a contender and its baseline, and the parts of it."""

    of: Of
    whole: Part
    parts: tuple[Part, ...]
    """In a fixed order; the unexplained part is the last. All measured parts add up to the
    whole."""
    waiting: Part | None = None
    """Waiting time takes no CPU time, so it is no part of the whole."""
    by: By = "probe"
    """What separated allocator and program: clock samples, or the probe's CPU timers."""
    because: str = ""
    """Why there are no clock samples, as the end of a sentence; empty if `by` is "clock"."""

    @property
    def ranked(self) -> tuple[Part, ...]:
        """The causes: parts with the same sign as the whole, the largest first."""
        way = self.whole.change or 0.0
        return tuple(sorted(self._with_sign(way), key=lambda one: -abs(one.change or 0.0)))

    @property
    def against(self) -> tuple[Part, ...]:
        """Parts with the opposite sign of the whole, in the order of `parts`."""
        return self._with_sign(-(self.whole.change or 0.0))

    @property
    def undecided(self) -> tuple[Part, ...]:
        """Measured parts whose interval includes 0, or that have no interval."""
        return tuple(one for one in self.parts[:-1] if one.change is not None and not one.shown)

    @property
    def contradicted(self) -> tuple[Part, ...]:
        """Page faults, if their time is shown to differ but their number changed the other way."""
        return tuple(one for one in self.parts[:-1] if one.shown and not one.borne_out)

    def _with_sign(self, way: float) -> tuple[Part, ...]:
        return tuple(
            one
            for one in self.parts
            if one.shown
            and one.borne_out
            and one.name != UNEXPLAINED
            and (one.change or 0.0) * way > 0
        )

    @property
    def unexplained(self) -> Part:
        """The whole minus all other parts."""
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class Why:
    """Why two contenders differ on one workload."""

    contender: str
    baseline: str
    workload: int
    rounds: int
    time: Gap | None
    memory: Gap | None
    findings: tuple[Finding, ...] = ()
    """Findings about the slower of the two, from the comparison with the other."""
    raised: tuple[tuple[str, Finding], ...] = ()
    """Findings from the profile of one contender alone, each with the contender's name. Each was
    made in most trials of that contender, and is quoted from the trial with the median effect."""
    why_not: str = ""
    """Why there is no answer, as a sentence without a full stop. Empty if there is an answer."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One contender in one round: its plain run, its probed run, and what the probe counted."""

    plain: Sample
    probed: Sample
    summary: ProbeSummary


def twin(name: str) -> str:
    """The name under which a contender runs with the probe preloaded."""
    return f"{name}+probe"


def explain(
    run: Run, samples: Sequence[Sample], contender: str, baseline: str, workload: int = 0
) -> Why:
    """Splits the gaps of a pair on one workload, from the samples so far.

    Returns a Why without gaps, and with `why_not`, in three cases: the run has no probed runs; a
    plain or probed run of one of the two contenders failed; or no round is complete.
    """
    its = [sample for sample in samples if sample.trial.workload == workload]
    if not run.settings.why:
        return _none(
            contender,
            baseline,
            workload,
            "the run has no probed runs; 'cairn compare --why' makes them",
        )
    failed = {
        sample.trial.contender: sample.failure
        for sample in its
        if sample.failure
        and sample.trial.contender in (contender, baseline, twin(contender), twin(baseline))
    }
    if failed:
        return _none(
            contender,
            baseline,
            workload,
            "; ".join(f"{name} {why}" for name, why in failed.items()),
        )
    sides = [_sides(its, name) for name in (contender, baseline)]
    pairs = [
        (sides[0][round_], sides[1][round_]) for round_ in sorted(sides[0].keys() & sides[1].keys())
    ]
    if not pairs:
        empty = {sample.trial.contender for sample in its if sample.counts and sample.probe is None}
        nothing = [name for name in (contender, baseline) if twin(name) in empty]
        reason = (
            f"the probe saw no allocation under {nothing[0]}" if nothing else "no round is complete"
        )
        return _none(contender, baseline, workload, reason)
    time = _time(pairs)
    found = [
        (name, raised)
        for name, place in ((contender, 0), (baseline, 1))
        for raised in _mostly([pair[place].summary.findings for pair in pairs])
    ]
    if time.by == "clock":
        found = [
            (name, raised)
            for name, place in ((contender, 0), (baseline, 1))
            for raised in _in_plain_runs(
                [one for whose, one in found if whose == name], [pair[place] for pair in pairs]
            )
        ]
    return Why(
        contender=contender,
        baseline=baseline,
        workload=workload,
        rounds=len(pairs),
        time=time,
        memory=_memory(pairs),
        findings=_slow_operations(pairs, time),
        raised=tuple(found),
    )


def accounted(whys: Sequence[Why]) -> tuple[int, int]:
    """The number of gaps in CPU time that count, and how many of these are accounted for.

    A gap counts if it is shown and at least GAP_LEAST. It is accounted for if at most LEFT_MOST of
    it is unexplained.
    """
    large = [
        why.time
        for why in whys
        if why.time is not None
        and why.time.whole.shown
        and abs(why.time.whole.change or 0.0) >= GAP_LEAST * (why.time.whole.other or 0.0)
    ]
    left = [abs(gap.unexplained.change or 0.0) / abs(gap.whole.change or 1.0) for gap in large]
    return len(large), sum(1 for share in left if share <= LEFT_MOST)


def _none(contender: str, baseline: str, workload: int, why_not: str) -> Why:
    return Why(contender, baseline, workload, 0, None, None, why_not=why_not)


def _sides(samples: Sequence[Sample], name: str) -> dict[int, _Side]:
    """The contender's rounds, by number, in which both the plain and the probed run count."""
    runs = {(s.trial.contender, s.trial.round): s for s in samples if s.counts}
    found = {}
    for (whose, round_), plain in runs.items():
        probed = runs.get((twin(name), round_))
        if whose == name and probed is not None and probed.probe is not None:
            found[round_] = _Side(plain, probed, probed.probe)
    return found


def _mostly(trials: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The findings made in most trials, the largest effect first.

    Each finding is taken from the trial in which it had its median effect.
    """
    by_name: dict[str, list[Finding]] = {}
    for raised in trials:
        for one in raised:
            by_name.setdefault(one.name, []).append(one)
    kept = [of for of in by_name.values() if len(of) > _MOSTLY * len(trials)]
    middle = [sorted(of, key=lambda one: one.effect)[(len(of) - 1) // 2] for of in kept]
    return sorted(middle, key=lambda one: -one.effect)


def _in_plain_runs(raised: Sequence[Finding], sides: Sequence[_Side]) -> list[Finding]:
    """Replaces the finding `queues` of the probed runs if the plain runs show a larger effect.

    The probe's detours keep threads apart, so threads wait for each other less often in probed
    runs. In the plain runs, clock samples give the CPU time in the allocator's system calls. In the
    probed runs, the probe finds which share of this time belongs to calls that wait or wake
    threads. The product of the two is the effect in the plain runs, as a share of CPU time. The
    evidence also gives an upper limit: all CPU time in the allocator, because its code also waits
    for the cache line of the lock.
    """
    before = next((one for one in raised if one.name == QUEUES), None)
    cpu_ns = statistics.fmean(_cpu_ns(side.plain) for side in sides)
    own, in_calls = (
        statistics.fmean(_sampled_ns(side, _SAMPLE_COUNTS[part]) for side in sides)
        for part in (OWN, KERNEL)
    )
    calls = [
        (kind, _cpu_of(kind, one)) for side in sides for kind, one in side.summary.calls.items()
    ]
    all_ns = sum(ns for _, ns in calls)
    queueing = (
        sum(ns for kind, ns in calls if kind in (*NOT_ON_PROCESSOR, WAKING)) / all_ns
        if all_ns
        else 0.0
    )
    share = in_calls * queueing / cpu_ns if cpu_ns else 0.0
    operations = sum(side.summary.operations for side in sides)
    waits = sum(side.summary.waits for side in sides) / operations if operations else 0.0
    if share <= (before.effect if before is not None else 0.0) or not is_queueing(share, waits):
        return list(raised)
    most = units.percent(min(1.0, max(share, (own + in_calls) / cpu_ns)), signed=False)
    evidence = (
        *(
            before.evidence
            if before
            else (f"{waits * 1000:.3g} waits per 1,000 operations in the probed runs",)
        ),
        "In the plain runs, system calls that wait or wake other threads take this share; together "
        f"with the allocator's own code it is {most}",
    )
    now = Finding(QUEUES, QUEUES_SAYS, "CPU", share, QUEUES_ADVICE, evidence=evidence)
    return sorted((now, *(one for one in raised if one is not before)), key=lambda one: -one.effect)


def _slow_operations(pairs: Pairs, time: Gap) -> tuple[Finding, ...]:
    """Findings about the slower contender from the comparison with the faster one.

    Empty if the gap or the difference in allocator code is not shown, or if the two have opposite
    signs. No finding is larger than the difference in allocator code.
    """
    own = next(part for part in time.parts if part.name == OWN)
    if (
        not time.whole.shown
        or not own.shown
        or (own.change or 0.0) * (time.whole.change or 0.0) <= 0
    ):
        return ()
    slower = 0 if (time.whole.change or 0.0) > 0 else 1
    mine, theirs = ([pair[place].summary for pair in pairs] for place in (slower, 1 - slower))
    took = statistics.fmean(_cpu_ns(pair[slower].plain) for pair in pairs)
    ends = (
        sorted(abs(end) for end in (own.interval.low, own.interval.high))
        if own.interval is not None
        else []
    )
    longer = Estimate(abs(own.change or 0.0), Interval(ends[0], ends[1], LEVEL))
    return slow_operations.find(slow_operations.Two(mine, theirs, took, longer))


def _cpu_ns(sample: Sample) -> float:
    return sample.user_ns + sample.system_ns


def _kernel_ns(side: _Side) -> float | None:
    """CPU time of the allocator's system calls; None if not all of them were seen.

    The probe times system calls by the wall clock. Waiting for a processor, or for the kernel's
    lock of the address space, makes the measured time longer than the CPU time. So the result is
    limited to the system time of the probed run, and to that of the plain run.
    """
    ns = side.summary.kernel_ns
    return None if ns is None else min(ns, side.probed.system_ns, side.plain.system_ns)


def _fault_ns(side: _Side) -> float | None:
    """System time of the plain run outside the allocator's system calls."""
    kernel = _kernel_ns(side)
    return None if kernel is None else side.plain.system_ns - kernel


def _faults(sample: Sample) -> int:
    return sample.minor_faults + sample.major_faults


@dataclass(frozen=True, slots=True)
class _Shares:
    """How the CPU time of one contender's probed processes divides, by the probe's CPU timers."""

    inside: float
    """Share in the allocator."""
    probe: float
    """Share in the probe."""
    reading_faults: float = 0.0
    """Share of the probed runs' remaining system time (`_probed_rest_ns`) in which the probe read
    the page fault counts of operations. The time of these readings is taken as the smaller of two
    upper bounds. One is how much longer this system time is in probed runs than in plain runs. The
    other is the CPU time that the timers found in the probe outside its detours."""

    @staticmethod
    def of(sides: Sequence[_Side]) -> _Shares | None:
        """The shares over all trials of a contender; None below SAMPLES_LEAST samples."""
        samples = sum(side.summary.samples for side in sides)
        if samples < SAMPLES_LEAST:
            return None
        each = (
            sum(s.summary.samples_inside for s in sides),
            sum(s.summary.samples_probe for s in sides),
        )
        found = _Shares(each[0] / samples, each[1] / samples)
        rest = sum(_probed_rest_ns(side) for side in sides)
        more = rest - sum(_fault_ns(side) or 0.0 for side in sides)
        in_probe = sum(found.split(side)[1] - _detours_ns(side) * (1 - WAY_OUT) for side in sides)
        reading_faults = max(0.0, min(more, in_probe))
        return replace(found, reading_faults=min(1.0, reading_faults / rest) if rest else 0.0)

    def split(self, side: _Side) -> tuple[float, float]:
        """Nanoseconds of one trial in allocator and probe.

        If the trial has no samples of its own, the shares over all trials are used.
        """
        a = side.summary
        if not a.samples:
            return self.inside * a.cpu_ns, self.probe * a.cpu_ns
        return a.samples_inside / a.samples * a.cpu_ns, a.samples_probe / a.samples * a.cpu_ns


def _in_faults_ns(side: _Side, shares: _Shares | None) -> float | None:
    """The allocator's part of `_rest_ns`, by its share of the page faults."""
    rest, inside, faults = _rest_ns(side, shares), side.summary.faults_inside, _faults(side.probed)
    if rest is None or inside is None:
        return None
    return rest * min(1.0, inside / faults) if faults else 0.0


def _probed_rest_ns(side: _Side) -> float:
    """System time of a probed run outside the allocator's system calls and the probe's detours."""
    detours = _detours_ns(side)
    return (
        side.probed.system_ns
        - detours
        - min(side.summary.kernel_ns or 0.0, side.probed.system_ns - detours)
    )


def _rest_ns(side: _Side, shares: _Shares | None) -> float | None:
    """`_probed_rest_ns` without the time in which the probe read page fault counts."""
    if shares is None or side.summary.kernel_ns is None:
        return None
    return _probed_rest_ns(side) * (1 - shares.reading_faults)


def _own_ns(side: _Side, shares: _Shares | None) -> float | None:
    """CPU time in the allocator outside the kernel."""
    kernel, in_faults = side.summary.kernel_ns, _in_faults_ns(side, shares)
    if shares is None or kernel is None or in_faults is None:
        return None
    detours = _detours_ns(side)
    # The timer samples come from the probed run. So `kernel` may not exceed the system time of the
    # probed run. The system time of the plain run does not matter here.
    kernel = min(kernel, side.probed.system_ns - detours)
    return shares.split(side)[0] - kernel - in_faults - detours * WAY_OUT


def _detours_ns(side: _Side) -> float:
    """System time that the probed run spends on the probe's interception of system calls.

    A detour enters the probe and returns to the allocator. Of its CPU timer samples, the share
    WAY_OUT lies in the allocator and the rest in the probe.
    """
    return min(side.summary.detours_ns, float(side.probed.system_ns))


def _program_ns(side: _Side, shares: _Shares | None) -> float | None:
    """CPU time outside allocator and probe, and outside the kernel."""
    rest, in_faults = _rest_ns(side, shares), _in_faults_ns(side, shares)
    if shares is None or rest is None or in_faults is None:
        return None
    inside, probe = shares.split(side)
    return _cpu_ns(side.probed) - inside - probe - (rest - in_faults)


_SAMPLE_COUNTS: dict[str, Callable[[CpuSamples], int]] = {
    OWN: lambda where: where.own,
    KERNEL: lambda where: where.calls,
    FAULTS: lambda where: where.faults,
    CALLING: lambda where: where.others,
    PROGRAM: lambda where: where.program,
}
"""The number of clock samples of each part of a plain run, in the order of the parts."""


def _sampled_ns(side: _Side, count: Callable[[CpuSamples], int]) -> float:
    """CPU time by the plain run's clock samples. The caller has made sure that there are some."""
    where = side.plain.cpu_samples
    return 0.0 if where is None else float(count(where) * where.period_ns)


Reading = Callable[[_Side], float | None]
Pairs = Sequence[tuple[_Side, _Side]]


def _time(pairs: Pairs) -> Gap:
    because = _why_no_clock(pairs)
    faults = _means(pairs, lambda side: _faults(side.plain))
    parts = []
    for part in _by_probe(pairs) if because else _by_clock(pairs):
        change = part.change or 0.0
        if part.name == OWN:
            parts.append(replace(part, evidence=_operations(pairs, change)))
        elif part.name == KERNEL:
            parts.append(replace(part, evidence=_calls(pairs, change)))
        elif part.name == FAULTS:
            borne_out = not because or (faults[0] - faults[1]) * change > 0
            parts.append(replace(part, evidence=_against("faults", faults), borne_out=borne_out))
        else:
            parts.append(part)
    waiting = _part(WAITING, pairs, lambda side: side.summary.waiting_ns)
    waits = _means(pairs, lambda side: side.summary.waits)
    waiting = replace(waiting, evidence=_against("waits", waits))
    gap = _gap("time", pairs, lambda side: _cpu_ns(side.plain), parts, waiting)
    return replace(gap, by="probe" if because else "clock", because=because)


def _by_probe(pairs: Pairs) -> list[Part]:
    shares = {id(side): _Shares.of(sides) for sides in zip(*pairs, strict=True) for side in sides}
    return [
        _part(OWN, pairs, lambda side: _own_ns(side, shares[id(side)])),
        _part(KERNEL, pairs, _kernel_ns),
        _part(FAULTS, pairs, _fault_ns),
        _part(PROGRAM, pairs, lambda side: _program_ns(side, shares[id(side)])),
    ]


def _by_clock(pairs: Pairs) -> list[Part]:
    """The parts from clock samples.

    Each interval reaches at least one sample period to both sides. Equal counts in all rounds would
    otherwise give an interval of width 0.
    """
    samples = [side.plain.cpu_samples for pair in pairs for side in pair]
    period_ns = max(one.period_ns for one in samples if one is not None)

    return [
        _part(name, pairs, functools.partial(_sampled_ns, count=count), least=period_ns)
        for name, count in _SAMPLE_COUNTS.items()
    ]


def _why_no_clock(pairs: Pairs) -> str:
    """Why clock samples cannot split the gap, as the end of a sentence; empty if they can."""
    for sides in zip(*pairs, strict=True):
        samples = [side.plain.cpu_samples for side in sides]
        if None in samples:
            return next(
                (side.plain.unseen for side in sides if side.plain.unseen),
                "no clock samples were requested",
            )
        found = sum(
            one.own + one.calls + one.faults + one.others + one.program
            for one in samples
            if one is not None
        )
        if found < CLOCK_SAMPLES_LEAST:
            return (
                f"only {units.counted(found, 'clock sample')} of {sides[0].plain.trial.contender} "
                f"({CLOCK_SAMPLES_LEAST} needed); use more rounds (-r) or a longer run"
            )
    return ""


def _memory(pairs: Pairs) -> Gap | None:
    memories = [side.plain.memory for pair in pairs for side in pair]
    if (
        any(memory.peak_bytes is None for memory in memories)
        or len({memory.method for memory in memories}) > 1
    ):
        return None
    live = [
        a.live_bytes
        for pair in pairs
        for a in (pair[0].summary, pair[1].summary)
        if a.live_bytes is not None
    ]
    asked = statistics.median(live) if live else None

    def slack(side: _Side) -> float | None:
        a = side.summary
        if a.slack_bytes is None or not a.live_bytes or asked is None:
            return None
        return asked * a.slack_bytes / a.live_bytes

    def rest(side: _Side) -> float | None:
        resident, rounded = side.summary.resident_bytes, slack(side)
        return (
            None
            if resident is None or rounded is None or asked is None
            else resident - asked - rounded
        )

    parts = (
        _part(LIVE, pairs, lambda _: asked),
        _part(SLACK, pairs, slack),
        _part(REST, pairs, rest),
    )
    return _gap("memory", pairs, lambda side: side.plain.memory.peak_bytes, parts)


def _gap(
    of: Of, pairs: Pairs, whole: Reading, parts: Sequence[Part], waiting: Part | None = None
) -> Gap:
    """The gap with its parts, and the unexplained part as the last."""
    gap = _part("", pairs, whole)
    left = list(gap.differences)
    for part in parts:
        left = [
            rest - one
            for rest, one in zip(left, part.differences or [0.0] * len(left), strict=True)
        ]
    rest = Part(UNEXPLAINED, None, None, statistics.fmean(left), _interval(left))
    return Gap(of, gap, (*parts, rest), waiting)


def _part(name: str, pairs: Pairs, reading: Reading, least: float = 0.0) -> Part:
    """The means of `reading` over all rounds, and the interval of their difference.

    If any run lacks the reading, the part is not measured and its numbers are None. The interval
    reaches at least `least` to both sides.
    """
    both = [(reading(own), reading(other)) for own, other in pairs]
    known = [(own, other) for own, other in both if own is not None and other is not None]
    if len(known) < len(both):
        return Part(name, None, None, None, None)
    differences = tuple(own - other for own, other in known)
    own, other = (statistics.fmean(numbers) for numbers in zip(*known, strict=True))
    return Part(
        name,
        own,
        other,
        statistics.fmean(differences),
        _interval(differences, least),
        differences=differences,
    )


def _interval(differences: Sequence[float], least: float = 0.0) -> Interval | None:
    if len(differences) < stats.ROUNDS_LEAST:
        return None
    middle, half = statistics.fmean(differences), max(least, stats.mean_half_width(differences))
    return Interval(middle - half, middle + half, LEVEL)


def _means(pairs: Pairs, number: Callable[[_Side], float]) -> tuple[float, float]:
    own, other = (
        statistics.fmean(number(side) for side in sides) for sides in zip(*pairs, strict=True)
    )
    return own, other


def _against(what: str, counts: tuple[float, float]) -> tuple[str, ...]:
    return (
        (f"{units.count(round(counts[0]))} {what} against {units.count(round(counts[1]))}",)
        if any(counts)
        else ()
    )


def _operations(pairs: Pairs, whole: float) -> tuple[str, ...]:
    """Returns evidence: the kinds of operations that contribute most to the difference `whole`.

    The times are those of the probed runs.
    """
    found = []
    for kind in dict.fromkeys(
        name for pair in pairs for side in pair for name in side.summary.kinds
    ):
        (count, own), (count_there, other) = _mean(pairs, 0, kind), _mean(pairs, 1, kind)
        if (
            own is None
            or other is None
            or not count
            or not count_there
            or (own - other) * whole <= 0
        ):
            continue
        here, there = units.count(round(count)), units.count(round(count_there))
        theirs = "" if here == there else there + " × "
        text = (
            f"{kind}: {here} × {units.time(own / count)} against "
            f"{theirs}{units.time(other / count_there)}"
        )
        found.append((abs(own - other), text))
    return tuple(
        text
        for much, text in sorted(found, reverse=True)[:_EVIDENCE]
        if much >= _OF_PART * abs(whole)
    )


def _mean(pairs: Pairs, place: int, kind: str) -> tuple[float, float | None]:
    """Means over trials, for one kind of operations: their number, and their total time in ns.

    The time is None if it was not measured in some trial.
    """
    kinds = [pair[place].summary.kinds.get(kind) for pair in pairs]
    times = [one.total_ns if one is not None else 0.0 for one in kinds]
    count = statistics.fmean(one.count if one is not None else 0.0 for one in kinds)
    return count, None if any(ns is None for ns in times) else statistics.fmean(
        ns or 0.0 for ns in times
    )


def _calls(pairs: Pairs, whole: float) -> tuple[str, ...]:
    """Returns evidence: the kinds of system calls that contribute most to `whole`, a difference."""
    found: list[tuple[float, str]] = []
    for kind in dict.fromkeys(
        name for pair in pairs for side in pair for name in side.summary.calls
    ):
        own, other = ([_call(side, kind) for side in sides] for sides in zip(*pairs, strict=True))
        longer = statistics.fmean(_cpu_of(kind, one) for one in own) - statistics.fmean(
            _cpu_of(kind, one) for one in other
        )
        if longer * whole > 0:
            counts = (
                statistics.fmean(one.count for one in own),
                statistics.fmean(one.count for one in other),
            )
            found.append((abs(longer), " ".join(_against(kind, counts))))
    return tuple(text for _, text in sorted(found, reverse=True)[:_EVIDENCE])


def _cpu_of(kind: str, calls: Calls) -> float:
    """CPU time in ns of one kind of system calls.

    Runs that older versions of cairn stored lack the CPU time of calls that wait. A missing time
    counts as 0.
    """
    if calls.cpu_ns is not None:
        return calls.cpu_ns
    return 0.0 if kind in NOT_ON_PROCESSOR else calls.total_ns or 0.0


def _call(side: _Side, kind: str) -> Calls:
    return side.summary.calls.get(kind, Calls(0, None, 0.0))
