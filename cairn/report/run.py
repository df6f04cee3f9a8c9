"""The report of a stored run, in every form.

The report after measuring and that of `cairn report` are the same, because both are made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from cairn.compare import load_output, plan, standings, suitability
from cairn.compare import ranking as ranks
from cairn.compare.comparison import compare
from cairn.compare.load_output import REQUEST_CPU_TIME, REQUEST_TIME
from cairn.compare.refusals import failed, refusals
from cairn.errors import UsageError
from cairn.gate import InstructionCount
from cairn.model import (
    ACTIVE,
    CPU_TIME,
    INTERRUPTED,
    OPERATION_MEDIAN,
    OPERATION_P99,
    WALL,
    Comparison,
    Direction,
    Metric,
    Run,
    Sample,
)
from cairn.report.view import View
from cairn.simulated_misses import Simulation

if TYPE_CHECKING:
    from cairn.compare.ranking import Matrix
    from cairn.report.matrix_board import MatrixReport
    from cairn.report.standings import Board
    from cairn.why.gap import Why

Kind = Literal[
    "comparison", "standings", "scenarios", "calibration", "founding", "findings", "predictions",
    "matrix", "soak",
]  # fmt: skip
"""The kind of report that a run gets. A run of a user's own program is a comparison."""

_OURS = "cairn"
"""In a ranking, contenders whose name is this word or begins with this word and a dash get a table
of their own, which compares them with all other contenders."""


class Measured(Struct, frozen=True):
    """A stored run with all data of its report."""

    run: Run
    samples: tuple[Sample, ...]
    """The trials in the order in which they ran, including the warm-up."""
    stopped: tuple[str, ...]
    """Why measuring ended: one reason per workload, or one for all. It is empty if the run did not
    end by itself, because its process was killed."""
    name: str
    """The name of the run, quoted for a shell command."""
    kind: Kind = "comparison"
    pairs: tuple[tuple[str, str], ...] = ()
    """Pairs of contenders to compare, besides the comparisons with the baseline."""
    bench: str | None = None
    """The arguments of 'cairn bench' that repeat the run; None for a user's own program."""
    plan: tuple[str, ...] | None = None
    """The arguments of 'cairn matrix run' that name the plan and the programs of the run. None for
    a plan of the user, and for a run of another command."""
    resume: str | None = None
    """The command that continues the run. None if nothing can continue it, and while it is being
    measured. A complete run has one, too."""
    is_measured: bool = False
    """Whether another process is measuring the run now."""
    predicts: bool = False
    """Whether 'cairn profile' predicts savings from the costs in this run."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name of a group of allocators: the contenders in it. The report of a plan has a mean for
    each group."""
    counts: tuple[InstructionCount, ...] = ()
    """The instructions of each contender; empty if they were not counted."""
    simulation: Simulation | None = None
    """The simulated misses; None if there are none."""
    refused: str | None = None
    """The sentence with which measuring was refused, because the program or the options do not suit
    a comparison, or because a file was replaced. None if measuring was not refused. It is also None
    if a contender failed, since the samples show the failure."""
    not_counted: str | None = None
    """The sentence with which counting instructions was refused after the rounds; else None."""

    @property
    def ended_early(self) -> str | None:
        """Why measuring was refused, as a sentence; None if it was not."""
        if self.refused is None:
            return None
        return f"Measuring ended early: {self.refused.removesuffix('.')}."

    @property
    def why_early(self) -> str:
        """Why measuring was refused or interrupted; empty if it was neither."""
        return self.refused or " ".join(one for one in self.stopped if one == INTERRUPTED)


