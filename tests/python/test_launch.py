"""cairn-launch from outside: what it starts, what it says about it, and that nothing is left behind.

Needs a C compiler and the program: $CAIRN_LAUNCH, or build/src/launch/cairn-launch.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pty
import resource
import select
import signal
import stat
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BUILT = Path(__file__).parents[2] / "build" / "src" / "launch" / "cairn-launch"
MIB = 1 << 20
METHODS = ("cgroup", "sampled")

# Memory in known shapes: hold SHAPE MIB MILLISECONDS [FILE]. Plain small pages, so that every figure is known.
HOLD = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void nap(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static char *fill(size_t bytes)
{
    char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        _exit(9);
    madvise(area, bytes, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < bytes; at += 4096)
        area[at] = 1;
    return area;
}

static void spin(long ms)
{
    struct timespec now;
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
}

int main(int argc, char **argv)
{
    const char *shape = argv[1];
    size_t bytes = (size_t)(atof(argv[2]) * 1048576);
    long ms = atol(argv[3]);
    if (strcmp(shape, "plain") == 0) {
        fill(bytes);
        nap(ms);
    } else if (strcmp(shape, "children") == 0) {
        int all[2]; /* each waits until the last has filled its memory */
        char byte;
        if (pipe(all) != 0)
            return 9;
        for (int i = 0; i < 4; i++) {
            if (fork() == 0) {
                fill(bytes);
                close(all[1]);
                if (read(all[0], &byte, 1) != 0)
                    _exit(9);
                nap(ms);
                _exit(0);
            }
        }
        close(all[1]);
        while (wait(NULL) > 0) {
        }
    } else if (strcmp(shape, "file") == 0) {
        static char buffer[65536];
        fill(10 << 20);
        int fd = open(argv[4], O_RDONLY);
        while (read(fd, buffer, sizeof buffer) > 0) {
        }
        nap(ms);
    } else if (strcmp(shape, "lazy") == 0) {
        char *area = fill(bytes);
        nap(300);
        madvise(area, bytes, MADV_FREE);
        nap(ms);
    } else if (strcmp(shape, "burst") == 0) {
        nap(ms);
        char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(area, bytes, MADV_HUGEPAGE); /* quick, where the machine can */
        for (size_t at = 0; at < bytes; at += 4096)
            area[at] = 1;
        munmap(area, bytes);
        nap(ms);
    } else if (strcmp(shape, "shared") == 0) {
        int fd = memfd_create("shared", 0);
        if (ftruncate(fd, (off_t)bytes) != 0)
            return 9;
        char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        memset(area, 1, bytes);
        for (int i = 0; i < 3; i++) {
            if (fork() == 0) {
                volatile char sum = 0;
                for (size_t at = 0; at < bytes; at += 4096)
                    sum = (char)(sum + area[at]);
                nap(ms);
                _exit(0);
            }
        }
        while (wait(NULL) > 0) {
        }
    } else if (strcmp(shape, "spin") == 0) {
        spin(ms);
    } else if (strcmp(shape, "spinners") == 0) { /* two waited for, and one that is nobody's child */
        for (int i = 0; i < 2; i++) {
            if (fork() == 0) {
                spin(ms);
                _exit(0);
            }
        }
        while (wait(NULL) > 0) {
        }
        if (fork() == 0) {
            if (fork() == 0) {
                spin(ms);
                _exit(0);
            }
            _exit(0);
        }
        wait(NULL);
        nap(10 * ms);
    } else {
        return 9;
    }
    return 0;
}
"""

