"""Explained gaps between contenders, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cairn import units
from cairn.findings.kernel import inclusion
from cairn.findings.layout import SHARED, clause
from cairn.model import Finding, Interval, Run
from cairn.report import simulation
from cairn.report.formatting import (
    NOT_MEASURED,
    TENTH,
    TWICE,
    command,
    multiple,
    printable,
    shortened,
)
from cairn.report.profile_notes import why_missing
from cairn.report.profile_numbers import effect
from cairn.report.standings import UNKNOWN, Board
from cairn.report.tables import Cell, Table
from cairn.why.causes import causes
from cairn.why.costly_functions import FunctionCost
from cairn.why.gap import GAP_LEAST, LEFT_MOST, Why, accounted, without_faults
from cairn.why.parts import (
    CALLING,
    INTERRUPTS,
    PROGRAM,
    PROGRAMS,
    SPARSE,
    SPARSE_AND_SLACK,
    UNEXPLAINED,
    Gap,
    Part,
)

_NOT_DIVIDED = "not divided"
"""The name of the unexplained part if it contains parts that were not measured."""
_SHORT_NAMES = {
    SPARSE: "free, unused and metadata",
    SPARSE_AND_SLACK: "free, unused, metadata, rounding",
}
"""The names in tables of parts whose names are too long for 80 columns."""
_PROGRAMS_MOST = 4
"""The most programs that a sentence about missing processes names."""
_FUNCTION_MAX = 26
"""The most characters of a function's name. Two of them stand side by side in 80 columns."""
_TELL_FROM = 0.01
"""A sentence names a part of a gap only if it is at least this share of the other contender's CPU
time or memory, or of the whole difference if that is larger. Smaller parts appear only in the
table."""


def _how(why: Why) -> str:
    """Returns how CPU time and memory were split into parts, and what is unexplained in each."""
    if why.time is None:
        return ""
    says = ["the parts of CPU time come from clock samples of the runs without the probe"]
    if why.time.by == "probe":
        says = [
            "the parts of CPU time come from the runs with the probe "
            f"({why.time.because}; 'cairn doctor' says what clock samples need)"
        ]
    if why.time.merged:
        says.append(f"interrupts: {NOT_MEASURED} ({why.time.merged}); page faults include them")
    for gap, noun in ((why.time, "CPU time"), (why.memory, "memory")):
        if gap is not None:
            rest = _NOT_DIVIDED if gap.unmeasured else UNEXPLAINED
            says.append(f"{rest} {noun} can hold {_holds(gap)}")
    return " · ".join(says)


def _holds(gap: Gap) -> str:
    """Returns what the unexplained part can hold, as a noun phrase."""
    return " and ".join([*(one.name for one in gap.unmeasured), gap.holds])


def _missing(gap: Gap) -> list[Part]:
    """Returns the parts whose difference is not known.

    Interrupts are left out: if they are not known, the part of page faults contains them.
    """
    return [one for one in gap.parts if one.change is None and one.name != INTERRUPTS]


def boards(run: Run, found: Sequence[Why]) -> tuple[Board, ...]:
    """Returns a board for each workload, with all its pairs."""
    several = len(run.settings.workloads) > 1
    return tuple(
        _board(
            [why for why in found if why.workload == place],
            command(workload.name) if several else "",
        )
        for place, workload in enumerate(run.settings.workloads)
        if any(why.workload == place for why in found)
    )


def summary(run: Run, found: Sequence[Why], run_name: str) -> Board:
    """Returns the number of gaps in all pairs, how many are explained, and how to see each gap."""
    gaps, told = accounted(found)
    names = [shortened(workload.name) for workload in run.settings.workloads]
    what = f"{gaps} gap{'s' * (gaps != 1)} in CPU time above {GAP_LEAST * 100:.0f} %"
    share = f" ({units.percent(told / gaps, signed=False)})" if gaps else ""
    return Board(
        title="Why",
        says=(
            f"{what} among {len(found)} pair{'s' * (len(found) != 1)}; "
            f"{told} explained{share}, with at most {LEFT_MOST * 100:.0f} % of the gap left over.",
            f"To see each of them: cairn explain {run_name}",
        ),
        tables=(),
        footer=(),
        failures=tuple(
            printable(f"{names[why.workload]}, {why.contender}: {why.why_not}")
            for why in found
            if why.why_not
        ),
    )


