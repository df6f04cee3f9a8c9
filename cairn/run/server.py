"""Runs one trial of a server: waits until it is ready, runs its load, and asks it to end.

The launcher starts, measures and ends the server, as any program. This module does the rest while
the launcher runs. The load runs without the allocator under test and outside the measured tree.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from cairn import units
from cairn.errors import CairnError
from cairn.run import process_group, process_usage
from cairn.run.process_usage import TreeUsage

READY_S = 30.0
"""The time that a server has to become ready, unless --timeout gives another."""
END_S = 10.0
"""The time that a server has to end after SIGTERM, before it is killed."""
_DEATH_S = 1.0
"""The launcher reports the death of a server within this time after the load has failed."""
_LOOK_S = 0.02
"""The interval at which a server is asked whether it is ready."""
_PORT = re.compile(r"(?<!\$)\{port\}")
"""{port} without a "$" before it: ${port} belongs to the shell."""
_EXIT_OF_SIGTERM = 128 + signal.SIGTERM
"""The exit code of servers that handle SIGTERM and report it as a shell does."""
_TAIL_BYTES = 4096
_TAIL_LINES = 3


def uses_port(*lines: str | None) -> bool:
    """Returns whether {port} stands in one of the lines."""
    return any(line is not None and _PORT.search(line) for line in lines)


def free_port() -> int:
    """Returns a TCP port on which nothing listens.

    The port lies outside the range from which the kernel chooses the ports of clients, for two
    reasons. No client can take the port before the server does. And no client that connects before
    the server listens can get this port as its own: TCP would then connect the client to itself.
    """
    try:
        words = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        low, high = int(words[0]), int(words[1])
    except (OSError, ValueError, IndexError):
        low, high = 32768, 60999
    ports = [*range(10_000, low), *range(high + 1, 65_536)] or [*range(10_000, 65_536)]
    for _ in range(100):
        port: int = secrets.choice(ports)
        if _is_free(port):
            return port
    raise CairnError(
        "no free port was found for {port}; check which programs listen with 'ss -ltn'"
    )


def _is_free(port: int) -> bool:
    for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind((everywhere, port))
        except OSError as error:
            # A machine may have no IPv6.
            if family == socket.AF_INET or error.errno == errno.EADDRINUSE:
                return False
    return True


class Loaded(Struct, frozen=True):
    """A load that ended with success."""

    wall_ns: int
    began_ns: int
    """The time at which the load began, on the clock of `time.monotonic_ns`."""
    usage: TreeUsage
    """The resources that the server used while the load ran."""
    output: str
    """The standard output of the load, then its standard error."""


class Session:
    """The life of one server, from its start to its end. It is used for one trial."""

    def __init__(
        self,
        load: str,
        ready: str | None,
        folder: str,
        timeout_s: float | None,
        scratch: Path,
        idle_s: float | None = None,
    ) -> None:
        self.port = free_port()
        self.loaded: Loaded | None = None
        """The load, if it ended with success."""
        self.idle_ns: int | None = None
        """The time at which the server had run without a load for `idle_s` seconds."""
        self.problem: str | None = None
        """Why there is no result, as the rest of a sentence that begins with the program."""
        self.died = False
        """Whether the server ended by itself, before it was asked to."""
        self.timed_out = False
        self.asked_to_end = False
        """Whether the server was sent SIGTERM."""
        self.killed = False
        """Whether the server was killed, because it did not end after SIGTERM."""
        self._load = self.filled(load)
        self._ready = None if ready is None else self.filled(ready)
        self._folder = folder
        self._limit_s = timeout_s
        self._idle_s = idle_s
        self._began = time.monotonic()
        self._load_began: float | None = None
        self._output = scratch / "load.stdout"
        self._errors = scratch / "load.stderr"

    def filled(self, line: str) -> str:
        """Returns the line with the trial's port in place of {port}."""
        return _PORT.sub(str(self.port), line)

    def filled_all(self, words: Sequence[str]) -> list[str]:
        """Returns the words with the trial's port in place of {port}."""
        return [self.filled(word) for word in words]

    def filled_values(self, variables: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Returns the variables with the trial's port in place of {port} in their values."""
        return {name: self.filled(value) for name, value in variables}

    def conduct(self, launcher: subprocess.Popen[bytes], report: int) -> None:
        """Waits until the server is ready, runs the load, and ends the server.

        report: the descriptor of the launcher's report, which becomes readable at the server's end.
        """
        self._began = time.monotonic()
        if self._wait_until_ready(report):
            self._run_load(launcher.pid, report)
        if self.loaded is not None and self._idle_s is not None:
            self._idle(report, self._idle_s)
        if not self.died:
            self._end(launcher, report)

    def failure(
        self,
        exit_code: int | None,
        signal_number: int | None,
        left_behind: int,
        ok_exit: Sequence[int],
        last_line: str,
    ) -> str | None:
        """Returns why this trial is not a result, given how the server ended; else None.

        last_line: the last line that the server printed; may be empty. The text is the rest of a
        sentence that begins with the program.
        """
        if self.problem is not None:
            return self.problem
        when = "when it was asked to end"
        if self.killed:
            return f"did not end within {END_S:g} s after SIGTERM, and was killed"
        if self.died:
            ran = "while the load ran" if self._load else "before its time was over"
            when = "before it was ready" if self._load_began is None else ran
            if self.loaded is not None and self._idle_s is not None:
                when = "while it was idle"
            if exit_code == 0 and left_behind:
                return (
                    "put itself into the background; a server under load must stay in the "
                    "foreground, as with redis-server --daemonize no, or nginx -g 'daemon off;'"
                )
        elif signal_number == signal.SIGTERM or exit_code in (0, _EXIT_OF_SIGTERM, *ok_exit):
            return None
        why = f": {last_line}" if last_line else ""
        if signal_number is not None:
            return f"was killed by {_named(signal_number)} {when}{why}"
        return f"ended with exit code {exit_code} {when}{why}"

    def _wait_until_ready(self, report: int) -> bool:
        """Returns True as soon as the server is ready; else sets `problem` or `died`."""
        limit = READY_S if self._limit_s is None else self._limit_s
        while not self._is_ready(report):
            if self.died or _readable([report], _LOOK_S):
                self.died = True
                return False
            if time.monotonic() - self._began >= limit:
                what = (
                    f"nothing accepted a connection on port {self.port}"
                    if self._ready is None
                    else "the --ready command did not succeed"
                )
                self.problem = f"was not ready after {_seconds(limit)}: {what}"
                self.timed_out = True
                return False
        return True

    def _is_ready(self, report: int) -> bool:
        if self._ready is None:
            return any(_accepts(host, self.port) for host in ("127.0.0.1", "::1"))
        with self._started(self._ready, subprocess.DEVNULL, subprocess.DEVNULL) as process:
            limit = READY_S if self._limit_s is None else self._limit_s
            ended = _wait(process, report, self._began + limit)
            self.died = ended == "server"
            return ended == "command" and process.wait() == 0

    def _run_load(self, launcher: int, report: int) -> None:
        before = process_usage.of_descendants(launcher)
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._load_began = time.monotonic()
            began = time.monotonic_ns()
            with self._started(self._load, output.fileno(), errors.fileno()) as process:
                until = None if self._limit_s is None else self._began + self._limit_s
                ended = _wait(process, report, until)
                wall_ns = time.monotonic_ns() - began
                status = process.wait() if ended == "command" else None
        usage = process_usage.of_descendants(launcher).since(before)
        # If the server dies, its load may fail before the launcher has reported the death.
        if ended == "server" or _readable([report], _DEATH_S if status else 0):
            self.died = True
        elif ended == "time":
            self.timed_out = True
            self.problem = (
                f"was ready, but the load did not end within {_seconds(self._limit_s or 0)} "
                "(--timeout)"
            )
        elif status != 0:
            self.problem = f"was ready, but the load {_how(status or 0)}{self._last_words()}"
        else:
            texts = (path.read_text("utf-8", "replace") for path in (self._output, self._errors))
            self.loaded = Loaded(max(1, wall_ns), began, usage, "\n".join(texts))

    def _load_until(self, report: int, until: float) -> None:
        """Runs the load once, and kills it at this time. Sets `died` or `problem`."""
        with (
            self._output.open("wb") as output,
            self._errors.open("wb") as errors,
            self._started(self._load, output.fileno(), errors.fileno()) as process,
        ):
            ended = _wait(process, report, until)
            status = process.wait() if ended == "command" else 0
        if ended == "server" or _readable([report], _DEATH_S if status else 0):
            self.died = True
        elif status:
            self.problem = f"was ready, but the load {_how(status)}{self._last_words()}"

    def _ended_within(self, report: int, seconds: float) -> bool:
        """Returns whether the server ends within this time. Cairn sleeps until then."""
        return bool(_readable([report], max(0.0, seconds)))

    def _idle(self, report: int, seconds: float) -> None:
        """Leaves the server alone for this time. Cairn sleeps until then."""
        if _readable([report], seconds):
            self.died = True
        else:
            self.idle_ns = time.monotonic_ns()

    def _last_words(self) -> str:
        """The last lines of the load's errors, or of its output if there are none."""
        for path in (self._errors, self._output):
            with path.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
            lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
            if lines:
                return ": " + " / ".join(line[:200] for line in lines[-_TAIL_LINES:])
        return ""

    @contextlib.contextmanager
    def _started(self, line: str, output: int, errors: int) -> Iterator[subprocess.Popen[bytes]]:
        """Runs the line under /bin/sh in a process group of its own.

        Kills the group at the end of the with block, with all that the command left in it.
        """
        process = subprocess.Popen(
            ["/bin/sh", "-c", line], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=output,
            stderr=errors, process_group=0,
        )  # fmt: skip
        try:
            yield process
        finally:
            process_group.kill(process)

    def _end(self, launcher: subprocess.Popen[bytes], report: int) -> None:
        """Asks the server to end. Kills it if it does not end within END_S."""
        self.asked_to_end = True
        # The launcher passes the first SIGTERM on to the server, and kills it after the second.
        launcher.terminate()
        if not _readable([report], END_S):
            self.killed = True
            launcher.terminate()


def _accepts(host: str, port: int) -> bool:
    """Whether a process accepts a connection on this port."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            # If nothing listens, the kernel may give this connection the same port as its own.
            # TCP then connects the socket to itself.
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False


def _readable(descriptors: Sequence[int], seconds: float | None) -> list[int]:
    """Waits until a descriptor can be read or is at its end, or this time is over.

    Returns these descriptors.
    """
    return select.select(descriptors, [], [], seconds)[0]


def _wait(process: subprocess.Popen[bytes], report: int, until: float | None) -> str:
    """Waits until the command ends, the server ends, or the time `until` has come.

    Returns which of them happened: "command", "server" or "time". Cairn sleeps until then, so that
    it does not disturb the measurement.
    """
    try:
        command = os.pidfd_open(process.pid)
    except OSError:  # an old kernel
        return _wait_by_looking(process, report, until)
    try:
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready = _readable([command, report], left)
            if command in ready:
                return "command"
            if report in ready:
                return "server"
            if left == 0:
                return "time"
    finally:
        os.close(command)


def _wait_by_looking(process: subprocess.Popen[bytes], report: int, until: float | None) -> str:
    while process.poll() is None:
        if _readable([report], _LOOK_S):
            return "server"
        if until is not None and time.monotonic() >= until:
            return "time"
    return "command"


def _how(status: int) -> str:
    return f"failed with exit code {status}" if status >= 0 else f"was killed by {_named(-status)}"


def _named(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _seconds(seconds: float) -> str:
    return units.duration(seconds) if seconds >= 1 else f"{seconds:g} s"
