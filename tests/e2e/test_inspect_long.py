"""Many looks at running programs: known shares, and servers that must not be harmed."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.inspected import started

pytestmark = pytest.mark.long

TRIES, COVERED, MOST = 60, 0.93, 200
"""TRIES is the number of processes whose share Cairn must tell. COVERED is the part of these
processes in which the interval must contain the true share. Cairn can tell no share if a process
has too little CPU time, so up to MOST processes are watched."""
ATTACHES = 1000
PAUSE_MOST_S = 0.005


def test_intervals_contain_the_known_shares(cairn, compiled, tmp_path: Path) -> None:
    burning = compiled("burning.c", "-O2", "-shared")
    program = compiled("inspected.c", "-O2", "-pthread")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, found, out = random.Random(seed), [], tmp_path / "share.json"
    for _ in range(MOST):
        if len(found) == TRIES:
            break
        share = chance.choice((0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9))
        rounds = chance.choice((1000, 3000, 10_000))
        work = round(2 * rounds * (1 - share) / share)
        with started(
            program, "burn", work, LD_PRELOAD=str(burning), BURN_ROUNDS=str(rounds)
        ) as one:
            result = cairn(
                "profile", "--pid", one.pid, "--for", f"{chance.choice((2, 4, 8))}s", "--json",
                out, "--force",
            )  # fmt: skip
        assert result.code == 0, result.err
        known = json.loads(out.read_text())["attached"]["share"]
        if known is None:  # on a busy machine, the program has too little CPU time
            continue
        ends = known["interval"]
        # Besides its rounds, each side executes a few instructions. They may change the true share.
        away = 30 / (2 * rounds + work)
        found.append(ends["low"] - away <= share <= ends["high"] + away)
        print(share, rounds, known["value"], ends, "" if found[-1] else "MISSED", flush=True)
    assert len(found) == TRIES and sum(found) >= COVERED * TRIES


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a server and waits until it accepts connections."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


ECHO = (
    "import socketserver, sys\n"
    "class Echo(socketserver.StreamRequestHandler):\n"
    "    def handle(self):\n"
    "        for line in self.rfile: self.wfile.write(line)\n"
    "socketserver.ThreadingTCPServer(('127.0.0.1', int(sys.argv[1])), Echo).serve_forever()\n"
)
JAVA = (
    "import java.net.*; import java.io.*;\n"
    "public class Echo { public static void main(String[] a) throws Exception {\n"
    "  var server = new ServerSocket(Integer.parseInt(a[0]));\n"
    "  while (true) { var one = server.accept(); new Thread(() -> { try {\n"
    "    one.setTcpNoDelay(true); var in = one.getInputStream(); var out = one.getOutputStream();\n"
    "    byte[] b = new byte[64]; int n; while ((n = in.read(b)) > 0) out.write(b, 0, n);\n"
    "  } catch (IOException e) { } }).start(); } } }\n"
)


@pytest.mark.parametrize("kind", ["redis", "python", "java"])
def test_a_server_answers_during_a_thousand_attaches(tmp_path: Path, kind: str) -> None:
    """The process answers each request, and no attach pauses it for more than 5 ms.

    A busy machine may pause it for longer by itself. So the test compares the 99th percentile of
    the answer times with and without attaches. It may rise by at most 5 ms.
    """
    from cairn.inspect.look import look
    from cairn.inspect.sampled import sample

    port = free_port()
    if kind == "redis":
        if shutil.which("redis-server") is None:
            pytest.skip("redis-server is not here")
        command = ["redis-server", "--port", str(port), "--save", ""]
    elif kind == "python":
        command = [sys.executable, "-c", ECHO, str(port)]
    else:
        if shutil.which("java") is None:
            pytest.skip("java is not here")
        (tmp_path / "Echo.java").write_text(JAVA)
        command = ["java", str(tmp_path / "Echo.java"), str(port)]
    with serving(command, port) as server:
        asking = [sys.executable, "-c", ASKING, str(port), str(tmp_path / "times")]
        quiet = asked(asking, tmp_path, lambda: time.sleep(0.01), ATTACHES)
        turn = iter(range(10 * ATTACHES))

        def attach() -> None:
            if next(turn) % 2:
                look(server.pid)
            else:
                sample(server.pid, 0.02)

        watched = asked(asking, tmp_path, attach, ATTACHES)
        assert server.poll() is None
        with socket.create_connection(("127.0.0.1", port), 10) as last:
            last.sendall(b"PING\r\n")
            assert last.recv(16)
    print(kind, "99th percentiles in ms:", 1e3 * quiet, 1e3 * watched)
    assert watched - quiet < PAUSE_MOST_S


ASKING = (
    "import socket, sys, time\n"
    "one = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
    "one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
    "with open(sys.argv[2], 'w', buffering=1) as file:\n"
    "    while True:\n"
    "        began = time.monotonic()\n"
    "        one.sendall(b'PING\\r\\n')\n"
    "        if not one.recv(64): break\n"
    "        print(time.monotonic() - began, file=file)\n"
    "        time.sleep(0.001)\n"
)


def asked(command: list[str], folder: Path, act, times: int) -> float:
    """Returns the 99th percentile of the answer times while `act` is called `times` times."""
    with subprocess.Popen(command) as client:
        try:
            time.sleep(0.5)
            for _ in range(times):
                act()
            assert client.poll() is None, "the server closed the connection"
        finally:
            client.kill()
    lines = (folder / "times").read_text().splitlines()[:-1]
    answers = sorted(map(float, lines))
    assert len(answers) > 100
    return answers[int(0.99 * len(answers))]
