"""Tests of the samples that 'cairn profile --pid' keeps until they are counted."""

from __future__ import annotations

import struct

import pytest

from cairn.inspect import clock, sampled
from cairn.profile.address_space import Space
from cairn.profile.code_owners import AllocatorCode
from cairn.profile.cpu_samples import MARK, run_of

SAMPLE, MMAP2 = 9, 10
STACK = bytes(range(64))


def a_sample(address: int, time_ns: int) -> tuple[int, int, bytes]:
    """Returns a sample with registers and a copy of the stack, as the kernel writes it."""
    registers = [address if number == clock.IP else 0 for number in clock.REGISTERS]
    body = struct.pack("<QIIQQQ", address, 1, 1, time_ns, 1000, 0)
    body += struct.pack(f"<Q{len(registers)}Q", 2, *registers)
    body += struct.pack("<Q", len(STACK)) + STACK + struct.pack("<Q", len(STACK))
    return SAMPLE, 0, body


@pytest.fixture
def backlog() -> sampled._Backlog:
    """The program's code is at 0x1000, and the allocator's at 0x9000."""
    space = Space()
    space.put(0x1000, 0x1000, 0, "/bin/program")
    space.put(0x9000, 0x1000, 0, "/lib/liballocator.so")
    return sampled._Backlog(AllocatorCode(frozenset({"/lib/liballocator.so"})), space)


def test_a_sample_of_the_program_is_kept_without_its_stack(backlog: sampled._Backlog) -> None:
    whole = a_sample(0x9500, 5)
    assert backlog.kept(whole) == whole
    unknown = a_sample(0x7777777, 5)
    assert backlog.kept(unknown) == unknown
    _, _, body = backlog.kept(a_sample(0x1500, 5))
    assert STACK not in body
    assert body == a_sample(0x1500, 5)[2].partition(STACK)[0][:-8] + bytes(8)
    mapping = (MMAP2, 0, b"x" * 100)
    assert backlog.kept(mapping) == mapping


def test_behind_the_limit_no_sample_keeps_its_stack(
    backlog: sampled._Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = a_sample(0x9500, 1)
    monkeypatch.setattr(sampled, "_KEPT_BYTES", 10 * len(one[2]))
    for time_ns in range(10):
        assert STACK in backlog.kept(a_sample(0x9500, time_ns))[2]
    assert backlog.bare_from_ns > 1e18
    for time_ns in range(10, 20):
        assert STACK not in backlog.kept(a_sample(0x9500, time_ns))[2]
    assert backlog.bare_from_ns == 10


def test_of_too_many_samples_a_part_is_kept_that_stands_for_all(
    backlog: sampled._Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The period once grew with the time instead, so a longer time gave no more samples."""
    monkeypatch.setattr(sampled, "_KEPT_MOST", 2_000)
    mark = (MARK, 0, b"")
    samples = [a_sample(0x9500 if number % 4 else 0x1500, number) for number in range(40_000)]
    kept = backlog.all_kept([*samples, mark])
    number = sum(kind == SAMPLE for kind, _, _ in kept)
    assert 500 < number <= 2_000 and kept[-1] == mark
    assert {misc >> 8 for kind, misc, _ in kept if kind == SAMPLE} == {5}
    code, space = AllocatorCode(frozenset({"/lib/liballocator.so"})), Space()
    space.put(0x1000, 0x1000, 0, "/bin/program")
    space.put(0x9000, 0x1000, 0, "/lib/liballocator.so")
    counts = sampled._StackCounts(code, 1, 1_000, "processors", frozenset(), None)
    counts.spaces[1] = space
    for record in kept:
        counts.add(*record)
    run = run_of(counts, probed=False)
    assert run.samples == number
    assert run.whole_ns == pytest.approx(40_000 * 1_000, rel=0.15)
    assert run.own_ns == pytest.approx(30_000 * 1_000, rel=0.2)


def test_few_samples_are_all_kept(backlog: sampled._Backlog) -> None:
    samples = [a_sample(0x9500, number) for number in range(100)]
    assert backlog.all_kept(samples) == samples
