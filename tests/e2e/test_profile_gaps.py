"""Tests that no process is missing from a profile without a word.

Some programs give up the rights that a process needs to write a file, before they allocate. The
probe cannot reach others at all. Every process must be in the profile, or be named with the reason.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.small_disk import run_on_small_disk

from cairn import native

PAIRS, KEPT = 20_000, 100
"""In probe_rights.c, the parent makes KEPT blocks, and each child PAIRS pairs of malloc and
free."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up this right")


@pytest.fixture(scope="module")
def rights(compiled) -> Path:
    return compiled("probe_rights.c")


def profiled(cairn, tmp_path: Path, *command: object) -> dict[str, Any]:
    out = tmp_path / "out.json"
    result = cairn("profile", "--runs", 1, "--json", out, "--", *command)
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def mallocs(found: dict[str, Any]) -> int:
    (one,) = [one for one in found["functions"] if one["name"] == "malloc"]
    return sum(by["calls"] for by in one["by"]) + one["late_calls"]


@pytest.mark.parametrize(
    "sweep", [(), pytest.param(("sweep",), marks=pytest.mark.long)], ids=["", "sweep"]
)
@pytest.mark.parametrize(
    "right",
    [
        *("nofile", "fsize", "clearenv", "prctl", "seccomp", "strict"),
        *(pytest.param(right, marks=needs_root) for right in ("setuid", "chroot", "proc")),
    ],
)
def test_children_that_give_up_a_right_are_in_the_profile(
    cairn, rights: Path, tmp_path: Path, right: str, sweep: tuple[str, ...]
) -> None:
    found = profiled(cairn, tmp_path, rights, right, 2, *sweep)
    assert len(found["processes"]) == 3
    assert mallocs(found) == KEPT + 2 * PAIRS
    assert {process["program"] for process in found["processes"]} == {str(rights)}
    assert found["missing"] == [] and found["empty"] == 0


@pytest.mark.parametrize(
    "right",
    [
        "nofile",
        "fsize",
        "files",
        *(pytest.param(one, marks=needs_root) for one in ("setuid", "chroot")),
    ],
)
def test_threads_that_begin_after_rights_were_given_up_are_counted(
    cairn, rights: Path, tmp_path: Path, right: str
) -> None:
    """The process made its file before, and this file has room for eight threads.

    The program then starts 40 threads, which need more room.
    """
    found = profiled(cairn, tmp_path, rights, right, 1, "threads")
    assert [one["threads_lost"] for one in found["processes"]] == [0, 0]
    assert mallocs(found) >= KEPT + PAIRS


@needs_root
def test_processes_that_begin_on_a_full_disk_are_in_the_profile(
    cairn, rights: Path, tmp_path: Path
) -> None:
    """The program fills the disk that has the probe's files, and then starts processes."""
    disk, out = tmp_path / "disk", tmp_path / "out.json"
    program = f"head -c 1000000 /dev/zero > {disk}/full 2> /dev/null; exec {rights} nothing 2"
    profiling = [*cairn.argv, "profile", "--json", out, "--", "sh", "-c", program]
    run_on_small_disk(profiling, disk, "700k", cairn.env)
    found = json.loads(out.read_text())
    programs = Counter(Path(process["program"]).name for process in found["processes"])
    assert programs[rights.name] == 3
    assert found["missing"] == [] and found["empty"] == 0


def test_more_children_than_fit_into_one_window_are_in_the_profile(
    cairn, rights: Path, tmp_path: Path
) -> None:
    found = profiled(cairn, tmp_path, rights, "fsize", 150)
    assert len(found["processes"]) == 151
    assert mallocs(found) == KEPT + 150 * PAIRS


def test_children_without_any_memory_left_are_named(cairn, rights: Path, tmp_path: Path) -> None:
    """No child can write a file. Each child also closes the descriptor of the spare memory.

    The spare memory (record/spare.h) consists of windows. The children can still use the window
    that their parent has mapped, which has room for 64 processes. The other children cannot be
    recorded.
    """
    result = cairn("profile", "--", rights, "fsize", 70, "sweep")
    assert result.code == 0
    text = " ".join(result.err.split())
    assert "▲ 6 of 71 processes are missing: probe_rights (" in text
    assert "and 1 more) could not write a profile: File too large (EFBIG)." in text


