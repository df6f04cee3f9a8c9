"""Samples -> Comparison: changes paired within rounds, the ranking, and a verdict that a person can act on.

Always true here:

- Only complete rounds enter: those in which every surviving contender has a run that counts. A contender with any
  failed run is out: it keeps a row with its failures, has no numbers, comes last, and costs the others no round.
- The contenders within one metric are one family for Holm's adjustment; metrics do not share one.
- The verdict claims nothing that a Shown, or a paired interval between two contenders, does not show.

Pure: no files, no clock, no program run. A failed baseline raises nothing; there are just no changes, and the verdict
says so.
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
"""Memory that grows by fragmentation shows over hours; a run shorter than ten minutes says nothing about it."""

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
    """Compare every contender with `baseline` on the samples so far, by `time`.

    `user_metrics` are columns besides the built-in ones, with keys "metric:NAME"; performance counters that the samples
    hold become columns by themselves. A metric without a direction gets summaries but no changes: a higher CPU
    percentage is neither better nor worse. `run_name` is how 'cairn report' finds the run again. `beside` are pairs
    whose CPU times are compared as well, and `bench` is what 'cairn bench' takes to run the same again.
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
    """Log ratios of wall time to the baseline, in complete rounds, by surviving contender: what `stats.look` judges.

    Empty when the baseline or every other contender failed.
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
    """The numbers of complete rounds."""

    survivors: tuple[str, ...]
    """Contenders without a failed run, in the order given."""
    rounds: tuple[int, ...]
    metrics: tuple[Metric, ...]
    """Those with at least one number."""
    cells: Mapping[tuple[str, str], tuple[float | None, ...]]
    """By metric key and survivor; one per round, None where not measured."""
    memory_method: str | None

    def numbers(self, key: str, name: str) -> list[float]:
        return [x for x in self.cells.get((key, name), ()) if x is not None]

    def log_ratios(self, key: str, name: str, base: str) -> tuple[float, ...] | None:
        """Per round that has both numbers; None when there is none, or a ratio is undefined."""
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
        """Each of `names` against `base`, as one family; those without a defined ratio are left out."""
        ratios = {name: self.log_ratios(key, name, base) for name in names if name != base}
        defined = {
            name: differences for name, differences in ratios.items() if differences is not None
        }
        return stats.changes(defined, stats.alpha(rule), rule.margin)


def _table(samples: Sequence[Sample], names: Sequence[str], metrics: Sequence[Metric]) -> _Numbers:
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
    """Columns for the performance counters, by name."""
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
    """Rounds in which this contender was slow, beyond what the round did to the others.

    Each contender's log times are first taken relative to its own median. The others' median in a round is then
    the round's pace; were this contender part of it, it would often be that median itself, and look calmer than it is.
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
    """Failed ones last; then by paired change in time, or by median time where there is none."""
    if time.key in row.changes:
        return False, row.changes[time.key].estimate
    if row.contender == baseline and changes.get(time.key):
        return False, 0.0
    return bool(row.failures), row.summaries[
        time.key
    ].median if time.key in row.summaries else math.inf


