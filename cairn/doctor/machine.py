"""Reads the facts of the machine that every result records, and measures how noisy it is."""

from __future__ import annotations

import itertools
import math
import os
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

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
    """The word in brackets of a kernel switch, such as "madvise" of "always [madvise] never"."""
    words = [word for word in (text or "").split() if word.startswith("[")]
    return words[0].strip("[]") if words else None


def available_memory() -> int | None:
    """Bytes that programs can use without swapping; None if unknown.

    It is the kernel's estimate for the machine, or the room in a cgroup of this process if that is
    smaller.
    """
    value = _field(_read("/proc/meminfo"), "MemAvailable")
    return min([int(value.split()[0]) * 1024, *_rooms()]) if value else None


def _rooms() -> Iterator[int]:
    """Yields the bytes up to the limit of this process's cgroup, and of each cgroup above it.

    File pages that were not used lately count as room, because the kernel drops them first.
    """
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            root, names = "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = "/sys/fs/cgroup/memory"
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        for folder in _upwards(root, path):
            limit, used = (_number(f"{folder}/{name}") for name in names[:2])
            if limit is not None and used is not None:
                words = (_read(f"{folder}/memory.stat") or "").split()
                unused = int(words[words.index(names[2]) + 1]) if names[2] in words else 0
                yield max(0, limit - used + unused)


def host() -> Host:
    """The machine's hardware and system, and its current load."""
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
        virtual=_is_virtual(_field(cpuinfo, "flags")),
        transparent_huge_pages=_chosen(_read("/sys/kernel/mm/transparent_hugepage/enabled")),
        governor=governor.strip() if governor else None,
        load=float(load.split()[0]) if load else None,
    )


_VIRTUAL = (
    "QEMU", "KVM", "VMware", "VirtualBox", "innotek", "Xen", "HVM domU", "Bochs", "BHYVE",
    "Parallels", "OpenStack", "Virtual Machine", "Virtualization", "Amazon EC2",
    "Google Compute Engine",
)  # fmt: skip
"""Words in the names that hypervisors and clouds give to the vendor and the product of a virtual
machine. systemd-detect-virt has most of them, too."""


def _is_virtual(flags: str | None) -> bool | None:
    """Whether this is a virtual machine; None if that is not known.

    flags: the features of an x86 processor, among which a hypervisor adds its own. Other processors
    list none. There, the firmware of many hypervisors tells their name. If it tells none, the
    machine may still be virtual.
    """
    if flags is not None:
        return "hypervisor" in flags.split()
    if os.path.exists("/proc/device-tree/hypervisor") or _read("/sys/hypervisor/type"):
        return True
    if "linux,dummy-virt" in (_read("/proc/device-tree/compatible") or ""):
        return True
    vendor, product = (
        (_read(f"/sys/class/dmi/id/{name}") or "").strip()
        for name in ("sys_vendor", "product_name")
    )
    if product.endswith(".metal"):  # a whole machine of Amazon
        return False
    return any(word in vendor or word in product for word in _VIRTUAL) or None


STEAL_S = 0.5
"""The seconds for which stolen time is measured. The kernel counts stolen time in ticks, 100 a
second for each CPU. So on two CPUs, half a second can distinguish 1 % from 2 %."""


SPINS, SPIN_NS = 20, 10_000_000
"""The number and the length of the pieces of work whose times give the spread. A piece is long
compared with the clock's resolution and with a timer tick. All pieces together take a fifth of a
second."""


LAUNCHER = "cairn-launch"
_MEASURES = ("--memory-series", "--cpu-samples")
"""The options of the launcher in a comparison and in a profile. 'cairn run' gives it none of
them."""


