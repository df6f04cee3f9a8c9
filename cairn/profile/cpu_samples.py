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
then that of the call of free(), and the allocator is the caller, too. Frames are not unwound: only
the words at the top of the stack are examined, and one of them may be the return address of an
earlier call.

The system's allocator is a part of libc: everything from the first to the last function of malloc's
object file, which the linker puts side by side.

`read` needs no library in the program. So threads contend for locks as often as they do without a
measurement. With the probe in the program, they would contend more or less often
(docs/decisions/0027-parts-from-the-kernel-clock.md).

`clocked` weighs the samples of a run by their periods, for the allocator's share of CPU time. The
program of such a run may have the probe loaded. The probe's work is then a part of its own:

    probe      in the files of the probe and the witness, also in the kernel on their behalf. A
               system call that the probe makes for the allocator counts as the allocator's, and the
               probe makes it at an address of its own (src/probe/direct_syscall.c). The signal that
               replaces the allocator's system call is the probe's
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, field

from cairn.binary import elf
from cairn.clock_samples import NO_ROOM, AtomicSamples, CpuSamples, FunctionSamples
from cairn.model import Contender
from cairn.profile import kernel_entries, symbols
from cairn.profile.atomic_code import atomic_at
from cairn.profile.called_functions import called_before
from cairn.profile.function_names import Names
from cairn.profile.tally import ClockRun, FunctionTime, Scope

TEMPORARY_PREFIX = "cairn-"
"""The beginning of the name of a temporary folder of this command."""
MAGIC = 0x0474626172656877
MARK, PERIOD = 1 << 16, (1 << 16) + 1
"""The kinds of two records that the kernel does not write: a mark, and a change of the period. The
launcher writes a mark each time it has written the new records of all processors. The records of
different processors are not in order of their times. But every record after a mark is at least as
new as all records before the previous mark. `ordered` relies on this."""
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
_REGISTERS = struct.Struct("<QQQ")
"""The thread's stack pointer and instruction pointer in user mode, and the number of stack bytes
that follow."""
_MAPPED = struct.Struct("<IIQQQIIQQII")
_WIDE = 2
_WORD_BYTES = 8
_WORDS, _WORDS_CALLING = 8, 32
"""How many words of the stack are searched for the caller of a library: in user mode, and in a
system call. The limit is higher in a system call, because functions that sleep have large frames.
It is lower in user mode, because a large frame there may hold return addresses of earlier calls."""
_UNCHAINED_MOST = 0.1
"""The most samples in the kernel, as a share, whose chains of calls may be incomplete. If there are
more, nothing is known of interrupts."""
_FUNCTIONS_KEPT = 30
"""The most functions that are stored with a trial."""
_READ_BYTES = 1 << 20
_CALLS = (b"\x0f\x05", b"\xcd\x80", b"\x0f\x34")
"""Instructions that make a system call: syscall, int 0x80, sysenter."""

OURS = ("libcairn-probe.so", "libcairn-witness.so")
"""The names of the libraries that Cairn preloads for its own measurement."""
_CALLS_SECTION, _CALL_BYTES = "cairn_direct", 64
"""The section of the probe that begins with the function for the allocator's system calls, and the
size of this function: src/probe/direct_syscall.c."""
LIBRARIES = re.compile(
    r"(libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s|libunwind|libatomic)[-.]|ld-"
    r"|libc\.musl|\[vdso\]"
)
"""Libraries that allocators call themselves, by the beginning of their file names."""
_VDSO = "[vdso]"
_LOADER = re.compile(r"ld-")
_LIBC = re.compile(r"libc[-.](so\.6|2\.)|libc\.so$|libc\.musl|ld-musl")
_SHARED = re.compile(r"/(usr/)?(local/)?lib(32|64|x32)?(/[^/]*-linux-[^/]*)?$")
_MALLOC = (
    "__default_morecore", "malloc", "free", "calloc", "realloc", "memalign", "malloc_trim",
    "malloc_usable_size", "mallopt", "malloc_stats", "posix_memalign", "malloc_info",
)  # fmt: skip
"""Functions of malloc's object file in libc."""


class Owner(Enum):
    """The owner of the code at an address."""

    ALLOCATOR = 1
    LIBRARY = 2
    PROGRAM = 3
    PROBE = 4


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