@dataclass(frozen=True, slots=True)
class _Judge:
    """Turns findings into sentences.

    A difference that is shown but lies wholly within the margin counts as equivalence here: nobody should change the
    allocator for it.
    """

    table: _Numbers
    rows: Mapping[str, Row]
    """By name, best first."""
    baseline: str
    rule: StopRule
    time: Metric

    def verdict(self) -> list[str]:
        """The sentence to act on first; what failed, last."""
        failed = [
            row for row in self.rows.values() if row.failures and row.contender != self.baseline
        ]
        return [*self._main(), *(f"{row.contender} is out: {row.failures[0]}" for row in failed)]

    def next_steps(
        self, contenders: Sequence[Contender], run_name: str, bench: str | None
    ) -> list[str]:
        """Commands that help now."""
        steps = [f"cairn report {run_name} --md"]
        if self._those(Shown.LESS):
            pick, _ = self._pick()
            steps += [
                f"cairn run -a {shlex.quote(c.spec or c.name)} -- PROG…"
                for c in contenders
                if c.name == pick
            ]
        elif self._those(Shown.NOT_SHOWN):
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
            nothing = f"No verdict: the program fails under {self.baseline}, so there is nothing to compare with."
            return [nothing, base.failures[0]]
        others = [name for name in self.table.survivors if name != self.baseline]
        if not others:
            why = "every other contender failed" if len(self.rows) > 1 else "nothing else was run"
            return [f"Keep {self.baseline}: {why}."]
        if any(self._change(self.time, name) is None for name in others):
            return ["No verdict yet: there is no complete round to compare."]
        return self._use() if self._those(Shown.LESS) else self._keep()

    def _use(self) -> list[str]:
        fastest = self._fastest()
        pick, why = self._pick()
        gain = f"{self._span(self.time, pick)} than {self.baseline}, {self._price(pick)}."
        if len(fastest) == 1:
            sentences = [f"Use {pick}: {gain}"]
        else:
            between = "between them" if len(fastest) == 2 else f"from {fastest[0]}, the fastest"
            choice = f"Use {_listed(fastest, 'or')}: no difference in time shown {between}"
            sentences = [f"{choice}; {why}.", f"{pick}: {gain}"]
        if self._shows(PEAK, pick) is Shown.MORE:
            sentences.append(f"If memory matters, {self._thrifty(pick)}.")
        return sentences

    def _keep(self) -> list[str]:
        unclear = self._those(Shown.NOT_SHOWN)
        slower = self._those(Shown.MORE)
        same = self._those(Shown.EQUIVALENT)
        if not unclear and not slower:
            sentences = [
                f"Keep {self.baseline}: no contender differs by more than {self._margin()} "
                f"(equivalence shown, {self._rounds()})."
            ]
        else:
            sentences = [self._unclear(unclear, alone=not slower and not same)] if unclear else []
            known = [f"{name} takes {self._span(self.time, name)}" for name in slower]
            known += [f"{name} is equivalent within {self._margin()}" for name in same]
            if known:
                sentences.append(
                    f"{'' if unclear else f'Keep {self.baseline}: '}{'; '.join(known)}."
                )
        saver = self._saver()
        if saver is not None:
            sentences.append(f"If memory matters, {saver}.")
        return sentences

    def _unclear(self, names: Sequence[str], *, alone: bool) -> str:
        whom = "" if alone else f" for {_listed(names, 'and')}"
        reaches = [
            _reach(change.interval) for name in names if (change := self._change(self.time, name))
        ]
        if math.inf in reaches:
            return f"No difference shown{whom}: {self._rounds()} are too few for an interval."
        reach = f"±{_percent(max(reaches))} %"
        if self._all_narrow():
            held = f"any there is stays within {reach}"
            return f"Keep {self.baseline}: no difference shown{whom} in {self._rounds()}; {held}."
        return f"No difference shown{whom}: not enough data to tell; the intervals still reach {reach}."

    def _fastest(self) -> list[str]:
        """The fastest winner, and those that are not shown to be slower when paired with it."""
        winners = self._those(Shown.LESS)
        against = self.table.changes(self.time.key, winners, winners[0], self.rule)
        return [
            name for name in winners if name not in against or against[name].shown is not Shown.MORE
        ]

    def _pick(self) -> tuple[str, str]:
        """The winner to use, and why this one of the fastest: the leanest where that is shown, else the fastest."""
        fastest = self._fastest()
        peaks = {name: change.estimate for name in fastest if (change := self._change(PEAK, name))}
        if len(peaks) < len(fastest):
            return fastest[0], "memory not measured"
        leanest = min(fastest, key=peaks.__getitem__)
        against = self.table.changes(PEAK.key, fastest, leanest, self.rule)
        if all(change.shown is Shown.MORE for change in against.values()):
            return leanest, f"{leanest} takes less memory"
        return fastest[0], "none is shown to be the leanest"

    def _thrifty(self, pick: str) -> str:
        """What to use instead of a pick that costs memory: a leaner winner, else a saver, else the baseline."""
        against = self.table.changes(PEAK.key, self._those(Shown.LESS), pick, self.rule)
        for name in self._those(Shown.LESS):
            if name in against and against[name].shown is Shown.LESS:
                return f"{name}: {self._span(self.time, name)}, {self._price(name)}"
        return self._saver() or f"keep {self.baseline}"

    def _saver(self) -> str | None:
        """The contender that saves most memory without being shown to cost or gain time, and what it saves."""
        even = [*self._those(Shown.EQUIVALENT), *self._those(Shown.NOT_SHOWN)]
        savers = [name for name in even if self._shows(PEAK, name) is Shown.LESS]
        if not savers:
            return None
        best = min(savers, key=lambda name: self.rows[name].changes[PEAK.key].estimate)
        same = self._shows(self.time, best) is Shown.EQUIVALENT
        cost = f"time within {self._margin()}" if same else "no proven cost in time"
        return f"{best}: {self._span(PEAK, best)}, {cost}"

    def _price(self, name: str) -> str:
        """What the contender costs in memory."""
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
                return f"for about {amount} more memory" + (", lazily freed" if lazy else "")
            case Shown.EQUIVALENT:
                return f"with memory within {self._margin()}"
            case Shown.NOT_SHOWN:
                return "no proven cost in memory"

    def _those(self, finding: Shown) -> list[str]:
        """Contenders whose time shows this, fastest first."""
        return [name for name in self.rows if self._shows(self.time, name) is finding]

    def _shows(self, metric: Metric, name: str) -> Shown | None:
        """What the change shows, for a person who does not care about less than the margin; None without a change."""
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
        """Whether those without a finding have intervals at which the stopping rule lets that stand."""
        widths = [
            stats.half_width(self.rows[name].changes[self.time.key])
            for name in self._those(Shown.NOT_SHOWN)
        ]
        enough = (self.rule.precision or 0) / 2
        return all(width is not None and width <= enough for width in widths)

    def _span(self, metric: Metric, name: str) -> str:
        """The interval in words, for example "4.9 to 6.4 % less time"."""
        interval = self.rows[name].changes[metric.key].interval
        assert interval is not None, "a difference is only shown by an interval"
        low, high = (_percent(x) for x in sorted((abs(interval.low), abs(interval.high))))
        span = low if low == high else f"{low} to {high}"
        return f"{span} % {'less' if interval.high < 0 else 'more'} {'time' if metric is self.time else 'memory'}"

    def _margin(self) -> str:
        return f"±{100 * self.rule.margin:g} %"

    def _rounds(self) -> str:
        return f"{len(self.table.rounds)} round{'' if len(self.table.rounds) == 1 else 's'}"


