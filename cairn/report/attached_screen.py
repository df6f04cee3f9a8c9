"""The screen of 'cairn profile --live --pid' as lines for a terminal. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn import units
from cairn.inspect.attached import AttachedShare
from cairn.inspect.moment import ProcessMoment
from cairn.profile.cpu_share import SAMPLES_LEAST
from cairn.report import sparkline
from cairn.report.attached import caveats
from cairn.report.formatting import NOT_MEASURED, printable, shortened
from cairn.report.live_screen import fitted
from cairn.report.profile_numbers import about, percent

LEAVE = "Ctrl-C ends only the watching: the process goes on. The report follows."
_NAME = 40
_FIXED = 13
"""The lines that leave no room for rows: 9, and a blank line and a head for each of two tables."""


def lines(
    found: AttachedShare, moments: Sequence[ProcessMoment], title: str, width: int, height: int,
) -> list[str]:  # fmt: skip
    """Returns at most `height` lines, each of `width` columns or less.

    found: the result so far. moments: two or more, about one for each second, the oldest first.
    """
    room = max(1, height - 1)
    body = [title, *_body(found, moments, width, room)][:room]
    return [fitted(one, width) for one in (*body, LEAVE)][:height]


def _body(
    found: AttachedShare, moments: Sequence[ProcessMoment], width: int, room: int
) -> Iterator[str]:
    before, now = moments[-2], moments[-1]
    seconds = max((now.at_ns - before.at_ns) / 1e9, 1e-9)
    busy = (now.cpu_ns - before.cpu_ns) / 1e9 / seconds
    yield (
        f"watched for {units.duration(found.seconds)} · {units.counted(now.threads, 'thread')} · "
        f"{units.percent(busy, signed=False)} of one CPU now"
    )
    if found.share is not None:
        yield f"The allocator takes {about(found.share)} of CPU time."
        yield _parts(found)
    else:
        yield f"The share is not known yet: {found.samples} of {SAMPLES_LEAST} clock samples."
        yield ""
    yield next((f"▲ {one}" for one in caveats(found)), "")
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
        yield "functions that call the allocator, by the time that it takes for them"
        for caller in found.callers[:most]:
            name = shortened(printable(caller.name or "not known"), _NAME)
            yield f"  {percent(caller.share.value):>8}  {name}"


def _parts(found: AttachedShare) -> str:
    """Returns the parts of the share."""
    if found.scope == "threads in user mode":
        parts = [f"own code {percent(found.own)}", f"in the kernel: {NOT_MEASURED}"]
    else:
        parts = [
            f"own code {percent(found.own)}",
            f"system calls {percent(found.calls)}",
            f"page faults {percent(found.faults)}",
        ]
        if found.interrupts is not None:
            parts.append(f"interrupts {percent(found.interrupts)}")
    return " · ".join(parts)
