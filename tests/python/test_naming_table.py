"""Tests of the sentences below the table of 'cairn symbolize'."""

from __future__ import annotations

import pytest

from cairn.profile.kept_names import NamedFile
from cairn.profile.naming import Naming
from cairn.report.naming_table import notes


def a_naming(
    name: str, functions: int, build_id: str = "ab12", *, is_changed: bool = False
) -> Naming:
    file = NamedFile(build_id, f"/usr/bin/{name}", (), {})
    return Naming(file, 9, functions, 0, is_changed)


LAST = "'cairn profile --read' shows these names on any machine."
NONE = (
    "▲ No function of {} is known: no file with the same build ID and with symbols is here. "
    "--debug-path names a folder to search."
)


@pytest.mark.parametrize(
    ("namings", "told"),
    [
        ([a_naming("prog", 9)], []),
        ([a_naming("prog", 0)], [NONE.format("prog")]),
        ([a_naming("prog", 0), a_naming("libz", 1)], [NONE.format("prog")]),
        (
            [a_naming(name, 0) for name in ("a", "b", "c", "d", "e")],
            [NONE.format("a, b, c and 2 more")],
        ),
        (
            [a_naming("old", 0, "")],
            [
                "▲ 1 file has no build ID, so it is not known whether a file here is the same. "
                "Link with -Wl,--build-id."
            ],
        ),
    ],
)
def test_a_sentence_says_which_names_are_missing(namings: list[Naming], told: list[str]) -> None:
    assert notes(namings, "") == [*told, LAST]


def test_a_file_that_has_changed_is_told_once() -> None:
    changed, *others = notes([a_naming("prog", 0, is_changed=True)], "A warning.")
    assert "▲ prog has changed since the profile" in changed
    assert others == ["A warning.", LAST]
