"""Tests of when a measurement ends, and of what it expects, with a runner that runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.comparisons import a_run, a_sample
from support.observers import Quiet

from cairn.cli.measurement import raise_failures
from cairn.doctor import machine
from cairn.errors import BudgetTooShort, CairnError, ContenderFailed, UsageError
from cairn.memory import Memory
from cairn.model import TIME_BUDGET, Run, Sample, StopRule, Trial, Workload
from cairn.report.run import Measured, comparisons
from cairn.run import batches, builds, measure, store
from cairn.run.runner import Trace

GIB = 1 << 30
Outcome = Callable[[Trial], Sample]


class Clock:
    """A clock that stands still until a run moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (measure, measure.time_budget):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


class Told(Quiet):
    """An observer that records each message of the measurement."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.sizes: list[int] = []

    def told(self, sentence: str) -> None:
        """Keeps the sentence."""
        self.said.append(sentence)

    def warmed(self, size: int) -> None:
        """Keeps the size."""
        self.sizes.append(size)


def measured(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome,
    touch: Callable[[int], None] = lambda _: None,
) -> tuple[store.Folder, Told]:  # fmt: skip
    """Measures a run whose trials have this outcome."""

    class Fake:
        def __init__(self, *_: object) -> None:
            """Needs nothing."""

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, Trace]:
            return replace(outcome(trial), trial=trial), Trace(b"", "")

        def batch(self, trial: Trial, number: int) -> tuple[Sample, Trace]:
            return batches.merged([self.trial(trial)[0] for _ in range(number)]), Trace(b"", "")

        def touch(self, size: int) -> None:
            touch(size)

    monkeypatch.setattr(builds, "of_run", lambda *_: ())
    monkeypatch.setattr(measure, "Runner", Fake)
    stored, told = store.Folder.create(folder, run), Told()
    measure.Measurement(run, stored, folder, told).measure()
    return stored, told


# A sweep


def test_a_failure_on_the_last_workload_keeps_the_results_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reports of all workloads were once lost if the last open one had nothing to compare."""
    run = a_run()
    settings = replace(run.settings, workloads=(Workload("a", ("a",)), Workload("b", ("b",))))
    rule = StopRule(precision=0.05, min_rounds=4, max_rounds=30)
    run = replace(run, settings=settings, rule=rule, host=replace(run.host, virtual=False))

    def outcome(trial: Trial) -> Sample:
        noise = 1 + 0.4 * (trial.round % 3) * trial.workload * (trial.contender == "fast")
        fails = (trial.workload, trial.contender) == (1, "fast") and trial.round == 15
        why = "was killed by signal 11 (SIGSEGV)" if fails else None
        return a_sample(0, "", 100.0 * noise, failure=why, signal=11 if fails else None)

    stored, _ = measured(run, tmp_path, monkeypatch, outcome)
    first, second = stored.stopped()
    assert first != "nothing left to compare" and second == "nothing left to compare"
    found = comparisons(Measured(run, stored.samples(), stored.stopped(), "last"))
    assert found[0].rounds < 15 and found[0].judged.judgements
    with pytest.raises(ContenderFailed, match="no result for fast"):
        raise_failures(run, found)


def test_a_sweep_with_nothing_left_on_any_workload_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run()
    settings = replace(run.settings, workloads=(Workload("a", ("a",)), Workload("b", ("b",))))
    run = replace(run, settings=settings, host=replace(run.host, virtual=False))

    def outcome(trial: Trial) -> Sample:
        why = "was killed by signal 11 (SIGSEGV)" if trial.contender == "fast" else None
        return a_sample(0, "", 100.0, failure=why, signal=11 if why else None)

    with pytest.raises(ContenderFailed, match="nothing is left to compare system with on b"):
        measured(run, tmp_path, monkeypatch, outcome)


# The budget


