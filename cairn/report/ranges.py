"""The report of `cairn matrix ranges`: a board for text and Markdown, JSON and CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain

import msgspec

from cairn import units
from cairn.model import SCHEMA
from cairn.profile.metrics import ProfileMetric
from cairn.report.formatting import printable
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.why.ranges import (
    DRAMATIC,
    LEFT_OUT,
    ProfileTable,
    Range,
    Spread,
    median_of_others,
    ranges,
)

_SPREAD = ("mean", "least", "greatest")
_DRAMATIC_MOST = 5
"""The most sentences about dramatic differences on the first screen."""


def number(value: float) -> str:
    """A value with three significant digits; "1.5M" is 1.5 million, "1.5G" a thousand of them."""
    for unit, sign in ((1e9, "G"), (1e6, "M")):
        if value >= unit:
            return f"{value / unit:.3g}{sign}"
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}" if value >= 0.001 or not value else f"{value:.1g}"


def quantity(metric: ProfileMetric, value: float) -> str:
    """A value of a metric. A share is in percent."""
    return f"{number(100 * value)} %" if metric.share else number(value)


def board(table: ProfileTable, *, full: bool) -> Board:
    """Returns the ranges of the means over programs; with `full` also those on each program."""
    over = ranges(table)
    tables = [_ranges(over, ""), *_groups(over)]
    if full:
        tables += [_ranges(ranges(table, one), f"on {printable(one)}") for one in table.programs]
    return Board(
        title="Ranges of profile metrics",
        says=tuple(_says(table, over)),
        tables=tuple(one for one in tables if one.rows),
        footer=tuple(_footer(over)),
        failures=(),
    )


def _says(table: ProfileTable, over: Sequence[Range]) -> Iterator[str]:
    contenders, programs = len(table.healthy), len(table.programs)
    marked = sorted(
        ((times, name, one) for one in over for name, times in one.dramatic), key=lambda it: -it[0]
    )
    yield (
        f"{units.counted(len(over), 'metric')} of {units.counted(contenders, 'contender')} on "
        f"{units.counted(programs, 'program')}. "
        + (
            f"{len(marked)} values differ dramatically from the others."
            if len(marked) != 1
            else "1 value differs dramatically from the others."
        )
    )
    for times, name, one in marked[:_DRAMATIC_MOST]:
        how = f"{number(times)} times as bad as"
        if one.metric.worse == "neither":
            how = f"which differs by a factor of {number(times)} from"
        yield (
            f"{printable(name)}: {one.metric.words} is "
            f"{quantity(one.metric, one.values[name][0])}, {how} the median of the others, "
            f"{_median(one, name)}."
        )
    if len(marked) > _DRAMATIC_MOST:
        yield f"{len(marked) - _DRAMATIC_MOST} more are marked with ! in the table."


def _median(one: Range, name: str) -> str:
    middle = median_of_others(one.metric, one.values, name)
    bound = "at most " if math.isclose(middle, one.metric.least) else ""
    return f"{bound}{quantity(one.metric, middle)}"


def _ranges(of: Sequence[Range], title: str) -> Table:
    rows = []
    for one in of:
        names = {name for name, _ in one.dramatic}
        rows.append(
            (
                Cell(("! " if one.dramatic else "  ") + one.metric.title),
                Cell(quantity(one.metric, one.whole.mean)),
                Cell(quantity(one.metric, one.whole.least)),
                Cell(quantity(one.metric, one.whole.greatest), False if names else None),
                Cell(printable(one.whole.greatest_of)),
                Cell(printable(one.worst) if one.worst else "–"),
                *(
                    Cell(quantity(one.metric, value) if one.worst else "–")
                    for value in (one.narrow.mean, one.narrow.least, one.narrow.greatest)
                ),
            )
        )
    return Table(
        "",
        (title, *_SPREAD, "greatest of", "left out", *(f"{head} *" for head in _SPREAD)),
        tuple(rows),
        parts=(3, 1, 4),
        optional=(1,),
    )


def _groups(of: Sequence[Range]) -> Iterator[Table]:
    names = list(dict.fromkeys(chain.from_iterable(one.groups for one in of)))
    if not names:
        return
    yield Table(
        "",
        ("mean (greatest)", *(printable(name) for name in names)),
        tuple(
            (
                Cell(one.metric.title),
                *(Cell(_spread(one.metric, one.groups.get(name))) for name in names),
            )
            for one in of
        ),
    )


def _spread(metric: ProfileMetric, found: Spread | None) -> str:
    if found is None:
        return "–"
    return f"{quantity(metric, found.mean)} ({quantity(metric, found.greatest)})"


def _footer(over: Sequence[Range]) -> Iterator[str]:
    yield (
        "* These columns leave out the worst contender if its value is at least "
        f"{LEFT_OUT:g} times as bad as the next one, and its interval overlaps with no other. "
        f"! marks a metric with a value that is at least {DRAMATIC:g} times as bad as the median "
        "of the others, if its interval does not reach this median."
    )
    if any(one.metric.relative for one in over):
        yield "Times are divided by those of the baseline."


def as_json(table: ProfileTable) -> str:
    """Returns all ranges, over the programs and on each of them, as one JSON document."""
    parts = [ranges(table), *(ranges(table, program) for program in table.programs)]
    document = {
        "schema": SCHEMA,
        "baseline": table.baseline,
        "contenders": dict(table.titles),
        "ranges": [msgspec.to_builtins(one) for of in parts for one in of],
    }
    return json.dumps(document, ensure_ascii=True, indent=1) + "\n"


def as_csv(table: ProfileTable) -> str:
    """Returns one row for each value; the program is empty for means over programs."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        ("metric", "program", "contender", "value", "low", "high", "left_out", "dramatic")
    )
    for of in (ranges(table), *(ranges(table, program) for program in table.programs)):
        for one in of:
            marked = dict(one.dramatic)
            for name, (value, low, high) in one.values.items():
                writer.writerow(
                    (
                        one.metric.key,
                        one.program or "",
                        printable(name),
                        f"{value:.6g}",
                        f"{low:.6g}",
                        f"{high:.6g}",
                        "yes" if name == one.worst else "no",
                        f"{marked[name]:.3g}" if name in marked else "",
                    )
                )
    return file.getvalue()
