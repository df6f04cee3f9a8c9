"""Tests of cairn matrix run --on local: the jobs of a fleet, on this machine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support.processes import running

from ..conftest import Command

PLAN = """\
[plan]
contenders = ["system", "x=LIBRARY"]
rounds = 2
warmup = 0

[program.copy]
command = "cp {data}/text {work}/copy"
writes = ["{work}/copy"]
file = { text = "some text" }
"""


@pytest.fixture
def plan(cairn: Command, forward: Path) -> Path:
    # The lock that keeps two rounds from running at once lies in TMPDIR. With a TMPDIR of its own,
    # the test does not wait for rounds of other tests.
    cairn.environment["TMPDIR"] = str(cairn.home)
    file = cairn.home / "small.toml"
    file.write_text(PLAN.replace("LIBRARY", str(forward)))
    return file


def test_a_plan_is_measured_by_jobs(cairn: Command, plan: Path) -> None:
    ran = cairn("matrix", "run", plan, "--on", "local")
    assert ran.code == 0, ran.err
    state = cairn("matrix", "status", "--json").json
    assert state["state"] == "complete" and state["rounds"] == 2
    (node,) = state["nodes"]
    assert node["rounds"] == [1, 2] and node["runs"] == node["runs_proven"] == 4
    assert f"node {node['node']}: 2 rounds on" in " ".join(ran.out.split())
    assert cairn("matrix", "report").out == ran.out
    (folder,) = cairn.results.iterdir()
    assert not list((folder / "attempts").iterdir())

    # A round that is missing is measured when the run is resumed, and no other.
    (lost,) = (folder / "rounds").glob("*-0002")
    lost.rename(cairn.home / "lost")
    assert "1 of 2 rounds" in " ".join(cairn("matrix", "report", folder.name).out.split())
    again = cairn("matrix", "run", "--resume", folder.name)
    assert again.code == 0, again.err
    assert "round 2 submitted" in again.err and "round 1 submitted" not in again.err
    assert cairn("matrix", "status", "--json").json["rounds"] == 2


def test_what_cannot_be_measured_is_one_sentence(cairn: Command, plan: Path) -> None:
    wrong = {
        ("--on", "slurm"): "sbatch is not here",
        ("--on", "pbs"): "--on must be slurm, slurm:PARTITION or local, not pbs",
        ("--on", "local", "--profile"): "--profile measures on this machine alone",
        ("--sbatch", "a=b"): "--sbatch needs --on slurm",
        ("--on", "local", "--sbatch", "a=b"): "--sbatch is for --on slurm",
    }
    for arguments, says in wrong.items():
        here = {"PATH": str(cairn.home)} if "slurm" in arguments else {}
        result = cairn("matrix", "run", plan, *arguments, **here)
        assert result.code == 2 and says in result.sentence, result.err
    assert not cairn.results.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_ends_the_job_on_this_machine(
    cairn: Command, forward: Path, number: signal.Signals
) -> None:
    """After ctrl-C, a traceback of submitit stood on the terminal.

    After the other two signals, the job went on, and no sentence said so.
    """
    cairn.environment["TMPDIR"] = str(cairn.home)
    nap = f"sleep 3{os.getpid():07}.{number:02}5"
    file = cairn.home / "nap.toml"
    file.write_text(
        f'[plan]\ncontenders = ["system", "x={forward}"]\nrounds = 1\nwarmup = 0\n'
        f'[program.nap]\ncommand = "{nap}"\n'
    )
    process = cairn.start("matrix", "run", file, "--on", "local")
    deadline = time.monotonic() + 60
    while not running(nap):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert not running(nap)
    (folder,) = cairn.results.iterdir()
    assert not list((folder / "attempts").iterdir())
    assert "Traceback" not in out + err
    said = " ".join(err.split())
    assert (
        f"interrupted; 0 rounds are kept; continue with: cairn matrix run --resume {folder.name}"
        in said
    )


def test_a_preparation_that_fails_in_the_warm_up_costs_no_round(
    cairn: Command, forward: Path
) -> None:
    """Once, the whole round was discarded, and its node was shunned."""
    cairn.environment["TMPDIR"] = str(cairn.home)
    file = cairn.home / "warm.toml"
    # The first call prepares the baseline's warm-up. The next two prepare that of the other one.
    prepare = f"echo >>{cairn.home}/calls; case $(wc -l <{cairn.home}/calls) in 2|3) exit 1 ;; esac"
    file.write_text(
        f'[plan]\ncontenders = ["system", "x={forward}"]\nrounds = 1\n'
        f'[program.p]\ncommand = "true"\nprepare = "{prepare}"\n'
    )
    ran = cairn("matrix", "run", file, "--on", "local")
    assert ran.code == 0, ran.err
    state = cairn("matrix", "status", "--json").json
    assert state["state"] == "complete" and not state["refused"]
