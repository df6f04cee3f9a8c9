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
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    import numpy as np
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
    "free", "free(NULL)", "operator delete", "operator delete[]", "malloc_usable_size",
    "malloc_trim",
)  # fmt: skip
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


class Path(Struct, frozen=True):
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
"""The most EVENTS that the probe counts at once."""

if TYPE_CHECKING:
    Exact = NDArray[np.object_]
    Floats = NDArray[np.float64]
State = Literal["running", "ended", "alive"]
"""The state of a process. The probe's file says "running" or "ended". `profile.window` replaces
"running" by "alive" if the process still runs at the end of the window."""
Seen = Literal["dispatch", "interpose", "unseen"]
"""The system calls of a process that the probe saw: all of them, by syscall user dispatch; only
those through libc's functions, which the probe interposes; or none."""
T = TypeVar("T", bound=Struct)


def _added(first: T, second: T) -> T:
    """Adds field by field. Fields named `most_…` get the larger of the two values."""
    import numpy as np

    adding = {
        name: np.maximum if name.startswith("most_") else operator.add
        for name in first.__struct_fields__
    }
    return type(first)(
        **{name: adding[name](getattr(first, name), getattr(second, name)) for name in adding}
    )


def _less(later: T, earlier: T) -> T:
    """Subtracts field by field. Fields named `most_…` are 0 (not known) unless they grew."""
    import numpy as np

    def between(name: str) -> Any:
        after, before = getattr(later, name), getattr(earlier, name)
        return np.where(after > before, after, 0) if name.startswith("most_") else after - before

    return type(later)(**{name: between(name) for name in later.__struct_fields__})


class Timed(Struct, frozen=True, eq=False):
    """The timed operations. Every field has one element for each of PATHS."""

    count: Exact
    """Number of operations that were timed without fences, as the program made them."""
    ticks: Exact
    """Total time of the operations in `count`."""
    clock_ticks: Exact
    """The part of `ticks` in which the clock was read."""
    most_ticks: Exact
    """The longest time of an operation in `count`."""
    alone: Exact
    """Number of operations that were timed between fences, so that the processor worked on nothing
    else. `count` does not contain them."""
    alone_ticks: Exact
    """Total time of the operations in `alone`."""
    alone_clock_ticks: Exact
    """The part of `alone_ticks` in which the clock was read."""
    switched: Exact
    """Number of timed operations in which the thread lost its processor and made no system call.
    Neither `count` nor `alone` contains them."""
    switched_ticks: Exact
    """Total time of the operations in `switched`."""
    kernel: Exact
    """Number of operations in `count` that made a system call."""
    kernel_ticks: Exact
    """The part of `ticks` in these system calls."""
    fault_operations: Exact
    """Number of operations whose page faults were counted. `count` contains only those of them that
    are on large blocks."""
    faults: Exact
    """The sum of the page faults of each operation in `fault_operations`."""
    faults_squared: Exact
    """The sum of the squared page faults of each operation in `fault_operations`."""
    event_operations: Exact
    """Number of operations whose events were counted. `count` contains only those of them that are
    on large blocks."""
    events: Exact
    """[PATHS, SLOTS]: the sum of the events of each operation in `event_operations`."""
    events_squared: Exact
    """[PATHS, SLOTS]: the sum of the squared events of each operation in `event_operations`."""
    buckets: Floats
    """[PATHS, BUCKETS]: a histogram of the times of the operations in `count`. NaN: the bucket is
    full, so its number is not known."""
    copies: Exact
    """The sum of the copies of the sampled operations. A free has several copies if its block came
    to stand for more blocks. Every other operation has one copy. All fields above count an
    operation once for each copy, except `switched` and `switched_ticks`. So each copy stands for
    the same number of operations."""
    squares: Exact
    """The sum of the squared numbers of copies of the sampled operations. It equals `copies` if
    every operation has one copy."""

    def once(self, column: Exact) -> Exact:
        """Estimates one of the fields above as if it counted each operation once.

        The field counts an operation once for each copy. The function divides it by the mean number
        of copies, weighted by the copies: squares / copies. This is at least the plain mean, so the
        estimate is rather too small.
        """
        import numpy as np

        return np.where(
            self.copies > 0, column * self.copies // np.maximum(self.squares, 1), column
        )

    def effect(self, places: Sequence[int]) -> float:
        """The factor by which copies increase the variance of an estimate from these PATHS.

        This is the design effect of unequal weights (Kish, Survey Sampling 1965). It is 1 if every
        operation has one copy.
        """
        copies, squares = (int(one[list(places)].sum()) for one in (self.copies, self.squares))
        return max(1.0, squares / copies) if copies else 1.0

    def __add__(self, other: Timed) -> Timed:
        return _added(self, other)

    def __sub__(self, other: Timed) -> Timed:
        return _less(self, other)


