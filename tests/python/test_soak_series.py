"""Tests of soak.series() with invented files of the probe: memory until the allocator is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.probes import Made, busy

from cairn.memory import AFTER_ITS_END
from cairn.run import soak
from cairn.run.soak import Asked
from cairn.soak.judge import Kind, Reason, judge

BEGIN_NS, S, MS = 10**12, 10**9, 10**6
RUNNING, ENDED = 1, 2
ASKED = Asked(BEGIN_NS + 3 * S, BEGIN_NS + 5 * S, answered=(7,), running=(7,))


def a_process(state: int = RUNNING, pid: int = 7, begin_ns: int = BEGIN_NS) -> Made:
    """A process with a moment each second, at which it has 8, 16, … KiB of live memory.

    The allocator holds ten times as much, until it gives half of it back after the third second.
    """
    made = busy(pid=pid, state=state, begin_ns=begin_ns)
    made.moments(
        (1 * S, 8 << 10, 80 << 10, 90 << 10),
        (2 * S, 16 << 10, 160 << 10, 180 << 10),
        (3 * S + 1 * MS, 24 << 10, 240 << 10, 270 << 10),
        (3 * S + 2 * MS, 24 << 10, 120 << 10, 150 << 10),
    )
    return made


def test_a_series_ends_when_the_allocator_is_asked(tmp_path: Path) -> None:
    a_process().write(tmp_path)
    found = soak.series(tmp_path, ASKED)
    assert found is not None
    assert found.at_ms == (1000, 2000, 3000)
    assert found.live == (9 << 10, 18 << 10, 27 << 10)
    assert found.held == (80 << 10, 160 << 10, 240 << 10), "before the allocator gave memory back"
    assert found.resident == (90 << 10, 180 << 10, 270 << 10)
    assert found.trim is not None and found.no_trim is None
    trim = found.trim
    assert (trim.live_bytes, trim.held_bytes, trim.after_bytes) == (27 << 10, 240 << 10, 120 << 10)


def test_without_an_answer_the_last_reading_before_the_request_counts(tmp_path: Path) -> None:
    a_process().write(tmp_path)
    found = soak.series(tmp_path, replace(ASKED, answered=(), problem="did not answer"))
    assert found is not None
    assert found.at_ms == (1000, 2000, 3000)
    assert found.held == (80 << 10, 160 << 10, 160 << 10)
    assert (found.trim, found.no_trim) == (None, "did not answer")


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(replace(ASKED, running=(), answered=()), id="ended before the request"),
        pytest.param(None, id="no request"),
    ],
)
def test_the_last_moment_of_a_process_that_ended_is_left_out(
    tmp_path: Path, asked: Asked | None
) -> None:
    a_process(state=ENDED).write(tmp_path)
    found = soak.series(tmp_path, asked)
    assert found is not None
    whole = (1000, 2000, 3001)
    assert found.at_ms == (whole[:2] if asked is not None else whole)
    assert found.no_trim == (AFTER_ITS_END if asked is None else "did not answer in time")


def test_a_moment_at_the_time_of_the_request_is_after_it(tmp_path: Path) -> None:
    a_process().write(tmp_path)
    found = soak.series(tmp_path, replace(ASKED, at_ns=BEGIN_NS + 2 * S))
    assert found is not None
    assert found.at_ms == (1000, 2000)
    assert found.held == (80 << 10, 160 << 10), "the answer: the first moment after the request"


def test_a_program_that_was_replaced_by_exec_ends_with_its_last_moment(tmp_path: Path) -> None:
    """The second program of the process has no moments, so the process has no memory then."""
    a_process().write(tmp_path)
    later = Made(pid=7, state=RUNNING, begin_ns=BEGIN_NS + 2 * S + 500 * MS)
    later.called("malloc", "small", 1, 100)
    later.write(tmp_path)
    found = soak.series(tmp_path, ASKED)
    assert found is not None and found.at_ms == (1000, 2000)


def test_the_memory_of_two_processes_is_added_up(tmp_path: Path) -> None:
    a_process().write(tmp_path)
    a_process(pid=8, begin_ns=BEGIN_NS + S).write(tmp_path)
    asked = Asked(BEGIN_NS + 3 * S, BEGIN_NS + 5 * S, answered=(7, 8), running=(7, 8))
    found = soak.series(tmp_path, asked)
    assert found is not None and found.processes == 2
    held = dict(zip(found.at_ms, found.held, strict=True))
    assert held[1000] == 80 << 10, "the second process has its first moment at 2 s"
    assert held[3000] == (240 + 160) << 10
    assert 160 << 10 < held[max(at for at in held if at < 3000)] < (240 + 160) << 10
    assert found.at_ms == tuple(sorted(set(found.at_ms)))


def with_readings(folder: Path, pid: int, times_ms: Sequence[int], per_ms: int = 1 << 10) -> None:
    """Writes a process with these readings, whose memory grows by `per_ms` bytes a millisecond."""
    made = busy(pid=pid, state=RUNNING, begin_ns=BEGIN_NS)
    made.moments(*((at * MS, at * per_ms, at * per_ms, at * per_ms) for at in times_ms))
    made.write(folder)


def test_a_tree_has_only_the_readings_of_its_processes(tmp_path: Path) -> None:
    """The sums of two processes with three readings each once had 512 readings, and were a leak."""
    with_readings(tmp_path, 7, (1000, 29_000))
    with_readings(tmp_path, 8, (2000, 29_500))
    asked = Asked(BEGIN_NS + 30 * S, BEGIN_NS + 31 * S, running=(7, 8), problem="did not answer")
    found = soak.series(tmp_path, asked)
    assert found is not None and found.at_ms == (1000, 2000, 29_000, 29_500, 30_000)
    judged = judge(found)
    assert (judged.kind, judged.reason) == (Kind.UNKNOWN, Reason.READINGS)


def test_a_tree_that_rests_has_no_reading_in_the_last_half(tmp_path: Path) -> None:
    for pid in (7, 8):
        with_readings(tmp_path, pid, range(100 * pid, 9000, 200))
    asked = Asked(BEGIN_NS + 30 * S, BEGIN_NS + 31 * S, running=(7, 8), problem="did not answer")
    found = soak.series(tmp_path, asked)
    assert found is not None
    assert judge(found).reason is Reason.RESTS


def test_the_many_readings_of_a_tree_are_thinned_over_its_time(tmp_path: Path) -> None:
    """A burst of readings must not take the place of the readings in the rest of the time."""
    with_readings(tmp_path, 7, range(1, 380))
    with_readings(tmp_path, 8, range(380, 700))
    with_readings(tmp_path, 9, range(1000, 60_000, 200))
    asked = Asked(BEGIN_NS + 60 * S, BEGIN_NS + 61 * S, running=(7, 8, 9), problem="did not answer")
    found = soak.series(tmp_path, asked)
    assert found is not None and len(found.at_ms) <= 512
    assert (found.at_ms[0], found.at_ms[-1]) == (1, 60_000)
    assert sum(at > 1000 for at in found.at_ms) >= 290, "a reading each 200 ms"


def test_without_files_there_is_no_series(tmp_path: Path) -> None:
    assert soak.series(tmp_path, ASKED) is None
    made = Made()
    made.called("malloc", "small", 1, 100)
    made.write(tmp_path)
    assert soak.series(tmp_path, ASKED) is None, "no moments"
