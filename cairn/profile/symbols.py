"""Finds the function at an address of a file.

The names come from the file's symbol table, or from its dynamic symbols if the table was stripped.
The file may be hostile: every read is bounded, and nothing is executed.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Collection, Sequence

from msgspec import Struct

from cairn.binary import elf
from cairn.binary.program import inspect_program
from cairn.errors import CairnError
from cairn.profile.call_sites import Object

TABLE_BYTES = 64 << 20
"""The most bytes that are read of one symbol table. This is room for 2.8 million symbols. Reading a
million symbols takes about one second."""


_NAME_MAX = 4096


_ENTRY = struct.Struct("=IBBHQQ")
"""An entry of a symbol table in a 64-bit file (Elf64_Sym), in this machine's byte order. Its fields
are name, kind, other, section, address, and size."""


FUNCTIONS = (2, 10)
"""The kinds of symbols that are functions: STT_FUNC and STT_GNU_IFUNC."""
VARIABLES = (1,)
"""The kind of symbols that are variables: STT_OBJECT."""


_UNSIZED_BYTES = 4096
"""The assumed length of functions without a size, such as those in assembler."""


_TABLES = ((".symtab", ".strtab"), (".dynsym", ".dynstr"))


class Location(Struct, frozen=True):
    """The place of an address: a file, a function, and the offset in the function.

    If the function is not known, `offset` is the offset in the file. If the file is not known
    either, `offset` is the address itself.
    """

    path: str | None
    function: str | None
    offset: int

    def __str__(self) -> str:
        """The notation of debuggers: function+offset in file."""
        file = f" in {self.path}" if self.path else ""
        return (
            f"{self.function}+{self.offset:#x}{file}"
            if self.function
            else f"{self.offset:#x}{file}"
        )


class Functions:
    """The functions of one file by address, or its variables if `kinds` says so."""

    def __init__(
        self,
        image: elf.Image,
        tables: Sequence[tuple[str, str]] = _TABLES,
        kinds: Sequence[int] = FUNCTIONS,
    ) -> None:
        found = {section.name: section for section in image.sections()} if image.bits == 64 else {}
        table, self._names = b"", b""
        for symbols, names in tables:
            if symbols in found and names in found:
                table = image.content(found[symbols], TABLE_BYTES)
                self._names = image.content(found[names], TABLE_BYTES)
                break
        whole = len(table) // _ENTRY.size * _ENTRY.size
        self._starts = sorted(
            (address, size, name)
            for name, kind, _, section, address, size in _ENTRY.iter_unpack(table[:whole])
            if kind & 15 in kinds and section != 0
        )

    @property
    def is_empty(self) -> bool:
        """Whether the file has no symbol table, or no symbol of `kinds` in it."""
        return not self._starts

    def named(self) -> list[tuple[int, int, str]]:
        """(start, end, name) of each function, in the order of addresses."""
        return [(start, start + size, self._name(name)) for start, size, name in self._starts]

    def names_at(self, address: int) -> tuple[int, list[str]] | None:
        """Start and names of the function at `address`; None if none with a name is there."""
        index = bisect_right(self._starts, (address, 1 << 64, 0)) - 1
        if index < 0:
            return None
        start, names = self._starts[index][0], []
        while index >= 0 and self._starts[index][0] == start:
            _, size, name = self._starts[index]
            if address < start + (size or _UNSIZED_BYTES) and (text := self._name(name)):
                names.append(text)
            index -= 1
        return (start, names) if names else None

    def _name(self, at: int) -> str:
        return os.fsdecode(self._names[at : at + _NAME_MAX].split(b"\0")[0])

    def at(self, address: int) -> tuple[str, int] | None:
        """Name and offset of the function at `address`; None if no function is there."""
        index = bisect_right(self._starts, (address, 1 << 64, 0)) - 1
        if index < 0:
            return None
        start, size, name = self._starts[index]
        if address >= start + (size or _UNSIZED_BYTES):
            return None
        text = self._name(name)
        return (text, address - start) if text else None  # "": no name was read


class _FileNow(Struct, frozen=True):
    """A file of this machine that may be the one that was mapped."""

    path: str
    functions: Functions | None
    """None if the file cannot be read."""
    build_id: str
    """In hexadecimal; "" if the file has none."""
    changed_ns: int
    """The time of its last change, as nanoseconds since 1970."""

    def is_other(self, mapped: Object, unix_ns: int | None) -> bool:
        """Whether this is another file than the one that was mapped before `unix_ns`."""
        if self.functions is None or mapped.build_id is None:
            return False
        if self.build_id or mapped.build_id:
            return self.build_id != mapped.build_id
        return unix_ns is not None and self.changed_ns > unix_ns


class Files:
    """The functions of files by path. Each file is read once."""

    def __init__(self) -> None:
        self._known: dict[str, _FileNow] = {}
        self.changed: set[str] = set()
        """The mapped paths at which another file is now. No function of such a file is named."""
        self.unchecked: set[str] = set()
        """The mapped paths whose functions are named although a change would not be noticed."""

    def place(self, mapped: Object | None, address: int, unix_ns: int | None = None) -> Location:
        """The place of the call with the return address `address`.

        `mapped` is the mapped file that contains the address; None if no file does. `unix_ns` is
        the time of the report, by which a change of a file without a build ID is noticed.
        """
        if mapped is None:
            return Location(None, None, address)
        if mapped.path not in self._known:
            self._known[mapped.path] = _read(mapped.path)
        file = self._known[mapped.path]
        within = address - mapped.base
        if file.is_other(mapped, unix_ns):
            self.changed.add(mapped.path)
            return Location(mapped.path, None, within)
        # A call may be the last instruction of its function, so the byte before the return address
        # is looked up.
        found = file.functions.at(within - 1) if file.functions is not None else None
        if found is None:
            return Location(file.path, None, within)
        if mapped.build_id is None:
            self.unchecked.add(mapped.path)
        return Location(file.path, found[0], found[1] + 1)


def stretch(path: str, names: Collection[str]) -> tuple[int, int] | None:
    """The range of file offsets of the object file that contains the functions `names`.

    The range reaches from the end of the exported function before the first of `names` to the start
    of the exported function after the last of `names`. It contains the functions of the object file
    that are not exported, because the linker keeps the functions of an object file together.
    Returns None if the file has none of `names`, or cannot be read.
    """
    try:
        descriptor = elf.open_regular(path)
    except OSError:
        return None
    try:
        image = elf.Image(descriptor)
        shown = Functions(image, _TABLES[1:]).named()
        ours = [(start, end) for start, end, name in shown if name in names]
        if not ours:
            return None
        first, last = min(ours)[0], max(end for _, end in ours)
        low = max((end for _, end, _ in shown if end <= first), default=first)
        high = min((start for start, _, _ in shown if start >= last), default=last)
        return image.offset_of(low), image.offset_of(high - 1) + 1
    except (elf.NotElf, elf.Damaged, OSError, struct.error):
        return None
    finally:
        os.close(descriptor)


def _read(path: str) -> _FileNow:
    """The file of a mapped program or library. The file of a script is that of its interpreter."""
    try:
        path = inspect_program(path).file if _is_script(path) else path
        descriptor = elf.open_regular(path)
    except (CairnError, OSError):
        return _FileNow(path, None, "", 0)
    try:
        image = elf.Image(descriptor)
        changed_ns = os.fstat(descriptor).st_ctime_ns
        return _FileNow(path, Functions(image), image.build_id or "", changed_ns)
    except (elf.NotElf, elf.Damaged, OSError, struct.error):
        return _FileNow(path, None, "", 0)
    finally:
        os.close(descriptor)


def _is_script(path: str) -> bool:
    descriptor = elf.open_regular(path)
    try:
        return os.pread(descriptor, 2, 0) == b"#!"
    finally:
        os.close(descriptor)
