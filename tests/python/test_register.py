"""Tests of libraries that a user adds by path, and of the removal from the cache."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cairn.allocators import catalog, contenders, discover, register
from cairn.bench import experiments, run_settings
from cairn.cli import allocator_list
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.report.view import View

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build libraries")

MALLOC = """
#include <stddef.h>
static char area[4096]; static size_t used;
void *malloc(size_t size) { used += size; return area + used - size; }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t each) { return malloc(count * each); }
void *realloc(void *block, size_t size) { return block == 0 ? malloc(size) : block; }
"""


def build(target: Path, source: str = MALLOC) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "gcc",
        "-fno-builtin",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        str(target),
        "-Wl,--build-id=0xabc123",
    ]
    subprocess.run(command, input=source, text=True, check=True)
    return target


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return discover.cache_folder()


def silent(_: str) -> None:
    """A progress callback that ignores its text."""


def test_a_library_that_needs_another_by_a_relative_path_is_not_added(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can only be loaded into programs that run in the folder in which it was linked."""
    monkeypatch.chdir(tmp_path)
    build(tmp_path / "sub" / "libone.so", "int one(void) { return 1; }")
    source = MALLOC + "\nint one(void);\nint uses(void) { return one(); }\n"
    command = "gcc -fno-builtin -shared -fPIC -x c - -o libmine.so -x none sub/libone.so"
    subprocess.run(command.split(), input=source, text=True, check=True)
    with pytest.raises(ContenderFailed, match=r"needs sub/libone\.so by a relative path"):
        register.add("mine", "./libmine.so", silent)


def unpacked(cache: Path, version: str, allocator: str = "jemalloc") -> Path:
    """Puts a library into the cache, as `get` does."""
    library = build(cache / allocator / version / "lib.so")
    record = {
        "schema": 1,
        "allocator": allocator,
        "library": "lib.so",
        "version": version,
        "sha256": "0" * 64,
    }
    record["library_sha256"] = discover.file_sha256(library)
    library.with_name(discover.RECORD).write_text(json.dumps(record))
    return library


def test_an_added_library_is_a_contender_by_its_name(cache: Path, tmp_path: Path) -> None:
    library = build(tmp_path / "my libs" / "libmine.so.2")
    link = tmp_path / "link.so"
    link.symlink_to(library)

    added = register.add("mine", str(link), silent)

    assert (added.path, added.build_id, added.cached) == (str(library), "abc123", True)
    assert added.sha256 == discover.file_sha256(library)
    contender = contenders.resolve(
        contenders.parse_contender("mine"), discover.discover(names=["mine"])
    )
    assert (contender.name, contender.allocator, contender.preload) == (
        "mine",
        "mine",
        (str(library),),
    )
    assert contender.origin == f"file {library}"
    assert contender.caveats == ()
    assert "mine" in [spec.name for spec in contenders.default_contenders(discover.discover())]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("linked", "the library with which a program is linked"),
        ("custom", "a library that is given by its path"),
        ("mine+probe", "an allocator with the probe"),
    ],
)
def test_a_name_with_a_meaning_of_its_own_is_refused(
    cache: Path, tmp_path: Path, name: str, meaning: str
) -> None:
    library = build(tmp_path / "libmine.so")
    with pytest.raises(UsageError, match=f"because it means {meaning}; choose another"):
        register.add(name, str(library), silent)
    assert not (cache / name).exists()


def test_a_library_that_changed_since_it_was_added_is_reported(cache: Path, tmp_path: Path) -> None:
    library = build(tmp_path / "libmine.so")
    register.add("mine", str(library), silent)
    os.utime(library, (1, 1))
    assert contenders.resolve(contenders.parse_contender("mine"), discover.discover()).caveats == ()
    build(library, MALLOC + "int more;\n")
    contender = contenders.resolve(contenders.parse_contender("mine"), discover.discover())
    assert ["has changed since it was added" in caveat for caveat in contender.caveats] == [True]
    assert "has changed" in allocator_list.render(
        discover.known_catalog(), discover.discover(), View()
    )
    register.add("mine", str(library), silent)
    assert contenders.resolve(contenders.parse_contender("mine"), discover.discover()).caveats == ()


def test_an_added_library_that_was_deleted_is_a_sentence(cache: Path, tmp_path: Path) -> None:
    """'cairn bench' advised to fetch it, which is not possible."""
    library = build(tmp_path / "libmine.so")
    register.add("mine", str(library), silent)
    library.unlink()
    with pytest.raises(ContenderFailed) as refused:
        contenders.resolve(contenders.parse_contender("mine"), discover.discover())
    says = (
        f"{library}, which was added as mine, is gone; add it again with 'cairn allocators add mine "
        "FILE', or remove the name with 'cairn allocators remove mine'"
    )
    assert str(refused.value) == says
    known = discover.known_catalog()
    assert says in allocator_list.render(known, discover.discover(known), View(width=500))
    told: list[str] = []
    with contextlib.suppress(ContenderFailed):  # no other allocator may be here
        run_settings.contenders(experiments.EXPERIMENTS[-1].full, told.append)
    assert f"mine is left out: {says}" in told
    assert not any("get" in line and " mine" in line for line in told if says not in line)
    build(tmp_path / "again.so")
    register.add("mine", str(tmp_path / "again.so"), silent)
    assert contenders.resolve(contenders.parse_contender("mine"), discover.discover()).preload
    register.remove(catalog.entry("mine", discover.known_catalog()), None, silent)
    assert discover.known_catalog() is catalog.load_catalog()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("jemalloc", "my-jemalloc"),
        ("glibc", "my-glibc"),
        ("custom", "cannot be"),
        ("a b", "cannot be"),
        ("../x", "cannot be"),
        (".x", "cannot be"),
        ("", "cannot be"),
        ("x=y", "cannot be"),
        ("x@1", "cannot be"),
    ],
)
def test_a_name_that_is_taken_or_cannot_be_typed_is_refused(
    cache: Path, tmp_path: Path, name: str, says: str
) -> None:
    library = build(tmp_path / "libmine.so")
    with pytest.raises(UsageError, match=says):
        register.add(name, str(library), silent)
    assert not cache.exists()


