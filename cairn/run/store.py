"""Keeps runs as folders on the disk.

Measuring appends to them, and reports read them. No other state exists.

    ROOT/ID/run.json        the settings; complete before the first trial
    ROOT/ID/samples.jsonl   one line for each trial, in the order in which they ran
    ROOT/ID/left_out.json   the rounds of programs that could not be prepared, if there are any
    ROOT/ID/input           the copy of standard input, if the program has one
    ROOT/ID/stopped         why measuring ended; absent during a run, and if it was cut short
    ROOT/ID/refused.json    the error that ended measuring, if there was one
    ROOT/ID/instructions.json   the counts of 'cairn check' and of --instructions, if there are any
    ROOT/ID/simulation.json     the simulated misses of 'cairn explain --simulate', if there are any
    ROOT/ID/witness/…       the raw lines of the witness in each contender's first trial
    ROOT/ID/failed/…        the standard error of a failed trial

An interrupted run continues in its folder. Before it continues, an incomplete last line of
samples.jsonl is removed. While a process measures a run, it holds an exclusive flock(2) on
run.json.

The measured program may write anywhere, so it may change or delete the files of its own run, as
'make clean' does below the build folder. The process that measures keeps the settings and all
samples in memory, too, and restores the files before it writes to them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from cairn.errors import NO_LOCKS, CairnError, UsageError, cannot
from cairn.model import INTERRUPTED, Run, Sample
from cairn.run.run_archive import RunArchive
from cairn.run.stored_run import (
    LARGEST_FILE,
    LEFT_OUT,
    REFUSED,
    RUN,
    SAMPLES,
    STOPPED,
    RunRefusal,
    StoredRun,
    encoded,
)

_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
"""A name that new_id() gives."""
_NAMED = 5
"""The most runs that an error names."""
_SECOND = len("20260101-000000")
FLEET = "fleet.json"
"""The file of a run on several machines, in whose folder many runs lie: see `matrix.fleet`."""
INPUT = "input"
"""The copy of standard input. Every trial reads it from the beginning."""
_RAW = ("witness", "failed")
"""The folders of raw data within the folder of a run."""
_NAME_LENGTH = 64
"""The most characters of a file name in `witness` and `failed`."""


def root() -> Path:
    """Returns the folder of all runs: $CAIRN_RESULTS, else one in the user's data folder.

    Raises CairnError if the user has no home folder.
    """
    given = os.environ.get("CAIRN_RESULTS")
    if given:
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME")
    if data and data.startswith("/"):
        return Path(data) / "cairn" / "results"
    try:
        return Path.home() / ".local" / "share" / "cairn" / "results"
    except RuntimeError:  # $HOME is not set, and the user database has no entry for this user
        raise CairnError(
            "there is no home folder to keep runs in; name one with $CAIRN_RESULTS"
        ) from None


def make_root(results: Path) -> None:
    """Makes the folder of all runs, if it is not there.

    Raises UsageError if a file has this path or is above it, and CairnError if the disk refuses.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        path = results
        while not path.exists():
            path = path.parent
        raise UsageError(
            f"{path} is a file, and runs are kept in a folder; name another one with --results"
        ) from None
    except OSError as error:
        raise CairnError(
            f"cannot make the folder {results}: {error.strerror or error}; name another one with "
            "--results"
        ) from error


def new_id(now: float) -> str:
    """Returns a new name for a run. Names sort by time.

    The time is UTC, since an hour of local time can occur twice. The last four digits are the
    fraction of the second, in 1/4096, and a random one, for runs that begin at the same time.
    """
    fraction = int(now % 1 * 4096) * 16 + secrets.randbelow(16)
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{fraction:04x}"


_Signature = tuple[int, int, int]


