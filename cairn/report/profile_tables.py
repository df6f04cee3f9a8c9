"""The tables of the report of a profile."""

from __future__ import annotations

from collections.abc import Sequence

from cairn import units
from cairn.profile.cpu_share import cpu_share
from cairn.profile.estimates import Estimate, Line, clock, cpu_ns, details, lines, remote_share
from cairn.profile.tables import (
    event_lines,
    faults_inside,
    kernel_lines,
    life_below_ns,
    lock_lines,
    new_share,
)
from cairn.profile.tally import ALLOCATING, FUNCTIONS, GROUPS, PHASES, Peak, Profile, lasting
from cairn.report.formatting import NOT_MEASURED
from cairn.report.profile_numbers import digits, estimated, percent, share_of, short_time
from cairn.report.standings import UNKNOWN
from cairn.report.tables import Cell, Table

_SIZES = ("≤ 1 KiB", "≤ 32 KiB", "larger")
"""The requested sizes of the blocks in each of GROUPS."""
_UNKNOWN_LEAST = 0.005
"""The least share of CPU time that cannot be attributed and is shown."""
_TIMELINE = 12
"""The most rows of the table of memory over time. A process records up to 512 moments."""


def tables(profile: Profile, *, full: bool) -> tuple[Table, ...]:
    """Returns the tables that have rows. `full` adds paths, lives of blocks, and the timeline."""
    found = [_cpu_time(profile), _operations(profile), _times(profile), _kernel(profile)]
    found += [_waiting(profile), _events(profile), *_memory(profile)]
    if full:
        found += [_paths(profile), _blocks(profile), _timeline(profile)]
    return tuple(table for table in found if table.rows)


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
            shares = [
                units.percent(size / whole, signed=False) if whole else UNKNOWN for size in sizes
            ]
            texts = [units.count(number) for number in (whole + late, *phases)]
            rows.append((name, *texts, asked, *(shares or [""] * len(GROUPS))))
    heads = ("calls", *PHASES, "asked for", *_SIZES)
    last = len(heads) - 1
    return _table("counted", heads, rows, optional=tuple(range(last, last - len(_SIZES), -1)))


def _cpu_time(profile: Profile) -> Table:
    found = cpu_share(profile)
    if found.share is None:
        return _table("CPU time", ("share", "95 %"), [])
    ends = found.share.interval
    decimals = digits((ends.high - ends.low) / 2)
    rows = [
        (
            "allocator",
            f"{100 * found.share.value:.{decimals}f} %",
            f"{100 * ends.low:.{decimals}f} to {100 * ends.high:.{decimals}f}",
        )
    ]
    if found.scope != "timers":
        parts = (
            ("· its code", found.own),
            ("· its system calls", found.calls),
            ("· page faults in it", found.faults),
        )
        rows += [(name, f"{100 * part:.{decimals}f} %", "") for name, part in parts]
    if found.unknown >= _UNKNOWN_LEAST:
        rows.append(("not known whose", f"{100 * found.unknown:.{decimals}f} %", ""))
    return _table("CPU time", ("share", "95 %"), rows)


def _times(profile: Profile) -> Table:
    found = lines(profile)
    ticking = clock(profile.tally)
    shortest = ticking.resolution_ns if ticking else 0.0
    rows = [_time_row(line, shortest) for line in found]
    heads = ("operations", "median", "P95", "P99", "P99.9", "longest")
    return _table("timed", heads, rows if found[-1].operations else [], (), (4, 2, 5, 3))


def _time_row(line: Line, shortest: float) -> tuple[str, ...]:
    times = [short_time(ns, shortest) for ns in (*line.quantiles, line.max_ns)]
    return (line.name, units.count(round(line.operations)), *times)


def _kernel(profile: Profile) -> Table:
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
            ),
        )
        for one in kernel_lines(profile)
    ]
    heads = ("calls", "failed", "bytes", "total", "mean", "longest", "per second", "per 1,000 op.")
    return _table("system calls", heads, rows)


def _waiting(profile: Profile) -> Table:
    ticking = clock(profile.tally)
    shortest = ticking.resolution_ns if ticking else 0.0
    rows = [
        (
            one.name,
            units.count(one.taken),
            units.count(one.contended),
            percent(one.contended / one.taken) if one.taken else UNKNOWN,
            *(_waited(ns) for ns in (one.wait_ns, one.max_wait_ns)),
            short_time(one.section_ns, shortest),
            units.count(one.refused),
        )
        for one in lock_lines(profile)
    ]
    heads = (
        "taken",
        "contended",
        "share",
        "waited",
        "longest wait",
        "mean section",
        "trylock refused",
    )
    return _table("locks", heads, rows)


