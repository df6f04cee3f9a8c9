"""Tests of how the runner reads the launcher's report and sets the program's environment."""

from __future__ import annotations

import os
import re
import time
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from support.comparisons import a_sample

from cairn.compare.plan import settings_of
from cairn.errors import CairnError, UsageError
from cairn.model import Contender, Proof, Sample, Settings, Trial, Unreached, Workload
from cairn.own_settings import OwnSettings
from cairn.run import malloc_share, outputs
from cairn.run.runner import Launched, Runner, memory_of, preload_environment, queued_ns

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
ONE = Proof(1, 1, "/lib/libc.so.6")


def launched(peak: int, largest: int, left_behind: int = 0) -> Launched:
    memory = {
        "method": "cgroup v1",
        "peak_bytes": peak,
        "peak_less_lazy_bytes": peak,
        "lazy_peak_bytes": 0,
    }
    numbers = dict.fromkeys(
        (
            "user_ns",
            "system_ns",
            "minor_faults",
            "major_faults",
            "voluntary_switches",
            "involuntary_switches",
        ),
        0,
    )
    return msgspec.convert(
        {
            "schema": 1,
            "pid": 2,
            "exit_code": 0,
            "signal": None,
            "core_dumped": False,
            "timed_out": False,
            "interrupted_by": None,
            "exec_errno": None,
            "exec_error": None,
            "wall_ns": 5,
            **numbers,
            "left_behind": left_behind,
            "largest_process_bytes": largest,
            "memory": memory,
            "counters": None,
        },
        type=Launched,
    )


def test_processes_that_others_reaped_queued_as_long_for_their_cpu_time() -> None:
    alone = msgspec.structs.replace(launched(1, 1), user_ns=8, ran_ns=10, queued_ns=70)
    assert queued_ns(alone) == 70
    assert queued_ns(msgspec.structs.replace(alone, user_ns=30, system_ns=10)) == 280
    assert queued_ns(msgspec.structs.replace(alone, ran_ns=None, queued_ns=None)) is None
    assert queued_ns(launched(1, 1)) is None


def test_a_launcher_that_is_killed_while_it_touches_memory_is_named(tmp_path: Path) -> None:
    """The kernel kills it when memory runs out. The sentence once ended after "of memory:"."""
    script = tmp_path / "cairn-launch"
    script.write_text("#!/bin/sh\nkill -9 $$\n")
    script.chmod(0o755)
    runner = object.__new__(Runner)
    runner._launcher = script
    says = r"512 MiB of memory: cairn-launch was killed by signal 9 \(SIGKILL\)$"
    with pytest.raises(CairnError, match=says):
        runner.touch(512 * MIB)