def comparisons(measured: Measured) -> tuple[Comparison, ...]:
    """Returns one comparison for each workload, in the order of the settings."""
    run, stopped = measured.run, measured.stopped
    competing = {contender.name for contender in run.competing}
    samples = [sample for sample in measured.samples if sample.trial.contender in competing]
    of_workloads = [
        [one for one in measured.samples if one.trial.workload == index]
        for index in range(len(run.settings.workloads))
    ]
    own = [
        Metric(f"metric:{one.name}", one.name, "", Direction.UNKNOWN)
        for one in run.settings.patterns
    ]
    if any(plan.settings_of(run.settings, w).reports for w in range(len(run.settings.workloads))):
        own += _reported(samples)
    found = []
    for index in range(len(run.settings.workloads)):
        its = [sample for sample in samples if sample.trial.workload == index]
        refused = refusals(of_workloads[index], tuple(competing), run.baseline)
        its = failed(its, refused, run.baseline)
        loads = load_output.metrics(name for sample in its for name in sample.load)
        early = [measured.ended_early] if measured.ended_early is not None and not index else []
        slept = any(one.reported is not None and one.reported.idle_ns for one in its)
        found.append(
            compare(
                its,
                [one for one in run.competing if plan.runs_on(run.settings.only, one.name, index)],
                run.baseline,
                run.rule,
                stopped_because=stopped[min(index, len(stopped) - 1)]
                if stopped
                else "not finished",
                user_metrics=[*_of_requests(its), *loads, *own],
                run_name=measured.name,
                time=ACTIVE if slept else REQUEST_TIME if _has(its, load_output.RATE) else WALL,
                cpu_time=REQUEST_CPU_TIME if _has(its, load_output.REQUESTS) else CPU_TIME,
                beside=measured.pairs,
                bench=measured.bench,
                resume=measured.resume if not stopped or INTERRUPTED in stopped else None,
                is_measured=measured.is_measured,
                aim=run.aim,
                under_load=bool(run.settings.workloads[index].load),
                unsuited=(
                    *early,
                    *suitability.sentences(
                        its, run.baseline, plan.settings_of(run.settings, index), index
                    ),
                ),
            )
        )
    if measured.not_counted is not None:
        note = f"Instructions were not counted: {measured.not_counted.removesuffix('.')}."
        found[0] = replace(found[0], notes=(*found[0].notes, note))
    return tuple(found)


def _has(samples: Sequence[Sample], quantity: str) -> bool:
    """Returns whether the load printed this quantity in each trial that enters the comparison."""
    counted = [sample for sample in samples if sample.counts]
    return bool(counted) and all(quantity in sample.load for sample in counted)


def _of_requests(samples: Sequence[Sample]) -> list[Metric]:
    """Returns the metrics for one request of a load, if the load printed what they need."""
    times = [REQUEST_TIME] if _has(samples, load_output.RATE) else []
    return times + ([REQUEST_CPU_TIME] if _has(samples, load_output.REQUESTS) else [])


def _reported(samples: Sequence[Sample]) -> list[Metric]:
    """Returns the metrics for the numbers that built-in workloads printed about themselves."""
    reports = [sample.reported for sample in samples if sample.reported is not None]
    figures = sorted({name for report in reports for name in report.figures})
    units_of = {"bytes": "bytes", "ns": "ns"}
    own = [
        Metric(
            f"figure:{name}",
            name.replace("_", " "),
            units_of.get(name.rpartition("_")[2], ""),
            Direction.UNKNOWN,
        )
        for name in figures
    ]
    return [OPERATION_MEDIAN, OPERATION_P99, *own]


def rendered(measured: Measured, found: Sequence[Comparison], view: View) -> str:
    """Returns the report in the form of `view`. `found` is the result of `comparisons`."""
    if measured.kind == "soak":
        from cairn.report import soak

        return soak.render(
            measured.run, measured.samples, view, name=measured.name, stopped=measured.why_early
        )
    if view.form == "csv":
        from cairn.report import run_csv

        return run_csv.render(measured.run, measured.samples)
    if view.form == "svg":
        return _plane(measured, found)
    if measured.run.settings.instructions:
        return _instructions(measured, view)
    match measured.kind:
        case "matrix":
            from cairn.report import matrix_report

            return matrix_report.rendered(plan_report([measured]), view)
        case "scenarios":
            return _scenarios(measured, found, view)
        case "standings":
            return _standings(measured, found, view)
    whys = explained(measured)
    if view.form == "json":
        from cairn.report import run_json

        return run_json.render(
            measured.run, found, measured.samples, whys=whys, instructions=measured.counts
        )
    board = special_board(measured, whys)
    if board is not None:
        return _special(measured, board, found, whys, view)
    parts = [_by_workload(measured.run, found, view)]
    if measured.counts:
        parts.append(counted(measured, view))
    if whys:
        parts.append(whys_rendered(measured.run, whys, view))
    return "\n".join(parts)


def _plane(measured: Measured, found: Sequence[Comparison]) -> str:
    """Returns the plane of time and memory as SVG. Raises UsageError if the run has none."""
    from cairn.report import plane

    if measured.kind != "comparison" or measured.run.settings.instructions:
        raise UsageError("a picture of time and memory needs a run of 'cairn compare'")
    if not any(len(plane.points(one)) > 1 for one in found):
        raise UsageError("there is no picture: time and memory of two contenders are not known")
    return plane.svg(measured.run, found)


