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

    @property
    def shared(self) -> Path:
        """The library to preload."""
        return self.folder / "libcairn.so.0"

    @property
    def archive(self) -> Path:
        """The library to link."""
        return self.folder / "libcairn.a"


def under_test(scratch: Path) -> Library:
    """Returns the library at a path without spaces and colons, as LD_PRELOAD requires."""
    folder = Path(
        os.environ.get("CAIRN_MALLOC") or Path(native.__file__).parent / "native" / "lib"
    ).resolve()
    found = Library(folder)
    assert found.shared.is_file() and found.archive.is_file(), (
        f"no libcairn in {folder}; run 'make'"
    )
    if re.search(r"[\s:]", str(folder)):
        found = Library(scratch / "lib")
        found.folder.symlink_to(folder)
    return found
