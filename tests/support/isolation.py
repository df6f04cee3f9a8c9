"""Gives tests a home, a cache and a PATH of their own instead of the user's.

The root conftest calls `isolate()` once, before any test module is imported. From then on,
`os.environ` holds only the variables in `KEPT`: no LD_PRELOAD, no MALLOC_*, no PYTHON*, no settings
of cairn. The home is empty, and is deleted when the process ends. A test that needs the user's
package registries (cargo, pip) gets them from `users_environment()`.
"""

from __future__ import annotations

import atexit
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

USER: dict[str, str] = dict(os.environ)
"""The environment in which pytest was started."""

SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

KEPT = (
    "CI", "COVERAGE_*", "DEBIAN_FRONTEND", "PYTEST_*", "TERM", "TMPDIR",
    "CAIRN_LAUNCH", "CAIRN_MALLOC", "CAIRN_MALLOC_NAME", "CAIRN_UNDER_PROBE", "CAIRN_WITNESS_LIB", "CAIRN_WORKLOADS",
    "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_*",
    "OPENBLAS_*",
)  # fmt: skip
"""Patterns of variables that stay: the tests' own switches, and those that the machine needs."""


def isolate() -> None:
    """Replaces `os.environ` for this process and its children. A second call has no effect."""
    if "CAIRN_TESTS_HOME" in os.environ:
        return
    home = tempfile.mkdtemp(prefix="cairn-tests-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    kept = {
        name: value
        for name, value in USER.items()
        if any(fnmatch.fnmatchcase(name, p) for p in KEPT)
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), *SYSTEM_FOLDERS])
    os.environ.clear()
    os.environ.update(kept, HOME=home, PATH=path, LANG="C.UTF-8", CAIRN_TESTS_HOME=home)


def users_tool(name: str) -> str:
    """Returns the path of a tool that is often installed for one user only, such as cargo or go.

    Skips the test if the tool is missing. Start the tool with `users_environment()`, because it
    finds its parts below the user's home.
    """
    found = shutil.which(name, path=USER.get("PATH"))
    if found is None:
        pytest.skip(f"{name} is not here")
    works = subprocess.run(
        [found, "version" if name == "go" else "--version"],
        env=USER,
        capture_output=True,
        check=False,
        timeout=60,
    )
    if works.returncode != 0:
        pytest.skip(f"{found} does not work: {os.fsdecode(works.stderr).strip()[:200]}")
    return found


def users_environment(**more: str) -> dict[str, str]:
    """Returns the environment for a tool of the user: the user's home, PATH and registries.

    The environment has no variables of an allocator or of cairn.
    """
    prefixes = ("CARGO_", "RUSTUP_", "GO", "PIP_", "SSL_")
    kept = {name: value for name, value in USER.items() if name.startswith(prefixes)}
    return {**os.environ, **kept, "HOME": USER.get("HOME", "/"), "PATH": USER["PATH"], **more}
