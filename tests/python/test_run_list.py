"""Tests of the entries of the list of runs, for every kind of stored run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.widths import at_all_widths

from cairn.cli.measurement import measured
from cairn.report import run_list
from cairn.report.view import View
from cairn.run.run_archive import RunArchive

RUNS = sorted(Path(__file__).with_name("runs").glob("*.tar.xz"))


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_every_kind_of_run_has_an_entry(path: Path) -> None:
    found = measured(RunArchive(path), predicts=False)
    entry = run_list.listed(found, str(path), runs_now=False)
    assert entry.commands and entry.contenders and entry.state == "complete"
    assert entry.verdict.endswith(".") and "\n" not in entry.verdict
    text = run_list.render([entry], ["2026-01-01 12:00"], View(width=80))
    assert text.startswith(f"{entry.id}  2026-01-01 12:00\n  command ")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert run_list.listed(found, "", runs_now=True).state == "being measured"


def test_the_list_of_runs_is_golden(golden: Callable[[str, str], None]) -> None:
    entries = [
        run_list.listed(measured(RunArchive(path), predicts=False), path.name, runs_now=False)
        for path in RUNS
    ]
    entries.append(run_list.damaged("2026-01-02-cut", "2026-01-02-cut", "plan.json is missing."))
    times = ["2026-01-01 12:00"] * len(entries)
    golden("run-list", at_all_widths(lambda view: run_list.render(entries, times, view)))
