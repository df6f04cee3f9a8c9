"""What other allocators are expected to save, and the costs that this rests on."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from cairn import units
from cairn.report.standings import UNKNOWN, Board
from cairn.report.tables import Cell, Table
from cairn.report.words import printable
from cairn.why.prediction import Costs, Prediction

TELL_FROM = 0.05
"""Of CPU time: less than that is no reason to change."""
_KINDS = ("new", "reused", "calloc", "realloc", "free, local", "free, remote")
_MIB = 1 << 20


def sentences(predictions: Sequence[Prediction]) -> Iterator[str]:
    """The best of the others; nothing where nobody knows."""
    if not predictions:
        return
    best = next((one for one in predictions if one.saves >= TELL_FROM and one.low > 0), None)
    among = f"of {len(predictions)} that were measured on this machine"
    if best is None:
        yield f"No other allocator, {among}, is expected to save 5 % of CPU or more."
        return
    ends = f"[{best.low * 100:.0f}, {best.high * 100:.0f}]"
    parts = (
        ("its own code", best.own),
        ("kernel calls", best.kernel),
        ("page faults", best.faults),
    )
    told = ", ".join(
        f"{name} {units.percent(share)}" for name, share in parts if abs(share) >= 0.01
    )
    yield (
        f"{best.allocator}, the best {among}, is expected to save about "
        f"{units.percent(best.saves, signed=False)} of CPU {ends}: {told}. 'cairn compare' tells whether it does."
    )


def board(costs: Mapping[str, Costs], names: Sequence[str], *, used: bool) -> Board:
    """One row an allocator: the medians over the workloads. `used`: it is the calibration that profiles are told by."""
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
    heads = ("an operation, on average", *_KINDS, "kernel calls a MiB", "faults a MiB")
    failed = [
        printable(f"{name} failed on a workload, and is not in it")
        for name in names
        if name not in costs
    ]
    return Board(
        title="Calibration",
        says=(
            f"'cairn profile' uses the costs of these {len(costs)} allocators from now on."
            if used and len(costs) > 1
            else "'cairn profile' does not use these costs: it takes the last calibration that came to its end in the "
            "folder where results are kept by default, and needs two allocators or more.",
        ),
        tables=(Table("", heads, rows, tight=True),),
        footer=("medians over the workloads, of means · MiB of the peak",),
        failures=tuple(failed),
    )


def _median(of: Mapping[int, float]) -> str:
    return units.time(statistics.median(of.values())) if of else UNKNOWN
