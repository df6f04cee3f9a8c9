"""Tests of programs with their own malloc, which the loader finds before libcairn's malloc.

If the program does not define a function such as reallocarray, libcairn's function is called.
This function must work with blocks of the program's malloc.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INPUTS, UNDER_PROBE, Stage, path_of

FITTING = (None, "system", "cairn")
"""Allocators whose reallocarray() accepts blocks of the program's own malloc. The reallocarray() of
hoard fails for such blocks. The reallocarray() of mimalloc failed in 56 of 60 runs, even without
the probe."""


@pytest.mark.skipif(
    UNDER_PROBE not in FITTING, reason="its reallocarray() fails for blocks of another malloc"
)
def test_functions_built_on_a_programs_own_malloc_use_that_malloc(
    both: Callable[..., str], tmp_path: Path
) -> None:
    """The reallocarray() of libcairn once reported a block of chromium's own malloc as invalid."""
    own = tmp_path / "own"
    flags = ["-O1", "-fno-builtin", "-D_GNU_SOURCE"]
    subprocess.run([path_of("gcc"), *flags, INPUTS / "own_malloc.c", "-o", own], check=True)

    def session(stage: Stage) -> str:
        return stage.run(own)

    said = both(session, "own", own_malloc=[str(own.resolve())])
    assert said == "kept 3890 1 1792\n"
