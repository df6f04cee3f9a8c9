"""Tests of several workloads in one plan, and of `cairn clean`."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest


def test_parameters_and_commands_make_one_plan(cairn, forward: Path, churn: Path) -> None:
    lines = ("-c", f"{churn} {{rounds}}", "-c", "true", "-L", "rounds=100,200")
    result = cairn("compare", "-r", 2, "-a", "system", "-a", f"x={forward}", *lines, "--json")
    assert result.code == 0, result.err
    workloads = [workload["name"] for workload in result.json["run"]["settings"]["workloads"]]
    assert workloads == [f"{churn} 100", f"{churn} 200", "true"]
    assert [comparison["rounds"] for comparison in result.json["comparisons"]] == [2, 2, 2]
    for round_ in (1, 2):
        trials = [s["trial"] for s in result.json["samples"] if s["trial"]["round"] == round_]
        stretches = [trial["workload"] for trial in trials]
        assert len(trials) == 6
        assert stretches[::2] == stretches[1::2], (
            "contenders of one round must run one after the other"
        )
    shown = cairn("report").out
    assert all(name in shown for name in workloads)
    assert shown.count("Next: ") == 1, "the workloads share their next steps"
    rows = cairn("report", "--csv").out.splitlines()
    assert len(rows) == 1 + 3 * 2 * 3


def test_a_contender_may_fail_on_one_workload_only(cairn, forward: Path, churn: Path) -> None:
    specs = ("-a", "system", "-a", f"ok={forward}", "-a", f"bad={forward}:TEST_CRASH=1")
    result = cairn("compare", "-r", 2, *specs, "-c", "true", "-c", f"{churn} 100 8192")
    assert result.code == 4
    assert result.out.count("✘ Under bad, the program was killed by signal 11") == 1


def test_bad_sweeps_are_one_sentence(cairn) -> None:
    for args in (
        ("-L", "x=1", "--", "true"),
        ("-L", "x", "--", "true"),
        ("-c", "'", "-L", "x=1"),
        ("-c", "a", "--", "b"),
    ):
        result = cairn("compare", *args)
        assert result.code == 2, result.err


def test_clean_asks_and_removes(cairn, churn: Path) -> None:
    cairn("compare", "-r", 1, "-a", "system", "--", churn)
    asked = cairn("clean")
    assert asked.code == 2 and "-y" in asked.sentence
    assert len(list(cairn.results.iterdir())) == 1
    assert cairn("clean", "--older-than", "1h", "-y").code == 0
    assert len(list(cairn.results.iterdir())) == 1
    assert cairn("clean", "-y").code == 0
    assert not list(cairn.results.iterdir())


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [("n\n", 0, "nothing was removed"), ("\x04", 130, "✘ interrupted; nothing was removed")],
)
def test_a_run_stays_if_the_answer_is_no(
    cairn, churn: Path, answer: str, code: int, says: str
) -> None:
    """The answer "n" ended the command with "interrupted" and exit code 130."""
    cairn("compare", "-r", 1, "-a", "system", "--", churn)
    terminal, its = pty.openpty()
    os.write(terminal, answer.encode())
    done = subprocess.run(
        [*cairn.argv, "clean"],
        env=cairn.env, stdin=its, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(terminal)
    os.close(its)
    assert done.returncode == code
    assert (done.stdout + done.stderr).endswith(f"{says}\n")
    assert len(list(cairn.results.iterdir())) == 1
