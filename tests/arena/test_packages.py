"""Tests of the installed arena: its files, its exported names, and its packages.

pkg-config and CMake must find the packages even after the installed tree was moved.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support.compilers import ROOT
from support.packages import built_by_cmake, call, needs_pkg_config, pkg_config

from cairn import __version__

EXAMPLE = ROOT / "examples" / "arena" / "first.c"
CONTAINERS = ROOT / "examples" / "arena" / "containers.cpp"


@pytest.fixture(scope="session")
def moved(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed tree at another path, which contains a space."""
    target = tmp_path_factory.mktemp("moved") / "a place"
    shutil.copytree(prefix, target, symlinks=True)
    return target


def test_the_arena_is_installed_with_exactly_the_expected_files(prefix: Path) -> None:
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert files == {
        "include/cairn/arena.h",
        "include/cairn/arena.hpp",
        "lib/libcairn-arena.a",
        "lib/libcairn-arena.so",
        "lib/libcairn-arena.so.0",
        "lib/pkgconfig/cairn-arena.pc",
        "lib/cmake/cairn-arena/cairn-arena-config.cmake",
        "lib/cmake/cairn-arena/cairn-arena-config-release.cmake",
        "lib/cmake/cairn-arena/cairn-arena-config-version.cmake",
    }


def test_no_file_of_the_arena_contains_the_path_of_its_build(prefix: Path) -> None:
    for path in (*prefix.rglob("*.pc"), *prefix.rglob("*.cmake")):
        assert str(ROOT) not in path.read_text() and str(prefix) not in path.read_text(), path.name


@needs_pkg_config
def test_pkg_config_finds_it(moved: Path, tmp_path: Path) -> None:
    assert pkg_config(moved, "--modversion", "cairn-arena") == [__version__]
    program = tmp_path / "first"
    call("gcc", EXAMPLE, *pkg_config(moved, "--cflags", "--libs", "cairn-arena"), "-o", program)
    assert "998001" in call(program, LD_LIBRARY_PATH=str(moved / "lib"))


@pytest.mark.long
@pytest.mark.parametrize("target", ["arena", "arena-static"])
def test_find_package_finds_it(moved: Path, tmp_path: Path, target: str) -> None:
    build = built_by_cmake(
        tmp_path, moved, f"cairn-arena {__version__}", target, [EXAMPLE, CONTAINERS]
    )
    assert "998001" in call(build / "first")
    assert "1000 numbers" in call(build / "containers")


def test_another_minor_version_is_not_taken(moved: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("""
        cmake_minimum_required(VERSION 3.20)
        project(user LANGUAGES C)
        find_package(cairn-arena 0.999)
        if(cairn-arena_FOUND)
          message(FATAL_ERROR "taken")
        endif()
    """)
    call("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={moved}")


def test_the_library_needs_only_libc_and_has_its_soname(prefix: Path) -> None:
    with (prefix / "lib" / "libcairn-arena.so").open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        tags = {tag.entry.d_tag: tag for tag in dynamic.iter_tags()}
        needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
        assert needed == ["libc.so.6"]
        assert tags["DT_SONAME"].soname == "libcairn-arena.so.0"
        assert "DT_RUNPATH" not in tags and "DT_RPATH" not in tags
        storage = [
            segment["p_memsz"] for segment in elf.iter_segments() if segment["p_type"] == "PT_TLS"
        ]
        assert storage == [4], "the number of locks that the thread holds"


def declared() -> set[str]:
    """Returns the name of every function that the header declares."""
    header = (ROOT / "include" / "cairn" / "arena.h").read_text()
    return set(re.findall(r"^[a-z].*?\b\*?(cairn_(?:arena|pool)_\w+)\(", header, re.MULTILINE))


def test_the_arena_exports_the_functions_of_the_header_and_nothing_else(prefix: Path) -> None:
    with (prefix / "lib" / "libcairn-arena.so").open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        shown = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    assert shown == declared()
    assert len(shown) >= 25


def test_the_archive_of_the_arena_defines_no_other_global_name(prefix: Path) -> None:
    lines = call(
        "nm", "--extern-only", "--defined-only", prefix / "lib" / "libcairn-arena.a"
    ).splitlines()
    assert {line.split()[2] for line in lines if len(line.split()) == 3} == declared()


def test_the_arena_calls_no_allocator(prefix: Path) -> None:
    undefined = call("nm", "--undefined-only", prefix / "lib" / "libcairn-arena.a").split()
    for name in ("malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc", "_Znwm"):
        assert name not in undefined


def test_it_can_be_used_from_another_language(prefix: Path) -> None:
    """The library also exports the header's inline functions, which ctypes cannot inline."""
    script = f"""
import ctypes
lib = ctypes.CDLL({str(prefix / "lib" / "libcairn-arena.so")!r})
for name in ("cairn_arena_create", "cairn_arena_alloc", "cairn_arena_alloc_array", "cairn_pool_create", "cairn_pool_alloc"):
    getattr(lib, name).restype = ctypes.c_void_p
    getattr(lib, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t][: 3 if "array" in name else 2]
lib.cairn_arena_create.argtypes = lib.cairn_pool_create.argtypes[:0] + [ctypes.c_size_t]
lib.cairn_pool_create.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
lib.cairn_pool_alloc.argtypes = [ctypes.c_void_p]
arena = lib.cairn_arena_create(0)
block = lib.cairn_arena_alloc(arena, 1000)
ctypes.memset(block, 1, 1000)
assert lib.cairn_arena_alloc(arena, 1) == block + 1008
assert lib.cairn_arena_alloc_array(arena, 2**62, 8) is None
pool = lib.cairn_pool_create(24, 8)
assert lib.cairn_pool_alloc(pool)
"""
    call("/usr/bin/env", "python3", "-c", script)
