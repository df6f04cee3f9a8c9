"""The rule that gave each run of 'cairn soak' its verdict, with the numbers that fulfilled it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cairn import units
from cairn.report.formatting import printable
from cairn.soak.judge import FELL, RETURNED, JudgedRun, Kind, is_much
from cairn.soak.trend import Growth
from cairn.soak.verdict import SoakVerdict

_MINUTE, _HOUR = 60.0, 3600.0
_LEAST_RATE = 1024.0
"""A rate is written by the minute from this number of bytes on, and by the hour below."""


def sentences(found: Sequence[SoakVerdict]) -> tuple[str, ...]:
    """Returns a sentence for each run: its contender, its round, its verdict, and the rule."""
    return tuple(
        f"{printable(one.contender)}, round {number}: {run.kind.value}. {' '.join(_rules(run))}"
        for one in found
        for number, run in zip(one.rounds, one.runs, strict=True)
    )


def _rules(run: JudgedRun) -> Iterator[str]:
    """Yields the rule that gave a run its verdict, and that of its second verdict if it has one."""
    growth = run.growth
    if run.kind is Kind.UNKNOWN and run.reason is not None:
        yield f"No rule is fulfilled: {run.reason.value}."
    if run.kind is Kind.LEAK and growth is not None:
        yield (
            f"The lower edge of live memory rises by {rate(growth)}, and about as fast in the "
            "second half of the time as in the first."
        )
    if run.kind is Kind.STABLE:
        most = max(0.0, run.growth_most or 0.0)
        yield f"The {run.growth_of} of live memory grows by at most {per(most, growth)}."
        yield f"The allocator holds {units.size(run.spare)} beyond the most live memory."
    for kind in (run.kind, run.also):
        if kind in (Kind.FRAGMENTATION, Kind.RETENTION):
            yield from _beyond(run, kind)


def _beyond(run: JudgedRun, kind: Kind) -> Iterator[str]:
    """Yields the sentences on the memory that is held beyond live memory."""
    if is_much(run.spare, run.live_most):
        share = f" ({100 * run.spare / run.live_most:.0f} %)" if run.live_most else ""
        yield (
            f"The allocator holds {units.size(run.held)}, which is {units.size(run.spare)}{share} "
            "beyond the most live memory of the last half."
        )
    if run.spare_rise > 0:
        yield (
            "The memory that the allocator holds beyond the live blocks rises steadily: by "
            f"{units.size(round(run.spare_rise))} from the first to the last eighth of the time."
        )
    elif kind is Kind.RETENTION and run.live_peak >= FELL * run.live_most:
        yield f"Live memory was {units.size(round(run.live_peak))} before."
    if run.returned is None or run.trim is None:
        return
    part = "half of it or more" if run.returned >= RETURNED else "less than half of it"
    spare = units.size(run.trim.held_bytes - run.trim.live_bytes)
    yield (
        f"A trim at the end returned {100 * run.returned:.0f} % of the {spare} that it then held "
        f"beyond the live blocks, {part}."
    )


def _is_fast(growth: Growth) -> bool:
    """Whether the growth is written by the minute."""
    return max(abs(growth.low), abs(growth.high)) * _MINUTE >= _LEAST_RATE


def rate(growth: Growth) -> str:
    """Returns a growth with its interval, by the minute or the hour."""
    length, word = (_MINUTE, "min") if _is_fast(growth) else (_HOUR, "h")
    low, middle, high = (one * length for one in (growth.low, growth.per_s, growth.high))
    largest = max(abs(low), abs(high))
    power = min(3, max(0, int(math.log(max(largest, 1.0) / 1023.5 * 1024, 1024))))
    scale, unit = 1024.0**power, ("B", "KiB", "MiB", "GiB")[power]
    half = (high - low) / 2 / scale
    digits = max(0, min(3, 1 - math.floor(math.log10(half)))) if half > 0 else 3 * (largest > 0)
    digits = min(digits, max(0, 2 - math.floor(math.log10(max(largest / scale, 1e-9)))))
    texts = [_signed(f"{one / scale:,.{digits}f}") for one in (middle, low, high)]
    return f"{texts[0]} {unit}/{word} [{texts[1]}, {texts[2]}]"


def _signed(text: str) -> str:
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "−")


def per(per_s: float, growth: Growth | None) -> str:
    """Returns the rate `per_s` in words, by the minute or the hour like rate(growth)."""
    if growth is not None and _is_fast(growth):
        return f"{units.size(per_s * _MINUTE)} a minute"
    return f"{units.size(per_s * _HOUR)} an hour"
