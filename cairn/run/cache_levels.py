"""The caches and the TLB of this machine, with the times of their misses as measured here."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cairn import native
from cairn.errors import CairnError
from cairn.simulated_misses import CacheLevel

CPU = Path("/sys/devices/system/cpu/cpu0/cache")
CPUINFO = Path("/proc/cpuinfo")
PAGE = 4096
FIRST_TLB_PAGES, SECOND_TLB_PAGES = 64, 1536
"""The pages of a TLB if the machine does not show them. Current processors have 64 to 96 entries
for data in the first level, and 1,024 to 3,072 in the second."""
_MIB = 1 << 20
_MEMORY_LEAST = 128 * _MIB
_MEMORY_MOST = 1024 * _MIB
_SECONDS = 60
_WAYS_MOST = 512
"""The most ways of a simulated cache. More ways would make the simulation much slower."""


class _Cache(Struct, frozen=True):
    level: int
    bytes: int
    ways: int
    line_bytes: int
    is_shared: bool


class LoadTimes(Struct, frozen=True):
    """The time of a load in ns: if the next load waits for it, and if several overlap."""

    waiting: float
    overlapping: float

    def less(self, other: LoadTimes) -> LoadTimes:
        """The difference of the times; 0 if it is negative."""
        return LoadTimes(
            max(0.0, self.waiting - other.waiting), max(0.0, self.overlapping - other.overlapping)
        )


def levels(cpu: Path = CPU, cpuinfo: Path = CPUINFO) -> tuple[CacheLevel, ...]:
    """Returns the data caches in order, then the two levels of the TLB.

    cpu, cpuinfo: the kernel's files about the first processor. Takes about two seconds. Raises
    CairnError if the machine does not show its caches, or if the measurement fails.
    """
    caches = sorted(_caches(cpu), key=lambda one: one.level)[:3]
    if len(caches) < 2:
        raise CairnError(
            f"the sizes of two caches are needed, and {cpu} does not show them, so their misses "
            "cannot be simulated"
        )
    first, second, *others = caches
    memory_bytes = min(max(4 * caches[-1].bytes, _MEMORY_LEAST), _MEMORY_MOST)
    # If there are no huge pages for the largest measurement, none uses them.
    pages = "huge" if _measured(memory_bytes, second.line_bytes, "huge") is not None else "small"
    memory = _load_times(memory_bytes, second.line_bytes, pages)
    hits = [_load_times(one.bytes // 2, one.line_bytes, pages) for one in (first, second)]
    third = _third(others[0], second, hits[1], memory, pages) if others else None
    beyond = third[1] if third is not None else memory
    ways = _ways(first.bytes, first.line_bytes, first.ways)
    found = [
        _level(first, ways, hits[1].less(hits[0])),
        _level(second, _page_ways(second), beyond.less(hits[1])),
    ]
    if third is not None:
        size, hit = third
        cache = replace(others[0], bytes=size)
        level = _level(cache, _page_ways(cache), memory.less(hit))
        found.append(replace(level, whole_bytes=others[0].bytes if size < others[0].bytes else 0))
    timed = pages == "huge"
    return (*found, *_tlb(second.bytes, cpuinfo, memory.waiting, timed=timed))


def _level(cache: _Cache, ways: int, miss: LoadTimes) -> CacheLevel:
    return CacheLevel(
        f"L{cache.level} cache",
        cache.bytes,
        ways,
        cache.line_bytes,
        miss.waiting,
        miss.overlapping,
        miss.waiting,
        is_shared=cache.is_shared,
    )


def _third(
    cache: _Cache, second: _Cache, second_hit: LoadTimes, memory: LoadTimes, pages: str
) -> tuple[int, LoadTimes] | None:
    """Returns the part of the third cache that a program can use here, and the times of a hit.

    Other processors use this cache, too, and on a virtual machine also other machines. So the part
    is the largest size whose loads are nearer to a hit than to memory. Returns None if loads from
    twice the size of the second cache take nearly as long as loads from memory.
    """
    size = min(2 * second.bytes, cache.bytes)
    hit = _load_times(size, cache.line_bytes, pages)
    if hit.waiting**2 > second_hit.waiting * memory.waiting:
        return None
    while size < cache.bytes:
        larger = min(2 * size, cache.bytes)
        time = _load_times(larger, cache.line_bytes, pages)
        if time.waiting**2 > hit.waiting * memory.waiting:
            break
        size = larger
    return size, hit


def _tlb(
    cache_bytes: int, cpuinfo: Path, memory_ns: float, *, timed: bool
) -> tuple[CacheLevel, CacheLevel]:
    """Returns both levels of the TLB.

    cache_bytes: the size of the second data cache. memory_ns: the time of a load from memory.
    timed: whether there are huge pages.

    One line of each page is read, so that the lines fit in this cache. The same lines are read from
    huge pages, so that the difference is the time of the TLB.
    """
    shown = re.search(r"^TLB size\s*:\s*(\d+) 4K pages", _text(cpuinfo), re.MULTILINE)
    second = int(shown[1]) if shown else SECOND_TLB_PAGES
    few = min(second // 2, cache_bytes // 2 // 64) * PAGE
    many = min(4 * second, cache_bytes // 2 // 64) * PAGE
    none = LoadTimes(0.0, 0.0)
    hit, miss = (
        _load_times(size, PAGE, "small").less(_load_times(size, PAGE, "huge")) if timed else none
        for size in (few, many)
    )
    walk = miss.less(hit)
    sizes = (FIRST_TLB_PAGES * PAGE, second * PAGE)
    return (
        CacheLevel(
            "L1 TLB", sizes[0], _ways(sizes[0], PAGE, 4), PAGE, hit.waiting, hit.overlapping,
            hit.waiting, assumed=True, timed=timed,
        ),
        CacheLevel(
            "L2 TLB", sizes[1], _ways(sizes[1], PAGE, 8), PAGE, walk.waiting, walk.overlapping,
            max(walk.waiting, memory_ns) if timed else 0.0, assumed=not shown, timed=timed,
        ),
    )  # fmt: skip


def _caches(cpu: Path) -> Iterator[_Cache]:
    """Yields the caches for data that the kernel shows."""
    for folder in sorted(cpu.glob("index*")):
        size = re.fullmatch(r"(\d+)([KM])", _text(folder / "size"))
        ways, line = (
            int(text) if (text := _text(folder / name)).isdecimal() else 0
            for name in ("ways_of_associativity", "coherency_line_size")
        )
        level = _text(folder / "level")
        if (
            _text(folder / "type") in ("Data", "Unified")
            and size
            and line
            and level.isdecimal()
            and int(size[1])
        ):
            unit = 1024 if size[2] == "K" else _MIB
            shared = re.search(r"[,-]", _text(folder / "shared_cpu_list")) is not None
            is_last = int(level) >= 3 or (int(level) == 2 and shared)
            yield _Cache(int(level), int(size[1]) * unit, ways, line, is_last and shared)


def _ways(size: int, line: int, ways: int) -> int:
    """The number of ways with which callgrind can simulate a cache.

    The number of sets must be a power of two. Returns `ways` if it gives such a number, else the
    possible number of ways that is nearest to it.
    """
    lines = size // line
    least = lines // (lines & -lines)
    possible = [least << shift for shift in range((lines & -lines).bit_length())]
    return min(possible, key=lambda one: abs(math.log(one / max(1, ways))))


def _page_ways(cache: _Cache) -> int:
    """The number of ways with which a large cache is simulated.

    A large cache finds the set of a line by its physical address. Callgrind knows only the virtual
    address. Both have the same last 12 bits. So a cache of up to 2 MiB is simulated with so many
    ways that these bits alone give the set. A larger one has about _WAYS_MOST ways.
    """
    return _ways(cache.bytes, cache.line_bytes, min(_WAYS_MOST, cache.bytes // PAGE))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _load_times(size: int, stride: int, pages: str) -> LoadTimes:
    """The times of loads from `size` bytes of memory, one in each `stride` bytes.

    pages: "huge" or "small". If there are no huge pages, small ones are used.
    """
    found = _measured(size, stride, pages)
    return found if found is not None else _load_times(size, stride, "small")


def _measured(size: int, stride: int, pages: str) -> LoadTimes | None:
    """The same as _load_times(); None if there are no huge pages."""
    try:
        done = subprocess.run(
            [native.latency(), str(size), str(stride), pages],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CairnError(f"cannot measure the latencies of this machine: {error}") from None
    if done.returncode == 0 and done.stdout.startswith("no huge pages"):
        return None
    try:
        waiting, overlapping = map(float, done.stdout.split())
    except ValueError:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise CairnError(f"cannot measure the latencies of this machine: {why[0]}") from None
    return LoadTimes(waiting, overlapping)
