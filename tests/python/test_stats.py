"""Tests that estimates, intervals and p-values agree with published examples and with scipy.

They must also agree with each other.
"""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from cairn.compare import stats
from cairn.model import Interval, Shown, StopRule

# Hollander & Wolfe, Nonparametric Statistical Methods, table 3.1: Hamilton depression scores before
# and after a tranquillizer (Salsburg 1970). They report T+ = 5, one-sided P = 0.019, an estimate of
# -0.46 and, for alpha = 0.039 (two-sided), the interval (-0.786, -0.010).
BEFORE = (1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30)
AFTER = (0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29)
DEPRESSION = tuple(after - before for before, after in zip(BEFORE, AFTER, strict=True))

differences = st.lists(st.integers(-6, 6).map(lambda x: x / 100), min_size=1, max_size=14)
"""Lists of small integers with many ties and zeros, as counts of page faults have them."""
error = st.sampled_from([0.2, 0.1, 0.05, 0.04, 0.01, 0.003])


def fixed(rounds: int) -> StopRule:
    return StopRule(precision=None, max_rounds=rounds)


def spread(effect: float, noise: float, rounds: int) -> list[float]:
    """Returns differences that are spread evenly around `effect`.

    They are as symmetric and as free of ties as possible.
    """
    return [effect + noise * (2 * (i + 0.5) / rounds - 1) for i in range(rounds)]


