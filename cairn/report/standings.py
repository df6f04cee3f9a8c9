"""Standings and rankings of scenarios as boards: sentences and tables that every form can draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.compare.ranking import Entry, Matrix, Ranking, Scenario
from cairn.compare.ratios import Difference, Ratio
from cairn.compare.standings import LARGE_BYTES, Contest, Place, Standings, WorkloadResult
from cairn.model import INTERRUPTED, TIME_BUDGET, Run
from cairn.report import formatting
from cairn.report.tables import Cell, Table, name_of

BEST, MAYBE, FAILED, UNKNOWN = "▸", "≈", "✘", "–"
"""Signs in a matrix: the apparent best; a contender that may be the best; failed; not measured."""

MANY = 8
"""With more scenarios than this, a board has one table per metric. Otherwise it has one table per
scenario."""
SYSTEM = "system"
FROZEN = "-frozen"
"""The end of the name of Cairn's contender without learning (cairn/bench/experiments.py)."""


class Board(Struct, frozen=True):
    """A report in parts: conclusions, tables, how they were measured, and failures.

    All texts are printable.
    """

    title: str
    says: tuple[str, ...]
    tables: tuple[Table, ...]
    footer: tuple[str, ...]
    failures: tuple[str, ...]


def with_notes(board: Board, notes: Sequence[str]) -> Board:
    """Returns the board with the notes of a run below its tables."""
    return replace(board, footer=(*board.footer, *map(formatting.printable, notes)))


def standings(run: Run, found: Standings, *, stopped: Sequence[str] | None = None) -> Board:
    """Returns the board of standings.

    `stopped` is why measuring ended: a run that was cut short must not look like a complete one.
    """
    tables = [_times(found), _memories(found)]
    for head, of in (("time ÷ best", _time), ("peak memory ÷ best", _memory)):
        if any(of(cell) for cell in found.cells.values()):
            tables.append(_matrix(found, head, of))
    tables.append(_contests(found))
    count = len(found.contests)
    return Board(
        title=f"{_count(len(found.places), 'allocator')} on {_count(count, 'workload')}",
        says=tuple(_standings_say(found)),
        tables=tuple(table for table in tables if table.rows),
        footer=(
            *_cut_short(stopped, [c.rounds for c in found.contests], "workload"),
            *_standings_footer(run, found),
        ),
        failures=tuple(_standings_failures(found)),
    )


def _standings_say(found: Standings) -> Iterator[str]:
    """Yields the conclusions.

    They name the fastest and the leanest contender, the contenders that may be as fast or as lean,
    and those that have no mean because they failed.
    """
    first = found.places[0]
    if first.time is None:
        yield "No allocator has a mean over all workloads; the tables say why."
        return
    over = _count(len(found.time_over), "workload")
    yield (
        f"Fastest over {over}: {_named(first)}. On average, it takes {_mean(first.time)} the time "
        "of the fastest in each workload."
    )
    same = [place for place in found.places[1:] if _may_be_best(place.time)]
    if same:
        yield f"May be as fast: {', '.join(map(_named, same))}."
    lean = next((place for place in found.places if place.contender == found.leanest), None)
    if lean is not None and lean.memory is not None:
        over = _count(len(found.memory_over), "workload")
        yield (
            f"Leanest over {over}: {_named(lean)}. On average, it takes {_mean(lean.memory)} the "
            "peak memory of the leanest in each workload."
        )
        even = [place for place in found.places if place is not lean and _may_be_best(place.memory)]
        if even:
            yield f"May be as lean: {', '.join(map(_named, even))}."
    failed = [place for place in found.places if place.failed_on]
    if failed:
        yield f"Not ranked, because a workload failed: {', '.join(map(_named, failed))}."


def _may_be_best(mean: Ratio | None) -> bool:
    """Returns whether the contender may be as good as the best of every workload.

    The first row of the table is not a fair reference, because the same data put it first: if all
    contenders were alike, most runs would call some of them slower than the first. The intervals of
    means account for the choice of the best.
    """
    return mean is not None and (mean.interval is None or mean.interval.low <= 1)


def _named(place: Place) -> str:
    return formatting.printable(place.contender)


def _mean(ratio: Ratio) -> str:
    interval = (
        formatting.times_interval(ratio.interval) if ratio.interval else "(one round: no interval)"
    )
    return f"{formatting.times(ratio.estimate)} times {interval}"


