"""Tests of libraries that are built from the user's own checkout or archive."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from cairn.allocators import archives, catalog, contenders, discover, register
from cairn.allocators.own_source import OwnSource, add_from_source
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

BUILD = "gcc -fno-builtin -shared -fPIC mine.c -o libmine.so && echo built"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return discover.cache_folder()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A source with one file and a folder."""
    folder = tmp_path / "check out"
    (folder / "docs").mkdir(parents=True)
    (folder / "mine.c").write_text(MALLOC)
    return folder


def silent(_: str) -> None:
    """A progress callback that ignores its text."""


def add(place: Path, name: str = "mine", **more: str | None) -> catalog.Found:
    wanted = {"build": BUILD, **more}
    return add_from_source(OwnSource(name, str(place), **wanted), silent)  # type: ignore[arg-type]


def left(cache: Path, name: str = "mine") -> list[str]:
    """Everything in the folder of the allocator; empty without the folder."""
    home = cache / name
    return sorted(path.name for path in home.iterdir()) if home.exists() else []


def test_a_checkout_is_built_and_its_library_is_a_contender(cache: Path, checkout: Path) -> None:
    found = add(checkout)

    assert (found.problem, found.version, found.cached) == (None, None, True)
    assert found.path == str(cache / "mine" / discover.ADDED / "libmine.so")
    assert found.origin == f"{checkout}, built with '{BUILD}'"
    assert sorted(path.name for path in checkout.iterdir()) == ["docs", "mine.c"]
    assert left(cache) == [discover.ADDED, "build.log"]
    assert "built" in (cache / "mine" / "build.log").read_text()
    contender = contenders.resolve(contenders.parse_contender("mine"), discover.discover())
    assert (contender.name, contender.preload) == ("mine", (found.path,))

    (checkout / "mine.c").write_text("#error later\n")
    assert contenders.resolve(contenders.parse_contender("mine"), discover.discover()).caveats == ()


@pytest.mark.parametrize("form", ["tar.gz", "tar.xz", "zip"])
@pytest.mark.parametrize("top", ["mine-1.0/", ""])
def test_an_archive_is_unpacked_and_built(
    cache: Path, tmp_path: Path, checkout: Path, form: str, top: str
) -> None:
    archive = tmp_path / f"source.{form}"
    files = {"mine.c": checkout / "mine.c", "README": checkout / "mine.c"}
    if form == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for name, path in files.items():
                packed.write(path, top + name)
    else:
        with tarfile.open(archive, f"w:{form[4:]}") as packed:  # type: ignore[call-overload]
            for name, path in files.items():
                packed.add(path, top + name)
    found = add(archive)
    assert (found.problem, found.source_sha256) == (None, discover.file_sha256(archive))


def test_two_versions_are_two_contenders_whose_names_hold_the_version(
    cache: Path, checkout: Path
) -> None:
    for version in ("1.9", "1.10"):
        (checkout / "mine.c").write_text(f'{MALLOC}const char *version = "{version}";\n')
        assert add(checkout, version=version).title == f"mine {version}"
    found = discover.discover()
    specs = [contenders.parse_contender(text) for text in ("mine@1.9", "mine@1.10", "mine")]
    contenders.refuse_duplicates(specs)
    chosen = [contenders.resolve(spec, found) for spec in specs]
    assert [contender.name for contender in chosen] == ["mine@1.9", "mine@1.10", "mine"]
    assert [contender.title for contender in chosen] == ["mine 1.9", "mine 1.10", "mine 1.10"]
    assert chosen[0].preload != chosen[1].preload == chosen[2].preload
    assert [item.name for item in discover.known_catalog().allocators].count("mine") == 1
    removed = register.remove(catalog.entry("mine", discover.known_catalog()), "1.9", silent)
    assert [item.version for item in removed] == ["1.9"]
    assert left(cache) == ["1.10+own", "build.log"]