def _board(found: Sequence[Why], title: str) -> Board:
    known = [why for why in found if not why.why_not]
    # A finding from the baseline's own profile is in each pair. The report prints it once.
    says = dict.fromkeys(printable(sentence) for why in known for sentence in sentences(why))
    rounds = sorted({why.rounds for why in known})
    ways: dict[str, list[str]] = {}
    for why in known:
        ways.setdefault(_how(why), []).append(why.contender)
    how = [
        f"for {', '.join(names)}: {way}" if len(ways) > 1 else way
        for way, names in ways.items()
        if way
    ]
    if any(why.raised for why in known):
        how.append("a finding about one contender alone quotes its run with the median effect")
    noun = "round" if rounds == [1] else "rounds"
    footer = (
        f"{' or '.join(map(str, rounds))} {noun}, each contender with and without the probe · "
        "means with Student's t intervals, each by itself (the verdict compares medians) · "
        f"{printable(' · '.join(how))}",
        *dict.fromkeys(simulation.footer(why.simulated) for why in known if why.simulated),
    )
    return Board(
        title=title,
        says=tuple(says),
        tables=tuple(table for why in known for table in _tables(why)),
        footer=footer if known else (),
        failures=tuple(
            printable(". ".join((f"{why.contender} against {why.baseline}: {why.why_not}", *told)))
            for why in found
            if why.why_not
            for told in [tuple(_unrecorded(why))]
        ),
    )


def _unit(gap: Gap, number: float | None) -> str:
    if number is None:
        return NOT_MEASURED
    text = (units.time if gap.of == "time" else units.size)(abs(number))
    return f"−{text}" if number < 0 else text


def _signed(gap: Gap, number: float | None) -> str:
    text = _unit(gap, number)
    return f"+{text}" if number is not None and number > 0 else text


def _tables(why: Why) -> Iterator[Table]:
    """Yields the tables of a pair: CPU time, the costliest functions of both, and memory."""
    if why.time is not None:
        yield gap_table(why, why.time)
    if why.simulated is not None:
        yield simulation.table(why, why.simulated)
    if why.functions:
        yield _functions(why)
    if any(costs.waited_for for costs in why.locks.values()):
        yield _locks(why)
    if why.memory is not None:
        yield gap_table(why, why.memory)


def _functions(why: Why) -> Table:
    """Returns the functions in which both allocators' code takes the most CPU time, side by side.

    The functions of a row have nothing in common but their ranks.
    """
    own, other = (why.functions.get(name, ()) for name in (why.contender, why.baseline))
    nothing = (Cell(""),) * 3
    rows = [
        (
            *(_function_cells(own[place]) if place < len(own) else nothing),
            *(_function_cells(other[place]) if place < len(other) else nothing),
        )
        for place in range(max(len(own), len(other)))
    ]
    heads = []
    for name in (why.contender, why.baseline):
        heads += [f"{printable(name)}'s code", "CPU time", "95 %"]
    return Table(
        title="", heads=tuple(heads), rows=tuple(rows), parts=(1, 1, 2, 1), optional=(3, 1)
    )


def _locks(why: Why) -> Table:
    """Returns both allocators' costliest locks side by side, and how many were ever waited for."""
    own, other = (_lock_rows(why, name) for name in (why.contender, why.baseline))
    nothing = (Cell(""),) * 4
    rows = [
        (
            *(own[place] if place < len(own) else nothing),
            *(other[place] if place < len(other) else nothing),
        )
        for place in range(max(len(own), len(other)))
    ]
    heads = []
    for name in (why.contender, why.baseline):
        heads += [f"{printable(name)}'s locks", "taken", "waited", "held"]
    parts, optional = (1, 1, 1, 2, 1, 1), (5, 2, 0)
    return Table(title="", heads=tuple(heads), rows=tuple(rows), parts=parts, optional=optional)


