"""Sites of large blocks: what the allocator cairn tells of them with CAIRN_SITES=1 and CAIRN_STATS=json. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cairn import units
from cairn.errors import CairnError

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
    """Of large blocks: how many there ever were, of how many bytes, and what became of them."""

    blocks: int
    bytes: int
    live_count: int
    live_bytes: int
    hits: int
    """Runs that the thread had kept; all others came from the page heap."""
    misses: int
    lives: tuple[int, ...]
    """How many lived how long, by LIVES."""


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


def parse(text: str) -> tuple[Document, ...]:
    """Every process that told of sites, in the order of their ends; the text is all of the program's standard error.

    Raises CairnError where there is none, with what to do.
    """
    found = tuple(_documents(text))
    if not found:
        raise CairnError(
            "no process tells of sites here; run the program with CAIRN_SITES=1 CAIRN_STATS=json in its environment, "
            "with the allocator cairn, and keep what it writes on standard error"
        )
    return found


def _documents(text: str) -> Iterator[Document]:
    for line in text.splitlines():
        if line.startswith("{") and '"sites":[' in line:
            try:
                yield _document(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                raise CairnError(f"this line is no statistics of cairn: {line[:60]}…") from None


def _document(told: dict[str, Any]) -> Document:
    return Document(
        sites=tuple(_site(row) for row in told["sites"]),
        count=int(told["site_count"]),
        others=Counts(**_counts(told["other_sites"])),
        objects=tuple(_object(row) for row in told["objects"]),
    )


def _counts(row: dict[str, Any]) -> dict[str, Any]:
    names = ("blocks", "bytes", "live_count", "live_bytes", "hits", "misses")
    return {name: int(row[name]) for name in names} | {"lives": tuple(int(count) for count in row["lives"])}


def _site(row: dict[str, Any]) -> Site:
    return Site(**_counts(row), address=int(row["address"], 16), slices=int(row["slices"]), depth=int(row["depth"]))


def _object(row: dict[str, Any]) -> Object:
    """A path is bytes, of which those that are no ASCII came as \\u00XX."""
    path = os.fsdecode(row["path"].encode("latin-1"))
    return Object(path, *(int(row[name], 16) for name in ("base", "begin", "end")))


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
    heads = ("bytes", "blocks", "live", "hits", "half lived", "each", "where")
    rows = [
        (
            *(units.size(site.bytes), units.count(site.blocks), units.size(site.live_bytes)),
            *(f"{100 * site.hits / site.blocks:.0f} %", half_lived(site.lives)),
            *(units.size(site.slices * SLICE_BYTES), where(site)),
        )
        for site in document.sites[:most]
    ]
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads) - 1)]
    lines = [
        "  ".join((*(text.rjust(width) for text, width in zip(row[:-1], widths, strict=True)), row[-1]))
        for row in (heads, *rows)
    ]
    if (untold := document.count - len(rows)) > 0:
        lines.append(f"{untold} sites with fewer bytes are not shown")
    if document.others.blocks:
        told = f"{units.count(document.others.blocks)} blocks, {units.size(document.others.bytes)}"
        lines.append(f"others, of sites that came when {document.count} were known: {told}")
    return "\n".join(lines) + "\n"
