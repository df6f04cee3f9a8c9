"""The cases that started the project: an application, an allocator, and why it was slow or fast.

Each case was recorded with the application itself and the allocator of its time (means of ten runs,
without hyper-threading). Here a workload that allocates like the application runs under today's
version of the allocator, or under a substitute for the allocator. `judge` says whether gap and
cause are still the same. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from cairn.why.gap import GAP_LEAST, Why
from cairn.why.parts import FAULTS, KERNEL, OWN, PROGRAM, Gap, Part

Verdict = Literal["as recorded", "another cause", "does not reproduce", "not shown", "not measured"]

MOSTLY = 0.5
"""The cause is as recorded if the expected parts make up more than this share of the gap."""


class Case(Struct, frozen=True):
    """One recorded observation."""

    application: str
    """The name of the application, and of the workload that stands for it in the run."""
    contender: str
    """The name of the contender in the run."""
    said: str
    """The recorded difference in time from glibc."""
    cause: str
    """The recorded cause."""
    slower: bool
    parts: tuple[str, ...]
    """The parts of the gap in which the recorded cause appears."""


CASES = (
    Case("dedup", "glibc-2.21", "30 % slower",
         "505,233 madvise calls where 2.24 makes 280", True, (KERNEL, FAULTS)),
    Case("dedup", "hoard", "19 % faster", "fewer system calls", False, (KERNEL, FAULTS)),
    Case("dedup", "hardened", "2.2 times as slow", "a slow path by design", True, (OWN,)),
    Case("freqmine", "hardened", "3.4 times as slow", "a slow path by design", True, (OWN,)),
    Case("reverse_index", "jemalloc", "21 % slower",
         "freeing takes twice the cycles", True, (OWN,)),
    Case("swaptions", "tcmalloc", "21 % slower",
         "first allocations take 2.6 times as long", True, (OWN,)),
    Case("raytrace", "tcmalloc", "23 % faster",
         "the layout of the blocks, at an equal share of the allocator", False, (PROGRAM,)),
    Case("canneal", "hoard", "19 % faster",
         "less fresh memory, no waits on locks", False, (OWN, FAULTS)),
    Case("aget", "hoard", "20 % slower", "the layout of the blocks", True, (PROGRAM,)),
    Case("raytrace", "hoard", "12 % faster", "the layout of the blocks", False, (PROGRAM,)),
)  # fmt: skip


class Judged(Struct, frozen=True):
    """A case, and the result of the run."""

    case: Case
    why: Why | None
    verdict: Verdict
    causes: tuple[Part, ...]
    """The parts that are shown to differ in the direction of the gap, the largest first
    (`Gap.ranked`)."""


def judge(whys: Mapping[tuple[str, str], Why]) -> tuple[Judged, ...]:
    """Judges every case. `whys` has the results by (application, contender).

    A case without a result, or without an interval, is "not measured".
    """
    return tuple(_judged(case, whys.get((case.application, case.contender))) for case in CASES)


def _judged(case: Case, why: Why | None) -> Judged:
    if why is None or why.time is None or why.time.whole.interval is None:
        return Judged(case, why, "not measured", ())
    gap = why.time
    change = gap.whole.change or 0.0
    if not gap.whole.shown and not _excluded(case, gap):
        return Judged(case, why, "not shown", ())
    if not gap.whole.shown or (change > 0) != case.slower:
        return Judged(case, why, "does not reproduce", gap.ranked if gap.whole.shown else ())
    expected = [part for part in gap.parts if part.name in case.parts]
    if any(part.change is None for part in expected):
        return Judged(case, why, "not measured", gap.ranked)
    held = sum(part.change or 0.0 for part in expected if part.shown and part.borne_out)
    return Judged(
        case, why, "as recorded" if held / change > MOSTLY else "another cause", gap.ranked
    )


def _excluded(case: Case, gap: Gap) -> bool:
    """Whether the interval excludes a gap of GAP_LEAST in the recorded direction."""
    assert gap.whole.interval is not None
    end = gap.whole.interval.high if case.slower else -gap.whole.interval.low
    return end < GAP_LEAST * (gap.whole.other or 0.0)


def contenders(cases: Sequence[Case] = CASES) -> tuple[str, ...]:
    """The contenders of the cases, each once."""
    return tuple(dict.fromkeys(case.contender for case in cases))
