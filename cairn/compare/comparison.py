"""Turns samples into a Comparison: paired changes, a ranking, and a verdict to act on.

Always true here:

- Only complete rounds are used. A round is complete when every surviving contender has a run in it
  that counts.
- A contender survives if none of its runs failed. A failed contender keeps a row with its failures.
  It has no numbers, comes last, and costs the other contenders no round.
- The contenders within one metric are one family for Holm's adjustment. Each metric has its own
  family.
- Every claim of the verdict follows from a change's `Shown`, or from a paired interval between two
  contenders.

The module is pure: it reads no file and no clock, and runs no program. It raises nothing when the
baseline failed: the Comparison then has no changes, and the verdict says why.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cairn import units
from cairn.compare import stats
from cairn.model import (
    BENCH_ROUNDS_MOST,
    BUILT_IN,
    CPU_TIME,
    LAZY,
    PEAK,
    PEAK_LESS_LAZY,
    ROUNDS_MOST,
    WALL,
    Against,
    Change,
    Comparison,
    Contender,
    Direction,
    Interval,
    Metric,
    Row,
    Sample,
    Shown,
    StopRule,
    value,
)

LONG_RUN_S = 600
"""A run shorter than this many seconds says nothing about long-run fragmentation.

Such fragmentation makes memory grow over hours.
"""

MEMORY_KEYS = frozenset(metric.key for metric in (PEAK, PEAK_LESS_LAZY, LAZY))


def compare(
    samples: Sequence[Sample],
    contenders: Sequence[Contender],
    baseline: str,
    rule: StopRule,
    *,
    stopped_because: str | None = None,
    user_metrics: Sequence[Metric] = (),
    run_name: str = "last",
    time: Metric = WALL,
    beside: Sequence[tuple[str, str]] = (),
    bench: str | None = None,
) -> Comparison:
    """Compares every contender with `baseline` on the samples so far.

    time: the metric of the ranking and the verdict.
    user_metrics: the metrics that the user defined, with keys "metric:NAME". They become columns
    besides the built-in ones. Performance counters in the samples become columns without being
    named here.
    run_name: the name by which 'cairn report' finds the run again.
    beside: pairs (contender, other contender) whose CPU times are compared as well.
    bench: the arguments of 'cairn bench' that repeat this run; None if the run is no built-in
    experiment.

    A metric without a direction gets summaries but no changes: a higher CPU percentage is neither
    better nor worse.
    """
    names = [contender.name for contender in contenders]
    more = (time,) if time not in (*BUILT_IN, *user_metrics) else ()
    table = _table(samples, names, (*BUILT_IN, *more, *_counters(samples), *user_metrics))
    changes: dict[str, dict[str, Change]] = {}
    if baseline in table.survivors:
        for metric in table.metrics:
            if metric.direction is not Direction.NEITHER:
                changes[metric.key] = table.changes(metric.key, table.survivors, baseline, rule)
    rows = [_row(name, samples, table, changes, time) for name in names]
    rows.sort(key=lambda row: _rank(row, baseline, changes, time))
    judge = _Judge(table, {row.contender: row for row in rows}, baseline, rule, time)
    return Comparison(
        baseline=baseline,
        rows=tuple(rows),
        metrics=table.metrics,
        rounds=len(table.rounds),
        rule=rule,
        stopped_because=stopped_because,
        verdict=tuple(judge.verdict()),
        not_tested=tuple(_not_tested(table, samples)),
        next_steps=tuple(judge.next_steps(contenders, run_name, bench)),
        memory_method=table.memory_method,
        notes=tuple(_notes(table, rows, contenders, samples)),
        time=time,
        against=tuple(
            Against(name, other, change)
            for name, other in beside
            if name in table.survivors and other in table.survivors
            for change in table.changes(CPU_TIME.key, (name,), other, rule).values()
        ),
    )


def wall_ratios(
    samples: Sequence[Sample], names: Sequence[str], baseline: str
) -> dict[str, tuple[float, ...]]:
    """Returns the log ratios of wall time to the baseline's, in the form that `stats.look` takes.

    The keys are the surviving contenders except the baseline. Each has one ratio per complete
    round. The result is empty when the baseline or every other contender failed.
    """
    table = _table(samples, names, (WALL,))
    if baseline not in table.survivors:
        return {}
    return {
        name: table.log_ratios(WALL.key, name, baseline) or ()
        for name in table.survivors
        if name != baseline
    }


@dataclass(frozen=True, slots=True)
class _Numbers:
    """All numbers that were measured in complete rounds."""

    survivors: tuple[str, ...]
    """Contenders without a failed run, in the order given."""
    rounds: tuple[int, ...]
    metrics: tuple[Metric, ...]
    """The metrics with at least one number."""
    cells: Mapping[tuple[str, str], tuple[float | None, ...]]
    """By metric key and survivor: one number per round, None where it was not measured."""
    memory_method: str | None
    """The only method by which runs measured memory; None if there was none or more than one."""

    def numbers(self, key: str, name: str) -> list[float]:
        """The contender's numbers, without the rounds in which the metric was not measured."""
        return [x for x in self.cells.get((key, name), ()) if x is not None]

    def log_ratios(self, key: str, name: str, base: str) -> tuple[float, ...] | None:
        """ln(name / base) for each round that has both numbers.

        Returns None when no round has both, or when a ratio is undefined.
        """
        pairs = [
            (x, b)
            for x, b in zip(
                self.cells.get((key, name), ()), self.cells.get((key, base), ()), strict=True
            )
            if x is not None and b is not None
        ]
        return stats.log_ratios([x for x, _ in pairs], [b for _, b in pairs]) if pairs else None

    def changes(
        self, key: str, names: Iterable[str], base: str, rule: StopRule
    ) -> dict[str, Change]:
        """Compares each of `names` with `base`, as one family for Holm's adjustment.

        The result has no entry for `base`, nor for contenders without defined ratios.
        """
        ratios = {name: self.log_ratios(key, name, base) for name in names if name != base}
        defined = {
            name: differences for name, differences in ratios.items() if differences is not None
        }
        return stats.changes(defined, stats.alpha(rule), rule.margin)


