"""What a probe counted in the processes of a program, as values that add up. Pure; `profile` reads them from files.

Counts are Python's own integers, in arrays where they have places: a file may hold any number of 64 bits, and sums of
them must neither wrap nor lose what is exact. Weights and histograms are estimates anyway, and so are plain floats.
Times are in ticks, with what reading the clock takes still in them; `estimates` makes nanoseconds of them.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ALLOCATING = (
    *(
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "aligned_alloc",
        "posix_memalign",
        "memalign",
        "valloc",
    ),
    *("pvalloc", "operator new", "operator new[]"),
)
RELEASING = (
    "free",
    "free(NULL)",
    "operator delete",
    "operator delete[]",
    "malloc_usable_size",
    "malloc_trim",
)
FUNCTIONS = ALLOCATING + RELEASING
GROUPS = ("small", "medium", "large")
PHASES = ("serial", "parallel")
WHOSE = ("local", "remote")
"""Who frees is who allocated, or is another thread."""
CALLS = (
    *(
        "mmap",
        "munmap",
        "mremap",
        "brk",
        "mprotect",
        "madvise(DONTNEED)",
        "madvise(FREE)",
        "madvise(HUGEPAGE)",
    ),
    *("madvise(other)", "futex wait", "futex wake", "sched_yield", "sleep", "other"),
)
SPINNING = "spin lock"
LOCKS = ("mutex", SPINNING, "read-write lock")
SAMPLED = ("malloc, new", "calloc", "realloc", "aligned", "free, delete", "other")
"""What is sampled together by CPU timers."""
KINDS = ("new", "reused", "calloc", "realloc", "aligned", "free, local", "free, remote")
"""All of these in the order of src/record/profile.h."""

WAITING = ("futex wait", "sched_yield", "sleep")
"""Kernel calls whose time is not spent on a processor."""
WAKING = "futex wake"
ABOUT_MEMORY = CALLS[: CALLS.index("futex wait")]
"""Those that have a number of bytes."""


@dataclass(frozen=True, slots=True)
class Path:
    """Operations that are timed together."""

    kind: str
    group: str
    phase: str


PATHS = tuple(Path(kind, group, phase) for kind in KINDS for group in GROUPS for phase in PHASES)

BUCKETS, SIZE_BUCKETS, LIFE_BUCKETS = 320, 192, 48
EVENTS = (
    "cycles",
    "instructions",
    "branch-misses",
    "cache-misses",
    "dTLB-load-misses",
    "page-faults",
)
"""What operations can be counted by, in user mode, at most SLOTS of it at once."""
SLOTS = 4

Exact = NDArray[np.object_]
Floats = NDArray[np.float64]
State = Literal["running", "ended", "alive"]
"""As the file says; "alive" is one that still ran when counting ended."""
Seen = Literal["dispatch", "interpose", "unseen"]
T = TypeVar("T", bound="DataclassInstance")


def _added(first: T, second: T) -> T:
    """Field by field: the sum, or the greater of those whose name says so."""
    names = [field.name for field in fields(first)]
    adding = {name: np.maximum if name.startswith("most_") else operator.add for name in names}
    return type(first)(
        **{name: adding[name](getattr(first, name), getattr(second, name)) for name in names}
    )


def _less(later: T, earlier: T) -> T:
    """Field by field what came between; a greatest that did not grow is not known, and 0."""

    def between(name: str) -> Any:
        after, before = getattr(later, name), getattr(earlier, name)
        return np.where(after > before, after, 0) if name.startswith("most_") else after - before

    return type(later)(**{field.name: between(field.name) for field in fields(later)})


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """What was timed: every field has a place for each of PATHS."""

    count: Exact
    ticks: Exact
    clock_ticks: Exact
    """Of `ticks`, what reading the clock took."""
    most_ticks: Exact
    alone: Exact
    """Operations that were timed with nothing else under way, in no other field but the next two."""
    alone_ticks: Exact
    alone_clock_ticks: Exact
    switched: Exact
    """Operations in which the thread lost its processor: in no other field but the next."""
    switched_ticks: Exact
    kernel: Exact
    """Of `count`, those with a call of the kernel in them."""
    fault_operations: Exact
    """Operations that were looked at for page faults; only large ones are in `count`, too."""
    faults: Exact
    """What these took."""
    faults_squared: Exact
    """The sum of the squares of what each took."""
    event_operations: Exact
    """Operations that were looked at by counters; only large ones are in `count`, too."""
    events: Exact
    """[PATHS, SLOTS]: what these took of each slot's event."""
    events_squared: Exact
    """[PATHS, SLOTS]: the sum of the squares of what each took."""
    buckets: Floats

    def __add__(self, other: Timed) -> Timed:
        return _added(self, other)

    def __sub__(self, other: Timed) -> Timed:
        return _less(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """Calls of the kernel within the allocator: every field has a place for each of CALLS."""

    count: Exact
    failed: Exact
    bytes: Exact
    ticks: Exact
    clock_ticks: Exact
    most_ticks: Exact
    cpu_ns: Exact
    """Of WAITING: what of that was on a processor."""

    def __add__(self, other: Kernel) -> Kernel:
        return _added(self, other)

    def __sub__(self, other: Kernel) -> Kernel:
        return _less(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Locks:
    """Locks that the allocator took by pthread's functions: every field has a place for each of LOCKS."""

    taken: Exact
    refused: Exact
    """By trylock: not in `taken`."""
    contended: Exact
    """Of `taken`, those that were waited for."""
    wait_ticks: Exact
    most_wait_ticks: Exact
    sections: Exact
    """Critical sections that were timed: a sample."""
    section_ticks: Exact
    most_section_ticks: Exact

    def __add__(self, other: Locks) -> Locks:
        return _added(self, other)

    def __sub__(self, other: Locks) -> Locks:
        return _less(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Everything that adds up, over threads and over processes."""

    span_ticks: int
    span_ns: int
    """The same time by two clocks, summed over processes."""
    lived_ns: int
    """How long processes were counted, summed."""
    probe_ticks: int
    """What the probe itself is known to have taken."""
    detour_ticks: int
    """Of that, what calls of the kernel took longer because they were seen: nearly all of it in the kernel."""
    threads_ticks: int
    """How long all threads lived, summed; in a window as if all that lived at once had lived through it."""
    calls: Exact
    """[ALLOCATING, PHASES, GROUPS], as `asked`."""
    asked: Exact
    """Bytes."""
    released: Exact
    """[RELEASING, PHASES]"""
    fresh: Exact
    """[PHASES, GROUPS]: calls of malloc and operator new that got memory not handed out since the kernel gave it."""
    frees: Exact
    """[WHOSE, PHASES, GROUPS]: of blocks whose owner is known; nothing, unless all were to be told apart."""
    cpu_samples: int
    """Of the threads' CPU time, one for each of the kernel's ticks that met a thread."""
    cpu_samples_inside: Exact
    """[SAMPLED]: of these, in the allocator."""
    cpu_samples_probe: int
    """And in the probe."""
    failed: Exact
    late_calls: Exact
    """[FUNCTIONS]: by threads that were ending, in none of the above; no group and no phase is known."""
    late_asked: Exact
    timed: Timed
    kernel: Kernel
    locks: Locks
    contended_locks: int
    """How many different ones were waited for."""
    other_calls: Counter[int]
    """By the kernel's number, as far as there was room to tell them apart."""
    sizes: Floats
    lives: Floats
    """[GROUPS, LIFE_BUCKETS]; these four are weights: each watched block stands for so many."""
    freed: Floats
    freed_elsewhere: Floats
    usable_bytes: float
    watched_bytes: float
    """What the allocator set apart for watched blocks, and what they had asked for, weighted."""

    def __add__(self, other: Tally) -> Tally:
        return _added(self, other)

    def __sub__(self, other: Tally) -> Tally:
        """What was counted since an earlier look at the same process. The clocks keep their whole span."""
        return replace(_less(self, other), span_ticks=self.span_ticks, span_ns=self.span_ns)


@dataclass(frozen=True, slots=True)
class Moment:
    """A process at one time of its life; None is not known."""

    ns: int
    live_bytes: int
    """Asked for and not freed, estimated."""
    live_usable_bytes: int | None
    """What the allocator set apart for these."""
    held_bytes: int | None
    """What the allocator has from the kernel."""
    resident_bytes: int
    """Without pages of files."""
    unasked_bytes: int | None = None
    """The allocator's, resident, and never handed out, in extents of 2 MiB that have something that was."""
    unwritten_bytes: int | None = None
    """Of these, what reads as zero; by a sample."""
    huge_bytes: int | None = None
    """Of the process, in huge pages."""
    own_bytes: int | None = None
    """The allocator's, resident, in extents of 2 MiB that have something that was handed out."""

    @property
    def slack_bytes(self) -> int | None:
        """Set apart for live blocks beyond what was asked for."""
        return (
            None
            if self.live_usable_bytes is None
            else max(0, self.live_usable_bytes - self.live_bytes)
        )


@dataclass(frozen=True, slots=True)
class Process:
    """One image of a process: exec begins another."""

    pid: int
    parent: int
    program: str
    allocator: str
    state: State
    seen: Seen
    """How its kernel calls were seen."""
    seen_errno: int
    """Why not by dispatch, where that was tried; else 0."""
    gap: int
    exact: bool
    """All frees were told apart, not a sample."""
    timer_errno: int
    events: tuple[str, ...]
    """[SLOTS] of EVENTS: what operations were to be counted by; "": nothing."""
    event_errnos: tuple[int, ...]
    """[SLOTS]: why they were not; 0 where nothing stood against it."""
    """Why some threads' CPU time was not sampled; 0: nothing stood against it."""
    timers_refused: int
    """How many threads those were."""
    begin_ns: int
    end_ns: int
    """When last looked at; both by a clock that all processes share."""
    threads: int
    threads_most: int
    threads_lost: int
    cpu_ns: int
    """This and the next three are the process's own since it began, over all its images. 0: not known."""
    minor_faults: int
    major_faults: int
    peak_resident_bytes: int
    peak_live_bytes: int


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a program's life, by the clock that all processes share."""

    begin_ns: int
    end_ns: int
    after_ns: int
    """From the program's beginning to the window's."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The program with all that it started, as who ran it saw it from outside."""

    command: tuple[str, ...]
    allocator: str
    """As the user knows it."""
    wall_ns: int | None
    user_ns: int
    system_ns: int
    voluntary_switches: int
    involuntary_switches: int
    minor_faults: int
    major_faults: int
    counters: dict[str, float | None]
    """By perf's names; None where the machine has not got one."""
    user_mode_only: bool
    """Counters of hardware and time leave out the kernel."""
    knobs: tuple[tuple[str, str], ...] = ()
    """Environment variables that the allocator was given."""
    build_id: str | None = None
    """Of the allocator's library; None is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class ProcessProfile:
    """One file."""

    process: Process
    tally: Tally
    moments: tuple[Moment, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """All files of one run of a program."""

    processes: tuple[Process, ...]
    """Images in the order in which they began; at least one."""
    tally: Tally
    moments: tuple[Moment, ...]
    """Of the process that had the most live bytes."""
    empty: int = 0
    """Files that nothing was written to: their processes were ended at once."""
    machine: str = ""
    """Whose kernel's numbers `tally.other_calls` has."""
    window: Window | None = None
    """The part of the program's life that was counted; None: all of it."""
    tree: Tree | None = None
    """None: nobody has told."""

    @property
    def wall_ns(self) -> int:
        """From the first beginning until something was last looked at; of a window, its length."""
        if self.window is not None:
            return self.window.end_ns - self.window.begin_ns
        return max(p.end_ns for p in self.processes) - self.processes[0].begin_ns

    @property
    def operations(self) -> int:
        """Everything that allocates or frees a block, exactly; what IDLE names does neither."""
        frees = [RELEASING.index(name) for name in FREEING]
        late = sum(self.tally.late_calls) - sum(
            self.tally.late_calls[FUNCTIONS.index(name)] for name in IDLE
        )
        return int(self.tally.calls.sum() + self.tally.released[frees].sum() + late)


FREEING = ("free", "operator delete", "operator delete[]")
IDLE = ("free(NULL)", "malloc_usable_size", "malloc_trim")


def lasting(processes: Sequence[Process]) -> list[Process]:
    """The images that did not go on as another program: one for each process.

    A number that the kernel gave again is another process, if the one before had ended by then.
    """
    later: set[int] = set()
    last = []
    for process in sorted(processes, key=lambda image: image.begin_ns, reverse=True):
        if process.pid not in later or process.state == "ended":
            last.append(process)
        later.add(process.pid)
    return last[::-1]


def cut_short(processes: Sequence[Process]) -> list[Process]:
    """Those that were killed, or ended by a system call of their own: nothing tells which."""
    return [process for process in lasting(processes) if process.state == "running"]


def one_or_more(values: Sequence[str]) -> str:
    """The first, and how many others there are."""
    others = len(dict.fromkeys(values)) - 1
    return values[0] + (f" and {others} other{'s' if others > 1 else ''}" if others else "")


_NAMES: dict[str, dict[int, str]] = {
    "x86_64": {
        0: "read", 1: "write", 3: "close", 4: "stat", 5: "fstat", 8: "lseek", 13: "rt_sigaction", 14: "rt_sigprocmask",
        16: "ioctl", 17: "pread64", 21: "access", 27: "mincore", 39: "getpid", 56: "clone", 57: "fork", 60: "exit",
        63: "uname", 79: "getcwd", 89: "readlink", 96: "gettimeofday", 97: "getrlimit", 98: "getrusage", 99: "sysinfo",
        131: "sigaltstack", 137: "statfs", 157: "prctl", 158: "arch_prctl", 186: "gettid", 201: "time",
        203: "sched_setaffinity", 204: "sched_getaffinity", 228: "clock_gettime", 231: "exit_group", 234: "tgkill",
        237: "mbind", 238: "set_mempolicy", 239: "get_mempolicy", 257: "openat", 262: "newfstatat", 267: "readlinkat",
        302: "prlimit64", 309: "getcpu", 318: "getrandom", 324: "membarrier", 329: "pkey_mprotect", 332: "statx",
        334: "rseq", 435: "clone3", 440: "process_madvise",
    },
    "aarch64": {
        56: "openat", 57: "close", 63: "read", 64: "write", 113: "clock_gettime", 122: "sched_setaffinity",
        123: "sched_getaffinity", 134: "rt_sigaction", 135: "rt_sigprocmask", 160: "uname", 165: "getrusage",
        167: "prctl", 168: "getcpu", 172: "getpid", 178: "gettid", 179: "sysinfo", 220: "clone", 232: "mincore",
        235: "mbind", 236: "get_mempolicy", 261: "prlimit64", 278: "getrandom", 283: "membarrier", 293: "rseq",
        435: "clone3", 440: "process_madvise",
    },
}  # fmt: skip


def call_name(number: int, machine: str) -> str:
    """What the kernel calls its call of that number."""
    return _NAMES.get(machine, {}).get(number, f"syscall {number}")


def as_counts(values: Any) -> Exact:
    """Numbers of any integer type as Python's own."""
    return np.asarray(values, dtype=object)