def _lock_rows(why: Why, name: str) -> list[tuple[Cell, ...]]:
    costs = why.locks.get(name)
    if costs is None:
        return [(Cell("  takes none"), Cell(""), Cell(""), Cell(""))]
    rows = [
        (
            Cell(f"  {shortened(printable(one.name), _FUNCTION_MAX)}"),
            Cell(UNKNOWN if one.taken is None else units.count(round(one.taken))),
            *(Cell(UNKNOWN if ns is None else units.time(ns)) for ns in (one.wait_ns, one.held_ns)),
        )
        for one in costs.uses
    ]
    contended = f"  {units.count(round(costs.waited_for))} of {units.count(round(costs.locks))}"
    return [*rows, (Cell(f"{contended} contended"), Cell(""), Cell(""), Cell(""))]


def _function_cells(one: FunctionCost) -> tuple[Cell, ...]:
    ends = one.interval
    within = f"[{units.time(ends.low)}, {units.time(ends.high)}]" if ends is not None else ""
    name = shortened(printable(one.name), _FUNCTION_MAX)
    return Cell(f"  {name}"), Cell(units.time(one.ns)), Cell(within)


def part_name(gap: Gap, part: Part) -> str:
    """Returns the printed name of a part."""
    if part.name == UNEXPLAINED and gap.unmeasured:
        return _NOT_DIVIDED
    return _SHORT_NAMES.get(part.name, part.name)


def signed(gap: Gap, part: Part) -> str:
    """Returns a part's change with its sign and its unit, and its interval if it is known."""
    ends = part.interval
    within = f" [{_signed(gap, ends.low)}, {_signed(gap, ends.high)}]" if ends is not None else ""
    return f"{_signed(gap, part.change)}{within}"


def gap_table(why: Why, gap: Gap) -> Table:
    """Returns the parts of a gap, with both contenders' amounts and the differences."""
    own, other = printable(why.contender), printable(why.baseline)
    rows = [_row(gap, part, part_name(gap, part)) for part in gap.parts]
    rows.append(_row(gap, gap.whole, "total" if gap.of == "time" else "peak"))
    if gap.waiting is not None and (gap.waiting.own or gap.waiting.other):
        rows.append(_row(gap, gap.waiting, f"not CPU time: {gap.waiting.name}"))
    heads = (
        "CPU time" if gap.of == "time" else "memory",
        own,
        other,
        "difference",
        "95 %",
        "of the difference" if _in_shares(gap) else f"of {other}",
    )
    return Table(title="", heads=heads, rows=tuple(rows), parts=(1, 1, 2, 1), optional=(1, 0))


def _row(gap: Gap, part: Part, name: str) -> tuple[Cell, ...]:
    good = None if not part.shown or part.name == UNEXPLAINED else (part.change or 0.0) < 0
    ends = part.interval
    within = f"[{_signed(gap, ends.low)}, {_signed(gap, ends.high)}]" if ends is not None else ""
    if part.own is None and part.other is None and part.change is None:
        return (Cell("  " + name), Cell(""), Cell(""), Cell(""), Cell(NOT_MEASURED), Cell(""))
    return (
        Cell("  " + name),
        *(
            Cell("" if part.name == UNEXPLAINED else _unit(gap, number))
            for number in (part.own, part.other)
        ),
        Cell(_signed(gap, part.change), good),
        Cell(within, good),
        Cell(_points(gap, part), good),
    )


def _points(gap: Gap, part: Part) -> str:
    """Returns the part's change as a share: of the other contender's whole, or of the difference.

    _in_shares() says which of the two it is.
    """
    whole = abs(gap.whole.change or 0.0) if _in_shares(gap) else gap.whole.other
    if part.change is None or not whole:
        return ""
    share = part.change / whole
    plus = "+"
    if _in_shares(gap):
        share *= 1 if (gap.whole.change or 0.0) > 0 else -1
        plus = ""
    if abs(share) >= TWICE:
        return f"{'−' if share < 0 else plus}{multiple(abs(share))} times"
    return _percent(share, part, whole).replace("+", plus)


