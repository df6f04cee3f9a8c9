"""Fixtures of all tests: golden files, compiled programs, and the command in an empty home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support.isolation import isolate
from support.places import PROGRAMS
from support.prepared import Prepared, is_needed_anew

isolate()

# The random inputs are the same in every run, and a busy machine fails no test.
settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

ROOT = Path(__file__).resolve().parent.parent

GOLDEN = ROOT / "tests" / "golden"
"""The folder of the golden files, which contain reports as users see them. `make golden` writes
these files anew. Read the diff before you commit it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        action="store_true",
        help="write the files in tests/golden anew instead of comparing",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Returns golden(name, text), which compares the text with tests/golden/<name>.txt."""

    def compare(name: str, text: str) -> None:
        file = GOLDEN / f"{name}.txt"
        if request.config.getoption("--golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"{file.relative_to(ROOT)} is missing; 'make golden' writes it"
        assert text == file.read_text(encoding="utf-8"), f"not as in {file.relative_to(ROOT)}"

    return compare


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns compiled("churn.c", "-O2"), which builds a program once and returns its path.

    With "-shared" among the flags it builds a library.
    """
    folder = tmp_path_factory.mktemp("compiled")

    def build(source: str, *flags: str) -> Path:
        shared = "-shared" in flags
        target = folder / (
            Path(source).stem + "".join(flags).replace("/", "_") + (".so" if shared else "")
        )
        if not target.exists():
            path = PROGRAMS / source
            extra = ["-fPIC"] if shared else []
            subprocess.run(
                ["gcc", "-O1", "-fno-builtin", *extra, *flags, str(path), "-o", str(target)],
                check=True,
            )
        return target

    return build


@pytest.fixture(scope="session")
def forward(compiled: Callable[..., Path]) -> Path:
    """A library that forwards every call to glibc. Many tests measure it as another allocator."""
    return compiled("forward_malloc.c", "-shared")


@pytest.fixture(scope="session")
def churn(compiled: Callable[..., Path]) -> Path:
    """A program that allocates and frees blocks."""
    return compiled("churn.c")


@dataclass
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The last line on stderr that reports a failure, which is a line that begins with ✘."""
        lines = [line for line in self.err.splitlines() if line.startswith("✘")]
        assert lines, f"no failure reported:\n{self.err}"
        return lines[-1]

    @property
    def json(self) -> Any:
        """Standard output, parsed as JSON."""
        return json.loads(self.out)


@dataclass
class Command:
    """The command `cairn` with a home folder of its own."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    """A command that executes the rest of its arguments, such as one that gives up rights."""
    prepared: Prepared | None = None
    """A process that runs calls of the command without a new interpreter. If this is None, or if a
    call needs a new interpreter, the call is a process of its own."""

    @property
    def argv(self) -> list[str]:
        """The command's arguments up to the subcommand."""
        return [*self.by, str(Path(sys.executable).with_name("cairn"))]

    @property
    def env(self) -> dict[str, str]:
        """A small, known environment."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "CAIRN_RESULTS": str(self.home / "results"),
            **self.environment,
        }

    def __call__(
        self, *args: object, timeout: float = 120, cwd: Path | None = None, **environment: str
    ) -> Result:
        """Runs the command and returns its result. Fails if stderr has a traceback."""
        changed = {**self.environment, **environment}
        if self.prepared is not None and not self.by and not is_needed_anew(changed):
            code, out, err = self.prepared.run(
                [*map(str, args)], {**self.env, **environment}, cwd or self.home, timeout
            )
        else:
            done = subprocess.run(
                [*self.argv, *map(str, args)],
                env={**self.env, **environment},
                cwd=cwd or self.home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        result = Result(code, out.decode(), err.decode())
        assert "Traceback" not in result.err, result.err
        return result

    def start(self, *args: object) -> subprocess.Popen[str]:
        """Starts the command without waiting for it. The caller must end it."""
        return subprocess.Popen(
            [*self.argv, *map(str, args)],
            env=self.env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def results(self) -> Path:
        """The folder in which the command stores its runs."""
        return self.home / "results"


@pytest.fixture(scope="session")
def prepared() -> Iterator[Prepared]:
    """A process in which the modules of the installed command are loaded."""
    process = Prepared(str(Path(sys.executable).with_name("cairn")))
    yield process
    process.close()


@pytest.fixture
def cairn(tmp_path: Path, prepared: Prepared) -> Command:
    """The installed command, in an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    return Command(home, prepared=prepared)
