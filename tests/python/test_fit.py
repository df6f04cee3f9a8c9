"""Tests of how a table is fitted into a width."""

from __future__ import annotations

import pytest

from cairn.report.fit import fit
from cairn.report.tables import Table


@pytest.mark.parametrize("width", [8, 20, 80])
def test_a_table_without_rows_keeps_its_heads(width: int) -> None:
    """The heads of a table that is too wide are in several tables, or wrapped."""
    fitted = fit(Table("", ("program", "time", "peak memory"), ()), width)
    heads = {head.replace("\n", " ") for _, table in fitted.parts for head in table.heads}
    assert {"program", "time", "peak memory"} <= heads or width < 12
    assert fitted.missing == ()
