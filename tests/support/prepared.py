"""Runs the command `cairn` in processes in which its modules are already loaded.

Loading the modules takes longer than most of what the tests ask of the command. `Prepared` starts
one process that loads them once. For each call that process forks, and the child takes over the
arguments, the environment, the working directory and the standard streams of the call. It then runs
the same function as the installed script.

A call that depends on how an interpreter starts must start the installed script instead: see
`is_needed_anew`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

_LENGTH = struct.Struct("<Q")
_RESULT = struct.Struct("<qq")

_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_")
"""Beginnings of the names of variables that an interpreter or its libraries read when they start."""


def is_needed_anew(environment: Mapping[str, str]) -> bool:
    """Whether a variable of this environment changes how an interpreter starts."""
    return any(name.startswith(_AT_START) for name in environment)


LOADED_FIRST = "CAIRN_TESTS_LOADED_FIRST"
"""The variable with the name of a module of the tests that a call imports before it begins."""
SMALL = {LOADED_FIRST: "support.small_workloads"}
"""Added to the environment of a call, makes its workloads small."""

_LOADED = (
    *("numpy", "numpy.ma", "matplotlib.figure", "matplotlib.projections.polar"),
    *("cairn.cli", "cairn.cli.progress", "cairn.bench.experiments", "cairn.bench.run_settings"),
    *("cairn.matrix.runs", "cairn.profile.path_instructions", "cairn.profile.reader"),
    *("cairn.report.matrix_board", "cairn.report.run", "cairn.report.run_json"),
    *("cairn.report.terminal", "cairn.run.instruction_counts", "cairn.run.measure"),
    *("cairn.why.gap",),
)
"""The modules that most calls load."""


class Prepared:
    """The process in which the modules are loaded. Any number of threads may call `run`."""

    def __init__(self, script: str) -> None:
        """script: the path of the installed command, which becomes `sys.argv[0]`."""
        self._folder = tempfile.TemporaryDirectory(prefix="cairn-prepared-")
        self._path = os.path.join(self._folder.name, "socket")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self._path)
            listening.listen(64)
            self._server = subprocess.Popen(
                [sys.executable, __file__, script, str(listening.fileno())],
                stdin=subprocess.PIPE,  # the server exits when this pipe is closed
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
                pass_fds=(listening.fileno(),),
            )

    def close(self) -> None:
        """Ends the process. Children that still run go on."""
        self._server.communicate()
        self._folder.cleanup()

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path, timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Returns the exit code, stdout and stderr of a call, as subprocess.run() would.

        Raises subprocess.TimeoutExpired after `timeout` seconds, when the call has been killed.
        """
        deadline = time.monotonic() + timeout
        request = json.dumps([list(arguments), dict(environment), str(cwd)]).encode()
        streams = [os.pipe(), os.pipe()]
        nothing = os.open(os.devnull, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            socket.send_fds(
                connection,
                [_LENGTH.pack(len(request))],
                [nothing, *(write for _, write in streams)],
            )
            for end in (nothing, *(write for _, write in streams)):
                os.close(end)
            connection.sendall(request)
            try:
                out, err = self._read([read for read, _ in streams], deadline)
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                status, _ = _RESULT.unpack(_exactly(connection, _RESULT.size))
            except TimeoutError:
                connection.shutdown(socket.SHUT_WR)  # the server kills the call
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            finally:
                for read, _ in streams:
                    os.close(read)
        return os.waitstatus_to_exitcode(status), out, err

    @staticmethod
    def _read(ends: Sequence[int], deadline: float) -> list[bytes]:
        """Reads the pipes to their ends. Raises TimeoutError at the deadline."""
        texts = {end: bytearray() for end in ends}
        poll = select.poll()
        for end in ends:
            poll.register(end, select.POLLIN)
        reading = len(ends)
        while reading:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                raise TimeoutError
            for end, _ in ready:
                if part := os.read(end, 1 << 16):
                    texts[end] += part
                else:
                    poll.unregister(end)
                    reading -= 1
        return [bytes(texts[end]) for end in ends]


def _exactly(connection: socket.socket, count: int) -> bytes:
    """Receives `count` bytes. Raises ConnectionError if the other side closes before."""
    text = bytearray()
    while len(text) < count:
        part = connection.recv(count - len(text))
        if not part:
            raise ConnectionError("the process with the loaded modules has ended")
        text += part
    return bytes(text)


# --- in the process with the loaded modules ------------------------------------------------------


def _accept(listening: socket.socket) -> tuple[socket.socket, list[int], list[object]] | None:
    """Accepts the next request. Returns its connection, its streams and its arguments.

    Returns None if the request was cut off.
    """
    connection, _ = listening.accept()
    try:
        head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
        return connection, streams, json.loads(_exactly(connection, *_LENGTH.unpack(head)))
    except (OSError, struct.error):
        connection.close()
        return None


def _serve(listening: socket.socket) -> list[object]:
    """Answers requests until the other side closes stdin. Returns only in the child of a request.

    The result is the request: the arguments, the environment and the working directory.
    """
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    poll = select.poll()
    for descriptor in (0, woken, listening.fileno()):
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        _report(running, poll)
        for pid, connection in running.items():
            if connection.fileno() in ready:  # the caller has timed out
                poll.unregister(connection)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if 0 in ready:
            sys.exit(0)
        if listening.fileno() in ready and (accepted := _accept(listening)) is not None:
            connection, streams, request = accepted
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                for each in (listening, connection, *running.values()):
                    each.close()
                for end in (woken, wake, *streams):
                    os.close(end)
                return request
            for stream in streams:
                os.close(stream)
            running[pid] = connection
            poll.register(connection, select.POLLIN)


def _report(running: dict[int, socket.socket], poll: select.poll) -> None:
    """Sends the statuses of the calls that have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        connection = running.pop(pid)
        with contextlib.suppress(KeyError):
            poll.unregister(connection)
        with contextlib.suppress(OSError):
            connection.sendall(_RESULT.pack(status, pid))
        connection.close()


def _stream(descriptor: int, mode: str) -> TextIO:
    """A standard stream, as the interpreter opens it when it starts in the locale C.UTF-8."""
    return open(
        descriptor,
        mode,
        1 if descriptor == 2 else -1,
        encoding="utf-8",
        errors="backslashreplace" if descriptor == 2 else "surrogateescape",
        closefd=False,
    )


def _main() -> NoReturn:
    script, descriptor = sys.argv[1:]
    for name in _LOADED:
        importlib.import_module(name)
    from cairn.__main__ import main

    gc.collect()
    gc.freeze()  # the collector of a child would touch, and so copy, the memory of all modules
    sys.path[0] = os.path.dirname(script)
    arguments, environment, cwd = _serve(socket.socket(fileno=int(descriptor)))
    assert isinstance(arguments, list) and isinstance(environment, dict) and isinstance(cwd, str)
    # The old stream objects were set up for the files that the server had as its streams.
    sys.stdin = sys.__stdin__ = _stream(0, "r")
    sys.stdout = sys.__stdout__ = _stream(1, "w")
    sys.stderr = sys.__stderr__ = _stream(2, "w")
    sys.argv = [script, *arguments]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    if module := os.environ.pop(LOADED_FIRST, None):
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        importlib.import_module(module)
    _end(main)


def _end(main: Callable[[], object]) -> NoReturn:
    """Runs `main` and ends as the interpreter would, except that it does not destroy the modules.

    That would copy the memory of all modules, and takes longer than most calls.
    """
    status = 0
    try:
        main()
    except SystemExit as ended:
        status = _status(ended.code)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = 120  # as the interpreter does
    os._exit(status)


def _status(code: object) -> int:
    """The exit status that the interpreter gives a SystemExit with this code."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    _main()
