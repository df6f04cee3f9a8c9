"""Tests of the report of 'cairn soak': its words, its table, its plots, and its other forms."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

import jsonschema
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from rich.cells import cell_len
from support.comparisons import EVIL
from support.memory_series import KIB, MIB, Simulated
from support.soaks import ALL, fragments, leaks, noise, retains, soaked, stable

from cairn.cli import cli, json_schema
from cairn.cli import soak as soaking
from cairn.errors import ContenderFailed, ProgramFailed, UsageError
from cairn.memory import AFTER_ITS_END, Memory, Series, Trim
from cairn.model import Run, Sample
from cairn.report import soak, soak_plot, soak_rules
from cairn.report.view import View
from cairn.soak.trend import Growth
from cairn.soak.verdict import tried, verdicts


def shown(run: Run, samples: list[Sample], view: View) -> str:
    return soak.render(run, samples, view, name="last", stopped="")


def test_every_sentence_is_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    run, samples = soaked(**ALL)
    texts = [
        f"== {width} columns\n{shown(run, samples, View(width=width))}" for width in (60, 80, 200)
    ]
    alone = shown(*soaked(system=leaks, cairn=leaks), View(width=80)).split("\n\n")[0]
    texts.append(f"== a leak under all contenders\n{alone}\n")
    rules = soak_rules.sentences(verdicts(run, samples))
    texts.append("== the rules, with --full\n" + "".join(f"{one}\n" for one in rules))
    full = " ".join(shown(run, samples, View(full=True, width=80)).split())
    assert " ".join(rules) in full
    golden("soak", "\n".join(texts))


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    run, samples = soaked(**ALL)
    for full in (False, True):
        for line in shown(run, samples, View(full=full, width=width)).splitlines():
            assert cell_len(line) <= width, line


def test_the_answer_comes_first_and_names_what_was_tried() -> None:
    run, samples = soaked(system=retains, tuned=stable)
    lines = shown(run, samples, View(width=300)).splitlines()
    assert lines[0] == (
        "Retention under system: in the last half of the run, the allocator held 105 MiB for at most "
        "10.0 MiB of live blocks. A trim at the end of the run returned 98 % of the 95.0 MiB that the "
        "allocator then held beyond the live blocks."
    )
    text = "\n".join(lines)
    assert "Tried here: tuned (MALLOC_ARENA_MAX=2) holds 22.1 MiB, 79 % less than system." in text
    assert "A trim of system returned 93.0 MiB at the end of the runs" in text


def test_contenders_that_hold_as_much_are_no_advice() -> None:
    text = " ".join(shown(*soaked(system=retains, other=retains), View(width=300)).split())
    assert (
        " None of the contenders that were tried holds clearly less than system or other. " in text
    )


def test_only_contenders_that_hold_too_much_are_compared_with_what_was_tried() -> None:
    """Here b holds clearly less than a. The report once said that no contender does."""

    def leaky(one: Simulated) -> Series:
        return one.series(40 * MIB + one.leak(64 * KIB), held=400 * MIB + 0 * one.at)

    found = verdicts(*soaked(a=leaky, b=retains))
    assert [one.kind.value for one in found] == ["leak", "retention"]
    assert [(one.contender, one.other) for one in tried(found)] == [("b", "a")]
    text = " ".join(shown(*soaked(a=leaky, b=retains), View(width=300)).split())
    assert "None of the contenders that were tried holds clearly less than b." in text


def test_a_leak_says_that_no_allocator_helps() -> None:
    text = shown(*soaked(system=leaks, cairn=leaks), View(width=300))
    assert text.startswith(
        "Leak, or a cache that still fills: live memory grows by 3.75 MiB/min [3.75, 3.75] under "
        "system and"
    )
    assert "No allocator and no setting ends a leak" in text


def test_a_leak_under_one_contender_and_a_stable_one_disagree() -> None:
    """The report once said of such a run that no allocator ends the leak."""
    text = shown(*soaked(system=leaks, cairn=stable), View(width=300))
    assert "The contenders disagree: a leak of the program would also show under cairn." in text
    assert "No allocator and no setting ends a leak" not in text


def test_a_stable_run_is_told_the_bound_that_made_it_stable() -> None:
    """The mean decided, but the report once gave the larger bound of the lower edge."""
    run, samples = soaked(system=stable)
    (verdict,) = verdicts(run, samples)
    growth = Growth(-100.0, -200.0, 3.0)
    runs = tuple(
        replace(one, growth=growth, growth_of="mean", growth_most=growth.high)
        for one in verdict.runs
    )
    found = [replace(verdict, runs=runs)]
    wanted = "The mean of live memory grows by at most 180 B a minute."
    assert all(wanted in one for one in soak_rules.sentences(found))
    told = soak.board(run, found, samples, "last", "")
    assert "by more than 180 B a minute." in told.says[0]
    # The table has the same bound, by the minute, too.
    assert told.tables[0].rows[0][-1].text == "−5.9 KiB/min [−11.7, 0.2]"
    assert any("the growth of mean live memory instead" in one for one in told.footer)


def test_a_retention_that_rises_steadily_is_told_by_that_rule() -> None:
    """The excess of 3.15 MiB (19 %) was once told as if it fulfilled the rule of 50 % and 4 MiB."""

    def falls(one: Simulated) -> Series:
        """Live memory falls from 24 to 18 MB, and the allocator keeps 25 MB."""
        held = 25e6 + 0 * one.at
        return one.series(24e6 - 6e6 * one.at, held, Trim(18_000_000, 25_000_000, 18_400_000))

    run, samples = soaked(system=falls)
    sentence, *_ = soak_rules.sentences(verdicts(run, samples))
    assert re.fullmatch(
        r"system, round 1: retention\. The memory that the allocator holds beyond the live blocks "
        r"rises steadily: by 2\.\d\d MiB from the first to the last eighth of the time\. A trim at "
        r"the end returned 94 % of the 6\.68 MiB that it then held beyond the live blocks, half of "
        r"it or more\.",
        sentence,
    ), sentence


def test_rounds_that_contradict_each_other_have_a_next_step() -> None:
    """The report once ended with the contradiction, and said nothing of what would tell."""
    run, samples = soaked(system=leaks)
    samples[1] = soaked(system=stable)[1][1]
    text = " ".join(shown(run, samples, View(width=300)).split())
    assert text.startswith("Not known yet under system: the rounds contradict each other. ")
    says = "More rounds (-r 4) or longer runs (--for) may tell which verdict is right under system."
    assert says in text
    (verdict,) = verdicts(run, samples)
    ended = replace(verdict, no_trim=AFTER_ITS_END, needed_s=60.0)
    told = soak.board(run, [ended], samples, "last", "").says
    assert told[-1] == "More rounds (-r 4) may tell which verdict is right under system."


def test_uneven_rounds_are_told_with_their_own_numbers() -> None:
    """The report said "2 rounds for each contender", and numbered the runs of each from 1 on."""
    run, samples = soaked(system=stable, other=stable)
    del samples[1]  # the first run of "other", which an interruption cut off
    text = " ".join(shown(run, samples, View(full=True, width=300)).split())
    assert " 1 to 2 rounds of 30 s for each contender" in text
    rules = soak_rules.sentences(verdicts(run, samples))
    heads = [one.partition(":")[0] for one in rules]
    assert heads == ["system, round 1", "system, round 2", "other, round 2"]
    failed = [
        replace(one, failure="x") if one.trial.contender == "other" else one for one in samples
    ]
    assert " 2 rounds of 30 s for each contender" in shown(run, failed, View(width=300))


def test_a_failed_contender_has_no_name() -> None:
    run, samples = soaked(system=stable, other=stable)
    samples[1] = replace(samples[1], failure="was killed by SIGSEGV", memory=Memory("x", 1, 1, 1))
    text = shown(run, samples, View(width=200))
    assert "✘ other was killed by SIGSEGV" in text
    assert "Stable under system:" in text
    assert "failed" in next(line for line in text.splitlines() if line.startswith("other"))


def test_a_contender_that_has_not_run_yet_is_not_measured() -> None:
    run, samples = soaked(system=stable, other=stable)
    text = shown(run, [one for one in samples if one.trial.contender == "system"], View(width=200))
    assert "Stable under system:" in text and "✘" not in text
    line = next(line for line in text.splitlines() if line.startswith("other"))
    assert line.split() == ["other", *["not", "measured"] * 6]


def test_a_program_that_never_allocates_has_failed() -> None:
    run, samples = soaked(system=stable)
    unseen = [replace(one, memory=Memory("x", 1, 1, 1)) for one in samples]
    text = shown(run, unseen, View())
    assert text.startswith("No verdict: no contender could be judged.")
    assert "✘ system allocated nothing that the probe could see" in text


def test_a_contender_that_tells_nothing_has_failed() -> None:
    """The exit code was once 0, although the table showed that the contender had failed."""
    run, samples = soaked(system=stable, other=stable)

    def ended(name: str) -> None:
        unseen = [
            replace(one, memory=Memory("x", 1, 1, 1))
            if name in (one.trial.contender, "both")
            else one
            for one in samples
        ]
        for contenders in (run.contenders, run.contenders[::-1]):
            soaking._raise_unjudged(replace(run, contenders=contenders), unseen)

    with pytest.raises(ProgramFailed, match="under system, the program allocated nothing"):
        ended("system")
    with pytest.raises(ContenderFailed, match="under other, the program allocated nothing"):
        ended("other")
    # The first contender once decided, whichever was the baseline.
    with pytest.raises(ProgramFailed, match="under system, the program allocated nothing"):
        ended("both")
    ended("none")


def test_only_a_program_that_ended_by_itself_is_said_to_have_ended() -> None:
    run, samples = soaked(system=stable)
    assert "ended by itself" not in shown(run, samples, View())
    ended = [
        replace(one, memory=replace(one.memory, series=replace(series, no_trim=AFTER_ITS_END)))
        for one in samples
        if (series := one.memory.series) is not None
    ]
    assert "The program ended by itself before the time was over." in shown(run, ended, View())


def test_the_users_own_settings_and_crashes_of_children_are_told() -> None:
    run, samples = soaked(system=stable)
    proof = replace(samples[0].proof, knobs={"MALLOC_ARENA_MAX": "3"})
    samples[0] = replace(samples[0], proof=proof, endings={"worker": {"SIGABRT": 1}})
    text = " ".join(shown(run, samples, View(width=300)).split())
    assert "The environment sets MALLOC_ARENA_MAX=3 for every contender" in text
    assert "was killed by SIGABRT; the program succeeded all the same" in text


def test_a_run_without_a_sample_has_no_verdict() -> None:
    run, _ = soaked(system=stable)
    assert shown(run, [], View()).startswith("No verdict: no run is complete.")


def test_markdown_and_text_are_free_of_control_characters() -> None:
    run, samples = soaked(**{EVIL: leaks, "system": stable})
    for form in ("text", "md"):
        text = shown(run, samples, View(form=form, width=400))  # type: ignore[arg-type]
        assert not set("\x1b\u009b\u202e") & set(text)


def test_json_has_the_verdict_its_numbers_and_the_series() -> None:
    run, samples = soaked(system=leaks, tuned=fragments)
    told = json.loads(shown(run, samples, View(form="json")))
    assert [one["kind"] for one in told["soak"]] == ["leak", "fragmentation"]
    judged = told["soak"][0]["runs"][0]
    assert judged["growth"]["low"] <= 64 * KIB <= judged["growth"]["high"] * 1.001
    assert len(told["samples"][0]["memory"]["series"]["live"]) == 400
    assert told["verdict"][0].startswith("Leak, or a cache that still fills: ")


@pytest.mark.parametrize("kind", [noise, stable])
def test_json_has_each_sentence_of_the_report(kind: Callable[[Simulated], Series]) -> None:
    """It once lacked the next step, and that there is no verdict."""
    run, samples = soaked(system=kind)
    of = samples if kind is noise else []
    told = json.loads(shown(run, of, View(form="json")))
    assert tuple(told["verdict"]) == soak.board(run, verdicts(run, of), of, "last", "").says
    wanted = " would probably give a verdict under " if of else "No verdict: no run is complete."
    assert wanted in " ".join(told["verdict"])


def test_json_keeps_to_its_schema() -> None:
    told = json.loads(shown(*soaked(**ALL), View(form="json")))
    jsonschema.validate(told, json_schema.schema())


def test_csv_has_a_row_for_each_moment() -> None:
    run, samples = soaked(system=leaks)
    rows = list(csv.DictReader(io.StringIO(shown(run, samples, View(form="csv")))))
    assert len(rows) == 2 * 400
    assert {row["round"] for row in rows} == {"1", "2"}
    assert int(rows[0]["live"]) == samples[0].memory.series.live[0]  # type: ignore[union-attr]


def test_the_picture_has_a_panel_for_each_contender() -> None:
    run, samples = soaked(system=leaks, tuned=retains)
    picture = shown(run, samples, View(form="svg"))
    assert picture.startswith("<?xml")
    assert all(f"<!-- {name} -->" in picture for name in ("system", "tuned", "live", "resident"))


@pytest.mark.parametrize("counted", [True, False])
def test_live_memory_that_was_not_counted_is_called_an_estimate(counted: bool) -> None:
    run, samples = soaked(system=stable)
    changed = [
        replace(one, memory=replace(one.memory, series=replace(one.memory.series, counted=counted)))
        for one in samples
        if one.memory.series is not None
    ]
    told = " ".join(shown(run, changed, View(full=True, width=80)).split())
    estimate = (
        "Live memory is an estimate, because one of the allocators has no function that returns "
        "the size of a block."
    )
    assert (estimate in told) != counted


def test_a_plot_shows_what_is_live_held_and_resident() -> None:
    at = tuple(range(0, 10_000, 100))
    series = Series(
        at, tuple(MIB for _ in at), tuple(4 * MIB for _ in at), tuple(7 * MIB for _ in at),
        counted=True, processes=1,
    )  # fmt: skip
    lines = soak_plot.drawn(series, 60)
    column = [line[20] for line in lines[:7]]
    assert column == ["·", "·", "·", "▒", "▒", "▒", "█"]
    assert lines[0].startswith("  7.00 MiB │")


def test_a_plot_is_empty_where_nobody_knows_when_memory_fell() -> None:
    """A fall between 0.03 and 5 s was once drawn in the middle, at 2.5 s."""
    at = (0, 20, 33, 5_000)
    for end, is_empty in ((1, True), (8, False)):
        values = (8 * MIB, 8 * MIB, 8 * MIB, end * MIB)
        series = Series(at, values, values, values, counted=True, processes=1)
        lines = soak_plot.drawn(series, 80)
        start = lines[6].index("│") + 1
        assert (lines[6][start], lines[6][-1]) == ("█", "█")
        assert (lines[6][start + 1 : -1].strip() == "") == is_empty
        assert ("empty: no reading" in lines[-1]) == is_empty
        assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("at_ms", "first", "last"),
    [
        ((0, 250), "0 s", "250 ms"),
        ((1_000, 2_500), "0 s", "1.50 s"),
        ((0, 130_000), "0 s", "2 min 10 s"),
        ((40,), "one moment", "resident"),
    ],
)
def test_the_axis_of_a_plot_has_a_unit_that_shows_its_length(
    at_ms: tuple[int, ...], first: str, last: str
) -> None:
    values = tuple(MIB for _ in at_ms)
    series = Series(at_ms, values, values, values, counted=True, processes=1)
    axis = soak_plot.drawn(series, 80)[-1].strip()
    assert axis.startswith(f"{first}   █ live") and axis.endswith(last)


def test_the_help_says_what_a_row_of_the_csv_is() -> None:
    shown = CliRunner().invoke(cli, ["soak", "--help"], env={"COLUMNS": "200"}).output
    assert "Print CSV, one row per reading of the memory." in shown


@pytest.mark.parametrize(
    ("growth", "text"),
    [
        (Growth(1024**2, 1024**2 * 0.99, 1024**2 * 1.01), "60.0 MiB/min [59.4, 60.6]"),
        (Growth(0.5, 0.4, 0.6), "1.76 KiB/h [1.41, 2.11]"),
        (Growth(-10.0, -30.0, 10.0), "−0.6 KiB/min [−1.8, 0.6]"),
        (Growth(0.0, 0.0, 0.0), "0 B/h [0, 0]"),
        (Growth(0.0, -1000.0, 1000.0), "0 KiB/min [−59, 59]"),
    ],
)
def test_a_growth_is_as_precise_as_its_interval(growth: Growth, text: str) -> None:
    assert soak_rules.rate(growth) == text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--for", "1s", "--", "true"],
            "--for 1 s is too short to see memory over time; give at least",
        ),
        (["--for", "1ms", "--", "true"], "--for 1.00 ms is too short to see memory over time"),
        ([], "which program? For example: cairn soak --for 10min -- ./worker"),
        (["--ready", "true", "--", "true"], "--ready belongs to a server under load"),
        (["--while", "x", "--", "prog"], "nothing says when prog is ready"),
    ],
)
def test_wrong_options_are_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        cli.main(["soak", *words], standalone_mode=False)


def test_a_program_that_had_to_be_killed_at_the_end_is_judged_and_told() -> None:
    """The whole soak was once lost."""
    run, samples = soaked(system=stable)
    told = "Under system the program ignored SIGTERM after the time was over, so it was killed."
    assert told not in " ".join(shown(run, samples, View()).split())
    killed = [replace(one, signal=9) for one in samples]
    text = " ".join(shown(run, killed, View()).split())
    assert "Stable under system:" in text and told in text
