"""Reads where the blocks of a process lie (their layout), as figures with intervals.

The probe writes a file with the ending `.layout` beside its first file, if the layout is wanted.
src/record/layout.h is the contract. A file may be damaged or forged, so everything is checked.
Regions of 32 KiB are sampled, and so are allocations. The interval of a figure from regions comes
from leaving out each region in turn (the jackknife). The interval of a figure from allocations is
that of a share or of a median.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cairn.errors import CairnError, cannot

SUFFIX = ".layout"
MAGIC = b"cairnlay"
VERSION = 2
ORDER = 0x01020304
WAYS = {1: "sampled", 2: "exact"}
PAGE_BYTES, LINE_BYTES = 4096, 64
PAGES, BLOCKS, WARMTH, GROUPS = 2048, 2048, 4096, 3
_WHOLE = 2**32
"""The hash of a region is below this number. The probe tracks the regions whose hash is below a
threshold, so with this threshold it tracks all of them."""
_REGIONS_LEAST = 4
_MISS = 0.05
"""The probability that an interval misses the true value."""
_BLOCKS_LEAST = 20
"""A figure is None if it comes from fewer regions or allocations than these."""
_SETS_LEAST = 40
"""With fewer sampled blocks than this, `Layout.set_share` is None."""
LARGE_BYTES = 4096
"""`Layout.set_share` and `Layout.large_share` are about blocks of this size and more."""
_QUICK, _SLOW = 16, 1000
"""The number of operations between a free and the reuse of its memory. Up to _QUICK operations, the
memory is probably still in the cache. Above _SLOW it probably is not."""

Records = NDArray[np.void]
Floats = NDArray[np.float64]


class Figure(Struct, frozen=True):
    """An estimate with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


class Neighbours(Struct, frozen=True):
    """Distances between a block and the next block that the same thread got, in one size group.

    A figure is None if there were too few allocations.
    """

    sampled: int
    """Allocations in the sample."""
    straddling: Figure | None
    """Share of blocks on more cache lines than a block of that size needs."""
    distance_bytes: Figure | None
    """Median distance between the addresses of a block and the next block."""
    same_line: Figure | None
    """Share of next blocks that begin on the cache line of the block before. This share and those
    of `next_line`, `same_page` and `further` add up to 1."""
    next_line: Figure | None
    """Share of next blocks that begin on a cache line beside that of the block before."""
    same_page: Figure | None
    """Share of next blocks that begin on the same page, and further away than `next_line`."""
    further: Figure | None
    """Share of next blocks that begin on another page, and further away than `next_line`."""
    alike_distance_bytes: Figure | None
    """As `distance_bytes`, but only over pairs of blocks of about equal size: in units of 16 bytes,
    rounded up, both have the same size."""
    alike_further: Figure | None
    """As `further`, but only over pairs of blocks of about equal size."""
    header_bytes: Figure | None
    """Median number of bytes between the usable end of a block and the next block.
    Only pairs of blocks of about equal size that lie within 4 KiB of each other are counted. The
    bytes between them are probably the allocator's header."""


class Watches(Struct, frozen=True):
    """Cache lines with live blocks of several threads that hardware breakpoints watched."""

    lines: int
    """Number of lines that were watched."""
    confirmed: int
    """Number of lines that two threads or more wrote to while they were watched."""
    written: int
    """Number of lines that exactly one thread wrote to while they were watched."""
    longest_ns: int
    """The longest time for which a line was watched."""
    least_bytes: int
    """Requested bytes of the smallest block on a confirmed line; 0 if no line is confirmed."""
    most_bytes: int
    """Requested bytes of the largest block on a confirmed line; 0 if no line is confirmed."""
    refused: int
    """The errno value with which the kernel refused breakpoints; 0 if it did not refuse them."""