def _table(samples: Sequence[Sample], names: Sequence[str], metrics: Sequence[Metric]) -> _Numbers:
    """All numbers of complete rounds, but none of memory if runs measured it in different ways."""
    failed = {sample.trial.contender for sample in samples if sample.failure is not None}
    survivors = tuple(name for name in names if name not in failed)
    runs: dict[str, dict[int, Sample]] = {name: {} for name in survivors}
    for sample in samples:
        if sample.counts and sample.trial.contender in runs:
            runs[sample.trial.contender][sample.trial.round] = sample
    rounds = tuple(sorted(set.intersection(*(set(of) for of in runs.values())))) if runs else ()
    used = [runs[name][round_] for name in survivors for round_ in rounds]
    methods = {sample.memory.method for sample in used if sample.memory.peak_bytes is not None}
    cells = {
        (metric.key, name): tuple(value(runs[name][round_], metric.key) for round_ in rounds)
        for metric in metrics
        if metric.key not in MEMORY_KEYS or len(methods) == 1
        for name in survivors
    }
    measured = {key for (key, _), numbers in cells.items() if any(x is not None for x in numbers)}
    return _Numbers(
        survivors=survivors,
        rounds=rounds,
        metrics=tuple(metric for metric in metrics if metric.key in measured),
        cells=cells,
        memory_method=methods.pop() if len(methods) == 1 else None,
    )


def _counters(samples: Sequence[Sample]) -> list[Metric]:
    """Returns a column for each performance counter in the samples, sorted by name."""
    names = sorted({name for sample in samples for name in sample.counters})
    return [Metric(f"counter:{name}", name, "count") for name in names]


def _row(
    name: str,
    samples: Sequence[Sample],
    table: _Numbers,
    changes: Mapping[str, Mapping[str, Change]],
    time: Metric,
) -> Row:
    own = [sample for sample in samples if sample.trial.contender == name]
    proofs = [(sample.proof.loaded, sample.proof.processes) for sample in own]
    numbers = {metric.key: table.numbers(metric.key, name) for metric in table.metrics}
    return Row(
        contender=name,
        summaries={key: stats.summarise(values) for key, values in numbers.items() if values},
        changes={key: of[name] for key, of in changes.items() if name in of},
        proof=min(
            proofs, key=lambda proof: proof[0] / proof[1] if proof[1] else 1.0, default=(0, 0)
        ),
        failures=tuple(
            dict.fromkeys(sample.failure for sample in own if sample.failure is not None)
        ),
        outliers=_outliers(name, table, time),
    )


