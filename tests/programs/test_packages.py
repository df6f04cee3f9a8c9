"""One list names the packages that these tests need, in the place where people look for it."""

from __future__ import annotations

import re

from support.compiling import ROOT

from .conftest import packages


def test_the_readme_names_what_make_test_wants() -> None:
    words = set(re.findall(r"[\w+.-]+", (ROOT / "README.md").read_text()))
    assert set(packages("test").values()) <= words
