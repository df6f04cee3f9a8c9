"""Tests of SQLite's shell."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from .conftest import INPUTS, Stage, path_of


def test_rows_indexes_and_vacuum(both: Callable[..., str]) -> None:
    """With and without libcairn, the database file must have the same bytes."""
    sqlite = path_of("sqlite3")

    def session(stage: Stage) -> str:
        said = stage.run(sqlite, "-bail", "rows.db", stdin=(INPUTS / "sqlite.sql").read_text())
        return said + hashlib.sha256((stage.folder / "rows.db").read_bytes()).hexdigest()

    assert "\n160000|1|199999|" in both(session, "sqlite3")
