"""Tests of the instructions in docs/allocator.md and its reference: examples, tables and output."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from support.compilers import COMPILERS, ROOT, STANDARD, run, succeed
from support.compilers import WARNINGS as PEDANTIC
from support.isolation import users_environment, users_tool

from .conftest import Library, Program

DOCUMENT = "".join(
    (ROOT / "docs" / name).read_text() for name in ("allocator.md", "allocator-reference.md")
)
EXAMPLES = ROOT / "examples"
FOLDERS = [EXAMPLES / name for name in ("heap", "rust", "docker", "systemd")]
CRATE = EXAMPLES / "rust"
WORDS = EXAMPLES / "heap" / "words.c"
INPUT = "the cat and the dog and the end"
CODE = "c|rust|toml|dockerfile|ini"


def chapter(title: str) -> str:
    return DOCUMENT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_column(text: str) -> Iterator[str]:
    """Returns the names in the first cells of the tables."""
    for cell in re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE):
        yield from re.findall(r"`(\w+)", cell)


# --- the document and the code ---


def test_all_code_in_the_document_is_that_of_the_examples() -> None:
    texts = [
        path.read_text() for folder in FOLDERS for path in folder.rglob("*.*") if path.is_file()
    ]
    texts.append((EXAMPLES / "docker" / "Dockerfile").read_text())
    shown = re.findall(rf"^```(?:{CODE})\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 4
    for block in shown:
        assert any(block in text for text in texts), block


def test_every_member_of_the_statistics_is_explained() -> None:
    header = (ROOT / "include" / "cairn" / "cairn.h").read_text()
    members = {
        name
        for structure in ("cairn_class_stats", "cairn_stats")
        for name in re.findall(
            r"^    \w+ (\w+);",
            header.split(f"struct {structure} {{")[1].split("\n};")[0],
            re.MULTILINE,
        )
    }
    assert len(members) >= 24
    assert members == set(first_column(chapter("Statistics").split("### Call sites")[0]))


def test_every_member_about_sites_is_explained(program: Callable[..., Program]) -> None:
    run = program("sites.c", "preloaded")
    plain, sites = (
        json.loads(run(CAIRN_STATS="json", **more).err) for more in ({}, {"CAIRN_SITES": "1"})
    )
    members = (set(sites) - set(plain)) | set(sites["sites"][0])
    explained = chapter("Statistics").split("### Call sites")[1].split("### glibc's")[0]
    assert members == set(first_column(explained))


def test_every_option_is_explained() -> None:
    names = re.findall(
        r"^ \*     (CAIRN_[A-Z_]*[A-Z])=",
        (ROOT / "src" / "alloc" / "options.h").read_text(),
        re.MULTILINE,
    )
    assert set(names) == set(first_column(chapter("Options")))


def shape(line: str) -> str:
    """Returns the line with N for each number and each noun in the plural, to compare two runs."""
    return re.sub(
        r"N (system call|slab|block|large block)\b(?!s)", r"N \1s", re.sub(r"\d+", "N", line)
    )


def test_the_statistics_at_exit_look_as_in_the_document(
    program: Callable[..., Program],
) -> None:
    ended = program("footprint.c", "preloaded")("quiet", CAIRN_STATS="1")
    shown = {shape(line) for line in DOCUMENT.splitlines() if line.startswith("cairn: ")}
    said = ended.err.splitlines()
    assert len(said) > 4
    for line in said:
        assert shape(line) in shown, line


# --- C and C++ ---


@pytest.mark.parametrize("compiler", COMPILERS[".c"])
@pytest.mark.parametrize("form", ["shared", "archive", "all static"])
def test_the_example_of_a_heap_does_what_its_document_says(
    library: Library, tmp_path: Path, compiler: str, form: str
) -> None:
    flags = {
        "shared": [str(library.shared), f"-Wl,-rpath,{library.folder}"],
        "archive": [str(library.archive)],
        "all static": [str(library.archive), "-static"],
    }[form]
    built = tmp_path / "words"
    succeed(compiler, STANDARD[".c"], *PEDANTIC, "-I", ROOT / "include", WORDS, *flags, "-o", built)
    said = succeed("bash", "-c", f"echo {INPUT} | {shlex.quote(str(built))}")
    assert INPUT in DOCUMENT and said.strip() in DOCUMENT, said


def test_a_static_program_in_c_plus_plus_works(
    library: Library, compiled_here: Callable[..., Path]
) -> None:
    assert "0 failed" in succeed(compiled_here("operators.cpp", library.archive, "-static"))


# --- Rust ---


@pytest.fixture(scope="session")
def cargo(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Returns cargo(command, …), which uses no network and writes nothing to the source tree."""
    tool = users_tool("cargo")
    target = tmp_path_factory.mktemp("rust")

    def call(command: str, *arguments: str) -> str:
        options = ("--quiet", "--offline", "--locked", "--manifest-path", CRATE / "Cargo.toml")
        environment = users_environment(
            CARGO_TARGET_DIR=str(target), CAIRN_LIB_DIR=str(library.folder)
        )
        done = run(tool, command, *options, *arguments, **environment)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    return call


