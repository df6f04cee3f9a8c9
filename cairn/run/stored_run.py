"""Reads a stored run: its settings, all samples, and why measuring ended.

The last line of the samples may be incomplete, because the run was killed or the disk was full.
Such a line is ignored. Any other damage raises an error, so no result lacks samples without notice.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from cairn.errors import CairnError, ContenderFailed, ProgramFailed, UsageError
from cairn.gate import InstructionCount
from cairn.model import LARGEST_NUMBER, SCHEMA, Run, Sample
from cairn.simulated_misses import CacheLevel, Simulation

LARGEST_FILE = 256 << 20
"""The most bytes of one part of a run."""
RUN, SAMPLES, STOPPED = "run.json", "samples.jsonl", "stopped"
INSTRUCTIONS, SIMULATION = "instructions.json", "simulation.json"
"""The names of the parts that a report needs. The last two are there if instructions were counted,
and if misses were simulated.
"""
REFUSED = "refused.json"
"""The name of the part with the error that ended measuring, if there was one."""
LEFT_OUT = "left_out.json"
"""The name of the part with the rounds of programs that could not be prepared, if there are any."""

_ROUNDS_MAX = 10_000
_REASONS_MAX = 10_000
_LATEST = 1e11
"""The limit for the start of a run, in seconds since the epoch: about 3,000 years from now."""

_LARGEST_COUNT = 1 << 62
"""The limit for times in nanoseconds, sizes in bytes, and counts of the kernel, such as CPU cycles.
They may be larger than LARGEST_NUMBER in a long run on many CPUs."""

T = TypeVar("T")


class DamagedFile(CairnError):
    """A file holds something that no cairn wrote there."""

    def __init__(self, place: str, why: object, instead: str = "name another run") -> None:
        """`place` names the file, and the line if there is one; `instead` is the next step."""
        super().__init__(f"{place} is damaged: {why}; {instead}")
        self.place = place
        self.why = why


def other_version(path: Path, version: object, readable: object) -> CairnError:
    """Returns the error for a file of another version of its format."""
    return CairnError(
        f"{path} has format version {version}, and this cairn reads {readable}; use the cairn that "
        "wrote it, or measure again"
    )


def encoded(record: object, *, indent: int = 0) -> bytes:
    """Returns the record as JSON: on one line, or with this indent.

    Python gives a byte that is not UTF-8, such as 0xff in an argument, as half of a surrogate pair.
    JSON can hold it as an escape, such as "\\udcff". msgspec refuses it, so json writes it.
    """
    try:
        content = msgspec.json.encode(record)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(record), indent=indent or None).encode("ascii")
    return msgspec.json.format(content, indent=indent) if indent else content


def decoded(content: bytes) -> object:
    """Returns the document that `encoded` wrote. Raises ValueError or DecodeError."""
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        if b"\\ud" not in content:
            raise
        return json.loads(content, parse_constant=_no_number)


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is not a number of JSON")


class RunRefusal(Struct, frozen=True):
    """The error that ended measuring, because of the program, a contender or the options."""

    exit_code: int
    """The exit code of the command that measured."""
    says: str
    """The sentence that this command printed."""
    counting: bool = False
    """Whether all rounds were complete, so that only the counts of instructions are missing."""

    @staticmethod
    def of(error: CairnError, *, counting: bool = False) -> RunRefusal | None:
        """Returns the refusal to keep; None if another measurement may succeed as it is."""
        if isinstance(error, UsageError | ProgramFailed | ContenderFailed):
            return RunRefusal(error.exit_code, str(error), counting)
        return None

    @property
    def error(self) -> CairnError:
        """The error again, with its exit code."""
        kinds = ProgramFailed, ContenderFailed
        return next((one for one in kinds if one.exit_code == self.exit_code), UsageError)(
            self.says
        )


class StoredRun(ABC):
    """A run on the disk. `path` is its folder or its file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def content(self, name: str) -> bytes | None:
        """Returns one part of the run; None if it is absent.

        Raises CairnError if the part cannot be read or is larger than LARGEST_FILE.
        """

    def _needed(self, name: str) -> bytes:
        content = self.content(name)
        if content is None:
            raise CairnError(
                f"{self.path} has no {name}, so it is not a run of cairn; name another run"
            )
        return content

    def run(self) -> Run:
        """Returns the settings of the run.

        Raises CairnError if the settings are damaged or have an unknown version.
        """
        path, content = self.path / RUN, self._needed(RUN)
        schema = _decode(_Versioned, content, path).schema
        if schema not in _READABLE:
            raise other_version(path, schema, f"versions up to {SCHEMA}")
        run = _decode(Run, content, path)
        _check_run(run, path)
        return run

    def samples(self) -> tuple[Sample, ...]:
        """Returns all trials so far, in the order in which they ran.

        Raises CairnError if a sample is damaged.
        """
        path, content = self.path / SAMPLES, self._needed(SAMPLES)
        whole = content[: content.rfind(b"\n") + 1]
        samples = tuple(
            _decode(Sample, line, path, number)
            for number, line in enumerate(whole.splitlines(), start=1)
        )
        run = self.run()
        for number, sample in enumerate(samples, start=1):
            _check(sample, run, path, number)
        return samples

    def instructions(self) -> tuple[InstructionCount, ...]:
        """Returns the counts of instructions; () if none were counted.

        Raises CairnError if they are damaged.
        """
        content = self.content(INSTRUCTIONS)
        if content is None:
            return ()
        path = self.path / INSTRUCTIONS
        counts = _decode(tuple[InstructionCount, ...], content, path)
        _check_counts(counts, path)
        return counts

    def simulation(self) -> Simulation | None:
        """Returns the simulated misses; None if there are none.

        Raises CairnError if they are damaged.
        """
        content = self.content(SIMULATION)
        if content is None:
            return None
        path = self.path / SIMULATION
        try:
            found = _decode(Simulation, content, path)
            _check_simulation(found, path)
        except DamagedFile as damaged:
            instead = "remove it, or repeat 'cairn explain --simulate'"
            raise DamagedFile(damaged.place, damaged.why, instead) from None
        return found

    def refusal(self) -> RunRefusal | None:
        """Returns the error that ended measuring; None if there was none.

        Raises CairnError if it is damaged.
        """
        content = self.content(REFUSED)
        return None if content is None else _decode(RunRefusal, content, self.path / REFUSED)

    def left_out(self) -> tuple[tuple[int, int], ...]:
        """Returns the rounds that are left out, or of which a part is left out.

        Each is a pair of a workload's index and the number of the round. Round 0 is the warm-up.
        Raises CairnError if they are damaged.
        """
        content = self.content(LEFT_OUT)
        if content is None:
            return ()
        return _decode(tuple[tuple[int, int], ...], content, self.path / LEFT_OUT)

    def stopped(self) -> tuple[str, ...]:
        """Returns why measuring ended: one reason for each workload, or one for all.

        Returns () while the run is being measured, and if the run was cut short.
        """
        content = self.content(STOPPED)
        if content is None:
            return ()
        lines = content.decode("utf-8", "replace").splitlines()
        return tuple(line.strip()[:200] for line in lines[:_REASONS_MAX] if line.strip())


