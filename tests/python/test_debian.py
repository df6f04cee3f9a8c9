"""Tests of fetching from a distribution, for which a local package repository stands in."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from cairn.allocators import catalog, debian, discover
from cairn.allocators.catalog import Allocator
from cairn.errors import CairnError

pytestmark = [
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in ("apt-get", "dpkg-deb", "dpkg")),
        reason="apt-get or dpkg is missing: there is nothing to fetch with",
    ),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build a library"),
]

MALLOC = """
#include <stddef.h>
static char area[4096]; static size_t used;
void *malloc(size_t size) { used += size; return area + used - size; }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t each) { return malloc(count * each); }
void *realloc(void *block, size_t size) { return block == 0 ? malloc(size) : block; }
"""

ENTRY = Allocator(
    name="jemalloc",
    title="jemalloc",
    libraries=("libpretend.so.2",),
    packages=("libpretend9t64", "libpretend9"),
    licence="MIT",
)


@dataclass
class Repository:
    """A flat apt repository in a folder."""

    folder: Path
    architecture: str

    def add(
        self, package: str, version: str, library: bytes, name: str = "libpretend.so.2"
    ) -> Path:
        """Adds a package with one library, and its entry in the index."""
        root = self.folder.parent / f"root-{package}-{version.replace(':', '_')}"
        target = root / "usr/lib/pretend"
        target.mkdir(parents=True)
        (target / name).write_bytes(library)
        control = (
            f"Package: {package}\nVersion: {version}\nArchitecture: {self.architecture}\n"
            "Maintainer: Nobody <nobody@example.org>\nDescription: pretends\n"
        )
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(control)
        plain = version.partition(":")[2] or version
        archive = self.folder / f"{package}_{plain}_{self.architecture}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-b", str(root), str(archive)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        content = archive.read_bytes()
        with (self.folder / "Packages").open("a") as index:
            index.write(
                f"{control}Filename: ./{archive.name}\nSize: {len(content)}\n"
                f"SHA256: {hashlib.sha256(content).hexdigest()}\n\n"
            )
        return archive

    def apt(self, uri: str | None = None) -> debian.Apt:
        """An apt that knows only this repository."""
        sources = self.folder.parent / "sources.list"
        sources.write_text(f"deb [trusted=yes] {uri or f'copy:{self.folder}'} ./\n")
        settings = {
            "Dir::Etc::SourceList": str(sources),
            "Dir::Etc::SourceParts": "-",
            "Acquire::http::Proxy": "DIRECT",
        }
        options = tuple(
            part for key, value in settings.items() for part in ("-o", f"{key}={value}")
        )
        return debian.Apt(options=options, lists="/nonexistent")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    target = tmp_path_factory.mktemp("library") / "x.so"
    command = ["gcc", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)]
    subprocess.run(command, input=MALLOC, text=True, check=True)
    return target.read_bytes()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "Packages").touch()
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    )
    return Repository(folder, architecture.stdout.strip())


def versions(cache: Path) -> list[str]:
    """Returns the names in the allocator's folder of the cache, whose entries are versions."""
    home = cache / ENTRY.name
    return sorted(os.listdir(home)) if home.exists() else []


@pytest.mark.parametrize("folder", ["cache", "with space", "ü"])
def test_an_allocator_is_unpacked_into_the_cache(
    repository: Repository, library: bytes, tmp_path: Path, folder: str
) -> None:
    archive = repository.add("libpretend9", "1:9.8.7+ds-3", library)
    cache = tmp_path / folder
    said: list[str] = []

    found = debian.unpack_from_distribution(ENTRY, cache, said.append, apt=repository.apt())

    assert (found.title, found.problem, found.cached) == ("jemalloc 9.8.7", None, True)
    assert found.origin == "libpretend9 1:9.8.7+ds-3, unpacked"
    assert found.path is not None
    assert Path(found.path).read_bytes() == library
    record = json.loads((cache / "jemalloc" / "9.8.7+ds-3" / discover.RECORD).read_text())
    assert record["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (record["licence"], record["package_version"]) == ("MIT", "1:9.8.7+ds-3")
    assert versions(cache) == ["9.8.7+ds-3"]
    assert list((cache / ".apt" / "download").iterdir()) == []
    assert [text.split()[0] for text in said] == ["reading", "downloading", "unpacking"]
    assert discover.discover(cache=cache, names=["jemalloc"])[0].version == "9.8.7"


def test_the_first_package_that_the_distribution_knows_is_taken(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("libpretend9", "1-1", library)
    repository.add("libpretend9t64", "2-1", library)
    assert (
        debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=repository.apt()).version == "2"
    )


def test_an_allocator_in_the_cache_is_not_downloaded_again(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    archive = repository.add("libpretend9", "1-1", library)
    first = debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=repository.apt())
    archive.unlink()
    assert debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=repository.apt()) == first


