"""Reads the probe's files after a trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cairn.profile import reader
from cairn.profile.spare import Spare
from cairn.profile.tally import ProcessProfile, Profile


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

    return reader.added_up(noted()), list(owners)
