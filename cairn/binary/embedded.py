"""Finds allocators and language runtimes that are linked into an executable.

A preloaded library cannot replace such an allocator. An allocator in the file is a hint, but no
proof that the program's blocks come from it; `doctor` judges whether they do.

The facts come from symbol names and, in stripped files, from texts that an allocator's code always
contains. Every read is bounded, and nothing is executed: the file may be hostile.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

from msgspec import Struct

from cairn.binary import elf

SCAN_BYTES = 64 << 20
"""The largest number of bytes of one section that are searched. Such a search takes 30 ms.

The largest section known, the read-only data of node 20, has 47 MB.
"""


_SYMBOLS = (
    ("_rjem_malloc", "jemalloc"),
    ("je_malloc", "jemalloc"),
    ("mi_malloc", "mimalloc"),
    ("mi_malloc_aligned", "mimalloc"),
    ("tc_malloc", "tcmalloc"),
    ("TCMallocInternalMalloc", "tcmalloc (Google)"),
    ("sn_malloc", "snmalloc"),
    ("sn_rust_alloc", "snmalloc"),
    ("rpmalloc", "rpmalloc"),
    ("scalable_malloc", "tbbmalloc"),
)
"""Entry points and their allocators.

A program that contains an allocator through a Rust crate has only some of its entry points.
"""


_HIDDEN_MALLOC = "malloc"


_RUST, _RUST_CHOSEN = "__rust_alloc", "__rg_alloc"
"""The function that a Rust program calls to allocate, and the function that this one calls if the
program chose its own allocator.

Mangled names of these functions end with these names.
"""


_WANTED = (*(symbol for symbol, _ in _SYMBOLS), _HIDDEN_MALLOC, _RUST, _RUST_CHOSEN)


_COMMON_END, _LONGEST = b"lloc\0", max(map(len, _WANTED))


_NAMES_MAX, _HITS_MAX = 100_000, 1000
"""Limits of a search. At most _NAMES_MAX names that end with _COMMON_END are examined. For each
wanted name, the search examines at most _HITS_MAX places of the symbol table that hold its offset.

Chromium has some thousands of names with this end. The limits end the search in a hostile file that
repeats a name or an offset.
"""


_SHIM = b"allocator_shim"
"""The namespace of the functions in front of Chromium's PartitionAlloc."""


_TEXTS = (
    ("jemalloc", b"<jemalloc>: ", b"MALLOC_CONF"),
    ("mimalloc", b"mimalloc: ", b"allow_large_os_pages"),
    ("tcmalloc", b"tcmalloc: large alloc", b"TCMALLOC_"),
)
"""Allocator, the beginning of its error messages, and the name or prefix of a knob.

Only the code of the allocator contains both of these texts.
"""


_IMPORTS = (
    b"malloc\0",
    b"calloc\0",
    b"realloc\0",
    b"memalign\0",
    b"aligned_alloc\0",
    b"\0_Znw",
    b"\0_Zna",
)
"""Ends or beginnings of the names of functions of the C and C++ libraries that allocate memory."""


_SANITIZER_LIBRARIES = ("libasan.", "libhwasan.", "libtsan.", "libmsan.", "liblsan.")


class Inside(Struct, frozen=True):
    """The facts about the inside of one executable."""

    allocator: str | None = None
    """The allocator that is linked in, or "malloc" if only its malloc is known."""
    evidence: str | None = None
    """"symbol", or "text" for a stripped file that contains both texts in an entry of _TEXTS."""
    mark: str | None = None
    """The symbol or the texts that were found."""
    asks_libc: bool = True
    """Whether the executable imports an allocating function.

    If it imports none, the blocks that its own code allocates do not come from libc.
    """
    go: bool = False
    rust: bool = False
    rust_allocator: bool = False
    """Whether a Rust program chose its global allocator."""
    python: bool = False
    """Whether CPython itself is linked in."""
    node: bool = False
    stripped: bool = False
    """Whether the executable has no symbol table. If so, only texts can reveal its allocator."""


NOTHING = Inside()


def look_inside(path: str) -> Inside:
    """The facts about the executable at `path`; NOTHING if it is not a readable, valid ELF file."""
    try:
        with elf.opened(path) as image:
            return NOTHING if image.truncated else _inside(image)
    except (elf.NotElf, elf.Damaged, OSError, struct.error):
        return NOTHING


