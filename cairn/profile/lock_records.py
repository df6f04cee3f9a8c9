"""Reads and names the records of single locks in the probe's files.

src/record/lock_record.h is the contract. A lock is named by the variable that contains it, which
the file's symbol tables name. If they have no name for it, the lock is called "library+offset",
where the offset is an address of the file. A lock that lies in no file is in memory that the
allocator mapped, and is called "record at 0x7f…". Such an address differs between runs and
processes.
"""

from __future__ import annotations

import functools
import os

import numpy as np

from cairn.binary.build_ids import NO_FILE_NS, changed_ns
from cairn.profile.function_names import Names
from cairn.profile.symbols import VARIABLES
from cairn.profile.tally import LOCKS, LockCount

Records = np.ndarray[tuple[int, ...], np.dtype[np.void]]
RECORDS, OBJECTS, OBJECT_PATH_BYTES = 512, 32, 232
KINDS = {**dict(enumerate(LOCKS)), 16: "futex"}
_FIELDS = (
    "address", "kind", "taken", "contended", "wait_ticks", "max_wait_ticks", "refused",
    "early_sections", "early_section_ticks", "sections", "section_ticks", "section_ticks_squared",
    "futex_waits", "futex_wait_ticks", "futex_wakes",
)  # fmt: skip


def layout(order: str) -> np.dtype[np.void]:
    """The struct lock_records as a numpy type, for byte order "<" or ">"."""
    u8 = np.dtype(f"{order}u8")
    one = np.dtype([(name, u8) for name in ("start", "end", "base")])
    mapped = np.dtype([*one.descr, ("path", f"S{OBJECT_PATH_BYTES}")])
    record = np.dtype([(name, u8) for name in _FIELDS])
    return np.dtype([("beyond", u8), ("objects", mapped, OBJECTS), ("records", record, RECORDS)])


@functools.cache
def _names() -> Names:
    return Names(kinds=VARIABLES)


def counted(found: Records, program: str, ended_unix_ns: int) -> tuple[LockCount, ...]:
    """The locks in one file of the probe. `program` is the path of the process's program.

    The records have no build IDs. A file that was changed after the process ended is taken for
    another one, so that its variables name no lock.
    """
    mapped = [
        (int(one["start"]), int(one["end"]), int(one["base"]), os.fsdecode(bytes(one["path"])))
        for one in found["objects"].reshape(-1)
        if one["start"]
    ]
    locks = []
    for record in found["records"].reshape(-1):
        address, kind, *numbers = (int(record[name]) for name in _FIELDS)
        if address:
            named = _named(address, mapped, program, ended_unix_ns)
            locks.append(LockCount(*named, KINDS.get(kind, "unknown"), *numbers))
    return tuple(locks)


def _named(
    address: int, mapped: list[tuple[int, int, int, str]], program: str, ended_unix_ns: int
) -> tuple[str, str]:
    """The name of the lock at an address, and the file name of the library that contains it.

    The file name is "" for a lock in mapped memory. mapped: (start, end, base, path) of each
    mapped file, where an empty path stands for the program.
    """
    for start, end, base, path in mapped:
        if start <= address < end:
            file = path or program
            library = os.path.basename(file)
            if ended_unix_ns and ended_unix_ns < changed_ns(file) < NO_FILE_NS:
                return f"{library}+{address - base:#x} (file changed since)", library
            return _names().variable(file, address - base), library
    return f"record at {address:#x}", ""
