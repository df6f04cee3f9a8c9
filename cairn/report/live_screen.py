"""The screen of 'cairn profile --live' as lines that fit a terminal. All functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from rich.cells import set_cell_size

from cairn import units
from cairn.profile.callers import Stack, functions, total
from cairn.profile.cpu_share import SAMPLES_LEAST, cpu_share
from cairn.profile.early_ends import cpu_total_ns, faults_total
from cairn.profile.estimates import cpu_ns
from cairn.profile.tally import CALLS, Profile, lasting
from cairn.report import sparkline
from cairn.report.callers_table import name
from cairn.report.formatting import NOT_MEASURED, printable, shortened
from cairn.report.profile_numbers import about, percent

_NAME, _NAME_LEAST, _NUMBER = 26, 16, 14
"""The largest and the smallest width of a row's name, and the width of each number."""
_CALLS_MOST, _CALLS_LEAST, _CALLERS_MOST = 6, 2, 10
_FIXED = 17
"""The number of lines that the screen always has. Lines for single system calls, for callers and
for the program's output are added to them."""
Form = Callable[[float], str]
_NOTHING_YET = "Nothing is counted yet: the program has not allocated anything."
LEAVE = "Ctrl-C ends the program, and the report follows."


class Seen(Struct, frozen=True):
    """Everything that was counted of a program until the time `at_ns`."""

    at_ns: int
    profile: Profile | None
    """None if nothing is counted yet."""
    stacks: tuple[Stack, ...] = ()
    """The call stacks that allocated, if they are recorded."""


class _Totals(Struct, frozen=True):
    """Numbers that only grow."""

    operations: int
    bytes: int
    cpu_ns: int
    faults: int
    calls: tuple[int, ...]
    """The number of system calls of each kind, in the order of CALLS."""


def lines(
    title: str, before: Seen | None, now: Seen, output: str, width: int, height: int
) -> list[str]:
    """Returns at most `height` lines, each of `width` columns or less.

    title: the program and its allocator.
    before, now: the earlier and the present counts. Rates come from their difference.
    output: the last line that the program wrote; may be empty.
    """
    ends = [f"its output: {printable(output)}"] if output else []
    ends.append(LEAVE)
    room = max(1, height - len(ends))
    found = [title, *_body(before, now, width, room - 1)][:room]
    return [fitted(one, width) for one in (*found, *ends)][:height]


def fitted(line: str, width: int) -> str:
    """Returns the line, cut to a width in columns."""
    return set_cell_size(line, width).rstrip()


def _body(before: Seen | None, now: Seen, width: int, room: int) -> Iterator[str]:
    found = now.profile
    if found is None:
        yield ""
        yield _NOTHING_YET
        return
    yield _processes(found)
    share = cpu_share(found)
    if share.share is not None:
        yield f"The allocator takes {about(share.share)} of CPU time."
    else:
        why = share.why_not
        if 0 < share.samples < SAMPLES_LEAST:
            why = f"{share.samples} of {SAMPLES_LEAST} clock samples"
        yield f"The allocator's share is not known yet: {why}."
    callers = min(_CALLERS_MOST, len(functions(now.stacks)))
    left = room - _FIXED
    calls = min(_CALLS_MOST, max(_CALLS_LEAST, left - callers - 2 * bool(callers)))
    yield ""
    yield from _rates(before, now, found, calls, width)
    yield ""
    yield from _memory(found, width)
    if callers:
        yield ""
        yield from _callers(now.stacks, callers)


def _processes(found: Profile) -> str:
    alive = [one for one in lasting(found.processes) if one.state == "alive"]
    threads = sum(one.threads for one in lasting(found.processes))
    every = lasting(found.processes)
    processes = units.counted(len(every), "process", "processes")
    if len(alive) < len(every):
        processes += f", {len(alive)} of them running"
    return (
        f"{units.duration(found.wall_ns / 1e9)} · {processes} · {units.counted(threads, 'thread')}"
    )


