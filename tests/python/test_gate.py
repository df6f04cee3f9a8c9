"""Tests of the answers of a check, on invented runs, and of its options."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from msgspec.structs import replace
from rich.console import Console
from support.comparisons import a_run, a_sample, compared
from support.widths import at_all_widths

from cairn.cli import check, check_plan, cli, json_schema
from cairn.compare import gate, rounds_needed, stats, stopping
from cairn.compare.gate import Checked, GateState
from cairn.errors import CairnError
from cairn.gate import Gate, GateBound, InstructionCount
from cairn.memory import Memory
from cairn.model import Contender, Run, Sample, StopRule
from cairn.report import check as reporting
from cairn.report.check import CheckReport
from cairn.report.view import View

OLD, NEW = (
    Contender(name, "system", "glibc 2.36", program=(f"./{name}",)) for name in ("old", "new")
)
BOTH = ("-p", "old=/bin/true", "-p", "new=/bin/false")


def samples(
    rounds: int, time: float, noise: float, peak: float = 1.0, seed: int = 1
) -> list[Sample]:
    """Returns runs of an old and a new build.

    The new build takes `time` times as long, and `peak` times as much memory.
    """
    rng = random.Random(seed)
    found = []
    for round_ in range(1, rounds + 1):
        for name, factor, more in (("old", 1.0, 1.0), ("new", time, peak)):
            memory = Memory("cgroup v1", int(1e8 * more), int(1e8 * more), 0)
            wall = 100 * factor * (1 + rng.gauss(0, noise))
            found.append(a_sample(round_, name, wall, memory=memory))
    return found


def a_check(
    bounds: Sequence[str],
    of: Sequence[Sample],
    counts: Sequence[InstructionCount] = (),
    rule: StopRule | None = None,
    stopped: str | None = "12 rounds",
    **more: Any,
) -> CheckReport:
    run = replace(
        a_run(OLD, NEW), baseline="old", rule=rule or StopRule(None, 12, 12),
        gate=Gate(tuple(map(check.parse_bound, bounds))),
    )  # fmt: skip
    checked = gate.judge(run, of, stopped, counts)
    comparison: Any = compared(run, list(of)) if of else None
    return CheckReport(
        run, tuple(of), comparison, checked, tuple(counts), stopped, names=("old", "new"), **more
    )


def states(report: CheckReport) -> list[str]:
    return [one.state.value for one in report.checked]


def test_a_bound_is_decided_by_the_whole_interval() -> None:
    worse = a_check(["time>3%", "peak>2%"], samples(12, 1.10, 0.01))
    assert states(worse) == ["worse", "pass"] and worse.answer == "worse"
    assert states(a_check(["time>3%"], samples(12, 1.0, 0.01))) == ["pass"]
    near = a_check(["time>3%"], samples(12, 1.03, 0.02))
    assert states(near) == ["not enough data"]
    needed = near.checked[0].rounds_needed
    assert needed is None or needed > 12
    equal = a_check(["peak>0%"], samples(12, 1.0, 0.01))
    assert states(equal) == ["pass"], "equal numbers keep a bound of 0 %"


def test_several_bounds_share_the_error() -> None:
    of = samples(12, 1.05, 0.01)
    alone, among = (
        a_check(bounds, of).checked[0] for bounds in (["time>3%"], ["time>3%", "peak>2%", "cpu>3%"])
    )
    assert alone.level == 1 - 0.01 and among.level == pytest.approx(1 - 0.01 / 3)
    assert among.low is not None and alone.low is not None and among.low < alone.low
    exact = a_check(["time>3%", "instructions>1%"], of).checked[0]
    assert exact.level == alone.level, "instructions need no share of the error"


def test_a_check_that_stopped_early_uses_the_strict_error() -> None:
    rule = StopRule(min_rounds=12, max_rounds=400)
    of = samples(12, 1.10, 0.01)
    early, last = (
        a_check(["time>3%"], of, rule=rule, stopped=why).checked[0].level
        for why in (stats.PRECISE, "time budget")
    )
    assert (early, last) == (1 - gate.ERROR_EARLY, 1 - gate.ERROR_LAST)


def test_a_measure_without_numbers_is_not_known() -> None:
    of = [replace(one, system_ns=0) for one in samples(12, 1.0, 0.01)]
    of[0] = replace(of[0], system_ns=5)
    found = a_check(["system>3%", "idle-memory>3%"], of)
    assert states(found) == ["not known", "not known"] and found.answer == "not known"
    assert [one.problem for one in found.checked] == [
        "system time cannot be compared, since a run measured 0",
        "memory after idle was not measured",
    ]


def test_a_measure_that_one_build_lacks_was_not_measured() -> None:
    """The answer once was that a run measured 0."""
    of = [
        replace(one, memory=replace(one.memory, idle_bytes=5))
        if one.trial.contender == "old" else one
        for one in samples(12, 1.0, 0.01)
    ]  # fmt: skip
    (found,) = a_check(["idle-memory>3%"], of).checked
    assert found.problem == "memory after idle was measured under one of the builds only"


def test_a_measure_that_no_round_has_for_both_builds_needs_more_rounds() -> None:
    """The answer once was that a run measured 0."""
    of = lacking(samples(8, 1.0, 0.01), 2)
    nothing = Memory("cgroup v1", None, None, None)
    of = [
        replace(one, memory=nothing)
        if one.trial.round % 2 and one.trial.contender == "old"
        else one
        for one in of
    ]
    found = a_check(["peak>2%"], of, rule=StopRule(None, 8, 8))
    assert states(found) == ["not enough data"] and found.checked[0].measured_rounds == 0
    assert reporting.says(found)[0] == (
        "Not enough data: no round measured peak memory under both builds; give the program more "
        "work."
    )


@pytest.mark.parametrize("predict", ["gate", "comparison"])
def test_a_prediction_accounts_for_the_rounds_in_which_a_measure_is_missing(predict: str) -> None:
    """If every second round lacks the measure, about twice as many rounds are needed."""
    rng = random.Random(3)
    ratios = [rng.gauss(0.0, 0.05) for _ in range(12)]
    rule = StopRule(budget_s=60.0, max_rounds=2000)

    def likely(rounds: int) -> int:
        if predict == "gate":
            bounds = Gate((check.parse_bound("peak>3%"),))
            found = gate.forecast({"peak": ratios}, bounds, rule, rounds)
        else:
            found = rounds_needed.forecast({"new": ratios}, rule, rounds)
        assert found is not None
        return found.likely

    assert likely(24) == pytest.approx(2 * likely(12), rel=0.1)


def test_the_footer_says_what_shares_the_error() -> None:
    def footer(bounds: list[str], **more: object) -> str:
        return reporting.board(a_check(bounds, samples(12, 1.02, 0.05), **more)).footer[0]  # type: ignore[arg-type]

    looks = StopRule(budget_s=60.0)
    assert "with 99 % confidence ·" in footer(["time>3%"])
    assert "99.5 % confidence: 1 % error is shared over 2 bounds ·" in footer(["time>3%", "cpu>3%"])
    assert "is shared over the tests during measuring ·" in footer(["time>3%"], rule=looks)
    assert "over 2 bounds and the tests during" in footer(["time>3%", "cpu>3%"], rule=looks)


def test_counts_of_instructions_are_compared_by_their_range() -> None:
    def counted(*new: int) -> list[InstructionCount]:
        return [InstructionCount("old", (1000, 1000)), InstructionCount("new", new)]

    asked = ["instructions>0.5%"]
    for new, state in (
        ((1005, 1005), "pass"), ((1006, 1006), "worse"), ((1004, 1006), "not enough data"),
    ):  # fmt: skip
        assert states(a_check(asked, (), counted(*new))) == [state]
    found = a_check(asked, (), [InstructionCount("old", (5,)), InstructionCount("new", (), 0, "x")])
    assert found.checked[0].problem == "the instructions of new are not known: it x"


def test_a_check_stops_as_soon_as_it_is_decided() -> None:
    asked = Gate((GateBound("time", 0.03), GateBound("peak", 0.02)))
    rule = StopRule(min_rounds=12, max_rounds=30)
    run = replace(a_run(OLD, NEW), baseline="old", rule=rule, gate=asked)

    def looked(of: Sequence[Sample]) -> stats.Look:
        return gate.look(gate.deciding_ratios(run, of), asked, rule)

    assert looked(samples(12, 1.0, 0.005)).because == stats.PRECISE
    assert looked(samples(12, 1.2, 0.3, peak=1.1)).stop, "one bound is exceeded"
    assert not looked(samples(12, 1.02, 0.05)).stop
    assert not looked(samples(11, 1.2, 0.01)).stop, "not before the first look"
    assert not looked(samples(13, 1.2, 0.01)).stop, "not between two looks"
    assert looked(samples(30, 1.02, 0.05)).because == "30 rounds"
    assert gate.least(asked, rule) == 9 and gate.least(asked, replace(rule, precision=None)) == 8


def lacking(of: Sequence[Sample], every: int) -> list[Sample]:
    """Returns the samples. Every `every`-th round lacks the peak of the new build."""
    nothing = Memory("cgroup v1", None, None, None)
    return [
        replace(one, memory=nothing)
        if one.trial.round % every == 0 and one.trial.contender == "new"
        else one
        for one in of
    ]


def test_the_stopping_rule_counts_complete_rounds_also_if_memory_is_missing_in_some() -> None:
    """`-r 8` once ran until the peak was known in 8 rounds, which took up to 195 rounds."""
    run = replace(
        a_run(OLD, NEW), baseline="old", rule=StopRule(None, 8, 8),
        gate=Gate((GateBound("time", 0.03), GateBound("peak", 0.02))),
    )  # fmt: skip
    of = lacking(samples(8, 1.0, 0.01), 2)
    ratios = stopping.ratios(run, of, ["old", "new"])
    assert {name: len(each) for name, each in ratios.items()} == {"time": 8, "peak": 4}
    assert stopping.look(run, ratios, 8).because == "8 rounds"
    assert not stopping.look(run, ratios, 7).stop
    early = replace(run, rule=StopRule(min_rounds=12, max_rounds=24))
    of = lacking(samples(24, 1.0, 0.5), 3)
    ratios = stopping.ratios(early, of, ["old", "new"])
    assert stopping.look(early, ratios, 24).because == "24 rounds"
    assert stopping.look(early, {**ratios, "peak": ()}, 24).because == "24 rounds"


def test_a_check_says_in_how_many_rounds_memory_was_measured() -> None:
    rule = StopRule(None, 12, 12)
    few = a_check(["peak>2%"], lacking(samples(12, 1.0, 0.01), 2), rule=rule)
    assert (few.checked[0].rounds, few.checked[0].measured_rounds) == (12, 6)
    assert few.checked[0].rounds_needed == 14, "7 are needed, and half of the rounds lack the peak"
    assert reporting.says(few) == (
        "Not enough data: peak memory was measured in 6 of 12 rounds, and about 14 rounds are "
        "needed.",
        "Use -r 14, or leave out -r.",
    )
    some = a_check(["time>3%", "peak>2%"], lacking(samples(12, 1.0, 0.01), 4), rule=rule)
    assert states(some) == ["pass", "pass"]
    assert [one.measured_rounds for one in some.checked] == [None, 9]
    footer = reporting.board(some).footer
    assert footer[0].startswith("12 rounds ")
    assert "▲ Peak memory was measured in 9 of 12 rounds; these rounds decide its bound." in footer


def test_stored_numbers_are_compared_without_rounds() -> None:
    asked = Gate((GateBound("time", 0.03),))
    before = [one for one in samples(20, 1.0, 0.01, seed=5) if one.trial.contender == "old"]
    for factor, state in ((1.1, GateState.WORSE), (1.0, GateState.PASS), (1.03, GateState.OPEN)):
        now = [one for one in samples(20, factor, 0.01, seed=6) if one.trial.contender == "new"]
        (found,) = gate.judge_stored(asked, before, now, ("base", "new"), ((), ()))
        assert found.state is state, factor
    (few,) = gate.judge_stored(asked, before[:2], before[:2], ("base", "new"), ((), ()))
    assert few.state is GateState.OPEN and few.low is None
    (none,) = gate.judge_stored(asked, before, (), ("base", "new"), ((), ()))
    assert (none.state, none.rounds_needed) == (GateState.OPEN, gate.ROUNDS_LEAST)
    few = a_check(["time>3%"], (), stored="Stored.", rule=StopRule(), stopped="time budget")
    assert "Use a longer --budget." in reporting.rendered(few, View(width=200))


def test_the_advised_budget_is_that_of_the_rounds() -> None:
    """It was computed from the counts of instructions, of which there were more than rounds."""
    counts = [InstructionCount(name, (1000,) * 9) for name in ("old", "new")]
    rule = StopRule(budget_s=60.0)
    bounds = ["time>3%", "instructions>1%"]
    some, most = (
        reporting.rendered(
            a_check(of, samples(3, 1.1, 0.01), counts, rule=rule, stopped="time budget"),
            View(width=200),
        )
        for of in (bounds[:1], bounds)
    )
    told = [re.search(r"Use --budget \w+", text) for text in (some, most)]
    assert all(told) and len({one[0] for one in told if one}) == 1, told


def test_stored_memory_is_not_compared_across_methods() -> None:
    """A base measured by a cgroup and a build that was sampled once were compared, with a verdict.

    The time has no such method, and is compared.
    """
    asked = Gate((GateBound("peak", 0.02), GateBound("time", 0.03)))
    before, now = (
        [one for one in samples(20, 1.0, 0.01, peak=peak) if one.trial.contender == name]
        for name, peak in (("old", 1.0), ("new", 1.5))
    )
    now = [replace(one, memory=replace(one.memory, method="sampled")) for one in now]
    found, time = gate.judge_stored(asked, before, now, ("base", "new"), ((), ()))
    assert found.state is GateState.UNKNOWN and time.state is GateState.PASS
    assert found.problem == "peak memory was measured in different ways (cgroup v1, sampled)"
    unmeasured = [replace(one, memory=Memory("not measured", None, None, None)) for one in now]
    found, _ = gate.judge_stored(asked, before, unmeasured, ("base", "new"), ((), ()))
    assert found.problem == "peak memory was not measured in both builds"


CASES: dict[str, Callable[[], CheckReport]] = {
    "worse": lambda: a_check(
        ["time>3%", "peak>2%", "instructions>0.5%"], samples(12, 1.10, 0.01),
        [InstructionCount("old", (1_234_567, 1_234_567)),
         InstructionCount("new", (1_300_000, 1_300_100))],
    ),
    "twice": lambda: a_check(["time>3%"], samples(12, 2.4, 0.01)),
    # "1 to 4 times" was once told of an interval from 1.5 to 3.7.
    "wide": lambda: a_check(["time>3%"], samples(12, 2.6, 0.45)),
    "pass": lambda: a_check(["time>3%", "peak>0%"], samples(12, 1.0, 0.01)),
    "open": lambda: a_check(
        ["time>3%"], samples(12, 1.02, 0.05), rule=StopRule(budget_s=60.0), stopped="time budget"
    ),
    "few": lambda: a_check(["time>3%"], samples(3, 1.1, 0.01), rule=StopRule(None, 3, 3)),
    "unknown": lambda: a_check(["idle-memory>3%"], samples(12, 1.0, 0.01)),
    "broken": lambda: a_check([], (), broken="new was killed by signal 11 (SIGSEGV)"),
    "stored": lambda: a_check(
        ["time>3%"], samples(12, 1.1, 0.01), stored="The base's numbers were stored."
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_reports_are_golden(golden: Callable[[str, str], None], name: str) -> None:
    report = CASES[name]()
    if name == "worse":
        text = at_all_widths(lambda view: reporting.rendered(report, view))
    else:
        text = reporting.rendered(report, View(width=80))
    golden(f"check/{name}", text)


@pytest.mark.parametrize(
    ("low", "high", "most", "says"),
    [
        (0.0054, 0.0054, 0.005, "new executes 0.54 % more"),
        (0.00001, 0.00001, 0.0, "new executes 0.001 % more"),
        (0.005004, 0.02, 0.005, "new executes 0.5004 to 2.0000 % more"),
        (0.053, 0.0531, 0.005, "new executes 5.3 % more"),
        (0.035, 1.2, 0.03, "new executes 3.5 to 120 % more"),
        (9.0003, 9.5, 9.0, "new executes 900.03 to 950.00 % more"),
        (0.7, 3.7, 0.03, "new executes 1.7 to 4.7 times the"),
    ],
)
def test_a_worse_build_is_said_to_be_above_the_bound(
    low: float, high: float, most: float, says: str
) -> None:
    """A check once said "0.5 % more instructions, and the bound is 0.5 %" of 0.54 %."""
    one = Checked("instructions", most, GateState.WORSE, 0.0, low, high, None, 1.0, 1.0, 2)
    assert reporting._sentence(one, "new", "old").startswith(f"{says} instructions ")


@pytest.mark.parametrize(
    ("low", "high", "most", "says"),
    [
        (0.001, 0.0111, 0.03, "at most 1.1 % more time than old"),
        (0.001, 0.029, 0.03, "at most 2.9 % more time than old"),
        (0.001, 0.0296, 0.0298, "at most 2.98 % more time than old"),
        (0.001, 0.03, 0.03, "at most 3 % more time than old"),
        (-0.01, 0.00001, 0.03, "at most 0 % more time than old"),
        (-0.01, 0.0, 0.0, "at most 0 % more time than old"),
        (-0.05, -0.0128, 0.03, "at least 1.3 % less time than old"),
        (-0.05, -0.00001, 0.03, "at most 0 % more time than old"),
    ],
)
def test_the_sentence_of_a_build_that_passes_has_the_end_of_the_table(
    low: float, high: float, most: float, says: str
) -> None:
    one = Checked("time", most, GateState.PASS, 0.0, low, high, 0.99, 1.0, 1.0, 12)
    assert f" {says}, " in reporting._sentence(one, "new", "old")


def test_the_footer_on_counts_is_that_of_both_builds() -> None:
    """It once said "with the same result" if only the counts of a stored base differed."""
    bounds = (GateBound("instructions", 0.5),)
    base, now = InstructionCount("base", (100, 101)), InstructionCount("new", (100, 100))
    report = a_check(["instructions>50%"], (), [replace(base, contender="old"), now])
    checked = gate.judge_stored(Gate(bounds), (), (), ("base", "new"), ((base,), (now,)))
    report = replace(report, checked=checked, counts=(now,), names=("base", "new"))
    assert "differ from run to run" in reporting.board(report).footer[0]
    checked = gate.judge_stored(Gate(bounds), (), (), ("base", "new"), ((now,), (now,)))
    assert "with the same result" in reporting.board(replace(report, checked=checked)).footer[0]


def test_the_advice_of_a_longer_budget_allows_the_rounds_that_it_is_for() -> None:
    """A longer --budget alone ended at the same --max-rounds."""
    rule = StopRule(min_rounds=12, max_rounds=400, budget_s=60.0)
    report = a_check(["time>3%"], samples(12, 1.02, 0.05), rule=rule, stopped="time budget")
    for rounds, says in (
        (700, "Use --budget 65min --max-rounds 700."),
        (245, "Use --budget 23min."),
    ):
        checked = tuple(replace(one, rounds_needed=rounds) for one in report.checked)
        assert reporting.says(replace(report, checked=checked))[-1] == says


def test_a_summary_for_the_step_is_written_once_and_keeps_the_text_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report stood there twice, and replaced the text of the commands before."""
    step, link = tmp_path / "step.md", tmp_path / "link.md"
    step.write_text("before\n")
    link.symlink_to(step)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    report = CASES["pass"]()
    console = Console()
    check._write_ci_files(console, report, check._CiFiles(None, link, step, 0.0))
    assert link.is_symlink()
    assert step.read_text() == f"before\n{reporting.summary(report)}"
    other = tmp_path / "other.md"
    check._write_ci_files(console, report, check._CiFiles(None, other, step, 0.0))
    assert other.read_text() == reporting.summary(report)
    assert step.read_text() == f"before\n{2 * reporting.summary(report)}"


