"""Predicts how many rounds a comparison needs, from its rounds so far.

`forecast` predicts the round at which the stopping rule ends the comparison (`stats.look`; for a
workload of a suite, `stopping.suite_look`). `Noise` predicts how narrow the intervals are after
more rounds. `least` is the number of rounds below which no difference can be shown, whatever the
data.

The prediction has two parts:

- The scale of the noise is read from the Walsh averages (see `stats.SignedRank`), from the middle
  of their distribution. A few disturbed rounds hardly change it.
- The exact interval at n rounds reaches from one Walsh average to another. For normal noise the
  distribution of Walsh averages is known, and with it the expected width at every n.

Few rounds tell little about the noise. So `forecast` plays the rest of the comparison many times,
each time with a scale and a difference that fit the rounds so far, and gives a range. It depends on
its arguments alone: the random numbers have a fixed seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

from msgspec import Struct

from cairn.compare import stats
from cairn.model import StopRule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORECAST_FROM = 3
"""From this number of rounds on there is a forecast. At first it is only a range."""

LIKELY_FROM = 6
"""From this number of rounds on, the middle of the range is shown, too.

With six rounds the middle is within a factor of two of the truth in more than 80 % of comparisons
(tests/python/test_rounds_needed.py).
"""

_FUTURES = 200
"""The number of times that `forecast` plays the rest of a comparison."""
_RANGE = (0.1, 0.5, 0.9)
"""The quantiles of a forecast."""
_SHARED_DF = 10.0
"""The weight of the mean variance of all contenders in the estimated variance of each contender.
The contender's own variance has the weight `rounds - 1` (see `_fitted`).

The noise of the machine is common to all contenders, so the others tell something about each.
"""
_SHARES, _EFFICIENCY = 0.6, 0.7
"""Two factors of the degrees of freedom; `_freedom` explains them."""
_NO_NOISE = 1e-18
"""The least variance, which keeps logarithms finite when all differences are equal."""
_EXACT_MOST = 150
"""Up to this number of rounds the exact distribution of the signed-rank sum is used. The time and
memory for it grow with the square of the rounds. With more rounds the normal distribution is close
enough."""
_SCALE_SHARE = 1 / 3
"""The scale of the noise is read from the distance between two Walsh averages: this share of all
averages lies below the lower one, and the same share above the upper one.

The intervals of later looks end near these two averages, too, so the shape of the noise matters
little.
"""
PSEUDO_MEDIAN = math.sqrt(math.pi / 3)
"""The standard error of the Hodges-Lehmann estimate, divided by that of the mean, for normal
noise."""


class Forecast(Struct, frozen=True):
    """The predicted number of rounds at which the rule stops, including those that are done."""

    low: int
    likely: int
    high: int
    """In about four of five cases the number lies between `low` and `high`. If the forecast was
    made from less than six rounds, it does so in about half of the cases."""


def least(hypotheses: int, rule: StopRule) -> int:
    """The least number of rounds that can show a difference from the baseline.

    hypotheses: the number of hypotheses in the family that Holm's procedure adjusts, as
    `Aim.hypotheses` counts them.
    """
    return stats.rounds_for_intervals(max(1, hypotheses), stats.alpha(rule))


def forecast(
    ratios: Mapping[str, Sequence[float]], rule: StopRule, rounds: int | None = None
) -> Forecast | None:
    """Predicts the round at which the rule stops. Returns None with too few rounds.

    ratios and rounds: as for `stats.look`.
    """
    if rule.precision is None:
        return Forecast(rule.max_rounds, rule.max_rounds, rule.max_rounds)
    known = min((len(of) for of in ratios.values()), default=0)
    rounds = known if rounds is None else rounds
    if known < FORECAST_FROM:
        return None
    differences = [list(of)[:known] for of in ratios.values()]
    if rule.judged == "active":
        widest = max(math.expm1(stats.mean_half_width(of)) for of in differences)
        wanted = math.ceil(rounds * (widest / rule.precision) ** 2)
        number = min(rule.max_rounds, max(rule.min_rounds, rounds + 1, wanted))
        return Forecast(number, number, number)
    looks = [n for n in stats.look_rounds(rule) if n > rounds]
    if len(looks) <= 1:
        return Forecast(rule.max_rounds, rule.max_rounds, rule.max_rounds)
    # As many of the later rounds are expected to have all numbers as of those that are done.
    known_at = [max(known, round(n * known / rounds)) for n in looks]
    ends = sorted(looks[place] for place in _futures(differences, known_at, rule))
    low, likely, high = (ends[int(q * (len(ends) - 1))] for q in _RANGE)
    return Forecast(low, likely, high)


class Noise(Struct, frozen=True):
    """The differences and the noise of some rounds, from which the widths of intervals follow."""

    centres: tuple[float, ...]
    """By contender: the estimate of its log ratio."""
    scales: tuple[float, ...]
    """By contender: the standard deviation of normal noise that is as wide as the contender's."""

    def half_width(self, rounds: int, alpha: float) -> float | None:
        """Predicts half the length of the widest interval after `rounds` rounds.

        The result is a relative change, like `stats.Look.half_width`. It is None if so few rounds
        give no interval. alpha: the error of the family, which Holm's procedure divides among the
        contenders.
        """
        p_values = [
            _p_value(centre, scale * PSEUDO_MEDIAN / math.sqrt(rounds))
            for centre, scale in zip(self.centres, self.scales, strict=True)
        ]
        widths = []
        for centre, scale, own in zip(
            self.centres, self.scales, stats.holm_alphas(p_values, alpha), strict=True
        ):
            reach = interval_reach(rounds, own)
            if reach is None:
                return None
            widths.append(math.exp(centre) * math.sinh(reach * scale))
        return max(widths)

    def rounds_for(self, half_width: float, alpha: float, most: int) -> int | None:
        """Predicts the least number of rounds whose intervals are at most ±`half_width` wide.

        Returns None if more than `most` rounds are needed.
        """

        def enough(rounds: int) -> bool:
            width = self.half_width(rounds, alpha)
            return width is not None and width <= half_width

        return least_rounds(enough, most)


