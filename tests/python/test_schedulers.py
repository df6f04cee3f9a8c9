"""Tests of the schedulers of a fleet: the options of --on and --sbatch, and the commands of Slurm."""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.fleets import a_fleet

from cairn.cli.fleet import options_of
from cairn.errors import CairnError, UsageError
from cairn.matrix import schedulers
from cairn.matrix.fleet import Job
from cairn.matrix.schedulers import Fate, Slurm


@pytest.mark.parametrize("text", ["slurm:", "pbs", "local:x", "", "slurm:a b", "slurm:$(x)"])
def test_a_wrong_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        schedulers.parse(text)
    assert schedulers.parse("slurm:a,b-1") == ("slurm", "a,b-1")


@pytest.mark.parametrize(
    "text", ["=x", "a b=x", "account=x\ny", "--=y", "time=1:00:00", "time=0", "time"]
)
def test_a_wrong_option_of_sbatch_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        options_of([text])
    assert options_of(["--account=a", "time-min=5", "oversubscribe"]) == (
        ("account", "a"), ("time_min", "5"), ("oversubscribe", ""),
    )  # fmt: skip


def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError) as raised:
        schedulers.needed()
    assert str(raised.value).endswith(" install 'submitit>=1.5'")
    assert f"install it with: {shlex.quote(sys.executable)} -m pip" in str(raised.value)
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["slurm"] == [schedulers.PACKAGE]


COMMANDS = {
    "sbatch": 'cp "$1" {folder}/script; echo Submitted batch job 7',
    "squeue": """cat <<E
7_0|RUNNING|None
7_1|PENDING|Resources
7_2|PENDING|launch failed requeued held
7_3|PENDING|PartitionTimeLimit
8_0|RUNNING|None
E""",
    "scontrol": """case "$*" in
  *"show job 7_0"*) echo 'JobId=8 ArrayJobId=7 JobState=NODE_FAIL Reason=None NodeList=n3 X=1' ;;
  *"show job 7_1"*) echo 'JobId=9 JobState=FAILED NodeList=(null)' ;;
  *"show job 7_2"*) echo 'JobId=10 JobState=CANCELLED NodeList=(null)' ;;
  *"show job"*) exit 1 ;;
  *) echo "$*" >>{folder}/changed ;;
esac""",
    "scancel": 'echo "$*" >>{folder}/ended',
    "srun": "exit 1",
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Slurm with commands that say what a test expects."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in COMMANDS.items():
        (folder / name).write_text("#!/bin/sh\n" + body.replace("{folder}", str(folder)) + "\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    fleet = a_fleet(
        tmp_path / "results", rounds=8, partition="low", options=(("account", "mine"),), minutes=42
    )
    return Slurm(fleet, pytest.importorskip("submitit"))


def test_the_array_that_is_submitted(slurm: Slurm, tmp_path: Path) -> None:
    assert slurm.submit([3, 5, 6], ["n2", "n9"]) == [Job("7_0", 3), Job("7_1", 5), Job("7_2", 6)]
    script = (tmp_path / "bin" / "script").read_text()
    for line in (
        "--array=0-2%2", "--exclude=n2,n9", "--partition=low", "--account=mine", "--time=42",
        "--requeue", "--exclusive", "--nodes=1", "--mem=0",
    ):  # fmt: skip
        assert f"#SBATCH {line}\n" in script


def test_submitit_knows_the_limit_of_a_job_that_the_user_gives(slurm: Slurm) -> None:
    """Once, it took a job that was too long for a preempted one, and queued it again for ever."""
    fleet = slurm._fleet
    fleet.plan = replace(fleet.plan, options=(("time", "20"),))
    slurm.submit([3], [])
    (pickled,) = fleet.path.rglob("*submitted.pkl")
    delayed = pytest.importorskip("submitit").core.utils.DelayedSubmission.load(pickled)
    assert delayed._timeout_min == 20
    script = (Path(os.environ["PATH"].partition(":")[0]) / "script").read_text()
    assert [line for line in script.splitlines() if "--time" in line] == ["#SBATCH --time=20"]


def test_the_nodes_that_the_user_excludes_stay_excluded(slurm: Slurm, tmp_path: Path) -> None:
    """They replaced the nodes that had refused a round, or were replaced by them."""
    fleet = slurm._fleet
    fleet.plan = replace(fleet.plan, options=(("exclude", "n[7-9]"),))
    for avoid, expected in ([], "n[7-9]"), (["n2"], "n[7-9],n2"):
        slurm.submit([3], avoid)
        script = (tmp_path / "bin" / "script").read_text()
        (line,) = [line for line in script.splitlines() if "--exclude=" in line]
        assert shlex.split(line, comments=False)[1:] == [f"--exclude={expected}"]
    slurm.avoid([Job("7_0", 3)], ["n2"])
    assert (tmp_path / "bin" / "changed").read_text().endswith(" excnodelist=n[7-9],n2\n")


def test_an_old_squeue_is_asked_or_named(slurm: Slurm, tmp_path: Path) -> None:
    """Without the option --me, it printed a usage error, and cairn waited for ever."""
    squeue = tmp_path / "bin" / "squeue"
    old = """#!/bin/sh
case "$*" in
*{option}*) echo "squeue: unrecognized option" >&2
    echo 'Try "squeue --help" for more information' >&2; exit 1 ;;
esac
echo '7_0|RUNNING|None'
"""
    job = Job("7_0", 1)
    squeue.write_text(old.replace("{option}", "--array"))
    with pytest.raises(CairnError, match=r"squeue refuses .*--help.*; update Slurm"):
        slurm.alive([job])
    squeue.write_text(old.replace("{option}", "--me"))
    assert slurm.alive([job]) == {"7_0": "RUNNING"}
    squeue.write_text(old.replace("{option}", "--array"))
    assert slurm.alive([job]) is None, "squeue has answered before, so it knows the options"


def test_the_state_of_jobs_comes_from_squeue_and_scontrol(slurm: Slurm, tmp_path: Path) -> None:
    jobs = [Job(f"7_{place}", place) for place in range(4)]
    assert slurm.fate(jobs[2]) == Fate("cancelled", "CANCELLED", "")
    assert slurm.alive(jobs) == {"7_0": "RUNNING", "7_1": "PENDING", "7_3": "PENDING"}
    assert slurm.reasons == {"7_3": "PartitionTimeLimit"}
    assert (tmp_path / "bin" / "ended").read_text() == "7_2\n"
    assert slurm.fate(jobs[0]) == Fate("lost", "NODE_FAIL", "n3")
    assert slurm.fate(jobs[1]) == Fate("failed", "FAILED", "")
    assert slurm.fate(jobs[2]) == Fate("failed", "LAUNCH_FAILED", "")
    assert slurm.fate(jobs[3]) == Fate("unknown", "", "")
    slurm.avoid(jobs[:1], ["n3", "n4"])
    assert (tmp_path / "bin" / "changed").read_text() == "update jobid=7_0 excnodelist=n3,n4\n"
    for name in ("squeue", "sbatch"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho 'sbatch: error: No.' >&2; exit 1\n")
    assert slurm.alive(jobs) is None and slurm.trouble == "sbatch: error: No."
    with pytest.raises(CairnError, match=r"Slurm refused the jobs: No\."):
        slurm.submit([1], [])


def test_without_slurm_the_missing_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="sbatch is not here, so there is no Slurm"):
        schedulers.needed("slurm")
