"""The clock samples of one trial, counted by place and by function."""

from __future__ import annotations

import errno

from msgspec import Struct

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The errors that say that the folder of the clock samples is full."""


class FunctionSamples(Struct, frozen=True):
    """The clock samples in one function of the allocator, or of a library that it called."""

    name: str
    """The function's name; "library+offset" if the library has no name for it."""
    library: str
    """The file name of the library."""
    samples: int


class AtomicSamples(Struct, frozen=True):
    """The clock samples at atomic instructions and pauses in one function of the allocator."""

    function: str
    library: str
    word: str
    """The variable that most of the atomic instructions change; empty if it is not known."""
    atomic: int
    """Samples at instructions that change memory atomically."""
    pauses: int
    """Samples at instructions `pause`, as the loops of spin locks have them, and samples in loops
    that only wait until another thread changes a word."""


class CpuSamples(Struct, frozen=True):
    """The clock samples of a run without the probe, counted by place.

    The kernel takes one sample after each period of CPU time.
    """

    period_ns: int
    own: int
    """Samples in the allocator, or in a library that it called."""
    calls: int
    """Samples in the kernel, in system calls of the allocator."""
    faults: int
    """Samples in the kernel outside any system call: page faults, and also interrupts if
    `interrupts` is None."""
    others: int
    """Other samples in the kernel: system calls of the program, and its exit."""
    program: int
    """Samples in the program and its other libraries."""
    unknown: int = 0
    """Samples at an address that belongs to no known file, and samples in system calls whose caller
    is not known."""
    interrupts: int | None = None
    """Samples in interrupts. None if these are not known: they are then among the other samples,
    most of them in `faults`."""
    interrupts_unseen: str = ""
    """Why `interrupts` is None, as the end of a sentence."""
    functions: tuple[FunctionSamples, ...] = ()
    """The functions with the most samples in `own`, in descending order. Empty for a run of an
    earlier version, which did not record them."""
    atomics: tuple[AtomicSamples, ...] = ()
    """Samples of `own` at atomic instructions and pauses in the allocator's own files, by function,
    in descending order. Empty also for a run of an earlier version."""

    @property
    def placed(self) -> int:
        """The samples of all places, without those in `unknown`."""
        kernel = self.calls + self.faults + (self.interrupts or 0) + self.others
        return self.own + kernel + self.program
