"""Tests that the user's home, cache, PATH and environment cannot change the result of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support import isolation, peers

from cairn.allocators import discover

POISON = {
    "LD_PRELOAD": "/nowhere/libbroken.so",
    "PYTHONMALLOC": "malloc",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "CAIRN_RESULTS": "/nowhere/results",
    "CAIRN_LIMIT": "1",
    "XDG_DATA_HOME": "/nowhere/data",
    "NO_COLOR": "1",
    "COLUMNS": "20",
}


def test_a_poisoned_environment_does_not_reach_the_tests(tmp_path: Path) -> None:
    (tmp_path / "gcc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "gcc").chmod(0o755)
    code = (
        "import json, os, shutil; from support import isolation; isolation.isolate(); "
        "print(json.dumps([dict(os.environ), shutil.which('gcc')]))"
    )
    users = {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(isolation.__file__).parents[1]),
        **POISON,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=users, capture_output=True, text=True, check=True
    )
    seen, gcc = json.loads(done.stdout)
    assert not set(seen) & (POISON.keys() | {"XDG_CACHE_HOME", "PYTHONPATH"})
    assert seen["HOME"] != str(tmp_path)
    assert gcc is None or not gcc.startswith(str(tmp_path))


def test_these_tests_run_in_an_empty_home_of_their_own() -> None:
    assert os.environ["HOME"] == os.environ["CAIRN_TESTS_HOME"]
    assert os.environ["HOME"] != isolation.USER.get("HOME")
    assert discover.find_cached(discover.known_catalog(), discover.cache_folder()) == ()
    assert Path(os.environ["HOME"]) in discover.cache_folder().parents
    assert str(peers.CACHE) != str(discover.cache_folder())
