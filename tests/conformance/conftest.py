"""Fixtures for programs that use libcairn: preloaded, linked, or with the archive built in.

The library is the installed one, or the one in the folder $CAIRN_MALLOC, such as build/gcc/src/abi.
With CAIRN_MALLOC_NAME=libcairn-hardened it is the hardened build. Tests with the mark `plain` are
then skipped.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.allocator_under_test import NAME, Library, under_test
from support.compilers import ROOT

HERE = Path(__file__).parent
MODES = ("preloaded", "archive")
archive_later = pytest.mark.parametrize(
    "mode", ["preloaded", pytest.param("archive", marks=pytest.mark.long)]
)
"""For tests of behaviour that does not depend on how the library comes into the program."""
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-Werror"]
MISUSE_IS_MEANT = ["-Wno-use-after-free", "-Wno-alloc-size-larger-than", "-Wno-free-nonheap-object"]
STANDARD = {".c": "-std=gnu11", ".cpp": "-std=c++17"}
COMPILER = {".c": "gcc", ".cpp": "g++"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests of the plain build if the hardened one is tested."""
    if NAME == "libcairn":
        return
    for item in items:
        mark = item.get_closest_marker("plain")
        if mark is not None:
            item.add_marker(pytest.mark.skip(reason=f"only the plain build {mark.args[0]}"))


@dataclass(frozen=True)
class Ended:
    """The exit code and the output of a program."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Program:
    """A program that uses the allocator."""

    path: Path
    preload: Path | None

    def __call__(
        self,
        *arguments: object,
        under: Sequence[str] = (),
        limits: dict[int, int] | None = None,
        timeout: float = 120,
        **environment: str,
    ) -> Ended:
        """Runs the program to its end, with the given resource limits."""
        env = {
            name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")
        } | environment
        if self.preload is not None:
            env["LD_PRELOAD"] = str(self.preload)

        def confine() -> None:
            for limit, value in (limits or {}).items():
                resource.setrlimit(limit, (value, value))

        done = subprocess.run(
            [*under, str(self.path), *map(str, arguments)],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            preexec_fn=confine if limits else None,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def succeed(
        self,
        *arguments: object,
        under: Sequence[str] = (),
        limits: dict[int, int] | None = None,
        timeout: float = 120,
        **environment: str,
    ) -> str:
        """Runs the program, which must exit with 0 and an empty stderr. Returns its output."""
        ended = self(*arguments, under=under, limits=limits, timeout=timeout, **environment)
        assert ended.code == 0 and not ended.err, f"ended with {ended.code}\n{ended.out}{ended.err}"
        return ended.out


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The libcairn to test: the installed one, or the one in the folder $CAIRN_MALLOC."""
    return under_test(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns compiled_here(source, *flags, name=…), which builds a program with gcc or g++.

    Each program is built only once.
    """
    folder = tmp_path_factory.mktemp("conformance")

    def build(source: str, *flags: str | Path, name: str = "") -> Path:
        path = HERE / source
        words = [str(flag) for flag in flags]
        label = "".join(Path(word).name if word.startswith("/") else word for word in words)
        target = folder / (name or f"{path.stem}{label}".replace("/", "_").replace("$", "_"))
        if not target.exists():
            command = [
                *(COMPILER[path.suffix], STANDARD[path.suffix], "-O1", "-g", *WARNINGS),
                *(*MISUSE_IS_MEANT, "-fno-builtin"),
                *(
                    "-D_GNU_SOURCE",
                    f"-I{ROOT / 'tests' / 'unit'}",
                    f"-I{ROOT / 'include'}",
                    "-pthread",
                ),
                *(str(path), *words, "-o", str(target)),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        return target

    return build


@pytest.fixture(scope="session")
def program(library: Library, compiled_here: Callable[..., Path]) -> Callable[..., Program]:
    """Returns program(source, mode, *flags), which builds a program that uses the allocator.

    The mode is "preloaded", "linked" (with the shared library) or "archive" (with libcairn.a).
    """
    return _builder(library, compiled_here)


@pytest.fixture(scope="session")
def hardened(
    tmp_path_factory: pytest.TempPathFactory, compiled_here: Callable[..., Path]
) -> Callable[..., Program]:
    """Like program(), but the programs use the hardened build of the library."""
    return _builder(
        under_test(tmp_path_factory.mktemp("hardened"), "libcairn-hardened"), compiled_here
    )


def _builder(library: Library, compiled_here: Callable[..., Path]) -> Callable[..., Program]:

    def build(source: str, mode: str, *flags: str | Path) -> Program:
        if mode == "preloaded":
            return Program(compiled_here(source, *flags, "-rdynamic"), library.shared)
        if mode == "linked":
            return Program(
                compiled_here(source, *flags, library.shared, f"-Wl,-rpath,{library.folder}"), None
            )
        return Program(compiled_here(source, *flags, library.archive, "-rdynamic"), None)

    return build
