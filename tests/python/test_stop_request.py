"""Tests that a signal is kept if it arrives where Python discards exceptions."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal
from cairn.run import stop_request

signal.signal(signal.SIGINT, stop_request.on_signal)
stop_request.check()

class Last:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

Last()
print("goes on")
stop_request.check()
print("was forgotten")
"""


def test_a_signal_in_a_destructor_stops_the_next_long_step() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.stdout == "goes on\n" and done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr.splitlines()[-1]


DISCARDED = """
import signal, sys, time
from cairn.run import stop_request

signal.signal(signal.SIGINT, stop_request.on_signal)
sys.unraisablehook = stop_request.on_discarded

class Last:
    def __del__(self):
        if error is None:
            signal.raise_signal(signal.SIGINT)
        raise error

error = OSError("told as ever")
Last()
error = None
Last()
print("goes on")
sys.stdout.flush()
time.sleep(60)
print("was forgotten")
"""


def test_a_signal_in_a_destructor_also_ends_a_wait() -> None:
    """Python printed the exception and went on, so the user had to press ctrl-C again."""
    done = subprocess.run(
        [sys.executable, "-c", DISCARDED], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stdout == "goes on\n" and done.returncode != 0
    assert "told as ever" in done.stderr and done.stderr.count("ignored") == 1
    assert "KeyboardInterrupt" in done.stderr.splitlines()[-1]


POSTPONED = """
import signal
from cairn.run import stop_request

signal.signal(signal.SIGINT, stop_request.on_signal)
with stop_request.postponed():
    signal.raise_signal(signal.SIGINT)
    print("the block ends")
print("was forgotten")
"""


def test_a_signal_is_postponed_to_the_end_of_work_that_must_not_be_cut_short() -> None:
    done = subprocess.run(
        [sys.executable, "-c", POSTPONED], capture_output=True, text=True, check=False
    )
    assert done.stdout == "the block ends\n" and done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr.splitlines()[-1]
