"""Fixtures of the arena's tests: an installed arena, and programs that use it.

The arena is installed under a prefix of its own. Each installed compiler builds the programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.compilers import ROOT, STANDARD, WARNINGS, run, succeed


@cache
def has_runtime(compiler: str, flag: str, folder: Path) -> bool:
    """Returns whether an empty program can be linked with the sanitizer of `flag`.

    Debian's clang has no sanitizers without another package.
    """
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    return run(compiler, "-x", "c", flag, empty, "-o", folder / "empty").returncode == 0


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that contains only the arena, as `cmake --install` installed it there."""
    folder = tmp_path_factory.mktemp("installed")
    build = folder / "build"
    for command in (
        ["cmake", "-S", ROOT, "-B", build],
        ["cmake", "--build", build, "--target", "cairn-arena", "cairn-arena-static"],
        ["cmake", "--install", build, "--component", "arena", "--prefix", folder / "prefix"],
    ):
        done = run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "prefix"


@pytest.fixture(scope="session")
def program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns program(source, compiler, *flags), which builds a program with the installed arena.

    The program uses the shared library, or the archive if `static` is true.
    """
    folder = tmp_path_factory.mktemp("programs")

    def build(source: Path, compiler: str, *flags: str, static: bool = False) -> Path:
        target = folder / "-".join([source.stem, compiler, *flags, str(static)]).replace(
            "/", "_"
        ).replace("=", "_")
        library = prefix / "lib"
        link = (
            [library / "libcairn-arena.a"]
            if static
            else [f"-L{library}", "-lcairn-arena", f"-Wl,-rpath,{library}"]
        )
        for flag in flags:
            if (
                compiler.startswith("clang")
                and flag.startswith("-fsanitize=")
                and not has_runtime(compiler, flag, folder)
            ):
                pytest.skip(
                    f"{compiler} has no runtime for {flag} here; on Debian: apt-get install libclang-rt-dev"
                )
        if not target.exists():
            options = [
                STANDARD[source.suffix],
                "-O1",
                "-g",
                *WARNINGS,
                "-D_GNU_SOURCE",
                f"-I{prefix / 'include'}",
            ]
            succeed(compiler, *options, *flags, source, *link, "-pthread", "-o", target)
        return target

    return build
