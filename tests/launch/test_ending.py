"""Tests of how a command and its tree of processes end, and of the launcher's report on it."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.launching import METHODS, MIB, Launch, is_alive, is_sanitized, wait_until


@pytest.mark.parametrize("code", [0, 1, 3, 125, 126, 127, 255])
def test_an_exit_code_is_reported_and_is_not_our_own(launch: Launch, code: int) -> None:
    outcome = launch("--", "sh", "-c", f"exit {code}")
    assert outcome.told["exit_code"] == code
    assert outcome.told["signal"] is None
    assert outcome.told["exec_errno"] is None
    assert outcome.err == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1])
def test_a_signal_is_reported(launch: Launch, number: signal.Signals) -> None:
    report = launch("--", "sh", "-c", f"kill -{int(number)} $$").told
    assert report["signal"] == number
    assert report["exit_code"] is None
    assert report["interrupted_by"] is None


@pytest.mark.parametrize("dumps", [False, True])
def test_a_core_dump_is_reported(launch: Launch, tmp_path: Path, dumps: bool) -> None:
    if is_sanitized(launch.path):
        pytest.skip("a sanitizer forbids core dumps, also to the program")
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if dumps and (pattern.startswith(("|", "/")) or not pattern or hard == 0):
        pytest.skip(
            f"no core file would be written here: core_pattern is '{pattern}', the hard limit "
            f"{hard}"
        )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (hard if dumps else 0, hard))

    report = launch("--", "sh", "-c", "kill -ABRT $$", preexec_fn=limit, cwd=tmp_path).told
    assert report["signal"] == signal.SIGABRT
    assert report["core_dumped"] is dumps


def test_an_exec_that_fails_is_no_exit_code(launch: Launch, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    for command, number in (
        ("/no/such/program", errno.ENOENT),
        (str(plain), errno.EACCES),
        ("/", errno.EACCES),
    ):
        report = launch("--", command).told
        assert report["exec_errno"] == number
        assert report["exec_error"] == os.strerror(number)
        assert report["exit_code"] is None
        assert report["signal"] is None


def test_a_program_is_found_on_its_own_path(launch: Launch, tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    assert launch("--setenv", f"PATH={tmp_path}", "--", "only-here").told["exit_code"] == 7
    assert launch("--", "only-here").told["exec_errno"] == errno.ENOENT


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--"],
        ["true"],
        ["--nonsense", "--", "true"],
        ["--timeout", "soon", "--", "true"],
        ["--memory", "all", "--", "true"],
        ["--report-fd", "999", "--", "true"],
        ["--chdir", "/no/such/folder", "--", "true"],
        ["--stdin", "/no/such/file", "--", "true"],
        ["--stdout", "/no/such/folder/file", "--", "true"],
        ["--cpus", "1023", "--", "true"],
    ],
)
def test_our_own_failure_is_one_sentence_and_125(launch: Launch, arguments: list[str]) -> None:
    outcome = launch(*arguments)
    assert outcome.code == 125
    assert outcome.report is None
    assert outcome.out == ""
    assert outcome.err.startswith("cairn-launch: ")
    assert outcome.err.endswith(".\n")
    assert outcome.err.count("\n") == 1


def test_help_and_version_need_no_report(launch: Launch) -> None:
    for option, says in (("--help", "Usage: cairn-launch"), ("--version", "cairn-launch ")):
        done = subprocess.run([launch.path, option], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(says)
        assert done.stderr == ""


def test_touched_memory_is_returned(launch: Launch) -> None:
    done = subprocess.run(
        [launch.path, "--touch", str(64 * MIB)], capture_output=True, text=True, check=True
    )
    assert done.stdout == done.stderr == ""


def test_the_launcher_refuses_to_touch_more_memory_than_there_is(launch: Launch) -> None:
    for size in (1 << 50, (1 << 64) - 1):
        done = subprocess.run(
            [launch.path, "--touch", str(size)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 125
        assert done.stderr.startswith("cairn-launch: --touch asks for more memory")


# --- ends of trees ---


@pytest.mark.parametrize("method", [*METHODS, "none"], indirect=True)
def test_a_timeout_ends_a_tree_that_ignores_it(launch: Launch, stubborn: str, method: str) -> None:
    begin = time.monotonic()
    outcome = launch("--memory", method, "--timeout", "2", "--grace", "0.2", "--", stubborn)
    assert time.monotonic() - begin < 15
    assert outcome.told["timed_out"] is True
    assert outcome.told["signal"] == signal.SIGKILL
    assert outcome.told["left_behind"] == 2
    assert 0.2e9 <= outcome.told["wall_ns"] < 6e9, (
        "at least the grace period: the timeout began before the program started"
    )
    pids = [int(line) for line in outcome.out.split()]
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


def test_a_timeout_lets_a_program_end_by_itself(launch: Launch) -> None:
    script = "trap 'exit 5' TERM; while :; do sleep 0.01; done"
    report = launch("--timeout", "2", "--grace", "20", "--", "sh", "-c", script).told
    assert report["timed_out"] is True
    assert report["exit_code"] == 5
    assert report["wall_ns"] < 15e9


def test_a_stopped_program_times_out_too(launch: Launch) -> None:
    report = launch("--timeout", "0.2", "--grace", "20", "--", "sh", "-c", "kill -STOP $$").told
    assert report["timed_out"] is True
    assert report["signal"] == signal.SIGTERM


def test_no_descendant_survives_the_launcher(launch: Launch) -> None:
    script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; (sleep 1000 & echo $!) ; exit 4"
    outcome = launch("--", "sh", "-c", script, stdin=None)
    assert outcome.told["exit_code"] == 4
    assert outcome.told["left_behind"] == 3
    assert outcome.told["reaped"] == 4
    pids = [int(line) for line in outcome.out.split()]
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize("method", METHODS, indirect=True)
def test_descendants_of_any_number_are_counted_and_ended(launch: Launch, method: str) -> None:
    """Of 1,100 processes that outlived their program, the launcher once reported 1,024."""
    code = (
        "import os, signal\n"
        "for _ in range(1100):\n"
        "    try: pid = os.fork()\n"
        "    except BlockingIOError: os._exit(77)\n"
        "    if pid == 0: signal.pause()\n"
        "    print(pid)"
    )
    outcome = launch("--memory", method, "--", sys.executable, "-S", "-c", code)
    if outcome.told["exit_code"] == 77:
        pytest.skip("1,100 processes may not run here (ulimit -u, or pids.max of the cgroup)")
    assert outcome.told["exit_code"] == 0
    assert outcome.told["left_behind"] == 1100
    assert outcome.told["reaped"] == 1101
    pids = [int(line) for line in outcome.out.split()]
    assert len(pids) == 1100
    assert not any(is_alive(pid) for pid in pids)


DAEMONS = {
    "background": "sleep 3 &",
    "session": "setsid sleep 3 & sleep 0.1",
    "twice": "(setsid sh -c 'sleep 0.3 & sleep 3; :' &)",
}
"""Command lines that end at once, while their last process runs for another 3 s."""


@pytest.mark.parametrize("line", DAEMONS.values(), ids=DAEMONS)
@pytest.mark.parametrize("method", [*METHODS, "none"], indirect=True)
def test_the_launcher_waits_for_descendants_on_request(
    launch: Launch, line: str, method: str
) -> None:
    command = ("--memory", method, "--", "sh", "-c", f"{line}\nexit 3")
    ended = launch(*command).told
    assert ended["left_behind"] >= 1
    assert ended["wall_ns"] < 2.5e9
    waited = launch("--wait-descendants", *command).told
    assert waited["exit_code"] == 3
    assert waited["left_behind"] == 0
    assert 2.9e9 < waited["wall_ns"] < 20e9


def test_the_work_of_descendants_counts_when_the_launcher_waits(launch: Launch, hold: str) -> None:
    command = ("--", "sh", "-c", f"{hold} spinners 1 300 > /dev/null 2>&1 & exit 0")
    waited = launch("--wait-descendants", *command).told
    assert waited["left_behind"] == 0
    assert waited["user_ns"] + waited["system_ns"] > 0.2e9
    assert launch(*command).told["user_ns"] < 0.2e9


def test_a_timeout_ends_descendants_for_which_the_launcher_waits(launch: Launch) -> None:
    command = ("--timeout", "2", "--", "sh", "-c", "sleep 1000 & echo $!")
    outcome = launch("--wait-descendants", *command)
    assert outcome.told["timed_out"] is True
    assert outcome.told["exit_code"] == 0
    assert outcome.told["left_behind"] == 1
    assert not is_alive(int(outcome.out))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_descendants_for_which_the_launcher_waits(launch: Launch, sent: int) -> None:
    command = ("--", "sh", "-c", "sleep 1000 & echo $!")
    process, reader = launch.start("--wait-descendants", *command)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    time.sleep(0.2)
    process.send_signal(sent)
    outcome = launch.finish(process, reader)
    assert outcome.told["interrupted_by"] == sent
    assert not is_alive(pid)


def test_a_program_that_waits_for_its_children_leaves_none_behind(launch: Launch) -> None:
    report = launch("--", "sh", "-c", "sleep 0.01 & sleep 0.02 & wait").told
    assert report["left_behind"] == 0
    assert report["reaped"] == 1


def test_a_deep_tree_is_ended_level_by_level(launch: Launch) -> None:
    script = 'trap "" TERM; if [ "$1" -gt 0 ]; then sh -c "$0" "$0" $(($1 - 1)) & echo $!; fi; exec sleep 1000'
    process, reader = launch.start("--", "sh", "-c", script, script, "20")
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(20)]
    # The second signal ends the tree. Two signals may reach the launcher as one.
    for _ in range(50):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        if process.poll() is not None:
            break
    outcome = launch.finish(process, reader)
    assert outcome.told["left_behind"] == 20
    assert not any(is_alive(pid) for pid in pids)


def test_the_program_ends_when_its_launcher_is_killed(launch: Launch) -> None:
    process, reader = launch.start("--memory", "none", "--", "sh", "-c", "echo $$; exec sleep 1000")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    os.close(reader)
    assert wait_until(lambda: not is_alive(pid))
    process.stdout.close()
    if process.stderr is not None:
        process.stderr.close()


def test_a_tree_is_ended_when_the_reader_of_the_report_is_gone(
    launch: Launch, stubborn: str
) -> None:
    process, reader = launch.start("--", stubborn)
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(3)]
    os.close(reader)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 125
    assert err == "cairn-launch: the reader of the report is gone.\n"
    assert not any(is_alive(pid) for pid in pids)


def test_a_report_that_cannot_be_written_is_our_failure(launch: Launch) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [launch.path, "--report-fd", str(full.fileno()), "--", "true"],
            pass_fds=(full.fileno(),), capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 125
    assert done.stderr == f"cairn-launch: cannot write the report: {os.strerror(errno.ENOSPC)}.\n"


@pytest.mark.parametrize(
    ("path", "number"), [("/dev/full", errno.ENOSPC), ("/nowhere/series", errno.ENOENT)]
)
def test_memory_over_time_that_cannot_be_written_is_our_failure(
    launch: Launch, path: str, number: int
) -> None:
    outcome = launch("--memory-series", path, "--", "true")
    assert outcome.code == 125
    assert outcome.err == f"cairn-launch: cannot write '{path}': {os.strerror(number)}.\n"


# --- signals ---

SAYS_SIGNAL = 'trap "echo got {0}; exit 6" {0}; echo ready; while :; do sleep 0.01; done'


@pytest.mark.parametrize(
    ("name", "interrupts"),
    [
        ("INT", True),
        ("TERM", True),
        ("HUP", True),
        ("QUIT", True),
        ("USR1", False),
        ("USR2", False),
        ("ALRM", False),
    ],
)
def test_signals_are_passed_on(launch: Launch, name: str, interrupts: bool) -> None:
    process, reader = launch.start("--", "sh", "-c", SAYS_SIGNAL.format(name))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    number = getattr(signal, f"SIG{name}")
    process.send_signal(number)
    outcome = launch.finish(process, reader)
    assert outcome.out == f"got {name}\n"
    assert outcome.told["exit_code"] == 6
    assert outcome.told["interrupted_by"] == (number if interrupts else None)


def test_a_second_interrupt_ends_the_tree(launch: Launch, stubborn: str) -> None:
    process, reader = launch.start("--", stubborn)
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    assert all(is_alive(pid) for pid in pids)
    process.send_signal(signal.SIGINT)
    outcome = launch.finish(process, reader)
    assert outcome.told["signal"] == signal.SIGKILL
    assert outcome.told["interrupted_by"] == signal.SIGINT
    assert not any(is_alive(pid) for pid in pids)


def test_a_signal_that_the_caller_ignores_is_not_passed_on(launch: Launch) -> None:
    process, reader = launch.start(
        "--",
        "sh",
        "-c",
        "echo ready; sleep 0.3",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    outcome = launch.finish(process, reader)
    assert outcome.told["exit_code"] == 0
    assert outcome.told["interrupted_by"] is None


def test_signals_reach_the_program_as_the_caller_had_them(launch: Launch) -> None:
    def odd() -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR2, signal.SIGWINCH})

    command = ("grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status")
    plain = subprocess.run(
        command, preexec_fn=odd, capture_output=True, text=True, check=True
    ).stdout
    outcome = launch("--", *command, preexec_fn=odd)
    assert outcome.told["exit_code"] == 0
    assert outcome.out == plain


def test_a_stopped_launcher_stops_its_program(launch: Launch) -> None:
    process, reader = launch.start("--", "sh", "-c", "echo $$; while :; do :; done")
    assert process.stdout is not None
    pid = int(process.stdout.readline())

    def state(number: int) -> str:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]

    process.send_signal(signal.SIGTSTP)
    # If the test itself runs without a shell, its process group is orphaned, and SIGTSTP does not
    # stop the launcher. The program then runs on.
    if wait_until(lambda: state(process.pid) == "T", 2):
        assert wait_until(lambda: state(pid) == "T")
        process.send_signal(signal.SIGCONT)
    assert wait_until(lambda: state(pid) in "RS")
    process.send_signal(signal.SIGTERM)
    assert launch.finish(process, reader).told["signal"] == signal.SIGTERM


def test_the_end_of_the_program_during_the_forwarding_of_a_signal_is_noticed(
    launch: Launch,
) -> None:
    """On one processor, a program often ends at a signal before its launcher runs again."""
    one = {min(os.sched_getaffinity(0))}
    for _ in range(100):
        process, reader = launch.start(
            *("--memory", "none", "--", "sh", "-c", "echo up; exec sleep 100"),
            preexec_fn=lambda: os.sched_setaffinity(0, one),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert launch.finish(process, reader, timeout=20).told["signal"] == signal.SIGTERM


def endings(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_reaped_process_is_written_with_its_status(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "endings"
    file.write_text("before\n")
    line = "(sleep 0.05; kill -SEGV $BASHPID) & (sleep 0.01; exit 7) & disown -a; exec sleep 1"
    outcome = launch("--endings", str(file), "--", "bash", "-c", f"({line}); sleep 1; exit 3")
    first, *rest = file.read_text().splitlines()
    assert first == "before"
    found = [json.loads(text) for text in rest]
    main = found[-1]
    assert (main["event"], main["pid"], main["status"]) == ("wait", outcome.told["pid"], 3 << 8)
    assert main["by"] != main["pid"]
    orphans = {record["status"] & ~0x80: record for record in found[:-1]}
    assert orphans[11]["program"] == orphans[7 << 8]["program"] == "bash"
    assert not any("killed" in record for record in found)


def test_a_process_that_the_launcher_ended_is_marked_as_killed(
    launch: Launch, tmp_path: Path
) -> None:
    """The launcher kills the processes that outlive the command, and marks them as killed.

    A zombie must not be marked, because it had ended by itself before.
    """
    file = tmp_path / "endings"
    file.touch()
    script = (
        "import os, time\n"
        "reader, writer = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0: os._exit(5)\n"
        "    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\n"
        "    os.write(writer, b'.')\n"
        "    time.sleep(100)\n"
        "os.read(reader, 1)\n"
    )
    told = launch("--endings", str(file), "--", "python3", "-S", "-c", script).told
    assert told["left_behind"] == 1
    found = {record["status"]: record.get("killed", False) for record in endings(file)}
    assert found == {0: False, 5 << 8: False, 9: True}


def test_endings_need_a_file_that_exists(launch: Launch, tmp_path: Path) -> None:
    outcome = launch("--endings", str(tmp_path / "missing"), "--", "true")
    assert (outcome.code, outcome.report) == (125, None)
    assert "cannot write" in outcome.err and "missing" in outcome.err


def test_no_core_stops_core_dumps_of_the_command_alone(launch: Launch, tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    script = "import resource as r; print(*r.getrlimit(r.RLIMIT_CORE))"
    most = 1 if hard == resource.RLIM_INFINITY else min(hard, 1)
    out = launch("--no-core", "--", "python3", "-c", script).out
    assert out.split() == [str(most), str(hard)]
    report = launch("--no-core", "--", "sh", "-c", "kill -SEGV $$", cwd=tmp_path).told
    assert (report["signal"], report["core_dumped"]) == (signal.SIGSEGV, False)
    assert list(tmp_path.iterdir()) == []
