"""Tests of libcairn with musl: the conformance programs that do not depend on glibc.

musl lacks malloc_trim() and mallinfo2(), so conformance.h supplies them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from .conftest import Machine

PASSED = r"(?s).*passed, 0 failed\n"
RANDOM = r"seed \d+\n\d+ operations, \d+ children, \d+ refusals, ended with [0-9a-f]+\n"
PROGRAMS: list[tuple[str, tuple[object, ...], str]] = [
    ("corners.c", (), PASSED),
    ("random_calls.c", (70, 300_000, 4, "fork", "limit"), RANDOM),
    ("threads.c", (500,), r"\d+ \d+\n"),
    ("fork.c", (40, 4), r"0 children failed\n"),
    ("early.c", (), r"ended\n"),
    ("small_stack.c", (), r""),
    ("limited.c", (100,), r"100 100\n"),
]
LONGER: list[tuple[str, tuple[object, ...], str]] = [
    ("alignment.c", (), PASSED),
    ("random_calls.c", (71, 5_000_000, 1, "limit"), RANDOM),
    ("random_calls.c", (72, 5_000_000, 4, "fork", "limit"), RANDOM),
    ("threads.c", (20_000,), r"\d+ \d+\n"),
    ("fork.c", (2_000, 4), r"0 children failed\n"),
    ("purge_while_busy.c", (), r"\d+ \d+\n"),
]


@pytest.mark.parametrize("mode", ["preloaded", pytest.param("archive", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("source", "arguments", "expected"),
    [*PROGRAMS, *(pytest.param(*one, marks=pytest.mark.long) for one in LONGER)],
)
def test_the_allocator_holds_with_musl(
    machine: Callable[[str], Machine],
    source: str,
    arguments: tuple[object, ...],
    expected: str,
    mode: str,
) -> None:
    said = machine("musl").run(mode, None, source, *arguments)
    assert re.fullmatch(expected, said), said


@pytest.mark.parametrize("name", ["libcairn.so.0", "libcairn.a"])
def test_the_library_for_musl_defines_no_name_of_glibc(
    machine: Callable[[str], Machine], name: str
) -> None:
    """Musl's own archive defines __libc_malloc(), and the linker would refuse a second one."""
    library = machine("musl").libraries / name
    dynamic = ["-D"] if name.endswith(".0") else ["--extern-only"]
    said = subprocess.run(
        ["nm", *dynamic, "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in said.splitlines() if line}
    assert {"malloc", "free", "aligned_alloc", "cairn_heap_create"} <= names
    assert not {name for name in names if name.startswith("__libc_") or "mallinfo" in name}
