"""Where runs are kept: folders to which measuring appends, and from which reports are made. Nothing else holds state.

    ROOT/ID/run.json        what was asked; written once, before the first trial
    ROOT/ID/samples.jsonl   one line for each trial, in the order in which they ran
    ROOT/ID/stopped         why measuring ended; absent while it goes on or when it was cut short
    ROOT/ID/witness/…       the raw lines of the witness in each contender's first trial
    ROOT/ID/failed/…        what a failed trial wrote to stderr

An interrupted run goes on in its folder. A line that was cut off at the end of samples.jsonl is removed then.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from pathlib import Path

import msgspec

from cairn.errors import CairnError, UsageError
from cairn.model import INTERRUPTED, Run, Sample
from cairn.run.run_file import RunFile
from cairn.run.stored_run import LARGEST_FILE, RUN, SAMPLES, STOPPED, StoredRun, cannot

_NAME_LENGTH = 64


def root() -> Path:
    """Where runs are kept: $CAIRN_RESULTS, else the user's data folder."""
    given = os.environ.get("CAIRN_RESULTS")
    if given:
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME")
    if data and data.startswith("/"):
        return Path(data) / "cairn" / "results"
    try:
        return Path.home() / ".local" / "share" / "cairn" / "results"
    except RuntimeError:  # neither $HOME nor an entry for this user
        raise CairnError(
            "there is no home folder to keep runs in; name one with $CAIRN_RESULTS"
        ) from None


def new_id(now: float) -> str:
    """Sorts by time (UTC: no hour comes twice); two runs of the same second differ."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + "-" + secrets.token_hex(2)


class Folder(StoredRun):
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock: int | None = None

    def content(self, name: str) -> bytes | None:
        """As StoredRun says."""
        path = self.path / name
        try:
            if not path.exists():
                return None
            if not path.is_file():
                raise CairnError(f"{path} is not a regular file")
            if path.stat().st_size > LARGEST_FILE:
                raise CairnError(
                    f"{path} is larger than {LARGEST_FILE >> 20} MiB: not a run that cairn made"
                )
            return path.read_bytes()
        except OSError as error:
            raise cannot("read", path, error) from error

    def _hold(self) -> None:
        """Keeps every other cairn from measuring this run, until this process ends."""
        self._lock = os.open(self.path / RUN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CairnError(
                f"another cairn is measuring {self.path.name} just now; wait for its end"
            ) from None

    @classmethod
    def create(cls, results: Path, run: Run) -> Folder:
        """Makes ROOT/ID with its run.json; the directory is the user's alone."""
        path = results / run.id
        content = msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"
        try:
            results.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
            for name in ("witness", "failed"):
                (path / name).mkdir(mode=0o700)
            folder = cls(path)
            folder._write_new(RUN, content)
            folder._write_new(SAMPLES, b"")
            folder._hold()
        except OSError as error:
            raise cannot("write", path, error) from error
        return folder

    def _write_new(self, name: str, content: bytes) -> None:
        descriptor = os.open(
            self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)

    def append(self, sample: Sample) -> None:
        """Adds one trial. After an error the file still ends with a whole line, or with one that reading leaves out."""
        path = self.path / SAMPLES
        line = msgspec.json.encode(sample) + b"\n"
        try:
            (self.path / STOPPED).unlink(missing_ok=True)  # it goes on
            with path.open("ab") as file:
                if file.tell() + len(line) > LARGEST_FILE:
                    raise CairnError(
                        f"{path} is full: a run has {LARGEST_FILE >> 20} MiB at most; begin another"
                    )
                file.write(line)
        except OSError as error:
            raise cannot("write", path, error) from error

    def mark_stopped(self, because: str) -> None:
        """Says why measuring ended."""
        self.write(STOPPED, because.encode() + b"\n")

    def mark_resumed(self) -> None:
        """Measuring is to go on: a line that was cut off is gone.

        What says why it stopped goes with the next sample.
        """
        samples = self.path / SAMPLES
        try:
            self._hold()
            content = self.content(SAMPLES)
            if content and not content.endswith(b"\n"):
                os.truncate(samples, content.rfind(b"\n") + 1)
        except OSError as error:
            raise cannot("write", samples, error) from error

    def write(self, name: str, content: bytes) -> None:
        """Replaces a small file as a whole."""
        target = self.path / name
        draft = target.with_name(target.name + ".new")
        try:
            draft.unlink(missing_ok=True)
            self._write_new(str(draft.relative_to(self.path)), content)
            draft.replace(target)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise cannot("write", target, error) from error

    def keep(self, kind: str, name: str, content: bytes) -> None:
        """Keeps raw material, under a file name that holds no surprise."""
        plain = (
            "".join(c if c.isalnum() or c in "-_.+" else "_" for c in name)[:_NAME_LENGTH].lstrip(
                "."
            )
            or "_"
        )
        self.write(f"{kind}/{plain}", content)


def _is_run(path: Path) -> bool:
    """What profiles and other tools keep may have a run.json, too."""
    try:
        return all((path / name).is_file() for name in (RUN, SAMPLES))
    except OSError:  # a folder that another user closed, as sudo leaves it
        return False


def runs(results: Path) -> list[Path]:
    """Every run there is, oldest first."""
    try:
        return sorted(path for path in results.iterdir() if _is_run(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot("read", results, error) from error


def find(results: Path, name: str) -> StoredRun:
    """The run called `name`: "last", an id or the beginning of one, the path of a folder, or that of a run file.

    Raises UsageError if there is none, or if several ids begin so.
    """
    known = runs(results)
    if name == "last":
        if not known:
            raise UsageError(f"there is no run in {results} yet; 'cairn compare -- PROG' makes one")
        return Folder(known[-1])
    if "/" in name or name in (".", ".."):
        return _at(Path(name))
    exact = [path for path in known if path.name == name]
    matching = exact or [path for path in known if path.name.startswith(name) and name]
    match matching:
        case [path]:
            return Folder(path)
        case []:
            if name and Path(name).exists():
                return _at(Path(name))
            raise UsageError(f"no run called {name} in {results}; the last one is 'last'")
        case several:
            raise UsageError(
                f"{name} could be any of {', '.join(path.name for path in several[:5])}"
            )


def _at(path: Path) -> StoredRun:
    if path.is_file():
        return RunFile(path)
    if not _is_run(path):
        raise UsageError(
            f"{path} holds no run; a run is a folder with run.json in it, or a file that ends in .tar.xz"
        )
    return Folder(path)


def to_resume(results: Path, name: str) -> Folder:
    """The run called `name`, as `find` says, in which measuring can go on; a run file is refused."""
    found = find(results, name)
    if not isinstance(found, Folder):
        raise UsageError(f"{name} is a file, in which no run can go on; begin a new run")
    return found


def last_of(results: Path, experiment: str) -> Folder | None:
    """The newest run of a built-in experiment that came to its end, with every contender behind the probe, too."""
    wanted = f'"experiment": "{experiment}"'.encode()
    for path in reversed(runs(results)):
        folder = Folder(path)
        if (
            wanted not in (folder.content(RUN) or b"")
            or not folder.stopped()
            or INTERRUPTED in folder.stopped()
        ):
            continue
        if folder.run().settings.why:
            return folder
    return None


def is_measured(path: Path) -> bool:
    """Whether a cairn is at work on this run just now."""
    try:
        with (path / RUN).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def began(path: Path) -> float:
    """When a run was begun, in seconds since the epoch."""
    return (path / RUN).stat().st_mtime


def remove(path: Path) -> None:
    """Removes a run or a cache whole; links are removed, not followed."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise cannot("remove", path, error) from error
