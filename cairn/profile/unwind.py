"""Unwinds the stack of a clock sample by the unwind tables of the files (.eh_frame), on x86-64.

A sample has some registers of the thread and a copy of the top of its stack. The tables say for
each address where the caller's registers are. The kernel also records a chain of calls, but it ends
in code without frame pointers, such as most libraries. The tables lead through such code. A walk
ends at code without a table, at the end of the copy, or at the start of the thread.

A file may be hostile: every read is bounded, and nothing is executed.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn.binary import elf
from cairn.profile.address_space import Space
from cairn.profile.code_owners import VDSO

FRAMES_MOST = 64
_PT_GNU_EH_FRAME = 0x6474E550
_HEAD_FORMS = (1, 0x1B, 0x03, 0x3B)
"""The first four bytes of the sorted table (.eh_frame_hdr), as all linkers write them: its version,
and the forms of its numbers."""
_TABLE_MOST = 64 << 20
_FUNCTIONS_MOST = 200_000
"""The most functions that are read from a file without a sorted table (.eh_frame_hdr)."""
_RBX, _RBP, _RSP, _RETURN = 3, 6, 7, 16
_SAVED = {_RBX: 1, _RBP: 6, 12: 20, 13: 21, 14: 22, 15: 23}
"""The registers that a function must preserve: the number of each in the tables, and its number in
perf events."""
SP, IP, BP = 7, 8, 6
"""The numbers in perf events of the stack, instruction and frame pointers."""
_OPERATIONS_MOST = 10_000
_PLT_BEGINS = int.from_bytes(b"\x77\x08\x80\x00", "little")
"""The linker's expression for the frame of a PLT entry begins so: rsp + 8, then rip + 0."""


class NoTable(Exception):
    """There is no table for an address, or the table has an unknown form."""


class FrameRow(Struct, frozen=True):
    """The places of the caller's registers while the program is at one address.

    The *frame* is the address that the caller's stack pointer has (CFA in DWARF).
    """

    register: int = _RSP
    offset: int = 0
    """The frame is the value of `register` plus this offset."""
    is_plt: bool = False
    """Whether a DWARF expression gives the frame. It is taken for the one that linkers write for
    the stubs of calls between files (PLT)."""
    saved: tuple[tuple[int, int], ...] = ()
    """The registers that the function has saved, and their offsets from the frame."""
    is_last: bool = False
    """Whether the function has no caller."""


