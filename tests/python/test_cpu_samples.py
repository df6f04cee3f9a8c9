"""Tests of cpu_samples.py with invented clock samples: each counts for one part of the CPU time."""

from __future__ import annotations

import errno
import io
import struct
from pathlib import Path

import pytest

from cairn.model import CpuSamples
from cairn.profile import cpu_samples, symbols

KERNEL, USER = 1, 2
EXECUTED = 1 << 13
LIBC = "/lib/libc.so.6"
ALLOCATOR = __file__
"""The path of the allocator in these tests. The path may be that of any readable file."""
OWN = cpu_samples.AllocatorCode(frozenset({ALLOCATOR}))
CODE, MINE, C = 0x400000, 0x7F0000000000, 0x7F1000000000
CALLED = 0x120


@pytest.fixture(scope="module")
def libc(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A libc whose only system call instruction ends at CALLED."""
    path = tmp_path_factory.mktemp("lib") / "libc.so.6"
    path.write_bytes(b"\x90" * (CALLED - 2) + b"\x0f\x05" + b"\x90" * 64)
    return str(path)


def record(kind: int, misc: int, body: bytes) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def timed(body: bytes, pid: int, when: int) -> bytes:
    return body + struct.pack("<IIQ", pid, pid, when)


def mapped(
    path: str, start: int, pid: int = 7, when: int = 1, size: int = 0x10000, offset: int = 0
) -> bytes:
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
    user: int | None = None,
    pid: int = 7,
    when: int = 100,
    readable: int | None = None,
) -> bytes:
    """Returns the record of one clock sample at `address`, with the words `stack` on the stack.

    If `user` is given, the processor is in the kernel, which the program entered from the address
    `user`.
    """
    words = [*stack, *[0] * 32][:32]
    there = 256 if readable is None else readable
    here = address if user is None else user
    body = struct.pack("<QIIQQ", address, pid, pid, when, 2)
    body += struct.pack("<QQQ", 0x7FFF0000, here, 256) + struct.pack("<32Q", *words)
    return record(9, USER if user is None else KERNEL, body + struct.pack("<Q", there))


def notes(libc: str, *records: bytes, error: int = 0, magic: int = cpu_samples.MAGIC) -> bytes:
    laid = [executed(), mapped("/bin/program", CODE), mapped(ALLOCATOR, MINE), mapped(libc, C)]
    return struct.pack("<QQII", magic, 500_000, 7, error) + b"".join([*laid, *records])


def split(data: bytes) -> tuple[CpuSamples | None, str]:
    return cpu_samples.split(io.BytesIO(data), OWN)


def counts(libc: str, *records: bytes) -> CpuSamples:
    found, why = split(notes(libc, *records))
    assert found is not None, why
    return found


IN_KERNEL = 1 << 63


@pytest.mark.parametrize(
    ("one", "place"),
    [
        (note(CODE + 5), "program"),
        (note(MINE + 5), "own"),
        (note(C + 5, MINE + 9), "own"),  # memset for the allocator
        # memset for the program. The last word on the stack is left from an earlier call.
        (
            note(C + 5, CODE + 9, MINE + 9),
            "program",
        ),
        # The slow path of a lock: the allocator called a function of libc, which called another.
        (
            note(C + 5, 12, C + 30, MINE + 9),
            "own",
        ),
        (note(C + 5, *[12] * 8, MINE + 9), "program"),  # too far up the stack to be the caller
        (note(C + 5), "program"),  # no caller is on the stack
        (note(C + 5, MINE + 9, readable=0), "program"),
        (note(0x10), "unknown"),
        (note(MINE + 0x10000), "unknown"),
        (note(IN_KERNEL, user=C + CALLED), "others"),
        (note(IN_KERNEL, MINE + 9, user=C + CALLED), "calls"),  # munmap by the allocator
        (note(IN_KERNEL, *[12] * 30, MINE + 9, user=C + CALLED), "calls"),  # the allocator's usleep
        (note(IN_KERNEL, CODE + 9, user=C + CALLED), "others"),  # read(2) by the program
        (note(IN_KERNEL, MINE + 9, user=C + CALLED - 1), "faults"),  # a page fault in memset
        (note(IN_KERNEL, user=MINE + 5), "faults"),
        (note(IN_KERNEL, user=0x10), "faults"),
    ],
)
def test_each_clock_sample_counts_for_one_part(libc: str, one: bytes, place: str) -> None:
    found = counts(libc, one)
    places = {
        name: getattr(found, name)
        for name in ("own", "calls", "faults", "others", "program", "unknown")
    }
    assert places == {name: int(name == place) for name in places}


@pytest.mark.parametrize(("kind", "why"), [(2, "lost clock samples"), (5, "throttled")])
def test_a_recording_that_lost_clock_samples_is_refused(libc: str, kind: int, why: str) -> None:
    found, reason = split(
        notes(libc, record(kind, 0, timed(struct.pack("<QQ", 1, 40), 7, 50)), note(CODE + 5))
    )
    assert found is None and why in reason


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("[vdso]", "others"),
        ("/gone/libfoo.so (deleted)", "unknown"),
        ("//anon", "faults"),
        ("[vsyscall]", "faults"),
    ],
)
def test_kernel_time_is_assigned_by_the_name_of_code_that_cannot_be_read(
    libc: str, path: str, place: str
) -> None:
    """The vDSO, which is code of the kernel in each process, makes a system call for some clocks.

    A JIT compiler writes to its pages of code, which causes page faults.
    """
    found = counts(libc, mapped(path, 0x5000000, when=2), note(IN_KERNEL, CODE + 5, user=0x5000005))
    assert getattr(found, place) == 1


def test_kernel_time_of_32_bit_code_is_unknown_and_that_of_an_exiting_program_is_its_own(
    libc: str,
) -> None:
    narrow, none = (
        note(IN_KERNEL, user=CODE + 5)[:32] + struct.pack("<Q", width) for width in (1, 0)
    )
    found = counts(
        libc, *(one[:6] + struct.pack("<H", len(one)) + one[8:] for one in (narrow, none))
    )
    assert (found.unknown, found.others) == (1, 1)


def test_clock_samples_of_other_processes_do_not_count(libc: str) -> None:
    others = (
        executed(9, 5),
        mapped("/bin/other", CODE, pid=9, when=6),
        note(CODE + 5, pid=9),
        forked(9, 10, 7),
    )
    found = counts(libc, *others, note(CODE + 5, pid=10), note(CODE + 5))
    assert found.program == 1 and found.unknown == 0


def test_clock_samples_of_the_first_process_count_only_after_it_executed_the_program() -> None:
    data = (
        struct.pack("<QQII", cpu_samples.MAGIC, 500_000, 7, 0)
        + note(CODE, when=1)
        + executed(when=5)
    )
    found, _ = split(data + mapped("/bin/program", CODE, when=6) + note(CODE, when=7))
    assert found is not None and (found.program, found.unknown) == (1, 0)


def test_clock_samples_of_another_process_with_a_reused_id_do_not_count(libc: str) -> None:
    found = counts(
        libc,
        forked(7, 8, 10),
        note(CODE, pid=8, when=11),
        forked(1, 8, 20),
        note(CODE, pid=8, when=21),
    )
    assert found.program == 1


def test_records_of_several_processors_are_sorted_by_time(libc: str) -> None:
    """Between two marks, one processor's records may follow later records of another processor."""
    mark = record(cpu_samples.MARK, 0, b"")
    one = (note(MINE + 5, when=100), note(MINE + 5, when=290), mark)
    two = (
        note(MINE + 5, when=400),
        mapped("/opt/other.so", MINE, when=300),
        note(CODE, when=301),
        mark,
    )
    found = counts(libc, *one, *two, note(MINE + 5, when=500), mark)
    assert (found.own, found.program) == (2, 3)


def test_a_child_inherits_the_mappings_of_its_parent_and_changes_only_its_own(libc: str) -> None:
    child = (forked(7, 8, 10), mapped("/opt/other.so", MINE, pid=8, when=20))
    found = counts(
        libc, *child, note(MINE + 5, pid=8), note(C + 5, MINE + 5, pid=7), note(CODE + 1, pid=8)
    )
    assert (found.own, found.program) == (1, 2)


def test_a_new_thread_changes_nothing(libc: str) -> None:
    thread = record(7, 0, timed(struct.pack("<IIIIQ", 7, 7, 9, 7, 10), 9, 10))
    assert counts(libc, thread, note(MINE + 5)).own == 1


def test_a_program_that_is_executed_begins_anew(libc: str) -> None:
    found = counts(
        libc,
        executed(when=50),
        note(MINE + 5),
        mapped(ALLOCATOR, MINE + 0x100000, when=60),
        note(MINE + 0x100005),
    )
    assert (found.own, found.unknown) == (1, 1)


def test_a_later_mapping_hides_only_what_it_covers(libc: str) -> None:
    within = mapped("/opt/other.so", MINE + 0x4000, when=50, size=0x1000)
    found = counts(
        libc, within, note(MINE + 5), note(MINE + 0x4005), note(MINE + 0x5005), note(MINE + 0xF000)
    )
    assert (found.own, found.program) == (3, 1)


def test_code_outside_any_file_belongs_to_the_program(libc: str) -> None:
    assert counts(libc, mapped("//anon", 0x5000000, when=2), note(0x5000005)).program == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no disk space"),
        (notes(LIBC, magic=1), "another version"),
        (notes(LIBC, error=errno.EACCES), "Permission denied"),
        (notes(LIBC, note(CODE))[:-1], "damaged"),
        (notes(LIBC, struct.pack("<IHH", 9, 0, 0)), "damaged"),
        (notes(LIBC, record(9, 0, b"short...")), "damaged"),
    ],
)
def test_a_damaged_recording_gives_a_reason_and_no_counts(data: bytes, why: str) -> None:
    found, reason = split(data)
    assert found is None and why in reason