class TestSignedRank:
    def test_the_depression_example_of_hollander_and_wolfe_is_reproduced(self) -> None:
        rank = stats.SignedRank.of(DEPRESSION)
        assert rank.estimate() == pytest.approx(-0.46)
        assert rank.p_value() / 2 == pytest.approx(0.019, abs=0.001)
        interval = rank.interval(0.04)
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx((-0.786, -0.010))

    def test_the_estimate_is_the_median_walsh_average(self) -> None:
        assert stats.SignedRank.of([1.0, 2.0, 6.0]).estimate() == pytest.approx((2 + 3.5) / 2)
        assert stats.SignedRank.of([7.0]).estimate() == 7.0

    @given(st.lists(st.integers(-9999, 9999).filter(bool), min_size=1, max_size=40, unique_by=abs))
    def test_without_ties_the_p_value_is_that_of_scipy(self, d: list[int]) -> None:
        expected = scipy.stats.wilcoxon(d, method="exact").pvalue
        assert stats.SignedRank.of(d).p_value() == pytest.approx(expected)

    @given(differences)
    def test_with_ties_the_p_value_is_the_largest_that_breaking_them_can_give(
        self, d: list[float]
    ) -> None:
        tiny = [1e-6 * (3**i) / (3 ** len(d)) for i in range(len(d))]
        p = stats.SignedRank.of(d).p_value()
        for signs in itertools.islice(itertools.product((-1, 1), repeat=len(d)), 64):
            broken = [x + sign * t for x, sign, t in zip(d, signs, tiny, strict=True)]
            assert stats.SignedRank.of(broken).p_value() <= p

    @pytest.mark.parametrize("n", range(1, 9))
    def test_the_null_distribution_is_that_of_all_signs(self, n: int) -> None:
        sums = [
            sum(rank for rank in range(1, n + 1) if mask >> (rank - 1) & 1) for mask in range(2**n)
        ]
        for t, p in enumerate(stats.null_cdf(n)):
            assert Fraction(float(p)) == Fraction(sum(s <= t for s in sums), 2**n)

    def test_the_null_distribution_stays_exact_for_hundreds_of_rounds(self) -> None:
        cdf = stats.null_cdf(400)
        mean, sigma = 400 * 401 / 4, math.sqrt(400 * 401 * 801 / 24)
        assert cdf[-1] == pytest.approx(1.0)
        for z in (-3.0, -2.0, 0.0, 1.0):
            t = round(mean + z * sigma)
            assert cdf[t] == pytest.approx(scipy.stats.norm.cdf((t + 0.5 - mean) / sigma), rel=0.04)

    @given(differences, error)
    def test_the_interval_excludes_zero_exactly_when_the_p_value_is_at_most_alpha(
        self, d: list[float], alpha: float
    ) -> None:
        rank = stats.SignedRank.of(d)
        interval = rank.interval(alpha)
        assert (interval is not None and not interval.low <= 0 <= interval.high) == (
            rank.p_value() <= alpha
        )

    @given(differences, error, st.floats(-1, 1))
    def test_the_interval_contains_exactly_the_shifts_that_the_test_accepts(
        self, d: list[float], alpha: float, shift: float
    ) -> None:
        interval = stats.SignedRank.of(d).interval(alpha)
        accepted = stats.SignedRank.of([x - shift for x in d]).p_value() > alpha
        if interval is None:
            assert accepted
        elif min(abs(shift - interval.low), abs(shift - interval.high)) > 1e-9:
            assert accepted == (interval.low <= shift <= interval.high)

    @given(differences, error)
    def test_a_stricter_interval_contains_a_looser_one(self, d: list[float], alpha: float) -> None:
        rank = stats.SignedRank.of(d)
        strict, loose = rank.interval(alpha / 2), rank.interval(alpha)
        if strict is not None:
            assert loose is not None
            assert strict.low <= loose.low <= rank.estimate() <= loose.high <= strict.high

    @given(differences, error)
    def test_swapping_contender_and_baseline_mirrors_everything(
        self, d: list[float], alpha: float
    ) -> None:
        one, other = stats.SignedRank.of(d), stats.SignedRank.of([-x for x in d])
        assert one.estimate() == -other.estimate()
        assert one.p_value() == other.p_value()
        here, there = one.interval(alpha), other.interval(alpha)
        assert here == (there and Interval(-there.high, -there.low, there.level))

    @pytest.mark.parametrize("n", range(1, 20))
    def test_an_interval_needs_the_number_of_rounds_that_its_level_requires(self, n: int) -> None:
        interval = stats.SignedRank.of([0.01 * (i + 1) for i in range(n)]).interval(0.05)
        assert (interval is not None) == (2 / 2**n <= 0.05)

    def test_equal_runs_show_no_difference_with_certainty(self) -> None:
        rank = stats.SignedRank.of([0.0] * 10)
        assert rank.p_value() == 1.0
        assert rank.estimate() == 0.0
        assert rank.interval(0.05) == Interval(0.0, 0.0, 0.95)

    def test_the_same_change_in_every_round_is_shown_as_such(self) -> None:
        rank = stats.SignedRank.of([0.1] * 10)
        assert rank.p_value() == 2 / 2**10
        assert rank.interval(0.05) == Interval(0.1, 0.1, 0.95)

    def test_one_wild_run_hardly_moves_the_estimate(self) -> None:
        calm = spread(0.0, 0.01, 11)
        assert abs(stats.SignedRank.of([*calm, 5.0]).estimate()) < 0.005


