"""Tests of the number of instructions per operation.

Unlike times, these numbers are the same in every run, even on a busy machine. The limits of the
test exceed the goals of the design, which are 36, 48, 42, 60 and 60 instructions.
docs/decisions/0007-key-covers-the-link.md says what the additional instructions are for.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest

from .conftest import Program, archive_later

NOTHING = {"remote": 1}
"""By kind of operation: the number of instructions in the empty malloc and free. Others have 3.

To remove the cost of the loop, the test subtracts the count of a run with the empty functions. This
also subtracts the instructions of these functions, so the test adds them again.
"""
SHORT, LONG = 20_000, 60_000


def instructions(program: Program, what: str, of: str) -> float:
    """Returns the number of instructions of one operation, including the loop around it.

    The function subtracts the count of a short run from that of a long run, so that the start and
    the end of the program cancel out.
    """
    counted = []
    for count in (SHORT, LONG):
        ended = program(
            what,
            of,
            count,
            under=[
                "valgrind",
                "--tool=cachegrind",
                "--cache-sim=no",
                "--cachegrind-out-file=/dev/null",
            ],
        )
        found = re.search(r"I\s+refs:\s+([\d,]+)", ended.err)
        assert ended.code == 0 and found, ended.err
        counted.append(int(found[1].replace(",", "")))
    return (counted[1] - counted[0]) / (LONG - SHORT)


@pytest.mark.plain("has these limits")
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not here")
@archive_later
@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("32", 53),
        pytest.param("mixed", 53, marks=pytest.mark.long),
        pytest.param("2000", 57, marks=pytest.mark.long),
        pytest.param(str(300 << 10), 91, marks=pytest.mark.long),
        ("remote", 64),
        (str((1 << 63) - 1), 80),  # fails: no block has this size
        pytest.param("far", 4000, marks=pytest.mark.long),
    ],
)
def test_an_operation_takes_few_instructions(
    program: Callable[..., Program], mode: str, what: str, most: float
) -> None:
    built = program("counted_operations.c", mode)
    taken = (
        instructions(built, what, "allocator")
        - instructions(built, what, "nothing")
        + NOTHING.get(what, 3)
    )
    assert 20 < taken <= most
