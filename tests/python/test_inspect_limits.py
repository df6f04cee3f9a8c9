"""Tests of the limits that 'cairn inspect' reads, with invented folders of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cairn.inspect import limits
from cairn.inspect.facts import Limits

V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
V2 = ("memory.max", "memory.current", "memory.stat")
MIB = 1 << 20
STAT_V1 = f"""cache {MIB}
active_file {7 * MIB}
inactive_file {8 * MIB}
total_shmem {9 * MIB}
total_inactive_anon {9 * MIB}
total_inactive_file {2 * MIB}
total_active_file {MIB}
total_unevictable {9 * MIB}"""
STAT_V2 = f"""anon {9 * MIB}
file {9 * MIB}
shmem {9 * MIB}
active_anon {9 * MIB}
inactive_file {2 * MIB}
active_file {MIB}
unevictable {9 * MIB}"""
"""Statistics of a cgroup with 3 MiB of page cache that the kernel can free."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "_ROOT", tmp_path)
    return tmp_path


def limit(folder: Path, names: tuple[str, str, str], *values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, values, strict=False):
        (folder / name).write_text(f"{value}\n")


@pytest.mark.parametrize("place", ["a.slice/b.scope", "docker/1:2:3", "a b/c"])
def test_the_limit_of_the_new_hierarchy_is_found(root: Path, place: str) -> None:
    limit(root / place, V2, 64 * MIB, 5 * MIB)
    assert limits._cgroup(f"0::/{place}\n") == (64 * MIB, 5 * MIB, None)
    assert limits._cgroup("0::/elsewhere\n") is None


@pytest.mark.parametrize("controllers", ["memory", "cpu,memory", "memory,pids"])
def test_the_limit_of_the_old_hierarchy_is_found(root: Path, controllers: str) -> None:
    limit(root / "memory" / "jobs:7", V1, 64 * MIB, 5 * MIB)
    text = f"12:cpuset:/x\n4:{controllers}:/jobs:7\n0::/\n"
    assert limits._cgroup(text) == (64 * MIB, 5 * MIB, None)
    assert limits._cgroup("4:cpu,memory_other:/jobs:7\n") is None


def test_the_least_limit_of_the_cgroup_and_its_ancestors_counts(root: Path) -> None:
    limit(root / "a" / "b", V2, 512 * MIB, 5 * MIB)
    limit(root / "a", V2, 256 * MIB, 9 * MIB)
    limit(root, V2, 1024 * MIB, 99 * MIB)
    assert limits._cgroup("0::/a/b\n") == (256 * MIB, 9 * MIB, None)


def test_both_hierarchies_may_have_a_limit(root: Path) -> None:
    limit(root / "memory" / "x", V1, 128 * MIB, MIB)
    limit(root / "unified" / "y", V2, 64 * MIB)
    assert limits._cgroup("4:memory:/x\n0::/y\n") == (64 * MIB, None, None), "its use is not known"
    assert limits._cgroup("4:memory:/x\n0::/z\n") == (128 * MIB, MIB, None)


@pytest.mark.parametrize(
    ("names", "text", "value"),
    [(V2, "0::/x\n", "max"), (V1, "4:memory:/x\n", (1 << 63) - 4096), (V2, "0::/x\n", "")],
)
def test_no_limit_is_none(
    root: Path, names: tuple[str, str, str], text: str, value: object
) -> None:
    limit(root / "x" if names == V2 else root / "memory" / "x", names, value, MIB)
    assert limits._cgroup(text) is None


def test_a_process_without_cgroups_has_no_limit(root: Path) -> None:
    limit(root, V2, 64 * MIB, MIB)
    assert limits._cgroup("") is None


@pytest.mark.parametrize(
    ("names", "statistics", "text"),
    [(V1, STAT_V1, "4:memory:/x\n"), (V2, STAT_V2, "0::/x\n")],
    ids=["v1", "v2"],
)
def test_the_page_cache_of_the_cgroup_with_the_limit_is_known(
    root: Path, names: tuple[str, str, str], statistics: str, text: str
) -> None:
    """Neither tmpfs nor locked pages count as page cache, since the kernel cannot just free it."""
    folder = root / "memory" / "x" if names == V1 else root / "x"
    limit(folder, names, 64 * MIB, 60 * MIB, statistics)
    assert limits._cgroup(text) == (64 * MIB, 60 * MIB, 3 * MIB)


@pytest.mark.parametrize("statistics", ["", "inactive_file 5", "inactive_file x\nactive_file 5"])
def test_page_cache_that_cannot_be_read_is_not_known(root: Path, statistics: str) -> None:
    limit(root / "x", V2, 64 * MIB, 60 * MIB, statistics)
    assert limits._cgroup("0::/x\n") == (64 * MIB, 60 * MIB, None)


def test_memory_without_page_cache_is_what_the_cgroup_needs() -> None:
    known = Limits(64 * MIB, 60 * MIB, 1, None, None, 3 * MIB)
    assert known.cgroup_needed == 57 * MIB
    # Both numbers are read one after the other, so the second one may be larger.
    assert replace(known, cgroup_cache=61 * MIB).cgroup_needed == 0
    assert replace(known, cgroup_cache=None).cgroup_needed is None
    assert replace(known, cgroup_used=None).cgroup_needed is None
