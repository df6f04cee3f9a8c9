"""Tests of the allocator under limits: little memory, locked memory, and few system calls.

When no memory is left, malloc must return NULL. When there is memory again, malloc must succeed.
"""

from __future__ import annotations

import re
import resource
import shutil
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compilers import ROOT

from .conftest import HERE, Library, Program, archive_later

MIB = 1 << 20
GIB = 1 << 30
OWN_CALLS_MAX = 4  # system calls: two for records, one for the block, one for small pages
OWN_KB_MAX = 192


@archive_later
@pytest.mark.parametrize("limit", [256 * MIB, GIB, 4 * GIB], ids=["256 MiB", "1 GiB", "4 GiB"])
def test_a_limit_on_addresses_does_no_harm_below_it(
    program: Callable[..., Program], mode: str, limit: int
) -> None:
    program("random_calls.c", mode, "-O2").succeed(
        7, 100_000, 2, limits={resource.RLIMIT_AS: limit}
    )


@pytest.mark.plain("has no bytes between blocks")
@archive_later
@pytest.mark.parametrize("size", [16, 100, 1000, 40_000, 1_000_000])
@pytest.mark.parametrize(
    "kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA], ids=["address space", "data"]
)
def test_memory_ends_with_null_and_service_resumes(
    program: Callable[..., Program], mode: str, size: int, kind: int
) -> None:
    limit = 256 * MIB
    first, second = map(
        int, program("exhausted.c", mode).succeed(size, limits={kind: limit}).split()
    )
    assert first > 0.75 * limit, f"only {first:,} bytes of {limit:,} could be used"
    assert second > 0.98 * first


@archive_later
def test_locked_memory_stays_near_the_memory_in_use(
    program: Callable[..., Program], mode: str
) -> None:
    said = program("locked.c", mode).succeed().strip()
    if said == "not allowed":
        pytest.skip("mlockall is not allowed here")
    resident_kb, asked = map(int, said.split())
    assert resident_kb < 48_000
    # `asked` counts the system calls that try to give memory back to the kernel. The kernel refuses
    # them, because the memory is locked. After eight refused calls, the allocator waits a quarter
    # of a second before it tries again.
    assert 0 < asked < 30


def huge_page_setting() -> str:
    """Returns the machine's setting, such as 'always [madvise] never'."""
    try:
        return Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
    except OSError:
        return "[never]"


@archive_later
def test_a_growing_program_gets_huge_pages_unless_they_are_turned_off(
    program: Callable[..., Program], mode: str
) -> None:
    """After the program freed its blocks, no more memory is resident than without huge pages."""
    if "[madvise]" not in huge_page_setting():
        pytest.skip(f"programs cannot request huge pages here: {huge_page_setting()}")
    run = program("growing.c", mode)
    huge, full, huge_left, left = map(int, run.succeed(200, CAIRN_HUGE_PAGES="1").split())
    some, full_with_some, _, left_with_some = map(int, run.succeed(200).split())
    none, full_without, none_left, left_without = map(
        int, run.succeed(200, CAIRN_HUGE_PAGES="0").split()
    )
    assert huge > 100_000 and none == none_left == 0
    assert some > 0, "the allocator asks for at least one huge page, to measure how long it takes"
    assert max(full, full_with_some) <= 1.02 * full_without + 2048
    assert left_with_some <= 1.02 * left_without + 2048
    assert left <= 1.02 * left_without + 2048, f"{huge_left} KB are left in huge pages"


@archive_later
def test_where_the_kernel_gives_huge_pages_unasked_small_programs_get_none(
    program: Callable[..., Program], mode: str
) -> None:
    if "[always]" not in huge_page_setting():
        pytest.skip(f"the kernel gives no huge pages unasked here: {huge_page_setting()}")
    grown_kb, written_kb = map(int, program("sparse.c", mode).succeed(20, 50_000).split())
    assert grown_kb <= written_kb + 256


