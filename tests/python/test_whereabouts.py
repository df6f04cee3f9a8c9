"""Notes of where processors were, made up: what each of them counts for."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from cairn import symbols, whereabouts
from cairn.model import Whereabouts

KERNEL, USER = 1, 2
EXECUTED = 1 << 13
LIBC = "/lib/libc.so.6"
ALLOCATOR = "/opt/libmine.so"
OWN = whereabouts.Allocator(frozenset({ALLOCATOR}))
CODE, MINE, C = 0x400000, 0x7F0000000000, 0x7F1000000000


def record(kind: int, misc: int, body: bytes) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def timed(body: bytes, pid: int, when: int) -> bytes:
    return body + struct.pack("<IIQ", pid, pid, when)


def mapped(path: str, start: int, pid: int = 7, when: int = 1, size: int = 0x10000, offset: int = 0) -> bytes:
    name = path.encode() + b"\0"
    name += b"\0" * (-len(name) % 8)
    head = struct.pack("<IIQQQIIQQII", pid, pid, start, size, offset, 8, 1, 5, 0, 5, 2)
    return record(10, 0, timed(head + name, pid, when))


def executed(pid: int = 7, when: int = 0) -> bytes:
    return record(3, EXECUTED, timed(struct.pack("<II", pid, pid) + b"program\0", pid, when))


def forked(parent: int, pid: int, when: int) -> bytes:
    return record(7, 0, timed(struct.pack("<IIIIQ", pid, parent, pid, parent, when), pid, when))


def note(
    address: int,
    *stack: int,
    mode: int = USER,
    called: bool = False,
    user: int | None = None,
    pid: int = 7,
    when: int = 100,
    readable: int | None = None,
) -> bytes:
    """One note, `called`: rcx holds the address behind the call, as after the instruction syscall."""
    user = address if user is None else user
    words = [*stack, *[0] * 8][:8]
    there = 64 if readable is None else readable
    body = struct.pack("<QIIQQ", address, pid, pid, when, 2)
    body += struct.pack("<QQQQ", user if called else 1, 0x7FFF0000, user, 64) + struct.pack("<8Q", *words)
    return record(9, mode, body + struct.pack("<Q", there))


def notes(*records: bytes, kernel: int = 1, error: int = 0, magic: int = whereabouts.MAGIC) -> bytes:
    laid = [executed(), mapped("/bin/program", CODE), mapped(ALLOCATOR, MINE), mapped(LIBC, C)]
    return struct.pack("<QQII", magic, 500_000, kernel, error) + b"".join([*laid, *records])


def counts(*records: bytes, kernel: int = 1) -> Whereabouts:
    found, why = whereabouts.split(notes(*records, kernel=kernel), OWN)
    assert found is not None, why
    return found


@pytest.mark.parametrize(
    ("one", "place"),
    [
        (note(CODE + 5), "program"),
        (note(MINE + 5), "own"),
        (note(C + 5, MINE + 9), "own"),  # memset for the allocator
        (note(C + 5, CODE + 9, MINE + 9), "program"),  # for the program; what lies beneath is of an earlier call
        (note(C + 5, 12, C + 30, MINE + 9), "own"),  # a lock's slow path: one library function in another
        (note(C + 5), "program"),  # nobody is seen
        (note(C + 5, MINE + 9, readable=0), "program"),
        (note(0x10), "unknown"),
        (note(MINE + 0x10000), "unknown"),
        (note(1 << 63, mode=KERNEL, user=C + 5, called=True), "kernel"),
        (note(1 << 63, MINE + 9, mode=KERNEL, user=C + 5, called=True), "calls"),  # munmap of the allocator's
        (note(1 << 63, mode=KERNEL, user=MINE + 5, called=True), "calls"),  # by an instruction of its own
        (note(1 << 63, mode=KERNEL, user=MINE + 5), "kernel"),  # a page fault there
        (note(1 << 63, CODE + 9, mode=KERNEL, user=C + 5, called=True), "kernel"),  # read(2) of the program's
    ],
)
def test_each_note_counts_for_one_place(one: bytes, place: str) -> None:
    found = counts(one)
    places = {name: getattr(found, name) for name in ("own", "calls", "kernel", "program", "unknown")}
    assert places == {name: int(name == place) for name in places}


def test_where_the_kernel_may_not_be_seen_its_parts_are_not_measured() -> None:
    found = counts(note(MINE + 5), kernel=0)
    assert (found.own, found.calls, found.kernel) == (1, None, None)


def test_notes_that_were_lost_are_unknown() -> None:
    lost = record(2, 0, timed(struct.pack("<QQ", 1, 40), 7, 50))
    assert counts(lost, note(CODE + 5)).unknown == 40


def test_records_of_several_processors_are_put_into_the_order_of_their_times() -> None:
    late = mapped("/opt/other.so", MINE, when=200)
    assert counts(late, note(MINE + 5, when=100), note(MINE + 5, when=300)) == Whereabouts(
        period_ns=500_000, own=1, program=1, unknown=0, calls=0, kernel=0
    )


def test_a_child_has_what_its_parent_had_and_changes_its_own() -> None:
    child = (forked(7, 8, 10), mapped("/opt/other.so", MINE, pid=8, when=20))
    found = counts(*child, note(MINE + 5, pid=8), note(C + 5, MINE + 5, pid=7), note(CODE + 1, pid=8))
    assert (found.own, found.program) == (1, 2)


def test_a_new_thread_changes_nothing() -> None:
    thread = record(7, 0, timed(struct.pack("<IIIIQ", 7, 7, 9, 7, 10), 9, 10))
    assert counts(thread, note(MINE + 5)).own == 1


def test_a_program_that_is_executed_begins_anew() -> None:
    found = counts(
        executed(when=50), note(MINE + 5), mapped(ALLOCATOR, MINE + 0x100000, when=60), note(MINE + 0x100005)
    )
    assert (found.own, found.unknown) == (1, 1)


def test_a_later_mapping_hides_only_what_it_covers() -> None:
    within = mapped("/opt/other.so", MINE + 0x4000, when=50, size=0x1000)
    found = counts(within, note(MINE + 5), note(MINE + 0x4005), note(MINE + 0x5005), note(MINE + 0xF000))
    assert (found.own, found.program) == (3, 1)


def test_code_that_is_in_no_file_is_the_programs() -> None:
    assert counts(mapped("//anon", 0x5000000, when=2), note(0x5000005)).program == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no head"),
        (notes(magic=1), "another version"),
        (notes(error=errno.EACCES), "Permission denied"),
        (notes(note(CODE))[:-1], "damaged"),
        (notes(struct.pack("<IHH", 9, 0, 0)), "damaged"),
        (notes(record(9, 0, b"short...")), "damaged"),
    ],
)
def test_what_makes_no_sense_is_no_answer(data: bytes, why: str) -> None:
    found, reason = whereabouts.split(data, OWN)
    assert found is None and why in reason


def test_a_file_that_is_not_there_is_no_answer(tmp_path: Path) -> None:
    found, reason = whereabouts.read(tmp_path / "none", OWN)
    assert found is None and "cannot be read" in reason


def test_mallocs_part_of_the_systems_library_holds_its_functions_and_not_the_others() -> None:
    path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so.6" in line)
    part = symbols.stretch(path, ("malloc", "free", "malloc_info"))
    assert part is not None
    system = whereabouts.Allocator(frozenset())
    within = system.owner(path, part[0] + (part[1] - part[0]) // 2)
    assert within is whereabouts.Owner.ALLOCATOR
    other = symbols.stretch(path, ("printf",))
    assert other is not None and system.owner(path, other[1] - 1) is whereabouts.Owner.LIBRARY
    assert 4096 < part[1] - part[0] < 256 << 10


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n"])
def test_of_a_file_that_is_no_library_no_part_is_known(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "libc.so.6").write_bytes(content)
    assert symbols.stretch(str(tmp_path / "libc.so.6"), ("malloc",)) is None
    assert whereabouts.Allocator(frozenset()).owner(str(tmp_path / "libc.so.6"), 5) is whereabouts.Owner.LIBRARY
