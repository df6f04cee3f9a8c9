"""A lane plants the faults of one language one after the other.

It finds out for each fault whether a test notices it.
"""

from __future__ import annotations

import ast
import json
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from mutants import in_c, in_python
from mutants.belonging import (
    C_PARTS,
    NOT_RUN,
    PYTHON_TESTS,
    Record,
    Sources,
    digest,
    files_of,
    limit_of,
    of_line,
)
from mutants.copy import NATIVE, ROOT, Copy, adopt, tracked
from mutants.fault import Fault, draw

BUILD = ROOT / "build" / "mutants"
NOTICED, SURVIVED, REFUSED = "noticed", "survived", "refused"
LONG_S = 20.0
"""The limit for quick ctest programs. A program that takes longer runs after all other tests."""
DRAWN_FOR_EACH = 10
"""The number of faults to draw for each requested fault: the compiler and mypy refuse some."""
LIBRARIES = [
    *("cairn-malloc", "cairn-malloc-static", "cairn-malloc-hardened"),
    *("cairn-malloc-hardened-static", "cairn-arena", "cairn-arena-static"),
    *("cairn-launch", "cairn-witness", "cairn-probe", "cairn-instructions", "cairn-misuse"),
    *(
        "cairn-latency",
        "malloctest",
    ),
]
"""The targets that are installed, except for the workloads."""


@dataclass(frozen=True)
class Planted:
    """A fault and its outcome."""

    language: str
    where: str
    kind: str
    path: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    outcome: str
    by: str
    """The test that noticed the fault, or the reason why the fault was not tested."""
    seconds: float
    tests: int
    """The number of tests chosen for the fault."""
    tested: str
    """A digest of all files in tests/ when the fault was tested."""

    @staticmethod
    def read(line: str) -> Planted:
        """Reads a line of the file of results."""
        told = json.loads(line)
        return Planted(**{**told, "before": tuple(told["before"]), "after": tuple(told["after"])})


class Unready(Exception):
    """Raised if the tree without faults does not pass its tests."""


class Lane:
    """The faults and tests of one language."""

    language: str
    files: list[str]

    def __init__(self) -> None:
        self.copy = Copy(BUILD / self.language)
        self.record = Record(BUILD / "recorded")

    def drawn(self, seed: int, only: str | None) -> Iterator[Fault]:
        """Yields the faults of a seed, in their order."""
        raise NotImplementedError

    def prepare(self, faults: Sequence[Fault]) -> None:
        """Makes the copy, and checks that the tests pass on it."""
        raise NotImplementedError

    def judge(self, fault: Fault) -> tuple[str, str, int]:
        """Tests the fault that is in the copy.

        Returns the outcome, the test or the reason, and the number of tests.
        """
        raise NotImplementedError

    def plant(self, fault: Fault, tested: str) -> Planted:
        """Plants the fault, tests it, and removes it again."""
        begun = time.monotonic()
        self.copy.write(fault.path, fault.text)
        try:
            outcome, by, tests = self.judge(fault)
        finally:
            self.copy.restore(fault.path)
        return Planted(
            self.language,
            fault.where,
            fault.kind,
            fault.path,
            fault.before,
            fault.after,
            outcome,
            by,
            round(time.monotonic() - begun, 1),
            tests,
            tested,
        )

    def tests(self, files: Sequence[str], plan: dict[str, float]) -> tuple[str | None, int]:
        """Returns the first test that fails twice (or None), and the number of tests in the plan.

        The test has to fail once among the others, and once alone.
        """
        count = len(plan)
        while plan:
            files = [name for name in files if any(test.startswith(f"{name}::") for test in plan)]
            limit = 120 + sum(map(self.usual, plan)) * 3 + max(plan.values())
            tested = self.copy.pytest(files, plan, limit=limit)
            if not tested.failed:
                return None, count
            failed = tested.failed[0]
            if failed not in plan:
                return failed, count
            alone = self.copy.pytest(
                [failed.partition("::")[0]], {failed: plan[failed]}, limit=120 + 2 * plan[failed]
            )
            if alone.failed:
                return failed, count
            plan = {test: limit for test, limit in plan.items() if test not in tested.seconds}
        return None, count

    def failing_without_faults(self, noticed: set[str]) -> list[str]:
        """Returns the tests of `noticed` that also fail on the tree without faults.

        Their failure shows nothing about a fault.
        """
        plan = self.record.plan(noticed)
        files = list(dict.fromkeys(test.partition("::")[0] for test in plan))
        found = []
        while plan:
            failed, _ = self.tests(files, plan)
            if failed is None:
                break
            found.append(failed)
            plan = {test: limit for test, limit in plan.items() if test != failed}
        return found

    def usual(self, test: str) -> float:
        """Returns the seconds of a test on the tree without faults."""
        return self.record.seconds.get(test, 1.0)


