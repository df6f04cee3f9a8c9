"""Builds a library from the user's own checkout or archive, and registers it under a name.

The source is copied or unpacked into the cache and built there with the user's command, so that the
checkout stays as it is, and a later change of the checkout does not change the library.

    cache/<name>/.work-…/          the copy that is built; it is removed afterwards
    cache/<name>/build.log         the output of the last build, also of one that failed
    cache/<name>/added/            a library without a version, and its record
    cache/<name>/<version>+own/    a library with a version, and its record

The folder of a library is put in place by a rename, after the library has been checked. So a build
that fails or is interrupted registers nothing, and an earlier library stays.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from cairn.allocators import archives, discover
from cairn.allocators.catalog import Found, is_typable, load_catalog, refuse_name
from cairn.allocators.discover import file_sha256
from cairn.allocators.register import OWN, holding_lock, registered
from cairn.allocators.tool_runner import REPORT_EVERY_S, Failed, Progress, Task, run_tasks
from cairn.binary.library import (
    Library,
    inspect_library,
    refuse_library,
    refuse_needs_by_path,
    refuse_needs_in,
)
from cairn.errors import CairnError, ContenderFailed, UsageError

_NAMED_MOST = 4
"""The most libraries that an error message names."""


class OwnSource(Struct, frozen=True):
    """The user's request to build a library from its source."""

    name: str
    place: str
    """A folder, or an archive: tar with any compression, or zip."""
    build: str
    """The command of a shell, run in the top folder of the source."""
    library: str | None = None
    """The path of the library in the source after the build; None to search for it."""
    version: str | None = None

    @property
    def title(self) -> str:
        """The name and the version, as printed."""
        return f"{self.name} {self.version}" if self.version else self.name


