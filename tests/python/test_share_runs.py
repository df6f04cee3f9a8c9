"""Tests of the further runs for the allocator's share of CPU time. No program runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.probes import Made, busy

from cairn.cli import share_runs
from cairn.cli.share_runs import BUDGET_S, RUNS_MOST, Again, GivenInput
from cairn.errors import CairnError, UsageError
from cairn.model import Contender
from cairn.profile import cpu_samples, reader
from cairn.profile.tally import ClockRun, KernelClock, Profile
from cairn.report.profile_gaps import gaps
from cairn.run import foreground
from cairn.run.foreground import Ended

MS = 1e6
COMMAND = ("prog", "1")
SYSTEM = Contender("system", "system", "glibc 2.36", probed=True)
ENDED = Ended(exit_code=0, problem=None, left_behind=0)
NO_INPUT = GivenInput(None, is_read_once=False)
REFUSED = "the kernel does not allow clock samples here: Permission denied"


def a_run(samples: int = 400, share: float = 0.3, **about: Any) -> ClockRun:
    known: dict[str, Any] = {
        "probed": False,
        "scope": "processors",
        "samples": samples,
        "own_ns": samples * share * MS,
        "program_ns": samples * (1 - share) * MS,
        "inside_squares": samples * share * MS**2,
        "squares": samples * MS**2,
    }
    return ClockRun(**(known | about))


@dataclass
class Runs:
    """The runs of a program, and how each of them ends."""

    clocks: list[ClockRun | None]
    """The samples of each run in turn, the profiled run first. Later runs get the last entry."""
    ends: list[Ended] = field(default_factory=lambda: [ENDED])
    """The end of each run after the profiled one. Later runs get the last entry."""
    files: list[Made] = field(default_factory=lambda: [busy()])
    """The probe's file of each run after the profiled one. Later runs get the last entry."""
    plain: int = 0
    probed: int = 0

    def __post_init__(self) -> None:
        self.read = 0

    def run_plain(
        self, contender: Contender, command: tuple[str, ...], *, quiet: bool, **_: object
    ) -> Ended:
        assert not contender.probed and command == COMMAND and quiet
        self.plain += 1
        return self.ends[min(self.plain, len(self.ends)) - 1]

    def run_probed(self, folder: Path, _: object = None) -> Ended:
        self.files[min(self.probed, len(self.files) - 1)].write(folder)
        self.probed += 1
        return self.ends[min(self.probed, len(self.ends)) - 1]

    def clocked(self, *_: object, **__: object) -> tuple[ClockRun | None, str]:
        run = self.clocks[min(self.read, len(self.clocks) - 1)]
        self.read += 1
        return run, "" if run is not None else REFUSED


@pytest.fixture
def found(tmp_path: Path) -> Profile:
    folder = tmp_path / "profile"
    folder.mkdir()
    busy().write(folder)
    return reader.gather(folder)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: Profile) -> Any:
    """Returns clock(runs, N, …), which gives the samples of all runs that --runs N makes."""

    def all_runs(
        runs: Runs,
        wanted: int | None = None,
        ended: Ended = ENDED,
        given: GivenInput = NO_INPUT,
        profile: Profile = found,
    ) -> KernelClock:
        monkeypatch.setattr(foreground, "run", runs.run_plain)
        monkeypatch.setattr(cpu_samples, "clocked", runs.clocked)
        again = Again(SYSTEM, COMMAND, wanted, given, tmp_path / "samples", runs.run_probed)
        return again.clock(profile, ended)

    return all_runs


