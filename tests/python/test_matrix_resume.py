"""Tests of the measurement of a plan, with a runner that runs nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from support.observers import Quiet
from support.plans import a_plan_run
from support.resuming import Measuring, fine, trials

from cairn.cli import matrix, measurement
from cairn.compare.plan import settings_of
from cairn.errors import CairnError, UsageError
from cairn.matrix import inputs, progress
from cairn.model import Run, Sample, Trial, twin
from cairn.run.sample_checks import verified
from cairn.run.store import Folder

PROGRAMS = {"a": "program", "b": "program", "c": "kernel"}
CONTENDERS = ("system", "x", "y", "z")


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Folder]:
    """Returns measured(run, outcome, stop_at), which measures a run, new or interrupted."""
    return Measuring(tmp_path, monkeypatch)


def a_run(number: int = 0, rounds: int = 4) -> Run:
    run = a_plan_run(PROGRAMS, CONTENDERS, rounds=rounds, number=number)
    return replace(run, host=replace(run.host, virtual=False))


@pytest.mark.parametrize("stop_at", [1, 11, 12, 13, 17, 24, 30, 47, 59])
def test_a_resumed_run_has_exactly_the_plan_of_an_uninterrupted_one(
    measured: Callable[..., Folder], stop_at: int
) -> None:
    whole = trials(measured(a_run(1)))
    assert len(whole) == 12 * 5
    measured(a_run(2), stop_at=stop_at)
    resumed = trials(measured(a_run(2)))
    assert resumed == whole


def test_a_run_that_is_interrupted_twice_has_it_too(measured: Callable[..., Folder]) -> None:
    whole = trials(measured(a_run(1)))
    for stop_at in (20, 9):
        measured(a_run(2), stop_at=stop_at)
    assert trials(measured(a_run(2))) == whole


def test_every_round_has_every_cell_once_and_another_order(
    measured: Callable[..., Folder],
) -> None:
    found = [one for one in trials(measured(a_run())) if one.round]
    orders = set()
    for round_ in (1, 2, 3, 4):
        own = [(one.workload, one.contender) for one in found if one.round == round_]
        assert len(set(own)) == len(own) == 12
        orders.add(tuple(own))
    assert len(orders) == 4


def test_a_failure_ends_its_cell_alone(measured: Callable[..., Folder]) -> None:
    def outcome(trial: Trial) -> Sample:
        bad = (trial.workload, trial.contender) == (1, "y") and trial.round == 2
        return (
            replace(fine(trial), failure="was killed by signal 11", signal=11)
            if bad
            else fine(trial)
        )

    folder = measured(a_run(), outcome)
    found = [one for one in trials(folder) if one.round]
    cells = dict.fromkeys(((w, n) for w in range(3) for n in CONTENDERS), 0)
    for one in found:
        cells[one.workload, one.contender] += 1
    assert cells.pop((1, "y")) == 2
    assert set(cells.values()) == {4}


def test_a_program_that_fails_under_the_baseline_leaves_the_others(
    measured: Callable[..., Folder],
) -> None:
    def outcome(trial: Trial) -> Sample:
        bad = trial.workload == 0 and trial.contender == "system"
        return replace(fine(trial), failure="failed with exit code 1") if bad else fine(trial)

    folder = measured(a_run(), outcome)
    assert {one.workload for one in trials(folder) if one.round} == {1, 2}
    assert "fails under system" in folder.stopped()


def test_a_preparation_that_fails_ends_its_program_alone(measured: Callable[..., Folder]) -> None:

    def outcome(trial: Trial) -> Sample:
        if trial.workload == 2:
            raise UsageError("the prepare command failed with exit code 1")
        return fine(trial)

    folder = measured(a_run(), outcome)
    (first, *_) = [s for s in folder.samples() if s.trial.workload == 2]
    assert first.failure == "cannot be run: the prepare command failed with exit code 1"
    assert (first.proof.processes, first.proof.loaded) == (0, 0)
    assert {one.workload for one in trials(folder) if one.round} == {0, 1}


def test_a_preparation_that_fails_once_costs_nothing(measured: Callable[..., Folder]) -> None:
    failed: set[Trial] = set()

    def outcome(trial: Trial) -> Sample:
        if trial.round == 2 and trial not in failed:
            failed.add(trial)
            raise UsageError("the prepare command failed with exit code 1")
        return fine(trial)

    assert trials(measured(a_run(1), outcome)) == trials(measured(a_run(2)))


def test_a_trial_that_cannot_be_prepared_costs_a_round_of_its_program(
    measured: Callable[..., Folder],
) -> None:
    """If a trial cannot be prepared, for example because a port is in use, only its round is lost.

    In an earlier version, the contender lost its mean over the whole plan.
    """

    def outcome(trial: Trial) -> Sample:
        if (trial.workload, trial.contender, trial.round) == (1, "y", 2):
            raise UsageError("the conclude command failed with exit code 1")
        return fine(trial)

    folder = measured(a_run(), outcome)
    assert [s.failure for s in folder.samples() if s.failure] == []
    found = [one for one in trials(folder) if one.round]
    complete = {
        number: {name for name in CONTENDERS if (1, name, number) in cells}
        for cells in [{(one.workload, one.contender, one.round) for one in found}]
        for number in range(1, 6)
    }
    assert [n for n, names in complete.items() if len(names) == 4] == [1, 3, 4, 5]
    assert max(one.round for one in found if one.workload != 1) == 4


def test_a_program_that_can_no_longer_be_prepared_is_to_blame_itself(
    measured: Callable[..., Folder],
) -> None:

    def outcome(trial: Trial) -> Sample:
        if trial.workload == 1 and trial.round > 1:
            raise UsageError("the prepare command failed with exit code 1")
        return fine(trial)

    bad = [s for s in measured(a_run(), outcome).samples() if s.failure]
    assert {(s.trial.workload, s.trial.contender) for s in bad} == {(1, "system")}
    assert (bad[0].failure or "").startswith("cannot be run: the prepare command failed")


def test_failures_to_prepare_the_warm_up_count_as_one_round(
    measured: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three runs of the warm-up could not be prepared, and no round of the program was measured.

    Each sentence said that the program was left out of a round.
    """
    told = []
    monkeypatch.setattr(Quiet, "told", lambda _, sentence: told.append(sentence))

    def outcome(trial: Trial) -> Sample:
        if (trial.workload, trial.round) == (1, 0) and trial.contender != "system":
            raise UsageError("the prepare command failed with exit code 1")
        return fine(trial)

    folder = measured(a_run(), outcome)
    assert [s.failure for s in folder.samples() if s.failure] == []
    assert len([s for s in folder.samples() if s.counts and s.trial.workload == 1]) == 16
    says = "a run of b in the warm-up is left out: the prepare command failed with exit code 1"
    assert told == [says] * 3