def _times(found: Standings) -> Table:
    """Returns the geometric means of time, in the order of the ranking."""
    rows = []
    for number, place in enumerate(found.places, 1):
        name = name_of(place.title, place.contender)
        slower = place.over_above is not None and place.over_above.more
        cells = (Cell(_no_mean(place)), Cell(""))
        if place.time is not None:
            cells = (
                Cell(_with_interval(place.time)),
                Cell(_against(place.over_above), False if slower else None),
            )
        rows.append((Cell(_numbered(number, name, place.time is not None)), *cells))
    over = _count(len(found.time_over), "workload")
    heads = (f"time, geometric mean of {over}", _over_best(found.level), "against the row above")
    return Table("", heads, tuple(rows))


def _memories(found: Standings) -> Table:
    """Returns the geometric means of peak memory, the leanest contender first."""
    if not found.memory_over:
        return Table("", (), ())
    groups: list[tuple[str, Callable[[Place], Ratio | None]]] = [
        (_over_best(found.level), lambda place: place.memory)
    ]
    if found.large_over and found.small_over:
        border = f"{LARGE_BYTES >> 20} MiB"
        large, small = len(found.large_over), len(found.small_over)
        groups.append((f"{large} with ≥ {border}", lambda place: place.memory_large))
        groups.append((f"{small} with < {border}", lambda place: place.memory_small))
    rows = []
    ranked = sorted(
        found.places, key=lambda place: place.memory.estimate if place.memory else math.inf
    )
    for number, place in enumerate(ranked, 1):
        cells = [Cell(_no_mean(place)), *(Cell("") for _ in groups[1:])]
        if place.memory is not None:
            cells = [Cell(_with_interval(of(place))) for _, of in groups]
        rows.append((Cell(_numbered(number, _named(place), place.memory is not None)), *cells))
    over = _count(len(found.memory_over), "workload")
    heads = (f"memory, {over}", *(head for head, _ in groups))
    return Table("", heads, tuple(rows))


def _numbered(number: int, name: str, placed: bool) -> str:
    return f"{number:>2}. {name}" if placed else f"    {name}"


def _over_best(level: float) -> str:
    return f"÷ best [{100 * level:g} %]"


def _with_interval(ratio: Ratio | None) -> str:
    return (
        f"{formatting.times(ratio.estimate)} {formatting.times_interval(ratio.interval)}"
        if ratio
        else UNKNOWN
    )


def _no_mean(place: Place) -> str:
    """Returns why the contender has no mean, in a few words. Sentences below the table say more."""
    return "not measured: failed" if place.failed_on else formatting.NOT_MEASURED


def _against(difference: Difference | None) -> str:
    """Returns the difference with its interval as text, or says that no difference is shown."""
    if difference is None:
        return ""
    if difference.interval is None:
        return "one round: no interval"
    if not difference.more and not difference.less:
        return f"{MAYBE} no difference shown"
    low, high = (
        units.percent(end - 1).removesuffix(" %")
        for end in (difference.interval.low, difference.interval.high)
    )
    return (
        f"{'▲' if difference.more else '▼'} {units.percent(difference.estimate - 1)} [{low}, "
        f"{high}]"
    )


def _time(cell: WorkloadResult) -> Ratio | None:
    return cell.time


def _memory(cell: WorkloadResult) -> Ratio | None:
    return cell.memory


def _matrix(found: Standings, head: str, of: Callable[[WorkloadResult], Ratio | None]) -> Table:
    """Returns a table of workloads × contenders, contenders in the order of the ranking."""
    names = [place.contender for place in found.places]
    rows = tuple(
        (
            Cell(formatting.printable(contest.name)),
            *(_cell(found.cells[contest.workload, name], of) for name in names),
        )
        for contest in found.contests
    )
    heads = [formatting.printable(name) for name in names]
    return Table("", (head, *heads), rows, tight=True)


def _cell(cell: WorkloadResult, of: Callable[[WorkloadResult], Ratio | None]) -> Cell:
    ratio = of(cell)
    if cell.failure is not None:
        return Cell(FAILED, good=False)
    if ratio is None:
        return Cell(UNKNOWN)
    sign = BEST if ratio.best else MAYBE if ratio.interval and ratio.interval.low <= 1 else ""
    return Cell(sign + formatting.times(ratio.estimate), good=True if ratio.best else None)


