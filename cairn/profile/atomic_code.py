"""Recognizes atomic instructions and pauses at the addresses of clock samples (x86-64).

An atomic instruction that waits for its cache line holds the processor, so clock samples come right
after it or at it. The loop of a spin lock often has an instruction `pause`, which also takes long.
So the kind of a sample follows from the instruction at its address and from the one that ends
there. Without `pause`, the loop itself is recognized (`waiting_loops`). The file may be hostile:
every read is bounded, and nothing is executed.
"""

from __future__ import annotations

import contextlib
import functools
import os

from msgspec import Struct

from cairn.binary import elf
from cairn.profile.waiting_loops import LONGEST, LOOP_BYTES, waits

_PAUSE = b"\xf3\x90"
_LOCK = 0xF0
_REX = range(0x40, 0x50)
_PREFIXES = (0x66, _LOCK, 0xF2, 0xF3, 0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65)
_IMMEDIATE = {0x80: 1, 0x83: 1}
"""Bytes of the immediate operand, by opcode. 0x81 has 4, or 2 with the prefix 0x66."""
_PLAIN = frozenset(
    (0x00, 0x01, 0x08, 0x09, 0x10, 0x11, 0x18, 0x19, 0x20, 0x21, 0x28, 0x29, 0x30, 0x31,
     0x80, 0x81, 0x83, 0x86, 0x87, 0xF6, 0xF7, 0xFE, 0xFF)
)  # fmt: skip
"""Opcodes of one byte that may be locked. 0x86 and 0x87, xchg, are atomic without a prefix."""
_WIDE = frozenset((0xAB, 0xB0, 0xB1, 0xB3, 0xBA, 0xBB, 0xC0, 0xC1, 0xC7))
"""The second byte of opcodes that begin with 0x0F and may be locked."""
_XCHG = (0x86, 0x87)


class Atomic(Struct, frozen=True):
    """An atomic instruction, or a pause."""

    is_pause: bool
    """Whether it is a pause, or any instruction of a loop that only waits."""
    address: int | None
    """The address of its memory operand in the file; None if the address depends on a register."""


class _Decoded(Struct, frozen=True):
    length: int
    displacement: int | None
    """The distance of the operand from the end of the instruction; None if the address of the
    operand depends on a register."""


def decoded(code: bytes) -> _Decoded | None:
    """The atomic instruction at the beginning of some bytes; None if there is none."""
    at, is_locked, is_short = 0, False, False
    while at < len(code) and code[at] in _PREFIXES:
        is_locked |= code[at] == _LOCK
        is_short |= code[at] == 0x66
        at += 1
    if at < len(code) and code[at] in _REX:
        at += 1
    if at + 2 > len(code):
        return None
    opcode, immediate = code[at], _IMMEDIATE.get(code[at], 0)
    if opcode == 0x0F:
        at += 1
        if code[at] not in _WIDE:
            return None
        immediate = 1 if code[at] == 0xBA else 0
    elif opcode not in _PLAIN:
        return None
    if opcode == 0x81:
        immediate = 2 if is_short else 4
    at += 1
    if not (is_locked or opcode in _XCHG) or at >= len(code):
        return None
    mode, register = code[at] >> 6, code[at] & 7
    at += 1
    if mode == 3:  # the operand is a register, not memory
        return None
    is_relative = mode == 0 and register == 5
    wide = mode == 2 or is_relative
    if register == 4:
        if at >= len(code):
            return None
        wide |= mode == 0 and code[at] & 7 == 5
        at += 1
    size = 4 if wide else mode
    if at + size + immediate > len(code):
        return None
    displacement = None
    if is_relative:
        displacement = int.from_bytes(code[at : at + 4], "little", signed=True)
    return _Decoded(at + size + immediate, displacement)


@functools.lru_cache(1 << 12)
def atomic_at(path: str, offset: int) -> Atomic | None:
    """The atomic instruction or pause at an offset of a file, or that ends there; None if neither.

    An instruction of a loop that only waits counts as a pause. None also for a file that cannot be
    read.
    """
    try:
        descriptor = elf.open_regular(path)
    except OSError:
        return None
    try:
        start = max(0, offset - LOOP_BYTES)
        code = os.pread(descriptor, offset - start + LOOP_BYTES + LONGEST, start)
        at = min(len(code), offset - start)
        found = _found(code[max(0, at - LONGEST) : at], code[at : at + LONGEST])
        if found is None and waits(code, at):
            return Atomic(True, None)
        if found is None or found[1] is None:
            return found[0] if found is not None else None
        image = elf.Image(descriptor)
        return Atomic(False, image.address_of(offset) + found[1])
    except (OSError, elf.NotElf, elf.Damaged):
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _found(before: bytes, after: bytes) -> tuple[Atomic, int | None] | None:
    """The atomic instruction or pause at the end of `before` or at the beginning of `after`.

    Also returns the distance of its operand from the end of `before`, if that is known.
    """
    if before.endswith(_PAUSE) or after.startswith(_PAUSE):
        return Atomic(True, None), None
    for length in range(len(before), 1, -1):
        one = decoded(before[-length:])
        if one is not None and one.length == length:
            return Atomic(False, None), one.displacement
    one = decoded(after)
    if one is None:
        return None
    reach = one.displacement + one.length if one.displacement is not None else None
    return Atomic(False, None), reach
