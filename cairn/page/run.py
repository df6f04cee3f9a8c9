"""The page of a stored run of any kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from cairn.compare import ranking as ranks
from cairn.compare import standings as places
from cairn.model import Comparison, Run
from cairn.page import comparison, suite
from cairn.page.comparison import sentences_of, sheets_of
from cairn.page.parts import Code, Download, Fold, Item, Page, Sentences, Sheet, Topic
from cairn.page.render import download, html
from cairn.report import (
    instructions,
    matrix_board,
    matrix_export,
    origin,
    repeat_command,
    run_csv,
    why,
)
from cairn.report import standings as boards
from cairn.report.formatting import command, printable
from cairn.report.matrix_board import MatrixReport
from cairn.report.run import Measured, explained, own_matrices, plan_report, special_board
from cairn.report.standings import Board, with_notes
from cairn.why.gap import Why

_WHYS_OPEN = 4
"""Up to this many gaps are shown at once. If there are more, all are folded away."""


def of_run(measured: Measured, found: Sequence[Comparison]) -> str:
    """Returns the page. `found` is the result of `report.run.comparisons`."""
    run = measured.run
    if run.settings.instructions:
        board = replace(instructions.board(run, measured.samples), title=instructions.TITLE)
        return _board_page(measured, board, ())
    match measured.kind:
        case "matrix":
            return of_plan([measured])
        case "soak":
            return _soak(measured)
        case "standings":
            ranked = places.standings(run, measured.samples)
            board = boards.standings(run, ranked, stopped=measured.stopped)
            topics = tuple(suite.standings(ranked, with_notes(board, run.notes)))
            return _board_page(measured, board, (*topics, *_whys(measured)))
        case "scenarios":
            ranking = ranks.ranking(run, measured.samples)
            matrices = own_matrices(measured)
            board = boards.scenarios(run, ranking, matrices=matrices, stopped=measured.stopped)
            topics = tuple(suite.scenarios(ranking, with_notes(board, run.notes)))
            return _board_page(measured, board, topics)
    whys = explained(measured)
    special = special_board(measured, whys)
    if special is not None:
        tables = Topic("numbers", "The numbers", tuple(sheets_of(special)))
        gaps = _whys(measured) if measured.kind != "calibration" else ()
        return _board_page(measured, special, (tables, *gaps))
    topics = tuple(comparison.topics(run, measured.samples, found, whys))
    return html(
        Page(
            title=_title(run, len(run.competing)),
            origin=_origin(run, _made_by(measured)),
            answer=comparison.answer(run, found),
            facts=comparison.facts(run, found),
            topics=(*topics, *_sources(measured)),
        )
    )


def _soak(measured: Measured) -> str:
    """Returns the page of a run of 'cairn soak'."""
    from cairn.page import soak  # it loads numpy

    run, samples = measured.run, measured.samples
    answer, topics = soak.parts(run, samples, measured.name, measured.why_early)
    csv = download(
        f"cairn-{run.id}-memory", soak.rows(samples), "has a line for each moment of each run."
    )
    return html(
        Page(
            title=f"Memory over time of {_title(run, len(run.competing))}",
            origin=_origin(run, "cairn soak"),
            answer=answer,
            topics=(*topics, *_sources(measured, Topic("data", "Raw data", (csv,)))),
        )
    )


def _title(run: Run, contenders: int) -> str:
    names = [command(workload.name) for workload in run.settings.workloads]
    what = names[0] if len(names) == 1 else f"{len(names)} programs"
    return f"{what} under {contenders} allocator{'s' * (contenders != 1)}"


def _made_by(measured: Measured) -> str:
    """Returns the command that made the run, without its options."""
    if measured.bench:
        return command(f"cairn bench {measured.bench}")
    if measured.kind != "comparison":
        return "cairn bench"
    if measured.run.made_by is not None:
        return command(measured.run.made_by)
    return "cairn check" if measured.run.gate is not None else "cairn compare"


def _origin(run: Run, made_by: str, merged: Sequence[str] = ()) -> str:
    """Returns the command, the date and the run. merged: the ids of all runs, if there are more."""
    ids = f"runs {', '.join(merged)}" if len(merged) > 1 else f"run {run.id}"
    return f"{made_by} · {date(run.created_at)} · {ids}"


def date(seconds: float) -> str:
    """Returns a time since the epoch as a date in UTC: "24 November 2026, 12:05 UTC"."""
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{at.day} {at:%B %Y, %H:%M} UTC"


def _board_page(measured: Measured, board: Board, topics: Sequence[Topic]) -> str:
    run = measured.run
    shown = tuple(topics) or (Topic("numbers", "The numbers", tuple(sheets_of(board))),)
    return html(
        Page(
            title=board.title,
            origin=_origin(run, _made_by(measured)),
            answer=tuple(sentences_of(board, "lead")),
            facts=_limits(board),
            topics=(*shown, *_sources(measured)),
        )
    )


def _limits(board: Board) -> tuple[tuple[str, str], ...]:
    """Returns what the run cannot show, as the board's footer says it."""
    heads = [one.partition(": ") for one in board.footer]
    return tuple(("Not tested", f"{text}.") for head, _, text in heads if head == "not tested")


