"""Estimates, intervals and the decision to stop, from paired log ratios.

In one round every contender runs once, so what the machine did to that round (warming up, throttling, a neighbour) is
the same for all and cancels in the difference d = ln(contender / baseline). Everything below works on these
differences, one per round, and gives back relative changes exp(d) - 1: -0.05 is 5 % less than the baseline.

Always true here:

- An interval excludes 0 exactly when its p-value is at most its alpha, and exactly when Holm's procedure rejects: all
  three count the same Walsh averages, with ties and zeros counted against a difference.
- Nothing is assumed of the differences but symmetry, which random order within a round gives when nothing differs.
- All functions are pure. numpy is imported when first needed, so that `cairn --help` stays light.

Units: log ratios and relative changes are plain numbers; alpha is the error allowed; an interval's level is 1 - alpha.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from cairn.model import Change, Interval, Shown, StopRule, Summary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05
"""The error a comparison may make in one metric: one false finding in 20 comparisons of equal allocators."""

ALPHA_STOPPED = 0.04
"""What is left of ALPHA for the intervals when the data decide when to stop; the rest pays for the repeated looks."""

ALPHA_EARLY = 0.003
"""The evidence that a finding needs before it may end a comparison early.

Strict early looks, so that the last one costs little: Haybittle's and Peto's boundary (British Journal of Radiology
1971, British Journal of Cancer 1976). No table fits a rule that asks for precision first, so this value and
ALPHA_STOPPED come from simulation: docs/decisions/0002-stop-early-only-at-99-7-percent.md, kept true by
tests/python/test_stopping_coverage.py.
"""

LOOK_GROWTH = 1.25
"""Each look has a quarter more rounds than the one before: 9 looks from 10 to 60 rounds cost less error than 51."""

OUTLIER_Z = 3.5
"""Modified z-score from which a value is an outlier (Iglewicz & Hoaglin, How to Detect and Handle Outliers, 1993)."""

OUTLIER_MIN_RUNS = 5
"""With fewer runs the median absolute deviation is so often tiny by chance that flags would mean nothing."""


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
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201,
}  # fmt: skip
"""Student's t for 95 % and so many degrees of freedom; beyond, 2.2 is a little wide and never narrow."""


ROUNDS_LEAST = 6
"""From so many on a signed-rank interval of 95 % exists; means are told with theirs from there on, too."""


