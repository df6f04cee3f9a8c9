"""The built-in workloads: reads and checks `workloads.toml` and the reports that workloads print.

Each workload is a small C program that uses plain malloc; docs/workloads.md describes them. Its
last line of output is its report. Only this module judges reports: if the line is missing or torn,
or says that blocks lost their contents, the run has failed and gives no number.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import math
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cairn import native, units
from cairn.errors import CairnError, UsageError
from cairn.model import Reported, Workload

LINE_SCHEMA = 1
"""The version of the report line; other versions are refused."""

LINE_MAX_BYTES = 64 * 1024
"""The number of bytes at the end of the output in which the report is searched for.

The longest report has a tenth of this length.
"""

_LARGEST_NUMBER = 1e15
"""The limit of all numbers in a report: eleven days in nanoseconds, or nearly a pebibyte.

`stored_run` applies the same limit to metrics and figures.
"""

GROUP_TITLES = {
    "founding": "the workloads of the experiments that started the project",
    "threads": "allocation by several threads",
    "shapes": "allocation patterns of real programs",
}
GROUPS = tuple(GROUP_TITLES)


class BuiltIn(Struct, frozen=True):
    """An entry of the catalog. The comment at the top of `workloads.toml` explains the fields."""

    name: str
    program: str
    group: str
    title: str
    stresses: str
    suite: str
    smallest: str
    larger: str
    seconds: float
    memory: int
    """In MiB."""
    quick: bool = False

    def workload(self, arguments: str, cpus: int, *, name: str = "", group: str = "") -> Workload:
        """A workload of a run: the program with these arguments.

        cpus: the number of processors of the machine.
        """
        command = (str(native.workload(self.program)), *words(arguments, cpus))
        return Workload(name=name or self.name, command=command, group=group or self.group)


def words(arguments: str, cpus: int) -> tuple[str, ...]:
    """The arguments as words; {threads} becomes the number of processors, but at least 2."""
    return tuple(word.replace("{threads}", str(max(2, cpus))) for word in shlex.split(arguments))


@functools.cache
def load() -> tuple[BuiltIn, ...]:
    """The catalog that cairn was installed with.

    Its entries have the order of the file, which is the order of all printed tables.
    """
    path = Path(__file__).with_name("workloads.toml")
    try:
        return read(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CairnError(
            f"the catalog of workloads cannot be read ({error}); install cairn again"
        ) from None


def read(text: str) -> tuple[BuiltIn, ...]:
    """Reads the text of a catalog and checks every field. Raises CairnError.

    An unknown field is an error, so that a misspelt name is noticed.
    """
    try:
        document = tomllib.loads(text)
        if set(document) != {"workload"}:
            raise ValueError("it must hold [[workload]] tables and nothing else")
        entries = tuple(_entry(table) for table in document["workload"])
        names = [entry.name for entry in entries]
        if len(set(names)) < len(names):
            raise ValueError("two workloads have the same name")
    except (tomllib.TOMLDecodeError, ValueError, TypeError, msgspec.ValidationError) as error:
        raise CairnError(f"workloads.toml: {error}; install cairn again") from None
    return entries


def _entry(table: Mapping[str, Any]) -> BuiltIn:
    entry = msgspec.convert(dict(table), BuiltIn)
    unknown = set(table) - set(BuiltIn.__struct_fields__)
    if unknown:
        raise ValueError(f"{entry.name} has a field {min(unknown)} that is unknown")
    if entry.group not in GROUPS:
        raise ValueError(f"{entry.name} belongs to no known group")
    if not (0 < entry.seconds < 600 and entry.memory > 0 and entry.title and entry.stresses):
        raise ValueError(f"{entry.name} lacks a duration, a size, a title or what it stresses")
    for arguments in (entry.suite, entry.smallest, entry.larger):
        words(arguments, 1)
    return entry


def named(name: str) -> BuiltIn | None:
    """The workload with this name; None if there is none."""
    return next((entry for entry in load() if entry.name == name), None)


def unknown(name: str, others: tuple[str, ...]) -> UsageError:
    """The error for a name that is neither a workload nor one of `others`; it suggests a name."""
    names = (*others, *(entry.name for entry in load()))
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    return UsageError(
        f"no experiment or workload is called '{name}'{hint} 'cairn bench list' shows what there is"
    )


class _PerOperation(msgspec.Struct):
    mean: float
    median: float
    p95: float
    p99: float


class _ReportLine(msgspec.Struct):
    schema: int
    workload: str
    operations: int
    batches: int
    ns_per_operation: _PerOperation
    busy_ns: int
    idle_ns: int
    minor_faults: int
    checksum: str | None
    damaged: int
    live_peak_bytes: int
    parameters: dict[str, int | float | str]
    figures: dict[str, float]


class NotReported(ValueError):
    """The output of a workload has no valid report.

    The text is the rest of a sentence that begins with the contender.
    """


def reported(output: bytes) -> Reported:
    """The report in the last line of a workload's output. Raises NotReported."""
    lines = output.rstrip().splitlines()
    if not lines:
        raise NotReported("printed nothing, although its last line should be its report")
    try:
        line = msgspec.json.decode(lines[-1], type=_ReportLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotReported(f"printed a last line that is not a report: {error}") from None
    if line.schema != LINE_SCHEMA:
        raise NotReported(
            f"printed a report of version {line.schema}, and this cairn reads version {LINE_SCHEMA}"
        )
    if line.damaged:
        raise NotReported(
            f"found {units.counted(line.damaged, 'damaged block')}, but ended with exit code 0"
        )
    each = line.ns_per_operation
    numbers = (
        line.batches, each.mean, each.median, each.p95, each.p99, line.busy_ns, line.idle_ns,
        line.minor_faults,
        line.live_peak_bytes,
    )  # fmt: skip
    every = (line.operations, *numbers, *line.figures.values())
    if (
        line.operations < 1
        or min(numbers) < 0
        or not all(math.isfinite(n) and abs(n) < _LARGEST_NUMBER for n in every)
    ):
        raise NotReported("printed a report with a number that is out of range")
    return Reported(
        operations=line.operations,
        batches=line.batches,
        mean_ns=each.mean,
        median_ns=each.median,
        p95_ns=each.p95,
        p99_ns=each.p99,
        busy_ns=line.busy_ns,
        idle_ns=line.idle_ns,
        minor_faults=line.minor_faults,
        checksum=line.checksum,
        live_peak_bytes=line.live_peak_bytes,
        parameters=line.parameters,
        figures=line.figures,
    )


def digest(report: Reported) -> str | None:
    """A digest of the results that must be the same under every allocator.

    None if the workload ran for a given time, since its work then differs from run to run.
    """
    if report.checksum is None:
        return None
    same = [
        report.checksum,
        report.operations,
        sorted((name, str(value)) for name, value in report.parameters.items()),
    ]
    return hashlib.sha256(msgspec.json.encode(same)).hexdigest()
