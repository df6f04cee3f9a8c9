"""Tests of the plan of `cairn bench`, and of the precision of a suite."""

from __future__ import annotations

import math
import random
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.comparisons import a_run, a_sample
from support.widths import at_all_widths

from cairn import native
from cairn.allocators import discover
from cairn.allocators.catalog import Found, load_catalog
from cairn.allocators.sources import KINDS
from cairn.bench import experiments, real_programs, run_settings
from cairn.cli import bench_list
from cairn.compare import comparison, instructions, rounds_needed, stopping
from cairn.doctor import machine
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.model import ACTIVE, Contender, Reported, Sample, Settings, StopRule, Trial, Workload
from cairn.report import terminal
from cairn.report.view import View
from cairn.run import workloads
from cairn.why.ill_allocators import ILL
from cairn.why.prediction_score import CALIBRATING, PROGRAMS

GIB = 1 << 30
SUITE_RULE = experiments.EXPERIMENTS[-1].full.rule


def here(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Makes `discover` find these allocators and no others."""
    known = load_catalog()
    monkeypatch.setattr(
        discover,
        "discover",
        lambda *_, **__: tuple(Found(allocator=known.find(name), path=None) for name in names),
    )


def with_memory(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: available)
    monkeypatch.setattr(native, "workload", lambda program: Path("/workloads") / program)


def quiet(_: str) -> None:
    pass


def test_every_experiment_names_existing_programs_and_allocators() -> None:
    programs = {entry.program for entry in workloads.load()}
    for experiment in experiments.EXPERIMENTS:
        for size in (experiment.full, experiment.quick):
            assert {variant.program for variant in size.variants} <= programs
            assert all(load_catalog().find(name) is not None for name in size.contenders)


def test_the_list_of_experiments_and_workloads_is_golden(
    golden: Callable[[str, str], None],
) -> None:
    golden("bench-list", at_all_widths(lambda view: bench_list.render(8, view)))


def test_workloads_by_name_are_one_run_and_each_experiment_another() -> None:
    choices = run_settings.chosen(["scenario-json", "fill", "scenario-json", "mixed"], quick=True)
    assert [choice.experiment.name for choice in choices] == ["fill", "mixed", "workloads"]
    assert [variant.name for variant in choices[-1].variants] == ["scenario-json"]
    (suite,) = run_settings.chosen(["suite"], quick=False)
    assert [variant.name for variant in suite.variants] == [
        entry.name for entry in workloads.load()
    ]
    (quick,) = run_settings.chosen(["suite"], quick=True)
    assert 0 < len(quick.variants) <= len(suite.variants)
    with pytest.raises(UsageError):
        run_settings.chosen(["nonsense"], quick=False)


def test_a_run_names_the_report_that_shows_it() -> None:
    def run_of(name: str | None, count: int = 1) -> object:
        run = a_run()
        settings = Settings(
            workloads=tuple(Workload(str(i), ("x",)) for i in range(count)), folder="/"
        )
        return run_settings.report_of(replace(run, experiment=name, settings=settings))

    assert run_of(None) == run_of("build") == run_of("gone") == run_of("workloads") == "comparison"
    assert run_of("suite") == run_of("workloads", 2) == "standings"
    assert run_of("scenarios", 4) == "scenarios"


def test_each_program_of_the_findings_counts_with_its_own_duration() -> None:
    (choice,) = run_settings.chosen(["findings"], quick=False)
    *first, last = choice.variants
    slower = replace(
        choice,
        size=replace(choice.size, variants=(*first, replace(last, seconds=last.seconds + 9))),
    )
    rule, ill = choice.size.rule, len(ILL)
    every, one = len(choice.size.contenders) + ill, 1 + ill
    runs = 2 * (rule.min_rounds + 1)
    for contenders in (every, one):
        more = slower.expected_s(contenders, rule) - choice.expected_s(contenders, rule)
        assert more / (9 * runs) == pytest.approx(run_settings._ILL_FACTOR * (contenders - ill + 1))


def test_the_suite_ends_within_the_hour_and_the_quick_one_within_minutes() -> None:
    rule = SUITE_RULE
    assert rule.budget_s is not None and rule.budget_s <= 3600
    (quick,) = run_settings.chosen(["suite"], quick=True)
    assert len(quick.variants) <= 12
    assert len(quick.size.contenders) == 6
    assert quick.expected_s(len(quick.size.contenders), quick.size.rule) < 360
    (suite,) = run_settings.chosen(["suite"], quick=False)
    everybody = [entry for entry in load_catalog().allocators if not entry.hardened]
    assert suite.expected_s(len(everybody), rule) < rule.budget_s, (
        "the fewest rounds fit into the budget"
    )


def test_without_a_peer_there_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, "system", "hardened")
    for size in (experiments.EXPERIMENTS[-1].full, experiments.EXPERIMENTS[-1].quick):
        with pytest.raises(ContenderFailed, match=r"cairn allocators get .*mimalloc"):
            run_settings.contenders(size, quiet)
    malloctest = experiments.find("malloctest")
    assert malloctest is not None
    assert len(run_settings.contenders(malloctest.full, quiet)) == 5, "an arena needs no peer"


def test_a_note_names_each_allocator_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, "system", "hardened", "jemalloc")
    said: list[str] = []
    assert run_settings.contenders(experiments.EXPERIMENTS[-1].full, said.append) == (
        "system",
        "jemalloc",
    )
    assert any("hardened" in line and "left out" in line for line in said)
    assert any("mimalloc" in line and "cairn allocators get" in line for line in said)


def test_the_quick_suite_takes_other_peers_where_its_own_are_not_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here(monkeypatch, "system", "cairn", "hoard", "rpmalloc", "jemalloc")
    size = experiments.EXPERIMENTS[-1].quick
    assert run_settings.contenders(size, quiet) == (
        "system",
        "cairn",
        "jemalloc",
        "rpmalloc",
        "hoard",
    )


def test_a_note_names_each_workload_that_does_not_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    variants = (
        experiments.Variant("small", "fill", "--bytes 1", 1.0, GIB),
        experiments.Variant("large", "fill", "--bytes 2", 1.0, 4 * GIB),
    )
    size = experiments.Size(experiments.rounds(2), variants=variants)
    choice = run_settings.Chosen(experiments.EXPERIMENTS[1], size)
    with_memory(monkeypatch, 4 * GIB)
    assert [w.name for w in run_settings.settings(choice, said.append).workloads] == ["small"]
    assert "large needs about 4.00 GiB" in said[0]
    with_memory(monkeypatch, GIB // 2)
    with pytest.raises(CairnError, match="no workload fits"):
        run_settings.settings(choice, said.append)
    with pytest.raises(CairnError, match=r"small needs about 1\.00 GiB"):
        run_settings.settings(
            replace(choice, size=replace(size, variants=variants[:1])), said.append
        )
    with_memory(monkeypatch, 5 * GIB)
    settings = run_settings.settings(choice, said.append)
    assert settings.reports and settings.workloads[1].command == ("/workloads/fill", "--bytes", "2")


def test_a_suite_stops_a_workload_on_width_alone() -> None:
    narrow = {"a": (0.50, 0.51, 0.49, 0.50), "b": (-0.3, -0.3, -0.31, -0.3)}
    wide = {**narrow, "c": (0.5, 0.9, 0.1, 0.2)}
    assert stopping.suite_look(narrow, SUITE_RULE).because == "precision reached"
    assert not stopping.suite_look(
        {name: of[:3] for name, of in narrow.items()}, SUITE_RULE
    ).stop, "not before min_rounds"
    look = stopping.suite_look(wide, SUITE_RULE)
    assert not look.stop and look.leading == "b"
    assert rounds_needed.forecast(wide, SUITE_RULE) == rounds_needed.Forecast(12, 12, 12)
    assert stopping.suite_look({"c": wide["c"] * 3}, SUITE_RULE).because == "12 rounds"
    assert rounds_needed.forecast({"a": ()}, SUITE_RULE) is None
    assert stopping.suite_look(
        {"a": (0.1,)}, StopRule(precision=None, max_rounds=1, judged="active")
    ).stop


@pytest.mark.parametrize(
    "sigma", [0.02, *(pytest.param(one, marks=pytest.mark.long) for one in (0.005, 0.04, 0.08))]
)
def test_stopping_on_width_costs_little_coverage_and_no_bias(sigma: float) -> None:
    """Each series stops by the width of its 95 % interval.

    More than 91 % of these intervals must still contain the truth. The width does not depend on
    the sign of the difference. So stopping at a small width adds no bias.
    """
    rng = random.Random(20260101)
    errors: list[float] = []
    covered = 0
    for _ in range(1500):
        differences: list[float] = []
        look = None
        while look is None or not look.stop:
            differences.append(rng.gauss(0.0, sigma))
            look = stopping.suite_look({"a": tuple(differences)}, SUITE_RULE)
        errors.append(statistics.fmean(differences))
        assert look.half_width is not None
        covered += abs(errors[-1]) <= math.log1p(look.half_width)
    assert abs(statistics.fmean(errors)) < 4 * sigma / len(errors) ** 0.5
    assert covered > 0.91 * len(errors)


def counted(
    index: int, contender: str, operations: int, instructions_: float | None, round_: int = 1
) -> Sample:
    report = Reported(operations, 1, 1.0, 1.0, 1.0, 1.0, 1, 0, 0, "ff", 1)
    failure = None if instructions_ is not None else "was killed by signal 6 (SIGABRT): Failed."
    return replace(
        a_sample(round_, contender, 10.0), trial=Trial(round_, 0, contender, index),
        reported=report, failure=failure, counters={instructions.COUNTER: instructions_},
    )  # fmt: skip


def test_instructions_per_operation_exclude_those_of_starting_the_program() -> None:
    commands = tuple(
        Workload(f"fill {size}", ("fill",), group="fill") for size in ("smallest", "larger")
    )
    run = replace(
        a_run(*(Contender(name, name, name) for name in ("system", "threads", "bad"))),
        settings=Settings(workloads=commands, folder="/", reports=True, instructions=True),
    )
    samples = [
        *(counted(0, "system", 100, 1_010_000, round_) for round_ in (0, 1)),
        *(counted(1, "system", 300, 1_030_000, round_) for round_ in (0, 1)),
        *(counted(0, "threads", 100, 1_010_000 + 900 * round_, round_) for round_ in (0, 1)),
        counted(1, "threads", 300, 1_030_000),
        counted(0, "bad", 100, None),
        counted(1, "bad", 300, 5.0),
    ]
    exact, about, bad = instructions.counts(run, samples)
    assert exact.per_operation == 100.0 and exact.spread == 0.0
    assert instructions.said(exact) == "100.0"
    assert about.spread > 0.01 and instructions.said(about).startswith("≈ ")
    assert bad.per_operation is None and instructions.said(bad) == "not measured"
    remarks = instructions.remarks(run, [exact, about, bad])
    killed = "not measured: bad was killed by signal 6 (SIGABRT): Failed."
    assert f"{killed} (fill)" in remarks
    everywhere = [replace(bad, workload=name) for name in ("fill", "mixed")]
    more = (*commands, Workload("mixed", (), "mixed"))
    two = replace(run, settings=replace(run.settings, workloads=more))
    assert instructions.remarks(two, everywhere) == [f"{killed} (any workload)"]
    assert any(line.startswith("≈") for line in remarks)


def test_an_interrupted_count_is_not_measured_and_no_number() -> None:
    commands = tuple(
        Workload(f"fill {size}", ("fill",), group="fill") for size in ("smallest", "larger")
    )
    run = replace(
        a_run(), settings=Settings(workloads=commands, folder="/", reports=True, instructions=True)
    )
    found = instructions.counts(run, [counted(0, "system", 100, 5.0)])
    assert [count.per_operation for count in found] == [None, None]


def test_a_workload_with_a_touch_option_keeps_it_when_instructions_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_memory(monkeypatch, GIB)
    monkeypatch.setattr(run_settings.shutil, "which", lambda _: "/usr/bin/valgrind")
    (choice,) = run_settings.counted(
        run_settings.chosen(["large-churn-untouched", "larson"], quick=True)
    )
    for workload in run_settings.settings(choice, quiet, instructions=True).workloads:
        assert workload.command.count("--touch") == 1
        assert workload.command[-1] == (
            "none" if workload.group == "large-churn-untouched" else "header"
        )


def test_a_wrong_allocator_under_valgrind_is_not_reported_as_a_limit_of_valgrind() -> None:
    for wrong in (
        "computed another checksum than under system",
        "failed with exit code 1: larson: 3 blocks did not hold what was written into them",
        "found 2 damaged blocks, but ended with exit code 0",
        "was killed by signal 11 (SIGSEGV)",
    ):
        assert instructions.works_wrongly(wrong), wrong
    for limit in (
        "was killed by signal 4 (SIGILL)",
        "was killed by signal 6 (SIGABRT): cannot reserve",
        "printed nothing",
    ):
        assert not instructions.works_wrongly(limit), limit


def test_malloctest_repeats_each_pattern_at_least_20_times() -> None:
    experiment = experiments.find("malloctest")
    assert experiment is not None
    repeats = [int(variant.arguments.split()[1]) for variant in experiment.full.variants]
    assert min(repeats) >= 20
    assert {name for pair in experiment.compared for name in pair} >= {
        "arena",
        "bump",
        "arena-huge",
        "bump-huge",
    }


def test_the_arena_is_compared_with_the_bare_pointer_too() -> None:
    names = ("system", "arena", "bump")
    run = a_run(*(Contender(name, name, name) for name in names))
    cost = {"system": 100.0, "arena": 22.0, "bump": 20.0}
    samples = [
        a_sample(round_, name, cost[name] + round_ % 3 * cost[name] / 50)
        for round_ in range(1, 13)
        for name in names
    ]
    pairs = (("arena", "system"), ("arena", "bump"), ("arena-huge", "bump-huge"))
    found = comparison.compare(samples, run.contenders, "system", run.rule, beside=pairs)
    assert [(pair.contender, pair.other) for pair in found.against] == list(pairs[:2])
    text = terminal.render(run, [found], View())
    assert "CPU time, as a ratio" in text
    assert "÷ system 0.22 [0.22, 0.22]" in text and "÷ bump 1.10 [1.10, 1.10]" in text


def sleeping(round_: int, name: str, wall_ms: float, idle_ms: float) -> Sample:
    report = Reported(10, 1, 1.0, 1.0, 1.0, 1.0, 1, int(idle_ms * 1e6), 0, "ff", 1)
    return replace(a_sample(round_, name, wall_ms), reported=report)


def test_a_verdict_is_about_the_time_that_was_not_slept() -> None:
    """The program sleeps for 900 of 1000 ms.

    A contender that halves the other 100 ms was once reported as taking 5 % less time.
    """
    run = a_run()
    samples = [
        sleeping(round_, name, 900 + work + round_ % 3, 900)
        for round_ in range(1, 13) for name, work in (("system", 100), ("fast", 50))
    ]  # fmt: skip
    found = comparison.compare(samples, run.contenders, "system", run.rule, time=ACTIVE)
    assert found.time is ACTIVE
    (fast,) = found.judged.judgements
    assert fast.effects[0].ratio == pytest.approx(0.5, abs=0.01)
    text = terminal.render(run, [found], View(width=200))
    assert text.index("wall − sleep") < text.index("peak memory")


def test_the_next_step_of_a_bench_run_is_a_bench_run() -> None:
    run = a_run()
    samples = [
        a_sample(b, name, 100 + (b * 7 + len(name)) % 5)
        for b in range(1, 13)
        for name in ("system", "fast")
    ]
    found = comparison.compare(samples, run.contenders, "system", run.rule, bench="fill")
    assert "cairn bench fill -r 48 …" in found.next_steps
    assert not any("cairn compare" in step for step in found.next_steps)


@pytest.mark.parametrize("name", ["malloctest", "fill", "mixed"])
@pytest.mark.parametrize("quick", [False, True])
def test_an_experiment_has_enough_rounds_for_its_contenders(name: str, quick: bool) -> None:
    """Six rounds of eight contenders can show nothing.

    The least p-value of six rounds is 2 / 2^6. Corrected for 7 comparisons, it is 0.22.
    """
    (choice,) = run_settings.chosen([name], quick)
    for contenders in (2, 5, 8, 17):
        rule = run_settings.rule(choice, None, contenders)
        least = rounds_needed.least(contenders - 1, rule)
        assert rule.min_rounds == rule.max_rounds == max(choice.size.rule.max_rounds, least)
        assert run_settings.rule(choice, 3, contenders).max_rounds == 3, "the user's number is kept"
    assert run_settings.rule(choice, None, None) == choice.size.rule


def test_an_experiment_without_a_verdict_of_its_own_keeps_its_rounds() -> None:
    for name in ("suite", "scenarios", "founding-cases", "calibration"):
        for quick in (False, True):
            (choice,) = run_settings.chosen([name], quick)
            assert run_settings.rule(choice, None, 20) == choice.size.rule


def test_predictions_are_tried_on_a_calibration_the_suite_and_other_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(real_programs, "find_tool", lambda tool: None if tool == "tclsh" else tool)
    with_memory(monkeypatch, 64 * GIB)
    (choice,) = run_settings.chosen(["predictions"], quick=False)
    said: list[str] = []
    settings = run_settings.settings(choice, said.append)
    names = [workload.name for workload in settings.workloads]
    calibrating = [name for name in names if name.startswith(CALIBRATING)]
    assert len(calibrating) == 8 and names[:8] == calibrating
    others = [one for one in settings.workloads if one.group == PROGRAMS]
    assert len(names) == 8 + len(workloads.load()) + len(others)
    assert [one.name for one in others] == [
        one.name for one in real_programs.PROGRAMS if one.name != "tcl"
    ]
    assert said == ["programs that are not installed here are left out: tclsh."]
    # The programs report no checksum and no numbers of their own.
    assert settings.why and not settings.reports
    (script,) = [one.command[-1] for one in others if one.name == "cmake"]
    assert Path(script).read_text() and Path(script).is_relative_to(tmp_path)


def test_the_source_of_the_real_program_is_one_that_can_be_downloaded() -> None:
    source = experiments._LIBGIT2
    assert source.kind in KINDS and re.fullmatch(r"[0-9a-f]{64}", source.sha256)
    assert source.origin == f"crate libgit2-sys {source.release.partition('+')[0]}"