def _inside(image: elf.Image) -> Inside:
    sections = {section.name: section for section in image.sections()}
    names = b""
    symbols = b""
    if ".symtab" in sections and ".strtab" in sections:
        names = image.content(sections[".strtab"], SCAN_BYTES)
        symbols = image.content(sections[".symtab"], SCAN_BYTES)
    table = _Symbols(names, symbols, image.bits)
    allocator, mark = _by_symbol(image, table)
    evidence = "symbol" if allocator else None
    own_malloc = image.defines(_HIDDEN_MALLOC)
    data = b""
    if (not names or own_malloc) and ".rodata" in sections:
        data = image.content(sections[".rodata"], SCAN_BYTES)
        if allocator is None:
            allocator, mark = _by_text(data)
            evidence = "text" if allocator else None
    return Inside(
        allocator=allocator,
        evidence=evidence,
        mark=mark,
        asks_libc=_asks_libc(image, sections),
        go=".go.buildinfo" in sections or ".note.go.buildid" in sections,
        rust=table.ends_with(_RUST) or table.contains(b"rust_eh_personality") or b"/rustc/" in data,
        rust_allocator=table.ends_with(_RUST_CHOSEN),
        python=image.defines("PyObject_Malloc"),
        node=image.defines("node_module_register"),
        stripped=not names,
    )


def _asks_libc(image: elf.Image, sections: Mapping[str, elf.Section]) -> bool:
    """Whether the executable imports a function that allocates.

    If a name is the end of a longer name, linkers store only the longer one. So the search accepts
    ends of names, and an exported je_malloc counts as an import of malloc.
    """
    if ".dynstr" not in sections:
        return True
    names = image.content(sections[".dynstr"], SCAN_BYTES)
    return any(name in names for name in _IMPORTS)


class _Symbols:
    """The symbol table, searched as text.

    Walking a million entries in Python takes a second, a search of the bytes a millisecond.
    """

    def __init__(self, names: bytes, table: bytes, bits: int) -> None:
        self._names = names
        self._table = table
        self._entry = 16 if bits == 32 else 24
        self._section_at = 14 if bits == 32 else 6
        self._found = dict[str, list[int]]()
        self._search()

    def _search(self) -> None:
        """Finds all wanted names in one pass.

        If a name is the end of a longer name, linkers store only the longer one. So the search is
        for the ends of names.
        """
        at = self._names.find(_COMMON_END)
        for _ in range(_NAMES_MAX):
            if at < 0:
                break
            end = at + len(_COMMON_END)
            tail = self._names[max(0, end - _LONGEST - 1) : end - 1]
            for name in _WANTED:
                if tail.endswith(name.encode()):
                    self._found.setdefault(name, []).append(end - 1 - len(name))
            at = self._names.find(_COMMON_END, end)
        for name in _WANTED:
            if not name.endswith(_COMMON_END[:-1].decode()):
                at = self._names.find(name.encode() + b"\0")
                if at >= 0:
                    self._found.setdefault(name, []).append(at)

    def defines(self, name: str) -> bool:
        """Whether exactly this name is defined here, exported or not.

        The byte order of the file is assumed to be ours.
        """
        return any(self._is_defined(at) for at in self._found.get(name, ()))

    def ends_with(self, name: str) -> bool:
        """Whether a symbol ends with `name`, as Rust's mangled names do."""
        return name in self._found

    def contains(self, text: bytes) -> bool:
        """Whether a name contains the text."""
        return text in self._names

    def _is_defined(self, name_at: int) -> bool:
        wanted = struct.pack("=I", name_at)
        at = self._table.find(wanted)
        for _ in range(_HITS_MAX):
            if at < 0:
                return False
            if at % self._entry == 0 and len(self._table) - at >= self._entry:
                (section,) = struct.unpack_from("=H", self._table, at + self._section_at)
                if section != 0:
                    return True
            at = self._table.find(wanted, at + 1)
        return False


def _by_symbol(image: elf.Image, table: _Symbols) -> tuple[str | None, str | None]:
    for symbol, allocator in _SYMBOLS:
        if image.defines(symbol) or table.defines(symbol):
            return allocator, symbol
    if table.contains(_SHIM):
        return "PartitionAlloc", _SHIM.decode()
    if not image.defines(_HIDDEN_MALLOC) and table.defines(_HIDDEN_MALLOC):
        return _HIDDEN_MALLOC, _HIDDEN_MALLOC
    return None, None


def _by_text(data: bytes) -> tuple[str | None, str | None]:
    for allocator, head, knob in _TEXTS:
        if head in data and knob in data:
            return allocator, f"{head.decode().strip()} and {knob.decode()}"
    return None, None


def owner_of_malloc(paths: tuple[str, ...]) -> str | None:
    """The first of these libraries that defines malloc and is not the C library or a sanitizer.

    paths: in the loader's order. Returns None if there is no such library.
    """
    for path in paths:
        name = os.path.basename(path)
        if name.startswith(("libc.so", "libc.musl", "ld-", "ld64", *_SANITIZER_LIBRARIES)):
            continue
        try:
            with elf.opened(path) as image:
                if not image.truncated and image.defines("malloc"):
                    return path
        except (elf.NotElf, elf.Damaged, OSError):
            continue
    return None
