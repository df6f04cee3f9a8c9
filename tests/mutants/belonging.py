"""Chooses the tests for a fault.

A fault in Python gets the tests that run the line of the fault. A fault in C gets the tests of its
folder of src/.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mutants.copy import ROOT, Copy, Tested, tracked

PYTHON_TESTS = ["tests/python", "tests/tidy", "tests/e2e", "tests/launch/test_cpu_samples.py"]
"""The tests of the package. The other folders test the libraries and programs."""

ALLOCATOR = [
    "tests/conformance",
    "tests/python/test_own_allocator.py",
    "tests/e2e/test_own_allocator.py",
]
LAUNCHER = [
    "tests/launch",
    "tests/e2e/test_run.py",
    "tests/e2e/test_traps.py",
    "tests/e2e/test_compare.py",
    "tests/e2e/test_inputs.py",
    "tests/python/test_cpu_samples.py",
]
WITNESS = [
    *("tests/python/test_witness_library.py", "tests/python/test_witness_endings.py"),
    *("tests/python/test_witness_jumps.py", "tests/python/test_load_output.py"),
    *("tests/python/test_proof.py", "tests/e2e/test_surroundings.py"),
    *("tests/e2e/test_endings.py", "tests/e2e/test_trees.py"),
]
PROBE = [
    *("tests/e2e/test_probe.py", "tests/e2e/test_probe_signals.py", "tests/e2e/test_profile.py"),
    *("tests/e2e/test_why.py", "tests/e2e/test_findings.py", "tests/launch/test_cpu_samples.py"),
    *("tests/e2e/test_probe_counts.py", "tests/e2e/test_probe_layout.py"),
    *("tests/e2e/test_probe_live.py", "tests/e2e/test_probe_stacks.py"),
    *("tests/e2e/test_profile_gaps.py", "tests/e2e/test_profile_stacks.py"),
    *("tests/e2e/test_lock_table.py", "tests/python/test_call_stacks.py"),
    *("tests/python/test_pinned.py", "tests/python/test_spare.py"),
    *("tests/python/test_callers_change.py", "tests/python/test_source_lines.py"),
    *("tests/python/test_profiled_report.py", "tests/e2e/test_share.py"),
    *("tests/e2e/test_causes.py", "tests/e2e/test_hot_functions.py", "tests/e2e/test_soak.py"),
]


@dataclass(frozen=True)
class Part:
    """The tests of a folder of src: prefixes of names of ctest programs, and files of pytest."""

    programs: tuple[str, ...]
    files: Sequence[str] = ()


C_PARTS: dict[str, Part] = {
    "alloc": Part(("alloc_", "model_frees"), ALLOCATOR),
    "abi": Part(("alloc_",), ALLOCATOR),
    "hardened": Part(("alloc_",), [*ALLOCATOR, "tests/e2e/test_misuse.py"]),
    "arena": Part(("arena_", "pool_"), ["tests/arena", "tests/workloads/test_workloads.py"]),
    "os": Part(("os_", "model_lock", "alloc_", "arena_"), [*ALLOCATOR, "tests/arena"]),
    "policy": Part(("policy_", "alloc_run_cache"), ALLOCATOR),
    "launch": Part(("launch_",), LAUNCHER),
    "witness": Part(("witness_",), WITNESS),
    "record": Part(("record_", "probe_"), PROBE),
    "probe": Part(("probe_", "record_"), PROBE),
    "instructions": Part((), ["tests/e2e/test_path_instructions.py"]),
    "misuse": Part((), ["tests/e2e/test_misuse.py"]),
    "latency": Part((), ["tests/e2e/test_simulated_misses.py"]),
    "base": Part(("",), [*WITNESS, "tests/launch", "tests/conformance", "tests/arena", *PROBE]),
}
NOT_RUN = "^model_seed_|^workload_"
"""A pattern of the ctest programs that are not run.