def _reach(interval: Interval | None) -> float:
    """How far from 0 the truth may still be."""
    return max(abs(interval.low), abs(interval.high)) if interval else math.inf


def _not_tested(table: _Numbers, samples: Sequence[Sample]) -> list[str]:
    """What the numbers do not show, as phrases."""
    walls = [wall for name in table.survivors for wall in table.numbers(WALL.key, name)]
    phrases = []
    if walls and statistics.median(walls) < LONG_RUN_S * 1e9:
        phrases.append(
            f"long-run fragmentation (a run lasts {units.time(statistics.median(walls))})"
        )
    if walls and table.memory_method is None:
        phrases.append("memory (not measured)")
    if table.memory_method == "sampled":
        phrases.append("short peaks between two samples (memory was sampled)")
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
    """What a reader must know of how the numbers came about, as sentences."""
    notes = []
    for row in rows:
        if row.outliers:
            rounds = _listed([f"round {round_}" for round_ in row.outliers], "and")
            notes.append(
                f"{row.contender} was far slower than usual in {rounds}; kept, not dropped."
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
            f"No change in {_listed(undefined, 'and')}: a ratio needs numbers above 0 in every round."
        )
    methods = {
        sample.memory.method
        for sample in samples
        if sample.counts and sample.memory.peak_bytes is not None
    }
    if len(methods) > 1:
        notes.append(
            f"Memory was measured in different ways ({', '.join(sorted(methods))}) and is not compared."
        )
    left = max((sample.left_behind for sample in samples if sample.counts), default=0)
    if left:
        notes.append(
            f"Up to {left} descendants were still alive when the command ended, and were ended with it."
        )
    absent = _absent_counters(samples)
    if absent:
        notes.append(f"{_listed(absent, 'and')}: not available here.")
    knobs = sorted(
        {f"{name}={text}" for sample in samples for name, text in sample.proof.knobs.items()}
    )
    if knobs:
        notes.append(
            f"The environment sets {_listed(knobs, 'and')} for every contender; '-a NAME:KEY=VALUE' sets it for one."
        )
    notes += [
        f"{contender.name}: {caveat}" for contender in contenders for caveat in contender.caveats
    ]
    return notes


def _absent_counters(samples: Sequence[Sample]) -> list[str]:
    """Performance counters that were asked for and that this machine has not."""
    names = {name for sample in samples for name in sample.counters}
    return sorted(
        name for name in names if all(sample.counters.get(name) is None for sample in samples)
    )


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _percent(ratio: float) -> str:
    """One decimal; two below 0.1 %, none from 100 % on."""
    percent = 100 * ratio
    return f"{percent:.{0 if percent >= 100 else 1 if percent >= 0.1 else 2}f}"
