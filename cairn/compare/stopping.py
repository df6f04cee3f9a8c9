"""Chooses the rule that decides when a workload of a run has enough rounds. Pure.

- A comparison stops when its verdict is certain; see `stats.look`.
- A check stops when each of its bounds is decided; see `gate.look`.
- A suite of many workloads stops each of them when its times are known precisely; see
  `suite_look`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from cairn import units
from cairn.compare import comparison, gate, rounds_needed, stats
from cairn.model import Run, Sample, StopRule


def ratios(
    run: Run, samples: Sequence[Sample], names: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Returns the log ratios that decide when measuring stops.

    A measure that is missing in some rounds has fewer ratios than there are complete rounds.

    samples: those of one workload. names: the contenders that are compared on it.
    """
    if run.gate is not None:
        return gate.deciding_ratios(run, samples)
    return comparison.deciding_ratios(samples, names, run.baseline, run.aim)


def look(run: Run, of: Mapping[str, Sequence[float]], rounds: int) -> stats.Look:
    """Returns the answer of the run's rule after this number of complete rounds.

    of: the result of `ratios`, which is not empty.
    """
    if run.gate is not None:
        return gate.look(of, run.gate, run.rule, rounds)
    judged = stats.look if run.rule.judged == "wall" else suite_look
    return judged(of, run.rule, rounds)


def least(run: Run) -> int:
    """Returns the least number of rounds that can show a result."""
    if run.gate is not None:
        return gate.least(run.gate, run.rule)
    return rounds_needed.least(run.aim.hypotheses(len(run.competing)), run.rule)


def forecast(
    run: Run, of: Mapping[str, Sequence[float]], rounds: int
) -> rounds_needed.Forecast | None:
    """Predicts the round at which the rule stops. Returns None if it is not known.

    of and rounds: as for `look`.
    """
    if run.gate is not None:
        return gate.forecast(of, run.gate, run.rule, rounds)
    return rounds_needed.forecast(of, run.rule, rounds)


def suite_look(
    ratios: Mapping[str, Sequence[float]], rule: StopRule, rounds: int | None = None
) -> stats.Look:
    """The stopping rule for one workload of a suite. It depends on the widths of intervals alone.

    `stats.look` is the rule for a comparison with a verdict of its own. It needs many rounds: for
    ten contenders, its intervals exist only from nine rounds on. A suite reports means over dozens
    of workloads, and uses only the estimates of each workload. So here each contender's mean log
    ratio has a 95 % interval of its own by Student's t. The workload stops when all these intervals
    are as narrow as `precision` demands. The estimates stay unbiased, because the rule depends on
    widths alone. The coverage of the intervals falls by three percentage points at most
    (tests/python/test_bench.py).

    rounds: as for `stats.look`.
    """
    known = min(len(differences) for differences in ratios.values())
    rounds = known if rounds is None else rounds
    widths = (
        [math.expm1(stats.mean_half_width(differences)) for differences in ratios.values()]
        if known > 2
        else []
    )
    widest = max(widths, default=None)
    means = {name: statistics.fmean(differences) for name, differences in ratios.items() if known}
    leader = min(means, key=means.__getitem__, default=None)
    because = None
    if rounds >= rule.max_rounds:
        because = units.counted(rounds, "round")
    elif (
        rule.precision is not None
        and rounds >= rule.min_rounds
        and widest is not None
        and widest <= rule.precision
    ):
        because = stats.PRECISE
    return stats.Look(
        stop=because is not None,
        because=because,
        half_width=widest,
        leading=leader if leader is not None and means[leader] < 0 else None,
    )
