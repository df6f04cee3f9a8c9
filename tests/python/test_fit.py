"""Tests of how a table is fitted into a width."""

from __future__ import annotations

import pytest

from cairn.report.fit import fit
from cairn.report.tables import Cell, Table
from cairn.report.terminal import Screen
from cairn.report.view import View


@pytest.mark.parametrize("width", [8, 20, 80])
def test_a_table_without_rows_keeps_its_heads(width: int) -> None:
    """The heads of a table that is too wide are in several tables, or wrapped."""
    fitted = fit(Table("", ("program", "time", "peak memory"), ()), width)
    heads = {head.replace("\n", " ") for _, table in fitted.parts for head in table.heads}
    assert {"program", "time", "peak memory"} <= heads or width < 12
    assert fitted.missing == ()


LONG = Table(
    "",
    ("mean", "peak memory ÷ system [95 %]", "▼/≈/▲/open"),
    (
        (Cell("cairn 0.1.0"), Cell("1.55 [too few rounds]"), Cell("0/0/0/1")),
        (Cell("a contender with a long name"), Cell("0.912 [0.871, 0.955]"), Cell("10/0/0/1")),
    ),
)


@pytest.mark.parametrize("width", range(12, 100))
def test_no_number_and_no_head_is_cut(width: int) -> None:
    """The line of a stacked row was once wider than the screen, and its number was cut."""
    screen = Screen(View("text", False, False, width))
    screen.table(LONG)
    text = screen.text()
    assert "…" not in text
    told = " ".join(text.split())
    for row in LONG.rows:
        for cell in row:
            assert all(word in told for word in cell.text.split()), (width, cell.text)
    longest = max(len(piece) for row in LONG.rows for cell in row for piece in cell.text.split())
    assert all(len(line) <= max(width, longest + 8, 28) for line in text.splitlines())


def test_a_number_that_does_not_fit_beside_its_head_is_below_it() -> None:
    screen = Screen(View("text", False, False, 40))
    screen.table(LONG)
    assert screen.text().splitlines()[:3] == [
        "cairn 0.1.0",
        "    peak memory ÷ system [95 %]",
        "        1.55 [too few rounds]",
    ]
