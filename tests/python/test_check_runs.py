"""Tests of the runs of `cairn check`, with a runner that runs nothing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import junitparser
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from rich.console import Console
from support.comparisons import a_run, a_sample

from cairn.cli import check, check_plan, cli, load
from cairn.errors import CairnError, Interrupted, UsageError
from cairn.gate import Gate, GateBound, InstructionCount
from cairn.model import TIME_BUDGET, Contender, Run, Sample, Trial
from cairn.run import builds, check_base, instruction_counts, measure, store, valgrind
from cairn.run.program_contenders import NamedProgram
from cairn.run.runner import Trace
from cairn.run.stored_run import RunRefusal

BOTH = ("-p", "old=./old", "-p", "new=./new")
Checked = Callable[..., Result]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Returns checked(outcome, WORD, …), which runs `cairn check` in a folder with two programs.

    Each trial has the outcome of `outcome(trial)`, and each one under valgrind that of
    `counted(trial)`.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name in ("old", "new"):
        (tmp_path / name).symlink_to("/bin/true")

    def run(
        outcome: Callable[[Trial], Sample],
        *words: object,
        counted: Callable[[Trial], Sample] | None = None,
    ) -> Result:
        class Fake:
            def __init__(self, *of: object) -> None:
                self._outcome = counted if counted is not None and len(of) > 3 else outcome

            def trial(self, trial: Trial, **_: object) -> tuple[Sample, Trace]:
                return replace(self._outcome(trial), trial=trial), Trace(b"", "")

            def touch(self, _: int) -> None:
                """Touches nothing."""

        for module in (measure, instruction_counts):
            monkeypatch.setattr(module, "Runner", Fake)
        monkeypatch.setattr(instruction_counts, "callgrind", lambda *_: ("valgrind",))
        monkeypatch.setattr(valgrind, "need_valgrind", lambda _: None)
        results = ("--results", tmp_path / "results")
        return CliRunner().invoke(
            cli, [str(word) for word in ("check", *results, *words)], standalone_mode=False
        )

    return run


def the_run(folder: Path) -> store.Folder:
    return store.Folder(store.runs(folder / "results")[-1])


def quick(_: Trial) -> Sample:
    return a_sample(0, "", 1.0)


def timed(monkeypatch: pytest.MonkeyPatch, warm_up_s: float) -> Callable[[Trial], Sample]:
    """Returns an outcome of trials: by the replaced clock, a run takes 30 s after the warm-up."""
    now = [1000.0]
    monkeypatch.setattr(measure.time, "monotonic", lambda: now[0])

    def outcome(trial: Trial) -> Sample:
        now[0] += 30.0 if trial.round else warm_up_s
        return a_sample(0, "", 1000.0)

    return outcome


def test_a_budget_that_ends_in_the_first_round_leaves_no_answer_but_a_report(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code was once 2, as for a wrong command line, and no file was written."""
    outcome = timed(monkeypatch, warm_up_s=1.0)
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    words = ("--fail-if", "time>3%", *BOTH, "--budget", "20s")
    done = checked(outcome, *words, "--junit", junit, "--summary", summary)
    assert done.return_value == 6, (done.output, done.exception)
    says = (
        "Not enough data: no round is complete, and at least 8 are needed to decide time. Use a "
        "longer --budget."
    )
    assert says in " ".join(done.stdout.split())
    assert "no round fits into the budget of 20 s" in done.stderr and "--budget" in done.stderr
    (suite,) = junitparser.JUnitXml.fromfile(str(junit))
    (case,) = suite
    assert isinstance(case.result[0], junitparser.Skipped)
    assert "Not enough data" in summary.read_text()
    folder = the_run(tmp_path)
    assert (folder.stopped(), folder.refusal()) == ((TIME_BUDGET,), None)
    assert checked(outcome, "--fail-if", "time>3%", "last").return_value == 6, "a kept run"


