"""Which allocators are here, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cairn.catalog import Catalog, Found
from cairn.model import SCHEMA
from cairn.report.words import printable

_UNKNOWN = "unknown"


def render(catalog: Catalog, found: Sequence[Found], *, color: bool, width: int = 120) -> str:
    """Everything found, then what is known but not here and how to get it, then what to beware of."""
    file = StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for head in ("name", "version", "layout", "hardened", "licence", "origin"):
        table.add_column(head, overflow="fold")
    for item in found:
        entry = item.allocator
        hardened = _UNKNOWN if entry.hardened is None else "yes" if entry.hardened else "no"
        cells = (entry.name, item.version or _UNKNOWN, entry.layout or _UNKNOWN, hardened, entry.licence or _UNKNOWN)
        style = "red" if item.problem else ""
        table.add_row(*(Text(printable(cell), style=style) for cell in (*cells, item.origin or item.path or _UNKNOWN)))
    console.print(table)
    here = {item.allocator.name for item in found if item.problem is None}
    problems = [f"✘ {item.allocator.name}: {item.problem}" for item in found if item.problem]
    caveats = [f"▲ {e.name}: {caveat}" for e in catalog.allocators if e.name in here for caveat in e.caveats]
    missing = [entry for entry in catalog.allocators if entry.name not in here]
    packaged = [entry.name for entry in missing if entry.packages]
    others = [entry.name for entry in missing if not entry.packages]
    for lines in (problems, caveats):
        if lines:
            console.print()
            for line in lines:
                console.print(Text(printable(line)))
    console.print()
    if packaged:
        console.print(Text(f"Not here: {', '.join(packaged)}. Next: cairn allocators get {' '.join(packaged)}"))
    if others:
        console.print(
            Text(f"Known, in no package: {', '.join(others)}. Build one and give its path: -a name=/path/lib.so")
        )
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def document(catalog: Catalog, found: Sequence[Found]) -> str:
    """The same as one JSON document."""
    parts = {
        "schema": SCHEMA,
        "found": [
            {**msgspec.to_builtins(item), "allocator": item.allocator.name, "title": item.title} for item in found
        ],
        "catalog": [msgspec.to_builtins(entry) for entry in catalog.allocators],
    }
    return json.dumps(parts, ensure_ascii=True, indent=1)
