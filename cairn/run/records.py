"""Reads the records of the witness and of the launcher. Pure.

`src/witness/record.h` is the contract of the records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec


class MallocOwner(msgspec.Struct):
    """The object that owns malloc in a process."""

    path: str
    build_id: str | None = None


class Record(msgspec.Struct):
    """One line of the witness's file, or of the launcher's. A missing member has its default."""

    v: int
    event: str
    pid: int
    ppid: int = 0
    path: str = ""
    kind: str = ""
    exe: str = ""
    malloc: MallocOwner | None = None
    split: dict[str, str] = {}
    knobs: dict[str, str] = {}
    by: int = 0
    status: int | None = None
    killed: bool = False
    program: str = ""


def raw(text: str) -> bytes:
    """The bytes of a path. The witness writes each byte as the character with the same number."""
    return text.encode("latin-1", "replace")


def shown(text: str) -> str:
    """The text of a path, with escapes for bytes that are not UTF-8."""
    return raw(text).decode("utf-8", "backslashreplace")


def read(lines: Sequence[bytes]) -> tuple[list[Record], int]:
    """The records, and the number of damaged lines. A full disk leaves such lines."""
    records = []
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            records.append(msgspec.json.decode(line, type=Record))
    return records, len(lines) - len(records)
