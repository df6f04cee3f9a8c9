"""Finds a program, a library or its separate debug file by build ID.

The build ID is a number that the linker derives from the content of the file. A stripped file and
its debug file have the same one, and a file that was built again from other sources has another.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence

from cairn.binary import elf

DEBUG_FOLDER = "/usr/lib/debug"
"""The folder of separate debug files, as all distributions have it."""
NO_FILE_NS = 1 << 64
"""A time in the far future."""
_FORM = re.compile("[0-9a-f]{4,128}")
_NOTE = ".note.gnu.build-id"
_NOTE_HEAD = 16
_RECORDED_BYTES_MOST = 32
"""The length of the longest build ID that the probe records (CALL_STACKS_ID_BYTES)."""
_FILES_MOST = 100_000
"""The most files of the user's folders that are looked at."""


class FilesByBuildId:
    """The files of this machine by build ID.

    folders: folders of the user, which are searched with all folders below, before DEBUG_FOLDER.
    at_ns: the time of a profile. A file without a build ID is taken for the recorded one if it was
    not changed after this time. None accepts it always.
    """

    def __init__(self, folders: Sequence[str] = (), at_ns: int | None = None) -> None:
        self._folders, self._at_ns = tuple(folders), at_ns
        self._index: dict[str, list[str]] | None = None
        self._known: dict[str, str | None] = {}

    def candidates(self, path: str, build_id: str) -> Iterator[str]:
        """Yields the paths of files with this build ID; `path` itself comes first if it has it."""
        if self.is_same(path, build_id):
            yield path
        yield from (other for other in self.others(build_id) if other != path)

    def is_same(self, path: str, build_id: str) -> bool:
        """Whether the file at this path has this build ID.

        "" stands for a file without one, or with one that is too long for the probe to record. Such
        a file must not have changed after `at_ns`.
        """
        found = self._of(path)
        if not build_id and found is not None and len(found) > 2 * _RECORDED_BYTES_MOST:
            found = ""
        if found is None or found != build_id:
            return False
        return bool(build_id) or self._at_ns is None or changed_ns(path) <= self._at_ns

    def is_other(self, path: str, build_id: str) -> bool:
        """Whether the file at this path is not the one with this build ID, and none has it here."""
        return (
            self._of(path) is not None
            and not self.is_same(path, build_id)
            and next(self.others(build_id), None) is None
        )

    def others(self, build_id: str) -> Iterator[str]:
        """Yields the paths of files with this build ID in the user's folders and DEBUG_FOLDER."""
        if not _FORM.fullmatch(build_id):
            return
        first, rest = build_id[:2], build_id[2:]
        for folder in (*self._folders, DEBUG_FOLDER):
            for below in ((".build-id", first), (first,)):
                for name in (f"{rest}.debug", rest):
                    path = os.path.join(folder, *below, name)
                    if self._of(path) == build_id:
                        yield path
        yield from self._indexed().get(build_id, ())

    def _of(self, path: str) -> str | None:
        """The build ID of a file; "" if it has none, and None if it is no ELF file."""
        if path not in self._known:
            self._known[path] = build_id_of(path)
        return self._known[path]

    def _indexed(self) -> dict[str, list[str]]:
        """The files in the user's folders by build ID."""
        if self._index is None:
            self._index = {}
            for path in _below(self._folders):
                if build_id := self._of(path):
                    self._index.setdefault(build_id, []).append(path)
        return self._index


def build_id_of(path: str) -> str | None:
    """The build ID of a file; "" if it has none, and None if it is no ELF file that can be read."""
    try:
        descriptor = elf.open_regular(path)
    except (OSError, ValueError):  # ValueError: a forged path with a zero byte
        return None
    try:
        image = elf.Image(descriptor)
        return image.build_id or _of_section(image)
    except (elf.NotElf, elf.Damaged, OSError, struct.error):
        return None
    finally:
        os.close(descriptor)


def _of_section(image: elf.Image) -> str:
    """The build ID of a debug file, whose segments may have no content."""
    for section in image.sections():
        if section.name == _NOTE:
            note = image.content(section, _NOTE_HEAD + 64)
            return note[_NOTE_HEAD:].hex()
    return ""


def changed_ns(path: str) -> int:
    """The time of the last change of a file, as nanoseconds since 1970; NO_FILE_NS without one."""
    try:
        return os.stat(path).st_ctime_ns
    except OSError:
        return NO_FILE_NS


def _below(folders: Sequence[str]) -> Iterator[str]:
    """Yields the files in folders and below them, and those among `folders` themselves."""
    left = _FILES_MOST
    for folder in folders:
        if os.path.isfile(folder):
            yield folder
        for top, below, names in os.walk(folder):
            below.sort()
            for name in sorted(names):
                if left == 0:
                    return
                left -= 1
                yield os.path.join(top, name)