def test_rounds_that_cannot_be_prepared_are_counted_over_all_interruptions(
    measured: Callable[..., Folder],
) -> None:
    """A run that was interrupted ten times went on to round 16 before the program was ended."""

    def outcome(trial: Trial) -> Sample:
        if trial.workload == 1 and trial.round > 1:
            raise UsageError("the prepare command failed with exit code 1")
        return fine(trial)

    whole = measured(a_run(1), outcome)
    for stop_at in (27, *[6] * 10):
        resumed = measured(a_run(2), outcome, stop_at=stop_at)
    assert trials(resumed) == trials(whole)
    assert resumed.left_out() == whole.left_out() == ((1, 2), (1, 3))


def a_verified_run() -> Run:
    """A run whose first program must print the same output every time."""
    run = a_run()
    own = replace(run.settings.workloads[0].own, verify_output=True)
    first = replace(run.settings.workloads[0], own=own)
    settings = replace(run.settings, workloads=(first, *run.settings.workloads[1:]))
    return replace(run, settings=settings)


def test_another_output_than_under_the_baseline_is_a_failure(
    measured: Callable[..., Folder],
) -> None:
    def outcome(trial: Trial) -> Sample:
        return replace(fine(trial), output_digest="1" if trial.contender != "z" else "2")

    folder = measured(a_verified_run(), outcome)
    bad = {s.failure for s in folder.samples() if s.failure}
    assert bad == {"printed something else than under system"}
    assert {s.trial.workload for s in folder.samples() if s.failure} == {0}


