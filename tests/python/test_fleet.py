"""Tests of a plan on several machines: delivery, strata, waiting, and the commands of Slurm."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from rich.console import Console
from support.fleets import PLAN, Invented, a_fleet, a_round, deliver
from support.plans import a_plan_run

from cairn.cli import cli, measurement
from cairn.cli import fleet as fleet_commands
from cairn.cli.console import Output
from cairn.errors import CairnError, UsageError
from cairn.matrix import fleet_round, runs, schedulers
from cairn.matrix.fleet import COMPLETE, Fleet, Job, Refusal, find, fleets
from cairn.matrix.fleet_watch import TRIES, FleetWatch
from cairn.matrix.schedulers import Fate
from cairn.model import TIME_BUDGET, UNSUITED, Contender, Run
from cairn.report.run import fitting, plan_report
from cairn.report.view import View
from cairn.run import stop_request, store


def test_a_round_that_is_delivered_twice_counts_once(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path)
    first, node = a_round(fleet, 2, "n1", ratio=1.1)
    second, other = a_round(fleet, 2, "n2", ratio=5.0)
    assert fleet.deliver(first, 2, node)
    assert not fleet.deliver(second, 2, other)
    assert fleet.numbers() == (2,)
    (one,) = fleet.nodes()
    assert one.node == "n1"
    assert len(one.samples()) == 4
    assert fleet.ended() is None


def test_rounds_of_another_plan_and_attempts_do_not_count(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=2)
    a_round(fleet, 1)
    other = replace(fleet.plan, seed=12).digest
    deliver(fleet, 2)
    rounds = fleet.path / "rounds"
    (rounds / fleet.name_of(2)).rename(rounds / f"{other}-0002")
    assert fleet.numbers() == ()
    assert find(tmp_path, "last").nodes() == ()
    with pytest.raises(CairnError, match=r"node\.json"):
        (rounds / fleet.name_of(1)).mkdir()
        fleet.nodes()


@pytest.mark.parametrize(
    "change",
    [{"text": PLAN + "\n"}, {"seed": 12}, {"contenders": ("system", "y")}, {"only": ("a",)},
     {"cairn": "0"}, {"folder": "/x"}, {"baseline": "x"}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_the_hash_covers_what_a_round_measures(tmp_path: Path, change: dict[str, object]) -> None:
    plan = a_fleet(tmp_path).plan
    assert replace(plan, **change).digest != plan.digest
    assert replace(plan, rounds=99, partition="other").digest == plan.digest


def test_a_node_is_compared_with_itself_alone(tmp_path: Path) -> None:
    """One node is ten times as fast as the other. The ratios must not change.

    The report treats the rounds of each node as a run of its own, and merges these runs.
    """
    fleet = a_fleet(tmp_path, rounds=12)
    for number in range(1, 13):
        node = "fast" if number % 3 == 0 else "slow"
        deliver(fleet, number, node, pace=0.1 if node == "fast" else 1.0)
    nodes = fleet.nodes()
    assert [(one.node, len(one.rounds)) for one in nodes] == [("fast", 4), ("slow", 8)]
    made = plan_report([measurement.measured(one) for one in nodes])
    assert made.cut is None and made.result.whole_rounds == 12
    for measure in ("time", "memory"):
        mean = made.result.means[measure, "x"]
        assert mean.interval is not None
        assert mean.interval.low < 1.1 < mean.interval.high < 1.2
    notes = " ".join(made.notes)
    assert "node fast: 4 rounds on" in notes and "16 of 16 runs proved" in notes


def test_a_node_whose_library_changed_has_two_strata(tmp_path: Path) -> None:
    def rebuilt(run: Run) -> Run:
        changed = Contender("x", "x", "x 1.0", build_id="ff")
        return replace(run, contenders=(run.contenders[0], changed))

    fleet = a_fleet(tmp_path, rounds=4)
    for number in range(1, 5):
        deliver(fleet, number, change=rebuilt if number > 2 else lambda run: run)
    assert [(one.node, len(one.rounds)) for one in fleet.nodes()] == [("n1", 2), ("n1 (2)", 2)]


def test_an_unfinished_run_says_how_many_rounds_are_missing(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=9)
    for number in (1, 2, 5):
        deliver(fleet, number, "n1")
    made = plan_report([measurement.measured(one) for one in fleet.nodes()])
    assert made.cut is not None and "3 of 9 rounds" in made.cut
    assert f"'cairn matrix run --resume {fleet.plan.id}' continues" in made.cut


def test_nodes_that_differ_from_the_most_are_left_out(tmp_path: Path) -> None:
    """Once, a fleet had no report at all if two of its nodes had different C libraries."""

    def with_other_libc(run: Run) -> Run:
        system, *others = run.contenders
        return replace(run, contenders=(replace(system, title="glibc 2.41"), *others))

    def with_more_threads(run: Run) -> Run:
        one, *others = run.settings.workloads
        longer = replace(one, command=(*one.command, "--threads=64"))
        return replace(run, settings=replace(run.settings, workloads=(longer, *others)))

    fleet = a_fleet(tmp_path, rounds=8)
    for number in range(1, 9):
        node, change = {1: ("a", with_other_libc), 8: ("z", with_more_threads)}.get(
            number, ("m", lambda run: run)
        )
        deliver(fleet, number, node, change=change)
    kept, notes = fitting([measurement.measured(one) for one in fleet.nodes()])
    name = fleet.plan.id
    assert notes == (
        f"{name}@a with 1 round is left out, because its system is glibc 2.41, and that of "
        f"{name}@m is system 1.0",
        f"{name}@z with 1 round is left out, because the command of its a differs from that of "
        f"{name}@m",
    )
    made = plan_report(kept, notes=notes)
    assert made.result.whole_rounds == 6 and made.notes[:2] == notes
    assert fitting([measurement.measured(one) for one in fleet.nodes()], ["b"])[1] == notes[:1]
    done = CliRunner().invoke(cli, ["matrix", "report", name, "--results", str(tmp_path)])
    assert done.exit_code == 0 and f"{name}@a with 1 round is left out" in done.output


def test_the_exit_code_is_that_of_the_nodes_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure on a node that the report leaves out once gave the exit code, without a word."""

    def with_other_libc(run: Run) -> Run:
        system, *others = run.contenders
        return replace(run, contenders=(replace(system, title="glibc 2.41"), *others))

    fleet = a_fleet(tmp_path, rounds=3)
    for number, node in ((1, "a"), (2, "m"), (3, "m")):
        deliver(fleet, number, node, change=with_other_libc if node == "a" else lambda run: run)
    monkeypatch.setattr(schedulers, "of", lambda _: Invented())
    nodes: list[str] = []
    monkeypatch.setattr(
        measurement, "raise_failures", lambda run, _: nodes.append(run.contenders[0].title)
    )
    console = Console(file=io.StringIO(), width=200)
    fleet_commands.go_on(console, fleet, Output(View(width=80)))
    assert nodes == ["system 1.0"]


