"""Tests that no workload has an error or a leak.

They run the workloads under valgrind. tests/run also runs these tests with workloads that were
built with sanitizers.
"""

from __future__ import annotations

import shutil

import pytest
from support.workload_runs import Work, names


@pytest.mark.parametrize("name", names())
def test_every_workload_runs_at_its_smallest_without_output_on_stderr(
    work: Work, name: str
) -> None:
    """If the workload was built with a sanitizer, each error is a line on stderr."""
    done = work.smallest(name)
    assert done.code == 0, done.err
    assert done.err == ""


QUICKLY = ("larson", "producer-consumer", "document", "realloc-growth")
"""The workloads that also run quickly under valgrind. They use threads and every function."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICKLY else pytest.mark.long) for name in names()],
)
def test_valgrind_finds_no_error_and_no_leak(work: Work, name: str) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not here")
    under = (
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    )
    done = work.smallest(name, under=under)
    assert done.code == 0, done.err
