"""Tests of servers with clients: they live long, and their children and threads come and go."""

from __future__ import annotations

import getpass
import hashlib
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from support.launching import wait_until

from .conftest import INPUTS, MIB, NOBODY, UNDER_PROBE, Stage, connected, image_of, listens, path_of

pytestmark = pytest.mark.long


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


# --- nginx ---


class Http(HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = connected(self.path)


def fetched(path: Path, names: list[str]) -> str:
    """Returns the server's answers over one connection, compressed and plain by turns."""
    sum_ = hashlib.sha256()
    with closing(Http(path)) as connection:
        for place, name in enumerate(names):
            connection.request(
                "GET", name, headers={"Accept-Encoding": "gzip"} if place % 2 else {}
            )
            answer = connection.getresponse()
            body = answer.read()
            sum_.update(f"{answer.status} {name} {len(body)}".encode() + body)
    return sum_.hexdigest()


def test_nginx(both: Callable[..., str]) -> None:
    """The server compresses, forwards, lists, and replaces its workers while it serves."""
    nginx = path_of("nginx")

    def session(stage: Stage) -> str:
        files = stage.folder / "files"
        files.mkdir()
        for i in range(60):
            (files / f"{i}.txt").write_text(f"line {i}\n" * (i * i * 5 + 1))
        (files / "all.html").write_text(
            '<!--#include virtual="/3.txt" --><!--#echo var="request_uri" -->\n' * 20
        )
        for file in files.iterdir():  # nginx's directory listings contain the times of the files
            os.utime(file, (1e9, 1e9))
        names = [f"{way}{i}.txt" for i in range(0, 60, 3) for way in ("/", "/through/")]
        names += ["/list/", "/through/all.html", "/none", "/through/none"] * 3
        front = stage.folder / "front"

        def round_() -> list[str]:
            with ThreadPoolExecutor(8) as pool:
                return list(pool.map(lambda _: fetched(front, names), range(16)))

        command = [nginx, "-p", stage.folder, "-c", INPUTS / "nginx.conf", "-e", "log"]
        with stage.serving(*command, ready=lambda: listens(front)) as server:
            answers = round_()
            first = children(server.process.pid)
            assert len(first) == 2 and all(map(server.holds_the_library, first))
            early = [resident_bytes(pid) for pid in first]
            for _ in range(4):
                answers += round_()
            # The probe's notes about blocks need many pages if the blocks are far apart, as under
            # hardened_malloc.
            its_own = 4 * MIB if UNDER_PROBE else 0
            assert max(map(resident_bytes, first)) <= 1.3 * max(early) + its_own
            server.process.send_signal(signal.SIGHUP)
            assert wait_until(lambda: not {*first} & {*children(server.process.pid)}), (
                "the server did not replace its workers"
            )
            answers += round_()
            server.process.send_signal(signal.SIGQUIT)
        assert not (stage.folder / "log").read_text()
        assert len(set(answers)) == 1
        return answers[0]

    both(session, image_of("nginx"))


# --- memcached ---


def ask(stream: socket.socket, text: bytes, until: bytes = b"\r\n") -> bytes:
    stream.sendall(text)
    answer = b""
    while not answer.endswith(until):
        part = stream.recv(1 << 16)
        assert part, answer
        answer += part
    return answer


def stored(path: Path, client: int) -> str:
    """Does the work of one client: it stores values of many sizes, reads them, deletes some."""
    sum_ = hashlib.sha256()
    with closing(connected(path)) as stream:
        for i in range(2000):
            body = bytes([65 + i % 26]) * (i * 37 % 9000 + 1)
            assert (
                ask(stream, b"set c%d-%d 0 0 %d\r\n%s\r\n" % (client, i, len(body), body))
                == b"STORED\r\n"
            )
            if i % 3 == 0:
                sum_.update(ask(stream, b"get c%d-%d\r\n" % (client, i // 2), b"END\r\n"))
            if i % 7 == 0:
                assert ask(stream, b"delete c%d-%d\r\n" % (client, i)) == b"DELETED\r\n"
        for i in range(200):
            sum_.update(
                ask(stream, b"incr n%d 1\r\n" % client if i else b"set n%d 0 0 1\r\n0\r\n" % client)
            )
    return sum_.hexdigest()


def test_memcached(both: Callable[..., str]) -> None:
    memcached = path_of("memcached")

    def session(stage: Stage) -> str:
        path = stage.folder / "socket"
        options = f"-s {path} -t 4 -m 256 -u {getpass.getuser()}"
        with stage.serving(memcached, *options.split(), ready=lambda: listens(path)) as server:
            answers = []
            for _ in range(3):
                with ThreadPoolExecutor(6) as pool:
                    answers += list(pool.map(lambda client: stored(path, client), range(6)))
                with closing(connected(path)) as stream:
                    assert ask(stream, b"flush_all\r\n") == b"OK\r\n"
            server.process.send_signal(signal.SIGTERM)
        return "".join(answers)

    both(session, image_of("memcached"))


# --- postgres ---


def test_postgres(both: Callable[..., str]) -> None:
    """The server has a process for each client, and several processes for one query.

    The test starts the server as another user, because it refuses to run as root.
    """
    programs = {name: path_of(name) for name in ("postgres", "initdb", "psql", "pgbench")}

    def session(stage: Stage) -> str:
        home = stage.folder
        here = {"PGHOST": str(home), "PGUSER": "owner", "PGDATABASE": "postgres"}
        stage.run(
            programs["initdb"],
            *["-D", "data", "-U", "owner", "-A", "trust", "-N", "--no-locale", "-E", "UTF8"],
        )

        def asked(questions: str) -> str:
            return stage.run(programs["psql"], "-X", "-q", "-A", "-t", stdin=questions, **here)

        def pressed(words: str, talks: str) -> str:
            return stage.run(programs["pgbench"], *words.split(), talks=talks, **here)

        def ready() -> bool:
            told = home / "data" / "postmaster.pid"
            return told.exists() and "ready" in told.read_text()

        options = f"-D data -k {home} -c listen_addresses= -c fsync=off -c log_min_messages=fatal"
        with stage.serving(programs["postgres"], *options.split(), ready=ready) as server:
            answers = [asked((INPUTS / "postgres.sql").read_text())]
            pressed("-i -q -I dtGp", talks=r"^(dropping|NOTICE|creating|generating|done)")
            assert "900/900" in pressed(
                "-n -c 6 -j 2 -t 150 --random-seed=7", talks="^pgbench: setting random seed"
            )
            answers.append(
                asked(
                    "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = sum(delta) FROM "
                    "pgbench_history"
                )
            )
            mine = server.process.pid
            assert wait_until(lambda: all(map(server.holds_the_library, children(mine)))), (
                "a process of the server lacks the library"
            )
            # At SIGTERM, the server ends after its clients have disconnected.
            server.process.send_signal(signal.SIGTERM)
        return "".join(answers)

    both(session, *map(image_of, programs), user=NOBODY)
