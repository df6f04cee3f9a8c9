"""Estimates, intervals and the decision to stop, from paired log ratios.

In one round every contender runs once. The state of the machine in that round (warming up,
throttling, a neighbour) is therefore common to all and cancels in the difference
d = ln(contender / baseline). All functions work on these differences, one per round, and return
relative changes exp(d) - 1: -0.05 is 5 % less than the baseline.

Always true here:

- An interval excludes 0 exactly when its p-value is at most its alpha, and exactly when Holm's
  procedure rejects "no difference". The interval, the p-value and Holm's procedure count the same
  Walsh averages. Ties and zeros count against a difference.
- The only assumption on the differences is symmetry. If nothing differs, the random order within a
  round makes them symmetric.
- All functions are pure. numpy is imported when first needed, so that `cairn --help` stays fast.

Units: log ratios and relative changes are plain numbers. alpha is the error allowed. The level of
an interval is 1 - alpha.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from cairn import units
from cairn.model import Change, Interval, Shown, StopRule, Summary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05
"""The error allowed in one metric: one false difference in 20 comparisons of equal allocators."""

ALPHA_STOPPED = 0.04
"""The part of ALPHA left for the intervals when the data decide when to stop.

The rest of ALPHA pays for the repeated looks at the data.
"""

ALPHA_EARLY = 0.003
"""The alpha at which a difference must be shown to end a comparison early.

Early looks are strict, so that they leave nearly all of the allowed error to the last look. This is
the boundary of Haybittle and Peto (British Journal of Radiology 1971, British Journal of Cancer
1976). Their tables do not fit a rule that also demands precision before it stops. This value and
ALPHA_STOPPED therefore come from simulation; the record is
docs/decisions/0002-stop-early-only-at-99-7-percent.md, and tests/python/test_stopping_coverage.py
checks both values.
"""

PRECISE = "precision reached"
"""The reason for stopping when the intervals are narrow enough."""

LOOK_GROWTH = 1.25
"""The factor by which the number of rounds grows from one look at the data to the next.

The 14 looks from 10 to 200 rounds cost less error than 191 looks would, one after every round.
"""

OUTLIER_Z = 3.5
"""The modified z-score above which a value is an outlier.

Source: Iglewicz & Hoaglin, How to Detect and Handle Outliers, 1993.
"""

OUTLIER_MIN_RUNS = 5
"""With fewer runs, no run is an outlier, because the median absolute deviation is often tiny."""


def summarise(values: Sequence[float]) -> Summary:
    """Median, mean, spread and range of at least one value, in the unit of the values."""
    return Summary(
        median=statistics.median(values),
        mean=statistics.fmean(values),
        sigma=statistics.stdev(values) if len(values) > 1 else None,
        minimum=min(values),
        maximum=max(values),
        runs=len(values),
    )


_T_95 = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
    10: 2.228, 11: 2.201,
}  # fmt: skip
"""Student's t for 95 %, by degrees of freedom. Beyond 11 degrees the code uses 2.2, which is a
little too large."""


ROUNDS_LEAST = 6
"""The least number of rounds for which a signed-rank interval of 95 % exists.

