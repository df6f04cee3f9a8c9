"""Double, invalid and interior frees and writes after free: caught in one line, or harmless."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import MODES, Program


@pytest.fixture(scope="module", params=MODES)
def verdicts(request: pytest.FixtureRequest, program: Callable[..., Program]) -> dict[tuple[str, str], str]:
    """Kind of misuse and size → what came of it."""
    lines = program("misuse.c", request.param).succeed(timeout=300).splitlines()
    return {(kind, place): verdict for kind, place, verdict in map(str.split, lines)}


def test_misuse_is_caught_or_harmless(verdicts: dict[tuple[str, str], str]) -> None:
    wrong = {
        f"{kind} {place}": verdict
        for (kind, place), verdict in verdicts.items()
        if verdict not in ("caught", "harmless", "none")
    }
    assert not wrong
    assert sum(verdict == "caught" for verdict in verdicts.values()) > 200
