"""The page of 'cairn soak': the verdicts, memory over time, the growth, and the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cairn import units
from cairn.memory import Series
from cairn.model import Run, Sample
from cairn.page import scale
from cairn.page.comparison import sentences_of, sheets_of
from cairn.page.parts import (
    Curve,
    Curves,
    Dot,
    Fold,
    IntervalLine,
    Item,
    Sentences,
    SideBySide,
    Topic,
    Track,
    Tracks,
)
from cairn.page.scale import Scale
from cairn.report import soak, soak_rules
from cairn.report.formatting import NOT_MEASURED, printable
from cairn.report.tables import Cell, Table
from cairn.soak.trend import Growth
from cairn.soak.verdict import SoakVerdict, verdicts

rows = soak.rows
_KINDS = ("live", "held", "resident")
_FURTHER_MOST = 4
"""The most runs of a contender that are drawn besides its last one."""
_BINS = 120
"""The number of parts into which a long series is divided. The line has the least and the greatest
value of each part."""
_ROWS = 32
"""The most moments in the table behind a drawing."""


def parts(
    run: Run, samples: Sequence[Sample], name: str, stopped: str
) -> tuple[tuple[Item, ...], tuple[Topic, ...]]:
    """Returns the first screen, and the sections that only the page of a soak has.

    name: the run's name in a command. stopped: why measuring ended early; may be empty.
    """
    found = verdicts(run, samples)
    board = soak.board(run, found, samples, name, stopped)
    answer = (
        *sentences_of(replace(board, tables=()), "lead"),
        *sheets_of(replace(board, footer=())),
    )
    return answer, tuple(_topics(run, found, samples, board.footer))


def _topics(
    run: Run, found: Sequence[SoakVerdict], samples: Sequence[Sample], footer: Sequence[str]
) -> Iterator[Topic]:
    drawings = tuple(_over_time(found, samples))
    if drawings:
        yield Topic("memory", "Memory over time", drawings)
    grown = [
        one
        for one in (
            _growths(found, "growth", "lower edge of live memory"),
            _growths(found, "held_growth", "held memory"),
        )
        if one is not None
    ]
    if grown:
        yield Topic("growth", "Growth", (SideBySide(tuple(grown)),))
    rules = soak_rules.sentences(found)
    if rules:
        yield Topic("rules", "The rules", (Sentences(rules, "list"),))
    told = (*footer, *map(printable, run.notes))
    yield Topic("measured", "How it was measured", (Sentences(tuple(told), "list"),))


def _over_time(found: Sequence[SoakVerdict], samples: Sequence[Sample]) -> Iterator[Item]:
    """Yields the last run of each contender, and a fold with the runs before it."""
    drawn = list(_drawn(found, samples))
    if not drawn:
        return
    # All drawings have the same axes, so that contenders can be compared.
    across = scale.from_zero([1e6 * (one.at_ms[-1] - one.at_ms[0]) for _, _, one in drawn])
    up = scale.from_zero([float(max(*one.live, *one.held, *one.resident)) for _, _, one in drawn])
    last: list[Item] = []
    earlier: list[Item] = []
    left = 0
    for verdict in found:
        own = [(title, series) for who, title, series in drawn if who == verdict.contender]
        made = [_curves(*one, across, up) for one in own[-1 - _FURTHER_MOST :]]
        left += len(own) - len(made)
        last += made[-1:]
        earlier += made[:-1]
    yield SideBySide(tuple(last))
    if earlier:
        yield Fold("The other runs", (SideBySide(tuple(earlier)),))
    if left:
        runs = units.counted(left, "further run")
        yield Sentences((f"{runs} {'is' if left == 1 else 'are'} only in the raw data.",))


def _drawn(
    found: Sequence[SoakVerdict], samples: Sequence[Sample]
) -> Iterator[tuple[str, str, Series]]:
    """Yields contender, title and series of each run that can be drawn."""
    for verdict in found:
        own = [
            (one.trial.round, one.memory.series)
            for one in samples
            if one.trial.contender == verdict.contender
            and one.counts
            and one.memory.series is not None
        ]
        for (round_, series), judged in zip(own, verdict.runs, strict=True):
            if len(series.at_ms) > 1:
                name = printable(verdict.contender)
                title = f"{name}, round {round_}: {judged.kind.value}"
                yield verdict.contender, title, series


def _curves(title: str, series: Series, across: Scale, up: Scale) -> Curves:
    """Returns live, held and resident memory of one run over time."""
    up_axis = scale.axis(up, "memory", "bytes")
    ticks = tuple(replace(one, at=round(100 - one.at, 2)) for one in up_axis.ticks)
    table, is_whole = _moments(series)
    rest = "" if is_whole else f" The table has {_ROWS} of {len(series.at_ms)} moments."
    return Curves(
        title=title,
        says="Live: usable bytes of the blocks that were not freed. Held: bytes that the allocator "
        f"has from the kernel. Resident: pages in physical memory.{rest}",
        across=scale.axis(across, "time since the first moment", "ns"),
        up=replace(up_axis, ticks=ticks),
        curves=tuple(
            Curve(kind, _points(series, getattr(series, kind), across, up), kind) for kind in _KINDS
        ),
        table=table,
    )


def _points(series: Series, values: Sequence[int], across: Scale, up: Scale) -> str:
    """Returns the points of a line.

    Of a long series, these are the least and the greatest value in each part of the time.
    """
    first = series.at_ms[0]
    kept: Sequence[int] = range(len(values))
    if len(values) > 2 * _BINS:
        chosen = {0, len(values) - 1}
        for part in range(_BINS):
            inside = range(part * len(values) // _BINS, (part + 1) * len(values) // _BINS)
            chosen |= {min(inside, key=values.__getitem__), max(inside, key=values.__getitem__)}
        kept = sorted(chosen)
    return " ".join(
        f"{across.at(1e6 * (series.at_ms[one] - first))},{round(100 - up.at(values[one]), 2)}"
        for one in kept
    )


def _moments(series: Series) -> tuple[Table, bool]:
    """Returns the moments as a table, and whether it has all of them."""
    count = len(series.at_ms)
    if count <= _ROWS:
        places = list(range(count))
    else:
        places = [place * (count - 1) // (_ROWS - 1) for place in range(_ROWS)]
    made = tuple(
        (
            Cell(f"{(series.at_ms[place] - series.at_ms[0]) / 1000:.2f} s"),
            *(Cell(units.size(getattr(series, kind)[place])) for kind in _KINDS),
        )
        for place in places
    )
    return Table("", ("time", *_KINDS), made), count <= _ROWS


def _growths(found: Sequence[SoakVerdict], key: str, what: str) -> Tracks | None:
    """Returns the growth of each contender with its interval; None if no growth is known."""
    known = [(one, growth) for one in found if (growth := one.growth(key)) is not None]
    if not known:
        return None
    per_minute = [
        Growth(60 * growth.per_s, 60 * growth.low, 60 * growth.high) for _, growth in known
    ]
    axis = scale.from_zero([end for one in per_minute for end in (one.per_s, one.low, one.high)])
    tracks, rows_of = [], []
    drawn = {one.contender: each for (one, _), each in zip(known, per_minute, strict=True)}
    for one in found:
        growth, name = one.growth(key), printable(one.contender)
        text = NOT_MEASURED if growth is None else soak_rules.rate(growth)
        rows_of.append((Cell(name), Cell(text)))
        if growth is None:
            tracks.append(Track(name, text))
            continue
        each = drawn[one.contender]
        tracks.append(
            Track(
                name, text,
                is_proven=each.low > 0 or each.high < 0,
                dots=(Dot(axis.at(each.per_s), growth.per_s, "estimate"),),
                reach=IntervalLine(axis.at(each.low), axis.at(each.high), growth.low, growth.high),
            )
        )  # fmt: skip
    made = scale.axis(axis, "bytes a minute", "bytes")
    return Tracks(
        of=key,
        title=f"Growth of the {what}",
        says="A dot is the mean growth of the runs, and a line is the 95 % interval, which "
        "contains the interval of each run. A filled dot is a proven growth or decline.",
        axis=replace(made, reference=axis.at(0.0)),
        tracks=tuple(tracks),
        table=Table("", ("", "growth [95 %]"), tuple(rows_of)),
    )