def test_a_version_of_a_catalog_allocator_may_be_built(cache: Path, checkout: Path) -> None:
    """No registry has rpmalloc 2, so the user builds it.

    Cairn knows this build by the facts of the catalog, such as its layout.
    """
    found = add(checkout, "rpmalloc", version="2.0.1")
    assert (found.title, found.allocator.layout) == ("rpmalloc 2.0.1", "size-segregated")
    chosen = contenders.resolve(contenders.parse_contender("rpmalloc@2"), discover.discover())
    assert chosen.preload == (found.path,)
    with pytest.raises(UsageError, match=r"name the version that you build, such as rpmalloc@9\.9"):
        add(checkout, "rpmalloc")
    for name in ("system", "cairn", "glibc", "je", "google-tcmalloc-rseq"):
        with pytest.raises(UsageError, match=f"choose another name, such as my-{name}"):
            add(checkout, name, version="9")


@pytest.mark.parametrize("version", [None, "1"])
def test_a_library_that_changed_in_the_cache_is_reported(
    cache: Path, checkout: Path, version: str | None
) -> None:
    """The list once noticed this only of libraries that came from an archive."""
    found = add(checkout, version=version)
    assert found.path is not None

    def told() -> str:
        known = discover.known_catalog()
        copies = discover.find_cached(known, cache)
        return allocator_list.render(known, copies, View(width=500))

    assert "has changed" not in told()
    with open(found.path, "ab") as file:
        file.write(b"more")
    assert f"{found.path} has changed since it came into the cache" in told()


def test_a_second_build_takes_the_place_of_the_first(cache: Path, checkout: Path) -> None:
    first = add(checkout)
    (checkout / "mine.c").write_text(MALLOC + "int more;\n")
    second = add(checkout)
    assert first.path == second.path
    assert first.sha256 != second.sha256
    assert left(cache) == [discover.ADDED, "build.log"]


def test_a_name_has_versions_or_one_library_without_a_version(cache: Path, checkout: Path) -> None:
    add(checkout)
    with pytest.raises(
        UsageError, match=r"mine is already there without a version; .* remove mine"
    ):
        add(checkout, version="1")
    add(checkout, "other", version="1")
    with pytest.raises(UsageError, match="other has versions; name the version"):
        add(checkout, "other")
    path = cache / "other" / "1+own" / "libmine.so"
    with pytest.raises(UsageError, match=r"other has versions .* remove other"):
        register.add("other", str(path), silent)


def test_a_failed_build_is_a_sentence_with_the_log_and_registers_nothing(
    cache: Path, checkout: Path
) -> None:
    (checkout / "mine.c").write_text("#error this machine is too old\n")
    with pytest.raises(
        CairnError, match=r"this machine is too old.* full output is in .*build\.log"
    ) as caught:
        add(checkout)
    assert "\n" not in str(caught.value)
    assert left(cache) == ["build.log"]
    assert "too old" in (cache / "mine" / "build.log").read_text()
    assert discover.known_catalog() is catalog.load_catalog()


def test_a_failed_build_leaves_the_library_of_an_earlier_one(cache: Path, checkout: Path) -> None:
    first = add(checkout)
    with pytest.raises(CairnError, match="cannot be built with 'false'"):
        add(checkout, build="false")
    [found] = discover.find_cached(discover.known_catalog(), cache)
    assert (found.path, found.sha256) == (first.path, first.sha256)


@pytest.mark.parametrize(
    ("build", "library", "says"),
    [
        ("true", None, r"made no library that defines malloc; .*build\.log"),
        ("true", "lib/libmine.so", r"made no lib/libmine\.so; .*build\.log"),
        (f"{BUILD} && cp libmine.so other.so.1", None, r"made 2 libraries .*libmine\.so, other\.so\.1"),
        (f"{BUILD} && ln -s libmine.so libmine.so.2", None, None),
        (f"{BUILD} && cp libmine.so other.so", "other.so", None),
        (" ", None, "the build command is empty"),
    ],
)  # fmt: skip
def test_the_library_is_found_or_asked_for(
    cache: Path, checkout: Path, build: str, library: str | None, says: str | None
) -> None:
    if says is None:
        assert add(checkout, build=build, library=library).problem is None
        return
    with pytest.raises(UsageError, match=says):
        add(checkout, build=build, library=library)
    assert left(cache) in ([], ["build.log"])


