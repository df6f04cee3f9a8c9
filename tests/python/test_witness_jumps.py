"""Tests that the witness tells a program's jump to malloc from a malloc of its own."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support.witnessing import FORWARDING_MALLOC, Bench, only_start

from cairn import native


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    witness = Path(os.environ.get("CAIRN_WITNESS_LIB") or native.witness()).resolve()
    with tempfile.TemporaryDirectory(prefix="cairn-jumps-") as folder:
        copy = Path(folder).resolve() / "libcairn-witness.so"
        shutil.copy(witness, copy)
        yield Bench(Path(folder).resolve(), copy)


@pytest.mark.parametrize(
    "flags", [("-fno-pie", "-no-pie"), ("-fPIE", "-pie")], ids=["fixed", "pie"]
)
def test_a_program_that_takes_the_address_of_malloc_does_not_own_it(
    bench: Bench, flags: tuple[str, ...]
) -> None:
    """A program at a fixed address can take the address of malloc.

    Its symbol "malloc" is then undefined, but has an address: that of a jump to the function. dlsym
    finds this address before libc's function.
    """
    source = """
        #include <stdlib.h>
        void *(*volatile take)(size_t) = malloc;
        void (*const give[])(void *) = {free};
        int main(int argc, char **argv) { give[argc - 1](take(10)); return 0; }
    """
    record = only_start(bench.run(bench.build("takes-address", source, *flags)))
    assert Path(record["malloc"]["path"]).name.startswith("libc.so")
    assert "split" not in record


def test_a_jump_in_a_program_that_is_position_independent_is_not_an_allocator(
    bench: Bench, tmp_path: Path
) -> None:
    """Debian's pigz contains such a jump and is position independent.

    The linker of this system makes no such program. So the test takes a program that defines
    functions which only call glibc's functions, as a jump does, and marks the symbols of these
    functions as undefined.
    """
    made = bench.build(
        "passes-on",
        FORWARDING_MALLOC + "int main(void) { return 0; }",
        "-fPIE",
        "-pie",
        "-rdynamic",
    )
    program = tmp_path / "jumps"
    content = bytearray(made.read_bytes())
    with made.open("rb") as file:
        elf = ELFFile(file)
        assert elf["e_type"] == "ET_DYN"
        symbols = elf.get_section_by_name(".dynsym")
        section_of = 6 if elf.elfclass == 64 else 14
        for place, symbol in enumerate(symbols.iter_symbols()):
            if symbol.name in {"malloc", "calloc", "realloc", "free"}:
                at = symbols["sh_offset"] + place * symbols["sh_entsize"]
                struct.pack_into("<H", content, at + section_of, 0)
    program.write_bytes(content)
    program.chmod(0o755)
    assert only_start(bench.run(made))["malloc"]["path"] == str(made)
    record = only_start(bench.run(program))
    assert Path(record["malloc"]["path"]).name.startswith("libc.so")
    assert "split" not in record
