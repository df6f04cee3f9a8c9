"""Finds contenders that refuse allocations which the baseline grants.

A program may go on after malloc() has returned NULL, and then do less. So such a contender has
failed: its time and memory are those of another program. Only the probe sees refusals, so only runs
with --why can find them. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from cairn import units
from cairn.model import Sample, twin

RUNS_LEAST = 3
"""With fewer probed runs of a contender or of the baseline, nothing is concluded."""


def refusals(samples: Iterable[Sample], names: Sequence[str], baseline: str) -> Mapping[str, int]:
    """By contender: the fewest refused allocations in one of its probed runs.

    The result has each contender that refused an allocation in every probed run. It is empty if the
    baseline refused one in any of its probed runs. RUNS_LEAST is the least number of these runs.
    """
    refused: dict[str, list[int]] = {}
    for sample in samples:
        if sample.probe is not None and sample.failure is None:
            refused.setdefault(sample.trial.contender, []).append(sample.probe.refused)
    known = {name: refused.get(twin(name), []) for name in (*names, baseline)}
    if len(known[baseline]) < RUNS_LEAST or any(known[baseline]):
        return {}
    return {
        name: min(numbers)
        for name, numbers in known.items()
        if len(numbers) >= RUNS_LEAST and all(numbers)
    }


def failed(samples: Sequence[Sample], refused: Mapping[str, int], baseline: str) -> list[Sample]:
    """The samples, with the refusals as the failure of the contenders in `refused`."""
    return [
        replace(sample, failure=sample.failure or says(refused[name], baseline))
        if (name := sample.trial.contender) in refused
        else sample
        for sample in samples
    ]


def says(number: int, baseline: str) -> str:
    """The failure, as a clause about the program without its subject."""
    more = "" if number == 1 else " or more"
    return (
        f"got NULL for {units.counted(number, 'allocation')}{more} in each run with the probe, and "
        f"for none under {baseline}"
    )
