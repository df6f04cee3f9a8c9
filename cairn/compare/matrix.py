"""Programs × contenders: ratios to the baseline, geometric means, and the best of each program.

A comparison (`compare`) judges one program. Standings judge allocators by the best of each
workload. A matrix is the table of a paper: every contender of a plan divided by one baseline, on
every program, in time and in memory. It can be made from several runs of the same plan, such as
runs on several machines.

Always true here:

- Ratios are formed within a round of one run, and combined over runs afterwards. The weight of a
  run is the number of its rounds. A run need not have every contender.
- One round says nothing of its own error. So if another run has two complete rounds or more of a
  program, a run with fewer is left out of this program.
- Fewer than ROUNDS_FOR_INTERVALS rounds prove nothing, as in a comparison of one program. There is
  then no interval. Numbers that are rounded, such as memory in whole pages, are often equal in two
  or three rounds by chance, and would have an interval of no width.
- A contender that failed on a program has no ratio there, and no mean. The others lose nothing.
- A program that failed under the baseline has no ratios, and is in no mean.
- All means of a measure are over the same programs. Those of one run are over the same whole
  rounds.
- The interval of a ratio is at 95 % by itself. A ratio counts as proven only if Holm's procedure
  over the contenders of its program says so, and if its estimate is outside ±margin.
- The interval of a mean is at 95 % by itself. A mean counts as proven only if Holm's procedure over
  all contenders says so. Without it, one of several means that are truly 1 would often
  look proven by chance.

All functions are pure. `bootstrap` explains the intervals of means.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.compare import bootstrap, ratios, stats
from cairn.compare.bootstrap import Layer
from cairn.compare.load_output import REQUEST_TIME
from cairn.compare.ratios import MEMORY_KEYS, Rounds
from cairn.model import ACTIVE, PEAK, Interval, Run, Sample, value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Measure = Literal["time", "memory"]
MEASURES: tuple[Measure, ...] = ("time", "memory")

ROUNDS_LEAST = 2
"""The least number of complete rounds of a run that count beside the rounds of other runs."""
ROUNDS_FOR_INTERVALS = stats.ROUNDS_LEAST
"""The least number of rounds, over all runs, for the interval of a ratio or of a mean."""

Outcome = Literal["less", "more", "same", "open"]
"""Proven to be less or more than the baseline; proven to be within the margin; none of these."""


class PairedRatio(Struct, frozen=True):
    """A contender's number divided by the baseline's, on one program; 0.9 is a tenth less."""

    estimate: float
    interval: Interval | None
    """None with fewer than ROUNDS_FOR_INTERVALS rounds. The outcome is then open."""
    outcome: Outcome
    rounds: int
    """The number of complete rounds, over all runs."""


class ProgramRatios(Struct, frozen=True):
    """One contender on one program. None means not measured."""

    time: PairedRatio | None
    memory: PairedRatio | None
    time_ns: float | None
    """The median over the complete rounds of one run: the first run in which time was measured."""
    memory_bytes: float | None
    """The median of the peak memory, over the complete rounds of the first run that measured it."""
    failure: str | None = None
    """The contender's first failure on this program, as the rest of a sentence."""

    def of(self, measure: Measure) -> PairedRatio | None:
        """The ratio of this measure."""
        return self.time if measure == "time" else self.memory


class GeometricMean(Struct, frozen=True):
    """The geometric mean of ratios over programs, with its bootstrap interval."""

    estimate: float
    interval: Interval | None
    """None with fewer than ROUNDS_FOR_INTERVALS whole rounds."""


class WinsAndLosses(Struct, frozen=True):
    """The numbers of programs on which a contender is better than the baseline, equal or worse."""

    wins: int
    ties: int
    """Proven to be equal within the margin."""
    losses: int
    open: int
    """None of these three is proven."""


