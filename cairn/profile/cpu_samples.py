"""Splits the CPU time of a run by the kernel's clock samples.

'cairn-launch --cpu-samples' writes the samples. After each period of CPU time, the kernel notes
which thread a processor runs, the thread's address, and the top of its stack. The file of samples
also says which files are mapped where. `read` and `split` count the samples of the run's processes:

    own        in the allocator's file, or in a library that the allocator called (such as memset or
               a lock in libc)
    calls      in a system call that the allocator made, itself or through such a library. While
               the kernel enters or leaves a system call, interrupts are turned off. A sample has to
               wait until the call is over, so one at the instruction after the call counts here
    faults     in the kernel outside any system call: page faults and interrupts
    others     like `calls`, for the program's system calls; and its exit
    program    all other samples in user mode
    interrupts in the kernel, in an interrupt. Interrupts may come at any place. If the kernel's
               chains of calls do not show them, their samples count for the places at which they
               came, and most of them are then among the faults. In the first part of an interrupt,
               the kernel has turned interrupts off. A sample has to wait until this part is over,
               so it also counts for the place at which the interrupt came
    unknown    at an address that belongs to no known file; or in the kernel, if the calling file
               cannot be read or the program is a 32-bit one

The caller of a library is the nearest return address on the stack that lies outside these
libraries. An allocator may jump to a library as its last action, so that its own address is not on
the stack: free() often ends so with munmap(), and calloc() with memset(). The return address is
then that of the call of free(), and the allocator is the caller, too.

The unwind tables of the libraries lead to the return addresses. If they lead beyond the copy of the
stack, the caller is not known, and the library works for the program. A library without a table has
to be searched: the words at the top of its stack are examined, and one of them may be the return
address of an earlier call. glibc and the vDSO have tables, musl has none.

`read` needs no library in the program. So threads contend for locks as often as they do without a
measurement. With the probe in the program, they would contend more or less often
(docs/decisions/0027-parts-from-the-kernel-clock.md).

`clocked` weighs the samples of a run by their periods, for the allocator's share of CPU time. If a
run is long, the launcher keeps only one of 2^n samples, which then has 2^n times the weight. The
program of such a run may have the probe loaded. The probe's work is then a part of its own:

    probe      in the files of the probe and the witness, also in the kernel on their behalf. A
               system call that the probe makes for the allocator counts as the allocator's, and the
               probe makes it at an address of its own (src/probe/direct_syscall.c). The signal that
               replaces the allocator's system call is the probe's
"""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, field

from cairn.clock_samples import NO_ROOM, AtomicSamples, CpuSamples, FunctionSamples
from cairn.profile import kernel_entries, symbols
from cairn.profile.address_space import Space
from cairn.profile.atomic_code import atomic_at
from cairn.profile.code_owners import AllocatorCode, NotKnown, Owner
from cairn.profile.function_names import Names
from cairn.profile.tally import ClockRun, FunctionTime, Scope
from cairn.profile.unwind import BP, IP, SP, Unwinder

TEMPORARY_PREFIX = "cairn-"
"""The beginning of the name of a temporary folder of this command."""
MAGIC = 0x0574626172656877
MARK, PERIOD = 1 << 16, (1 << 16) + 1
"""The kinds of two records that the kernel does not write: a mark, and a change of the period. The
launcher writes a mark each time it has written the new records of all processors. The records of
different processors are not in order of their times. But every record after a mark is at least as
new as all records before the previous mark. `InOrder` relies on this."""
_TOO_MANY = 1 << 16
"""The error in the head of a file that would have grown beyond the launcher's limit."""
TOO_MANY = "the clock samples would have filled a file beyond Cairn's limit of 1 GiB"
"""The reason of this error, as the end of a sentence."""
_THINNING_SHIFT, _THINNING_MOST = 8, 31
"""The place of five bits in the `misc` of a sample. If they are n, the launcher kept one of 2^n
samples at this time, so the sample stands for so many."""
_HEAD = struct.Struct("<QQIIII")
_SCOPES: tuple[Scope, ...] = ("processors", "threads", "threads in user mode")
_RECORD = struct.Struct("<IHH")
_LOST, _COMM, _THROTTLED, _FORK, _SAMPLE, _MMAP2 = 2, 3, 5, 7, 9, 10
_MODE, _IN_KERNEL = 7, 1
_EXECUTED = 1 << 13
_AT = struct.Struct("<QIIQQQ")
"""The start of a sample: address, process, thread, time, period, and length of its chain of calls
in the kernel. The chain follows, and then the rest of the sample."""
_REST = struct.Struct("<Q")
"""The width of the thread's registers: 0 for none, 1 for 32 bits, 2 for 64 bits."""
_THROTTLED_NS = 10_000_000
"""The most time for which the kernel stops a throttled clock: the longest tick of the kernel."""
_REGISTERS = struct.Struct("<QQQQ")
"""The thread's frame pointer, stack pointer and instruction pointer in user mode, and the number of
stack bytes that follow."""
_MAPPED = struct.Struct("<IIQQQIIQQII")
_WIDE = 2
_WORD_BYTES = 8
_WORDS, _WORDS_CALLING = 8, 32
"""How many words of the stack are searched for the caller of a library without an unwind table: in
user mode, and in a system call. The limit is higher in a system call, because functions that sleep
have large frames. It is lower in user mode, because a large frame there may hold return addresses
of earlier calls."""
_UNCHAINED_MOST = 0.1
"""The most samples in the kernel, as a share, whose chains of calls may be incomplete. If there are
more, nothing is known of interrupts."""
_FUNCTIONS_KEPT = 30
"""The most functions that are stored with a trial."""
_READ_BYTES = 1 << 20
_DAMAGED = "the clock samples are damaged"

