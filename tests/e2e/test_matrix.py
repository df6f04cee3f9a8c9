"""Tests of cairn matrix: a small plan from its check to every form of its report."""

from __future__ import annotations

import csv
import io
import json
import signal
import time
from pathlib import Path

import pytest

from ..conftest import Command

PLAN = """\
[plan]
contenders = ["system", "other=LIBRARY"]
rounds = 2
seed = 5

[program.sort]
command = "sort {data}/lines"
input = { lines = "generate lines 40K seed=1" }
packages = ["coreutils"]

[program.copy]
command = "cp {data}/text {work}/copy"
writes = ["{work}/copy"]
file = { text = "some text" }

[program.larson]
workload = "larson"
arguments = "--threads {threads} --operations 5K"
threads = [1, 2]

[program.beside]
command = "./prog"
stdin = "in.txt"
writes = ["out.txt"]

[program.absent]
command = "no-such-program"
packages = ["no-such-package"]
"""


@pytest.fixture
def plan(cairn: Command, forward: Path) -> Path:
    """A plan in a folder of its own, in which its programs run."""
    folder = cairn.home / "plans"
    folder.mkdir()
    file = folder / "small.toml"
    file.write_text(PLAN.replace("LIBRARY", str(forward)))
    (folder / "in.txt").write_text("some text")
    (folder / "prog").write_text("#!/bin/sh\ncat >out.txt\n")
    (folder / "prog").chmod(0o755)
    return file


def test_a_plan_from_its_check_to_every_form_of_its_report(cairn: Command, plan: Path) -> None:
    checked = cairn("matrix", "check", plan)
    assert checked.code == 0
    assert "no-such-program is not installed; Debian: apt-get install no-such-package" in (
        " ".join(checked.out.split())
    )
    assert "5 of 6 programs, 2 contenders: system, other" in checked.out

    ran = cairn("matrix", "run", plan)
    assert ran.code == 0, ran.err
    assert "absent is left out" in ran.err and "making the input lines" in ran.err
    for name in ("sort", "copy", "larson/1", "larson/2", "beside"):
        assert name in ran.out
    assert cairn("report", "last").out == ran.out == cairn("matrix", "report").out

    rows = list(csv.DictReader(io.StringIO(cairn("matrix", "report", "last", "--csv").out)))
    assert {row["program"] for row in rows} >= {"sort", "copy", "larson/1", "larson/2"}
    # A busy machine may find no moment to read the memory of `cp`, which lasts a millisecond.
    assert {row["rounds"] for row in rows if row["measure"] == "time"} == {"2"}
    document = cairn("matrix", "report", "--json").json
    assert document["plan"] == "small" and document["whole_rounds"] == 2
    assert r"\toprule" in cairn("matrix", "report", "--latex").out
    for chart in ("time", "memory", "plane", "heat"):
        file = cairn.home / f"{chart}.svg"
        assert cairn("matrix", "report", "--chart", chart, "-o", file).code == 0
        assert file.read_bytes().startswith(b"<?xml")
    assert "time ÷ other" in cairn("matrix", "report", "--between", "other", "system").out
    now = cairn("matrix", "status", "--json").json
    assert (now["state"], now["rounds"], now["runs"]) == ("complete", 2, 20)
    cache = cairn.home / ".cache" / "cairn" / "matrix"
    assert not list(cache.glob("work/*"))

    again = cairn("matrix", "run", plan, "--only", "larson", "-r", "1")
    assert again.code == 0 and "sort" not in again.out and "making" not in again.err
    runs = sorted(path.name for path in cairn.results.iterdir())
    merged = cairn("matrix", "report", *runs)
    assert merged.code == 0 and "of 2 runs, compared within each" in " ".join(merged.out.split())


