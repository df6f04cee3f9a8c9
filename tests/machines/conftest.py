"""Fixtures for libcairn on other processors, with other OS pages, and with another C library.

tests/cross builds the libraries. Debian's packages gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu,
musl-tools and qemu-user contain the compilers and the emulator.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.compilers import ROOT

FLAGS = (
    *("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-use-after-free"),
    *("-Wno-alloc-size-larger-than", "-Wno-free-nonheap-object", "-fno-builtin", "-D_GNU_SOURCE"),
    *(f"-I{ROOT / 'tests' / 'unit'}", f"-I{ROOT / 'include'}", "-pthread"),
)
COMPILERS = {
    "aarch64": "aarch64-linux-gnu-gcc",
    "riscv64": "riscv64-linux-gnu-gcc",
    "musl": "musl-gcc",
}


@dataclass
class Machine:
    """A processor, or a C library, for which libcairn was built in build/NAME."""

    name: str
    folder: Path
    """The folder of the compiled programs."""
    built: dict[tuple[str, ...], Path] = field(default_factory=dict)

    @property
    def libraries(self) -> Path:
        """The folder of libcairn.so.0 and libcairn.a."""
        return ROOT / "build" / self.name / "src" / "abi"

    @property
    def launcher(self) -> Path:
        """cairn-launch for this machine."""
        return ROOT / "build" / self.name / "src" / "launch" / "cairn-launch"

    @property
    def witness(self) -> Path:
        """libcairn-witness.so for this machine."""
        return ROOT / "build" / self.name / "src" / "witness" / "libcairn-witness.so"

    def compiled(self, source: str | Path, *flags: str) -> Path:
        """Builds a program, or returns the one that was built before."""
        path = ROOT / "tests" / "conformance" / source
        key = (str(path), *flags)
        if key not in self.built:
            target = self.folder / f"{path.stem}{len(self.built)}"
            command = [COMPILERS[self.name], *FLAGS, str(path), *flags, "-o", str(target)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
            self.built[key] = target
        return self.built[key]

    def under(self, page_bytes: int | None, **environment: str) -> list[str]:
        """The command that executes a program with OS pages of this size."""
        if self.name == "musl":
            return ["env", *(f"{name}={value}" for name, value in environment.items())]
        given = [word for name, value in environment.items() for word in ("-E", f"{name}={value}")]
        pages = ["-p", str(page_bytes)] if page_bytes else []
        return [f"qemu-{self.name}", *pages, "-L", f"/usr/{self.name}-linux-gnu", *given]

    def run(
        self,
        mode: str,
        page_bytes: int | None,
        source: str,
        *arguments: object,
        timeout: float = 600,
    ) -> str:
        """Runs a program of tests/conformance with libcairn. Returns its output.

        The mode is "preloaded", or "archive" for a program that contains libcairn.a.
        """
        shared, archive = self.libraries / "libcairn.so.0", self.libraries / "libcairn.a"
        if mode == "preloaded":
            program = self.compiled(source, "-rdynamic")
            command = self.under(page_bytes, LD_PRELOAD=str(shared))
        else:
            program = self.compiled(source, str(archive), "-rdynamic")
            command = self.under(page_bytes)
        done = subprocess.run(
            [*command, str(program), *map(str, arguments)],
            env={name: value for name, value in os.environ.items() if "CAIRN" not in name},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        said = f"ended with {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0 and not done.stderr, said
        return done.stdout


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Machine]:
    """Returns machine(NAME), which builds libcairn for a machine once.

    The test is skipped if the compiler or the emulator is not installed.
    """
    made: dict[str, Machine] = {}

    def make(name: str) -> Machine:
        if name not in made:
            if name != "musl" and not shutil.which(f"qemu-{name}"):
                pytest.skip(f"qemu-{name} is not here")
            done = subprocess.run(
                [ROOT / "tests" / "cross", name], capture_output=True, text=True, check=False
            )
            if done.returncode == 77:
                pytest.skip(done.stdout.strip())
            assert done.returncode == 0, done.stdout + done.stderr
            made[name] = Machine(name, tmp_path_factory.mktemp(name))
        return made[name]

    return make
