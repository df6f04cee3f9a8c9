"""Tests that the operators of C++ behave as the standard says, with each kind of C++ runtime.

A C program that is linked with the archive must not need the C++ runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Library, Program

WAYS = {
    "preloaded": ("preloaded",),
    "preloaded, a runtime within": ("preloaded", "-static-libstdc++", "-static-libgcc"),
    "linked": ("linked",),
    "archive": ("archive",),
    "archive, a runtime within": ("archive", "-static-libstdc++", "-static-libgcc"),
    "archive, all within": ("archive", "-static"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_form_behaves_as_the_standard_says(
    program: Callable[..., Program], way: tuple[str, ...]
) -> None:
    mode, *flags = way
    assert program("operators.cpp", mode, *flags).succeed().endswith("passed, 0 failed\n")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_replacing_two_operators_replaces_all_their_forms(
    program: Callable[..., Program], way: tuple[str, ...]
) -> None:
    mode, *flags = way
    assert program("replaced.cpp", mode, *flags).succeed().endswith("passed, 0 failed\n")


def test_a_plugin_with_a_private_runtime_can_throw(
    library: Library, compiled_here: Callable[..., Path]
) -> None:
    plugin = compiled_here("cxx_plugin.cpp", "-shared", "-fPIC")
    host = compiled_here("cxx_host.c")
    Program(host, None).succeed(plugin)
    Program(host, library.shared).succeed(plugin)
