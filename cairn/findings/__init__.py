"""Rules that say why an allocator is slow or wastes memory on a program. All functions are pure.

Each file holds the rules of one theme. A rule looks at a profile and returns a finding, with its
cause, effect and advice, or None. docs/findings.md describes each rule, its thresholds, and where
they come from. `find` drops effects below `LEAST_CPU` or `LEAST_MEMORY` (`thresholds.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from cairn.findings import kernel, layout, memory, waiting
from cairn.findings.thresholds import large_enough, of_threads
from cairn.model import Finding
from cairn.profile.estimates import busy_ns
from cairn.profile.lock_table import thread_ns
from cairn.profile.processors import processor_time
from cairn.profile.tally import Profile

__all__ = ["RULES", "Finding", "find"]

RULES: tuple[Callable[[Profile], Finding | None], ...] = (
    kernel.returns_what_it_needs,
    kernel.asks_too_often,
    kernel.changes_protection,
    kernel.waits_alone,
    kernel.yields,
    kernel.calls_the_kernel,
    waiting.queues,
    memory.not_reused,
    memory.huge_page_bloat,
    memory.touches_more_than_it_gives,
    memory.sizes_too_coarse,
    *layout.RULES,
)


def find(profile: Profile) -> tuple[Finding, ...]:
    """Runs all rules. Returns the findings that are large enough, the largest effect first.

    If one of them is in thread time, the order compares shares of CPU time in that unit, too.
    """
    raised = [
        finding
        for rule in RULES
        if (finding := rule(profile)) is not None and large_enough(finding)
    ]
    busy = _busy(profile) if any(one.of == "thread time" for one in raised) else 1.0
    return tuple(sorted(raised, key=lambda one: -of_threads(one.of, one.effect, busy)))


def _busy(profile: Profile) -> float:
    """CPU time, divided by the most CPU time that the threads could use; 1 if that is not known.

    The most is the sum of the threads' life times, or the time of the processors if that is less.
    """
    whole, of = thread_ns(profile), processor_time(profile)
    if of is not None:
        whole = min(whole, of.whole)
    elif profile.window is not None and profile.window.processors:
        whole = min(whole, profile.window.processors * profile.wall_ns)
    return min(1.0, (busy_ns(profile) or 0.0) / whole) if whole else 1.0
