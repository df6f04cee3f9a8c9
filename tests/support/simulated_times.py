"""Simulated run times, for tests of the statistics.

Runs follow each other in time. The log wall time of a run is the sum of a drift that it shares with
its neighbours (AR(1), rho 0.8), noise with heavy tails (Student's t, 3 degrees of freedom), and an
exponential disturbance in 2 % of the runs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def logs(
    seed: int, series: int, rounds: int, contenders: int, noise: float, *, mixed: bool = True
) -> NDArray[np.float64]:
    """Returns log wall times by series, round and contender.

    If `mixed` is true, the order of the contenders is random in each round. If it is false, all
    runs of one contender precede all runs of the next one.
    """
    rng = np.random.default_rng(seed)
    rho = 0.8
    in_time = np.empty((series, rounds * contenders))
    in_time[:, 0] = rng.standard_normal(series)
    for i in range(1, rounds * contenders):
        in_time[:, i] = rho * in_time[:, i - 1] + math.sqrt(1 - rho**2) * rng.standard_normal(
            series
        )
    if mixed:
        order = np.argsort(rng.random((series, rounds, contenders)), axis=2)
        drift = np.take_along_axis(in_time.reshape(series, rounds, contenders), order, axis=2)
    else:
        drift = in_time.reshape(series, contenders, rounds).transpose(0, 2, 1)
    tails = rng.standard_t(3, drift.shape) / math.sqrt(3)
    disturbed = (rng.random(drift.shape) < 0.02) * rng.exponential(10, drift.shape)
    return np.asarray(noise * (drift + tails + disturbed))
