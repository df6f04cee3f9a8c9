"""Measures one round of a fleet on this node. The scheduler's job calls `measure`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

import cairn
from cairn.allocators.contenders import parse_contender
from cairn.doctor import machine
from cairn.errors import CairnError, Interrupted
from cairn.matrix import EXPERIMENT, inputs, programs, runs
from cairn.matrix.fleet import Fleet, Node, Refusal
from cairn.matrix.plan import read
from cairn.matrix.runs import Competing
from cairn.model import SCHEMA, Run, Sample, Trial
from cairn.run import stop_request, store
from cairn.run.measure import Measurement
from cairn.run.observer import Progress
from cairn.run.runner import private_folder

_SCHEDULERS = ("SLURM", "SRUN", "SBATCH", "SUBMITIT", "PMI")
"""The beginnings of the variables that a scheduler sets for its job."""
_SETTLE_S = 2.0
"""The time in which a signal to all processes of a job has reached this one."""


class _Log:
    """An observer that writes to the log of the job."""

    def trial_begins(self, trial: Trial) -> None:
        """Says nothing."""

    def trial_ended(self, _: Sample, /) -> None:
        """Says nothing."""

    def warmed(self, size: int) -> None:
        """Says nothing."""

    def round_ended(self, progress: Progress) -> None:
        """Says nothing."""

    def contender_failed(self, name: str, why: str) -> None:
        """Writes why the contender failed."""
        self.told(f"under {name}, the program {why}")

    def told(self, sentence: str) -> None:
        """Writes the sentence."""
        sys.stderr.write(sentence + "\n")


def node_name() -> str:
    """The name of this node, as its scheduler calls it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]


def job_id() -> str:
    """The id of the job in which this process runs; empty outside of a job."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array:
        return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"
    return os.environ.get("SLURM_JOB_ID") or os.environ.get("SUBMITIT_LOCAL_JOB_ID", "")


def measure(path: str, number: int) -> str:
    """Measures a round and delivers it. Returns what became of the round, as a phrase.

    A round that was delivered before is not measured again. If this node cannot measure the round
    (CairnError), the fleet gets the reason. The error is not raised, because the job itself has not
    failed.
    """
    fleet = Fleet(Path(path))
    node = node_name()
    try:
        return _measured(fleet, number, node)
    except (Interrupted, KeyboardInterrupt):
        return "interrupted"
    except CairnError as error:
        fleet.refuse(Refusal(number, node, str(error).rstrip(".")))
        return "refused"
    except Exception as error:
        fleet.refuse(Refusal(number, node, f"{type(error).__name__}: {error}"))
        raise


def _measured(fleet: Fleet, number: int, node: str) -> str:
    plan = fleet.plan
    if plan.cairn != cairn.__version__:
        raise CairnError(
            f"cairn {cairn.__version__} is installed here, and the run was begun with {plan.cairn}"
        )
    with contextlib.ExitStack() as held:
        with _ended_by_scheduler():
            held.enter_context(_alone())
        if fleet.has(number) or fleet.ended() is not None:
            return "not needed"
        attempt = fleet.attempt(number, node)
        job = job_id()
        try:
            with _without_scheduler(), _ended_by_scheduler():
                folder, absent = _one_round(fleet, number, attempt)
            named = Node(node, job, attempt.name, tuple(absent))
            return "delivered" if fleet.deliver(folder, number, named) else "was there already"
        finally:
            shutil.rmtree(attempt, ignore_errors=True)


def _one_round(fleet: Fleet, number: int, attempt: Path) -> tuple[Path, Sequence[str]]:
    """Measures a round below `attempt`.

    Returns the folder of the round, and sentences that say what this node lacks.
    """
    plan = fleet.plan
    named = runs.NamedPlan(
        plan.plan, read(plan.text, plan.plan), Path(plan.folder) if plan.folder else inputs.home()
    )
    named.folder.mkdir(parents=True, exist_ok=True)
    found = runs.examine(named, plan.only)
    here = runs.runnable(found)
    competing = runs.competing(plan.contenders, plan.baseline, found)
    sums = inputs.make_all(here, _Log().told)
    absent = [
        *_contenders_absent(plan.contenders, competing),
        *(f"{one.program.name} is left out: {one.why_not}" for one in found if not one.runs),
    ]
    settings = replace(programs.settings_of(here, named.folder), warmup=named.plan.warmup)
    run = Run(
        schema=SCHEMA, id=fleet.name_of(number), created_at=time.time(), cairn=cairn.__version__,
        settings=settings, contenders=competing.contenders, baseline=competing.baseline,
        rule=replace(runs.rule(named.plan, 1, None), budget_s=None), seed=plan.seed,
        host=machine.host(), notes=programs.notes_of(named.plan, here),
        experiment=f"{EXPERIMENT} {plan.plan}", made_by="cairn matrix run",
    )  # fmt: skip
    folder = store.Folder.create(attempt, run)
    folder.write(inputs.KEPT, inputs.as_kept(sums))
    try:
        with private_folder() as scratch:
            Measurement(run, folder, scratch, _Log(), only_round=number).measure()
        if any(sample.signal is not None for sample in folder.samples()):
            # A scheduler may have ended the program with all processes of the job. Its signal may
            # reach this process later than the program. Then no contender is to blame.
            time.sleep(_SETTLE_S)
            stop_request.check()
    finally:
        inputs.remove_work(settings)
    # The warm-up has the number 0. A failed preparation in it costs the round nothing.
    lost = [workload for workload, round_number in folder.left_out() if round_number > 0]
    left_out = sorted({settings.workloads[workload].name for workload in lost})
    if left_out:
        raise CairnError(
            f"round {number} is not whole: the preparation of {', '.join(left_out)} failed twice"
        )
    changed = inputs.changed(folder.content(inputs.KEPT))
    if changed is not None:
        raise CairnError(
            f"the input {changed} was changed during round {number}; let the programs write to "
            "{work}"
        )
    return folder.path, absent


def _contenders_absent(specs: Sequence[str], competing: Competing) -> list[str]:
    """Why contenders are not measured on this node, as sentences that name them."""
    here = {one.name for one in competing.contenders}
    names = [name for name in (parse_contender(spec).name for spec in specs) if name not in here]
    return [f"{name} is left out: {why}" for name, why in zip(names, competing.absent, strict=True)]


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Waits until no other round is measured on this machine.

    Two rounds at the same time would disturb each other. If the scheduler gives a whole node to
    each job, there is never another round to wait for.
    """
    path = Path(tempfile.gettempdir()) / f"cairn-round-{os.getuid()}.lock"
    with inputs.locked(path):
        yield


@contextlib.contextmanager
def _ended_by_scheduler() -> Iterator[None]:
    """Lets SIGTERM act like ctrl-C, so that the round is not delivered. submitit ignores SIGTERM.

    A scheduler sends SIGTERM to all processes of a job when it takes the node from the job.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop_request.on_signal)
    try:
        yield
        stop_request.check()
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _without_scheduler() -> Iterator[None]:
    """Hides the scheduler's variables, so that programs behave as outside of a job."""
    hidden = {name: text for name, text in os.environ.items() if name.startswith(_SCHEDULERS)}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