Record = tuple[int, int, bytes]
"""The kind of a record, its flags (`misc`), and its content."""


class Spot(Enum):
    """A place in which a run spends CPU time. The beginning of this file describes the places."""

    OWN = 1
    CALLS = 2
    OWN_FAULTS = 3
    """Like FAULTS, in the allocator's code or in a library that it called."""
    FAULTS = 4
    OTHERS = 5
    PROGRAM = 6
    PROBE = 7
    UNKNOWN = 8


def read(path: Path, allocator: AllocatorCode) -> tuple[CpuSamples | None, str]:
    """The split of a run's CPU time and "", or None and the reason as the end of a sentence."""
    try:
        with path.open("rb") as file:
            return split(file, allocator)
    except OSError as error:
        return None, f"the clock samples cannot be read: {error.strerror}"


def split(file: BinaryIO, allocator: AllocatorCode) -> tuple[CpuSamples | None, str]:
    """Like `read`, for an open file."""
    found, why = _counted(file, allocator)
    if found is None:
        return None, why
    if found.lost_ns:
        return None, found.loss
    unseen = found.interrupts_unseen
    came = found.interrupts if not unseen else Counter[Spot]()
    counts = {place: found.samples[place] - came[place] for place in Spot}
    return CpuSamples(
        found.period_ns,
        counts[Spot.OWN],
        counts[Spot.CALLS],
        counts[Spot.OWN_FAULTS] + counts[Spot.FAULTS],
        counts[Spot.OTHERS],
        counts[Spot.PROGRAM] + counts[Spot.PROBE],
        counts[Spot.UNKNOWN],
        interrupts=None if unseen else came.total(),
        interrupts_unseen=unseen,
        functions=tuple(
            FunctionSamples(one.name, one.library, one.samples)
            for one in found.functions()[:_FUNCTIONS_KEPT]
        ),
        atomics=found.atomics()[:_FUNCTIONS_KEPT],
    ), ""


def clocked(
    path: Path,
    allocator: AllocatorCode,
    *,
    probed: bool,
    dispatched: Collection[int] = (),
    between: tuple[int, int] | None = None,
) -> tuple[ClockRun | None, str]:
    """Returns the parts of a run's CPU time, weighted by the periods of the samples, and "".

    If they are not known, returns None and the reason.

    probed: whether the probe was loaded.
    dispatched: the ids of the processes whose system calls the probe dispatched.
    between: only samples between these two times of CLOCK_MONOTONIC count; None for all samples.
    """
    try:
        with path.open("rb") as file:
            found, why = _counted(file, allocator, dispatched, between)
    except OSError as error:
        return None, f"the clock samples cannot be read: {error.strerror}"
    return (None, why) if found is None else (run_of(found, probed=probed), "")


