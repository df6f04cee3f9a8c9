"""Tests of the reader of the probe's files.

It reads valid files exactly, and reports each invalid file by one sentence.
"""

from __future__ import annotations

import math
import os
import random
import re
import struct
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from support.probes import BEHIND_HEAD, OLD, Made, busy, documented

from cairn import units
from cairn.errors import CairnError, UsageError
from cairn.model import Unreached
from cairn.profile import block_samples, estimates, live, reader
from cairn.profile.missing import Executed, missing_processes
from cairn.profile.tally import (
    ALLOCATING,
    CALLS,
    EVENTS,
    FUNCTIONS,
    GROUPS,
    LOCKS,
    PATHS,
    PHASES,
    RELEASING,
    SLOTS,
    Missing,
    MomentCalls,
    Process,
    Profile,
    Tree,
    cut_short,
    lasting,
)
from cairn.report import profile, profile_export
from cairn.report.view import View

MOST = 2**64 - 1


def read(tmp_path: Path, content: bytes) -> reader.ProcessProfile:
    path = tmp_path / "1.1.probe"
    path.write_bytes(content)
    return reader.read(path)


def test_the_structs_are_as_long_as_in_c() -> None:
    """The sizes are added up by hand from src/record/profile.h.

    The C unit test asserts the same numbers.
    """
    # The number of 64-bit fields of each group: gap to threads_lost, chunks, samples, failed,
    # late_calls, late_bytes, minor_faults to contended_locks.
    numbers = 19 + 24 + 1 + 7 + 11 + 17 + 11 + 7
    head = (
        8 + 6 * 4 + 8 + 6 * 4 + (numbers - 3) * 8 + 2 * 4 * 4 + 5 * 8 + 14 * 48 + 32 * 16 + 2 * 1024
    )
    head += 8 + 2 * (2 * 3 * 2 * 8)  # held_most, freed_copies and freed_squares
    thread = 4 + 4 + 3 * 8 + 2 * (11 * 2 * 3 * 8) + 6 * 2 * 8 + 3 * 2 * 3 * 8 + 8 * 8 + 3 * 8 * 8
    times = (12 + 1 + 4 + 4) * 8 + 320 * 4
    samples = 42 * times + 192 * 8 + 3 * 48 * 8 + 3 * 8 + 3 * 8 + 3 * 8 + 384 * 104
    samples += 8 + 32 * (3 * 8 + 232) + 512 * 15 * 8  # the locks
    for order in "<>":
        layout = reader.layouts(order)
        assert (layout.head.itemsize, layout.thread.itemsize, layout.samples.itemsize) == (
            head,
            thread,
            samples,
        )
    assert (head, thread, samples) == (4320, 1584, 173152)


def test_names_are_as_many_as_in_c() -> None:
    assert (len(ALLOCATING), len(RELEASING), len(CALLS), len(LOCKS), len(PATHS)) == (
        11,
        6,
        14,
        3,
        42,
    )
    assert FUNCTIONS.index("free") == len(ALLOCATING)
    assert (GROUPS, PHASES) == (("small", "medium", "large"), ("serial", "parallel"))
    assert (PATHS[1].phase, PATHS[2].group, PATHS[6].kind) == ("parallel", "medium", "reused")
    assert (PATHS[12].kind, PATHS[29].kind, PATHS[30].kind) == ("calloc", "aligned", "free, local")


