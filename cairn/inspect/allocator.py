"""Finds the allocator that serves malloc in a running process.

The dynamic loader keeps a list of the files that it has loaded, in the order in which it searches
them for a symbol. The program's own file comes first, then the preloaded libraries, then those that
the program is linked with. So the first file of this list that defines malloc serves it. The list
is read from the process's memory. If it cannot be read, the mapped files take its place, and the C
library comes last.

A static program has no list. Its allocator is known by the symbols and texts in its file.
"""

from __future__ import annotations

import contextlib
import fnmatch
import mmap
import os
import re
import struct
from collections.abc import Iterator, Sequence

from msgspec import Struct

from cairn.allocators.catalog import Allocator
from cairn.allocators.discover import discover, known_catalog
from cairn.binary import elf
from cairn.binary.embedded import Inside, look_inside
from cairn.inspect.facts import How, Serving
from cairn.inspect.mappings import Mapping
from cairn.inspect.memory import ProcessMemory, Unreadable
from cairn.inspect.process import Target

_AT_PHDR, _AT_PHENT, _AT_PHNUM = 3, 4, 5
_PT_LOAD, _PT_DYNAMIC, _PT_PHDR = 1, 2, 6
_DT_NULL, _DT_DEBUG = 0, 21
_FILES_MOST = 4096
"""The most files that are read from the list of the loader."""
_LIBC = re.compile(r"libc\.so(\.6)?$|libc-2\.\d+\.so$|libc\.musl|ld-musl")
_MUSL = re.compile(r"libc\.musl|ld-musl")
_GLIBC_VERSION = re.compile(rb"GNU C Library [^\n]*?version (\d+\.\d+)")
_GLIBC_MALLOC = b"malloc(): corrupted top size"
"""An error message of glibc's malloc. Each file that contains this malloc contains the message."""
_OLD_GLIBC_MALLOC = b"free(): invalid pointer"
_GO_MALLOC = "the Go runtime"
_MINE = ("libcairn-probe.so", "libcairn-witness.so", "libcairn-instructions.so")
"""Cairn's own libraries, which pass calls of malloc on to the allocator."""
_RUNTIMES = (("libpython3", "CPython"), ("libjvm.so", "Java"), ("libnode.so", "Node.js"))
"""The beginnings of the names of libraries, and the language runtimes that they contain."""
_TITLES = {"malloc": "an allocator of the program"}
VALGRIND = "valgrind's replacement"
_VALGRIND = re.compile(r"vgpreload_(memcheck|massif|dhat|helgrind|drd)-")
"""The names of the libraries with which tools of valgrind replace malloc. Valgrind runs the program
in a process whose executable file is the tool, and which still maps the program's C library."""


class LoadedFile(Struct, frozen=True):
    """A file of the process: the program or a library."""

    path: str
    """The path that the process sees."""
    base: int
    """The difference between its addresses in the process and those in the file."""
    readable: str
    """A path by which we can open it."""
    is_deleted: bool


class ProgramFiles(Struct, frozen=True):
    """The facts about a process that follow from its files."""

    loaded: tuple[LoadedFile, ...]
    """The files, in the order in which the loader searches them. The program comes first."""
    is_ordered: bool
    """Whether the order is really that of the loader. If its list cannot be read, the order is a
    guess."""
    bits: int | None
    is_static: bool
    inside: Inside
    libc: str | None
    serving: Serving
    owner: LoadedFile | None
    """The file that serves malloc."""


class _ElfFacts:
    """The facts of one file that are needed here. They are empty if it cannot be read."""

    def __init__(self, path: str, wanted: str = "malloc") -> None:
        self.build_id: str | None = None
        self.soname: str | None = None
        self.bits: int | None = None
        self.is_dynamic = False
        self.loader: str | None = None
        self.defines = False
        with contextlib.suppress(OSError, elf.NotElf, elf.Damaged, struct.error):
            descriptor = elf.open_regular(path)
            try:
                image = elf.Image(descriptor)
                self.bits, self.is_dynamic = image.bits, image.is_dynamic
                self.loader = image.loader
                self.build_id, self.soname = image.build_id, image.soname
                self.defines = not image.truncated and image.defines(wanted)
            finally:
                os.close(descriptor)


