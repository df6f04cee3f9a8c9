"""Call stacks for other programs: collapsed stacks, speedscope's JSON and pprof's protobuf."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from cairn.profile.call_stacks import StacksFile
from cairn.profile.callers import Frame, Stack, Sum, Sums, by_function, functions, has_lines
from cairn.report.pinned_table import pinned_document


def _values(sums: Sums) -> tuple[int, ...]:
    """The numbers of a stack that all forms show.

    They are its allocated bytes and blocks, its bytes at the peak and at the end, and its temporary
    blocks.
    """
    return tuple(
        round(one)
        for one in (
            sums.allocated.bytes,
            sums.allocated.blocks,
            sums.peak.bytes,
            sums.live.bytes,
            sums.temporary.blocks,
        )
    )


def collapsed(stacks: Sequence[Stack]) -> str:
    """A line for each stack: its functions, outermost first, and its allocated bytes.

    The source line of a function follows in parentheses, if it is known.
    """
    lines = []
    for stack in stacks:
        if count := round(stack.sums.allocated.bytes):
            names = (_plain(_with_place(frame)).replace(";", ":") for frame in stack.frames)
            lines.append(f"{';'.join(names)} {count}\n")
    return "".join(lines)


def _with_place(frame: Frame) -> str:
    return f"{frame.function} ({frame.place})" if frame.line else frame.function


def _plain(text: str) -> str:
    """The text with "?" for each character that cannot be printed, such as a line end."""
    return "".join(c if c.isprintable() else "?" for c in text)


def speedscope(stacks: Sequence[Stack], title: str) -> str:
    """A file for speedscope with a profile for each kind of bytes and blocks."""
    numbers: dict[Frame, int] = {}
    paths = [
        [numbers.setdefault(frame, len(numbers)) for frame in stack.frames] for stack in stacks
    ]
    frames = [
        {"name": _plain(one.function), "file": _plain(one.file), "line": one.line}
        if one.line
        else {"name": _plain(one.function), "file": _plain(one.library)}
        for one in numbers
    ]
    kinds = (
        ("bytes allocated", "bytes"),
        ("blocks allocated", "none"),
        ("bytes live at the peak", "bytes"),
        ("bytes live at the end", "bytes"),
        ("temporary blocks", "none"),
    )
    profiles = []
    for place, (name, unit) in enumerate(kinds):
        weights = [_values(stack.sums)[place] for stack in stacks]
        chosen = [(path, weight) for path, weight in zip(paths, weights, strict=True) if weight]
        profiles.append(
            {
                "type": "sampled",
                "name": name,
                "unit": unit,
                "startValue": 0,
                "endValue": sum(weight for _, weight in chosen),
                "samples": [path for path, _ in chosen],
                "weights": [weight for _, weight in chosen],
            }
        )
    content = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": title,
        "activeProfileIndex": 0,
        "exporter": "cairn",
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    return json.dumps(content) + "\n"


def stacks_document(files: Sequence[StacksFile], stacks: Sequence[Stack]) -> dict[str, Any] | None:
    """The stacks for the JSON document of a profile; None if they were not recorded."""
    if not files:
        return None
    by_line = has_lines(stacks)
    return {
        "ways": sorted({file.way for file in files}),
        "every_bytes": [min(file.every_first for file in files), max(file.every for file in files)],
        "samples": sum(file.samples for file in files),
        "without_room": sum(file.without_room for file in files),
        "unread": sum(file.unread for file in files),
        "unwatched": sum(file.unwatched for file in files),
        "problems": sorted({file.problem for file in files if file.problem}),
        "by": "line" if by_line else "function",
        "functions": [
            {"function": frame.function, "library": frame.library, **_sums(sums)}
            for frame, sums in functions(by_function(stacks))
        ],
        "lines": [
            {
                **{"function": frame.function, "library": frame.library},
                **{"file": frame.file or None, "line": frame.line or None},
                **_sums(sums),
            }
            for frame, sums in (functions(stacks) if by_line else ())
        ],
        "stacks": [
            {
                "frames": [frame.function for frame in stack.frames],
                **({"places": [_place(frame) for frame in stack.frames]} if by_line else {}),
                **_sums(stack.sums),
            }
            for stack in stacks
        ],
        "pinned": pinned_document(files, stacks),
    }


def _place(frame: Frame) -> str | None:
    """The source line of a frame with the path of its file; None if it is not known."""
    return f"{frame.file}:{frame.line}" if frame.line else None


def stack_rows(stacks: Sequence[Stack]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the table `who allocates` for CSV.

    If lines are known, the table `which line allocates` follows.
    """
    yield from _rows("who allocates", by_function(stacks))
    if has_lines(stacks):
        yield from _rows("which line allocates", stacks)


