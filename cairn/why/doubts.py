"""Marks the gaps that the verdict does not show, although the means of the same runs differ.

The verdict compares the contenders round by round, by ranks, and its intervals account for the
number of contenders. The intervals of a gap are those of means, each by itself. So the verdict can
leave a difference open that the means seem to show. All functions are pure.
"""

from __future__ import annotations

from msgspec.structs import replace

from cairn.model import CPU_TIME, Comparison
from cairn.verdict import Measure
from cairn.why.gap import Why
from cairn.why.parts import Gap


def marked(why: Why, comparison: Comparison) -> Why:
    """Returns `why` with its doubted gaps marked.

    comparison: that of the same workload, with the baseline of `why`.
    """
    # With a load, the verdict's CPU time is that of a request, which is another quantity.
    of_run = comparison.cpu_time.key == CPU_TIME.key
    return replace(
        why,
        time=_marked(why.time, comparison, why.contender, Measure.CPU_TIME) if of_run else why.time,
        memory=_marked(why.memory, comparison, why.contender, Measure.MEMORY),
    )


def _marked(gap: Gap | None, comparison: Comparison, name: str, measure: Measure) -> Gap | None:
    judged = [one for one in comparison.judged.judgements if one.contender == name]
    if gap is None or not gap.whole.shown or not judged:
        return gap
    effect = judged[0].effect(measure)
    if effect.low is None or effect.high is None:
        return gap
    agrees = effect.low > 1 if (gap.whole.change or 0.0) > 0 else effect.high < 1
    return gap if agrees else replace(gap, doubted=True)
