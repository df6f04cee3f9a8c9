"""Which trials, in which order, from which seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from cairn.model import Trial

WARM_UP = 0
"""Number of the round that does not count."""


def one_round(
    number: int, contenders: Sequence[str], seed: int, workloads: Sequence[int] = (0,)
) -> tuple[Trial, ...]:
    """Every contender once on each workload, in an order that the seed and the round's number alone decide.

    Workloads come in random order too, but each at a stretch: what is compared is run close together in time.

    A machine that warms up or throttles then touches all contenders alike, instead of favouring whichever came first:
    with all runs of A before all runs of B, 8 to 10 of 60 comparisons of a program with itself had a false winner;
    with random complete rounds and a paired test 2, where chance alone gives 3. An order that depends on nothing else
    is what lets an interrupted run go on as if nothing had happened.
    """
    trials: list[Trial] = []
    for workload in random.Random(f"{seed}/{number}").sample(list(workloads), len(workloads)):
        names = list(contenders)
        random.Random(f"{seed}/{number}/{workload}").shuffle(names)
        trials += [
            Trial(number, len(trials) + place, name, workload) for place, name in enumerate(names)
        ]
    return tuple(trials)


def warm_up(
    contenders: Sequence[str], rounds: int, workloads: Sequence[int] = (0,)
) -> Iterator[Trial]:
    """Runs that fill caches and meet every failure early; none of them counts, so they keep the order given."""
    cells = [(name, workload) for workload in workloads for name in contenders] * rounds
    for position, (name, workload) in enumerate(cells):
        yield Trial(WARM_UP, position, name, workload)
