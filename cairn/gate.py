"""The bounds of 'cairn check', and exact counts of instructions, as frozen values."""

from __future__ import annotations

from msgspec import Struct

INSTRUCTIONS = "instructions"
"""The measure that valgrind counts. All other measures come from the rounds of a run."""


class GateBound(Struct, frozen=True):
    """The most that one measure may rise between two contenders."""

    measure: str
    """A name of `compare.gate.MEASURES`, as the user writes it."""
    most: float
    """The largest rise, as a share of the number of the base: 0.03 is 3 % more."""


class Gate(Struct, frozen=True):
    """The bounds that the second contender of a run must keep against the first."""

    bounds: tuple[GateBound, ...]

    @property
    def timed(self) -> tuple[GateBound, ...]:
        """The bounds that need rounds."""
        return tuple(one for one in self.bounds if one.measure != INSTRUCTIONS)


class InstructionCount(Struct, frozen=True):
    """The instructions of one contender on one workload, as callgrind counts them.

    All processes count, in user mode only. Instructions of Cairn's own libraries are left out.
    """

    contender: str
    counts: tuple[int, ...]
    """One number for each run; empty if they could not be counted."""
    workload: int = 0
    """The index of the workload in the settings."""
    problem: str | None = None
    """Why there is no count, as the rest of a sentence that begins with the contender."""
