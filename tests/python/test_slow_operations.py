"""Tests of the findings about slow operations, which come from the comparison of two allocators.

The trials are invented, so that every time is known.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.gaps import MS, an_account, gap, looked_at, part, trials, why_run

from cairn.findings.slow_operations import Two, find
from cairn.model import Calls, Interval, Operations, ProbeSummary
from cairn.profile.estimates import Estimate
from cairn.profile.tally import WAKING
from cairn.why.gap import explain
from cairn.why.parts import OWN


def slow(**times: float) -> list[ProbeSummary]:
    """Returns eight summaries in which kinds of operations take multiples of their usual times."""
    kinds = {
        name: replace(one, total_ns=(one.total_ns or 0) * times.get(name.partition(",")[0], 1))
        for name, one in an_account().kinds.items()
    }
    return [an_account(kinds=kinds)] * 8


def longer(ms: float, half: float = 0.0) -> Estimate:
    """Returns the additional time of the allocator's own code, with an interval of ± `half` ms."""
    return Estimate(ms * MS, Interval((ms - half) * MS, (ms + half) * MS, 0.95))


@pytest.mark.parametrize(
    ("times", "names"),
    [
        ({"free": 2.0}, ["slow-free"]),
        ({"free": 1.4}, []),
        ({"new": 3.0}, ["slow-new"]),
        ({"new": 1.9}, []),
        ({"reused": 2.0, "free": 2.0}, ["slow-path"]),
        ({"reused": 2.0, "free": 2.0, "new": 5.0}, ["slow-path"]),
        # In the next two cases, either reuse or free makes up nearly all of the difference. So the
        # cause is this operation, and not the whole path.
        ({"reused": 3.0, "free": 1.55}, ["slow-reuse"]),
        ({"reused": 1.55, "free": 3.0}, ["slow-free"]),
        ({"reused": 2.0}, ["slow-reuse"]),
        ({"reused": 1.4}, []),
        ({"free": 0.5, "reused": 0.5}, []),
    ],
)
def test_a_slower_kind_of_operation_is_a_finding(times: dict[str, float], names: list[str]) -> None:
    mine, theirs = (
        [one.total_ns or 0.0 for one in of[0].kinds.values()] for of in (slow(**times), slow())
    )
    more_ms = sum(max(0.0, one - other) for one, other in zip(mine, theirs, strict=True)) / MS
    found = find(Two(slow(**times), slow(), 100.0 * MS, longer(more_ms)))
    assert [one.name for one in found] == names
    twice = find(Two(slow(**times), slow(), 100.0 * MS, longer(2 * more_ms)))
    assert [one.effect for one in twice] == pytest.approx([2 * one.effect for one in found])
    mostly_else = find(Two(slow(**times), slow(), 100.0 * MS, longer(6.8 * more_ms)))
    assert mostly_else == ()


def resizing(kind: str, each_ns: float, **times: float) -> list[ProbeSummary]:
    """Returns eight summaries as slow() does, with 200,000 operations of one more kind."""
    more = {kind: Operations(200_000, 800, 200_000 * each_ns, each_ns)}
    return [replace(one, kinds={**one.kinds, **more}) for one in slow(**times)]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("calloc", "calloc is slow"),
        ("realloc", "realloc is slow"),
        ("aligned", "Allocation of aligned blocks is slow"),
    ],
)
def test_any_other_slow_kind_of_operation_is_a_finding(kind: str, says: str) -> None:
    """Such operations take 400 ns instead of 100 ns, 60 ms in all. There was once no finding."""
    mine, theirs = resizing(kind, 400.0), resizing(kind, 100.0)
    (found,) = find(Two(mine, theirs, 150.0 * MS, longer(60.0)))
    assert (found.name, found.says) == (f"slow-{kind}", says)
    assert found.effect == pytest.approx(0.4)
    assert found.evidence == ("A call takes 400 ns on average against 100 ns, 200,000 times",)
    assert find(Two(resizing(kind, 140.0), theirs, 150.0 * MS, longer(8.0))) == ()
    # It may be less than 30 % of the difference.
    both = resizing(kind, 200.0, free=8.0)
    assert [one.name for one in find(Two(both, theirs, 300.0 * MS, longer(125.0)))] == ["slow-free"]
    # A slow path does not explain slow operations of another kind.
    path = resizing(kind, 300.0, free=2.0, reused=2.0)
    two = Two(path, theirs, 200.0 * MS, longer(69.0))
    assert [one.name for one in find(two)] == [f"slow-{kind}", "slow-path"]


