"""The metrics of a profile by which allocators are compared over many programs.

Each metric is one number of a whole program with an interval, so that it can be stored with a trial
and compared without the profile. Counts are exact, so both ends of their intervals are the count.
Counts are divided by the operations or by the requested bytes of the program, which are the same
under each allocator. All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from cairn.profile.block_samples import usable_per_asked
from cairn.profile.estimates import TOTAL, Z, lines, octaves, remote_share
from cairn.profile.layout import LARGE_BYTES, Figure
from cairn.profile.tables import event_lines, faults_inside, new_share, sees_all_calls
from cairn.profile.tally import CALLS, KINDS, SIZE_BUCKETS, Moment, Profile, Tally

Kind = Literal["kernel", "locks", "memory", "layout", "time"]
"""The group of a metric in tables."""
Worse = Literal["more", "less", "neither"]
"""The direction in which a metric gets worse: "more" if a larger value is worse, "less" if a
smaller one is. A metric with "neither" is shown but not judged, because its value depends on the
program or because neither direction is worse."""
Number = tuple[float, float, float]
"""A value, and the lower and the upper end of its interval."""

EXAMINED_LEAST = 0.5
"""Huge pages are counted only at some moments. Their share is taken from the counted moment with
the most live bytes, if these are at least this part of their peak."""


class ProfileMetric(Struct, frozen=True):
    """One metric of a profile."""

    key: str
    title: str
    """The name of the metric in tables, with its unit. "per 1,000" means "per 1,000 operations"."""
    kind: Kind
    least: float
    """The least value that can have an effect on the program. Smaller values count as equal to this
    one."""
    worse: Worse = "more"
    relative: bool = False
    """Whether the metric is a time, which depends on the machine. Reports therefore divide it by
    the baseline's value of the metric."""
    share: bool = False
    """Whether the metric is a share, from 0 to 1. Reports show it in percent."""

    @property
    def words(self) -> str:
        """The title as it is written in a sentence."""
        return f"{self.title} operations" if self.title.endswith("per 1,000") else self.title


METRICS = (
    ProfileMetric("requested", "requested MiB", "memory", 1.0, "neither"),
    ProfileMetric("calls.map", "mapping calls per 1,000", "kernel", 0.2),
    ProfileMetric("calls.mprotect", "mprotect per 1,000", "kernel", 0.2),
    ProfileMetric("calls.madvise", "madvise per 1,000", "kernel", 0.2),
    ProfileMetric("calls.futex", "futex per 1,000", "kernel", 0.5),
    ProfileMetric("calls.pause", "yields and sleeps per 1,000", "kernel", 0.1),
    ProfileMetric("calls.other", "other system calls per 1,000", "kernel", 0.2),
    ProfileMetric("calls.mib", "system calls per MiB", "kernel", 2.0),
    ProfileMetric("faults.mib", "page faults per MiB", "kernel", 1.0),
    ProfileMetric("faults.inside", "page faults inside per MiB", "kernel", 1.0),
    ProfileMetric("fresh", "share of fresh allocations", "memory", 0.02, share=True),
    ProfileMetric("remote", "share of remote frees", "memory", 0.01, "neither", share=True),
    ProfileMetric("locks.taken", "locks taken per 1,000", "locks", 1.0),
    ProfileMetric("locks.waits", "waits for locks per 1,000", "locks", 0.2),
    ProfileMetric("held", "held ÷ live memory", "memory", 1.0, "neither"),
    ProfileMetric("resident", "resident ÷ live memory", "memory", 1.0),
    ProfileMetric("untouched", "resident, never used ÷ live", "memory", 0.05),
    ProfileMetric("slack", "usable ÷ requested bytes", "memory", 1.0),
    ProfileMetric("page_use", "page use", "layout", 0.01, "less", share=True),
    ProfileMetric("line_use", "cache line use", "layout", 0.01, "less", share=True),
    ProfileMetric("distance", "bytes to the next block", "layout", 256.0),
    ProfileMetric("further", "next block on another page", "layout", 0.05, share=True),
    ProfileMetric("straddling", "blocks on extra cache lines", "layout", 0.05, share=True),
    ProfileMetric("conflicts", "lines of several threads", "layout", 0.02, share=True),
    ProfileMetric("reuse", "operations until reuse", "layout", 16.0, "neither"),
    ProfileMetric("reuse.slow", "share of slow reuse", "layout", 0.05, "neither", share=True),
    ProfileMetric("reuse.other", "reuse by another thread", "layout", 0.02, "neither", share=True),
    ProfileMetric("time.new", "time of a fresh malloc", "time", 1.0, relative=True),
    ProfileMetric("time.reused", "time of a reusing malloc", "time", 1.0, relative=True),
    ProfileMetric("time.free", "time of a free", "time", 1.0, relative=True),
    ProfileMetric("instructions", "instructions of a pair", "time", 1.0, "neither"),
    ProfileMetric("share", "CPU share with faults", "time", 0.01, "neither", share=True),
)
"""All metrics, in the order of tables.

Values below `least` take less than about 1 % of the allocator's time or 5 % of the memory. For
example, 1,000 operations of 20 ns take 20 µs, and 0.2 system calls of 1 µs take 1 % of this time. A
MiB of blocks of 100 bytes takes about 10,000 operations or 200 µs, and 2 system calls take 1 % of
this time. The memory held is not judged, because addresses that are only reserved cost nothing.
"""
BY_KEY = {one.key: one for one in METRICS}
_GROUPS = {
    "calls.map": ("mmap", "munmap", "mremap", "brk"),
    "calls.mprotect": ("mprotect",),
    "calls.madvise": (
        "madvise(DONTNEED)", "madvise(FREE)", "madvise(HUGEPAGE)", "madvise(other)",
    ),
    "calls.futex": ("futex wait", "futex wake"),
    "calls.pause": ("sched_yield", "sleep"),
    "calls.other": ("other",),
}  # fmt: skip
_FREES = tuple(kind for kind in KINDS if kind.startswith("free"))
_TIMED_LEAST = 30
"""With fewer timed operations than this, a mean time counts as not measured."""


