"""Tests that build pinned sources. Stand-ins take the place of cargo and pip.

The tests damage downloads, interrupt builds, and start them again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cairn.allocators import catalog, debian, discover, download, obtain, recipes, sources
from cairn.allocators.catalog import Allocator
from cairn.allocators.sources import Source
from cairn.errors import CairnError

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build libraries")

ENTRY = Allocator(name="jemalloc", title="jemalloc", libraries=("libpretend.so",), licence="MIT")

PARTS = {
    "malloc.c": """
#include <stddef.h>
static char area[4096]; static size_t used;
void *malloc(size_t size) { used += size; return area + used - size; }
void *calloc(size_t count, size_t each) { return malloc(count * each); }
void *realloc(void *block, size_t size) { return block == 0 ? malloc(size) : block; }
""",
    "free.c": "void free(void *block) { (void)block; }\n",
}

DRIVER = """
import sys
from pathlib import Path
from cairn.allocators import obtain, recipes, sources
from cairn.allocators.catalog import Allocator
from cairn.allocators.recipes import DRAFT, OBJECTS, Command, Plan, Stage
from cairn.allocators.sources import Source

def pretend(shop):
    names = sorted(path.name for path in shop.source.glob("*.c"))
    compiles = tuple(
        Command((shop.cc, "-fPIC", "-fno-builtin", "-c", name, "-o", DRAFT), makes=f"{OBJECTS}/{name}.o")
        for name in names
    )
    link = Command((shop.cc, "-shared", *(f"{OBJECTS}/{name}.o" for name in names), "-o", "lib.so"))
    return Plan((Stage("compiling", compiles), Stage("linking", (link,))), "lib.so", "libpretend.so")

recipes.RECIPES["pretend"] = pretend
"""
"""Code that adds a recipe for an invented allocator. It runs in this process, and in each process
that a test starts and kills."""

exec(DRIVER)


def crate(files: dict[str, str], top: str = "pretend-sys-1.2.3") -> bytes:
    """Returns a .crate file, which is a gzipped tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@dataclass
class Bench:
    """A cache, a cargo that serves the files in `served`, and compilers that record every call."""

    root: Path
    source: Source
    said: list[str] = field(default_factory=list)

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def served(self) -> Path:
        return self.root / "served"

    @property
    def cargos(self) -> Path:
        return self.root / "cargo-home/registry/cache/mirror" / self.source.archive

    @property
    def archive(self) -> Path:
        return self.cache / ".sources" / self.source.archive

    def calls(self, tool: str) -> list[str]:
        log = self.root / f"{tool}.log"
        return log.read_text().splitlines() if log.exists() else []

    def serve(self, content: bytes, *, pin: bool = True) -> None:
        self.served.write_bytes(content)
        if pin:
            self.source = replace(self.source, sha256=hashlib.sha256(content).hexdigest())

    def obtain(
        self, entry: Allocator = ENTRY, version: str | None = None, origin: str | None = None
    ) -> catalog.Found:
        return obtain.obtain(entry, version, origin, cache=self.cache, progress=self.said.append)

    def start(self) -> subprocess.Popen[bytes]:
        """Starts obtain() in a process of its own."""
        code = (
            f"{DRIVER}\nsources.sources_of = lambda name: (sources.{self.source!r},)\n"
            f"obtain.obtain({ENTRY!r}, cache=Path({str(self.cache)!r}))"
        )
        return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)

    def left(self) -> list[str]:
        """Returns everything in the allocator's folder except finished libraries."""
        home = self.cache / ENTRY.name
        return (
            sorted(p.name for p in home.iterdir() if not (p / discover.RECORD).exists())
            if home.exists()
            else []
        )


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    source = Source(
        allocator="jemalloc",
        version="9.8.7",
        kind="crate",
        package="pretend-sys",
        release="1.2.3",
        sha256="0" * 64,
        recipe="pretend",
        tools=("cc",),
        stand_ins=("libc 0.2.9999", "cc 1.9999.0 parallel"),
    )
    made = Bench(tmp_path, source)
    made.serve(crate(PARTS))
    tools = tmp_path / "bin"
    tools.mkdir()
    script(
        tools / "cargo",
        f'cat Cargo.toml stand-ins/*/Cargo.toml >>"{tmp_path}/project"; echo "$@" >>"{tmp_path}/cargo.log"\n'
        f'mkdir -p "$(dirname "{made.cargos}")" && cp "{made.served}" "{made.cargos}"',
    )
    script(
        tools / "slowcc",
        f'[ "$1" = --version ] || echo "$@" >>"{tmp_path}/cc.log"\n'
        f'case "$*" in *-c\\ malloc.c*) while [ -e "{tmp_path}/slow" ]; do sleep 0.05; done;; esac\nexec gcc "$@"',
    )
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("CC", str(tools / "slowcc"))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo-home"))
    monkeypatch.delenv("CARGO", raising=False)
    monkeypatch.setattr(
        sources, "sources_of", lambda name: (made.source,) if name == "jemalloc" else ()
    )
    return made


