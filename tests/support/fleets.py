"""Makes invented fleets, and a scheduler that starts nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace
from support.plans import MIB, a_plan_run, a_trial

import cairn
from cairn.matrix.fleet import SCHEMA, Fleet, FleetPlan, Job, Node
from cairn.matrix.schedulers import Fate
from cairn.model import Run, Sample
from cairn.run.store import Folder

PROGRAMS = {"a": "program", "b": "program"}
CONTENDERS = ("system", "x")
PLAN = """\
[plan]
contenders = ["system", "x=LIBRARY"]
[program.a]
command = "true"
"""


def a_fleet(results: Path, rounds: int = 4, **changes: object) -> Fleet:
    """Returns a fleet without any round."""
    plan = FleetPlan(
        schema=SCHEMA, id="20260101-000000-abcd", created_at=1e9, cairn=cairn.__version__,
        plan="invented", text=PLAN, folder="", contenders=CONTENDERS, baseline="system", only=(),
        rounds=rounds, seed=11, scheduler="slurm",
    )  # fmt: skip
    return Fleet.create(results, replace(plan, **changes))  # type: ignore[arg-type]


def a_round(
    fleet: Fleet,
    number: int,
    node: str = "n1",
    ratio: float = 1.1,
    pace: float = 1.0,
    change: Callable[[Run], Run] = lambda run: run,
) -> tuple[Path, Node]:
    """Stores an invented round in which x takes `ratio` times as long and as much as system.

    Does not deliver the round to the fleet.
    """
    run = change(replace(a_plan_run(PROGRAMS, CONTENDERS, 1), id=fleet.name_of(number)))
    attempt = fleet.attempt(number, node)
    folder = Folder.create(attempt, run)
    rng = random.Random(f"{number}{node}")
    for sample in samples_of(number, ratio, pace, rng):
        folder.append(sample)
    return folder.path, Node(node, f"1_{number}", attempt.name)


def samples_of(number: int, ratio: float, pace: float, rng: random.Random) -> list[Sample]:
    """The samples of one round."""
    found = []
    for workload in range(len(PROGRAMS)):
        for name, times in zip(CONTENDERS, (1.0, ratio), strict=True):
            ms, peak = (times * (1 + 0.01 * rng.gauss(0, 1)) for _ in range(2))
            found.append(a_trial(workload, name, number, 100 * pace * ms, 64 * MIB * peak))
    return found


def deliver(fleet: Fleet, number: int, node: str = "n1", **how: object) -> bool:
    """Stores an invented round and delivers it to the fleet."""
    path, named = a_round(fleet, number, node, **how)  # type: ignore[arg-type]
    return fleet.deliver(path, number, named)


@dataclass
class Invented:
    """A scheduler that starts nothing: a test decides what becomes of its jobs."""

    most: int | None = None
    trouble: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    patience_s: float = 3.0
    submitted: list[tuple[tuple[int, ...], tuple[str, ...]]] = field(default_factory=list)
    going_on: dict[str, str] = field(default_factory=dict)
    fates: dict[str, Fate] = field(default_factory=dict)
    answers: bool = True
    avoided: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def submit(self, rounds: Sequence[int], avoid: Sequence[str]) -> list[Job]:
        self.submitted.append((tuple(rounds), tuple(avoid)))
        number = len(self.submitted)
        jobs = [Job(f"{number}_{place}", one) for place, one in enumerate(rounds)]
        self.going_on |= {job.id: "PENDING" for job in jobs}
        return jobs

    def alive(self, jobs: Sequence[Job]) -> Mapping[str, str] | None:
        wanted = {job.id for job in jobs}
        return {n: s for n, s in self.going_on.items() if n in wanted} if self.answers else None

    def fate(self, job: Job, /) -> Fate:
        return self.fates.get(job.id, Fate("unknown", ""))

    def avoid(self, jobs: Sequence[Job], nodes: Sequence[str]) -> None:
        self.avoided.append((tuple(job.id for job in jobs), tuple(nodes)))

    def cancel(self, jobs: Sequence[Job]) -> None:
        self.cancelled += [job.id for job in jobs]

    def end(self, *names: str, fate: Fate | None = None) -> None:
        """Ends jobs."""
        for name in names:
            del self.going_on[name]
            if fate is not None:
                self.fates[name] = fate
