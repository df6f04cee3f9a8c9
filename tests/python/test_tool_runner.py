"""Tests of external tools.

They cover which executable is found, which environment it gets, and that no process of a tool
outlives its call.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import sys
from pathlib import Path

import pytest

from cairn.allocators import tool_runner
from cairn.allocators.download import _complaint
from cairn.allocators.tool_runner import Busy, Failed, Stalled, Task


def program(path: Path, text: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def alive(noted: Path) -> bool:
    """Returns whether the process whose id the file `noted` contains is running.

    A process that has ended and was not yet reaped has no command line, and does not count.
    """
    try:
        return Path("/proc", noted.read_text().strip(), "cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_tool_is_found_by_its_variable_then_on_the_path_then_beside_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, on_path, named = (tmp_path / name for name in ("own", "path", "named"))
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.delenv("CC", raising=False)
    assert tool_runner.find_tool("cc") is None
    beside = program(own / "clang")
    assert tool_runner.find_tool("cc") == str(beside)
    cc = program(on_path / "cc")
    assert tool_runner.find_tool("cc") == str(cc)
    gcc = program(on_path / "gcc")
    assert tool_runner.find_tool("cc") == str(gcc), "gcc comes before cc"
    mine = program(named / "mine")
    monkeypatch.setenv("CC", str(mine))
    assert tool_runner.find_tool("cc") == str(mine)
    monkeypatch.setenv("CC", str(named / "missing"))
    assert tool_runner.find_tool("cc") == str(gcc)


def test_each_package_is_named_once_and_an_unknown_tool_by_its_own_name() -> None:
    assert (
        tool_runner.packages_of(["cargo", "cc", "cargo", "c++", "other"]) == "cargo gcc g++ other"
    )


def test_a_build_is_not_changed_by_the_users_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "environ", {"CFLAGS": "-O0", "LD_PRELOAD": "x", "LC_ALL": "de_DE", "HOME": "/h"}
    )
    assert tool_runner.build_environment() == {"HOME": "/h", "LC_ALL": "C"}


def test_a_call_of_a_tool_returns_its_status_and_both_outputs(tmp_path: Path) -> None:
    tool = program(tmp_path / "tool", "echo out; echo err >&2; echo $LC_ALL; pwd; exit 3")
    assert tool_runner.run_tool([str(tool)], tmp_path, 60) == (3, f"out\nerr\nC\n{tmp_path}\n")


def test_no_more_than_a_mebibyte_of_output_is_kept(tmp_path: Path) -> None:
    tool = program(tmp_path / "tool", "head -c 3000000 /dev/zero | tr '\\0' x")
    status, output = tool_runner.run_tool([str(tool)], tmp_path, 60)
    assert (status, output) == (0, "x" * (1 << 20))


def test_a_tool_that_makes_no_progress_is_ended_with_its_children(tmp_path: Path) -> None:
    tool = program(tmp_path / "tool", f"sleep 1000 & echo $! >{tmp_path}/child; wait")
    with pytest.raises(Stalled):
        tool_runner.run_tool([str(tool)], tmp_path, 0.5)
    assert not alive(tmp_path / "child")


def test_a_tool_that_writes_below_its_folder_makes_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test's clock advances by 0.6 s at each look at the folder, and the limit is 1 s.

    So a tool is ended after two looks in a row that find no change.
    """
    now, written = itertools.count(0, 0.6), itertools.count()
    monkeypatch.setattr(tool_runner.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(tool_runner, "bytes_below", lambda _: next(written))
    assert tool_runner.run_tool(["sleep", "1"], tmp_path, 1.0) == (0, "")
    monkeypatch.setattr(tool_runner, "bytes_below", lambda _: 7)
    with pytest.raises(Stalled):
        tool_runner.run_tool(["sleep", "1000"], tmp_path, 1.0)


def test_the_bytes_below_a_folder_are_those_of_all_its_files(tmp_path: Path) -> None:
    for name, size in (("a", 5), ("b", 7), ("c/d/e", 11)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    assert tool_runner.bytes_below(tmp_path) == 23
    assert tool_runner.bytes_below(tmp_path / "none") == 0


def test_a_lock_is_waited_for_and_given_up_after_a_while(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "lock"
    with tool_runner.locked(path, said.append, "another build", 0.0):
        assert said == []
        with pytest.raises(Busy), tool_runner.locked(path, said.append, "another build", 0.0):
            pass
        assert said == ["waiting for another build"]
    with path.open() as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_at_most_the_given_number_of_tasks_run_at_once_in_order(tmp_path: Path) -> None:
    """Each task makes a file while it runs, and counts the files of all running tasks."""
    tool = program(
        tmp_path / "tool",
        'n=$1; touch "running-$n"; set -- running-*; echo $#; sleep 0.1; cp /dev/null "draft-$n"; rm "running-$n"',
    )
    for jobs in (1, 2):
        made = [tmp_path / f"made-{jobs}-{k}" for k in range(4)]
        tasks = [
            Task((str(tool), str(k)), tmp_path, tmp_path / f"draft-{k}", target)
            for k, target in enumerate(made)
        ]
        log, reported = tmp_path / f"log-{jobs}", [0]
        tool_runner.run_tasks(tasks, jobs, os.environ, log, reported.append)
        assert all(target.exists() for target in made) and not list(tmp_path.glob("draft-*"))
        assert sorted(set(reported)) == [0, 1, 2, 3, 4]
        lines = log.read_text().splitlines()
        assert sum(line.startswith("$ ") for line in lines) == 4
        assert max(int(line) for line in lines if not line.startswith("$")) <= jobs
        if jobs == 1:
            assert [line[-1] for line in lines if line.startswith("$")] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """No allocator could be fetched to such a file system."""

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    said: list[str] = []
    with tool_runner.locked(tmp_path / "lock", said.append, "another", 0):
        assert not said
    number = errno.EIO
    with pytest.raises(OSError), tool_runner.locked(tmp_path / "lock", said.append, "another", 0):
        raise AssertionError


def test_a_process_in_the_background_ends_with_its_tool(tmp_path: Path) -> None:
    """Once, such a process went on and wrote into a folder that was being removed."""
    tool = program(
        tmp_path / "tool", f"sleep 1000 >/dev/null 2>&1 </dev/null & echo $! >{tmp_path}/child"
    )
    assert tool_runner.run_tool([str(tool)], tmp_path, 60) == (0, "")
    assert not alive(tmp_path / "child")
    (tmp_path / "child").unlink()
    tool_runner.run_tasks(
        [Task((str(tool),), tmp_path)], 1, os.environ, tmp_path / "log", lambda _: None
    )
    assert not alive(tmp_path / "child")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "gcc -Wall -Werror -c x.c\nx.c:1: fatal error: no y.h\nmore",
            "x.c:1: fatal error: no y.h",
        ),
        ("cc -c error.c\nerror[E1]: bad\n", "error[E1]: bad"),
        ("gcc -Werror=all x.c\nld: cannot find -lz", "ld: cannot find -lz"),
        ("CMake Error at x.txt:3\nmore", "CMake Error at x.txt:3"),
        ("make -f error/x -k--no-error\nstopped", "stopped"),
        ("", "x failed with status 1"),
    ],
)
def test_the_reason_of_a_failed_build_is_no_command_of_a_compiler(output: str, reason: str) -> None:
    assert Failed(("x",), 1, output).reason == reason


