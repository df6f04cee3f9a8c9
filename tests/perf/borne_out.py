"""Whether what is found is borne out: the effect that is claimed, beside what is gained where the cause is taken away.

    .venv/bin/python tests/perf/borne_out.py RUN

RUN is the folder of a run with --why and several allocators, such as 'cairn bench suite --why'. The cause of what is found of
one alone is taken away by taking another: what the best of the others takes less, of CPU time, of the peak, or of the wall
clock where it is threads' time. What is found beside another is held against what its own code takes longer. Of each
finding one line, then how many gains lie within a factor of two of the claim, by its value or by an end of its range.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn import store
from cairn.model import Interval, Run, Sample
from cairn.why import OWN, Why, explain

FACTOR = 2.0


@dataclass(frozen=True)
class Claim:
    """Shares of what the allocator's runs take, or hold."""

    workload: str
    allocator: str
    finding: str
    effect: float
    ends: Interval | None
    best: str
    gain: float

    @property
    def is_borne_out(self) -> bool:
        """Within the factor of the value, or of the range."""
        ends = self.ends or Interval(self.effect, self.effect, 0.95)
        return ends.low / FACTOR <= self.gain <= ends.high * FACTOR


def _wall(samples: list[Sample], name: str) -> float:
    return statistics.fmean(one.wall_ns for one in samples if one.trial.contender == name)


def _gain(why: Why, of: str, its: list[Sample]) -> float:
    """What the baseline of the pair takes less than its contender."""
    if of == "thread time":
        mine, other = (_wall(its, name) for name in (why.contender, why.baseline))
        return 1 - other / mine
    gap = why.time if of == "CPU" else why.memory
    return (gap.whole.change or 0.0) / gap.whole.own if gap is not None and gap.whole.own else 0.0


def claims(run: Run, samples: tuple[Sample, ...]) -> Iterator[Claim]:
    """Every finding of every contender on every workload."""
    names = [one.name for one in run.competing]
    for place, workload in enumerate(run.settings.workloads):
        its = [one for one in samples if one.trial.workload == place and one.counts]
        for name in names:
            pairs = [explain(run, samples, name, other, place) for other in names if other != name]
            told = {raised.name: raised for pair in pairs for who, raised in pair.raised if who == name}
            for raised in told.values():
                best = max(pairs, key=lambda pair: _gain(pair, raised.of, its))
                gain = _gain(best, raised.of, its)
                ends = raised.interval
                yield Claim(workload.name, name, raised.name, raised.effect, ends, best.baseline, gain)
            for pair in pairs:
                if pair.time is None or not pair.time.whole.own or (pair.time.whole.change or 0.0) <= 0:
                    continue
                own = next(part for part in pair.time.parts if part.name == OWN)
                for found in pair.findings:
                    longer = (own.change or 0.0) / pair.time.whole.own
                    ends = found.effect.interval
                    yield Claim(workload.name, name, found.name, found.effect.value, ends, pair.baseline, longer)


def main() -> int:
    """Prints the lines."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = store.Folder(Path(sys.argv[1]))
    found = list(claims(folder.run(), folder.samples()))
    print(f"{'workload':22} {'of':10} {'finding':24} {'claimed':>8} {'range':>12} {'gained':>8}  by")
    for one in found:
        spread = f"[{one.ends.low * 100:.0f}, {one.ends.high * 100:.0f}]" if one.ends else ""
        sign = "" if one.is_borne_out else "  ✘"
        print(
            f"{one.workload:22} {one.allocator:10} {one.finding:24} {one.effect * 100:6.1f} % {spread:>12} "
            f"{one.gain * 100:6.1f} %  {one.best}{sign}"
        )
    print(
        f"\n{len(found)} findings, of which {sum(one.is_borne_out for one in found)} are borne out within a factor of 2"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
