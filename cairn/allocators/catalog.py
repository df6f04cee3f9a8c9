"""Which allocators there are: `allocators.toml`, read and checked."""

from __future__ import annotations

import difflib
import functools
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.errors import CairnError, UsageError


@dataclass(frozen=True, slots=True)
class Allocator:
    """An entry of the catalog; its fields are explained at the head of `allocators.toml`. None and () are "unknown"."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    licence: str | None = None
    layout: str | None = None
    metadata: str | None = None
    hardened: bool | None = None
    operators: bool | None = None
    knobs: tuple[str, ...] = ()
    knob_prefixes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    large_pages: str | None = None
    ours: bool = False
    library_of: str | None = None
    sets: tuple[str, ...] = ()

    @property
    def is_system(self) -> bool:
        """The allocator that a program has without any preload."""
        return self.name == "system"

    @property
    def comes_along(self) -> bool:
        """Here without anybody fetching it, and in no cache: the system's, and ours."""
        return self.is_system or self.ours

    @property
    def own_knobs(self) -> tuple[tuple[str, str], ...]:
        """The variables that make this contender what it is."""
        return tuple((key, value) for key, _, value in (text.partition("=") for text in self.sets))

    def faults_of(self, version: str | None) -> tuple[str, ...]:
        """The known faults of one release, as sentences; none for a release that nobody has checked."""
        parts = (text.partition(": ") for text in self.faults)
        return tuple(
            says for faulty, _, says in parts if version is not None and is_version(version, faulty)
        )

    def reads_knob(self, variable: str) -> bool:
        """Whether the catalog knows that this allocator reads the variable. False may also mean unknown."""
        return variable in self.knobs or variable.startswith(self.knob_prefixes)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries, in the order of the file, which is the order of every table."""

    allocators: tuple[Allocator, ...]

    def find(self, name: str) -> Allocator | None:
        """By name or alias."""
        return next(
            (entry for entry in self.allocators if name == entry.name or name in entry.aliases),
            None,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Every name and alias that find() knows."""
        return tuple(name for entry in self.allocators for name in (entry.name, *entry.aliases))


@dataclass(frozen=True, slots=True)
class Found:
    """A catalog allocator as it lies on this machine."""

    allocator: Allocator
    path: str | None
    """The library to preload; None for the system's own allocator, and for one of ours that cannot be used."""
    library_path: tuple[str, ...] = ()
    version: str | None = None
    """Upstream's version, without the distribution's revision."""
    origin: str | None = None
    """The package and its full version, or where it was unpacked from."""
    build_id: str | None = None
    cached: bool = False
    """Whether it lies in the user's cache."""
    sha256: str | None = None
    """Of the library, as recorded when it came into the cache or was added; None for what others installed."""
    source_sha256: str | None = None
    """Of the package or archive that it came from."""
    problem: str | None = None
    """Why it cannot be used, as a whole sentence; None when it can."""

    @property
    def title(self) -> str:
        """Name and version, as printed."""
        return f"{self.allocator.title} {self.version}" if self.version else self.allocator.title

    @property
    def faults(self) -> tuple[str, ...]:
        """What is known to be wrong with this release."""
        return self.allocator.faults_of(self.version)


_LAYOUTS = ("size-segregated", "sequential")


_METADATA = ("in-slab", "out of line", "block headers")


_LISTS = (
    "aliases",
    "libraries",
    "places",
    "companions",
    "packages",
    "knobs",
    "knob_prefixes",
    "caveats",
    "faults",
    "remarks",
    "sets",
)


_TEXTS = ("name", "title", "licence", "layout", "metadata", "large_pages", "library_of")


_FLAGS = ("hardened", "operators", "ours")


