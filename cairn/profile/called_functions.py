"""Finds which function a call instruction calls, from the file that contains it (x86-64).

The address after a call is the return address on the stack. A call goes to a function of the same
file, or to one of another file, through a slot that the loader fills: directly or by way of a stub
in the procedure linkage table. The relocation of the slot names the function. The file may be
hostile: every read is bounded, and nothing is executed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import struct

from msgspec import Struct

from cairn.binary import elf

_CALL, _CALL_SLOT = b"\xe8", b"\xff\x15"
"""The first bytes of the two forms of a call that names its function. The first form calls a place
relative to the return address. The second one calls the address in a slot at such a place."""
_STUB = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xf2?\xff\x25", re.DOTALL)
"""The beginning of a stub: endbr64, a prefix bnd, and a jump to the address in a slot."""
_STUB_BYTES = 16
_ALLOCATES = re.compile(
    r"(malloc|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|p?valloc|c?free"
    r"|free_sized|free_aligned_sized|malloc_(trim|usable_size)|_Z[nd][aw]\w*)(@.*)?"
)
"""The names of an allocator's functions, including the operators of C++."""


class Called(Struct, frozen=True):
    """The function that is called: its name, or its offset in the file of the call."""

    name: str = ""
    """Empty if the function is in the same file."""
    offset: int | None = None

    @property
    def allocates(self) -> bool:
        """Whether it is a function of the allocator, by its name."""
        return bool(_ALLOCATES.fullmatch(self.name))


@functools.lru_cache(1 << 14)
def called_before(path: str, offset: int) -> Called | None:
    """The function called by the instruction that ends at an offset of a file; None if not known.

    None also if no call ends there, and for a file that cannot be read.
    """
    with contextlib.suppress(OSError, elf.NotElf, elf.Damaged):
        descriptor = elf.open_regular(path)
        try:
            code = os.pread(descriptor, min(offset, 6), max(0, offset - 6))
            if len(code) == 6 and (code[1:2] == _CALL or code[:2] == _CALL_SLOT):
                return _called(elf.Image(descriptor), path, code, offset)
        finally:
            os.close(descriptor)
    return None


def _called(image: elf.Image, path: str, code: bytes, offset: int) -> Called | None:
    place = image.address_of(offset - 1) + 1 + _distance(code[2:])
    if code[:2] == _CALL_SLOT:
        return _in_slot(path, place)
    target = image.offset_of(place)
    stub = image.bytes_at(target, _STUB_BYTES)
    jump = _STUB.match(stub)
    if jump is None or len(stub) < jump.end() + 4:
        return Called(offset=target)
    end = jump.end() + 4
    return _in_slot(path, place + end + _distance(stub[jump.end() : end]))


def _distance(code: bytes) -> int:
    (found,) = struct.unpack("<i", code)
    return int(found)


def _in_slot(path: str, address: int) -> Called | None:
    name = _slots(path).get(address)
    return None if name is None else Called(name)


@functools.lru_cache(64)
def _slots(path: str) -> dict[int, str]:
    """By address of a slot: the name of the function that the loader puts there."""
    with contextlib.suppress(OSError, elf.NotElf, elf.Damaged), elf.opened(path) as image:
        return dict(image.slots())
    return {}
