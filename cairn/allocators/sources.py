"""The pinned sources of allocators in package registries: reads and checks `sources.toml`.

Releases are pinned, because a comparison can only be repeated with the same libraries. They are
pinned by checksum, because a registry or a mirror may deliver something else.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from msgspec import Struct

from cairn.allocators.toml_table import values_of
from cairn.errors import CairnError

KINDS = ("crate", "wheel")

_LISTS = ("tools", "stand_ins", "machines")

_TEXTS = ("allocator", "version", "kind", "package", "release", "sha256", "recipe")


class Source(Struct, frozen=True):
    """An entry of `sources.toml`. The comment at the top of that file explains the fields."""

    allocator: str
    version: str
    kind: str
    package: str
    release: str
    sha256: str
    recipe: str
    file: str = ""
    revision: int = 1
    tools: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    pinned: bool = True
    """False for a newer release, whose checksum comes from the registry instead of the list."""

    @property
    def archive(self) -> str:
        """The file name of the archive."""
        return self.file or f"{self.package}-{self.release}.crate"

    @property
    def origin(self) -> str:
        """The origin as printed, without the part of the release after a "+".

        In a crate, that part repeats the version of the allocator.
        """
        note = "" if self.pinned else ", not pinned"
        return f"{self.kind} {self.package} {self.release.partition('+')[0]}{note}"

    @property
    def identity(self) -> str:
        """A hash over everything that decides the built library.

        A library with another identity is out of date and is built again.
        """
        parts = f"{self.allocator} {self.sha256} {self.recipe} {self.revision}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    @property
    def works_here(self) -> bool:
        """Whether the source supports this machine's architecture."""
        return not self.machines or os.uname().machine in self.machines


@functools.cache
def load_sources() -> tuple[Source, ...]:
    """The pinned sources of this version of cairn."""
    path = Path(__file__).with_name("sources.toml")
    try:
        return read_sources(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CairnError(
            f"the list of sources cannot be read ({error}); install cairn again"
        ) from None


def sources_of(allocator: str) -> tuple[Source, ...]:
    """The pinned sources of an allocator, by its name in the catalog."""
    return tuple(source for source in load_sources() if source.allocator == allocator)


def read_sources(text: str) -> tuple[Source, ...]:
    """Reads the text of a list of sources and checks every field.

    A misspelt checksum must not become an unchecked download. Raises CairnError.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CairnError(f"sources.toml is not TOML ({error}); install cairn again") from None
    tables = document.get("source")
    if set(document) != {"source"} or not isinstance(tables, list):
        raise CairnError(
            "sources.toml must hold [[source]] tables and nothing else; install cairn again"
        )
    return tuple(_read_source(table) for table in tables)


def _read_source(table: Any) -> Source:
    if not isinstance(table, dict):
        raise CairnError("sources.toml holds a source that is not a table; install cairn again")
    where = f"sources.toml, {table.get('allocator', 'a source without an allocator')}"
    values = values_of(
        table, where, lists=_LISTS, texts=(*_TEXTS, "file"), others={"revision": int}
    )
    if missing := [key for key in _TEXTS if key not in values]:
        raise CairnError(f"{where}: {', '.join(missing)} is missing; install cairn again")
    source = Source(**values)
    if source.kind not in KINDS or not re.fullmatch(r"[0-9a-f]{64}", source.sha256):
        raise CairnError(f"{where}: kind or sha256 has an unknown value; install cairn again")
    if "/" in source.archive or (source.kind == "wheel" and not source.file):
        raise CairnError(f"{where}: file is missing or is not a file name; install cairn again")
    return source