class Layout(Struct, frozen=True):
    """Where the blocks of one process lie.

    The figures of pages and cache lines are those of a snapshot, which the probe takes when many
    bytes are live. A figure is None if too little was seen.
    """

    way: str
    """"sampled" if some regions were tracked, "exact" if all were."""
    regions: int
    """Number of tracked regions of 32 KiB that held live blocks at the snapshot."""
    pages: int
    """Number of pages with live blocks in these regions."""
    snapshot_ns: int
    """Time from the start of the process to the snapshot."""
    snapshot_bytes: int
    """Live bytes at the snapshot."""
    is_stopped: bool
    """Whether the probe stopped tracking, because that took too large a part of the time."""
    page_use: Figure | None
    """Share of the bytes of a page that live blocks take, over all pages with live blocks."""
    line_use: Figure | None
    """Share of the bytes of a cache line that live blocks take, over all lines with live blocks."""
    pages_per_mib: Figure | None
    """Number of pages with live blocks for each MiB of live blocks."""
    lines_per_mib: Figure | None
    """Number of cache lines with live blocks for each MiB of live blocks."""
    active_conflicts: Figure | None
    """Share of the cache lines with live blocks that hold blocks of several threads and are not
    among the lines of `passive_conflicts`."""
    passive_conflicts: Figure | None
    """Share of the cache lines with live blocks that hold blocks of several threads, where one
    block lies in memory that another thread had freed before."""
    reused: int
    """Number of sampled frees of small and medium blocks whose address was handed out again. The
    next four figures are about these reuses."""
    reuse_operations: Figure | None
    """Median number of operations of the thread between the free and the reuse, if the thread that
    freed the block also reused it."""
    quick_reuse: Figure | None
    """Share of reuses by the thread that freed the block, within 16 operations."""
    slow_reuse: Figure | None
    """Share of reuses by the thread that freed the block, after more than 1,000 operations."""
    other_reuse: Figure | None
    """Share of reuses by another thread than the one that freed the block."""
    set_share: Figure | None
    """Share of the blocks of 4 KiB and more whose first cache line belongs to the set of the L1
    cache that has the most such lines. L1 is assumed to have 64 sets."""
    large_share: float | None
    """Share of all requested bytes that was requested for blocks of 4 KiB and more."""
    neighbours: tuple[Neighbours, ...]
    """The distances between blocks, for each size group."""
    watches: Watches


def layout_type(order: str) -> np.dtype[np.void]:
    """Struct layout_file of src/record/layout.h, for byte order "<" or ">"."""
    u2, u4, u8 = order + "u2", order + "u4", order + "u8"
    totals = [
        (name, u8) for name in ("regions", "pages", "lines", "blocks", "bytes", "active", "passive")
    ]
    page = [("region", u4)] + [
        (name, u2) for name in ("bytes", "lines", "blocks", "active", "passive", "unused")
    ]
    block = [(name, u4) for name in ("address", "bytes", "usable", "next_bytes")]
    watches = [
        *((name, u8) for name in ("lines", "confirmed", "written", "late", "longest_ns")),
        *((name, u4) for name in ("least_bytes", "most_bytes", "refused_errno", "unused")),
    ]
    warmth = [(name, u4) for name in ("operations", "unused", "other", "used")]
    return np.dtype(
        [
            ("magic", "S8"),
            *((name, u4) for name in ("order", "version", "bytes", "way", "process", "stopped")),
            *((name, u8) for name in ("ns_begin", "gap", "threshold", "events")),
            ("watches", np.dtype(watches)),
            ("writing", u8),
            *((f"snapshot_{name}", u8) for name in ("ns", "threshold", "bytes")),
            ("page_count", u8),
            ("totals", np.dtype(totals)),
            ("seen", u8, GROUPS),
            ("warm_seen", u8),
            ("pages", np.dtype(page), PAGES),
            ("blocks", np.dtype([*block, ("distance", order + "i8")]), (GROUPS, BLOCKS)),
            ("warmth", np.dtype(warmth), WARMTH),
        ]
    )


