"""Carries a run out: warm-up, random complete rounds, the decision to stop. Prints nothing; an observer may watch."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cairn.compare import comparison, plan, stats
from cairn.doctor import machine
from cairn.errors import ContenderFailed, Interrupted, ProgramFailed, UsageError
from cairn.model import INTERRUPTED, TIME_BUDGET, Run, Sample, StopRule, Trial, value
from cairn.run.runner import Runner
from cairn.run.store import Folder

WARM_FROM_BYTES = 256 << 20
"""Footprint from which cold guest memory shows: a 3 GB fill took 6.5 s cold and 0.22 s warm in a virtual machine."""
_WARM_SHARE = 1.2
_WARM_LIMIT = 0.7
"""Never touch more than this share of the memory that is available."""
_LOOKS_ALL = 100
"""Up to so many rounds the progress line is that of the last one."""
_LOOKS_GROWTH = 1.05


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands after a round."""

    rounds: int
    rounds_expected: int
    seconds_left: float | None
    half_width: float | None
    leading: str | None


class Observer(Protocol):
    """Whoever shows what happens; called between trials, never during one."""

    def trial_begins(self, trial: Trial) -> None:
        """The next trial is about to start."""

    def trial_ended(self, sample: Sample, /) -> None:
        """A trial was measured and stored."""

    def contender_failed(self, name: str, why: str) -> None:
        """This contender takes no further part."""

    def told(self, sentence: str) -> None:
        """Something that the user should know and that changes no result."""

    def warmed(self, size: int) -> None:
        """Memory is touched before each round from now on; `size` in bytes."""

    def round_ended(self, progress: Progress) -> None:
        """All contenders ran once more."""