class Kernel(Struct, frozen=True, eq=False):
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


class Locks(Struct, frozen=True, eq=False):
    """The allocator's pthread locks. Every field has one element for each of LOCKS."""

    taken: Exact
    """Number of times that a thread took a lock."""
    refused: Exact
    """Number of trylocks that failed. They are not in `taken`."""
    contended: Exact
    """The part of `taken` for which the thread had to wait."""
    wait_ticks: Exact
    """Total time of the waits."""
    most_wait_ticks: Exact
    sections: Exact
    """Number of critical sections that were timed, which are a sample of all."""
    section_ticks: Exact
    """Total time of the critical sections that were timed."""
    most_section_ticks: Exact

    def __add__(self, other: Locks) -> Locks:
        return _added(self, other)

    def __sub__(self, other: Locks) -> Locks:
        return _less(self, other)


class LockCount(Struct, frozen=True):
    """One lock of the allocator in one process.

    The fields from `taken` on are those of src/record/lock_record.h.
    """

    name: str
    library: str
    """The file name of the library that contains the lock; "" for a lock in mapped memory."""
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


class Tally(Struct, frozen=True, eq=False):
    """Everything that can be summed over threads and processes."""

    span_ticks: int
    span_ns: int
    """The time for which the probe counted, summed over the processes. `span_ticks` and `span_ns`
    are the same time by two clocks, and their ratio is the length of a tick."""
    lived_ns: int
    """The time for which the probe counted, summed over the processes. In the profile of a window,
    it is only the part within the window. 0 if it is not known."""
    probe_ticks: int
    """The known part of the probe's own time: it reads the clock and intercepts system calls."""
    detour_ticks: int
    """The part of `probe_ticks` in which the probe intercepted system calls. Nearly all of it is
    system time."""
    threads_ticks: int
    """The life times of all threads, summed. In the profile of a window, this is an estimate: the
    length of the window times the largest number of threads at once. The time after the probe's
    last look at a process that did not end normally is estimated in the same way. 0 if the sum is
    not known."""
    calls: Exact
    """[ALLOCATING, PHASES, GROUPS]: the number of calls that allocate."""
    asked: Exact
    """[ALLOCATING, PHASES, GROUPS]: the bytes that the calls in `calls` requested."""
    released: Exact
    """[RELEASING, PHASES]: the number of calls of the functions in RELEASING."""
    fresh: Exact
    """[PHASES, GROUPS]: calls of malloc and operator new that were the first to get their memory
    after it came from the kernel."""
    fresh_others: Floats
    """[GROUPS]: the same for calls of all other functions that allocate; NaN if it is not known."""
    frees: Exact
    """[WHOSE, PHASES, GROUPS]: frees of blocks with a known owner. The owner of a block is the
    thread that allocated it. All numbers are 0 unless `Process.exact` is true."""
    cpu_samples: int
    """Number of samples of the threads' CPU time. A thread gets a sample at each tick of the kernel
    that finds it running."""
    cpu_samples_inside: Exact
    """[SAMPLED]: the part of `cpu_samples` that found the thread in the allocator."""
    cpu_samples_probe: int
    """The part of `cpu_samples` that found the thread in the probe."""
    failed: Exact
    """[ALLOCATING]: calls for one byte or more that returned NULL or an error."""
    late_calls: Exact
    """[FUNCTIONS]: calls by threads that were ending, or for which the file had no room. `calls`
    and `released` do not contain them, and their size group and phase are not known."""
    late_asked: Exact
    """[ALLOCATING]: the bytes that the calls in `late_calls` requested."""
    timed: Timed
    kernel: Kernel
    sealed_bytes: float
    """The bytes that were not writable after a call of mprotect; NaN if it is not known."""
    locks: Locks
    contended_locks: int
    """The number of different locks for which a thread waited."""
    other_calls: Counter[int]
    """The calls of kind "other" in CALLS, by system call number. The probe has room for 32
    numbers."""
    sizes: Floats
    """[SIZE_BUCKETS]: allocations by requested size. This field and the next five are estimated
    from a sample of the blocks: each sampled block counts as many times as its weight."""
    lives: Floats
    """[GROUPS, LIFE_BUCKETS]: freed blocks by the time from allocation to free."""
    freed: Floats
    """[GROUPS]: the number of freed blocks."""
    freed_elsewhere: Floats
    """[GROUPS]: the number of blocks that were freed by another thread than the allocating one."""
    usable_bytes: float
    """Usable bytes of the allocated blocks."""
    watched_bytes: float
    """Requested bytes of the blocks that `usable_bytes` covers."""

    def __add__(self, other: Tally) -> Tally:
        return _added(self, other)

    def __sub__(self, other: Tally) -> Tally:
        """The counts since `other`, which an earlier look at the same process gave.

        `span_ticks` and `span_ns` are those of the later look, because a longer time gives the
        length of a tick more exactly.
        """
        return replace(_less(self, other), span_ticks=self.span_ticks, span_ns=self.span_ns)