def _in_shares(gap: Gap) -> bool:
    """Whether the parts are given as shares of the difference.

    They are if one contender takes at least twice as much as the other. Otherwise the parts are
    given as shares of the other contender's whole. Here such shares could be above 100 %.
    """
    ratio = gap.whole.ratio
    return gap.is_shown and ratio is not None and not 1 / TWICE < ratio < TWICE


def _percent(ratio: float, part: Part, whole: float) -> str:
    """Returns a percentage with a sign, no more precise than the part's interval."""
    ends = part.interval
    half = 50 * (ends.high - ends.low) / whole if ends is not None else 0.0
    if half < 0.95:
        return units.percent(ratio)
    text = f"{abs(100 * ratio):.0f} %"
    return text if text == "0 %" else f"{'−' if ratio < 0 else '+'}{text}"


def sentences(why: Why) -> Iterator[str]:
    """Yields the answer, main sentence first. The sentences claim only what the intervals show."""
    for gap in (why.time, why.memory):
        if gap is not None:
            yield from _about(why, gap)
    for name in (why.contender, why.baseline):
        yield from _larger(why, name)
    if why.memory is None and why.time is not None:
        yield f"Memory was not measured in the same way for {why.contender} and {why.baseline}."
    yield from _unrecorded(why)
    yield from simulation.sentences(why)
    yield from _findings(why)


def _unrecorded(why: Why) -> Iterator[str]:
    """Yields which processes the probe could not record, for each contender that has some."""
    for name, programs in why.unrecorded.items():
        each = [
            (number, program, reason)
            for program, reasons in programs.items()
            for reason, number in reasons.items()
        ]
        each.sort(key=lambda one: (not one[1], -one[0]))
        named = [(program, reason) for _, program, reason in each if program]
        clauses = [f"{program} {why_missing(reason)}" for program, reason in named[:_PROGRAMS_MOST]]
        if len(clauses) < len(each):
            clauses.append("and others")
        number = sum(one[0] for one in each)
        yield (
            f"▲ Of {name}'s runs with the probe, {units.counted(number, 'process', 'processes')} "
            f"{'is' if number == 1 else 'are'} missing: {'; '.join(clauses)}. The operations, "
            f"system calls and findings here do not contain {'it' if number == 1 else 'them'}."
        )


def _findings(why: Why) -> Iterator[str]:
    """Yields a sentence for each finding, the one with the largest effect first.

    If both contenders have a finding, its effect is the difference of their effects. So a finding
    with equal effects comes last.
    """
    effects = {
        id(one.finding): one.rank
        for name in (why.contender, why.baseline)
        for one in causes(why, name)
    }
    found = [(finding, _because(why, finding)) for finding in why.findings]
    found += [(finding, _alone(name, finding)) for name, finding in why.raised]
    if why.layout is not None:
        name, finding = why.layout
        other = why.baseline if name == why.contender else why.contender
        found.append((finding, f"▲ {name} against {other}: {_told(finding)}"))
    for _, text in sorted(found, key=lambda one: -effects.get(id(one[0]), 0.0)):
        yield text


def _larger(why: Why, name: str) -> Iterator[str]:
    """Yields a sentence if a part without a known reason is larger than a finding about `name`."""
    found = causes(why, name)
    part = next((one for one in found if one.finding is None), None)
    less = [one for one in found if part and one.finding and one.rank < part.rank]
    largest = why.time.largest if why.time is not None else None
    is_told = part is not None and largest is not None and part.name == largest.name
    if part is not None and less and not is_told:
        yield (
            f"The reason for {units.percent(part.effect, signed=False)} of {name}'s CPU time "
            f"({part.name}) is not known; {units.counted(len(less), 'finding')} below "
            f"{'explains' if len(less) == 1 else 'explain'} less than that."
        )