def plan_report(
    measured: Sequence[Measured],
    *,
    between: tuple[str, str] | None = None,
    programs: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    notes: Sequence[str] = (),
) -> MatrixReport:
    """Returns the report of one or more runs of a plan; see `matrix_board.of_runs`.

    groups: those of the contenders of all runs; None for those of the first run.
    """
    from cairn.report import matrix_board

    runs = [(one.run, one.samples, one.stopped) for one in measured]
    return matrix_board.of_runs(
        runs,
        between=between,
        programs=programs,
        groups=measured[0].groups if groups is None else groups,
        notes=notes,
    )


def fitting(
    measured: Sequence[Measured], programs: Sequence[str] | None = None
) -> tuple[list[Measured], tuple[str, ...]]:
    """Returns the runs of one fleet that can be merged, and a sentence for each other run.

    The rounds of the others count as missing rounds of the first run, so that a report says how
    many of all planned rounds there are. See `matrix_board.fitting`.
    """
    from cairn.report import matrix_board

    kept, notes = matrix_board.fitting([(one.run, one.samples) for one in measured], programs)
    first, *rest = (measured[at] for at in kept)
    lost = sum(one.run.rule.max_rounds for at, one in enumerate(measured) if at not in kept)
    number = first.run.rule.max_rounds + lost
    rule = replace(first.run.rule, min_rounds=number, max_rounds=number)
    whole = first if not lost else replace(first, run=replace(first.run, rule=rule))
    return [whole, *rest], notes


def explained(measured: Measured) -> tuple[Why, ...]:
    """Returns each contender's gap to the baseline on each workload, in parts; () without --why."""
    run = measured.run
    if not run.settings.why:
        return ()

    from cairn.why import doubts

    others = [contender.name for contender in run.competing if contender.name != run.baseline]
    found = comparisons(measured)
    return tuple(
        doubts.marked(_explained(measured, name, run.baseline, workload), found[workload])
        for workload in range(len(run.settings.workloads))
        for name in others
        if plan.runs_on(run.settings.only, name, workload)
    )


def _explained(measured: Measured, contender: str, other: str, workload: int) -> Why:
    from cairn.why import gap, simulation

    why = gap.explain(measured.run, measured.samples, contender, other, workload)
    return simulation.applied(why, measured.simulation, measured.samples)


def explainable(measured: Measured, contender: str | None, other: str | None) -> None:
    """Raises UsageError if the run does not have the contender or was made without --why."""
    run = measured.run
    known = [one.name for one in run.competing]
    for name in (contender, other):
        if name is not None and name not in known:
            raise UsageError(f"this run has no contender {name}; it has {', '.join(known)}")
    other = run.baseline if other is None else other
    if contender == other:
        raise UsageError(
            f"{contender} cannot be compared with itself; this run has {', '.join(known)}"
        )
    if len(known) < 2:
        raise UsageError(f"{known[0]} ran alone, so there is no difference to explain")
    if not run.settings.why:
        raise UsageError(
            "nothing ran with the probe in this run, so its differences cannot be explained; "
            "measure again with 'cairn compare --why'"
        )


def explained_pairs(
    measured: Measured, contender: str | None, other: str | None
) -> tuple[Why, ...]:
    """Returns the explained gaps of one pair, or of every contender to the baseline.

    Raises UsageError if the two contenders of the pair never ran the same program.
    """
    if contender is None:
        return explained(measured)
    run = measured.run
    other = other or run.baseline
    whys = [
        _explained(measured, contender, other, place)
        for place in range(len(run.settings.workloads))
        if all(plan.runs_on(run.settings.only, name, place) for name in (contender, other))
    ]
    if not whys:
        raise UsageError(
            f"{contender} and {other} ran no program in common, so they cannot be compared"
        )
    if other != run.baseline:  # the verdict says nothing about this pair
        return tuple(whys)

    from cairn.why import doubts

    found = comparisons(measured)
    return tuple(doubts.marked(one, found[one.workload]) for one in whys)


def explanation(measured: Measured, contender: str | None, other: str | None, view: View) -> str:
    """Returns the explained gap of one pair, or of every contender to the baseline.

    Raises UsageError as explainable() does.
    """
    explainable(measured, contender, other)
    run = measured.run
    whys = explained_pairs(measured, contender, other)
    if view.form == "json":
        from cairn.report import run_json

        return run_json.explanation(run, whys)
    return whys_rendered(run, whys, view)


def counted(measured: Measured, view: View) -> str:
    """Returns the instructions of each contender as Markdown or text."""
    from cairn.report import instruction_counts

    return instruction_counts.rendered(measured.run, measured.counts, view)


