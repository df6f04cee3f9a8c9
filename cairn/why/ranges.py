"""The ranges of profile metrics over contenders and programs, from runs with the probe. Pure.

`gathered` makes a `ProfileTable` of the samples of runs, `ranges` describes each metric of it, and
`placing` places a further allocator in it. Values are compared on a logarithmic scale: a value
below `ProfileMetric.least` counts as `least`, so a count of 0 has a place on it, too.

The contender with the worst value of a metric is left out of the narrow range if its value is at
least LEFT_OUT times as bad as the next one and their intervals are apart.
docs/decisions/0043-ranges-of-profile-metrics.md has the choice of these numbers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from cairn.model import Run, Sample, twin
from cairn.profile.metrics import BY_KEY, METRICS, Number, ProfileMetric

LEFT_OUT = 5.0
"""The worst value is left out if it is this many times as bad as the second worst."""
DRAMATIC = 3.0
"""A value is dramatic if it is this many times as bad as the median of the other contenders."""
_OTHERS_LEAST = 3
"""If a value can be compared with fewer other contenders, it is neither left out nor dramatic."""

Values = Mapping[str, Number]
"""The numbers of one contender on one program, by the key of the metric."""


class Cost(Struct, frozen=True):
    """CPU time and memory of a contender on a program, as multiples of the baseline's."""

    cpu: float | None
    memory: float | None


class ProfileTable(Struct, frozen=True):
    """The metrics of each contender on each program."""

    baseline: str
    titles: Mapping[str, str]
    """The title of each contender, in the order of the runs."""
    programs: tuple[str, ...]
    cells: Mapping[str, Mapping[str, Values]]
    """The metrics, by program and contender. A cell that was not measured is absent."""
    costs: Mapping[str, Mapping[str, Cost]]
    """The costs, by program and contender."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The contenders of each group."""
    ill: tuple[str, ...] = ()
    """The contenders that were made ill on purpose. They are in no range."""

    @property
    def healthy(self) -> tuple[str, ...]:
        """The contenders that make the ranges."""
        return tuple(name for name in self.titles if name not in self.ill)

    def without(self, names: Sequence[str]) -> ProfileTable:
        """The same table without some contenders."""
        return replace(
            self, titles={name: one for name, one in self.titles.items() if name not in names}
        )

    def on(self, program: str, key: str, names: Sequence[str]) -> dict[str, Number]:
        """The values of a metric on a program, by contender."""
        found = self.cells.get(program, {})
        return {name: found[name][key] for name in names if name in found and key in found[name]}

    def means(self, key: str, names: Sequence[str]) -> tuple[dict[str, Number], int]:
        """The mean over programs of each contender, and the number of these programs.

        Contenders for which the metric is known on no program are left out. A program counts if the
        metric is known on it for all remaining contenders.
        """
        having = [n for n in names if any(self.on(p, key, (n,)) for p in self.programs)]
        whole = [
            found
            for program in self.programs
            if having and len(found := self.on(program, key, having)) == len(having)
        ]
        if not whole:
            return {}, 0
        return {
            name: (
                statistics.fmean(of[name][0] for of in whole),
                statistics.fmean(of[name][1] for of in whole),
                statistics.fmean(of[name][2] for of in whole),
            )
            for name in having
        }, len(whole)


def gathered(
    runs: Sequence[tuple[Run, Sequence[Sample]]],
    groups: Mapping[str, tuple[str, ...]],
    ill: Sequence[str] = (),
) -> ProfileTable:
    """Returns the table of runs of one plan. A contender's cells come from its first run."""
    titles: dict[str, str] = {}
    cells: dict[str, dict[str, Values]] = {}
    costs: dict[str, dict[str, Cost]] = {}
    baseline = runs[0][0].baseline
    for run, samples in runs:
        for index, workload in enumerate(run.settings.workloads):
            its = [one for one in samples if one.trial.workload == index and one.counts]
            row, beside = cells.setdefault(workload.name, {}), costs.setdefault(workload.name, {})
            base = _values(its, run.baseline)
            for contender in run.competing:
                name = contender.name
                titles.setdefault(name, contender.title)
                if name in row:
                    continue
                values = _relative(_values(its, name), base)
                if values:
                    row[name] = values
                    beside[name] = _cost(its, name, run.baseline)
    return ProfileTable(
        baseline, titles, tuple(cells), cells, costs, groups, tuple(n for n in ill if n in titles)
    )