def run_of(found: SampleCounts, *, probed: bool) -> ClockRun:
    """The parts of the CPU time that was counted. Each sample has the weight of its period."""
    unseen = found.interrupts_unseen
    came = dict.fromkeys(Spot, 0.0) if unseen else found.interrupts_ns
    ns = {place: found.ns[place] - came[place] for place in Spot}
    seen = [place for place in Spot if place is not Spot.PROBE]
    inside = (Spot.OWN, Spot.CALLS, Spot.OWN_FAULTS)
    return ClockRun(
        probed=probed,
        scope=found.scope,
        samples=sum(found.samples[place] for place in seen),
        own_ns=ns[Spot.OWN],
        calls_ns=ns[Spot.CALLS],
        faults_ns=ns[Spot.OWN_FAULTS],
        program_ns=sum(found.ns[place] for place in (Spot.PROGRAM, Spot.FAULTS, Spot.OTHERS)),
        probe_ns=found.ns[Spot.PROBE],
        unknown_ns=found.ns[Spot.UNKNOWN] + found.lost_ns,
        inside_squares=sum(found.squares[place] for place in inside),
        squares=sum(found.squares[place] for place in seen),
        interrupts_ns=None if unseen else sum(came[place] for place in inside),
        interrupts_unseen=unseen,
        functions=found.functions(),
        page_faults_ns=None
        if unseen or found.scope == "threads in user mode"
        else ns[Spot.OWN_FAULTS] + ns[Spot.FAULTS],
    )


def _not_written(file: BinaryIO, error: int) -> str:
    """Why the launcher gave up writing the clock samples, as the end of a sentence."""
    folder = os.path.dirname(str(getattr(file, "name", "")))
    if os.path.basename(folder).startswith(TEMPORARY_PREFIX):
        folder = os.path.dirname(folder)
    place = f" in {folder}" if folder else ""
    return f"the clock samples could not be written{place}: {os.strerror(error)}"


def _counted(
    file: BinaryIO,
    allocator: AllocatorCode,
    dispatched: Collection[int] = (),
    between: tuple[int, int] | None = None,
) -> tuple[SampleCounts | None, str]:
    found, why = _begun(file, allocator, dispatched, between)
    if found is None:
        return None, why
    try:
        for kind, misc, body in ordered(_records(file, growing=between is not None)):
            found.add(kind, misc, body)
    except NotKnown as not_known:
        return None, str(not_known)
    except (struct.error, ValueError):
        return None, _DAMAGED
    return found, ""


