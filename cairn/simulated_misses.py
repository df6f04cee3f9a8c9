"""Misses of caches and of the TLB that a simulation counted, as frozen values."""

from __future__ import annotations

from msgspec import Struct


class CacheLevel(Struct, frozen=True):
    """A cache or a TLB as it is simulated. A TLB is a cache whose lines are pages of 4 KiB."""

    name: str
    """Such as "L2 cache" or "L1 TLB"."""
    bytes: int
    """The size that is simulated."""
    ways: int
    line_bytes: int
    waiting_ns: float
    """The time that a miss takes longer than a hit if the next load waits for it, in ns. It was
    measured on this machine, as was `overlapping_ns`."""
    overlapping_ns: float
    """Like `waiting_ns`, if no load waits for the miss, so that the processor handles several
    misses at once."""
    most_ns: float
    """Like `waiting_ns`, if other processors leave nothing of the last cache. It is longer only for
    the second level of a TLB, whose entries then come from memory."""
    is_shared: bool = False
    """Whether other processors use it, too, and so may leave nothing of it for the program."""
    whole_bytes: int = 0
    """The size that the machine shows, if less is simulated, because others use the cache, too; 0
    if both are the same."""
    assumed: bool = False
    """Whether the size is an assumption, because the machine does not show it."""
    timed: bool = True
    """False for a TLB on a machine without huge pages. Its times are then 0, because they are
    contained in those of the caches."""


class SimulatedMisses(Struct, frozen=True):
    """The misses of one contender on one workload, without those within the allocator.

    All processes count, in user mode only.
    """

    contender: str
    reads: tuple[int, ...]
    """The loads that missed: one number for each level of the simulation; empty if they could not
    be counted."""
    writes: tuple[int, ...]
    """The stores that missed, likewise."""
    workload: int = 0
    """The index of the workload in the settings."""
    problem: str | None = None
    """Why there are no numbers, as the rest of a sentence that begins with the contender."""


class Simulation(Struct, frozen=True):
    """The misses that `cairn explain --simulate` counted for a run."""

    levels: tuple[CacheLevel, ...]
    found: tuple[SimulatedMisses, ...]

    def of(self, contender: str, workload: int) -> SimulatedMisses | None:
        """The misses of a contender on a workload; None if they were not simulated."""
        return next(
            (one for one in self.found if (one.contender, one.workload) == (contender, workload)),
            None,
        )

    def plus(self, one: SimulatedMisses) -> Simulation:
        """This simulation with one more result, which replaces an earlier one of the same cell."""
        kept = [
            other
            for other in self.found
            if (other.contender, other.workload) != (one.contender, one.workload)
        ]
        return Simulation(self.levels, (*kept, one))
