"""The tables of the report of a profile."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from cairn import units
from cairn.model import Interval
from cairn.profile.block_samples import (
    freed_elsewhere,
    freed_number,
    life_below_ns,
    sampled,
    usable_per_asked,
)
from cairn.profile.cpu_share import cpu_share
from cairn.profile.early_ends import cpu_total_ns, faults_total
from cairn.profile.estimates import (
    Estimate,
    Line,
    clock,
    details,
    lines,
    remote_share,
)
from cairn.profile.hot_functions import SHOWN, hot_functions, shown_name
from cairn.profile.lock_table import SHOWN as LOCKS_SHOWN
from cairn.profile.lock_table import lock_table
from cairn.profile.tables import (
    KernelLine,
    event_lines,
    faults_inside,
    kernel_lines,
    lock_lines,
    new_share,
)
from cairn.profile.tally import ALLOCATING, FUNCTIONS, GROUPS, PHASES, MomentCalls, Profile, lasting
from cairn.report.formatting import NOT_MEASURED, printable, shortened
from cairn.report.layout_table import layout_table
from cairn.report.profile_answer import peaks
from cairn.report.profile_numbers import (
    about,
    between,
    digits,
    each,
    estimated,
    percent,
    share_of,
    short_time,
    size_about,
)
from cairn.report.standings import UNKNOWN
from cairn.report.tables import Cell, Table

MEMORY = "memory, one process"
"""The title of the table of the process with the most live bytes."""
_SIZES = ("≤ 1 KiB", "≤ 32 KiB", "larger")
"""The requested sizes of the blocks in each of GROUPS."""
_NO_SIZES = ("",) * len(GROUPS)
"""The cells of the sizes for a function that requests no memory."""
_UNKNOWN_LEAST = 0.005
"""The table has a row for CPU time that cannot be attributed if its share is at least this."""
_FUNCTION_MAX = 44
"""The most characters of a function's name."""
_LOCK_MAX = 32
"""The most characters of a lock's name."""
_ERROR_MOST = 0.25
"""An estimated number of frees is shown without its interval if half the width of the interval is
at most this share of the number."""
_TIMELINE = 12
"""The most rows of the tables over time. A process records up to 384 moments."""
T = TypeVar("T")


def tables(profile: Profile, *, full: bool) -> tuple[Table, ...]:
    """Returns the tables that have rows.

    `full` adds paths, lives of blocks, memory and calls over time, rates of system calls, and locks
    for which no thread waited.
    """
    found = [_cpu_time(profile), _functions(profile), _operations(profile), _times(profile)]
    found.append(_kernel(profile, full=full))
    locks = lock_table(profile)
    waits = locks is not None and locks.waited_for
    if full or waits or any(one.contended for one in lock_lines(profile)):
        found += [_waiting(profile), _locks(profile)]
    found += [_events(profile), *_memory(profile), layout_table(profile, full=full)]
    if full:
        found += [_paths(profile), _blocks(profile), _timeline(profile)]
        found += [_calls_over_time(profile)]
    return tuple(table for table in found if table.rows)


def table_named(profile: Profile, title: str) -> Table | None:
    """Returns the table with this title, or None if it has no rows."""
    found = tables(profile, full=True)
    return next((table for table in found if table.heads[0] == title), None)


def _table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    parts: tuple[int, ...] = (),
    optional: tuple[int, ...] = (),
) -> Table:
    cells = tuple((Cell("  " + row[0]), *(Cell(text) for text in row[1:])) for row in rows)
    return Table("", (title, *heads), cells, len(heads) > 7, parts, optional)


def _operations(profile: Profile) -> Table:
    """Returns the numbers of calls, by phase and by size of the requested blocks.

    Calls by ending threads have a function, but neither a phase nor a size: see _part().
    """
    tally = profile.tally
    rows = []
    for place, name in enumerate(FUNCTIONS):
        late = int(tally.late_calls[place])
        if place < len(ALLOCATING):
            cells = tally.calls[place]
            phases = [int(cells[phase].sum()) for phase in range(len(PHASES))]
            sizes = [int(cells[:, group].sum()) for group in range(len(GROUPS))]
            asked = units.size(int(tally.asked[place].sum() + tally.late_asked[place]))
        else:
            phases, sizes, asked = [int(n) for n in tally.released[place - len(ALLOCATING)]], [], ""
        whole = sum(phases)
        if whole + late:
            by_phase, by_size = (
                [_part(number, whole, late) for number in of] for of in (phases, sizes)
            )
            rows.append(
                (name, units.count(whole + late), *by_phase, asked, *(by_size or _NO_SIZES))
            )
    heads = ("calls", *PHASES, "asked for", *_SIZES)
    last = len(heads) - 1
    return _table("counted", heads, rows, optional=tuple(range(last, last - len(_SIZES), -1)))


