"""Allocators that are ill on purpose: the illness is found, and of the healthy one nothing. tests/ill/ has them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.injecting import carried

from cairn import native
from cairn.findings import find
from cairn.profile import gather

ILL = Path(__file__).parents[1] / "ill"
PROGRAMS = {
    "hash_table": ("--operations", "2M"),
    "lru_cache": ("--operations", "1M"),
    "fragmentation": ("--kind", "server", "--operations", "100K"),
}
ILLNESSES = [
    ("madvise_storm", 32, "returns-what-it-needs"),
    ("mmap_storm", 4, "asks-too-often"),
    ("not_reused", 60, "not-reused"),
    ("coarse_sizes", 60, "sizes-too-coarse"),
]


@pytest.fixture
def findings(tmp_path: Path) -> Callable[..., list[str]]:
    """findings(program, illness, strength) → names, what costs most first."""

    def look(program: str, illness: str | None = None, strength: int = 0) -> list[str]:
        preload = [carried(native.probe())]
        if illness is not None:
            library = tmp_path / f"{illness}.so"
            flags = ["-O2", "-shared", "-fPIC", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
            subprocess.run(["gcc", *flags, ILL / f"{illness}.c", "-o", library], check=True)
            preload.append(str(library))
        out = tmp_path / "raw"
        out.mkdir()
        subprocess.run(
            [native.workload(program), *PROGRAMS[program]], check=True, timeout=120, stdout=subprocess.DEVNULL,
            env={**os.environ, "CAIRN_PROBE": str(out), "ILL": str(strength), "LD_PRELOAD": ":".join(preload)},
        )  # fmt: skip
        return [finding.name for finding in find(gather(out))]

    return look


@pytest.mark.parametrize("program", PROGRAMS)
def test_of_the_systems_allocator_nothing_is_found(findings: Callable[..., list[str]], program: str) -> None:
    assert findings(program) == []


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("illness", "strength", "name"), ILLNESSES)
def test_an_illness_is_found_and_nothing_else(
    findings: Callable[..., list[str]], program: str, illness: str, strength: int, name: str
) -> None:
    assert findings(program, illness, strength) == [name]
