"""Tests of cairn matrix run --on slurm with a real controller and three nodes on the loopback."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.clusters import NODES, Cluster, cluster

from ..conftest import Command

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PLAN = """\
[plan]
contenders = ["system", "x={library}"]
rounds = {rounds}
warmup = 0

[program.waits]
command = "sleep {seconds}"
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from cluster(tmp_path_factory.mktemp("slurm"))


@pytest.fixture
def on_slurm(cairn: Command, slurm: Cluster) -> Command:
    """The command, which finds the cluster. Every node is idle when the test begins."""
    for node in NODES:
        if slurm.states()[node] not in ("idle", "mix", "alloc"):
            slurm.start_node(node)
    slurm.until(lambda: slurm.states() == dict.fromkeys(NODES, "idle"), "all nodes are idle", 120)
    cairn.environment.update(slurm.environment)
    return cairn


@pytest.fixture
def plan(cairn: Command, forward: Path) -> Callable[..., Path]:
    """Returns plan(rounds, seconds), which writes a plan of one program that waits."""

    def write(rounds: int, seconds: float = 0.2, library: Path = forward) -> Path:
        file = cairn.home / "waits.toml"
        file.write_text(PLAN.format(rounds=rounds, seconds=seconds, library=library))
        return file

    return write


class Begun:
    """A run on the cluster that is still in progress."""

    def __init__(self, cairn: Command, *arguments: object) -> None:
        self._cairn = cairn
        self.process = cairn.start("matrix", "run", *arguments, "--on", "slurm:low")

    @property
    def folder(self) -> Path:
        """The folder of the run, once it is there."""
        end = time.monotonic() + 180
        while True:
            found = list(self._cairn.results.glob("*/fleet.json"))
            if found:
                return found[0].parent
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.05)

    def measuring(self, but: tuple[str, ...] = (), timeout_s: float = 180) -> tuple[int, str]:
        """The round that is being measured, and its node, as soon as there is one."""
        end = time.monotonic() + timeout_s
        while True:
            for path in (self.folder / "attempts").glob("*/*/samples.jsonl"):
                number, node, _ = path.parent.parent.name.split("-")
                if node not in but:
                    return int(number), node
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.05)

    def ended(self, timeout_s: float = 600) -> tuple[int, str, str]:
        """The exit code and the output."""
        out, err = self.process.communicate(timeout=timeout_s)
        assert "Traceback" not in err, err
        return self.process.returncode, out, err

    def status(self) -> dict:
        return self._cairn("matrix", "status", self.folder.name, "--json").json


@pytest.fixture
def begin() -> Iterator[Callable[..., Begun]]:
    """Returns begin(cairn, plan), which begins a run. Ends the runs that a failed test leaves."""
    begun: list[Begun] = []

    def start(*arguments: object) -> Begun:
        begun.append(Begun(*arguments))  # type: ignore[arg-type]
        return begun[-1]

    yield start
    for one in begun:
        one.process.kill()
        one.process.communicate()


def complete(begun: Begun, rounds: int) -> dict:
    """The state of a run that must have ended well: every round counts once."""
    code, out, err = begun.ended()
    assert code == 0, err
    state = begun.status()
    assert state["state"] == "complete" and state["rounds"] == rounds
    assert sorted(n for node in state["nodes"] for n in node["rounds"]) == list(
        range(1, rounds + 1)
    )
    for node in state["nodes"]:
        assert node["runs"] == node["runs_proven"] == 2 * len(node["rounds"])
        assert "kernel" in node["machine"]
        assert f"node {node['node']}: " in " ".join(out.split())
    return state


def raw_job(slurm: Cluster, node: str) -> str:
    """The job that runs on the node."""
    return slurm.ask("squeue", "--noheader", "--nodelist", node, "--format", "%A").split()[0]


def test_an_array_completes_on_three_nodes(on_slurm: Command, slurm: Cluster, begin, plan) -> None:
    begun = begin(on_slurm, plan(12))
    state = complete(begun, 12)
    assert {node["node"] for node in state["nodes"]} == set(NODES)
    lines = (begun.folder / "jobs.jsonl").read_text().splitlines()
    assert len({json.loads(line)["id"].partition("_")[0] for line in lines}) == 1


def test_a_node_that_is_killed_in_mid_round(on_slurm: Command, slurm: Cluster, begin, plan) -> None:
    begun = begin(on_slurm, plan(8, 2.0))
    number, node = begun.measuring()
    slurm.kill_node(node)
    state = complete(begun, 8)
    by_round = {n: one["node"] for one in state["nodes"] for n in one["rounds"]}
    assert by_round[number] != node


def test_a_job_that_is_requeued(on_slurm: Command, slurm: Cluster, begin, plan) -> None:
    begun = begin(on_slurm, plan(4, 2.0))
    _, node = begun.measuring()
    slurm.ask("scontrol", "requeue", raw_job(slurm, node))
    complete(begun, 4)


def test_jobs_that_are_preempted(on_slurm: Command, slurm: Cluster, begin, plan) -> None:
    begun = begin(on_slurm, plan(8, 2.0))
    begun.measuring()
    script = on_slurm.home / "urgent"
    script.write_text("#!/bin/sh\nsleep 5\n")
    slurm.ask(
        "sbatch", "--partition", "high", "--array", "1-3", "--exclusive", "--chdir", "/tmp",
        "--output", "/dev/null", str(script),
    )  # fmt: skip
    slurm.until(
        lambda: "low" not in slurm.ask("squeue", "--noheader", "--states", "R", "--format", "%P"),
        "the urgent jobs took all nodes",
    )
    complete(begun, 8)
    said = slurm.ask("grep", "-c", "Preempted\\|preempt", str(slurm.folder / "slurmctld.log"))
    assert int(said) > 0


