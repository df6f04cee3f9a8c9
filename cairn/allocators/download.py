"""Downloads the archive of a pinned source with the user's own cargo or pip, and checks it.

Cargo and pip know the user's registries, mirrors, proxies and credentials, so cairn needs no
settings for them. Cargo serves as a downloader only. Cairn writes a project that depends on the
wanted crate, and replaces the dependencies of that crate by empty packages. So cargo fetches the
wanted file alone, and runs no code of it.

    cache/.sources/<archive>        a complete and checked archive, put here by a rename
    cache/.sources/.new-…/          a download in progress; a later download removes a leftover
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
from collections.abc import Sequence
from pathlib import Path

from cairn.allocators.discover import file_sha256
from cairn.allocators.sources import Source
from cairn.allocators.tool_runner import Progress, Stalled, find_tool, packages_of, run_tool

STALL_S = 120.0
"""The time without progress after which a download is ended.

Cargo itself gives up after three tries with 30 s of silence each; pip after five tries with 15 s.
"""

_LEFT_OVER_S = 3600.0
_UNPACKED_MAX_BYTES = 512 * 1024 * 1024

_PROGRESS_BAR = {
    "CARGO_TERM_PROGRESS_WHEN": "always",
    "CARGO_TERM_PROGRESS_WIDTH": "80",
    "CARGO_TERM_COLOR": "never",
}
"""Variables that make cargo print a progress bar. Without the bar, cargo prints nothing during a
download, and a slow download looks stalled."""


class NotObtained(Exception):
    """The archive could not be fetched.

    The text is the reason and the next step, without a full stop at the end.
    """


def downloader(source: Source) -> str | None:
    """The path of the tool that fetches this kind of source; None if it is not installed."""
    if source.kind == "crate":
        return find_tool("cargo")
    pip = _pip()
    return pip[0] if pip else None


def obtain_archive(source: Source, cache: Path, progress: Progress) -> Path:
    """The path of the checked archive, downloaded if it is neither in our cache nor in cargo's.

    Raises NotObtained.
    """
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
                return _copy_to(copy, archive)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        _remove_leftovers(folder)
        progress(f"downloading {source.origin}")
        fetched = _by_cargo(source, fresh) if source.kind == "crate" else _by_pip(source, fresh)
        return _copy_to(fetched, archive)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _is_pinned(path: Path, source: Source) -> bool:
    try:
        return file_sha256(path) == source.sha256
    except FileNotFoundError:
        return False


def _copy_to(fetched: Path, archive: Path) -> Path:
    """Copies `fetched`, which cargo may delete at any time, and renames the copy to `archive`."""
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=archive.parent)
    os.close(descriptor)
    try:
        shutil.copyfile(fetched, name)
        os.replace(name, archive)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    return archive


def _remove_leftovers(folder: Path) -> None:
    """Removes leftovers that are older than an hour. Newer ones may be downloads in progress."""
    for path in folder.glob(".new-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime < _LEFT_OVER_S:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _refuse_unpinned(path: Path, source: Source) -> None:
    """Raises NotObtained, and deletes the file, if its checksum is not the pinned one."""
    if (found := file_sha256(path)) == source.sha256:
        return
    path.unlink()
    raise NotObtained(
        f"the downloaded {source.archive} has the sha256 {found[:12]}… instead of the pinned "
        f"{source.sha256[:12]}… and was deleted; ask the operator of your registry or mirror"
    )


def unpack(source: Source, archive: Path, work: Path) -> Path:
    """Unpacks the archive below `work` and returns the top folder of the source.

    The checksum was compared before, so the contents are those that were pinned. The size limit
    catches a mistake in `sources.toml`.
    Raises tarfile.TarError or zipfile.BadZipFile.
    """
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
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4; the default since 3.14
            crate.extraction_filter = tarfile.data_filter
        crate.extractall(folder, members)
    return folder / top


# --- cargo ---


def _cargos_home() -> Path:
    try:
        return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    except RuntimeError:  # $HOME is not set, and the user database has no entry for this user
        raise NotObtained(
            "there is no home folder for cargo; name a folder with $CARGO_HOME"
        ) from None


def _in_cargos_cache(source: Source) -> list[Path]:
    """The copies of the archive in cargo's cache, which has one folder per registry or mirror."""
    return sorted((_cargos_home() / "registry" / "cache").glob(f"*/{source.archive}"))


