"""The tables of a comparison. Text and Markdown draw the same tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct
from rich.cells import cell_len

from cairn import model, units
from cairn.compare import load_output
from cairn.model import Comparison, Direction, Metric, Row, Run
from cairn.report import formatting
from cairn.verdict import Measure


class Cell(Struct, frozen=True):
    """The text of a cell, and whether it is good news (True), bad news (False), or neither."""

    text: str
    good: bool | None = None


class Table(Struct, frozen=True):
    """Rows of cells under heads. The first column names the rows; the others hold numbers."""

    title: str
    """The text above the table; may be empty."""
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """Each row has a cell for each head."""
    tight: bool = False
    """Whether the columns are one space apart instead of two, for tables of many narrow columns."""
    parts: tuple[int, ...] = ()
    """The number of columns of each part, from the second column on. If this is empty, each column
    is a part. The columns of a part are never separated."""
    optional: tuple[int, ...] = ()
    """Indexes of the parts that a narrow screen may leave out, the least important first."""
    texts: bool = False
    """Whether all columns hold text, aligned at the left."""
    names_missing: bool = True
    """Whether a line below the table names the parts that were left out."""


_OVER_TIME = (model.MEAN_MEMORY, model.IDLE_MEMORY, model.GROWTH)
"""The numbers of memory besides peaks."""
_GROUPS = (
    (model.USER, model.SYSTEM, model.CPU),
    (model.FAULTS, model.LARGEST),
    (model.PEAK_LESS_LAZY, model.LAZY),
    _OVER_TIME,
)
_JUDGED = (model.PEAK, model.FAULTS)
"""The metrics of the summary besides time and CPU time."""
_NAME_MAX = 18
"""In the summary, a contender's name has no version if it would be wider than this, in columns."""
_HEAD_MAX = 14
"""The heads of columns do not contain the baseline's name if it is longer than this."""
_ONLY_FULL = (model.CPU_TIME, model.SWITCHES)


def _marked(comparison: Comparison, row: Row) -> str:
    """Returns the mark of a contender that the verdict names, or as many spaces."""
    return "▸ " if row.contender in comparison.judged.chosen else "  "


def summary(run: Run, comparison: Comparison) -> tuple[Table, ...]:
    """Returns the evidence for the verdict in one table, and the user's own metrics.

    The baseline's row has its medians. The other rows have the intervals of their changes, so that
    three measures fit on 80 columns.
    """
    named, short = names(run, comparison), short_names(run, comparison)
    wanted = (comparison.time, comparison.cpu_time, *_JUDGED)
    measured = [metric for metric in wanted if metric in comparison.metrics]

    def drawn(metrics: Sequence[Metric], optional: tuple[int, ...]) -> Table:
        rows = []
        for row in _alive(comparison):
            cells = [Cell(_marked(comparison, row) + short[row.contender])]
            cells += [_summary_cell(row, metric, comparison.rule.margin) for metric in metrics]
            rows.append(tuple(cells))
        return Table(
            title="",
            heads=("", *(_SUMMARY_HEADS.get(metric.key, metric.title) for metric in metrics)),
            rows=tuple(rows),
            optional=optional,
            names_missing=False,  # the footer names them
        )

    table = drawn(measured, (len(measured) - 1,) if model.FAULTS in measured else ())
    own = [metric for metric in comparison.metrics if metric.key not in _built_in(comparison)]
    load = [metric for metric in own if metric.key.startswith("load:")]
    load = [metric for metric in load if _is_shown(metric, comparison)]
    others = [drawn(load, ())] if load else []
    over_time = [metric for metric in _OVER_TIME if metric in comparison.metrics]
    aim = comparison.judged.aim
    if over_time and (
        model.IDLE_MEMORY in over_time or (aim.given and Measure.MEMORY in aim.measures)
    ):
        others.insert(0, drawn(over_time, ()))
    others += [
        _changes(comparison, (metric,), named, optional=True)
        for metric in own
        if not metric.key.startswith(("figure:", "load:"))
    ]
    if comparison.against:
        others.append(_against(comparison))
    return (table, *others) if comparison.rounds else ()