class PythonLane(Lane):
    """Faults in the package."""

    language = "python"

    def drawn(self, seed: int, only: str | None) -> Iterator[Fault]:
        """Yields the faults of a seed in all modules of the package."""
        names = [name for name in tracked() if name.startswith("cairn/") and name.endswith(".py")]
        return draw(
            ROOT, [name for name in names if only in (None, name)], in_python.candidates, seed
        )

    def prepare(self, faults: Sequence[Fault]) -> None:
        """Checks the types, and runs all tests to record the lines that they run.

        The recorded lines do not depend on `faults`.
        """
        del faults
        self.copy.make()
        refused = self.refused()
        if refused:
            raise Unready(f"mypy refuses the tree without faults: {refused}")
        problem = self.record.add(self.copy, files_of(PYTHON_TESTS))
        if problem:
            raise Unready(problem)
        names = [name for name in tracked() if name.startswith("cairn/") and name.endswith(".py")]
        self.sources = Sources({name: ast.parse((ROOT / name).read_text()) for name in names})

    def refused(self) -> str | None:
        """Returns the first error of mypy, or None."""
        ended = self.copy.run(
            *(sys.executable, "-m", "mypy", "--cache-dir", self.copy.folder / "types"), limit=600
        )
        return None if ended.code == 0 else ended.out.partition("\n")[0]

    def judge(self, fault: Fault) -> tuple[str, str, int]:
        """Runs mypy, and then the tests that belong to the line of the fault.

        No test runs for a fault that mypy refuses.
        """
        refused = self.refused()
        if refused:
            return REFUSED, refused, 0
        plan = of_line(self.record, self.sources, fault.path, fault.line)
        if not plan:
            return SURVIVED, "no test runs this line", 0
        failed, count = self.tests(files_of(PYTHON_TESTS), plan)
        return (NOTICED, failed, count) if failed else (SURVIVED, "", count)


class CLane(Lane):
    """Faults in the libraries and the launcher."""

    language = "c"

    def __init__(self) -> None:
        super().__init__()
        self.build = self.copy.folder / "build"
        self.programs: dict[str, float] = {}

    def drawn(self, seed: int, only: str | None) -> Iterator[Fault]:
        """Yields the faults of a seed in all sources except _check.c files, which are tests."""
        names = [
            name for name in tracked() if name.startswith("src/") and name.endswith((".c", ".h"))
        ]
        names = [name for name in names if not name.endswith("_check.c")]
        return draw(ROOT, [name for name in names if only in (None, name)], in_c.candidates, seed)

    def made(self, targets: Sequence[str]) -> bool:
        """Returns whether the targets compile without warnings."""
        ended = self.copy.run("cmake", "--build", self.build, "--target", *targets, limit=600)
        return ended.code == 0

    def installed(self) -> None:
        """Installs the libraries and programs into the package of the copy."""
        ended = self.copy.run(
            "cmake", "--install", self.build, "--prefix", self.copy.tree / NATIVE, limit=60
        )
        if ended.code != 0:
            raise Unready(f"the libraries cannot be installed: {ended.out}")

    def prepare(self, faults: Sequence[Fault]) -> None:
        """Compiles everything, and runs the tests that belong to the faults."""
        self.copy.make()
        options = ("CAIRN_TESTS", "CAIRN_WERROR", "CAIRN_AS_SHIPPED")
        flags = [*(f"-D{option}=ON" for option in options), "-DCMAKE_C_COMPILER=gcc"]
        configured = self.copy.run(
            "cmake", "-S", self.copy.tree, "-B", self.build, "-G", "Ninja", *flags, limit=120
        )
        workloads = [
            Path(name).stem for name in tracked() if re.fullmatch(r"workloads/\w+\.c", name)
        ]
        if configured.code != 0 or not self.made([*self.listed(), *LIBRARIES, *workloads]):
            raise Unready("the tree without faults does not compile")
        self.installed()
        self.programs = self.usual_seconds()
        folders = {Path(fault.path).parts[1] for fault in faults}
        files = files_of(
            name for folder in C_PARTS if folder in folders for name in C_PARTS[folder].files
        )
        problem = self.record.add(self.copy, files)
        if problem:
            raise Unready(problem)

    def listed(self) -> list[str]:
        """Returns the names of the programs of ctest."""
        ended = self.copy.run("ctest", "--test-dir", self.build, "-N", "-E", NOT_RUN, limit=60)
        return re.findall(r"Test +#\d+: (\w+)", ended.out)

    def usual_seconds(self) -> dict[str, float]:
        """Returns the seconds of each program of ctest, quickest first."""
        kept = self.record.folder / "ctest.json"
        key = digest("src", "tests/unit", "tests/fuzz", "tests/model")
        found = json.loads(kept.read_text()) if kept.exists() else {}
        if found.get("key") != key:
            print("without faults: ctest", flush=True)
            # A test may fail once because the machine is busy.
            words = ("ctest", "--test-dir", self.build, "-E", NOT_RUN, "--repeat", "until-pass:2")
            ended = self.copy.run(*words, limit=3600)
            if ended.code != 0:
                raise Unready(f"the tree without faults fails in ctest:\n{ended.out[-2000:]}")
            told = re.findall(r"Test +#\d+: (\w+) \.+ +Passed +([\d.]+) sec", ended.out)
            found = {"key": key, "seconds": {name: float(seconds) for name, seconds in told}}
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found))
        return dict(sorted(found["seconds"].items(), key=lambda pair: float(pair[1])))

    def failing(self, programs: Sequence[str]) -> str | None:
        """Returns the first program that fails twice."""
        for program in programs:
            limit = limit_of(self.programs[program])
            words = (
                "ctest",
                "--test-dir",
                self.build,
                "-R",
                f"^{program}$",
                "--timeout",
                str(round(limit)),
            )
            if all(self.copy.run(*words, limit=limit + 30).code != 0 for _ in range(2)):
                return program
        return None

    def failing_without_faults(self, noticed: set[str]) -> list[str]:
        """Returns the tests and the programs of ctest that also fail on the tree without faults."""
        programs = [name for name in self.programs if name in noticed]
        if not self.made([*programs, *LIBRARIES]):
            raise Unready("the tree without faults does not compile any more")
        self.installed()
        found = [name for name in programs if self.failing([name])]
        return [*found, *super().failing_without_faults(noticed)]

    def judge(self, fault: Fault) -> tuple[str, str, int]:
        """Runs the folder's quick ctest programs, then its pytest files, then its slow programs."""
        part = C_PARTS[Path(fault.path).parts[1]]
        programs = [
            name for prefix in part.programs for name in self.programs if name.startswith(prefix)
        ]
        programs = list(dict.fromkeys(programs))
        quick = [name for name in programs if self.programs[name] <= LONG_S]
        if not self.made([*programs, *LIBRARIES]):
            return REFUSED, "does not compile", 0
        failed = self.failing(quick)
        if failed:
            return NOTICED, failed, len(quick)
        self.installed()
        files = files_of(part.files)
        plan = self.record.plan(
            test for test in self.record.seconds if test.partition("::")[0] in files
        )
        failed, count = self.tests(files, plan)
        if not failed:
            failed = self.failing([name for name in programs if name not in quick])
        count += len(programs)
        return (NOTICED, failed, count) if failed else (SURVIVED, "", count)


