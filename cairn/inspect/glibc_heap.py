"""Reads the statistics of glibc's malloc from the memory of another process.

glibc has one main arena in its data, and further arenas. Each arena points to the next one, and the
last one to the main arena, so they form a ring. An arena has its size, the lists of its free
blocks, and a pointer to the block at its end (*top*). A second structure, `mp_`, has the settings,
and the number and size of the blocks with mappings of their own. So

    held = sum of the arenas' sizes + mapped blocks
    free = sum of the arenas' free blocks + their tops
    live = held - free - blocks in the caches of threads (tcache)

An arena does not know which of its blocks lie in the cache of a thread. So the caches that can be
found are read. The main thread's cache is the first block of the heap. The cache of the thread that
made an arena is the first block of this arena. Any other thread may have up to
`MallocPar.cached_most()` bytes in its cache, so `live` is an interval.

Debug symbols give the addresses of the structures. Without them, the structures are found by their
form: an empty list of an arena points to itself, and an arena has 127 lists in a row.

The kernel says which pages are resident (pagemap). If a page of free memory is not resident, it was
never used, was returned to the kernel by malloc_trim(3), or was swapped out. Only pages that lie
wholly in a free block or in a top can be missing. The other pages of free memory have headers or
live blocks.

The process is not stopped. Each list is checked while it is walked. If a list changed meanwhile,
everything is read again.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from cairn.binary import elf
from cairn.binary.build_ids import DEBUG_FOLDER
from cairn.inspect.allocator import LoadedFile
from cairn.inspect.facts import Heap, InUse
from cairn.inspect.mappings import Mapping
from cairn.inspect.memory import Pages, ProcessMemory, Span, Unreadable, whole_pages
from cairn.profile.symbols import VARIABLES, Functions

_BINS = 254
"""The number of words in the lists of an arena. Each of the 127 lists has a pointer to its first
block and one to its last block."""
_SELF_LEAST = 8
"""An arena is recognised by at least this many empty lists. Of the 127 lists, 63 are for large
blocks, and even fragmented programs have few free blocks of these sizes. `_is_ring` confirms the
arena."""
_BEFORE = {112: 16, 104: 8}
"""The offset of the lists in an arena, and that of the lists of small free blocks (fastbins). The
first pair is that of glibc 2.27 and newer."""
_FASTBINS = 10
_MANGLED_FROM = 2, 32
"""The first glibc that mangles the pointers of fastbins."""
_ARENAS_MOST = 4096
_BLOCKS_MOST = 1_000_000
"""The most free blocks that are walked."""
_TIME_MOST_S = 10.0
"""The most seconds of CPU time that we take to walk the free blocks."""
_TRIES = 20
_SCAN_MOST = 64 << 20
_LINKS = 48
"""The number of bytes at the beginning of a free block that its header and its pointers may use.
malloc_trim(3) returns whole pages behind them."""
_FLAGS = 7
"""The lowest three bits of the size of a block. They are flags and no part of the size."""
_MMAPS_MOST = 65536
"""The default of `n_mmaps_max`, a field of `mp_`."""
_CACHE_BINS = 64
_CACHE_SIZES = {0x290: 2, 0x250: 1}
"""The size of the block that holds a thread's cache, and the size of each counter in this cache.
The first pair is that of glibc 2.30 to 2.41, the second that of glibc 2.26 to 2.29."""
_CACHED_SUM = sum(32 + 16 * number for number in range(_CACHE_BINS))


class Changed(Exception):
    """A list changed while it was walked."""


class NotFound(Exception):
    """The statistics cannot be read; the text is a whole sentence that says why."""


class MallocPar(Struct, frozen=True):
    """The fields of `mp_` that are needed here."""

    trim_threshold: int
    top_pad: int
    mmap_threshold: int
    arena_test: int
    arena_max: int
    mmaps: int
    mmaps_most: int
    mapped_bytes: int
    heap_begin: int
    cache_count: int
    huge_page_bytes: int

    def cached_most(self) -> int:
        """The most bytes that the cache of one thread can hold."""
        return self.cache_count * _CACHED_SUM

    def settings(self) -> tuple[InUse, ...]:
        """The settings that are in use, by the names of glibc's tunables."""
        return (
            InUse("mmap_threshold", self.mmap_threshold),
            InUse("trim_threshold", self.trim_threshold),
            InUse("top_pad", self.top_pad),
            InUse("arena_max", self.arena_max),
            InUse("tcache_count", self.cache_count),
            InUse("hugetlb_page_bytes", self.huge_page_bytes),
        )


