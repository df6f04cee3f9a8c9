"""The installed allocators, as a table and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import msgspec

from cairn.allocators import obtain
from cairn.allocators.catalog import Catalog, Found
from cairn.allocators.discover import file_sha256
from cairn.allocators.outdated import Standing, Survey
from cairn.model import SCHEMA
from cairn.report.formatting import printable
from cairn.report.tables import Cell, Table
from cairn.report.terminal import Screen
from cairn.report.view import View

_UNKNOWN = "unknown"

_SHORT = 12
"""Digits of a checksum in the table, enough to tell two files apart. --json has all digits."""


def render(catalog: Catalog, found: Sequence[Found], view: View) -> str:
    """Returns the table of allocators, their faults and caveats, and how to get the others."""
    screen = Screen(view)
    sums = {item: _sha256(item) for item in found}
    heads = ("name", "version", "layout", "hardened", "licence", "sha256", "origin")
    rows = tuple(_row(item, sums[item]) for item in found)
    screen.table(Table("", heads, rows, optional=(4, 1, 2, 3), texts=True))
    here = {item.allocator.name for item in found if item.problem is None}
    problems = [
        f"✘ {item.allocator.name}: {text}"
        for item in found
        if (text := _damage(item, sums[item]) or item.problem)
    ]
    caveats = [
        f"▲ {e.name}: {caveat}"
        for e in catalog.allocators
        if e.name in here
        for caveat in e.caveats
    ]
    caveats += [
        f"▲ {item.title}: {fault}"
        for item in found
        if item.problem is None
        for fault in item.faults
    ]
    remarks = [
        f"  {e.name}: {remark}"
        for e in catalog.allocators
        if e.name in here
        for remark in e.remarks
    ]
    for lines in (problems, caveats, remarks):
        if lines:
            screen.line()
            for line in lines:
                screen.line(printable(line), hanging=2)
    missing = [entry for entry in catalog.allocators if entry.name not in here]
    known = [entry.name for entry in missing if obtain.obtainable(entry)]
    if known:
        screen.line()
        screen.line(f"Not installed: {', '.join(known)}.")
        screen.line(f"To get them: cairn allocators get {' '.join(known)}")
    return screen.text()


def _row(item: Found, checksum: str | None) -> tuple[Cell, ...]:
    entry = item.allocator
    hardened = _UNKNOWN if entry.hardened is None else "yes" if entry.hardened else "no"
    texts = (
        entry.name,
        item.version or _UNKNOWN,
        entry.layout or _UNKNOWN,
        hardened,
        entry.licence or _UNKNOWN,
        (checksum or "–")[:_SHORT],
        item.origin or item.path or _UNKNOWN,
    )
    return tuple(Cell(printable(text), False if item.problem else None) for text in texts)


def document(catalog: Catalog, found: Sequence[Found]) -> str:
    """Returns the allocators and the catalog as one JSON document.

    "sha256" is the checksum of the library file as it is now.
    """
    parts = {
        "schema": SCHEMA,
        "found": [
            {
                **msgspec.to_builtins(item),
                "allocator": item.allocator.name,
                "title": item.title,
                "licence": item.allocator.licence,
                "sha256": _sha256(item),
                "recorded_sha256": item.sha256,
            }
            for item in found
        ],
        "catalog": [msgspec.to_builtins(entry) for entry in catalog.allocators],
    }
    return json.dumps(parts, ensure_ascii=True, indent=1)


def render_outdated(found: Survey, view: View) -> str:
    """Returns which pinned releases have a newer one, the table of all, and the next step."""
    screen = Screen(view)
    behind = [item for item in found.standings if item.is_outdated]
    packaged = [item for item in found.standings if item.is_behind_distribution]
    pinned = [item for item in found.standings if item.source is not None]
    asked = [item for item in pinned if item.newest is not None]
    answer = _answer(len(behind), len(asked), len(pinned))
    if packaged:
        names = ", ".join(dict.fromkeys(item.allocator.name for item in packaged))
        answer += f" The distribution has a newer version of {names}."
    screen.line(answer)
    screen.line()
    heads = ("name", "pinned", "from", "newest there", "distribution")
    rows = tuple(_standing_row(item) for item in found.standings)
    screen.table(Table("", heads, rows, optional=(1, 3), texts=True))
    if behind or packaged:
        screen.line()
    if behind:
        names = " ".join(dict.fromkeys(item.allocator.name for item in behind))
        screen.line(f"To build the newest: cairn allocators get --newest {names}")
    if packaged:
        names = " ".join(dict.fromkeys(item.allocator.name for item in packaged))
        screen.line(
            "To get the distribution's newer version: "
            f"cairn allocators get --from distribution {names}"
        )
    return screen.text()


def _answer(behind: int, asked: int, pinned: int) -> str:
    if asked == 0:
        return "Not known: no registry could be read."
    left = pinned - asked
    others = f", and {left} could not be looked up" if left else ""
    if behind == 0:
        which = f"{asked} of {pinned} pinned releases {'is' if asked == 1 else 'are'}"
        if not left:
            which = "The pinned release is" if asked == 1 else f"All {asked} pinned releases are"
        return f"{which} the newest{others}."
    verb = "has" if behind == 1 else "have"
    return f"{behind} of {pinned} pinned releases {verb} a newer one{others}."


def _standing_row(item: Standing) -> tuple[Cell, ...]:
    source, newest = item.source, item.newest
    number = "–" if source is None else "not known"
    if newest is not None:
        number = newest.number.partition("+")[0] + (" ▲" if item.is_outdated else "")
    packaged = (item.packaged or "–") + (" ▲" if item.is_behind_distribution else "")
    texts = (
        item.allocator.name,
        source.version if source else "–",
        source.origin if source else "no registry",
        number,
        packaged,
    )
    good = False if item.is_outdated or item.is_behind_distribution else None
    return tuple(Cell(printable(text), good) for text in texts)


def outdated_document(found: Survey) -> str:
    """Returns the pinned releases and the newest ones as one JSON document."""
    parts = {
        "schema": SCHEMA,
        "pins": [
            {
                "allocator": item.allocator.name,
                "version": item.source.version if item.source else None,
                "kind": item.source.kind if item.source else None,
                "package": item.source.package if item.source else None,
                "release": item.source.release if item.source else None,
                "newest": item.newest.number if item.newest else None,
                "newest_sha256": item.newest.sha256 if item.newest else None,
                "distribution": item.packaged,
                "outdated": None if item.source and not item.newest else item.is_outdated,
            }
            for item in found.standings
        ],
        "failures": list(found.failures),
    }
    return json.dumps(parts, ensure_ascii=True, indent=1)


def _sha256(item: Found) -> str | None:
    """Returns the library's checksum; None for the system's allocator and an unreadable file."""
    if item.path is None or not os.path.isfile(item.path):
        return None
    try:
        return file_sha256(item.path)
    except OSError:
        return None


def _damage(item: Found, now: str | None) -> str | None:
    """Returns a sentence if a library in the cache has changed since it came there, else None.

    None for a library that the user added by its path, since a caveat reports its change.
    """
    by_path = item.origin == f"file {item.path}"  # as register.add() records it
    if not item.cached or by_path or None in (item.sha256, now) or now == item.sha256:
        return None
    name = item.allocator.library_of or item.allocator.name
    return (
        f"{item.path} has changed since it came into the cache; "
        f"run 'cairn allocators remove {name}', then get or add it again"
    )
