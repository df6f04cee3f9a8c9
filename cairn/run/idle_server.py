"""Recognises a server that waits for clients, and whose run would therefore never end.

It reads /proc, which shows the sockets of a process only to the same user. A process that cannot be
read is not recognised as a server.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from msgspec import Struct, field

_PROC = Path("/proc")
_EVERY_S = 1.0
"""The least time between two looks at the processes, in seconds."""
_FROM_S = 4.0
"""The processes are not looked at before the run has lasted for this number of seconds."""
_IDLE_LOOKS = 4
"""The number of successive looks in which a server must be idle."""
_IDLE_SHARE = 0.02
"""An idle server uses at most this share of one CPU between two looks."""
_LISTENS = "0A"
"""The state of a listening socket in /proc/net/tcp."""
_ACCEPTS = 0x10000
"""The flag of a listening socket in /proc/net/unix."""


class IdleServer(Struct):
    """Finds out whether one run is that of an idle server. Its caller calls found() repeatedly."""

    launcher: int
    """The process id of the launcher, which is the root of the run's process tree."""
    began: float = field(default_factory=time.monotonic)
    _looked: float | None = None
    """The time of the last look; None before the first one."""
    _cpu_s: float = 0.0
    _idle: int = 0

    def found(self) -> str | None:
        """Returns where the server listens, such as "port 6379"; None if there is no idle server.

        It looks at the processes once a second at most. A server is idle if the command and its
        descendants use nearly no CPU time for several seconds. If one of them has two children,
        there is no server: it may be a script that starts a server and a client.
        """
        now, before = time.monotonic(), self._looked
        if now - self.began < _FROM_S or (before is not None and now - before < _EVERY_S):
            return None
        chain = _chain(self.launcher)
        cpu_s = sum(map(_cpu_s, chain))
        idle = (
            bool(chain)
            and before is not None
            and cpu_s - self._cpu_s <= _IDLE_SHARE * (now - before)
        )
        self._looked, self._cpu_s = now, cpu_s
        self._idle = self._idle + 1 if idle else 0
        if self._idle < _IDLE_LOOKS:
            return None
        return next(filter(None, map(_listens_at, chain)), None)


def _chain(launcher: int) -> list[int]:
    """The command and its descendants, if each has at most one child; otherwise empty."""
    chain: list[int] = []
    children = _children(launcher)
    while len(children) == 1:
        chain += children
        children = _children(chain[-1])
    return chain if not children else []


def _children(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in (_PROC / str(process) / "task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _cpu_s(process: int) -> float:
    """The CPU time of a process in seconds; 0 if it has ended."""
    with contextlib.suppress(OSError):
        # The name of a process need not be UTF-8: the kernel cuts it off after 15 bytes.
        fields = (_PROC / str(process) / "stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _listens_at(process: int) -> str | None:
    """Where the process accepts connections, such as "port 6379"; None if it does not."""
    inodes = set()
    with contextlib.suppress(OSError):
        for descriptor in (_PROC / str(process) / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    if not inodes:
        return None
    net = _PROC / str(process) / "net"
    for table in ("tcp", "tcp6"):
        for row in _rows(net / table):
            if len(row) > 9 and row[3] == _LISTENS and row[9] in inodes:
                return f"port {int(row[1].rpartition(':')[2], 16)}"
    for row in _rows(net / "unix"):
        if len(row) > 6 and row[6] in inodes and _has_flag(row[3], _ACCEPTS):
            return row[7] if len(row) > 7 else "a Unix socket"
    return None


def _has_flag(flags: str, flag: int) -> bool:
    """Whether this hexadecimal number has the flag.

    The path of a socket may have line breaks. Then the rest of the path looks like another row.
    """
    try:
        return bool(int(flags, 16) & flag)
    except ValueError:
        return False


def _rows(table: Path) -> list[list[str]]:
    with contextlib.suppress(OSError):
        text = table.read_text(encoding="utf-8", errors="replace")
        return [line.split() for line in text.split("\n")[1:]]
    return []
