"""Instructions per operation. They repeat exactly, whatever else the machine does.

They exceed the design's wishes (36, 48, 42, 60, 60): docs/decisions/0007-key-covers-the-link.md
says what they buy.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest

from .conftest import MODES, Program

NOTHING = {"remote": 1}
"""Instructions of the empty functions. They are subtracted with the loop but are not part of it."""
SHORT, LONG = 20_000, 60_000


def instructions(program: Program, what: str, of: str) -> float:
    """Returns the instructions of one operation.

    Two lengths are compared, so that start and end cancel out.
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


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not here")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("what", "most"),
    [("32", 64), ("mixed", 66), ("2000", 74), (str(300 << 10), 98), ("remote", 100)],
)
def test_an_operation_takes_few_instructions(
    program: Callable[..., Program], mode: str, what: str, most: float
) -> None:
    built = program("operations.c", mode)
    taken = (
        instructions(built, what, "allocator")
        - instructions(built, what, "nothing")
        + NOTHING.get(what, 3)
    )
    assert 20 < taken <= most
