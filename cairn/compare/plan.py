"""The plan of a run: its trials and their order, which a seed decides. All functions are pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from cairn.model import Run, Sample, Settings, Trial
from cairn.own_settings import OwnSettings

WARM_UP = 0
"""The number of the warm-up round. Its trials do not count."""

Only = Mapping[str, tuple[int, ...]]
"""By contender: the indexes of the workloads on which it runs. Absent contenders run on all."""
_ALL: Only = {}


_SHARED = tuple(
    name for name in OwnSettings.__struct_fields__ if name in Settings.__struct_fields__
)


def settings_of(settings: Settings, workload: int) -> Settings:
    """The settings of the run, in which the workload's own settings replace the general ones."""
    own = settings.workloads[workload].own
    different = {name: value for name in _SHARED if (value := getattr(own, name)) is not None}
    return replace(settings, **different) if different else settings


def runs_on(only: Only, contender: str, workload: int) -> bool:
    """Whether the contender runs on the workload."""
    return contender not in only or workload in only[contender]


def taking_part(run: Run, number: int) -> list[str]:
    """The names of the contenders that run in this round.

    If the probe runs in some rounds only, contenders with the probe take no part in the other
    rounds.
    """
    rounds = run.settings.profiled_rounds
    rest = run.settings.why and rounds is not None and not WARM_UP < number <= rounds
    return [one.name for one in run.contenders if not (rest and one.probed)]


def one_round(
    number: int,
    contenders: Sequence[str],
    seed: int,
    workloads: Sequence[int] = (0,),
    only: Only = _ALL,
) -> tuple[Trial, ...]:
    """The trials of one round: every contender once on each of its workloads, in random order.

    The order of the workloads is random, too. All contenders run on one workload before the next
    begins, so that compared runs are close together in time.

    Random order spreads the effects of a machine that warms up or throttles over all contenders,
    instead of favouring the first. With all runs of A before all runs of B, drift makes false
    winners (tests/python/test_stopping_coverage.py).

    The order depends on `seed` and `number` alone, so that a resumed run continues the same plan.
    """
    trials: list[Trial] = []
    for workload in random.Random(f"{seed}/{number}").sample(list(workloads), len(workloads)):
        names = [name for name in contenders if runs_on(only, name, workload)]
        random.Random(f"{seed}/{number}/{workload}").shuffle(names)
        trials += [
            Trial(number, len(trials) + place, name, workload) for place, name in enumerate(names)
        ]
    return tuple(trials)


def round_of(run: Run, number: int) -> tuple[Trial, ...]:
    """The trials of one round of this run.

    The rounds of 'cairn soak' are few and long. Their order alternates (A B, then B A), so that a
    machine that slowly changes affects all contenders alike even in two rounds.
    """
    names = taking_part(run, number)
    workloads = range(len(run.settings.workloads))
    if run.settings.soak_s is not None:
        names = names if number % 2 else names[::-1]
        return tuple(Trial(number, place, name, 0) for place, name in enumerate(names))
    return one_round(number, names, run.seed, workloads, run.settings.only)


def complete(samples: Iterable[Sample], names: Iterable[str]) -> int:
    """The number of rounds in which each of these contenders has a trial that counts.

    There must be at least one name.
    """
    rounds: dict[str, set[int]] = {name: set() for name in names}
    for sample in samples:
        if sample.counts and sample.trial.contender in rounds:
            rounds[sample.trial.contender].add(sample.trial.round)
    return len(set.intersection(*rounds.values()))


def warm_up(
    contenders: Sequence[str], rounds: int, workloads: Sequence[int] = (0,), only: Only = _ALL
) -> Iterator[Trial]:
    """The trials of the warm-up: every contender `rounds` times on each of its workloads.

    These trials fill caches and reveal failures early. None of them counts, so their order need not
    be random.
    """
    cells = [
        (name, workload)
        for workload in workloads
        for name in contenders
        if runs_on(only, name, workload)
    ] * rounds
    for position, (name, workload) in enumerate(cells):
        yield Trial(WARM_UP, position, name, workload)