def test_a_report_after_rounds_were_given_up_says_which(tmp_path: Path) -> None:
    """Once, such a report looked complete. In its JSON, "cut" was null."""
    fleet = a_fleet(tmp_path)
    for number in (1, 2, 4):
        deliver(fleet, number)
    fleet.end("round 3 not measured: job 1_2 was cancelled")
    made = plan_report([measurement.measured(one) for one in fleet.nodes()])
    assert made.cut == "3 of 4 rounds complete: round 3 not measured: job 1_2 was cancelled"


@pytest.mark.parametrize("rounds", [2, 3], ids=["complete", "unfinished"])
def test_a_program_that_goes_on_in_the_background_is_named(tmp_path: Path, rounds: int) -> None:
    """Once, a fleet lost it without a word: a node has one reason for its end, not one each."""
    fleet = a_fleet(tmp_path, rounds=rounds)
    for number in (1, 2):
        path, node = a_round(fleet, number)
        folder = store.Folder(path)
        lines = (path / "samples.jsonl").read_bytes().splitlines(keepends=True)
        (path / "samples.jsonl").write_bytes(b"".join(lines[:2]))
        folder.mark_stopped(f"1 round\n{UNSUITED}")
        assert fleet.deliver(path, number, node)
    made = plan_report([measurement.measured(one) for one in fleet.nodes()])
    assert made.unsuited == ("b",)
    assert (made.cut is None) == (rounds == 2)


def test_a_run_without_a_round_says_how_far_it_is(tmp_path: Path) -> None:
    name = a_fleet(tmp_path).path.name
    with pytest.raises(UsageError) as raised:
        fleet_commands.stored(tmp_path, name)
    assert str(raised.value) == (
        f"no round of {name} was measured yet; 'cairn matrix status {name}' shows how far it is"
    )