def measured(profile: Profile) -> dict[str, Number]:
    """Returns the metrics by key. A metric that was not measured is absent."""
    found = {
        **dict(_kernel(profile)),
        **dict(_memory(profile)),
        **dict(_layout(profile)),
        **dict(_times(profile)),
    }
    return {
        key: (value, low, high)
        for key, (value, low, high) in found.items()
        if math.isfinite(high) and 0 <= low <= value <= high
    }


def _exact(value: float) -> Number:
    return value, value, value


def _kernel(profile: Profile) -> Iterator[tuple[str, Number]]:
    tally, operations = profile.tally, profile.operations
    mib = (int(tally.asked.sum()) + int(tally.late_asked.sum())) / (1 << 20)
    if not operations or not mib:
        return
    counts = {name: int(count) for name, count in zip(CALLS, tally.kernel.count, strict=True)}
    if all(map(sees_all_calls, profile.processes)):
        for key, names in _GROUPS.items():
            yield key, _exact(sum(counts[name] for name in names) / operations * 1000)
        yield "calls.mib", _exact(sum(counts.values()) / mib)
    yield "requested", _exact(mib)
    inside = faults_inside(profile)
    if inside is not None:
        ends = inside.interval
        yield "faults.inside", (inside.value / mib, ends.low / mib, ends.high / mib)
    locks = tally.locks
    yield "locks.taken", _exact(int(locks.taken.sum()) / operations * 1000)
    yield "locks.waits", _exact(int(locks.contended.sum()) / operations * 1000)


def _memory(profile: Profile) -> Iterator[tuple[str, Number]]:
    tally = profile.tally
    fresh = new_share(tally)
    if fresh is not None:
        yield "fresh", _exact(fresh)
    remote = remote_share(profile)
    if remote is not None:
        yield "remote", (remote.value, remote.interval.low, remote.interval.high)
    most = max(profile.moments, key=lambda moment: moment.live_bytes, default=None)
    if most is not None and most.live_bytes:
        for key, part in (
            ("held", most.held_bytes),
            ("resident", most.resident_bytes),
            ("untouched", most.unasked_bytes),
        ):
            if part is not None:
                yield key, _over_live(part, most)
    usable = usable_per_asked(profile)
    if usable is not None:
        yield "slack", (usable.value, usable.interval.low, usable.interval.high)


