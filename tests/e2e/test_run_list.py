"""Tests of `cairn report --list`."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest


def test_the_list_has_date_command_contenders_and_verdict_of_every_run(
    cairn, churn: Path, forward: Path
) -> None:
    assert "no run" in cairn("report", "--list").out
    pair = ("-a", "system", "-a", f"x={forward}")
    assert cairn("compare", "-r", 2, *pair, "--", churn, 10).code == 0
    assert cairn("compare", "-r", 1, "-a", "system", "-c", "true", "-c", "echo").code == 0
    assert cairn("compare", "-r", 1, "-a", "system", "--", "sh", "-c", "exit 3").code == 3
    assert cairn("bench", "larson", "-r", 1, "--quick", "-a", "system").code == 0
    shown = cairn("report", "--list")
    assert shown.code == 0, shown.err
    entries = shown.out.split("\n\n")
    # The names of runs that began in the same second have no order, so the test sorts by time.
    begun = sorted(cairn.results.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    ids = [path.name for path in reversed(begun)]
    assert [entry.split()[0] for entry in entries] == ids, "the newest is the first"
    bench, failed, several, first = entries
    assert re.match(r"\S+  \d{4}-\d\d-\d\d \d\d:\d\d\n", first)
    assert f"command    {churn} 10" in first and "contenders system, x" in first
    assert "2 rounds are too few" in first
    assert "true · echo" in several and "only system was run" in several
    assert " · failed\n" in failed and "under the baseline, system, the program" in " ".join(
        failed.split()
    )
    assert "cairn bench larson" in bench
    document = cairn("report", "--list", "--json").json
    assert [run["id"] for run in document["runs"]] == ids
    assert [run["state"] for run in document["runs"]] == [
        *("complete", "failed", "complete", "complete")
    ]
    assert document["runs"][-1]["contenders"] == ["system", "x"]


def test_runs_that_are_measured_interrupted_or_damaged_are_marked(cairn, churn: Path) -> None:
    assert cairn("compare", "-r", 1, "-a", "system", "--", churn, 10).code == 0
    (damaged,) = cairn.results.iterdir()
    (damaged / "run.json").write_text("{")
    process = cairn.start("compare", "-r", 2000, "-a", "system", "--", churn, 20_000)
    try:
        deadline = time.monotonic() + 30
        while "being measured" not in (shown := cairn("report", "--list")).out:
            assert time.monotonic() < deadline and process.poll() is None, shown
        assert f"{damaged.name}  date unknown · damaged" in shown.out
        time.sleep(1)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert " · interrupted\n" in cairn("report", "--list").out


@pytest.mark.parametrize(
    "more", [("last",), ("--md",), ("--csv",), ("-o", "x.tar.xz"), ("-o", "x.md")]
)
def test_the_list_refuses_what_it_cannot_do(cairn, more) -> None:
    assert cairn("report", "--list", *more).code == 2


def test_the_list_does_not_break_words_and_shortens_commands(cairn) -> None:
    long = "word " * 1000
    assert cairn("compare", "-r", 1, "-a", "system", "--", "echo", *long.split()).code == 0
    for width in (60, 80, 120):
        shown = cairn("report", "--list", COLUMNS=str(width)).out
        assert len(shown) < 1000 and "…" in shown
        assert all(len(line) <= width for line in shown.splitlines())
