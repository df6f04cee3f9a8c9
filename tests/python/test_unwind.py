"""Tests of the tables of frames by which stacks are unwound."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from cairn.profile import unwind

RBX, RBP, RETURN = 3, 6, 16

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the code is in the assembly language of x86-64"
)

FUNCTION = """
    .text
    .globl restoring
restoring:
    .cfi_startproc
    nop
    push %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbx, 0
    push %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbp, 0
    nop
    pop %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbp
    pop %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbx
    ret
    .cfi_endproc
    .section .note.GNU-stack, "", @progbits
"""


OUTERMOST = """
    .text
    .globl outermost
outermost:
    .cfi_startproc
    nop
    .cfi_undefined rip
    nop
    .cfi_endproc
    .section .note.GNU-stack, "", @progbits
"""


def rows_of(name: str, text: str, count: int, tmp_path: Path) -> list[unwind.FrameRow]:
    """Assembles a library with one function. Returns the rows of its first `count` addresses."""
    source, library = tmp_path / f"{name}.s", tmp_path / f"{name}.so"
    source.write_text(text)
    subprocess.run(["gcc", "-shared", "-nostdlib", source, "-o", library], check=True)
    symbols = subprocess.check_output(["nm", "-D", library], text=True)
    (begin,) = (int(line.split()[0], 16) for line in symbols.splitlines() if name in line)
    table = unwind._read(str(library))
    assert table is not None
    return [table.row(begin + offset) for offset in range(count)]


def test_a_function_without_a_return_address_is_the_last(tmp_path: Path) -> None:
    rows = rows_of("outermost", OUTERMOST, 2, tmp_path)
    assert [row.is_last for row in rows] == [False, True]


@pytest.mark.parametrize(
    ("expression", "is_known"), [("0x77, 8, 0x80, 0", True), ("0x76, 8", False)]
)
def test_only_the_expression_of_the_linker_is_known(
    expression: str, is_known: bool, tmp_path: Path
) -> None:
    """Every expression for the frame once counted as that of an entry of the linker's table."""
    size = len(expression.split(","))
    text = OUTERMOST.replace(".cfi_undefined rip", f".cfi_escape 0x0f, {size}, {expression}")
    if is_known:
        assert [row.is_plt for row in rows_of("outermost", text, 2, tmp_path)] == [False, True]
    else:
        with pytest.raises(unwind.NoTable):
            rows_of("outermost", text, 2, tmp_path)


def test_a_restored_register_is_no_longer_saved(tmp_path: Path) -> None:
    """The instructions lie at these offsets: nop 0, push 1, push 2, nop 3, pop 4, pop 5, ret 6."""
    rows = rows_of("restoring", FUNCTION, 7, tmp_path)
    saved = [dict(row.saved) for row in rows]
    assert [row.offset for row in rows] == [8, 8, 16, 24, 24, 16, 8]
    assert saved[0].keys() == saved[1].keys() == {RETURN}
    assert saved[2] == saved[5] == {RBX: -16, RETURN: -8}
    assert saved[3] == saved[4] == {RBX: -16, RBP: -24, RETURN: -8}
    assert rows[6].saved == rows[0].saved
    assert all(len(row.saved) == len(dict(row.saved)) for row in rows)