def _contests(found: Standings) -> Table:
    rows = tuple(
        (
            Cell(formatting.printable(contest.name)),
            Cell(str(contest.rounds)),
            Cell(
                UNKNOWN
                if contest.half_width is None
                else f"± {units.percent(contest.half_width, signed=False)}"
            ),
            *_best(found, contest, contest.best_time, lambda cell: cell.time_ns, units.time),
            *_best(found, contest, contest.best_memory, lambda cell: cell.memory_bytes, units.size),
        )
        for contest in found.contests
    )
    return Table("", ("workload", "rounds", "noise", "best time", "by", "least peak", "by"), rows)


def _best(
    found: Standings,
    contest: Contest,
    name: str | None,
    of: Callable[[WorkloadResult], float | None],
    written: Callable[[float], str],
) -> tuple[Cell, Cell]:
    number = of(found.cells[contest.workload, name]) if name is not None else None
    if name is None or number is None:
        return Cell(UNKNOWN), Cell("")
    return Cell(written(number)), Cell(formatting.printable(name))


def _standings_footer(run: Run, found: Standings) -> Iterator[str]:
    """Yields how the numbers were measured, and what they do not show."""
    rounds = sorted({contest.rounds for contest in found.contests if contest.rounds})
    if not rounds:
        yield "No round is complete."
        return
    ran = _count(rounds[0], "round") if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} rounds"
    methods = sorted({contest.memory_method for contest in found.contests if contest.memory_method})
    pages = "peak memory: anonymous and shared pages"
    memory = f" · {pages} ({', '.join(methods)})" if methods else ""
    yield (
        f"{ran} of each workload, each in random order · time: wall time without deliberate sleep"
        f"{formatting.printable(memory)}"
    )
    yield (
        f"1.00: the best of the workload · {BEST} apparent best · {MAYBE} may be the best, too · "
        f"{FAILED} failed · {UNKNOWN} not measured"
    )
    yield (
        f"paired Hodges–Lehmann · {100 * found.level:g} % intervals (jackknife, Student's t) "
        "account for the choice of "
        "the best from the same data; no interval is adjusted for the number of intervals"
    )
    yield (
        "geometric means, every workload with the same weight; an allocator that failed on a "
        "workload has no mean, "
        "since the rest would flatter it · the peak of the leanest contender decides whether a "
        f"workload counts as ≥ or < {LARGE_BYTES >> 20} MiB"
    )
    yield "noise: half the width of a typical contender's interval of time"
    longest = max((cell.time_ns for cell in found.cells.values() if cell.time_ns), default=None)
    lasts = f" (the longest run lasts {units.time(longest)})" if longest else ""
    yield (
        "not tested: programs unlike these workloads, machines with more or fewer than "
        f"{run.host.cpus} processors, fragmentation over hours{lasts}"
    )


def _standings_failures(found: Standings) -> Iterator[str]:
    for place in found.places:
        for contest in found.contests:
            failure = found.cells[contest.workload, place.contender].failure
            if failure is not None:
                yield formatting.printable(f"{contest.name}: {place.contender} {failure}")
    reasons: dict[str, list[str]] = {}
    for contest in found.contests:
        if contest.memory_missing is not None:
            reasons.setdefault(contest.memory_missing, []).append(contest.name)
    for reason, names in reasons.items():
        yield formatting.printable(f"no memory ratios on {', '.join(names)}: {reason}")


def _cut_short(stopped: Sequence[str] | None, rounds: Sequence[int], noun: str) -> Iterator[str]:
    """Yields a sentence if the run was interrupted, is not finished, or ran out of time."""
    if stopped is None:
        return
    if not stopped or set(stopped) == {INTERRUPTED}:
        complete = sum(number > 0 for number in rounds)
        head = INTERRUPTED if stopped else "not finished"
        yield (
            f"{head}: {complete} of {_count(len(rounds), noun)} "
            f"{'has' if complete == 1 else 'have'} complete rounds"
        )
        return
    out = sum(reason == TIME_BUDGET for reason in stopped)
    if out:
        yield (
            f"{TIME_BUDGET}: {out} of {_count(len(rounds), noun)} ended before the precision was "
            "reached"
        )


