"""The report of 'cairn profile --pid': the allocator's share of CPU time, and what it consists of.

It shows the parts of the share, the costliest functions, and the functions that call the allocator.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

import msgspec

from cairn import units
from cairn.inspect.attached import NOT_KNOWN, OVERLAP_OF_MILLION, AttachedShare
from cairn.profile.hot_functions import shown_name
from cairn.report.formatting import printable, shortened
from cairn.report.profile_numbers import about, percent
from cairn.report.run_csv import inert
from cairn.report.tables import Cell, Table
from cairn.report.terminal import Screen
from cairn.report.view import View

SCHEMA = 1
_SHOWN, _SHOWN_FULL = 6, 30
"""The most functions, callers and stacks that are shown, without and with --full."""
_NAME_MOST = 44
_CALLED_LEAST = 100
"""With fewer samples in the allocator, no sentence names the function that the allocator works for
most. With 100 samples, a share of 50 % is known to within ±10 percentage points."""
_STACK_MOST = 400
_UNKNOWN_LEAST = 0.005
NOT_THIS_WAY = (
    "Not known this way: how many calls there are and how long each one takes, live and allocated "
    "bytes, and waiting for locks. 'cairn profile -- PROG' counts all that in a new run, and "
    "'cairn inspect' looks at the memory. A processor works on the allocator and on the program at "
    "once: the time that the program would save without the allocator may differ from the share by "
    f"up to {100 * OVERLAP_OF_MILLION:.1f} percentage points for each million calls in a second of "
    "CPU time."
)


def render(found: AttachedShare, view: View) -> str:
    """Returns the report as text."""
    screen = Screen(view)
    for place, sentence in enumerate(answer(found)):
        screen.line(printable(sentence), "" if place else "bold")
    most = _SHOWN_FULL if view.full else _SHOWN
    for table in (_parts(found), _functions(found, most), _callers(found, most)):
        if table.rows:
            screen.line()
            screen.table(table)
    if view.full and found.stacks:
        screen.line()
        screen.line("call stacks, the innermost function first", "bold")
        for one in found.stacks[:most]:
            text = " ‹ ".join(map(printable, one.functions)) or "not known"
            screen.line(
                f"{units.counted(one.samples, 'sample')}: {shortened(text, _STACK_MOST)}",
                indent=2, hanging=2,
            )  # fmt: skip
    screen.line()
    for sentence in caveats(found):
        screen.line(f"▲ {printable(sentence)}", "yellow", hanging=2)
    screen.line(NOT_THIS_WAY, "dim")
    return screen.text()


def answer(found: AttachedShare) -> Iterator[str]:
    """Yields the share and its basis, as sentences."""
    who = f"{found.name} ({found.pid})"
    name = found.allocator.name
    if found.allocator.version:
        name += f" {found.allocator.version}"
    if found.share is None:
        yield f"{who}: {found.why_not[:1].lower()}{found.why_not[1:]}"
        return
    yield f"{name} takes {about(found.share)} of the CPU time of {who}."
    used = units.time(found.cpu_s * 1e9)
    samples = units.counted(found.samples, "clock sample was", "clock samples were")
    yield (
        f"In {units.about(found.seconds)}, the process used {used} of CPU time, and {samples} "
        "taken."
    )
    inside = sum(one.samples for one in found.callers)
    caller = next(iter(found.callers), None)
    if caller is not None and caller.name != NOT_KNOWN and inside >= _CALLED_LEAST:
        yield f"{about(caller.share)} of the allocator's time is for {printable(caller.name)}."


def caveats(found: AttachedShare) -> Iterator[str]:
    """Yields sentences on the reasons why the share is uncertain."""
    if found.scope == "threads":
        yield (
            "Each thread has a clock of its own, since the kernel does not permit a clock of the "
            "processors: threads that live for some milliseconds have too few samples. Root, or "
            "kernel.perf_event_paranoid=0, permits it."
        )
    if found.scope == "threads in user mode":
        yield (
            "The kernel does not permit samples in the kernel: the time there is not attributed. "
            "Root, or kernel.perf_event_paranoid=0, permits it."
        )
    for count, why in (
        (found.unwatched - found.unwatched_refused, "there are too many threads"),
        (found.unwatched_refused, found.clock_refused),
    ):
        if count:
            yield (
                f"{units.counted(count, 'thread')} had no clock, since {why}; those with the most "
                "CPU time had one."
            )
    if found.without_stack:
        known = sum(one.samples for one in found.stacks)
        yield (
            f"The callers are those of the first {units.count(known)} samples in the allocator. "
            f"Those of {units.counted(found.without_stack, 'later sample')} are not known."
        )
    if found.share is not None and found.unknown >= _UNKNOWN_LEAST:
        yield (
            f"{percent(found.unknown)} of the CPU time cannot be attributed. The shares are shares "
            "of the rest."
        )
    if found.is_ended:
        yield "The process ended before the time was over."


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    cells = tuple((Cell(f"  {row[0]}"), *(Cell(text) for text in row[1:])) for row in rows)
    return Table("", (title, *heads), cells)


def _parts(found: AttachedShare) -> Table:
    if found.share is None:
        return _table("CPU time", ("share",), [])
    inside = "page faults in it"
    parts = [("allocator code", found.own), ("its system calls", found.calls)]
    if found.interrupts is None:
        inside = "page faults and interrupts in it"
    parts.append((inside, found.faults))
    if found.interrupts is not None:
        parts.append(("interrupts in it", found.interrupts))
    return _table("CPU time", ("share",), [(name, percent(part)) for name, part in parts])


def _functions(found: AttachedShare, most: int) -> Table:
    own = os.path.basename(found.allocator.path or "")
    rows = [
        (
            shortened(printable(shown_name(one.name, one.library, own)), _NAME_MOST),
            about(one.share), units.count(one.samples),
        )
        for one in found.functions[:most]
    ]  # fmt: skip
    return _table("functions in its code", ("of CPU time", "samples"), rows)


def _callers(found: AttachedShare, most: int) -> Table:
    shown = found.callers[:most]
    rest = found.callers[most:]
    rows = [
        (
            shortened(printable(one.name or "not known"), _NAME_MOST),
            about(one.share), units.count(one.samples),
        )
        for one in shown
    ]  # fmt: skip
    if rest:
        whole = sum(one.samples for one in found.callers)
        count = sum(one.samples for one in rest)
        rows.append(
            (f"{units.count(len(rest))} others", percent(count / whole), units.count(count))
        )
    return _table("for whom it works", ("of its time", "samples"), rows)


def document(found: AttachedShare, *, cairn: str) -> str:
    """Returns everything as one JSON document."""
    parts: dict[str, Any] = {
        "schema": SCHEMA,
        "cairn": cairn,
        "attached": msgspec.to_builtins(found),
        "says": [printable(one) for one in answer(found)],
        "caveats": [printable(one) for one in caveats(found)],
        "not_known": NOT_THIS_WAY,
    }
    return json.dumps(parts, ensure_ascii=True, indent=1) + "\n"


def collapsed(found: AttachedShare) -> str:
    """Returns a line for each call stack: its functions, outermost first, and its samples."""
    lines = []
    for stack in found.stacks:
        names = [printable(one).replace(";", ":") for one in reversed(stack.functions)]
        lines.append(f"{';'.join(names) or 'not known'} {stack.samples}\n")
    return "".join(lines)


def rows(found: AttachedShare) -> str:
    """Returns the tables as CSV: `cpu time`, `functions`, `callers` and `stacks`.

    In `cpu time` and `functions`, the column `share` is a share of the process's CPU time. In
    `callers` and `stacks`, it is a share of the allocator's part of this time.
    """
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("table", "name", "library", "samples", "share", "low", "high"))
    for row in _rows(found):
        writer.writerow([inert(printable(v) if isinstance(v, str) else v) for v in row])
    return file.getvalue()


def _rows(found: AttachedShare) -> Iterator[tuple[object, ...]]:
    if found.share is not None:
        ends = found.share.interval
        name = found.allocator.name
        yield "cpu time", name, "", found.samples, found.share.value, ends.low, ends.high
        for part in ("own", "calls", "faults", "interrupts", "unknown"):
            yield "cpu time", part, "", "", getattr(found, part), "", ""
    for one in found.functions:
        ends = one.share.interval
        yield (
            "functions", one.name, one.library, one.samples, one.share.value, ends.low, ends.high,
        )  # fmt: skip
    for caller in found.callers:
        ends = caller.share.interval
        yield (
            "callers", caller.name or "not known", "", caller.samples, caller.share.value,
            ends.low, ends.high,
        )  # fmt: skip
    whole = sum(one.samples for one in found.stacks)
    for stack in found.stacks:
        yield (
            "stacks", ";".join(reversed(stack.functions)) or "not known", "", stack.samples,
            stack.samples / whole, "", "",
        )  # fmt: skip