_TYPES = (layout_type("<"), layout_type(">"))


def of(folder: Path, pid: int, begin_ns: int) -> Layout | None:
    """Returns the layout of the process `pid` that began at `begin_ns`; None if it has no file.

    Raises CairnError for a damaged file.
    """
    for path in sorted(folder.glob(f"{pid}.*{SUFFIX}")):
        found = _record(path)
        if found is not None and int(found["ns_begin"]) == begin_ns:
            return layout(found)
    return None


def has_file(folder: Path) -> bool:
    """Whether the layout of any process was recorded, so that it was wanted."""
    return any(folder.glob(f"[0-9]*.[0-9]*{SUFFIX}"))


def why_missing(folder: Path, program: str, pid: int, *, forked: bool) -> str:
    """Why a process has no layout although it was wanted, as the end of a sentence.

    forked: whether the process began by fork. The process is that with the most live bytes.
    """
    name = os.path.basename(program)
    who = f"{name} ({pid}), the process with the most live bytes,"
    if forked:
        return f"{who} is a child of fork"
    if any(_record(path) is None for path in folder.glob(f"{pid}.*{SUFFIX}")):
        return f"{who} ended before the probe had looked at its blocks, or while it did"
    return (
        f"there is no file of the blocks of {name} ({pid}): it could not be made (the disk is "
        "full, the limit of file sizes is too low, or the program has a filter of system calls by "
        "seccomp), or it was not copied with the other files"
    )


def _damaged(path: Path, why: str) -> CairnError:
    return CairnError(f"{path} is not a readable layout: {why}; profile the program again")


def _record(path: Path) -> np.void | None:
    """Reads a file. Returns None if it has no magic or no snapshot.

    The process of such a file ended before the probe had written them.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _damaged(path, "it is not a regular file")
            content = file.read(_TYPES[0].itemsize)
    except OSError as error:
        raise cannot("read", path, error) from error
    if not content[: len(MAGIC)].strip(b"\0"):
        return None
    if content[: len(MAGIC)] != MAGIC:
        raise _damaged(path, "its first bytes are not those of one")
    if len(content) < _TYPES[0].itemsize:
        raise _damaged(path, "it is cut off")
    for kind in _TYPES:
        found: np.void = np.frombuffer(content, kind)[0]
        if found["order"] == ORDER:
            break
    else:
        raise _damaged(path, "its byte order is unknown")
    if found["version"] != VERSION or found["bytes"] != kind.itemsize:
        raise _damaged(path, "its probe was built from other sources")
    if int(found["way"]) not in WAYS or found["page_count"] > PAGES:
        raise _damaged(path, "its head is damaged")
    return None if found["writing"] % 2 or not found["snapshot_ns"] else found


def layout(found: np.void) -> Layout:
    """Returns the figures of a layout file, given as its struct."""
    totals = {name: int(found["totals"][name]) for name in found["totals"].dtype.names or ()}
    pages = found["pages"][: int(found["page_count"])]
    part = min(1.0, int(found["snapshot_threshold"]) / _WHOLE)

    def ratio(above: str, below: str, unit: float) -> Figure | None:
        return _ratio(pages, totals, above, below, unit, part)

    warmth = found["warmth"][found["warmth"]["used"] == 1]
    same = warmth["other"] == 0
    operations = warmth["operations"].astype(float)
    return Layout(
        way=WAYS[int(found["way"])],
        regions=totals["regions"],
        pages=totals["pages"],
        snapshot_ns=int(found["snapshot_ns"]),
        snapshot_bytes=int(found["snapshot_bytes"]),
        is_stopped=bool(found["stopped"]),
        page_use=ratio("bytes", "pages", 1 / PAGE_BYTES),
        line_use=ratio("bytes", "lines", 1 / LINE_BYTES),
        pages_per_mib=ratio("pages", "bytes", 1 << 20),
        lines_per_mib=ratio("lines", "bytes", 1 << 20),
        active_conflicts=ratio("active", "lines", 1),
        passive_conflicts=ratio("passive", "lines", 1),
        reused=int(found["warm_seen"]),
        reuse_operations=_median(operations[same]),
        quick_reuse=_share(same & (operations <= _QUICK)),
        slow_reuse=_share(same & (operations > _SLOW)),
        other_reuse=_share(~same),
        set_share=_set_share(found),
        large_share=_large_share(found),
        neighbours=tuple(_neighbours(found["blocks"][group]) for group in range(GROUPS)),
        watches=_watches(found["watches"]),
    )


def _watches(found: np.void) -> Watches:
    lines, confirmed = int(found["lines"]), int(found["confirmed"])
    written, errno = int(found["written"]), int(found["refused_errno"])
    if confirmed + written > lines:  # the file was forged
        lines = confirmed = written = 0
    return Watches(
        lines,
        confirmed,
        written,
        int(found["longest_ns"]),
        int(found["least_bytes"]),
        int(found["most_bytes"]),
        errno,
    )


def _t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's distribution, by Hill's series of the normal one."""
    z = 1.959963984540054
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    exact = {1: 12.706, 2: 4.303, 3: 3.182}
    series = z + sum(term / freedom ** (k + 1) for k, term in enumerate(terms))
    return exact[freedom] if freedom in exact else float(series)


