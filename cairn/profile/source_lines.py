"""Finds the source lines and the inlined functions of an address, by debug information (DWARF).

The Python package symbolic reads this information (record 0046). It is the optional extra "lines"
of Cairn. The debug information is that of the file itself, or of a debug file with its build ID.
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cairn.binary import elf
from cairn.binary.build_ids import FilesByBuildId

PACKAGE = "symbolic"
_SECTIONS = (".debug_info", ".zdebug_info")
_FILE_MOST = 4 << 30
"""Larger files are not read. symbolic reads some 50 MB in a second."""
_PT_LOAD = 1
_LINE_MOST = 1 << 31


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A place in the source: a function by its symbol, a file, and a line in it."""

    symbol: str
    file: str
    line: int


Lookup = Callable[[int], Any]
"""Returns the places of symbolic for an address, the innermost one first."""


class SourceLines:
    """The source lines of programs and libraries. Each file is read once, when it is needed."""

    def __init__(self, files: FilesByBuildId | None = None) -> None:
        self._files = files or FilesByBuildId()
        self._known: dict[tuple[str, str], Lookup | None] = {}
        self.is_missing = False
        """Whether some file has debug information, and the package that reads it is missing."""

    def at(self, path: str, address: int, build_id: str) -> tuple[SourcePlace, ...]:
        """The places of an address. The first one is inlined into the second one, and so on.

        The result is empty if no line is known.
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
    """Whether symbolic found a line. Without one, it gives the symbol alone."""
    return bool(place.symbol and place.file) and 0 < place.line < _LINE_MOST


def _start_with_lines(path: str) -> int | None:
    """The first address of a file that has debug information; None if it has none."""
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
    """The package; None if it is not installed."""
    # The package sets this variable, which programs would inherit.
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
    """Returns None if the package cannot read the file."""
    try:
        # The table of lines keeps its own copy of what it needs.
        objects = package.Archive.open(path).iter_objects()
        table = next(iter(objects)).make_symcache()
    except (package.SymbolicError, LookupError, ValueError, StopIteration):
        return None

    def lookup(address: int) -> Any:
        # symbolic counts from the first address of the file.
        if address < start:
            return ()
        try:
            return table.lookup(address - start)
        except (package.SymbolicError, ValueError):
            return ()

    return lookup
