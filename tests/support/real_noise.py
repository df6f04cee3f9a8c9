"""The noise of real programs, taken from the stored runs in docs/results."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cairn.run.run_archive import RunArchive

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


@lru_cache
def deviations(program: str) -> NDArray[np.float64]:
    """Returns deviations of the logarithms, by round, contender and aim.

    Each deviation is that of one run from the median of its contender. The aims are wall time, CPU
    time and peak memory. Only rounds in which every contender has a run are included.
    """
    stored = RunArchive(RESULTS / f"programs-{program}.tar.xz")
    counted = [sample for sample in stored.samples() if sample.counts]
    names = sorted({sample.trial.contender for sample in counted})
    by_trial = {(sample.trial.round, sample.trial.contender): sample for sample in counted}
    rounds = [
        round_
        for round_ in sorted({sample.trial.round for sample in counted})
        if all((round_, name) in by_trial for name in names)
    ]
    logs = np.array(
        [
            [
                [
                    math.log(one.wall_ns),
                    math.log(one.user_ns + one.system_ns),
                    math.log(one.memory.peak_bytes or 1),
                ]
                for one in (by_trial[round_, name] for name in names)
            ]
            for round_ in rounds
        ]
    )
    return np.asarray(logs - np.median(logs, axis=0))


def most_by_chance(count: int) -> int:
    """Returns a bound on the number of false differences among `count` comparisons.

    If each comparison reports a false difference with a probability of 5 %, the number exceeds the
    bound in less than 2.5 % of all cases. For 200 comparisons the bound is 16.
    """
    return round(0.05 * count + 1.96 * math.sqrt(0.05 * 0.95 * count))
