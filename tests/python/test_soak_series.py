"""Tests of soak.series() with invented files of the probe: memory until the allocator is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.probes import Made, busy

from cairn.memory import AFTER_ITS_END
from cairn.run import soak
from cairn.run.soak import Asked

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


def test_without_files_there_is_no_series(tmp_path: Path) -> None:
    assert soak.series(tmp_path, ASKED) is None
    made = Made()
    made.called("malloc", "small", 1, 100)
    made.write(tmp_path)
    assert soak.series(tmp_path, ASKED) is None, "no moments"
