"""Tests of the tables of instructions, and of the lines that announce a run."""

from __future__ import annotations

import io
import os
import resource
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from support.comparisons import a_run, a_sample, samples
from support.suites import a_suite

from cairn.build import Build
from cairn.cli import console, measurement
from cairn.errors import CairnError, ContenderFailed, ProgramFailed, UsageError
from cairn.gate import InstructionCount
from cairn.model import Contender, Sample, StopRule, Trial
from cairn.report import instruction_counts
from cairn.report.run import comparisons, rendered
from cairn.report.view import View
from cairn.run import builds, measure, runner, store
from cairn.run import instruction_counts as counting


@pytest.fixture(autouse=True)
def _invented_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program of these tests exists."""
    monkeypatch.setattr(builds, "of_run", lambda *_: ())


def test_a_contender_without_a_count_has_a_row_among_the_others() -> None:
    names = ("broken", "system", "fast")
    run = a_run(*(Contender(name, name, name) for name in names))
    counts = (
        InstructionCount("broken", (), 0, "cannot run under valgrind"),
        InstructionCount("system", (1000, 1000)),
        InstructionCount("fast", (800, 900)),
    )
    board = instruction_counts.board(replace(run, baseline="system"), counts)
    (table,) = board.tables
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["broken", "not measured", ""],
        ["system", "1,000", ""],
        ["fast", "800 to 900", "0.8000 to 0.9000"],
    ]
    assert board.failures == ("broken cannot run under valgrind",)


def test_up_to_four_workloads_have_a_line_each_and_more_share_one(tmp_path: Path) -> None:
    for count in (4, 5):
        names = [f"w{number}" for number in range(count)]
        run = replace(a_suite(names, ("system", "fast")), rule=StopRule(None, 6, 6))
        said = io.StringIO()
        folder = store.Folder.create(tmp_path / str(count), run)
        measurement.announce(Console(file=said, width=200), run, folder)
        lines = [line.split() for line in said.getvalue().splitlines()]
        told = [words[1:] for words in lines if words[0] == "program"]
        alone = [[name] for name in names]
        together = ["5", "workloads:", "w0,", "w1,", "w2,", "w3,", "w4"]
        assert told == (alone if count == 4 else [together])


@pytest.mark.parametrize("fails", [False, True])
def test_setup_and_cleanup_enclose_the_counts(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts once began after --cleanup had removed what the program needs."""
    done: list[str] = []

    class Fake:
        def __init__(self, *of: object) -> None:
            self._counts = len(of) > 3

        def hook(self, name: str, command: str) -> None:
            done.append(f"{name} {command}")

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, runner.Trace]:
            done.append(trial.contender)
            if fails:
                raise UsageError("the --prepare command failed")
            (tmp_path / "callgrind" / "1").write_text("events: Ir\nfn=main\n1 5\n")
            return replace(a_sample(0, "", 5.0), trial=trial), runner.Trace(b"", "")

    monkeypatch.setattr(counting, "Runner", Fake)
    monkeypatch.setattr(counting, "callgrind", lambda *_: ("valgrind",))
    run = a_run()
    run = replace(run, settings=replace(run.settings, setup="make", cleanup="rm"))
    folder = store.Folder.create(tmp_path / "results", run)
    if fails:
        with pytest.raises(UsageError, match="--prepare"):
            counting.count(run, folder, tmp_path, lambda _: None)
        assert done == ["setup make", "system", "cleanup rm"]
        return
    counts = counting.count(run, folder, tmp_path, lambda _: None)
    assert [one.contender for one in counts] == ["system", "fast"]
    assert done == ["setup make", "system", "system", "fast", "fast", "cleanup rm"]


