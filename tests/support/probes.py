"""Makes invented files of the probe, in which every number is known."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from cairn.profile import reader
from cairn.profile.tally import (
    ALLOCATING,
    CALLS,
    EVENTS,
    GROUPS,
    KINDS,
    LOCKS,
    PATHS,
    PHASES,
    RELEASING,
    SAMPLED,
    WHOSE,
    Profile,
    Tree,
)
from cairn.profile.tally import Path as TimedPath

TICKS_PER_NS = 2
PAIR = 40
BEHIND_HEAD = 4352
"""Offset of the first thread records: the size of the head, rounded up to a cache line."""
OLD = {"version": reader.BEFORE, "head_bytes": 4120}
"""Fields of the head in a file of the version before, whose head is shorter."""
NOTHING = 20
"""The number of events that the counters count for an operation that does nothing."""


def bucket(ticks: int) -> int:
    """Returns the bucket of a time, as profile_bucket() does.

    The computation differs from that of the reader, so that a test notices an error in either.
    """
    if ticks < 8:
        return ticks
    octave = ticks.bit_length() - 1
    return min((octave - 2) * 8 + ((ticks >> (octave - 3)) & 7), 319)


@dataclass
class Made:
    """The content of one invented file.

    Times are given in ns, without the cost of reading the clock.
    """

    pid: int = 100
    begin_ns: int = 1_000_000_000
    span_ns: int = 1_000_000_000
    state: int = 2
    dispatch: int = 1
    program: bytes = b"/usr/bin/prog"
    allocator: bytes = b"/lib/x86_64-linux-gnu/libc.so.6"
    user_us: int = 900_000
    head: dict[str, int] = field(default_factory=dict)
    order: str = "<"

    def __post_init__(self) -> None:
        self.layout = reader.layouts(self.order)
        self.threads = np.zeros(8, self.layout.thread)
        self.more = np.zeros(0, self.layout.thread)
        self.samples = np.zeros(1, self.layout.samples)
        self.start = np.zeros(1, self.layout.head)
        self.start["gap"] = 64
        self.start["pair_ticks"] = PAIR
        self.start["alone_pair_ticks"] = PAIR
        self.start["threads_started"] = self.start["threads_most"] = 1
        self.start["peak_resident_bytes"] = 30 << 20
        self.start["minor_faults"] = 5000

    def called(
        self,
        function: str,
        group: str,
        count: int,
        size: int,
        phase: str = "serial",
        thread: int = 0,
    ) -> None:
        """Adds `count` calls of `size` bytes each."""
        place = (thread, ALLOCATING.index(function), PHASES.index(phase), GROUPS.index(group))
        self.threads["calls"][place] += count
        self.threads["bytes"][place] += count * size

    def fresh(self, group: str, count: int, phase: str = "serial", *, others: int = 0) -> None:
        """States that `count` calls of malloc or operator new got memory fresh from the kernel.

        `others` is the number of such calls of other functions. The calls themselves are added by
        `called`.
        """
        self.start["fresh_others"][0, GROUPS.index(group)] += others
        self.threads["fresh"][0, PHASES.index(phase), GROUPS.index(group)] += count

    def released(self, function: str, count: int, phase: str = "serial") -> None:
        """Adds `count` calls of a releasing function."""
        self.threads["released"][0, RELEASING.index(function), PHASES.index(phase)] += count

    def timed(
        self,
        kind: str,
        group: str,
        times_ns: Iterable[float],
        phase: str = "serial",
        copies: int = 1,
    ) -> None:
        """Adds timed operations with these times. Each of them has this number of copies."""
        times = self.samples["times"][0, PATHS.index(TimedPath(kind, group, phase))]
        ticks = [int(ns * TICKS_PER_NS) + PAIR for ns in times_ns]
        times["count"] += copies * len(ticks)
        times["ticks"] += copies * sum(ticks)
        times["max_ticks"] = max(int(times["max_ticks"]), *ticks)
        np.add.at(times["buckets"], [bucket(one) for one in ticks], copies)
        self._freed(kind, group, len(ticks), phase, copies)

    def _freed(
        self, kind: str, group: str, count: int, phase: str = "serial", copies: int = 1
    ) -> None:
        """Counts sampled operations in the sums over copies, if they are frees."""
        if kind.startswith("free"):
            cell = KINDS[-2:].index(kind), GROUPS.index(group), PHASES.index(phase)
            self.start["freed_copies"][0][cell] += count * copies
            self.start["freed_squares"][0][cell] += count * copies**2

    def timed_alone(self, kind: str, group: str, times_ns: Iterable[float]) -> None:
        """Adds operations that were timed between memory fences, so that nothing overlaps them."""
        times = self.samples["times"][0, PATHS.index(TimedPath(kind, group, "serial"))]
        ticks = [int(ns * TICKS_PER_NS) + PAIR for ns in times_ns]
        times["alone"] += len(ticks)
        times["alone_ticks"] += sum(ticks)
        self._freed(kind, group, len(ticks))

    def faulted(
        self, kind: str, group: str, looked_at: int, faults: int, squared: int | None = None
    ) -> None:
        """Adds `looked_at` timed operations that had `faults` page faults in total.

        `squared` is the sum of the squares of each operation's faults. By default, no operation has
        more than one fault.
        """
        times = self.samples["times"][0, PATHS.index(TimedPath(kind, group, "serial"))]
        times["fault_operations"] += looked_at
        times["faults"] += faults
        times["faults_squared"] += faults if squared is None else squared
        self._freed(kind, group, looked_at)

    def counted(self, kind: str, group: str, looked_at: int, events: int, squared: int) -> None:
        """Adds `looked_at` timed operations that had `events` events of the first counter in total.

        `squared` is the sum of the squares of each operation's events.
        """
        times = self.samples["times"][0, PATHS.index(TimedPath(kind, group, "serial"))]
        times["event_operations"] += looked_at
        times["events"][0] += events + looked_at * NOTHING
        times["events_squared"][0] += squared + 2 * events * NOTHING + looked_at * NOTHING**2
        self._freed(kind, group, looked_at)

    def counts(self, *events: str, refused: dict[str, int] | None = None) -> None:
        """Sets the counted events, and the errno of each event that the kernel refused."""
        for slot, event in enumerate(events):
            self.start["events"][0, slot] = 1 + EVENTS.index(event)
            self.start["event_nothing"][0, slot] = NOTHING
            self.start["event_errnos"][0, slot] = (refused or {}).get(event, 0)
        self.start["has_event_nothing"] = 1

    def freed(self, whose: str, group: str, count: int, phase: str = "serial") -> None:
        """Adds frees.

        All frees of the file then count as known to be local or remote, as with --paths exact.
        """
        self.start["exact"] = 1
        self.threads["frees"][0, WHOSE.index(whose), PHASES.index(phase), GROUPS.index(group)] += (
            count
        )

    def sampled(
        self,
        samples: int,
        inside: int,
        own: int = 0,
        what: str = "malloc, new",
        timer_ns: int = 4_000_000,
    ) -> None:
        """Adds samples of the CPU timers.

        `samples` is the number of all samples. `inside` counts those in the allocator, and `own`
        counts those in the probe. Two samples of a thread are `timer_ns` apart.
        """
        self.start["timer_ns"] = timer_ns
        self.threads["cpu_samples"][0] += samples
        self.threads["cpu_samples_inside"][0, SAMPLED.index(what)] += inside
        self.threads["cpu_samples_probe"][0] += own

    def locked(
        self, kind: str, taken: int, waits: Iterable[int] = (), *, refused: int = 0, thread: int = 0
    ) -> None:
        """Counts a lock as taken `taken` times. `waits` has the ticks of each wait for the lock.

        One critical section in ten is timed, and takes 300 ticks.
        """
        counts = self.threads["locks"][thread, LOCKS.index(kind)]
        ticks = list(waits)
        counts["taken"] += taken
        counts["refused"] += refused
        counts["contended"] += len(ticks)
        counts["wait_ticks"] += np.uint64(sum(ticks))
        counts["max_wait_ticks"] = max([int(counts["max_wait_ticks"]), *ticks])
        counts["sections"] += taken // 10
        counts["section_ticks"] += taken // 10 * 300
        counts["max_section_ticks"] = 300 if taken >= 10 else 0

    def kernel(
        self, name: str, count: int, ns: int, size: int = 0, failed: int = 0, sealing: int = 0
    ) -> None:
        """Adds `count` system calls of `ns` each.

        `sealing` of them are calls of mprotect that take write access away.
        """
        self.start["sealed_bytes"] += sealing * size
        calls = self.start["calls"][0, CALLS.index(name)]
        calls["calls"] += count
        calls["failed"] += failed
        calls["bytes"] += count * size
        calls["ticks"] += count * (ns * TICKS_PER_NS + PAIR)
        calls["max_ticks"] = max(calls["max_ticks"], ns * TICKS_PER_NS + PAIR)

    def moments(self, *of: tuple[int, ...]) -> None:
        """Adds moments of the process, as tuples (ns, live, held, resident) with sizes in bytes.

        If the probe examined the pages, the tuple has three more sizes (unasked, unwritten, huge),
        and all held memory is the allocator's. The usable size of live blocks is an eighth more
        than the requested size. Until moment number n, the allocator made 10 n calls for memory,
        4 n waiting calls and n other calls.
        """
        unknown = 2**64 - 1
        told = [
            (ns, live, live + live // 8, 0, held, resident)
            + ((*closely, held) if closely else (unknown,) * 4)
            + (10 * number, 4 * number, number)
            for number, (ns, live, held, resident, *closely) in enumerate(of, 1)
        ]
        self.samples["moments"][0, : len(of)] = np.array(told, self.samples["moments"].dtype)
        self.start["held_most"] = max([0, *(held for _, _, held, *_ in of)])

    def live(self, peak: int, granted: int, noted: tuple[int, int, int]) -> None:
        """States that live bytes were counted.

        `peak` is the highest number of usable live bytes, and `granted` the error that this number
        may have. `noted` describes a moment near the peak: its usable live bytes, the bytes
        requested for these, and the standard error of the requested bytes.
        """
        self.start["live_way"] = 1
        self.start["live_peak_usable"], self.start["live_granted"] = peak, granted
        for name, value in zip(("usable", "bytes", "error"), noted, strict=True):
            self.start[f"live_noted_{name}"] = value

    def content(self) -> bytes:
        """Returns the content of the file."""
        head, at = self.start, BEHIND_HEAD
        head["magic"], head["order"], head["version"] = reader.MAGIC, reader.ORDER, reader.VERSION
        for name in ("head", "thread", "samples"):
            head[f"{name}_bytes"] = getattr(self.layout, name).itemsize
        head["state"], head["dispatch"] = self.state, self.dispatch
        head["process"], head["parent"], head["user_us"] = self.pid, 1, self.user_us
        head["ns_begin"], head["ns_last"] = self.begin_ns, self.begin_ns + self.span_ns
        head["ticks_begin"] = 7
        head["chunks"] = 0
        head["ticks_last"] = 7 + self.span_ns * TICKS_PER_NS
        head["program"], head["allocator"] = self.program, self.allocator
        pieces = [b"\0" * (at - head.nbytes)]
        for place, piece in (
            ("chunks", self.threads),
            ("chunks", self.more),
            ("samples", self.samples),
        ):
            if not len(piece):
                continue
            if place == "samples":
                head["samples"] = at
            else:
                head["chunks"][0, int(np.count_nonzero(head["chunks"]))] = at
            pieces.append(piece.tobytes())
            at += piece.nbytes
        head["file_bytes"] = at
        for name, value in self.head.items():
            head[name] = value
        return head.tobytes() + b"".join(pieces)

    def write(self, folder: Path) -> Path:
        """Writes the file under the name that the probe would use."""
        path = folder / f"{self.pid}.{self.begin_ns}.probe"
        path.write_bytes(self.content())
        return path


def busy(**about: object) -> Made:
    """Returns the file of a program with 64,000 blocks of 100 bytes and 10 large blocks.

    The program allocates and frees each block once. An operation on a small block takes 50 ns.
    """
    made = Made(**about)  # type: ignore[arg-type]
    made.called("malloc", "small", 64_000, 100)
    made.called("malloc", "large", 10, 1 << 20)
    made.called("calloc", "small", 6_400, 50)
    made.fresh("small", 6_400)
    made.fresh("large", 10)
    made.released("free", 70_410)
    made.released("free(NULL)", 3)
    made.timed("new", "small", [200] * 100)
    made.timed("reused", "small", [50] * 900)
    made.timed("new", "large", [10_000] * 10)
    made.timed("calloc", "small", [80] * 100)
    made.timed("free, local", "small", [30] * 990)
    made.timed("free, remote", "small", [60] * 110)
    made.timed("free, local", "large", [5_000] * 10)
    made.kernel("mmap", 10, 2_000, 1 << 20)
    made.kernel("munmap", 10, 3_000, 1 << 20, failed=1)
    made.kernel("other", 3, 500)
    made.start["other_calls"][0, 0] = (318 + 1, 2)
    made.samples["sizes"][0, 22] = 70_400
    made.samples["lives"][0, 0, 12] = 70_400
    made.samples["freed"][0] = (70_400, 0, 10)
    made.samples["freed_elsewhere"][0] = (7_040, 0, 0)
    asked = 64_000 * 100 + (10 << 20) + 6_400 * 50
    made.samples["usable_bytes"], made.samples["asked_bytes"] = asked * 112 // 100, asked
    for kind, looked_at, faults in (
        ("new", 12, 6),
        ("reused", 100, 1),
        ("calloc", 10, 1),
        ("free, local", 120, 0),
    ):
        made.faulted(kind, "small", looked_at, faults)
    made.faulted("new", "large", 2, 2)
    made.faulted("free, local", "large", 1, 0)
    made.counts("instructions", "cycles", refused={"cycles": errno.ENOENT})
    made.counted("reused", "small", 100, 6_000, 100 * 60**2)
    made.counted("new", "large", 4, 40_000, 4 * 10_000**2)
    made.counted("free, local", "small", 50, 2_000, 50 * 40**2)
    made.counted("free, remote", "small", 10, 1_000, 10 * 100**2)
    made.moments((4_000_000, 1 << 20, 2 << 20, 9 << 20), (8_000_000, 12 << 20, 16 << 20, 28 << 20))
    return made


def locking(**about: object) -> Made:
    """The file of the program busy() with an allocator that takes locks."""
    made = busy(**about)
    made.locked("mutex", 40_000, [2_000] * 99 + [500_000], refused=7)
    made.locked("spin lock", 300)
    made.start["contended_locks"] = 2
    return made


def refused(**about: object) -> Made:
    """The file of the program busy() on a kernel that refuses syscall user dispatch."""
    made = busy(dispatch=2, **about)
    made.start["dispatch_errno"] = errno.EINVAL
    return made


def documented() -> Made:
    """The file that docs/profile-format.md has as its example."""
    made = Made(pid=4711, begin_ns=0x1_0000_0000, span_ns=2_000_000, user_us=1_500)
    made.start["began_unix_ns"] = 1_763_600_000_000_000_000
    made.start["dispatch_ticks"] = 4_096
    made.start["contended_locks"] = 1
    made.live(peak=600, granted=100, noted=(540, 480, 5))
    made.start["peak_own_bytes"] = 400 << 10
    made.called("malloc", "small", 1_000, 48)
    made.fresh("small", 640)
    made.released("free", 990)
    made.locked("mutex", 9, [700])
    made.timed("reused", "small", [40] * 6)
    made.timed("free, local", "small", [20] * 15)
    made.sampled(3, 2)
    made.counts("instructions")
    made.counted("reused", "small", 2, 150, 11_250)
    made.kernel("brk", 2, 700, 132 << 10)
    made.moments((1_900_000, 480, 264 << 10, 1 << 21))
    for name, number in (("memory_calls", 2), ("waiting_calls", 0), ("other_calls", 0)):
        made.samples["moments"][0, 0][name] = number
    return made


def gathered(folder: Path, *files: Made, system_ns: int = 0, faults: int = 0) -> Profile:
    """Returns the profile of a program whose processes have these files.

    system_ns, faults: the system time and the minor page faults of the whole program. Without
    `system_ns`, they are not known.
    """
    folder.mkdir(exist_ok=True)
    for made in files:
        made.write(folder)
    found = reader.gather(folder)
    if not system_ns:
        return found
    tree = Tree(("prog",), "system", 1, 1, system_ns, 0, 0, faults, 0, {}, user_mode_only=False)
    return replace(found, tree=tree)
