"""The results directory: append-only, versioned, resumable. All that a report needs, and nothing else holds state.

    ROOT/ID/run.json        what was asked, written once before the first trial
    ROOT/ID/samples.jsonl   one line per trial, in the order they ran
    ROOT/ID/stopped         why measuring ended; absent while it goes on or when it was cut short
    ROOT/ID/witness/…       the witness's raw lines of each contender's first trial
    ROOT/ID/failed/…        what a failing trial wrote to stderr

A line that was cut off at the end of samples.jsonl (a killed run, a full disk) is left out when reading and cut away
when the run goes on; damage anywhere else is an error, never a smaller result.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from cairn.errors import CairnError, UsageError
from cairn.model import INTERRUPTED, LARGEST_NUMBER, SCHEMA, Run, Sample

_LARGEST_FILE = 256 << 20
_NAME_LENGTH = 64
_ROUNDS_MAX = 10_000
_REASONS_MAX = 10_000
_LATEST = 1e11
"""Seconds since the epoch; some three thousand years from now."""

T = TypeVar("T")


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


def cannot(what: str, path: Path, error: OSError) -> CairnError:
    """The sentence for a file that cannot be used."""
    return CairnError(f"cannot {what} {path}: {error.strerror or error}")


def new_id(now: float) -> str:
    """Sorts by time (UTC: no hour comes twice); two runs of the same second differ."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + "-" + secrets.token_hex(2)


class Folder:
    """One run's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def _hold(self) -> None:
        """Keeps every other cairn from measuring this run, until this process ends."""
        self._lock = os.open(self.path / "run.json", os.O_RDONLY | os.O_CLOEXEC)
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
            folder._write_new("run.json", content)
            folder._write_new("samples.jsonl", b"")
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
        path = self.path / "samples.jsonl"
        line = msgspec.json.encode(sample) + b"\n"
        try:
            (self.path / "stopped").unlink(missing_ok=True)  # it goes on
            with path.open("ab") as file:
                if file.tell() + len(line) > _LARGEST_FILE:
                    raise CairnError(
                        f"{path} is full: a run has {_LARGEST_FILE >> 20} MiB at most; begin another"
                    )
                file.write(line)
        except OSError as error:
            raise cannot("write", path, error) from error

    def mark_stopped(self, because: str) -> None:
        """Says why measuring ended."""
        self.write("stopped", because.encode() + b"\n")

    def mark_resumed(self) -> None:
        """Measuring is to go on: a line that was cut off is gone.

        What says why it stopped goes with the next sample.
        """
        samples = self.path / "samples.jsonl"
        try:
            self._hold()
            content = _content(samples)
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

    def run(self) -> Run:
        """What was asked."""
        path = self.path / "run.json"
        content = _content(path)
        schema = _decode(_Versioned, content, path).schema
        if schema not in _READABLE:
            raise CairnError(
                f"{path} has version {schema} of the format, and this cairn reads up to version {SCHEMA}"
            )
        run = _decode(Run, content, path)
        _check_run(run, path)
        return run

    def samples(self) -> tuple[Sample, ...]:
        """All trials so far, in the order they ran."""
        path = self.path / "samples.jsonl"
        content = _content(path)
        whole = content[: content.rfind(b"\n") + 1]
        samples = tuple(
            _decode(Sample, line, path, number)
            for number, line in enumerate(whole.splitlines(), start=1)
        )
        run = self.run()
        for number, sample in enumerate(samples, start=1):
            _check(sample, run, path, number)
        return samples

    def stopped(self) -> tuple[str, ...]:
        """Why measuring ended, a reason per workload or one for all; none if it was cut short."""
        path = self.path / "stopped"
        if not path.exists():
            return ()
        lines = _content(path).decode("utf-8", "replace").splitlines()
        return tuple(line.strip()[:200] for line in lines[:_REASONS_MAX] if line.strip())


class _Versioned(msgspec.Struct):
    schema: int


_READABLE = range(1, SCHEMA + 1)
"""Versions of run.json. An interrupted run of version 1 goes on in its folder, so that its samples may be of both."""

_RENAMED: dict[type, dict[tuple[str, ...], dict[str, str]]] = {
    Run: {("rule",): {"min_blocks": "min_rounds", "max_blocks": "max_rounds"}},
    Sample: {
        (): {"account": "probe", "whereabouts": "cpu_samples"},
        ("trial",): {"block": "round"},
    },
}
"""By path within a record: keys of version 1, and what they are called now."""


def _renewed(kind: type, record: object) -> object:
    """The record with the keys of the current version."""
    for path, names in _RENAMED.get(kind, {}).items():
        part = record
        for key in path:
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict):
            for old, new in names.items():
                if old in part:
                    part[new] = part.pop(old)
    return record


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise CairnError(
                f"{path} is larger than {_LARGEST_FILE >> 20} MiB: not a run that cairn made"
            )
        if not path.is_file():
            raise CairnError(f"{path} is not a regular file")
        return path.read_bytes()
    except OSError as error:
        raise cannot("read", path, error) from error


def _decode(kind: type[T], content: bytes, path: Path, line: int | None = None) -> T:
    try:
        return msgspec.convert(_renewed(kind, msgspec.json.decode(content)), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = f", line {line}" if line is not None else ""
        raise CairnError(f"{path}{place} is damaged: {error}") from error


def _check_run(run: Run, path: Path) -> None:
    """What no run of ours says: reports would stumble over it."""
    names = [contender.name for contender in run.contenders]
    rule = run.rule
    whole = (
        run.settings.workloads
        and all(workload.command for workload in run.settings.workloads)
        and all(name.strip() for name in names)
        and len(set(names)) == len(names)
        and run.baseline in names
        and 1 <= rule.min_rounds <= rule.max_rounds <= _ROUNDS_MAX
        and 0 < rule.margin < 1
        and (rule.precision is None or 0 < rule.precision < 1)
        and 0 <= run.created_at < _LATEST
    )
    if not whole:
        raise CairnError(f"{path} is damaged: what it says of the run does not fit together")


def _check(sample: Sample, run: Run, path: Path, line: int) -> None:
    """Numbers that no trial can have: a damaged file must not become a strange result."""
    limit = 1 << 62
    numbers: tuple[float, ...] = (
        sample.trial.round, sample.trial.position, sample.user_ns, sample.system_ns, sample.minor_faults,
        sample.major_faults, sample.voluntary_switches, sample.involuntary_switches, sample.wall_ns,
        sample.left_behind, sample.proof.loaded, sample.proof.processes, sample.largest_process_bytes or 0,
        sample.memory.peak_bytes or 0, sample.memory.peak_less_lazy_bytes or 0, sample.memory.lazy_peak_bytes or 0,
    )  # fmt: skip
    if sample.trial.workload not in range(len(run.settings.workloads)) or all(
        contender.name != sample.trial.contender for contender in run.contenders
    ):
        raise CairnError(
            f"{path}, line {line} is damaged: it belongs to no contender or no workload of this run"
        )
    told = sample.reported
    if told is not None:
        numbers += (
            told.operations, told.batches, told.busy_ns, told.idle_ns, told.minor_faults, told.live_peak_bytes,
            told.mean_ns, told.median_ns, told.p95_ns, told.p99_ns,
        )  # fmt: skip
    if sample.probe is not None:
        numbers += tuple(_leaves(msgspec.to_builtins(sample.probe)))
        if sample.probe.samples_inside + sample.probe.samples_probe > sample.probe.samples:
            raise CairnError(f"{path}, line {line} is damaged: parts are more than the whole")
    found = (
        *sample.metrics.values(),
        *(number for number in sample.counters.values() if number is not None),
        *(told.figures.values() if told is not None else ()),
    )
    if any(abs(number) >= LARGEST_NUMBER for number in found):
        raise CairnError(f"{path}, line {line} is damaged: a number is out of range")
    if any(not 0 <= number < limit for number in numbers) or (
        sample.failure is None and sample.wall_ns == 0
    ):
        raise CairnError(f"{path}, line {line} is damaged: a number is out of range")


def _leaves(value: object) -> Iterator[float]:
    """All numbers of a document, however deep."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)


