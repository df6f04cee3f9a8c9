"""Reads the probe's files after a trial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from cairn.errors import CairnError
from cairn.profile import layout, reader
from cairn.profile.missing import missing_processes
from cairn.profile.spare import Spare
from cairn.profile.tally import ProcessProfile, Profile

NOTHING_COUNTED = (
    "the probe counted nothing: no process of the program allocated memory, or its files could not "
    "be made"
)


def gathered(folder: Path, spare: Spare | None) -> tuple[Profile | None, list[tuple[str, str]]]:
    """Adds up the files in a folder and the records in the spare memory.

    Returns the profile, or None if no process counted anything, and each different pair of a
    program and the allocator that the probe called in it.
    """
    owners: dict[tuple[str, str], None] = {}

    def read() -> Iterator[ProcessProfile | None]:
        """Yields one profile at a time, since there may be tens of thousands of them."""
        for name in reader.names(folder):
            yield reader.read_begun(folder / name)
        if spare is not None:
            yield from spare.profiles()

    def noted() -> Iterator[ProcessProfile | None]:
        for each in read():
            if each is not None:
                owners[each.process.program, each.process.allocator] = None
            yield each

    found = reader.added_up(noted())
    if found is not None:
        largest = found.largest
        # The file with the addresses of blocks may be damaged. It then counts as missing.
        with contextlib.suppress(CairnError):
            lies = layout.of(folder, largest.pid, largest.begin_ns)
            found = replace(found, layout=lies)
    return found, list(owners)


def unrecorded(found: Profile | None, spare: Spare | None) -> dict[str, dict[str, int]]:
    """The processes that could write neither a file nor a record: `Sample.unrecorded`.

    found: the profile of the run; None if no process counted anything.
    """
    if spare is None:
        return {}
    processes = found.processes if found is not None else ()
    numbers: dict[str, dict[str, int]] = {}
    for one in missing_processes(spare.missing(), spare.executed(), (), processes):
        of = numbers.setdefault(one.program, {})
        of[one.why] = of.get(one.why, 0) + 1
    return numbers
