"""Fetches the peers: the other allocators that tests compare with Cairn's allocator.

`make test` uses peers that Debian has as packages. `make check-long` also builds peers from pinned
sources. The tests keep all peers in a cache below build/peers, and never use the user's cache. If a
peer cannot be fetched, its tests are skipped with the reason.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.isolation import users_environment
from support.preloadable_path import carried

from cairn.allocators import discover
from cairn.allocators.catalog import Found
from cairn.allocators.debian import UNPACKED

CACHE = Path(__file__).resolve().parents[2] / "build" / "peers"
"""The value of `XDG_CACHE_HOME` for commands that must find the peers."""

NAMED = ("jemalloc", "mimalloc", "tcmalloc")
"""The peers that `make test` uses."""

FAULTS = {
    (
        "mimalloc",
        "2.0.9",
        "aligned",
    ): "aligned_alloc returns misaligned blocks for alignments of 256 bytes and more",
}
"""The known fault that makes a workload fail, by (allocator, version, workload)."""


def peer(name: str, origin: str | None = "distribution") -> Found:
    """Returns the allocator from the tests' cache, and fetches it first if it is missing.

    Skips the test if the allocator cannot be fetched. If `origin` is None, the function uses the
    default of `cairn allocators get`: the pinned source, or else the package of the distribution.
    """
    problem = _bring(name, origin)
    if problem:
        pytest.skip(problem)
    copies = [
        copy
        for copy in in_cache(name)
        if origin != "distribution" or (copy.origin or "").endswith(UNPACKED)
    ]
    usable = [copy for copy in copies if copy.problem is None]
    if not usable:
        pytest.skip(
            f"{name} cannot be used here: {copies[0].problem if copies else 'no copy in the cache'}"
        )
    return usable[0]


def in_cache(*names: str) -> tuple[Found, ...]:
    """Returns the copies of these allocators in the tests' cache.

    The system's allocator and Cairn's, which no cache contains, are included if they are named.
    """
    found = discover.discover(
        names=names, cache=discover.cache_folder({"XDG_CACHE_HOME": str(CACHE)})
    )
    return tuple(copy for copy in found if copy.cached or copy.allocator.comes_along)


def skip_known_fault(found: Found, workload: str) -> None:
    """Skips the test if the peer is known to fail on this workload, and names the fault."""
    fault = FAULTS.get((found.allocator.name, found.version or "", workload))
    if fault is not None:
        pytest.skip(f"{found.title}: {fault}")


def preloading(found: Found) -> dict[str, str]:
    """Returns the environment variables that preload the allocator."""
    assert found.path is not None
    folders = [carried(Path(folder)) for folder in found.library_path]
    environment = {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {}
    return {"LD_PRELOAD": carried(Path(found.path)), **environment}


@functools.cache
def _bring(name: str, origin: str | None) -> str | None:
    """Fetches an allocator. Returns None, or the reason if the allocator cannot be fetched.

    The function uses the user's package registries, but never the user's cache.
    """
    chosen = [] if origin is None else ["--from", origin]
    command = [str(Path(sys.executable).with_name("cairn")), "allocators", "get", *chosen, name]
    environment = users_environment(XDG_CACHE_HOME=str(CACHE))
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    return (
        done.stderr.strip().splitlines()[-1]
        if done.stderr.strip()
        else f"{name} cannot be had here"
    )
