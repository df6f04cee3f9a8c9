"""The memory that the allocator of one process had from the kernel. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.profile.tally import CALLS, Moment, Tally

_GETTING = ("mmap", "mremap", "brk")


def most_bytes(tally: Tally, moments: Sequence[Moment]) -> int:
    """The most bytes that the allocator held at any recorded moment.

    It is used if the probe did not count the maximum at each system call. Without a moment, the
    result is an upper bound: the bytes of all calls that get memory, with the whole new size of
    each mremap and with the bytes by which brk shrank the heap.
    """
    known = [moment.held_bytes for moment in moments if moment.held_bytes is not None]
    return max(known) if known else sum(_moved(tally, name) for name in _GETTING)


def shrunk_bytes(tally: Tally, moments: Sequence[Moment]) -> int:
    """The bytes by which `brk` shrank the heap, or less; 0 if it is not known.

    The bytes of all calls of `brk` are growth plus shrinkage. The bytes held at the last moment are
    growth minus shrinkage, plus the memory that did not come by `brk`. So half of the difference is
    the shrinkage, minus half of that other memory.

    moments: those of the time in which the calls were made. The last one is near the last call.
    """
    known = [moment.held_bytes for moment in moments if moment.held_bytes is not None]
    return max(0, (_moved(tally, "brk") - known[-1]) // 2) if known else 0


def _moved(tally: Tally, call: str) -> int:
    """The bytes of all system calls of this name."""
    return int(tally.kernel.bytes[CALLS.index(call)])
