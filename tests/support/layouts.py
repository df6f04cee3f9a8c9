"""Invented figures of where blocks lie, and gaps between two allocators that have them."""

from __future__ import annotations

from collections.abc import Mapping

from support.gaps import looked_at, trials, why_run

from cairn.model import Sample
from cairn.why.gap import Why, explain

HEALTHY = {
    "alike.distance": 64.0,
    "alike.further": 0.1,
    "distance": 500_000.0,
    "further": 0.8,
    "pages_per_mib": 300.0,
    "lines_per_mib": 18_000.0,
    "header": 0.0,
    "sets": 0.2,
    "large": 0.8,
    "reuse": 3000.0,
    "reuse.slow": 0.6,
    "conflicts": 0.01,
    "huge": 0.5,
}
"""By key of `metrics`: round numbers within the ranges that four healthy allocators had on the
programs of 'cairn bench findings'."""
ILL = {
    "blocks-scattered": {"alike.distance": 1.3e6, "alike.further": 0.99, "pages_per_mib": 3900.0},
    "blocks-spread-out": {"pages_per_mib": 3900.0, "alike.distance": 1088.0},
    "headers-between-blocks": {"header": 112.0, "lines_per_mib": 40_000.0, "pages_per_mib": 600.0},
    "cold-blocks": {"reuse": 30_000.0, "reuse.slow": 0.99},
    "threads-share-lines": {"conflicts": 0.5, "watched": 12.0, "confirmed": 9.0},
    "blocks-in-one-cache-set": {"sets": 1.0},
    "fewer-huge-pages": {"huge": 0.0},
}


def rounds(name: str, figures: Mapping[str, float], program: int, faults: int = 22) -> list[Sample]:
    """Returns trials with the layout `figures`.

    program: the number of clock samples in the program.
    faults: the number of clock samples in page faults.
    """
    metrics = {key: (value, 0.95 * value, 1.05 * value) for key, value in figures.items()}
    made = trials(name, 90.0 + 0.5 * (program - 110 + faults - 22), metrics=metrics)
    return looked_at(made, program=program, faults=faults)


def compared(
    ill: Mapping[str, float],
    *,
    program: int = 330,
    faults: int = 22,
    healthy: Mapping[str, float] = HEALTHY,
) -> Why:
    """Returns the comparison with a healthy allocator.

    Under that one, the program has 110 clock samples, and page faults have 22.
    """
    samples = [*rounds("system", healthy, 110), *rounds("fast", ill, program, faults)]
    return explain(why_run("fast"), samples, "fast", "system")
