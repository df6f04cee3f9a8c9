"""The report of a profile as text: calls, times, system calls, locks and memory of an allocator.

It begins with the share of CPU time that the allocator takes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from cairn import units
from cairn.findings import find
from cairn.model import Finding
from cairn.profile.cpu_share import SAMPLES_LEAST, cpu_share
from cairn.profile.estimates import cpu_ns
from cairn.profile.tally import Profile, lasting, one_or_more
from cairn.report import terminal
from cairn.report.formatting import NOT_MEASURED, printable, shortened, wrapped
from cairn.report.prediction import sentences
from cairn.report.profile_notes import notes, used_libraries
from cairn.report.profile_numbers import about, ends_of, percent
from cairn.report.profile_tables import tables
from cairn.report.standings import Board
from cairn.report.view import View
from cairn.why.prediction import Prediction

_COMMAND_MAX = 60
"""The most characters of the command that the title shows."""


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
    return Board(
        title=_title(profile, allocator),
        says=(
            *(printable(because(finding)) for finding in find(profile)),
            *map(printable, sentences(others)),
        ),
        tables=tables(profile, full=full),
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
            f"The allocator takes {about(found.share)} of the CPU time. No other allocator can "
            "save more than that in the allocator itself; how blocks lie can change the rest."
        )
    if found.scope == "timers" and why_not:
        yield (
            f"▲ That comes from only {units.counted(found.samples, 'sample')} of CPU time, "
            f"because {why_not}. {_PERMISSION}"
        )


_PERMISSION = "Root, or a kernel.perf_event_paranoid of 2 or less, permits a faster clock."


def because(finding: Finding) -> str:
    """Returns a finding as a paragraph: the cause, its size, the evidence and the advice."""
    about = f"{percent(finding.effect)} of {finding.of}"
    ends = finding.interval
    within = (
        f" {ends_of(ends, finding.effect)}" if ends is not None and ends.low < ends.high else ""
    )
    return (
        f"▲ {finding.says}: {about}{within}. {'; '.join(finding.evidence)}. To do: "
        f"{finding.advice}."
    )


def allocator_of(profile: Profile, given: str | None) -> str:
    """Returns the user's name of the allocator, else the names of the libraries that own malloc."""
    known = given or (profile.tree.allocator if profile.tree else None)
    paths = used_libraries(profile)
    return known or one_or_more([path.rpartition("/")[2] or "unknown" for path in paths])


def program_of(profile: Profile) -> str:
    """Returns the command if it is known, else the programs of the processes."""
    if profile.tree is None:
        return one_or_more([process.program for process in profile.processes])
    return shlex.join(profile.tree.command)


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
