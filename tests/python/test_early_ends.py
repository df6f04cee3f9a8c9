"""Tests of the profiles of programs that did not end normally.

The files of such programs have the CPU time, the page faults and the life times of the probe's last
look, which may have been long before the end.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.probes import TICKS_PER_NS, Made, busy, locking

from cairn.findings import find
from cairn.profile import estimates, lock_table, reader, tables, window
from cairn.profile.cpu_share import cpu_share
from cairn.profile.early_ends import Total, cpu_total_ns, faults_total
from cairn.profile.tally import ClockRun, KernelClock, Missing, Profile, Tree
from cairn.report import live_screen, profile, profile_export
from cairn.report.profile import title_parts
from cairn.report.view import View

SECOND, MS = 10**9, 10**6
FAULTS = 5_000 + 30 * 256 + 16_000
"""The page faults of storm(). Its peak is 30 MiB, which is 30 * 256 pages."""
TREE = Tree(
    ("./server",), "system", 2 * SECOND, 1_700 * MS, 300 * MS, 0, 0, FAULTS, 0, {},
    user_mode_only=False,
)  # fmt: skip


def storm(*, killed: bool, of: Made | None = None) -> Made:
    """A program that used 2 s of CPU time.

    1,000 system calls of 100 µs returned memory, which the program touched again. If it was killed,
    the probe last looked at it after 50 ms of CPU time.
    """
    made = of or Made()
    made.state, made.user_us = (1, 50_000) if killed else (2, 2_000_000)
    made.called("malloc", "large", 1_000, 64 << 10)
    made.fresh("large", 1_000)
    made.released("free", 1_000)
    made.timed("new", "large", [10_000] * 1_000)
    made.timed("free, local", "large", [100_000] * 1_000)
    made.kernel("madvise(DONTNEED)", 1_000, 100_000, 64 << 10)
    made.start["minor_faults"] = FAULTS
    return made


def gathered(folder: Path, *made: Made, tree: Tree | None = TREE) -> Profile:
    folder.mkdir(exist_ok=True)
    for one in made:
        one.write(folder)
    if tree is not None:
        reader.write_tree(folder, tree)
    return reader.gather(folder)


def flat(found: Profile) -> str:
    return " ".join(profile.render(found, View("text", False, False, 100)).split())


def test_the_cpu_time_of_a_killed_process_is_that_of_its_program(tmp_path: Path) -> None:
    """Once, it was that of the probe's last look.

    A server allocated for 50 ms and then computed for 2 s. Ended by SIGTERM, the report said that
    a finding was 49 % of the CPU time, where it was 2.7 % of the same server with a normal end.
    """
    ended, killed = (
        gathered(tmp_path / str(is_killed), storm(killed=is_killed)) for is_killed in (False, True)
    )
    assert estimates.cpu_ns(killed) == estimates.cpu_ns(ended) == 2 * SECOND
    assert estimates.busy_ns(killed) == estimates.busy_ns(ended)
    assert estimates.whole_cpu_ns(killed) is None
    assert title_parts(killed) == title_parts(ended)
    (effect,), (true,) = ((one.effect for one in find(found)) for found in (killed, ended))
    assert effect == true
    # 100 ms are in the calls, and 200 ms are in all page faults. Each page that was returned can
    # have caused one of them.
    again = 1_000 * (64 << 10) // 4096
    assert effect == pytest.approx((100 + 200 * again / FAULTS) / 2_000, rel=0.01)


def test_the_cpu_time_of_a_killed_process_has_limits_if_other_processes_are_missing(
    tmp_path: Path,
) -> None:
    tree = replace(TREE, missing=(Missing(7, "busybox", "static"),), minor_faults=40_000)
    found = gathered(tmp_path, storm(killed=True), tree=tree)
    assert cpu_total_ns(found) == Total(50 * MS, 2 * SECOND)
    assert faults_total(found) == Total(FAULTS, 40_000)
    # An effect is at most as large as it may be: it is a share of the most CPU time.
    assert estimates.cpu_ns(found) == 2 * SECOND
    text = flat(found)
    assert "CPU 50.0 ms to 2.00 s" in text
    # JSON once had only the upper limit.
    document = json.loads(profile_export.document(found, allocator="system", cairn="1"))
    limits = [document[name] for name in ("cpu_ns", "cpu_low_ns", "cpu_high_ns")]
    assert limits == [2 * SECOND, 50 * MS, 2 * SECOND]
    assert "page faults in total 28,680 to 40,000" in text
    assert "known only together with that of the missing processes" in text
    # The process itself executed the program that was not recorded: all time is its own.
    tree = replace(TREE, missing=(Missing(100, "busybox", "static"),))
    found = gathered(tmp_path / "executed", storm(killed=True), tree=tree)
    assert cpu_total_ns(found) == Total(2 * SECOND, 2 * SECOND)


def test_nothing_is_a_share_of_a_cpu_time_that_is_not_known(tmp_path: Path) -> None:
    """Only the probe's files were copied, without the launcher's figures."""
    found = gathered(tmp_path, storm(killed=True), tree=None)
    assert cpu_total_ns(found) == Total(50 * MS, None)
    assert estimates.cpu_ns(found) is None and estimates.busy_ns(found) is None
    assert find(found) == ()
    document = json.loads(profile_export.document(found, allocator="system", cairn="1"))
    assert document["cpu_ns"] is document["cpu_high_ns"] is None
    assert document["cpu_low_ns"] == 50 * MS
    text = flat(found)
    assert "CPU at least 50.0 ms" in text
    assert "page faults in total at least 28,680" in text
    assert "there can be no finding about CPU time" in text


def test_page_faults_in_the_allocator_are_not_limited_by_the_last_look(tmp_path: Path) -> None:
    made = storm(killed=True)
    made.faulted("new", "large", 100, 1_600, 16 * 1_600)
    made.faulted("free, local", "large", 100, 0)
    made.start["minor_faults"] = 900
    found = gathered(tmp_path, made)
    inside = tables.faults_inside(found)
    assert inside is not None and inside.value == 16_000
    assert faults_total(found) == Total(FAULTS, FAULTS)


def test_timers_give_the_same_share_whether_the_cpu_time_is_known_or_not(tmp_path: Path) -> None:
    """Each sample of a timer stands for 4 ms. Half of 500 samples are in the allocator.

    1,000 interceptions of 0.4 ms take 400 ms. A quarter of this time is in these samples.
    """
    made = storm(killed=True)
    made.start["dispatch_ticks"] = 400_000 * TICKS_PER_NS
    made.sampled(500, 250)
    shares = [
        cpu_share(gathered(tmp_path / str(place), made, tree=tree)).share
        for place, tree in enumerate((TREE, None))
    ]
    assert shares[0] == shares[1]
    assert shares[0] is not None and shares[0].value == pytest.approx(0.9 / 1.9)
    # Another process used 100 s of CPU time and has no samples, because it is missing.
    busier = replace(TREE, user_ns=100 * SECOND, missing=(Missing(7, "busybox", "static"),))
    assert cpu_share(gathered(tmp_path / "busier", made, tree=busier)).share == shares[0]


def test_a_killed_process_lived_until_its_program_ended(tmp_path: Path) -> None:
    """Two threads waited for 20 ms of the first 100 ms, and lived for 2 s.

    The share of the threads' time was once that of the first 100 ms.
    """
    made = locking(state=1, span_ns=100 * MS)
    made.start["threads_most"] = made.start["threads_started"] = 2
    made.threads["since_ticks"][:2] = 7
    made.locked("mutex", 10, [20 * MS * TICKS_PER_NS])
    tree = replace(TREE, wall_ns=2 * SECOND)
    found = gathered(tmp_path, made, tree=tree)
    assert found.tally.threads_ticks == 2 * 2 * SECOND * TICKS_PER_NS
    assert found.tally.lived_ns == 2 * SECOND
    (mmap,) = (one for one in tables.kernel_lines(found) if one.name == "mmap")
    assert mmap.per_second == pytest.approx(10 / 2)
    # Without the program's end, no share of the threads' time is known.
    (tmp_path / "run.json").unlink()
    alone = reader.gather(tmp_path)
    assert alone.tally.threads_ticks == alone.tally.lived_ns == 0
    assert all(one.per_second is None for one in tables.kernel_lines(alone))
    locks = lock_table.lock_table(alone)
    assert locks is not None and all(one.share is None for one in locks.uses)


def test_an_image_lived_until_another_one_replaced_it(tmp_path: Path) -> None:
    first = busy(pid=7, state=1, begin_ns=SECOND, span_ns=10 * MS)
    then = busy(pid=7, begin_ns=4 * SECOND, span_ns=SECOND, program=b"/bin/other")
    found = gathered(tmp_path, first, then)
    assert found.tally.lived_ns == 3 * SECOND + SECOND
    ended = gathered(tmp_path / "ended", busy(span_ns=SECOND))
    assert ended.tally.lived_ns == SECOND


def test_in_a_window_the_clock_samples_have_the_cpu_time_of_a_killed_process(
    tmp_path: Path,
) -> None:
    """The process lived when the window began, and is gone when it ends."""
    made = storm(killed=True)
    made.pid, made.begin_ns = os.getpid(), time.monotonic_ns() - SECOND
    made.write(tmp_path)
    begin = window.look(tmp_path)
    made.called("malloc", "small", 1_000, 100)
    gone = storm(killed=True, of=busy())
    gone.pid, gone.begin_ns = 2_000_000, begin.at_ns + 1
    gone.write(tmp_path)
    (tmp_path / f"{made.pid}.{made.begin_ns}.probe").unlink()
    found = window.since(tmp_path, begin, begin.at_ns)
    assert cpu_total_ns(found) == Total(50 * MS, None)
    assert estimates.cpu_ns(found) is None
    (process,) = found.processes
    assert found.tally.lived_ns == process.end_ns - process.begin_ns
    assert found.window is not None and process.end_ns == found.window.end_ns
    seen = live_screen.Seen(1, found)
    assert "50.0 ms" in "\n".join(live_screen.lines("", None, seen, "", 100, 40))
    run = ClockRun(True, "processors", 400, 50e6, program_ns=300e6, probe_ns=10e6)
    sampled = replace(found, clock=KernelClock((run,)))
    assert estimates.cpu_ns(sampled) == 360 * MS
    blind = replace(found, clock=KernelClock((replace(run, scope="threads in user mode"),)))
    assert estimates.cpu_ns(blind) is None
