"""Bootstrap intervals of geometric means over programs, with whole rounds as the unit.

The programs of a plan are fixed: the mean is a statement about them. Only the noise of the rounds
is uncertain. So a draw takes rounds at random, the same ones for all programs, and computes the
mean again. Programs of one round share the state of the machine, and a draw of whole rounds keeps
what they share.

The interval is the mean ± t × the standard deviation of the draws, with Student's t of as many
degrees of freedom as there are rounds less the number of runs. The plain quantiles of the draws
would be too narrow for few rounds: with four rounds, 95 % intervals from quantiles covered 87 %.
The usual correction for few rounds, draws of n - 1 of n rounds, is left out: the centre of a draw
(`ratios.centre`) already varies more than a mean does, because rounds occur twice in a draw. With
both, the intervals were 1.5 times as wide as those of the normal approximation.
tests/python/test_matrix_means.py simulates plans with known ratios.

All functions are pure: the draws come from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.compare import ratios

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DRAWS = 999
"""The number of draws: their standard deviation is then known to about 2 %."""
_SEED = 20150501


@dataclass(frozen=True, slots=True)
class Layer:
    """The rounds of one run, which are compared with each other alone.

    A layer is one machine at one time. Ratios are formed within it, and then combined.
    """

    logs: NDArray[np.float64]
    """Log ratios: rounds × programs × contenders. A program that this run lacks is nan."""


def means(layers: Sequence[Layer]) -> NDArray[np.float64]:
    """The mean log ratio of each contender over all programs."""
    return _combined(
        [_centres(layer.logs) for layer in layers], [len(layer.logs) for layer in layers]
    )


def drawn_means(layers: Sequence[Layer], draws: int = DRAWS) -> NDArray[np.float64] | None:
    """The means of each draw: draws × contenders. None if a layer has fewer than two rounds."""
    import numpy as np

    if not layers or any(len(layer.logs) < 2 for layer in layers):
        return None
    rng = np.random.default_rng(_SEED)
    parts = []
    for layer in layers:
        rounds = len(layer.logs)
        chosen = rng.integers(0, rounds, (rounds, draws))
        programs = [
            ratios.centre(layer.logs[:, program, :][chosen])
            for program in range(layer.logs.shape[1])
        ]
        parts.append(np.stack(programs, axis=1))
    return _combined(parts, [len(layer.logs) for layer in layers])


def interval(
    centre: float, draws: NDArray[np.float64], layers: Sequence[Layer], alpha: float
) -> tuple[float, float]:
    """The interval of a mean from its draws, as log ratios."""
    freedom = sum(len(layer.logs) - 1 for layer in layers)
    reach = ratios.student(freedom, alpha) * float(draws.std(ddof=1))
    return centre - reach, centre + reach


def _centres(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The centre of each program and contender over the rounds."""
    import numpy as np

    return np.stack([ratios.centre(logs[:, program, :]) for program in range(logs.shape[1])])


def _combined(parts: Sequence[NDArray[np.float64]], rounds: Sequence[int]) -> NDArray[np.float64]:
    """The mean over programs of each program's mean over layers, weighted by their rounds.

    parts: for each layer an array whose last two axes are programs and contenders.
    """
    import numpy as np

    total = np.zeros_like(parts[0])
    weight = np.zeros_like(parts[0])
    for part, number in zip(parts, rounds, strict=True):
        known = ~np.isnan(part)
        total += np.where(known, part, 0.0) * number
        weight += known * float(number)
    return np.asarray((total / weight).mean(axis=-2))
