"""Tests of newer releases. Stand-ins for cargo and pip answer in place of the registries."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.widths import at_all_widths

from cairn.allocators import catalog, debian, discover, obtain, outdated, sources
from cairn.allocators.catalog import Allocator
from cairn.allocators.outdated import Release, Standing, Survey
from cairn.allocators.sources import Source
from cairn.cli import allocator_list
from cairn.errors import CairnError
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

PINS = (
    Source("jemalloc", "5.3.1", "crate", "je-sys", "0.7.1+5.3.1-0-gabc", "1" * 64, "jemalloc"),
    Source(
        "mimalloc3", "3.6.0", "crate", "mi-sys2", "0.1.65", "2" * 64, "mimalloc3", tools=("cc",)
    ),
    Source("mimalloc3", "3.3.2", "crate", "mi-sys", "0.1.49", "3" * 64, "mimalloc3", tools=("cc",)),
    Source("scudo", "14", "crate", "scudo-sys", "0.2.2", "4" * 64, "scudo"),
    Source(
        "tbbmalloc", "2023.2.0", "wheel", "tbb", "2023.2.0", "5" * 64, "tbbmalloc", file="a.whl"
    ),
)


@dataclass
class Registry:
    """A folder with the answer to each question: the newest release of a package."""

    folder: Path
    cache: Path

    def publish(self, package: str, release: str, sha256: str = "9" * 64) -> None:
        """Makes `release` the newest release of the crate and of the wheel `package`."""
        lock = f'[[package]]\nname = "{package}"\nversion = "{release}"\nchecksum = "{sha256}"\n'
        (self.folder / f"{package}.lock").write_text(
            f'version = 3\n[[package]]\nname = "cairn-question"\nversion = "0.0.0"\n{lock}'
        )
        origin = {
            "url": f"file:///wheels/{package}-{release}-py3-none-any.whl",
            "archive_info": {"hashes": {"sha256": sha256}},
        }
        item = {"metadata": {"version": release}, "download_info": origin}
        (self.folder / f"{package}.json").write_text(json.dumps({"install": [item]}))

    def serve(self, package: str, release: str, files: dict[str, str]) -> None:
        """Publishes a crate with these files."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(f"{package}-{release}/{name}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        content = buffer.getvalue()
        (self.folder / f"{package}-{release}.crate").write_bytes(content)
        self.publish(package, release, hashlib.sha256(content).hexdigest())

    def asked(self) -> list[str]:
        log = self.folder / "asked"
        return log.read_text().splitlines() if log.exists() else []


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry(tmp_path / "registry", tmp_path / "cache")
    tools = tmp_path / "bin"
    for folder in (made.folder, tools):
        folder.mkdir()
    crates = tmp_path / "cargo-home/registry/cache/mirror"
    script(
        tools / "cargo",
        f"""cd "$PWD" && package=$(sed -n 's/^\\([a-z0-9-]*\\) = "[=*].*/\\1/p' Cargo.toml)
echo "$1 $package" >>"{made.folder}/asked"
[ -e "{made.folder}/unreachable" ] && {{ echo 'error: could not connect to the registry'; exit 101; }}
[ -e "{made.folder}/$package.lock" ] ||
  {{ echo "error: no matching package named '$package' found"; exit 101; }}
case "$1" in
generate-lockfile) cp "{made.folder}/$package.lock" Cargo.lock;;
fetch) mkdir -p "{crates}" && cp "{made.folder}/$package"-*.crate "{crates}";;
esac""",
    )
    script(
        tools / "pip",
        f"""echo "pip $1" >>"{made.folder}/asked"
[ -e "{made.folder}/unreachable" ] && {{ echo 'ERROR: could not connect to the index'; exit 1; }}
for word; do [ "$last" = --report ] && report=$word; last=$word; done
cp "{made.folder}/$last.json" "$report" """,
    )
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo-home"))
    monkeypatch.delenv("CARGO", raising=False)
    monkeypatch.setattr("cairn.allocators.download._pip", lambda: [str(tools / "pip")])
    monkeypatch.setattr(
        sources, "sources_of", lambda name: tuple(pin for pin in PINS if pin.allocator == name)
    )
    monkeypatch.setattr(debian, "offered", lambda *_, **__: {"scudo": "19.1.7", "tcmalloc": "2.10"})
    for pin in PINS:
        made.publish(pin.package, pin.release, pin.sha256)
    return made


def survey(registry: Registry) -> Survey:
    return outdated.survey(cache=registry.cache)