def _about(why: Why, gap: Gap) -> Iterator[str]:
    what = "CPU time" if gap.of == "time" else "memory"
    whole, other = gap.whole, gap.whole.other or 0.0
    if whole.interval is None:
        yield (
            f"{units.counted(why.rounds, 'round')} {'is' if why.rounds == 1 else 'are'} too few to "
            f"compare the {what} of {why.contender} with that of {why.baseline}."
        )
    elif not other:
        yield f"No difference in {what} is shown between {why.contender} and {why.baseline}."
    elif _most(whole.interval) < _TELL_FROM * other:
        yield _alike(why, gap, other)
        yield from _differing(why, gap)
    elif gap.doubted:
        yield (
            f"{why.contender} may take {_size(gap, what)} {why.baseline}: the means differ, but "
            "the verdict, which compares round by round, does not show this difference. More "
            "rounds (-r) can decide it."
        )
        yield from _differing(why, gap)
    elif not whole.shown:
        ends = (_percent(end / other, whole, other) for end in _ends(whole.interval))
        yield (
            f"No difference in {what} is shown between {why.contender} and {why.baseline}: it lies "
            f"between {' and '.join(ends)} of {why.baseline}'s {what}. More rounds (-r) narrow "
            "this range."
        )
        yield from _differing(why, gap)
    else:
        reasons = _reasons(why, gap)
        lead = _lead(gap, f"{why.baseline}'s {what}", reasons)
        yield f"{why.contender} takes {_size(gap, what)} {why.baseline}: {lead}."
        yield from _rest(gap, reasons)
    waiting = gap.waiting
    if (
        waiting is not None
        and waiting.shown
        and other
        and abs(waiting.change or 0.0) >= _TELL_FROM * other
    ):
        longer = "longer" if (waiting.change or 0.0) > 0 else "shorter"
        time = units.time(abs(waiting.change or 0.0))
        told = "; ".join(waiting.evidence)
        yield (
            f"Under {why.contender}, the program waits {time} {longer} in the allocator than under "
            f"{why.baseline} ({told}). Waits of several threads are added."
        )


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def _most(interval: Interval) -> float:
    """Returns the largest amount of a difference with this interval, without its sign."""
    return max(map(abs, _ends(interval)))


def _alike(why: Why, gap: Gap, other: float) -> str:
    """Returns the sentence that the whole differs by less than 1 %, which its interval shows."""
    what = "CPU time" if gap.of == "time" else "peak memory"
    if gap.is_shown:
        return (
            f"The {what} of {why.contender} differs from that of {why.baseline} by less than 1 %."
        )
    return (
        f"{why.contender} and {why.baseline} take the same {what} to within 1 % "
        f"({_unit(gap, other)})."
    )


def _differing(why: Why, gap: Gap) -> Iterator[str]:
    """Yields a sentence on the parts that differ although the whole is not shown to differ."""
    parts = [one for one in gap.parts if one.shown and one.borne_out and _matters(gap, one)]
    if gap.unmeasured:
        parts = [one for one in parts if one.name != UNEXPLAINED]
    if parts:
        first, *others = sorted(parts, key=lambda one: -abs(one.change or 0.0))
        reasons = _reasons(why, gap)
        whole = f"{why.baseline}'s {'CPU time' if gap.of == 'time' else 'memory'}"
        told = [_cause(gap, first, reasons, whole), *(_cause(gap, one, reasons) for one in others)]
        yield f"Parts of it differ under {why.contender}: {'; '.join(told)}."


def _size(gap: Gap, what: str) -> str:
    """Returns the size of the whole difference as a phrase, such as "12 % more memory than".

    The name of the other contender follows it.
    """
    ratio, other = gap.whole.ratio or 1.0, gap.whole.other or 1.0
    if ratio >= TWICE:
        return f"{_times(gap.whole)} the {what} of"
    if ratio <= TENTH:
        return f"1/{round(1 / max(ratio, 1e-6)):,} of the {what} of"
    size = _percent(ratio - 1, gap.whole, other).lstrip("+−")
    if size == "50 %" and ratio < 1:
        return f"half the {what} of"
    return f"{size} {'more' if ratio > 1 else 'less'} {what} than"