class Unwinder:
    """Walks stacks. Each file is read once, and each address is looked up once."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table | None] = {}
        self._rows: dict[tuple[str, int], FrameRow | None] = {}

    def knows(self, space: Space, address: int) -> bool:
        """Whether a table says where the caller of the code at an address is."""
        place = space.place(address)
        return place is not None and self._row(*place) is not None

    def walk(
        self, space: Space, registers: Mapping[int, int], stack: bytes | memoryview
    ) -> Iterator[int]:
        """Yields the return addresses, the innermost first; at most FRAMES_MOST.

        registers: by their numbers in perf events. The stack pointer and the instruction pointer
        must be among them. stack: the bytes from the stack pointer on.
        """
        low = sp = registers[SP]
        ip = registers[IP]
        values = {number: registers[perf] for number, perf in _SAVED.items() if perf in registers}

        def word(address: int) -> int | None:
            at = address - low
            if at < 0 or at + 8 > len(stack):
                return None
            value: int = struct.unpack_from("<Q", stack, at)[0]
            return value

        for depth in range(FRAMES_MOST):
            # A call may be the last instruction of its function. The return address then lies
            # after the function, so the byte before this address is looked up.
            place = space.place(ip - 1 if depth else ip)
            row = None if place is None else self._row(*place)
            if row is None or row.is_last:
                return
            if row.is_plt:
                frame = sp + 8 + (8 if ip & 15 >= 11 else 0)
            elif row.register == _RSP:
                frame = sp + row.offset
            elif row.register in values:
                frame = values[row.register] + row.offset
            else:
                return
            following = word(frame - 8)
            if following is None or frame <= sp:
                return
            for number, at in row.saved:
                value = word(frame + at)
                if number in _SAVED and value is not None:
                    values[number] = value
            sp, ip = frame, following
            if not ip:
                return
            yield ip

    def _row(self, path: str, offset: int) -> FrameRow | None:
        key = (path, offset)
        if key not in self._rows:
            if path not in self._tables:
                self._tables[path] = _read(path)
            table, row = self._tables[path], None
            if table is not None:
                with contextlib.suppress(NoTable, IndexError, struct.error, elf.Damaged):
                    row = table.row(offset)
            self._rows[key] = row
        return self._rows[key]


def _read(path: str) -> _Table | None:
    if path.startswith(("[", "//")) and path != VDSO:
        return None
    with contextlib.suppress(
        OSError, elf.NotElf, elf.Damaged, NoTable, ValueError, IndexError, struct.error
    ):
        descriptor = _own_vdso() if path == VDSO else elf.open_regular(path)
        try:
            content = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            return _Table(content, elf.Image(descriptor))
        finally:
            os.close(descriptor)
    return None


def _own_vdso() -> int:
    """Returns a descriptor of a copy of the vDSO. The kernel maps the same one into each process.

    Raises OSError or ValueError if there is none.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        line = next((line for line in maps if line.rstrip().endswith(VDSO)), "")
    start, end = (int(number, 16) for number in line.partition(" ")[0].split("-"))
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.pread(memory, end - start, start)
    finally:
        os.close(memory)
    copy = os.memfd_create("vdso")
    os.write(copy, content)
    return copy