def _ratio(
    pages: Records, totals: dict[str, int], above: str, below: str, unit: float, part: float
) -> Figure | None:
    """The ratio of the totals `above` and `below`, times `unit`, with its interval.

    The interval is that of the jackknife over the tracked regions. It also allows for regions of
    another kind, of which none is tracked by chance: all of a few regions may be full although a
    third of the memory is empty.

    `above` and `below` are fields of a page, or "pages" for the number of pages. `part` is the
    tracked share of all regions.
    """
    if not totals[below]:
        return None
    value = totals[above] / totals[below] * unit
    if unit <= 1 < value:  # no share is above 1: the file was forged
        return None
    if part >= 1:
        return Figure(value, value, value)
    if not len(pages):
        return None
    _, places = np.unique(pages["region"], return_inverse=True)
    regions = int(places.max()) + 1
    if regions < _REGIONS_LEAST:
        return None
    one, other = (np.bincount(places, _column(pages, name), regions) for name in (above, below))
    left = other.sum() - other
    if not (left > 0).all():
        return None
    without = (one.sum() - one) / left * unit
    variance = (1 - part) * (regions - 1) / regions * float(((without - without.mean()) ** 2).sum())
    away = _t_quantile(regions - 1) * math.sqrt(variance)
    unseen = (1 - part) * (1 - _MISS ** (1 / regions))
    low = min(value - away, value * (1 - unseen))
    if unit <= 1:
        high = min(1.0, max(value + away, value + unseen * (1 - value)))
    else:
        high = max(value + away, value / (1 - unseen))
    return Figure(value, max(0.0, low), max(value, high))


def _column(pages: Records, name: str) -> Floats:
    return np.ones(len(pages)) if name == "pages" else pages[name].astype(float)


def _share(among: Sequence[bool] | NDArray[np.bool_]) -> Figure | None:
    """The share of true values, with the interval by Wilson."""
    n = len(among)
    if n < _BLOCKS_LEAST:
        return None
    share, z = float(np.mean(among)), 1.959963984540054
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    away = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Figure(share, max(0.0, min(share, middle - away)), min(1.0, max(share, middle + away)))


def _median(values: Floats) -> Figure | None:
    """The median, with the interval between two of the values (the binomial distribution)."""
    n = len(values)
    if n < _BLOCKS_LEAST:
        return None
    ordered = np.sort(values)
    away = 1.959963984540054 * math.sqrt(n) / 2
    low, high = math.floor((n - 1) / 2 - away), math.ceil((n - 1) / 2 + away)
    return Figure(
        float(np.median(ordered)), float(ordered[max(0, low)]), float(ordered[min(n - 1, high)])
    )


