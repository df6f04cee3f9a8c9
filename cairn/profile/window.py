"""A part of a program's life: what the probe's files say at its end, less what they said at its beginning.

Every number in a file only grows while its process runs, so nothing in the program is switched on or off. What is a
greatest, such as the longest operation, is known of a window only where it grew in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.errors import CairnError
from cairn.profile import reader
from cairn.profile.tally import Moment, Process, ProcessProfile, Profile, Tally, Window

_TRIES = 5
"""Of reading a file that grows: between two of its numbers the process may have lengthened it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the kernel says of a process, whatever its file says."""

    cpu_ns: int = 0
    minor_faults: int = 0
    major_faults: int = 0

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            max(0, self.cpu_ns - other.cpu_ns),
            max(0, self.minor_faults - other.minor_faults),
            max(0, self.major_faults - other.major_faults),
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How all processes stood at one time."""

    at_ns: int
    counted: Mapping[str, Tally]
    """By file, of those that ran on."""
    over: frozenset[str]
    """Files of those that had ended."""
    usage: Mapping[int, Usage]
    """By process, for one that becomes another program goes on with it."""


def look(folder: Path) -> Snapshot:
    """Reads everything that is in the folder now."""
    counted: dict[str, Tally] = {}
    over: set[str] = set()
    usage: dict[int, Usage] = {}
    at_ns = time.monotonic_ns()
    for name in reader.names(folder):
        found = _read(folder / name)
        if found is None:
            continue
        used = _usage(found.process)
        if used is None:
            over.add(name)
        else:
            counted[name], usage[found.process.pid] = found.tally, used
    return Snapshot(at_ns, counted, frozenset(over), usage)


def since(folder: Path, begin: Snapshot, started_ns: int) -> Profile:
    """What was counted from that look until now; `started_ns`: when the program began. Raises NoProfile for nothing."""
    end_ns = time.monotonic_ns()
    found = reader.added_up(_windowed(folder, begin, end_ns))
    if found is None:
        raise reader.NoProfile(
            "nothing was counted in that time: no process allocated that ran then"
        )
    return replace(found, window=Window(begin.at_ns, end_ns, max(0, begin.at_ns - started_ns)))


def _windowed(folder: Path, begin: Snapshot, end_ns: int) -> Iterator[ProcessProfile | None]:
    for name in reader.names(folder):
        found = _read(folder / name) if name not in begin.over else None
        if found is None:
            continue
        process, tally = found.process, found.tally
        now = _usage(process)
        used = (now or _told(process)) - begin.usage.get(process.pid, Usage())
        moments = tuple(_moments(found, begin.at_ns))
        begin_ns = max(process.begin_ns, begin.at_ns)
        process = replace(
            process,
            state="alive" if now is not None else process.state,
            begin_ns=begin_ns,
            end_ns=end_ns if now is not None else max(begin_ns, process.end_ns),
            cpu_ns=used.cpu_ns,
            minor_faults=used.minor_faults,
            major_faults=used.major_faults,
            peak_resident_bytes=max((moment.resident_bytes for moment in moments), default=0),
            peak_live_bytes=max((moment.live_bytes for moment in moments), default=0),
        )
        if name in begin.counted:
            tally = tally - begin.counted[name]
        lived_ns = process.end_ns - process.begin_ns
        # What the file says of them is as old as the last moment.
        threads_ticks = process.threads_most * lived_ns * tally.span_ticks // max(1, tally.span_ns)
        yield ProcessProfile(
            process, replace(tally, lived_ns=lived_ns, threads_ticks=threads_ticks), moments
        )


def _moments(of: ProcessProfile, from_ns: int) -> Iterator[Moment]:
    """Those from then on, told from then on."""
    for moment in of.moments:
        at_ns = of.process.begin_ns + moment.ns
        if at_ns >= from_ns:
            yield replace(moment, ns=at_ns - from_ns)


def _read(path: Path) -> ProcessProfile | None:
    for _ in range(_TRIES - 1):
        try:
            return reader.read_begun(path)
        except CairnError:
            time.sleep(0.001)
    return reader.read_begun(path)


def _told(process: Process) -> Usage:
    """What an ended process left in its file."""
    return Usage(process.cpu_ns, process.minor_faults, process.major_faults)


def _usage(process: Process) -> Usage | None:
    """None for a process that has ended, or became another program."""
    if process.state != "running":
        return None
    try:
        cpu_ns = time.clock_gettime_ns(
            ~process.pid << 3 | 2
        )  # its CPU clock: clock_getcpuclockid(3)
        fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        return Usage(cpu_ns, int(fields[7]), int(fields[9]))
    except (OSError, IndexError, ValueError):
        return None
