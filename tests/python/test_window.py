"""Tests of profiles of a window, which is a part of a program's life.

The counts of a window are those at its end minus those at its beginning.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.probes import Made, busy, locking

from cairn.cli.window import Counting, Span
from cairn.findings import _busy
from cairn.model import Unreached
from cairn.page.over_time import calls_over_time
from cairn.profile import estimates, reader, tables, window
from cairn.profile.lock_table import thread_ns
from cairn.profile.tally import Missing, MomentCalls, cut_short
from cairn.report import profile, profile_tables
from cairn.report.view import View
from cairn.run import foreground

MINE = os.getpid()


def running(**about: object) -> Made:
    """Returns the probe's file of a living process, which is the process of this test."""
    return locking(pid=MINE, state=1, begin_ns=time.monotonic_ns() - 10**9, **about)


def more(made: Made) -> Made:
    """Returns the file of the same process at a later moment."""
    made.called("malloc", "small", 1_000, 100)
    made.timed("reused", "small", [70] * 20)
    made.released("free", 1_000)
    made.timed("free, local", "small", [30] * 20)
    made.kernel("mmap", 2, 90_000, 1 << 16)
    made.kernel("munmap", 1, 10, 1 << 16)
    made.locked("mutex", 100, [90])
    return made


def test_counts_from_before_the_window_do_not_count(tmp_path: Path) -> None:
    made = running()
    made.write(tmp_path)
    begin = window.look(tmp_path)
    more(made).write(tmp_path)
    found = window.since(tmp_path, begin, begin.at_ns - 5_000)
    assert found.operations == 2_000
    total = estimates.lines(found)[-1]
    assert total.total_ns is not None
    assert total.total_ns.value == pytest.approx(1_000 * 70 + 1_000 * 30)
    calls = {one.name: one for one in tables.kernel_lines(found)}
    assert (calls["mmap"].count, calls["mmap"].bytes, calls["mmap"].max_ns) == (2, 2 << 16, 90_000)
    # The longest munmap was before the window, so that the longest one inside is unknown.
    assert calls["munmap"].max_ns is None
    mutex = tables.lock_lines(found)[0]
    assert (mutex.taken, mutex.contended, mutex.wait_ns, mutex.max_wait_ns) == (100, 1, 45, None)
    assert found.window is not None
    assert found.window.after_ns == 5_000
    assert not cut_short(found.processes)


def test_threads_live_through_the_whole_window_even_if_the_file_is_old(tmp_path: Path) -> None:
    """Three threads began long before the window.

    The file contains the time at which the probe last read the clock. This time does not advance,
    although the threads live on.
    """
    made = running()
    made.start["threads_most"] = 3
    made.threads["since_ticks"][:3] = 7
    made.write(tmp_path)
    begin = window.look(tmp_path)
    time.sleep(0.05)
    found = window.since(tmp_path, begin, 0)
    ticking = estimates.clock(found.tally)
    assert ticking is not None and found.wall_ns >= 50_000_000
    assert found.tally.threads_ticks * ticking.ns_per_tick == pytest.approx(
        3 * found.wall_ns, rel=0.01
    )


def test_threads_share_the_processors_of_a_window(tmp_path: Path) -> None:
    """The number of processors was once looked for in the launcher's data, which a window lacks.

    The 64 threads use half of the time of two processors, and not 1.6 % of their life times.
    """
    made = running()
    made.start["threads_most"] = 64
    made.write(tmp_path)
    begin = window.look(tmp_path)
    used = time.process_time_ns()
    while time.process_time_ns() < used + 50_000_000:
        pass
    found = window.since(tmp_path, begin, 0, processors=2)
    assert found.tree is None and found.window is not None and found.window.processors == 2
    busy_ns, threads_ns = estimates.busy_ns(found), thread_ns(found)
    assert busy_ns is not None and threads_ns == pytest.approx(64 * found.wall_ns, rel=0.01)
    assert _busy(found) == pytest.approx(min(1.0, busy_ns / (2 * found.wall_ns)))
    unlimited = replace(found, window=replace(found.window, processors=None))
    assert _busy(unlimited) == pytest.approx(busy_ns / threads_ns)


def test_a_program_that_executes_another_one_in_the_window_lives_once(tmp_path: Path) -> None:
    """The first program once lived until the end of the window, beside the second one."""
    made = running()
    made.write(tmp_path)
    begin = window.look(tmp_path)
    time.sleep(0.05)
    locking(pid=MINE, state=1, begin_ns=time.monotonic_ns()).write(tmp_path)
    time.sleep(0.05)
    more(made).write(tmp_path)
    found = window.since(tmp_path, begin, 0)
    assert len(found.processes) == 2
    assert found.tally.lived_ns == pytest.approx(found.wall_ns, rel=0.02)


