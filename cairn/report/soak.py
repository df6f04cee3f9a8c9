"""The report of 'cairn soak': a sentence for each verdict, a table, and plots over time."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from io import StringIO

import msgspec

from cairn import units
from cairn.compare import comparison
from cairn.memory import AFTER_ITS_END
from cairn.model import SCHEMA, Run, Sample
from cairn.report import markdown, soak_plot, soak_rules, terminal
from cairn.report.formatting import NOT_MEASURED, printable
from cairn.report.soak_rules import per, rate
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.report.view import WIDTH, View
from cairn.soak.judge import Kind, Reason
from cairn.soak.trend import Growth
from cairn.soak.verdict import SoakVerdict, Tried, tried, verdicts

_ORDER = (Kind.LEAK, Kind.FRAGMENTATION, Kind.RETENTION, Kind.UNKNOWN, Kind.STABLE)
_SIGKILL = 9
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def render(run: Run, samples: Sequence[Sample], view: View, *, name: str, stopped: str) -> str:
    """Returns the report in the form of `view`.

    name: the run's name in a command. stopped: why measuring ended; may be empty.
    """
    if view.form == "csv":
        return rows(samples)
    if view.form == "svg":
        return soak_plot.svg(run, samples)
    found = verdicts(run, samples)
    made = board(run, found, samples, name, stopped)
    if view.form == "json":
        return document(run, samples, found, (*made.says, *_early(stopped)))
    plots = list(_plots(run, samples, view))
    if view.form == "md":
        return markdown.board(run, made) + "".join(
            f"\n{markdown.escape(title)}\n\n```\n" + "\n".join(lines) + "\n```\n"
            for title, lines in plots
        )
    screen = terminal.Screen(view)
    for place, sentence in enumerate(made.says):
        screen.line(sentence, "" if place else "bold")
    for sentence in made.failures:
        screen.line(f"✘ {sentence}", "red")
    for table in made.tables:
        screen.line()
        screen.table(table)
    for title, lines in plots:
        screen.line()
        screen.line(title, indent=2)
        for line in lines:
            screen.unwrapped(line)
    if view.full:
        screen.line()
        for sentence in soak_rules.sentences(found):
            screen.line(sentence, indent=2)
    screen.line()
    for sentence in made.footer:
        screen.line(sentence, "dim", indent=2)
    for sentence in run.notes:
        screen.line(printable(sentence), "dim", indent=2)
    return screen.text()


def headline(run: Run, samples: Sequence[Sample]) -> str:
    """Returns the first sentence on the verdicts, for a list of runs."""
    found = verdicts(run, samples)
    return board(run, found, samples, "last", "").says[0]


def board(
    run: Run, found: Sequence[SoakVerdict], samples: Sequence[Sample], name: str, stopped: str
) -> Board:
    """Returns the sentences and the table of a run. The arguments are those of `render`."""
    says = [*_says(found), *_advice(found, run), *_next(found, run)]
    failures = [
        f"{printable(one.contender)} {printable(one.failure)}" for one in found if one.failure
    ]
    nothing = "no contender could be judged" if failures else "no run is complete"
    return Board(
        title="Memory over time",
        says=tuple(says) or (f"No verdict: {nothing}.",),
        tables=(_table(found),),
        footer=tuple(_footer(run, found, samples, name, stopped)),
        failures=tuple(failures),
    )


def _says(found: Sequence[SoakVerdict]) -> Iterator[str]:
    """Yields the sentences on the verdicts. Contenders with one verdict may share a sentence."""
    for kind in _ORDER:
        of = [one for one in found if one.kind is kind and one.failure is None]
        if kind is Kind.LEAK and of:
            yield _leak(of)
        elif kind is Kind.STABLE and of:
            yield _stable(of)
        elif kind is Kind.UNKNOWN:
            for reason in Reason:
                same = [one for one in of if one.reason is reason]
                if same:
                    yield f"Not known yet under {_names(same)}: {reason.value}."
        else:
            yield from map(_spare, of)
        for one in of:
            if one.also is not None:
                yield _spare(one, also=True)


def _names(found: Sequence[SoakVerdict]) -> str:
    names = [printable(one.contender) for one in found]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _leak(found: Sequence[SoakVerdict]) -> str:
    growths = [one.growth() for one in found]
    known = [one for one in growths if one is not None]
    whole = Growth(
        sum(one.per_s for one in known) / len(known),
        min(one.low for one in known), max(one.high for one in known),
    )  # fmt: skip
    live = max(one.mean("live") or 0.0 for one in found)
    doubles = live / whole.per_s
    return (
        f"Leak, or a cache that still fills: live memory grows by {rate(whole)} under "
        f"{_names(found)}. At this rate it doubles in {_about(doubles)}."
    )


def _stable(found: Sequence[SoakVerdict]) -> str:
    largest = max(found, key=lambda one: one.growth_most)
    most = largest.growth_most
    bound = f" by more than {per(most, largest.growth())}" if most > 0 else ""
    return f"Stable under {_names(found)}: live memory does not grow{bound}."


def _spare(one: SoakVerdict, *, also: bool = False) -> str:
    """The sentence on one contender's verdict, which is fragmentation or retention.

    also: whether the sentence is on the contender's second verdict `one.also`.
    """
    kind = one.also if also and one.also is not None else one.kind
    word = {Kind.FRAGMENTATION: "Fragmentation", Kind.RETENTION: "Retention"}[kind]
    held, live, returned = one.mean("held"), one.mean("live_most"), one.mean("returned")
    assert held is not None and live is not None
    text = (
        f"{word} under {printable(one.contender)}: in the last half of the run, the allocator "
        f"held {units.size(held)} for at most {units.size(live)} of live blocks."
    )
    spares = [run.trim.held_bytes - run.trim.live_bytes for run in one.runs if run.trim is not None]
    if returned is None or not spares:
        return text
    spare = sum(spares) / len(spares)
    share = f"{100 * returned:.0f} % of the {units.size(spare)}"
    return (
        f"{text} A trim at the end of the run returned {share} that the allocator then held beyond "
        "the live blocks."
    )


def _advice(found: Sequence[SoakVerdict], run: Run) -> Iterator[str]:
    """Yields the remedies: what to do about the verdicts, and which contender holds less memory."""
    kinds = {one.kind for one in found if one.failure is None}
    stable = [one for one in found if one.kind is Kind.STABLE and one.failure is None]
    if Kind.LEAK in kinds and stable:
        # The blocks of a program are live under every allocator, so one of the verdicts is wrong.
        yield (
            f"The contenders disagree: a leak of the program would also show under "
            f"{_names(stable)}. Longer runs (--for) tell which is right."
        )
    elif Kind.LEAK in kinds:
        yield (
            "No allocator and no setting ends a leak: the program must free these blocks. A cycle "
            "longer than the runs looks the same; longer runs (--for) tell."
        )
    better = {one.other: one for one in tried(found)}
    bad = [
        one
        for one in found
        if one.kind in (Kind.FRAGMENTATION, Kind.RETENTION) and one.failure is None
    ]
    for one in bad:
        if one.contender in better:
            yield _tried(better[one.contender], run)
    tried_others = sum(one.failure is None for one in found) > 1
    if bad and tried_others and not any(one.contender in better for one in bad):
        names = " or ".join(printable(one.contender) for one in bad)
        yield f"None of the contenders that were tried holds clearly less than {names}."
    for one in bad:
        spared = [each.trim for each in one.runs if each.trim is not None]
        if one.kind is Kind.RETENTION and spared:
            back = sum(each.held_bytes - each.after_bytes for each in spared) / len(spared)
            yield (
                f"A trim of {printable(one.contender)} returned {units.size(back)} at the end of "
                "the runs; a program may do the same when its work is done."
            )


def _tried(one: Tried, run: Run) -> str:
    knobs = next((c.knobs for c in run.contenders if c.name == one.contender), ())
    how = f" ({' '.join('='.join(knob) for knob in knobs)})" if knobs else ""
    share = 100 * (1 - one.held / one.other_held)
    return (
        f"Tried here: {printable(one.contender)}{printable(how)} holds {units.size(one.held)}, "
        f"{share:.0f} % less than {printable(one.other)}."
    )


def _next(found: Sequence[SoakVerdict], run: Run) -> Iterator[str]:
    seconds = run.settings.soak_s
    contradict = [one for one in found if one.reason is Reason.ROUNDS and one.failure is None]
    if contradict and seconds is not None:
        rounds = max(len(one.runs) for one in contradict)
        # A program that ends by itself does not run for longer.
        longer = any(one.no_trim != AFTER_ITS_END for one in contradict)
        yield (
            f"More rounds (-r {2 * rounds}){' or longer runs (--for)' * longer} may tell which "
            f"verdict is right under {_names(contradict)}."
        )
    open_ones = [one for one in found if one.needed_s is not None and one not in contradict]
    if open_ones and seconds is not None:
        longest = max(one.needed_s or 0.0 for one in open_ones)
        yield (
            f"Runs of about {_about(longest)} would probably give a verdict under "
            f"{_names(open_ones)}: --for {_option(longest)}."
        )


def _table(found: Sequence[SoakVerdict]) -> Table:
    heads = ("", "verdict", "live", "held", "resident", "after trim", "growth of live")
    rows = []
    for one in found:
        trims = [each.trim for each in one.runs if each.trim is not None]
        after = sum(each.after_bytes for each in trims) / len(trims) if trims else None
        growth = one.growth()
        kind = one.kind.value if one.runs else NOT_MEASURED
        kind = "failed" if one.failure is not None else kind
        rows.append(
            (
                Cell(printable(one.contender)),
                Cell(kind, True if one.kind is Kind.STABLE else None),
                *(_size(one.mean(key)) for key in ("live", "held", "resident")),
                _size(after),
                Cell(NOT_MEASURED if growth is None else rate(growth)),
            )
        )
    return Table("", heads, tuple(rows), texts=True)


def _size(number: float | None) -> Cell:
    return Cell(NOT_MEASURED if number is None else units.size(number))


def _about(seconds: float) -> str:
    """A time in words with two digits: "40 s", "12 min", "3.5 h", "11 days"."""
    for limit, divisor, word in (
        (120.0, 1.0, "s"),
        (7200.0, _MINUTE, "min"),
        (2 * _DAY, _HOUR, "h"),
    ):
        if seconds < limit:
            return f"{_two(seconds / divisor)} {word}"
    days = seconds / _DAY
    return f"{_two(days)} days" if days < 1000 else "more than 1,000 days"


def _two(number: float) -> str:
    digits = 0 if number >= 9.95 else 1
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.{digits}f}"


def _option(seconds: float) -> str:
    """A value for --for that is at least this long, in round numbers."""
    if seconds <= 90:
        return f"{10 * math.ceil(seconds / 10)}s"
    if seconds <= 7200:
        return f"{math.ceil(seconds / 60)}min"
    return f"{math.ceil(seconds / 3600)}h"


def _footer(
    run: Run, found: Sequence[SoakVerdict], samples: Sequence[Sample], name: str, stopped: str
) -> Iterator[str]:
    length = run.settings.soak_s or 0.0
    yield (
        f"{_rounds(found)} of {units.duration(length)} for each contender, in "
        "alternating order. Live, held and resident are medians of the last half; growth is that "
        "of the lower edge of live memory, after a quarter of the run, with 95 % intervals."
    )
    stable = [run for one in found if one.kind is Kind.STABLE for run in one.runs]
    if any(one.growth_of == "mean" for one in stable):
        yield (
            "For a stable run, the table has the growth of mean live memory instead if its "
            "interval has the smaller upper end."
        )
    yield from _early(stopped)
    for one in found:
        if one.no_trim is not None and one.failure is None:
            yield f"After trim: {printable(one.contender)} {printable(one.no_trim)}."
    series = [one.memory.series for one in samples if one.memory.series is not None]
    if any(not one.counted for one in series):
        yield (
            "Live memory is an estimate, because one of the allocators has no function that "
            "returns the size of a block."
        )
    most = max((one.processes for one in series), default=1)
    if most > 1:
        yield (
            f"All numbers are sums over up to {most} processes; pages that processes share after "
            "a fork are counted in each."
        )
    if any(one.ended_early for one in series):
        yield (
            "The program ended by itself before the time was over. A longer --for does not make "
            "its runs longer; more work for it does."
        )
    killed = dict.fromkeys(
        printable(one.trial.contender) for one in samples if one.counts and one.signal == _SIGKILL
    )
    if killed:
        yield (
            f"Under {', '.join(killed)} the program ignored SIGTERM after the time was over, so it "
            "was killed. Its memory before that is judged."
        )
    yield from comparison.crash_notes(samples, run.baseline)
    yield from comparison.knob_notes(samples)
    yield (
        f"Next: cairn report {name} -o memory.html draws the runs on a page; docs/soak.md has the "
        "rules."
    )


def _rounds(found: Sequence[SoakVerdict]) -> str:
    """The number of rounds that were judged. Contenders of an interrupted run may differ in it."""
    numbers = [len(one.runs) for one in found if one.failure is None]
    numbers = numbers or [len(one.runs) for one in found]
    least, most = min(numbers, default=0), max(numbers, default=0)
    return f"{least} to " * (least < most) + units.counted(most, "round")


def _early(stopped: str) -> tuple[str, ...]:
    """The sentence that says why measuring ended early; () if it did not."""
    return (f"Measuring ended early: {printable(stopped.removesuffix('.'))}.",) if stopped else ()


def _plots(run: Run, samples: Sequence[Sample], view: View) -> Iterator[tuple[str, list[str]]]:
    """Yields the plots: the last run of each contender, or with --full all runs."""
    width = view.width if view.form == "text" else WIDTH
    for contender in run.competing:
        own = [
            one
            for one in samples
            if one.trial.contender == contender.name and one.counts and one.memory.series
        ]
        for one in own if view.full else own[-1:]:
            assert one.memory.series is not None
            title = f"{printable(contender.name)}, round {one.trial.round}"
            yield title, soak_plot.drawn(one.memory.series, width)


def document(
    run: Run, samples: Sequence[Sample], found: Sequence[SoakVerdict], says: Sequence[str]
) -> str:
    """Returns the run, the verdicts with the numbers of each run, and the series as JSON.

    says: the sentences of the report.
    """
    parts = {
        "schema": SCHEMA,
        "run": run,
        "comparisons": [],
        "verdict": list(says),
        "soak": list(found),
        "tried": list(tried(found)),
        "samples": list(samples),
    }
    return json.dumps(msgspec.to_builtins(parts), ensure_ascii=True, indent=1) + "\n"


def rows(samples: Sequence[Sample]) -> str:
    """Returns the series as CSV, a row for each moment."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("contender", "round", "at_ms", "live", "held", "resident"))
    for one in samples:
        series = one.memory.series
        if series is not None:
            for moment in zip(series.at_ms, series.live, series.held, series.resident, strict=True):
                writer.writerow((printable(one.trial.contender), one.trial.round, *moment))
    return file.getvalue()
