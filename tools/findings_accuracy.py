"""Compares the effect that each finding claims with the gain of changing the allocator.

    .venv/bin/python tools/findings_accuracy.py RUN

RUN is the folder of a run with --why and several allocators, such as 'cairn bench suite --why'. A
finding about one allocator claims how much its cause costs. The gain is the share that the best of
the other allocators saves. It is a share of CPU time or of peak memory, or of wall time if the
finding is about the time of threads. The gain includes everything that the other allocator does
better, and not only the cause of the finding.

Prints one line for each finding. The line ends in ✘ if the gain is not within a factor of two of
the effect's range. It ends in ≈ if the gain is within a factor of two of the range, but not of the
claimed effect. Then prints how many gains are within a factor of two of the claimed effect, and how
many are within a factor of two of the effect's range.
Findings from the comparison of two allocators are left out: each explains a part of a measured
difference, and the tests with the flawed allocators in cairn/bench/ill check these findings.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cairn
from cairn.model import Interval, Run, Sample
from cairn.run import store
from cairn.why.gap import Why, explain

FACTOR = 2.0


@dataclass(frozen=True)
class Claim:
    """A finding about an allocator, and the gain of changing to the best other allocator.

    `effect` is what the finding claims that its cause costs, and `ends` is the range of this claim.
    Effect and gain are shares of the time or memory of the runs with the allocator.
    """

    workload: str
    allocator: str
    finding: str
    effect: float
    ends: Interval | None
    best: str
    gain: float

    def is_borne_out(self, *, by_range: bool) -> bool:
        """Returns whether the gain is within a factor of FACTOR of the claimed effect.

        If `by_range` is true, the gain is compared with the range of the effect instead.
        """
        ends = self.ends if by_range and self.ends else Interval(self.effect, self.effect, 0.95)
        return self.gain > 0 and ends.low / FACTOR <= self.gain <= ends.high * FACTOR


def _wall(samples: list[Sample], name: str) -> float:
    return statistics.fmean(one.wall_ns for one in samples if one.trial.contender == name)


def _gain(why: Why, of: str, its: list[Sample]) -> float:
    """Returns the share of the contender's time or memory that the baseline saves.

    `why` compares the contender, which has the finding, with the baseline, the other allocator.
    """
    if of == "thread time":
        mine, other = (_wall(its, name) for name in (why.contender, why.baseline))
        return 1 - other / mine
    gap = why.time if of == "CPU" else why.memory
    return (gap.whole.change or 0.0) / gap.whole.own if gap is not None and gap.whole.own else 0.0


def claims(run: Run, samples: tuple[Sample, ...]) -> Iterator[Claim]:
    """Yields every finding about a contender on a workload, with the gain of the best other one."""
    names = [one.name for one in run.competing]
    for place, workload in enumerate(run.settings.workloads):
        its = [one for one in samples if one.trial.workload == place and one.counts]
        for name in names:
            pairs = [explain(run, samples, name, other, place) for other in names if other != name]
            pairs = [pair for pair in pairs if not pair.why_not]
            told = {
                raised.name: raised for pair in pairs for who, raised in pair.raised if who == name
            }
            for raised in told.values():
                best = max(pairs, key=lambda pair: _gain(pair, raised.of, its))
                gain = _gain(best, raised.of, its)
                ends = raised.interval
                yield Claim(
                    workload.name, name, raised.name, raised.effect, ends, best.baseline, gain
                )


def main() -> int:
    """Prints a line for each finding, and the two counts at the end. Returns the exit status."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = store.Folder(Path(sys.argv[1]))
    found = list(claims(folder.run(), folder.samples()))
    print(
        f"{'workload':22} {'of':10} {'finding':24} {'claimed':>8} {'range':>12} {'gained':>8}  by"
    )
    for one in found:
        spread = f"[{one.ends.low * 100:.0f}, {one.ends.high * 100:.0f}]" if one.ends else ""
        sign = (
            ""
            if one.is_borne_out(by_range=False)
            else "  ≈"
            if one.is_borne_out(by_range=True)
            else "  ✘"
        )
        print(
            f"{one.workload:22} {one.allocator:10} {one.finding:24} {one.effect * 100:6.1f} % "
            f"{spread:>12} {one.gain * 100:6.1f} %  {one.best}{sign}"
        )
    near, within = (
        sum(one.is_borne_out(by_range=by_range) for one in found) for by_range in (False, True)
    )
    print(
        f"\n{len(found)} findings; the gain is within a factor of 2 of the claim for {near},"
        f" and of its range for {within}"
    )
    print(f"by {cairn.__file__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