class MomentCalls(Struct, frozen=True):
    """How many system calls the allocator made until a moment, by what they are for."""

    memory: int
    """Calls that take, change or return memory: mmap, munmap, mremap, brk, mprotect, madvise."""
    waiting: int
    """Calls that wait or wake: futex, sched_yield and sleep."""
    other: int

    def __sub__(self, other: MomentCalls) -> MomentCalls:
        """The calls since `other`; none if `other` is later."""
        return MomentCalls(
            max(0, self.memory - other.memory),
            max(0, self.waiting - other.waiting),
            max(0, self.other - other.other),
        )


class Moment(Struct, frozen=True):
    """The memory of a process at one time. None means not known."""

    ns: int
    """Time since the process began; in a window, since the window began."""
    live_bytes: int
    """Requested bytes of the live blocks. They are always an estimate from a sample."""
    live_usable_bytes: int | None
    """Usable bytes of the live blocks: counted if `Process.live_counted`, otherwise an estimate."""
    live_error_bytes: int
    """The standard error of `live_bytes`."""
    held_bytes: int | None
    """Bytes that the allocator has from the kernel."""
    resident_bytes: int | None
    """Resident set of the process, without pages of files and of the probe; None without /proc."""
    unasked_bytes: int | None = None
    """Resident bytes of the allocator that never belonged to a block. Only extents of 2 MiB in
    which a block once lay are examined."""
    unwritten_bytes: int | None = None
    """The part of `unasked_bytes` that reads as zero, estimated from a sample."""
    huge_bytes: int | None = None
    """Bytes of the process in huge pages."""
    own_bytes: int | None = None
    """Resident bytes of the allocator in the extents of 2 MiB in which a block once lay."""
    calls: MomentCalls | None = None
    """The system calls of the allocator since the process began; in a window, since the window
    began."""

    @property
    def slack_bytes(self) -> int | None:
        """Usable size of the live blocks beyond their requested bytes."""
        return (
            None
            if self.live_usable_bytes is None
            else max(0, self.live_usable_bytes - self.live_bytes)
        )


class Peak(Struct, frozen=True):
    """The highest number of bytes that were live at once, and the ends of its interval."""

    bytes: int
    low: int
    high: int


