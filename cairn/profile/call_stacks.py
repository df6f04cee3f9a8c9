"""Reads the call stacks that allocated: the probe's files with the ending `.stacks`.

The probe writes such a file beside its first file of a process, if call stacks are wanted.
src/record/call_stacks.h is the contract. A file may be damaged or forged, so everything is checked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cairn.errors import CairnError, cannot

SUFFIX = ".stacks"
MAGIC = b"cairnstk"
VERSION = 2
ORDER = 0x01020304
WAYS = {1: "sampled", 2: "exact"}
NO_OBJECT, DEEPER, FIRST_OBJECT = 0, 1, 2
"""Values of `object` in a node. NO_OBJECT stands for generated code, and DEEPER for the callers
that were not recorded. From FIRST_OBJECT on, the values are files."""
OBJECTS_MOST = 1024
"""The most loaded files that are told apart in a process. Code in any further one looks like
generated code."""
FRAMES_MOST = 128
TEMPORARY = 8
"""A temporary block is freed by its thread after at most this many further allocations."""
LIVES, LIFE_SHIFT = 16, 4
SPANS = ("pages", "chunks")
"""The kinds of spans. A few live blocks can keep a whole span of memory resident."""
PROBLEMS = {
    1: "the kernel does not let the probe read the stack (process_vm_readv)",
    2: "call stacks are recorded on x86-64 only",
}
_HEAD_BYTES, _CHUNK_BYTES, _CHUNKS = 4096, 32 << 10, 512
_NODES, _SITES, _OBJECTS = range(3)

_LARGEST = 2.0**200
"""A file is refused if one of its sums is larger. Real sums are far smaller. This bound makes sure
that the squares of damaged sums are finite, too."""

Records = NDArray[np.void]


class StacksFile(Struct, frozen=True, eq=False):
    """The content of one file. Tables are those of src/record/call_stacks.h."""

    pid: int
    program: str
    """Path of the program."""
    way: str
    """"sampled" or "exact"."""
    every_first: int
    """The mean number of allocated bytes from one sample to the next, at the beginning; 1 if all
    allocations were recorded."""
    every: int
    """The mean number of allocated bytes from one sample to the next, at the end."""
    samples: int
    without_room: int
    """Samples whose stack found no room in the file."""
    unread: int
    """Samples whose stack could not be read."""
    unwatched: int
    """Sampled blocks whose free was not noticed, because the table of live blocks was full."""
    problem: str
    """Why no stacks were recorded; "" if they were."""
    has_peak: bool
    sparse: dict[str, tuple[int, int]] | None
    """The sparse spans of each of SPANS at the end: their number and their resident bytes. None if
    they are not known. They are known only if all blocks were recorded."""
    nodes: Records
    sites: Records
    """In the file, `peak` of a site is not valid if the site has not changed since the peak: its
    live blocks are then those of the peak. Here, `peak` is valid in every site."""
    paths: tuple[str, ...]
    """Path of each object."""
    build_ids: tuple[str, ...]
    """Build ID of each object in hexadecimal; "" if it has none."""
    name: str
    """The name of the file in its folder."""
    begin_ns: int = 0
    """`Process.begin_ns` of the same program image."""


def head_type(order: str) -> np.dtype[np.void]:
    """The layout of struct call_stacks_head, for byte order "<" or ">"."""
    u4, u8, f8 = order + "u4", order + "u8", order + "f8"
    sizes = [f"{name}_bytes" for name in ("head", "node", "site", "object")]
    numbers = ("ns_begin", "every_first", "every", "samples", "without_room", "unread")
    moments = ("unwatched", "moment", "peak_moment", "peak_ticks")
    counts = [f"{name}_count" for name in ("node", "site", "object", "chunk")]
    return np.dtype(
        [
            ("magic", "S8"),
            *((name, u4) for name in ("order", "version", *sizes, "way", "process")),
            *((name, u8) for name in (*numbers, *moments)),
            *((name, f8) for name in ("peak_bytes", "live_bytes", "peak_seen")),
            *((name, u4) for name in ("is_counted", *counts, "problem", "pinned_known", "unused")),
            *((name, u8, len(SPANS)) for name in ("pinned_spans", "pinned_held")),
            ("chunk_table", "u1", _CHUNKS),
        ]
    )


def table_types(order: str) -> tuple[np.dtype[np.void], ...]:
    """The layouts of structs call_stacks_node, call_stacks_site and call_stacks_object."""
    u4, u8, f4, f8 = (order + kind for kind in ("u4", "u8", "f4", "f8"))
    total = np.dtype(
        [(name, f8) for name in ("blocks", "bytes", "blocks_variance", "bytes_variance")]
    )
    pinned = np.dtype([(name, f8) for name in ("blocks", "bytes", "held")])
    node = np.dtype([("parent", u4), ("object", u4), ("place", u8)])
    site = np.dtype(
        [
            *((name, u4) for name in ("node", "live_samples")),
            *((name, u8) for name in ("samples", "changed")),
            *((name, total) for name in ("allocated", "live", "peak", "temporary")),
            *((name, f8) for name in ("freed", "freed_elsewhere")),
            ("lives", f4, LIVES),
            ("pinned", pinned, len(SPANS)),
        ]
    )
    loaded = np.dtype(
        [
            *((name, u8) for name in ("start", "base")),
            *((name, u4) for name in ("unused", "id_bytes")),
            ("id", "u1", 32),
            ("path", "S448"),
            ("unused_at_end", u8),
        ]
    )
    return node, site, loaded


def stacks_of(folder: Path, programs: Mapping[tuple[int, int], str]) -> tuple[StacksFile, ...]:
    """Returns the stacks of all processes that recorded some.

    `programs` has the program of each process, by its process id and `begin_ns`. Raises CairnError
    for a damaged file.
    """
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        one = _read(path, programs)
        if one is not None:
            found.append(one)
    return tuple(found)


def _content(path: Path) -> bytes:
    most = _HEAD_BYTES + _CHUNKS * _CHUNK_BYTES
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _damaged(path, "it is not a regular file")
            return file.read(most)
    except OSError as error:
        raise cannot("read", path, error) from error


def _damaged(path: Path, why: str) -> CairnError:
    return CairnError(f"{path} has no readable call stacks: {why}; profile the program again")


def _read(path: Path, programs: Mapping[tuple[int, int], str]) -> StacksFile | None:
    """Reads a file; None if it has no magic yet, or belongs to no process that is known."""
    content = _content(path)
    if not content[: len(MAGIC)].strip(b"\0"):
        return None
    if content[: len(MAGIC)] != MAGIC:
        raise _damaged(path, "its first bytes are not those of such a file")
    if len(content) < _HEAD_BYTES:
        raise _damaged(path, "it is cut off")
    for order in "<>":
        head: np.void = np.frombuffer(content, head_type(order), 1)[0]
        if head["order"] == ORDER:
            break
    else:
        raise _damaged(path, "its byte order is unknown")
    kinds = table_types(order)
    sizes = [int(head[f"{name}_bytes"]) for name in ("head", "node", "site", "object")]
    if head["version"] != VERSION or sizes != [
        head_type(order).itemsize + _padding(order),
        *(kind.itemsize for kind in kinds),
    ]:
        raise _damaged(path, "its probe was built from other sources")
    program = programs.get((int(head["process"]), int(head["ns_begin"])))
    if program is None:
        return None
    nodes, sites, objects = (_table(path, content, head, table, kinds) for table in range(3))
    if int(head["way"]) not in WAYS or int(head["problem"]) not in {0, *PROBLEMS}:
        raise _damaged(path, "its head is damaged")
    _check(path, nodes, sites, objects)
    sites = sites.copy()
    untouched = sites["changed"] <= head["peak_moment"]
    sites["peak"][untouched] = sites["live"][untouched]
    return StacksFile(
        pid=int(head["process"]),
        program=program,
        way=WAYS[int(head["way"])],
        every_first=int(head["every_first"]),
        every=int(head["every"]),
        samples=int(head["samples"]),
        without_room=int(head["without_room"]),
        unread=int(head["unread"]),
        unwatched=int(head["unwatched"]),
        problem=PROBLEMS.get(int(head["problem"]), ""),
        has_peak=bool(head["peak_ticks"]),
        sparse=_sparse(head) if head["pinned_known"] else None,
        nodes=nodes,
        sites=sites,
        paths=tuple(os.fsdecode(bytes(one["path"]).partition(b"\0")[0]) for one in objects),
        build_ids=tuple(bytes(one["id"][: int(one["id_bytes"])]).hex() for one in objects),
        name=path.name,
        begin_ns=int(head["ns_begin"]),
    )


def _sparse(head: np.void) -> dict[str, tuple[int, int]]:
    pairs = zip(head["pinned_spans"], head["pinned_held"], strict=True)
    return dict(zip(SPANS, ((int(one), int(other)) for one, other in pairs), strict=True))


def _padding(order: str) -> int:
    """The bytes that C adds at the end of the head."""
    return -head_type(order).itemsize % 8


def _table(
    path: Path, content: bytes, head: np.void, table: int, kinds: tuple[np.dtype[np.void], ...]
) -> Records:
    """Returns the used entries of a table."""
    chunk_count = int(head["chunk_count"])
    names = ("node", "site", "object")
    count, kind = int(head[f"{names[table]}_count"]), kinds[table]
    each = _CHUNK_BYTES // kind.itemsize
    if chunk_count > _CHUNKS:
        raise _damaged(path, "its head is damaged")
    found = [
        np.frombuffer(content, kind, each, _HEAD_BYTES + place * _CHUNK_BYTES)
        for place in range(chunk_count)
        if head["chunk_table"][place] == table
        and len(content) >= _HEAD_BYTES + (place + 1) * _CHUNK_BYTES
    ]
    if count > each * len(found):
        raise _damaged(path, "it is cut off")
    return np.concatenate([np.zeros(0, kind), *found])[:count]


def _check(path: Path, nodes: Records, sites: Records, objects: Records) -> None:
    """Raises CairnError if a number points nowhere, or a sum is not a number."""
    order = np.arange(1, len(nodes))
    if (
        not len(nodes)
        or not len(sites)
        or (nodes["parent"][1:] >= order).any()
        or (nodes["object"] >= FIRST_OBJECT + len(objects)).any()
        or (sites["node"] >= len(nodes)).any()
        or (objects["id_bytes"] > 32).any()
    ):
        raise _damaged(path, "its tables are damaged")
    if _deepest(nodes["parent"].tolist()) > FRAMES_MOST + 1:
        raise _damaged(path, "its tables are damaged")
    sums = [sites["freed"], sites["freed_elsewhere"], sites["lives"].astype(np.float64)]
    for name in ("allocated", "live", "peak", "temporary"):
        sums += [sites[name][part] for part in sites[name].dtype.names or ()]
    for one in sums:
        if not (np.abs(one) < _LARGEST).all():
            raise _damaged(path, "its sums are damaged")
    for part in sites["pinned"].dtype.names or ():
        if not (np.abs(sites["pinned"][part]) <= 2.0**63).all():
            raise _damaged(path, "its sums are damaged")


def _deepest(parents: list[int]) -> int:
    """Returns the most frames of a stack. Each node comes after its parent."""
    depths = [0] * len(parents)
    for node in range(1, len(parents)):
        depths[node] = depths[parents[node]] + 1
    return max(depths)