def a_run_of_one_machine(results: Path, name: str) -> None:
    store.Folder.create(results, replace(a_plan_run({"a": "program"}, ("system", "x"), 1), id=name))


def test_a_name_with_which_a_fleet_and_a_run_begin_is_told(tmp_path: Path) -> None:
    """Once, the fleet was chosen without a word."""
    fleet = a_fleet(tmp_path)
    other = fleet.path.name[:-1] + "0"
    a_run_of_one_machine(tmp_path, other)
    with pytest.raises(
        UsageError, match=f"several runs begin with 2026: {fleet.path.name}, {other}"
    ):
        find(tmp_path, "2026")
    assert find(tmp_path, fleet.path.name).path == fleet.path
    assert find(tmp_path, other) is None
    a_run_of_one_machine(tmp_path, "20260202-000000-0000")
    a_run_of_one_machine(tmp_path, "20260202-000000-0001")
    assert find(tmp_path, "202602") is None, "the store tells that these are several"


def test_a_run_of_another_user_is_no_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that another user had made kept 'last' and all ids from being found."""
    fleet = a_fleet(tmp_path)
    other = tmp_path / "20270101-000000-abcd"
    other.mkdir()
    stat = os.stat

    def refused(path: object, *args: object, **how: object) -> os.stat_result:
        if str(path).startswith(f"{other}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *args, **how)  # type: ignore[arg-type]

    (other / "plan.toml").write_text(PLAN)
    opened = Path.open

    def refused_open(path: Path, *args: object, **how: object) -> object:
        if other in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *args, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "stat", refused)
    monkeypatch.setattr(Path, "open", refused_open)
    assert fleets(tmp_path) == [fleet.path]
    assert find(tmp_path, "last").path == fleet.path
    with pytest.raises(UsageError, match="is not a run"):
        store.find(tmp_path, str(other))
    with pytest.raises(UsageError, match="you may not read"):
        runs.load(str(other / "plan.toml"))


def test_a_folder_with_another_name_is_not_the_newest_run(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path)
    a_run_of_one_machine(tmp_path, "20250101-000000-0000")
    a_run_of_one_machine(tmp_path, "my-copy")
    assert find(tmp_path, "last").path == fleet.path
    a_run_of_one_machine(tmp_path, "20270101-000000-0000")
    assert find(tmp_path, "last") is None


def test_another_command_says_which_one_shows_it(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path)
    for name in (fleet.path.name, str(fleet.path)):
        with pytest.raises(UsageError, match="run on several machines; 'cairn matrix report 2026"):
            store.find(tmp_path, name)
        assert find(tmp_path, name).path == fleet.path
    assert find(tmp_path, "2026").path == fleet.path
    assert find(tmp_path, "nothing") is None and find(tmp_path / "x", "last") is None


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., tuple[FleetWatch, Fleet, Invented, list[str]]]:
    """Returns watched(*steps), a watch in which one step happens at each look."""

    def make(
        *steps: Callable[[], object], fleet: Fleet | None = None, scheduler: Invented | None = None
    ) -> tuple[FleetWatch, Fleet, Invented, list[str]]:
        now, said, left = [0.0], list[str](), list(steps)

        def sleep(seconds: float) -> None:
            now[0] += seconds
            if left:
                left.pop(0)()
            else:
                assert now[0] < 1000, said

        fleet = fleet or a_fleet(tmp_path, rounds=3)
        scheduler = scheduler or Invented()
        watch = FleetWatch(
            fleet, scheduler, lambda head, text: said.append(f"{head} {text}"),
            lambda: now[0], sleep,
        )  # fmt: skip
        return watch, fleet, scheduler, said

    return make


def test_all_rounds_are_submitted_and_awaited(watched, tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=3)
    steps = [lambda n=n: deliver(fleet, n, f"n{n}") for n in (2, 1, 3)]
    watch, _, scheduler, said = watched(*steps, fleet=fleet)
    assert watch.wait() == COMPLETE == fleet.ended()
    assert scheduler.submitted == [((1, 2, 3), ())]
    assert "round 2 measured by n2, 1 of 3" in said[1]


def test_resuming_submits_what_is_missing_and_has_no_job(watched, tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=16)
    for number in (1, *range(5, 17)):
        deliver(fleet, number)
    scheduler = Invented()
    fleet.note_submitted(scheduler.submit([1, 2, 3, 4], ()))
    scheduler.end("1_0", "1_2", "1_3")
    scheduler.fates = {name: Fate("lost", "NODE_FAIL", "n7") for name in ("1_2", "1_3")}

    def rest() -> None:
        if len(scheduler.submitted) == 2:
            for number in (2, 3, 4):
                deliver(fleet, number)

    watch, _, _, said = watched(*[rest] * 9, fleet=Fleet(fleet.path), scheduler=scheduler)
    assert watch.wait() == COMPLETE
    assert scheduler.submitted[1:] == [((3, 4), ())]
    assert any("round 3 on n7: NODE_FAIL" in line for line in said)


def test_a_round_that_is_tried_again_waits_for_its_place(watched, tmp_path: Path) -> None:
    """Each further array had a quarter of the rounds at once for itself, beside the first array."""
    fleet = a_fleet(tmp_path, rounds=8)
    scheduler = Invented()
    submitted: list[int] = []

    def fail() -> None:
        scheduler.end("1_0", fate=Fate("failed", "FAILED", "n1"))

    def end_all_but_one() -> None:
        submitted.append(len(scheduler.submitted))
        for number in range(2, 8):
            deliver(fleet, number)
            scheduler.end(f"1_{number - 1}")

    def rest() -> None:
        submitted.append(len(scheduler.submitted))
        deliver(fleet, 1)
        deliver(fleet, 8)

    steps = (fail, *[lambda: None] * 9, end_all_but_one, rest)
    watch, *_ = watched(*steps, fleet=fleet, scheduler=scheduler)
    assert watch.wait() == COMPLETE
    assert submitted == [1, 2] and scheduler.submitted[1] == ((1,), ("n1",))


def test_jobs_that_slurm_never_starts_take_no_place(watched, tmp_path: Path) -> None:
    """The jobs that no node may run kept their places, so the fleet waited for ever."""
    fleet = a_fleet(tmp_path, rounds=8)
    scheduler = Invented()
    submit = scheduler.submit

    def first_only(rounds, avoid):
        if avoid:
            raise CairnError("Slurm refused the jobs: node configuration is not available")
        return submit(rounds, avoid)

    scheduler.submit = first_only  # type: ignore[method-assign]

    def refuse() -> None:
        for number in (1, 2):
            fleet.refuse(Refusal(number, "n1", "x is not installed"))
            scheduler.end(f"1_{number - 1}")
        scheduler.reasons = dict.fromkeys(scheduler.going_on, "BadConstraints")

    watch, *_ = watched(refuse, fleet=fleet, scheduler=scheduler)
    with pytest.raises(CairnError, match="no node is left for rounds 1, 2: n1: x is not"):
        watch.wait()


def test_a_round_that_fails_again_and_again_is_given_up(watched) -> None:
    scheduler = Invented()

    def fail() -> None:
        scheduler.end(*scheduler.going_on, fate=Fate("failed", "FAILED", "n1"))

    watch, fleet, _, _ = watched(*[fail] * 30, scheduler=scheduler)
    because = watch.wait()
    assert "rounds 1, 2, 3 not measured: job" in because and "FAILED" in because
    assert len(scheduler.submitted) == TRIES
    assert scheduler.submitted[1] == ((1, 2, 3), ("n1",))
    assert fleet.ended() == because and Fleet(fleet.path).ended() == because


def test_a_lost_job_costs_no_try(watched, tmp_path: Path) -> None:
    scheduler = Invented()
    fleet = a_fleet(tmp_path, rounds=1)

    def lose() -> None:
        if len(scheduler.submitted) <= TRIES + 2:
            scheduler.end(*scheduler.going_on, fate=Fate("lost", "PREEMPTED", "n1"))
        else:
            deliver(fleet, 1)

    watch, _, _, _ = watched(*[lose] * 60, fleet=fleet, scheduler=scheduler)
    assert watch.wait() == COMPLETE
    assert len(scheduler.submitted) == TRIES + 3


def test_a_node_that_refuses_is_named_and_avoided(watched, tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=2)
    scheduler = Invented()

    def refuse() -> None:
        fleet.refuse(Refusal(1, "n2", "x is not installed"))
        scheduler.end("1_0")

    def second() -> None:
        deliver(fleet, 2, "n1")
        scheduler.end("1_1")

    steps = (refuse, lambda: None, second, lambda: deliver(fleet, 1, "n1"))
    watch, _, _, said = watched(*steps, fleet=fleet, scheduler=scheduler)
    assert watch.wait() == COMPLETE
    assert "▲ round 1 on n2: x is not installed" in said
    assert scheduler.avoided == [(("1_1",), ("n2",))]
    assert scheduler.submitted == [((1, 2), ()), ((1,), ("n2",))]


def test_no_node_is_left(watched, tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=1)
    scheduler = Invented()
    submit = scheduler.submit

    def first_only(rounds, avoid):
        if avoid:
            raise CairnError("Slurm refused the jobs: node configuration is not available")
        return submit(rounds, avoid)

    scheduler.submit = first_only  # type: ignore[method-assign]

    def refuse() -> None:
        fleet.refuse(Refusal(1, "n1", "x is not installed"))
        scheduler.end("1_0")

    watch, _, _, _ = watched(refuse, fleet=fleet, scheduler=scheduler)
    with pytest.raises(CairnError, match="no node is left for round 1: n1: x is not installed"):
        watch.wait()


def test_a_scheduler_that_does_not_answer_is_asked_again(watched, tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=1)
    scheduler = Invented(trouble="no slurm.conf")

    def answers(does: bool) -> Callable[[], None]:
        return lambda: setattr(scheduler, "answers", does)

    watch, _, _, said = watched(
        answers(False), *[lambda: None] * 20, answers(True), lambda: deliver(fleet, 1),
        fleet=fleet, scheduler=scheduler,
    )  # fmt: skip
    assert watch.wait() == COMPLETE
    assert len(scheduler.submitted) == 1
    told = [line for line in said if "does not answer" in line]
    assert len(told) == 1 and "does not answer: no slurm.conf; cairn asks" in told[0]
    assert "ctrl-C ends cairn, and --resume continues the run" in told[0]


def test_cancelled_jobs_are_not_submitted_again(watched) -> None:
    scheduler = Invented()

    def cancel() -> None:
        scheduler.end(*scheduler.going_on, fate=Fate("cancelled", "CANCELLED", "n1"))

    watch, _, _, _ = watched(cancel, scheduler=scheduler)
    assert "was cancelled" in watch.wait()
    assert len(scheduler.submitted) == 1


@pytest.mark.parametrize("remembers", [True, False], ids=["remembered", "forgotten"])
@pytest.mark.parametrize("ending", ["cancelled", "failed", "refused"])
def test_resuming_tries_a_round_again_that_was_given_up(
    watched, tmp_path: Path, ending: str, remembers: bool
) -> None:
    """The jobs of the earlier session were counted again, so no job was submitted.

    Slurm forgets a job some minutes after its end.
    """
    fleet = a_fleet(tmp_path, rounds=1)
    scheduler = Invented()
    fate = Fate(ending, ending.upper(), "n1") if ending != "refused" else Fate("unknown", "")

    def end() -> None:
        if ending == "refused":
            for job in scheduler.going_on:
                fleet.refuse(Refusal(1, f"n{job}", "x is not installed"))
        scheduler.end(*scheduler.going_on, fate=fate)

    watch, *_ = watched(*[end] * 30, fleet=fleet, scheduler=scheduler)
    assert "round 1 not measured" in watch.wait()
    tries = 1 if ending == "cancelled" else TRIES
    assert len(scheduler.submitted) == tries
    if not remembers:
        scheduler.fates.clear()
    steps = [lambda: None] * 5 + [lambda: deliver(fleet, 1)]
    again, _, _, said = watched(*steps, fleet=Fleet(fleet.path), scheduler=scheduler)
    assert again.wait() == COMPLETE
    assert len(scheduler.submitted) == tries + 1
    told = [line for line in said if line.startswith("▲")]
    ended = f"▲ round 1: job {tries}_0 ended as {ending.upper()} without a result; the round is"
    assert told == ([f"{ended} tried again"] if remembers and ending != "refused" else [])


def test_each_resumed_watch_counts_its_own_failures(watched, tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=1)
    scheduler = Invented()

    def fail() -> None:
        scheduler.end(*scheduler.going_on, fate=Fate("failed", "FAILED", "n1"))

    for session in (1, 2, 3):
        watch, *_ = watched(*[fail] * 30, fleet=Fleet(fleet.path), scheduler=scheduler)
        assert "round 1 not measured" in watch.wait()
        assert len(scheduler.submitted) == session * TRIES


def test_an_end_that_a_resumed_watch_sees_counts(watched, tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=1)
    scheduler = Invented()
    fleet.note_submitted(scheduler.submit([1], ()))

    def cancel() -> None:
        scheduler.end(*scheduler.going_on, fate=Fate("cancelled", "CANCELLED", "n1"))

    watch, *_ = watched(lambda: None, cancel, fleet=Fleet(fleet.path), scheduler=scheduler)
    assert "job 1_0 was cancelled" in watch.wait()
    assert len(scheduler.submitted) == 1


def test_the_budget_ends_the_jobs(watched, tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, rounds=3, budget_s=30.0)
    watch, _, scheduler, _ = watched(lambda: deliver(fleet, 1), fleet=fleet)
    assert watch.wait() == TIME_BUDGET == fleet.ended()
    assert scheduler.cancelled == ["1_1", "1_2"]
    made = plan_report([measurement.measured(one) for one in fleet.nodes()])
    assert made.cut is not None and "1 of 3 rounds fitted" in made.cut


def test_the_budget_begins_with_the_first_job(watched, tmp_path: Path) -> None:
    """Once, the time in the queue counted, so the jobs were cancelled before they had begun."""
    fleet = a_fleet(tmp_path, rounds=2, budget_s=30.0)
    scheduler = Invented()

    def begin() -> None:
        scheduler.going_on["1_0"] = "RUNNING"

    waits = [lambda: None] * 50
    watch, _, _, said = watched(
        *waits, begin, *[lambda: None] * 5, fleet=fleet, scheduler=scheduler
    )
    times: list[float] = []
    scheduler.cancel = lambda _: times.append(watch._clock())  # type: ignore[method-assign]
    assert watch.wait() == TIME_BUDGET
    assert times == [pytest.approx(2 * 51 + 30, abs=2)], said


def test_a_reason_for_which_jobs_wait_for_ever_is_told_once(watched, tmp_path: Path) -> None:
    """Once, cairn waited in silence for jobs that Slurm never starts."""
    fleet = a_fleet(tmp_path, rounds=2, minutes=90)
    scheduler = Invented()

    def wait() -> None:
        scheduler.reasons = {"1_0": "PartitionTimeLimit", "1_1": "BadConstraints"}

    def measure() -> None:
        deliver(fleet, 1)
        deliver(fleet, 2)

    watch, _, _, said = watched(*[wait] * 5, measure, fleet=fleet, scheduler=scheduler)
    assert watch.wait() == COMPLETE
    told = [line for line in said if line.startswith("▲")]
    end = "ctrl-C ends cairn, and scancel ends the jobs"
    assert told == [
        "▲ Slurm does not start round 1 yet: PartitionTimeLimit; the partition does not allow the "
        f"90 minutes of a job; {end}; then begin a new run with --sbatch time=N",
        f"▲ Slurm does not start round 2 yet: BadConstraints; {end}",
    ]


def test_one_cairn_alone_waits_for_a_run(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path)
    assert not Fleet(fleet.path).is_held()
    fleet.hold()
    assert Fleet(fleet.path).is_held()
    with pytest.raises(CairnError, match="another cairn waits for"):
        Fleet(fleet.path).hold()


def test_a_file_system_without_locks_holds_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refused)
    fleet = a_fleet(tmp_path)
    fleet.hold()
    assert not fleet.is_held()


def test_an_incomplete_line_of_jobs_is_ignored(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path)
    fleet.note_submitted([Job("1_0", 1)])
    with (fleet.path / "jobs.jsonl").open("a") as file:
        file.write('{"id": "1_1", "rou')
    assert fleet.submitted() == (Job("1_0", 1),)
    fleet.note_submitted([Job("2_0", 2)])
    assert fleet.submitted() == (Job("1_0", 1), Job("2_0", 2))


def limit_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, warmup: int, on: str
) -> int:
    """Begins a fleet of a plan with one program, and returns its time limit in minutes."""
    made: list[Fleet] = []
    monkeypatch.setattr(fleet_commands, "go_on", lambda _, fleet, __: made.append(fleet))
    monkeypatch.setattr(schedulers, "needed", lambda *_: None)
    file = tmp_path / "plan.toml"
    file.write_text(
        f'[plan]\ncontenders = ["system", "jemalloc"]\nwarmup = {warmup}\n'
        f'[program.p]\ncommand = "cat"\n{lines}\n'
    )
    fleet_commands.begin(
        Console(file=io.StringIO()), runs.load(str(file)), tmp_path / "results", Output(View()),
        on=on, sbatch=(), specs=(), rounds=1, budget=None, only=(), seed=None,
    )  # fmt: skip
    return made[0].plan.minutes


@pytest.mark.parametrize("on", ["slurm", "local"])
def test_the_limit_of_a_job_has_its_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    """A job with ten runs of warm-up needed more time than it got, so no round ever ended."""
    minutes = limit_of_a_job(tmp_path, monkeypatch, "seconds = 120", 10, on)
    needed = 2 * 11 * 1.25 * 120 / 60
    assert minutes == pytest.approx(4 * needed + 10, abs=1)


def test_a_job_on_this_machine_may_use_all_the_time_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program without 'seconds' counts as 1 s. Its job was ended after 10 minutes."""
    lines = 'timeout = "1h"'
    assert limit_of_a_job(tmp_path, monkeypatch, lines, 1, "local") == 2 * 2 * 60 + 10