def test_a_library_that_cannot_be_preloaded_is_not_registered(cache: Path, checkout: Path) -> None:
    (checkout / "mine.c").write_text("int nothing;\n")
    with pytest.raises(ContenderFailed, match=r"cannot be used: libmine\.so defines no malloc"):
        add(checkout, library="libmine.so")
    with pytest.raises(ContenderFailed, match=r"cannot be used: mine\.c is"):
        add(checkout, library="mine.c")
    assert left(cache) == ["build.log"]


def test_a_library_beside_it_that_it_needs_is_kept_with_it(cache: Path, checkout: Path) -> None:
    (checkout / "part.c").write_text("int part(void) { return 1; }\n")
    build = (
        "mkdir out && gcc -shared -fPIC part.c -o out/libpart.so && gcc -fno-builtin -shared -fPIC "
        "mine.c -o out/libmine.so -Wl,--no-as-needed -Lout -l:libpart.so"
    )
    found = add(checkout, build=build)
    folder = str(Path(found.path or "").parent)
    assert (found.problem, found.library_path) == (None, (folder,))


def test_what_a_library_beside_it_needs_is_kept_too(cache: Path, checkout: Path) -> None:
    (checkout / "one.c").write_text("int two(void); int one(void) { return two(); }")
    (checkout / "two.c").write_text("int two(void) { return 2; }")
    more = MALLOC + "\nint one(void);\nint uses(void) { return one(); }\n"
    (checkout / "mine.c").write_text(more)
    found = add(
        checkout,
        build="gcc -shared -fPIC two.c -o libtwo.so && gcc -shared -fPIC one.c -o libone.so -L. "
        "-ltwo && gcc -fno-builtin -shared -fPIC mine.c -o libmine.so -L. -lone",
        library="libmine.so",
    )
    kept = {path.name for path in (cache / "mine" / discover.ADDED).glob("*.so")}
    assert (kept, found.problem) == ({"libmine.so", "libone.so", "libtwo.so"}, None)


NOT_KEPT = {
    "a relative path": ("libmine.so", "sub/libone.so", "needs sub/libone.so by a relative path"),
    "a path above": ("deep/er/libmine.so", "../../sub/libone.so", "by a relative path"),
    "a path in the build": (
        "libmine.so", "$PWD/sub/libone.so",
        "/source/sub/libone.so from the folder of the build, which is removed",
    ),
    "the search path of the build": (
        "libmine.so", "-Lsub -lone -Wl,-rpath,$PWD/sub",
        "needs libone.so from the folder of the build, which is removed",
    ),
}  # fmt: skip
"""By the way in which a library names another one: its path, the words that link it, and a part of
the error."""


@pytest.mark.parametrize("how", NOT_KEPT)
def test_a_library_that_the_build_leaves_elsewhere_is_refused(
    cache: Path, checkout: Path, how: str
) -> None:
    """Cairn once said that the disk was full, or wrote a file outside of the library's folder."""
    library, link, says = NOT_KEPT[how]
    (checkout / "one.c").write_text("int one(void) { return 1; }")
    more = MALLOC + "\nint one(void);\nint uses(void) { return one(); }\n"
    (checkout / "mine.c").write_text(more)
    folder, file = os.path.split(library)
    with pytest.raises(ContenderFailed) as raised:
        add(
            checkout,
            build="mkdir -p sub deep/er && gcc -shared -fPIC one.c -o sub/libone.so && "
            f"cp mine.c '{folder or 'sub'}' && cd './{folder}' && "
            f"gcc -fno-builtin -shared -fPIC mine.c -o {file} {link}",
            library=library,
        )
    assert says in str(raised.value)
    assert str(raised.value).endswith(
        "Put libone.so beside libmine.so, and link it with -L and -l."
    )
    assert left(cache) == ["build.log"]


