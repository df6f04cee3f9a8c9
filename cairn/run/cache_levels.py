"""The caches and the TLB of this machine, with the times of their misses as measured here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

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
"""More ways would make the simulation much slower."""


@dataclass(frozen=True, slots=True)
class _Cache:
    level: int
    bytes: int
    ways: int
    line_bytes: int


@dataclass(frozen=True, slots=True)
class LoadTimes:
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

    cpu, cpuinfo: the kernel's files about the first processor. Takes about three seconds. Raises
    CairnError if the machine does not show its caches, or if the measurement fails.
    """
    caches = sorted(_caches(cpu), key=lambda one: one.level)
    if [one.level for one in caches[:2]] != [1, 2]:
        raise CairnError(
            f"the sizes of the caches are not shown in {cpu}, so their misses cannot be simulated"
        )
    first, second, *others = caches[:3]
    times = [_load_times(one.bytes // 2, one.line_bytes, "huge") for one in (first, second)]
    largest = others[0].bytes if others else second.bytes
    memory_bytes = min(max(4 * largest, _MEMORY_LEAST), _MEMORY_MOST)
    memory = _load_times(memory_bytes, second.line_bytes, "huge")
    third = _third(others[0], second, times[1], memory) if others else None
    beyond = third[1] if third is not None else memory
    ways = _ways(first.bytes, first.line_bytes, first.ways)
    found = [
        _level(first, ways, times[1].less(times[0])),
        _level(second, _page_ways(second.bytes, second.line_bytes), beyond.less(times[1])),
    ]
    if third is not None:
        size, hit = third
        whole = others[0].bytes if size != others[0].bytes else 0
        cache = replace(others[0], bytes=size)
        level = _level(cache, _page_ways(size, cache.line_bytes), memory.less(hit))
        found.append(replace(level, whole_bytes=whole, is_shared=True))
    return (*found, *_tlb(second.bytes, cpuinfo, memory.waiting))


def _level(cache: _Cache, ways: int, miss: LoadTimes) -> CacheLevel:
    return CacheLevel(
        f"L{cache.level} cache",
        cache.bytes,
        ways,
        cache.line_bytes,
        miss.waiting,
        miss.overlapping,
        miss.waiting,
    )


def _third(
    cache: _Cache, second: _Cache, second_hit: LoadTimes, memory: LoadTimes
) -> tuple[int, LoadTimes] | None:
    """The size of the third cache that works here, and the times of its hits.

    Other processors use this cache, too, and on a virtual machine also other machines. So the size
    is the largest whose loads are nearer to a hit than to memory. None if even twice the size of
    the second cache is not.
    """
    least = 2 * second.bytes
    hit = _load_times(least, cache.line_bytes, "huge") if least <= cache.bytes else memory
    if hit.waiting**2 > second_hit.waiting * memory.waiting:
        return None
    size = least
    while 2 * size <= cache.bytes:
        time = _load_times(2 * size, cache.line_bytes, "huge")
        if time.waiting**2 > hit.waiting * memory.waiting:
            break
        size *= 2
    return size, hit


def _tlb(cache_bytes: int, cpuinfo: Path, memory_ns: float) -> tuple[CacheLevel, CacheLevel]:
    """Returns both levels of the TLB.

    cache_bytes: the size of the second data cache. memory_ns: the time of a load from memory.
    One line of each page is read, so that the lines fit in this cache. The same lines are read from
    huge pages, so that the difference is the time of the TLB.
    """
    shown = re.search(r"^TLB size\s*:\s*(\d+) 4K pages", _text(cpuinfo), re.MULTILINE)
    second = int(shown[1]) if shown else SECOND_TLB_PAGES
    few = min(second // 2, cache_bytes // 2 // 64) * PAGE
    many = min(4 * second, cache_bytes // 2 // 64) * PAGE
    hit, miss = (
        _load_times(size, PAGE, "small").less(_load_times(size, PAGE, "huge"))
        for size in (few, many)
    )
    walk = miss.less(hit)
    sizes = (FIRST_TLB_PAGES * PAGE, second * PAGE)
    return (
        CacheLevel(
            "L1 TLB", sizes[0], _ways(sizes[0], PAGE, 4), PAGE, hit.waiting, hit.overlapping,
            hit.waiting, assumed=True,
        ),
        CacheLevel(
            "L2 TLB", sizes[1], _ways(sizes[1], PAGE, 8), PAGE, walk.waiting, walk.overlapping,
            max(walk.waiting, memory_ns), assumed=not shown,
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
            yield _Cache(int(level), int(size[1]) * unit, ways, line)


def _ways(size: int, line: int, ways: int) -> int:
    """The ways of a cache of this size whose number of sets is a power of two.

    Callgrind simulates no other cache. The result is `ways` if that is possible.
    """
    lines = size // line
    sets = lines // ways if ways and lines % ways == 0 else 0
    if sets and sets & (sets - 1) == 0:
        return ways
    return lines // (lines & -lines)


def _page_ways(size: int, line: int) -> int:
    """The ways of a large cache in the simulation.

    The address of a line in memory chooses its set in a large cache. Callgrind knows only the
    address in the program, which has the same place within a page. So the set depends on this place
    alone, as if the pages lay at random, unless that takes more than _WAYS_MOST ways.
    """
    return _ways(size, line, min(_WAYS_MOST, size // PAGE))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _load_times(size: int, stride: int, pages: str) -> LoadTimes:
    """The times of loads from `size` bytes of memory, one in each `stride` bytes.

    pages: "huge" or "small". If there are no huge pages, small ones are used.
    """
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
        return _load_times(size, stride, "small")
    try:
        waiting, overlapping = map(float, done.stdout.split())
    except ValueError:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise CairnError(f"cannot measure the latencies of this machine: {why[0]}") from None
    return LoadTimes(waiting, overlapping)