@pytest.mark.parametrize(
    ("content", "processes", "problem"),
    [
        ("events: Ir\nfn=main\n1 50", 1, "ended with a file of valgrind that is cut off"),
        ("events: Ir\nfn=main\n1 5\ncalls=\n", 1, "ended with a file of valgrind that is cut off"),
        ("events: Ir\n", 1, "ended without valgrind's count of its instructions"),
        ("events: Ir\nfn=main\n1 50\n", 40, None),
    ],
)
def test_a_file_that_is_cut_off_is_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, processes: int,
    problem: str | None,
) -> None:  # fmt: skip
    """It was once a traceback, or a count that was too small.

    All files were once open at the same time, so a program with many processes had no count.
    """

    class Fake:
        def __init__(self, *_: object) -> None:
            """Needs nothing."""

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, runner.Trace]:
            for number in range(processes):
                (tmp_path / "callgrind" / str(number)).write_text(content)
            return replace(a_sample(0, "", 5.0), trial=trial), runner.Trace(b"", "")

    monkeypatch.setattr(counting, "Runner", Fake)
    monkeypatch.setattr(counting, "callgrind", lambda *_: ("valgrind",))
    folder = store.Folder.create(tmp_path / "results", a_run())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, limits[1]))
    try:
        counts = counting.count(folder.run(), folder, tmp_path, lambda _: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [one.problem for one in counts] == [problem, problem]
    wanted = () if problem is not None else (50 * processes, 50 * processes)
    assert [one.counts for one in counts] == [wanted, wanted]


def test_the_outputs_of_both_counted_runs_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the output of the last run was once compared."""
    printed: dict[str, list[str]] = {}

    class Fake:
        def __init__(self, *_: object) -> None:
            """Needs nothing."""

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, runner.Trace]:
            (tmp_path / "callgrind" / "1").write_text("events: Ir\nfn=main\n1 5\n")
            digest = printed[trial.contender].pop(0)
            sample = replace(a_sample(0, "", 5.0), trial=trial, output_digest=digest)
            return sample, runner.Trace(b"", "")

    monkeypatch.setattr(counting, "Runner", Fake)
    monkeypatch.setattr(counting, "callgrind", lambda *_: ("valgrind",))
    folder = store.Folder.create(tmp_path / "results", a_run())
    for system, fast, error in (
        (["a", "a"], ["b", "a"], ContenderFailed),
        (["a", "b"], ["a", "a"], ProgramFailed),
    ):
        printed |= {"system": system, "fast": fast}
        with pytest.raises(error, match="printed something else"):
            counting.count(folder.run(), folder, tmp_path, lambda _: None)
        (tmp_path / "callgrind" / "1").unlink()
        (tmp_path / "callgrind").rmdir()


def test_a_contender_that_failed_in_its_runs_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure without valgrind once hid the whole report."""
    ran: list[str] = []

    class Fake:
        def __init__(self, *_: object) -> None:
            """Needs nothing."""

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, runner.Trace]:
            ran.append(trial.contender)
            (tmp_path / "callgrind" / "1").write_text("events: Ir\nfn=main\n1 5\n")
            return replace(a_sample(0, "", 5.0), trial=trial), runner.Trace(b"", "")

    monkeypatch.setattr(counting, "Runner", Fake)
    monkeypatch.setattr(counting, "callgrind", lambda *_: ("valgrind",))
    run = a_run(*(Contender(name, name, name) for name in ("system", "bad", "fast")))
    folder = store.Folder.create(tmp_path / "results", run)
    folder.append(a_sample(2, "bad", 5.0, failure="was killed by signal 11 (SIGSEGV)"))
    counts = counting.count(run, folder, tmp_path, lambda _: None)
    assert ran == ["system", "system", "fast", "fast"]
    assert [(one.contender, one.counts, one.problem) for one in counts] == [
        ("system", (5, 5), None),
        ("bad", (), "failed in its runs, so its instructions were not counted"),
        ("fast", (5, 5), None),
    ]


@pytest.mark.parametrize("measured", [True, False])
def test_a_build_that_is_replaced_while_it_is_counted_is_noticed(
    measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts of two builds were once those of one contender."""
    program = tmp_path / "prog"
    program.write_text("before")

    def known() -> tuple[Build, ...]:
        return (Build("prog", str(program), "program", builds._build(str(program))),)

    class Fake:
        def __init__(self, *_: object) -> None:
            """Needs nothing."""

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, runner.Trace]:
            (tmp_path / "callgrind" / "1").write_text("events: Ir\nfn=main\n1 5\n")
            if trial.contender == "fast":
                program.write_text("after")
            return replace(a_sample(0, "", 5.0), trial=trial), runner.Trace(b"", "")

    monkeypatch.setattr(builds, "of_run", lambda *_: known())
    monkeypatch.setattr(counting, "Runner", Fake)
    monkeypatch.setattr(counting, "callgrind", lambda *_: ("valgrind",))
    run = replace(a_run(), builds=known() if measured else ())
    folder = store.Folder.create(tmp_path / "results", run)
    if measured:
        folder.append(a_sample(1, "system", 5.0))
    with pytest.raises(ProgramFailed, match="prog was replaced while it was measured"):
        counting.count(run, folder, tmp_path, lambda _: None)
    stored = folder.run()
    assert [one.name for one in stored.builds] == ["prog"], "a later check compares them"
    assert stored.tools is not None and stored.tools.compilers == {"system": None, "fast": None}
    (tmp_path / "callgrind" / "1").unlink()
    (tmp_path / "callgrind").rmdir()
    if measured:
        with pytest.raises(UsageError, match="prog is another build than when this run began"):
            counting.count(stored, folder, tmp_path, lambda _: None)


@pytest.mark.parametrize("measured_all", [True, False])
@pytest.mark.parametrize("error", [ContenderFailed, UsageError])
def test_a_failure_to_count_comes_after_the_report_of_the_rounds(
    measured_all: bool, error: type[CairnError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The report of complete rounds once began with "Measuring ended early"."""
    run = a_run()
    run = replace(run, settings=replace(run.settings, count_instructions=True))
    folder = store.Folder.create(tmp_path, run)

    class Fake:
        def __init__(self, *_: object) -> None:
            """Needs nothing."""

        def measure(self) -> None:
            for one in samples():
                folder.append(one)
            if not measured_all:
                raise error("fast failed with exit code 1")
            folder.mark_stopped("12 rounds")

    def count(*_: object) -> None:
        raise error("fast failed with exit code 1")

    monkeypatch.setattr(measure, "Measurement", Fake)
    monkeypatch.setattr(counting, "count", count)
    output = console.output_of("text", False, "never", None, False)
    with pytest.raises(error, match="fast failed with exit code 1"):
        measurement.conduct(Console(file=io.StringIO()), run, folder, "cairn compare", output)
    shown = capsys.readouterr().out
    assert ("It takes 19 % less" in shown) == measured_all
    found = measurement.measured(store.Folder(folder.path))
    again = rendered(found, comparisons(found), View())
    assert again == shown or not measured_all
    early, late = "Measuring ended early: fast failed", "Instructions were not counted: fast failed"
    assert (early in again, late in again) == (not measured_all, measured_all)
