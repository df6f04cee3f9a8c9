"""Compares three kinds of cache for freed large blocks: "size", "site" and "fit".

    .venv/bin/python tools/cache_replay.py PROG [ARG…]

Runs the program once under glibc with large_block_recorder.c, which records all blocks above 32
KiB. Then replays the record of each process against each kind of cache. Prints the number of
allocations of the process, and the share of them in % that each cache serves if it may hold 2, 8 or
32 MiB.

    size   64 sets of four slots; the key is the number of slices of 16 KiB
    site   64 sets of four slots; the key is the number of slices, the return address and the low
           bits of the stack's depth
    fit    a list for each number of slices; a block may be a quarter larger than requested
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

import numpy as np

RECORDER = Path(__file__).with_name("large_block_recorder.c")
EVENT = np.dtype([("block", "u8"), ("bytes", "u8"), ("caller", "u8"), ("stack", "u8")])
SLICE = 16384
SETS, SLOTS = 64, 4
MIB = 1 << 20


class Block(NamedTuple):
    """The facts about a block that are known when the program requests the block."""

    slices: int
    caller: int
    depth: int


class Cache(ABC):
    """A cache of freed blocks, which have at most `most` bytes together.

    If the cache is full, a new block evicts the oldest ones.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        self.age = 0
        self.kept: OrderedDict[int, Block] = OrderedDict()

    def take(self, block: Block) -> bool:
        """Removes a block that serves the request. Returns False if there is none."""
        found = self.find(block)
        if found is None:
            return False
        self.forget(found)
        return True

    def put(self, block: Block) -> None:
        """Keeps a freed block."""
        if block.slices * SLICE > self.most:
            return
        self.age += 1
        self.kept[self.age] = block
        self.bytes += block.slices * SLICE
        self.add(self.age, block)
        while self.bytes > self.most:
            self.forget(next(iter(self.kept)))

    def forget(self, age: int) -> None:
        """Drops a block."""
        block = self.kept.pop(age)
        self.bytes -= block.slices * SLICE
        self.remove(age, block)

    @abstractmethod
    def find(self, block: Block) -> int | None:
        """Returns the age of a block that serves the request, or None."""

    @abstractmethod
    def add(self, age: int, block: Block) -> None:
        """Makes a block available to find()."""

    @abstractmethod
    def remove(self, age: int, block: Block) -> None:
        """Makes a block unavailable to find()."""


class Ring(Cache):
    """Sets of four slots each. A block's key selects its set. A full set drops its oldest block."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.sets: defaultdict[int, list[int]] = defaultdict(list)

    def key(self, block: Block) -> Hashable:
        """Returns the key: the size."""
        return block.slices

    def slots(self, block: Block) -> list[int]:
        """Returns the ages of the blocks in the block's set."""
        return self.sets[hash(self.key(block)) % SETS]

    def find(self, block: Block) -> int | None:
        """Returns the age of the newest block with the same key, or None."""
        here = (
            age
            for age in reversed(self.slots(block))
            if self.key(self.kept[age]) == self.key(block)
        )
        return next(here, None)

    def add(self, age: int, block: Block) -> None:
        """Fills a slot."""
        slots = self.slots(block)
        slots.append(age)
        if len(slots) > SLOTS:
            self.forget(slots[0])

    def remove(self, age: int, block: Block) -> None:
        """Empties a slot."""
        self.slots(block).remove(age)


class Sites(Ring):
    """A ring whose key is the call site and the size."""

    def key(self, block: Block) -> Hashable:
        """Returns the key: size, caller and depth."""
        return block


class Fit(Cache):
    """A cache with a list for each size. The block that was freed last is taken first."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.lists: defaultdict[int, list[int]] = defaultdict(list)

    def find(self, block: Block) -> int | None:
        """Returns the age of the smallest block that fits, at most a quarter larger, or None."""
        counts = range(block.slices, block.slices + block.slices // 4 + 1)
        return next((self.lists[count][-1] for count in counts if self.lists[count]), None)

    def add(self, age: int, block: Block) -> None:
        """Adds a block to the list of its size."""
        self.lists[block.slices].append(age)

    def remove(self, age: int, block: Block) -> None:
        """Removes a block from the list of its size."""
        self.lists[block.slices].remove(age)


def replay(events: np.ndarray, cache: Cache) -> tuple[int, int]:
    """Returns the number of allocations, and of those that the cache served.

    If a block is freed and at once allocated at the same address, it was resized in place. That
    counts as no allocation.
    """
    live: dict[int, Block] = {}
    dying: tuple[int, Block] | None = None
    born = hits = 0
    for place, size, caller, stack in events.tolist():
        resized = dying is not None and size > 0 and dying[0] == place
        if dying is not None and not resized:
            cache.put(dying[1])
        dying = None
        if size == 0:
            if place in live:
                dying = place, live.pop(place)
            continue
        live[place] = Block(-(-size // SLICE), caller, stack & 0xFF0)
        if not resized:
            born += 1
            hits += cache.take(live[place])
    return born, hits


def main(command: list[str]) -> None:
    """Runs the program and prints one line for each of its processes."""
    if not command:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        library = Path(name, "large_block_recorder.so")
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", RECORDER, "-o", library, "-lpthread"], check=True
        )
        out = Path(name, "events")
        out.mkdir()
        environment = {**os.environ, "LD_PRELOAD": str(library), "LARGE_BLOCKS": str(out)}
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        print(
            "process                 allocations   2 MiB: size site  fit   8 MiB: size site  fit"
            "  32 MiB: size site  fit"
        )
        for file in sorted(out.iterdir(), key=lambda file: -file.stat().st_size):
            events = np.fromfile(file, EVENT)
            shown = []
            for most in (2 * MIB, 8 * MIB, 32 * MIB):
                for kind in (Ring, Sites, Fit):
                    born, hits = replay(events, kind(most))
                    shown.append(f"{100 * hits / born if born else 0:5.0f}")
            rows = (" ".join(shown[at : at + 3]) for at in (0, 3, 6))
            print(f"{file.name.partition('.')[2]:24}{born:11}          {'          '.join(rows)}")


if __name__ == "__main__":
    main(sys.argv[1:])