class _Versioned(msgspec.Struct):
    schema: int


_READABLE = range(1, SCHEMA + 1)
"""Readable versions of run.json. An interrupted run of version 1 continues in its folder with
samples of the current version, so one file may hold samples of both versions."""

_RENAMED: dict[type, dict[tuple[str, ...], dict[str, str]]] = {
    Run: {("rule",): {"min_blocks": "min_rounds", "max_blocks": "max_rounds"}},
    Sample: {
        (): {"account": "probe", "whereabouts": "cpu_samples"},
        ("trial",): {"block": "round"},
    },
}
"""The keys of version 1 that were renamed, with their current names.

The outer key is the type of a stored record. The inner key is the path of keys to the part of the
record that holds the renamed keys; () is the record itself.
"""


def _renewed(kind: type, record: object) -> object:
    """Returns the record with the keys of the current version."""
    for path, names in _RENAMED.get(kind, {}).items():
        part = record
        for key in path:
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict):
            for old, new in names.items():
                if old in part:
                    part[new] = part.pop(old)
    return record


def _decode(kind: type[T], content: bytes, path: Path, line: int | None = None) -> T:
    try:
        return msgspec.convert(_renewed(kind, decoded(content)), type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        place = f", line {line}" if line is not None else ""
        raise DamagedFile(f"{path}{place}", error) from error


def checked(
    run: Run, samples: Iterable[Sample], counts: Iterable[InstructionCount], path: Path
) -> None:
    """Raises DamagedFile if a file holds settings or numbers that no run of cairn has."""
    _check_run(run, path)
    for number, sample in enumerate(samples, start=1):
        _check(sample, run, path, number)
    _check_counts(counts, path)


def _check_counts(counts: Iterable[InstructionCount], path: Path) -> None:
    if any(not 0 < number < _LARGEST_COUNT for one in counts for number in one.counts):
        raise DamagedFile(str(path), "a number is out of range")


def _numbers(level: CacheLevel) -> tuple[float, ...]:
    times = level.waiting_ns, level.overlapping_ns, level.most_ns
    return level.bytes, level.ways, level.whole_bytes, *times


def _check_simulation(found: Simulation, path: Path) -> None:
    numbers = [
        *(number for one in found.found for number in (*one.reads, *one.writes)),
        *(number for one in found.levels for number in _numbers(one)),
    ]
    wanted = len(found.levels)
    for one in found.found:
        length = wanted if one.problem is None else 0
        if (len(one.reads), len(one.writes)) != (length, length):
            raise DamagedFile(str(path), "it has not one number for each cache")
    if not all(0 <= number < LARGEST_NUMBER for number in numbers) or not all(
        one.line_bytes > 0 for one in found.levels
    ):
        raise DamagedFile(str(path), "a number is out of range")


def _check_run(run: Run, path: Path) -> None:
    """Raises CairnError for settings that no run of cairn has. Reports rely on this check."""
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
        and all(0 <= bound.most < 10 for bound in (run.gate.bounds if run.gate else ()))
    )
    if not whole:
        raise DamagedFile(str(path), "its settings contradict each other")