def _outliers(name: str, table: _Numbers, time: Metric) -> tuple[int, ...]:
    """The rounds in which this contender was far slower than usual while the others were not.

    Each contender's log times are taken relative to its own median. The pace of a round is the
    median of the other contenders' relative times, and is subtracted. This contender's own time
    does not enter the pace: with few contenders it would often be the median, and a disturbance of
    this contender would cancel.
    """
    times = {other: table.numbers(time.key, other) for other in table.survivors}
    if (
        name not in times
        or not table.rounds
        or any(min(of, default=0) <= 0 for of in times.values())
    ):
        return ()
    logs = {
        other: [math.log(taken / statistics.median(of)) for taken in of]
        for other, of in times.items()
    }
    own = logs.pop(name)
    pace = (
        [statistics.median(of) for of in zip(*logs.values(), strict=True)]
        if logs
        else [0.0] * len(own)
    )
    return tuple(
        table.rounds[i] for i in stats.outliers([x - y for x, y in zip(own, pace, strict=True)])
    )


def _rank(
    row: Row, baseline: str, changes: Mapping[str, Mapping[str, Change]], time: Metric
) -> tuple[bool, float]:
    """The sort key: failed contenders last, the others by change in time or by median time."""
    if time.key in row.changes:
        return False, row.changes[time.key].estimate
    if row.contender == baseline and changes.get(time.key):
        return False, 0.0
    return bool(row.failures), row.summaries[
        time.key
    ].median if time.key in row.summaries else math.inf


