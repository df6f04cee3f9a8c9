"""Explained gaps between contenders, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn import units
from cairn.model import Finding, Run
from cairn.report.formatting import NOT_MEASURED, command, printable, shortened, times
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.why.causes import causes
from cairn.why.gap import GAP_LEAST, LEFT_MOST, UNEXPLAINED, Gap, Part, Why, accounted

_TELL_FROM = 0.01
"""The least cause that a sentence names, as a share of the other contender's CPU time or memory.
Smaller causes appear only in the table."""


def _how(why: Why) -> str:
    """Returns how CPU time was split into parts."""
    if why.time is None or why.time.by == "clock":
        return (
            "parts of CPU time: from clock samples of the plain runs · "
            f"{UNEXPLAINED}: CPU time without a sample, or sampled in no known file"
        )
    because = (
        f"parts of CPU time: from the runs with the probe ({why.time.because}; 'cairn doctor' "
        "says what clock samples need)"
    )
    return (
        f"{because} · {UNEXPLAINED}: the part of the plain runs' difference that these runs do "
        "not show"
    )


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
    says = [printable(sentence) for why in known for sentence in sentences(why)]
    says += [
        printable(text)
        for text in dict.fromkeys(_alone(name, one) for why in known for name, one in why.raised)
    ]
    rounds = sorted({why.rounds for why in known})
    how = dict.fromkeys(_how(why) for why in known)
    noun = "round" if rounds == [1] else "rounds"
    footer = (
        f"{' or '.join(map(str, rounds))} {noun}, each contender with and without the probe · "
        f"means with Student's t intervals, each by itself · {printable('; '.join(how))}",
    )
    return Board(
        title=title,
        says=tuple(says),
        tables=tuple(
            _table(why, gap) for why in known for gap in (why.time, why.memory) if gap is not None
        ),
        footer=footer if known else (),
        failures=tuple(
            printable(f"{why.contender} against {why.baseline}: {why.why_not}")
            for why in found
            if why.why_not
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


def _table(why: Why, gap: Gap) -> Table:
    own, other = printable(why.contender), printable(why.baseline)
    rows = [_row(gap, part, part.name) for part in gap.parts]
    rows.append(_row(gap, gap.whole, "total" if gap.of == "time" else "peak"))
    if gap.waiting is not None and (gap.waiting.own or gap.waiting.other):
        rows.append(_row(gap, gap.waiting, f"not CPU time: {gap.waiting.name}"))
    heads = (
        "CPU time" if gap.of == "time" else "memory",
        own,
        other,
        "difference",
        "95 %",
        f"of {other}",
    )
    return Table(title="", heads=heads, rows=tuple(rows), parts=(1, 1, 2, 1), optional=(1, 0))


def _row(gap: Gap, part: Part, name: str) -> tuple[Cell, ...]:
    good = None if not part.shown or part.name == UNEXPLAINED else (part.change or 0.0) < 0
    ends = part.interval
    within = f"[{_signed(gap, ends.low)}, {_signed(gap, ends.high)}]" if ends is not None else ""
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
    """Returns the part's change in percent of the other contender's whole."""
    if part.change is None or not gap.whole.other:
        return ""
    return units.percent(part.change / gap.whole.other)


def sentences(why: Why) -> Iterator[str]:
    """Yields the answer, main sentence first. The sentences claim only what the intervals show."""
    for gap in (why.time, why.memory):
        if gap is not None:
            yield from _about(why, gap)
    for name in (why.contender, why.baseline):
        yield from _larger(why, name)
    for finding in why.findings:
        yield _because(why, finding)


def _larger(why: Why, name: str) -> Iterator[str]:
    """Yields a sentence if a part without a known reason is larger than a finding about `name`."""
    found = causes(why, name)
    part = next((one for one in found if one.finding is None), None)
    less = [one for one in found if part and one.finding and one.effect < part.effect]
    if part is not None and less:
        yield (
            f"The reason for {units.percent(part.effect, signed=False)} of {name}'s CPU time "
            f"({part.name}) is not known; {units.counted(len(less), 'finding')} below "
            f"{'explains' if len(less) == 1 else 'explain'} less than that."
        )


def _about(why: Why, gap: Gap) -> Iterator[str]:
    what = "CPU time" if gap.of == "time" else "memory"
    whole, change, other = gap.whole, gap.whole.change or 0.0, gap.whole.other or 0.0
    if whole.interval is None:
        yield (
            f"{what}: {units.counted(why.rounds, 'round')} "
            f"{'is' if why.rounds == 1 else 'are'} too few to compare {why.contender} with "
            f"{why.baseline}."
        )
    elif not whole.shown or not other:
        yield f"{what}: no difference shown between {why.contender} and {why.baseline}."
    elif abs(change) < _TELL_FROM * other:
        yield f"{what}: {why.contender} and {why.baseline} differ by less than 1 %."
    else:
        more = "more" if change > 0 else "less"
        size = f"{units.percent(abs(change) / other, signed=False)} {more}"
        than = f"{what} than"
        if change >= other:
            size, than = f"{times(1 + change / other)} times as much", f"{what} as"
        yield (f"{why.contender} takes {size} {than} {why.baseline}: {'; '.join(_parts(gap))}.")
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
            f"Under {why.contender}, threads together wait {time} {longer} in the allocator than "
            f"under {why.baseline} ({told})."
        )


def _parts(gap: Gap) -> Iterator[str]:
    """Yields the causes, then opposite, undecided, contradicted, missing and unexplained parts."""
    causes, against = (
        [one for one in of if _matters(gap, one)] for of in (gap.ranked, gap.against)
    )
    yield from (_cause(gap, one) for one in causes)
    if not causes:
        yield "no single part is shown"
    if against:
        yield f"in the other direction: {'; '.join(_cause(gap, one) for one in against)}"
    if perhaps := [
        f"{one.name} {_points(gap, one)}" for one in gap.undecided if _matters(gap, one)
    ]:
        yield f"possible, but it needs more rounds: {', '.join(perhaps)}"
    if strange := [
        f"{one.name} {_points(gap, one)}" for one in gap.contradicted if _matters(gap, one)
    ]:
        yield f"contradicted by the number of events: {', '.join(strange)}"
    if unknown := [one.name for one in gap.parts if one.change is None]:
        yield f"{', '.join(unknown)}: {NOT_MEASURED}"
    yield f"{UNEXPLAINED} {_points(gap, gap.unexplained)}"


def _matters(gap: Gap, part: Part) -> bool:
    return abs(part.change or 0.0) >= _TELL_FROM * (gap.whole.other or 0.0)


def _cause(gap: Gap, part: Part) -> str:
    evidence = f" ({'; '.join(part.evidence)})" if part.evidence else ""
    return f"{part.name} {_points(gap, part)}{evidence}"


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
    ends = finding.interval
    within = ""
    if ends is not None and ends.low < ends.high:
        within = f" [{ends.low * 100:.3g}, {ends.high * 100:.3g}]"
    share = f"{units.percent(finding.effect, signed=False)} of {finding.of}{within}"
    told = "".join(f" {text}." for text in finding.evidence)
    return f"{finding.says}: {share}.{told} To do: {finding.advice}."
