"""Tests of the libraries that Cairn preloads into programs.

These libraries may need only libc, and no thread-local storage that dlopen could refuse.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cairn import native


def allocator() -> Path:
    """The library that is preloaded in place of libc's malloc."""
    return Path(native.__file__).parent / "native" / "lib" / "libcairn.so.0"


def hardened() -> Path:
    """The hardened build of that library."""
    return allocator().with_name("libcairn-hardened.so.0")


INJECTED = [native.witness, native.probe, native.instructions, allocator, hardened]


def dynamic(path: Path, tag: str) -> list[str]:
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        assert section is not None
        return [
            getattr(entry, tag.removeprefix("DT_").lower(), entry.entry.d_val)
            for entry in section.iter_tags(tag)
        ]


@pytest.mark.parametrize("library", INJECTED)
def test_each_preloaded_library_needs_only_libc(library: object) -> None:
    assert callable(library)
    assert dynamic(library(), "DT_NEEDED") == ["libc.so.6"]


@pytest.mark.parametrize("library", INJECTED)
def test_a_preloaded_library_has_no_search_path(library: object) -> None:
    assert callable(library)
    assert dynamic(library(), "DT_RUNPATH") == dynamic(library(), "DT_RPATH") == []


@pytest.mark.parametrize("library", INJECTED)
def test_its_thread_local_storage_is_initial_exec(library: object) -> None:
    """Thread-local storage of the general-dynamic model calls __tls_get_addr, which may allocate.

    In the first call of an allocator, that would be an endless recursion.
    """
    assert callable(library)
    with library().open("rb") as file:
        elf = ELFFile(file)
        symbols = {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()}
        has_storage = any(segment["p_type"] == "PT_TLS" for segment in elf.iter_segments())
    assert "__tls_get_addr" not in symbols
    if has_storage:
        assert any(value & 0x10 for value in dynamic(library(), "DT_FLAGS")), (
            "DF_STATIC_TLS is missing"
        )


@pytest.mark.parametrize("folder", ["witness", "probe", "alloc", "os"])
def test_every_preloaded_source_is_built_as_initial_exec(folder: str) -> None:
    root = Path(__file__).resolve().parents[2]
    text = (root / "src" / folder / "CMakeLists.txt").read_text()
    assert "-ftls-model=initial-exec" in text
