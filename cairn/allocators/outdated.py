"""Compares the pinned sources with the newest releases in the registries and the distribution.

The answers come from cargo and pip, which use the registries and mirrors that the user configured
for them. Cargo resolves a project that depends on one crate: it reads the index, downloads no
crate, and writes the newest release and its checksum to a lock file. Pip makes the plan of an
installation, and installs nothing. If a registry cannot be read, a sentence of the result says so,
and the others are still read.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from cairn.allocators import debian, discover, download, sources
from cairn.allocators.catalog import Allocator, is_version, load_catalog
from cairn.allocators.discover import version_key
from cairn.allocators.download import NotObtained
from cairn.allocators.sources import Source
from cairn.allocators.tool_runner import Progress
from cairn.errors import CairnError

_UNREADABLE = "could not read the registry"


class Release(Struct, frozen=True):
    """The newest release of a package in its registry."""

    number: str
    sha256: str
    """The checksum in the registry's own index."""
    file: str = ""
    """The file name of a wheel; empty for a crate."""


class Standing(Struct, frozen=True):
    """One pinned source and the newest versions that the registry and the distribution offer.

    An allocator that has no pinned source has a Standing with the distribution's version alone.
    """

    allocator: Allocator
    source: Source | None
    """None for an allocator that is in no registry."""
    newest: Release | None
    """None if there is no source, or if its registry could not be read."""
    packaged: str | None
    """The version of the distribution's package; None if there is none, or if it is not known."""

    @property
    def is_outdated(self) -> bool:
        """Whether the registry has a newer release of the pinned package."""
        return (
            self.source is not None
            and self.newest is not None
            and _is_newer(self.newest.number, self.source.release)
        )

    @property
    def is_behind_distribution(self) -> bool:
        """Whether the distribution's package has a newer version than the pinned source."""
        return (
            self.source is not None
            and self.packaged is not None
            and not is_version(self.packaged, self.source.version)
            and version_key(self.packaged) > version_key(self.source.version)
        )


class Survey(Struct, frozen=True):
    """The standings of all pinned packages, and what could not be read."""

    standings: tuple[Standing, ...]
    failures: tuple[str, ...]
    """A sentence for each registry that could not be read, without a full stop."""


def _is_newer(release: str, pinned: str) -> bool:
    """Whether a release has a higher number. The part after "+" names a commit and has no order."""
    return version_key(release.partition("+")[0]) > version_key(pinned.partition("+")[0])


def _lacks_package(error: NotObtained) -> bool:
    """Whether the registry answered, and does not have the package."""
    text = str(error)
    return "no matching package" in text or "No matching distribution" in text


def survey(
    progress: Progress = debian.silent, cache: Path | None = None, apt: debian.Apt | None = None
) -> Survey:
    """Asks each registry for the newest releases of the pinned packages.

    Raises CairnError if the cache cannot be written.
    """
    cache = cache or discover.cache_folder()
    entries = [
        entry
        for entry in load_catalog().allocators
        if not entry.comes_along and entry.library_of is None
    ]
    pinned = {entry.name: _newest_pins(entry) for entry in entries}
    failures: list[str] = []
    found: dict[tuple[str, str], Release] = {}
    try:
        packaged = debian.offered(entries, cache, progress, apt=apt)
    except CairnError as error:
        packaged = {}
        failures.append(str(error))
    for kind in sources.KINDS:
        packages = dict.fromkeys(
            pin.package for pins in pinned.values() for pin in pins if pin.kind == kind
        )
        progress(f"asking the registry of {kind}s")
        for package in packages:
            try:
                found[kind, package] = newest_release(kind, package, cache)
            except NotObtained as error:
                if _lacks_package(error):
                    failures.append(f"the registry has no {kind} {package} now: {error}")
                    continue
                failures.append(f"the newest {kind}s are not known: {error}")
                # The other packages are in the same registry, which would fail as slowly again.
                break
    standings = []
    for entry in entries:
        for pin in pinned[entry.name] or (None,):
            newest = None if pin is None else found.get((pin.kind, pin.package))
            standings.append(Standing(entry, pin, newest, packaged.get(entry.name)))
    return Survey(tuple(standings), tuple(failures))


