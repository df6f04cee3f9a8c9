"""A file that a run uses, and its build, as a frozen value."""

from __future__ import annotations

from msgspec import Struct


class Build(Struct, frozen=True):
    """A file that the trials of a run use, and the build of it with which the run began."""

    name: str
    """The name in messages: a program as the user wrote it, a library's file name, or a path."""
    path: str
    part: str
    """"program", "script", "library" or "contender"."""
    build: str | None
    """"build ID …" or "SHA-256 …"; None if the file could not be read."""