def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def processes_of(folder: Path) -> list[int]:
    """Returns the processes that name this folder or work in it."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                line = (entry / "cmdline").read_bytes() + os.readlink(entry / "cwd").encode()
                if str(folder).encode() in line:
                    found.append(int(entry.name))
    return found


# --- pinned sources ---


def test_every_source_has_its_allocator_its_recipe_and_its_crate() -> None:
    known = catalog.load_catalog()
    for source in sources.load_sources():
        entry = known.find(source.allocator)
        assert entry is not None
        assert entry.name == source.allocator
        assert source.recipe in recipes.RECIPES
        assert all(len(stand_in.split()) in (2, 3) for stand_in in source.stand_ins)
        assert set(source.tools) <= {"cc", "c++", "make", "cmake"}


def test_every_allocator_of_the_catalog_can_be_obtained() -> None:
    missing = [
        e.name
        for e in catalog.load_catalog().allocators
        if not e.comes_along and not obtain.obtainable(e)
    ]
    assert missing == []


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "a = 1", "source = [1]", "[[source]]", "[[source]]\nallocator = 'x'",
        "[[source]]\nallocator = 'x'\nversion = 1",
        "[[source]]\nallocator = 'x'\nversion = '1'\nkind = 'tarball'\npackage = 'p'\nrelease = "
        "'1'\nrecipe = 'r'\n"
        f"sha256 = '{'0' * 64}'",
        "[[source]]\nallocator = 'x'\nversion = '1'\nkind = 'crate'\npackage = 'p'\nrelease = "
        "'1'\nrecipe = 'r'\n"
        "sha256 = 'abc'",
        "[[source]]\nallocator = 'x'\nversion = '1'\nkind = 'crate'\npackage = '../p'\nrelease = "
        "'1'\nrecipe = 'r'\n"
        f"sha256 = '{'0' * 64}'",
        "[[source]]\nallocator = 'x'\nversion = '1'\nkind = 'wheel'\npackage = 'p'\nrelease = "
        "'1'\nrecipe = 'r'\n"
        f"sha256 = '{'0' * 64}'",
    ],
)  # fmt: skip
def test_a_damaged_list_of_sources_is_a_sentence(text: str) -> None:
    with pytest.raises(CairnError, match="install cairn again"):
        sources.read_sources(text)


# --- fetching and building ---


@needs_gcc
def test_a_source_is_fetched_by_cargo_and_built_into_the_cache(bench: Bench) -> None:
    found = bench.obtain()

    assert (found.title, found.problem, found.cached) == ("jemalloc 9.8.7", None, True)
    assert (found.origin, found.source_sha256) == ("crate pretend-sys 1.2.3", bench.source.sha256)
    assert found.path == str(bench.cache / "jemalloc" / "9.8.7+source" / "libpretend.so")
    record = json.loads(Path(found.path).with_name(discover.RECORD).read_text())
    assert (
        record["library_sha256"]
        == found.sha256
        == hashlib.sha256(Path(found.path).read_bytes()).hexdigest()
    )
    assert record["licence"] == "MIT"
    assert bench.left() == ["build.log"]
    assert [path.name for path in (bench.cache / ".sources").iterdir()] == [bench.source.archive]
    words = [text.removeprefix("jemalloc 9.8.7: ").split()[0] for text in bench.said]
    assert words == ["downloading", "compiling", "linking", "built"]
    assert bench.calls("cargo") == ["fetch"]


@needs_gcc
def test_cargo_fetches_only_the_crate(bench: Bench) -> None:
    bench.obtain()
    project = (bench.root / "project").read_text()
    assert 'pretend-sys = "=1.2.3"' in project
    assert 'libc = { path = "stand-ins/libc" }' in project
    assert 'name = "cc"\nversion = "1.9999.0"' in project
    assert "parallel = []" in project


@needs_gcc
def test_the_second_call_needs_neither_cargo_nor_a_compiler(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.obtain()
    monkeypatch.setenv("PATH", str(bench.root))
    monkeypatch.setenv("CC", "/nonexistent")
    started = time.monotonic()
    assert bench.obtain() == first
    assert time.monotonic() - started < 1


@needs_gcc
def test_a_change_of_the_recipe_or_of_the_pin_causes_a_new_build(bench: Bench) -> None:
    first = bench.obtain()
    bench.source = replace(bench.source, revision=2)
    bench.obtain()
    assert len(bench.calls("cc")) == 6
    assert bench.calls("cargo") == ["fetch"]
    bench.serve(crate({**PARTS, "more.c": "int more;\n"}))
    assert bench.obtain().source_sha256 != first.source_sha256
    assert bench.calls("cargo") == ["fetch", "fetch"]
    assert bench.left() == ["build.log"]


@needs_gcc
def test_a_crate_in_cargos_cache_is_not_downloaded_again(bench: Bench) -> None:
    bench.cargos.parent.mkdir(parents=True)
    shutil.copy(bench.served, bench.cargos)
    bench.obtain()
    assert bench.calls("cargo") == []
    assert bench.cargos.exists()


def test_a_wrong_checksum_is_refused_and_the_file_removed(bench: Bench) -> None:
    bench.serve(crate({"malloc.c": "other\n"}), pin=False)
    with pytest.raises(
        CairnError, match=r"has the sha256 .* instead of the pinned .* and was deleted"
    ) as caught:
        bench.obtain()
    assert "\n" not in str(caught.value)
    assert not bench.cargos.exists()
    assert not bench.archive.exists()
    assert bench.left() == []
    assert bench.calls("cc") == []


@needs_gcc
def test_a_damaged_download_is_fetched_again(bench: Bench) -> None:
    for place in (bench.cargos, bench.archive):
        place.parent.mkdir(parents=True)
        place.write_bytes(bench.served.read_bytes()[:-7])
    assert bench.obtain().problem is None
    assert bench.calls("cargo") == ["fetch"]


def test_a_failure_of_cargo_is_reported_with_its_reason(bench: Bench) -> None:
    script(
        bench.root / "bin/cargo",
        "echo '    Updating index'; echo 'error: no route to the registry' >&2; exit 101",
    )
    with pytest.raises(
        CairnError, match=r"cargo could not fetch it .no route to the registry"
    ) as caught:
        bench.obtain()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("top", ["..", "/tmp", "pretend-sys-1.2.3/..", "pretend-sys-1.2.4", ""])
def test_an_archive_that_leads_outside_is_refused(bench: Bench, top: str) -> None:
    bench.serve(crate({"evil.c": "x"}, top))
    with pytest.raises(CairnError, match="cannot be unpacked"):
        bench.obtain()
    assert not list(bench.root.rglob("evil.c"))


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08", b"no archive"])
def test_a_file_that_is_no_archive_is_a_sentence(bench: Bench, content: bytes) -> None:
    bench.serve(content)
    with pytest.raises(
        CairnError, match=r"jemalloc 9\.8\.7 is not obtainable here: .*cannot be unpacked"
    ):
        bench.obtain()


# --- missing tools and versions ---


def test_a_missing_tool_is_named_with_its_package(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(bench.root))
    monkeypatch.setenv("CC", "/nonexistent")
    with pytest.raises(
        CairnError, match=r"needs cargo and a C compiler .Debian: apt-get install cargo gcc"
    ):
        bench.obtain()
    assert bench.left() == []


def test_without_the_tools_for_a_build_the_distribution_is_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.source = replace(bench.source, tools=("no-such-tool",))
    entry = replace(ENTRY, packages=("libpretend9",))
    asked: list[str | None] = []

    def unpack(
        entry: Allocator, *_: object, version: str | None = None, **__: object
    ) -> catalog.Found:
        asked.append(version)
        return catalog.Found(entry, "/x", version="9.8.1")

    monkeypatch.setattr(debian, "unpack_from_distribution", unpack)
    assert bench.obtain(entry).version == "9.8.1"
    assert any("taking the distribution's package instead" in text for text in bench.said)
    with pytest.raises(CairnError, match="no-such-tool"):
        bench.obtain(entry, origin="source")
    assert asked == [None]


@pytest.mark.parametrize("version", [None, "9.7"])
def test_the_refusal_of_a_version_names_the_pinned_source(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """The version of the source is mentioned only to a user who asked for a version."""

    def refuse(*_: object, **__: object) -> catalog.Found:
        raise CairnError("the distribution has 5.")

    monkeypatch.setattr(debian, "unpack_from_distribution", refuse)
    with pytest.raises(CairnError) as refused:
        bench.obtain(replace(ENTRY, packages=("libpretend9",)), version, "distribution")
    more = " The pinned source is 9.8.7." if version else ""
    assert str(refused.value) == f"the distribution has 5.{more}"


def test_a_version_is_taken_from_the_origin_that_has_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replace(ENTRY, packages=("libpretend9",))
    monkeypatch.setattr(
        debian,
        "unpack_from_distribution",
        lambda e, *_, version=None, **__: catalog.Found(e, "/d", version=version),
    )
    assert bench.obtain(entry, "9.7").path == "/d"
    assert bench.obtain(entry, origin="distribution").path == "/d"
    with pytest.raises(
        CairnError, match=r"jemalloc 9\.7 is not obtainable here: the pinned source is 9\.8\.7"
    ):
        bench.obtain(ENTRY, "9.7")
    with pytest.raises(CairnError, match="--from source forbids"):
        bench.obtain(entry, "9.7", "source")


@needs_gcc
def test_a_requested_version_is_built(bench: Bench) -> None:
    assert bench.obtain(replace(ENTRY, packages=("p",)), "9.8").version == "9.8.7"


def test_the_system_allocator_is_never_fetched(bench: Bench) -> None:
    with pytest.raises(CairnError, match="never fetched"):
        bench.obtain(catalog.entry("system"))


def test_a_source_for_another_machine_is_refused(bench: Bench) -> None:
    bench.source = replace(bench.source, machines=("z80",))
    with pytest.raises(CairnError, match="is for z80, and this machine is"):
        bench.obtain()


# --- failures of a build ---


def test_a_compiler_that_fails_is_a_sentence_with_the_log(bench: Bench) -> None:
    bench.serve(crate({"malloc.c": "#error this machine is too old\n"}))
    with pytest.raises(
        CairnError, match=r"cannot be built here: .*this machine is too old.*build\.log"
    ) as caught:
        bench.obtain()
    assert "\n" not in str(caught.value)
    assert "too old" in (bench.cache / "jemalloc/build.log").read_text()
    assert discover.find_cached(catalog.load_catalog(), bench.cache) == ()


def test_a_full_disk_is_a_sentence(bench: Bench) -> None:
    script(bench.root / "bin/slowcc", "echo 'x.s: fatal error: No space left on device'; exit 1")
    with pytest.raises(CairnError, match=r"no space left in .*set XDG_CACHE_HOME"):
        bench.obtain()
    assert discover.find_cached(catalog.load_catalog(), bench.cache) == ()


def test_a_cache_that_cannot_be_written_is_a_sentence(bench: Bench) -> None:
    bench.cache.write_text("a file")
    with pytest.raises(CairnError, match="set XDG_CACHE_HOME"):
        bench.obtain()


@needs_gcc
def test_a_library_without_malloc_is_refused(bench: Bench) -> None:
    bench.serve(crate({"other.c": "int other;\n"}))
    with pytest.raises(CairnError, match="defines no malloc"):
        bench.obtain()


@needs_gcc
def test_a_killed_build_is_continued_by_the_next_call(bench: Bench) -> None:
    (bench.root / "slow").touch()
    process = bench.start()
    objects = bench.cache / "jemalloc" / f".objects-{bench.source.identity}"
    until(
        lambda: (
            (objects / "free.c.o").exists()
            and any("malloc.c" in call for call in bench.calls("cc"))
        )
    )
    process.kill()
    process.communicate()
    if shutil.which("setpriv"):
        until(lambda: not processes_of(bench.cache))
    (bench.root / "slow").unlink()
    assert discover.find_cached(catalog.load_catalog(), bench.cache) == ()

    found = bench.obtain()

    assert found.problem is None
    assert sum("-c free.c" in call for call in bench.calls("cc")) == 1
    assert any("1 of them finished by an earlier build" in text for text in bench.said)
    assert bench.left() == ["build.log"]
    assert bench.calls("cargo") == ["fetch"]


@needs_gcc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_compiler(
    bench: Bench, cairn: Any, number: signal.Signals
) -> None:
    (bench.root / "slow").touch()
    home = bench.root / "home"
    home.mkdir(exist_ok=True)
    code = (
        f"{DRIVER}\nfrom cairn import cli\nsources.sources_of = lambda name: "
        f"(sources.{bench.source!r},)\n"
        "sys.argv = ['cairn', 'allocators', 'get', 'jemalloc']; cli.main()"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(bench.root / "xdg"), "HOME": str(home)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE
    )
    until(lambda: any("malloc.c" in call for call in bench.calls("cc")))
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert b"Traceback" not in told
    until(lambda: not processes_of(bench.root))
    home = bench.root / "xdg/cairn/allocators/jemalloc"
    assert sorted(path.name.partition("-")[0] for path in home.iterdir()) == [
        ".objects",
        "build.log",
    ]


@needs_gcc
def test_two_builds_at_once_compile_only_once(bench: Bench) -> None:
    started = [bench.start() for _ in range(3)]
    for process in started:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told.decode()
    assert len(bench.calls("cc")) == 3
    assert bench.calls("cargo") == ["fetch"]
    assert bench.left() == ["build.log"]


# --- wheels ---


def wheel(library: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("libtbbmalloc_proxy.so.2", "libtbbmalloc.so.2", "libtbb.so.12"):
            archive.writestr(f"tbb-1.data/data/lib/{name}", library)
    return buffer.getvalue()


@pytest.fixture
def tbb(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A pip that serves the files in `served` under the requested name."""
    built = bench.root / "x.so"
    text = "".join(PARTS.values())
    subprocess.run(
        ["gcc", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", "-o", str(built)],
        input=text,
        text=True,
        check=True,
    )
    bench.source = replace(
        bench.source, kind="wheel", package="tbb", release="1", file="tbb-1-py3-none-any.whl",
        recipe="tbbmalloc", tools=(), stand_ins=(),
    )  # fmt: skip
    bench.serve(wheel(built.read_bytes()))
    script(
        bench.root / "bin/pretend-pip",
        f'echo "$@" >>"{bench.root}/pip.log"; cat requirements.txt >>"{bench.root}/pip.log"\n'
        f'mkdir -p out && cp "{bench.served}" out/{bench.source.file}',
    )
    monkeypatch.setattr(download, "_pip", lambda: [str(bench.root / "bin/pretend-pip")])
    return bench


@needs_gcc
def test_a_wheel_is_fetched_by_pip_and_unpacked(tbb: Bench) -> None:
    found = tbb.obtain()
    assert (found.version, found.origin) == ("9.8.7", "wheel tbb 1")
    files = sorted(path.name for path in Path(found.path or "").parent.iterdir())
    assert files == ["libtbbmalloc.so.2", "libtbbmalloc_proxy.so.2", discover.RECORD]
    command, requirement = tbb.calls("pip")
    assert command.startswith("download --no-deps --only-binary :all: ")
    assert "--require-hashes" in command
    assert requirement == f"tbb==1 --hash=sha256:{tbb.source.sha256}"


@needs_gcc
def test_a_wheel_of_another_checksum_is_refused(tbb: Bench) -> None:
    tbb.serve(b"other", pin=False)
    with pytest.raises(CairnError, match=r"has the sha256 .* and was deleted"):
        tbb.obtain()
    assert not tbb.archive.exists()
    script(
        tbb.root / "bin/pretend-pip", "echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES'; exit 1"
    )
    with pytest.raises(CairnError, match=r"pip could not fetch it .THESE PACKAGES DO NOT MATCH"):
        tbb.obtain()
