"""Why one contender takes more time or memory than another: their gap, split into parts.

All functions are pure.

Each round has four runs of a pair: each contender runs plain, and once more with the probe
preloaded. The gap in CPU time is the difference between the plain runs. Where the kernel allows
clock samples (`cairn.profile.cpu_samples`), they split the CPU time of these plain runs:

    allocator code                CPU time in the allocator
    allocator system calls        CPU time in system calls that the allocator made
    page faults                   CPU time in the kernel outside any system call and any interrupt.
                                  The kernel enters and leaves a page fault with interrupts turned
                                  off. This time counts for the code in which the page fault came:
                                  at most FAULTS_ELSEWHERE of the time that counts here
    interrupts                    CPU time in interrupts, whatever code they interrupt. The kernel
                                  handles the first part of an interrupt with interrupts turned off,
                                  and takes no clock sample there. The time of this first part
                                  counts as time of the interrupted code. If the kernel does not
                                  show which samples are in interrupts, they count as page faults.
    program system calls and exit
                                  other CPU time in the kernel: the program's own system calls, and
                                  its exit, where the kernel takes its memory back
    program code                  all other CPU time. It depends on where the allocator put the
                                  blocks. Processes without the allocator belong here completely.
    unexplained                   CPU time without a clock sample, or with a sample at an address
                                  that belongs to no known file

Without clock samples, the CPU timers of the probed runs separate allocator and program. "Page
faults" is then the plain runs' system time minus the allocator's system calls. It contains
interrupts and the program's own system calls, which cancel out in the difference if they are the
same under both contenders. Time that the program takes because of the probe is then part of
"unexplained". The evidence (operations, system calls, waits) always comes from the probed runs.

Waiting in the allocator takes no CPU time, so it is reported next to the parts and not as a part.

The gap in memory is the difference between the peaks of the whole process trees. Its parts:

    live blocks               bytes requested and not freed, in the process with the most live
                              bytes. The program decides this number, so both contenders get the
                              same one: the median over the trials in which they were counted. If
                              they were counted in none, it is the median of the estimates, and the
                              name of the part says so. The number is at most the resident memory
                              of this process in the trial in which it was the least.
    size rounding             usable size of these blocks beyond the requested bytes
    free memory and metadata  all other resident memory of this process that belongs to no file:
                              free and fragmented memory, the allocator's records, and the program's
                              own pages, which are the same under both contenders. If the resident
                              memory in some trial is clearly less than the live blocks, the program
                              does not use all bytes of its blocks. Unused bytes that are resident
                              then belong to this part, and its name says so
    copied after a fork       pages that one process shared with another since a fork, and copied
                              because one of the two wrote to them
    other processes, shared memory
                              memory of the other processes that is neither shared nor copied, and
                              shared memory

The last two parts are left out if every run was one process. They, and the memory of the process
with the most memory, come from the plain runs: the launcher divides the tree's memory among its
processes whenever it is higher than before.

Parts of CPU time and memory are never negative; only their differences are. A part that was not
measured in some run of one contender has no difference, and the other parts keep theirs. Its
difference is then in the unexplained part, which is the whole minus all measured parts.

All numbers are means over rounds, because only means add up. Intervals use Student's t.
docs/decisions/0016-parts-from-probed-runs.md and 0027-parts-from-the-kernel-clock.md give the
reasons.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from cairn import units
from cairn.clock_samples import CpuSamples
from cairn.compare.refusals import refusals, says
from cairn.findings import layout, slow_operations
from cairn.findings.kernel import FAULTS_ELSEWHERE
from cairn.findings.thresholds import is_likely
from cairn.findings.waiting import PARALLEL_LEAST, AtomicCosts, contended
from cairn.model import (
    Calls,
    Finding,
    Interval,
    Run,
    Sample,
    twin,
)
from cairn.profile.estimates import Estimate
from cairn.profile.processors import number_in
from cairn.why.costly_functions import FunctionCost, costliest
from cairn.why.costly_locks import LockCosts, lock_costs
from cairn.why.memory_parts import memory_gap
from cairn.why.parts import (
    CALLING,
    FAULTS,
    INTERRUPTS,
    KERNEL,
    LEVEL,
    OWN,
    PROGRAM,
    WAITING,
    By,
    Gap,
    Pairs,
    Part,
    Side,
    against,
    cpu_ns,
    divided,
    faults_of,
    means,
    part_of,
)
from cairn.why.plain_runs import cpu_of, in_plain_runs
from cairn.why.probe_parts import by_probe
from cairn.why.simulated_gap import SimulatedGap

CLOCK_SAMPLES_LEAST = 100
"""The contender with more clock samples must have this many in all its plain runs together. The
other contender may have fewer: it then takes little CPU time in every part."""
GAP_LEAST, LEFT_MOST = 0.05, 0.2
"""A gap in CPU time counts if it is at least GAP_LEAST of the baseline's CPU time. It is accounted
for if at most LEFT_MOST of it is unexplained."""
_EVIDENCE = 2
"""At most this many differences are quoted as evidence for one part, to keep the text short."""
_OF_PART = 0.1
"""A kind of operations must make up this share of a part to be quoted as evidence."""
_FITTING = 2.0
"""A kind of operations is not quoted if its difference is more than this multiple of the part."""
_MOSTLY = 0.5
"""A finding is kept if it was made in more than this share of the trials."""


class Why(Struct, frozen=True):
    """Why two contenders differ on one workload."""

    contender: str
    baseline: str
    workload: int
    rounds: int
    time: Gap | None
    memory: Gap | None
    findings: tuple[Finding, ...] = ()
    """Findings about the slower of the two contenders, from the comparison with the other one."""
    raised: tuple[tuple[str, Finding], ...] = ()
    """Findings from the profile of one contender alone, each with the contender's name. Each was
    made in most trials of that contender, and is quoted from the trial with the median effect."""
    why_not: str = ""
    """Why there is no answer, as a sentence without a full stop. Empty if there is an answer."""
    unrecorded: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    """By contender: the processes of its probed runs that the probe could not record, by program
    and reason as in `Sample.unrecorded`. Only contenders with such processes are in it."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """By contender: CPU time as a share of the life times of all threads, or of the time of the
    processors if that is less. Only contenders for which it is known are in it."""
    functions: Mapping[str, tuple[FunctionCost, ...]] = field(default_factory=dict)
    """By contender: the functions in which the allocator's code takes the most CPU time. Empty if
    the parts do not come from clock samples."""
    locks: Mapping[str, LockCosts] = field(default_factory=dict)
    """By contender: the allocator's locks. Only contenders that take locks are in it."""
    layout: tuple[str, Finding] | None = None
    """The contender with more CPU time in the program's own code, and the finding about the layout
    of its blocks that explains this. None if that time is not shown to differ, or if there is no
    such finding."""
    processes: float = 1.0
    """The largest mean number of processes of a plain run, of both contenders."""
    simulated: SimulatedGap | None = None
    """The gap in simulated misses; None if they were not simulated."""
    unsimulated: str = ""
    """Why the simulation failed, as a sentence without a full stop. Empty if it did not fail, or if
    the run has no simulation."""


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
    for one, other in ((contender, baseline), (baseline, contender)):
        if number := refusals(its, (one,), other).get(one):
            told = f"under {one}, the program {says(number, other)}, so it may have done less"
            return _none(contender, baseline, workload, told)
    sides = [_sides(its, name) for name in (contender, baseline)]
    pairs = [
        (sides[0][round_], sides[1][round_]) for round_ in sorted(sides[0].keys() & sides[1].keys())
    ]
    unrecorded = {
        name: of for name in (contender, baseline) if (of := _unrecorded(its, twin(name)))
    }
    if not pairs:
        empty = {sample.trial.contender for sample in its if sample.counts and sample.probe is None}
        nothing = [name for name in (contender, baseline) if twin(name) in empty]
        reason = (
            f"the probe saw no allocation under {nothing[0]}" if nothing else "no round is complete"
        )
        why = _none(contender, baseline, workload, reason)
        return replace(why, unrecorded=unrecorded)
    time = _time(pairs)
    here = number_in(run.settings.cpus) if run.settings.cpus else run.host.cpus
    both = {
        name: [pair[place] for pair in pairs] for place, name in enumerate((contender, baseline))
    }
    busy = {name: share for name, its in both.items() if (share := _busy(its, here)) is not None}
    found = [
        (name, raised)
        for name, its in both.items()
        for raised in _mostly([side.summary.findings for side in its])
    ]
    if time.by == "clock":
        found = [
            (name, raised)
            for name, its in both.items()
            for raised in in_plain_runs(
                [one for whose, one in found if whose == name], its, busy.get(name, 1.0)
            )
        ]
    return Why(
        contender=contender,
        baseline=baseline,
        workload=workload,
        rounds=len(pairs),
        time=time,
        memory=memory_gap(pairs),
        processes=max(_processes(its) for its in both.values()),
        findings=_slow_operations(pairs, time),
        raised=tuple(found),
        unrecorded=unrecorded,
        busy=busy,
        functions={
            name: costly
            for name, its in both.items()
            if time.by == "clock" and (costly := costliest(its))
        },
        locks={name: costs for name, its in both.items() if (costs := lock_costs(its)) is not None},
        layout=_layout(pairs, time, (contender, baseline)),
    )