def test_a_kept_profile_has_the_processes_that_could_write_no_file(
    cairn, rights: Path, tmp_path: Path
) -> None:
    keep = tmp_path / "keep"
    result = cairn("profile", "--runs", 1, "--keep", keep, "--", rights, "fsize", 66, "sweep")
    assert result.code == 0
    assert len(list(keep.glob("*.probe"))) == 65
    assert all(file.stat().st_size < 200_000 for file in keep.glob("*.probe"))
    again = cairn("profile", "--read", keep)
    # The titles differ: the first one has the command, and the other the programs.
    assert again.out.partition("\n\n")[2] == result.err.partition("\n\n")[2]
    assert "2 of 67 processes are missing" in " ".join(again.out.split())


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("static", "is linked statically"),
        ("environment", "was started with a cleared environment"),
        pytest.param(
            "setuid", "gains privileges, so the loader ignores LD_PRELOAD", marks=needs_root
        ),
    ],
)
def test_programs_that_the_probe_cannot_reach_are_named(
    cairn, rights: Path, compiled, tmp_path: Path, way: str, says: str
) -> None:
    program, before = tmp_path / "unseen", ""
    shutil.copy(compiled("probe_rights.c", "-static") if way == "static" else rights, program)
    if way == "environment":
        before = "env -i "
    if way == "setuid":
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
    # The shell starts the first unseen program as a child, and becomes the second one by exec. So
    # the process of the second one is in the profile as a shell, too.
    line = f"{rights} nothing 1; {before}{program} nothing 0; exec {before}{program} nothing 0"
    out = tmp_path / "out.json"
    result = cairn("profile", "--runs", 1, "--json", out, "--", "sh", "-c", line)
    assert result.code == 0, result.err
    found = json.loads(out.read_text())
    assert [(one["program"], one["why"]) for one in found["missing"]] == [("unseen", way)] * 2
    assert mallocs(found) >= KEPT + PAIRS
    first, second = (one["pid"] for one in found["missing"])
    text = " ".join(result.err.split())
    assert f"processes are missing: unseen ({first}, {second}) {says}." in text
    assert found["cut_short"] == []


