"""`cairn bench`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def test_experiments_are_listed_and_planned_without_running_anything(cairn) -> None:
    assert cairn("bench").out.startswith("build")
    plan = cairn("bench", "build", "--plan")
    assert plan.code == 0, plan.err
    assert "12 blocks" in plan.out and "min" in plan.out
    assert "cairn allocators get" in plan.err, "what is not here is said, with how to get it"
    assert not cairn.results.exists()


def test_an_unknown_experiment_names_those_there_are(cairn) -> None:
    result = cairn("bench", "biuld")
    assert result.code == 2 and "build" in result.sentence


@pytest.mark.long
def test_the_quick_build_ends_with_table_and_pictures(cairn) -> None:
    """With the user's own cache: the source may not be had from everywhere."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    result = cairn("bench", "build", "--quick", "--json", timeout=600, XDG_CACHE_HOME=str(home))
    assert result.code == 0, result.err
    assert result.json["comparisons"][0]["blocks"] == 8
    assert all(row["proof"][0] > 200 for row in result.json["comparisons"][0]["rows"])
    (folder,) = cairn.results.iterdir()
    assert (folder / "build.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "build.svg").read_text().count("<path") > 10
