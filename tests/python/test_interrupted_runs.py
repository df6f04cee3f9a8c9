"""Tests that an interrupted and resumed run has the trials of an uninterrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.plans import a_plan_run
from support.resuming import Measuring, Outcome, fine, trials

from cairn.errors import ContenderFailed, ProgramFailed, UsageError
from cairn.model import Contender, Run, Sample, StopRule, Trial
from cairn.run.store import Folder

PROGRAMS = {"a": "program", "b": "program"}
ROUNDS = 3


@dataclass(frozen=True)
class Plan:
    """A plan, and the outcome of each of its trials."""

    outcome: Outcome = fine
    contenders: tuple[str, ...] = ("system", "x", "y")
    warmup: int = 1
    profiled: bool = False
    """Whether the contenders also run with the probe in the first round."""
    step: int = 2
    """The number of trials of a measurement that is interrupted again and again.

    A trial that cannot be prepared is tried twice. In the warm-up, a later measurement begins with
    this trial again.
    """

    def run(self, number: int) -> Run:
        made = a_plan_run(PROGRAMS, self.contenders, rounds=ROUNDS, number=number)
        settings = replace(made.settings, warmup=self.warmup)
        contenders = made.contenders
        if self.profiled:
            settings = replace(settings, why=True, profiled_rounds=1)
            contenders += tuple(
                Contender(f"{one.name}+probe", one.name, one.title, probed=True)
                for one in contenders
            )
        host = replace(made.host, virtual=False)
        return replace(made, host=host, settings=settings, contenders=contenders)


def broken(
    fails: Callable[[Trial], bool], why: str = "failed with exit code 1", **more: object
) -> Outcome:
    """Returns an outcome in which some trials fail."""

    def outcome(trial: Trial) -> Sample:
        changed = replace(fine(trial), failure=why, **more)  # type: ignore[arg-type]
        return changed if fails(trial) else fine(trial)

    return outcome


def unprepared(fails: Callable[[Trial], bool]) -> Outcome:
    """Returns an outcome in which the command `prepare` of some trials fails."""

    def outcome(trial: Trial) -> Sample:
        if fails(trial):
            raise UsageError("the prepare command failed with exit code 1")
        return fine(trial)

    return outcome


def in_background(trial: Trial) -> Sample:
    """The first program ends soon, and leaves processes behind."""
    return (
        replace(fine(trial), left_behind=1, wall_ns=50_000_000)
        if trial.workload == 0
        else fine(trial)
    )


def slower(trial: Trial) -> Sample:
    """The program leaves processes behind, and ends soon only after its warm-up."""
    wall_ns = 50_000_000 if trial.round else 200_000_000
    return replace(fine(trial), left_behind=1, wall_ns=wall_ns)


def flaky(trial: Trial) -> Sample:
    """A program fails once under x, and then under the baseline when it is tried again."""
    fails = (trial.workload, trial.contender, trial.round) == (1, "x", 2)
    again = trial == Trial(0, 0, "system", 1)
    return broken(lambda _: fails or again)(trial)


def slow(trial: Trial) -> Sample:
    """A program takes longer than a second, and fails under x."""
    fails = (trial.workload, trial.contender, trial.round) == (1, "x", 2)
    return replace(broken(lambda _: fails)(trial), wall_ns=2_000_000_000)


def crash_in_a_further_round(trial: Trial) -> Sample:
    """Y lacks a round, and crashes in the round that is measured in its place."""
    cell = trial.workload, trial.contender
    if cell == (0, "y") and trial.round == 1:
        raise UsageError("the prepare command failed with exit code 1")
    crashes = cell == (0, "y") and trial.round == ROUNDS + 1
    return (
        replace(fine(trial), failure="was killed by signal 11", signal=11)
        if crashes
        else fine(trial)
    )


PLANS = {
    "all trials succeed": Plan(),
    "no warm-up": Plan(warmup=0),
    "a long warm-up": Plan(warmup=3),
    "with the probe": Plan(profiled=True, contenders=("system", "x")),
    "one contender fails in a round": Plan(
        broken(lambda t: (t.workload, t.contender) == (1, "x") and t.round == 2)
    ),
    "one contender fails in a long warm-up": Plan(
        broken(lambda t: (t.workload, t.contender) == (0, "x")), warmup=3
    ),
    "one contender crashes": Plan(
        broken(
            lambda t: (t.workload, t.contender) == (1, "x") and t.round == 2,
            "was killed by signal 11", signal=11,
        )
    ),
    "all others crash": Plan(
        broken(
            lambda t: t.workload == 0 and t.contender != "system" and t.round >= 2,
            "was killed by signal 11", signal=11,
        )
    ),
    "all others fail in the warm-up": Plan(
        broken(lambda t: t.workload == 0 and t.contender != "system")
    ),
    "all others fail in a round": Plan(
        broken(lambda t: t.workload == 0 and t.contender != "system" and t.round >= 2)
    ),
    "the only other one fails": Plan(
        broken(lambda t: (t.workload, t.contender) == (1, "x")), contenders=("system", "x")
    ),
    "the baseline fails": Plan(
        broken(lambda t: (t.workload, t.contender) == (0, "system") and t.round == 2)
    ),
    "the program fails now and then": Plan(flaky),
    "a slow program fails": Plan(slow),
    "a program goes into the background": Plan(in_background),
    "it does so without a warm-up": Plan(in_background, warmup=0),
    "it does so after the warm-up": Plan(slower),
    "a trial cannot be prepared": Plan(
        unprepared(lambda t: (t.workload, t.contender, t.round) == (1, "y", 2))
    ),
    "a program can no longer be prepared": Plan(
        unprepared(lambda t: t.workload == 1 and t.round > 1)
    ),
    "a program can never be prepared": Plan(unprepared(lambda t: t.workload == 0)),
    "two rounds cannot be prepared": Plan(
        unprepared(lambda t: t.workload == 1 and t.round in (1, 3) and t.contender == "x")
    ),
    "the warm-up cannot be prepared": Plan(
        unprepared(lambda t: t.workload == 1 and t.round == 0 and t.contender != "system"),
        contenders=("system", "x", "y", "z"), step=7,
    ),
    "a crash in a further round": Plan(crash_in_a_further_round),
}  # fmt: skip

NAMES = [
    pytest.param(name, marks=[] if place % 3 == 0 else pytest.mark.long)
    for place, name in enumerate(PLANS)
]


def found(folder: Folder) -> tuple[object, ...]:
    """Returns the trials of a run with their failures, and why measuring ended."""
    return trials(folder), [one.failure for one in folder.samples()], folder.stopped()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_interrupted_anywhere_has_the_trials_of_an_uninterrupted_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = PLANS[name]
    measured = Measuring(tmp_path, monkeypatch)
    whole = found(measured(plan.run(0), plan.outcome))
    differs = []
    for stop_at in range(1, measured.calls):
        run = plan.run(stop_at)
        measured(run, plan.outcome, stop_at=stop_at)
        if found(measured(run, plan.outcome)) != whole:
            differs.append(stop_at)
    assert not differs


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_interrupted_again_and_again_has_them_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = PLANS[name]
    measured = Measuring(tmp_path, monkeypatch)
    whole = found(measured(plan.run(0), plan.outcome))
    sessions = measured.calls
    run = plan.run(1)
    for _ in range(sessions):
        folder = measured(run, plan.outcome, stop_at=plan.step)
    assert found(folder) == whole


def test_the_warm_up_is_run_again_if_the_machine_was_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(warmup=2)
    measured = Measuring(tmp_path, monkeypatch)
    whole = trials(measured(plan.run(0)))
    measured(plan.run(1), stop_at=15)
    monkeypatch.setattr("time.clock_gettime", lambda _: 0.0)
    resumed = trials(measured(plan.run(1)))
    assert resumed == whole[:15] + whole[:12] + whole[15:]


def a_comparison(number: int) -> Run:
    """Returns a comparison of two contenders on one program, which ends with the first failure."""
    made = Plan(contenders=("system", "x")).run(number)
    settings = replace(made.settings, workloads=made.settings.workloads[:1], by_cell=False)
    return replace(made, settings=settings)


def test_a_soak_that_is_interrupted_anywhere_has_the_trials_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupted round stayed incomplete, so some contenders had a run more than others."""

    def a_soak(number: int) -> Run:
        made = Plan(warmup=0).run(number)
        settings = replace(
            made.settings, workloads=made.settings.workloads[:1], by_cell=False, soak_s=30.0
        )
        return replace(made, settings=settings, experiment=None, rule=StopRule(None, 2, 2))

    measured = Measuring(tmp_path, monkeypatch)
    whole = found(measured(a_soak(0)))
    assert measured.calls == 6
    for stop_at in range(1, 6):
        measured(a_soak(stop_at), stop_at=stop_at)
        assert found(measured(a_soak(stop_at))) == whole, stop_at


