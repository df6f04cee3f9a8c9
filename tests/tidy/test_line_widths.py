"""Tests that code, comments and prose are at most 100 columns wide.

Tables and code in documents may be wider.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 100
BESIDE_WIDTH = 60
"""The largest width of a comment that follows code on its line, in columns."""
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
C_FILES = sorted(
    file
    for top in ("src", "include", "workloads", "cairn", "tests", "examples")
    for suffix in ("*.c", "*.h", "*.cpp", "*.hpp", "*.cc")
    for file in (ROOT / top).rglob(suffix)
)


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a document outside code and tables, with their numbers."""
    fenced = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("|"):
            yield number, line


def test_the_formatters_and_the_editor_agree() -> None:
    assert f"ColumnLimit: {WIDTH}\n" in (ROOT / ".clang-format").read_text()
    assert f"max_line_length = {WIDTH}\n" in (ROOT / ".editorconfig").read_text()
    assert f"\nline-length = {WIDTH}\n" in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_prose_is_at_most_100_columns_wide(file: Path) -> None:
    assert [n for n, line in prose(file) if len(line) > WIDTH and " " in line.strip()] == []


def test_lines_of_c_are_at_most_100_columns_wide() -> None:
    wide = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in C_FILES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if len(line) > WIDTH
    ]
    assert C_FILES and not wide, "\n".join(wide)


def test_a_comment_behind_code_is_short() -> None:
    behind = re.compile(r"^\s*[^\s/*][^\"]*?\s(/\*.*\*/|//.*)\s*\\?$")
    wide = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in C_FILES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (found := behind.match(line)) and len(found[1]) > BESIDE_WIDTH
    ]
    assert not wide, "\n".join(wide)
