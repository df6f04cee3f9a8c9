"""Runs a program for a fixed time, to see its memory over time, and reads the probe's series.

The runner carries out such a trial as that of a server: `SoakSession` takes the place of the
session. At the end it asks the allocator to give back what it does not need (src/probe/trim.h), and
then asks the program to end.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import signal
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cairn.errors import CairnError
from cairn.memory import AFTER_ITS_END, Series, Trim
from cairn.run.server import Session

if TYPE_CHECKING:
    import subprocess

    from cairn.model import Settings
    from cairn.profile.tally import Moment, ProcessProfile

PROBE = {
    "CAIRN_PROBE_LIVE": "exact",
    "CAIRN_PROBE_TIMER": "off",
    "CAIRN_PROBE_TRIM": "on",
    # The probe records memory only when it times an operation. By default it times one operation in
    # 256 on average, which gives too few readings if the program rests most of the time.
    "CAIRN_PROBE_GAP": "16",
}
"""The probe's settings for a run of 'cairn soak'."""

REQUEST = 0x6D697274
"""The value that is sent with the probe's signal: KERNEL_CALLS_REQUEST of
src/probe/kernel_calls.h."""
_ASKED = 12
"""How often a process is asked to give memory back, until it answers. It cannot answer while the
thread that gets the signal is inside the allocator."""
_ANSWER_S = 0.25
"""The time after which a process that has not answered is asked again."""
_LOOK_S = 0.02
"""The interval at which Cairn looks for answers."""
_LOAD_S = 0.05
"""The least time between the beginnings of two loads."""
_SUMS_MOST = 512
"""The greatest number of moments at which the memory of several processes is added up."""
_TRIES = 5
"""Attempts to read a file. A file looks damaged if its process lengthens it during the read."""
_LIBRARY = "libcairn-probe"
_BACKGROUND = (
    "put itself into the background, or left processes behind; 'cairn soak' needs a program that "
    "stays in the foreground until its work is done"
)


class Asked(Struct, frozen=True):
    """The request to give memory back, at the end of a run."""

    at_ns: int
    """The time of the request, on the clock of `time.monotonic_ns`."""
    until_ns: int = 0
    """The time until which the processes could answer, before they were asked to end."""
    answered: tuple[int, ...] = ()
    """The ids of the processes that gave memory back."""
    running: tuple[int, ...] = ()
    """The ids of the processes that ran at the time of the request."""
    problem: str | None = None
    """Why no process gave memory back, as the rest of a sentence that begins with the allocator."""


class SoakSession(Session):
    """The life of one program that runs for a fixed time, with or without a load."""

    def __init__(
        self,
        seconds: float,
        load: str,
        ready: str | None,
        folder: str,
        timeout_s: float | None,
        scratch: Path,
        profiles: Path,
    ) -> None:
        super().__init__(load, ready, folder, timeout_s, scratch)
        self.asked: Asked | None = None
        """The request to give memory back; None if the program ended before it."""
        self._seconds = seconds
        self._profiles = profiles

    def conduct(self, launcher: subprocess.Popen[bytes], report: int) -> None:
        """Lets the program run, asks its allocator to give memory back, and ends the program."""
        self._began = time.monotonic()
        if not self._load or self._wait_until_ready(report):
            self._load_began = time.monotonic()
            self._rest(report, self._load_began + self._seconds)
            if not self.died and self.problem is None:
                self.asked = replace(ask(self._profiles), until_ns=time.monotonic_ns())
        if not self.died:
            self._end(launcher, report)

    def failure(
        self,
        exit_code: int | None,
        signal_number: int | None,
        left_behind: int,
        ok_exit: Sequence[int],
        last_line: str,
    ) -> str | None:
        """Returns why this trial is not a result, as Session.failure() does.

        In addition, a program without a load may end by itself with success. If it left other
        processes behind, this is a failure, because the launcher then ended them early. A program
        that ignored SIGTERM after its time was over, and had to be killed, has a result, too.
        """
        if self.killed and self.asked is not None and self.problem is None:
            return None
        if self.died and not self._load and self.problem is None and exit_code in ok_exit:
            return _BACKGROUND if left_behind else None
        return super().failure(exit_code, signal_number, left_behind, ok_exit, last_line)

    def _rest(self, report: int, until: float) -> None:
        """Waits until this time. A load that ends earlier is begun again."""
        if not self._load:
            self.died = self._ended_within(report, until - time.monotonic())
            return
        while not self.died and self.problem is None and time.monotonic() < until:
            again = min(until, time.monotonic() + _LOAD_S)
            self._load_until(report, until)
            if not self.died and self.problem is None and time.monotonic() < again:
                self.died = self._ended_within(report, again - time.monotonic())


