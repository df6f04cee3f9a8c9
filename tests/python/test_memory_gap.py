"""Tests of the parts of a gap in memory. The trials are invented, so that every part is known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.gaps import MIB, gap, part, trials, why_run

from cairn.memory import MemoryDivision
from cairn.model import Sample
from cairn.report.why import sentences
from cairn.why.gap import explain
from cairn.why.parts import (
    COPIED,
    LIVE,
    LIVE_ESTIMATED,
    OTHERS,
    REST,
    REST_AND_SLACK,
    SLACK,
    SPARSE,
    SPARSE_AND_SLACK,
    Part,
)


def test_memory_is_split_into_live_blocks_size_rounding_and_the_rest() -> None:
    fat = trials("fast", slack_bytes=24 * MIB, resident_bytes=140 * MIB)
    fat = [replace(s, memory=replace(s.memory, peak_bytes=138 * MIB)) for s in fat]
    found = gap([*trials("system"), *fat], "memory")
    assert part(found, LIVE).change == 0
    assert part(found, SLACK).change == pytest.approx(16 * MIB)
    assert part(found, REST).change == pytest.approx(24 * MIB)
    assert found.whole.change == pytest.approx(38 * MIB)
    assert found.unexplained.change == pytest.approx(-2 * MIB)


def test_live_memory_belongs_to_the_program_and_is_equal_under_both_allocators() -> None:
    found = gap(
        [*trials("system", live_bytes=60 * MIB), *trials("fast", live_bytes=70 * MIB)], "memory"
    )
    assert part(found, LIVE).own == part(found, LIVE).other == 65 * MIB


def test_counted_live_bytes_are_better_than_estimates() -> None:
    """Live bytes are counted under `system`, and only estimated under `fast`."""
    found = gap(
        [
            *trials("system", live_bytes=60 * MIB),
            *trials("fast", live_bytes=70 * MIB, live_counted=False),
        ],
        "memory",
    )
    assert part(found, LIVE).own == part(found, LIVE).other == 60 * MIB


def test_live_bytes_that_were_only_estimated_are_called_an_estimate() -> None:
    samples = [*trials("system", live_counted=False), *trials("fast", live_counted=False)]
    found = gap(samples, "memory")
    assert part(found, LIVE_ESTIMATED).own == 64 * MIB
    assert LIVE not in [one.name for one in found.parts]


def divided(samples: list[Sample], peak_mib: int, **parts: int | None) -> list[Sample]:
    """Returns the trials with this peak in MiB, divided among two processes by `parts` (in MiB)."""
    known: dict[str, int | None] = {"total": peak_mib, "largest": 100, "copied": 0} | parts
    total, largest, copied = (
        None if known[name] is None else (known[name] or 0) * MIB
        for name in ("total", "largest", "copied")
    )
    assert total is not None and largest is not None
    division = MemoryDivision(2, total, largest, copied, 8000, 500)
    return [
        replace(one, memory=replace(one.memory, peak_bytes=peak_mib * MIB, division=division))
        for one in samples
    ]


def test_copies_after_a_fork_are_a_part_of_memory_with_their_cause() -> None:
    """Under `fast` 60 MiB are copied after a fork, under the other contender 20 MiB."""
    samples = [
        *divided(trials("system"), 130, copied=20),
        *divided(trials("fast"), 171, total=170, copied=60),
    ]
    found = gap(samples, "memory")
    assert [(one.name, one.own, one.other) for one in found.parts[:-1]] == [
        (LIVE, 64 * MIB, 64 * MIB),
        (SLACK, 8 * MIB, 8 * MIB),
        (REST, 28 * MIB, 28 * MIB),
        (COPIED, 60 * MIB, 20 * MIB),
        (OTHERS, 10 * MIB, 10 * MIB),
    ]
    assert found.unexplained.change == MIB
    told = list(sentences(explain(why_run("fast"), samples, "fast", "system")))
    assert (
        "fast takes 31.5 % more memory than system: copied after a fork +30.8 % of system's "
        "memory (8,000 shared pages written by a child against 8,000; 500 by a parent against 500)."
    ) in told


def test_without_a_cgroup_copies_after_a_fork_are_not_measured() -> None:
    samples = [
        *divided(trials("system"), 130, copied=None),
        *divided(trials("fast"), 150, copied=None),
    ]
    found = gap(samples, "memory")
    assert part(found, COPIED).change is None
    assert part(found, OTHERS).change == 20 * MIB
    told = list(sentences(explain(why_run("fast"), samples, "fast", "system")))
    assert "Copied after a fork: not measured." in told


def test_live_blocks_that_are_not_resident_do_not_count() -> None:
    """The program requests 300 MiB, and writes to a part of it: the process never has more."""
    samples = [
        *trials("system", live_bytes=300 * MIB, resident_bytes=90 * MIB),
        *trials("fast", live_bytes=300 * MIB, resident_bytes=110 * MIB),
    ]
    found = gap(samples, "memory")
    assert part(found, LIVE).own == part(found, LIVE).other == 90 * MIB
    assert part(found, SLACK).other == 0 and part(found, SPARSE).other == 0
    assert sum((one.own or 0.0) for one in found.parts[:-1]) == 110 * MIB


def test_rounding_that_one_allocator_does_not_tell_is_not_measured_alone() -> None:
    """Without malloc_usable_size(), size rounding is a part of all other memory."""
    found = gap(
        [*trials("system"), *trials("fast", slack_bytes=None, resident_bytes=140 * MIB)], "memory"
    )
    assert part(found, SLACK).change is None and part(found, SLACK).other == 8 * MIB
    assert part(found, REST_AND_SLACK).change == 40 * MIB
    assert REST not in [one.name for one in found.parts]


def sparse(live_mib: int, *, rounding: bool = True, **huge: float) -> Part:
    """Returns the part of all other memory for a process that has 485 MiB, and 21 under `system`.

    `huge` has the shares of the memory that lie in huge pages, by contender.
    """
    samples = []
    for name, held in (("system", 21), ("fast", 485)):
        made = trials(
            name,
            live_bytes=live_mib * MIB,
            resident_bytes=held * MIB,
            slack_bytes=0 if rounding else None,
            metrics={"huge": (huge[name],) * 3} if huge else {},
        )
        samples += [replace(s, memory=replace(s.memory, peak_bytes=held * MIB)) for s in made]
    found = gap(samples, "memory")
    names = (REST, REST_AND_SLACK, SPARSE, SPARSE_AND_SLACK)
    (one,) = [one for one in found.parts if one.name in names]
    assert one.change == 464 * MIB
    return one


def test_unused_parts_of_live_blocks_that_become_resident_are_not_free_memory() -> None:
    """The program requests 655 MiB and writes to 21 MiB of them. The rest of 485 MiB is live, too.

    "free memory and metadata 100 % of the difference" was once the answer.
    """
    assert (sparse(655).name, sparse(655).evidence) == (SPARSE, ())
    assert sparse(655, rounding=False).name == SPARSE_AND_SLACK
    assert sparse(655, system=0.1, fast=0.9).evidence == (
        "90.0 % of the resident memory in huge pages against 10.0 %",
    )
    assert sparse(655, system=0.9, fast=0.1).evidence == ()
    assert sparse(655, system=0.5, fast=0.7).evidence == ()


def test_if_all_live_blocks_are_resident_the_other_memory_is_free_memory_and_metadata() -> None:
    for live_mib in (20, 21, 22):
        found = sparse(live_mib, system=0.1, fast=0.9)
        assert (found.name, found.evidence) == (REST, ())
    assert sparse(20, rounding=False).name == REST_AND_SLACK