def test_a_library_that_cannot_be_preloaded_is_not_added(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ContenderFailed, match="defines no malloc"):
        register.add("mine", str(build(tmp_path / "x.so", "int x;\n")), silent)
    with pytest.raises(ContenderFailed, match="no such file"):
        register.add("mine", str(tmp_path / "none.so"), silent)
    assert not cache.exists()


def test_a_record_cannot_lead_out_of_the_cache_under_another_name(
    cache: Path, tmp_path: Path
) -> None:
    library = build(tmp_path / "libmine.so")
    register.add("mine", str(library), silent)
    shutil.copytree(cache / "mine", cache / "other")
    (cache / "mine" / discover.ADDED).rename(cache / "mine" / "1.0")
    assert discover.find_cached(discover.known_catalog(), cache) == ()


def test_removal_deletes_only_files_of_the_cache(cache: Path, tmp_path: Path) -> None:
    unpacked(cache, "5.3.0")
    kept = unpacked(cache, "5.30")
    entry = catalog.entry("jemalloc")
    assert [item.version for item in register.remove(entry, "5.3", silent)] == ["5.3.0"]
    assert kept.exists()
    assert sorted(os.listdir(cache / "jemalloc")) == ["5.30"]
    register.remove(entry, None, silent)
    assert not (cache / "jemalloc").exists()
    library = build(tmp_path / "libmine.so")
    register.add("mine", str(library), silent)
    register.remove(catalog.entry("mine", discover.known_catalog()), None, silent)
    assert library.exists()


def test_files_that_are_not_ours_are_not_removed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = build(tmp_path / "system" / "libhoard.so")
    monkeypatch.setattr(discover, "_library_folders", lambda: [str(library.parent)])
    with pytest.raises(
        UsageError, match=r"no hoard in the cache; .*libhoard\.so belongs to the system .*own tools"
    ):
        register.remove(catalog.entry("hoard"), None, silent)
    assert library.exists()
    with pytest.raises(UsageError, match=r"no rpmalloc 7 in the cache; 'cairn allocators list'"):
        register.remove(catalog.entry("rpmalloc"), "7", silent)
    with pytest.raises(UsageError, match=r"remove google-tcmalloc\."):
        register.remove(catalog.entry("google-tcmalloc-rseq"), None, silent)


def test_a_damaged_library_in_the_cache_is_reported(cache: Path) -> None:
    library = unpacked(cache, "5.3.0")
    known = discover.known_catalog()
    found = discover.find_cached(known, cache)
    assert "has changed since" not in allocator_list.render(known, found, View())
    build(library, MALLOC + "int more;\n")
    assert "has changed since it came into the cache" in allocator_list.render(known, found, View())
    item = json.loads(allocator_list.document(known, found))["found"][0]
    assert item["recorded_sha256"] != item["sha256"] == discover.file_sha256(library)


def test_a_fetched_library_that_was_deleted_is_a_sentence(cache: Path) -> None:
    library = unpacked(cache, "5.3.0")
    library.unlink()
    (item,) = discover.find_cached(discover.known_catalog(), cache)
    assert item.problem == (
        f"{library} is gone from the cache; 'cairn allocators get jemalloc' fetches it again"
    )


def test_one_library_with_two_settings_of_a_knob_is_two_contenders(cache: Path) -> None:
    library = unpacked(cache, "2025", "google-tcmalloc")
    found = discover.discover()
    plain, knobbed = (
        contenders.resolve(contenders.parse_contender(name), found)
        for name in ("google-tcmalloc", "google-tcmalloc-rseq:A=b")
    )
    assert plain.preload == knobbed.preload == (str(library),)
    assert plain.knobs == ()
    assert knobbed.knobs == (("GLIBC_TUNABLES", "glibc.pthread.rseq=0"), ("A", "b"))
    assert knobbed.title == "google-tcmalloc-rseq 2025"
    only = discover.discover(names=["google-tcmalloc-rseq"])
    assert [item.allocator.name for item in only] == ["google-tcmalloc-rseq"]
    with pytest.raises(UsageError, match="sets GLIBC_TUNABLES itself"):
        contenders.resolve(
            contenders.parse_contender("google-tcmalloc-rseq:GLIBC_TUNABLES=x"), found
        )


def test_a_cache_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CairnError, match="set XDG_CACHE_HOME"):
        register.add(
            "mine", str(build(tmp_path / "libmine.so")), silent, tmp_path / "file" / "cache"
        )


def test_without_a_home_folder_the_cache_counts_as_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, commands that need nothing from the cache failed without a home folder."""

    def no_home() -> Path:
        raise RuntimeError("there is no home folder")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert discover.known_catalog().find("system") is not None
    (system,) = discover.discover(names=["system"])
    assert system.path is None and system.problem is None
    with pytest.raises(CairnError, match="no home folder for the cache"):
        discover.cache_folder()
