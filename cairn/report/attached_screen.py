"""The screen of 'cairn profile --live --pid' as lines for a terminal. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn import units
from cairn.inspect.attached import AttachedShare
from cairn.inspect.moment import ProcessMoment
from cairn.report import sparkline
from cairn.report.formatting import printable, shortened
from cairn.report.live_screen import fitted
from cairn.report.profile_numbers import about, percent

LEAVE = "Ctrl-C ends the watch and not the process, and the report follows."
_NAME = 40
_FIXED = 11
"""The number of lines without those for functions and callers."""


def lines(
    found: AttachedShare | None, moments: Sequence[ProcessMoment], title: str, width: int,
    height: int,
) -> list[str]:  # fmt: skip
    """Returns at most `height` lines, each of `width` columns or less.

    found: what is known so far; None if nothing is. moments: one for each second, the oldest first.
    """
    room = max(1, height - 1)
    body = [title, *_body(found, moments, width, room)][:room]
    return [fitted(one, width) for one in (*body, LEAVE)][:height]


def _body(
    found: AttachedShare | None, moments: Sequence[ProcessMoment], width: int, room: int
) -> Iterator[str]:
    if found is None or len(moments) < 2:
        yield ""
        yield "Nothing is known yet: the first second is not over."
        return
    before, now = moments[-2], moments[-1]
    seconds = max((now.at_ns - before.at_ns) / 1e9, 1e-9)
    busy = (now.cpu_ns - before.cpu_ns) / 1e9 / seconds
    yield (
        f"watched for {units.duration(found.seconds)} · {units.counted(now.threads, 'thread')} · "
        f"{units.percent(busy, signed=False)} of one CPU now"
    )
    if found.share is not None:
        yield f"The allocator takes {about(found.share)} of CPU time."
        yield (
            f"own code {percent(found.own)} · system calls {percent(found.calls)} · page faults "
            f"{percent(found.faults)} · {units.counted(found.samples, 'clock sample')}"
        )
    else:
        yield found.why_not
        yield ""
    yield ""
    largest = max(one.resident_bytes for one in moments)
    yield f"resident  {units.size(now.resident_bytes)} now, at most {units.size(largest)}"
    first = moments[0].at_ns
    course = [(one.at_ns - first, one.resident_bytes) for one in moments]
    yield f"  {sparkline.bars(course, max(1, now.at_ns - first), width - 4, max(1, largest))}"
    rate = (now.faults - before.faults) / seconds
    yield f"page faults  {units.count(round(rate))} a second now"
    left = room - _FIXED
    most = max(1, left // 2 - 1)
    if found.functions and left > 1:
        yield ""
        yield "functions of the allocator, by CPU time"
        for one in found.functions[:most]:
            yield f"  {percent(one.share.value):>8}  {shortened(printable(one.name), _NAME)}"
    if found.callers and left > 3:
        yield ""
        yield "functions that the allocator works for, by its time"
        for caller in found.callers[:most]:
            name = shortened(printable(caller.name or "not known"), _NAME)
            yield f"  {percent(caller.share.value):>8}  {name}"
