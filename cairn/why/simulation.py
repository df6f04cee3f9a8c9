"""Adds the simulated misses to an explained gap, and judges its reason by them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from cairn.findings import layout
from cairn.model import Finding, Sample, twin
from cairn.simulated_misses import Simulation
from cairn.why.gap import Why, program_estimate
from cairn.why.parts import PROGRAM
from cairn.why.simulated_gap import SimulatedGap, between


def applied(why: Why, simulation: Simulation | None, samples: Sequence[Sample]) -> Why:
    """The gap with its simulated misses.

    A reason in the layout of the blocks is dropped if the misses are too few to explain the gap. If
    they explain it and there is no such reason, the misses themselves become the reason.
    """
    if simulation is None or why.time is None:
        return why
    both = [simulation.of(name, why.workload) for name in (why.contender, why.baseline)]
    problems = [f"{one.contender} {one.problem}" for one in both if one and one.problem is not None]
    if problems:
        return replace(why, unsimulated="; ".join(problems))
    own, other = both
    if own is None or other is None:
        return why
    part = next(one for one in why.time.parts if one.name == PROGRAM)
    huge = tuple(_huge(samples, name, why.workload) for name in (why.contender, why.baseline))
    gap = between(
        simulation.levels,
        own,
        other,
        (huge[0], huge[1]),
        part.change if part.shown else None,
    )
    return replace(why, simulated=gap, layout=_reason(why, gap))


def _huge(samples: Sequence[Sample], name: str, workload: int) -> float:
    """The share of a contender's memory in huge pages, as the median over the probed runs."""
    known = [
        one.probe.metrics["huge"][0]
        for one in samples
        if one.trial.contender == twin(name)
        and one.trial.workload == workload
        and one.probe is not None
        and "huge" in one.probe.metrics
    ]
    return min(1.0, max(0.0, statistics.median(known))) if known else 0.0


def _reason(why: Why, gap: SimulatedGap) -> tuple[str, Finding] | None:
    if gap.of_ns is None or (why.layout is not None and why.layout[1].name == layout.SHARED):
        # Lines that go from processor to processor are not simulated.
        return why.layout
    if not gap.can_explain:
        return None
    if why.layout is not None or not gap.bears_out or why.time is None:
        return why.layout
    found = program_estimate(why.time)
    if found is None:
        return None
    slower = why.contender if gap.of_ns > 0 else why.baseline
    return slower, layout.misses_more(found)
