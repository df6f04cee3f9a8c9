"""Tests of 'cairn symbolize', as on two machines: one took the profile, one has the program."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import known_lines

ROUNDS = 5


@pytest.fixture
def kept(cairn: Any, tmp_path: Path, compiled: Callable[..., Path]) -> tuple[Path, Path]:
    """A kept profile, and the program in a folder that the profile does not know."""
    program, kept, builds = tmp_path / "prog", tmp_path / "kept", tmp_path / "builds" / "of today"
    shutil.copy(compiled("known_lines.c", "-g", "-O2"), program)
    options = ("--runs", 1, "--stacks=exact", "--keep", kept)
    assert cairn("profile", *options, "--", program, ROUNDS).code == 0
    builds.mkdir(parents=True)
    program.rename(builds / "renamed")
    return kept, builds


def lines_read(cairn: Any, kept: Path, *options: object) -> dict[int, tuple[int, int, int]]:
    """Blocks, bytes, and bytes at the end of each line of the program, as --read reports them."""
    result = cairn("profile", "--read", kept, "--by", "line", "--json", "-", *options)
    assert result.code == 0, result.err
    return {
        one["line"]: (
            one["allocated"]["blocks"],
            one["allocated"]["bytes"],
            one["at_end"]["bytes"],
        )
        for one in json.loads(result.out)["stacks"]["lines"]
        if one["file"] and one["file"].endswith("known_lines.c")
    }


def test_names_found_elsewhere_are_shown_on_any_machine(
    cairn: Any, tmp_path: Path, kept: tuple[Path, Path]
) -> None:
    folder, builds = kept
    assert not lines_read(cairn, folder)
    assert lines_read(cairn, folder, "--debug-path", builds.parent) == known_lines.truth(ROUNDS)
    result = cairn("symbolize", "--debug-path", builds.parent, folder, COLUMNS="80")
    assert result.code == 0, result.err
    row = next(line.split() for line in result.out.splitlines() if line.split()[:1] == ["prog"])
    # All addresses of the program have a function. _start has no line.
    assert row[2] == row[3]
    assert int(row[4]) >= 7
    assert all(len(line) <= 80 for line in result.out.splitlines())
    shutil.rmtree(builds)
    moved = tmp_path / "moved"
    folder.rename(moved)
    assert lines_read(cairn, moved) == known_lines.truth(ROUNDS)
    text = cairn("profile", "--read", moved).out
    assert "  several " in text
    # The program is gone now, but the names that were found before stay in the profile.
    again = cairn("symbolize", moved)
    assert again.code == 0, again.err
    assert lines_read(cairn, moved) == known_lines.truth(ROUNDS)


def test_names_are_those_of_the_build_that_was_profiled(
    cairn: Any, kept: tuple[Path, Path], compiled: Callable[..., Path]
) -> None:
    folder, builds = kept
    (builds / "renamed").unlink()
    other = compiled("known_lines.c", "-g", "-O1", "-fno-builtin")
    for path in (builds / "renamed", builds.parent.parent / "prog"):
        shutil.copy(other, path)
    result = cairn("symbolize", "--debug-path", builds, folder)
    assert "▲ prog has changed since the profile" in " ".join(result.out.split()), (
        result.out + result.err
    )
    assert not lines_read(cairn, folder)
    assert "  several " not in cairn("profile", "--read", folder).out


@pytest.mark.long  # it starts the command four times
def test_one_file_of_a_profile_is_symbolized(cairn: Any, kept: tuple[Path, Path]) -> None:
    folder, builds = kept
    (file,) = folder.glob("*.stacks")
    result = cairn("symbolize", "--debug-path", builds, file)
    assert result.code == 0, result.err
    assert lines_read(cairn, folder) == known_lines.truth(ROUNDS)


def test_wrong_input_gets_one_sentence(cairn: Any, tmp_path: Path, kept: tuple[Path, Path]) -> None:
    folder, _ = kept
    (probe,) = folder.glob("*.probe")
    stray = folder / "stray.stacks"
    stray.touch()
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, code, sentence in (
        ((tmp_path / "gone",), 2, "there is no "),
        ((empty,), 2, "holds no profile"),
        ((probe,), 2, "name a file that ends in .stacks"),
        ((stray,), 1, "belongs to no process of the profile"),
        (("--debug-path", tmp_path / "gone", folder), 2, "does not exist"),
    ):
        result = cairn("symbolize", *arguments)
        assert result.code == code, (arguments, result.err)
        assert sentence in " ".join(result.err.split()), result.err
    for content in (b"{", b"[]", b'{"format":"cairn names","version":9,"files":[]}', b"\xff"):
        (folder / "names.json").write_bytes(content)
        result = cairn("profile", "--read", folder, "--tree")
        assert result.code == 1
        assert "has no readable names" in " ".join(result.err.split())
        assert "remove it, and 'cairn symbolize' makes a new one" in " ".join(result.err.split())
        assert cairn("symbolize", folder).code == 1
        assert (folder / "names.json").read_bytes() == content
    (folder / "names.json").unlink()
    for one in folder.glob("*.stacks"):
        one.unlink()
    result = cairn("symbolize", folder)
    assert result.code == 1
    assert "there are no call stacks" in " ".join(result.err.split())
