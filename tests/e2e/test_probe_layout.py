"""Tests of where blocks lie, with allocators that place blocks by a formula."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.placed import TOYS, Toy, truth
from support.probing import Probed

from cairn.profile.layout import Figure, Layout
from cairn.profile.metrics import measured
from cairn.profile.tally import GROUPS

Run = Callable[[Toy, int, str], Layout]

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

NEAR = 0.005
"""The largest relative error of a figure near the peak. The blocks of libc cause it, and so do the
unused ends of the areas in which the allocator places blocks."""
EARLY = 0.05
"""The largest relative error long before the peak. The areas are small then, so the unused part of
the last page of each area weighs more."""
REPEATED = [(1, 0.16), (5, 0.08)]
"""How often each placement (Toy) runs, and the largest share of intervals that may miss the truth.
A 95 % interval misses in one of 20 tries. If one figure of a run misses, its other figures often
miss, too, so a test of few runs allows a larger share."""


QUICKLY = list({toy.place: toy for toy in reversed(TOYS)}.values())
"""The first toy of each placement."""
BY_BLOCK = ("straddling", "same_line", "next_line", "same_page", "further", "set_share")
"""Figures that are shares of 2,048 sampled allocations. They are sampled in exact layouts, too."""
RUNS = 12
"""How often a program with breakpoints is run before the test fails."""
FROM_BLOCKS = 0.06
"""The largest error of these figures. It is more than five standard errors of a share that is
estimated from 2,048 samples."""


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


@pytest.fixture
def run(probed: Probed, compiled: Callable[..., Path]) -> Run:
    program = compiled("placed.c", "-pthread", "-fno-builtin")
    library = compiled("placing_malloc.c", "-shared", "-pthread", "-fno-builtin")

    def run(toy: Toy, threads: int, way: str) -> Layout:
        probed(
            program,
            *toy.arguments(threads),
            allocator=library,
            PLACE=toy.place,
            PLACE_SIZE=str(toy.size),
            CAIRN_PROBE_LAYOUT=way,
        )
        found = probed.profile.layout
        assert found is not None
        return found

    return run


def figures(toy: Toy, threads: int, found: Layout) -> Iterator[tuple[str, float, Figure | None]]:
    """Yields the name, the true value and the measured value of each figure.

    The true values follow from the formula by which the allocator places blocks.
    """
    near = found.neighbours[GROUPS.index("small" if toy.size <= 1024 else "medium")]
    for name, value in truth(toy, threads).items():
        yield name, value, getattr(near if hasattr(near, name) else found, name)


def holds(value: float, figure: Figure | None, near: float) -> bool:
    near *= max(abs(value), 0.02)
    return figure is not None and figure.low - near <= value <= figure.high + near


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 4])
@pytest.mark.parametrize(
    "toy",
    [
        pytest.param(
            toy,
            marks=[] if toy in QUICKLY else pytest.mark.long,
            id=f"{toy.place}-{toy.size}-{toy.waiting}",
        )
        for toy in TOYS
    ],
)
def test_exact_figures_have_the_value_of_the_formula(toy: Toy, threads: int, run: Run) -> None:
    found = run(toy, threads, "exact")
    assert found.way == "exact"
    for name, value, figure in figures(toy, threads, found):
        assert figure is not None, name
        near = FROM_BLOCKS if name in BY_BLOCK else NEAR * max(abs(value), 0.02)
        assert abs(figure.value - value) <= near, name


Missed = Counter[tuple[str, int, int, str]]


def sampled_misses(run: Run, times: int) -> tuple[Missed, Missed]:
    """Returns how often the intervals of each figure missed its value, and how often it was tried.

    The key is placement, block size, number of threads, and figure.
    """
    misses, tries = Missed(), Missed()
    for toy in TOYS:
        for threads in (1, 4) * times:
            found = run(toy, threads, "sampled")
            peak = toy.count * toy.size * threads
            near = NEAR if found.snapshot_bytes > 0.9 * peak else EARLY
            for name, value, figure in figures(toy, threads, found):
                key = (toy.place, toy.size, threads, name)
                tries[key] += 1
                misses[key] += not holds(value, figure, near)
    return misses, tries


@pytest.mark.long
@pytest.mark.parametrize(("times", "misses_most"), REPEATED)
def test_sampled_intervals_hold_the_value_of_the_formula(
    run: Run, times: int, misses_most: float
) -> None:
    """A single run of each placement may be repeated, because all its misses can come together."""
    for _ in range(2 if times == 1 else 1):
        misses, tries = sampled_misses(run, times)
        assert tries.total() > 170 * times
        if misses.total() <= misses_most * tries.total():
            return
    raise AssertionError([one for one in misses.items() if one[1]])


def test_frees_are_seen_in_regions_that_stay_tracked_when_others_are_given_up(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    """The allocator reuses nothing. A third of the pages has one block of the eight that were there.

    The probe gives up regions again and again while the first blocks are allocated. If it then
    forgot the blocks in the others, it would not see their frees, and all pages would seem full.
    An interval misses the truth in one of twenty runs, so there may be six.
    """
    program = compiled("thinned.c", "-fno-builtin")
    allocator = compiled("placing_malloc.c", "-shared", "-pthread", "-fno-builtin")
    about = {"PLACE": "packed", "PLACE_SIZE": "480", "CAIRN_PROBE_LAYOUT": "sampled"}
    truth = (2 + 1 / 8) / 3
    missed = []
    for _ in range(6):
        probed(program, *(20_000, 480, 8), allocator=allocator, **about)
        found = probed.profile.layout
        assert found is not None and found.page_use is not None
        assert found.regions < 20_000 * 480 * 3 / 32768 / 2, "no region was given up"
        if found.page_use.low <= truth <= found.page_use.high:
            return
        missed.append(found.page_use)
    raise AssertionError(missed)


@pytest.mark.parametrize(
    ("place", "writers"),
    [("shared", 2), ("packed", 2), pytest.param("shared", 1, marks=pytest.mark.long)],
    ids=str,
)
def test_breakpoints_tell_lines_that_two_threads_write_to(
    place: str, writers: int, probed: Probed, compiled: Callable[..., Path]
) -> None:
    """The probe sets breakpoints on a line for some time, and then on the next line.

    It usually does this in an allocation. These threads allocate nothing while they write, so it
    must do this in the handler of its timers.
    """
    program = compiled("line_writers.c", "-pthread", "-fno-builtin")
    library = compiled("placing_malloc.c", "-shared", "-pthread", "-fno-builtin")
    for _ in range(RUNS):  # on a busy machine, both threads may not run at once
        probed(
            program,
            *(2, 32, 16, writers, 5_000),
            allocator=library,
            PLACE=place,
            PLACE_SIZE="16",
            CAIRN_PROBE_LAYOUT="sampled",
        )
        found = probed.profile.layout
        assert found is not None
        watches = found.watches
        if watches.refused:
            pytest.skip(f"the kernel refuses hardware breakpoints: {watches.refused}")
        if place != "shared":  # the threads share lines with blocks that they only read
            assert watches.confirmed == 0
            return
        assert watches.confirmed + watches.written <= watches.lines <= 16
        if writers == 1:
            assert watches.confirmed == 0 and watches.least_bytes == 0
            if watches.written:
                return
        elif watches.confirmed:
            assert watches.least_bytes == watches.most_bytes == 16
            return
    pytest.fail(f"nothing was seen in {RUNS} runs: {watches}")


def test_breakpoints_take_no_descriptors_that_the_program_would_get(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    """Each breakpoint has a descriptor of the probe, which must lie above those of the program.

    The main thread of the program begins and ends all watches, because the other threads only wait.
    So no other thread makes a descriptor while the program asks for one.
    """
    program = compiled("line_sharers.c", "-pthread", "-fno-builtin")
    library = compiled("placing_malloc.c", "-shared", "-pthread", "-fno-builtin")
    alone = subprocess.check_output([program, "8", "16", "1"], text=True)
    for _ in range(RUNS):  # on a busy machine, every watch may end too late to count
        said = probed(
            program,
            *(8, 16, 150),
            allocator=library,
            PLACE="shared",
            PLACE_SIZE="16",
            CAIRN_PROBE_GAP="1",
            CAIRN_PROBE_LAYOUT="sampled",
        )
        found = probed.profile.layout
        assert found is not None
        if found.watches.refused:
            pytest.skip(f"the kernel refuses hardware breakpoints: {found.watches.refused}")
        assert said == alone
        if found.watches.lines > 0:
            return
    pytest.fail(f"no line was watched in {RUNS} runs")


def test_a_kernel_that_refuses_breakpoints_is_told(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    refusing = compiled("without_perf_events.c")
    library = compiled("placing_malloc.c", "-shared", "-pthread", "-fno-builtin")
    probed(
        refusing,
        compiled("line_writers.c", "-pthread", "-fno-builtin"),
        *(2, 1000, 16, 2, 100),
        allocator=library,
        PLACE="shared",
        PLACE_SIZE="16",
        CAIRN_PROBE_LAYOUT="sampled",
    )
    found = probed.profile.layout
    assert found is not None and found.watches.lines == 0
    assert found.watches.refused == errno.EPERM


def test_without_layout_there_is_no_file_and_no_table(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    probed(compiled("placed.c", "-pthread", "-fno-builtin"), 1, 1000, 48, 0, 0)
    assert not list(probed.out.glob("*.layout"))
    assert probed.profile.layout is None


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[madvise]" not in HUGE_PAGES.read_text(),
    reason="the kernel does not give huge pages on request alone",
)
@pytest.mark.parametrize(
    ("asks", "low", "high"), [((), 0.0, 0.0), (("huge",), 0.8, 1.0)], ids=["small", "huge"]
)
def test_the_share_of_memory_in_huge_pages_is_known_with_a_layout(
    probed: Probed, compiled: Callable[..., Path], asks: tuple[str, ...], low: float, high: float
) -> None:
    """Each run is compared with what the kernel tells of the same process.

    If the kernel has no free huge pages, the program gets none. So one of several runs must get the
    huge pages that it asked for, or the test is skipped.

    The option glibc.malloc.hugetlb is no replacement for such a program: glibc 2.36 compares a text
    whose last byte it has not written, so it may ask for no huge pages.
    """
    command = (compiled("walked_table.c", "-O2", "-fno-builtin"), 20_000, 10_000_000, *asks)
    for _ in range(RUNS):
        process = probed.start(*command, CAIRN_PROBE_LAYOUT="sampled")
        truth = huge_share(process, least_kib=60_000)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0 and not errors, errors
        value, *_ = measured(probed.profile)["huge"]
        assert value <= high
        if truth is None:  # a busy machine looked too late
            continue
        assert abs(value - truth) <= 0.2, "not what the kernel tells"
        if value >= low:
            return
    pytest.skip(f"in {RUNS} runs, the program got few huge pages, or could not be looked at")


def huge_share(process: subprocess.Popen[str], least_kib: int) -> float | None:
    """Waits for the end of a process. Returns its share of huge pages when its memory was largest.

    Returns None if its memory was never seen to reach `least_kib`.
    """
    rollup = Path(f"/proc/{process.pid}/smaps_rollup")
    largest = (0, 0)
    while process.poll() is None:
        try:
            text = rollup.read_text()
        except (FileNotFoundError, ProcessLookupError):
            break
        sizes = dict(re.findall(r"^(\w+): +(\d+) kB$", text, re.MULTILINE))
        largest = max(largest, (int(sizes.get("Rss", 0)), int(sizes.get("AnonHugePages", 0))))
        time.sleep(0.005)
    return largest[1] / largest[0] if largest[0] >= least_kib else None


def test_a_large_block_that_is_never_written_takes_little_memory(probed: Probed) -> None:
    """Each tracked region takes 17 KiB. All 32,768 regions of this block were once tracked."""
    program = (
        "import ctypes; malloc = ctypes.CDLL(None).malloc; malloc.restype = ctypes.c_void_p; "
        "resident = lambda: int(open('/proc/self/statm').read().split()[1]); before = resident(); "
        "assert malloc(ctypes.c_size_t(1 << 30)); print(resident() - before)"
    )
    pages = int(probed(sys.executable, "-c", program, CAIRN_PROBE_LAYOUT="sampled"))
    assert pages * os.sysconf("SC_PAGESIZE") < 16 << 20


def test_a_child_of_fork_is_as_quick_as_its_parent(
    probed: Probed, compiled: Callable[..., Path]
) -> None:
    """The layout is that of the parent only.

    A sampled allocation before the fork once waited for its next block all the child's life. Each
    operation then took four times as long.
    """
    told = probed(compiled("forked_pairs.c", "-fno-builtin"), CAIRN_PROBE_LAYOUT="sampled")
    of_parent, of_child = map(int, told.split())
    assert of_child < 2 * of_parent
