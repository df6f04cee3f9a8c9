"""The functions and call stacks that allocate in a profile, with their sums. Reads no file.

The function that allocates is the first frame that is neither the allocator's nor that of the
standard library (`library_code`).
A sum over sampled blocks has an interval. Its samples are independent, so the variances of sums
add. The interval is that of a weighted sum of Poisson numbers (Fay and Feuer 1997), so that it is
right for few samples, too. It has no width if all allocations were recorded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from cairn.profile.call_stacks import (
    DEEPER,
    FIRST_OBJECT,
    LIVES,
    NO_OBJECT,
    SPANS,
    Records,
    StacksFile,
)
from cairn.profile.library_code import is_library_code


class Frame(Struct, frozen=True, order=True):
    """A function on a stack."""

    function: str
    library: str
    """The path of the file that contains the function; "" if there is none."""
    file: str = ""
    """The source file of `line`; "" if it is not known."""
    line: int = 0
    """The line of the call to the next frame, or of the allocation."""
    is_inlined: bool = False
    """Whether the function is inlined into the frame before it."""

    @property
    def plain(self) -> Frame:
        """The function alone, without its line."""
        return Frame(self.function, self.library)

    @property
    def place(self) -> str:
        """The line with the name of its file, "parser.c:12"; "" if it is not known."""
        return f"{os.path.basename(self.file)}:{self.line}" if self.line else ""


Name = Callable[[str, int, str], str | tuple[Frame, ...]]
"""Returns the name of the function at an address of a file with this build ID, or the frames at
this address: the function, and then those that are inlined into it."""

GENERATED = Frame("(generated code)", "")
CUT = Frame("(further callers)", "")
UNKNOWN = Frame("(unknown)", "")
NO_ROOM = Frame("(no room)", "")

Z_95 = 1.959963984540054
"""The quantile of the normal distribution at the upper end of a 95 % interval."""


class Sum(Struct, frozen=True):
    """An estimated number of blocks, and of their bytes, with variances."""

    blocks: float = 0.0
    bytes: float = 0.0
    blocks_variance: float = 0.0
    bytes_variance: float = 0.0
    heaviest: float = 0.0
    """The most bytes for which one sampled small block can stand; 0 if all were recorded."""

    def __add__(self, other: Sum) -> Sum:
        return Sum(
            self.blocks + other.blocks,
            self.bytes + other.bytes,
            self.blocks_variance + other.blocks_variance,
            self.bytes_variance + other.bytes_variance,
            max(self.heaviest, other.heaviest),
        )

    @property
    def bytes_interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of `bytes`."""
        return self.ends("bytes")

    @property
    def blocks_interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of `blocks`."""
        return self.ends("blocks")

    def ends(self, unit: str, z: float = Z_95) -> tuple[float, float]:
        """The ends of an interval of "bytes" or "blocks".

        `z` is the quantile of the normal distribution at the upper end of the interval.
        """
        if unit == "bytes":
            return interval(self.bytes, self.bytes_variance, self.heaviest, z)
        each = self.bytes / self.blocks if self.blocks and self.bytes else 1.0
        return interval(self.blocks, self.blocks_variance, self.heaviest / each, z)


class Held(Struct, frozen=True):
    """The sparse spans that some blocks hold. A span is a page or a chunk."""

    blocks: float = 0.0
    bytes: float = 0.0
    """The requested bytes of these blocks."""
    held: float = 0.0
    """Resident bytes of the spans. The blocks of a span hold equal parts of it."""

    def __add__(self, other: Held) -> Held:
        return Held(self.blocks + other.blocks, self.bytes + other.bytes, self.held + other.held)


class Sums(Struct):
    """The sums of a stack or of a function."""

    samples: int = 0
    allocated: Sum = field(default_factory=Sum)
    live: Sum = field(default_factory=Sum)
    """Blocks that were not freed before the process ended."""
    peak: Sum = field(default_factory=Sum)
    """Blocks that were live when their process had the most live bytes."""
    temporary: Sum = field(default_factory=Sum)
    freed: float = 0.0
    freed_elsewhere: float = 0.0
    """Blocks that were freed by another thread than the one that got them."""
    lives: list[float] = field(default_factory=lambda: [0.0] * LIVES)
    pages: Held = field(default_factory=Held)
    """The sparse pages that the blocks of the stack hold at the end. `chunks` has the sparse
    chunks."""
    chunks: Held = field(default_factory=Held)

    def add(self, other: Sums) -> None:
        """Adds the blocks of another stack."""
        self.samples += other.samples
        self.allocated += other.allocated
        self.live += other.live
        self.peak += other.peak
        self.temporary += other.temporary
        self.freed += other.freed
        self.freed_elsewhere += other.freed_elsewhere
        self.pages += other.pages
        self.chunks += other.chunks
        self.lives = [one + more for one, more in zip(self.lives, other.lives, strict=True)]


class Stack(Struct, frozen=True):
    """A stack that allocated; the outermost frame comes first."""

    frames: tuple[Frame, ...]
    sums: Sums

    @property
    def function(self) -> Frame:
        """The function that allocates."""
        for frame in reversed(self.frames):
            if not is_library_code(frame.function):
                return frame
        return self.frames[-1]


def interval(
    value: float, variance: float, heaviest: float, z: float = Z_95
) -> tuple[float, float]:
    """The ends of the interval of an estimated sum of weights, the 95 % interval by default.

    `z` is the quantile of the normal distribution at its upper end. `heaviest` is the largest
    weight that a sample can have. The upper end allows for one sample of this weight that was not
    drawn. The quantiles are those of Wilson and Hilferty.
    """
    if heaviest <= 0:
        return max(value, 0.0), max(value, 0.0)
    if value <= 0:
        return 0.0, -math.log(NormalDist().cdf(-z)) * heaviest
    low = _quantile(value, variance, -z) if variance > 0 else value
    high = _quantile(value + heaviest, variance + heaviest**2, z)
    return max(0.0, min(low, value)), max(value, high)


_ROUNDING = 1e-9
"""Sums of floating-point numbers may be wrong by this much. A smaller sum counts as 0, and it may
even be negative."""


def _quantile(mean: float, variance: float, z: float) -> float:
    """The quantile at `z` standard deviations of a gamma distribution."""
    shape = mean * mean / variance
    return mean * (1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3


def stacks(files: Sequence[StacksFile], name: Name) -> tuple[Stack, ...]:
    """The stacks of all processes by their frames, those with the most bytes first."""
    found: dict[tuple[Frame, ...], Sums] = {}
    for file in files:
        frames = [_frames(file, node, name) for node in file.nodes]
        parents = file.nodes["parent"].tolist()
        heaviest = float(file.every) if file.way == "sampled" else 0.0
        for place, site in enumerate(file.sites):
            if not site["samples"]:
                continue
            path = _path(int(site["node"]), frames, parents) if place else (NO_ROOM,)
            found.setdefault(path or (UNKNOWN,), Sums()).add(_sums(site, heaviest))
    return _ordered(found)


def by_function(found: Iterable[Stack]) -> tuple[Stack, ...]:
    """The stacks without source lines: those that differ in a line only are added up."""
    merged: dict[tuple[Frame, ...], Sums] = {}
    for stack in found:
        merged.setdefault(tuple(one.plain for one in stack.frames), Sums()).add(stack.sums)
    return _ordered(merged)


def _ordered(found: Mapping[tuple[Frame, ...], Sums]) -> tuple[Stack, ...]:
    rows = [Stack(frames, sums) for frames, sums in found.items()]
    return tuple(sorted(rows, key=lambda one: (-one.sums.allocated.bytes, one.frames)))


def has_lines(found: Iterable[Stack]) -> bool:
    """Whether a source line is known."""
    return any(frame.line for stack in found for frame in stack.frames)


def functions(found: Iterable[Stack]) -> tuple[tuple[Frame, Sums], ...]:
    """The functions that allocate, those with the most bytes first.

    If the stacks have source lines, each line of a function is listed by itself.
    """
    sums: dict[Frame, Sums] = {}
    for stack in found:
        sums.setdefault(replace(stack.function, is_inlined=False), Sums()).add(stack.sums)
    return tuple(sorted(sums.items(), key=lambda one: (-one[1].allocated.bytes, one[0])))


def total(found: Iterable[Stack]) -> Sums:
    """The sums over all stacks."""
    whole = Sums()
    for stack in found:
        whole.add(stack.sums)
    return whole


class Branch(Struct):
    """A function in the tree of callers, with the sums of all stacks that pass it."""

    frame: Frame
    sums: Sums
    callees: dict[Frame, Branch] = field(default_factory=dict)
    lines: dict[str, float] = field(default_factory=dict)
    """The allocated bytes of each line of the function, if lines are known."""

    @property
    def ordered(self) -> list[Branch]:
        """The callees, those with the most bytes first."""
        return sorted(self.callees.values(), key=lambda one: (-one.sums.allocated.bytes, one.frame))


def tree(found: Iterable[Stack], *, by_line: bool = True) -> Branch:
    """The tree of callers. The root stands for all stacks.

    by_line: whether the lines of a function are branches of their own, if they are known.
    """
    root = Branch(Frame("", ""), Sums())
    for stack in found:
        branch = root
        branch.sums.add(stack.sums)
        for frame in stack.frames:
            key = frame if by_line else frame.plain
            branch = branch.callees.setdefault(key, Branch(key, Sums()))
            branch.sums.add(stack.sums)
            if frame.line:
                most = branch.lines.get(frame.place, 0.0) + stack.sums.allocated.bytes
                branch.lines[frame.place] = most
    return root


def _frames(file: StacksFile, node: np.void, name: Name) -> tuple[Frame, ...]:
    """The frames of a node, the outermost first."""
    number = int(node["object"])
    if number == NO_OBJECT:
        return (GENERATED,)
    if number == DEEPER:
        return (CUT,)
    place = number - FIRST_OBJECT
    path = file.paths[place] or file.program
    found = name(path, int(node["place"]), file.build_ids[place])
    return (Frame(found, path),) if isinstance(found, str) else found


def _path(node: int, frames: list[tuple[Frame, ...]], parents: list[int]) -> tuple[Frame, ...]:
    """The frames from the outermost one to a node. Nodes come after their parents."""
    path: list[Frame] = []
    while node:
        path.extend(reversed(frames[node]))
        node = parents[node]
    return tuple(reversed(path))


def _sums(site: np.void, heaviest: float) -> Sums:
    return Sums(
        samples=int(site["samples"]),
        allocated=_sum(site["allocated"], heaviest),
        live=_sum(site["live"], heaviest),
        peak=_sum(site["peak"], heaviest),
        temporary=_sum(site["temporary"], heaviest),
        freed=float(site["freed"]),
        freed_elsewhere=float(site["freed_elsewhere"]),
        lives=[float(one) for one in site["lives"]],
        pages=_held(site["pinned"][SPANS.index("pages")]),
        chunks=_held(site["pinned"][SPANS.index("chunks")]),
    )


def _held(record: Records) -> Held:
    blocks, size, held = (max(0.0, float(record[name])) for name in ("blocks", "bytes", "held"))
    return Held(blocks, size, held) if blocks >= 1 else Held()


def _sum(record: Records, heaviest: float) -> Sum:
    blocks, size, blocks_variance, bytes_variance = (
        value if (value := float(record[name])) > _ROUNDING else 0.0
        for name in ("blocks", "bytes", "blocks_variance", "bytes_variance")
    )
    return Sum(blocks, size, blocks_variance, bytes_variance, heaviest)