def scenarios(
    run: Run, found: Ranking, *, matrices: Sequence[Matrix] = (),
    stopped: Sequence[str] | None = None,
) -> Board:  # fmt: skip
    """Returns the board of scenarios: the ranking by points, a table per scenario, matrices.

    With more than MANY scenarios, it has one table per metric instead, with a row per scenario. It
    then compares only Cairn's contender without learning with Cairn's other contenders.
    """
    if len(found.scenarios) > MANY:
        tables = [_ranks(found), *_grids(found)]
        names = [matrix.contender for matrix in matrices]
        matrices = [
            replace(matrix, others=tuple(name for name in matrix.others if name in names))
            for matrix in matrices
            if matrix.contender.endswith(FROZEN)
        ]
    else:
        tables = [_ranks(found), *(_scenario(one, found.level) for one in found.scenarios)]
    tables += [_against_all(found, matrix) for matrix in matrices]
    return Board(
        title=f"{_count(len(found.ranks), 'allocator')} in "
        f"{_count(len(found.scenarios), 'scenario')}",
        says=tuple(_scenarios_say(found)),
        tables=tuple(table for table in tables if table.rows),
        footer=(
            *_cut_short(stopped, [s.rounds for s in found.scenarios], "scenario"),
            *_scenarios_footer(run, found),
        ),
        failures=tuple(
            formatting.printable(f"{entry.contender} {entry.failure} in {scenario.name}")
            for scenario in found.scenarios
            for entry in scenario.entries
            if entry.failure is not None
        ),
    )


def _scenarios_say(found: Ranking) -> Iterator[str]:
    first = found.ranks[0]
    if first.points is None or first.ratio is None:
        yield "No ranking: no allocator completed all scenarios."
        return
    yield (
        f"First by points: {formatting.printable(first.contender)} with {first.points:g} points. "
        f"On average, its median is {_mean(first.ratio)} the median of the best in each scenario."
    )
    ranked = [rank for rank in found.ranks[1:] if rank.points is not None]
    unclear = [
        rank.contender for rank in ranked if rank.over_above is None or not rank.over_above.more
    ]
    if unclear:
        names = formatting.printable(", ".join(unclear))
        yield f"Not shown to be slower than the row above: {names}."
    failed = [rank.contender for rank in found.ranks if rank.failed_on]
    if failed:
        yield f"Not ranked, because a scenario failed: {formatting.printable(', '.join(failed))}."


def _ranks(found: Ranking) -> Table:
    rows = []
    for number, rank in enumerate(found.ranks, 1):
        slower = rank.over_above is not None and rank.over_above.more
        why = "not measured: failed" if rank.failed_on else formatting.NOT_MEASURED
        cells = (Cell(why), Cell(""), Cell(""))
        if rank.points is not None:
            against = Cell(_against(rank.over_above), False if slower else None)
            cells = (Cell(f"{rank.points:g}"), Cell(_with_interval(rank.ratio)), against)
        rows.append(
            (
                Cell(
                    _numbered(number, name_of(rank.title, rank.contender), rank.points is not None)
                ),
                *cells,
            )
        )
    heads = ("ranking", "points", f"median {_over_best(found.level)}", "against the row above")
    return Table("", heads, tuple(rows))


def _scenario(scenario: Scenario, level: float) -> Table:
    rows = []
    for place, entry in enumerate(scenario.entries):
        cells = [
            Cell("failed" if entry.failure else formatting.NOT_MEASURED),
            *(Cell("") for _ in range(5)),
        ]
        if entry.median_ns is not None:
            unclear = entry.over_above is not None and not entry.over_above.more
            cells = [
                Cell(units.time(entry.median_ns)),
                Cell((f"{MAYBE} " if unclear else "") + _with_interval(entry.median_ratio)),
                Cell(_or_unknown(entry.p95_ns, units.time)),
                Cell(_or_unknown(entry.p99_ns, units.time)),
                Cell(_or_unknown(entry.faults, formatting.share)),
                Cell(_or_unknown(entry.points, "{:g}".format)),
            ]
        sign = BEST if place == 0 and entry.median_ns is not None else " "
        rows.append((Cell(f"{sign} {formatting.printable(entry.contender)}"), *cells))
    heads = (
        formatting.printable(scenario.name),
        "median",
        _over_best(level),
        "P95",
        "P99",
        "faults/operation",
        "points",
    )
    return Table("", heads, tuple(rows))


