"""The build recipes of the pinned sources: the commands that make a library to preload.

A recipe reads the unpacked source, may change it, and returns a Plan. It runs no command itself.
Commands name paths relative to their folder, so that a source gives the same library wherever it is
built.

The flags are those with which the allocator's own project builds its preload library. No flag tunes
for the building machine (`-march=native`), so that results are the same on other machines.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

OBJECTS = "objects"
"""The folder for object files. They are kept when a build is interrupted."""

DRAFT = "{draft}"
"""The word in a command that stands for its output file.

When the command has succeeded, the file is renamed to the command's `makes`.
"""


class Command(Struct, frozen=True):
    """One command, run in `folder` of the source.

    makes: the path of the file that the command makes, or None. If the file exists, the command is
    skipped.
    """

    argv: tuple[str, ...]
    folder: str = "."
    makes: str | None = None


class Stage(Struct, frozen=True):
    """Commands that may run at the same time. `says` describes them to the user."""

    says: str
    commands: tuple[Command, ...]


class Plan(Struct, frozen=True):
    """The stages of a build, in order, and the files that they make."""

    stages: tuple[Stage, ...]
    library: str
    """The path of the library that the stages make, in the source."""
    name: str
    """The file name of the library in the cache."""
    beside: tuple[str, ...] = ()
    """The paths of further files of the source that must lie beside the library in the cache."""


class Workshop(Struct, frozen=True):
    """The input of a recipe."""

    source: Path
    """The folder of the unpacked source."""
    tools: dict[str, str]
    """The paths of the tools, by the names that `sources.toml` uses."""
    release: str
    """The version of the package in the registry."""
    jobs: int = 1
    """The number of compilers that may run at the same time."""

    @property
    def cc(self) -> str:
        """The C compiler."""
        return self.tools["cc"]

    @property
    def cxx(self) -> str:
        """The C++ compiler."""
        return self.tools["c++"]


_SHARED = ("-shared", "-Wl,--build-id")


def _one_compile(argv: tuple[str, ...], library: str, folder: str = ".") -> Plan:
    """A plan of a single command that writes `library`."""
    stage = Stage("compiling", (Command((*argv, "-o", os.path.relpath(library, folder)), folder),))
    return Plan((stage,), library, os.path.basename(library))


def jemalloc(shop: Workshop) -> Plan:
    """Configures and builds jemalloc. The crate has the generated `configure` in another folder."""
    home = shop.source / "jemalloc"
    shutil.copyfile(shop.source / "configure" / "configure", home / "configure")
    version = shop.release.partition("+")[2]
    (home / "VERSION").write_text(version + "\n", encoding="ascii")
    options = ("--disable-doc", "--disable-static", f"--with-version={version}")
    stages = (
        Stage(
            "configuring",
            (
                Command(
                    ("sh", "configure", *options, f"CC={shop.cc}", f"CXX={shop.cxx}"), "jemalloc"
                ),
            ),
        ),
        Stage(
            "compiling",
            (Command((shop.tools["make"], f"-j{shop.jobs}", "build_lib_shared"), "jemalloc"),),
        ),
    )
    return Plan(stages, "jemalloc/lib/libjemalloc.so.2", "libjemalloc.so.2")


def _mimalloc_folder(shop: Workshop, generation: int) -> str:
    folders = [f"c_src/mimalloc/v{generation}", f"c_src/mimalloc{generation}"]
    if generation == 2:
        folders.append("c_src/mimalloc")
    return next(name for name in folders if (shop.source / name / "src" / "static.c").is_file())


def _mimalloc(shop: Workshop, generation: int) -> Plan:
    folder = _mimalloc_folder(shop, generation)
    flags = (
        "-O3", "-DNDEBUG", "-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT",
        "-std=gnu11", "-fPIC",
        "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-Iinclude",
        "-pthread",
    )  # fmt: skip
    return _one_compile(
        (shop.cc, *flags, *_SHARED, "src/static.c"), f"{folder}/libmimalloc.so.{generation}", folder
    )


def mimalloc2(shop: Workshop) -> Plan:
    """Generation 2 of mimalloc: compiles the one file that includes all others.

    Two crates contain mimalloc, in folders of different names.
    """
    return _mimalloc(shop, 2)


def mimalloc3(shop: Workshop) -> Plan:
    """Generation 3 of mimalloc, from the same crates."""
    return _mimalloc(shop, 3)


def snmalloc(shop: Workshop) -> Plan:
    """Builds snmalloc with CMake. Its CMake files find out which flags the compiler has."""
    options = (
        "-DCMAKE_BUILD_TYPE=Release", "-DSNMALLOC_BUILD_TESTING=OFF",
        "-DSNMALLOC_HEADER_ONLY_LIBRARY=OFF",
        f"-DCMAKE_CXX_COMPILER={shop.cxx}", f"-DCMAKE_MAKE_PROGRAM={shop.tools['make']}",
    )  # fmt: skip
    cmake = shop.tools["cmake"]
    build = ("--build", "build", "--target", "snmallocshim", "-j", str(shop.jobs))
    stages = (
        Stage(
            "configuring",
            (Command((cmake, "-S", "upstream", "-B", "build", "-G", "Unix Makefiles", *options)),),
        ),
        Stage("compiling", (Command((cmake, *build)),)),
    )
    return Plan(stages, "build/libsnmallocshim.so", "libsnmallocshim.so")


def rpmalloc(shop: Workshop) -> Plan:
    """Compiles `rpmalloc.c`, which includes `malloc.c`.

    `malloc.c` overrides malloc, and starts the allocator when the library is preloaded.
    """
    flags = (
        "-O3", "-DNDEBUG", "-D_GNU_SOURCE", "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1",
        "-std=gnu11", "-fPIC",
        "-ftls-model=initial-exec", "-fno-builtin-malloc", "-pthread",
    )  # fmt: skip
    folder = "rpmalloc/rpmalloc"
    return _one_compile(
        (shop.cc, *flags, *_SHARED, "rpmalloc.c", "-ldl"), f"{folder}/librpmallocwrap.so", folder
    )


_TCMALLOC_EXPORTS = """{
global:
  malloc; free; calloc; realloc; reallocarray; cfree; memalign; aligned_alloc; posix_memalign;
  valloc; pvalloc;
  free_sized; free_aligned_sized; sdallocx; nallocx; malloc_usable_size; malloc_size; malloc_stats;
  malloc_info;
  malloc_trim; mallopt; mallinfo; mallinfo2; MallocExtension_*; tcmalloc_*; TCMalloc_*;
  _Znw*; _Zna*; _Zdl*; _Zda*;
local: *;
};
"""
"""The exported symbols of google-tcmalloc. All others are hidden, because the copy of abseil in the
library must not replace the program's own abseil."""