def session_of(settings: Settings, workload: int, scratch: Path, profiles: Path) -> Session | None:
    """The session of a server, or of a program that runs for a fixed time; None for others."""
    load, ready, folder = settings.workloads[workload].load, settings.ready, settings.folder
    if settings.soak_s is not None:
        return SoakSession(
            settings.soak_s, load, ready, folder, settings.timeout_s, scratch, profiles
        )
    if not load:
        return None
    return Session(load, ready, folder, settings.timeout_s, scratch, settings.idle_s)


def ask(folder: Path) -> Asked:
    """Asks the allocators of all running processes with a file in this folder to return memory."""
    at_ns = time.monotonic_ns()
    waiting: dict[Path, tuple[int, int]] = {}
    running = []
    for path, one in _running(folder):
        if _has_library(one.process.pid):
            running.append(one.process.pid)
        if one.process.seen == "dispatch" and _has_probe(one.process.pid):
            waiting[path] = one.process.pid, _trims(one)
    asked = Asked(at_ns, running=tuple(running))
    if not waiting:
        return replace(
            asked,
            problem="could not be asked, because the probe has no handler for SIGSYS there",
        )
    answered = []
    for _ in range(_ASKED):
        for pid, _ in waiting.values():
            # Since the last check, the process may have executed another program.
            if _has_probe(pid):
                _send(pid)
        until = time.monotonic() + _ANSWER_S
        while waiting and time.monotonic() < until:
            time.sleep(_LOOK_S)
            for path, (pid, before) in list(waiting.items()):
                now = _read(path)
                if now is None or _trims(now) > before:
                    answered.append(pid)
                    del waiting[path]
        if not waiting:
            break
    if not answered:
        return replace(asked, problem="has no function that gives memory back, or did not answer")
    return replace(asked, answered=tuple(answered))


def _send(pid: int) -> None:
    """Sends the probe's signal. Python has no function that sends a signal with a value."""
    ctypes.CDLL(None).sigqueue(pid, int(signal.SIGSYS), ctypes.c_void_p(REQUEST))


def _trims(profile: ProcessProfile) -> int:
    """How many calls of malloc_trim() the probe counted in the process."""
    from cairn.profile.tally import RELEASING

    return int(profile.tally.released[RELEASING.index("malloc_trim")].sum())


def _has_probe(pid: int) -> bool:
    """Whether the process still has the probe's handler of SIGSYS. Otherwise the signal kills it.

    A program that exec() has just started has no handler yet.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return False
    caught = re.search(rb"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    handled = caught is not None and int(caught[1], 16) >> (signal.SIGSYS - 1) & 1 == 1
    return handled and _has_library(pid)


def _has_library(pid: int) -> bool:
    """Whether the process runs, and has the probe's library."""
    try:
        return _LIBRARY.encode() in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


def _running(folder: Path) -> Iterator[tuple[Path, ProcessProfile]]:
    """The newest file of each process that has not ended, with its content."""
    from cairn.profile import reader

    newest: dict[int, tuple[Path, ProcessProfile]] = {}
    for name in reader.names(folder):
        found = _read(folder / name)
        if found is not None:
            known = newest.get(found.process.pid)
            if known is None or known[1].process.begin_ns < found.process.begin_ns:
                newest[found.process.pid] = folder / name, found
    yield from (one for one in newest.values() if one[1].process.state == "running")


def _read(path: Path) -> ProcessProfile | None:
    """Reads one file of the probe. None if nothing was counted, or if the file cannot be read."""
    from cairn.profile import reader

    for _ in range(_TRIES):
        with contextlib.suppress(CairnError):
            return reader.read_begun(path)
        time.sleep(0.001)
    return None