def test_a_batch_with_different_outputs_is_a_failure_under_the_baseline_too(
    measured: Callable[..., Folder],
) -> None:
    """Two batches with the same different outputs once were the same output."""

    def outcome(trial: Trial) -> Sample:
        return replace(fine(trial), output_digest="1 2" if trial.workload == 0 else "1")

    folder = measured(a_verified_run(), outcome)
    bad = {s.trial.contender: s.failure for s in folder.samples() if s.failure}
    assert bad["system"] == "printed something else in some of its runs (--verify same-output)"


def test_a_first_run_without_a_checksum_of_its_files_is_compared_with_nothing() -> None:
    """An earlier version kept none for some plans. Such a run lost its programs when resumed."""
    settings = settings_of(a_verified_run().settings, 0)
    first = fine(Trial(1, 0, "system"))
    sample = replace(first, output_digest="1")
    assert verified(sample, first, settings, "system") == sample
    other = replace(first, output_digest="2")
    assert verified(sample, other, settings, "system").failure is not None


@pytest.mark.parametrize("failure", [None, CairnError("a program failed")])
def test_a_program_that_changes_its_input_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: CairnError | None
) -> None:
    """All programs of a plan share its inputs. Cairn once did not notice a changed input.

    So the rounds after the change measured another input without a word.
    """
    data = tmp_path / "x"
    data.write_text("text")
    folder = Folder.create(tmp_path / "results", a_run())
    folder.write(inputs.KEPT, inputs.as_kept({str(data): sha256(b"text").hexdigest()}))

    def conduct(*_: object) -> None:
        data.write_text("other")
        if failure is not None:
            raise failure

    monkeypatch.setattr(measurement, "conduct", conduct)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(CairnError, match=str(failure or "was changed during the run")):
        matrix._conduct(console, folder.run(), folder, None)  # type: ignore[arg-type]
    assert "was changed during the run" in folder.run().notes[-1]