def examine(
    target: Target, mappings: Sequence[Mapping], preload: str, memory: ProcessMemory | None
) -> ProgramFiles:
    """Finds the allocator. `preload` is LD_PRELOAD of the process's environment.

    memory: None if the process's memory cannot be read.
    """
    path = target.link("exe")
    is_deleted = path.endswith(" (deleted)")
    path = path.removesuffix(" (deleted)")
    # The link /proc/PID/exe opens the file even if it was deleted or replaced.
    program = LoadedFile(path, 0, f"{target.folder}/exe", is_deleted)
    facts = _ElfFacts(program.readable)
    listed = _loaders_list(target, memory, facts.bits) if memory is not None else None
    files = _mapped_files(target, mappings, path)
    if listed is None:
        loaded = (program, *files.values())
    else:
        base, names = listed
        program = LoadedFile(path, base, program.readable, is_deleted)
        loaded = (program, *(_file_at(one, files) for one in names))
    inside = look_inside(program.readable)
    is_static = facts.loader is None and len(loaded) == 1
    libc_file = next((one for one in loaded if _LIBC.search(os.path.basename(one.path))), None)
    libc = _libc_of(libc_file, program, is_static)
    valgrind = next((one for one in files.values() if _is_valgrind(one)), None)
    found: tuple[Serving, LoadedFile | None]
    if valgrind is not None:
        found = _of_valgrind(valgrind), None
    elif is_static:
        found = _static(program, facts, inside, libc), program
    else:
        found = _dynamic(loaded, facts, inside, libc, preload, listed is not None)
    return ProgramFiles(loaded, listed is not None, facts.bits, is_static, inside, libc, *found)


def _mapped_files(
    target: Target, mappings: Sequence[Mapping], program: str
) -> dict[str, LoadedFile]:
    """The mapped files with code, by their paths. C libraries come last."""
    by_path: dict[str, list[Mapping]] = {}
    for one in mappings:
        if one.is_file and one.path != program:
            by_path.setdefault(one.path, []).append(one)
    found = {
        path: LoadedFile(
            path, min(one.start - one.offset for one in of), _openable(target, of[0]),
            of[0].is_deleted,
        )
        for path, of in by_path.items()
        if any(one.is_executable for one in of)
    }  # fmt: skip
    is_libc = {path: bool(_LIBC.search(os.path.basename(path))) for path in found}
    return dict(sorted(found.items(), key=lambda one: is_libc[one[0]]))


def _openable(target: Target, mapping: Mapping) -> str:
    """A path that opens the mapped file, even if another file has its name now."""
    if not mapping.is_deleted:
        return target.path(mapping.path, mapping.inode)
    return f"{target.folder}/map_files/{mapping.start:x}-{mapping.end:x}"


def _file_at(listed: tuple[int, str], files: dict[str, LoadedFile]) -> LoadedFile:
    """The mapped file of an entry of the loader's list.

    The loader's list has the path by which the loader opened the file. The kernel shows the path
    without symbolic links. If the two differ, the load address identifies the file.
    """
    base, name = listed
    for one in files.values():
        if one.path == name or one.base == base:
            return LoadedFile(one.path, base, one.readable, one.is_deleted)
    return LoadedFile(name, base, name, False)


