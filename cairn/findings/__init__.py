"""Why an allocator is slow or fat on a program: what a profile shows, with its cause, its size, and what to do. Pure.

Each theme is a file of rules. A rule looks at a profile and returns a finding or None; what it looks for, from which
threshold on and where that comes from is in docs/findings.md. Nothing small is raised: see `LEAST_CPU`, `LEAST_MEMORY`.
"""

from __future__ import annotations

from collections.abc import Callable

from cairn.findings import kernel, memory, waiting
from cairn.findings.finding import large_enough
from cairn.model import Finding
from cairn.profile.tally import Profile

__all__ = ["RULES", "Finding", "find"]

RULES: tuple[Callable[[Profile], Finding | None], ...] = (
    kernel.returns_what_it_needs,
    kernel.asks_too_often,
    waiting.queues,
    memory.not_reused,
    memory.huge_page_bloat,
    memory.touches_more_than_it_gives,
    memory.sizes_too_coarse,
)


def find(profile: Profile) -> tuple[Finding, ...]:
    """Everything that is found, of each thing that it costs the dearest first."""
    raised = [
        finding
        for rule in RULES
        if (finding := rule(profile)) is not None and large_enough(finding)
    ]
    return tuple(sorted(raised, key=lambda one: -one.effect))
