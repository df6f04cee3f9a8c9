"""Tests of the rules of 'cairn soak' on simulated series of known kind.

docs/soak.md has the rules, and record 0039 the comparison of intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from support.memory_series import KIB, MIB, Simulated
from support.soaks import soaked

from cairn.memory import AFTER_ITS_END, Series, Trim
from cairn.soak import trend
from cairn.soak.judge import LEVEL_SHARE, Kind, Reason, judge
from cairn.soak.verdict import SoakVerdict, joined, verdicts

BASE = 20 * MIB
Made = Callable[[Simulated], Series]


def named(made: Made, tries: int, *, seed: int = 0, seconds: float = 30.0) -> Counter[Kind]:
    """How often each verdict is given to simulated contenders of two runs each."""
    found: Counter[Kind] = Counter()
    for number in range(seed, seed + 2 * tries, 2):
        runs = [judge(made(Simulated(one, seconds))) for one in (number, number + 1)]
        found[joined(runs)[0]] += 1
    return found


def noisy(live: Callable[[Simulated], np.ndarray], size: float = 0.01 * BASE) -> Made:
    return lambda one: one.series(live(one) + one.correlated(size, 0.01))


# --- intervals ------------------------------------------------------------------------------------


def holds_zero(values: Callable[[Simulated], np.ndarray], tries: int = 120) -> float:
    """The share of intervals of 95 % that hold the true growth, which is zero."""
    held = 0
    for seed in range(tries):
        one = Simulated(seed)
        live = tuple(values(one))
        found = trend.growth(trend.part([float(at) for at in one.at], live, 0.25, 1.0))
        held += found.low <= 0 <= found.high
    return held / tries


@pytest.mark.parametrize("length", [0.002, 0.01, 0.03, 0.07])
def test_intervals_hold_the_truth_although_neighbours_are_alike(length: float) -> None:
    """Intervals of ordinary least squares contain the truth too rarely if neighbours are alike.

    For these four lengths of correlation, it would be 95, 74, 48 and 34 of 100 intervals.
    """
    assert holds_zero(lambda one: one.correlated(1.0, length)) >= 0.88


@pytest.mark.parametrize("period", [0.02, 0.07, 0.2])
def test_intervals_hold_the_truth_in_cycles(period: float) -> None:
    """The phase is random. No whole number of cycles fits into the time that is judged."""
    assert holds_zero(lambda one: one.cycles(1.0, period)) >= 0.92
    assert holds_zero(lambda one: one.teeth(1.0, period)) >= 0.92


def test_the_growth_of_a_line_is_exact() -> None:
    found = trend.part([0.0, 10.0], [0.0, 1000.0], 2.0, 10.0)
    growth = trend.growth(found)
    assert growth.low == pytest.approx(100) and growth.high == pytest.approx(100)
    edge = trend.envelope(found, 8)
    assert edge.growth.per_s == pytest.approx(100)
    assert edge.rise == pytest.approx(700)
    assert edge.later == pytest.approx(1)


def test_the_order_of_blocks_is_judged_by_all_orders() -> None:
    """Of 120 orders of five values, one ascends, and four have one pair out of order."""
    assert trend.over_blocks(np.arange(5.0), 1.0).ordered == pytest.approx(1 / 120)
    assert trend.over_blocks(np.array([1.0, 0, 2, 3, 4]), 1.0).ordered == pytest.approx(5 / 120)
    assert trend.over_blocks(np.zeros(5), 1.0).ordered == 1


def test_a_swing_is_counted_once() -> None:
    teeth = trend.part(list(range(101)), [at % 20 for at in range(101)], 0, 99)
    assert trend.swings(teeth, 10) == 4
    assert trend.fall(teeth) == 19


# --- live memory ----------------------------------------------------------------------------------

STABLE: dict[str, Made] = {
    "noise": noisy(lambda one: BASE + 0 * one.at, 0.02 * BASE),
    "little noise": noisy(lambda one: BASE + 0 * one.at, 0.003 * BASE),
    "slow noise": lambda one: one.series(BASE + one.correlated(0.1 * BASE, 0.1)),
    "very slow noise": lambda one: one.series(BASE + one.correlated(0.1 * BASE, 0.3)),
    "cycles": noisy(lambda one: BASE + one.cycles(BASE, 0.07)),
    "slow cycles": noisy(lambda one: BASE + one.cycles(BASE, 0.4)),
    "teeth": noisy(lambda one: BASE + one.teeth(BASE, 0.05)),
    "slow teeth": noisy(lambda one: BASE + one.teeth(BASE, 0.6)),
    "warm": noisy(lambda one: BASE + one.warm(BASE, 0.05)),
    "slowly warm": noisy(lambda one: BASE + one.warm(BASE, 0.3)),
    "hardly warm": lambda one: one.series(BASE + one.warm(BASE, 0.7)),
}


@pytest.mark.parametrize("kind", STABLE)
def test_no_stable_program_is_called_a_leak(kind: str) -> None:
    """Ten contenders of each stable kind are judged."""
    assert named(STABLE[kind], 10, seed=100)[Kind.LEAK] == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", STABLE)
def test_no_stable_program_of_many_is_called_a_leak(kind: str) -> None:
    assert named(STABLE[kind], 300, seed=1000)[Kind.LEAK] == 0


@pytest.mark.parametrize(
    ("kind", "least"), [("little noise", 12), ("cycles", 10), ("teeth", 4), ("warm", 10)]
)
def test_a_stable_program_is_called_stable(kind: str, least: int) -> None:
    """A program with teeth is often unknown, because readings miss the lowest point of a tooth."""
    found = named(STABLE[kind], 15)
    assert found[Kind.STABLE] >= least
    assert found[Kind.STABLE] + found[Kind.UNKNOWN] == 15


@pytest.mark.parametrize("kib", [1, 8, 64, 1024])
def test_a_leak_in_a_quiet_program_is_named(kib: int) -> None:
    found = named(
        lambda one: one.series(BASE + one.leak(kib * KIB) + one.correlated(KIB, 0.005)), 10
    )
    assert found[Kind.LEAK] >= 9
    assert found[Kind.LEAK] + found[Kind.UNKNOWN] == 10


@pytest.mark.parametrize("period", [0.05, 0.1])
def test_a_leak_below_cycles_is_named(period: float) -> None:
    """Memory swings by ten times as much as it grows in a cycle."""
    made = noisy(lambda one: BASE + one.leak(MIB) + one.cycles(BASE / 2, period))
    assert named(made, 10)[Kind.LEAK] == 10


def test_a_stable_run_has_a_bound_below_the_level_that_counts_as_stable() -> None:
    """The mean of this run decides. The bound of its lower edge alone is above the level."""
    series = STABLE["noise"](Simulated(1))
    found = judge(series)
    assert found.kind is Kind.STABLE and found.growth is not None
    level, span_s = LEVEL_SHARE * found.live, 0.75 * found.seconds * 7 / 8
    assert found.growth_most == found.growth.high <= level / span_s
    at_s = [one / 1000 for one in series.at_ms]
    late = trend.part(at_s, series.live, at_s[0] + 0.25 * found.seconds, at_s[-1])
    assert trend.envelope(late, 8).growth.high > level / span_s
    assert found.growth_of == "mean"


def test_the_growth_of_a_leak_is_the_true_one() -> None:
    for seed in range(10):
        found = judge(
            Simulated(seed).series(
                BASE + Simulated(seed).leak(64 * KIB) + Simulated(seed).correlated(2 * KIB, 0.01)
            )
        )
        assert found.growth is not None
        assert found.growth.per_s == pytest.approx(64 * KIB, rel=0.03)


def test_a_start_that_needs_much_memory_hides_no_leak() -> None:
    def made(one: Simulated) -> Series:
        start = np.where(one.at < 0.1, 100 * MIB, 0)
        return one.series(BASE + start + one.leak(64 * KIB), held=1.1 * BASE + one.leak(64 * KIB))

    assert named(made, 5) == {Kind.LEAK: 5}


def test_a_longer_run_tells_what_a_short_one_cannot() -> None:
    """A run of the length that the report asks for finds the leak in most cases."""

    def made(one: Simulated) -> Series:
        length = 0.3 / one.seconds
        return one.series(BASE + one.leak(24 * KIB) + one.correlated(0.01 * BASE, length))

    short = [judge(made(Simulated(seed))) for seed in range(12)]
    unknown = [one for one in short if one.kind is Kind.UNKNOWN]
    assert len(unknown) >= 8
    needed = float(np.median([one.needed_s or 0 for one in unknown]))
    assert 45 <= needed <= 30 * 60
    long = [judge(made(Simulated(seed, 2 * needed))).kind for seed in range(12)]
    assert long.count(Kind.LEAK) >= 8


def test_a_steady_leak_of_a_few_kibibytes_is_not_called_stable() -> None:
    """It grows by less than counts as a leak, and by less than counts as level.

    A leak of exactly 4,000 bytes a second was once "stable" after 6 s.
    """

    def made(one: Simulated) -> Series:
        return one.series(BASE + one.leak(0.5 * KIB) + one.correlated(50, 0.005))

    short = [judge(made(Simulated(seed))) for seed in range(12)]
    slow = [one for one in short if one.reason is Reason.SLOW]
    assert len(slow) >= 10 and all(one.kind is Kind.UNKNOWN for one in slow)
    needed = float(np.median([one.needed_s or 0 for one in slow]))
    assert 40 <= needed <= 120
    assert [judge(made(Simulated(seed, needed))).kind for seed in range(12)].count(Kind.LEAK) >= 10
    flat = [judge(Simulated(seed).series(BASE + Simulated(seed).correlated(50, 0.005))).kind
            for seed in range(12)]  # fmt: skip
    assert flat == [Kind.STABLE] * 12


@pytest.mark.parametrize(
    ("points", "seconds", "reason"), [(400, 2.0, Reason.SHORT), (10, 30.0, Reason.READINGS)]
)
def test_nothing_is_said_of_too_little(points: int, seconds: float, reason: Reason) -> None:
    one = Simulated(1, seconds)
    whole = one.series(BASE + one.leak(MIB))
    few = Series(
        *(each[:: 400 // points] for each in (whole.at_ms, whole.live, whole.held, whole.resident)),
        counted=True, processes=1,
    )  # fmt: skip
    found = judge(few)
    assert (found.kind, found.reason) == (Kind.UNKNOWN, reason)
    assert found.needed_s is not None and found.needed_s >= 2 * seconds


def test_no_longer_run_is_named_if_the_program_ended_or_rested() -> None:
    """In an earlier version, the series of a program that rests ended before the rest.

    So a program that filled its memory and then rested was called a leak.
    """
    one = Simulated(1, 12.0)
    filled = one.series(BASE + one.leak(MIB))
    ended = replace(
        Series(*(each[:10] for each in columns(filled)), counted=True, processes=1),
        no_trim=AFTER_ITS_END,
    )
    assert (judge(ended).reason, judge(ended).needed_s) == (Reason.ENDED, None)
    assert judge(filled).kind is Kind.LEAK
    end = (30_000, *(each[-1] for each in columns(filled)[1:]))
    rested = Series(
        *((*each, last) for each, last in zip(columns(filled), end, strict=True)),
        counted=True, processes=1,
    )  # fmt: skip
    found = judge(rested)
    assert (found.kind, found.reason, found.needed_s) == (Kind.UNKNOWN, Reason.RESTS, None)


def columns(series: Series) -> tuple[tuple[int, ...], ...]:
    return series.at_ms, series.live, series.held, series.resident


def test_a_series_without_a_moment_is_not_known() -> None:
    assert judge(Series((), (), (), (), counted=True, processes=0)).kind is Kind.UNKNOWN


# --- memory beyond the live blocks ----------------------------------------------------------------


def spike(one: Simulated) -> np.ndarray:
    """Live memory that falls to a tenth after a fifth of the run."""
    return np.where(one.at < 0.2, 100.0 * MIB, 10.0 * MIB) + one.correlated(50 * KIB, 0.005)


def held_to(after: float) -> Made:
    """100 MiB are held until the end. A trim then leaves `after`."""
    return lambda one: one.series(
        spike(one), held=105.0 * MIB + 0 * one.at,
        trim=Trim(10 * MIB, 105 * MIB, round(after * MIB)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (12, Kind.RETENTION),
        (40, Kind.RETENTION),
        (105, Kind.FRAGMENTATION),
        (80, Kind.FRAGMENTATION),
    ],
)
def test_the_answer_to_a_trim_tells_retention_from_fragmentation(after: float, kind: Kind) -> None:
    assert named(held_to(after), 5) == {kind: 5}


def test_without_an_answer_it_is_not_known_which_of_the_two_it_is() -> None:
    one = Simulated(3)
    found = judge(one.series(spike(one), held=105.0 * MIB + 0 * one.at))
    assert (found.kind, found.reason) == (Kind.UNKNOWN, Reason.UNTRIMMED)


def test_memory_that_waits_for_the_next_cycle_is_no_retention() -> None:
    """The allocator holds what the program needs at the top of each cycle."""

    def made(one: Simulated) -> Series:
        live = MIB + one.teeth(30 * MIB, 0.06)
        return one.series(live, held=33.0 * MIB + 0 * one.at, trim=Trim(MIB, 33 * MIB, 2 * MIB))

    found = named(made, 10)
    assert found[Kind.STABLE] >= 5 and found[Kind.STABLE] + found[Kind.UNKNOWN] == 10


def test_a_reserve_that_was_never_live_is_no_retention() -> None:
    """An allocator once held 27 MiB with at most 16 MiB live, and returned most of it in a trim."""
    one = Simulated(11)
    live = MIB + one.teeth(15 * MIB, 0.06)
    held = 27.0 * MIB + 0 * one.at
    found = judge(one.series(live, held=held, trim=Trim(9 * MIB, 27 * MIB, 10 * MIB)))
    assert found.kind in (Kind.STABLE, Kind.UNKNOWN)


def test_spare_memory_that_grows_is_fragmentation() -> None:
    def made(one: Simulated) -> Series:
        live = 10.0 * MIB + one.correlated(20 * KIB, 0.005)
        held = live + one.leak(200 * KIB)
        return one.series(live, held=held, trim=Trim(10 * MIB, 16 * MIB, 16 * MIB))

    assert named(made, 5) == {Kind.FRAGMENTATION: 5}


def test_a_small_program_has_no_fragmentation() -> None:
    """The allocator's fixed cost of 3 MiB is three times the live memory of the program."""
    one = Simulated(5)
    live = MIB + 0 * one.at
    found = judge(one.series(live, held=live + 3 * MIB, trim=Trim(MIB, 4 * MIB, 4 * MIB)))
    assert found.kind is Kind.STABLE


