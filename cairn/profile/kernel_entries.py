"""Finds how a thread entered the kernel, from the kernel's functions in its chain of calls.

A function that handles interrupts in the chain shows that an interrupt came. /proc/kallsyms has the
addresses of the kernel's functions. As a rule, only root may read them.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path


class Way(Enum):
    """How a thread entered the kernel."""

    INTERRUPT = 1
    """The thread was interrupted, perhaps while it was in a system call or a page fault."""
    OTHER = 2
    """The thread made a system call, or had a page fault or another exception."""


Range = tuple[int, int, Way]
"""A function of the kernel: its first address, the first address after it, and its way."""

_INTERRUPT = re.compile(
    r"(asm_)?(common_interrupt|spurious_interrupt|sysvec_\w+)|asm_exc_nmi|exc_nmi|fred_extint"
    r"|fred_sysvec_\w+"
)
_OTHER = re.compile(
    r"entry_SYS\w+|do_syscall_64|(asm_)?exc_(?!nmi$)\w+|ret_from_fork\w*|asm_fred_entrypoint_\w+"
)
_BEGINNINGS = tuple(
    f" {name}"
    for name in (
        "asm_", "common_interrupt", "do_syscall_64", "entry_SYS", "exc_", "fred_", "ret_from_fork",
        "spurious_interrupt", "sysvec_",
    )
)  # fmt: skip
"""The beginnings of the names above. The kernel has more than 100,000 symbols, and searching for
fixed strings takes a third of the time of matching each line."""
_SYMBOL = re.compile(r"^(?P<address>[0-9a-f]+) \S (?P<name>\S+)", re.MULTILINE)
_SYMBOLS = Path("/proc/kallsyms")


@functools.cache
def known(symbols: Path = _SYMBOLS) -> tuple[tuple[Range, ...], str]:
    """The kernel's functions that show a way into the kernel, sorted by address, and "".

    If they are not known, the result is () and the reason, as the end of a sentence.
    """
    try:
        text = symbols.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        return (), f"{symbols} cannot be read: {error.strerror}"
    found = tuple(sorted(_ranges(text), key=lambda one: one[0]))
    if found and found[-1][0] == 0:
        return (), "the kernel hides the addresses of its functions (kernel.kptr_restrict)"
    if not {way for _, _, way in found} >= set(Way):
        return (), f"the kernel's ways to handle interrupts are not in {symbols}"
    return found, ""


def _ranges(symbols: str) -> Iterable[Range]:
    """Yields the functions that show a way, from the text of /proc/kallsyms, sorted by address.

    A line has the address, the kind and the name of a symbol. A function ends where the next symbol
    with another address begins.
    """
    for at in (found.start() for one in _BEGINNINGS for found in re.finditer(one, symbols)):
        lines = _SYMBOL.finditer(symbols, symbols.rfind("\n", 0, at) + 1)
        first = next(lines, None)
        if first is None or not (way := _way_of(first["name"])):
            continue
        start = int(first["address"], 16)
        ends = (int(line["address"], 16) for line in lines)
        end = next((end for end in ends if end != start or not start), None)
        if end is not None:
            yield start, end, way


def _way_of(name: str) -> Way | None:
    """The way that a function of this name shows; None if it shows none."""
    if _INTERRUPT.fullmatch(name):
        return Way.INTERRUPT
    return Way.OTHER if _OTHER.fullmatch(name) else None


def way(chain: Iterable[int], at: Callable[[int], Way | None] | None = None) -> Way | None:
    """The way into the kernel that a chain of return addresses shows; None if it shows none.

    `at` gives the way that one address shows. By default, it looks in the running kernel.
    """
    found = {(at or _way_here)(address) for address in chain}
    if Way.INTERRUPT in found:
        return Way.INTERRUPT
    return Way.OTHER if Way.OTHER in found else None


def way_at(address: int, ranges: Sequence[Range]) -> Way | None:
    """The way of the function that contains this return address; None if none of `ranges` does.

    If a call is the last instruction of a function, its return address is the function's end.
    """
    index = bisect_right(ranges, address, key=lambda one: one[0]) - 1
    return ranges[index][2] if index >= 0 and address <= ranges[index][1] else None


@functools.lru_cache(1 << 16)
def _way_here(address: int) -> Way | None:
    return way_at(address, known()[0])
