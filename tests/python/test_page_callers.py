"""Tests of the section of a profile's page on who allocates."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path

import pytest
from support.comparisons import EVIL
from support.pages import Element, parsed
from support.probes import busy
from support.stacks import a_stack, random_stacks

from cairn.page import profile as profile_pages
from cairn.profile import reader
from cairn.profile.callers import Stack, functions, total
from cairn.profile.demangle import without_arguments
from cairn.report import profile_export
from cairn.report.callers_table import callers_table
from cairn.report.formatting import printable
from cairn.report.naming_table import lines_missing


def page_with(folder: Path, stacks: tuple[Stack, ...], note: str = "") -> Element:
    busy().write(folder)
    found = reader.gather(folder)
    page = profile_pages.page(
        found, allocator="glibc", stacks=stacks, stacks_notes=(note,) if note else ()
    )
    return parsed(page)


def boxes_of(page: Element) -> list[dict[str, str]]:
    figure = page.first("figure", data_of="callers")
    return [one.attributes for one in figure.all("svg") if "box" in one.classes]


SOME = (
    a_stack(600, "_start", "main", "parse", "node"),
    a_stack(300, "_start", "main", "parse"),
    a_stack(100, "thread", "node"),
)


def test_each_caller_is_a_box_as_wide_as_its_share_of_the_bytes(tmp_path: Path) -> None:
    page = page_with(tmp_path, SOME)
    drawn = [
        (one["data-n"], int(one["data-d"]), float(one["x"].rstrip("%")),
         float(one["width"].rstrip("%")), float(one["data-value"]))
        for one in boxes_of(page)
    ]  # fmt: skip
    assert drawn == [
        ("_start", 0, 0.0, 90.0, 900.0), ("thread", 0, 90.0, 10.0, 100.0),
        ("main", 1, 0.0, 90.0, 900.0), ("node", 1, 90.0, 10.0, 100.0),
        ("parse", 2, 0.0, 90.0, 900.0), ("node", 3, 0.0, 60.0, 600.0),
    ]  # fmt: skip
    texts = page.first("figure", data_of="callers").first("title").text
    assert texts.startswith("_start: 90.0 %, 900 B in 14 blocks")


def test_the_table_behind_the_drawing_has_the_same_branches(tmp_path: Path) -> None:
    table = page_with(tmp_path, SOME).first("figure", data_of="callers").first("tbody")
    rows = [[cell.text for cell in row.all() if cell.name in ("th", "td")]
            for row in table.all("tr")]  # fmt: skip
    assert [row[:3] for row in rows] == [
        ["_start", "1", "90.0 %"], ["main", "2", "90.0 %"], ["parse", "3", "90.0 %"],
        ["node", "4", "60.0 %"], ["thread", "1", "10.0 %"], ["node", "2", "10.0 %"],
    ]  # fmt: skip


def test_the_section_says_why_source_lines_are_missing(tmp_path: Path) -> None:
    why = lines_missing("pip install symbolic")
    for note in ("", why):
        section = page_with(tmp_path, SOME, note).first("section", id="callers")
        assert (why.removeprefix("▲ ") in section.text) == bool(note)


def test_the_functions_are_those_of_the_terminal_and_of_the_csv(tmp_path: Path) -> None:
    page = page_with(tmp_path, SOME)
    section = page.first("section", id="callers")
    rows = [[cell.text for cell in row.all() if cell.name in ("th", "td")]
            for row in section.first("tbody").all("tr")]  # fmt: skip
    assert rows == [[cell.text.strip() for cell in row] for row in callers_table(SOME).rows]
    assert [row[0] for row in rows] == [frame.function for frame, _ in functions(SOME)]
    link = page.first("section", id="data").first("a").attributes["href"]
    text = base64.b64decode(link.partition("base64,")[2]).decode()
    assert text == profile_export.rows(reader.gather(tmp_path), SOME)
    assert "who allocates" in text


def test_many_stacks_stay_small_and_every_box_lies_below_its_caller(tmp_path: Path) -> None:
    stacks = random_stacks(1, 2000, 30, 3)
    page = page_with(tmp_path, stacks)
    drawn = boxes_of(page)
    assert len(drawn) == 2000
    caption = page.first("figure", data_of="callers").first("figcaption").text
    assert "narrower boxes are left out." in caption.replace("\u00a0", " ")
    rows: dict[int, list[tuple[float, float]]] = {}
    for one in drawn:
        at, wide = float(one["data-x"]), float(one["data-w"])
        rows.setdefault(int(one["data-d"]), []).append((at, at + wide))
    for depth, ends in rows.items():
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in itertools.pairwise(ends))
        for begin, end in ends if depth else ():
            assert any(a <= begin + 1e-6 and end <= b + 1e-6 for a, b in rows[depth - 1])
    whole = total(stacks).allocated.bytes
    assert float(drawn[0]["data-value"]) == pytest.approx(whole)


def test_a_profile_without_stacks_has_no_such_section(tmp_path: Path) -> None:
    page = page_with(tmp_path, ())
    assert not list(page.all("section", id="callers"))


def test_hostile_names_of_functions_are_text(tmp_path: Path) -> None:
    page = page_with(tmp_path, (a_stack(100, "main", f"f{EVIL}", f"{'x' * 5000}(int)"),))
    assert len(list(page.all("script"))) == 1
    names = [one["data-n"] for one in boxes_of(page)]
    # A box's name has no template arguments. "<script>" looks like one, so it is left out, too.
    assert names[1] == without_arguments(printable(f"f{EVIL}")) and len(names[2]) <= 120
    assert "<script>" in next(one.text for one in page.all("title") if one.text.startswith("fevil"))
    assert all(len(one.text) < 500 for one in page.all("title"))
