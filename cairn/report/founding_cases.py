"""The table of the founding cases (see `cairn.why.founding_cases`).

It has the recorded effect of each case, the effect measured here, and whether they agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from cairn import units
from cairn.report.formatting import NOT_MEASURED, estimated, printable
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.report.why import amount
from cairn.why.founding_cases import Judged
from cairn.why.gap import Why

_CAUSES = 2


def board(judged: Sequence[Judged]) -> Board:
    """Returns one row per case, and a sentence about the cause of each measured case."""
    rows = [
        (
            Cell("  " + one.case.application),
            Cell(one.case.contender),
            Cell(one.case.said),
            Cell(_here(one)),
            Cell(one.verdict, {"as recorded": True, "another cause": False}.get(one.verdict)),
        )
        for one in judged
    ]
    table = Table(
        "", ("application", "allocator", "recorded", "CPU time here", "verdict"), tuple(rows)
    )
    same = sum(one.verdict == "as recorded" for one in judged)
    measured = [one for one in judged if one.verdict != "not measured"]
    open_ones = sum(one.verdict == "not shown" for one in measured)
    says = [f"{same} of {len(measured) - open_ones} cases agree with the record in gap and cause."]
    if open_ones:
        says[0] += f" {open_ones} more may agree: their intervals do not decide."
    says += [f"{one.case.application}, {one.case.contender}: {_told(one)}" for one in measured]
    rounds = min((one.why.rounds for one in measured if one.why is not None), default=0)
    footer = (
        f"{units.counted(rounds, 'round')}, each contender with and without the probe, against "
        "the system's allocator",
        "programs that allocate like the applications · glibc-2.21: a glibc that trims at once, "
        "as 2.21 did by mistake · hardened: stands in for DieHarder",
    )
    failures = [
        printable(f"{one.case.application}, {one.case.contender}: {_why_not(one.why)}")
        for one in judged
        if one.verdict == "not measured" and one.why is not None
    ]
    return Board(
        title="Founding cases", says=tuple(map(printable, says)), tables=(table,), footer=footer,
        failures=tuple(failures),
    )  # fmt: skip


def _why_not(why: Why) -> str:
    if why.why_not:
        return why.why_not
    told = why.time is not None and why.time.whole.interval is not None
    return "the parts that would show its cause were not measured" if told else "too few rounds"


def _here(one: Judged) -> str:
    if one.verdict == "not measured" or one.why is None or one.why.time is None:
        return NOT_MEASURED
    gap = one.why.time
    ends, other = gap.whole.interval, gap.whole.other
    if ends is None or not other:
        return NOT_MEASURED
    return estimated((gap.whole.change or 0.0) / other, ends.low / other, ends.high / other)


def _told(one: Judged) -> str:
    """Returns the recorded cause and the largest causes found here, as sentences."""
    assert one.why is not None and one.why.time is not None
    gap = one.why.time
    found = [
        f"{part.name} {amount(gap, part)}" + (f" ({part.evidence[0]})" if part.evidence else "")
        for part in one.causes[:_CAUSES]
        if gap.whole.other
    ]
    rest = "not divided" if gap.unmeasured else "unexplained"
    tail = f"; {rest} {amount(gap, gap.unexplained)}" if gap.whole.other else ""
    return f"recorded: {one.case.cause}. Found: {'; '.join(found) or 'no part is shown'}{tail}."
