"""Simulated memory over time, of known kind, for the rules of 'cairn soak'."""

from __future__ import annotations

import numpy as np

from cairn.memory import Series, Trim

KIB, MIB = 1 << 10, 1 << 20
POINTS = 400


class Simulated:
    """Makes series of memory sizes from a seed.

    `at` holds the time of each point as a share of the run, from 0 to 1. The run lasts `seconds`.
    Periods and other lengths of time are shares of the run, too.
    """

    def __init__(self, seed: int, seconds: float = 30.0) -> None:
        self.random = np.random.default_rng(seed)
        self.seconds = seconds
        jitter = self.random.random(POINTS)
        self.at = np.sort((np.arange(POINTS) + jitter) / POINTS)
        self.at[0] = 0.0

    def correlated(self, size: float, length: float) -> np.ndarray:
        """A stationary autoregressive process of first order with the standard deviation `size`.

        length: the time after which the correlation has fallen to a third.
        """
        rho = float(np.exp(-1 / (length * POINTS)))
        noise = self.random.standard_normal(POINTS) * np.sqrt(1 - rho**2)
        values = np.empty(POINTS)
        values[0] = self.random.standard_normal()
        for place in range(1, POINTS):
            values[place] = rho * values[place - 1] + noise[place]
        return size * values

    def cycles(self, size: float, period: float) -> np.ndarray:
        """A sine from 0 to `size` with this period, from a random phase."""
        phase = self.random.random()
        return size / 2 * (1 + np.sin(2 * np.pi * (self.at / period + phase)))

    def teeth(self, size: float, period: float) -> np.ndarray:
        """A sawtooth from 0 to `size` with this period, from a random phase."""
        return size * ((self.at / period + self.random.random()) % 1)

    def warm(self, size: float, constant: float) -> np.ndarray:
        """Memory that approaches `size` more and more slowly, with this time constant."""
        return size * (1 - np.exp(-self.at / constant))

    def leak(self, per_s: float) -> np.ndarray:
        return per_s * self.seconds * self.at

    def series(
        self, live: np.ndarray, held: np.ndarray | None = None, trim: Trim | None = None
    ) -> Series:
        """A series with this live memory.

        By default, the memory that the allocator holds is a tenth more than the highest live memory
        so far.
        """
        live = np.maximum(live, 0)
        held = np.maximum.accumulate(live) * 1.1 if held is None else held
        return Series(
            tuple(int(1000 * self.seconds * one) for one in self.at),
            *(tuple(int(one) for one in each) for each in (live, held, held + 100 * KIB)),
            counted=True,
            processes=1,
            trim=trim,
            no_trim=None if trim is not None else "has no function for it",
        )