def _signature(path: Path) -> _Signature | None:
    """Returns numbers that change when the file is changed or replaced.

    Returns None if it is not a regular file.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class Folder(StoredRun):
    """The folder of one run. Its methods raise CairnError if the disk refuses to read or write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock: int | None = None
        self._input: int | None = None
        self._kept: dict[str, bytearray] = {}
        """By file name: the content of run.json and samples.jsonl as this process wrote it.

        Empty unless this process measures the run.
        """
        self._seen: dict[str, _Signature | None] = {}
        """The signature of each file in `_kept` after the last change by this process."""
        self.restored = False
        """Whether another process changed a file in `_kept`, so that it was written again."""

    def content(self, name: str) -> bytes | None:
        """Returns one part of the run, as StoredRun.content does."""
        path = self.path / name
        try:
            if not path.exists():
                return None
            if not path.is_file():
                raise CairnError(
                    f"{path} is not a regular file, so it is not part of a run; name another run"
                )
            if path.stat().st_size > LARGEST_FILE:
                raise CairnError(
                    f"{path} is not a file of cairn: it is larger than {LARGEST_FILE >> 20} MiB, "
                    "the most that cairn writes; move it to another folder, or name another run"
                )
            return path.read_bytes()
        except OSError as error:
            raise cannot("read", path, error) from error

    def _remember(self, name: str, content: bytes) -> None:
        self._kept[name] = bytearray(content)
        self._seen[name] = _signature(self.path / name)

    def _restore(self) -> None:
        """Writes the settings and samples again if another process changed them."""
        changed = [name for name in self._kept if _signature(self.path / name) != self._seen[name]]
        if not changed:
            return
        self.restored = True
        for folder in (self.path, *(self.path / name for name in _RAW)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in changed:
            self._replace(name, bytes(self._kept[name]))
            self._seen[name] = _signature(self.path / name)
        if self._input is not None and not (self.path / INPUT).exists():
            shutil.copyfile(f"/proc/self/fd/{self._input}", self.path / INPUT)
        if RUN in changed:
            self._hold()

    @property
    def is_measured_elsewhere(self) -> bool:
        """Whether another process is measuring this run now."""
        return self._lock is None and is_measured(self.path)

    def _hold(self) -> None:
        """Locks the run until this process ends. Raises CairnError if another process locked it."""
        if self._lock is not None:
            os.close(self._lock)
        # On NFS, an exclusive lock needs a descriptor that may write.
        self._lock = os.open(self.path / RUN, os.O_RDWR | os.O_CLOEXEC)
        try:
            lock(self._lock)
        except BlockingIOError:
            raise CairnError(
                f"another cairn is measuring {self.path.name}; wait until it ends"
            ) from None

    @classmethod
    def create(cls, results: Path, run: Run, stdin: Path | None = None) -> Folder:
        """Makes ROOT/ID with run.json and locks it. Only the user can read the folder.

        stdin: the copy of standard input, which is moved into the folder; None without one.
        """
        path = results / run.id
        content = encoded(run, indent=2) + b"\n"
        make_root(results)
        try:
            path.mkdir(mode=0o700)
            for name in _RAW:
                (path / name).mkdir(mode=0o700)
            folder = cls(path)
            folder._write_new(RUN, content)
            folder._write_new(SAMPLES, b"")
            if stdin is not None:
                stdin.rename(path / INPUT)
            folder._hold()
            folder._remember(RUN, content)
            folder._remember(SAMPLES, b"")
        except OSError as error:
            raise cannot("write", path, error) from error
        except KeyboardInterrupt:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return folder

    def _write_new(self, name: str, content: bytes) -> None:
        descriptor = os.open(
            self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)

    def update(self, run: Run) -> None:
        """Replaces run.json, because more is known about the run."""
        content = encoded(run, indent=2) + b"\n"
        self.write(RUN, content)
        self._hold()
        self._remember(RUN, content)

    def stdin(self) -> str:
        """Returns the path of the run's copy of standard input.

        The path stays valid if the program deletes the folder. Raises UsageError if there is none.
        """
        path = self.path / INPUT
        try:
            if self._input is None:
                self._input = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise UsageError(
                f"{path} is gone, the copy of standard input for every run; begin a new run"
            ) from None
        except OSError as error:
            raise cannot("read", path, error) from error
        return f"/proc/{os.getpid()}/fd/{self._input}"

    def append(self, sample: Sample) -> None:
        """Appends one trial. Removes `stopped` and `refused.json`, because measuring continues.

        After an error, the last line of the file may be incomplete. Readers ignore such a line.
        """
        path = self.path / SAMPLES
        line = encoded(sample) + b"\n"
        try:
            self._restore()
            for name in (STOPPED, REFUSED):
                (self.path / name).unlink(missing_ok=True)
            with path.open("ab") as file:
                if file.tell() + len(line) > LARGEST_FILE:
                    raise CairnError(
                        f"{path} is full: a run has at most {LARGEST_FILE >> 20} MiB; begin another"
                    )
                file.write(line)
            if SAMPLES in self._kept:
                self._kept[SAMPLES] += line
                self._seen[SAMPLES] = _signature(path)
        except OSError as error:
            # The file now may end in an incomplete line, which readers ignore. The new signature
            # keeps _restore() from writing the file anew: a full disk would have no room for it.
            if SAMPLES in self._kept:
                self._seen[SAMPLES] = _signature(path)
            raise cannot("write", path, error) from error

    def mark_stopped(self, because: str) -> None:
        """Records why measuring ended."""
        self.write(STOPPED, because.encode() + b"\n")

    def mark_refused(self, because: RunRefusal) -> None:
        """Records the error that ended measuring."""
        self.write(REFUSED, encoded(because) + b"\n")

    def forget_refusal(self) -> None:
        """Removes the error that ended an earlier measurement, because this one succeeded."""
        try:
            (self.path / REFUSED).unlink(missing_ok=True)
        except OSError as error:
            raise cannot("write", self.path / REFUSED, error) from error

    def mark_left_out(self, rounds: Sequence[tuple[int, int]]) -> None:
        """Records rounds of programs that could not be prepared; see `StoredRun.left_out`."""
        self.write(LEFT_OUT, encoded(rounds) + b"\n")

    def mark_resumed(self) -> None:
        """Locks the run and removes an incomplete last line, so that measuring can continue.

        `stopped` is removed by the next append().
        """
        samples = self.path / SAMPLES
        try:
            self._hold()
            content = self.content(SAMPLES)
            if content and not content.endswith(b"\n"):
                content = content[: content.rfind(b"\n") + 1]
                os.truncate(samples, len(content))
            self._remember(SAMPLES, content or b"")
            self._remember(RUN, self._needed(RUN))
        except OSError as error:
            raise cannot("write", samples, error) from error

    def write(self, name: str, content: bytes) -> None:
        """Writes or replaces a small file atomically."""
        try:
            self._restore()
            (self.path / name).parent.mkdir(mode=0o700, exist_ok=True)
            self._replace(name, content)
        except OSError as error:
            raise cannot("write", self.path / name, error) from error

    def _replace(self, name: str, content: bytes) -> None:
        """Writes or replaces a file atomically. Raises OSError."""
        target = self.path / name
        draft = target.with_name(target.name + ".new")
        try:
            draft.unlink(missing_ok=True)
            self._write_new(str(draft.relative_to(self.path)), content)
            draft.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise

    def keep(self, kind: str, name: str, content: bytes) -> None:
        """Keeps raw data in the folder `kind`. Unusual characters of the file name become "_"."""
        plain = (
            "".join(c if c.isalnum() or c in "-_.+" else "_" for c in name)[:_NAME_LENGTH].lstrip(
                "."
            )
            or "_"
        )
        self.write(f"{kind}/{plain}", content)


def _is_run(path: Path) -> bool:
    """Returns whether a folder holds a run.

    A run.json alone is not enough, since folders of profiles and of other tools may have one.
    """
    try:
        return all((path / name).is_file() for name in (RUN, SAMPLES))
    except OSError:
        # The folder belongs to another user, for example after sudo.
        return False


def _age(path: Path) -> tuple[str, int, str]:
    """The sort key of a run: its second, and within the second the time of its run.json."""
    try:
        changed = (path / RUN).stat().st_mtime_ns
    except OSError:
        changed = 0
    return path.name[:_SECOND], changed, path.name


def runs(results: Path) -> list[Path]:
    """Returns the paths of all runs, oldest first."""
    try:
        return sorted((path for path in results.iterdir() if _is_run(path)), key=_age)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot("read", results, error) from error


def find(results: Path, name: str) -> StoredRun:
    """Returns the run called `name`: "last", an id or its beginning, or a path.

    A path names a folder or a run file.
    Raises UsageError if there is no such run, or if several ids begin with `name`.
    """
    known = runs(results)
    if name == "last":
        if not known:
            raise UsageError(f"there is no run in {results} yet; 'cairn compare -- PROG' makes one")
        # A program may have made folders here, too. They are the last run only if there is no
        # folder with a name of new_id().
        named = [path for path in known if _ID.fullmatch(path.name)]
        return Folder((named or known)[-1])
    if "/" in name or name in (".", ".."):
        return _at(Path(name))
    exact = [path for path in known if path.name == name]
    matching = exact or [path for path in known if path.name.startswith(name) and name]
    match matching:
        case [path]:
            return Folder(path)
        case []:
            if name and os.path.isfile(results / name / FLEET):
                return _at(results / name)
            if name and os.path.exists(name):
                return _at(Path(name))
            raise UsageError(f"there is no run {name} in {results}; 'last' names the newest one")
        case several:
            raise several_runs(name, several)


def several_runs(name: str, paths: Sequence[Path]) -> UsageError:
    """Returns the error for a name with which several ids begin. It names the newest ones.

    paths: the runs, oldest first.
    """
    newest = [path.name for path in reversed(paths)]
    more = ", ..." if len(newest) > _NAMED else ""
    return UsageError(
        f"several runs begin with {name}: {', '.join(newest[:_NAMED])}{more}; write more of the id"
    )


def _at(path: Path) -> StoredRun:
    if os.path.isfile(path):
        return RunArchive(path)
    if os.path.isfile(path / FLEET):
        raise UsageError(
            f"{path.name} is a run on several machines; 'cairn matrix report {path.name}' shows it"
        )
    if not _is_run(path):
        raise UsageError(
            f"{path} is not a run; a run is a folder that contains run.json, or a file that ends "
            "in .tar.xz"
        )
    return Folder(path)


def to_resume(results: Path, name: str) -> Folder:
    """Returns the folder of the run called `name`, in which measuring can continue.

    Raises UsageError if `find` does, or if the run is in a run file: measuring needs a folder.
    """
    found = find(results, name)
    if not isinstance(found, Folder):
        raise UsageError(f"{name} is a run file, and a run cannot continue in it; begin a new run")
    return found


def last_of(results: Path, experiment: str) -> Folder | None:
    """Returns the newest complete run of a built-in experiment that has trials with the probe.

    Returns None if there is none.
    """
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


INPUT_COPY = ".input-"
"""The beginning of the name of a copy of standard input, until it is moved into the run's folder.
The process that makes the copy holds an exclusive flock(2) on it."""


def lost_inputs(results: Path) -> list[Path]:
    """Returns the copies of standard input that a process left behind when it was killed."""
    try:
        return [one for one in results.glob(f"{INPUT_COPY}*") if not is_locked(one)]
    except OSError as error:
        raise cannot("read", results, error) from error


def is_measured(path: Path) -> bool:
    """Returns whether a process is measuring this run now.

    Returns False on a file system without locks, where nothing shows it.
    """
    return is_locked(path / RUN)


def may_be_measured(path: Path) -> bool:
    """Returns whether a process may be measuring this run now.

    Returns True for a run that has not ended on a file system without locks.
    """
    return is_locked(path / RUN, unknown=not os.path.lexists(path / STOPPED))


def lock(descriptor: int) -> None:
    """Locks a file until its descriptor is closed.

    Does nothing on a file system without locks, which some clusters have. Raises BlockingIOError if
    another process holds the lock.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def is_locked(path: Path, *, unknown: bool = False) -> bool:
    """Returns whether another process holds the lock of a file.

    unknown: the answer on a file system without locks.
    """
    try:
        # On NFS, an exclusive lock needs a file that is open for writing.
        with path.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        return unknown and error.errno in NO_LOCKS
    return False


def began(path: Path) -> float:
    """Returns when a run began, in seconds since the epoch.

    For a copy of standard input, it is the time of its last change.
    """
    return (path if path.name.startswith(INPUT_COPY) else path / RUN).stat().st_mtime


def remove(path: Path) -> None:
    """Removes a run, a cache or a copy of standard input. Links are removed, not followed."""
    try:
        if path.name.startswith(INPUT_COPY):
            path.unlink()
        else:
            shutil.rmtree(path)
    except OSError as error:
        raise cannot("remove", path, error) from error