@pytest.mark.parametrize("repeat", [100, None])
def test_a_budget_without_room_for_a_batch_of_each_contender_is_refused_after_one_run(
    repeat: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forecast once took a batch for one run, and the run ended without a verdict."""
    clock = Clock(monkeypatch)
    trials: list[Trial] = []

    def outcome(trial: Trial) -> Sample:
        clock.now += 1.0
        trials.append(trial)
        return a_sample(0, "", 2.0)

    run = replace(a_run(), rule=StopRule(budget_s=10.0))
    run = replace(
        run, settings=replace(run.settings, repeat=repeat), host=replace(run.host, virtual=False)
    )
    runs = 2 * (repeat or batches.wanted(2e6))
    with pytest.raises(UsageError, match=rf"no round fits .* takes about 1 s, .* has {runs} "):
        measured(run, tmp_path, monkeypatch, outcome)
    assert trials == [Trial(0, 0, "system")]


def test_batches_are_as_long_as_the_shortest_run_of_the_warm_up_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run reads cold files. It alone decided, so a short program had no batches."""

    def outcome(trial: Trial) -> Sample:
        return a_sample(0, "", 30.0 if trial == Trial(0, 0, "system") else 2.0)

    run = replace(a_run(), host=replace(a_run().host, virtual=False))
    run = replace(run, settings=replace(run.settings, repeat=None))
    stored, told = measured(run, tmp_path, monkeypatch, outcome)
    repeats = {one.repeats for one in stored.samples() if one.trial.round}
    assert repeats == {batches.wanted(2e6)} == {10} and told.said == []
    stored.append(a_sample(0, "system", 0.5))  # a later run of the warm-up decides nothing
    resumed = measure.Measurement(run, store.Folder(stored.path), tmp_path, Told())
    assert resumed._repeats(Trial(13, 0, "fast")) == 10


def test_a_budget_that_ends_in_the_first_round_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code was once 0, with "No verdict: no round is complete"."""
    clock = Clock(monkeypatch)

    def outcome(trial: Trial) -> Sample:
        clock.now += 30.0 if trial.round else 1.0
        return a_sample(0, "", 1000.0)

    run = replace(a_run(), rule=StopRule(budget_s=20.0))
    run = replace(run, host=replace(run.host, virtual=False))
    with pytest.raises(UsageError, match=r"budget of 20 s: .* --budget \d+min$") as raised:
        measured(run, tmp_path, monkeypatch, outcome)
    assert raised.value.exit_code == 2
    stored = store.Folder(tmp_path / run.id)
    assert stored.stopped() == (TIME_BUDGET,)
    assert [one.trial.round for one in stored.samples()] == [0, 0, 1]
    bench = replace(run, experiment="larson")
    with pytest.raises(UsageError, match=r"budget of 20 s: .*: -r \d+$"):
        measured(bench, tmp_path / "bench", monkeypatch, outcome)


def test_a_program_that_fails_under_all_contenders_has_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rounds once counted as complete, so a budget that ended too early was not reported."""
    clock = Clock(monkeypatch)
    failed: set[str] = set()

    def outcome(trial: Trial) -> Sample:
        clock.now += 30.0 if trial.round else 1.0
        fails = trial.workload == 0 and (trial.contender == "fast" or "fast" in failed)
        if fails:
            failed.add(trial.contender)
        return a_sample(0, "", 1000.0, failure="failed with exit code 1" if fails else None)

    run = a_run()
    settings = replace(
        run.settings, workloads=(Workload("a", ("a",)), Workload("b", ("b",))), by_cell=True
    )
    rule = StopRule(precision=None, min_rounds=4, max_rounds=4, budget_s=20.0, judged="active")
    run = replace(run, settings=settings, rule=rule, host=replace(run.host, virtual=False))
    with pytest.raises(BudgetTooShort, match="no round fits into the budget of 20 s"):
        measured(run, tmp_path, monkeypatch, outcome)
    assert failed == {"fast", "system"}


def test_a_spent_budget_hides_no_failure_of_all_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code was 2, with "a round has 0 runs", and the failures were not told."""
    clock = Clock(monkeypatch)

    def outcome(_: Trial) -> Sample:
        clock.now += 30.0
        return a_sample(0, "", 1000.0, failure="failed with exit code 1")

    run = a_run()
    rule = StopRule(precision=None, min_rounds=4, max_rounds=4, budget_s=5.0, judged="active")
    settings = replace(run.settings, by_cell=True)
    run = replace(run, settings=settings, rule=rule, host=replace(run.host, virtual=False))
    folder, _ = measured(run, tmp_path, monkeypatch, outcome)
    assert folder.samples() and all(one.failure for one in folder.samples())


# Warm memory


def a_virtual_run(**settings: object) -> Run:
    """Returns a run in a virtual machine."""
    run = replace(a_run(), rule=StopRule(precision=None, min_rounds=4, max_rounds=4))
    return replace(
        run, settings=replace(run.settings, **settings), host=replace(run.host, virtual=True)
    )


def large(_: Trial) -> Sample:
    """Returns a trial that needs 1 GiB."""
    return a_sample(0, "", 100.0, memory=Memory("cgroup v1", GIB, GIB, 0))


def test_less_memory_is_touched_when_less_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size was once chosen before the first round, and the run ended when it was too large."""
    available = iter([8 * GIB, 8 * GIB, GIB, 0, 8 * GIB])
    monkeypatch.setattr(machine, "available_memory", lambda: next(available))
    touched: list[int] = []
    _, told = measured(a_virtual_run(), tmp_path, monkeypatch, large, touched.append)
    assert touched == [int(1.2 * GIB), int(0.7 * GIB), int(1.2 * GIB)]
    assert (told.sizes, told.said) == ([int(1.2 * GIB)], [])


def fails(size: int) -> None:
    raise CairnError("cannot warm 1 MiB of memory: cairn-launch was killed by signal 9 (SIGKILL)")


def test_a_run_goes_on_without_warm_memory_if_touching_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 8 * GIB)
    stored, told = measured(a_virtual_run(), tmp_path, monkeypatch, large, fails)
    assert stored.stopped() == ("4 rounds",)
    assert told.said == [
        "cannot warm 1 MiB of memory: cairn-launch was killed by signal 9 (SIGKILL); the rounds go "
        "on without touched memory"
    ]


