"""Which trials, in which order, from which seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from cairn.model import Trial

WARM_UP = 0
"""Number of the block that does not count."""


def block(number: int, contenders: Sequence[str], seed: int) -> tuple[Trial, ...]:
    """Every contender once, in an order that the seed and the block's number alone decide.

    A machine that warms up or throttles then touches all contenders alike, instead of favouring whichever came first:
    with all runs of A before all runs of B, 8 to 10 of 60 comparisons of a program with itself had a false winner;
    with random complete blocks and a paired test 2, where chance alone gives 3. An order that depends on nothing else
    is what lets an interrupted run go on as if nothing had happened.
    """
    order = list(contenders)
    random.Random(f"{seed}/{number}").shuffle(order)
    return tuple(Trial(block=number, position=position, contender=name) for position, name in enumerate(order))


def warm_up(contenders: Sequence[str], rounds: int) -> Iterator[Trial]:
    """Runs that fill caches and meet every failure early; none of them counts, so they keep the order given."""
    for position, name in enumerate(list(contenders) * rounds):
        yield Trial(block=WARM_UP, position=position, contender=name)