class Process(Struct, frozen=True):
    """One program image of a process. Each exec begins a new image."""

    pid: int
    parent: int
    program: str
    allocator: str
    state: State
    seen: Seen
    """The system calls of this process that the probe saw."""
    seen_errno: int
    """The errno value that says why syscall user dispatch was refused. It is 0 if dispatch worked
    or was not tried, and EBUSY if some thread of the program uses it itself."""
    gap: int
    """One allocation in `gap` is timed, on average."""
    exact: bool
    """Whether every free was counted as local or remote. Otherwise, only timed frees were."""
    timer_ns: int
    """CPU time between two samples of a thread by the probe's timers; 0 if there were no timers."""
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
    """The time at which the probe last looked at the clock. `begin_ns` and `end_ns` are times of
    one clock, which all processes share."""
    threads: int
    """Number of threads that allocated or were seen to start."""
    threads_most: int
    """The most threads at once."""
    threads_lost: int
    """Number of threads that were not counted, because the file could not grow."""
    cpu_ns: int
    """User and system time of the process. This field and the next three cover all images of the
    process, not only this one. They are those of the probe's last look at the process. A value of 0
    means not known."""
    minor_faults: int
    major_faults: int
    peak_resident_bytes: int | None
    """The highest resident set of the process, without the probe's own; None if not known."""
    live_counted: bool
    """Whether the probe counted the live bytes. Otherwise it estimated them from a sample."""
    peak_requested: Peak | None
    """The requested bytes of the live blocks at their peak. None if there is no estimate."""
    peak_usable: Peak | None
    """The usable bytes of the live blocks at their peak. None if they were not counted."""
    held_bytes: int = 0
    """The most bytes that the allocator had from the kernel at one time, as far as is known. In the
    profile of a whole life, it is at least the peak of the live bytes, if these were counted."""
    held_counted: bool = False
    """Whether `held_bytes` is the exact maximum, counted at each system call. There are three cases
    in which it is not exact. Without dispatch, direct system calls are not seen. If fewer bytes
    were counted than were live, some system calls were not seen, and `held_bytes` is the peak of
    the live bytes. In a file of version 8, and in a window in which the maximum did not grow,
    `held_bytes` comes from recorded moments."""
    held_is_least: bool = False
    """Whether the allocator may have held more than `held_bytes` at one time."""
    shrunk_bytes: int = 0
    """The bytes by which `brk` shrank the heap, or less: see `held_memory.shrunk_bytes`."""
    grown_bytes: int | None = None
    """In the profile of a window: the growth of the resident set within it, or more. None if the
    whole life of the process was counted."""
    locks: tuple[LockCount, ...] = ()
    ended_unix_ns: int = 0
    """`end_ns` as nanoseconds since 1970 (Unix time); 0 if it is not known."""
    forked: bool = False
    """Whether the process began by fork, so that it has blocks of its parent."""
    asked_bytes: int | None = 0
    """The bytes that its calls requested in its whole life. None if a call failed, because the
    bytes of that call are among them, and their number is not known."""

    @property
    def peak_live_bytes(self) -> int:
        """The requested bytes of the live blocks at their peak; 0 if there is no estimate."""
        return self.peak_requested.bytes if self.peak_requested is not None else 0


class Window(Struct, frozen=True):
    """The part of a program's life that a profile covers.

    `begin_ns` and `end_ns` are times of the same clock as `Process.begin_ns`.
    """

    begin_ns: int
    end_ns: int
    after_ns: int
    """Time from the start of the program to the start of the window."""
    missing: tuple[Missing, ...] = ()
    """The known processes that ran in the window and are not in the profile."""
    processors: float | None = None
    """The number of processors that the program may use. A CPU limit can make it a fraction. It is
    None if it is not known."""


Scope = Literal["processors", "threads", "threads in user mode", "timers"]
"""The source of the clock samples of a run, the best one first:

- "processors": a perf event on each processor.
- "threads": a perf event on each thread. Its period begins anew with each thread.
- "threads in user mode": a perf event on each thread, which takes no samples in the kernel.
- "timers": the probe's timer of CPU time in each thread. The kernel checks such a timer only at its
  ticks.
"""


class FunctionTime(Struct, frozen=True):
    """The CPU time of one function of the allocator, or of a library that it called."""

    name: str
    """The function's name; "library+offset" if the library has no name for it."""
    library: str
    """The file name of the library."""
    samples: int
    """The number of clock samples in the function."""
    ns: float
    """The sum of the periods of these samples, which estimates the function's CPU time."""
    squares: float
    """The sum of the squared periods of these samples, for the error of `ns`."""


class ClockRun(Struct, frozen=True):
    """The CPU time of one run by its clock samples, divided by the place of each sample.

    A sample counts for its period, which is the CPU time since the sample before.
    """

    probed: bool
    """Whether the probe was loaded in this run."""
    scope: Scope
    samples: int
    """The number of samples outside the probe."""
    own_ns: float
    """Time in the allocator's code, or in a library that the allocator called. With the scope
    "timers", the allocator's time in the kernel is here, too."""
    calls_ns: float = 0.0
    """Time in system calls of the allocator."""
    faults_ns: float = 0.0
    """Time in page faults within the allocator."""
    program_ns: float = 0.0
    """Time in the program itself: in none of the other places."""
    probe_ns: float = 0.0
    """Time in the probe, or in the kernel because of the probe."""
    unknown_ns: float = 0.0
    """Time of samples at addresses of no known file, and of samples that the kernel lost."""
    inside_squares: float = 0.0
    """The sum of the squared periods of the samples in the allocator."""
    squares: float = 0.0
    """The sum of the squared periods of all samples outside the probe."""
    cpu_ns: float = 0.0
    """User and system time of the run by the kernel's account; 0 if it is not known."""
    interrupts_ns: float | None = None
    """Time in interrupts that came while the allocator ran. It is None if such interrupts cannot be
    told from other kernel code. Their time is then in the other fields, mostly in `faults_ns`."""
    interrupts_unseen: str = ""
    """Why `interrupts_ns` is None, as the end of a sentence; empty if it is not None."""
    functions: tuple[FunctionTime, ...] = ()
    """The functions whose times make up `own_ns`, the costliest first; empty with the scope
    "timers"."""
    page_faults_ns: float | None = None
    """Time in page faults of the allocator and of the program. Those of the program are also in
    `program_ns`. None if the clock samples do not tell page faults from other time. A run of an
    earlier version also has None."""

    @property
    def inside_ns(self) -> float:
        """The time in the allocator."""
        return self.own_ns + self.calls_ns + self.faults_ns + (self.interrupts_ns or 0.0)

    @property
    def whole_ns(self) -> float:
        """The CPU time of the run, without the time in the probe."""
        return self.inside_ns + self.program_ns + self.unknown_ns