def test_a_size_that_the_user_gave_must_be_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CairnError, match=r"SIGKILL\); give --warm-memory a smaller size, or"):
        measured(a_virtual_run(warm_memory=GIB), tmp_path, monkeypatch, large, fails)


@pytest.mark.parametrize(
    ("files", "room"),
    [
        ({}, 8 * GIB),
        ({"/proc/self/cgroup": "0::/a/b\n"}, 8 * GIB),
        (
            {"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/memory.max": f"{4 * GIB}\n",
             "/sys/fs/cgroup/a/memory.current": f"{3 * GIB}\n",
             "/sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB}\n",
             "/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/b/memory.current": "5\n"},
            2 * GIB,
        ),
        (
            {"/proc/self/cgroup": "4:cpu,memory:/docker/x\n0::/\n",
             "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
             "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2 * GIB}\n"},
            0,
        ),
        (
            {"/proc/self/cgroup": "4:memory:/\n",
             "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
             "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n"},
            8 * GIB,
        ),
    ],
)  # fmt: skip
def test_the_available_memory_is_that_of_the_cgroups_too(
    files: dict[str, str], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, the kernel once ended a run because of the limit of the container."""
    meminfo = {"/proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {8 * GIB // 1024} kB\n"}
    monkeypatch.setattr(machine, "_read", (meminfo | files).get)
    assert machine.available_memory() == room
    monkeypatch.setattr(machine, "_read", files.get)
    assert machine.available_memory() is None
