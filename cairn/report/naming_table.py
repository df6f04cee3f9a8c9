"""The report of 'cairn symbolize': the answer, a table of the files, and notes on missing names."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from cairn import units
from cairn.profile.naming import Naming
from cairn.report.formatting import printable, shortened
from cairn.report.tables import Cell, Table
from cairn.report.terminal import Screen
from cairn.report.view import View

_NAME_MAX, _ID_MAX = 32, 12
NO_LINES = (
    "▲ No source line is known: the program and its libraries have no debug information here. "
    "Compile with -g, or name the folder of the debug files with --debug-path."
)


def lines_missing(install: str) -> str:
    """The sentence that says why there are no lines. `install` is the command that helps."""
    return (
        "▲ Source lines and inlined functions are left out, because the Python package symbolic "
        f"is missing. To install it: {install}"
    )


def changed(paths: Collection[str]) -> str:
    """The sentence about files that have changed since the profile; "" if there are none."""
    if not paths:
        return ""
    names = sorted(printable(os.path.basename(path)) for path in paths)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    has, its = ("has", "its") if len(names) == 1 else ("have", "their")
    return (
        f"▲ {', '.join(names[:3])}{more} {has} changed since the profile, so {its} functions are "
        "not named, unless 'cairn symbolize' kept the names. --debug-path names a folder with the "
        "file of that time."
    )


def render(namings: Sequence[Naming], kept: str, view: View, warning: str = "") -> str:
    """Returns the report. `kept` is the written file, and `warning` is one more sentence."""
    screen = Screen(view)
    screen.line(answer(namings, kept), "bold")
    screen.line()
    screen.table(naming_table(namings))
    screen.line()
    for note in notes(namings, warning):
        screen.line(note, "yellow" if note.startswith("▲") else "dim", indent=2)
    return screen.text()


def answer(namings: Sequence[Naming], kept: str) -> str:
    """The sentence about all files."""
    addresses = sum(one.addresses for one in namings)
    functions, lines = (sum(getattr(one, key) for one in namings) for key in ("functions", "lines"))
    found = sum(one.functions > 0 for one in namings)
    return (
        f"{printable(kept)} has the functions of {functions:,} of "
        f"{units.counted(addresses, 'address', 'addresses')}, and the lines of {lines:,}. "
        f"{found} of {units.counted(len(namings), 'file')} {_was(found)} found."
    )


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def naming_table(namings: Sequence[Naming]) -> Table:
    """The files with code on the recorded stacks."""
    rows = tuple(
        (
            Cell("  " + printable(shortened(os.path.basename(one.file.path), _NAME_MAX))),
            Cell(one.file.build_id[:_ID_MAX] or "none"),
            Cell(f"{one.addresses:,}"),
            Cell(f"{one.functions:,}"),
            Cell(f"{one.lines:,}"),
        )
        for one in namings
    )
    return Table(
        "",
        ("file", "build ID", "addresses", "functions", "lines"),
        rows,
        optional=(0,),
        names_missing=False,
    )


def notes(namings: Sequence[Naming], warning: str) -> list[str]:
    """The sentences below the table."""
    told = []
    unnamed = [one for one in namings if one.is_changed and one.functions < one.addresses]
    if sentence := changed([one.file.path for one in unnamed]):
        told.append(sentence)
    if gone := [
        one for one in namings if one.file.build_id and not one.functions and one not in unnamed
    ]:
        names = ", ".join(printable(os.path.basename(one.file.path)) for one in gone[:3])
        more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
        told.append(
            f"▲ No function of {names}{more} is known: no file with the same build ID and with "
            "symbols is here. --debug-path names a folder to search."
        )
    if bare := sum(not one.file.build_id and one not in unnamed for one in namings):
        told.append(
            f"▲ {units.counted(bare, 'file')} {'has' if bare == 1 else 'have'} no build ID, so it "
            "is not known whether a file here is the same. Link with -Wl,--build-id."
        )
    if warning:
        told.append(warning)
    told.append("'cairn profile --read' shows these names on any machine.")
    return told
