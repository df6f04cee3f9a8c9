"""Brings an allocator into the user's cache: from pinned sources, or from the distribution.

    cache/.locks/<allocator>              held while the allocator is fetched or built
    cache/<allocator>/.work-…/            a build in progress; the next build removes a leftover
    cache/<allocator>/.objects-<id>/      object files, kept when a build is interrupted
    cache/<allocator>/build.log           the output of the tools of the last build
    cache/<allocator>/<version>+source/   a complete library and its record, put here by a rename

Nothing outside the cache folder is written, except the caches of cargo and pip.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from msgspec.structs import replace

from cairn.allocators import debian, discover, download, outdated, recipes, sources
from cairn.allocators.catalog import Allocator, Catalog, Found, is_version, load_catalog
from cairn.allocators.discover import file_sha256
from cairn.allocators.download import NotObtained
from cairn.allocators.recipes import DRAFT, OBJECTS, Command, Plan, Workshop
from cairn.allocators.sources import Source
from cairn.allocators.tool_runner import (
    REPORT_EVERY_S,
    Busy,
    Failed,
    Progress,
    Task,
    build_environment,
    find_tool,
    locked,
    packages_of,
    run_tasks,
)
from cairn.errors import CairnError

ORIGINS = ("source", "distribution")

LOCK_TIMEOUT_S = 3600.0
"""The time to wait for the lock, whose holder may be building.