def test_a_library_of_the_system_may_be_needed_by_its_path(
    cache: Path, checkout: Path, tmp_path: Path
) -> None:
    (checkout / "one.c").write_text("int one(void) { return 1; }")
    more = MALLOC + "\nint one(void);\nint uses(void) { return one(); }\n"
    (checkout / "mine.c").write_text(more)
    found = add(
        checkout,
        build=f"gcc -shared -fPIC one.c -o {tmp_path}/libone.so && "
        f"gcc -fno-builtin -shared -fPIC mine.c -o libmine.so {tmp_path}/libone.so",
        library="libmine.so",
    )
    assert (found.problem, found.library_path) == (None, ())


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [("a b", None, "cannot be an allocator's name"), ("x", "1/2", "cannot be a version")],
)
def test_a_name_or_version_that_cannot_be_typed_is_refused(
    cache: Path, checkout: Path, name: str, version: str | None, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        add(checkout, name, version=version)
    assert not cache.exists()


def test_a_source_that_is_missing_or_no_archive_is_a_sentence(
    cache: Path, tmp_path: Path, checkout: Path
) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        add(tmp_path / "none")
    with pytest.raises(
        UsageError, match=r"mine\.c is not a readable archive; .*a tar or a zip file"
    ):
        add(checkout / "mine.c")
    assert left(cache) == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Free some space, or set XDG_CACHE_HOME to another folder."),
        (errno.EDQUOT, "Free some space, or set XDG_CACHE_HOME to another folder."),
        (errno.EACCES, "Make its files readable."),
        (errno.EIO, "Give --from a copy that can be read."),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_the_remedy_of_a_failed_copy_fits_its_error(
    cache: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str,
    whole: bool,
) -> None:  # fmt: skip
    """The advice on a full disk was once to make the files readable."""
    error = OSError(number, os.strerror(number), "mine.c")

    def copytree(source: str, target: str, **_: object) -> None:
        raise error if whole else shutil.Error([(source, target, str(error))])

    monkeypatch.setattr(shutil, "copytree", copytree)
    with pytest.raises(CairnError) as caught:
        add(checkout)
    assert str(caught.value) == f"{checkout} cannot be copied: {error}. {remedy}"
    assert left(cache) == []


def test_pipes_and_sockets_in_a_checkout_are_passed_over(
    cache: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They once ended the copy with the advice to make the files readable."""
    os.mkfifo(checkout / "pipe")
    monkeypatch.chdir(checkout / "docs")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")  # a path has at most 107 bytes here
        found = add(checkout, build=f"{BUILD} && test ! -e pipe && test ! -e docs/socket")
    assert found.problem is None


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_the_user_may_write_the_record_under_any_umask(
    cache: Path, checkout: Path, umask: int
) -> None:
    """With umask 0, cairn once refused the record that it had just written itself."""
    before = os.umask(umask)
    try:
        found = add(checkout)
    finally:
        os.umask(before)
    assert found.problem is None
    mode = (cache / "mine" / discover.ADDED / discover.RECORD).stat().st_mode
    assert stat.S_IMODE(mode) == 0o644 & ~umask


def test_a_record_that_other_users_may_write_is_a_sentence(
    cache: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is on a file system that gives every file the same mode. It was once a traceback."""
    written = discover.write_record

    def write_record(folder: Path, values: dict[str, str]) -> None:
        written(folder, values)
        (folder / discover.RECORD).chmod(0o666)

    monkeypatch.setattr(discover, "write_record", write_record)
    says = "was added to .* but cannot be used: its record there cannot be read, or other users"
    with pytest.raises(CairnError, match=f"mine 1 {says}"):
        add(checkout, version="1")
    library = checkout / "libmine.so"
    subprocess.run(BUILD, shell=True, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    with pytest.raises(CairnError, match=f"other {says}"):
        register.add("other", str(library), silent)


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, to, 0o6755
    return member


HOSTILE = {
    "name": [tarfile.TarInfo("../../../../evil.c")],
    "below a folder": [tarfile.TarInfo("a/../../../../../evil.c")],
    "through a link": [link("out", "../../../.."), tarfile.TarInfo("out/evil.c")],
    "link to a link": [link("a", "."), link("b", "a/../../../.."), tarfile.TarInfo("b/evil.c")],
    "hard link": [link("evil.c", "../../../../../victim", tarfile.LNKTYPE)],
}
"""Members of archives that would write or read outside of the folder."""


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("filtered", [True, False], ids=["filter", "older Python"])
def test_an_archive_cannot_write_outside_of_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, filtered: bool
) -> None:
    """Python 3.11.2, which Debian 12 has, lacks the filter of tarfile."""
    if not filtered:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no data_filter")
    (tmp_path / "victim").write_text("secret")
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as packed:
        for member in HOSTILE[name]:
            packed.addfile(member)
    with pytest.raises((UsageError, CairnError)):
        add(archive)
    assert not list(tmp_path.rglob("evil.c"))
    assert left(cache) == []


def test_an_archive_is_unpacked_the_same_without_the_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "good.tar"
    with tarfile.open(archive, "w") as packed:
        folder = tarfile.TarInfo("src")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        script = tarfile.TarInfo("src/configure")
        script.mode, script.size = 0o6755, 2
        packed.addfile(folder)
        packed.addfile(script, io.BytesIO(b"x\n"))
        packed.addfile(link("src/again", "configure"))
        packed.addfile(link("src/same", "src/configure", tarfile.LNKTYPE))
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    archives.unpack(str(archive), tmp_path / "out")
    made = tmp_path / "out" / "src"
    assert (made / "configure").read_bytes() == (made / "again").read_bytes() == b"x\n"
    assert (made / "same").read_bytes() == b"x\n"
    assert stat.S_IMODE((made / "configure").stat().st_mode) == 0o755
    assert os.readlink(made / "again") == "configure"


def test_an_interrupted_build_registers_nothing_and_ends_its_processes(
    cache: Path, tmp_path: Path, checkout: Path
) -> None:
    own = str(Path(sys.executable).with_name("cairn"))
    command = [own, "allocators", "add", "mine", "--from", str(checkout)]
    process = subprocess.Popen(
        [*command, "--build", f"echo $$ >{tmp_path}/pid; sleep 1000"],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "xdg")},
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 90
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline, process.poll()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130, told
    assert b"Traceback" not in told
    assert left(cache) == ["build.log"]
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    while child.exists() and child.read_bytes():
        assert time.monotonic() < deadline, "the build goes on"
        time.sleep(0.05)


# --- the command ---


def test_the_command_adds_two_versions_that_one_comparison_tells_apart(
    cairn, forward: Path, tmp_path: Path
) -> None:
    """The build copies a library that forwards to glibc, so that the program really runs."""
    for version in ("1.0", "2.0"):
        folder = tmp_path / version
        folder.mkdir()
        shutil.copy(forward, folder / "ready")
        done = cairn(
            "allocators", "add", f"mine@{version}", "--from", folder, "--build", "cp ready l.so"
        )
        assert (done.code, done.out.split(":")[0]) == (0, f"mine {version}"), done.err
    result = cairn("compare", "-a", "system,mine@1.0,mine@2.0", "-r", 2, "--json", "--", "true")
    assert result.code == 0, result.err
    made = [(item["name"], item["version"]) for item in result.json["run"]["contenders"]]
    assert made[1:] == [("mine@1.0", "1.0"), ("mine@2.0", "2.0")]
    text = cairn("report", "last").out
    assert "mine@1.0" in text or "mine 1.0" in text
    assert "mine@2.0" in text or "mine 2.0" in text
    missing = cairn("run", "-a", "mine@3", "--", "true")
    assert missing.sentence.startswith("✘ no mine 3 here, only 2.0, 1.0;")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mine",), "name the library's PATH, or its source with --from and --build"),
        (("mine", "x.so", "--build", "make"), "need --from"),
        (("mine", "x.so", "--from", "."), "PATH is not needed"),
        (("mine", "--from", "."), "such as --build make"),
        (("mine@1", "x.so"), "a version needs --from and --build; leave out '@1'"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    cairn, arguments: tuple[str, ...], says: str
) -> None:
    done = cairn("allocators", "add", *arguments)
    assert done.code == 2
    assert says in done.sentence


def test_the_record_of_a_build_names_its_command_and_source(cache: Path, checkout: Path) -> None:
    add(checkout, version="1")
    record = json.loads((cache / "mine" / "1+own" / discover.RECORD).read_text())
    assert (record["built"], record["version"]) == (BUILD, "1")
    assert "path" not in record
