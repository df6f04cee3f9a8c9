"""Tests of the verdicts and of the report of `cairn bench misuse`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest
from support.documents import keys
from support.widths import at_all_widths

from cairn.compare.misuse import (
    BLOCKS,
    CAUGHT,
    EXPLOITABLE,
    NEUTRAL,
    MisuseCell,
    MisuseScenario,
    MisuseTable,
    NotJudged,
    judge,
    worst,
)
from cairn.report import misuse, terminal


@pytest.mark.parametrize(
    ("output", "errors", "code", "verdict", "how"),
    [
        ("ready\nneutral\n", "", 0, NEUTRAL, ""),
        ("ready\nrefused\n", "", 0, CAUGHT, "the call failed"),
        ("ready\nexploitable two live blocks overlap\n", "", 0, EXPLOITABLE,
         "two live blocks overlap"),
        ("ready\n", "cairn: a block is freed twice: 0x10\n", -6, CAUGHT,
         "cairn: a block is freed twice: 0x10"),
        ("ready\n", "", -11, CAUGHT, "SIGSEGV"),
        ("ready\n", "", -14, NEUTRAL, "the process made no progress"),
        ("ready\n", "==1==ERROR: AddressSanitizer\n", 1, CAUGHT, "==1==ERROR: AddressSanitizer"),
    ],
)  # fmt: skip
def test_a_process_is_judged_by_its_last_line_and_its_ending(
    output: str, errors: str, code: int, verdict: str, how: str
) -> None:
    assert judge(output, errors, code) == (verdict, how)


@pytest.mark.parametrize(
    ("output", "errors", "code", "why"),
    [
        ("", "", -11, "SIGSEGV"),
        ("refused\n", "", 0, "exit code 0"),
        ("ready\n", "", -9, "SIGKILL"),
        ("impossible no memory can be mapped\n", "", 1, "no memory can be mapped"),
        ("", "usage: cairn-misuse\n", 2, "usage: cairn-misuse"),
    ],
)
def test_a_process_that_did_not_reach_the_misuse_is_not_judged(
    output: str, errors: str, code: int, why: str
) -> None:
    with pytest.raises(NotJudged, match=why):
        judge(output, errors, code)


def test_the_worst_attack_decides() -> None:
    tried = [(0, CAUGHT, "SIGABRT"), (1, NEUTRAL, ""), (2, EXPLOITABLE, "a"), (3, EXPLOITABLE, "b")]
    assert worst(tried) == (2, EXPLOITABLE, "a")
    assert worst(tried[:2]) == (1, NEUTRAL, "")


def table() -> MisuseTable:
    scenarios = (
        MisuseScenario("double-free", 1, "a block is freed twice in a row"),
        MisuseScenario("read-after-free", 2, "a freed block is read"),
    )
    cells = []
    for contender, verdicts in (("system", "ccXXXXXXXXX·"), ("cairn", "ccccccXX····")):
        names = {"c": (CAUGHT, "SIGABRT"), "·": (NEUTRAL, ""), "X": (EXPLOITABLE, "two overlap")}
        for place, sign in enumerate(verdicts):
            verdict, how = names[sign]
            scenario = scenarios[place // len(BLOCKS)].name
            size = BLOCKS[place % len(BLOCKS)]
            cells.append(MisuseCell(contender, scenario, size, verdict, 0, how))
    titles = ("glibc 2.36", "cairn 0.1.0")
    return MisuseTable(("system", "cairn"), titles, scenarios, BLOCKS, tuple(cells))


def test_the_report_of_misuse_is_golden(golden: Callable[[str, str], None]) -> None:
    golden(
        "misuse",
        at_all_widths(
            lambda view: terminal.drawn(
                misuse.board(table(), full=view.full), view, answer_first=True
            )
        ),
    )


def test_the_allocator_with_the_fewest_exploitable_cells_comes_first() -> None:
    says = misuse.board(table(), full=False).says
    assert says == (
        "cairn 0.1.0: 2 of 12 cells (2 scenarios × 6 block sizes) are exploitable.",
        "system (glibc 2.36): 9 of 12.",
    )


def test_json_and_csv_have_every_cell(golden: Callable[[str, str], None]) -> None:
    found = json.loads(misuse.as_json(table(), origin="here"))
    assert [cell["verdict"] for cell in found["cells"]].count("exploitable") == 11
    golden("keys/misuse", keys(found))
    assert found["origin"] == "here" and found["blocks"] == list(BLOCKS)
    rows = list(csv.DictReader(io.StringIO(misuse.as_csv(table()))))
    assert len(rows) == 24
    assert rows[2] == {
        "contender": "system", "scenario": "double-free", "block_bytes": "1000",
        "verdict": "exploitable", "attack": "0", "how": "two overlap",
    }  # fmt: skip


def test_markdown_has_both_tables_and_the_origin() -> None:
    text = misuse.as_markdown(table(), full=True, origin="cairn 9 on Linux")
    assert "| cairn 0.1.0 | 6 | 4 | 2 |" in text
    assert "| read-after-free | XXXXX· | XX···· |" in text
    assert text.endswith("cairn 9 on Linux\n")
