"""Finds the functions of the allocator that take the most CPU time, by clock samples.

A function's share is the time of the samples in its own code, divided by the CPU time of the
program without the probe, as in `cpu_share`. The functions that it calls are not included. A
function of another library, such as memset, is listed if the allocator called it. All functions of
this module are pure.

A clock sample has the address of the next instruction that the processor would have executed. So
the time of a function's last instructions may count for the function to which it returns.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairn.profile.cpu_share import counted_runs, cpu_share, sampled, used
from cairn.profile.estimates import Estimate
from cairn.profile.tally import ClockRun, Profile

SHOWN = 5
"""The most functions that reports show."""


class HotFunction(Struct, frozen=True):
    """One function of the allocator, or of a library that it called."""

    name: str
    """The function's name; "library+offset" if the library has no name for it."""
    library: str
    share: Estimate
    """The function's share of CPU time. The interval contains the sampling error only."""
    samples: int


def hot_functions(profile: Profile) -> tuple[HotFunction, ...]:
    """All functions with samples, the costliest first.

    The result is empty if the clock samples name no functions, or if the allocator's share is not
    known.
    """
    if cpu_share(profile).share is None:
        return ()
    runs = counted_runs(used(profile))
    known = sum(run.inside_ns + run.program_ns for run in runs)
    names = dict.fromkeys((one.name, one.library) for run in runs for one in run.functions)
    found = [_of(name, library, runs, known) for name, library in names]
    return tuple(sorted(found, key=lambda one: (-one.share.value, one.name)))


def _of(name: str, library: str, runs: Sequence[ClockRun], known: float) -> HotFunction:
    parts, samples = [], 0
    for run in runs:
        its = [one for one in run.functions if (one.name, one.library) == (name, library)]
        ns, squares = sum(one.ns for one in its), sum(one.squares for one in its)
        samples += sum(one.samples for one in its)
        parts.append((ns, squares, run.inside_ns + run.program_ns, run.squares))
    share = sum(part[0] for part in parts) / known
    return HotFunction(name, library, Estimate(share, sampled(share, parts)), samples)


def shown_name(name: str, library: str, own: str) -> str:
    """The function's name for a report: "memset in libc.so.6".

    `own` is the file name of the allocator's library. Its functions are named without a library.
    """
    is_plain = library in (own, name) or name.startswith(f"{library}+")
    return name if is_plain else f"{name} in {library}"
