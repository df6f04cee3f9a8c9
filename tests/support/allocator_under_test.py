"""Finds libcairn: the installed one, or the one in $CAIRN_MALLOC, such as build/gcc/src/abi.

With CAIRN_MALLOC_NAME=libcairn-hardened, the tests use the hardened library instead.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from cairn import native

NAME = os.environ.get("CAIRN_MALLOC_NAME") or "libcairn"
"""The library that the tests use if they do not name one."""


@dataclass(frozen=True)
class Library:
    """The shared library and the archive in one folder."""

    folder: Path
    name: str = NAME

    @property
    def shared(self) -> Path:
        """The library to preload."""
        return self.folder / f"{self.name}.so.0"

    @property
    def archive(self) -> Path:
        """The library to link."""
        return self.folder / f"{self.name}.a"


def under_test(scratch: Path, name: str = NAME) -> Library:
    """Returns the library at a path without spaces and colons, as LD_PRELOAD requires.

    name: "libcairn" or "libcairn-hardened".
    """
    folder = Path(
        os.environ.get("CAIRN_MALLOC") or Path(native.__file__).parent / "native" / "lib"
    ).resolve()
    found = Library(folder, name)
    assert found.shared.is_file() and found.archive.is_file(), f"no {name} in {folder}; run 'make'"
    if re.search(r"[\s:]", str(folder)):
        found = Library(scratch / "lib", name)
        found.folder.symlink_to(folder)
    return found