The slowest build takes a quarter of an hour on one slow processor.
"""


def obtain(
    entry: Allocator,
    version: str | None = None,
    origin: str | None = None,
    *,
    cache: Path | None = None,
    newest: bool = False,
    progress: Progress = debian.silent,
    apt: debian.Apt | None = None,
) -> Found:
    """Fetches or builds the allocator, and returns it as it lies in the cache.

    version: the wanted version or its beginning, such as 5.3; None accepts any.
    origin: "source", "distribution" or None. With None the pinned source is used if the tools for
    its build are installed, else the distribution's package.
    newest: take the newest release of the registry in place of the pinned one.

    A copy in the cache is not fetched or built again. An unpacked package stays even if the
    distribution has a newer one, so that results stay comparable until the user removes it. Raises
    CairnError, which says "not obtainable here" and why.
    """
    cache = cache or discover.cache_folder()
    base = load_catalog().find(entry.library_of) if entry.library_of else entry
    assert base is not None
    if base.is_system:
        raise CairnError(
            "the system allocator is part of every system and is never fetched; "
            "name another allocator."
        )
    if base.ours:
        raise CairnError(
            "cairn's own allocator comes with cairn and is never fetched; "
            "'cairn allocators' shows it."
        )
    pinned = [
        source for source in sources.sources_of(base.name) if is_version(source.version, version)
    ]
    source = pinned[0] if pinned and origin != "distribution" else None
    if newest:
        source, origin = outdated.newest_source(base, cache, progress), "source"
    if source is not None and (ready := _ready(base, source, cache)) is not None:
        return replace(ready, allocator=entry)
    if source is None:
        _refuse_origin(base, version, origin)
    elif reason := _reason_against(source):
        if origin == "source" or not base.packages:
            raise CairnError(f"{base.name} is not obtainable here: {reason}.")
        progress(f"{base.name}: {reason}; taking the distribution's package instead")
        source = None
    if source is None and (here := _unpacked(base, version, cache)) is not None:
        return replace(here, allocator=entry)
    try:
        (cache / ".locks").mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(
            cache / ".locks" / base.name, progress, f"another get of {base.name}", LOCK_TIMEOUT_S
        ):
            if source is None:
                found = _from_distribution(base, version, cache, progress, apt)
            else:
                found = _ready(base, source, cache) or _build(base, source, cache, progress)
    except Busy:
        raise CairnError(
            f"{base.name}: another get has used its folder for an hour; end that one first."
        ) from None
    except OSError as error:
        raise CairnError(_os_failure(base, error, cache)) from None
    return replace(found, allocator=entry)


def _from_distribution(
    entry: Allocator, version: str | None, cache: Path, progress: Progress, apt: debian.Apt | None
) -> Found:
    try:
        return debian.unpack_from_distribution(entry, cache, progress, apt=apt, version=version)
    except CairnError as error:
        known = ", ".join(source.version for source in sources.sources_of(entry.name))
        if not known or not version:
            raise
        raise CairnError(f"{str(error).rstrip('.')}. The pinned source is {known}.") from None


def _refuse_origin(entry: Allocator, version: str | None, origin: str | None) -> None:
    """Raises CairnError if the allocator has no fitting source and the distribution cannot be used.

    The distribution cannot be used if the entry names no package, or if the user asked for the
    source.
    """
    if entry.packages and origin != "source":
        return
    wanted = f"{entry.name} {version}" if version else entry.name
    known = " and ".join(
        f"{source.version} ({source.origin})" for source in sources.sources_of(entry.name)
    )
    what = (
        f"the pinned source is {known}"
        if known
        else "no package registry that cairn knows holds its source"
    )
    other = "no package of a distribution holds it"
    if entry.packages:
        other = "--from source forbids the distribution's package; leave out that option"
    raise CairnError(f"{wanted} is not obtainable here: {what}, and {other}.")


def _reason_against(source: Source) -> str | None:
    """Why this source cannot be used on this machine; None when it can."""
    if not source.works_here:
        return (
            f"{source.origin} is for {' and '.join(source.machines)}, "
            f"and this machine is {os.uname().machine}"
        )
    fetcher = "cargo" if source.kind == "crate" else "pip"
    missing = [] if download.downloader(source) else [fetcher]
    missing += [tool for tool in source.tools if find_tool(tool) is None]
    if not missing:
        return None
    names = " and ".join(
        "a C++ compiler" if m == "c++" else "a C compiler" if m == "cc" else m for m in missing
    )
    return f"{source.origin} needs {names} (Debian: apt-get install {packages_of(missing)})"


def _ready(entry: Allocator, source: Source, cache: Path) -> Found | None:
    """The usable library built from this source by this recipe; None if there is none."""
    built = [
        str(record.parent) + os.sep
        for record in sorted((cache / entry.name).glob(f"*/{discover.RECORD}"))
        if discover.read_record(str(record)).get("identity") == source.identity
    ]
    copies = discover.find_cached(Catalog((entry,)), cache) if built else ()
    return next(
        (
            copy
            for copy in copies
            if copy.path and copy.path.startswith(tuple(built)) and copy.problem is None
        ),
        None,
    )


def _unpacked(entry: Allocator, version: str | None, cache: Path) -> Found | None:
    """A usable library from a package that was unpacked before; None if there is none."""
    for copy in discover.find_cached(Catalog((entry,)), cache):
        if (
            copy.problem is None
            and is_version(copy.version, version)
            and (copy.origin or "").endswith(debian.UNPACKED)
        ):
            return copy
    return None


def _os_failure(entry: Allocator, error: OSError, cache: Path) -> str:
    reason = error.strerror or type(error).__name__
    where = error.filename or cache
    return (
        f"{entry.name} is not obtainable here: {reason} ({where}). "
        "Free some space, or set XDG_CACHE_HOME to another folder."
    )


# --- building ---


def _build(entry: Allocator, source: Source, cache: Path, progress: Progress) -> Found:
    """Downloads, unpacks and builds the source; the caller holds the lock. Raises CairnError."""
    started = time.monotonic()

    def say(text: str) -> None:
        progress(f"{entry.name} {source.version}: {text}")

    home = cache / entry.name
    home.mkdir(exist_ok=True, mode=0o700)
    # Any .work-…, .new-… and .gone-… is a leftover, since only the holder of the lock makes them.
    for leftover in home.glob(".[wng]*-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=".work-", dir=home))
    try:
        archive = download.obtain_archive(source, cache, say)
        unpacked = download.unpack(source, archive, work)
        objects = home / f".objects-{source.identity}"
        for outdated in home.glob(".objects-*"):
            if outdated != objects:
                shutil.rmtree(outdated, ignore_errors=True)
        objects.mkdir(exist_ok=True, mode=0o700)
        (unpacked / OBJECTS).symlink_to(objects)
        tools = {tool: path for tool in source.tools if (path := find_tool(tool)) is not None}
        shop = Workshop(unpacked, tools, source.release, os.cpu_count() or 1)
        if not source.pinned:
            source = replace(source, version=_real_version(source, shop))
        plan = recipes.RECIPES[source.recipe](shop)
        log = home / "build.log"
        log.write_text(f"{source.origin} {source.sha256}\n", encoding="utf-8")
        for stage in plan.stages:
            _run_stage(stage, unpacked, log, say)
        final = _keep(entry, source, plan, unpacked, home, tools)
        shutil.rmtree(objects, ignore_errors=True)
    except NotObtained as refusal:
        raise CairnError(_refusal(entry, source, str(refusal))) from None
    except Failed as failure:
        raise CairnError(_failure(entry, source, failure, home / "build.log", cache)) from None
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        UnicodeDecodeError,
        StopIteration,
        EOFError,
    ) as error:
        reason = f"{source.archive} cannot be unpacked ({error})"
        raise CairnError(_refusal(entry, source, reason)) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"built in {time.monotonic() - started:.0f} s" if plan.stages else "unpacked")
    found = _ready(entry, source, cache)
    if found is None:
        problem = next(
            (c.problem for c in discover.find_cached(Catalog((entry,)), cache) if c.problem), ""
        )
        raise CairnError(
            f"{entry.name} was built into {final} but cannot be used: {problem or discover.UNREAD}"
        )
    return found


def _real_version(source: Source, shop: Workshop) -> str:
    """The version of a release that is not pinned.

    It differs from the version of each pinned release, so that both can lie in the cache.
    """
    version = recipes.version_of(source.recipe, shop)
    if version is None:
        return source.version
    pinned = (other.version for other in sources.sources_of(source.allocator))
    return f"{version}+{source.version}" if version in pinned else version


def _refusal(entry: Allocator, source: Source, reason: str) -> str:
    other = ", or use the distribution's package with --from distribution" if entry.packages else ""
    return f"{entry.name} {source.version} is not obtainable here: {reason}{other}."


def _failure(entry: Allocator, source: Source, failure: Failed, log: Path, cache: Path) -> str:
    """The message for a failed build. It quotes the reason, and names the log."""
    if "No space left on device" in failure.output:
        return (
            f"{entry.name} cannot be built: no space left in {cache}. "
            "Free some space, or set XDG_CACHE_HOME to another folder."
        )
    return (
        f"{entry.name} {source.version} cannot be built here: {failure.reason}. "
        f"The full output is in {log}."
    )


def _run_stage(stage: recipes.Stage, unpacked: Path, log: Path, say: Progress) -> None:
    """Runs those commands of a stage whose output files do not exist yet. Raises Failed."""
    tasks = [task for command in stage.commands if (task := _task(command, unpacked)) is not None]
    total = len(stage.commands)
    kept = total - len(tasks)
    started = time.monotonic()
    reported = started
    say(
        stage.says
        if total == 1
        else f"{stage.says} {total} files"
        + (f", {kept} of them finished by an earlier build" if kept else "")
    )

    def report(done: int) -> None:
        nonlocal reported
        now = time.monotonic()
        if now - reported < REPORT_EVERY_S:
            return
        reported = now
        count = f" {kept + done} of {total}" if total > 1 else ""
        say(f"{stage.says}{count}, {now - started:.0f} s")

    run_tasks(tasks, os.cpu_count() or 1, build_environment(), log, report)


def _task(command: Command, unpacked: Path) -> Task | None:
    """The task of a command; None if an earlier, interrupted build has already made its file."""
    folder = unpacked / command.folder
    if command.makes is None:
        return Task(command.argv, folder)
    makes = folder / command.makes
    if makes.exists():
        return None
    # Our process id makes the name unique: a compiler of a killed build may still write its draft.
    draft = makes.with_name(f"{makes.name}.{os.getpid()}")
    argv = tuple(os.path.relpath(draft, folder) if word == DRAFT else word for word in command.argv)
    return Task(argv, folder, draft, makes)


def _keep(
    entry: Allocator, source: Source, plan: Plan, unpacked: Path, home: Path, tools: dict[str, str]
) -> Path:
    """Copies the library and its record to a new folder, and renames that to the final one."""
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=home))
    try:
        library = fresh / plan.name
        shutil.copyfile(unpacked / plan.library, library)
        library.chmod(0o755)
        for name in plan.beside:
            shutil.copyfile(unpacked / name, fresh / os.path.basename(name))
        record = {
            "allocator": entry.name,
            "library": plan.name,
            "version": source.version,
            "origin": source.origin,
            "sha256": source.sha256,
            "library_sha256": file_sha256(library),
            "identity": source.identity,
            "compiler": _compiler(tools),
        }
        if entry.licence is not None:
            record["licence"] = entry.licence
        discover.write_record(fresh, record)
        final = home / f"{source.version}+source"
        discover.put_in_place(fresh, final)
        return final
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _compiler(tools: dict[str, str]) -> str:
    """The compiler's version line, for the record; "none" if the recipe needs no compiler."""
    path = tools.get("cc") or tools.get("c++")
    if path is None:
        return "none"
    listing = discover.ask([path, "--version"]) or ""
    return listing.partition("\n")[0]


def obtainable(entry: Allocator) -> bool:
    """Whether obtain() can fetch or build the allocator on some machine, maybe not on this one."""
    return bool(entry.packages or sources.sources_of(entry.library_of or entry.name))
