"""Tests of what the launcher gives to the command: descriptors, environment, files and CPUs."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.launching import Launch


def test_no_descriptor_of_the_launcher_reaches_the_program(launch: Launch, tmp_path: Path) -> None:
    extra = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(extra, True)
    try:
        command = ("sh", "-c", "ls /proc/self/fd | wc -l; ls -l /proc/self/fd")
        plain = subprocess.run(
            command,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        outcome = launch("--counters", "--", *command)
        again = launch("--memory", "sampled", "--", *command)
    finally:
        os.close(extra)
    # The test starts the launcher with pass_fds, which closes `extra` there. So the program has
    # four descriptors: the three standard ones, and the folder that ls reads.
    assert int(outcome.out.split("\n")[0]) == 4, outcome.out
    assert int(again.out.split("\n")[0]) == 4, again.out
    assert int(plain.split("\n")[0]) >= 4


def test_descriptors_of_the_caller_reach_the_program(launch: Launch, tmp_path: Path) -> None:
    report_reader, report_writer = os.pipe()
    kept = os.open(tmp_path, os.O_RDONLY)
    done = subprocess.run(
        [launch.path, "--report-fd", str(report_writer), "--", "readlink", f"/proc/self/fd/{kept}"],
        pass_fds=(kept, report_writer), capture_output=True, text=True, check=True,
    )  # fmt: skip
    for fd in (report_reader, report_writer, kept):
        os.close(fd)
    assert done.stdout.strip() == str(tmp_path)


def test_the_report_may_go_to_a_standard_descriptor(launch: Launch) -> None:
    done = subprocess.run(
        [
            launch.path,
            "--report-fd",
            "2",
            "--",
            "sh",
            "-c",
            "readlink /proc/self/fd/2; echo unheard >&2",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stderr)["exit_code"] == 0
    assert done.stdout == "/dev/null\n"


def test_the_report_may_go_to_standard_input(launch: Launch) -> None:
    reader, writer = os.pipe()
    command = [launch.path, "--report-fd", "0", "--", "readlink", "/proc/self/fd/0"]
    done = subprocess.run(command, stdin=writer, capture_output=True, text=True, check=True)
    os.close(writer)
    with open(reader) as file:
        assert json.load(file)["exit_code"] == 0
    assert done.stdout == "/dev/null\n"


def test_a_process_that_cannot_be_started_is_named(
    launch: Launch, compiled: Callable[..., Path]
) -> None:
    # The leak sanitizer starts a process at the end, and fails without it.
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    outcome = launch("--", "true", executable=str(compiled("without_fork.c")), env=environment)
    assert (outcome.code, outcome.report) == (125, None)
    assert outcome.err == (
        "cairn-launch: cannot start a process: Resource temporarily unavailable.\n"
    )


def test_closed_standard_descriptors_are_filled(launch: Launch, tmp_path: Path) -> None:
    target = tmp_path / "links"
    script = f"readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 > {target} 3<&0"
    reader, writer = os.pipe()
    done = subprocess.run(
        [
            "sh",
            "-c",
            f"exec {shlex.quote(str(launch.path))} --report-fd {writer} -- sh -c '{script}' <&- "
            ">&- 2>&-",
        ],
        pass_fds=(writer,),
        check=False,
    )
    os.close(writer)
    with open(reader) as file:
        assert json.load(file)["exit_code"] == 0
    assert done.returncode == 0
    lines = target.read_text().split()
    assert lines[0] == lines[2] == "/dev/null"


def test_the_environment_is_changed_only_for_the_program(launch: Launch) -> None:
    outcome = launch(
        *("--setenv", "A=1"), *("--unsetenv", "B"), *("--setenv", "C=x=y z"), *("--setenv", "A=2"),
        *("--setenv", "D=gone"), *("--unsetenv", "D"), "--", "env",
        env={"PATH": os.environ["PATH"], "B": "2", "E": "5"},
    )  # fmt: skip
    assert sorted(line for line in outcome.out.splitlines() if not line.startswith("PATH=")) == [
        "A=2",
        "C=x=y z",
        "E=5",
    ]


def test_a_preloaded_library_does_not_reach_the_launcher(launch: Launch) -> None:
    outcome = launch("--setenv", "LD_PRELOAD=/no/such/library.so", "--", "cat", "/dev/null")
    assert outcome.told["exit_code"] == 0
    assert outcome.err.count("ld.so") == 1


def test_files_and_folder_are_the_requested_ones(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("read\n")
    (tmp_path / "out").write_text("a longer text that was there before\n")
    (tmp_path / "folder").mkdir()
    old = os.umask(0)
    try:
        outcome = launch(
            *("--stdin", "in"), *("--stdout", "out"), *("--stderr", "err"), *("--chdir", "folder"),
            "--", "sh", "-c", "cat; pwd; echo complaint >&2",
            cwd=tmp_path,
        )  # fmt: skip
    finally:
        os.umask(old)
    assert outcome.told["exit_code"] == 0
    assert outcome.out == outcome.err == ""
    assert (tmp_path / "out").read_text() == f"read\n{tmp_path / 'folder'}\n"
    assert (tmp_path / "err").read_text() == "complaint\n"
    assert stat.S_IMODE((tmp_path / "err").stat().st_mode) == 0o600


def test_both_outputs_may_be_one_file(launch: Launch, tmp_path: Path) -> None:
    both = str(tmp_path / "both")
    launch("--stdout", both, "--stderr", both, "--", "sh", "-c", "echo 1; echo 2 >&2; echo 3")
    assert Path(both).read_text() == "1\n2\n3\n"


def test_cpus_are_the_requested_ones(launch: Launch) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    for cpus in ({allowed[0]}, set(allowed[-2:])):
        listed = ",".join(map(str, sorted(cpus)))
        code = "import os; print(*sorted(os.sched_getaffinity(0)))"
        outcome = launch("--cpus", listed, "--", sys.executable, "-c", code)
        assert {int(cpu) for cpu in outcome.out.split()} == cpus
