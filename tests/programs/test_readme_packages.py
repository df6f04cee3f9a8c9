"""Tests that the README names the packages that these tests need."""

from __future__ import annotations

import re

from support.compilers import ROOT

from .conftest import packages


def test_the_readme_names_the_packages_for_make_test() -> None:
    words = set(re.findall(r"[\w+.-]+", (ROOT / "README.md").read_text()))
    assert set(packages("test").values()) <= words