_PAR = {
    "2.35": (struct.Struct("<QQQQQQQiiiii4xQQQQQQ"), (0, 1, 2, 3, 4, 6, 8, 9, 12, 13, 14, 17)),
    "2.26": (struct.Struct("<QQQQQiiiiQQQQQQ"), (0, 1, 2, 3, 4, None, 5, 6, 9, 10, 11, 14)),
}
"""The forms of `mp_` by the first glibc that has it, and the places of the fields: trim_threshold,
top_pad, mmap_threshold, arena_test, arena_max, hp_pagesize, n_mmaps, n_mmaps_max, mmapped_mem,
max_mmapped_mem, sbrk_base, tcache_count."""


class ArenaPlace(Struct, frozen=True):
    """The place of the main arena in the process."""

    arena: int
    lists_at: int
    """The offset of the lists in an arena."""
    by_symbols: bool


def read(
    memory: ProcessMemory,
    owner: LoadedFile,
    mappings: Sequence[Mapping],
    threads: int,
    libc: str | None,
) -> tuple[Heap, tuple[InUse, ...]]:
    """The statistics of malloc, and the settings that it uses now.

    owner: the file that contains glibc's malloc: the library, or a static program.
    libc: the C library and its version, "glibc 2.36". A static program may not have the version.

    Raises NotFound.
    """
    areas = _data(owner, mappings)
    place = _place(memory, owner, areas)
    shared = sum(_shared(one) for one in mappings)
    ways = _ways(libc)
    deadline = time.process_time() + _TIME_MOST_S
    for _ in range(_TRIES):
        memory.forget()
        par = _par(memory, owner, areas, mappings)
        try:
            heap = _read(memory, place, par, threads, shared, ways, deadline)
        except (Changed, Unreadable):
            if time.process_time() > deadline:
                break
            continue
        return heap, par.settings()
    raise NotFound(
        "Live memory is not known: the program allocates so often that glibc's lists of free "
        "blocks changed each time they were read."
    )


def _shared(mapping: Mapping) -> int:
    """The bytes of a private mapping without a file that other processes have, too."""
    if mapping.is_shared or mapping.path.startswith("/"):
        return 0
    numbers = mapping.numbers or {}
    return numbers.get("Shared_Clean", 0) + numbers.get("Shared_Dirty", 0)


def _data(owner: LoadedFile, mappings: Sequence[Mapping]) -> list[Mapping]:
    """The parts of the process's memory that hold the variables of the file.

    These are the writable mappings of the file, and the anonymous mapping right after them, which
    holds the variables that begin as zero (bss).
    """
    found: list[Mapping] = []
    for one in mappings:
        is_its = one.path == owner.path and not one.is_shared
        is_behind = bool(found) and not one.path and one.start == found[-1].end
        if (is_its or is_behind) and one.is_writable:
            found.append(one)
    return found


