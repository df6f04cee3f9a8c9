"""Keeps a run of a plan on several machines: one folder that all of them see.

    ROOT/ID/fleet.json             what is measured; complete before the first job is submitted
    ROOT/ID/rounds/HASH-0007/      round 7: the folder of an ordinary run with this one round
    ROOT/ID/attempts/…/            rounds that are being measured, or were cut short
    ROOT/ID/refused/…              why a node could not measure a round
    ROOT/ID/jobs.jsonl             the jobs that were submitted, with their rounds
    ROOT/ID/ended                  why measuring ended; absent while rounds are missing
    ROOT/ID/jobs/…                 the scripts and logs of the scheduler

The unit of work is a whole round: every contender once on every program, on one node. A node
measures it in a folder of its own below `attempts`, and delivers it with one rename(2). This call
fails if the round is there already. So a round counts once, however often it is measured, and a
round that was cut short never counts. Its name has a hash of everything that decides what is
measured.

The rounds of one node are read as one ordinary run, which is a stratum of the report: ratios are
formed within a node, and combined afterwards. A node whose allocators or programs changed between
two rounds gives one stratum for each state.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.errors import CairnError, cannot
from cairn.model import INTERRUPTED, UNSUITED, Run, Sample
from cairn.run import store
from cairn.run.proof import unproven
from cairn.run.store import FLEET
from cairn.run.stored_run import (
    RUN,
    SAMPLES,
    STOPPED,
    DamagedFile,
    StoredRun,
    encoded,
    other_version,
)

NODE = "node.json"
_ROUNDS, _ATTEMPTS, _REFUSED, _JOBS, _ENDED = "rounds", "attempts", "refused", "jobs.jsonl", "ended"
SCHEMA = 1
_ROUND = re.compile(r"([0-9a-f]{12})-(\d{4,})")
COMPLETE = "complete"
"""The content of `ended` if every round was delivered."""


class FleetPlan(Struct, frozen=True):
    """Everything that a fleet measures. It never changes after the first job was submitted."""

    schema: int
    id: str
    created_at: float
    cairn: str
    """The version of cairn, which must be the same on all nodes."""
    plan: str
    """The name of the plan."""
    text: str
    """The plan itself, so that all nodes measure the same even if its file changes."""
    folder: str
    """The folder in which the programs run; "" for that of the inputs on each node."""
    contenders: tuple[str, ...]
    """Written as for -a."""
    baseline: str
    only: tuple[str, ...]
    rounds: int
    seed: int
    scheduler: str
    """"slurm" or "local"."""
    partition: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    """Further options of sbatch."""
    minutes: int = 60
    """The time limit of a job."""
    budget_s: float | None = None

    @property
    def digest(self) -> str:
        """A hash of everything that decides what a round measures."""
        parts = (
            self.cairn, self.text, self.folder, self.baseline, str(self.seed),
            *self.contenders, "", *self.only,
        )  # fmt: skip
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


class Node(Struct, frozen=True):
    """The content of the file NODE of a round: where the round was measured."""

    name: str
    job: str
    """The id of the scheduler's job; empty without one."""
    token: str
    """Distinguishes two measurements of the same round."""
    absent: tuple[str, ...] = ()
    """Why contenders or programs of the plan were not measured there, as sentences."""


class Refusal(Struct, frozen=True):
    """A round that a node could not measure."""

    round: int
    node: str
    says: str


class Job(Struct, frozen=True):
    """A job of the scheduler, which measures one round."""

    id: str
    round: int


class DeliveredRound(Struct, frozen=True):
    """A round as a node delivered it."""

    number: int
    node: Node
    run: Run
    samples: tuple[Sample, ...]
    stopped: tuple[str, ...] = ()
    """By workload: why measuring of the round ended."""

    @property
    def stratum(self) -> tuple[object, ...]:
        """The properties that are equal in all rounds of a stratum."""
        run = self.run
        return (
            self.node.name, run.contenders, tuple((one.name, one.build) for one in run.builds),
            tuple(workload.name for workload in run.settings.workloads),
        )  # fmt: skip


