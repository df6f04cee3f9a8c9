"""Simulated misses of caches and of the TLB, as a table and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from cairn import units
from cairn.profile.estimates import Estimate
from cairn.report.formatting import NOT_MEASURED, printable
from cairn.report.tables import Cell, Table
from cairn.simulated_misses import CacheLevel
from cairn.why.gap import Why
from cairn.why.simulated_gap import SimulatedGap

_MUCH = 3.0
"""From this share on, the misses cannot take as long as the estimate says."""


def table(why: Why, gap: SimulatedGap) -> Table:
    """Returns the misses of both contenders in each cache and TLB, and the time they take."""
    own, other = printable(why.contender), printable(why.baseline)
    rows = [
        (
            Cell(f"  {printable(one.level.name)}"),
            Cell(units.count(round(one.own.both))),
            Cell(units.count(round(one.other.both))),
            Cell(_each(one.level)),
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
    """Yields sentences that compare the time of the misses with that of the program's own code."""
    if why.unsimulated:
        yield f"The misses of the caches are not known: {why.unsimulated}."
    gap = why.simulated
    if gap is None:
        return
    more, less, sign = why.contender, why.baseline, 1
    if (gap.of_ns or gap.time.value) < 0:
        more, less, sign = less, more, -1
    extra = _extra(gap, sign)
    share = gap.share
    if gap.of_ns is None or share is None:
        yield (
            f"In the simulation, the misses of caches and TLB take {extra} under {more} than under "
            f"{less}. No difference in the time of the program's own code is shown."
        )
        return
    longer = (
        f"The program's own code takes {units.time(abs(gap.of_ns))} longer under {more} than under "
        f"{less}. In the simulation, its misses of caches and TLB take {extra}."
    )
    if not gap.can_explain:
        yield (
            f"{longer} Even the longest of these times is less than half of this difference, so "
            "misses are not the main reason. The simulation does not cover cache lines that "
            "several threads write to."
        )
    elif share.value < 0:
        yield f"{longer} The simulation does not tell whether they explain it."
    elif share.value > _MUCH:
        yield f"{longer} That is more than the whole difference, so many of these misses overlap."
    elif gap.bears_out:
        yield f"{longer} So they explain {'' if share.value > 0.8 else 'a large part of '}it."
    else:
        yield f"{longer} So they may explain it."


def _extra(gap: SimulatedGap, sign: int) -> str:
    """Returns the time of the misses and its range, such as "20.0 ms more (5.00 ms to 40.0 ms)".

    sign: 1 if the contender is the slower one, else -1.
    """
    value = sign * gap.time.value
    ends = sorted(sign * end for end in (gap.time.interval.low, gap.time.interval.high))
    if value < 0:
        ends = sorted(-end for end in ends)
    low, high = (f"{'−' if end < 0 else ''}{units.time(abs(end))}" for end in ends)
    span = low if low == high else f"{low} to {high}"
    return f"{units.time(abs(value))} {'less' if value < 0 else 'more'} ({span})"


def footer(gap: SimulatedGap) -> str:
    """Returns what was simulated, and what was not."""
    sizes = ", ".join(_size(one.level) for one in gap.levels)
    return (
        f"simulated by callgrind: {sizes} · the times of a miss were measured: the shorter one "
        "holds if misses overlap, the longer one if each load waits for the one before and others "
        "fill the last cache · each time is a geometric mean, so the rows do not add up · not "
        f"simulated: cache lines that other processors take away{_small_pages(gap)}"
    )


def _size(level: CacheLevel) -> str:
    name = printable(level.name)
    pages = level.bytes // level.line_bytes
    size = f"{units.count(pages)} pages" if level.name.endswith("TLB") else units.size(level.bytes)
    if level.whole_bytes:
        return f"{name} {size} of {units.size(level.whole_bytes)} (others use the rest)"
    return f"{name} {size}" + (" (assumed)" if level.assumed else "")


def _small_pages(gap: SimulatedGap) -> str:
    """Returns a clause if the machine had no huge pages, so that the TLB has no times."""
    if all(one.level.timed for one in gap.levels):
        return ""
    return " · the machine has no huge pages, so the times of the caches contain those of the TLB"


def _each(level: CacheLevel) -> str:
    """Returns the shortest and the longest time of a miss."""
    if not level.timed:
        return NOT_MEASURED
    low, high = units.time(level.overlapping_ns), units.time(level.most_ns)
    return low if low == high else f"{low} to {high}"


def _signed(ns: float) -> str:
    text = units.time(abs(ns))
    return f"−{text}" if ns < 0 else f"+{text}"
