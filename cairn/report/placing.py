"""The report of `cairn judge`: a board for text and Markdown, JSON and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO

import msgspec
from msgspec import Struct

from cairn import units
from cairn.model import SCHEMA
from cairn.report.formatting import printable
from cairn.report.ranges import number, quantity
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.why.placing import VERDICTS, WIDENED, Placed

_NAMED_MOST = 3


class RangeJudgement(Struct, frozen=True):
    """The judgement of one allocator: where its metrics lie in the ranges of healthy allocators.

    The ranges come from earlier runs, which are kept with cairn.
    """

    name: str
    """The name of the judged contender, which is unique within its run."""
    title: str
    """The judged allocator and its version, as printed."""
    placed: tuple[Placed, ...]
    """The place of each of its metrics."""
    contenders: tuple[str, ...]
    """The healthy allocators whose values make the ranges."""
    baseline: str
    about: str
    """The sentences on the runs that made the ranges."""
    failures: tuple[str, ...] = ()
    """The programs on which the judged allocator failed, as sentences."""
    missing: tuple[str, ...] = ()
    """The programs of the ranges on which the judged allocator was not measured."""
    left_out: tuple[str, ...] = ()
    """The healthy allocators that were left out of the ranges, because each of them is the judged
    allocator itself."""

    def of(self, verdict: str) -> tuple[Placed, ...]:
        """The metrics with this verdict, the worst first."""
        return tuple(
            sorted((one for one in self.placed if one.verdict == verdict), key=lambda p: -p.times)
        )


def board(found: RangeJudgement, *, full: bool) -> Board:
    """Returns the board, with a row for the place in each metric.

    Without `full`, metrics in which the allocator is inside the range have no row.
    """
    shown = [
        one for verdict in reversed(VERDICTS) for one in found.of(verdict)
        if full or verdict != "inside"
    ]  # fmt: skip
    return Board(
        title=f"{printable(found.title)} beside healthy allocators",
        says=tuple(_says(found)),
        tables=(_table(shown),) if shown else (),
        footer=tuple(_footer(found, full=full)),
        failures=tuple(map(printable, found.failures)),
    )


def _says(found: RangeJudgement) -> Iterator[str]:
    outside, edge = found.of("outside"), found.of("edge")
    title, whole = printable(found.title), len(found.placed)
    if not whole:
        yield f"{title} could not be placed: no metric was measured."
        return
    yield (
        f"{title} is clearly worse than the healthy allocators (outside) in "
        f"{len(outside) or 'none'} of {units.counted(whole, 'metric')}, somewhat worse (edge) in "
        f"{len(edge)}, and as good as they are (inside) in {len(found.of('inside'))}."
    )
    for one in outside:
        yield f"Outside in {_value(one, found.baseline)}. {_costs(one, found.baseline)}"


def _value(one: Placed, baseline: str) -> str:
    """The value of a metric and the end of its range, as a part of a sentence."""
    more = len(one.programs) - 1
    also = f" and on {units.counted(more, 'more program')}" if more else ""
    return (
        f"{one.metric.words}: {_unit(one, one.value, baseline)} on {printable(one.program)}{also}. "
        f"{printable(one.end_of)}, the worst healthy allocator in the range, has "
        f"{_unit(one, one.end, baseline)}"
    )


def _unit(one: Placed, value: float, baseline: str) -> str:
    if one.metric.relative:
        return f"{number(value)} × that of {printable(baseline)}"
    return quantity(one.metric, value)


def _costs(one: Placed, baseline: str) -> str:
    """A sentence on the cost of lying outside the range of this metric.

    It says how much CPU time and memory those allocators took that lay outside in the earlier runs,
    from which the ranges come.
    """
    if not one.outliers:
        return "In earlier runs, no allocator was outside in this metric: its cost is not known."
    names = list(dict.fromkeys(each.contender for each in one.outliers))
    shown = ", ".join(printable(name) for name in names[:_NAMED_MOST])
    others = f" and {len(names) - _NAMED_MOST} more" if len(names) > _NAMED_MOST else ""
    parts = []
    cpu, memory = one.cost("cpu"), one.cost("memory")
    if cpu is not None:
        parts.append(f"{_range(cpu)} times the CPU time")
    if memory is not None:
        parts.append(f"{_range(memory)} times the memory")
    if not parts:
        return (
            f"In earlier runs, the allocators that were outside in this metric were "
            f"{shown}{others}; their cost is not known."
        )
    return (
        f"In earlier runs, the allocators that were outside in this metric ({shown}{others}) took "
        f"{' and '.join(parts)} of {baseline}."
    )


def _range(of: tuple[float, float, float]) -> str:
    low, middle, high = (f"{one:.2g}" for one in of)
    return low if low == high else f"{middle} ({low} to {high})"


def _widened() -> str:
    """By how much a value at the edge may be worse than the range's end, for each kind of metric.

    For example: "1.5 times (memory, time) or 2 times (layout)".
    """
    kinds: dict[float, list[str]] = {}
    for kind, factor in sorted(WIDENED.items(), key=lambda one: one[1]):
        kinds.setdefault(factor, []).append(kind)
    parts = [f"{factor:g} times ({', '.join(names)})" for factor, names in kinds.items()]
    return f"{', '.join(parts[:-1])} or {parts[-1]}" if parts[1:] else parts[0]


def _table(shown: Sequence[Placed]) -> Table:
    good: Mapping[str, bool | None] = {"inside": None, "edge": None, "outside": False}
    return Table(
        "",
        ("", "place", "value", "range to", "on", "range by"),
        tuple(
            (
                Cell(one.metric.title),
                Cell(one.verdict, good[one.verdict]),
                Cell(quantity(one.metric, one.value)),
                Cell(quantity(one.metric, one.end)),
                Cell(printable(one.program)),
                Cell(printable(one.end_of)),
            )
            for one in shown
        ),
        optional=(4, 3),
    )


def _footer(found: RangeJudgement, *, full: bool) -> Iterator[str]:
    yield (
        f"The range of a metric is that of {len(found.contenders)} healthy allocators on the same "
        "program. It ends at the worst of them, but one that lies far from the others is left out. "
        f"A value is at the edge if it is at most {_widened()} as bad as this end, or if its "
        "interval reaches this limit. The table has the program on which the value is worst. Times "
        f"are multiples of those of {printable(found.baseline)}."
    )
    if found.left_out:
        names = ", ".join(map(printable, found.left_out))
        yield f"The ranges do not contain {names}, which is the same allocator."
    if found.missing:
        names = ", ".join(map(printable, found.missing))
        yield f"▲ {printable(found.title)} was not measured on {names}, which the ranges contain."
    yield found.about
    if not full and found.of("inside"):
        yield f"--full also shows the metrics in which {printable(found.title)} is inside."


def as_json(found: Sequence[RangeJudgement]) -> str:
    """Returns the judgements as one JSON document.

    A single judgement is the document itself. Several are a list in it.
    """
    each = [_document(one) for one in found]
    content = each[0] if len(each) == 1 else {"allocators": each}
    return json.dumps({"schema": SCHEMA, **content}, ensure_ascii=True, indent=1) + "\n"


def _document(found: RangeJudgement) -> dict[str, object]:
    return {
        "name": found.name,
        "allocator": found.title,
        "contenders": list(found.contenders),
        "about": found.about,
        "failures": list(found.failures),
        "metrics": [
            {
                "metric": one.metric.key,
                "title": one.metric.words,
                "place": one.verdict,
                "program": one.program,
                "programs": list(one.programs),
                "value": one.value,
                "range_end": one.end,
                "range_end_of": one.end_of,
                "times_as_bad": one.times,
                "outliers": msgspec.to_builtins(one.outliers),
            }
            for one in found.placed
        ],
    }


def as_csv(found: Sequence[RangeJudgement]) -> str:
    """Returns one row for each contender and metric."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        (
            "contender", "metric", "place", "program", "value", "range_end", "range_end_of",
            "times_as_bad",
        )
    )  # fmt: skip
    for name, one in ((of.name, one) for of in found for one in of.placed):
        writer.writerow(
            (
                printable(name),
                one.metric.key,
                one.verdict,
                one.program,
                f"{one.value:.6g}",
                f"{one.end:.6g}",
                printable(one.end_of),
                f"{one.times:.4g}",
            )
        )
    return file.getvalue()