def _part(known: int, whole: int, late: int) -> str:
    """Returns the number of calls in one phase or of one size, or a bound of it.

    known: the calls that are known to belong there, of `whole` calls with a known phase and size.
    late: the calls without a known phase and size. Each may belong there, too.
    """
    if not late:
        return units.count(known)
    if not whole:
        return UNKNOWN
    return f"≥ {units.count(known)}" if known else f"≤ {units.count(late)}"


def _cpu_time(profile: Profile) -> Table:
    """Returns the parts of the allocator's share of CPU time. The first screen has their sum."""
    rows = [(name, cpu_part(profile, part)) for name, part in cpu_parts(profile)]
    return _table("CPU time", ("share",), rows)


def cpu_parts(profile: Profile) -> tuple[tuple[str, float], ...]:
    """Returns the parts of the allocator's share of CPU time by name; () if it is not known."""
    found = cpu_share(profile)
    if found.share is None:
        return ()
    parts = [("not attributed", found.unknown)] if found.unknown >= _UNKNOWN_LEAST else []
    if found.scope == "timers":
        return tuple(parts)
    kernel = [("page faults and interrupts in it", found.faults)]
    if found.interrupts is not None:
        kernel = [("page faults in it", found.faults), ("interrupts in it", found.interrupts)]
    return (
        ("the allocator's code", found.own),
        ("its system calls", found.calls),
        *kernel,
        *parts,
    )


def cpu_part(profile: Profile, part: float) -> str:
    """Returns a share of CPU time with the digits that the interval of the whole share allows."""
    found = cpu_share(profile).share
    assert found is not None
    return _percent_of(part, found)


def _functions(profile: Profile) -> Table:
    """Returns the costliest functions in the allocator's code, and the sum of the others."""
    found = hot_functions(profile)
    own = os.path.basename(profile.processes[-1].allocator)
    rows = [
        (
            shortened(printable(shown_name(one.name, one.library, own)), _FUNCTION_MAX),
            _percent_of(one.share.value, one.share),
            f"{_percent_of(one.share.interval.low, one.share)} to "
            f"{_percent_of(one.share.interval.high, one.share)}",
        )
        for one in found[:SHOWN]
    ]
    if left := found[SHOWN:]:
        rest = sum(one.share.value for one in left)
        name = units.counted(len(left), "other function")
        rows.append((name, _percent_of(rest, found[0].share), ""))
    return _table("functions in its code", ("share of CPU time", "95 %"), rows, (), (2,))


def _percent_of(share: float, known: Estimate) -> str:
    """Returns a share with the digits that the interval of `known` allows."""
    ends = known.interval
    return f"{100 * share:.{digits((ends.high - ends.low) / 2)}f} %"


def _times(profile: Profile) -> Table:
    found = lines(profile)
    ticking = clock(profile.tally)
    shortest = ticking.resolution_ns if ticking else 0.0
    rows = [_time_row(line, shortest) for line in found]
    heads = ("operations", "median", "P95", "P99", "P99.9", "longest")
    return _table("timed", heads, rows if found[-1].operations else [], (), (4, 2, 5, 3))


def _time_row(line: Line, shortest: float) -> tuple[str, ...]:
    times = [short_time(ns, shortest) for ns in (*line.quantiles, line.max_ns)]
    return (line.name, _number(line), *times)


def _number(line: Line) -> str:
    """Returns the number of operations, or its interval.

    The number has two digits if it is an estimate whose error is at most _ERROR_MOST. With a larger
    error, the interval is returned.
    """
    low, high = line.within.low, line.within.high
    if low == high:
        return units.count(round(line.operations))
    if high - low <= 2 * _ERROR_MOST * line.operations:
        return f"≈ {_two_digits(line.operations)}"
    return f"{_two_digits(low)} to {_two_digits(high)}"


def _two_digits(number: float) -> str:
    """Returns a count, rounded to two significant digits."""
    digits = max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return units.count(round(number, -digits))