@archive_later
@pytest.mark.parametrize("size", [8_192, 20_000, 40_000, 131_072])
def test_buffers_of_which_only_the_beginnings_are_written_take_little_memory(
    program: Callable[..., Program], mode: str, size: int
) -> None:
    """Huge pages would make up to 40 times as much memory resident as the program writes."""
    if mode == "archive" and "[always]" in huge_page_setting():
        pytest.skip("the archive does not read the machine's setting of huge pages")
    grown_kb, written_kb = map(int, program("sparse.c", mode).succeed(8000, size).split())
    assert grown_kb <= 1.3 * written_kb + 2048


@pytest.mark.plain("gives each thread a heap at once")
@archive_later
def test_a_thread_that_waits_after_its_first_blocks_takes_little_memory(
    program: Callable[..., Program], mode: str
) -> None:
    """8 KB of it are the thread's stack."""
    assert int(program("idle_threads.c", mode).succeed(300)) <= 300 * 14


@archive_later
@pytest.mark.parametrize(
    "refused",
    [(), ("madvise",), ("mremap",), ("madvise", "mremap")],
    ids=lambda names: f"refused: {' '.join(names)}",
)
def test_a_sandbox_must_allow_only_five_calls_after_the_start(
    program: Callable[..., Program], mode: str, refused: tuple[str, ...]
) -> None:
    said = program("sandbox.c", mode).succeed(*refused).strip()
    if said == "not allowed":
        pytest.skip("a filter is not allowed here")
    assert said == "confined"


def test_the_document_names_these_five_calls() -> None:
    """The filter of sandbox.c and the table "At work" of the reference name the same calls.

    The table also names mincore() and openat(), which are not called where a filter is known.
    """
    allowed = (
        (HERE / "sandbox.c")
        .read_text()
        .split("allowed[] = {")[1]
        .split("/* calls of the allocator */")[0]
    )
    chapter = (
        (ROOT / "docs" / "allocator-reference.md")
        .read_text()
        .split("\n## System calls\n")[1]
        .split("\n## ")[0]
    )
    at_work = chapter.split("**At work**")[1].split("**")[0]
    named = set(re.findall(r"^\| `(\w+)", at_work, re.MULTILINE))
    assert {*re.findall(r"SYS_(\w+)", allowed), "mincore", "openat"} == named


@pytest.mark.plain("has no map and no guards")
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not here")
def test_one_block_costs_few_system_calls(program: Callable[..., Program], tmp_path: Path) -> None:
    run = program("footprint.c", "preloaded")
    trace = tmp_path / "trace"
    command = [
        "strace",
        "-o",
        str(trace),
        "-E",
        f"LD_PRELOAD={run.preload}",
        str(run.path),
        "quiet",
    ]
    if subprocess.run(command, check=False).returncode != 0:
        pytest.skip("strace is not allowed here")
    lines = trace.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if "MAP_FIXED_NOREPLACE" in line)
    last = next(i for i, line in enumerate(lines) if line.startswith("exit_group"))
    assert last - first <= OWN_CALLS_MAX, "\n".join(lines[first:last])
    gives_back = [line for line in lines[first:last] if re.match("munmap|madvise.*DONTNEED", line)]
    assert not gives_back, "resident memory may be below its peak"


def needed_kb(path: Path, preload: Path | None) -> int:
    """Returns the memory in kB that footprint.c, a program with one block, needs.

    The result includes the private pages and the whole file of the preloaded library.
    """
    environment = {"LD_PRELOAD": str(preload)} if preload else {}
    return int(
        subprocess.run([path], env=environment, capture_output=True, check=True, text=True).stdout
    )


@pytest.mark.plain("has no map of blocks")
def test_one_block_costs_little_memory(
    compiled_here: Callable[..., Path], library: Library
) -> None:
    path = compiled_here("footprint.c")
    own = statistics.median(
        needed_kb(path, library.shared) - needed_kb(path, None) for _ in range(25)
    )
    assert own <= OWN_KB_MAX, f"{own} KB more than without the allocator"


