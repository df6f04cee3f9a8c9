"""The figures of `profile.layout` with their names and units, and their table in a report.

The figures say where the allocator places blocks on pages and cache lines.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from msgspec import Struct

from cairn import units
from cairn.model import Interval
from cairn.profile.estimates import LEVEL, Estimate
from cairn.profile.layout import Figure, Layout
from cairn.profile.tally import GROUPS, Profile
from cairn.report.profile_numbers import about, each
from cairn.report.tables import Cell, Table

TITLE = "where blocks lie"
_SIZES = ("≤ 1 KiB", "≤ 32 KiB", "larger")
"""The requested sizes of the blocks in each of GROUPS."""
_PEAK_LEAST = 0.9
"""A snapshot is said to be "at the peak" if it has at least this share of the peak's live bytes."""


class LayoutRow(Struct, frozen=True):
    """One figure. If `is_first` is False, only the full report shows it."""

    key: str
    """The name of the figure in JSON and CSV."""
    text: str
    unit: str
    """"share", "bytes", "pages", "lines" or "operations"."""
    group: str | None
    figure: Figure
    is_first: bool = True


def rows(layout: Layout) -> Iterator[LayoutRow]:
    """Yields the figures that are known, in the order of the table."""
    several = "lines with blocks of several threads"
    found: list[tuple[str, str, str, Figure | None, bool]] = [
        ("page_use", "live bytes on the OS pages they touch", "share", layout.page_use, True),
        ("line_use", "live bytes on the cache lines they touch", "share", layout.line_use, True),
        ("pages_per_mib", "OS pages per live MiB", "pages", layout.pages_per_mib, True),
        ("lines_per_mib", "cache lines per live MiB", "lines", layout.lines_per_mib, False),
        ("active_conflicts", f"{several}, as handed out", "share", layout.active_conflicts, True),
        (
            "passive_conflicts",
            f"{several}, after remote frees",
            "share",
            layout.passive_conflicts,
            True,
        ),
        ("watched_lines", "of these, watched", "lines", _exact(layout.watches.lines), False),
        (
            "confirmed_lines",
            "of these, written by two threads",
            "lines",
            _exact(layout.watches.confirmed if layout.watches.lines else 0),
            False,
        ),
        (
            "reuse_operations",
            "operations from a free to the next use",
            "operations",
            layout.reuse_operations,
            True,
        ),
        ("quick_reuse", "reused within 16 operations", "share", layout.quick_reuse, False),
        ("slow_reuse", "reused after more than 1,000", "share", layout.slow_reuse, False),
        ("other_reuse", "reused after a remote free", "share", layout.other_reuse, True),
        ("set_share", "≥ 4 KiB in the fullest cache set", "share", layout.set_share, True),
    ]
    for key, text, unit, figure, is_first in found:
        if figure is not None:
            yield LayoutRow(key, text, unit, None, figure, is_first)
    for place, near in enumerate(layout.neighbours):
        size = _SIZES[place]
        by_group: list[tuple[str, str, str, Figure | None, bool]] = [
            ("straddling", "on more lines than needed", "share", near.straddling, place == 0),
            ("distance_bytes", "to the next block", "bytes", near.distance_bytes, place < 2),
            (
                "alike_distance_bytes",
                "to the next block of like size",
                "bytes",
                near.alike_distance_bytes,
                False,
            ),
            (
                "alike_further",
                "next block of like size on another page",
                "share",
                near.alike_further,
                False,
            ),
            ("header_bytes", "between equal neighbours", "bytes", near.header_bytes, place < 2),
            ("same_line", "next block on the same line", "share", near.same_line, False),
            ("next_line", "next block one line away", "share", near.next_line, False),
            ("same_page", "next block on the same page", "share", near.same_page, False),
            ("further", "next block on another page", "share", near.further, place == 0),
        ]
        for key, text, unit, figure, is_first in by_group:
            if figure is not None:
                yield LayoutRow(key, f"{size}: {text}", unit, GROUPS[place], figure, is_first)


def _exact(number: int) -> Figure | None:
    """A count as a figure; None for 0, because a row with 0 lines would say nothing."""
    return Figure(number, number, number) if number else None


def watched(layout: Layout) -> str:
    """Returns a sentence on the writes to cache lines with blocks of several threads.

    Hardware breakpoints counted these writes. The result is "" if there are no such lines.
    """
    found, conflicts = layout.watches, (layout.active_conflicts, layout.passive_conflicts)
    if not any(one is not None and one.value > 0 for one in conflicts):
        return ""
    about_lines = "lines with live blocks of several threads"
    if found.lines:
        least, most = found.least_bytes, found.most_bytes
        sizes = units.size(most) if least == most else f"{units.size(least)} to {units.size(most)}"
        of = f", with blocks of {sizes}" if found.confirmed else ""
        watches = units.counted(found.lines, "watched line")
        return (
            f"{about_lines}: two threads wrote to {found.confirmed} of {watches} within "
            f"{units.time(found.longest_ns)}{of}"
        )
    if found.refused:
        reason = errno.errorcode.get(found.refused, f"error {found.refused}")
        return (
            f"{about_lines}: whether several threads write to them is not confirmed here, because "
            f"the kernel refuses hardware breakpoints ({reason})"
        )
    return (
        f"{about_lines}: whether several threads write to them is not confirmed here, because none "
        "was found while the program ran for long enough"
    )


def layout_table(profile: Profile, *, full: bool) -> Table:
    """Returns the table of figures. It has no rows if the layout was not recorded."""
    layout = profile.layout
    if layout is None:
        return Table("", (TITLE, ""), (), False)
    cells = tuple(
        (Cell("  " + row.text), Cell(_value(row))) for row in rows(layout) if full or row.is_first
    )
    return Table("", (TITLE, _when(layout, profile)), cells, False)


def _when(layout: Layout, profile: Profile) -> str:
    """Returns the moment for which the figures of pages and lines hold, as a column's head."""
    peak = profile.largest.peak_live_bytes
    if layout.snapshot_bytes >= _PEAK_LEAST * peak:
        return "at the peak"
    return f"when {units.size(layout.snapshot_bytes)} were live"


def _value(row: LayoutRow) -> str:
    figure = row.figure
    found = Estimate(figure.value, Interval(figure.low, figure.high, LEVEL))
    if row.unit == "share":
        return about(found)
    if row.unit == "bytes":
        value, low, high = (units.size(round(n)) for n in (figure.value, figure.low, figure.high))
        return value if low == high else f"{value} ({low} to {high})"
    return each(found)
