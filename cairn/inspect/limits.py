"""Reads the limits of the kernel that a process may reach."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from cairn.inspect.facts import Limits
from cairn.inspect.process import FileMissing, Target

_V1, _V2 = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")
_CACHE_V1 = ("total_active_file", "total_inactive_file")
_CACHE_V2 = ("active_file", "inactive_file")
"""The names of the two lists of pages in memory.stat that the kernel can free without swapping. The
lists have page cache and memory that was freed with MADV_FREE. They do not have tmpfs and locked
pages. The "total_" numbers of version 1 include the cgroups below, as the use does."""
_UNLIMITED = 1 << 60
"""Version 1 of cgroups writes "no limit" as a number above this."""
_ROOT = Path("/sys/fs/cgroup")


def read(target: Target, mappings: int) -> Limits:
    """Reads the limits. `mappings` is the number of the process's mappings."""
    cgroup = _cgroup(_text(target, "cgroup"))
    address = re.search(r"^Max address space +(\d+)", _text(target, "limits"), re.MULTILINE)
    return Limits(
        cgroup_bytes=None if cgroup is None else cgroup[0],
        cgroup_used=None if cgroup is None else cgroup[1],
        cgroup_cache=None if cgroup is None else cgroup[2],
        mappings=mappings,
        mappings_most=_number(Path("/proc/sys/vm/max_map_count")),
        address_bytes=None if address is None else int(address[1]),
    )


def _text(target: Target, name: str) -> str:
    """The text of a file of the process; empty if this kernel does not have the file."""
    try:
        return target.text(name)
    except FileMissing:
        return ""


def _cgroup(text: str) -> tuple[int, int | None, int | None] | None:
    """The least limit of the process's cgroups, and the memory and cache of the cgroup with it."""
    found: list[tuple[int, int | None, int | None]] = []
    for line in text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        for top in (_ROOT, _ROOT / "unified") if not controllers else (_ROOT / "memory",):
            names, lists = (_V1, _CACHE_V1) if controllers else (_V2, _CACHE_V2)
            folder = top / path.lstrip("/")
            for one in (folder, *folder.parents):
                limit = _number(one / names[0])
                if limit is not None and limit < _UNLIMITED:
                    found.append((limit, _number(one / names[1]), _cache(one, lists)))
                if one == top:
                    break
    return min(found, key=lambda one: one[0], default=None)


def _cache(cgroup: Path, lists: tuple[str, str]) -> int | None:
    """The bytes of a cgroup that the kernel can free without swapping; None if not known."""
    numbers: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (cgroup / "memory.stat").read_text(encoding="ascii").splitlines():
            name, _, number = line.partition(" ")
            if name in lists:
                numbers[name] = int(number)
    return sum(numbers.values()) if len(numbers) == len(lists) else None


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def transparent_huge_pages() -> str | None:
    """The machine's setting: "always", "madvise" or "never"."""
    with contextlib.suppress(OSError):
        path = "/sys/kernel/mm/transparent_hugepage/enabled"
        with open(path, encoding="ascii") as file:
            found = re.search(r"\[(\w+)\]", file.read())
            return found[1] if found else None
    return None


def ticks_per_s() -> int:
    """The number of clock ticks in a second. /proc/PID/stat gives times in clock ticks."""
    return os.sysconf("SC_CLK_TCK")