class Measurement:
    """One run being measured, new or resumed. Every trial is stored before the next begins."""

    def __init__(self, run: Run, folder: Folder, scratch: Path, observer: Observer) -> None:
        self._run = run
        self._folder = folder
        self._runner = Runner(run.settings, run.contenders, scratch)
        self._observer = observer
        self._samples: list[Sample] = []
        self._of: list[list[Sample]] = [[] for _ in run.settings.workloads]
        """By workload, as the rule judges them."""
        self._first: dict[tuple[int, str], Sample] = {}
        """Of each workload and contender, the first trial that ended well."""
        self._tried: set[tuple[int, str]] = set()
        self._failed: set[tuple[int, str]] = set()
        self._settled: dict[int, str] = {}
        """Workloads that need no more rounds, and why."""
        self._stretch_s = [0.0] * len(run.settings.workloads)
        """How long the contenders took on each workload in its last round."""
        self._looks: dict[int, tuple[int, int, stats.Look]] = {}
        """By workload: rounds and contenders at the last look, and what it said."""
        self._warm_bytes = run.settings.warm_memory or 0
        before = folder.samples()
        for sample in before:
            self._note(sample)
        for workload, of in enumerate(self._of):
            last = max((sample.trial.round for sample in of), default=0)
            self._stretch_s[workload] = sum(
                s.wall_ns / 1e9 for s in before if _place(s) == (workload, last)
            )
        self._began = time.monotonic() - sum(sample.wall_ns for sample in before) / 1e9
        """As if all that was measured before a resume had just been: its runs are off the budget, what lay between is
        not known."""
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._warm = {_cell(sample) for sample in before if sample.started_at > booted}
        """Of a run that goes on: what ran since this machine was started, and need not be warmed again."""

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All trials so far, those of before a resume included."""
        return tuple(self._samples)

    def measure(self) -> None:
        """Runs until the rule says stop.

        Raises ProgramFailed when the baseline fails, ContenderFailed when nothing is left to compare or the baseline
        has no proof, Interrupted on ctrl-C; whatever was measured by then is in the folder. Among built-in workloads a
        failure costs the workload, or the contender on it, and never the run.
        """
        settings = self._run.settings
        for workload, name in sorted(self._failed):
            if name == self._run.baseline and not settings.reports:
                raise ProgramFailed(
                    f"this run failed under {self._run.baseline} before; begin a new one"
                )
            if name == self._run.baseline and not settings.instructions:
                self._settled[workload] = f"fails under {name}"
        try:
            if settings.setup is not None:
                self._runner.hook("setup", settings.setup)
            try:
                self._rounds()
                self._folder.mark_stopped(
                    "\n".join(self._settled[w] for w in sorted(self._settled))
                )
            finally:
                self._clean_up()
        except KeyboardInterrupt:
            self._folder.mark_stopped(INTERRUPTED)
            raise Interrupted("interrupted; what was measured is kept") from None

    def _clean_up(self) -> None:
        """Its failure is told and changes nothing: what was measured is measured."""
        if self._run.settings.cleanup is not None:
            try:
                self._runner.hook("cleanup", self._run.settings.cleanup)
            except UsageError as error:
                self._observer.told(str(error))

    def _rounds(self) -> None:
        run = self._run
        names = [contender.name for contender in run.contenders]
        baseline_first = [run.baseline, *(name for name in names if name != run.baseline)]
        workloads = range(len(run.settings.workloads))
        if self._settle():
            return
        warming = plan.warm_up(baseline_first, run.settings.warmup, workloads)
        self._carry_out(
            (t for t in warming if (t.workload, t.contender) not in self._warm), watch=True
        )
        self._tell_unchecked()
        self._decide_warm_memory()
        number = max((sample.trial.round for sample in self._samples), default=0)
        while not self._settle():
            number += 1
            if self._warm_bytes:
                self._runner.touch(self._warm_bytes)
            self._carry_out(plan.one_round(number, names, run.seed, workloads))
            self._observer.round_ended(self._progress())

    def _settle(self) -> bool:
        """Notes which workloads need no more rounds; whether that is all of them."""
        for workload in range(len(self._of)):
            because = None if workload in self._settled else self._enough(workload)
            if because is not None:
                self._settled[workload] = because
        return len(self._settled) == len(self._of)

    def _carry_out(self, trials: Iterable[Trial], *, watch: bool = False) -> None:
        """Runs those of them that still take part, and notes how long each workload took."""
        seconds: dict[int, float] = {}
        for trial in trials:
            if (
                trial.workload not in self._settled
                and (trial.workload, trial.contender) not in self._failed
            ):
                began = time.monotonic()
                self._take(trial, watch=watch)
                seconds[trial.workload] = (
                    seconds.get(trial.workload, 0.0) + time.monotonic() - began
                )
        for workload, taken in seconds.items():
            self._stretch_s[workload] = taken

    def _take(self, trial: Trial, *, watch: bool = False) -> None:
        self._observer.trial_begins(trial)
        sample, trace = self._runner.trial(trial, watch=watch)
        self._check_environment(sample)
        sample = self._verified(sample)
        if _cell(sample) not in self._tried:
            self._folder.keep("witness", f"{trial.workload}-{trial.contender}.jsonl", trace.witness)
        self._folder.append(sample)
        self._note(sample)
        self._observer.trial_ended(sample)
        if sample.failure is not None:
            several = f"{trial.workload}-" if len(self._run.settings.workloads) > 1 else ""
            self._folder.keep(
                "failed", f"{several}{trial.contender}.stderr", trace.stderr_tail.encode()
            )
            self._fail(sample)

    def _note(self, sample: Sample) -> None:
        """Files a sample where it is looked for: what a look costs must not grow with the number of workloads."""
        self._samples.append(sample)
        self._of[sample.trial.workload].append(self._judged(sample))
        self._tried.add(_cell(sample))
        if sample.failure is None:
            self._first.setdefault(_cell(sample), sample)
        else:
            self._failed.add(_cell(sample))

    def _judged(self, sample: Sample) -> Sample:
        """The sample as the rule looks at it: with its active time for its wall time, which differs where it slept."""
        active = value(sample, "active")
        return sample if not active or active < 0 else replace(sample, wall_ns=round(active))

    def _check_environment(self, sample: Sample) -> None:
        """A run that goes on in another shell must not mix two environments: what an allocator reads stays the same."""
        before = self._first.get(_cell(sample), sample)
        if sample.failure is None and before.proof.knobs != sample.proof.knobs:
            changed = sorted(before.proof.knobs.keys() ^ sample.proof.knobs.keys()) or sorted(
                sample.proof.knobs
            )
            raise UsageError(
                f"{', '.join(changed)} is not as when this run began; set it as it was, or begin a new run"
            )

    def _verified(self, sample: Sample) -> Sample:
        """What the baseline gave first is what every trial must give: its output under --verify, or its checksum."""
        settings = self._run.settings
        first = self._first.get((sample.trial.workload, self._run.baseline), sample)
        if sample.failure is not None or sample.output_digest == first.output_digest:
            return sample
        if not (settings.verify_output or settings.reports):
            return sample
        other = (
            "every time"
            if sample.trial.contender == self._run.baseline
            else f"than under {self._run.baseline}"
        )
        if settings.reports:
            return replace(sample, failure=f"computed another checksum {other}")
        return replace(sample, failure=f"printed something else {other} (--verify same-output)")

    def _tell_unchecked(self) -> None:
        """Which workloads compute no checksum, so that nobody believes theirs were compared."""
        if self._run.settings.reports:
            settings = self._run.settings
            without = sorted(
                {cell[0] for cell, sample in self._first.items() if sample.output_digest is None}
            )
            if without:
                names = ", ".join(settings.workloads[workload].name for workload in without)
                self._observer.told(
                    f"a time ends {names}: no checksum shows that all contenders computed the same"
                )

    def _fail(self, sample: Sample) -> None:
        name, workload, why = sample.trial.contender, sample.trial.workload, sample.failure or ""
        settings = self._run.settings
        several = len(settings.workloads) > 1
        where = f" on {settings.workloads[workload].name}" if several else ""
        self._observer.contender_failed(f"{name}{where}", why)
        if settings.instructions:
            return
        if name == self._run.baseline:
            if settings.reports:
                self._settled[workload] = f"fails under {name}"
                return
            if sample.proof.problem is not None and why == sample.proof.problem:
                raise ContenderFailed(why)
            raise ProgramFailed(
                f"the program {why} under {name}{where}, so there is nothing to compare with"
            )
        competing = [one.name for one in self._run.competing]
        if name in competing and all(
            (workload, one) in self._failed for one in competing if one != self._run.baseline
        ):
            self._settled[workload] = "nothing left to compare"
            if settings.reports or len(self._settled) < len(settings.workloads):
                return
            raise ContenderFailed(
                f"nothing is left to compare {self._run.baseline} with{where}: {name} {why}"
            )

    def _enough(self, workload: int) -> str | None:
        """Why this workload needs no more rounds; None to go on."""
        rule = self._run.rule
        ratios = self._ratios(workload)
        done = self._complete(workload, ratios)
        if ratios:
            look = self._look(workload, ratios)
            if look.stop:
                return look.because or "stopped"
        elif done >= (rule.max_rounds if rule.precision is None else rule.min_rounds):
            return f"{done} rounds"
        if rule.budget_s is not None and done >= 1:
            expected = sum(
                self._stretch_s[w] for w in range(len(self._of)) if w not in self._settled
            )
            if time.monotonic() - self._began + expected > rule.budget_s:
                return TIME_BUDGET
        return None

    def _look(self, workload: int, ratios: Mapping[str, Sequence[float]]) -> stats.Look:
        """At every round that may be the last; of hundreds, else, whenever a twentieth more are there.

        A look takes the square of their number.
        """
        rule = self._run.rule
        rounds = min(len(of) for of in ratios.values())
        before = self._looks.get(workload)
        decides = before is None or before[1] != len(ratios) or rounds in stats.look_rounds(rule)
        if before is not None and not decides:
            at, _, said = before
            if rounds == at or _LOOKS_ALL < rounds < at * _LOOKS_GROWTH:
                return said
        said = stats.look(ratios, rule) if rule.judged == "wall" else look(ratios, rule)
        self._looks[workload] = rounds, len(ratios), said
        return said

    def _ratios(self, workload: int) -> dict[str, tuple[float, ...]]:
        if self._run.settings.instructions:
            return {}
        names = [contender.name for contender in self._run.competing]
        return comparison.wall_ratios(self._of[workload], names, self._run.baseline)

    def _complete(self, workload: int, ratios: Mapping[str, Sequence[float]]) -> int:
        """Rounds that count; where nothing is compared, those of whoever has fewest."""
        rounds = {
            contender.name: 0
            for contender in self._run.contenders
            if (workload, contender.name) not in self._failed
        }
        for sample in self._of[workload]:
            if sample.counts and sample.trial.contender in rounds:
                rounds[sample.trial.contender] += 1
        alone = min(rounds.values(), default=self._run.rule.max_rounds)
        return min((len(of) for of in ratios.values()), default=alone)

    def _progress(self) -> Progress:
        """Of the workload that is farthest from its end; the time left is that of all."""
        rule = self._run.rule
        standings = []
        left = 0.0
        for workload in range(len(self._of)):
            if workload in self._settled:
                continue
            ratios = self._ratios(workload)
            done = self._complete(workload, ratios)
            look = self._look(workload, ratios) if ratios else None
            expected = max(done, look.rounds_expected if look else rule.min_rounds)
            left += (expected - done) * self._stretch_s[workload]
            standings.append((expected - done, done, expected, look))
        if not standings:
            return Progress(0, 0, 0.0, None, None)
        _, done, expected, look = max(standings, key=lambda standing: standing[0])
        if rule.budget_s is not None:
            left = min(left, max(0.0, rule.budget_s - (time.monotonic() - self._began)))
        return Progress(
            rounds=done,
            rounds_expected=expected,
            seconds_left=left,
            half_width=look.half_width if look else None,
            leading=look.leading if look and len(self._of) == 1 else None,
        )

    def _decide_warm_memory(self) -> None:
        """In a virtual machine, a first touch of memory that the host has not backed costs up to 30 times more."""
        if self._run.settings.warm_memory is None and self._run.host.virtual:
            well = [sample for sample in self._samples if sample.failure is None]
            peak = max((sample.memory.peak_bytes or 0 for sample in well), default=0)
            if peak >= WARM_FROM_BYTES:
                available = machine.available_memory() or 0
                self._warm_bytes = min(int(peak * _WARM_SHARE), int(available * _WARM_LIMIT))
        if self._warm_bytes:
            self._observer.warmed(self._warm_bytes)


def _place(sample: Sample) -> tuple[int, int]:
    return sample.trial.workload, sample.trial.round


def _cell(sample: Sample) -> tuple[int, str]:
    return sample.trial.workload, sample.trial.contender


def look(ratios: Mapping[str, Sequence[float]], rule: StopRule) -> stats.Look:
    """Whether one workload of a suite has been measured precisely enough; it asks nothing about who is ahead.

    `stats.look` answers for a comparison that ends in a verdict of its own: with ten contenders its intervals exist
    from nine rounds on. A suite ends in means over dozens of workloads, to which each gives its estimates alone. So
    here each contender's mean log ratio has its own 95 % interval by Student's t, and the workload stops once all are
    as narrow as `precision` asks. A rule that looks at widths alone leaves estimates unbiased, and costs such intervals
    three points of their coverage at most (tests/python/test_bench.py).
    """
    rounds = min(len(differences) for differences in ratios.values())
    widths = (
        [math.expm1(stats.mean_half_width(differences[:rounds])) for differences in ratios.values()]
        if rounds > 2
        else []
    )
    widest = max(widths, default=None)
    means = {name: statistics.fmean(differences) for name, differences in ratios.items() if rounds}
    leader = min(means, key=means.__getitem__, default=None)
    because = None
    if rounds >= rule.max_rounds:
        because = f"{rounds} rounds"
    elif (
        rule.precision is not None
        and rounds >= rule.min_rounds
        and widest is not None
        and widest <= rule.precision
    ):
        because = "precision reached"
    expected = rule.max_rounds
    if rule.precision is not None and widest is not None:
        wanted = math.ceil(rounds * (widest / rule.precision) ** 2)
        expected = min(rule.max_rounds, max(rule.min_rounds, rounds + 1, wanted))
    return stats.Look(
        stop=because is not None,
        because=because,
        half_width=widest,
        rounds_expected=rounds if because else expected,
        leading=leader if leader is not None and means[leader] < 0 else None,
    )