def test_a_newer_version_is_kept_next_to_the_old_one(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("libpretend9", "1-1", library)
    debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=repository.apt())
    repository.add("libpretend9", "2-1", library)
    assert (
        debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=repository.apt()).version == "2"
    )
    assert versions(tmp_path / "c") == ["1-1", "2-1"]


def test_two_fetches_at_once_give_the_same_library(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("libpretend9", "1-1", library)
    apt = repository.apt()
    with ThreadPoolExecutor(3) as pool:
        jobs = [
            pool.submit(debian.unpack_from_distribution, ENTRY, tmp_path / "c", apt=apt)
            for _ in range(3)
        ]
        paths = {job.result().path for job in jobs}
    assert len(paths) == 1
    assert versions(tmp_path / "c") == ["1-1"]


def test_a_package_that_differs_from_its_index_entry_is_refused(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    archive = repository.add("libpretend9", "1-1", library)
    content = bytearray(archive.read_bytes())
    content[-20] ^= 1
    archive.write_bytes(content)
    with pytest.raises(
        CairnError, match=r"jemalloc is not obtainable here: .*([Hh]ash|Undetermined Error)"
    ) as caught:
        debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=repository.apt())
    assert "\n" not in str(caught.value)
    assert versions(tmp_path / "c") == []


def test_a_repository_that_is_not_signed_is_refused(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("libpretend9", "1-1", library)
    apt = repository.apt()
    sources = repository.folder.parent / "sources.list"
    sources.write_text(sources.read_text().replace("[trusted=yes] ", ""))
    with pytest.raises(CairnError, match="not obtainable here"):
        debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=apt)
    assert versions(tmp_path / "c") == []


def test_a_package_without_a_library_for_this_machine_is_refused(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    foreign = bytearray(library)
    foreign[18] = 22
    repository.add("libpretend9", "1-1", bytes(foreign))
    with pytest.raises(CairnError, match="holds no jemalloc for this machine"):
        debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=repository.apt())
    assert versions(tmp_path / "c") == []


ADVICE_ON_THE_NETWORK = "Check the package sources and the network"


def refusal(entry: Allocator, cache: Path, apt: debian.Apt, version: str | None = None) -> str:
    """Returns the sentence that says why the entry cannot be fetched."""
    with pytest.raises(CairnError) as caught:
        debian.unpack_from_distribution(entry, cache, apt=apt, version=version)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def trixie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that claims to be Debian 13."""
    release = {
        "NAME": "Debian GNU/Linux",
        "VERSION_ID": "13",
        "PRETTY_NAME": "Debian GNU/Linux 13 (trixie)",
    }
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: release)


def mention(repository: Repository, package: str, replaces: str) -> None:
    """Adds an index entry of `package`, which says that it replaces the missing package `replaces`.

    apt then knows the missing package by name, but without a version.
    """
    index = repository.folder / "Packages"
    entry = f"Package: {package}\n"
    assert entry in index.read_text()
    index.write_text(
        index.read_text().replace(entry, f"{entry}Replaces: {replaces}\nBreaks: {replaces}\n")
    )


@pytest.mark.usefixtures("trixie")
@pytest.mark.parametrize("mentioned", [False, True])
def test_the_refusal_says_that_the_release_lacks_a_package(
    repository: Repository, library: bytes, tmp_path: Path, mentioned: bool
) -> None:
    """Debian 13 has no libmimalloc2.0, but its libmimalloc3 mentions that package.

    Cairn's demo once reported a failure of the network in this case.
    """
    repository.add("something-else", "1", library)
    if mentioned:
        mention(repository, "something-else", "libpretend9t64, libpretend9")
    assert refusal(ENTRY, tmp_path / "c", repository.apt()) == (
        "jemalloc is not obtainable here: Debian 13 does not have any of the packages "
        "libpretend9t64 and libpretend9. "
        "Build it, and name its library: -a jemalloc=/path/to/it.so"
    )


@pytest.mark.usefixtures("trixie")
def test_another_version_that_the_release_has_is_the_next_step(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("libmimalloc3", "3.0.1+ds-2.1", library)
    mention(repository, "libmimalloc3", "libmimalloc2.0")
    assert refusal(catalog.entry("mimalloc"), tmp_path / "c", repository.apt()) == (
        "mimalloc is not obtainable here: Debian 13 does not have the package libmimalloc2.0; it "
        "has libmimalloc3 (mimalloc 3.0.1): 'cairn allocators get --from distribution mimalloc3'"
    )


@pytest.mark.usefixtures("trixie")
def test_the_refusal_of_a_missing_version_names_the_version_of_the_release(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("libpretend9", "5.3.0-3", library)
    told = refusal(ENTRY, tmp_path / "c", repository.apt(), version="5.3.1")
    assert (
        "Debian 13 has jemalloc 5.3.0 and not 5.3.1" in told and ADVICE_ON_THE_NETWORK not in told
    )


def test_a_package_may_lie_in_the_index_that_could_not_be_fetched(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    """One of two package sources cannot be reached.

    The index of the other source does not prove that the release lacks a package.
    """
    repository.add("something-else", "1", library)
    apt = repository.apt()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with (repository.folder.parent / "sources.list").open("a") as sources:
            sources.write(f"deb [trusted=yes] http://127.0.0.1:{closed.getsockname()[1]} ./\n")
        told = refusal(ENTRY, tmp_path / "c", apt)
    assert (
        "do not hold any of the packages" in told
        and "127.0.0.1" in told
        and ADVICE_ON_THE_NETWORK in told
    )


@pytest.mark.usefixtures("trixie")
def test_the_systems_lists_answer_where_newer_ones_cannot_be_fetched(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("something-else", "1", library)
    refusal(ENTRY, tmp_path / "first", repository.apt())
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        lists = tmp_path / "first" / ".apt" / "state" / "lists"
        # The source stays the same, because apt identifies a list by its source. From here on, the
        # source has no index.
        index = repository.folder / "Packages"
        index.rename(repository.folder / "gone")
        told = refusal(ENTRY, tmp_path / "second", replace(repository.apt(), lists=str(lists)))
    assert (
        "Debian 13 does not have any of the packages" in told
        and "newer ones could not be fetched" in told
    )


def test_the_refusal_says_that_there_are_no_package_sources(
    repository: Repository, tmp_path: Path
) -> None:
    apt = repository.apt()
    (repository.folder.parent / "sources.list").write_text("")
    assert "apt has no package sources here" in refusal(ENTRY, tmp_path / "c", apt)


def test_an_allocator_without_a_package_is_refused_at_once(
    repository: Repository, tmp_path: Path
) -> None:
    without = replace(ENTRY, packages=())
    assert "no distribution package holds it" in refusal(without, tmp_path / "c", repository.apt())
    assert "never fetched" in refusal(catalog.entry("system"), tmp_path / "c", repository.apt())


def test_without_a_network_the_refusal_gives_the_reason(
    repository: Repository, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        apt = repository.apt(f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(
            CairnError, match=r"not obtainable here: .*127\.0\.0\.1.*Check the package sources"
        ):
            debian.unpack_from_distribution(ENTRY, tmp_path / "c", apt=apt)


def test_without_the_tools_the_refusal_says_how_to_use_a_library_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CairnError, match=r"apt-get is missing.*-a jemalloc=/path"):
        debian.unpack_from_distribution(ENTRY, tmp_path / "c")


def test_a_cache_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CairnError, match="set XDG_CACHE_HOME"):
        debian.unpack_from_distribution(ENTRY, tmp_path / "file" / "cache")


@contextlib.contextmanager
def silent_server(before: bytes = b"") -> Iterator[int]:
    """A server that accepts every connection, sends at most `before`, and then stays silent."""
    held = []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(before)
                    held.append(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        for connection in held:
            connection.close()
        server.shutdown(socket.SHUT_RDWR)


def apt_processes(cache: Path) -> list[int]:
    """Returns the processes that were started for this cache."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(cache).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nPack"])