def test_the_documented_example_is_such_a_file() -> None:
    content = documented().content()
    text = (Path(__file__).resolve().parents[2] / "docs" / "profile-format.md").read_text()
    lines = re.findall(r"^([0-9a-f]{5})  ((?:[0-9a-f]{2} )+) *([a-z_]+)", text, re.MULTILINE)
    assert len(lines) > 40
    fields = reader.layouts("<").head.fields
    assert fields is not None
    for offset, digits, name in lines:
        place, expected = int(offset, 16), bytes.fromhex(digits)
        assert content[place : place + len(expected)] == expected, name
        if place < fields["calls"][1]:
            assert 0 <= place - fields[name][1] < fields[name][0].itemsize, name


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_file_of_either_byte_order_is_read(tmp_path: Path, order: str) -> None:
    made = busy(order=order, program="/usr/bin/prö g".encode())
    found = read(tmp_path, made.content())
    process, tally = found.process, found.tally
    assert (process.pid, process.program, process.state, process.seen) == (
        100,
        "/usr/bin/prö g",
        "ended",
        "dispatch",
    )
    assert (process.gap, process.cpu_ns, process.peak_live_bytes) == (64, 900_000_000, 12 << 20)
    assert (tally.span_ns, tally.span_ticks) == (1_000_000_000, 2_000_000_000)
    assert tally.calls[ALLOCATING.index("malloc")].sum() == 64_010
    assert tally.asked.sum() == 6_400_000 + (10 << 20) + 320_000
    assert tally.released.sum() == 70_413
    assert tally.timed.count.sum() == 2220
    assert tally.timed.buckets.sum() == 2220
    assert tally.kernel.count[CALLS.index("mmap")] == 10
    assert tally.other_calls == {318: 2}
    assert [moment.live_bytes for moment in found.moments] == [1 << 20, 12 << 20]
    assert [moment.calls for moment in found.moments] == [
        MomentCalls(memory=10, waiting=4, other=1),
        MomentCalls(memory=20, waiting=8, other=2),
    ]


def test_threads_add_up_over_all_chunks_without_overflow(tmp_path: Path) -> None:
    made = Made()
    made.more = np.zeros(16, made.layout.thread)
    made.threads["bytes"][:, 0, 0, 0] = MOST
    made.more["bytes"][:, 0, 0, 0] = MOST
    made.threads["calls"][3, 2, 1, 2] = 5
    made.more["calls"][15, 2, 1, 2] = 7
    tally = read(tmp_path, made.content()).tally
    assert tally.asked[0, 0, 0] == 24 * MOST
    assert tally.calls[2, 1, 2] == 12
    assert (tally + tally).asked[0, 0, 0] == 48 * MOST


def test_maxima_of_threads_and_processes_are_not_added_up(tmp_path: Path) -> None:
    made, other = Made(), Made()
    for thread, ticks in enumerate((5, MOST, 7)):
        made.locked("mutex", 10, [ticks], thread=thread)
    other.locked("mutex", 1, [9])
    other.start["contended_locks"] = 2
    tally = read(tmp_path, made.content()).tally
    locks = tally.locks
    assert (locks.taken[0], locks.contended[0], locks.wait_ticks[0]) == (30, 3, MOST + 12)
    assert list(locks.most_wait_ticks) == [MOST, 0, 0]
    both = tally + read(tmp_path, other.content()).tally
    assert (both.locks.taken[0], both.locks.most_wait_ticks[0], both.contended_locks) == (
        31,
        MOST,
        2,
    )


def test_a_process_that_timed_nothing_has_no_samples(tmp_path: Path) -> None:
    made = Made(state=1)
    made.samples = np.zeros(0, made.layout.samples)
    found = read(tmp_path, made.content())
    assert found.process.state == "running"
    assert found.moments == ()
    assert found.tally.timed.count.sum() == 0


@pytest.mark.parametrize(
    ("dispatch", "seen"), [(0, "unseen"), (1, "dispatch"), (2, "interpose"), (3, "unseen")]
)
def test_held_memory_is_known_only_if_system_calls_were_seen(
    tmp_path: Path, dispatch: int, seen: str
) -> None:
    made = busy(dispatch=dispatch)
    made.moments(
        (4_000_000, 1 << 20, 2 << 20, 9 << 20), (8_000_000, 3 << 20, 4 << 20, 9 << 20, 5, 6, 7)
    )
    found = read(tmp_path, made.content())
    assert found.process.seen == seen
    assert [(one.live_bytes, one.resident_bytes) for one in found.moments] == [
        (1 << 20, 9 << 20),
        (3 << 20, 9 << 20),
    ]
    known = seen != "unseen"
    assert [one.held_bytes for one in found.moments] == (
        [2 << 20, 4 << 20] if known else [None, None]
    )
    closely = [
        (one.unasked_bytes, one.unwritten_bytes, one.huge_bytes, one.own_bytes)
        for one in found.moments
    ]
    assert closely == [(None,) * 4, (5, 6, 7, 4 << 20) if known else (None,) * 4]