class KernelClock(Struct, frozen=True):
    """The runs of a program for which perf events took clock samples, the profiled run first."""

    runs: tuple[ClockRun, ...] = ()
    why_not: str = ""
    """Why there are no clock samples, as the end of a sentence."""
    is_unlike: bool = False
    """Whether the runs after the profiled one differed from it: they used much more or much less
    CPU time, or ended in another way. `runs` then has only the profiled run."""
    unsampled: str = ""
    """Why a run after the profiled one could not be sampled, as the end of a sentence. `runs` then
    has only the runs before that one. `unsampled` is empty if there was no such run."""


class Missing(Struct, frozen=True):
    """A process that could not be recorded."""

    pid: int
    """0 if only the number of such processes is known."""
    program: str
    why: str
    """Why the process has no record. This is the errno name of the error that prevented its file,
    such as "EFBIG", or a reason of model.Unreached if the probe was not in the process."""


class Tree(Struct, frozen=True):
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
    """The runs with clock samples; None if no clock samples were wanted."""
    layout: bool = False
    """Whether the layout of blocks was wanted."""
    processors: float | None = None
    """The number of processors that the program may use; None if it is not known."""


class ProcessProfile(Struct, frozen=True, eq=False):
    """The content of one of the probe's files."""

    process: Process
    tally: Tally
    moments: tuple[Moment, ...]


class Profile(Struct, frozen=True, eq=False):
    """All of the probe's files of one run of a program, added up."""

    processes: tuple[Process, ...]
    """The program images of all processes, in the order in which they began; at least one."""
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
    """The content of the folder's `run.json`; None if the folder has none."""
    clock: KernelClock | None = None
    """The runs with clock samples; None if no clock samples were wanted."""
    layout: Layout | None = None
    """The layout of blocks in the process with the most live bytes; None if not recorded."""
    layout_problem: str | None = None
    """Why the file of this layout cannot be read, as a sentence; None if there was no problem."""
    layout_missing: str | None = None
    """Why there is no layout, as the end of a sentence; None if there is one, or if none was
    wanted."""
    stacks: tuple[StacksFile, ...] = ()
    """The call stacks of allocations, one file for each process that recorded some."""
    stacks_problem: str | None = None
    """Why a file of call stacks cannot be read, as a sentence; None if there was no problem."""
    largest_tally: Tally | None = None
    """The counts of the process with the most live bytes. None if there is only this process."""

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The processes that are not in the profile, as far as they are known."""
        if self.window is not None:
            return self.window.missing
        return self.tree.missing if self.tree is not None else ()

    @property
    def largest(self) -> Process:
        """The process with the most live bytes. `self.moments` has the moments of this process."""
        return max(self.processes, key=lambda process: process.peak_live_bytes)

    @property
    def counts_of_largest(self) -> Tally:
        """The counts of the process `largest`."""
        return self.tally if self.largest_tally is None else self.largest_tally

    @property
    def wall_ns(self) -> int:
        """From the program's start to its end; for a window, its length.

        The launcher measures the start and the end. The probe alone would miss the time before it
        is loaded, which the kernel counts as CPU time of the program. Without the launcher's times,
        this is the time from the probe's start to its last look.
        """
        if self.window is not None:
            return self.window.end_ns - self.window.begin_ns
        seen_ns = max(p.end_ns for p in self.processes) - self.processes[0].begin_ns
        return max(seen_ns, (self.tree.wall_ns or 0) if self.tree is not None else 0)

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
    """The processes whose file was never completed, because they did not end normally.

    Such a process was killed, or ended by a direct system call. A process in `missing` is not among
    them: its file ends where the process executed the program that could not be recorded.
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


def as_counts(values: Any) -> Exact:
    """Converts an array of any integer type to one of Python integers."""
    import numpy as np

    return np.asarray(values, dtype=object)
