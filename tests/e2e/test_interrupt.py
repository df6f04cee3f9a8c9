"""Tests of ctrl-C at any moment.

A shell lets its background commands ignore SIGINT, so a fixture restores the default action.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MOMENTS = 7
LAST_S = 1.5
BEGUN_S = 0.2
"""The time after which Cairn's own code runs, even on a busy machine."""


@pytest.fixture(autouse=True)
def sigint_is_not_ignored() -> Iterator[None]:
    """Restores the default action of SIGINT, which the started commands inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


IGNORED = re.compile(
    rb"^Exception ignored .*\nTraceback.*\n"
    rb" +File .<frozen importlib.*\n(?: .*\n)*KeyboardInterrupt",
    re.MULTILINE,
)
"""The message of Python if the signal came in a callback of its own import system."""
LATER_S = (3.0, 6.0, 12.0)
"""Further moments, for a busy machine on which Cairn has not begun a run by LAST_S."""


def interrupted(cairn, moment_s: float, *arguments: object) -> tuple[int, str]:
    """Sends SIGINT at this moment after the start. Returns the exit code and standard error.

    If the signal comes while Python releases the lock of an import, Python prints that it ignores
    the exception, and goes on. The signal is then sent once more.
    """
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [*cairn.argv, *map(str, arguments)],
            env=cairn.env,
            cwd=cairn.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
        )

        def so_far() -> bytes:
            # The file position is the one of the process, so it must not change.
            return os.pread(told.fileno(), os.fstat(told.fileno()).st_size, 0)

        try:
            time.sleep(moment_s)
            process.send_signal(signal.SIGINT)
            deadline, again = time.monotonic() + 60, False
            while process.poll() is None:
                assert time.monotonic() < deadline, so_far()
                if not again and IGNORED.search(so_far()):
                    again = True
                    process.send_signal(signal.SIGINT)
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()
        errors = so_far()
    # SIGINT may kill the process before Python handles signals. A shell then reports 130, too. Or
    # SIGINT may interrupt Python's own start. Then the message names the function of this start, or
    # there is no line of code that a traceback could name.
    early = (
        process.returncode == -signal.SIGINT
        or b"Fatal Python error: init_" in errors
        or errors.strip() == b"KeyboardInterrupt"
    )
    return (130 if early else process.returncode), errors.decode()


def of_cairn(errors: str) -> bool:
    """Whether standard error has a traceback from code of Cairn.

    Python and the script that pip generates run for about 20 ms before the first line of Cairn's
    code. A signal within this time prints a traceback that Cairn cannot prevent.
    """
    return "Traceback" in errors and re.search(r"/cairn/(?!__)\w+", errors) is not None


def test_ctrl_c_at_any_moment_leaves_nothing_or_a_run_that_can_be_resumed(
    cairn, forward: Path, churn: Path
) -> None:
    """Ctrl-C in the first 0.3 s, while Python imported modules, once printed a traceback."""
    begun: list[str] = []
    moments = [LAST_S * place / (MOMENTS - 1) for place in range(MOMENTS)]
    for moment in [*moments, *LATER_S]:
        if moment > LAST_S and begun:
            break
        code, errors = interrupted(
            cairn,
            moment,
            "compare",
            "-r",
            2000,
            "-a",
            "system",
            "-a",
            f"x={forward}",
            "--",
            churn,
            20_000,
        )
        assert code == 130, (moment, code, errors)
        assert not of_cairn(errors), (moment, errors)
        command = re.search(r"continue with: cairn (compare --resume \S+)", errors)
        if command is not None:
            begun.append(command[1])
        else:
            # On a busy machine, Python itself may still be starting.
            starting = moment < BEGUN_S or "Traceback" in errors
            assert starting or "nothing was measured yet" in errors, (moment, errors)
    assert begun, "no signal met a run"
    kept = {path.name for path in cairn.results.iterdir()}
    assert kept == {command.split()[-1] for command in begun}, "a run without a trial is removed"
    resumed = subprocess.Popen(
        [*cairn.argv, *begun[0].split()],
        env=cairn.env,
        cwd=cairn.home,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    samples = cairn.results / begun[0].split()[-1] / "samples.jsonl"
    before = samples.read_bytes()
    deadline = time.monotonic() + 30
    while samples.stat().st_size <= len(before):
        assert time.monotonic() < deadline and resumed.poll() is None, resumed.communicate()
        time.sleep(0.02)
    resumed.send_signal(signal.SIGINT)
    _, errors = resumed.communicate(timeout=30)
    assert resumed.returncode == 130 and b"--resume" in errors, errors
    assert samples.read_bytes().startswith(before)


@pytest.mark.parametrize(
    "command",
    [
        ("bench", "larson", "-a", "system", "-r", 200),
        ("run", "--", "sleep", 30),
        ("profile", "--", "sleep", 30),
        ("doctor", "sh"),
        ("allocators",),
    ],
    ids=lambda command: command[0],
)
def test_ctrl_c_prints_no_traceback_in_any_command(cairn, command) -> None:
    for moment in (0.05, 0.2, 0.8):
        code, errors = interrupted(cairn, moment, *command)
        assert not of_cairn(errors), (moment, errors)
        assert code == 130 or (code == 0 and command[0] in ("doctor", "allocators")), errors
