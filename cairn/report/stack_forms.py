"""Call stacks for other programs: collapsed stacks, speedscope's JSON and pprof's protobuf."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from cairn.profile.call_stacks import StacksFile
from cairn.profile.callers import Frame, Stack, Sum, Sums, functions
from cairn.report.pinned_table import pinned_document


def _values(sums: Sums) -> tuple[int, ...]:
    """Allocated bytes and blocks, bytes at the peak and at the end, and temporary blocks."""
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
    """A line for each stack: its functions, outermost first, and its allocated bytes."""
    lines = []
    for stack in stacks:
        if count := round(stack.sums.allocated.bytes):
            names = (_plain(frame.function).replace(";", ":") for frame in stack.frames)
            lines.append(f"{';'.join(names)} {count}\n")
    return "".join(lines)


def _plain(text: str) -> str:
    """The text in one line of UTF-8."""
    return "".join(c if c.isprintable() else "?" for c in text)


def speedscope(stacks: Sequence[Stack], title: str) -> str:
    """A file for speedscope with a profile for each kind of bytes and blocks."""
    numbers: dict[Frame, int] = {}
    paths = [
        [numbers.setdefault(frame, len(numbers)) for frame in stack.frames] for stack in stacks
    ]
    frames = [{"name": _plain(one.function), "file": _plain(one.library)} for one in numbers]
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
    return {
        "ways": sorted({file.way for file in files}),
        "every_bytes": [min(file.every_first for file in files), max(file.every for file in files)],
        "samples": sum(file.samples for file in files),
        "without_room": sum(file.without_room for file in files),
        "unread": sum(file.unread for file in files),
        "unwatched": sum(file.unwatched for file in files),
        "problems": sorted({file.problem for file in files if file.problem}),
        "functions": [
            {"function": frame.function, "library": frame.library, **_sums(sums)}
            for frame, sums in functions(stacks)
        ],
        "stacks": [
            {"frames": [frame.function for frame in stack.frames], **_sums(stack.sums)}
            for stack in stacks
        ],
        "pinned": pinned_document(files, stacks),
    }


def stack_rows(stacks: Sequence[Stack]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the table `who allocates` for CSV."""
    for frame, sums in functions(stacks):
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
                    "table": "who allocates",
                    "name": f"{frame.function} in {frame.library}",
                    "group": group,
                    "timed": sums.samples,
                    "unit": unit,
                    "value": value,
                    "value_low": ends[0],
                    "value_high": ends[1],
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
"""Go's own names, as far as Go has this kind of value."""


def pprof(stacks: Sequence[Stack]) -> bytes:
    """The message perftools.profiles.Profile of google/pprof, proto/profile.proto."""
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return texts.setdefault(_plain(value), len(texts))

    def value_type(pair: tuple[str, str]) -> bytes:
        return _number(1, text(pair[0])) + _number(2, text(pair[1]))

    parts = [_bytes(1, value_type(pair)) for pair in _SAMPLE_TYPES]
    numbers: dict[Frame, int] = {}
    libraries: dict[str, int] = {}
    for stack in stacks:
        path = [numbers.setdefault(frame, len(numbers) + 1) for frame in reversed(stack.frames)]
        space, objects, peak, end, temporary = _values(stack.sums)
        values = (objects, space, peak, end, temporary)
        parts.append(_bytes(2, _packed(1, path) + _packed(2, values)))
    for frame in numbers:
        libraries.setdefault(frame.library, len(libraries) + 1)
    for library, number in libraries.items():
        parts.append(_bytes(3, _number(1, number) + _number(5, text(library)) + _number(7, 1)))
    for frame, number in numbers.items():
        line = _bytes(4, _number(1, number))
        parts.append(_bytes(4, _number(1, number) + _number(2, libraries[frame.library]) + line))
        names = _number(2, text(frame.function)) + _number(3, text(frame.function))
        file = _number(4, text(os.path.basename(frame.library)))
        parts.append(_bytes(5, _number(1, number) + names + file))
    default = _number(14, text("alloc_space"))
    parts += [_bytes(6, one.encode("utf-8", "replace")) for one in texts]
    return b"".join((*parts, default))


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