def test_a_comparison_with_nothing_left_to_compare_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it was resumed, the baseline alone ran in all further rounds."""
    run = a_comparison(0)
    crash = broken(lambda t: t.contender == "x", "was killed by signal 11", signal=11)
    measured = Measuring(tmp_path, monkeypatch)
    with pytest.raises(ContenderFailed, match="nothing is left to compare system with: under x"):
        measured(run, crash)
    with pytest.raises(ContenderFailed, match="has already failed under x; begin a new run"):
        measured(run, crash)
    assert measured.calls == 0


def test_a_program_that_fails_now_and_then_is_to_blame_after_an_interruption_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the runs that show it were interrupted, the contender was to blame for the failure."""

    def outcome(trial: Trial) -> Sample:
        fails = (trial.contender, trial.round) == ("x", 2)
        again = trial == Trial(0, 0, "system") and len(tried) == 2
        if trial == Trial(0, 0, "system"):
            tried.append(trial)
        return broken(lambda _: fails or again)(trial)

    tried = list[Trial]()
    measured = Measuring(tmp_path, monkeypatch)
    with pytest.raises(ProgramFailed):
        measured(a_comparison(0), outcome)
    whole = trials(Folder(tmp_path / "results" / a_comparison(0).id))
    failed = whole.index(Trial(2, whole[-3].position, "x")) + 1
    assert whole[failed:] == [Trial(0, 0, "system")] * 2
    for number in (1, 2):
        tried.clear()
        measured(a_comparison(number), outcome, stop_at=failed + number - 1)
        with pytest.raises(ProgramFailed):
            measured(a_comparison(number), outcome)
        assert trials(Folder(tmp_path / "results" / a_comparison(number).id)) == whole