class TestHolm:
    def test_the_textbook_example_is_reproduced(self) -> None:
        """R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02."""
        assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))

    def test_a_family_of_at_most_one_p_value_is_not_adjusted(self) -> None:
        assert stats.holm([]) == ()
        assert stats.holm([0.3]) == (0.3,)
        assert stats.holm_alphas([0.3], 0.05) == (0.05,)

    def test_the_steps_stop_at_the_first_that_is_not_rejected(self) -> None:
        assert stats.holm_alphas([0.001, 0.03, 0.02, 0.9], 0.05) == (
            0.05 / 4,
            0.05 / 3,
            0.05 / 3,
            0.05 / 3,
        )

    @pytest.mark.parametrize(
        ("p_values", "alphas"),
        [
            ((0.025, 0.05), (0.025, 0.05)),
            ((0.025, 0.06), (0.025, 0.05)),
            ((0.0250001, 0.01), (0.05, 0.025)),
            ((0.0250001, 0.03), (0.025, 0.025)),
            ((0.0125, 0.05 / 3, 0.025, 0.05), (0.0125, 0.05 / 3, 0.025, 0.05)),
        ],
    )
    def test_a_p_value_that_equals_its_alpha_is_rejected(
        self, p_values: tuple[float, ...], alphas: tuple[float, ...]
    ) -> None:
        assert stats.holm_alphas(p_values, 0.05) == alphas

    def test_a_step_whose_p_value_equals_its_alpha_does_not_end_the_procedure(self) -> None:
        """With six rounds, the smallest possible p-value is 1/32, and the next one is 1/16.

        At alpha 1/16 both null hypotheses are rejected. At a slightly smaller alpha, none is.
        """
        family = {
            "first": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            "second": [-0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        }
        found = stats.changes(family, 1 / 16, 0.01)
        assert [change.p_adjusted for change in found.values()] == [1 / 16, 1 / 16]
        assert [change.shown for change in found.values()] == [Shown.MORE, Shown.MORE]
        stricter = stats.changes(family, 1 / 16 - 1e-9, 0.01)
        assert [change.shown for change in stricter.values()] == [
            Shown.NOT_SHOWN,
            Shown.NOT_SHOWN,
        ]

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8), error)
    def test_own_alpha_and_adjusted_p_value_decide_alike(
        self, p_values: list[float], alpha: float
    ) -> None:
        for p, adjusted, own in zip(
            p_values, stats.holm(p_values), stats.holm_alphas(p_values, alpha), strict=True
        ):
            if adjusted != pytest.approx(alpha):
                assert (p <= own) == (adjusted <= alpha)

    @given(st.lists(differences.filter(lambda d: len(d) >= 6), min_size=1, max_size=5), error)
    def test_an_interval_excludes_zero_exactly_when_holm_rejects(
        self, families: list[list[float]], alpha: float
    ) -> None:
        found = stats.changes({str(i): d for i, d in enumerate(families)}, alpha, margin=0.01)
        for change in found.values():
            shown = change.shown in (Shown.LESS, Shown.MORE)
            excluded = (
                change.interval is not None and not change.interval.low <= 0 <= change.interval.high
            )
            assert change.p_adjusted is not None
            assert shown == excluded == (change.p_adjusted <= alpha)


class TestChanges:
    def test_log_ratios_come_back_as_relative_changes(self) -> None:
        change = stats.changes({"a": [math.log(0.95)] * 10}, 0.05, 0.01)["a"]
        assert change.estimate == pytest.approx(-0.05)
        assert change.interval is not None
        assert (change.interval.low, change.interval.high) == pytest.approx((-0.05, -0.05))
        assert change.shown is Shown.LESS
        assert change.rounds == 10

    @pytest.mark.parametrize(
        ("effect", "noise", "finding"),
        [
            (-0.05, 0.02, Shown.LESS),
            (0.05, 0.02, Shown.MORE),
            (0.0, 0.002, Shown.EQUIVALENT),
            (0.0, 0.1, Shown.NOT_SHOWN),
            (0.005, 0.002, Shown.MORE),
        ],
    )
    def test_each_state_of_an_interval_has_its_name(
        self, effect: float, noise: float, finding: Shown
    ) -> None:
        assert stats.changes({"a": spread(effect, noise, 20)}, 0.05, 0.01)["a"].shown is finding

    def test_equivalence_needs_the_one_sided_interval_within_the_margin(self) -> None:
        d = spread(0.001, 0.016, 20)
        one_sided = stats.SignedRank.of(d).interval(0.10)
        assert one_sided is not None
        edge = math.expm1(max(-one_sided.low, one_sided.high))
        assert stats.changes({"a": d}, 0.05, edge + 1e-9)["a"].shown is Shown.EQUIVALENT
        assert stats.changes({"a": d}, 0.05, edge - 1e-9)["a"].shown is Shown.NOT_SHOWN

    def test_too_few_rounds_for_the_level_give_an_estimate_without_interval(self) -> None:
        change = stats.changes({"a": [-0.1, -0.2, -0.3]}, 0.05, 0.01)["a"]
        assert change.interval is None
        assert change.shown is Shown.NOT_SHOWN
        assert change.estimate < 0

    def test_each_additional_contender_widens_the_intervals_of_the_others(self) -> None:
        d = spread(0.0, 0.1, 20)
        alone = stats.half_width(stats.changes({"a": d}, 0.05, 0.01)["a"])
        among = stats.half_width(stats.changes({"a": d, "b": d, "c": d}, 0.05, 0.01)["a"])
        assert alone is not None
        assert among is not None
        assert among > alone


