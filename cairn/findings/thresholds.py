"""The smallest effect that is reported as a finding."""

from __future__ import annotations

from cairn.model import Finding

LEAST_CPU, LEAST_MEMORY = 0.01, 0.05
"""Shares of CPU time (or thread time) and of memory. Smaller effects are not worth acting on."""


def large_enough(finding: Finding) -> bool:
    """Whether the effect reaches LEAST_MEMORY or LEAST_CPU, whichever applies to its unit."""
    return finding.effect >= (LEAST_MEMORY if finding.of == "memory" else LEAST_CPU)
