"""The cases that started the project: an application, an allocator, and why it was slow or fast there. Pure.

Each was recorded with the application itself and an allocator of its day (means of ten runs, hyper-threading
off). Here runs a kernel that allocates as the application does, under the allocator of today, or under one that stands
in for it; `judge` says whether gap and cause are still what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cairn.why.gap import FAULTS, GAP_LEAST, KERNEL, OWN, PROGRAM, Gap, Part, Why

Verdict = Literal["as recorded", "another cause", "does not reproduce", "not shown", "not measured"]

MOSTLY = 0.5
"""Of the gap: what the expected parts must hold together."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the founding notes."""

    application: str
    """Also the kernel's name in the run."""
    contender: str
    """As it is called in the run."""
    said: str
    """What was recorded of the time, against glibc."""
    cause: str
    """And of its cause."""
    slower: bool
    parts: tuple[str, ...]
    """Where that cause shows."""


CASES = (
    Case("dedup", "glibc-2.21", "30 % slower", "505,233 calls of madvise where 2.24 makes 280", True, (KERNEL, FAULTS)),
    Case("dedup", "hoard", "19 % faster", "fewer calls of the kernel", False, (KERNEL, FAULTS)),
    Case("dedup", "hardened", "2.2 times as slow", "a slow path by design", True, (OWN,)),
    Case("freqmine", "hardened", "3.4 times as slow", "a slow path by design", True, (OWN,)),
    Case("reverse_index", "jemalloc", "21 % slower", "freeing takes twice the cycles", True, (OWN,)),
    Case("swaptions", "tcmalloc", "21 % slower", "first allocations take 2.6 times as long", True, (OWN,)),
    Case("raytrace", "tcmalloc", "23 % faster", "an equal share of the allocator: the layout", False, (PROGRAM,)),
    Case("canneal", "hoard", "19 % faster", "less fresh memory, no waits on locks", False, (OWN, FAULTS)),
    Case("aget", "hoard", "20 % slower", "the layout", True, (PROGRAM,)),
    Case("raytrace", "hoard", "12 % faster", "the layout", False, (PROGRAM,)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """A case, and what was found here."""

    case: Case
    why: Why | None
    verdict: Verdict
    causes: tuple[Part, ...]
    """The parts of the gap that are shown, the largest first."""


def judge(whys: Mapping[tuple[str, str], Why]) -> tuple[Judged, ...]:
    """Every case, by (application, contender); one that is not there, or could not be told, was not measured."""
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
    """Whether the interval leaves no room for a gap that anyone would have recorded."""
    assert gap.whole.interval is not None
    end = gap.whole.interval.high if case.slower else -gap.whole.interval.low
    return end < GAP_LEAST * (gap.whole.other or 0.0)


def contenders(cases: Sequence[Case] = CASES) -> tuple[str, ...]:
    """Whom the cases are about."""
    return tuple(dict.fromkeys(case.contender for case in cases))
