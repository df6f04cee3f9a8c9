"""The rule that gave each run of 'cairn soak' its verdict, with the numbers that fulfilled it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cairn import units
from cairn.report.formatting import printable
from cairn.soak.judge import RETURNED, JudgedRun, Kind
from cairn.soak.trend import Growth
from cairn.soak.verdict import SoakVerdict

_MINUTE, _HOUR = 60.0, 3600.0
_LEAST_RATE = 1024.0
"""A rate is written by the minute from this number of bytes on, and by the hour below."""


def sentences(found: Sequence[SoakVerdict]) -> tuple[str, ...]:
    """Returns a sentence for each run: its contender, its round, its verdict, and the rule."""
    return tuple(
        f"{printable(one.contender)}, round {place}: {run.kind.value}. {' '.join(_rules(run))}"
        for one in found
        for place, run in enumerate(one.runs, 1)
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
        most = run.growth_most or 0.0
        of = "The lower edge of live memory"
        if growth is not None and most < growth.high:
            of = "The mean of live memory"
        yield f"{of} grows by at most {per(max(0.0, most))}."
        yield f"The allocator holds {units.size(run.spare)} beyond the most live memory."
    for kind in (run.kind, run.also):
        if kind in (Kind.FRAGMENTATION, Kind.RETENTION):
            yield _beyond(run)


def _beyond(run: JudgedRun) -> str:
    """The sentence on the memory that is held beyond live memory."""
    share = f" ({100 * run.spare / run.live_most:.0f} %)" if run.live_most else ""
    text = (
        f"The allocator holds {units.size(run.held)}, which is {units.size(run.spare)}{share} "
        "beyond the most live memory of the last half"
    )
    if run.returned is None:
        return f"{text}."
    part = "half of it or more" if run.returned >= RETURNED else "less than half of it"
    return f"{text}. A trim returned {100 * run.returned:.0f} % of the spare memory, {part}."


def rate(growth: Growth) -> str:
    """Returns a growth with its interval, by the minute or the hour."""
    length, word = (
        (_MINUTE, "min")
        if max(abs(growth.low), abs(growth.high)) * _MINUTE >= _LEAST_RATE
        else (_HOUR, "h")
    )
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


def per(per_s: float) -> str:
    """Returns a rate in words, by the minute or the hour."""
    if per_s * _MINUTE >= _LEAST_RATE:
        return f"{units.size(per_s * _MINUTE)} a minute"
    return f"{units.size(per_s * _HOUR)} an hour"
