"""The predicted savings of other allocators, and the table of costs that predictions use."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from cairn import units
from cairn.model import Interval
from cairn.profile.estimates import LEVEL, Estimate
from cairn.report.formatting import printable
from cairn.report.profile_numbers import about
from cairn.report.standings import UNKNOWN, Board
from cairn.report.tables import Cell, Table
from cairn.why.prediction import Costs, Prediction
from cairn.why.prediction_score import TOLD_FROM, claim

_KINDS = ("new", "reused", "calloc", "realloc", "free, local", "free, remote")
_MIB = 1 << 20


def sentences(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Yields the sentence about the best predicted allocator; nothing without predictions."""
    if not predictions:
        return
    among = f"of {len(predictions)} measured on this machine"
    best = predictions[0]
    says = claim(predictions)
    if says == "saves":
        parts = (
            ("allocator code", best.own),
            ("allocator system calls", best.kernel),
            ("page faults", best.faults),
        )
        told = ", ".join(
            f"{name} {units.percent(share)}" for name, share in parts if abs(share) >= 0.01
        )
        ends = Estimate(best.saves, Interval(best.low, best.high, LEVEL))
        yield (
            f"{best.allocator}, the best {among}, is expected to save {about(ends)} of the CPU "
            f"time ({told}); {_LAYOUT}. 'cairn compare' tests the prediction."
        )
        return
    if says == "saves nothing":
        most = max(one.high for one in predictions)
        yield (
            f"No other allocator {among} is expected to save 5 % of the CPU time: "
            f"{_at_most(most)}; {_LAYOUT}."
        )
        return
    which = f"the best {among}, {best.allocator},"
    if best.high < TOLD_FROM:
        # The interval of another allocator is wider, and reaches further.
        best = max(predictions, key=lambda one: one.high)
        which = f"{best.allocator}, one {among},"
    yield (
        f"Whether another allocator saves 5 % of the CPU time is not known: {which} is expected to "
        f"save between {_percent(best.low)} and {_percent(best.high)} %, and {_LAYOUT}. 'cairn "
        "compare' measures it."
    )


_LAYOUT = "how another allocator's blocks lie cannot be predicted"
"""The effect that a prediction leaves out. The interval of a prediction is right only for programs
in which this effect is as small as in the programs on which predictions were validated."""


def _percent(share: float) -> str:
    return f"{100 * share:.0f}".replace("-", "−")


def _at_most(share: float) -> str:
    """Returns an upper end below TOLD_FROM in words.

    The end is rounded up, since a rounded bound must still be one. It has a decimal if it would
    otherwise be TOLD_FROM.
    """
    for digits in (0, 1):
        end = math.ceil(round(100 * share * 10**digits, 6)) / 10**digits
        if end < 100 * TOLD_FROM:
            return f"at most {end + 0.0:.{digits}f} %".replace("-", "−")
    return f"less than {100 * TOLD_FROM:.0f} %"


def board(costs: Mapping[str, Costs], names: Sequence[str], *, used: bool) -> Board:
    """Returns the costs, one row per allocator: medians over the workloads.

    `used` says whether 'cairn profile' predicts from this calibration.
    """
    rows = tuple(
        (
            Cell("  " + printable(name)),
            *(Cell(_median(one.kinds.get(kind, {}))) for kind in _KINDS),
            *(
                Cell(_median({place: ns * _MIB for place, ns in of.items()}))
                for of in (one.kernel, one.faults)
            ),
        )
        for name, one in costs.items()
    )
    heads = ("mean of an operation", *_KINDS, "system calls per MiB", "faults per MiB")
    failed = [
        printable(f"{name} failed on a workload and is left out")
        for name in names
        if name not in costs
    ]
    return Board(
        title="Calibration",
        says=(
            f"'cairn profile' uses the costs of these {len(costs)} allocators from now on."
            if used and len(costs) > 1
            else "'cairn profile' does not use these costs. It uses the last complete calibration "
            "in the default results folder, and that must have at least two allocators.",
        ),
        tables=(Table("", heads, rows, tight=True),),
        footer=("medians over the workloads of the means · per MiB: of peak memory",),
        failures=tuple(failed),
    )


def _median(of: Mapping[int, float]) -> str:
    return units.time(statistics.median(of.values())) if of else UNKNOWN
