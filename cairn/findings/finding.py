"""The thresholds that every finding must reach."""

from __future__ import annotations

from cairn.model import Finding

LEAST_CPU, LEAST_MEMORY = 0.01, 0.05
"""Smaller shares of CPU time and of memory are not reported: nobody should act on them."""


def large_enough(finding: Finding) -> bool:
    """Whether the effect reaches the threshold of what it is a share of."""
    return finding.effect >= (LEAST_MEMORY if finding.of == "memory" else LEAST_CPU)