def _neighbours(entries: Records) -> Neighbours:
    entries = entries[entries["bytes"] != 0]
    address, size = entries["address"].astype(np.int64), entries["bytes"].astype(np.int64)
    lines = (address + size - 1) // LINE_BYTES - address // LINE_BYTES + 1
    paired = entries["next_bytes"] != 0
    near, away = address[paired], entries["distance"][paired].astype(np.int64)
    line = (near + away) // LINE_BYTES - near // LINE_BYTES
    page = (near + away) // PAGE_BYTES == near // PAGE_BYTES
    same_line, next_line = line == 0, np.abs(line) == 1
    same_page = page & ~same_line & ~next_line
    far = ~(same_line | next_line | same_page)
    found = entries[paired]
    alike = (size[paired] + 15) // 16 == (found["next_bytes"].astype(np.int64) + 15) // 16
    known = (found["next_bytes"] == found["bytes"]) | (alike & (found["usable"] != 0))
    room = np.maximum(found["usable"], found["bytes"]).astype(np.int64)[known]
    between = np.abs(away[known]) - room
    between = between[(between >= 0) & (between + room <= PAGE_BYTES)]
    return Neighbours(
        sampled=len(entries),
        straddling=_share(lines > -(-size // LINE_BYTES)),
        distance_bytes=_median(np.abs(away.astype(float))),
        same_line=_share(same_line),
        next_line=_share(next_line),
        same_page=_share(same_page),
        further=_share(far),
        alike_distance_bytes=_median(np.abs(away[alike].astype(float))),
        alike_further=_share(far[alike]),
        header_bytes=_median(between.astype(float)),
    )


def _large_share(found: np.void) -> float | None:
    large = every = 0.0
    for group, per_block in enumerate((int(found["gap"]), int(found["gap"]), 1)):
        sizes = found["blocks"][group]["bytes"].astype(float)
        kept = np.count_nonzero(sizes)
        weight = per_block * int(found["seen"][group]) / kept if kept else 0.0
        every += weight * float(sizes.sum())
        large += weight * float(sizes[sizes >= LARGE_BYTES].sum())
    return float(large / every) if every else None


def _set_share(found: np.void) -> Figure | None:
    """The share of blocks in the fullest set of the L1 cache: `Layout.set_share`.

    One half of the blocks says which set is the fullest, and the other half says how many blocks
    are in that set. If all blocks answered both questions, the share would be too high by chance.
    """
    sets, weights = [], []
    for group, per_block in enumerate((int(found["gap"]), int(found["gap"]), 1)):
        entries = found["blocks"][group]
        entries = entries[entries["bytes"] >= LARGE_BYTES]
        sets.append((entries["address"] >> 6 & 63).astype(int))
        kept = max(1, int(np.count_nonzero(found["blocks"][group]["bytes"])))
        weights.append(np.full(len(entries), per_block * int(found["seen"][group]) / kept))
    places, weight = np.concatenate(sets), np.concatenate(weights)
    if len(places) < _SETS_LEAST:
        return None
    shares = []
    for half in (0, 1):
        chosen, other = slice(half, None, 2), slice(1 - half, None, 2)
        if not weight[other].sum():  # the file was forged: it says that no block was sampled
            return None
        fullest = int(np.bincount(places[chosen], weight[chosen], 64).argmax())
        shares.append(float(weight[other][places[other] == fullest].sum() / weight[other].sum()))
    value = sum(shares) / 2
    effective = float(weight.sum() ** 2 / (weight**2).sum())
    error = 1.96 * math.sqrt(value * (1 - value) / effective) + 1 / effective
    return Figure(value, max(0.0, value - error), min(1.0, value + error))
