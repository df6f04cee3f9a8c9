"""Makes the summary of a profile that is stored with a trial, for `gap` and `prediction`.

All functions are pure.
"""

from __future__ import annotations

from cairn.findings import find
from cairn.findings.kernel import QUEUEING
from cairn.findings.memory import resident_slack
from cairn.model import Calls, Operations, ProbeSummary
from cairn.profile import metrics
from cairn.profile.estimates import TOTAL, clock, cpu_ns, lines
from cairn.profile.lock_table import lock_table, thread_ns
from cairn.profile.tables import (
    faults_inside,
    kernel_cpu_ns,
    kernel_lines,
    kernel_ns,
    lock_lines,
    sees_all_calls,
)
from cairn.profile.tally import SPINNING, Profile, lasting
from cairn.why import costly_locks


def summarized(profile: Profile) -> ProbeSummary:
    """Returns the numbers of a profile that can explain a difference in time or memory."""
    tally, kernel, locks = profile.tally, kernel_lines(profile), lock_lines(profile)
    # Waiting on a spin lock takes CPU time, which is part of the allocator code.
    contended = [one for one in locks if one.contended and one.name != SPINNING]
    # A yield takes CPU time, which is part of the system calls.
    queueing = [one for one in kernel if one.name in QUEUEING]
    in_kernel = kernel_ns(queueing, waiting=True)
    for_locks = [one.wait_ns for one in contended]
    inside = faults_inside(profile)
    samples_inside = min(int(tally.cpu_samples_inside.sum()), tally.cpu_samples)
    live, slack = _live(profile)
    ticking = clock(tally)
    detours_ns = tally.detour_ticks * ticking.ns_per_tick if ticking is not None else 0.0
    detour_ns = detours_ns / max(1, int(tally.kernel.count.sum()))
    table = lock_table(profile)
    return ProbeSummary(
        locks=costly_locks.summarized(table),
        locks_taken=table.locks if table is not None else None,
        locks_waited_for=table.waited_for if table is not None else None,
        operations=profile.operations,
        cpu_ns=cpu_ns(profile) or 0,
        samples=tally.cpu_samples,
        samples_inside=samples_inside,
        samples_probe=min(tally.cpu_samples_probe, tally.cpu_samples - samples_inside),
        kinds={
            line.name: Operations(
                line.operations,
                line.timed,
                line.total_ns.value if line.total_ns is not None else None,
                line.quantiles[0],
                line.kernel_ns,
                line.calling * detour_ns,
            )
            for line in lines(profile)
            if line.name != TOTAL
        },
        calls={one.name: Calls(one.count, one.bytes, one.total_ns, one.cpu_ns) for one in kernel},
        kernel_ns=kernel_cpu_ns(kernel) if _sees_kernel(profile) else None,
        waiting_ns=None
        if in_kernel is None or None in for_locks or not _sees_kernel(profile)
        else max(in_kernel, sum(ns or 0.0 for ns in for_locks)),
        waits=max(
            sum(one.count for one in queueing),
            sum(one.contended for one in contended),
        ),
        faults=sum(
            process.minor_faults + process.major_faults for process in lasting(profile.processes)
        ),
        faults_inside=inside.value if inside is not None else None,
        live_bytes=live,
        slack_bytes=slack,
        resident_bytes=max(
            filter(None, (moment.resident_bytes for moment in profile.moments)), default=None
        ),
        live_counted=profile.largest.live_counted,
        threads_ns=thread_ns(profile),
        processors=profile.tree.processors if profile.tree is not None else None,
        spun_ns=sum(one.wait_ns or 0.0 for one in locks if one.name == SPINNING),
        findings=find(profile),
        detours_ns=detours_ns,
        refused=int(tally.failed.sum()),
        metrics=metrics.measured(profile),
    )


def _live(profile: Profile) -> tuple[int | None, int | None]:
    """The peak of the requested bytes in live blocks, and the usable bytes beyond these.

    The second number contains only bytes that can be resident. A number that the probe did not
    count at the peak is estimated from the recorded moment with the most live bytes.
    """
    largest = profile.largest
    most = max(profile.moments, key=lambda moment: moment.live_bytes, default=None)
    peak, usable = largest.peak_requested, largest.peak_usable
    slack = resident_slack(profile, most) if most is not None else None
    if peak is None:
        return (most.live_bytes, slack) if most is not None else (None, None)
    if usable is not None:
        beyond = max(0, usable.bytes - peak.bytes)
        if most is None or not most.slack_bytes or slack is None:
            return peak.bytes, beyond
        return peak.bytes, round(beyond * slack / most.slack_bytes)
    if most is None or slack is None or not most.live_bytes:
        return peak.bytes, None
    return peak.bytes, round(peak.bytes * slack / most.live_bytes)


def _sees_kernel(profile: Profile) -> bool:
    """Whether the probe saw all system calls, even those inside libc.

    Only if it saw all, a count of 0 means that there was no system call.
    """
    return all(map(sees_all_calls, profile.processes))
