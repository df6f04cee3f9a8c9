"""Tests of cpu_samples.py with invented clock samples: each counts for one part of the CPU time."""

from __future__ import annotations

import errno
import functools
import io
import struct
from pathlib import Path
from typing import Any

import pytest

from cairn import native
from cairn.binary import elf
from cairn.clock_samples import CpuSamples
from cairn.profile import code_owners, cpu_samples, kernel_entries, symbols
from cairn.profile.tally import ClockRun

KERNEL, USER = 1, 2
EXECUTED = 1 << 13
LIBC = "/lib/libc.so.6"
ALLOCATOR = __file__
"""The path of the allocator in these tests. The path may be that of any readable file."""
OWN = code_owners.AllocatorCode(frozenset({ALLOCATOR}))
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
    period: int = 77,
    chain: tuple[int, ...] = (),
    thread: int = 0,
) -> bytes:
    """Returns the record of one clock sample at `address`, with the words `stack` on the stack.

    If `user` is given, the processor is in the kernel, which the program entered from the address
    `user`. `period` is the period that the kernel gives. `chain` is the chain of return addresses
    in the kernel. By default, the sample was taken in the first thread of the process.
    """
    words = [*stack, *[0] * 32][:32]
    there = 256 if readable is None else readable
    here = address if user is None else user
    body = struct.pack(
        f"<QIIQQQ{len(chain)}QQ",
        *(address, pid, thread or pid, when, period, len(chain), *chain, 2),
    )
    body += struct.pack("<QQQQ", 0, 0x7FFF0000, here, 256) + struct.pack("<32Q", *words)
    return record(9, USER if user is None else KERNEL, body + struct.pack("<Q", there))


def notes(
    libc: str,
    *records: bytes,
    error: int = 0,
    magic: int = cpu_samples.MAGIC,
    scope: int = 0,
) -> bytes:
    laid = [executed(), mapped("/bin/program", CODE), mapped(ALLOCATOR, MINE), mapped(libc, C)]
    return struct.pack("<QQIIII", magic, 500_000, 7, error, scope, 0) + b"".join([*laid, *records])


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
        # The kernel leaves a system call; the sample had to wait until it turned interrupts on.
        (note(C + CALLED, MINE + 9), "calls"),
        (note(C + CALLED, *[12] * 30, MINE + 9), "calls"),
        (note(C + CALLED, CODE + 9), "others"),
        (note(C + CALLED + 1, MINE + 9), "own"),
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


ENTRY, FAULT, TIMER = ((1 << 63) + at for at in (0x1000, 0x2000, 0x3000))
WAYS = tuple(
    (start, start + 0x100, way)
    for start, way in (
        (ENTRY, kernel_entries.Way.OTHER),
        (FAULT, kernel_entries.Way.OTHER),
        (TIMER, kernel_entries.Way.INTERRUPT),
    )
)
AT_FAULT = note(IN_KERNEL, user=MINE + 5, chain=(IN_KERNEL, FAULT + 9))
INTERRUPTED = (
    note(IN_KERNEL, user=MINE + 5, chain=(IN_KERNEL, TIMER + 9)),
    note(IN_KERNEL, user=MINE + 7, chain=(IN_KERNEL, TIMER + 9)),
    note(IN_KERNEL, CODE + 9, user=C + CALLED, chain=(IN_KERNEL, TIMER + 9, ENTRY + 9)),
)


def use_ways(
    monkeypatch: pytest.MonkeyPatch, ways: tuple[kernel_entries.Range, ...], why: str = ""
) -> None:
    """Replaces the functions of the running kernel."""
    monkeypatch.setattr(kernel_entries, "known", lambda: (ways, why))
    at = functools.partial(kernel_entries.way_at, ranges=ways)
    monkeypatch.setattr(kernel_entries, "_way_here", at)