def series(folder: Path, asked: Asked | None) -> Series | None:
    """Reads the memory over time from the probe's files; None if no process has any.

    The series ends when the allocator was asked to return memory. The last moment is the time of
    this request. So the series is as long as the run, even if the program rests at the end.
    """
    from cairn.profile import reader

    found = [one for name in reader.names(folder) if (one := _read(folder / name)) is not None]
    # By process: the last program that it executed. The earlier ones no longer have memory.
    last = {one.process.pid: one for one in sorted(found, key=lambda one: one.process.begin_ns)}
    found = [one for one in found if one.moments]
    if not found:
        return None
    begin_ns = min(one.process.begin_ns for one in found)
    courses = [
        course
        for one in found
        if (course := _course(one, begin_ns, asked, one is last[one.process.pid])) is not None
    ]
    if not courses:
        return None
    at_ms, live, held, resident = courses[0] if len(courses) == 1 else _summed(courses)
    trim = _trim(found, asked) if asked is not None else None
    problem = asked.problem if asked is not None else AFTER_ITS_END
    return Series(
        at_ms, live, held, resident,
        counted=all(one.process.live_counted for one in found),
        processes=len({one.process.pid for one in found}),
        live_peak=_peak(found[0]) if len(found) == 1 else 0,
        trim=trim,
        no_trim=None if trim is not None else problem or "did not answer in time",
    )  # fmt: skip


_Course = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _peak(profile: ProcessProfile) -> int:
    peak = profile.process.peak_usable
    return peak.bytes if peak is not None else 0


def _live(moment: Moment) -> int:
    known = moment.live_usable_bytes
    return moment.live_bytes if known is None else known


def _held(moment: Moment) -> int:
    """The bytes that the allocator holds, but at most the resident set.

    The rest is address space that was never touched, which costs no memory.
    """
    known = [one for one in (moment.held_bytes, moment.resident_bytes) if one is not None]
    return max(min(known), 0) if known else _live(moment)


def _course(
    profile: ProcessProfile, begin_ns: int, asked: Asked | None, is_last: bool
) -> _Course | None:
    """The moments of one program in a process, up to the request to return memory.

    If the program ended, its last moment is left out, because it had then freed some or all of its
    memory. If it ran at the time of the request, a moment at that time is added.

    is_last: whether the process has executed no other program since.
    """
    process = profile.process
    moments = list(profile.moments)
    if process.state == "ended" and len(moments) > 1:
        moments.pop()
    times = [process.begin_ns + one.ns for one in moments]
    if asked is not None:
        before = bisect_left(times, asked.at_ns)
        later, moments, times = moments[before:], moments[:before], times[:before]
        if moments and is_last and process.pid in asked.running:
            # A process that answers records its memory first. Without an answer, the last reading
            # before the request is used.
            answer = later[:1] if process.pid in asked.answered else []
            moments += answer or moments[-1:]
            times.append(asked.at_ns)
    if not moments:
        return None
    return (
        tuple((one - begin_ns) // 1_000_000 for one in times),
        tuple(map(_live, moments)),
        tuple(map(_held, moments)),
        tuple(one.resident_bytes or _held(one) for one in moments),
    )


def _summed(courses: Sequence[_Course]) -> _Course:
    """The sums over several processes, at the moments of all of them.

    No other times are added, because the judge counts the moments of a series as readings. If there
    are more than _SUMS_MOST, only the first moment of each of as many parts of the time is kept.
    The last moment is a part of its own.

    The numbers of a process are interpolated linearly between its moments. Before its first moment
    and after its last one, they are 0.
    """
    import numpy as np

    times = np.unique(np.concatenate([np.asarray(one[0], np.int64) for one in courses]))
    if len(times) > _SUMS_MOST:
        parts = (times - times[0]) * (_SUMS_MOST - 1) // (times[-1] - times[0])
        _, kept = np.unique(parts, return_index=True)
        times = times[kept]
    sums = [
        sum(np.interp(times, one[0], one[number], left=0.0, right=0.0) for one in courses)
        for number in (1, 2, 3)
    ]
    live, held, resident = (tuple(int(value) for value in np.asarray(one)) for one in sums)
    return tuple(int(value) for value in times), live, held, resident


def _trim(found: Sequence[ProcessProfile], asked: Asked) -> Trim | None:
    """The memory of the processes that answered, before and after they gave memory back."""
    live = held = after = 0
    for one in found:
        later = [each for each in one.moments if one.process.begin_ns + each.ns >= asked.at_ns]
        # A program that ignores SIGTERM continues. Memory that it frees from then on was not
        # trimmed.
        until = asked.until_ns - one.process.begin_ns
        later = [*later[:2], *(each for each in later[2:] if each.ns <= until)]
        if one.process.state == "ended" and len(later) > 2:
            later.pop()
        if one.process.pid in asked.answered and len(later) > 1:
            live += _live(later[0])
            held += _held(later[0])
            after += min(map(_held, later[1:]))
    return Trim(live, held, after) if held else None
