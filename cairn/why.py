"""Why one contender is slower or fatter than another: the gap between two, taken apart. Pure.

Of each block four runs are looked at: both contenders as they are, and both behind the probe. The gap is what the plain
runs show; its parts are what the probed runs show, in which allocator and program are told apart by timers of the
threads' CPU time. So the parts need not add up to the gap, and what is missing is told as unexplained:

    own code       CPU time in the allocator, less that of the kernel there
    kernel calls   within the allocator; those that wait are no CPU time, and a part of their own
    page faults    the plain runs' system time less those calls. The program's own calls are in it: they are the same
                   under both, and fall out of the difference
    waiting        in the allocator, on locks and in the kernel: the gap is then one of CPU time and waiting
    the program    CPU time in user mode outside the allocator: what it does with the blocks, and how these lie
    unexplained    what the probe changes in the program's user time, and whatever else

Memory is that of the process with the most of it: what is asked for and not freed, which is the program's and the same
under both (the median of all trials: each is an estimate), what sizes are rounded up by, and all else that is resident:
what is free, scattered or the allocator's records, and the program's own pages, which again are the same under both.
The gap is that of the whole tree's peak.

docs/decisions/0016-a-gap-taken-apart.md says why so. Means over blocks, with Student's t: only means add up.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from cairn import stats, units
from cairn.findings import beside
from cairn.findings.finding import Finding
from cairn.model import Account, Interval, Raised, Run, Sample

LEVEL = 0.95
OWN, KERNEL, FAULTS, WAITING = "its own code", "its kernel calls", "page faults", "waiting in it"
PROGRAM, UNEXPLAINED = "the program itself", "unexplained"
LIVE, SLACK, REST = "live blocks", "sizes rounded up", "free, scattered, records"

Of = Literal["time", "memory"]
_EVIDENCE = 2
"""Of a part, as many differences as a person reads."""
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
    """None also where there are too few blocks."""
    evidence: tuple[str, ...] = ()

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

    @property
    def ranked(self) -> tuple[Part, ...]:
        """The causes: parts that are shown and go the same way as the whole, the largest first."""
        way = self.whole.change or 0.0
        causes = [one for one in self.parts if one.shown and one.name != UNEXPLAINED and (one.change or 0.0) * way > 0]
        return tuple(sorted(causes, key=lambda one: -abs(one.change or 0.0)))

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
    blocks: int
    time: Gap | None
    memory: Gap | None
    findings: tuple[Finding, ...] = ()
    """About the slower of the two, by what the other does."""
    raised: tuple[tuple[str, Raised], ...] = ()
    """Of whom, and what was found of it alone, in most of its trials; `effect` is the median."""
    why_not: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One contender in one block, as it is and behind the probe."""

    plain: Sample
    probed: Sample
    account: Account


def twin(name: str) -> str:
    """What a contender is called behind the probe."""
    return f"{name}+probe"


def explain(run: Run, samples: Sequence[Sample], contender: str, baseline: str, workload: int = 0) -> Why:
    """The pair's gaps on one workload, by the samples that there are."""
    its = [sample for sample in samples if sample.trial.workload == workload]
    if not run.settings.why:
        return _none(contender, baseline, workload, "nothing ran behind the probe; 'cairn compare --why' does that")
    for name in (contender, baseline, twin(contender), twin(baseline)):
        failures = [sample.failure for sample in its if sample.trial.contender == name and sample.failure]
        if failures:
            return _none(contender, baseline, workload, f"{name} failed: {failures[0]}")
    sides = [{s.trial.block: side for s, side in _sides(its, name)} for name in (contender, baseline)]
    blocks = sorted(sides[0].keys() & sides[1].keys())
    pairs = [(sides[0][block], sides[1][block]) for block in blocks]
    if not pairs:
        return _none(contender, baseline, workload, "no block is complete")
    time = _time(pairs)
    slower = 0 if (time.whole.change or 0.0) > 0 else 1
    accounts = [[pair[place].account for pair in pairs] for place in (slower, 1 - slower)]
    took = statistics.fmean(_cpu_ns(pair[slower].plain) for pair in pairs)
    found = [
        (name, raised)
        for name, place in ((contender, 0), (baseline, 1))
        for raised in _mostly([pair[place].account.findings for pair in pairs])
    ]
    return Why(
        contender=contender,
        baseline=baseline,
        workload=workload,
        blocks=len(pairs),
        time=time,
        memory=_memory(pairs),
        findings=beside.beside(accounts[0], accounts[1], took),
        raised=tuple(found),
    )


