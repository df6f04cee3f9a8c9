"""Tests of --why, which divides the difference between two allocators into parts.

The trials are invented, so that every part is known.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from support.comparisons import EVIL, a_run, a_sample
from support.gaps import MIB, MS, an_account, gap, looked_at, part, trials, why_run
from support.widths import at_all_widths

from cairn.model import (
    Calls,
    Finding,
    Interval,
    LockSummary,
    Operations,
    Sample,
)
from cairn.profile.lock_table import SHOWN
from cairn.report import markdown, run_json, terminal
from cairn.report import why as why_report
from cairn.report.view import View
from cairn.report.why import boards, sentences, summary
from cairn.why.gap import Why, accounted, explain
from cairn.why.parts import (
    CALLING,
    FAULTS,
    INTERRUPTS,
    KERNEL,
    OWN,
    PROGRAM,
    WAITING,
    Gap,
    Part,
)


def test_each_part_of_one_contenders_time_is_computed_correctly() -> None:
    found = gap([*trials("system"), *trials("fast", 80.0, samples_inside=30)])
    # 40 of 120 samples are in the allocator, so 40 of 120 ms. Two times are subtracted: 6 ms of
    # system calls, and 2 ms of page faults (200 of 1,400 faults, which take 14 ms).
    assert part(found, OWN).other == pytest.approx(40 * MS - 6 * MS - 2 * MS)
    assert part(found, KERNEL).other == pytest.approx(6 * MS)
    assert part(found, FAULTS).other == pytest.approx(20 * MS - 6 * MS)
    assert part(found, PROGRAM).other == pytest.approx(100 * MS - 12 * MS - 32 * MS)
    assert found.waiting is not None and found.waiting.other == 0


def test_with_clock_samples_the_parts_come_from_the_plain_runs() -> None:
    fast = looked_at(trials("fast", 80.0, samples_inside=1), own=40, unknown=4)
    found = gap([*looked_at(trials("system", samples_inside=119)), *fast])
    assert found.by == "clock"
    assert [(one.name, one.own, one.other) for one in found.parts[:-1]] == [
        (OWN, 20 * MS, 30 * MS),
        (KERNEL, 6 * MS, 6 * MS),
        (FAULTS, 11 * MS, 11 * MS),
        (INTERRUPTS, 2 * MS, 2 * MS),
        (CALLING, 5 * MS, 5 * MS),
        (PROGRAM, 55 * MS, 55 * MS),
    ]
    # Clock samples cover 99 of 100 ms under `fast`, and 109 of 110 ms under `system`.
    assert found.unexplained.change == pytest.approx(0, abs=0.1 * MS)
    assert sum(one.change or 0.0 for one in found.parts) == pytest.approx(found.whole.change)


def test_clock_samples_in_no_known_file_are_unexplained() -> None:
    fast = looked_at(trials("fast", 80.0), own=30, unknown=10)
    found = gap([*looked_at(trials("system")), *fast])
    assert part(found, OWN).change == pytest.approx(-15 * MS)
    assert found.unexplained.change == pytest.approx(5 * MS, abs=0.1 * MS)


def test_if_one_run_lacks_clock_samples_the_parts_come_from_the_probed_runs() -> None:
    fast = looked_at(trials("fast", 80.0), own=40)
    fast[4] = replace(fast[4], cpu_samples=None, unseen="there was no disk space for clock samples")
    found = gap([*looked_at(trials("system")), *fast])
    assert (found.by, found.because) == ("probe", "there was no disk space for clock samples")
    assert part(found, OWN).other == pytest.approx(40 * MS - 6 * MS - 2 * MS)
    assert CALLING not in [one.name for one in found.parts]


def test_too_few_clock_samples_are_not_used() -> None:
    few = {"own": 2, "calls": 0, "faults": 1, "others": 0, "program": 1}
    found = gap(
        [
            *looked_at(trials("system"), **few),
            *looked_at(trials("fast", 80.0), **(few | {"own": 1})),
        ]
    )
    assert found.by == "probe" and "clock samples of" in found.because


def test_a_difference_of_one_clock_sample_is_not_shown() -> None:
    found = gap([*looked_at(trials("system")), *looked_at(trials("fast", 80.0), own=59)])
    assert found.by == "clock" and not part(found, OWN).shown


def test_a_note_names_the_source_of_the_parts() -> None:
    run = why_run("fast")
    clocked = [*looked_at(trials("system")), *looked_at(trials("fast", 80.0), own=40)]
    blind = [
        replace(one, unseen="the kernel does not allow clock samples")
        for one in (*trials("system"), *trials("fast"))
    ]
    for samples, says in (
        (clocked, "come from clock samples of the runs without the probe"),
        (blind, "the kernel does not allow clock samples"),
    ):
        (board,) = boards(run, [explain(run, samples, "fast", "system")])
        assert says in board.footer[0]


def test_detours_of_the_probe_belong_to_neither_allocator_nor_program() -> None:
    """A detour is the additional time of a system call that the probe intercepts.

    All detours together take 8 of 20 ms of system time. The CPU timers find a quarter of these 8 ms
    in the allocator, and the rest in the probe.
    """
    found = gap([*trials("system", detours_ns=8 * MS), *trials("fast")])
    assert part(found, OWN).other == pytest.approx((40 - 6 - 6 / 7 - 2) * MS)
    assert part(found, PROGRAM).other == pytest.approx((120 - 40 - 12 - (6 - 6 / 7)) * MS)


def test_system_time_of_the_probe_itself_does_not_count_as_page_faults() -> None:
    """A probed run has 20 ms of system time, 6 of them in the allocator's system calls.

    Besides these 6 ms, the plain run has only 1 ms of system time. So 13 ms are the probe's own.
    """
    found = gap([*trials("system", system_ms=7.0, samples_probe=25), *trials("fast")])
    assert part(found, FAULTS).other == pytest.approx(1 * MS)
    assert part(found, OWN).other == pytest.approx((40 - 6 - 1 / 7) * MS)
    assert part(found, PROGRAM).other == pytest.approx((120 - 40 - 25 - (1 - 1 / 7)) * MS)


def test_system_time_belongs_to_the_probe_only_if_samples_found_the_probe() -> None:
    """The probed run has 20 ms of system time, 6 of them in the allocator's system calls.

    The plain run has only 7 ms. But no CPU sample found the probe, so the probe cannot have used
    system time. So all other 14 ms of the probed run are page faults.
    """
    found = gap([*trials("system", system_ms=7.0, samples_probe=0), *trials("fast")])
    assert part(found, OWN).other == pytest.approx((40 - 6 - 14 / 7) * MS)
    assert part(found, PROGRAM).other == pytest.approx((120 - 40 - (14 - 14 / 7)) * MS)


def test_a_system_call_that_waits_is_evidence_by_its_cpu_time() -> None:
    yields = {
        "sched_yield": Calls(5_000, None, 500.0 * MS, 9.0 * MS),
        "munmap": Calls(100, 1 << 20, 6.0 * MS, 6.0 * MS),
    }
    found = gap(
        [*trials("system"), *trials("fast", 120.0, 40.0, calls=yields, kernel_ns=15.0 * MS)]
    )
    assert part(found, KERNEL).evidence == ("5,000 sched_yield against 0",)


def test_processes_without_the_probe_count_as_the_program() -> None:
    """Half of the CPU time of the run is in a process without the probe.

    In the process with the probe, 40 of 120 CPU samples are in the allocator.
    """
    found = gap([*trials("system", cpu_ns=60 * MS), *trials("fast")])
    assert part(found, OWN).other == pytest.approx(20 * MS - 6 * MS - 2 * MS)
    assert part(found, PROGRAM).other == pytest.approx(100 * MS - 6 * MS - 12 * MS)


def test_the_parts_add_up_to_the_gap_and_the_rest_is_unexplained() -> None:
    found = gap([*trials("system"), *trials("fast", 78.0, samples_inside=30)])
    assert found.whole.change == pytest.approx(-12 * MS)
    assert part(found, OWN).change == pytest.approx(-10 * MS)
    # With the probe, both contenders took equally long. So the 10 ms that the allocator's code
    # saves count as additional time of the program.
    assert part(found, PROGRAM).change == pytest.approx(10 * MS)
    assert found.unexplained.change == pytest.approx(-12 * MS)
    known = [one.change for one in found.parts]
    assert sum(change for change in known if change is not None) == pytest.approx(
        found.whole.change
    )


def test_kernel_calls_and_faults_share_the_systems_time() -> None:
    calls = {"munmap": Calls(900, MIB, 16.0 * MS), "futex wait": Calls(10_000, None, 90.0 * MS)}
    slow = trials("system", system_ms=35.0, kernel_ns=16.0 * MS, calls=calls)
    found = gap([*(replace(s, minor_faults=2000) for s in slow), *trials("fast")])
    assert part(found, KERNEL).change == pytest.approx(-10 * MS)
    assert part(found, FAULTS).change == pytest.approx(-5 * MS)
    assert found.ranked[0].name == KERNEL and FAULTS in [one.name for one in found.ranked]
    assert part(found, KERNEL).evidence == ("100 munmap against 900",)
    assert part(found, FAULTS).evidence == ("1,400 faults against 2,000",)


def test_page_faults_are_no_cause_if_their_number_is_smaller() -> None:
    """The kernel divides CPU time into user and system time by its ticks.

    A short run has few ticks, so that system time may differ without a reason.
    """
    found = gap(
        [*(replace(s, minor_faults=800) for s in trials("system", system_ms=35.0)), *trials("fast")]
    )
    assert part(found, FAULTS).change == pytest.approx(-15 * MS)
    assert FAULTS not in [one.name for one in found.ranked]
    assert [one.name for one in found.contradicted] == [FAULTS] and FAULTS not in [
        one.name for one in found.undecided
    ]
    samples = [
        *(replace(s, minor_faults=800) for s in trials("system", system_ms=35.0)),
        *trials("fast"),
    ]
    (said, *others) = sentences(explain(why_run("fast"), samples, "fast", "system"))
    assert said == (
        "fast takes 12.0 % less CPU time than system: the number of events contradicts the "
        "largest part of the difference (page faults −12.0 % of system's CPU time)."
    )
    assert not any("use more rounds" in other or FAULTS in other for other in others)


def test_page_faults_of_both_kinds_are_faults() -> None:
    """Of 1,400 page faults, 700 read a file and 200 are in the allocator.

    These 200 take 2 of the 14 ms of system time outside system calls.
    """
    both = {"minor_faults": 700, "major_faults": 700}
    found = gap([replace(s, **both) for s in (*trials("system"), *trials("fast"))])  # type: ignore[arg-type]
    assert part(found, OWN).other == pytest.approx(40 * MS - 6 * MS - 2 * MS)


def test_equal_numbers_of_page_faults_contradict_a_difference_in_their_time() -> None:
    found = gap([*trials("system", system_ms=35.0), *trials("fast")])
    assert part(found, FAULTS).change == pytest.approx(-15 * MS)
    assert [one.name for one in found.contradicted] == [FAULTS]


def test_waiting_takes_no_cpu_time_and_is_reported_separately() -> None:
    samples = [*trials("system", waiting_ns=50.0 * MS, waits=700), *trials("fast")]
    found = gap(samples)
    assert found.whole.change == 0 and WAITING not in [one.name for one in found.parts]
    assert found.waiting is not None and found.waiting.change == pytest.approx(-50 * MS)
    told = list(sentences(explain(why_run("fast"), samples, "fast", "system")))
    assert (
        "Under fast, the program waits 50.0 ms shorter in the allocator than under system "
        "(0 waits against 700). Waits of several threads are added." in told
    )


def test_kernel_time_by_the_clock_is_never_more_than_all_system_time() -> None:
    found = gap([*trials("system", kernel_ns=500.0 * MS), *trials("fast")])
    assert part(found, KERNEL).other == pytest.approx(20 * MS)


def test_the_timers_samples_are_split_by_the_system_time_of_the_probed_run() -> None:
    """The plain run has no system time, because no clock tick found it in the kernel.

    The CPU samples come from the probed run, so that they are divided by the system time of that
    run.
    """
    found = gap([*trials("system", system_ms=0.0), *trials("fast")])
    assert part(found, KERNEL).other == 0
    # 14 ms of system time are left. 12 CPU samples found the probe, so 12 of these ms may be the
    # probe's own. A seventh of the last 2 ms was in the allocator.
    assert part(found, OWN).other == pytest.approx(40 * MS - 6 * MS - 2 * MS / 7)


@pytest.mark.parametrize(
    ("unknown", "missing"),
    [
        ({"samples": 0, "samples_inside": 0, "samples_probe": 0}, {OWN, PROGRAM}),
        ({"samples": 20, "samples_inside": 10, "samples_probe": 0}, {OWN, PROGRAM}),
        ({"kernel_ns": None}, {OWN, KERNEL, FAULTS, PROGRAM}),
        ({"faults_inside": None}, {OWN, PROGRAM}),
    ],
)
def test_parts_that_were_not_measured_stay_unexplained(
    unknown: dict[str, object], missing: set[str]
) -> None:
    found = gap([*trials("system", **unknown), *trials("fast", 80.0)])
    assert {one.name for one in found.parts if one.change is None} == missing | {INTERRUPTS}
    known = [one.change for one in found.parts if one.change is not None]
    assert sum(known) == pytest.approx(found.whole.change)
    # The other contender's numbers were measured, so they are shown.
    assert all(part(found, name).own is not None for name in missing)
    assert all(part(found, name).other is None for name in missing)


def test_with_few_rounds_nothing_is_shown() -> None:
    few = [s for s in (*trials("system"), *trials("fast", 40.0)) if s.trial.round <= 5]
    found = explain(why_run("fast"), few, "fast", "system")
    assert found.time is not None and found.time.whole.interval is None and not found.time.ranked
    assert "5 rounds are too few" in next(sentences(found))


@pytest.mark.parametrize("whose", ["fast", "system", "fast+probe", "system+probe"])
def test_there_is_no_answer_if_one_of_the_four_contenders_fails(whose: str) -> None:
    samples = [*trials("system"), *trials("fast")]
    failed = [
        replace(s, failure="was killed") if s.trial.contender == whose else s for s in samples
    ]
    found = explain(why_run("fast"), failed, "fast", "system")
    assert found.why_not == f"{whose} was killed" and found.time is None
    assert f"{whose} was killed" in terminal.whys(why_run("fast"), [found], View())


def test_a_program_that_allocates_nothing_has_no_cause_in_the_allocator() -> None:
    samples = [replace(s, probe=None) for s in (*trials("system"), *trials("fast"))]
    assert (
        explain(why_run("fast"), samples, "fast", "system").why_not
        == "the probe saw no allocation under fast"
    )
    alone = [*trials("fast"), *(replace(s, probe=None) for s in trials("system"))]
    assert (
        explain(why_run("fast"), alone, "fast", "system").why_not
        == "the probe saw no allocation under system"
    )


def test_a_run_that_was_interrupted_in_its_first_round_has_no_answer() -> None:
    begun = [
        s
        for s in (*trials("system"), *trials("fast"))
        if s.trial.contender == "fast+probe" and s.trial.round == 1
    ]
    assert (
        begun
        and explain(why_run("fast"), begun, "fast", "system").why_not == "no round is complete"
    )


def test_a_run_without_the_probe_has_no_answer() -> None:
    assert "compare --why" in explain(a_run(), [a_sample(1, "system", 1)], "fast", "system").why_not


def test_the_answer_names_all_causes_and_nothing_else() -> None:
    kinds = an_account().kinds | {"free, local": Operations(1_500_000, 6_000, 45.0 * MS, 30.0)}
    samples = [*trials("system", 120.0, samples_inside=70, kinds=kinds), *trials("fast")]
    found = explain(why_run("fast"), samples, "fast", "system")
    first, *others = sentences(found)
    assert first.startswith(
        "fast takes 21.4 % less CPU time than system: allocator code −21.4 % of system's CPU time "
        "(free, local: 1.50 M ×"
    )
    assert "10.0 ns against 30.0 ns" in first
    assert any("system against fast: Free is slow" in other for other in others)


def test_a_difference_of_more_than_twice_is_told_as_a_multiple() -> None:
    samples = [*trials("system", 120.0), *trials("fast", 5520.0)]
    first = next(iter(sentences(explain(why_run("fast"), samples, "fast", "system"))))
    assert first.startswith("fast takes 40 times the CPU time of system: "), first


def clocked(system: dict[str, int], fast: dict[str, int]) -> tuple[Why, list[str]]:
    """Returns the gap of two contenders with these clock samples (0.5 ms each), and its sentences.

    All their CPU time is in samples.
    """
    samples = []
    for name, counts in (("system", system), ("fast", fast)):
        every = dict.fromkeys(("own", "calls", "faults", "others", "program"), 0) | counts
        samples += looked_at(trials(name, sum(every.values()) / 2, 0.0), **every)
    found = explain(why_run("fast"), samples, "fast", "system")
    return found, list(sentences(found))


def test_parts_of_a_gap_of_more_than_twice_are_shares_of_the_difference() -> None:
    found, (first, *_) = clocked(
        {"own": 20, "program": 80}, {"own": 30, "calls": 4000, "program": 80}
    )
    assert first == (
        "fast takes 41 times the CPU time of system: allocator system calls 99.8 % of the "
        "difference."
    )
    (board,) = boards(why_run("fast"), [found])
    heads, rows = board.tables[0].heads, board.tables[0].rows
    shares = {row[0].text.strip(): row[heads.index("of the difference")].text for row in rows}
    assert shares[KERNEL] == "99.8 %" and shares[OWN] == "0.2 %" and shares["total"] == "100 %"
    back = explain(why_run("fast"), turned(found), "fast", "system")
    assert next(sentences(back)).startswith(
        "fast takes 1/41 of the CPU time of system: allocator system calls 99.8 % of the"
    )


def turned(found: Why) -> list[Sample]:
    """Returns trials in which the two contenders of a gap have changed places."""
    assert found.time is not None
    samples = []
    for name, whose in (("system", "own"), ("fast", "other")):
        counts = {
            place: round((getattr(part(found.time, of), whose) or 0) / (MS // 2))
            for place, of in (
                ("own", OWN),
                ("calls", KERNEL),
                ("faults", FAULTS),
                ("others", CALLING),
                ("program", PROGRAM),
            )
        }
        samples += looked_at(trials(name, sum(counts.values()) / 2, 0.0), **counts)
    return samples


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (800, "takes 8.2 times the CPU time of system: the program itself takes 10 times as "
              "long (100 % of the difference); the reason is not known."),
        (100, "takes 20.0 % more CPU time than system: the program itself takes 25 % longer "
              "(+20 % of system's CPU time); the reason is not known."),
        (8, "takes 72.0 % less CPU time than system: the program itself takes 1/10 of the time "
            "(100 % of the difference); the reason is not known."),
    ],
)  # fmt: skip
def test_the_program_itself_is_named_first_if_its_part_is_the_largest(
    program: int, says: str
) -> None:
    """The allocator's own part changes, too, but by less. It must not be named as the answer."""
    _, (first, second, *_) = clocked(
        {"own": 20, "program": 80}, {"own": 20, "calls": 0, "program": program}
    )
    assert first == f"fast {says}"
    _, (first, second, *_) = clocked(
        {"own": 20, "program": 80}, {"own": 30, "program": program + 4 * (program > 80)}
    )
    assert "the program itself takes" in first and OWN not in first
    assert second.startswith(
        "Smaller parts: allocator code" if program > 80 else "In the other direction: allocator"
    )


