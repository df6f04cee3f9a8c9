"""Ratios to the best contender of a workload, with intervals, and their means over workloads.

`stats` compares with a baseline that was named before the first run. Here the reference is the best
contender of a workload, and the same data must also show which contender that is. The contender
that looks best is better in the data than in truth: among several equal contenders, the luckiest
one looks best. This module works on natural logarithms, where a ratio is a difference. It estimates
the distance to the best from two sides:

- **From above.** The distance to the contender that looks best (the apparent best) is too long on
  average, because that contender was lucky.
- **From below.** The rounds are split into two halves. In each half the reference is the contender
  that looks best in the *other* half. The runs of this half had no part in the choice, so luck does
  not favour the reference here. Sometimes the reference is not the true best, so the distance is
  too short on average.

The result is the estimate from below, because its error is smaller. Its interval starts at the
lower end of the interval around the estimate from below, and ends at the upper end of the interval
around the estimate from above. So the result's interval contains the uncertainty about which
contender is best. tests/python/test_standings_coverage.py measures the two estimates with 13 equal
contenders on 26 workloads of 8 rounds. The mean distance to the apparent best is then wrong by 4.7
times the standard error of the distance to a best that is known in advance. Intervals around that
mean almost never contain the truth. The intervals made here contain the truth in 98 % of these
cases, and in at least 94 % for every truth and number of rounds tested.

Always true here:

- Only complete rounds are used: those in which every contender without a failure on this workload
  has a run that counts, and a number. The pace of a round is common to all its runs and cancels.
- A centre is the Hodges-Lehmann estimate, and its error is the jackknife's. A single outlier hardly
  changes either of them. With Student's t, the intervals hold down to two rounds. One round gives
  estimates without intervals.
- A workload has ratios only if every contender has a number, because a contender without a number
  may be the best.

All functions are pure. numpy is imported when first needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from cairn.compare import stats
from cairn.model import LAZY, PEAK, PEAK_LESS_LAZY, Interval, Sample, value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MEMORY_KEYS = frozenset(metric.key for metric in (PEAK, PEAK_LESS_LAZY, LAZY))


class Ratio(Struct, frozen=True):
    """A contender's number divided by the best contender's. A ratio of 1.5 means 50 % more."""

    estimate: float
    """At least 1."""
    interval: Interval | None
    """None for a single round. If the interval begins at 1, this contender may be the best."""
    best: bool
    """Whether this contender is the apparent best of the workload; always False for a mean."""


class Difference(Struct, frozen=True):
    """One contender's number divided by another's, paired within rounds; 1.05 means 5 % more."""

    estimate: float
    interval: Interval | None

    @property
    def more(self) -> bool:
        """Whether the first contender is shown to take more. An interval around 1 shows nothing."""
        return self.interval is not None and self.interval.low > 1

    @property
    def less(self) -> bool:
        """Whether the first contender is shown to take less."""
        return self.interval is not None and self.interval.high < 1


class Rounds(Struct, frozen=True):
    """The complete rounds of one workload."""

    contenders: tuple[str, ...]
    """The contenders without a failed run on this workload, in the order given."""
    rounds: tuple[int, ...]
    runs: Mapping[str, tuple[Sample, ...]]
    """By contender: one run per round."""
    failures: Mapping[str, str]
    """By contender: its first failure. The other contenders lose no round by it."""

    def numbers(self, key: str) -> dict[str, list[float]]:
        """The measured numbers, by contender. Lists may be empty and may differ in length."""
        return {
            name: [number for sample in samples if (number := value(sample, key)) is not None]
            for name, samples in self.runs.items()
        }

    def methods(self) -> tuple[str, ...]:
        """The methods by which peak memory was measured; empty if it was not measured."""
        used = (sample.memory for samples in self.runs.values() for sample in samples)
        return tuple(sorted({memory.method for memory in used if memory.peak_bytes is not None}))

    def column(self, key: str, alpha: float) -> Column | None:
        """Returns the metric `key` in the rounds in which every contender has a number.

        Returns None if there is no such round, if a number is not above 0, or if the metric is
        memory and runs measured it in different ways.
        """
        import numpy as np

        if key in MEMORY_KEYS and len(self.methods()) != 1:
            return None
        rows = []
        for runs in zip(*(self.runs[name] for name in self.contenders), strict=True):
            numbers = [value(sample, key) for sample in runs]
            measured = [number for number in numbers if number is not None]
            if any(number <= 0 for number in measured):
                return None
            if len(measured) == len(numbers):
                rows.append(measured)
        return (
            Column.of(self.contenders, np.log(np.array(rows, dtype=np.float64)), alpha)
            if rows
            else None
        )


def complete(samples: Sequence[Sample], names: Sequence[str], workload: int) -> Rounds:
    """The complete rounds of `workload`; `samples` may contain samples of other workloads."""
    own = [sample for sample in samples if sample.trial.workload == workload]
    failures: dict[str, str] = {}
    for sample in own:
        if sample.failure is not None and sample.trial.contender in names:
            failures.setdefault(sample.trial.contender, sample.failure)
    survivors = tuple(name for name in names if name not in failures)
    found: dict[str, dict[int, Sample]] = {name: {} for name in survivors}
    for sample in own:
        if sample.counts and sample.trial.contender in found:
            found[sample.trial.contender][sample.trial.round] = sample
    rounds = tuple(sorted(set.intersection(*(set(of) for of in found.values())))) if found else ()
    runs = {name: tuple(of[round_] for round_ in rounds) for name, of in found.items()}
    return Rounds(contenders=survivors, rounds=rounds, runs=runs, failures=failures)


class Column(Struct, frozen=True):
    """One metric of one workload: logarithms, and the distance of each contender to the best."""

    contenders: tuple[str, ...]
    logs: NDArray[np.float64]
    """The logarithms of the numbers: a row for each round, a column for each contender."""
    best: int
    """The index of the apparent best, the contender with the smallest centre."""
    behind: NDArray[np.float64]
    """By contender: the distance to the apparent best, paired within rounds; at least 0."""
    error: NDArray[np.float64] | None
    """By contender: the standard error of `behind`; None for one round.

    The apparent best has the distance 0 to itself, without an error. Its value here is chosen so
    that its interval reaches as far as another contender may be ahead of it.
    """
    luck: float
    """By how much the apparent best looks too good, as a log distance; see _luck()."""
    alpha: float
    """The error allowed to each interval: 0.05 for 95 %."""

    @staticmethod
    def of(contenders: tuple[str, ...], logs: NDArray[np.float64], alpha: float) -> Column:
        """Makes the column of two or more contenders.

        The apparent best is found after subtracting the pace of each round: the median over the
        contenders of how much slower they were in this round than usual.
        """
        import numpy as np

        pace = np.median(logs - centre(logs), axis=1, keepdims=True)
        free = logs - pace
        best = int(np.argmin(centre(free)))
        rounds = len(logs)
        distances = logs - logs[:, [best]]
        behind = np.maximum(centre(distances), 0.0)
        if rounds == 1:
            return Column(contenders, logs, best, behind, None, 0.0, alpha)
        error = standard_error(distances)
        error[best] = max(
            0.0, float(np.max(np.delete(error - behind / student(rounds - 1, alpha), best)))
        )
        return Column(contenders, logs, best, behind, error, _luck(free, best), alpha)

    def ratio(self, name: str) -> Ratio:
        """The contender's number divided by that of the best contender of this workload.

        Numbers that are rounded, such as memory in whole pages, may be equal in a few rounds by
        chance. Such rounds have no interval until there are stats.ROUNDS_LEAST of them.
        """
        place = self.contenders.index(name)
        if place == self.best:
            return Ratio(
                1.0, _from_best(0.0, 0.0, self._spread(place), self.alpha).interval, best=True
            )
        far = float(self.behind[place])
        spread = self._spread(place)
        if spread is not None and spread.error == 0 and len(self.logs) < stats.ROUNDS_LEAST:
            spread = None
        return _from_best(far - self.luck, far, spread, self.alpha)

    def half_widths(self) -> list[float]:
        """Half the length of each interval except the best's, as a relative change.

        Empty for one round.
        """
        if self.error is None:
            return []
        import numpy as np

        factor = student(len(self.logs) - 1, self.alpha)
        return [math.expm1(factor * float(error)) for error in np.delete(self.error, self.best)]

    def _spread(self, place: int) -> _Spread | None:
        return None if self.error is None else _Spread(float(self.error[place]), len(self.logs) - 1)


class _Spread(Struct, frozen=True):
    """A standard error and its degrees of freedom."""

    error: float
    freedom: float


def _pooled(spreads: Sequence[_Spread | None]) -> _Spread | None:
    """The spread of the mean of independent estimates; None if one of their spreads is not known.

    The degrees of freedom are Welch's and Satterthwaite's (Biometrics 1946). They make two rounds
    on each of 26 workloads enough: the error on a single workload is not known well, but the error
    of the mean is.
    """
    known = [spread for spread in spreads if spread is not None]
    if not known or len(known) < len(spreads):
        return None
    parts = [(spread.error / len(known)) ** 2 for spread in known]
    total = sum(parts)
    if total == 0:
        return _Spread(0.0, 1.0)
    uncertain = sum(
        (part / total) ** 2 / spread.freedom for part, spread in zip(parts, known, strict=True)
    )
    return _Spread(math.sqrt(total), 1 / uncertain)


def mean_ratio(columns: Sequence[Column], name: str) -> Ratio | None:
    """Geometric mean of a contender's ratios to each workload's best; None without workloads.

    If the mean is below 1, the result is 1. The ratios that enter the mean may be below 1, because
    raising each of them to 1 would bring back the luck of the apparent best.
    """
    if not columns:
        return None
    places = [column.contenders.index(name) for column in columns]
    above = math.fsum(
        float(c.behind[place]) for c, place in zip(columns, places, strict=True)
    ) / len(columns)
    luck = math.fsum(column.luck for column in columns) / len(columns)
    spread = _pooled([column._spread(place) for column, place in zip(columns, places, strict=True)])
    return _from_best(above - luck, above, spread, columns[0].alpha)


def mean_difference(columns: Sequence[Column], name: str, other: str) -> Difference:
    """Geometric mean over workloads of `name` divided by `other`, paired within rounds."""
    distances = [
        c.logs[:, [c.contenders.index(name)]] - c.logs[:, [c.contenders.index(other)]]
        for c in columns
    ]
    estimate = math.fsum(float(centre(d)[0]) for d in distances) / len(distances)
    spread = _pooled(
        [
            _Spread(float(standard_error(d)[0]), len(d) - 1) if len(d) > 1 else None
            for d in distances
        ]
    )
    return Difference(math.exp(estimate), _interval(estimate, estimate, spread, columns[0].alpha))


def _from_best(below: float, above: float, spread: _Spread | None, alpha: float) -> Ratio:
    """Makes a ratio from the log distances `below` and `above` to the best.

    The ratio and its interval are raised to 1 where they are less, because no contender is better
    than the best.
    """
    whole = _interval(below, above, spread, alpha)
    interval = whole and Interval(max(1.0, whole.low), max(1.0, whole.high), whole.level)
    return Ratio(math.exp(max(0.0, below)), interval, best=False)


def _interval(below: float, above: float, spread: _Spread | None, alpha: float) -> Interval | None:
    """The interval from the lower end around `below` to the upper end around `above`.

    Returns None when the spread is not known.
    """
    if spread is None:
        return None
    reach = student(spread.freedom, alpha) * spread.error
    return Interval(math.exp(below - reach), math.exp(above + reach), 1 - alpha)


def centre(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hodges-Lehmann estimate along the first axis: the median of all (x_i + x_j) / 2, i <= j."""
    import numpy as np

    first, second = _pairs(len(x))
    middle = [(len(first) - 1) // 2, len(first) // 2]
    return np.asarray(np.partition((x[first] + x[second]) / 2, middle, axis=0)[middle].mean(axis=0))


def _centres_without(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Leaves out each round in turn. Returns the centres of the others: rounds × contenders.

    For each round that is left out, the others make about n² / 2 pairs per contender. To save
    memory, the function makes the pairs for 16 left-out rounds at a time, not for all n.
    """
    import numpy as np

    rounds = len(x)
    others = np.array([[i for i in range(rounds) if i != round_] for round_ in range(rounds)])
    slabs = np.array_split(others, math.ceil(rounds / 16))
    return np.concatenate([centre(np.moveaxis(x[slab], 1, 0)) for slab in slabs])


def _luck(free: NDArray[np.float64], best: int) -> float:
    """How much better `best` looks than a contender that other rounds chose as best; at least 0.

    One half of the rounds chooses a contender. In the other half, the centre of that contender is
    compared with the centre of `best`. The result is the mean over balanced halves (McCarthy,
    Review of the International Statistical Institute 1969). Each mask gives two halves: the rounds
    whose index has an odd number of bits in common with the mask, and the others. Leaving out
    single rounds instead of halves gives the same result on average, but so noisily that intervals
    would be too short by a third.
    """
    import numpy as np

    rounds = len(free)
    total = 0.0
    masks = _masked(rounds)
    for odd in masks:
        halves = (centre(free[odd]), centre(free[~odd]))
        for half, other, size in zip(
            halves, halves[::-1], (odd.sum(), rounds - odd.sum()), strict=True
        ):
            total += float(half[np.argmin(other)] - half[best]) * float(size) / rounds
    return max(0.0, total / len(masks))


@lru_cache(maxsize=8)
def _masked(rounds: int) -> list[NDArray[np.bool_]]:
    """By mask of `_luck`: whether a round's index has an odd number of bits in common with it."""
    import numpy as np

    return [
        np.array([(i & mask).bit_count() % 2 == 1 for i in range(rounds)])
        for mask in range(1, 1 << (rounds - 1).bit_length())
    ]


def standard_error(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The jackknife standard error of the centre, for at least two rounds.

    For two and three rounds the error is the textbook's s / sqrt(n). From four rounds on, a single
    outlier hardly changes the error, because it hardly moves the centre. The usual jackknife has a
    factor (n - 1) / n, which makes the error a little too small: 95 % intervals of 5 to 20 rounds
    cover 92 to 94 %. From four rounds on, this function omits the factor, and the intervals cover
    93 to 96 %.
    """
    import numpy as np

    rounds = len(x)
    without = _centres_without(x)
    factor = (rounds - 1) / rounds if rounds < 4 else 1.0
    return np.asarray(np.sqrt(factor * np.sum((without - without.mean(axis=0)) ** 2, axis=0)))


@lru_cache(maxsize=8)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    import numpy as np

    first, second = np.triu_indices(n)
    return first, second


@lru_cache(maxsize=4096)
def student(freedom: float, alpha: float) -> float:
    """The value that |t| exceeds with probability `alpha`, by Student's distribution.

    Degrees of freedom are rounded down, which makes intervals wider. The function bisects the
    finite series for whole degrees of freedom (Abramowitz & Stegun, 26.7.3 and 26.7.4).
    """
    whole = max(1, min(1_000, math.floor(freedom + 1e-9)))
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, whole) < 1 - alpha else (low, middle)
    return math.sqrt(whole) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """P(|T| <= sqrt(freedom) tan(angle))."""
    odd = freedom % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for k in range(3 if odd else 2, freedom + 1, 2):
        total += term
        term *= (k - 1) / k * math.cos(angle) ** 2
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def student_p(t: float, freedom: float) -> float:
    """The probability that |T| exceeds |t|, by Student's distribution; see `student`."""
    whole = max(1, min(1_000, math.floor(freedom + 1e-9)))
    return max(0.0, 1.0 - _within(math.atan(abs(t) / math.sqrt(whole)), whole))
