"""Fetches an allocator from the distribution into the user's cache folder, without root and without installing it.

apt-get does the fetching, with its state and cache redirected below our folder: it checks every file against the
distribution's signed index, and knows about proxies and mirrors. Nothing outside the cache folder is written, not
even as root.

    cache/.lock                         one fetch at a time
    cache/.apt/                         apt's lists, caches and downloads; a partial download is taken up again
    cache/<allocator>/.new-…            being unpacked; the next fetch removes what an interrupted one left
    cache/<allocator>/<version>/        complete: it came here by one rename, with its record inside
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from cairn import discover
from cairn.catalog import Allocator, Catalog, Found, is_version
from cairn.discover import file_sha256
from cairn.errors import CairnError
from cairn.tools import Busy, Progress, Stalled, locked, run_tool

LOCK_TIMEOUT_S = 600.0

UNPACKED = ", unpacked"
"""Ends the origin of what came from a package that is not installed."""


@dataclass(frozen=True, slots=True)
class Apt:
    """How apt is used; the defaults are the system's own sources and keys."""

    options: tuple[str, ...] = ()
    """Further arguments for each apt-get, for example other sources."""
    lists: str = "/var/lib/apt/lists"
    """The system's package lists; they are read, and never written."""
    stall_s: float = 60.0
    """Without a byte or a line for so long, the network counts as down."""


@dataclass(frozen=True, slots=True)
class _Package:
    """What apt would download, by its signed index."""

    name: str
    version: str
    file: str
    size: int
    sha256: str


class _Refused(Exception):
    """apt or dpkg could not do it; the text is its reason, as the end of a sentence."""


class _NoPackage(_Refused):
    """The distribution has none; only building it helps."""


def silent(step: str) -> None:
    """Progress that nobody watches."""


def unpack_from_distribution(
    entry: Allocator,
    cache: Path | None = None,
    progress: Progress = silent,
    *,
    apt: Apt | None = None,
    version: str | None = None,
) -> Found:
    """The allocator as it then lies in the cache; one that is already there in the distribution's version stays.

    A library that still needs something which this system lacks is returned with its `problem`. Raises CairnError,
    saying "not obtainable here" and why, when it cannot be had.
    """
    apt = apt or Apt()
    cache = cache or discover.cache_folder()
    here = f"{entry.name} is not obtainable here"
    by_path = f"Build it, and name its library: -a {entry.name}=/path/to/it.so"
    if entry.is_system:
        raise CairnError("the system allocator is part of every system and is never fetched; name another allocator.")
    if not entry.packages:
        raise CairnError(f"{here}: no distribution package holds it. {by_path}")
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise CairnError(
                f"{here}: only packages of Debian and its family can be unpacked, and {tool} is missing. {by_path}"
            )
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(cache / ".lock", progress, "another fetch", LOCK_TIMEOUT_S):
            return _fetch(entry, cache, progress, apt, version)
    except _NoPackage as refusal:
        raise CairnError(f"{here}: {refusal}. {by_path}") from None
    except _Refused as refusal:
        advice = "Check the package sources and the network, and try again"
        raise CairnError(f"{here}: {refusal}. {advice}.") from None
    except Busy:
        raise CairnError(f"{here}: another fetch holds the cache folder. End it, and try again.") from None
    except Stalled:
        raise CairnError(f"{here}: no progress for {apt.stall_s:.0f} s. Check the network and try again.") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CairnError(
            f"{here}: {reason} ({error.filename or cache}). Free some space, or set XDG_CACHE_HOME."
        ) from None


