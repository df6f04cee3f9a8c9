"""Reads the resources that the descendants of a process have used so far.

A difference between two readings covers the time between them. A process that ends between them
is counted if its parent waited for it, since the kernel then adds its numbers to the parent's.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from pathlib import Path

from msgspec import Struct

_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


class TreeUsage(Struct, frozen=True):
    """Resources of a tree of processes, in nanoseconds and counts."""

    cpu_ns: int
    """The CPU time. It is exact for living processes. For ended processes, it is rounded to clock
    ticks."""
    user_ns: int
    system_ns: int
    """User and system time are rounded to clock ticks, so their sum is not exactly `cpu_ns`."""
    minor_faults: int
    major_faults: int
    queued_ns: int | None = None
    """The time in which threads of living processes were ready to run and had no CPU; None if the
    kernel does not count it."""

    def since(self, before: TreeUsage) -> TreeUsage:
        """Returns the resources used since `before`.

        User and system time share the exact CPU time in the proportion of their clock ticks.
        """
        cpu = max(0, self.cpu_ns - before.cpu_ns)
        user = max(0, self.user_ns - before.user_ns)
        system = max(0, self.system_ns - before.system_ns)
        system = round(cpu * system / (user + system)) if user + system else 0
        return TreeUsage(
            cpu_ns=cpu,
            user_ns=cpu - system,
            system_ns=system,
            minor_faults=max(0, self.minor_faults - before.minor_faults),
            major_faults=max(0, self.major_faults - before.major_faults),
            queued_ns=None
            if self.queued_ns is None
            else max(0, self.queued_ns - (before.queued_ns or 0)),
        )


class _Stat(Struct, frozen=True):
    """Numbers of /proc/PID/stat: of the process, and of the children that it waited for."""

    parent: int
    user: int
    system: int
    minor: int
    major: int
    child_user: int
    child_system: int
    child_minor: int
    child_major: int


def of_descendants(root: int) -> TreeUsage:
    """Returns the resources of all descendants of the process `root`, without its own."""
    processes = _processes()
    children = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    cpu = user = system = minor = major = 0
    queued: int | None = None
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        if pid not in processes:
            continue
        process = processes[pid]
        user += process.child_user
        system += process.child_system
        cpu += (process.child_user + process.child_system) * _TICK_NS
        minor += process.child_minor
        major += process.child_major
        if pid != root:
            user += process.user
            system += process.system
            cpu += _cpu_ns(pid, (process.user + process.system) * _TICK_NS)
            minor += process.minor
            major += process.major
            own = _queued_ns(pid)
            queued = queued if own is None else (queued or 0) + own
    return TreeUsage(cpu, user * _TICK_NS, system * _TICK_NS, minor, major, queued)


def _queued_ns(pid: int) -> int | None:
    """The time in which the threads of a process were ready to run and had no CPU."""
    queued = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            queued = (queued or 0) + int(Path(thread.path, "schedstat").read_bytes().split()[1])
    return queued


def _cpu_ns(pid: int, ticks_ns: int) -> int:
    """The CPU time of a process by its CPU clock, which has nanoseconds; else by its ticks."""
    try:
        # clock_getcpuclockid(3) computes the id of a process's CPU clock in this way.
        exact = time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return ticks_ns
    # If a process has ended and its parent has not waited for it yet, its CPU clock may be 0.
    return exact if exact >= ticks_ns - 2 * _TICK_NS else ticks_ns


def _processes() -> dict[int, _Stat]:
    """All processes that can be read, by process id."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[int(entry.name)] = _process(Path(entry.path, "stat").read_bytes())
    return found


def _process(stat: bytes) -> _Stat:
    """Parses /proc/PID/stat. The name of the program may contain spaces and brackets."""
    fields = stat[stat.rindex(b")") + 2 :].split()
    minor, child_minor, major, child_major, user, system, child_user, child_system = map(
        int, fields[7:15]
    )
    return _Stat(
        parent=int(fields[1]), user=user, system=system, minor=minor, major=major,
        child_user=child_user, child_system=child_system, child_minor=child_minor,
        child_major=child_major,
    )  # fmt: skip