# Ends only by SIGKILL, as do its two children, one of which is in a session of its own. Tells their numbers.
STUBBORN = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    int told[2];
    if (pipe(told) != 0)
        return 9;
    for (int signal = 1; signal < 32; signal++)
        sigaction(signal, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            if (i == 0)
                setsid();
            else if (fork() != 0) /* this one is nobody's child */
                _exit(0);
            dprintf(told[1], "%d\n", (int)getpid());
            for (;;)
                pause();
        }
    }
    char text[64];
    for (int lines = 0; lines < 2;) {
        ssize_t got = read(told[0], text, sizeof text);
        for (ssize_t at = 0; at < got; at++)
            lines += text[at] == '\n';
        if (write(1, text, (size_t)got) != got)
            return 9;
    }
    printf("%d\n", (int)getpid());
    fflush(stdout);
    for (;;)
        pause();
}
"""


@dataclass(frozen=True)
class Outcome:
    """What cairn-launch did, and what it said."""

    code: int
    report: dict[str, Any] | None
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        assert self.report is not None
        return self.report

    @property
    def memory(self) -> dict[str, Any]:
        return dict(self.told["memory"])


class Launch:
    """The program under test, with a pipe for its report."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, *arguments: str, **kwargs: Any) -> tuple[subprocess.Popen[str], int]:
        """Arguments up to and with "--" are options. Returns the process and where its report comes from."""
        reader, writer = os.pipe()
        kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | kwargs
        process = subprocess.Popen(
            [str(self.path), "--report-fd", str(writer), *arguments], pass_fds=(writer,), text=True, **kwargs
        )
        os.close(writer)
        return process, reader

    def finish(self, process: subprocess.Popen[str], reader: int, timeout: float = 60) -> Outcome:
        out, err = process.communicate(timeout=timeout)
        with open(reader, "rb") as file:
            line = file.read()
        assert line.count(b"\n") == (1 if line else 0)
        return Outcome(process.returncode, json.loads(line) if line else None, out or "", err or "")

    def __call__(self, *arguments: str, **kwargs: Any) -> Outcome:
        return self.finish(*self.start(*arguments, **kwargs))


def is_sanitized(path: Path) -> bool:
    return b"__asan_init" in path.read_bytes()


@pytest.fixture(scope="session")
def launch() -> Launch:
    path = Path(os.environ.get("CAIRN_LAUNCH", BUILT))
    if not path.exists():
        pytest.skip(f"no {path.name} was built; CAIRN_LAUNCH names one elsewhere")
    return Launch(path.resolve())


def compile_c(source: str, target: Path) -> Path:
    subprocess.run(["gcc", "-O1", "-w", "-xc", "-", "-o", str(target)], input=source, text=True, check=True)
    return target


@pytest.fixture(scope="session")
def hold(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_c(HOLD, tmp_path_factory.mktemp("hold") / "hold"))


@pytest.fixture(scope="session")
def stubborn(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_c(STUBBORN, tmp_path_factory.mktemp("stubborn") / "stubborn"))


@pytest.fixture(scope="session")
def cgroup(launch: Launch) -> None:
    """Skips where no cgroup can be made, with the launcher's own reason."""
    outcome = launch("--memory", "cgroup", "--", "true")
    if outcome.code == 125:
        pytest.skip(outcome.err.strip())


@pytest.fixture
def method(request: pytest.FixtureRequest) -> str:
    if request.param == "cgroup":
        request.getfixturevalue("cgroup")
    return str(request.param)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def cgroups_of(pid: int) -> list[str]:
    """Cgroups that the launcher with this number made and did not remove."""
    return [str(path) for path in Path("/sys/fs/cgroup").rglob(f"cairn-{pid}-*")]


# How it ended.


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
        pytest.skip(f"no core file would be written here: core_pattern is '{pattern}', the hard limit {hard}")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (hard if dumps else 0, hard))

    report = launch("--", "sh", "-c", "kill -ABRT $$", preexec_fn=limit, cwd=tmp_path).told
    assert report["signal"] == signal.SIGABRT
    assert report["core_dumped"] is dumps


