"""The mappings of a process, and the owners of the code in them."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from msgspec import Struct, field

from cairn.profile import code_owners
from cairn.profile.called_functions import called_before
from cairn.profile.code_owners import LOADER, OURS, VDSO, AllocatorCode, Owner


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
        return False if place is None else code_owners.makes_system_call(*place)

    def is_vdso(self, address: int) -> bool:
        """Whether the code at an address is that of the vDSO, whose calls cannot be recognised."""
        place = self.place(address)
        return place is not None and place[0] == VDSO

    def caller(self, address: int, words: Iterable[int], allocator: AllocatorCode) -> Owner | None:
        """The owner of the nearest return address outside LIBRARIES; None if there is none.

        words: return addresses, the innermost first. Words that are no addresses of code are
        ignored.

        A call of one of the allocator's functions belongs to the allocator, wherever it is: that
        function has jumped to the library as its last action, and left no return address.

        The probe is skipped: it passes the calls of other functions on to libc, and calls few for
        itself. But the loader works for the probe if the probe called it.
        """
        is_first = True
        for word in words:
            owner = self._calling(word, allocator)
            if owner is Owner.PROBE and is_first:
                place = self.place(address)
                if place is not None and LOADER.match(os.path.basename(place[0])):
                    return Owner.PROBE
            if owner not in (None, Owner.LIBRARY):
                is_first = False
                if owner is not Owner.PROBE:
                    return owner
        return None

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
        first, end = code_owners.calls_for_allocator(place[0])
        return first <= place[1] < end
