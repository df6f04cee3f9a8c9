"""Tests of failures of workloads, with a program that fails as requested (standin_workload.c).

If a contender fails on a workload, only this cell of the table is lost, and the run continues.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from cairn.bench import experiments
from cairn.doctor import machine
from cairn.errors import CairnError, Interrupted
from cairn.memory import Memory
from cairn.model import (
    INTERRUPTED,
    SCHEMA,
    Run,
    Sample,
    Settings,
    StopRule,
    Trial,
    Workload,
)
from cairn.run import measure, preflight
from cairn.run.runner import Runner, private_folder
from cairn.run.store import Folder

ALIKE = ("system", "again=system")


class Watcher:
    """An observer that records the events, and that can interrupt the run after some trials."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.failed: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.trials = 0
        self._interrupt_after = interrupt_after

    def trial_begins(self, _: Trial) -> None:
        self.trials += 1
        if self._interrupt_after is not None and self.trials > self._interrupt_after:
            raise KeyboardInterrupt

    def trial_ended(self, sample: Sample) -> None:
        pass

    def contender_failed(self, name: str, why: str) -> None:
        self.failed.append((name, why))

    def told(self, sentence: str) -> None:
        self.said.append(sentence)

    def warmed(self, size: int) -> None:
        pass

    def round_ended(self, progress: measure.Progress) -> None:
        pass


@pytest.fixture
def standin(compiled: Callable[..., Path]) -> Path:
    return compiled("standin_workload.c")


def begun(standin: Path, folder: Path, *specs: str, rule: StopRule | None = None, sizes: tuple[int,
...] = (100, 200),
          **more: object) -> Run:  # fmt: skip
    """Returns a new bench run of the stand-in: a workload for each number of operations in `sizes`.

    The run has not been stored yet.
    """
    settings = Settings(
        workloads=tuple(Workload(f"standin-{size}", (str(standin), str(size))) for size in sizes),
        folder="/", reports=True, **more,
    )  # fmt: skip
    ready = preflight.prepare(specs, settings, None, print)
    return Run(
        schema=SCHEMA, id="20260101-000000-abcd", created_at=time.time(), cairn="0",
        settings=settings, contenders=ready.contenders, baseline=ready.baseline,
        rule=rule or experiments.rounds(2), seed=1, host=replace(machine.host(), virtual=False),
        experiment="workloads",
    )  # fmt: skip


def measured(run: Run, results: Path) -> tuple[list[Sample], Watcher, Folder]:
    watcher = Watcher()
    folder = Folder.create(results, run)
    with private_folder() as scratch:
        measure.Measurement(run, folder, scratch, watcher).measure()
    return list(folder.samples()), watcher, folder


def test_a_report_is_stored_and_read_again(standin: Path, tmp_path: Path) -> None:
    samples, watcher, _ = measured(begun(standin, tmp_path, *ALIKE), tmp_path)
    assert len(samples) == 2 * 2 * 3 and not watcher.failed
    assert all(s.reported is not None and s.reported.median_ns == 12.0 for s in samples)
    assert {s.reported.operations for s in samples if s.trial.workload == 1} == {200}
    assert all(s.output_digest is not None for s in samples)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("checksum", "computed another checksum than under system"),
        ("silent", "printed nothing"),
        ("torn", "printed a last line that is not a report"),
        ("crash", "was killed by signal 6 (SIGABRT)"),
        ("damaged", "failed with exit code 1: standin: 3 blocks did not hold"),
    ],
)
def test_a_contender_that_fails_on_one_workload_loses_only_that_cell(
    how: str, says: str, standin: Path, tmp_path: Path
) -> None:
    bad = f"bad=system:STANDIN={how};STANDIN_ONLY=200"
    samples, watcher, folder = measured(begun(standin, tmp_path, *ALIKE, bad), tmp_path)
    assert watcher.failed == [("bad on standin-200", watcher.failed[0][1])]
    assert watcher.failed[0][1].startswith(says)
    ran = [(s.trial.workload, s.trial.contender) for s in samples]
    assert (
        ran.count((0, "bad")) == 3 and ran.count((1, "bad")) == 1 and ran.count((1, "again")) == 3
    )
    assert folder.stopped() == ("2 rounds", "2 rounds")


def test_a_baseline_that_fails_costs_the_workload_and_not_the_run(
    standin: Path, tmp_path: Path
) -> None:
    specs = ("system:STANDIN=crash;STANDIN_ONLY=100", "again=system:X=1")
    samples, watcher, folder = measured(begun(standin, tmp_path, *specs), tmp_path)
    assert [name for name, _ in watcher.failed] == [f"{specs[0]} on standin-100"]
    ran = [(s.trial.workload, s.trial.contender) for s in samples]
    assert ran.count((1, "again")) == 3
    assert folder.stopped() == (f"fails under {specs[0]}", "2 rounds")


