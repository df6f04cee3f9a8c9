"""Sites of large blocks: what the allocator cairn tells of them with CAIRN_SITES=1 and CAIRN_STATS=json. Pure."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cairn import units
from cairn.errors import CairnError

_BEGIN = '{"live_bytes":'
SLICE_BYTES = 16 << 10
"""The unit in which the allocator has large blocks: docs/allocator.md, "Where memory comes from"."""


LIVES = ("1 µs", "16 µs", "262 µs", "4.2 ms", "67 ms", "1.1 s", "17 s")
"""Lives are told in these classes, each below the time named, and one of all that are longer: src/alloc/site.h."""


@dataclass(frozen=True, slots=True)
class Object:
    """A file as the loader had mapped it, from `begin` to `end`; its own addresses count from `base`."""

    path: str
    base: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Of large blocks: how many there ever were, of how many bytes, and what became of them.

    Of a thread that has many some are counted, chosen at random, and stand for the others: then these are estimates.
    """

    counted: int
    """Blocks that were looked at."""
    blocks_variance: int
    """Of `blocks`; 0 where each counted one stands for itself: of a thread that has many, others may be missing."""
    blocks: int
    bytes: int
    live_count: int
    live_bytes: int
    hits: int
    """Runs that the thread had kept; all others came from the page heap."""
    misses: int
    lives: tuple[int, ...]
    """How many lived how long, by LIVES."""

    @property
    def error(self) -> float:
        """How far off `blocks` may be, as a share of it: by two standard errors."""
        return 2 * math.sqrt(self.blocks_variance) / self.blocks if self.blocks else 0.0


@dataclass(frozen=True, slots=True)
class Site(Counts):
    """A place that calls, for blocks of so many slices; `depth` tells callers of the same wrapper apart."""

    address: int
    """Behind the call."""
    slices: int
    depth: int


@dataclass(frozen=True, slots=True)
class Document:
    """What one process told."""

    sites: tuple[Site, ...]
    """Those with the most bytes first."""
    count: int
    """How many there are; more than `sites` where there was no room for all."""
    others: Counts
    """What came when the table was full."""
    objects: tuple[Object, ...]

    def object_of(self, site: Site) -> Object | None:
        """The file that the site lies in; None when it was unloaded before the end."""
        return next((one for one in self.objects if one.begin < site.address <= one.end), None)


def parse(lines: Iterable[str]) -> tuple[tuple[Document, ...], int]:
    """Every process that told of sites, in the order of their ends, and how many lines were damaged.

    The lines are the program's standard error, in which others write, too. Raises CairnError where there is none, with
    what to do.
    """
    found, damaged = [], 0
    for line in lines:
        place = line.find(_BEGIN)  # behind what somebody left without an end of line, perhaps
        if place < 0 or '"sites":[' not in line:
            continue
        try:
            found.append(_document(json.loads(line[place:])))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            damaged += 1
    if not found:
        raise CairnError(
            "what processes tell of sites here is cut off or mixed up; give each its own file as standard error"
            if damaged
            else "no process tells of sites here; run the program with CAIRN_SITES=1 CAIRN_STATS=json in its "
            "environment, with the allocator cairn, and keep what it writes on standard error"
        )
    return tuple(found), damaged


def _document(told: dict[str, Any]) -> Document:
    return Document(
        sites=tuple(_site(row) for row in told["sites"]),
        count=int(told["site_count"]),
        others=Counts(**_counts(told["other_sites"])),
        objects=tuple(_object(row) for row in told["objects"]),
    )


def _number(told: int | str) -> int:
    """Of 64 bits; an address as text."""
    number = int(told, 16) if isinstance(told, str) else int(told)
    if not 0 <= number < 1 << 64:
        raise ValueError(told)
    return number


def _counts(row: dict[str, Any]) -> dict[str, Any]:
    row = {
        "counted": row["blocks"],
        "blocks_variance": 0,
    } | row  # as before blocks were counted by samples
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
    """A path is bytes, of which those that are no ASCII came as \\u00XX."""
    path = os.fsdecode(row["path"].encode("latin-1"))
    if "\0" in path:
        raise ValueError("no path")
    return Object(path, *(_number(row[name]) for name in ("base", "begin", "end")))


def half_lived(lives: Sequence[int]) -> str:
    """The shortest time within which half of the blocks that were freed were so."""
    seen, half = 0, sum(lives) / 2
    for limit, count in zip(LIVES, lives, strict=False):
        seen += count
        if seen >= half > 0:
            return f"< {limit}"
    return "longer" if half else "-"


def render(document: Document, where: Callable[[Site], str], most: int) -> str:
    """A table, the sites with the most bytes first."""
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
            "±, of blocks, 95 %: of many some were counted, chosen at random, that stand for the others; live, hits "
            "and lives are less sure. Without one, a site was seen only while all were counted, and may have had more."
        )
    if (untold := document.count - len(rows)) > 0:
        lines.append(f"{untold} sites with fewer bytes are not shown")
    if document.others.blocks:
        told = f"{units.count(document.others.blocks)} blocks, {units.size(document.others.bytes)}"
        lines.append(f"others, of sites that came when {document.count} were known: {told}")
    return "\n".join(lines) + "\n"
