"""Reads ELF files in small and bounded pieces.

Every file may be hostile. No table is walked whose length the file dictates: symbols are looked up
through the hash table, as the dynamic loader does, and every read is small. (A general ELF library
walks whole tables, which a damaged header can make billions of entries long.)
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import struct
from collections.abc import Iterator

from msgspec import Struct

READ_MAX = 64 * 1024
"""The most bytes of a segment that are read."""


_SEGMENTS_MAX = 1024


_CHAIN_MAX = 4096
"""The most symbols of one hash chain that are looked at."""


_NAME_MAX = 4096
"""The most bytes of a name or path that are read."""


_MACHINES = {
    3: "i386", 8: "mips", 20: "powerpc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86-64",
    183: "aarch64",
    243: "riscv", 258: "loongarch",
}  # fmt: skip


ET_EXEC, ET_DYN = 2, 3


_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE = 1, 2, 3, 4
_PT_GNU_EH_FRAME = 0x6474E550


_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SONAME = 1, 4, 5, 6, 10, 14


_DT_PLTRELSZ, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 2, 7, 8, 23


_RELOCATION = struct.Struct("<QIIq")
"""A relocation of x86-64: the address of the slot, the kind, the index of a symbol, a number."""
_RELOCATIONS_READ = 1 << 22
"""The most bytes of a table of relocations that are read."""
_SLOT_KINDS = (6, 7)
"""The kinds R_X86_64_GLOB_DAT and R_X86_64_JUMP_SLOT: the loader puts the address of the symbol
into the slot."""


_DT_GNU_HASH, _DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFFB


_DF_1_PIE = 0x08000000


_NT_GNU_BUILD_ID = 3


_SECTIONS_MAX = 4096
"""The most sections that are read. An executable has about forty.