def _totals(found: Profile) -> _Totals:
    tally = found.tally
    return _Totals(
        operations=found.operations,
        bytes=int(tally.asked.sum() + tally.late_asked.sum()),
        cpu_ns=cpu_ns(found) or cpu_total_ns(found).low,
        faults=faults_total(found).low,
        calls=tuple(int(one) for one in tally.kernel.count),
    )


def _rates(before: Seen | None, now: Seen, found: Profile, most: int, width: int) -> Iterator[str]:
    """Yields rows with a rate between `before` and `now`, and the sum since the program's start.

    most: the number of kinds of system calls to show. Those with the most calls are shown.
    """
    sums = _totals(found)
    old = _totals(before.profile) if before is not None and before.profile is not None else None
    seconds = (now.at_ns - before.at_ns) / 1e9 if before is not None else 0.0

    def row(head: str, of: Callable[[_Totals], int], rate: Form, text: Form) -> str:
        grown = of(sums) - of(old) if old is not None else 0
        each = rate(max(0, grown) / seconds) if old is not None and seconds > 0 else "-"
        return _row(width, head, each, text(of(sums)))

    yield _row(width, "", "now", "since the start")
    yield row("operations", lambda one: one.operations, _count, units.count)
    yield row("bytes requested", lambda one: one.bytes, lambda n: f"{units.size(n)}/s", units.size)
    yield row("CPU time", lambda one: one.cpu_ns, lambda ns: percent(ns / 1e9), units.time)
    yield row("page faults", lambda one: one.faults, _count, units.count)
    yield row("system calls", lambda one: sum(one.calls), _count, units.count)
    made = [(count, place) for place, count in enumerate(sums.calls) if count]
    for _, place in sorted(made, reverse=True)[:most]:
        yield row(f"  {CALLS[place]}", partial(_calls, place), _count, units.count)


def _calls(place: int, of: _Totals) -> int:
    return of.calls[place]


def _count(each_second: float) -> str:
    return f"{units.count(round(each_second))}/s"


def _row(width: int, head: str, *cells: str) -> str:
    name_width = max(_NAME_LEAST, min(_NAME, width - 2 - 2 * (_NUMBER + 2)))
    return f"  {head:<{name_width}}" + "".join(f"{cell:>{_NUMBER + 2}}" for cell in cells)


def _memory(found: Profile, width: int) -> Iterator[str]:
    """Yields a row each for live, held and resident memory.

    A row has the bytes now, the most bytes so far, and bars over time.
    """
    several = len(lasting(found.processes)) > 1
    yield _row(width, "memory of the largest" if several else "memory", "now", "most so far")
    end = max((one.ns for one in found.moments), default=0)
    for key in ("live", "held", "resident"):
        of = [
            (one.ns, value)
            for one in found.moments
            if (value := getattr(one, f"{key}_bytes")) is not None
        ]
        if not of:
            yield _row(width, key, NOT_MEASURED)
            continue
        most = max(value for _, value in of)
        row = _row(width, key, units.size(of[-1][1]), units.size(most))
        columns = min(40, width - len(row) - 2)
        drawn = sparkline.bars(of, end, columns, max(most, 1)) if columns >= 4 and end else ""
        yield f"{row}  {drawn}"


def _callers(stacks: Sequence[Stack], most: int) -> Iterator[str]:
    whole = total(stacks).allocated.bytes
    yield "  share       bytes   who allocates"
    for frame, sums in functions(stacks)[:most]:
        size = sums.allocated.bytes
        share = percent(size / whole) if whole else ""
        yield f"  {share:>6}  {units.size(round(size)):>9}   {name(frame, 200)}"


def title(program: str, allocator: str) -> str:
    """Returns the first line of the screen."""
    return f"cairn profile --live · {printable(allocator)} · {printable(shortened(program, 100))}"
