"""The report of a profile as text: the answer in sentences, then the tables, then the notes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.cells import cell_len

from cairn import units
from cairn.profile.callers import Stack
from cairn.profile.early_ends import cpu_total_ns
from cairn.profile.estimates import cpu_ns, whole_cpu_ns
from cairn.profile.tally import Profile, lasting, one_or_more
from cairn.report import sparkline
from cairn.report.callers_table import (
    callers_notes,
    callers_table,
    callers_tree,
    unrecorded_note,
)
from cairn.report.formatting import NOT_MEASURED, printable, shortened
from cairn.report.pinned_table import pinned_answer, pinned_notes, pinned_table
from cairn.report.profile_answer import answer
from cairn.report.profile_notes import notes, used_libraries
from cairn.report.profile_numbers import between
from cairn.report.profile_tables import MEMORY, tables
from cairn.report.terminal import Screen
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
    stacks: Sequence[Stack] = (),
    tree: bool = False,
    stacks_notes: Sequence[str] = (),
) -> str:
    """Returns the report as text: the answer, the tables, and the rest of the sentences.

    `allocator` is the user's name of the allocator; None takes the name of its file. `others` are
    the predicted savings of other allocators. `stacks` are those that allocated, `tree` adds the
    tree of their callers, and `stacks_notes` say what is not known of them. Without `view.full`,
    the notes are only warnings.
    """
    screen = Screen(view)
    found = answer(profile, _title(profile, allocator, view.width), view.width, others=others)
    for place, group in enumerate(found.groups):
        if place:
            screen.line()
        for one in group:
            screen.line(one.text, one.style, hanging=one.hanging)
    lines = sparkline.drawn(profile, view.width)
    for table in tables(profile, full=view.full):
        screen.line()
        if table.heads[0] == MEMORY and lines:
            for line in lines:
                screen.unwrapped(line)
            screen.line()
        screen.table(table)
    _callers(screen, profile, stacks, view, tree)
    for note in stacks_notes:
        screen.line(note, "yellow", indent=2)
    if found.left:
        screen.line()
    for sentence in found.left:
        screen.line(sentence, hanging=2)
    told = [printable(note) for note in notes(profile) if view.full or note.startswith("▲")]
    below = [*(f"▲ {one}" for one in found.warnings), *told]
    if not view.full:
        below.append(_MORE)
    screen.line()
    for note in below:
        screen.line(note, "yellow" if note.startswith("▲") else "dim", indent=2)
    return screen.text()


def _callers(
    screen: Screen, profile: Profile, stacks: Sequence[Stack], view: View, tree: bool
) -> None:
    """Adds the functions that allocate, if call stacks were recorded."""
    unrecorded = unrecorded_note(profile.processes, profile.stacks)
    if stacks or unrecorded:
        screen.line()
    if unrecorded:
        screen.line(unrecorded, "yellow", indent=2)
    if stacks:
        screen.table(callers_table(stacks))
    if tree and stacks:
        screen.line()
        screen.line("  share      bytes  callers", "bold")
        for line in callers_tree(stacks, view.width):
            screen.line(line)
    for note in callers_notes(profile.stacks, stacks):
        screen.line(note, "yellow" if note.startswith("▲") else "dim", indent=2)
    if stacks:
        _pinned(screen, profile, stacks)


def _pinned(screen: Screen, profile: Profile, stacks: Sequence[Stack]) -> None:
    """Adds the functions that keep memory that is nearly empty, if they are known."""
    if told := pinned_answer(profile.stacks, stacks):
        screen.line()
        screen.line(told)
        screen.line()
        screen.table(pinned_table(profile.stacks, stacks))
    for note in pinned_notes(profile.stacks):
        screen.line(note, "yellow" if note.startswith("▲") else "dim", indent=2)


_MORE = "--full adds times by size, lives of blocks, memory over time, and the methods."


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


def title_parts(profile: Profile, allocator: str | None = None) -> tuple[str, ...]:
    """Returns program, allocator, processes, threads, wall time and CPU time. They are printable.

    Without `allocator`, its name is taken from the profile.
    """
    alive = lasting(profile.processes)
    threads = sum(process.threads for process in alive)
    whole = whole_cpu_ns(profile)
    wall = units.time(profile.wall_ns) if profile.wall_ns else NOT_MEASURED
    parts = (
        shortened(program_of(profile), _COMMAND_MAX),
        allocator_of(profile, allocator),
        units.counted(len(alive), "process", "processes")
        + (f" that {'allocates' if len(alive) == 1 else 'allocate'}" if whole else ""),
        units.counted(threads, "thread", "threads"),
        f"{'recorded for' if _is_of_the_probe_alone(profile) else 'wall'} {wall}"
        if profile.window is None
        else f"counted for {wall}, beginning {units.time(profile.window.after_ns)} after the start",
        f"CPU {_cpu(profile)}" + (f" of {units.time(whole)} in the whole program" if whole else ""),
    )
    return tuple(map(printable, parts))


def _cpu(profile: Profile) -> str:
    """Returns the CPU time, or its limits if some process did not end normally."""
    total = cpu_total_ns(profile)
    if not total.low:
        return NOT_MEASURED
    if total.low == total.high:
        return units.time(cpu_ns(profile) or 0)
    return between(total, units.time)


def _is_of_the_probe_alone(profile: Profile) -> bool:
    """Whether the wall time is only that from the probe's start to its last look."""
    return bool(profile.wall_ns) and (profile.tree is None or profile.tree.wall_ns is None)


def _title(profile: Profile, allocator: str | None, width: int) -> str:
    """Returns the title, in lines that end between two of its parts."""
    parts = title_parts(profile, allocator)
    title = "profile  "
    for place, part in enumerate(parts):
        line = title.rpartition("\n")[2]
        end = " ·" if place < len(parts) - 1 else ""
        if place and cell_len(f"{line} · {part}{end}") > width:
            title += f" ·\n{part}"
        else:
            title += f" · {part}" if place else part
    return title
