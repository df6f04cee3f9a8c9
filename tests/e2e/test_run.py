"""Tests that `cairn run` behaves like the program itself."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def test_the_exit_code_is_the_programs(cairn, forward: Path) -> None:
    for code in (0, 1, 4, 77):
        assert cairn("run", "-a", forward, "--", "sh", "-c", f"exit {code}").code == code


def test_a_killed_program_gives_128_and_the_signal(cairn, forward: Path) -> None:
    assert cairn("run", "-a", forward, "--", "sh", "-c", "kill -9 $$").code == 137
    assert (
        cairn("run", "-a", f"x={forward}:TEST_CRASH=1", "--", "sh", "-c", "kill -SEGV $$").code
        == 139
    )


def test_a_program_that_cannot_run_or_be_preloaded_has_its_own_exit_code(
    cairn, compiled, tmp_path: Path
) -> None:
    assert cairn("run", "--", "nosuchprogram").code == 127
    assert cairn("run", "-a", "/nowhere/lib.so", "--", "true").code == 126
    assert cairn("run", "-a", "system", "--", compiled("churn.c", "-static")).code == 126
    text = tmp_path / "text"
    text.write_text("hello")
    assert cairn("run", "--", text).code == 126


def test_output_and_input_are_passed_through(cairn, forward: Path) -> None:
    argv = [*cairn.argv, "run", "-a", str(forward), "--", "sh", "-c", "cat; echo err >&2"]
    done = subprocess.run(
        argv, env=cairn.env, input=b"hello\n", capture_output=True, check=False, cwd=cairn.home
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"err\n")


def test_the_program_inherits_the_descriptors_of_the_caller(cairn, tmp_path: Path) -> None:
    """A shell passes <(…) as a file descriptor, and make passes its jobserver in the same way."""
    (tmp_path / "data").write_text("hello\n")
    line = f"exec {shlex.join(cairn.argv)} run -- cat /dev/fd/7 7<{tmp_path}/data"
    done = subprocess.run(
        ["bash", "-c", line], env=cairn.env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_the_library_is_loaded(cairn, forward: Path) -> None:
    result = cairn("run", "-a", forward, "--", "sh", "-c", "cat /proc/$$/maps")
    assert result.code == 0
    assert str(forward) in result.out


def test_a_program_without_proof_is_an_error_even_if_it_ended_well(cairn, forward: Path) -> None:
    result = cairn("run", "-a", forward, "--", "sh", "-c", "env -u LD_PRELOAD true")
    assert result.code == 126
    assert "environment" in result.sentence
    result = cairn("run", "-a", forward, "--", "env", "-i", "true")
    assert result.code == 126


def test_signals_reach_the_program(cairn, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"""import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
pathlib.Path({str(ready)!r}).touch()
while True:
    time.sleep(1)
"""
    argv = [*cairn.argv, "run", "--", sys.executable, "-c", script]
    process = subprocess.Popen(argv, env=cairn.env, cwd=cairn.home)
    deadline = time.monotonic() + 20
    while not ready.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 42


def test_a_program_under_nohup_survives_the_end_of_its_terminal(cairn) -> None:
    argv = ["nohup", *cairn.argv, "run", "-a", "system", "--"]
    process = subprocess.Popen(
        [*argv, "sh", "-c", "echo ready; sleep 1; echo done"],
        env=cairn.env, cwd=cairn.home, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=20) == ("done\n", None)
    assert process.returncode == 0


def test_the_program_gets_the_terminal(cairn) -> None:
    """The program's process group is in the foreground, as that of a shell's job is.

    The program also sees the size of the terminal.
    """
    ask = "import os; print('foreground', os.tcgetpgrp(0) == os.getpgrp(), os.get_terminal_size(1))"
    argv = shlex.join([*cairn.argv, "run", "--", sys.executable, "-c", ask])
    environment = {**cairn.env, "TERM": "xterm"}
    done = subprocess.run(
        ["script", "-qec", argv, "/dev/null"], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "foreground True os.terminal_size" in done.stdout.decode()


def test_results_are_not_written(cairn, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    within = "import os; print(len(os.listdir(os.environ['TMPDIR'])))"
    told = cairn("run", "--", sys.executable, "-c", within, TMPDIR=str(scratch))
    assert told.code == 0 and int(told.out) > 0, "cairn has a temporary folder during the run"
    assert not list(scratch.iterdir())
    assert not cairn.results.exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sleep 60 & exit", "1 background process outlived the program and was killed"),
        (
            "sleep 60 & sleep 60 & exit",
            "2 background processes outlived the program and were killed",
        ),
    ],
)
def test_processes_that_outlive_the_program_are_named(cairn, line: str, says: str) -> None:
    result = cairn("run", "--", "sh", "-c", line)
    assert result.code == 0 and says in " ".join(result.err.split())