def mean_half_width(values: Sequence[float]) -> float:
    """Of the 95 % interval of the mean of at least two values, by Student's t; in the unit of the values."""
    n = len(values)
    return _T_95.get(n - 1, 2.2) * statistics.stdev(values) / math.sqrt(n)


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Indices of values far above the others, by the modified z-score on the median absolute deviation.

    Only above: a disturbance makes a run slower, and one that ended too soon is caught by its exit code. Looking below
    as well would, of two contenders, flag the quiet one in the round where the other was disturbed. The values are
    expected free of what a round does to all, which otherwise hides or fakes outliers.
    """
    if len(values) < OUTLIER_MIN_RUNS:
        return ()
    centre = statistics.median(values)
    distances = [abs(x - centre) for x in values]
    # Both spreads estimate sigma for normal data; the mean replaces the median when over half of the values are equal.
    spread = statistics.median(distances) / 0.6745 or statistics.fmean(distances) * 1.2533
    return tuple(i for i, x in enumerate(values) if x - centre > OUTLIER_Z * spread)


def log_ratios(values: Sequence[float], base: Sequence[float]) -> tuple[float, ...] | None:
    """ln(value / base), round by round; None where a ratio has no meaning.

    A ratio needs two positive numbers. "0 major faults, then 3" has none, and leaving out such rounds would keep just
    those that look alike, so a single one makes the whole metric incomparable. 0 against 0 in every round is no change.
    """
    if all(x == 0 for x in (*values, *base)):
        return (0.0,) * len(values)
    if any(x <= 0 for x in (*values, *base)):
        return None
    return tuple(math.log(x) - math.log(b) for x, b in zip(values, base, strict=True))


@dataclass(frozen=True, slots=True)
class SignedRank:
    """Paired differences as the signed-rank method sees them: all their Walsh averages, (d_i + d_j) / 2 for i <= j.

    The rank sum of the positive differences is the number of positive Walsh averages (Tukey 1949; Hollander & Wolfe,
    Nonparametric Statistical Methods, chapter 3). Estimate, interval and p-value are therefore three readings of one
    sorted list, and cannot contradict each other.
    """

    n: int
    walsh: NDArray[np.float64]
    """Ascending, n (n + 1) / 2 of them."""

    @staticmethod
    def of(differences: Sequence[float]) -> SignedRank:
        """Sort the Walsh averages of at least one difference."""
        import numpy as np

        d = np.asarray(differences, dtype=np.float64)
        first, second = _pairs(len(d))
        return SignedRank(len(d), np.sort((d[first] + d[second]) / 2))

    def estimate(self) -> float:
        """Hodges & Lehmann's estimate (1963): the median Walsh average; a quarter of wild runs cannot carry it away."""
        count = len(self.walsh)
        return float(self.walsh[(count - 1) // 2] + self.walsh[count // 2]) / 2

    def interval(self, alpha: float) -> Interval | None:
        """Every shift that an exact two-sided signed-rank test at `alpha` accepts; None when n is too small for it.

        The ends are Walsh averages and belong to the interval, which keeps it valid for data with ties (Pratt &
        Gibbons, Concepts of Nonparametric Theory, 1981). The null distribution is exact at every n.
        """
        import numpy as np

        cut = int(np.searchsorted(2 * _null_cdf(self.n), alpha, side="right"))
        if cut == 0:
            return None
        return Interval(float(self.walsh[cut - 1]), float(self.walsh[-cut]), 1 - alpha)

    def p_value(self) -> float:
        """Exact two-sided p-value of "no difference".

        Walsh averages of exactly 0 (equal runs, and runs that differ by the same amount in opposite directions) count
        against whichever side is claimed. Any way of breaking such ties at random gives an exact test with at most this
        p-value, so this one is valid. Pratt's and the tie-corrected test are a little sharper, but would now and then
        contradict the interval printed next to them. All differences 0: p is 1 and the interval [0, 0].
        """
        import numpy as np

        at_most_zero = int(np.searchsorted(self.walsh, 0.0, side="right"))
        at_least_zero = len(self.walsh) - int(np.searchsorted(self.walsh, 0.0, side="left"))
        return min(1.0, 2 * float(_null_cdf(self.n)[min(at_most_zero, at_least_zero)]))


@lru_cache(maxsize=2)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index pairs i <= j below n."""
    import numpy as np

    first, second = np.triu_indices(n)
    return first, second


@lru_cache(maxsize=2)
def _null_cdf(n: int) -> NDArray[np.float64]:
    """P(T <= t) for t = 0 … n (n + 1) / 2: every rank 1 … n joins the sum T with probability 1/2 (Wilcoxon 1945)."""
    import numpy as np

    mass = np.zeros(n * (n + 1) // 2 + 1)
    mass[0] = 1.0
    ranks_before = 0
    for rank in range(1, n + 1):
        end = ranks_before + 1  # what is behind is 0 so far
        ranks_before += rank
        joined = mass[:end] / 2
        mass[:end] /= 2
        mass[rank : rank + end] += joined
    return np.cumsum(mass)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values (Scandinavian Journal of Statistics 1979), in the order given.

    Valid however the contenders depend on each other, and they do: they share the baseline.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for step, index in enumerate(_ascending(p_values)):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def holm_alphas(p_values: Sequence[float], alpha: float) -> tuple[float, ...]:
    """Choose each contender's alpha so that its interval excludes 0 exactly when Holm's procedure at `alpha` rejects.

    Of m contenders the one with the k-th smallest p-value gets alpha / (m - k + 1), as in Holm's k-th step. From the
    first that is not rejected on, the procedure stops, and all the rest keep that step's alpha. No interval is narrower
    than its unadjusted one, so each covers with at least 1 - alpha.
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
    """Judge each contender's log ratios against 0; the contenders given are one family for Holm.

    EQUIVALENT is shown by two one-sided tests at the contender's own alpha (Schuirmann 1987): the 1 - 2 alpha interval
    lies within ±margin. A difference that is shown goes before: within the margin it is small, but there.
    """
    ranks = {name: SignedRank.of(differences) for name, differences in ratios.items()}
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
    """Tell whether the whole interval lies within ±margin."""
    return -margin <= interval.low and interval.high <= margin


def half_width(change: Change) -> float | None:
    """Half the length of the change's interval; None when it has none."""
    return (change.interval.high - change.interval.low) / 2 if change.interval else None


def alpha(rule: StopRule) -> float:
    """Error to make intervals for under this rule: less than ALPHA when the data decide when to stop."""
    return ALPHA if len(look_rounds(rule)) == 1 else ALPHA_STOPPED


def look_rounds(rule: StopRule) -> tuple[int, ...]:
    """Numbers of complete rounds at which the rule may stop, ascending; the last is `max_rounds`."""
    if rule.precision is None:
        return (rule.max_rounds,)
    rounds = []
    n = rule.min_rounds
    while n < rule.max_rounds:
        rounds.append(n)
        n = math.ceil(n * LOOK_GROWTH)
    return (*rounds, rule.max_rounds)


@dataclass(frozen=True, slots=True)
class Look:
    """What the stopping rule says after some rounds."""

    stop: bool
    because: str | None
    """Why, as a phrase; None when not stopping."""
    half_width: float | None
    """Of the widest interval now, as a relative change; None when an interval cannot be made yet."""
    rounds_expected: int
    """Complete rounds in all when the rule will stop, as far as can be told now; the number so far when it stops."""
    leading: str | None
    """The contender with the smallest estimate; None while the baseline leads or nothing was measured."""


def look(ratios: Mapping[str, Sequence[float]], rule: StopRule) -> Look:
    """Judge whether the wall-time log ratios so far are enough; one list per surviving contender, equally long.

    A contender is settled when its interval is as narrow as `precision` asks and a difference or equivalence is shown
    at ALPHA_EARLY; or when its interval is twice as narrow as asked, and whatever it then shows may stand. All settled,
    or `max_rounds` reached: stop. The half-width shrinks like 1/sqrt(n), so the looks that can be swayed by who is
    ahead lie within four times the rounds at which precision is first reached, whatever `max_rounds` is.

    Only looks at `look_rounds(rule)` stop; in between the answer is for the progress line. The time budget is the
    caller's to watch: it does not depend on who is ahead, and costs no error.
    """
    if not ratios:
        return Look(True, "no contender left", None, 0, None)
    rounds = min(len(differences) for differences in ratios.values())
    if rounds == 0:
        return Look(False, None, None, rule.max_rounds, None)
    found = changes(ratios, alpha(rule), rule.margin)
    strict = changes(ratios, ALPHA_EARLY, rule.margin)
    widths = [half_width(change) for change in found.values()]
    expected = max(_rounds_expected(found[name], strict[name], rule) for name in found)
    leader = min(found, key=lambda name: found[name].estimate)
    because = None
    if rounds >= rule.max_rounds:
        because = f"{rounds} rounds"
    elif rounds in look_rounds(rule) and all(
        _settled(found[name], strict[name], rule) for name in found
    ):
        because = "precision reached"
    return Look(
        stop=because is not None,
        because=because,
        half_width=None if None in widths else max(width for width in widths if width is not None),
        rounds_expected=rounds if because else _next_look(max(expected, rounds + 1), rule),
        leading=leader if found[leader].estimate < 0 else None,
    )


def _settled(change: Change, strict: Change, rule: StopRule) -> bool:
    width = half_width(change)
    if width is None or rule.precision is None:
        return False
    return width <= (rule.precision / 2 if strict.shown is Shown.NOT_SHOWN else rule.precision)


def _rounds_expected(change: Change, strict: Change, rule: StopRule) -> int:
    """Rounds in all that settle this contender, if its estimate stays and its intervals shrink like 1/sqrt(n)."""
    if _settled(change, strict, rule):
        return change.rounds
    width = half_width(change)
    if width is None or not rule.precision:
        return rule.max_rounds

    def rounds_until(target: float, width: float) -> int:
        return math.ceil(change.rounds * (width / target) ** 2)

    precise = rounds_until(rule.precision, width)
    if strict.shown is not Shown.NOT_SHOWN:
        return precise
    undecided = rounds_until(rule.precision / 2, width)
    room = max(abs(change.estimate), rule.margin - abs(change.estimate))
    strict_width = half_width(strict)
    if strict_width is None or room <= 0:
        return undecided
    return min(undecided, max(precise, rounds_until(room, strict_width)))


def _next_look(rounds: int, rule: StopRule) -> int:
    return next((n for n in look_rounds(rule) if n >= rounds), rule.max_rounds)