def test_a_run_ends_normally_if_every_trial_fails(standin: Path, tmp_path: Path) -> None:
    specs = ("system", "bad=system:STANDIN=crash", "worse=system:STANDIN=silent")
    _, watcher, folder = measured(begun(standin, tmp_path, *specs), tmp_path)
    assert len(watcher.failed) == 4
    assert folder.stopped() == ("nothing left to compare",) * 2


def test_a_workload_that_runs_for_a_fixed_time_has_no_checksum_and_one_note(
    standin: Path, tmp_path: Path
) -> None:
    knobs = "STANDIN=timed;STANDIN_ONLY=200"
    run = begun(standin, tmp_path, f"system:{knobs}", f"again=system:{knobs}")
    samples, watcher, _ = measured(run, tmp_path)
    assert not watcher.failed
    (said,) = watcher.said
    assert "standin-200" in said and "standin-100" not in said and "not compared" in said
    assert all((s.output_digest is None) == (s.trial.workload == 1) for s in samples)


def test_an_interrupted_suite_is_resumed_at_the_next_trial(standin: Path, tmp_path: Path) -> None:
    run = begun(standin, tmp_path, *ALIKE, "bad=system:STANDIN=crash;STANDIN_ONLY=200")
    folder = Folder.create(tmp_path, run)
    with private_folder() as scratch, pytest.raises(Interrupted):
        measure.Measurement(run, folder, scratch, Watcher(interrupt_after=9)).measure()
    assert folder.stopped() == (INTERRUPTED,)
    before = len(folder.samples())
    watcher = Watcher()
    with private_folder() as scratch:
        measure.Measurement(run, folder, scratch, watcher).measure()
    samples = folder.samples()
    assert len(samples) > before and not watcher.failed, "a failed cell is not tried again"
    for workload in (0, 1):
        counted = [
            s
            for s in samples
            if s.counts and (s.trial.workload, s.trial.contender) == (workload, "again")
        ]
        assert len(counted) >= 2


def test_a_baseline_that_failed_before_the_interruption_is_not_tried_again(
    standin: Path, tmp_path: Path
) -> None:
    run = begun(standin, tmp_path, "system:STANDIN=crash;STANDIN_ONLY=100", "again=system:X=1")
    folder = Folder.create(tmp_path, run)
    with private_folder() as scratch, pytest.raises(Interrupted):
        measure.Measurement(run, folder, scratch, Watcher(interrupt_after=3)).measure()
    with private_folder() as scratch:
        measure.Measurement(run, folder, scratch, Watcher()).measure()
    assert folder.stopped()[0].startswith("fails under")


def test_a_suite_stops_on_active_time(standin: Path, tmp_path: Path) -> None:
    """The rule stops when the active time is precise enough. Active time excludes planned sleep.

    The sleep is constant, so the noise is a larger share of the active time than of the wall time.
    """
    rule = StopRule(precision=0.9, min_rounds=4, max_rounds=6, judged="active")
    settings_run = begun(standin, tmp_path, *ALIKE, rule=rule, sizes=(1000,))
    command = (str(standin), "1000", "30")
    workloads = (Workload("sleeper", command),)
    run = replace(settings_run, settings=replace(settings_run.settings, workloads=workloads))
    samples, _, folder = measured(run, tmp_path)
    assert all(s.reported is not None and s.reported.idle_ns == 30_000_000 for s in samples)
    assert all(s.wall_ns > 30_000_000 for s in samples)
    assert folder.stopped()[0] in ("precision reached", "6 rounds")


def test_an_old_run_without_reports_still_loads(standin: Path, tmp_path: Path) -> None:
    _, _, folder = measured(begun(standin, tmp_path, *ALIKE), tmp_path)
    path = folder.path / "samples.jsonl"
    lines = path.read_text().splitlines()
    assert all('"reported":{' in line for line in lines)
    old = [{k: v for k, v in json.loads(line).items() if k != "reported"} for line in lines]
    path.write_text("".join(json.dumps(sample) + "\n" for sample in old))
    assert all(sample.reported is None for sample in folder.samples())


