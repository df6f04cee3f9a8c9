"""Tests of the display of 'cairn profile --live' without a terminal."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.cli.live_screen import LiveScreen
from cairn.errors import CairnError
from cairn.report.live_screen import Seen


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (ValueError("no counts"), "the live screen ended early: no counts"),
        (CairnError("a file is incomplete"), ""),
    ],
)
def test_a_display_that_fails_leaves_the_program_its_output_and_a_note(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], error: Exception, note: str
) -> None:
    """An incomplete file is no failure: the display keeps its numbers."""
    asked: list[int] = []

    def read(_: Callable[[], bool]) -> Seen:
        asked.append(1)
        raise error

    with LiveScreen(read, "./prog", tmp_path, "never") as shown:
        os.write(shown.output, b"from the program\n")
        while not asked:
            shown._over.wait(0.01)
    said = capfd.readouterr().err
    assert "from the program\n" in said
    assert note in said and ("ended early" in said) == bool(note)


def test_a_look_that_takes_long_ends_with_the_program(tmp_path: Path) -> None:
    """The report once waited until the last look had read everything."""
    began, ended = threading.Event(), threading.Event()

    def read(is_over: Callable[[], bool]) -> Seen:
        began.set()
        while not is_over():
            time.sleep(0.01)
        ended.set()
        return Seen(0, None)

    with LiveScreen(read, "./prog", tmp_path, "never"):
        assert began.wait(30)
    assert ended.is_set()
