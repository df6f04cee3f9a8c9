"""Removes from old probe files the numbers that cannot be interpreted. All functions are pure."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cairn.profile.tally import GROUPS, PATHS

_FREES = ("free, local", "free, remote")
_UNEQUAL_LEAST = 1.02
"""If the frees of a size group stand for more than this multiple of `gap` blocks on average, they
stand for unequal numbers of blocks. The limit is not 1, because a file may be read while its
process runs. Its counters then disagree slightly."""


def without_unequal_frees(samples: NDArray[np.void], gap: int) -> NDArray[np.void]:
    """The samples of a file of version 8, without frees that stand for unequal numbers of blocks.

    A watched block stands for more blocks each time when half of the watched blocks are dropped. A
    file of version 8 does not say how many blocks a timed free stands for. So neither the times of
    these frees nor the share of remote frees can be estimated. The frees count as not timed.

    samples: the struct profile_samples.
    """
    found = samples
    for group, name in enumerate(GROUPS[:-1]):
        places = [i for i, one in enumerate(PATHS) if one.kind in _FREES and one.group == name]
        times = samples[0]["times"][places]
        columns = ("count", "alone", "switched", "fault_operations", "event_operations")
        number = sum(int(times[column].sum()) for column in columns)
        if int(samples[0]["freed"][group]) > _UNEQUAL_LEAST * gap * number:
            found = found.copy()
            found["times"][0, places] = np.zeros((), samples.dtype["times"].base)
    return found


def later_counts(head: np.void, *, is_old: bool) -> tuple[float, NDArray[np.float64]]:
    """`Tally.sealed_bytes` and `Tally.fresh_others`, which are NaN in a file of version 8."""
    sealed_bytes, fresh_others = float(head["sealed_bytes"]), head["fresh_others"].astype(float)
    return (math.nan, fresh_others * math.nan) if is_old else (sealed_bytes, fresh_others)
