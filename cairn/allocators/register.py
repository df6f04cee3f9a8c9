"""Adds a user's own library under a name, and removes allocators from the cache.

An added library stays where it is. The cache keeps a record of the library in the folder
NAME/added; fetched allocators have a folder for each version there instead. `own_source.py` builds
a library from the user's source, and keeps a copy of it in the cache. With the record,
`-a NAME` finds the library, and warns if its file has changed since it was added. Removing deletes
files in the cache and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cairn.allocators import discover
from cairn.allocators.catalog import Allocator, Found, is_version, load_catalog, refuse_name
from cairn.allocators.tool_runner import Busy, Progress, locked
from cairn.binary.library import inspect_library, refuse_library, refuse_needs_by_path
from cairn.errors import CairnError, UsageError

LOCK_TIMEOUT_S = 60.0

OWN = "+own"
"""The suffix of a folder that holds a version which the user built from their own source."""


def add(name: str, path: str, progress: Progress, cache: Path | None = None) -> Found:
    """Registers the library at `path` as the allocator `name`, in place of an earlier one.

    Raises UsageError for a name that cannot be used, ContenderFailed when the library cannot be
    preloaded here, and CairnError when the cache cannot be written.
    """
    cache = cache or discover.cache_folder()
    refuse_name(name)
    if load_catalog().find(name) is not None:
        raise UsageError(
            f"'{name}' is an allocator of the catalog; choose another name, such as my-{name}."
        )
    if any((cache / name).glob(f"*{OWN}/{discover.RECORD}")):
        raise UsageError(
            f"{name} has versions that were built from their source; run "
            f"'cairn allocators remove {name}' first, or choose another name."
        )
    library = inspect_library(path, or_name=False)
    refuse_needs_by_path(library)
    refuse_library(library, library_path=discover.companion_folders(library, library.needs))
    status = os.stat(library.realpath)
    record = {
        "allocator": name,
        "path": library.realpath,
        "origin": f"file {library.realpath}",
        "library_sha256": discover.file_sha256(library.realpath),
        "build_id": library.build_id or "",
        "size": str(status.st_size),
        "mtime_ns": str(status.st_mtime_ns),
    }
    try:
        home = cache / name
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with holding_lock(cache, name, progress):
            fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=home))
            try:
                discover.write_record(fresh, record)
                discover.remove_folder(home / discover.ADDED)
                os.rename(fresh, home / discover.ADDED)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CairnError(
            f"{name} cannot be added: {reason} ({cache}). "
            "Free some space, or set XDG_CACHE_HOME to another folder."
        ) from None
    found = discover.find_cached(discover.known_catalog(cache), cache)
    return registered((item for item in found if item.allocator.name == name), name, cache)


def registered(copies: Iterable[Found], title: str, cache: Path) -> Found:
    """The first of these copies, which was just registered under this name.

    Raises CairnError if there is none. That happens on a file system that lets other users write
    every file.
    """
    found = next(iter(copies), None)
    if found is None:
        raise CairnError(
            f"{title} was added to {cache} but cannot be used: {discover.UNREAD}. "
            "Set XDG_CACHE_HOME to another folder."
        )
    return found


def remove(
    entry: Allocator, version: str | None, progress: Progress, cache: Path | None = None
) -> tuple[Found, ...]:
    """Deletes the copies of the allocator, or of one version of it, from the cache.

    Copies outside the cache stay. Returns the deleted copies. Raises UsageError if there are none,
    and CairnError if the files cannot be deleted.
    """
    cache = cache or discover.cache_folder()
    if entry.library_of is not None:
        raise UsageError(
            f"{entry.name} is {entry.library_of} with an environment variable; remove "
            f"{entry.library_of}."
        )
    if entry.ours:
        raise UsageError(
            "cairn's own allocator is part of cairn and not in the cache; "
            "to compare without it, name the contenders with -a."
        )
    copies = [item for item in _copies(entry, cache) if is_version(item.version, version)]
    wanted = f"{entry.name} {version}" if version else entry.name
    if not copies:
        raise UsageError(f"no {wanted} in the cache; {_hint(entry, version)}.")
    try:
        with holding_lock(cache, entry.name, progress):
            for item in copies:
                discover.remove_folder(_folder(item, cache))
            for left in (cache / entry.name).glob(".*"):
                shutil.rmtree(left, ignore_errors=True)
            if not any((cache / entry.name).glob(f"*/{discover.RECORD}")):
                discover.remove_folder(cache / entry.name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CairnError(
            f"{wanted} cannot be removed: {reason} ({error.filename or cache})."
        ) from None
    return tuple(copies)


@contextlib.contextmanager
def holding_lock(cache: Path, name: str, progress: Progress) -> Iterator[None]:
    """Holds the allocator's lock, so that no build loses its files meanwhile."""
    (cache / ".locks").mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with locked(cache / ".locks" / name, progress, f"a get of {name}", LOCK_TIMEOUT_S):
            yield
    except Busy:
        raise CairnError(
            f"{name} is being fetched or built; wait until that ends, or end it."
        ) from None


def _copies(entry: Allocator, cache: Path) -> list[Found]:
    catalog = discover.known_catalog(cache)
    return [
        item for item in discover.find_cached(catalog, cache) if item.allocator.name == entry.name
    ]


def _folder(item: Found, cache: Path) -> Path:
    """The folder of the copy's record in the cache. A library added by its path lies elsewhere."""
    home = cache / item.allocator.name
    path = Path(item.path or "")
    return (
        home / path.relative_to(home).parts[0]
        if path.is_relative_to(home)
        else home / discover.ADDED
    )


def _hint(entry: Allocator, version: str | None) -> str:
    """The end of the error message: another copy that the user may mean, or where to look."""
    for item in discover.discover(names=[entry.name]):
        if not item.cached and item.path is not None and is_version(item.version, version):
            return (
                f"{item.path} belongs to the system ({item.origin}); "
                "remove it with the system's own tools"
            )
    return "'cairn allocators list' shows what is installed"
