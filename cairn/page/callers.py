"""The section on the functions that allocate: their table, and a flame graph of their callers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn import units
from cairn.page.parts import FlameBox, FlameGraph, Item, Sentences, Sheet, Topic
from cairn.profile.call_stacks import StacksFile
from cairn.profile.callers import Branch, Stack, tree
from cairn.profile.demangle import plain, without_arguments
from cairn.report.callers_table import branches_table, callers_notes, callers_table
from cairn.report.formatting import printable, shortened
from cairn.report.pinned_table import pinned_answer, pinned_notes, pinned_table
from cairn.report.profile_numbers import percent

_BOXES_MOST = 2000
"""The most boxes that are drawn; these are the widest ones."""
_DEPTH_MOST = 128
_NAME_MOST, _FULL_MOST = 120, 300
"""The most characters of a name in its box, and of the whole name with its arguments."""
_COLORS = 6


def topic(
    files: Sequence[StacksFile], found: Sequence[Stack], unknown: Sequence[str] = ()
) -> Topic | None:
    """Returns the section; None if no call stacks were recorded.

    files: the recorded files. found: the stacks that they have. unknown: sentences that say why
    names or source lines are missing.
    """
    items: list[Item] = []
    if found:
        items.append(Sheet(callers_table(found), "who allocates"))
        graph = flame_graph(found)
        if graph is not None:
            items.append(graph)
        if answer := pinned_answer(files, found):
            items.append(Sentences((printable(answer),)))
            items.append(Sheet(pinned_table(files, found), "nearly empty memory"))
    noted = [*unknown, *callers_notes(files, found), *(pinned_notes(files) if found else ())]
    told = list(map(printable, noted))
    warnings = tuple(one for one in told if one.startswith("▲"))
    if warnings:
        items.append(Sentences(warnings, "notes"))
    methods = tuple(one for one in told if one not in warnings)
    if methods:
        items.append(Sentences(methods))
    return Topic("callers", "Who allocates", tuple(items)) if items else None


def flame_graph(found: Sequence[Stack]) -> FlameGraph | None:
    """Returns the picture of the allocated bytes; None if there are none."""
    root = tree(found)
    whole = root.sums.allocated.bytes
    if not whole:
        return None
    every = list(_placed(root, whole, 0.0, 0))
    # A caller is at least as wide as its callees, so it is drawn if one of them is.
    widest = sorted(every, key=lambda one: (-one[3], one[2], one[1]))[:_BOXES_MOST]
    boxes = sorted(widest, key=lambda one: (one[2], one[1]))
    left = len(every) - len(boxes)
    rest = ""
    if left:
        verb = "is" if left == 1 else "are"
        rest = f" {units.counted(left, 'narrower box', 'narrower boxes')} {verb} left out."
    return FlameGraph(
        title="Callers",
        says="Each function lies below its caller, and its width is its share of the allocated "
        f"bytes: {units.size(round(whole))} in all. Choose a box to make it as wide as the picture."
        f"{rest}",
        boxes=tuple(_box(*one) for one in boxes),
        depth=max(one[2] for one in boxes) + 1,
        table=branches_table(found),
    )


def _placed(
    branch: Branch, whole: float, left: float, depth: int
) -> Iterator[tuple[Branch, float, int, float]]:
    """Yields branch, left end, depth and width of each box."""
    if depth == _DEPTH_MOST:
        return
    for one in branch.ordered:
        width = one.sums.allocated.bytes / whole
        if width > 0:
            yield one, left, depth, width
            yield from _placed(one, whole, left, depth + 1)
        left += width


def _box(branch: Branch, left: float, depth: int, width: float) -> FlameBox:
    line = f" ({branch.frame.place})" if branch.frame.line else ""
    full, sums = branch.frame.function, branch.sums
    says = (
        f"{printable(shortened(full, _FULL_MOST) + line)}: {percent(width)}, "
        f"{units.size(round(sums.allocated.bytes))} in "
        f"{units.count(round(sums.allocated.blocks))} blocks; "
        f"{units.size(round(sums.peak.bytes))} at the peak, "
        f"{units.size(round(sums.live.bytes))} at the end"
    )
    name = printable(shortened(without_arguments(plain(full)), _NAME_MOST) + line)
    color = sum(full.encode("utf-8", "replace")) % _COLORS
    return FlameBox(left, width, depth, name, says, sums.allocated.bytes, color)
