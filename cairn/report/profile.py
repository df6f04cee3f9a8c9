"""The report of a profile as text: calls, times, system calls, locks and memory of an allocator.

It begins with the share of CPU time that the allocator takes.
"""

from __future__ import annotations

import errno
import math
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from cairn import units
from cairn.findings import find
from cairn.model import Finding, Interval
from cairn.profile.cpu_share import SAMPLES_LEAST, CpuShare, cpu_share
from cairn.profile.estimates import (
    Estimate,
    Line,
    clock,
    cpu_ns,
    details,
    lines,
    probe_ns,
    remote_share,
)
from cairn.profile.tables import (
    event_lines,
    events_refused,
    faults_inside,
    kernel_lines,
    kernel_ns,
    life_below_ns,
    lock_lines,
    new_share,
    size_below,
)
from cairn.profile.tally import (
    ALLOCATING,
    CALLS,
    FUNCTIONS,
    GROUPS,
    PHASES,
    WAITING,
    Missing,
    Peak,
    Profile,
    Scope,
    Seen,
    Tree,
    call_name,
    cut_short,
    lasting,
    one_or_more,
)
from cairn.report import terminal
from cairn.report.formatting import NOT_MEASURED, printable, shortened, wrapped
from cairn.report.prediction import sentences
from cairn.report.standings import UNKNOWN, Board
from cairn.report.tables import Cell, Table
from cairn.report.view import View
from cairn.why.prediction import Prediction

_COUNTERS = ("cycles", "instructions", "branch-misses", "cache-misses", "dTLB-load-misses")
_SHORT_NS = 100
"""The processor executes much of an operation that is shorter than this at the same time as the
instructions around it."""
_SIZES = ("≤ 1 KiB", "≤ 32 KiB", "larger")
"""The requested sizes of the blocks in each of GROUPS."""
_COMMAND_MAX = 60
"""The most characters of the command that the title shows."""
_PIDS_MOST = 5
"""The most process numbers that a sentence names for one program."""
_UNKNOWN_LEAST = 0.005
"""The least share of CPU time that cannot be attributed and is shown."""
_TIMELINE = 12
"""The most rows of the table of memory over time. A process records up to 512 moments."""


def render(
    profile: Profile,
    view: View,
    *,
    allocator: str | None = None,
    others: Sequence[Prediction] = (),
) -> str:
    """Returns the report as text.

    `allocator` is the user's name of the allocator; None takes the name of its file. `others` are
    the predicted savings of other allocators.
    """
    text = board(profile, allocator=allocator, full=view.full, others=others)
    title = "\n".join(wrapped(text.title, view.width))
    answer = "\n".join(
        line for told in answers(profile) for line in wrapped(printable(told), view.width)
    )
    return f"{title}\n\n{answer}\n\n{terminal.drawn(text, view).rstrip()}\n"


def board(
    profile: Profile,
    *,
    allocator: str | None = None,
    full: bool = False,
    others: Sequence[Prediction] = (),
) -> Board:
    """Returns the report's tables and sentences before they are fitted into a width."""
    found = [_cpu_time(profile), _operations(profile), _times(profile)]
    found += [_kernel(profile), _waiting(profile)]
    found += [_events(profile), *_memory(profile)]
    if full:
        found += [_paths(profile), _blocks(profile), _timeline(profile)]
    return Board(
        title=_title(profile, allocator),
        says=(
            *(printable(because(finding)) for finding in find(profile)),
            *map(printable, sentences(others)),
        ),
        tables=tuple(table for table in found if table.rows),
        footer=tuple(printable(note) for note in notes(profile)),
        failures=(),
    )