def test_a_controller_that_is_started_anew(on_slurm: Command, slurm: Cluster, begin, plan) -> None:
    begun = begin(on_slurm, plan(6, 2.0))
    begun.measuring()
    slurm.kill_controller()
    time.sleep(8)
    slurm.start_controller()
    complete(begun, 6)


def test_a_library_that_one_node_does_not_have(
    cairn: Command, forward: Path, begin, plan, tmp_path: Path, slurm: Cluster
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can hide a library from one node")
    folder = tmp_path / "libraries"
    folder.mkdir()
    library = folder / "liballoc.so"
    library.write_bytes(forward.read_bytes())
    slurm.kill_daemon("n2")
    hidden = f'mount -t tmpfs none {folder} && exec "$@"'
    slurm.wrapped["n2"] = ("unshare", "--mount", "sh", "-c", hidden, "sh")
    slurm.start_node("n2")
    try:
        cairn.environment.update(slurm.environment)
        slurm.until(lambda: slurm.states() == dict.fromkeys(NODES, "idle"), "nodes are idle", 120)
        file = plan(12, library=library)
        file.write_text(file.read_text().replace('"x=', f'"same={forward}", "x='))
        begun = begin(cairn, file)
        code, out, err = begun.ended()
        assert code == 0, err
        assert f"n2: x is left out: {library}: no such file" in " ".join(err.split()), err
        state = begun.status()
        absent = {one["node"]: one["absent"] for one in state["nodes"]}
        assert set(absent) == set(NODES)
        assert str(library) in absent["n2"][0] and not absent["n1"] and not absent["n3"]
        said = " ".join(out.split())
        assert "node n2: " in said and "x is left out" in said
        assert (
            "x was measured in" in said and "@n2" not in said.partition("x was measured in")[2][:80]
        )
    finally:
        slurm.kill_daemon("n2")
        del slurm.wrapped["n2"]
        slurm.start_node("n2")


def test_the_same_round_delivered_twice(on_slurm: Command, slurm: Cluster, begin, plan) -> None:
    begun = begin(on_slurm, plan(6, 1.0))
    begun.measuring()
    again = (
        "import sys; from cairn.matrix import fleet, schedulers; from pathlib import Path; "
        "one = fleet.Fleet(Path(sys.argv[1])); "
        "print(len(schedulers.of(one).submit(list(range(1, 7)), [])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", again, str(begun.folder)],
        env={**on_slurm.env}, capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    assert done.stdout.strip() == "6"
    complete(begun, 6)
    slurm.until(lambda: not slurm.ask("squeue", "--noheader").strip(), "all jobs ended", 120)
    assert begun.status()["rounds"] == 6
    assert len(list((begun.folder / "rounds").iterdir())) == 6


def test_a_daemon_that_dies_beside_its_job_so_that_a_round_is_measured_twice(
    on_slurm: Command, slurm: Cluster, begin, plan
) -> None:
    begun = begin(on_slurm, plan(4, 10.0))
    _, node = begun.measuring()
    slurm.kill_daemon(node)
    complete(begun, 4)


def test_a_fleet_gives_what_one_machine_gives(
    on_slurm: Command, slurm: Cluster, forward: Path
) -> None:
    """A fleet and a single machine both find a contender that is slower by a known step.

    The nodes share one machine here. While one node measures, jobs of other nodes start. So the
    programs run for some tenths of a second: the start of a job disturbs them little.
    """
    file = on_slurm.home / "equal.toml"
    file.write_text(
        f'[plan]\ncontenders = ["system", "same={forward}", "slow={forward}:TEST_SLOW=400"]\n'
        "rounds = 20\n"
        '[program.sort]\ncommand = "sort --parallel=1 {data}/lines"\n'
        'input = { lines = "generate lines 12M seed=1" }\n'
        '[program.larson]\nworkload = "larson"\n'
        'arguments = "--threads {threads} --operations 3M"\nthreads = [1]\n'
    )
    local = on_slurm("matrix", "run", file, timeout=600)
    assert local.code == 0, local.err
    here = on_slurm("matrix", "report", "last", "--json").json
    ran = on_slurm("matrix", "run", file, "--on", "slurm:low", timeout=900)
    assert ran.code == 0, ran.err
    there = on_slurm("matrix", "report", "last", "--json").json
    print(ran.out)
    for measure in ("time", "memory"):
        for name in ("same", "slow"):
            one, other = (_mean(of, measure, name) for of in (here, there))
            print(measure, name, *(f"{math.exp(of[0]):.3f} ±{of[1]:.3f}" for of in (one, other)))
            assert abs(one[0] - other[0]) <= one[1] + other[1]


def _mean(document: dict, measure: str, name: str) -> tuple[float, float]:
    """The logarithm of a mean, and half the length of its interval."""
    wanted = measure, "geometric mean", name
    (found,) = (
        row
        for row in document["rows"]
        if (row["measure"], row["program"], row["contender"]) == wanted
    )
    return math.log(found["estimate"]), math.log(found["high"] / found["low"]) / 2
