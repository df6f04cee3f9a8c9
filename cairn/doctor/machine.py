"""Facts of the machine that belong beside every result."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.model import Host


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _field(text: str | None, name: str) -> str | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _chosen(text: str | None) -> str | None:
    """The word in brackets of a kernel switch: "always [madvise] never"."""
    words = [word for word in (text or "").split() if word.startswith("[")]
    return words[0].strip("[]") if words else None


def available_memory() -> int | None:
    """Bytes that a program could use now without swapping, by the kernel's own estimate."""
    value = _field(_read("/proc/meminfo"), "MemAvailable")
    return int(value.split()[0]) * 1024 if value else None


def host() -> Host:
    """What this machine is, and how busy it is now."""
    cpuinfo = _read("/proc/cpuinfo")
    meminfo = _field(_read("/proc/meminfo"), "MemTotal")
    load = _read("/proc/loadavg")
    governor = _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return Host(
        system=release.get("PRETTY_NAME", platform.system()),
        kernel=platform.release(),
        architecture=platform.machine(),
        libc=" ".join(platform.libc_ver()).strip() or "unknown libc",
        cpus=len(os.sched_getaffinity(0)),
        cpu_model=_field(cpuinfo, "model name"),
        memory_bytes=int(meminfo.split()[0]) * 1024 if meminfo else None,
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        virtual="hypervisor" in (_field(cpuinfo, "flags") or "").split(),
        transparent_huge_pages=_chosen(_read("/sys/kernel/mm/transparent_hugepage/enabled")),
        governor=governor.strip() if governor else None,
        load=float(load.split()[0]) if load else None,
    )


STEAL_S = 0.5
"""Shares of a clock that ticks 100 times a second: half a second tells one per cent from two on two CPUs."""


SPINS, SPIN_NS = 20, 10_000_000
"""Long against a clock's resolution and a timer tick, short enough that all of them end in a fifth of a second."""


LAUNCHER = "cairn-launch"


@dataclass(frozen=True, slots=True)
class Conditions:
    """How quiet this machine is, and what about it makes runs differ. None: could not be read, or not looked at."""

    cpus: int
    """CPUs that this process may use."""
    load: float | None = None
    steal: float | None = None
    """Share of CPU time that the host gave to others while this machine wanted it."""
    spread: float | None = None
    """Robust relative spread of a fixed piece of work."""
    others: int | None = None
    """Runs of other cairns going on now."""
    quota: float | None = None
    """CPUs' worth of time that the cgroup allows; None without a limit."""
    governor: str | None = None
    turbo: bool | None = None
    threads_share_cores: bool | None = None
    virtual: bool = False
    huge_pages: str | None = None
    """"always", "madvise" or "never"."""
    address_randomization: int | None = None
    swap_used_bytes: int | None = None
    page_bytes: int = 4096


def conditions(here: Host, *, thorough: bool) -> Conditions:
    """The state of the machine. `thorough` also works for half a second to see how even that work is."""
    quick = Conditions(
        cpus=here.cpus, load=here.load, others=other_runs(), quota=cpu_quota(), governor=here.governor,
        virtual=here.virtual, huge_pages=here.transparent_huge_pages, page_bytes=here.page_bytes,
    )  # fmt: skip
    if not thorough:
        return quick
    steal, spread = _steal_and_spread()
    randomize = _number("/proc/sys/kernel/randomize_va_space")
    smt = _read("/sys/devices/system/cpu/smt/active")
    return replace(
        quick,
        steal=steal,
        spread=spread,
        turbo=_turbo(),
        threads_share_cores=smt.strip() == "1" if smt else None,
        address_randomization=randomize,
        swap_used_bytes=_swap_used(),
    )


def _number(path: str) -> int | None:
    try:
        return int(_read(path) or "")
    except ValueError:
        return None


def _turbo() -> bool | None:
    if (off := _number("/sys/devices/system/cpu/intel_pstate/no_turbo")) is not None:
        return off == 0
    boost = _number("/sys/devices/system/cpu/cpufreq/boost")
    return None if boost is None else boost == 1


def _swap_used() -> int | None:
    meminfo = _read("/proc/meminfo")
    total, free = _field(meminfo, "SwapTotal"), _field(meminfo, "SwapFree")
    return (int(total.split()[0]) - int(free.split()[0])) * 1024 if total and free else None


def other_runs() -> int | None:
    """How many launchers are at work on this machine; a run of our own has not begun when this is asked."""
    try:
        processes = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return None
    return sum(_read(f"/proc/{name}/comm") == LAUNCHER + "\n" for name in processes)


def cpu_quota() -> float | None:
    """The least that this process's cgroup or one above it allows, in CPUs; None without a limit."""
    limits = []
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            for folder in _upwards("/sys/fs/cgroup", path):
                limits += _share(*[*(_read(f"{folder}/cpu.max") or "").split(), "", ""][:2])
        elif "cpu" in controllers.split(","):
            for folder in _upwards("/sys/fs/cgroup/cpu", path):
                limits += _share(
                    _read(f"{folder}/cpu.cfs_quota_us"), _read(f"{folder}/cpu.cfs_period_us")
                )
    return min(limits, default=None)


def _upwards(root: str, path: str) -> Iterator[str]:
    """The cgroup itself, then all above it."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        yield "/".join([root, *parts[:count]])


def _share(quota: str | None, period: str | None) -> list[float]:
    """A list of one limit, or of none: "max" in v2, -1 in v1."""
    try:
        allowed, each = int(quota or ""), int(period or "")
    except ValueError:
        return []
    return [allowed / each] if allowed > 0 and each > 0 else []


def _steal_and_spread() -> tuple[float | None, float | None]:
    """Both from the same half second: the host steals only from a CPU that wants to work."""
    before, began = _ticks(), time.monotonic()
    spread = spin_spread()
    time.sleep(max(0.0, STEAL_S - (time.monotonic() - began)))
    after = _ticks()
    if before is None or after is None or sum(after) <= sum(before):
        return None, spread
    return (after[7] - before[7]) / (sum(after) - sum(before)), spread


def _ticks() -> list[int] | None:
    """user, nice, system, idle, iowait, irq, softirq, steal of all CPUs together."""
    words = (_read("/proc/stat") or "").split("\n", 1)[0].split()
    return [int(word) for word in words[1:9]] if len(words) >= 9 else None


def spin_spread() -> float:
    """How much the same work differs in time, robustly: 1.4826 × the median deviation, relative to the median.

    It estimates one standard deviation where times are normal, and a single interruption does not move it.
    """
    rounds = _rounds_for(SPIN_NS)
    times = [_spin(rounds) for _ in range(SPINS)]
    middle = statistics.median(times)
    return 1.4826 * statistics.median(abs(time - middle) for time in times) / middle


def _rounds_for(wanted_ns: int) -> int:
    rounds = 1000
    while (taken := _spin(rounds)) < wanted_ns // 4:
        rounds *= 2
    return rounds * wanted_ns // taken


def _spin(rounds: int) -> int:
    began = time.perf_counter_ns()
    for _ in range(rounds):
        pass
    return time.perf_counter_ns() - began
