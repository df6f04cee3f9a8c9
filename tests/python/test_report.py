"""Tests of reports of invented comparisons. No program runs."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from support.comparisons import EVIL, a_run, a_sample, compared, samples
from support.widths import at_all_widths

from cairn.clock_samples import CpuSamples
from cairn.compare import comparison
from cairn.memory import Memory
from cairn.model import (
    SCHEMA,
    Change,
    Contender,
    Interval,
    Run,
    Sample,
    Shown,
    Workload,
)
from cairn.report import formatting, markdown, run_csv, run_json, tables, terminal
from cairn.report.view import View


def shown(run: Run, of: list[Sample], *, full: bool = False, color: bool = False) -> str:
    return terminal.render(run, [compared(run, of)], View(full=full, color=color))  # type: ignore[arg-type]


def test_the_best_is_marked_and_its_interval_printed() -> None:
    text = shown(a_run(), samples())
    assert "▸ fast" in text
    assert "▼ −20" in text and " to −1" in text
    assert "100 MiB" in text
    assert "\x1b" not in text


def a_comparison_with_everything() -> tuple[Run, list[Sample]]:
    """Returns a comparison with a contender of each kind.

    One is faster, one is far slower in round 5, one has no measured peak, and one fails.
    """
    names = ("system", "quick", "fast", "lean", "broken")
    run = a_run(*(Contender(name, "custom", f"{name} 1.0") for name in names))
    run = replace(
        run, settings=replace(run.settings, workloads=(Workload("prog", ("prog", "-n", "5")),))
    )
    of = []
    for round_ in range(1, 13):
        of.append(a_sample(round_, "system", 100 + round_ % 3))
        of.append(a_sample(round_, "quick", 70 + round_ % 3, involuntary_switches=40))
        of.append(
            a_sample(
                round_, "fast", 800 if round_ == 5 else 80 + round_ % 4, minor_faults=2000 + round_
            )
        )
        unknown = Memory("not measured", None, None, None)
        of.append(
            a_sample(
                round_, "lean", 100 + round_ % 2, memory=unknown, voluntary_switches=round_ % 3
            )
        )
    of.append(
        a_sample(
            1, "broken", 1, failure="was killed by signal 11 (SIGSEGV)", exit_code=None, signal=11
        )
    )
    return run, of


@pytest.mark.parametrize("full", [False, True])
def test_the_tables_of_a_comparison_are_golden(
    full: bool, golden: Callable[[str, str], None]
) -> None:
    run, of = a_comparison_with_everything()
    beside = [("quick", "lean"), ("quick", "system"), ("lean", "system")]
    found = comparison.compare(
        of, run.contenders, run.baseline, run.rule, stopped_because="12 rounds", beside=beside
    )
    golden(
        "compare-full" if full else "compare",
        at_all_widths(lambda view: terminal.render(run, [found], view), full=full),
    )


def test_the_process_count_below_the_table_is_of_the_contender_that_was_loaded_in_the_fewest() -> (
    None
):
    for name in ("fast", "system"):
        of = [
            replace(s, proof=replace(s.proof, loaded=3, processes=5))
            if s.trial.contender == name
            else s
            for s in samples()
        ]
        assert "loaded in only 3 of 5 executed programs" in " ".join(shown(a_run(), of).split())


def test_without_colour_the_report_has_the_same_signs() -> None:
    plain, colored = shown(a_run(), samples()), shown(a_run(), samples(), color=True)
    assert "\x1b[32m" in colored
    assert "▼" in plain


def test_a_missing_value_is_reported_as_not_measured_and_never_as_zero() -> None:
    unknown = Memory("not measured", None, None, None)
    text = shown(a_run(), samples(memory=unknown))
    assert "not measured" in text
    assert " 0 B" not in text


def test_lazily_freed_memory_is_a_column_only_if_there_is_any() -> None:
    assert "lazily" not in shown(a_run(), samples())
    lazy = Memory("cgroup v1", 300 << 20, 44 << 20, 256 << 20)
    assert "peak − lazily freed" in shown(a_run(), samples(memory=lazy), full=True)


def test_full_adds_spread_range_and_runs_of_every_metric() -> None:
    text = shown(a_run(), samples(), full=True)
    for word in ("mean ± σ", "min … max", "runs", "context switches", " 12"):
        assert word in text


def test_a_failed_contender_has_a_sentence_and_no_numbers() -> None:
    of = [
        *samples(),
        a_sample(
            13, "fast", 1, failure="was killed by signal 11 (SIGSEGV)", exit_code=None, signal=11
        ),
    ]
    text = shown(a_run(), of)
    assert "✘ Under fast, the program was killed by signal 11 (SIGSEGV). fast is left out." in text
    assert "▸ fast" not in text


@pytest.mark.parametrize("full", [False, True])
def test_hostile_names_are_inert_everywhere(full: bool) -> None:
    run = a_run(Contender("system", "system", "glibc"), Contender(EVIL, "custom", EVIL))
    run = replace(run, notes=(EVIL,))
    of = [
        replace(
            s, trial=replace(s.trial, contender=EVIL if s.trial.contender == "fast" else "system")
        )
        for s in samples()
    ]
    of = [replace(s, proof=replace(s.proof, owner=EVIL), metrics={EVIL: 1.0}) for s in of]
    result = compared(run, of)
    page = markdown.render(run, [result], full=full)  # type: ignore[arg-type]
    texts = [shown(run, of, full=full), page, run_json.render(run, [result], of)]  # type: ignore[arg-type]
    for text in texts:
        for character in "\x1b\u009b\u202e":
            assert character not in text
    assert "<script>" not in page
    tables = [line for line in page.splitlines() if line.startswith("| ")]
    pipes = [len(re.findall(r"(?<!\\)\|", line)) for line in tables[:4]]
    assert len(set(pipes)) == 1, "a name cannot end a cell"


def test_csv_has_a_row_per_run_and_no_formula() -> None:
    of = [replace(a_sample(1, "system", 1), failure="=cmd|'/bin/sh'!A1")]
    (row,) = csv.DictReader(io.StringIO(run_csv.render(a_run(), of)))
    assert row["failure"].startswith("'=")
    assert (row["wall_ns"], row["counts"], row["peak_bytes"]) == ("1000000", "0", str(100 << 20))


def test_csv_has_the_clock_samples_of_the_runs_that_have_any() -> None:
    seen = replace(
        a_sample(1, "system", 100),
        cpu_samples=CpuSamples(1000, own=3, calls=0, faults=1, others=2, program=9),
    )
    one, other = csv.DictReader(
        io.StringIO(run_csv.render(a_run(), [seen, a_sample(2, "system", 100)]))
    )
    assert (one["clock:own_ns"], one["clock:calls_ns"], one["clock:program_ns"]) == (
        "3000",
        "0",
        "9000",
    )
    assert other["clock:own_ns"] == "" and "clock:own_ns" not in run_csv.render(
        a_run(), [a_sample(1, "system", 100)]
    )


def test_an_empty_csv_field_was_not_measured() -> None:
    of = [replace(a_sample(1, "system", 1), memory=Memory("not measured", None, None, None))]
    (row,) = csv.DictReader(io.StringIO(run_csv.render(a_run(), of)))
    assert row["peak_bytes"] == ""


def test_json_is_one_document_with_its_schema() -> None:
    run, of = a_run(), samples()
    made = json.loads(run_json.render(run, [compared(run, of)], of))  # type: ignore[arg-type]
    assert made["schema"] == SCHEMA
    assert made["comparisons"][0]["rows"][0]["contender"] == "fast"
    assert len(made["samples"]) == 24


def test_json_has_the_verdict_as_an_object_and_as_sentences() -> None:
    run, of = a_run(), samples()
    (made,) = json.loads(run_json.render(run, [compared(run, of)], of))["comparisons"]  # type: ignore[arg-type]
    assert made["verdict"][0].startswith("By time and CPU time: use fast. ")
    judged = made["judged"]
    (fast,) = judged["judgements"]
    assert [(effect["measure"], effect["outcome"]) for effect in fast["effects"]] == [
        ("time", "better"),
        ("CPU time", "better"),
        ("memory", "equivalent"),
        ("page faults", "equivalent"),
    ]
    time = fast["effects"][0]
    assert time["low"] < time["ratio"] < time["high"] < 1
    assert [(one["aim"], one["advice"], one["best"]) for one in judged["recommendations"]] == [
        ("time", "use", ["fast"]),
        ("CPU time", "use", ["fast"]),
        ("memory", "keep", []),
    ]


def test_the_footer_names_the_method_and_the_proof() -> None:
    line = tables.footer(compared(a_run(), samples()))  # type: ignore[arg-type]
    for word in (
        "12 rounds",
        "Hodges–Lehmann",
        "Holm",
        "every program (2 in each run) loaded its allocator",
        "anonymous and shared pages (cgroup v1)",
    ):
        assert word in line


def test_printable_keeps_ordinary_text() -> None:
    assert formatting.printable("Käse ▲ 日本 a b") == "Käse ▲ 日本 a b"
    assert formatting.printable("a\nb\tc\x00") == "a\\nb\\tc\\x00"


def a_change(low: float, high: float, one_sided: tuple[float, float], shown: Shown) -> Change:
    """Returns a change with the 95 % interval (`low`, `high`) and the 90 % interval `one_sided`."""
    ends = Interval(*one_sided, 0.90)
    return Change((low + high) / 2, Interval(low, high, 0.95), shown, 1.0, 12, one_sided=ends)


def test_the_interval_beside_the_sign_of_equivalence_does_not_contradict_it() -> None:
    """The sign ≈ says that the whole interval is within ±1 %.

    It once stood beside "−1.47 to +0.50 %".
    """
    same = a_change(-0.0147, 0.005, (-0.008, 0.004), Shown.EQUIVALENT)
    assert formatting.span(same, 0.01) == "≈ −0.80 to +0.40 %"
    assert formatting.interval(same, 0.01) == "[−0.8, +0.4]"
    open_ = a_change(-0.0147, 0.005, (-0.012, 0.004), Shown.NOT_SHOWN)
    assert formatting.span(open_, 0.01) == "? −1.47 to +0.50 %"
    assert formatting.interval(open_, 0.01) == "[−1.5, +0.5]"


def test_the_footer_names_the_level_of_the_interval_beside_the_sign_of_equivalence() -> None:
    alike = compared(a_run(), samples())
    assert "95 % intervals (beside ≈: 90 %) against system" in tables.summary_footer(alike)  # type: ignore[arg-type]
    assert "95 % intervals (beside ≈: 90 %): paired" in tables.footer(alike)  # type: ignore[arg-type]
