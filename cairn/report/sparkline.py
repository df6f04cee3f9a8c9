"""Live and resident memory over time, each as one line of characters, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from cairn import units
from cairn.profile.tally import Moment, Profile

_BARS = "▁▂▃▄▅▆▇█"
_WIDEST = 60
_MOMENTS_LEAST = 4
_NAMES = ("live", "resident")


def drawn(profile: Profile, width: int) -> list[str]:
    """Returns a title and a line of bars each for live and resident memory.

    A line has at most `width` columns. Both lines of bars have the same scale, from 0 to the larger
    of their maxima. With too few moments, the result is empty.
    """
    moments = profile.moments
    by_name = {
        "live": [(one.ns, one.live_bytes) for one in moments],
        "resident": [
            (one.ns, one.resident_bytes) for one in moments if one.resident_bytes is not None
        ],
    }
    known = {name: of for name, of in by_name.items() if len(of) >= _MOMENTS_LEAST}
    most = max((value for of in known.values() for _, value in of), default=0)
    if not most or "live" not in known:
        return []
    margin = 2 + max(map(len, _NAMES)) + 2
    columns = min(_WIDEST, width - margin)
    end = max(moments, key=_time).ns
    lines = [f"memory over {units.time(end)}, from 0 to {units.size(most)}"]
    for name, of in known.items():
        lines.append(f"  {name:<{margin - 4}}  {bars(of, end, columns, most)}")
    return lines


def bars(of: Sequence[tuple[int, int]], end: int, columns: int, most: int) -> str:
    """Returns a line of `columns` bars, which show numbers over time.

    of: (time, number) for each number.
    end: the time at the right end of the line; the left end is 0.
    most: the number that a bar of the full height stands for.
    """
    return "".join(_bar(value, most) for value in _columns(of, end, columns))


def _time(moment: Moment) -> int:
    return moment.ns


def _columns(of: Sequence[tuple[int, int]], end: int, count: int) -> list[int | None]:
    """Divides the time until `end` into `count` equal parts, and returns the maximum in each part.

    A part without a number has the last number before it, or None if there is none before it.
    """
    found: list[int | None] = []
    last: int | None = None
    place = 0
    for column in range(count):
        until = end * (column + 1) / count
        values = []
        while place < len(of) and (of[place][0] <= until or column == count - 1):
            values.append(of[place][1])
            place += 1
        if values:
            last = values[-1]
        found.append(max(values) if values else last)
    return found


def _bar(value: int | None, most: int) -> str:
    if value is None:
        return " "
    return _BARS[min(len(_BARS) - 1, round(value / most * (len(_BARS) - 1)))]
