"""Tests that no process and no file stays behind after a command of the user or an interruption."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.fleets import a_fleet

from cairn.cli import cli, console, standard_input
from cairn.matrix.fleet import Job
from cairn.model import INTERRUPTED, Settings, Workload
from cairn.run import process_group, stop_request, store
from cairn.run.runner import Runner
from cairn.run.server import Session

IGNORING = 'trap "" TERM; echo $$ > pid; while :; do sleep 0.1; done'


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Restores the handlers that a test has changed, and forgets received signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    stop_request._received.clear()


def runs(pid: int) -> bool:
    """Returns whether a process runs. One that is dead and was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    """Waits until a process runs no more, for 20 seconds. Returns whether it has ended.

    On a busy machine, a killed process may end only after it was waited for in vain.
    """
    until = time.monotonic() + 20
    while runs(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not runs(pid)


def soon(path: Path) -> str:
    """Returns the content of a file as soon as it has some."""
    until = time.monotonic() + 20
    while not path.exists() or not path.read_text():
        assert time.monotonic() < until
        time.sleep(0.01)
    return path.read_text()


def test_a_hook_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interruption, such a command of --prepare once ran on."""
    monkeypatch.setattr(process_group, "PATIENCE_S", 0.2)
    signal.signal(signal.SIGTERM, stop_request.on_signal)

    def interrupt() -> None:
        soon(tmp_path / "pid")
        os.kill(os.getpid(), signal.SIGTERM)

    settings = Settings(workloads=(Workload("true", ("true",)),), folder=str(tmp_path))
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        Runner(settings, (), tmp_path).hook("prepare", IGNORING)
    thread.join()
    assert ends(int((tmp_path / "pid").read_text()))


def test_a_group_ends_when_asked_and_is_not_waited_for_longer(tmp_path: Path) -> None:
    began = time.monotonic()
    with subprocess.Popen(["sleep", "60"], process_group=0) as one:
        process_group.end(one)
    assert one.returncode == -signal.SIGTERM and time.monotonic() - began < 0.9
    process_group.kill(one)


def test_a_command_of_another_user_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cairn may not kill it, and once waited for it without a limit."""

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(process_group, "PATIENCE_S", 0.1)
    with subprocess.Popen(["sleep", "60"], process_group=0) as one:
        with monkeypatch.context() as patched:
            patched.setattr(os, "killpg", refuse)
            process_group.end(one)
        assert one.poll() is None
        process_group.kill(one)


def test_what_a_load_leaves_in_the_background_is_killed(tmp_path: Path) -> None:
    """The background part of a load once ran on beside the runs of the next contender."""
    session = Session("sleep 60 & echo $! > pid", None, str(tmp_path), None, tmp_path)
    with session._started(session._load, subprocess.DEVNULL, subprocess.DEVNULL) as process:
        assert process.wait() == 0
        left = int(soon(tmp_path / "pid"))
        assert runs(left)
    until = time.monotonic() + 5
    while runs(left) and time.monotonic() < until:
        time.sleep(0.01)
    assert ends(left)


def test_a_copy_of_standard_input_is_removed_on_sigterm(tmp_path: Path) -> None:
    """SIGTERM once ended the process before the copy was complete, and the copy stayed for ever."""

    def interrupt() -> None:
        until = time.monotonic() + 20
        while not list(tmp_path.glob(".input-*")) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    reading, writing = os.pipe()
    os.write(writing, b"some")
    saved = os.dup(0)
    os.dup2(reading, 0)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            standard_input.chosen("-", tmp_path, console.stderr("auto")),
        ):
            pass
    finally:
        thread.join()
        os.dup2(saved, 0)
        for one in (reading, writing, saved):
            os.close(one)
    assert not list(tmp_path.iterdir())


def test_clean_removes_copies_of_standard_input_that_nobody_makes(tmp_path: Path) -> None:
    (tmp_path / ".input-lost").write_bytes(b"x" * 2048)
    with (tmp_path / ".input-used").open("wb") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        done = CliRunner().invoke(cli, ["clean", "-y", "--results", str(tmp_path)])
    assert done.exit_code == 0 and "2.00 KiB" in done.output, done.output
    assert [one.name for one in tmp_path.iterdir()] == [".input-used"]
    assert store.lost_inputs(tmp_path / "nowhere") == []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a cache with one file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "cache" / "cairn"
    (made / "allocators").mkdir(parents=True)
    (made / "allocators" / "x").write_bytes(b"x")
    return made


def cleaned(results: Path, *options: str) -> str:
    done = CliRunner().invoke(cli, ["clean", "-y", "--results", str(results), *options])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize("by", ["a run", "a fleet", "a round of a fleet"])
def test_clean_keeps_the_cache_while_a_run_is_measured(
    tmp_path: Path, cache: Path, by: str
) -> None:
    """The measured allocators of the cache were deleted under a run."""
    results = tmp_path / "results"
    fleet = a_fleet(results)
    locked = fleet.path / "fleet.json"
    if by != "a fleet":
        home = results if by == "a run" else fleet.attempt(1, "n1")
        locked = home / "one" / "run.json"
        locked.parent.mkdir()
        for name in ("run.json", "samples.jsonl"):
            (locked.parent / name).write_bytes(b"")
    with locked.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = cleaned(results, "--cache")
        assert f"kept, because a run may be measured now: {cache}" in said
        assert locked.exists() and cache.exists()
    fleet.remove_attempts()
    cleaned(results, "--cache")
    assert not list(results.iterdir()) and not cache.exists()


@pytest.mark.parametrize("by", ["a job in the queue", "an attempt without a run"])
def test_clean_keeps_a_fleet_whose_jobs_may_go_on(tmp_path: Path, by: str) -> None:
    """A fleet was removed under its jobs after the command that waited for them had ended."""
    fleet = a_fleet(tmp_path)
    if by == "a job in the queue":
        fleet.note_submitted([Job("1_0", 1)])
    else:
        fleet.attempt(1, "n1")
    said = cleaned(tmp_path)
    assert f"kept, because it may be measured now: {fleet.path}" in said
    fleet.end("round 1 not measured: job 1_0 was cancelled")
    cleaned(tmp_path)
    assert not fleet.path.exists()


def test_clean_keeps_what_has_not_ended_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without locks, runs were removed while they were measured."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    fleet = a_fleet(tmp_path)
    run = tmp_path / "one"
    run.mkdir()
    for name in ("run.json", "samples.jsonl"):
        (run / name).write_bytes(b"")
    said = cleaned(tmp_path)
    for path in (fleet.path, run):
        assert f"kept, because it may be measured now: {path}" in said
    (run / "stopped").write_text("interrupted")
    fleet.end(INTERRUPTED)
    cleaned(tmp_path)
    assert not list(tmp_path.iterdir())


def test_clean_needs_no_home_folder_unless_it_removes_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a home folder, no run could be removed."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    fleet = a_fleet(tmp_path)
    cleaned(tmp_path)
    assert not fleet.path.exists()
    done = CliRunner().invoke(cli, ["clean", "--cache", "--results", str(tmp_path)])
    assert done.exit_code == 1


def no_home() -> Path:
    raise RuntimeError("there is no home folder")


def test_clean_removes_fleets_that_are_old_enough(tmp_path: Path) -> None:
    """Fleets were never listed nor removed."""
    fleet = a_fleet(tmp_path)
    assert "nothing to remove" in cleaned(tmp_path, "--older-than", "1h")
    os.utime(fleet.path / "fleet.json", (0, 0))
    assert str(fleet.path) in cleaned(tmp_path, "--older-than", "1h")
    assert not fleet.path.exists()
