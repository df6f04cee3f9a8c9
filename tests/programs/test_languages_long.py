"""Tests of interpreters and runtimes of other languages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INPUTS, Stage, image_of, path_of

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("program", "file"),
    [("ruby", "work.rb"), ("perl", "work.pl"), ("lua5.4", "work.lua"), ("bash", "work.bash")],
    ids=["ruby", "perl", "lua", "bash"],
)
def test_an_interpreter(both: Callable[..., str], program: str, file: str) -> None:
    path = path_of(program)

    def session(stage: Stage) -> str:
        return stage.run(path, INPUTS / file)

    both(session, image_of(program))


@pytest.mark.parametrize("collector", ["G1", "Parallel", "Z"])
def test_java_compiles_and_runs(both: Callable[..., str], collector: str) -> None:
    compiler = path_of("javac")
    java = Path(compiler).resolve().with_name("java")

    def session(stage: Stage) -> str:
        stage.run(compiler, "-d", ".", INPUTS / "Work.java")
        return stage.run(java, f"-XX:+Use{collector}GC", "-Xmx256m", "-cp", ".", "Work")

    both(session, "javac", "java")


def test_the_addresses_of_javas_heap_leave_room_for_our_region(both: Callable[..., str]) -> None:
    """Java's collector ZGC puts a large heap at an address of 4, 8 or 16 TiB.

    libcairn takes all memory from one growing range of addresses. In an earlier version, this range
    was at such an address in a quarter of the runs, and could not grow.
    """
    compiler = path_of("javac")
    java = Path(compiler).resolve().with_name("java")
    options = ["-XX:+UseZGC", "-Xmx64g", "-Xms64m", "-XX:MaxDirectMemorySize=2g", "-Xlog:disable"]

    def session(stage: Stage) -> str:
        stage.run(compiler, "-d", ".", INPUTS / "Direct.java")
        return "".join(stage.run(java, *options, "-cp", ".", "Direct") for _ in range(10))

    assert both(session, "java") == 10 * "800\n"


def test_go_with_c(both: Callable[..., str], tmp_path: Path) -> None:
    """Go's tools are static programs, into which libcairn cannot be preloaded."""
    own = {
        "HOME": str(tmp_path),
        "GOCACHE": str(tmp_path / "cache"),
        "GOFLAGS": "-p=1",
        "CGO_ENABLED": "1",
    }
    command = [path_of("go"), "build", "-o", str(tmp_path / "work"), str(INPUTS / "work.go")]
    subprocess.run(command, env={"PATH": os.environ["PATH"]} | own, check=True, timeout=300)

    def session(stage: Stage) -> str:
        return stage.run(tmp_path / "work")

    both(session, "work")


def test_rust_compiles_and_runs(both: Callable[..., str]) -> None:
    compiler = path_of("rustc")

    def session(stage: Stage) -> str:
        stage.run(compiler, "-O", "-C", "codegen-units=4", INPUTS / "work.rs", "-o", "work")
        return stage.run("./work")

    both(session, image_of("rustc"), "work")