def _times(part: Part) -> str:
    """Returns the ratio of a part to the same part of the other contender: "twice", "46 times"."""
    ends, other = part.interval, part.other or 1.0
    half = (ends.high - ends.low) / 2 / other if ends is not None else 0.0
    count = multiple(part.ratio or 1.0, half)
    return "twice" if count in ("2", "2.0") else f"{count} times"


def _reasons(why: Why, gap: Gap) -> Mapping[str, str]:
    """Returns why the program's own parts take longer or shorter, as clauses by name of the part.

    A part without a clause has no known reason.
    """
    if gap.of != "time":
        return {}
    calling = next((one for one in gap.parts if one.name == CALLING), None)
    handled = _handling(calling, why.memory, why.processes) if calling is not None else ""
    return {PROGRAM: _reason(why, gap)} | ({CALLING: handled} if handled else {})


def _handling(calling: Part, memory: Gap | None, processes: float) -> str:
    """Returns the clause that fork and exit handle more or less memory; "" if that is no reason.

    Both take a time that grows with the memory. So the memory must differ in the same direction as
    the time of CALLING, and by at least half as much as that. The difference must also be possible:
    each process ends once, and all but the first are forked.
    """
    if memory is None or not memory.is_shown or not calling.shown:
        return ""
    longer, larger = calling.ratio, memory.whole.ratio
    if longer is None or not larger or (longer - 1) * (larger - 1) <= 0:
        return ""
    # Without a clock sample in this part, it is not known how many times less it takes.
    times = max(longer, 1 / longer) if longer else 1.0
    if max(larger, 1 / larger) - 1 < _HANDLED_LEAST * (times - 1):
        return ""
    pages = abs(memory.whole.change or 0.0) / 4096
    if abs(calling.change or 0.0) > pages * _HANDLED_NS * processes:
        return ""
    own, other = (_unit(memory, amount) for amount in (memory.whole.own, memory.whole.other))
    much = "more" if larger > 1 else "less"
    return f"likely because fork and exit handle {much} memory ({own} against {other})"


_HANDLED_NS = 1000.0
"""The most time that fork and exit take for a page and a process. The exit of a process of 1.1 GiB
took about 200 ns for each page of 4 KiB."""
_HANDLED_LEAST = 0.5
"""The least relative difference in memory that can be the reason why fork and exit take longer, as
a part of the relative difference in their time."""


def _reason(why: Why, gap: Gap) -> str:
    """Returns why the program's own code takes longer or shorter, as a clause."""
    if why.layout is None:
        part = next(one for one in gap.parts if one.name == PROGRAM)
        return _NOT_KNOWN if without_faults(gap, part).shown or not part.shown else _OF_FAULTS
    name, finding = why.layout
    # Cache lines that threads share are not simulated.
    shown = finding.name != SHARED and why.simulated is not None and why.simulated.bears_out
    return f"{'' if shown else 'likely '}because under {name} {clause(finding)}"


