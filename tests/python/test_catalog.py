"""Tests of the catalog, of the argument of `-a`, and of the search for installed allocators."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import string
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.widths import at_all_widths

from cairn.allocators import catalog, contenders, discover, download
from cairn.allocators.catalog import Found
from cairn.allocators.contenders import ContenderSpec
from cairn.binary.library import carries, inspect_library
from cairn.binary.program import inspect_program
from cairn.cli import allocator_list
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.report.view import View

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build libraries")

MALLOC = """
#include <stddef.h>
static char area[4096]; static size_t used;
void *malloc(size_t size) { used += size; return area + used - size; }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t each) { return malloc(count * each); }
void *realloc(void *block, size_t size) { return block == 0 ? malloc(size) : block; }
"""

Compile = Callable[..., Path]


@pytest.fixture
def compile_to() -> Compile:
    def build(target: Path, source: str, *flags: str) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [
            "gcc",
            "-fno-builtin",
            "-shared",
            "-fPIC",
            "-x",
            "c",
            "-",
            "-x",
            "none",
            "-o",
            str(target),
            *flags,
        ]
        subprocess.run(command, input=source, text=True, check=True, cwd=target.parent)
        return target

    return build


@pytest.fixture
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where only LD_LIBRARY_PATH and the cache contain libraries."""
    monkeypatch.setattr(discover, "_loader_cache", lambda: ())
    folders = discover._library_folders
    monkeypatch.setattr(
        discover,
        "_library_folders",
        lambda: [f for f in folders() if not f.startswith(("/usr", "/lib"))],
    )
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


# --- the catalog ---


def test_the_catalog_holds_every_peer_and_no_name_twice() -> None:
    known = catalog.load_catalog()
    peers = {
        "system", "cairn", "jemalloc", "mimalloc", "mimalloc3", "snmalloc", "rpmalloc", "tcmalloc",
        "google-tcmalloc", "hardened", "scudo", "tbbmalloc", "hoard",
    }  # fmt: skip
    assert peers <= {entry.name for entry in known.allocators}
    assert len(set(known.names)) == len(known.names)
    glibc = known.find("glibc")
    assert glibc is not None
    assert glibc.is_system


def test_every_alias_finds_its_allocator() -> None:
    for entry in catalog.load_catalog().allocators:
        for name in (entry.name, *entry.aliases):
            assert contenders.parse_contender(name).allocator == entry.name


def test_no_library_pattern_fits_two_allocators() -> None:
    entries = catalog.load_catalog().allocators
    for entry in entries:
        for pattern in entry.libraries:
            assert [
                e.name for e in entries if discover._names(e).match(pattern.replace("*", "5"))
            ] == [entry.name]
    debug = "libtcmalloc_minimal_debug.so.4"
    assert not any(discover._names(entry).match(debug) for entry in entries)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "a = 1", "[[allocator]]", "[[allocator]]\nname = 'x'\ntitle = 'x'",
        "allocator = [1]", "[[allocator]]\nname = 'system'\ntitle = 'x'\nlayuot = 'sequential'",
        "[[allocator]]\nname = 'system'\ntitle = 'x'\nlayout = 'round'",
        "[[allocator]]\nname = 'system'\ntitle = 1",
        "[[allocator]]\nname = 'system'\ntitle = 'x'\nhardened = 'no'",
        "[[allocator]]\nname = 'system'\ntitle = 'x'\nours = 'lib.so'",
        "[[allocator]]\nname = 'system'\ntitle = 'x'\naliases = ['system']",
        "[[allocator]]\nname = 'a b'\ntitle = 'x'", "[[allocator]]\nname = 'custom'\ntitle = 'x'",
        "[[allocator]]\nname = 'system'\ntitle = 'x'\nfaults = ['it is slow']",
    ],
)  # fmt: skip
def test_a_damaged_catalog_is_a_sentence(text: str) -> None:
    with pytest.raises(CairnError, match="install cairn again"):
        catalog.read_catalog(text)