def test_junit_is_read_by_another_parser() -> None:
    evil = a_check(["time>3%", "peak>2%", "idle-memory>1%"], samples(12, 1.1, 0.01))
    evil = replace(evil, names=("old", 'new\x1b\ud800<&">'))
    (suite,) = junitparser.JUnitXml.fromstring(
        reporting.junit(evil, 1.5, "2026-01-01T00:00:00").encode()
    )
    assert (suite.tests, suite.failures, suite.errors, suite.time) == (3, 1, 1, 1.5)
    kinds = [type(case.result[0]).__name__ if case.result else "" for case in suite]
    assert kinds == ["Failure", "", "Error"]
    broken = replace(evil, checked=(), broken="new crashed")
    (suite,) = junitparser.JUnitXml.fromstring(reporting.junit(broken, 0, "").encode())
    assert suite.errors == 3


def test_annotations_are_one_line_with_escapes() -> None:
    (line,) = reporting.annotation_lines(CASES["worse"]())
    assert line.startswith("::error title=cairn check::Worse: ") and "\n" not in line
    assert "%25 more time" in line and "% " not in line
    assert reporting.annotation_lines(CASES["open"]())[0].startswith("::warning ")
    assert reporting.annotation_lines(CASES["pass"]()) == ()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (BOTH, "which change is too much"),
        (("--fail-if", "speed>3%", *BOTH), "'speed' is not a measure"),
        (("--fail-if", "time<3%", *BOTH), "is not a bound; write for example 'time>3%'"),
        (("--fail-if", "time>-3%", *BOTH), "is not a percentage"),
        (("--fail-if", "time>3%", "--fail-if", "time>4%", *BOTH), "two bounds on time"),
        (("--fail-if", "time>3%", "--", "/bin/true"), "which two builds"),
        (("--fail-if", "time>3%", "-p", "old=/bin/true"), "give -p twice"),
        (("--fail-if", "time>3%", "last"), "there is no run"),
        (("--fail-if", "peak>3%", "--memory", "none", *BOTH), "--memory none does not measure it"),
        (("--fail-if", "idle-memory>3%", *BOTH), "needs a server and --idle"),
        (("--against", "no.json", "--", "/bin/true"), "there is no base no.json"),
        (("--fail-if", "time>3%", "--trust-base", *BOTH), "name it with --against"),
        (("--make-base", "other", "--", "/bin/true"), "exists and is not a base"),
        (("--make-base", "b.json", *BOTH), "leave out -p"),
        (("--fail-if", "time>3%", "-p", "a=/bin/true", "-p", "b=./nothing"), "b is missing"),
        (("--fail-if", "time>3%", "-p", "a=/bin/true", "-p", "b=/"), "b cannot be executed: /"),
        (("--fail-if", "time>3%", "-p", "a=/bin/true", "-p", "a=/bin/true"), "with the name a"),
        (("--fail-if", "time>3%", "-p", "'"), "quote it as for a shell"),
        (("--fail-if", "time>3%", "-r", "9", "--max-rounds", "9", *BOTH), "leave out --max-rounds"),
    ],
)
def test_a_wrong_check_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRN_RESULTS", str(tmp_path / "results"))
    (tmp_path / "other").write_text("a text\n")
    with pytest.raises(Exception) as raised:
        cli.main(["check", *words], standalone_mode=False)
    told = getattr(raised.value, "message", str(raised.value))
    assert says in " ".join(told.split())
    assert getattr(raised.value, "exit_code", None) in (1, 2)
    assert not (tmp_path / "results").exists()
    assert (tmp_path / "other").read_text() == "a text\n"