def _grids(found: Ranking) -> Iterator[Table]:
    """Yields a table for each metric: a row per scenario, a column per contender."""
    yield _grid(found, "median", lambda entry: entry.median_ns, units.time)
    yield _grid(found, "P95", lambda entry: entry.p95_ns, units.time)
    yield _grid(found, "P99", lambda entry: entry.p99_ns, units.time)
    yield _grid(found, "faults/operation", lambda entry: entry.faults, formatting.share)
    if any(rank.contender == SYSTEM for rank in found.ranks):
        yield _saved(found)


def _grid(
    found: Ranking,
    head: str,
    value: Callable[[Entry], float | None],
    written: Callable[[float], str],
) -> Table:
    """Returns one metric of all contenders in all scenarios. The lowest of a row is marked."""
    names = [rank.contender for rank in found.ranks]
    rows = []
    for scenario in found.scenarios:
        of = {entry.contender: value(entry) for entry in scenario.entries}
        known = [number for number in of.values() if number is not None]
        cells = []
        for name in names:
            number = of.get(name)
            lowest = number is not None and number == min(known)
            cells.append(
                Cell(f"{BEST} " * lowest + _or_unknown(number, written), True if lowest else None)
            )
        rows.append((Cell(formatting.printable(scenario.name)), *cells))
    return Table("", (head, *map(formatting.printable, names)), tuple(rows))


def _saved(found: Ranking) -> Table:
    """Returns how many page faults each contender saves against the system's allocator."""
    names = [rank.contender for rank in found.ranks if rank.contender != SYSTEM]
    rows = []
    for scenario in found.scenarios:
        of = {entry.contender: entry.faults for entry in scenario.entries}
        system = of.get(SYSTEM)
        cells = []
        for name in names:
            faults = of.get(name)
            saved = None if faults is None or system is None else system - faults
            cells.append(Cell(_or_unknown(saved, formatting.share)))
        rows.append((Cell(formatting.printable(scenario.name)), *cells))
    heads = ("faults saved", *map(formatting.printable, names))
    return Table("", heads, tuple(rows))


def _or_unknown(number: float | None, written: Callable[[float], str]) -> str:
    return UNKNOWN if number is None else written(number)


def _against_all(found: Ranking, matrix: Matrix) -> Table:
    """Returns the ratios of one contender's median to the medians of all others, by scenario."""

    def written(difference: Difference | None) -> Cell:
        if difference is None:
            return Cell(UNKNOWN)
        sign = "▲" if difference.more else "▼" if difference.less else MAYBE
        good = False if difference.more else True if difference.less else None
        return Cell(
            f"{sign} {formatting.times(difference.estimate)} "
            f"{formatting.times_interval(difference.interval)}",
            good,
        )

    rows = [
        (
            Cell(formatting.printable(s.name)),
            *(written(matrix.cells.get((s.workload, other))) for other in matrix.others),
        )
        for s in found.scenarios
    ]
    rows.append(
        (Cell("geometric mean"), *(written(matrix.means.get(other)) for other in matrix.others))
    )
    heads = (
        f"{formatting.printable(matrix.contender)} ÷",
        *map(formatting.printable, matrix.others),
    )
    return Table("", heads, tuple(rows))


def _scenarios_footer(run: Run, found: Ranking) -> Iterator[str]:
    rounds = sorted({scenario.rounds for scenario in found.scenarios if scenario.rounds})
    if not rounds:
        yield "No round is complete."
        return
    ran = _count(rounds[0], "run") if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} runs"
    yield f"{ran} of each contender in each scenario, in rounds of random order"
    yield (
        "median, P95, P99: over the batches of operations of one run · faults: page faults per "
        "operation of one run · the table shows the median of each of them over all runs"
    )
    yield (
        f"÷ best: paired Hodges–Lehmann, with {100 * found.level:g} % intervals that account for "
        "the choice of the best "
        f"from the same data · {MAYBE} not shown to be slower than the row above"
    )
    if len(found.scenarios) > MANY and any(rank.contender == SYSTEM for rank in found.ranks):
        yield f"faults saved: the page faults per operation under {SYSTEM}, less the contender's"
    yield (
        f"points: {len(found.ranks)} for the lowest median of a scenario, and one less for each "
        "contender with a lower median; equal medians share theirs. Points hide the size of a "
        "difference and whether it is shown: trust the ratios"
    )
    yield (
        f"not tested: other mixes of sizes, machines with more or fewer than {run.host.cpus} "
        "processors"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
