"""Why one contender is slower or fatter than another: the gap between two, taken apart. Pure.

Of each round four runs are looked at: both contenders as they are, and both behind the probe. The gap is what the plain
runs show, and so are its parts, where the kernel's clock may look at these (`whereabouts`):

    own code         CPU time in the allocator
    kernel calls     CPU time in the kernel, which the allocator called
    page faults      CPU time in the kernel, which nobody called
    program's calls  CPU time elsewhere in the kernel: its calls, and its end, which gives back what it has
    the program      CPU time elsewhere: what it does with the blocks, and how these lie; all that is in processes where
                     the allocator is not is the program's, too
    unexplained      CPU time of which there is no note, or one in no file that is known

Where it may not look, allocator and program are told apart in the probed runs, by timers of their threads. Page faults
are then the plain runs' system time less the allocator's calls: the program's own calls are in it, which fall out of
the difference if they are the same under both. And what the probe changes in a program is unexplained, too. Operations,
kernel calls and waits that are told as evidence are always those of the probed runs.

Waiting in the allocator takes no CPU time: it is told beside.

Memory is that of the process with the most of it: what is asked for and not freed, which is the program's and the same
under both (the median of all trials: each is an estimate), what sizes are rounded up by, and all else that is resident
and no file's: what is free, scattered or the allocator's records, and the program's own pages, which again are the
same under both. The gap is that of the whole tree's peak.

docs/decisions/0016-a-gap-taken-apart.md and 0027-a-clock-from-outside.md say why so. Means over rounds, with Student's
t: only means add up.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cairn import units
from cairn.compare import stats
from cairn.findings import beside
from cairn.findings.waiting import QUEUES, QUEUES_ADVICE, QUEUES_SAYS, is_queueing
from cairn.model import Calls, CpuSamples, Finding, Interval, ProbeSummary, Run, Sample
from cairn.profile.estimates import WAY_OUT, Estimate
from cairn.profile.tally import WAITING as NOT_ON_PROCESSOR
from cairn.profile.tally import WAKING

LEVEL = 0.95
OWN, KERNEL, FAULTS, WAITING = "its own code", "its kernel calls", "page faults", "waiting in it"
CALLING, PROGRAM, UNEXPLAINED = "the program's calls, its end", "the program itself", "unexplained"
LIVE, SLACK, REST = "live blocks, about", "sizes rounded up", "free, scattered, records"

Of = Literal["time", "memory"]
By = Literal["clock", "probe"]
SAMPLES_LEAST = 200
"""Of CPU time, over all trials of a contender: with fewer, allocator and program are not told apart."""
NOTES_LEAST = 100
"""Of the clock's, likewise."""
GAP_LEAST, LEFT_MOST = 0.05, 0.2
"""Gaps in CPU time from so much on are told by the parts but for so much of the gap, or they are not explained."""
_EVIDENCE = 2
"""Of a part, as many differences as a person reads."""
_OF_PART = 0.1
"""Of a part: a kind of operations that holds less of it is no evidence."""
_MOSTLY = 0.5
"""Of the trials, those in which a finding was raised."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what a contender takes, and of the gap; in ns or bytes. None was not measured."""

    name: str
    own: float | None
    """The mean of the contender's runs."""
    other: float | None
    """And of those that it is compared with."""
    change: float | None
    """What it adds to the gap."""
    interval: Interval | None
    """None also where there are too few rounds."""
    evidence: tuple[str, ...] = ()
    differences: tuple[float, ...] = ()
    """Round by round; empty where it was not measured."""
    borne_out: bool = True
    """Of page faults, where the kernel's ticks tell user and system time apart: their number goes the same way."""

    @property
    def shown(self) -> bool:
        """Whether it is not 0."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high


@dataclass(frozen=True, slots=True)
class Gap:
    """What a contender takes more than another."""

    of: Of
    whole: Part
    parts: tuple[Part, ...]
    """In a fixed order, the last is what is unexplained; those that were measured add up to the whole."""
    waiting: Part | None = None
    """Beside the whole, for it takes no CPU time."""
    by: By = "probe"
    """How allocator and program were told apart."""
    because: str = ""
    """Why not by the clock."""

    @property
    def ranked(self) -> tuple[Part, ...]:
        """The causes: parts that go the same way as the whole, the largest first."""
        way = self.whole.change or 0.0
        return tuple(sorted(self._told(way), key=lambda one: -abs(one.change or 0.0)))

    @property
    def against(self) -> tuple[Part, ...]:
        """Parts that go the other way."""
        return self._told(-(self.whole.change or 0.0))

    @property
    def undecided(self) -> tuple[Part, ...]:
        """Parts that were measured and may be 0 or may not."""
        return tuple(one for one in self.parts[:-1] if one.change is not None and not one.shown)

    @property
    def contradicted(self) -> tuple[Part, ...]:
        """Parts that are shown, though what they are told by went the other way."""
        return tuple(one for one in self.parts[:-1] if one.shown and not one.borne_out)

    def _told(self, way: float) -> tuple[Part, ...]:
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
        """What the parts leave."""
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class Why:
    """The answer about a pair, of one workload."""

    contender: str
    baseline: str
    workload: int
    rounds: int
    time: Gap | None
    memory: Gap | None
    findings: tuple[Finding, ...] = ()
    """About the slower of the two, by what the other does."""
    raised: tuple[tuple[str, Finding], ...] = ()
    """Of whom, and what was found of it alone, in most of its trials: as in the trial of its middle effect."""
    why_not: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One contender in one round, as it is and behind the probe."""

    plain: Sample
    probed: Sample
    summary: ProbeSummary