def test_a_node_with_another_cairn_refuses(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, cairn="0.0.1")
    assert fleet_round.measure(str(fleet.path), 1) == "refused"
    (refusal,) = fleet.refusals().values()
    assert refusal.round == 1 and "and the run was begun with 0.0.1" in refusal.says


def test_a_job_that_waits_for_another_one_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library submitit ignores SIGTERM. So a job that waited for the lock went on to measure its round."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(stop_request, "_received", [])
    other = os.open(tmp_path / f"cairn-round-{os.getuid()}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    done = threading.Event()

    def ignored(*_: object) -> None:
        """Does nothing, like the handler of submitit."""

    def end() -> None:
        while signal.getsignal(signal.SIGTERM) is ignored and not done.wait(0.2):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, ignored)
    ender = threading.Timer(0.5, end)
    release = threading.Timer(20, fcntl.flock, (other, fcntl.LOCK_UN))
    try:
        ender.start()
        release.start()
        assert fleet_round.measure(str(a_fleet(tmp_path / "results").path), 1) == "interrupted"
    finally:
        done.set()
        release.cancel()
        for timer in (ender, release):
            timer.join()
        signal.signal(signal.SIGTERM, before)
        os.close(other)


def test_processes_of_jobs_write_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        with schedulers._output_to(log):
            subprocess.run(["sh", "-c", "echo out; echo err >&2"], check=True)
    subprocess.run(["echo", "after"], check=True)
    assert log.read_text() == "out\nerr\n" * 2
    assert capfd.readouterr() == ("after\n", "")
    with pytest.raises(CairnError, match="cannot write"), schedulers._output_to(tmp_path):
        raise AssertionError