def test_a_budget_that_ends_before_any_run_of_a_base_makes_none(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = timed(monkeypatch, warm_up_s=30.0)
    done = checked(outcome, "--make-base", "base.json", "--budget", "20s", "--", "./new")
    assert isinstance(done.exception, UsageError) and "no round fits" in str(done.exception)
    assert not (tmp_path / "base.json").exists()


def test_a_base_without_its_counts_is_not_made(checked: Checked, tmp_path: Path) -> None:
    """The exit code was once 0, and the later check said that the base has no counts."""

    def counted(_: Trial) -> Sample:
        return a_sample(0, "", 1.0, failure="was killed by signal 4 (SIGILL)")

    words = ("--make-base", "base.json", "--fail-if", "instructions>1%", "--", "./new")
    done = checked(quick, *words, counted=counted)
    assert isinstance(done.exception, CairnError) and done.exception.exit_code == 1
    assert str(done.exception) == (
        "no base was made: a bound limits instructions, and system cannot run under valgrind: it "
        "was killed by signal 4 (SIGILL)"
    )
    assert not (tmp_path / "base.json").exists()


def test_each_run_knows_the_command_that_continues_it(checked: Checked, tmp_path: Path) -> None:
    """The run of one build has no bounds, and was once taken for one of 'cairn compare'."""
    done = checked(quick, "--fail-if", "time>900%", *BOTH, "-r", 7)
    assert done.return_value == 0, (done.output, done.exception)
    assert the_run(tmp_path).run().made_by == "cairn check"
    made = checked(quick, "--make-base", "base.json", "-r", 12, "--", "./new")
    assert made.return_value == 0, (made.output, made.exception)
    assert the_run(tmp_path).run().made_by == "cairn check --make-base"
    base = json.loads((tmp_path / "base.json").read_text())
    base["run"]["builds"][0]["build"] = "build ID 0"
    (tmp_path / "base.json").write_text(json.dumps(base))
    words = ("--against", "base.json", "--trust-base", "--fail-if", "time>900%", "--", "./new")
    found = checked(quick, *words)
    if base["machine"] is None:
        pytest.skip("this machine has no /etc/machine-id")
    assert found.return_value == 0, (found.output, found.exception)
    assert the_run(tmp_path).run().made_by == "cairn check"


def test_a_refusal_to_count_is_forgotten_when_counting_succeeds(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run ended with 0, and its report said "Instructions were not counted"."""

    def refused(*_: object) -> tuple[InstructionCount, ...]:
        raise UsageError("--prepare failed with exit code 1")

    def counted(*_: object) -> tuple[InstructionCount, ...]:
        return tuple(InstructionCount(name, (1000, 1000)) for name in ("old", "new"))

    monkeypatch.setattr(instruction_counts, "count", refused)
    done = checked(quick, "--fail-if", "instructions>1%", *BOTH)
    assert isinstance(done.exception, UsageError)
    assert the_run(tmp_path).refusal() is not None
    monkeypatch.setattr(store, "lock", lambda _: None)  # this process still has the lock
    monkeypatch.setattr(instruction_counts, "count", counted)
    done = checked(quick, "--resume", "last")
    assert done.return_value == 0, (done.output, done.exception)
    assert the_run(tmp_path).refusal() is None
    done = checked(quick, "--fail-if", "instructions>1%", "last")
    assert done.return_value == 0, (done.output, done.exception)


@pytest.mark.parametrize(
    ("name", "spec", "wanted"),
    [
        ("linked", "/lib/libjemalloc.so.2", ()),
        ("system", "system", ()),
        ("jemalloc", "jemalloc", ("jemalloc",)),
    ],
)
def test_a_build_keeps_the_allocator_that_it_is_linked_with(
    name: str, spec: str, wanted: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator with which the base was linked was once preloaded into the new build."""
    found: list[object] = []

    def two_builds(*given: Any) -> tuple[Run, None]:
        found.append(given[4])
        return a_run(), None

    monkeypatch.setattr(check_plan, "two_builds", two_builds)
    run = replace(a_run(Contender(name, "custom", "x", spec=spec)), baseline=name)
    base = check_base.of_run(run, (), ())
    old = NamedProgram("old", ("/bin/true",))
    command = ("./new", *check_base.words(run)[1:])
    check._new(
        Console(), Gate((GateBound("time", 0.03),)), base, False, command, (old,), (), tmp_path, {}
    )
    assert found == [wanted]


def test_a_bound_on_instructions_is_not_called_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cairn check` has no option --instructions."""
    with pytest.raises(UsageError, match=r"^a bound on instructions needs counts of whole runs"):
        load.refuse_instructions("wrk", "a bound on instructions")
    monkeypatch.setattr(valgrind.shutil, "which", lambda _: None)
    with pytest.raises(CairnError, match=r"^a bound on instructions needs valgrind, which is not"):
        load.refuse_instructions(None, "a bound on instructions")
    with pytest.raises(CairnError, match=r"^--instructions needs valgrind"):
        load.refuse_instructions(None)


def stop(*_: object) -> Any:
    raise KeyboardInterrupt


def test_an_interruption_while_counting_says_that_the_runs_are_kept(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "nothing was measured yet", although all rounds were kept."""
    monkeypatch.setattr(instruction_counts, "count", stop)
    bounds = ("--fail-if", "instructions>1%", "--fail-if", "time>900%")
    made = checked(quick, "--make-base", "base.json", *bounds, "-r", 8, "--", "./new")
    assert isinstance(made.exception, Interrupted), (made.output, made.exception)
    path = the_run(tmp_path).path
    assert str(made.exception) == (
        f"interrupted; the runs measured so far are kept: 'cairn report {path}' shows them; the "
        "same command begins anew"
    )
    assert not (tmp_path / "base.json").exists()
    done = checked(quick, *bounds, *BOTH, "-r", 8)
    assert isinstance(done.exception, Interrupted), (done.output, done.exception)
    path = the_run(tmp_path).path
    says = f"kept; continue with: cairn check --resume {path}"
    assert str(done.exception).endswith(says)


@pytest.mark.parametrize("measure_", ["time", "instructions"])
def test_an_interruption_of_the_report_keeps_the_run(
    measure_: str, checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "nothing was measured yet" after the last round, too."""
    counts = tuple(InstructionCount(name, (1000, 1000)) for name in ("old", "new"))
    monkeypatch.setattr(instruction_counts, "count", lambda *_: counts)
    rendered = check._rendered
    monkeypatch.setattr(check, "_rendered", stop)
    done = checked(quick, "--fail-if", f"{measure_}>900%", *BOTH, "-r", 8)
    assert isinstance(done.exception, Interrupted), (done.output, done.exception)
    path = the_run(tmp_path).path
    assert str(done.exception).endswith(f"continue with: cairn check --resume {path}")
    monkeypatch.setattr(check, "_rendered", rendered)
    monkeypatch.setattr(store, "lock", lambda _: None)  # this process still has the lock
    done = checked(quick, "--resume", path)
    assert done.return_value == 0, (done.output, done.exception)


def test_an_interruption_while_a_base_is_written_says_that_the_runs_are_kept(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "emit", stop)
    made = checked(quick, "--make-base", "base.json", "-r", 8, "--", "./new")
    assert isinstance(made.exception, Interrupted), (made.output, made.exception)
    assert str(made.exception).endswith("shows them; the same command begins anew")
    assert the_run(tmp_path).samples()


@pytest.mark.parametrize("complete", [True, False])
def test_a_check_that_its_budget_has_ended_is_only_judged_again(
    complete: bool, checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume counted the wall times of the program alone as spent, and measured on."""
    outcome = timed(monkeypatch, warm_up_s=1.0)
    budget = "100s" if complete else "20s"
    done = checked(outcome, "--fail-if", "time>3%", *BOTH, "--budget", budget)
    assert done.return_value == 6, (done.output, done.exception)
    before = the_run(tmp_path).samples()
    assert the_run(tmp_path).stopped() == (TIME_BUDGET,)
    assert max(one.trial.round for one in before) == 1
    monkeypatch.setattr(store, "lock", lambda _: None)  # this process still has the lock
    again = checked(outcome, "--resume", "last")
    assert (again.return_value, again.stdout) == (6, done.stdout), (again.output, again.exception)
    assert the_run(tmp_path).samples() == before
    assert the_run(tmp_path).stopped() == (TIME_BUDGET,)


def test_a_refusal_is_forgotten_when_nothing_is_left_to_measure(
    checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a new trial removed it, so a check of the complete run ended with the old error."""
    done = checked(quick, "--fail-if", "time>900%", *BOTH, "-r", 8)
    assert done.return_value == 0, (done.output, done.exception)
    store.Folder(the_run(tmp_path).path).mark_refused(RunRefusal(2, "--prepare failed"))
    monkeypatch.setattr(store, "lock", lambda _: None)  # this process still has the lock
    done = checked(quick, "--resume", "last")
    assert done.return_value == 0, (done.output, done.exception)
    assert the_run(tmp_path).refusal() is None
    assert checked(quick, "--fail-if", "time>900%", "last").return_value == 0, "a kept run"


@pytest.mark.parametrize("late", [False, True])
def test_a_summary_of_the_step_that_cannot_be_written_changes_no_answer(
    late: bool, checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code was 1 after the whole measurement, and no annotation was written."""
    step = tmp_path / "steps" / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    if late:
        step.parent.mkdir()

    def outcome(trial: Trial) -> Sample:
        if late and not step.exists():
            step.mkdir()
        return a_sample(0, "", 9.0 if trial.contender == "new" else 1.0)

    words = ("--fail-if", "time>3%", *BOTH, "-r", 12)
    done = checked(outcome, *words)
    assert done.return_value == 5, (done.output, done.exception)
    assert f"the summary of the step gets no report: cannot write {step}: " in done.stderr
    assert "::error title=cairn check::Worse" in done.stderr
    assert done.stderr.index("the summary of the step") < done.stderr.index("::error") or late
    asked = checked(outcome, *words, "--summary", step)
    assert asked.exception is not None, "the user asked for this file"


def test_a_summary_of_the_step_in_a_folder_of_another_user_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check ended with PermissionError before it began."""
    step = tmp_path / "steps" / "step.md"
    step.parent.mkdir()
    stat = os.stat

    def refused(path: object, *args: object, **how: object) -> os.stat_result:
        if str(path).startswith(f"{step.parent}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *args, **how)  # type: ignore[arg-type]

    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    monkeypatch.setattr(os, "stat", refused)
    assert check._step_summary(Console(), None) == step


@pytest.mark.parametrize("changed", [False, True])
def test_counts_that_were_made_with_other_tools_are_not_compared(
    changed: bool, checked: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools were compared only before instructions were counted."""
    valgrind_now = "valgrind-3.19"

    def counted(run: Run, folder: store.Folder, *_: object) -> tuple[InstructionCount, ...]:
        known = builds.of_run(run.settings, run.contenders)
        tools = replace(check_base.tools_of(run), valgrind=valgrind_now)
        folder.update(replace(run, builds=known, tools=tools))
        return (InstructionCount("system", (1000, 1000)),)

    monkeypatch.setattr(instruction_counts, "count", counted)
    monkeypatch.setattr(check_base, "valgrind_version", lambda: "valgrind-3.19")
    bound = ("--fail-if", "instructions>1%")
    made = checked(quick, "--make-base", "base.json", *bound, "--", "./new")
    assert made.return_value == 0, (made.output, made.exception)
    base = json.loads((tmp_path / "base.json").read_text())
    base["run"]["builds"][0]["build"] = "build ID 0"
    (tmp_path / "base.json").write_text(json.dumps(base))
    if changed:
        valgrind_now = "valgrind-3.20"
    done = checked(quick, "--against", "base.json", *bound, "--", "./new")
    if not changed:
        assert done.return_value == 0, (done.output, done.exception)
        return
    assert isinstance(done.exception, UsageError), (done.output, done.exception)
    assert "instructions cannot be compared: the base has another version" in str(done.exception)