def test_the_table_of_options_has_every_variable_that_is_read() -> None:
    """options.c looks up exactly the variables that options.h explains."""
    folder = Path(__file__).resolve().parents[2] / "src" / "alloc"
    names = r"CAIRN_[A-Z_]*[A-Z]"
    explained = set(
        re.findall(rf"^ \*     ({names})=", (folder / "options.h").read_text(), re.MULTILINE)
    )
    assert explained == set(re.findall(rf'"({names})=?"', (folder / "options.c").read_text()))


@archive_later
def test_unused_memory_is_returned_while_the_program_uses_small_blocks(
    program: Callable[..., Program], mode: str
) -> None:
    before, after = map(int, program("purge_while_busy.c", mode).succeed().split())
    assert before > 40 << 10
    assert after <= 16 << 10


def memory_of_a_burst(burst: Program, block: int, each: int, doing: str) -> tuple[int, int, int]:
    """Returns the memory before and after the 2 seconds of burst_then_little.c, and that in use.

    If the machine stalls for a part of the 2 seconds, the program does less in them. So one of two
    runs has to keep the bound of the memory after them.
    """
    for _ in range(2):
        before, after, needed = map(int, burst.succeed(block, each, doing).split())
        if after <= 1.3 * needed + 2048:
            break
    return before, after, needed


@pytest.mark.plain("keeps the canaries of its free blocks")
@archive_later
@pytest.mark.parametrize(
    ("block", "each", "doing"),
    [
        (4096, 100, "pairs"),
        (4096, 100, "more"),
        pytest.param(48, 100, "mix", marks=pytest.mark.long),
        pytest.param(8000, 16, "pairs", marks=pytest.mark.long),
        pytest.param(140_000, 2, "mix", marks=pytest.mark.long),
    ],
)
def test_a_burst_is_returned_although_the_program_then_does_little(
    program: Callable[..., Program], mode: str, block: int, each: int, doing: str
) -> None:
    """Within 2 seconds, the memory falls to 1.3 times the OS pages in use plus 2 MiB.

    This bound is a goal of the design.
    """
    burst = program("burst_then_little.c", mode)
    before, after, needed = memory_of_a_burst(burst, block, each, doing)
    assert before > 40 << 10
    assert after <= 1.3 * needed + 2048


@pytest.mark.plain("keeps the canaries of its free blocks")
@archive_later
def test_a_half_freed_class_keeps_half(program: Callable[..., Program], mode: str) -> None:
    burst = program("burst_then_little.c", mode)
    before, after, needed = memory_of_a_burst(burst, 4096, 2, "pairs")
    assert before > 48 << 10
    assert needed <= 26 << 10 and after <= 1.3 * needed + 2048


@pytest.mark.plain("has no guards, which prevent huge pages")
@archive_later
def test_lasting_memory_gets_huge_pages_without_growing(
    program: Callable[..., Program], mode: str
) -> None:
    lasting = program("lasting.c", mode)
    said = lasting.succeed(8 << 10)
    if said == "unsupported\n":
        pytest.skip("the kernel cannot merge resident pages into a huge page")
    before, after, huge = map(int, said.split())
    assert huge >= 8 << 10
    assert after <= 1.03 * before + 1024
    *_, never = map(int, lasting.succeed(0, CAIRN_HUGE_PAGES="0").split())
    assert never == 0


@pytest.mark.plain("has no map of blocks")
@archive_later
def test_the_background_thread_returns_memory_while_the_program_sleeps(
    program: Callable[..., Program], mode: str
) -> None:
    background = program("background.c", mode)
    parent, forked, child = background.succeed(CAIRN_BACKGROUND="1").splitlines()
    assert forked == "1"
    for threads, before, after in (map(int, line.split()) for line in (parent, child)):
        assert threads == 2
        # If the sleeping thread kept its free runs and empty slabs, `after` would be 6.5 MB.
        assert before > 60 << 10 and after < 11 << 9  # in kB
    parent, _, _ = background.succeed().splitlines()
    threads, before, after = map(int, parent.split())
    assert threads == 1
    # Without the option, a sleeping program keeps its memory.
    assert before > 60 << 10 and after > 60 << 10


