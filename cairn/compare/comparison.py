"""Turns samples into a Comparison: paired changes, a ranking, and the verdict.

Always true here:

- Only complete rounds are used. A round is complete when every surviving contender has a run in it
  that counts.
- A contender survives if none of its runs failed. A failed contender keeps a row with its failures.
  It has no numbers, comes last, and costs the other contenders no round.
- The contenders within one metric are one family for Holm's adjustment. Each metric has its own
  family.
- Every claim of the verdict follows from a change's interval, or from a paired interval between
  two contenders; see `judge`.

The module is pure: it reads no file and no clock, and runs no program. It raises nothing when the
baseline failed: the Comparison then has no changes, and the verdict says why.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.compare import endings, judge, rounds_needed, stats, suitability
from cairn.compare.load_output import REQUEST_CPU_TIME, REQUEST_TIME
from cairn.memory import NUMBERS
from cairn.model import (
    BENCH_ROUNDS_MOST,
    BUILT_IN,
    CPU_TIME,
    PEAK,
    ROUNDS_MOST,
    TIME_BUDGET,
    WALL,
    Against,
    Change,
    Comparison,
    Contender,
    Direction,
    Metric,
    Prospect,
    Row,
    Sample,
    StopRule,
    value,
)
from cairn.verdict import EVERY_AIM, Advice, Aim, Measure, Outcome, State, Verdict

_DOUBTFUL = 1 / 3
"""If a contender takes less than this share of the baseline's CPU time, the report asks whether the
program did the same work.

An allocator that takes no time at all can save so much only if the baseline's allocator takes two
thirds of the CPU time, which is rare. A run that ended early, with success, is more likely.
"""
LONG_RUN_S = 600
"""A run shorter than this many seconds says nothing about long-run fragmentation.

Such fragmentation makes memory grow over hours.
"""

MEMORY_KEYS = NUMBERS


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
    cpu_time: Metric = CPU_TIME,
    beside: Sequence[tuple[str, str]] = (),
    bench: str | None = None,
    resume: str | None = None,
    is_measured: bool = False,
    unsuited: Sequence[str] = (),
    under_load: bool = False,
    aim: Aim = EVERY_AIM,
) -> Comparison:
    """Compares every contender with `baseline` on the samples so far.

    time: the metric of the ranking and the verdict.
    cpu_time: the metric of CPU time in the verdict.
    under_load: whether the program is a server under a load.
    user_metrics: the metrics that the user defined, with keys "metric:NAME". They become columns
    besides the built-in ones. Performance counters in the samples become columns without being
    named here.
    run_name: the name by which 'cairn report' finds the run again.
    beside: pairs (contender, other contender) whose CPU times are compared as well.
    bench: the arguments of 'cairn bench' that repeat this run; None if the run is not a
    built-in experiment.
    resume: the command that continues this run. None if the run is complete or cannot be continued.
    is_measured: whether the run is being measured. Its next steps then measure nothing.

    unsuited: see `Comparison.unsuited`.
    aim: the question that the verdict answers first.

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
    own = [sample for sample in samples if sample.counts and sample.trial.contender == baseline]
    programs = any(contender.program for contender in contenders)
    # cpu_share lets the verdict say that an allocator cannot help a program that mostly waits.
    # Another build of a program can help even then, so the share is left out if there are several
    # builds.
    cpu_share = None if programs else suitability.cpu_share(own)
    judged = judge.verdict(
        rows, baseline, rule, time, len(table.rounds), table.log_ratios, cpu_time, under_load,
        cpu_share, aim,
    )  # fmt: skip
    judged = replace(judged, programs=programs)
    of_verdict = (time, cpu_time, PEAK)
    prospect = None
    if stopped_because != stats.PRECISE:
        prospect = _prospect(table, judged, rule, time, samples)
    return Comparison(
        baseline=baseline,
        rows=tuple(rows),
        metrics=table.metrics,
        rounds=len(table.rounds),
        rule=rule,
        stopped_because=stopped_because,
        unsuited=tuple(unsuited),
        judged=judged,
        not_tested=tuple(_not_tested(table, samples)),
        prospect=prospect,
        next_steps=tuple(
            _next_steps(
                judged,
                rule,
                contenders,
                run_name,
                bench,
                stopped_because,
                prospect,
                resume,
                is_measured,
            )
        ),
        memory_method=table.memory_method,
        notes=(
            *(_doubts(judged, samples) if bench is None else ()),
            *_notes(table, rows, contenders, samples, baseline, under_load),
            *_partly_measured(judged),
            *_undefined(table, rows, of_verdict),
        ),
        details=tuple(_details(table, rows, of_verdict)),
        time=time,
        cpu_time=cpu_time,
        against=tuple(
            Against(name, other, change)
            for name, other in beside
            if name in table.survivors and other in table.survivors
            for change in table.changes(CPU_TIME.key, (name,), other, rule).values()
        ),
    )