def test_clearing_that_saves_page_faults_is_no_larger_a_cause_than_the_difference() -> None:
    """An allocator cleared reused blocks, and the other got cleared pages from the kernel."""
    mine, theirs = resizing("calloc", 600.0), resizing("calloc", 100.0)
    (found,) = find(Two(mine, theirs, 1_000.0 * MS, longer(100.0)))
    assert (found.name, found.effect) == ("slow-calloc", pytest.approx(0.1))
    (less,) = find(Two(mine, theirs, 1_000.0 * MS, longer(100.0), saved_ns=40.0 * MS))
    assert less.effect == pytest.approx(0.06)
    assert find(Two(mine, theirs, 1_000.0 * MS, longer(100.0), saved_ns=110.0 * MS)) == ()


def test_only_the_larger_of_two_causes_is_named() -> None:
    """By the timed operations, freeing takes 60 ms longer and new memory takes 20 ms longer."""
    found = find(Two(slow(free=5.0, new=6.0), slow(), 100.0 * MS, longer(40.0)))
    assert [one.name for one in found] == ["slow-free"]
    assert found[0].effect == pytest.approx(0.3)


def test_an_effect_below_one_percent_is_no_finding() -> None:
    assert find(Two(slow(free=2.0), slow(), 100_000.0 * MS, longer(50.0))) == ()


def test_the_effect_is_at_most_the_additional_time_of_the_allocators_own_code() -> None:
    (found,) = find(Two(slow(free=9.0), slow(), 100.0 * MS, longer(5.0)))
    assert found.effect == found.interval.high == pytest.approx(0.05)


def test_the_effects_are_as_uncertain_as_the_time_of_the_allocators_own_code() -> None:
    """The timed operations take 180 ms longer: a third in freeing, two thirds in new memory.

    But the allocator's own code takes only 6 ms longer, with an interval from 2 to 10 ms. The
    effects are parts of this time and have the same relative error.
    """
    mine, theirs = slow(free=5.0, new=31.0), slow()
    assert sum(one.total_ns or 0 for one in mine[0].kinds.values()) - 33.0 * MS == pytest.approx(
        180.0 * MS
    )
    found = find(Two(mine, theirs, 100.0 * MS, longer(6.0, 4.0)))
    assert [one.name for one in found] == ["slow-new", "slow-free"]
    assert [one.effect for one in found] == pytest.approx([0.04, 0.02])
    assert [one.interval.low for one in found] == pytest.approx([0.04 / 3, 0.02 / 3])
    assert [one.interval.high for one in found] == pytest.approx([0.2 / 3, 0.1 / 3])


def test_a_kind_that_is_faster_does_not_increase_the_effect_of_the_others() -> None:
    """Freeing takes 60 ms longer, new memory takes 60 ms longer, and reuse takes 14 ms less.

    The allocator's own code takes 12 ms longer. So both effects together must not exceed 12 ms.
    """
    found = find(Two(slow(free=5.0, new=16.0, reused=0.0), slow(), 100.0 * MS, longer(12.0)))
    assert sorted(one.name for one in found) == ["slow-free", "slow-new"]
    assert [one.effect for one in found] == pytest.approx([0.06, 0.06])


def test_one_very_long_operation_neither_hides_nor_makes_a_finding() -> None:
    """In one trial, freeing takes 30 times as long, because the machine stood still in one free."""
    stood = [*slow()[1:], *slow(free=30.0)[:1]]
    (found,) = find(Two(slow(free=5.0), stood, 100.0 * MS, longer(60.0)))
    assert found.name == "slow-free"
    assert find(Two(stood, slow(), 100.0 * MS, longer(60.0))) == ()


def test_a_kind_that_was_never_timed_hides_no_finding_if_it_is_rare() -> None:
    def with_rare(accounts: list[ProbeSummary], count: int) -> list[ProbeSummary]:
        rare = {"realloc": Operations(count, 0, None, None)}
        return [replace(one, kinds={**one.kinds, **rare}) for one in accounts]

    for count, names in ((2, ["slow-free"]), (3_000_000, [])):
        two = Two(
            with_rare(slow(free=3.0), count), with_rare(slow(), count), 100.0 * MS, longer(30.0)
        )
        assert [one.name for one in find(two)] == names


