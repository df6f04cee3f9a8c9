"""Why one contender takes more than another, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn import units
from cairn.findings.finding import Finding
from cairn.model import Raised, Run
from cairn.report.boards import Board
from cairn.report.layout import Cell, Table, short
from cairn.report.words import NOT_MEASURED, printable
from cairn.why import UNEXPLAINED, WAITING, Gap, Part, Why

_TELL_FROM = 0.01
"""Of the whole: smaller causes stand in the table alone."""


def board(run: Run, found: Sequence[Why]) -> Board:
    """All pairs, in their order."""
    several = len(run.settings.workloads) > 1
    tables, says, failures = [], [], []
    for why in found:
        where = f" on {run.settings.workloads[why.workload].name}" if several else ""
        if why.why_not:
            failures.append(printable(f"{why.contender} against {why.baseline}{where}: {why.why_not}"))
            continue
        tables += [_table(why, gap, where) for gap in (why.time, why.memory) if gap is not None]
        says += [printable(sentence) for sentence in sentences(why, where)]
    blocks = min((why.blocks for why in found if not why.why_not), default=0)
    footer = (
        f"{blocks} block{'' if blocks == 1 else 's'}, each contender as it is and behind the probe · "
        f"means, Student's t · {UNEXPLAINED}: what the plain runs show and the probed ones do not",
    )
    return Board(
        title="Why", tables=tuple(tables), footer=footer if tables else (), failures=tuple(failures), says=tuple(says)
    )


def _unit(gap: Gap, number: float | None) -> str:
    if number is None:
        return NOT_MEASURED
    text = (units.time if gap.of == "time" else units.size)(abs(number))
    return f"−{text}" if number < 0 else text


def _signed(gap: Gap, number: float | None) -> str:
    text = _unit(gap, number)
    return f"+{text}" if number is not None and number > 0 else text


def _table(why: Why, gap: Gap, where: str) -> Table:
    whole = gap.whole
    rows = [_row(gap, part, part.name) for part in gap.parts if part.name != WAITING or part.own or part.other]
    rows.append(_row(gap, whole, _title(gap)))
    heads = (
        ("CPU time" if gap.of == "time" else "memory") + where,
        *(short(why.contender), short(why.baseline), "difference", "95 %", f"of {short(why.baseline)}"),
    )
    return Table(title="", heads=tuple(printable(head) for head in heads), rows=tuple(rows))


def _title(gap: Gap) -> str:
    return "all of it" if gap.of == "time" else "the peak"


def _row(gap: Gap, part: Part, name: str) -> tuple[Cell, ...]:
    good = None if not part.shown or part.name == UNEXPLAINED else (part.change or 0.0) < 0
    ends = part.interval
    within = f"[{_signed(gap, ends.low)}, {_signed(gap, ends.high)}]" if ends is not None else ""
    return (
        Cell("  " + name),
        *(Cell("" if part.name == UNEXPLAINED else _unit(gap, number)) for number in (part.own, part.other)),
        Cell(_signed(gap, part.change), good),
        Cell(within, good),
        Cell(_points(gap, part), good),
    )


def _points(gap: Gap, part: Part) -> str:
    """Of the whole of who it is compared with."""
    if part.change is None or not gap.whole.other:
        return ""
    return units.percent(part.change / gap.whole.other)


def sentences(why: Why, where: str = "") -> Iterator[str]:
    """The answer, the main sentence first; nothing that the intervals do not show."""
    for gap in (why.time, why.memory):
        if gap is not None:
            yield from _about(why, gap, where)
    for finding in why.findings:
        yield _because(why, finding)
    for name, raised in why.raised:
        yield _alone(name, raised)


def _about(why: Why, gap: Gap, where: str) -> Iterator[str]:
    what = "CPU time" if gap.of == "time" else "memory"
    whole, change = gap.whole, gap.whole.change or 0.0
    if whole.interval is None:
        yield f"{what}{where}: {why.blocks} blocks are too few to tell why {why.contender} takes what it takes."
        return
    if not whole.shown or not whole.other:
        yield f"{what}{where}: no difference between {why.contender} and {why.baseline} is shown."
        return
    if abs(change) < _TELL_FROM * whole.other:
        yield f"{what}{where}: {why.contender} and {why.baseline} are less than 1 % apart."
        return
    more = "more" if change > 0 else "less"
    size = units.percent(abs(change) / whole.other, signed=False)
    causes = [one for one in gap.ranked if abs(one.change or 0.0) >= _TELL_FROM * whole.other]
    head = f"{why.contender} takes {size} {more} {what} than {why.baseline}{where}"
    if not causes:
        yield f"{head}; no part of it is shown by itself, {_points(gap, gap.unexplained)} of it are {UNEXPLAINED}."
        return
    told = "; ".join(_cause(gap, one) for one in causes)
    against = [
        one
        for one in gap.parts
        if one.shown and one.name != UNEXPLAINED and one not in causes
        and abs(one.change or 0.0) >= _TELL_FROM * whole.other
    ]  # fmt: skip
    back = f"; the other way: {'; '.join(_cause(gap, one) for one in against)}" if against else ""
    yield f"{head}: {told}{back}; {UNEXPLAINED} {_points(gap, gap.unexplained)}."


def _cause(gap: Gap, part: Part) -> str:
    evidence = f" ({'; '.join(part.evidence)})" if part.evidence else ""
    return f"{part.name} {_points(gap, part)}{evidence}"


def _because(why: Why, finding: Finding) -> str:
    """A finding of the slower one by the other."""
    assert why.time is not None
    slower, other = why.contender, why.baseline
    if (why.time.whole.change or 0.0) < 0:
        slower, other = other, slower
    ends = finding.effect.interval
    share = f"{units.percent(finding.effect.value, signed=False)} of CPU [{ends.low * 100:.3g}, {ends.high * 100:.3g}]"
    return (
        f"▲ {slower}, beside {other}: {finding.says}: {share}. {'; '.join(finding.evidence)}. To do: {finding.advice}."
    )


def _alone(name: str, raised: Raised) -> str:
    return (
        f"▲ {name}: {raised.says}: {units.percent(raised.effect, signed=False)} of {raised.of}. To do: {raised.advice}."
    )
