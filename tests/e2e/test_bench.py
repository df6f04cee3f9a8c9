"""Tests of the command `cairn bench`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import peers
from support.isolation import users_environment
from support.prepared import SMALL
from support.processes import running

from cairn import native
from cairn.bench.experiments import EXPERIMENTS
from cairn.run import workloads

ALIKE = ("-a", "system", "-a", "again=system")
WITH_VALGRIND = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not here")


def test_the_list_shows_the_duration_and_memory_of_every_experiment(cairn) -> None:
    cairn.environment["COLUMNS"] = "200"
    listed = cairn("bench")
    assert listed.code == 0 and listed.out == cairn("bench", "list").out
    first = [line.split()[0] for line in listed.out.splitlines() if line.startswith("  ")]
    assert first == [
        *(experiment.name for experiment in EXPERIMENTS),
        "misuse",
        *(entry.name for entry in workloads.load()),
    ]
    assert "min" in listed.out and "ms a run" in listed.out
    assert not cairn.results.exists()


def test_experiments_are_planned_without_running_anything(cairn) -> None:
    plan = cairn("bench", "build", "--plan")
    assert plan.code == 0, plan.err
    assert "12 rounds" in plan.out and "min" in plan.out
    assert "cairn allocators get" in plan.err, "the plan says how to get missing allocators"
    both = cairn("bench", "suite", "larson", "--quick", "--plan", "-a", "system,system@2")
    assert both.code == 0 and both.out.count("2 contenders") == 2
    assert "4 rounds" in both.out and "larson" in both.out
    assert not cairn.results.exists()


def test_an_unknown_experiment_names_the_closest(cairn) -> None:
    for wrong, right in (("biuld", "build"), ("lru_cahce", "lru-cache")):
        result = cairn("bench", wrong)
        assert result.code == 2 and right in result.sentence


def test_a_workload_by_name_is_measured_and_shown_again(cairn) -> None:
    result = cairn("bench", "scenario-json", "-r", 2, *ALIKE)
    assert result.code == 0, result.err
    assert "median of an operation" in result.out and "wall" in result.out
    (folder,) = cairn.results.iterdir()
    assert (folder / "scenario-json.png").read_bytes().startswith(b"\x89PNG")
    assert cairn("report").out == result.out
    samples = cairn("report", "--json").json["samples"]
    assert len(samples) == 2 * 3
    assert len({sample["output_digest"] for sample in samples}) == 1
    assert all(sample["reported"]["operations"] >= 1_000_000 for sample in samples)
    assert len(cairn("report", "--csv").out.splitlines()) == 7


@pytest.mark.long
def test_several_workloads_are_one_run_with_a_table_of_means(cairn) -> None:
    result = cairn("bench", "scenario-json", "scenario-mir", "-r", 2, *ALIKE)
    assert result.code == 0, result.err
    assert "geometric mean of 2 workloads" in result.out
    assert "scenario-json" in result.out and "scenario-mir" in result.out
    (folder,) = cairn.results.iterdir()
    assert {"time.png", "time.svg", "memory.svg"} <= {file.name for file in folder.iterdir()}
    assert cairn("report").out == result.out
    assert "wall" in cairn("report", "--full").out, "each workload by itself"
    for form in ("--md", "--json", "--csv"):
        again = cairn("report", form)
        assert again.code == 0 and "scenario-mir" in again.out
    shown = cairn("report", "--json").json
    assert shown["run"]["experiment"] == "workloads"
    assert {place["contender"] for place in shown["standings"]["places"]} == {"system", "again"}


@pytest.mark.long
def test_workloads_can_be_compared_with_why(cairn) -> None:
    result = cairn(
        "bench", "sleeping-owner", "fill-threads", "--why", "-r", 1, "-a", "system,cairn"
    )
    assert result.code == 0, result.err
    assert "each also with the probe" in result.err and "+probe" not in result.out
    assert "among 2 pairs" in result.out and "cairn explain" in result.out
    document = cairn("report", "--json").json
    assert [(why["workload"], why["contender"]) for why in document["whys"]] == [
        (0, "cairn"),
        (1, "cairn"),
    ]
    assert len(document["standings"]["places"]) == 2
    assert "allocator code" in cairn("report", "--full").out


@pytest.mark.long
def test_a_workload_can_be_compared_with_why(cairn) -> None:
    result = cairn("bench", "sleeping-owner", "--why", "-r", 1, "-a", "system,cairn")
    assert result.code == 0, result.err
    assert "+probe" not in result.out
    (why,) = cairn("report", "--json").json["whys"]
    assert why["contender"] == "cairn"
    assert "allocator code" in cairn("report", "--full").out


def test_an_experiment_without_an_explanation_refuses_why(cairn) -> None:
    for words, says in (
        (("scenarios", "--why"), "name workloads of"),
        (("suite", "--why", "--instructions"), "leave out one of them"),
    ):
        refused = cairn("bench", *words)
        assert refused.code == 2 and says in refused.err and len(refused.err.splitlines()) == 1, (
            refused.err
        )


@pytest.mark.long
def test_the_exit_code_says_if_the_baseline_or_another_contender_failed(cairn) -> None:
    """One contender fails only on bulk-release, which refuses an unknown value of MALLOCTEST_WITH.

    The other workloads do not read this variable.
    """
    names = ("bulk-release", "scenario-json", "-r", 1)
    result = cairn("bench", *names, *ALIKE, "-a", "bad=system:MALLOCTEST_WITH=nonsense")
    assert result.code == 4, result.err
    assert "bad" in result.sentence and "MALLOCTEST_WITH is malloc, arena" in result.err
    assert "geometric mean of 2 workloads" in result.out, "the other contenders are ranked"
    assert cairn("report").code == 0
    result = cairn(
        "bench", *names, "-a", "base=system:MALLOCTEST_WITH=nonsense", "-a", "x=system:A=1"
    )
    assert result.code == 3, result.err
    assert (
        "under base the program failed" in result.sentence and "on bulk-release" in result.sentence
    )
    assert "scenario-json" in result.out, "the other workload was measured"


@pytest.mark.long
def test_the_arena_competes_in_malloctest(cairn) -> None:
    arena = ("-a", "system", "-a", "arena=system:MALLOCTEST_WITH=arena")
    result = cairn("bench", "malloctest", "--quick", "-r", 1, *arena, "--json")
    assert result.code == 0, result.err
    for comparison in result.json["comparisons"]:
        assert {row["contender"] for row in comparison["rows"]} == {"system", "arena"}
    for text in ("user time", "system time", "largest process", "peak memory"):
        assert text in cairn("report", "--md").out.replace("\\", "")


@pytest.mark.long
def test_the_plan_of_a_workload_by_name_has_a_time_limit(cairn) -> None:
    told = " ".join(cairn("bench", "larson", "--plan").out.split())
    assert "for 10–40 rounds, 10 min at most" in told


def test_scenarios_end_in_a_ranking_by_points(cairn) -> None:
    result = cairn("bench", "scenarios", "--quick", "-r", 1, *ALIKE)
    assert result.code == 0, result.err
    assert "points" in result.out and "P95" in result.out and "faults" in result.out
    (folder,) = cairn.results.iterdir()
    assert (folder / "percentiles.svg").exists()
    assert len(cairn("report", "--json").json["scenarios"]["scenarios"]) == 4


def test_several_runs_cannot_be_written_to_one_document(cairn) -> None:
    result = cairn("bench", "fill", "larson", "--json", *ALIKE)
    assert result.code == 2 and "one experiment at a time" in result.sentence


def test_an_interrupted_run_leaves_no_process_and_can_be_resumed(cairn) -> None:
    process = subprocess.Popen(
        [*cairn.argv, "bench", "scenario-json", "scenario-mir", "-r", "1", *ALIKE],
        env=cairn.env, cwd=cairn.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not any(
        path.read_text().count("\n") >= 3 for path in cairn.results.glob("*/samples.jsonl")
    ):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    if json.loads(cairn("report", "--json").out)["comparisons"][0]["rounds"]:
        assert "interrupted: " in out, "the results so far are shown as incomplete"
    assert "--resume" in err and not running(str(native.workload("scenario")))
    assert cairn("report").code == 0, "the results so far can be shown again"
    other = cairn("bench", "suite", "--resume", "last")
    assert other.code == 2 and "not of suite" in other.sentence
    assert cairn("bench", "--resume", "last", "--quick").code == 2
    resumed = cairn("bench", "scenario-mir", "scenario-json", "--resume", "last", "--json")
    assert resumed.code == 0, resumed.err
    assert [comparison["rounds"] >= 1 for comparison in resumed.json["comparisons"]] == [True, True]


def test_a_run_of_compare_cannot_be_resumed_by_bench(cairn) -> None:
    assert cairn("compare", "-r", 1, "-a", "system", "--", "true").code == 0
    result = cairn("bench", "--resume", "last")
    assert result.code == 2 and "cairn compare --resume" in result.sentence


def test_results_that_cannot_be_written_are_one_sentence(cairn, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = cairn("bench", "scenario-json", "-r", 1, *ALIKE, "--results", file / "below")
    assert result.code == 2 and "is a file, and runs are kept in a folder" in result.sentence
    result = cairn("bench", "scenario-json", "-r", 1, *ALIKE, "-o", tmp_path / "gone" / "x.md")
    assert result.code == 1 and "no folder" in result.sentence
    assert not cairn.results.exists(), "no run was begun"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make such a disk")
def test_a_full_disk_ends_the_run_and_keeps_the_samples_so_far(cairn, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", small], check=True)
    try:
        result = cairn("bench", "scenario-json", "-r", 100, *ALIKE, "--results", small, **SMALL)
        assert result.code == 1 and "No space left on device" in result.sentence
        shown = cairn("report", "--results", small)
        assert shown.code == 0 and "median of an operation" in shown.out
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_report_that_cannot_be_printed_is_a_failure(cairn) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*cairn.argv, "bench", "list"],
            env=cairn.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1 and "Traceback" not in done.stderr


@pytest.mark.long
@WITH_VALGRIND
def test_instructions_are_counted_and_shown_again(cairn, forward: Path) -> None:
    result = cairn(
        "bench", "larson", "big-integers", "--instructions", "-a", "system", "-a", f"x={forward}"
    )
    assert result.code == 0, result.err
    assert "instructions per operation" in result.out and "larson" in result.out
    assert cairn("report").out == result.out
    assert cairn("report", "--md").out.startswith("# instructions per operation")
    counts = cairn("report", "--json").json["instructions"]
    assert len(counts) == 4 and all(count["per_operation"] > 20 for count in counts)
    exact = [count for count in counts if count["workload"] == "big-integers"]
    assert all(count["spread"] < 0.001 for count in exact), "one thread counts the same twice"
    assert exact[1]["per_operation"] > exact[0]["per_operation"], (
        "the library that forwards every call takes more instructions"
    )
    assert "counter:instructions" in cairn("report", "--csv").out


def test_instructions_of_a_build_are_not_counted(cairn) -> None:
    result = cairn("bench", "build", "--instructions")
    assert result.code == 2 and "build" in result.sentence


def test_without_valgrind_the_error_says_how_to_install_it(cairn, tmp_path: Path) -> None:
    result = cairn("bench", "larson", "--instructions", *ALIKE, PATH=str(tmp_path))
    assert result.code == 1 and "apt-get install valgrind" in result.sentence


@pytest.mark.long
def test_the_quick_build_makes_a_table_and_pictures(cairn) -> None:
    environment = users_environment(XDG_CACHE_HOME=str(peers.CACHE))
    result = cairn("bench", "build", "--quick", "--json", timeout=600, **environment)
    assert result.code == 0, result.err
    assert result.json["comparisons"][0]["rounds"] == 8
    assert all(row["proof"][0] > 200 for row in result.json["comparisons"][0]["rows"])
    (folder,) = cairn.results.iterdir()
    assert (folder / "build.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "build.svg").read_text().count("<path") > 10


@pytest.mark.long
def test_the_quick_suite_ends_within_minutes(cairn) -> None:
    for name in peers.NAMED:
        peers.peer(name)
    began = time.monotonic()
    result = cairn("bench", "suite", "--quick", timeout=900, XDG_CACHE_HOME=str(peers.CACHE))
    assert result.code == 0, result.err
    assert time.monotonic() - began < 600, "it takes six minutes on an idle machine"


def test_a_plan_fails_with_the_same_error_as_the_run(cairn) -> None:
    for spec in ("nonsense", "jemalloc@0.1", "x="):
        run = cairn("bench", "scenario-json", "-r", 1, "-a", spec)
        plan = cairn("bench", "scenario-json", "-r", 1, "--plan", "-a", spec)
        assert (plan.code, plan.sentence) == (run.code, run.sentence)
        assert plan.code in (2, 4), spec
    assert cairn("bench", "larson", "--plan", "--json").code == 2
    assert cairn("bench", "larson", "--plan", "-o", "x.md").code == 2


def test_the_plan_of_counting_instructions_says_so(cairn) -> None:
    plan = cairn("bench", "fill", "--instructions", "--plan", *ALIKE)
    assert plan.code == 0, plan.err
    assert "instructions" in plan.out and "3 GiB" not in plan.out and "fill-threads" in plan.out


def test_an_experiment_that_cannot_begin_does_not_stop_the_others(cairn) -> None:
    """Without cmake on the PATH, the experiment `build` cannot begin. The workload still runs."""
    result = cairn("bench", "build", "scenario-json", "-r", 1, *ALIKE, PATH="/nowhere", **SMALL)
    assert "median of an operation" in result.out, result.err
    assert result.code == 1 and "which cannot be found here" in result.sentence


def test_a_picture_that_cannot_be_drawn_does_not_end_the_run(cairn, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "matplotlib"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no fonts here')\n")
    result = cairn("bench", "scenario-json", "-r", 1, *ALIKE, PYTHONPATH=str(broken.parent))
    assert result.code == 0, result.err
    assert "median of an operation" in result.out
    assert "no picture of this run: no fonts here" in result.err


def test_a_run_of_a_workload_is_resumed_by_the_name_of_the_workload(cairn) -> None:
    assert cairn("bench", "scenario-json", "-r", 1, *ALIKE, **SMALL).code == 0
    assert cairn("bench", "scenario-json", "--resume", "last", **SMALL).code == 0
    other = cairn("bench", "larson", "--resume", "last")
    assert other.code == 2 and "is a run of scenario-json, not of larson" in other.sentence
