"""Tests that `cairn allocators get` can fetch every allocator of the catalog by its name.

The tests use the package registries that this machine is set up for. Programs must then load the
fetched library.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.isolation import users_environment, users_tool

from cairn.allocators import catalog

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
]

PEERS = [entry.name for entry in catalog.load_catalog().allocators if not entry.comes_along]

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int main(void) { char *text = malloc(100); snprintf(text, 100, "%d", 7); puts(text); free(text); return 0; }
"""


@pytest.fixture(scope="module")
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cache that all these tests share. It is empty before the first of them."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environment(empty_cache: Path) -> dict[str, str]:
    """The user's environment, with the empty cache.

    HOME stays the user's, because cargo and its settings are below it.
    """
    users_tool("cargo")
    return users_environment(XDG_CACHE_HOME=str(empty_cache))


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_fetched_by_name_and_proves_its_load(
    cairn: Any, environment: dict[str, str], tmp_path: Path, name: str
) -> None:
    had = cairn("allocators", "get", name, timeout=1800, **environment)
    assert had.code == 0, had.err

    started = time.monotonic()
    again = cairn("allocators", "get", name, **environment)
    assert (again.code, again.out) == (0, had.out)
    assert again.err == ""
    assert time.monotonic() - started < 1

    listed = cairn("allocators", "list", "--json", **environment).json["found"]
    version = next(
        item["version"] for item in listed if item["allocator"] == name and item["cached"]
    )
    # Without the version, Cairn would prefer a newer version that is installed in the system.
    spec = f"{name}@{version}"
    file = tmp_path / "file.c"
    file.write_text(PROGRAM)
    python = cairn("run", "-a", spec, "--", "python3", "-c", "print(1)", **environment)
    assert (python.code, python.out) == (0, "1\n"), python.err
    gcc = cairn("run", "-a", spec, "--", "gcc", "-O2", "-c", file, "-o", "/dev/null", **environment)
    assert (gcc.code, gcc.err) == (0, "")


def test_all_fetched_peers_are_listed(cairn: Any, environment: dict[str, str]) -> None:
    """The tests above fetched the peers. The list must contain each of them with its checksums."""
    listed = cairn("allocators", "list", "--json", **environment).json["found"]
    cached = {item["allocator"]: item for item in listed if item["cached"]}
    assert sorted(cached) == sorted(PEERS)
    for item in cached.values():
        assert item["problem"] is None
        assert item["sha256"] == item["recorded_sha256"]
        assert len(item["source_sha256"]) == 64
        assert item["version"]
