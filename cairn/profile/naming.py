"""Names all frames of a profile, so that the names can be kept beside it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairn.binary.build_ids import FilesByBuildId
from cairn.profile.call_stacks import FIRST_OBJECT, StacksFile
from cairn.profile.frame_names import FrameNames
from cairn.profile.kept_names import KeptNames, NamedFile


class Naming(Struct, frozen=True):
    """The names that were found for one program or library, and their number."""

    file: NamedFile
    """The names. Without a build ID in the profile, `file.build_id` is "" and nothing is named."""
    addresses: int
    """The number of addresses in the file that the call stacks of the profile contain."""
    functions: int
    """The number of these addresses whose function is known."""
    lines: int
    """The number of these addresses whose source line is known."""
    is_changed: bool = False
    """Whether another file is at the path now, and none with the build ID is known."""


def named(
    stacks: Sequence[StacksFile], files: FilesByBuildId, before: KeptNames
) -> tuple[tuple[Naming, ...], bool]:
    """Names the frames of each program and library, the one with the most addresses first.

    before: the names that were kept earlier. The earlier name of an address stays if no name is
        found now, or if the earlier name has a source line and the new one has none.

    Also returns whether source lines are missing because a Python package is not installed.
    """
    names = FrameNames(files)
    wanted: dict[tuple[str, str], set[int]] = {}
    paths: dict[tuple[str, str], str] = {}
    for stack in stacks:
        for node in stack.nodes:
            place = int(node["object"]) - FIRST_OBJECT
            if place >= 0:
                path, build_id = stack.paths[place] or stack.program, stack.build_ids[place]
                key = build_id, "" if build_id else path
                wanted.setdefault(key, set()).add(int(node["place"]))
                paths.setdefault(key, path)
    found = [
        _named(names, files, build_id, paths[build_id, path], addresses, before)
        for (build_id, path), addresses in wanted.items()
    ]
    found.sort(key=lambda one: (-one.addresses, one.file.path))
    return tuple(found), names.lines_missing


def _named(
    names: FrameNames,
    files: FilesByBuildId,
    build_id: str,
    path: str,
    addresses: set[int],
    before: KeptNames,
) -> Naming:
    known = before.files.get(build_id) if build_id else None
    frames = dict(known.frames) if known is not None else {}
    for address in addresses if build_id else ():
        now = tuple(
            (one.function, one.file, one.line) for one in names.found(path, address, build_id)
        )
        kept = frames.get(f"{address:x}", ())
        if now and (now[-1][2] or not kept or not kept[-1][2]):
            frames[f"{address:x}"] = now
    sources = tuple(files.candidates(path, build_id)) if build_id else ()
    if known is not None:
        sources = sources or known.found
    file = NamedFile(build_id, path, sources, dict(sorted(frames.items())))
    here = [frames[one] for address in addresses if (one := f"{address:x}") in frames]
    lines = sum(one[-1][2] > 0 for one in here)
    return Naming(file, len(addresses), len(here), lines, files.is_other(path, build_id))
