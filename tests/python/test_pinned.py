"""Tests of the blocks that hold nearly empty pages and chunks, with known survivors."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.allocator_under_test import under_test
from support.probing import Probed

from cairn import units
from cairn.profile.callers import Frame, Held, Stack, Sums, functions, stacks
from cairn.profile.function_names import Names
from cairn.report import pinned_table as pinned
from cairn.report import profile_answer
from cairn.report.fit import fit
from cairn.report.profile_export import rows
from cairn.report.stack_forms import stacks_document

Compiled = Callable[..., Path]
PAGE, CHUNK = 4096, 2 << 20
PINS = 5
SIZES = (32, 48, 64, 96, 112)


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


def found(probed: Probed) -> tuple[Stack, ...]:
    return stacks(probed.profile.stacks, Names().function_at)


def survivors(number: int, rounds: int) -> int:
    """Returns how many blocks of the function pins_NUMBER in survivors.c stay."""
    return rounds + rounds // 2 * number


@pytest.mark.parametrize("allocator", ["glibc", "cairn"])
@pytest.mark.parametrize("rounds", [20, pytest.param(500, marks=pytest.mark.long)])
def test_survivors_are_named_with_the_pages_that_they_hold(
    allocator: str, rounds: int, probed: Probed, compiled: Compiled, tmp_path: Path
) -> None:
    library = under_test(tmp_path, "libcairn").shared if allocator == "cairn" else None
    probed(compiled("survivors.c"), rounds, allocator=library, CAIRN_PROBE_STACKS="exact")
    files, all_stacks = probed.profile.stacks, found(probed)
    by_name = {frame.function: sums for frame, sums in functions(all_stacks)}
    for number in range(PINS):
        pages = by_name[f"pins_{number}"].pages
        blocks = survivors(number, rounds)
        assert (pages.blocks, pages.bytes) == (blocks, blocks * SIZES[number])
        # Some blocks lie on two pages.
        assert blocks * PAGE * 0.9 <= pages.held <= blocks * PAGE * 1.1
    # Each of the four dense functions fills whole pages with its 2,000 blocks. Only its first and
    # its last page may be nearly empty.
    others = [sums for name, sums in by_name.items() if not name.startswith("pins_")]
    assert sum(sums.pages.held for sums in others) <= 8 * PAGE
    (file,) = files
    assert file.sparse is not None
    for span in ("pages", "chunks"):
        count, held = file.sparse[span]
        total = sum(getattr(sums, span).held for sums in by_name.values())
        assert total == pytest.approx(held)
        assert held <= count * (PAGE if span == "pages" else CHUNK)
    if rounds > 100 and allocator == "glibc":  # glibc keeps the memory between survivors
        filled = sum(survivors(k, rounds) * 3 * PAGE for k in range(PINS))
        assert file.sparse["chunks"][1] >= 0.9 * filled


def test_a_sample_of_the_allocations_does_not_say_what_is_held(
    probed: Probed, compiled: Compiled
) -> None:
    probed(compiled("survivors.c"), 4, CAIRN_PROBE_STACKS="sampled")
    files, all_stacks = probed.profile.stacks, found(probed)
    assert [file.sparse for file in files] == [None]
    assert pinned.pinned_document(files, all_stacks) is None
    assert not pinned.pinned_notes(files)
    assert not list(pinned.pinned_rows(files, all_stacks))


def test_the_report_names_the_first_function_in_all_widths(
    probed: Probed, compiled: Compiled
) -> None:
    probed(compiled("survivors.c"), 50, CAIRN_PROBE_STACKS="exact")
    profile, all_stacks = probed.profile, found(probed)
    answer = pinned.pinned_answer(profile.stacks, all_stacks)
    assert " hold " in answer
    assert " allocated by pins_" in answer
    for width in (60, 80, 200):
        fitted = fit(pinned.pinned_table(profile.stacks, all_stacks), width)
        assert fitted.parts
    document = stacks_document(profile.stacks, all_stacks)
    assert document is not None
    one = next(row for row in document["pinned"]["functions"] if row["function"] == "pins_0")
    assert one["pages"]["block_bytes"] == 50 * SIZES[0]
    assert json.loads(json.dumps(document["pinned"])) == document["pinned"]
    lines = list(csv.DictReader(StringIO(rows(profile, all_stacks))))
    mine = [line for line in lines if line["table"] == "who keeps memory"]
    assert {line["group"] for line in mine} == {"pages", "chunks"}
    assert any(line["name"].startswith("pins_0 in ") for line in mine)


def test_the_answer_does_not_pass_over_nearly_empty_memory(
    probed: Probed, compiled: Compiled
) -> None:
    """The first screen once said only that no memory was lost, above a table of 31.8 MiB."""
    probed(compiled("survivors.c"), 50, CAIRN_PROBE_STACKS="exact")
    files = probed.profile.stacks
    held = pinned.pinned_document(files, found(probed))
    assert held is not None
    size = units.size(max(held[span]["held_bytes"] for span in ("chunks", "pages")))
    assert (
        f"But chunks of 2 MiB that are less than 10 % used hold {size} at the end; "
        'the table "who keeps memory" names the functions.'
    ) in profile_answer.no_finding(probed.profile)


def test_little_memory_gets_no_table(probed: Probed, compiled: Compiled) -> None:
    probed(compiled("known_stacks.c", "-pthread"), 4, CAIRN_PROBE_STACKS="exact")
    files, all_stacks = probed.profile.stacks, found(probed)
    assert pinned.pinned_answer(files, all_stacks) == pinned.nearly_empty(files) == ""
    (note,) = pinned.pinned_notes(files)
    assert "hold less than 256 KiB" in note


def test_sums_of_several_stacks_add() -> None:
    whole = Sums()
    whole.add(Sums())
    assert (whole.pages.held, whole.chunks.blocks) == (0, 0)


@pytest.mark.parametrize(
    ("blocks", "begins"),
    [
        (1.0, "1 block of 48 bytes, allocated by keep, hold"),
        (4.0, "4 blocks of 48 bytes on average,"),
    ],
)
def test_the_mean_size_is_that_of_several_blocks(
    probed: Probed, compiled: Compiled, blocks: float, begins: str
) -> None:
    probed(compiled("survivors.c"), 4, CAIRN_PROBE_STACKS="exact")
    (file,) = probed.profile.stacks
    files = (replace(file, sparse={"pages": (900, 900 * 4096), "chunks": (0, 0)}),)
    held = Held(blocks, 48 * blocks, 900 * 4096.0)
    stack = Stack((Frame("keep", "/a/prog"),), Sums(1, pages=held))
    assert pinned.pinned_answer(files, (stack,)).startswith(begins)
