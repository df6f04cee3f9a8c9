"""Reads reports of call sites of large blocks, and prints them as tables. All functions are pure.

The allocator cairn writes a report if CAIRN_SITES=1 and CAIRN_STATS=json are in the environment.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from cairn import units
from cairn.errors import CairnError

_BEGIN = '{"live_bytes":'
SLICE_BYTES = 16 << 10
"""The unit of large blocks: docs/allocator.md, "Where memory comes from"."""


LIVES = ("1 µs", "16 µs", "262 µs", "4.2 ms", "67 ms", "1.1 s", "17 s")
"""The upper limits of the classes of life times; one more class holds all longer ones
(src/alloc/site.h)."""


class Object(Struct, frozen=True):
    """A file that was mapped from `begin` to `end`. Addresses in the file count from `base`."""

    path: str
    base: int
    begin: int
    end: int
    build_id: str | None = None
    """In hexadecimal; "" if the file had none. None in reports of versions without build IDs."""


class Counts(Struct, frozen=True):
    """The number, bytes and fate of large blocks over the life of a process.

    A thread with many blocks counts only a random sample of them, and each counted block stands for
    several blocks. The numbers are then estimates.
    """

    counted: int
    """Blocks that were really counted, without the other blocks for which they stand."""
    blocks_variance: int
    """The variance of `blocks`. It is 0 if each counted block stands only for itself. Even then, a
    thread with many blocks may have had more blocks of this site than it counted."""
    blocks: int
    bytes: int
    live_count: int
    live_bytes: int
    hits: int
    """Blocks that reused memory which the thread had kept after an earlier free."""
    misses: int
    """Blocks that got memory from the page heap."""
    lives: tuple[int, ...]
    """The number of freed blocks in each class of LIVES, and then of blocks with longer lives."""

    @property
    def error(self) -> float:
        """Two standard errors of `blocks`, as a share of it."""
        return 2 * math.sqrt(self.blocks_variance) / self.blocks if self.blocks else 0.0


class Site(Counts, frozen=True):
    """A call site and the size of its blocks; `depth` distinguishes callers of the same wrapper."""

    address: int
    """The return address of the call."""
    slices: int
    depth: int


class Document(Struct, frozen=True):
    """The report of one process."""

    sites: tuple[Site, ...]
    """The sites with the most bytes come first."""
    count: int
    """The number of sites. It is larger than the length of `sites` if the report had no room for
    all."""
    others: Counts
    """Blocks of sites that were new when the allocator's table was full."""
    objects: tuple[Object, ...]
    unix_ns: int | None = None
    """The time of the report, as nanoseconds since 1970. None in reports of versions without it."""

    def object_of(self, site: Site) -> Object | None:
        """The file of the site; None if it was unloaded before the process ended."""
        return next((one for one in self.objects if one.begin < site.address <= one.end), None)


def parse(lines: Iterable[str]) -> tuple[tuple[Document, ...], int]:
    """The reports in a program's standard error, in the order in which processes ended.

    Also returns the number of damaged lines. Other output between the reports is skipped. Raises
    CairnError with advice if there is no report.
    """
    found, damaged = [], 0
    for line in lines:
        place = line.find(_BEGIN)  # other output without a newline may precede it
        if place < 0 or '"sites":[' not in line:
            continue
        try:
            found.append(_document(json.loads(line[place:])))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            damaged += 1
    if not found:
        raise CairnError(
            "the reports of call sites here are cut off or mixed up; give each process its own "
            "file as standard error"
            if damaged
            else "there is no report of call sites here; run the program under the allocator cairn "
            "with CAIRN_SITES=1 CAIRN_STATS=json in its environment, and keep its standard error"
        )
    return tuple(found), damaged


def _document(report: dict[str, Any]) -> Document:
    return Document(
        sites=tuple(_site(row) for row in report["sites"]),
        count=int(report["site_count"]),
        others=Counts(**_counts(report["other_sites"])),
        objects=tuple(_object(row) for row in report["objects"]),
        unix_ns=_number(report["unix_ns"]) if "unix_ns" in report else None,
    )


def _number(value: int | str) -> int:
    """A number of 64 bits; addresses are hexadecimal text. Raises ValueError for all else."""
    number = int(value, 16) if isinstance(value, str) else int(value)
    if not 0 <= number < 1 << 64:
        raise ValueError(value)
    return number


def _counts(row: dict[str, Any]) -> dict[str, Any]:
    # Reports of versions that counted every block lack the first two fields.
    row = {"counted": row["blocks"], "blocks_variance": 0} | row
    names = (
        "counted",
        "blocks_variance",
        "blocks",
        "bytes",
        "live_count",
        "live_bytes",
        "hits",
        "misses",
    )
    return {name: _number(row[name]) for name in names} | {
        "lives": tuple(_number(count) for count in row["lives"])
    }


def _site(row: dict[str, Any]) -> Site:
    which = _number(row["address"]), _number(row["slices"]), _number(row["depth"])
    site = Site(**_counts(row), address=which[0], slices=which[1], depth=which[2])
    if not site.blocks:
        raise ValueError("a site without a block")
    return site


def _object(row: dict[str, Any]) -> Object:
    """A mapped file. Its path is bytes, written as \\u00XX where they are not ASCII."""
    path = os.fsdecode(row["path"].encode("latin-1"))
    if "\0" in path:
        raise ValueError("no path")
    base, begin, end = (_number(row[name]) for name in ("base", "begin", "end"))
    build_id = str(row["build_id"] or "") if "build_id" in row else None
    return Object(path, base, begin, end, build_id)


def half_lived(lives: Sequence[int]) -> str:
    """The class of LIVES that half of the freed blocks do not exceed."""
    seen, half = 0, sum(lives) / 2
    for limit, count in zip(LIVES, lives, strict=False):
        seen += count
        if seen >= half > 0:
            return f"< {limit}"
    return "longer" if half else "-"


def render(document: Document, where: Callable[[Site], str], most: int) -> str:
    """The table of the `most` sites with the most bytes, largest first; `where` names a site."""
    heads = ("bytes", "blocks", "±", "live", "hits", "half lived", "each", "where")
    rows = [
        (
            *(units.size(site.bytes), units.count(site.blocks)),
            *(f"{100 * site.error:.0f} %" if site.error else "", units.size(site.live_bytes)),
            *(f"{100 * site.hits / site.blocks:.0f} %", half_lived(site.lives)),
            *(units.size(site.slices * SLICE_BYTES), where(site)),
        )
        for site in document.sites[:most]
    ]
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads) - 1)]
    lines = [
        "  ".join(
            (*(text.rjust(width) for text, width in zip(row[:-1], widths, strict=True)), row[-1])
        )
        for row in (heads, *rows)
    ]
    if any(site.error for site in document.sites[:most]):
        lines.append(
            "±: 95 % interval of blocks, where a random sample of them was counted; live, hits and "
            "lives are less certain. Without ±, the site was only seen while every block was "
            "counted, and may have had more."
        )
    if (untold := document.count - len(rows)) > 0:
        sites = units.counted(untold, "site")
        lines.append(f"{sites} with fewer bytes {'is' if untold == 1 else 'are'} not shown")
    if document.others.blocks:
        others = document.others
        size = f"{units.counted(others.blocks, 'block')}, {units.size(others.bytes)}"
        lines.append(f"sites beyond the first {document.count} (the table was full): {size}")
    return "\n".join(lines) + "\n"
