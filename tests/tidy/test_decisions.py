"""Tests that every decision record has a number, a status and a row in its index.

The index is docs/decisions/README.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
STATUS = re.compile(r"accepted|superseded by (\d{4})")
SECTIONS = {"Question", "Alternatives", "Measurement", "Choice"}
SOURCES = {".c", ".h", ".py", ".md", ".toml", ".txt", ".cpp", ".hpp"}


@dataclass(frozen=True, slots=True)
class Row:
    """The facts in which a record and its row in the index must agree."""

    number: str
    title: str
    file: str
    status: str


def read(path: Path) -> Row:
    """Returns the row that a record must have in the index.

    The first three lines of a record are its title, an empty line and its status.
    """
    title, empty, status, *_ = path.read_text().splitlines()
    match = re.fullmatch(r"# (\d{4}) (.+)", title)
    assert match, f"{path.name} opens with {title!r}, not with '# NNNN The decision'"
    assert empty == "" and status.startswith("Status: "), (
        f"{path.name} has no status under its title"
    )
    return Row(match[1], match[2], path.name, status.removeprefix("Status: "))


def index() -> list[Row]:
    rows = re.findall(
        r"^\| (\d{4}) \| \[(.+)\]\(([^)]+)\) \| (.+) \|$",
        (FOLDER / "README.md").read_text(),
        re.MULTILINE,
    )
    return [Row(*row) for row in rows]


def test_records_are_numbered_without_gaps() -> None:
    numbers = [path.name[:5] for path in RECORDS]
    assert numbers == [f"{number:04}-" for number in range(1, len(RECORDS) + 1)]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_has_its_number_and_an_allowed_status(path: Path) -> None:
    record = read(path)
    assert record.number == path.name[:4]
    status = STATUS.fullmatch(record.status)
    assert status, (
        f"{path.name}: the status is {record.status!r}, not 'accepted' or 'superseded by NNNN'"
    )
    if status[1] is not None:
        later = {read(other).number for other in RECORDS} - {record.number}
        assert status[1] in later, f"{path.name} is superseded by {status[1]}, which is not here"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_has_question_alternatives_measurement_and_choice(path: Path) -> None:
    sections = re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)
    assert set(sections) >= SECTIONS, f"{path.name} lacks {SECTIONS - set(sections)}"


def test_the_index_has_every_record_with_its_title_and_status() -> None:
    assert index() == [read(path) for path in RECORDS]


def test_every_record_that_is_named_anywhere_exists() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} names decisions/{name}"
        for top in ("README.md", "cairn", "docs", "examples", "include", "src", "tests")
        for path in ([ROOT / top] if (ROOT / top).is_file() else (ROOT / top).rglob("*"))
        if path.suffix in SOURCES and path.is_file()
        for name in re.findall(r"decisions/(\d{4}[\w-]*(?:\.md)?)", path.read_text())
        if not (FOLDER / name).is_file()
    ]
    assert not wrong, "\n".join(wrong)
