"""Tests that the probe counts failures, exceptions and the calls of ending threads to the unit."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.places import PROGRAMS
from support.probing import Probed

from cairn import native
from cairn.findings import find
from cairn.profile.reader import read
from cairn.profile.tally import ALLOCATING, CALLS, FUNCTIONS, ProcessProfile

TIMES = 40
FORMS = 4
"""The number of throwing forms of operator new, and also of its nothrow forms."""


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


@pytest.fixture(scope="module", params=["-O0", "-O2"])
def exceptions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("exceptions") / "exceptions"
    source = PROGRAMS / "probe_exceptions.cpp"
    subprocess.run(
        ["g++", "-std=c++17", request.param, "-fno-builtin", str(source), "-o", str(program)],
        check=True,
    )
    return program


def _calls(profile: ProcessProfile, name: str) -> int:
    place = FUNCTIONS.index(name)
    tally = profile.tally
    cells = (
        tally.calls[place] if place < len(ALLOCATING) else tally.released[place - len(ALLOCATING)]
    )
    return int(cells.sum())


def test_the_probes_own_memory_is_not_in_the_resident_peak(probed: Probed) -> None:
    """The probe takes about 400 KiB. The peak with and without it differs by less than 128 KiB."""
    command = ("/bin/cat", "/proc/self/status")
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (alone,) = (
        int(line.split()[1]) << 10 for line in told.splitlines() if line.startswith("VmHWM")
    )
    probed(*command)
    assert probed.only.process.peak_resident_bytes == pytest.approx(alone, abs=220 << 10)


def test_resident_memory_is_not_less_than_what_the_program_wrote(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    """The probe reads memory that it never writes. The kernel maps the zero page there.

    It was once subtracted as the probe's own memory, though it is not resident: up to 800 KiB.
    """
    written = 100 << 20
    probed(compiled("filled.c", "-fno-builtin"), written)
    resident = max(moment.resident_bytes or 0 for moment in probed.only.moments)
    assert written <= resident <= written + (600 << 10)


@pytest.mark.parametrize("own", [False, True], ids=["system", "cairn"])
@pytest.mark.parametrize("paths", ["sampled", "exact"])
def test_a_failed_operator_new_is_counted_once_and_its_exception_in_both_directions(
    probed: Probed, exceptions: Path, own: bool, paths: str
) -> None:
    """The difference of the runs with 0 and with TIMES rounds is known.

    libc and the C++ runtime make the same other allocations in both runs, so these cancel out. Each
    round calls each throwing form twice, and each nothrow form once. Each throw has one block for
    its exception, which is allocated by malloc and freed by free. In some C++ runtimes, a nothrow
    form throws inside and catches the exception itself, so the number of throws has a range.
    """
    allocator = native.allocator() if own else None
    counted = []
    for times in (0, TIMES):
        told = probed(exceptions, times, allocator=allocator, CAIRN_PROBE_PATHS=paths)
        assert told == f"caught {2 * FORMS * times} refused {FORMS * times}\n"
        failed = probed.only.tally.failed
        found = {name: _calls(probed.only, name) for name in FUNCTIONS}
        found |= {f"failed {name}": int(failed[i]) for i, name in enumerate(ALLOCATING)}
        counted.append(found)
    more = {name: counted[1][name] - counted[0][name] for name in counted[0]}
    for operator in ("operator new", "operator new[]"):
        assert more[f"failed {operator}"] == more[operator] == 3 * FORMS / 2 * TIMES
    assert more["malloc"] == more["free"]
    thrown = more["malloc"] / TIMES
    assert 2 * FORMS + 1 <= thrown <= 3 * FORMS + 1
    named = {name for name, count in more.items() if count}
    assert named == {
        "malloc", "free", "operator new", "operator new[]",
        "failed operator new", "failed operator new[]",
    }  # fmt: skip


@pytest.mark.parametrize(("threads", "blocks"), [(1, 400_000), (2_000, 10)])
def test_as_many_allocations_are_timed_as_the_gap_says(
    probed: Probed, compiled: Callable[..., Path], threads: int, blocks: int
) -> None:
    """Each timed allocation stands for GAP of them, so the sum must be their number.

    The mean gap was once 4 to 7 % more, and the first gap of a thread as long as a whole one of the
    others. The tolerance is five standard errors of the number of timed allocations.
    """
    gap = 16
    probed(compiled("probe_gaps.c", "-pthread"), threads, blocks, CAIRN_PROBE_GAP=str(gap))
    tally = probed.only.tally
    counted = int(tally.calls[:, :, :2].sum())
    timed = counted / gap
    assert int(tally.sizes.sum()) / gap == pytest.approx(timed, abs=5 * timed**0.5)


@pytest.mark.parametrize("what", ["grows", "unseen"])
def test_the_memory_held_is_never_more_than_the_memory_mapped(
    probed: Probed, compiled: Callable[..., Path], what: str
) -> None:
    """Memory that a mapping replaces was once counted twice: here up to 468 MiB of at most 130.

    Memory that was mapped unseen and then given back once made the sum negative, and so 2^64.
    """
    own = native.allocator() if what == "grows" else None
    probed(compiled("probe_held.c", "-pthread"), what, allocator=own)
    assert 0 < max(moment.held_bytes or 0 for moment in probed.only.moments) <= 160 << 20


def test_addresses_without_access_are_not_held(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    """The allocator reserves 64 GiB, and changes the protection of its only MiB again and again.

    The 64 GiB once counted as held. So no changes of protection could be twice as much, and the
    allocator was said to get its memory in many small pieces.
    """
    program = compiled("probe_sizes.c", "-pthread")
    library = compiled("reserving_malloc.c", "-shared")
    probed(program, 1, 100, 20_000, allocator=library)
    assert 0 < max(moment.held_bytes or 0 for moment in probed.only.moments) <= 1 << 20
    assert [one.name for one in find(probed.profile)] == ["changes-protection"]


def test_what_the_probe_asks_the_allocator_is_not_counted(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    """malloc_usable_size() takes a lock and makes a system call in this allocator.

    With live bytes counted, the probe calls it for each block. Its calls once counted as the
    program's.
    """
    allocator = compiled("calling_malloc.c", "-shared", "-pthread")
    counted = []
    for live in ("estimated", "exact"):
        program = compiled("probe_gaps.c", "-pthread")
        probed(program, 1, 1000, allocator=allocator, CAIRN_PROBE_LIVE=live)
        tally = probed.only.tally
        counted.append((tally.locks.taken.tolist(), int(tally.kernel.count[CALLS.index("other")])))
    assert counted[0] == counted[1]


def test_the_clock_of_the_probe_makes_no_call_of_the_allocator(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    """Without the vdso, libc reads every clock by a system call.

    The probe reads it at each moment, which once counted as 280 calls of the allocator a second.
    """
    allocator = compiled("forward_malloc.c", "-shared")
    process = probed.start(
        compiled("without_vdso.c"), compiled("probe_gaps.c", "-pthread"), 0, 1_000_000,
        allocator=allocator,
    )  # fmt: skip
    assert process.wait(60) == 0
    of_program = [one for one in map(read, probed.files) if "probe_gaps" in one.process.program]
    (profile,) = of_program
    assert len(profile.moments) > 2
    clock_gettime = 228
    assert clock_gettime not in profile.tally.other_calls


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
def test_an_operation_without_room_in_the_file_is_counted_once(
    probed: Probed, tmp_path: Path
) -> None:
    """An operator new[] calls operator new, which calls malloc. Each was once counted.

    Aligned blocks were once subtracted from the live bytes and never added.
    """
    program = tmp_path / "lost"
    source = PROGRAMS / "probe_lost_thread.cpp"
    subprocess.run(["g++", "-O1", "-fno-builtin", source, "-o", program, "-pthread"], check=True)
    late = []
    for rounds in (0, 1000):
        assert probed(program, rounds) == "done\n"
        tally = probed.only.tally
        late.append({name: int(tally.late_calls[i]) for i, name in enumerate(FUNCTIONS)})
    more = {name: late[1][name] - late[0][name] for name in FUNCTIONS}
    assert {name: count for name, count in more.items() if count} == {
        "operator new[]": 1000, "operator delete[]": 1000, "memalign": 1000, "free": 1000,
    }  # fmt: skip
    last = probed.only.moments[-1]
    assert last.live_usable_bytes is not None and last.live_usable_bytes > 1 << 20


def test_free_of_null_by_an_ending_thread_is_counted_as_such(
    probed: Probed, tmp_path: Path
) -> None:
    """Each of 20 threads calls free(NULL) 0 times in the first run, and 5 times in the second.

    libc makes the same calls at the end of a thread in both runs, so these cancel out.
    """
    program = tmp_path / "late"
    source = PROGRAMS / "probe_late.c"
    subprocess.run(["gcc", "-O1", str(source), "-o", str(program), "-pthread"], check=True)
    late = []
    for calls in (0, 5):
        assert probed(program, 20, calls) == "done\n"
        late.append(
            {name: int(probed.only.tally.late_calls[i]) for i, name in enumerate(FUNCTIONS)}
        )
    assert late[1] == late[0] | {"free(NULL)": late[0]["free(NULL)"] + 100}
    assert late[0]["free"] == 0