Object files with a section per function have more, but nothing reads the sections of those.
"""


_SHT_NOBITS = 8


_EH_HEAD = struct.Struct("4BII")
"""The head of .eh_frame_hdr: version, three forms of numbers, a pointer, number of entries."""
_EH_FORMS = (0x1B, 0x03, 0x3B)
"""The forms of numbers that linkers write. The pointer has 4 bytes and is relative to its own
place. The number of entries has 4 bytes. The numbers in the entries have 4 bytes and are relative
to the start of .eh_frame_hdr. Each entry begins with the address of a function."""


class NotElf(Exception):
    """The file is no ELF file. The text says what it is, as the end of a sentence."""


class Damaged(Exception):
    """A header points outside the file, or a table is invalid."""


class _Segment(Struct, frozen=True):
    type: int
    offset: int
    address: int
    file_bytes: int


class Section(Struct, frozen=True):
    """A part of the file with a name, for linkers and debuggers. The loader needs no sections."""

    name: str
    offset: int
    file_bytes: int


class Image:
    """The facts of an ELF file that the loader would use.

    Reads at most a few hundred KiB, except for content(). The constructor raises NotElf or Damaged.
    The properties and methods raise Damaged or OSError.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, 64, 0)
        if not head:
            raise NotElf("is empty")
        if not head.startswith(b"\x7fELF"):
            raise NotElf(_what_else(head))
        if (
            len(head) < 52
            or head[4] not in (1, 2)
            or head[5] not in (1, 2)
            or (head[4] == 2 and len(head) < 64)
        ):
            raise Damaged
        self.bits = 32 if head[4] == 1 else 64
        self._order = "<" if head[5] == 1 else ">"
        layout = "HHIIIIIHHHHHH" if self.bits == 32 else "HHIQQQIHHHHHH"
        fields = struct.unpack_from(self._order + layout, head, 16)
        self.type: int = fields[0]
        self._machine_number: int = fields[1]
        segments_at, sections_at, entry_bytes, count = fields[4], fields[5], fields[8], fields[9]
        self._sections = (sections_at, fields[10], fields[11], fields[12])
        self._sections_end = sections_at + fields[10] * fields[11] if sections_at else 0
        self.segments = self._read_segments(segments_at, entry_bytes, count) if count else ()
        self._tags = self._read_dynamic()

    def _read_segments(self, at: int, entry_bytes: int, count: int) -> tuple[_Segment, ...]:
        expected = 32 if self.bits == 32 else 56
        if entry_bytes != expected or count > _SEGMENTS_MAX:
            raise Damaged
        table = self._read(at, count * expected)
        segments = []
        for index in range(count):
            if self.bits == 32:
                kind, offset, address, _, size = struct.unpack_from(
                    self._order + "IIIII", table, index * expected
                )
            else:
                kind, _, offset, address, _, size = struct.unpack_from(
                    self._order + "IIQQQQ", table, index * expected
                )
            segments.append(_Segment(kind, offset, address, size))
        return tuple(segments)

    def _read_dynamic(self) -> tuple[tuple[int, int], ...]:
        """The dynamic section as (tag, value) pairs, without the end mark."""
        segment = next(self._of_type(_PT_DYNAMIC), None)
        if segment is None or self.truncated:
            return ()
        table = self._read(segment.offset, min(segment.file_bytes, READ_MAX))
        entry = struct.Struct(self._order + ("iI" if self.bits == 32 else "qQ"))
        tags = []
        for tag, value in entry.iter_unpack(table[: len(table) // entry.size * entry.size]):
            if tag == 0:
                break
            tags.append((tag, value))
        return tuple(tags)

    def sections(self) -> tuple[Section, ...]:
        """All sections except those without content.

        The result is empty if the table was stripped or is invalid. That is not an error, since a
        program works without sections.
        """
        at, entry_bytes, count, names_index = self._sections
        if (
            not at
            or entry_bytes != (40 if self.bits == 32 else 64)
            or count > _SECTIONS_MAX
            or names_index >= count
        ):
            return ()
        layout = struct.Struct(self._order + ("IIIIIIIIII" if self.bits == 32 else "IIQQQQIIQQ"))
        entries = [fields[:6] for fields in layout.iter_unpack(self._read(at, count * entry_bytes))]
        names = self.content(Section("", *entries[names_index][4:6]), READ_MAX)
        return tuple(
            Section(os.fsdecode(names[name : name + _NAME_MAX].split(b"\0")[0]), offset, size)
            for name, kind, _, _, offset, size in entries
            if kind != _SHT_NOBITS
        )

    def content(self, section: Section, most: int) -> bytes:
        """The first `most` bytes of a section; fewer if the section or the file is shorter."""
        return os.pread(
            self._descriptor, max(0, min(section.file_bytes, most)), min(section.offset, self.size)
        )

    @property
    def truncated(self) -> bool:
        """Whether the headers promise more bytes than the file has."""
        ends = [self._sections_end, *(s.offset + s.file_bytes for s in self.segments)]
        return max(ends) > self.size

    @property
    def machine(self) -> str:
        """The architecture by its common name, such as "x86-64"."""
        return _MACHINES.get(self._machine_number, f"machine {self._machine_number}")

    @property
    def is_dynamic(self) -> bool:
        """Whether the file has a dynamic section."""
        return bool(self._tags)

    @property
    def is_pie(self) -> bool:
        """Whether the file is a position-independent executable.

        Such an executable has the ELF type ET_DYN, like a library.
        """
        return bool((self._tag(_DT_FLAGS_1) or 0) & _DF_1_PIE)

    @property
    def loader(self) -> str | None:
        """The path of the requested dynamic loader; None for static files and libraries."""
        segment = next(self._of_type(_PT_INTERP), None)
        if segment is None:
            return None
        return os.fsdecode(
            self._read(segment.offset, min(segment.file_bytes, _NAME_MAX)).split(b"\0")[0]
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the libraries that the file needs."""
        return tuple(self._string(value) for tag, value in self._tags if tag == _DT_NEEDED)

    @property
    def soname(self) -> str | None:
        """The name under which other files need this library; None if it has no such name."""
        offset = self._tag(_DT_SONAME)
        return None if offset is None else self._string(offset)

    @property
    def build_id(self) -> str | None:
        """The build ID that the linker wrote, in hexadecimal; None if there is none."""
        for segment in self._of_type(_PT_NOTE):
            notes = self._read(segment.offset, min(segment.file_bytes, READ_MAX))
            at = 0
            while at + 12 <= len(notes):
                name_bytes, value_bytes, kind = struct.unpack_from(self._order + "III", notes, at)
                name_at = at + 12
                value_at = name_at + (name_bytes + 3) // 4 * 4
                if kind == _NT_GNU_BUILD_ID and notes[name_at : name_at + name_bytes] == b"GNU\0":
                    return (
                        notes[value_at : min(value_at + value_bytes, value_at + 64)].hex() or None
                    )
                at = value_at + (value_bytes + 3) // 4 * 4
        return None

    def defines(self, name: str) -> bool:
        """Whether the loader would find a definition of this symbol in this file.

        The search uses the hash table, as the loader does. A walk through the symbol table of a
        hostile file might never end.
        """
        if (table := self._tag(_DT_GNU_HASH)) is not None:
            return any(
                self._is_definition(index, name)
                for index in self._gnu_chain(self.offset_of(table), name)
            )
        if (table := self._tag(_DT_HASH)) is not None:
            return any(
                self._is_definition(index, name)
                for index in self._sysv_chain(self.offset_of(table), name)
            )
        return False

    def _gnu_chain(self, at: int, name: str) -> Iterator[int]:
        hash_value = 5381
        for byte in name.encode():
            hash_value = (hash_value * 33 + byte) & 0xFFFFFFFF
        buckets, first_symbol, bloom_words, _ = self._words(at, 4)
        if buckets == 0:
            return
        buckets_at = at + 16 + bloom_words * (self.bits // 8)
        (index,) = self._words(buckets_at + hash_value % buckets * 4, 1)
        if index < first_symbol:
            return
        for symbol in range(index, index + _CHAIN_MAX):
            (entry,) = self._words(buckets_at + (buckets + symbol - first_symbol) * 4, 1)
            if entry | 1 == hash_value | 1:
                yield symbol
            if entry & 1:
                return

    def _sysv_chain(self, at: int, name: str) -> Iterator[int]:
        hash_value = 0
        for byte in name.encode():
            hash_value = (hash_value << 4) + byte
            high = hash_value & 0xF0000000
            hash_value = (hash_value ^ high >> 24) & ~high
        # Hash entries are 32 bits wide, except on 64-bit s390x.
        width = 2 if self.machine == "s390x" and self.bits == 64 else 1
        big = self._order == ">"

        def entry(position: int) -> int:
            words = self._words(at + position * 4 * width, width)
            return words[-1] if big else words[0]

        buckets = entry(0)
        if buckets == 0:
            return
        index = entry(2 + hash_value % buckets)
        for _ in range(_CHAIN_MAX):
            if index == 0:
                return
            yield index
            index = entry(2 + buckets + index)

    def _is_definition(self, index: int, name: str) -> bool:
        if self._tag(_DT_SYMTAB) is None:
            return False
        name_at, section = self._symbol(index)
        return section != 0 and self._string(name_at) == name

    def _symbol_name(self, index: int) -> str:
        return self._string(self._symbol(index)[0])

    def _symbol(self, index: int) -> tuple[int, int]:
        """A symbol for the loader: the place of its name, and the section that defines it or 0."""
        table = self._tag(_DT_SYMTAB)
        if table is None:
            raise Damaged
        if self.bits == 32:
            raw = self._read(self.offset_of(table + index * 16), 16)
            name_at, _, _, _, _, section = struct.unpack(self._order + "IIIBBH", raw)
        else:
            raw = self._read(self.offset_of(table + index * 24), 24)
            name_at, _, _, section, _, _ = struct.unpack(self._order + "IBBHQQ", raw)
        return name_at, section

    def _string(self, at: int) -> str:
        table, size = self._tag(_DT_STRTAB), self._tag(_DT_STRSZ)
        if table is None or size is None or at >= size:
            raise Damaged
        start = self.offset_of(table + at)
        raw = os.pread(self._descriptor, min(size - at, _NAME_MAX), start)
        return os.fsdecode(raw.split(b"\0")[0])

    def _tag(self, wanted: int) -> int | None:
        return next((value for tag, value in self._tags if tag == wanted), None)

    def _of_type(self, kind: int) -> Iterator[_Segment]:
        return (segment for segment in self.segments if segment.type == kind)

    def offset_of(self, address: int) -> int:
        """The offset in the file of the byte at this address. Raises Damaged if there is none."""
        for segment in self._of_type(_PT_LOAD):
            if segment.address <= address < segment.address + segment.file_bytes:
                return segment.offset + address - segment.address
        raise Damaged

    def address_of(self, offset: int) -> int:
        """The address of the byte at this offset of the file. Raises Damaged if it has none."""
        for segment in self._of_type(_PT_LOAD):
            if segment.offset <= offset < segment.offset + segment.file_bytes:
                return segment.address + offset - segment.offset
        raise Damaged

    def bytes_at(self, offset: int, most: int) -> bytes:
        """At most `most` bytes from an offset of the file; fewer if the file ends before."""
        return os.pread(self._descriptor, most, offset)

    def slots(self) -> Iterator[tuple[int, str]]:
        """Yields the slots that the loader fills with an address: each slot's address and symbol.

        Yields nothing for other machines than x86-64.
        """
        if self.machine != "x86-64" or self.bits != 64:
            return
        for table, size in ((_DT_JMPREL, _DT_PLTRELSZ), (_DT_RELA, _DT_RELASZ)):
            address, size_bytes = self._tag(table), self._tag(size)
            if address is None or size_bytes is None:
                continue
            count = min(size_bytes, _RELOCATIONS_READ) // _RELOCATION.size
            entries = self._read(self.offset_of(address), count * _RELOCATION.size)
            for slot, kind, symbol, _ in _RELOCATION.iter_unpack(entries):
                if kind in _SLOT_KINDS and symbol:
                    yield slot, self._symbol_name(symbol)

    def function_starts(self, most: int) -> list[int]:
        """The addresses at which functions begin, in order, as the unwinder knows them.

        A stripped file still has them. They come from the table of .eh_frame_hdr, of which at most
        `most` bytes are read. The result is empty if there is no table, or if its form is not the
        one that linkers write.
        """
        segment = next(self._of_type(_PT_GNU_EH_FRAME), None)
        if segment is None or segment.file_bytes < _EH_HEAD.size:
            return []
        table = self._read(segment.offset, min(segment.file_bytes, most))
        version, *forms = table[:4]
        if version != 1 or tuple(forms) != _EH_FORMS:
            return []
        (count,) = struct.unpack_from(self._order + "I", table, 8)
        entry = struct.Struct(self._order + "ii")
        whole = min(count, (len(table) - _EH_HEAD.size) // entry.size)
        entries = entry.iter_unpack(table[_EH_HEAD.size : _EH_HEAD.size + whole * entry.size])
        return sorted(segment.address + start for start, _ in entries)

    def _words(self, at: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"{self._order}{count}I", self._read(at, 4 * count))

    def _read(self, at: int, count: int) -> bytes:
        if at + count > self.size or at < 0:
            raise Damaged
        raw = os.pread(self._descriptor, count, at)
        if len(raw) != count:
            raise Damaged
        return raw


def _what_else(head: bytes) -> str:
    if head.startswith(b"!<arch>"):
        return "is a static archive, which cannot be preloaded"
    if head.startswith(b"/* GNU ld script"):
        return "is a linker script, not the library itself"
    if head.startswith(b"#!"):
        return "is a script, not a shared library"
    return "is not an ELF file"


def open_regular(path: str) -> int:
    """Opens a regular file for reading and returns the descriptor. Raises OSError for other files.

    Reading a FIFO may wait forever, and opening some devices has an effect.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


@contextlib.contextmanager
def opened(path: str) -> Iterator[Image]:
    """The file as an Image, which can be read within the context.

    Raises OSError if it cannot be read or is not a regular file, NotElf, and Damaged.
    """
    descriptor = open_regular(path)
    try:
        yield Image(descriptor)
    finally:
        os.close(descriptor)


def is_musl_loader(loader: str | None) -> bool:
    """Whether this dynamic loader is that of musl."""
    return loader is not None and os.path.basename(loader).startswith("ld-musl")


@functools.cache
def native() -> tuple[int, str, bool]:
    """Returns (bits, machine, is musl) of this process, and thus of cairn's own libraries."""
    try:
        descriptor = os.open("/proc/self/exe", os.O_RDONLY | os.O_CLOEXEC)
        try:
            image = Image(descriptor)
            return image.bits, image.machine, is_musl_loader(image.loader)
        finally:
            os.close(descriptor)
    except (OSError, NotElf, Damaged):
        return struct.calcsize("P") * 8, os.uname().machine.replace("_", "-"), False


def reason(error: OSError) -> str:
    """The system's text for an error."""
    return error.strerror or type(error).__name__