def _events(profile: Profile) -> Table:
    found = event_lines(profile)
    events = list(found[0].totals) if found else []
    rows = [
        (
            one.name,
            units.count(one.operations),
            units.count(one.looked_at),
            *(_mean(one.per_operation(event)) for event in events),
        )
        for one in found
    ]
    return _table(
        "counted, in user mode",
        ("operations", "sampled", *(f"{event} each" for event in events)),
        rows,
    )


def _mean(each: Estimate) -> str:
    ends = each.interval
    return f"{each.value:.3g} [{ends.low:.3g}, {ends.high:.3g}]"


def _waited(ns: float | None) -> str:
    return NOT_MEASURED if ns is None else units.time(ns)


def _rate(number: float) -> str:
    return units.count(round(number)) if number >= 100 else f"{number:.3g}"


def _memory(profile: Profile) -> list[Table]:
    """Returns the peaks of one process, and the numbers of all processes.

    A program with one process gets one table.
    """
    tally, largest = profile.tally, profile.largest
    held = max((moment.held_bytes for moment in profile.moments if moment.held_bytes), default=None)
    resident = largest.peak_resident_bytes or None
    unasked = max(
        (one.unasked_bytes for one in profile.moments if one.unasked_bytes is not None),
        default=None,
    )
    alive = lasting(profile.processes)
    faults = sum(process.minor_faults + process.major_faults for process in alive)
    inside, new, slack = faults_inside(profile), new_share(tally), None
    if tally.watched_bytes:
        slack = units.percent(tally.usable_bytes / tally.watched_bytes - 1)
    peaks = [("peak of live blocks, as requested", _peak(largest.peak_requested))]
    if largest.peak_usable is not None:
        peaks.append(("peak of live blocks, usable", _peak(largest.peak_usable)))
    peaks += [
        ("peak held from the kernel", NOT_MEASURED if held is None else units.size(held)),
        ("peak resident", NOT_MEASURED if resident is None else units.size(resident)),
    ]
    if unasked is not None:
        peaks.append(("peak between blocks, never handed out", units.size(unasked)))
    totals = [
        ("usable bytes beyond the requests", slack or NOT_MEASURED),
        ("page faults in the allocator", estimated(inside)),
        ("page faults in total", units.count(faults) if cpu_ns(profile) else NOT_MEASURED),
    ]
    if new is not None:
        totals.append(("malloc and new from new memory", percent(new)))
    if tally.released.sum():
        totals.append(("freed by another thread", share_of(remote_share(tally))))
    if len(alive) == 1:
        return [_table("memory, one process", ("",), [*peaks, *totals])]
    return [
        _table("memory, one process", ("",), peaks),
        _table("memory, all processes", ("",), totals),
    ]


def _peak(peak: Peak | None) -> str:
    """Returns a peak of live bytes with its interval. A unit that all share is named once."""
    if peak is None:
        return NOT_MEASURED
    value, low, high = (units.size(number) for number in (peak.bytes, peak.low, peak.high))
    if peak.low == peak.high:
        return value
    if len({text.partition(" ")[2] for text in (value, low, high)}) == 1:
        low, high = (text.partition(" ")[0] for text in (low, high))
    return f"≈ {value} [{low}, {high}]"


def _paths(profile: Profile) -> Table:
    ticking = clock(profile.tally)
    shortest = ticking.resolution_ns if ticking else 0.0
    rows = []
    for path, line in details(profile):
        name = ", ".join(part for part in (path.kind, path.group, path.phase) if part)
        times = [
            short_time(ns, shortest)
            for ns in (*line.quantiles, line.max_ns, line.mean_ns, line.alone_ns)
        ]
        rows.append((name, units.count(round(line.operations)), units.count(line.timed), *times))
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
        freed = float(tally.freed[place])
        if freed:
            lives = [life_below_ns(tally, place, q) for q in (0.5, 0.95)]
            texts = [UNKNOWN if ns is None else f"< {units.time(ns)}" for ns in lives]
            elsewhere = percent(min(1.0, float(tally.freed_elsewhere[place]) / freed))
            rows.append((group, f"≈ {units.count(round(freed))}", *texts, elsewhere))
    return _table("blocks", ("freed", "half lived", "95 % lived", "freed by another thread"), rows)


def _timeline(profile: Profile) -> Table:
    moments = profile.moments
    step = max(1, -(-len(moments) // _TIMELINE))
    rows = [
        (
            units.time(moment.ns),
            f"≈ {units.size(moment.live_bytes)}",
            NOT_MEASURED if moment.held_bytes is None else units.size(moment.held_bytes),
            units.size(moment.resident_bytes),
        )
        for moment in moments[step - 1 :: step]
    ]
    return _table("over time", ("live", "held", "resident"), rows)