def _none(contender: str, baseline: str, workload: int, why_not: str) -> Why:
    return Why(contender, baseline, workload, 0, None, None, why_not=why_not)


def _sides(samples: Sequence[Sample], name: str) -> list[tuple[Sample, _Side]]:
    """The blocks in which the contender has both runs."""
    runs = {(s.trial.contender, s.trial.block): s for s in samples if s.counts}
    found = []
    for (whose, block), plain in runs.items():
        probed = runs.get((twin(name), block))
        if whose == name and probed is not None and probed.account is not None:
            found.append((plain, _Side(plain, probed, probed.account)))
    return found


def _mostly(trials: Sequence[Sequence[Raised]]) -> list[Raised]:
    """What was raised in most of the trials, each with the median of its effects."""
    by_name: dict[str, list[Raised]] = {}
    for raised in trials:
        for one in raised:
            by_name.setdefault(one.name, []).append(one)
    kept = [of for of in by_name.values() if len(of) > _MOSTLY * len(trials)]
    middle = [
        Raised(of[0].name, of[0].says, of[0].of, statistics.median(one.effect for one in of), of[0].advice)
        for of in kept
    ]
    return sorted(middle, key=lambda one: -one.effect)


def _cpu_ns(sample: Sample) -> float:
    return sample.user_ns + sample.system_ns


def _kernel_ns(side: _Side) -> float | None:
    """CPU time of the kernel's calls: what they took by the clock, at most the run's whole system time."""
    ns = side.account.kernel_ns
    return None if ns is None else min(ns, side.probed.system_ns)


def _inside_ns(side: _Side) -> float | None:
    """CPU time in the allocator, the kernel's there included."""
    account = side.account
    return account.samples_inside / account.samples * _cpu_ns(side.probed) if account.samples else None


def _faults_inside_ns(side: _Side) -> float | None:
    """Of the system time that is no call of the allocator's, its share by the number of page faults."""
    kernel, inside, faults = _kernel_ns(side), side.account.faults_inside, side.account.faults
    if kernel is None or inside is None:
        return None
    return (side.probed.system_ns - kernel) * min(1.0, inside / faults) if faults else 0.0


def _own_ns(side: _Side) -> float | None:
    inside, kernel, faults = _inside_ns(side), _kernel_ns(side), _faults_inside_ns(side)
    return None if inside is None or kernel is None or faults is None else inside - kernel - faults


def _fault_ns(side: _Side) -> float | None:
    kernel = _kernel_ns(side)
    return None if kernel is None else side.plain.system_ns - kernel


def _waiting_ns(side: _Side) -> float | None:
    return side.account.waiting_ns


def _program_ns(side: _Side) -> float | None:
    own, account = _own_ns(side), side.account
    if own is None:
        return None
    return side.probed.user_ns - account.samples_probe / account.samples * _cpu_ns(side.probed) - own


def _time_ns(side: _Side) -> float | None:
    """CPU time, and waiting in the allocator where that is known."""
    return _cpu_ns(side.plain) + (_waiting_ns(side) or 0.0)


Reading = Callable[[_Side], float | None]
Pairs = Sequence[tuple[_Side, _Side]]


def _time(pairs: Pairs) -> Gap:
    parts: list[tuple[str, Reading, tuple[str, ...]]] = [
        (OWN, _own_ns, _operations(pairs)),
        (KERNEL, _kernel_ns, _calls(pairs)),
        (FAULTS, _fault_ns, _counted(pairs, "faults", lambda s: s.plain.minor_faults + s.plain.major_faults)),
        (WAITING, _waiting_ns, _counted(pairs, "waits", lambda s: s.account.waits)),
        (PROGRAM, _program_ns, ()),
    ]
    return _gap("time", pairs, _time_ns, parts)


def _memory(pairs: Pairs) -> Gap | None:
    def peak(side: _Side) -> float | None:
        return side.plain.memory.peak_bytes

    live = [a.live_bytes for pair in pairs for a in (pair[0].account, pair[1].account) if a.live_bytes is not None]
    asked = statistics.median(live) if live else None

    def slack(side: _Side) -> float | None:
        a = side.account
        if a.slack_bytes is None or not a.live_bytes or asked is None:
            return None
        return asked * a.slack_bytes / a.live_bytes

    def rest(side: _Side) -> float | None:
        resident, rounded = side.account.resident_bytes, slack(side)
        return None if resident is None or rounded is None or asked is None else resident - asked - rounded

    if any(peak(side) is None for pair in pairs for side in pair):
        return None
    parts: list[tuple[str, Reading, tuple[str, ...]]] = [
        (LIVE, lambda _: asked, ()),
        (SLACK, slack, ()),
        (REST, rest, ()),
    ]
    return _gap("memory", pairs, peak, parts)


