"""Where libcairn is: the installed one, or that of the folder $CAIRN_MALLOC, such as build/gcc/src/abi."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from cairn import native


@dataclass(frozen=True)
class Library:
    """The two forms of it."""

    folder: Path

    @property
    def shared(self) -> Path:
        """What is preloaded."""
        return self.folder / "libcairn.so.0"

    @property
    def archive(self) -> Path:
        """What is linked."""
        return self.folder / "libcairn.a"


def under_test(scratch: Path) -> Library:
    """The library, by a path that LD_PRELOAD can carry: no space and no colon in it."""
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