def google_tcmalloc(shop: Workshop) -> Plan:
    """Compiles the files named by the crate's own build script.

    tcmalloc.cc, which overrides malloc, takes the place of the crate's bridge to Rust.
    """
    script = (shop.source / "build.rs").read_text(encoding="utf-8")
    named = dict.fromkeys(re.findall(r'"(c_src/[\w./+-]+\.(?:cc|S))"', script))
    files = [name for name in named if not name.endswith("_bridge.cc")] + [
        "c_src/tcmalloc/tcmalloc/tcmalloc.cc"
    ]
    flags = (
        "-O3", "-std=c++17", "-DNDEBUG", "-DNOMINMAX", "-DTCMALLOC_INTERNAL_8K_PAGES", "-fPIC",
        "-ftls-model=initial-exec", "-fno-builtin-malloc", "-Ic_src/abseil-cpp",
        "-Ic_src/tcmalloc", "-w", "-pthread",
    )  # fmt: skip
    (shop.source / "exports.map").write_text(_TCMALLOC_EXPORTS, encoding="ascii")
    compiles = []
    for file in files:
        made = f"{OBJECTS}/{file.removeprefix('c_src/').replace('/', '-')}.o"
        compiles.append(Command((shop.cxx, *flags, "-c", file, "-o", DRAFT), makes=made))
    # Large files first: a long compile at the end would leave the other processors idle.
    compiles.sort(
        key=lambda command: (
            -(shop.source / command.argv[command.argv.index("-c") + 1]).stat().st_size
        )
    )
    objects = tuple(str(command.makes) for command in compiles)
    library = "libgoogle-tcmalloc.so"
    link = Command(
        (
            shop.cxx,
            *_SHARED,
            "-Wl,--version-script=exports.map",
            *objects,
            "-pthread",
            "-o",
            library,
        )
    )
    return Plan((Stage("compiling", tuple(compiles)), Stage("linking", (link,))), library, library)


