"""Tests that every command, path and link in README and docs exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cairn.cli.manual import page, with_catalog, with_size_classes
from cairn.cli.root_command import every_command

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOP = {path.name for path in ROOT.iterdir()}


def identity(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands(text: str) -> Iterator[str]:
    """Yields the lines of code blocks and the inline code that call cairn or make."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    inline = re.findall(
        r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    )
    for line in (*lines, *inline):
        if re.match(r"(\.venv/bin/)?cairn (?!takes )[a-z]|make [a-z]", line):
            yield line


@pytest.mark.parametrize("document", DOCUMENTS, ids=identity)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            path = target.partition("#")[0]
            assert not path or (document.parent / path).exists(), (
                f"{identity(document)} links to {target}"
            )


@pytest.mark.parametrize("document", DOCUMENTS, ids=identity)
def test_paths_in_code_exist(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([\w./-]+/[\w./-]*)`", text):
        if code.split("/")[0] in TOP and not code.startswith((".venv", "build")):
            assert (ROOT / code).exists(), f"{identity(document)} names {code}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=identity)
def test_commands_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in commands(document.read_text()):
        words = shlex.split(line.split("  ")[0].replace("…", "").replace("'", ""), comments=True)
        if words[0] == "make":
            assert words[1] in targets, f"{identity(document)}: no target {words[1]}"
            continue
        check_cairn(words[1:], f"{identity(document)}: {line}")


def check_cairn(words: list[str], where: str) -> None:
    cli = every_command()
    command: click.Command = cli
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in command.commands:
            assert command is not cli, f"{where}: no command {name}"
            break
        command = command.commands[name]
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {
        "--help",
        "-h",
        "--version",
    }
    for word in words:
        if word == "--":
            break
        if word.startswith("-") and len(word) > 1:
            assert word.split("=")[0] in known, f"{where}: no option {word}"


def test_the_man_page_is_that_of_the_help_texts() -> None:
    assert (ROOT / "man" / "cairn.1").read_text() == page(), "run 'make man'"


def test_the_table_of_workloads_is_that_of_the_catalog() -> None:
    text = (ROOT / "docs" / "workloads.md").read_text()
    assert with_catalog(text) == text, "run 'make man'"


def test_the_table_of_size_classes_is_that_of_the_library() -> None:
    text = (ROOT / "docs" / "allocator-reference.md").read_text()
    assert text.count("<!-- the size classes: ") == 2
    assert with_size_classes(text) == text, "run 'make man'"


def test_every_header_opens_with_its_name_and_contract() -> None:
    for header in sorted((ROOT / "src").glob("*/*.h")):
        assert header.read_text().startswith(f"/* {header.name} - "), (
            f"{identity(header)} opens otherwise"
        )


def test_the_table_of_python_folders_names_every_folder_and_modules_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)/` \| .+ \| (.+) \|$", text, re.MULTILINE)
    package = ROOT / "cairn"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert {folder for folder, _ in rows} == folders
    for folder, modules in rows:
        for module in re.findall(r"`(\w+)`", modules):
            assert (package / folder / f"{module}.py").is_file(), f"{folder}/ has no {module}"