def _gap(of: Of, pairs: Pairs, whole: Reading, parts: Sequence[tuple[str, Reading, tuple[str, ...]]]) -> Gap:
    """The parts, and last what they leave."""
    differences = _differences(pairs, whole)
    assert differences is not None
    left = list(differences)
    found = []
    for name, reading, evidence in parts:
        of_part = _differences(pairs, reading)
        if of_part is not None:
            left = [rest - one for rest, one in zip(left, of_part, strict=True)]
        found.append(_part(name, pairs, reading, of_part, evidence))
    rest = Part(UNEXPLAINED, None, None, statistics.fmean(left), _interval(left))
    return Gap(of, _part("", pairs, whole, differences, ()), (*found, rest))


def _differences(pairs: Pairs, reading: Reading) -> list[float] | None:
    """Block by block; None where it was not measured in all of them."""
    both = [(reading(own), reading(other)) for own, other in pairs]
    known = [own - other for own, other in both if own is not None and other is not None]
    return known if len(known) == len(both) else None


def _part(
    name: str, pairs: Pairs, reading: Reading, differences: Sequence[float] | None, evidence: tuple[str, ...]
) -> Part:
    if differences is None:
        return Part(name, None, None, None, None)
    own, other = (statistics.fmean(reading(side) or 0.0 for side in sides) for sides in zip(*pairs, strict=True))
    return Part(name, own, other, statistics.fmean(differences), _interval(differences), evidence)


def _interval(differences: Sequence[float]) -> Interval | None:
    if len(differences) < stats.BLOCKS_LEAST:
        return None
    middle, half = statistics.fmean(differences), stats.mean_half_width(differences)
    return Interval(middle - half, middle + half, LEVEL)


def _counted(pairs: Pairs, what: str, number: Callable[[_Side], float]) -> tuple[str, ...]:
    own, other = (statistics.fmean(number(side) for side in sides) for sides in zip(*pairs, strict=True))
    return (f"{units.count(round(own))} {what} against {units.count(round(other))}",) if own or other else ()


def _operations(pairs: Pairs) -> tuple[str, ...]:
    """Kinds of operations in which most of the difference is."""
    found = []
    for kind in dict.fromkeys(name for pair in pairs for side in pair for name in side.account.kinds):
        count, own = _mean(pairs, 0, kind)
        count_there, other = _mean(pairs, 1, kind)
        if own is None or other is None or not count or not count_there:
            continue
        each = f"{units.time(own / count)} against {units.time(other / count_there)}"
        found.append((abs(own - other), f"{kind}: {units.count(round(count))} of {each}"))
    return tuple(text for _, text in sorted(found, reverse=True)[:_EVIDENCE])


def _mean(pairs: Pairs, place: int, kind: str) -> tuple[float, float | None]:
    """Of a kind of operations: how many, and their time, in an average trial."""
    kinds = [pair[place].account.kinds.get(kind) for pair in pairs]
    times = [one.total_ns if one is not None else 0.0 for one in kinds]
    count = statistics.fmean(one.count if one is not None else 0.0 for one in kinds)
    return count, None if any(ns is None for ns in times) else statistics.fmean(ns or 0.0 for ns in times)


def _calls(pairs: Pairs) -> tuple[str, ...]:
    """Kinds of the kernel's calls in which most of the difference is."""
    found = []
    for kind in dict.fromkeys(name for pair in pairs for side in pair for name in side.account.calls):
        counts, times = [], []
        for sides in zip(*pairs, strict=True):
            calls = [side.account.calls.get(kind) for side in sides]
            counts.append(statistics.fmean(one.count if one else 0 for one in calls))
            times.append(statistics.fmean((one.total_ns or 0.0) if one else 0.0 for one in calls))
        text = f"{kind} {units.count(round(counts[0]))} against {units.count(round(counts[1]))}"
        found.append((abs(times[0] - times[1]), text))
    return tuple(text for _, text in sorted(found, reverse=True)[:_EVIDENCE])