@pytest.mark.parametrize("option", [("--why",), ("--shell",), ("-c", "x"), ("--baseline", "old")])
def test_options_about_one_program_are_refused_beside_several(option: tuple[str, ...]) -> None:
    with pytest.raises(CairnError, match=f"{option[0]} is not for the programs of -p"):
        cli.main(["compare", *BOTH, *option], standalone_mode=False)


def test_the_document_of_every_check_is_valid() -> None:
    shipped = json.loads((json_schema.FOLDER / json_schema.NAME).read_text())
    kind = jsonschema.validators.validator_for(shipped)
    kind.check_schema(shipped)
    validator = kind(shipped)
    for name, case in CASES.items():
        document = json.loads(reporting.rendered(case(), View("json")))
        assert [error.message for error in validator.iter_errors(document)] == [], name


def test_the_document_of_a_check_has_the_answer() -> None:
    found = json.loads(reporting.rendered(CASES["worse"](), View("json")))
    assert found["check"]["answer"] == "worse"
    assert [one["state"] for one in found["check"]["bounds"]] == ["worse", "pass", "worse"]


def test_a_run_with_one_contender_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stored:
        path = Path("x")

        def run(self) -> Run:
            return replace(a_run(OLD), baseline="old")

        def samples(self) -> tuple[Sample, ...]:
            return ()

        def simulation(self) -> None:
            return None

        def refusal(self) -> None:
            return None

        stopped = instructions = samples

    stored: Any = Stored()
    with pytest.raises(CairnError, match="has 1 contender and 1 program; a check needs"):
        check_plan.report_of(stored, Gate((GateBound("time", 0.1),)), None, None)


@pytest.mark.parametrize("field", [{"soak_s": 5.0}, {"instructions": True}])
def test_a_run_whose_times_mean_nothing_is_refused(field: dict[str, Any]) -> None:
    """A run of `cairn soak` lasts for a given time, so a bound on its time would always be kept."""

    class Stored:
        path = Path("x")

        def run(self) -> Run:
            run = replace(a_run(OLD, NEW), baseline="old")
            return replace(run, settings=replace(run.settings, **field))

        def samples(self) -> tuple[Sample, ...]:
            return ()

        def simulation(self) -> None:
            return None

        def refusal(self) -> None:
            return None

        stopped = instructions = samples

    stored: Any = Stored()
    with pytest.raises(CairnError, match="cannot be checked: "):
        check_plan.report_of(stored, Gate((GateBound("time", 0.1),)), None, None)
