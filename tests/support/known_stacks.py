"""The formulas of the programs whose call stacks are known: known_stacks.c and known_stacks.cpp."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cairn.profile.callers import Frame, Stack, Sums

FUNCTIONS = 32


def truth(number: int, rounds: int) -> dict[str, int]:
    """The formula: the true sums of the function known_NUMBER, by attribute name of Sums."""
    blocks, size = (number % 4 + 1) * rounds, 24 * (number + 1)
    kept = (number % 4 + 1) * -(-rounds // 4)
    return {
        "allocated.blocks": blocks,
        "allocated.bytes": blocks * size,
        "live.blocks": kept,
        "live.bytes": kept * size,
        **({"temporary.blocks": blocks - kept} if number % 2 == 0 else {}),
    }


def truth_of_cxx(rounds: int) -> dict[str, tuple[int, int]]:
    """The blocks and bytes of each function of known_stacks.cpp, including what it calls."""
    each = {
        "void grow<16>()": (1, 16),
        "void grow<48>()": (1, 48),
        "void grow<400>()": (1, 400),
        "Parser::node(int)": (3, 192),
        "(anonymous namespace)::table()": (1, 400),
        "text()": (1, 100),
    }
    return {name: (blocks * rounds, size * rounds) for name, (blocks, size) in each.items()}


def value(sums: Sums, name: str) -> tuple[float, float, float]:
    """A sum and the ends of its interval."""
    part, _, unit = name.partition(".")
    found = getattr(sums, part)
    return (getattr(found, unit), *getattr(found, f"{unit}_interval"))


def within(stacks: Iterable[Stack], function: str) -> Sums:
    """The sums of all stacks with a function of this name."""
    sums = Sums()
    for stack in stacks:
        if any(frame.function == function for frame in stack.frames):
            sums.add(stack.sums)
    return sums


def misses(stacks: dict[Frame, Sums], rounds: int) -> Iterator[tuple[str, bool]]:
    """Yields the name of each known sum, and whether its interval misses the truth.

    A function without any sample is not in the report.
    """
    by_name = {frame.function: sums for frame, sums in stacks.items()}
    for number in range(FUNCTIONS):
        sums = by_name.get(f"known_{number}")
        for name, true in truth(number, rounds).items():
            if sums is None:
                continue
            _, low, high = value(sums, name)
            yield name, not low <= true <= high
