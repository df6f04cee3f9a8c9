"""Tests of Cairn's own allocator as a contender.

By default it takes part in every comparison. Cairn takes its library from the folder of the
package, and reports if the library is missing.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from pathlib import Path

import pytest

import cairn
from cairn import native
from cairn.allocators import catalog, contenders, discover, obtain, register
from cairn.allocators.catalog import Found
from cairn.bench import experiments, run_settings
from cairn.cli import allocator_list
from cairn.doctor import abilities, machine, machine_checks
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.model import Settings, Workload
from cairn.report.view import View
from cairn.run import preflight

ROOT = Path(__file__).resolve().parents[2]


def alone(*, names: tuple[str, ...] = ("cairn",)) -> Found:
    (found,) = discover.discover(names=names)
    return found


@pytest.fixture
def without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that has lost the library."""
    monkeypatch.setattr(native, "_FOLDER", tmp_path / "native")


def test_our_allocator_is_usable_without_installing_anything() -> None:
    found = alone()
    assert found.path == str(native.allocator())
    assert found.problem is None
    assert (found.version, found.title) == (cairn.__version__, f"cairn {cairn.__version__}")
    assert (found.origin, found.cached, len(found.build_id or "")) == (
        "comes with cairn",
        False,
        40,
    )
    contender = contenders.resolve(contenders.parse_contender("cairn"), (found,))
    assert contender.preload == (str(native.allocator()),)
    assert contender.owners == (str(native.allocator().resolve()),)
    assert (contender.knobs, contender.spec) == ((), "cairn")


def test_the_catalog_agrees_with_the_sources_of_our_allocator() -> None:
    entry = alone().allocator
    assert (ROOT / "LICENSE").read_text().startswith(f"{entry.licence} License")
    read = re.findall(
        r"^ \*     (CAIRN_[A-Z_]+)=",
        (ROOT / "src" / "alloc" / "options.h").read_text(),
        re.MULTILINE,
    )
    hardened = catalog.load_catalog().find("cairn-hardened")
    assert hardened is not None
    assert set(entry.knobs) == set(read) - {"CAIRN_HARDENED"}
    assert "CAIRN_HARDENED" in read and "CAIRN_HARDENED" in hardened.knobs
    assert set(hardened.knobs) <= set(read)


def test_no_other_library_of_that_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cairn uses neither a library on the library path nor one that was added under that name."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    other = shutil.copy(native.allocator(), tmp_path / "libcairn.so.0")
    folder = discover.cache_folder() / "cairn" / discover.ADDED
    folder.mkdir(parents=True)
    record = {
        "schema": discover.RECORD_SCHEMA,
        "allocator": "cairn",
        "path": str(other),
        "version": "99",
    }
    (folder / discover.RECORD).write_text(json.dumps(record))
    assert alone().path == str(native.allocator())
    assert discover.known_catalog() is catalog.load_catalog()


def test_our_allocator_is_the_second_default_contender_after_system() -> None:
    names = [spec.name for spec in contenders.default_contenders(discover.discover())]
    assert names[:2] == ["system", "cairn"]
    # The founding experiment has its own list of contenders.
    for experiment in (one for one in experiments.EXPERIMENTS if one.report != "founding"):
        for size in (experiment.full, experiment.quick):
            named = size.contenders or run_settings.contenders(size, lambda _: None)
            assert named[:2] == ("system", "cairn"), experiment.name
    assert experiments.SINGLE.quick.contenders[:2] == ("system", "cairn")


def test_it_is_not_fetched_added_or_removed(tmp_path: Path) -> None:
    entry = alone().allocator
    for origin in (None, *obtain.ORIGINS):
        with pytest.raises(
            CairnError,
            match=r"comes with cairn and is never fetched; 'cairn allocators' shows it\.",
        ):
            obtain.obtain(entry, origin=origin, cache=tmp_path)
    assert not obtain.obtainable(entry)
    with pytest.raises(UsageError, match="is part of cairn and not in the cache"):
        register.remove(entry, None, lambda _: None, tmp_path)
    with pytest.raises(UsageError, match="choose another name, such as my-cairn"):
        register.add("cairn", str(native.allocator()), lambda _: None, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("without_it")
def test_a_missing_library_is_reported_wherever_it_would_be_used() -> None:
    found = alone()
    assert found.problem is not None
    assert "lacks lib/libcairn.so.0; install it again" in found.problem
    assert "✘ cairn: this installation" in allocator_list.render(
        catalog.load_catalog(), (found,), View()
    )
    assert "get cairn" not in allocator_list.render(catalog.load_catalog(), (found,), View())
    for spec in ("cairn", f"cairn@{cairn.__version__}"):
        with pytest.raises(ContenderFailed, match="install it again"):
            contenders.resolve(contenders.parse_contender(spec), (found,))
    said: list[str] = []
    # On some machines no other allocator is installed. Then contenders() fails.
    with contextlib.suppress(ContenderFailed):
        assert "cairn" not in run_settings.contenders(experiments.EXPERIMENTS[-1].full, said.append)
    assert [line for line in said if line.startswith("cairn is left out: this installation")]
    assert not [line for line in said if "get cairn" in line]
    judged = machine_checks.judge_abilities(
        abilities.Abilities(allocator_problem=found.problem), machine.host()
    )
    (told,) = [check for check in judged if check.subject == "own allocator"]
    assert told.state == "warning"
    assert (
        told.says == "this installation of cairn lacks lib/libcairn.so.0; comparisons leave it out"
    )
    assert told.next_step == "Install it again with 'make install' or pip."


@pytest.mark.usefixtures("without_it")
def test_abilities_notice_that_it_is_missing() -> None:
    assert abilities._allocator_problem() is not None


def test_a_damaged_library_is_never_taken_for_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcairn.so.0").write_bytes(native.allocator().read_bytes()[:3000])
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    with pytest.raises(ContenderFailed, match="truncated"):
        contenders.resolve(contenders.parse_contender("cairn"), (alone(),))


def prepared(monkeypatch: pytest.MonkeyPatch, *found: Found) -> preflight.Preflight:
    monkeypatch.setattr(discover, "discover", lambda *_, **__: found)
    return preflight.prepare(
        (), Settings(workloads=(Workload("true", ("true",)),), folder="/"), None, print
    )


def test_without_fetched_allocators_ours_competes_with_system_and_more_are_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = (discover.system_allocator(catalog.entry("system")), alone())
    ready = prepared(monkeypatch, *here)
    assert [contender.name for contender in ready.contenders] == ["system", "cairn"]
    assert ready.notes == (
        "only the system's allocator and cairn's own are here; 'cairn allocators get jemalloc "
        "mimalloc' fetches others",
    )


@pytest.mark.usefixtures("without_it")
def test_a_comparison_says_that_our_allocator_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = prepared(monkeypatch, discover.system_allocator(catalog.entry("system")), alone())
    assert [contender.name for contender in ready.contenders] == ["system"]
    assert ready.notes[0].startswith("cairn is left out: this installation of cairn lacks")
    assert ready.notes[1].startswith("only the system's allocator is here; ")
