"""Reads the memory of another process, without stopping it."""

from __future__ import annotations

import os
import struct

from cairn.inspect.process import Target

PAGE = 1 << 12
AHEAD = 4
"""The number of pages that are read at once. Lists of free blocks often lie close together."""
_PAGES_MOST = 1 << 14
"""The most pages that are kept, which is 64 MiB."""


class Unreadable(Exception):
    """The process has no memory at this address, or the kernel does not let it be read."""


class ProcessMemory:
    """The memory of a process as it was when it was first read.

    Each page is read once. So a list is walked in one state of its pages, and with few system
    calls. `forget` drops all pages, so that they are read again.
    """

    def __init__(self, target: Target) -> None:
        try:
            self._file = os.open(f"/proc/{target.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
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
