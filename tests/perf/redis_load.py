"""Runs a redis server under a changing load for about a minute.

    python3 tests/perf/redis_load.py REDIS-SERVER [ROUNDS]

It is a program for memory_over_time.py and for 'cairn compare'. REDIS-SERVER must be built with
MALLOC=libc, because Debian's server contains an allocator. The server makes all values itself, so
that the client takes almost no time.

In each round, the server fills a cache with 120 to 300 MB of values of one size, while lists and
hashes grow. It deletes the lists and hashes one by one, and the cache at once, as when a site
publishes a new version. In every fifth round, it does nothing for half a second. The work is always
the same, so that the allocator with the least CPU time is the fastest.
"""

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 100
IDLE_S = 0.5
GROWING = """
for i = 1, 30000 do
  redis.call('RPUSH', 'list' .. i % 500, string.rep('l', (i + ARGV[1]) % 120))
  redis.call('HSET', 'hash' .. i % 300, 'field' .. i, i * ARGV[1])
end
"""
DELETED = """
for i = 0, 500 do redis.call('DEL', 'list' .. i, 'hash' .. i) end
"""
VALUES = ((400_000, 300), (60_000, 5_000), (4_000, 60_000), (150_000, 1_500))
"""The number of values and the bytes of each. The rounds use these pairs in turn."""


def asked(server: socket.socket, *words: str) -> bytes:
    """Sends one command, and returns its answer, which is one line."""
    server.sendall(
        b"*%d\r\n" % len(words)
        + b"".join(b"$%d\r\n%s\r\n" % (len(one), one.encode()) for one in words)
    )
    answer = b""
    while not answer.endswith(b"\r\n"):
        if not (more := server.recv(4096)):
            break
        answer += more
    if answer.startswith(b"-"):
        raise SystemExit(answer.decode().strip())
    return answer


def connected(path: Path) -> socket.socket:
    """Returns a connection as soon as the server answers."""
    for _ in range(500):
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(path))
        except OSError:
            server.close()
            time.sleep(0.02)
        else:
            return server
    raise SystemExit("the server did not begin within 10 seconds")


def main() -> None:
    """Runs the rounds and then ends the server by its command SHUTDOWN."""
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        command = [
            sys.argv[1],
            "--port",
            "0",
            "--unixsocket",
            str(path),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        command += ["--enable-debug-command", "yes"]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        with connected(path) as server:
            for turn in range(rounds):
                count, size = VALUES[turn % len(VALUES)]
                asked(server, "DEBUG", "POPULATE", str(count), "value", str(size))
                asked(server, "EVAL", GROWING, "0", str(turn))
                asked(server, "EVAL", DELETED, "0")
                asked(server, "FLUSHALL", "SYNC")
                if turn % 5 == 4:
                    time.sleep(IDLE_S)
            print(asked(server, "DBSIZE").decode().strip())
            server.sendall(b"SHUTDOWN NOSAVE\r\n")
        if process.wait(60) != 0:
            raise SystemExit("the server failed")


if __name__ == "__main__":
    main()
