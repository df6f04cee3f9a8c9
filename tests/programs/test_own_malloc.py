"""Tests of programs with their own malloc, which the loader finds before ours.

If such a program lacks a function (such as reallocarray), ours must work with its blocks.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INPUTS, UNDER_PROBE, Stage, path_of

FITTING = (None, "system", "cairn")
"""Allocators whose reallocarray() accepts blocks of the program's own malloc. That of hoard fails.
That of mimalloc failed in 56 of 60 runs, even without the probe."""


@pytest.mark.skipif(
    UNDER_PROBE not in FITTING, reason="its reallocarray() fails for blocks of another malloc"
)
def test_functions_built_on_a_programs_own_malloc_use_that_malloc(
    both: Callable[..., str], tmp_path: Path
) -> None:
    """Our reallocarray() once called a block of such a program (chromium) an invalid pointer."""
    own = tmp_path / "own"
    flags = ["-O1", "-fno-builtin", "-D_GNU_SOURCE"]
    subprocess.run([path_of("gcc"), *flags, INPUTS / "own_malloc.c", "-o", own], check=True)

    def session(stage: Stage) -> str:
        return stage.run(own)

    said = both(session, "own", own_malloc=[str(own.resolve())])
    assert said == "kept 3890 1 1792\n"