@dataclass(frozen=True, slots=True)
class _Judge:
    """Turns the changes into the sentences of the verdict.

    A shown difference whose whole interval lies within the margin counts as equivalence here: it is
    too small to change the allocator for.
    """

    table: _Numbers
    rows: Mapping[str, Row]
    """The rows of all contenders by name, the best contender first."""
    baseline: str
    rule: StopRule
    time: Metric

    def verdict(self) -> list[str]:
        """The sentences: first what to do, and last which contenders failed."""
        failed = [
            row for row in self.rows.values() if row.failures and row.contender != self.baseline
        ]
        return [
            *self._main(),
            *(f"{row.contender} failed and is left out: {row.failures[0]}" for row in failed),
        ]

    def next_steps(
        self, contenders: Sequence[Contender], run_name: str, bench: str | None
    ) -> list[str]:
        """The commands to run next: the report, then how to use the winner or to measure more."""
        steps = [f"cairn report {run_name} --md"]
        if self._showing(Shown.LESS):
            pick, _ = self._pick()
            steps += [
                f"cairn run -a {shlex.quote(c.spec or c.name)} -- PROG…"
                for c in contenders
                if c.name == pick
            ]
        elif self._showing(Shown.NOT_SHOWN):
            rounds = len(self.table.rounds)
            if bench is not None and self.rule.min_rounds <= rounds < BENCH_ROUNDS_MOST:
                steps.append(f"cairn bench {bench} -r {min(2 * rounds, BENCH_ROUNDS_MOST)}")
            elif bench is None and self.rule.max_rounds <= rounds < ROUNDS_MOST:
                wanted = "-r" if self.rule.precision is None else "--max-rounds"
                steps.append(
                    f"cairn compare {wanted} {min(2 * self.rule.max_rounds, ROUNDS_MOST)} …"
                )
            elif bench is None and self.rule.precision is not None and self._all_narrow():
                steps.append(f"cairn compare --precision {50 * self.rule.precision:g}% …")
        return steps

    def _main(self) -> list[str]:
        base = self.rows[self.baseline]
        if base.failures:
            nothing = (
                f"No verdict: the program fails under {self.baseline}, "
                "so there is nothing to compare with."
            )
            return [nothing, base.failures[0]]
        others = [name for name in self.table.survivors if name != self.baseline]
        if not others:
            why = (
                "every other contender failed"
                if len(self.rows) > 1
                else "no other contender was run"
            )
            return [f"Keep {self.baseline}: {why}."]
        if any(self._change(self.time, name) is None for name in others):
            return ["No verdict yet: no round is complete."]
        return self._use() if self._showing(Shown.LESS) else self._keep()

    def _use(self) -> list[str]:
        """The sentences when at least one contender is shown to take less time."""
        fastest = self._fastest()
        pick, why = self._pick()
        gain = f"{self._span(self.time, pick)} than {self.baseline}, {self._price(pick)}."
        if len(fastest) == 1:
            sentences = [f"Use {pick}: {gain}"]
        else:
            equal = (
                "no difference in time shown between them"
                if len(fastest) == 2
                else f"none is shown to be slower than {fastest[0]}, the fastest"
            )
            sentences = [f"Use {_listed(fastest, 'or')}: {equal}; {why}.", f"{pick}: {gain}"]
        if self._shows(PEAK, pick) is Shown.MORE:
            sentences.append(f"If memory matters, {self._advice_on_memory(pick)}.")
        return sentences

    def _keep(self) -> list[str]:
        """The sentences when no contender is shown to take less time."""
        unclear = self._showing(Shown.NOT_SHOWN)
        slower = self._showing(Shown.MORE)
        same = self._showing(Shown.EQUIVALENT)
        if not unclear and not slower:
            sentences = [
                f"Keep {self.baseline}: every contender takes the same time "
                f"within {self._margin()} (equivalence shown in {self._rounds()})."
            ]
        else:
            sentences = [self._unclear(unclear, alone=not slower and not same)] if unclear else []
            known = [f"{name} takes {self._span(self.time, name)}" for name in slower]
            known += [f"{name} is equivalent within {self._margin()}" for name in same]
            if known:
                sentences.append(
                    f"{'' if unclear else f'Keep {self.baseline}: '}{'; '.join(known)}."
                )
        saver = self._memory_saver()
        if saver is not None:
            sentences.append(f"If memory matters, {saver}.")
        return sentences

    def _unclear(self, names: Sequence[str], *, alone: bool) -> str:
        """The sentence on contenders for which the data show neither a difference nor equivalence.

        alone: whether `names` are all contenders. The sentence then does not name them.
        """
        whom = "" if alone else f" for {_listed(names, 'and')}"
        rounds = len(self.table.rounds)
        reaches = [
            _reach(change.interval) for name in names if (change := self._change(self.time, name))
        ]
        if math.inf in reaches:
            return (
                f"No answer yet{whom}: {self._rounds()} {'is' if rounds == 1 else 'are'} too few "
                "for an interval. Use more rounds, such as -r 10."
            )
        reach = f"±{_percent(max(reaches))} %"
        if self._all_narrow():
            return (
                f"Keep {self.baseline}: no difference in time shown{whom} in {self._rounds()}; "
                f"a difference, if there is one, is within {reach}."
            )
        return (
            f"No difference in time shown{whom}: after {self._rounds()} the intervals still reach "
            f"{reach}, too far for an answer."
        )

    def _fastest(self) -> list[str]:
        """The fastest winner, then all winners that are not shown to be slower than the fastest.

        A winner is a contender that is shown to take less time than the baseline.
        """
        winners = self._showing(Shown.LESS)
        against = self.table.changes(self.time.key, winners, winners[0], self.rule)
        return [
            name for name in winners if name not in against or against[name].shown is not Shown.MORE
        ]

    def _pick(self) -> tuple[str, str]:
        """Chooses one contender of `_fastest()`. Returns it and the reason for choosing it.

        The choice is the contender that is shown to take less memory than all others in
        `_fastest()`. If there is no such contender, the choice is the fastest.
        """
        fastest = self._fastest()
        peaks = {name: change.estimate for name in fastest if (change := self._change(PEAK, name))}
        if len(peaks) < len(fastest):
            return fastest[0], "memory not measured"
        leanest = min(fastest, key=peaks.__getitem__)
        against = self.table.changes(PEAK.key, fastest, leanest, self.rule)
        if all(change.shown is Shown.MORE for change in against.values()):
            return leanest, f"{leanest} takes less memory"
        return fastest[0], "none is shown to take the least memory"

    def _advice_on_memory(self, pick: str) -> str:
        """The advice for users to whom `pick` takes too much memory, as the end of a sentence.

        It names a winner that takes less memory than `pick`; if there is none, the contender of
        `_memory_saver`; if there is none either, the baseline.
        """
        against = self.table.changes(PEAK.key, self._showing(Shown.LESS), pick, self.rule)
        for name in self._showing(Shown.LESS):
            if name in against and against[name].shown is Shown.LESS:
                return f"use {name}: {self._span(self.time, name)}, {self._price(name)}"
        return self._memory_saver() or f"keep {self.baseline}"

    def _memory_saver(self) -> str | None:
        """The advice to use the contender that saves the most memory without a change in time.

        Only contenders for which no difference in time is shown are considered. Returns the end of
        a sentence, or None if none of them is shown to save memory.
        """
        even = [*self._showing(Shown.EQUIVALENT), *self._showing(Shown.NOT_SHOWN)]
        savers = [name for name in even if self._shows(PEAK, name) is Shown.LESS]
        if not savers:
            return None
        best = min(savers, key=lambda name: self.rows[name].changes[PEAK.key].estimate)
        same = self._shows(self.time, best) is Shown.EQUIVALENT
        cost = f"time within {self._margin()}" if same else "no difference in time shown"
        return f"use {best}: {self._span(PEAK, best)}, {cost}"

    def _price(self, name: str) -> str:
        """The cost or the saving of the contender in memory, as the end of a sentence."""
        change = self._change(PEAK, name)
        if change is None:
            return "memory not measured"
        amount = units.size(
            abs(change.estimate) * statistics.median(self.table.numbers(PEAK.key, self.baseline))
        )
        match change.shown:
            case Shown.LESS:
                return f"and about {amount} less memory"
            case Shown.MORE:
                lazy = self._shows(PEAK_LESS_LAZY, name) in (Shown.LESS, Shown.EQUIVALENT)
                freed = ", lazily freed: the kernel can take it back" if lazy else ""
                return f"for about {amount} more memory{freed}"
            case Shown.EQUIVALENT:
                return f"with memory within {self._margin()}"
            case Shown.NOT_SHOWN:
                return "no difference in memory shown"

    def _showing(self, finding: Shown) -> list[str]:
        """The contenders whose change in time shows `finding`, fastest first."""
        return [name for name in self.rows if self._shows(self.time, name) is finding]

    def _shows(self, metric: Metric, name: str) -> Shown | None:
        """The conclusion from the contender's change in this metric; None if it has no change.

        A difference within the margin counts as equivalence.
        """
        change = self._change(metric, name)
        if change is None:
            return None
        shown = change.shown in (Shown.LESS, Shown.MORE)
        if shown and change.interval and stats.within(change.interval, self.rule.margin):
            return Shown.EQUIVALENT
        return change.shown

    def _change(self, metric: Metric, name: str) -> Change | None:
        return self.rows[name].changes.get(metric.key)

    def _all_narrow(self) -> bool:
        """Whether the intervals of all undecided contenders are as narrow as the rule demands.

        An undecided contender is shown to be neither different from the baseline nor equivalent to
        it. For such a contender, the stopping rule demands a half-width of at most half of
        `precision` (`stats.look`).
        """
        widths = [
            stats.half_width(self.rows[name].changes[self.time.key])
            for name in self._showing(Shown.NOT_SHOWN)
        ]
        enough = (self.rule.precision or 0) / 2
        return all(width is not None and width <= enough for width in widths)

    def _span(self, metric: Metric, name: str) -> str:
        """The interval in words, for example "4.9 to 6.4 % less time"."""
        interval = self.rows[name].changes[metric.key].interval
        assert interval is not None, "a difference is only shown by an interval"
        low, high = (_percent(x) for x in sorted((abs(interval.low), abs(interval.high))))
        span = low if low == high else f"{low} to {high}"
        sign = "less" if interval.high < 0 else "more"
        return f"{span} % {sign} {'time' if metric is self.time else 'memory'}"

    def _margin(self) -> str:
        return f"±{100 * self.rule.margin:g} %"

    def _rounds(self) -> str:
        return f"{len(self.table.rounds)} round{'' if len(self.table.rounds) == 1 else 's'}"


