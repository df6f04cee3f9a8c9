"""Finds out what can be measured on this machine.

It runs the launcher on `true`, and tests a kernel feature in a child process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from cairn import native
from cairn.errors import CairnError

TIMEOUT_S = 10.0
"""The time limit of the launcher, which needs milliseconds. A launcher that exceeds the limit
counts as broken."""


_PR_SET_SYSCALL_USER_DISPATCH, _DISPATCH_OFF, _DISPATCH_ON = 59, 0, 1


class Abilities(Struct, frozen=True):
    """The things that this user can measure on this machine. None means that a fact is unknown."""

    memory_method: str | None = None
    """"cgroup v2", "cgroup v1" or "sampled"."""
    memory_reason: str | None = None
    """Why peak memory is sampled, or not measured."""
    counters: Mapping[str, bool] = field(default_factory=dict)
    """For each performance counter, by its name: whether the counter works."""
    clock_problem: str | None = None
    """Why there are no clock samples, as the end of a sentence; None if they work."""
    launcher_problem: str | None = None
    """Why the launcher cannot run `true`, as the end of a sentence; None if it can."""
    paranoid: int | None = None
    """kernel.perf_event_paranoid: 3 and more forbid all counters, 2 allows user mode only, 1 and
    less also allow counting in the kernel."""
    dispatch: bool | None = None
    """Whether syscall user dispatch works, which lets the probe see all system calls of a
    thread."""
    rseq_registered: bool | None = None
    """Whether glibc registers a restartable sequence for every thread. If it does, an allocator
    cannot register its own."""
    reserved_huge_pages: int | None = None
    allocator_problem: str | None = None
    """Why the contender cairn cannot run; None if it can. The part after the last semicolon says
    what to do."""


class _Memory(msgspec.Struct):
    method: str
    reason: str | None = None


class _LauncherLine(msgspec.Struct):
    memory: _Memory
    counters: dict[str, float | bool | None] | None = None


def abilities() -> Abilities:
    """Tries each ability once, which takes about 50 ms, and returns the results."""
    line, problem, unseen = _launch_true()
    counters = line.counters or {} if line else {}
    return Abilities(
        memory_method=line.memory.method if line else None,
        memory_reason=line.memory.reason if line else None,
        counters={
            name: number is not None
            for name, number in counters.items()
            if not isinstance(number, bool)
        },
        clock_problem=unseen,
        launcher_problem=problem,
        paranoid=_number("/proc/sys/kernel/perf_event_paranoid"),
        dispatch=_can_dispatch(),
        rseq_registered=_rseq_registered(),
        reserved_huge_pages=_number("/proc/sys/vm/nr_hugepages"),
        allocator_problem=_allocator_problem(),
    )


def _allocator_problem() -> str | None:
    try:
        native.allocator()
    except CairnError as error:
        return str(error)
    return None


def _launch_true() -> tuple[_LauncherLine | None, str | None, str | None]:
    """Runs `true` under the launcher.

    Returns (the launcher's report, why there is no report, why there are no clock samples).
    """
    # They are slow to import, and most commands do not call this function.
    from cairn.profile import code_owners, cpu_samples

    options = ["--report-fd", "1", "--stdout", "/dev/null", "--counters"]
    try:
        with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
            samples = Path(folder) / "samples"
            done = subprocess.run(
                [str(native.launcher()), *options, "--cpu-samples", str(samples), "--", "true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            _, unseen = cpu_samples.read(samples, code_owners.AllocatorCode(frozenset({"/"})))
    except subprocess.TimeoutExpired:
        return None, f"it did not answer within {TIMEOUT_S:.0f} s", None
    except (OSError, CairnError) as error:
        return None, str(error), None
    if done.returncode != 0:
        return (
            None,
            done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] or "it failed",
            None,
        )
    try:
        return msgspec.json.decode(done.stdout, type=_LauncherLine), None, unseen or None
    except msgspec.DecodeError as error:
        return None, str(error), None


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _can_dispatch() -> bool | None:
    """Whether syscall user dispatch works; None if a child process cannot be made for the test.

    The test runs in a child, because a sandbox may kill a process for an unknown prctl.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        selector = ctypes.c_char(b"\0")
        child = os.fork()
    except OSError:
        return None
    if child == 0:
        refused = 1
        try:
            refused = libc.prctl(
                _PR_SET_SYSCALL_USER_DISPATCH, _DISPATCH_ON, 0, 0, ctypes.byref(selector)
            )
            libc.prctl(_PR_SET_SYSCALL_USER_DISPATCH, _DISPATCH_OFF, 0, 0, 0)
        finally:
            os._exit(1 if refused else 0)
    _, status = os.waitpid(child, 0)
    return status == 0


def _rseq_registered() -> bool | None:
    """Whether glibc registered a restartable sequence for this thread; None before glibc 2.35.

    glibc's variable `__rseq_size` holds the size of the registered area. It is 0 if rseq is
    switched off or the kernel refused it.
    """
    try:
        return ctypes.c_uint.in_dll(ctypes.CDLL(None), "__rseq_size").value > 0
    except (OSError, ValueError):
        return None