def least_rounds(enough: Callable[[int], bool], most: int) -> int | None:
    """Returns the least number of rounds that is enough; None if even `most` rounds are not.

    enough: whether this many rounds are enough. If it holds for a number, it holds for larger ones.
    """
    if not enough(most):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def noise(ratios: Mapping[str, Sequence[float]]) -> Noise | None:
    """The noise of these log ratios, of which there is one list for each contender.

    Returns None with less than FORECAST_FROM rounds.
    """
    rounds = min((len(of) for of in ratios.values()), default=0)
    if rounds < FORECAST_FROM:
        return None
    return _fitted([list(of)[:rounds] for of in ratios.values()])


def _p_value(centre: float, error: float) -> float:
    if not error:
        return 0.0 if centre else 1.0
    return 2 * NormalDist().cdf(-abs(centre) / error)


@lru_cache(maxsize=4096)
def interval_reach(rounds: int, alpha: float) -> float | None:
    """The expected half-width of the signed-rank interval of normal noise of standard deviation 1.

    Returns None if no interval of this alpha exists. A Walsh average is one difference or the mean
    of two, so the distribution of Walsh averages is a mixture of two normal distributions. The
    interval ends at the Walsh average of rank c among M. The expected value of this average is
    taken to be the quantile c / M of the mixture. From 6 rounds on, the error of this is at most
    8 %.
    """
    walsh = rounds * (rounds + 1) / 2
    if rounds <= _EXACT_MOST:
        import numpy as np

        cut = float(np.searchsorted(2 * stats.null_cdf(rounds), alpha, side="right"))
    else:
        deviation = math.sqrt(rounds * (rounds + 1) * (2 * rounds + 1) / 24)
        cut = walsh / 2 + NormalDist().inv_cdf(alpha / 2) * deviation
    if cut < 1:
        return None
    return _mixture_quantile(cut / walsh, rounds, walsh)


def _mixture_quantile(share: float, rounds: int, walsh: float) -> float:
    """The distance from the middle beyond which `share` of all Walsh averages lie, on one side."""
    normal = NormalDist()

    def beyond(distance: float) -> float:
        alone = rounds * normal.cdf(-distance)
        pairs = (walsh - rounds) * normal.cdf(-distance * math.sqrt(2))
        return (alone + pairs) / walsh

    near, far = 0.0, 10.0
    for _ in range(50):
        middle = (near + far) / 2
        if beyond(middle) > share:
            near = middle
        else:
            far = middle
    return near


def _fitted(differences: Sequence[Sequence[float]]) -> Noise:
    """Estimates the noise of the differences, of which each contender has the same number.

    The estimated variance of a contender is a weighted mean of two numbers: the variance of its own
    differences, and the geometric mean of these variances over all contenders.
    """
    ranks = [stats.SignedRank.of(of) for of in differences]
    variances = [max(_scale(rank) ** 2, _NO_NOISE) for rank in ranks]
    shared = math.exp(statistics.fmean(map(math.log, variances)))
    own = len(differences[0]) - 1
    weight = _SHARED_DF if len(variances) > 1 else 0.0
    return Noise(
        tuple(rank.estimate() for rank in ranks),
        tuple(
            math.sqrt((own * variance + weight * shared) / (own + weight)) for variance in variances
        ),
    )


