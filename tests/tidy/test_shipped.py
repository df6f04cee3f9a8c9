"""Tests that every file of src/ is part of an installed target.

The tests ask CMake: its file API reports the sources of each target, the targets that each target
is made of, and which targets are installed. A header counts if a source of an installed target
includes it, directly or through other headers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.compilers import ROOT
from support.packages import call, needs_cmake


def configured(build: Path) -> list[dict[str, Any]]:
    """Configures the build as for an installation. Returns CMake's description of each target."""
    questions = build / ".cmake" / "api" / "v1" / "query"
    questions.mkdir(parents=True)
    for question in ("codemodel-v2", "cmakeFiles-v1"):
        (questions / question).touch()
    call("cmake", "-S", ROOT, "-B", build)
    answers = build / ".cmake" / "api" / "v1" / "reply"
    return [
        json.loads(file.read_text())
        for kind in ("target", "cmakeFiles")
        for file in answers.glob(f"{kind}-*.json")
    ]


def parts_of_installed(targets: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the installed targets, and the targets that they are made of."""
    by_id = {target["id"]: target for target in targets}
    waiting = [name for name, target in by_id.items() if target.get("install")]
    seen = set(waiting)
    while waiting:
        target = by_id[waiting.pop()]
        yield target
        new = {other["id"] for other in target.get("dependencies", ())} - seen
        seen |= new
        waiting += new


def with_headers(files: Iterable[str]) -> set[str]:
    """Returns the files, and those of src/ that they include."""
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        text = (ROOT / file).read_text()
        names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE)
        waiting += [f"src/{name}" for name in names if (ROOT / "src" / name).is_file()]
    return found


def shipped(build: Path) -> set[str]:
    """Returns the files of src/ that are part of an installed target, relative to the root."""
    answers = configured(build)
    parts = list(parts_of_installed(answer for answer in answers if "id" in answer))
    assert parts, "CMake installs nothing"
    named = [source["path"] for part in parts for source in part["sources"]]
    flags = [
        flag["fragment"]
        for part in parts
        for flag in part.get("link", {}).get("commandFragments", ())
    ]
    named += re.findall(rf"{re.escape(str(ROOT))}/(src/\S+\.map)", " ".join(flags))
    named += [one["path"] for answer in answers for one in answer.get("inputs", ())]
    return with_headers(path for path in named if path.startswith("src/"))


def in_the_tree() -> set[str]:
    return {
        os.path.relpath(file, ROOT)
        for file in (ROOT / "src").rglob("*")
        if file.is_file() and not file.name.startswith(".")
    }


@needs_cmake
def test_every_file_of_src_is_shipped(tmp_path: Path) -> None:
    there, used = in_the_tree(), shipped(tmp_path)
    assert not sorted(there - used), "files that no installed target contains"


IN_THE_ROOT = {
    *(".ci", ".clang-format", ".dockerignore", ".editorconfig", ".gitignore", "CHANGELOG.md"),
    *("CMakeLists.txt", "LICENSE", "Makefile", "README.md", "cairn", "constraints.txt", "docs"),
    *("examples", "include", "man", "pyproject.toml", "src", "tests", "tools", "workloads"),
}


def test_the_root_has_only_what_a_newcomer_looks_for_there() -> None:
    """Once, the core dump of an emulated program was committed."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if not (ROOT / ".git").exists() or listed.returncode:
        pytest.skip("this folder is no clone")
    names = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    assert "src" in names and names - IN_THE_ROOT == set()
