"""The names of frames that 'cairn symbolize' writes beside a kept profile, as names.json.

A name belongs to a build ID and an address. So it is also right on another machine, which need not
have the files of the program. names.json may be damaged or forged, so everything is checked.
docs/profile-format.md describes its format.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct, field

from cairn.errors import CairnError, cannot

NAME = "names.json"
FORMAT, VERSION = "cairn names", 1
_FILE_MOST = 256 << 20
_FRAMES_MOST = 256
_LINE_MOST = 1 << 31

Kept = tuple[str, str, int]
"""A function, its source file, and the line; "" and 0 if the line is not known."""


class NamedFile(Struct, frozen=True):
    """The names of one program or library."""

    build_id: str
    path: str
    """The path of the program or library when the profile was taken."""
    found: tuple[str, ...]
    """The files from which the names come."""
    frames: dict[str, tuple[Kept, ...]]
    """By address in hexadecimal: the frames at this address, the outermost first."""


class _Document(Struct, frozen=True):
    format: str
    version: int
    files: tuple[NamedFile, ...]


class KeptNames(Struct):
    """The names of the programs and libraries in a profile."""

    files: dict[str, NamedFile] = field(default_factory=dict)
    """By build ID: the names of one program or library."""

    def at(self, build_id: str, address: int) -> tuple[Kept, ...]:
        """The frames at an address, the outermost first; empty if they are not known."""
        file = self.files.get(build_id) if build_id else None
        return file.frames.get(f"{address:x}", ()) if file is not None else ()


def read(folder: Path) -> KeptNames | None:
    """Reads the names.json of a profile's folder; None if there is none.

    Raises CairnError if the file is damaged.
    """
    path = folder / NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot("read", path, error) from error
    try:
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _damaged(path, "it is not a regular file")
            content = file.read(_FILE_MOST + 1)
    except OSError as error:
        raise cannot("read", path, error) from error
    if len(content) > _FILE_MOST:
        raise _damaged(path, "it is too large")
    try:
        document = msgspec.json.decode(content, type=_Document)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, "it is not a list of names") from error
    if document.format != FORMAT or document.version != VERSION:
        raise _damaged(path, "another version of cairn wrote it")
    for one in document.files:
        if not one.build_id or any(not _is_valid(frames) for frames in one.frames.values()):
            raise _damaged(path, "it has frames that cannot be")
    return KeptNames({one.build_id: one for one in document.files})


def _is_valid(frames: tuple[Kept, ...]) -> bool:
    return 0 < len(frames) <= _FRAMES_MOST and all(
        function and 0 <= line < _LINE_MOST and (line > 0) == bool(file)
        for function, file, line in frames
    )


def _damaged(path: Path, why: str) -> CairnError:
    return CairnError(
        f"{path} has no readable names: {why}; remove it, and 'cairn symbolize' makes a new one"
    )


def write(folder: Path, files: Iterable[NamedFile]) -> None:
    """Writes names.json into a profile's folder. Raises CairnError if that fails."""
    path, new = folder / NAME, folder / f".{NAME}.{os.getpid()}"
    document = _Document(FORMAT, VERSION, tuple(map(_printable, files)))
    try:
        new.write_bytes(msgspec.json.encode(document) + b"\n")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise cannot("write", path, error) from error


def _printable(file: NamedFile) -> NamedFile:
    """The file with all its texts in valid UTF-8. Paths may have bytes that are not UTF-8."""
    return NamedFile(
        file.build_id,
        _utf8(file.path),
        tuple(map(_utf8, file.found)),
        {
            address: tuple((_utf8(one), _utf8(source), line) for one, source, line in frames)
            for address, frames in file.frames.items()
        },
    )


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
