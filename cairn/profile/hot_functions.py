"""The costliest functions of the allocator, by the clock samples in its code. All are pure.

A function's share is the time of its own samples, over the CPU time of the program without the
probe, as in `cpu_share`. Functions that it calls are not in it. A library's function counts if the
allocator called it, such as memset.

A clock sample has the address of the next instruction that the processor would have executed. So
the time of a function's last instructions may be in the function to which it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.profile.cpu_share import counted_runs, cpu_share, sampled, used
from cairn.profile.estimates import Estimate
from cairn.profile.tally import ClockRun, Profile

SHOWN = 5
"""The functions that reports show."""


@dataclass(frozen=True, slots=True)
class HotFunction:
    """One function of the allocator, or of a library that it called."""

    name: str
    """The function's name; "library+offset" if the library has no name for it."""
    library: str
    share: Estimate
    """Its share of CPU time. The interval is that of sampling."""
    samples: int


def hot_functions(profile: Profile) -> tuple[HotFunction, ...]:
    """All functions with samples, the costliest first.

    Empty if the clock knows no functions, or if the allocator's share is not known.
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
    """The name for a report. The library is named unless it is the allocator's own, `own`."""
    is_plain = library in (own, name) or name.startswith(f"{library}+")
    return name if is_plain else f"{name} in {library}"
