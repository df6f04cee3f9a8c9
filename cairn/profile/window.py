"""Profiles a window of a program's life.

Every number in the probe's file only grows while the process runs. So the counts of a window are
the numbers at its end minus the numbers at its beginning, and nothing in the program needs to be
switched on or off. A maximum, such as the longest operation, is only known if it grew in the
window.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cairn.errors import CairnError
from cairn.model import Unreached
from cairn.profile import held_memory, reader
from cairn.profile.missing import missing_processes
from cairn.profile.spare import Spare
from cairn.profile.tally import (
    ABOUT_MEMORY,
    CALLS,
    Missing,
    Moment,
    MomentCalls,
    Peak,
    Process,
    ProcessProfile,
    Profile,
    Tally,
    Window,
)

_TRIES = 5
"""The most attempts to read a file. A file looks damaged if its process extends it during the
read."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(Struct, frozen=True):
    """The kernel's counts of a process, which are newer than those in the process's file."""

    cpu_ns: int = 0
    minor_faults: int = 0
    major_faults: int = 0
    resident_bytes: int = 0
    """The resident set, with pages of files and those of the probe; 0 if the process has ended."""

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            max(0, self.cpu_ns - other.cpu_ns),
            max(0, self.minor_faults - other.minor_faults),
            max(0, self.major_faults - other.major_faults),
            max(0, self.resident_bytes - other.resident_bytes),
        )


class Snapshot(Struct, frozen=True):
    """The counts of all processes at one time."""

    at_ns: int
    counted: Mapping[str, Tally]
    """By name of the file or record: the counts of each process that was running."""
    over: frozenset[str]
    """The names of the files and records of the processes that had ended."""
    usage: Mapping[int, Usage]
    """The kernel's counts of the running processes. They are stored by process id and not by file,
    because they continue after an exec."""
    peaks: Mapping[str, Peak]
    """By name of the file or record: the peak of usable live bytes so far, if they are counted."""
    held: Mapping[str, int] = {}
    """By name of the file or record: the most bytes that the allocator held so far, if they are
    counted."""
    ended: tuple[Process, ...] = ()
    """The recorded processes that had ended."""
    gone: frozenset[Missing] = frozenset()
    """The processes that have no record and had ended."""


def look(
    folder: Path,
    spare: Spare | None = None,
    unreached: Sequence[tuple[int, Unreached]] = (),
) -> Snapshot:
    """Reads all files that are in the folder now, and all records in the spare memory.

    unreached: (process id, program) for each program that the probe could not reach until now.
    """
    counted: dict[str, Tally] = {}
    over: set[str] = set()
    usage: dict[int, Usage] = {}
    peaks: dict[str, Peak] = {}
    held: dict[str, int] = {}
    processes: list[Process] = []
    ended: list[Process] = []
    at_ns = time.monotonic_ns()
    for name in _names(folder, spare):
        found = _read(folder, spare, name)
        if found is None:
            continue
        processes.append(found.process)
        used = _usage(found.process)
        if used is None:
            over.add(name)
            ended.append(found.process)
        else:
            counted[name], usage[found.process.pid] = found.tally, used
            if found.process.peak_usable is not None:
                peaks[name] = found.process.peak_usable
            if found.process.held_counted:
                held[name] = found.process.held_bytes
    gone = frozenset(
        one for one in _missing(spare, unreached, processes) if one.pid and not _runs(one.pid)
    )
    return Snapshot(at_ns, counted, frozenset(over), usage, peaks, held, tuple(ended), gone)


def since(
    folder: Path,
    begin: Snapshot,
    started_ns: int,
    spare: Spare | None = None,
    unreached: Sequence[tuple[int, Unreached]] = (),
    processors: float | None = None,
) -> Profile:
    """The profile of the window from `begin` until now, for a program that started at `started_ns`.

    unreached: (process id, program) for each program that the probe could not reach until now.
    processors: the number of processors that the program may use; None if it is not known.

    Raises NoProfile if nothing was counted in the window.
    """
    end_ns = time.monotonic_ns()
    found = reader.added_up(_windowed(folder, spare, begin, end_ns))
    if found is None:
        raise reader.NoProfile("nothing was counted in that time: no running process allocated")
    missing = _missing(spare, unreached, (*begin.ended, *found.processes))
    within = tuple(one for one in missing if one not in begin.gone)
    after_ns = max(0, begin.at_ns - started_ns)
    return replace(found, window=Window(begin.at_ns, end_ns, after_ns, within, processors))