def _hardened(shop: Workshop, config: str, library: str) -> Plan:
    defines = []
    for line in (shop.source / f"config-{config}.conf").read_text(encoding="utf-8").splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#") and key != "CONFIG_SEAL_METADATA":
            defines.append(f"-D{key}={value}")
    folder = "vendor/hardened-malloc"
    # These headers define keywords of C23, which older compilers lack.
    older = ("-include", "stdalign.h", "-include", "stdbool.h", "-include", "assert.h")
    flags = (
        "-O3", "-std=c2x", "-D_GNU_SOURCE", *defines, "-DCONFIG_SEAL_METADATA=false", *older,
        "-fPIC",
        "-fvisibility=hidden", "-fno-plt", "-fno-builtin-malloc", "-fstack-clash-protection",
        "-fstack-protector-strong", "-Iinclude", "-Ithird_party", "-I.", "-pthread",
    )  # fmt: skip
    files = tuple(
        f"{name}.c" for name in ("util", "chacha", "h_malloc", "memory", "pages", "random")
    )
    link = ("-Wl,-O1,--as-needed,-z,defs,-z,relro,-z,now,-z,nodlopen,-z,text",)
    return _one_compile((shop.cc, *flags, *_SHARED, *link, *files), f"{folder}/{library}", folder)


def hardened(shop: Workshop) -> Plan:
    """hardened_malloc with the project's default protections."""
    return _hardened(shop, "default", "libhardened_malloc.so")


def hardened_light(shop: Workshop) -> Plan:
    """hardened_malloc with the cheaper protections of the project's "light" configuration."""
    return _hardened(shop, "light", "libhardened_malloc-light.so")


def scudo(shop: Workshop) -> Plan:
    """Builds scudo as LLVM builds its standalone library.

    The library has the C interface and C++'s operators, and needs no C++ library. Only
    `crc32_hw.cpp` is compiled for the CRC instruction; scudo uses that instruction only if the
    processor has it.
    """
    flags = (
        "-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
        "-nostdinc++",
        "-fno-builtin-malloc", "-ffunction-sections", "-fdata-sections", "-Iinclude", "-I.", "-w",
        "-pthread",
    )  # fmt: skip
    folder = "scudo-standalone"
    names = sorted(
        path.name
        for path in (shop.source / folder).glob("*.cpp")
        if path.name != "wrappers_c_bionic.cpp"
    )
    crc = {"x86_64": ("-msse4.2",), "aarch64": ("-march=armv8-a+crc",)}.get(os.uname().machine, ())
    compiles = []
    for name in names:
        own = crc if name == "crc32_hw.cpp" else ()
        made = f"../{OBJECTS}/{name}.o"
        compiles.append(
            Command((shop.cxx, *flags, *own, "-c", name, "-o", DRAFT), folder, makes=made)
        )
    library = "libclang_rt.scudo_standalone.so"
    hardening = ("-Wl,-z,defs,-z,now,-z,relro,--gc-sections", "-nodefaultlibs")
    libraries = ("-lpthread", "-ldl", "-lc", "-lgcc")
    objects = tuple(str(command.makes) for command in compiles)
    link = Command((shop.cxx, *_SHARED, *hardening, *objects, *libraries, "-o", library), folder)
    return Plan(
        (Stage("compiling", tuple(compiles)), Stage("linking", (link,))),
        f"{folder}/{library}",
        library,
    )


