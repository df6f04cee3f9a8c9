"""Simulated misses of caches and of the TLB, as a table and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from cairn import units
from cairn.profile.estimates import Estimate
from cairn.report.formatting import printable
from cairn.report.tables import Cell, Table
from cairn.simulated_misses import CacheLevel
from cairn.why.gap import Why
from cairn.why.simulated_gap import SimulatedGap


def table(why: Why, gap: SimulatedGap) -> Table:
    """Returns the misses of both contenders in each cache and TLB, and the time they take."""
    own, other = printable(why.contender), printable(why.baseline)
    rows = [
        (
            Cell(f"  {one.level.name}"),
            Cell(units.count(round(one.own.both))),
            Cell(units.count(round(one.other.both))),
            Cell(_range((one.level.overlapping_ns, one.level.most_ns))),
            *_time_cells(one.time),
        )
        for one in gap.levels
    ]
    rows.append((Cell("  total"), *(Cell(""),) * 3, *_time_cells(gap.time)))
    heads = ("simulated misses", own, other, "each", "difference", "between")
    return Table(title="", heads=heads, rows=tuple(rows), parts=(1, 1, 1, 2), optional=(2,))


def _time_cells(time: Estimate) -> tuple[Cell, Cell]:
    ends = time.interval
    return Cell(_signed(time.value)), Cell(f"[{_signed(ends.low)}, {_signed(ends.high)}]")


def sentences(why: Why) -> Iterator[str]:
    """Yields whether the misses bear out that the program itself takes longer, and by how much."""
    if why.unsimulated:
        yield f"The misses of the caches are not known: {why.unsimulated}."
    gap = why.simulated
    if gap is None:
        return
    more, less = why.contender, why.baseline
    if (gap.of_ns or gap.time.value) < 0:
        more, less = less, more
    ends = sorted(abs(end) for end in (gap.time.interval.low, gap.time.interval.high))
    extra = f"{units.time(abs(gap.time.value))} more ({_range((ends[0], ends[1]))})"
    share = gap.share
    if gap.of_ns is None or share is None:
        yield (
            f"In the simulation, the misses of caches and TLB take {extra} under {more} than under "
            f"{less}. No difference in the time of the program's own code is shown."
        )
        return
    longer = units.time(abs(gap.of_ns))
    if not gap.can_explain:
        most = units.time(max(0.0, share.interval.high) * abs(gap.of_ns))
        yield (
            f"The program's own code takes {longer} longer under {more} than under {less}, and its "
            f"misses of caches and TLB explain at most {most} of that in the simulation. So it is "
            "not slower because of where its blocks lie, unless several threads write to one cache "
            "line."
        )
        return
    yield (
        f"The program's own code takes {longer} longer under {more} than under {less}. In the "
        f"simulation, its misses of caches and TLB take {extra}."
    )


def footer(gap: SimulatedGap) -> str:
    """Returns what was simulated, and what was not."""
    sizes = ", ".join(_size(one.level) for one in gap.levels)
    return (
        f"simulated by callgrind: {sizes} · the times of a miss were measured here: the shorter "
        "one if misses overlap, the longer one if each load waits for the one before, or for "
        "memory · not simulated: cache lines that other processors take away"
    )


def _size(level: CacheLevel) -> str:
    pages = level.bytes // level.line_bytes
    size = f"{units.count(pages)} pages" if level.name.endswith("TLB") else units.size(level.bytes)
    if level.whole_bytes:
        return f"{level.name} {size} (that much of {units.size(level.whole_bytes)} is free for us)"
    return f"{level.name} {size}" + (" (assumed)" if level.assumed else "")


def _range(ends: tuple[float, float]) -> str:
    low, high = map(units.time, ends)
    return low if low == high else f"{low} to {high}"


def _signed(ns: float) -> str:
    text = units.time(abs(ns))
    return f"−{text}" if ns < 0 else f"+{text}"
