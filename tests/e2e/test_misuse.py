"""Tests of `cairn bench misuse` on allocators whose cells are known by construction."""

from __future__ import annotations

import csv
import io
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Command

from cairn import native
from cairn.bench import misuse
from cairn.compare.misuse import BLOCKS, CAUGHT, EXPLOITABLE, NEUTRAL, MisuseTable, judge
from cairn.errors import ContenderFailed

EXPLOITABLE_MOST = 45
"""The most exploitable cells of cairn's own allocator."""
UNNOTICED = {"read-after-free", "uninitialised-read", "predictable-reuse"}
"""The scenarios that do no damage under an allocator that gives each block a new place."""


def measured(*specs: str, blocks: tuple[int, ...] = BLOCKS) -> MisuseTable:
    return misuse.measure(misuse.resolved(specs), 1, lambda _: None, blocks=blocks)


def verdicts(table: MisuseTable, scenario: str) -> set[str]:
    return {cell.verdict for cell in table.cells if cell.scenario == scenario}


@pytest.mark.parametrize(
    ("scenario", "outcome"),
    [("read-after-free", "a freed block still holds its contents"), ("double-free", "")],
)
def test_the_program_prints_the_damage_on_a_line_of_its_own(
    trusting: str, scenario: str, outcome: str
) -> None:
    environment = {"LD_PRELOAD": trusting.partition("=")[2]}
    done = subprocess.run(
        [native.misuse(), scenario, "100", "0"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.endswith("\n")
    assert done.stdout.splitlines()[-1].startswith(f"exploitable {outcome}"), done.stdout


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
    all_is_caught(catching, (24,))


def test_every_cell_is_exploitable_if_the_allocator_believes_every_pointer(trusting: str) -> None:
    nothing_is_caught(trusting, (5000,))


def test_a_process_that_stands_still_is_neutral_after_20_ticks(
    compiled: Callable[..., Path],
) -> None:
    """The second free never returns, so the process makes no progress. It is ended after 20 ticks.

    A tick is a SIGALRM, which a timer sends every second. The test sends it more often. Ticks that
    come while the process has no processor count as one. The verdict is "neutral", because the
    allocator did not notice the misuse.
    """
    library = compiled("looping_malloc.c", "-shared")
    process = subprocess.Popen(
        [native.misuse(), "double-free", "24", "0"],
        env={"LD_PRELOAD": str(library)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(18):
        process.send_signal(signal.SIGALRM)
        time.sleep(0.005)
    assert process.poll() is None
    for _ in range(200):
        process.send_signal(signal.SIGALRM)
        time.sleep(0.005)
        if process.poll() is not None:
            break
    _, errors = process.communicate(timeout=60)
    assert judge("ready\n", errors, process.returncode) == (NEUTRAL, "the process made no progress")


@pytest.mark.long
def test_the_command_measures_all_contenders_of_this_machine(cairn: Command) -> None:
    done = cairn("bench", "misuse", "--full", timeout=3600)
    assert done.code == 0 and " of 168 cells (" in done.out.splitlines()[0], done


@pytest.mark.long
def test_the_known_allocators_have_their_cells_with_all_sizes(catching: str, trusting: str) -> None:
    all_is_caught(catching, BLOCKS)
    nothing_is_caught(trusting, BLOCKS)


def test_few_of_168_cells_are_exploitable_under_cairn(cairn: Command) -> None:
    done = cairn("bench", "misuse", "-a", "cairn", "--csv", timeout=600)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 168 and len({row["scenario"] for row in rows}) == 28
    exploitable = [row for row in rows if row["verdict"] == EXPLOITABLE]
    assert len(exploitable) <= EXPLOITABLE_MOST, exploitable
    wrong_calls = ("double-free", "free-", "realloc-", "size-")
    called = [row for row in rows if row["scenario"].startswith(wrong_calls)]
    assert {row["verdict"] for row in called} == {CAUGHT}


def test_an_allocator_that_cannot_serve_the_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContenderFailed, match="no such file"):
        measured(str(tmp_path / "libnone.so"))


@pytest.mark.parametrize("words", [["--quick"], ["--plan"], ["--why"], ["suite"], ["--seed", "1"]])
def test_options_that_measure_time_are_refused(cairn: Command, words: list[str]) -> None:
    done = cairn("bench", "misuse", *words)
    assert done.code == 2 and "Traceback" not in done.err, done