def test_a_known_fault_belongs_to_one_release_only() -> None:
    entry = catalog.entry("mimalloc")
    (fault,) = Found(entry, "/x", version="2.0.9").faults
    assert "aligned_alloc" in fault and "2.0.9" not in fault
    for other in ("2.0.90", "2.3.2", "2.0", None):
        assert Found(entry, "/x", version=other).faults == ()


# --- the grammar ---


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("system", ContenderSpec("system", "system")),
        ("glibc", ContenderSpec("glibc", "system")),
        ("jemalloc@5.3.0", ContenderSpec("jemalloc@5.3.0", "jemalloc", version="5.3.0")),
        ("again=system", ContenderSpec("again", "system")),
        (
            "system:MALLOC_ARENA_MAX=2",
            ContenderSpec(
                "system:MALLOC_ARENA_MAX=2", "system", knobs=(("MALLOC_ARENA_MAX", "2"),)
            ),
        ),
        (
            "je-bg=jemalloc@5:MALLOC_CONF=background_thread:true,narenas:2;X=",
            ContenderSpec(
                "je-bg",
                "jemalloc",
                version="5",
                knobs=(("MALLOC_CONF", "background_thread:true,narenas:2"), ("X", "")),
            ),
        ),
        (
            "t=system:GLIBC_TUNABLES=glibc.malloc.a=1:glibc.malloc.b=2",
            ContenderSpec(
                "t", "system", knobs=(("GLIBC_TUNABLES", "glibc.malloc.a=1:glibc.malloc.b=2"),)
            ),
        ),
        ("system+probe", ContenderSpec("system+probe", "system", probed=True)),
        ("mine=/x.so+probe", ContenderSpec("mine", "custom", path="/x.so", probed=True)),
        (
            "jemalloc@5+probe:A=b",
            ContenderSpec(
                "jemalloc@5+probe:A=b", "jemalloc", version="5", knobs=(("A", "b"),), probed=True
            ),
        ),
        ("/x/libmine.so.2", ContenderSpec("libmine", "custom", path="/x/libmine.so.2")),
        ("mine=./a=b@1/lib.so", ContenderSpec("mine", "custom", path="./a=b@1/lib.so")),
        ("./a=b/lib.so", ContenderSpec("lib", "custom", path="./a=b/lib.so")),
        ("mine=/x.so:A=b", ContenderSpec("mine", "custom", path="/x.so", knobs=(("A", "b"),))),
        ("<b>ü 😀=system", ContenderSpec("<b>ü 😀", "system")),
    ],
)
def test_a_spec_means(spec: str, expected: ContenderSpec) -> None:
    assert contenders.parse_contender(spec) == expected
    assert contenders.split_contenders(spec) == (spec,)


def test_the_same_allocator_behind_the_probe() -> None:
    for spec in ("jemalloc@5:A=b", "je=jemalloc@5:A=b", "jemalloc@5+probe:A=b"):
        assert contenders.behind_probe(spec) == "jemalloc@5+probe:A=b"


def test_the_name_of_a_library_file_may_end_in_plus_probe(tmp_path: Path) -> None:
    path = tmp_path / "lib.so+probe"
    path.touch()
    assert contenders.parse_contender(str(path)) == ContenderSpec("lib", "custom", path=str(path))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("jemaloc", "did you mean jemalloc"),
        ("JEMALLOC", "did you mean jemalloc"),
        ("linked", "prints: -a linked=PATH"),
        ("quux", "To name a library file, give a path"),
        ("", "names no allocator"),
        ("x=", "names no allocator"),
        (":A=b", "names no allocator"),
        ("=system", "empty name"),
        ("  =system", "empty name"),
        ("n" * 65 + "=system", "longer than 64"),
        ("a\nb=system", "cannot be printed"),
        ("a\x1b[31m=system", "cannot be printed"),
        ("\u202e=system", "cannot be printed"),
        ("jemalloc@", "no version after '@'"),
        ("system:", "is not an environment variable"),
        ("system:A", "is not an environment variable"),
        ("system:A=1;", "is not an environment variable"),
        ("system:A=1;B", "is not an environment variable"),
        ("system:1A=1", "cannot be an environment variable"),
        ("system: A=1", "cannot be an environment variable"),
        ("system:=1", "cannot be an environment variable"),
        ("system:A=1;A=2", "sets A twice"),
        ("system:LD_PRELOAD=x", "cairn itself sets"),
        ("system:LD_AUDIT=x", "cairn itself sets"),
        ("system:CAIRN_WITNESS=x", "cairn itself sets"),
        ("system:A=\0", "zero byte"),
    ],
)
def test_a_bad_spec_is_refused_with_a_next_step(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        contenders.parse_contender(spec)
    assert str(caught.value).endswith(".")


def test_the_name_of_a_file_without_a_slash_gets_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "libmine.so").write_text("")
    with pytest.raises(UsageError, match=r"write \./libmine\.so"):
        contenders.parse_contender("libmine.so")