def _values(samples: Sequence[Sample], name: str) -> dict[str, Number]:
    """For each metric: its median over the rounds, and the least and the greatest interval end."""
    found: dict[str, list[Number]] = {}
    plain = [one for one in samples if one.trial.contender == name]
    for sample in samples:
        if sample.trial.contender == twin(name) and sample.probe is not None:
            for key, number in sample.probe.metrics.items():
                if key in BY_KEY:
                    found.setdefault(key, []).append(number)
    if not found:
        return {}
    found["share"] = [share for sample in plain if (share := _share(sample)) is not None]
    # The probe causes page faults of its own, so they are counted in the runs without it.
    for requested, _, _ in found.get("requested", ())[:1]:
        faults = [(one.minor_faults + one.major_faults) / requested for one in plain]
        found["faults.mib"] = [(each, each, each) for each in faults]
    return {
        key: (
            statistics.median(value for value, _, _ in of),
            min(low for _, low, _ in of),
            max(high for _, _, high in of),
        )
        for key, of in found.items()
        if of
    }


def _share(sample: Sample) -> Number | None:
    """The share of the allocator and of all page faults in the clock samples of a run.

    The run is without the probe.
    """
    seen = sample.cpu_samples
    if seen is None:
        return None
    inside = seen.own + seen.calls + seen.faults
    whole = inside + seen.others + seen.program + seen.unknown + (seen.interrupts or 0)
    if not whole:
        return None
    share = inside / whole
    away = 1.96 * math.sqrt(max(share * (1 - share), 1 / whole) / whole)
    return share, max(0.0, share - away), min(1.0, share + away)


def _relative(values: Values, base: Values) -> dict[str, Number]:
    """The values. A value of a `relative` metric, such as a time, is divided by the baseline's."""
    found = {}
    for key, number in values.items():
        by = base.get(key, (0.0, 0.0, 0.0))[0] if BY_KEY[key].relative else 1.0
        if by > 0:
            found[key] = (number[0] / by, number[1] / by, number[2] / by)
    return found


def _cost(samples: Sequence[Sample], name: str, baseline: str) -> Cost:
    """The cost as a ratio: contender to baseline in each round, then the median over the rounds."""
    rounds: dict[int, dict[str, Sample]] = {}
    for sample in samples:
        rounds.setdefault(sample.trial.round, {})[sample.trial.contender] = sample
    pairs = [(of[name], of[baseline]) for of in rounds.values() if {name, baseline} <= set(of)]

    def median(parts: Sequence[tuple[float, float]]) -> float | None:
        ratios = [one / other for one, other in parts if other > 0]
        return statistics.median(ratios) if ratios else None

    return Cost(
        median([(a.user_ns + a.system_ns, b.user_ns + b.system_ns) for a, b in pairs]),
        median([(a.memory.peak_bytes or 0, b.memory.peak_bytes or 0) for a, b in pairs]),
    )


def badness(metric: ProfileMetric, value: float) -> float:
    """The logarithm of a value, with the sign that makes a worse value the larger number."""
    place = math.log(max(value, metric.least))
    return -place if metric.worse == "less" else place


def _ends(metric: ProfileMetric, number: Number) -> tuple[float, float]:
    """The better and the worse end of an interval, as badness."""
    low, high = badness(metric, number[1]), badness(metric, number[2])
    return min(low, high), max(low, high)


def worst_of(metric: ProfileMetric, values: Mapping[str, Number]) -> str | None:
    """The contender to leave out; None if there is none.

    If a larger value is worse, only the contender with the largest one can be left out. If a
    smaller value is worse, only the contender with the smallest one can. If neither direction is
    worse, it can be either of the two.
    """
    if len(values) <= _OTHERS_LEAST:
        return None
    sides = (1, -1) if metric.worse == "neither" else (1,)
    found: list[tuple[float, str]] = []
    for side in sides:
        placed = sorted(values, key=lambda name: side * badness(metric, values[name][0]))
        last, next_ = placed[-1], placed[-2]
        away = side * (badness(metric, values[last][0]) - badness(metric, values[next_][0]))
        if away >= math.log(LEFT_OUT) and _apart(metric, values, last, side):
            found.append((away, last))
    return max(found)[1] if found else None