class AllocatorCode(Struct, frozen=True):
    """The allocator's code: whole files by their real paths, and malloc's part of any C library.

    For the system's allocator, `files` is empty. With any other allocator, only the allocator's
    files call malloc's part of libc, so that part belongs to the allocator, too.
    """

    files: frozenset[str]

    @staticmethod
    def of(contender: Contender) -> AllocatorCode:
        """The libraries that the contender preloads or that own malloc, and their companions."""
        paths = (*contender.preload, *contender.owners)
        return AllocatorCode.of_libraries(map(os.path.realpath, paths), contender.library_path)

    @staticmethod
    def of_libraries(paths: Iterable[str], folders: tuple[str, ...] = ()) -> AllocatorCode:
        """These libraries and their companions, some of which may lie in `folders`."""
        files: set[str] = set()
        left = list(paths)
        while left:
            path = left.pop()
            if path not in files:
                files.add(path)
                left += _companions(path, folders)
        return AllocatorCode(frozenset(files))

    def owner(self, path: str, offset: int) -> Owner:
        """The owner of the byte at an offset of a file.

        Raises NotKnown for a C library in which malloc's part cannot be found, if the allocator is
        the system's.
        """
        if path in self.files:
            return Owner.ALLOCATOR
        name = os.path.basename(path)
        if name in OURS:
            return Owner.PROBE
        if not _LIBC.match(name):
            return Owner.LIBRARY if LIBRARIES.match(name) else Owner.PROGRAM
        part = _malloc_place(path)
        if part is None and not self.files:
            raise NotKnown(f"malloc cannot be found in {path}")
        return (
            Owner.ALLOCATOR if part is not None and part[0] <= offset < part[1] else Owner.LIBRARY
        )


class NotKnown(Exception):
    """The samples cannot be interpreted; the text is the end of a sentence that says why."""


@functools.cache
def _malloc_place(libc: str) -> tuple[int, int] | None:
    return symbols.stretch(libc, _MALLOC)


@functools.cache
def _calls_for_allocator(probe: str) -> tuple[int, int]:
    """The range of file offsets of the probe's function for the allocator's system calls."""
    with contextlib.suppress(OSError, elf.NotElf, elf.Damaged):
        descriptor = elf.open_regular(probe)
        try:
            for section in elf.Image(descriptor).sections():
                if section.name == _CALLS_SECTION:
                    return section.offset, section.offset + _CALL_BYTES
        finally:
            os.close(descriptor)
    return 0, 0


@functools.lru_cache(1 << 12)
def _is_call(path: str, offset: int) -> bool | None:
    """Whether the instruction before an offset of a file makes a system call; None if unreadable.

    Code outside files, such as that of a just-in-time compiler, makes system calls through libc, so
    the answer for such code is False. Code of the vDSO causes no page faults: if it entered the
    kernel, it was by a system call. So the answer for such code is True.
    """
    if path.startswith(("//anon", "[")):
        return path == _VDSO
    try:
        descriptor = elf.open_regular(path)
    except OSError:
        return None
    try:
        return offset >= 2 and os.pread(descriptor, 2, offset - 2) in _CALLS
    finally:
        os.close(descriptor)


def _companions(library: str, folders: tuple[str, ...]) -> Iterator[str]:
    """Libraries that the library needs and that lie in its folder or in `folders`.

    In a system folder, a needed library only counts if the name of `library` begins with the name
    of the needed one. An example is TBB's proxy, which needs TBB's allocator.
    """
    needs: tuple[str, ...] = ()
    with contextlib.suppress(OSError, elf.NotElf, elf.Damaged):
        descriptor = elf.open_regular(library)
        try:
            needs = elf.Image(descriptor).needs
        finally:
            os.close(descriptor)
    own_name = os.path.basename(library)
    for name in needs:
        for folder in (os.path.dirname(library), *folders):
            path = os.path.join(folder, name)
            kin = not _SHARED.match(folder) or own_name.startswith(name.partition(".so")[0])
            if kin and not LIBRARIES.match(name) and os.path.exists(path):
                yield os.path.realpath(path)