def test_a_path_with_a_colon_is_no_knob(tmp_path: Path) -> None:
    path = tmp_path / "a:b.so"
    path.write_text("")
    for spec in (str(path), f"mine={path}"):
        assert contenders.split_contenders(spec) == (spec,)
        with pytest.raises(ContenderFailed, match="LD_PRELOAD cannot carry"):
            contenders.parse_contender(spec)


def test_commas_separate_specs_without_knobs() -> None:
    assert contenders.split_contenders("system,je=jemalloc,./x.so") == (
        "system",
        "je=jemalloc",
        "./x.so",
    )
    assert contenders.split_contenders("a=system:X=1,2") == ("a=system:X=1,2",)


def test_a_comma_separates_before_a_name_too(tmp_path: Path) -> None:
    """`-a system,x=ill/crash.so` once gave one contender with the name "system,x"."""
    one, two = tmp_path / "one.so", tmp_path / "t,w,o.so"
    for path in (one, two):
        path.touch()
    for pieces in (
        ("system", f"x={one}"),
        (f"x={one}", "system"),
        (f"x={one}", f"y={two}"),
        (f"{two}", "a=system", f"{one}"),
        ("system", "je=jemalloc", "again=system"),
        ("system", f"x={tmp_path}/missing.so"),
    ):
        assert contenders.split_contenders(",".join(pieces)) == pieces
    with pytest.raises(UsageError, match="its own -a"):
        contenders.split_contenders(f"x={one},y={one}:A=b")
    knobs = (f"x={two}:A=1,2",)
    assert contenders.split_contenders(knobs[0]) == knobs


@pytest.mark.parametrize("argument", ["", ",", "system,", ",system", "a,,b", "system, "])
def test_an_empty_place_in_a_list_is_refused(argument: str) -> None:
    with pytest.raises(UsageError, match="empty contender"):
        contenders.split_contenders(argument)


def test_a_list_with_knobs_is_refused() -> None:
    with pytest.raises(UsageError, match="its own -a, such as -a 'jemalloc:A=b'"):
        contenders.split_contenders("system,jemalloc:A=b")


def test_the_cure_of_a_list_with_knobs_keeps_colons_in_values() -> None:
    with pytest.raises(UsageError, match="such as -a 'jemalloc:MALLOC_CONF=a:b,c:d'"):
        contenders.split_contenders("system,jemalloc:MALLOC_CONF=a:b,c:d")


def test_a_name_of_its_own_is_cut_at_64_characters_and_can_be_printed() -> None:
    fits, long = ("system:" + "A" * length + "=1" for length in (55, 56))
    assert contenders.parse_contender(fits).name == fits
    assert contenders.parse_contender(long).name == long[:63] + "…"
    assert contenders.parse_contender("system:A=\x1b[31m").name == "system:A=?[31m"


def test_the_problem_of_our_own_missing_allocator_is_reported_and_that_of_others_is_not() -> None:
    own, other = catalog.entry("cairn"), catalog.entry("jemalloc")
    found = (
        Found(own, None, problem="libcairn is damaged"),
        Found(other, "/x", problem="it is for another machine"),
    )
    assert contenders.left_out(found) == ("cairn is left out: libcairn is damaged",)
    assert contenders.left_out((Found(own, "/y"),)) == ()


