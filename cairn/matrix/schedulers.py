"""Starts rounds of a fleet as jobs by means of submitit: under Slurm, or on this machine.

submitit asks sacct alone for the state of a job. Without an accounting database, it never learns
that a job was killed. So the state is read from squeue and scontrol here.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from cairn.errors import CairnError, UsageError, cannot
from cairn.extras import install_line
from cairn.matrix import fleet_round
from cairn.matrix.fleet import Fleet, Job

if TYPE_CHECKING:
    import submitit

NAMES = ("slurm", "local")
PACKAGE = "submitit>=1.5"
LOGS = "jobs"
"""The folder for the scheduler's scripts and logs, within the folder of a fleet."""
CONTROLLERS = "controllers.log"
"""The name of the log of the processes that start the jobs on this machine, within LOGS."""
_SIGNAL_S = 30
"""The time between the warning of submitit and the end of a job that takes too long."""
_ASK_S = 60.0
"""The time that a command of Slurm may take."""

_CANCEL_S = 5.0
_CANCEL_TRIES = 2
"""A job on this machine is asked this many times to end, and each time has _CANCEL_S to do so. It
ignores the request while it starts."""

_USAGE = re.compile(r"(?i)\busage:|(unrecogni[sz]ed|invalid|unknown) option|squeue --help")
"""Matches the last line of errors of a command that does not know an option. Such a command fails
every time."""
_USUAL = frozenset({"", "None", "Priority", "Resources", "JobArrayTaskLimit"})
"""The reasons of Slurm for which a job waits until other jobs have ended."""

Ending = Literal["lost", "failed", "cancelled", "unknown"]
"""How a job ended without delivering its round. "lost" means that the job was not the cause: for
example, its node failed."""


class Fate(Struct, frozen=True):
    """How a job ended."""

    ending: Ending
    state: str
    """The scheduler's own word, such as NODE_FAIL; empty if it is not known."""
    node: str = ""