def test_a_libc_in_which_malloc_cannot_be_found_gives_a_reason_and_no_counts(libc: str) -> None:
    data = notes(libc, note(C + 5))
    found, reason = cpu_samples.split(io.BytesIO(data), cpu_samples.AllocatorCode(frozenset()))
    assert found is None and "malloc cannot be found in" in reason


def test_a_missing_recording_gives_a_reason_and_no_counts(tmp_path: Path) -> None:
    found, reason = cpu_samples.read(tmp_path / "none", OWN)
    assert found is None and "cannot be read" in reason


def test_the_allocator_code_of_libc_contains_malloc_and_not_other_functions() -> None:
    path = next(
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/libc.so.6" in line
    )
    part = symbols.stretch(path, ("malloc", "free", "malloc_info"))
    assert part is not None
    system = cpu_samples.AllocatorCode(frozenset())
    within = system.owner(path, part[0] + (part[1] - part[0]) // 2)
    assert within is cpu_samples.Owner.ALLOCATOR
    other = symbols.stretch(path, ("printf",))
    assert other is not None and system.owner(path, other[1] - 1) is cpu_samples.Owner.LIBRARY
    assert 4096 < part[1] - part[0] < 256 << 10


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n"])
def test_a_file_that_is_no_library_has_no_known_allocator_code(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "libc.so.6").write_bytes(content)
    assert symbols.stretch(str(tmp_path / "libc.so.6"), ("malloc",)) is None