def test_an_exec_that_fails_is_no_exit_code(launch: Launch, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    for command, number in (("/no/such/program", errno.ENOENT), (str(plain), errno.EACCES), ("/", errno.EACCES)):
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


def test_touched_memory_is_given_back(launch: Launch) -> None:
    done = subprocess.run([launch.path, "--touch", str(64 * MIB)], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_more_memory_than_there_is_is_not_touched(launch: Launch) -> None:
    for size in (1 << 50, (1 << 64) - 1):
        done = subprocess.run([launch.path, "--touch", str(size)], capture_output=True, text=True, check=False)
        assert done.returncode == 125
        assert done.stderr.startswith("cairn-launch: --touch asks for more memory")


# Ends of trees.


@pytest.mark.parametrize("method", [*METHODS, "none"], indirect=True)
def test_a_timeout_ends_a_tree_that_ignores_it(launch: Launch, stubborn: str, method: str) -> None:
    begin = time.monotonic()
    outcome = launch("--memory", method, "--timeout", "0.3", "--grace", "0.2", "--", stubborn)
    assert time.monotonic() - begin < 5
    assert outcome.told["timed_out"] is True
    assert outcome.told["signal"] == signal.SIGKILL
    assert outcome.told["left_behind"] == 2
    assert 0.4e9 <= outcome.told["wall_ns"] < 3e9
    pids = [int(line) for line in outcome.out.split()]
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


def test_a_timeout_lets_a_program_end_by_itself(launch: Launch) -> None:
    script = "trap 'exit 5' TERM; while :; do sleep 0.01; done"
    report = launch("--timeout", "0.2", "--grace", "20", "--", "sh", "-c", script).told
    assert report["timed_out"] is True
    assert report["exit_code"] == 5
    assert report["wall_ns"] < 5e9


def test_a_stopped_program_times_out_too(launch: Launch) -> None:
    report = launch("--timeout", "0.2", "--grace", "20", "--", "sh", "-c", "kill -STOP $$").told
    assert report["timed_out"] is True
    assert report["signal"] == signal.SIGTERM


def test_nobody_is_left_behind(launch: Launch) -> None:
    script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; (sleep 1000 & echo $!) ; exit 4"
    outcome = launch("--", "sh", "-c", script, stdin=None)
    assert outcome.told["exit_code"] == 4
    assert outcome.told["left_behind"] == 3
    assert outcome.told["reaped"] == 4
    pids = [int(line) for line in outcome.out.split()]
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


def test_a_program_that_waits_for_its_children_leaves_none_behind(launch: Launch) -> None:
    report = launch("--", "sh", "-c", "sleep 0.01 & sleep 0.02 & wait").told
    assert report["left_behind"] == 0
    assert report["reaped"] == 1


def test_a_deep_tree_is_ended_level_by_level(launch: Launch) -> None:
    script = 'trap "" TERM; if [ "$1" -gt 0 ]; then sh -c "$0" "$0" $(($1 - 1)) & echo $!; fi; exec sleep 1000'
    outcome = launch("--timeout", "1", "--grace", "0", "--", "sh", "-c", script, script, "20")
    pids = [int(line) for line in outcome.out.split()]
    assert len(pids) == 20
    assert outcome.told["left_behind"] == 20
    assert not any(is_alive(pid) for pid in pids)


def test_a_killed_launcher_takes_its_program_along(launch: Launch) -> None:
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


def test_a_tree_whose_report_nobody_can_read_is_ended(launch: Launch, stubborn: str) -> None:
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


# Signals.

SAYS_SIGNAL = 'trap "echo got {0}; exit 6" {0}; echo ready; while :; do sleep 0.01; done'


@pytest.mark.parametrize(
    ("name", "interrupts"),
    [("INT", True), ("TERM", True), ("HUP", True), ("QUIT", True), ("USR1", False), ("USR2", False), ("ALRM", False)],
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
        "--", "sh", "-c", "echo ready; sleep 0.3", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
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
    plain = subprocess.run(command, preexec_fn=odd, capture_output=True, text=True, check=True).stdout
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
    # A group that nobody could continue is not stopped by SIGTSTP: then the program goes on at once.
    if wait_until(lambda: state(process.pid) == "T", 2):
        assert wait_until(lambda: state(pid) == "T")
        process.send_signal(signal.SIGCONT)
    assert wait_until(lambda: state(pid) in "RS")
    process.send_signal(signal.SIGTERM)
    assert launch.finish(process, reader).told["signal"] == signal.SIGTERM


# What the program gets.


def test_no_descriptor_of_ours_reaches_the_program(launch: Launch, tmp_path: Path) -> None:
    extra = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(extra, True)
    try:
        command = ("sh", "-c", "ls /proc/self/fd | wc -l; ls -l /proc/self/fd")
        plain = subprocess.run(
            command, close_fds=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        ).stdout
        outcome = launch("--counters", "--", *command)
        again = launch("--memory", "sampled", "--", *command)
    finally:
        os.close(extra)
    # pass_fds closes `extra` for the launcher, so that the program has its three and the folder that ls reads.
    assert int(outcome.out.split("\n")[0]) == 4, outcome.out
    assert int(again.out.split("\n")[0]) == 4, again.out
    assert int(plain.split("\n")[0]) >= 4


def test_descriptors_of_the_caller_reach_the_program(launch: Launch, tmp_path: Path) -> None:
    report_reader, report_writer = os.pipe()
    kept = os.open(tmp_path, os.O_RDONLY)
    done = subprocess.run(
        [launch.path, "--report-fd", str(report_writer), "--", "readlink", f"/proc/self/fd/{kept}"],
        pass_fds=(kept, report_writer), capture_output=True, text=True, check=True,
    )  # fmt: skip
    for fd in (report_reader, report_writer, kept):
        os.close(fd)
    assert done.stdout.strip() == str(tmp_path)


def test_the_report_may_go_to_a_standard_descriptor(launch: Launch) -> None:
    done = subprocess.run(
        [launch.path, "--report-fd", "2", "--", "sh", "-c", "readlink /proc/self/fd/2; echo unheard >&2"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stderr)["exit_code"] == 0
    assert done.stdout == "/dev/null\n"


def test_closed_standard_descriptors_are_filled(launch: Launch, tmp_path: Path) -> None:
    target = tmp_path / "links"
    script = f"readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 > {target} 3<&0"
    reader, writer = os.pipe()
    done = subprocess.run(
        ["sh", "-c", f"exec {launch.path} --report-fd {writer} -- sh -c '{script}' <&- >&- 2>&-"],
        pass_fds=(writer,), check=False,
    )  # fmt: skip
    os.close(writer)
    with open(reader) as file:
        assert json.load(file)["exit_code"] == 0
    assert done.returncode == 0
    lines = target.read_text().split()
    assert lines[0] == lines[2] == "/dev/null"


def test_the_environment_is_changed_for_the_program_alone(launch: Launch) -> None:
    outcome = launch(
        *("--setenv", "A=1"), *("--unsetenv", "B"), *("--setenv", "C=x=y z"), *("--setenv", "A=2"),
        *("--setenv", "D=gone"), *("--unsetenv", "D"), "--", "env",
        env={"PATH": os.environ["PATH"], "B": "2", "E": "5"},
    )  # fmt: skip
    assert sorted(line for line in outcome.out.splitlines() if not line.startswith("PATH=")) == [
        "A=2",
        "C=x=y z",
        "E=5",
    ]


def test_a_preloaded_library_does_not_reach_the_launcher(launch: Launch) -> None:
    outcome = launch("--setenv", "LD_PRELOAD=/no/such/library.so", "--", "cat", "/dev/null")
    assert outcome.told["exit_code"] == 0
    assert outcome.err.count("ld.so") == 1


def test_files_and_folder_are_those_asked_for(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("read\n")
    (tmp_path / "out").write_text("a longer text that was there before\n")
    (tmp_path / "folder").mkdir()
    old = os.umask(0)
    try:
        outcome = launch(
            *("--stdin", "in"), *("--stdout", "out"), *("--stderr", "err"), *("--chdir", "folder"),
            "--", "sh", "-c", "cat; pwd; echo complaint >&2",
            cwd=tmp_path,
        )  # fmt: skip
    finally:
        os.umask(old)
    assert outcome.told["exit_code"] == 0
    assert outcome.out == outcome.err == ""
    assert (tmp_path / "out").read_text() == f"read\n{tmp_path / 'folder'}\n"
    assert (tmp_path / "err").read_text() == "complaint\n"
    assert stat.S_IMODE((tmp_path / "err").stat().st_mode) == 0o600


def test_both_outputs_may_be_one_file(launch: Launch, tmp_path: Path) -> None:
    both = str(tmp_path / "both")
    launch("--stdout", both, "--stderr", both, "--", "sh", "-c", "echo 1; echo 2 >&2; echo 3")
    assert Path(both).read_text() == "1\n2\n3\n"


def test_cpus_are_those_asked_for(launch: Launch) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    for cpus in ({allowed[0]}, set(allowed[-2:])):
        listed = ",".join(map(str, sorted(cpus)))
        code = "import os; print(*sorted(os.sched_getaffinity(0)))"
        outcome = launch("--cpus", listed, "--", sys.executable, "-c", code)
        assert {int(cpu) for cpu in outcome.out.split()} == cpus


# What it says about time and memory.


def test_wall_is_the_program_alone(launch: Launch) -> None:
    walls = [launch("--", "sleep", "0.2").told["wall_ns"] for _ in range(3)]
    assert 0.2e9 <= min(walls) < 0.25e9


def test_time_of_the_whole_tree_is_added_up(launch: Launch, hold: str) -> None:
    report = launch("--", hold, "spinners", "0", "100").told
    cpu_ns = report["user_ns"] + report["system_ns"]
    assert 0.29e9 <= cpu_ns < 0.5e9
    assert report["reaped"] == 2


def test_the_caller_does_not_show(launch: Launch, hold: str, cgroup: None) -> None:
    caller = textwrap.dedent(
        """
        import os, subprocess, sys
        ballast = bytearray(int(sys.argv[1]))
        ballast[::4096] = bytes(len(ballast[::4096]))
        subprocess.run([sys.argv[2], "--report-fd", "1", "--", sys.argv[3], "plain", "4", "50"], close_fds=False)
        """
    )
    figures = []
    for size in (0, 300 * MIB):
        done = subprocess.run(
            [sys.executable, "-c", caller, str(size), launch.path, hold], capture_output=True, text=True, check=True
        )
        figures.append(json.loads(done.stdout))
    small, large = figures
    assert abs(large["largest_process_bytes"] - small["largest_process_bytes"]) < MIB
    assert abs(large["memory"]["peak_bytes"] - small["memory"]["peak_bytes"]) < MIB


def test_the_launcher_is_small(launch: Launch) -> None:
    if is_sanitized(launch.path):
        pytest.skip("a sanitizer is part of this launcher")
    outcome = launch("--", "sh", "-c", "sleep 0.1; grep -E 'RssAnon|VmHWM' /proc/$PPID/status")
    sizes = {line.split()[0]: int(line.split()[1]) for line in outcome.out.splitlines()}
    assert sizes["RssAnon:"] < 512
    assert sizes["VmHWM:"] < 2560


@pytest.mark.parametrize("method", METHODS, indirect=True)
def test_four_children_count_four_times(launch: Launch, hold: str, method: str) -> None:
    memory = launch("--memory", method, "--", hold, "children", "100", "400").memory
    assert memory["peak_bytes"] == pytest.approx(400 * MIB, rel=0.05)
    assert memory["method"].startswith(method)
    assert memory["reason"] is None


@pytest.mark.parametrize("method", METHODS, indirect=True)
@pytest.mark.parametrize("size", [2, 8, 40])
def test_a_small_program_is_read_exactly(launch: Launch, hold: str, method: str, size: int) -> None:
    if is_sanitized(launch.path):
        pytest.skip("a sanitizer's memory is part of the copy that becomes the program")
    memory = launch("--memory", method, "--", hold, "plain", str(size), "150").memory
    assert memory["peak_bytes"] == pytest.approx((size + 0.1) * MIB, rel=0.03, abs=0.15 * MIB)


@pytest.mark.parametrize("method", METHODS, indirect=True)
def test_a_file_that_is_read_is_not_memory(launch: Launch, hold: str, method: str, tmp_path: Path) -> None:
    """A program that reads 1 GiB and allocates 10 MiB: its page cache is charged to the cgroup, and is not its memory."""
    file = tmp_path / "sparse"
    with open(file, "wb") as sparse:
        sparse.truncate(1024 * MIB)
    memory = launch("--memory", method, "--", hold, "file", "0", "50", str(file)).memory
    assert memory["peak_bytes"] == pytest.approx(10 * MIB, rel=0.05)
    if method == "cgroup":
        assert memory["charged_peak_bytes"] > 500 * MIB


@pytest.mark.parametrize("method", METHODS, indirect=True)
def test_lazily_freed_memory_shows_apart(launch: Launch, hold: str, method: str) -> None:
    # Process by process, a look at so much memory takes milliseconds, so that there is one every second or two.
    after_ms = "300" if method == "cgroup" else "4000"
    memory = launch("--memory", method, "--", hold, "lazy", "256", after_ms).memory
    assert memory["peak_bytes"] == pytest.approx(256 * MIB, rel=0.02)
    assert memory["peak_less_lazy_bytes"] == pytest.approx(256 * MIB, rel=0.02)
    assert memory["lazy_peak_bytes"] == pytest.approx(256 * MIB, rel=0.02)


@pytest.mark.parametrize("method", METHODS, indirect=True)
def test_nothing_is_lazily_freed_without_madvise(launch: Launch, hold: str, method: str) -> None:
    memory = launch("--memory", method, "--", hold, "plain", "64", "300").memory
    assert memory["lazy_peak_bytes"] <= MIB
    assert memory["peak_less_lazy_bytes"] >= memory["peak_bytes"] - MIB


@pytest.mark.parametrize("method", METHODS, indirect=True)
def test_a_short_burst_is_seen(launch: Launch, hold: str, method: str) -> None:
    # Process by process it is seen while the process lives on, from the highest size that this ever had.
    after_ms = "50" if method == "cgroup" else "400"
    for _ in range(3):
        memory = launch("--memory", method, "--", hold, "burst", "200", after_ms).memory
        assert memory["peak_bytes"] == pytest.approx(200 * MIB, rel=0.05)


def test_shared_memory_counts_once(launch: Launch, hold: str, cgroup: None) -> None:
    memory = launch("--memory", "cgroup", "--", hold, "shared", "100", "200").memory
    assert memory["peak_bytes"] == pytest.approx(100 * MIB, rel=0.05)


def test_a_program_too_short_to_be_seen_has_no_peak(launch: Launch) -> None:
    memory = launch("--", "/no/such/program").memory
    assert memory["peak_bytes"] is None
    assert memory["peak_less_lazy_bytes"] is None
    assert memory["lazy_peak_bytes"] is None


def test_memory_that_nobody_asked_for_is_not_measured(launch: Launch) -> None:
    memory = launch("--memory", "none", "--", "sleep", "0.05").memory
    assert memory == {
        "method": "not measured", "reason": None, "peak_bytes": None, "peak_less_lazy_bytes": None,
        "lazy_peak_bytes": None, "charged_peak_bytes": None, "samples": 0, "sampling_cpu_ns": 0,
    }  # fmt: skip


@pytest.mark.parametrize("method", METHODS, indirect=True)
def test_sampling_stays_within_its_budget(launch: Launch, hold: str, method: str) -> None:
    if is_sanitized(launch.path):
        pytest.skip("a sanitizer slows the launcher down")
    report = launch("--memory", method, "--", hold, "spin", "0", "2000").told
    early_ns = 1.5e6  # the first readings of both kinds may cost so much together
    assert report["memory"]["sampling_cpu_ns"] - early_ns < 0.005 * report["wall_ns"]
    assert report["memory"]["samples"] >= 20


@pytest.mark.parametrize("ends", ["exit 0", "kill -9 $$", "sleep 1000 & exit 0", "mkdir_below"])
def test_the_cgroup_is_removed(launch: Launch, cgroup: None, ends: str) -> None:
    # A cgroup that the program itself made below ours must not keep ours.
    below = (
        'd=/sys/fs/cgroup/memory$(sed -n "s/^[0-9]*:memory://p" /proc/self/cgroup); [ ! -d "$d" ] || mkdir "$d/below"'
    )
    process, reader = launch.start("--memory", "cgroup", "--", "sh", "-c", below if ends == "mkdir_below" else ends)
    outcome = launch.finish(process, reader)
    assert outcome.memory["method"].startswith("cgroup")
    assert outcome.err == ""
    assert cgroups_of(process.pid) == []


def test_the_cgroup_is_there_while_the_program_runs(launch: Launch, cgroup: None) -> None:
    process, reader = launch.start("--memory", "cgroup", "--", "cat", "/proc/self/cgroup")
    outcome = launch.finish(process, reader)
    assert f"cairn-{process.pid}-" in outcome.out


def test_one_launcher_inside_another(launch: Launch, hold: str, cgroup: None) -> None:
    if is_sanitized(launch.path):
        pytest.skip("a sanitizer is part of the inner launcher")
    inner = (str(launch.path), "--report-fd", "1", "--", hold, "plain", "50", "200")
    outcome = launch("--memory", "cgroup", "--", *inner)
    assert json.loads(outcome.out)["memory"]["peak_bytes"] == pytest.approx(50 * MIB, rel=0.05)
    assert outcome.memory["peak_bytes"] == pytest.approx(50 * MIB, rel=0.05)


def test_counters_are_numbers_or_absent(launch: Launch, hold: str) -> None:
    report = launch("--counters", "--", hold, "spinners", "0", "50").told
    counters = report["counters"]
    flags = {name: counters.pop(name) for name in ("user_mode_only", "scaled")}
    assert all(isinstance(flag, bool) for flag in flags.values())
    assert set(counters) == {
        "task-clock", "context-switches", "cpu-migrations", "page-faults", "cycles", "instructions",
        "branches", "branch-misses", "cache-references", "cache-misses",
    }  # fmt: skip
    assert all(value is None or (isinstance(value, int) and value >= 0) for value in counters.values())
    if flags["user_mode_only"]:
        assert counters["context-switches"] is None
        assert counters["cpu-migrations"] is None
    for name in ("cycles", "instructions", "branches"):
        assert counters[name] != 0
    if counters["task-clock"] is not None:  # all three spinners, of which one is an orphan
        assert counters["task-clock"] == pytest.approx(report["user_ns"] + report["system_ns"], rel=0.2)
    if counters["page-faults"] is not None and not flags["user_mode_only"]:
        assert counters["page-faults"] == pytest.approx(report["minor_faults"] + report["major_faults"], abs=50)


def test_counters_are_not_opened_unasked(launch: Launch) -> None:
    assert launch("--", "true").told["counters"] is None


def test_the_report_is_complete(launch: Launch) -> None:
    report = launch("--", "true").told
    assert list(report) == [
        "schema", "pid", "exit_code", "signal", "core_dumped", "timed_out", "interrupted_by", "exec_errno",
        "exec_error", "wall_ns", "user_ns", "system_ns", "minor_faults", "major_faults", "voluntary_switches",
        "involuntary_switches", "reaped", "left_behind", "largest_process_bytes", "memory", "counters",
    ]  # fmt: skip
    assert report["schema"] == 1
    assert 0 < report["minor_faults"] < 1000
    assert 0 < report["largest_process_bytes"] < 16 * MIB


# The terminal.

# A shell in small: gives the launcher a job of its own in the foreground, and says through descriptor 4 when it stops
# and ends. A byte from descriptor 3 continues it.
SHELL = r"""
import os, signal, sys
tty = os.open("/dev/tty", os.O_RDWR)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def say(text):
    os.write(4, (text + "\n").encode())
def give(group):
    os.tcsetpgrp(tty, group)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    give(os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.close(3), os.close(4)
    os.execv(sys.argv[1], sys.argv[1:])
try:
    os.setpgid(child, child)
except PermissionError:
    pass  # it was quicker, and has done so itself
while True:
    _, status = os.waitpid(child, os.WUNTRACED)
    at_end = os.tcgetpgrp(tty) == child
    give(os.getpgrp())
    if os.WIFSTOPPED(status):
        say(f"stopped {os.WSTOPSIG(status)}")
        os.read(3, 1)
        give(child)
        os.killpg(child, signal.SIGCONT)
    else:
        say(f"ended {os.waitstatus_to_exitcode(status)} foreground {at_end}")
        break
"""


class Terminal:
    """A shell in a session with a terminal, which runs one launcher as its job."""

    def __init__(self, launch: Launch, *arguments: str) -> None:
        self.go_reader, self.go = os.pipe()
        self.says, says_writer = os.pipe()
        self.report, report_writer = os.pipe()
        command = [str(launch.path), "--report-fd", "9", "--terminal", *arguments]
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            moved = {3: self.go_reader, 4: says_writer, 9: report_writer}
            high = {to: fcntl.fcntl(fd, fcntl.F_DUPFD, 50) for to, fd in moved.items()}
            for to, fd in high.items():
                os.dup2(fd, to)
            os.closerange(10, 100)
            os.execv(sys.executable, [sys.executable, "-c", SHELL, *command])
        for fd in (self.go_reader, says_writer, report_writer):
            os.close(fd)
        self.screen = b""

    def see(self, text: str, seconds: float = 10) -> bool:
        """Whether this appears on the screen."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self.screen:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return False
            try:
                self.screen += os.read(self.master, 4096)
            except OSError:  # nobody has the terminal open any more
                return text.encode() in self.screen
        return True

    def hear(self, seconds: float = 10) -> str:
        """What the shell says next."""
        ready, _, _ = select.select([self.says], [], [], seconds)
        return os.read(self.says, 100).decode().strip() if ready else "nothing"

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def close(self) -> None:
        for fd in (self.go, self.says, self.report, self.master):
            with contextlib.suppress(OSError):
                os.close(fd)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(launch: Launch) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*arguments: str) -> Terminal:
        opened.append(Terminal(launch, *arguments))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def read_report(terminal: Terminal) -> dict[str, Any]:
    with open(os.dup(terminal.report)) as file:
        return dict(json.load(file))


def test_the_terminal_is_the_programs(terminal: Callable[..., Terminal]) -> None:
    job = terminal("--", "sh", "-c", "read line; echo heard $line; true < /dev/tty && echo controlling")
    job.type(b"hello\n")
    assert job.see("heard hello")
    assert job.see("controlling")
    assert job.hear() == "ended 0 foreground True"
    assert read_report(job)["exit_code"] == 0


def test_ctrl_c_reaches_the_program_and_not_the_launcher(terminal: Callable[..., Terminal]) -> None:
    job = terminal("--", "sh", "-c", "echo ready; exec sleep 1000")
    assert job.see("ready")
    job.type(b"\x03")
    assert job.hear() == "ended 0 foreground True"
    report = read_report(job)
    assert report["signal"] == signal.SIGINT
    assert report["interrupted_by"] is None


def test_ctrl_z_stops_the_whole_job_until_it_is_continued(terminal: Callable[..., Terminal]) -> None:
    job = terminal("--", "sh", "-c", "echo ready; read line; echo heard $line")
    assert job.see("ready")
    for _ in range(3):
        job.type(b"\x1a")
        assert job.hear() == f"stopped {int(signal.SIGTSTP)}"
        os.write(job.go, b"f")
        time.sleep(0.1)
    job.type(b"again\n")
    assert job.see("heard again")
    assert job.hear() == "ended 0 foreground True"
    assert read_report(job)["exit_code"] == 0


def test_a_terminal_that_goes_away_ends_the_program(terminal: Callable[..., Terminal]) -> None:
    job = terminal("--", "sh", "-c", "echo ready $$; exec sleep 1000")
    assert job.see("ready")
    pid = int(job.screen.split()[1])
    os.close(job.master)
    assert wait_until(lambda: not is_alive(pid))


def test_a_stopped_job_ends_when_its_terminal_goes_away(terminal: Callable[..., Terminal]) -> None:
    job = terminal("--", "sh", "-c", "echo ready $$; exec sleep 1000")
    assert job.see("ready")
    pid = int(job.screen.split()[1])
    job.type(b"\x1a")
    assert job.hear().startswith("stopped")
    os.close(job.master)
    os.kill(job.pid, signal.SIGKILL)
    assert wait_until(lambda: not is_alive(pid))


def test_ctrl_z_where_nobody_could_continue_is_ignored(launch: Launch) -> None:
    """The launcher leads the session itself, so that its group is orphaned: stopping would be for ever."""
    reader, writer = os.pipe()
    pid, master = pty.fork()
    if pid == 0:
        fcntl.fcntl(writer, fcntl.F_SETFD, 0)
        script = "echo ready; read line; echo heard $line"
        command = [str(launch.path), "--report-fd", str(writer), "--terminal", "--", "sh", "-c", script]
        os.execv(command[0], command)
    os.close(writer)
    screen = b""
    while b"ready" not in screen:
        screen += os.read(master, 4096)
    os.write(master, b"\x1a")
    time.sleep(0.2)
    os.write(master, b"on\n")
    with open(reader) as file:
        assert json.load(file)["exit_code"] == 0
    os.waitpid(pid, 0)
    os.close(master)


def test_without_terminal_the_program_cannot_reach_it(launch: Launch) -> None:
    reader, writer = os.pipe()
    pid, master = pty.fork()
    if pid == 0:
        fcntl.fcntl(writer, fcntl.F_SETFD, 0)
        script = "true < /dev/tty && exit 1; set -- $(cat /proc/$$/stat); test $6 = $$ || exit 2"
        command = [str(launch.path), "--report-fd", str(writer), "--", "sh", "-c", script]
        os.execv(command[0], command)
    os.close(writer)
    with open(reader) as file:
        assert json.load(file)["exit_code"] == 0
    os.waitpid(pid, 0)
    os.close(master)


def test_a_background_job_does_not_take_the_terminal(launch: Launch) -> None:
    """A shell that keeps the foreground: the program's group must not get it."""
    pid, master = pty.fork()
    if pid == 0:
        job = os.fork()
        if job == 0:
            os.setpgid(0, 0)
            command = [str(launch.path), "--report-fd", "2", "--terminal", "--", "sleep", "0.2"]
            os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
            os.execv(command[0], command)
        kept = True
        while os.waitpid(job, os.WNOHANG)[0] == 0:
            kept = kept and os.tcgetpgrp(0) == os.getpgrp()
            time.sleep(0.01)
        os._exit(0 if kept else 1)
    _, status = os.waitpid(pid, 0)
    os.close(master)
    assert os.waitstatus_to_exitcode(status) == 0


def test_terminal_modes_are_left_alone(terminal: Callable[..., Terminal]) -> None:
    job = terminal("--", "sh", "-c", "echo ready; read line")
    assert job.see("ready")
    before = termios.tcgetattr(job.master)
    job.type(b"x\n")
    assert job.hear() == "ended 0 foreground True"
    assert termios.tcgetattr(job.master) == before
