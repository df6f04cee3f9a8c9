"""Finds the source lines and the inlined functions of an address, by debug information (DWARF).

The Python package symbolic reads the debug information, which is in the file itself or in a
separate debug file with the same build ID. The package comes with the optional extra "lines" of
Cairn (docs/decisions/0046-symbolic-reads-debug-information.md).
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cairn.binary import elf
from cairn.binary.build_ids import FilesByBuildId

PACKAGE = "symbolic"
_SECTIONS = (".debug_info", ".zdebug_info")
_FILE_MOST = 4 << 30
"""Larger files are not read. symbolic reads some 50 MB in a second."""
_PT_LOAD = 1
_LINE_MOST = 1 << 31


class SourcePlace(Struct, frozen=True):
    """A place in the source: a function by its symbol, a file, and a line in it."""

    symbol: str
    file: str
    line: int


Lookup = Callable[[int], Any]
"""Takes an address, and returns the source places that the package symbolic finds for it, the
innermost function first."""


class SourceLines:
    """Finds source lines of programs and libraries. Each file is read once, when it is needed."""

    def __init__(self, files: FilesByBuildId | None = None) -> None:
        self._files = files or FilesByBuildId()
        self._known: dict[tuple[str, str], Lookup | None] = {}
        self.is_missing = False
        """Whether some file has debug information, and the package that reads it is missing."""

    def at(self, path: str, address: int, build_id: str) -> tuple[SourcePlace, ...]:
        """The source places of an address, the innermost function first.

        Each function but the last one is inlined into the next one. The result is empty if no line
        is known.
        """
        key = path, build_id
        if key not in self._known:
            self._known[key] = self._read(path, build_id)
        lookup = self._known[key]
        if lookup is None:
            return ()
        places = tuple(
            SourcePlace(one.symbol or "", one.full_path or "", one.line) for one in lookup(address)
        )
        return places if all(_is_whole(one) for one in places) else ()

    def _read(self, path: str, build_id: str) -> Lookup | None:
        for candidate in self._files.candidates(path, build_id):
            start = _start_with_lines(candidate)
            if start is None:
                continue
            package = _package()
            if package is None:
                self.is_missing = True
                return None
            found = _lookup(package, candidate, start)
            if found is not None:
                return found
        return None


def _is_whole(place: SourcePlace) -> bool:
    """Whether symbolic found a source line. Otherwise the place has only a symbol."""
    return bool(place.symbol and place.file) and 0 < place.line < _LINE_MOST


def _start_with_lines(path: str) -> int | None:
    """The address of the first segment of a file; None if the file has no debug information."""
    try:
        descriptor = elf.open_regular(path)
    except (OSError, ValueError):
        return None
    try:
        image = elf.Image(descriptor)
        if image.size > _FILE_MOST or not any(one.name in _SECTIONS for one in image.sections()):
            return None
        return next((one.address for one in image.segments if one.type == _PT_LOAD), 0)
    except (elf.NotElf, elf.Damaged, OSError, struct.error):
        return None
    finally:
        os.close(descriptor)


def _package() -> Any:
    """The Python package symbolic; None if it is not installed."""
    # symbolic sets this variable when it is imported. Programs that cairn starts would inherit it.
    before = os.environ.get("RUST_BACKTRACE")
    try:
        return importlib.import_module(PACKAGE)
    except (ImportError, OSError):
        return None
    finally:
        if before is None:
            os.environ.pop("RUST_BACKTRACE", None)
        else:
            os.environ["RUST_BACKTRACE"] = before


def _lookup(package: Any, path: str, start: int) -> Lookup | None:
    """Returns a lookup for a file; None if `package`, which is symbolic, cannot read the file.

    `start` is the address of the file's first segment.
    """
    try:
        # The archive need not be kept: make_symcache() copies what the table needs.
        objects = package.Archive.open(path).iter_objects()
        table = next(iter(objects)).make_symcache()
    except (package.SymbolicError, LookupError, ValueError, StopIteration):
        return None

    def lookup(address: int) -> Any:
        # symbolic takes addresses relative to the file's first segment.
        if address < start:
            return ()
        try:
            return table.lookup(address - start)
        except (package.SymbolicError, ValueError):
            return ()

    return lookup