def test_interrupts_are_a_part_of_their_own_wherever_they_come(
    libc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ways(monkeypatch, WAYS)
    in_call = note(IN_KERNEL, CODE + 9, user=C + CALLED, chain=(IN_KERNEL, ENTRY + 9))
    found = counts(libc, *INTERRUPTED, AT_FAULT, AT_FAULT, in_call, note(CODE + 5))
    assert (found.interrupts, found.interrupts_unseen) == (3, "")
    assert (found.faults, found.others, found.program, found.own) == (2, 1, 1, 0)


@pytest.mark.parametrize(
    ("ways", "why", "records", "reason"),
    [
        ((), "the kernel hides them", (), "the kernel hides them"),
        (WAYS, "", (note(IN_KERNEL, user=MINE + 5),), "the kernel gave no chains of calls"),
    ],
)
def test_interrupts_that_cannot_be_told_apart_stay_where_they_came(
    libc: str,
    monkeypatch: pytest.MonkeyPatch,
    ways: tuple[kernel_entries.Range, ...],
    why: str,
    records: tuple[bytes, ...],
    reason: str,
) -> None:
    use_ways(monkeypatch, ways, why)
    found = counts(libc, *INTERRUPTED, AT_FAULT, *records)
    assert (found.interrupts, found.interrupts_unseen) == (None, reason)
    assert (found.faults, found.others) == (3 + len(records), 1)


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


def test_time_in_code_of_the_vdso_is_no_system_call(libc: str) -> None:
    found = counts(libc, mapped("[vdso]", 0x5000000, when=2), note(0x5000005, CODE + 9))
    assert found.program == 1


def test_kernel_time_of_32_bit_code_is_unknown_and_that_of_an_exiting_program_is_its_own(
    libc: str,
) -> None:
    narrow, none = (
        note(IN_KERNEL, user=CODE + 5)[:48] + struct.pack("<Q", width) for width in (1, 0)
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
        struct.pack("<QQIIII", cpu_samples.MAGIC, 500_000, 7, 0, 0, 0)
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
        (b"", "could not be written: No space left on device"),
        (notes(LIBC, error=errno.ENOSPC), "could not be written: No space left on device"),
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


def test_a_full_folder_is_named_and_is_no_missing_right(tmp_path: Path) -> None:
    private = tmp_path / "cairn-abc"
    private.mkdir()
    (private / "cpu_samples").write_bytes(notes(LIBC, error=errno.ENOSPC))
    found, reason = cpu_samples.read(private / "cpu_samples", OWN)
    assert found is None
    assert reason == (
        f"the clock samples could not be written in {tmp_path}: No space left on device"
    )


def test_a_libc_in_which_malloc_cannot_be_found_gives_a_reason_and_no_counts(libc: str) -> None:
    data = notes(libc, note(C + 5))
    found, reason = cpu_samples.split(io.BytesIO(data), code_owners.AllocatorCode(frozenset()))
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
    system = code_owners.AllocatorCode(frozenset())
    within = system.owner(path, part[0] + (part[1] - part[0]) // 2)
    assert within is code_owners.Owner.ALLOCATOR
    other = symbols.stretch(path, ("printf",))
    assert other is not None and system.owner(path, other[1] - 1) is code_owners.Owner.LIBRARY
    assert 4096 < part[1] - part[0] < 256 << 10


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n"])
def test_a_file_that_is_no_library_has_no_known_allocator_code(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "libc.so.6").write_bytes(content)
    assert symbols.stretch(str(tmp_path / "libc.so.6"), ("malloc",)) is None


# --- the CPU time of a run with the probe, by place: the sum of the samples' periods ---

PROBE_AT = 0x7F2000000000
SPENT = ("own", "calls", "faults", "program", "probe", "unknown")


def clocked(tmp_path: Path, data: bytes, **about: Any) -> ClockRun:
    """Returns the times of a recording in which the probe is mapped, too."""
    (tmp_path / "notes").write_bytes(data)
    found, why = cpu_samples.clocked(tmp_path / "notes", OWN, **({"probed": True} | about))
    assert found is not None, why
    return found


def probe_mapped() -> bytes:
    return mapped(str(native.probe()), PROBE_AT, size=0x1000000)


def call_for_allocator() -> int:
    """Returns an address in the probe's function for the system calls of the allocator."""
    image = elf.Image(elf.open_regular(str(native.probe())))
    return PROBE_AT + next(
        section.offset + 30 for section in image.sections() if section.name == "cairn_direct"
    )


@pytest.mark.parametrize(
    ("one", "place", "dispatched"),
    [
        (note(MINE + 5), "own", True),
        (note(PROBE_AT + 5), "probe", True),
        (note(IN_KERNEL, user=PROBE_AT + 5), "probe", True),  # a page fault in the probe
        # If calls are dispatched, the kernel sends the probe a signal in place of this system call.
        (note(IN_KERNEL, MINE + 9, user=C + CALLED), "probe", True),
        (note(IN_KERNEL, MINE + 9, user=C + CALLED), "calls", False),
        (note(C + CALLED, MINE + 9), "probe", True),
        (note(C + CALLED, MINE + 9), "calls", False),
        (note(IN_KERNEL, user=MINE + 5), "faults", True),
        (note(IN_KERNEL, CODE + 9, user=C + CALLED - 1), "program", True),
        (note(IN_KERNEL, CODE + 9, user=C + CALLED), "program", True),  # the program's own call
        # The probe called a function of libc for the program or for the allocator. The next frame
        # shows for which of the two.
        (note(C + 5, PROBE_AT + 9, CODE + 5), "program", True),
        (note(C + 5, PROBE_AT + 9, MINE + 5), "own", True),
        (note(0x10), "unknown", True),
    ],
)
def test_the_probes_own_work_is_a_place_of_its_own(
    libc: str, tmp_path: Path, one: bytes, place: str, dispatched: bool
) -> None:
    data = notes(libc, probe_mapped(), one)
    found = clocked(tmp_path, data, dispatched=(7,) if dispatched else ())
    places = {name: getattr(found, f"{name}_ns") for name in SPENT}
    assert places == {name: 500_000 if name == place else 0 for name in SPENT}
    assert found.samples == (0 if place == "probe" else 1)


def test_interrupts_while_the_allocator_runs_are_a_part_of_its_share(
    libc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three interrupts come in the allocator: one in its code, and one in its call."""
    use_ways(monkeypatch, WAYS)
    in_call = note(IN_KERNEL, MINE + 9, user=C + CALLED, chain=(IN_KERNEL, TIMER + 9, ENTRY + 9))
    in_code = note(IN_KERNEL, user=MINE + 5, chain=(IN_KERNEL, TIMER + 9))
    data = notes(libc, in_code, in_call, INTERRUPTED[2], AT_FAULT, note(MINE + 5))
    found = clocked(tmp_path, data)
    assert (found.interrupts_ns, found.interrupts_unseen) == (1_000_000, "")
    assert (found.own_ns, found.calls_ns, found.faults_ns) == (500_000, 0, 500_000)
    assert (found.inside_ns, found.program_ns) == (2_000_000, 500_000)
    assert found.page_faults_ns == 500_000
    use_ways(monkeypatch, (), "the kernel hides them")
    found = clocked(tmp_path, data)
    assert (found.interrupts_ns, found.interrupts_unseen) == (None, "the kernel hides them")
    assert (found.own_ns, found.calls_ns, found.faults_ns) == (500_000, 500_000, 1_000_000)
    assert found.inside_ns == 2_000_000
    assert found.page_faults_ns is None, "interrupts would count as page faults"


def test_page_faults_of_the_program_count_as_such_and_as_its_time(
    libc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ways(monkeypatch, WAYS)
    chain = (IN_KERNEL, FAULT + 9)
    in_libc = note(IN_KERNEL, CODE + 9, user=C + CALLED - 1, chain=chain)
    faults = note(IN_KERNEL, user=MINE + 5, chain=chain), in_libc
    found = clocked(tmp_path, notes(libc, *faults, note(CODE + 5)))
    assert (found.faults_ns, found.program_ns) == (500_000, 1_000_000)
    assert found.page_faults_ns == 1_000_000


def test_the_call_that_the_probe_makes_for_the_allocator_is_the_allocators(
    libc: str, tmp_path: Path
) -> None:
    one = note(IN_KERNEL, user=call_for_allocator())
    found = clocked(tmp_path, notes(libc, probe_mapped(), one), dispatched=(7,))
    assert (found.calls_ns, found.probe_ns) == (500_000, 0)


def test_the_loader_works_for_the_probe_that_called_it(libc: str, tmp_path: Path) -> None:
    loader = mapped("/lib64/ld-linux-x86-64.so.2", 0x7F3000000000)
    stack = (PROBE_AT + 9, CODE + 5)
    data = notes(libc, probe_mapped(), loader, note(0x7F3000000005, *stack))
    assert clocked(tmp_path, data).probe_ns == 500_000


def test_a_sample_counts_for_the_period_of_its_time(libc: str, tmp_path: Path) -> None:
    """The period changes at the times 200 and 300. Each sample counts for the period of its time.

    In the file, the record of the change at 200 comes only after the sample of the time 260.
    """
    mark = record(cpu_samples.MARK, 0, b"")

    def changed(period: int, when: int) -> bytes:
        return record(cpu_samples.PERIOD, 0, struct.pack("<QQ", period, when))

    data = notes(
        libc,
        note(MINE + 5, when=100),
        note(CODE + 5, when=260),
        changed(20, 200),
        mark,
        changed(3, 300),
        note(MINE + 5, when=310),
        mark,
    )
    found = clocked(tmp_path, data)
    assert (found.own_ns, found.program_ns, found.samples) == (500_000 + 3, 20, 3)
    assert (found.inside_squares, found.squares) == (500_000**2 + 9, 500_000**2 + 400 + 9)


@pytest.mark.parametrize("scope", [1, 2])
def test_a_sample_of_a_threads_clock_has_its_own_period(
    libc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: int
) -> None:
    use_ways(monkeypatch, WAYS)
    found = clocked(tmp_path, notes(libc, note(MINE + 5), note(CODE, period=11), scope=scope))
    assert (found.own_ns, found.program_ns) == (77, 11)
    assert found.scope == ("threads" if scope == 1 else "threads in user mode")
    assert found.page_faults_ns == (0 if scope == 1 else None)


@pytest.mark.parametrize("scope", [1, 2])
def test_a_change_of_the_threads_period_counts_for_the_first_thread_alone(
    libc: str, tmp_path: Path, scope: int
) -> None:
    """Every sample says 77, because the kernel always gives the first period of a clock.

    So the reader must apply the changed period itself, but only to the first thread.
    """
    data = notes(
        libc,
        note(MINE + 5, when=100),
        record(cpu_samples.PERIOD, 0, struct.pack("<QQ", 20, 200)),
        note(CODE, when=300),
        note(MINE + 5, when=400, thread=8),
        scope=scope,
    )
    found = clocked(tmp_path, data)
    assert (found.own_ns, found.program_ns) == (77 + 77, 20)


def test_lost_samples_are_time_that_is_not_known(libc: str, tmp_path: Path) -> None:
    lost = record(2, 0, timed(struct.pack("<QQ", 1, 40), 7, 50))
    throttled = record(5, 0, timed(struct.pack("<QQQ", 1, 2, 3), 7, 60))
    found = clocked(tmp_path, notes(libc, lost, throttled, note(MINE + 5)))
    assert (found.own_ns, found.unknown_ns) == (500_000, 40 * 500_000 + 10_000_000)


def test_only_the_samples_of_a_part_of_the_programs_life_count(libc: str, tmp_path: Path) -> None:
    """The launcher may still write to the file, so that its last record is not complete."""
    data = notes(libc, *(note(MINE + 5, when=when) for when in (99, 100, 199, 200)))
    found = clocked(tmp_path, data + note(MINE)[:60], between=(100, 200))
    assert found.own_ns == 2 * 500_000


def test_a_sample_stands_for_those_that_the_launcher_left_out(libc: str, tmp_path: Path) -> None:
    """Runs on many processors once lost all their samples, because a file had room for a GiB."""
    one_of_8 = bytearray(note(CODE + 5, when=200))
    one_of_8[5] |= 3  # these bits are those of _THINNING_SHIFT
    found = clocked(tmp_path, notes(libc, note(MINE + 5), bytes(one_of_8)))
    assert (found.samples, found.own_ns, found.program_ns) == (2, 500_000, 8 * 500_000)
    assert found.squares == 500_000**2 + (8 * 500_000) ** 2


def test_a_file_that_would_be_too_large_is_named_as_such(tmp_path: Path) -> None:
    """Cairn's own limit was once told as that of ulimit -f."""
    head = struct.pack("<QQIIII", cpu_samples.MAGIC, 500_000, 7, 1 << 16, 0, 0)
    assert split(head) == (None, cpu_samples.TOO_MANY)


def going_on() -> bool:
    return False


def test_a_look_at_a_growing_file_reads_only_what_is_new(
    libc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look of --live once read all samples again, so the screen became slower and slower."""
    mark = record(cpu_samples.MARK, 0, b"")
    samples = [
        data
        for when in range(100, 140, 2)
        for data in (note(MINE + 5, when=when), mark, note(CODE + 5, when=when + 1), mark)
    ]
    whole = notes(libc, *samples, mark)
    path = tmp_path / "samples"
    growing = cpu_samples.GrowingSamples(path, OWN)
    assert growing.look((), going_on)[0] is None, "there is no file yet"
    added: list[int] = []
    add = cpu_samples.SampleCounts.add
    monkeypatch.setattr(
        cpu_samples.SampleCounts, "add", lambda *given: (added.append(given[1]), add(*given))
    )
    for size in (0, 20, *range(32, len(whole), 301), len(whole), len(whole)):
        path.write_bytes(whole[:size])
        run, why = growing.look((), going_on)
        assert (run is None) == (size < 32) == bool(why)
    path.write_bytes(whole)
    assert run == cpu_samples.clocked(path, OWN, probed=True)[0]
    assert run is not None and run.own_ns == run.program_ns == 20 * 500_000
    assert len(added) == 2 * (4 + 40), "once by the looks, and once by clocked()"


def test_a_look_ends_early_if_the_screen_has_ended(libc: str, tmp_path: Path) -> None:
    path = tmp_path / "samples"
    path.write_bytes(notes(libc, note(MINE + 5), *[record(cpu_samples.MARK, 0, b"")] * 2))
    growing = cpu_samples.GrowingSamples(path, OWN)
    run, _ = growing.look((), lambda: True)
    assert run is not None and run.samples == 0
    run, _ = growing.look((), going_on)
    assert run is not None and run.samples == 1


def test_a_look_at_damaged_samples_says_so_also_later(libc: str, tmp_path: Path) -> None:
    path = tmp_path / "samples"
    growing = cpu_samples.GrowingSamples(path, OWN)
    path.write_bytes(notes(libc, b"\0" * 16))
    for _ in range(2):
        assert growing.look((), going_on) == (None, "the clock samples are damaged")