class NodeRun(StoredRun):
    """The rounds of one stratum, as one run. It is read only, and lies on no disk."""

    def __init__(
        self, path: Path, node: str, rounds: Sequence[DeliveredRound], run: Run, ended: str | None
    ) -> None:
        super().__init__(path)
        self.node = node
        self.rounds = tuple(rounds)
        self._run = run
        self._ended = ended

    def content(self, name: str) -> bytes | None:
        """Returns one part of the run, as StoredRun.content does."""
        if name == RUN:
            return encoded(self._run)
        if name == SAMPLES:
            return b"".join(encoded(one) + b"\n" for of in self.rounds for one in of.samples)
        if name == STOPPED:
            return "".join(f"{why}\n" for why in self._reasons()).encode() or None
        return None

    def _reasons(self) -> list[str]:
        """Why measuring ended: one reason for all workloads, or one for each.

        There is one for each if a workload is `UNSUITED` in all rounds.
        """
        says = " ".join(self._ended.split()) if self._ended is not None else None
        if says == COMPLETE:
            says = units.counted(len(self.rounds), "round")
        whys = [set(of) for of in zip(*(one.stopped for one in self.rounds), strict=False)]
        if {UNSUITED} in whys:
            return [UNSUITED if of == {UNSUITED} else says or INTERRUPTED for of in whys]
        return [says] if says is not None else []


