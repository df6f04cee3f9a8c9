"""Reads the spare memory, in which the probe records processes that could write no file.

Contract: src/record/spare.h. All processes of the program share the memory and can write to it, so
every value is checked before it is used. `run/spare_memory.py` makes the memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct

from cairn.errors import cannot
from cairn.profile import reader
from cairn.profile.missing import Executed
from cairn.profile.tally import Missing, ProcessProfile

MAGIC = b"cairnwi2"
HEAD_BYTES, WINDOW_BYTES = 64 << 10, 12 << 20
RECORDS, UNRECORDED, EXECUTED, NAME_BYTES = 64, 64, 64, 56
_MISSING_MOST = 100_000
"""A larger number of missing processes without a name is limited to this number. The number in the
memory may be damaged, and each such process takes memory here."""

_UNRECORDED = np.dtype([("process", "u4"), ("error", "u4"), ("program", f"S{NAME_BYTES}")])
_EXECUTED = np.dtype(
    [
        ("ns", "u8"),
        ("process", "u4"),
        ("error", "u4"),
        ("kind", "S16"),
        ("program", f"S{NAME_BYTES}"),
    ]
)
WINDOW = np.dtype(
    [
        ("magic", "S8"),
        ("bytes", "u8"),
        ("records", "u8"),
        ("unrecorded_count", "u8"),
        ("record_offsets", "u8", RECORDS),
        ("unrecorded", _UNRECORDED, UNRECORDED),
        ("executed_count", "u8"),
        ("executed", _EXECUTED, EXECUTED),
    ]
)


class Spare(Struct, frozen=True):
    """The spare memory of one run, as a file descriptor."""

    descriptor: int

    def variable(self) -> dict[str, str]:
        """The environment variable by which the probe finds and recognises the memory."""
        about = os.fstat(self.descriptor)
        windows = about.st_size // WINDOW_BYTES
        place = f"{self.descriptor}:{about.st_dev}:{about.st_ino}:{windows}"
        return {"CAIRN_PROBE_SPARE": place}

    def names(self) -> list[str]:
        """The names of all records. The name of a record contains its place in the memory."""
        return [
            f"spare-{place + int(offset)}"
            for place, window in self._windows()
            for offset in window["record_offsets"].tolist()
            if HEAD_BYTES <= offset < WINDOW_BYTES
        ]

    def read_begun(self, name: str) -> ProcessProfile | None:
        """Reads one record; None if its process has counted nothing yet. Raises CairnError."""
        return reader.read_part(self.descriptor, *_span(name))

    def profiles(self) -> Iterator[ProcessProfile | None]:
        """Reads all records."""
        return map(self.read_begun, self.names())

    def missing(self) -> tuple[Missing, ...]:
        """The processes that could be recorded neither in a file nor in the spare memory."""
        found: list[Missing] = []
        for _, window in self._windows():
            count = int(window["unrecorded_count"])
            for process, error, program in window["unrecorded"][:count].tolist():
                if process:
                    found.append(Missing(process, _text(program), _errno(error)))
            found += [Missing(0, "", "")] * min(_MISSING_MOST, count - UNRECORDED)
            more = int(window["executed_count"]) - EXECUTED
            found += [Missing(0, "", "")] * min(_MISSING_MOST, more)
        return tuple(found)

    def executed(self) -> tuple[Executed, ...]:
        """The programs that were executed by processes which could not write the witness's file.

        Such a program is missing in the profile, unless the probe recorded it afterwards.
        """
        return tuple(
            Executed(
                ns,
                Missing(
                    process, _text(program), _errno(error) if kind == b"dynamic" else _text(kind)
                ),
            )
            for _, window in self._windows()
            for ns, process, error, kind, program in window["executed"].tolist()
            if process
        )

    def save(self, folder: Path) -> None:
        """Copies each record to a file of its own in the folder. Raises CairnError."""
        for name in self.names():
            found = self.read_begun(name)
            if found is None:
                continue
            path = folder / f"{found.process.pid}.{found.process.begin_ns}{reader.SUFFIX}"
            try:
                path.touch(mode=0o600, exist_ok=False)
                path.write_bytes(reader.part_bytes(self.descriptor, *_span(name)))
            except OSError as error:
                path.unlink(missing_ok=True)
                raise cannot("write", path, error) from error

    def _windows(self) -> Iterator[tuple[int, np.void]]:
        """The place and the head of every window that was written to."""
        end, place = os.fstat(self.descriptor).st_size, 0
        while place < end:
            try:
                data = os.lseek(self.descriptor, place, os.SEEK_DATA)
            except OSError:  # nothing was written after this place
                return
            place = data // WINDOW_BYTES * WINDOW_BYTES
            window = np.frombuffer(os.pread(self.descriptor, WINDOW.itemsize, place), WINDOW)[0]
            if window["magic"] == MAGIC:
                yield place, window
            place += WINDOW_BYTES


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _errno(number: int) -> str:
    return errno.errorcode.get(number, str(number))


def _span(name: str) -> tuple[int, int]:
    """The place of a record, and the bytes from there to the end of its window."""
    place = int(name.removeprefix("spare-"))
    return place, WINDOW_BYTES - place % WINDOW_BYTES