def test_the_unexplained_part_is_named_first_if_it_is_larger_than_each_cause() -> None:
    """The allocator's own code takes 10 ms longer, and 25 ms have no clock sample."""
    slow = looked_at(trials("fast", 125.0), own=80)
    found = explain(why_run("fast"), [*looked_at(trials("system")), *slow], "fast", "system")
    first, second, *_ = sentences(found)
    assert first == (
        "fast takes 31.8 % more CPU time than system: most of the difference is unexplained "
        "(+22.7 % of system's CPU time)."
    )
    assert second == ("Smaller parts: allocator code +9.1 %.")
    (board,) = boards(why_run("fast"), [found])
    assert "unexplained CPU time can hold CPU time without a clock sample" in board.footer[0]
    assert sum(text.count("nexplained") for text in board.says) == 1


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (70, "most of the difference is unexplained (+27.3 % of system's CPU time)."),
        (60, "all of the difference is unexplained (+31.8 % of system's CPU time)."),
        (50, "more than the difference is unexplained (+36.4 % of system's CPU time), because the "
             "measured parts together have the opposite sign."),
    ],
)  # fmt: skip
def test_the_first_sentence_says_how_much_of_the_difference_is_unexplained(
    own: int, says: str
) -> None:
    """If the allocator's own code takes as long as under system, nothing is explained.

    In this case (`own` is 60), the sentence once said "most" instead of "all".
    """
    slow = looked_at(trials("fast", 125.0), own=own)
    found = explain(why_run("fast"), [*looked_at(trials("system")), *slow], "fast", "system")
    first, *others = sentences(found)
    assert first == f"fast takes 31.8 % more CPU time than system: {says}"
    if own == 50:
        assert others[0] == "The measured parts: allocator code −4.5 %."