_SUMMARY_HEADS = {
    model.WALL.key: "wall time",
    model.FAULTS.key: "page faults",
}


def _summary_cell(row: Row, metric: Metric, margin: float) -> Cell:
    change = row.changes.get(metric.key)
    if change is None or change.interval is None:
        summary = row.summaries.get(metric.key)
        if summary is not None and summary.median == 0 and metric.unit == "ns":
            return Cell("< 1 ms")
        return Cell(formatting.median(summary, metric))
    return Cell(formatting.span(change, margin), formatting.good(change, metric, margin))


def names(run: Run, comparison: Comparison) -> dict[str, str]:
    """Returns the printed name of each contender, by the contender's name."""
    titles = {contender.name: contender.title for contender in run.contenders}
    return {row.contender: name_of(titles[row.contender], row.contender) for row in comparison.rows}


def short_names(run: Run, comparison: Comparison) -> dict[str, str]:
    """Returns the names of the contenders as names() does, but long ones without their versions."""
    return {
        name: text if cell_len(text) <= _NAME_MAX else formatting.printable(name)
        for name, text in names(run, comparison).items()
    }


def _built_in(comparison: Comparison) -> set[str]:
    return {metric.key for metric in (*model.BUILT_IN, comparison.time, comparison.cpu_time)}


def tables(run: Run, comparison: Comparison, *, full: bool) -> tuple[Table, ...]:
    """Returns medians with paired changes; `full` adds spread, range and runs of every metric."""
    measured = {metric.key: metric for metric in comparison.metrics}
    built_in = _built_in(comparison)
    own = tuple(
        metric
        for metric in comparison.metrics
        if metric.key not in built_in and (full or _is_shown(metric, comparison))
    )
    first = (
        (comparison.time, model.PEAK),
        *(((model.WALL,),) if comparison.time != model.WALL else ()),
        *(((comparison.cpu_time,),) if comparison.cpu_time != model.CPU_TIME else ()),
    )
    groups = [*first, *_GROUPS, *((metric,) for metric in own), *(((_ONLY_FULL),) if full else ())]
    named = names(run, comparison)
    result = [
        _changes(comparison, present, named, optional=group not in first)
        for group in groups
        if (
            present := tuple(
                metric
                for metric in group
                if metric.key in measured and is_interesting(metric, comparison)
            )
        )
    ]
    if comparison.against:
        result.append(_against(comparison))
    if full:
        result += [spread(run, comparison, metric) for metric in comparison.metrics]
    return tuple(result)


def name_of(title: str, name: str) -> str:
    """Returns the contender's name or its library's title, or both if neither implies the other."""
    if title.lower().startswith(name.lower() + " "):
        return formatting.printable(title)
    if name.partition(" ")[0] in ("system", title.partition(" ")[0]):
        return formatting.printable(name)
    return formatting.printable(f"{name} ({title})")


def _against_head(baseline: str) -> str:
    text = formatting.printable(baseline)
    return f"against {text}" if len(text) <= _HEAD_MAX else "change"


def is_interesting(metric: Metric, comparison: Comparison) -> bool:
    """Returns whether a metric gets a column.

    The metrics of lazily freed memory get one only if some run has at least 1 MiB of such memory.
    """
    if metric.key not in (model.LAZY.key, model.PEAK_LESS_LAZY.key):
        return True
    lazy = [
        row.summaries[model.LAZY.key].maximum
        for row in comparison.rows
        if model.LAZY.key in row.summaries
    ]
    return max(lazy, default=0) >= 1 << 20


def _is_shown(metric: Metric, comparison: Comparison) -> bool:
    """Returns whether a report without --full shows this metric, which is not a built-in one.

    It shows all metrics of the user. Of the numbers that a load prints, it shows the main ones, and
    the number of errors if there were any.
    """
    if not metric.key.startswith("load:") or load_output.is_main(metric.key):
        return True
    errors = metric.key == f"load:{load_output.ERRORS}"
    return errors and any(
        row.summaries[metric.key].maximum for row in comparison.rows if metric.key in row.summaries
    )


