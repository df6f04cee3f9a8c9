"""The catalog of known allocators: reads and checks `allocators.toml`."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from cairn.allocators.toml_table import values_of
from cairn.errors import CairnError, UsageError


class Allocator(Struct, frozen=True):
    """An entry of the catalog. The comment at the top of `allocators.toml` explains the fields.

    None and () mean "unknown".
    """

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
        """Whether this is the allocator that a program uses without a preload."""
        return self.name == "system"

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names of its library's file, as globs. Names of our own libraries are known, too."""
        return (f"lib{self.name}.so*",) if self.ours else self.libraries

    @property
    def comes_along(self) -> bool:
        """Whether this is the system's allocator or our own, which are never fetched."""
        return self.is_system or self.ours

    @property
    def own_knobs(self) -> tuple[tuple[str, str], ...]:
        """The variables of `sets` as (name, value): the contender always runs with them."""
        return tuple((key, value) for key, _, value in (text.partition("=") for text in self.sets))

    def faults_of(self, version: str | None) -> tuple[str, ...]:
        """The known faults of this version, as sentences; none for a version that is not listed."""
        parts = (text.partition(": ") for text in self.faults)
        return tuple(
            says for faulty, _, says in parts if version is not None and is_version(version, faulty)
        )

    def reads_knob(self, variable: str) -> bool:
        """Whether the catalog says that this allocator reads the variable."""
        return variable in self.knobs or variable.startswith(self.knob_prefixes)


class Catalog(Struct, frozen=True):
    """All entries, in the order of the file. Every printed table has the same order."""

    allocators: tuple[Allocator, ...]

    def find(self, name: str) -> Allocator | None:
        """The entry with this name or alias; None if there is none."""
        return next(
            (entry for entry in self.allocators if name == entry.name or name in entry.aliases),
            None,
        )

    def of_file(self, name: str) -> Allocator | None:
        """The entry whose library has this file name; None if there is none."""
        return next(
            (
                entry for entry in self.allocators
                if any(fnmatch.fnmatchcase(name, glob) for glob in entry.file_names)
            ),
            None,
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        """All names and aliases that find() accepts."""
        return tuple(name for entry in self.allocators for name in (entry.name, *entry.aliases))


class Found(Struct, frozen=True):
    """One copy of a catalog allocator on this machine."""

    allocator: Allocator
    path: str | None
    """The library to preload.

    None for the system's allocator, and for cairn's own library if it cannot be used.
    """
    library_path: tuple[str, ...] = ()
    """The folders that the library needs on LD_LIBRARY_PATH."""
    version: str | None = None
    """The version of the project, without the distribution's revision."""
    origin: str | None = None
    """The package with its full version, or the source from which the library was built."""
    build_id: str | None = None
    cached: bool = False
    """Whether this copy is registered in the user's cache: fetched, built or added."""
    sha256: str | None = None
    """The checksum of the library when it came into the cache or was added; None if not cached."""
    source_sha256: str | None = None
    """The checksum of the package or archive that the library came from."""
    problem: str | None = None
    """Why this copy cannot be used, as a whole sentence; None if it can be used."""

    @property
    def title(self) -> str:
        """The name and the version, as printed."""
        return f"{self.allocator.title} {self.version}" if self.version else self.allocator.title

    @property
    def faults(self) -> tuple[str, ...]:
        """The known faults of this version, as sentences."""
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
    """Reads the text of a catalog and checks every field.

    An unknown key is an error. Otherwise a misspelt key would make a fact unknown without notice.
    Raises CairnError.
    """
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
        raise CairnError(
            "allocators.toml holds an allocator that is not a table; install cairn again"
        )
    where = f"allocators.toml, {table.get('name', 'an allocator without a name')}"
    values = values_of(table, where, lists=_LISTS, texts=_TEXTS, others=dict.fromkeys(_FLAGS, bool))
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


PROBE = "+probe"
"""The suffix of an allocator's name. It puts the probe of 'cairn profile' before the allocator."""
RESERVED = {
    "linked": "the library with which a program is linked",
    "custom": "a library that is given by its path",
}
"""The names that an allocator of the user cannot have, each with what it means already."""


def is_typable(name: str) -> bool:
    """Whether the text can be an allocator's name in `-a`, and the name of a folder."""
    return re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*", name) is not None and name != "custom"


def refuse_name(name: str) -> None:
    """Raises UsageError if the user's own allocator cannot have this name."""
    if name in RESERVED or name.endswith(PROBE):
        meaning = RESERVED.get(name, "an allocator with the probe")
        plain = name.removesuffix(PROBE) or "own"
        raise UsageError(
            f"'{name}' cannot be an allocator's name, because it means {meaning}; choose another "
            f"name, such as my-{plain}."
        )
    if not is_typable(name):
        raise UsageError(
            f"'{name}' cannot be an allocator's name; use letters, digits and '_', '.', '+' or '-'."
        )


def is_version(version: str | None, wanted: str | None) -> bool:
    """Whether `version` is the wanted one: 5.3 accepts 5.3 and any 5.3.x, None accepts all."""
    return wanted is None or (
        version is not None and (version == wanted or version.startswith(wanted + "."))
    )


def entry(name: str, catalog: Catalog | None = None, *, or_path: bool = True) -> Allocator:
    """The allocator with this name or alias. Raises UsageError, which suggests the closest name.

    or_path: whether the user could name a library by its path instead.
    """
    catalog = catalog or load_catalog()
    known = catalog.find(name)
    if known is None:
        raise UsageError(_unknown(name, catalog, or_path))
    return known


def _unknown(wanted: str, catalog: Catalog, or_path: bool) -> str:
    if not or_path and "/" in wanted:
        return (
            f"no allocator is called '{wanted}'; 'cairn allocators add NAME {wanted}' gives a "
            "library of yours a name."
        )
    if wanted == "linked":
        return (
            "no allocator is called 'linked'; without -a, a program's own library competes under "
            "this name. With -a, give its path, which 'cairn doctor PROG' prints: -a linked=PATH."
        )
    close = difflib.get_close_matches(wanted.lower(), catalog.names, n=1)
    if close:
        return (
            f"no allocator is called '{wanted}'; did you mean {close[0]}? "
            "'cairn allocators' lists them."
        )
    if not or_path:
        return f"no allocator is called '{wanted}'; 'cairn allocators' lists them."
    if os.path.lexists(wanted):
        return f"no allocator is called '{wanted}'; if you mean the file, write ./{wanted}."
    return (
        f"no allocator is called '{wanted}'; 'cairn allocators' lists them. "
        "To name a library file, give a path with '/'."
    )


def first_duplicate(names: Iterable[str]) -> str | None:
    """The first name that occurs a second time; None if all differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