class PlanResult(Struct, frozen=True):
    """Everything that a report of a plan needs, made from stored samples alone."""

    baseline: str
    contenders: tuple[str, ...]
    """Those that are divided by the baseline, in the order of the plan."""
    programs: tuple[str, ...]
    cells: Mapping[tuple[str, str], ProgramRatios]
    """By program and contender, the baseline included."""
    rounds: Mapping[str, int]
    """By program: the number of complete rounds, over all runs."""
    over: Mapping[Measure, tuple[str, ...]]
    """By measure: the programs over which the means are taken."""
    whole_rounds: int
    """The number of rounds in which every program of the means of time was complete. Without a mean
    of time: every program that was complete in any round of the run."""
    means: Mapping[tuple[Measure, str], GeometricMean]
    """By measure and contender; a contender that failed on any program is absent."""
    proven: frozenset[tuple[Measure, str]]
    """By measure and contender: the means that are proven to differ from 1."""
    groups: Mapping[tuple[Measure, str], GeometricMean]
    """By measure and label: the mean over the contenders of a group. The label is the group's name
    with the number of these contenders, such as "hardened: 4 contenders"."""
    rivals: Mapping[Measure, tuple[str, ...]]
    """By measure: the contender with the least mean, then those not proven to be behind it."""
    runs: int
    left_out: tuple[tuple[int, str], ...]
    """Pairs (index of a run, program): the rounds of this program in this run are left out, because
    they are fewer than ROUNDS_LEAST."""
    method: str | None
    """How memory was measured; None if not at all, or in several ways."""
    level: float = 1 - stats.ALPHA

    def has(self, measure: Measure) -> bool:
        """Whether any contender has a ratio of this measure on any program."""
        return any(cell.of(measure) is not None for cell in self.cells.values())

    def score(self, measure: Measure, contender: str) -> WinsAndLosses:
        """The number of programs with each outcome, of those on which the contender has a ratio."""
        found = [self.cells[program, contender].of(measure) for program in self.programs]
        outcomes = [ratio.outcome for ratio in found if ratio is not None]
        return WinsAndLosses(
            wins=outcomes.count("less"),
            ties=outcomes.count("same"),
            losses=outcomes.count("more"),
            open=outcomes.count("open"),
        )


class _ProgramRounds(Struct, frozen=True):
    """One program in one run."""

    rounds: Rounds
    keys: Mapping[Measure, str]

    def without_rounds(self) -> _ProgramRounds:
        """Returns a copy in which no round is used. The failures stay."""
        empty: Mapping[str, tuple[Sample, ...]] = dict.fromkeys(self.rounds.runs, ())
        return replace(self, rounds=replace(self.rounds, rounds=(), runs=empty))


