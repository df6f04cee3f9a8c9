"""Tests of --counters on invented events, whose numbers are known: see perf_double.c."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.prepared import SMALL

REFUSED = 77
"""The double's exit code if the kernel refuses its filter."""
NOTHING, EACH = (20, 30), (190, 530)
EVENTS = [f"instructions={NOTHING[0]}+{EACH[0]}", f"cycles={NOTHING[1]}+{EACH[1]}"]
COUNTED = {"instructions": 190 - 20, "cycles": 530 - 30}


@pytest.fixture
def doubled(cairn, compiled):
    """Returns doubled(*options), which returns the command behind the double of the counters."""
    double = compiled("perf_double.c")

    def behind(*options: str):
        command = replace(cairn, by=(str(double), *EVENTS, *options, "--"))
        if command("--version").code == REFUSED:
            pytest.skip("the kernel refuses the filter")
        return command

    return behind


@pytest.fixture
def profiled(doubled, compiled, tmp_path: Path):
    """Returns profiled(options, threads, counters), the JSON and the text of a profile."""
    sizes = compiled("probe_sizes.c", "-pthread")
    allocator = compiled("probe_scripted_malloc.c", "-shared", "-pthread")
    out = tmp_path / "out.json"

    def profile(
        options: tuple[str, ...] = (), threads: int = 1, counters: str = "cycles,instructions"
    ):
        result = doubled(*options)(
            "profile", "--runs", 1, "--gap", 1, "--counters", counters, "--json", out, "--force",
            "-a", f"scripted={allocator}", "--", sizes, threads, 48, 2000,
        )  # fmt: skip
        assert result.code == 0, result.err
        return json.loads(out.read_text()), " ".join(result.err.split())

    return profile


def each(found) -> dict[str, float]:
    (total,) = [one for one in found["counted"] if one["name"] == "TOTAL"]
    return {event: numbers["each"]["value"] for event, numbers in total["events"].items()}


def sampled(found) -> int:
    return int(found["counted"][-1]["looked_at"])


@pytest.mark.parametrize("threads", [1, 4])
def test_a_group_counts_the_events_of_operations_alone(profiled, threads: int) -> None:
    found, text = profiled(threads=threads)
    assert each(found) == pytest.approx(COUNTED)
    assert sampled(found) > 300 * threads
    assert "the cost of reading them is subtracted" in text or "cycles each" in text
    assert found["counters_refused"] == {}


def test_an_event_that_is_missing_is_named_and_the_others_are_counted(profiled) -> None:
    found, text = profiled(("--missing=cycles",))
    assert each(found) == pytest.approx({"instructions": COUNTED["instructions"]})
    assert found["counters_refused"] == {"cycles": ["ENOENT"]}
    assert "not available here: cycles" in text


def test_without_any_event_there_is_no_table(profiled) -> None:
    found, text = profiled(("--missing=cycles", "--missing=instructions"))
    assert found["counted"] == []
    assert "cycles (ENOENT), instructions (ENOENT)" in text


def test_page_faults_can_be_in_a_group_with_events_of_the_processor(profiled) -> None:
    found, _ = profiled(("page-faults=1+3",), counters="page-faults,cycles,instructions")
    assert each(found) == pytest.approx(COUNTED | {"page-faults": 2})


@pytest.mark.parametrize(
    "options",
    [
        ("--lost=3",),
        ("--fail=4",),
        *(pytest.param((option,), marks=pytest.mark.long) for option in ("--fail=2", "--fail=3")),
    ],
)
def test_operations_whose_events_are_incomplete_do_not_count(profiled, options) -> None:
    """If a group of events shares its counters with others for some time, it counts too little.

    An operation during which this happens must not count. The probe also measures an empty
    operation, whose events are the cost of reading the counters. In an earlier version, the first
    lost time ended this measurement, so that no cost was subtracted.
    """
    found, _ = profiled(options)
    assert each(found) == pytest.approx(COUNTED)
    assert sampled(found) > 100


@pytest.mark.parametrize("options", [("--lost=1",), ("--fail=1",)])
def test_a_group_that_never_counts_is_reported_as_such(profiled, options) -> None:
    found, text = profiled(options)
    assert found["counted"] == []
    assert "No event was counted within the allocator" in text


@pytest.mark.parametrize(
    ("options", "cycles", "words"),
    [
        ((), float(EACH[1]), ""),
        pytest.param(
            ("--running=50", "--missing=instructions"),
            float(EACH[1]),
            "Counters are estimates",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ("--fail-alone=error",),
            None,
            "cycles, dTLB-load-misses, instructions, page-faults",
            marks=pytest.mark.long,
        ),
    ],
)
def test_bench_counts_the_events_of_each_workload(
    doubled, options: tuple[str, ...], cycles: float | None, words: str
) -> None:
    command = doubled(*options)
    result = command(
        "bench", "scenario-json", "scenario-mir", "--counters", "-r", 1, "-a", "system", "--json",
        **SMALL,
    )  # fmt: skip
    assert result.code == 0, result.err
    measured = [sample for sample in result.json["samples"] if sample["trial"]["round"] > 0]
    assert len(measured) == 2
    assert {sample["counters"]["cycles"] for sample in measured} == {cycles}
    missing = cycles is None or "--missing=instructions" in options
    expected = None if missing else float(EACH[0])
    assert {sample["counters"]["instructions"] for sample in measured} == {expected}
    shown = " ".join(command("report", "last", "--full").out.split())
    assert words in shown
    assert ("not available on this machine" in shown) == missing


def test_bench_refuses_counters_under_valgrind(cairn) -> None:
    result = cairn("bench", "fill", "--counters", "--instructions")
    assert result.code == 2
    assert "leave out one of them" in " ".join(result.err.split())


def test_a_profile_says_that_its_counters_are_estimates(doubled, compiled) -> None:
    program = compiled("probe_known.c", "-pthread")
    result = doubled("--running=50")("profile", "--full", "--runs", 1, "--", program, "counts", 100)
    assert "counters, estimated from a part of the time: 530 cycles, 190 instructions" in " ".join(
        result.err.split()
    )
