"""Reads the kernel's numbers of a running process at one moment."""

from __future__ import annotations

import os
import time

from msgspec import Struct

from cairn.inspect.process import Target, stat_of


class ProcessMoment(Struct, frozen=True):
    """The kernel's numbers of a process. CPU time and page faults count from its start."""

    at_ns: int
    """The time on the clock of `time.monotonic_ns`."""
    cpu_ns: float
    """CPU time in ns. The kernel gives it in clock ticks, which are usually 10 ms."""
    faults: int
    """Page faults of both kinds."""
    threads: int
    resident_bytes: int


def now(target: Target) -> ProcessMoment:
    """Reads the numbers. Raises ProcessEnded if the process has ended."""
    target.check()
    fields = stat_of(target)
    ticks = os.sysconf("SC_CLK_TCK")
    return ProcessMoment(
        time.monotonic_ns(),
        (int(fields[11]) + int(fields[12])) * 1e9 / ticks,
        int(fields[7]) + int(fields[9]),
        int(fields[17]),
        int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
    )
