"""Makes the inputs of a plan's programs once, and checks that they are still the same.

Each recipe is made once, in a folder of the user's cache, with its SHA-256 beside it. Programs with
the same recipe share the file: their folders hold hard links. If a file was changed, it is made
again, and a message says so. A changed recipe makes another file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from cairn import units
from cairn.allocators.discover import cache_folder
from cairn.errors import CairnError, UsageError
from cairn.matrix import recipes
from cairn.matrix.plan import PlannedProgram
from cairn.run.stored_run import cannot

Tell = Callable[[str], None]
KEPT = "inputs.json"
"""The part of a run that has the checksums of its inputs, by path."""
_RUN_S = 600.0
"""The time that a recipe that runs a command may take."""


def home() -> Path:
    """The folder of all inputs and of the programs' working folders."""
    return cache_folder().parent / "matrix"


def data_folder(program: PlannedProgram) -> Path:
    """The folder that {data} stands for. Its name changes with the recipes."""
    return home() / "data" / f"{program.table}-{_key(program)}"


def work_folder(program: PlannedProgram) -> Path:
    """The folder that {work} stands for. It is emptied before each run."""
    return home() / "work" / program.name.replace("/", "-")


def make(program: PlannedProgram, tell: Tell) -> Mapping[str, str]:
    """Makes what is missing or was changed; returns the SHA-256 by file name.

    Raises CairnError if an input cannot be made.
    """
    folder = data_folder(program)
    sums = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in program.files.items():
            target = folder / name
            if not target.is_file() or target.read_bytes() != text.encode():
                _replace(target, text.encode())
            sums[name] = hashlib.sha256(text.encode()).hexdigest()
        for name, recipe in program.inputs.items():
            made, digest = _made(recipe, folder, name, tell)
            target = folder / name
            if not target.exists() or not target.samefile(made):
                target.unlink(missing_ok=True)
                os.link(made, target)
            sums[name] = digest
    except OSError as error:
        raise cannot("write", Path(error.filename or folder), error) from error
    return sums


def as_kept(sums: Mapping[str, str]) -> bytes:
    """The checksums by path, as the part of a run that `refuse_changed` reads."""
    return json.dumps(dict(sorted(sums.items())), indent=1).encode() + b"\n"


def refuse_changed(kept: bytes | None) -> None:
    """Raises UsageError if an input is not as it was when the run began.

    kept: the part KEPT of the run; None for a run without inputs.
    """
    for path, digest in json.loads(kept or b"{}").items():
        try:
            same = _sum(Path(path)) == digest
        except OSError:
            same = False
        if not same:
            raise UsageError(
                f"the input {path} is not as it was when this run began; begin a new run, which "
                "makes it again"
            )


def _key(program: PlannedProgram) -> str:
    parts = [f"{recipes.GENERATION}"]
    parts += [f"{name}\0{text}" for name, text in sorted(program.inputs.items())]
    parts += [f"{name}\0{text}" for name, text in sorted(program.files.items())]
    return hashlib.sha256("\0\0".join(parts).encode()).hexdigest()[:12]


def _made(recipe: str, folder: Path, name: str, tell: Tell) -> tuple[Path, str]:
    """The file of this recipe and its SHA-256. A `run` recipe's file serves one program."""
    parsed = recipes.parse(recipe)
    about = f"{recipes.GENERATION}\0{recipe}" + (f"\0{folder}" if parsed.line else "")
    place = home() / "inputs" / hashlib.sha256(about.encode()).hexdigest()[:24]
    file, note = place / "content", place / "sha256"
    if file.is_file() and note.is_file():
        known = note.read_text().strip()
        if _sum(file) == known:
            return file, known
        tell(f"the input {name} was changed; it is made again")
    size = f" ({units.size(parsed.size)})" if parsed.size else ""
    tell(f"making the input {name}{size}")
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=place) as fresh:
        draft = Path(fresh) / "content"
        if parsed.line:
            _run(parsed.line, draft, folder, name)
        else:
            with draft.open("wb") as out:
                for part in recipes.content(parsed):
                    out.write(part)
        digest = _sum(draft)
        note.unlink(missing_ok=True)
        draft.chmod(0o444)
        draft.replace(file)
    _replace(note, digest.encode() + b"\n")
    return file, digest


def _run(line: str, draft: Path, folder: Path, name: str) -> None:
    filled = line.replace("{out}", shlex.quote(str(draft)))
    filled = filled.replace("{data}", shlex.quote(str(folder)))
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", filled], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_RUN_S, check=False, cwd=draft.parent,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CairnError(
            f"the recipe of the input {name} did not end within {_RUN_S:g} s"
        ) from None
    if done.returncode != 0 or not draft.is_file():
        lines = [text for text in done.stderr.splitlines() if text.strip()]
        why = lines[-1][:200] if lines else f"exit code {done.returncode}"
        raise CairnError(f"the recipe of the input {name} made no file: {why}")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(target: Path, content: bytes) -> None:
    """Writes the file in one step; programs that have the old one open keep it."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".new-", delete=False) as file:
        file.write(content)
    shutil.move(file.name, target)