def test_a_report_with_impossible_numbers_is_damage(standin: Path, tmp_path: Path) -> None:
    _, _, folder = measured(begun(standin, tmp_path, *ALIKE), tmp_path)
    path = folder.path / "samples.jsonl"
    whole = path.read_text()
    for right, wrong in (
        ('"operations":100', '"operations":-1'),
        ('"median_ns":12.0', '"median_ns":1e300'),
    ):
        assert right in whole
        path.write_text(whole.replace(right, wrong, 1))
        with pytest.raises(CairnError, match="damaged"):
            folder.samples()


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not here")
def test_instructions_are_counted_under_the_contender(
    standin: Path, tmp_path: Path, forward: Path
) -> None:
    run = begun(
        standin, tmp_path, "system", f"x={forward}", rule=experiments.rounds(1), instructions=True
    )
    with private_folder() as scratch:
        sample, _ = Runner(run.settings, run.contenders, scratch).trial(Trial(1, 0, "x", 0))
    assert sample.failure is None
    assert sample.proof.problem is None and sample.proof.owner == str(forward)
    assert (sample.counters["instructions"] or 0) > 50_000


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not here")
def test_long_lines_of_valgrind_do_not_hide_the_message_of_a_failed_program(
    tmp_path: Path,
) -> None:
    """After a crash, valgrind prints lines of up to a kilobyte.

    Cairn keeps only the end of stderr, which these lines would fill. So Cairn must leave them out
    to report the message of the program.
    """
    program = tmp_path / "prog"
    program.write_text(
        "#!/bin/sh\necho 'no room for the table' >&2\n"
        'for _ in 1 2 3 4 5 6 7 8 9 10; do printf "==%d==    at 0x1: f<%0900d>\\n" $$ 7 >&2; done\nexit 3\n'
    )
    program.chmod(0o755)
    run = begun(program, tmp_path, "system", rule=experiments.rounds(1), instructions=True)
    with private_folder() as scratch:
        sample, trace = Runner(run.settings, run.contenders, scratch).trial(
            Trial(1, 0, "system", 0)
        )
    assert sample.failure is not None and sample.failure.endswith("no room for the table")
    assert trace.stderr_tail == "no room for the table\n"


def test_resuming_a_complete_run_starts_no_trial(standin: Path, tmp_path: Path) -> None:
    run = begun(standin, tmp_path, *ALIKE)
    _, _, folder = measured(run, tmp_path)
    watcher = Watcher()
    with private_folder() as scratch:
        measure.Measurement(run, folder, scratch, watcher).measure()
    assert watcher.trials == 0
    assert folder.stopped() == ("2 rounds", "2 rounds")


def test_resuming_does_not_repeat_the_warm_up(standin: Path, tmp_path: Path) -> None:
    run = begun(standin, tmp_path, *ALIKE)
    folder = Folder.create(tmp_path, run)
    with private_folder() as scratch, pytest.raises(Interrupted):
        measure.Measurement(run, folder, scratch, Watcher(interrupt_after=3)).measure()
    with private_folder() as scratch:
        measure.Measurement(run, folder, scratch, Watcher()).measure()
    warmed = [(s.trial.workload, s.trial.contender) for s in folder.samples() if s.trial.round == 0]
    assert len(warmed) == len(set(warmed)) == 4, (
        "each was warmed up once, before or after the interruption"
    )


def test_the_time_budget_holds_for_the_whole_run(standin: Path, tmp_path: Path) -> None:
    rule = StopRule(precision=0.001, min_rounds=4, max_rounds=50, budget_s=5.0, judged="active")
    run = begun(standin, tmp_path, *ALIKE, rule=rule, sizes=(100,))
    folder = Folder.create(tmp_path, run)
    with private_folder() as scratch, pytest.raises(Interrupted):
        measure.Measurement(run, folder, scratch, Watcher(interrupt_after=4)).measure()
    path = folder.path / "samples.jsonl"
    lines = [
        json.loads(line) | {"wall_ns": 3_000_000_000} for line in path.read_text().splitlines()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    watcher = Watcher()
    with private_folder() as scratch:
        measure.Measurement(run, folder, scratch, watcher).measure()
    assert watcher.trials == 0 and folder.stopped() == ("time budget",)


def test_a_failed_trial_does_not_decide_how_much_memory_is_warmed(
    standin: Path, tmp_path: Path
) -> None:
    samples, _, folder = measured(begun(standin, tmp_path, *ALIKE), tmp_path)
    run = replace(folder.run(), host=replace(machine.host(), virtual=True))
    wild = replace(
        samples[0],
        memory=Memory("cgroup v1", 1 << 40, 1 << 40, 0),
        failure="was killed by signal 9",
    )
    with private_folder() as scratch:
        measuring = measure.Measurement(run, folder, scratch, Watcher())
        measuring._note(wild)
        measuring._warm_memory.decide(measuring.samples)
        assert measuring._warm_memory._bytes == 0
