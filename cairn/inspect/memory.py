"""Reads the memory of another process, without stopping it."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cairn.inspect.process import Target

PAGE = 1 << 12
AHEAD = 4
"""The number of pages that are read at once. Lists of free blocks often lie close together."""
_PAGES_MOST = 1 << 14
"""The most pages that are kept, which is 64 MiB."""
_ENTRIES_MOST = 1 << 17
"""The most entries of pagemap that are read at once. An entry has 8 bytes."""
_PRESENT, _OWN = np.uint64(1 << 63), np.uint64(1 << 56)
"""Two bits of an entry of pagemap. The first one says that the page is in physical memory, the
second one that only this process has it."""
Span = tuple[int, int]
"""The addresses of the first byte of a part of the memory, and of the first byte behind it."""


class Pages(Struct, frozen=True):
    """Some pages of the process, in bytes."""

    size: int
    own: int
    """The pages in physical memory that only this process has."""
    rest: int
    """The other pages in physical memory. A process shares pages with another one since a fork. If
    a page was only read, the kernel shows it a page of zeros that all processes share. So a part of
    these pages may take no memory."""


def whole_pages(start: int, end: int) -> Span:
    """The whole pages between two addresses. The span is empty if there are none."""
    first, last = -(-start // mmap.PAGESIZE), end // mmap.PAGESIZE
    return first * mmap.PAGESIZE, max(first, last) * mmap.PAGESIZE


class Unreadable(Exception):
    """The process has no memory at this address, or the kernel does not let it be read."""


class ProcessMemory:
    """The memory of a process as it was when it was first read.

    Each page is read once. So a list is walked in one state of its pages, and with few system
    calls. `forget` drops all pages, so that they are read again.
    """

    def __init__(self, target: Target) -> None:
        self._folder = target.folder
        try:
            self._file = os.open(f"{self._folder}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise target.refused(error) from error
        self._pages: dict[int, bytes] = {}

    def __enter__(self) -> ProcessMemory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def forget(self) -> None:
        """Drops all pages, so that they are read again."""
        self._pages.clear()

    def bytes_at(self, address: int, size: int) -> bytes:
        """Bytes from an address on. Raises Unreadable."""
        found = bytearray()
        while len(found) < size:
            number, at = divmod(address + len(found), PAGE)
            found += self._page(number)[at : at + size - len(found)]
        return bytes(found)

    def words_at(self, address: int, count: int) -> tuple[int, ...]:
        """64-bit words from an address on. Raises Unreadable."""
        return struct.unpack(f"<{count}Q", self.bytes_at(address, 8 * count))

    def word_at(self, address: int) -> int:
        """The 64-bit word at an address. Raises Unreadable."""
        return self.words_at(address, 1)[0]

    def ints_at(self, address: int, count: int) -> tuple[int, ...]:
        """32-bit numbers from an address on. Raises Unreadable."""
        return struct.unpack(f"<{count}i", self.bytes_at(address, 4 * count))

    def fresh(self, address: int, size: int) -> bytes:
        """Bytes from an address on, read now and not kept. Raises Unreadable."""
        try:
            found = os.pread(self._file, size, address)
        except (OSError, OverflowError, ValueError) as error:
            raise Unreadable(address) from error
        if len(found) != size:
            raise Unreadable(address)
        return found

    def pages(self, spans: Sequence[Span]) -> Pages | None:
        """Spans of whole pages, added up; None if the kernel does not show which are resident.

        The spans do not overlap.
        """
        count = own = present = 0
        try:
            file = os.open(f"{self._folder}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            for entries in _entries(file, spans):
                is_present = entries & _PRESENT != 0
                count += len(entries)
                present += int(np.count_nonzero(is_present))
                own += int(np.count_nonzero(is_present & (entries & _OWN != 0)))
        except (OSError, OverflowError, ValueError):
            return None
        finally:
            os.close(file)
        return Pages(*(number * mmap.PAGESIZE for number in (count, own, present - own)))

    def _page(self, number: int) -> bytes:
        if number not in self._pages:
            if len(self._pages) >= _PAGES_MOST:
                self._pages.clear()
            content = self._read(number, AHEAD) or self._read(number, 1)
            if not content:
                raise Unreadable(number * PAGE)
            for place in range(len(content) // PAGE):
                part = content[place * PAGE : (place + 1) * PAGE]
                self._pages.setdefault(number + place, part)
        return self._pages[number]

    def _read(self, number: int, count: int) -> bytes:
        """Reads up to `count` whole pages, and stops before the first one that is not mapped."""
        try:
            return os.pread(self._file, count * PAGE, number * PAGE)
        except (OSError, OverflowError, ValueError):
            return b""


def _entries(pagemap: int, spans: Sequence[Span]) -> Iterator[NDArray[np.uint64]]:
    """Yields the entries of all pages of the spans. Raises ValueError if the kernel shows too few.

    Many spans are short and lie close together. So the entries between them are read as well, and
    left out afterwards.
    """
    bounds = np.array(sorted(spans), np.int64).reshape(-1, 2) // mmap.PAGESIZE
    starts, ends = bounds[bounds[:, 0] < bounds[:, 1]].T
    at = 0
    while len(ends) and at < ends[-1]:
        first = int(np.searchsorted(ends, at, "right"))
        at = max(at, int(starts[first]))
        behind = int(np.searchsorted(starts, at + _ENTRIES_MOST))
        stop = min(at + _ENTRIES_MOST, int(ends[behind - 1]))
        content = os.pread(pagemap, 8 * (stop - at), 8 * at)
        if len(content) != 8 * (stop - at):
            raise ValueError(at)
        edges = np.zeros(stop - at + 1, np.int8)
        edges[np.maximum(starts[first:behind], at) - at] += 1
        edges[np.minimum(ends[first:behind], stop) - at] -= 1
        yield np.frombuffer(content, np.uint64)[np.cumsum(edges[:-1]) > 0]
        at = stop
