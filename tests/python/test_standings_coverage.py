"""Simulates suites with known true times, and counts the intervals that contain the truth.

All runs of a round share a drift three times as large as the noise. The noise has heavy tails
(Student's t, 3 degrees of freedom) and an exponential disturbance in 2 % of the runs. The loudest
workload has four times the noise of the quietest one.

These intervals are difficult because they refer to the best contender, which is unknown: of several
equal contenders, the luckiest looks best. So the simulated differences between contenders are zero,
or steps as large as the standard error, or obvious.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cairn.compare import ratios
from cairn.compare.ratios import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 4711
ALPHA = 0.05
NOISE = 0.01


@dataclass(frozen=True)
class Outcome:
    """Shares of intervals that contain the truth, and errors and lengths of means over workloads.

    The unit of errors and lengths is the standard error that a mean would have if the best
    contender of each workload were known.
    """

    means: float
    """Share of the intervals of all contenders' means that contain the truth."""
    worst: float
    """Like `means`, but of the one contender for which this share is the lowest."""
    cells: float
    """Share of the intervals of single workloads that contain the truth."""
    differences: float
    """Share of the intervals of the mean difference of two contenders that contain the truth."""
    overlap: float
    """Share of pairs of simulated runs in which the two intervals of a contender's mean overlap."""
    from_apparent_best: float
    """Share of the intervals that would contain the truth, if each interval were centred on the
    measured distance to the contender that looks best."""
    bias: float
    """Mean error of the estimated means."""
    bias_from_apparent_best: float
    """Mean error of the measured distance to the contender that looks best."""
    width: float
    """Mean length of the interval of a contender's mean."""


