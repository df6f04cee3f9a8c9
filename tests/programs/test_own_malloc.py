"""Programs with a malloc of their own, which comes before ours.

Our other functions must fit to it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INPUTS, UNDER_PROBE, Stage, path_of

FITTING = (None, "system", "cairn")
"""Allocators whose reallocarray() accepts blocks of others. hoard's fails, and mimalloc's mostly:
in 56 of 60 runs alone."""


@pytest.mark.skipif(
    UNDER_PROBE not in FITTING, reason="its reallocarray() takes any block for one of its own"
)
def test_a_program_s_own_malloc_serves_what_is_built_on_it(
    both: Callable[..., str], tmp_path: Path
) -> None:
    """Our reallocarray() once took a block of such a program (chromium) for an invalid pointer."""
    own = tmp_path / "own"
    flags = ["-O1", "-fno-builtin", "-D_GNU_SOURCE"]
    subprocess.run([path_of("gcc"), *flags, INPUTS / "own_malloc.c", "-o", own], check=True)

    def session(stage: Stage) -> str:
        return stage.run(own)

    said = both(session, "own", own_malloc=[str(own.resolve())])
    assert said == "kept 3890 1 1792\n"