def _check(sample: Sample, run: Run, path: Path, line: int) -> None:
    """Raises CairnError for numbers that no trial can have.

    Without this check, a damaged file could lead to a strange result.
    """
    numbers: tuple[float, ...] = (
        sample.trial.round, sample.trial.position, sample.user_ns, sample.system_ns,
        sample.minor_faults, sample.major_faults, sample.voluntary_switches,
        sample.involuntary_switches, sample.wall_ns, sample.left_behind, sample.proof.loaded,
        sample.proof.processes, sample.largest_process_bytes or 0, sample.memory.peak_bytes or 0,
        sample.memory.peak_less_lazy_bytes or 0, sample.memory.lazy_peak_bytes or 0,
        sample.memory.mean_bytes or 0, sample.memory.idle_bytes or 0,
    )  # fmt: skip
    if sample.trial.workload not in range(len(run.settings.workloads)) or all(
        contender.name != sample.trial.contender for contender in run.contenders
    ):
        raise DamagedFile(f"{path}, line {line}", "this run has no such contender or workload")
    told = sample.reported
    if told is not None:
        numbers += (
            told.operations, told.batches, told.busy_ns, told.idle_ns, told.minor_faults,
            told.live_peak_bytes, told.mean_ns, told.median_ns, told.p95_ns, told.p99_ns,
        )  # fmt: skip
    series = sample.memory.series
    if series is not None:
        lengths = {len(one) for one in (series.live, series.held, series.resident)}
        numbers += (*series.at_ms, *series.live, *series.held, *series.resident)
        numbers += (series.processes, series.live_peak)
        if series.trim is not None:
            numbers += (series.trim.live_bytes, series.trim.held_bytes, series.trim.after_bytes)
        if lengths != {len(series.at_ms)} or list(series.at_ms) != sorted(series.at_ms):
            raise DamagedFile(f"{path}, line {line}", "memory over time has gaps")
        if not series.at_ms:
            raise DamagedFile(f"{path}, line {line}", "memory over time has no moment")
    for counts in (sample.endings or {}).values():
        numbers += tuple(counts.values())
    if sample.probe is not None:
        numbers += tuple(_leaves(msgspec.to_builtins(sample.probe)))
        if sample.probe.samples_inside + sample.probe.samples_probe > sample.probe.samples:
            raise DamagedFile(
                f"{path}, line {line}", "parts of the CPU timer samples exceed their total"
            )
    ticked = sample.cpu_samples
    if ticked is not None:
        numbers += tuple(_leaves(msgspec.to_builtins(ticked)))
        if not all(one.atomic + one.pauses for one in ticked.atomics):
            raise DamagedFile(f"{path}, line {line}", "a function has no clock sample")
    found = (
        *sample.metrics.values(),
        *sample.load.values(),
        *(told.figures.values() if told is not None else ()),
    )
    if any(abs(number) >= LARGEST_NUMBER for number in found):
        raise DamagedFile(f"{path}, line {line}", "a number is out of range")
    numbers += tuple(number for number in sample.counters.values() if number is not None)
    if any(not 0 <= number < _LARGEST_COUNT for number in numbers) or (
        sample.failure is None and sample.wall_ns == 0
    ):
        raise DamagedFile(f"{path}, line {line}", "a number is out of range")


def _leaves(value: object) -> Iterator[float]:
    """Yields all numbers of a document, at any depth."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