def _alive(comparison: Comparison) -> Sequence[Row]:
    return [row for row in comparison.rows if not row.failures]


def _changes(
    comparison: Comparison, metrics: Sequence[Metric], named: dict[str, str], *, optional: bool
) -> Table:
    """Returns medians and changes of metrics.

    If `optional`, a narrow screen may leave out all metrics but the first.
    """
    compared = len(comparison.rows) > 1
    heads = [""]
    parts: list[int] = []
    for metric in metrics:
        heads.append(formatting.printable(metric.title))
        if compared and metric.direction is not Direction.NEITHER:
            heads += [_against_head(comparison.baseline), "95 %"]
        parts.append(len(heads) - 1 - sum(parts))
    rows = []
    for row in _alive(comparison):
        cells = [Cell(_marked(comparison, row) + named[row.contender])]
        for metric in metrics:
            cells.append(Cell(formatting.median(row.summaries.get(metric.key), metric)))
            if not compared or metric.direction is Direction.NEITHER:
                continue
            change = row.changes.get(metric.key)
            good = formatting.good(change, metric, comparison.rule.margin)
            if row.contender == comparison.baseline:
                cells += [Cell("baseline"), Cell("")]
            else:
                cells += [
                    Cell(formatting.change(change, comparison.rule.margin), good),
                    Cell(formatting.interval(change, comparison.rule.margin), good),
                ]
        rows.append(tuple(cells))
    return Table(
        title="",
        heads=tuple(heads),
        rows=tuple(rows),
        parts=tuple(parts),
        optional=tuple(range(len(parts) - 1, 0, -1)) if optional else (),
    )


def _against(comparison: Comparison) -> Table:
    """Returns the changes in CPU time of the experiment's additional pairs of contenders.

    They are written as ratios, because numbers near 1 read well as ratios.
    """
    rows: dict[str, list[Cell]] = {}
    for pair in comparison.against:
        change = pair.change
        ends = "too few rounds"
        if change.interval is not None:
            low, high = change.interval.low, change.interval.high
            ends = f"[{formatting.times(1 + low)}, {formatting.times(1 + high)}]"
        text = (
            f"÷ {formatting.printable(pair.other)} {formatting.times(1 + change.estimate)} {ends}"
        )
        rows.setdefault(pair.contender, []).append(
            Cell(text, formatting.good(change, model.CPU_TIME, comparison.rule.margin))
        )
    most = max(len(cells) for cells in rows.values())
    heads = ("CPU time, as a ratio", "[95 %], each pair by itself", *[""] * (most - 1))
    return Table(
        title="",
        heads=heads,
        rows=tuple(
            (Cell("  " + formatting.printable(name)), *cells, *[Cell("")] * (most - len(cells)))
            for name, cells in rows.items()
        ),
    )


def changes(run: Run, comparison: Comparison, metric: Metric) -> Table:
    """Returns the medians of one metric and their changes."""
    return _changes(comparison, (metric,), names(run, comparison), optional=False)


def spread(run: Run, comparison: Comparison, metric: Metric) -> Table:
    """Returns mean, median, range and number of runs of one metric."""
    named = names(run, comparison)
    rows = tuple(
        (
            Cell("  " + named[row.contender]),
            Cell(formatting.spread(summary, metric)),
            Cell(formatting.median(summary, metric)),
            Cell(formatting.extremes(summary, metric)),
            Cell(str(summary.runs) if summary else "0"),
        )
        for row in _alive(comparison)
        for summary in [row.summaries.get(metric.key)]
    )
    title = formatting.printable(metric.title)
    return Table(title=title, heads=(title, "mean ± σ", "median", "min … max", "runs"), rows=rows)