def test_usable_bytes_are_unknown_if_the_probe_did_not_ask_the_allocator(tmp_path: Path) -> None:
    made = busy()
    made.samples["moments"][0, 1]["live_usable_bytes"] = MOST
    assert [one.live_usable_bytes for one in read(tmp_path, made.content()).moments] == [
        9 << 17,
        None,
    ]


DAMAGES = {
    "version 7": {"version": 7},
    "version 10": {"version": 10},
    "other sizes": {"thread_bytes": 8},
    "head is damaged": {"state": 9},
    "clocks run backwards": {"ticks_last": 1},
    "cut off": {"file_bytes": 1 << 40},
    "data outside the file": {"samples": 1 << 63},
    "byte order": {"order": 0x04040404},
}


@pytest.mark.parametrize("says", DAMAGES)
def test_damage_is_one_sentence(tmp_path: Path, says: str) -> None:
    with pytest.raises(CairnError, match=says) as error:
        read(tmp_path, busy(head=DAMAGES[says]).content())
    assert "\n" not in str(error.value)


def test_a_file_of_the_version_before_is_read(tmp_path: Path) -> None:
    new, old = (read(tmp_path, busy(head=of).content()) for of in ({}, OLD))
    assert old.tally.timed.count.tolist() == new.tally.timed.count.tolist()
    assert old.tally.timed.squares.tolist() == old.tally.timed.copies.tolist()
    assert (new.process.held_bytes, new.process.held_counted) == (16 << 20, True)
    assert (old.process.held_bytes, old.process.held_counted) == (16 << 20, False)
    for one, is_known in ((new.tally, True), (old.tally, False)):
        numbers = [one.sealed_bytes, *one.fresh_others, *(one + one).fresh_others]
        assert all(math.isfinite(number) is is_known for number in numbers)


@pytest.mark.parametrize(("dispatch", "counted"), [(1, True), (2, False)])
def test_held_memory_is_counted_only_if_every_system_call_was_seen(
    tmp_path: Path, dispatch: int, counted: bool
) -> None:
    """Without dispatch, neither `mremap` nor direct system calls are seen."""
    made = busy(dispatch=dispatch)
    made.start["held_most"] = 1 << 20
    process = read(tmp_path, made.content()).process
    assert process.held_bytes == 1 << 20
    assert (process.held_counted, process.held_is_least) == (counted, not counted)


def test_frees_for_unequal_numbers_of_blocks_are_not_known_in_an_old_file(tmp_path: Path) -> None:
    """The 110 remote frees stand for 8 times as many blocks as the others."""
    made = busy(head=OLD | {"threads_most": 2})
    made.samples["freed"][0] = (64 * (1_170 + 8 * 110), 0, 10)
    made.write(tmp_path)
    found = reader.gather(tmp_path)
    assert estimates.remote_share(found) is None
    assert block_samples.freed_elsewhere(found, 0) is None
    (free,) = (one for one in estimates.lines(found) if one.name == "free, local")
    assert not free.is_known


def test_a_counter_that_does_not_exist_is_damage(tmp_path: Path) -> None:
    for slot in range(SLOTS):
        made = busy()
        made.start["events"][0, slot] = len(EVENTS)
        assert read(tmp_path, made.content()).process.events[slot] == EVENTS[-1]
        made.start["events"][0, slot] = len(EVENTS) + 1
        with pytest.raises(CairnError, match="it names counters that do not exist"):
            read(tmp_path, made.content())


def test_a_living_thread_counts_until_the_probes_last_look_at_the_clock(tmp_path: Path) -> None:
    """A thread that began at the probe's last look at the clock, or after that, does not count."""
    made = busy()
    last = 7 + 2_000_000_000
    made.threads["lived_ticks"][:2] = (500, 30)
    made.threads["since_ticks"][:6] = (0, last - 1000, last - 1, last, last + 5, 7)
    assert read(tmp_path, made.content()).tally.threads_ticks == 530 + 1000 + 1 + (last - 7)