def _is_run(path: Path) -> bool:
    """What profiles and other tools keep may have a run.json, too."""
    try:
        return all((path / name).is_file() for name in ("run.json", "samples.jsonl"))
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


def find(results: Path, name: str) -> Folder:
    """The run called `name`: "last", an id (or an unambiguous beginning of one), or a path."""
    known = runs(results)
    if name == "last":
        if not known:
            raise UsageError(f"there is no run in {results} yet; 'cairn compare -- PROG' makes one")
        return Folder(known[-1])
    if "/" in name or name in (".", ".."):
        if not _is_run(Path(name)):
            raise UsageError(f"{name} holds no run; a run is a folder with run.json in it")
        return Folder(Path(name))
    matching: Iterable[Path] = [path for path in known if path.name == name] or [
        path for path in known if path.name.startswith(name) and name
    ]
    match list(matching):
        case [path]:
            return Folder(path)
        case []:
            if _is_run(Path(name)):
                return Folder(Path(name))
            raise UsageError(f"no run called {name} in {results}; the last one is 'last'")
        case several:
            raise UsageError(
                f"{name} could be any of {', '.join(path.name for path in several[:5])}"
            )


def last_of(results: Path, experiment: str) -> Folder | None:
    """The newest run of a built-in experiment that came to its end, with every contender behind the probe, too."""
    wanted = f'"experiment": "{experiment}"'.encode()
    for path in reversed(runs(results)):
        folder = Folder(path)
        if (
            wanted not in _content(path / "run.json")
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
        with (path / "run.json").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def began(path: Path) -> float:
    """When a run was begun, in seconds since the epoch."""
    return (path / "run.json").stat().st_mtime


def remove(path: Path) -> None:
    """Removes a run or a cache whole; links are removed, not followed."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise cannot("remove", path, error) from error
