"""Tests of two reports: allocators ranked over workloads (standings) and over scenarios.

The runs are invented, and no program runs.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace
from support.comparisons import EVIL, a_run, a_sample
from support.suites import ALLOCATORS, MIB, WORKLOADS, a_run_of, a_suite, exact, lively, reported
from support.widths import at_all_widths

from cairn.compare.ranking import matrix, ranking
from cairn.compare.standings import standings
from cairn.memory import Memory
from cairn.model import Run, Sample
from cairn.report import markdown, run_csv, run_json, terminal
from cairn.report import standings as boards
from cairn.report.view import WIDTH, View


def full() -> tuple[Run, list[Sample]]:
    """Returns a run of 13 allocators on 26 workloads, with slow cells and two failures."""
    run = a_suite(WORKLOADS, ALLOCATORS)
    return run, lively(run)


def two() -> tuple[Run, list[Sample]]:
    """Returns a run with two workloads and two contenders, which use the same memory.

    On both workloads, `fast` is twice as fast as `system`.
    """
    run = a_suite(("w0", "w1"), ("system", "fast"))
    return run, exact(
        run, {(w, name): ms for w in (0, 1) for name, ms in (("system", 100.0), ("fast", 50.0))}
    )


def shown(run: Run, samples: Sequence[Sample], width: int = WIDTH, *, color: bool = False) -> str:
    return terminal.standings(run, standings(run, samples), View(color=color, width=width))


def scenarios(run: Run, samples: Sequence[Sample], **more: object) -> str:
    return terminal.scenarios(run, ranking(run, samples), View(), **more)  # type: ignore[arg-type]


class TestStandings:
    @pytest.mark.parametrize("width", [80, 110, 160])
    def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(self, width: int) -> None:
        text = shown(*full(), width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        for name in ALLOCATORS:
            assert re.search(rf"(\d\.|  ) {name} 1\.0|(\d\.|  ) {name}\b", text), name
        for name in WORKLOADS:
            assert len(re.findall(rf"^{name} ", text, re.MULTILINE)) >= 3, "time, memory, noise"

    @pytest.mark.parametrize(("width", "parts"), [(80, 2), (200, 1)])
    def test_a_table_of_13_allocators_is_divided_where_it_does_not_fit(
        self, width: int, parts: int
    ) -> None:
        text = shown(*full(), width)
        assert len(re.findall(r"^time ÷ best ", text, re.MULTILINE)) >= parts
        for name in (contender.name for contender in full()[0].contenders):
            assert name in text

    def test_the_best_contender_of_each_workload_is_marked(self) -> None:
        (line,) = [
            line for line in shown(*two()).splitlines() if line.startswith("w0 ") and "▸" in line
        ][:1]
        assert line.split()[1:] == ["▸1.00", "2.00"]

    def test_means_come_with_intervals_in_the_order_of_time(self) -> None:
        text = shown(*two())
        assert "1. fast 1.0" in text
        assert "1.00 [1.00, 1.00]" in text
        assert "2.00 [2.00, 2.00]" in text
        assert "▲ +100 % [+100, +100]" in text
        assert (
            "Fastest over 2 workloads: fast. On average, it takes 1.00 times [1.00, 1.00] the time "
            "of the fastest in each workload." in " ".join(text.split())
        )

    def test_an_order_that_may_be_chance_is_reported_as_no_difference_shown(self) -> None:
        run = a_suite(("w",), ("a", "b"))
        walls = {"a": (100, 104, 98, 101), "b": (101, 102, 99, 102)}
        of = [
            a_run_of(0, name, round_, wall)
            for name, series in walls.items()
            for round_, wall in enumerate(series, 1)
        ]
        text = shown(run, of)
        assert "≈ no difference shown" in text
        assert "May be as fast: " in text
        assert "≈1.0" in text

    def test_a_failure_is_a_sign_a_sentence_and_no_mean(self) -> None:
        text = shown(*full())
        assert "✘ fill-threads: scudo was killed by signal 11 (SIGSEGV)" in text
        (line,) = [line for line in text.splitlines() if line.startswith("    scudo 1.0")]
        assert line.split(maxsplit=2)[2].strip() == "not measured: failed"
        assert "Not ranked, because a workload failed: scudo, hardened-light." in text

    def test_one_round_has_no_interval_and_says_so(self) -> None:
        run, samples = two()
        text = shown(run, [s for s in samples if s.trial.round == 1])
        assert "2.00 [too few rounds]" in text
        assert "one round: no interval" in text
        assert "(one round: no interval)" in text

    def test_memory_that_was_not_measured_is_no_table_and_a_sentence(self) -> None:
        run, samples = two()
        text = shown(
            run, [replace(s, memory=Memory("not measured", None, None, None)) for s in samples]
        )
        assert "peak memory" not in text
        assert "no memory ratios on w0, w1: not measured" in text
        assert "–" in text

    def test_large_and_small_programs_have_columns_of_their_own_if_there_are_both(self) -> None:
        run, samples = two()
        assert "≥ 20 MiB" not in shown(run, samples)
        mixed = [
            replace(s, memory=replace(s.memory, peak_bytes=5 * MIB)) if s.trial.workload == 0 else s
            for s in samples
        ]
        assert "memory, 2 workloads" in shown(run, mixed)
        assert "1 with ≥ 20 MiB" in shown(run, mixed)
        assert "1 with < 20 MiB" in shown(run, mixed)

    def test_the_report_names_its_method_and_its_limits(self) -> None:
        text = " ".join(shown(*full()).split())
        for word in (
            "3 to 9 rounds",
            "Hodges–Lehmann",
            "95 %",
            "cgroup v2",
            "not tested:",
            "without deliberate sleep",
        ):
            assert word in text

    def test_a_run_without_measurements_has_a_sentence_and_no_table(self) -> None:
        run, _ = two()
        text = shown(run, [])
        assert "No round is complete." in text
        assert "No allocator has a mean" in text

    def test_a_report_without_colour_has_no_escape_sequence(self) -> None:
        assert "\x1b" not in shown(*two())
        assert "\x1b[32m" in shown(*two(), color=True)

    def test_markdown_says_the_same_with_full_names(self) -> None:
        run, samples = full()
        page = markdown.standings(run, standings(run, samples))
        assert page.startswith("# 13 allocators on 26 workloads\n")
        assert "google-tcmalloc-rseq" in page.split("time ÷ best")[1].splitlines()[0]
        tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
        assert len(tables) == 5
        for table in tables:
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


class TestScenarios:
    def test_points_stand_next_to_ratios_with_intervals(self) -> None:
        text = scenarios(*two())
        assert re.search(r" 1\. fast 1\.0 +4 +1\.00 \[1\.00, 1\.00\]", text)
        assert re.search(r" 2\. system 1\.0 +2 +2\.00 \[2\.00, 2\.00\] +▲ \+100 %", text)
        assert "trust the ratios" in text

    def test_each_scenario_has_its_figures(self) -> None:
        text = scenarios(*two())
        assert re.search(
            r"^w0 +median +÷ best \[95 %\] +P95 +P99 +faults/operation +points$", text, re.MULTILINE
        )
        assert re.search(
            r"▸ fast +650 ns +1\.00 \[1\.00, 1\.00\] +1\.04 µs +1\.95 µs +0\.025 +2$",
            text,
            re.MULTILINE,
        )

    def test_a_contender_that_failed_has_no_points(self) -> None:
        run, samples = two()
        broken = [
            replace(s, failure="printed another checksum")
            if (s.trial.workload, s.trial.contender) == (1, "fast")
            else s
            for s in samples
        ]
        text = scenarios(run, broken)
        assert re.search(r"^    fast 1\.0 +not measured: failed$", text, re.MULTILINE)
        assert "✘ fast printed another checksum in w1" in text

    def test_the_matrix_has_a_line_per_scenario_and_the_mean(self) -> None:
        run, samples = two()
        text = scenarios(run, samples, matrices=[matrix(run, samples, "fast")])
        assert re.search(r"^fast ÷ +system$", text, re.MULTILINE)
        assert re.search(r"^geometric mean +▼ 0\.50 \[0\.50, 0\.50\]$", text, re.MULTILINE)

    def test_markdown_has_all_tables(self) -> None:
        run, samples = two()
        page = markdown.scenarios(
            run, ranking(run, samples), matrices=[matrix(run, samples, "fast")]
        )
        assert page.startswith("# 2 allocators in 2 scenarios\n")
        assert len(re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)) == 4


def test_hostile_names_are_inert_everywhere() -> None:
    run, samples = two()
    contenders = (run.contenders[0], replace(run.contenders[1], name=EVIL, title=EVIL))
    named = tuple(replace(workload, name=EVIL) for workload in run.settings.workloads)
    run = replace(
        run, contenders=contenders, settings=replace(run.settings, workloads=named), notes=(EVIL,)
    )
    of = [
        replace(
            s,
            trial=replace(s.trial, contender=EVIL if s.trial.contender == "fast" else "system"),
            memory=replace(s.memory, method=EVIL),
            failure=EVIL if (s.trial.workload, s.trial.contender) == (1, "fast") else None,
        )
        for s in samples
    ]
    found, ranked, others = standings(run, of), ranking(run, of), [matrix(run, of, EVIL)]
    page = markdown.standings(run, found) + markdown.scenarios(run, ranked, matrices=others)
    made = run_json.render(run, [], of, standings=found, scenarios=ranked, matrices=others)
    for text in (shown(run, of), scenarios(run, of, matrices=others), page, made):
        for character in "\x1b\u009b\u202e":
            assert character not in text
    assert "<script>" not in page
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


class TestDocument:
    def test_standings_and_scenarios_are_keys_only_when_given(self) -> None:
        run, samples = two()
        plain = json.loads(run_json.render(run, [], samples))
        assert "standings" not in plain
        assert "scenarios" not in plain
        made = json.loads(
            run_json.render(
                run,
                [],
                samples,
                standings=standings(run, samples),
                scenarios=ranking(run, samples),
                matrices=[matrix(run, samples, "fast")],
            )
        )
        assert [place["contender"] for place in made["standings"]["places"]] == ["fast", "system"]
        cells = {(cell["workload"], cell["contender"]): cell for cell in made["standings"]["cells"]}
        assert cells[1, "system"]["time"]["estimate"] == pytest.approx(2.0)
        assert cells[1, "system"]["time"]["interval"]["level"] == pytest.approx(0.95)
        assert made["standings"]["contests"][0]["large"] is True
        assert made["scenarios"]["ranks"][0]["points"] == 4
        (one,) = made["scenarios"]["matrices"]
        assert one["cells"][0]["over"]["estimate"] == pytest.approx(0.5)


class TestRows:
    def test_each_number_that_a_workload_reports_is_a_column(self) -> None:
        run = a_suite(("w",), ("system",))
        told = replace(
            a_run_of(0, "system", 1, 100.0),
            reported=reported(
                12.5, idle_ns=40_000_000, figures={"rss_after_idle": 7.0}, checksum="=1+1"
            ),
        )
        silent = replace(told, reported=None, failure="ended without its report")
        first, second = csv.DictReader(io.StringIO(run_csv.render(run, [told, silent])))
        assert (first["active_ns"], first["idle_ns"]) == ("60000000", "40000000")
        assert (first["operation_median_ns"], first["operation_p99_ns"]) == ("12.5", "37.5")
        assert (first["figure:rss_after_idle"], first["checksum"]) == ("7.0", "'=1+1")
        assert (second["active_ns"], second["operations"], second["figure:rss_after_idle"]) == (
            "",
            "",
            "",
        )

    def test_runs_of_other_programs_keep_their_columns(self) -> None:
        (row,) = csv.DictReader(io.StringIO(run_csv.render(a_run(), [a_sample(1, "system", 1)])))
        assert "active_ns" not in row
        assert "operations" not in row


def test_the_list_of_equally_fast_contenders_does_not_depend_on_which_one_leads_by_luck() -> None:
    """Chance decides which of four equal contenders leads.

    When each contender was compared with the leader, an equal one was often reported as slower.
    """
    names = ("a", "b", "c", "d")
    wrong = 0
    for seed in range(40):
        rng = random.Random(seed)
        run = a_suite(("w0", "w1", "w2"), names)
        of = [
            a_run_of(
                w, name, round_, 100 * (1 + rng.gauss(0, 0.02)), MIB * 50 * (1 + rng.gauss(0, 0.02))
            )
            for w in range(3)
            for round_ in range(1, 7)
            for name in names
        ]
        says = boards.standings(run, standings(run, of)).says
        for head in ("May be as fast: ", "May be as lean: "):
            line = next((line for line in says if line.startswith(head)), head)
            wrong += len(line.removeprefix(head).rstrip(".").split(", ")) < 3
    assert wrong <= 4, f"{wrong} of 80 lists lack a contender; compared with the leader, 7 did"


@pytest.mark.parametrize(
    ("stopped", "says"),
    [
        ((), "not finished: 1 of 2 workloads has complete rounds"),
        (("interrupted",), "interrupted: 1 of 2 workloads has complete rounds"),
        (
            ("time budget", "precision reached"),
            "time budget: 1 of 2 workloads ended before the precision was reached",
        ),
        (("12 rounds", "precision reached"), ""),
    ],
)
def test_a_run_that_was_cut_short_does_not_look_finished(
    stopped: tuple[str, ...], says: str
) -> None:
    run, samples = two()
    first = [s for s in samples if s.trial.workload == 0]
    text = terminal.standings(run, standings(run, first), View(), stopped=stopped)
    marked = markdown.standings(run, standings(run, first), stopped=stopped)
    assert says in text and says in marked
    if not says:
        assert "interrupted" not in text and "budget" not in text
    ranked = terminal.scenarios(run, ranking(run, first), View(), stopped=stopped)
    assert says.replace("workloads", "scenarios") in ranked


def elsewhere(run: Run) -> Run:
    """Returns the run as if it had been measured on a machine with 8 processors."""
    return replace(run, host=replace(run.host, cpus=8))


def test_the_tables_of_standings_are_golden(golden: Callable[[str, str], None]) -> None:
    """Two contenders are alike, and one fails. On one workload, memory was measured in two ways."""
    run = a_suite(("json", "parse", "sort"), ("system", "fast", "alike", "broken"))
    ms = {"system": 100.0, "fast": 50.0, "alike": 50.2, "broken": 80.0}
    samples = []
    for workload in range(3):
        for round_ in range(1, 9):
            for place, (name, wall) in enumerate(ms.items()):
                wobble = 1 + 0.004 * ((3 * round_ + 5 * place + workload) % 4)
                one = a_run_of(
                    workload, name, round_, wall * wobble, (10 + 30 * workload + 5 * place) * MIB
                )
                if workload == 1 and name == "broken":
                    one = replace(one, failure="was killed by signal 11 (SIGSEGV)")
                if workload == 2 and name == "fast":
                    one = replace(one, memory=replace(one.memory, method="sampled"))
                samples.append(one)
    run = elsewhere(run)
    found = standings(run, samples)
    golden("standings", at_all_widths(lambda view: terminal.standings(run, found, view)))


def test_many_scenarios_have_a_table_for_each_metric() -> None:
    """Only Cairn's contender without learning is compared with Cairn's other contenders."""
    names = ("system", "cairn-frozen", "cairn-ucb1")
    run = a_suite(tuple(f"S{number}" for number in range(boards.MANY + 1)), names)
    samples = [
        replace(
            a_run_of(workload, name, round_, 100.0),
            reported=reported((100.0, 50.0, 40.0)[place] * (1 + workload)),
        )
        for workload in range(boards.MANY + 1)
        for round_ in range(1, 9)
        for place, name in enumerate(names)
    ]
    matrices = [matrix(run, samples, name) for name in names[1:]]
    board = boards.scenarios(run, ranking(run, samples), matrices=matrices)
    assert [table.heads[0] for table in board.tables] == [
        *("ranking", "median", "P95", "P99", "faults/operation", "faults saved"),
        "cairn-frozen ÷",
    ]
    ranks, medians, *_, against = board.tables
    assert [row[0].text.split()[1] for row in ranks.rows] == [
        "cairn-ucb1",
        "cairn-frozen",
        "system",
    ]
    assert len(medians.rows) == boards.MANY + 1
    assert [cell.text for cell in medians.rows[1]] == ["S1", "▸ 80.0 ns", "100 ns", "200 ns"]
    assert against.heads == ("cairn-frozen ÷", "cairn-ucb1")
    assert against.rows[0][1].text == "▲ 1.25 [1.25, 1.25]"


def test_the_tables_of_scenarios_are_golden(golden: Callable[[str, str], None]) -> None:
    run = a_suite(("JSON", "VM"), ("system", "fast", "alike"))
    ns = {"system": 100.0, "fast": 50.0, "alike": 50.1}
    samples = [
        replace(
            a_run_of(workload, name, round_, 100.0),
            reported=reported(median * (1 + 0.004 * ((3 * round_ + place) % 4)) * (1 + workload)),
        )
        for workload in (0, 1)
        for round_ in range(1, 9)
        for place, (name, median) in enumerate(ns.items())
    ]
    run = elsewhere(run)
    found = ranking(run, samples)
    golden("scenarios", at_all_widths(lambda view: terminal.scenarios(run, found, view)))
