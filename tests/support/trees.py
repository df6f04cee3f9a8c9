"""Generates trees of processes, and compares them under two contenders.

A seed decides the tree: its depth and fan-out, how each process is started, waited for and ended,
and whether its parent tolerates that it fails. `tree_node.c` carries out the plan of a tree.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cairn.compare import comparison
from cairn.doctor import machine
from cairn.errors import CairnError
from cairn.model import SCHEMA, Contender, Run, Sample, Settings, StopRule, Trial, Workload
from cairn.run.measure import Measurement
from cairn.run.observer import Progress
from cairn.run.store import Folder

SIZES = 70_000
"""The node with the number 3 requests SIZES + 3 bytes."""
STARTS = ("fork", "exec", "vfork", "spawn", "system", "popen", "shell")
BY_NUMBER = STARTS[:4]
"""The ways to start a child that give the parent its process number."""
WAITS = ("waitpid", "wait", "waitid", "wait4")
ENDS = ("exit", "_exit", "quick_exit", "raw")
CRASHES = {"SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGSEGV": 11,
           "SIGSYS": 31}  # fmt: skip


@dataclass
class Node:
    """A process of a tree."""

    number: int
    start: str
    wait: str
    status: int
    end: str
    strict: bool
    program: str
    """The name of the program that the process runs. A plain fork runs its parent's program."""
    children: list[Node] = field(default_factory=list)

    def plan(self) -> str:
        words = [str(self.number), self.start, self.wait, str(self.status), self.end]
        words += [
            "strict" if self.strict else "tolerant",
            *(child.plan() for child in self.children),
        ]
        return f"({' '.join(words)})"

    def all(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.all()

    def without(self, *waits: str) -> bool:
        """Whether no process of this tree is waited for in one of these ways."""
        return all(node.wait not in waits for node in self.all())


def grow(seed: int, *, strict: bool | None = None) -> Node:
    """Returns a tree of 2 to 14 processes.

    strict: True makes every parent strict, and False makes none strict. None decides by chance for
    each parent.
    """
    dice = random.Random(seed)
    numbers = iter(range(1, 100))

    def node(depth: int, parent: str | None) -> Node:
        number = next(numbers)
        start = "exec" if parent is None else dice.choice(STARTS)
        wait = dice.choice(WAITS)
        if start in BY_NUMBER and dice.random() < 0.35:
            wait = dice.choice(("term", "kill", "leave", "ignore", "background"))
        program = parent if start == "fork" and parent is not None else f"node{number}"
        made = Node(
            number=number,
            start=start,
            wait="waitpid" if parent is None else wait,
            status=0 if parent is None or dice.random() < 0.8 else dice.randint(1, 9),
            end=dice.choice(ENDS),
            strict=dice.random() < 0.4 if strict is None else strict,
            program=program,
        )
        fan_out = dice.randint(1 if depth == 0 else 0, 3) if depth < 3 and number < 9 else 0
        made.children = [node(depth + 1, program) for _ in range(fan_out)]
        return made

    return node(0, None)


class Silent:
    """An observer that prints nothing, and keeps the sentences and failures that it receives."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.failures: dict[str, str] = {}

    def trial_begins(self, trial: Trial) -> None:
        pass

    def trial_ended(self, sample: Sample, /) -> None:
        pass

    def contender_failed(self, name: str, why: str) -> None:
        self.failures[name] = why

    def told(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def warmed(self, size: int) -> None:
        pass

    def round_ended(self, progress: Progress) -> None:
        pass


@dataclass(frozen=True)
class Judged:
    """The result of a comparison."""

    failure: str | None
    """Why the contender failed."""
    code: int
    """The exit code that the command would have."""
    recommended: tuple[str, ...]
    """The contenders that the report says to use."""
    samples: tuple[Sample, ...]
    told: tuple[str, ...]


def compare(
    folder: Path,
    command: tuple[str, ...],
    library: Path,
    variables: dict[str, str],
    *,
    rounds: int = 3,
    common: dict[str, str] | None = None,
) -> Judged:
    """Compares the time of a command under libc and under `library`, as 'cairn compare -r 3' does.

    variables: the environment variables that only the contender with `library` gets. common: those
    that both contenders get.
    """
    real = os.path.realpath(library)
    contender = Contender(
        "other", "custom", "the other", preload=(real,), owners=(real,),
        knobs=tuple(variables.items()),
    )  # fmt: skip
    contenders = (Contender("system", "system", "glibc"), contender)
    run = Run(
        schema=SCHEMA, id=f"run-{len(list(folder.iterdir()))}", created_at=1e9, cairn="0",
        settings=Settings(
            workloads=(Workload("tree", command),), folder=str(folder), memory="none",
            timeout_s=60.0,
        ),
        contenders=contenders, baseline="system",
        rule=StopRule(precision=None, min_rounds=rounds, max_rounds=rounds), seed=1,
        host=machine.host(),
    )  # fmt: skip
    scratch = folder / f"scratch-{run.id}"
    scratch.mkdir()
    stored = Folder.create(folder, run)
    observer = Silent()
    code = 0
    before = dict(os.environ)
    os.environ.update(common or {})
    try:
        Measurement(run, stored, scratch, observer).measure()
    except CairnError as error:
        code = error.exit_code
    finally:
        os.environ.clear()
        os.environ.update(before)
    samples = stored.samples()
    compared = comparison.compare(samples, contenders, "system", run.rule)
    shutil.rmtree(scratch)
    shutil.rmtree(stored.path)
    return Judged(
        observer.failures.get("other"),
        code,
        tuple(compared.judged.recommended),
        samples,
        tuple(observer.sentences),
    )


def nodes(folder: Path, program: Path, count: int = 100) -> Path:
    """Links the program under the name of each node, and returns the path of the first."""
    for number in range(1, count):
        os.link(program, folder / f"node{number}")
    return folder / "node1"