class Scheduler(Protocol):
    """Starts jobs and knows which of them still wait or run."""

    most: int | None
    """The number of jobs that may wait or run at the same time; None if the scheduler itself starts
    only `at_once` jobs of those that are submitted together."""
    trouble: str
    """The last line of errors if the last look at the jobs failed; else ""."""
    reasons: Mapping[str, str]
    """By id: the scheduler's word for why a job waits, if it may never begin."""
    patience_s: float
    """A job that neither waits nor runs, and has not delivered its round, counts as ended after
    this many seconds."""

    def submit(self, rounds: Sequence[int], avoid: Sequence[str]) -> list[Job]:
        """Submits one job for each round, but not to the nodes in `avoid`."""

    def alive(self, jobs: Sequence[Job]) -> Mapping[str, str] | None:
        """The state of each of these jobs that waits or runs, by id; None if it cannot be known."""

    def fate(self, job: Job, /) -> Fate:
        """How a job ended that neither waits nor runs any more."""

    def avoid(self, jobs: Sequence[Job], nodes: Sequence[str]) -> None:
        """Keeps jobs that wait away from these nodes, if that is possible."""

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Ends jobs that wait or run."""


def parse(text: str) -> tuple[str, str | None]:
    """The scheduler and the partition of --on. Raises UsageError."""
    name, colon, partition = text.partition(":")
    if name not in NAMES or (colon and not partition) or (partition and name != "slurm"):
        raise UsageError(f"--on must be slurm, slurm:PARTITION or local, not {text}")
    if partition and not re.fullmatch(r"[\w.,+-]+", partition):
        raise UsageError(f"{partition} is not a name for a partition of Slurm")
    return name, partition or None


def of(fleet: Fleet) -> Scheduler:
    """The scheduler of this fleet. Raises UsageError if it cannot be used here."""
    made = needed()
    if fleet.plan.scheduler == "local":
        return Local(fleet, made)
    return Slurm(fleet, made)


def needed(name: str = "") -> Any:
    """The module submitit. Raises UsageError if it, or the scheduler `name`, is missing here."""
    try:
        import submitit
    except ImportError:
        raise UsageError(
            f"--on needs submitit, which is not installed; install it with: {install_line(PACKAGE)}"
        ) from None
    if name == "slurm":
        import shutil

        absent = [one for one in ("sbatch", "srun", "squeue", "scontrol") if not shutil.which(one)]
        if absent:
            raise UsageError(
                f"{absent[0]} is not here, so there is no Slurm to submit to; run cairn on a login "
                "node of the cluster"
            )
    return submitit


class Slurm:
    """Submits arrays of jobs to Slurm, one element for each round."""

    most: int | None = None
    trouble = ""
    patience_s = 15.0

    def __init__(self, fleet: Fleet, module: Any) -> None:
        self.reasons: Mapping[str, str] = {}
        self._fleet = fleet
        self._module = module
        self._held: set[str] = set()
        """The ids of the jobs that Slurm held after a failed start, and that were ended here."""
        self._answered = False
        """Whether squeue has answered before. If it has, it knows our options."""
        needed("slurm")

    def submit(self, rounds: Sequence[int], avoid: Sequence[str]) -> list[Job]:
        """Submits an array, in which each element has a whole node of its own."""
        plan = self._fleet.plan
        executor: submitit.SlurmExecutor = self._module.SlurmExecutor(
            folder=self._fleet.path / LOGS, max_num_timeout=0
        )
        further: dict[str, Any] = {"requeue": True, "mem": "0", **dict(plan.options)}
        further.pop("exclude", None)  # it would replace the nodes in `avoid`
        limit = limit_min(self._fleet)
        if further.get("time") == str(limit):
            # submitit must know the limit. A job that takes longer than submitit expects is queued
            # again for ever, as if it had been preempted.
            del further["time"]
        settings: dict[str, Any] = {
            "job_name": f"cairn-{plan.plan}"[:40],
            "time": limit,
            "nodes": 1,
            "ntasks_per_node": 1,
            "exclusive": True,
            "signal_delay_s": _SIGNAL_S,
            "array_parallelism": at_once(plan.rounds),
            "srun_args": ["--cpu-bind=none"],
            "additional_parameters": {
                key: True if text in ("", True) else text for key, text in further.items()
            },
        }
        if plan.partition is not None:
            settings["partition"] = plan.partition
        if excluded := self._excluded(avoid):
            settings["exclude"] = excluded
        executor.update_parameters(**settings)
        path = str(self._fleet.path)
        made = []
        try:
            with contextlib.redirect_stderr(io.StringIO()), executor.batch():
                made = [executor.submit(fleet_round.measure, path, one) for one in rounds]
        except (RuntimeError, OSError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            why = next((one for one in lines if "error:" in one), lines[-1] if lines else "")
            raise CairnError(
                f"Slurm refused the jobs: {why.rpartition('error: ')[2].strip()}"
            ) from None
        return [Job(job.job_id, one) for job, one in zip(made, rounds, strict=True)]

    def alive(self, jobs: Sequence[Job]) -> Mapping[str, str] | None:
        """Asks squeue. Old versions of squeue have no --me.

        Slurm may hold a job after a failed start, so that the job would wait for ever. Such a job
        is ended. Raises CairnError if squeue does not know the options of this command.
        """
        command = [
            "squeue", "--noheader", "--array", "--user", str(os.getuid()), "--format", "%i|%T|%r",
        ]  # fmt: skip
        said, self.trouble = _answer(command)
        if said is None:
            if not self._answered and _USAGE.search(self.trouble):
                raise CairnError(
                    f"squeue refuses '{' '.join(command)}': {self.trouble.rstrip('.')}; update "
                    "Slurm on this machine"
                )
            return None
        self._answered = True
        wanted = {job.id for job in jobs}
        found = {}
        reasons = {}
        for line in said.splitlines():
            name, state, reason = [*line.strip().split("|"), "", ""][:3]
            if name not in wanted:
                continue
            if state == "PENDING" and "requeued held" in reason.replace("_", " ").lower():
                self._held.add(name)
                self.cancel([Job(name, 0)])
                continue
            found[name] = state
            if state == "PENDING" and reason not in _USUAL:
                reasons[name] = reason
        self.reasons = reasons
        return found

    def fate(self, job: Job, /) -> Fate:
        """Asks scontrol, which knows a job for some minutes after its end.

        A held job that was ended here is a failed one, although Slurm says that it was cancelled.
        """
        said = _asked(["scontrol", "--oneliner", "show", "job", job.id]) or ""
        fields = dict(re.findall(r"(\w+)=(\S*)", said.splitlines()[0] if said.strip() else ""))
        state, node = fields.get("JobState", ""), fields.get("NodeList", "")
        if job.id in self._held:
            state = "LAUNCH_FAILED"
        endings: dict[str, Ending] = {
            "FAILED": "failed", "TIMEOUT": "failed", "OUT_OF_MEMORY": "failed",
            "LAUNCH_FAILED": "failed",
            "CANCELLED": "cancelled", "NODE_FAIL": "lost", "PREEMPTED": "lost", "BOOT_FAIL": "lost",
        }  # fmt: skip
        return Fate(endings.get(state, "unknown"), state, "" if node == "(null)" else node)

    def avoid(self, jobs: Sequence[Job], nodes: Sequence[str]) -> None:
        """Changes the jobs that wait. It is no error if a job cannot be changed."""
        names = self._excluded(nodes)
        for job in jobs:
            _asked(["scontrol", "update", f"jobid={job.id}", f"excnodelist={names}"])

    def _excluded(self, nodes: Sequence[str]) -> str:
        """The nodes to avoid, after those that the user excludes with --sbatch, as Slurm's list."""
        own = dict(self._fleet.plan.options).get("exclude", "")
        return ",".join(filter(None, (own, *nodes)))

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Ends the jobs."""
        if jobs:
            _asked(["scancel", *(job.id for job in jobs)])


class Local:
    """Starts the jobs on this machine, one after the other.

    The executor of submitit would start all jobs at once.
    """

    most: int | None = 1
    trouble = ""
    reasons: Mapping[str, str] = {}
    patience_s = 0.5

    def __init__(self, fleet: Fleet, module: Any) -> None:
        self._fleet = fleet
        self._module = module
        self._own: dict[str, Any] = {}

    def submit(self, rounds: Sequence[int], avoid: Sequence[str]) -> list[Job]:
        """Starts a process for each round."""
        if fleet_round.node_name() in avoid:
            raise CairnError("this machine cannot measure the round")
        executor: submitit.LocalExecutor = self._module.LocalExecutor(
            folder=self._fleet.path / LOGS, max_num_timeout=0
        )
        executor.update_parameters(
            timeout_min=self._fleet.plan.minutes, signal_delay_s=_SIGNAL_S, tasks_per_node=1
        )
        jobs = []
        for one in rounds:
            with _output_to(self._fleet.path / LOGS / CONTROLLERS):
                made = executor.submit(fleet_round.measure, str(self._fleet.path), one)
            self._own[made.job_id] = made
            jobs.append(Job(made.job_id, one))
        return jobs

    def alive(self, jobs: Sequence[Job]) -> Mapping[str, str] | None:
        """The processes that still run. Those of an earlier cairn are found by their ids."""
        return {job.id: "RUNNING" for job in jobs if self._goes_on(job.id)}

    def _goes_on(self, name: str) -> bool:
        if name in self._own:
            return not self._own[name].done()
        with contextlib.suppress(OSError):
            return b"submitit.local" in Path(f"/proc/{int(name)}/cmdline").read_bytes()
        return False

    def fate(self, _: Job, /) -> Fate:
        """Returns "unknown", since nothing shows how the process ended."""
        return Fate("unknown", "")

    def avoid(self, jobs: Sequence[Job], nodes: Sequence[str]) -> None:
        """Does nothing: no job waits."""

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Ends the processes, which give up their rounds, and waits until they are gone.

        submitit passes SIGTERM on to the process that measures; see `fleet_round.measure`. On
        SIGINT, it would kill this process after a second.
        """
        for _ in range(_CANCEL_TRIES):
            left = [job.id for job in jobs if self._goes_on(job.id)]
            for name in left:
                with contextlib.suppress(OSError):
                    os.kill(int(name), signal.SIGTERM)
            deadline = time.monotonic() + _CANCEL_S
            while any(map(self._goes_on, left)) and time.monotonic() < deadline:
                time.sleep(0.02)


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Appends to a file what processes print that are started in the block.

    Otherwise their messages would stand on the user's terminal, and a reader of standard output
    would wait for their end.
    """
    kept = {}
    try:
        file = path.open("ab")
    except OSError as error:
        raise cannot("write", path, error) from error
    try:
        with file:
            for stream in (1, 2):
                with contextlib.suppress(OSError):  # the stream may be closed
                    kept[stream] = os.dup(stream)
                    os.dup2(file.fileno(), stream)
        yield
    finally:
        for stream, own in kept.items():
            os.dup2(own, stream)
            os.close(own)


def at_once(rounds: int) -> int:
    """The most rounds to measure at the same time: a quarter of all rounds.

    Each node then measures about four rounds. The rounds of a node are compared only with each
    other, and an interval needs at least two of them.
    """
    return max(1, rounds // 4)


def limit_min(fleet: Fleet) -> int:
    """The time limit of a job in minutes: that of --sbatch time=N, or else that of the plan."""
    given = dict(fleet.plan.options).get("time", "")
    return int(given) if re.fullmatch(r"[1-9][0-9]{0,8}", given) else fleet.plan.minutes


def log_of(fleet: Fleet, job: Job) -> str:
    """The last line that a job wrote to its log of errors; empty without one."""
    folder = fleet.path / LOGS
    try:
        found = sorted(folder.rglob(f"{job.id}_*_log.err"))
        lines = found[-1].read_text(errors="replace").splitlines() if found else []
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip() and not line.startswith("submitit")]
    return said[-1][:200] if said else ""


def _asked(command: Sequence[str]) -> str | None:
    """The output of a command of Slurm; None if the command fails."""
    return _answer(command)[0]


def _answer(command: Sequence[str]) -> tuple[str | None, str]:
    """The output of a command of Slurm, or None and the last line of its errors if it fails.

    It fails, for example, while Slurm's controller restarts.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_ASK_S, check=False,
        )  # fmt: skip
    except OSError as error:
        return None, f"{command[0]}: {error.strerror or error}"
    except subprocess.TimeoutExpired:
        return None, f"{command[0]} gave no answer within {_ASK_S:g} s"
    if done.returncode == 0:
        return done.stdout, ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return None, lines[-1][:200] if lines else f"{command[0]} failed"