def _freedom(rounds: int, contenders: int) -> float:
    """The degrees of freedom of a fitted variance.

    The first contender has `rounds - 1` degrees of freedom. Each further contender adds _SHARES
    times this number, because all contenders share the runs of the baseline. The sum is limited to
    `rounds - 1 + _SHARED_DF`. It is multiplied by _EFFICIENCY, which is less than 1 because the
    scale of the noise is read from the middle of the data alone.
    """
    own = rounds - 1
    shared = _SHARED_DF if contenders > 1 else 0.0
    return _EFFICIENCY * min(own + shared, own * (1 + _SHARES * (contenders - 1)))


def _scale(rank: stats.SignedRank) -> float:
    """The scale of the noise: the standard deviation of normal noise of the same width.

    The width is the distance between the two Walsh averages that _SCALE_SHARE describes.
    """
    count = len(rank.walsh)
    cut = max(1, round(_SCALE_SHARE * count))
    reach = float(rank.walsh[-cut] - rank.walsh[cut - 1]) / 2
    return reach / _mixture_quantile(cut / count, rank.n, count)


def _futures(
    differences: Sequence[Sequence[float]], looks: Sequence[int], rule: StopRule
) -> list[int]:
    """Plays the rest of the comparison. Returns the index of the look at which each play stops.

    looks: the number of differences at each look. The arrays have the axes play, contender, look.
    """
    import numpy as np

    assert rule.precision is not None
    fitted = _fitted(differences)
    rounds, count = len(differences[0]), len(differences)
    random = np.random.default_rng(0)
    freedom = _freedom(rounds, count)
    at = np.array(looks, dtype=np.float64)
    centre = np.array(fitted.centres)[None, :]
    scale = np.array(fitted.scales)[None, :]
    shape = (_FUTURES, count)
    middle = freedom * (1 - 2 / (9 * freedom)) ** 3  # the median of chi-square
    true_scale = scale * np.sqrt(middle / random.chisquare(freedom, shape))
    truth = centre + true_scale * PSEUDO_MEDIAN / math.sqrt(rounds) * random.standard_normal(shape)
    steps = np.diff(at, prepend=rounds)
    walk = np.cumsum(np.sqrt(steps) * random.standard_normal((*shape, len(at))), axis=2)
    later = truth[:, :, None] * (at - rounds) + true_scale[:, :, None] * PSEUDO_MEDIAN * walk
    estimate = (rounds * centre[:, :, None] + later) / at
    spread = np.sqrt(
        (rounds * scale[:, :, None] ** 2 + (at - rounds) * true_scale[:, :, None] ** 2) / at
    )
    ordinary = stats.alpha(rule)
    width = _reaches(estimate, spread, looks, ordinary, ordinary) * spread * np.exp(estimate)
    strict = _reaches(estimate, spread, looks, stats.ALPHA_EARLY, stats.ALPHA_EARLY) * spread
    one_sided = _reaches(estimate, spread, looks, stats.ALPHA_EARLY, 2 * stats.ALPHA_EARLY) * spread
    decided = (np.abs(estimate) > strict) | (np.abs(estimate) + one_sided <= rule.margin)
    settled = width <= np.where(decided, rule.precision, rule.precision / 2)
    done = settled.all(axis=1)
    done[:, -1] = True
    return [int(place) for place in np.argmax(done, axis=1)]


def _reaches(
    estimate: NDArray[np.float64],
    spread: NDArray[np.float64],
    looks: Sequence[int],
    family: float,
    alpha: float,
) -> NDArray[np.float64]:
    """The half-width of each interval, as a multiple of the standard deviation in `spread`.

    Holm's procedure is played with the error `family` for all contenders (see `stats.holm_alphas`).
    A contender that gets the error family / k from it gets the interval at the error alpha / k.
    """
    import numpy as np

    count = estimate.shape[1]
    table = np.array(
        [
            [math.inf if (reach := interval_reach(n, level / left)) is None else reach
             for n in looks]
            for level in (family, alpha)
            for left in range(1, count + 1)
        ]
    ).reshape(2, count, len(looks))  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(spread > 0, np.abs(estimate) / spread, np.where(estimate == 0, 0, np.inf))
    order = np.argsort(-ratio, axis=1)
    left = np.full((estimate.shape[0], len(looks)), count)
    result = np.empty_like(estimate)
    place = np.arange(len(looks))[None, :]
    for step in range(count):
        who = order[:, step : step + 1, :]
        np.put_along_axis(result, who, table[1][left - 1, place][:, None, :], axis=1)
        beyond = np.take_along_axis(ratio, who, axis=1)[:, 0, :] > table[0][left - 1, place]
        left = np.where(beyond & (left > 1), left - 1, left)
    return result
