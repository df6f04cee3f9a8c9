"""Tests of the recognition of atomic instructions and pauses, as compilers write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.profile.atomic_code import _found, atomic_at, decoded
from cairn.profile.waiting_loops import waits

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


WAITING = {
    "8b0785c075fa": "mov (%rdi),%eax; test %eax,%eax; jne",
    "8b05ea2e000085c075f6": "mov 0x2eea(%rip),%eax; test %eax,%eax; jne",
    "803f0075fb": "cmpb $0,(%rdi); jne",
    "0fb60784c075f9": "movzbl (%rdi),%eax; test %al,%al; jne",
    "6690488b4708483b4710740275f2": "xchg %ax,%ax; mov, cmp with 16(%rdi); je out; jne",
    "f390833d00000000000f85f1ffffff": "pause; cmpl $0,0(%rip); jne (far)",
    "64833c2510000000017506ffc975f1": "cmpl $1,%fs:0x10; jne out; dec %ecx; jne",
    "448b44b70441f6c00175f5": "mov 4(%rdi,%rsi,4),%r8d; test $1,%r8b; jne",
}
"""Loops that wait for another thread."""
SEARCHING = {
    "488b00483900750290ebf6": "mov (%rax),%rax: the next of a list",
    "488b00488500750275f6": "the same, with test",
    "83c601833cb70075f7": "add $1,%esi; cmpl $0,(%rdi,%rsi,4): an array",
    "8b0785c0890675f8": "stores what it loads",
    "31c085c075fa": "loads nothing",
    "8b07e8fbffffff75f7": "calls a function",
    "f00fc10785c075f8": "lock xadd",
    "8b0785c07402eb05ebf7": "jumps out before it jumps back",
}


@pytest.mark.parametrize("code", WAITING, ids=WAITING.get)
def test_a_loop_that_only_waits_is_known_at_each_of_its_instructions(code: str) -> None:
    """A loop without a pause was once taken for slow work of the allocator."""
    loop = bytes.fromhex(code)
    whole = b"\xc3" * 40 + loop + b"\xc3" * 60
    found = [at - 40 for at in range(len(whole)) if waits(whole, at)]
    assert found and found[0] == 0 and found[-1] < len(loop)
    assert len(found) >= 2
    for cut in range(len(loop)):
        assert not waits(loop[:cut], 0)


@pytest.mark.parametrize("code", SEARCHING, ids=SEARCHING.get)
def test_other_loops_do_not_wait(code: str) -> None:
    whole = b"\xc3" * 40 + bytes.fromhex(code) + b"\xc3" * 60
    assert not any(waits(whole, at) for at in range(len(whole)))


def test_a_sample_in_a_loop_that_waits_counts_as_a_pause(tmp_path: Path) -> None:
    loop = bytes.fromhex("8b0785c075fa")
    file = tmp_path / "code"
    file.write_bytes(b"\xc3" * 8 + loop + b"\xc3")
    found = [atomic_at(str(file), at) for at in range(8, 15)]
    assert [one is not None and one.is_pause for one in found] == [
        True, False, True, False, True, False, False,
    ]  # fmt: skip