def bump(count: int, timed: int, rounds: int = 8) -> list[ProbeSummary]:
    """Returns eight summaries of an allocator that gets new memory for nearly each block.

    In the first `rounds` of them, it reuses `count` blocks, of which `timed` are timed. Each takes
    5 ns.
    """
    usual = an_account().kinds
    made = usual["reused"]
    kinds = {
        "new": Operations(1_500_000, 6_000, 22.5 * MS, 12.0),
        "free, local": usual["free, local"],
    }
    reused = {"reused": replace(made, count=count, timed=timed, total_ns=5.0 * count)}
    return [an_account(kinds=kinds | reused)] * rounds + [an_account(kinds=kinds)] * (8 - rounds)


@pytest.mark.parametrize(
    ("count", "timed", "rounds", "names"),
    [
        (0, 0, 0, []),
        (1_400_000, 6_000, 7, []),
        # Two timed operations in each of eight rounds are too few.
        (200, 2, 8, []),
        (200, 4, 8, ["slow-reuse"]),
        (1_400_000, 6_000, 8, ["slow-reuse"]),
    ],
)
def test_operations_that_the_other_allocator_never_makes_are_not_slow(
    count: int, timed: int, rounds: int, names: list[str]
) -> None:
    """Reuse once took "25.8 ns on average against 0 ns" of an allocator that never reuses."""
    found = find(Two(slow(reused=2.0), bump(count, timed, rounds), 100.0 * MS, longer(20.0)))
    assert [one.name for one in found] == names
    if found:
        assert "20.0 ns on average against 5.00 ns" in found[0].evidence[0]


def test_reuse_is_a_part_of_the_gap_to_an_allocator_that_never_reuses() -> None:
    """Freeing takes 15 ms longer. 1.4 million blocks are reused at 30 ns each.

    The other allocator gets new memory for them at 15 ns each, so this takes 21 ms longer. 100,000
    blocks of new memory take 40 ns each, and so 2.5 ms longer. This is the gap of 38.5 ms, of which
    freeing is 15 ms.
    """
    mine = slow(free=2.0, reused=3.0)
    (found,) = find(Two(mine, bump(0, 0, 0), 100.0 * MS, longer(38.5)))
    assert found.name == "slow-free"
    assert found.effect == pytest.approx(0.15, rel=0.01)


def test_operations_that_were_not_timed_have_no_finding() -> None:
    kinds = {name: replace(one, total_ns=None) for name, one in an_account().kinds.items()}
    assert find(Two([an_account(kinds=kinds)] * 8, slow(), 100.0 * MS, longer(50.0))) == ()


def test_waiting_for_other_threads_is_no_slow_path() -> None:
    """Once, `slow-path` was named before `queues` under a global lock, where threads only wait.

    By the sum of their times, the operations take 66 ms instead of 33 ms. But in the first case,
    threads slept for 20 ms, spun for 8 ms, and woke other threads for 5 ms. So the medians count
    instead, and these are as before. In the second case, threads neither slept nor spun.
    """
    twice = slow(new=2.0, reused=2.0, free=2.0)[0]
    for slept_ms, names in ((20.0, []), (0.0, ["slow-path"])):
        woken = {WAKING: Calls(900, None, 5.0 * MS)}
        waits = replace(twice, waiting_ns=slept_ms * MS, spun_ns=0.4 * slept_ms * MS, calls=woken)
        found = find(Two([waits] * 8, slow(), 100.0 * MS, longer(33.0)))
        assert [one.name for one in found] == names


def test_a_kind_without_a_median_is_not_compared_if_threads_wait() -> None:
    """Its median once counted as 0 ns, so the other allocator was slow against nothing."""
    kinds = dict(an_account().kinds)
    kinds["realloc"] = Operations(200_000, 8, 20.0 * MS, None)
    waits = an_account(kinds=kinds, waiting_ns=30.0 * MS)
    calm = an_account(kinds=kinds)
    assert find(Two([calm] * 8, [waits] * 8, 100.0 * MS, longer(20.0))) == ()
    slower = dict(kinds) | {"realloc": Operations(200_000, 8, 40.0 * MS, None)}
    found = find(Two([an_account(kinds=slower)] * 8, [calm] * 8, 100.0 * MS, longer(20.0)))
    assert [one.name for one in found] == ["slow-realloc"]