def _whys(measured: Measured) -> Iterator[Topic]:
    """Yields the gaps of a run with --why, folded if there are many."""
    whys = explained(measured)
    if not whys:
        return
    run = measured.run
    counted = why.summary(run, whys, measured.name)
    items: list[Item] = [Sentences(counted.says[:1])]
    for place, workload in enumerate(run.settings.workloads):
        its = [one for one in whys if one.workload == place]
        gaps = _gaps_of(run, its)
        if gaps:
            items.append(Fold(command(workload.name), gaps, is_open=len(whys) <= _WHYS_OPEN))
    yield Topic("why", "Why they differ", tuple(items))


def _gaps_of(run: Run, whys: Sequence[Why]) -> tuple[Item, ...]:
    return tuple(comparison.gaps(run, whys, titled=False))


def of_plan(measured: Sequence[Measured], report: MatrixReport | None = None) -> str:
    """Returns the page of one or more runs of a plan.

    report: the report to show; None makes one of all programs, with ratios to the baseline.
    """
    made = report or plan_report(measured)
    board = matrix_board.board(made, full=True)
    run = made.run
    ids = [one.run.id for one in measured]
    topics = tuple(suite.plan(made, with_notes(board, made.notes)))
    merged = "-merged" if len(ids) > 1 else ""
    csv = download(
        f"cairn-{run.id}{merged}",
        matrix_export.as_csv(made),
        "has a line for each program, contender and measure, with the interval.",
    )
    data = Topic("data", "Raw data", (csv,))
    sources = _sources_of_all(measured, data) if merged else _sources(measured[0], data)
    return html(
        Page(
            title=board.title,
            origin=_origin(run, "cairn matrix report", ids),
            answer=tuple(sentences_of(board, "lead")),
            topics=(*topics, *sources),
        )
    )


def _sources(measured: Measured, data: Topic | None = None) -> Iterator[Topic]:
    """Yields the machine, the plan, the proof of load, the raw data and the command."""
    yield Topic("machine", "Machine and plan", _machine(measured.run))
    yield Topic("loaded", "Proof of load", (_PROVEN, _proof(measured)))
    items = data.items if data is not None else ()
    yield Topic("data", "Raw data", (*items, _raw(measured)))
    again = repeat_command.command(measured.run, measured.bench, measured.plan)
    if again is None:
        return
    seed = "" if measured.kind == "soak" else ", with the same seed"
    yield Topic(
        "command",
        "The command",
        (Sentences((f"This command measures the run again{seed}.",)),
         Code(printable(again))),
    )  # fmt: skip


def _sources_of_all(measured: Sequence[Measured], data: Topic) -> Iterator[Topic]:
    """Yields the same topics for merged runs, without a command: none measures all runs again."""
    machines = [Fold(one.run.id, _machine(one.run)) for one in measured]
    proofs = [Fold(one.run.id, (_proof(one),)) for one in measured]
    yield Topic("machine", "Machine and plan", tuple(machines))
    yield Topic("loaded", "Proof of load", (_PROVEN, *proofs))
    yield Topic("data", "Raw data", (*data.items, *map(_raw, measured)))


_PROVEN = Sentences(("In each process, the witness reported which library owned malloc.",))


def _machine(run: Run) -> tuple[Sheet, ...]:
    return (
        Sheet(origin.machine(run), "Machine"),
        Sheet(origin.plan(run), "Plan"),
        Sheet(origin.contenders(run), "Contenders"),
    )


def _proof(measured: Measured) -> Sheet:
    return Sheet(origin.proof(measured.run, measured.samples), "Proof of load")


def _raw(measured: Measured) -> Download:
    run = measured.run
    text = run_csv.render(run, measured.samples)
    return download(f"cairn-{run.id}-runs", text, "has a line for each run.")