def test_a_chunk_that_ends_behind_the_file_is_damage(tmp_path: Path) -> None:
    content = bytearray(busy().content())
    at = reader.layouts("<").head.fields["chunks"][1]  # type: ignore[index]
    for k in range(reader.CHUNKS):
        broken = bytearray(content)
        struct.pack_into("<Q", broken, at + 8 * k, len(content) - 8)
        with pytest.raises(CairnError, match="outside the file"):
            read(tmp_path, bytes(broken))


@pytest.mark.parametrize("name", ["chunks", "samples"])
def test_a_place_within_the_head_is_damage(tmp_path: Path, name: str) -> None:
    """Every part of the file must lie behind the head. A part may begin where the head ends."""
    fields = reader.layouts("<").head.fields
    assert fields is not None
    head, at = reader.layouts("<").head.itemsize, fields[name][1]
    for place, fine in ((1, False), (8, False), (head - 8, False), (head - 1, False), (head, True)):
        broken = bytearray(busy().content())
        struct.pack_into("<Q", broken, at, place)
        if fine:
            read(tmp_path, bytes(broken))
        else:
            with pytest.raises(CairnError, match="refers to data outside the file"):
                read(tmp_path, bytes(broken))


@pytest.mark.parametrize("name", ["head", "thread", "samples"])
@pytest.mark.parametrize("more", [-8, 8, 1 << 20])
def test_a_structure_of_another_length_is_damage(tmp_path: Path, name: str, more: int) -> None:
    length = getattr(reader.layouts("<"), name).itemsize
    with pytest.raises(CairnError, match="its structures have other sizes"):
        read(tmp_path, busy(head={f"{name}_bytes": length + more}).content())


def test_bytes_behind_the_stated_length_of_a_file_are_ignored(tmp_path: Path) -> None:
    content = busy().content()
    assert read(tmp_path, content + bytes(8)).tally.span_ns == 1_000_000_000
    for shorter in (1, len(content) - BEHIND_HEAD):
        with pytest.raises(CairnError, match="cut off"):
            read(tmp_path, content[:-shorter])


def test_each_kind_of_file_that_is_no_profile_has_its_own_sentence(tmp_path: Path) -> None:
    with pytest.raises(CairnError, match="first bytes are not"):
        read(tmp_path, b"\x7fELF" * 1000)
    with pytest.raises(CairnError, match="cut off"):
        read(tmp_path, busy().content()[:2000])
    for nothing in (b"", bytes(5000)):
        with pytest.raises(CairnError, match="before the probe counted anything"):
            read(tmp_path, nothing)
    (tmp_path / "link.probe").symlink_to(tmp_path / "1.1.probe")
    with pytest.raises(CairnError, match="is a symbolic link"):
        reader.read(tmp_path / "link.probe")
    os.mkfifo(tmp_path / "pipe.probe")
    with pytest.raises(CairnError, match="not a regular file"):
        reader.read(tmp_path / "pipe.probe")
    with pytest.raises(CairnError, match="cannot read"):
        reader.read(tmp_path / "none.probe")


