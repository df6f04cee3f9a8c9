"""Tests of function_names.py: the names of functions of stripped libraries, and C++ names."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.binary.build_ids import FilesByBuildId
from cairn.profile.function_names import Names, readable


def test_a_separate_debug_file_gives_the_names(
    compiled: Callable[..., Path], tmp_path: Path
) -> None:
    allocator = compiled("known_functions.c", "-O2", "-shared")
    whole, stripped = tmp_path / "libwhole.so", tmp_path / "libstripped.so"
    whole.write_bytes(allocator.read_bytes())
    note = subprocess.run(["readelf", "-n", whole], check=True, capture_output=True, text=True)
    build_id = note.stdout.partition("Build ID: ")[2].split()[0]
    folder = tmp_path / "debug" / build_id[:2]
    folder.mkdir(parents=True)
    subprocess.run(
        ["objcopy", "--only-keep-debug", whole, folder / f"{build_id[2:]}.debug"], check=True
    )
    subprocess.run(["strip", "-o", stripped, whole], check=True)
    table = subprocess.run(["nm", whole], check=True, capture_output=True, text=True).stdout
    at = {
        words[-1]: int(words[0], 16) for line in table.splitlines() if (words := line.split())[2:]
    }
    names = Names(FilesByBuildId((str(tmp_path / "debug"),)))
    for name in ("burns_5", "burns_45"):
        assert names.function(str(stripped), at[name] + 9) == name
        assert Names().function(str(stripped), at[name] + 9) != name


def test_a_file_that_is_no_library_gives_offsets(tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    assert Names().function(str(text), 0x30) == "libtext.so+0x30"
    assert Names().function(str(tmp_path / "gone.so"), 0x30) == "gone.so+0x30"
    assert Names().function("[vdso]", 0xB46) == "[vdso]"


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("malloc", "malloc"),
        (
            "_ZN8tcmalloc15CentralFreeList11RemoveRangeEiPPvS2_",
            "tcmalloc::CentralFreeList::RemoveRange",
        ),
        ("_ZN2HL8LockPoolILi8EE4lockEv", "HL::LockPool<…>"),
        ("_ZNK3rml8internal5Block6ownersEv", "rml::internal::Block::owners"),
        ("_ZN12_GLOBAL__N_14initEv", "(anonymous)::init"),
        ("_Z4grabv", "_Z4grabv"),
        ("_ZN", "_ZN"),
        ("_ZN9999x", "x"),
        ("a" * 500, "a" * 119 + "…"),
    ],
)
def test_cpp_symbols_are_readable(symbol: str, name: str) -> None:
    assert readable(symbol) == name
