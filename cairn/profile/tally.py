"""The probe's counts of a program and its processes, as values that can be added up.

`reader` makes these values from the probe's files. Counts are Python integers, in arrays of
objects: a file may hold any 64-bit number, and sums must neither wrap nor round. Weights and
histograms are estimates, so they are floats. Times are in ticks and still contain the time of
reading the clock; `estimates` turns them into nanoseconds. All functions are pure.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import DataclassInstance
    from numpy.typing import NDArray

    from cairn.profile.call_stacks import StacksFile
    from cairn.profile.layout import Layout

ALLOCATING = (
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "valloc",
    "pvalloc",
    "operator new",
    "operator new[]",
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
"""Frees of a block by the thread that allocated it, and by another thread."""
CALLS = (
    "mmap",
    "munmap",
    "mremap",
    "brk",
    "mprotect",
    "madvise(DONTNEED)",
    "madvise(FREE)",
    "madvise(HUGEPAGE)",
    "madvise(other)",
    "futex wait",
    "futex wake",
    "sched_yield",
    "sleep",
    "other",
)
SPINNING = "spin lock"
LOCKS = ("mutex", SPINNING, "read-write lock")
SAMPLED = ("malloc, new", "calloc", "realloc", "aligned", "free, delete", "other")
"""The groups of functions that the CPU timers distinguish."""
KINDS = ("new", "reused", "calloc", "realloc", "aligned", "free, local", "free, remote")
"""Kinds of timed operations. All tuples above have the order of src/record/profile.h."""

WAITING = ("futex wait", "sched_yield", "sleep")
"""System calls that wait: most of their time is no CPU time."""
WAKING = "futex wake"
ABOUT_MEMORY = CALLS[: CALLS.index("futex wait")]
"""System calls with a number of bytes."""


@dataclass(frozen=True, slots=True)
class Path:
    """A class of operations with its own times: kind, size group and phase."""

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
"""Events of the processor or the kernel that the probe can count within operations, in user
mode."""
SLOTS = 4
"""At most this many of EVENTS are counted at once."""

if TYPE_CHECKING:
    Exact = NDArray[np.object_]
    Floats = NDArray[np.float64]
State = Literal["running", "ended", "alive"]
"""The state in the file. `window` sets "alive" for a process that still runs at the window's
end."""
Seen = Literal["dispatch", "interpose", "unseen"]
T = TypeVar("T", bound="DataclassInstance")


def _added(first: T, second: T) -> T:
    """Adds field by field. Fields named `most_…` get the larger of the two values."""
    import numpy as np

    names = [field.name for field in fields(first)]
    adding = {name: np.maximum if name.startswith("most_") else operator.add for name in names}
    return type(first)(
        **{name: adding[name](getattr(first, name), getattr(second, name)) for name in names}
    )


def _less(later: T, earlier: T) -> T:
    """Subtracts field by field. Fields named `most_…` are 0 (not known) unless they grew."""
    import numpy as np

    def between(name: str) -> Any:
        after, before = getattr(later, name), getattr(earlier, name)
        return np.where(after > before, after, 0) if name.startswith("most_") else after - before

    return type(later)(**{field.name: between(field.name) for field in fields(later)})


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """The timed operations. Every field has one element for each of PATHS."""

    count: Exact
    """Operations that were timed as the program made them."""
    ticks: Exact
    """The sum of the times of these operations."""
    clock_ticks: Exact
    """The part of `ticks` in which the clock was read."""
    most_ticks: Exact
    """The longest of these times."""
    alone: Exact
    """Operations that were timed between fences, so that the processor worked on nothing else. They
    appear only here, in the next two fields and in `switched`."""
    alone_ticks: Exact
    alone_clock_ticks: Exact
    switched: Exact
    """Operations in which the thread lost its processor. They appear only here and in the next
    field."""
    switched_ticks: Exact
    kernel: Exact
    """Operations of `count` with a system call in them."""
    fault_operations: Exact
    """Operations whose page faults were counted. Only those on large blocks are also in `count`."""
    faults: Exact
    """The sum of the page faults of these operations."""
    faults_squared: Exact
    """The sum over these operations of the square of the number of page faults."""
    event_operations: Exact
    """Operations whose events were counted. Only those on large blocks are also in `count`."""
    events: Exact
    """[PATHS, SLOTS]: the sum of each slot's events."""
    events_squared: Exact
    """[PATHS, SLOTS]: the sum over these operations of the square of the number of events."""
    buckets: Floats
    """[PATHS, BUCKETS]: a histogram of the times of `count`."""

    def __add__(self, other: Timed) -> Timed:
        return _added(self, other)

    def __sub__(self, other: Timed) -> Timed:
        return _less(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """System calls within the allocator. Every field has one element for each of CALLS."""

    count: Exact
    failed: Exact
    bytes: Exact
    ticks: Exact
    clock_ticks: Exact
    most_ticks: Exact
    cpu_ns: Exact
    """CPU time of the calls in WAITING; 0 for others."""

    def __add__(self, other: Kernel) -> Kernel:
        return _added(self, other)

    def __sub__(self, other: Kernel) -> Kernel:
        return _less(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Locks:
    """The allocator's pthread locks. Every field has one element for each of LOCKS."""

    taken: Exact
    refused: Exact
    """Failed trylocks; they are not in `taken`."""
    contended: Exact
    """The part of `taken` for which the thread had to wait."""
    wait_ticks: Exact
    most_wait_ticks: Exact
    sections: Exact
    """The number of timed critical sections: a sample."""
    section_ticks: Exact
    most_section_ticks: Exact

    def __add__(self, other: Locks) -> Locks:
        return _added(self, other)

    def __sub__(self, other: Locks) -> Locks:
        return _less(self, other)


@dataclass(frozen=True, slots=True)
class LockCount:
    """One lock of the allocator in one process.

    The fields from `taken` on are those of src/record/lock_record.h.
    """

    name: str
    library: str
    """The file name of the library in which it lies; "" for a record in mapped memory."""
    kind: str
    """One of LOCKS, or "futex" for a lock of the allocator's own making."""
    taken: int
    contended: int
    wait_ticks: int
    max_wait_ticks: int
    refused: int
    early_sections: int
    early_section_ticks: int
    sections: int
    section_ticks: int
    section_ticks_squared: int
    futex_waits: int
    futex_wait_ticks: int
    futex_wakes: int


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Everything that can be summed over threads and processes."""

    span_ticks: int
    span_ns: int
    """The counted time, summed over processes, by two clocks: in ticks and in ns. This calibrates
    the ticks."""
    lived_ns: int
    """The counted time of all processes, summed; in a window only the part within it."""
    probe_ticks: int
    """The known part of the probe's own time: reading the clock, and detours."""
    detour_ticks: int
    """The part of `probe_ticks` for the interception of system calls; nearly all of it is system
    time."""
    threads_ticks: int
    """The life time of all threads, summed. In a window it is estimated: the length of the window
    times the largest number of threads at once."""
    calls: Exact
    """[ALLOCATING, PHASES, GROUPS]: the number of calls."""
    asked: Exact
    """[ALLOCATING, PHASES, GROUPS]: the requested bytes."""
    released: Exact
    """[RELEASING, PHASES]: the number of calls."""
    fresh: Exact
    """[PHASES, GROUPS]: calls of malloc and operator new that were the first to get their memory
    after it came from the kernel."""
    frees: Exact
    """[WHOSE, PHASES, GROUPS]: frees of blocks with a known owner. The owner of a block is the
    thread that allocated it. All numbers are 0 unless `Process.exact` is true."""
    cpu_samples: int
    """Samples of the threads' CPU time: one for each kernel tick that finds the thread running."""
    cpu_samples_inside: Exact
    """[SAMPLED]: the samples in the allocator."""
    cpu_samples_probe: int
    """The samples in the probe."""
    failed: Exact
    """[ALLOCATING]: calls that returned NULL or an error."""
    late_calls: Exact
    """[FUNCTIONS]: calls by threads that were ending. No field above contains them, and their group
    and phase are not known."""
    late_asked: Exact
    """[ALLOCATING]: the bytes that the calls in `late_calls` requested."""
    timed: Timed
    kernel: Kernel
    locks: Locks
    contended_locks: int
    """The number of different locks for which a thread waited."""
    other_calls: Counter[int]
    """Calls of "other" by system call number; the probe has room for 32 numbers."""
    sizes: Floats
    """[SIZE_BUCKETS]: allocations by requested size. This and the next five fields are weighted
    sums over the watched blocks: each watched block counts for the blocks that it stands for."""
    lives: Floats
    """[GROUPS, LIFE_BUCKETS]: freed blocks by the time that they lived."""
    freed: Floats
    """[GROUPS]: the number of freed blocks."""
    freed_elsewhere: Floats
    """[GROUPS]: the number of blocks freed by another thread than the one that allocated them."""
    usable_bytes: float
    """Usable bytes of the watched blocks."""
    watched_bytes: float
    """Requested bytes of the watched blocks."""

    def __add__(self, other: Tally) -> Tally:
        return _added(self, other)

    def __sub__(self, other: Tally) -> Tally:
        """The counts since an earlier look at the same process. `span_…` keep the later values."""
        return replace(_less(self, other), span_ticks=self.span_ticks, span_ns=self.span_ns)


@dataclass(frozen=True, slots=True)
class Moment:
    """The memory of a process at one time. None means not known."""

    ns: int
    """Time since the process began; in a window, since the window began."""
    live_bytes: int
    """Bytes that were requested and not freed; an estimate."""
    live_usable_bytes: int | None
    """Usable size of the live blocks."""
    live_error_bytes: int
    """The standard error of `live_bytes`. If live bytes were counted (`Process.live_counted`), the
    usable size has none."""
    held_bytes: int | None
    """Bytes that the allocator has from the kernel."""
    resident_bytes: int | None
    """Resident set of the process, without pages of files; None without /proc."""
    unasked_bytes: int | None = None
    """Resident bytes of the allocator that never belonged to a block, in those extents of 2 MiB
    that ever held a block."""
    unwritten_bytes: int | None = None
    """The part of `unasked_bytes` that reads as zero, estimated from a sample."""
    huge_bytes: int | None = None
    """Bytes of the process in huge pages."""
    own_bytes: int | None = None
    """Resident bytes of the allocator in those extents of 2 MiB that ever held a block."""

    @property
    def slack_bytes(self) -> int | None:
        """Usable size of the live blocks beyond their requested bytes."""
        return (
            None
            if self.live_usable_bytes is None
            else max(0, self.live_usable_bytes - self.live_bytes)
        )


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest number of bytes that were live at once, and the ends of its interval."""

    bytes: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Process:
    """One program image of a process. Each exec begins a new image."""

    pid: int
    parent: int
    program: str
    allocator: str
    state: State
    seen: Seen
    """How the probe saw its system calls: all of them, those through libc's functions, or none."""
    seen_errno: int
    """The errno value that says why "dispatch" failed; 0 if it was not tried or worked."""
    gap: int
    """One allocation in `gap` is timed, on average."""
    exact: bool
    """Whether all frees were counted as local or remote, not only the timed ones."""
    timer_errno: int
    """The errno value that says why the CPU time of some threads was not sampled; 0 if none
    failed."""
    events: tuple[str, ...]
    """[SLOTS]: the requested EVENTS; "" for an unused slot."""
    event_errnos: tuple[int, ...]
    """[SLOTS]: the errno value of each event that was refused; else 0."""
    timers_refused: int
    """The number of threads without a CPU timer."""
    begin_ns: int
    end_ns: int
    """When the probe last looked at the clock. All processes share the clock of these two
    fields."""
    threads: int
    """Threads that allocated, or that were seen to start."""
    threads_most: int
    """The most threads at once."""
    threads_lost: int
    """Threads that were not counted because the disk had no room."""
    cpu_ns: int
    """This and the next three fields cover the process over all its images. 0 means not known, or
    None in the third of them."""
    minor_faults: int
    major_faults: int
    peak_resident_bytes: int | None
    live_counted: bool
    """Whether the probe counted the live bytes. Otherwise it estimated them from a sample."""
    peak_requested: Peak | None
    """The requested bytes of the live blocks at their peak. None if there is no estimate."""
    peak_usable: Peak | None
    """The usable bytes of the live blocks at their peak. None if they were not counted."""
    locks: tuple[LockCount, ...] = ()
    ended_unix_ns: int = 0
    """`end_ns` by the clock of the calendar; 0 if it is not known."""

    @property
    def peak_live_bytes(self) -> int:
        """The requested bytes of the live blocks at their peak; 0 if there is no estimate."""
        return self.peak_requested.bytes if self.peak_requested is not None else 0


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a program's life, by the clock of `Process.begin_ns`."""

    begin_ns: int
    end_ns: int
    after_ns: int
    """Time from the start of the program to the start of the window."""
    missing: tuple[Missing, ...] = ()
    """The processes that ran in the window and are not in the profile, as far as they are known."""


Scope = Literal["processors", "threads", "threads in user mode", "timers"]
"""The clocks that took the samples, the best first: the clock of each processor; the clock of each
thread, which begins anew with the thread; the same without the kernel; or the probe's timers of
each thread's CPU time, which the kernel looks at only at its ticks."""


@dataclass(frozen=True, slots=True)
class FunctionTime:
    """The CPU time of one function of the allocator, or of a library that it called."""

    name: str
    """The function's name; "library+offset" if the library has no name for it."""
    library: str
    """The file name of the library."""
    samples: int
    ns: float
    """The sum of the periods of its samples."""
    squares: float
    """The sum of the squares of these periods."""


@dataclass(frozen=True, slots=True)
class ClockRun:
    """The CPU time of one run by the kernel's clock: the sums of the periods of its samples."""

    probed: bool
    """Whether the probe was loaded in this run."""
    scope: Scope
    samples: int
    """The number of samples outside the probe."""
    own_ns: float
    """In the allocator's code, or in a library that it called. The probe's timers count here the
    allocator's time in the kernel, too."""
    calls_ns: float = 0.0
    """In system calls of the allocator."""
    faults_ns: float = 0.0
    """In page faults within the allocator."""
    program_ns: float = 0.0
    """Everywhere else."""
    probe_ns: float = 0.0
    """In the probe, or in the kernel because of the probe."""
    unknown_ns: float = 0.0
    """At addresses of no known file; and time without samples, because the kernel lost them."""
    inside_squares: float = 0.0
    """The sum of the squared periods of the samples in the allocator."""
    squares: float = 0.0
    """The sum of the squared periods of all samples outside the probe."""
    cpu_ns: float = 0.0
    """User and system time of the run by the kernel's account; 0 if it is not known."""
    interrupts_ns: float | None = None
    """In interrupts that came while the allocator ran. None if interrupts cannot be told apart. The
    other parts then contain them, mostly `faults_ns`."""
    interrupts_unseen: str = ""
    """Why interrupts cannot be told apart, as the end of a sentence; empty if they can."""
    functions: tuple[FunctionTime, ...] = ()
    """The functions of `own_ns`, the costliest first. The probe's timers know none."""

    @property
    def inside_ns(self) -> float:
        """The time in the allocator."""
        return self.own_ns + self.calls_ns + self.faults_ns + (self.interrupts_ns or 0.0)

    @property
    def whole_ns(self) -> float:
        """The time of the run without the probe."""
        return self.inside_ns + self.program_ns + self.unknown_ns


@dataclass(frozen=True, slots=True)
class KernelClock:
    """The runs of a program whose CPU time the kernel's clock sampled, the profiled run first."""

    runs: tuple[ClockRun, ...] = ()
    why_not: str = ""
    """Why the kernel's clock gave no samples, as the end of a sentence."""
    is_unlike: bool = False
    """Whether the program used much more or less CPU time when it ran again, or ended otherwise.
    `runs` then has only the profiled run."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A process that could not be recorded."""

    pid: int
    """0 if only the number of such processes is known."""
    program: str
    why: str
    """The name of the errno value with which its file could not be made, such as "EFBIG", or why
    the probe was not in it: a reason of model.Unreached."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The whole process tree of a run, as 'cairn profile' saw it from outside."""

    command: tuple[str, ...]
    allocator: str
    """The contender's name."""
    wall_ns: int | None
    user_ns: int
    system_ns: int
    voluntary_switches: int
    involuntary_switches: int
    minor_faults: int
    major_faults: int
    counters: dict[str, float | None]
    """Performance counters by perf's names; None for those that the machine lacks."""
    user_mode_only: bool
    """Whether the counters of hardware events and of time leave out the kernel."""
    scaled: bool = False
    """Whether some counters counted a part of the time, so that their values are estimates."""
    knobs: tuple[tuple[str, str], ...] = ()
    """Environment variables that were set for the allocator."""
    build_id: str | None = None
    """The build ID of the allocator's library; None if not known."""
    missing: tuple[Missing, ...] = ()
    clock: KernelClock | None = None
    """None if the kernel's clock was not asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class ProcessProfile:
    """The content of one of the probe's files."""

    process: Process
    tally: Tally
    moments: tuple[Moment, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """All of the probe's files of one run of a program, added up."""

    processes: tuple[Process, ...]
    """Images in the order in which they began; at least one."""
    tally: Tally
    moments: tuple[Moment, ...]
    """The moments of the process with the most live bytes."""
    empty: int = 0
    """The number of empty files: their processes ended before the probe counted anything."""
    machine: str = ""
    """The architecture, for the system call numbers in `tally.other_calls`."""
    window: Window | None = None
    """The part of the program's life that was counted; None for all of it."""
    tree: Tree | None = None
    """None if the folder has no `run.json`."""
    clock: KernelClock | None = None
    """None if the kernel's clock was not asked for."""
    layout: Layout | None = None
    """Where the blocks of the process with the most live bytes lie; None if not recorded."""
    layout_problem: str | None = None
    """Why the file of where blocks lie cannot be read, as a sentence; None if there is no reason.
    """
    stacks: tuple[StacksFile, ...] = ()
    """The call stacks that allocated, of each process that recorded some."""
    stacks_problem: str | None = None
    """Why a file of call stacks cannot be read, as a sentence; None if there is no reason."""

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The processes that are not in the profile, as far as they are known."""
        if self.window is not None:
            return self.window.missing
        return self.tree.missing if self.tree is not None else ()

    @property
    def largest(self) -> Process:
        """The process with the most live bytes. `moments` are those of this process."""
        return max(self.processes, key=lambda process: process.peak_live_bytes)

    @property
    def wall_ns(self) -> int:
        """From the first process's start to the probe's last look; for a window, its length."""
        if self.window is not None:
            return self.window.end_ns - self.window.begin_ns
        return max(p.end_ns for p in self.processes) - self.processes[0].begin_ns

    @property
    def operations(self) -> int:
        """The exact number of calls that allocate or free a block: all calls but those to IDLE."""
        frees = [RELEASING.index(name) for name in FREEING]
        late = sum(self.tally.late_calls) - sum(
            self.tally.late_calls[FUNCTIONS.index(name)] for name in IDLE
        )
        return int(self.tally.calls.sum() + self.tally.released[frees].sum() + late)


FREEING = ("free", "operator delete", "operator delete[]")
IDLE = ("free(NULL)", "malloc_usable_size", "malloc_trim")


def lasting(processes: Sequence[Process]) -> list[Process]:
    """The last image of each process. An exec replaced the others.

    An image that ended is always the last of its process. So a later image with the same process id
    belongs to another process, to which the kernel gave the id again.
    """
    later: set[int] = set()
    last = []
    for process in sorted(processes, key=lambda image: image.begin_ns, reverse=True):
        if process.pid not in later or process.state == "ended":
            last.append(process)
        later.add(process.pid)
    return last[::-1]


def cut_short(processes: Sequence[Process], missing: Sequence[Missing] = ()) -> list[Process]:
    """The processes whose file was never completed.

    These processes were killed, or ended by a direct system call. If a process is in `missing`, its
    file ends where it executed another program.
    """
    elsewhere = {one.pid for one in missing}
    return [
        process
        for process in lasting(processes)
        if process.state == "running" and process.pid not in elsewhere
    ]


def one_or_more(values: Sequence[str]) -> str:
    """The first value, and the number of other distinct values: "glibc and 2 others"."""
    others = len(dict.fromkeys(values)) - 1
    return values[0] + (f" and {others} other{'s' if others > 1 else ''}" if others else "")


_NAMES: dict[str, dict[int, str]] = {
    "x86_64": {
        0: "read", 1: "write", 3: "close", 4: "stat", 5: "fstat", 8: "lseek", 13: "rt_sigaction",
        14: "rt_sigprocmask", 16: "ioctl", 17: "pread64", 21: "access", 27: "mincore", 39: "getpid",
        56: "clone", 57: "fork", 60: "exit", 63: "uname", 79: "getcwd", 89: "readlink",
        96: "gettimeofday", 97: "getrlimit", 98: "getrusage", 99: "sysinfo", 131: "sigaltstack",
        137: "statfs", 157: "prctl", 158: "arch_prctl", 186: "gettid", 201: "time",
        203: "sched_setaffinity", 204: "sched_getaffinity", 228: "clock_gettime", 231: "exit_group",
        234: "tgkill", 237: "mbind", 238: "set_mempolicy", 239: "get_mempolicy", 257: "openat",
        262: "newfstatat", 267: "readlinkat", 302: "prlimit64", 309: "getcpu", 318: "getrandom",
        324: "membarrier", 329: "pkey_mprotect", 332: "statx", 334: "rseq", 435: "clone3",
        440: "process_madvise",
    },
    "aarch64": {
        56: "openat", 57: "close", 63: "read", 64: "write", 113: "clock_gettime",
        122: "sched_setaffinity", 123: "sched_getaffinity", 134: "rt_sigaction",
        135: "rt_sigprocmask", 160: "uname", 165: "getrusage", 167: "prctl", 168: "getcpu",
        172: "getpid", 178: "gettid", 179: "sysinfo", 220: "clone", 232: "mincore", 235: "mbind",
        236: "get_mempolicy", 261: "prlimit64", 278: "getrandom", 283: "membarrier", 293: "rseq",
        435: "clone3", 440: "process_madvise",
    },
}  # fmt: skip


def call_name(number: int, machine: str) -> str:
    """The name of a system call by its number; "syscall N" if _NAMES lacks the number."""
    return _NAMES.get(machine, {}).get(number, f"syscall {number}")


def as_counts(values: Any) -> Exact:
    """Converts an array of any integer type to one of Python integers."""
    import numpy as np

    return np.asarray(values, dtype=object)
