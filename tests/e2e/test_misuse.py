"""Tests of `cairn bench misuse` on allocators whose cells are known by construction."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Command

from cairn.bench import misuse
from cairn.compare.misuse import BLOCKS, CAUGHT, EXPLOITABLE, NEUTRAL, MisuseTable
from cairn.errors import ContenderFailed

EXPLOITABLE_MOST = 45
"""The most exploitable cells of cairn's own allocator."""
UNNOTICED = {"read-after-free", "uninitialised-read", "predictable-reuse"}
"""The scenarios that do no damage under an allocator that gives each block a new place."""


def measured(*specs: str, blocks: tuple[int, ...] = BLOCKS) -> MisuseTable:
    return misuse.measure(misuse.resolved(specs), 1, lambda _: None, blocks=blocks)


def verdicts(table: MisuseTable, scenario: str) -> set[str]:
    return {cell.verdict for cell in table.cells if cell.scenario == scenario}


@pytest.fixture
def catching(compiled: Callable[..., Path]) -> str:
    return f"catching={compiled('catching_malloc.c', '-shared')}"


@pytest.fixture
def trusting(compiled: Callable[..., Path]) -> str:
    return f"trusting={compiled('trusting_malloc.c', '-shared')}"


def all_is_caught(catching: str, blocks: tuple[int, ...]) -> None:
    table = measured(catching, blocks=blocks)
    for scenario in table.scenarios:
        assert verdicts(table, scenario.name) == {
            NEUTRAL if scenario.name in UNNOTICED else CAUGHT
        }, scenario.name


def nothing_is_caught(trusting: str, blocks: tuple[int, ...]) -> None:
    table = measured(trusting, blocks=blocks)
    for scenario in table.scenarios:
        assert verdicts(table, scenario.name) == {
            NEUTRAL if scenario.name == "write-after-free" else EXPLOITABLE
        }, scenario.name


def test_no_cell_is_exploitable_if_the_allocator_catches_everything(catching: str) -> None:
    all_is_caught(catching, (24, 40_000))


def test_every_cell_is_exploitable_if_the_allocator_believes_every_pointer(trusting: str) -> None:
    nothing_is_caught(trusting, (100, 5000))


@pytest.mark.long
def test_the_known_allocators_have_their_cells_with_all_sizes(catching: str, trusting: str) -> None:
    all_is_caught(catching, BLOCKS)
    nothing_is_caught(trusting, BLOCKS)


def test_the_table_has_28_scenarios_and_168_cells_and_few_are_exploitable_under_cairn() -> None:
    table = measured("cairn")
    assert len(table.scenarios) == 28 and len(table.cells) == 168
    assert table.count("cairn", EXPLOITABLE) <= EXPLOITABLE_MOST, [
        cell for cell in table.cells if cell.verdict == EXPLOITABLE
    ]
    for scenario in table.scenarios:
        if scenario.name.startswith(("double-free", "free-", "realloc-", "size-")):
            assert verdicts(table, scenario.name) == {CAUGHT}, scenario.name


def test_an_allocator_that_cannot_serve_the_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContenderFailed, match="there is no such file"):
        measured(str(tmp_path / "libnone.so"))


def test_the_command_writes_one_row_of_csv_for_each_cell(cairn: Command) -> None:
    done = cairn("bench", "misuse", "-a", "cairn", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 168
    assert {row["verdict"] for row in rows} <= {CAUGHT, NEUTRAL, EXPLOITABLE}


@pytest.mark.parametrize("words", [["--quick"], ["--plan"], ["--why"], ["suite"], ["--seed", "1"]])
def test_options_that_measure_time_are_refused(cairn: Command, words: list[str]) -> None:
    done = cairn("bench", "misuse", *words)
    assert done.code == 2 and "Traceback" not in done.err, done
