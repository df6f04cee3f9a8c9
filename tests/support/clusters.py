"""Starts a cluster of Slurm on this machine: a controller and several node daemons.

All daemons listen on the loopback, and run as the user of the tests. The programs are those of
Debian's packages, whose slurmd accepts several nodes on one host.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

NODES = ("n1", "n2", "n3")
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
PACKAGES = "munge slurmctld slurmd slurm-client"

_CONF = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=6
SlurmctldTimeout=10
KillWait=2
MinJobAge=300
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
NodeName=n[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 State=UNKNOWN
PartitionName=low Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=n[1-3] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


@dataclass
class Cluster:
    """A running cluster. `environment` lets the commands of Slurm find it."""

    folder: Path
    wrapped: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For some nodes: a command in front of the node's daemon, which executes the daemon."""

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    @property
    def _env(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def start(self) -> None:
        """Starts all daemons, and waits until every node is idle."""
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o700)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        ports = _free_ports(1 + len(NODES))
        (self.folder / "slurm.conf").write_text(
            _CONF.format(
                host=socket.gethostname().partition(".")[0],
                user=getpass.getuser(),
                folder=self.folder,
                port=ports[0],
                first=ports[1],
                last=ports[-1],
            )
        )
        munge = self.folder / "munge"
        _run(
            "munged", "--force", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.until(lambda: self.states() == dict.fromkeys(NODES, "idle"), "all nodes are idle")

    def start_controller(self) -> None:
        """Starts the controller, which goes on with the state that it finds."""
        _run("slurmctld", "-f", str(self.folder / "slurm.conf"), env=self._env)

    def kill_controller(self) -> None:
        """Kills the controller."""
        _kill([_pid(self.folder / "slurmctld.pid")])

    def start_node(self, node: str) -> None:
        """Starts the daemon of a node."""
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        conf = str(self.folder / "slurm.conf")
        _run(*self.wrapped.get(node, ()), "slurmd", "-f", conf, "-N", node, env=self._env)

    def kill_daemon(self, node: str) -> None:
        """Kills the daemon of a node, but not the jobs that run there."""
        _kill([_pid(self.folder / f"{node}.pid")])

    def kill_node(self, node: str) -> None:
        """Kills a node: its daemon, and every process of its jobs."""
        jobs = self.ask("squeue", "--noheader", "--nodelist", node, "--format", "%A").split()
        daemon = _pid(self.folder / f"{node}.pid")
        steps = [
            pid
            for pid, (_, words) in _processes().items()
            for found in [re.match(r"slurmstepd: \[(\d+)\.", words)]
            if found is not None and found[1] in jobs
        ]
        _kill([daemon, *steps, *_below(steps)])

    def ask(self, *command: str) -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(
            command, env=self._env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def states(self) -> dict[str, str]:
        """The state of each node."""
        said = self.ask("sinfo", "--noheader", "--Node", "--partition", "low", "--format", "%N %t")
        return dict(line.split() for line in said.splitlines())

    def until(self, happened: Callable[[], object], what: str, timeout_s: float = 180) -> None:
        """Waits until something has happened."""
        end = time.monotonic() + timeout_s
        while not happened():
            assert time.monotonic() < end, f"it took longer than {timeout_s} s until {what}"
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends all jobs and all daemons."""
        for node in NODES:
            if (self.folder / f"{node}.pid").exists():
                self.kill_node(node)
        for name in ("slurmctld.pid", "munge/pid"):
            if (self.folder / name).exists():
                _kill([_pid(self.folder / name)])


def cluster(folder: Path, wrapped: dict[str, tuple[str, ...]] | None = None) -> Iterator[Cluster]:
    """Yields a cluster. Skips the test if Slurm is not installed."""
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{absent[0]} is not here; Debian: apt-get install {PACKAGES}")
    made = Cluster(folder, wrapped or {})
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _free_ports(number: int) -> list[int]:
    """Ports of the loopback, one after the other, that no process listens on."""
    for first in range(21000 + os.getpid() % 1000 * 10, 60000, number):
        ports = list(range(first, first + number))
        try:
            for port in ports:
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return ports
    raise AssertionError("no port is free")


def _run(*command: str, env: dict[str, str] | None = None) -> None:
    """Runs a command that goes on in the background."""
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def _pid(path: Path) -> int:
    return int(path.read_text())


def _processes() -> dict[int, tuple[int, str]]:
    """Returns the parent and the command line of every process, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, ValueError):
            continue
        found[int(folder.name)] = parent, words
    return found


def _below(pids: list[int]) -> list[int]:
    """All descendants of the processes."""
    known = _processes()
    found: list[int] = []
    new = set(pids)
    while new:
        new = {pid for pid, (parent, _) in known.items() if parent in new}
        found += new
    return found


def _kill(pids: list[int]) -> None:
    """Kills processes, and waits until they are gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() and not _is_dead(pid) for pid in pids):
        assert time.monotonic() < end, f"{pids} do not end"
        time.sleep(0.05)


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