def whys_rendered(run: Run, whys: Sequence[Why], view: View) -> str:
    """Returns the result of `explained` as Markdown or text."""
    if view.form == "md":
        from cairn.report import markdown

        return markdown.whys(run, whys)

    from cairn.report import terminal

    return terminal.whys(run, whys, view)


def _by_workload(run: Run, found: Sequence[Comparison], view: View) -> str:
    if view.form == "md":
        from cairn.report import markdown

        return markdown.render(run, found, full=view.full)

    from cairn.report import terminal

    return terminal.render(run, found, view)


def _instructions(measured: Measured, view: View) -> str:
    from cairn.report import instructions

    run, samples = measured.run, measured.samples
    match view.form:
        case "json":
            return instructions.document(run, samples)
        case "md":
            return instructions.as_markdown(run, samples)
    return instructions.render(run, samples, view)


def _standings(measured: Measured, found: Sequence[Comparison], view: View) -> str:
    """Returns means over all workloads, and the explained gaps.

    The full view also has a part for each workload.
    """
    from cairn.report import markdown, run_json, terminal, why

    run = measured.run
    places, whys = standings.standings(run, measured.samples), explained(measured)
    match view.form:
        case "json":
            return run_json.render(run, found, measured.samples, standings=places, whys=whys)
        case "md":
            text = markdown.standings(run, places, stopped=measured.stopped)
        case _:
            text = terminal.standings(run, places, view, stopped=measured.stopped)
    parts = [text]
    if whys:
        board = why.summary(run, whys, measured.name)
        md = view.form == "md"
        parts.append(markdown.board(run, board) if md else terminal.drawn(board, view))
    if view.full:
        parts.append(_by_workload(run, found, view))
        if whys:
            parts.append(whys_rendered(run, whys, view))
    return "\n".join(parts)


def _scenarios(measured: Measured, found: Sequence[Comparison], view: View) -> str:
    """Returns the ranking by points.

    The full view also has the wall time and the memory in each scenario.
    """
    from cairn.report import markdown, run_json, terminal

    run, samples, stopped = measured.run, measured.samples, measured.stopped
    ranking = ranks.ranking(run, samples)
    matrices = own_matrices(measured)
    match view.form:
        case "json":
            return run_json.render(run, found, samples, scenarios=ranking, matrices=matrices)
        case "md":
            text = markdown.scenarios(run, ranking, matrices=matrices, stopped=stopped)
        case _:
            text = terminal.scenarios(run, ranking, view, matrices=matrices, stopped=stopped)
    return "\n".join([text, _by_workload(run, found, view)]) if view.full else text


def own_matrices(measured: Measured) -> list[Matrix]:
    """Returns cairn's contenders in a ranking of scenarios, each compared with all others."""
    ours = [one.name for one in measured.run.contenders if one.name.partition("-")[0] == _OURS]
    return [ranks.matrix(measured.run, measured.samples, name) for name in ours]


_ABOUT_CAIRN = frozenset({"calibration", "founding", "findings", "predictions"})


def special_board(measured: Measured, whys: Sequence[Why]) -> Board | None:
    """Returns the board of a run that answers a question about cairn itself; else None.

    These runs measure the costs of allocators, or judge findings and predictions by known cases.
    """
    if measured.kind not in _ABOUT_CAIRN:
        return None

    from cairn.report import findings_score, founding_cases, prediction, prediction_score
    from cairn.why import founding_cases as cases
    from cairn.why import ill_allocators
    from cairn.why import prediction as predicting
    from cairn.why import prediction_score as scoring

    run, samples = measured.run, measured.samples
    workloads = [workload.name for workload in run.settings.workloads]
    match measured.kind:
        case "calibration":
            names = [one.name for one in run.competing]
            costs = predicting.costs(run, samples)
            return prediction.board(costs, names, used=measured.predicts)
        case "founding":
            found = {(workloads[one.workload], one.contender): one for one in whys}
            return founding_cases.board(cases.judge(found))
        case "findings":
            return findings_score.board(ill_allocators.score(whys, samples, workloads))
        case "predictions":
            return prediction_score.board(scoring.score(run, samples))
    return None


def _special(
    measured: Measured, board: Board, found: Sequence[Comparison], whys: Sequence[Why], view: View
) -> str:
    """Returns the report of a special board. The full view also has each workload, and the gaps."""
    from cairn.report import markdown, terminal

    run = measured.run
    md = view.form == "md"
    parts = [markdown.board(run, board) if md else terminal.drawn(board, view)]
    if view.full:
        parts.append(_by_workload(run, found, view))
        if measured.kind in ("founding", "findings"):
            parts.append(whys_rendered(run, whys, view))
    return "\n".join(parts)
