"""Tests of the finding that threads queue in the allocator, in `compare --why`.

The runs are invented.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.gaps import MS, looked_at, trials, why_run

from cairn.findings.kernel import PAGE_BYTES, WAITS_ALONE
from cairn.model import Calls, Finding, Interval
from cairn.report.why import sentences
from cairn.why.causes import causes
from cairn.why.gap import explain


def queueing(effect: float, threads_ms: float = 0.0, **calls: Calls) -> list[Finding]:
    """Returns the findings for a contender whose probed runs have the finding "queues".

    `effect` is the share of thread time that this finding claims. `threads_ms` is the life time of
    all threads, 0 if it is not known. `calls` are the allocator's system calls in the probed runs.
    In the plain runs, the clock samples stand for 109 ms: 30 ms in the allocator's code, 44 ms in
    its system calls, and the rest elsewhere.
    """
    found = Finding(
        "queues",
        "Threads wait",
        "thread time",
        effect,
        "another",
        Interval(effect, effect, 0.95),
        ("7 waits",),
    )
    known = {name.replace("_", " "): one for name, one in calls.items()}
    samples = looked_at(
        trials("system", findings=(found,), calls=known, threads_ns=threads_ms * MS),
        own=60,
        calls=88,
        faults=0,
        others=0,
        program=70,
    )
    why = explain(why_run("fast"), [*samples, *looked_at(trials("fast", 80.0))], "fast", "system")
    return [one for name, one in why.raised if name == "system"]


@pytest.mark.parametrize(
    ("name", "of", "effect", "limited"),
    [
        ("calls-the-kernel", "CPU", 0.8, 88 / 218),
        ("asks-too-often", "CPU", 0.1, 0.1),
        ("returns-what-it-needs", "CPU", 0.8, 88 / 218),
        ("yields", "CPU", 0.8, 88 / 218),
        # This finding is not limited, because it is about the time in which threads wait.
        ("waits-alone", "thread time", 0.8, 0.8),
    ],
)
def test_system_calls_cost_no_more_than_the_plain_runs_spend_in_them(
    name: str, of: str, effect: float, limited: float
) -> None:
    """Once, `calls-the-kernel` claimed 83 % of CPU time on a busy machine.

    But the change that the finding advised saved only 60 %.
    """
    found = Finding(name, "It calls", of, effect, "another")  # type: ignore[arg-type]
    samples = looked_at(
        trials("system", findings=(found,)), own=60, calls=88, faults=0, others=0, program=70
    )
    why = explain(why_run("fast"), [*samples, *looked_at(trials("fast", 80.0))], "fast", "system")
    (one,) = [one for whose, one in why.raised if whose == "system"]
    assert one.effect == pytest.approx(limited, rel=2e-2)


@pytest.mark.parametrize(
    ("name", "measured", "resident", "changed", "faults", "limited"),
    [
        # The page faults of the program count, and a fifth of their time may be elsewhere.
        ("returns-what-it-needs", False, None, 1_400, 40, 40 + 20 * 1.2),
        ("changes-protection", False, None, 1_400, 40, 40 + 20 * 1.2),
        # Half of the page faults are those of changed pages, and half are first touches.
        ("returns-what-it-needs", False, None, 700, 40, 40 + 20 * 1.2 / 2),
        ("changes-protection", False, 700, 1_400, 40, 40 + 20 * 1.2 / 2),
        # No sample came in a page fault. Of 1,440 samples, up to 3.8 can be missing by chance.
        ("returns-what-it-needs", False, None, 1_400, 0, 40 + 110 * 3.83 / 1_444),
        ("changes-protection", True, None, 1_400, 40, 40),
        ("not-reused", True, None, 1_400, 40, 110),
    ],
)
def test_findings_about_page_faults_take_no_more_than_their_page_faults_in_the_plain_runs(
    name: str, measured: bool, resident: int | None, changed: int, faults: int, limited: float
) -> None:
    """Of 110 ms, the plain runs spend 40 ms in the allocator's calls, and 20 ms in page faults.

    There are 1,400 page faults. `resident` is the number of pages in the largest resident set, and
    `changed` the number of those that the allocator returned or protected. Once, all page faults
    counted. If no sample came in any of them, there was once no limit at all.
    """
    found = Finding(
        name, "It calls", "CPU", 1.0, "another", Interval(0.1, 1.0, 0.95), measured=measured
    )
    call = "mprotect" if name == "changes-protection" else "munmap"
    known = {
        "calls": {call: Calls(1_000, changed * PAGE_BYTES, 6.0 * MS)},
        "resident_bytes": None if resident is None else resident * PAGE_BYTES,
    }
    samples = looked_at(
        trials("system", findings=(found,), **known),
        own=60, calls=80, faults=faults, others=0, interrupts=0, program=40 - faults,
    )  # fmt: skip
    why = explain(why_run("fast"), [*samples, *looked_at(trials("fast", 80.0))], "fast", "system")
    (one,) = [one for whose, one in why.raised if whose == "system"]
    assert one.effect == pytest.approx(limited / 110, rel=1e-3)
    assert one.interval is not None
    assert (one.interval.low, one.interval.high) == (0.1, one.effect)


def test_each_finding_gets_its_part_of_the_system_calls_of_the_plain_runs() -> None:
    """The plain runs spend 40 of 110 ms in system calls. In the probed runs, these take 24 ms.

    18 of the 24 ms are in mprotect. Each of the two findings once got all 40 ms.
    """
    found = tuple(
        Finding(name, "It calls", "CPU", 0.9, "another", Interval(0.9, 0.9, 0.95))
        for name in ("changes-protection", "calls-the-kernel")
    )
    known = {"mprotect": Calls(9_000, 0, 18.0 * MS), "other": Calls(6_000, None, 6.0 * MS)}
    samples = looked_at(
        trials("system", findings=found, calls=known),
        own=60, calls=80, faults=0, others=0, program=80,
    )  # fmt: skip
    why = explain(why_run("fast"), [*samples, *looked_at(trials("fast", 80.0))], "fast", "system")
    effects = {one.name: one.effect * 110 for whose, one in why.raised if whose == "system"}
    assert effects == pytest.approx({"changes-protection": 30, "calls-the-kernel": 10}, rel=1e-3)


def test_yields_are_no_queue() -> None:
    """Threads yield, which takes 40 % of the CPU time of the plain runs. Few of them wait."""
    known = {
        "sched_yield": Calls(90_000, None, 60 * MS, 60 * MS),
        "futex wait": Calls(4_000, None, 3 * MS, 1 * MS),
    }
    system = looked_at(
        trials("system", calls=known, waits=94_000),
        own=60, calls=88, faults=0, others=0, program=70,
    )  # fmt: skip
    found = explain(why_run("fast"), [*system, *looked_at(trials("fast", 80.0))], "fast", "system")
    assert found.raised == ()


def test_the_clock_samples_decide_how_much_threads_queue_if_they_show_more() -> None:
    (one,) = queueing(
        0.16,
        futex_wait=Calls(5, 0, 9 * MS, 2.0 * MS),
        futex_wake=Calls(5, 0, 1.0 * MS, 1.0 * MS),
        brk=Calls(1, 0, 1.0 * MS),
    )
    assert one.effect == pytest.approx(0.4 * 3 / 4, rel=1e-2)
    assert (one.of, one.interval, one.evidence[0]) == ("CPU", None, "7 waits")
    assert "own code it is 67.3 %" in one.evidence[1]


def test_shares_of_cpu_time_replace_no_larger_share_of_thread_time() -> None:
    """Threads wait for 16 % of their time. In the plain runs, 40 % of CPU time are in these calls.

    The CPU time of the threads is all their time in the first case, half of it in the second, and a
    tenth of it in the third, where the 40 % are only 4 % of their time.
    """
    waits = {"futex_wait": Calls(5, 0, 9 * MS, 2.0 * MS)}
    for threads_ms in (110.0, 220.0):
        (one,) = queueing(0.16, threads_ms, **waits)
        assert (one.of, one.effect) == ("CPU", pytest.approx(0.4, rel=1e-2))
        assert one.evidence[1].startswith("In the plain runs, system calls that wait or wake")
        assert "take this share; together" in one.evidence[1]
    (one,) = queueing(0.16, 1_100.0, **waits)
    assert (one.of, one.effect, one.interval) == ("thread time", 0.16, Interval(0.16, 0.16, 0.95))
    assert "take 40.0 % of the CPU time; together" in one.evidence[1]


@pytest.mark.parametrize(("calls", "kept"), [(4, False), (5, True)])
def test_a_finding_of_which_the_plain_runs_leave_nearly_nothing_is_none(
    calls: int, kept: bool
) -> None:
    """The probed runs show 4 % of CPU time in system calls. The plain runs show 1.8 or 2.3 %.

    "0 % of CPU" was once printed as a finding.
    """
    found = Finding("asks-too-often", "It asks", "CPU", 0.04, "another")
    samples = looked_at(
        trials("system", findings=(found,)), own=60, calls=calls, faults=0, others=0, program=150
    )
    why = explain(why_run("fast"), [*samples, *looked_at(trials("fast", 80.0))], "fast", "system")
    assert [name for name, _ in why.raised if name == "system"] == ["system"] * kept
    assert any("It asks" in text for text in sentences(why)) is kept


def test_the_clock_samples_do_not_reduce_the_queues_of_the_probed_runs() -> None:
    (one,) = queueing(0.5, futex_wait=Calls(5, 0, 9 * MS, 2.0 * MS))
    assert one.effect == 0.5 and one.evidence == ("7 waits",)
    # Without a system call in the probed runs, the clock samples do not raise the effect.
    assert queueing(0.16)[0].effect == 0.16


@pytest.mark.parametrize(
    ("waits", "calls", "queue"),
    [(3000, 20, True), (30, 20, False), (30, 40, True), (3000, 8, False)],
)
def test_queues_that_the_probe_prevents_are_found_by_the_clock_samples(
    waits: int, calls: int, queue: bool
) -> None:
    """The program makes 3 million operations. `waits` of them waited in the probed runs.

    `calls` clock samples are in system calls that wait, and 204 are elsewhere. So the calls have 9
    % (20), 16 % (40) or 4 % (8) of all samples.
    """
    known = {"futex wait": Calls(waits, 0, 9 * MS, 2.0 * MS)}
    system = looked_at(
        trials("system", calls=known, waits=waits),
        own=60,
        calls=calls,
        faults=0,
        others=0,
        program=140,
    )
    found = explain(why_run("fast"), [*system, *looked_at(trials("fast", 80.0))], "fast", "system")
    assert [(name, one.name) for name, one in found.raised] == [("system", "queues")] * queue


def test_a_single_thread_never_queues() -> None:
    """Nearly all CPU time is in a system call that waits, but the program has only one thread."""
    alone = Finding(WAITS_ALONE, "It waits", "CPU", 0.3, "another")
    known = {"sched_yield": Calls(90_000, 0, 60 * MS, 60 * MS)}
    system = looked_at(
        trials("system", findings=(alone,), calls=known, waits=90_000),
        own=10,
        calls=200,
        faults=0,
        others=0,
        program=10,
    )
    found = explain(why_run("fast"), [*system, *looked_at(trials("fast", 80.0))], "fast", "system")
    assert [one.name for _, one in found.raised] == [WAITS_ALONE]


def test_a_lone_thread_does_not_queue_although_its_finding_is_dropped() -> None:
    """Its waits take 3 % of the CPU time of the probed runs, and 1.8 % of that of the plain runs."""
    alone = Finding(WAITS_ALONE, "It waits", "CPU", 0.03, "another")
    known = {"sched_yield": Calls(90_000, 0, 60 * MS, 60 * MS)}
    system = looked_at(
        trials("system", findings=(alone,), calls=known, waits=90_000),
        own=10, calls=4, faults=0, others=0, program=200,
    )  # fmt: skip
    found = explain(why_run("fast"), [*system, *looked_at(trials("fast", 80.0))], "fast", "system")
    assert found.raised == ()


def test_a_share_of_cpu_time_is_not_reduced_by_a_share_of_thread_time() -> None:
    """Under one allocator, waits take 40 % of the CPU time. This is 10 % of the threads' time.

    Under the other, they take 8 % of the threads' time. So one has 2 % more.
    """
    of_cpu = Finding("queues", "Threads wait", "CPU", 0.4, "another")
    of_time = replace(of_cpu, of="thread time", effect=0.08)
    samples = [
        *trials("system", findings=(of_cpu,), threads_ns=440.0 * MS),
        *trials("fast", 80.0, findings=(of_time,), threads_ns=400.0 * MS),
    ]
    why = explain(why_run("fast"), samples, "fast", "system")
    (one,) = [each for each in causes(why, "system") if each.finding]
    assert (one.of, one.effect) == ("thread time", pytest.approx(0.02, rel=1e-2))
    assert [each for each in causes(why, "fast") if each.finding] == []


def test_shares_of_cpu_time_and_of_thread_time_are_compared_in_one_unit() -> None:
    """A slow path takes 40 % of the CPU time, and waiting takes 22 % of the time of all threads.

    The threads together live for 440 ms, but use only 110 ms of CPU time. So the slow path takes
    only 10 % of the time of the threads, and the waiting must be named first.
    """
    waits = Finding("queues", "Threads wait", "thread time", 0.22, "another")
    calls = Finding("returns-what-it-needs", "It returns", "CPU", 0.4, "another")
    known = {"findings": (waits, calls), "threads_ns": 440.0 * MS}
    samples = [*trials("system", **known), *trials("fast", 80.0)]
    found = explain(why_run("fast"), samples, "fast", "system")
    ordered = [(one.name, one.effect) for one in causes(found, "system") if one.finding]
    assert ordered == [("queues", 0.22), ("returns-what-it-needs", 0.4)]
    told = [text for text in sentences(found) if text.startswith("▲")]
    assert ["wait" in text for text in told] == [True, False]
    alone = [*trials("system", **(known | {"findings": (calls,)})), *trials("fast", 80.0)]
    only, *_ = causes(explain(why_run("fast"), alone, "fast", "system"), "system")
    assert only.rank == only.effect == 0.4


@pytest.mark.parametrize(("waits", "queue"), [(0, False), (300, False), (3000, True)])
def test_wakes_count_only_as_far_as_threads_wait(waits: int, queue: bool) -> None:
    """The allocator wakes threads of its own 3,000 times. This takes 20 % of CPU time.

    Threads were once said to wait for each other although there was not one wait.
    """
    known = {"futex wake": Calls(3_000, 0, 9 * MS, 9 * MS)}
    if waits:
        known["futex wait"] = Calls(waits, 0, 1 * MS, 0.0)
    system = looked_at(
        trials("system", calls=known, waits=waits),
        own=60, calls=44, faults=0, others=0, program=116,
    )  # fmt: skip
    found = explain(why_run("fast"), [*system, *looked_at(trials("fast", 80.0))], "fast", "system")
    assert [(name, one.name) for name, one in found.raised] == [("system", "queues")] * queue