def add_from_source(wanted: OwnSource, progress: Progress, cache: Path | None = None) -> Found:
    """Builds the library and registers it, in place of an earlier one of this name and version.

    Raises UsageError for a name, version or place that cannot be used, ContenderFailed if the built
    library cannot be preloaded here, and CairnError if the build fails or the cache cannot be
    written.
    """
    cache = cache or discover.cache_folder()
    _refuse(wanted, cache)
    home = cache / wanted.name
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with holding_lock(cache, wanted.name, progress):
            for leftover in home.glob(".[wng]*-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix=".work-", dir=home))
            try:
                source = _bring(wanted, work)
                log = home / "build.log"
                _build(wanted, source, log, progress)
                folder = _keep(wanted, _library(wanted, source, log), home)
            finally:
                shutil.rmtree(work, ignore_errors=True)
                if not any(home.iterdir()):
                    home.rmdir()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CairnError(
            f"{wanted.title} cannot be built: {reason} ({error.filename or cache}). "
            "Free some space, or set XDG_CACHE_HOME to another folder."
        ) from None
    found = discover.find_cached(discover.known_catalog(cache), cache)
    inside = str(folder) + os.sep
    copies = (item for item in found if item.path is not None and item.path.startswith(inside))
    return registered(copies, wanted.title, cache)


def _refuse(wanted: OwnSource, cache: Path) -> None:
    """Raises UsageError for a request that cannot be carried out."""
    refuse_name(wanted.name)
    entry = load_catalog().find(wanted.name)
    if entry is not None and (entry.name != wanted.name or entry.comes_along or entry.library_of):
        raise UsageError(
            f"'{wanted.name}' is an allocator of the catalog; "
            f"choose another name, such as my-{wanted.name}."
        )
    if entry is not None and wanted.version is None:
        raise UsageError(
            f"'{wanted.name}' is an allocator of the catalog; name the version that you build, "
            f"such as {wanted.name}@9.9, or choose another name, such as my-{wanted.name}."
        )
    if wanted.version is not None and not is_typable(wanted.version):
        raise UsageError(
            f"'{wanted.version}' cannot be a version; use letters, digits and '_', '.', '+' or '-'."
        )
    added = (cache / wanted.name / discover.ADDED / discover.RECORD).exists()
    if added and wanted.version is not None:
        raise UsageError(
            f"{wanted.name} is already there without a version; run "
            f"'cairn allocators remove {wanted.name}' first, or choose another name."
        )
    if wanted.version is None and any((cache / wanted.name).glob(f"*{OWN}/{discover.RECORD}")):
        raise UsageError(
            f"{wanted.name} has versions; name the version that you build, "
            f"such as {wanted.name}@9.9, or choose another name."
        )
    if not wanted.build.strip():
        raise UsageError("the build command is empty; write one, such as --build make.")
    if not os.path.exists(wanted.place):
        raise UsageError(
            f"{wanted.place}: no such file or folder; give the source's path to --from."
        )
    if not (os.path.isdir(wanted.place) or os.path.isfile(wanted.place)):
        raise UsageError(
            f"{wanted.place} is neither a folder nor a file; give the source's path to --from."
        )


def _bring(wanted: OwnSource, work: Path) -> Path:
    """Copies or unpacks the source below `work`, and returns its top folder."""
    target = work / "source"
    if os.path.isdir(wanted.place):
        # The cache may lie in the checkout, and must not be copied into itself.
        own = os.path.realpath(work.parent)

        def passed_over(folder: str, names: list[str]) -> list[str]:
            paths = {name: os.path.join(folder, name) for name in names}
            return [
                name
                for name, path in paths.items()
                if os.path.realpath(path) == own or _is_special(path)
            ]

        try:
            shutil.copytree(wanted.place, target, symlinks=True, ignore=passed_over)
        except OSError as error:
            # shutil.Error has a list of failures: the source, the target, and the reason as text.
            why = error.args[0][0][2] if isinstance(error, shutil.Error) else str(error)
            raise CairnError(
                f"{wanted.place} cannot be copied: {why}. {_remedy_of_a_copy(why)}"
            ) from None
        return target
    target.mkdir()
    archives.unpack(wanted.place, target)
    inside = list(target.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target


def _is_special(path: str) -> bool:
    """Whether the file is a pipe, a socket or a device, which no build needs and no copy can read.

    False if that is not known: the copy then says why.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _remedy_of_a_copy(why: str) -> str:
    """The next step after a copy failed. why: the text of the error, which has its number."""
    number = re.search(r"\[Errno (\d+)\]", why)
    code = int(number[1]) if number is not None else None
    if code in (errno.EACCES, errno.EPERM):
        return "Make its files readable."
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, or set XDG_CACHE_HOME to another folder."
    return "Give --from a copy that can be read."


def _build(wanted: OwnSource, source: Path, log: Path, progress: Progress) -> None:
    """Runs the build command with the user's environment. Raises CairnError if it fails."""
    log.write_text(f"{wanted.title} from {os.path.abspath(wanted.place)}\n", encoding="utf-8")
    started = reported = time.monotonic()
    progress(f"{wanted.title}: building with '{wanted.build}'")

    def report(_done: int) -> None:
        nonlocal reported
        now = time.monotonic()
        if now - reported >= REPORT_EVERY_S:
            reported = now
            progress(f"{wanted.title}: building, {now - started:.0f} s")

    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    try:
        run_tasks([Task(("sh", "-c", wanted.build), source)], 1, environment, log, report)
    except Failed as failure:
        raise CairnError(
            f"{wanted.title} cannot be built with '{wanted.build}': {failure.reason}. "
            f"The full output is in {log}."
        ) from None
    progress(f"{wanted.title}: built in {time.monotonic() - started:.0f} s")


def _library(wanted: OwnSource, source: Path, log: Path) -> Path:
    """The library that the build made. Raises UsageError if there is none, or more than one."""
    if wanted.library is not None:
        given = source / wanted.library
        if not given.is_file():
            raise UsageError(
                f"the build made no {wanted.library}; give the library's path in the source to "
                f"--library. The output of the build is in {log}."
            )
        return given
    root = source.resolve()
    found = {path.resolve() for path in sorted(source.rglob("*.so*")) if path.is_file()}
    # A link that leaves the source, such as one to the C library, was not built.
    named = {path for path in found if path.is_relative_to(root)}
    made = sorted(path for path in named if discover.is_usable_here(path))
    if len(made) == 1:
        return made[0]
    if not made:
        raise UsageError(
            f"the build of {wanted.title} made no library that defines malloc; let --build make "
            f"the library that is preloaded. The output of the build is in {log}."
        )
    names = ", ".join(str(path.relative_to(root)) for path in made[:_NAMED_MOST])
    more = ", …" if len(made) > _NAMED_MOST else ""
    raise UsageError(
        f"the build made {len(made)} libraries that define malloc ({names}{more}); "
        "choose one with --library."
    )


def _copy_needs(copied: Library, beside: Path, home: Path) -> None:
    """Copies the libraries that a copied library needs, and those that these need.

    beside: the folder in which they lie. Others are those of the system. Raises ContenderFailed if
    one is needed by a path that is not valid after the build.
    """
    fresh, waiting = Path(copied.path).parent, [copied]
    while waiting:
        library = waiting.pop()
        refuse_needs_by_path(library, temporary=str(home))
        for need in library.needs:
            if "/" not in need and (beside / need).is_file() and not (fresh / need).exists():
                shutil.copyfile(beside / need, fresh / need)
                waiting.append(inspect_library(str(fresh / need)))


def _keep(wanted: OwnSource, built: Path, home: Path) -> Path:
    """Copies the library and its record to a new folder, and renames that to the final one.

    Libraries that it needs and that lie beside it are copied, too. Raises ContenderFailed if the
    library cannot be preloaded here.
    """
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=home))
    try:
        library = fresh / built.name
        shutil.copyfile(built, library)
        library.chmod(0o755)
        try:
            facts = inspect_library(str(library))
            _copy_needs(facts, built.parent, home)
            refuse_needs_in(facts, temporary=str(home))
            refuse_library(facts, library_path=discover.companion_folders(facts, facts.needs))
        except ContenderFailed as error:
            reason = str(error).replace(f"{fresh}{os.sep}", "")
            raise ContenderFailed(f"the library that was built cannot be used: {reason}") from None
        place = os.path.realpath(wanted.place)
        record = {
            "allocator": wanted.name,
            "library": library.name,
            "built": wanted.build,
            "origin": f"{place}, built with '{wanted.build}'",
            "library_sha256": file_sha256(library),
            "build_id": facts.build_id or "",
        }
        if wanted.version is not None:
            record["version"] = wanted.version
        if os.path.isfile(place):
            record["sha256"] = file_sha256(place)
        discover.write_record(fresh, record)
        final = home / (f"{wanted.version}{OWN}" if wanted.version else discover.ADDED)
        discover.put_in_place(fresh, final)
        return final
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