Means, too, are reported with intervals only from this number of rounds on.
"""


def rounds_for_intervals(contenders: int, alpha: float) -> int:
    """The least number of rounds that gives an interval to each contender of one family.

    The least two-sided p-value of n rounds is 2 / 2^n. Holm's first step needs alpha / contenders.
    """
    return math.ceil(1 + math.log2(contenders / alpha))


def mean_half_width(values: Sequence[float]) -> float:
    """Half the length of the 95 % interval of the mean, by Student's t, in the unit of the values.

    There must be at least two values.
    """
    n = len(values)
    return _T_95.get(n - 1, 2.2) * statistics.stdev(values) / math.sqrt(n)


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """The indices of values far above the others, by the modified z-score.

    Values far below are not outliers: a disturbance makes a run slower, and the exit code reveals a
    run that ended too soon. With two contenders, a low outlier would be the quiet contender in the
    round in which the other one was disturbed. The caller must have subtracted the pace of each
    round, because a slow round could hide an outlier or look like one.
    """
    if len(values) < OUTLIER_MIN_RUNS:
        return ()
    centre = statistics.median(values)
    distances = [abs(x - centre) for x in values]
    # Both terms estimate sigma for normal data. The median is 0 if over half of the values are
    # equal. The mean then takes its place.
    spread = statistics.median(distances) / 0.6745 or statistics.fmean(distances) * 1.2533
    return tuple(i for i, x in enumerate(values) if x - centre > OUTLIER_Z * spread)


def log_ratios(values: Sequence[float], base: Sequence[float]) -> tuple[float, ...] | None:
    """ln(value / base), round by round; None where a ratio has no meaning.

    A ratio needs two positive numbers. A single 0 makes the whole metric incomparable. Leaving out
    the rounds with a 0 would keep only rounds in which both contenders look alike. If all numbers
    are 0, all results are 0.
    """
    if all(x == 0 for x in (*values, *base)):
        return (0.0,) * len(values)
    if any(x <= 0 for x in (*values, *base)):
        return None
    return tuple(math.log(x) - math.log(b) for x, b in zip(values, base, strict=True))


class SignedRank(Struct, frozen=True):
    """The signed-rank method on paired differences: all Walsh averages (d_i + d_j) / 2 for i <= j.

    The rank sum of the positive differences is the number of positive Walsh averages (Tukey 1949;
    Hollander & Wolfe, Nonparametric Statistical Methods, chapter 3). Estimate, interval and p-value
    are therefore three readings of one sorted list, and cannot contradict each other.
    """

    n: int
    """The number of differences."""
    walsh: NDArray[np.float64]
    """The n (n + 1) / 2 Walsh averages, ascending."""

    @staticmethod
    def of(differences: Sequence[float]) -> SignedRank:
        """Makes and sorts the Walsh averages of at least one difference."""
        import numpy as np

        d = np.asarray(differences, dtype=np.float64)
        first, second = _pairs(len(d))
        return SignedRank(len(d), np.sort((d[first] + d[second]) / 2))

    def estimate(self) -> float:
        """The Hodges-Lehmann estimate (1963): the median Walsh average.

        The estimate stays bounded as long as no more than a quarter of the runs are outliers.
        """
        count = len(self.walsh)
        return float(self.walsh[(count - 1) // 2] + self.walsh[count // 2]) / 2

    def interval(self, alpha: float) -> Interval | None:
        """The interval of all shifts that an exact two-sided signed-rank test at `alpha` accepts.

        Returns None when n is too small for this alpha. The ends are Walsh averages and belong to
        the interval, which keeps it valid for data with ties (Pratt & Gibbons, Concepts of
        Nonparametric Theory, 1981). The null distribution is exact at every n.
        """
        import numpy as np

        cut = int(np.searchsorted(2 * null_cdf(self.n), alpha, side="right"))
        if cut == 0:
            return None
        return Interval(float(self.walsh[cut - 1]), float(self.walsh[-cut]), 1 - alpha)

    def p_value(self) -> float:
        """The exact two-sided p-value of "no difference".

        Walsh averages of exactly 0 come from equal runs, and from runs that differ by the same
        amount in opposite directions. Each of them counts for both signs, which makes the p-value
        larger. Breaking such ties at random gives an exact test with at most this p-value, so this
        p-value is valid. Pratt's test and the tie-corrected test are a little sharper, but they
        sometimes contradict the interval printed next to them. If all differences are 0, the
        p-value is 1 and the interval is [0, 0].
        """
        import numpy as np

        at_most_zero = int(np.searchsorted(self.walsh, 0.0, side="right"))
        at_least_zero = len(self.walsh) - int(np.searchsorted(self.walsh, 0.0, side="left"))
        return min(1.0, 2 * float(null_cdf(self.n)[min(at_most_zero, at_least_zero)]))


@lru_cache(maxsize=2)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index pairs i <= j below n."""
    import numpy as np

    first, second = np.triu_indices(n)
    return first, second