def twin(name: str) -> str:
    """What a contender is called behind the probe."""
    return f"{name}+probe"


def explain(
    run: Run, samples: Sequence[Sample], contender: str, baseline: str, workload: int = 0
) -> Why:
    """The pair's gaps on one workload, by the samples that there are."""
    its = [sample for sample in samples if sample.trial.workload == workload]
    if not run.settings.why:
        return _none(
            contender,
            baseline,
            workload,
            "nothing ran behind the probe; 'cairn compare --why' does that",
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
            f"behind the probe {nothing[0]} allocated nothing"
            if nothing
            else "no round is complete"
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
        findings=_beside(pairs, time),
        raised=tuple(found),
    )


def accounted(whys: Sequence[Why]) -> tuple[int, int]:
    """How many gaps in CPU time are shown and large enough, and how many of these the parts account for."""
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
    """By round, those in which the contender has both runs."""
    runs = {(s.trial.contender, s.trial.round): s for s in samples if s.counts}
    found = {}
    for (whose, round_), plain in runs.items():
        probed = runs.get((twin(name), round_))
        if whose == name and probed is not None and probed.probe is not None:
            found[round_] = _Side(plain, probed, probed.probe)
    return found


def _mostly(trials: Sequence[Sequence[Finding]]) -> list[Finding]:
    """What was raised in most of the trials, each as in the trial of its middle effect."""
    by_name: dict[str, list[Finding]] = {}
    for raised in trials:
        for one in raised:
            by_name.setdefault(one.name, []).append(one)
    kept = [of for of in by_name.values() if len(of) > _MOSTLY * len(trials)]
    middle = [sorted(of, key=lambda one: one.effect)[(len(of) - 1) // 2] for of in kept]
    return sorted(middle, key=lambda one: -one.effect)


def _in_plain_runs(raised: Sequence[Finding], sides: Sequence[_Side]) -> list[Finding]:
    """Threads that queue meet more often where no probe is between them.

    Where the clock's share of their waking and falling asleep is more of CPU time than what the probed runs showed is
    of the threads' time, that is told. All that the allocator takes is the most of it, for a lock's line goes from
    processor to processor in its own code.
    """
    before = next((one for one in raised if one.name == QUEUES), None)
    cpu_ns = statistics.fmean(_cpu_ns(side.plain) for side in sides)
    own, in_calls = (
        statistics.fmean(_noted_ns(side, _NOTES[part]) for side in sides) for part in (OWN, KERNEL)
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
    told = (
        *(
            before.evidence
            if before
            else (f"{waits * 1000:.3g} waits per 1,000 operations behind the probe",)
        ),
        f"Without a probe between them that is what to fall asleep and to wake others takes; with its own code {most}",
    )
    now = Finding(QUEUES, QUEUES_SAYS, "CPU", share, QUEUES_ADVICE, evidence=told)
    return sorted((now, *(one for one in raised if one is not before)), key=lambda one: -one.effect)


def _beside(pairs: Pairs, time: Gap) -> tuple[Finding, ...]:
    """What is found of the slower one by the other: no more than its own code takes longer."""
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
    return beside.beside(beside.Two(mine, theirs, took, longer))


def _cpu_ns(sample: Sample) -> float:
    return sample.user_ns + sample.system_ns


def _kernel_ns(side: _Side) -> float | None:
    """CPU time of the kernel's calls: what they took by the clock, at most all system time of either run."""
    ns = side.summary.kernel_ns
    return None if ns is None else min(ns, side.probed.system_ns, side.plain.system_ns)


def _fault_ns(side: _Side) -> float | None:
    kernel = _kernel_ns(side)
    return None if kernel is None else side.plain.system_ns - kernel


def _faults(sample: Sample) -> int:
    return sample.minor_faults + sample.major_faults


@dataclass(frozen=True, slots=True)
class _Shares:
    """Of one contender: which shares of the CPU time where the probe is are the allocator's, and the probe's own."""

    inside: float
    probe: float
    asked: float = 0.0
    """Of what else the kernel did in the probed runs, the share that was the probe's: it asks for the page faults of
    operations. No more than the plain runs have less, and than the probe was found to take beside the detours."""

    @staticmethod
    def of(sides: Sequence[_Side]) -> _Shares | None:
        """Over all its trials; None where too few samples tell."""
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
        beside = sum(found.split(side)[1] - _detours_ns(side) * (1 - WAY_OUT) for side in sides)
        asked = max(0.0, min(more, beside))
        return replace(found, asked=min(1.0, asked / rest) if rest else 0.0)

    def split(self, side: _Side) -> tuple[float, float]:
        """Nanoseconds in allocator and probe, by the trial's own samples if it has any."""
        a = side.summary
        if not a.samples:
            return self.inside * a.cpu_ns, self.probe * a.cpu_ns
        return a.samples_inside / a.samples * a.cpu_ns, a.samples_probe / a.samples * a.cpu_ns


def _in_faults_ns(side: _Side, shares: _Shares | None) -> float | None:
    """Of what else the kernel did, the allocator's share, by the page faults: the rest is the program's."""
    rest, inside, faults = _rest_ns(side, shares), side.summary.faults_inside, _faults(side.probed)
    if rest is None or inside is None:
        return None
    return rest * min(1.0, inside / faults) if faults else 0.0


def _probed_rest_ns(side: _Side) -> float:
    """System time of a probed run that is neither in the allocator's calls nor on the way to them."""
    detours = _detours_ns(side)
    return (
        side.probed.system_ns
        - detours
        - min(side.summary.kernel_ns or 0.0, side.probed.system_ns - detours)
    )


def _rest_ns(side: _Side, shares: _Shares | None) -> float | None:
    """The same without what the probe asks the kernel for itself."""
    if shares is None or side.summary.kernel_ns is None:
        return None
    return _probed_rest_ns(side) * (1 - shares.asked)


def _own_ns(side: _Side, shares: _Shares | None) -> float | None:
    """In the allocator, less the kernel there."""
    kernel, in_faults = side.summary.kernel_ns, _in_faults_ns(side, shares)
    if shares is None or kernel is None or in_faults is None:
        return None
    detours = _detours_ns(side)
    kernel = min(
        kernel, side.probed.system_ns - detours
    )  # of this run: its samples are those of the probed one
    return shares.split(side)[0] - kernel - in_faults - detours * WAY_OUT


def _detours_ns(side: _Side) -> float:
    """System time of a probed run that its plain one has not.

    The way in ends in the probe, and the way out in the allocator, where timers find it.
    """
    return min(side.summary.detours_ns, float(side.probed.system_ns))


def _program_ns(side: _Side, shares: _Shares | None) -> float | None:
    """Outside of allocator and probe, less the kernel there."""
    rest, in_faults = _rest_ns(side, shares), _in_faults_ns(side, shares)
    if shares is None or rest is None or in_faults is None:
        return None
    inside, probe = shares.split(side)
    return _cpu_ns(side.probed) - inside - probe - (rest - in_faults)


_NOTES: dict[str, Callable[[CpuSamples], int]] = {
    OWN: lambda where: where.own,
    KERNEL: lambda where: where.calls,
    FAULTS: lambda where: where.faults,
    CALLING: lambda where: where.others,
    PROGRAM: lambda where: where.program,
}
"""What the parts of a plain run are by the clock, in their order."""


def _noted_ns(side: _Side, count: Callable[[CpuSamples], int]) -> float:
    """0 where the clock did not look, which its callers have made sure of."""
    where = side.plain.cpu_samples
    return 0.0 if where is None else float(count(where) * where.period_ns)


Reading = Callable[[_Side], float | None]
Pairs = Sequence[tuple[_Side, _Side]]


def _time(pairs: Pairs) -> Gap:
    because = _unseen(pairs)
    faults = _means(pairs, lambda side: _faults(side.plain))
    told = []
    for part in _by_probe(pairs) if because else _by_clock(pairs):
        change = part.change or 0.0
        if part.name == OWN:
            told.append(replace(part, evidence=_operations(pairs, change)))
        elif part.name == KERNEL:
            told.append(replace(part, evidence=_calls(pairs, change)))
        elif part.name == FAULTS:
            borne_out = not because or (faults[0] - faults[1]) * change > 0
            told.append(replace(part, evidence=_against("faults", faults), borne_out=borne_out))
        else:
            told.append(part)
    waiting = _part(WAITING, pairs, lambda side: side.summary.waiting_ns)
    waits = _means(pairs, lambda side: side.summary.waits)
    beside_it = replace(waiting, evidence=_against("waits", waits))
    gap = _gap("time", pairs, lambda side: _cpu_ns(side.plain), told, beside_it)
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
    """No interval is narrower than one note on either side: where all rounds have as many, nobody knows more."""
    notes = [side.plain.cpu_samples for pair in pairs for side in pair]
    period_ns = max(note.period_ns for note in notes if note is not None)

    return [
        _part(name, pairs, functools.partial(_noted_ns, count=count), least=period_ns)
        for name, count in _NOTES.items()
    ]


def _unseen(pairs: Pairs) -> str:
    """Why the clock does not tell; empty if it does."""
    for sides in zip(*pairs, strict=True):
        notes = [side.plain.cpu_samples for side in sides]
        if None in notes:
            return next(
                (side.plain.unseen for side in sides if side.plain.unseen), "nobody asked it"
            )
        found = sum(
            n.own + n.calls + n.faults + n.others + n.program for n in notes if n is not None
        )
        if found < NOTES_LEAST:
            return f"of {found} of its notes nothing can be said; more rounds have more"
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
    """The parts, and last what they leave."""
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
    """Nothing of it where it was not measured in all rounds. Its interval reaches `least` to both sides at least."""
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
    """Kinds of operations in which most of that difference is, by the clock."""
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
        text = f"{kind}: {here} of {units.time(own / count)} against {'' if here == there else there + ' of '}"
        found.append((abs(own - other), text + units.time(other / count_there)))
    return tuple(
        text
        for much, text in sorted(found, reverse=True)[:_EVIDENCE]
        if much >= _OF_PART * abs(whole)
    )


def _mean(pairs: Pairs, place: int, kind: str) -> tuple[float, float | None]:
    """Of a kind of operations: how many, and their time, in an average trial."""
    kinds = [pair[place].summary.kinds.get(kind) for pair in pairs]
    times = [one.total_ns if one is not None else 0.0 for one in kinds]
    count = statistics.fmean(one.count if one is not None else 0.0 for one in kinds)
    return count, None if any(ns is None for ns in times) else statistics.fmean(
        ns or 0.0 for ns in times
    )


def _calls(pairs: Pairs, whole: float) -> tuple[str, ...]:
    """Kinds of the kernel's calls in which most of that difference is."""
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
    """On a processor; of a run that was kept before that was asked of those that wait, none of them."""
    if calls.cpu_ns is not None:
        return calls.cpu_ns
    return 0.0 if kind in NOT_ON_PROCESSOR else calls.total_ns or 0.0


def _call(side: _Side, kind: str) -> Calls:
    return side.summary.calls.get(kind, Calls(0, None, 0.0))
