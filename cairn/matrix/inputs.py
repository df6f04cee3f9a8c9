"""Makes the inputs of a plan's programs once, and checks that they are still the same.

Each recipe is made once, in a folder of the user's cache, with its SHA-256 beside it. Programs with
the same recipe share the file: their folders hold hard links. If a file was changed, it is made
again, and a message says so. A changed recipe makes another file.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from cairn import units
from cairn.allocators.discover import cache_folder
from cairn.errors import CairnError, UsageError, cannot
from cairn.matrix import places, recipes
from cairn.matrix.plan import PlannedProgram
from cairn.model import Settings

Tell = Callable[[str], None]
KEPT = "inputs.json"
"""The part of a run that has the checksums of its inputs, by path."""
_OF_A_RUN = "run-"
"""The beginning of the name of a folder that holds the working folders of one run."""
_UNUSED_S = 86_400.0
"""A run's folder is removed if it was not changed for this long. Each run of a program changes the
folder."""
_RUN_S = 600.0
"""The most seconds that the command of a recipe may take."""


def home() -> Path:
    """The folder of all inputs and of the programs' working folders."""
    return cache_folder().parent / "matrix"


def data_folder(program: PlannedProgram) -> Path:
    """The folder that {data} stands for. Its name changes with the recipes."""
    return home() / "data" / f"{program.table}-{_key(program)}"


def work_folder(program: PlannedProgram) -> Path:
    """The folder that {work} stands for. It is emptied before each run of the program.

    Each process of cairn has folders of its own, because two of them may measure at the same time.
    """
    return _work() / f"{_OF_A_RUN}{_token()}" / program.name.replace("/", "@")


def remove_work(settings: Settings) -> None:
    """Removes the working folders of a run, and those that a killed cairn left behind."""
    own = {_run_folder(workload.own.prepare or "") for workload in settings.workloads}
    with contextlib.suppress(OSError):
        for folder in _work().glob(f"{_OF_A_RUN}*"):
            unused_s = time.time() - folder.lstat().st_mtime
            if folder in own or unused_s > _UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)


def emptied(folder: Path) -> str:
    """The line of a shell that empties a working folder."""
    path = shlex.quote(str(folder))
    return f"rm -rf {path} && mkdir -p {path}"


def _run_folder(prepare: str) -> Path | None:
    """The folder of a run in which the working folder of this `prepare` lies."""
    found = re.match(r"rm -rf (.+?) && mkdir -p \1", prepare)
    try:
        words = shlex.split(found[1]) if found is not None else []
    except ValueError:  # the run was not made by cairn
        return None
    parents = Path(words[0]).parents if words else ()
    return next((of for of in parents if of.name.startswith(_OF_A_RUN)), None)


def _work() -> Path:
    return home() / "work"


@functools.cache
def _token() -> str:
    return secrets.token_hex(6)


def make_all(programs: Iterable[PlannedProgram], tell: Tell) -> dict[str, str]:
    """Makes the inputs of these programs as `make` does, and returns the SHA-256 by path.

    Waits while another process makes inputs in the same cache, which may be on another machine with
    the same home folder. Two processes never make the same file.
    """
    try:
        home().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot("write", home(), error) from error
    sums: dict[str, str] = {}
    with locked(home() / "inputs.lock"):
        for program in programs:
            folder = data_folder(program)
            sums.update({f"{folder}/{name}": one for name, one in make(program, tell).items()})
    return sums


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file, which is made if it is missing."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise cannot("write", path, error) from error
    try:
        # Some clusters have a file system without locks. Programs are measured there all the same.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
                draft = folder / f".new-{_token()}"
                os.link(made, draft)
                draft.replace(target)  # a program that starts now finds the old or the new file
            sums[name] = digest
    except OSError as error:
        raise cannot("write", Path(error.filename or folder), error) from error
    return sums


def as_kept(sums: Mapping[str, str]) -> bytes:
    """The checksums by path, as the part of a run that `refuse_changed` reads."""
    return json.dumps(dict(sorted(sums.items())), indent=1).encode() + b"\n"


def refuse_changed(kept: bytes | None) -> None:
    """Raises UsageError if an input is not as it was when the run began.

    kept: the part KEPT of the run; None for a run without inputs. Raises CairnError if it cannot be
    read.
    """
    path = changed(kept)
    if path is not None:
        raise UsageError(
            f"the input {path} is not as it was when this run began; begin a new run, which "
            "makes it again"
        )


def changed(kept: bytes | None) -> str | None:
    """The first input that is not as it was when the run began; None if no input has changed.

    Programs with the same recipe share its files. The files are read-only, but root may write into
    them. So a program that writes into {data} changes what the next programs and rounds read.
    """
    try:
        sums = msgspec.json.decode(kept or b"{}", type=dict[str, str])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise CairnError(f"{KEPT} of this run is damaged: {error}; begin a new run") from None
    for path, digest in sums.items():
        try:
            same = Path(path).is_file() and _sum(Path(path)) == digest
        except (OSError, ValueError):
            same = False
        if not same:
            return path
    return None


def _key(program: PlannedProgram) -> str:
    parts = [f"{recipes.GENERATION}"]
    parts += [f"{name}\0{text}" for name, text in sorted(program.inputs.items())]
    parts += [f"{name}\0{text}" for name, text in sorted(program.files.items())]
    return hashlib.sha256("\0\0".join(parts).encode()).hexdigest()[:12]


def _made(recipe: str, folder: Path, name: str, tell: Tell) -> tuple[Path, str]:
    """The file of this recipe and its SHA-256.

    A `run` recipe may read {data}, so its file serves only the program with this `folder`.
    """
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
    filled = places.in_line(line, {"out": str(draft), "data": str(folder)})
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
    """Writes the file in one step. A program that has the old file open can still read it."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".new-", delete=False) as file:
        draft = Path(file.name)
        try:
            file.write(content)
            file.flush()
            draft.chmod(0o644)  # a server may read it after it gave up the rights of this user
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