class Fleet:
    """A run on several machines. Its methods raise CairnError if the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._read: dict[int, DeliveredRound] = {}
        """The rounds that were read. A delivered round never changes."""
        try:
            content = (path / FLEET).read_bytes()
        except OSError as error:
            raise cannot("read", path / FLEET, error) from error
        try:
            self.plan = msgspec.json.decode(content, type=FleetPlan)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DamagedFile(str(path / FLEET), error) from None
        if self.plan.schema != SCHEMA:
            raise other_version(path / FLEET, self.plan.schema, f"version {SCHEMA}")

    @classmethod
    def create(cls, results: Path, plan: FleetPlan) -> Fleet:
        """Makes ROOT/ID. Only the user can read the folder."""
        path = results / plan.id
        store.make_root(results)
        try:
            path.mkdir(mode=0o700)
            for name in (_ROUNDS, _ATTEMPTS, _REFUSED):
                (path / name).mkdir(mode=0o700)
            _write(path / FLEET, msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
        except OSError as error:
            raise cannot("write", path, error) from error
        return cls(path)

    def hold(self) -> None:
        """Locks the fleet until this process ends, so that one cairn alone submits jobs.

        Raises CairnError if another process holds it.
        """
        try:
            self._lock = os.open(self.path / FLEET, os.O_RDWR | os.O_CLOEXEC)
            store.lock(self._lock)
        except BlockingIOError:
            raise CairnError(
                f"another cairn waits for {self.path.name} already; 'cairn matrix status "
                f"{self.path.name}' shows how far it is"
            ) from None
        except OSError as error:
            raise cannot("lock", self.path / FLEET, error) from error

    def is_held(self) -> bool:
        """Whether a process waits for the rounds of this fleet."""
        return store.is_locked(self.path / FLEET)

    def name_of(self, number: int) -> str:
        """The name of a round's folder."""
        return f"{self.plan.digest}-{number:04d}"

    def attempt(self, number: int, node: str) -> Path:
        """A new folder for the attempt of a node to measure a round."""
        path = self.path / _ATTEMPTS / f"{number:04d}-{node}-{secrets.token_hex(6)}"
        try:
            path.mkdir(mode=0o700)
        except OSError as error:
            raise cannot("write", path, error) from error
        return path

    def has(self, number: int) -> bool:
        """Whether this round was delivered."""
        return (self.path / _ROUNDS / self.name_of(number)).is_dir()

    def deliver(self, folder: Path, number: int, node: Node) -> bool:
        """Moves a measured round to those that were delivered. False if it was there already.

        folder: the folder of a run with this one round.
        """
        target = self.path / _ROUNDS / self.name_of(number)
        try:
            _write(folder / NODE, encoded(node) + b"\n")
            folder.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            if error.errno == errno.ENOENT and target.is_dir():
                # A server of NFS may carry out a call twice. The first time has moved the folder.
                return _node(target).token == node.token
            raise cannot("write", target, error) from error
        return True

    def numbers(self) -> tuple[int, ...]:
        """The numbers of the rounds that were delivered."""
        found = []
        try:
            for path in (self.path / _ROUNDS).iterdir():
                named = _ROUND.fullmatch(path.name)
                if named and named[1] == self.plan.digest and int(named[2]) <= self.plan.rounds:
                    found.append(int(named[2]))
        except OSError as error:
            raise cannot("read", self.path / _ROUNDS, error) from error
        return tuple(sorted(found))

    def delivered(self, number: int) -> DeliveredRound:
        """A delivered round. Raises CairnError if it is damaged."""
        if number not in self._read:
            folder = store.Folder(self.path / _ROUNDS / self.name_of(number))
            self._read[number] = DeliveredRound(
                number, _node(folder.path), folder.run(), folder.samples(), folder.stopped()
            )
        return self._read[number]

    def nodes(self) -> tuple[NodeRun, ...]:
        """The delivered rounds, as one run for each stratum, in the order of the node's names."""
        strata: dict[tuple[object, ...], list[DeliveredRound]] = {}
        for number in self.numbers():
            one = self.delivered(number)
            strata.setdefault(one.stratum, []).append(one)
        ordered = sorted(strata.values(), key=lambda of: (of[0].node.name, of[0].number))
        missing_ = self.plan.rounds - sum(map(len, ordered))
        names: dict[str, int] = {}
        found: list[NodeRun] = []
        for rounds in ordered:
            node = rounds[0].node.name
            names[node] = names.get(node, 0) + 1
            state = f" ({names[node]})" if names[node] > 1 else ""
            # Missing rounds of the plan count as those of the first node, so that a report says how
            # many of all planned rounds there are.
            found.append(self._node_run(node + state, rounds, 0 if found else missing_))
        return tuple(found)

    def _node_run(self, node: str, rounds: Sequence[DeliveredRound], further: int) -> NodeRun:
        first = rounds[0].run
        number = len(rounds) + further
        run = replace(
            first,
            id=f"{self.plan.id}@{node.replace(' ', '')}",
            created_at=self.plan.created_at,
            rule=replace(first.rule, min_rounds=number, max_rounds=number),
            notes=(*first.notes, node_note(node, rounds)),
        )
        return NodeRun(self.path, node, rounds, run, self.ended())

    def ended(self) -> str | None:
        """Why measuring ended; None while rounds are missing."""
        if len(self.numbers()) >= self.plan.rounds:
            return COMPLETE
        try:
            return (self.path / _ENDED).read_text().strip() or None
        except OSError:
            return None

    def end(self, because: str) -> None:
        """Records why measuring ended before all rounds were delivered."""
        _or_fail(self.path / _ENDED, because.encode() + b"\n")

    def go_on(self) -> None:
        """Removes the record of why measuring ended, because measuring goes on."""
        with contextlib.suppress(OSError):
            (self.path / _ENDED).unlink(missing_ok=True)

    def refuse(self, refusal: Refusal) -> None:
        """Records that a node could not measure a round."""
        name = f"{refusal.round:04d}-{secrets.token_hex(6)}"
        _or_fail(self.path / _REFUSED / name, encoded(refusal) + b"\n")

    def refusals(self) -> Mapping[str, Refusal]:
        """All rounds that nodes could not measure, by the names of their files."""
        found = {}
        try:
            for path in sorted((self.path / _REFUSED).iterdir()):
                if not path.name.endswith(".new"):
                    found[path.name] = msgspec.json.decode(path.read_bytes(), type=Refusal)
        except OSError as error:
            raise cannot("read", self.path / _REFUSED, error) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise DamagedFile(str(self.path / _REFUSED), error) from None
        return found

    def submitted(self) -> tuple[Job, ...]:
        """All jobs that were submitted, oldest first. An incomplete last line is ignored."""
        try:
            content = (self.path / _JOBS).read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise cannot("read", self.path / _JOBS, error) from error
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        try:
            return tuple(msgspec.json.decode(line, type=Job) for line in lines)
        except (msgspec.DecodeError, ValueError) as error:
            raise DamagedFile(str(self.path / _JOBS), error) from None

    def note_submitted(self, jobs: Sequence[Job]) -> None:
        """Records jobs that were submitted."""
        path = self.path / _JOBS
        try:
            with path.open("ab+") as file:
                file.seek(0)
                before = file.read()
                if before and not before.endswith(b"\n"):
                    file.truncate(before.rfind(b"\n") + 1)
                file.write(b"".join(encoded(one) + b"\n" for one in jobs))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot("write", path, error) from error

    def remove_attempts(self) -> None:
        """Removes the folders of attempts that were cut short."""
        with contextlib.suppress(OSError):
            for path in (self.path / _ATTEMPTS).iterdir():
                shutil.rmtree(path, ignore_errors=True)


