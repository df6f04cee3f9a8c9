"""A fixture with the workloads: the installed ones, or those of the build $CAIRN_WORKLOADS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.workload_runs import Work

from cairn import native


@pytest.fixture(scope="session")
def work() -> Work:
    other = os.environ.get("CAIRN_WORKLOADS")
    return Work(Path(other).absolute() if other else native.workload("fill").parent)
