"""Finds the catalog's allocators on this machine. Libraries that are found are never executed.

The search covers the loader's cache, the library folders, and the user's cache with fetched, built
and added libraries. Cairn's own allocator lies in cairn's folder. Versions come from the
distribution's package database, since the file names of most libraries do not contain a version.
"""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

import cairn
from cairn import native
from cairn.allocators.catalog import Allocator, Catalog, Found, is_typable, load_catalog
from cairn.binary.library import (
    Library,
    absolute,
    found_by_loader,
    inspect_library,
    is_native,
    refuse_library,
)
from cairn.errors import CairnError, ContenderFailed

TOOL_TIMEOUT_S = 5.0
"""The timeout of a tool. ldconfig takes milliseconds, and dpkg-query takes tenths of a second.

If a tool does not answer in time, versions are unknown.
"""


RECORD = "origin.json"
"""The file that describes the library in its folder of the cache."""


ADDED = "added"
"""The folder name, in place of a version, for a library that the user added by its path."""


RECORD_SCHEMA = 1


UNREAD = "its record there cannot be read, or other users have permission to change it"
"""Why a library that was just put into the cache is not found there."""


_RECORD_MAX_BYTES = 64 * 1024


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of this user's cached allocators.

    A relative XDG_CACHE_HOME is ignored, as the XDG specification demands. Raises CairnError if the
    user has no home folder.
    """
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "cairn" / "allocators"
    try:
        return Path.home() / ".cache" / "cairn" / "allocators"
    except RuntimeError:  # $HOME is not set, and the user database has no entry for this user
        raise CairnError(
            "there is no home folder for the cache; name a folder with $XDG_CACHE_HOME"
        ) from None


def _cache_to_read() -> Path | None:
    """The folder of this user's cached allocators; None if the user has no home folder.

    Without a home folder, nothing was ever put into the cache.
    """
    try:
        return cache_folder()
    except CairnError:
        return None


def discover(
    catalog: Catalog | None = None, *, names: Iterable[str] | None = None, cache: Path | None = None
) -> tuple[Found, ...]:
    """Returns all copies of the catalog's allocators, usable or not.

    The allocators have the order of the catalog. The copies of one allocator are sorted newest
    first.

    names: limits the search to these allocators, so that a run of one allocator does not wait for
    the versions of the others.
    """
    cache = cache or _cache_to_read()
    catalog = catalog or known_catalog(cache)
    wanted = None if names is None else set(names)
    entries = [entry for entry in catalog.allocators if wanted is None or entry.name in wanted]
    listed = _loader_cache() if any(entry.libraries for entry in entries) else ()
    ours: list[Found] = []
    installed: list[Found] = []
    for entry in _with_libraries(entries, catalog):
        if entry.ours:
            ours.append(own_allocator(entry))
        elif not entry.is_system:
            installed += _find_installed(entry, listed)
    installed = list(_with_packages(installed))
    cached = find_cached(catalog, cache)
    result: list[Found] = []
    for entry in entries:
        if entry.is_system:
            result.append(system_allocator(entry))
        library_of = entry.library_of or entry.name
        everywhere = (*ours, *installed, *cached)
        copies = [
            replace(item, allocator=entry)
            for item in everywhere
            if item.allocator.name == library_of
        ]
        result += sorted(copies, key=lambda item: version_key(item.version), reverse=True)
    return tuple(result)


def _with_libraries(entries: Sequence[Allocator], catalog: Catalog) -> list[Allocator]:
    """The entries whose libraries are searched for.

    An entry with a `library_of` is replaced by the entry of that name, whose library it uses.
    """
    owners = (catalog.find(entry.library_of) if entry.library_of else entry for entry in entries)
    return list({owner.name: owner for owner in owners if owner is not None}.values())


def known_catalog(cache: Path | None = None) -> Catalog:
    """The catalog plus the libraries that the user has added or built from their own source.

    An added library whose file has changed since it was added gets a caveat.
    """
    catalog = load_catalog()
    added: dict[str, Allocator] = {}
    for record in _records(cache or _cache_to_read()):
        values = read_record(record)
        name = values.get("allocator", "")
        is_own = "path" in values or "built" in values
        if is_own and is_typable(name) and catalog.find(name) is None:
            caveats = (
                (f"{values['path']} has changed since it was added; add it again",)
                if "path" in values and _changed(values)
                else ()
            )
            added[name] = Allocator(name=name, title=name, caveats=caveats)
    return Catalog((*catalog.allocators, *added.values())) if added else catalog


def _changed(values: Mapping[str, str]) -> bool:
    """Whether a library has changed since it was added.

    False for a missing file, which find_cached() reports as a problem.
    """
    try:
        status = os.stat(values["path"])
        if (str(status.st_size), str(status.st_mtime_ns)) == (
            values.get("size"),
            values.get("mtime_ns"),
        ):
            return False
        return stat.S_ISREG(status.st_mode) and file_sha256(values["path"]) != values.get(
            "library_sha256"
        )
    except (OSError, ValueError):
        return False


def file_sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 checksum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def system_allocator(entry: Allocator) -> Found:
    """The allocator that programs use without a preload. Its version is that of the C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        name, version = "", ""
    if name != "glibc":
        entry = replace(entry, title="system")
    return Found(allocator=entry, path=None, version=version or None, origin="the program's own")


