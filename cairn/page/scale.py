"""The axes of drawings: their ends, the place of a number on them, and their labels. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from cairn.page.parts import Axis, IntervalLine, Tick
from cairn.report import plane

_EDGE = 4.0
"""The part of the width between an end of the axis and the outermost number, in percent."""
_TICKS = 5
"""The approximate number of labels on an axis."""
_LABEL = 9.0
"""The least distance between two labels, in percent of the width."""
_WIDEST = 12.0
"""An axis is logarithmic if its largest number is at least this multiple of its smallest."""
_STRAY = 4.0
"""Runs that lie far from the others are drawn beyond the end of an axis. This happens if the axis
would otherwise be longer than this multiple of the range of the others."""
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZES = (
    (float(1 << 40), "TiB"), (float(1 << 30), "GiB"), (float(1 << 20), "MiB"),
    (float(1 << 10), "KiB"), (1.0, "B"),
)  # fmt: skip
_RATIOS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5,
    1.7, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0,
)  # fmt: skip


class Scale(Struct, frozen=True):
    """An axis from `low` to `high`."""

    low: float
    high: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """Returns the place of a number in percent. A number beyond an end lies at this end."""
        inside = min(self.high, max(self.low, value))
        low, high = self._of(self.low), self._of(self.high)
        share = (self._of(inside) - low) / (high - low) if high > low else 0.5
        return round(_EDGE + (100 - 2 * _EDGE) * share, 2)

    def is_beyond(self, value: float) -> bool:
        """Whether the axis does not reach the number."""
        return not self.low <= value <= self.high

    def reach(self, low: float, high: float) -> IntervalLine:
        """Returns the line of an interval."""
        return IntervalLine(self.at(low), self.at(high), low, high)

    def _of(self, value: float) -> float:
        return math.log(value) if self.is_log else value


def of_numbers(values: Sequence[float], needed: Sequence[float] = ()) -> Scale:
    """Returns the scale of numbers that need not begin at 0.

    needed: numbers that must lie on the axis. Some of `values` may lie beyond its ends.
    """
    low, high = _ends(values, needed)
    if low > 0 and high / low > _WIDEST:
        return Scale(low, high, True)
    if high <= low:
        low, high = low - abs(low) * 0.01 - 1e-9, high + abs(high) * 0.01 + 1e-9
    return Scale(low, high)


def of_ratios(values: Sequence[float], needed: Sequence[float]) -> Scale:
    """Returns the logarithmic scale of ratios, with 1 on it."""
    low, high = _ends(values, [*needed, 1.0])
    least = 0.01
    if high / low < 1 + 2 * least:
        low, high = min(low, 1 - least), max(high, 1 + least)
    return Scale(low, high, True)


def from_zero(values: Iterable[float]) -> Scale:
    """Returns the scale of numbers and 0."""
    known = [0.0, *values]
    low, high = min(known), max(known)
    return Scale(low, high if high > low else low + 1.0)


def _ends(values: Sequence[float], needed: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of an axis, without the few of `values` that lie far from the others."""
    known = sorted(values)
    if not known:
        return min(needed), max(needed)
    cut = len(known) // 20
    inner = [*known[cut : len(known) - cut], *needed]
    low, high = min(inner), max(inner)
    room = (_STRAY - 1) / 2 * (high - low)
    least, most = min(low, known[0]), max(high, known[-1])
    return least if least >= low - room else low, most if most <= high + room else high


def axis(scale: Scale, title: str, unit: str) -> Axis:
    """Returns the axis of numbers with a unit: "ns", "bytes", "share", or another."""
    units_of = {"ns": _TIMES, "bytes": _SIZES}.get(unit)
    if unit == "share":
        return Axis(_ticks(scale, 0.01, lambda n: f"{n:g} %"), title)
    if unit == "percent":
        return Axis(_ticks(scale, 1.0, lambda n: f"{n:g} %"), title)
    if units_of is None:
        return Axis(_ticks(scale, 1.0, lambda n: f"{n:,.10g}"), title)
    largest = max(abs(scale.low), abs(scale.high))
    divisor, name = next((one for one in units_of if largest >= one[0]), units_of[-1])
    if scale.is_log:
        return Axis(_log_ticks(scale, units_of), title)
    return Axis(_ticks(scale, divisor, lambda n: f"{n:g} {name}".replace("-", "−")), title)


def ratio_axis(scale: Scale, title: str) -> Axis:
    """Returns the axis of ratios, with labels such as "−20 %" and "× 3"."""
    if scale.high / scale.low > 1.6:
        inside = [one for one in _RATIOS if scale.low <= one <= scale.high]
        inside = _apart(scale, inside)
    else:
        step = _step(scale.high - scale.low)
        first = math.ceil((scale.low - 1) / step)
        last = math.floor((scale.high - 1) / step)
        inside = [1 + step * number for number in range(first, last + 1)]
    middle = min(range(len(inside)), key=lambda place: abs(inside[place] - 1))
    ticks = tuple(
        Tick(scale.at(one), plane.label(one), (place - middle) % 2 == 1)
        for place, one in enumerate(inside)
    )
    return Axis(ticks, title, scale.at(1.0))


def _apart(scale: Scale, values: Sequence[float]) -> list[float]:
    """Returns values whose labels do not touch each other: 1, and then others outwards from 1."""
    kept: list[float] = []
    for one in sorted(values, key=lambda value: abs(math.log(value))):
        if all(abs(scale.at(one) - scale.at(other)) >= _LABEL for other in kept):
            kept.append(one)
    return sorted(kept)


def _ticks(scale: Scale, divisor: float, text: Callable[[float], str]) -> tuple[Tick, ...]:
    low, high = scale.low / divisor, scale.high / divisor
    step = _step(high - low)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return tuple(
        Tick(scale.at(number * step * divisor), text(round(number * step, 12)), number % 2 == 1)
        for number in numbers
    )


def _step(span: float) -> float:
    """Returns 1, 2 or 5 times a power of ten, which divides the span into about _TICKS steps."""
    raw = span / _TICKS if span > 0 else 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= raw * 0.999)


def _log_ticks(scale: Scale, units_of: Sequence[tuple[float, str]]) -> tuple[Tick, ...]:
    found = []
    for divisor, name in reversed(units_of):
        for number in (1, 2, 5, 10, 20, 50, 100, 200, 500):
            value = number * divisor
            if scale.low <= value <= scale.high:
                found.append(Tick(scale.at(value), f"{number} {name}", number not in (1, 10, 100)))
    while len(found) > _TICKS + 2:
        found = found[::2]
    return tuple(found)
