"""Drawings of a profile over time: memory, and the rate of system calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from cairn.page import scale
from cairn.page.parts import Axis, Curve, Curves
from cairn.profile.tally import Moment, MomentCalls, Profile
from cairn.report.formatting import NOT_MEASURED
from cairn.report.profile_tables import spaced, table_named

_BYTES = (("live", "live_bytes"), ("held", "held_bytes"), ("resident", "resident_bytes"))
"""The lines of memory: the name and style of each, and the field of a moment."""

_CALLS = (
    ("for memory", "live", "memory"),
    ("waiting", "held", "waiting"),
    ("other", "resident", "other"),
)
"""The lines of system calls: the name and style of each, and the field of MomentCalls."""

_INTERVALS = 120
"""The most intervals that have a rate of their own. Shorter ones would have few calls each."""


def memory_over_time(found: Profile) -> Curves | None:
    """Returns live, held and resident memory over time; None with fewer than two moments."""
    moments = found.moments
    table = table_named(found, "over time")
    if len(moments) < 2 or table is None:
        return None
    across = scale.from_zero([float(one.ns) for one in moments])
    values = [
        float(value)
        for one in moments
        for _, key in _BYTES
        if (value := getattr(one, key)) is not None
    ]
    up = scale.from_zero(values)
    curves = []
    for name, key in _BYTES:
        points = [(one.ns, value) for one in moments if (value := getattr(one, key)) is not None]
        if len(points) >= 2:
            band = _band(across, up, moments) if name == "live" else ""
            curves.append(Curve(name, _line(across, up, points), name, band))
    lacking = [name for name, _ in _BYTES if name not in [one.name for one in curves]]
    missing = f" {', '.join(lacking).capitalize()}: {NOT_MEASURED}." if lacking else ""
    return Curves(
        title="Memory over time",
        says="Live: bytes requested and not freed. Held: bytes that the allocator has from the "
        f"kernel. Resident: pages in physical memory.{missing}",
        across=scale.axis(across, _since(found), "ns"),
        up=_upright(up, "memory", "bytes"),
        curves=tuple(curves),
        table=table,
    )


def calls_over_time(found: Profile) -> Curves | None:
    """Returns the rate of the allocator's system calls over time.

    Returns None if there are fewer than two moments, or no system calls.
    """
    table = table_named(found, "calls over time")
    known = [(one.ns, one.calls) for one in found.moments if one.calls is not None and one.ns > 0]
    if len(known) < 2 or table is None:
        return None
    ends = [(0, MomentCalls(0, 0, 0)), *spaced(known, _INTERVALS)]
    intervals = [pair for pair in pairwise(ends) if pair[1][0] > pair[0][0]]
    rates = [
        [
            (getattr(now, field) - getattr(then, field)) * 1e9 / (end - begin)
            for (begin, then), (end, now) in intervals
        ]
        for _, _, field in _CALLS
    ]
    across = scale.from_zero([float(ns) for ns, _ in ends])
    up = scale.from_zero([rate for of in rates for rate in of])
    curves = []
    for (name, style, _), of in zip(_CALLS, rates, strict=True):
        points = [
            (ns, rate)
            for ((begin, _), (end, _)), rate in zip(intervals, of, strict=True)
            for ns in (begin, end)
        ]
        curves.append(Curve(name, _line(across, up, points), style))
    return Curves(
        title="System calls over time",
        of="rates",
        says="For memory: calls that take, change or return memory. Waiting: futex (to wait or to "
        "wake), sched_yield and sleep. Other: all other calls. Each level part of a line is the "
        "mean rate of one interval.",
        across=scale.axis(across, _since(found), "ns"),
        up=_upright(up, "system calls per second", "count"),
        curves=tuple(curves),
        table=table,
    )


def _since(found: Profile) -> str:
    """Returns the title of the axis of time."""
    return "time since the start" if found.window is None else "time since counting began"


def _line(across: scale.Scale, up: scale.Scale, points: Sequence[tuple[int, float]]) -> str:
    return " ".join(f"{across.at(ns)},{round(100 - up.at(value), 2)}" for ns, value in points)


def _upright(up: scale.Scale, title: str, unit: str) -> Axis:
    """Returns the axis of numbers that grow upwards."""
    axis = scale.axis(up, title, unit)
    return replace(axis, ticks=tuple(replace(one, at=round(100 - one.at, 2)) for one in axis.ticks))


def _band(across: scale.Scale, up: scale.Scale, moments: Sequence[Moment]) -> str:
    """Returns the polygon of two standard errors around the live bytes; empty if they are exact."""
    if not any(one.live_error_bytes for one in moments):
        return ""
    upper, lower = [], []
    for one in moments:
        error = 2 * one.live_error_bytes
        at = across.at(one.ns)
        upper.append(f"{at},{round(100 - up.at(one.live_bytes + error), 2)}")
        lower.append(f"{at},{round(100 - up.at(max(0, one.live_bytes - error)), 2)}")
    return " ".join([*upper, *reversed(lower)])