def _missing(
    spare: Spare | None,
    unreached: Sequence[tuple[int, Unreached]],
    processes: Iterable[Process],
) -> tuple[Missing, ...]:
    """The processes that have no record so far. `processes` are the recorded ones."""
    noted = (spare.missing(), spare.executed()) if spare is not None else ((), ())
    return missing_processes(*noted, unreached, tuple(processes))


def _runs(pid: int) -> bool:
    """Whether a process has not ended yet."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return after_name[:1] not in ([b"Z"], [b"X"])


def _windowed(
    folder: Path, spare: Spare | None, begin: Snapshot, end_ns: int
) -> Iterator[ProcessProfile | None]:
    names = [name for name in _names(folder, spare) if name not in begin.over]
    files = {name: found for name in names if (found := _read(folder, spare, name)) is not None}
    begun = sorted((one.process.pid, one.process.begin_ns) for one in files.values())
    # An image that executed another program lived until that one began.
    replaced = {one: later[1] for one, later in pairwise(begun) if one[0] == later[0]}
    for name, found in files.items():
        process, tally = found.process, found.tally
        now = _usage(process)
        used = (now or _usage_at_end(process)) - begin.usage.get(process.pid, Usage())
        moments = tuple(_moments(found, begin.at_ns, _calls_of(begin.counted.get(name))))
        last = moments or found.moments[-1:]
        begin_ns = max(process.begin_ns, begin.at_ns)
        if name in begin.counted:
            tally = tally - begin.counted[name]
            process = _peak_within(found, moments, begin.peaks.get(name))
        # If the maximum did not grow in the window, it was reached before the window began.
        is_held_known = process.held_counted and process.held_bytes > begin.held.get(name, 0)
        process = replace(
            process,
            held_bytes=(
                process.held_bytes if is_held_known else held_memory.most_bytes(tally, last)
            ),
            held_counted=is_held_known,
            held_is_least=not is_held_known and len(last) > 0,
            shrunk_bytes=held_memory.shrunk_bytes(tally, moments),
            state="alive" if now is not None else process.state,
            begin_ns=begin_ns,
            # A process that did not end normally lived at most until the end of the window.
            end_ns=(
                max(begin_ns, replaced.get((process.pid, process.begin_ns), end_ns))
                if process.state == "running"
                else max(begin_ns, process.end_ns)
            ),
            cpu_ns=used.cpu_ns,
            minor_faults=used.minor_faults,
            major_faults=used.major_faults,
            peak_resident_bytes=_resident(moments),
            grown_bytes=_grown_bytes(found, moments, now, begin),
        )
        lived_ns = process.end_ns - process.begin_ns
        # The file has the life times of threads only up to its last moment, which is before the end
        # of the window. So their life times in the window are estimated here.
        threads_ticks = process.threads_most * lived_ns * tally.span_ticks // max(1, tally.span_ns)
        yield ProcessProfile(
            process, replace(tally, lived_ns=lived_ns, threads_ticks=threads_ticks), moments
        )


def _resident(moments: Sequence[Moment]) -> int | None:
    """The largest resident set at these moments; None if it is not known."""
    return max(filter(None, (moment.resident_bytes for moment in moments)), default=None)


def _grown_bytes(
    found: ProcessProfile, moments: Sequence[Moment], now: Usage | None, begin: Snapshot
) -> int:
    """The growth of the resident set of a process in the window, or more.

    Pages that were resident before the window cause no page fault in it. Both the kernel and the
    moments of the file show the growth, and the larger number counts: the moments may be rare, and
    the kernel was asked only at both ends of the window. If neither is known, it is the largest
    resident set in the life of the process.

    moments: those in the window. now: the kernel's counts; None if the process has ended.
    """
    process = found.process
    most = _resident(moments)
    if most is None and now is None:
        return process.peak_resident_bytes or 0
    earlier = [one for one in found.moments if process.begin_ns + one.ns < begin.at_ns]
    before = (earlier[-1].resident_bytes or 0) if earlier else 0
    # An image that began in the window had no memory before. The kernel counts its predecessor.
    is_new = process.begin_ns >= begin.at_ns
    at_begin = Usage() if is_new else begin.usage.get(process.pid, Usage())
    by_kernel = (now - at_begin).resident_bytes if now is not None else 0
    return max(by_kernel, (most or 0) - before)


def _peak_within(found: ProcessProfile, moments: Sequence[Moment], before: Peak | None) -> Process:
    """The process with the peaks of live bytes in the window. The process is older than the window.

    If the peak of the process's whole life has grown in the window, this peak lies in the window.
    Otherwise only the live bytes at the moments of the window are known. Between two moments, they
    may have been as high as the peak before the window.
    """
    process = found.process
    usable = process.peak_usable
    if usable is None:
        estimated = reader.estimated_peak(found.tally, moments, process.gap)
        return replace(process, peak_requested=estimated)
    if before is None or usable.bytes > before.bytes:
        return process
    off, whole = usable.bytes - usable.low, process.peak_requested or usable
    at_usable = max((one.live_usable_bytes or 0 for one in moments), default=0)
    at_requested = max((one.live_bytes for one in moments), default=0)
    return replace(
        process,
        peak_usable=Peak(at_usable, max(0, at_usable - off), usable.high),
        peak_requested=Peak(at_requested, max(0, at_requested - off), whole.high),
    )


def _moments(of: ProcessProfile, from_ns: int, before: MomentCalls) -> Iterator[Moment]:
    """The moments from `from_ns` on, with times and system calls counted from `from_ns`.

    before: the system calls that the process made until then.
    """
    for moment in of.moments:
        at_ns = of.process.begin_ns + moment.ns
        if at_ns >= from_ns:
            calls = moment.calls - before if moment.calls is not None else None
            yield replace(moment, ns=at_ns - from_ns, calls=calls)


def _calls_of(tally: Tally | None) -> MomentCalls:
    """The system calls of a process, by what they are for. There are none without a tally."""
    if tally is None:
        return MomentCalls(0, 0, 0)
    made = dict(zip(CALLS, map(int, tally.kernel.count), strict=True))
    memory = sum(made[name] for name in ABOUT_MEMORY)
    return MomentCalls(memory, sum(made.values()) - memory - made["other"], made["other"])


def _names(folder: Path, spare: Spare | None) -> list[str]:
    return reader.names(folder) + (spare.names() if spare is not None else [])


def _read(folder: Path, spare: Spare | None, name: str) -> ProcessProfile | None:
    for _ in range(_TRIES - 1):
        try:
            return _read_once(folder, spare, name)
        except CairnError:
            time.sleep(0.001)
    return _read_once(folder, spare, name)


def _read_once(folder: Path, spare: Spare | None, name: str) -> ProcessProfile | None:
    if spare is not None and not name.endswith(reader.SUFFIX):
        return spare.read_begun(name)
    return reader.read_begun(folder / name)


def _usage_at_end(process: Process) -> Usage:
    """The kernel's counts of an ended process, as its file has them."""
    return Usage(process.cpu_ns, process.minor_faults, process.major_faults)


def _usage(process: Process) -> Usage | None:
    """The kernel's counts of a process, which are those of all its images; None if it has ended."""
    if process.state != "running":
        return None
    try:
        # ~pid << 3 | 2 is the id of the process's CPU clock, as clock_getcpuclockid(3) computes it.
        cpu_ns = time.clock_gettime_ns(~process.pid << 3 | 2)
        fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        return Usage(cpu_ns, int(fields[7]), int(fields[9]), int(fields[21]) * _PAGE_BYTES)
    except (OSError, IndexError, ValueError):
        return None
