"""Tests of `make install` and `make uninstall`.

Tools must find each installed file, and each file must work without the source tree. The installed
command uses the Python packages of the test environment, so that no test needs the network. Only
`make fresh` also installs these packages (tests/fresh/).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.compilers import ROOT
from support.packages import built_by_cmake, call, needs_cmake, needs_pkg_config, pkg_config
from support.places import PROGRAMS

from cairn import __version__

PACKAGED = {
    "cairn": [PROGRAMS / "installed_c.c", PROGRAMS / "installed_cxx.cpp"],
    "cairn-arena": [
        ROOT / "examples" / "arena" / "first.c",
        ROOT / "examples" / "arena" / "containers.cpp",
    ],
}
"""By package: the programs that are linked with it, one in C and one in C++."""

TARGETS = [
    ("cairn", "malloc"),
    ("cairn", "malloc-static"),
    ("cairn-arena", "arena"),
    ("cairn-arena", "arena-static"),
]

LIBRARIES = ("cairn", "cairn-hardened", "cairn-arena")

FILES = {
    "bin/cairn",
    *(f"include/cairn/{name}" for name in ("arena.h", "arena.hpp", "cairn.h")),
    *(f"lib/lib{name}{end}" for name in LIBRARIES for end in (".a", ".so", ".so.0")),
    *(f"lib/pkgconfig/{name}.pc" for name in LIBRARIES),
    *(
        f"lib/cmake/{name}/{name}-config{end}.cmake"
        for name in ("cairn", "cairn-arena")
        for end in ("", "-release", "-version")
    ),
    "share/man/man1/cairn.1",
    "share/bash-completion/completions/cairn",
    "share/zsh/site-functions/_cairn",
    "share/fish/vendor_completions.d/cairn.fish",
}
"""Every installed file outside the Python environment."""

WITHOUT_NETWORK = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_CACHE_DIR": "1"}


def make(
    tree: Path, goal: str, prefix: object, *under: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs make in a tree that is already built."""
    kept = ("-o", "build/installed")
    return subprocess.run(
        [*under, "make", "--no-print-directory", *kept, goal, f"PREFIX={prefix}"],
        cwd=tree,
        env={
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(tree),
            **WITHOUT_NETWORK,
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the one line, apart from make's own, that reports a refusal."""
    assert done.returncode != 0, done.stdout
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ")]
    assert len(lines) == 1 and lines[0].startswith("cairn: "), done.stderr
    return lines[0]


def files_below(folder: Path) -> set[str]:
    """Returns the files below the folder, without those of the Python environment."""
    names = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    return {name for name in names if not name.startswith("lib/cairn/")}


def borrow_dependencies(prefix: Path) -> None:
    """Lets the installed command import the Python packages of the test environment."""
    (site,) = (prefix / "lib" / "cairn").glob("lib/python3*/site-packages")
    borrowed = site / "borrowed.pth"
    borrowed.write_text(sysconfig.get_path("purelib") + "\n")
    borrowed.chmod(0o644)  # all users, whatever the umask


def copy_tree(target: Path) -> Path:
    """Makes a tree as `make` leaves it, with the files that the rules of the Makefile name.

    A copy of the whole tree would fail if another test removed a file meanwhile.
    """
    target.mkdir()
    for name in ("CMakeLists.txt", "Makefile", "README.md", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, target)
    for name in ("man", "tools", "build/dist"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    (target / ".venv").symlink_to(Path(sys.prefix))
    return target


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this tree."""
    return copy_tree(tmp_path / "a tree")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with a space in its path, installed from a tree that no longer exists."""
    folder = tmp_path_factory.mktemp("install")
    tree = copy_tree(folder / "a tree")
    succeed(make(tree, "install", folder / "a prefix"))
    shutil.rmtree(tree)
    borrow_dependencies(folder / "a prefix")
    return folder / "a prefix"


def path_with(prefix: Path) -> str:
    return f"{prefix / 'bin'}:{os.environ['PATH']}"


# --- the files ---


def test_every_file_is_where_tools_look_for_it(prefix: Path) -> None:
    assert files_below(prefix) == FILES
    for name in LIBRARIES:
        assert (prefix / "lib" / f"lib{name}.so").readlink() == Path(f"lib{name}.so.0")
    for path in prefix.rglob("*"):
        assert path.is_symlink() or path.stat().st_mode & 0o444 == 0o444, (
            f"others cannot read {path}"
        )


def test_no_file_names_the_tree_or_a_temporary_folder(prefix: Path) -> None:
    gone = (str(prefix.parent / "a tree").encode(), b"lib/.cairn-new")
    files = [path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.suffix == ".pyc" for path in files)
    for path in files:
        assert not any(words in path.read_bytes() for words in gone), path


def test_man_finds_the_page(prefix: Path) -> None:
    if not shutil.which("man"):
        pytest.skip("man is not here")
    found = subprocess.run(
        ["man", "-M", prefix / "share" / "man", "-w", "cairn"], capture_output=True, check=False
    )
    assert found.stdout.decode().strip() == str(prefix / "share" / "man" / "man1" / "cairn.1")


# --- the command ---


def test_the_command_works_without_the_tree(prefix: Path, churn: Path, tmp_path: Path) -> None:
    cairn = prefix / "bin" / "cairn"
    assert call(cairn, "--version", HOME=str(tmp_path)) == f"cairn {__version__}\n"
    listed = json.loads(call(cairn, "allocators", "--json", HOME=str(tmp_path)))["found"]
    (own,) = [allocator for allocator in listed if allocator["allocator"] == "cairn"]
    assert Path(own["path"]).is_relative_to(prefix / "lib" / "cairn")
    words = ("compare", "-a", "system,cairn", "-r", "2", "--json", "--", churn, "1000")
    document = json.loads(call(cairn, *words, HOME=str(tmp_path)))
    assert [contender["name"] for contender in document["run"]["contenders"]] == ["system", "cairn"]


# --- programs that are linked ---


def run_linked(prefix: Path, package: str, program: Path) -> None:
    """Runs a program. The program's source says how it proves that it uses the package."""
    said = call(program, LD_LIBRARY_PATH=str(prefix / "lib"))
    expected = {"first": "998001", "containers": "1000 numbers"}
    assert expected.get(program.name, "") in said


def libraries_of(prefix: Path, program: Path) -> str:
    """Returns the output of ldd: the library file that the loader takes for each needed name."""
    return call("ldd", program, LD_LIBRARY_PATH=str(prefix / "lib"))


@needs_pkg_config
@pytest.mark.parametrize("package", PACKAGED)
def test_programs_are_linked_by_pkg_config(prefix: Path, tmp_path: Path, package: str) -> None:
    assert pkg_config(prefix, "--modversion", package) == [__version__]
    for source in PACKAGED[package]:
        compiler = ["gcc", "-std=c11"] if source.suffix == ".c" else ["g++", "-std=c++17"]
        flags = pkg_config(prefix, "--cflags", "--libs", package)
        shared, static = tmp_path / source.stem, tmp_path / "static" / source.stem
        static.parent.mkdir(exist_ok=True)
        call(*compiler, source, *flags, "-o", shared)
        call(*compiler, "-static", source, *flags, "-o", static)
        run_linked(prefix, package, shared)
        run_linked(prefix, package, static)
        assert f"lib{package}.so.0 => {prefix}/lib/lib{package}.so.0" in libraries_of(
            prefix, shared
        )


@needs_cmake
@pytest.mark.parametrize(
    ("package", "target"),
    [TARGETS[0], *(pytest.param(*one, marks=pytest.mark.long) for one in TARGETS[1:])],
)
def test_programs_are_linked_by_cmake(
    prefix: Path, tmp_path: Path, package: str, target: str
) -> None:
    build = built_by_cmake(tmp_path, prefix, f"{package} {__version__}", target, PACKAGED[package])
    for source in PACKAGED[package]:
        program = build / source.stem
        run_linked(prefix, package, program)
        assert (f"lib{package}.so.0" in libraries_of(prefix, program)) == (
            not target.endswith("static")
        )


def test_the_library_is_preloaded_into_a_program_as_it_is(
    prefix: Path, churn: Path, tmp_path: Path
) -> None:
    # LD_PRELOAD cannot contain a space, so the test uses a symbolic link.
    plain = tmp_path / "lib"
    plain.symlink_to(prefix / "lib")
    done = subprocess.run(
        [churn, "1000"],
        env={"LD_PRELOAD": str(plain / "libcairn.so.0"), "CAIRN_STATS": "json"},
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stderr)["mapped_bytes"] > 0


# --- completions ---


def test_bash_completes_commands_and_options(prefix: Path) -> None:
    script = """
        . "$0"
        complete -p cairn
        for line in "cairn compar" "cairn compare --precisi"; do
            COMP_WORDS=($line)
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            COMPREPLY=()
            _cairn_completion cairn
            printf '<%s>' "${COMPREPLY[@]}"
        done
    """
    file = prefix / "share" / "bash-completion" / "completions" / "cairn"
    said = call("bash", "--norc", "-c", script, file, PATH=path_with(prefix))
    assert said == "complete -o nosort -F _cairn_completion cairn\n<compare><--precision>"


def test_zsh_finds_the_completions(prefix: Path, tmp_path: Path) -> None:
    if not shutil.which("zsh"):
        pytest.skip("zsh is not here")
    script = """
        fpath=("$1" $fpath); autoload -Uz compinit; compinit -u -d "$2"; print $_comps[cairn]
        autoload +X $_comps[cairn]; whence -v _cairn
    """
    folder = prefix / "share" / "zsh" / "site-functions"
    said = call("zsh", "-f", "-c", script, "zsh", folder, tmp_path / "dump", PATH=path_with(prefix))
    assert said.splitlines()[0] == "_cairn" and str(folder) in said


def test_fish_completes_commands(prefix: Path, tmp_path: Path) -> None:
    if not shutil.which("fish"):
        pytest.skip("fish is not here")
    surroundings = {
        "PATH": path_with(prefix),
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(prefix / "share"),
    }
    said = call("fish", "-c", 'complete -C "cairn compar"', **surroundings)
    assert said.split()[0] == "compare"


# --- installing again, and uninstalling ---


@pytest.mark.long
def test_a_second_install_replaces_the_first_and_uninstall_removes_it(
    tree: Path, tmp_path: Path
) -> None:
    prefix = tmp_path / "a prefix"
    (prefix / "share" / "man" / "man1").mkdir(parents=True)
    foreign = prefix / "include" / "other.h"
    succeed(make(tree, "install", prefix))
    foreign.write_text("")
    library = prefix / "lib" / "libcairn.so.0"
    manifest = prefix / "lib" / "cairn" / "manifest.txt"
    manifest.write_text(manifest.read_text() + "bin/of-an-older-version\n")
    (prefix / "bin" / "of-an-older-version").write_text("")
    with library.open("rb") as mapped:
        succeed(make(tree, "install", prefix))
        assert os.fstat(mapped.fileno()).st_nlink == 0, "a running program keeps its own library"
    assert files_below(prefix) == FILES | {"include/other.h"}
    assert not list(prefix.rglob(".*cairn-*"))

    succeed(make(tree, "uninstall", prefix))
    left = {str(path.relative_to(prefix)) for path in prefix.rglob("*")}
    assert left == {"include", "include/other.h", "share", "share/man", "share/man/man1"}
    assert "has installed nothing" in sentence(make(tree, "uninstall", prefix))


@pytest.mark.long
def test_destdir_collects_the_files_of_a_package(tree: Path, tmp_path: Path) -> None:
    prefix, destination = tmp_path / "usr", tmp_path / "put together"
    said = succeed(make(tree, "install", prefix, DESTDIR=str(destination)))
    assert not prefix.exists() and "ldconfig" not in said
    written = Path(f"{destination}{prefix}")
    assert files_below(written) == FILES
    for path in written.rglob("*"):
        assert (
            path.is_symlink()
            or not path.is_file()
            or str(destination).encode() not in path.read_bytes()
        ), path
    written.rename(prefix)
    borrow_dependencies(prefix)
    assert (
        call(prefix / "bin" / "cairn", "--version", HOME=str(tmp_path)) == f"cairn {__version__}\n"
    )


# --- building ---


def test_a_build_that_was_interrupted_is_built_again(tree: Path) -> None:
    """Make once took the folder that such a build leaves for a finished build, and never built."""
    (tree / "build" / "wheel").mkdir()
    shutil.rmtree(tree / "build" / "dist")
    steps = call("make", "-n", "-C", tree, "-o", ".venv/ready", "build/installed")
    assert "pip wheel" in steps


def test_an_environment_without_pip_is_set_up_again(tree: Path, tmp_path: Path) -> None:
    """An interrupted setup once left such a .venv, with which every later make failed.

    The interpreter is a script, so that the test needs no network.
    """
    (tree / ".venv").unlink()
    python, steps = tree / ".venv" / "bin" / "python", tmp_path / "steps"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    whole = tmp_path / "python3"
    whole.write_text(
        f"#!/bin/sh\necho \"$@\" >>'{steps}'\n"
        'case "$*" in "-m venv"*) cp "$0" .venv/bin/python ;; esac\n'
    )
    whole.chmod(0o755)
    call("make", "-C", tree, ".venv/ready", f"PYTHON={whole}")
    assert "-m venv --clear .venv" in steps.read_text().splitlines()
    assert (tree / ".venv" / "ready").exists()


def test_help_needs_only_what_every_system_has(tmp_path: Path) -> None:
    """The list once needed column(1), which Debian's images lack."""
    for name in ("expand", "make", "sed"):
        program = shutil.which(name)
        assert program
        (tmp_path / name).symlink_to(program)
    shown = call("make", "-s", "-C", ROOT, "help", PATH=str(tmp_path)).splitlines()
    assert "  make install     install for this user, or under PREFIX=" in "\n".join(shown)
    assert len(shown) > 10
    assert all(line[17:19] == "  " and line[19] != " " for line in shown), shown


# --- refusals ---


def test_the_python_of_the_build_installs_and_one_that_is_too_old_is_refused(
    tree: Path, tmp_path: Path
) -> None:
    """Both goals once ran whatever python3 was, which failed with a traceback if it was too old."""
    assert "PREFIX is empty" in sentence(make(tree, "install", "", PYTHON="/bin/false"))
    done = make(tree, "uninstall", tmp_path, PYTHON="/bin/false")
    assert done.returncode != 0
    assert done.stderr.startswith("cairn needs Python 3.11 or newer; make PYTHON="), done.stderr


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder in which its owner may not write."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


def test_a_prefix_that_cannot_be_written_is_refused(tree: Path, read_only: Path) -> None:
    # Root may write everywhere, so setpriv takes its capabilities away.
    under = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    if under and subprocess.run([*under, "true"], capture_output=True, check=False).returncode:
        pytest.skip("setpriv cannot take away rights here")
    for prefix in (read_only, read_only / "below"):
        assert f"{read_only} cannot be written" in sentence(make(tree, "install", prefix, *under))
    assert not list(read_only.iterdir())


def test_a_file_in_the_way_is_refused(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert f"{file} is not a folder" in sentence(make(tree, "install", file / "below"))
    assert "PREFIX is empty" in sentence(make(tree, "install", ""))


def test_a_folder_of_another_program_is_refused(tree: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "prefix" / "lib" / "cairn" / "of-another-program"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("")
    assert "'make install' did not make it" in sentence(make(tree, "install", tmp_path / "prefix"))
    assert files_below(tmp_path / "prefix") == set() and foreign.exists()


def test_nothing_changes_if_pip_fails(tree: Path, tmp_path: Path) -> None:
    (tree / "constraints.txt").write_text("cairn-malloc==999\n")
    prefix = tmp_path / "some" / "prefix"
    done = make(tree, "install", prefix)
    assert done.returncode != 0 and "pip could not install" in done.stderr
    assert not prefix.parent.exists()