def _over_live(part: int, moment: Moment) -> Number:
    """`part` divided by the live bytes of a moment. Only the live bytes have an error."""
    live, away = moment.live_bytes, Z * moment.live_error_bytes
    most = part / (live - away) if away < live else math.inf
    return part / live, part / (live + away), most


def _layout(profile: Profile) -> Iterator[tuple[str, Number]]:
    """Yields the metrics of kind "layout", and others that only findings use."""
    layout = profile.layout
    if layout is None:
        return
    peak = max((moment.live_bytes for moment in profile.moments), default=0)
    examined = (one for one in profile.moments if one.huge_bytes is not None)
    most = max(examined, key=lambda moment: moment.live_bytes, default=None)
    if most is not None and most.resident_bytes and most.live_bytes >= EXAMINED_LEAST * peak:
        yield "huge", _exact(min(1.0, (most.huge_bytes or 0) / most.resident_bytes))
    small = layout.neighbours[0]
    figures: tuple[tuple[str, Figure | None], ...] = (
        ("page_use", layout.page_use),
        ("line_use", layout.line_use),
        ("distance", small.distance_bytes),
        ("further", small.further),
        ("straddling", small.straddling),
        ("reuse", layout.reuse_operations),
        ("reuse.slow", layout.slow_reuse),
        ("reuse.other", layout.other_reuse),
        ("pages_per_mib", layout.pages_per_mib),
        ("lines_per_mib", layout.lines_per_mib),
        ("header", small.header_bytes),
        ("alike.distance", small.alike_distance_bytes),
        ("alike.further", small.alike_further),
        ("sets", layout.set_share),
    )
    for key, figure in figures:
        if figure is not None:
            yield key, (figure.value, figure.low, figure.high)
    if layout.large_share is not None:
        yield "large", _exact(layout.large_share)
    mean_bytes = _mean_large(profile.counts_of_largest)
    if mean_bytes is not None:
        yield "large.mean", _exact(mean_bytes)
    yield "snapshot", _exact(layout.snapshot_bytes)
    if layout.watches.lines:
        yield "watched", _exact(layout.watches.lines)
        yield "confirmed", _exact(layout.watches.confirmed)
    active, passive = layout.active_conflicts, layout.passive_conflicts
    if active is not None and passive is not None:
        yield (
            "conflicts",
            (
                active.value + passive.value,
                active.low + passive.low,
                active.high + passive.high,
            ),
        )


def _mean_large(tally: Tally) -> float | None:
    """The mean requested size of the blocks of 4 KiB and more; None if there are none."""
    import numpy as np

    ends = octaves(SIZE_BUCKETS, 4)
    weights = np.where(ends[:-1] >= LARGE_BYTES, tally.sizes, 0.0)
    whole = float(weights.sum())
    return float((weights * (ends[:-1] + ends[1:])).sum()) / 2 / whole if whole else None


def _times(profile: Profile) -> Iterator[tuple[str, Number]]:
    by_name = {line.name: line for line in lines(profile)}
    for key, names in (
        ("time.new", ("new",)), ("time.reused", ("reused",)), ("time.free", _FREES),
    ):  # fmt: skip
        parts = [
            (line.total_ns, line.mean_ns)
            for name in names
            if (line := by_name.get(name)) is not None and line.timed >= _TIMED_LEAST
        ]
        totals = [total for total, mean in parts if total is not None and mean]
        # An operation of a stratum without timed operations is in no total.
        count = sum(total.value / mean for total, mean in parts if total is not None and mean)
        if count:
            yield (
                key,
                (
                    sum(one.value for one in totals) / count,
                    sum(one.interval.low for one in totals) / count,
                    sum(one.interval.high for one in totals) / count,
                ),
            )
    for events in event_lines(profile):
        if events.name == TOTAL and "instructions" in events.totals and events.operations:
            each = events.per_operation("instructions")
            yield "instructions", (2 * each.value, 2 * each.interval.low, 2 * each.interval.high)