def test_few_clock_samples_of_one_contender_do_not_hide_the_gap() -> None:
    """The baseline has only 72 clock samples in all. The gap is 40 times its CPU time."""
    found, (first, *_) = clocked({"own": 2, "program": 7}, {"own": 3, "calls": 360, "program": 7})
    assert found.time is not None and found.time.by == "clock"
    assert first.startswith("fast takes 41 times the CPU time of system: allocator system calls")
    assert abs(found.time.unexplained.change or 0.0) < 0.05 * (found.time.whole.change or 0.0)


def test_no_part_is_negative() -> None:
    """The probe's CPU timers find less time in the allocator than its system calls took."""
    found = gap(
        [
            *trials("system", samples_inside=3, samples_probe=110),
            *trials("fast", live_bytes=400 * MIB, slack_bytes=90 * MIB),
        ]
    )
    assert part(found, OWN).other == 0 and part(found, PROGRAM).other == 0
    assert all((one.own or 0.0) >= 0 and (one.other or 0.0) >= 0 for one in found.parts)
    assert sum(one.change or 0.0 for one in found.parts) == pytest.approx(found.whole.change)


def test_a_part_without_a_shown_difference_is_named_as_a_possible_cause() -> None:
    """The allocator's share of the time changes from round to round, and so does the program's."""
    scattered = [
        replace(s, probe=an_account(samples_inside=20 if s.trial.round % 2 else 60))
        if s.probe
        else s
        for s in trials("system", 120.0)
    ]
    (found, *others) = sentences(
        explain(why_run("fast"), [*scattered, *trials("fast", samples_inside=35)], "fast", "system")
    )
    assert found == (
        "fast takes 21.4 % less CPU time than system: all of the difference is unexplained "
        "(−21.4 % of system's CPU time)."
    )
    assert others[0] == (
        "Not shown yet; more rounds (-r) may show it: allocator code −4 %, program code +4 %."
    )


