"""Tests of 'cairn inspect' on processes whose allocator, settings, memory and growth are known."""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from support.inspected import started
from support.places import PROGRAMS
from support.preloadable_path import carried
from support.tries import one_right_try_of

from cairn import native
from cairn.binary import elf
from cairn.cli import cli
from cairn.errors import CairnError, ProgramFailed, UsageError
from cairn.inspect import allocator, glibc_heap, growth, limits, mappings, memory, process
from cairn.inspect import look as looking
from cairn.inspect.advice import advice
from cairn.inspect.facts import Inspection
from cairn.inspect.look import look
from cairn.inspect.mappings import Mapping
from cairn.inspect.memory import Pages, ProcessMemory
from cairn.inspect.process import FileMissing, NotPermitted, ProcessEnded, find
from cairn.inspect.sampled import sample
from cairn.report import inspection

GLIBC = pytest.mark.skipif(elf.native()[2], reason="the C library here is musl")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
OWN_BYTES = 16 << 10
"""The most bytes that a small program and the C library allocate for themselves."""
JEMALLOC = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
RATE = 8 << 20


@pytest.fixture(scope="session")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled("inspected.c", "-pthread")


def value_of(found: Inspection, name: str) -> tuple[str, bool | None] | None:
    for one in found.environment or ():
        if one.name == name:
            return one.value, one.is_read
    return None


def states(pid: int) -> list[str]:
    """The states of the threads of a process; "S" is that of a thread that waits."""
    files = Path(f"/proc/{pid}/task").glob("*/stat")
    return [file.read_text().rpartition(") ")[2].split()[0] for file in files]


# --- the allocator, its settings, live and held memory ---


