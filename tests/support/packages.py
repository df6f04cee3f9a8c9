"""Uses installed packages as their users do: with pkg-config, and with find_package in CMake."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

needs_pkg_config = pytest.mark.skipif(
    not shutil.which("pkg-config"), reason="pkg-config is not here"
)
needs_cmake = pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not here")


def call(*command: object, **environment: str) -> str:
    """Runs a command that must succeed, in an environment without the user's variables.

    Returns its output.
    """
    done = subprocess.run(
        list(map(str, command)),
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def pkg_config(tree: Path, *words: str) -> list[str]:
    """Returns the words that pkg-config prints about packages in the installed tree."""
    return shlex.split(call("pkg-config", *words, PKG_CONFIG_PATH=str(tree / "lib" / "pkgconfig")))


def built_by_cmake(
    folder: Path, tree: Path, package: str, target: str, programs: list[Path], *options: str
) -> Path:
    """Builds a project whose programs link `cairn::target` of an installed package.

    Returns the build folder. Each program there has the name of its source. `options` are further
    lines of the project's CMakeLists.txt.
    """
    lines = [
        "cmake_minimum_required(VERSION 3.20)",
        "project(user LANGUAGES C CXX)",
        f"find_package({package} REQUIRED)",
        "set(CMAKE_CXX_STANDARD 17)",
        *options,
    ]
    for source in programs:
        lines.append(f'add_executable({source.stem} "{source}")')
        lines.append(f"target_link_libraries({source.stem} PRIVATE cairn::{target})")
    project = folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    call("cmake", "-S", project, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={tree}")
    call("cmake", "--build", folder / "build")
    return folder / "build"