def _apart(metric: ProfileMetric, values: Mapping[str, Number], name: str, side: int) -> bool:
    """Whether the interval of `name` does not overlap with any other interval.

    side: 1 if the interval must lie on the worse side of all others, -1 for the better side.
    """
    better, worse = _ends(metric, values[name])
    others = [_ends(metric, number) for other, number in values.items() if other != name]
    return (
        all(better > end for _, end in others)
        if side > 0
        else all(worse < begin for begin, _ in others)
    )


def dramatic(metric: ProfileMetric, values: Mapping[str, Number]) -> tuple[tuple[str, float], ...]:
    """The contenders whose value is dramatic, each with the ratio to the median of the others.

    The ratio is the larger value divided by the smaller one, so it is at least `DRAMATIC`.
    """
    found = []
    for name, number in values.items():
        others = [one for other, one in values.items() if other != name]
        if len(others) < _OTHERS_LEAST:
            continue
        middle = statistics.median(badness(metric, value) for value, _, _ in others)
        away = badness(metric, number[0]) - middle
        side = 1 if away > 0 else -1
        if side < 0 and metric.worse != "neither":
            continue
        better, worse = _ends(metric, number)
        beyond = better > middle if side > 0 else worse < middle
        if abs(away) >= math.log(DRAMATIC) - 1e-9 and beyond:
            found.append((name, math.exp(abs(away))))
    return tuple(sorted(found, key=lambda one: -one[1]))


def median_of_others(metric: ProfileMetric, values: Mapping[str, Number], name: str) -> float:
    """The value with which `dramatic` compares that of a contender; never below `metric.least`."""
    middle = statistics.median(badness(metric, values[one][0]) for one in values if one != name)
    return math.exp(-middle if metric.worse == "less" else middle)


class Spread(Struct, frozen=True):
    """The mean, the least and the greatest value of a metric over some contenders."""

    mean: float
    least: float
    least_of: str
    greatest: float
    greatest_of: str
    contenders: int


def spread(values: Mapping[str, Number]) -> Spread | None:
    """The spread of the values; None if there are none."""
    if not values:
        return None
    least = min(values, key=lambda name: values[name][0])
    most = max(values, key=lambda name: values[name][0])
    mean = statistics.fmean(value for value, _, _ in values.values())
    return Spread(mean, values[least][0], least, values[most][0], most, len(values))


class Range(Struct, frozen=True):
    """One metric over all contenders."""

    metric: ProfileMetric
    program: str | None
    """None for the means over programs."""
    programs: int
    """The number of programs of these means."""
    whole: Spread
    worst: str | None
    """The contender that `narrow` leaves out; None if it leaves out none."""
    narrow: Spread
    groups: Mapping[str, Spread]
    dramatic: tuple[tuple[str, float], ...]
    """The contenders whose value is dramatic, each with the ratio of its value to the median of the
    other contenders."""
    values: Mapping[str, Number]


def ranges(table: ProfileTable, program: str | None = None) -> tuple[Range, ...]:
    """Returns the range of each metric that was measured.

    program: the program whose values are used; None for the means over all programs.
    """
    found = []
    for metric in METRICS:
        if program is None:
            values, programs = table.means(metric.key, table.healthy)
        else:
            values, programs = table.on(program, metric.key, table.healthy), 1
        whole = spread(values)
        if whole is None:
            continue
        worst = worst_of(metric, values)
        narrow = spread({name: one for name, one in values.items() if name != worst}) or whole
        groups = {
            group: one
            for group, names in table.groups.items()
            if (one := spread({name: values[name] for name in names if name in values}))
        }
        found.append(
            Range(
                metric,
                program,
                programs,
                whole,
                worst,
                narrow,
                groups,
                dramatic(metric, values),
                values,
            )
        )
    return tuple(found)