def deciding_ratios(
    samples: Sequence[Sample], names: Sequence[str], baseline: str, aim: Aim = EVERY_AIM
) -> dict[str, tuple[float, ...]]:
    """Returns the log ratios to the baseline, in the form that `stats.look` takes.

    For the first measure of the aim, the keys are the surviving contenders except the baseline. For
    each further measure, the keys name contender and measure. Each key has one ratio per complete
    round. If a measure of the aim was not measured, all ratios are those of time. Time is wall
    time, or the time per request if the throughput of every counted load is known. The result is
    empty when the baseline or every other contender failed.
    """
    counted = [sample for sample in samples if sample.counts]

    def has(metric: Metric) -> bool:
        return all(value(sample, metric.key) is not None for sample in counted)

    metrics = {
        Measure.TIME: REQUEST_TIME if has(REQUEST_TIME) else WALL,
        Measure.CPU_TIME: REQUEST_CPU_TIME if has(REQUEST_CPU_TIME) else CPU_TIME,
        Measure.MEMORY: PEAK,
    }
    table = _table(samples, names, tuple(metrics.values()))
    if baseline not in table.survivors:
        return {}
    others = [name for name in table.survivors if name != baseline]

    def ratios(measure: Measure) -> dict[str, tuple[float, ...]]:
        key = metrics[measure].key
        return {name: table.log_ratios(key, name, baseline) or () for name in others}

    by_measure = {measure: ratios(measure) for measure in aim.measures}
    if not all(all(of.values()) for of in by_measure.values()):
        return ratios(Measure.TIME)
    first, *further = aim.measures
    return by_measure[first] | {
        f"{name} ({measure.value})": of
        for measure in further
        for name, of in by_measure[measure].items()
    }


def paired(
    samples: Sequence[Sample], name: str, baseline: str, metrics: Mapping[str, Metric]
) -> dict[str, tuple[float, ...] | None]:
    """Returns the log ratios of one contender to the baseline, by the keys of `metrics`.

    There is one ratio for each complete round in which both contenders have the metric. The value
    of a key is None if no run of one contender has the metric, or if a run measured 0. The result
    is empty if one of the two contenders failed.
    """
    table = _table(samples, (baseline, name), tuple(metrics.values()))
    if len(table.survivors) < 2:
        return {}

    def ratios(key: str) -> tuple[float, ...] | None:
        numbers = [table.numbers(key, one) for one in (name, baseline)]
        found = table.log_ratios(key, name, baseline)
        apart = found is None and all(min(of, default=0) > 0 for of in numbers)
        return () if apart or not table.rounds else found

    return {key: ratios(metric.key) for key, metric in metrics.items()}


def medians(
    samples: Sequence[Sample], names: Sequence[str], metric: Metric
) -> tuple[float | None, ...]:
    """Returns the median of each contender in complete rounds; None if it was not measured."""
    table = _table(samples, names, (metric,))
    return tuple(
        statistics.median(numbers) if (numbers := table.numbers(metric.key, name)) else None
        for name in names
    )


class RoundNumbers(Struct, frozen=True):
    """The numbers of complete rounds, for drawings of single runs."""

    rounds: tuple[int, ...]
    of: Mapping[tuple[str, str], tuple[float | None, ...]]
    """By metric key and surviving contender: one number per round, None where not measured."""

    def ratios(self, key: str, name: str, base: str) -> tuple[float, ...]:
        """The contender's number divided by the baseline's, in each round that has both numbers."""
        return tuple(
            own / other
            for own, other in zip(self.of[key, name], self.of[key, base], strict=True)
            if own is not None and other
        )