def run_cargo(command: str, project: Path, failed: str = "could not fetch it") -> None:
    """Runs a command of cargo in the folder of a project.

    Raises NotObtained if cargo fails, with the verb phrase `failed`.
    """
    cargo = find_tool("cargo")
    if cargo is None:
        raise NotObtained(f"cargo is missing (Debian: apt-get install {packages_of(['cargo'])})")
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("LD_PRELOAD", "CARGO_TARGET_DIR")
    }
    try:
        status, output = run_tool(
            [cargo, command], project, STALL_S, {**environment, **_PROGRESS_BAR}
        )
    except Stalled:
        raise NotObtained(
            f"cargo made no progress for {STALL_S:.0f} s; check the network and try again"
        ) from None
    if status != 0:
        raise NotObtained(
            f"cargo {failed} ({_complaint(output)}); check the network and cargo's registries"
        )


def _by_cargo(source: Source, fresh: Path) -> Path:
    for damaged in _in_cargos_cache(source):
        damaged.unlink()  # its checksum is wrong, and cargo would not check it again
    _write_project(source, fresh)
    run_cargo("fetch", fresh)
    for copy in _in_cargos_cache(source):
        _refuse_unpinned(copy, source)
        return copy
    raise NotObtained(
        f"cargo stored no {source.archive} in {_cargos_home()}/registry/cache; "
        "configure cargo with a remote registry"
    )


def _write_project(source: Source, folder: Path) -> None:
    """Writes a project that depends on the crate alone.

    `[workspace]` keeps cargo from searching the parent folders for one.
    """
    version = source.release.partition("+")[0]
    lines = [
        "[package]", 'name = "cairn-download"', 'version = "0.0.0"', 'edition = "2018"',
        "[lib]", 'path = "lib.rs"',
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
    """The tool's first error with its first cause, on one line."""
    lines = [line.strip() for line in output.replace("\r", "\n").splitlines()]
    for number, line in enumerate(lines):
        if line.lower().startswith("error"):
            reason = line.partition(":")[2].strip() or line
            rest = [following for following in lines[number + 1 : number + 6] if following]
            cause = next((following for following in rest if not following.endswith(":")), "")
            return " ".join(f"{reason} {cause}".split())[:300].rstrip(".")
    return next((line for line in reversed(lines) if line), "it printed nothing")[:300]


# --- pip ---


def _pip() -> list[str] | None:
    """The command of pip: that of our own Python, else the one on PATH; None if there is none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    return [found] if found else None


def run_pip(arguments: Sequence[str], folder: Path, failed: str = "could not fetch it") -> None:
    """Runs a command of pip for wheels, in `folder`.

    Raises NotObtained if pip fails, with the verb phrase `failed`. TMPDIR is in the watched folder,
    so that run_tool() sees the growing file.
    """
    pip = _pip()
    if pip is None:
        raise NotObtained(f"pip is missing (Debian: apt-get install {packages_of(['pip'])})")
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    command = [*pip, arguments[0], *options, "--progress-bar", "off", *arguments[1:]]
    environment = {**os.environ, "TMPDIR": str(folder)}
    environment.pop("LD_PRELOAD", None)
    try:
        status, output = run_tool(command, folder, STALL_S, environment)
    except Stalled:
        raise NotObtained(
            f"pip made no progress for {STALL_S:.0f} s; check the network and try again"
        ) from None
    if status != 0:
        raise NotObtained(f"pip {failed} ({_complaint(output)}); check the network and pip's index")


def _by_pip(source: Source, fresh: Path) -> Path:
    """Downloads the archive with pip, which itself compares the checksum. Raises NotObtained."""
    requirement = f"{source.package}=={source.release} --hash=sha256:{source.sha256}\n"
    (fresh / "requirements.txt").write_text(requirement, encoding="utf-8")
    run_pip(
        ["download", "--require-hashes", "-d", str(fresh / "out"), "-r", "requirements.txt"], fresh
    )
    fetched = fresh / "out" / source.archive
    if not fetched.is_file():
        raise NotObtained(f"pip downloaded no {source.archive}; check pip's index")
    _refuse_unpinned(fetched, source)
    return fetched
