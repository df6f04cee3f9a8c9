"""Fetches an allocator's package from the distribution into the user's cache, without root.

The package is unpacked, not installed. apt-get fetches the package. Its state and its cache are
redirected into cairn's cache folder. apt-get checks every file against the distribution's signed
index, and knows proxies and mirrors. Nothing outside the cache folder is written, not even as root.

    cache/.lock                     held during a fetch, so that only one runs at a time
    cache/.apt/                     apt's lists, caches and downloads; partial downloads continue
    cache/<allocator>/.new-…        unpacking in progress; the next fetch removes a leftover
    cache/<allocator>/<version>/    a complete library and its record, put here by a rename
"""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

from cairn.allocators import discover
from cairn.allocators.catalog import Allocator, Catalog, Found, is_version, load_catalog
from cairn.allocators.discover import file_sha256
from cairn.allocators.tool_runner import Busy, Progress, Stalled, locked, run_tool
from cairn.errors import CairnError

LOCK_TIMEOUT_S = 600.0

UNPACKED = ", unpacked"
"""The end of `Found.origin` for a library from a package that was unpacked but not installed."""


class Apt(Struct, frozen=True):
    """How apt is called. By default it uses the system's own sources and keys."""

    options: tuple[str, ...] = ()
    """Further arguments of each apt-get, for example other sources."""
    lists: str = "/var/lib/apt/lists"
    """The system's package lists. They are read and never written."""
    stall_s: float = 60.0
    """A tool counts as stalled if it prints and writes nothing for this time."""


class _Package(Struct, frozen=True):
    """A package as apt's signed index describes it."""

    name: str
    version: str
    file: str
    size: int
    sha256: str


class _Refused(Exception):
    """apt or dpkg failed. The text is the reason, as the end of a sentence."""


class _NotInIndex(_Refused):
    """The index of the distribution was read, and lacks the package. Another try would not help."""


class _NoPackage(_NotInIndex):
    """The index has none of the entry's packages.

    `instead` names another generation of the allocator that the distribution has, with the command
    that fetches it. It is None if the distribution has none.
    """

    def __init__(self, reason: str, instead: str | None) -> None:
        super().__init__(reason)
        self.instead = instead


def silent(step: str) -> None:
    """A progress callback that shows nothing."""


def unpack_from_distribution(
    entry: Allocator,
    cache: Path | None = None,
    progress: Progress = silent,
    *,
    apt: Apt | None = None,
    version: str | None = None,
) -> Found:
    """Fetches the allocator and returns it as it lies in the cache.

    If the cache already has the distribution's version, that copy is returned. If the library needs
    another library that this system lacks, the returned copy has a `problem`. Raises CairnError,
    which says "not obtainable here" and why.
    """
    apt = apt or Apt()
    cache = cache or discover.cache_folder()
    here = f"{entry.name} is not obtainable here"
    by_path = f"Build it, and name its library: -a {entry.name}=/path/to/it.so"
    if entry.is_system:
        raise CairnError(
            "the system allocator is part of every system and is never fetched; "
            "name another allocator."
        )
    if not entry.packages:
        raise CairnError(f"{here}: no distribution package holds it. {by_path}")
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise CairnError(
                f"{here}: only packages of Debian and its family can be unpacked, "
                f"and {tool} is missing. {by_path}"
            )
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(cache / ".lock", progress, "another fetch", LOCK_TIMEOUT_S):
            return _fetch(entry, cache, progress, apt, version)
    except _NoPackage as refusal:
        raise CairnError(
            f"{here}: {refusal}{f'; {refusal.instead}' if refusal.instead else f'. {by_path}'}"
        ) from None
    except _NotInIndex as refusal:
        raise CairnError(f"{here}: {refusal}. {by_path}") from None
    except _Refused as refusal:
        advice = "Check the package sources and the network and try again"
        raise CairnError(f"{here}: {refusal}. {advice}.") from None
    except Busy:
        raise CairnError(
            f"{here}: another fetch uses the cache folder. End it, and try again."
        ) from None
    except Stalled:
        raise CairnError(
            f"{here}: no progress for {apt.stall_s:.0f} s. Check the network and try again."
        ) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CairnError(
            f"{here}: {reason} ({error.filename or cache}). "
            "Free some space, or set XDG_CACHE_HOME to another folder."
        ) from None