Programs named model_seed_ plant a fault themselves, and pass if their model notices the fault.
Programs named workload_ run no code of src.
"""

OF_THE_WHEEL = ("tests/e2e/test_install.py",)
"""Test files that install the wheel of the working tree, which has no fault."""


def files_of(tests: Iterable[str]) -> list[str]:
    """Returns the test files in these folders.

    Files with only long tests are left out, and those of OF_THE_WHEEL.
    """
    found = {
        name: None
        for test in tests
        for name in tracked()
        if Path(name).name.startswith("test_")
        and name.endswith(".py")
        and not name.endswith("_long.py")
        and name not in OF_THE_WHEEL
        if name == test or name.startswith(f"{test}/")
    }
    return list(found)


def digest(*tops: str, but: Sequence[str] = ()) -> str:
    """Returns a digest of the tracked files `tops` and below `tops`, without the files `but`."""
    result = hashlib.sha256()
    for name in tracked():
        if any(name == top or name.startswith(f"{top}/") for top in tops) and name not in but:
            result.update(f"{name}\n".encode() + (ROOT / name).read_bytes() + b"\0")
    return result.hexdigest()[:16]


def limit_of(seconds: float) -> float:
    """Returns the time limit in seconds of a test that usually takes `seconds`."""
    return max(seconds + 60, 10 * seconds)


@dataclass
class Record:
    """For each test, its time on the tree without faults, and the lines of the package it runs.

    The record is stored by test file, so that a change of one file repeats only its tests. The
    programs in tests/support do not count: a change of one of them would repeat all tests.
    """

    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def add(self, copy: Copy, files: Sequence[str]) -> str | None:
        """Records files that are not recorded yet.

        Returns a sentence if a test fails on the tree without faults, and None otherwise. A file
        that another lane is recording at the moment comes last, because the other lane has probably
        finished its record by then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        helpers = [
            name for name in tracked() if name.startswith("tests/support/") and name.endswith(".py")
        ]
        common = digest("cairn", "src", "tests/conftest.py", *helpers)
        busy: list[str] = []
        for waits, names in ((False, files), (True, busy)):
            for name in names:
                with (self.folder / f"{name.replace('/', '-')}.lock").open("w") as lock:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
                    except BlockingIOError:
                        busy.append(name)
                        continue
                    problem = self._add(
                        copy,
                        name,
                        f"{common} {digest(name, str(Path(name).parent / 'conftest.py'))}",
                    )
                    if problem:
                        return problem
        return None

    def _add(self, copy: Copy, name: str, key: str) -> str | None:
        kept = self.folder / f"{name.replace('/', '-')}.json"
        found = json.loads(kept.read_text()) if kept.exists() else {}
        if found.get("key") != key:
            print(f"without faults: {name}", flush=True)
            tested = copy.pytest([name], limit=1200, recorded=True)
            again = self._failing_twice(copy, name, tested)
            if again:
                return f"the tree without faults fails {again[0]}; no fault can be judged with it"
            found = {"key": key, "seconds": tested.seconds, "lines": tested.lines}
            kept.write_text(json.dumps(found))
        self.seconds |= found["seconds"]
        for path, by_line in found["lines"].items():
            lines = self.lines.setdefault(path, defaultdict(set))
            for line, tests in by_line.items():
                lines[int(line)].update(tests)
        return None

    @staticmethod
    def _failing_twice(copy: Copy, name: str, tested: Tested) -> list[str]:
        """Repeats failed tests without counting lines. Returns those that fail again.

        A test may fail only because counting lines makes it slow.
        """
        if not tested.failed:
            return []
        plan = {test: limit_of(tested.seconds.get(test, 60)) for test in tested.failed}
        return copy.pytest([name], plan, limit=1200).failed

    def plan(self, tests: Iterable[str]) -> dict[str, float]:
        """Returns the tests, quickest first, with their limits."""
        known = sorted(
            {test for test in tests if test in self.seconds},
            key=lambda test: (self.seconds[test], test),
        )
        return {test: limit_of(self.seconds[test]) for test in known}


@dataclass
class Sources:
    """The modules of the package: their imports, and the lines that run at import."""

    trees: dict[str, ast.Module]

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """For each file, the files that import it."""
        found: dict[str, set[str]] = defaultdict(set)
        for path, tree in self.trees.items():
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.ImportFrom)
                    and (node.module or "").split(".")[0] == "cairn"
                ):
                    base = (node.module or "").replace(".", "/")
                    for name in (base, *(f"{base}/{alias.name}" for alias in node.names)):
                        found[f"{name}.py"].add(path)
                        found[f"{name}/__init__.py"].add(path)
        return found

    def innermost(self, path: str, line: int) -> tuple[ast.stmt | None, ast.AST | None]:
        """Returns the innermost statement on a line, and the function around it."""
        statement: ast.stmt | None = None
        function: ast.AST | None = None

        def visit(node: ast.AST, inside: ast.AST | None) -> None:
            nonlocal statement, function
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt) and child.lineno <= line <= (
                    child.end_lineno or child.lineno
                ):
                    statement, function = child, inside
                is_body = isinstance(child, ast.stmt) and child in getattr(node, "body", [])
                enters = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_body
                visit(child, node if enters else inside)

        visit(self.trees[path], None)
        if (
            isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
            and line >= statement.body[0].lineno
        ):
            function = statement
        return statement, function


OTHERS_S = 120.0
"""The limit in seconds on the total time of the tests that are not known to run the line."""


def of_line(record: Record, sources: Sources, path: str, line: int) -> dict[str, float]:
    """Returns the tests for a fault on a line of the package, in the order in which to run them.

    First come the tests that run the statement. If the line runs at import, these are all tests
    that run any function of the module. Then come quick tests of the same test files, because a
    test helper may run the line once for all tests of its file. If the line runs at import, quick
    tests of the modules that import this one follow.
    """
    ran = record.lines.get(path, {})
    statement, function = sources.innermost(path, line)
    all_of_file = set().union(*ran.values()) if ran else set()
    others: set[str] = set()
    if function is None:
        first = all_of_file
        for importer in sources.importers[path]:
            others |= set().union(*record.lines.get(importer, {}).values())
    else:
        begin = statement.lineno if statement else line
        end = (statement.end_lineno or begin) if statement else line
        body = getattr(statement, "body", None)
        if isinstance(body, list) and body:
            end = max(line, body[0].lineno - 1)
        first = set().union(*(ran.get(number, set()) for number in range(begin, end + 1)))
        if not first:
            others |= all_of_file
    files = {test.partition("::")[0] for test in first}
    others |= {
        test
        for test in record.seconds
        if test.partition("::")[0] in files and record.seconds[test] < 1
    }
    plan = record.plan(first)
    left = OTHERS_S
    for test, limit in record.plan(others - first).items():
        left -= record.seconds[test]
        if left < 0:
            break
        plan[test] = limit
    return plan
