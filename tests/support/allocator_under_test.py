"""Finds libcairn: the installed one, or the one in $CAIRN_MALLOC, such as build/gcc/src/abi."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from cairn import native


@dataclass(frozen=True)
class Library:
    """The shared library and the archive in one folder."""

    folder: Path
    name: str = "libcairn"

    @property
    def shared(self) -> Path:
        """The library to preload."""
        return self.folder / f"{self.name}.so.0"

    @property
    def archive(self) -> Path:
        """The library to link."""
        return self.folder / f"{self.name}.a"


def under_test(scratch: Path, name: str = "libcairn") -> Library:
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
