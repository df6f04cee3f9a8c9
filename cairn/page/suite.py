"""The pages of runs of many workloads: standings, scenarios, and a plan of many programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cairn.compare import matrix
from cairn.compare.matrix import PairedRatio
from cairn.compare.ranking import Ranking
from cairn.compare.ratios import Ratio
from cairn.compare.standings import Place, Standings, WorkloadResult
from cairn.model import Interval
from cairn.page import drawings
from cairn.page.comparison import sheets_of
from cairn.page.drawings import RatioRow
from cairn.page.parts import Fold, Item, SideBySide, TimeMemoryPlane, Topic, Tracks
from cairn.report import formatting
from cairn.report.formatting import printable
from cairn.report.matrix_board import NOUNS, MatrixReport, good_mean, good_ratio, ordered
from cairn.report.plane import Point
from cairn.report.standings import FAILED, UNKNOWN, Board
from cairn.report.tables import Cell, Table, name_of

_LINES = "A dot is the estimate, and the line is its 95 % interval."
_OPEN_MOST = 2
"""With at most this many contenders, the drawings of all are open. With more, only the first is."""


def standings(found: Standings, board: Board) -> Iterator[Topic]:
    """Yields the sections of standings: the means, each contender on each workload, the tables."""
    means = _side_by_side(
        _place_means(found, "time", lambda place: place.time),
        _place_means(found, "peak memory", lambda place: place.memory),
    )
    if means:
        yield Topic("proof", "Means over all workloads", means)
    plane = _place_plane(found)
    if plane is not None:
        yield Topic("plane", "Time and memory", (plane,))
    folds = []
    for place in found.places:
        both = _side_by_side(
            _place_ratios(found, place, "time", lambda cell: cell.time),
            _place_ratios(found, place, "peak memory", lambda cell: cell.memory),
        )
        if both:
            folds.append((printable(place.contender), both))
    yield from _each(folds, "Each workload")
    yield Topic("numbers", "The numbers", tuple(sheets_of(board)))


def _side_by_side(*drawn: Tracks | None) -> tuple[Item, ...]:
    known = tuple(one for one in drawn if one is not None)
    return (SideBySide(known),) if known else ()


def _each(folds: Sequence[tuple[str, tuple[Item, ...]]], title: str) -> Iterator[Topic]:
    if folds:
        items = tuple(
            Fold(name, items, is_open=place == 0 or len(folds) <= _OPEN_MOST)
            for place, (name, items) in enumerate(folds)
        )
        yield Topic("each", title, items)


def _about(estimate: float, interval: Interval | None) -> str:
    return f"{formatting.times(estimate)} {formatting.times_interval(interval)}"


def _text(ratio: Ratio | None) -> str:
    return UNKNOWN if ratio is None else _about(ratio.estimate, ratio.interval)


def _worse(ratio: Ratio | None) -> bool | None:
    """Whether the contender is shown to be worse than the best; None if it may be the best."""
    if ratio is None or ratio.interval is None or ratio.interval.low <= 1:
        return None
    return False


def _place_means(found: Standings, noun: str, of: Callable[[Place], Ratio | None]) -> Tracks | None:
    rows: list[RatioRow] = []
    for place in found.places:
        ratio = of(place)
        text = "failed" if place.failed_on else _text(ratio)
        rows.append((name_of(place.title, place.contender), ratio, _worse(ratio), text))
    return drawings.ratios(
        rows, of="means", title=f"Mean {noun}, compared with the best of each workload",
        says=f"{_LINES} It is filled where the contender is shown to be worse than the best.",
        axis_title=f"{noun} above that of the best", metric=noun,
    )  # fmt: skip


def _place_ratios(
    found: Standings, place: Place, noun: str, of: Callable[[WorkloadResult], Ratio | None]
) -> Tracks | None:
    rows: list[RatioRow] = []
    for contest in found.contests:
        cell = found.cells[contest.workload, place.contender]
        ratio = of(cell)
        text = f"{FAILED} failed" if cell.failure is not None else _text(ratio)
        rows.append((contest.name, ratio, _worse(ratio), text))
    name = printable(place.contender)
    return drawings.ratios(
        rows, of="ratios", title=f"{name}: {noun}, compared with the best of each workload",
        says=_LINES, axis_title=f"{noun} above that of the best", metric=noun,
        contender=place.contender,
    )  # fmt: skip


def _place_plane(found: Standings) -> TimeMemoryPlane | None:
    shown = [
        (
            printable(place.contender),
            Point(
                place.contender, place.time.estimate, place.memory.estimate, place.time.interval,
                place.memory.interval,
            ),
        )
        for place in found.places
        if place.time is not None and place.memory is not None
    ]  # fmt: skip
    if len(shown) < 2:
        return None
    rows = tuple(
        (Cell(printable(place.contender)), Cell(_text(place.time)), Cell(_text(place.memory)))
        for place in found.places
        if place.time is not None and place.memory is not None
    )
    return drawings.time_memory_plane(
        shown, says="The lower left is best. Lines are 95 % intervals of the means.",
        base="the best of each workload",
        table=Table("", ("", "time ÷ best [95 %]", "peak memory ÷ best [95 %]"), rows), workload=0,
    )  # fmt: skip


def scenarios(found: Ranking, board: Board) -> Iterator[Topic]:
    """Yields the sections of scenarios: the means, each scenario, the tables."""
    rows: list[RatioRow] = [
        (
            name_of(rank.title, rank.contender), rank.ratio, _worse(rank.ratio),
            "failed" if rank.failed_on else _text(rank.ratio),
        )
        for rank in found.ranks
    ]  # fmt: skip
    drawn = drawings.ratios(
        rows, of="means", title="Mean time of an operation, compared with the best",
        says=_LINES, axis_title="time above that of the best", metric="median",
    )  # fmt: skip
    if drawn is not None:
        yield Topic("proof", "Means over all scenarios", (drawn,))
    folds = []
    for scenario in found.scenarios:
        entries: list[RatioRow] = [
            (
                entry.contender,
                entry.median_ratio,
                _worse(entry.median_ratio),
                f"{FAILED} failed" if entry.failure else _text(entry.median_ratio),
            )
            for entry in scenario.entries
        ]
        name = printable(scenario.name)
        one = drawings.ratios(
            entries, of="ratios", title=f"{name}: time of an operation, compared with the best",
            says=_LINES, axis_title="time above that of the best", metric="median",
            contender=scenario.name,
        )  # fmt: skip
        if one is not None:
            folds.append((name, (one,)))
    yield from _each(folds, "Each scenario")
    yield Topic("numbers", "The numbers", tuple(sheets_of(board)))


def plan(report: MatrixReport, board: Board) -> Iterator[Topic]:
    """Yields the sections of a plan: the means, each contender on each program, the tables."""
    found = report.result
    base = printable(found.baseline)
    names = ordered(found)

    def means(measure: matrix.Measure) -> Tracks | None:
        rows: list[RatioRow] = []
        for name in names:
            mean = found.means.get((measure, name))
            text = UNKNOWN if mean is None else _about(mean.estimate, mean.interval)
            rows.append((report.title(name), mean, good_mean(found, measure, name), text))
        return drawings.ratios(
            rows, of="means", title=f"Mean {NOUNS[measure]}, compared with {base}",
            says=f"{_LINES} It is filled where a difference is proven.",
            axis_title=f"difference from {base}", metric=measure,
        )  # fmt: skip

    both = _side_by_side(means("time"), means("memory"))
    if both:
        yield Topic("proof", "Means over all programs", both)
    plane = _mean_plane(report, names, base)
    if plane is not None:
        yield Topic("plane", "Time and memory", (plane,))
    folds = []
    for name in names:
        drawn = _side_by_side(
            *(_program_ratios(report, name, one, base) for one in matrix.MEASURES)
        )
        if drawn:
            folds.append((report.title(name), drawn))
    yield from _each(folds, "Each program")
    yield Topic("numbers", "The numbers", tuple(sheets_of(board)))


def _program_ratios(
    report: MatrixReport, name: str, measure: matrix.Measure, base: str
) -> Tracks | None:
    found = report.result
    rows: list[RatioRow] = []
    for program in found.programs:
        cell = found.cells[program, name]
        ratio = cell.of(measure)
        text = f"{FAILED} failed" if cell.failure is not None else _paired(ratio)
        rows.append((report.label(program), ratio, good_ratio(ratio) if ratio else None, text))
    return drawings.ratios(
        rows, of="ratios", title=f"{printable(name)}: {NOUNS[measure]}, compared with {base}",
        says=f"{_LINES} It is filled where a difference is proven.",
        axis_title=f"difference from {base}", metric=measure, contender=name,
    )  # fmt: skip


def _paired(ratio: PairedRatio | None) -> str:
    return UNKNOWN if ratio is None else _about(ratio.estimate, ratio.interval)


def _mean_plane(report: MatrixReport, names: Sequence[str], base: str) -> TimeMemoryPlane | None:
    found = report.result
    shown = [(base, Point(found.baseline, 1.0, 1.0))]
    rows = []
    for name in names:
        time, memory = (found.means.get((measure, name)) for measure in matrix.MEASURES)
        if time is None or memory is None:
            continue
        shown.append((
            printable(name),
            Point(name, time.estimate, memory.estimate, time.interval, memory.interval),
        ))  # fmt: skip
        rows.append((
            Cell(printable(name)),
            *(
                Cell(_about(one.estimate, one.interval))
                for one in (time, memory)
            ),
        ))  # fmt: skip
    if len(shown) < 2:
        return None
    heads = ("", f"time ÷ {base} [95 %]", f"peak memory ÷ {base} [95 %]")
    return drawings.time_memory_plane(
        shown, says="The lower left is best. Lines are 95 % intervals of the means.", base=base,
        table=Table("", heads, tuple(rows)), workload=0,
    )  # fmt: skip