def test_a_round_that_is_there_is_not_measured_again(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path)
    deliver(fleet, 1)
    assert fleet_round.measure(str(fleet.path), 1) == "not needed"
    assert not fleet.refusals()


def test_programs_do_not_see_the_variables_of_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "6")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    monkeypatch.setenv("SLURMD_NODENAME", "n4")
    assert (fleet_round.node_name(), fleet_round.job_id()) == ("n4", "6_2")
    with fleet_round._without_scheduler():
        assert not [name for name in os.environ if name.startswith("SLURM")]
    assert os.environ["SLURM_JOB_ID"] == "7"


def test_the_status_of_a_fleet_that_nobody_waits_for_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = a_fleet(tmp_path, rounds=2)
    deliver(fleet, 1)
    further = f"Next: cairn matrix run --resume {fleet.plan.id}"

    def said() -> str:
        fleet_commands.status(Fleet(fleet.path), View(), as_json=False)
        return capsys.readouterr().out

    text = said()
    assert "1 of 2 rounds complete" in text and "not finished" in text and further in text
    fleet.hold()
    assert "running" in (text := said()) and further not in text
    deliver(fleet, 2)
    fleet.end(COMPLETE)
    assert further not in said()


def test_a_file_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path)
    (fleet.path / "ended").mkdir()
    before = sorted(fleet.path.iterdir())
    with pytest.raises(CairnError, match="cannot write"):
        fleet.end(TIME_BUDGET)
    assert sorted(fleet.path.iterdir()) == before
