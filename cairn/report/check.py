"""The report of 'cairn check': a board for text and Markdown, JSON, JUnit and annotations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec
from msgspec import Struct

from cairn import units
from cairn.compare import gate
from cairn.compare.gate import MEASURES, Checked, GateState
from cairn.gate import INSTRUCTIONS, InstructionCount
from cairn.model import (
    IDLE_MEMORY,
    ROUNDS_MOST,
    TIME_BUDGET,
    Change,
    Comparison,
    Interval,
    Run,
    Sample,
    Shown,
)
from cairn.report import formatting, markdown, run_json, terminal
from cairn.report.formatting import printable
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.report.view import View

BROKEN = "broken"
_DIGITS_MOST = 9
"""The most decimals of a percentage that must differ from its bound."""


class CheckReport(Struct, frozen=True):
    """A check with all data of its report."""

    run: Run
    samples: tuple[Sample, ...]
    comparison: Comparison | None
    """None if the check has no rounds, because it only counts instructions."""
    checked: tuple[Checked, ...]
    counts: tuple[InstructionCount, ...]
    stopped: str | None
    """Why measuring ended; see `Comparison.stopped_because`."""
    broken: str | None = None
    """Why nothing could be checked, as a sentence; None if it could."""
    name: str = "last"
    """The name by which 'cairn report' finds the run."""
    names: tuple[str, str] = ("base", "new")
    """The names of both builds: the one to compare with, and the checked one."""
    stored: str | None = None
    """How the base was stored, as a sentence; None if both builds ran side by side."""
    base_is_broken: bool = False
    """Whether the broken build is the one to compare with."""

    @property
    def answer(self) -> str:
        """The answer of the whole check: the value of a GateState, or BROKEN."""
        return BROKEN if self.broken is not None else gate.whole(self.checked).value


def bound(measure: str, most: float) -> str:
    """Returns a bound as the user writes it: "time>3%"."""
    return f"{measure}>{100 * most:.6g}%"


def _percent(change: float) -> str:
    return f"{100 * change:.6g} %"


def says(report: CheckReport) -> tuple[str, ...]:
    """Returns the answer to each bound. The first sentence begins with the answer of the check."""
    if report.broken is not None:
        return (f"Broken: {report.broken}.",)
    base, now = report.names
    stored = report.stored is not None
    return (
        *(
            f"{head}: {_sentence(one, now, base, stored)}"
            for state, head in _HEADS.items()
            for one in report.checked
            if one.state is state
        ),
        *_advice(report),
    )


_HEADS = {
    GateState.WORSE: "Worse",
    GateState.UNKNOWN: "Not known",
    GateState.OPEN: "Not enough data",
    GateState.PASS: "Pass",
}
"""By the answer to a bound: the beginning of the sentence on it. The sentences have this order."""


def _sentence(one: Checked, now: str, base: str, stored: bool = False) -> str:
    """Returns the answer to one bound as the rest of a sentence, which follows "Worse: "."""
    measure = MEASURES[one.measure]
    limit = f"the bound is {_percent(one.most)}"
    match one.state:
        case GateState.UNKNOWN:
            return " ".join(filter(None, (f"{one.problem}.", _remedy(one))))
        case GateState.OPEN:
            if one.low is None and one.measured_rounds == 0:
                return (
                    f"no round measured {measure.noun} under both builds; give the program more "
                    "work."
                )
            if one.low is None and one.measured_rounds is not None:
                return f"{_partly(one)}, and about {one.rounds_needed} rounds are needed."
            if one.low is None and not one.rounds:
                return (
                    f"no round is complete, and at least {one.rounds_needed} are needed to decide "
                    f"{measure.noun}."
                )
            if one.low is None:
                return (
                    f"{_rounds(one)} cannot decide {measure.noun}; at least {one.rounds_needed} "
                    "are needed."
                )
            wanted = _wanted(one, stored)
            return f"the change in {measure.noun} is {_change(one)}, and {limit}. {wanted}"
        case GateState.WORSE | GateState.PASS:
            return f"{now} {measure.verb} {_amount(one)} {base}, and {limit}."


def _remedy(one: Checked) -> str:
    """Returns a sentence on how to measure what was not measured; "" if none is known."""
    metrics = MEASURES[one.measure].metrics
    if not metrics:
        return ""
    known = [number is not None for number in (one.base, one.now)]
    if all(known) or (any(known) and IDLE_MEMORY not in metrics):
        return "Give the program more work, or limit another measure."
    if IDLE_MEMORY in metrics:
        return (
            "Both builds need a server that lives through --idle, such as --while LOAD --idle 10s."
        )
    if metrics[-1].unit == "bytes":
        return "'cairn doctor' says how memory can be measured here."
    return ""


def _amount(one: Checked) -> str:
    """Returns the size of the difference as a phrase, such as "at most 3 % more time than".

    The name of the base follows it.
    """
    assert one.low is not None and one.high is not None
    noun = MEASURES[one.measure].noun
    if one.low == one.high == 0:
        return f"as {_many(one.measure)} {noun} as"
    if one.state is GateState.PASS:
        return _at_most(one.high, one.most, noun)
    # The ends are those of the interval, so both have their digits, however wide it is.
    ends = [formatting.multiple(1 + end) for end in (one.low, one.high)]
    if 1 + one.high >= formatting.TWICE and float(ends[0].replace(",", "")) > 1 + one.most:
        return f"{_range(*ends)} times the {noun} of"
    return f"{_range(*_above(one.low, one.high, one.most))} % more {noun} than"


def _at_most(high: float, most: float, noun: str) -> str:
    """Returns the upper end of an interval as a phrase, such as "at most 3 % more time than".

    It has the digits of the table, but is not above the bound `most`.
    """
    text = units.percent(abs(high), signed=False)
    number = float(text.removesuffix(" %"))
    if high < 0 < number:
        return f"at least {text} less {noun} than"
    return f"at most {text if number < 100 * most else _percent(most)} more {noun} than"


def _above(low: float, high: float, most: float) -> tuple[str, str]:
    """Returns both ends of an interval above the bound `most`, in percent, without the sign.

    They have enough digits to show that the lower end is above the bound.
    """
    ends = [units.percent(end, signed=False).removesuffix(" %") for end in (low, high)]
    limit, digits = float(_percent(most).removesuffix(" %")), 0
    while float(ends[0]) <= limit and digits < _DIGITS_MOST:
        digits += 1
        ends = [f"{100 * end:.{digits}f}" for end in (low, high)]
    return ends[0], ends[1]


def _many(measure: str) -> str:
    return "many" if measure in ("faults", INSTRUCTIONS) else "much"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _rounds(one: Checked) -> str:
    return units.counted(one.rounds, "round")


def _partly(one: Checked) -> str:
    """Returns the clause that a measure is missing in some rounds."""
    noun = MEASURES[one.measure].noun
    were = "were" if noun.endswith("s") else "was"
    return f"{noun} {were} measured in {one.measured_rounds} of {_rounds(one)}"


def _wanted(one: Checked, stored: bool) -> str:
    """Returns a sentence on the rounds that would decide a bound."""
    if one.level is None and one.low is not None:
        return "The counts differ from run to run by more than the distance to the bound."
    were = "round was run" if one.rounds == 1 else "rounds were run"
    if stored:
        return (
            "Two builds that run side by side tell more than stored numbers: name the program of "
            "the base with -p."
        )
    if one.rounds_needed is None:
        return (
            f"{units.count(one.rounds)} {were}, and more than {units.count(ROUNDS_MOST)} "
            "would be needed: the change is too close to the bound for this noise."
        )
    return (
        f"About {units.count(one.rounds_needed)} rounds would probably decide it; "
        f"{units.count(one.rounds)} {were}."
    )


def _advice(report: CheckReport) -> Iterator[str]:
    """Yields a sentence with the option that would give enough data."""
    wanted = [one.rounds_needed for one in report.checked if one.state is GateState.OPEN]
    if report.answer != GateState.OPEN.value or not all(wanted):
        return
    rounds = max(one for one in wanted if one is not None)
    # The counts of instructions were made after the rounds.
    of_rounds = [one.rounds for one in report.checked if one.measure != INSTRUCTIONS]
    done = max(of_rounds, default=0)
    rule = report.run.rule
    more = f"--max-rounds {rounds}" if rounds > rule.max_rounds else ""
    if report.stopped == TIME_BUDGET and not done:
        yield "Use a longer --budget."
    elif report.stored is not None:  # more rounds of one build do not help
        return
    elif rule.precision is None:
        yield f"Use -r {rounds}, or leave out -r."
    elif report.stopped == TIME_BUDGET and rule.budget_s is not None:
        budget = f"--budget {units.budget(rule.budget_s * rounds / done)}"
        yield f"Use {' '.join(filter(None, (budget, more)))}."
    elif more:
        yield f"Use {more}."


def _change(one: Checked) -> str:
    """Returns the interval of the change without a sign: "+1.2 to +3.4 %"."""
    if one.low is None or one.high is None or one.estimate is None:
        return "not known"
    shown = Shown.LESS if one.high < 0 else Shown.MORE if one.low > 0 else Shown.NOT_SHOWN
    interval = Interval(one.low, one.high, one.level or 1.0)
    change = Change(one.estimate, interval, shown, None, one.rounds)
    return formatting.span(change, 0.0).partition(" ")[2]


def _quantity(one: Checked, number: float | None) -> str:
    if number is None:
        return formatting.NOT_MEASURED
    if one.measure == INSTRUCTIONS:
        return f"{number:,.0f}"
    return formatting.quantity(number, MEASURES[one.measure].metrics[-1])


def board(report: CheckReport) -> Board:
    """Returns the answer, a table of all bounds, and how they were decided."""
    base, now = report.names
    good = {GateState.PASS: True, GateState.WORSE: False}
    rows = tuple(
        (
            Cell(bound(one.measure, one.most)),
            Cell(_quantity(one, one.base)),
            Cell(_quantity(one, one.now)),
            Cell(_change(one), good.get(one.state)),
            Cell(one.state.value, good.get(one.state)),
        )
        for one in report.checked
    )
    heads = ("fail if", printable(base), printable(now), "change", "answer")
    return Board(
        title="cairn check",
        says=tuple(map(printable, says(report))),
        tables=(Table("", heads, rows, optional=(0, 1), names_missing=False),) if rows else (),
        footer=tuple(map(printable, _footer(report))),
        failures=(),
    )


def _footer(report: CheckReport) -> Iterator[str]:
    timed = [one for one in report.checked if one.level is not None]
    if timed:
        method = report.comparison.memory_method if report.comparison else None
        yield " · ".join(
            filter(
                None,
                (
                    units.counted(timed[0].rounds, "round"),
                    f"each end of an interval holds with {100 * (timed[0].level or 0):.4g} % "
                    f"confidence{_shared(timed)}",
                    f"memory by {method}" if method else None,
                    f"cairn report {report.name}",
                ),
            )
        )
    counted = [
        one for one in report.checked if one.measure == INSTRUCTIONS and one.estimate is not None
    ]
    if counted:
        # An interval without width has equal counts of each build, also of a stored base.
        equal = all(one.low == one.high for one in counted)
        yield (
            "instructions: counted by callgrind, twice with the same result"
            if equal
            else "instructions: counted twice by callgrind; the range is that of the counts, which "
            "differ from run to run"
        )
    for one in report.checked:
        if one.measured_rounds is not None and one.low is not None:
            text = _partly(one)
            yield f"▲ {text[0].upper()}{text[1:]}; these rounds decide its bound."
    if report.stored is not None:
        yield f"▲ {report.stored}"
    if report.comparison is not None:
        for line in (*report.comparison.unsuited, *report.comparison.notes):
            yield f"▲ {line}"


def _shared(timed: Sequence[Checked]) -> str:
    """Returns why the confidence is above that of the whole check, as the end of a clause."""
    over = [units.counted(len(timed), "bound")] if len(timed) > 1 else []
    if len(timed) * (1 - (timed[0].level or 0.0)) < 0.99 * gate.ERROR:
        over.append("the tests during measuring")
    return f": {100 * gate.ERROR:g} % error is shared over {' and '.join(over)}" if over else ""


def rendered(report: CheckReport, view: View) -> str:
    """Returns the report as text, Markdown or JSON."""
    if view.form == "json":
        return run_json.render(
            report.run,
            [report.comparison] if report.comparison is not None else [],
            report.samples,
            instructions=report.counts,
            check=document(report),
        )
    if view.form == "md":
        return summary(report)
    return terminal.drawn(board(report), view, answer_first=True)


def summary(report: CheckReport) -> str:
    """Returns the report as Markdown, for the summary of a step in GitHub Actions."""
    return markdown.board(report.run, board(report))


def document(report: CheckReport) -> Mapping[str, Any]:
    """Returns the key "check" of the JSON document."""
    return {
        "answer": report.answer,
        "base": report.names[0],
        "now": report.names[1],
        "bounds": msgspec.to_builtins(list(report.checked)),
        "says": list(says(report)),
        "broken": report.broken,
        "stored": report.stored,
    }


_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


_KINDS = {GateState.WORSE: "failure", GateState.OPEN: "skipped", GateState.UNKNOWN: "error"}
"""By the answer to a bound: the element in its test case. A bound that is kept has no element."""


def junit(report: CheckReport, seconds: float, when: str) -> str:
    """Returns the report as JUnit XML: one test case for each bound.

    A bound that is exceeded is a failure. A bound that could not be decided is skipped, and a bound
    whose measure could not be measured is an error.

    seconds: the time of the whole check.
    when: the beginning of the check, in ISO 8601.
    """
    assert report.run.gate is not None
    by = {one.measure: one for one in report.checked}
    base, now = report.names
    cases, kinds = [], []
    for limit in report.run.gate.bounds:
        one = by.get(limit.measure)
        kind, text = "error", f"{report.broken}."
        if one is not None and report.broken is None:
            kind = _KINDS.get(one.state, "")
            text = _sentence(one, now, base, report.stored is not None)
        kinds.append(kind)
        name = f"name={_attribute(bound(limit.measure, limit.most))}"
        head = f'    <testcase classname={_attribute(f"cairn check: {now}")} {name} time="0"'
        if not kind:
            cases.append(f"{head}>\n      <system-out>{_text(text)}</system-out>\n    </testcase>")
            continue
        tag = f"<{kind} message={_attribute(text)}/>"
        cases.append(f"{head}>\n      {tag}\n    </testcase>")
    counts = (
        f'tests="{len(kinds)}" failures="{kinds.count("failure")}" '
        f'errors="{kinds.count("error")}" skipped="{kinds.count("skipped")}"'
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<testsuites {counts}>\n"
        f'  <testsuite name="cairn check" {counts} time="{seconds:.3f}" timestamp="{when}">\n'
        + "\n".join(cases)
        + "\n  </testsuite>\n</testsuites>\n"
    )


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("?", printable(text)))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("?", printable(text)))


def annotation_lines(report: CheckReport) -> tuple[str, ...]:
    """Returns the lines that make GitHub show the answer beside the commit; () for a pass."""
    kind = {GateState.PASS.value: "", GateState.OPEN.value: "warning"}.get(report.answer, "error")
    if not kind:
        return ()
    text = " ".join(map(printable, says(report)))
    for sign, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(sign, code)
    return (f"::{kind} title=cairn check::{text}",)
