"""Tests of the port of a server, and of the judgement on its end."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cairn.run import server
from cairn.run.server import Session
from cairn.run.soak import Asked, SoakSession


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session("load {port}", None, "/", None, tmp_path)


def test_a_port_is_filled_in_except_after_a_dollar(session: Session) -> None:
    port = session.port
    assert session.filled("a {port} -p{port} ${port} {ports}") == (
        f"a {port} -p{port} ${{port}} {{ports}}"
    )
    assert session.filled_all(["s", "{port}"]) == ["s", str(port)]
    assert server.uses_port("a", None, "x{port}") and not server.uses_port("${port}", None)


def test_ports_are_free_and_not_of_the_range_of_clients() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = {server.free_port() for _ in range(50)}
    assert len(ports) > 40
    assert not any(low <= port <= high for port in ports)


def test_a_port_that_is_taken_is_not_free() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            taken = socket.create_server((host, 0), family=family)
        except OSError:
            continue  # no IPv6
        with taken:
            assert not server._is_free(taken.getsockname()[1]), host


def test_a_listener_accepts_and_a_port_without_one_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert server._accepts("127.0.0.1", port)
    assert not server._accepts("127.0.0.1", port)


@pytest.mark.parametrize(
    ("exit_code", "signal_number", "ok_exit", "words"),
    [
        (None, 15, (0,), None),
        (0, None, (0,), None),
        (143, None, (0,), None),
        (7, None, (0, 7), None),
        (7, None, (0,), "ended with exit code 7 when it was asked to end: last words"),
        (None, 11, (0,), "was killed by signal 11 (SIGSEGV) when it was asked to end: last words"),
        (None, 9, (0,), "was killed by signal 9 (SIGKILL) when it was asked to end: last words"),
    ],
)
def test_the_end_of_a_server_that_was_asked_to_end(
    session: Session, exit_code: int | None, signal_number: int | None, ok_exit: tuple[int, ...],
    words: str | None,
) -> None:  # fmt: skip
    session.asked_to_end = True
    assert session.failure(exit_code, signal_number, 0, ok_exit, "last words") == words


def test_the_end_of_a_server_that_died_says_when(session: Session) -> None:
    session.died = True
    assert session.failure(1, None, 0, (0,), "no memory") == (
        "ended with exit code 1 before it was ready: no memory"
    )
    assert session.failure(0, None, 0, (0,), "") == "ended with exit code 0 before it was ready"
    said = session.failure(0, None, 1, (0,), "")
    assert said is not None and said.startswith("put itself into the background")
    session._load_began = 1.0
    assert session.failure(None, 15, 0, (0,), "") == (
        "was killed by signal 15 (SIGTERM) while the load ran"
    )


def test_a_problem_of_the_load_comes_before_the_end_of_the_server(session: Session) -> None:
    session.problem = "was ready, but the load failed"
    assert session.failure(None, 15, 0, (0,), "") == "was ready, but the load failed"
    session.problem, session.killed = None, True
    said = session.failure(None, 9, 0, (0,), "")
    assert said == "did not end within 10 s after SIGTERM, and was killed"


def test_a_soak_keeps_its_result_if_the_program_had_to_be_killed(tmp_path: Path) -> None:
    """The program ignored SIGTERM, but only after its time was over."""
    soaked = SoakSession(5.0, "", None, "/", None, tmp_path, tmp_path)
    soaked.killed = True
    said = soaked.failure(None, 9, 0, (0,), "")
    assert said == "did not end within 10 s after SIGTERM, and was killed"
    soaked.asked = Asked(1)
    assert soaked.failure(None, 9, 0, (0,), "") is None
    soaked.problem = "was ready, but the load failed"
    assert soaked.failure(None, 9, 0, (0,), "") == "was ready, but the load failed"
