"""Tests of the recognition of atomic instructions and pauses, as compilers write them."""

from __future__ import annotations

import pytest

from cairn.profile.atomic_code import _found, decoded

ATOMIC = {
    "f0013500000000": "lock add %esi,0(%rip)",
    "8737": "xchg %esi,(%rdi)",
    "8715ea2e0000": "xchg %edx,0x2eea(%rip)",
    "f0094724": "lock or %eax,0x24(%rdi)",
    "f00fb10c97": "lock cmpxchg %ecx,(%rdi,%rdx,4)",
    "f048830701": "lock addq $1,(%rdi)",
    "f0480fc102": "lock xadd %rax,(%rdx)",
    "f0ff0d10000000": "lock decl 0x10(%rip)",
    "f00fbaaf0001000005": "lock btsl $5,0x100(%rdi)",
    "f06681078000": "lock addw $0x80,(%rdi)",
}
PLAIN = ("013500000000", "87f7", "0fb10c97", "90", "4883c001", "488b07", "e900000000", "")


@pytest.mark.parametrize("code", ATOMIC, ids=ATOMIC.get)
def test_an_atomic_instruction_is_known_with_its_length(code: str) -> None:
    whole = bytes.fromhex(code)
    found = decoded(whole + b"\x90" * 8)
    assert found is not None and found.length == len(whole)
    for cut in range(len(whole)):
        assert decoded(whole[:cut]) is None
    seen = _found(b"\x90" * 8 + whole, b"\x85\xd2")
    assert seen is not None and not seen[0].is_pause
    assert _found(b"", whole + b"\x90") is not None


@pytest.mark.parametrize("code", PLAIN)
def test_other_instructions_are_not_atomic(code: str) -> None:
    assert decoded(bytes.fromhex(code)) is None


def test_the_address_of_a_variable_is_relative_to_the_end_of_the_instruction() -> None:
    xchg = bytes.fromhex("8715ea2e0000")
    after, at = _found(b"\x90" + xchg, b"\x85\xd2"), _found(b"\x90", xchg)
    assert after is not None and after[1] == 0x2EEA
    assert at is not None and at[1] == 0x2EEA + len(xchg)


def test_a_pause_is_known_before_and_after_it() -> None:
    for before, after in ((b"\x75\xf3\x90", b"\x89"), (b"\x75", b"\xf3\x90\x89")):
        found = _found(before, after)
        assert found is not None and found[0].is_pause