def _fetch(entry: Allocator, cache: Path, progress: Progress, apt: Apt, version: str | None) -> Found:
    home = cache / entry.name
    home.mkdir(exist_ok=True, mode=0o700)
    for leftover in home.glob(".new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = cache / ".apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "download"):
        (work / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    failure: _Refused | None = None
    for lists in _list_folders(work, progress, apt):
        try:
            package = _choose(entry, work, lists, apt)
            offered = discover.upstream_version(unquote(package.version))
            if not is_version(offered, version):
                raise _NoPackage(f"the distribution has {offered}, and not {version}")
            final = home / re.sub(r"[^A-Za-z0-9.+~-]", "_", package.version.partition(":")[2] or package.version)
            if (found := _find_in(entry, cache, final)) is not None:
                return found
            archive = _download(package, work, lists, progress, apt)
        except _Refused as refused:
            failure = refused  # the lists may be of yesterday, and what they name gone: newer ones come next
            continue
        progress(f"unpacking {package.name} {package.version}")
        _unpack(entry, package, archive, home, final)
        archive.unlink()
        found = _find_in(entry, cache, final)
        if found is None:
            raise _Refused(f"{package.name} {package.version} holds no {entry.title} for this machine")
        return found
    raise failure or _Refused("there are no package lists")


def _find_in(entry: Allocator, cache: Path, final: Path) -> Found | None:
    inside = str(final) + os.sep
    copies = discover.find_cached(Catalog((entry,)), cache)
    return next((item for item in copies if item.path is not None and item.path.startswith(inside)), None)


# --- apt ---


def _list_folders(work: Path, progress: Progress, apt: Apt) -> Iterator[str]:
    """The system's lists where it has some; then our own, brought up to date when they are asked for."""
    if _has_lists(apt.lists):
        yield apt.lists
    own = str(work / "state" / "lists")
    progress("reading the package lists")
    _, output = run_tool(_apt(work, own, apt, "update"), work, apt.stall_s)
    if not _has_lists(own):  # apt calls it a success to have fetched nothing
        raise _Refused(_complaint(output) or "the package lists could not be fetched")
    yield own


def _has_lists(folder: str) -> bool:
    return bool(glob.glob(os.path.join(glob.escape(folder), "*_Packages*")))


def _apt(work: Path, lists: str, apt: Apt, *arguments: str) -> list[str]:
    """An apt-get that writes below `work` only. A system's hooks for updates must not run: they act outside."""
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
    options = [part for key, value in settings.items() if value for part in ("-o", f"{key}={value}")]
    return ["apt-get", "-q", "-c", str(configuration), *options, *apt.options, *arguments]


def _choose(entry: Allocator, work: Path, lists: str, apt: Apt) -> _Package:
    """The first of the entry's packages that the distribution has; newer releases call some by other names."""
    reason: str | None = None
    for name in entry.packages:
        status, output = run_tool(_apt(work, lists, apt, "--print-uris", "download", name), work, apt.stall_s)
        for line in output.splitlines():
            if match := re.fullmatch(r"'[^']*' (\S+) (\d+) SHA256:([0-9a-f]{64})", line.strip()):
                file = unquote(match[1])
                parts = file.split("_")
                if len(parts) == 3 and os.sep not in file and not file.startswith("."):
                    return _Package(name, parts[1], match[1], int(match[2]), match[3])
        if status != 0 and "Unable to locate package" not in output and "has no installation candidate" not in output:
            reason = _complaint(output) or reason
    raise _Refused(reason) if reason else _NoPackage("the distribution has no package of it")


def _download(package: _Package, work: Path, lists: str, progress: Progress, apt: Apt) -> Path:
    folder = work / "download"
    archive = folder / package.file
    if not archive.is_file() or file_sha256(archive) != package.sha256:
        command = _apt(work, lists, apt, "download", f"{package.name}={package.version}")
        progress(f"downloading {package.name} {unquote(package.version)} ({package.size / 1024:,.0f} KiB)")
        status, output = run_tool(command, folder, apt.stall_s)
        if status != 0 or not archive.is_file():
            raise _Refused(_complaint(output) or f"apt-get could not download {package.name}")
    if file_sha256(archive) != package.sha256:
        archive.unlink()
        raise _Refused(f"the downloaded {package.name} is not what the distribution signed")
    return archive


def _complaint(output: str) -> str | None:
    """The tool's own reason: its first failure to fetch, else its last error or warning, as the end of a sentence."""
    for mark in (r"[EW]: (?=Failed to fetch)", "E: ", "W: "):
        lines = [line for line in output.splitlines() if re.match(mark, line)]
        if lines:
            chosen = lines[0] if "fetch" in mark else lines[-1]
            return " ".join(chosen[3:].split()).rstrip(".")
    return None


# --- unpacking ---


def _unpack(entry: Allocator, package: _Package, archive: Path, home: Path, final: Path) -> None:
    """Everything happens beside the final place, which then appears at once, or not at all."""
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=home))
    try:
        tree = fresh / "tree"
        status, output = run_tool(["dpkg-deb", "-x", str(archive), str(tree)], fresh, 60.0)
        if status != 0:
            raise _Refused(_complaint(output) or f"dpkg-deb could not unpack {package.name}")
        _write_record(entry, package, fresh, _find_library(entry, tree, package))
        shutil.rmtree(final, ignore_errors=True)  # without a valid record, or it would have been returned
        os.rename(fresh, final)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _find_library(entry: Allocator, tree: Path, package: _Package) -> Path:
    """The library of this machine inside the unpacked package; the shortest name is the one that programs ask for."""
    patterns = [f"**/{name}" for name in entry.libraries] + [place.lstrip("/") for place in entry.places]
    candidates = sorted(
        {path for pattern in patterns for path in tree.glob(pattern)}, key=lambda path: (len(path.name), path)
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