def _lead(gap: Gap, whole: str, reasons: Mapping[str, str]) -> str:
    """Returns the clauses on the largest part of the difference, and on the causes after it.

    If the program's own code is one of the causes, smaller causes are left out.

    whole: the name of what the percentages are shares of, such as "system's CPU time". Only the
        first clause contains it.
    reasons: see `_reasons`.
    """
    largest = gap.largest
    if largest is None:
        return "the difference is proven, but it is not known where it comes from"
    if largest.name != UNEXPLAINED and not largest.shown:
        return (
            f"the largest part of the difference may be chance ({largest.name} "
            f"{amount(gap, largest, whole)}); use more rounds (-r)"
        )
    if not largest.borne_out:
        return (
            f"the number of events contradicts the largest part of the difference ({largest.name} "
            f"{amount(gap, largest, whole)})"
        )
    if largest.name == UNEXPLAINED:
        much = _unexplained(gap, largest)
        if gap.unmeasured:
            names = " and ".join(one.name for one in gap.unmeasured)
            why = f" ({gap.because})" if gap.because else ""
            return f"{much} may lie in parts that were not measured: {names}{why}"
        because = f", because {_cancelling(much)}" if _cancel(gap) else ""
        return f"{much} is unexplained ({amount(gap, largest, whole)}){because}"
    if largest.name in PROGRAMS:
        why = reasons.get(largest.name, _NOT_KNOWN)
        joint = "; " if why in (_NOT_KNOWN, _OF_FAULTS) else ", "
        return f"{_itself(largest)} ({amount(gap, largest, whole)}){joint}{why}"
    first, *others = _leading(gap)
    return "; ".join(
        [_cause(gap, first, reasons, whole), *(_cause(gap, one, reasons) for one in others)]
    )


def _unexplained(gap: Gap, rest: Part) -> str:
    """Returns how much of the difference is unexplained, as the subject of a sentence.

    The unexplained part `rest` is the largest part.
    """
    change = abs(gap.whole.change or 0.0)
    share = abs(rest.change or 0.0) / change if change else 1.0
    if share >= _ALL + 2 * (1 - _ALL):
        return _MORE
    if share >= _ALL:
        return "all of the difference"
    return f"{'most' if share > 0.5 else 'the largest part'} of the difference"


_ALL = 0.995
"""If the unexplained part is at least this share of the difference, it is called "all of the
difference"."""


_MORE = "more than the difference"


def _cancel(gap: Gap) -> bool:
    """Whether the largest part is unexplained, and a measured part has the opposite sign."""
    largest = gap.largest
    if largest is None or largest.name != UNEXPLAINED or gap.unmeasured:
        return False
    return any(_matters(gap, one) for one in gap.against)


def _cancelling(much: str) -> str:
    """Returns why the measured parts do not explain the difference, as a clause.

    much: how much of the difference is unexplained.
    """
    if much == _MORE:
        return "the measured parts together have the opposite sign"
    if much.startswith("all"):
        return "the measured parts cancel each other"
    return "the measured parts partly cancel each other"


_NOT_KNOWN = "the reason is not known"
_OF_FAULTS = "page faults may be the reason: a part of their time counts here"
"""The reason for a difference in the program's own time that the page faults can have caused."""


def _itself(part: Part) -> str:
    """Returns a clause on the time of the program's own part: "the program itself takes …"."""
    takes = "the program itself takes"
    if part.name == CALLING:
        takes = "the program's own system calls and its exit take"
    change, ratio, other = part.change or 0.0, part.ratio, part.other or 0.0
    longer = "longer" if change > 0 else "less time"
    if not ratio:  # none of the clock samples of one of the two contenders was in this part
        return f"{takes} {units.time(abs(change))} {longer}"
    if ratio >= TWICE:
        return f"{takes} {_times(part)} as long"
    if ratio <= TENTH:
        return f"{takes} 1/{round(1 / max(ratio, 1e-6)):,} of the time"
    return f"{takes} {_percent(ratio - 1, part, other).lstrip('+−')} {longer}"


def _leading(gap: Gap) -> tuple[Part, ...]:
    """Returns the parts that the first sentence names, the largest first.

    If the largest part is a cause, the other causes follow. They end before the program's own part,
    or before a cause that is too small to be named.
    """
    largest = gap.largest
    if largest is None:
        return ()
    named = [largest]
    if largest in gap.ranked and largest.name not in PROGRAMS:
        for one in gap.ranked[1:]:
            if one.name in PROGRAMS or not _matters(gap, one):
                break
            named.append(one)
    return tuple(named)


