"""Tests that the explained gaps claim no difference that the verdict does not show."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.comparisons import a_run, a_sample, compared
from support.gaps import MS, trials, why_run

from cairn.compare.load_output import REQUEST_CPU_TIME
from cairn.model import Comparison
from cairn.report.why import sentences
from cairn.verdict import Effect, Judgement, Measure, Outcome
from cairn.why import doubts
from cairn.why.gap import Why, accounted, explain


def a_gap() -> Why:
    """Returns a gap in which "fast" takes 21.4 % less CPU time than "system"."""
    samples = [*trials("system", 120.0, samples_inside=70), *trials("fast")]
    return explain(why_run("fast"), samples, "fast", "system")


def a_verdict(low: float, high: float, measure: Measure = Measure.CPU_TIME) -> Comparison:
    """Returns a comparison in which the ratio of "fast" has this interval."""
    found = compared(a_run(), [a_sample(1, name, 5.0) for name in ("system", "fast")])
    effects = tuple(
        Effect(one, Outcome.NOT_SHOWN, 1.0, low, high, 0.95)
        if one is measure
        else Effect(one, Outcome.NOT_KNOWN)
        for one in Measure
    )
    return replace(found, judged=replace(found.judged, judgements=(Judgement("fast", effects),)))


@pytest.mark.parametrize(("low", "high"), [(0.85, 1.004), (1.01, 1.2)])
def test_a_gap_that_the_verdict_does_not_show_is_only_possible(low: float, high: float) -> None:
    """One screen once said "? −0.4 to +6.0 %" and "takes 4 % more CPU time"."""
    plain = a_gap()
    assert next(sentences(plain)).startswith("fast takes 21.4 % less CPU time than system: ")
    found = doubts.marked(plain, a_verdict(low, high))
    assert found.time is not None and found.time.doubted and not found.time.is_shown
    first, *others = sentences(found)
    assert first == (
        "fast may take 21.4 % less CPU time than system: the means differ, but the verdict, which "
        "compares round by round, does not show this difference. More rounds (-r) can decide it."
    )
    assert others[0].startswith("Parts of it differ under fast: allocator code ")
    assert accounted([plain])[0] == 1 and accounted([found])[0] == 0


def test_a_gap_that_the_verdict_shows_stays_as_it_is() -> None:
    plain = a_gap()
    assert doubts.marked(plain, a_verdict(0.85, 0.95)) == plain
    assert doubts.marked(plain, a_verdict(0.85, 1.1, Measure.TIME)) == plain
    of_request = replace(a_verdict(0.85, 1.1), cpu_time=REQUEST_CPU_TIME)
    assert doubts.marked(plain, of_request) == plain
    assert plain.time is not None and abs(plain.time.whole.change or 0.0) > MS