@archive_later
def test_a_background_thread_that_cannot_start_is_reported_and_harmless(
    program: Callable[..., Program], mode: str
) -> None:
    ended = program("background.c", mode)("alone", CAIRN_BACKGROUND="1")
    if ended.out == "not allowed\n":
        pytest.skip("a filter is not allowed here")
    assert ended.code == 0
    # The parent reports the missing thread once. Its forked child does not report it again.
    assert ended.err.count("\n") == 1 and "no thread could be created" in ended.err
    assert [line.split()[0] for line in ended.out.splitlines()] == ["1", "1", "1"]


@pytest.mark.plain("gives a block that is freed to the next call")
@archive_later
def test_a_look_at_parked_slabs_keeps_the_empty_one(
    program: Callable[..., Program], mode: str
) -> None:
    assert program("posted_behind_empty.c", mode).succeed() == "checked\n"


@pytest.mark.plain("keeps the contents of freed blocks")
@archive_later
def test_memory_can_be_freed_lazily(program: Callable[..., Program], mode: str) -> None:
    lazily, wrong = map(int, program("lazily_freed.c", mode).succeed(CAIRN_PURGE="free").split())
    assert lazily >= 60 << 10 and wrong == 0
    lazily, wrong = map(int, program("lazily_freed.c", mode).succeed().split())
    assert lazily == 0 and wrong == 0


@pytest.mark.parametrize("mode", ["linked", "archive"])
def test_memory_that_is_needed_repeatedly_is_kept_unless_learning_is_frozen(
    program: Callable[..., Program], mode: str
) -> None:
    """If the machine stalls, an epoch may end within a turn of the program.

    The allocator then returns the memory that was idle during the epoch, and keeps less. So one of
    two runs has to keep more memory than without learning.
    """
    fill = program("fill_and_empty.c", mode)
    for _ in range(2):
        learning = fill("swings", CAIRN_TRACE="1")
        frozen = fill("swings", CAIRN_TRACE="1", CAIRN_POLICY="frozen")
        learnt, held, purged, _ = map(int, learning.out.split())
        frozen_learnt, frozen_held, all_purged, _ = map(int, frozen.out.split())
        if held > 128 * MIB and all_purged > 2 * purged:
            break
    assert learnt >= 1 and held > 128 * MIB
    told = [
        line for line in learning.err.splitlines() if line.startswith("cairn: idle memory kept")
    ]
    assert len(told) >= 1 and told[0].endswith(f": {128 * MIB} -> {told[0].rpartition(' ')[2]}")
    assert frozen_learnt == 0 and frozen_held == 128 * MIB and frozen.err == ""
    assert all_purged > 2 * purged


@pytest.mark.plain("keeps the pages of freed blocks")
def test_memory_that_was_returned_gradually_does_not_raise_the_limit_of_idle_memory(
    program: Callable[..., Program],
) -> None:
    """The program frees a third of its memory slowly, and then the rest at once.

    The slow part takes several epochs of a quarter of a second. After each epoch, the allocator
    returns memory to the kernel. The program does not allocate again, so nothing shows that it
    needs more idle memory, and the limit of idle memory must not rise.
    """
    learnt, held, purged, idle = map(
        int, program("fill_and_empty.c", "linked")("slowly").out.split()
    )
    assert learnt == 0 and held == 128 * MIB
    # Memory in use adds to the limit, and the allocator may keep the last block as used memory.
    assert purged > 300 * MIB and idle <= held + 8 * MIB


def test_memory_that_was_needed_once_is_not_kept(
    program: Callable[..., Program],
) -> None:
    _, held, _, idle = map(int, program("fill_and_empty.c", "linked")("once").out.split())
    assert idle <= held < 500 * MIB