class Space(Struct):
    """The mappings of one process: sorted starts, and (end, file offset, file) for each start."""

    starts: list[int] = field(default_factory=list)
    mapped: list[tuple[int, int, str]] = field(default_factory=list)

    def copy(self) -> Space:
        """The same mappings, for a child of the process."""
        return Space(self.starts[:], self.mapped[:])

    def put(self, start: int, size: int, offset: int, path: str) -> None:
        """Adds a mapping. It replaces the parts of older mappings that it covers."""
        end = start + size
        low = max(0, bisect_right(self.starts, start) - 1)
        high = bisect_left(self.starts, end)
        kept = []
        for at, (until, its_offset, its_path) in zip(
            self.starts[low:high], self.mapped[low:high], strict=True
        ):
            if at < start:
                kept.append((at, (min(until, start), its_offset, its_path)))
            if until > end:
                kept.append((end, (until, its_offset + end - at, its_path)))
        kept.append((start, (end, offset, path)))
        kept.sort()
        self.starts[low:high] = [at for at, _ in kept]
        self.mapped[low:high] = [what for _, what in kept]

    def place(self, address: int) -> tuple[str, int] | None:
        """File and offset of the byte at an address; None if no file is mapped there."""
        index = bisect_right(self.starts, address) - 1
        if index < 0 or address >= self.mapped[index][0]:
            return None
        _, offset, path = self.mapped[index]
        return path, offset + address - self.starts[index]

    def owner(self, address: int, allocator: AllocatorCode) -> Owner | None:
        """The owner of the code at an address; None if no file is mapped there."""
        place = self.place(address)
        return None if place is None else allocator.owner(*place)

    def called(self, address: int) -> bool | None:
        """Whether the instruction before an address makes a system call; None if unreadable."""
        place = self.place(address)
        return False if place is None else _is_call(*place)

    def is_vdso(self, address: int) -> bool:
        """Whether the code at an address is that of the vDSO, whose calls cannot be recognised."""
        place = self.place(address)
        return place is not None and place[0] == _VDSO

    def caller(
        self, address: int, words: tuple[int, ...], allocator: AllocatorCode
    ) -> Owner | None:
        """The owner of the nearest return address outside LIBRARIES; None if there is none.

        A call of one of the allocator's functions belongs to the allocator, wherever it is: that
        function has jumped to the library as its last action, and left no return address.

        The probe is skipped: it passes the calls of other functions on to libc, and calls few for
        itself. But the loader works for the probe if the probe called it.
        """
        owners = (self._calling(word, allocator) for word in words)
        outside = [owner for owner in owners if owner not in (None, Owner.LIBRARY)]
        if outside and outside[0] is Owner.PROBE:
            place = self.place(address)
            if place is not None and _LOADER.match(os.path.basename(place[0])):
                return Owner.PROBE
        return next((owner for owner in outside if owner is not Owner.PROBE), None)

    def _calling(self, address: int, allocator: AllocatorCode) -> Owner | None:
        """The owner of the function that was called at the instruction before an address.

        It is the allocator if the call is to the allocator; otherwise it is the owner of the call.
        """
        place = self.place(address)
        if place is None:
            return None
        owner = allocator.owner(*place)
        if owner not in (Owner.PROGRAM, Owner.LIBRARY):
            return owner
        called = called_before(*place)
        if called is None:
            return owner
        within = called.offset is not None and (
            allocator.owner(place[0], called.offset) is Owner.ALLOCATOR
        )
        return Owner.ALLOCATOR if called.allocates or within else owner

    def calls_for_allocator(self, address: int) -> bool:
        """Whether the probe makes the allocator's system calls at this address."""
        place = self.place(address)
        if place is None or os.path.basename(place[0]) != OURS[0]:
            return False
        first, end = _calls_for_allocator(place[0])
        return first <= place[1] < end


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
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None, _not_written(file, errno.ENOSPC)
    magic, period_ns, pid, error, scope, _ = _HEAD.unpack(head)
    if magic != MAGIC:
        return None, "the clock samples have another version"
    if error in (*NO_ROOM, errno.EFBIG, errno.EIO, errno.EROFS):
        return None, _not_written(file, error)
    if error:
        return None, f"the kernel does not allow clock samples here: {os.strerror(error)}"
    if scope >= len(_SCOPES):
        return None, "the clock samples are damaged"
    found = SampleCounts(allocator, pid, period_ns, _SCOPES[scope], frozenset(dispatched), between)
    try:
        for kind, misc, body in ordered(_records(file, growing=between is not None)):
            found.add(kind, misc, body)
    except NotKnown as why:
        return None, str(why)
    except (struct.error, ValueError):
        return None, "the clock samples are damaged"
    return found, ""


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
    spaces: dict[int, Space] = field(default_factory=dict)
    """The mappings of the program's processes, by process id. The file also has samples of other
    processes, which do not count."""
    code: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """The samples of OWN, by file and offset. The three values are the number of samples, the sum
    of their periods, and the sum of the squares of these periods."""

    def add(self, kind: int, misc: int, body: bytes) -> None:
        """Processes the next record. Raises NotKnown if a library cannot be interpreted."""
        if kind == _SAMPLE:
            self._sample(body, in_kernel=misc & _MODE == _IN_KERNEL)
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
        names = self.function_names()
        by_name: dict[tuple[str, str], list[float]] = {}
        for (path, offset), weights in self.code.items():
            key = names.function(path, offset), os.path.basename(path)
            before = by_name.get(key, [0, 0.0, 0.0])
            by_name[key] = [one + other for one, other in zip(before, weights, strict=True)]
        found = [FunctionTime(*key, int(of[0]), of[1], of[2]) for key, of in by_name.items()]
        return tuple(sorted(found, key=lambda one: (-one.ns, one.name)))

    def function_names(self) -> Names:
        """Returns the object that names the functions of the samples."""
        return Names()

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

    def _sample(self, body: bytes, *, in_kernel: bool) -> None:
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
        here = 0
        called: bool | None = True  # without registers, a thread exits
        returned = False  # from a system call
        words: tuple[int, ...] = ()
        if width == _WIDE:
            _, here, size = _REGISTERS.unpack_from(body, at)
            called = space.called(here)
            returned = not in_kernel and called is True and not space.is_vdso(here)
            most = _WORDS_CALLING if in_kernel or returned else _WORDS
            words = _words(body, at + _REGISTERS.size, size, most)
        if not in_kernel and not returned:
            return _IN_USER_MODE[self._owner(space, address, words)]
        if called is None or width not in (0, _WIDE):
            return Spot.UNKNOWN
        owner = self._owner(space, here, words if called else words[:_WORDS])
        if owner is Owner.PROBE:
            return Spot.CALLS if space.calls_for_allocator(here) else Spot.PROBE
        if not called:
            return Spot.OWN_FAULTS if owner is Owner.ALLOCATOR else Spot.FAULTS
        if owner is not Owner.ALLOCATOR:
            return Spot.OTHERS
        # The kernel replaces a dispatched system call by a signal. The probe's handler of this
        # signal then makes the call.
        return Spot.PROBE if is_dispatched else Spot.CALLS

    def _owner(self, space: Space, address: int, words: tuple[int, ...]) -> Owner | None:
        """The owner of the code at `address`.

        For a library's code, it is the owner of the library's caller, if `words` have the caller.
        """
        owner = space.owner(address, self.allocator)
        if owner is not Owner.LIBRARY:
            return owner
        return space.caller(address, words, self.allocator) or owner


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


