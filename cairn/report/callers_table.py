"""The functions that allocate: their table, the tree of their callers, and the notes on both."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from cairn import units
from cairn.profile.call_stacks import FRAMES_MOST, OBJECTS_MOST, TEMPORARY, StacksFile
from cairn.profile.callers import Branch, Frame, Stack, Sum, functions, interval, total, tree
from cairn.profile.demangle import plain, without_arguments
from cairn.profile.tally import Process
from cairn.report.formatting import printable, shortened
from cairn.report.profile_numbers import percent
from cairn.report.tables import Cell, Table

SHOWN = 10
"""The most functions in the table."""
_NAME_MAX = 40
Form = Callable[[float], str]
_SMALLEST = 0.01
"""The tree leaves out a branch that allocates less than this share of all bytes."""
_LINES = 60
"""The most lines of the tree."""
_NAMED = 3
"""The most processes that a sentence names."""
_FAR_Z = 5.0
"""The quantile of an interval that holds the true value in all but one of a million cases."""
_OTHER, _OTHER_BYTES = 1.05, 64 << 10
"""The requested bytes of a process may be more than those of its stacks by this factor and by this
number of bytes. So a few allocations without stacks, such as those of ending threads, cause no
warning."""


def callers_table(found: Sequence[Stack]) -> Table:
    """The functions that allocate the most bytes."""
    whole = total(found).allocated.bytes
    rows = []
    shown = functions(found)[:SHOWN]
    names = Counter(name(frame, _NAME_MAX) for frame, _ in shown)
    twice = {one for one, count in names.items() if count > 1}
    for frame, sums in shown:
        most = sums.allocated
        share = percent(sums.allocated.bytes / whole) if whole else ""
        rows.append(
            (
                Cell("  " + _told_apart(frame, twice)),
                Cell(share),
                Cell(_bytes(most, most)),
                Cell(_blocks(most, most)),
                Cell(_bytes(sums.peak, most)),
                Cell(_bytes(sums.live, most)),
                Cell(_blocks(sums.temporary, most)),
            )
        )
    heads = ("who allocates", "share", "bytes", "blocks", "at the peak", "at the end", "temporary")
    return Table("", heads, tuple(rows), optional=(0, 5))


def name(frame: Frame, most: int) -> str:
    """The name of a function for a table, with its line if that is known."""
    text = plain(frame.function)
    if frame.line:
        return printable(_with_line(text, frame.place, most))
    if len(text) > most:
        text = without_arguments(text)
    return printable(shortened(text, most))


def _with_line(text: str, place: str, most: int) -> str:
    """The name of a function and its source line, in at most `most` characters.

    If they are too long, their beginnings are cut off, because their ends say the most.
    """
    if len(text) + len(place) + 3 > most:
        text = without_arguments(text).replace("(anonymous namespace)::", "")
    line = f" ({_ending(place, max(most // 2, most - len(text) - 3))})"
    return _ending(text, max(4, most - len(line))) + line


def _ending(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[len(text) - most + 1 :]}"


def _told_apart(frame: Frame, twice: Collection[str]) -> str:
    """The name of a function, with its file if another function of the table has the same name."""
    shown = name(frame, _NAME_MAX)
    if shown not in twice or not frame.library:
        return shown
    return printable(shortened(f"{shown} in {os.path.basename(frame.library)}", _NAME_MAX))


def _about(value: float, ends: tuple[float, float], most: float, form: Form) -> str:
    """A number with its error in percent: "1.2 MiB ±3 %". The error is half of the interval `ends`.

    If the error is larger than the number, the text is only an upper limit: "≤ 1.2 MiB". This is
    the upper end of the interval, but not more than `most`, the upper limit of the whole.
    """
    half = (ends[1] - ends[0]) / 2
    if half > value:
        return f"≤ {form(round(min(ends[1], most)))}"
    error = "" if half == 0 else f" ±{max(1, round(100 * half / value))} %"
    return form(round(value)) + error


def _bytes(part: Sum, whole: Sum) -> str:
    return _about(part.bytes, part.bytes_interval, whole.bytes_interval[1], units.size)


def _blocks(part: Sum, whole: Sum) -> str:
    return _about(part.blocks, part.blocks_interval, whole.blocks_interval[1], units.count)


def callers_tree(found: Sequence[Stack], width: int) -> list[str]:
    """The tree of callers in lines of at most `width` columns, without its small branches."""
    root = tree(found)
    whole = root.sums.allocated.bytes
    lines = list(_branches(root, whole, width)) if whole else []
    if len(lines) > _LINES:
        left = len(lines) - _LINES
        lines[_LINES:] = [f"  {units.counted(left, 'line')} left out: --collapsed has all stacks"]
    return lines


def _branches(root: Branch, whole: float, width: int) -> Iterator[str]:
    """Yields a line for each branch below `root`, callers before their callees.

    Small branches are left out. A function's only callee is not indented further.
    """
    indents = {0: 0}
    """By depth: the indent of the callees of the last function of this depth."""
    for one, depth in _large(root, whole):
        indent = indents[depth - 1]
        part = percent(one.sums.allocated.bytes / whole)
        head = f"  {part:>7}  {units.size(round(one.sums.allocated.bytes)):>9}  {'  ' * indent}"
        yield head + name(one.frame, max(8, width - len(head)))
        indents[depth] = min(indent + (len(one.callees) != 1), 20)


def branches_table(found: Sequence[Stack]) -> Table:
    """The tree of callers as a table, without its small branches. A function follows its caller."""
    root = tree(found)
    whole = root.sums.allocated.bytes
    rows = tuple(
        (
            Cell(name(one.frame, _NAME_MAX)),
            Cell(str(depth)),
            Cell(percent(one.sums.allocated.bytes / whole)),
            Cell(units.size(round(one.sums.allocated.bytes))),
            Cell(units.count(round(one.sums.allocated.blocks))),
        )
        for one, depth in _large(root, whole)
    )
    return Table("", ("function", "depth", "share", "bytes", "blocks"), rows[:_LINES])


def _large(root: Branch, whole: float) -> Iterator[tuple[Branch, int]]:
    """Yields the branches below `root` that are not small, each with its depth in the tree.

    A caller comes before its callees. With inlined functions, a stack can be deeper than Python's
    limit of recursion.
    """
    left = [(one, 1) for one in reversed(root.ordered)]
    while left:
        one, depth = left.pop()
        if whole and one.sums.allocated.bytes >= _SMALLEST * whole:
            yield one, depth
            left += [(callee, depth + 1) for callee in reversed(one.ordered)]


def callers_notes(files: Sequence[StacksFile], found: Sequence[Stack]) -> list[str]:
    """The sentences below the table: first the warnings, which begin with ▲."""
    problems = dict.fromkeys(file.problem for file in files if file.problem)
    notes = [f"▲ No call stacks: {problem}." for problem in problems]
    samples = sum(file.samples for file in files)
    unwatched = sum(file.unwatched for file in files)
    no_room = sum(file.without_room for file in files)
    unread = sum(file.unread for file in files)
    if unwatched:
        blocks = units.counted(unwatched, "recorded block")
        notes.append(
            f"▲ The table of live blocks was full: {blocks} {_is(unwatched)} missing at the peak, "
            "at the end and among the temporary ones."
        )
    if no_room:
        stacks = units.counted(no_room, "allocation")
        notes.append(
            f"▲ There was no room for further stacks: {stacks} {_is(no_room)} in the row "
            "(no room). Use --stacks-every with more bytes. That does not help a process that has "
            "changed its user or its root folder, because its file of stacks cannot grow any more."
        )
    if unread:
        stacks = units.counted(unread, "recorded allocation")
        notes.append(f"▲ The stack of {stacks} could not be read: see the row (unknown).")
    if any(len(file.paths) >= OBJECTS_MOST for file in files):
        notes.append(
            f"▲ A process loaded {units.count(OBJECTS_MOST)} files or more: functions of all "
            "further ones are in the row (generated code)."
        )
    if not samples:
        return notes
    if all(file.way == "exact" for file in files):
        notes.append("The stacks of all allocations were recorded.")
    else:
        first, last = (
            units.size(pick(getattr(file, key) for file in files))
            for pick, key in ((min, "every_first"), (max, "every"))
        )
        every = first if first == last else f"{first} to {last}"
        notes.append(
            f"The stacks of {units.counted(samples, 'allocation')} were recorded, one for {every} "
            "on average. ± is half of the interval that holds the true value in 95 of 100 cases. "
            "Where too few were recorded, ≤ is the upper end of this interval."
        )
    notes.append(
        f"Temporary blocks were freed by their thread within its next {TEMPORARY} allocations. "
        "Blocks at the end were not freed; Cairn does not claim that they are unreachable."
    )
    if any(stack.frames[0].function == "(further callers)" for stack in found):
        notes.append(f"Of deeper stacks, the innermost {FRAMES_MOST} functions were recorded.")
    return notes


def unrecorded_note(processes: Sequence[Process], files: Sequence[StacksFile]) -> str:
    """A warning about the processes whose stacks were not recorded, or only a part of them.

    It is empty if there are none, or if no process recorded any stacks.
    """
    if not files:
        return ""
    by_image = {(file.pid, file.begin_ns): file for file in files}
    found = [one for one in processes if _is_partial(one, by_image.get((one.pid, one.begin_ns)))]
    if not found:
        return ""
    named = ", ".join(
        f"{printable(os.path.basename(one.program))} ({one.pid})" for one in found[:_NAMED]
    )
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    count = units.counted(len(found), "process", "processes")
    return (
        f"▲ The stacks of {count} were not recorded, or only a part of them: {named}{more}. "
        "Stacks are lost if a process changes its user or its root folder, installs a filter of "
        "system calls, or finds no room for its file."
    )


def _is_partial(process: Process, file: StacksFile | None) -> bool:
    """Whether the process requested more bytes than its stacks can stand for."""
    if file is None:
        return process.asked_bytes != 0
    if file.problem or process.asked_bytes is None:
        return False
    sums = file.sites["allocated"]
    size, variance = float(sums["bytes"].sum()), float(sums["bytes_variance"].sum())
    heaviest = float(file.every) if file.way == "sampled" else 0.0
    _, most = interval(size, variance, heaviest, _FAR_Z)
    return process.asked_bytes > _OTHER * most + _OTHER_BYTES


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
