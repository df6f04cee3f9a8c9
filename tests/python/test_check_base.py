"""Tests of the base of a check: what is compared with its stored numbers, and damaged files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.comparisons import a_run, a_sample

from cairn.errors import CairnError, UsageError
from cairn.gate import Gate, GateBound, InstructionCount
from cairn.model import Contender, Run, Workload
from cairn.run import check_base


def one_build() -> Run:
    run = a_run(Contender("system", "system", "glibc 2.36"))
    return replace(run, gate=Gate((GateBound("instructions", 0.01),)))


def a_base() -> check_base.Base:
    counts = (InstructionCount("system", (1000, 1000)),)
    return check_base.of_run(one_build(), (a_sample(0, "system", 5),), counts)


def test_a_base_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_bytes(check_base.write(base := a_base()))
    assert check_base.read(path) == base
    assert not list(tmp_path.glob(".*"))


DAMAGES: dict[str, Callable[[Any], Any]] = {
    "counts of 0": lambda of: of["instructions"][0].update(counts=[0, 0]),
    "another measure": lambda of: of["run"]["gate"]["bounds"][0].update(measure="joy"),
    "a bound below 0": lambda of: of["run"]["gate"]["bounds"][0].update(most=-1),
    "no command": lambda of: of["run"]["settings"]["workloads"][0].update(command=[]),
    "a relative folder": lambda of: of["run"]["settings"].update(folder="x"),
    "a time below 0": lambda of: of["samples"][0].update(wall_ns=-5),
    "a time beyond all": lambda of: of["samples"][0].update(wall_ns=10**300),
    "another contender": lambda of: of["samples"][0]["trial"].update(contender="x"),
    "an older format": lambda of: of.update(schema=0, run=None),
    "no number": lambda of: of["run"]["gate"]["bounds"][0].update(most=float("nan")),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_base_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "base.json"
    content = json.loads(check_base.write(a_base()))
    DAMAGES[name](content)
    path.write_text(json.dumps(content))
    with pytest.raises(CairnError) as error:
        check_base.read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_stored_numbers_are_those_of_the_same_command_and_options() -> None:
    """Once, counts of a run with another input or of other arguments were compared."""
    base, run = a_base(), one_build()
    assert check_base.other_settings(base, run) is None
    settings = run.settings
    (workload,) = settings.workloads
    words = (*workload.command, "more")
    for other, said in (
        ({"stdin": "/x/in.txt"}, "without --input"),
        ({"setup": "make"}, "without --setup"),
        ({"prepare": "sync"}, "without --prepare"),
        ({"conclude": "sync"}, "without --conclude"),
        ({"cpus": "0"}, "without --cpus"),
        ({"idle_s": 2.5}, "without --idle"),
        ({"shell": True}, "without --shell"),
        ({"wait_descendants": True}, "without --wait-descendants"),
        ({"workloads": (replace(workload, load="wrk"),)}, "without --while"),
        ({"workloads": (Workload(workload.name, words),)}, "the base ran '"),
    ):
        changed = replace(run, settings=replace(settings, **other))
        told = check_base.other_settings(base, changed)
        assert told is not None and said in told
        if "workloads" not in other:
            made = replace(base, run=changed)
            told = check_base.other_settings(made, run)
            assert told is not None and said.replace("without", "with") in told
    shell = replace(base, run=replace(base.run, settings=replace(settings, shell=True)))
    assert check_base.other_settings(shell, run) == "the base was made with --shell yes"
    moved = replace(settings, folder="/elsewhere", stdin="/elsewhere/in.txt")
    known = replace(settings, folder="/here", stdin="/here/in.txt")
    before = replace(base, run=replace(base.run, settings=known))
    assert check_base.other_settings(before, replace(run, settings=moved)) is None


def test_a_base_does_not_replace_another_file(tmp_path: Path) -> None:
    for name in ("text", "folder"):
        path = tmp_path / name
        path.mkdir() if name == "folder" else path.write_text("{}")
        with pytest.raises(CairnError, match="exists and is not a base of a check"):
            check_base.refuse_other_file(path)
    check_base.refuse_other_file(tmp_path / "none")
    with pytest.raises(UsageError, match="is not a base of a check"):
        check_base.read(tmp_path / "text")


def test_git_may_print_a_name_that_is_not_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nprintf ' M caf\\351\\n'\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_base.commit_of(str(tmp_path)) == ("M caf\ufffd", True)
