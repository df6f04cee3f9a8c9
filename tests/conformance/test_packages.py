"""Tests of the installed allocator: its files, its exported names, and its packages.

pkg-config and CMake must find the packages even after the installed tree was moved.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support.compilers import ROOT
from support.packages import built_by_cmake, call, needs_pkg_config, pkg_config

from cairn import __version__

from .conftest import HERE, WARNINGS

MAP = (ROOT / "src" / "abi" / "exports.map").read_text()
HEADER = ROOT / "include" / "cairn" / "cairn.h"
FOR_THE_LOADER = {"dlopen", "dlmopen"}
FOR_SANDBOXES = {"prctl", "syscall"}
AT_THE_START = {"__libc_start_main"}
"""Functions that only the shared library has, and not the archive.

They work only in a library that the loader searches before libc.
"""

FAST_PATHS = {"malloc": 22, "free": 41, "cairn_malloc": 22, "_Znwm": 23, "_ZdlPv": 41}
"""By function: the highest number of instructions that may precede its first `ret`. For free, they
include the jumps to its slow functions."""

_OF_C = ("malloc", "calloc", "realloc")
COLD_DOORS = {
    **{f"{of}{name}": f"names_{name}_slow" for of in ("", "cairn_", "__libc_") for name in _OF_C},
    **dict.fromkeys(("_Znwm", "_ZnwmSt11align_val_t"), "new_slow"),
    **dict.fromkeys(("_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t"), "nothrow_slow"),
    **{"_Znam": "_Znwm", "_ZnamSt11align_val_t": "_ZnwmSt11align_val_t", "reallocarray": "realloc"},
    **{
        "__libc_memalign": "names_memalign",
        "__libc_valloc": "names_valloc",
        "__libc_pvalloc": "names_pvalloc",
    },
}
"""By function: the slow function to which it must jump, instead of calling it.

After a jump, the return address of the slow function lies in the program. The allocator records
this address as the call site of a large block (src/alloc/site.h).
"""


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The allocator, installed by `cmake --install`."""
    folder = tmp_path_factory.mktemp("installed")
    build = folder / "build"
    call("cmake", "-S", ROOT, "-B", build, "-DCMAKE_C_FLAGS_RELEASE=-O2")  # no debug information
    call("cmake", "--build", build, "--target", "cairn-malloc", "cairn-malloc-static")
    call("cmake", "--install", build, "--component", "malloc", "--prefix", folder / "prefix")
    return folder / "prefix"