def _rest(gap: Gap, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yields sentences on the parts that the first sentence does not name.

    These are smaller causes, parts in the other direction, and parts that are undecided,
    contradicted or not measured. The unexplained part is among them if it is large.
    """
    rest, named = gap.unexplained, _leading(gap)
    causes, against, undecided, contradicted = (
        [one for one in of if _matters(gap, one) and one not in named]
        for of in (gap.ranked, gap.against, gap.undecided, gap.contradicted)
    )
    if _cancel(gap):
        causes, against, both = [], [], [*causes, *against]
        yield f"The measured parts: {'; '.join(_cause(gap, one, reasons) for one in both)}."
    if causes:
        yield f"Smaller parts: {'; '.join(_cause(gap, one, reasons) for one in causes)}."
    if against:
        yield f"In the other direction: {'; '.join(_cause(gap, one, reasons) for one in against)}."
    if undecided:
        yield f"Not shown yet; more rounds (-r) may show it: {_listed(gap, undecided)}."
    if contradicted:
        yield f"Contradicted by the number of events: {_listed(gap, contradicted)}."
    told = gap.unmeasured if rest in named else ()
    if unknown := [one.name for one in _missing(gap) if one not in told]:
        yield f"{_capital(', '.join(unknown))}: {NOT_MEASURED}."
    if rest not in named and not gap.unmeasured and _is_notable(gap, rest):
        yield f"{_capital(UNEXPLAINED)}: {amount(gap, rest)}."
    if rest in named and not gap.unmeasured:
        yield f"To do: {_looking(gap)}."


def _looking(gap: Gap) -> str:
    """Returns what shows more about the unexplained part, if it is the largest."""
    if gap.of == "memory":
        return "compare the memory over time under each allocator ('cairn profile --full')"
    if gap.by == "probe":
        return (
            "let Cairn take clock samples, which leave out the time that the probe adds ('cairn "
            "doctor' says what they need)"
        )
    return (
        "see how much CPU time cannot be attributed under each allocator ('cairn profile --full')"
    )


def _listed(gap: Gap, parts: Sequence[Part]) -> str:
    return ", ".join(f"{one.name} {amount(gap, one)}" for one in parts)


def _is_notable(gap: Gap, rest: Part) -> bool:
    """Whether the unexplained part is too large for the gap to be accounted for."""
    return rest.shown and abs(rest.change or 0.0) > LEFT_MOST * abs(gap.whole.change or 0.0)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _matters(gap: Gap, part: Part) -> bool:
    most = max(gap.whole.other or 0.0, abs(gap.whole.change or 0.0))
    return abs(part.change or 0.0) >= _TELL_FROM * most


def amount(gap: Gap, part: Part, whole: str = "") -> str:
    """Returns the part's change as a share, with the thing that it is a share of.

    This is "the difference", or else `whole`. If `whole` is empty, the result is the share alone.
    """
    points = _points(gap, part)
    of = "the difference" if _in_shares(gap) else whole
    if not points or not of:
        return points
    return f"{points} {of}" if points.endswith("times") else f"{points} of {of}"


def _cause(gap: Gap, part: Part, reasons: Mapping[str, str], whole: str = "") -> str:
    why = reasons.get(part.name, _NOT_KNOWN)
    evidence = part.evidence or ((why,) if part.name in PROGRAMS else ())
    told = f" ({'; '.join(evidence)})" if evidence else ""
    return f"{part.name} {amount(gap, part, whole)}{told}"


def _because(why: Why, finding: Finding) -> str:
    """Returns a finding about the slower contender, compared with the faster one."""
    slower, other = why.contender, why.baseline
    if why.time is not None and (why.time.whole.change or 0.0) < 0:
        slower, other = other, slower
    return f"▲ {slower} against {other}: {_told(finding)}"


def _alone(name: str, finding: Finding) -> str:
    return f"▲ {name}: {_told(finding)}"


def _told(finding: Finding) -> str:
    """Returns the cause, its size, the evidence and the advice, as sentences."""
    told = "".join(f" {text}." for text in finding.evidence)
    size = f"{effect(finding)} of {finding.of}{inclusion(finding)}"
    return f"{finding.says}: {size}.{told} To do: {finding.advice}."
