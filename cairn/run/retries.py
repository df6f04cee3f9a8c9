"""Says how often the baseline runs again after a contender failed. All functions are pure.

If one of these runs fails too, the program itself fails now and then, and no contender is to blame.
If they are interrupted, the resumed run begins with those that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from cairn.compare import plan
from cairn.model import Sample, Trial

_SHORT_NS = 1_000_000_000
_SHORT_TRIES = 3
"""The number of runs for a program that ends within _SHORT_NS.

If the program itself fails in half of its runs, all three succeed in only one of eight cases.
"""


class UncheckedFailure(Struct, frozen=True):
    """A failure after which the run was interrupted, before the baseline had run often enough."""

    sample: Sample
    tries: int
    """The number of runs of the baseline that are left."""


def again(workload: int, baseline: str) -> Trial:
    """A further run of the baseline. It does not count."""
    return Trial(plan.WARM_UP, 0, baseline, workload)


def number(samples: Sequence[Sample], workload: int, baseline: str) -> int:
    """How often the baseline runs again, by the time of its last run among `samples`.

    Only stored times decide, so that a resumed run has the same number.
    """
    times = (
        sample.wall_ns * sample.repeats
        for sample in reversed(samples)
        if (sample.trial.workload, sample.trial.contender) == (workload, baseline)
    )
    return _SHORT_TRIES if next(times, 0) < _SHORT_NS else 1


def unchecked(
    samples: Sequence[Sample], baseline: str, may_be_the_program: Callable[[Sample], bool]
) -> UncheckedFailure | None:
    """The failure whose check an interruption has cut short; None if there is none.

    samples: all trials so far. may_be_the_program: whether a failure needs a check.
    """
    tried = 0
    for place in range(len(samples) - 1, -1, -1):
        sample = samples[place]
        workload = sample.trial.workload
        if workload != samples[-1].trial.workload:
            return None
        if sample.failure is None and sample.trial == again(workload, baseline):
            tried += 1
            continue
        if sample.failure is None or not may_be_the_program(sample):
            return None
        left = number(samples[:place], workload, baseline) - tried
        return UncheckedFailure(sample, left) if left > 0 else None
    return None