class TestLogRatios:
    def test_the_ratio_is_taken_in_each_round(self) -> None:
        assert stats.log_ratios([2, 4], [1, 8]) == pytest.approx((math.log(2), -math.log(2)))

    def test_a_zero_in_one_round_makes_the_metric_incomparable(self) -> None:
        assert stats.log_ratios([0, 3], [2, 3]) is None
        assert stats.log_ratios([0, 3], [0, 3]) is None

    def test_zero_everywhere_is_no_change(self) -> None:
        assert stats.log_ratios([0, 0], [0, 0]) == (0.0, 0.0)

    def test_a_negative_number_has_no_ratio(self) -> None:
        assert stats.log_ratios([-1, 2], [1, 2]) is None


class TestSummary:
    def test_the_summary_has_median_mean_spread_and_range(self) -> None:
        summary = stats.summarise([4.0, 1.0, 7.0, 2.0])
        assert (summary.median, summary.mean, summary.minimum, summary.maximum, summary.runs) == (
            3,
            3.5,
            1,
            7,
            4,
        )
        assert summary.sigma == pytest.approx(2.6457513)

    def test_a_single_run_has_no_spread(self) -> None:
        assert stats.summarise([4.0]).sigma is None


class TestMeanHalfWidth:
    @pytest.mark.parametrize("n", range(2, 13))
    def test_the_half_width_is_that_of_students_interval_of_the_mean(self, n: int) -> None:
        values = [1.0 + (k * k) % 7 for k in range(n)]
        expected = scipy.stats.t.ppf(0.975, n - 1) * scipy.stats.sem(values)
        assert stats.mean_half_width(values) == pytest.approx(expected, rel=5e-4)

    @pytest.mark.parametrize("n", [13, 20, 100])
    def test_the_half_width_for_many_values_is_slightly_too_wide_and_never_too_narrow(
        self, n: int
    ) -> None:
        values = [1.0 + (k * k) % 7 for k in range(n)]
        expected = scipy.stats.t.ppf(0.975, n - 1) * scipy.stats.sem(values)
        assert expected <= stats.mean_half_width(values) < 1.15 * expected

    def test_equal_values_have_a_half_width_of_zero(self) -> None:
        assert stats.mean_half_width([3.0, 3.0]) == 0


class TestOutliers:
    def test_a_slow_run_among_equal_ones_is_flagged(self) -> None:
        assert stats.outliers([0.01, 0.0, -0.01, 0.02, 0.5, -0.02]) == (4,)

    def test_a_fast_run_is_not_flagged(self) -> None:
        assert stats.outliers([0.01, 0.0, -0.01, 0.02, -0.5, -0.02]) == ()

    def test_the_iglewicz_and_hoaglin_threshold_is_applied_to_the_modified_z_score(self) -> None:
        calm = [-2.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 2.0]
        # The median is 0 and the median absolute deviation is 1 for every last value above 2.
        assert stats.outliers([*calm, 3.5 / 0.6745 + 0.01]) == (8,)
        assert stats.outliers([*calm, 3.5 / 0.6745 - 0.01]) == ()

    def test_when_most_runs_are_equal_the_mean_deviation_judges(self) -> None:
        assert stats.outliers([0.0] * 19 + [1.0]) == (19,)

    def test_no_outlier_is_flagged_among_equal_or_few_runs(self) -> None:
        assert stats.outliers([0.0] * 10) == ()
        assert stats.outliers([0.0, 0.001, 0.1, 0.002]) == ()
        assert stats.outliers([0.0, 0.001, 0.1, 0.002, 0.003]) == (2,)


