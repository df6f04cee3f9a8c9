"""The owners of code: the allocator, the libraries that it calls, the program, and the probe.

The system's allocator is a part of libc: everything from the first to the last function of malloc's
object file, which the linker puts side by side.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterable, Iterator
from enum import Enum

from msgspec import Struct

from cairn.binary import elf
from cairn.model import Contender
from cairn.profile import symbols

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
VDSO = "[vdso]"
LOADER = re.compile(r"ld-")
_LIBC = re.compile(r"libc[-.](so\.6|2\.)|libc\.so$|libc\.musl|ld-musl")
_SHARED = re.compile(r"/(usr/)?(local/)?lib(32|64|x32)?(/[^/]*-linux-[^/]*)?$")
_MALLOC = (
    "__default_morecore", "malloc", "free", "calloc", "realloc", "memalign", "malloc_trim",
    "malloc_usable_size", "mallopt", "malloc_stats", "posix_memalign", "malloc_info",
)  # fmt: skip
"""Functions of malloc's object file in libc."""
_CALLS = (b"\x0f\x05", b"\xcd\x80", b"\x0f\x34")
"""Instructions that make a system call: syscall, int 0x80, sysenter."""


class Owner(Enum):
    """The owner of the code at an address."""

    ALLOCATOR = 1
    LIBRARY = 2
    PROGRAM = 3
    PROBE = 4


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
def calls_for_allocator(probe: str) -> tuple[int, int]:
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
def makes_system_call(path: str, offset: int) -> bool | None:
    """Whether the instruction before an offset of a file makes a system call; None if unreadable.

    Code outside files, such as that of a just-in-time compiler, makes system calls through libc, so
    the answer for such code is False. Code of the vDSO causes no page faults: if it entered the
    kernel, it was by a system call. So the answer for such code is True.
    """
    if path.startswith(("//anon", "[")):
        return path == VDSO
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