def test_a_path_with_a_comma_is_one_contender(tmp_path: Path) -> None:
    path = tmp_path / "a,b.so"
    path.write_text("")
    assert contenders.split_contenders(f"mine={path}") == (f"mine={path}",)


@given(st.text(max_size=80) | st.from_regex(r"[a-z/=@:;,.\x00-\x20]{0,30}", fullmatch=True))
def test_any_text_is_a_contender_or_a_sentence(text: str) -> None:
    try:
        for piece in contenders.split_contenders(text):
            spec = contenders.parse_contender(piece)
            assert spec.name.isprintable()
            assert 0 < len(spec.name) <= contenders.NAME_MAX
    except CairnError as error:
        assert str(error).endswith(".")


VALUES = st.text(st.characters(exclude_characters=";\0"), max_size=20)
KEYS = st.text(string.ascii_letters, min_size=1, max_size=8).filter(
    lambda key: not key.startswith(("LD_", "CAIRN_"))
)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_values_are_kept_verbatim(knobs: dict[str, str]) -> None:
    text = ";".join(f"{key}={value}" for key, value in knobs.items())
    assert dict(contenders.parse_contender(f"x=system:{text}").knobs) == knobs


def test_two_contenders_of_one_name_are_refused_with_the_cure() -> None:
    twice = [contenders.parse_contender(spec) for spec in ("system", "jemalloc", "system")]
    with pytest.raises(UsageError, match=r"two contenders are called 'system'.*-a again=system"):
        contenders.refuse_duplicates(twice)
    contenders.refuse_duplicates(
        [contenders.parse_contender(spec) for spec in ("system", "again=system")]
    )


# --- installed allocators ---


def test_versions_sort_as_people_read_them() -> None:
    names = [None, "1.rc1", "1.0", "5.3.0", "5.9", "5.10", "2021.8.0"]
    assert sorted(names[3:] + names[:3], key=discover.version_key) == names


@pytest.mark.parametrize(
    ("full", "upstream"),
    [
        ("5.3.0-1", "5.3.0"),
        ("2.0.9+ds-2", "2.0.9"),
        ("1:14.0.6-12", "14.0.6"),
        ("2021.8.0-2+deb12u1", "2021.8.0"),
        ("1:19.1.7-3~deb12u1", "19.1.7"),
        ("2.2.7+dfsg-1", "2.2.7"),
        ("3", "3"),
        ("", ""),
    ],
)
def test_the_version_of_a_package_contains_the_version_of_its_source(
    full: str, upstream: str
) -> None:
    assert discover.upstream_version(full) == upstream


