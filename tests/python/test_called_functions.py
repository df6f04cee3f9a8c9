"""Tests of the functions that call instructions call, with programs of known instructions."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from cairn.binary import elf
from cairn.profile.called_functions import Called, called_before

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86-64")

CODE = """
    .globl main, own, after_stub, after_slot, after_own, after_register, after_jump
    .type main, @function
main:
    sub $8, %rsp
    call malloc@PLT
after_stub:
    call *puts@GOTPCREL(%rip)
after_slot:
    call own
after_own:
    call *%rax
after_register:
    jmp free@PLT
after_jump:
    nop
own:
    ret
    .section .note.GNU-stack,"",@progbits
"""


@pytest.fixture(
    scope="module",
    params=["", "-no-pie", "-Wl,-z,lazy", "-Wl,-z,now", "-Wl,-z,ibtplt", "-shared"],
)
def linked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("called")
    (folder / "code.s").write_text(CODE)
    flags = [flag for flag in (request.param,) if flag]
    target = folder / "program"
    subprocess.run(["gcc", str(folder / "code.s"), *flags, "-o", str(target)], check=True)
    return target


def offset_of(program: Path, symbol: str) -> int:
    """Returns the offset in the file of the code at a symbol."""
    told = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout
    (address,) = (int(line.split()[0], 16) for line in told.splitlines() if line.endswith(symbol))
    with elf.opened(str(program)) as image:
        return image.offset_of(address)


def test_a_call_names_its_function_in_each_way_of_linking(linked: Path) -> None:
    def before(symbol: str) -> Called | None:
        return called_before(str(linked), offset_of(linked, symbol))

    assert before(" after_stub") == Called("malloc")
    assert before(" after_slot") == Called("puts")
    own = before(" after_own")
    # A call within a library goes through a stub, if another library may replace its function.
    assert own in (Called("own"), Called(offset=offset_of(linked, " own")))
    for symbol in (" after_register", " after_jump", " main"):
        assert before(symbol) is None


@pytest.mark.parametrize(
    ("name", "allocates"),
    [
        ("malloc", True),
        ("free", True),
        ("posix_memalign", True),
        ("_Znwm", True),
        ("_ZdaPvmSt11align_val_t", True),
        ("", False),
        ("memset", False),
        ("malloc_zone", False),
        ("xfree", False),
        ("_Znfoo", False),
    ],
)
def test_the_functions_of_an_allocator_are_known_by_their_names(name: str, allocates: bool) -> None:
    assert Called(name).allocates == allocates


def test_files_that_cannot_be_read_name_no_function(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\xe8\0\0\0\0" * 4)
    assert called_before(str(tmp_path / "text"), 10) is None
    assert called_before(str(tmp_path / "nothing"), 10) is None
    assert called_before(str(tmp_path), 10) is None
    assert called_before("[vdso]", 10) is None


def test_a_damaged_file_names_no_function_or_a_wrong_one_but_raises_nothing(
    linked: Path, tmp_path: Path
) -> None:
    """Each of 200 files has one damaged byte in its tables of relocations, symbols or segments."""
    content, at = bytearray(linked.read_bytes()), offset_of(linked, " after_stub")
    for place in range(0, 4096, 20):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path = tmp_path / f"damaged{place}"
        path.write_bytes(damaged)
        found = called_before(str(path), at)
        assert found is None or isinstance(found, Called)
