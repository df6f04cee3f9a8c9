"""Tests of pages of invented runs. Browser tests are in tests/e2e/test_page_browser_long.py."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import itertools
import json
import math
import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support import pages, suites
from support.comparisons import a_sample
from support.pages import Element, page_of, parsed

from cairn.cli import cli
from cairn.cli.measurement import measured
from cairn.compare import instructions
from cairn.model import Comparison, Interval, Run, Sample, value
from cairn.page import drawings, scale, sorting
from cairn.page import run as run_pages
from cairn.page.render import download
from cairn.page.results import ListedPage
from cairn.page.results import page as list_of_pages
from cairn.report import run_csv, terminal
from cairn.report.formatting import printable
from cairn.report.plane import Point
from cairn.report.run import comparisons, rendered
from cairn.report.tables import Cell, Table
from cairn.report.verdict import says
from cairn.report.view import View
from cairn.run.run_archive import RunArchive

ROOT = Path(__file__).resolve().parents[2]
RUNS = Path(__file__).parent / "runs"
MAKERS = {
    "compare": pages.compared_run, "why": pages.explained_run, "suite": pages.suite_run,
    "plan": pages.plan_run,
}  # fmt: skip


def text_of(page: Element) -> str:
    return " ".join(page.first("main").text.replace("\u00a0", " ").split())


def numbers(of: Element, name: str, kind: str, key: str = "data-value") -> list[float]:
    return [
        float(one.attributes[key])
        for one in of.all(name)
        if kind in one.classes and key in one.attributes
    ]


def document(measured: run_pages.Measured) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rendered(measured, comparisons(measured), View("json")))
    return found


@pytest.mark.parametrize("name", ["compare", "why"])
def test_the_page_of_a_run_can_be_made_from_its_json_alone(name: str) -> None:
    measured = MAKERS[name]()
    known = document(measured)
    again = replace(
        measured,
        run=msgspec.convert(known["run"], Run),
        samples=tuple(msgspec.convert(known["samples"], list[Sample])),
    )
    found = tuple(msgspec.convert(known["comparisons"], list[Comparison]))
    assert run_pages.of_run(again, found) == page_of(measured)


@pytest.mark.parametrize("name", ["suite", "plan"])
def test_a_page_of_many_programs_can_be_made_from_the_samples_of_the_json(name: str) -> None:
    measured = MAKERS[name]()
    known = document(measured) if name == "suite" else {}
    text = msgspec.json.encode(measured.samples)
    samples = known.get("samples") or json.loads(text)
    again = replace(measured, samples=tuple(msgspec.convert(samples, list[Sample])))
    assert page_of(again) == page_of(measured)


def test_each_run_and_each_ratio_is_drawn_with_the_number_of_the_json() -> None:
    measured = pages.compared_run()
    known, page = document(measured), parsed(page_of(measured))
    (compared,) = known["comparisons"]
    samples = msgspec.convert(known["samples"], list[Sample])
    rows = {row["contender"]: row for row in compared["rows"]}
    drawn = 0
    for figure in page.all("figure"):
        if figure.attributes["data-of"] not in ("runs", "paired"):
            continue
        metric = figure.attributes["data-metric"]
        for track in figure.all("div"):
            if "data-name" not in track.attributes:
                continue
            name = track.attributes["data-name"].partition(" ")[0]
            own = {
                one.trial.round: value(one, metric)
                for one in samples
                if one.counts and one.trial.contender == name
            }
            drawn += 1
            if figure.attributes["data-of"] == "runs":
                assert numbers(track, "circle", "run") == pytest.approx(list(own.values()))
                median = rows[name]["summaries"][metric]["median"]
                assert numbers(track, "line", "median") == pytest.approx([median])
                continue
            base = {
                one.trial.round: value(one, metric)
                for one in samples
                if one.counts and one.trial.contender == "system"
            }
            ratios = [(own[at] or 0) / (base[at] or 1) for at in own if base[at]]
            assert numbers(track, "circle", "run") == pytest.approx(ratios)
            change = rows[name]["changes"][metric]
            assert numbers(track, "circle", "estimate") == pytest.approx([1 + change["estimate"]])
            for end in ("low", "high"):
                assert numbers(track, "line", "reach", f"data-{end}") == pytest.approx(
                    [1 + change["interval"][end]]
                )
    assert drawn > 20


def test_marks_lie_where_their_numbers_are() -> None:
    page = parsed(page_of(pages.compared_run()))
    for figure in page.all("figure"):
        marks = [
            (float(one.attributes["data-value"]), float(one.attributes["cx"].rstrip("%")))
            for one in figure.all("circle")
            if "data-value" in one.attributes and "beyond" not in one.classes
        ]
        places = [place for _, place in sorted(marks)]
        assert places == sorted(places)
        assert all(4 <= place <= 96 for place in places)


def test_the_plane_has_each_contender_with_its_ratios() -> None:
    measured = pages.compared_run()
    (compared,) = document(measured)["comparisons"]
    plane = parsed(page_of(measured)).first("figure", data_of="plane")
    found = {
        one.attributes["data-name"].partition(" ")[0]: one
        for one in plane.all("g")
        if "data-name" in one.attributes
    }
    assert set(found) == {"system", "quick", "fast", "lean"}
    for row in compared["rows"]:
        if not row["changes"]:
            continue
        point = found[row["contender"]].attributes
        assert float(point["data-time"]) == pytest.approx(1 + row["changes"]["wall"]["estimate"])
        assert float(point["data-memory"]) == pytest.approx(1 + row["changes"]["peak"]["estimate"])


def test_the_parts_of_a_gap_are_those_of_the_json_and_end_at_the_whole() -> None:
    measured = pages.explained_run()
    (why,) = document(measured)["whys"]
    falls = list(parsed(page_of(measured)).all("figure", data_of="parts"))
    assert [fall.attributes["data-metric"] for fall in falls] == ["time", "memory"]
    for fall in falls:
        gap = why[fall.attributes["data-metric"]]
        changes = [one["change"] for one in gap["parts"] if one["change"] is not None]
        drawn = [float(bar.attributes["data-value"]) for bar in fall.all("rect")]
        intervals = [one["interval"] for one in (*gap["parts"], gap["whole"])]
        proven = [one["low"] > 0 or one["high"] < 0 for one in intervals]
        assert [("pale" not in bar.classes) for bar in fall.all("rect")] == proven
        assert drawn == pytest.approx([*changes, gap["whole"]["change"]])
        assert sum(drawn[:-1]) == pytest.approx(drawn[-1])
        places = [
            (float(bar.attributes["x"].rstrip("%")), float(bar.attributes["width"].rstrip("%")))
            for bar in fall.all("rect")
        ]
        for change, (left, width), (after, wide) in zip(
            drawn, places[:-1], places[1:], strict=False
        ):
            end = left + width if change > 0 else left
            assert min(abs(end - after), abs(end - after - wide)) < 0.3


def test_the_means_of_a_suite_and_of_a_plan_are_those_of_the_json() -> None:
    suite = pages.suite_run()
    known = {one["title"]: one["time"] for one in document(suite)["standings"]["places"]}
    drawn = parsed(page_of(suite)).first("figure", data_of="means", data_metric="time")
    tracks = [one for one in drawn.all("div") if "data-name" in one.attributes]
    assert len(tracks) == 4
    for track in tracks:
        ratio = known[track.attributes["data-name"]]
        assert numbers(track, "circle", "estimate") == pytest.approx([ratio["estimate"]])
        low = numbers(track, "line", "reach", "data-low")
        assert low == pytest.approx([ratio["interval"]["low"]])
    plan = pages.plan_run()
    rows = {
        (row["measure"], row["contender"], row["program"]): row for row in document(plan)["rows"]
    }
    page = parsed(page_of(plan))
    seen = 0
    for figure in page.all("figure", data_of="ratios"):
        for track in figure.all("div"):
            if "data-name" not in track.attributes:
                continue
            row = rows[
                figure.attributes["data-metric"],
                figure.attributes["data-contender"],
                track.attributes["data-name"].removesuffix(" (kernel)"),
            ]
            expected = [] if row["estimate"] is None else [row["estimate"]]
            assert numbers(track, "circle", "estimate") == pytest.approx(expected)
            seen += 1
    assert seen == 2 * 4 * 4


def test_a_workload_that_failed_is_marked_where_it_is_compared_with_the_best() -> None:
    suite = pages.suite_run()
    of = [
        replace(one, failure="was killed by signal 11 (SIGSEGV)")
        if (one.trial.workload, one.trial.contender) == (1, "jemalloc")
        else one
        for one in suite.samples
    ]
    page = parsed(page_of(replace(suite, samples=tuple(of))))
    failed = set()
    for figure in page.all("figure", data_of="ratios"):
        for track in figure.all("div"):
            if "data-name" in track.attributes and "✘ failed" in track.text:
                failed.add((figure.text.split(":")[0].strip(), track.attributes["data-name"]))
    assert len(failed) == 1
    ((contender, workload),) = failed
    assert contender.startswith("jemalloc") and workload == suite.run.settings.workloads[1].name


@pytest.mark.parametrize("name", MAKERS)
def test_a_page_says_what_the_terminal_says(name: str) -> None:
    measured = MAKERS[name]()
    text = text_of(parsed(page_of(measured)))
    view = View(full=name in ("compare", "why"), width=100_000)
    told = rendered(measured, comparisons(measured), view)
    sentences = [line.strip() for line in told.splitlines() if re.match(r"\s*[A-Z✘▲].*\.$", line)]
    assert sentences
    for sentence in sentences:
        shown = sentence.removeprefix("Not tested: ").removeprefix("Next: ")
        assert shown in text, sentence


def test_every_number_of_a_table_is_in_the_report_on_the_terminal() -> None:
    measured = pages.compared_run()
    found = comparisons(measured)
    told = rendered(measured, found, View(width=100_000)) + rendered(
        measured, found, View(full=True, width=100_000)
    )
    words = set(told.split())
    page = parsed(page_of(measured))
    section = page.first("section", id="numbers")
    cells = [cell.text for cell in section.all("td")]
    assert len(cells) > 100
    assert {word for cell in cells for word in cell.split()} <= words


@pytest.mark.parametrize("name", MAKERS)
def test_a_page_is_complete_in_itself_and_well_formed(name: str) -> None:
    page = page_of(MAKERS[name]())
    tree = parsed(page)
    scripts = list(tree.all("script"))
    assert len(scripts) == 1 and "src" not in scripts[0].attributes
    digest = base64.b64encode(hashlib.sha256(scripts[0].text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert not re.search(r"https?:", page)
    for one in tree.all():
        assert not [key for key in one.attributes if key.startswith("on")]
        for key in ("href", "src"):
            address = one.attributes.get(key)
            assert address is None or address.startswith(("#", "data:")), address
    ids = [one.attributes["id"] for one in tree.all() if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    for one in tree.all("a"):
        target = one.attributes["href"]
        assert not target.startswith("#") or target[1:] in ids
    assert len(list(tree.all("h1"))) == 1
    assert tree.first("html").attributes["lang"] == "en"
    for figure in tree.all("figure"):
        assert next(figure.all("table"), None) is not None, "a drawing has a table behind it"


def test_hostile_names_are_text_everywhere() -> None:
    measured = pages.hostile_run()
    page = page_of(measured)
    tree = parsed(page)
    assert len(pages.HOSTILE) >= 50
    assert len(list(tree.all("script"))) == 1 and len(list(tree.all("style"))) == 1
    usual = {one.name for one in parsed(page_of(pages.compared_run())).all()}
    assert {one.name for one in tree.all()} <= usual
    assert not [key for one in tree.all() for key in one.attributes if key.startswith("on")]
    text = tree.first("main").text.replace("\u00a0", " ")
    for name in pages.HOSTILE:
        shown = " ".join(printable(name).split())
        assert shown in " ".join(text.split()), ascii(name)
    assert all(one.isprintable() or one in "\n\u00a0" for one in page)


def test_the_raw_data_is_inside_and_is_that_of_the_csv() -> None:
    measured = pages.compared_run()
    link = parsed(page_of(measured)).first("a", download=f"cairn-{measured.run.id}-runs.csv")
    _, _, content = link.attributes["href"].partition("base64,")
    text = base64.b64decode(content).decode()
    assert text == run_csv.render(measured.run, measured.samples)
    assert len(list(csv.reader(io.StringIO(text)))) == 1 + len(measured.samples)


def test_much_raw_data_is_compressed() -> None:
    text = "\n".join(str(n) for n in range(100_000))
    made = download("many", text, "")
    assert made.name == "many.csv.gz"
    assert gzip.decompress(base64.b64decode(made.link.partition("base64,")[2])).decode() == text


def test_a_plan_of_40_programs_and_11_contenders_is_at_most_1_5_mb() -> None:
    assert len(page_of(pages.plan_run(40, 11, 4)).encode()) <= 1_500_000


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("103 ms", 0.103), ("1.02 s", 1.02), ("900 µs", 9e-4), ("100 MiB", 100 * 2**20),
        ("▼ −39.9 to −31.7 %", -0.399), ("▲ × 2.31 to 2.49", 1.31), ("÷ 10.0 to 12.0", -0.9),
        ("1,234", 1234), ("3.32 M", 3.32e6), ("≈ 1.00", 1.0), ("▼0.88", 0.88), ("< 0.1 %", 0.001),
        ("40.0 % (38.5 to 41.6)", 0.4), ("1.10 [1.09, 1.11]", 1.10), ("−3.54 ms", -3.54e-3),
        ("12/3/4", 12), ("not measured", None), ("–", None), ("", None), ("✘", None),
        ("3.00 KiB/min [2.9, 3.1]", 51.2), ("1.76 KiB/h [1.41, 2.11]", 1.76 * 1024 / 3600),
        ("2.0 GiB/s", 2 * 2**30), ("5 MiB/run", 5 * 2**20),
    ],
)  # fmt: skip
def test_a_cell_is_sorted_by_its_first_number(text: str, key: float | None) -> None:
    assert sorting.key(text) == pytest.approx(key)


def test_the_baseline_counts_as_no_change_in_a_column_of_changes() -> None:
    rows = (
        (Cell("system"), Cell("103 ms")),
        (Cell("fast"), Cell("▼ −20 to −18 %")),
        (Cell("lean"), Cell("not measured")),
    )
    assert sorting.keys(Table("", ("", "wall"), rows)) == [[None, 0.0], [None, -0.2], [None, None]]


def test_a_scale_keeps_the_order_and_shows_all_that_must_be_seen() -> None:
    values = [1.0, 1.1, 1.2, 1.3, *[1.25] * 30, 90.0]
    made = scale.of_numbers(values, [1.25])
    assert made.high == 1.3 and made.is_beyond(90.0) and made.at(90.0) == 96
    ratios = scale.of_ratios([0.5, 2.0], [0.4])
    assert ratios.at(0.5) + ratios.at(2.0) == pytest.approx(2 * ratios.at(1.0))
    assert 4 <= ratios.at(0.4) < ratios.at(0.5) < ratios.at(1.0) < ratios.at(2.0) <= 96
    same = scale.of_numbers([5.0, 5.0])
    assert 4 < same.at(5.0) < 96


@pytest.mark.parametrize("span", [1.001, 1.02, 1.3, 1.9, 4.0, 30.0, 4000.0])
def test_labels_of_ratios_are_few_and_never_touch(span: float) -> None:
    made = scale.of_ratios([], [1.0, span])
    ticks = scale.ratio_axis(made, "").ticks
    assert 2 <= len(ticks) <= 11
    assert any(tick.text == "0 %" for tick in ticks)
    places = [tick.at for tick in ticks]
    assert min(b - a for a, b in itertools.pairwise(places)) >= 7
    assert len({tick.text for tick in ticks}) == len(ticks)


def test_labels_of_times_and_sizes_have_one_unit() -> None:
    made = scale.axis(scale.of_numbers([0.97e9, 1.2e9]), "", "ns")
    assert all(tick.text.endswith(" s") for tick in made.ticks) and len(made.ticks) >= 3
    sizes = scale.axis(scale.from_zero([0.0, 3.0 * 2**30]), "", "bytes")
    assert [tick.text for tick in sizes.ticks][:2] == ["0 GiB", "1 GiB"]
    wide = scale.axis(scale.of_numbers([1e3, 1e9]), "", "ns")
    assert {"1 µs", "1 ms", "1 s"} & {tick.text for tick in wide.ticks}
    assert all(math.isfinite(tick.at) for tick in wide.ticks)


def test_a_stored_run_is_written_as_a_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    words = ["report", str(RUNS / "why.tar.xz"), "-o", str(out)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    page = parsed(out.read_text(encoding="utf-8"))
    assert "cairn compare" in page.first("header").text
    assert "-o" not in page.first("section", id="command").text
    assert CliRunner().invoke(cli, words).exit_code == 1
    assert CliRunner().invoke(cli, [*words, "--force"]).exit_code == 0


def test_the_page_of_several_programs_has_a_verdict_for_each(tmp_path: Path) -> None:
    del tmp_path
    measured = pages.compared_run()
    settings = measured.run.settings
    two = (*settings.workloads, replace(settings.workloads[0], name="other", command=("other",)))
    again = [replace(one, trial=replace(one.trial, workload=1)) for one in measured.samples]
    both = replace(
        measured,
        run=replace(measured.run, settings=replace(settings, workloads=two)),
        samples=(*measured.samples, *again),
        stopped=("12 rounds", "12 rounds"),
    )
    text = text_of(parsed(page_of(both)))
    (first, second) = comparisons(both)
    for name, one in (("prog -n 5", first), ("other", second)):
        assert f"{name}: {' '.join(says(one.judged).advice)}" in text


def test_the_list_of_pages_has_links_dates_and_verdicts() -> None:
    entries = [
        ListedPage("suite", "24 November 2026", "Use <b>fast</b>.", "suite.html"),
        ListedPage("broken", "date unknown", "it is damaged", None),
    ]
    page = parsed(list_of_pages(entries))
    (item, other) = page.all("li")
    assert item.first("a").attributes["href"] == "suite.html"
    assert "Use <b>fast</b>." in item.text and not list(other.all("a"))


def test_golden_of_the_texts_of_a_page(golden: Callable[[str, str], None]) -> None:
    """The answer, the captions and the names of the sections, as a reader meets them."""
    measured = pages.compared_run()
    host = replace(
        measured.run.host, system="Debian 12", kernel="Linux 6.1", architecture="x86_64",
        libc="glibc 2.36", cpus=2, cpu_model="a processor", memory_bytes=8 << 30,
        page_bytes=4096, virtual=True, transparent_huge_pages="madvise", governor=None, load=0.5,
    )  # fmt: skip
    page = parsed(page_of(replace(measured, run=replace(measured.run, host=host))))
    names = ("p", "h1", "h2", "figcaption", "summary", "dt", "dd", "code", "li")
    lines = [
        f"{one.name}: {' '.join(one.text.split())}"
        for one in page.first("body").all()
        if one.name in names
    ]
    golden("page", "\n".join(lines) + "\n")


def test_the_limits_and_next_steps_are_those_of_the_terminal() -> None:
    measured = pages.compared_run()
    found = comparisons(measured)
    text = text_of(parsed(page_of(measured)))
    assert terminal.not_tested(found) in text
    assert terminal.next_steps(found) in text


def counted(contender: str, workload: int, operations: int, instructions_: float) -> Sample:
    report = suites.reported(50.0, operations=operations)
    sample = a_sample(1, contender, 10.0)
    return replace(
        sample, trial=replace(sample.trial, workload=workload), reported=report,
        counters={instructions.COUNTER: instructions_},
    )  # fmt: skip


def test_instructions_per_operation_have_a_page_with_their_table() -> None:
    run = suites.a_suite(("fill",), ("system", "cairn"))
    workloads = tuple(
        replace(run.settings.workloads[0], name=f"fill {size}", group="fill")
        for size in ("100", "200")
    )
    settings = replace(run.settings, workloads=workloads, instructions=True)
    samples = tuple(
        counted(name, place, 100 + 100 * place, 1000.0 + cost * place)
        for place in range(2)
        for name, cost in (("system", 5_000.0), ("cairn", 3_000.0))
    )
    measured = run_pages.Measured(replace(run, settings=settings), samples, ("1 round",), "last")
    page = parsed(page_of(measured))
    assert "instructions per operation" in page.first("h1").text
    cells = [cell.text for cell in page.first("section", id="numbers").all("td")]
    assert cells == ["50.0", "30.0"]


def test_all_runs_of_a_folder_are_written_with_a_list(tmp_path: Path) -> None:
    folder, to = tmp_path / "results", tmp_path / "pages"
    folder.mkdir()
    shutil.copy(RUNS / "why.tar.xz", folder)
    (folder / "broken.tar.xz").write_bytes(b"no run")
    tool = runpy.run_path(str(ROOT / "tools" / "results_pages.py"))
    tool["main"](folder, to)
    assert sorted(one.name for one in to.iterdir()) == ["index.html", "why.html"]
    first, second = parsed((to / "index.html").read_text(encoding="utf-8")).all("li")
    assert first.first("a").attributes["href"] == "why.html" and "November 2026" in first.text
    assert not list(second.all("a")) and "date unknown" in second.text


@pytest.mark.long
@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "results").glob("*.tar.xz")), ids=str)
def test_each_kept_run_has_a_page(path: Path) -> None:
    found = measured(RunArchive(path), predicts=False)
    compared = comparisons(found)
    page = run_pages.of_run(found, compared)
    tree = parsed(page)
    assert len(page) < 4_000_000 and not re.search(r"https?:", page)
    told = rendered(found, compared, View(width=100_000))
    lead = next(one for one in tree.all("p") if "lead" in one.classes)
    assert " ".join(lead.text.replace("\u00a0", " ").split()) in " ".join(told.split())


def test_each_table_of_a_comparison_has_a_name_for_screen_readers() -> None:
    captions = [one.text for one in parsed(page_of(pages.compared_run())).all("caption")]
    assert "Summary of the comparison" in captions
    assert "Medians and changes" in captions
    assert all(one.strip() for one in captions)


def test_a_page_of_merged_runs_has_the_data_of_each_and_no_command() -> None:
    """It had those of the last run alone, and a command that measures the last run alone."""
    one, other = pages.plan_run(2, 3), pages.plan_run(2, 3)
    runs = [
        replace(of, run=replace(of.run, id=name), plan=("judge",))
        for of, name in ((one, "20260101-000000-0001@n1"), (other, "20260101-000000-0001@n2"))
    ]
    tree = parsed(run_pages.of_plan(runs))
    ids = [of.run.id for of in runs]
    text = tree.first("main").text.replace("\u00a0", " ")
    assert f"runs {', '.join(ids)}" in " ".join(tree.first("body").text.split())
    names = [one.attributes["download"] for one in tree.all("a") if "download" in one.attributes]
    assert [f"cairn-{name}-runs.csv" for name in ids] == names[1:]
    for section in ("machine", "loaded"):
        folds = tree.first("section", id=section).all("summary")
        assert [one.text.strip() for one in folds] == ids
    assert "measures the run again" not in text
    alone = parsed(run_pages.of_plan(runs[:1])).first("main").text.replace("\u00a0", " ")
    assert "This command measures the run again" in alone


def test_the_name_of_a_point_does_not_stand_on_its_interval() -> None:
    """A horizontal interval leaves room above the point, and a vertical one beside it."""

    def around(ratio: float, reach: float) -> Interval:
        return Interval(ratio - reach, ratio + reach, 0.95)

    wide, high = ((0.2, 0.001), (0.001, 0.2))
    points = [
        (f"allocator {x}", Point("x", x, y, around(x, reach[0]), around(y, reach[1])))
        for x, y, reach in ((0.6, 0.6, wide), (1.4, 1.4, high))
    ]
    drawn = drawings.time_memory_plane(
        points, says="", base="system", table=Table("", (), ()), workload=0
    )
    sides = [one.label for one in drawn.points]
    assert sides[0] in ("above", "below") and sides[1] in ("left", "right")
