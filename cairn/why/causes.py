"""The causes of a difference between two contenders, in the order of their effects.

An effect is the share of its own CPU time, thread time or memory that one contender would save
without the cause. The order compares CPU time and thread time in one unit: if there is a cause in
thread time, each share of CPU time is converted to a share of thread time. The parts of the gap
without a reason stand in the same list, so that no finding comes before a larger one of them. All
functions are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from cairn.findings.kernel import WITH_FAULTS, charged
from cairn.findings.layout import HEADERS, SCATTERED, SMALL_PAGES, SPREAD
from cairn.findings.thresholds import least_effect, of_threads
from cairn.findings.waiting import QUEUES
from cairn.model import Finding
from cairn.why.gap import Why, without_faults
from cairn.why.parts import FAULTS, KERNEL, OWN, PROGRAM, UNEXPLAINED, Part

Of = Literal["CPU", "thread time", "memory"]
TOUCHING = (*WITH_FAULTS, HEADERS, SCATTERED, SMALL_PAGES, SPREAD)
"""Findings that can be the reason for page faults. Each finding about memory can be one, too."""


class Cause(Struct, frozen=True):
    """One cause: a finding, or a part of the gap for which no reason is known."""

    name: str
    """The name of the finding, or of the part of the gap."""
    of: Of
    effect: float
    finding: Finding | None = None
    """None for a part of the gap."""
    rank: float = 0.0
    """The number by which causes are ordered: the effect, converted from CPU time to thread time if
    any cause is in thread time."""


def causes(why: Why, contender: str) -> tuple[Cause, ...]:
    """The causes that make `contender` worse than the other contender of `why`, the largest first.

    A finding that was made about both contenders counts only with the difference of its effects.
    """
    found = [*_compared(why, contender), *_alone(why, contender), *_layout(why, contender)]
    reasons = [one for one in found if one.effect >= least_effect(one.of)]
    parts = _without_reason(why, contender, reasons)
    kept = [*reasons, *(one for one in parts if one.effect >= least_effect(one.of))]
    waits = any(one.of == "thread time" for one in kept)
    busy = why.busy.get(contender, 1.0) if waits else 1.0
    ranked = [replace(one, rank=of_threads(one.of, one.effect, busy)) for one in kept]
    return tuple(sorted(ranked, key=lambda one: -one.rank))


def _sign(why: Why, contender: str) -> int:
    return 1 if contender == why.contender else -1


def _compared(why: Why, contender: str) -> Iterator[Cause]:
    """Yields the findings of the comparison, if `contender` is the slower one."""
    if why.time is None or (why.time.whole.change or 0.0) * _sign(why, contender) <= 0:
        return
    for finding in why.findings:
        yield Cause(finding.name, finding.of, finding.effect, finding)


def _alone(why: Why, contender: str) -> Iterator[Cause]:
    """Yields the findings from the contender's own profiles.

    The effect of each is reduced by the effect of the same finding on the other contender. If one
    is a share of CPU time and the other a share of thread time, both are in thread time.
    """
    theirs = {one.name: (name, one) for name, one in why.raised if name != contender}
    for name, finding in why.raised:
        if name != contender:
            continue
        of, effect, less = finding.of, finding.effect, 0.0
        if finding.name in theirs:
            whose, other = theirs[finding.name]
            less = other.effect
            if other.of != of:
                of = "thread time"
                effect = of_threads(finding.of, effect, why.busy.get(name, 1.0))
                less = of_threads(other.of, less, why.busy.get(whose, 1.0))
        yield Cause(finding.name, of, effect - less, finding)


def _layout(why: Why, contender: str) -> Iterator[Cause]:
    """Yields the reason why the program itself takes more CPU time, if it is known."""
    if why.layout is not None and why.layout[0] == contender:
        finding = why.layout[1]
        yield Cause(finding.name, finding.of, finding.effect, finding)


def _without_reason(why: Why, contender: str, reasons: Collection[Cause]) -> Iterator[Cause]:
    """Yields the parts of the gap in CPU time for which none of `reasons` can be the reason.

    The unexplained part has no reason. Yields nothing if some part was not measured: the
    unexplained part then contains that part.
    """
    if why.time is None or why.time.unmeasured:
        return
    whole = why.time.whole.own if contender == why.contender else why.time.whole.other
    for part in why.time.parts:
        if part.name not in (OWN, KERNEL, FAULTS, PROGRAM, UNEXPLAINED):
            continue
        if any(_explains(why, one, part) for one in reasons):
            continue
        rest = without_faults(why.time, part) if part.name == PROGRAM else part
        if rest.shown and rest.borne_out and whole:
            share = (rest.change or 0.0) * _sign(why, contender) / whole
            yield Cause(part.name, "CPU", min(1.0, share))


def _explains(why: Why, cause: Cause, part: Part) -> bool:
    """Whether a finding can be the reason for a part of the gap, or for some of it."""
    name = cause.name
    if part.name == OWN:
        return name == QUEUES or any(name == one.name for one in why.findings)
    if part.name == KERNEL:
        return name == QUEUES or bool(charged(name, ()))
    if part.name == FAULTS:
        return name in TOUCHING or cause.of == "memory"
    return part.name == PROGRAM and why.layout is not None and name == why.layout[1].name