def _kernel(profile: Profile, *, full: bool) -> Table:
    """Returns the system calls within the allocator. `full` adds how frequent they are."""
    rows = [
        (
            one.name,
            units.count(one.count),
            units.count(one.failed),
            "" if one.bytes is None else units.size(one.bytes),
            *(NOT_MEASURED if ns is None else units.time(ns) for ns in (one.total_ns, one.mean_ns)),
            UNKNOWN if one.max_ns is None else units.time(one.max_ns),
            *(
                UNKNOWN if rate is None else _rate(rate)
                for rate in (one.per_second, one.per_thousand)
                if full
            ),
        )
        for one in kernel_lines(profile)
    ]
    heads = ("calls", "failed", "bytes", "total", "mean", "longest")
    rates = ("per second", "per 1,000 op.") if full else ()
    return _table("system calls", (*heads, *rates), rows)


def call_text(one: KernelLine) -> str:
    """Returns the total time of one kind of system call, and the number of calls."""
    total = NOT_MEASURED if one.total_ns is None else units.time(one.total_ns)
    return f"{total}, {units.counted(one.count, 'call')}"


def _waiting(profile: Profile) -> Table:
    ticking = clock(profile.tally)
    shortest = ticking.resolution_ns if ticking else 0.0
    rows = [
        (
            one.name,
            units.count(one.taken),
            units.count(one.contended),
            *(_waited(ns) for ns in (one.wait_ns, one.max_wait_ns)),
            short_time(one.section_ns, shortest),
            units.count(one.refused),
        )
        for one in lock_lines(profile)
    ]
    heads = (
        "taken",
        "contended",
        "waited",
        "longest wait",
        "mean hold time",
        "trylock refused",
    )
    return _table("locks", heads, rows)


def _locks(profile: Profile) -> Table:
    """Returns the locks for which threads waited longest, and then those held longest."""
    found = lock_table(profile)
    own = os.path.basename(profile.processes[-1].allocator)
    rows = []
    for one in found.uses[:LOCKS_SHOWN] if found is not None else ():
        held = one.held_ns
        rows.append(
            (
                shortened(printable(shown_name(one.name, one.library or own, own)), _LOCK_MAX),
                UNKNOWN if one.taken is None else units.count(one.taken),
                units.count(one.waits),
                _waited(one.wait_ns),
                UNKNOWN if one.share is None else percent(min(1.0, one.share)),
                UNKNOWN if held is None else units.time(held.value),
                UNKNOWN
                if held is None
                else f"{units.time(held.interval.low)} to {units.time(held.interval.high)}",
            )
        )
    left = len(found.uses) - len(rows) if found is not None else 0
    if left:
        rows.append((units.counted(left, "other lock"), "", "", "", "", "", ""))
    heads = ("taken", "waits", "waited", "of thread time", "held", "95 %")
    return _table("locks by name", heads, rows, (), (3, 5, 4))


def _events(profile: Profile) -> Table:
    found = event_lines(profile)
    events = list(found[0].totals) if found else []
    rows = [
        (
            one.name,
            units.count(one.operations),
            units.count(one.looked_at),
            *(each(one.per_operation(event)) for event in events),
        )
        for one in found
    ]
    return _table(
        "counted, in user mode",
        ("operations", "sampled", *(f"{event} each" for event in events)),
        rows,
    )


def _waited(ns: float | None) -> str:
    return NOT_MEASURED if ns is None else units.time(ns)


def _rate(number: float) -> str:
    """Returns a rate with three significant digits, or "< 0.1"."""
    return (
        units.count(round(number))
        if number >= 100
        else f"{number:.3g}"
        if number >= 0.1
        else "< 0.1"
    )


def _memory(profile: Profile) -> list[Table]:
    """Returns a table with peaks of the largest process, and one with numbers of all processes.

    A program with one process gets a single table. Most peaks are not here but on the first screen.
    """
    tally, found = profile.tally, peaks(profile)
    alive = lasting(profile.processes)
    inside, new = faults_inside(profile), new_share(tally)
    usable, unused_bytes = found.live_usable, found.between_blocks_bytes
    rows = []
    if usable is not None:
        rows.append(("peak of live blocks, usable", size_about(usable)))
    if unused_bytes is not None:
        rows.append(("peak of memory never handed out", units.size(unused_bytes)))
    totals = [
        ("usable bytes beyond the requests", _excess(profile)),
        ("page faults in the allocator", estimated(inside)),
        ("page faults in total", _faults(profile)),
    ]
    if new is not None:
        totals.append(("malloc and new with fresh memory", percent(new)))
    if tally.released.sum():
        totals.append(("freed by another thread", share_of(remote_share(profile))))
    if len(alive) == 1:
        return [_table(MEMORY, ("",), [*rows, *totals])]
    return [
        _table(MEMORY, ("",), rows),
        _table("memory, all processes", ("",), totals),
    ]