def test_the_budget_ends_a_run_after_a_whole_round(
    measured: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    def outcome(trial: Trial) -> Sample:
        nonlocal now
        now += 1.0
        return fine(trial)

    run = a_run(rounds=9)
    folder = measured(replace(run, rule=replace(run.rule, budget_s=45.0)), outcome)
    rounds = [one.round for one in trials(folder)]
    assert max(rounds) == 2 and rounds.count(2) == 12
    assert set(folder.stopped()) == {"time budget"}


def test_a_resumed_run_has_spent_the_time_of_every_run_of_a_sample(
    measured: Callable[..., Folder],
) -> None:
    """A sample of --repeat is the mean of several runs. The time of one of them was counted."""
    run = a_run()
    run = replace(run, rule=replace(run.rule, budget_s=150.0))

    def outcome(trial: Trial) -> Sample:
        return replace(fine(trial), wall_ns=1_000_000_000, repeats=10)

    measured(run, outcome, stop_at=16)
    folder = measured(run, outcome)
    assert len(folder.samples()) == 16
    assert set(folder.stopped()) == {"time budget"}


def test_progress_tells_rounds_failures_and_the_time_left(measured: Callable[..., Folder]) -> None:
    folder = measured(a_run(), stop_at=12 + 12 + 5)
    now = progress.of(folder.run(), folder.samples(), folder.stopped(), runs_now=False)
    assert (now.state, now.rounds, now.planned) == ("interrupted", 1, 4)
    assert (now.done, now.trials) == (17, 48) and now.resumable
    assert now.seconds_left == pytest.approx(31 * 0.106, rel=0.1)
    document = progress.document(folder.run(), now)
    assert (document["runs"], document["runs_planned"]) == (17, 48)
    assert document["seconds_left"] == now.seconds_left
    done = measured(a_run())
    now = progress.of(done.run(), done.samples(), done.stopped(), runs_now=False)
    assert (now.state, now.rounds, now.seconds_left, now.resumable) == ("complete", 4, None, False)


def test_progress_has_the_runs_with_the_probe(measured: Callable[..., Folder]) -> None:
    """They were left out, so a run said that all its runs were done while it went on."""
    run = a_run(rounds=2)
    twins = tuple(replace(one, name=twin(one.name), probed=True) for one in run.contenders)
    settings = replace(run.settings, why=True, profiled_rounds=1)
    run = replace(run, contenders=run.contenders + twins, settings=settings)
    folder = measured(run, stop_at=12 + 24 + 5)
    now = progress.of(folder.run(), folder.samples(), folder.stopped(), runs_now=False)
    assert (now.rounds, now.done, now.trials) == (1, 29, 36)
    assert now.seconds_left == pytest.approx(7 * 0.11, rel=0.1)
    early = [one for one in folder.samples() if one.trial.position < 20]
    assert progress.of(run, early, (), runs_now=False).rounds == 0
    done = measured(run)
    now = progress.of(done.run(), done.samples(), done.stopped(), runs_now=False)
    assert (now.state, now.rounds, now.done, now.trials) == ("complete", 2, 36, 36)


def test_the_time_left_has_the_rest_of_the_warm_up(measured: Callable[..., Folder]) -> None:
    run = a_run(rounds=2)
    run = replace(run, settings=replace(run.settings, warmup=3))
    folder = measured(run, stop_at=17)
    now = progress.of(folder.run(), folder.samples(), folder.stopped(), runs_now=False)
    assert (now.done, now.trials) == (0, 24)
    assert now.seconds_left == pytest.approx((3 * 12 - 17 + 24) * 0.106, rel=0.1)


def test_a_run_whose_baseline_fails_everywhere_is_not_complete(
    measured: Callable[..., Folder],
) -> None:
    def broken(trial: Trial) -> Sample:
        return replace(fine(trial), failure="failed with exit code 1")

    done = measured(a_run(), broken)
    now = progress.of(done.run(), done.samples(), done.stopped(), runs_now=False)
    assert (now.state, now.trials) == (progress.NOTHING_TO_COMPARE, 0)
    assert not now.resumable


def checked(run: Run) -> Run:
    """The run, in which all outputs of the first program must be the same."""
    own = replace(run.settings.workloads[0].own, verify_output=True)
    first = replace(run.settings.workloads[0], own=own)
    workloads = first, *run.settings.workloads[1:]
    return replace(run, settings=replace(run.settings, workloads=workloads))


def test_a_program_that_prints_something_new_each_time_is_told_once(
    measured: Callable[..., Folder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure was told three times for the baseline, and once more for the next contender.

    No sentence named the key 'unchecked', and the status was "complete".
    """
    count = 0
    told = []
    monkeypatch.setattr(Quiet, "contender_failed", lambda _, name, why: told.append((name, why)))

    def outcome(trial: Trial) -> Sample:
        nonlocal count
        count += 1
        return replace(fine(trial), output_digest=str(count))

    done = measured(checked(a_run()), outcome)
    first = "a"
    why = (
        "printed something else than in its first run (a plan allows that with 'unchecked'); 1 run "
        "before had succeeded"
    )
    assert told == [(f"system on {first}", why)]
    now = progress.of(done.run(), done.samples(), done.stopped(), runs_now=False)
    assert now.failures == (f"{first}: under system, the program {why}.",)
    assert (now.state, now.failed) == ("complete", f"1 of {len(PROGRAMS)} programs failed")
    assert (now.rounds, now.planned) == (4, 4)


def test_a_program_that_fails_under_all_others_is_no_missing_round(
    measured: Callable[..., Folder],
) -> None:
    """A complete run had "0 of 4 rounds complete"."""

    def outcome(trial: Trial) -> Sample:
        bad = trial.workload == 0 and trial.contender != "system"
        return replace(fine(trial), failure="failed with exit code 1") if bad else fine(trial)

    done = measured(a_run(), outcome)
    now = progress.of(done.run(), done.samples(), done.stopped(), runs_now=False)
    assert (now.state, now.rounds, now.lost, now.partly) == ("complete", 4, 1, 0)
    assert len(now.failures) == len(CONTENDERS) - 1


def test_a_program_that_fails_under_one_contender_is_in_the_headline(
    measured: Callable[..., Folder],
) -> None:
    def outcome(trial: Trial) -> Sample:
        bad = (trial.workload, trial.contender) == (0, "z")
        return replace(fine(trial), failure="failed: It is broken.") if bad else fine(trial)

    done = measured(a_run(), outcome)
    now = progress.of(done.run(), done.samples(), done.stopped(), runs_now=False)
    assert now.failed == f"1 of {len(PROGRAMS)} programs failed under some contenders"
    assert now.failures == ("a: under z, the program failed: It is broken.",)