def round_numbers(
    samples: Sequence[Sample], names: Sequence[str], metrics: Sequence[Metric]
) -> RoundNumbers:
    """Returns the numbers of the rounds that `compare` uses."""
    table = _table(samples, names, metrics)
    return RoundNumbers(table.rounds, table.cells)


class _Numbers(Struct, frozen=True):
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
    """All numbers of complete rounds. Memory is left out if runs measured it in different ways."""
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


def _prospect(
    table: _Numbers, judged: Verdict, rule: StopRule, time: Metric, samples: Sequence[Sample]
) -> Prospect | None:
    """Predicts the result of more rounds, if no contender is shown to take less time and some may.

    The prediction is for the number of rounds at which every interval is narrow enough to show a
    difference or equivalence. If that takes too many rounds, it is for four times the present
    number, which halves the width of the intervals. Returns None for a suite, whose workloads need
    no verdict of their own, with too few rounds, and if time is not a measure of the aim.
    """
    if judged.aim.pareto or judged.aim.goal not in (None, Measure.TIME):
        return None
    unclear = any(
        one.effect(Measure.TIME).outcome is Outcome.NOT_SHOWN for one in judged.judgements
    )
    settled = any(
        one.aim is Measure.TIME and one.advice is Advice.USE for one in judged.recommendations
    )
    open_ = unclear and not settled and not judged.waits
    if judged.state is not State.JUDGED or not open_ or rule.judged != "wall":
        return None
    ratios = {
        one.contender: table.log_ratios(time.key, one.contender, judged.baseline) or ()
        for one in judged.judgements
    }
    noise = rounds_needed.noise(ratios)
    if noise is None:
        return None
    alpha, target = stats.alpha(rule), (rule.precision or rule.margin) / 2
    most = min(4 * judged.rounds, ROUNDS_MOST)
    rounds = noise.rounds_for(target, alpha, most) or most
    half_width = noise.half_width(rounds, alpha)
    more = rounds - judged.rounds
    if half_width is None or more <= 0:
        return None
    return Prospect(rounds, more, half_width, more * _round_s(samples))


def _round_s(samples: Sequence[Sample]) -> float:
    """The median time from the beginning of the first run of a round to the end of its last."""
    ends: dict[int, list[float]] = {}
    for one in samples:
        if one.trial.round > 0:
            ends.setdefault(one.trial.round, []).extend(
                (one.started_at, one.started_at + one.wall_ns / 1e9)
            )
    return statistics.median(max(of) - min(of) for of in ends.values()) if ends else 0.0


def _next_steps(
    judged: Verdict,
    rule: StopRule,
    contenders: Sequence[Contender],
    run_name: str,
    bench: str | None,
    stopped_because: str | None,
    prospect: Prospect | None,
    resume: str | None,
    is_measured: bool,
) -> list[str]:
    """The commands to run next: the report, then how to use the winner or to measure more.

    "…" stands for the other options of the command that measured, such as -a and --why.
    """
    rounds = judged.rounds
    steps = [f"cairn report {run_name} --md"]
    if judged.state is State.NO_ROUND:
        return [resume] if resume is not None else []
    if judged.recommended:
        use = [
            f"cairn run -a {shlex.quote(one.spec or one.name)} -- "
            f"{shlex.join(one.program) or 'PROG'}…"
            for one in contenders
            if one.name == judged.recommended[0]
            # Several builds under one allocator say nothing about this allocator.
            and not (one.program and len({other.spec for other in contenders}) == 1)
        ]
        steps = [*use, *steps]
        if prospect is None:
            return steps
    if is_measured:  # the run itself adds the rounds that are missing
        return steps
    if judged.state is State.TOO_FEW_ROUNDS:
        least = judged.rounds_least or 0
        if resume is not None and rule.max_rounds >= least:
            return [*steps, resume]
        wanted = max(least, rounds + 1)
        again = "cairn compare" if bench is None else f"cairn bench {bench}"
        return [*steps, f"{again} -r {wanted} …"]
    deciding = judged.recommendations
    if judged.aim.goal is not None:
        deciding = tuple(one for one in deciding if one.aim is judged.aim.goal)
    elif judged.aim.given:
        deciding = judged.measured
    if not any(
        one.advice in (Advice.OPEN, Advice.TOO_FEW_ROUNDS)
        or (one.aim is Measure.TIME and (one.possible or 0.0) > rule.margin)
        for one in deciding
    ):
        return steps
    if resume is not None:
        return [*steps, resume]
    better = prospect.rounds if prospect is not None else 2 * rounds
    if bench is not None and rule.min_rounds <= rounds < BENCH_ROUNDS_MOST:
        steps.append(f"cairn bench {bench} -r {min(better, BENCH_ROUNDS_MOST)} …")
    elif bench is None and stopped_because == TIME_BUDGET and rule.budget_s is not None:
        more_s = prospect.more_s if prospect is not None else rule.budget_s
        total = units.budget(rule.budget_s + more_s)
        steps.append(f"cairn compare --budget {total} … (in total)")
    elif bench is None and rule.max_rounds <= rounds < ROUNDS_MOST:
        wanted_option = "-r" if rule.precision is None else "--max-rounds"
        steps.append(f"cairn compare {wanted_option} {min(better, ROUNDS_MOST)} …")
    elif bench is None and rule.precision is not None and rounds < rule.max_rounds:
        steps.append(f"cairn compare --precision {50 * rule.precision:g}% …")
    return steps