@functools.cache
def load_catalog() -> Catalog:
    """The catalog that cairn was installed with."""
    path = Path(__file__).with_name("allocators.toml")
    try:
        return read_catalog(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CairnError(
            f"the catalog of allocators cannot be read ({error}); install cairn again"
        ) from None


def read_catalog(text: str) -> Catalog:
    """Checks every field: a misspelt key would otherwise silently make a fact unknown."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CairnError(f"allocators.toml is not TOML ({error}); install cairn again") from None
    tables = document.get("allocator")
    if set(document) != {"allocator"} or not isinstance(tables, list):
        raise CairnError(
            "allocators.toml must hold [[allocator]] tables and nothing else; install cairn again"
        )
    entries = tuple(_read_entry(table) for table in tables)
    catalog = Catalog(entries)
    twice = first_duplicate(catalog.names)
    if twice is not None:
        raise CairnError(f"allocators.toml names {twice} twice; install cairn again")
    if catalog.find("system") is None:
        raise CairnError("allocators.toml lacks the system allocator; install cairn again")
    for one in entries:
        whole = (
            one
            if one.library_of is None
            else next((e for e in entries if e.name == one.library_of), None)
        )
        if whole is None or whole.library_of is not None:
            raise CairnError(
                f"allocators.toml, {one.name}: library_of names no allocator; install cairn again"
            )
    return catalog


def _read_entry(table: Any) -> Allocator:
    if not isinstance(table, dict):
        raise CairnError("allocators.toml holds an allocator that is no table; install cairn again")
    where = f"allocators.toml, {table.get('name', 'an allocator without a name')}"
    values: dict[str, Any] = {}
    for key, value in table.items():
        if (
            key in _LISTS
            and isinstance(value, list)
            and all(isinstance(item, str) and item for item in value)
        ):
            values[key] = tuple(value)
        elif (key in _TEXTS and isinstance(value, str) and value) or (
            key in _FLAGS and isinstance(value, bool)
        ):
            values[key] = value
        else:
            raise CairnError(f"{where}: {key} is unknown or has a wrong value; install cairn again")
    if "name" not in values or "title" not in values:
        raise CairnError(f"{where}: name and title are needed; install cairn again")
    if values.get("layout") not in (None, *_LAYOUTS) or values.get("metadata") not in (
        None,
        *_METADATA,
    ):
        raise CairnError(f"{where}: layout or metadata has an unknown value; install cairn again")
    for name in (values["name"], *values.get("aliases", ())):
        if not is_typable(name):
            raise CairnError(f"{where}: {name} cannot be typed as a contender; install cairn again")
    for text in values.get("sets", ()):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", text):
            raise CairnError(f"{where}: {text} sets no variable; install cairn again")
    for text in values.get("faults", ()):
        if not re.fullmatch(r"[0-9][^\s:]*: .+", text):
            raise CairnError(f"{where}: the fault '{text}' names no version; install cairn again")
    return Allocator(**values)


def is_typable(name: str) -> bool:
    """Whether it can stand in `-a` as an allocator's name, and be a folder's."""
    return re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*", name) is not None and name != "custom"


def is_version(version: str | None, wanted: str | None) -> bool:
    """5.3 asks for any 5.3.x, but not for 5.30; None for any at all."""
    return wanted is None or (
        version is not None and (version == wanted or version.startswith(wanted + "."))
    )


def entry(name: str, catalog: Catalog | None = None) -> Allocator:
    """The allocator of this name or alias; UsageError names the closest one there is."""
    catalog = catalog or load_catalog()
    known = catalog.find(name)
    if known is None:
        raise UsageError(_unknown(name, catalog))
    return known


def _unknown(wanted: str, catalog: Catalog) -> str:
    close = difflib.get_close_matches(wanted.lower(), catalog.names, n=1)
    if close:
        return f"no allocator is called '{wanted}'; did you mean {close[0]}? 'cairn allocators' lists them."
    if os.path.lexists(wanted):
        return f"no allocator is called '{wanted}'; if you mean the file, write ./{wanted}."
    return f"no allocator is called '{wanted}'; 'cairn allocators' lists them, and a library is given by a path with '/'."


def first_duplicate(names: Iterable[str]) -> str | None:
    """The first name that came before; None when all differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
