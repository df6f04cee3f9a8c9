"""Splits the CPU time of a plain run by the kernel's clock samples.

'cairn-launch --cpu-samples' writes the samples. After each period of CPU time, the kernel notes
which thread a processor runs, the thread's address, and the top of its stack. The file of samples
also says which files are mapped where. `read` and `split` count the samples of the run's processes:

    own        in the allocator's file, or in a library that the allocator called (such as memset or
               a lock in libc)
    calls      in a system call that the allocator made, itself or through such a library
    faults     in the kernel outside any system call: page faults and interrupts
    others     in the kernel otherwise: the program's system calls, and its exit
    program    all other samples in user mode
    unknown    at an address that belongs to no known file; or in the kernel, if the calling file
               cannot be read or the program is a 32-bit one

The caller of a library is the nearest return address on the stack that lies outside these
libraries. Frames are not unwound: only the words at the top of the stack are examined, and one of
them may be the return address of an earlier call.

The system's allocator is a part of libc: everything from the first to the last function of malloc's
object file, which the linker puts side by side.

Nothing is preloaded for this method. So threads contend for locks as often as they do without a
measurement. The probe's detours would change that
(docs/decisions/0027-parts-from-the-kernel-clock.md).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from cairn.binary import elf
from cairn.model import Contender, CpuSamples
from cairn.profile import symbols

MAGIC = 0x0274626172656877
MARK = 1 << 16
"""The kind of a mark. The launcher writes a mark each time it has written the new records of all
processors. The records of different processors are not in order of their times. But every record
after a mark is at least as new as all records before the previous mark. `_ordered` relies on
this."""
_HEAD = struct.Struct("<QQII")
_RECORD = struct.Struct("<IHH")
_LOST, _COMM, _THROTTLED, _FORK, _SAMPLE, _MMAP2 = 2, 3, 5, 7, 9, 10
_MODE, _IN_KERNEL = 7, 1
_EXECUTED = 1 << 13
_AT = struct.Struct("<QIIQQ")
"""The start of a sample: address, process, thread, time, and width of its registers (0: none, 1: 32
bits, 2: 64 bits)."""
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
_READ_BYTES = 1 << 20
_CALLS = (b"\x0f\x05", b"\xcd\x80", b"\x0f\x34")
"""Instructions that make a system call: syscall, int 0x80, sysenter."""

LIBRARIES = re.compile(
    r"(libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s|libunwind|libatomic)[-.]|ld-"
    r"|libc\.musl|\[vdso\]"
)
"""Libraries that allocators call themselves, by the beginning of their file names."""
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


@dataclass(frozen=True, slots=True)
class AllocatorCode:
    """The allocator's code: whole files by their real paths, and malloc's part of any C library.

    For the system's allocator, `files` is empty. With any other allocator, only the allocator's
    files call malloc's part of libc, so that part belongs to the allocator, too.
    """

    files: frozenset[str]

    @staticmethod
    def of(contender: Contender) -> AllocatorCode:
        """The libraries that the contender preloads or that own malloc, and their companions."""
        files: set[str] = set()
        left = [os.path.realpath(path) for path in (*contender.preload, *contender.owners)]
        while left:
            path = left.pop()
            if path not in files:
                files.add(path)
                left += _companions(path, contender.library_path)
        return AllocatorCode(frozenset(files))

    def owner(self, path: str, offset: int) -> Owner:
        """The owner of the byte at an offset of a file.

        Raises NotKnown for a C library in which malloc's part cannot be found, if the allocator is
        the system's.
        """
        if path in self.files:
            return Owner.ALLOCATOR
        name = os.path.basename(path)
        if not _LIBC.match(name):
            return Owner.LIBRARY if LIBRARIES.match(name) else Owner.PROGRAM
        part = _malloc_part(path)
        if part is None and not self.files:
            raise NotKnown(f"malloc cannot be found in {path}")
        return (
            Owner.ALLOCATOR if part is not None and part[0] <= offset < part[1] else Owner.LIBRARY
        )


class NotKnown(Exception):
    """The samples cannot be interpreted; the text is the end of a sentence that says why."""


@functools.cache
def _malloc_part(libc: str) -> tuple[int, int] | None:
    return symbols.stretch(libc, _MALLOC)


@functools.lru_cache(1 << 12)
def _is_call(path: str, offset: int) -> bool | None:
    """Whether the instruction before an offset of a file makes a system call; None if unreadable.

    Code outside files, such as that of a just-in-time compiler, makes system calls through libc, so
    the answer for such code is False. Code of the vDSO causes no page faults: if it entered the
    kernel, it was by a system call. So the answer for such code is True.
    """
    if path.startswith(("//anon", "[")):
        return path == "[vdso]"
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


@dataclass(slots=True)
class _Space:
    """The mappings of one process: sorted starts, and (end, file offset, file) for each start."""

    starts: list[int] = field(default_factory=list)
    mapped: list[tuple[int, int, str]] = field(default_factory=list)

    def copy(self) -> _Space:
        return _Space(self.starts[:], self.mapped[:])

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

    def caller(self, words: tuple[int, ...], allocator: AllocatorCode) -> Owner | None:
        """The owner of the nearest return address outside LIBRARIES; None if there is none."""
        owners = (self.owner(word, allocator) for word in words)
        return next(
            (owner for owner in owners if owner is not None and owner is not Owner.LIBRARY), None
        )


def read(path: Path, allocator: AllocatorCode) -> tuple[CpuSamples | None, str]:
    """The split of a run's CPU time and "", or None and the reason as the end of a sentence."""
    try:
        with path.open("rb") as file:
            return split(file, allocator)
    except OSError as error:
        return None, f"the clock samples cannot be read: {error.strerror}"


