"""The page of a comparison: the verdict, the runs that prove it, and every number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cairn.compare.comparison import RoundNumbers, round_numbers
from cairn.model import PEAK, Comparison, Metric, Run, Sample
from cairn.page import drawings
from cairn.page.parts import Fold, Item, Sentences, Sheet, SideBySide, Topic
from cairn.report import origin, tables, terminal, verdict, why
from cairn.report.formatting import command, printable
from cairn.report.standings import Board
from cairn.why.gap import Why

_OPEN_MOST = 3
"""With at most this many workloads, the details of each are open."""


def answer(run: Run, found: Sequence[Comparison]) -> tuple[Item, ...]:
    """Returns the first screen: the verdict of each workload, and what is proven."""
    if len(found) == 1:
        return tuple(_verdict(found[0]))
    texts = tuple(
        f"{command(workload.name)}: {' '.join(verdict.says(one.judged).advice)}"
        for workload, one in zip(run.settings.workloads, found, strict=True)
    )
    return (Sentences(texts, "list"),)


def facts(run: Run, found: Sequence[Comparison]) -> tuple[tuple[str, str], ...]:
    """Returns the aim, what was not tested, and the next steps."""
    return (
        ("Aim", origin.aim(run.aim)),
        *((("Not tested", printable(terminal.not_tested(found))),) if terminal.not_tested(found)
          else ()),
        *((("Next", printable(terminal.next_steps(found))),) if terminal.next_steps(found)
          else ()),
    )  # fmt: skip


def _verdict(comparison: Comparison) -> Iterator[Item]:
    told = verdict.says(comparison.judged)
    if comparison.unsuited:
        yield Sentences(tuple(map(printable, comparison.unsuited)), "lead")
    yield Sentences(told.advice, "lead")
    evidence = (*told.evidence, *verdict.outlook(comparison.prospect))
    if evidence:
        yield Sentences(evidence, "list")
    if told.failures:
        yield Sentences(tuple(f"✘ {one}" for one in told.failures), "notes")


def topics(
    run: Run, samples: Sequence[Sample], found: Sequence[Comparison], whys: Sequence[Why]
) -> Iterator[Topic]:
    """Yields the sections on the runs, the tables and the gaps; several workloads get one each."""
    if len(found) == 1:
        numbers = _numbers(run, samples, found[0], 0)
        proof, more = _proof(run, found[0], numbers, 0)
        yield Topic("proof", "The runs", proof)
        plane = drawings.comparison_plane(run, found[0], 0)
        if plane is not None:
            yield Topic("plane", "Time and memory", (plane,))
        yield Topic("numbers", "The numbers", _sheets(run, found[0], more))
    else:
        for place, (workload, one) in enumerate(zip(run.settings.workloads, found, strict=True)):
            numbers = _numbers(run, samples, one, place)
            proof, more = _proof(run, one, numbers, place)
            plane = drawings.comparison_plane(run, one, place)
            items: tuple[Item, ...] = (
                *_verdict(one), *proof, *((plane,) if plane is not None else ()),
                *_sheets(run, one, more),
            )  # fmt: skip
            if len(found) > _OPEN_MOST:
                items = (*_verdict(one), Fold("Runs, drawings and numbers", items[1:]))
            yield Topic(f"workload-{place + 1}", command(workload.name), items)
    told = tuple(gaps(run, whys))
    if told:
        yield Topic("why", "Why they differ", told)


def _numbers(run: Run, samples: Sequence[Sample], one: Comparison, place: int) -> RoundNumbers:
    names = [row.contender for row in one.rows]
    its = [
        sample
        for sample in samples
        if sample.trial.workload == place and sample.trial.contender in names
    ]
    order = [contender.name for contender in run.competing if contender.name in names]
    return round_numbers(its, order, one.metrics)


def _proof(
    run: Run, comparison: Comparison, numbers: RoundNumbers, place: int
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Returns the drawings of what is judged, and those of the other metrics."""
    judged = (comparison.time, comparison.cpu_time, PEAK)
    first: list[Item] = []
    for metric in judged:
        if metric in comparison.metrics:
            first += _drawn(run, comparison, metric, numbers, place)
    others: list[Item] = []
    for metric in comparison.metrics:
        if metric not in judged and tables.is_interesting(metric, comparison):
            others += _drawn(run, comparison, metric, numbers, place)
    return tuple(first), tuple(others)


def _drawn(
    run: Run, comparison: Comparison, metric: Metric, numbers: RoundNumbers, place: int
) -> list[Item]:
    both = [
        drawings.runs(run, comparison, metric, numbers, place),
        drawings.paired(run, comparison, metric, numbers, place),
    ]
    known = tuple(one for one in both if one is not None)
    return [SideBySide(known)] if known else []


def _sheets(run: Run, comparison: Comparison, more: tuple[Item, ...]) -> tuple[Item, ...]:
    found: list[Item] = [
        Sheet(table, "Summary of the comparison") for table in tables.summary(run, comparison)
    ]
    found.append(Sentences((tables.summary_footer(comparison),)))
    notes = tuple(f"▲ {line}" for line in tables.remarks(run, comparison, full=True))
    if notes:
        found.append(Sentences(notes, "notes"))
    rest = tuple(
        Sheet(table, table.title or "Medians and changes")
        for table in tables.tables(run, comparison, full=True)
        if table.rows
    )
    if rest:
        found.append(Fold("All numbers", (*rest, Sentences((tables.footer(comparison),)))))
    if more:
        found.append(Fold("Drawings of the other measures", more))
    return tuple(found)


def gaps(run: Run, whys: Sequence[Why], *, titled: bool = True) -> Iterator[Item]:
    """Yields the sentences, the waterfalls and the tables of explained gaps, by workload.

    titled: whether each workload has its name above, if there are several.
    """
    several = len({one.workload for one in whys}) > 1
    for place in range(len(run.settings.workloads)):
        its = [one for one in whys if one.workload == place]
        for board in why.boards(run, its):
            if board.title and titled and several:
                yield Sentences((board.title,), "lead")
            yield from sentences_of(board)
            shown = []
            for one in its:
                falls = [
                    drawings.waterfall(one, gap, place)
                    for gap in (one.time, one.memory)
                    if gap is not None
                ]
                known = tuple(made for made in falls if made is not None)
                shown += [made.table for made in known]
                if known:
                    yield SideBySide(known)
            left = tuple(table for table in board.tables if table not in shown)
            yield from sheets_of(replace(board, tables=left))


def sentences_of(board: Board, lead: str = "plain") -> Iterator[Item]:
    """Yields the conclusions of a board: findings as a list, and failures as warnings."""
    plain = tuple(one for one in board.says if not one.startswith("▲"))
    findings = tuple(one for one in board.says if one.startswith("▲"))
    if plain and lead == "lead":
        yield Sentences(plain[:1], "lead")
        plain = plain[1:]
    if plain:
        yield Sentences(plain)
    if findings:
        yield Sentences(findings, "list")
    if board.failures:
        yield Sentences(tuple(f"✘ {one}" for one in board.failures), "notes")


def sheets_of(board: Board) -> Iterator[Item]:
    """Yields the tables of a board, and how they were measured."""
    for table in board.tables:
        if table.rows:
            yield Sheet(table, table.title or table.heads[0].strip() or "Numbers")
    if board.footer:
        yield Sentences(board.footer)