class _Table:
    """The unwind table of one file.

    `_numbers` has two numbers for each function: its address, and that of its description (FDE),
    both as distances from `_base`. The functions are sorted by their addresses.
    """

    def __init__(self, content: mmap.mmap, image: elf.Image) -> None:
        if image.bits != 64 or image.machine != "x86-64":
            raise NoTable
        self._content, self._image = content, image
        segment = next((one for one in image.segments if one.type == _PT_GNU_EH_FRAME), None)
        if segment is None:
            functions = sorted(self._walked())
            self._numbers: Sequence[int] = [number for pair in functions for number in pair]
            self._base = 0
            return
        head = content[segment.offset : segment.offset + 12]
        if tuple(head[:4]) != _HEAD_FORMS:
            raise NoTable
        (count,) = struct.unpack_from("<I", head, 8)
        count = min(count, _TABLE_MOST // 8, (len(content) - segment.offset - 12) // 8)
        first = segment.offset + 12
        self._numbers = memoryview(content)[first : first + 8 * count].cast("i")
        self._base = segment.address

    def _walked(self) -> Iterator[tuple[int, int]]:
        """Yields the address of each function, and that of its description (FDE).

        Static programs have no sorted table, so all descriptions must be read.
        """
        section = next((one for one in self._image.sections() if one.name == ".eh_frame"), None)
        if section is None:
            raise NoTable
        reader = _TableReader(self._content, section.offset, self._image.address_of(section.offset))
        for _ in range(_FUNCTIONS_MOST):
            place = reader.address
            if reader.at + 8 > section.offset + section.file_bytes:
                return
            try:
                end = reader.record()
            except NoTable:
                return  # a length of 0 ends the table
            here = reader.address
            if distance := reader.unsigned(4):
                yield reader.pointer(self._general(here - distance).form), place
            reader.at = end

    def row(self, offset: int) -> FrameRow:
        """The row for the byte at an offset of the file.

        Raises NoTable. For a damaged file, it raises IndexError, struct.error or Damaged.
        """
        address = self._image.address_of(offset)
        functions = range(len(self._numbers) // 2)
        before = bisect_right(
            functions, address - self._base, key=lambda index: self._numbers[2 * index]
        )
        if not before:
            raise NoTable
        return self._of_function(self._numbers[2 * before - 1] + self._base, address)

    def _of_function(self, place: int, address: int) -> FrameRow:
        """The row of the function whose description (FDE) has this address."""
        reader = _TableReader(self._content, self._image.offset_of(place), place)
        end = reader.record()
        here = reader.address
        general = self._general(here - reader.unsigned(4))
        if general.of_signal:
            raise NoTable
        begin = reader.pointer(general.form)
        size = reader.pointer(general.form & 0x0F)
        if not begin <= address < begin + size:
            raise NoTable
        if general.has_length:
            reader.skip(reader.uleb())
        program = _Program(general)
        program.run(_TableReader(self._content, general.begin, 0), general.end, None)
        first = program.row
        program.initial = first
        program.at = begin
        program.run(reader, end, address)
        return program.row

    @functools.cache  # noqa: B019 - a table lives as long as the command
    def _general(self, place: int) -> _General:
        """Reads the part that several descriptions have in common (CIE)."""
        reader = _TableReader(self._content, self._image.offset_of(place), place)
        end = reader.record()
        if reader.unsigned(4) != 0:
            raise NoTable
        version = reader.unsigned(1)
        augmentation = reader.text()
        if version not in (1, 3) or not (augmentation == "" or augmentation[0] == "z"):
            raise NoTable
        code, data = reader.uleb(), reader.sleb()
        returns = reader.unsigned(1) if version == 1 else reader.uleb()
        form, behind = 0, reader.at
        if augmentation:
            size = reader.uleb()
            behind = reader.at + size
            for letter in augmentation[1:]:
                if letter == "R":
                    form = reader.unsigned(1)
                elif letter == "P":
                    reader.pointer(reader.unsigned(1))
                elif letter == "L":
                    reader.skip(1)
        if returns != _RETURN:
            raise NoTable
        of_signal = "S" in augmentation
        return _General(code, data, form, bool(augmentation), of_signal, behind, end)


class _General(Struct, frozen=True):
    code: int
    """The instructions give distances between addresses in multiples of this number."""
    data: int
    """The instructions give offsets from the frame in multiples of this number."""
    form: int
    """The encoding of addresses in the descriptions."""
    has_length: bool
    of_signal: bool
    """Whether the function is the one to which a signal handler returns. Its frame is not known."""
    begin: int
    """The offset of its first instruction in the file. `end` is the offset after the last one."""
    end: int


class _TableReader:
    """Reads one number of a file after the other."""

    def __init__(self, content: mmap.mmap, at: int, address: int) -> None:
        self._content, self.at, self._shift = content, at, address - at

    @property
    def address(self) -> int:
        """The address of the next byte."""
        return self.at + self._shift

    def record(self) -> int:
        """Reads the length of a record, and returns the offset of its end."""
        size = self.unsigned(4)
        if size in (0, 0xFFFFFFFF) or self.at + size > len(self._content):
            raise NoTable
        return self.at + size

    def unsigned(self, width: int) -> int:
        """An unsigned number of this many bytes."""
        value = int.from_bytes(self._content[self.at : self.at + width], "little")
        self.at += width
        return value

    def signed(self, width: int) -> int:
        """A signed number of this many bytes."""
        value = int.from_bytes(self._content[self.at : self.at + width], "little", signed=True)
        self.at += width
        return value

    def pointer(self, form: int) -> int:
        """An address in one of the forms that compilers write."""
        here, kind = self.address, form & 0x0F
        if kind in (0x0B, 0x03):
            value = self.signed(4) if kind == 0x0B else self.unsigned(4)
        elif kind in (0x00, 0x04, 0x0C):
            value = self.signed(8) if kind == 0x0C else self.unsigned(8)
        else:
            raise NoTable
        if form & 0x70 == 0x10:
            return value + here
        if form & 0x70:
            raise NoTable
        return value

    def uleb(self) -> int:
        """An unsigned number of variable length."""
        return self._number()[0]

    def sleb(self) -> int:
        """A signed number of variable length."""
        value, bits, is_negative = self._number()
        return value - (1 << bits) if is_negative else value

    def _number(self) -> tuple[int, int, bool]:
        """A number of variable length, its number of bits, and whether the highest bit is set."""
        value = shift = 0
        while shift < 64:
            byte = self._content[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value, shift, byte & 64 != 0
        raise NoTable

    def text(self) -> str:
        """A text that ends with a zero."""
        end = self._content.find(b"\0", self.at, self.at + 16)
        if end < 0:
            raise NoTable
        value = self._content[self.at : end].decode("ascii", "replace")
        self.at = end + 1
        return value

    def skip(self, size: int) -> None:
        """Passes over some bytes."""
        self.at += size


class _Program:
    """Runs the instructions of a description (FDE).

    They change a row step by step, from the first address of the function on.
    """

    def __init__(self, general: _General) -> None:
        self._general = general
        self.row = self.initial = FrameRow()
        self.at = 0
        self._kept: list[FrameRow] = []

    def run(self, reader: _TableReader, end: int, address: int | None) -> None:
        """Runs the instructions up to an address; all of them if `address` is None."""
        for _ in range(_OPERATIONS_MOST):
            if reader.at >= end:
                return
            operation = reader.unsigned(1)
            low = operation & 63
            step = 0
            match operation >> 6:
                case 1:
                    step = low
                case 2:
                    self._save(low, reader.uleb() * self._general.data)
                case 3:
                    self._restore(low)
                case _:
                    step = self._other(reader, low)
            self.at += step * self._general.code
            if address is not None and step and self.at > address:
                return
        raise NoTable

    def _other(self, reader: _TableReader, operation: int) -> int:
        """Runs an operation whose code takes a whole byte.

        Returns how far the address moves, in multiples of `_General.code`.
        """
        data = self._general.data
        match operation:
            case 0x00:
                pass
            case 0x02 | 0x03 | 0x04:
                return reader.unsigned(1 << (operation - 2))
            case 0x05:
                self._save(reader.uleb(), reader.uleb() * data)
            case 0x06:
                self._restore(reader.uleb())
            case 0x07:
                if reader.uleb() == _RETURN:
                    self.row = replace(self.row, is_last=True)
            case 0x08:
                self._forget(reader.uleb())
            case 0x09:
                self._forget(reader.uleb())
                reader.uleb()
            case 0x0A:
                self._kept.append(self.row)
            case 0x0B:
                self.row = self._kept.pop()
            case 0x0C:
                self._frame(reader.uleb(), reader.uleb())
            case 0x0D:
                self._frame(reader.uleb(), self.row.offset)
            case 0x0E:
                self._frame(self.row.register, reader.uleb())
            case 0x0F:
                # A function that aligns its stack has an expression, too, which is not known here.
                end = reader.uleb() + reader.at
                if reader.unsigned(4) != _PLT_BEGINS:
                    raise NoTable
                reader.skip(end - reader.at)
                self.row = replace(self.row, is_plt=True)
            case 0x10 | 0x16:
                self._forget(reader.uleb())
                reader.skip(reader.uleb())
            case 0x11:
                self._save(reader.uleb(), reader.sleb() * data)
            case 0x12:
                self._frame(reader.uleb(), reader.sleb() * data)
            case 0x13:
                self._frame(self.row.register, reader.sleb() * data)
            case 0x2E:
                reader.uleb()
            case _:
                raise NoTable
        return 0

    def _frame(self, register: int, offset: int) -> None:
        self.row = replace(self.row, register=register, offset=offset, is_plt=False)

    def _save(self, register: int, at: int) -> None:
        self._forget(register)
        self.row = replace(self.row, saved=(*self.row.saved, (register, at)))

    def _forget(self, register: int) -> None:
        kept = tuple(one for one in self.row.saved if one[0] != register)
        self.row = replace(self.row, saved=kept)

    def _restore(self, register: int) -> None:
        self._forget(register)
        before = tuple(one for one in self.initial.saved if one[0] == register)
        self.row = replace(self.row, saved=self.row.saved + before)