def split(file: BinaryIO, allocator: AllocatorCode) -> tuple[CpuSamples | None, str]:
    """Like `read`, for an open file."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None, "there was no disk space for clock samples"
    magic, period_ns, pid, error = _HEAD.unpack(head)
    if magic != MAGIC:
        return None, "the clock samples have another version"
    if error:
        return None, f"the kernel does not allow clock samples here: {os.strerror(error)}"
    found = _Counts(allocator, pid)
    try:
        for kind, misc, body in _ordered(_records(file)):
            found.add(kind, misc, body)
    except NotKnown as why:
        return None, str(why)
    except (struct.error, ValueError):
        return None, "the clock samples are damaged"
    return CpuSamples(
        period_ns, found.own, found.calls, found.faults, found.others, found.program, found.unknown
    ), ""


@dataclass(slots=True)
class _Counts:
    """Counts the samples while the records are read in order of their times."""

    allocator: AllocatorCode
    root: int
    """The id of the first process. Its samples before it executes the program do not count."""
    own: int = 0
    calls: int = 0
    faults: int = 0
    others: int = 0
    program: int = 0
    unknown: int = 0
    spaces: dict[int, _Space] = field(default_factory=dict)
    """The mappings of the program's processes, by process id. The file also has samples of other
    processes, which do not count."""

    def add(self, kind: int, misc: int, body: bytes) -> None:
        """Processes the next record. Raises NotKnown if the kernel lost or throttled samples."""
        if kind == _SAMPLE:
            self._sample(body, in_kernel=misc & _MODE == _IN_KERNEL)
        elif kind in (_LOST, _THROTTLED):
            raise NotKnown(
                "the kernel lost clock samples"
                if kind == _LOST
                else "the kernel throttled its clock"
            )
        elif kind == _FORK:
            pid, parent = struct.unpack_from("<II", body)
            if pid != parent and parent in self.spaces:
                self.spaces[pid] = self.spaces[parent].copy()
            elif pid != parent:
                self.spaces.pop(pid, None)
        elif kind == _COMM and misc & _EXECUTED:
            (pid,) = struct.unpack_from("<I", body)
            if pid == self.root or pid in self.spaces:
                self.spaces[pid] = _Space()
        elif kind == _MMAP2:
            pid, _, start, size, offset, *_ = _MAPPED.unpack_from(body)
            if pid in self.spaces:
                path = os.fsdecode(body[_MAPPED.size : body.index(b"\0", _MAPPED.size)])
                self.spaces[pid].put(start, size, offset, path)

    def _sample(self, body: bytes, *, in_kernel: bool) -> None:
        address, pid, _, _, width = _AT.unpack_from(body)
        space = self.spaces.get(pid)
        if space is None:
            return
        here = 0
        called: bool | None = True  # a thread without registers is exiting
        words: tuple[int, ...] = ()
        if width == _WIDE:
            _, here, size = _REGISTERS.unpack_from(body, _AT.size)
            words = _words(body, size, _WORDS_CALLING if in_kernel else _WORDS)
            called = space.called(here)
        if not in_kernel:
            owner = self._owner(space, address, words)
            self.own += owner is Owner.ALLOCATOR
            self.unknown += owner is None
            self.program += owner in (Owner.PROGRAM, Owner.LIBRARY)
        elif called is None or width not in (0, _WIDE):
            self.unknown += 1
        elif not called:
            self.faults += 1
        elif self._owner(space, here, words) is Owner.ALLOCATOR:
            self.calls += 1
        else:
            self.others += 1

    def _owner(self, space: _Space, address: int, words: tuple[int, ...]) -> Owner | None:
        """The owner of the code at `address`.

        For a library's code, it is the owner of the library's caller, if `words` have the caller.
        """
        owner = space.owner(address, self.allocator)
        return space.caller(words, self.allocator) or owner if owner is Owner.LIBRARY else owner


def _words(body: bytes, size: int, most: int) -> tuple[int, ...]:
    """At most `most` words from the top of the stack, and only those that the kernel could read."""
    at = _AT.size + _REGISTERS.size
    if not size:
        return ()
    (there,) = struct.unpack_from("<Q", body, at + size)
    count = min(there // _WORD_BYTES, size // _WORD_BYTES, most)
    return struct.unpack_from(f"<{count}Q", body, at)


def _ordered(records: Iterator[tuple[int, int, bytes]]) -> Iterator[tuple[int, int, bytes]]:
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


def _records(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
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
    if data:
        raise ValueError(len(data))
