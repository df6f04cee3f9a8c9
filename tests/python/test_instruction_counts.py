"""Tests of the tables of instructions, and of the lines that announce a run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from support.comparisons import a_run, a_sample
from support.suites import a_suite

from cairn.cli import measurement
from cairn.errors import ContenderFailed, ProgramFailed, UsageError
from cairn.gate import InstructionCount
from cairn.model import Contender, Sample, StopRule, Trial
from cairn.report import instruction_counts
from cairn.run import instruction_counts as counting
from cairn.run import runner, store


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