def _loaders_list(
    target: Target, memory: ProcessMemory, bits: int | None
) -> tuple[int, list[tuple[int, str]]] | None:
    """The load address of the program, and (load address, path) of each library in order.

    Returns None if the process has no dynamic loader, or if the list cannot be read.
    """
    if bits != 64:
        return None
    try:
        auxiliary = target.read("auxv")
        entries = dict(struct.iter_unpack("<QQ", auxiliary[: len(auxiliary) // 16 * 16]))
        headers, size, count = (entries[key] for key in (_AT_PHDR, _AT_PHENT, _AT_PHNUM))
        if size != 56 or count > 256:
            return None
        base, dynamic = 0, None
        for index in range(count):
            kind, _ = memory.ints_at(headers + index * size, 2)
            address = memory.word_at(headers + index * size + 16)
            if kind == _PT_PHDR:
                base = headers - address
            elif kind == _PT_DYNAMIC:
                dynamic = address
        if dynamic is None:
            return None
        return base, list(_link_maps(memory, base + dynamic))
    except (KeyError, Unreadable, struct.error):
        return None


def _link_maps(memory: ProcessMemory, dynamic: int) -> Iterator[tuple[int, str]]:
    """Yields load address and path of each library in the list of the loader."""
    for index in range(_FILES_MOST):
        tag, value = memory.words_at(dynamic + 16 * index, 2)
        if tag == _DT_NULL:
            raise Unreadable(dynamic)
        if tag == _DT_DEBUG:
            break
    if value == 0:
        raise Unreadable(dynamic)  # the loader has no list yet
    entry = memory.word_at(value + 8)
    for index in range(_FILES_MOST):
        if not entry:
            return
        base, name, _, following = memory.words_at(entry, 4)
        text = _string(memory, name)
        # The program comes first. The vDSO has a name without a folder. The path of a library may
        # be relative to the working directory.
        if index and "/" in text:
            yield base, text
        entry = following


def _string(memory: ProcessMemory, address: int) -> str:
    found = b""
    while b"\0" not in found and len(found) < 4096:
        found += memory.bytes_at(address + len(found), 16)
    return os.fsdecode(found.split(b"\0")[0])


def _libc_of(file: LoadedFile | None, program: LoadedFile, is_static: bool) -> str | None:
    """The C library by name and version."""
    if file is not None and _is_musl(file):
        return "musl"
    if file is None and not is_static:
        return None
    content = file or program
    version = _search(content.readable, _GLIBC_VERSION)
    if version is not None:
        return f"glibc {version}"
    if file is not None:
        return "glibc"
    return "glibc" if _contains(program.readable, _GLIBC_MALLOC, _OLD_GLIBC_MALLOC) else None


def _is_musl(file: LoadedFile) -> bool:
    """Whether a C library is musl, which distributions other than Alpine call libc.so."""
    name = os.path.basename(file.path)
    return bool(_MUSL.search(name)) or (
        name == "libc.so" and _contains(file.readable, b"musl libc")
    )


def _search(path: str, wanted: re.Pattern[bytes]) -> str | None:
    with (
        contextlib.suppress(OSError, ValueError),
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if (found := wanted.search(content)) is not None:
            return found[1].decode("ascii")
    return None


def _contains(path: str, *texts: bytes) -> bool:
    with (
        contextlib.suppress(OSError, ValueError),
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return any(content.find(text) >= 0 for text in texts)
    return False


def _static(program: LoadedFile, facts: _ElfFacts, inside: Inside, libc: str | None) -> Serving:
    """The allocator of a program without a loader."""
    entry = _entry_named(inside.allocator) if inside.allocator else None
    name, evidence, how = "not known", "", "in the program"
    shown = "is statically linked"
    if inside.allocator and inside.allocator != "malloc":
        name = inside.allocator
        evidence = f"The program {shown} and contains {inside.mark}."
    elif inside.go:
        name = _GO_MALLOC
        evidence = f"The program {shown} and was built by the Go compiler."
    elif libc is not None:
        name, how = "glibc", "C library"
        entry = _entry_named("system")
        evidence = f"The program {shown} and contains the messages of glibc's malloc."
    elif _contains(program.readable, b"__malloc_donate\0", b"__libc_malloc_impl\0"):
        name, how = "musl", "C library"
        evidence = f"The program {shown} and has the symbols of musl's malloc."
    else:
        how = "not known"
        evidence = (
            f"The program {shown}, and its file names no allocator: it was stripped, or its "
            "allocator is not known to Cairn."
        )
    return Serving(
        name, entry.name if entry else None, None, _how(how), program.path, facts.build_id,
        evidence, runtime=_runtime(inside),
    )  # fmt: skip


def _is_valgrind(file: LoadedFile) -> bool:
    return bool(_VALGRIND.match(os.path.basename(file.path)))


def _of_valgrind(library: LoadedFile) -> Serving:
    """The allocator of a program that runs under a tool of valgrind."""
    return Serving(
        VALGRIND, None, None, "preloaded", library.path, _ElfFacts(library.readable).build_id,
        "The process runs under valgrind, which replaces malloc by "
        f"{os.path.basename(library.path)}.",
    )  # fmt: skip


def _how(text: str) -> How:
    found: dict[str, How] = {
        "in the program": "in the program", "C library": "C library", "not known": "not known",
    }  # fmt: skip
    return found[text]


def _dynamic(
    loaded: Sequence[LoadedFile], program: _ElfFacts, inside: Inside, libc: str | None,
    preload: str, is_ordered: bool,
) -> tuple[Serving, LoadedFile | None]:  # fmt: skip
    """The allocator of a program with a loader, and the file that contains it."""
    order = "comes first in the loader's order" if is_ordered else "is mapped"
    beside = inside.allocator if inside.allocator not in (None, "malloc") else None
    if program.defines:
        owner = loaded[0]
        name = inside.allocator or "malloc"
        entry = _entry_named(name)
        return Serving(
            _TITLES.get(name, name), entry.name if entry else None, None, "in the program",
            owner.path, program.build_id,
            "The program's file exports malloc, which comes before that of any library.",
            runtime=_runtime(inside, loaded),
        ), owner  # fmt: skip
    for one in loaded[1:]:
        base = os.path.basename(one.path)
        if base in _MINE:
            continue
        facts = _ElfFacts(one.readable)
        if not facts.defines:
            continue
        if _LIBC.search(base) or _LIBC.search(facts.soname or ""):
            if _is_musl(one):
                serving = Serving(
                    "musl", None, None, "C library", one.path, facts.build_id,
                    f"No file before {base} defines malloc.", beside, _runtime(inside, loaded),
                )  # fmt: skip
            else:
                version = (libc or "").partition(" ")[2] or None
                serving = Serving(
                    "glibc", "system", version, "C library", one.path, facts.build_id,
                    f"No file before {base} defines malloc.", beside, _runtime(inside, loaded),
                )  # fmt: skip
            return serving, one
        is_preloaded = any(
            os.path.basename(word) in (base, facts.soname) or word == one.path
            for word in re.split("[ :]", preload)
            if word
        )
        name, entry, version = _library(one.path, facts)
        how: How = "preloaded" if is_preloaded else "linked"
        why = "LD_PRELOAD names it" if is_preloaded else "LD_PRELOAD does not name it"
        return Serving(
            name, entry.name if entry else None, version, how, one.path, facts.build_id,
            f"{base} {order} of the files that define malloc, and {why}.", beside,
            _runtime(inside, loaded),
        ), one  # fmt: skip
    if not is_ordered and len(loaded) == 1:
        evidence = "No library is mapped yet."
    else:
        evidence = "No file of the process defines malloc, or none could be read."
        if any(one.is_deleted for one in loaded):
            evidence += (
                " Some files were deleted or replaced since it started, and only root may read the "
                "old ones."
            )
    return Serving(
        "not known", None, None, "not known", None, None, evidence, beside, _runtime(inside, loaded)
    ), None  # fmt: skip


def _library(path: str, facts: _ElfFacts) -> tuple[str, Allocator | None, str | None]:
    """Name, entry of the catalog and version of a library that defines malloc.

    If 'cairn allocators' lists a library with the same build ID, it is that library. Otherwise the
    names of the library's file and its own name (soname) decide.
    """
    names = {os.path.basename(path), facts.soname or ""}
    catalog = known_catalog()
    entries = [
        one
        for one in catalog.allocators
        if any(fnmatch.fnmatchcase(name, glob) for name in names for glob in one.libraries)
        or (one.ours and any(name.startswith(f"lib{one.name}.so") for name in names))
    ]
    entry = next((one for one in entries if one.library_of is None), None)
    wanted = None if entry is None else [entry.name]
    for found in discover(catalog, names=wanted):
        if found.path and (
            (facts.build_id and found.build_id == facts.build_id)
            or os.path.realpath(found.path) == path
        ):
            return found.allocator.title, found.allocator, found.version
    if entry is not None:
        return entry.title, entry, None
    inside = look_inside(path)
    name = inside.allocator if inside.allocator not in (None, "malloc") else os.path.basename(path)
    known = _entry_named(name or "")
    return name or os.path.basename(path), known, None


def _entry_named(name: str | None) -> Allocator | None:
    return None if not name else known_catalog().find(name)


def _runtime(inside: Inside, loaded: Sequence[LoadedFile] = ()) -> str | None:
    """The runtime whose own allocator or heap is in front of malloc."""
    if inside.python:
        return "CPython"
    if inside.node:
        return "Node.js"
    if inside.go:
        return "Go"
    names = [os.path.basename(one.path) for one in loaded]
    return next(
        (name for file, name in _RUNTIMES if any(one.startswith(file) for one in names)), None
    )
