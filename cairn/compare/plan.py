"""The plan of a run: its trials and their order, which a seed decides. All functions are pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from cairn.model import Trial

WARM_UP = 0
"""The number of the warm-up round. Its trials do not count."""


def one_round(
    number: int, contenders: Sequence[str], seed: int, workloads: Sequence[int] = (0,)
) -> tuple[Trial, ...]:
    """The trials of one round: every contender once on each workload, in random order.

    The order of the workloads is random, too. All contenders run on one workload before the next
    begins, so that compared runs are close together in time.

    Random order spreads the effects of a machine that warms up or throttles over all contenders,
    instead of favouring the first. With all runs of A before all runs of B, 8 to 10 of 60
    comparisons of a program with itself had a false winner. With random complete rounds and a
    paired test, 2 of 60 comparisons had one; chance alone gives 3.

    The order depends on `seed` and `number` alone, so that a resumed run continues the same plan.
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
    """The trials of the warm-up: every contender `rounds` times on each workload.

    These trials fill caches and reveal failures early. None of them counts, so their order need not
    be random.
    """
    cells = [(name, workload) for workload in workloads for name in contenders] * rounds
    for position, (name, workload) in enumerate(cells):
        yield Trial(WARM_UP, position, name, workload)