def test_cpu_time_comes_from_the_kernel_and_not_from_the_file(tmp_path: Path) -> None:
    running(user_us=77_000_000).write(tmp_path)
    begin = window.look(tmp_path)
    used = time.process_time_ns()
    while time.process_time_ns() < used + 50_000_000:
        pass
    cpu = estimates.cpu_ns(window.since(tmp_path, begin, 0))
    assert cpu is not None
    assert 50_000_000 <= cpu < 1_000_000_000


def test_processes_that_ended_before_the_window_do_not_count_and_new_ones_count_fully(
    tmp_path: Path,
) -> None:
    busy(pid=2_000_000, begin_ns=1).write(tmp_path)
    # This process was killed: its file says that it runs, but no such process exists.
    gone = busy(pid=2_000_001, begin_ns=2, state=1)
    gone.write(tmp_path)
    begin = window.look(tmp_path)
    with pytest.raises(reader.NoProfile, match="nothing was counted in that time"):
        window.since(tmp_path, begin, 0)
    busy(pid=2_000_002, begin_ns=begin.at_ns + 1).write(tmp_path)
    found = window.since(tmp_path, begin, 0)
    assert [process.pid for process in found.processes] == [2_000_002]
    assert found.operations == busy_operations(tmp_path)
    assert estimates.cpu_ns(found) == 900_000_000


def busy_operations(folder: Path) -> int:
    (alone,) = folder.glob("2000002.*")
    return int(reader.read(alone).tally.calls.sum()) + 70_410


def test_memory_from_before_the_window_is_not_shrunk_in_it(tmp_path: Path) -> None:
    """Half of the bytes that brk moved once counted as returned, if the window had no moment."""
    made = running()
    made.moments((4_000_000, 1 << 20, 2 << 20, 100 << 20))
    made.write(tmp_path)
    begin = window.look(tmp_path)
    made.kernel("brk", 10, 1_000, 1 << 30)
    made.write(tmp_path)
    (process,) = window.since(tmp_path, begin, 0).processes
    assert process.shrunk_bytes == 0


def test_memory_is_that_of_the_window(tmp_path: Path) -> None:
    made = running()
    made.moments((4_000_000, 1 << 20, 2 << 20, 9 << 20), (2_000_000_000, 3 << 20, 4 << 20, 5 << 20))
    made.write(tmp_path)
    begin = window.look(tmp_path)
    found = window.since(tmp_path, begin, 0)
    assert [moment.live_bytes for moment in found.moments] == [3 << 20]
    assert 0 < found.moments[0].ns < 2_000_000_000
    assert found.processes[0].peak_resident_bytes == 5 << 20
    assert found.processes[0].held_bytes == 4 << 20
    made.moments((4_000_000, 1 << 20, 2 << 20, 9 << 20), (5_000_000, 3 << 20, 4 << 20, 5 << 20))
    made.write(tmp_path)
    (process,) = window.since(tmp_path, begin, 0).processes
    # No moment is in this window, so the last one before it counts.
    assert process.held_bytes == 4 << 20


def test_the_most_held_memory_is_known_if_it_grew_in_the_window(tmp_path: Path) -> None:
    made = running()
    made.moments((4_000_000, 1 << 20, 2 << 20, 9 << 20), (2_000_000_000, 3 << 20, 4 << 20, 5 << 20))
    made.start["held_most"] = 6 << 20
    made.write(tmp_path)
    begin = window.look(tmp_path)
    (process,) = window.since(tmp_path, begin, 0).processes
    assert (process.held_bytes, process.held_counted) == (4 << 20, False)
    made.start["held_most"] = 7 << 20
    made.write(tmp_path)
    (process,) = window.since(tmp_path, begin, 0).processes
    assert (process.held_bytes, process.held_counted) == (7 << 20, True)


@pytest.mark.parametrize(("before", "within", "grown"), [(64, 64, 0), (64, 80, 16), (0, 80, 80)])
def test_the_growth_of_the_resident_set_is_that_of_the_window(
    tmp_path: Path, before: int, within: int, grown: int
) -> None:
    """The whole resident set once counted as touched in the window for the first time.

    Without a moment before the window, it may have been.
    """
    mib = 1 << 20
    made = running()
    moments = [(4_000_000, mib, 2 * mib, before * mib), (2 * 10**9, mib, 2 * mib, within * mib)]
    made.moments(*moments)
    made.write(tmp_path)
    begin = window.look(tmp_path)
    (process,) = window.since(tmp_path, begin, 0).processes
    assert process.grown_bytes is not None and process.peak_resident_bytes == within * mib
    # The process of this test may have grown meanwhile, too.
    assert grown * mib <= process.grown_bytes <= (grown + 8) * mib
    new = window.since(tmp_path, replace(begin, at_ns=0, counted={}, usage={}), 0).processes[0]
    assert new.grown_bytes is not None and new.grown_bytes >= within * mib