def test_the_largest_file_takes_little_memory_and_time(tmp_path: Path) -> None:
    """A sparse file of the largest readable size has as many chunks as fit into it."""
    thread = reader.layouts("<").thread.itemsize
    made = busy()
    path = made.write(tmp_path)
    chunks = [BEHIND_HEAD if BEHIND_HEAD + (8 << k) * thread <= 256 << 20 else 0 for k in range(24)]
    content = bytearray(path.read_bytes())
    at = reader.layouts("<").head.fields["chunks"][1]  # type: ignore[index]
    struct.pack_into("<24Q", content, at, *chunks)
    struct.pack_into("<Q", content, 32, 256 << 20)
    path.write_bytes(content)
    os.truncate(path, 256 << 20)
    tracemalloc.start()
    began = time.process_time()
    reader.read(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - began < 10
    assert most < 100 << 20
    os.truncate(path, (256 << 20) + 1)
    with pytest.raises(CairnError, match="larger than 256 MiB"):
        reader.read(path)


def test_processes_of_a_tree_add_up(tmp_path: Path) -> None:
    for k in range(3):
        busy(pid=100 + k, begin_ns=10**9 + k).write(tmp_path)
    (tmp_path / "110.5.probe").touch()
    (tmp_path / "notes.txt").write_text("not ours")
    found = reader.gather(tmp_path)
    assert (len(found.processes), found.empty, found.wall_ns) == (3, 1, 10**9 + 2)
    assert found.operations == 3 * (64_010 + 6_400 + 70_410)
    assert found.tally.timed.most_ticks.max() == 20_040
    assert found.tally.kernel.count[CALLS.index("mmap")] == 30


@pytest.mark.parametrize("highest", [0, 1, 2])
def test_the_moments_of_a_tree_are_those_of_the_process_with_the_highest_peak(
    tmp_path: Path, highest: int
) -> None:
    for k in range(3):
        made = busy(pid=100 + k, begin_ns=10**9 + k)
        live = (8 << 20) + (k << 10) + (k == highest) * (4 << 20)
        made.moments((4_000_000, 1 << 20, 2 << 20, 9 << 20), (8_000_000, live, 16 << 20, 28 << 20))
        made.write(tmp_path)
    found = reader.gather(tmp_path)
    assert [one.live_bytes for one in found.moments] == [1 << 20, (12 << 20) + (highest << 10)]
    assert [process.peak_live_bytes > 10 << 20 for process in found.processes] == [
        k == highest for k in range(3)
    ]


def test_a_folder_without_profiles_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--keep"):
        reader.gather(tmp_path)
    with pytest.raises(UsageError, match="there is no "):
        reader.gather(tmp_path / "none")


def image(pid: int, begin_ns: int, state: str) -> Process:
    about = dict.fromkeys(Process.__struct_fields__, 0) | {
        "pid": pid,
        "begin_ns": begin_ns,
        "state": state,
    }
    return Process(**about)  # type: ignore[arg-type]


def test_a_process_that_executed_another_program_is_not_reported_as_cut_short() -> None:
    before, after = image(7, 1, "running"), image(7, 5, "ended")
    vanished, then = image(8, 2, "running"), image(8, 3, "running")
    first, again = image(9, 1, "ended"), image(9, 4, "ended")
    images = [before, after, vanished, then, first, again]
    assert lasting(images) == [first, then, again, after]
    assert cut_short(images) == [then]
    assert cut_short(images, [Missing(8, "busybox", "static")]) == []


def test_a_program_without_a_trace_is_missing_unless_the_probe_recorded_it() -> None:
    unrecorded = Missing(812, "prog", "EFBIG")
    unreached = [
        (5, Unreached("static", "/bin/busybox")),
        (7, Unreached("silent", "/usr/bin/prog")),
        (8, Unreached("silent", "/usr/bin/prog")),
    ]
    recorded = replace(image(7, 1, "ended"), program="/bin/prog")
    assert missing_processes([unrecorded], [], unreached, [recorded]) == (
        unrecorded,
        Missing(5, "busybox", "static"),
        Missing(8, "prog", "silent"),
    )


def test_a_program_of_a_process_without_rights_is_missing_unless_it_began_later() -> None:
    executed = [Executed(100, Missing(pid, "sort", "EACCES")) for pid in (7, 8, 9)]
    processes = [image(7, 99, "running"), image(8, 101, "ended")]
    assert missing_processes([], executed, [], [replace(p, program="x") for p in processes]) == (
        executed[0].missing,
        executed[2].missing,
    )


def test_the_probes_own_estimates_count_for_the_peak(tmp_path: Path) -> None:
    """The interval is that of the estimates at all moments and at all looks of the probe."""
    found = read(tmp_path, busy().content())
    calls = int(found.tally.calls.sum())
    asked = int(found.tally.asked.sum() + found.tally.late_asked.sum())
    ends = [
        reader.estimated_peak(found.tally, found.moments, 64, 5 << 20, 1 << 20, looks)
        for looks in (1, 1000)
    ]
    looked = [(one.live_bytes, one.live_error_bytes) for one in found.moments]
    assert ends == [
        live.estimated([*looked, (5 << 20, 1 << 20)], 2 + looks, 64 * asked / calls, asked)
        for looks in (1, 1000)
    ]


def test_moments_and_peaks_without_a_resident_set_are_not_known(tmp_path: Path) -> None:
    made = busy()
    made.start["peak_resident_bytes"] = 0
    made.moments((4_000_000, 1 << 20, 2 << 20, 0))
    made.write(tmp_path)
    found = reader.gather(tmp_path)
    assert found.largest.peak_resident_bytes is None
    assert found.moments[0].resident_bytes is None
    assert "0 B" not in profile.render(found, View(full=True)).partition("over time")[2]


def mutated(content: bytes, rng: random.Random) -> bytes:
    broken = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        size = len(broken)
        place = rng.randrange(min(size, rng.choice((64, 400, 2000, 14_000, size)))) if size else 0
        match rng.randrange(5):
            case 0 if size:
                broken[place] = rng.randrange(256)
            case 1 if size >= place + 8:
                number = rng.choice(
                    (0, 1, MOST, 1 << 63, size, size - 8, rng.getrandbits(64), rng.getrandbits(20))
                )
                struct.pack_into("<Q", broken, place & ~7, number)
            case 2:
                del broken[place : place + rng.randint(1, 40)]
            case 3:
                broken[place:place] = rng.randbytes(rng.randint(1, 40))
            case 4 if rng.random() < 0.2:
                broken = broken[:place]
    return bytes(broken)


def survive(folder: Path, rng: random.Random, *, times: int, shown_every: int) -> tuple[int, int]:
    """Returns how many mutations of a good file were refused, and how many gave a report."""
    content = busy().content()
    (folder / "2.2.probe").write_bytes(busy(pid=2, begin_ns=2).content())
    path = folder / "1.1.probe"
    refused = shown = 0
    with path.open("wb", buffering=0) as file:
        for count in range(times):
            file.seek(0)
            file.truncate(file.write(mutated(content, rng)))
            try:
                reader.read_begun(path)
                if count % shown_every == 0:
                    show(reader.gather(folder))
                    shown += 1
            except CairnError as error:
                refused += 1
                assert "\n" not in str(error)
    return refused, shown


def show(found: Profile) -> None:
    profile.render(found, View(full=True, color=True))
    document = profile_export.document(found, allocator=None, cairn="0")
    assert "NaN" not in document
    assert "Infinity" not in document
    profile_export.rows(found)


def test_mutated_files_give_a_sentence_or_a_profile_but_nothing_else(tmp_path: Path) -> None:
    refused, shown = survive(tmp_path, random.Random(20261122), times=200, shown_every=5)
    assert refused > 15
    assert shown > 7


def survive_part(folder: Path, part: int) -> tuple[int, int]:
    (folder / str(part)).mkdir()
    return survive(folder / str(part), random.Random(part), times=100_000, shown_every=100)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_million_mutated_files_give_a_sentence_or_a_profile_but_nothing_else(
    tmp_path: Path,
) -> None:
    with ProcessPoolExecutor() as pool:
        parts = list(pool.map(survive_part, repeat(tmp_path), range(10)))
    assert sum(refused for refused, _ in parts) > 100_000
    assert sum(shown for _, shown in parts) > 1000


TREE = Tree(
    command=("prog", "a b"),
    allocator="glibc 2.36",
    wall_ns=2_000_000_000,
    user_ns=1_500_000_000,
    system_ns=20_000_000,
    voluntary_switches=12,
    involuntary_switches=3_456,
    minor_faults=7,
    major_faults=0,
    counters={"cycles": 4e9, "instructions": 6e9, "cache-misses": None, "page-faults": 7.0},
    user_mode_only=True,
)


def test_the_facts_of_the_launcher_are_kept_next_to_the_probes_files(tmp_path: Path) -> None:
    busy().write(tmp_path)
    assert reader.gather(tmp_path).tree is None
    reader.write_tree(tmp_path, TREE)
    found = reader.gather(tmp_path)
    assert found.tree == TREE
    text = " ".join(profile.render(found, View(full=True)).split())
    assert text.startswith("profile prog 'a b' · glibc 2.36 ·")
    assert (
        "user 1.50 s, system 20.0 ms, 12 voluntary and 3,456 involuntary context switches" in text
    )
    assert (
        "counters in user mode: 4.00 G cycles, 6.00 G instructions, 1.50 instructions per cycle; "
        "not available here:" in text
    )
    assert "cache-misses" in text


def test_the_wall_time_is_that_of_the_program_and_not_of_the_probe_in_it(tmp_path: Path) -> None:
    """The kernel counts the loading of the program as its CPU time, before the probe starts."""
    busy().write(tmp_path)
    alone = reader.gather(tmp_path)
    assert alone.wall_ns < TREE.wall_ns == 2 * 10**9
    assert f"recorded for {units.time(alone.wall_ns)}" in profile.render(alone, View())
    reader.write_tree(tmp_path, TREE)
    found = reader.gather(tmp_path)
    assert found.wall_ns == TREE.wall_ns
    assert "wall 2.00 s" in profile.render(found, View())


def test_the_cpu_time_before_the_exec_does_not_exceed_the_wall_time(tmp_path: Path) -> None:
    busy().write(tmp_path)
    reader.write_tree(tmp_path, TREE)
    found = reader.gather(tmp_path)
    (process,) = found.processes

    def used(cpu_ns: int) -> int | None:
        changed = replace(process, cpu_ns=cpu_ns, threads=1)
        return estimates.cpu_ns(replace(found, processes=(changed,)))

    assert used(2 * 10**9 - 1) == 2 * 10**9 - 1
    assert used(2 * 10**9 + 50_000) == 2 * 10**9
    assert used(3 * 10**9) == 3 * 10**9, "a thread is not known"


def test_a_description_that_is_a_pipe_without_a_writer_is_refused_at_once(tmp_path: Path) -> None:
    busy().write(tmp_path)
    (tmp_path / "run.json").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(CairnError, match="it is not a regular file"):
        reader.gather(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"command": 3}', b"\xff", b"[" * 5_000_000, b'{"x":' + b"[" * 5_000_000],
)
def test_a_damaged_description_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    busy().write(tmp_path)
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(CairnError, match="does not describe a run"):
        reader.gather(tmp_path)


def test_a_description_may_have_a_limited_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit was once 4 MiB. The description of a profile with --runs 10000 is larger."""
    assert reader._TREE_MAX == 256 << 20
    monkeypatch.setattr(reader, "_TREE_MAX", 4 << 20)
    busy().write(tmp_path)
    reader.write_tree(tmp_path, TREE)
    file = tmp_path / "run.json"
    file.write_bytes(file.read_bytes().ljust(4 << 20))
    assert reader.gather(tmp_path).tree == TREE
    with file.open("ab") as more:
        more.write(b" ")
    with pytest.raises(CairnError, match="larger than 4 MiB"):
        reader.gather(tmp_path)


def test_system_calls_have_the_names_of_the_machine_that_counted_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile that was read on an ARM machine once named them by that machine's numbers."""
    arm = os.uname_result(("Linux", "arm", "6.1", "1", "aarch64"))
    monkeypatch.setattr(os, "uname", lambda: arm)
    busy().write(tmp_path)
    assert reader.gather(tmp_path).machine == "x86_64"


def test_a_folder_may_hold_a_limited_number_of_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reader._FILES_MAX == 200_000
    monkeypatch.setattr(reader, "_FILES_MAX", 3)
    for k in range(3):
        busy(pid=100 + k).write(tmp_path)
    assert len(reader.gather(tmp_path).processes) == 3
    busy(pid=103).write(tmp_path)
    with pytest.raises(CairnError, match="holds 4 profiles; more than 3 cannot be added up"):
        reader.gather(tmp_path)


def test_a_file_may_consist_of_its_head_alone(tmp_path: Path) -> None:
    length = reader.layouts("<").head.itemsize
    head = busy(head={"chunks": 0, "samples": 0, "file_bytes": length}).content()[:length]
    assert read(tmp_path, head).tally.calls.sum() == 0
    with pytest.raises(CairnError, match="cut off"):
        read(tmp_path, head[:-1])


def test_every_thread_of_a_chunk_that_is_read_in_pieces_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at_once in (1, 3, 5, 8):
        monkeypatch.setattr(reader, "_THREADS_AT_ONCE", at_once)
        made = Made()
        for thread in range(8):
            made.called("malloc", "small", 10**thread, 8, thread=thread)
        assert read(tmp_path, made.content()).tally.calls.sum() == 11_111_111