def _busy(sides: Sequence[Side], here: int) -> float | None:
    """CPU time as a share of the life times of all threads; None if these are not known.

    If there are more threads than processors, it is the share of the time of the processors. `here`
    is their number on this machine, for runs that do not know how many the program may use.
    """
    lived = statistics.fmean(
        min(side.summary.threads_ns, (side.summary.processors or here) * side.plain.wall_ns)
        for side in sides
    )
    took = statistics.fmean(cpu_ns(side.plain) for side in sides)
    return min(1.0, took / lived) if lived else None


def accounted(whys: Sequence[Why]) -> tuple[int, int]:
    """The number of gaps in CPU time that count, and how many of these are accounted for.

    A gap counts if it is shown and at least GAP_LEAST. It is accounted for if at most LEFT_MOST of
    it is unexplained.
    """
    large = [
        why.time
        for why in whys
        if why.time is not None
        and why.time.is_shown
        and abs(why.time.whole.change or 0.0) >= GAP_LEAST * (why.time.whole.other or 0.0)
    ]
    left = [abs(gap.unexplained.change or 0.0) / abs(gap.whole.change or 1.0) for gap in large]
    return len(large), sum(1 for share in left if share <= LEFT_MOST)


def _none(contender: str, baseline: str, workload: int, why_not: str) -> Why:
    return Why(contender, baseline, workload, 0, None, None, why_not=why_not)


