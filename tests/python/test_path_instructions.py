"""Tests of instructions by path: the parser of callgrind's files, and the report."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.documents import keys

from cairn.errors import CairnError
from cairn.model import Contender
from cairn.profile.callgrind_files import CutOff
from cairn.profile.path_instructions import Account, PathCount, PathInstructions, parsed
from cairn.report import path_instructions as reporting
from cairn.report.view import View
from cairn.run.path_instructions import counted

FILE = """\
version: 1
creator: callgrind-3.19.0
events: Ir
summary: 999

ob=(1) /usr/bin/prog
fl=(1) prog.c
fn=(1) main
16 200
cob=(2) /x/libcairn-instructions.so
cfn=(2) malloc
calls=30 0
* 1000

ob=(2)
fn=(2)
5 90
cfn=(3) cairn_path_new_small
calls=10 0
+3 170

fn=(3)
-2 60
cob=(3) /x/libtoy.so
cfn=(4) malloc
calls=10 0
* 110

fn=(5) cairn_path_free_large
9 6
cfn=(6) free
calls=2 0
9 10

fn=(7) cairn_path_free_large'2
9 6
cfn=(6)
calls=1 0
9 5

ob=(3)
fn=(4)
4 110
fn=(6)
4 15
"""

ACCOUNT = Account("/usr/bin/prog", "/x/libtoy.so", 12, 0, 0)


def test_the_allocators_instructions_are_those_of_the_calls_from_each_path() -> None:
    found = parsed([FILE.splitlines(keepends=True)], [ACCOUNT])
    assert found.paths == {
        ("new", "small"): PathCount(10, 110),
        ("free", "large"): PathCount(3, 15),
    }
    assert found.allocator == 125


def test_the_programs_instructions_leave_out_the_counting_library() -> None:
    assert parsed([FILE.splitlines(keepends=True)], []).program == 200 + 110 + 15


def test_a_file_that_was_cut_off_is_told(tmp_path: Path) -> None:
    for text in ("calls=\n", "calls=1\n", "fn=(1)\ncalls=x y\n", "calls=99999999999999999999 1\n"):
        with pytest.raises(CutOff):
            parsed([text.splitlines()], ())
    (tmp_path / "callgrind").mkdir()
    (tmp_path / "told").mkdir()
    (tmp_path / "callgrind" / "1").write_text(FILE[:-4])
    contender = Contender("system", "system", "system")
    with pytest.raises(CairnError, match="a file of valgrind is cut off"):
        counted(contender, tmp_path)


def test_a_process_without_room_for_its_account_is_no_other_allocator(tmp_path: Path) -> None:
    """Its empty file once named "the malloc of an unknown object", and there was no report."""
    for name in ("callgrind", "told"):
        (tmp_path / name).mkdir()
    (tmp_path / "callgrind" / "1").write_text(FILE)
    (tmp_path / "told" / "prog-0").touch()
    found = counted(Contender("system", "system", "system"), tmp_path)
    assert (found.processes, found.accounts) == (1, ())


def test_files_of_many_processes_are_open_one_by_one(tmp_path: Path) -> None:
    """With more processes than file descriptors, Cairn once failed after both slow runs."""
    (tmp_path / "callgrind").mkdir()
    (tmp_path / "told").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = len(os.listdir("/proc/self/fd")) + 8
    for number in range(least):
        (tmp_path / "callgrind" / str(number)).write_text(FILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (least, limits[1]))
    try:
        found = counted(Contender("system", "system", "system"), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found.processes == least


def test_processes_add_up_and_one_without_instructions_is_none() -> None:
    lines = FILE.splitlines(keepends=True)
    found = parsed([lines, lines, ["version: 1\n", "events: Ir\n"]], [ACCOUNT, ACCOUNT])
    assert found.processes == 2
    assert found.paths["new", "small"] == PathCount(20, 220)
    assert found.of("free") == PathCount(6, 30)


FOUND = PathInstructions(
    {
        ("new", "small"): PathCount(1000, 180_500),
        ("reused", "small"): PathCount(1_200_000, 24_000_000),
        ("reused", "large"): PathCount(12, 30_000),
        ("untold", "medium"): PathCount(1, 240),
        ("realloc", "medium"): PathCount(44, 8_120),
        ("free", "small"): PathCount(1_200_500, 18_007_500),
    },
    program=412_000_000,
    processes=3,
    accounts=(Account("/usr/bin/prog", "/x/libtoy.so", 1_201_013, 40_000, 3),),
)


def test_the_report_reads_as_in_the_golden_file(golden) -> None:
    golden("path-instructions", reporting.render(FOUND, View(), allocator="jemalloc 5.3.0"))


@pytest.mark.parametrize(("wrong", "marked"), [(0, False), (10_000, False), (20_000, True)])
def test_figures_are_about_if_many_allocations_are_in_the_wrong_path(
    wrong: int, marked: bool
) -> None:
    account = replace(FOUND.accounts[0], wrong=wrong)
    text = reporting.render(replace(FOUND, accounts=(account,)), View(), allocator="x")
    assert ("≈" in text) == marked


def test_a_program_without_an_operation_has_no_table() -> None:
    text = reporting.render(PathInstructions(program=10, processes=1), View(), allocator="x")
    assert "called no function of x" in text
    assert "operations" not in text


def test_json_and_csv_have_each_path(golden: Callable[[str, str], None]) -> None:
    document = json.loads(reporting.document(FOUND, allocator="x", cairn="0"))
    rows = list(csv.DictReader(io.StringIO(reporting.rows(FOUND))))
    golden("keys/path_instructions", keys(document))
    assert len(document["paths"]) == len(rows) == len(FOUND.paths)
    assert document["paths"][0] == {
        "path": "new", "size": "small", "operations": 1000, "instructions": 180_500, "each": 180.5,
    }  # fmt: skip
    assert rows[-1] == {
        "path": "free", "size": "small", "operations": "1200500", "instructions": "18007500",
        "each": "15.0",
    }  # fmt: skip
