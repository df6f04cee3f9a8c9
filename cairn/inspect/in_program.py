"""The code of an allocator that is a part of the program's own file, by the file's symbols."""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right

from cairn.binary import elf
from cairn.profile.code_owners import AllocatorCode, Owner
from cairn.profile.symbols import Functions

_SYMBOLS = ((".symtab", ".strtab"),)
_ENTRY = r"(__libc_)?(malloc|free|calloc|realloc|memalign|aligned_alloc|posix_memalign)"
_GLIBC = (
    rf"{_ENTRY}|cfree|_int_(malloc|free|realloc|memalign)\w*|_mid_memalign|malloc_\w+"
    r"|sys(malloc|trim)|munmap_chunk|mremap_chunk|unlink_chunk|tcache_\w+|ptmalloc_init"
    r"|arena_get\w*|alloc_perturb|free_perturb|heap_trim|new_heap|grow_heap|__malloc_\w+"
    r"|detach_arena|int_mallinfo|checked_request2size|__default_morecore|__glibc_morecore"
)
_OPERATORS = r"|_Zn[wa]\w*|_Zd[la]\w*"
_PATTERNS = {
    "glibc": _GLIBC,
    "musl": rf"{_ENTRY}|__libc_malloc_impl|__malloc_\w+|alloc_(slot|group|meta)|free_group|get_meta"
    r"|__expand_heap|nontrivial_free|try_avail|__bin_chunk",
    "jemalloc": rf"{_ENTRY}{_OPERATORS}|_?r?je_\w+|_rjem_\w+|jemalloc_\w+|arena_\w+|tcache_\w+"
    r"|[mrcx]alloc[xt]|sdallocx?|dallocx|imalloc\w*|ifree\w*|base_\w+|emap_\w+|pa[cs]?_\w+|hpa_\w+"
    r"|edata_\w+|eset_\w+|extent_\w+|pages_\w+|rtree_\w+|tsd_\w+|malloc_\w+|large_\w+|prof_\w+",
    "mimalloc": rf"{_ENTRY}{_OPERATORS}|_?mi_\w+|mimalloc_\w+",
    "tcmalloc": rf"{_ENTRY}{_OPERATORS}|tc_\w+|_ZN8tcmalloc\w+|TCMalloc\w+|_ZN10__tcmalloc\w+",
    "tcmalloc (Google)": rf"{_ENTRY}{_OPERATORS}|_ZN8tcmalloc\w+|TCMalloc\w+",
    "snmalloc": rf"{_ENTRY}{_OPERATORS}|sn_\w+|_ZN\w*8snmalloc\w+",
    "rpmalloc": rf"{_ENTRY}{_OPERATORS}|_?rp\w*alloc\w*|_rpmalloc_\w+|rpfree",
}
"""The symbols of an allocator's functions, by the name of the allocator. Functions of several
projects have names that begin alike. So a few functions of the program may count as the allocator's
by mistake."""


class InProgram(AllocatorCode, frozen=True):
    """An allocator inside the program's file."""

    path: str = ""
    """The path that the program's file has in the clock samples."""
    ranges: tuple[tuple[int, int], ...] = ()
    """The ranges of the allocator's functions in the file, by their offsets and in order."""

    @staticmethod
    def of_file(path: str, readable: str, name: str) -> InProgram | None:
        """The code of the allocator `name`; None if the file has no symbols of its functions."""
        pattern = _PATTERNS.get(name)
        if pattern is None:
            return None
        wanted = re.compile(pattern)
        try:
            descriptor = elf.open_regular(readable)
        except OSError:
            return None
        try:
            image = elf.Image(descriptor)
            named = Functions(image, _SYMBOLS).named()
            # Functions without a size are left out: nothing says where they end.
            found = [
                (start, end)
                for start, end, symbol in named
                if end > start and wanted.fullmatch(symbol.partition(".")[0])
            ]
            if not found:
                return None
            offsets = sorted({(image.offset_of(start), end - start) for start, end in found})
        except (elf.NotElf, elf.Damaged, OSError, struct.error):
            return None
        finally:
            os.close(descriptor)
        return InProgram(
            frozenset(), path, tuple((at, at + size) for at, size in offsets)
        )  # fmt: skip

    def owner(self, path: str, offset: int) -> Owner:
        """The owner of the byte at an offset of a file."""
        if path == self.path:
            index = bisect_right(self.ranges, (offset, 1 << 64)) - 1
            inside = index >= 0 and offset < self.ranges[index][1]
            return Owner.ALLOCATOR if inside else Owner.PROGRAM
        return AllocatorCode.owner(self, path, offset)