def test_threads_that_begin_in_a_sandbox_are_counted_or_named(
    cairn, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    """The probe makes room before the filter is installed, and does not lengthen its file later."""
    out = tmp_path / "out.json"
    program = compiled("threads_in_sandbox.c", "-O1", "-fno-builtin", "-pthread")
    result = cairn("profile", "--full", "--runs", 1, "--json", out, "--", program, 300)
    assert result.code == 0, result.err
    (process,) = json.loads(out.read_text())["processes"]
    assert process["threads"] == 301
    lost = process["threads_lost"]
    assert 0 < lost < 300
    text = " ".join(result.err.split())
    assert f"{lost} threads could not be counted, because the probe could not" in text


def test_resident_memory_is_not_measured_without_proc(cairn, rights: Path, tmp_path: Path) -> None:
    """A process in a sandbox cannot ask the kernel for its resident memory.

    Cairn once showed 0 B for it in the table of memory over time.
    """
    out = tmp_path / "out.json"
    result = cairn("profile", "--full", "--runs", 1, "--json", out, "--", rights, "seccomp", 1)
    assert result.code == 0, result.err
    found = json.loads(out.read_text())
    sandboxed = found["processes"][1]
    assert sandboxed["peak_resident_bytes"] is None
    assert all(moment["resident_bytes"] != 0 for moment in found["moments"])


def test_the_probed_runs_of_a_comparison_have_all_processes(
    cairn, rights: Path, forward: Path
) -> None:
    contenders = ("-a", "system", "-a", f"x={forward}")
    result = cairn("compare", "--why", "-r", 2, *contenders, "--json", "--", rights, "fsize", 2)
    assert result.code == 0, result.err
    found = [one["probe"] for one in result.json["samples"] if one["probe"]]
    assert len(found) >= 4
    assert all(one["operations"] >= 2 * (KEPT + 2 * PAIRS) for one in found)


@needs_root
@pytest.mark.parametrize("close", [True, False])
def test_a_program_that_python_starts_as_another_user_is_recorded_or_named(
    cairn, tmp_path: Path, close: bool
) -> None:
    """With close_fds, Popen closes the descriptor of the spare memory before it starts the program.

    The other user may not write a file for the probe either, so the program cannot be recorded.
    """
    out = tmp_path / "out.json"
    source = f"""
import subprocess
def run(*command):
    return subprocess.Popen(command, user=65534, group=65534, close_fds={close}).wait()
assert run("/usr/bin/env", "sort", "/dev/null") == 0
"""
    result = cairn("profile", "--runs", 1, "--json", out, "--", sys.executable, "-c", source)
    assert result.code == 0, result.err
    found = json.loads(out.read_text())
    recorded = {Path(one["program"]).name for one in found["processes"]}
    missing = {one["program"]: one["why"] for one in found["missing"]}
    if close:
        assert missing == {"env": "EACCES"}
        assert "env (" in result.err and "Permission denied (EACCES)" in result.err
    else:
        # The other user can load the probe only if root's home, which may hold it, is readable.
        look = subprocess.run(
            ["cat", native.probe()], user=65534, group=65534, check=False, capture_output=True
        )
        if look.returncode != 0:
            pytest.skip("another user may not read the probe here")
        assert missing == {} and {"env", "sort"} & recorded


@pytest.mark.parametrize("ends", [False, True], ids=["the program continues", "the program ends"])
def test_a_window_names_the_processes_that_are_missing_in_it(
    cairn, rights: Path, compiled, tmp_path: Path, ends: bool
) -> None:
    """A profile of a window of the program's life once did not name the missing processes.

    It even left out processes whose reason the report had already read.
    """
    out, after = tmp_path / "out.json", "" if ends else "; sleep 9"
    static = compiled("probe_rights.c", "-static")
    shutil.copy(static, tmp_path / "early")
    shutil.copy(static, tmp_path / "unseen")
    allocates = f"{shlex.quote(sys.executable)} -S -c 'x = [str(i) for i in range(9999)]'"
    line = (
        f"{tmp_path}/early nothing 0; sleep 2; {tmp_path}/unseen nothing 0; "
        f"{rights} fsize 70 sweep; {allocates}{after}"
    )
    # A busy machine delays each step, by less than a second before the window and less than 7 s
    # in it.
    window = ("--delay", "1s", "--duration", "1min" if ends else "8s")
    result = cairn("profile", *window, "--json", out, "--", "sh", "-c", line)
    assert result.code == 0, result.err
    found = json.loads(out.read_text())
    named = Counter((one["program"], one["why"]) for one in found["missing"])
    assert named[("unseen", "static")] == 1
    assert named[(rights.name, "EFBIG")] == 6
    assert set(named) == {("unseen", "static"), (rights.name, "EFBIG")}
    assert f"7 of {len(found['processes']) + 7} processes are missing" in " ".join(
        result.err.split()
    )


def test_a_comparison_names_the_processes_that_its_probed_runs_lack(
    cairn, rights: Path, forward: Path
) -> None:
    """No child can write a file. Each child also closes the descriptor of the spare memory.

    The spare memory (record/spare.h) consists of windows. The children can still use the window
    that their parent has mapped, which has room for 64 processes. The other children cannot be
    recorded.
    """
    contenders = ("-a", "system", "-a", f"x={forward}")
    result = cairn("compare", "--why", "-r", 1, *contenders, "--", rights, "fsize", 66, "sweep")
    assert result.code == 0, result.err
    text = " ".join(result.out.split())
    for name in ("system", "x"):
        assert (
            f"▲ Of {name}'s runs with the probe, 2 processes are missing: probe_rights could not "
            "write a profile: File too large (EFBIG)." in text
        )