def _begun(
    file: BinaryIO,
    allocator: AllocatorCode,
    dispatched: Collection[int],
    between: tuple[int, int] | None,
) -> tuple[SampleCounts | None, str]:
    """Reads the head of the file. Returns counts of 0 and "", or None and the reason."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None, _not_written(file, errno.ENOSPC)
    magic, period_ns, pid, error, scope, _ = _HEAD.unpack(head)
    if magic != MAGIC:
        return None, "the clock samples have another version"
    if error == _TOO_MANY:
        return None, TOO_MANY
    if error in (*NO_ROOM, errno.EFBIG, errno.EIO, errno.EROFS):
        return None, _not_written(file, error)
    if error:
        return None, f"the kernel does not allow clock samples here: {os.strerror(error)}"
    if scope >= len(_SCOPES):
        return None, _DAMAGED
    scope_name, known = _SCOPES[scope], frozenset(dispatched)
    return SampleCounts(allocator, pid, period_ns, scope_name, known, between), ""


class GrowingSamples:
    """The clock samples of a program that still runs. Each look reads only what is new in the file.

    The samples of the last moments count at the next look: see `InOrder`.
    """

    def __init__(self, path: Path, allocator: AllocatorCode) -> None:
        self._path, self._allocator = path, allocator
        self._counts: SampleCounts | None = None
        self._offset = 0
        self._order = InOrder()
        self._failed = ""
        """Why the samples cannot be interpreted, also at later looks."""

    def look(
        self, dispatched: Collection[int], is_over: Callable[[], bool]
    ) -> tuple[ClockRun | None, str]:
        """Like `clocked` for a run with the probe, for the samples until now.

        is_over: returns whether the look ends now, without the rest of the samples.
        """
        if self._failed:
            return None, self._failed
        try:
            with self._path.open("rb") as file:
                # The head also says whether the launcher has given up meanwhile.
                begun, why = _begun(file, self._allocator, dispatched, None)
                if begun is None:
                    return None, why
                counts = self._counts = self._counts or begun
                counts.dispatched = begun.dispatched
                self._offset = max(self._offset, file.tell())
                self._read(file, counts, is_over)
        except OSError as error:
            return None, f"the clock samples cannot be read: {error.strerror}"
        except NotKnown as not_known:
            self._failed = str(not_known)
        except (struct.error, ValueError):
            self._failed = _DAMAGED
        return (None, self._failed) if self._failed else (run_of(counts, probed=True), "")

    def _read(self, file: BinaryIO, counts: SampleCounts, is_over: Callable[[], bool]) -> None:
        size = 1
        while size and not is_over():
            file.seek(self._offset)
            size = 0
            for record in _records_of(file.read(_READ_BYTES)):
                size += _RECORD.size + len(record[2])
                for one in self._order.ready(record):
                    counts.add(*one)
            self._offset += size


class SampleCounts(Struct):
    """Counts the samples while the records are read in order of their times."""

    allocator: AllocatorCode
    root: int
    """The id of the first process. Its samples before it executes the program do not count."""
    period_ns: int
    """The present period of the processors' clocks, or of the first thread's clock."""
    scope: Scope
    dispatched: frozenset[int]
    between: tuple[int, int] | None
    samples: Counter[Spot] = field(default_factory=Counter)
    ns: dict[Spot, float] = field(default_factory=lambda: dict.fromkeys(Spot, 0.0))
    """The sum of the periods of the samples, in nanoseconds."""
    squares: dict[Spot, float] = field(default_factory=lambda: dict.fromkeys(Spot, 0.0))
    """The sum of the squares of the periods of the samples."""
    interrupts: Counter[Spot] = field(default_factory=Counter)
    """The samples in interrupts, by the places at which the interrupts came."""
    interrupts_ns: dict[Spot, float] = field(default_factory=lambda: dict.fromkeys(Spot, 0.0))
    """The sum of the periods of the samples in interrupts."""
    chained: Counter[bool] = field(default_factory=Counter)
    """The samples in the kernel, by whether their call chains show how the thread entered the
    kernel."""
    lost_ns: float = 0.0
    """At most this much CPU time has no samples, because the kernel lost or stopped them."""
    is_changed: bool = False
    """Whether the period has changed."""
    loss: str = ""
    """Why `lost_ns` is not 0, as the end of a sentence."""
    unwinder: Unwinder = field(default_factory=Unwinder)
    spaces: dict[int, Space] = field(default_factory=dict)
    """The mappings of the program's processes, by process id. The file also has samples of other
    processes, which do not count."""
    code: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """The samples of OWN, by file and offset. The three values are the number of samples, the sum
    of their periods, and the sum of the squares of these periods."""

    names: Names = field(default_factory=Names)
    """The names of functions. They are kept here so that each file is read only once, although a
    live screen gets the names again each second."""

    def add(self, kind: int, misc: int, body: bytes) -> None:
        """Processes the next record. Raises NotKnown if a library cannot be interpreted."""
        if kind == _SAMPLE:
            of = 1 << (misc >> _THINNING_SHIFT & _THINNING_MOST)
            self._sample(body, of, in_kernel=misc & _MODE == _IN_KERNEL)
        elif kind == PERIOD:
            (self.period_ns,) = struct.unpack_from("<Q", body)
            self.is_changed = True
        elif kind == _LOST:
            self.lost_ns += struct.unpack_from("<QQ", body)[1] * self.period_ns
            self.loss = "the kernel lost clock samples"
        elif kind == _THROTTLED:
            self.lost_ns += _THROTTLED_NS
            self.loss = "the kernel throttled its clock"
        elif kind == _FORK:
            pid, parent = struct.unpack_from("<II", body)
            if pid != parent and parent in self.spaces:
                self.spaces[pid] = self.spaces[parent].copy()
            elif pid != parent:
                self.spaces.pop(pid, None)
        elif kind == _COMM and misc & _EXECUTED:
            (pid,) = struct.unpack_from("<I", body)
            if pid == self.root or pid in self.spaces:
                self.spaces[pid] = Space()
        elif kind == _MMAP2:
            pid, _, start, size, offset, *_ = _MAPPED.unpack_from(body)
            if pid in self.spaces:
                path = os.fsdecode(body[_MAPPED.size : body.index(b"\0", _MAPPED.size)])
                self.spaces[pid].put(start, size, offset, path)

    @property
    def interrupts_unseen(self) -> str:
        """Why interrupts cannot be told apart, as the end of a sentence; empty if they can."""
        if self.scope == "threads in user mode":
            return "the clock does not see the kernel"
        _, why = kernel_entries.known()
        if not why and self.chained[False] > _UNCHAINED_MOST * self.chained.total():
            return "the kernel gave no chains of calls"
        return why

    def functions(self) -> tuple[FunctionTime, ...]:
        """The functions in which the samples of OWN lie; the one with the most time comes first."""
        names = self.names
        by_name: dict[tuple[str, str], list[float]] = {}
        for (path, offset), weights in self.code.items():
            key = names.function(path, offset), os.path.basename(path)
            before = by_name.get(key, [0, 0.0, 0.0])
            by_name[key] = [one + other for one, other in zip(before, weights, strict=True)]
        found = [FunctionTime(*key, int(of[0]), of[1], of[2]) for key, of in by_name.items()]
        return tuple(sorted(found, key=lambda one: (-one.ns, one.name)))

    def atomics(self) -> tuple[AtomicSamples, ...]:
        """The samples at atomic instructions and pauses of the allocator's own files, by function.

        Libraries that the allocator called are left out: their locks are counted by the probe.
        """
        names, variables = Names(), Names(kinds=symbols.VARIABLES)
        atomic: Counter[tuple[str, str]] = Counter()
        pauses: Counter[tuple[str, str]] = Counter()
        words: dict[tuple[str, str], Counter[str]] = {}
        for (path, offset), (samples, *_) in self.code.items():
            if self.allocator.owner(path, offset) is not Owner.ALLOCATOR:
                continue
            found = atomic_at(path, offset)
            if found is None:
                continue
            function = names.function(path, offset), os.path.basename(path)
            (pauses if found.is_pause else atomic)[function] += int(samples)
            if found.address is not None:
                word = variables.variable(path, found.address)
                words.setdefault(function, Counter())[word] += int(samples)
        by_function = [
            AtomicSamples(
                *function,
                words[function].most_common(1)[0][0] if function in words else "",
                atomic[function],
                pauses[function],
            )
            for function in atomic.keys() | pauses.keys()
        ]
        return tuple(sorted(by_function, key=lambda one: (-one.atomic - one.pauses, one.function)))

    def _sample(self, body: bytes, of: int, *, in_kernel: bool) -> None:
        """Counts a sample. It stands for `of` samples, because the launcher left out the others."""
        _, pid, thread, when, period_ns, _ = _AT.unpack_from(body)
        space = self.spaces.get(pid)
        if space is None:
            return
        if self.between is not None and not self.between[0] <= when < self.between[1]:
            return
        place = self._place(body, space, pid in self.dispatched, in_kernel)
        # In each sample, the kernel writes the first period of its clock, even after a change. The
        # clocks of all threads but the first never change their period.
        if self.scope == "processors" or (thread == self.root and self.is_changed):
            period_ns = self.period_ns
        period_ns *= of
        self.samples[place] += 1
        if place is Spot.OWN and (at := space.place(_AT.unpack_from(body)[0])) is not None:
            weights = self.code.setdefault(at, [0, 0.0, 0.0])
            for index, weight in enumerate((1, period_ns, period_ns * period_ns)):
                weights[index] += weight
        if in_kernel:
            way = kernel_entries.way(_chain(body))
            self.chained[way is not None] += 1
            if way is kernel_entries.Way.INTERRUPT:
                self.interrupts[place] += 1
                self.interrupts_ns[place] += period_ns
        self.ns[place] += period_ns
        self.squares[place] += period_ns * period_ns

    def _place(self, body: bytes, space: Space, is_dispatched: bool, in_kernel: bool) -> Spot:
        address, *_, length = _AT.unpack_from(body)
        at = _AT.size + length * _WORD_BYTES
        (width,) = _REST.unpack_from(body, at)
        at += _REST.size
        thread = _Thread()
        called: bool | None = True  # without registers, a thread exits
        returned = False  # from a system call
        if width == _WIDE:
            thread = _Thread.of(body, at)
            called = space.called(thread.here)
            returned = not in_kernel and called is True and not space.is_vdso(thread.here)
        if not in_kernel and not returned:
            return _IN_USER_MODE[self._owner(space, address, thread, _WORDS)]
        if called is None or width not in (0, _WIDE):
            return Spot.UNKNOWN
        owner = self._owner(space, thread.here, thread, _WORDS_CALLING if called else _WORDS)
        if owner is Owner.PROBE:
            return Spot.CALLS if space.calls_for_allocator(thread.here) else Spot.PROBE
        if not called:
            return Spot.OWN_FAULTS if owner is Owner.ALLOCATOR else Spot.FAULTS
        if owner is not Owner.ALLOCATOR:
            return Spot.OTHERS
        # The kernel replaces a dispatched system call by a signal. The probe's handler of this
        # signal then makes the call.
        return Spot.PROBE if is_dispatched else Spot.CALLS

    def _owner(self, space: Space, address: int, thread: _Thread, most: int) -> Owner | None:
        """The owner of the code at `address`, where the thread is.

        For a library's code, it is the owner of the library's caller, if the caller is known. If no
        unwind table leads to it, it is searched in the first `most` words of the stack.
        """
        owner = space.owner(address, self.allocator)
        if owner is not Owner.LIBRARY:
            return owner
        frames: Iterable[int] = thread.words(most)
        if thread.registers and self.unwinder.knows(space, address):
            frames = self.unwinder.walk(space, thread.registers, thread.stack)
        return space.caller(address, frames, self.allocator) or owner


class _Thread(Struct, frozen=True):
    """The state of a sampled thread in user mode: some registers, and the top of its stack."""

    registers: Mapping[int, int] = {}
    """By their numbers in perf events."""
    stack: bytes = b""
    """The bytes from the stack pointer on that the kernel could read."""

    @staticmethod
    def of(body: bytes, at: int) -> _Thread:
        """Reads the state, which begins at the place `at` of a sample."""
        bp, sp, ip, size = _REGISTERS.unpack_from(body, at)
        at += _REGISTERS.size
        there = min(size, struct.unpack_from("<Q", body, at + size)[0]) if size else 0
        return _Thread({BP: bp, SP: sp, IP: ip}, body[at : at + there])

    @property
    def here(self) -> int:
        """The address of the next instruction in user mode; 0 without registers."""
        return self.registers.get(IP, 0)

    def words(self, most: int) -> tuple[int, ...]:
        """At most `most` words from the top of the stack."""
        count = min(len(self.stack) // _WORD_BYTES, most)
        return struct.unpack_from(f"<{count}Q", self.stack)


_IN_USER_MODE: dict[Owner | None, Spot] = {
    Owner.ALLOCATOR: Spot.OWN,
    Owner.LIBRARY: Spot.PROGRAM,
    Owner.PROGRAM: Spot.PROGRAM,
    Owner.PROBE: Spot.PROBE,
    None: Spot.UNKNOWN,
}


def _chain(body: bytes) -> tuple[int, ...]:
    """The return addresses in the kernel, the innermost first."""
    *_, length = _AT.unpack_from(body)
    return struct.unpack_from(f"<{length}Q", body, _AT.size)


class InOrder:
    """Puts records into the order of their times. Records of the same time keep their order.

    The launcher repeatedly writes the new records of all processors, one processor after another,
    and then a mark. No record after a mark can be older than a record before the previous mark. So
    at each mark, all records up to the newest one before the previous mark can be returned. Newer
    records are held until a later mark.
    """

    def __init__(self) -> None:
        self._held: list[tuple[int, Record]] = []
        self._before = self._youngest = 0

    def ready(self, record: Record) -> list[Record]:
        """Takes the next record. Returns the records that no later one can precede."""
        kind, _, body = record
        if kind != MARK:
            when = (
                _AT.unpack_from(body)[3]
                if kind == _SAMPLE
                else struct.unpack_from("<Q", body, len(body) - 8)[0]
            )
            self._youngest = max(self._youngest, when)
            self._held.append((when, record))
            return []
        self._held.sort(key=lambda one: one[0])
        count = bisect_right(self._held, self._before, key=lambda one: one[0])
        found = [one for _, one in self._held[:count]]
        del self._held[:count]
        self._before = self._youngest
        return found

    def rest(self) -> list[Record]:
        """Returns the records that are held, after the last record was taken."""
        self._held.sort(key=lambda one: one[0])
        return [one for _, one in self._held]


def ordered(records: Iterable[Record]) -> Iterator[Record]:
    """Yields the records in order of their times."""
    order = InOrder()
    for record in records:
        yield from order.ready(record)
    yield from order.rest()


def _records(file: BinaryIO, *, growing: bool = False) -> Iterator[Record]:
    """The records of the file. A growing file may end within a record."""
    data = b""
    while more := file.read(_READ_BYTES):
        data, at = data + more, 0
        for record in _records_of(data):
            yield record
            at += _RECORD.size + len(record[2])
        data = data[at:]
    if data and not growing:
        raise ValueError(len(data))


def _records_of(data: bytes) -> Iterator[Record]:
    """The whole records of some bytes of the file. The last record may be cut off."""
    at = 0
    while at + _RECORD.size <= len(data):
        kind, misc, size = _RECORD.unpack_from(data, at)
        if size < _RECORD.size + 8 * (kind != MARK):
            raise ValueError(size)
        if at + size > len(data):
            return
        yield kind, misc, data[at + _RECORD.size : at + size]
        at += size