@pytest.fixture(scope="session")
def moved(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed tree, moved to a path with a space."""
    target = tmp_path_factory.mktemp("moved") / "a place"
    shutil.copytree(prefix, target, symlinks=True)
    return target


def promised() -> set[str]:
    """Returns every name that the version map exports."""
    inside = re.sub(r"/\*.*?\*/", "", MAP, flags=re.DOTALL).split("global:")[1].split("local:")[0]
    return {name.strip() for name in inside.split(";") if name.strip()}


def shown(library: Path) -> set[str]:
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}


def test_the_allocator_is_installed_with_exactly_the_expected_files(prefix: Path) -> None:
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert files == {
        "include/cairn/cairn.h",
        "lib/libcairn.a",
        "lib/libcairn.so",
        "lib/libcairn.so.0",
        "lib/pkgconfig/cairn.pc",
        "lib/cmake/cairn/cairn-config.cmake",
        "lib/cmake/cairn/cairn-config-release.cmake",
        "lib/cmake/cairn/cairn-config-version.cmake",
    }


def test_no_file_of_the_allocator_contains_the_path_of_its_build(prefix: Path) -> None:
    for path in (*prefix.rglob("*.pc"), *prefix.rglob("*.cmake")):
        assert str(ROOT) not in path.read_text() and str(prefix) not in path.read_text(), path.name


@needs_pkg_config
def test_pkg_config_finds_it(moved: Path, tmp_path: Path) -> None:
    assert pkg_config(moved, "--modversion", "cairn") == [__version__]
    flags = pkg_config(moved, "--cflags", "--libs", "cairn")
    program = tmp_path / "statistics"
    call(
        "gcc",
        "-D_GNU_SOURCE",
        "-pthread",
        HERE / "statistics.c",
        "-I",
        ROOT / "tests" / "unit",
        *flags,
        "-o",
        program,
    )
    assert "0 failed" in call(program, LD_LIBRARY_PATH=str(moved / "lib"))


@pytest.mark.long
@pytest.mark.parametrize("target", ["malloc", "malloc-static"])
def test_find_package_finds_it(moved: Path, tmp_path: Path, target: str) -> None:
    options = ["add_definitions(-D_GNU_SOURCE)", f'include_directories("{ROOT}/tests/unit")']
    sources = [HERE / "statistics.c", HERE / "operators.cpp"]
    build = built_by_cmake(tmp_path, moved, f"cairn {__version__}", target, sources, *options)
    for program in ("statistics", "operators"):
        assert "0 failed" in call(build / program)


def test_the_library_exports_the_names_of_its_map_and_nothing_else(prefix: Path) -> None:
    assert shown(prefix / "lib" / "libcairn.so") == promised()


def test_every_function_of_the_header_is_shown(prefix: Path) -> None:
    declared = set(re.findall(r"^[a-z].*?\b\*?(cairn_\w+)\(", HEADER.read_text(), re.MULTILINE))
    assert len(declared) >= 10
    assert declared == {name for name in promised() if name.startswith("cairn_")}


def test_the_archive_defines_no_other_global_name(prefix: Path) -> None:
    """It lacks what works only in a shared library, and the C++ runtime's nothrow operators."""
    lines = call(
        "nm", "--extern-only", "--defined-only", prefix / "lib" / "libcairn.a"
    ).splitlines()
    names = {line.split()[2] for line in lines if len(line.split()) == 3}
    nothrow = {name for name in promised() if name.startswith("_Zn") and name.endswith("nothrow_t")}
    assert len(nothrow) == 4
    assert names == promised() - FOR_THE_LOADER - FOR_SANDBOXES - AT_THE_START - nothrow


def test_the_library_needs_only_libc_and_is_never_unloaded(prefix: Path) -> None:
    with (prefix / "lib" / "libcairn.so").open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        tags = {tag.entry.d_tag: tag for tag in dynamic.iter_tags()}
        assert [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] == ["libc.so.6"]
        assert tags["DT_SONAME"].soname == "libcairn.so.0"
        assert "DT_RUNPATH" not in tags and "DT_RPATH" not in tags
        never_unloaded, before_all_others, bound_at_once = 0x8, 0x20, 0x1
        flags = tags["DT_FLAGS_1"].entry.d_val
        assert flags & never_unloaded and flags & before_all_others and flags & bound_at_once
        storage = [
            segment["p_memsz"] for segment in elf.iter_segments() if segment["p_type"] == "PT_TLS"
        ]
        assert storage == [24], "the heap, the number of locks, and the caller (hardened)"


def test_the_fast_paths_are_short_and_call_nothing(prefix: Path) -> None:
    listing = call("objdump", "-d", "--no-show-raw-insn", prefix / "lib" / "libcairn.so")
    if "x86-64" not in listing:
        pytest.skip("the test counts instructions of x86-64 only")
    for function, most in FAST_PATHS.items():
        body = re.split(r"\bret", listing.split(f"<{function}>:\n")[1])[0]
        assert body.count("\n") <= most, body
        assert not re.search(r"\b(call|push)\b", body), body


def test_the_loader_s_functions_end_in_a_jump(prefix: Path) -> None:
    listing = call("objdump", "-d", "--no-show-raw-insn", prefix / "lib" / "libcairn.so")
    if "x86-64" not in listing:
        pytest.skip("the test reads code of x86-64 only")
    for function in FOR_THE_LOADER:
        body = listing.split(f"<{function}>:\n")[1].split("\n\n")[0]
        assert re.search(r"\bjmp\s+\*", body), body


def parts(listing: str, function: str) -> str:
    """Returns the code of a function, including rare parts that the compiler put into `.cold`."""
    heads = [head for name in (function, f"{function}.cold") if (head := f"<{name}>:\n") in listing]
    return "\n".join(listing.split(head)[1].split("\n\n", maxsplit=1)[0] for head in heads)


def test_functions_reach_their_slow_functions_by_a_jump(prefix: Path) -> None:
    listing = call("objdump", "-d", "--no-show-raw-insn", prefix / "lib" / "libcairn.so")
    if "x86-64" not in listing:
        pytest.skip("the test reads code of x86-64 only")
    for function, door in COLD_DOORS.items():
        body = parts(listing, function)
        # A jump may lead to a copy that the compiler made, or to the procedure linkage table.
        target = rf".*<{re.escape(door)}(\.\w+)*(@\w+)*>"
        assert re.search(rf"\bj\w+\s{target}", body), f"{function} does not jump to {door}\n{body}"
        assert not re.search(rf"\bcall\w*\s{target}", body), f"{function} calls {door}\n{body}"


@pytest.mark.parametrize(
    ("compiler", "standard"),
    [("gcc", "-std=c11"), ("gcc", "-std=gnu17"), ("g++", "-std=c++11"), ("g++", "-std=c++20")],
)
def test_the_header_compiles_by_itself(tmp_path: Path, compiler: str, standard: str) -> None:
    source = tmp_path / ("alone.c" if compiler == "gcc" else "alone.cpp")
    source.write_text(
        "#include <cairn/cairn.h>\n#include <cairn/cairn.h>\nint main(void) { return 0; }\n"
    )
    call(
        compiler,
        standard,
        *WARNINGS,
        "-pedantic",
        "-I",
        ROOT / "include",
        "-c",
        source,
        "-o",
        tmp_path / "alone.o",
    )


def test_programs_in_c_need_no_c_plus_plus(
    compiled_here: Callable[..., Path], prefix: Path
) -> None:
    """In the archive, the operators of C++ are a separate object, which no C program links."""
    program = compiled_here("footprint.c", prefix / "lib" / "libcairn.a")
    with program.open("rb") as file:
        needed = [
            tag.needed
            for tag in ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        ]
    assert needed == ["libc.so.6"]