def newer(found: Survey) -> list[tuple[str, str]]:
    return [
        (item.allocator.name, item.newest.number)
        for item in found.standings
        if item.newest is not None and item.is_outdated
    ]


# --- the list ---


def test_no_pinned_release_is_outdated_if_each_is_the_registrys_newest(registry: Registry) -> None:
    found = survey(registry)
    assert (newer(found), found.failures) == ([], ())
    known = [item.source.package for item in found.standings if item.source and item.newest]
    assert sorted(known) == sorted(pin.package for pin in PINS)
    assert "fetch" not in " ".join(registry.asked())
    assert list((registry.cache / ".sources").iterdir()) == []


def test_a_newer_release_of_each_package_of_an_allocator_is_found(registry: Registry) -> None:
    registry.publish("mi-sys", "0.1.50")
    registry.publish("tbb", "2023.10.0")
    registry.publish("scudo-sys", "0.2.1")
    assert newer(survey(registry)) == [("mimalloc3", "0.1.50"), ("tbbmalloc", "2023.10.0")]


def test_another_commit_of_the_same_release_is_not_newer(registry: Registry) -> None:
    registry.publish("je-sys", "0.7.1+5.4.0-0-gdef")
    assert newer(survey(registry)) == []
    registry.publish("je-sys", "0.7.2+5.3.1-0-gabc")
    assert newer(survey(registry)) == [("jemalloc", "0.7.2+5.3.1-0-gabc")]


def test_a_package_of_the_distribution_may_be_newer_than_the_pin(registry: Registry) -> None:
    behind = [
        item.allocator.name for item in survey(registry).standings if item.is_behind_distribution
    ]
    assert behind == ["scudo"]
    entry = catalog.entry("scudo")
    for version in ("14", "14.0.6", "9.9", None):
        assert not Standing(entry, PINS[3], None, version).is_behind_distribution


def test_a_registry_that_cannot_be_reached_is_one_sentence(registry: Registry) -> None:
    (registry.folder / "unreachable").touch()
    found = survey(registry)
    assert [text.partition(":")[0] for text in found.failures] == [
        "the newest crates are not known",
        "the newest wheels are not known",
    ]
    assert "could not connect to the registry" in found.failures[0]
    assert "check the network" in found.failures[0]
    assert all("\n" not in text for text in found.failures)
    assert len(registry.asked()) == 2, "the other crates would wait for the same answer"
    assert "no registry could be read" in allocator_list.render_outdated(found, View())


def test_a_crate_that_is_gone_does_not_hide_the_others(registry: Registry) -> None:
    (registry.folder / "je-sys.lock").unlink()
    registry.publish("mi-sys", "0.1.50")
    found = survey(registry)
    assert newer(found) == [("mimalloc3", "0.1.50")]
    [failure] = found.failures
    assert failure.startswith("the registry has no crate je-sys now: ")
    text = allocator_list.render_outdated(found, View())
    assert text.startswith("1 of 5 pinned releases has a newer one, and 1 could not be looked up.")


def test_an_answer_that_makes_no_sense_is_a_sentence(registry: Registry) -> None:
    (registry.folder / "je-sys.lock").write_text("[[[")
    (registry.folder / "tbb.json").write_text('{"install": []}')
    crate, wheel = survey(registry).failures
    assert ": cargo gave no answer that can be read (" in crate
    assert "; update cargo and try again" in crate
    assert ": pip gave no answer that can be read (" in wheel
    assert "; update pip and try again" in wheel


