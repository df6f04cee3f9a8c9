"""Tests of the resources of a tree of processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from cairn.run import process_usage
from cairn.run.process_usage import TreeUsage

MS = 1_000_000
BURN = """
import time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""


def python(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BURN + program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def asked(process: subprocess.Popen[str]) -> None:
    """Lets the program continue until it prints a line."""
    assert process.stdin and process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()


def test_cpu_time_between_two_readings_is_that_of_a_living_process() -> None:
    with python("burn(.2)\nfor _ in range(2):\n input()\n burn(.1)\n print(flush=True)") as process:
        asked(process)
        before = process_usage.of_descendants(os.getpid())
        asked(process)
        used = process_usage.of_descendants(os.getpid()).since(before)
        process.kill()
    assert 95 * MS <= used.cpu_ns <= 150 * MS
    assert used.user_ns + used.system_ns == used.cpu_ns


def test_a_child_that_ended_and_was_waited_for_is_counted() -> None:
    program = (
        "import os\ninput()\nprint(flush=True)\ninput()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    blocks = bytearray(32 << 20)\n    burn(.15)\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint(flush=True)\ninput()"
    )
    with python(program) as process:
        asked(process)
        before = process_usage.of_descendants(os.getpid())
        asked(process)
        used = process_usage.of_descendants(os.getpid()).since(before)
        process.kill()
    assert 130 * MS <= used.cpu_ns <= 300 * MS
    assert used.minor_faults >= 32 << 8 >> 4, "the pages of the child"


def test_grandchildren_are_counted_and_the_process_itself_is_not() -> None:
    before = process_usage.of_descendants(os.getpid())
    end = os.times().user + 0.05
    while os.times().user < end:
        pass
    assert process_usage.of_descendants(os.getpid()).since(before).cpu_ns < 30 * MS
    burn = "import os\nwhile os.times().user < .15: pass\nprint(flush=True)\ninput()"
    script = f"{shlex.quote(sys.executable)} -c '{burn}'"
    with subprocess.Popen(
        ["/bin/sh", "-c", f"{script}; true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        used = process_usage.of_descendants(os.getpid()).since(before)
        assert used.cpu_ns > 130 * MS and used.user_ns > 100 * MS
        process.communicate("\n")


def test_user_and_system_time_share_the_exact_time_by_their_ticks() -> None:
    before = TreeUsage(1_000, 0, 0, 5, 1)
    after = TreeUsage(1_000 + 100 * MS, 80 * MS, 20 * MS, 9, 2)
    assert after.since(before) == TreeUsage(100 * MS, 80 * MS, 20 * MS, 4, 1)
    few = TreeUsage(1_000 + 3 * MS, 0, 0, 5, 1)
    assert few.since(before) == TreeUsage(3 * MS, 3 * MS, 0, 0, 0)
    assert before.since(after) == TreeUsage(0, 0, 0, 0, 0)


def test_time_without_a_cpu_is_counted_for_all_threads() -> None:
    """Four threads of one CPU wait for each other three quarters of their time.

    They live until they are measured, because the kernel forgets how long an ended thread waited.
    """
    program = (
        "import hashlib, os, threading\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "together = threading.Barrier(4)\nworked = threading.Barrier(5)\n"
        "def work():\n    together.wait()\n"
        "    end = time.thread_time() + .05\n"
        "    while time.thread_time() < end: hashlib.sha256(bytes(1 << 20))\n"
        "    worked.wait()\n    input()\n"
        "input()\nprint(flush=True)\ninput()\n"
        "for _ in range(4): threading.Thread(target=work).start()\n"
        "worked.wait()\nprint(flush=True)\ninput()"
    )
    with python(program) as process:
        asked(process)
        before = process_usage.of_descendants(os.getpid())
        asked(process)
        used = process_usage.of_descendants(os.getpid()).since(before)
        process.kill()
    assert used.queued_ns is not None
    assert used.queued_ns > used.cpu_ns


@pytest.mark.parametrize("name", [b"redis", b"a) S 1 (b", b"x y\n)"])
def test_the_name_of_a_program_may_hold_brackets_and_spaces(name: bytes) -> None:
    numbers = b" ".join(str(number).encode() for number in range(100, 145))
    process = process_usage._process(b"7 (" + name + b") S " + numbers)
    assert process.parent == 100
    assert (process.minor, process.child_minor) == (106, 107)
    assert (process.major, process.child_major) == (108, 109)
    assert (process.user, process.system) == (110, 111)
    assert (process.child_user, process.child_system) == (112, 113)