def test_the_program_runs_until_the_interval_is_narrow_and_this_is_said_once(
    clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    first = a_run(probed=True)
    runs = Runs([first, a_run()])
    found = clock(runs)
    # An interval of ±3 percentage points needs about 900 samples. Each run gives 400, and the run
    # with the probe does not count, so three more runs are needed.
    assert runs.plain == 3 and runs.probed == 0
    assert found.runs == (first, *[a_run()] * 3)
    assert capsys.readouterr().err.count("the program runs again without its output") == 1


def test_a_narrow_interval_needs_no_further_run(
    clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs([a_run(4000, probed=True)])
    assert len(clock(runs).runs) == 1 and runs.plain == 0
    assert capsys.readouterr().err == ""


def test_a_given_number_of_runs_is_kept(clock: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs([a_run(4000, probed=True), a_run(4000)])
    assert len(clock(runs, 7).runs) == 7 and runs.plain == 6
    assert "the program runs 7 times, and only the first time with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wanted", "ended", "given"),
    [
        (1, ENDED, NO_INPUT),
        (None, replace(ENDED, exit_code=3), NO_INPUT),
        (None, replace(ENDED, left_behind=1), NO_INPUT),
        (None, replace(ENDED, crashes="a child"), NO_INPUT),
        (None, ENDED, GivenInput(None, is_read_once=True)),
    ],
)
def test_a_program_that_cannot_be_repeated_runs_once(
    clock: Any, wanted: int | None, ended: Ended, given: GivenInput
) -> None:
    runs = Runs([a_run(probed=True)])
    assert len(clock(runs, wanted, ended, given).runs) == 1
    assert runs.plain == runs.probed == 0


@pytest.mark.parametrize(
    ("again", "end"),
    [
        (a_run(), replace(ENDED, exit_code=1)),
        (a_run(190), ENDED),
        (a_run(610), ENDED),
    ],
    ids=["another exit code", "less CPU time", "more CPU time"],
)
def test_a_run_that_is_unlike_the_first_drops_all_further_runs(
    clock: Any, again: ClockRun | None, end: Ended
) -> None:
    first = a_run(probed=True)
    runs = Runs([first, a_run(), again], [ENDED, end])
    found = clock(runs)
    assert found.runs == (first,) and found.is_unlike
    assert runs.plain == 2


def test_further_runs_end_before_their_time_is_over(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run takes 3 s, so three of them fit into the 10 s, and a fourth would not."""
    now = [0.0]
    monkeypatch.setattr(share_runs.time, "monotonic", lambda: now[0])
    runs = Runs([a_run(40, probed=True), a_run(40)])
    run_plain = runs.run_plain

    def slow(*given: Any, **named: Any) -> Ended:
        now[0] += 3
        return run_plain(*given, **named)

    monkeypatch.setattr(runs, "run_plain", slow)
    assert len(clock(runs).runs) == 4 and now[0] < BUDGET_S


def test_the_number_of_further_runs_has_a_limit(clock: Any) -> None:
    runs = Runs([a_run(1, probed=True), a_run(1)])
    assert len(clock(runs).runs) == RUNS_MOST


def test_a_clock_that_does_not_see_the_kernel_needs_the_probe_in_all_runs(clock: Any) -> None:
    runs = Runs([a_run(probed=True, scope="threads in user mode")])
    clock(runs, 3)
    assert runs.probed == 2 and runs.plain == 0


def timed(samples: int) -> Made:
    """Returns the probe's file of a run with this many samples of the CPU timers."""
    made = busy()
    if samples:
        made.sampled(samples, samples // 3)
    return made


def test_short_runs_without_a_tick_of_the_timers_count_for_nothing(
    clock: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "timed"
    folder.mkdir()
    timed(3).write(folder)
    runs = Runs([None], files=[timed(0), timed(6), timed(0)])
    found = clock(runs, 4, profile=reader.gather(folder))
    assert runs.probed == 3 and not found.is_unlike
    assert [run.samples for run in found.runs] == [3, 6]
    assert found.why_not == REFUSED


def test_a_file_on_standard_input_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text("0123456789")
    kept, opened = os.dup(0), os.open(file, os.O_RDONLY)
    try:
        os.dup2(opened, 0)
        os.lseek(0, 4, os.SEEK_SET)
        given = GivenInput.now()
        assert os.read(0, 100) == b"456789"
        given.rewind()
        assert os.read(0, 100) == b"456789" and not given.is_read_once
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(opened)


def test_several_runs_that_read_one_pipe_are_refused() -> None:
    pipe = GivenInput(None, is_read_once=True)
    with pytest.raises(UsageError, match="standard input is a pipe; redirect a file with '<'"):
        share_runs.refuse(2, pipe)
    share_runs.refuse(None, pipe)
    share_runs.refuse(1, pipe)
    share_runs.refuse(2, NO_INPUT)


@pytest.mark.parametrize("scope", ["processors", "threads in user mode"])
def test_a_further_run_without_samples_did_no_other_work(
    clock: Any, found: Profile, scope: str
) -> None:
    """A full TMPDIR was once reported as much more or much less CPU time."""
    first = a_run(probed=True, scope=scope)
    runs = Runs([first, a_run(scope=scope, probed=scope != "processors"), None])
    if scope != "processors":
        runs.files[0].sampled(400, 120)
    got = clock(runs)
    assert (len(got.runs), got.is_unlike, got.unsampled) == (2, False, REFUSED)
    told = " ".join(gaps(replace(found, clock=got)))
    # With a clock that sees the kernel, the run with the probe does not count.
    runs_ = "1 run" if scope == "processors" else "2 runs"
    assert (
        f"When the program ran again, no clock samples were taken, because {REFUSED}. So the clock "
        f"samples of only {runs_} count." in told
    )
    assert "another status" not in told
    alone = clock(Runs([first, None]))
    assert (alone.runs, alone.is_unlike) == ((first,), False)
    assert "samples of only 1 run count." in " ".join(gaps(replace(found, clock=alone)))


@pytest.mark.parametrize(
    ("why", "step"),
    [
        ("the clock samples could not be written in /tmp: No space left on device",
         " Free space there, or set TMPDIR to another folder."),
        ("the clock samples could not be written in /tmp: Disk quota exceeded",
         " Free space there, or set TMPDIR to another folder."),
        ("the clock samples could not be written in /tmp: File too large",
         " Profile a shorter run, or raise the limit of file sizes (ulimit -f)."),
        (cpu_samples.TOO_MANY,
         " Profile a shorter run, or one that starts fewer processes."),
        ("the clock samples are damaged", ""),
        ("the clock samples cannot be read: Input/output error", ""),
        (REFUSED, ""),
    ],
)  # fmt: skip
def test_a_reason_for_missing_samples_has_advice_only_if_one_helps(
    found: Profile, why: str, step: str
) -> None:
    """Root rights were once advised against damaged samples."""
    clock = KernelClock((a_run(),), unsampled=why)
    (told,) = (one for one in gaps(replace(found, clock=clock)) if "no clock samples" in one)
    assert told.endswith(f"because {why}. So the clock samples of only 1 run count.{step}")


def test_a_further_run_that_fails_leaves_the_samples_of_the_first_one(
    clock: Any, found: Profile
) -> None:
    """Without its program, the second run once took the samples of the first one with it."""

    class Gone(Runs):
        def run_plain(self, *_: object, **__: object) -> Ended:
            raise CairnError("cannot execute prog: No such file or directory")

    first = a_run(probed=True)
    got = clock(Gone([first]))
    assert got.runs == (first,)
    told = " ".join(gaps(replace(found, clock=got)))
    assert (
        "because the program could not be run again: cannot execute prog: No such file or "
        "directory. So the clock samples of only 1 run count." in told
    )