def _not_tested(table: _Numbers, samples: Sequence[Sample]) -> list[str]:
    """Returns a phrase for each property of the contenders that the numbers do not show."""
    walls = [wall for name in table.survivors for wall in table.numbers(WALL.key, name)]
    phrases = []
    if walls and statistics.median(walls) < LONG_RUN_S * 1e9:
        phrases.append(f"long-run fragmentation (the longest run took {units.time(max(walls))})")
    if walls and table.memory_method is None:
        phrases.append("memory (it was not measured)")
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


def _doubts(judged: Verdict, samples: Sequence[Sample]) -> Iterator[str]:
    """Yields a sentence if a contender takes so little CPU time that it may do less work.

    A program that stops early with success takes little time under any allocator.
    """
    if judged.under_load or any(sample.output_digest is not None for sample in samples):
        return
    names = [
        one.contender
        for one in judged.judgements
        if (one.effect(Measure.CPU_TIME).high or 1.0) < _DOUBTFUL
    ]
    if names:
        takes = "takes" if len(names) == 1 else "take"
        yield (
            f"{_listed(names, 'and')} {takes} less than a third of the CPU time of "
            f"{judged.baseline}. With --verify same-output, cairn checks that the program still "
            "does the same work."
        )


def _notes(
    table: _Numbers,
    rows: Sequence[Row],
    contenders: Sequence[Contender],
    samples: Sequence[Sample],
    baseline: str,
    under_load: bool,
) -> list[str]:
    """Sentences on how the numbers came about, which a reader must know to judge them."""
    notes = []
    slow = sum(len(row.outliers) for row in rows)
    if slow:
        runs = len(table.survivors) * len(table.rounds)
        were, them = ("was", "it") if slow == 1 else ("were", "them")
        notes.append(
            f"{slow} of {runs} runs {were} far slower than usual, as if the machine was busy; the "
            f"intervals include {them}."
        )
    if suitability.machine_is_busy(samples, baseline):
        notes.append(
            "Other programs had the CPUs for more than half of the time: times are more exact "
            "on an idle machine."
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
    counted = [
        sample for sample in samples if sample.counts and sample.trial.contender in table.survivors
    ]
    left = max((sample.left_behind for sample in counted), default=0)
    # If every run left processes behind, the report begins with a sentence on these processes.
    # After a load, cairn itself ends the server, and children of the server may end a moment later.
    if left and not under_load and not suitability.in_background(counted):
        by = {sample.trial.contender for sample in counted if sample.left_behind}
        names = [name for name in table.survivors if name in by]
        some = "" if len(names) == len(table.survivors) else f"Under {_listed(names, 'and')}, "
        what = f"{'up' if some else 'Up'} to {left} processes were"
        if left == 1:
            what = f"{'a' if some else 'A'} process was"
        them = "it" if left == 1 else "them"
        notes.append(f"{some}{what} still running when the command ended; cairn ended {them}.")
    if baseline in table.survivors:
        notes += crash_notes(samples, baseline)
        notes += rare_ending_notes(
            [one for one in samples if one.trial.contender in table.survivors], baseline
        )
    repeats = max((sample.repeats for sample in samples if sample.counts), default=1)
    if repeats > 1:
        notes.append(f"Each number is the mean of {repeats} runs in a row (--repeat).")
    absent = _absent_counters(samples)
    if absent:
        notes.append(f"{_listed(absent, 'and')}: not available on this machine.")
    if any("scaled" in sample.counted for sample in samples):
        notes.append(
            "Counters are estimates: the processor has fewer of them than there are events, so "
            "each counted a part of the time."
        )
    if any("user_mode_only" in sample.counted for sample in samples):
        notes.append("Counters leave out the kernel, which kernel.perf_event_paranoid demands.")
    notes += knob_notes(samples)
    notes += [
        f"{contender.name}: {caveat}" for contender in contenders for caveat in contender.caveats
    ]
    return notes


def _partly_measured(judged: Verdict) -> Iterator[str]:
    """Yields a sentence on each measure that is missing in some rounds, but not in too many."""
    for one in judged.partly:
        if one.least is None:
            noun = one.measure.value
            were = "were" if one.measure is Measure.FAULTS else "was"
            yield (
                f"{noun[0].upper()}{noun[1:]} {were} measured in {one.rounds} of {judged.rounds} "
                "rounds; the others do not count for it."
            )


def crash_notes(samples: Iterable[Sample], baseline: str) -> list[str]:
    """A sentence on processes that crashed under the baseline although the program succeeded."""
    own = [one for one in samples if one.trial.contender == baseline and one.failure is None]
    crashed = endings.crashes_of(endings.of_samples(own))
    return (
        []
        if crashed is None
        else [f"Under {baseline}, {crashed}; the program succeeded all the same."]
    )


def rare_ending_notes(samples: Iterable[Sample], baseline: str) -> list[str]:
    """A sentence for each contender with endings that the baseline never has, but not often."""
    of: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.failure is None:
            of.setdefault(sample.trial.contender, []).append(sample)
    base = endings.of_samples(of.pop(baseline, ()))
    notes = []
    for name, theirs in of.items():
        own = endings.of_samples(theirs)
        if found := endings.rare(own, base):
            notes.append(f"Under {name}, {endings.says(found, own, base, baseline)}.")
    return notes


def knob_notes(samples: Iterable[Sample]) -> list[str]:
    """A sentence on the variables of the user's environment that allocators read."""
    knobs = sorted(
        {f"{name}={text}" for sample in samples for name, text in sample.proof.knobs.items()}
    )
    return (
        []
        if not knobs
        else [
            f"The environment sets {_listed(knobs, 'and')} for every contender; "
            "'-a NAME:KEY=VALUE' sets a variable for one contender."
        ]
    )


def _details(table: _Numbers, rows: Sequence[Row], judged: Sequence[Metric]) -> list[str]:
    """Sentences on single runs and single columns.

    judged: the metrics of the verdict. A note tells if one of them has no change.
    """
    details = []
    for row in rows:
        if row.outliers:
            rounds = _listed([f"round {round_}" for round_ in row.outliers], "and")
            details.append(
                f"{row.contender} was far slower than usual in {rounds}; "
                f"the intervals include {'this run' if len(row.outliers) == 1 else 'these runs'}."
            )
    return [*details, *_undefined(table, rows, [one for one in table.metrics if one not in judged])]


def _undefined(table: _Numbers, rows: Sequence[Row], metrics: Iterable[Metric]) -> Iterator[str]:
    """Yields a sentence on the metrics that have no change, since a run measured 0."""
    titles = [
        metric.title
        for metric in metrics
        if metric in table.metrics
        and metric.direction is not Direction.NEITHER
        and any(row.changes and metric.key not in row.changes for row in rows)
        and any(
            metric.key in row.summaries and row.summaries[metric.key].minimum <= 0 for row in rows
        )
    ]
    if titles:
        yield (
            f"{_listed(titles, 'and')}: no change is given, since a run measured 0 "
            "and a ratio needs numbers above 0."
        )


def _absent_counters(samples: Sequence[Sample]) -> list[str]:
    """The performance counters that were requested and that no run could read."""
    names = {name for sample in samples for name in sample.counters}
    return sorted(
        name for name in names if all(sample.counters.get(name) is None for sample in samples)
    )


def _listed(words: Sequence[str], last: str) -> str:
    """A list in words, with the conjunction `last`: "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
