"""Where the processors were in a plain run, by a clock of the kernel's: what 'cairn-launch --whereabouts' wrote.

Each note tells where a thread was after so much more of its CPU time, and the top of its stack. From these, and from
which files lay where, the run's CPU time is split:

    own        in the allocator's file; or in a library that it calls, such as libc's memset and locks, where the
               nearest return address on the stack that lies in none of these libraries is the allocator's
    calls      in the kernel, which the allocator called in the same sense
    kernel     elsewhere in the kernel: page faults, the program's own calls, its beginning and its end
    program    elsewhere
    unknown    in no file that the kernel told of

The system's allocator is a part of libc: from the first to the last function of malloc's object file, which the linker
puts side by side. Frames are not unwound, only the nearest words of the stack are looked at: what lies there between
two calls may be an address of an earlier one.

Nothing is put into the program for this, so that its locks meet as often as without: a probe's detour changes that
(docs/decisions/0027-a-clock-from-outside.md).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from cairn import elf, symbols
from cairn.model import Contender, Whereabouts

MAGIC = 0x0174626172656877
_HEAD = struct.Struct("<QQII")
_RECORD = struct.Struct("<IHH")
_LOST, _COMM, _FORK, _SAMPLE, _MMAP2 = 2, 3, 7, 9, 10
_MODE, _IN_KERNEL = 7, 1
_EXECUTED = 1 << 13
_AT = struct.Struct("<QIIQQ")
"""Of a note: where, process, thread, time, and how wide its registers are: 0 none, 2 64 bits."""
_REGISTERS = struct.Struct("<QQQQ")
"""rcx, the stack's, where the program was, and bytes of the stack that follow."""
_MAPPED = struct.Struct("<IIQQQIIQQII")
_WIDE = 2
_WORD_BYTES = 8
_WORDS_MOST = 8

LIBRARIES = re.compile(
    r"(libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s|libunwind|libatomic)[-.]|ld-|libc\.musl|\[vdso\]"
)
"""That allocators call for their own ends, by the beginnings of their files' names."""
_LIBC = re.compile(r"libc[-.](so\.6|2\.)|libc\.musl|ld-musl")
_MALLOC = (
    "__default_morecore", "malloc", "free", "calloc", "realloc", "memalign", "malloc_trim", "malloc_usable_size",
    "mallopt", "malloc_stats", "posix_memalign", "malloc_info",
)  # fmt: skip
"""Functions of malloc's object file."""


class Owner(Enum):
    """Whose code lies at an address."""

    ALLOCATOR = 1
    LIBRARY = 2
    PROGRAM = 3


@dataclass(frozen=True, slots=True)
class Allocator:
    """Which code is the allocator's: whole files by their real paths; with none, its part of any C library."""

    files: frozenset[str]

    @staticmethod
    def of(contender: Contender) -> Allocator:
        """What the contender preloads, and the libraries of its own that these need."""
        files: set[str] = set()
        left = [os.path.realpath(path) for path in contender.preload]
        while left:
            path = left.pop()
            if path not in files:
                files.add(path)
                left += _companions(path, contender.library_path)
        return Allocator(frozenset(files))

    def owner(self, path: str, offset: int) -> Owner:
        """Of the byte at an offset of a file."""
        if path in self.files:
            return Owner.ALLOCATOR
        name = os.path.basename(path)
        if not self.files and _LIBC.match(name):
            low, high = _malloc_part(path)
            return Owner.ALLOCATOR if low <= offset < high else Owner.LIBRARY
        return Owner.LIBRARY if LIBRARIES.match(name) else Owner.PROGRAM


@functools.cache
def _malloc_part(libc: str) -> tuple[int, int]:
    """Of a C library whose functions cannot be told apart, nothing."""
    return symbols.stretch(libc, _MALLOC) or (0, 0)


def _companions(library: str, folders: tuple[str, ...]) -> Iterator[str]:
    """Libraries that it needs and that lie beside it, or where it is told to look."""
    needs: tuple[str, ...] = ()
    with contextlib.suppress(OSError, elf.NotElf, elf.Damaged):
        descriptor = elf.open_regular(library)
        try:
            needs = elf.Image(descriptor).needs
        finally:
            os.close(descriptor)
    for name in needs:
        for folder in (os.path.dirname(library), *folders):
            path = os.path.join(folder, name)
            if not LIBRARIES.match(name) and os.path.exists(path):
                yield os.path.realpath(path)


@dataclass(slots=True)
class _Space:
    """What lies where in one process: starts in order, and of each its end, its offset in the file, and the file."""

    starts: list[int] = field(default_factory=list)
    mapped: list[tuple[int, int, str]] = field(default_factory=list)

    def copy(self) -> _Space:
        return _Space(self.starts[:], self.mapped[:])

    def put(self, start: int, size: int, offset: int, path: str) -> None:
        """A later mapping hides what it covers; what is left of that keeps its place."""
        end = start + size
        kept = []
        for at, (until, its_offset, its_path) in zip(self.starts, self.mapped, strict=True):
            if at < start:
                kept.append((at, (min(until, start), its_offset, its_path)))
            if until > end:
                low = max(at, end)
                kept.append((low, (until, its_offset + low - at, its_path)))
        kept.append((start, (end, offset, path)))
        kept.sort()
        self.starts = [at for at, _ in kept]
        self.mapped = [what for _, what in kept]

    def owner(self, address: int, allocator: Allocator) -> Owner | None:
        """None: no code lies there."""
        index = bisect_right(self.starts, address) - 1
        if index < 0 or address >= self.mapped[index][0]:
            return None
        _, offset, path = self.mapped[index]
        return allocator.owner(path, offset + address - self.starts[index])

    def caller(self, words: tuple[int, ...], allocator: Allocator) -> Owner | None:
        """Whose code the nearest return address lies in that is none of the libraries'."""
        owners = (self.owner(word, allocator) for word in words)
        return next((owner for owner in owners if owner is not None and owner is not Owner.LIBRARY), None)