def test_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    tool = program(
        tmp_path / "tool",
        "echo first; head -c 1500000 /dev/zero | tr '\\0' x; echo; echo last; false",
    )
    with pytest.raises(Failed) as caught:
        tool_runner.run_tasks(
            [Task((str(tool),), tmp_path)], 1, os.environ, tmp_path / "log", lambda _: None
        )
    assert caught.value.output.startswith("first\n") and caught.value.reason == "last"
    assert "bytes are left out" in (tmp_path / "log").read_text()


def test_the_first_task_that_fails_ends_the_others(tmp_path: Path) -> None:
    slow = program(tmp_path / "slow", f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    bad = program(
        tmp_path / "bad",
        f"while ! [ -s {tmp_path}/pid ]; do sleep 0.01; done; echo no such thing; exit 4",
    )
    draft, target = tmp_path / "draft", tmp_path / "target"
    draft.touch()
    tasks = [Task((str(slow),), tmp_path), Task((str(bad),), tmp_path, draft, target)]
    reported: list[int] = []
    with pytest.raises(Failed, match="bad failed with status 4") as caught:
        tool_runner.run_tasks(tasks, 2, os.environ, tmp_path / "log", reported.append)
    assert caught.value.output == "no such thing\n"
    assert not target.exists() and 1 not in reported
    assert not alive(tmp_path / "pid")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("", "it printed nothing"),
        ("Updating\n\nno route to host\n\n", "no route to host"),
        (
            "Updating\rerror: failed to get `x`\n\nCaused by:\n  timed out.\nmore",
            "failed to get `x` timed out",
        ),
        ("ERROR: first\nERROR: second", "first ERROR: second"),
        ("error:", "error:"),
        ("error: " + "x" * 400, "x" * 300),
    ],
)
def test_the_message_taken_from_a_tools_output_is_its_first_error_with_the_cause(
    output: str, told: str
) -> None:
    assert _complaint(output) == told