def _place(memory: ProcessMemory, owner: LoadedFile, areas: Sequence[Mapping]) -> ArenaPlace:
    """Finds the main arena. Raises NotFound."""
    symbol = _symbol(owner, "main_arena")
    if symbol is not None:
        for lists_at in _BEFORE:
            with contextlib.suppress(Unreadable):
                if _is_ring(memory, owner.base + symbol, lists_at):
                    return ArenaPlace(owner.base + symbol, lists_at, True)
    for area in areas:
        size = min(area.end - area.start, _SCAN_MOST)
        try:
            content = memory.fresh(area.start, size)
        except Unreadable:
            continue
        words = np.frombuffer(content[: size // 8 * 8], np.uint64)
        addresses = np.uint64(area.start) + np.arange(len(words), dtype=np.uint64) * np.uint64(8)
        selves = np.flatnonzero(
            (words[:-1] == addresses[:-1] - np.uint64(16)) & (words[1:] == words[:-1])
        )
        for lists in _rows(selves.tolist()):
            for lists_at in _BEFORE:
                arena = area.start + 8 * lists - lists_at
                with contextlib.suppress(Unreadable):
                    if _is_ring(memory, arena, lists_at):
                        return ArenaPlace(arena, lists_at, False)
    raise NotFound(
        "Live memory is not known: the data of this glibc has no arena of a form that Cairn knows. "
        "Its debug symbols would not help."
    )


def _rows(selves: Sequence[int]) -> Iterator[int]:
    """Yields the indexes of words at which the 127 lists of an arena may begin.

    selves: the indexes of the words that point to themselves, as the words of an empty list do.
    """
    for first in dict.fromkeys(selves[: _BINS // 2 * 8]):
        inside = sum(1 for one in selves if 0 <= one - first < _BINS and (one - first) % 2 == 0)
        if inside >= _SELF_LEAST:
            for before in range(_BINS // 2 - inside + 1):
                yield first - 2 * before
            return


def _is_ring(memory: ProcessMemory, arena: int, lists_at: int) -> bool:
    """Whether the arenas form a ring from `arena` on, and its size is plausible."""
    at_next = lists_at + 8 * _BINS + 16
    one = arena
    for _ in range(_ARENAS_MOST):
        one = memory.word_at(one + at_next)
        if one == arena:
            break
    else:
        return False
    size, most = memory.words_at(arena + at_next + 24, 2)
    return size <= most < 1 << 47 and size % 16 == 0


def _symbol(owner: LoadedFile, name: str) -> int | None:
    """The address of a variable in the file, from the symbols of this file or of its debug file."""
    for path in _with_symbols(owner):
        try:
            descriptor = elf.open_regular(path)
        except OSError:
            continue
        try:
            functions = Functions(elf.Image(descriptor), ((".symtab", ".strtab"),), VARIABLES)
        except (elf.NotElf, elf.Damaged, OSError, struct.error):
            continue
        finally:
            os.close(descriptor)
        for start, _, found in functions.named():
            if found == name:
                return start
    return None


def _with_symbols(owner: LoadedFile) -> Iterator[str]:
    yield owner.readable
    with contextlib.suppress(OSError, elf.NotElf, elf.Damaged, struct.error):
        descriptor = elf.open_regular(owner.readable)
        try:
            build_id = elf.Image(descriptor).build_id
        finally:
            os.close(descriptor)
        if build_id:
            yield os.path.join(DEBUG_FOLDER, ".build-id", build_id[:2], f"{build_id[2:]}.debug")


def _par(
    memory: ProcessMemory, owner: LoadedFile, areas: Sequence[Mapping], mappings: Sequence[Mapping]
) -> MallocPar:
    """Reads `mp_`.

    Its address comes from its symbol. Without the symbol, `mp_` is found by its form, and by its
    pointer to the heap. Raises NotFound.
    """
    heap = next((one.start for one in mappings if one.path == "[heap]"), None)
    symbol = _symbol(owner, "mp_")
    for form, places in _PAR.values() if symbol is not None else ():
        with contextlib.suppress(Unreadable):
            fields = form.unpack(memory.fresh(owner.base + (symbol or 0), form.size))
            if (par := _plausible(fields, places, heap)) is not None:
                return par
    for area in areas:
        size = min(area.end - area.start, _SCAN_MOST)
        try:
            content = memory.fresh(area.start, size)
        except Unreadable:
            continue
        for form, places in _PAR.values():
            for offset in range(0, len(content) - form.size + 1, 8):
                fields = form.unpack_from(content, offset)
                par = _plausible(fields, places, heap)
                if par is not None:
                    return par
    raise NotFound(
        "Live memory is not known: the settings of this glibc's malloc have a form that Cairn does "
        "not know."
    )


def _plausible(
    fields: Sequence[int], places: Sequence[int | None], heap: int | None
) -> MallocPar | None:
    """The fields, if they can be those of `mp_`; else None.

    heap: where the mapping [heap] begins; None without one.
    """
    trim, pad, threshold, test, arenas, huge, mmaps, mmaps_most, mapped, peak, begin, cache = (
        0 if place is None else fields[place] for place in places
    )
    if not (0 < test <= 1 << 16 and arenas <= 1 << 16 and cache <= 1 << 16):
        return None
    if not (0 <= mmaps <= mmaps_most or mmaps_most <= 0) or mmaps_most > 1 << 30:
        return None
    if mapped > peak or mapped % 4096 or peak % 4096 or peak >= 1 << 47:
        return None
    if (mmaps == 0) != (mapped == 0):
        return None
    if heap is None:
        # There is no heap: the main arena uses mapped memory, or it has no memory yet.
        if mmaps_most != _MMAPS_MOST or begin % 16 or begin >= 1 << 47:
            return None
    # `begin` is the first block. It lies at the start of the mapping [heap], or behind memory that
    # other code took with brk(2).
    elif begin % 16 or not 0 <= begin - heap < 1 << 24:
        return None
    return MallocPar(
        trim, pad, threshold, test, arenas, mmaps, mmaps_most, mapped, begin, cache, huge
    )  # fmt: skip


def _read(
    memory: ProcessMemory,
    place: ArenaPlace,
    par: MallocPar,
    threads: int,
    shared: int,
    ways: Sequence[bool],
    deadline: float,
) -> Heap:
    """Adds up all arenas. Raises Changed or Unreadable if they change meanwhile."""
    at_next = place.lists_at + 8 * _BINS + 16
    walk = _Walk(memory, place.lists_at, ways, deadline)
    held = free = top = caches = cached = arenas = 0
    one = place.arena
    while True:
        arenas += 1
        if arenas > _ARENAS_MOST:
            raise Changed
        size = memory.word_at(one + at_next + 24)
        of_top = walk.top(one, size)
        held += size
        top += of_top
        free += of_top + (walk.free(one) if size else 0)
        first = par.heap_begin if one == place.arena else one + at_next + 40
        cache = _cache(memory, (first + 15) // 16 * 16, par)
        if cache is not None:
            caches += 1
            cached += cache
        one = memory.word_at(one + at_next)
        if one == place.arena:
            break
    most = held + par.mapped_bytes - free - cached
    if most < 0:
        raise Changed
    others = max(0, threads - caches) * par.cached_most()
    heap = Heap(
        held=held + par.mapped_bytes,
        live_most=most,
        live_least=max(par.mapped_bytes, most - others),
        free=free + cached,
        top=top,
        mapped=par.mapped_bytes,
        mapped_blocks=par.mmaps,
        arenas=arenas,
        is_by_symbols=place.by_symbols,
    )
    return _with_pages(heap, memory, walk, shared)


def _with_pages(heap: Heap, memory: ProcessMemory, walk: _Walk, shared: int) -> Heap:
    """The statistics with the resident parts of free memory.

    shared: the bytes of private mappings that other processes have, too, since a fork.
    """
    spans = (walk.in_lists, walk.in_tops[:1], walk.in_tops[1:])
    found = [one for one in map(memory.pages, spans) if one is not None]
    if len(found) < len(spans):
        return heap

    def resident(of: int, *parts: Pages) -> int:
        """The resident part of `of` bytes, of which `parts` are the pages that may be missing."""
        partial = of - sum(one.size for one in parts)
        rest = min(shared, sum(one.rest for one in parts))
        return max(0, partial + sum(one.own for one in parts) + rest)

    lists, main_top, other_tops = found
    return replace(
        heap,
        free_resident=resident(heap.free, lists, main_top, other_tops),
        top_resident=resident(heap.top, main_top, other_tops),
        trimmed=lists.own + main_top.own,
    )


class _Walk:
    """Walks the free blocks of arenas, and notes the whole pages in them."""

    def __init__(
        self, memory: ProcessMemory, lists_at: int, ways: Sequence[bool], deadline: float
    ) -> None:
        self._memory, self._lists_at, self._deadline = memory, lists_at, deadline
        self._ways = ways
        self._walked = 0
        self.in_lists: list[Span] = []
        """The whole pages inside the free blocks of the lists, without empty spans."""
        self.in_tops: list[Span] = []
        """The whole pages of the top of each arena, in the order in which the tops were read."""

    def top(self, arena: int, arena_bytes: int) -> int:
        """The size of the block at the arena's end."""
        block = self._memory.word_at(arena + self._lists_at - 16)
        if not arena_bytes or block == arena + self._lists_at - 16:
            self.in_tops.append((0, 0))
            return 0  # the arena has no memory yet
        size = self._memory.word_at(block + 8) & ~_FLAGS
        self.in_tops.append(whole_pages(block + _LINKS, block + size))
        return size

    def free(self, arena: int) -> int:
        """The bytes of all free blocks in the arena's lists."""
        fast_at = arena + _BEFORE[self._lists_at]
        fast = self._memory.words_at(fast_at, _FASTBINS)
        total = sum(self._fast(head) for head in fast if head)
        lists = arena + self._lists_at
        words = self._memory.words_at(lists, _BINS)
        for number in range(0, _BINS, 2):
            head = lists + 8 * number - 16
            if words[number] != head:
                total += self._list(head, words[number])
        return total

    def _step(self) -> None:
        self._walked += 1
        if self._walked > _BLOCKS_MOST:
            raise NotFound(
                f"Live memory is not known: the lists have more than {_BLOCKS_MOST:,} free blocks, "
                "which is more than Cairn counts."
            )
        if self._walked % 4096 == 0 and time.process_time() > self._deadline:
            raise NotFound(
                "Live memory is not known: it takes more than "
                f"{_TIME_MOST_S:.0f} s of CPU time to count the free blocks."
            )

    def _list(self, head: int, block: int) -> int:
        """The bytes of a list of free blocks.

        Each block points to the next one and to the one before.
        """
        total, before = 0, head
        while block != head:
            self._step()
            _, size, forward, back = self._memory.words_at(block, 4)
            size &= ~_FLAGS
            if back != before or size < 32 or size % 16:
                raise Changed
            total += size
            whole = whole_pages(block + _LINKS, block + size)
            if whole[0] < whole[1]:
                self.in_lists.append(whole)
            before, block = block, forward
        return total

    def _fast(self, block: int) -> int:
        """The bytes of a list of small free blocks, each of which points only to the next one.

        If the version of glibc is not known, both ways of reading the pointers are tried. The wrong
        way leads to an address that holds no free block, so the walk raises Changed or Unreadable.
        """
        for is_mangled in self._ways[:-1]:
            with contextlib.suppress(Changed, Unreadable):
                return self._fast_read(block, is_mangled)
        return self._fast_read(block, self._ways[-1])

    def _fast_read(self, block: int, is_mangled: bool) -> int:
        """The bytes of such a list. `is_mangled` is one of `_ways`."""
        total = 0
        while block:
            self._step()
            _, size, stored = self._memory.words_at(block, 3)
            size &= ~_FLAGS
            if not 32 <= size <= 176 or size % 16:
                raise Changed
            total += size
            following = stored ^ (block + 16) >> 12 if is_mangled else stored
            if following % 16:
                raise Changed
            block = following
        return total


def _ways(libc: str | None) -> tuple[bool, ...]:
    """The possible ways to read the lists of small free blocks: True means mangled pointers.

    From glibc 2.32 on, such a pointer is not the address of the next block. It is this address XOR
    (the address of the pointer itself >> 12). Before 2.32, it is the plain address. If the version
    is not known, the result has both ways.

    libc: as for `read`.
    """
    version = re.fullmatch(r"glibc (\d+)\.(\d+)", libc or "")
    if version is None:
        return True, False
    return ((int(version[1]), int(version[2])) >= _MANGLED_FROM,)


def _cache(memory: ProcessMemory, block: int, par: MallocPar) -> int | None:
    """The bytes of the free blocks in a thread's cache; None if `block` does not hold a cache."""
    try:
        width = _CACHE_SIZES.get(memory.word_at(block + 8) & ~_FLAGS)
        if width is None:
            return None
        raw = memory.bytes_at(block + 16, width * _CACHE_BINS)
        entries = memory.words_at(block + 16 + width * _CACHE_BINS, _CACHE_BINS)
    except Unreadable:
        return None
    counts = struct.unpack(f"<{_CACHE_BINS}{'H' if width == 2 else 'B'}", raw)
    for count, entry in zip(counts, entries, strict=True):
        if count > par.cache_count or (count > 0) != (entry != 0) or entry % 16:
            return None
    return sum(int(count) * (32 + 16 * number) for number, count in enumerate(counts))
