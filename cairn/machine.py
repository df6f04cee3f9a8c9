"""Facts of the machine that belong beside every result."""

from __future__ import annotations

import os
import platform
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
