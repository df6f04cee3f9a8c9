"""The report of 'cairn inspect': the answer in sentences, the memory by kind, settings, advice."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

import msgspec

from cairn import units
from cairn.inspect.advice import advice
from cairn.inspect.facts import SCHEMA, GrowthOf, Heap, Inspection
from cairn.report.formatting import COMMAND_MOST, printable, shortened
from cairn.report.run_csv import inert
from cairn.report.tables import Cell, Table
from cairn.report.terminal import Screen
from cairn.report.view import View

_HOW = {
    "preloaded": ", a preloaded library",
    "linked": ", a library that it is linked with",
    "in the program": ", which is a part of its own file",
    "C library": ", the allocator of its C library",
    "not known": "",
}
_KINDS = {
    "heap": "heap (brk)",
    "anonymous": "other private memory",
    "stacks": "stacks of threads",
    "files": "program and libraries",
    "shared memory": "shared memory",
    "huge page files": "reserved huge pages",
    "kernel": "pages of the kernel",
}
_SHOWN_LEAST = 1 << 10
"""Without --full, a kind of memory is left out if less than this number of its bytes is resident or
swapped."""
_VALUE_MOST = 34
_COLUMNS = (
    ("addresses", "size"), ("resident", "resident"), ("huge pages", "huge"),
    ("freed lazily", "lazily_freed"), ("swapped", "swapped"),
)  # fmt: skip
"""For each column of the table of memory: its head, and the field of a kind that it shows."""
_RARE = frozenset(("huge", "lazily_freed", "swapped"))
"""Columns that are left out without --full if all their numbers are 0."""


def render(found: Inspection, view: View) -> str:
    """Returns the report as text."""
    screen = Screen(view)
    for place, sentence in enumerate(answer(found)):
        screen.line(printable(sentence), "" if place else "bold")
    screen.line()
    screen.table(memory_table(found, full=view.full))
    if (settings := _settings(found, full=view.full)).rows:
        screen.line()
        screen.table(settings)
    if not found.environment:
        screen.line()
        screen.line(_no_settings(found))
    if sentences := advice(found):
        screen.line()
        for sentence in sentences:
            screen.line(f"→ {printable(shortened(sentence, 1600))}", "cyan", hanging=2)
    if view.full:
        screen.line()
        for sentence in _evidence(found):
            screen.line(printable(sentence), "dim", indent=2)
    return screen.text()


def answer(found: Inspection) -> Iterator[str]:
    """Yields the allocator, the memory, live against held, and the growth, as sentences."""
    process, serving = found.process, found.allocator
    who = f"{process.name} ({process.pid})"
    if serving.name == "not known":
        yield f"It is not known which allocator serves {who}. {serving.evidence}"
    else:
        version = f" {serving.version}" if serving.version else ""
        where = ""
        if serving.how in ("preloaded", "linked") and serving.path:
            where = f": {serving.path}"
        yield f"malloc in {who} is {serving.name}{version}{_HOW[serving.how]}{where}."
    if process.inner_pid is not None:
        yield f"In its own PID namespace, the process has the number {process.inner_pid}."
    yield _private(found)
    if found.heap is not None:
        yield _live(found.heap, serving.name)
    elif found.heap_why_not:
        yield found.heap_why_not
    if found.growth is not None:
        yield growth_of(found.growth)


def _private(found: Inspection) -> str:
    private = found.sum_of("heap", "anonymous", "stacks", "huge page files")
    text = f"It has {units.size(private.resident)} of private memory"
    if private.swapped:
        text += f", and {units.size(private.swapped)} more are swapped out"
    files = found.sum_of("files", "shared memory")
    count = units.counted(found.process.threads, "thread")
    return (
        f"{text}; its share of files and shared memory is {units.size(files.proportional)}. "
        f"It has {count} and has run for {units.duration(found.process.running_s)}."
    )


def _live(heap: Heap, name: str) -> str:
    live = units.size(heap.live_most)
    share = f"{100 * heap.live_most / heap.held:.0f} %" if heap.held else "0 %"
    if heap.live_least < heap.live_most and units.size(heap.live_least) != live:
        live = f"{units.size(heap.live_least)} to {live}"
        share = f"at most {share}"
    free = units.size(heap.free)
    resident = free if heap.free_resident is None else units.size(heap.free_resident)
    if resident != free:
        free = f"{free} are free, of which {resident} are resident"
    else:
        free = f"{free} are free"
    arenas = units.counted(heap.arenas, "arena")
    return (
        f"{name} holds {units.size(heap.held)} in {arenas}. Of these, {live} are live blocks "
        f"({share}), and {free}."
    )


def growth_of(growth: GrowthOf) -> str:
    """Returns the sentence on growth."""
    if growth.per_s is None or growth.low is None or growth.high is None:
        return growth.why_not
    length = f"{units.about(growth.seconds)} ({growth.readings} readings)"
    if growth.low == growth.high == 0:
        return f"Its private memory neither grew nor shrank in {length}."
    if growth.low > 0 or growth.high < 0:
        verb = "grows" if growth.low > 0 else "shrinks"
        sign = 1 if growth.low > 0 else -1
        ends = sorted((sign * growth.low, sign * growth.high))
        return (
            f"Its private memory {verb} by {_rate(sign * growth.per_s, *ends)}, seen in {length}."
        )
    return (
        f"Neither growth nor shrinking of its private memory is shown in {length}: it changes by "
        f"{_rate(growth.per_s, growth.low, growth.high)}."
    )


def _rate(per_s: float, low: float, high: float) -> str:
    """A rate with its interval, by the second, or by the hour if it is small."""
    largest = max(abs(per_s), abs(low), abs(high))
    factor, name = (1.0, "s") if largest >= 1024 else (3600.0, "h")
    unit = units.size(largest * factor).rpartition(" ")[2]
    divisor = 1024.0 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit) / factor
    half = (high - low) / 2 / divisor
    digits = 2 if half < 0.1 else 1 if half < 1 else 0
    texts = [f"{one / divisor:,.{digits}f}".replace("-", "−") for one in (per_s, low, high)]
    if texts[1] == texts[2]:
        return f"{texts[0]} {unit}/{name}"
    return f"{texts[0]} {unit}/{name} ({texts[1]} to {texts[2]})"


def memory_table(found: Inspection, *, full: bool) -> Table:
    """The mappings by kind. Without `full`, small kinds and the kernel's are added up as the rest.

    The total is that of all mappings in both cases.
    """
    shown = [
        one
        for one in found.mappings
        if full or (one.resident + one.swapped >= _SHOWN_LEAST and one.kind != "kernel")
    ]
    whole = found.sum_of(*(one.kind for one in found.mappings))
    hidden = [one.kind for one in found.mappings if one not in shown]
    columns = [
        (head, name) for head, name in _COLUMNS if full or name not in _RARE or getattr(whole, name)
    ]
    rest = [("the rest", found.sum_of(*hidden))] if hidden else []
    named = [*((_KINDS[one.kind], one) for one in shown), *rest, ("total", whole)]
    rows = tuple(
        (
            Cell(f"  {name}"),
            *(Cell(units.size(getattr(one, of))) for _, of in columns),
            Cell(units.count(one.mappings)),
        )
        for name, one in named
    )
    return Table("", ("memory", *(head for head, _ in columns), "mappings"), rows)


def _settings(found: Inspection, *, full: bool) -> Table:
    rows, most = [], COMMAND_MOST if full else _VALUE_MOST
    for one in found.environment or ():
        read = {True: "yes", False: "no", None: "not known"}[one.is_read]
        rows.append((f"  {one.name}", shortened(printable(one.value), most), read))
    if full:
        rows += [(f"  {one.name}", f"{one.value:,}", "in use") for one in found.in_use]
    heads = ("settings", "value", "read by the allocator")
    cells = tuple(tuple(Cell(text) for text in row) for row in rows)
    return Table("", heads, cells, texts=True)


def _no_settings(found: Inspection) -> str:
    if found.environment is None:
        return "Its settings are not known: the kernel does not let you read its environment."
    return "Settings: none. Its environment has no variable for an allocator."


def _evidence(found: Inspection) -> Iterator[str]:
    process, serving = found.process, found.allocator
    yield f"Command: {' '.join(process.command) or process.name}"
    yield serving.evidence
    if serving.build_id:
        yield f"Its build ID is {serving.build_id}."
    if found.heap is not None:
        how = "debug symbols" if found.heap.is_by_symbols else "their form"
        yield (
            f"glibc's statistics were found by {how}. Live blocks count with the 8 bytes before "
            "each of them. Free blocks in the caches of threads that could not be read make live "
            "memory an interval. Nothing was stopped, so the numbers are of moments some "
            "milliseconds apart."
        )


def document(found: Inspection, *, cairn: str) -> str:
    """Returns everything as one JSON document, whose schema is inspect-1.json."""
    parts: dict[str, Any] = {
        "schema": SCHEMA,
        "cairn": cairn,
        "inspection": msgspec.to_builtins(found),
        "says": [printable(one) for one in answer(found)],
        "advice": [printable(one) for one in advice(found)],
    }
    return json.dumps(parts, ensure_ascii=True, indent=1) + "\n"


def rows(found: Inspection) -> str:
    """Returns all facts as CSV, with a row for the name and the value of each.

    The name is that of the fact in the JSON document. An empty value means that it is not known.
    """
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("name", "value"))
    for name, value in _flat("", msgspec.to_builtins(found)):
        writer.writerow((name, inert(printable(value) if isinstance(value, str) else value)))
    return file.getvalue()


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(f"{name}.{key}" if name else key, one)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, one in enumerate(value):
            key = one.get("kind", one.get("name")) if isinstance(one, Mapping) else None
            yield from _flat(f"{name}.{key or place}", one)
    else:
        yield name, value