def _newest_pins(entry: Allocator) -> Sequence[Source]:
    """The newest source of each package that has the allocator."""
    newest: dict[tuple[str, str], Source] = {}
    for source in sources.sources_of(entry.name):
        newest.setdefault((source.kind, source.package), source)
    return tuple(newest.values())


def newest_release(kind: str, package: str, cache: Path) -> Release:
    """The newest release of a package in its registry.

    Raises NotObtained if the registry cannot be read, and CairnError if the cache cannot be
    written.
    """
    try:
        folder = cache / ".sources"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    except OSError as error:
        raise CairnError(
            f"the registries cannot be asked: {error.strerror} ({cache}). "
            "Free some space, or set XDG_CACHE_HOME to another folder."
        ) from None
    try:
        return _newest_crate(package, fresh) if kind == "crate" else _newest_wheel(package, fresh)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        tool = "cargo" if kind == "crate" else "pip"
        raise NotObtained(
            f"{tool} gave no answer that can be read ({type(error).__name__}); "
            f"update {tool} and try again"
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _newest_crate(package: str, folder: Path) -> Release:
    manifest = (
        '[package]\nname = "cairn-question"\nversion = "0.0.0"\nedition = "2018"\n'
        f'[lib]\npath = "lib.rs"\n[workspace]\n[dependencies]\n{package} = "*"\n'
    )
    (folder / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(manifest, encoding="utf-8")
    download.run_cargo("generate-lockfile", folder, _UNREADABLE)
    lock = tomllib.loads((folder / "Cargo.lock").read_text(encoding="utf-8"))
    [found] = [item for item in lock["package"] if item["name"] == package]
    return Release(found["version"], found["checksum"])


def _newest_wheel(package: str, folder: Path) -> Release:
    report = folder / "report.json"
    # pip refuses to install into Debian's Python, even in a dry run. With --target it does not.
    target = ["--target", str(folder / "none")]
    plan = ["--dry-run", "--ignore-installed", *target, "--report", str(report)]
    download.run_pip(["install", *plan, package], folder, _UNREADABLE)
    [found] = json.loads(report.read_text(encoding="utf-8"))["install"]
    origin = found["download_info"]
    return Release(
        found["metadata"]["version"],
        origin["archive_info"]["hashes"]["sha256"],
        os.path.basename(unquote(urlsplit(origin["url"]).path)),
    )


def newest_source(entry: Allocator, cache: Path, progress: Progress) -> Source:
    """The newest release of the entry's packages, to be built with the recipe of the pinned one.

    Its checksum comes from the registry. Its version is provisional, since only the unpacked source
    names it. If the pinned release is the newest, its source is returned. Raises CairnError if the
    registry cannot be read.
    """
    pins = _newest_pins(entry)
    if not pins:
        raise CairnError(
            f"{entry.name} is in no package registry that cairn knows; build it from its source: "
            f"cairn allocators add {entry.name}@VERSION --from DIR --build COMMAND."
        )
    for pin in pins:
        progress(f"{entry.name}: asking the registry for the newest {pin.package}")
        try:
            newest = newest_release(pin.kind, pin.package, cache)
        except NotObtained as error:
            raise CairnError(f"the newest {entry.name} is not known: {error}.") from None
        if _is_newer(newest.number, pin.release):
            # The new release may have other dependencies than the pinned one. So none of its
            # dependencies is replaced by an empty package (`stand_ins` in sources.toml).
            return replace(
                pin,
                version=f"{pin.kind}-{newest.number.partition('+')[0]}",
                release=newest.number,
                sha256=newest.sha256,
                file=newest.file,
                stand_ins=(),
                pinned=False,
            )
    progress(f"{entry.name}: the pinned release is the newest")
    return pins[0]
