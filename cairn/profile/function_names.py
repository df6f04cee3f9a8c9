"""Names the function at an offset of a library, for a library that may have been stripped.

The first of these that knows the address gives the name:

    .symtab      the library's own symbol table
    debug file   the symbol table of a debug file with the library's build ID
    .dynsym      the names that the library exports
    .eh_frame    where the function begins, for the unwinder. It has no names, so the function is
                 called "library+offset", with the offset of its first byte

If none of them knows the address, the function is called "library+offset" with the offset of this
address. The offsets in these names are the file's addresses, as `objdump` and `addr2line` show
them.

The file may be hostile: every read is bounded, and nothing is executed.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct, field

from cairn.binary import elf
from cairn.binary.build_ids import FilesByBuildId
from cairn.profile.demangle import demangled
from cairn.profile.symbols import FUNCTIONS, TABLE_BYTES, Functions

_SYMBOLS = ((".symtab", ".strtab"),)
_EXPORTED = ((".dynsym", ".dynstr"),)
_NAME_MAX = 120
"""The most characters of a name. Mangled names of templates may have thousands."""
_NESTED = re.compile(r"_ZN[rVKRO]*")
_CLONE = re.compile(r"(\.(isra|constprop|part|cold|lto_priv|llvm|clone)(\.\d+)*)+$")
"""The suffix that compilers add to the symbol of a changed copy or of a part of a function."""
_SIZED = re.compile(r"[1-9][0-9]{0,3}")


class _Library(Struct):
    """The functions of one program or library. All fields are empty if no file can be read."""

    image: elf.Image | None = None
    tables: list[Functions] = field(default_factory=list)
    """The symbol tables, in the order in which they are searched."""
    starts: list[int] = field(default_factory=list)
    """The addresses at which functions begin, from the section .eh_frame."""


class Names:
    """Names functions of programs and libraries, or variables if `kinds` says so.

    Each file is read once.
    """

    def __init__(
        self, files: FilesByBuildId | None = None, kinds: Sequence[int] = FUNCTIONS
    ) -> None:
        self._files, self._kinds = files or FilesByBuildId(), kinds
        self._known: dict[tuple[str, str | None], _Library] = {}

    def function(self, path: str, offset: int) -> str:
        """The name of the function that contains the byte at an offset of a file."""
        if path.startswith("["):  # no file, such as [vdso]
            return path
        library = self._library(path)
        address = offset
        if library.image is not None:
            with contextlib.suppress(elf.Damaged):
                address = library.image.address_of(offset)
        return readable(_symbol_at(library, address) or _address_in(library, path, address))

    def function_at(self, path: str, address: int, build_id: str) -> str:
        """The name of the function at an address of a file, with its parameters if it is of C++.

        If this machine has no file with this build ID, the name is "library+address".
        """
        library = self._library(path, build_id)
        symbol = _symbol_at(library, address)
        return _address_in(library, path, address) if symbol is None else title(symbol)

    def known_at(self, path: str, address: int, build_id: str) -> str | None:
        """The name that function_at() gives for a symbol; None if no symbol has this address."""
        symbol = _symbol_at(self._library(path, build_id), address)
        return None if symbol is None else title(symbol)

    def variable(self, path: str, address: int) -> str:
        """The name of the variable at an address of a file, such as "arena" or "arena+0x40".

        The second name is that of an address after the beginning of the variable.
        """
        for table in self._library(path).tables:
            if (found := table.names_at(address)) is not None:
                offset = address - found[0]
                name = readable(min(found[1], key=_plainness))
                return f"{name}+{offset:#x}" if offset else name
        return f"{os.path.basename(path)}+{address:#x}"

    def _library(self, path: str, build_id: str | None = None) -> _Library:
        """The library with this build ID. Without a build ID, it is the file now at this path."""
        key = path, build_id
        if key not in self._known:
            if build_id is None or self._files.is_same(path, build_id):
                self._known[key] = self._read(path)
            else:
                self._known[key] = self._elsewhere(build_id)
        return self._known[key]

    def _elsewhere(self, build_id: str) -> _Library:
        """The library, read from files at other paths with this build ID."""
        found = _Library()
        for path in self._files.others(build_id):
            library = self._read(path)
            found.image = found.image or library.image
            found.tables += [table for table in library.tables if not table.is_empty]
            found.starts = found.starts or library.starts
        return found

    def _read(self, path: str) -> _Library:
        library = _Library()
        try:
            descriptor = elf.open_regular(path)
        except (OSError, ValueError):
            # Opening raises ValueError if the path, which may be forged, contains a zero byte.
            return library
        try:
            library.image = image = elf.Image(descriptor)
            library.tables = [Functions(image, _SYMBOLS, self._kinds)]
            if library.tables[0].is_empty:
                library.tables = self._separate(image.build_id or "")
            library.tables.append(Functions(image, _EXPORTED, self._kinds))
            library.starts = image.function_starts(TABLE_BYTES)
        except (elf.NotElf, elf.Damaged, OSError, struct.error):
            pass
        finally:
            os.close(descriptor)
        return library

    def _separate(self, build_id: str) -> list[Functions]:
        """The symbol table of the separate debug file; empty if there is none."""
        for path in self._files.others(build_id):
            try:
                descriptor = elf.open_regular(path)
            except OSError:
                continue
            try:
                table = Functions(elf.Image(descriptor), _SYMBOLS, self._kinds)
            except (elf.NotElf, elf.Damaged, OSError, struct.error):
                continue
            finally:
                os.close(descriptor)
            if not table.is_empty:
                return [table]
        return []


def _symbol_at(library: _Library, address: int) -> str | None:
    """The symbol at an address, the plainest one if there are several; None if there is none."""
    for table in library.tables:
        if (found := table.names_at(address)) is not None:
            return min(found[1], key=_plainness)
    return None


def _address_in(library: _Library, path: str, address: int) -> str:
    """The name of a function without a symbol: "library+offset"."""
    index = bisect_right(library.starts, address) - 1
    begin = library.starts[index] if index >= 0 else address
    return f"{os.path.basename(path)}+{begin:#x}"


def title(symbol: str) -> str:
    """The name of the function with this symbol, with its parameters if it is of C++."""
    short = _CLONE.sub("", symbol.partition("@")[0])
    return demangled(short) or readable(short)


def _plainness(name: str) -> tuple[int, int, str]:
    """Orders the names of one function: "malloc" comes before "__libc_malloc"."""
    return len(name) - len(name.lstrip("_")), len(name), name


def readable(name: str) -> str:
    """The name as a programmer knows it: "tcmalloc::Sampler::Init" for its C++ symbol.

    Parameters are left out, and template arguments are "<…>". Other symbols stay as they are, but a
    long one is cut.
    """
    start = _NESTED.match(name)
    at, parts = (start.end() if start else 0), []
    while start and (sized := _SIZED.match(name, at)):
        end = sized.end() + int(sized.group())
        parts.append(name[sized.end() : end])
        at = end
    if not parts:
        return name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…"
    text = "::".join("(anonymous)" if part.startswith("_GLOBAL__N") else part for part in parts)
    if name[at : at + 1] == "I":
        text += "<…>"
    return text if len(text) <= _NAME_MAX else text[: _NAME_MAX - 1] + "…"
