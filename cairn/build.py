"""The files and the tools of a run, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class Build(Struct, frozen=True):
    """A file that the trials of a run use, and the build of it with which the run began."""

    name: str
    """The name in messages: a program as the user wrote it, a library's file name, or a path."""
    path: str
    part: str
    """"program", "script", "library" or "contender"."""
    build: str | None
    """"build ID …" or "SHA-256 …"; None if the file could not be read."""


class Tools(Struct, frozen=True):
    """The tools that change how many instructions a program executes."""

    valgrind: str | None
    """The version of valgrind that counted the instructions; None if it is not known."""
    compilers: Mapping[str, str | None] = field(default_factory=dict)
    """By contender: the compilers that made its program, as the section .comment of the program
    names them; None if it names none."""