def null_cdf(n: int) -> NDArray[np.float64]:
    """P(T <= t) for t = 0 … n (n + 1) / 2, where T is the signed-rank sum (Wilcoxon 1945).

    Every rank 1 … n joins the sum with probability 1/2. The distribution for many rounds can take
    megabytes. So beyond KEPT_ROUNDS rounds, only the last two distributions are kept.
    """
    return _small_null_cdf(n) if n <= KEPT_ROUNDS else _large_null_cdf(n)


KEPT_ROUNDS = 128
"""The null distributions for up to this many rounds are all kept. Together they take 3 MB."""


@lru_cache(maxsize=KEPT_ROUNDS)
def _small_null_cdf(n: int) -> NDArray[np.float64]:
    return _null_cdf(n)


@lru_cache(maxsize=2)
def _large_null_cdf(n: int) -> NDArray[np.float64]:
    return _null_cdf(n)


def _null_cdf(n: int) -> NDArray[np.float64]:
    import numpy as np

    mass = np.zeros(n * (n + 1) // 2 + 1)
    mass[0] = 1.0
    ranks_before = 0
    for rank in range(1, n + 1):
        end = ranks_before + 1  # mass[end:] is still 0
        ranks_before += rank
        joined = mass[:end] / 2
        mass[:end] /= 2
        mass[rank : rank + end] += joined
    return np.cumsum(mass)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values (Scandinavian Journal of Statistics 1979), in the order given.

    They are valid under any dependence between the contenders, which share the baseline.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for step, index in enumerate(_ascending(p_values)):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def holm_alphas(p_values: Sequence[float], alpha: float) -> tuple[float, ...]:
    """The alpha of each contender's interval, such that the interval agrees with Holm's procedure.

    An interval at this alpha excludes 0 exactly when Holm's procedure at `alpha` rejects. Of m
    contenders the one with the k-th smallest p-value gets alpha / (m - k + 1), as in Holm's k-th
    step. At the first contender that shows no difference the procedure stops, and all further
    contenders get that step's alpha. No interval is narrower than the contender's interval at
    `alpha` would be, so each has a coverage of at least 1 - alpha.
    """
    alphas = [0.0] * len(p_values)
    left = len(p_values)
    for index in _ascending(p_values):
        alphas[index] = alpha / left
        if p_values[index] <= alphas[index]:
            left -= 1
    return tuple(alphas)


def _ascending(values: Sequence[float]) -> list[int]:
    return sorted(range(len(values)), key=values.__getitem__)


def changes(
    ratios: Mapping[str, Sequence[float]], alpha: float, margin: float
) -> dict[str, Change]:
    """Judges each contender's log ratios against 0; the contenders are one family for Holm.

    EQUIVALENT is shown by two one-sided tests at the contender's own alpha (Schuirmann 1987): the
    interval of level 1 - 2 alpha lies within ±margin. If a difference is shown as well, the result
    is LESS or MORE, however small the difference is.
    """
    return _judged(_ranked(ratios), alpha, margin)


def _ranked(ratios: Mapping[str, Sequence[float]]) -> dict[str, SignedRank]:
    return {name: SignedRank.of(differences) for name, differences in ratios.items()}


def _judged(ranks: Mapping[str, SignedRank], alpha: float, margin: float) -> dict[str, Change]:
    """Does the work of `changes` for Walsh averages that are sorted already."""
    p_values = [rank.p_value() for rank in ranks.values()]
    result = {}
    for (name, rank), adjusted, own in zip(
        ranks.items(), holm(p_values), holm_alphas(p_values, alpha), strict=True
    ):
        interval = _relative(rank.interval(own))
        one_sided = _relative(rank.interval(2 * own))
        result[name] = Change(
            estimate=math.expm1(rank.estimate()),
            interval=interval,
            shown=_shown(interval, one_sided, margin),
            p_adjusted=adjusted,
            rounds=rank.n,
            one_sided=one_sided,
        )
    return result


def _relative(interval: Interval | None) -> Interval | None:
    return interval and Interval(
        math.expm1(interval.low), math.expm1(interval.high), interval.level
    )


def _shown(interval: Interval | None, one_sided: Interval | None, margin: float) -> Shown:
    if interval and interval.high < 0:
        return Shown.LESS
    if interval and interval.low > 0:
        return Shown.MORE
    if one_sided and within(one_sided, margin):
        return Shown.EQUIVALENT
    return Shown.NOT_SHOWN


def within(interval: Interval, margin: float) -> bool:
    """Whether the whole interval lies within ±margin."""
    return -margin <= interval.low and interval.high <= margin


def half_width(change: Change) -> float | None:
    """Half the length of the change's interval; None without an interval."""
    return (change.interval.high - change.interval.low) / 2 if change.interval else None


def alpha(rule: StopRule) -> float:
    """The alpha for intervals under this rule: less than ALPHA if the data decide when to stop."""
    return ALPHA if len(look_rounds(rule)) == 1 else ALPHA_STOPPED


def look_rounds(rule: StopRule) -> tuple[int, ...]:
    """The numbers of complete rounds at which the rule may stop, from the least to `max_rounds`."""
    if rule.precision is None:
        return (rule.max_rounds,)
    rounds = []
    n = rule.min_rounds
    while n < rule.max_rounds:
        rounds.append(n)
        n = math.ceil(n * LOOK_GROWTH)
    return (*rounds, rule.max_rounds)


class Look(Struct, frozen=True):
    """The answer of the stopping rule after some rounds."""

    stop: bool
    because: str | None
    """The reason for stopping, as a phrase; None when not stopping."""
    half_width: float | None
    """Half the length of the widest interval, as a relative change. None if a contender has no
    interval."""
    leading: str | None
    """The contender with the smallest estimate; None while the baseline leads."""


def look(ratios: Mapping[str, Sequence[float]], rule: StopRule, rounds: int | None = None) -> Look:
    """Judges whether the log ratios so far are enough.

    ratios: by surviving contender, one ratio for each round in which its measure is known.
    rounds: the number of complete rounds. By default, it is the length of the shortest list.

    A contender is settled in two cases: its interval is as narrow as `precision` demands and a
    difference or equivalence is shown at ALPHA_EARLY; or its interval is half as wide as demanded,
    whatever it shows. The rule stops when all contenders are settled or `max_rounds` is reached. If
    the interval is between these two widths, the outcome of a look depends on the differences, and
    each such look costs some error. There are few such looks, for any `max_rounds`: the half-width
    shrinks like 1/sqrt(n), so four times the rounds halve it.

    The rule stops at `look_rounds(rule)` only. At other numbers of rounds, the answer only feeds
    the progress line. `rounds_needed.forecast` predicts the number of rounds at which it stops. The
    caller watches the time budget. Stopping at the end of the budget costs no error, because that
    moment does not depend on the data.
    """
    if not ratios:
        return Look(True, "nothing left to compare", None, None)
    known = min(len(differences) for differences in ratios.values())
    rounds = known if rounds is None else rounds
    if known == 0:
        stop = rounds >= rule.max_rounds
        return Look(stop, units.counted(rounds, "round") if stop else None, None, None)
    ranks = _ranked(ratios)
    found = _judged(ranks, alpha(rule), rule.margin)
    strict = _judged(ranks, ALPHA_EARLY, rule.margin)
    widths = [half_width(change) for change in found.values()]
    leader = min(found, key=lambda name: found[name].estimate)
    because = None
    if rounds >= rule.max_rounds:
        because = units.counted(rounds, "round")
    elif rounds in look_rounds(rule) and all(
        _settled(found[name], strict[name], rule) for name in found
    ):
        because = PRECISE
    return Look(
        stop=because is not None,
        because=because,
        half_width=None if None in widths else max(width for width in widths if width is not None),
        leading=leader if found[leader].estimate < 0 else None,
    )


def _settled(change: Change, strict: Change, rule: StopRule) -> bool:
    width = half_width(change)
    if width is None or rule.precision is None:
        return False
    return width <= (rule.precision / 2 if strict.shown is Shown.NOT_SHOWN else rule.precision)