def test_a_network_that_hangs_ends_in_a_sentence_and_leaves_no_process(
    repository: Repository, tmp_path: Path, before: bytes
) -> None:
    cache = tmp_path / "c"
    with silent_server(before) as port:
        apt = replace(repository.apt(f"http://127.0.0.1:{port}"), stall_s=1.0)
        started = time.monotonic()
        with pytest.raises(CairnError, match="no progress for 1 s"):
            debian.unpack_from_distribution(ENTRY, cache, apt=apt)
        assert time.monotonic() - started < 15
        # A killed process may end later.
        until = time.monotonic() + 20
        while apt_processes(cache) and time.monotonic() < until:
            time.sleep(0.02)
        assert apt_processes(cache) == []
    assert versions(cache) == []


def test_an_interrupted_fetch_leaves_nothing_half_made(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("libpretend9", "1-1", library)
    cache = tmp_path / "c"
    half_made = cache / ENTRY.name / ".new-left"
    with silent_server() as port:
        apt = repository.apt(f"http://127.0.0.1:{port}")
        code = (
            "import sys; from pathlib import Path; from cairn.allocators import debian\n"
            "from cairn.allocators.catalog import Allocator\n"
            f"debian.unpack_from_distribution({ENTRY!r}, Path({str(cache)!r}), apt=debian.{apt!r})"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(debian.__file__).parents[2])}
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL
        )
        try:
            while not apt_processes(cache / ".apt") and process.poll() is None:
                time.sleep(0.02)
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    half_made.mkdir()  # as a process that was killed leaves it
    for left in apt_processes(cache / ".apt"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)

    found = debian.unpack_from_distribution(ENTRY, cache, apt=repository.apt())

    assert found.problem is None
    assert versions(cache) == ["1-1"]


