"""The layout of blocks that tests/support/programs/placing_malloc.c places, by its formula."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LINE, _PAGE = 64, 4096


@dataclass(frozen=True)
class Toy:
    """One run of placed.c with the allocator placing_malloc.c.

    `place` and `size` say how the allocator places the blocks. The other fields are arguments of
    placed.c.
    """

    place: str
    count: int
    """The number of blocks of each thread."""
    size: int = 48
    churn: int = 0
    waiting: int = 0

    def arguments(self, threads: int) -> tuple[int, ...]:
        return threads, self.count, self.size, self.churn, self.waiting


TOYS = (
    Toy("packed", 100_000),
    Toy("packed", 60_000, size=80),
    Toy("pages", 20_000),
    Toy("headers", 100_000),
    Toy("headers", 60_000, size=64),
    Toy("split", 50_000),
    Toy("shared", 100_000, size=16),
    Toy("shared", 60_000, size=32),
    Toy("sets", 20_000, size=8192),
    Toy("fifo", 20_000, churn=400_000, waiting=1000),
    Toy("fifo", 20_000, churn=400_000, waiting=20),
    Toy("lifo", 20_000, churn=400_000, waiting=1000),
)


def truth(toy: Toy, threads: int) -> dict[str, float]:
    """Returns the value of each figure that the formula fixes, by its name in cairn's JSON."""
    together = toy.place == "shared" and threads > 1
    steps = np.arange(toy.count, dtype=np.int64)
    step = -(-toy.size // 16) * 16
    each = {
        "pages": _PAGE,
        "headers": step + 32,
        "split": 2 * _LINE,
        "sets": -(-step // _PAGE) * _PAGE,
        "shared": step * (4 if together else 1),
    }.get(toy.place, step)
    first = {"headers": 32, "split": 48}.get(toy.place, 0)
    blocks = steps * each + first
    found = {
        "active_conflicts": 1.0 if together else 0.0,
        "passive_conflicts": 0.0,
        "straddling": _mean(_lines(blocks, toy.size) > -(-toy.size // _LINE)),
    }
    if toy.churn:
        found["reuse_operations"] = 2 * toy.waiting - 1 if toy.place == "fifo" else 1
        found["other_reuse"] = 0.0
        return found
    live = np.arange(4 * toy.count, dtype=np.int64) * step if together else blocks
    pages, lines = (len(_touched(live, toy.size, unit)) for unit in (_PAGE, _LINE))
    whole = len(live) * toy.size
    found |= {
        "page_use": whole / pages / _PAGE,
        "line_use": whole / lines / _LINE,
        "pages_per_mib": pages / whole * 2**20,
        "lines_per_mib": lines / whole * 2**20,
        "distance_bytes": each,
    }
    if each <= _PAGE:
        found["header_bytes"] = each - step
    line = (blocks + each) // _LINE - blocks // _LINE
    page = (blocks + each) // _PAGE == blocks // _PAGE
    found["same_line"], found["next_line"] = _mean(line == 0), _mean(line == 1)
    found["same_page"] = _mean(page & (line > 1))
    found["further"] = _mean(~page & (line > 1))
    if toy.place == "sets":
        found["set_share"] = 1.0
    return found


def _mean(of: NDArray[np.bool_]) -> float:
    return float(of.mean())


def _lines(blocks: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = (blocks + size - 1) // _LINE - blocks // _LINE + 1
    return found


def _touched(blocks: NDArray[np.int64], size: int, unit: int) -> NDArray[np.int64]:
    """The numbers of the cache lines or pages (`unit` bytes each) that the blocks touch."""
    last = (blocks + size - 1) // unit
    most = int((last - blocks // unit).max()) + 1
    every = [np.minimum(blocks // unit + k, last) for k in range(most)]
    return np.unique(np.concatenate(every))
