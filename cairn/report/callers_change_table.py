"""The difference of two profiles by function: the answer, the table, its notes, JSON and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from typing import Any

from cairn import units
from cairn.profile.callers import Frame, Stack
from cairn.profile.callers_change import PARTS, CallersChange, FunctionChange, SumChange
from cairn.profile.tally import Profile
from cairn.report.callers_table import callers_notes, name, unrecorded_note
from cairn.report.formatting import printable
from cairn.report.profile_notes import not_recorded
from cairn.report.run_csv import inert
from cairn.report.tables import Cell, Table
from cairn.report.terminal import Screen
from cairn.report.view import View

SHOWN = 10
"""The most functions in the table."""
_FORMS: dict[str, Callable[[float], str]] = {"bytes": units.size, "blocks": units.count}


def render(
    found: CallersChange,
    before: str,
    after: str,
    view: View,
    warning: str = "",
    lacking: Sequence[str] = (),
) -> str:
    """Returns the report. `before` and `after` name the two profiles. `warning` is a sentence.

    lacking: sentences about the allocations that the profiles lack.
    """
    screen = Screen(view)
    screen.line(answer(found, printable(before), printable(after)), "bold")
    table = change_table(found)
    if table.rows:
        screen.line()
        screen.table(table)
    screen.line()
    for one in (*lacking, *([warning] if warning else ())):
        screen.line(one, "yellow", indent=2)
    for note in notes(found, is_complete=not lacking):
        screen.line(note, "dim", indent=2)
    return screen.text()


def answer(found: CallersChange, before: str, after: str) -> str:
    """The sentences about the whole program."""
    texts = (("allocated", "bytes"), "allocated"), (("live", "bytes"), "left at the end")
    told = [
        _sentence(found.whole.changes[PARTS.index(part)], text, before, after)
        for part, text in texts
    ]
    return " ".join(told)


def _sentence(change: SumChange, verb: str, before: str, after: str) -> str:
    bytes_left = f"{units.size(round(change.after))} after {units.size(round(change.before))}"
    if not change.is_shown:
        return f"No difference is shown in the bytes {verb}: {bytes_left}."
    more = "more" if change.value > 0 else "less"
    return f"{after} {verb} {_size(change, abs)} {more} than {before}: {bytes_left}."


def _size(change: SumChange, form: Callable[[float], float]) -> str:
    half = (change.high - change.low) / 2
    text = units.size(round(form(change.value)))
    return text if half < 0.5 else f"{text} (±{max(1, round(100 * half / abs(change.value)))} %)"


def change_table(found: CallersChange) -> Table:
    """A row for each of the SHOWN functions with the largest proven differences."""
    rows = []
    for row in [one for one in found.functions if one.is_shown][:SHOWN]:
        allocated, blocks, live, _ = row.changes
        rows.append(
            (
                Cell("  " + name(row.frame, 40)),
                Cell(units.size(round(allocated.before))),
                Cell(units.size(round(allocated.after))),
                *(_cell(one, unit) for one, unit in ((allocated, "bytes"), (live, "bytes"))),
                _cell(blocks, "blocks"),
            )
        )
    heads = ("who allocates", "before", "after", "bytes", "at the end", "blocks")
    return Table("", heads, tuple(rows), parts=(2, 1, 1, 1), optional=(3, 0))


def _cell(change: SumChange, unit: str) -> Cell:
    if not change.is_shown:
        return Cell("0" if change.low == change.high else "none shown")
    sign, half = ("+" if change.value > 0 else "−"), (change.high - change.low) / 2
    error = "" if half < 0.5 else f" ±{max(1, round(100 * half / abs(change.value)))} %"
    return Cell(f"{sign}{_FORMS[unit](round(abs(change.value)))}{error}")


def incomplete(folder: str, profile: Profile, found: Sequence[Stack]) -> list[str]:
    """The sentences about allocations that a profile lacks, each with the name of its folder."""
    told = [one for one in callers_notes(profile.stacks, found) if one.startswith("▲")]
    if unrecorded := unrecorded_note(profile.processes, profile.stacks):
        told.append(unrecorded)
    if profile.missing:
        number = units.counted(len(profile.missing), "process", "processes")
        verb = "is" if len(profile.missing) == 1 else "are"
        told.append(f"▲ {number} {verb} missing: {not_recorded(profile.missing)}.")
    return [f"▲ {printable(folder)}: {one.removeprefix('▲ ')}" for one in told]


def notes(found: CallersChange, *, is_complete: bool = True) -> list[str]:
    """The sentences below the table. is_complete: whether no allocation is known to be missing."""
    shown = sum(row.is_shown for row in found.functions)
    left = shown - min(shown, SHOWN)
    told = []
    if not shown:
        told.append("No function is shown to differ.")
    if left:
        verb, them = ("differs", "it") if left == 1 else ("differ", "them")
        functions = units.counted(left, "more function")
        told.append(f"{functions} {verb}: --json and --csv have {them}.")
    if any(one.high > one.low for row in found.functions for one in row.changes):
        told.append(
            "± is half of an interval. The intervals of all functions hold the true differences "
            "of these two runs together in 95 of 100 cases. Other runs of the same programs can "
            "differ further."
        )
    elif is_complete:
        told.append("All allocations of both runs were recorded.")
    return told


def document(
    found: CallersChange, before: str, after: str, cairn: str, lacking: Sequence[str] = ()
) -> str:
    """The difference as JSON. lacking: as for `render`."""
    content = {
        "cairn": cairn,
        "before": before,
        "after": after,
        "incomplete": [one.removeprefix("▲ ") for one in lacking],
        "whole": _changes(found.whole),
        "functions": [
            {"function": row.frame.function, "library": row.frame.library, **_changes(row)}
            for row in found.functions
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


_NAMES = {"allocated": "allocated", "live": "at_end"}


def _changes(row: FunctionChange) -> dict[str, Any]:
    return {
        f"{_NAMES[part]}_{unit}": {
            "before": one.before,
            "after": one.after,
            "difference": one.value,
            "low": one.low,
            "high": one.high,
            "is_shown": one.is_shown,
        }
        for (part, unit), one in zip(PARTS, row.changes, strict=True)
    }


_COLUMNS = ("function", "library", "part", "unit", "before", "after", "low", "high", "is_shown")


def rows(found: CallersChange) -> str:
    """The difference as CSV: a row for each number of each function.

    The first rows are those of "(all)", the sum over all functions.
    """
    file = StringIO()
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in _lines(found):
        writer.writerow(
            {key: inert(printable(v) if isinstance(v, str) else v) for key, v in line.items()}
        )
    return file.getvalue()


def _lines(found: CallersChange) -> Iterator[dict[str, Any]]:
    whole = FunctionChange(Frame("(all)", ""), found.whole.changes)
    for row in (whole, *found.functions):
        for (part, unit), one in zip(PARTS, row.changes, strict=True):
            yield {
                "function": row.frame.function,
                "library": row.frame.library,
                "part": _NAMES[part],
                "unit": unit,
                "before": one.before,
                "after": one.after,
                "low": one.low,
                "high": one.high,
                "is_shown": one.is_shown,
            }