def test_an_interrupted_run_continues_with_the_same_plan(cairn: Command, plan: Path) -> None:
    process = cairn.start("matrix", "run", plan, "-r", "30")
    samples = None
    for _ in range(600):
        samples = next(iter(cairn.results.glob("*/samples.jsonl")), None)
        if samples is not None and len(samples.read_text().splitlines()) > 17:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "continue with: cairn matrix run --resume" in err
    assert samples is not None
    before = samples.read_text()
    status = cairn("matrix", "status")
    assert "interrupted" in status.out and "--resume" in status.out
    # The rest of 30 rounds would take long. The trials after the interruption are enough.
    process = cairn.start("matrix", "run", "--resume", "last")
    for _ in range(600):
        if len(samples.read_text().splitlines()) > len(before.splitlines()) + 9:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    trials = [json.loads(line)["trial"] for line in samples.read_text().splitlines()]
    counted = [(one["round"], one["position"]) for one in trials if one["round"]]
    assert counted == [(1 + at // 10, at % 10) for at in range(len(counted))]


def test_a_contender_that_prints_something_else_loses_its_cell(
    cairn: Command, forward: Path
) -> None:
    file = cairn.home / "wrong.toml"
    file.write_text(
        f'[plan]\ncontenders = ["system", "other={forward}"]\nrounds = 1\n'
        "[program.liar]\ncommand = \"sh -c 'echo $LD_PRELOAD | wc -w'\"\n"
        "[program.honest]\ncommand = \"sh -c 'seq 2000'\"\n"
        "[program.broken]\ncommand = \"sh -c 'exit 7'\"\n"
    )
    ran = cairn("matrix", "run", file)
    assert ran.code == 3
    assert "no mean contains broken: under system it failed with exit code 7" in (
        " ".join(ran.out.split())
    )
    assert "honest" in ran.out


def test_files_are_compared_if_the_output_is_not(cairn: Command, forward: Path) -> None:
    """Once, a contender under which the program wrote nothing was a fast success."""
    file = cairn.home / "files.toml"
    line = "case $LD_PRELOAD in *forward*) ;; *) echo text >{work}/out ;; esac"
    other = "echo $LD_PRELOAD >{work}/out"
    file.write_text(
        # In the first round, `other` may run before there is an output of `system`.
        f'[plan]\ncontenders = ["system", "other={forward}"]\nrounds = 2\nwarmup = 0\n'
        + "".join(
            f'[program.{name}]\ncommand = "{text}; date +%N"\nshell = true\n'
            'unchecked = "it prints the time"\nwrites = ["{work}/out"]\n'
            for name, text in (("lazy", line), ("liar", other), ("good", "echo text >{work}/out"))
        )
    )
    ran = cairn("matrix", "run", file)
    assert ran.code == 4, ran.err
    said = " ".join(ran.out.split())
    assert "lazy: other did not write" in said
    assert "liar: other wrote something else than under system" in said
    assert "good: other" not in said


def test_a_broken_plan_is_never_run(cairn: Command) -> None:
    file = cairn.home / "broken.toml"
    file.write_text('[plan]\ncontenders = ["system", "nothing"]\n[program.p]\ncomand = "true"\n')
    for command in ("check", "run"):
        found = cairn("matrix", command, file)
        assert found.code == 2
        assert "broken.toml:2: " in found.err and "broken.toml:4: " in found.err
        assert "the plan has 3 mistakes" in found.err and len(found.err.splitlines()) == 4
    assert not cairn.results.exists()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("run",), 2, "which plan"),
        (("run", "suite", "--resume", "last"), 2, "leave out suite"),
        (("run", "sute"), 2, "did you mean suite?"),
        (("report",), 2, "there is no run"),
        (("check", "suite", "--only", "larsen"), 2, "did you mean larson?"),
        (("report", "-o", "x.pdf"), 2, "chooses no form"),
        (("report", "--chart", "heat"), 2, "-o FILE.svg"),
    ],
)
def test_a_mistake_on_the_command_line_is_told(
    cairn: Command, words: tuple[str, ...], code: int, sentence: str
) -> None:
    found = cairn("matrix", *words)
    assert (found.code, sentence in found.err) == (code, True), found.err