def truths(
    kind: str, workloads: int, contenders: int, error: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the true log times by workload and contender. The best of each workload has 0.

    `error` is the standard error of a median, for each workload.
    """
    rng = np.random.default_rng(SEED)
    steps = np.arange(contenders, dtype=np.float64)
    match kind:
        case "alike":
            made = np.zeros((workloads, contenders))
        case "three best":
            made = rng.permuted(np.tile(np.where(steps < 3, 0.0, 0.3), (workloads, 1)), axis=1)
        case "half steps":
            made = 0.5 * error[:, None] * steps
        case "two steps":
            made = 2.0 * error[:, None] * steps
        case _:
            made = np.abs(rng.normal(0, 0.15, (workloads, contenders)))
    return np.asarray(made - made.min(axis=1, keepdims=True))


def simulate(kind: str, workloads: int, contenders: int, rounds: int, series: int) -> Outcome:
    """Simulates a suite `series` times, and compares every interval with the truth."""
    rng = np.random.default_rng(SEED + rounds)
    loud = NOISE * np.exp(np.linspace(-0.7, 0.7, workloads))
    truth = truths(kind, workloads, contenders, loud / math.sqrt(rounds))
    names = tuple(str(i) for i in range(contenders))
    mean_truth = truth.mean(axis=0)
    known = math.sqrt(2 * float(np.mean(loud**2)) / rounds / workloads)
    hits = np.zeros((series, contenders), dtype=bool)
    apparent = np.zeros((series, contenders), dtype=bool)
    ends = np.zeros((series, contenders, 2))
    errors, above_errors, cells, differences = [], [], [], []
    for one in range(series):
        shape = (workloads, rounds, contenders)
        noise = rng.standard_t(3, shape) / math.sqrt(3) + (
            rng.random(shape) < 0.02
        ) * rng.exponential(10, shape)
        logs = (
            loud[:, None, None] * (noise + 3 * rng.standard_normal((workloads, rounds, 1)))
            + truth[:, None, :]
        )
        columns = [Column.of(names, of, ALPHA) for of in logs]
        for place, name in enumerate(names):
            ratio = ratios.mean_ratio(columns, name)
            assert ratio is not None
            assert ratio.interval is not None
            ends[one, place] = math.log(ratio.interval.low), math.log(ratio.interval.high)
            hits[one, place] = ends[one, place, 0] <= mean_truth[place] + 1e-12
            hits[one, place] &= mean_truth[place] <= ends[one, place, 1] + 1e-12
            above = float(np.mean([column.behind[place] for column in columns]))
            errors.append(math.log(ratio.estimate) - mean_truth[place])
            above_errors.append(above - mean_truth[place])
            spread = ratios._pooled([column._spread(place) for column in columns])
            plain = ratios._interval(above, above, spread, ALPHA)
            assert plain is not None
            apparent[one, place] = math.log(plain.low) <= mean_truth[place] + 1e-12
            apparent[one, place] &= mean_truth[place] <= math.log(plain.high) + 1e-12
            cell = columns[one % workloads].ratio(name).interval
            assert cell is not None
            cells.append(cell.low <= math.exp(truth[one % workloads, place]) + 1e-12)
            cells[-1] &= math.exp(truth[one % workloads, place]) <= cell.high + 1e-12
        difference = ratios.mean_difference(columns, names[0], names[1]).interval
        assert difference is not None
        differences.append(
            difference.low <= math.exp(mean_truth[0] - mean_truth[1]) <= difference.high
        )
    first, second = ends[: series // 2], ends[series // 2 : series // 2 * 2]
    overlap = (
        np.maximum(first[:, :, 0], second[:, :, 0])
        <= np.minimum(first[:, :, 1], second[:, :, 1]) + 1e-12
    )
    return Outcome(
        means=float(hits.mean()),
        worst=float(hits.mean(axis=0).min()),
        cells=float(np.mean(cells)),
        differences=float(np.mean(differences)),
        overlap=float(overlap.mean()),
        from_apparent_best=float(apparent.mean()),
        bias=float(np.mean(errors)) / known,
        bias_from_apparent_best=float(np.mean(above_errors)) / known,
        width=float(np.mean(ends[:, :, 1] - ends[:, :, 0])) / known,
    )


def report(case: str, outcome: Outcome) -> None:
    """Prints a line of the table of results, which `pytest -s` shows."""
    print(
        f"{case}: means {outcome.means:.1%} (worst {outcome.worst:.1%}; around the apparent best "
        f"{outcome.from_apparent_best:.1%}), cells {outcome.cells:.1%}, differences "
        f"{outcome.differences:.1%}, overlap {outcome.overlap:.1%}, bias {outcome.bias:+.2f} "
        f"(apparent best {outcome.bias_from_apparent_best:+.2f}), width {outcome.width:.1f}"
    )


@pytest.mark.parametrize("kind", ["alike", "three best", "half steps", "two steps", "as in life"])
@pytest.mark.parametrize("rounds", [pytest.param(2, marks=pytest.mark.long), 8])
@pytest.mark.parametrize(
    ("workloads", "contenders"), [(12, 5), pytest.param(26, 13, marks=pytest.mark.long)]
)
def test_intervals_contain_the_truth(
    workloads: int, contenders: int, rounds: int, kind: str
) -> None:
    outcome = simulate(kind, workloads, contenders, rounds, series=24 if contenders > 5 else 48)
    report(f"{kind}, {workloads} workloads, {contenders} contenders, {rounds} rounds", outcome)
    assert outcome.means >= 0.93
    assert outcome.cells >= 0.92, "0.95 is expected; a few hundred intervals scatter around that"
    assert outcome.overlap >= 0.95
    assert -3 <= outcome.bias <= 1


def test_the_apparent_best_alone_would_mislead() -> None:
    """The simulation must notice if intervals ignore the luck of the apparently best contender."""
    outcome = simulate("alike", 26, 13, 8, series=40)
    assert outcome.from_apparent_best < 0.1
    assert outcome.bias_from_apparent_best > 4
    assert outcome.bias < 1
    assert outcome.means >= 0.93


@pytest.mark.long
@pytest.mark.parametrize("kind", ["alike", "three best", "half steps", "two steps", "as in life"])
@pytest.mark.parametrize("rounds", [2, 3, 4, 5, 8, 12, 20, 30])
@pytest.mark.parametrize(("workloads", "contenders"), [(1, 2), (4, 5), (12, 5), (26, 13)])
def test_intervals_contain_the_truth_in_more_series_and_for_each_contender(
    workloads: int, contenders: int, rounds: int, kind: str
) -> None:
    outcome = simulate(kind, workloads, contenders, rounds, series=max(100, 2_000 // workloads))
    report(f"{kind}, {workloads} workloads, {contenders} contenders, {rounds} rounds", outcome)
    assert outcome.means >= 0.935
    assert outcome.worst >= 0.9
    assert outcome.cells >= 0.93
    assert outcome.differences >= 0.9
    assert outcome.overlap >= 0.97
