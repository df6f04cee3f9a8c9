"""Turns the text of the option `-a` into a contender that can run on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn.allocators.catalog import PROBE, Catalog, Found, entry, first_duplicate, is_version
from cairn.allocators.discover import companion_folders, known_catalog
from cairn.allocators.sources import sources_of
from cairn.binary.library import carries, inspect_library, refuse_library
from cairn.binary.program import Program
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.model import Contender

NAME_MAX = 64
_COMMAS_MOST = 8
"""In a list with commas between its elements, a path may itself have at most this many commas."""


_KNOB = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_OURS = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_TRACE_LOADED_OBJECTS")


_OUR_PREFIXES = ("CAIRN_WITNESS", "CAIRN_LAUNCH", "CAIRN_PROBE")


class ContenderSpec(Struct, frozen=True):
    """The parsed argument of -a. It does not say whether the library is on this machine."""

    name: str
    allocator: str
    """A catalog name, or "custom"."""
    path: str | None = None
    """The library of a custom contender, as the user wrote it."""
    version: str | None = None
    knobs: tuple[tuple[str, str], ...] = ()
    probed: bool = False


def split_contenders(argument: str) -> tuple[str, ...]:
    """Returns the specs in one argument of -a. Commas separate the specs, such as "system,b=lib".

    An argument with knobs is one spec, since the values of knobs may contain commas. A path that
    exists is not divided. Raises UsageError for a list with knobs, and for an empty spec.
    """
    if _is_path(argument):
        return (argument,)
    head, colon, knobs = argument.partition(":")
    pieces = tuple(_pieces(head))
    if colon:
        if len(pieces) > 1:
            raise UsageError(
                f"'{argument}' combines a list with environment variables; give each contender "
                f"its own -a, such as -a '{pieces[-1]}:{knobs}'."
            )
        return (argument,)
    if not all(piece.strip() for piece in pieces):
        raise UsageError(
            f"'{argument}' names an empty contender; write them as -a system,jemalloc."
        )
    return pieces


def _pieces(text: str) -> Iterator[str]:
    """Yields the text between commas. A comma in a path that exists does not separate."""
    words = text.split(",")
    at = 0
    while at < len(words):
        longest = min(len(words), at + _COMMAS_MOST + 1)
        end = next(
            (end for end in range(longest, at + 1, -1) if _is_path(",".join(words[at:end]))),
            at + 1,
        )
        yield ",".join(words[at:end])
        at = end


def _is_path(spec: str) -> bool:
    """Returns whether the spec is the path of a file, perhaps with a name before it."""
    name, _, target = _split_name(spec)
    return "/" in target and "," not in (name or "") and os.path.lexists(target)


def _split_name(text: str) -> tuple[str | None, str, str]:
    """Returns (name, "=", rest), or (None, "", text) if the text has no name.

    The first "=" ends a name if no "/" and no ":" stands before it. After a "/" or a ":", the "="
    is part of a path or of a knob.
    """
    name, equals, rest = text.partition("=")
    if not equals or "/" in name or ":" in name:
        return None, "", text
    return name, equals, rest


def parse_contender(spec: str, catalog: Catalog | None = None) -> ContenderSpec:
    """Parses `[name=]lib[@version][+probe][:KEY=VALUE;KEY=VALUE…]`.

    A value is everything after the first "=" of its pair. Raises UsageError, or ContenderFailed for
    a path that LD_PRELOAD cannot carry.
    """
    catalog = catalog or known_catalog()
    given, _, rest = _split_name(spec)
    if given is not None:
        _refuse_name(given)
    if "/" in rest and ":" in rest and os.path.lexists(rest):
        raise ContenderFailed(
            f"{rest}: LD_PRELOAD cannot carry a path with ':'. "
            "Make a link without ':' with ln -s, and give its path."
        )
    target, colon, knob_text = rest.partition(":")
    if not target:
        raise UsageError(
            f"'{spec}' names no allocator; "
            "write it as [name=]allocator[@version][:KEY=VALUE;KEY=VALUE]."
        )
    knobs = _parse_knobs(spec, knob_text) if colon else ()
    probed = target.endswith(PROBE) and not ("/" in target and os.path.lexists(target))
    suffix = PROBE if probed else ""
    target = target.removesuffix(suffix)
    if "/" in target:
        name = (
            given
            if given is not None
            else _own_name(_plain_base(target) + suffix, colon, knob_text)
        )
        return ContenderSpec(name=name, allocator="custom", path=target, knobs=knobs, probed=probed)
    wanted, at, version = target.partition("@")
    if at and not version:
        raise UsageError(
            f"'{spec}' has no version after '@'; "
            "write one, such as jemalloc@5.3.0, or leave out the '@'."
        )
    known = entry(wanted, catalog)
    name = given if given is not None else _own_name(target + suffix, colon, knob_text)
    return ContenderSpec(
        name=name, allocator=known.name, version=version or None, knobs=knobs, probed=probed
    )


def behind_probe(spec: str) -> str:
    """The spec of the same contender with the probe, without the name that the user gave it."""
    _, _, rest = _split_name(spec)
    target, colon, knobs = rest.partition(":")
    return f"{target.removesuffix(PROBE)}{PROBE}{colon}{knobs}"


def _refuse_name(name: str) -> None:
    if not name.strip():
        raise UsageError(
            "a contender has an empty name before its '='; write one, such as again=system."
        )
    if len(name) > NAME_MAX:
        raise UsageError(
            f"the contender name '{name[:20]}…' is longer than {NAME_MAX} characters; "
            "choose a shorter one."
        )
    if not name.isprintable():
        raise UsageError(
            "a contender name contains characters that cannot be printed; choose another one."
        )


def _plain_base(path: str) -> str:
    """The default name of a library: the file name before ".so", such as libmine."""
    base = os.path.basename(path.rstrip("/")) or path
    plain = "".join(character if character.isprintable() else "?" for character in base)
    return plain.partition(".so")[0] or plain


def _own_name(target: str, colon: str, knob_text: str) -> str:
    """The default name of a contender. It includes the knobs, which distinguish contenders."""
    whole = "".join(c if c.isprintable() else "?" for c in target + colon + knob_text)
    return whole if len(whole) <= NAME_MAX else whole[: NAME_MAX - 1] + "…"


def _parse_knobs(spec: str, text: str) -> tuple[tuple[str, str], ...]:
    knobs: list[tuple[str, str]] = []
    for piece in text.split(";"):
        key, equals, value = piece.partition("=")
        if not equals:
            raise UsageError(
                f"'{piece}' in '{spec}' is not an environment variable; write KEY=VALUE pairs "
                "after ':', separated by ';', such as system:MALLOC_ARENA_MAX=2."
            )
        if not _KNOB.fullmatch(key):
            raise UsageError(
                f"'{key}' in '{spec}' cannot be an environment variable; "
                "use letters, digits and '_'."
            )
        if key in _OURS or key.startswith(_OUR_PREFIXES):
            raise UsageError(
                f"cairn itself sets the environment variable {key}; leave it out of '{spec}'."
            )
        if "\0" in value:
            raise UsageError(
                f"the value of {key} contains a zero byte, which no environment can hold; "
                "leave it out."
            )
        if any(key == other for other, _ in knobs):
            raise UsageError(f"'{spec}' sets {key} twice; leave one out.")
        knobs.append((key, value))
    return tuple(knobs)


def refuse_duplicates(specs: Sequence[ContenderSpec]) -> None:
    """Raises UsageError if two contenders have the same name, since the name identifies them."""
    twice = first_duplicate(spec.name for spec in specs)
    if twice is not None:
        spec = next(spec for spec in specs if spec.name == twice)
        target = spec.path or spec.allocator
        raise UsageError(
            f"two contenders are called '{twice}'; name one of them, such as -a again={target}."
        )


def default_contenders(
    found: Sequence[Found], catalog: Catalog | None = None
) -> tuple[ContenderSpec, ...]:
    """The contenders of a run without `-a`: the system's allocator, then the other usable ones.

    Hardened allocators trade time for safety, so they compete only if the user names them.
    """
    catalog = catalog or known_catalog()
    here = {
        item.allocator.name
        for item in found
        if item.problem is None and not item.allocator.hardened
    }
    names = [entry.name for entry in catalog.allocators if entry.is_system or entry.name in here]
    return tuple(
        ContenderSpec(name=name, allocator=name)
        for name in sorted(names, key=lambda name: name != "system")
    )


def left_out(found: Sequence[Found]) -> tuple[str, ...]:
    """Sentences that say why cairn's own allocator does not compete; empty if it can compete.

    These sentences are shown because the user must notice a damaged installation.
    """
    return tuple(
        f"{i.allocator.name} is left out: {i.problem}"
        for i in found
        if i.allocator.ours and not i.allocator.hardened and i.problem
    )


def resolve(
    spec: ContenderSpec,
    found: Sequence[Found],
    program: Program | None = None,
    catalog: Catalog | None = None,
) -> Contender:
    """The contender that `spec` means on this machine: its library and its environment.

    program: the program to run, for which the library is checked. Raises ContenderFailed when the
    library is not on this machine or cannot be used, and UsageError for a knob of the user that the
    catalog's entry sets itself.
    """
    catalog = catalog or known_catalog()
    if spec.allocator == "custom":
        return _resolve_path(spec, program)
    copies = [item for item in found if item.allocator.name == spec.allocator]
    fitting = [item for item in copies if is_version(item.version, spec.version)]
    if not fitting:
        raise ContenderFailed(_unavailable(spec, copies, catalog))
    # `found` has the newest copies first. So among the usable copies the one with exactly this
    # version wins, else the newest one.
    fitting.sort(key=lambda item: (item.problem is not None, item.version != spec.version))
    chosen = fitting[0]
    entry = chosen.allocator
    for key, _ in entry.own_knobs:
        if any(key == other for other, _ in spec.knobs):
            plain = entry.library_of or entry.name
            raise UsageError(
                f"{entry.name} sets {key} itself; "
                f"to set it yourself, use the library alone: -a '{plain}:{key}=…'."
            )
    owners: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    build_id = None
    if chosen.problem is not None:
        raise ContenderFailed(chosen.problem)
    if chosen.path is not None:
        library = inspect_library(chosen.path)
        refuse_library(library, program, chosen.library_path)
        owners, preload, build_id = (library.realpath,), (library.path,), library.build_id
    caveats = entry.caveats + chosen.faults
    if entry.large_pages is not None and os.sysconf("SC_PAGE_SIZE") > 4096:
        caveats += (entry.large_pages,)
    return Contender(
        name=spec.name,
        allocator=entry.name,
        title=chosen.title,
        preload=preload,
        library_path=chosen.library_path,
        owners=owners,
        knobs=entry.own_knobs + spec.knobs,
        version=chosen.version,
        origin=chosen.origin,
        build_id=build_id,
        caveats=caveats,
        probed=spec.probed,
        spec=_spec(entry.name, spec),
    )


def _spec(library: str, spec: ContenderSpec) -> str:
    """The argument of -a that selects this contender, without the part NAME=."""
    version = f"@{spec.version}" if spec.version else ""
    knobs = ";".join(f"{key}={value}" for key, value in spec.knobs)
    return library + version + (PROBE if spec.probed else "") + (f":{knobs}" if knobs else "")


def _resolve_path(spec: ContenderSpec, program: Program | None) -> Contender:
    library = inspect_library(spec.path or "")
    library_path = companion_folders(library, library.needs)
    if not all(carries(folder) for folder in library_path):
        library_path = ()
    refuse_library(library, program, library_path, given_by_path=True)
    return Contender(
        name=spec.name,
        allocator="custom",
        title=os.path.basename(library.path),
        preload=(library.path,),
        library_path=library_path,
        owners=(library.realpath,),
        knobs=spec.knobs,
        origin="path",
        build_id=library.build_id,
        probed=spec.probed,
        spec=_spec(library.path, spec),
    )


def _unavailable(spec: ContenderSpec, copies: Sequence[Found], catalog: Catalog) -> str:
    if copies:
        here = ", ".join(item.version or "one of unknown version" for item in copies)
        lists = "'cairn allocators' lists what is installed"
        sourced = sources_of(copies[0].allocator.library_of or spec.allocator)
        if any(is_version(source.version, spec.version) for source in sourced):
            lists = f"'cairn allocators get {spec.allocator}@{spec.version}' fetches it"
        return f"no {spec.allocator} {spec.version} here, only {here}; {lists}."
    entry = catalog.find(spec.allocator)
    how = ""
    if entry is not None and not entry.comes_along:
        how = f", and 'cairn allocators get {entry.name}' fetches one"
        if entry.packages:
            how += f" (Debian: apt-get install {entry.packages[-1]})"
    wanted = f"{spec.allocator} {spec.version}" if spec.version else spec.allocator
    return f"no {wanted} here; 'cairn allocators' lists what is installed{how}."


def is_another_build(contender: Contender) -> bool:
    """Whether the file at the contender's path has another build ID than when it was found.

    False if no build ID was found, or if nothing is preloaded.
    """
    if contender.build_id is None or not contender.preload:
        return False
    return inspect_library(contender.preload[0]).build_id != contender.build_id


def carryable(paths: Sequence[str], folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Returns the paths, with a link in `folder` for each path that LD_PRELOAD cannot carry.

    A home folder or a clone may have a space in its name, and ld.so has no way to quote it.
    `folder` is private to the caller and has a plain name. The function works for libraries and for
    folders. Raises CairnError if `folder` cannot be carried or a link cannot be made.
    """
    folder = os.fspath(folder)
    carried = []
    for path in paths:
        if carries(path):
            carried.append(path)
            continue
        if not carries(folder):
            raise CairnError(
                f"{folder}: temporary files need a path without space or colon; "
                "set TMPDIR to another folder."
            )
        plain = re.sub(r"[^A-Za-z0-9._+-]", "_", os.path.basename(path)) or "_"
        carried.append(_link(path, folder, plain))
    return tuple(carried)


def with_links(contender: Contender, folder: str | os.PathLike[str]) -> Contender:
    """The contender with paths that LD_PRELOAD can carry; see carryable().

    The program and the probe know the libraries by these paths. So the folder must exist until
    their reports have been read.
    """
    return replace(
        contender,
        preload=carryable(contender.preload, folder),
        library_path=carryable(contender.library_path, folder),
    )


def _link(path: str, folder: str, plain: str) -> str:
    """A link to `path` in `folder`. An existing link to `path` is returned. No file is replaced."""
    for number in range(1000):
        link = os.path.join(folder, plain if number == 0 else f"{number}-{plain}")
        try:
            os.symlink(path, link)
            return link
        except FileExistsError:
            if os.path.islink(link) and os.readlink(link) == path:
                return link
        except OSError as error:
            raise CairnError(
                f"{folder}: cannot make a link there ({error.strerror}); "
                "set TMPDIR to another folder."
            ) from None
    raise CairnError(f"{folder}: it is full of other files; set TMPDIR to another folder.")