def test_the_summary_counts_how_many_large_gaps_are_explained() -> None:
    """The parts explain one gap, and do not explain another one. A third gap is below 5 %."""
    run = why_run("fast")
    slow = trials("system", 120.0, samples=150, samples_inside=70, cpu_ns=150 * MS)
    slow = [replace(s, user_ns=s.user_ns + 30 * MS) if s.probe else s for s in slow]
    told = explain(run, [*slow, *trials("fast")], "fast", "system")
    left = explain(run, [*trials("system", 120.0), *trials("fast")], "fast", "system")
    small = explain(run, [*trials("system", 93.0), *trials("fast")], "fast", "system")
    assert accounted([told, left, small]) == (2, 1)
    first, second = summary(run, [told, left, small], "last").says
    assert (
        first
        == "2 gaps in CPU time above 5 % among 3 pairs; 1 explained (50.0 %), with at most 20 % "
        "of the gap left over."
    )
    assert second == "To see each of them: cairn explain last"
    assert (
        summary(run, [small], "last")
        .says[0]
        .startswith("0 gaps in CPU time above 5 % among 1 pair; 0 explained, with")
    )


def test_an_equal_value_is_reported_as_equal() -> None:
    found = explain(why_run("fast"), [*trials("system"), *trials("fast")], "fast", "system")
    assert list(sentences(found)) == [
        "fast and system take the same CPU time to within 1 % (110 ms).",
        "fast and system take the same peak memory to within 1 % (100 MiB).",
    ]
    slower = {n: replace(o, total_ns=3 * (o.total_ns or 0)) for n, o in an_account().kinds.items()}
    alike = explain(
        why_run("fast"), [*trials("system", kinds=slower), *trials("fast")], "fast", "system"
    )
    assert alike.findings == ()