def test_a_program_in_rust_uses_the_allocator(cargo: Callable[..., str]) -> None:
    said = cargo("run", "--release").splitlines()
    assert said[0] == "33 bytes have room for 64"
    assert said[0] in DOCUMENT
    assert re.fullmatch(r"[1-9]\d* MiB went back", said[-1])


def test_the_crate_keeps_the_contract_of_its_trait(cargo: Callable[..., str]) -> None:
    """Runs the crate's own tests, and the code in its documentation."""
    cargo("test")


# --- Docker ---


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", dockerfile.read_text())
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


class Follower:
    """Executes the steps of a Dockerfile without Docker.

    Each stage is a folder. $DESTDIR points the installation of a stage to its folder. The commands
    run directly on this machine, with its programs and packages.
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.stages: dict[str, Path] = {}
        self.root = self.folder = scratch
        self.environment: dict[str, str] = {}

    def follow(self, name: str, rest: str) -> None:
        words = shlex.split(rest)
        match name:
            case "FROM":
                self.root = self.folder = self.scratch / f"stage-{len(self.stages)}"
                self.root.mkdir()
                self.stages[words[-1]] = self.root
                self.environment = {}
            case "WORKDIR":
                self.folder = self.within(self.root, rest)
                self.folder.mkdir(parents=True)
            case "COPY":
                source = (
                    self.stages[words.pop(0).removeprefix("--from=")]
                    if words[0].startswith("--from=")
                    else ROOT
                )
                for word in words[:-1]:
                    self.copy(self.within(source, word), words[-1])
            case "ENV":
                key, _, value = rest.partition("=")
                self.environment[key] = value
            case "RUN":
                if words[0] != "apt-get":
                    self.call(rest)
            case _:
                pytest.fail(f"Follower does not know the instruction {name}: add it")

    def within(self, root: Path, path: str) -> Path:
        return (
            root / path.removeprefix("/")
            if path.startswith("/") or root == ROOT
            else self.folder / path
        )

    def copy(self, source: Path, target: str) -> None:
        goal = self.within(self.root, target)
        if source.is_dir():
            shutil.copytree(source, goal)
        else:
            goal = goal / source.name if target.endswith("/") else goal
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, goal)

    def call(self, line: str) -> None:
        environment = os.environ | {"DESTDIR": str(self.root)}
        done = subprocess.run(
            ["sh", "-e", "-c", line],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.long
def test_the_steps_of_the_dockerfile_make_an_image_that_preloads_it(
    compiled_here: Callable[..., Path], tmp_path: Path
) -> None:
    follower = Follower(tmp_path)
    for name, rest in instructions(EXAMPLES / "docker" / "Dockerfile"):
        follower.follow(name, rest)
    files = [path for path in follower.root.rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["libcairn.so.0"]
    library = follower.within(follower.root, follower.environment["LD_PRELOAD"])
    assert library.is_file()
    ended = Program(compiled_here("footprint.c"), library)("quiet", CAIRN_STATS="1")
    assert ended.code == 0
    assert ended.err.startswith("cairn: live ")


# --- systemd ---


def test_the_drop_in_for_services_sets_only_the_preload() -> None:
    drop_in = ConfigParser(strict=False)
    drop_in.optionxform = str  # type: ignore[assignment]
    drop_in.read(EXAMPLES / "systemd" / "cairn.conf")
    assert drop_in.sections() == ["Service"]
    assert dict(drop_in["Service"]) == {"Environment": "LD_PRELOAD=/usr/local/lib/libcairn.so.0"}