def tbbmalloc(shop: Workshop) -> Plan:
    """Takes tbbmalloc from the wheel, which contains the compiled libraries.

    libtbbmalloc_proxy overrides malloc, and needs libtbbmalloc in the same folder.
    """
    lib = next(shop.source.glob("*.data/data/lib")).relative_to(shop.source)
    return Plan(
        (),
        f"{lib}/libtbbmalloc_proxy.so.2",
        "libtbbmalloc_proxy.so.2",
        (f"{lib}/libtbbmalloc.so.2",),
    )


def hoard(shop: Workshop) -> Plan:
    """Builds Hoard, after copying Heap-Layers into its source and removing the malloc hooks.

    The crate has Heap-Layers beside Hoard's source, but Hoard's build expects it inside. glibc 2.34
    removed the hooks.

    This recipe does not use Hoard's flag -ffast-math: with that flag gcc 12 links start-up code,
    which changes the floating point arithmetic of the whole program that loads the library. Without
    -fno-semantic-interposition, which clang implies, gcc refuses to inline functions that Hoard
    wants inlined.
    """
    shutil.copytree(shop.source / "Heap-Layers", shop.source / "Hoard" / "src" / "Heap-Layers")
    wrapper = shop.source / "Hoard" / "src" / "Heap-Layers" / "wrappers" / "gnuwrapper.cpp"
    text = wrapper.read_text(encoding="utf-8")
    wrapper.write_text(text.replace('#include "gnuwrapper-hooks.cpp"', ""), encoding="utf-8")
    flags = (
        "-std=c++14", "-O3", "-DNDEBUG", "-fno-builtin-malloc", "-fPIC",
        "-fno-semantic-interposition", "-w",
        "-D_REENTRANT=1", "-I.", "-Iinclude", "-Iinclude/util", "-Iinclude/hoard",
        "-Iinclude/superblocks",
        "-IHeap-Layers", "-pthread",
    )  # fmt: skip
    sources = ("source/libhoard.cpp", "source/unixtls.cpp")
    return _one_compile(
        (shop.cxx, *flags, *_SHARED, *sources, "-ldl"), "Hoard/src/libhoard.so", "Hoard/src"
    )


def version_of(recipe: str, shop: Workshop) -> str | None:
    """The version of the allocator in a source that is not pinned; None if the source has none.

    Only the sources of these recipes name it in a known place. The crates of the other allocators
    have numbers of their own, which say nothing about the allocator's version.
    """
    if recipe in ("mimalloc2", "mimalloc3"):
        folder = _mimalloc_folder(shop, int(recipe[-1]))
        path = shop.source / folder / "include" / "mimalloc.h"
        text = path.read_text(encoding="utf-8", errors="replace")
        # The number is the major version, then two digits each of the minor version and the patch.
        number = re.search(r"#define MI_MALLOC_VERSION\s+(\d+)(\d\d)(\d\d)\b", text)
        return ".".join(str(int(part)) for part in number.groups()) if number else None
    if recipe == "jemalloc":
        return shop.release.partition("+")[2].partition("-")[0] or None
    if recipe in ("snmalloc", "tbbmalloc"):
        return shop.release
    return None


RECIPES: dict[str, Callable[[Workshop], Plan]] = {
    recipe.__name__: recipe
    for recipe in (
        jemalloc, mimalloc2, mimalloc3, snmalloc, rpmalloc, google_tcmalloc, hardened,
        hardened_light, scudo, tbbmalloc,
        hoard,
    )
}  # fmt: skip
"""The recipes, by the names that `sources.toml` uses for them."""