class TestLook:
    def test_without_a_precision_the_rounds_are_fixed_and_the_level_is_95_percent(self) -> None:
        rule = fixed(15)
        assert stats.look_rounds(rule) == (15,)
        assert stats.alpha(rule) == stats.ALPHA
        assert not stats.look({"a": [0.0] * 14}, rule).stop
        assert stats.look({"a": [0.0] * 15}, rule).because == "15 rounds"

    def test_each_look_is_a_quarter_later_from_the_minimum_to_the_maximum_of_rounds(self) -> None:
        assert stats.look_rounds(StopRule()) == (
            *(10, 13, 17, 22, 28, 35, 44, 55, 69, 87, 109, 137, 172, 200),
        )
        assert stats.alpha(StopRule()) < stats.ALPHA

    def test_a_minimum_at_or_above_the_maximum_of_rounds_leaves_one_look(self) -> None:
        rule = StopRule(min_rounds=20, max_rounds=12)
        assert stats.look_rounds(rule) == (12,)
        assert stats.alpha(rule) == stats.ALPHA

    def test_a_clear_and_precise_winner_stops_at_the_minimum_of_rounds(self) -> None:
        look = stats.look({"a": spread(-0.05, 0.01, 10)}, StopRule())
        assert (look.stop, look.because, look.leading) == (True, "precision reached", "a")

    def test_no_run_stops_below_the_minimum_of_rounds_or_between_looks(self) -> None:
        for rounds in (1, 5, 9, 11, 12, 14):
            assert not stats.look({"a": spread(-0.05, 0.001, rounds)}, StopRule()).stop

    def test_a_precise_but_undecided_contender_needs_more_rounds(self) -> None:
        d = spread(-0.004, 0.015, 13)
        look = stats.look({"a": d}, StopRule())
        assert look.half_width is not None
        assert StopRule().precision is not None
        assert 0.005 < look.half_width <= 0.01
        assert not look.stop

    def test_a_run_may_stop_without_a_shown_difference_at_twice_the_precision(self) -> None:
        rule = StopRule(margin=0.0)
        d = spread(-0.0005, 0.012, 28)
        look = stats.look({"a": d}, rule)
        assert stats.changes({"a": d}, stats.alpha(rule), rule.margin)["a"].shown is Shown.NOT_SHOWN
        assert look.half_width is not None
        assert look.half_width <= 0.005
        assert look.because == "precision reached"

    def test_a_run_continues_until_every_contender_is_settled(self) -> None:
        ratios = {"quiet": spread(-0.05, 0.01, 13), "noisy": spread(0.0, 0.3, 13)}
        look = stats.look(ratios, StopRule())
        assert not look.stop
        assert look.half_width is not None
        assert look.half_width > 0.05

    def test_the_maximum_of_rounds_stops_every_run(self) -> None:
        look = stats.look({"a": spread(0.0, 0.5, 200)}, StopRule())
        assert (look.stop, look.because) == (True, "200 rounds")

    def test_the_baseline_leads_when_every_contender_is_slower(self) -> None:
        assert (
            stats.look({"a": spread(0.02, 0.01, 8), "b": spread(0.03, 0.01, 8)}, StopRule()).leading
            is None
        )

    def test_nothing_left_to_compare_is_a_reason_to_stop(self) -> None:
        look = stats.look({}, StopRule())
        assert (look.stop, look.because) == (True, "nothing left to compare")

    def test_before_the_first_round_nothing_is_known(self) -> None:
        look = stats.look({"a": []}, StopRule(max_rounds=47))
        assert (look.stop, look.half_width, look.leading) == (False, None, None)

    def test_the_contender_with_the_smallest_estimate_leads(self) -> None:
        ratios = {
            "a": spread(-0.01, 0.01, 8),
            "b": spread(-0.03, 0.01, 8),
            "c": spread(-0.02, 0.01, 8),
        }
        assert stats.look(ratios, StopRule()).leading == "b"


def test_importing_the_module_does_not_import_numpy() -> None:
    code = (
        "import sys, cairn.compare.stats, cairn.compare.comparison; sys.exit('numpy' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
