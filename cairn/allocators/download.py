"""Brings the archive of a pinned source through the user's own cargo or pip, and checks it.

Cargo and pip know the user's registries, mirrors, proxies and credentials; nothing else is asked. Cargo serves as a
downloader only: it is shown a project that depends on the one crate, whose own dependencies are replaced by empty
packages, so that nothing but the wanted file is fetched and nothing of it is run.

    cache/.sources/<archive>        complete and checked: it came here by one rename
    cache/.sources/.new-…/          a download at work; the next one removes what an interrupted one left
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from cairn.allocators.discover import file_sha256
from cairn.allocators.sources import Source
from cairn.allocators.tools import Progress, Stalled, find_tool, packages_of, run_tool

STALL_S = 120.0
"""Cargo gives up by itself after 30 s of silence, three times over; pip after 15 s, five times over."""

_LEFT_OVER_S = 3600.0
_UNPACKED_MAX_BYTES = 512 * 1024 * 1024

_PROGRESS_BAR = {
    "CARGO_TERM_PROGRESS_WHEN": "always",
    "CARGO_TERM_PROGRESS_WIDTH": "80",
    "CARGO_TERM_COLOR": "never",
}
"""Without a bar cargo is silent while it downloads, and a slow network looks like one that hangs."""


class NotObtained(Exception):
    """It could not be fetched; the text is the reason and the next step, without the full stop."""


def downloader(source: Source) -> str | None:
    """The tool that fetches this kind of source; None when it is not here."""
    if source.kind == "crate":
        return find_tool("cargo")
    pip = _pip()
    return pip[0] if pip else None


def obtain_archive(source: Source, cache: Path, progress: Progress) -> Path:
    """The checked archive. One that is already there, in our folder or in cargo's, is not downloaded again."""
    folder = cache / ".sources"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    archive = folder / source.archive
    if _is_pinned(archive, source):
        return archive
    with contextlib.suppress(FileNotFoundError):
        archive.unlink()
    if source.kind == "crate":
        for copy in _in_cargos_cache(source):
            if _is_pinned(copy, source):
                return _take(copy, archive)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        _remove_left_over(folder)
        progress(f"downloading {source.origin}")
        fetched = _by_cargo(source, fresh) if source.kind == "crate" else _by_pip(source, fresh)
        return _take(fetched, archive)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _is_pinned(path: Path, source: Source) -> bool:
    try:
        return file_sha256(path) == source.sha256
    except FileNotFoundError:
        return False


def _take(fetched: Path, archive: Path) -> Path:
    """A copy, whole or not at all: what cargo keeps may be removed by cargo at any time."""
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=archive.parent)
    os.close(descriptor)
    try:
        shutil.copyfile(fetched, name)
        os.replace(name, archive)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    return archive


def _remove_left_over(folder: Path) -> None:
    """Of the last hour nothing is touched: another allocator's download may be at work there."""
    for path in folder.glob(".new-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime < _LEFT_OVER_S:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _refuse(path: Path, source: Source) -> None:
    """Removes and refuses a file that is not the pinned one."""
    if (found := file_sha256(path)) == source.sha256:
        return
    path.unlink()
    raise NotObtained(
        f"the {source.archive} that came has the sha256 {found[:12]}… and not the pinned {source.sha256[:12]}…, "
        "and was removed; ask whoever runs your registry or mirror"
    )


def unpack(source: Source, archive: Path, work: Path) -> Path:
    """The source's top folder. The checksum vouches for what is inside; the size limit is for a pin gone wrong."""
    folder = work / "source"
    folder.mkdir()
    if source.kind == "wheel":
        with zipfile.ZipFile(archive) as wheel:
            if sum(item.file_size for item in wheel.infolist()) > _UNPACKED_MAX_BYTES:
                raise zipfile.BadZipFile("it is too large")
            wheel.extractall(folder)
        return folder
    with tarfile.open(archive, "r:gz") as crate:
        members = crate.getmembers()
        top = f"{source.package}-{source.release}"
        for member in members:
            parts = member.name.split("/")
            if parts[0] != top or ".." in parts or not (member.isfile() or member.isdir()):
                raise tarfile.TarError(f"it holds {member.name}")
        if sum(member.size for member in members) > _UNPACKED_MAX_BYTES:
            raise tarfile.TarError("it is too large")
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer; 3.14 takes it by default
            crate.extraction_filter = tarfile.data_filter
        crate.extractall(folder, members)
    return folder / top


# --- cargo ---


def _cargos_home() -> Path:
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")


def _in_cargos_cache(source: Source) -> list[Path]:
    """Where cargo keeps what it downloaded: one folder per registry or mirror."""
    return sorted((_cargos_home() / "registry" / "cache").glob(f"*/{source.archive}"))


def _by_cargo(source: Source, fresh: Path) -> Path:
    cargo = find_tool("cargo")
    if cargo is None:
        raise NotObtained(f"cargo is missing (Debian: apt-get install {packages_of(['cargo'])})")
    for damaged in _in_cargos_cache(source):
        damaged.unlink()  # not the pinned one, or it had been taken; cargo would not look at it again
    _write_project(source, fresh)
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("LD_PRELOAD", "CARGO_TARGET_DIR")
    }
    try:
        status, output = run_tool(
            [cargo, "fetch"], fresh, STALL_S, {**environment, **_PROGRESS_BAR}
        )
    except Stalled:
        raise NotObtained(
            f"cargo made no progress for {STALL_S:.0f} s; check the network and try again"
        ) from None
    if status != 0:
        raise NotObtained(
            f"cargo could not fetch it ({_complaint(output)}); check the network and cargo's registries"
        )
    for copy in _in_cargos_cache(source):
        _refuse(copy, source)
        return copy
    raise NotObtained(
        f"cargo keeps no {source.archive} in {_cargos_home()}/registry/cache; its registry must be a remote one"
    )


