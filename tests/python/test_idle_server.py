"""Tests of how a server that waits for clients is recognised, with an invented /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.run import idle_server
from cairn.run.idle_server import IdleServer

LAUNCHER, SERVER = 10, 11
HEAD = "Num       RefCount Protocol Flags    Type St Inode Path\n"
LISTENS = "0000000000000000: 00000002 00000000 00010000 0001 01 77"


class Invented:
    """A /proc with a launcher and its only child, and a clock that the test moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._server = folder / str(SERVER)
        monkeypatch.setattr(idle_server, "_PROC", folder)
        monkeypatch.setattr(idle_server.time, "monotonic", lambda: self.now)
        for process, children in ((LAUNCHER, str(SERVER)), (SERVER, "")):
            task = folder / str(process) / "task" / str(process)
            task.mkdir(parents=True)
            (task / "children").write_text(children)
        (self._server / "fd").mkdir()
        (self._server / "fd" / "3").symlink_to("socket:[77]")
        (self._server / "net").mkdir()
        self.sockets(f"{LISTENS} /run/server\n".encode())
        self.uses(0)

    def uses(self, ticks: int, name: bytes = b"server") -> None:
        """Sets the CPU time of the server, and its name."""
        numbers = b" ".join([b"S", *[b"1"] * 10, b"%d" % ticks, b"0", b"0"])
        (self._server / "stat").write_bytes(b"%d (%b) %b\n" % (SERVER, name, numbers))

    def sockets(self, rows: bytes) -> None:
        """Sets the Unix sockets of the server."""
        (self._server / "net" / "unix").write_bytes(HEAD.encode() + rows)


def looks(proc: Invented, count: int) -> list[str | None]:
    """Returns the answers of this number of looks, the first of them after 1,000 s."""
    server = IdleServer(LAUNCHER, began=0.0)
    found = []
    for number in range(count):
        proc.now = 1000.0 + number
        found.append(server.found())
    return found


def test_the_first_look_only_notes_the_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was once taken for an idle look, because the time since the machine's start had passed."""
    found = looks(Invented(tmp_path, monkeypatch), 6)
    assert found == [None] * 4 + ["/run/server"] * 2


def test_a_busy_program_is_no_idle_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = Invented(tmp_path, monkeypatch)
    server = IdleServer(LAUNCHER, began=0.0)
    for number in range(9):
        proc.now = 1000.0 + number
        proc.uses(10 * number)
        assert server.found() is None


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        (f"{LISTENS} /run/".encode() + b"\xd0\xbf\xd1\n", "/run/п\ufffd"),
        (f"1: 2 0 0 1 1 5 /run/a\nb c d e f g 77 h\n{LISTENS} /run/b\n".encode(), "/run/b"),
        (f"1: 2 0 0 1 1 5 /run/a\nb c d e f g\n{LISTENS}\n".encode(), "a Unix socket"),
    ],
)  # fmt: skip
def test_names_of_any_bytes_are_read(
    rows: bytes, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that was cut off inside a character, and a path with a line break, were tracebacks."""
    proc = Invented(tmp_path, monkeypatch)
    proc.uses(0, "программа".encode()[:15])
    proc.sockets(rows)
    assert looks(proc, 5)[-1] == where
