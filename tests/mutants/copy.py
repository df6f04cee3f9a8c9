"""A copy of the tree with an environment of its own, in which faults are planted and tests are run.

The working tree is only read. The Python and the command `cairn` of a copy's environment import the
package of the copy. Everything else is imported from the environment of the working tree.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
NATIVE = Path("cairn") / "native"


def tracked() -> list[str]:
    """Returns all files of the working tree that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    code: int | None
    """The exit status. None if the command was killed after the limit."""
    out: str
    seconds: float


@dataclass(frozen=True)
class Tested:
    """The result of a test run."""

    seconds: dict[str, float]
    failed: list[str]
    lines: dict[str, dict[str, list[str]]]
    out: str


@dataclass
class Copy:
    """The tree and the environment, under one folder."""

    folder: Path
    written: float = 0.0
    """The modification time of the file that was written last, in seconds.

    Python recognizes a changed file by its modification time in whole seconds. So each write gets a
    second of its own.
    """

    @property
    def tree(self) -> Path:
        """The folder with the files."""
        return self.folder / "tree"

    @property
    def python(self) -> Path:
        """The interpreter that imports the package of the copy."""
        return self.folder / "venv" / "bin" / "python"

    def make(self) -> None:
        """Brings the copy to the state of the working tree."""
        names = tracked()
        for name in names:
            source, target = ROOT / name, self.tree / name
            if not target.is_file() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        for path in list(self.tree.rglob("*")):
            inside = path.relative_to(self.tree)
            made = "__pycache__" in inside.parts or inside.is_relative_to(NATIVE)
            if path.is_file() and not made and str(inside) not in names:
                path.unlink()
        site = Path(next(path for path in sys.path if path.endswith("site-packages")))
        if not self.python.exists():
            subprocess.run(
                [sys.executable, "-m", "venv", "--without-pip", str(self.folder / "venv")],
                check=True,
            )
        own = self.folder / "venv" / site.relative_to(sys.prefix)
        (own / "copy.pth").write_text(
            f"{self.tree}\n{self.tree / 'tests'}\n{site}\nimport mutants.follow\n"
        )
        script = self.python.with_name("cairn")
        script.write_text(
            f"#!{self.python}\nimport sys\n\nfrom cairn.__main__ import main\n\nsys.exit(main())\n"
        )
        script.chmod(0o755)
        if (site / NATIVE).is_dir():
            shutil.rmtree(self.tree / NATIVE, ignore_errors=True)
            shutil.copytree(site / NATIVE, self.tree / NATIVE, symlinks=True)

    def write(self, name: str, text: str) -> None:
        """Replaces the text of one file."""
        path = self.tree / name
        path.write_text(text)
        self.written = max(time.time(), self.written + 1)
        os.utime(path, (self.written, self.written))

    def restore(self, name: str) -> None:
        """Gives one file the text that it has in the working tree."""
        self.write(name, (ROOT / name).read_text())

    def run(self, *command: str | Path, limit: float) -> Ended:
        """Runs a command in the tree, and kills all processes that it leaves running."""
        apart = ("CAIRN_", "PYTHON", "PYTEST", "MAKE")
        env = {name: value for name, value in os.environ.items() if not name.startswith(apart)}
        env["PATH"] = os.pathsep.join(
            [str(self.python.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        begun = time.monotonic()
        code = None
        with (self.folder / "out.txt").open("w+b") as out:
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=self.tree,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
            finally:
                end_children()
            out.seek(0)
            said = out.read().decode(errors="replace")
        return Ended(code, said, time.monotonic() - begun)

    def pytest(
        self,
        files: Sequence[str],
        plan: dict[str, float] | None = None,
        *,
        limit: float,
        recorded: bool = False,
    ) -> Tested:
        """Runs tests. With a plan, pytest stops at the first failure."""
        told, chosen = self.folder / "told.json", self.folder / "plan.json"
        told.unlink(missing_ok=True)
        words: list[str | Path] = [
            "-m",
            "pytest",
            "-q",
            "-p",
            "mutants.plugin",
            "-p",
            "no:cacheprovider",
        ]
        words += ["-m", "not long", f"--rootdir={self.tree}", f"--told={told}"]
        if plan is not None:
            chosen.write_text(json.dumps(plan))
            words += ["-x", f"--plan={chosen}"]
        if recorded:
            words.append("--recorded")
        ended = self.run(self.python, *words, *files, limit=limit)
        result: dict[str, Any] = {"seconds": {}, "failed": [], "lines": {}}
        if told.exists():
            result = json.loads(told.read_text())
        elif ended.code is None:
            result["failed"] = [f"the tests did not end within {limit:.0f} s"]
        else:
            result["failed"] = [f"pytest itself failed with exit status {ended.code}"]
        return Tested(**result, out=ended.out)


def adopt() -> None:
    """Makes this process the parent of all orphaned descendants from here on."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children() -> None:
    """Kills and reaps all descendants of this process.

    After adopt(), orphans become children of this process. The next turn of the loop kills them.
    """
    while True:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        try:
            while os.waitpid(-1, 0):
                pass
        except ChildProcessError:
            if not Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                return
