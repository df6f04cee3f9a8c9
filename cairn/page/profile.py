"""The page of a profile: where time and memory go, and every table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn.findings import find
from cairn.page import callers, scale
from cairn.page.over_time import calls_over_time, memory_over_time
from cairn.page.parts import (
    Code,
    Curves,
    Fold,
    Item,
    Page,
    Rectangle,
    Sentences,
    Sheet,
    Topic,
    Track,
    Tracks,
)
from cairn.page.render import download, html
from cairn.profile.callers import Stack
from cairn.profile.cpu_share import cpu_share
from cairn.profile.hot_functions import SHOWN, hot_functions
from cairn.profile.tables import kernel_lines
from cairn.profile.tally import Profile
from cairn.report import profile, profile_export, profile_tables
from cairn.report.callers_table import unrecorded_note
from cairn.report.formatting import command, printable
from cairn.report.layout_table import TITLE as LAYOUT
from cairn.report.prediction import sentences
from cairn.report.profile_answer import because, memory, no_finding, shares
from cairn.report.profile_gaps import gaps
from cairn.report.profile_notes import notes
from cairn.report.profile_numbers import about
from cairn.why.prediction import Prediction

_LONG = 12
"""A table with more rows is folded, unless it is the first of its section."""
_TOPICS = (
    ("time", "Where time goes", ("CPU time", "functions in its code")),
    (
        "operations",
        "Operations",
        ("counted", "timed", "counted, in user mode", "by size and phase"),
    ),
    ("kernel", "System calls", ("system calls", "calls over time")),
    ("locks", "Locks", ("locks", "locks by name")),
    ("memory", "Memory", (profile_tables.MEMORY, "memory, all processes", "blocks", "over time")),
    ("layout", "Layout", (LAYOUT,)),
)
"""The sections: the anchor, the heading, and the titles of their tables."""


def page(
    found: Profile,
    *,
    allocator: str | None,
    others: Sequence[Prediction] = (),
    stacks: Sequence[Stack] = (),
    stacks_notes: Sequence[str] = (),
    made_by: str = "",
) -> str:
    """Returns the page. The arguments are those of `report.profile.render`.

    made_by: the command that made the page, as a line for a shell.
    """
    name = profile.allocator_of(found, allocator)
    raised = find(found)
    answer: list[Item] = []
    share, *warnings = map(printable, shares(found))
    answer += [Sentences((share,), "lead"), *_notes(warnings)]
    told = (*memory(found), *(sentences(others)))
    if not raised and (negative := no_finding(found)):
        told = (*told, negative)
    answer.append(Sentences(tuple(map(printable, told))))
    if raised:
        answer.append(Sentences(tuple(printable(because(one)) for one in raised), "list"))
    answer += _notes([f"▲ {printable(one)}" for one in gaps(found)])
    command_made = made_by or f"cairn profile -- {profile.program_of(found)}"
    title = f"{command(profile.program_of(found))} with {printable(name)}"
    return html(
        Page(
            title=title,
            origin=" · ".join(("cairn profile", *profile.title_parts(found, allocator))),
            answer=tuple(answer),
            topics=(*_topics(found, stacks, stacks_notes), *_sources(found, stacks, command_made)),
        )
    )


def _notes(texts: Sequence[str]) -> list[Item]:
    return [Sentences(tuple(texts), "notes")] if texts else []


def _topics(
    found: Profile, stacks: Sequence[Stack], stacks_notes: Sequence[str]
) -> Iterator[Topic]:
    drawn: dict[str, tuple[Item | None, ...]] = {
        "time": (_where(found), _functions(found)),
        "kernel": (_kernel(found), calls_over_time(found)),
        "memory": (memory_over_time(found),),
    }
    tables = {table.heads[0]: table for table in profile_tables.tables(found, full=True)}
    for key, heading, titles in _TOPICS:
        items = [one for one in drawn.get(key, ()) if one is not None]
        behind = [one.table for one in items if isinstance(one, Tracks | Curves)]
        for title in titles:
            table = tables.pop(title, None)
            if table is None or table in behind:
                continue
            sheet = Sheet(table, title)
            items.append(Fold(title, (sheet,)) if items and len(table.rows) > _LONG else sheet)
        if items:
            yield Topic(key, heading, tuple(items))
        if key != "memory":
            continue
        unrecorded = unrecorded_note(found.processes, found.stacks)
        unknown = (unrecorded, *stacks_notes) if unrecorded else stacks_notes
        allocating = callers.topic(found.stacks, stacks, unknown)
        if allocating is not None:
            yield allocating
    rest = tuple(Sheet(table, title) for title, table in tables.items())
    if rest:
        yield Topic("more", "More tables", rest)


def _where(found: Profile) -> Tracks | None:
    """Returns a bar for each part of the CPU time: the allocator's, and the program's."""
    share = cpu_share(found).share
    if share is None:
        return None
    parts = list(profile_tables.cpu_parts(found))
    inside = sum(part for name, part in parts if name != _UNKNOWN)
    if inside < share.value - 1e-9:
        parts.insert(0, ("the allocator", share.value - inside))
    parts.append(("the program itself", max(0.0, 1.0 - max(inside, share.value))))
    # The other parts are shares of the time that is attributed.
    known = 1.0 - sum(part for name, part in parts if name == _UNKNOWN)
    axis, at, tracks = scale.Scale(0.0, 1.0), 0.0, []
    for name, part in parts:
        end = min(1.0, at + (part if name == _UNKNOWN else part * known))
        width = round(axis.at(end) - axis.at(at), 2)
        bar = Rectangle(axis.at(at), width, part, _KINDS.get(name, "own"))
        tracks.append(Track(name, profile_tables.cpu_part(found, part), bars=(bar,)))
        at = end
    says = f"The allocator takes {about(share)}. Each bar begins where the one above ends."
    if known < 1.0:
        says += (
            f' The part "{_UNKNOWN}" is a share of all CPU time. The other parts are shares of the '
            "remaining CPU time."
        )
    return Tracks(
        of="shares",
        title="Where CPU time goes",
        says=says,
        axis=scale.axis(axis, "share of CPU time", "share"),
        tracks=tuple(tracks),
        table=profile_tables.table_named(found, "CPU time"),
    )


_UNKNOWN = "not attributed"
_KINDS = {
    "its system calls": "calls",
    "page faults in it": "faults",
    "page faults and interrupts in it": "faults",
    "interrupts in it": "interrupts",
    "the program itself": "program",
    _UNKNOWN: "rest",
}
"""The word that chooses the colour of each part. All other parts are the time of the allocator's
own code."""


def _functions(found: Profile) -> Tracks | None:
    hot = hot_functions(found)[: 2 * SHOWN]
    if not hot:
        return None
    axis = scale.from_zero([one.share.interval.high for one in hot])
    tracks = tuple(
        Track(
            name=printable(f"{one.name} in {one.library}"),
            says=about(one.share),
            bars=(_bar(axis, one.share.value, "share"),),
            reach=axis.reach(one.share.interval.low, one.share.interval.high),
        )
        for one in hot
    )
    return Tracks(
        of="functions", title="The costliest functions in its code",
        says="A bar is a function's share of CPU time, and the line is its 95 % interval.",
        axis=scale.axis(axis, "share of CPU time", "share"), tracks=tracks,
        table=profile_tables.table_named(found, "functions in its code"),
    )  # fmt: skip


def _bar(axis: scale.Scale, value: float, kind: str) -> Rectangle:
    low, high = axis.at(0.0), axis.at(value)
    return Rectangle(low, round(max(0.2, high - low), 2), value, kind)


def _kernel(found: Profile) -> Tracks | None:
    timed = [(one, one.total_ns) for one in kernel_lines(found) if one.total_ns is not None]
    if not timed:
        return None
    axis = scale.from_zero([ns for _, ns in timed])
    tracks = tuple(
        Track(name=one.name, says=profile_tables.call_text(one), bars=(_bar(axis, ns, "calls"),))
        for one, ns in timed
    )
    return Tracks(
        of="calls", title="Time in system calls of the allocator",
        says="A bar is the total time of one kind of call.",
        axis=scale.axis(axis, "total time", "ns"), tracks=tracks,
        table=profile_tables.table_named(found, "system calls"),
    )  # fmt: skip


def _sources(found: Profile, stacks: Sequence[Stack], made_by: str) -> Iterator[Topic]:
    told = tuple(printable(note) for note in notes(found))
    warnings = [one for one in told if one.startswith("▲")]
    methods = tuple(one for one in told if one not in warnings)
    items: list[Item] = [*_notes(warnings), *([Sentences(methods, "list")] if methods else [])]
    if items:
        yield Topic("measured", "How it was measured", tuple(items))
    says = "has a line for each row of the tables."
    csv = download("cairn-profile", profile_export.rows(found, stacks), says)
    yield Topic("data", "Raw data", (csv,))
    yield Topic(
        "command",
        "The command",
        (Sentences(("This command made this page.",)), Code(printable(made_by))),
    )