@GLIBC
@pytest.mark.parametrize("by", ["symbols", "form"])
def test_glibc_and_its_live_blocks_are_known(
    program: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without debug symbols, the form of the arenas shows where they are."""
    if by == "form":
        monkeypatch.setattr(glibc_heap, "_symbol", lambda *_: None)
    with started(program, "live") as one:
        found = look(one.pid)
    assert (found.allocator.name, found.allocator.how) == ("glibc", "C library")
    assert found.allocator.version and found.process.libc == f"glibc {found.allocator.version}"
    assert found.heap is not None, found.heap_why_not
    assert 0 <= found.heap.live_least - one.told <= OWN_BYTES
    assert found.heap.live_least == found.heap.live_most
    assert found.heap.held == found.heap.live_most + found.heap.free
    assert found.heap.arenas == 1
    assert found.environment == ()


@GLIBC
def test_a_glibc_of_an_unknown_form_is_told_as_such(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glibc_heap, "_is_ring", lambda *_: False)
    with started(program, "live") as one:
        found = look(one.pid)
    assert found.heap is None
    assert found.heap_why_not == (
        "Live memory is not known: the data of this glibc has no arena of a form that Cairn knows. "
        "Its debug symbols would not help."
    )


class Lists:
    """The memory of a process that has only free blocks, each with its size and its pointer."""

    def __init__(self, blocks: dict[int, int]) -> None:
        self._blocks = blocks

    def words_at(self, address: int, count: int) -> tuple[int, ...]:
        if address not in self._blocks:
            raise memory.Unreadable
        return (0, 48 | 1, self._blocks[address])[:count]


@pytest.mark.parametrize(
    ("libc", "is_mangled"),
    [("glibc 2.31", False), ("glibc 2.36", True), ("glibc", False), ("glibc", True)],
)
def test_pointers_are_mangled_from_glibc_2_32_on(libc: str, is_mangled: bool) -> None:
    """The second block lies in a page whose number is a multiple of 16.

    So its plain pointer seems to be a mangled one, and the list of an old glibc was once said to
    change all the time.
    """
    first, second, third = 0x1C31040, 0x1C30080, 0x1C40100
    following = {first: second, second: third, third: 0}
    blocks = {
        one: other ^ (one + 16 >> 12 if is_mangled else 0) for one, other in following.items()
    }
    walk = glibc_heap._Walk(
        cast(memory.ProcessMemory, Lists(blocks)), 112, glibc_heap._ways(libc), math.inf
    )
    assert walk._fast(first) == 3 * 48


@GLIBC
def test_arenas_of_threads_are_added_up(program: Path) -> None:
    with started(program, "threads", MALLOC_ARENA_MAX="3") as one:
        # The kernel tells the stack pointer of a thread only while the thread waits.
        while not all(state == "S" for state in states(one.pid)):
            time.sleep(0.001)
        found = look(one.pid)
    assert value_of(found, "MALLOC_ARENA_MAX") == ("3", True)
    assert found.heap is not None, found.heap_why_not
    assert found.heap.arenas == 3
    assert ("arena_max", 3) in [(one.name, one.value) for one in found.in_use]
    own = OWN_BYTES + 8 * (4 << 10)  # 4 KiB more for each of eight threads
    assert found.heap.live_least <= one.told + own and one.told <= found.heap.live_most
    assert found.heap.live_most - found.heap.live_least <= 8 * 250_000
    assert found.process.threads == 9
    # Each thread has a mapping of 8 MiB for its stack.
    assert found.sum_of("stacks").mappings == 9


def test_a_preloaded_allocator_is_named_with_its_version(program: Path) -> None:
    library = carried(native.allocator())
    with started(program, "idle", LD_PRELOAD=library, CAIRN_PURGE="off", MALLOC_CONF="x") as one:
        found = look(one.pid)
    assert (found.allocator.name, found.allocator.how) == ("cairn", "preloaded")
    assert found.allocator.version and found.allocator.path == os.path.realpath(library)
    assert found.allocator.build_id
    assert value_of(found, "CAIRN_PURGE") == ("off", True)
    assert value_of(found, "MALLOC_CONF") == ("x", False)
    assert "MALLOC_CONF is set, but cairn does not read it." in advice(found)
    assert found.heap is None and "cairn_statistics()" in found.heap_why_not


def test_of_two_preloaded_allocators_the_first_one_serves(program: Path, tmp_path: Path) -> None:
    """The loader's list says which one comes first. Their addresses do not."""
    libraries = [tmp_path / f"lib{name}.so" for name in ("one", "other")]
    for library in libraries:
        shutil.copy(native.allocator(), library)
    for order in (libraries, libraries[::-1]):
        with started(program, "idle", LD_PRELOAD=":".join(map(str, order))) as one:
            assert look(one.pid).allocator.path == str(order[0])


@AS_ROOT
def test_a_library_that_was_replaced_on_disk_is_still_read(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LD_PRELOAD has a relative path here, so the loader's list of libraries has it, too."""
    copy = tmp_path / "libmine.so"
    shutil.copy(native.allocator(), copy)
    monkeypatch.chdir(tmp_path)
    with started(program, "idle", LD_PRELOAD="./libmine.so") as one:
        copy.unlink()
        copy.write_text("another file")
        found = look(one.pid)
    assert (found.allocator.name, found.allocator.how) == ("cairn", "preloaded")
    assert found.process.is_replaced
    assert not found.process.is_deleted
    assert any("was replaced on disk" in sentence for sentence in advice(found))


@AS_ROOT
def test_a_library_that_was_deleted_is_not_called_replaced(program: Path, tmp_path: Path) -> None:
    copy = tmp_path / "libmine.so"
    shutil.copy(native.allocator(), copy)
    with started(program, "idle", LD_PRELOAD=str(copy)) as one:
        copy.unlink()
        found = look(one.pid)
    assert found.allocator.name == "cairn"
    assert found.process.is_replaced and found.process.is_deleted
    told = " ".join(advice(found))
    assert "was deleted since it started" in told and "replaced" not in told


def test_the_rows_of_memory_add_up_to_the_same_total_in_short_and_in_full(program: Path) -> None:
    with started(program, "idle") as one:
        found = look(one.pid)
    totals = []
    for full in (False, True):
        table = inspection.memory_table(found, full=full)
        counts = [int(row[-1].text.replace(",", "")) for row in table.rows]
        assert sum(counts[:-1]) == counts[-1]
        resident = table.heads.index("resident")
        totals.append((counts[-1], table.rows[-1][resident].text))
    assert totals[0] == totals[1]


def test_an_allocator_in_the_programs_file_is_known_as_such(
    compiled: Callable[..., Path],
) -> None:
    own = compiled("inspected.c", "-pthread", str(PROGRAMS / "ring_malloc.c"))
    with started(own, "idle", LD_PRELOAD=str(native.allocator())) as one:
        found = look(one.pid)
    assert found.allocator.how == "in the program"
    assert found.allocator.path == str(own)
    assert any(sentence.startswith("LD_PRELOAD names") for sentence in advice(found))


@pytest.mark.skipif(not JEMALLOC.exists(), reason="jemalloc is not here")
def test_an_allocator_that_the_program_is_linked_with_is_known_as_such(
    compiled: Callable[..., Path],
) -> None:
    linked = compiled("inspected.c", "-pthread", "-Wl,--no-as-needed", str(JEMALLOC))
    with started(linked, "idle") as one:
        found = look(one.pid)
    assert (found.allocator.name, found.allocator.how) == ("jemalloc", "linked")
    assert found.heap is None and found.heap_why_not.startswith("Live memory is not known")


@GLIBC
def test_a_static_program_is_known_with_its_live_blocks(compiled: Callable[..., Path]) -> None:
    with started(compiled("inspected.c", "-static", "-pthread"), "live", LD_PRELOAD="x.so") as one:
        found = look(one.pid)
    assert found.process.is_static
    assert (found.allocator.name, found.allocator.how) == ("glibc", "C library")
    assert found.heap is not None, found.heap_why_not
    assert 0 <= found.heap.live_least - one.told <= OWN_BYTES


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program makes a call of x86-64")
def test_a_static_program_without_an_allocator_is_told_as_such(tmp_path: Path) -> None:
    source, program = tmp_path / "waits.c", tmp_path / "waits"
    waits = '__asm__ volatile("syscall" : : "a"(34) : "rcx", "r11", "memory");'  # pause()
    source.write_text(f"void _start(void) {{ for (;;) {waits} }}\n")
    subprocess.run(["gcc", "-O1", "-static", "-nostdlib", source, "-o", program], check=True)
    with subprocess.Popen([program]) as running:
        try:
            while states(running.pid) != ["S"]:
                time.sleep(0.01)
            found = look(running.pid)
        finally:
            running.kill()
    assert found.allocator.name == "not known"
    assert found.allocator.evidence == (
        "The program is statically linked, and its file names no allocator: it was stripped, or its "
        "allocator is not known to Cairn."
    )


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="there is no musl-gcc here")
@pytest.mark.parametrize("flag", ["-static", "-O1"])
def test_musl_is_known(tmp_path: Path, flag: str) -> None:
    made = tmp_path / "inspected"
    subprocess.run(["musl-gcc", flag, str(PROGRAMS / "inspected.c"), "-o", made], check=True)
    with started(made, "idle") as one:
        found = look(one.pid)
    assert found.allocator.name == "musl"
    assert found.process.is_static is (flag == "-static")
    assert found.heap is None and "musl" in found.heap_why_not


def test_each_mapping_is_looked_at_once(program: Path) -> None:
    """Once, a process with 30,000 mapped files was looked at for minutes."""

    class Counted(tuple[Mapping, ...]):
        turns = 0

        def __iter__(self) -> Iterator[Mapping]:
            type(self).turns += 1
            return super().__iter__()

    with started(program, "idle") as one:
        target = find(one.pid)
        maps = mappings.read_maps(target)
        found = allocator._mapped_files(target, Counted(maps), str(program))
    assert Counted.turns == 1
    paths = list(found)
    assert re.search(r"libc\.|ld-musl", paths[-1]), paths
    for path, file in found.items():
        of = [mapping for mapping in maps if mapping.path == path]
        assert any(mapping.is_executable for mapping in of)
        assert file.base == min(mapping.start - mapping.offset for mapping in of)


VALGRIND = shutil.which("valgrind")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the name is that on x86-64")
def test_a_library_with_which_valgrind_replaces_malloc_is_known(
    program: Path, tmp_path: Path
) -> None:
    library = tmp_path / "vgpreload_dhat-amd64-linux.so"
    shutil.copy(native.allocator(), library)
    with started(program, "idle", LD_PRELOAD=str(library)) as one:
        found = look(one.pid)
    assert (found.allocator.name, found.allocator.path) == ("valgrind's replacement", str(library))
    assert found.heap is None and found.heap_why_not.startswith("Live memory is not known")


@pytest.mark.skipif(VALGRIND is None, reason="there is no valgrind here")
@pytest.mark.parametrize("tool", ["memcheck", "dhat"])
def test_valgrind_is_told_from_the_c_library(program: Path, tmp_path: Path, tool: str) -> None:
    """Once, the answer was glibc, whose arenas were empty."""
    options = (f"--tool={tool}", "-q", f"--log-file={tmp_path / 'log'}")
    options += (f"--dhat-out-file={tmp_path / 'out'}",) if tool == "dhat" else ()
    with started(VALGRIND, *options, program, "live") as one:
        found, share = look(one.pid), sample(one.pid, 0.1)
    told = " ".join(inspection.answer(found))
    assert "is valgrind's replacement, a preloaded library: " in told
    assert f"vgpreload_{tool}-" in told and "Live memory is not known" in told
    assert share.run is None and "valgrind runs the program" in share.why_not


# --- free memory that is resident ---

FREED = 40_000_000
"""The bytes that freed.c frees. It maps 64 MiB of its own, too."""
PARTIAL = 200 * 2 * mmap.PAGESIZE
"""The most bytes that freed.c leaves in pages which are not wholly free: a block has two ends."""


@contextmanager
def freed(program: Path, how: str) -> Iterator[tuple[int, Callable[[], str]]]:
    """Starts freed.c. Yields its process id, and a function that lets it call malloc_trim(0)."""
    with subprocess.Popen(
        [program, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdin is not None and one.stdout is not None
        assert int(one.stdout.readline()) == FREED

        def trim() -> str:
            assert one.stdin is not None and one.stdout is not None
            one.stdin.write("\n")
            one.stdin.flush()
            return one.stdout.readline()

        yield one.pid, trim


@pytest.mark.parametrize("at_once", [7, 64, 1 << 17])
def test_resident_pages_are_counted_like_one_by_one(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written pages are the process's own, and pages that were only read are not."""
    monkeypatch.setattr(memory, "_ENTRIES_MOST", at_once)
    size, chance, page = 1000, random.Random(at_once), mmap.PAGESIZE
    area = mmap.mmap(-1, size * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    area.madvise(mmap.MADV_NOHUGEPAGE)
    written = set(chance.sample(range(size), size // 2))
    for number in written:
        area[number * page] = 1
    read = {one for one in range(0, size, 3) if one not in written and not area[one * page]}
    with ProcessMemory(find(os.getpid())) as own:
        for count in range(0, 60, 2):
            cuts = sorted(chance.sample(range(size + 1), count))
            spans = [*zip(cuts[::2], cuts[1::2], strict=True), (size, size)]
            chance.shuffle(spans)
            within = [one for start, end in spans for one in range(start, end)]
            assert own.pages([(base + a * page, base + b * page) for a, b in spans]) == Pages(
                len(within) * page,
                sum(one in written for one in within) * page,
                sum(one in read for one in within) * page,
            )


def told_of_free_memory(found: Inspection) -> list[str]:
    return [sentence for sentence in advice(found) if "free and still resident" in sentence]


@GLIBC
@pytest.mark.parametrize("how", ["between", "end"])
def test_free_memory_is_resident_until_it_is_trimmed(
    compiled: Callable[..., Path], how: str
) -> None:
    """The 64 MiB that the program maps itself are not free memory of malloc.

    The second look comes after the first one has read the lists of free blocks, so the kernel shows
    pages of zeros there.
    """
    with freed(compiled("freed.c", "-pthread"), how) as (pid, trim):
        before = look(pid)
        assert before.heap is not None and before.heap.free_resident is not None
        assert FREED <= before.heap.free_resident <= FREED + (1 << 20)
        assert before.heap.trimmed is not None
        assert before.heap.free_resident - before.heap.trimmed <= PARTIAL + OWN_BYTES
        assert len(told_of_free_memory(before)) == 1
        trim()
        look(pid)
        after = look(pid)
    assert after.heap is not None and after.heap.free_resident is not None
    assert after.heap.trimmed == 0 and after.heap.free_resident <= PARTIAL + OWN_BYTES
    assert told_of_free_memory(after) == []
    gone = before.sum_of("heap").resident - after.sum_of("heap").resident
    # The trim itself may need a page.
    assert abs(gone - before.heap.trimmed) <= 4 * mmap.PAGESIZE


@GLIBC
def test_free_memory_that_a_fork_shares_is_resident_and_cannot_be_trimmed(
    compiled: Callable[..., Path],
) -> None:
    with freed(compiled("freed.c", "-pthread"), "fork") as (pid, _):
        found = look(pid)
    assert found.heap is not None and found.heap.free_resident is not None
    assert FREED <= found.heap.free_resident <= FREED + (1 << 20)
    assert found.heap.trimmed == 0


@GLIBC
def test_a_kernel_that_shows_no_pages_gives_no_advice_about_free_memory(
    compiled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessMemory, "pages", lambda *_: None)
    with freed(compiled("freed.c", "-pthread"), "between") as (pid, _):
        found = look(pid)
    assert found.heap is not None and found.heap.free >= FREED
    assert (found.heap.free_resident, found.heap.top_resident, found.heap.trimmed) == (None,) * 3
    assert told_of_free_memory(found) == []


@GLIBC
def test_a_trim_that_returns_nothing_is_not_advised(compiled: Callable[..., Path]) -> None:
    """The ends of the arenas of threads are not trimmed by glibc."""
    with freed(compiled("freed.c", "-pthread"), "thread") as (pid, trim):
        before = look(pid)
        trim()
        after = look(pid)
    for found in (before, after):
        assert found.heap is not None and found.heap.free_resident is not None
        assert FREED <= found.heap.free_resident <= FREED + (1 << 20)
        assert found.heap.trimmed is not None and found.heap.trimmed <= OWN_BYTES + (1 << 17)
        (told,) = told_of_free_memory(found)
        assert told.endswith(
            "most of them are at the ends of its arenas, and malloc_trim(0) in the program returns "
            "almost none of them."
        )


# --- kinds of memory ---


def test_huge_pages_are_counted(program: Path) -> None:
    """The kernel may have no free huge page, or may make one of small pages meanwhile.

    So the kernel's own sum must be the same before and after.
    """
    with started(program, "huge") as one:
        for _ in range(20):
            before, found, after = rollup(one.pid), look(one.pid), rollup(one.pid)
            if before["AnonHugePages"] == after["AnonHugePages"]:
                break
    if found.transparent_huge_pages == "never":
        pytest.skip("transparent huge pages are off here")
    anonymous = found.sum_of("anonymous")
    assert anonymous.resident >= one.told
    assert before["AnonHugePages"] == anonymous.huge == after["AnonHugePages"]


def rollup(pid: int) -> dict[str, int]:
    """The sums over all mappings of a process that the kernel shows, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[-2]) << 10 for line in lines}


def test_the_kinds_add_up_to_the_memory_of_the_process(program: Path) -> None:
    """A page of a file may become resident meanwhile: the program goes to sleep, or look() reads.

    So the sums must be the same before and after.
    """
    with started(program, "live") as one:
        for _ in range(20):
            before, found, after = rollup(one.pid), look(one.pid), rollup(one.pid)
            if before == after:
                break
    assert before == after
    assert sum(mapping.resident for mapping in found.mappings) == after["Rss"]
    assert sum(mapping.private_dirty for mapping in found.mappings) == after["Private_Dirty"]


# --- growth ---


@one_right_try_of(3)
def test_the_interval_of_growth_contains_the_rate_of_the_program(program: Path) -> None:
    with started(program, "grow", RATE) as one:
        found = growth.measure(find(one.pid), growth.LEAST_S + 0.1)
    assert found.low is not None and found.high is not None
    # A busy machine lets the program catch up in steps, so the interval may be wide.
    assert found.low <= 1.02 * RATE and found.high >= 0.98 * RATE
    assert found.low > 0.5 * RATE and found.high < 2 * RATE


def test_a_process_that_stands_still_does_not_grow(program: Path) -> None:
    with started(program, "idle") as one:
        found = growth.measure(find(one.pid), growth.LEAST_S)
    assert (found.low, found.per_s, found.high) == (0, 0, 0)


def test_too_little_time_gives_no_growth(program: Path) -> None:
    with started(program, "grow", RATE) as one:
        found = growth.measure(find(one.pid), 0.1)
    assert found.per_s is None and "are needed" in found.why_not


def test_a_process_that_ends_keeps_its_readings(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, all readings of a long watch were lost."""
    private_bytes = growth.private_bytes
    with started(program, "idle") as one:
        killer = threading.Timer(0.5, one.process.kill)

        def first(target: process.Target) -> int:
            monkeypatch.setattr(growth, "private_bytes", private_bytes)
            found = private_bytes(target)
            killer.start()
            return found

        monkeypatch.setattr(growth, "private_bytes", first)
        done = CliRunner().invoke(cli, ["inspect", "--for", "60s", str(one.pid)])
        killer.join()
    assert isinstance(done.exception, ProgramFailed) and done.exception.exit_code == 3
    assert re.fullmatch(
        rf"process {one.pid} was watched, and it ended after [0-9.]+ m?s\. Growth is not known: "
        r"\d+ readings? in [0-9.]+ s .*\.",
        str(done.exception),
    )


def test_ctrl_c_ends_the_watching_alone(program: Path) -> None:
    with started(program, "grow", RATE) as one:
        interrupt = threading.Timer(growth.LEAST_S + 1, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        found = look(one.pid, 200.0)
        interrupt.join()
    assert found.growth is not None and found.growth.seconds < 30
    assert found.allocator.name != "not known"


def test_all_mappings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, those behind the first 64 MiB of smaps were missing in all sums."""
    monkeypatch.setattr(process, "_READ_MOST", 4096)
    target = find(os.getpid())
    for read in (mappings.read_smaps, mappings.read_maps):
        found = read(target)
        assert len(found) > 40 and any(one.path == "[stack]" for one in found)
    with pytest.raises(CairnError, match="/smaps is larger than"):
        target.read("smaps")


def test_a_file_that_the_kernel_lacks_is_not_the_end_of_the_process() -> None:
    """Once, a kernel without cgroups made each process an ended one."""
    target = find(os.getpid())
    with pytest.raises(FileMissing, match=rf"cannot read /proc/{target.pid}/none: No such file"):
        target.text("none")
    assert limits._text(target, "none") == ""
    with subprocess.Popen(["sleep", "60"]) as one:
        ended = find(one.pid)
        one.kill()
    with pytest.raises(ProcessEnded):
        limits._text(ended, "cgroup")


def test_a_kernel_that_does_not_show_private_memory_is_not_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without RssAnon, which is new in Linux 4.5, the process was once said to have ended."""
    target = find(os.getpid())
    status = process.status_of(target)
    old = {key: text for key, text in status.items() if key not in ("RssAnon", "RssFile")}
    monkeypatch.setattr(growth, "status_of", lambda _: old)
    with pytest.raises(CairnError, match=r"needs Linux 4\.5 or later") as error:
        growth.private_bytes(target)
    assert not isinstance(error.value, ProcessEnded)
    ending = {key: text for key, text in old.items() if not key.startswith("Vm")}
    monkeypatch.setattr(growth, "status_of", lambda _: ending)
    with pytest.raises(ProcessEnded):
        growth.private_bytes(target)


# --- numbers of ended processes, zombies, threads and kernel threads ---


def test_a_number_without_a_process_is_refused() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with pytest.raises(UsageError, match=f"there is no process {ended.pid}"):
        look(ended.pid)


def test_a_zombie_is_named_with_its_parent() -> None:
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(UsageError, match=f"parent, process {os.getpid()}.*a zombie"):
            look(zombie.pid)


def test_a_thread_is_refused_with_its_process() -> None:
    done, number = threading.Event(), []
    thread = threading.Thread(
        target=lambda: (number.append(threading.get_native_id()), done.wait())
    )
    thread.start()
    try:
        while not number:
            pass
        with pytest.raises(UsageError, match=f"is a thread of process {os.getpid()}"):
            look(number[0])
    finally:
        done.set()
        thread.join()


@pytest.mark.skipif(not Path("/proc/2").exists(), reason="threads of the kernel are not visible")
def test_a_thread_of_the_kernel_is_refused() -> None:
    if Path("/proc/2/cmdline").read_bytes():
        pytest.skip("process 2 is no thread of the kernel here")
    with pytest.raises(UsageError, match="a thread of the kernel"):
        look(2)


def test_a_process_that_ends_meanwhile_is_told_as_such() -> None:
    with subprocess.Popen(["sleep", "2"]) as process:
        reaper = threading.Thread(target=process.wait)
        reaper.start()
        with pytest.raises(ProcessEnded, match=f"process {process.pid} ended"):
            look(process.pid, 5.0)
        reaper.join()


@AS_ROOT
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv here")
def test_a_process_of_another_user_needs_rights(cairn, program: Path) -> None:
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with started(program, "idle") as one:
        code = (
            "import sys; from cairn.inspect.look import look\n"
            f"try: look({one.pid})\n"
            "except Exception as error: print(type(error).__name__, error)"
        )
        python = shutil.which("python3", path="/usr/local/bin:/usr/bin") or "/usr/bin/python3"
        packages = next(path for path in sys.path if path.endswith("site-packages"))
        done = subprocess.run(
            [*user, python, "-c", code],
            env={"PYTHONPATH": packages},
            capture_output=True,
            text=True,
            check=False,
        )
    if "ModuleNotFoundError" in done.stderr or "Permission" in done.stderr:
        pytest.skip("another user cannot load the package here")
    assert done.stdout.startswith(NotPermitted.__name__), done
    assert "belongs to root" in done.stdout and "as root (sudo)" in done.stdout


def test_a_process_that_may_not_be_read_is_not_watched_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, the refusal came after the whole time of --for."""
    opened = os.open

    def refusing(path: str, *rest: int) -> int:
        if path.endswith("/smaps"):
            raise PermissionError(errno.EACCES, "not permitted")
        return opened(path, *rest)

    def watched(*_: object) -> None:
        raise AssertionError("the process was watched")

    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(looking, "measure", watched)
    with pytest.raises(NotPermitted):
        look(os.getpid(), 60.0)


def test_a_process_whose_first_thread_has_ended_is_inspected(
    compiled: Callable[..., Path],
) -> None:
    """Once, it was called a zombie."""
    with started(compiled("first_thread_ends.c", "-O2", "-pthread")) as one:
        while "Z" not in states(one.pid):
            time.sleep(0.001)
        found = look(one.pid, 0.1)
        target = find(one.pid)
        target.check()
        assert one.pid not in process.threads(target)
        one.process.kill()
        # The killed process is a zombie until it is waited for.
        while int(process.stat_of(target)[17]) > 1:
            time.sleep(0.001)
        with pytest.raises(UsageError, match="it is a zombie"):
            find(one.pid)
        with pytest.raises(ProcessEnded):
            target.check()
    assert found.process.threads == 1
    assert found.allocator.name != "not known"
    assert found.process.program.endswith("-pthread")
    assert found.sum_of("anonymous", "heap").resident > 0
    assert found.growth is not None and found.growth.begin > 0


def test_an_own_process_that_the_kernel_protects_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(process, "_status", lambda _: {"Uid": "1000\t1000\t1000\t1000"})
    assert str(process.not_permitted(os.getpid())) == (
        f"the kernel does not let you read process {os.getpid()}, although it is yours: it gained "
        "rights at its start, it forbids to be read (prctl PR_SET_DUMPABLE), or a security module "
        "forbids it; run the command as root (sudo)"
    )


@AS_ROOT
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here")
def test_a_process_of_another_pid_namespace_is_known_by_both_numbers(program: Path) -> None:
    with started("unshare", "--pid", "--fork", program, "idle") as one:
        children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
        if not children:
            pytest.skip("unshare works differently here")
        found = look(int(children[0]))
        os.kill(int(children[0]), 9)
    assert found.process.inner_pid == 1
    assert found.allocator.name != "not known"
