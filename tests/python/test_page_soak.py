"""Tests of the page of 'cairn soak': its sentences, its drawings, and its raw data."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support import soaks
from support.comparisons import EVIL
from support.pages import Element, page_of, parsed

from cairn.cli import cli
from cairn.page import soak as soak_pages
from cairn.report import repeat_command, soak, soak_rules
from cairn.report.formatting import printable
from cairn.report.run import Measured, rendered
from cairn.report.view import View
from cairn.soak.verdict import verdicts


def text_of(page: Element) -> str:
    return " ".join(page.first("main").text.replace("\u00a0", " ").split())


def test_the_first_screen_has_the_sentences_and_the_verdict_of_each_contender() -> None:
    measured = soaks.a_soak()
    answer = parsed(page_of(measured)).first("section", aria_label="Answer")
    told = " ".join(answer.text.replace("\u00a0", " ").split())
    found = verdicts(measured.run, measured.samples)
    board = soak.board(measured.run, found, measured.samples, "last", "")
    assert len(board.says) > 8
    for sentence in board.says:
        assert " ".join(sentence.split()) in told
    rows = [[cell.text for cell in row.all() if cell.name in ("th", "td")]
            for row in answer.first("tbody").all("tr")]  # fmt: skip
    assert rows == [[cell.text for cell in row] for row in board.tables[0].rows]


def test_the_page_says_what_the_terminal_says() -> None:
    measured = soaks.a_soak()
    text = text_of(parsed(page_of(measured)))
    told = rendered(measured, (), View(full=True, width=100_000))
    sentences = [line.strip() for line in told.splitlines() if re.match(r"\s*[A-Za-z].*\.$", line)]
    assert len(sentences) > 20
    for sentence in sentences:
        assert sentence in text, sentence


@pytest.mark.parametrize("form", ["html", "json", "text"])
@pytest.mark.parametrize("changed", [
    {"refused": "the program was replaced."},
    {"stopped": ("interrupted",)},
])  # fmt: skip
def test_every_form_says_why_measuring_ended_early(form: str, changed: dict[str, Any]) -> None:
    """The page and the JSON of a run that was refused once did not say so."""
    measured = replace(soaks.a_soak(), **changed)
    if form == "html":
        text = text_of(parsed(page_of(measured)))
    else:
        text = rendered(measured, (), View(form=form, width=1000))  # type: ignore[arg-type]
    why = "interrupted" if "stopped" in changed else "the program was replaced"
    assert f"Measuring ended early: {why}." in text


def test_each_drawing_has_the_memory_of_its_run() -> None:
    measured = soaks.a_soak()
    page = parsed(page_of(measured))
    section = page.first("section", id="memory")
    drawn = {one.first("strong").text: one for one in section.all("figure", data_of="curves")}
    found = verdicts(measured.run, measured.samples)
    assert len(drawn) == sum(len(one.runs) for one in found) == 12
    # The top of the axis, which all drawings share.
    most = max(
        max(one.memory.series.resident) for one in measured.samples if one.memory.series is not None
    )
    highest = error = 0.0
    for one in found:
        its = [s for s in measured.samples if s.trial.contender == one.contender]
        for sample, judged in zip(its, one.runs, strict=True):
            title = f"{one.contender}, round {sample.trial.round}: {judged.kind.value}."
            series = sample.memory.series
            assert series is not None
            for key in ("live", "held", "resident"):
                line = drawn[title].first("polyline", data_name=key).attributes["points"]
                places = [tuple(map(float, point.split(","))) for point in line.split()]
                assert len(places) <= 2 * 120 + 2
                assert [at for at, _ in places] == sorted(at for at, _ in places)
                values = getattr(series, key)
                # The first, the last, the least and the greatest value are drawn in proportion.
                up = [100 - down for _, down in places]
                for value, place in (
                    (values[0], up[0]), (values[-1], up[-1]),
                    (max(values), max(up)), (min(values), min(up)),
                ):  # fmt: skip
                    highest = max(highest, place)
                    error = max(error, abs(place - 4 - 92 * value / most))
    assert highest == pytest.approx(96, abs=0.01) and error < 0.02


def test_the_growth_is_that_of_the_json_with_its_interval() -> None:
    measured = soaks.a_soak()
    page = parsed(page_of(measured))
    known = json.loads(rendered(measured, (), View("json")))["soak"]
    for key in ("growth", "held_growth"):
        figure = page.first("figure", data_of=key)
        for one in known:
            track = figure.first("div", data_name=one["contender"])
            growths = [run[key] for run in one["runs"]]
            if None in growths:
                assert not list(track.all("circle"))
                continue
            dot, line = track.first("circle").attributes, track.first("line", **{"class": "reach"})
            mean = sum(growth["per_s"] for growth in growths) / len(growths)
            assert float(dot["data-value"]) == pytest.approx(mean)
            low, high = (float(line.attributes[f"data-{end}"]) for end in ("low", "high"))
            assert low == pytest.approx(min(growth["low"] for growth in growths))
            assert high == pytest.approx(max(growth["high"] for growth in growths))
            assert ("open" in dot["class"]) == (low <= 0 <= high)


def test_each_run_has_the_rule_that_named_it() -> None:
    run, samples = soaks.soaked(**soaks.ALL)
    told = soak_rules.sentences(verdicts(run, samples))
    assert len(told) == len(samples)
    by_name = {one.partition(",")[0]: one for one in told}
    assert "round 2: leak. The lower edge of live memory rises by 3.75 MiB/min" in by_name["leaks"]
    assert (
        "returned 5 % of the 95.0 MiB that it then held beyond the live blocks, less than"
        in by_name["fragments"]
    )
    assert (
        "returned 98 % of the 95.0 MiB that it then held beyond the live blocks, half of"
        in by_name["retains"]
    )
    assert "too slowly for a run of this length" in by_name["cycles"]


def test_the_raw_data_has_each_moment_and_the_command_repeats_the_run() -> None:
    measured = soaks.a_soak()
    page = parsed(page_of(measured))
    link = page.first("section", id="data").first("a")
    content = base64.b64decode(link.attributes["href"].partition("base64,")[2])
    if link.attributes["download"].endswith(".gz"):
        content = gzip.decompress(content)
    assert content.decode() == soak.rows(measured.samples)
    line = repeat_command.command(measured.run)
    assert printable(line) in page.first("section", id="command").text
    assert line.startswith("cairn soak -a leaks,") and " --for 30s -r 12 -- prog " in line
    for option in ("--seed", "--warmup"):
        assert option not in line


def test_a_long_series_keeps_its_extremes_and_a_page_of_many_runs_is_small() -> None:
    measured = many(rounds=12)
    text = page_of(measured)
    assert len(text.encode()) < 1_500_000
    page = parsed(text)
    figures = list(page.first("section", id="memory").all("figure"))
    assert len(figures) == 6 * (1 + soak_pages._FURTHER_MOST)
    assert "42 further runs are only in the raw data." in text_of(page)


def many(rounds: int) -> Measured:
    """Returns a run with `rounds` rounds of each contender."""
    measured = soaks.a_soak()
    first = [one for one in measured.samples if one.trial.round == 1]
    samples = tuple(
        replace(one, trial=replace(one.trial, round=number))
        for number in range(1, rounds + 1)
        for one in first
    )
    return replace(measured, samples=samples)


def test_a_run_without_memory_has_a_page() -> None:
    measured = soaks.a_soak()
    text = text_of(parsed(page_of(replace(measured, samples=()))))
    assert "No verdict: no run is complete." in text


def test_hostile_names_are_text() -> None:
    run, samples = soaks.soaked(**{EVIL: soaks.leaks})
    page = parsed(page_of(Measured(run, tuple(samples), (), "last", kind="soak")))
    assert len(list(page.all("script"))) == 1
    assert " ".join(printable(EVIL).split()) in text_of(page)


def test_the_command_writes_the_page_of_a_stored_soak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cairn.run import store

    monkeypatch.setattr(store, "find", lambda *_: None)
    monkeypatch.setattr("cairn.cli.report.measured", lambda *_, **__: soaks.a_soak())
    out = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["report", "last", "-o", str(out)])
    assert done.exit_code == 0, done.output
    page = parsed(out.read_text(encoding="utf-8"))
    assert page.first("h1").text.startswith("Memory over time of prog ")
    assert "cairn soak" in page.first("header").text