LANES: dict[str, type[Lane]] = {"python": PythonLane, "c": CLane}


def kept_of(path: Path, sources: str) -> dict[tuple[str, ...], Planted]:
    """Returns the results of an earlier run on the same sources."""
    if not path.exists():
        return {}
    head, *rows = path.read_text().splitlines()
    if head != sources:
        return {}
    found = [Planted.read(row) for row in rows]
    return {(one.where, *one.before, "→", *one.after): one for one in found}


def results_of(language: str, seed: int, only: str | None) -> Path:
    """Returns the file to which a lane appends each result as soon as it is known."""
    words = [str(seed), language, *([only.replace("/", "-")] if only else [])]
    return BUILD / f"{'-'.join(words)}.jsonl"


def work(language: str, seed: int, count: int, only: str | None, sources: str) -> None:
    """Plants `count` faults, and continues an earlier run of the same seed and sources.

    `sources` is the digest of the sources. If the tests have changed since then, only the faults
    that survived are planted again.
    """
    # A process in the background may ignore SIGHUP, SIGQUIT and SIGINT. The programs under test
    # would inherit this setting.
    for ignored in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    adopt()
    lane = LANES[language]()
    path = results_of(language, seed, only)
    tested = digest("tests", but=["tests/mutants/equivalent.toml"])
    kept = kept_of(path, sources)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([sources, *(json.dumps(asdict(one)) for one in kept.values()), ""]))
    faults = list(islice(lane.drawn(seed, only), DRAWN_FOR_EACH * count))
    ready = False
    done: list[Planted] = []
    for fault in faults:
        if len(done) == count:
            break
        one = kept.get((fault.where, *fault.before, "→", *fault.after))
        if one is None or (one.outcome == SURVIVED and one.tested != tested):
            if not ready:
                lane.prepare(faults)
                ready = True
            one = lane.plant(fault, tested)
            with path.open("a") as file:
                file.write(json.dumps(asdict(one)) + "\n")
        if one.outcome != REFUSED:
            done.append(one)
            print(
                f"{language} {len(done)}/{count} {one.outcome:8} {one.seconds:6.1f} s"
                f"  {one.where}  {one.by}",
                flush=True,
            )
    if ready:
        failing = lane.failing_without_faults({one.by for one in done if one.outcome == NOTICED})
        if failing:
            rows = [
                one
                for one in kept_of(path, sources).values()
                if one.outcome != NOTICED or one.by not in failing
            ]
            path.write_text("\n".join([sources, *(json.dumps(asdict(one)) for one in rows), ""]))
            raise Unready(
                f"{', '.join(failing)} fails without faults too;"
                " the results that name it were deleted"
            )