def _rows(table: str, stacks: Sequence[Stack]) -> Iterator[dict[str, Any]]:
    for frame, sums in functions(stacks):
        place = f" at {frame.file}:{frame.line}" if frame.line else ""
        name = f"{frame.function}{place} in {frame.library}"
        parts = (
            *(("allocated", sums.allocated), ("at the peak", sums.peak)),
            *(("at the end", sums.live), ("temporary", sums.temporary)),
        )
        for group, one in parts:
            for unit, value, ends in (
                ("bytes", one.bytes, one.bytes_interval),
                ("blocks", one.blocks, one.blocks_interval),
            ):
                yield {
                    "table": table,
                    "name": name,
                    "group": group,
                    "timed": sums.samples,
                    "unit": unit,
                    "value": value,
                    "value_low": ends[0],
                    "value_high": ends[1],
                }
        # As in JSON, these two numbers have no interval.
        for group, value in (("freed", sums.freed), ("freed elsewhere", sums.freed_elsewhere)):
            yield {
                "table": table,
                "name": name,
                "group": group,
                "timed": sums.samples,
                "unit": "blocks",
                "value": value,
            }


def _sums(sums: Sums) -> dict[str, Any]:
    return {
        "samples": sums.samples,
        "allocated": _sum(sums.allocated),
        "at_peak": _sum(sums.peak),
        "at_end": _sum(sums.live),
        "temporary": _sum(sums.temporary),
        "freed_blocks": sums.freed,
        "freed_elsewhere_blocks": sums.freed_elsewhere,
    }


def _sum(one: Sum) -> dict[str, float]:
    (blocks_low, blocks_high), (low, high) = one.blocks_interval, one.bytes_interval
    return {
        "blocks": one.blocks,
        "blocks_low": blocks_low,
        "blocks_high": blocks_high,
        "bytes": one.bytes,
        "bytes_low": low,
        "bytes_high": high,
    }


# --- pprof ----------------------------------------------------------------------------------------

_SAMPLE_TYPES = (
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("peak_space", "bytes"),
    ("inuse_space", "bytes"),
    ("temporary_objects", "count"),
)
"""The name and the unit of each value of a stack. The names are those of Go's heap profiles, but
`peak_space` and `temporary_objects` do not exist there."""


def pprof(stacks: Sequence[Stack]) -> bytes:
    """The stacks as a file for pprof: a message Profile of proto/profile.proto in google/pprof."""
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return texts.setdefault(_plain(value), len(texts))

    def value_type(pair: tuple[str, str]) -> bytes:
        return _number(1, text(pair[0])) + _number(2, text(pair[1]))

    parts = [_bytes(1, value_type(pair)) for pair in _SAMPLE_TYPES]
    locations: dict[tuple[Frame, ...], int] = {}
    for stack in stacks:
        path = [
            locations.setdefault(one, len(locations) + 1) for one in reversed(_calls(stack.frames))
        ]
        space, objects, peak, end, temporary = _values(stack.sums)
        values = (objects, space, peak, end, temporary)
        parts.append(_bytes(2, _packed(1, path) + _packed(2, values)))
    libraries: dict[str, int] = {}
    named: dict[tuple[str, str], int] = {}
    for frames, number in locations.items():
        library = libraries.setdefault(frames[0].library, len(libraries) + 1)
        # A location has the innermost inlined function first.
        lines = b"".join(
            _bytes(4, _number(1, named.setdefault(_source(one), len(named) + 1)) + _line(one))
            for one in reversed(frames)
        )
        parts.append(_bytes(4, _number(1, number) + _number(2, library) + lines))
    # These fields of a mapping say that it has functions (7), files (8), lines (9) and inlined
    # functions (10).
    known = (7, 8, 9, 10) if has_lines(stacks) else (7,)
    has = b"".join(_number(field, 1) for field in known)
    for library, number in ((text(path), number) for path, number in libraries.items()):
        parts.append(_bytes(3, _number(1, number) + _number(5, library) + has))
    for (function, file), number in named.items():
        names = _number(2, text(function)) + _number(3, text(function))
        parts.append(_bytes(5, _number(1, number) + names + _number(4, text(file))))
    default = _number(14, text("alloc_space"))
    parts += [_bytes(6, one.encode("utf-8", "replace")) for one in texts]
    return b"".join((*parts, default))


def _calls(frames: Sequence[Frame]) -> list[tuple[Frame, ...]]:
    """The frames in groups. A group has a function and the functions that are inlined into it."""
    groups: list[tuple[Frame, ...]] = []
    for frame in frames:
        if frame.is_inlined and groups:
            groups[-1] += (frame,)
        else:
            groups.append((frame,))
    return groups


def _source(frame: Frame) -> tuple[str, str]:
    """A function and its source file. If the file is not known, its library's name is there."""
    return frame.function, frame.file or os.path.basename(frame.library)


def _line(frame: Frame) -> bytes:
    return _number(2, frame.line) if frame.line else b""


def _varint(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


def _number(field: int, value: int) -> bytes:
    return bytes((*_varint(field << 3), *_varint(value)))


def _bytes(field: int, value: bytes) -> bytes:
    return bytes((*_varint(field << 3 | 2), *_varint(len(value)))) + value


def _packed(field: int, values: Sequence[int]) -> bytes:
    return _bytes(field, b"".join(bytes(_varint(value)) for value in values))
