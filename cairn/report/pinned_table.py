"""The functions that keep nearly empty memory resident: table, sentences, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cairn import units
from cairn.profile.call_stacks import SPANS, StacksFile
from cairn.profile.callers import Frame, Held, Stack, Sums, functions
from cairn.report.callers_table import name
from cairn.report.tables import Cell, Table

SHOWN = 10
"""The most functions in the table."""
_LEAST = 256 << 10
"""The report has no table if less than this number of bytes is nearly empty memory. Some nearly
empty memory is usual, such as the memory at the ends of a heap."""
_SHARE_LEAST = 0.01
"""A function is left out if its blocks hold less than this share of the nearly empty memory."""
_EMPTY = {
    "chunks": "chunks of 2 MiB that are less than 10 % used",
    "pages": "pages that are less than 10 % used",
}
_WHERE = {"chunks": f"in {_EMPTY['chunks']}", "pages": f"on {_EMPTY['pages']}"}


def _held(sums: Sums) -> dict[str, Held]:
    return {"pages": sums.pages, "chunks": sums.chunks}


def _total(files: Sequence[StacksFile], span: str) -> tuple[int, int]:
    """The number of nearly empty pages or chunks (`span`) of all processes, and their bytes."""
    known = [file.sparse[span] for file in files if file.sparse is not None]
    return sum(one for one, _ in known), sum(held for _, held in known)


def _main(files: Sequence[StacksFile]) -> str:
    """The kind of span, "pages" or "chunks", of which the nearly empty ones have more bytes."""
    return max(SPANS, key=lambda span: _total(files, span)[1])


def nearly_empty(files: Sequence[StacksFile]) -> str:
    """The clause on the nearly empty memory of all processes; "" if pinned_table() has no rows.

    It is "chunks of 2 MiB that are less than 10 % used hold 31.8 MiB at the end".
    """
    main = _main(files)
    held = _total(files, main)[1]
    return f"{_EMPTY[main]} hold {units.size(held)} at the end" if held >= _LEAST else ""


def _holders(files: Sequence[StacksFile], found: Sequence[Stack]) -> list[tuple[Frame, Sums]]:
    """The functions whose blocks keep nearly empty pages or chunks resident.

    The function whose blocks keep the most bytes comes first.
    """
    main = _main(files)
    rows = [row for row in functions(found) if any(one.blocks for one in _held(row[1]).values())]
    return sorted(rows, key=lambda row: (-_held(row[1])[main].held, row[0]))


def pinned_table(files: Sequence[StacksFile], found: Sequence[Stack]) -> Table:
    """A row for each of the functions whose blocks keep the most nearly empty memory.

    The table has no rows if there is little such memory, or if it is not known.
    """
    main = _main(files)
    whole = _total(files, main)[1]
    rows = []
    for frame, sums in _holders(files, found)[:SHOWN] if whole >= _LEAST else ():
        held = _held(sums)
        if held[main].held < _SHARE_LEAST * whole:
            continue
        rows.append(
            (
                Cell("  " + name(frame, 40)),
                *(Cell(text) for span in ("chunks", "pages") for text in _cells(held[span])),
            )
        )
    heads = ("who keeps memory", *("in chunks", "blocks", "each"), *("on pages", "blocks", "each"))
    return Table("", heads, tuple(rows), parts=(3, 3), optional=(0 if main == "pages" else 1,))


def _cells(held: Held) -> tuple[str, str, str]:
    """The held bytes, the number of blocks, and their mean size."""
    if not held.blocks:
        return "0 B", "0", ""
    mean = units.size(round(held.bytes / held.blocks))
    return units.size(round(held.held)), units.count(round(held.blocks)), mean


def pinned_answer(files: Sequence[StacksFile], found: Sequence[Stack]) -> str:
    """The sentence on the function whose blocks keep the most nearly empty memory.

    It is "" if pinned_table() has no rows.
    """
    if not pinned_table(files, found).rows:
        return ""
    main = _main(files)
    frame, sums = _holders(files, found)[0]
    one = _held(sums)[main]
    blocks = units.counted(round(one.blocks), "block")
    each = units.counted(round(one.bytes / one.blocks), "byte")
    average = " on average" if one.blocks > 1 else ""
    return (
        f"{blocks} of {each}{average}, allocated by {name(frame, 40)}, hold "
        f"{units.size(round(one.held))}: at the end they lie {_WHERE[main]}."
    )


def pinned_notes(files: Sequence[StacksFile]) -> list[str]:
    """The sentences below the table. There are none unless all blocks were recorded."""
    exact = [file for file in files if file.way == "exact" and file.samples]
    unknown = sum(file.sparse is None for file in exact)
    notes = []
    if unknown:
        processes = units.counted(unknown, "process", "processes")
        notes.append(
            f"▲ It is not known which blocks keep nearly empty memory in {processes}. This can be "
            "known only if a process is not a child of fork, installs no filter of system calls, "
            "and is not killed."
        )
    if unknown == len(exact):
        return notes
    (pages, _), (chunks, _) = (_total(files, span) for span in SPANS)
    if max(_total(files, span)[1] for span in SPANS) < _LEAST:
        notes.append(
            f"Pages and chunks of 2 MiB that are less than 10 % used hold less than "
            f"{units.size(_LEAST)} at the end."
        )
    else:
        notes.append(
            f"At the end, {units.counted(chunks, 'chunk')} of 2 MiB and "
            f"{units.counted(pages, 'page')} had live blocks on less than 10 % of their bytes. "
            "The blocks of a chunk or page hold equal parts of its resident bytes. These pages may "
            "lie in these chunks."
        )
    return notes


def pinned_document(files: Sequence[StacksFile], found: Sequence[Stack]) -> dict[str, Any] | None:
    """The numbers of the table for the JSON document; None if no process has them."""
    known = [file for file in files if file.sparse is not None]
    if not known:
        return None
    return {
        "processes": len(known),
        **{
            span: dict(zip(("count", "held_bytes"), _total(files, span), strict=True))
            for span in SPANS
        },
        "functions": [
            {
                "function": frame.function,
                "library": frame.library,
                **{
                    span: {
                        "blocks": round(one.blocks),
                        "block_bytes": round(one.bytes),
                        "held_bytes": round(one.held),
                    }
                    for span, one in _held(sums).items()
                },
            }
            for frame, sums in _holders(files, found)
        ],
    }


def pinned_rows(files: Sequence[StacksFile], found: Sequence[Stack]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the table `who keeps memory` for CSV."""
    if all(file.sparse is None for file in files):
        return
    for frame, sums in _holders(files, found):
        for span, one in _held(sums).items():
            for unit, value in (("bytes", one.held), ("blocks", one.blocks)):
                yield {
                    "table": "who keeps memory",
                    "name": f"{frame.function} in {frame.library}",
                    "group": span,
                    "unit": unit,
                    "value": value,
                }