@needs_gcc
@pytest.mark.usefixtures("nothing_else")
def test_a_library_on_the_library_path_is_found(
    compile_to: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compile_to(tmp_path / "l" / "libjemalloc.so.2", MALLOC)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{path.parent}")
    found = discover.discover(cache=tmp_path / "none", names=["system", "jemalloc"])
    assert [(item.allocator.name, item.path, item.problem) for item in found] == [
        ("system", None, None),
        ("jemalloc", str(path), None),
    ]
    contender = contenders.resolve(contenders.parse_contender("jemalloc"), found)
    assert contender.preload == (str(path),)
    assert contender.owners == (str(path.resolve()),)
    assert [spec.name for spec in contenders.default_contenders(found)] == ["system", "jemalloc"]


@needs_gcc
@pytest.mark.usefixtures("nothing_else")
def test_a_library_that_cannot_be_used_is_listed_with_its_problem_and_never_chosen(
    compile_to: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compile_to(tmp_path / "libjemalloc.so.2", "int nothing;\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    found = discover.discover(cache=tmp_path / "none", names=["system", "jemalloc"])
    assert "defines no malloc" in (found[-1].problem or "")
    assert [spec.name for spec in contenders.default_contenders(found)] == ["system"]
    with pytest.raises(ContenderFailed, match=str(path)):
        contenders.resolve(contenders.parse_contender("jemalloc"), found)


def record(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    written = {
        "schema": 1,
        "allocator": "jemalloc",
        "library": "libx.so",
        "version": folder.name,
        "origin": "a test",
    }
    (folder / discover.RECORD).write_text(json.dumps({**written, **values}))


@needs_gcc
@pytest.mark.usefixtures("nothing_else")
def test_the_newest_version_of_the_cache_comes_first(compile_to: Compile, tmp_path: Path) -> None:
    for version in ("5.9.0", "5.10.0"):
        compile_to(tmp_path / "jemalloc" / version / "libx.so", MALLOC)
        record(tmp_path / "jemalloc" / version)
    found = discover.discover(cache=tmp_path, names=["jemalloc"])
    assert [(item.version, item.cached, item.origin) for item in found] == [
        ("5.10.0", True, "a test"),
        ("5.9.0", True, "a test"),
    ]
    assert (
        contenders.resolve(contenders.parse_contender("jemalloc"), found).title == "jemalloc 5.10.0"
    )
    assert contenders.resolve(contenders.parse_contender("jemalloc@5.9"), found).version == "5.9.0"
    with pytest.raises(ContenderFailed, match=r"no jemalloc 5\.1 here, only 5\.10\.0, 5\.9\.0"):
        contenders.resolve(contenders.parse_contender("jemalloc@5.1"), found)


@needs_gcc
@pytest.mark.usefixtures("nothing_else")
def test_a_release_with_a_known_fault_is_usable_and_says_so(
    compile_to: Compile, tmp_path: Path
) -> None:
    """In mimalloc 2.0.9, aligned_alloc returns misaligned blocks for alignments from 256 to 1024.

    Debian 12 has a package of this version.
    """
    for version in ("2.0.9", "2.3.2"):
        compile_to(tmp_path / "mimalloc" / version / "libx.so", MALLOC)
        record(tmp_path / "mimalloc" / version, allocator="mimalloc")
    found = discover.discover(cache=tmp_path, names=["mimalloc"])
    resolved = [
        contenders.resolve(contenders.parse_contender(f"mimalloc@{v}"), found)
        for v in ("2.0.9", "2.3.2")
    ]
    assert ["misaligned" in " ".join(contender.caveats) for contender in resolved] == [True, False]
    listed = allocator_list.render(catalog.load_catalog(), found, View())
    assert "▲ mimalloc 2.0.9: its aligned_alloc returns misaligned blocks" in listed
    assert "▲ mimalloc 2.3.2" not in listed


def test_the_table_of_allocators_is_golden(golden: Callable[[str, str], None]) -> None:
    """The table has every state of an allocator: usable, faulty, damaged, unusable, missing."""
    known = catalog.load_catalog()

    def copy(name: str, **more: Any) -> Found:
        allocator = known.find(name)
        assert allocator is not None
        path = f"/opt/{name}/lib{name}.so"
        return Found(**{"allocator": allocator, "path": path, "cached": True, **more})

    found = (
        copy("system", path=None, version="2.36", origin="libc6 2.36-9+deb12u10", cached=False),
        copy(
            "cairn", version="0.1.0", path=None, problem="The library is not built.", cached=False
        ),
        copy("jemalloc", version="5.3.0", origin="libjemalloc2 5.3.0-1"),
        copy("mimalloc", version="2.0.9", origin="libmimalloc2.0 2.0.9+ds-2"),
        copy("google-tcmalloc", version="2025-11-03", origin="built from source"),
    )
    golden("allocators", at_all_widths(lambda view: allocator_list.render(known, found, view)))


@needs_gcc
@pytest.mark.parametrize(
    "values",
    [
        {"schema": 2},
        {"allocator": "quux"},
        {"allocator": 7},
        {"library": "../../out.so"},
        {"library": "/etc/passwd"},
        {"library": ""},
        {"library": "a\0b"},
        {"allocator": "system"},
    ],
)
def test_a_record_that_makes_no_sense_is_passed_over(
    compile_to: Compile, tmp_path: Path, values: dict[str, object]
) -> None:
    compile_to(tmp_path / "jemalloc" / "1" / "libx.so", MALLOC)
    compile_to(tmp_path / "out.so", MALLOC)
    record(tmp_path / "jemalloc" / "1", **values)
    assert discover.find_cached(catalog.load_catalog(), tmp_path) == ()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 60_000, '"x"', "\udcff"])
def test_a_damaged_record_is_passed_over(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "jemalloc" / "1"
    folder.mkdir(parents=True)
    (folder / discover.RECORD).write_bytes(text.encode(errors="surrogateescape"))
    assert discover.find_cached(catalog.load_catalog(), tmp_path) == ()


@needs_gcc
def test_a_record_that_others_may_write_is_passed_over(compile_to: Compile, tmp_path: Path) -> None:
    compile_to(tmp_path / "jemalloc" / "1" / "libx.so", MALLOC)
    record(tmp_path / "jemalloc" / "1")
    assert len(discover.find_cached(catalog.load_catalog(), tmp_path)) == 1
    (tmp_path / "jemalloc" / "1" / discover.RECORD).chmod(0o666)
    assert discover.find_cached(catalog.load_catalog(), tmp_path) == ()


def test_the_cache_lies_where_the_specification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert str(discover.cache_folder({"XDG_CACHE_HOME": "/c"})) == "/c/cairn/allocators"
    for ignored in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert str(discover.cache_folder(ignored)) == "/somewhere/.cache/cairn/allocators"


def test_a_user_without_a_home_folder_is_told_to_name_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cache was the folder ./~/.cache, wherever cairn was started."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("CARGO_HOME", raising=False)

    def unknown(_: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(CairnError, match=r"no home folder .* \$XDG_CACHE_HOME"):
        discover.cache_folder({})
    with pytest.raises(download.NotObtained, match=r"\$CARGO_HOME"):
        download._cargos_home()


# --- contenders ---


def test_the_contender_system_needs_no_preload() -> None:
    contender = contenders.resolve(
        contenders.parse_contender("s=system:A=b"), discover.discover(names=["system"])
    )
    assert (contender.name, contender.allocator) == ("s", "system")
    assert contender.preload == contender.owners == contender.library_path == ()
    assert contender.knobs == (("A", "b"),)


def test_an_allocator_that_is_not_installed_is_refused_with_the_package_to_install() -> None:
    with pytest.raises(
        ContenderFailed, match=r"no jemalloc here.*'cairn allocators get jemalloc'.*libjemalloc2"
    ):
        contenders.resolve(contenders.parse_contender("jemalloc"), ())
    with pytest.raises(ContenderFailed, match="no hoard here; 'cairn allocators' lists"):
        contenders.resolve(contenders.parse_contender("hoard"), ())


@needs_gcc
def test_a_library_by_path_keeps_its_link_and_expects_the_real_file_as_owner(
    compile_to: Compile, tmp_path: Path
) -> None:
    real = compile_to(tmp_path / "with space" / "libreal.so", MALLOC, "-Wl,--build-id=0xabcdef")
    link = tmp_path / "link.so"
    link.symlink_to(real)
    contender = contenders.resolve(contenders.parse_contender(f"mine={link}"), ())
    assert contender.preload == (str(link),)
    assert contender.owners == (str(real.resolve()),)
    assert (contender.name, contender.allocator, contender.origin) == ("mine", "custom", "path")
    assert contender.build_id == "abcdef"
    with pytest.raises(ContenderFailed, match="LD_PRELOAD cannot carry"):
        contenders.resolve(contenders.parse_contender(f"mine={real}"), ())


@needs_gcc
def test_a_companion_of_another_version_that_the_loader_finds_is_not_taken(
    compile_to: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Debian's TBB installed, the newer library of the cache once got Debian's companion."""
    home, other = tmp_path / "mine" / "own", tmp_path / "system"
    for folder in (home, other):
        compile_to(
            folder / "libhelp.so.1",
            "int companion(void) { return 1; }\n",
            "-Wl,-soname,libhelp.so.1",
        )
    library = home / "libmine.so"
    compile_to(library, MALLOC, "-Wl,--no-as-needed", f"-L{home}", "-l:libhelp.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other))
    facts = inspect_library(str(library))
    assert discover.companion_folders(facts, facts.needs) == (str(home.resolve()),)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(home))
    twin = home / "libtwin.so"
    shutil.copy(library, twin)
    facts = inspect_library(str(twin))
    assert discover.companion_folders(facts, facts.needs) == ()


@needs_gcc
@pytest.mark.parametrize("folder", ["plain", "with space", "with:colon"])
def test_a_library_that_needs_another_in_its_folder_has_that_folder_on_the_library_path(
    compile_to: Compile, tmp_path: Path, folder: str
) -> None:
    home = tmp_path / "tbbmalloc" / folder
    compile_to(
        home / "libtbbmalloc.so.2",
        "int companion(void) { return 1; }\n",
        "-Wl,-soname,libtbbmalloc.so.2",
    )
    compile_to(
        home / "libtbbmalloc_proxy.so.2",
        MALLOC,
        "-Wl,--no-as-needed",
        "-L.",
        "-l:libtbbmalloc.so.2",
    )
    record(home, library="libtbbmalloc_proxy.so.2", allocator="tbbmalloc")
    found = discover.find_cached(catalog.load_catalog(), tmp_path)
    assert [(item.library_path, item.problem) for item in found] == [((str(home.resolve()),), None)]
    contender = contenders.resolve(contenders.parse_contender("tbbmalloc"), found)
    links = tmp_path / "links"
    links.mkdir()
    carried = contenders.carryable([*contender.preload, *contender.library_path], links)
    environment = {"LD_PRELOAD": carried[0], "LD_LIBRARY_PATH": carried[1]}
    done = subprocess.run(["/bin/true"], env=environment, capture_output=True, check=False)
    assert done.stderr == b""
    if folder == "plain":
        by_path = contenders.resolve(
            contenders.parse_contender(str(home / "libtbbmalloc_proxy.so.2")), ()
        )
        assert by_path.library_path == (str(home.resolve()),)


@needs_gcc
def test_a_library_that_does_not_fit_the_program_is_refused(
    compile_to: Compile, tmp_path: Path
) -> None:
    path = compile_to(tmp_path / "libm.so", MALLOC)
    shell = inspect_program("/bin/sh")
    assert contenders.resolve(contenders.parse_contender(str(path)), (), shell).preload == (
        str(path),
    )
    content = bytearray(path.read_bytes())
    content[18] = 22
    path.write_bytes(content)
    with pytest.raises(ContenderFailed, match="s390x library, and /bin/sh is"):
        contenders.resolve(contenders.parse_contender(str(path)), (), shell)


def test_plain_paths_are_carried_as_they_are(tmp_path: Path) -> None:
    assert contenders.carryable(["/a/b.so"], str(tmp_path)) == ("/a/b.so",)
    assert list(tmp_path.iterdir()) == []


def test_other_paths_are_carried_by_links(tmp_path: Path) -> None:
    paths = ["/one two/x.so", "/one:two/x.so", "/one two/x.so", "/o;/ü \n$.so", "/p q/"]
    carried = contenders.carryable(paths, str(tmp_path))
    assert all(carries(path) and path.startswith(f"{tmp_path}/") for path in carried)
    assert [os.readlink(path) for path in carried] == paths
    assert carried[0] == carried[2]
    assert len(set(carried)) == 4


def test_links_need_a_plain_folder(tmp_path: Path) -> None:
    with pytest.raises(CairnError, match="TMPDIR"):
        contenders.carryable(["/a b.so"], str(tmp_path / "c d"))
    with pytest.raises(CairnError, match="TMPDIR"):
        contenders.carryable(["/a b.so"], str(tmp_path / "none"))


def test_found_titles_hold_name_and_version() -> None:
    entry = catalog.entry("mimalloc")
    assert Found(entry, "/x", version="2.0.9").title == "mimalloc 2.0.9"
    assert Found(entry, "/x").title == "mimalloc"


def test_the_stored_spec_of_a_contender_keeps_version_and_knobs_without_the_name() -> None:
    spec = contenders.parse_contender("mine=system@2.36:B=2;A=1")
    found = (discover.system_allocator(catalog.entry("system")),)
    found = (msgspec.structs.replace(found[0], version="2.36"),)
    assert contenders.resolve(spec, found).spec == "system@2.36:B=2;A=1"
