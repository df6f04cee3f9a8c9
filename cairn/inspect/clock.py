"""Takes clock samples of a running process with perf events. Nothing is loaded into it.

A *clock* is a perf event that counts CPU time. After each period of CPU time, the kernel notes
which thread a processor runs, its address, its chain of calls by frame pointers, and the top of its
stack. The best clock that is permitted is used:

    processors            a clock of each processor, of which only the process's samples are kept.
                          It needs root, or a kernel.perf_event_paranoid of 0 or less
    threads               a clock of each thread. A thread that starts later gets one soon
    threads in user mode  a clock of each thread that takes no samples in the kernel

docs/decisions/0027-parts-from-the-kernel-clock.md says why the processors' clocks are better. The
process is never stopped: the kernel notes a sample in an interrupt of some microseconds.

`SampleClock.drain` copies the new records of all rings. It must be called often enough that no ring
gets full; the kernel counts records that it had to drop.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import random
import struct
import time
from collections.abc import Iterator

from msgspec import Struct, field

from cairn.inspect.process import ProcessEnded, Target, stat_of, threads
from cairn.profile.cpu_samples import PERIOD
from cairn.profile.tally import Scope

PERIOD_NS, PERIOD_LEAST_NS = 1_061_803, 251_803
"""The mean periods of a clock in nanoseconds: the usual one, and the shortest, which short
measurements use. Neither is a multiple of a millisecond, because much periodic work has such
periods."""
SAMPLES_AIM = 5_000
"""The number of samples that a thread should get if it runs all the time."""
_READ_NS = 10_611
"""The least time between two samples of all processors together. With more than 100 processors, the
period is therefore longer: our thread needs about 6 µs to read a sample. Multiples of this number
are no multiples of a millisecond, as with the periods."""
THREADS_MOST = 128
"""The most threads that get a clock of their own: those with the most CPU time. Each clock needs a
ring, and the kernel bounds their memory."""
STACK_BYTES, STACK_BYTES_FEW = 4096, 512
"""The bytes of the stack in each sample: the usual number, and the number on machines with more
than _PROCESSORS_FEW processors."""
_PROCESSORS_FEW = 16
_RING_PAGES = (4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8)
"""The sizes of a ring that are tried, in pages. The first one that the kernel permits is taken. All
rings of processors together may have _ALL_PAGES, and the ring of a thread _THREAD_PAGES."""
_ALL_PAGES = 1 << 14
"""The most pages of the rings of all processors together: 64 MiB. The ring of a processor gets the
samples of all processes. It must not be full before we run again, even on a busy machine."""
_THREAD_PAGES = 128
CHANGE_PERIODS = 200
_SET_PERIOD = 0x40082404
"""PERF_EVENT_IOC_PERIOD."""
_CALL = {"x86_64": 298}
"""The number of the system call perf_event_open(2), by architecture."""
_SOFTWARE, _CPU_CLOCK = 1, 0
_IP, _TID, _TIME, _CALLCHAIN, _PERIOD, _REGS_USER, _STACK_USER = 1, 2, 4, 32, 256, 4096, 8192
_REGISTERS = {"bp": 6, "sp": 7, "ip": 8, "bx": 1, "r12": 20, "r13": 21, "r14": 22, "r15": 23}
"""The numbers of the registers of x86-64 in perf events."""
REGISTERS = tuple(sorted(_REGISTERS.values()))
"""The registers in each sample, in the order in which the kernel writes them."""
BP, SP, IP = _REGISTERS["bp"], _REGISTERS["sp"], _REGISTERS["ip"]
_FLAGS = {
    "disabled": 0, "exclude_kernel": 5, "exclude_hv": 6, "exclude_idle": 7, "mmap": 8, "comm": 9,
    "task": 13, "sample_id_all": 18, "exclude_callchain_kernel": 21, "mmap2": 23, "comm_exec": 24,
    "use_clockid": 25,
}  # fmt: skip
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQQQIiQIHH")
_CLOCK_MONOTONIC = 1
_FD_CLOEXEC = 8
_HEAD, _TAIL, _DATA_OFFSET = 1024, 1032, 1040
"""Places in the first page of a ring: where the kernel writes next, where we read next, and where
the data begin."""
_RECORD = struct.Struct("<IHH")
_SAMPLE = 9
_PID_AT = 8
"""The offset of the process id in a sample. It follows the address, which has 8 bytes."""


NO_MEMORY = "there is no more memory for clocks (kernel.perf_event_mlock_kb, ulimit -l)"
"""The reason, as a clause, if the kernel permits no further ring. mmap then fails with EPERM."""


class NoClock(Exception):
    """The kernel gives no clock samples; the text is the end of a sentence that says why."""


class _Ring(Struct):
    descriptor: int
    area: mmap.mmap
    size: int

    def close(self) -> None:
        self.area.close()
        os.close(self.descriptor)


class SampleClock(Struct):
    """The clocks that sample one process. Each clock is a perf event with a ring of records."""

    target: Target
    scope: Scope
    period_ns: int
    stack_bytes: int
    rings: dict[int, _Ring] = field(default_factory=dict)
    """The rings, by the number of the processor or of the thread."""
    changed_ns: int = 0
    """The time at which the period was last changed, by CLOCK_MONOTONIC."""
    mean_ns: int = 0
    unwatched: int = 0
    """The largest number of threads that had no clock at a time."""
    unwatched_refused: int = 0
    """The number of these threads to which the kernel refused a clock. For the others there was
    none, because there were more than THREADS_MOST threads."""
    refused: str = ""
    """Why the kernel refused the last of these clocks, as a clause; empty if it refused none."""

    def drain(self) -> Iterator[tuple[int, int, bytes]]:
        """Yields the new records of the process: kind, flags (`misc`) and content of each.

        Records of different rings are not in order of their times.
        """
        for number, ring in list(self.rings.items()):
            data = _drained(ring)
            at = 0
            while at + _RECORD.size <= len(data):
                kind, misc, size = _RECORD.unpack_from(data, at)
                if size < _RECORD.size:
                    break
                body = data[at + _RECORD.size : at + size]
                at += size
                if kind == _SAMPLE and self._pid_of(body) != self.target.pid:
                    continue
                yield kind, misc, body
            if self.scope != "processors" and _has_ended(self.target.pid, number):
                self.rings.pop(number).close()

    @staticmethod
    def _pid_of(body: bytes) -> int:
        pid: int = struct.unpack_from("<I", body, _PID_AT)[0]
        return pid

    def vary(self, now_ns: int) -> tuple[int, int, bytes] | None:
        """Gives all clocks a new period, at random around the mean, from time to time.

        A steady clock would be in step with a loop of the program, and find it at the same place
        again and again. A change begins the period anew, so there are CHANGE_PERIODS between two.
        Returns a record of the change for `cpu_samples`, or None.
        """
        if now_ns < self.changed_ns + CHANGE_PERIODS * self.mean_ns:
            return None
        self.changed_ns = now_ns
        self.period_ns = self.mean_ns * random.randint(900, 1100) // 1000
        for ring in self.rings.values():
            fcntl.ioctl(ring.descriptor, _SET_PERIOD, struct.pack("<Q", self.period_ns))
        return PERIOD, 0, struct.pack("<QQ", self.period_ns, time.monotonic_ns())

    def watch_new(self) -> None:
        """Gives a clock to each thread that has none, if clocks belong to threads."""
        if self.scope == "processors":
            return
        without, denied, refused = 0, 0, ""
        for thread in threads(self.target):
            if thread in self.rings:
                continue
            if len(self.rings) >= THREADS_MOST:
                without += 1
                continue
            try:
                self.rings[thread] = _opened(self, thread, -1)
            except OSError as error:
                if error.errno == errno.ESRCH or _has_ended(self.target.pid, thread):
                    continue
                without, denied = without + 1, denied + 1
                refused = (
                    NO_MEMORY
                    if error.errno == errno.ENOBUFS
                    else f"the kernel refused it: {error.strerror or error}"
                )
        if without > self.unwatched:
            self.unwatched, self.unwatched_refused, self.refused = without, denied, refused

    def close(self) -> None:
        """Ends all clocks."""
        for ring in self.rings.values():
            ring.close()
        self.rings.clear()


def mean_period_ns(seconds: float, processors: int) -> int:
    """The mean period for a measurement of `seconds`.

    From about five seconds on, it does not grow with the time. So a longer measurement always has
    more samples.
    """
    usual = min(PERIOD_NS, max(PERIOD_LEAST_NS, seconds * 1e9 / SAMPLES_AIM))
    return int(max(usual, processors * _READ_NS))


def opened(target: Target, seconds: float) -> SampleClock:
    """Starts the best clock that the kernel permits. Raises NoClock or ProcessEnded."""
    if platform.machine() not in _CALL:
        raise NoClock(f"clock samples are not known on {platform.machine()}")
    processors = _online()
    period_ns = mean_period_ns(seconds, len(processors))
    stack = STACK_BYTES if len(processors) <= _PROCESSORS_FEW else STACK_BYTES_FEW
    refused: OSError | None = None
    scopes: tuple[Scope, ...] = ("processors", "threads", "threads in user mode")
    for scope in scopes:
        clock = SampleClock(
            target, scope, period_ns, stack if scope == "processors" else STACK_BYTES
        )  # fmt: skip
        clock.mean_ns, clock.changed_ns = period_ns, time.monotonic_ns()
        try:
            if scope == "processors":
                for processor in processors:
                    clock.rings[processor] = _opened(clock, -1, processor)
            else:
                # Without a clock for the first thread, the kernel permits no clocks of threads.
                first, *others = _by_cpu_time(target)
                clock.rings[first] = _opened(clock, first, -1)
                for thread in others[: THREADS_MOST - 1]:
                    with contextlib.suppress(OSError):
                        clock.rings[thread] = _opened(clock, thread, -1)
                clock.watch_new()
        except OSError as error:
            clock.close()
            if error.errno == errno.ESRCH:
                raise ProcessEnded(target.pid) from error
            refused = error
            continue
        return clock
    raise NoClock(_reason(refused))


def _reason(error: OSError | None) -> str:
    if error is None or error.errno in (errno.EACCES, errno.EPERM):
        return (
            "the kernel does not permit clock samples of this process; run the command as root, or "
            "set kernel.perf_event_paranoid to 2 or less for your own processes"
        )
    why = NO_MEMORY if error.errno == errno.ENOBUFS else error.strerror or error
    return f"the kernel gives no clock samples here: {why}"


def _online() -> list[int]:
    """The numbers of the processors that are online."""
    try:
        with open("/sys/devices/system/cpu/online", encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return sorted(os.sched_getaffinity(0))
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _by_cpu_time(target: Target) -> list[int]:
    """The threads, those with the most CPU time first."""

    def used(thread: int) -> int:
        try:
            with open(f"/proc/{target.pid}/task/{thread}/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()
            return int(fields[11]) + int(fields[12])
        except (OSError, IndexError, ValueError):
            return 0

    found = threads(target)
    if not found:
        raise ProcessEnded(target.pid)
    stat_of(target)
    return sorted(found, key=used, reverse=True)


def _has_ended(pid: int, thread: int) -> bool:
    return not os.path.exists(f"/proc/{pid}/task/{thread}")


def _opened(clock: SampleClock, pid: int, processor: int) -> _Ring:
    """Opens a clock and maps its ring.

    Raises OSError. Its number is ENOBUFS if the kernel permits no memory for the ring.
    """
    in_user_mode = clock.scope == "threads in user mode"
    flags = {"exclude_idle", "mmap", "mmap2", "comm", "comm_exec", "task", "sample_id_all"}
    flags.add("use_clockid")
    if in_user_mode:
        flags |= {"exclude_kernel", "exclude_hv", "exclude_callchain_kernel"}
    attributes = _ATTRIBUTES.pack(
        _SOFTWARE, _ATTRIBUTES.size, _CPU_CLOCK, clock.period_ns,
        _IP | _TID | _TIME | _CALLCHAIN | _PERIOD | _REGS_USER | _STACK_USER, 0,
        sum(1 << _FLAGS[name] for name in flags), 0, 0, 0, 0, 0,
        sum(1 << number for number in REGISTERS), clock.stack_bytes, _CLOCK_MONOTONIC, 0, 0, 0, 0,
    )  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    descriptor = libc.syscall(
        ctypes.c_long(_CALL[platform.machine()]), attributes, ctypes.c_int(pid),
        ctypes.c_int(processor), ctypes.c_int(-1), ctypes.c_ulong(_FD_CLOEXEC),
    )  # fmt: skip
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    refused: OSError | None = None
    most = _ALL_PAGES // len(_online()) if clock.scope == "processors" else _THREAD_PAGES
    for pages in [one for one in _RING_PAGES if one <= max(most, _RING_PAGES[-1])]:
        size = pages * mmap.PAGESIZE
        try:
            area = mmap.mmap(descriptor, size + mmap.PAGESIZE)
        except OSError as error:
            refused = error
            if error.errno != errno.EPERM:
                break
            continue
        return _Ring(descriptor, area, size)
    os.close(descriptor)
    assert refused is not None
    if refused.errno == errno.EPERM:
        raise OSError(errno.ENOBUFS, NO_MEMORY)
    raise refused


def _drained(ring: _Ring) -> bytes:
    """The new bytes of a ring.

    The kernel writes its records before it moves the head, and x86-64 keeps the order of loads.
    """
    (head,) = struct.unpack_from("<Q", ring.area, _HEAD)
    (tail,) = struct.unpack_from("<Q", ring.area, _TAIL)
    begin = mmap.PAGESIZE
    at, size = tail % ring.size, head - tail
    first = min(size, ring.size - at)
    data = ring.area[begin + at : begin + at + first] + ring.area[begin : begin + size - first]
    struct.pack_into("<Q", ring.area, _TAIL, head)
    return data
