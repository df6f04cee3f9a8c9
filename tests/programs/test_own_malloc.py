"""Programs that bring a malloc, which comes before any preloaded one: what they do not bring must fit to it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INPUTS, UNDER_PROBE, Stage, path_of

FITTING = (None, "system", "cairn")
"""Whose reallocarray() knows a block that is not its own. hoard's fails at it, mimalloc's mostly: of 60 runs alone, 56."""


@pytest.mark.skipif(
    UNDER_PROBE not in FITTING, reason="its reallocarray() takes any block for one of its own"
)
def test_a_program_s_own_malloc_serves_what_is_built_on_it(
    both: Callable[..., str], tmp_path: Path
) -> None:
    """Our reallocarray() took the block of such a program, as chromium is one, for a pointer from nowhere."""
    own = tmp_path / "own"
    flags = ["-O1", "-fno-builtin", "-D_GNU_SOURCE"]
    subprocess.run([path_of("gcc"), *flags, INPUTS / "own_malloc.c", "-o", own], check=True)

    def session(stage: Stage) -> str:
        return stage.run(own)

    said = both(session, "own", own_malloc=[str(own.resolve())])
    assert said == "kept 3890 1 1792\n"