def test_spinning_is_no_slow_work_of_the_allocators_code() -> None:
    """The allocator's own code takes 40 ms longer. In 30 of these 40 ms, the threads spin.

    By the medians, reuse takes 36.4 ms longer, freeing 39 ms, and new memory 8 ms.
    """
    took = {
        name: replace(o, total_ns=4 * (o.total_ns or 0), median_ns=4 * (o.median_ns or 0))
        for name, o in an_account().kinds.items()
    }
    spinning = looked_at(trials("fast", 130.0, kinds=took, spun_ns=30.0 * MS), own=140)
    samples = [*looked_at(trials("system")), *spinning]
    (found,) = explain(why_run("fast"), samples, "fast", "system").findings
    assert found.name == "slow-path" and found.effect * 150 == pytest.approx(
        10.0 * 75.4 / 83.4, rel=0.01
    )


def test_a_difference_that_may_be_noise_is_no_finding() -> None:
    mine = [*slow(free=8.0)[:1], *slow()[:7]]
    assert find(Two(mine, slow(), 100.0 * MS, longer(50.0))) == ()


def calling(ms: float, detours_ms: float) -> list[ProbeSummary]:
    """Returns eight summaries in which reuse takes `ms` longer, all of it in system calls."""
    usual = an_account().kinds
    made = usual["reused"]
    calls = replace(
        made,
        total_ns=(made.total_ns or 0.0) + ms * MS,
        kernel_ns=ms * MS,
        detours_ns=detours_ms * MS,
    )
    return [an_account(kinds=usual | {"reused": calls})] * 8


def test_system_calls_are_no_slow_work_of_the_operations_that_make_them() -> None:
    """One system call in each malloc was once told as "this one searches, tries again, …"."""
    assert find(Two(calling(50.0, 0.0), slow(), 100.0 * MS, longer(20.0))) == ()
    work = slow(reused=3.0)[0].kinds["reused"]
    kinds = {**an_account().kinds, "reused": replace(work, kernel_ns=1.0 * MS)}
    (found,) = find(Two([an_account(kinds=kinds)] * 8, slow(), 100.0 * MS, longer(28.0)))
    assert found.name == "slow-reuse" and "29.3 ns on average against 10.0 ns" in found.evidence[0]


def test_operations_shorter_than_the_interception_of_their_system_calls_have_no_time() -> None:
    """The probe makes a system call some hundred times as long as an operation without one."""
    for detours_ms, own_ms in ((13.0, 14.0), (15.0, None)):
        (one,) = (of.kinds["reused"] for of in calling(50.0, detours_ms)[:1])
        assert one.own_ns == (None if own_ms is None else pytest.approx(own_ms * MS))
    longest = replace(calling(50.0, 90.0)[0].kinds["reused"], total_ns=200.0 * MS)
    assert longest.own_ns == pytest.approx(150.0 * MS)
    slowest = replace(longest, detours_ns=151.0 * MS)
    for one, names in ((longest, ["slow-reuse"]), (slowest, [])):
        mine = [an_account(kinds={**an_account().kinds, "reused": one})] * 8
        found = find(Two(mine, slow(), 400.0 * MS, longer(136.0)))
        assert [each.name for each in found] == names


@pytest.mark.parametrize(
    ("total_ms", "kernel_ms", "told"),
    [
        (44.0, 0.0, True),  # 29 ms longer, as the clock says
        (73.0, 0.0, True),  # 58 ms longer: twice as long as the clock says
        (74.0, 0.0, False),
        (1_044.0, 1_000.0, True),
        (1_044.0, 1_028.0, False),  # 1 ms longer, which is too little to be evidence
    ],
)
def test_the_times_of_operations_are_evidence_only_if_they_fit_their_part(
    total_ms: float, kernel_ms: float, told: bool
) -> None:
    """2.00 M operations of 1.33 µs were once the evidence for a part of 586 ms."""
    took = Operations(1_500_000, 6_000, total_ms * MS, 9.0, kernel_ms * MS)
    kinds = an_account().kinds | {"free, local": took}
    mine = looked_at(trials("fast", 119.0, kinds=kinds), own=118)
    own = part(gap([*looked_at(trials("system")), *mine]), OWN)
    assert own.change == pytest.approx(29 * MS)
    assert bool(own.evidence) == told
    if told:
        assert f"{(total_ms - kernel_ms) / 1.5:.3g} ns" in own.evidence[0]
