"""Tests of kernel_entries.py: how a chain of calls in the kernel began."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.profile.kernel_entries import Way, known, way, way_at

SYMBOLS = """\
ffffffff81000080 T entry_SYSCALL_64
ffffffff81000100 T asm_exc_page_fault
ffffffff81000140 T asm_common_interrupt
ffffffff81000140 T __pi_asm_common_interrupt
ffffffff81000160 T asm_sysvec_apic_timer_interrupt
ffffffff81000180 T memcpy
ffffffff81000200 t handle_softirqs
ffffffffc0000000 t helper\t[module]
"""
CALL, FAULT, COMMON, TIMER = (0xFFFFFFFF81000000 + at for at in (0x90, 0x110, 0x150, 0x17F))
COPY, DEFERRED = 0xFFFFFFFF81000190, 0xFFFFFFFF81000210


@pytest.fixture
def symbols(tmp_path: Path) -> Path:
    path = tmp_path / "kallsyms"
    path.write_text(SYMBOLS)
    return path


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ((COPY, FAULT), Way.OTHER),
        ((COPY, CALL), Way.OTHER),
        ((DEFERRED, TIMER), Way.INTERRUPT),
        ((DEFERRED, COMMON, COPY, CALL), Way.INTERRUPT),  # an interrupt within a system call
        ((DEFERRED, COPY, CALL), Way.OTHER),  # a packet to the machine itself, sent by the program
        ((COPY,), None),
        ((), None),
        ((1, COPY), None),
    ],
)
def test_a_chain_shows_the_way_into_the_kernel(
    symbols: Path, chain: tuple[int, ...], expected: Way | None
) -> None:
    found, why = known(symbols)
    assert why == ""
    assert way(chain, lambda address: way_at(address, found)) is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "the kernel's ways to handle interrupts are not in"),
        ("ffffffff81000080 T entry_SYSCALL_64\nffffffff81000100 T memcpy\n", "are not in"),
        (
            "".join(f"{'0' * 16} {line[17:]}\n" for line in SYMBOLS.splitlines()),
            "the kernel hides the addresses of its functions (kernel.kptr_restrict)",
        ),
    ],
)
def test_without_the_addresses_there_is_a_reason(
    tmp_path: Path, text: str | None, why: str
) -> None:
    path = tmp_path / "kallsyms"
    if text is not None:
        path.write_text(text)
    found, reason = known(path)
    assert found == () and why in reason