def test_findings_of_one_contender_are_reported_if_most_of_its_trials_have_them() -> None:
    raised = Finding("asks-too-often", "It asks", "CPU", 0.2, "ask less")
    often, once = trials("system", findings=(raised,)), trials("fast")
    once[3] = replace(once[3], probe=replace(an_account(), findings=(raised,)))
    found = explain(why_run("fast"), [*often, *once], "fast", "system")
    assert found.raised == (("system", raised),)


@pytest.mark.parametrize(("raised_in", "told"), [(3, False), (4, False), (5, True), (8, True)])
def test_a_finding_is_reported_if_more_than_half_of_the_trials_have_it(
    raised_in: int, told: bool
) -> None:
    """There are eight trials, and the finding has another effect in each.

    The finding with the median effect is reported. Of an even number of effects, the lower of the
    two in the middle counts as the median.
    """
    effects = [0.02 * (1 + k * 5 % 8) for k in range(8)]
    samples = trials("system")
    behind = [
        place for place, one in enumerate(samples) if one.probe is not None and one.trial.round > 0
    ]
    for place, effect in list(zip(behind, effects, strict=True))[:raised_in]:
        raised = Finding("asks-too-often", "It asks", "CPU", effect, "ask less")
        samples[place] = replace(samples[place], probe=replace(an_account(), findings=(raised,)))
    found = explain(why_run("fast"), [*samples, *trials("fast")], "fast", "system")
    middle = sorted(effects[:raised_in])[(raised_in - 1) // 2]
    assert [(name, one.effect) for name, one in found.raised] == (
        [("system", middle)] if told else []
    )


def test_findings_are_reported_in_the_order_of_their_effects() -> None:
    raised = tuple(
        Finding(f"finding-{k}", "It does", "CPU", effect, "do less")
        for k, effect in enumerate((2, 9, 5))
    )
    found = explain(
        why_run("fast"), [*trials("system", findings=raised), *trials("fast")], "fast", "system"
    )
    assert [one.effect for _, one in found.raised] == [9, 5, 2]


@pytest.mark.parametrize(
    ("cpus", "allowed", "quota", "useful_ms"),
    [
        (64, None, None, 960), (4, None, None, 4 * 120), (64, "0,2-3", None, 3 * 120),
        (64, None, 1.5, 1.5 * 120),
    ],
)  # fmt: skip
def test_threads_use_no_more_time_than_the_processors_have(
    cpus: int, allowed: str | None, quota: float | None, useful_ms: float
) -> None:
    """Eight threads live for 120 ms each. The program takes 110 ms of CPU time.

    Threads that waited for a processor once made CPU time too small a part of their time.
    """
    run = why_run("fast")
    run = replace(
        run,
        host=replace(run.host, cpus=cpus),
        settings=replace(run.settings, cpus=allowed),
    )
    known = {"threads_ns": 960.0 * MS, "processors": quota}
    samples = [*trials("system", **known), *trials("fast")]
    assert explain(run, samples, "fast", "system").busy == {
        "system": pytest.approx(110 / useful_ms, rel=1e-3)
    }


def a_part(name: str, own_ms: float, other_ms: float) -> Part:
    """Returns a part with an interval of ± 1 ms."""
    change = (own_ms - other_ms) * MS
    ends = Interval(change - MS, change + MS, 0.95)
    return Part(name, own_ms * MS, other_ms * MS, change, ends)


def test_a_part_without_a_clock_sample_takes_no_millionth_of_the_time() -> None:
    says = "the program's own system calls and its exit take 20.0 ms less time"
    assert why_report._itself(a_part(CALLING, 0, 20)) == says


@pytest.mark.parametrize(
    ("own_ms", "says"),
    [(100, "2.2 times"), (4900, "−2.2 times"), (1400, "100 %"), (3600, "−100 %")],
)
def test_a_part_in_the_direction_of_the_difference_is_positive(own_ms: float, says: str) -> None:
    """The CPU time falls from 2 s to 0.9 s. A part that falls by more was once "−2.2 times" it."""
    own = a_part(OWN, own_ms, 2500)
    gap = Gap("time", a_part("", 900, 2000), (own,))
    assert why_report._points(gap, own) == says


LOCKING = {
    "locks": (
        LockSummary("init_lock", 2_000_000, 40_000, 31 * MS, 60.0 * MS),
        LockSummary("main_arena", None, 250, 1.5 * MS, None),
    ),
    "locks_taken": 12,
    "locks_waited_for": 2,
}


def test_locks_are_means_over_the_probed_runs() -> None:
    samples = [*trials("system"), *trials("fast", 80.0, **LOCKING)]
    found = explain(why_run("fast"), samples, "fast", "system")
    assert set(found.locks) == {"fast"}
    costs = found.locks["fast"]
    assert [one.name for one in costs.uses] == ["init_lock", "main_arena"]
    assert (costs.uses[0].taken, costs.uses[0].wait_ns) == (2_000_000, 31 * MS)
    assert (costs.locks, costs.waited_for) == (12, 2)


@pytest.mark.parametrize("others", [SHOWN - 2, SHOWN - 1, SHOWN])
def test_a_lock_that_a_run_may_have_left_out_has_no_mean(others: int) -> None:
    """It once counted as 0 in such a run, so that its mean was too low."""
    samples = [*trials("system"), *trials("fast", 80.0, **LOCKING)]
    costly = tuple(LockSummary(f"lock {n}", 10, 5, 2 * MS, MS) for n in range(others))
    rare = replace(an_account(**LOCKING), locks=costly)
    at = next(n for n, one in enumerate(samples) if one.trial.round == 3 and one.probe is not None
              and one.probe.locks)  # fmt: skip
    samples[at] = replace(samples[at], probe=rare)
    costs = explain(why_run("fast"), samples, "fast", "system").locks["fast"]
    waits = {one.name: one.wait_ns for one in costs.uses}
    if others < SHOWN:  # then init_lock was not taken in this run
        assert waits["init_lock"] == pytest.approx(31 * MS * 7 / 8)
    else:
        assert "init_lock" not in waits
    assert waits["lock 0"] == pytest.approx(2 * MS / 8)
    assert costs.locks == 12


def test_the_tables_of_why_are_golden(golden: Callable[[str, str], None]) -> None:
    """One contender and the baseline have clock samples. The other contender has none.

    Its probed runs take 10 ms longer than its plain runs, as those of the baseline do.
    """
    quick = trials("fast", 60.0, cpu_ns=90 * MS, samples=90, samples_inside=20,
                   slack_bytes=24 * MIB)  # fmt: skip
    quick = [replace(one, user_ns=one.user_ns - 30 * MS) if one.probe else one for one in quick]
    samples = [
        *looked_at(trials("system")),
        *quick,
        *looked_at(trials("seen", 120.0, **LOCKING), own=110),
    ]
    run = why_run("fast", "seen")
    found = [explain(run, samples, name, "system") for name in ("fast", "seen")]
    golden("why", at_all_widths(lambda view: terminal.whys(run, found, view)))


def test_the_summary_names_each_pair_without_an_answer_and_the_reason() -> None:
    run = why_run("fast")
    samples = [*trials("system"), *trials("fast", 60.0)]
    known = explain(run, samples, "fast", "system")
    unknown = explain(run, [s for s in samples if s.probe is None], "fast", "system")
    assert unknown.why_not
    (told,) = summary(run, [known, unknown], "last").failures
    assert (
        told.endswith(f", fast: {unknown.why_not}") and summary(run, [known], "last").failures == ()
    )


def test_a_hostile_name_is_harmless_in_every_form() -> None:
    run = why_run(EVIL)
    found = explain(run, [*trials("system"), *trials(EVIL, 60.0)], EVIL, "system")
    for text in (terminal.whys(run, [found], View()), markdown.whys(run, [found])):
        assert "\x1b" not in text and "\u202e" not in text
    assert "<script>" not in markdown.whys(run, [found])
    assert '"whys"' in run_json.explanation(run, [found])


@pytest.mark.parametrize(
    ("mib", "program_mib", "reason"),
    [
        (1200, 100, ", likely because fork and exit handle more memory (1.17 GiB against 100 MiB)"),
        (50, 100, "; the reason is not known"),
        # So little more memory cannot take 12 times as long.
        (110, 100, "; the reason is not known"),
        # 12 times the memory, but only 2,816 pages more: they cannot take 55 ms.
        (12, 1, "; the reason is not known"),
    ],
)
def test_fork_and_exit_take_longer_if_they_handle_more_memory(
    mib: int, program_mib: int, reason: str
) -> None:
    """The program's own calls and its exit take 60 ms under `fast`, and 5 ms under `system`.

    An allocator that never reused memory was once said to take 12 times as long for no reason.
    """
    samples = []
    for name, user_ms, others, size in (
        ("system", 90.0, 10, program_mib), ("fast", 145.0, 120, mib),
    ):  # fmt: skip
        made = looked_at(trials(name, user_ms, resident_bytes=size * MIB), others=others)
        samples += [replace(s, memory=replace(s.memory, peak_bytes=size * MIB)) for s in made]
    first, *_ = sentences(explain(why_run("fast"), samples, "fast", "system"))
    assert first == (
        "fast takes 50.0 % more CPU time than system: the program's own system calls and its exit "
        f"take 12 times as long (+50.0 % of system's CPU time){reason}."
    )
