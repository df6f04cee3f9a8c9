"""Tests of the limits that 'cairn inspect' reads, with invented folders of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.inspect import limits

V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
V2 = ("memory.max", "memory.current")
MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "_ROOT", tmp_path)
    return tmp_path


def limit(folder: Path, names: tuple[str, str], *values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, values, strict=False):
        (folder / name).write_text(f"{value}\n")


@pytest.mark.parametrize("place", ["a.slice/b.scope", "docker/1:2:3", "a b/c"])
def test_the_limit_of_the_new_hierarchy_is_found(root: Path, place: str) -> None:
    limit(root / place, V2, 64 * MIB, 5 * MIB)
    assert limits._cgroup(f"0::/{place}\n") == (64 * MIB, 5 * MIB)
    assert limits._cgroup("0::/elsewhere\n") is None


@pytest.mark.parametrize("controllers", ["memory", "cpu,memory", "memory,pids"])
def test_the_limit_of_the_old_hierarchy_is_found(root: Path, controllers: str) -> None:
    limit(root / "memory" / "jobs:7", V1, 64 * MIB, 5 * MIB)
    text = f"12:cpuset:/x\n4:{controllers}:/jobs:7\n0::/\n"
    assert limits._cgroup(text) == (64 * MIB, 5 * MIB)
    assert limits._cgroup("4:cpu,memory_other:/jobs:7\n") is None


def test_the_least_limit_of_the_cgroup_and_its_ancestors_counts(root: Path) -> None:
    limit(root / "a" / "b", V2, 512 * MIB, 5 * MIB)
    limit(root / "a", V2, 256 * MIB, 9 * MIB)
    limit(root, V2, 1024 * MIB, 99 * MIB)
    assert limits._cgroup("0::/a/b\n") == (256 * MIB, 9 * MIB)


def test_both_hierarchies_may_have_a_limit(root: Path) -> None:
    limit(root / "memory" / "x", V1, 128 * MIB, MIB)
    limit(root / "unified" / "y", V2, 64 * MIB)
    assert limits._cgroup("4:memory:/x\n0::/y\n") == (64 * MIB, None), "its use is not known"
    assert limits._cgroup("4:memory:/x\n0::/z\n") == (128 * MIB, MIB)


@pytest.mark.parametrize(
    ("names", "text", "value"),
    [(V2, "0::/x\n", "max"), (V1, "4:memory:/x\n", (1 << 63) - 4096), (V2, "0::/x\n", "")],
)
def test_no_limit_is_none(root: Path, names: tuple[str, str], text: str, value: object) -> None:
    limit(root / "x" if names == V2 else root / "memory" / "x", names, value, MIB)
    assert limits._cgroup(text) is None


def test_a_process_without_cgroups_has_no_limit(root: Path) -> None:
    limit(root, V2, 64 * MIB, MIB)
    assert limits._cgroup("") is None