def _write_project(source: Source, folder: Path) -> None:
    """A project that depends on the crate alone. `[workspace]` keeps cargo from seeking one in the folders above."""
    version = source.release.partition("+")[0]
    lines = [
        "[package]", 'name = "cairn-download"', 'version = "0.0.0"', 'edition = "2018"', "[lib]", 'path = "lib.rs"',
        "[workspace]", "[dependencies]", f'{source.package} = "={version}"', "[patch.crates-io]",
    ]  # fmt: skip
    (folder / "lib.rs").touch()
    for stand_in in source.stand_ins:
        name, number, *features = stand_in.split()
        home = folder / "stand-ins" / name
        home.mkdir(parents=True)
        manifest = [
            "[package]",
            f'name = "{name}"',
            f'version = "{number}"',
            'edition = "2018"',
            "[lib]",
        ]
        manifest += [
            'path = "../../lib.rs"',
            "[features]",
            *(f"{feature} = []" for feature in features),
        ]
        (home / "Cargo.toml").write_text("\n".join(manifest) + "\n", encoding="utf-8")
        lines.append(f'{name} = {{ path = "stand-ins/{name}" }}')
    (folder / "Cargo.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _complaint(output: str) -> str:
    """The tool's first error with its first cause, in one line."""
    lines = [line.strip() for line in output.replace("\r", "\n").splitlines()]
    for number, line in enumerate(lines):
        if line.lower().startswith("error"):
            told = line.partition(":")[2].strip() or line
            rest = [following for following in lines[number + 1 : number + 6] if following]
            cause = next((following for following in rest if not following.endswith(":")), "")
            return " ".join(f"{told} {cause}".split())[:300].rstrip(".")
    return next((line for line in reversed(lines) if line), "it said nothing")[:300]


# --- pip ---


def _pip() -> list[str] | None:
    """Our own Python's pip; installations without one leave that of the PATH."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    return [found] if found else None


def _by_pip(source: Source, fresh: Path) -> Path:
    """Pip checks the checksum itself and takes no other file; TMPDIR lets its progress be seen."""
    pip = _pip()
    if pip is None:
        raise NotObtained(f"pip is missing (Debian: apt-get install {packages_of(['pip'])})")
    requirement = f"{source.package}=={source.release} --hash=sha256:{source.sha256}\n"
    (fresh / "requirements.txt").write_text(requirement, encoding="utf-8")
    options = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--no-input",
        "--disable-pip-version-check",
    ]
    command = [
        *pip,
        "download",
        *options,
        "--progress-bar",
        "off",
        "-d",
        str(fresh / "out"),
        "-r",
        "requirements.txt",
    ]
    environment = {**os.environ, "TMPDIR": str(fresh)}
    environment.pop("LD_PRELOAD", None)
    try:
        status, output = run_tool(command, fresh, STALL_S, environment)
    except Stalled:
        raise NotObtained(
            f"pip made no progress for {STALL_S:.0f} s; check the network and try again"
        ) from None
    if status != 0:
        raise NotObtained(
            f"pip could not fetch it ({_complaint(output)}); check the network and pip's index"
        )
    fetched = fresh / "out" / source.archive
    if not fetched.is_file():
        raise NotObtained(f"pip brought no {source.archive}; check pip's index")
    _refuse(fetched, source)
    return fetched