def _excess(profile: Profile) -> str:
    """Returns the usable bytes of blocks beyond the requested ones, as a share of the latter."""
    if not profile.tally.watched_bytes:
        return NOT_MEASURED
    found = usable_per_asked(profile)
    if found is None:
        blocks = units.counted(sampled(profile.tally), "sampled block")
        return f"not known ({blocks})"
    ends = found.interval
    return f"+{about(Estimate(found.value - 1, Interval(ends.low - 1, ends.high - 1, ends.level)))}"


def _faults(profile: Profile) -> str:
    """Returns the page faults of all processes, or their limits.

    There are limits if some process did not end normally.
    """
    if not cpu_total_ns(profile).low:
        return NOT_MEASURED
    return between(faults_total(profile), units.count)


def _paths(profile: Profile) -> Table:
    ticking = clock(profile.tally)
    shortest = ticking.resolution_ns if ticking else 0.0
    rows = []
    for path, line in details(profile):
        name = ", ".join(part for part in (path.kind, path.group, path.phase) if part)
        # A mean needs as many operations as a median, unless every operation was timed.
        is_enough = line.quantiles[0] is not None or line.timed >= line.within.high
        mean_ns = line.mean_ns if is_enough else None
        times = [
            short_time(ns, shortest)
            for ns in (*line.quantiles, line.max_ns, mean_ns, line.alone_ns)
        ]
        rows.append((name, _number(line), units.count(line.timed), *times))
    heads = (
        "operations",
        "timed",
        "median",
        "P95",
        "P99",
        "P99.9",
        "longest",
        "mean",
        "alone",
    )
    return _table("by size and phase", heads, rows)


def _blocks(profile: Profile) -> Table:
    tally = profile.tally
    rows = []
    for place, group in enumerate(GROUPS):
        if not tally.freed[place]:
            continue
        number = freed_number(tally, place)
        lives = [life_below_ns(tally, place, q) for q in (0.5, 0.95)]
        elsewhere = freed_elsewhere(profile, place)
        rows.append(
            (
                group,
                UNKNOWN if number is None else f"≈ {units.count(round(number))}",
                *(UNKNOWN if ns is None else f"< {units.time(ns.interval.high)}" for ns in lives),
                UNKNOWN if elsewhere is None else about(elsewhere),
            )
        )
    return _table("blocks", ("freed", "half lived", "95 % lived", "freed by another thread"), rows)


def _timeline(profile: Profile) -> Table:
    rows = [
        (
            units.time(moment.ns),
            f"≈ {units.size(moment.live_bytes)}",
            NOT_MEASURED if moment.held_bytes is None else units.size(moment.held_bytes),
            NOT_MEASURED if moment.resident_bytes is None else units.size(moment.resident_bytes),
        )
        for moment in spaced(profile.moments, _TIMELINE)
    ]
    return _table("over time", ("live", "held", "resident"), rows)


def spaced(values: Sequence[T], most: int) -> Sequence[T]:
    """Returns at most `most` of the values, in their order. The last one is always among them."""
    step = max(1, -(-len(values) // most))
    return values[(len(values) - 1) % step :: step]


def _calls_over_time(profile: Profile) -> Table:
    """Returns how many system calls the allocator made since the row above.

    These are the calls of the process with the most live bytes.
    """
    known = [(one.ns, one.calls) for one in profile.moments if one.calls is not None]
    none = MomentCalls(0, 0, 0)
    if not known or known[-1][1] == none:
        return _table("calls over time", ("for memory", "waiting", "other"), [])
    ends = [(0, none), *spaced(known, _TIMELINE)]
    rows = [
        (
            units.time(ns),
            units.count(now.memory - before.memory),
            units.count(now.waiting - before.waiting),
            units.count(now.other - before.other),
        )
        for (_, before), (ns, now) in pairwise(ends)
    ]
    return _table("calls over time", ("for memory", "waiting", "other"), rows)
