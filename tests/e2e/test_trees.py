"""Tests that a contender fails by what happens anywhere in its tree of processes.

The trees are generated from a seed, which is the test's parameter. In a sick tree, a random process
crashes or ends with another status under the contender. With a healthy tree, no contender may fail.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support import trees

FEW = 12
MANY = 200
"""The numbers of sick trees in the usual and in the long test. The numbers of healthy trees are one
and a half times as large."""


@pytest.fixture(scope="session")
def crash_at(compiled: Callable[..., Path]) -> Path:
    return compiled("crash_at.c", "-shared")


@pytest.fixture
def first_node(compiled: Callable[..., Path], tmp_path: Path) -> Path:
    folder = tmp_path / "nodes"
    folder.mkdir()
    return trees.nodes(folder, compiled("tree_node.c", "-w"))


def command_of(first: Path, tree: trees.Node) -> tuple[str, ...]:
    """Returns the command of a tree.

    A command that ends within 0.1 s while its processes go on is refused. So a shell waits for the
    processes in the background.
    """
    command = (str(first), tree.plan())
    if all(node.wait != "background" for node in tree.all()):
        return command
    return ("sh", "-c", '"$@"; status=$?; sleep 0.12; exit $status', "sh", *command)


def judge_sick(seed: int, tmp_path: Path, first: Path, library: Path) -> None:
    """Compares a tree in which one process crashes, or ends with status 41, under the contender."""
    dice = random.Random(f"sick {seed}")
    tree = trees.grow(seed)
    # If no process waits for a child, the witness cannot see whether it crashed.
    visible = [node for node in tree.all() if node.wait != "ignore"]
    target = dice.choice(visible)
    name = dice.choice([*trees.CRASHES, "exit 41"])
    way = "x41" if name == "exit 41" else str(trees.CRASHES[name])
    (tmp_path / "runs").mkdir(exist_ok=True)
    judged = trees.compare(
        tmp_path / "runs", command_of(first, tree), library,
        {"CRASH_AT": f"{trees.SIZES + target.number}:{way}"},
    )  # fmt: skip
    about = f"seed {seed}: {name} at node {target.number} of {tree.plan()}: {judged}"
    assert judged.code == 4, about
    assert judged.failure is not None, about
    assert judged.recommended == (), about
    if name in trees.CRASHES:
        assert name in judged.failure, about
        if target is not tree:
            assert target.program in judged.failure, about
    elif judged.failure.startswith("failed: "):
        assert f"{target.program}" in judged.failure and "exited 41" in judged.failure, about


def judge_healthy(seed: int, tmp_path: Path, first: Path, library: Path) -> None:
    tree = trees.grow(seed)
    (tmp_path / "runs").mkdir(exist_ok=True)
    judged = trees.compare(tmp_path / "runs", command_of(first, tree), library, {})
    about = f"seed {seed}: {tree.plan()}: {judged}"
    assert (judged.failure, judged.code) == (None, 0), about
    seen = [sample.endings for sample in judged.samples]
    assert all(one == seen[0] for one in seen), about
    assert seen[0] is not None
    # A forked child that executes nothing, exits with 0 and marks nothing is not counted.
    counted = [
        node
        for node in tree.all()
        if (node.start, node.end, node.status) != ("fork", "raw", 0) or node.wait == "ignore"
    ]
    assert sum(sum(of.values()) for of in seen[0].values()) >= len(counted), about


@pytest.mark.parametrize("seed", range(FEW))
def test_a_process_that_ends_badly_anywhere_fails_the_contender(
    seed: int, tmp_path: Path, first_node: Path, crash_at: Path
) -> None:
    judge_sick(seed, tmp_path, first_node, crash_at)


@pytest.mark.parametrize("seed", range(1000, 1000 + FEW * 3 // 2))
def test_a_healthy_tree_does_not_fail(
    seed: int, tmp_path: Path, first_node: Path, crash_at: Path
) -> None:
    judge_healthy(seed, tmp_path, first_node, crash_at)


@pytest.mark.long
def test_many_processes_that_end_badly_fail_the_contender(
    tmp_path: Path, first_node: Path, crash_at: Path
) -> None:
    for seed in range(FEW, FEW + MANY):
        judge_sick(seed, tmp_path, first_node, crash_at)


@pytest.mark.long
def test_many_healthy_trees_do_not_fail(tmp_path: Path, first_node: Path, crash_at: Path) -> None:
    for seed in range(2000, 2000 + MANY * 3 // 2):
        judge_healthy(seed, tmp_path, first_node, crash_at)