def result(
    runs: Sequence[tuple[Run, Sequence[Sample]]],
    *,
    baseline: str,
    contenders: Sequence[str] | None = None,
    programs: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> PlanResult:
    """The result of one or more runs.

    contenders: None for all except the baseline. programs: None for all.
    groups: the contenders of each group, by its name. The result has a mean for each group.
    """
    known = list(dict.fromkeys(one.name for run, _ in runs for one in run.competing))
    names = [baseline, *(name for name in contenders or known if name != baseline)]
    wanted = list(dict.fromkeys(w.name for run, _ in runs for w in run.settings.workloads))
    wanted = [name for name in wanted if programs is None or name in programs]
    margin = runs[0][0].rule.margin
    parts = {
        program: [
            (number, _program_rounds(run, samples, names, index))
            for number, (run, samples) in enumerate(runs)
            for index, workload in enumerate(run.settings.workloads)
            if workload.name == program
        ]
        for program in wanted
    }
    left_out = []
    for program, of in parts.items():
        parts[program], short = _long_enough(of)
        left_out += [(number, program) for number in short]
    cells = {}
    for program in wanted:
        cells.update(_row(program, [part for _, part in parts[program]], names, margin))
    others = names[1:]
    failed = {
        name
        for name in others
        for program in wanted
        if cells[program, name].failure is not None and cells[program, baseline].failure is None
    }
    standing = [name for name in others if name not in failed]
    over: dict[Measure, tuple[str, ...]] = {}
    means: dict[tuple[Measure, str], GeometricMean] = {}
    proven: set[tuple[Measure, str]] = set()
    of_groups: dict[tuple[Measure, str], GeometricMean] = {}
    rivals: dict[Measure, tuple[str, ...]] = {}
    whole = 0
    for measure in MEASURES:
        whole_of = tuple(
            program
            for program in wanted
            if all(cells[program, name].of(measure) is not None for name in standing)
            and cells[program, baseline].failure is None
            and standing
        )
        over[measure], layers = _known_everywhere(
            parts, whole_of, measure, baseline, standing, len(runs)
        )
        if measure == "time":
            whole = sum(len(layer.logs) for layer in layers) if layers else _whole(parts, len(runs))
        if not layers:
            continue
        centres = bootstrap.means(layers)
        enough = sum(len(layer.logs) for layer in layers) >= ROUNDS_FOR_INTERVALS
        draws = bootstrap.drawn_means(layers) if enough else None
        for place, name in enumerate(standing):
            means[measure, name] = _mean(centres, draws, [place], layers)
        proven |= {(measure, name) for name in _proven(standing, centres, draws, layers)}
        rivals[measure] = _rivals(standing, centres, draws, layers)
        for group, members in (groups or {}).items():
            places = [standing.index(name) for name in members if name in standing]
            if places:
                label = f"{group}: {units.counted(len(places), 'contender')}"
                of_groups[measure, label] = _mean(centres, draws, places, layers)
    methods = {m for of in parts.values() for _, part in of for m in part.rounds.methods()}
    return PlanResult(
        baseline=baseline,
        contenders=tuple(others),
        programs=tuple(wanted),
        cells=cells,
        rounds={
            program: sum(len(part.rounds.rounds) for _, part in of) for program, of in parts.items()
        },
        over=over,
        whole_rounds=whole,
        means=means,
        proven=frozenset(proven),
        groups=of_groups,
        rivals=rivals,
        runs=len(runs),
        left_out=tuple(left_out),
        method=methods.pop() if len(methods) == 1 else None,
    )


def _program_rounds(
    run: Run, samples: Sequence[Sample], names: Sequence[str], workload: int
) -> _ProgramRounds:
    """The rounds of the program in this run, with the contenders of `names` that the run has.

    Neither a round nor a failure is used if the run does not have the baseline, `names[0]`.
    """
    competing = {one.name for one in run.competing}
    own = [name for name in names if name in competing]
    used = samples if names[0] in competing else ()
    return _ProgramRounds(ratios.complete(used, own, workload), _keys(used, workload))


def _long_enough(
    parts: Sequence[tuple[int, _ProgramRounds]],
) -> tuple[list[tuple[int, _ProgramRounds]], list[int]]:
    """Drops the rounds of runs with fewer than ROUNDS_LEAST rounds, if another run has more.

    Returns the parts and the numbers of the runs whose rounds were dropped. The failures in these
    runs still count.
    """
    if all(len(part.rounds.rounds) < ROUNDS_LEAST for _, part in parts):
        return list(parts), []
    short = [number for number, part in parts if len(part.rounds.rounds) < ROUNDS_LEAST]
    return [(n, part.without_rounds() if n in short else part) for n, part in parts], short


def _keys(samples: Sequence[Sample], workload: int) -> dict[Measure, str]:
    """The keys of the metrics that are compared. The time of a server is the time per request."""
    counted = [one for one in samples if one.trial.workload == workload and one.counts]
    served = bool(counted) and all(value(one, REQUEST_TIME.key) is not None for one in counted)
    return {"time": REQUEST_TIME.key if served else ACTIVE.key, "memory": PEAK.key}


def _logs(
    part: _ProgramRounds, measure: Measure, names: Sequence[str]
) -> NDArray[np.float64] | None:
    """The logarithms of the numbers, rounds × names; None if no round has all of them.

    A round has NaN for all names if one of its numbers is missing or not above 0.
    """
    import numpy as np

    key = part.keys[measure]
    if not part.rounds.rounds or any(name not in part.rounds.runs for name in names):
        return None
    if key in MEMORY_KEYS and len(part.rounds.methods()) != 1:
        return None
    columns = [[value(one, key) for one in part.rounds.runs[name]] for name in names]
    rows = [
        [math.log(number) for number in row if number is not None and number > 0]
        for row in zip(*columns, strict=True)
    ]
    logs = np.array([row if len(row) == len(names) else [math.nan] * len(names) for row in rows])
    return None if np.isnan(logs).all() else logs


def _row(
    program: str, parts: Sequence[_ProgramRounds], names: Sequence[str], margin: float
) -> dict[tuple[str, str], ProgramRatios]:
    """The cells of one program."""
    baseline = names[0]
    failures = {
        name: next((p.rounds.failures[name] for p in parts if name in p.rounds.failures), None)
        for name in names
    }
    found: dict[Measure, dict[str, PairedRatio]] = {"time": {}, "memory": {}}
    for measure in MEASURES:
        if failures[baseline] is None:
            alive = [name for name in names[1:] if failures[name] is None]
            found[measure] = _ratios(parts, measure, baseline, alive, margin)
    return {
        (program, name): ProgramRatios(
            time=found["time"].get(name),
            memory=found["memory"].get(name),
            time_ns=_median(parts, "time", name),
            memory_bytes=_median(parts, "memory", name),
            failure=failures[name],
        )
        for name in names
    }


def _median(parts: Sequence[_ProgramRounds], measure: Measure, name: str) -> float | None:
    for part in parts:
        known = part.rounds.numbers(part.keys[measure]).get(name)
        if known:
            return statistics.median(known)
    return None


def _ratios(
    parts: Sequence[_ProgramRounds],
    measure: Measure,
    baseline: str,
    names: Sequence[str],
    margin: float,
) -> dict[str, PairedRatio]:
    """The ratios of one program by contender. Holm's procedure covers all contenders of `names`."""
    import numpy as np

    made: dict[str, tuple[float, float | None, float, int]] = {}
    for name in names:
        estimates = []
        for part in parts:
            logs = _logs(part, measure, (baseline, name))
            if logs is not None:
                logs = logs[~np.isnan(logs).any(axis=1)]
                differences = logs[:, [1]] - logs[:, [0]]
                rounds = len(differences)
                error = float(ratios.standard_error(differences)[0]) if rounds > 1 else None
                estimates.append((float(ratios.centre(differences)[0]), error, rounds))
        if estimates:
            made[name] = _over_runs(estimates)
    p_values = {
        name: _p(centre, error, freedom)
        for name, (centre, error, freedom, rounds) in made.items()
        if error is not None and rounds >= ROUNDS_FOR_INTERVALS
    }
    rejected = _holm(p_values, stats.ALPHA)
    result = {}
    for name, (centre, error, freedom, rounds) in made.items():
        interval = None
        if error is not None and rounds >= ROUNDS_FOR_INTERVALS:
            reach = ratios.student(freedom, stats.ALPHA) * error
            interval = Interval(math.exp(centre - reach), math.exp(centre + reach), 1 - stats.ALPHA)
        outcome = _outcome(centre, interval, proven=name in rejected, margin=margin)
        result[name] = PairedRatio(math.exp(centre), interval, outcome, rounds)
    return result


def _over_runs(
    estimates: Sequence[tuple[float, float | None, int]],
) -> tuple[float, float | None, float, int]:
    """Combines (centre, error, rounds) of several runs: centre, error, degrees of freedom, rounds.

    Weights are the numbers of rounds. Weights from the errors would be as uncertain as the errors.
    """
    total = sum(rounds for _, _, rounds in estimates)
    centre = math.fsum(of * rounds / total for of, _, rounds in estimates)
    known = [(error, rounds) for _, error, rounds in estimates if error is not None]
    if len(known) < len(estimates):
        return centre, None, 1.0, total
    parts = [(error * rounds / total) ** 2 for error, rounds in known]
    whole = math.fsum(parts)
    if whole == 0:
        return centre, 0.0, float(total - len(known)), total
    uncertain = math.fsum(
        (part / whole) ** 2 / (rounds - 1) for part, (_, rounds) in zip(parts, known, strict=True)
    )
    return centre, math.sqrt(whole), 1 / uncertain, total


def _p(centre: float, error: float, freedom: float) -> float:
    if error == 0:
        return 0.0 if centre else 1.0
    return ratios.student_p(centre / error, freedom)


def _holm(p_values: Mapping[str, float], alpha: float) -> set[str]:
    """The names whose "no difference" is rejected by Holm's procedure."""
    rejected: set[str] = set()
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > alpha / (len(p_values) - place):
            break
        rejected.add(name)
    return rejected


def _outcome(centre: float, interval: Interval | None, *, proven: bool, margin: float) -> Outcome:
    if interval is None:
        return "open"
    if 1 - margin <= interval.low and interval.high <= 1 + margin:
        return "same"
    if proven and abs(math.expm1(centre)) > margin:
        return "less" if centre < 0 else "more"
    return "open"


def _known_everywhere(
    parts: Mapping[str, Sequence[tuple[int, _ProgramRounds]]],
    programs: tuple[str, ...],
    measure: Measure,
    baseline: str,
    names: Sequence[str],
    runs: int,
) -> tuple[tuple[str, ...], list[Layer]]:
    """The programs over which the means are taken, and the whole rounds of each run.

    A round is whole if all these programs are complete in it. A program is left out if a contender
    has no whole round of it in any run. More rounds may be whole without this program, so the whole
    rounds are then determined again.
    """
    import numpy as np

    while programs and names:
        layers = _layers(parts, programs, measure, baseline, names, runs)
        if not layers:
            break
        known = np.array([~np.isnan(layer.logs).all(axis=0) for layer in layers])
        whole = np.asarray(np.all(np.any(known, axis=0), axis=1))
        if whole.all():
            return programs, layers
        programs = tuple(name for name, good in zip(programs, whole, strict=True) if good)
    return (), []


def _whole(parts: Mapping[str, Sequence[tuple[int, _ProgramRounds]]], runs: int) -> int:
    """The number of rounds in which all programs with any complete round of their run have one."""
    count = 0
    for number in range(runs):
        complete = [
            set(part.rounds.rounds)
            for of in parts.values()
            for its, part in of
            if its == number and part.rounds.rounds
        ]
        count += len(set.intersection(*complete)) if complete else 0
    return count


def _layers(
    parts: Mapping[str, Sequence[tuple[int, _ProgramRounds]]],
    programs: Sequence[str],
    measure: Measure,
    baseline: str,
    names: Sequence[str],
    runs: int,
) -> list[Layer]:
    """The whole rounds of each run: those in which all of its programs are complete.

    A run with a single whole round is left out if another run has more.
    """
    import numpy as np

    layers = []
    for number in range(runs):
        own = {
            place: part
            for place, program in enumerate(programs)
            for of, part in parts[program]
            if of == number and part.rounds.rounds
        }
        known = {
            place: [_logs(part, measure, (baseline, name)) for name in names]
            for place, part in own.items()
        }
        complete = [
            {
                round_
                for at, round_ in enumerate(part.rounds.rounds)
                if not any(logs is not None and np.isnan(logs[at]).any() for logs in known[place])
            }
            for place, part in own.items()
        ]
        whole = sorted(set.intersection(*complete)) if complete else []
        if not whole:
            continue
        logs = np.full((len(whole), len(programs), len(names)), np.nan)
        for place, part in own.items():
            at = [part.rounds.rounds.index(round_) for round_ in whole]
            for column, found in enumerate(known[place]):
                if found is not None:
                    logs[:, place, column] = found[at][:, 1] - found[at][:, 0]
        if not np.isnan(logs).all():
            layers.append(Layer(logs))
    long = [layer for layer in layers if len(layer.logs) >= ROUNDS_LEAST]
    return long or layers


def _mean(
    centres: NDArray[np.float64],
    draws: NDArray[np.float64] | None,
    places: Sequence[int],
    layers: Sequence[Layer],
) -> GeometricMean:
    centre = float(centres[list(places)].mean())
    if draws is None:
        return GeometricMean(math.exp(centre), None)
    of_group = draws[:, :, list(places)].mean(axis=2)
    low, high = bootstrap.interval(centre, of_group, layers, stats.ALPHA)
    interval = Interval(math.exp(low), math.exp(high), 1 - stats.ALPHA)
    return GeometricMean(math.exp(centre), interval)


def _proven(
    names: Sequence[str],
    centres: NDArray[np.float64],
    draws: NDArray[np.float64] | None,
    layers: Sequence[Layer],
) -> set[str]:
    """The contenders whose mean is proven to differ from 1, by Holm's procedure over all."""
    if draws is None:
        return set()
    p_values = {
        name: bootstrap.p_value(float(centres[place]), draws[:, :, place], layers)
        for place, name in enumerate(names)
    }
    return _holm(p_values, stats.ALPHA)


def _rivals(
    names: Sequence[str],
    centres: NDArray[np.float64],
    draws: NDArray[np.float64] | None,
    layers: Sequence[Layer],
) -> tuple[str, ...]:
    """The contender with the least mean, then those that are not proven to be behind it.

    The contender with the least mean is chosen from the same data as the tests. So the allowed
    error is divided among the tests of the other contenders.
    """
    first = int(centres.argmin())
    rivals = [names[first]]
    for place in sorted(range(len(names)), key=lambda place: float(centres[place])):
        if place == first:
            continue
        if draws is None:
            rivals.append(names[place])
            continue
        low, _ = bootstrap.interval(
            float(centres[place] - centres[first]), draws[:, :, place] - draws[:, :, first],
            layers, stats.ALPHA / (len(names) - 1),
        )  # fmt: skip
        if low <= 0:
            rivals.append(names[place])
    return tuple(rivals)