def footer(comparison: Comparison) -> str:
    """Returns how the numbers were measured, on one line."""
    parts = [_rounds(comparison)]
    if len(_alive(comparison)) > 1:
        levels = _levels(comparison, comparison.metrics)
        parts.append(f"{levels}: paired Hodges–Lehmann, Holm-adjusted")
        parts += _legend(comparison, comparison.metrics)
    parts += _loaded(comparison)
    if comparison.memory_method:
        parts.append(f"peak memory: anonymous and shared pages ({comparison.memory_method})")
    return " · ".join(parts)


def summary_footer(comparison: Comparison, missing: Collection[str] = ()) -> str:
    """Returns what the summary's numbers are, on one line.

    missing: the heads of the columns that were left out; their signs are not explained.
    """
    parts = [_rounds(comparison)]
    if comparison.judged.recommendations:
        base = formatting.printable(comparison.baseline)
        shown = [
            metric
            for metric in (comparison.time, comparison.cpu_time, *_JUDGED)
            if _SUMMARY_HEADS.get(metric.key, metric.title) not in missing
        ]
        parts.append(f"{_levels(comparison, shown)} against {base}")
        if comparison.judged.chosen:
            parts.append("▸ named above")
        parts += _legend(comparison, shown)
    if missing:
        parts.append(f"left out: {', '.join(missing)} (--full or a wider terminal)")
    if comparison.time == load_output.REQUEST_TIME:
        both = comparison.cpu_time == load_output.REQUEST_CPU_TIME
        parts.append("time and CPU time are per request" if both else "time is per request")
    parts += _loaded(comparison)
    if comparison.memory_method:
        sampled = comparison.memory_method == "sampled"
        how = "sampling" if sampled else comparison.memory_method
        parts.append(f"peak memory by {how}")
    return " · ".join(parts)


def _signs(comparison: Comparison, metrics: Sequence[Metric]) -> set[str]:
    """Returns the signs of all changes in these metrics."""
    margin = comparison.rule.margin
    return {
        formatting.sign(row.changes[metric.key], margin)
        for row in _alive(comparison)
        for metric in metrics
        if metric.key in row.changes
    }


def _levels(comparison: Comparison, metrics: Sequence[Metric]) -> str:
    """Returns the levels of the intervals. The one beside ≈ is that of the test of equivalence."""
    alike = "≈" in _signs(comparison, metrics)
    return f"95 % intervals{' (beside ≈: 90 %)' if alike else ''}"


def _legend(comparison: Comparison, metrics: Sequence[Metric]) -> list[str]:
    """Returns the meaning of the signs of the changes in these metrics; empty without any."""
    margin = f"±{100 * comparison.rule.margin:g} %"
    meanings = {"▼": "less", "▲": "more", "≈": f"the same within {margin}", "?": "not shown"}
    signs = _signs(comparison, metrics)
    said = [f"{sign} {meaning}" for sign, meaning in meanings.items() if sign in signs]
    return [", ".join(said)] if said else []


def _rounds(comparison: Comparison) -> str:
    text = units.counted(comparison.rounds, "round")
    why = comparison.stopped_because
    return f"{text} ({formatting.printable(why)})" if why and why != text else text


def _loaded(comparison: Comparison) -> list[str]:
    """Returns a clause on the programs that loaded their allocator; empty without a trial.

    It is about the contender with the most programs that did not load it. A process that was
    forked and executed no program is not counted: it has the allocator of its parent.
    """
    loaded = min(
        (row.proof for row in _alive(comparison)),
        default=None,
        key=lambda proof: proof[0] - proof[1],
    )
    if not loaded or loaded == (0, 0):
        return []
    if loaded[0] == loaded[1]:
        each = f"({units.count(loaded[0])} in each run)"
        return [f"every program {each} loaded its allocator"]
    programs = units.counted(loaded[1], "executed program")
    return [f"an allocator was loaded in only {loaded[0]} of {programs}"]


def remarks(run: Run, comparison: Comparison, *, full: bool) -> list[str]:
    """Returns the notes of the run and of the comparison; `full` adds those on single numbers."""
    details = comparison.details if full else ()
    return [formatting.printable(line) for line in (*run.notes, *comparison.notes, *details)]