def _reach(interval: Interval | None) -> float:
    """The largest change that the interval contains, up or down, as a positive ratio."""
    return max(abs(interval.low), abs(interval.high)) if interval else math.inf


def _not_tested(table: _Numbers, samples: Sequence[Sample]) -> list[str]:
    """Returns a phrase for each property of the contenders that the numbers do not show."""
    walls = [wall for name in table.survivors for wall in table.numbers(WALL.key, name)]
    phrases = []
    if walls and statistics.median(walls) < LONG_RUN_S * 1e9:
        phrases.append(
            f"long-run fragmentation (a run lasts {units.time(statistics.median(walls))})"
        )
    if walls and table.memory_method is None:
        phrases.append("memory (not measured)")
    if table.memory_method == "sampled":
        phrases.append("short peaks between two memory samples")
    unreached = {
        (u.path, u.reason) for sample in samples if sample.counts for u in sample.proof.unreached
    }
    if unreached:
        path, reason = min(unreached)
        more = f" and {len(unreached) - 1} more" if len(unreached) > 1 else ""
        phrases.append(f"programs that a preloaded library cannot reach ({path}: {reason}{more})")
    return phrases


def _notes(
    table: _Numbers, rows: Sequence[Row], contenders: Sequence[Contender], samples: Sequence[Sample]
) -> list[str]:
    """Sentences on how the numbers came about, which a reader must know to judge them."""
    notes = []
    for row in rows:
        if row.outliers:
            rounds = _listed([f"round {round_}" for round_ in row.outliers], "and")
            notes.append(
                f"{row.contender} was far slower than usual in {rounds}; "
                f"{'this run is' if len(row.outliers) == 1 else 'these runs are'} kept."
            )
    undefined = [
        metric.title
        for metric in table.metrics
        if metric.direction is not Direction.NEITHER
        and any(
            row.changes and metric.key in row.summaries and metric.key not in row.changes
            for row in rows
        )
    ]
    if undefined:
        notes.append(
            f"{_listed(undefined, 'and')}: no change is given, since a run measured 0 "
            "and a ratio needs numbers above 0."
        )
    methods = {
        sample.memory.method
        for sample in samples
        if sample.counts and sample.memory.peak_bytes is not None
    }
    if len(methods) > 1:
        notes.append(
            "Memory is not compared: it was measured in different ways "
            f"({', '.join(sorted(methods))})."
        )
    left = max((sample.left_behind for sample in samples if sample.counts), default=0)
    if left:
        notes.append(
            f"Up to {left} descendant{' was' if left == 1 else 's were'} still running "
            "when the command ended; cairn ended them."
        )
    absent = _absent_counters(samples)
    if absent:
        notes.append(f"{_listed(absent, 'and')}: not available on this machine.")
    knobs = sorted(
        {f"{name}={text}" for sample in samples for name, text in sample.proof.knobs.items()}
    )
    if knobs:
        notes.append(
            f"The environment sets {_listed(knobs, 'and')} for every contender; "
            "'-a NAME:KEY=VALUE' sets a variable for one contender."
        )
    notes += [
        f"{contender.name}: {caveat}" for contender in contenders for caveat in contender.caveats
    ]
    return notes


def _absent_counters(samples: Sequence[Sample]) -> list[str]:
    """The performance counters that were requested and that no run could read."""
    names = {name for sample in samples for name in sample.counters}
    return sorted(
        name for name in names if all(sample.counters.get(name) is None for sample in samples)
    )


def _listed(words: Sequence[str], last: str) -> str:
    """A list in words, with the conjunction `last`: "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _percent(ratio: float) -> str:
    """The ratio in percent: two decimals below 0.1 %, one below 100 %, none from 100 % on."""
    percent = 100 * ratio
    return f"{percent:.{0 if percent >= 100 else 1 if percent >= 0.1 else 2}f}"
