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

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from cairn import discover
from cairn.catalog import Allocator, Catalog, Found
from cairn.errors import CairnError

Progress = Callable[[str], None]
"""Called once for each thing that takes time, with what it is."""

LOCK_TIMEOUT_S = 600.0
_OUTPUT_MAX = 1024 * 1024


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


class _Stalled(Exception):
    """Nothing moved for too long."""


def _silent(step: str) -> None:
    """Progress that nobody watches."""


def unpack_from_distribution(
    entry: Allocator,
    cache: Path | None = None,
    progress: Progress = _silent,
    *,
    apt: Apt | None = None,
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
        with _locked(cache / ".lock", progress):
            return _fetch(entry, cache, progress, apt)
    except _NoPackage as refusal:
        raise CairnError(f"{here}: {refusal}. {by_path}") from None
    except _Refused as refusal:
        advice = "Check the package sources and the network, and try again"
        raise CairnError(f"{here}: {refusal}. {advice}.") from None
    except _Stalled:
        raise CairnError(f"{here}: no progress for {apt.stall_s:.0f} s. Check the network and try again.") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CairnError(
            f"{here}: {reason} ({error.filename or cache}). Free some space, or set XDG_CACHE_HOME."
        ) from None


def _fetch(entry: Allocator, cache: Path, progress: Progress, apt: Apt) -> Found:
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


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """One fetch at a time per cache. The kernel drops the lock of a killed one, so no hand has to clean up."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not _try_lock(descriptor):
            progress("waiting for another fetch")
            deadline = time.monotonic() + LOCK_TIMEOUT_S
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise _Refused("another fetch holds the cache folder")
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# --- apt ---


def _list_folders(work: Path, progress: Progress, apt: Apt) -> Iterator[str]:
    """The system's lists where it has some; then our own, brought up to date when they are asked for."""
    if _has_lists(apt.lists):
        yield apt.lists
    own = str(work / "state" / "lists")
    progress("reading the package lists")
    _, output = _run(_apt(work, own, apt, "update"), work, apt.stall_s)
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
        status, output = _run(_apt(work, lists, apt, "--print-uris", "download", name), work, apt.stall_s)
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
    if not archive.is_file() or _sha256(archive) != package.sha256:
        command = _apt(work, lists, apt, "download", f"{package.name}={package.version}")
        progress(f"downloading {package.name} {unquote(package.version)} ({package.size / 1024:,.0f} KiB)")
        status, output = _run(command, folder, apt.stall_s)
        if status != 0 or not archive.is_file():
            raise _Refused(_complaint(output) or f"apt-get could not download {package.name}")
    if _sha256(archive) != package.sha256:
        archive.unlink()
        raise _Refused(f"the downloaded {package.name} is not what the distribution signed")
    return archive


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        status, output = _run(["dpkg-deb", "-x", str(archive), str(tree)], fresh, 60.0)
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
        "schema": discover.RECORD_SCHEMA,
        "allocator": entry.name,
        "library": str(library.relative_to(fresh)),
        "version": discover.upstream_version(version),
        "package": package.name,
        "package_version": version,
        "sha256": package.sha256,
        "origin": f"{package.name} {version}, unpacked",
    }
    if entry.licence is not None:
        record["licence"] = entry.licence
    path = fresh / discover.RECORD
    with path.open("x", encoding="utf-8") as file:
        json.dump(record, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


# --- running a tool that may hang ---


def _run(
    command: Sequence[str],
    folder: Path,
    stall_s: float,
) -> tuple[int, str]:
    """Exit status and output. A tool that neither prints nor writes for `stall_s` is ended, with its children.

    It gets a session of its own, since apt's helpers do the network work and must end with it.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = bytearray()
    moved = time.monotonic()
    written = -1
    try:
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 0.25)
            if ready:
                chunk = os.read(process.stdout.fileno(), 64 * 1024)
                if not chunk:
                    break
                output += chunk[: max(0, _OUTPUT_MAX - len(output))]
                moved = time.monotonic()
            now_written = _bytes_below(folder)
            if now_written != written:
                written, moved = now_written, time.monotonic()
            if time.monotonic() - moved > stall_s:
                raise _Stalled
        return process.wait(timeout=stall_s), output.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        raise _Stalled from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()


def _bytes_below(folder: Path) -> int:
    """How much lies there: a download shows itself by its growing file, whatever the tool prints."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
