"""Tests of --why on allocators with known weaknesses.

Each is compared with an allocator that does not have its weakness. The expectations were written
before the first measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from support import peers

from cairn import native

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Case:
    """A program on which the allocator `slow` is slower than `other`, and the reason for that."""

    slow: str
    other: str
    program: tuple[str, ...]
    parts: tuple[str, ...]
    """The parts that make up most of the gap in CPU time. Empty if the gap is time in which threads
    wait, which takes no CPU time."""
    findings: tuple[str, ...]
    """The names of the expected findings. One of them is enough."""


KERNEL = ("allocator system calls", "page faults")
VM = ("scenario", "--which", "vm")
CASES = {
    "glibc, which grows and trims": Case(
        "system", "mimalloc", ("phase_change",), KERNEL, ("returns-what-it-needs",)
    ),
    "hardened_malloc": Case(
        "hardened",
        "system",
        ("hash_table", "--operations", "1M"),
        ("allocator code", *KERNEL),
        ("slow-path",),
    ),
    "scudo, blocks of 2 MiB": Case("scudo", "mimalloc", VM, KERNEL, ("returns-what-it-needs",)),
    "tbbmalloc, blocks of 2 MiB": Case(
        "tbbmalloc", "mimalloc", VM, KERNEL, ("returns-what-it-needs",)
    ),
    "snmalloc, blocks of 2 MiB": Case(
        "snmalloc", "mimalloc", VM, KERNEL, ("returns-what-it-needs",)
    ),
    "glibc, freed by others": Case(
        "system", "mimalloc", ("free_only", "--threads", "4"), (), ("queues", "contended-atomic")
    ),
    "google-tcmalloc without rseq": Case(
        "google-tcmalloc",
        "google-tcmalloc-rseq",
        ("hash_table", "--operations", "1M"),
        ("allocator code",),
        ("slow-path",),
    ),
    "jemalloc, blocks of 10 MiB": Case(
        "jemalloc", "mimalloc", ("large_churn",), KERNEL, ("returns-what-it-needs",)
    ),
}


NOT_SO = {
    "glibc, which grows and trims": "--why and perf find four fifths of the gap in glibc's code",
    "snmalloc, blocks of 2 MiB": "--why and perf find most of the gap in the program itself",
    "google-tcmalloc without rseq": "--why and perf find half of the gap in the program itself",
}
"""Cases whose expectation was wrong on the machine where they ran, and the reason.

perf's samples confirm each reason (docs/findings.md).
"""


def cases() -> list[object]:
    """Returns all cases, of which those in NOT_SO are expected to fail.

    The cases in NOT_SO stay in the list, because more CPUs or other versions may confirm them.
    """
    marks = {name: [pytest.mark.xfail(reason=why, strict=False)] for name, why in NOT_SO.items()}
    return [pytest.param(name, marks=marks.get(name, [])) for name in CASES]


@pytest.mark.parametrize("name", cases())
def test_a_known_case_is_found(cairn, name: str) -> None:
    case = CASES[name]
    cairn.environment["XDG_CACHE_HOME"] = str(peers.CACHE)
    for allocator in {case.slow, case.other} - {"system"}:
        peers.peer(allocator, origin=None)
    command = (native.workload(case.program[0]), *case.program[1:])
    pair = ("-a", case.other, "-a", case.slow)
    result = cairn(
        "compare",
        "--why",
        "-r",
        8,
        *pair,
        "--baseline",
        case.other,
        "--json",
        "--",
        *command,
        timeout=600,
    )
    assert result.code == 0, result.err
    (why,) = result.json["whys"]
    whole = why["time"]["whole"]
    assert whole["interval"]["low"] > 0 or not case.parts, "it is not slower here"
    changed = {one["name"]: one["change"] or 0.0 for one in why["time"]["parts"]}
    if case.parts:
        assert sum(changed[part] for part in case.parts) > 0.5 * whole["change"], changed
    else:
        assert why["time"]["waiting"]["interval"]["low"] > 0, why["time"]["waiting"]
    found = [one["name"] for one in why["findings"]] + [
        one["name"] for who, one in why["raised"] if who == case.slow
    ]
    assert set(case.findings) & set(found), found
