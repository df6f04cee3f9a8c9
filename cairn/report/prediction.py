"""The predicted savings of other allocators, and the table of costs that predictions use."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from cairn import units
from cairn.report.formatting import printable
from cairn.report.standings import UNKNOWN, Board
from cairn.report.tables import Cell, Table
from cairn.why.prediction import Costs, Prediction

TELL_FROM = 0.05
"""The least share of CPU time that is worth a change of the allocator. No smaller saving is named.
"""
_KINDS = ("new", "reused", "calloc", "realloc", "free, local", "free, remote")
_MIB = 1 << 20


def sentences(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Yields the sentence about the best predicted allocator; nothing without predictions."""
    if not predictions:
        return
    best = next((one for one in predictions if one.saves >= TELL_FROM and one.low > 0), None)
    among = f"of {len(predictions)} measured on this machine"
    if best is None:
        yield f"No other allocator {among} is expected to save 5 % of CPU time or more."
        return
    ends = f"[{best.low * 100:.0f}, {best.high * 100:.0f}]"
    parts = (
        ("allocator code", best.own),
        ("allocator system calls", best.kernel),
        ("page faults", best.faults),
    )
    told = ", ".join(
        f"{name} {units.percent(share)}" for name, share in parts if abs(share) >= 0.01
    )
    yield (
        f"{best.allocator}, the best {among}, is expected to save about "
        f"{units.percent(best.saves, signed=False)} of CPU time {ends}: {told}. "
        "'cairn compare' tests the prediction."
    )


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
