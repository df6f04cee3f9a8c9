"""Recognizes loops that only wait until another thread changes a word in memory (x86-64).

A thread that spins on a lock executes such a loop. It may be one without the instruction `pause`:

    1:  mov   lock(%rip), %eax
        test  %eax, %eax
        jne   1b

A loop waits if it loads words, stores nothing, and leaves the addresses of the loads as they are.
Nothing but another thread can then change what it loads. A loop that searches a list or an array
also loads and does not store, but it changes the address. The decoder knows the instructions that
compilers use for such loops. A loop with any other instruction is no loop that waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

LOOP_BYTES = 32
"""The most bytes of a loop."""
LONGEST = 15
"""The most bytes of an instruction."""
_PREFIXES = (0x66, 0xF3, 0x2E, 0x3E, 0x64, 0x65)
_REX = range(0x40, 0x50)
_JUMP_SHORT, _JUMP_NEAR = 0xEB, 0xE9
_NOTHING: frozenset[int] = frozenset()


class _Step(Struct, frozen=True):
    """One instruction. It stores nothing."""

    length: int
    reads: bool = False
    """Whether it loads from memory."""
    address: frozenset[int] = _NOTHING
    """The registers from which the address of the load is computed."""
    writes: frozenset[int] = _NOTHING
    """The registers that it changes."""
    jump: int | None = None
    """The distance from its end to the place to which it can jump; None if it does not jump."""
    goes_on: bool = True
    """Whether the instruction behind it can follow."""


class _Operands(Struct, frozen=True):
    """The operands of an instruction that a byte "ModRM" describes."""

    size: int
    """The bytes that describe them."""
    is_memory: bool
    address: frozenset[int]
    first: int
    """The register, or the number of the operation, in the middle of the byte."""
    second: int
    """The other register, if the operand is not in memory."""


def waits(code: bytes, at: int) -> bool:
    """Whether the instruction at `code[at]` belongs to a loop that waits.

    `code` should have LOOP_BYTES bytes before that place, and LOOP_BYTES + LONGEST after it.
    """
    return any(_waits(code, start, at) for start in range(max(0, at - LOOP_BYTES), at + 1))


def _waits(code: bytes, start: int, at: int) -> bool:
    """Whether a loop that waits begins at `code[start]` and has an instruction at `code[at]`."""
    reads = is_in = False
    address, writes = set[int](), set[int]()
    for place, step in _steps(code, start):
        end = place + step.length
        reads, is_in = reads or step.reads, is_in or place == at
        address |= step.address
        writes |= step.writes
        if step.jump is not None and end + step.jump == start:
            return reads and is_in and not address & writes
    return False


def _steps(code: bytes, start: int) -> Iterator[tuple[int, _Step]]:
    """Yields the instructions from `code[start]` on, with their places, as far as they are known.

    All of them end within LOOP_BYTES.
    """
    place, step = start, _decoded(code[start : start + LONGEST])
    while step is not None and place + step.length <= start + LOOP_BYTES:
        yield place, step
        if not step.goes_on:
            return
        place += step.length
        step = _decoded(code[place : place + LONGEST])


def _decoded(code: bytes) -> _Step | None:
    """The instruction at the beginning of some bytes.

    None if it stores, if the decoder does not know it, or if the bytes end before it does.
    """
    at, is_short, rex = 0, False, 0
    while at < len(code) and code[at] in _PREFIXES:
        is_short |= code[at] == 0x66
        at += 1
    if at < len(code) and code[at] in _REX:
        rex, at = code[at], at + 1
    if at >= len(code):
        return None
    opcode, at = code[at], at + 1
    immediate = 2 if is_short else 4
    if opcode == 0x0F:
        found = _of_two_bytes(code, at, rex) if at < len(code) else None
    elif opcode == 0x90:
        found = _Step(at)
    elif opcode in range(0x70, 0x80) or opcode == _JUMP_SHORT:
        found = _jump(code, at, 1, goes_on=opcode != _JUMP_SHORT)
    elif opcode == _JUMP_NEAR:
        found = _jump(code, at, 4, goes_on=False)
    elif opcode in range(0xB0, 0xB8):
        found = _Step(at + 1, writes=frozenset({opcode & 7 | (rex & 1) << 3}))
    elif opcode in range(0xB8, 0xC0):
        size = 8 if rex & 8 else immediate
        found = _Step(at + size, writes=frozenset({opcode & 7 | (rex & 1) << 3}))
    elif opcode in (0xA8, 0xA9, 0x3C, 0x3D):  # test and cmp of rax with a number
        found = _Step(at + (immediate if opcode & 1 else 1))
    elif opcode < 0x38 and opcode & 7 in (4, 5):  # add, or, … of a number to rax
        found = _Step(at + (immediate if opcode & 1 else 1), writes=frozenset({0}))
    else:
        found = _of_operands(code, at, opcode, rex, immediate)
    return found if found is not None and found.length <= len(code) else None


def _jump(code: bytes, at: int, size: int, *, goes_on: bool) -> _Step:
    distance = int.from_bytes(code[at : at + size], "little", signed=True)
    return _Step(at + size, jump=distance, goes_on=goes_on)


def _of_two_bytes(code: bytes, at: int, rex: int) -> _Step | None:
    """An instruction whose first byte, 0x0F, is before `code[at]`."""
    opcode, at = code[at], at + 1
    if opcode in range(0x80, 0x90):
        return _jump(code, at, 4, goes_on=True)
    of = _operands(code, at, rex)
    if of is None:
        return None
    end = at + of.size
    if opcode == 0x1F:  # nop
        return _Step(end)
    if opcode == 0xAE and not of.is_memory and of.first & 7 in (5, 6, 7):  # lfence and others
        return _Step(end)
    if opcode in (0xB6, 0xB7, 0xBE, 0xBF) or opcode in range(0x40, 0x50):  # movzx, movsx, cmov
        return _Step(end, of.is_memory, of.address, frozenset({of.first}))
    if opcode in range(0x90, 0xA0) and not of.is_memory:  # setcc
        return _Step(end, writes=frozenset({of.second}))
    return None


def _of_operands(code: bytes, at: int, opcode: int, rex: int, immediate: int) -> _Step | None:
    """An instruction with an opcode of one byte. Its operands are described at `code[at]`."""
    of = _operands(code, at, rex)
    if of is None:
        return None
    end, operation = at + of.size, of.first & 7
    loads = _Step(end, of.is_memory, of.address)
    into_first = _Step(end, of.is_memory, of.address, frozenset({of.first}))
    into_second = None if of.is_memory else _Step(end, writes=frozenset({of.second}))
    found: _Step | None = None
    extra = 0
    if opcode in (0x8A, 0x8B, 0x63):  # mov, movsxd
        found = into_first
    elif opcode == 0x8D:  # lea
        found = _Step(end, writes=frozenset({of.first})) if of.is_memory else None
    elif opcode in (0x38, 0x39, 0x3A, 0x3B, 0x84, 0x85):  # cmp, test
        found = loads
    elif opcode < 0x38 and opcode & 7 in (0, 1):  # add, or, … of the first to the second
        found = into_second
    elif opcode < 0x38 and opcode & 7 in (2, 3):
        found = into_first
    elif opcode in (0x88, 0x89, 0xD0, 0xD1, 0xD2, 0xD3):  # mov, shifts
        found = into_second
    elif opcode in (0x80, 0x81, 0x83):  # cmp, add, … with a number
        found = loads if operation == 7 else into_second
        extra = immediate if opcode == 0x81 else 1
    elif opcode in (0xC0, 0xC1, 0xC6, 0xC7):  # shifts by a number, mov of a number
        found = into_second
        extra = immediate if opcode == 0xC7 else 1
    elif opcode in (0xF6, 0xF7):  # test with a number; not, neg
        found = loads if operation < 2 else into_second if operation < 4 else None
        extra = 0 if operation >= 2 else immediate if opcode == 0xF7 else 1
    elif opcode in (0xFE, 0xFF) and operation < 2:  # inc, dec
        found = into_second
    if found is None:
        return None
    return _Step(found.length + extra, found.reads, found.address, found.writes)


def _operands(code: bytes, at: int, rex: int) -> _Operands | None:
    """The operands that the byte `code[at]` and those after it describe; None if they are cut."""
    if at >= len(code):
        return None
    mode, first, second = code[at] >> 6, code[at] >> 3 & 7 | (rex & 4) << 1, code[at] & 7
    if mode == 3:
        return _Operands(1, False, _NOTHING, first, second | (rex & 1) << 3)
    size, address = 1, {second | (rex & 1) << 3}
    is_wide = mode == 2
    if second == 4:
        if at + 1 >= len(code):
            return None
        size, scaled = 2, code[at + 1]
        index, base = scaled >> 3 & 7 | (rex & 2) << 2, scaled & 7
        address = {base | (rex & 1) << 3}
        if mode == 0 and base == 5:
            address, is_wide = set(), True
        if index != 4:
            address.add(index)
    elif mode == 0 and second == 5:  # relative to the instruction
        address, is_wide = set(), True
    return _Operands(size + (4 if is_wide else mode), True, frozenset(address), first, 0)
