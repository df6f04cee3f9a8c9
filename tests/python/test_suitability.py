"""Tests of the judgement whether a program can tell anything about allocators."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.comparisons import a_sample

from cairn.compare import suitability
from cairn.model import Sample, Settings, Workload
from cairn.run import batches

SETTINGS = Settings(workloads=(Workload("prog", ("/usr/bin/prog", "x")),), folder="/")


def warm_up(wall_ms: float, **more: object) -> list[Sample]:
    return [a_sample(0, name, wall_ms, **more) for name in ("system", "fast")]


def before(samples: list[Sample], settings: Settings = SETTINGS) -> list[str]:
    return [one.sentence for one in suitability.before_rounds(samples, "system", settings)]


def test_an_ordinary_program_is_fine() -> None:
    assert before(warm_up(50)) == []
    assert suitability.after_round([a_sample(1, "system", 50)], "system") == ()


@pytest.mark.parametrize(("wall_ms", "hopeless"), [(0.9, True), (99, True), (101, False)])
def test_processes_in_the_background_are_named(wall_ms: float, hopeless: bool) -> None:
    (found, *_) = suitability.before_rounds(warm_up(wall_ms, left_behind=1), "system", SETTINGS)
    assert found.hopeless is hopeless
    assert "but 1 of its processes went on in the background" in found.says
    (found, *_) = suitability.before_rounds(warm_up(wall_ms, left_behind=3), "system", SETTINGS)
    assert "but 3 of its processes went on" in found.says


def test_a_process_that_is_left_behind_in_one_run_of_several_is_no_daemon() -> None:
    first, second = warm_up(50, left_behind=1)
    assert before([first, replace(second, left_behind=0)]) == []


def test_whoever_waits_for_descendants_leaves_none_behind() -> None:
    waits = replace(SETTINGS, wait_descendants=True)
    assert before(warm_up(50, left_behind=1), waits) == []


@pytest.mark.parametrize(
    ("program", "option"),
    [("/usr/sbin/nginx", "-g 'daemon off;'"), ("sshd", "-D"), ("./own", "often --foreground")],
)
def test_the_advice_names_the_option_of_a_known_server(program: str, option: str) -> None:
    settings = replace(SETTINGS, workloads=(Workload("w", (program,)),))
    (found,) = before(warm_up(200, left_behind=1), settings)
    assert f"({option})" in found


def test_a_batch_of_a_single_run_is_as_short_as_its_run() -> None:
    """With --repeat auto nothing was said, also if it chose one run for each number."""
    auto = replace(SETTINGS, repeat=None)
    says = (
        "A run takes less than 20 ms, and the start of the process is part of that. Give the "
        "program more work, or use --repeat N: then each number is the mean of several runs."
    )
    one = [a_sample(round_, "system", 12.0) for round_ in (1, 2, 3)]
    assert suitability.sentences(one, "system", auto) == (says,)
    several = [replace(sample, repeats=2) for sample in one]
    for settings in (auto, replace(SETTINGS, repeat=2)):
        assert suitability.sentences(several, "system", settings) == ()
        assert before(warm_up(12.0), settings) == [], "the batches follow"


def test_a_short_run_is_named_with_its_time() -> None:
    (found,) = before(warm_up(1.3))
    assert found.startswith("A run takes less than 20 ms,") and "--repeat auto" in found
    assert before(warm_up(20)) == []
    assert before(warm_up(1.3), replace(SETTINGS, repeat=None)) == []
    assert before(warm_up(1.3), replace(SETTINGS, repeat=5)) == []
    assert before(warm_up(1.3), replace(SETTINGS, reports=True)) == [], "a built-in workload"


@pytest.mark.parametrize(
    ("busy_ms", "waits"), [(0.1, True), (2, True), (20, True), (21, False), (400, False)]
)
def test_a_program_that_waits_is_named_with_the_bound_of_its_share(
    busy_ms: float, waits: bool
) -> None:
    """The sentence comes twice. "18 %" and "19 %" were once two numbers for one quantity."""
    used = round(busy_ms * 1e6)
    of = [a_sample(1, name, 100, user_ns=used, system_ns=0) for name in ("system", "fast")]
    found = [one.says for one in suitability.after_round(of, "system")]
    says = "The program used at most 20 % of one CPU: it mostly waits, so no allocator makes it "
    assert found == ([f"{says}much faster."] if waits else [])


@pytest.mark.parametrize(
    ("queued_ms", "waits"), [(None, True), (0, True), (40, True), (60, False), (500, False)]
)
def test_a_program_that_other_programs_keep_from_a_cpu_does_not_wait(
    queued_ms: float | None, waits: bool
) -> None:
    """Once, Cairn said that a computing program waits, because it got only 16 % of a busy CPU."""
    queued = None if queued_ms is None else round(queued_ms * 1e6)
    of = [
        a_sample(1, name, 100, user_ns=10_000_000, system_ns=0, queued_ns=queued)
        for name in ("system", "fast")
    ]
    assert bool(suitability.after_round(of, "system")) == waits
    assert suitability.machine_is_busy(of, "system") == (not waits)


def test_the_threads_of_a_program_that_queue_behind_each_other_are_no_busy_machine() -> None:
    of = [a_sample(1, "system", 100, user_ns=190_000_000, system_ns=0, queued_ns=600_000_000)]
    assert suitability.cpu_share(of) == pytest.approx(1.9)
    assert not suitability.machine_is_busy(of, "system")


def test_the_warm_up_may_wait_for_cold_files() -> None:
    cold = a_sample(0, "system", 900, user_ns=1, system_ns=0)
    assert suitability.after_round([cold, a_sample(1, "system", 100)], "system") == ()


def test_runs_that_failed_are_no_evidence() -> None:
    assert before(warm_up(1, left_behind=1, failure="failed with exit code 1")) == []


@pytest.mark.parametrize(
    "message",
    [
        "top: failed tty get",
        "the input device is not a TTY",
        "stdin isn't a terminal",
        "Error opening terminal: unknown.",
        "sh: cannot open /dev/tty: No such device or address",
        "TERM environment variable not set.",
        "tput: Inappropriate ioctl for device",
        "Vim: Error reading input, exiting...",
        "This program must be run in a terminal",
        "dialog requires a terminal",
    ],
)
def test_messages_of_programs_without_a_terminal_are_recognised(message: str) -> None:
    assert suitability.needs_terminal(f"first line\n{message}\n")


@pytest.mark.parametrize(
    "message", ["", "Terminal velocity reached", "tty0 is busy", "no such file"]
)
def test_other_messages_are_not(message: str) -> None:
    assert not suitability.needs_terminal(message)


@pytest.mark.parametrize(
    ("wall_ns", "number"),
    [(0, 1), (1e3, 50), (1e6, 20), (7e6, 3), (19.9e6, 2), (20e6, 1), (1e9, 1)],
)
def test_a_batch_is_as_long_as_a_run_that_is_not_short(wall_ns: float, number: int) -> None:
    assert batches.wanted(wall_ns) == number


def test_a_batch_is_the_mean_of_its_runs() -> None:
    runs = [
        a_sample(
            1, "system", wall, counters={"cycles": wall, "gone": None}, metrics={"rate": 2 * wall},
            left_behind=wall == 3, endings={"prog": {"exit 0": wall}},
        )
        for wall in (1, 2, 3)
    ]  # fmt: skip
    one = batches.merged(runs)
    assert (one.wall_ns, one.user_ns, one.repeats) == (2_000_000, 1_600_000, 3)
    assert one.counters == {"cycles": 2, "gone": None} and one.metrics == {"rate": 4}
    assert one.endings == {"prog": {"exit 0": 6}}
    assert one.left_behind == 1 and one.failure is None and one.trial == runs[0].trial


def test_a_batch_takes_the_median_peak() -> None:
    base = a_sample(1, "system", 1)
    runs = [replace(base, memory=replace(base.memory, peak_bytes=n)) for n in (1, 5, 900)]
    assert batches.merged(runs).memory.peak_bytes == 5
    unknown = replace(base, memory=replace(base.memory, peak_bytes=None))
    assert batches.merged([*runs, unknown]).memory.peak_bytes == 5
    assert batches.merged([runs[2], unknown]).memory.peak_bytes == 900
    assert batches.merged([runs[2], unknown, unknown]).memory.peak_bytes is None


def test_a_batch_with_a_wrong_output_has_another_digest_than_any_output() -> None:
    """A batch once had the digest of its first run, so the outputs of the others were unchecked."""
    base = a_sample(1, "system", 1)
    good, bad = replace(base, output_digest="good"), replace(base, output_digest="bad")
    assert batches.merged([good, good]).output_digest == "good"
    assert batches.merged([base, base]).output_digest is None
    for order in ([good, good, bad], [bad, good, good]):
        assert batches.merged(order).output_digest not in ("good", "bad", None)


def test_a_batch_fails_with_its_first_run_that_failed() -> None:
    good, bad = a_sample(1, "system", 1), a_sample(1, "system", 2, failure="failed")
    assert batches.merged([good, bad]) is bad
    assert batches.merged([good]) is good
