"""Tests of the pictures of comparisons."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace
from support.comparisons import EVIL, a_run, compared, samples

from cairn.model import Contender
from cairn.report import pictures


@pytest.mark.parametrize(("form", "head"), [("svg", b"<?xml"), ("png", b"\x89PNG\r\n\x1a\n")])
def test_a_picture_is_made_in_either_form(form: str, head: bytes) -> None:
    run = a_run()
    made = pictures.render(run, compared(run, samples()), title="a build", form=form)
    assert made.startswith(head)
    assert len(made) > 5_000


def test_the_same_comparison_gives_the_same_names_and_no_markup() -> None:
    run = replace(a_run(Contender("system", "system", "glibc"), Contender(EVIL, "custom", EVIL)))
    of = [
        replace(
            s, trial=replace(s.trial, contender=EVIL if s.trial.contender == "fast" else "system")
        )
        for s in samples()
    ]
    made = pictures.render(run, compared(run, of), title=f"$x^2$ {EVIL}", form="svg")
    root = ET.fromstring(made)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert b"\x1b" not in made


def test_memory_that_was_not_measured_is_no_panel() -> None:
    run = a_run()
    with_memory = pictures.render(run, compared(run, samples()), title="t", form="svg")
    unknown = [
        replace(s, memory=replace(s.memory, method="not measured", peak_bytes=None))
        for s in samples()
    ]
    without = pictures.render(run, compared(run, unknown), title="t", form="svg")

    def width(picture: bytes) -> float:
        return float(ET.fromstring(picture).attrib["width"].removesuffix("pt"))

    assert width(without) < width(with_memory)


def test_each_contender_has_a_bar_of_user_and_a_bar_of_system_time() -> None:
    """System time has a colour that nothing else in the picture has."""
    run = a_run()
    comparison = compared(run, samples())
    made = pictures.render(run, comparison, title="t", form="svg").decode()
    assert made.count(f"fill: {pictures._SYSTEM}") == len(comparison.rows)
    assert made.count(f"fill: {pictures._USER}") >= len(comparison.rows)


def test_a_letter_that_the_font_lacks_is_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    run = a_run()
    pictures.render(run, compared(run, samples()), title="漢字 \U0001f600", form="png")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]