def offered(
    entries: Sequence[Allocator],
    cache: Path | None = None,
    progress: Progress = silent,
    *,
    apt: Apt | None = None,
) -> dict[str, str]:
    """The distribution's version of each entry, by the entry's name. Downloads no package.

    Uses the system's package lists, and fetches lists only if the system has none. Empty if this is
    no Debian. Raises CairnError if there are no lists.
    """
    apt = apt or Apt()
    cache = cache or discover.cache_folder()
    if any(shutil.which(tool) is None for tool in ("apt-get", "apt-cache")):
        return {}
    work = cache / ".apt"
    try:
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (work / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(cache / ".lock", progress, "another fetch", LOCK_TIMEOUT_S):
            lists = _systems_lists(work, progress, apt) or _own_lists(work, progress, apt)
            names = [name for entry in entries for name in entry.packages]
            here = _in_index(names, work, lists.folder, apt)
    except (_Refused, Busy, Stalled) as error:
        reason = str(error) or "apt made no progress"
        raise CairnError(
            f"the packages of {_distribution()} are not known: {reason}; "
            "check the package sources and the network"
        ) from None
    except OSError as error:
        raise CairnError(
            f"the packages of {_distribution()} are not known: {error.strerror} ({cache}); "
            "set XDG_CACHE_HOME to another folder"
        ) from None
    versions = {}
    for entry in entries:
        package = next((name for name in entry.packages if name in here), None)
        if package is not None:
            versions[entry.name] = discover.upstream_version(here[package])
    return versions


def _fetch(
    entry: Allocator, cache: Path, progress: Progress, apt: Apt, version: str | None
) -> Found:
    """Fetches the allocator; the caller holds the lock. Raises _Refused with the reason.

    The first pass uses the system's package lists. If that fails, the second pass fetches new
    lists.
    """
    home = cache / entry.name
    home.mkdir(exist_ok=True, mode=0o700)
    for leftover in home.glob(".new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = cache / ".apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "download"):
        (work / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    failure: _Refused | None = None
    for read in (_systems_lists, _own_lists):
        try:
            lists = read(work, progress, apt)
        except _Refused as refused:
            raise _failure_without_update(failure, refused) from None
        if lists is None:
            continue
        try:
            package = _choose(entry, work, lists, apt)
            offered = discover.upstream_version(unquote(package.version))
            if not is_version(offered, version):
                raise _NotInIndex(
                    f"{_distribution()} has {entry.title} {offered} and not {version}"
                )
            final = home / re.sub(
                r"[^A-Za-z0-9.+~-]", "_", package.version.partition(":")[2] or package.version
            )
            if (found := _find_in(entry, cache, final)) is not None:
                return found
            archive = _download(package, work, lists.folder, progress, apt)
        except _Refused as refused:
            # The lists may be old and may name a file that is gone. The next pass fetches new ones.
            failure = refused
            continue
        progress(f"unpacking {package.name} {package.version}")
        _unpack(entry, package, archive, home, final)
        archive.unlink()
        found = _find_in(entry, cache, final)
        if found is None:
            raise _Refused(
                f"{package.name} {package.version} holds no {entry.title} for this machine"
            )
        return found
    assert failure is not None
    raise failure


def _failure_without_update(before: _Refused | None, refused: _Refused) -> _Refused:
    """The failure to report when newer lists cannot be fetched.

    before: the failure of the first pass; None if the system has no lists. If the system's lists do
    not have the package, the error says so, with a note that newer lists could not be fetched.
    """
    note = f" (by the package lists of this machine; newer ones could not be fetched: {refused})"
    match before:
        case None:
            return refused
        case _NoPackage():
            return _NoPackage(f"{before}{note}", before.instead)
        case _NotInIndex():
            return _NotInIndex(f"{before}{note}")
        case _:
            return before if str(before) == str(refused) else _Refused(f"{before}; then: {refused}")


def _find_in(entry: Allocator, cache: Path, final: Path) -> Found | None:
    """The copy of the allocator below the folder `final`; None if there is none."""
    inside = str(final) + os.sep
    copies = discover.find_cached(Catalog((entry,)), cache)
    return next(
        (item for item in copies if item.path is not None and item.path.startswith(inside)), None
    )


# --- apt ---


class _Lists(Struct, frozen=True):
    """A folder with package lists."""

    folder: str
    missing: str | None = None
    """Why some lists are missing or old; None if all were fetched."""


def _systems_lists(work: Path, progress: Progress, apt: Apt) -> _Lists | None:  # noqa: ARG001
    """The system's own lists; None if it has none, as in most containers."""
    return _Lists(apt.lists) if _has_lists(apt.lists) else None


def _own_lists(work: Path, progress: Progress, apt: Apt) -> _Lists:
    """The lists in our folder, after an update. Raises _Refused if there are none."""
    own = str(work / "state" / "lists")
    progress("reading the package lists")
    status, output = run_tool(_apt(work, own, apt, "apt-get", "update"), work, apt.stall_s)
    complaint = _complaint(output)
    if not _has_lists(own):  # apt succeeds even if it fetched nothing
        none = (
            "apt has no package sources here"
            if status == 0
            else "the package lists could not be fetched"
        )
        raise _Refused(complaint or none)
    # A warning, such as one about a source's format, does not mean that a list is missing.
    return _Lists(own, complaint if status != 0 or "Failed to fetch" in output else None)


def _has_lists(folder: str) -> bool:
    return bool(glob.glob(os.path.join(glob.escape(folder), "*_Packages*")))


def _apt(work: Path, lists: str, apt: Apt, tool: str, *arguments: str) -> list[str]:
    """The command line of a tool of apt that writes below `work` only.

    The system's hooks for updates are cleared, since they act outside of `work`.
    """
    configuration = work / "apt.conf"
    configuration.write_text(
        "#clear APT::Update::Pre-Invoke;\n"
        "#clear APT::Update::Post-Invoke;\n"
        "#clear APT::Update::Post-Invoke-Success;\n"
        "#clear DPkg::Post-Invoke;\n",
        encoding="ascii",
    )
    settings = {
        "Dir::State": f"{work}/state",
        "Dir::State::lists": lists,
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": f"{work}/cache",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
        "APT::Get::AllowUnauthenticated": "false",
        "Acquire::AllowInsecureRepositories": "false",
        "Acquire::http::Timeout": "20",
        "Acquire::https::Timeout": "20",
        "Acquire::Retries": "1",
        "Acquire::Languages": "none",
        "Dir::Log": f"{work}/state",
    }
    options = [
        part for key, value in settings.items() if value for part in ("-o", f"{key}={value}")
    ]
    return [tool, "-q", "-c", str(configuration), *options, *apt.options, *arguments]


def _choose(entry: Allocator, work: Path, lists: _Lists, apt: Apt) -> _Package:
    """The first of the entry's packages that the distribution has. Names differ between releases.

    Raises _NoPackage if it has none of them, and _Refused if the lists are incomplete.
    """
    for name in _in_index(entry.packages, work, lists.folder, apt):
        command = _apt(work, lists.folder, apt, "apt-get", "--print-uris", "download", name)
        _, output = run_tool(command, work, apt.stall_s)
        for line in output.splitlines():
            if match := re.fullmatch(r"'[^']*' (\S+) (\d+) SHA256:([0-9a-f]{64})", line.strip()):
                file = unquote(match[1])
                parts = file.split("_")
                if len(parts) == 3 and os.sep not in file and not file.startswith("."):
                    return _Package(name, parts[1], match[1], int(match[2]), match[3])
        raise _Refused(_complaint(output) or f"apt-get does not say where {name} lies")
    lacking = f"the package {entry.packages[0]}"
    if len(entry.packages) > 1:
        lacking = f"any of the packages {', '.join(entry.packages[:-1])} and {entry.packages[-1]}"
    if lists.missing is not None:
        raise _Refused(
            f"the package lists that could be fetched do not hold {lacking}, "
            f"and others are missing: {lists.missing}"
        )
    has_none = f"{_distribution()} does not have {lacking}"
    raise _NoPackage(has_none, _other_generation(entry, work, lists.folder, apt))


def _in_index(names: Sequence[str], work: Path, lists: str, apt: Apt) -> dict[str, str]:
    """The packages in the index: name and newest version, in the order of `names`.

    The output of apt-cache is used because it has one line for each version that can be downloaded,
    and nothing else. apt-get has several messages for a missing package, among them one for a name
    that only other packages mention.
    """
    _, output = run_tool(_apt(work, lists, apt, "apt-cache", "madison", *names), work, apt.stall_s)
    here: dict[str, str] = {}
    for line in output.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 3 and columns[2].endswith("Packages"):
            here.setdefault(columns[0], columns[1])
    return {name: here[name] for name in names if name in here}


def _other_generation(entry: Allocator, work: Path, lists: str, apt: Apt) -> str | None:
    """A phrase with the command that gets another generation of the allocator, such as mimalloc 3.

    A generation is an entry of its own in the catalog, with the same title. None if the index has
    no other generation.
    """
    for other in load_catalog().allocators:
        if other.title != entry.title or other.name == entry.name or not other.packages:
            continue
        for name, version in _in_index(other.packages, work, lists, apt).items():
            is_there = f"{name} ({other.title} {discover.upstream_version(version)})"
            return f"it has {is_there}: 'cairn allocators get --from distribution {other.name}'"
    return None


def _distribution() -> str:
    """The name and release of this system, such as Debian 13."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "the distribution"
    name = release.get("NAME", "").removesuffix(" GNU/Linux")
    return f"{name} {release.get('VERSION_ID', '')}".strip() or "the distribution"


def _download(package: _Package, work: Path, lists: str, progress: Progress, apt: Apt) -> Path:
    """The package's file, after a check of its checksum. Downloads the file if it is missing."""
    folder = work / "download"
    archive = folder / package.file
    if not archive.is_file() or file_sha256(archive) != package.sha256:
        command = _apt(work, lists, apt, "apt-get", "download", f"{package.name}={package.version}")
        progress(
            f"downloading {package.name} {unquote(package.version)} "
            f"({package.size / 1024:,.0f} KiB)"
        )
        status, output = run_tool(command, folder, apt.stall_s)
        if status != 0 or not archive.is_file():
            raise _Refused(_complaint(output) or f"apt-get could not download {package.name}")
    if file_sha256(archive) != package.sha256:
        archive.unlink()
        raise _Refused(f"the downloaded {package.name} is not what the distribution signed")
    return archive


def _complaint(output: str) -> str | None:
    """The tool's own reason, as the end of a sentence; None if it gave none.

    The reason is the first line with "Failed to fetch", else the last error, else the last warning.
    """
    for mark in (r"[EW]: (?=Failed to fetch)", "E: ", "W: "):
        lines = [line for line in output.splitlines() if re.match(mark, line)]
        if lines:
            chosen = lines[0] if "fetch" in mark else lines[-1]
            return " ".join(chosen[3:].split()).rstrip(".")
    return None


# --- unpacking ---


def _unpack(entry: Allocator, package: _Package, archive: Path, home: Path, final: Path) -> None:
    """Unpacks into a new folder and renames it, so that `final` is either complete or absent."""
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=home))
    try:
        tree = fresh / "tree"
        status, output = run_tool(["dpkg-deb", "-x", str(archive), str(tree)], fresh, 60.0)
        if status != 0:
            raise _Refused(_complaint(output) or f"dpkg-deb could not unpack {package.name}")
        _write_record(entry, package, fresh, _find_library(entry, tree, package))
        # If `final` exists, it has no valid record, since _find_in() did not find it.
        shutil.rmtree(final, ignore_errors=True)
        os.rename(fresh, final)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _find_library(entry: Allocator, tree: Path, package: _Package) -> Path:
    """The library in the unpacked package that works here. Raises _Refused if there is none.

    Of several names of a library, the shortest one is returned: programs load it by that name.
    """
    patterns = [f"**/{name}" for name in entry.libraries] + [
        place.lstrip("/") for place in entry.places
    ]
    candidates = sorted(
        {path for pattern in patterns for path in tree.glob(pattern)},
        key=lambda path: (len(path.name), path),
    )
    for path in candidates:
        if discover.is_usable_here(path):
            return path
    raise _Refused(f"{package.name} {package.version} holds no {entry.title} for this machine")


def _write_record(entry: Allocator, package: _Package, fresh: Path, library: Path) -> None:
    version = unquote(package.version)
    record = {
        "allocator": entry.name,
        "library": str(library.relative_to(fresh)),
        "version": discover.upstream_version(version),
        "package": package.name,
        "package_version": version,
        "sha256": package.sha256,
        "library_sha256": file_sha256(library),
        "origin": f"{package.name} {version}{UNPACKED}",
    }
    if entry.licence is not None:
        record["licence"] = entry.licence
    discover.write_record(fresh, record)