class Conditions(Struct, frozen=True):
    """Properties of the machine that make runs differ.

    None means that the property is not known, or was not checked.
    """

    cpus: int
    """CPUs that this process may use."""
    load: float | None = None
    steal: float | None = None
    """Share of CPU time in which the host ran other guests though this machine had work."""
    spread: float | None = None
    """Relative spread of the time of a fixed piece of work: `spin_spread()`."""
    others: int | None = None
    """The number of other cairns that are measuring at this moment."""
    quota: float | None = None
    """CPU time per second that the cgroup allows, in CPUs; None without a limit."""
    governor: str | None = None
    turbo: bool | None = None
    threads_share_cores: bool | None = None
    """Whether simultaneous multithreading is on."""
    virtual: bool | None = False
    huge_pages: str | None = None
    """"always", "madvise" or "never"."""
    address_randomization: int | None = None
    swap_used_bytes: int | None = None
    page_bytes: int = 4096


def conditions(here: Host, *, thorough: bool) -> Conditions:
    """The state of the machine.

    Without `thorough`, some fields are None, such as `steal` and `spread`. Measuring these two
    takes half a second.
    """
    quick = Conditions(
        cpus=here.cpus,
        load=here.load,
        others=other_runs(),
        quota=cpu_quota(),
        governor=here.governor,
        virtual=here.virtual,
        huge_pages=here.transparent_huge_pages,
        page_bytes=here.page_bytes,
    )
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
    """The number of running launchers that measure a program; None if /proc cannot be read.

    A program that 'cairn run' started is not measured, and may run for weeks. A launcher that this
    process started is counted as well. So call this function before a run starts.
    """
    try:
        processes = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return None
    return sum(map(_measures, processes))


def _measures(process: str) -> bool:
    """Whether the process with this number is a launcher that measures. A zombie has no words."""
    if _read(f"/proc/{process}/comm") != LAUNCHER + "\n":
        return False
    options = itertools.takewhile(
        lambda word: word != "--", (_read(f"/proc/{process}/cmdline") or "").split("\0")
    )
    return not set(options).isdisjoint(_MEASURES)


def cpu_quota() -> float | None:
    """The CPU limit of this process, in CPUs; None without a limit.

    It is the smallest limit of the process's cgroup and of all cgroups above that cgroup.
    """
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


def processors(cpus: str | None = None) -> float:
    """The number of processors that a program may use. A CPU limit makes it a fraction.

    cpus: the CPUs on which the launcher runs the program, as a list such as 0,2-3. None means all
        that this process may use.
    """
    from cairn.profile.processors import number_in

    allowed = len(os.sched_getaffinity(0)) if cpus is None else number_in(cpus)
    return min(float(allowed), cpu_quota() or math.inf)


def _upwards(root: str, path: str) -> Iterator[str]:
    """The folder of the cgroup, then those of all cgroups above it."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        yield "/".join([root, *parts[:count]])


def _share(quota: str | None, period: str | None) -> list[float]:
    """The limit as a list of one number; empty without a limit ("max" in v2, -1 in v1)."""
    try:
        allowed, each = int(quota or ""), int(period or "")
    except ValueError:
        return []
    return [allowed / each] if allowed > 0 and each > 0 else []


def _steal_and_spread() -> tuple[float | None, float | None]:
    """Measures the stolen time and the spread.

    Both are measured in the same half second, because the host steals time only from a busy CPU.
    """
    before, began = _ticks(), time.monotonic()
    spread = spin_spread()
    time.sleep(max(0.0, STEAL_S - (time.monotonic() - began)))
    after = _ticks()
    if before is None or after is None or sum(after) <= sum(before):
        return None, spread
    return (after[7] - before[7]) / (sum(after) - sum(before)), spread


def _ticks() -> list[int] | None:
    """Ticks of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal."""
    words = (_read("/proc/stat") or "").split("\n", 1)[0].split()
    return [int(word) for word in words[1:9]] if len(words) >= 9 else None


def spin_spread() -> float:
    """Robust relative spread of the time of a fixed piece of work.

    It is 1.4826 times the median absolute deviation, divided by the median. For normally
    distributed times that estimates the relative standard deviation. A single interruption does not
    change it.
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