def read(path: Path, allocator: Allocator) -> tuple[Whereabouts | None, str]:
    """The split of a run's CPU time, or None and why it is not known."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return None, f"the notes cannot be read: {error.strerror}"
    return split(data, allocator)


def split(data: bytes, allocator: Allocator) -> tuple[Whereabouts | None, str]:
    """The same, of what such a file holds."""
    if len(data) < _HEAD.size:
        return None, "the notes have no head"
    magic, period_ns, kernel, error = _HEAD.unpack_from(data)
    if magic != MAGIC:
        return None, "the notes are of another version"
    if error:
        return None, f"the kernel's clock cannot look at programs here: {os.strerror(error)}"
    try:
        found = _Counts(allocator)
        for kind, misc, body in _ordered(data):
            found.add(kind, misc, body)
    except (struct.error, ValueError):
        return None, "the notes are damaged"
    where = Whereabouts(period_ns, found.own, found.program, found.unknown + found.lost)
    return (replace(where, calls=found.calls, kernel=found.kernel) if kernel else where), ""


@dataclass(slots=True)
class _Counts:
    """Of notes, while they are read in order."""

    allocator: Allocator
    own: int = 0
    calls: int = 0
    kernel: int = 0
    program: int = 0
    unknown: int = 0
    lost: int = 0
    spaces: dict[int, _Space] = field(default_factory=dict)

    def add(self, kind: int, misc: int, body: bytes) -> None:
        """Takes the next record."""
        if kind == _SAMPLE:
            self._sample(body, in_kernel=misc & _MODE == _IN_KERNEL)
        elif kind == _LOST:
            self.lost += struct.unpack_from("<QQ", body)[1]
        else:
            _follow(self.spaces, kind, misc, body)

    def _sample(self, body: bytes, *, in_kernel: bool) -> None:
        address, pid, _, _, width = _AT.unpack_from(body)
        counter = here = 0
        words: tuple[int, ...] = ()
        if width == _WIDE:
            counter, _, here, size = _REGISTERS.unpack_from(body, _AT.size)
            words = _words(body, size)
        space = self.spaces.get(pid) or _Space()
        if in_kernel:
            # The instruction that calls the kernel leaves its successor's address in rcx.
            called = here != 0 and counter == here and self._owner(space, here, words) is Owner.ALLOCATOR
            self.calls += called
            self.kernel += not called
            return
        owner = self._owner(space, address, words)
        self.own += owner is Owner.ALLOCATOR
        self.unknown += owner is None
        self.program += owner in (Owner.PROGRAM, Owner.LIBRARY)

    def _owner(self, space: _Space, address: int, words: tuple[int, ...]) -> Owner | None:
        """A library's work is its caller's; the program's, where no caller is seen."""
        owner = space.owner(address, self.allocator)
        return space.caller(words, self.allocator) or owner if owner is Owner.LIBRARY else owner


def _words(body: bytes, size: int) -> tuple[int, ...]:
    """Of the stack, the nearest words, of as many bytes as the kernel could read."""
    at = _AT.size + _REGISTERS.size
    if not size:
        return ()
    (there,) = struct.unpack_from("<Q", body, at + size)
    count = min(there // _WORD_BYTES, size // _WORD_BYTES, _WORDS_MOST)
    return struct.unpack_from(f"<{count}Q", body, at)


def _ordered(data: bytes) -> list[tuple[int, int, bytes]]:
    """Each record's kind, flags and content, in the order of their times; of one time, as they came."""
    found = []
    for kind, misc, body in _records(data):
        when = _AT.unpack_from(body)[3] if kind == _SAMPLE else struct.unpack_from("<Q", body, len(body) - 8)[0]
        found.append((when, kind, misc, body))
    found.sort(key=lambda one: one[0])
    return [one[1:] for one in found]


def _records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = _HEAD.size
    while at + _RECORD.size <= len(data):
        kind, misc, size = _RECORD.unpack_from(data, at)
        if size < _RECORD.size + 8 or at + size > len(data):
            raise ValueError(size)
        yield kind, misc, data[at + _RECORD.size : at + size]
        at += size


def _follow(spaces: dict[int, _Space], kind: int, misc: int, body: bytes) -> None:
    """What lies where, from then on."""
    if kind == _FORK:
        pid, parent = struct.unpack_from("<II", body)
        if pid != parent and parent in spaces:
            spaces[pid] = spaces[parent].copy()
    elif kind == _COMM:
        if misc & _EXECUTED:
            spaces[struct.unpack_from("<I", body)[0]] = _Space()
    elif kind == _MMAP2:
        pid, _, start, size, offset, *_ = _MAPPED.unpack_from(body)
        path = os.fsdecode(body[_MAPPED.size : body.index(b"\0", _MAPPED.size)])
        spaces.setdefault(pid, _Space()).put(start, size, offset, path)