def _node(folder: Path) -> Node:
    try:
        return msgspec.json.decode((folder / NODE).read_bytes(), type=Node)
    except OSError as error:
        raise cannot("read", folder / NODE, error) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise DamagedFile(str(folder / NODE), error) from None


def proven(rounds: Sequence[DeliveredRound]) -> tuple[int, int]:
    """How many runs of these rounds proved which allocator they used, and how many runs there are.

    A run that failed for another reason is not counted.
    """
    runs = [one for of in rounds for one in of.samples]
    judged = [one for one in runs if one.failure is None or unproven(one) is not None]
    return sum(one.failure is None and one.proof.problem is None for one in judged), len(judged)


def machine_of(run: Run) -> str:
    """The machine of a run, in a few words."""
    host = run.host
    facts = (
        f"{units.counted(host.cpus, 'CPU')}" + (f" of {host.cpu_model}" if host.cpu_model else ""),
        units.size(host.memory_bytes) if host.memory_bytes else None,
        f"kernel {host.kernel}",
        host.libc,
    )
    return ", ".join(filter(None, facts))


def node_note(node: str, rounds: Sequence[DeliveredRound]) -> str:
    """The sentence of a report about a node: its rounds, its machine, its proofs of load."""
    good, runs = proven(rounds)
    absent = dict.fromkeys(says for one in rounds for says in one.node.absent)
    missing = f"; {'; '.join(absent)}" if absent else ""
    return (
        f"node {node}: {units.counted(len(rounds), 'round')} on {machine_of(rounds[0].run)}; "
        f"{good} of {units.counted(runs, 'run')} proved which allocator they used{missing}"
    )


def fleets(results: Path) -> list[Path]:
    """The folders of all fleets, oldest first. Those of other users are left out."""
    try:
        return sorted(path for path in results.iterdir() if os.path.isfile(path / FLEET))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot("read", results, error) from error


def began(path: Path) -> float:
    """When the fleet in this folder began, in seconds since the epoch."""
    return (path / FLEET).stat().st_mtime


def may_be_measured(path: Path) -> bool:
    """Whether a process may wait for the rounds of the fleet in this folder, or measure one.

    Jobs of Slurm go on after the process that waited for them was interrupted. Nothing in the
    folder shows how long a job waits in the queue. So the jobs of a fleet that has not ended count
    as going on.
    """
    try:
        fleet = Fleet(path)
        goes_on = fleet.ended() is None
        has_jobs = fleet.plan.scheduler == "slurm" and bool(fleet.submitted())
    except CairnError:  # the folder is damaged, so no job can deliver to it
        goes_on = has_jobs = False
    attempts = list((path / _ATTEMPTS).glob("*"))
    return (
        store.is_locked(path / FLEET, unknown=goes_on)
        or (goes_on and (has_jobs or bool(attempts)))
        or any(store.is_measured(run) for one in attempts for run in one.glob("*"))
    )


def find(results: Path, name: str) -> Fleet | None:
    """The fleet of this name: "last", an id, its beginning or a path. None if there is none.

    "last" names the newest run; None if this is a run on one machine.
    Raises UsageError if several ids begin with `name`. Those of runs on one machine count, too.
    """
    if "/" in name or name in (".", ".."):
        return Fleet(Path(name)) if os.path.isfile(Path(name) / FLEET) else None
    known = fleets(results)
    if not known or not name:
        return None
    runs = store.runs(results)
    if name == "last":
        newer = bool(runs) and store.find(results, name).path.name > known[-1].name
        return None if newer else Fleet(known[-1])
    every = sorted((*known, *runs), key=lambda path: path.name)
    exact = [path for path in every if path.name == name]
    matching = exact or [path for path in every if path.name.startswith(name)]
    if len(matching) > 1 and not set(matching).isdisjoint(known):
        raise store.several_runs(name, matching)
    return Fleet(matching[0]) if matching and matching[0] in known else None


def _or_fail(path: Path, content: bytes) -> None:
    try:
        _write(path, content)
    except OSError as error:
        raise cannot("write", path, error) from error


def _write(path: Path, content: bytes) -> None:
    """Writes or replaces a file in one step. Raises OSError."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def missing(fleet: Fleet) -> Iterator[int]:
    """Yields the numbers of the rounds that were not delivered."""
    there = set(fleet.numbers())
    yield from (number for number in range(1, fleet.plan.rounds + 1) if number not in there)