def test_a_distribution_without_lists_does_not_hide_the_registries(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> dict[str, str]:
        raise CairnError("the packages are not known: no network")

    monkeypatch.setattr(debian, "offered", refuse)
    found = survey(registry)
    assert found.failures == ("the packages are not known: no network",)
    assert all(item.newest is not None for item in found.standings if item.source)


def test_the_list_of_newer_releases_is_golden(golden: Callable[[str, str], None]) -> None:
    je, new, old, scudo, tbb = PINS

    def standing(pin: Source, number: str | None, packaged: str | None) -> Standing:
        release = None if number is None else Release(number, "9" * 64)
        return Standing(catalog.entry(pin.allocator), pin, release, packaged)

    found = Survey(
        (
            standing(je, "0.7.2+5.4.0-0-gdef", "5.3.0"),
            standing(new, "0.1.66", None),
            standing(old, "0.1.49", None),
            Standing(catalog.entry("tcmalloc"), None, None, "2.10"),
            standing(scudo, "0.2.2", "19.1.7"),
            standing(tbb, None, "2021.8.0"),
        ),
        ("a registry could not be read",),
    )
    golden(
        "allocators-outdated",
        at_all_widths(lambda view: allocator_list.render_outdated(found, view)),
    )
    document = json.loads(allocator_list.outdated_document(found))
    assert [pin["outdated"] for pin in document["pins"]] == [True, True, False, False, False, None]
    assert document["failures"] == ["a registry could not be read"]


# --- the newest release, and two versions ---


def mimalloc_of(number: int) -> dict[str, str]:
    """Returns the files of a crate with mimalloc `number`, in the folders of the real crate."""
    folder = "c_src/mimalloc3"
    return {
        f"{folder}/include/mimalloc.h": f"#define MI_MALLOC_VERSION {number}   // major\n",
        f"{folder}/src/static.c": f"#pragma GCC visibility push(default)\n{MALLOC}",
    }


@needs_gcc
def test_the_newest_release_is_built_under_the_version_that_its_source_names(
    registry: Registry,
) -> None:
    registry.serve("mi-sys2", "0.1.66", mimalloc_of(30700))
    entry = catalog.entry("mimalloc3")
    said: list[str] = []

    found = obtain.obtain(entry, newest=True, cache=registry.cache, progress=said.append)

    assert (found.version, found.problem) == ("3.7.0", None)
    assert found.origin == "crate mi-sys2 0.1.66, not pinned"
    fetches = [line for line in registry.asked() if line.startswith("fetch")]
    assert obtain.obtain(entry, newest=True, cache=registry.cache).path == found.path
    assert [line for line in registry.asked() if line.startswith("fetch")] == fetches


@needs_gcc
def test_a_newest_release_does_not_replace_the_pinned_one_of_the_same_version(
    registry: Registry,
) -> None:
    registry.serve("mi-sys2", "0.1.66", mimalloc_of(30600))
    found = obtain.obtain(catalog.entry("mimalloc3"), newest=True, cache=registry.cache)
    assert found.version == "3.6.0+crate-0.1.66"


def test_an_allocator_of_no_registry_has_no_newest_release(registry: Registry) -> None:
    with pytest.raises(CairnError, match=r"tcmalloc is in no package registry .* --from DIR"):
        obtain.obtain(catalog.entry("tcmalloc"), newest=True, cache=registry.cache)
    (registry.folder / "unreachable").touch()
    with pytest.raises(CairnError, match=r"the newest jemalloc is not known: cargo could not read"):
        obtain.obtain(catalog.entry("jemalloc"), newest=True, cache=registry.cache)


@needs_gcc
def test_two_pinned_versions_lie_side_by_side(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = PINS[1:3]
    registry.serve(new.package, new.release, mimalloc_of(30600))
    registry.serve(
        old.package,
        old.release,
        {
            name.replace("mimalloc3", "mimalloc/v3"): text
            for name, text in mimalloc_of(30302).items()
        },
    )
    pinned = tuple(
        replace(pin, sha256=hashlib.sha256(crate.read_bytes()).hexdigest())
        for pin in (new, old)
        if (crate := registry.folder / pin.archive)
    )
    monkeypatch.setattr(sources, "sources_of", lambda _: pinned)
    entry = catalog.entry("mimalloc3")
    versions = [
        obtain.obtain(entry, version, cache=registry.cache).version for version in ("3.3.2", None)
    ]
    assert versions == ["3.3.2", "3.6.0"]
    found = discover.find_cached(catalog.Catalog((entry,)), registry.cache)
    assert sorted(item.version or "" for item in found) == ["3.3.2", "3.6.0"]


def test_the_pins_of_an_allocator_are_listed_newest_first() -> None:
    for entry in catalog.load_catalog().allocators:
        versions = [
            source.version for source in sources.load_sources() if source.allocator == entry.name
        ]
        assert versions == sorted(versions, key=discover.version_key, reverse=True)
        assert len(versions) == len(set(versions))


@pytest.mark.parametrize(
    ("packages", "offered"),
    [(("a",), {"x": "1.2"}), (("b", "a"), {"x": "1.2"}), (("b",), {}), ((), {})],
)
def test_the_version_of_the_distribution_is_read_from_its_lists(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packages: tuple[str, ...],
    offered: dict[str, str],
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/true")
    monkeypatch.setattr(debian, "_systems_lists", lambda *_: debian._Lists("/lists"))
    monkeypatch.setattr(
        debian, "_in_index", lambda names, *_: {"a": "1:1.2+ds-3"} if "a" in names else {}
    )
    entry = Allocator(name="x", title="x", packages=packages)
    assert debian.offered([entry], tmp_path) == offered
