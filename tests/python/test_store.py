"""Tests that the results directory survives damage, interruptions and full disks."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import shutil
from pathlib import Path
from typing import IO

import pytest
from msgspec.structs import replace

from cairn.clock_samples import AtomicSamples, CpuSamples, FunctionSamples
from cairn.compare import comparison
from cairn.doctor import machine
from cairn.errors import CairnError, UsageError
from cairn.memory import Memory, Series
from cairn.model import (
    SCHEMA,
    Contender,
    Operations,
    ProbeSummary,
    Proof,
    Run,
    Sample,
    Settings,
    StopRule,
    Trial,
    Workload,
)
from cairn.report import markdown, run_csv, run_json, terminal
from cairn.report.view import View
from cairn.run import store


def a_run(identity: str = "20260101-000000-abcd") -> Run:
    return Run(
        schema=SCHEMA,
        id=identity,
        created_at=1e9,
        cairn="0",
        settings=Settings(workloads=(Workload("true", ("true",)),), folder="/"),
        contenders=(
            Contender("system", "system", "glibc"),
            Contender("b", "custom", "b", knobs=(("K", "v"),)),
        ),
        baseline="system",
        rule=StopRule(),
        seed=1,
        host=machine.host(),
    )


def a_sample(
    round_: int = 1,
    contender: str = "system",
    wall_ns: int = 1000,
    probe: ProbeSummary | None = None,
) -> Sample:
    return Sample(
        trial=Trial(round_, 0, contender),
        started_at=1e9,
        exit_code=0,
        signal=None,
        timed_out=False,
        wall_ns=wall_ns,
        user_ns=1,
        system_ns=1,
        minor_faults=1,
        major_faults=0,
        voluntary_switches=0,
        involuntary_switches=0,
        memory=Memory("cgroup v1", 1, 1, 0),
        proof=Proof(1, 1, "/lib/libc.so.6"),
        counters={"cycles": None, "task-clock": 1.5},
        metrics={"rate": 2.5},
        probe=probe,
    )


@pytest.fixture
def folder(tmp_path: Path) -> store.Folder:
    return store.Folder.create(tmp_path, a_run())


def resumable(folder: store.Folder) -> store.Folder:
    """Returns the folder of a run whose first process has ended, as its next process opens it."""
    assert folder._lock is not None
    os.close(folder._lock)
    return store.Folder(folder.path)


def test_a_stored_run_is_read_back_unchanged(folder: store.Folder) -> None:
    folder.append(a_sample(1))
    folder.append(a_sample(2, "b"))
    assert folder.run() == a_run()
    assert folder.samples() == (a_sample(1), a_sample(2, "b"))


def test_only_the_user_can_read_the_files(folder: store.Folder) -> None:
    assert folder.path.stat().st_mode & 0o077 == 0
    assert (folder.path / "run.json").stat().st_mode & 0o077 == 0


def test_an_incomplete_last_line_is_ignored_and_removed_on_resume(folder: store.Folder) -> None:
    folder.append(a_sample(1))
    with (folder.path / "samples.jsonl").open("ab") as file:
        file.write(b'{"trial":{"round":2')
    assert folder.samples() == (a_sample(1),)
    again = resumable(folder)
    again.mark_resumed()
    again.append(a_sample(2))
    assert folder.samples() == (a_sample(1), a_sample(2))


def test_the_reason_for_stopping_is_known_until_the_run_continues(folder: store.Folder) -> None:
    folder.append(a_sample(1))
    folder.mark_stopped("interrupted")
    again = resumable(folder)
    again.mark_resumed()
    assert folder.stopped() == ("interrupted",)
    again.append(a_sample(2))
    assert folder.stopped() == ()


def test_the_last_run_of_an_experiment_is_the_last_complete_one(tmp_path: Path) -> None:
    def run(number: int, stopped: str, *, why: bool = True) -> None:
        plain = a_run()
        settings = replace(plain.settings, why=why)
        name = f"2026010{number}-000000-0000"
        folder = store.Folder.create(
            tmp_path, replace(plain, id=name, experiment="calibration", settings=settings)
        )
        if stopped:
            folder.mark_stopped(stopped)

    for number, (stopped, why) in enumerate(
        [("5 rounds", True), ("interrupted", True), ("5 rounds", False), ("", True)]
    ):
        run(number, stopped, why=why)
    (tmp_path / "20260109-000000-0000").mkdir(mode=0)
    found = store.last_of(tmp_path, "calibration")
    assert found is not None and found.path.name == "20260100-000000-0000"
    assert store.last_of(tmp_path, "suite") is None


def test_damage_in_the_middle_is_an_error_with_its_line(folder: store.Folder) -> None:
    folder.append(a_sample(1))
    folder.append(a_sample(2))
    path = folder.path / "samples.jsonl"
    path.write_bytes(b"\nrubbish\n".join(path.read_bytes().split(b"\n", 1)))
    with pytest.raises(CairnError, match=r"line 2 is damaged"):
        folder.samples()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"kernel_ns": -1.0}, "out of range"),
        ({"kinds": {"new": Operations(1, 1, 1e300, None)}}, "out of range"),
        ({"samples_probe": 100}, "parts of the CPU timer samples exceed their total"),
    ],
)
def test_impossible_numbers_from_the_probe_are_damage(
    folder: store.Folder, damage: dict[str, object], says: str
) -> None:
    account = ProbeSummary(3, 9, 120, 40, 12, {}, {}, 1.0, 0.0, 0, 10, None, None, None, None)
    folder.append(a_sample(1, probe=account))
    assert folder.samples() == (a_sample(1, probe=account),)
    folder.append(a_sample(2, probe=replace(account, **damage)))  # type: ignore[arg-type]
    with pytest.raises(CairnError, match=says):
        folder.samples()


def test_impossible_numbers_of_a_trial_are_damage(folder: store.Folder) -> None:
    folder.append(a_sample(1, wall_ns=-5))
    with pytest.raises(CairnError, match="out of range"):
        folder.samples()


def test_counters_of_a_long_run_on_many_cpus_are_read_back(folder: store.Folder) -> None:
    """A run with more than 10^15 cycles was once stored and could not be read again."""
    counters = {"cycles": 4e18, "task-clock": 2e15, "instructions": None}
    folder.append(replace(a_sample(1), counters=counters))
    assert folder.samples()[0].counters == counters
    folder.append(replace(a_sample(2), counters={"cycles": 5e18}))
    with pytest.raises(CairnError, match="line 2 is damaged: a number is out of range"):
        folder.samples()


CPU_SAMPLES = CpuSamples(1_000_000, 5, 0, 1, 2, 3, atomics=(AtomicSamples("free", "x", "", 1, 0),))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"own": -1}, "a number is out of range"),
        ({"interrupts": 1 << 62}, "a number is out of range"),
        ({"functions": (FunctionSamples("free", "x", -2),)}, "a number is out of range"),
        ({"atomics": (AtomicSamples("free", "x", "", -1, 5),)}, "a number is out of range"),
        ({"atomics": (AtomicSamples("free", "x", "", 0, 0),)}, "a function has no clock sample"),
    ],
)
def test_impossible_clock_samples_are_damage(
    folder: store.Folder, damage: dict[str, object], says: str
) -> None:
    """A report once divided by the sum of these numbers, which was 0."""
    folder.append(replace(a_sample(1), cpu_samples=CPU_SAMPLES))
    assert folder.samples()[0].cpu_samples == CPU_SAMPLES
    changed = replace(CPU_SAMPLES, **damage)
    folder.append(replace(a_sample(2), cpu_samples=changed))
    with pytest.raises(CairnError, match=f"line 2 is damaged: {says}"):
        folder.samples()


def test_memory_over_time_without_a_moment_is_damage(folder: store.Folder) -> None:
    """No plot can be drawn of it: it was once a traceback."""
    for at in ((5,), ()):
        series = Series(at, at, at, at, counted=True, processes=1)
        folder.append(replace(a_sample(1), memory=Memory("cgroup v1", 1, 1, 0, series=series)))
    with pytest.raises(CairnError, match="line 2 is damaged: memory over time has no moment"):
        folder.samples()


def test_a_newer_format_is_not_reported_as_damage(folder: store.Folder) -> None:
    path = folder.path / "run.json"
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 99'))
    with pytest.raises(CairnError, match="version 99"):
        folder.run()


def test_a_run_is_found_by_last_id_beginning_and_path(tmp_path: Path) -> None:
    store.Folder.create(tmp_path, a_run("20260101-000000-aaaa"))
    newest = store.Folder.create(tmp_path, a_run("20260102-000000-bbbb"))
    for name in ("last", "20260102-000000-bbbb", "20260102", str(newest.path)):
        assert store.find(tmp_path, name).path == newest.path
    for name in ("2026", "nothing", "./nothing", ""):
        with pytest.raises(UsageError):
            store.find(tmp_path, name)


def test_a_folder_of_another_program_is_no_run(tmp_path: Path) -> None:
    """A kept profile has a run.json, too. 'cairn clean' must not remove the profile."""
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "run.json").write_text("{}")
    assert store.runs(tmp_path) == []


def test_a_run_cannot_grow_beyond_the_size_that_is_readable(
    folder: store.Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.append(a_sample())
    whole = (folder.path / "samples.jsonl").stat().st_size
    monkeypatch.setattr(store, "LARGEST_FILE", whole * 3 // 2)
    with pytest.raises(CairnError, match="is full"):
        folder.append(a_sample(2))
    monkeypatch.undo()
    assert (folder.path / "samples.jsonl").stat().st_size == whole and len(folder.samples()) == 1


def test_without_a_home_directory_the_error_asks_for_a_results_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CAIRN_RESULTS", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(CairnError, match="CAIRN_RESULTS"):
        store.root()


def test_runs_are_kept_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/homes/ann")
    for data, kept in (
        (None, "/homes/ann/.local/share/cairn/results"),
        ("not/absolute", "/homes/ann/.local/share/cairn/results"),
        ("/data", "/data/cairn/results"),
    ):
        monkeypatch.delenv("CAIRN_RESULTS", raising=False)
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        if data is not None:
            monkeypatch.setenv("XDG_DATA_HOME", data)
        assert store.root() == Path(kept)
        monkeypatch.setenv("CAIRN_RESULTS", "/else")
        assert store.root() == Path("/else")


def test_the_name_of_a_run_is_its_second_and_four_digits() -> None:
    names = {store.new_id(1_767_225_600.9) for _ in range(20)}
    assert all(re.fullmatch(r"20260101-000000-[0-9a-f]{4}", name) for name in names)
    assert len(names) > 1


def test_the_names_of_runs_of_one_second_sort_by_time() -> None:
    """Random digits once made `last` name the older run."""
    names = [store.new_id(1_767_225_600 + place / 1000) for place in range(1000)]
    assert names == sorted(names)


def test_the_folders_above_a_run_are_made(tmp_path: Path) -> None:
    made = store.Folder.create(tmp_path / "new" / "results", a_run())
    assert made.run() == a_run()


@pytest.mark.parametrize(
    "wrong",
    [
        {"settings": Settings(workloads=(), folder="/")},
        {"settings": Settings(workloads=(Workload("true", ()),), folder="/")},
        {"contenders": (Contender("system", "system", "glibc"), Contender(" ", "custom", "b"))},
        {"contenders": (Contender("system", "system", "glibc"),) * 2},
        {"baseline": "c"},
        {"rule": StopRule(min_rounds=0)},
        {"rule": StopRule(min_rounds=11, max_rounds=10)},
        {"rule": StopRule(margin=0.0)},
        {"rule": StopRule(margin=1.0)},
        {"rule": StopRule(precision=0.0)},
        {"rule": StopRule(precision=1.0)},
        {"created_at": -1.0},
    ],
)
def test_a_run_with_contradicting_settings_is_damage(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    made = store.Folder.create(tmp_path, replace(a_run(), **wrong))  # type: ignore[arg-type]
    with pytest.raises(CairnError, match="settings contradict each other"):
        made.run()


def test_a_wrong_number_is_an_error_with_its_line(folder: store.Folder) -> None:
    folder.append(a_sample(1))
    folder.append(a_sample(2, wall_ns=-5))
    with pytest.raises(CairnError, match="line 2 is damaged: a number is out of range"):
        folder.samples()


def test_no_run_at_all_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cairn compare"):
        store.find(tmp_path / "missing", "last")


def test_a_name_cannot_leave_the_folder(folder: store.Folder) -> None:
    folder.keep("failed", "../../evil/\x1b[31mname", b"x")
    (kept,) = (folder.path / "failed").iterdir()
    assert kept.parent == folder.path / "failed"
    assert kept.name.isprintable()
    assert kept.name.endswith("evil___31mname")
    for name, plain in (("3-b_1.2+x", "3-b_1.2+x"), ("...", "_"), (".hidden", "hidden")):
        folder.keep("witness", name, b"x")
        assert (folder.path / "witness" / plain).read_bytes() == b"x"


def test_a_symbolic_link_in_place_of_a_file_is_replaced_and_not_followed(
    folder: store.Folder, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    (folder.path / "stopped").symlink_to(victim)
    folder.mark_stopped("60 rounds")
    assert victim.read_text() == "keep me"
    assert folder.stopped() == ("60 rounds",)


def show(folder: store.Folder) -> None:
    """Shows a run in every form, as `cairn report` does."""
    run, samples = folder.run(), folder.samples()
    comparisons = [
        comparison.compare(
            [s for s in samples if s.trial.workload == w], run.contenders, run.baseline, run.rule
        )
        for w in range(len(run.settings.workloads))
    ]
    terminal.render(run, comparisons, View(full=True, color=True))
    markdown.render(run, comparisons, full=True)
    run_csv.render(run, samples)
    run_json.render(run, comparisons, samples)


def test_two_processes_cannot_measure_one_run(folder: store.Folder) -> None:
    with pytest.raises(CairnError, match="another cairn"):
        store.Folder(folder.path).mark_resumed()


def test_mutated_files_give_a_sentence_or_a_run_but_nothing_else(folder: store.Folder) -> None:
    for round_ in range(5):
        folder.append(a_sample(round_))
    rng = random.Random(20261120)
    originals = {name: (folder.path / name).read_bytes() for name in ("run.json", "samples.jsonl")}
    damaged = 0
    for _ in range(750):
        name = rng.choice(list(originals))
        content = bytearray(originals[name])
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(content))
            match rng.randrange(4):
                case 0:
                    content[place] = rng.randrange(256)
                case 1:
                    del content[place : place + rng.randint(1, 40)]
                case 2:
                    content[place:place] = rng.choice(
                        [b"[" * 2000, b"9" * 400, b"null", b"-1", b"1e999", b"\x00", b"\xff"]
                    )
                case 3:
                    content = content[:place]
            if not content:
                break
        (folder.path / name).write_bytes(bytes(content))
        try:
            show(folder)
        except CairnError as error:
            damaged += 1
            assert "\n" not in str(error)
        (folder.path / name).write_bytes(originals[name])
    assert damaged > 250


def test_runs_of_the_same_second_are_sorted_by_time(tmp_path: Path) -> None:
    """The names of runs of the same second differ only in random digits.

    Once, runs were sorted by name, so that "last" was one of these runs at random.
    """
    for digits in ("ffff", "0000", "8888"):
        made = store.Folder.create(tmp_path, a_run(f"20260102-000000-{digits}"))
    store.Folder.create(tmp_path, a_run("20260101-000000-ffff"))
    assert store.find(tmp_path, "last").path == made.path
    assert [path.name[-4:] for path in store.runs(tmp_path)] == ["ffff", "ffff", "0000", "8888"]


@pytest.mark.parametrize("part", ["run.json", "samples.jsonl", "witness", "whole", "moved"])
def test_files_that_the_program_changed_are_restored(tmp_path: Path, part: str) -> None:
    """Once, a program that changed or emptied the results folder made Cairn lose the run."""
    run = a_run()
    folder = store.Folder.create(tmp_path, run)
    folder.append(a_sample(1))
    expected = {name: (folder.path / name).read_bytes() for name in ("run.json", "samples.jsonl")}
    match part:
        case "whole":
            shutil.rmtree(folder.path)
        case "moved":
            folder.path.rename(tmp_path / "elsewhere")
        case "witness":
            shutil.rmtree(folder.path / part)
        case _:
            with (folder.path / part).open("a") as file:
                file.write("{}\n")
    folder.keep("witness", "x", b"proof")
    folder.append(a_sample(2))
    assert folder.restored == (part != "witness")
    again = store.Folder(folder.path)
    assert again.run() == run
    assert [sample.trial.round for sample in again.samples()] == [1, 2]
    for name, content in expected.items():
        assert (folder.path / name).read_bytes().startswith(content)
    assert (folder.path / "witness" / "x").read_bytes() == b"proof"
    assert store.is_measured(folder.path), "the new file is locked"


def test_locks_work_where_they_need_a_descriptor_that_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS refused the lock of a descriptor that can only read.

    So no run could begin, and 'cairn clean' removed runs that were being measured.
    """
    flock = fcntl.flock

    def as_on_nfs(file: int | IO[bytes], operation: int) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", as_on_nfs)
    folder = store.Folder.create(tmp_path, a_run())
    assert store.is_measured(folder.path)
    with pytest.raises(CairnError, match="another cairn is measuring"):
        store.Folder(folder.path).mark_resumed()


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_runs_are_kept_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refused(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refused)
    folder = store.Folder.create(tmp_path, a_run())
    folder.append(a_sample(1))
    store.Folder(folder.path).mark_resumed()
    assert not store.is_measured(folder.path)


def test_anything_but_a_regular_file_is_refused(folder: store.Folder) -> None:
    (folder.path / "samples.jsonl").unlink()
    os.mkfifo(folder.path / "samples.jsonl")
    with pytest.raises(CairnError, match="not a regular file"):
        folder.samples()