def _words(body: bytes, at: int, size: int, most: int) -> tuple[int, ...]:
    """At most `most` words from the top of the stack, and only those that the kernel could read.

    The words begin at the place `at` of the sample.
    """
    if not size:
        return ()
    (there,) = struct.unpack_from("<Q", body, at + size)
    count = min(there // _WORD_BYTES, size // _WORD_BYTES, most)
    return struct.unpack_from(f"<{count}Q", body, at)


def ordered(records: Iterator[tuple[int, int, bytes]]) -> Iterator[tuple[int, int, bytes]]:
    """The records in order of their times; records of the same time keep their order.

    The launcher repeatedly writes the new records of all processors, one processor after another,
    and then a mark. No record after a mark can be older than a record before the previous mark. So
    at each mark, all records up to the newest one before the previous mark are yielded in order.
    Newer records are held until a later mark.
    """
    held: list[tuple[int, int, int, bytes]] = []
    before = youngest = 0
    for kind, misc, body in records:
        if kind != MARK:
            when = (
                _AT.unpack_from(body)[3]
                if kind == _SAMPLE
                else struct.unpack_from("<Q", body, len(body) - 8)[0]
            )
            youngest = max(youngest, when)
            held.append((when, kind, misc, body))
            continue
        held.sort(key=lambda one: one[0])
        ready = bisect_right(held, before, key=lambda one: one[0])
        yield from (one[1:] for one in held[:ready])
        del held[:ready]
        before = youngest
    held.sort(key=lambda one: one[0])
    yield from (one[1:] for one in held)


def _records(file: BinaryIO, *, growing: bool = False) -> Iterator[tuple[int, int, bytes]]:
    """The records of the file. A growing file may end within a record."""
    data = b""
    while more := file.read(_READ_BYTES):
        data, at = data + more, 0
        while at + _RECORD.size <= len(data):
            kind, misc, size = _RECORD.unpack_from(data, at)
            if size < _RECORD.size + 8 * (kind != MARK):
                raise ValueError(size)
            if at + size > len(data):
                break
            yield kind, misc, data[at + _RECORD.size : at + size]
            at += size
        data = data[at:]
    if data and not growing:
        raise ValueError(len(data))