def test_a_leak_has_a_second_name() -> None:
    def made(one: Simulated) -> Series:
        live = 10.0 * MIB + one.leak(64 * KIB)
        return one.series(
            live, held=100.0 * MIB + 0 * live, trim=Trim(12 * MIB, 100 * MIB, 99 * MIB)
        )

    found = judge(made(Simulated(1)))
    assert (found.kind, found.also) == (Kind.LEAK, Kind.FRAGMENTATION)


def test_the_second_name_of_a_leak_is_that_of_all_its_runs() -> None:
    def made(one: Simulated, held: float) -> Series:
        live = 10.0 * MIB + one.leak(64 * KIB)
        if not held:
            return one.series(live)
        trim = Trim(12 * MIB, round(held), round(held) - MIB)
        return one.series(live, held=held + 0 * live, trim=trim)

    def verdict(*helds: float) -> SoakVerdict:
        held = iter(helds)
        run, samples = soaked(system=lambda one: made(one, next(held)))
        (found,) = verdicts(run, samples)
        return found

    both, one = verdict(100.0 * MIB, 100.0 * MIB), verdict(100.0 * MIB, 0.0)
    assert (both.kind, both.also) == (Kind.LEAK, Kind.FRAGMENTATION)
    assert (one.kind, one.also) == (Kind.LEAK, None)


# --- rounds ---------------------------------------------------------------------------------------


def run_of(kind: str) -> Series:
    one = Simulated(7)
    if kind == "leak":
        return one.series(BASE + one.leak(64 * KIB))
    if kind == "stable":
        return one.series(BASE + 0 * one.at)
    if kind == "retention":
        return held_to(12)(one)
    return one.series(BASE + one.cycles(BASE, 0.4))


@pytest.mark.parametrize(
    ("runs", "kind", "reason"),
    [
        (["leak", "leak"], Kind.LEAK, None),
        (["leak", "unknown"], Kind.UNKNOWN, Reason.CYCLES),
        (["leak", "stable"], Kind.UNKNOWN, Reason.ROUNDS),
        (["stable", "stable", "unknown"], Kind.STABLE, None),
        (["stable", "unknown"], Kind.UNKNOWN, Reason.CYCLES),
        (["retention", "retention"], Kind.RETENTION, None),
    ],
)
def test_the_rounds_must_agree(runs: list[str], kind: Kind, reason: Reason | None) -> None:
    assert joined([judge(run_of(one)) for one in runs]) == (kind, reason)