def answers(profile: Profile) -> Iterator[str]:
    """Yields the sentences about the allocator's share of CPU time, and why it may be imprecise."""
    found = cpu_share(profile)
    why_not = profile.clock.why_not if profile.clock is not None else ""
    if found.share is None:
        more = ""
        if found.runs:
            runs = max(2, -(-SAMPLES_LEAST * found.runs // max(1, found.samples)))
            more = f" A longer run has more, or --runs {runs}."
        elif profile.operations:
            more = f" {_PERMISSION}"
        yield f"The allocator's share of CPU time is not known: {found.why_not}.{more}"
    else:
        yield (
            f"The allocator takes {_about(found.share)} of the CPU time. No other allocator can "
            "save more than that in the allocator itself; how blocks lie can change the rest."
        )
    if found.scope == "timers" and why_not:
        yield (
            f"▲ That comes from only {units.counted(found.samples, 'sample')} of CPU time, "
            f"because {why_not}. {_PERMISSION}"
        )


_PERMISSION = "Root, or a kernel.perf_event_paranoid of 2 or less, permits a faster clock."


def _about(share: Estimate) -> str:
    """Returns a share with its interval, with two significant digits of the interval's half."""
    ends = share.interval
    decimals = _digits((ends.high - ends.low) / 2)
    value, low, high = (f"{100 * one:.{decimals}f}" for one in (share.value, ends.low, ends.high))
    return f"{value} % ({low} to {high})"


def _digits(half: float) -> int:
    """Returns the decimals of a percentage that show two significant digits of `half`."""
    return min(4, max(0, 1 - math.floor(math.log10(half * 100)))) if half > 0 else 1


def because(finding: Finding) -> str:
    """Returns a finding as a paragraph: the cause, its size, the evidence and the advice."""
    about = f"{_percent(finding.effect)} of {finding.of}"
    ends = finding.interval
    within = f" {_range(ends, finding.effect)}" if ends is not None and ends.low < ends.high else ""
    return (
        f"▲ {finding.says}: {about}{within}. {'; '.join(finding.evidence)}. To do: "
        f"{finding.advice}."
    )


def allocator_of(profile: Profile, given: str | None) -> str:
    """Returns the user's name of the allocator, else the names of the libraries that own malloc."""
    known = given or (profile.tree.allocator if profile.tree else None)
    return known or one_or_more([path.rpartition("/")[2] or "unknown" for path in _used(profile)])


def program_of(profile: Profile) -> str:
    """Returns the command if it is known, else the programs of the processes."""
    if profile.tree is None:
        return one_or_more([process.program for process in profile.processes])
    return shlex.join(profile.tree.command)


def _used(profile: Profile) -> list[str]:
    """Returns the paths of the libraries that owned malloc, the most frequent first."""
    return [
        path
        for path, _ in Counter(process.allocator for process in profile.processes).most_common()
    ]


def _title(profile: Profile, allocator: str | None) -> str:
    alive = lasting(profile.processes)
    threads = sum(process.threads for process in alive)
    cpu = cpu_ns(profile)
    parts = (
        shortened(program_of(profile), _COMMAND_MAX),
        allocator_of(profile, allocator),
        units.counted(len(alive), "process", "processes"),
        units.counted(threads, "thread", "threads"),
        f"wall {units.time(profile.wall_ns) if profile.wall_ns else NOT_MEASURED}",
        *([f"from {units.time(profile.window.after_ns)} on"] if profile.window else []),
        f"CPU {NOT_MEASURED if cpu is None else units.time(cpu)}",
    )
    return "profile  " + " · ".join(printable(part) for part in parts)


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
    decimals = _digits((ends.high - ends.low) / 2)
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
    times = [_time(ns, shortest) for ns in (*line.quantiles, line.max_ns)]
    return (line.name, units.count(round(line.operations)), *times)


def _time(ns: float | None, shortest: float) -> str:
    if ns is None:
        return UNKNOWN
    return f"< {units.time(shortest)}" if ns < shortest else units.time(ns)


def _percent(share: float) -> str:
    """Returns a share as text, with three significant digits.

    With fewer digits, the ends of its interval could look equal.
    """
    return f"{share * 100:.{_decimals(share)}f} %"


def _decimals(share: float) -> int:
    return min(4, max(0, 2 - math.floor(math.log10(share * 100)))) if share > 0 else 0


def _within(share: Estimate) -> str:
    """Returns the interval as text, with as many decimals as its estimate."""
    return _range(share.interval, share.value)


def _range(ends: Interval, value: float = 0.0) -> str:
    decimals = _decimals(value or ends.high)
    return f"[{ends.low * 100:.{decimals}f}, {ends.high * 100:.{decimals}f}]"


def _estimated(count: Estimate | None) -> str:
    if count is None:
        return NOT_MEASURED
    value, low, high = (
        units.count(round(n)) for n in (count.value, count.interval.low, count.interval.high)
    )
    return value if low == high else f"≈ {value} [{low}, {high}]"


def _share(share: Estimate | None) -> str:
    return NOT_MEASURED if share is None else f"{_percent(share.value)} {_within(share)}"


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
            _percent(one.contended / one.taken) if one.taken else UNKNOWN,
            *(_waited(ns) for ns in (one.wait_ns, one.max_wait_ns)),
            _time(one.section_ns, shortest),
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
        ("page faults in the allocator", _estimated(inside)),
        ("page faults in total", units.count(faults) if cpu_ns(profile) else NOT_MEASURED),
    ]
    if new is not None:
        totals.append(("malloc and new from new memory", _percent(new)))
    if tally.released.sum():
        totals.append(("freed by another thread", _share(remote_share(tally))))
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
            _time(ns, shortest)
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
            elsewhere = _percent(min(1.0, float(tally.freed_elsewhere[place]) / freed))
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


def notes(profile: Profile) -> Iterator[str]:
    """Yields how the numbers were measured, and warnings (▲) about missing parts."""
    if profile.window:
        yield (
            f"counted for {units.time(profile.wall_ns)}, beginning "
            f"{units.time(profile.window.after_ns)} after the program's start; {UNKNOWN} for a "
            "longest time means that it did not occur in that period"
        )
    tally, processes = profile.tally, profile.processes
    total = lines(profile)[-1]
    gaps = sorted({process.gap for process in processes})
    one_in = " or ".join(units.count(gap) for gap in gaps[:3])
    if total.timed:
        yield (
            f"{units.count(total.timed)} of {units.counted(round(total.operations), 'operation')} "
            f"{'was' if total.timed == 1 else 'were'} timed: one in {one_in} on small and medium "
            "blocks, all on large blocks"
        )
    sizes = size_below(tally, 0.5), size_below(tally, 0.95)
    if sizes[0] is not None and sizes[1] is not None:
        yield (
            f"half of all blocks are smaller than {units.size(sizes[0])}, "
            f"95 % are smaller than {units.size(sizes[1])}"
        )
    if total.mean_ns is not None and total.alone_ns is not None and total.mean_ns < _SHORT_NS:
        yield (
            "times: operations overlap with the program's other instructions; an operation that "
            f"overlaps with nothing takes {_time(total.alone_ns, 0.0)} on average"
        )
    yield from _clocks(profile, cpu_share(profile))
    yield from _live(profile)
    yield from _seen(profile)
    yield from _counters(profile)
    yield from _waits(profile)
    if other := _other(profile):
        yield other
    if profile.tree is not None:
        yield _whole(profile.tree)
    own = probe_ns(profile)
    if own and cpu_ns(profile):
        yield f"the probe's own CPU time is left out: {units.time(own)}"
    if total.timed and clock(tally) is None:
        yield f"▲ Times are {NOT_MEASURED}: the processes ended before the clock was calibrated."
    waited = kernel_ns(kernel_lines(profile), waiting=True)
    if waited and total.total_ns and waited > total.total_ns.value / 100:
        yield (
            f"▲ The times above contain {units.time(waited)} of waiting in system calls, "
            "which takes no CPU time."
        )
    if short := cut_short(processes):
        yield (
            f"▲ {units.counted(len(short), 'process was', 'processes were')} killed or exited by a "
            "system call, and counted "
            f"up to then ({one_or_more([process.program for process in short])})."
        )
    if profile.empty:
        ended = units.counted(profile.empty, "process", "processes")
        yield f"▲ {ended} left no counts (ended too early, or could not write a file)."
    switched, ticking = int(tally.timed.switched.sum()), clock(tally)
    if switched and ticking:
        time = units.time(float(tally.timed.switched_ticks.sum()) * ticking.ns_per_tick)
        yield (
            f"▲ {units.count(switched)} timed operations were preempted ({time} in total); "
            "the times above leave them out."
        )
    yield from _missing(profile, total)


def not_recorded(missing: Sequence[Missing]) -> str:
    """Returns the names of the processes that could not be recorded, and the reasons.

    The result is a clause without its end. It is empty if no process is missing.
    """
    named: dict[tuple[str, str], list[int]] = {}
    for one in missing:
        named.setdefault((one.program, one.why), []).append(one.pid)
    clauses = []
    for (program, why), pids in named.items():
        if not program:
            clauses.append(f"{units.counted(len(pids), 'other process', 'other processes')}")
            continue
        shown = [str(pid) for pid in pids[:_PIDS_MOST]]
        more = f" and {len(pids) - len(shown)} more" if len(pids) > len(shown) else ""
        code = getattr(errno, why, None)
        reason = f"{os.strerror(code)} ({why})" if code is not None else why
        clauses.append(f"{program} ({', '.join(shown)}{more}) could not write a profile: {reason}")
    return "; ".join(clauses)


def _missing(profile: Profile, total: Line) -> Iterator[str]:
    if (missing := profile.tree.missing if profile.tree else ()) and missing:
        of = len(missing) + len(lasting(profile.processes))
        are = "is" if len(missing) == 1 else "are"
        yield (f"▲ {len(missing):,} of {of:,} processes {are} missing: {not_recorded(missing)}.")
    tally, processes = profile.tally, profile.processes
    if total.untimed:
        kinds = one_or_more(
            [one.name for one in lines(profile) if one.untimed and one.name != total.name]
            or ["free"]
        )
        yield (
            f"▲ The times do not include {units.counted(total.untimed, 'operation')}, because no "
            f"operation of {'its' if total.untimed == 1 else 'their'} kind was timed ({kinds})."
        )
    if late := int(tally.late_calls.sum()):
        yield (
            f"▲ {units.counted(late, 'call')} by ending threads: counted, but in no phase and "
            "not timed."
        )
    if failed := [
        (name, int(count)) for name, count in zip(ALLOCATING, tally.failed, strict=True) if count
    ]:
        yield (
            "▲ Failed calls: "
            + ", ".join(f"{units.count(count)} of {name}" for name, count in failed)
            + "."
        )
    if lost := sum(process.threads_lost for process in processes):
        yield f"▲ {units.counted(lost, 'thread')} could not be counted; is the disk full?"
    if len(used := _used(profile)) > 1:
        yield (
            "▲ The processes called different allocators: "
            f"{', '.join(path or 'unknown' for path in used[:4])}."
        )


_HOW: dict[Seen, str] = {
    "dispatch": "system calls: all were seen, by syscall user dispatch",
    "interpose": "▲ System calls: only those through libc's functions were seen",
    "unseen": f"▲ System calls and held memory were {NOT_MEASURED}",
}


def _live(profile: Profile) -> Iterator[str]:
    """Yields that the live bytes are an estimate, and what would count them."""
    if profile.largest.live_counted or profile.largest.peak_requested is None:
        return
    asked = any(one.live_usable_bytes is not None for one in profile.moments)
    yield "live blocks: estimated from a sample, with its error; " + (
        "--live exact counts them"
        if asked
        else "they cannot be counted, because the allocator has no malloc_usable_size()"
    )


def _seen(profile: Profile) -> Iterator[str]:
    """Yields how system calls were seen, and why syscall user dispatch was refused."""
    ways = Counter(process.seen for process in profile.processes)
    for way, count in ways.most_common():
        among = (
            f" ({units.count(count)} of {len(profile.processes):,} programs)"
            if len(ways) > 1
            else ""
        )
        reasons = {
            process.seen_errno
            for process in profile.processes
            if process.seen == way and process.seen_errno
        }
        why = " or ".join(_refusal(reason) for reason in sorted(reasons)[:3])
        yield _HOW[way] + among + (f"; dispatch was refused: {why}" if why else "")


def _counters(profile: Profile) -> Iterator[str]:
    """Yields the counters that were asked for and refused, and how the others were counted."""
    refused = events_refused(profile)
    if refused:
        names = ", ".join(
            f"{event} ({' or '.join(map(_refusal, errors))})" for event, errors in refused.items()
        )
        yield f"▲ Counters within the allocator are not available here: {names}"
    if event_lines(profile):
        yield (
            "counters: in user mode, in a part of the timed operations; the cost of reading them "
            "is subtracted"
        )


def _refusal(reason: int) -> str:
    return (
        "valgrind cannot"
        if reason == errno.EOPNOTSUPP
        else errno.errorcode.get(reason, f"error {reason}")
    )


def _clocks(profile: Profile, found: CpuShare) -> Iterator[str]:
    """Yields how the share of CPU time was measured, and what is wrong with it."""
    if found.share is not None:
        runs = (
            "of this run"
            if found.probed and found.runs == 1
            else f"of {units.counted(found.runs, 'run')}"
            f"{'' if found.probed else ' without the probe'}"
        )
        yield (
            f"CPU time: from {units.counted(found.samples, 'clock sample')} {runs}, "
            f"{_CLOCKS[found.scope or 'timers']} · 95 %: sampling ± {_points(found.sampling)}, "
            f"instructions that overlap ± {_points(found.overlap)}"
            + (f", not known whose {_points(found.unknown)}" if found.unknown >= 0.0005 else "")
        )
    if found.scope in ("threads", "threads in user mode"):
        yield (
            "▲ Threads and processes that live for less than a millisecond have too few of these "
            "samples, because the clock begins anew with each thread. Root, or a "
            "kernel.perf_event_paranoid of 0 or less, permits the clock of each processor."
        )
    if found.contradicted is not None:
        yield (
            f"▲ The probe's timers of CPU time found {_about(found.contradicted)} in this run, "
            "which contradicts the kernel's clock. The interval contains both."
        )
    if profile.clock is not None and profile.clock.is_unlike:
        yield (
            "▲ When the program ran again, it ended otherwise or used much more or less CPU time. "
            "So only its first run counts."
        )
    refused = sum(process.timers_refused for process in profile.processes)
    if refused and found.scope == "timers":
        reasons = {process.timer_errno for process in profile.processes if process.timers_refused}
        why = " or ".join(
            errno.errorcode.get(reason, f"error {reason}") for reason in sorted(reasons)[:3]
        )
        yield f"▲ {units.counted(refused, 'thread', 'threads')} got no timer of CPU time ({why})."


_CLOCKS: dict[Scope, str] = {
    "processors": "by the kernel's clock of each processor",
    "threads": "by the kernel's clock of each thread",
    "threads in user mode": "by the kernel's clock of each thread, which does not see the kernel; "
    "the probe timed the allocator's system calls",
    "timers": "by timers that the kernel looks at about every 4 ms",
}


def _points(share: float) -> str:
    return f"{100 * share:.2g} %"


def _whole(tree: Tree) -> str:
    """Returns the figures of the process tree: times, context switches and hardware counters."""
    counted = {
        name: value
        for name, value in tree.counters.items()
        if value is not None and name in _COUNTERS
    }
    missing = [name for name in _COUNTERS if name not in counted]
    texts = [f"{units.count(value)} {name}" for name, value in counted.items()]
    if (cycles := counted.get("cycles")) and "instructions" in counted:
        texts.append(f"{counted['instructions'] / cycles:.2f} instructions per cycle")
    where = " in user mode" if tree.user_mode_only and counted else ""
    lacking = f"{'; ' if texts else ''}not available here: {', '.join(missing)}" if missing else ""
    return (
        f"the whole program: user {units.time(tree.user_ns)}, system {units.time(tree.system_ns)}, "
        f"{units.count(tree.voluntary_switches)} voluntary and "
        f"{units.count(tree.involuntary_switches)} "
        f"involuntary context switches · counters{where}: {', '.join(texts)}{lacking}"
    )


def _waits(profile: Profile) -> Iterator[str]:
    """Yields the number of contended locks, how sections were timed, and waiting system calls."""
    if lock_lines(profile):
        sections = int(profile.tally.locks.sections.sum())
        yield (
            "locks: threads waited for "
            f"{units.counted(profile.tally.contended_locks, 'lock', 'different locks')} · "
            f"mean section: from lock to unlock, over {units.count(sections)} timed sections"
        )
    in_kernel = [
        f"{one.name} {units.count(one.count)}"
        for one in kernel_lines(profile)
        if one.name in WAITING
    ]
    if in_kernel:
        yield f"waiting system calls: {', '.join(in_kernel)}; libc's own locks show only here"


def _other(profile: Profile) -> str:
    """Returns the most frequent system calls in the row "other", by name; "" if there are none."""
    known = profile.tally.other_calls.most_common(8)
    told = [f"{call_name(number, profile.machine)} {units.count(count)}" for number, count in known]
    rest = int(profile.tally.kernel.count[CALLS.index("other")]) - sum(count for _, count in known)
    return (
        ("other system calls: " + ", ".join(told) + (f", {rest:,} more" if rest > 0 else ""))
        if told
        else ""
    )
