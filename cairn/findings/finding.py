"""What a finding is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cairn.profile.estimates import Estimate

LEAST_CPU, LEAST_MEMORY = 0.01, 0.05
"""Shares below which nothing is raised."""

Of = Literal["CPU", "thread time", "memory"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause. Texts are sentences without a number's context lost: units, and what they are shares of."""

    name: str
    """For programs: a word of docs/findings.md."""
    says: str
    of: Of
    effect: Estimate
    """The share of that which would be gone without the cause."""
    measured: bool
    """All of `effect` was measured; else part of it is inferred, and its upper end a guess."""
    evidence: tuple[str, ...]
    advice: str


def large_enough(finding: Finding) -> bool:
    """Whether anyone should act on it."""
    return finding.effect.value >= (LEAST_MEMORY if finding.of == "memory" else LEAST_CPU)