@pytest.mark.parametrize(("asked_s", "length_s"), [(7200.0, 5.0), (5.0, 5.0), (None, None)])
def test_a_look_at_the_memory_of_a_program_is_short(
    asked_s: float | None, length_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before `cairn soak --for 2h`, it ran the program for two hours without saying so."""
    given: list[Settings] = []

    class Fake:
        def __init__(self, settings: Settings, *_: object) -> None:
            given.append(settings)

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, None]:
            return replace(a_sample(0, "", 5.0), trial=trial), None

    monkeypatch.setattr(malloc_share, "Runner", Fake)
    settings = Settings(workloads=(Workload("p", ("p",)),), folder="/", soak_s=asked_s)
    contender = Contender("system", "system", "glibc")
    assert malloc_share.look(settings, contender, lambda _: None) is None
    assert [one.soak_s for one in given] == [length_s]


def test_the_peak_of_a_workload_is_at_most_that_of_its_process() -> None:
    """On cgroup v1, the peak of the group once included 40 MiB of page cache."""
    memory = memory_of(launched(140 * MIB, 100 * MIB), ONE, workload=True)
    assert memory.peak_bytes == memory.peak_less_lazy_bytes == 100 * MIB
    assert memory_of(launched(90 * MIB, 100 * MIB), ONE, workload=True).peak_bytes == 90 * MIB


def test_the_peak_of_several_processes_may_exceed_that_of_the_largest() -> None:
    unreached = replace(ONE, unreached=(Unreached("static", "/bin/x"),))
    for proof, left in ((replace(ONE, processes=2, loaded=2), 0), (unreached, 0), (ONE, 1)):
        assert (
            memory_of(launched(421 * MIB, 103 * MIB, left), proof, workload=True).peak_bytes
            == 421 * MIB
        )
    forked = memory_of(launched(421 * MIB, 103 * MIB), ONE, workload=False)
    assert forked.peak_bytes == 421 * MIB, (
        "the proof counts one process, because a fork executes no program"
    )


def test_no_workload_starts_processes_or_makes_shared_memory() -> None:
    """memory_of() relies on this, and limits the peak of a workload to that of its only process."""
    for file in (ROOT / "workloads").rglob("*.[ch]"):
        assert not re.search(
            r"\b(fork|vfork|clone|posix_spawnp?|system|popen|memfd_create|shm_open)\s*\(",
            file.read_text(),
        )


def a_runner(prepare: str | None, conclude: str | None) -> tuple[Runner, list[str]]:
    """Returns a runner that runs no program, and the list to which it adds its hooks."""
    runner = Runner.__new__(Runner)
    own = OwnSettings(prepare=prepare, conclude=conclude)
    settings = Settings(workloads=(Workload("p", ("p",), own=own),), folder="/", by_cell=True)
    runner._settings, runner._of = settings, [settings_of(settings, 0)]
    runner._scratch = runner._profiles = Path("/nowhere")
    called: list[str] = []
    runner.hook = lambda name, line, _: called.append(f"{name} {line}")  # type: ignore[method-assign]
    return runner, called


@pytest.mark.parametrize("error", [KeyboardInterrupt, UsageError("x"), CairnError("y"), None])
def test_a_trial_that_ends_early_is_concluded(error: BaseException | None) -> None:
    """After an interrupted run, a server that `prepare` had started once ran on for ever."""
    runner, called = a_runner("start", "end")

    def prepared(*_: object) -> str:
        called.append("trial")
        if error is not None:
            raise error
        return "found"

    runner._prepared = prepared  # type: ignore[method-assign, assignment]
    with pytest.raises(BaseException) if error is not None else nullcontext():
        runner._trial(Trial(1, 0, "fast", 0), False, None)
    assert called == ["prepare start", "trial", "conclude end"]


def test_a_preparation_that_fails_is_concluded() -> None:
    runner, called = a_runner("start", "end")

    def hook(name: str, line: str, _: object) -> None:
        called.append(f"{name} {line}")
        raise UsageError(f"the {name} command failed")

    runner.hook = hook  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="the prepare command failed"):
        runner._trial(Trial(1, 0, "fast", 0), False, None)
    assert called == ["prepare start", "conclude end"]


def test_a_line_of_a_plan_that_hangs_is_ended(tmp_path: Path) -> None:
    """Once, a run waited for such a line for ever."""
    own = OwnSettings(prepare="sleep 60 & echo $! >pid; wait", timeout_s=2)
    settings = Settings(
        workloads=(Workload("p", ("p",), own=own),), folder=str(tmp_path), by_cell=True
    )
    runner = Runner(settings, (), tmp_path)
    says = r"^the prepare command did not end within 2 s$"
    with pytest.raises(UsageError, match=says):
        runner._trial(Trial(1, 0, "fast", 0), False, None)
    # A killed process may end later. One that was not reaped has no such link.
    left = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/exe")
    until = time.monotonic() + 20
    while left.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not left.exists()


def test_a_file_of_an_earlier_trial_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """A contender that wrote nothing once passed, because the file of the run before was there."""
    file, missing = tmp_path / "out", tmp_path / "none"
    file.write_text("text")
    os.utime(file, (1, 1))
    before = {path: outputs.state(path) for path in (file, missing)}
    assert outputs.unwritten(before) == f"did not write {file}: it is as it was before"
    file.write_text("text")
    assert outputs.unwritten(before) is None


FAST = Contender(
    "fast",
    "custom",
    "fast",
    preload=("/opt/probe.so", "/opt/fast.so"),
    library_path=("/opt/a", "/opt/b"),
)


def preloads(inherited: dict[str, str], contender: Contender = FAST) -> dict[str, str]:
    return preload_environment(
        contender, Path("/scratch/witness.so"), Path("/scratch/report"), inherited
    )


def test_the_allocator_comes_before_the_libraries_that_the_user_preloads() -> None:
    """The loader takes the first library that defines malloc."""
    ours = "/scratch/witness.so:/opt/probe.so:/opt/fast.so"
    for theirs in (
        "/usr/lib/x.so:/usr/lib/y.so",
        "/usr/lib/x.so /usr/lib/y.so",
        " /usr/lib/x.so::/usr/lib/y.so:",
    ):
        assert (
            preloads({"LD_PRELOAD": theirs})["LD_PRELOAD"] == f"{ours}:/usr/lib/x.so:/usr/lib/y.so"
        )
    for nothing in ({}, {"LD_PRELOAD": ""}, {"LD_PRELOAD": " :"}):
        assert preloads(nothing)["LD_PRELOAD"] == ours
    system = replace(FAST, preload=())
    assert (
        preloads({"LD_PRELOAD": "/usr/lib/x.so"}, system)["LD_PRELOAD"]
        == "/scratch/witness.so:/usr/lib/x.so"
    )


def test_the_allocators_folders_come_before_those_of_the_user() -> None:
    assert (
        preloads({"LD_LIBRARY_PATH": "/home/a:/home/b"})["LD_LIBRARY_PATH"]
        == "/opt/a:/opt/b:/home/a:/home/b"
    )
    for nothing in ({}, {"LD_LIBRARY_PATH": ""}):
        assert preloads(nothing)["LD_LIBRARY_PATH"] == "/opt/a:/opt/b"
    assert "LD_LIBRARY_PATH" not in preloads(
        {"LD_LIBRARY_PATH": "/home/a"}, replace(FAST, library_path=())
    )


def test_the_environment_names_the_witness_file_and_the_knobs_of_the_contender() -> None:
    of = preloads({}, replace(FAST, knobs=(("FAST_A", "1"), ("FAST_B", "x:y"))))
    assert (of["CAIRN_WITNESS"], of["FAST_A"], of["FAST_B"]) == ("/scratch/report", "1", "x:y")
    assert of["CAIRN_WITNESS_KNOBS"] == "FAST_A:FAST_B"
    assert "CAIRN_WITNESS_KNOBS" not in preloads({})
