"""What is not known from the probe's files of former versions. All functions are pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cairn.profile.tally import GROUPS, PATHS

_FREES = ("free, local", "free, remote")
_UNEQUAL_LEAST = 1.02
"""The frees of a size group stand for unequal numbers of blocks if they stand for this multiple of
`gap` blocks on average. Without it, a file that was read while its process ran would seem to have
unequal ones."""


def without_unequal_frees(samples: NDArray[np.void], gap: int) -> NDArray[np.void]:
    """The samples of a file of version 8, without frees that stand for unequal numbers of blocks.

    A block stands for more blocks the more of them are alive. The file has neither the times nor
    the number of remote frees by how many blocks they stand for. So nothing is known from these
    frees, and they count as not timed.

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
