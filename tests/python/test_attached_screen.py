"""Tests of the screen of 'cairn profile --live --pid'."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from support.comparisons import EVIL
from support.invented_process import SAMPLED, attached_share

from cairn.inspect import moment
from cairn.inspect.attached import attached
from cairn.inspect.moment import ProcessMoment
from cairn.inspect.process import ProcessEnded, Target, find
from cairn.report.attached_screen import LEAVE, lines
from cairn.report.formatting import printable

MIB = 1 << 20
assert SAMPLED.run is not None
RUN = SAMPLED.run
SECOND = 1_000_000_000
MOMENTS = [
    ProcessMoment(SECOND * at, SECOND * at / 2, 100 * at, 3, (10 + 5 * (at % 3)) * MIB)
    for at in range(1, 8)
]


def test_the_screen_has_the_share_the_memory_and_the_functions() -> None:
    shown = lines(attached_share(), MOMENTS, "worker (1276)", 80, 40)
    text = "\n".join(shown)
    assert shown[0] == "worker (1276)" and shown[-1] == LEAVE
    assert "watched for 10 s · 3 threads · 50.0 % of one CPU now" in text
    assert "The allocator takes " in text and "own code" in text
    assert "resident  15.0 MiB now, at most 20.0 MiB" in text
    assert "page faults  100 a second now" in text
    assert "  cache_insert" in text and "functions of the allocator, by CPU time" in text


@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("height", [2, 5, 12, 24, 60])
def test_the_screen_fits_any_terminal(width: int, height: int) -> None:
    few = attached(replace(SAMPLED, run=replace(RUN, samples=50)))
    for found in (attached_share(), attached(SAMPLED), few):
        for moments in (MOMENTS[:2], MOMENTS):
            shown = lines(found, moments, f"worker {printable(EVIL)} (1276)", width, height)
            assert len(shown) <= height
            assert all(cell_len(one) <= width for one in shown)
            assert shown[-1] == LEAVE[:width].rstrip()


def test_too_few_samples_and_a_kernel_that_is_not_sampled_are_told() -> None:
    few = attached(replace(SAMPLED, run=replace(RUN, samples=50)))
    text = "\n".join(lines(few, MOMENTS, "x", 80, 24))
    assert "The share is not known yet: 50 of 200 clock samples." in text
    blind = replace(attached_share(), scope="threads in user mode")
    text = "\n".join(lines(blind, MOMENTS, "x", 80, 24))
    assert "in the kernel: not measured" in text and "page faults 0" not in text
    assert "▲ The kernel does not permit samples in the kernel" in text


def test_a_moment_has_the_numbers_of_the_kernel() -> None:
    target = find(os.getpid())
    first = moment.now(target)
    kept = bytearray(b"x" * (64 * MIB))
    second = moment.now(target)
    assert second.resident_bytes - first.resident_bytes > 50 * MIB, len(kept)
    assert second.faults > first.faults and second.at_ns > first.at_ns
    assert second.cpu_ns >= first.cpu_ns > 0 and second.threads >= 1
    with pytest.raises(ProcessEnded):
        moment.now(Target(2**22 + 1, "gone", 1, ""))
