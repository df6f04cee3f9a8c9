"""Findings about threads that wait for each other in the allocator."""

from __future__ import annotations

import math

from cairn import units
from cairn.findings.kernel import has_threads
from cairn.model import Finding, Interval
from cairn.profile.estimates import LEVEL, clock, probe_ns
from cairn.profile.tables import kernel_lines, lock_lines
from cairn.profile.tally import WAITING, WAKING, Profile

QUEUES = "queues"
QUEUES_SAYS = "Threads wait for each other in the allocator"
QUEUES_ADVICE = "use an allocator with a heap for each thread, or let fewer threads allocate"
PER_THOUSAND_LEAST = 0.5
"""The least number of waits per 1,000 operations, for effects below SHARE_LARGE."""
SHARE_LEAST, SHARE_LARGE = 0.05, 0.15
"""The least waiting for a finding, as shares of the time of all threads. SHARE_LEAST applies if
there are PER_THOUSAND_LEAST waits per 1,000 operations, and SHARE_LARGE if there are fewer."""


def thread_ns(profile: Profile) -> float:
    """The sum of the life times of all threads in ns, without the probe's part; 0 if not known.

    At most half of the sum is subtracted for the probe.
    """
    ticking = clock(profile.tally)
    whole = profile.tally.threads_ticks * ticking.ns_per_tick if ticking is not None else 0.0
    return max(whole - (probe_ns(profile) or 0.0), whole / 2)


def is_queueing(share: float, waits: float) -> bool:
    """Whether waiting matters: `share` of the threads' time, and `waits` per operation."""
    return share >= (SHARE_LEAST if waits * 1000 >= PER_THOUSAND_LEAST else SHARE_LARGE)


def queues(profile: Profile) -> Finding | None:
    """Returns a finding if threads wait for a lock, by sleeping, yielding or spinning.

    One thread alone cannot queue: `kernel.waits_alone` speaks of its waits.
    """
    whole = thread_ns(profile)
    calls = kernel_lines(profile)
    slept = [one for one in calls if one.name in WAITING]
    woken = [one for one in calls if one.name == WAKING]
    locks = [one for one in lock_lines(profile) if one.contended]
    waits = max(sum(one.count for one in slept), sum(one.contended for one in locks))
    waited = max(
        sum(one.total_ns or 0.0 for one in slept), sum(one.wait_ns or 0.0 for one in locks)
    )
    if not profile.operations or not whole or not waits or not has_threads(profile):
        return None
    wakes = sum(one.count for one in woken)
    most = float(profile.tree.system_ns) if profile.tree is not None else math.inf
    # At most as many wakes count as there are waits. Further wakes are for the allocator's threads.
    waking = min(most, sum(one.total_ns or 0.0 for one in woken)) * min(
        1.0, waits / wakes if wakes else 0.0
    )
    share = min(1.0, (waited + waking) / whole)
    if not is_queueing(share, waits / profile.operations):
        return None
    different = profile.tally.contended_locks
    where = {0: "locks that are only visible as system calls", 1: "one lock"}.get(
        different, f"{different} locks"
    )
    return Finding(
        name=QUEUES,
        says=QUEUES_SAYS,
        of="thread time",
        effect=share,
        interval=Interval(share, share, LEVEL),
        measured=True,
        evidence=(
            f"{units.counted(waits, 'wait')} on {where}, "
            f"{waits / profile.operations * 1000:.3g} per 1,000 operations, "
            f"{units.time(waited)} in all"
            f"{f', and {units.time(waking)} to wake waiting threads' if waking else ''}",
            *(f"{units.count(one.count)} {one.name}" for one in (*slept, *woken)),
        ),
        advice=QUEUES_ADVICE,
    )