def _unrecorded(samples: Sequence[Sample], name: str) -> dict[str, dict[str, int]]:
    """The processes that the probe could not record in the rounds of a contender, added up."""
    total: dict[str, Counter[str]] = {}
    for sample in samples:
        if sample.counts and sample.trial.contender == name:
            for program, reasons in sample.unrecorded.items():
                total.setdefault(program, Counter()).update(reasons)
    return {program: dict(reasons) for program, reasons in total.items()}


def _sides(samples: Sequence[Sample], name: str) -> dict[int, Side]:
    """By round: the contender's two runs. A round is left out unless both of its runs count."""
    runs = {(s.trial.contender, s.trial.round): s for s in samples if s.counts}
    found = {}
    for (whose, round_), plain in runs.items():
        probed = runs.get((twin(name), round_))
        if whose == name and probed is not None and probed.probe is not None:
            found[round_] = Side(plain, probed, probed.probe)
    return found


def _processes(sides: Sequence[Side]) -> float:
    """The mean number of processes of the plain runs. A run of an earlier version counts as one."""
    endings = [side.plain.endings or {} for side in sides]
    return statistics.fmean(
        max(1, sum(number for each in of.values() for number in each.values())) for of in endings
    )


def _mostly(trials: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The findings made in most trials, the largest effect first.

    Each finding is taken from the trial in which it had its median effect. Findings without an
    effect are left out: the comparison itself tells whether the program runs slower.
    """
    by_name: dict[str, list[Finding]] = {}
    for raised in trials:
        for one in raised:
            if not is_likely(one):
                by_name.setdefault(one.name, []).append(one)
    kept = [of for of in by_name.values() if len(of) > _MOSTLY * len(trials)]
    middle = [sorted(of, key=lambda one: one.effect)[(len(of) - 1) // 2] for of in kept]
    return sorted(middle, key=lambda one: -one.effect)


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
    took = statistics.fmean(cpu_ns(pair[slower].plain) for pair in pairs)
    ends = (
        sorted(abs(end) for end in (own.interval.low, own.interval.high))
        if own.interval is not None
        else []
    )
    # A thread that spins takes CPU time in the allocator's code, but it waits and does no work.
    spun = statistics.fmean(one.spun_ns for one in mine) - statistics.fmean(
        one.spun_ns for one in theirs
    )
    waits = _contended(pairs, slower, took)
    less = max(0.0, spun, waits.effect * took if waits is not None else 0.0)
    more, low, high = (max(0.0, ns - less) for ns in (abs(own.change or 0.0), *ends))
    longer = Estimate(more, Interval(low, high, LEVEL))
    sign = 1 if slower == 0 else -1
    changes = [sign * (part.change or 0.0) for part in time.parts if part.name in (KERNEL, FAULTS)]
    saved = sum(-change for change in changes if change < 0)
    slow = slow_operations.find(slow_operations.Two(mine, theirs, took, longer, saved))
    found = (waits, *slow) if waits is not None else slow
    return tuple(sorted(found, key=lambda one: -one.effect))


def _contended(pairs: Pairs, slower: int, took_ns: float) -> Finding | None:
    """The finding that atomic instructions of the slower contender wait for cache lines.

    None if the runs have no clock samples, or if the program's threads do not run side by side.
    """
    sides = [(pair[slower], pair[1 - slower]) for pair in pairs]
    mine = [one for one, _ in sides]
    lived = statistics.fmean(one.summary.threads_ns / one.probed.wall_ns for one in mine)
    samples = [one.plain.cpu_samples for both in sides for one in both]
    if lived < PARALLEL_LEAST or None in samples:
        return None
    part = part_of("", sides, _atomic_ns)
    found = [
        one
        for side in mine
        if side.plain.cpu_samples is not None
        for one in side.plain.cpu_samples.atomics
    ]
    if part.interval is None or not found or not took_ns:
        return None
    operations = [
        statistics.fmean(one.summary.operations for one in each)
        for each in zip(*sides, strict=True)
    ]
    if not all(operations):
        return None
    total = sum(one.atomic + one.pauses for one in found)
    change = Estimate(part.change or 0.0, part.interval)
    return contended(
        AtomicCosts(
            change.over(took_ns, most=1.0),
            (part.own or 0.0) / operations[0],
            (part.other or 0.0) / operations[1],
            max(found, key=lambda one: one.atomic + one.pauses),
            sum(one.pauses for one in found) / total,
        )
    )


def _atomic_ns(side: Side) -> float | None:
    """CPU time at atomic instructions and pause instructions of the allocator, in the plain run."""
    where = side.plain.cpu_samples
    if where is None:
        return None
    return float(sum(one.atomic + one.pauses for one in where.atomics) * where.period_ns)


def program_estimate(time: Gap) -> Estimate | None:
    """The difference in the program's own CPU time, as a share of the slower one's CPU time.

    The time that may belong to page faults is subtracted. None if the rest is not shown, or if some
    part of CPU time was not measured.
    """
    part = without_faults(time, next(part for part in time.parts if part.name == PROGRAM))
    if not part.shown or part.interval is None or time.unmeasured:
        return None
    took = time.whole.own if (part.change or 0.0) > 0 else time.whole.other
    if not took:
        return None
    ends = sorted(abs(end) for end in (part.interval.low, part.interval.high))
    longer = Estimate(abs(part.change or 0.0), Interval(ends[0], ends[1], LEVEL))
    return longer.over(took, most=1.0)


def without_faults(time: Gap, part: Part) -> Part:
    """The part without the difference that page faults can have caused in it.

    If page faults can have caused all of it, the result is a difference of 0.
    """
    faults = next((one for one in time.parts if one.name == FAULTS), None)
    if faults is None or not faults.shown or not faults.borne_out:
        return part
    change, moved = part.change, FAULTS_ELSEWHERE * (faults.change or 0.0)
    if change is None or part.interval is None or change * moved <= 0:
        return part
    if abs(moved) >= abs(change):
        return replace(part, change=0.0, interval=Interval(0.0, 0.0, LEVEL))
    low, high = part.interval.low - moved, part.interval.high - moved
    return replace(part, change=change - moved, interval=Interval(low, high, LEVEL))


def _layout(pairs: Pairs, time: Gap, names: tuple[str, str]) -> tuple[str, Finding] | None:
    """The contender under which the program itself runs slower, and the reason; None if not known.

    The effect is the one of `program_estimate`.
    """
    effect = program_estimate(time)
    if effect is None:
        return None
    part = next(part for part in time.parts if part.name == PROGRAM)
    slower = 0 if (part.change or 0.0) > 0 else 1
    slow, fast = ([pair[place].summary for pair in pairs] for place in (slower, 1 - slower))
    found = layout.compared(slow, fast, effect)
    return (names[slower], found) if found is not None else None


_SAMPLE_COUNTS: dict[str, Callable[[CpuSamples], int | None]] = {
    OWN: lambda where: where.own,
    KERNEL: lambda where: where.calls,
    FAULTS: lambda where: where.faults,
    INTERRUPTS: lambda where: where.interrupts,
    CALLING: lambda where: where.others,
    PROGRAM: lambda where: where.program,
}
"""The number of clock samples of each part of a plain run, in the order of the parts."""


def _faults_and_interrupts(where: CpuSamples) -> int:
    return where.faults + (where.interrupts or 0)


def _sampled_ns(side: Side, count: Callable[[CpuSamples], int | None]) -> float | None:
    """CPU time by the plain run's clock samples; None if this part is not measured.

    The caller has made sure that there are samples.
    """
    where = side.plain.cpu_samples
    number = 0 if where is None else count(where)
    return None if number is None or where is None else float(number * where.period_ns)


def _time(pairs: Pairs) -> Gap:
    because = _why_no_clock(pairs)
    faults = means(pairs, lambda side: faults_of(side.plain))
    parts = []
    for part in by_probe(pairs) if because else _by_clock(pairs):
        change = part.change or 0.0
        if part.name == OWN:
            parts.append(replace(part, evidence=_operations(pairs, change)))
        elif part.name == KERNEL:
            parts.append(replace(part, evidence=_calls(pairs, change)))
        elif part.name == FAULTS:
            borne_out = not because or (faults[0] - faults[1]) * change > 0
            parts.append(replace(part, evidence=against("faults", faults), borne_out=borne_out))
        else:
            parts.append(part)
    waiting = part_of(WAITING, pairs, lambda side: side.summary.waiting_ns)
    waits = means(pairs, lambda side: side.summary.waits)
    waiting = replace(waiting, evidence=against("waits", waits))
    gap = divided("time", pairs, lambda side: cpu_ns(side.plain), parts, waiting)
    holds = (
        "CPU time that the program takes because of the probe"
        if because
        else "CPU time without a clock sample, or with a sample at an address of no known file"
    )
    merged = "they need clock samples" if because else _why_merged(pairs)
    by: By = "probe" if because else "clock"
    return replace(gap, by=by, because=because, merged=merged, holds=holds)


def _by_clock(pairs: Pairs) -> list[Part]:
    """The parts from clock samples.

    Each interval reaches at least one sample period to both sides. Equal counts in all rounds would
    otherwise give an interval of width 0.
    """
    samples = [side.plain.cpu_samples for pair in pairs for side in pair]
    period_ns = max(one.period_ns for one in samples if one is not None)
    counts = dict(_SAMPLE_COUNTS)
    if _why_merged(pairs):
        counts |= {FAULTS: _faults_and_interrupts, INTERRUPTS: lambda _: None}
    return [
        part_of(name, pairs, functools.partial(_sampled_ns, count=count), least=period_ns)
        for name, count in counts.items()
    ]


def _why_merged(pairs: Pairs) -> str:
    """Why some run's interrupts are not known, as the end of a sentence; empty if all are."""
    samples = [side.plain.cpu_samples for pair in pairs for side in pair]
    return next(
        (
            one.interrupts_unseen or "an older version of cairn made these runs"
            for one in samples
            if one is not None and one.interrupts is None
        ),
        "",
    )


def _why_no_clock(pairs: Pairs) -> str:
    """Why clock samples cannot split the gap, as the end of a sentence; empty if they can."""
    counts = {}
    for sides in zip(*pairs, strict=True):
        samples = [side.plain.cpu_samples for side in sides]
        if None in samples:
            return next(
                (side.plain.unseen for side in sides if side.plain.unseen),
                "no clock samples were requested",
            )
        counts[sides[0].plain.trial.contender] = sum(
            one.placed for one in samples if one is not None
        )
    name, most = max(counts.items(), key=lambda one: one[1])
    if most >= CLOCK_SAMPLES_LEAST:
        return ""
    return (
        f"only {units.counted(most, 'clock sample')} of {name} ({CLOCK_SAMPLES_LEAST} needed); use "
        "more rounds (-r) or a longer run"
    )


def _operations(pairs: Pairs, whole: float) -> tuple[str, ...]:
    """Returns evidence: the kinds of operations that contribute most to the difference `whole`.

    The times are those of the probed runs, without system calls, which are another part. A kind is
    left out if its difference is more than _FITTING times `whole`: the probe or waiting threads
    then made its operations so long that their times say nothing about the plain runs.
    """
    mine, theirs = ([side.summary for side in sides] for sides in zip(*pairs, strict=True))
    found = []
    for kind in dict.fromkeys(name for one in (*mine, *theirs) for name in one.kinds):
        here = slow_operations.count_and_time(mine, kind)
        there = slow_operations.count_and_time(theirs, kind)
        if here is None or there is None:
            continue
        longer = math.prod(here) - math.prod(there)
        if longer * whole <= 0:
            continue
        count, other = (units.count(round(count)) for count, _ in (here, there))
        text = (
            f"{kind}: {count} × {units.time(here[1])} against "
            f"{'' if count == other else other + ' × '}{units.time(there[1])}"
        )
        found.append((abs(longer), text))
    return tuple(
        text
        for much, text in sorted(found, reverse=True)[:_EVIDENCE]
        if _OF_PART * abs(whole) <= much <= _FITTING * abs(whole)
    )


def _calls(pairs: Pairs, whole: float) -> tuple[str, ...]:
    """Returns evidence: the kinds of system calls that contribute most to the difference.

    whole: the difference.
    """
    found: list[tuple[float, str]] = []
    for kind in dict.fromkeys(
        name for pair in pairs for side in pair for name in side.summary.calls
    ):
        own, other = ([_call(side, kind) for side in sides] for sides in zip(*pairs, strict=True))
        longer = statistics.fmean(cpu_of(kind, one) for one in own) - statistics.fmean(
            cpu_of(kind, one) for one in other
        )
        if longer * whole > 0:
            counts = (
                statistics.fmean(one.count for one in own),
                statistics.fmean(one.count for one in other),
            )
            found.append((abs(longer), " ".join(against(kind, counts))))
    return tuple(text for _, text in sorted(found, reverse=True)[:_EVIDENCE])


def _call(side: Side, kind: str) -> Calls:
    return side.summary.calls.get(kind, Calls(0, None, 0.0))