def test_the_system_calls_over_time_are_those_of_the_window(tmp_path: Path) -> None:
    """The first row of the table once had all calls since the start of the process.

    Before the window, the process made 20 calls for memory and 3 others (those of busy()).
    """
    made = running()
    moments = (4_000_000, 20, 0, 3), (2_000_000_000, 25, 1, 4), (2_500_000_000, 29, 2, 4)
    made.moments(*((ns, 1 << 20, 2 << 20, 9 << 20) for ns, *_ in moments))
    for place, (_, *calls) in enumerate(moments):
        names = ("memory_calls", "waiting_calls", "other_calls")
        for name, number in zip(names, calls, strict=True):
            made.samples["moments"][0, place][name] = number
    made.write(tmp_path)
    begin = window.look(tmp_path)
    found = window.since(tmp_path, begin, 0)
    assert [one.calls for one in found.moments] == [MomentCalls(5, 1, 1), MomentCalls(9, 2, 1)]
    table = profile_tables.table_named(found, "calls over time")
    assert table is not None
    rows = [[cell.text for cell in row[1:]] for row in table.rows]
    assert rows == [["5", "1", "1"], ["4", "1", "0"]]
    drawn = calls_over_time(found)
    assert drawn is not None and drawn.across.title == "time since counting began"
    # A new process has no calls before the window.
    new = window.since(tmp_path, replace(begin, at_ns=0, counted={}, usage={}), 0)
    assert [one.calls.memory for one in new.moments if one.calls] == [20, 25, 29]


@pytest.mark.parametrize("grows", [False, True])
def test_the_peak_of_live_bytes_is_that_of_the_window(tmp_path: Path, grows: bool) -> None:
    """If the peak of the whole life grew, it lies in the window. Else the moments have to do."""
    mib, held_back = 1 << 20, 8192
    made = running()
    made.moments((4_000_000, mib, 2 * mib, 9 * mib), (2_000_000_000, 4 * mib, 6 * mib, 7 * mib))
    made.live(9 * mib, held_back, (9 * mib, 8 * mib, 0))
    made.write(tmp_path)
    begin = window.look(tmp_path)
    if grows:
        made.live(10 * mib, held_back, (10 * mib, 9 * mib, 0))
    more(made).write(tmp_path)
    (process,) = window.since(tmp_path, begin, 0).processes
    usable, requested = process.peak_usable, process.peak_requested
    assert usable is not None and requested is not None
    if grows:
        assert (usable.bytes, usable.low) == (10 * mib, 10 * mib - held_back)
        return
    last = 4 * mib + mib // 2
    assert (usable.bytes, usable.low, usable.high) == (last, last - held_back, 9 * mib + held_back)
    assert (requested.bytes, requested.low) == (4 * mib, 4 * mib - held_back)
    assert requested.high >= 8 * mib


def test_the_report_says_what_was_counted(tmp_path: Path) -> None:
    made = running()
    made.write(tmp_path)
    begin = window.look(tmp_path)
    more(made).write(tmp_path)
    found = window.since(tmp_path, begin, begin.at_ns - 3_000_000_000)
    text = profile.render(found, View(full=True))
    assert "beginning 3.00 s after the start" in " ".join(text.split())
    assert "counted for" in text


def test_a_window_names_the_missing_processes_that_ran_in_it(tmp_path: Path) -> None:
    """Once, only the profile of a whole program named them, and the profile of a window did not."""
    alive, dead, later = MINE, 2_000_001, 2_000_003
    recorded = busy(pid=2_000_002, begin_ns=2, state=1, program="/bin/app")
    recorded.write(tmp_path)
    silent = [(2_000_002, Unreached(reason="silent", path="/bin/app"))]
    before = [
        *((pid, Unreached(reason="static", path="/bin/busybox")) for pid in (alive, dead)),
        *silent,
    ]
    begin = window.look(tmp_path, unreached=before)
    busy(pid=2_000_004, begin_ns=begin.at_ns + 1).write(tmp_path)
    now = [*before, (later, Unreached(reason="static", path="/bin/busybox"))]
    found = window.since(tmp_path, begin, 0, unreached=now)
    assert found.missing == (
        Missing(alive, "busybox", "static"),
        Missing(later, "busybox", "static"),
    )
    text = " ".join(profile.render(found, View("text", False, False, 100), allocator="x").split())
    assert "2 of 3 processes are missing: busybox (" in text


def test_a_signal_after_the_programs_end_does_not_kill_cairn(tmp_path: Path) -> None:
    """The second --signal once ended Cairn without a report if the program had just ended."""
    number = signal.SIGUSR2
    before = signal.getsignal(number)
    span = Span(toggle=number)
    try:
        with (
            Counting(span, tmp_path, None, tmp_path / "witness", lambda _: None) as counting,
            foreground._signals_passed_on(counting.signals),
        ):
            os.kill(MINE, number)
        os.kill(MINE, number)
    finally:
        signal.signal(number, before)