def own_allocator(entry: Allocator) -> Found:
    """Cairn's own allocator, from cairn's own folder only.

    A file of the same name elsewhere may be another build.
    """
    found = Found(allocator=entry, path=None, version=cairn.__version__, origin="comes with cairn")
    try:
        library = inspect_library(str(native.allocator(entry.name)))
        refuse_library(library)
    except CairnError as error:
        return replace(found, problem=str(error))
    return replace(found, path=library.path, build_id=library.build_id)


def version_key(version: str | None) -> tuple[tuple[int, int | str], ...]:
    """A sort key for versions: 5.10 after 5.9, numbers after words (1.0 after 1.rc), None first."""
    parts = re.findall(r"\d+|[A-Za-z]+", version or "")
    return tuple(
        (1, int(part[:18])) if part.isdecimal() and part.isascii() else (0, part) for part in parts
    )


def _loader_cache() -> tuple[str, ...]:
    """The paths in the loader's cache; empty without ldconfig, as on musl."""
    for tool in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if os.access(tool, os.X_OK):
            listing = ask([tool, "-p"]) or ""
            return tuple(
                line.rpartition(" => ")[2] for line in listing.splitlines() if " => " in line
            )
    return ()


def _library_folders() -> list[str]:
    triple = f"{os.uname().machine}-linux-gnu"
    own = [
        folder
        for folder in os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
        if folder
    ]
    standard = [
        f"/usr/lib/{triple}",
        f"/lib/{triple}",
        "/usr/local/lib",
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
        "/lib",
    ]
    return [*own, f"/usr/local/lib/{triple}", *standard]


def _find_installed(entry: Allocator, listed: Sequence[str]) -> list[Found]:
    wanted = _names(entry)
    candidates = [path for path in listed if wanted.match(os.path.basename(path))]
    for folder in _library_folders():
        for pattern in entry.libraries:
            candidates += sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
    for place in entry.places:
        candidates += sorted(glob.glob(place))
    found: dict[str, Found] = {}
    for path in candidates:
        real = os.path.realpath(path)
        if real not in found and (item := _inspect(entry, path)) is not None:
            found[real] = item
    return list(found.values())


def _names(entry: Allocator) -> re.Pattern[str]:
    """Matches the file names of the allocator's libraries."""
    return re.compile("|".join(map(fnmatch.translate, entry.libraries)) or "(?!)")


def _inspect(entry: Allocator, path: str) -> Found | None:
    """The library at `path` as a Found, with its problem if it cannot be used.

    Returns None for a library of another architecture. Multiarch systems keep such libraries in the
    searched folders.
    """
    try:
        library = inspect_library(path)
        if not is_native(library):
            return None
        library_path = companion_folders(library, (*entry.companions, *library.needs))
        found = Found(
            allocator=entry, path=library.path, library_path=library_path, build_id=library.build_id
        )
        refuse_library(library, library_path=library_path)
    except ContenderFailed as error:
        return Found(allocator=entry, path=absolute(path), problem=str(error))
    return found


def is_usable_here(path: str | os.PathLike[str]) -> bool:
    """Whether the file is an allocator for this machine. The libraries it needs are not checked."""
    try:
        library = inspect_library(os.fspath(path))
    except ContenderFailed:
        return False
    return is_native(library) and library.defines_malloc and not library.truncated


def companion_folders(library: Library, companions: Sequence[str]) -> tuple[str, ...]:
    """The library's own folder, if the loader needs it on LD_LIBRARY_PATH; else ().

    The loader needs it if a companion lies there that it does not find by itself. It may find
    another version of the companion in a folder of the system. It never looks there for a companion
    that the library names by a path.
    """
    folder = os.path.dirname(library.realpath)
    beside = {name: os.path.join(folder, name) for name in companions if "/" not in name}
    beside = {name: path for name, path in beside.items() if os.path.lexists(path)}
    found = found_by_loader(library) if beside else {}
    taken = all(
        os.path.realpath(found.get(name, "")) == os.path.realpath(path)
        for name, path in beside.items()
    )
    return () if taken else (folder,)


def _with_packages(found: Sequence[Found]) -> Iterable[Found]:
    """Adds version and origin from the distribution's package database.

    All files are in one query, since each query reads the whole database.
    """
    files = {os.path.realpath(item.path) for item in found if item.path is not None}
    owners: dict[str, str] = {}
    if files:
        for line in (ask(["dpkg-query", "-S", *sorted(files)]) or "").splitlines():
            package, _, file = line.partition(": ")
            owners[file] = package.split(",")[0].strip()
    versions: dict[str, str] = {}
    if owners:
        listing = ask(
            [
                "dpkg-query",
                "-W",
                "-f",
                "${binary:Package}\t${Version}\n",
                *sorted(set(owners.values())),
            ]
        )
        for line in (listing or "").splitlines():
            package, _, version = line.partition("\t")
            versions[package.partition(":")[0]] = version
    for item in found:
        package = owners.get(os.path.realpath(item.path or ""), "").partition(":")[0]
        full = versions.get(package)
        if full:
            yield replace(item, version=upstream_version(full), origin=f"{package} {full}")
        else:
            yield replace(item, origin=f"file {item.path}")


