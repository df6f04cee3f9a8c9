"""Fixtures: the launcher under test (the installed one or $CAIRN_LAUNCH), and programs to start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.launching import Launch

from cairn import native


@pytest.fixture(scope="session")
def launch() -> Launch:
    return Launch(Path(os.environ.get("CAIRN_LAUNCH") or native.launcher()).resolve())


@pytest.fixture(scope="session")
def hold(compiled: Callable[..., Path]) -> str:
    return str(compiled("launch_hold.c", "-Wno-unused-result"))


@pytest.fixture(scope="session")
def stubborn(compiled: Callable[..., Path]) -> str:
    return str(compiled("launch_stubborn.c"))


@pytest.fixture(scope="session")
def cgroup(launch: Launch) -> None:
    """Skips the test if the launcher cannot make a cgroup, and names the launcher's reason."""
    outcome = launch("--memory", "cgroup", "--", "true")
    if outcome.code == 125:
        pytest.skip(outcome.err.strip())


@pytest.fixture
def method(request: pytest.FixtureRequest) -> str:
    if request.param == "cgroup":
        request.getfixturevalue("cgroup")
    return str(request.param)
