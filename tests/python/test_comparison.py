"""Tests of the comparison of samples: its ranking and sentences claim only shown differences."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cairn.compare import stats
from cairn.compare.comparison import compare, deciding_ratios
from cairn.memory import Memory
from cairn.model import (
    CPU_TIME,
    Comparison,
    Contender,
    Direction,
    Metric,
    Proof,
    Row,
    Sample,
    Shown,
    StopRule,
    Trial,
    Unreached,
)
from cairn.report.verdict import says
from cairn.verdict import Advice, Aim, Measure, Outcome, State

MIB = 1 << 20
UNKNOWN = Memory("cgroup v2", None, None, None)
FIXED = StopRule(precision=None, max_rounds=20)


def contender(name: str, **more: object) -> Contender:
    return replace(Contender(name=name, allocator=name, title=name), **more)  # type: ignore[arg-type]


def sample(
    name: str, round_: int, wall: float = 10.0, peak: float | None = 100 * MIB, **more: object
) -> Sample:
    """Returns the sample of one run. `wall` is in seconds, `peak` in bytes."""
    peak_bytes = None if peak is None else round(peak)
    made = Sample(
        trial=Trial(round_, 0, name),
        started_at=0.0,
        exit_code=0,
        signal=None,
        timed_out=False,
        wall_ns=round(wall * 1e9),
        user_ns=round(wall * 0.8e9),
        system_ns=round(wall * 0.1e9),
        minor_faults=1000,
        major_faults=0,
        voluntary_switches=10,
        involuntary_switches=5,
        memory=Memory(
            "not measured" if peak is None else "cgroup v2", peak_bytes, peak_bytes, None
        ),
        proof=Proof(processes=4, loaded=4, owner=None),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def runs(
    walls: Mapping[str, float],
    peaks: Mapping[str, float | None] | None = None,
    *,
    rounds: int = 20,
    noise: float = 0.002,
    seed: int = 1,
) -> list[Sample]:
    """Returns samples of several rounds. Wall time and peak scatter by `noise` around medians."""
    rng = random.Random(seed)
    made = []
    for round_ in range(1, rounds + 1):
        drift = rng.uniform(0.9, 1.1)
        for name, wall in walls.items():
            peak = (peaks or {}).get(name, 100 * MIB)
            scattered = None if peak is None else peak * (1 + rng.uniform(-noise, noise))
            made.append(
                sample(name, round_, wall * drift * (1 + rng.uniform(-noise, noise)), scattered)
            )
    return made


def judge(
    samples: Sequence[Sample], names: Iterable[str], rule: StopRule = FIXED, **more: object
) -> Comparison:
    """Compares with "system" as the baseline."""
    return compare(samples, [contender(name) for name in names], "system", rule, **more)  # type: ignore[arg-type]


def simple(
    walls: Mapping[str, float],
    peaks: Mapping[str, float | None] | None = None,
    rule: StopRule = FIXED,
    **how: float,
) -> Comparison:
    return judge(runs(walls, peaks, **how), walls, rule)  # type: ignore[arg-type]


def said(comparison: Comparison) -> tuple[str, ...]:
    """Returns the sentences of the verdict."""
    return says(comparison.judged).sentences


def outcomes(comparison: Comparison, name: str) -> tuple[Outcome, ...]:
    """Returns the outcomes of a contender in time, CPU time, memory and page faults."""
    judged = {one.contender: one for one in comparison.judged.judgements}
    return tuple(effect.outcome for effect in judged[name].effects)


def best(comparison: Comparison, aim: Measure) -> tuple[str, ...]:
    """Returns the contenders that are recommended for one aim."""
    return next(one.best for one in comparison.judged.recommendations if one.aim is aim)


def row(comparison: Comparison, name: str) -> Row:
    return next(row for row in comparison.rows if row.contender == name)


class TestRounds:
    def test_only_rounds_with_a_run_of_every_survivor_count(self) -> None:
        samples = runs({"system": 10, "a": 9, "b": 8}, rounds=8)
        missing = [s for s in samples if not (s.trial.round == 3 and s.trial.contender == "b")]
        comparison = judge(missing, ("system", "a", "b"))
        assert comparison.rounds == 7
        assert row(comparison, "a").summaries["wall"].runs == 7
        assert row(comparison, "a").changes["wall"].rounds == 7

    def test_the_warm_up_counts_for_nothing(self) -> None:
        samples = runs({"system": 10, "a": 9}, rounds=6)
        warm = [sample("system", 0, 999), sample("a", 0, 1)]
        assert judge([*warm, *samples], ("system", "a")) == judge(samples, ("system", "a"))

    def test_the_order_in_which_samples_arrive_does_not_matter(self) -> None:
        samples = runs({"system": 10, "a": 9, "b": 11}, rounds=9)
        shuffled = random.Random(3).sample(samples, len(samples))
        assert judge(shuffled, ("system", "a", "b")) == judge(samples, ("system", "a", "b"))

    def test_drift_common_to_a_round_cancels(self) -> None:
        rng = random.Random(2)
        samples = []
        for round_ in range(1, 21):
            pace = rng.uniform(1, 5)
            samples += [sample("system", round_, 10 * pace), sample("a", round_, 9.5 * pace)]
        change = row(judge(samples, ("system", "a")), "a").changes["wall"]
        assert change.estimate == pytest.approx(-0.05)
        assert change.interval is not None
        assert change.interval.high - change.interval.low < 1e-6

    def test_the_stopping_rule_sees_the_same_rounds_as_the_comparison(self) -> None:
        samples = [
            s
            for s in runs({"system": 10, "a": 9, "b": 8})
            if (s.trial.round, s.trial.contender) != (3, "b")
        ]
        samples.append(sample("c", 1, failure="No proof."))
        ratios = deciding_ratios(samples, ("system", "a", "b", "c"), "system")
        assert list(ratios) == ["a", "b"]
        comparison = judge(samples, ("system", "a", "b", "c"))
        for name, change in stats.changes(ratios, stats.alpha(FIXED), FIXED.margin).items():
            assert change == row(comparison, name).changes["wall"]

    def test_the_stopping_rule_has_nothing_to_see_without_a_baseline_or_a_round(self) -> None:
        assert deciding_ratios([sample("system", 1)], ("system", "a"), "system") == {"a": ()}
        assert (
            deciding_ratios([sample("system", 1, failure="It failed.")], ("system", "a"), "system")
            == {}
        )


class TestFailures:
    def test_a_failed_contender_comes_last_without_numbers_and_spoils_no_round(self) -> None:
        samples = runs({"system": 10, "bad": 1, "a": 9}, rounds=10)
        broken = [
            replace(s, failure="It ended by signal 11.")
            if s.trial.contender == "bad" and s.trial.round > 4
            else s
            for s in samples
            if not (s.trial.contender == "bad" and s.trial.round > 6)
        ]
        comparison = judge(broken, ("system", "bad", "a"))
        assert [r.contender for r in comparison.rows] == ["a", "system", "bad"]
        assert comparison.rounds == 10
        bad = row(comparison, "bad")
        assert (bad.failures, bad.changes, bad.summaries) == (("It ended by signal 11.",), {}, {})
        assert said(comparison)[-1] == (
            "Under bad, the program failed: It ended by signal 11. bad is left out."
        )
        assert row(comparison, "a").changes == row(judge(samples, ("system", "a")), "a").changes

    def test_a_failed_baseline_leaves_rows_but_no_changes(self) -> None:
        samples = runs({"system": 10, "a": 9}, rounds=10)
        samples[0] = replace(samples[0], failure="ended with exit code 1")
        comparison = judge(samples, ("system", "a"))
        assert [r.contender for r in comparison.rows] == ["a", "system"]
        assert all(not r.changes for r in comparison.rows)
        assert said(comparison) == (
            "No verdict: under the baseline, system, the program ended with exit code 1.",
        )

    def test_when_all_contenders_failed_the_baseline_stays(self) -> None:
        samples = [
            s if s.trial.contender == "system" else replace(s, failure="No proof.")
            for s in runs({"system": 10, "a": 9, "b": 9}, rounds=6)
        ]
        comparison = judge(samples, ("system", "a", "b"))
        assert said(comparison)[0] == "Keep system: every other contender failed."
        assert said(comparison)[1:] == (
            "Under a, the program failed: No proof. a is left out.",
            "Under b, the program failed: No proof. b is left out.",
        )

    def test_a_failure_in_the_warm_up_is_a_failure(self) -> None:
        samples = [sample("a", 0, failure="No proof."), *runs({"system": 10, "a": 9}, rounds=6)]
        assert row(judge(samples, ("system", "a")), "a").failures == ("No proof.",)


class TestColumns:
    def test_a_metric_that_was_not_measured_has_no_column(self) -> None:
        comparison = simple({"system": 10, "a": 9}, {"system": None, "a": None})
        keys = [metric.key for metric in comparison.metrics]
        assert keys == ["wall", "cpu_time", "user", "system", "cpu", "faults", "switches"]
        assert comparison.memory_method is None
        assert "memory (it was not measured)" in comparison.not_tested
        assert said(comparison)[0].startswith("By time and CPU time: use a. ")
        assert outcomes(comparison, "a")[2] is Outcome.NOT_KNOWN

    def test_a_metric_without_a_direction_has_summaries_but_no_changes(self) -> None:
        a = row(simple({"system": 10, "a": 9}), "a")
        assert a.summaries["cpu"].median == pytest.approx(90)
        assert "cpu" not in a.changes

    def test_identical_counts_are_equivalent(self) -> None:
        change = row(simple({"system": 10, "a": 9}), "a").changes["faults"]
        assert (change.estimate, change.shown) == (0.0, Shown.EQUIVALENT)

    def test_a_count_that_is_zero_in_some_rounds_has_no_change_and_a_note_says_so(self) -> None:
        samples = [
            replace(s, minor_faults=0) if s.trial.round == 2 and s.trial.contender == "a" else s
            for s in runs({"system": 10, "a": 9})
        ]
        comparison = judge(samples, ("system", "a"))
        assert "faults" not in row(comparison, "a").changes
        assert row(comparison, "a").summaries["faults"].minimum == 0
        assert (
            "faults: no change is given, since a run measured 0 and a ratio needs numbers above 0."
            in comparison.details
        )
        assert outcomes(comparison, "a")[3] is Outcome.NOT_KNOWN

    def test_a_count_that_is_zero_everywhere_is_no_change(self) -> None:
        samples = [replace(s, minor_faults=0) for s in runs({"system": 10, "a": 9})]
        assert row(judge(samples, ("system", "a")), "a").changes["faults"].estimate == 0.0

    def test_users_metrics_and_counters_are_columns_after_the_built_in_ones(self) -> None:
        rate = Metric("metric:rate", "rate", "", Direction.MORE)
        samples = [
            replace(
                s,
                metrics={"rate": 2e9 / s.wall_ns},
                counters={"cycles": 1.0 * s.wall_ns, "misses": None},
            )
            for s in runs({"system": 10, "a": 9})
        ]
        comparison = judge(samples, ("system", "a"), user_metrics=[rate])
        assert [metric.key for metric in comparison.metrics][-2:] == [
            "counter:cycles",
            "metric:rate",
        ]
        assert row(comparison, "a").changes["metric:rate"].shown is Shown.MORE
        assert row(comparison, "a").changes["counter:cycles"].shown is Shown.LESS

    def test_a_metric_ignores_rounds_in_which_one_of_two_contenders_lacks_a_number(self) -> None:
        """For all other metrics, the round still counts."""
        rate = Metric("metric:rate", "rate", "", Direction.MORE)
        lacking = {("a", 3), ("system", 5), ("b", 7)}
        samples = [
            replace(
                s,
                metrics={}
                if (s.trial.contender, s.trial.round) in lacking
                else {"rate": 2e9 / s.wall_ns},
            )
            for s in runs({"system": 10, "a": 9, "b": 9})
        ]
        comparison = judge(samples, ("system", "a", "b"), user_metrics=[rate])
        assert [row(comparison, name).changes["metric:rate"].rounds for name in ("a", "b")] == [
            18,
            18,
        ]
        assert [
            row(comparison, name).summaries["metric:rate"].runs for name in ("system", "a", "b")
        ] == [19, 19, 19]
        assert row(comparison, "a").changes["wall"].rounds == 20

    @pytest.mark.parametrize("failing", [None, "a", "b"])
    def test_a_requested_pair_is_compared_if_neither_contender_failed(
        self, failing: str | None
    ) -> None:
        samples = [
            replace(s, failure="No proof.") if s.trial.contender == failing else s
            for s in runs({"system": 10, "a": 9, "b": 8})
        ]
        against = judge(samples, ("system", "a", "b"), beside=[("a", "b")]).against
        assert [(one.contender, one.other) for one in against] == (
            [("a", "b")] if failing is None else []
        )
        assert all(one.change.shown is Shown.MORE for one in against)

    def test_memory_measured_in_two_ways_is_not_compared(self) -> None:
        samples = runs({"system": 10, "a": 9})
        samples[0] = replace(samples[0], memory=replace(samples[0].memory, method="sampled"))
        comparison = judge(samples, ("system", "a"))
        assert comparison.memory_method is None
        assert "peak" not in [metric.key for metric in comparison.metrics]
        assert any("different ways (cgroup v2, sampled)" in note for note in comparison.notes)

    def test_the_least_proof_over_the_runs_is_reported(self) -> None:
        samples = runs({"system": 10, "a": 9})
        samples[5] = replace(samples[5], proof=Proof(processes=8, loaded=7, owner=None))
        assert row(judge(samples, ("system", "a")), samples[5].trial.contender).proof == (7, 8)

    def test_a_disturbed_run_is_flagged_in_its_own_row_only(self) -> None:
        samples = [
            replace(s, wall_ns=2 * s.wall_ns)
            if s.trial.round == 7 and s.trial.contender == "a"
            else s
            for s in runs({"system": 10, "a": 9})
        ]
        comparison = judge(samples, ("system", "a"))
        assert row(comparison, "a").outliers == (7,)
        assert row(comparison, "system").outliers == ()
        assert comparison.details == (
            "a was far slower than usual in round 7; the intervals include this run.",
        )
        assert comparison.notes == (
            "1 of 40 runs was far slower than usual, as if the machine was busy; the intervals "
            "include it.",
        )
        assert row(comparison, "a").summaries["wall"].runs == 20

    @pytest.mark.parametrize("others", [1, 2, 4])
    def test_a_round_that_was_slow_for_all_contenders_flags_none_of_them(self, others: int) -> None:
        walls = {"system": 10.0, "a": 9.5, **{f"b{i}": 10.0 for i in range(others - 1)}}
        samples = [
            replace(s, wall_ns=3 * s.wall_ns) if s.trial.round == 5 else s for s in runs(walls)
        ]
        assert all(5 not in r.outliers for r in judge(samples, walls).rows)

    def test_a_time_of_zero_flags_no_run(self) -> None:
        """The CPU time of a very short run may be 0, and 0 has no logarithm."""
        samples = [
            replace(s, user_ns=0, system_ns=0)
            if (s.trial.contender, s.trial.round) == ("a", 4)
            else s
            for s in runs({"system": 10, "a": 9, "b": 9})
        ]
        comparison = judge(samples, ("system", "a", "b"), time=CPU_TIME)
        assert [one.outliers for one in comparison.rows] == [(), (), ()]
        assert CPU_TIME.key not in row(comparison, "a").changes
        assert CPU_TIME.key in row(comparison, "b").changes


class TestVerdict:
    def test_the_ranking_is_by_paired_change_in_wall_time(self) -> None:
        comparison = simple({"slow": 11, "system": 10, "fast": 8, "mid": 9})
        assert [r.contender for r in comparison.rows] == ["fast", "mid", "system", "slow"]

    def test_the_verdict_names_the_winner_with_gain_and_cost(self) -> None:
        comparison = simple({"system": 10, "a": 9.4}, {"system": 1000 * MIB, "a": 1190 * MIB})
        assert said(comparison) == (
            "By time and CPU time: use a. By memory: keep system.",
            "a takes 6.0 % less time and CPU time, but 19 % more memory (190 MiB) than system.",
        )

    def test_time_and_memory_may_point_to_different_contenders(self) -> None:
        comparison = simple({"system": 10, "a": 9, "b": 9.5}, {"a": 150 * MIB, "b": 70 * MIB})
        assert best(comparison, Measure.TIME) == ("a",)
        assert best(comparison, Measure.CPU_TIME) == ("a",)
        assert best(comparison, Measure.MEMORY) == ("b",)
        assert said(comparison)[0] == "By time and CPU time: use a. By memory: use b."

    def test_a_winner_that_saves_memory_too_says_so(self) -> None:
        (sentence,) = said(simple({"system": 10, "a": 9}, {"a": 60 * MIB}))
        assert sentence.startswith("By time, CPU time and memory: use a. It takes 10 % less time ")
        assert sentence.endswith(" and 40 % less memory (40.0 MiB) than system.")

    def test_a_difference_in_memory_or_cpu_time_is_told_when_time_shows_nothing(self) -> None:
        samples = [
            replace(
                s,
                user_ns=round(s.user_ns * (0.84 if s.trial.contender == "a" else 1)),
                wall_ns=round(s.wall_ns * (0.85, 0.94, 1.0, 1.06, 1.17)[s.trial.round % 5])
                if s.trial.contender == "a"
                else s.wall_ns,
            )
            for s in runs({"system": 10, "a": 10}, {"a": 131 * MIB})
        ]
        comparison = judge(samples, ("system", "a"))
        assert outcomes(comparison, "a") == (
            Outcome.NOT_SHOWN,
            Outcome.BETTER,
            Outcome.WORSE,
            Outcome.EQUIVALENT,
        )
        assert said(comparison)[-1] == (
            "a takes 14 % less CPU time, but 31 % more memory (31.0 MiB) than system; no "
            "difference in time is shown."
        )

    @pytest.mark.parametrize("lazy_bytes", [0, MIB - 1, MIB, 50 * MIB])
    def test_lazily_freed_memory_is_named_in_the_verdict_if_there_is_any(
        self, lazy_bytes: int
    ) -> None:
        samples = [
            replace(
                s,
                memory=replace(
                    s.memory, peak_less_lazy_bytes=100 * MIB, lazy_peak_bytes=lazy_bytes
                ),
            )
            for s in runs({"system": 10, "a": 9}, {"a": 150 * MIB})
        ]
        told = (
            "The additional memory of a is lazily freed: the kernel takes it back when other "
            "programs need memory."
        )
        assert (said(judge(samples, ("system", "a")))[-1] == told) is (lazy_bytes >= MIB)

    def test_of_two_winners_without_a_shown_difference_the_leaner_is_named_first(self) -> None:
        comparison = simple(
            {"system": 10, "a": 9.0, "b": 9.001}, {"a": 150 * MIB, "b": 120 * MIB}, noise=0.04
        )
        assert set(best(comparison, Measure.TIME)) == {"a", "b"}
        assert said(comparison)[0].startswith(
            "By time and CPU time: use b or a (no difference between them is shown; b takes "
            "less memory). By memory: "
        )
        assert comparison.next_steps[0] == "cairn run -a b -- PROG…"

    def test_winners_within_the_margin_of_each_other_are_called_equal(self) -> None:
        comparison = simple({"system": 10, "a": 9.0, "b": 9.001}, noise=0.004)
        assert "(the same within ±1 %)" in said(comparison)[0]
        assert best(comparison, Measure.TIME)[0] == comparison.rows[0].contender

    def test_a_winner_that_is_leaner_than_some_of_the_equals_only_is_not_called_the_leanest(
        self,
    ) -> None:
        """`a` takes more memory than `b` and `c`. No difference is shown between `b` and `c`."""
        peaks = {"a": 150 * MIB, "b": 120 * MIB, "c": 120.01 * MIB}
        comparison = simple({"system": 10, "a": 9.0, "b": 9.001, "c": 9.002}, peaks, noise=0.03)
        winners = [one.contender for one in comparison.rows if one.contender != "system"]
        assert sorted(winners) == ["a", "b", "c"]
        listed = f"{winners[0]}, {winners[1]} or {winners[2]}"
        alike = f"(no difference from the best, {winners[0]}, is shown)"
        assert f"use {listed} {alike}" in said(comparison)[0]

    def test_the_winner_that_is_leaner_than_all_its_equals_is_named(self) -> None:
        peaks = {"a": 150 * MIB, "b": 120 * MIB, "c": 135 * MIB}
        comparison = simple({"system": 10, "a": 9.0, "b": 9.001, "c": 9.002}, peaks, noise=0.004)
        assert "use b. It takes the least memory of the 3 that are" in said(comparison)[0]
        assert comparison.judged.recommended[0] == "b"

    def test_memory_that_was_not_measured_for_one_of_equal_winners_decides_nothing(self) -> None:
        samples = [
            replace(s, memory=replace(s.memory, peak_bytes=0))
            if s.trial.contender == "a" and s.trial.round == 2
            else s
            for s in runs(
                {"system": 10, "a": 9.0, "b": 9.001}, {"a": 150 * MIB, "b": 120 * MIB}, noise=0.004
            )
        ]
        comparison = judge(samples, ("system", "a", "b"))
        assert set(best(comparison, Measure.TIME)) == {"a", "b"}
        assert all(one.leanest is None for one in comparison.judged.recommendations)

    def test_a_slower_winner_is_not_called_equal_to_the_fastest(self) -> None:
        assert best(simple({"system": 10, "a": 8, "b": 9}), Measure.TIME) == ("a",)

    def test_equivalence_keeps_the_baseline(self) -> None:
        assert said(simple({"system": 10, "a": 10, "b": 10})) == (
            "Keep system: every contender takes the same time, CPU time and memory within ±1 %.",
        )

    def test_a_proven_difference_within_the_margin_is_no_reason_to_change(self) -> None:
        comparison = simple({"system": 10, "a": 9.95})
        assert row(comparison, "a").changes["wall"].shown is Shown.LESS
        assert outcomes(comparison, "a")[0] is Outcome.EQUIVALENT
        assert said(comparison)[0].startswith("Keep system: a takes the same time, ")

    def test_a_slower_contender_keeps_the_baseline(self) -> None:
        sentences = said(simple({"system": 10, "a": 11, "b": 10}))
        assert sentences == (
            "Keep system: no contender takes less time, CPU time or memory.",
            "a takes 10 % more time and CPU time than system.",
            "b takes the same time within ±1 % as system.",
        )

    def test_too_little_data_says_what_is_still_possible(self) -> None:
        comparison = simple({"system": 10, "a": 10}, noise=0.2)
        change = row(comparison, "a").changes["wall"]
        assert change.shown is Shown.NOT_SHOWN
        assert change.interval is not None
        assert [one.advice for one in comparison.judged.recommendations] == [Advice.OPEN] * 3
        (time, *_) = comparison.judged.recommendations
        assert time.possible == pytest.approx(-change.interval.low)
        assert time.possible_with == "a"
        assert said(comparison)[0].startswith(
            "No verdict yet, because another allocator may still save up to 12 % of time, "
        )
        assert comparison.prospect is not None
        assert (comparison.prospect.rounds, comparison.prospect.more) == (80, 60)
        change_after = comparison.prospect.half_width / (change.interval.high - change.interval.low)
        assert 0.2 < change_after < 0.3, "four times the rounds halve the half-width"
        assert comparison.next_steps == ("cairn report last --md", "cairn compare -r 80 …")

    @pytest.mark.parametrize(
        ("most", "advice"),
        [(2000, ["cairn compare -r 80 …"]), (30, ["cairn compare -r 30 …"]), (20, [])],
    )
    def test_more_rounds_are_advised_than_the_user_asked_for(
        self, most: int, advice: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cairn.compare.comparison.ROUNDS_MOST", most)
        rule = StopRule(precision=None, min_rounds=20, max_rounds=20)
        samples = runs({"system": 10, "a": 10}, noise=0.2)
        assert list(judge(samples, ("system", "a"), rule).next_steps[1:]) == advice

    def test_after_the_time_budget_a_longer_one_is_advised(self) -> None:
        rule = StopRule(budget_s=600)
        comparison = judge(
            runs({"system": 10, "a": 10}, noise=0.2), ("system", "a"), rule,
            stopped_because="time budget",
        )  # fmt: skip
        assert comparison.next_steps[1:] == ("cairn compare --budget 24min … (in total)",)

    def test_narrow_intervals_without_a_shown_difference_keep_the_baseline(self) -> None:
        rule = StopRule(precision=0.02, margin=0.001, max_rounds=60)
        samples = runs({"system": 10, "a": 10}, noise=0.01)
        comparison = judge(samples, ("system", "a"), rule, stopped_because="precision reached")
        assert all(one.advice is Advice.KEEP for one in comparison.judged.recommendations)
        assert said(comparison)[0].startswith(
            "Keep system: a is not shown to be better. It cannot save more than 0."
        )
        assert comparison.next_steps[-1] == "cairn compare --precision 1% …"

    def test_the_verdict_distinguishes_open_and_slower_contenders(self) -> None:
        samples = [
            replace(s, wall_ns=s.wall_ns * (3 if s.trial.round % 2 else 1))
            if s.trial.contender == "b"
            else s
            for s in runs({"system": 10, "a": 11, "b": 6})
        ]
        comparison = judge(samples, ("system", "a", "b"))
        assert outcomes(comparison, "a")[0] is Outcome.WORSE
        assert outcomes(comparison, "b")[0] is Outcome.NOT_SHOWN
        assert said(comparison)[0].endswith(" of time.")
        assert (
            "By time: no verdict yet, because another allocator may still save up to "
            in said(comparison)[0]
        )
        assert said(comparison)[-1] == "a takes 10 % more time and CPU time than system."

    def test_a_contender_that_saves_memory_at_equal_time_is_named(self) -> None:
        assert said(simple({"system": 10, "a": 10}, {"a": 48 * MIB})) == (
            "By memory: use a. It takes 52 % less memory (52.0 MiB) than system. "
            "Its time and CPU time are the same within ±1 %.",
        )

    def test_too_few_rounds_are_named_with_the_number_that_is_enough(self) -> None:
        comparison = simple({"system": 10, "a": 5}, rounds=3)
        assert comparison.judged.state is State.TOO_FEW_ROUNDS
        assert said(comparison) == (
            "No verdict yet: 3 rounds are too few for an interval. Run at least 6 (-r 6), which "
            "takes about 1 min 29 s.",
        )
        enough = simple({"system": 10, "a": 5}, rounds=6)
        assert best(enough, Measure.TIME) == ("a",)

    @pytest.mark.parametrize("others", [1, 2, 3, 5, 9])
    def test_the_least_number_of_rounds_gives_intervals_and_one_less_does_not(
        self, others: int
    ) -> None:
        walls = {"system": 10.0, **{f"c{i}": 5.0 for i in range(others)}}
        least = stats.rounds_for_intervals(others, stats.alpha(FIXED))
        assert simple(walls, rounds=least - 1).judged.state is State.TOO_FEW_ROUNDS
        assert simple(walls, rounds=least).judged.state is State.JUDGED

    def test_without_a_complete_round_there_is_no_verdict(self) -> None:
        comparison = judge([sample("system", 1)], ("system", "a"))
        assert said(comparison) == ("No verdict: no round is complete.",)
        assert comparison.rounds == 0

    def test_a_run_with_only_the_baseline_has_no_comparison(self) -> None:
        assert said(simple({"system": 10})) == (
            "No verdict: only system was run. Add an allocator, such as -a jemalloc.",
        )

    def test_no_samples_at_all_are_no_error(self) -> None:
        comparison = judge([], ("system", "a"))
        assert (comparison.rounds, comparison.metrics) == (0, ())

    @given(st.floats(0.5, 2), st.floats(0.5, 2), st.floats(0, 0.3), st.integers(1, 25))
    def test_every_verdict_agrees_with_the_intervals(
        self, ratio: float, memory: float, noise: float, rounds: int
    ) -> None:
        comparison = simple(
            {"system": 10, "a": 10 * ratio}, {"a": 100 * MIB * memory}, noise=noise, rounds=rounds
        )
        assert said(comparison)
        changes = row(comparison, "a").changes
        judged = comparison.judged
        for effect, key in zip(
            judged.judgements[0].effects, ("wall", "cpu_time", "peak", "faults"), strict=True
        ):
            interval = changes[key].interval
            if interval is None:
                assert effect.outcome is Outcome.NOT_KNOWN
                continue
            assert (effect.low, effect.high) == (1 + interval.low, 1 + interval.high)
            assert (effect.outcome is Outcome.BETTER) == (
                interval.high < 0 and interval.low < -0.01
            )
            assert (effect.outcome is Outcome.WORSE) == (interval.low > 0 and interval.high > 0.01)
        for one in judged.recommendations:
            effect = judged.judgements[0].effect(one.aim)
            assert (one.advice is Advice.USE) == (
                effect.outcome is Outcome.BETTER and effect.matters(0.01)
            )


class TestLimits:
    def test_short_runs_say_nothing_of_fragmentation_in_the_long_run(self) -> None:
        assert (
            "long-run fragmentation (the longest run took 11.0 s)"
            in simple({"system": 10, "a": 10}).not_tested
        )
        assert simple({"system": 4000, "a": 4000}).not_tested == ()

    def test_sampled_memory_misses_short_peaks(self) -> None:
        samples = [
            replace(s, memory=replace(s.memory, method="sampled"))
            for s in runs({"system": 10, "a": 9})
        ]
        comparison = judge(samples, ("system", "a"))
        assert "short peaks between two memory samples" in comparison.not_tested
        assert comparison.memory_method == "sampled"

    @pytest.mark.parametrize(
        ("share", "digest", "doubted"), [(0.2, None, True), (0.2, "x", False), (0.5, None, False)]
    )
    def test_a_contender_that_takes_far_less_cpu_time_may_do_less_work(
        self, share: float, digest: str | None, doubted: bool
    ) -> None:
        """Cairn once recommended an allocator under which the program ended too early."""
        samples = [
            replace(one, output_digest=digest) for one in runs({"system": 10, "a": 10 * share})
        ]
        notes = judge(samples, ("system", "a")).notes
        assert (
            any("a takes less than a third of the CPU time of system" in note for note in notes)
            == doubted
        )
        assert not judge(samples, ("system", "a"), bench="larson").notes

    def test_programs_out_of_reach_are_named(self) -> None:
        out = (Unreached("static", "/bin/busybox"), Unreached("setuid", "/usr/bin/sudo"))
        samples = [
            replace(s, proof=Proof(processes=4, loaded=2, owner=None, unreached=out))
            for s in runs({"system": 10, "a": 9})
        ]
        said = "programs that a preloaded library cannot reach (/bin/busybox: static and 1 more)"
        assert said in judge(samples, ("system", "a")).not_tested

    @pytest.mark.parametrize(
        ("left", "says"),
        [
            ({"a": 2}, "Under a, up to 2 processes were still running"),
            ({"a": 1}, "Under a, a process was still running"),
            ({"a": 1, "system": 3}, "Up to 3 processes were still running"),
            ({"a": 1, "system": 1}, "A process was still running"),
        ],
    )
    def test_processes_left_behind_and_caveats_are_noted(self, left, says: str) -> None:
        samples = runs({"system": 10, "a": 9})
        for name, number in left.items():
            place = next(
                i for i, one in enumerate(samples) if one.counts and one.trial.contender == name
            )
            samples[place] = replace(samples[place], left_behind=number)
        contenders = [contender("system"), contender("a", caveats=("without rseq it is slower",))]
        notes = compare(samples, contenders, "system", FIXED).notes
        it = "it" if max(left.values()) == 1 else "them"
        assert notes == (
            f"{says} when the command ended; cairn ended {it}.",
            "a: without rseq it is slower",
        )

    @pytest.mark.parametrize(
        ("spec", "typed"),
        [
            ("jemalloc", "jemalloc"),
            ("jemalloc@5.3.0", "jemalloc@5.3.0"),
            ("/opt/lib mine.so", "'/opt/lib mine.so'"),
            ("jemalloc:MALLOC_CONF=narenas:1;X=2", "'jemalloc:MALLOC_CONF=narenas:1;X=2'"),
        ],
    )
    def test_the_next_command_can_be_pasted(self, spec: str, typed: str) -> None:
        samples = runs({"system": 10, "a": 9})
        contenders = [contender("system"), contender("a", spec=spec)]
        steps = compare(samples, contenders, "system", FIXED).next_steps
        assert steps == (f"cairn run -a {typed} -- PROG…", "cairn report last --md")


def without_peak(samples: Sequence[Sample], rounds: Iterable[int]) -> list[Sample]:
    """Returns the samples. The peak of "a" is not known in these rounds."""
    lost = set(rounds)
    return [
        replace(one, memory=UNKNOWN)
        if one.trial.contender == "a" and one.trial.round in lost
        else one
        for one in samples
    ]


def test_memory_is_judged_by_the_rounds_that_have_it_and_the_report_says_how_many() -> None:
    whole = runs({"system": 10.0, "a": 10.0}, {"a": 50 * MIB}, rounds=20)
    found = judge(without_peak(whole, range(1, 8)), ("system", "a"))
    assert found.rounds == 20
    assert found.judged.judgements[0].effect(Measure.MEMORY).outcome is Outcome.BETTER
    assert "Memory was measured in 13 of 20 rounds; the others do not count for it." in found.notes
    assert not any("an interval needs" in sentence for sentence in said(found))
    assert not judge(whole, ("system", "a")).judged.partly


def test_a_verdict_says_if_memory_was_measured_in_too_few_rounds() -> None:
    """The verdict once left out memory without a word."""
    rule = StopRule(precision=None, max_rounds=6)
    whole = runs({"system": 10.0, "a": 10.0}, {"a": 50 * MIB}, rounds=6)
    few = without_peak(whole, [3])
    found = judge(few, ("system", "a"), rule)
    told = "Memory was measured in 5 of 6 rounds, and an interval needs 6 such rounds."
    assert said(found)[1] == told
    assert [one.advice for one in found.judged.recommendations][2] is Advice.TOO_FEW_ROUNDS
    assert "cairn compare -r 12 …" in found.next_steps
    goal = judge(few, ("system", "a"), rule, aim=Aim(Measure.MEMORY))
    assert (
        said(goal)[:2] == ("No answer yet: memory is known in too few rounds.", told)
        and goal.judged.unanswered
    )
    one_sided = judge(without_peak(whole, range(1, 7)), ("system", "a"), rule)
    assert said(one_sided)[1] == (
        "In no round was memory measured under every contender, and an interval needs 6 such rounds."
    )
    none = judge([replace(one, memory=UNKNOWN) for one in whole], ("system", "a"), rule)
    assert none.judged.recommendations[2].advice is Advice.NOT_MEASURED
    assert not none.judged.partly


def test_a_note_tells_if_memory_cannot_be_compared_since_a_run_measured_0() -> None:
    """The verdict once left out memory, and only --full said why."""
    whole = runs({"system": 10.0, "a": 10.0}, {"a": 50 * MIB}, rounds=6)
    nothing = Memory("cgroup v2", 0, 0, None)
    zero = judge([replace(whole[0], memory=nothing), *whole[1:]], ("system", "a"))
    assert any(note.startswith("peak memory: no change is given") for note in zero.notes)
    assert not zero.judged.partly and not any("peak memory" in one for one in zero.details)
    lost = judge(without_peak(whole, range(1, 7)), ("system", "a"))
    assert not any("measured 0" in one for one in (*lost.notes, *lost.details))