def test_the_systems_lists_are_used_and_left_as_they_are(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    repository.add("libpretend9", "1-1", library)
    first = tmp_path / "first"
    debian.unpack_from_distribution(ENTRY, first, apt=repository.apt())
    lists = first / ".apt" / "state" / "lists"
    before = sorted((path.name, path.stat().st_mtime_ns) for path in lists.iterdir())
    said: list[str] = []

    apt = replace(repository.apt(), lists=str(lists))
    debian.unpack_from_distribution(ENTRY, tmp_path / "second", said.append, apt=apt)

    assert [text.split()[0] for text in said] == ["downloading", "unpacking"]
    assert sorted((path.name, path.stat().st_mtime_ns) for path in lists.iterdir()) == before


def test_lists_of_yesterday_are_brought_up_to_date(
    repository: Repository, library: bytes, tmp_path: Path
) -> None:
    old = repository.add("libpretend9", "1-1", library)
    debian.unpack_from_distribution(ENTRY, tmp_path / "first", apt=repository.apt())
    yesterday = tmp_path / "first" / ".apt" / "state" / "lists"
    old.unlink()
    (repository.folder / "Packages").write_text("")
    repository.add("libpretend9", "2-1", library)

    apt = replace(repository.apt(), lists=str(yesterday))
    assert debian.unpack_from_distribution(ENTRY, tmp_path / "second", apt=apt).version == "2"