def upstream_version(version: str) -> str:
    """The project's version within a Debian version: 2.0.9 for 2.0.9+ds-2.

    Epoch, revision and the mark of a repacked source are removed.
    """
    plain = version.partition(":")[2] or version
    plain = plain.rpartition("-")[0] or plain
    return re.split(r"[+~](?:ds|dfsg|repack|really)", plain)[0]


def ask(command: Sequence[str]) -> str | None:
    """The standard output of a tool; None if the tool is missing or exceeds TOOL_TIMEOUT_S."""
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"},
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(answer.stdout)


def _records(cache: Path | None) -> list[str]:
    return (
        []
        if cache is None
        else sorted(glob.glob(os.path.join(glob.escape(str(cache)), "*", "*", RECORD)))
    )


def find_cached(catalog: Catalog, cache: Path | None) -> tuple[Found, ...]:
    """The fetched, built and added libraries in the cache, if there is a cache.

    Folders without a complete record are skipped, and so are records of other users.
    """
    found = []
    for record in _records(cache):
        values = read_record(record)
        entry = catalog.find(values.get("allocator", ""))
        folder = os.path.dirname(record)
        path = values.get("path") or os.path.normpath(
            os.path.join(folder, values.get("library", ""))
        )
        if (
            entry is None
            or entry.comes_along
            or not (path.startswith(folder + os.sep) or _is_added_record(values, folder))
        ):
            continue
        gone = _gone(path, entry.name, values)
        item = Found(entry, path, problem=gone) if gone is not None else _inspect(entry, path)
        if item is not None:
            found.append(
                replace(
                    item,
                    cached=True,
                    version=values.get("version"),
                    origin=values.get("origin"),
                    sha256=values.get("library_sha256"),
                    source_sha256=values.get("sha256"),  # older records have this checksum only
                )
            )
    return tuple(found)


def _gone(path: str, name: str, values: Mapping[str, str]) -> str | None:
    """A sentence with the next steps if the library of a record is gone; else None."""
    try:
        os.stat(path)
        return None
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:  # _inspect() says it
        return None
    remove = f"remove the name with 'cairn allocators remove {name}'"
    if "path" in values:
        return (
            f"{path}, which was added as {name}, is gone; add it again with "
            f"'cairn allocators add {name} FILE', or {remove}"
        )
    if "built" in values:
        return f"{path} is gone from the cache; build it again, or {remove}"
    return f"{path} is gone from the cache; 'cairn allocators get {name}' fetches it again"


def _is_added_record(values: Mapping[str, str], folder: str) -> bool:
    """Whether a record may name a path outside the cache.

    Only add() writes such a record, and only below the folder of the added name.
    """
    where = os.path.join(values.get("allocator", ""), ADDED)
    return os.path.isabs(values.get("path", "")) and folder.endswith(os.sep + where)


def read_record(path: str) -> dict[str, str]:
    """The text fields of a record.

    Empty when the record is damaged, too large, or may have been written by another user.
    """
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _RECORD_MAX_BYTES:
            return {}
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
            return {}
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(values, dict) or values.get("schema") != RECORD_SCHEMA:
        return {}
    return {
        key: value for key, value in values.items() if isinstance(value, str) and "\0" not in value
    }


def write_record(folder: Path, values: Mapping[str, str]) -> None:
    """Writes the record. A folder in the cache without a record counts as unfinished.

    Only the user may write the record, whatever the umask is: read_record() refuses any other.
    """

    def opened(path: str, flags: int) -> int:
        return os.open(path, flags, 0o644)

    with open(folder / RECORD, "x", encoding="utf-8", opener=opened) as file:
        json.dump({"schema": RECORD_SCHEMA, **values}, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def put_in_place(fresh: Path, final: Path) -> None:
    """Puts the folder `fresh` in the place of `final`, which may exist.

    An interruption leaves the old folder or the new one in this place. On a file system that cannot
    exchange two folders in one step, it may leave neither.
    """
    if not _exchanged(fresh, final):
        remove_folder(final)
        os.rename(fresh, final)
    shutil.rmtree(fresh, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchanges two folders in one step; returns False if that is not possible here."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):  # the C library does not have it
        return False
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    done: int = rename(here, os.fsencode(one), here, os.fsencode(other), both)
    return done == 0


def remove_folder(folder: Path) -> None:
    """Removes a folder. A rename hides the folder from other processes before it is deleted.

    A missing folder is not an error.
    """
    gone = Path(tempfile.mkdtemp(prefix=".gone-", dir=folder.parent))
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, gone / "it")
    shutil.rmtree(gone, ignore_errors=True)
