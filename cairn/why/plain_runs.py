"""Corrects findings of probed runs by the clock samples of the plain runs.

All functions are pure. The probe makes system calls longer and keeps threads apart. So the time in
system calls and page faults, and the waiting of threads, differ from those of a run without it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from cairn import units
from cairn.clock_samples import CpuSamples
from cairn.findings.kernel import (
    FAULTS_ELSEWHERE,
    PAGE_BYTES,
    PROTECTING,
    QUEUEING,
    RETURNING,
    RETURNS,
    SHARE_LEAST,
    WAITS_ALONE,
    WITH_FAULTS,
    charged,
)
from cairn.findings.thresholds import of_threads
from cairn.findings.waiting import QUEUES, QUEUES_ADVICE, QUEUES_SAYS, is_queueing
from cairn.model import Calls, Finding, Interval, ProbeSummary
from cairn.profile.estimates import wilson
from cairn.profile.tally import WAITING as NOT_ON_PROCESSOR
from cairn.profile.tally import WAKING
from cairn.why.parts import LEVEL, Side, cpu_ns


def in_plain_runs(raised: Sequence[Finding], sides: Sequence[Side], busy: float) -> list[Finding]:
    """Corrects findings about system calls by the plain runs. The largest effect comes first.

    `_limited` limits findings about the CPU time of system calls and page faults. One with less
    than SHARE_LEAST left is dropped. The finding `queues` of the probed runs is replaced if the
    plain runs show a larger effect. Both effects are compared as shares of the threads' time. As a
    share of CPU time, the effect in the plain runs may have a larger percentage and still not be
    the larger effect. It is then only evidence.

    The probe's detours keep threads apart, so threads wait for each other less often in probed
    runs. In the plain runs, clock samples give the CPU time in the allocator's system calls. In the
    probed runs, the probe finds which share of this time belongs to calls that wait or wake
    threads. The product of the two is the effect in the plain runs, as a share of CPU time. The
    evidence also gives an upper limit: all CPU time in the allocator, because its code also waits
    for the cache line of the lock.

    busy: as in `of_threads`.
    """
    before = next((one for one in raised if one.name == QUEUES), None)
    took_ns = statistics.fmean(cpu_ns(side.plain) for side in sides)
    own, in_calls = _mean_ns(sides, lambda one: one.own), _mean_ns(sides, lambda one: one.calls)
    calls = [one for side in sides for one in side.summary.calls.items()]
    waited = sum(_waits(side.summary) for side in sides)
    queueing = _queueing(calls, waited)
    share = in_calls * queueing / took_ns if took_ns else 0.0
    # A single thread has no other thread to queue with.
    alone = any(one.name == WAITS_ALONE for one in raised)
    if took_ns:
        limited = _limited(raised, sides, in_calls / took_ns)
        raised = [
            bounded
            for bounded, one in zip(limited, raised, strict=True)
            if bounded is one or bounded.effect >= SHARE_LEAST
        ]
    operations = sum(side.summary.operations for side in sides)
    waits = waited / operations if operations else 0.0
    least = before.effect if before is not None else 0.0
    if alone or share <= least or not is_queueing(share, waits):
        return sorted(raised, key=lambda one: -one.effect)
    most = units.percent(min(1.0, max(share, (own + in_calls) / took_ns)), signed=False)
    told = (
        "In the plain runs, system calls that wait or wake other threads take {}; together with "
        f"the allocator's own code it is {most}"
    )
    if before is None:
        counted = f"{waits * 1000:.3g} waits per 1,000 operations in the probed runs"
        before = Finding(QUEUES, QUEUES_SAYS, "CPU", 0.0, QUEUES_ADVICE, evidence=(counted,))
    if share * busy > of_threads(before.of, before.effect, busy):
        evidence = (*before.evidence, told.format("this share"))
        now = Finding(QUEUES, before.says, "CPU", share, before.advice, evidence=evidence)
    else:
        of_cpu = f"{units.percent(share, signed=False)} of the CPU time"
        now = replace(before, evidence=(*before.evidence, told.format(of_cpu)))
    return sorted((now, *(one for one in raised if one is not before)), key=lambda one: -one.effect)


def _mean_ns(sides: Sequence[Side], count: Callable[[CpuSamples], int]) -> float:
    """The mean CPU time of the clock samples that `count` returns, over the plain runs."""
    known = [side.plain.cpu_samples for side in sides]
    return statistics.fmean(0 if one is None else count(one) * one.period_ns for one in known)


def _queueing(calls: Sequence[tuple[str, Calls]], waits: int) -> float:
    """The share of the CPU time of these system calls that waits, or wakes waiting threads.

    Of the wakes, no more count than there are waits. Further wakes are for the allocator's own
    threads. So the share is 0 if there are no waits.
    """
    wakes = sum(one.count for kind, one in calls if kind == WAKING)
    woken = min(1.0, waits / wakes) if wakes else 0.0
    all_ns = sum(cpu_of(kind, one) for kind, one in calls)
    waiting_ns = sum(
        cpu_of(kind, one) * (woken if kind == WAKING else 1.0 if kind in QUEUEING else 0.0)
        for kind, one in calls
    )
    return waiting_ns / all_ns if all_ns else 0.0


def _waits(summary: ProbeSummary) -> int:
    """The number of waits in system calls or for pthread locks, without yields.

    The larger of the two numbers is in `ProbeSummary.waits`. In runs of earlier versions, yields
    are among the waits in system calls.
    """
    calls = summary.calls.items()
    with_yields = sum(one.count for kind, one in calls if kind in NOT_ON_PROCESSOR)
    in_calls = sum(one.count for kind, one in calls if kind in QUEUEING)
    return in_calls if summary.waits == with_yields else max(in_calls, summary.waits)


def _limited(raised: Sequence[Finding], sides: Sequence[Side], calls: float) -> list[Finding]:
    """Limits the effects of findings about CPU time in system calls and page faults.

    The probe measures wall time in system calls, so waiting for a processor makes them longer. In
    the plain runs, clock samples show the CPU time in all of the allocator's system calls, and the
    CPU time in all page faults. Of the first, a finding gets the part that its own kinds of calls
    have in the probed runs. Of the second, it gets the part that its page faults have there. The
    time of page faults counts as at least the upper end of the interval for 0 samples, because
    short ones can get no sample by chance.

    calls: the CPU time in the allocator's system calls, as a share of all CPU time of plain runs.
    """
    names = {one.name for one in raised}
    took_ns = statistics.fmean(cpu_ns(side.plain) for side in sides)
    in_faults = _mean_ns(sides, lambda one: one.faults) / took_ns
    known = [side.plain.cpu_samples for side in sides]
    samples = sum(one.placed for one in known if one is not None)
    unseen = wilson(0, samples).high if samples else 1.0
    faults = max(in_faults * (1 + FAULTS_ELSEWHERE), unseen)
    found = []
    for one in raised:
        kinds = charged(one.name, names)
        if one.of != "CPU" or not kinds:
            found.append(one)
            continue
        least = share = calls * _part_of_calls(sides, kinds)
        if one.name in WITH_FAULTS and not one.measured:
            share = min(1.0, share + faults * _repeated(sides, one.name))
        found.append(_at_most(one, least, share))
    return found


def _part_of_calls(sides: Sequence[Side], kinds: Sequence[str]) -> float:
    """The part of the CPU time in the allocator's system calls that these kinds have.

    It comes from the probed runs. The result is 1 if these have no CPU time in such calls.
    """
    calls = [one for side in sides for one in side.summary.calls.items()]
    whole = sum(cpu_of(kind, one) for kind, one in calls)
    part = sum(cpu_of(kind, one) for kind, one in calls if kind in kinds)
    return part / whole if part else 1.0


def _repeated(sides: Sequence[Side], name: str) -> float:
    """The most page faults that the cause of a finding can have made, as a share of all.

    It comes from the probed runs. `faults_again` explains which page faults are repeated.
    """
    kinds = (*RETURNING, "brk") if name == RETURNS else (PROTECTING,)
    all_faults = again = 0.0
    for side in sides:
        known = side.summary
        changed = sum(one.bytes or 0 for kind, one in known.calls.items() if kind in kinds)
        first_touches = (known.resident_bytes or 0) // PAGE_BYTES
        all_faults += known.faults
        again += min(max(0, known.faults - first_touches), changed // PAGE_BYTES)
    return again / all_faults if all_faults else 1.0


def _at_most(finding: Finding, least: float, most: float) -> Finding:
    """Limits the low end of the interval to `least`, and effect and high end to `most`."""
    ends = finding.interval or Interval(finding.effect, finding.effect, LEVEL)
    if ends.low <= least and max(finding.effect, ends.high) <= most:
        return finding
    within = Interval(min(ends.low, least), min(ends.high, most), LEVEL)
    return replace(finding, effect=min(finding.effect, most), interval=within)


def cpu_of(kind: str, calls: Calls) -> float:
    """CPU time in ns of one kind of system calls.

    Runs that older versions of cairn stored lack the CPU time of calls that wait. A missing time
    counts as 0.
    """
    if calls.cpu_ns is not None:
        return calls.cpu_ns
    return 0.0 if kind in NOT_ON_PROCESSOR else calls.total_ns or 0.0
