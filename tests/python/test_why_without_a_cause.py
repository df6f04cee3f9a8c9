"""Tests of what --why says if no part explains the difference, or if no difference is shown."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace
from support.gaps import MIB, MS, looked_at, trials, why_run

from cairn.model import Memory, Sample
from cairn.report.formatting import wrapped
from cairn.report.why import sentences
from cairn.why.gap import explain


def unsteady(name: str, *user_ms: float) -> list[Sample]:
    """Returns trials of a contender whose CPU time changes from round to round."""
    return [
        replace(one, user_ns=round(user_ms[one.trial.round % len(user_ms)] * MS))
        if one.probe is None
        else one
        for one in trials(name)
    ]


def test_parts_that_cancel_each_other_are_told_together() -> None:
    """Once, "smaller parts" and "the other direction" stood below "all of the difference".

    Under system, 30 of 140 ms have clock samples in no known file, and under fast none.
    """
    odd = looked_at(trials("fast"), own=20, program=150)
    system = looked_at(trials("system", 120.0), unknown=60)
    found = explain(why_run("fast"), [*system, *odd], "fast", "system")
    first, second, third, *_ = sentences(found)
    assert first == (
        "fast takes 21.4 % less CPU time than system: all of the difference is unexplained "
        "(−21.4 % of system's CPU time), because the measured parts cancel each other."
    )
    assert second == (
        "The measured parts: allocator code −14.3 %; program code +14.3 % (the reason is not "
        "known)."
    )
    assert third == (
        "To do: see how much CPU time cannot be attributed under each allocator ('cairn profile "
        "--full')."
    )


def test_the_next_step_about_unexplained_time_of_probed_runs_is_clock_samples() -> None:
    samples = [*trials("system"), *trials("fast", 60.0)]
    first, *others = sentences(explain(why_run("fast"), samples, "fast", "system"))
    assert "all of the difference is unexplained (−27.3 % of system's CPU time)." in first
    assert others[0].startswith("To do: let Cairn take clock samples")


def test_parts_that_differ_are_named_although_the_whole_is_equal() -> None:
    """Once, the report said only that no difference is shown, above a table with differences."""
    samples = [*trials("system"), *trials("fast", slack_bytes=24 * MIB)]
    first, second, third = sentences(explain(why_run("fast"), samples, "fast", "system"))
    assert first.startswith("fast and system take the same CPU time")
    assert second == "fast and system take the same peak memory to within 1 % (100 MiB)."
    assert third == (
        "Parts of it differ under fast: size rounding +16.0 % of system's memory; free memory and "
        "metadata −16.0 %."
    )


def test_a_difference_is_called_less_than_one_percent_only_if_its_interval_shows_it() -> None:
    """The means differ by 0.9 % in both cases. Once, only the means decided."""
    for times, says in (
        ((90.9, 91.1), "The CPU time of fast differs from that of system by less than 1 %."),
        ((90.0, 92.0), "fast takes 0.9 % more CPU time than system: "),
    ):
        samples = [*trials("system"), *unsteady("fast", *times)]
        first = next(sentences(explain(why_run("fast"), samples, "fast", "system")))
        assert first.startswith(says), first


def test_a_difference_that_is_not_shown_has_its_range_and_a_next_step() -> None:
    samples = [*trials("system"), *unsteady("fast", 80.0, 104.0)]
    first = next(sentences(explain(why_run("fast"), samples, "fast", "system")))
    assert first == (
        "No difference in CPU time is shown between fast and system: it lies between −8 % and "
        "+12 % of system's CPU time. More rounds (-r) narrow this range."
    )


def test_the_sentences_about_differences_without_a_cause_are_golden(
    golden: Callable[[str, str], None],
) -> None:
    """The unexplained part is the largest one in four cases. In two cases nothing is shown."""
    large = Memory("cgroup v1", 150 * MIB, 150 * MIB, 0)
    seen, blind = looked_at(trials("system")), trials("system")
    unknown = looked_at(trials("system", 120.0), unknown=60)
    cases = {
        "parts that cancel": [*unknown, *looked_at(trials("fast"), own=20, program=150)],
        "parts that cancel partly": [*unknown, *looked_at(trials("fast"), own=20, program=140)],
        "the other sign": [*seen, *looked_at(trials("fast", 125.0), own=50)],
        "no clock samples": [*blind, *trials("fast", 60.0, samples_inside=35)],
        "memory": [*blind, *(replace(one, memory=large) for one in trials("fast"))],
        "noise": [*seen, *looked_at(unsteady("fast", 80.0, 104.0), own=80, program=90)],
    }
    parts = []
    for case, samples in cases.items():
        said = sentences(explain(why_run("fast"), samples, "fast", "system"))
        lines = [line for sentence in said for line in wrapped(sentence, 80)]
        parts.append("\n".join([f"== {case}", *lines]))
    golden("why-without-a-cause", "\n\n".join(parts) + "\n")
