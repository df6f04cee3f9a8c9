"""Tests of the launcher on a terminal, and of job control."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.launching import Launch, is_alive, wait_until

# A small shell. It runs the launcher as a job in the foreground, and writes to descriptor 4 when
# the launcher stops and when it ends. A byte from descriptor 3 makes it continue the launcher.
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
    """A shell in a session with a terminal. It runs one launcher as its job."""

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
        """Returns whether this text appears on the screen."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self.screen:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return False
            try:
                self.screen += os.read(self.master, 4096)
            except OSError:  # no process has the terminal open
                return text.encode() in self.screen
        return True

    def hear(self, seconds: float = 10) -> str:
        """Returns the shell's next message."""
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


def test_the_program_gets_the_terminal(terminal: Callable[..., Terminal]) -> None:
    job = terminal(
        "--", "sh", "-c", "read line; echo heard $line; true < /dev/tty && echo controlling"
    )
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


def test_ctrl_z_stops_the_whole_job_until_it_is_continued(
    terminal: Callable[..., Terminal],
) -> None:
    job = terminal("--", "sh", "-c", "echo $$ ready; read line; echo heard $line")
    assert job.see("ready")
    program = int(job.screen.split()[0])

    def runs_in_the_foreground() -> bool:
        stat = Path(f"/proc/{program}/stat").read_text()
        return os.tcgetpgrp(job.master) == program and stat.rpartition(")")[2].split()[0] != "T"

    for _ in range(3):
        assert wait_until(runs_in_the_foreground)
        job.type(b"\x1a")
        assert job.hear() == f"stopped {int(signal.SIGTSTP)}"
        os.write(job.go, b"f")
    job.type(b"again\n")
    assert job.see("heard again")
    assert job.hear() == "ended 0 foreground True"
    assert read_report(job)["exit_code"] == 0


def test_the_program_ends_when_the_terminal_is_closed(terminal: Callable[..., Terminal]) -> None:
    job = terminal("--", "sh", "-c", "echo ready $$; exec sleep 1000")
    assert job.see("ready")
    pid = int(job.screen.split()[1])
    os.close(job.master)
    assert wait_until(lambda: not is_alive(pid))


def test_a_stopped_job_ends_when_its_terminal_is_closed(terminal: Callable[..., Terminal]) -> None:
    job = terminal("--", "sh", "-c", "echo ready $$; exec sleep 1000")
    assert job.see("ready")
    pid = int(job.screen.split()[1])
    job.type(b"\x1a")
    assert job.hear().startswith("stopped")
    os.close(job.master)
    os.kill(job.pid, signal.SIGKILL)
    assert wait_until(lambda: not is_alive(pid))


def test_ctrl_z_is_ignored_if_no_shell_could_continue_the_job(launch: Launch) -> None:
    """The launcher leads the session itself, so that its process group is orphaned.

    If the launcher stopped, no shell could continue it. So Ctrl-Z must not stop it.
    """
    reader, writer = os.pipe()
    pid, master = pty.fork()
    if pid == 0:
        fcntl.fcntl(writer, fcntl.F_SETFD, 0)
        script = "echo ready; read line; echo heard $line"
        command = [
            str(launch.path),
            "--report-fd",
            str(writer),
            "--terminal",
            "--",
            "sh",
            "-c",
            script,
        ]
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
    """The shell's process group must stay in the foreground while the program runs."""
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
