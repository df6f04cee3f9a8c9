"""Finds the installed compilers and runs the programs that they build."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-Werror", "-pedantic"]
COMPILERS = {
    suffix: [name for name in names if shutil.which(name)]
    for suffix, names in {".c": ["gcc", "clang"], ".cpp": ["g++", "clang++"]}.items()
}
STANDARD = {".c": "-std=c11", ".cpp": "-std=c++17"}


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command without any CAIRN_ variables of the environment.

    Returns its exit code, and its stdout and stderr as text.
    """
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")},
        **environment,
    }
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def succeed(*command: str | Path, **environment: str) -> str:
    """Runs a command that must exit with 0 and an empty stderr. Returns its output."""
    done = run(*command, **environment)
    assert done.returncode == 0 and not done.stderr, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
